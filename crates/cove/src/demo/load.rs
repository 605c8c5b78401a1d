//! `cove demo load`: sends requests to every service of a server that has the demo, until it is
//! stopped. It uses the demo's objects, changes no limit, and removes the objects that it creates.
//!
//! | file | contents |
//! |---|---|
//! | `database.rs` | clients of the pooler |
//! | `meter.rs` | counts and times, and the pace of requests |
//! | `requests.rs` | requests of the HTTP interface |

mod database;
mod meter;
mod requests;

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::{Method, StatusCode};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use node::clock;
use serde::Serialize;
use serde_json::Value;
use tokio::time::sleep;

use self::meter::{LoadMeter, LoadSummary};
use super::millis;
use crate::cli::{DemoLoadArgs, LoadService};
use crate::config::CoveConfig;
use crate::remote::signals::EndSignals;
use crate::remote::{Remote, RemoteFailure, plain, span};
use crate::run::print_json;
use crate::usage_error::UsageError;

/// Label of executions, and purpose in the metadata of sessions.
const LOAD: &str = "cove-demo-load";
const PURPOSE: &str = "load";
/// Interval of the lines that show the load.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Exit code if some operations failed.
const EXIT_FAILURES: u8 = 1;

/// Document of `--json`.
#[derive(Debug, Serialize)]
struct LoadReport {
    server: String,
    ms: u64,
    services: Vec<LoadSummary>,
    /// Services that are skipped because the demo has nothing for them, with the reason.
    skipped: Vec<String>,
}

/// Runs the load until its time is over or a signal arrives, then removes the objects it created.
pub(super) async fn run(args: &DemoLoadArgs, config: &CoveConfig, server: &Remote) -> Result<u8> {
    let mut signals = EndSignals::new()?;
    let (wanted, skipped) = available(args, config, server).await?;
    let meters: Vec<LoadMeter> =
        wanted.iter().map(|service| LoadMeter::new(*service, rate(args, *service))).collect();
    let begun = clock::now();
    let loaded = tokio::select! {
        outcome = Box::pin(load(args, config, server, &meters)) => outcome,
        () = ended_after(args.time) => Ok(()),
        _ = signals.next() => Ok(()),
    };
    let ms = millis(begun.elapsed());
    // The clients were dropped with their futures and send no more requests.
    let removed = tokio::select! {
        outcome = remove(config, server, &wanted) => outcome,
        _ = signals.next() => {
            Err(anyhow::anyhow!("it was ended before everything was removed: run `cove demo \
                --remove`, which takes the rest away"))
        }
    };
    loaded.and(removed)?;
    let services: Vec<LoadSummary> = meters.iter().map(|meter| meter.summary(ms)).collect();
    let has_failures = services.iter().any(|it| it.failures > 0);
    if args.json {
        print_json(&LoadReport { server: server.base().to_owned(), ms, services, skipped })?;
    } else {
        show(&services, ms)?;
    }
    Ok(if has_failures { EXIT_FAILURES } else { 0 })
}

/// Returns the operations of a service per second.
fn rate(args: &DemoLoadArgs, service: LoadService) -> f64 {
    args.rate.unwrap_or(match service {
        LoadService::Databases => f64::from(args.clients),
        LoadService::Executions | LoadService::Catalog => 4.0,
        LoadService::Sessions | LoadService::Gateway => 2.0,
    })
}

async fn ended_after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Finds the services for which the demo has objects. A named service without them is an error, and
/// so is a server without a demo.
async fn available(
    args: &DemoLoadArgs,
    config: &CoveConfig,
    server: &Remote,
) -> Result<(Vec<LoadService>, Vec<String>)> {
    server.call::<Value>(Method::GET, "/v1/whoami").await?;
    let is_named = !args.only.is_empty();
    let named = if is_named { args.only.as_slice() } else { &LoadService::ALL };
    let (mut wanted, mut skipped) = (Vec::new(), Vec::new());
    for service in named {
        let lacking = match service {
            LoadService::Executions => None,
            LoadService::Sessions => requests::lacks_agent(server).await?,
            LoadService::Catalog => requests::lacks_tables(server).await?,
            LoadService::Databases => database::lacks(server, config).await?,
            LoadService::Gateway => requests::lacks_tenant(server).await?,
        };
        match lacking {
            None if !wanted.contains(service) => wanted.push(*service),
            None => {}
            Some(why) if is_named => {
                return Err(UsageError(format!("no load for `{}`: {why}", service.name())).into());
            }
            Some(why) => skipped.push(format!("{}: {why}", service.name())),
        }
    }
    // Executions do not require the demo.
    if !is_named && wanted == [LoadService::Executions] {
        let message = format!("there is no demo at {}: make it with `cove demo`", server.base());
        return Err(UsageError(message).into());
    }
    if !args.json {
        for line in &skipped {
            writeln!(io::stdout(), "  ✗ {}", plain(line))?;
        }
    }
    Ok((wanted, skipped))
}

/// Prepares every service, then sends requests until it is dropped.
async fn load(
    args: &DemoLoadArgs,
    config: &CoveConfig,
    server: &Remote,
    meters: &[LoadMeter],
) -> Result<()> {
    let mut running = Vec::new();
    for meter in meters {
        let work = match meter.service() {
            LoadService::Executions => requests::executions(server, meter).await?,
            LoadService::Sessions => requests::sessions(server, meter).await?,
            LoadService::Catalog => requests::catalog(server, meter).await?,
            LoadService::Gateway => requests::gateway(server, meter).await?,
            LoadService::Databases => {
                database::clients(config, args.clients, meter).await?.boxed_local()
            }
        };
        running.push(work);
    }
    let lines = async {
        let begun = clock::now();
        loop {
            sleep(LINE_INTERVAL).await;
            let parts = running_line(meters);
            if !args.json {
                writeln!(io::stdout(), "{:>8}  {parts}", span(millis(begun.elapsed())))?;
            }
        }
    };
    tokio::select! {
        outcome = lines => outcome,
        _ = join_all(running) => Ok(()),
    }
}

/// Describes the operations since the last line.
fn running_line(meters: &[LoadMeter]) -> String {
    let parts = meters.iter().map(|meter| {
        let now = meter.since_last_line();
        let failed =
            if now.failures > 0 { format!(" {} failed", now.failures) } else { String::new() };
        format!(
            "{} {}/s p50 {} p95 {} ms{failed}",
            meter.service().name(),
            now.operations,
            now.p50_ms,
            now.p95_ms
        )
    });
    parts.collect::<Vec<_>>().join("  ")
}

fn show(services: &[LoadSummary], ms: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "\nAfter {}, and what was made for it is removed:", span(ms))?;
    let head = ["service", "operations", "per second", "p50 ms", "p95 ms", "max ms", "failures"];
    writeln!(
        out,
        "  {:<12}{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}",
        head[0], head[1], head[2], head[3], head[4], head[5], head[6]
    )?;
    for it in services {
        writeln!(
            out,
            "  {:<12}{:>12}{:>12.1}{:>10}{:>10}{:>10}{:>10}",
            it.service, it.operations, it.per_second, it.p50_ms, it.p95_ms, it.max_ms, it.failures
        )?;
        if let Some(why) = &it.last_failure {
            writeln!(out, "    the last failure: {}", plain(why))?;
        }
    }
    Ok(())
}

/// Removes the objects of a load, even of one that was killed.
async fn remove(config: &CoveConfig, server: &Remote, services: &[LoadService]) -> Result<()> {
    for service in services {
        let removed = match service {
            LoadService::Executions => super::work::cancel_labelled(server, LOAD).await.map(drop),
            LoadService::Sessions | LoadService::Gateway => requests::remove_sessions(server).await,
            LoadService::Catalog => requests::remove_table(server).await,
            LoadService::Databases => database::remove(config).await,
        };
        removed.with_context(|| format!("remove what was made for `{}`", service.name()))?;
    }
    // Requests that were in flight when the load ended may have created more since.
    if services.contains(&LoadService::Executions) {
        super::work::cancel_labelled(server, LOAD).await?;
    }
    Ok(())
}

/// Checks that a part of the demo exists. A request without the required rights is an error.
async fn lacks(
    server: &Remote,
    path: &str,
    what: &str,
) -> std::result::Result<Option<String>, RemoteFailure> {
    match server.ask_with(Method::GET, path, None).await {
        Ok(_) => Ok(None),
        Err(failure) if failure.status == Some(StatusCode::NOT_FOUND) => {
            Ok(Some(format!("there is no {what}: `cove demo` makes it")))
        }
        Err(failure) => Err(failure),
    }
}
