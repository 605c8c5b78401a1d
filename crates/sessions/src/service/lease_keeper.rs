//! Freezes the sandboxes of a server whose lease has expired, and ends those that other servers
//! have taken over before the rest continues.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use node::cluster::LeaseVerifier;
use parking_lot::Mutex;
use tokio::time;

use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use super::entry::{SessionEntry, SessionSandbox};
use super::lifecycle::SessionLifecycle;
use super::shared::SharedParts;
use crate::error::SessionError;
use crate::metrics::{SandboxEvent, SessionCounters};
use crate::store::SessionStore;
use crate::store::rows::SessionRow;

/// Interval of the search for sandboxes that started while the lease ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before the store is asked again which sessions this server owns.
const ASK_PAUSE: Duration = Duration::from_millis(200);

/// Freezes sandboxes while the lease of this server is over.
pub(crate) struct LeaseKeeper {
    store: SessionStore,
    cluster: Arc<ClusterPlace>,
    directory: Arc<SessionDirectory>,
    metrics: Arc<SessionCounters>,
    lifecycle: Arc<SessionLifecycle>,
    /// Comparison with the store after a lapse of the lease.
    verifier: Mutex<Option<LeaseVerifier>>,
}

impl LeaseKeeper {
    pub(super) fn new(shared: &SharedParts, lifecycle: Arc<SessionLifecycle>) -> Arc<LeaseKeeper> {
        Arc::new(LeaseKeeper {
            store: shared.store.clone(),
            cluster: Arc::clone(&shared.cluster),
            directory: Arc::clone(&shared.directory),
            metrics: Arc::clone(&shared.metrics),
            lifecycle,
            verifier: Mutex::new(Some(shared.cluster.membership().serving().verify())),
        })
    }

    /// Freezes sandboxes while the lease is over.
    pub(super) async fn keep(self: &Arc<Self>) {
        let Some(mut verifier) = self.verifier.lock().take() else {
            return std::future::pending().await;
        };
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

    /// Freezes all sandboxes that are not frozen already.
    async fn freeze_all(&self, still: &mut Vec<Arc<SessionSandbox>>) {
        let bodies = self.directory.choose(|entry| entry.body());
        let is_new = |body: &Arc<SessionSandbox>| {
            !*body.frozen().borrow() && !still.iter().any(|it| Arc::ptr_eq(it, body))
        };
        let moving: Vec<_> = bodies.into_iter().filter(is_new).collect();
        let freezing = moving.iter().map(|body| async {
            // A sandbox that ends meanwhile does not run either.
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

    /// Resumes the sandboxes that this server's sessions still have.
    async fn thaw_all(&self, still: &[Arc<SessionSandbox>]) {
        let bodies = self.directory.choose(|entry| entry.body());
        let goes_on = |body: &&Arc<SessionSandbox>| {
            // Excludes sandboxes that were paused meanwhile.
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

    /// Ends the local remains of sessions that others have taken over.
    async fn give_up_taken(self: &Arc<Self>) {
        loop {
            match self.taken_sessions().await {
                Ok(taken) => {
                    let giving_up = taken.iter().map(|entry| self.lifecycle.give_up(entry));
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

    /// Returns the local sessions that another server owns by now.
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
            // The session may have ended or been removed. A store that has lost a claim assigns its
            // epoch again.
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
}
