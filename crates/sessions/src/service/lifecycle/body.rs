//! Sandboxes of sessions: their start and end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::SessionState;
use node::clock;
use node::task::Boxed;

use super::SessionLifecycle;
use crate::error::SessionError;
use crate::metrics::SandboxEvent;
use crate::service::admission::SandboxEviction;
use crate::service::books::EvictionDuty;
use crate::service::detached::detached;
use crate::service::entry::{SandboxUse, SessionEntry, SessionSandbox};
use crate::workspace::{DiskSource, SettledDisk};

impl SessionLifecycle {
    /// Starts the sandbox of a session that has none, for use by the caller: it cannot be evicted
    /// in between. The template's start command has been started when this returns. The caller
    /// holds the session's transition.
    pub(in crate::service) async fn bring_up(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
    ) -> Result<(DiskSource, SandboxUse), SessionError> {
        if let Some(old) = entry.body() {
            // The ledger has evicted it, but the evicting task has not ended it yet.
            self.put_down(entry, &old).await;
        }
        self.admission.admit(&entry.key, &entry.tenant).await?;
        let made = Box::pin(self.bring_up_admitted(entry)).await;
        let (source, at_work) =
            made.inspect_err(|_| self.books.give_up(&entry.key, clock::now()))?;
        let body = Arc::clone(&at_work.body);
        if let Err(error) = Box::pin(self.launcher.start_template_in(entry, &body)).await {
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
                // Disk and layers are fetched concurrently. A missing layer causes an error when
                // the sandbox is created, which then removes the disk.
                let (disk, layers) = tokio::join!(disk, self.workspaces.layers(&row.chain));
                (disk?, layers.unwrap_or_default())
            }
            None => (self.sandboxes.blank_disk(&row.limits).await?, Vec::new()),
        };
        let source = disk.source;
        let is_new = row.disk.as_deref() != Some(disk.id.as_str());
        let id = disk.id.clone();
        let body = self.sandboxes.make(&entry.tenant, disk, &row.chain, &row.limits).await?;
        if is_new {
            let mut state = entry.state.lock();
            state.row.disk = Some(id);
            state.row.disk_server = Some(self.cluster.run().id.clone());
        }
        if is_new {
            // The row must name this disk before programs write to it, or the writes could be lost
            // to the disk that the row names.
            self.directory.save_life(entry).await?;
        }
        let body = Arc::new(body);
        let at_work = self.install_at_work(entry, body)?;
        Ok((source, at_work))
    }

    /// Installs a sandbox that was just created, for use by the caller.
    pub(in crate::service) fn install_at_work(
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

    /// Installs a session's sandbox, and watches for its end.
    pub(in crate::service) fn install(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        body: Arc<SessionSandbox>,
    ) {
        entry.state.lock().body = Some(Arc::clone(&body));
        let (lifecycle, entry, ended) = (Arc::clone(self), Arc::clone(entry), body.ended());
        node::task::spawn(async move {
            let reason = ended.await;
            lifecycle.died(&entry, &body, &reason).await;
        });
    }

    /// Handles the end of a sandbox; if it ended by itself, its session is paused.
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

    /// Ends the sandbox of a session: first the agent gracefully, then everything. The caller holds
    /// the session's transition, and any work in progress has finished or may be lost.
    pub(in crate::service) async fn put_down(
        &self,
        entry: &Arc<SessionEntry>,
        body: &Arc<SessionSandbox>,
    ) {
        self.books.cold(&entry.key, &body.uses, clock::now());
        self.sandboxes.end(body).await;
        entry.take_body(body);
    }

    /// Like `put_down`, for a session whose files are stored next. Returns its disk if the disk is
    /// settled already.
    pub(in crate::service) async fn put_down_to_store(
        &self,
        entry: &Arc<SessionEntry>,
        body: &Arc<SessionSandbox>,
    ) -> Option<SettledDisk> {
        self.books.cold(&entry.key, &body.uses, clock::now());
        let settled = self.sandboxes.end_settled(body).await;
        entry.take_body(body);
        settled
    }

    /// Begins to use a session's sandbox, starting it if there is none. Does not change the
    /// session's state.
    pub(in crate::service) async fn with_body(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
    ) -> Result<SandboxUse, SessionError> {
        if !entry.comes_to_rest.load(Ordering::Relaxed)
            && let Some(at_work) = SandboxUse::begin(&self.books, entry, clock::now())
        {
            return Ok(at_work);
        }
        let lifecycle = Arc::clone(self);
        let (tenant, id) = (Arc::clone(&entry.tenant), Arc::clone(&entry.id));
        detached(async move {
            let (entry, _transition) = lifecycle.hold(&tenant, &id).await?;
            if let Some(at_work) = SandboxUse::begin(&lifecycle.books, &entry, clock::now()) {
                return Ok(at_work);
            }
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            lifecycle.bring_up(&entry).await.map(|(_, at_work)| at_work)
        })
        .await
    }

    /// Begins to use an active session.
    pub(in crate::service) async fn active(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
    ) -> Result<SandboxUse, SessionError> {
        let entry = self.acquire(tenant, id).await?;
        entry.state.lock().active()?;
        let at_work = self.with_body(&entry).await?;
        // The session may have been paused while its sandbox was started.
        at_work.entry.state.lock().active()?;
        self.directory.touch(&at_work.entry);
        Ok(at_work)
    }
}

impl SandboxEviction for SessionLifecycle {
    fn perform(self: Arc<Self>, duty: EvictionDuty) -> Boxed<'static, ()> {
        Box::pin(async move {
            match duty {
                EvictionDuty::Stop(id) => self.rest(&id, "evicted").await,
                EvictionDuty::Archive(id) => self.archive_later(id).await,
                EvictionDuty::Discard(number) => self.prewarm.discard(number).await,
            }
        })
    }
}
