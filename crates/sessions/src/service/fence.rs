//! Fence of a server whose lease is over: others may take its sessions over, so that neither its
//! requests nor its sandboxes do anything until it has its lease back, and has found out which
//! sessions are still its own.
//!
//! Sandboxes stand still meanwhile. Those of sessions that are still this server's go on where they
//! were; the others are ended.

use std::sync::Arc;

use node::cluster::ServingLease;

use super::cluster::ClusterPlace;
use super::directory::SessionDirectory;
use super::files::SandboxGuard;

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
    pub(super) fn new(
        cluster: &ClusterPlace,
        directory: &Arc<SessionDirectory>,
        session: Option<&str>,
    ) -> Option<SessionFence> {
        let serving = cluster.membership().serving().clone();
        if serving.is_unlimited() {
            return None;
        }
        // Before the look: a lapse in between is seen later.
        let lapses = serving.lapses();
        let epoch = session.and_then(|id| directory.known(id));
        let epoch = epoch.map(|entry| entry.state.lock().row.epoch);
        let session = session.map(Arc::from);
        let directory = Arc::clone(directory);
        Some(SessionFence { directory, serving, session, epoch, lapses })
    }
}

impl SandboxGuard {
    /// The right to answer for its session. None where nobody can take it over.
    pub(crate) fn fence(&self) -> Option<SessionFence> {
        SessionFence::new(&self.inner().cluster, &self.inner().directory, Some(self.session()))
    }
}
