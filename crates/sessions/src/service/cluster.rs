//! Place of this server among those that share its store: its lease, the others, and who goes on
//! with what.

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

/// Time that a lost node has to come back to the files on its disk, where the object store may have
/// older ones. Where they are brought there all the time it is not waited for.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// Message of what is refused while the lease is over.
const OVER: &str = "this server has not reached the store for so long that others may take its \
                    sessions over; it goes on when it has";

/// Place of this server among those that share its store.
#[derive(Debug)]
pub(crate) struct ClusterPlace {
    config: CurrentSettings<SessionsConfig>,
    membership: NodeMembership,
    /// Other nodes, where they are reached.
    nodes: OnceLock<OtherNodes>,
}

impl ClusterPlace {
    pub(super) fn new(
        config: CurrentSettings<SessionsConfig>,
        membership: NodeMembership,
    ) -> Arc<ClusterPlace> {
        Arc::new(ClusterPlace { config, membership, nodes: OnceLock::new() })
    }

    /// Identity of this run of the server.
    pub(super) fn run(&self) -> &NodeIdentity {
        self.membership.identity()
    }

    /// Id of this server.
    pub(super) fn server(&self) -> &str {
        &self.run().id
    }

    /// Membership of this node, with its lease.
    pub(super) fn membership(&self) -> &NodeMembership {
        &self.membership
    }

    /// Has other nodes reached from now on.
    pub(super) fn join(&self, nodes: PeerForwarder) {
        // There is one cluster.
        drop(self.nodes.set(OtherNodes::new(nodes)));
    }

    /// Other nodes, where there are any to reach.
    pub(super) fn nodes(&self) -> Option<&OtherNodes> {
        self.nodes.get()
    }

    /// Refuses what a server may not do whose lease is over.
    pub(super) fn check_lease(&self) -> Result<(), SessionError> {
        match self.membership.serving().holds() {
            true => Ok(()),
            false => Err(self.lease_is_over()),
        }
    }

    /// Returns what is said while the lease is over.
    pub(super) fn lease_is_over(&self) -> SessionError {
        SessionError::Away(OVER.to_owned())
    }

    /// Returns whether servers on the store pass requests on to each other.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.nodes.get().is_some_and(OtherNodes::are_reached)
    }

    /// Returns what is said of a session that another server has.
    pub(super) fn on_another_server(&self) -> SessionError {
        SessionError::OnAnotherServer { is_node: self.is_in_cluster() }
    }

    /// Terms on which a session of another node may be claimed.
    pub(super) fn claim_terms(&self) -> ClaimTerms {
        let patience = match self.config.now().snapshot_policy().moves_at_once() {
            true => Duration::ZERO,
            false => RETURN_MAX,
        };
        ClaimTerms { judge: self.membership.judge(), patience }
    }

    /// The server that alone has the files of a session, when that is another one.
    pub(super) fn has_files_elsewhere<'a>(&self, row: &'a SessionRow) -> Option<&'a str> {
        let elsewhere = row.disk_server.as_deref().filter(|server| *server != self.server());
        elsewhere.filter(|_| row.disk.is_some() && row.manifest.is_none())
    }

    /// Refuses to take a session over whose files are on another server alone: it could do nothing
    /// with it, and that one would not get it back.
    pub(super) fn check_files(&self, row: &SessionRow) -> Result<(), SessionError> {
        let Some(server) = self.has_files_elsewhere(row) else { return Ok(()) };
        let message = format!("the session's files are on the server {server} alone");
        // In a cluster the request would have gone there if that one was there.
        Err(match self.is_in_cluster() {
            true => SessionError::Away(message),
            false => SessionError::Conflict(message),
        })
    }

    /// The node that goes on with a session; none where requests are not passed on, or no other
    /// node takes sessions: then whichever is asked does.
    pub(super) fn taker(&self, session: &str) -> Option<String> {
        let taker = self.is_in_cluster().then(|| self.membership.taker_of(session));
        taker.flatten()
    }

    /// Returns whether anybody goes on with sessions that are given away. Nodes that all
    /// drain would hand them round, where they reach each other.
    pub(super) fn has_taker(&self) -> bool {
        let nodes = self.membership.session_nodes();
        !self.is_in_cluster() || nodes.iter().any(|node| *node != self.server())
    }

    /// Tells the node that would go on with a session where its files are, or were, and on what
    /// layers they stand: it removes what it has of those that are not there any more.
    pub(super) fn announce_stored(&self, entry: &SessionEntry, manifest: &str) {
        let Some(nodes) = self.nodes.get().filter(|it| it.are_reached()) else { return };
        let node = self.membership.taker_of(&entry.id);
        let mut state = entry.state.lock();
        state.announced_to.clone_from(&node);
        if let Some(node) = node {
            // No caller waits for that.
            let told = nodes.tell_stored(node, manifest.to_owned(), &state.row.chain);
            node::task::spawn(told);
        }
    }

    /// Tells it to those that would go on with sessions by now, since nodes have come, left or
    /// begun to drain.
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
