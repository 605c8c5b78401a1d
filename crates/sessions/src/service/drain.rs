//! Hand-over of sessions to other nodes while this one drains.
//!
//! Idle sessions are handed over first, least recently used ones before others; a session in use
//! is not interrupted: it is handed over when its work ends. The files are uploaded to the object
//! store, and the row names the next owner, so that the next request finds it there. A session
//! whose requests overlap all the time gets a moment in which new ones wait. A failed hand-over is
//! retried, and the session stays this node's until it succeeds.

mod plan;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::SessionState;
use futures_util::{StreamExt as _, stream};
use node::clock;
use node::cluster::DrainProgress;
use parking_lot::Mutex;
use pool::residents::State;
use tokio::time;

use self::plan::{HandoverCandidate, HandoverPlan, RestSchedules};
use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::detached::detached;
use super::directory::{SessionDirectory, SessionUse};
use super::disk_archive::DiskArchive;
use super::entry::{SessionEntry, SessionSandbox};
use super::lifecycle::SessionLifecycle;
use super::parts::HandoverTerms;
use super::shared::SharedParts;
use crate::error::SessionError;
use crate::metrics::{SandboxEvent, SessionCounters};
use crate::store::SessionStore;

/// Sessions that are handed over at the same time.
const HANDOVERS_MAX: usize = 8;
/// Unused sessions examined in one round.
const LOOKED_MAX: usize = 500;
/// Interval of the search for sessions that have become idle.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause before a failed hand-over is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Reason of a session's change of node, for subscribers.
const HANDED_OVER: &str = "its node drains, and another node continues it";

/// Outcome of the hand-over of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandoverOutcome {
    /// The session does not belong to this server any more.
    Gone,
    /// The session is in use again.
    Busy,
    /// This server accepts work again.
    Undrained,
}

/// Sessions whose hand-over failed, and whether that was logged.
#[derive(Debug, Default)]
struct HandoverFailures {
    sessions: HashSet<String>,
    /// True if the failure was logged.
    is_told: bool,
}

impl HandoverFailures {
    fn note(&mut self, session: &str, error: &SessionError) {
        self.sessions.insert(session.to_owned());
        // Logged once, not for each session and attempt.
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                session,
                error = error as &dyn std::error::Error,
                "sessions cannot be handed over at present; they stay here, and it is tried again"
            );
        }
    }

    fn forget(&mut self, session: &str) {
        self.keep_only(|failed| failed != session);
    }

    /// Removes sessions that no longer need a hand-over.
    fn keep_only(&mut self, is_left: impl Fn(&str) -> bool) {
        self.sessions.retain(|session| is_left(session));
        if self.sessions.is_empty() && std::mem::replace(&mut self.is_told, false) {
            tracing::info!("sessions are handed over again");
        }
    }
}

/// A session whose new work waits. Dropping this lets the work begin.
struct ComingToRest<'a>(&'a SessionEntry);

impl ComingToRest<'_> {
    fn begin(entry: &SessionEntry) -> ComingToRest<'_> {
        entry.comes_to_rest.store(true, Ordering::Relaxed);
        ComingToRest(entry)
    }
}

impl Drop for ComingToRest<'_> {
    fn drop(&mut self) {
        self.0.comes_to_rest.store(false, Ordering::Relaxed);
    }
}

/// Hands sessions over to other nodes while this one drains.
pub(crate) struct SessionHandover {
    store: SessionStore,
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    lifecycle: Arc<SessionLifecycle>,
    disk_archive: Arc<DiskArchive>,
    terms: HandoverTerms,
    /// None while this node accepts work, and before the first round.
    progress: Mutex<Option<DrainProgress>>,
}

impl SessionHandover {
    pub(super) fn new(
        shared: &SharedParts,
        lifecycle: Arc<SessionLifecycle>,
        disk_archive: Arc<DiskArchive>,
        terms: HandoverTerms,
    ) -> Arc<SessionHandover> {
        Arc::new(SessionHandover {
            store: shared.store.clone(),
            cluster: Arc::clone(&shared.cluster),
            directory: Arc::clone(&shared.directory),
            books: Arc::clone(&shared.books),
            metrics: Arc::clone(&shared.metrics),
            lifecycle,
            disk_archive,
            terms,
            progress: Mutex::default(),
        })
    }

    /// Returns the progress of the drain; none while this server accepts work, and before the first
    /// round.
    pub(super) fn progress(&self) -> Option<DrainProgress> {
        *self.progress.lock()
    }

    fn note(&self, change: impl FnOnce(&mut DrainProgress)) {
        change(self.progress.lock().get_or_insert_default());
    }

    /// Hands sessions over while the operator drains this server.
    pub(super) async fn hand_over_while_draining(self: &Arc<Self>) {
        let mut takes_work = self.cluster.membership().takes_work();
        loop {
            if takes_work.wait_for(|takes| !*takes).await.is_err() {
                return std::future::pending().await;
            }
            tracing::info!("this server drains: its sessions are handed over to other ones");
            tokio::select! {
                () = self.hand_over_all() => {}
                _ = takes_work.wait_for(|takes| *takes) => {
                    tracing::info!("this server takes work again, and keeps the sessions it has");
                }
            }
            *self.progress.lock() = None;
            self.hang_up_terminals(false);
        }
    }

    async fn hand_over_all(self: &Arc<Self>) {
        let began = clock::now();
        let mut failures = HandoverFailures::default();
        let mut rests = RestSchedules::default();
        let mut was_empty = false;
        loop {
            let pause = match self.hand_over_some(&mut failures, &mut rests).await {
                Ok(()) if failures.sessions.is_empty() => LOOK_EVERY,
                Ok(()) => RETRY_PAUSE,
                Err(error) => {
                    // The error concerns no particular session.
                    failures.note("", &error);
                    RETRY_PAUSE
                }
            };
            let is_empty = self.progress.lock().is_some_and(|it| it.sessions == 0);
            if is_empty && !std::mem::replace(&mut was_empty, is_empty) {
                tracing::info!("this server drains, and has no sessions any more");
            }
            if clock::now().duration_since(began) >= self.terms.terminals {
                self.hang_up_terminals(true);
            }
            time::sleep(pause).await;
        }
    }

    /// Makes one pass over this server's sessions, and hands over those at rest.
    async fn hand_over_some(
        self: &Arc<Self>,
        failures: &mut HandoverFailures,
        rests: &mut RestSchedules,
    ) -> Result<(), SessionError> {
        self.cluster.check_lease()?;
        let (count, candidates) = self.handover_candidates(failures).await?;
        failures.keep_only(|failed| candidates.iter().any(|session| session.id == failed));
        let plan = HandoverPlan::new(candidates);
        self.note(|progress| {
            *progress = DrainProgress {
                sessions: count,
                busy: plan.busy,
                failed: u64::try_from(failures.sessions.len()).unwrap_or(u64::MAX),
                keeps_files: !self.terms.has_shared_objects,
            };
        });
        if !self.terms.has_shared_objects || !self.cluster.has_taker() {
            return Ok(());
        }
        let chosen = rests.choose(plan, HANDOVERS_MAX, clock::now());
        let handing = chosen.into_iter().map(|(session, patience)| async move {
            let given = self.hand_over_one(&session.tenant, &session.id, patience).await;
            (session.id, given)
        });
        let mut handing = stream::iter(handing).buffer_unordered(HANDOVERS_MAX);
        while let Some((session, given)) = handing.next().await {
            match given {
                Ok(HandoverOutcome::Gone) => {
                    failures.forget(&session);
                    self.note(|it| it.sessions = it.sessions.saturating_sub(1));
                }
                Ok(HandoverOutcome::Busy) => failures.forget(&session),
                Ok(HandoverOutcome::Undrained) => return Ok(()),
                // Hand-overs in progress finish; the other sessions keep their sandboxes.
                Err(error) => {
                    failures.note(&session, &error);
                    let failed = u64::try_from(failures.sessions.len()).unwrap_or(u64::MAX);
                    self.note(|it| it.failed = failed);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the number of this server's sessions, and those that may be handed over.
    async fn handover_candidates(
        &self,
        failures: &HandoverFailures,
    ) -> Result<(u64, Vec<HandoverCandidate>), SessionError> {
        let here = self.directory.all();
        let limit = LOOKED_MAX.saturating_add(here.len());
        let held = self.store.sessions_held(self.cluster.server(), limit).await?;
        let mut candidates: Vec<_> =
            here.iter().filter_map(|entry| self.handover_candidate(entry, failures)).collect();
        let known: HashSet<&str> = here.iter().map(|entry| &*entry.id).collect();
        let cold = held.oldest.into_iter().filter(|row| !known.contains(row.id.as_str()));
        candidates.extend(cold.map(|row| HandoverCandidate {
            has_failed: failures.sessions.contains(&row.id),
            id: row.id,
            tenant: row.tenant,
            used_ms: row.used_ms,
            is_busy: false,
            is_lasting: false,
        }));
        // A new session may have no row yet.
        let count = held.count.max(u64::try_from(candidates.len()).unwrap_or(u64::MAX));
        Ok((count, candidates))
    }

    fn handover_candidate(
        &self,
        entry: &SessionEntry,
        failures: &HandoverFailures,
    ) -> Option<HandoverCandidate> {
        let (used_ms, mut is_lasting) = {
            let state = entry.state.lock();
            if state.left || state.row.state == SessionState::Ended {
                return None;
            }
            // Sandboxes of compatible faces are at work for as long as they live.
            (state.row.last_active_ms, state.turns.current().is_some() || state.row.face.is_some())
        };
        is_lasting |= entry.body().is_some_and(|body| !body.terminals.list().is_empty());
        let doing = self.books.state(&entry.key);
        Some(HandoverCandidate {
            id: entry.id.to_string(),
            tenant: entry.tenant.to_string(),
            used_ms,
            is_busy: matches!(doing, Some(State::Running | State::Warming)),
            is_lasting,
            has_failed: failures.sessions.contains(&*entry.id),
        })
    }

    /// Hands a session over, unless it stays in use for longer than `patience`, during which new
    /// work waits. A hand-over in progress finishes even if the caller is cancelled.
    async fn hand_over_one(
        self: &Arc<Self>,
        tenant: &str,
        id: &str,
        patience: Duration,
    ) -> Result<HandoverOutcome, SessionError> {
        let handover = Arc::clone(self);
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        let handing = detached(async move {
            if *handover.cluster.membership().takes_work().borrow() {
                return Ok(HandoverOutcome::Undrained);
            }
            match handover.store_ahead(&id).await {
                // The session keeps its sandbox while the object store is unavailable.
                Err(error @ SessionError::Unavailable(_)) => return Err(error),
                // This server's own disk is full or failing, and may have no room for a copy; the
                // disk itself can be read once the sandbox has ended.
                Err(error) => tracing::info!(
                    session = id,
                    error = &error as &dyn std::error::Error,
                    "the files of a session cannot be copied while it has a sandbox"
                ),
                Ok(()) => {}
            }
            let held = handover.lifecycle.hold_for(&tenant, &id, SessionUse::End).await;
            let (entry, _transition) = match held {
                Ok(held) => held,
                Err(
                    SessionError::OnAnotherServer { .. }
                    | SessionError::NotFound(_)
                    | SessionError::Ended,
                ) => return Ok(HandoverOutcome::Gone),
                Err(error) => return Err(error),
            };
            if *handover.cluster.membership().takes_work().borrow() {
                return Ok(HandoverOutcome::Undrained);
            }
            handover.give_away(&entry, patience).await
        });
        handing.await
    }

    /// Uploads the files of a session while its sandbox is still in use: this leaves little to
    /// upload at the hand-over, and the session keeps its sandbox if the object store is
    /// unavailable.
    async fn store_ahead(&self, session: &str) -> Result<(), SessionError> {
        let Some(entry) = self.directory.known(session) else { return Ok(()) };
        let _storing = entry.storing.lock().await;
        match entry.body() {
            // If its sandbox is ending already, the ending task stores its later state after this.
            Some(body) if !entry.is_left() && !*body.frozen().borrow() && body.disk().is_some() => {
                self.disk_archive.store_living(&entry, &body).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Hands a session over to its next node. The caller holds its transition.
    async fn give_away(
        self: &Arc<Self>,
        entry: &Arc<SessionEntry>,
        patience: Duration,
    ) -> Result<HandoverOutcome, SessionError> {
        if entry.session_state() == SessionState::Ended {
            return Ok(HandoverOutcome::Gone);
        }
        let mut settled = None;
        if let Some(body) = entry.body() {
            // From here on no new work begins: it waits for the transition, and then looks the
            // session up again.
            let is_idle = self.take_rested(entry, &body, patience).await;
            if !is_idle && !self.books.is_cold(&entry.key) {
                return Ok(HandoverOutcome::Busy);
            }
            settled = self.lifecycle.put_down_to_store(entry, &body).await;
        }
        let with_files = {
            let row = &entry.state.lock().row;
            self.cluster.has_files_elsewhere(row).map(str::to_owned)
        };
        if with_files.is_none() {
            self.disk_archive.store_files(entry, settled.as_ref()).await?;
        }
        if entry.session_state() == SessionState::Active {
            self.lifecycle.tell(entry, SessionState::Active, HANDED_OVER);
        }
        let taker = with_files.or_else(|| self.cluster.taker(&entry.id));
        self.directory.let_go(entry, taker.as_deref()).await?;
        self.metrics.count(SandboxEvent::HandedOver);
        entry.handed_over.send_replace(true);
        tracing::debug!(session = %entry.id, taker, "a session was handed over");
        Ok(HandoverOutcome::Gone)
    }

    /// Takes an idle session, or one that becomes idle while new work waits.
    async fn take_rested(
        &self,
        entry: &SessionEntry,
        body: &SessionSandbox,
        patience: Duration,
    ) -> bool {
        if patience.is_zero() {
            return self.books.take_idle(&entry.key, &body.uses, clock::now());
        }
        let _resting = ComingToRest::begin(entry);
        self.books.take_rested(&entry.key, &body.uses, patience).await
    }

    fn hang_up_terminals(&self, hangs_up: bool) {
        for body in self.directory.choose(|entry| entry.body()) {
            body.terminals.hang_up(hangs_up);
        }
    }
}
