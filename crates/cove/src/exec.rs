//! `cove exec`: executions of a server.

mod submit;
mod summary;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{Execution, ExecutionList, ExecutionRecord, Verdict};
use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::time::{MissedTickBehavior, interval};

use self::summary::{summary, table};
use crate::cli::{CancelArgs, ExecCommand, GetArgs, ListArgs, SubmitArgs, WatchArgs};
use crate::config::{CoveConfig, Environment};
use crate::messages::complain;
use crate::percent::escaped;
use crate::plain_text::plain_json;
use crate::remote::follow::{EventFollower, FollowStep};
use crate::remote::show::{ExecutionEnd, ExecutionPrinter, PrintedParts};
use crate::remote::signals::EndSignals;
use crate::remote::{self, Remote};
use crate::run::print_json;

/// Interval at which the queue position is requested while the progress is shown.
const POSITION_INTERVAL: Duration = Duration::from_secs(2);

/// Runs one command.
pub(crate) fn run(
    command: ExecCommand,
    config: &CoveConfig,
    environment: &Environment,
) -> ExitCode {
    remote::with_server(command.server(), config, environment, async |server| match &command {
        ExecCommand::Submit(args) => submit(args, &server).await,
        ExecCommand::Get(args) => get(args, &server).await.map(|()| 0),
        ExecCommand::Watch(args) => watch(args, &server).await,
        ExecCommand::Cancel(args) => cancel(args, &server).await.map(|()| 0),
        ExecCommand::List(args) => list(args, &server).await.map(|()| 0),
    })
}

async fn submit(args: &SubmitArgs, server: &Remote) -> Result<u8> {
    let request = submit::request(args, server).await?;
    let key = args.idempotency_key.as_deref();
    let record: ExecutionRecord = server.post("/v1/executions", &request, key).await?;
    let id = record.id.0.clone();
    let stays = args.wait || args.watch;
    match (args.json, args.watch) {
        (true, _) if stays => {}
        (true, _) => print_json(&record)?,
        (false, true) => complain(&id),
        (false, false) => {
            writeln!(io::stdout(), "{id}")?;
            io::stdout().flush()?;
        }
    }
    if !stays {
        return Ok(0);
    }
    let loud = !args.json && !args.quiet;
    let parts = PrintedParts { output: args.watch && !args.json, messages: loud, progress: loud };
    let code = match follow(server, &id, parts).await? {
        FollowEnd::Ended(code) => code,
        FollowEnd::Left(code) => return Ok(code),
    };
    if args.json {
        print_json(&fetch(server, &id).await?)?;
    }
    Ok(code)
}

async fn watch(args: &WatchArgs, server: &Remote) -> Result<u8> {
    let loud = !args.json && !args.quiet;
    let parts = PrintedParts { output: !args.json, messages: loud, progress: loud };
    let code = match follow(server, &args.id, parts).await? {
        FollowEnd::Ended(code) => code,
        FollowEnd::Left(code) => return Ok(code),
    };
    if args.json {
        print_json(&fetch(server, &args.id).await?)?;
    }
    Ok(code)
}

/// Reason why an execution is no longer followed, with the exit code.
enum FollowEnd {
    /// The execution ended; the code is that of `cove run`.
    Ended(u8),
    /// A signal ended the following; the execution continues.
    Left(u8),
}

/// Shows an execution until it ends, or until a signal ends this process.
async fn follow(server: &Remote, id: &str, parts: PrintedParts) -> Result<FollowEnd> {
    let mut signals = EndSignals::new()?;
    let mut show = ExecutionPrinter::new(parts);
    let end = tokio::select! {
        end = until_end(server, id, &mut show) => end?,
        code = signals.next() => {
            show.progress.clear();
            if parts.messages {
                complain(&format!(
                    "the execution goes on: `cove exec watch {id}` follows it, `cove exec cancel \
                     {id}` ends it"
                ));
            }
            return Ok(FollowEnd::Left(code));
        }
    };
    Ok(FollowEnd::Ended(show.end(&end).await?))
}

async fn until_end(server: &Remote, id: &str, show: &mut ExecutionPrinter) -> Result<ExecutionEnd> {
    let mut follow = EventFollower::new(server.clone(), id.to_owned());
    let mut ticks = interval(POSITION_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut queued = false;
    loop {
        let news = {
            let mut next = Box::pin(follow.next());
            loop {
                tokio::select! {
                    news = &mut next => break news?,
                    _ = ticks.tick(), if queued && show.progress.is_enabled() => {
                        // Only for display: without a response the line stays unchanged.
                        if let Ok(record) = fetch(server, id).await {
                            show.waiting(record.position, record.estimated_start_ms);
                        }
                    }
                }
            }
        };
        match news {
            FollowStep::Event(event) => {
                queued = matches!(event.kind, api::EventKind::Queued { .. });
                if let Some(end) = show.event(event.kind).await? {
                    return Ok(end);
                }
            }
            FollowStep::Ended(record) => return Ok(ExecutionEnd::from(*record)),
            FollowStep::Lost => {
                queued = false;
                show.connection(true);
            }
            FollowStep::Back => show.connection(false),
        }
    }
}

async fn fetch(server: &Remote, id: &str) -> Result<ExecutionRecord> {
    Ok(server.call(Method::GET, &format!("/v1/executions/{id}")).await?)
}

async fn get(args: &GetArgs, server: &Remote) -> Result<()> {
    let several = args.ids.len() > 1;
    for (index, id) in args.ids.iter().enumerate() {
        let mut record = fetch(server, id).await?;
        if args.wait && !record.state.is_final() {
            let progress = !args.json && !args.quiet;
            let mut show =
                ExecutionPrinter::new(PrintedParts { output: false, messages: progress, progress });
            until_end(server, id, &mut show).await?;
            record = fetch(server, id).await?;
        }
        if args.json {
            print_record(&record, several)?;
        } else if args.output {
            match &record.result {
                Some(result) => print_output(result)?,
                None => complain(&format!("{id} is {}: no output", record.state.as_str())),
            }
        } else {
            let gap = if index > 0 { "\n" } else { "" };
            write!(io::stdout(), "{gap}{}", summary(&record))?;
        }
    }
    Ok(())
}

/// Prints a record; on one line if there are several.
fn print_record(record: &ExecutionRecord, several: bool) -> io::Result<()> {
    if !several {
        return print_json(record);
    }
    let text = plain_json(&serde_json::to_string(record)?);
    writeln!(io::stdout(), "{text}")
}

/// Prints the output of the program, or of all test cases one after the other.
fn print_output(result: &Execution) -> io::Result<()> {
    let own = [&result.outcome];
    let tests = result.tests.iter().map(|test| &test.outcome);
    let outcomes: Vec<_> = match result.tests.is_empty() {
        true => own.into_iter().collect(),
        false => tests.collect(),
    };
    if result.outcome.verdict == Verdict::Ce {
        crate::run::show_compiler(result);
        return Ok(());
    }
    for outcome in outcomes {
        let decoded = |text: &str, base64: &Option<String>| {
            let exact = base64.as_ref().and_then(|exact| BASE64.decode(exact).ok());
            exact.unwrap_or_else(|| text.as_bytes().to_vec())
        };
        io::stdout().write_all(&decoded(&outcome.stdout, &outcome.stdout_base64))?;
        io::stdout().flush()?;
        // A failure is ignored: standard error is closed.
        drop(io::stderr().write_all(&decoded(&outcome.stderr, &outcome.stderr_base64)));
    }
    Ok(())
}

async fn cancel(args: &CancelArgs, server: &Remote) -> Result<()> {
    for id in &args.ids {
        let path = format!("/v1/executions/{id}");
        let record: ExecutionRecord = server.call(Method::DELETE, &path).await?;
        if args.json {
            print_record(&record, args.ids.len() > 1)?;
        } else {
            writeln!(io::stdout(), "{id} is {}", record.state.as_str())?;
        }
    }
    Ok(())
}

async fn list(args: &ListArgs, server: &Remote) -> Result<()> {
    let limit = args.limit.map(|limit| limit.to_string());
    let (from_ms, to_ms) =
        (args.from_ms.map(|it| it.to_string()), args.to_ms.map(|it| it.to_string()));
    let order = args.oldest_first.then(|| "asc".to_owned());
    let filters = [
        ("state", &args.state),
        ("language", &args.language),
        ("label", &args.label),
        ("verdict", &args.verdict),
        ("text", &args.text),
        ("id", &args.id),
        ("from_ms", &from_ms),
        ("to_ms", &to_ms),
        ("order", &order),
        ("tenant", &args.tenant),
        ("limit", &limit),
    ];
    let parameters =
        filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let filter: String =
        parameters.map(|(name, value)| format!("{name}={}&", escaped(value))).collect();
    let mut cursor = String::new();
    let mut first = true;
    loop {
        let path = format!("/v1/executions?{filter}{cursor}");
        let path = path.trim_end_matches(['?', '&']);
        let page: ExecutionList = server.call(Method::GET, path).await?;
        if args.json {
            for record in &page.executions {
                print_record(record, true)?;
            }
        } else {
            write!(io::stdout(), "{}", table(&page.executions, first))?;
        }
        first = false;
        match page.next_cursor {
            Some(next) if args.all_pages => cursor = format!("cursor={}", escaped(&next)),
            Some(_) => {
                if !args.json {
                    complain("there are more; --all-pages shows them");
                }
                return Ok(());
            }
            None => return Ok(()),
        }
    }
}
