//! Sandboxes of sessions: how they come to be, and how they go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{SessionLimits, SessionState};
use node::clock;
use sandbox::SessionSetup;
use tokio::time;

use super::books::{CapacityRefusal, EvictionDuty, PlaceRequest, ResidentKey};
use super::detached::detached;
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::{SessionsInner, limits};
use crate::agent::Later;
use crate::error::SessionError;
use crate::metrics::SandboxEvent;
use crate::workspace::{AttachedDisk, DiskSource};

/// Time that a sandbox that is being ended waits for an agent that is just being started. The agent
/// has done nothing yet that could be lost.
const AGENT_START_GRACE: Duration = Duration::from_millis(200);
/// Longest that a request for a sandbox waits for those that are just being made: some of them may
/// be brought from the object store, which takes longer than a caller is to wait for an answer.
const ADMISSION_MAX: Duration = Duration::from_secs(5);
/// Time that the kernel may take to end all processes of a sandbox before its disk is taken for
/// stuck. Attaching it again waits longer than that.
const SANDBOX_END_MAX: Duration = Duration::from_secs(10);

impl SessionsInner {
    /// Makes a sandbox over a disk. When that fails, a disk that is a new one is removed again: no
    /// row names it.
    pub(super) async fn make_body(
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
        let made = self.make_body_over(disk, chain, complete).await;
        if let (Err(_), Some(id)) = (&made, new) {
            self.workspaces.remove_local(&id).await;
        }
        made
    }

    async fn make_body_over(
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
    pub(super) async fn blank(
        &self,
        complete: &SessionLimits,
    ) -> Result<AttachedDisk, SessionError> {
        let disk = self.workspaces.blank(limits::disk_size(&self.config.now(), complete)).await;
        // One that was ready may have been taken.
        self.sweeps.disks.notify_one();
        disk
    }

    /// Takes a place for a tenant's sandbox, and does what has to be done for it to be free. Who
    /// finds all places taken by those that are just being made waits, in line, until one of them
    /// is.
    pub(super) async fn admit(
        self: &Arc<Self>,
        key: &ResidentKey,
        tenant: &Arc<str>,
    ) -> Result<(), SessionError> {
        let request = self.place(key, tenant);
        let mut duties = match self.books.is_awaited() {
            true => Err(CapacityRefusal::Soon),
            false => self.books.admit(&request, clock::now()),
        };
        if let Err(CapacityRefusal::Soon) = duties {
            let in_line = self.books.admit_in_line(&request, clock::now);
            duties =
                time::timeout(ADMISSION_MAX, in_line).await.unwrap_or(Err(CapacityRefusal::Soon));
        }
        let duties = duties.map_err(|full| match full {
            CapacityRefusal::Soon | CapacityRefusal::Server => SessionError::Capacity,
            CapacityRefusal::Share => SessionError::TooMany(format!(
                "the tenant has {} sandboxes at work, which is its share of this server \
                 (sessions.resident_max_per_tenant); end or pause one first",
                request.tenant_max
            )),
        })?;
        for duty in duties {
            self.metrics.count(SandboxEvent::Evicted);
            self.perform(duty).await;
        }
        Ok(())
    }

    /// A place for a sandbox of a tenant, within the tenant's share.
    pub(super) fn place<'a>(&self, key: &'a ResidentKey, tenant: &'a Arc<str>) -> PlaceRequest<'a> {
        let tenant_max = match self.config.now().resident_max_per_tenant {
            // Half of a server would be wasted that has one tenant.
            0 if !self.has_tenants_beside(tenant) => usize::MAX,
            0 => self.config.now().resident_max.div_ceil(2),
            most => most,
        };
        PlaceRequest { key, tenant, tenant_max }
    }

    fn has_tenants_beside(&self, tenant: &str) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.has_tenants_beside(tenant))
    }

    /// Boxed, because it is large and rare.
    fn perform<'a>(self: &'a Arc<Self>, duty: EvictionDuty) -> Later<'a, ()> {
        Box::pin(async move {
            match duty {
                EvictionDuty::Stop(id) => self.rest(&id, "evicted").await,
                EvictionDuty::Archive(id) => self.archive_later(id).await,
                EvictionDuty::Discard(number) => self.discard_ready(number).await,
            }
        })
    }

    /// Makes the sandbox of a session that has none, for its caller to work with: nobody takes it
    /// away in between. What its template starts has been started then. The caller holds its
    /// transition.
    pub(super) async fn bring_up(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
    ) -> Result<(DiskSource, SandboxUse), SessionError> {
        if let Some(old) = entry.body() {
            // The books have struck it off, and whoever is to end it has not come to that yet.
            self.put_down(entry, &old).await;
        }
        self.admit(&entry.key, &entry.tenant).await?;
        let made = Box::pin(self.bring_up_admitted(entry)).await;
        let (source, at_work) =
            made.inspect_err(|_| self.books.give_up(&entry.key, clock::now()))?;
        let body = Arc::clone(&at_work.body);
        if let Err(error) = Box::pin(self.start_template_in(entry, &body)).await {
            drop(at_work);
            self.put_down(entry, &body).await;
            return Err(error);
        }
        Ok((source, at_work))
    }

    async fn bring_up_admitted(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
    ) -> Result<(DiskSource, SandboxUse), SessionError> {
        let row = entry.state.lock().row.clone();
        let (disk, _layers) = match &row.disk {
            Some(disk) => {
                let disk =
                    self.workspaces.attach(disk, row.manifest.as_deref(), row.last_active_ms);
                // What has to come from the object store comes side by side. A layer that cannot be
                // had is found out about when the sandbox is made, and the disk is removed then.
                let (disk, layers) = tokio::join!(disk, self.workspaces.layers(&row.chain));
                (disk?, layers.unwrap_or_default())
            }
            None => (self.blank(&row.limits).await?, Vec::new()),
        };
        let source = disk.source;
        let is_new = row.disk.as_deref() != Some(disk.id.as_str());
        let id = disk.id.clone();
        let body = self.make_body(&entry.tenant, disk, &row.chain, &row.limits).await?;
        if is_new {
            let mut state = entry.state.lock();
            state.row.disk = Some(id);
            state.row.disk_server = Some(self.cluster.run().id.clone());
        }
        if is_new {
            // What is written to this disk must not be lost for another one that the row names.
            self.directory.save_life(entry).await?;
        }
        let body = Arc::new(body);
        let at_work = self.install_at_work(entry, body)?;
        Ok((source, at_work))
    }

    /// Gives a session the sandbox that was just made for it, for its caller to work with.
    pub(super) fn install_at_work(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        body: Arc<SessionSandbox>,
    ) -> Result<SandboxUse, SessionError> {
        let at_work = SandboxUse::of(&self.books, entry, Arc::clone(&body), clock::now());
        let at_work =
            at_work.ok_or_else(|| SessionError::internal("what is being made has a place"))?;
        self.install(entry, body);
        Ok(at_work)
    }

    /// Gives a session its sandbox, and has it watched.
    pub(super) fn install(self: &Arc<Self>, entry: &Arc<SessionEntry>, body: Arc<SessionSandbox>) {
        entry.state.lock().body = Some(Arc::clone(&body));
        let (inner, entry, ended) = (Arc::clone(self), Arc::clone(entry), body.ended());
        node::task::spawn(async move {
            let reason = ended.await;
            inner.died(&entry, &body, &reason).await;
        });
    }

    /// A sandbox has ended; if nobody ended it, its session is told.
    async fn died(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        body: &Arc<SessionSandbox>,
        reason: &str,
    ) {
        let is_current =
            || entry.state.lock().body.as_ref().is_some_and(|it| Arc::ptr_eq(it, body));
        if !is_current() {
            return;
        }
        let _transition = entry.transition.lock().await;
        if !is_current() {
            return;
        }
        self.metrics.count(SandboxEvent::Died);
        tracing::info!(session = %entry.id, reason, "a sandbox ended by itself");
        self.leave(entry, SessionState::Paused, &format!("the sandbox ended: {reason}"));
        self.put_down(entry, body).await;
    }

    /// Ends the sandbox of a session: first the agent by itself, then everything. The caller holds
    /// its transition, and what is in its way of work is over or may be lost.
    pub(super) async fn put_down(&self, entry: &Arc<SessionEntry>, body: &Arc<SessionSandbox>) {
        self.books.cold(&entry.key, &body.uses, clock::now());
        self.end_body(body).await;
        let mut state = entry.state.lock();
        if state.body.as_ref().is_some_and(|it| Arc::ptr_eq(it, body)) {
            state.body = None;
        }
    }

    /// Ends what runs in a sandbox without waiting for anything it might want to say.
    pub(super) async fn kill(&self, body: &Arc<SessionSandbox>) {
        let agent = time::timeout(AGENT_START_GRACE, body.agent.lock()).await;
        if let Some(agent) = agent.ok().and_then(|mut agent| agent.take()) {
            agent.handle.kill();
        }
    }

    /// Ends a sandbox and detaches its disk, which is complete on this machine then.
    pub(super) async fn end_body(&self, body: &Arc<SessionSandbox>) -> Option<String> {
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
        let disk = body.take_disk()?;
        let id = disk.id.clone();
        // Detaching writes what is left, so that it may take a moment.
        let detached = node::task::blocking(move || drop(disk)).await;
        if detached.is_err() {
            tracing::error!(disk = id, "detaching a disk failed");
        }
        Some(id)
    }

    /// Works with a session's sandbox, which is made when there is none. Does not change where the
    /// session is.
    pub(super) async fn with_body(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
    ) -> Result<SandboxUse, SessionError> {
        if !entry.comes_to_rest.load(Ordering::Relaxed)
            && let Some(at_work) = SandboxUse::begin(&self.books, entry, clock::now())
        {
            return Ok(at_work);
        }
        let inner = Arc::clone(self);
        let (tenant, id) = (Arc::clone(&entry.tenant), Arc::clone(&entry.id));
        detached(async move {
            let (entry, _transition) = inner.hold(&tenant, &id).await?;
            if let Some(at_work) = SandboxUse::begin(&inner.books, &entry, clock::now()) {
                return Ok(at_work);
            }
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            inner.bring_up(&entry).await.map(|(_, at_work)| at_work)
        })
        .await
    }
}
