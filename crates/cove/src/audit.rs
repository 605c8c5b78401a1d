//! `cove audit`: shows how sandboxes used their grants.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{AuditRecord, AuditRecordList, AuditSummaryKey, AuditSummaryReport};
use axum::http::Method;
use serde::Serialize;

use crate::agent::print_line;
use crate::cli::{RecordOrder, SandboxAuditArgs};
use crate::config::{CoveConfig, Environment};
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::{self, Remote, plain, span};
use crate::run::print_json;
use crate::values::columns;

/// Records per request: the largest page that a server returns.
const PAGE_RECORDS: usize = 1000;
/// Interval at which new records are requested; a server writes them as often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// First line of comma-separated values.
const CSV_HEADING: &str = "seq,at,tenant,holder,grant,event,outcome,took_us,rows,bytes_out,\
    bytes_in,text,error\r\n";
/// Characters of a text that are shown to people.
const TEXT_SHOWN: usize = 160;

/// Runs the command.
pub(crate) fn run(
    args: &SandboxAuditArgs,
    config: &CoveConfig,
    environment: &Environment,
) -> ExitCode {
    remote::with_server(&args.server, config, environment, async |server| {
        show(args, &server).await.map(|()| 0)
    })
}

async fn show(args: &SandboxAuditArgs, server: &Remote) -> Result<()> {
    if let Some(by) = args.summary {
        return summarize(args, by, server).await;
    }
    if args.csv {
        write!(io::stdout(), "{CSV_HEADING}")?;
    }
    let filter = filter(args);
    if args.follow {
        return follow(args, &filter, server).await;
    }
    let is_newest_first = args.order == RecordOrder::Desc;
    let order = if is_newest_first { "&order=desc" } else { "" };
    let mut left = if args.all { usize::MAX } else { args.limit.get() };
    let (mut after, mut before, mut is_first) = (args.after, args.before, true);
    loop {
        let size = left.min(PAGE_RECORDS);
        let place = place(after, before);
        let path = format!("/v1/audit?{filter}{place}limit={size}{order}");
        let page: AuditRecordList = server.call(Method::GET, &path).await?;
        print(args, &page.records, is_first)?;
        is_first = false;
        left = left.saturating_sub(page.records.len());
        let next = if is_newest_first { page.next_before } else { page.next_after };
        let option = if is_newest_first { "--before" } else { "--after" };
        match next {
            Some(next) if left > 0 && is_newest_first => before = Some(next),
            Some(next) if left > 0 => after = Some(next),
            Some(next) => {
                complain(&format!("there are more: {option} {next} continues, --all shows all"));
                return Ok(());
            }
            None => return Ok(()),
        }
    }
}

/// Shows records as they arrive, until Ctrl-C.
async fn follow(args: &SandboxAuditArgs, filter: &str, server: &Remote) -> Result<()> {
    let mut after = match args.after {
        Some(after) => after,
        None => {
            let path = "/v1/audit?limit=1&order=desc";
            server.call::<AuditRecordList>(Method::GET, path).await?.newest
        }
    };
    let mut is_first = true;
    loop {
        let path = format!("/v1/audit?{filter}after={after}&limit={PAGE_RECORDS}");
        let page: AuditRecordList = server.call(Method::GET, &path).await?;
        if !page.records.is_empty() {
            print(args, &page.records, is_first)?;
            is_first = false;
        }
        io::stdout().flush()?;
        after = after.max(page.next_after.unwrap_or(page.newest));
        if page.next_after.is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Shows the targets that sandboxes reached, with counts.
async fn summarize(args: &SandboxAuditArgs, by: AuditSummaryKey, server: &Remote) -> Result<()> {
    let (filter, limit) = (filter(args), args.limit.get().min(PAGE_RECORDS));
    let place = place(args.after, args.before);
    let path = format!("/v1/audit/summary?{filter}{place}by={}&limit={limit}", word(&by));
    let report: AuditSummaryReport = server.call(Method::GET, &path).await?;
    if args.json {
        return Ok(print_json(&report)?);
    }
    let names = ["name", "tenant", "records", "refused", "failed", "missing", "targets", "last"];
    let mut rows = vec![names.map(str::to_owned)];
    for group in &report.groups {
        rows.push([
            plain(&group.name),
            plain(&group.tenant),
            group.records.to_string(),
            group.refused.to_string(),
            group.failed.to_string(),
            group.missing.to_string(),
            group.targets_count.to_string(),
            node::clock::rfc3339_of_ms(group.last_ms),
        ]);
    }
    write!(io::stdout(), "{}", columns(&rows, ""))?;
    if report.others > 0 {
        complain(&format!("{} records are of others that are not shown", report.others));
    }
    if let Some(next) = report.next_before {
        complain(&format!("these are the newest: --before {next} counts what came before them"));
    }
    Ok(())
}

fn print(args: &SandboxAuditArgs, records: &[AuditRecord], is_first: bool) -> Result<()> {
    if args.json {
        return records.iter().try_for_each(print_line);
    }
    match args.csv {
        true => records.iter().try_for_each(|it| write!(io::stdout(), "{}", csv(it)))?,
        false => write!(io::stdout(), "{}", table(records, is_first))?,
    }
    Ok(())
}

/// Formats a record as a line of comma-separated values (RFC 4180).
fn csv(record: &AuditRecord) -> String {
    let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
    let fields = [
        record.seq.to_string(),
        record.at.clone(),
        record.tenant.clone(),
        record.holder.clone(),
        record.grant.clone(),
        word(&record.event),
        word(&record.outcome),
        record.took_us.to_string(),
        number(record.rows),
        number(record.bytes_out),
        number(record.bytes_in),
        record.text.clone().unwrap_or_default(),
        record.error.clone().unwrap_or_default(),
    ];
    fields.map(|field| quoted(&field)).join(",") + "\r\n"
}

/// Quotes a field where necessary. A text that a spreadsheet would take for a formula gets a
/// leading apostrophe, which spreadsheets do not show: sandboxes choose these texts.
fn quoted(field: &str) -> String {
    let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = if is_formula { format!("'{field}") } else { field.to_owned() };
    match field.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

/// Returns the page position as query parameters, with `&` at the end.
fn place(after: Option<u64>, before: Option<u64>) -> String {
    let after = after.map(|it| format!("after={it}&")).unwrap_or_default();
    before.map(|it| format!("{after}before={it}&")).unwrap_or(after)
}

/// Returns the filter as query parameters, with `&` at the end.
fn filter(args: &SandboxAuditArgs) -> String {
    let parameters = [
        ("holder", args.holder.clone()),
        ("tenant", args.tenant.clone()),
        ("grant", args.grant.clone()),
        ("event", args.event.map(|it| word(&it))),
        ("outcome", args.outcome.map(|it| word(&it))),
        ("text", args.text.clone()),
        ("from_ms", args.since.map(|it| it.to_string())),
        ("to_ms", args.until.map(|it| it.to_string())),
    ];
    let mut filter = String::new();
    for (name, value) in parameters.iter().filter_map(|(name, it)| Some((name, it.as_deref()?))) {
        filter.push_str(&format!("{name}={}&", escaped(value)));
    }
    filter
}

/// Returns the name of an enum value in the HTTP interface.
fn word(word: &impl Serialize) -> String {
    let word = serde_json::to_value(word).ok();
    word.as_ref().and_then(|it| it.as_str()).unwrap_or_default().to_owned()
}

/// Formats records as a table.
fn table(records: &[AuditRecord], heading: bool) -> String {
    let mut rows = Vec::new();
    if heading {
        let names = ["time", "holder", "grant", "event", "outcome", "took", "rows", "text"];
        rows.push(names.map(str::to_owned));
    }
    for record in records {
        rows.push([
            plain(&record.at),
            plain(&record.holder),
            plain(&record.grant),
            word(&record.event),
            word(&record.outcome),
            took(record.took_us),
            record.rows.map_or_else(|| "-".to_owned(), |rows| rows.to_string()),
            text(record),
        ]);
    }
    columns(&rows, "")
}

/// Returns the requested text on one line, followed by the error if there was one.
fn text(record: &AuditRecord) -> String {
    let mut line = short(record.text.as_deref().unwrap_or_default());
    if let Some(error) = &record.error {
        let space = if line.is_empty() { "" } else { "  " };
        // Writing to a string does not fail.
        let _ = write!(line, "{space}({})", short(error));
    }
    line
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut cut: String = plain(&line).chars().take(TEXT_SHOWN).collect();
    if line.chars().nth(TEXT_SHOWN).is_some() {
        cut.push('…');
    }
    cut
}

/// Formats microseconds for people.
fn took(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        _ => span(us / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use api::{AuditEvent, AuditOutcome};

    use super::*;

    #[test]
    fn a_record_is_one_line() {
        let record = AuditRecord {
            seq: 7,
            at: "2026-11-23T10:00:00.000Z".to_owned(),
            tenant: "t".to_owned(),
            holder: "ses_1".to_owned(),
            grant: "postgres:shop".to_owned(),
            event: AuditEvent::Statement,
            outcome: AuditOutcome::Failed,
            text: Some(format!("SELECT\n\t\u{1b}[31m\u{202e}{}", "x".repeat(200))),
            error: Some("no such\ntable".to_owned()),
            took_us: 1250,
            rows: Some(3),
            bytes_out: None,
            bytes_in: None,
        };
        let output = table(std::slice::from_ref(&record), true);
        let lines: Vec<&str> = output.lines().collect();
        assert!(lines.len() == 2 && lines[0].starts_with("time"), "{output}");
        let cells = [
            "ses_1",
            "postgres:shop",
            "statement",
            "failed",
            "1.2 ms",
            "SELECT \u{fffd}[31m\u{fffd}x",
        ];
        assert!(cells.iter().all(|it| lines[1].contains(it)), "{output}");
        assert!(lines[1].ends_with("x…  (no such table)"), "{output}");
        let lines = csv(&AuditRecord { text: Some("=1+\"x\",\n".to_owned()), ..record });
        let expected = "7,2026-11-23T10:00:00.000Z,t,ses_1,postgres:shop,statement,failed,1250,3,,,\
            \"'=1+\"\"x\"\",\n\",\"no such\ntable\"\r\n";
        assert_eq!(lines, expected);
        assert_eq!((took(999), took(2_500_000)), ("999 µs".to_owned(), "2.5 s".to_owned()));
    }
}
