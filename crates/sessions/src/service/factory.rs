//! Starting sandboxes over a disk, and ending them.

use std::sync::Arc;
use std::time::Duration;

use api::SessionLimits;
use node::current::CurrentSettings;
use sandbox::{Engine, SessionSetup};
use tokio::time;

use super::cluster::ClusterPlace;
use super::entry::SessionSandbox;
use super::limits;
use super::shared::SharedParts;
use super::starts::StartLimiter;
use super::sweeps::timers::SweepTimers;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::metrics::SessionCounters;
use crate::workspace::{AttachedDisk, DiskSource, SettledDisk, WorkspaceStore};

/// Time that an ending sandbox waits for the start of its agent, which has done no work yet that
/// could be lost.
const AGENT_START_GRACE: Duration = Duration::from_millis(200);
/// Longest time for the kernel to end all processes of a sandbox before its disk counts as stuck.
/// Attaching the disk again waits longer than that.
const SANDBOX_END_MAX: Duration = Duration::from_secs(10);

/// Starts and ends sandboxes with their disks.
pub(crate) struct SandboxFactory {
    engine: Engine,
    config: CurrentSettings<SessionsConfig>,
    workspaces: WorkspaceStore,
    cluster: Arc<ClusterPlace>,
    sweeps: Arc<SweepTimers>,
    metrics: Arc<SessionCounters>,
    starts: Arc<StartLimiter>,
}

impl SandboxFactory {
    pub(super) fn new(
        shared: &SharedParts,
        engine: Engine,
        starts: Arc<StartLimiter>,
    ) -> SandboxFactory {
        SandboxFactory {
            engine,
            config: shared.config.clone(),
            workspaces: shared.workspaces.clone(),
            cluster: Arc::clone(&shared.cluster),
            sweeps: Arc::clone(&shared.sweeps),
            metrics: Arc::clone(&shared.metrics),
            starts,
        }
    }

    /// Starts a sandbox over a disk. If that fails, a new disk is removed, because no row names it.
    pub(super) async fn make(
        &self,
        tenant: &str,
        disk: AttachedDisk,
        chain: &[String],
        complete: &SessionLimits,
    ) -> Result<SessionSandbox, SessionError> {
        let new = match disk.source {
            DiskSource::Fresh | DiskSource::Remote => Some(disk.id.clone()),
            DiskSource::Local => None,
        };
        let _started = self.starts.enter(tenant).await;
        let made = self.make_over(disk, chain, complete).await;
        if let (Err(_), Some(id)) = (&made, new) {
            self.workspaces.remove_local(&id).await;
        }
        made
    }

    async fn make_over(
        &self,
        disk: AttachedDisk,
        chain: &[String],
        complete: &SessionLimits,
    ) -> Result<SessionSandbox, SessionError> {
        let sandbox = async { self.engine.session_sandbox().await.map_err(SessionError::internal) };
        let (layers, sandbox) = tokio::try_join!(self.workspaces.layers(chain), sandbox)?;
        let limits = limits::sandbox_limits(&self.config.now(), complete);
        // A chain lists the oldest layer first; the kernel expects the newest first.
        let newest_first: Vec<_> = layers.into_iter().rev().collect();
        let setup = SessionSetup { disk: &disk.disk, layers: &newest_first, limits };
        // If the sandbox dies during its setup, that is a server error and does not end the
        // session.
        let session = sandbox.into_session(setup).await.map_err(SessionError::internal)?;
        let metrics = Arc::clone(&self.metrics.interpreter);
        Ok(SessionSandbox::new(session, disk, newest_first, metrics))
    }

    /// Returns a fresh disk for complete limits.
    pub(super) async fn blank_disk(
        &self,
        complete: &SessionLimits,
    ) -> Result<AttachedDisk, SessionError> {
        let disk = self.workspaces.blank(limits::disk_size(&self.config.now(), complete)).await;
        // A prepared disk may have been taken.
        self.sweeps.disks.notify_one();
        disk
    }

    /// Kills a sandbox's agent without a grace period, but waits for at most
    /// [`AGENT_START_GRACE`] if it is being started.
    pub(super) async fn kill(&self, body: &Arc<SessionSandbox>) {
        let agent = time::timeout(AGENT_START_GRACE, body.agent.lock()).await;
        if let Some(agent) = agent.ok().and_then(|mut agent| agent.take()) {
            agent.handle.kill();
        }
    }

    /// Ends a sandbox and detaches its disk, which is then complete on this machine.
    pub(super) async fn end(&self, body: &Arc<SessionSandbox>) -> Option<String> {
        let disk = self.end_programs(body).await?;
        let id = disk.id.clone();
        // Detaching writes remaining data, so it may block.
        let detached = node::task::blocking(move || drop(disk)).await;
        if detached.is_err() {
            tracing::error!(disk = id, "detaching a disk failed");
        }
        Some(id)
    }

    /// Ends a sandbox whose disk is stored next. Returns the disk if it is settled.
    pub(super) async fn end_settled(&self, body: &Arc<SessionSandbox>) -> Option<SettledDisk> {
        let disk = self.end_programs(body).await?;
        let id = disk.id.clone();
        match self.workspaces.detach_settled(disk).await {
            Ok(settled) => settled,
            Err(error) => {
                // Storing the disk tries again and reports the error.
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, disk = id, "a disk was not settled with its sandbox");
                None
            }
        }
    }

    /// Ends the programs of a sandbox and returns its disk.
    async fn end_programs(&self, body: &Arc<SessionSandbox>) -> Option<AttachedDisk> {
        // Frozen programs cannot exit; an error means that they have ended already.
        let _gone = body.thaw().await;
        if !self.cluster.membership().serving().holds() {
            // The lease is over, so the programs must do nothing more.
            self.kill(body).await;
        }
        let agent = time::timeout(AGENT_START_GRACE, body.agent.lock()).await;
        if let Some(agent) = agent.ok().and_then(|mut agent| agent.take()) {
            agent.handle.close().await;
        }
        drop(body.relay.lock().take());
        // The gate closes first, so that transactions are rolled back while their client still
        // runs.
        drop(body.gate.lock().await.take());
        let ended = body.ended();
        drop(body.take_sandbox());
        if time::timeout(SANDBOX_END_MAX, ended).await.is_err() {
            tracing::error!("a sandbox did not end in time");
        }
        body.take_disk()
    }

    /// Ends a sandbox that no session has, and removes its disk.
    pub(super) async fn discard(&self, body: &Arc<SessionSandbox>) {
        if let Some(disk) = self.end(body).await {
            self.workspaces.remove_local(&disk).await;
        }
    }
}
