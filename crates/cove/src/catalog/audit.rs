//! `cove catalog audit`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use axum::http::Method;
use serde_json::Value;
use tokio::time::sleep;

use super::lake::{ask, items, management};
use super::text;
use crate::agent::print_line;
use crate::cli::AuditArgs;
use crate::messages::complain;
use crate::percent::escaped;
use crate::remote::{Remote, RemoteFailure};

/// Lines per request: the largest page that a server returns.
const PAGE_LINES: usize = 1000;
/// Interval at which new lines are requested; a server writes them within a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Period that is queried again for late lines: servers that share a store write their own lines,
/// by their own clocks.
const OVERLAP_MS: u64 = 10_000;

/// Shows lines, the newest last, and with `--follow` also new ones as they arrive.
pub(super) async fn show(server: &Remote, args: &AuditArgs, is_json: bool) -> Result<()> {
    let (mut lines, left_out) = fetch(server, args, args.since, args.limit).await?;
    lines.reverse();
    for line in &lines {
        print(line, is_json)?;
    }
    if left_out > 0 {
        complain(&format!("{left_out} lines did not fit since the server started"));
    }
    if !args.follow {
        return Ok(());
    }
    // Lines that `--limit` left out are not shown later either.
    let floor = lines.iter().map(|it| key(it).0).max().unwrap_or_default();
    // Numbers of shown lines that later pages may contain again, with their times.
    let mut seen: BTreeMap<i64, u64> = lines.iter().map(key).collect();
    let begin = args.since.unwrap_or_else(node::clock::wall_ms);
    let mut newest = seen.values().max().copied().unwrap_or(begin);
    loop {
        io::stdout().flush()?;
        sleep(LOOK_EVERY).await;
        let since = newest.saturating_sub(OVERLAP_MS).max(args.since.unwrap_or(0));
        let (mut lines, _) = fetch(server, args, Some(since), usize::MAX).await?;
        lines.reverse();
        for line in &lines {
            let (seq, at) = key(line);
            if seq > floor && seen.insert(seq, at).is_none() {
                print(line, is_json)?;
                newest = newest.max(at);
            }
        }
        seen.retain(|_, at| *at >= since);
    }
}

fn key(line: &Value) -> (i64, u64) {
    (line["seq"].as_i64().unwrap_or_default(), line["at-ms"].as_u64().unwrap_or_default())
}

/// Returns the newest matching lines, newest first, and the number of lines that the server
/// dropped.
async fn fetch(
    server: &Remote,
    args: &AuditArgs,
    since: Option<u64>,
    limit: usize,
) -> Result<(Vec<Value>, u64), RemoteFailure> {
    let mut query = Vec::new();
    let texts = [
        ("principal", &args.principal),
        ("operation", &args.operation),
        ("outcome", &args.outcome),
        ("path", &args.path),
    ];
    for (name, value) in texts {
        query.extend(value.as_ref().map(|it| format!("{name}={}", escaped(it))));
    }
    for (name, value) in [("since", since), ("until", args.until)] {
        query.extend(value.map(|it| format!("{name}={it}")));
    }
    let (mut lines, mut next) = (Vec::new(), Some(String::new()));
    let mut left_out = 0;
    while let Some(token) = next.take().filter(|_| lines.len() < limit) {
        let size = PAGE_LINES.min(limit - lines.len());
        let page = format!("pageSize={size}&pageToken={}", escaped(&token));
        let path = management(&format!("audit?{page}&{}", query.join("&")));
        let answer = ask(server, Method::GET, &path, None).await?;
        lines.extend_from_slice(items(&answer, "lines"));
        left_out = answer["left-out"].as_u64().unwrap_or_default();
        next = answer["next-page-token"].as_str().map(str::to_owned);
    }
    Ok((lines, left_out))
}

/// Prints one line.
fn print(line: &Value, is_json: bool) -> Result<()> {
    if is_json {
        return print_line(line);
    }
    let who = match &line["principal"] {
        Value::Null => "a stranger".to_owned(),
        who => text(who),
    };
    let by = line.get("key").filter(|it| !it.is_null()).map(|it| format!(" by {}", text(it)));
    let why = line.get("refusal").filter(|it| !it.is_null()).map(|it| format!(" {}", text(it)));
    let line_text = format!(
        "{}  {who}{}  {:<18} {} {}{}  {}",
        text(&line["at"]),
        by.unwrap_or_default(),
        text(&line["operation"]),
        text(&line["outcome"]),
        text(&line["status"]),
        why.unwrap_or_default(),
        text(&line["path"]),
    );
    Ok(writeln!(io::stdout(), "{}", line_text.trim_end())?)
}
