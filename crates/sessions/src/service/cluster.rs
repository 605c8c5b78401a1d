//! This server's place among those that share its store: its lease, the other nodes, and which node
//! takes over which session.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use node::cluster::{NodeIdentity, NodeMembership, PeerForwarder};
use node::current::CurrentSettings;

use super::entry::SessionEntry;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::other_nodes::OtherNodes;
use crate::store::ClaimTerms;
use crate::store::rows::SessionRow;

/// Time that a lost node has to return to the files on its disk, since the object store may have
/// older ones. Not applied if the snapshot policy keeps the object store up to date.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// Error of operations that are refused while the lease is over.
const OVER: &str = "this server has not reached the store for so long that others may take its \
                    sessions over; it goes on when it has";

/// Place of this server among those that share its store.
#[derive(Debug)]
pub(crate) struct ClusterPlace {
    config: CurrentSettings<SessionsConfig>,
    membership: NodeMembership,
    /// Other nodes, if they are reachable.
    nodes: OnceLock<OtherNodes>,
}

impl ClusterPlace {
    pub(super) fn new(
        config: CurrentSettings<SessionsConfig>,
        membership: NodeMembership,
    ) -> Arc<ClusterPlace> {
        Arc::new(ClusterPlace { config, membership, nodes: OnceLock::new() })
    }

    /// Returns the identity of this run of the server.
    pub(super) fn run(&self) -> &NodeIdentity {
        self.membership.identity()
    }

    /// Returns the id of this server.
    pub(super) fn server(&self) -> &str {
        &self.run().id
    }

    /// Returns the membership of this node, with its lease.
    pub(super) fn membership(&self) -> &NodeMembership {
        &self.membership
    }

    /// Enables requests to other nodes.
    pub(super) fn join(&self, nodes: PeerForwarder) {
        // Set once: a server belongs to one cluster.
        drop(self.nodes.set(OtherNodes::new(nodes)));
    }

    /// Returns the other nodes, if they are reachable.
    pub(super) fn nodes(&self) -> Option<&OtherNodes> {
        self.nodes.get()
    }

    /// Checks that the lease holds; operations that need it are refused otherwise.
    pub(super) fn check_lease(&self) -> Result<(), SessionError> {
        match self.membership.serving().holds() {
            true => Ok(()),
            false => Err(self.lease_is_over()),
        }
    }

    /// Returns the error of operations while the lease is over.
    pub(super) fn lease_is_over(&self) -> SessionError {
        SessionError::Away(OVER.to_owned())
    }

    /// Returns whether servers on the store forward requests to each other.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.nodes.get().is_some_and(OtherNodes::are_reached)
    }

    /// Returns the error for a session that another server owns.
    pub(super) fn on_another_server(&self) -> SessionError {
        SessionError::OnAnotherServer { is_node: self.is_in_cluster() }
    }

    /// Returns the terms on which a session of another node may be claimed.
    pub(super) fn claim_terms(&self) -> ClaimTerms {
        let patience = match self.config.now().snapshot_policy().moves_at_once() {
            true => Duration::ZERO,
            false => RETURN_MAX,
        };
        ClaimTerms { judge: self.membership.judge(), patience }
    }

    /// Returns the server that has the only copy of a session's files, if it is another one.
    pub(super) fn has_files_elsewhere<'a>(&self, row: &'a SessionRow) -> Option<&'a str> {
        let elsewhere = row.disk_server.as_deref().filter(|server| *server != self.server());
        elsewhere.filter(|_| row.disk.is_some() && row.manifest.is_none())
    }

    /// Refuses to take over a session whose only files are on another server: this server could not
    /// use it, and the other one would lose it.
    pub(super) fn check_files(&self, row: &SessionRow) -> Result<(), SessionError> {
        let Some(server) = self.has_files_elsewhere(row) else { return Ok(()) };
        let message = format!("the session's files are on the server {server} alone");
        // In a cluster, the request would have been forwarded to that server if it were alive.
        Err(match self.is_in_cluster() {
            true => SessionError::Away(message),
            false => SessionError::Conflict(message),
        })
    }

    /// Returns the node that takes over a session; none if requests are not forwarded, or no other
    /// node accepts sessions: then any node that receives a request takes it.
    pub(super) fn taker(&self, session: &str) -> Option<String> {
        let taker = self.is_in_cluster().then(|| self.membership.taker_of(session));
        taker.flatten()
    }

    /// Returns whether sessions can be handed over: in a cluster, only if another node accepts
    /// them. Nodes that all drain would otherwise pass sessions around in circles.
    pub(super) fn has_taker(&self) -> bool {
        let nodes = self.membership.session_nodes();
        !self.is_in_cluster() || nodes.iter().any(|node| *node != self.server())
    }

    /// Notifies the node that would take over a session of its stored files and layers; that node
    /// removes prefetched files that no longer exist. A notification that is lost is repeated by
    /// [`Self::announce_again`].
    pub(super) fn announce_stored(&self, entry: &Arc<SessionEntry>, manifest: &str) {
        let Some(nodes) = self.nodes.get().filter(|it| it.are_reached()) else { return };
        let node = self.membership.taker_of(&entry.id);
        let mut state = entry.state.lock();
        state.announced_to.clone_from(&node);
        if let Some(node) = node {
            let told = nodes.tell_stored(node.clone(), manifest.to_owned(), &state.row.chain);
            let entry = Arc::clone(entry);
            // Sent in the background.
            node::task::spawn(async move {
                if !told.await {
                    let mut state = entry.state.lock();
                    state.announced_to.take_if(|announced_to| *announced_to == node);
                }
            });
        }
    }

    /// Notifies new successors of sessions, after nodes have joined, left or begun to drain, and
    /// those that a notification did not reach.
    pub(super) fn announce_again(&self, entries: &[Arc<SessionEntry>]) {
        if !self.is_in_cluster() {
            return;
        }
        for entry in entries {
            let taker = self.membership.taker_of(&entry.id);
            let manifest = {
                let state = entry.state.lock();
                let is_told = taker.is_none() || state.announced_to == taker || state.left;
                state.row.manifest.clone().filter(|_| !is_told)
            };
            if let Some(manifest) = manifest {
                self.announce_stored(entry, &manifest);
            }
        }
    }
}
