//! Fence of a server whose lease is over: other servers may take its sessions over, so its requests
//! and sandboxes stop until it has its lease back and has determined which sessions it still owns.
//!
//! Meanwhile, sandboxes are frozen. Those of sessions that this server still owns then continue;
//! the others are ended.

use std::sync::Arc;

use node::cluster::ServingLease;

use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use super::files::SandboxGuard;

/// Right to answer for one session, checked at the start of a request and for each piece of its
/// answer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionFence {
    directory: Arc<SessionDirectory>,
    serving: ServingLease,
    session: Option<Arc<str>>,
    /// Epoch at which this server owned the session; none if it did not.
    epoch: Option<u64>,
    lapses: u64,
}

impl SessionFence {
    /// Returns whether the lease holds now.
    pub(crate) fn holds(&self) -> bool {
        self.serving.holds()
    }

    /// Returns whether this server may continue work that began earlier, now that the lease holds.
    pub(crate) fn is_ours(&self) -> bool {
        if self.serving.lapses() == self.lapses {
            return true;
        }
        let Some(session) = &self.session else { return true };
        let epoch = self.directory.known(session).map(|entry| entry.state.lock().row.epoch);
        epoch.is_some() && epoch == self.epoch
    }

    /// Resolves once the lease has ended.
    pub(crate) async fn ended(&self) {
        self.serving.ended().await;
    }

    /// Waits for the lease; returns whether the work may continue.
    pub(crate) async fn passes(&self) -> bool {
        self.serving.held().await;
        self.is_ours()
    }

    /// Returns whether another server may own the session of work that began earlier.
    pub(crate) fn is_lost(&self) -> bool {
        !self.holds() || !self.is_ours()
    }

    /// Creates a fence for a session, or for none, as of now. Returns `None` if no other server can
    /// take sessions over.
    pub(super) fn new(
        cluster: &ClusterPlace,
        directory: &Arc<SessionDirectory>,
        session: Option<&str>,
    ) -> Option<SessionFence> {
        let serving = cluster.membership().serving().clone();
        if serving.is_unlimited() {
            return None;
        }
        // Read before the epoch, so that a lapse in between is detected.
        let lapses = serving.lapses();
        let epoch = session.and_then(|id| directory.known(id));
        let epoch = epoch.map(|entry| entry.state.lock().row.epoch);
        let session = session.map(Arc::from);
        let directory = Arc::clone(directory);
        Some(SessionFence { directory, serving, session, epoch, lapses })
    }
}

impl SandboxGuard {
    /// Returns a fence for its session; none if no other server can take it over.
    pub(crate) fn fence(&self) -> Option<SessionFence> {
        SessionFence::new(&self.inner().cluster, &self.inner().directory, Some(self.session()))
    }
}
