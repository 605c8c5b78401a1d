//! `cove worker`: runs the tools of external agents.
//!
//! `cove worker anthropic` serves a self-hosted environment of Claude Managed Agents. The control
//! plane has the model and the conversation; this process claims work from it over HTTPS and runs
//! the tools in sessions of a Cove server. The environment's key stays in this process: it is not
//! sent to the Cove server and never enters a sandbox.
//!
//! | file | contents |
//! |---|---|
//! | `worker/protocol.rs` | the published types and the date of their version |
//! | `worker/control.rs` | requests to the control plane, errors and waits |
//! | `worker/item.rs`, `worker/lease.rs` | one work item from claim to end, and its lease |
//! | `worker/ledger.rs` | selects the calls to run (pure) |
//! | `worker/workspace.rs` | the Cove session of a Managed Agents session |
//! | `worker/tools.rs`, `worker/shell.rs` | the six tools, and the shell of `bash` |
//! | `worker/glob.rs`, `worker/text.rs` | patterns, and bounded output (pure) |
//! | `worker/report.rs` | printed reports |

mod control;
mod glob;
mod item;
mod lease;
mod ledger;
mod protocol;
mod report;
mod shell;
mod text;
mod tools;
mod workspace;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{AgentView, CreateSession, SessionList};
use axum::http::{HeaderValue, Method, Uri};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use node::client::check_url;
use node::clock::{self, IdGenerator};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use self::control::{BackOff, ControlPlane, ControlPlaneError, bearer};
use self::item::{ItemEnd, StopPhase, ToolWorkerParts};
use self::protocol::WorkItem;
use self::report::WorkerReport;
use self::workspace::WorkspaceTemplate;
use crate::cli::{WorkerAnthropicArgs, WorkerArgs, WorkerCommand};
use crate::config::{CoveConfig, Environment};
use crate::exit_codes::EXIT_COVE;
use crate::percent::escaped;
use crate::remote::signals::EndSignals;
use crate::remote::{self, Remote};
use crate::usage_error::UsageError;

/// Default address of the control plane.
const CONTROL_PLANE: &str = "https://api.anthropic.com";
/// Environment variables that Anthropic's own workers read.
const KEY_VARIABLE: &str = "ANTHROPIC_ENVIRONMENT_KEY";
const ENVIRONMENT_VARIABLE: &str = "ANTHROPIC_ENVIRONMENT_ID";
const CONTROL_PLANE_VARIABLE: &str = "ANTHROPIC_BASE_URL";
/// Largest key file, in bytes.
const KEY_BYTES_MAX: u64 = 16 << 10;
/// Maximum time between two polls of an empty queue; the minimum is half of it.
const POLL_PAUSE: Duration = Duration::from_secs(3);
/// Maximum wait between two failed polls, and between two checks of an unavailable Cove server.
const POLL_BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// Runs one command.
pub(crate) fn run(args: &WorkerArgs, config: &CoveConfig, environment: &Environment) -> ExitCode {
    let WorkerCommand::Anthropic(wanted) = &args.command;
    remote::with_server(&args.server, config, environment, async |server| {
        let worker = EnvironmentWorker::new(wanted, server, environment)?;
        Box::pin(worker.run(wanted)).await
    })
}

struct EnvironmentWorker {
    parts: ToolWorkerParts,
    stop: watch::Sender<StopPhase>,
    /// Waits between failed polls.
    back_off: BackOff,
}

/// Result of a poll of the queue.
enum WorkClaim {
    Item(WorkItem),
    Empty,
    /// The control plane or the Cove server is unavailable.
    Away,
    /// Another poll is useless.
    Refused(ControlPlaneError),
}

impl EnvironmentWorker {
    fn new(
        args: &WorkerAnthropicArgs,
        server: Remote,
        environment: &Environment,
    ) -> Result<EnvironmentWorker> {
        let named = args.environment.as_deref().or_else(|| environment.get(ENVIRONMENT_VARIABLE));
        let named = named.ok_or_else(|| {
            UsageError(format!("--environment: name it, or set {ENVIRONMENT_VARIABLE}"))
        })?;
        let base = args.control_plane.as_deref();
        let base = base.or_else(|| environment.get(CONTROL_PLANE_VARIABLE));
        let base = base.unwrap_or(CONTROL_PLANE).trim_end_matches('/').to_owned();
        check_url(&base).map_err(|error| UsageError(format!("--control-plane: {error}")))?;
        let api_version = HeaderValue::from_str(&args.api_version)
            .map_err(|_| UsageError("--api-version: not a header value".to_owned()))?;
        let ids = IdGenerator::new().context("get random bytes")?;
        let control = ControlPlane {
            client: ControlPlane::client(),
            base,
            environment: named.to_owned(),
            api_version,
            key: key(args.environment_key_file.as_deref(), environment)?,
            worker_id: HeaderValue::from_str(&ids.next("cove-")).context("make an id")?,
        };
        let request = CreateSession {
            agent: args.agent.clone(),
            snapshot: args.snapshot.clone(),
            grants: args.grants.chosen(),
            ..CreateSession::default()
        };
        let parts = ToolWorkerParts {
            control,
            server,
            template: WorkspaceTemplate { environment: named.to_owned(), request },
            report: WorkerReport::new(args.json),
            idle_max: args.max_idle,
            tool_timeout: args.tool_timeout,
        };
        let back_off = BackOff::new(POLL_BACK_OFF_MAX).context("get random bytes")?;
        Ok(EnvironmentWorker { parts, stop: watch::Sender::new(StopPhase::Running), back_off })
    }

    async fn run(mut self, args: &WorkerAnthropicArgs) -> Result<u8> {
        let mut signals = EndSignals::new()?;
        self.check_server().await?;
        self.warn_about_plain_http();
        let report = self.parts.report;
        report.emit(
            "started",
            json!({
                "environment": self.parts.control.environment,
                "control_plane": self.parts.control.base,
                "api_version": args.api_version,
                "concurrency": args.concurrency,
            }),
        );
        let EnvironmentWorker { parts, stop, back_off } = &mut self;
        let parts = &*parts;
        let mut items = FuturesUnordered::new();
        let mut claim: Option<Pin<Box<dyn Future<Output = WorkClaim>>>> = None;
        let (mut pause, mut code, mut check_server) = (Duration::ZERO, 0, false);
        let mut kill_at = None;
        loop {
            let is_running = *stop.borrow() == StopPhase::Running;
            if !is_running {
                // A claimed item that is not acknowledged becomes available to other workers within
                // seconds.
                claim = None;
                if items.is_empty() {
                    break;
                }
            } else if claim.is_none() && items.len() < args.concurrency {
                claim = Some(Box::pin(parts.claim_after(pause, check_server)));
            }
            tokio::select! {
                _ = signals.next() => {
                    let phase = if is_running { StopPhase::Draining } else { StopPhase::Now };
                    report.emit("stopping", json!({ "at_once": phase == StopPhase::Now }));
                    stop.send_replace(phase);
                    kill_at = Some(clock::now() + args.drain);
                }
                () = sleep_until(kill_at.unwrap_or_else(clock::now).into()),
                    if kill_at.is_some() =>
                {
                    kill_at = None;
                    stop.send_replace(StopPhase::Now);
                }
                Some(end) = items.next(), if !items.is_empty() => {
                    if let ItemEnd::CoveLost(_) = end {
                        check_server = true;
                        pause = back_off.next(None);
                        claim = None;
                    }
                }
                claimed = claimed(&mut claim), if claim.is_some() => {
                    claim = None;
                    match claimed {
                        WorkClaim::Item(work) => {
                            (pause, check_server) = (Duration::ZERO, false);
                            back_off.reset();
                            items.push(item::serve(parts, work, stop.subscribe()));
                        }
                        WorkClaim::Empty => {
                            (pause, check_server) = (back_off.spread(POLL_PAUSE), false);
                            back_off.reset();
                            if args.once && items.is_empty() {
                                break;
                            }
                        }
                        WorkClaim::Away => pause = back_off.next(None),
                        WorkClaim::Refused(error) => {
                            report.emit("refused", json!({ "error": error.to_string() }));
                            code = EXIT_COVE;
                            stop.send_replace(StopPhase::Draining);
                            kill_at = Some(clock::now() + args.drain);
                        }
                    }
                }
            }
        }
        report.emit("stopped", json!({}));
        Ok(code)
    }

    /// Fails early if the Cove server could not run the work.
    async fn check_server(&self) -> Result<()> {
        let server = &self.parts.server;
        server.call::<SessionList>(Method::GET, "/v1/sessions?limit=1").await?;
        if let Some(agent) = &self.parts.template.request.agent {
            let path = format!("/v1/agents/{}", escaped(agent));
            let found = server.call::<AgentView>(Method::GET, &path).await;
            found.with_context(|| format!("--agent `{agent}`"))?;
        }
        Ok(())
    }

    fn warn_about_plain_http(&self) {
        let uri = self.parts.control.base.parse::<Uri>().unwrap_or_default();
        let is_local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if uri.scheme_str() != Some("https") && !is_local {
            let why = "the environment's key crosses the network unencrypted; use https://";
            self.parts.report.emit("warning", json!({ "message": why }));
        }
    }
}

impl ToolWorkerParts {
    /// Polls the queue after a pause; if `check_server` is set, checks the Cove server first.
    async fn claim_after(&self, pause: Duration, check_server: bool) -> WorkClaim {
        sleep(pause).await;
        if check_server {
            let mut server = self.server.clone();
            server.rediscover();
            let seen = server.call::<SessionList>(Method::GET, "/v1/sessions?limit=1").await;
            if let Err(failure) = seen {
                let fields = json!({ "what": "cove", "error": failure.to_string() });
                self.report.emit("retry", fields);
                return WorkClaim::Away;
            }
        }
        let work = match self.control.poll().await {
            Ok(Some(work)) => work,
            Ok(None) => return WorkClaim::Empty,
            Err(error) => return self.missed("poll", error).await,
        };
        let fields = json!({ "work": work.id, "session": work.data.id });
        match self.control.acknowledge(&work.id).await {
            Ok(()) => {
                self.report.emit("claimed", fields);
                WorkClaim::Item(work)
            }
            // The item is at fault, not the worker: it must not be delivered again forever.
            Err(error) if error.is_fatal() => {
                drop(self.control.stop(&work.id, &self.control.key).await);
                let fields = json!({ "work": work.id, "error": error.to_string() });
                self.report.emit("acknowledge_failed", fields);
                WorkClaim::Away
            }
            Err(error) => self.missed("acknowledge", error).await,
        }
    }

    /// Waits for the time that the control plane requested.
    async fn missed(&self, what: &str, error: ControlPlaneError) -> WorkClaim {
        if error.is_fatal() {
            return WorkClaim::Refused(error);
        }
        self.report.emit("retry", json!({ "what": what, "error": error.to_string() }));
        sleep(error.requested_wait()).await;
        WorkClaim::Away
    }
}

async fn claimed(claim: &mut Option<Pin<Box<dyn Future<Output = WorkClaim> + '_>>>) -> WorkClaim {
    match claim {
        Some(claim) => claim.await,
        None => std::future::pending().await,
    }
}

/// Returns the environment's key as an authorization header.
fn key(file: Option<&Path>, environment: &Environment) -> Result<HeaderValue> {
    let (text, origin) = match file {
        Some(path) => {
            let read = || {
                let mut text = String::new();
                File::open(path)?.take(KEY_BYTES_MAX).read_to_string(&mut text)?;
                Ok::<String, std::io::Error>(text)
            };
            let text = read().map_err(|error| {
                UsageError(format!("--environment-key-file: read `{}`: {error}", path.display()))
            })?;
            (text, format!("`{}`", path.display()))
        }
        None => {
            let text = environment.get(KEY_VARIABLE).ok_or_else(|| {
                let message = format!("--environment-key-file: name it, or set {KEY_VARIABLE}");
                UsageError(message)
            })?;
            (text.to_owned(), KEY_VARIABLE.to_owned())
        }
    };
    let text = text.trim();
    let value = if text.is_empty() { None } else { bearer(text) };
    Ok(value.ok_or_else(|| UsageError(format!("{origin} does not contain a key")))?)
}
