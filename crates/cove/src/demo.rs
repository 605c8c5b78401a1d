//! `cove demo`: creates example data on a server through its own interfaces, and removes it again.
//!
//! | file | contents |
//! |---|---|
//! | `work.rs` | the agent, sessions and executions |
//! | `lake.rs` | tables of the catalog, their rows by `parquet.rs` and `manifests.rs` |
//! | `database.rs` | a PostgreSQL server and a tenant of it |
//! | `load.rs` | requests for `cove demo load` |
//! | `mariadb.rs` | a MariaDB server and a tenant of it |
//! | `local.rs` | a server of Cove for `--serve` |

mod database;
mod lake;
mod load;
mod local;
mod manifests;
mod mariadb;
mod parquet;
mod work;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{ConsoleCodeRequest, ConsoleCodeView};
use axum::http::{Method, StatusCode};
use node::clock;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use crate::cli::{DemoArgs, DemoCommand};
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote, RemoteFailure, plain, span};
use crate::run::print_json;
use crate::usage_error::UsageError;

/// Name of all objects of the demo: agent, tenant, catalog client, label, metadata.
const DEMO: &str = "cove-demo";
/// Exit code if `--remove` could not remove everything.
const EXIT_INCOMPLETE: u8 = 1;
/// Columns of a step's name.
const NAME_WIDTH: usize = 16;

/// Commands to try, below the link to the console.
const TRY: [(&str, &str); 6] = [
    ("cove session chat --agent cove-demo", "talk to the agent"),
    ("cove exec list --text cove-demo", "the executions and their verdicts"),
    ("cove catalog table list demo", "tables that PyIceberg and DuckDB read"),
    ("cove demo load", "requests to all of it, until Ctrl-C"),
    ("cove top", "what runs"),
    ("cove demo --remove", "take all of this away again"),
];

/// Outcome of a step.
#[derive(Debug)]
enum DemoOutcome {
    Made(String),
    Present(String),
    Removed(String),
    Skipped(String),
}

impl DemoOutcome {
    /// Returns the mark for the terminal, the state for JSON, and the text.
    fn parts(&self) -> (&str, &str, &str) {
        match self {
            DemoOutcome::Made(text) => ("✓", "made", text),
            DemoOutcome::Present(text) => ("=", "present", text),
            DemoOutcome::Removed(text) => ("✓", "removed", text),
            DemoOutcome::Skipped(text) => ("✗", "skipped", text),
        }
    }
}

/// Completed step.
#[derive(Debug, Serialize)]
struct DemoStep {
    name: &'static str,
    state: String,
    text: String,
    ms: u64,
}

/// Document of `--json`.
#[derive(Debug, Serialize)]
struct DemoReport {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    console: Option<String>,
    steps: Vec<DemoStep>,
    ms: u64,
}

/// Prints steps as they complete, and collects them.
struct DemoProgress {
    json: bool,
    steps: Mutex<Vec<DemoStep>>,
}

impl DemoProgress {
    /// Runs a step and reports its outcome. A failed step does not stop the others.
    async fn step(&self, name: &'static str, act: impl Future<Output = Result<DemoOutcome>>) {
        let begun = clock::now();
        let outcome = act.await.unwrap_or_else(|error| DemoOutcome::Skipped(format!("{error:#}")));
        let (mark, state, text) = outcome.parts();
        let (text, ms) = (plain(text), millis(begun.elapsed()));
        if !self.json {
            let line = format!("  {mark} {name:<NAME_WIDTH$}{text} ({})", span(ms));
            // A failure is ignored: standard output is closed.
            drop(writeln!(io::stdout(), "{line}"));
        }
        self.steps.lock().push(DemoStep { name, state: state.to_owned(), text, ms });
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    if let Some(DemoCommand::Load(load)) = &args.command {
        if args.serve || args.remove || args.postgres.is_some() || args.json {
            let message = "`cove demo load` has its own options, which follow it";
            return remote::conclude(Err(UsageError(message.to_owned()).into()));
        }
        return remote::with_server(&args.server, config, environment, async |server| {
            Box::pin(load::run(load, config, &server)).await
        });
    }
    if args.serve {
        return remote::conclude(remote::in_runtime(local::serve(args, config, environment)));
    }
    remote::with_server(&args.server, config, environment, async |server| {
        Box::pin(execute(args, config, &server)).await
    })
}

async fn execute(args: &DemoArgs, config: &CoveConfig, server: &Remote) -> Result<u8> {
    match args.remove {
        true => remove(args, config, server).await,
        // Boxed, because it holds all steps.
        false => Box::pin(make(args, config, server)).await,
    }
}

/// Runs all steps, those that are independent concurrently.
async fn make(args: &DemoArgs, config: &CoveConfig, server: &Remote) -> Result<u8> {
    let begun = clock::now();
    // Fails at once if there is no server, or no token for it.
    server.call::<Value>(Method::GET, "/v1/whoami").await?;
    let progress = DemoProgress { json: args.json, steps: Mutex::new(Vec::new()) };
    let database = async {
        let act = database::make(server, config, args.postgres.as_deref());
        tokio::join!(
            progress.step("database", act),
            progress.step("mariadb", mariadb::make(server, config)),
        );
        progress.step("database shell", work::database_session(server)).await;
    };
    let lake = async {
        progress.step("orders", lake::orders(server)).await;
        progress.step("other tables", lake::others(server)).await;
        progress.step("reader", lake::reader(server)).await;
    };
    let sessions = async {
        progress.step("agent", work::agent(server)).await;
        tokio::join!(
            progress.step("conversation", work::conversation(server)),
            progress.step("files", work::files(server)),
            progress.step("process", work::process(server)),
            progress.step("paused", work::paused(server)),
            progress.step("cells", work::cells(server)),
        );
    };
    let executions = progress.step("executions", work::executions(server));
    tokio::join!(database, lake, sessions, executions);
    let console = console_url(server).await;
    let ms = millis(begun.elapsed());
    if args.json {
        let (server, steps) = (server.base().to_owned(), progress.steps.into_inner());
        print_json(&DemoReport { server, console: console.ok(), steps, ms })?;
        return Ok(0);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "\nDone in {}.", span(ms))?;
    match console {
        Ok(url) => writeln!(out, "The console, signed in (the link works once): {url}")?,
        Err(error) => writeln!(out, "No link to the console: {error:#}")?,
    }
    writeln!(out, "\nTry:")?;
    for (command, what) in TRY {
        writeln!(out, "  {command:<38}{what}")?;
    }
    Ok(0)
}

async fn console_url(server: &Remote) -> Result<String, RemoteFailure> {
    let request = ConsoleCodeRequest { scopes: None };
    let code: ConsoleCodeView = server.post("/v1/console/codes", &request, None).await?;
    Ok(format!("{}{}", server.base(), code.url_path))
}

/// Removes the demo's objects. Records of executions stay for as long as the server retains them.
async fn remove(args: &DemoArgs, config: &CoveConfig, server: &Remote) -> Result<u8> {
    let begun = clock::now();
    server.call::<Value>(Method::GET, "/v1/whoami").await?;
    let progress = DemoProgress { json: args.json, steps: Mutex::new(Vec::new()) };
    progress.step("executions", work::remove_executions(server)).await;
    progress.step("sessions", work::remove_sessions(server)).await;
    progress.step("agent", work::remove_agent(server)).await;
    progress.step("tables", lake::remove(server)).await;
    progress.step("reader", lake::remove_reader(server)).await;
    progress.step("database", database::remove(server, config)).await;
    progress.step("mariadb", mariadb::remove(server, config)).await;
    let steps = progress.steps.into_inner();
    let is_complete = steps.iter().all(|step| step.state != "skipped");
    if args.json {
        let (server, ms) = (server.base().to_owned(), millis(begun.elapsed()));
        print_json(&DemoReport { server, console: None, steps, ms })?;
    }
    Ok(if is_complete { 0 } else { EXIT_INCOMPLETE })
}

/// Gets an object; returns `None` if it does not exist.
async fn get_if_present(server: &Remote, path: &str) -> Result<Option<Value>, RemoteFailure> {
    found(server.ask_with(Method::GET, path, None).await)
}

/// Deletes an object; returns whether it existed.
async fn delete(server: &Remote, path: &str) -> Result<bool, RemoteFailure> {
    Ok(found(server.ask_with(Method::DELETE, path, None).await)?.is_some())
}

fn found(answer: Result<Value, RemoteFailure>) -> Result<Option<Value>, RemoteFailure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.status == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the string member of a response.
fn text<'v>(answer: &'v Value, member: &str) -> Result<&'v str> {
    answer[member].as_str().with_context(|| format!("the server did not return `{member}`"))
}

/// Returns the elements of the array with this name, or none if it is missing.
fn items<'v>(answer: &'v Value, name: &str) -> &'v [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

/// Formats a number with its noun: `1 session`, `3 sessions`.
fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
