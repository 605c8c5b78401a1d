//! Transitions of a session from state to state.
//!
//! ```text
//!            create, fork
//!                │
//!                ▼        pause, eviction, idleness, the sandbox's end
//!  resume ──► active ───────────────────────────────────────────────► paused
//!    ▲           │ stop                                                  │ stop
//!    │           ▼                                                       ▼
//!    └─────── stopped ◄──────────────────────────────────────────────────┘
//!
//!  end: from any state, final            a failed resume: error, until the next resume
//! ```
//!
//! [`SessionLifecycle::leave`] and [`SessionLifecycle::enter`] are the only functions that change
//! the state. A task that starts or ends a sandbox holds the session's `transition`. Long
//! operations run in their own task, so a client that disconnects does not interrupt a transition.

mod acquire;
mod body;
mod turns;
mod waiting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{SessionEventKind, SessionState};
use node::clock;
use node::current::CurrentSettings;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time;

use super::admission::SandboxAdmission;
use super::archive_queue::ArchiveQueue;
use super::attachments::SessionAttachments;
use super::books::{ResidentKey, ResidentLedger};
use super::cluster::ClusterPlace;
use super::directory::{SessionDirectory, SessionUse};
use super::disk_archive::DiskArchive;
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::factory::SandboxFactory;
use super::gates::GrantGates;
use super::launch::ProgramLauncher;
use super::prewarm::PrewarmPool;
use super::requests::SessionUpdate;
use super::shared::SharedParts;
use super::storage::StorageQuota;
use super::sweeps::timers::SweepTimers;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::events::EventWriter;
use crate::metrics::{SandboxEvent, SessionCounters, TimedOperation};
use crate::store::SessionStore;
use crate::workspace::WorkspaceStore;

/// Longest wait until the sockets of a lost session's grants are closed.
const GATE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for an interrupted turn when its session is stopped.
const INTERRUPT_MAX: Duration = Duration::from_secs(10);

/// Life cycle of sessions: acquiring them on this server, starting sandboxes, resting and ending.
pub(crate) struct SessionLifecycle {
    config: CurrentSettings<SessionsConfig>,
    store: SessionStore,
    writer: EventWriter,
    workspaces: WorkspaceStore,
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    sweeps: Arc<SweepTimers>,
    storage: Arc<StorageQuota>,
    admission: Arc<SandboxAdmission>,
    sandboxes: Arc<SandboxFactory>,
    gates: Arc<GrantGates>,
    launcher: Arc<ProgramLauncher>,
    prewarm: Arc<PrewarmPool>,
    attachments: Arc<SessionAttachments>,
    disk_archive: Arc<DiskArchive>,
    /// Cold disks queued for upload to the object store.
    archives: ArchiveQueue,
    /// True if other servers share the store.
    is_shared: bool,
}

/// Components that the life cycle uses.
pub(super) struct LifecycleParts {
    pub(super) admission: Arc<SandboxAdmission>,
    pub(super) sandboxes: Arc<SandboxFactory>,
    pub(super) gates: Arc<GrantGates>,
    pub(super) launcher: Arc<ProgramLauncher>,
    pub(super) prewarm: Arc<PrewarmPool>,
    pub(super) attachments: Arc<SessionAttachments>,
    pub(super) disk_archive: Arc<DiskArchive>,
    pub(super) is_shared: bool,
}

impl SessionLifecycle {
    pub(super) fn new(shared: &SharedParts, parts: LifecycleParts) -> Arc<SessionLifecycle> {
        Arc::new(SessionLifecycle {
            config: shared.config.clone(),
            store: shared.store.clone(),
            writer: shared.writer.clone(),
            workspaces: shared.workspaces.clone(),
            cluster: Arc::clone(&shared.cluster),
            directory: Arc::clone(&shared.directory),
            books: Arc::clone(&shared.books),
            metrics: Arc::clone(&shared.metrics),
            sweeps: Arc::clone(&shared.sweeps),
            storage: Arc::clone(&shared.storage),
            admission: parts.admission,
            sandboxes: parts.sandboxes,
            gates: parts.gates,
            launcher: parts.launcher,
            prewarm: parts.prewarm,
            attachments: parts.attachments,
            disk_archive: parts.disk_archive,
            archives: ArchiveQueue::new(),
            is_shared: parts.is_shared,
        })
    }
    /// Changes a session on this server. Returns false if it was released just now.
    ///
    /// Prepares the sockets first: if one cannot be created, the session and its reported grants
    /// stay unchanged.
    pub(super) async fn change(
        &self,
        entry: &Arc<SessionEntry>,
        update: &SessionUpdate,
    ) -> Result<bool, SessionError> {
        let body = entry.body();
        let gate = match (&update.grants, body.as_deref()) {
            (Some(grants), Some(body)) => Some(self.gates.prepare(entry, body, grants).await?),
            _ => None,
        };
        {
            let mut state = entry.state.lock();
            if state.left {
                return Ok(false);
            }
            update.apply(&mut state.row)?;
            if update.grants.is_some() {
                // Programs started from now on have another environment.
                state.launch = None;
            }
        }
        let saved = self.directory.save(entry).await;
        let Some(grants) = &update.grants else { return saved.map(|()| true) };
        // Also if the save failed: this server already reports the new grants.
        if let Some(gate) = gate {
            gate.make(grants);
        }
        let is_new =
            |now: &Arc<SessionSandbox>| body.as_ref().is_none_or(|it| !Arc::ptr_eq(it, now));
        if let Some(new) = entry.body().filter(is_new) {
            self.gates.follow(entry, &new).await?;
        }
        saved.map(|()| true)
    }

    /// Returns a session with its transition lock, held while the guard lives.
    pub(super) async fn hold(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
    ) -> Result<(Arc<SessionEntry>, OwnedMutexGuard<()>), SessionError> {
        self.hold_for(tenant, id, SessionUse::Work).await
    }

    pub(super) async fn hold_for(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
        purpose: SessionUse,
    ) -> Result<(Arc<SessionEntry>, OwnedMutexGuard<()>), SessionError> {
        loop {
            let entry = self.acquire_for(tenant, id, purpose).await?;
            let wanted = entry.wanted.raise();
            let transition = Self::hold_here(&entry).await;
            drop(wanted);
            if let Some(transition) = transition {
                return Ok((entry, transition));
            }
        }
    }

    /// Like `hold_for`, but queues behind all other waiters for the session.
    async fn hold_behind(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
    ) -> Result<(Arc<SessionEntry>, OwnedMutexGuard<()>), SessionError> {
        loop {
            let entry = self.acquire(tenant, id).await?;
            if let Some(transition) = Self::hold_here(&entry).await {
                return Ok((entry, transition));
            }
        }
    }

    /// Locks the transition of a session; returns `None` if the previous holder has released the
    /// session.
    async fn hold_here(entry: &SessionEntry) -> Option<OwnedMutexGuard<()>> {
        let transition = Arc::clone(&entry.transition).lock_owned().await;
        (!entry.is_left()).then_some(transition)
    }

    /// Stops a session from accepting messages. Queued messages receive the reason; the running
    /// turn is not affected.
    pub(super) fn leave(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        to: SessionState,
        reason: &str,
    ) {
        let waiting = {
            let mut state = entry.state.lock();
            state.row.state = to;
            state.row.last_active_ms = self.store.now_ms();
            state.turns.take_waiting()
        };
        self.refuse_all(entry, waiting, &format!("the session was {}: {reason}", to.as_str()));
        self.tell(entry, to, reason);
        self.directory.mark(entry);
    }

    /// Lets a session accept messages.
    pub(super) fn enter(&self, entry: &Arc<SessionEntry>, reason: &str) {
        {
            let mut state = entry.state.lock();
            state.row.state = SessionState::Active;
            state.row.message = None;
            state.row.last_active_ms = self.store.now_ms();
        }
        self.tell(entry, SessionState::Active, reason);
        self.directory.mark(entry);
    }

    pub(super) fn fail(self: &Arc<Self>, entry: &Arc<SessionEntry>, error: &SessionError) {
        tracing::warn!(session = %entry.id, error = error as &dyn std::error::Error,
            "a session could not be resumed");
        let text = error.to_string();
        entry.state.lock().row.message = Some(text.clone());
        self.leave(entry, SessionState::Error, &text);
    }

    pub(super) fn tell(&self, entry: &SessionEntry, state: SessionState, reason: &str) {
        let data = json!({ "state": state.as_str(), "reason": reason });
        entry.log.push(SessionEventKind::Lifecycle, None, data);
    }

    /// Stops the session's turn and waits, for at most [`INTERRUPT_MAX`], for it to end.
    pub(super) async fn quiet(&self, entry: &Arc<SessionEntry>) {
        let turn = entry.state.lock().turns.stop_current();
        if let Some(turn) = turn
            && time::timeout(INTERRUPT_MAX, turn.over()).await.is_err()
        {
            tracing::info!(session = %entry.id, "a turn did not give way in time");
        }
    }

    /// Ends the sandbox of an idle session: the session is paused, and its disk stays on this
    /// server.
    pub(super) async fn rest(self: &Arc<Self>, id: &str, reason: &str) {
        let Some(entry) = self.directory.known(id) else { return };
        let Some(chosen) = entry.body() else { return };
        let _transition = tokio::select! {
            transition = entry.transition.lock() => transition,
            // The holder has already ended the sandbox, and may itself be waiting for the place
            // that is to become free here.
            _reason = chosen.ended() => return,
        };
        let Some(body) = entry.body() else { return };
        // The session may have been used again since it was chosen.
        if !self.books.is_cold(&entry.key) {
            return;
        }
        if entry.session_state() == SessionState::Active {
            self.leave(&entry, SessionState::Paused, reason);
        }
        self.put_down(&entry, &body).await;
        if self.is_shared {
            // Another server continues from the object store if this one is lost. Done in the
            // background, because a request may be waiting for the place.
            let (lifecycle, entry) = (Arc::clone(self), Arc::clone(&entry));
            node::task::spawn(async move { lifecycle.store_rested(&entry).await });
        }
    }

    /// Uploads the files of a resting session to the object store. After that, any server can
    /// resume it if it is stopped.
    pub(super) async fn store_rested(&self, entry: &Arc<SessionEntry>) {
        loop {
            let _transition = entry.transition.lock().await;
            // A released session may belong to another server by now, with its files.
            let is_ended = entry.session_state() == SessionState::Ended;
            if is_ended || entry.body().is_some() || entry.is_left() {
                return;
            }
            match self.disk_archive.store_files_unless_wanted(entry).await {
                Ok(true) if entry.session_state() == SessionState::Stopped => {
                    if let Err(error) = self.directory.let_go(entry, None).await {
                        let error = &error as &dyn std::error::Error;
                        let session = &*entry.id;
                        tracing::warn!(session, error, "a stopped session could not be let go");
                    }
                    return;
                }
                Ok(true) => return,
                // Try again after the waiting request, in case it finds no room for its sandbox.
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(session = %entry.id, error = &error as &dyn std::error::Error,
                        "the files of a session are on this server alone");
                    return;
                }
            }
        }
    }

    /// Ends the sandbox of a session that may be at work; its turn is interrupted first.
    pub(super) async fn rest_now(self: &Arc<Self>, entry: &Arc<SessionEntry>, reason: &str) {
        let _transition = entry.transition.lock().await;
        if entry.is_left() {
            return;
        }
        if entry.session_state() == SessionState::Active {
            self.leave(entry, SessionState::Paused, reason);
        }
        self.quiet(entry).await;
        if let Some(body) = entry.body() {
            self.put_down(entry, &body).await;
        }
    }

    /// Resumes a session in its existing sandbox. Returns `None` if there is none or it is ending.
    pub(super) async fn resume_warm(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        began: Instant,
    ) -> Result<Option<SandboxUse>, SessionError> {
        let Some(at_work) = SandboxUse::begin(&self.books, entry, began) else { return Ok(None) };
        match entry.session_state() {
            SessionState::Ended => return Err(SessionError::Ended),
            SessionState::Active => return Ok(Some(at_work)),
            SessionState::Starting
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Error => {}
        }
        at_work.body.thaw().await?;
        self.enter(entry, "resumed");
        self.go_on_waiting(&at_work);
        self.metrics.took(TimedOperation::ResumeWarm, clock::now().duration_since(began));
        Ok(Some(at_work))
    }

    /// Pauses a session that may be at work and freezes its programs; its turn is interrupted
    /// first. The programs continue when the session is resumed, unless the sandbox was evicted by
    /// then.
    pub(super) async fn freeze_now(self: &Arc<Self>, entry: &Arc<SessionEntry>, reason: &str) {
        let _transition = entry.transition.lock().await;
        if entry.is_left() || entry.session_state() != SessionState::Active {
            return;
        }
        self.leave(entry, SessionState::Paused, reason);
        self.quiet(entry).await;
        let Some(body) = entry.body() else { return };
        if let Some(gate) = body.gate.lock().await.as_ref() {
            gate.rest();
        }
        // If the sandbox ends meanwhile, its programs do not run either.
        if let Err(error) = body.freeze().await {
            tracing::debug!(session = %entry.id, %error, "a paused session was not frozen");
        }
    }

    /// Moves the disk of a cold session from this server to the object store.
    pub(super) async fn archive(self: &Arc<Self>, id: &str) {
        let moved = self.try_archive(id).await;
        if let Err(error) = &moved {
            tracing::warn!(
                session = id,
                error = error as &dyn std::error::Error,
                "a cold session could not be moved to the object store"
            );
        }
        if !matches!(moved, Ok(true)) {
            // The disk stays here, and the move is retried later.
            let tenant = self.directory.known(id).map(|entry| Arc::clone(&entry.tenant));
            self.books.keep_cold(&id.into(), &tenant.unwrap_or_default(), clock::now());
        }
    }

    /// Returns false if a request on this server wants the session.
    async fn try_archive(self: &Arc<Self>, id: &str) -> Result<bool, SessionError> {
        let Some(row) = self.store.session_of_anybody(id).await? else { return Ok(true) };
        let (entry, _transition) = match self.hold_behind(&row.tenant, id).await {
            // Another server has it, or it is not needed any more.
            Err(
                SessionError::Conflict(_)
                | SessionError::Away(_)
                | SessionError::OnAnotherServer { .. }
                | SessionError::Ended
                | SessionError::NotFound(_),
            ) => {
                if let Some(disk) = &row.disk
                    && (row.manifest.is_some() || row.state == SessionState::Ended)
                {
                    self.workspaces.remove_local(disk).await;
                }
                return Ok(true);
            }
            other => other?,
        };
        if entry.body().is_some() || self.books.state(&entry.key).is_some() {
            return Ok(true);
        }
        if !self.disk_archive.store_files_unless_wanted(&entry).await? {
            return Ok(false);
        }
        let disk = {
            let mut state = entry.state.lock();
            state.row.disk_server = None;
            state.row.disk.clone()
        };
        self.directory.save(&entry).await?;
        if let Some(disk) = disk {
            // Remove it before another server can resume the session, which would lose the disk
            // while in use.
            self.workspaces.remove_local(&disk).await;
        }
        self.directory.let_go(&entry, None).await?;
        self.metrics.count(SandboxEvent::SweptCold);
        Ok(true)
    }

    /// Ends a session for good. The caller holds its transition.
    pub(super) async fn finish(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        reason: &str,
    ) -> Result<(), SessionError> {
        if entry.session_state() == SessionState::Ended {
            return Ok(());
        }
        self.leave(entry, SessionState::Ended, reason);
        // No wait for the turn: it ends with its sandbox.
        let turn = entry.state.lock().turns.stop_current();
        if let Some(body) = entry.body() {
            self.sandboxes.kill(&body).await;
            self.put_down(entry, &body).await;
        }
        if let Some(turn) = turn
            && time::timeout(INTERRUPT_MAX, turn.over()).await.is_err()
        {
            tracing::error!(session = %entry.id, "a turn went on without a sandbox");
        }
        // The last turn's files must be stored before they are removed.
        let _storing = entry.storing.lock().await;
        let (disk, manifest) = {
            let mut state = entry.state.lock();
            let row = &mut state.row;
            (row.disk_server, row.deadline_ms, row.env) = (None, None, None);
            row.chain.clear();
            (row.disk.take(), row.manifest.take())
        };
        self.sweeps.deadline(&entry.id, None);
        self.directory.save(entry).await?;
        // Subscribers receive the end of the stream.
        entry.log.close();
        self.books.remove(&ResidentKey::Session(Arc::clone(&entry.id)));
        self.disk_archive.remove_disks(disk.as_deref(), manifest.as_deref()).await;
        if let Some(manifest) = &manifest {
            self.cluster.announce_stored(entry, manifest);
        }
        self.attachments.remove_all(&entry.tenant, &entry.id).await?;
        // Layers of its chain may be unused now.
        self.sweeps.layers();
        Ok(())
    }

    /// Moves the disk of a cold session to the object store in the background, unless
    /// [`super::archive_queue::ARCHIVES_PENDING_MAX`] others are queued.
    pub(super) async fn archive_later(self: &Arc<Self>, id: Arc<str>) {
        let Some(pending) = self.archives.try_enter() else {
            self.archive(&id).await;
            return;
        };
        let lifecycle = Arc::clone(self);
        node::task::spawn(async move {
            let _pending = pending;
            let Some(_running) = lifecycle.archives.turn().await else { return };
            lifecycle.archive(&id).await;
        });
    }

    /// Ends the local remains of a session that another server owns now. When this returns, the
    /// session is not found here and its grants' sockets are closed; the rest of the cleanup runs
    /// in the background.
    pub(super) async fn give_up(self: &Arc<Self>, entry: &Arc<SessionEntry>) {
        tracing::warn!(session = %entry.id, "a session is another server's now");
        let body = {
            let mut state = entry.state.lock();
            state.left = true;
            state.body.clone()
        };
        self.directory.remove(entry);
        // Subscribers here now receive the events of the other server.
        entry.log.leave();
        self.leave(entry, SessionState::Paused, "it is on another server");
        if let Some(body) = &body {
            drop(body.relay.lock().take());
            let gate = time::timeout(GATE_MAX, body.gate.lock()).await;
            drop(gate.ok().and_then(|mut gate| gate.take()));
            self.sandboxes.kill(body).await;
        }
        let (lifecycle, entry) = (Arc::clone(self), Arc::clone(entry));
        node::task::spawn(async move {
            let _transition = entry.transition.lock().await;
            if let Some(body) = entry.body() {
                lifecycle.put_down(&entry, &body).await;
            }
            lifecycle.books.remove(&entry.key);
        });
    }
}
