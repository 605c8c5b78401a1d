//! Decides which node takes over a lost node's sessions, and when. Pure: takes the known state of
//! nodes, returns a decision.
//!
//! A silent node is lost when its lease has ended by the store's clock. It has crashed when other
//! nodes have found that nothing is left of it ([`super::NodeRegistry::expire`]). While the store
//! is unreachable no node can renew a lease: so a node takes nothing over before it has renewed its
//! own without a break for a whole lease, which gives all others the time to renew theirs.
//!
//! Each session of a lost node is taken over by one node, the first one by rendezvous hashing among
//! the living ones. If that node is lost as well, the others take the session after
//! [`FIRST_CHOICE_MAX`].

use std::time::Duration;

use super::placement;
use super::record::{NodeRecord, NodeState};

/// Time that the node chosen by rendezvous hashing has for a takeover before all others may take
/// over.
pub const FIRST_CHOICE_MAX: Duration = Duration::from_secs(3);

/// Record of whether a node has reached the store without a break, and since when, by its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreContinuity {
    /// Time of the last answered renewal.
    renewed_ms: Option<u64>,
    /// End of the latest break.
    since_ms: u64,
    /// Time at which the store's server was last found to be replaced.
    replaced_ms: Option<u64>,
}

impl StoreContinuity {
    /// Records a renewal. The first one ends a break.
    pub fn renewed(&mut self, now_ms: u64, lease_ms: u64) {
        let is_break = self.renewed_ms.is_none_or(|last| is_break(last, now_ms, lease_ms));
        if is_break {
            self.since_ms = now_ms;
        }
        self.renewed_ms = Some(now_ms);
    }

    /// Records that another server replaced the store's, or the same one restarted after a crash.
    /// It may have lost its last commits, such as renewals of others: no node is judged by it
    /// before all have had a whole lease to renew theirs, or to find out that they cannot.
    pub fn replaced(&mut self, now_ms: u64) {
        self.renewed_ms = None;
        self.replaced_ms = Some(now_ms);
    }

    /// Returns the knowledge by which this node judges others, at a time by its own clock and by
    /// the store's.
    #[must_use]
    pub fn judge(&self, now_ms: u64, store_ms: u64, lease_ms: u64) -> NodeJudge {
        let is_in_doubt = self.replaced_ms.is_some_and(|at_ms| now_ms < at_ms + lease_ms);
        let covered_ms = self.covered_ms(now_ms, lease_ms);
        NodeJudge { now_ms: store_ms, covered_ms, is_in_doubt }
    }

    /// Returns the time without a break; none before a whole lease without one.
    #[must_use]
    pub fn covered_ms(&self, now_ms: u64, lease_ms: u64) -> Option<u64> {
        let last = self.renewed_ms.filter(|last| !is_break(*last, now_ms, lease_ms));
        let covered_ms = now_ms.saturating_sub(self.since_ms);
        last.map(|_| covered_ms).filter(|covered_ms| *covered_ms >= lease_ms)
    }
}

/// Knowledge at a moment, by which nodes are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeJudge {
    now_ms: u64,
    covered_ms: Option<u64>,
    /// True while the store may have lost commits.
    is_in_doubt: bool,
}

impl NodeJudge {
    /// Creates a judge at a time by the store's clock. `covered_ms` is the time before it without a
    /// break ([`StoreContinuity::covered_ms`]).
    #[must_use]
    pub const fn new(now_ms: u64, covered_ms: Option<u64>) -> NodeJudge {
        NodeJudge { now_ms, covered_ms, is_in_doubt: false }
    }

    /// Returns the time by the store's clock.
    #[must_use]
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the state of a node.
    #[must_use]
    pub fn fate(&self, node: &NodeRecord) -> NodeFate {
        if self.is_in_doubt {
            return NodeFate::Present;
        }
        let is_covered = self.covered_ms.is_some_and(|ms| ms >= node.lease_ms());
        NodeFate::of(node, self.now_ms, is_covered)
    }
}

/// Half a lease: if the gap is shorter, other nodes could renew before and after it, too.
fn is_break(last_ms: u64, now_ms: u64, lease_ms: u64) -> bool {
    now_ms.saturating_sub(last_ms) > lease_ms / 2
}

/// State of a node, for components that may take over from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFate {
    /// The node runs, or is not known to have ended.
    Present,
    /// The node has stopped by itself, and may be restarting.
    Stopped,
    /// The node is lost: it has not renewed its lease.
    Silent,
    /// The node is lost: nothing is left of it.
    Crashed,
}

impl NodeFate {
    /// Returns the state of a node at a time by the store's clock. `is_covered` is true if the node
    /// has had its whole lease to renew it.
    #[must_use]
    pub fn of(node: &NodeRecord, now_ms: u64, is_covered: bool) -> NodeFate {
        match node.state {
            NodeState::Left if node.load.is_lost => NodeFate::Crashed,
            NodeState::Left => NodeFate::Stopped,
            NodeState::Joining | NodeState::Active | NodeState::Draining => {
                match node.is_overdue(now_ms) && is_covered {
                    true => NodeFate::Silent,
                    false => NodeFate::Present,
                }
            }
        }
    }

    /// Returns whether other nodes may take over from it on request.
    #[must_use]
    pub fn is_over(self) -> bool {
        self != NodeFate::Present
    }

    /// Returns whether other nodes take over from it without a request. A stopped node has handed
    /// over what it could, and is usually started again.
    #[must_use]
    pub fn is_lost(self) -> bool {
        matches!(self, NodeFate::Silent | NodeFate::Crashed)
    }
}

/// Returns whether it is this node's turn to take over `key` of a node that has been lost for
/// `lost_for`. `nodes` are the living ones that may take it, this one included.
#[must_use]
pub fn is_own_turn(key: &str, own: &str, nodes: &[String], lost_for: Duration) -> bool {
    lost_for >= FIRST_CHOICE_MAX || placement::is_among_first(key, own, nodes, 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::cluster::{NodeDescription, NodeLoad};

    /// No node is judged by a store that may have lost commits, not even one that it calls crashed,
    /// before all have had a lease to renew theirs.
    #[test]
    fn a_store_that_was_replaced_is_believed_after_a_lease() {
        let load = NodeLoad { lease_ms: 3_000, is_lost: true, ..NodeLoad::default() };
        let crashed = NodeRecord {
            id: "srv_1".to_owned(),
            incarnation: "run_1".to_owned(),
            started_ms: 0,
            seen_ms: 0,
            state: NodeState::Left,
            drain_wanted: false,
            description: NodeDescription::default(),
            load,
        };
        let load = NodeLoad { lease_ms: 3_000, ..NodeLoad::default() };
        let silent = NodeRecord { state: NodeState::Active, load, ..crashed.clone() };
        let mut continuity = StoreContinuity::default();
        (0..10).for_each(|number| continuity.renewed(number * 600, 3_000));
        let fates = |continuity: &StoreContinuity, now_ms| {
            let judge = continuity.judge(now_ms, now_ms, 3_000);
            [judge.fate(&crashed), judge.fate(&silent)]
        };
        assert_eq!(fates(&continuity, 5_500), [NodeFate::Crashed, NodeFate::Silent]);
        continuity.replaced(5_600);
        continuity.renewed(5_600, 3_000);
        assert_eq!(fates(&continuity, 5_600), [NodeFate::Present; 2]);
        (11..15).for_each(|number| continuity.renewed(number * 600, 3_000));
        assert_eq!(fates(&continuity, 8_500), [NodeFate::Present; 2]);
        assert_eq!(fates(&continuity, 8_600), [NodeFate::Crashed, NodeFate::Silent]);
    }

    /// One node of many dies: each session is taken over once, and no node takes much more than its
    /// share.
    #[test]
    fn what_a_node_had_is_shared_by_the_others() {
        let nodes: Vec<String> = (0..9).map(|index| format!("srv_{index}")).collect();
        let mut taken = HashMap::new();
        for session in 0..900 {
            let key = format!("ses_{session}");
            let first: Vec<_> =
                nodes.iter().filter(|own| is_own_turn(&key, own, &nodes, Duration::ZERO)).collect();
            assert_eq!(first.len(), 1);
            assert!(nodes.iter().all(|own| is_own_turn(&key, own, &nodes, FIRST_CHOICE_MAX)));
            *taken.entry(first[0].clone()).or_insert(0) += 1;
        }
        assert!(
            taken.len() == 9 && taken.values().all(|count| (60..150).contains(count)),
            "{taken:?}"
        );
    }
}
