//! Checks of a running server: `/v1/doctor`.
//!
//! One task of the server runs the checks, once at a time: a request starts a run or joins the
//! current one. Nothing runs at the start, because the trials take seconds of processor time; the
//! first request starts the first run. Its programs wait for places like those of any tenant, which
//! limits the load on a busy server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::operations::server as table;
use api::{CheckStatus, DoctorRun, DoctorView};
use axum::extract::State;
use axum::{Json, Router};
use executions::{ExecutionService, Languages};
use node::clock;
use node::drain::DrainHandle;
use node::http::{HttpError, OperationRoutes};
use node::task;
use sandbox::Engine;
use tokio::sync::watch;

use super::{DoctorFinding, check, conclude, host, try_service};

/// Time that a caller waits for a run; then the response reports that the run continues.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Directory of the trial disk, below the data directory.
const DISK_DIRECTORY: &str = "doctor";

/// Parts of a server that its checks use.
pub(crate) struct ServerUnderTest {
    pub(crate) engine: Engine,
    pub(crate) executions: ExecutionService,
    pub(crate) languages: Languages,
    /// Reason why sessions are unavailable, if they are.
    pub(crate) sessions_missing: Option<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) is_root: bool,
    /// Id of the server.
    pub(crate) node: String,
}

/// Checks of a server and their last result. Clones share the state.
#[derive(Clone)]
pub(crate) struct DoctorService {
    server: Arc<ServerUnderTest>,
    /// Requests set `running`; only the worker resets it, with the report.
    state: Arc<watch::Sender<DoctorView>>,
}

impl DoctorService {
    pub(crate) fn new(server: ServerUnderTest) -> DoctorService {
        let state = watch::Sender::new(DoctorView { running: false, last: None });
        DoctorService { server: Arc::new(server), state: Arc::new(state) }
    }

    /// Runs the checks on request, for as long as this is polled. Dropping it ends the programs of
    /// a run.
    pub(crate) async fn work(&self) {
        let mut state = self.state.subscribe();
        while state.wait_for(|view| view.running).await.is_ok() {
            let run = self.server.examine().await;
            self.state.send_modify(|view| *view = DoctorView { running: false, last: Some(run) });
        }
    }

    /// Requests a run, unless one is in progress.
    fn begin(&self) {
        self.state.send_if_modified(|view| !std::mem::replace(&mut view.running, true));
    }

    /// Waits for the end of the current run, for at most [`WAIT_MAX`].
    async fn finished(&self, drain: &DrainHandle) -> DoctorView {
        let mut seen = self.state.subscribe();
        tokio::select! {
            _ended = seen.wait_for(|view| !view.running) => {}
            () = tokio::time::sleep(WAIT_MAX) => {}
            () = drain.begun() => {}
        }
        self.state.borrow().clone()
    }
}

impl ServerUnderTest {
    async fn examine(&self) -> DoctorRun {
        let (started, started_ms) = (clock::now(), clock::wall_ms());
        let mut findings = self.blocking_checks(self.is_root, host::kernel).await;
        let layers = self.engine.layers();
        findings.extend(host::layer_checks(&layers));
        findings.extend(try_service(&self.executions, layers.cgroups.is_sufficient()).await.0);
        let place = self.data_dir.join(DISK_DIRECTORY);
        let disk = |place: PathBuf| vec![tried_disk(&place)];
        findings.extend(self.blocking_checks(place, disk).await);
        findings.push(match &self.sessions_missing {
            None => check("sessions", "available"),
            Some(why) => check("sessions", format!("not available: {why}")).but(
                CheckStatus::Note,
                "agents and sessions are refused; everything else is served",
            ),
        });
        let languages = self.languages.list_with_versions().await.languages;
        let report = conclude(findings, self.is_root, languages);
        let took = clock::now().saturating_duration_since(started);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        DoctorRun { node: self.node.clone(), started_ms, took_ms, report }
    }

    /// Runs checks that block on the kernel or a disk in a blocking task.
    async fn blocking_checks<T: Send + 'static>(
        &self,
        about: T,
        checks: impl FnOnce(T) -> Vec<DoctorFinding> + Send + 'static,
    ) -> Vec<DoctorFinding> {
        match task::blocking(move || checks(about)).await {
            Ok(findings) => findings,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a check failed");
                let found = "the check itself failed; see the log";
                vec![check("doctor", found).but(CheckStatus::Missing, "unknown")]
            }
        }
    }
}

/// Tests a disk, in a directory that an earlier server may have left behind.
fn tried_disk(place: &Path) -> DoctorFinding {
    let _was_not_there = std::fs::remove_dir_all(place);
    host::session_disks(place)
}

/// Returns the routes.
pub(crate) fn routes(service: DoctorService) -> Router {
    handlers().with_state(service)
}

fn handlers() -> Router<DoctorService> {
    OperationRoutes::of(table::DOCTOR)
        .serve(&table::GET_DOCTOR, last)
        .serve(&table::RUN_DOCTOR, anew)
        .routes()
}

/// `GET /v1/doctor`: the last report. Starts the first run if there is none.
async fn last(State(service): State<DoctorService>) -> Result<Json<DoctorView>, HttpError> {
    if service.state.borrow().last.is_none() {
        service.begin();
    }
    let view = service.state.borrow().clone();
    Ok(Json(view))
}

/// `POST /v1/doctor`: a new report, or that of the current run.
async fn anew(
    State(service): State<DoctorService>,
    drain: DrainHandle,
) -> Result<Json<DoctorView>, HttpError> {
    service.begin();
    Ok(Json(service.finished(&drain).await))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }
}
