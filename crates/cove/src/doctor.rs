//! `cove doctor` and `/v1/doctor`: reports the isolation that this machine supports, what is
//! missing and the consequences.
//!
//! Versions alone are not conclusive, so it runs programs that exceed their limits. The command
//! starts an engine for that; a server uses its own.
//!
//! | file | contents |
//! |---|---|
//! | `doctor/host.rs` | checks of the machine |
//! | `doctor/trials.rs` | programs that exceed their limits |
//! | `doctor/interpreter.rs` | reasons why the code interpreter cannot fork |
//! | `doctor/report.rs` | a report as text |
//! | `doctor/service.rs` | checks of a running server, and their routes |

mod host;
mod interpreter;
mod report;
mod service;
mod trials;

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use api::{CheckStatus, DoctorCheck, DoctorReport, DoctorRun, DoctorView};
use axum::http::Method;
use executions::{ExecutionService, Languages};
use node::clock::IdGenerator;
use node::telemetry::{self, LevelFilter, LogFormat};
use sandbox::{Engine, LaunchedSpawners};
use serde::Serialize;
use sessions::ForkHazards;

use crate::cli::DoctorArgs;
use crate::config::{CoveConfig, Environment};
use crate::remote::{self, Remote};
use crate::run::print_json;
use crate::{engine, languages};

pub(crate) use self::service::{DoctorService, ServerUnderTest, routes};

/// Tenant under which trials are admitted; they share the limits of one tenant.
const TRIAL_TENANT: &str = "doctor";
/// Interval at which a server is asked whether its run has finished.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

/// Result of one check.
#[derive(Debug)]
struct DoctorFinding {
    name: &'static str,
    status: CheckStatus,
    found: String,
    /// Consequence, if there is one.
    follows: Option<String>,
}

fn check(name: &'static str, found: impl Into<String>) -> DoctorFinding {
    DoctorFinding { name, status: CheckStatus::Ok, found: found.into(), follows: None }
}

impl DoctorFinding {
    fn but(mut self, status: CheckStatus, follows: &str) -> DoctorFinding {
        self.status = status;
        self.follows = Some(follows.to_owned());
        self
    }
}

/// Returns the report of the findings.
fn conclude(
    findings: Vec<DoctorFinding>,
    root: bool,
    languages: Vec<api::LanguageView>,
) -> DoctorReport {
    let checks = findings.into_iter().map(|finding| {
        let DoctorFinding { name, status, found, follows } = finding;
        DoctorCheck { name: name.to_owned(), status, found, follows }
    });
    let checks: Vec<_> = checks.collect();
    let ok = checks.iter().all(|check| check.status != CheckStatus::Missing);
    DoctorReport { ok, version: env!("CARGO_PKG_VERSION").to_owned(), root, checks, languages }
}

/// Report of this machine for `--json`.
#[derive(Serialize)]
struct LocalReport<'a> {
    #[serde(flatten)]
    report: &'a DoctorReport,
    /// Libraries of the code interpreter that start threads when they are imported; none if this
    /// was not tested, in which case a check gives the reason.
    interpreter: Option<ForkHazards>,
}

/// Runs the checks, here or on the named server, and prints the report.
pub(crate) fn run(
    args: &DoctorArgs,
    config: &CoveConfig,
    environment: &Environment,
) -> Result<ExitCode> {
    match &args.server {
        None => on_this_machine(config, environment, args.json),
        Some(server) => {
            let found = Remote::find(Some(server), args.token_file.as_deref(), config, environment);
            let ask = async |server| on_server(&server, environment, args.json).await;
            let result = found.and_then(|server| remote::in_runtime(ask(server)));
            Ok(remote::conclude(result))
        }
    }
}

async fn on_server(server: &Remote, environment: &Environment, json: bool) -> Result<u8> {
    let mut view: DoctorView = server.call(Method::POST, "/v1/doctor").await?;
    let run = loop {
        match view {
            DoctorView { running: false, last: Some(run) } => break run,
            DoctorView { .. } => tokio::time::sleep(ASK_INTERVAL).await,
        }
        view = server.call(Method::GET, "/v1/doctor").await?;
    };
    let DoctorRun { report, .. } = &run;
    match json {
        true => print_json(&run)?,
        false => print_text(report, environment)?,
    }
    Ok(u8::from(!report.ok))
}

fn on_this_machine(config: &CoveConfig, environment: &Environment, json: bool) -> Result<ExitCode> {
    telemetry::init_logs(LogFormat::Text, LevelFilter::ERROR, environment.has_log_colours())
        .map_err(anyhow::Error::from_boxed)?;
    let mut findings = host::kernel(environment.is_root);
    let languages = languages::load(config, environment)?;
    // Launched even without limits, so that all other checks can run as well.
    let launched = Engine::launch(engine::for_one_program(languages.toolchains(), true));
    let mut interpreter = None;
    let list = match launched {
        Ok(launched) => {
            let layers = launched.layers().clone();
            findings.extend(host::layer_checks(&layers));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let limited = layers.cgroups.is_sufficient();
            let tried = runtime.block_on(try_engine(launched, languages.clone(), config, limited));
            findings.extend(tried.0);
            interpreter = tried.1;
            runtime.block_on(languages.list_with_versions())
        }
        Err(error) => {
            let found = format!("{:#}", anyhow::Error::from(error));
            let follows = "no program can be run";
            findings.push(check("engine", found).but(CheckStatus::Missing, follows));
            languages.list()
        }
    };
    // An unpredictable name: files below it are created and removed as root.
    let place = std::env::temp_dir().join(IdGenerator::new()?.next("cove-doctor-"));
    DirBuilder::new().mode(0o700).create(&place)?;
    findings.push(host::session_disks(&place));
    let report = conclude(findings, environment.is_root, list.languages);
    match json {
        true => {
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &LocalReport { report: &report, interpreter })?;
            writeln!(out)?;
        }
        false => print_text(&report, environment)?,
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_text(report: &DoctorReport, environment: &Environment) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let colour = environment.has_colours();
    write!(out, "{}", report::text(report, colour))
}

async fn try_engine(
    launched: LaunchedSpawners,
    languages: Languages,
    config: &CoveConfig,
    limited: bool,
) -> (Vec<DoctorFinding>, Option<ForkHazards>) {
    let failed = |error: &dyn std::fmt::Display| {
        let missing = CheckStatus::Missing;
        (vec![check("engine", error.to_string()).but(missing, "no program can be run")], None)
    };
    let engine = match Engine::attach(launched) {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    let mut registry = telemetry::Registry::default();
    let executions = config.executions.clone();
    let service = ExecutionService::new(
        engine.clone(),
        languages,
        executions,
        crate::host::capacity(),
        &mut registry,
    );
    let tried = match service {
        Err(error) => failed(&error),
        Ok(service) => try_service(&service, limited).await,
    };
    engine.close().await;
    tried
}

/// Runs the checks that run programs.
async fn try_service(
    service: &ExecutionService,
    limited: bool,
) -> (Vec<DoctorFinding>, Option<ForkHazards>) {
    let mut findings = trials::run(service, limited).await;
    let (hazards, found) = interpreter::inspect(service).await;
    findings.extend(found);
    (findings, hazards)
}
