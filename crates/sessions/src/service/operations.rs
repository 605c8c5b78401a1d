//! Sessions that callers make, and changes of their states that callers ask for.

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

/// Error of a stop that was overtaken.
const RESUMED_MEANWHILE: &str = "the session was resumed before its files were in the object store";

impl Sessions {
    /// A new session.
    ///
    /// # Errors
    /// What is wrong with the request; `NotFound` for its agent, snapshot or credential;
    /// `Capacity` when there is no room.
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

    /// Makes a session for a face whose sandboxes are at work from the beginning: the caller has
    /// the sandbox before anybody else could take its place.
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

    /// Makes copies of a session: its files, its conversation and its settings. They are active.
    ///
    /// # Errors
    /// If there is no such session, it has ended, or there is no room for all: none is left then.
    pub async fn fork(
        &self,
        tenant: &str,
        id: &str,
        count: usize,
    ) -> Result<Vec<api::SessionView>, SessionError> {
        let extras = (0..count).map(|_| CreateExtras::default()).collect();
        self.fork_as(tenant, id, extras).await
    }

    /// Makes copies of a session for a face, one for each of `extras`.
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

    /// Makes copies for a face whose sandboxes are at work from the beginning.
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

    /// Stops taking messages. The turn that runs goes on to its end; the sandbox stays for as long
    /// as there is room.
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
            // There is nothing that it could stop.
            SessionState::Starting
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Error => {}
        }
        Ok(inner.directory.view(&entry))
    }

    /// Stops taking messages, gives up the turn that runs, and ends the sandbox. The files go to
    /// the object store, and any server may resume the session; where there is no other one and the
    /// object store is a directory of this server's, they stay on this server's disk.
    ///
    /// # Errors
    /// If there is no such session, it has ended, or its files cannot be stored: it is stopped
    /// then, and its files are on this server. When it is resumed before its files are stored: the
    /// one who resumes it does not wait for that, and has them from this server's disk.
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
                // In case that there is no room for its sandbox.
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
        let entry = inner.lifecycle.acquire(tenant, id).await?;
        // A sandbox that is there needs no transition, only the state changes; but one that
        // somebody is just about to end does.
        if entry.transition.try_lock().is_ok()
            && let Some(at_work) = inner.lifecycle.resume_warm(&entry, began).await?
        {
            return Ok((inner.directory.view(&entry), SandboxGuard::new(inner, at_work)));
        }
        let inner = Arc::clone(inner);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        detached(async move {
            // Its files are at hand while its stop is still storing them elsewhere.
            let resuming = entry.resumed.raise();
            let (entry, _transition) = inner.lifecycle.hold(&tenant, &id).await?;
            drop(resuming);
            if entry.session_state() == SessionState::Ended {
                return Err(SessionError::Ended);
            }
            // Whoever had the transition may have left the sandbox as it was: who pauses it, or
            // copies its files.
            if let Some(at_work) = inner.lifecycle.resume_warm(&entry, began).await? {
                return Ok((inner.directory.view(&entry), SandboxGuard::new(&inner, at_work)));
            }
            // What it is started with, too: a session whose credential is gone cannot come back.
            let made =
                tokio::join!(inner.lifecycle.bring_up(&entry), inner.launcher.launch(&entry));
            let (source, at_work) = match made {
                (Ok(made), Ok(_)) => made,
                // There may be room in a moment, and nothing is wrong with the session.
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

    /// Ends a session for ever: its turn, its processes, its files.
    ///
    /// # Errors
    /// If there is no such session. One that has ended ends again without complaint.
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
                let entry = inner.lifecycle.acquire(&tenant, &id).await?;
                if inner.lifecycle.change(&entry, &update).await? {
                    return Ok(inner.directory.view(&entry));
                }
            }
        })
        .await
    }

    /// When something happens to a session by itself, or never.
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

    /// The files of a session, whose sandbox is made when there is none. The session stays paused
    /// or stopped when it is.
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

    /// The sandbox of an active session.
    ///
    /// # Errors
    /// If there is no such session, it is not active, or there is no room.
    pub async fn sandbox(&self, tenant: &str, id: &str) -> Result<SandboxGuard, SessionError> {
        let inner = self.ready()?;
        let at_work = inner.lifecycle.active(tenant, id).await?;
        Ok(SandboxGuard::new(inner, at_work))
    }

    /// A key for a face, the same one on all servers that share what sessions seal secrets with.
    pub fn derived_key(&self, purpose: &str) -> Option<[u8; 32]> {
        self.supported().map(|inner| inner.secrets.derived_key(purpose))
    }
}
