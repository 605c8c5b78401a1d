//! `cove queue`: commands of an operator, or of an owner of executions, for a server's queue.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use api::{ExecutionRecord, QueueChange, QueueStats};
use axum::http::Method;

use crate::cli::{QueueCommand, ScopeArgs};
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote};
use crate::run::print_json;
use crate::usage_error::UsageError;

/// Longest answer to a question, in bytes.
const REPLY_BYTES_MAX: u64 = 16;

/// Runs one command.
pub(crate) fn run(
    command: QueueCommand,
    config: &CoveConfig,
    environment: &Environment,
) -> ExitCode {
    remote::with_server(command.server(), config, environment, async |server| {
        execute(command.clone(), &server).await.map(|()| 0)
    })
}

async fn execute(command: QueueCommand, server: &Remote) -> Result<()> {
    match command {
        QueueCommand::Stats { scope } => {
            let path = scoped("/v1/queue", &scope);
            show_stats(&server.call(Method::GET, &path).await?, scope.json)?;
        }
        QueueCommand::Pause { json, server: _ } => {
            show_stats(&server.call(Method::POST, "/v1/queue/pause").await?, json)?;
        }
        QueueCommand::Resume { json, server: _ } => {
            show_stats(&server.call(Method::POST, "/v1/queue/resume").await?, json)?;
        }
        QueueCommand::Retry { id: Some(id), scope } => {
            let path = format!("/v1/executions/{id}/retry");
            let record: ExecutionRecord = server.call(Method::POST, &path).await?;
            if scope.json {
                print_json(&record)?;
            } else {
                writeln!(io::stdout(), "{} is {}", record.id, record.state.as_str())?;
            }
        }
        QueueCommand::Retry { id: None, scope } => {
            let path = scoped("/v1/queue/retry", &scope);
            let change: QueueChange = server.call(Method::POST, &path).await?;
            show_change(change, "queued again", scope.json)?;
        }
        QueueCommand::Drain { yes, scope } => {
            if !yes && !confirmed(scope.all)? {
                return Err(UsageError("nothing was cancelled".to_owned()).into());
            }
            let path = scoped("/v1/queue/drain", &scope);
            let change: QueueChange = server.call(Method::POST, &path).await?;
            show_change(change, "cancelled", scope.json)?;
        }
    }
    Ok(())
}

fn scoped(path: &str, scope: &ScopeArgs) -> String {
    if scope.all { format!("{path}?all=true") } else { path.to_owned() }
}

/// Asks the user at the terminal for confirmation.
fn confirmed(all: bool) -> Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(UsageError("no terminal to ask on; confirm with --yes".to_owned()).into());
    }
    let whose = if all { "everybody's" } else { "your" };
    write!(io::stderr(), "Cancel {whose} waiting executions? [y/N] ")?;
    let mut reply = String::new();
    let mut input = io::Read::take(io::stdin().lock(), REPLY_BYTES_MAX);
    io::BufRead::read_line(&mut input, &mut reply)?;
    Ok(matches!(reply.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn show_change(change: QueueChange, what: &str, json: bool) -> io::Result<()> {
    if json {
        return print_json(&change);
    }
    let noun = if change.changed == 1 { "execution" } else { "executions" };
    writeln!(io::stdout(), "{} {noun} {what}", change.changed)
}

fn show_stats(stats: &QueueStats, json: bool) -> io::Result<()> {
    if json {
        return print_json(stats);
    }
    write!(io::stdout(), "{}", table(stats))
}

/// Formats the figures of the queue, one per line.
fn table(stats: &QueueStats) -> String {
    let paused = if stats.paused { "paused: nothing is started" } else { "open" };
    let oldest = stats.oldest_queued_ms.map(|ms| format!(", the oldest for {}", remote::span(ms)));
    let tenants = match stats.tenants_waiting {
        0 | 1 => String::new(),
        count => format!(", of {count} tenants"),
    };
    format!(
        "queue      {paused} ({})\n\
         queued     {}{tenants}{}\n\
         running    {}\n\
         finished   {}\n\
         cancelled  {}\n\
         expired    {}\n\
         dead       {}\n",
        remote::plain(&stats.backend),
        stats.queued,
        oldest.unwrap_or_default(),
        stats.running,
        stats.finished,
        stats.cancelled,
        stats.expired,
        stats.dead
    )
}

#[cfg(test)]
mod tests {
    //! Text output about the queue.

    use super::*;

    #[test]
    fn figures_stand_below_each_other() {
        let stats = QueueStats {
            backend: "sqlite".to_owned(),
            paused: true,
            queued: 12,
            oldest_queued_ms: Some(90_000),
            tenants_waiting: 3,
            dead: 1,
            ..QueueStats::default()
        };
        let text = table(&stats);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "queue      paused: nothing is started (sqlite)");
        assert_eq!(lines[1], "queued     12, of 3 tenants, the oldest for 1 min 30 s");
        assert_eq!(lines[6], "dead       1");
    }
}
