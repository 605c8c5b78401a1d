//! Sandboxes: how they are made over a disk, and how they are ended.

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

/// Time that a sandbox that is being ended waits for an agent that is just being started. The agent
/// has done nothing yet that could be lost.
const AGENT_START_GRACE: Duration = Duration::from_millis(200);
/// Time that the kernel may take to end all processes of a sandbox before its disk is taken for
/// stuck. Attaching it again waits longer than that.
const SANDBOX_END_MAX: Duration = Duration::from_secs(10);

/// Makes and ends sandboxes, with their disks.
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

    /// Makes a sandbox over a disk. When that fails, a disk that is a new one is removed again: no
    /// row names it.
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
        // A chain has the oldest first, as it grew; the kernel looks into the newest first.
        let newest_first: Vec<_> = layers.into_iter().rev().collect();
        let setup = SessionSetup { disk: &disk.disk, layers: &newest_first, limits };
        // One that dies while it is made is this server's fault, and no session's end.
        let session = sandbox.into_session(setup).await.map_err(SessionError::internal)?;
        let metrics = Arc::clone(&self.metrics.interpreter);
        Ok(SessionSandbox::new(session, disk, newest_first, metrics))
    }

    /// A fresh disk for complete limits.
    pub(super) async fn blank_disk(
        &self,
        complete: &SessionLimits,
    ) -> Result<AttachedDisk, SessionError> {
        let disk = self.workspaces.blank(limits::disk_size(&self.config.now(), complete)).await;
        // One that was ready may have been taken.
        self.sweeps.disks.notify_one();
        disk
    }

    /// Ends what runs in a sandbox without waiting for anything it might want to say.
    pub(super) async fn kill(&self, body: &Arc<SessionSandbox>) {
        let agent = time::timeout(AGENT_START_GRACE, body.agent.lock()).await;
        if let Some(agent) = agent.ok().and_then(|mut agent| agent.take()) {
            agent.handle.kill();
        }
    }

    /// Ends a sandbox and detaches its disk, which is complete on this machine then.
    pub(super) async fn end(&self, body: &Arc<SessionSandbox>) -> Option<String> {
        let disk = self.end_programs(body).await?;
        let id = disk.id.clone();
        // Detaching writes what is left, so that it may take a moment.
        let detached = node::task::blocking(move || drop(disk)).await;
        if detached.is_err() {
            tracing::error!(disk = id, "detaching a disk failed");
        }
        Some(id)
    }

    /// Ends a sandbox whose disk is stored next. Returns the disk if it can be stored as it is.
    pub(super) async fn end_settled(&self, body: &Arc<SessionSandbox>) -> Option<SettledDisk> {
        let disk = self.end_programs(body).await?;
        let id = disk.id.clone();
        match self.workspaces.detach_settled(disk).await {
            Ok(settled) => settled,
            Err(error) => {
                // Whoever stores it tries once more, and is told.
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, disk = id, "a disk was not settled with its sandbox");
                None
            }
        }
    }

    /// Ends a sandbox and returns its disk.
    async fn end_programs(&self, body: &Arc<SessionSandbox>) -> Option<AttachedDisk> {
        // What stands still cannot end by itself; what is gone already needs no help.
        let _gone = body.thaw().await;
        if !self.cluster.membership().serving().holds() {
            // It stands still, and may do nothing any more.
            self.kill(body).await;
        }
        let agent = time::timeout(AGENT_START_GRACE, body.agent.lock()).await;
        if let Some(agent) = agent.ok().and_then(|mut agent| agent.take()) {
            agent.handle.close().await;
        }
        drop(body.relay.lock().take());
        // First of all: what a transaction holds is given back while its client is still there.
        drop(body.gate.lock().await.take());
        let ended = body.ended();
        drop(body.take_sandbox());
        if time::timeout(SANDBOX_END_MAX, ended).await.is_err() {
            tracing::error!("a sandbox did not end in time");
        }
        body.take_disk()
    }

    /// Ends a sandbox that nobody has, and removes its disk.
    pub(super) async fn discard(&self, body: &Arc<SessionSandbox>) {
        if let Some(disk) = self.end(body).await {
            self.workspaces.remove_local(&disk).await;
        }
    }
}
