//! A build in progress: each step whose layer is missing runs in a sandbox of its own, over the
//! layers before it, and its disk becomes the next layer. A build whose layers all exist starts
//! no sandbox.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{SessionLimits, TemplateBuildStatus, TemplateFailure, TemplateStepResult};
use node::clock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time;

use super::TemplateService;
use super::log::{BuildLog, BuildLogLevel};
use super::network::BuildNetwork;
use super::plan::{LayerStep, StepAction, TemplatePlan, is_install};
use super::run::{StepContext, TemplateStepFailure, run_step};
use crate::error::SessionError;
use crate::service::entry::SessionSandbox;
use crate::service::environment::LaunchEnvironment;
use crate::service::limits;
use crate::store::rows::{LayerRow, TemplateArchiveRow, TemplateBuildRow};

/// Interval at which a running build is written to the store, with its log.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// Longest time that a shutdown waits for cancelled builds.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Age of the last write after which a build counts as lost with its server.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(60);

/// Builds running on this server, by id.
pub(crate) type RunningBuilds = Mutex<HashMap<String, Arc<RunningBuild>>>;

/// A build running on this server.
#[derive(Debug)]
pub(crate) struct RunningBuild {
    /// Current row.
    pub(super) row: Mutex<TemplateBuildRow>,
    /// Log.
    pub(super) log: BuildLog,
    cancel: watch::Sender<bool>,
    is_over: watch::Sender<bool>,
}

impl RunningBuild {
    pub(super) fn new(row: TemplateBuildRow) -> Arc<RunningBuild> {
        Arc::new(RunningBuild {
            row: Mutex::new(row),
            log: BuildLog::new(),
            cancel: watch::Sender::new(false),
            is_over: watch::Sender::new(false),
        })
    }

    /// Ends the build without a result.
    pub(super) fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Waits until the build has ended and is written.
    pub(super) async fn over(&self) {
        let mut is_over = self.is_over.subscribe();
        let _same = is_over.wait_for(|it| *it).await;
    }

    fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    fn add_step(&self, step: &LayerStep, cached: bool, took: Duration) {
        let mut row = self.row.lock();
        row.detail.steps.push(TemplateStepResult {
            step: step.number,
            command: step.shown.clone(),
            cached,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
    }
}

/// A failure and the number of the failed step.
type BuildFailure = (Option<u32>, TemplateStepFailure);

impl TemplateService {
    /// Reuses the existing layers of leading steps. Returns how many steps they complete.
    pub(super) async fn take_cached(
        &self,
        build: &RunningBuild,
        plan: &TemplatePlan,
    ) -> Result<usize, SessionError> {
        let row = build.row.lock().clone();
        let steps = plan.steps.iter().take_while(|step| !step.is_forced);
        let keys = steps.map(|step| step.key.clone()).collect();
        let found = self.table.find_steps(&row.tenant, &row.id, keys).await?;
        for step in plan.steps.iter().take(found.len()) {
            build.log.note(
                BuildLogLevel::Info,
                Some(step.number),
                &format!("CACHED {}", step.shown),
            );
            build.add_step(step, true, Duration::ZERO);
        }
        let count = found.len();
        build.row.lock().chain.extend(found);
        Ok(count)
    }

    /// Builds the missing layers, and records the result.
    pub(super) async fn run_build(
        self: Arc<Self>,
        build: Arc<RunningBuild>,
        plan: TemplatePlan,
        done: usize,
    ) {
        let build_s = self.config.now().templates.build_s;
        let deadline = clock::now() + Duration::from_secs(build_s.into());
        let result = {
            let built = self.build_steps(&build, &plan, done, deadline);
            let mut built = std::pin::pin!(built);
            let mut every = time::interval(WRITE_EVERY);
            every.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    result = &mut built => break result,
                    _ = every.tick() => self.write_progress(&build).await,
                }
            }
        };
        self.finish_build(&build, &plan, result).await;
    }

    async fn write_progress(&self, build: &RunningBuild) {
        let row = {
            let mut row = build.row.lock();
            row.updated_ms = self.table.now_ms();
            row.clone()
        };
        match self.table.write_build(row, build.log.stored(), Vec::new()).await {
            Ok(true) => {}
            // Its template was deleted, possibly by another server.
            Ok(false) => build.cancel(),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the progress of a build could not be written"
            ),
        }
    }

    async fn build_steps(
        self: &Arc<Self>,
        build: &RunningBuild,
        plan: &TemplatePlan,
        done: usize,
        deadline: Instant,
    ) -> Result<(), BuildFailure> {
        let network = super::network::network(&self.config.now().templates)
            .map_err(|it| (None, it.into()))?;
        for step in plan.steps.iter().skip(done) {
            if build.is_cancelled() {
                return Err((None, TemplateStepFailure::Cancelled));
            }
            let number = Some(step.number);
            build.log.note(BuildLogLevel::Info, number, &step.shown);
            let began = clock::now();
            let made = self.build_step(build, step, &network, deadline).await;
            let layer = made.map_err(|failure| (number, failure))?;
            build.row.lock().chain.push(layer);
            build.add_step(step, false, clock::now().saturating_duration_since(began));
        }
        Ok(())
    }

    /// Builds the layer of a step.
    async fn build_step(
        self: &Arc<Self>,
        build: &RunningBuild,
        step: &LayerStep,
        network: &BuildNetwork,
        deadline: Instant,
    ) -> Result<String, TemplateStepFailure> {
        let row = build.row.lock().clone();
        self.storage.check_free().await?;
        let archive = match &step.action {
            StepAction::Copy { archive, .. } => {
                Some(self.archives.of_step(&row.tenant, archive).await?.ok_or_else(|| {
                    let message = "its archive was not uploaded, or too long ago".to_owned();
                    TemplateStepFailure::Failed(message)
                })?)
            }
            StepAction::Run(_) | StepAction::PipInstall(_) | StepAction::MakeWorkdir => None,
        };
        let _place = self.admission.admit_build(&row.tenant).await?;
        let run = StepRun { build, step, network, archive, deadline };
        self.build_step_admitted(&row, run).await
    }

    async fn build_step_admitted(
        &self,
        row: &TemplateBuildRow,
        run: StepRun<'_>,
    ) -> Result<String, TemplateStepFailure> {
        let config = self.config.now();
        let asked = SessionLimits {
            disk_bytes: Some(config.templates.disk_bytes.min(config.disk_bytes_max)),
            ..SessionLimits::default()
        };
        let complete = limits::limits(&config, &SessionLimits::default(), &asked)?;
        let disk = self.sandboxes.blank_disk(&complete).await?;
        let body = Arc::new(self.sandboxes.make(&row.tenant, disk, &row.chain, &complete).await?);
        let ran = self.run_in_body(row, &body, &run).await;
        // Processes that the step left running end here.
        let disk = self.sandboxes.end(&body).await;
        let disk = disk.ok_or_else(|| SessionError::internal("a build has a disk"))?;
        if let Err(failure) = ran {
            self.workspaces.remove_local(&disk).await;
            return Err(failure);
        }
        let layer = self.workspaces.freeze(&disk).await?;
        let known = LayerRow {
            id: layer.clone(),
            tenant: row.tenant.clone(),
            bytes: self.workspaces.layer_bytes(&layer).await,
            created_ms: clock::wall_ms(),
        };
        if self.is_shared {
            // Another server may start sessions with it. With a single server, a layer is uploaded
            // with the first session that is.
            self.workspaces.publish_all(std::slice::from_ref(&layer)).await?;
        }
        self.table.insert_step(&row.id, run.step.key.clone(), known).await?;
        Ok(layer)
    }

    async fn run_in_body(
        &self,
        row: &TemplateBuildRow,
        body: &SessionSandbox,
        run: &StepRun<'_>,
    ) -> Result<(), TemplateStepFailure> {
        let granted =
            self.gates.open_grants(&row.id, &row.tenant, &run.network.grants, body).await?;
        let mut env = LaunchEnvironment::bare().env;
        env.extend(granted);
        env.extend(run.network.env.clone());
        env.extend(run.step.env.clone());
        let sandbox = body.sandbox()?;
        let context = StepContext {
            sandbox: &sandbox,
            env,
            log: &run.build.log,
            archive: run.archive.as_ref().map(|archive| (archive, &self.objects)),
            deadline: run.deadline,
            cancelled: run.build.cancel.subscribe(),
        };
        run_step(run.step, context).await
    }

    /// Records the end of a build, and removes it from the running ones.
    pub(super) async fn finish_build(
        &self,
        build: &RunningBuild,
        plan: &TemplatePlan,
        result: Result<(), BuildFailure>,
    ) {
        let failure = result.err().map(|(step, failure)| self.failure(plan, step, failure));
        let chain = build.row.lock().chain.clone();
        let bytes = self.layers.bytes(chain).await.unwrap_or(0);
        if let Some(failure) = &failure {
            build.log.note(BuildLogLevel::Error, failure.step, &failure.message);
        } else {
            build.log.note(BuildLogLevel::Info, None, "ready");
        }
        let (row, tags) = {
            let mut row = build.row.lock();
            let now_ms = self.table.now_ms();
            row.status = match &failure {
                None => TemplateBuildStatus::Ready,
                Some(_) => TemplateBuildStatus::Error,
            };
            row.detail.failure.clone_from(&failure);
            row.detail.bytes = bytes;
            row.updated_ms = now_ms;
            row.finished_ms = Some(now_ms);
            let tags = if failure.is_none() { row.detail.tags.clone() } else { Vec::new() };
            (row.clone(), tags)
        };
        let id = row.id.clone();
        match self.table.write_build(row, build.log.stored(), tags).await {
            Ok(true) => {}
            // Its template was deleted, so its later layers are unused.
            Ok(false) => self.forget_build(&id).await,
            Err(error) => tracing::error!(
                build = id,
                error = &error as &dyn std::error::Error,
                "the end of a build could not be written"
            ),
        }
        self.running.lock().remove(&id);
        build.is_over.send_replace(true);
    }

    async fn forget_build(&self, id: &str) {
        match self.table.release_build(id).await {
            Ok(released) => {
                for layer in &released.layers {
                    self.workspaces.remove_layer(layer).await;
                }
            }
            // The next startup of the server finds them.
            Err(error) => tracing::warn!(
                build = id,
                error = &error as &dyn std::error::Error,
                "failed to release the layers of a deleted build"
            ),
        }
    }

    /// Cancels the builds of this server, and waits until they have ended.
    pub(crate) async fn stop(&self) {
        let running: Vec<Arc<RunningBuild>> = self.running.lock().values().cloned().collect();
        running.iter().for_each(|build| build.cancel());
        let all = running.iter().map(|build| build.over());
        if time::timeout(STOP_MAX, futures_util::future::join_all(all)).await.is_err() {
            tracing::error!("a build of a template could not be ended in time");
        }
    }

    fn failure(
        &self,
        plan: &TemplatePlan,
        number: Option<u32>,
        failure: TemplateStepFailure,
    ) -> TemplateFailure {
        let step = plan.steps.iter().find(|step| Some(step.number) == number);
        let limit = self.config.now().templates.build_s;
        let what = match failure {
            TemplateStepFailure::Failed(how) => how,
            TemplateStepFailure::TimedOut => {
                format!("the build took longer than {limit} s (sessions.templates.build_s)")
            }
            TemplateStepFailure::Cancelled => {
                "the build was cancelled: its template was deleted, or the server stopped"
                    .to_owned()
            }
            TemplateStepFailure::Server(
                error @ (SessionError::Internal(_) | SessionError::Unavailable(_)),
            ) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a build failed");
                "the server failed; try again".to_owned()
            }
            TemplateStepFailure::Server(error) => error.to_string(),
        };
        let mut message = match step {
            Some(step) => format!("step {} (`{}`): {what}", step.number, step.shown),
            None => what,
        };
        let config = self.config.now();
        let mirrors = &config.templates;
        let is_closed = mirrors.hosts.is_empty()
            && mirrors.pip_index.is_none()
            && mirrors.npm_registry.is_none();
        let wants_network = |step: &&LayerStep| match &step.action {
            StepAction::Run(command) => is_install(command) || command.starts_with("git clone"),
            StepAction::PipInstall(_) => true,
            StepAction::Copy { .. } | StepAction::MakeWorkdir => false,
        };
        if is_closed && step.filter(wants_network).is_some() {
            message.push_str(
                " (builds reach no network on this server: sessions.templates.pip_index, \
                 npm_registry and hosts are not set)",
            );
        }
        TemplateFailure { message, step: number }
    }

    /// Ends abandoned builds: those of this server's earlier run at startup, and those of lost
    /// servers.
    pub(crate) async fn end_lost_builds(&self, of_this_server: bool) -> Result<(), SessionError> {
        if of_this_server {
            self.table.forget_uses().await?;
        }
        let server = if of_this_server { self.cluster.run().id.as_str() } else { "" };
        let now_ms = self.table.now_ms();
        let lost_ms = now_ms.saturating_sub(LOST_AFTER.as_millis().try_into().unwrap_or(u64::MAX));
        for row in self.table.builds_left(server, lost_ms).await? {
            if self.running.lock().contains_key(&row.id) {
                continue;
            }
            let row =
                TemplateBuildRow { updated_ms: now_ms, finished_ms: Some(now_ms), ..lost(row) };
            let log = self.table.build_log(&row.id).await?.unwrap_or_default();
            self.table.write_build(row, log, Vec::new()).await?;
        }
        Ok(())
    }
}

/// Marks a build of a lost server as failed.
pub(super) fn lost(mut row: TemplateBuildRow) -> TemplateBuildRow {
    row.status = TemplateBuildStatus::Error;
    row.detail.failure = Some(TemplateFailure {
        message: "the server that built it stopped before it was done; build it again".to_owned(),
        step: None,
    });
    row
}

/// A step to run.
struct StepRun<'a> {
    build: &'a RunningBuild,
    step: &'a LayerStep,
    network: &'a BuildNetwork,
    archive: Option<TemplateArchiveRow>,
    deadline: Instant,
}
