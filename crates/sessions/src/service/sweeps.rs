//! Background work: deadlines, idle sessions, cold disks, unused layers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::SessionState;
use futures_util::StreamExt as _;
use futures_util::stream;
use node::clock;
use node::current::CurrentSettings;
use tokio::sync::mpsc;
use tokio::time;

use super::books::ResidentLedger;
use super::cluster::ClusterPlace;
use super::directory::{SessionDirectory, SessionUse};
use super::disk_archive::DiskArchive;
use super::entry::SessionEntry;
use super::lifecycle::SessionLifecycle;
use super::objects::SessionObjects;
use super::shared::SharedParts;
use super::sweeps::timers::SweepTimers;
use super::templates::TemplateService;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::events::{LossReason, LostSession};
use crate::metrics::{SandboxEvent, SessionCounters};
use crate::store::SessionStore;
use crate::store::rows::OnDeadline;
use crate::workspace::WorkspaceStore;

pub(super) mod timers;

/// Interval of the search for idle and cold sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Interval at which unused sessions are dropped from memory, and other nodes are notified of files
/// that they do not know of yet.
const FORGET_EVERY: Duration = Duration::from_secs(10);
/// Sandboxes that a sweep ends concurrently.
pub(super) const SWEEPS_MAX: usize = 16;
/// Expired sessions handled in one round.
const DUE_MAX: usize = 100;
/// Interval of the search for sessions that ended long ago, and maximum number removed in one
/// round.
const REMOVE_EVERY: Duration = Duration::from_secs(60);
const REMOVED_MAX: usize = 200;
/// Layers removed in one round, and their minimum age: the creator of a newer layer may not have
/// recorded its users yet.
const LAYERS_MAX: usize = 100;
const LAYER_AGE: Duration = Duration::from_secs(5 * 60);

/// Background work: deadlines, idleness, cold disks and unused objects.
pub(crate) struct SessionSweeper {
    config: CurrentSettings<SessionsConfig>,
    store: SessionStore,
    workspaces: WorkspaceStore,
    objects: SessionObjects,
    directory: Arc<SessionDirectory>,
    cluster: Arc<ClusterPlace>,
    books: Arc<ResidentLedger>,
    metrics: Arc<SessionCounters>,
    sweeps: Arc<SweepTimers>,
    lifecycle: Arc<SessionLifecycle>,
    templates: Arc<TemplateService>,
    disk_archive: Arc<DiskArchive>,
}

impl SessionSweeper {
    pub(super) fn new(
        shared: &SharedParts,
        lifecycle: Arc<SessionLifecycle>,
        templates: Arc<TemplateService>,
        disk_archive: Arc<DiskArchive>,
    ) -> Arc<SessionSweeper> {
        Arc::new(SessionSweeper {
            config: shared.config.clone(),
            store: shared.store.clone(),
            workspaces: shared.workspaces.clone(),
            objects: shared.objects.clone(),
            directory: Arc::clone(&shared.directory),
            cluster: Arc::clone(&shared.cluster),
            books: Arc::clone(&shared.books),
            metrics: Arc::clone(&shared.metrics),
            sweeps: Arc::clone(&shared.sweeps),
            lifecycle,
            templates,
            disk_archive,
        })
    }

    pub(super) async fn keep_deadlines(self: &Arc<Self>) {
        loop {
            match self.sweeps.due(self.store.now_ms()) {
                Ok(session) => {
                    let sweeper = Arc::clone(self);
                    node::task::spawn(async move { sweeper.deadline_came(&session).await });
                }
                Err(Some(wait)) => {
                    let sooner = self.sweeps.sooner.notified();
                    // Wakes at the deadline or when an earlier one is set; then looks again.
                    drop(time::timeout(wait, sooner).await);
                }
                Err(None) => self.sweeps.sooner.notified().await,
            }
        }
    }

    async fn deadline_came(self: &Arc<Self>, session: &str) {
        let Some(entry) = self.directory.known(session) else { return };
        let action = {
            let mut state = entry.state.lock();
            // The deadline was changed meanwhile.
            if state.row.deadline_ms.is_none_or(|at| at > self.store.now_ms()) {
                return;
            }
            state.row.deadline_ms = None;
            state.row.on_deadline
        };
        match action {
            OnDeadline::Kill => {
                let held = self.lifecycle.hold_for(&entry.tenant, session, SessionUse::End).await;
                let finished = match held {
                    Ok((entry, _transition)) => {
                        self.lifecycle.finish(&entry, "its time was up").await
                    }
                    Err(SessionError::Ended) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = finished {
                    tracing::warn!(
                        session,
                        error = &error as &dyn std::error::Error,
                        "failed to end an expired session"
                    );
                }
            }
            OnDeadline::Pause => {
                // Written even if the session is paused already; otherwise it would be found due
                // again and again.
                self.directory.mark(&entry);
                self.lifecycle.freeze_now(&entry, "its time was up").await;
            }
            OnDeadline::Rest => {
                self.directory.mark(&entry);
                self.lifecycle.rest_now(&entry, "its time was up").await;
            }
        }
    }

    pub(super) async fn sweep(self: &Arc<Self>) {
        let mut rounds: u32 = 0;
        let every = |interval: Duration| {
            u32::try_from(interval.as_secs() / SWEEP_EVERY.as_secs()).unwrap_or(1)
        };
        loop {
            time::sleep(SWEEP_EVERY).await;
            self.sweep_idle().await;
            self.sweep_cold().await;
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(every(REMOVE_EVERY)) {
                self.remove_ended().await;
                self.sweep_templates().await;
            }
            if rounds.is_multiple_of(every(FORGET_EVERY)) {
                self.forget_cold().await;
                self.cluster.announce_again(&self.directory.all());
                self.detach_unused_layers().await;
                self.sweep_due().await;
                if self.sweeps.layers.load(Ordering::Relaxed) {
                    self.sweep_layers().await;
                }
            }
        }
    }

    async fn detach_unused_layers(&self) {
        if let Err(error) = self.workspaces.detach_unused().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "failed to detach unused layers");
        }
    }

    /// Ends builds of lost servers, and removes archives that have been unused for long.
    async fn sweep_templates(&self) {
        let swept = async {
            self.templates.end_lost_builds(false).await?;
            self.templates.archives().remove_unused().await
        };
        if let Err(error) = swept.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "builds and archives of templates could not be looked through"
            );
        }
    }

    /// Ends the sandboxes of sessions that have been idle for too long.
    async fn sweep_idle(self: &Arc<Self>) {
        let now = clock::now();
        let usual = Duration::from_secs(self.config.now().idle_s.into());
        let mut taken = self.books.idle_but(now, usual, &self.patient(usual));
        for entry in self.idle(usual) {
            let Some(body) = entry.body() else { continue };
            if self.books.take_idle(&entry.key, &body.uses, now) {
                taken.push(Arc::clone(&entry.id));
            }
        }
        self.for_each(taken, |sweeper, id| async move {
            sweeper.metrics.count(SandboxEvent::SweptIdle);
            sweeper.lifecycle.rest(&id, "it was idle").await;
        })
        .await;
    }

    /// Returns sessions whose own idle time is longer than usual, which the ledger does not know.
    fn patient(&self, usual: Duration) -> HashSet<Arc<str>> {
        let usual_s = usual.as_secs();
        let patient = self.directory.choose(|entry| {
            let own = entry.state.lock().row.idle_s;
            own.is_some_and(|own| u64::from(own) > usual_s).then(|| Arc::clone(&entry.id))
        });
        patient.into_iter().collect()
    }

    /// Returns sessions whose sandboxes have been idle for their allowed time, never used ones
    /// included. Some may be at work by now: the ledger decides.
    fn idle(&self, usual: Duration) -> Vec<Arc<SessionEntry>> {
        self.directory.choose(|entry| entry.is_idle(usual).then(|| Arc::clone(entry)))
    }

    /// Moves the disks of sessions that have been cold for long to the object store.
    async fn sweep_cold(self: &Arc<Self>) {
        let cold = Duration::from_secs(self.config.now().cold_s.into());
        let taken = self.books.cold_before(clock::now(), cold);
        self.for_each(taken, |sweeper, id| async move { sweeper.lifecycle.archive(&id).await })
            .await;
    }

    async fn for_each<F: Future<Output = ()>>(
        self: &Arc<Self>,
        sessions: Vec<Arc<str>>,
        work: impl Fn(Arc<SessionSweeper>, Arc<str>) -> F,
    ) {
        let works = sessions.into_iter().map(|id| work(Arc::clone(self), id));
        stream::iter(works).buffer_unordered(SWEEPS_MAX).collect::<()>().await;
    }

    /// Handles expired sessions that no server has in memory; their owner may be lost.
    async fn sweep_due(self: &Arc<Self>) {
        let due = match self.store.sessions_due(self.store.now_ms(), DUE_MAX).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to look for expired sessions"
                );
                return;
            }
        };
        for row in due {
            if row.state == SessionState::Ended || self.directory.known(&row.id).is_some() {
                continue;
            }
            let purpose = match row.on_deadline {
                OnDeadline::Kill => SessionUse::End,
                OnDeadline::Pause | OnDeadline::Rest => SessionUse::Work,
            };
            // If another live server owns the session, that server handles the deadline.
            if self.lifecycle.acquire_for(&row.tenant, &row.id, purpose).await.is_ok() {
                self.deadline_came(&row.id).await;
            }
        }
    }

    /// Drops unused sessions from memory; their rows contain everything.
    async fn forget_cold(&self) {
        let cold = self.directory.choose(|entry| entry.body().is_none().then(|| Arc::clone(entry)));
        for entry in cold {
            let _loading = self.directory.loading(&entry.id).lock().await;
            if entry.transition.try_lock().is_err() || entry.log.settle().await.is_err() {
                continue;
            }
            self.directory.forget(&entry);
        }
    }

    /// Removes sessions that ended long ago, with any remains that a server left when it crashed
    /// while ending them.
    async fn remove_ended(&self) {
        let keep_ms = u64::from(self.config.now().keep_ended_s).saturating_mul(1000);
        let before_ms = self.store.now_ms().saturating_sub(keep_ms);
        let removed = async {
            for row in self.store.sessions_ended(before_ms, REMOVED_MAX).await? {
                if self.directory.known(&row.id).is_some() {
                    // Dropped from memory first.
                    continue;
                }
                self.disk_archive.remove_disks(row.disk.as_deref(), row.manifest.as_deref()).await;
                for object in self.store.remove_session(&row.tenant, &row.id).await? {
                    self.objects.remove(&object).await;
                }
                self.sweeps.layers();
            }
            Ok::<_, SessionError>(())
        };
        if let Err(error) = removed.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "sessions that ended long ago could not be removed"
            );
        }
    }

    /// Removes layers without users.
    async fn sweep_layers(&self) {
        let age_ms = u64::try_from(LAYER_AGE.as_millis()).unwrap_or(u64::MAX);
        let before_ms = self.store.now_ms().saturating_sub(age_ms);
        match self.store.layers.take_unused(before_ms, LAYERS_MAX).await {
            Ok(layers) => {
                for layer in layers {
                    self.workspaces.remove_layer(&layer).await;
                }
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "unused layers could not be looked for"
            ),
        }
    }

    /// Keeps prepared disks in stock.
    pub(super) async fn make_disks(&self) {
        loop {
            match self.workspaces.replenish().await {
                Ok(true) => {}
                Ok(false) => self.sweeps.disks.notified().await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "failed to prepare a disk"
                    );
                    time::sleep(SWEEP_EVERY).await;
                }
            }
        }
    }

    /// Ends the local remains of sessions that another server owns now.
    pub(super) async fn heed_losses(
        self: &Arc<Self>,
        lost: Option<mpsc::UnboundedReceiver<LostSession>>,
    ) {
        let Some(mut lost) = lost else { return };
        while let Some(LostSession { session, epoch, why }) = lost.recv().await {
            let Some(entry) = self.directory.known(&session) else { continue };
            if entry.state.lock().row.epoch != epoch {
                continue;
            }
            if let LossReason::Refused(error) = why {
                tracing::error!(
                    session,
                    error = &error as &dyn std::error::Error,
                    "failed to store a session; it is abandoned"
                );
            }
            let sweeper = Arc::clone(self);
            node::task::spawn(async move { sweeper.lifecycle.give_up(&entry).await });
        }
    }
}

impl SessionEntry {
    /// Returns whether its sandbox has been idle for its allowed time.
    fn is_idle(&self, usual: Duration) -> bool {
        let (own, body) = {
            let state = self.state.lock();
            (state.row.idle_s, state.body.clone())
        };
        let Some(body) = body else { return false };
        let idle = own.map_or(usual, |own| Duration::from_secs(own.into()));
        let waited = clock::wall_ms().saturating_sub(body.used_ms.load(Ordering::Relaxed));
        Duration::from_millis(waited) >= idle
    }
}
