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
//!  end: from anywhere, for ever          a resume that fails: error, until the next one
//! ```
//!
//! [`SessionsInner::leave`] and [`SessionsInner::enter`] are the only two that change the state.
//! Whoever makes or ends a sandbox holds the session's `transition`; and since a client that goes
//! away must not leave a session half way, what takes long runs in a task of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{SessionEventKind, SessionState};
use node::clock;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time;

use super::books::ResidentKey;
use super::detached::detached;
use super::entry::{SandboxUse, SessionEntry, SessionSandbox};
use super::files::SandboxGuard;
use super::requests::{DeadlineAction, SessionUpdate};
use super::views::shown;
use super::{SessionUse, Sessions, SessionsInner};
use crate::error::SessionError;
use crate::metrics::{SandboxEvent, TimedOperation};
use crate::store::rows::SessionRow;
use crate::workspace::DiskSource;

/// Time that a turn may take to give way when its session is stopped.
const INTERRUPT_MAX: Duration = Duration::from_secs(10);

impl Sessions {
    /// Stops taking messages. The turn that runs goes on to its end; the sandbox stays for as long
    /// as there is room.
    ///
    /// # Errors
    /// When there is no such session, or it has ended.
    pub async fn pause(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let inner = self.ready()?;
        let entry = inner.acquire(tenant, id).await?;
        match entry.session_state() {
            SessionState::Ended => return Err(SessionError::Ended),
            SessionState::Active => {
                inner.leave(&entry, SessionState::Paused, "paused");
                inner.directory.check_left(&entry)?;
                if let Some(body) = entry.body()
                    && let Some(gate) = body.gate.lock().await.as_ref()
                {
                    gate.rest();
                }
            }
            // There is nothing that it could stop.
            SessionState::Starting
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Error => {}
        }
        Ok(inner.directory.view(&entry))
    }

    /// Stops taking messages, gives up the turn that runs, and ends the sandbox. The files go to
    /// the object store, and any server may resume the session.
    ///
    /// # Errors
    /// When there is no such session, it has ended, or its files cannot be stored: it is stopped
    /// then, and its files are on this server.
    pub async fn stop(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let inner = Arc::clone(self.ready()?);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            let (entry, _transition) = inner.hold(&tenant, &id).await?;
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            inner.leave(&entry, SessionState::Stopped, "stopped");
            inner.quiet(&entry).await;
            if let Some(body) = entry.body() {
                inner.put_down(&entry, &body).await;
            }
            inner.disk_archive.store_files(&entry).await?;
            let view = inner.directory.view(&entry);
            inner.directory.let_go(&entry, None).await?;
            Ok(view)
        })
        .await
    }

    /// Takes messages again. Brings the sandbox back when it is gone.
    ///
    /// # Errors
    /// `Ended` when it has; `Capacity` when there is no room, `TooMany` when the tenant has its
    /// share.
    pub async fn resume(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let (session, _at_work) = self.resume_held(tenant, id).await?;
        Ok(session)
    }

    /// Resumes for a caller that goes on to work with the sandbox: it is not given up for others in
    /// between.
    ///
    /// # Errors
    /// See [`Sessions::resume`].
    pub async fn resume_held(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<(api::SessionView, SandboxGuard), SessionError> {
        let inner = self.ready()?;
        let began = clock::now();
        let entry = inner.acquire(tenant, id).await?;
        // A sandbox that is there needs no transition, only the state changes; but one that
        // somebody is just about to end does.
        if entry.transition.try_lock().is_ok()
            && let Some(at_work) = inner.resume_warm(&entry, began).await?
        {
            return Ok((inner.directory.view(&entry), SandboxGuard::new(inner, at_work)));
        }
        let inner = Arc::clone(inner);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            let (entry, _transition) = inner.hold(&tenant, &id).await?;
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            // Whoever had the transition may have left the sandbox as it was: who pauses it, or
            // copies its files.
            if let Some(at_work) = inner.resume_warm(&entry, began).await? {
                return Ok((inner.directory.view(&entry), SandboxGuard::new(&inner, at_work)));
            }
            // What it is started with, too: a session whose credential is gone cannot come back.
            let made = tokio::join!(inner.bring_up(&entry), inner.launcher.launch(&entry));
            let (source, at_work) = match made {
                (Ok(made), Ok(_)) => made,
                // There may be room in a moment, and nothing is wrong with the session.
                (Err(error @ (SessionError::Capacity | SessionError::TooMany(_))), _) => {
                    return Err(error);
                }
                (Err(error), _) | (_, Err(error)) => {
                    if let Some(body) = entry.body() {
                        inner.put_down(&entry, &body).await;
                    }
                    inner.fail(&entry, &error);
                    return Err(error);
                }
            };
            inner.enter(&entry, "resumed");
            inner.go_on_waiting(&at_work);
            inner.launcher.start_in_background(&entry, &at_work.body);
            let path = match source {
                DiskSource::Fresh | DiskSource::Local => TimedOperation::ResumeLocal,
                DiskSource::Remote => TimedOperation::ResumeRemote,
            };
            inner.metrics.took(path, clock::now().duration_since(began));
            Ok((inner.directory.view(&entry), SandboxGuard::new(&inner, at_work)))
        })
        .await
    }

    /// Ends a session for ever: its turn, its processes, its files.
    ///
    /// # Errors
    /// When there is no such session. One that has ended ends again without complaint.
    pub async fn end(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let inner = Arc::clone(self.ready()?);
        let (of, which) = (tenant.to_owned(), id.to_owned());
        let ended = detached(async move {
            let (entry, _transition) = inner.hold_for(&of, &which, SessionUse::End).await?;
            inner.finish(&entry, "ended").await?;
            Ok(inner.directory.view(&entry))
        });
        match ended.await {
            Err(SessionError::Ended) => self.get(tenant, id).await,
            other => other,
        }
    }

    /// Changes what a session is told and found by. It is durable when this returns.
    ///
    /// # Errors
    /// What is wrong with the request; when there is no such session, or it has ended.
    pub async fn update(
        &self,
        tenant: &str,
        id: &str,
        update: SessionUpdate,
    ) -> Result<api::SessionView, SessionError> {
        let inner = self.ready()?;
        update.check()?;
        if inner.directory.here(tenant, id).is_none() {
            let _loading = inner.directory.loading(id).lock().await;
            let row = inner.directory.row(tenant, id).await?;
            // Whoever owns it elsewhere has the truth of it in memory.
            let is_ours = row.owner.is_none_or(|owner| owner == inner.cluster.run().id);
            if inner.directory.here(tenant, id).is_none() && is_ours {
                let (server, is_node) =
                    (inner.cluster.run().id.clone(), inner.cluster.is_in_cluster());
                let change = move |row: &mut SessionRow| match &row.owner {
                    // Just now.
                    Some(owner) if *owner != server => {
                        Err(SessionError::OnAnotherServer { is_node })
                    }
                    Some(_) | None => update.apply(row),
                };
                let row = inner.store.modify(tenant, id, change).await?;
                inner.books.changes().publish(id);
                return Ok(shown(row));
            }
        }
        if let Some(grants) = &update.grants {
            inner.gates.opening(id, tenant, grants)?;
        }
        let inner = Arc::clone(inner);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            loop {
                let entry = inner.acquire(&tenant, &id).await?;
                if inner.change(&entry, &update).await? {
                    return Ok(inner.directory.view(&entry));
                }
            }
        })
        .await
    }

    /// When something happens to a session by itself, or never.
    ///
    /// # Errors
    /// When there is no such session, or it has ended.
    pub async fn set_deadline(
        &self,
        tenant: &str,
        id: &str,
        at_ms: Option<u64>,
        action: DeadlineAction,
    ) -> Result<(), SessionError> {
        let inner = self.ready()?;
        let entry = inner.acquire(tenant, id).await?;
        let changes_action = {
            let mut state = entry.state.lock();
            if state.left {
                return Err(inner.cluster.on_another_server());
            }
            if state.row.state == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            state.row.deadline_ms = at_ms;
            let changes = state.row.on_deadline != action.into();
            state.row.on_deadline = action.into();
            changes
        };
        if changes_action {
            inner.directory.save(&entry).await?;
        } else {
            inner.directory.mark(&entry);
        }
        inner.sweeps.deadline(&entry.id, at_ms);
        Ok(())
    }
}

impl SessionsInner {
    /// Changes a session that is here. False when it was let go just now.
    ///
    /// Sockets are there before anything is changed: when one cannot be had, the session is as it
    /// was, and what it has is what is said of it.
    async fn change(
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
                // Programs that start from now on have another environment.
                state.launch = None;
            }
        }
        let saved = self.directory.save(entry).await;
        let Some(grants) = &update.grants else { return saved.map(|()| true) };
        // Also when it is not durable: it is what this server says of the session.
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

    /// A session with its transition, for as long as the guard is kept.
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
            let transition = Arc::clone(&entry.transition).lock_owned().await;
            // Whoever had it before may have let the session go.
            if !entry.is_left() {
                return Ok((entry, transition));
            }
        }
    }

    /// A session takes no messages any more. What waits for its turn is told so; the turn that runs
    /// is not touched.
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

    /// A session takes messages.
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

    fn fail(self: &Arc<Self>, entry: &Arc<SessionEntry>, error: &SessionError) {
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

    /// Waits until nothing works with a session's sandbox that could be asked to stop: its turn.
    async fn quiet(&self, entry: &Arc<SessionEntry>) {
        let turn = entry.state.lock().turns.stop_current();
        if let Some(turn) = turn
            && time::timeout(INTERRUPT_MAX, turn.over()).await.is_err()
        {
            tracing::info!(session = %entry.id, "a turn did not give way in time");
        }
    }

    /// Ends the sandbox of a session that nobody works with: it is paused, and its disk stays here.
    pub(super) async fn rest(self: &Arc<Self>, id: &str, reason: &str) {
        let Some(entry) = self.directory.known(id) else { return };
        let Some(chosen) = entry.body() else { return };
        let _transition = tokio::select! {
            transition = entry.transition.lock() => transition,
            // Who holds it has ended the sandbox already, and may be waiting for a place: for the
            // very one that is to become free here.
            _reason = chosen.ended() => return,
        };
        let Some(body) = entry.body() else { return };
        // It may have come back since it was chosen.
        if !self.books.is_cold(&entry.key) {
            return;
        }
        if entry.session_state() == SessionState::Active {
            self.leave(&entry, SessionState::Paused, reason);
        }
        self.put_down(&entry, &body).await;
        if self.is_shared {
            // Another server goes on with what is in the object store when this one is lost. Not
            // while somebody waits for the place.
            let (inner, entry) = (Arc::clone(self), Arc::clone(&entry));
            node::task::spawn(async move { inner.store_rested(&entry).await });
        }
    }

    /// Brings the files of a session that rests to the object store.
    async fn store_rested(&self, entry: &Arc<SessionEntry>) {
        let _transition = entry.transition.lock().await;
        // One that was left is another server's by now, with its files.
        let is_ended = entry.session_state() == SessionState::Ended;
        if is_ended || entry.body().is_some() || entry.is_left() {
            return;
        }
        if let Err(error) = self.disk_archive.store_files(entry).await {
            tracing::warn!(session = %entry.id, error = &error as &dyn std::error::Error,
                "the files of a session are on this server alone");
        }
    }

    /// Ends the sandbox of a session that may be at work: its turn is interrupted first.
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

    /// Has a session go on with the sandbox that is there. None when there is none, or when it is
    /// on its way out.
    async fn resume_warm(
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

    /// Pauses a session that may be at work, and has its programs stand still: its turn gives way
    /// first. They go on when it is resumed, unless somebody has needed their room by then.
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
        // A sandbox that ends meanwhile is as still.
        if let Err(error) = body.freeze().await {
            tracing::debug!(session = %entry.id, %error, "a paused session was not frozen");
        }
    }

    /// Moves the disk of a cold session from this server to the object store.
    pub(super) async fn archive(self: &Arc<Self>, id: &str) {
        if let Err(error) = self.try_archive(id).await {
            tracing::warn!(
                session = id,
                error = &error as &dyn std::error::Error,
                "a cold session could not be moved to the object store"
            );
            // It is kept, and tried again.
            let tenant = self.directory.known(id).map(|entry| Arc::clone(&entry.tenant));
            self.books.keep_cold(&id.into(), &tenant.unwrap_or_default(), clock::now());
        }
    }

    async fn try_archive(self: &Arc<Self>, id: &str) -> Result<(), SessionError> {
        let Some(row) = self.store.session_of_anybody(id).await? else { return Ok(()) };
        let (entry, _transition) = match self.hold(&row.tenant, id).await {
            // Another server has it, or nobody will want it again.
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
                return Ok(());
            }
            other => other?,
        };
        if entry.body().is_some() || self.books.state(&entry.key).is_some() {
            return Ok(());
        }
        self.disk_archive.store_files(&entry).await?;
        let disk = {
            let mut state = entry.state.lock();
            state.row.disk_server = None;
            state.row.disk.clone()
        };
        self.directory.save(&entry).await?;
        if let Some(disk) = disk {
            // Before anybody can bring it up again: he would lose it from under him.
            self.workspaces.remove_local(&disk).await;
        }
        self.directory.let_go(&entry, None).await?;
        self.metrics.count(SandboxEvent::SweptCold);
        Ok(())
    }

    /// Ends a session for ever. The caller holds its transition.
    pub(super) async fn finish(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        reason: &str,
    ) -> Result<(), SessionError> {
        if entry.session_state() == SessionState::Ended {
            return Ok(());
        }
        self.leave(entry, SessionState::Ended, reason);
        // Nobody waits for what it does: a turn ends with its sandbox.
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
        // What its last turn had stored comes before it is removed.
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
        // Who listens is told that nothing more comes.
        entry.log.close();
        self.books.remove(&ResidentKey::Session(Arc::clone(&entry.id)));
        self.disk_archive.remove_disks(disk.as_deref(), manifest.as_deref()).await;
        if let Some(manifest) = &manifest {
            self.cluster.announce_stored(&entry.id, manifest);
        }
        self.attachments.remove_all(&entry.tenant, &entry.id).await?;
        // The layers that it stood on may be nobody's now.
        self.sweeps.layers();
        Ok(())
    }
}
