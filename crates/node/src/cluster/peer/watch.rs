//! Failure detection of other nodes: a connection to each node that this one watches. When it ends
//! and nothing listens at the node's address, the node is dead, and all others are notified.
//!
//! Silence proves nothing: a node that does not answer may be cut off from this one alone, and
//! continues for as long as its lease holds. It is watched after that as well: strict limits
//! reserve its part until nothing is left of it ([`crate::cluster::LimitScope`]).

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time;

use super::client::{PeerTarget, is_refused};
use super::forward::{PeerForwarder, target_of};
use crate::cluster::placement;

/// Nodes that watch a node: those that rendezvous hashing ranks first for it.
const WATCHERS: usize = 3;
/// Pause between the first refusal and the second one. Two refusals distinguish a dead node from
/// one whose listener was just opened. A node listens before its row has the address, so the pause
/// only has to cover a momentary fault between two nodes; in each millisecond of it no node answers
/// for the sessions of a dead node.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Pause before the second check of an address after its connection has ended: a dying process
/// closes its sockets one after the other, and its listener may be the last.
const ENDED_PAUSE: Duration = Duration::from_millis(50);
/// Pause before a new connection to a node.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

impl PeerForwarder {
    /// Watches the other nodes assigned to this one. Never ends.
    pub async fn watch_peers(&self) {
        let mut renewals = self.membership().renewals();
        let mut tasks = JoinSet::new();
        let mut watched: HashMap<PeerTarget, AbortHandle> = HashMap::new();
        loop {
            let wanted = self.peers_to_watch();
            watched.retain(|target, task| {
                let is_wanted = wanted.contains(target);
                if !is_wanted {
                    task.abort();
                }
                is_wanted && !task.is_finished()
            });
            for target in wanted {
                watched.entry(target.clone()).or_insert_with(|| {
                    let forwarder = self.clone();
                    tasks.spawn(async move { forwarder.watch_peer(&target).await })
                });
            }
            while tasks.try_join_next().is_some() {}
            if renewals.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the nodes that this one watches.
    fn peers_to_watch(&self) -> Vec<PeerTarget> {
        let own = &self.membership().identity().id;
        let living = self.membership().all_living();
        let reached = living.iter().filter(|node| node.description.peer_address.is_some());
        let reached: Vec<&str> = reached.map(|node| node.id.as_str()).collect();
        let is_own = |id: &str| {
            let others = reached.iter().filter(|it| **it != id);
            id != own && placement::is_among_first(id, own, others, WATCHERS)
        };
        // Silent nodes as well: when nothing is left of one, its reserved parts are free.
        let nodes = self.membership().all_not_over().into_iter();
        nodes.filter(|node| is_own(&node.id)).filter_map(target_of).collect()
    }

    /// Watches a run of a node until nothing is left of it.
    async fn watch_peer(&self, target: &PeerTarget) {
        loop {
            if let Err(error) = self.client().watch(target).await {
                tracing::debug!(%error, "a node that is watched is not connected");
            }
            let mut is_gone = is_refused(target).await;
            if !is_gone {
                time::sleep(ENDED_PAUSE).await;
                is_gone = is_refused(target).await;
            }
            if is_gone {
                time::sleep(REFUSED_PAUSE).await;
                if is_refused(target).await && self.expire(target).await {
                    return;
                }
            }
            time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Records, for all nodes, that nothing is left of a node. False if this has to be retried.
    async fn expire(&self, target: &PeerTarget) -> bool {
        let (node, address) = (&target.id, &target.address);
        let was_silent = self.membership().living(node).is_none();
        let registry = self.membership().registry();
        match registry.expire(&target.id, &target.incarnation).await {
            Ok(is_expired) => {
                if is_expired && was_silent {
                    tracing::info!(node, address, "nothing is left of a node that was lost");
                } else if is_expired {
                    tracing::warn!(node, address, "a node is lost: nothing listens at its address");
                }
                // Also when another node announced it first: this node's part of the sessions waits
                // for this look.
                self.membership().look_again();
                true
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(node, error, "failed to tell that a node is lost");
                false
            }
        }
    }
}
