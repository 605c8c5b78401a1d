//! `cove audit`: what sandboxes did with their grants.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use api::{AuditRecord, AuditRecordList};
use axum::http::Method;
use serde::Serialize;

use crate::agent::print_line;
use crate::cli::SandboxAuditArgs;
use crate::complain;
use crate::config::{CoveConfig, Environment};
use crate::percent::escaped;
use crate::remote::{self, Remote, plain, span};
use crate::values::columns;

/// Records that are asked for at a time: as many as a server gives.
const PAGE_RECORDS: usize = 1000;
/// Characters of a text that people are shown.
const TEXT_SHOWN: usize = 160;

/// Runs it.
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
    let filter = filter(args);
    let mut left = if args.all { usize::MAX } else { args.limit.get() };
    let (mut after, mut is_first) = (args.after, true);
    loop {
        let size = left.min(PAGE_RECORDS);
        let path = format!("/v1/audit?{filter}after={after}&limit={size}");
        let page: AuditRecordList = server.call(Method::GET, &path).await?;
        if args.json {
            page.records.iter().try_for_each(print_line)?;
        } else {
            write!(io::stdout(), "{}", table(&page.records, is_first))?;
        }
        is_first = false;
        left = left.saturating_sub(page.records.len());
        match page.next_after {
            Some(next) if left > 0 => after = next,
            Some(next) => {
                complain(&format!("there are more: --after {next} goes on, --all shows all"));
                return Ok(());
            }
            None => return Ok(()),
        }
    }
}

/// Returns what is asked for, as a query with `&` at its end.
fn filter(args: &SandboxAuditArgs) -> String {
    let words = [
        ("holder", args.holder.clone()),
        ("tenant", args.tenant.clone()),
        ("event", args.event.map(|it| word(&it))),
        ("outcome", args.outcome.map(|it| word(&it))),
    ];
    let mut filter = String::new();
    for (name, value) in words.iter().filter_map(|(name, it)| Some((name, it.as_deref()?))) {
        filter.push_str(&format!("{name}={}&", escaped(value)));
    }
    filter
}

/// One of the words of the interface.
fn word(word: &impl Serialize) -> String {
    let word = serde_json::to_value(word).ok();
    word.as_ref().and_then(|it| it.as_str()).unwrap_or_default().to_owned()
}

/// A page of records.
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

/// Returns what was asked for, on one line, and why it failed.
fn text(record: &AuditRecord) -> String {
    let mut shown = short(record.text.as_deref().unwrap_or_default());
    if let Some(error) = &record.error {
        let space = if shown.is_empty() { "" } else { "  " };
        // Writing to a string does not fail.
        let _ = write!(shown, "{space}({})", short(error));
    }
    shown
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = plain(&line).chars().take(TEXT_SHOWN).collect();
    if line.chars().nth(TEXT_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// Microseconds as people say them.
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
        let shown = table(&[record], true);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.len() == 2 && lines[0].starts_with("time"), "{shown}");
        let words = [
            "ses_1",
            "postgres:shop",
            "statement",
            "failed",
            "1.2 ms",
            "SELECT \u{fffd}[31m\u{fffd}x",
        ];
        assert!(words.iter().all(|it| lines[1].contains(it)), "{shown}");
        assert!(lines[1].ends_with("x…  (no such table)"), "{shown}");
        assert_eq!((took(999), took(2_500_000)), ("999 µs".to_owned(), "2.5 s".to_owned()));
    }
}
