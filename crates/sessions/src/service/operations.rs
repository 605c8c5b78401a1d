//! Creating sessions, and state changes that callers request.

use std::sync::Arc;

use api::{CreateSession, SessionState};
use node::clock;

use super::create::{FirstUse, NewSession};
use super::detached::detached;
use super::directory::SessionUse;
use super::files::{SandboxGuard, SessionFiles};
use super::requests::{CreateExtras, DeadlineAction, SessionUpdate};
use super::sessions::Sessions;
use super::views::shown;
use crate::error::SessionError;
use crate::metrics::TimedOperation;
use crate::store::rows::SessionRow;
use crate::workspace::DiskSource;

/// Error of a stop that a resume has overtaken.
const RESUMED_MEANWHILE: &str = "the session was resumed before its files were in the object store";

impl Sessions {
    /// Creates a session.
    ///
    /// # Errors
    /// If the request is invalid; `NotFound` for its agent, snapshot or credential; `Capacity` if
    /// there is no room.
    pub async fn create(
        &self,
        tenant: &str,
        request: CreateSession,
    ) -> Result<api::SessionView, SessionError> {
        self.create_as(tenant, request, CreateExtras::default()).await
    }

    /// Creates a session for a face.
    ///
    /// # Errors
    /// See [`Sessions::create`].
    pub async fn create_as(
        &self,
        tenant: &str,
        request: CreateSession,
        extras: CreateExtras,
    ) -> Result<api::SessionView, SessionError> {
        let inner = self.ready()?;
        let creation = Arc::clone(&inner.creation);
        let new = NewSession::of(tenant, request, extras, FirstUse::Nobody);
        detached(async move { Ok(creation.create_new(new).await?.0) }).await
    }

    /// Creates a session for a face whose sandboxes are at work from the beginning: the sandbox
    /// cannot be evicted before the caller has it.
    ///
    /// # Errors
    /// See [`Sessions::create`].
    pub async fn create_held(
        &self,
        tenant: &str,
        request: CreateSession,
        extras: CreateExtras,
    ) -> Result<SandboxGuard, SessionError> {
        let inner = self.ready()?;
        let creation = Arc::clone(&inner.creation);
        let new = NewSession::of(tenant, request, extras, FirstUse::Caller);
        let created = detached(async move { creation.create_new(new).await }).await?;
        let guard = created.1.map(|at_work| SandboxGuard::new(inner, at_work));
        guard.ok_or_else(|| SessionError::internal("who creates it has it"))
    }

    /// Copies a session with its files, conversation and settings. The copies are active.
    ///
    /// # Errors
    /// If there is no such session, it has ended, or there is no room for all copies; then none is
    /// kept.
    pub async fn fork(
        &self,
        tenant: &str,
        id: &str,
        count: usize,
    ) -> Result<Vec<api::SessionView>, SessionError> {
        let extras = (0..count).map(|_| CreateExtras::default()).collect();
        self.fork_as(tenant, id, extras).await
    }

    /// Copies a session for a face, once for each of `extras`.
    ///
    /// # Errors
    /// See [`Sessions::fork`].
    pub async fn fork_as(
        &self,
        tenant: &str,
        id: &str,
        extras: Vec<CreateExtras>,
    ) -> Result<Vec<api::SessionView>, SessionError> {
        let made = self.ready()?.copies.fork_each(tenant, id, extras, FirstUse::Nobody).await?;
        Ok(made.into_iter().map(|(session, _)| session).collect())
    }

    /// Copies a session for a face whose sandboxes are at work from the beginning.
    ///
    /// # Errors
    /// See [`Sessions::fork`].
    pub async fn fork_held(
        &self,
        tenant: &str,
        id: &str,
        extras: Vec<CreateExtras>,
    ) -> Result<Vec<SandboxGuard>, SessionError> {
        let inner = self.ready()?;
        let made = inner.copies.fork_each(tenant, id, extras, FirstUse::Caller).await?;
        let at_work = made.into_iter().filter_map(|(_, at_work)| at_work);
        Ok(at_work.map(|at_work| SandboxGuard::new(inner, at_work)).collect())
    }

    /// Stops the session from accepting messages. The running turn finishes; the sandbox stays for
    /// as long as there is room.
    ///
    /// # Errors
    /// If there is no such session, or it has ended.
    pub async fn pause(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let inner = self.ready()?;
        let entry = inner.lifecycle.acquire(tenant, id).await?;
        match entry.session_state() {
            SessionState::Ended => return Err(SessionError::Ended),
            SessionState::Active => {
                inner.lifecycle.leave(&entry, SessionState::Paused, "paused");
                inner.directory.check_left(&entry)?;
                if let Some(body) = entry.body()
                    && let Some(gate) = body.gate.lock().await.as_ref()
                {
                    gate.rest();
                }
            }
            // In these states there is nothing to pause.
            SessionState::Starting
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Error => {}
        }
        Ok(inner.directory.view(&entry))
    }

    /// Stops the session: accepts no more messages, cancels the running turn, and ends the sandbox.
    /// The files are uploaded to the object store, and any server may resume the session; if this
    /// is the only server and the object store is a local directory, they stay on this server's
    /// disk.
    ///
    /// # Errors
    /// If there is no such session, it has ended, or its files cannot be stored: it is stopped
    /// then, and its files are on this server. Also if it is resumed before its files are stored,
    /// because the resume uses this server's disk without waiting.
    pub async fn stop(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let inner = Arc::clone(self.ready()?);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            let (entry, _transition) = inner.lifecycle.hold(&tenant, &id).await?;
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            inner.lifecycle.leave(&entry, SessionState::Stopped, "stopped");
            inner.lifecycle.quiet(&entry).await;
            let settled = match entry.body() {
                Some(body) => inner.lifecycle.put_down_to_store(&entry, &body).await,
                None => None,
            };
            if !inner.disk_archive.store_stopped(&entry, settled.as_ref()).await? {
                // The resume may find no room for its sandbox; the files are stored then.
                let (lifecycle, resumed) = (Arc::clone(&inner.lifecycle), Arc::clone(&entry));
                node::task::spawn(async move { lifecycle.store_rested(&resumed).await });
                return Err(SessionError::Conflict(RESUMED_MEANWHILE.to_owned()));
            }
            let view = inner.directory.view(&entry);
            inner.directory.let_go(&entry, None).await?;
            Ok(view)
        })
        .await
    }

    /// Accepts messages again. Restores the sandbox if it has ended.
    ///
    /// # Errors
    /// `Ended` if it has ended; `Capacity` if there is no room, `TooMany` if the tenant has used
    /// its share.
    pub async fn resume(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let (session, _at_work) = self.resume_held(tenant, id).await?;
        Ok(session)
    }

    /// Resumes a session for a caller that uses the sandbox next; the sandbox is not evicted in
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
        let entry = inner.lifecycle.acquire(tenant, id).await?;
        // A live sandbox needs no transition, only the state changes; but a transition in progress
        // may be about to end it.
        if entry.transition.try_lock().is_ok()
            && let Some(at_work) = inner.lifecycle.resume_warm(&entry, began).await?
        {
            return Ok((inner.directory.view(&entry), SandboxGuard::new(inner, at_work)));
        }
        let inner = Arc::clone(inner);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            // The files are on this disk, so the resume need not wait for a stop that is still
            // storing them.
            let resuming = entry.resumed.raise();
            let (entry, _transition) = inner.lifecycle.hold(&tenant, &id).await?;
            drop(resuming);
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            // The previous holder of the transition may have kept the sandbox, such as a pause or a
            // copy of its files.
            if let Some(at_work) = inner.lifecycle.resume_warm(&entry, began).await? {
                return Ok((inner.directory.view(&entry), SandboxGuard::new(&inner, at_work)));
            }
            // Checked as well, because a session whose credential is gone cannot be resumed.
            let made =
                tokio::join!(inner.lifecycle.bring_up(&entry), inner.launcher.launch(&entry));
            let (source, at_work) = match made {
                (Ok(made), Ok(_)) => made,
                // A temporary lack of room, not an error of the session.
                (Err(error @ (SessionError::Capacity | SessionError::TooMany(_))), _) => {
                    return Err(error);
                }
                (Err(error), _) | (_, Err(error)) => {
                    if let Some(body) = entry.body() {
                        inner.lifecycle.put_down(&entry, &body).await;
                    }
                    inner.lifecycle.fail(&entry, &error);
                    return Err(error);
                }
            };
            inner.lifecycle.enter(&entry, "resumed");
            inner.lifecycle.go_on_waiting(&at_work);
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

    /// Ends a session for good: its turn, its processes and its files.
    ///
    /// # Errors
    /// If there is no such session. Ending an ended session succeeds.
    pub async fn end(&self, tenant: &str, id: &str) -> Result<api::SessionView, SessionError> {
        let inner = Arc::clone(self.ready()?);
        let (of, which) = (tenant.to_owned(), id.to_owned());
        let ended = detached(async move {
            let (entry, _transition) =
                inner.lifecycle.hold_for(&of, &which, SessionUse::End).await?;
            inner.lifecycle.finish(&entry, "ended").await?;
            Ok(inner.directory.view(&entry))
        });
        match ended.await {
            Err(SessionError::Ended) => self.queries()?.get(tenant, id).await,
            other => other,
        }
    }

    /// Changes a session's settings and metadata. The change is durable when this returns.
    ///
    /// # Errors
    /// If the request is invalid, there is no such session, or it has ended.
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
            // Another owner has newer state in memory.
            let is_ours = row.owner.is_none_or(|owner| owner == inner.cluster.run().id);
            if inner.directory.here(tenant, id).is_none() && is_ours {
                let (server, is_node) =
                    (inner.cluster.run().id.clone(), inner.cluster.is_in_cluster());
                let change = move |row: &mut SessionRow| match &row.owner {
                    // Claimed just now.
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
                let entry = inner.lifecycle.acquire(&tenant, &id).await?;
                if inner.lifecycle.change(&entry, &update).await? {
                    return Ok(inner.directory.view(&entry));
                }
            }
        })
        .await
    }

    /// Sets or clears the time at which `action` is applied to a session.
    ///
    /// # Errors
    /// If there is no such session, or it has ended.
    pub async fn set_deadline(
        &self,
        tenant: &str,
        id: &str,
        at_ms: Option<u64>,
        action: DeadlineAction,
    ) -> Result<(), SessionError> {
        let inner = self.ready()?;
        let entry = inner.lifecycle.acquire(tenant, id).await?;
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

    /// Returns the files of a session; starts a sandbox if it has none. A paused or stopped session
    /// keeps its state.
    ///
    /// # Errors
    /// If there is no such session, it has ended, or there is no room.
    pub async fn files(&self, tenant: &str, id: &str) -> Result<SessionFiles, SessionError> {
        let inner = self.ready()?;
        let entry = inner.lifecycle.acquire(tenant, id).await?;
        let at_work = inner.lifecycle.with_body(&entry).await?;
        let files = at_work.body.sandbox()?.files().await?;
        Ok(SessionFiles::new(files, at_work))
    }

    /// Returns the sandbox of an active session.
    ///
    /// # Errors
    /// If there is no such session, it is not active, or there is no room.
    pub async fn sandbox(&self, tenant: &str, id: &str) -> Result<SandboxGuard, SessionError> {
        let inner = self.ready()?;
        let at_work = inner.lifecycle.active(tenant, id).await?;
        Ok(SandboxGuard::new(inner, at_work))
    }

    /// Derives a key for a face; it is the same on all servers that share the sessions' secret key.
    pub fn derived_key(&self, purpose: &str) -> Option<[u8; 32]> {
        self.supported().map(|inner| inner.secrets.derived_key(purpose))
    }
}
