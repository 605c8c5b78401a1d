//! Fence of a server whose lease is over: others may take its sessions over, so that neither its
//! requests nor its sandboxes do anything until it has its lease back, and has found out which
//! sessions are still its own.
//!
//! Sandboxes stand still meanwhile. Those of sessions that are still this server's go on where they
//! were; the others are ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::SessionState;
use node::cluster::{LeaseVerifier, ServingLease};
use tokio::time;

use super::directory::SessionDirectory;
use super::entry::{SessionEntry, SessionSandbox};
use super::{SandboxGuard, Sessions, SessionsInner};
use crate::error::SessionError;
use crate::metrics::SandboxEvent;
use crate::store::rows::SessionRow;

/// Interval at which sandboxes are looked for that have come up just when the lease ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before the store is asked again which sessions are this server's.
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// Time that the sockets of a lost session's grants may take to be closed.
const GATE_MAX: Duration = Duration::from_secs(1);

/// Right to answer for one session: asked at the entrance of a request, and for each piece of what
/// is answered. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionFence {
    directory: Arc<SessionDirectory>,
    serving: ServingLease,
    session: Option<Arc<str>>,
    /// Epoch at which this server had the session; none where it had not.
    epoch: Option<u64>,
    lapses: u64,
}

impl SessionFence {
    /// Returns whether the lease holds now.
    pub(crate) fn holds(&self) -> bool {
        self.serving.holds()
    }

    /// Returns whether what was begun before is still this server's to go on with, now that the
    /// lease holds.
    pub(crate) fn is_ours(&self) -> bool {
        if self.serving.lapses() == self.lapses {
            return true;
        }
        let Some(session) = &self.session else { return true };
        let epoch = self.directory.known(session).map(|entry| entry.state.lock().row.epoch);
        epoch.is_some() && epoch == self.epoch
    }

    /// Resolves when the lease does not hold.
    pub(crate) async fn ended(&self) {
        self.serving.ended().await;
    }

    /// Resolves when the lease holds: whether to go on then.
    pub(crate) async fn passes(&self) -> bool {
        self.serving.held().await;
        self.is_ours()
    }

    /// Returns whether another server may have what was begun before.
    pub(crate) fn is_lost(&self) -> bool {
        !self.holds() || !self.is_ours()
    }

    /// The right to answer for a session, or for none, from now on. None where nobody can take
    /// anything over.
    fn new(inner: &Arc<SessionsInner>, session: Option<&str>) -> Option<SessionFence> {
        let serving = inner.cluster.membership().serving().clone();
        if serving.is_unlimited() {
            return None;
        }
        // Before the look: a lapse in between is seen later.
        let lapses = serving.lapses();
        let epoch = session.and_then(|id| inner.directory.known(id));
        let epoch = epoch.map(|entry| entry.state.lock().row.epoch);
        let session = session.map(Arc::from);
        let directory = Arc::clone(&inner.directory);
        Some(SessionFence { directory, serving, session, epoch, lapses })
    }
}

impl Sessions {
    /// Begins to answer for a session, or for none. None where nobody can take anything over.
    ///
    /// # Errors
    /// When the lease of this server is over.
    pub(crate) fn fence(
        &self,
        session: Option<&str>,
    ) -> Result<Option<SessionFence>, SessionError> {
        let Some(inner) = self.supported() else { return Ok(None) };
        inner.cluster.check_lease()?;
        Ok(SessionFence::new(inner, session))
    }
}

impl SandboxGuard {
    /// The right to answer for its session. None where nobody can take it over.
    pub(crate) fn fence(&self) -> Option<SessionFence> {
        SessionFence::new(self.inner(), Some(self.session()))
    }
}

impl SessionsInner {
    /// Has sandboxes stand still while the lease is over.
    pub(super) async fn keep_fence(self: &Arc<Self>, verifier: Option<LeaseVerifier>) {
        let Some(mut verifier) = verifier else { return std::future::pending().await };
        let serving = self.cluster.membership().serving().clone();
        loop {
            serving.ended().await;
            tracing::warn!(
                "the lease of this server is over: sandboxes stand still until it has it back"
            );
            let mut still: Vec<Arc<SessionSandbox>> = Vec::new();
            while !serving.holds() {
                self.freeze_all(&mut still).await;
                let lapsed = time::timeout(LOOK_EVERY, verifier.lapsed()).await;
                let Ok(lapse) = lapsed else { continue };
                self.give_up_taken().await;
                verifier.verified(lapse);
            }
            self.thaw_all(&still).await;
            tracing::info!(
                sandboxes = still.len(),
                "this server has its lease back; its sandboxes go on"
            );
        }
    }

    /// Stops all sandboxes that do not stand still already.
    async fn freeze_all(&self, still: &mut Vec<Arc<SessionSandbox>>) {
        let bodies = self.directory.choose(|entry| entry.body());
        let is_new = |body: &Arc<SessionSandbox>| {
            !*body.frozen().borrow() && !still.iter().any(|it| Arc::ptr_eq(it, body))
        };
        let moving: Vec<_> = bodies.into_iter().filter(is_new).collect();
        let freezing = moving.iter().map(|body| async {
            // One that ends meanwhile is as still.
            match body.sandbox() {
                Ok(sandbox) => sandbox.freeze().await.is_ok(),
                Err(_) => false,
            }
        });
        let frozen = futures_util::future::join_all(freezing).await;
        for (body, is_frozen) in moving.into_iter().zip(frozen) {
            if is_frozen {
                self.metrics.count(SandboxEvent::Fenced);
                still.push(body);
            }
        }
    }

    /// Lets those go on that are still sandboxes of this server's sessions.
    async fn thaw_all(&self, still: &[Arc<SessionSandbox>]) {
        let bodies = self.directory.choose(|entry| entry.body());
        let goes_on = |body: &&Arc<SessionSandbox>| {
            // Not one that somebody has paused meanwhile.
            !*body.frozen().borrow() && still.iter().any(|it| Arc::ptr_eq(it, body))
        };
        let thawing = bodies.iter().filter(goes_on).map(|body| async {
            let Ok(sandbox) = body.sandbox() else { return };
            if let Err(error) = sandbox.thaw().await {
                tracing::debug!(%error, "a sandbox does not go on");
            }
        });
        futures_util::future::join_all(thawing).await;
    }

    /// Ends what is left here of sessions that others have taken over.
    async fn give_up_taken(self: &Arc<Self>) {
        loop {
            match self.taken_sessions().await {
                Ok(taken) => {
                    let giving_up = taken.iter().map(|entry| self.give_up(entry));
                    futures_util::future::join_all(giving_up).await;
                    return;
                }
                Err(error) => tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "which sessions are left to this server is not known"
                ),
            }
            time::sleep(ASK_PAUSE).await;
        }
    }

    /// Returns the sessions that are here and another server's by now.
    async fn taken_sessions(&self) -> Result<Vec<Arc<SessionEntry>>, SessionError> {
        let owned: HashMap<String, u64> =
            self.store.epochs_of_server(self.cluster.server()).await?;
        let here = self.directory.all();
        let mut taken = Vec::new();
        for entry in here {
            let epoch = entry.state.lock().row.epoch;
            if owned.get(&*entry.id) == Some(&epoch) {
                continue;
            }
            // It may have ended, or be removed. A store that has forgotten a claim gives its epoch
            // to the next one.
            let row = self.store.session_of_anybody(&entry.id).await?;
            let is_others = |owner: &str| owner != self.cluster.run().id;
            let is_taken =
                |row: SessionRow| row.epoch != epoch || row.owner.as_deref().is_some_and(is_others);
            if row.is_some_and(is_taken) {
                taken.push(entry);
            }
        }
        Ok(taken)
    }

    /// Ends what is left here of a session that is another server's now. When this returns nobody
    /// finds it here, and its programs reach nothing any more; the rest goes on by itself.
    pub(super) async fn give_up(self: &Arc<Self>, entry: &Arc<SessionEntry>) {
        tracing::warn!(session = %entry.id, "a session is another server's now");
        let body = {
            let mut state = entry.state.lock();
            state.left = true;
            state.body.clone()
        };
        self.directory.remove(entry);
        // Who listens here is told what happens there.
        entry.log.leave();
        self.leave(entry, SessionState::Paused, "it is on another server");
        if let Some(body) = &body {
            drop(body.relay.lock().take());
            let gate = time::timeout(GATE_MAX, body.gate.lock()).await;
            drop(gate.ok().and_then(|mut gate| gate.take()));
            self.sandboxes.kill(body).await;
        }
        let (inner, entry) = (Arc::clone(self), Arc::clone(entry));
        node::task::spawn(async move {
            let _transition = entry.transition.lock().await;
            if let Some(body) = entry.body() {
                inner.put_down(&entry, &body).await;
            }
            inner.books.remove(&entry.key);
        });
    }
}
