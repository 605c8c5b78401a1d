//! Choice of the node for new work. Pure: takes the known state of nodes, returns them in order of
//! preference.
//!
//! Work with a key, such as the name of an agent, goes to few nodes, so that its resources are
//! ready there: those that rendezvous hashing ranks first for the key. Of these, the node with the
//! most room is chosen, or another node that is less busy by [`CANDIDATE_BONUS`]. Adding or
//! removing a node moves few keys.
//!
//! # References
//! - <https://www.microsoft.com/en-us/research/wp-content/uploads/2017/02/HRW98.pdf>

use std::cmp::Reverse;

use sha2::{Digest as _, Sha256};

use super::record::{NodeLoad, NodeRecord, NodeState};

/// Number of nodes that work of one key goes to before others, and that are made ready for it.
pub const CANDIDATES: usize = 2;

/// Use, in thousandths of the capacity, by which another node must be less busy than the candidates
/// of a key to get work of it.
pub const CANDIDATE_BONUS: u64 = 250;

/// Kind of new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A session, which stays at its node.
    Session,
    /// An execution that its caller waits for. It stays at the node that received it while there is
    /// room.
    Execution,
}

impl WorkKind {
    /// Returns the role of the nodes that do this work.
    pub(super) const fn role(self) -> &'static str {
        match self {
            WorkKind::Session => "session",
            WorkKind::Execution => "front",
        }
    }

    /// Returns the number of places that a node has taken, and of all its places.
    pub(super) const fn places(self, load: &NodeLoad) -> (u64, u64) {
        match self {
            WorkKind::Session => (load.sandboxes, load.sandboxes_max),
            WorkKind::Execution => {
                (load.executions.saturating_add(load.executions_waiting), load.executions_max)
            }
        }
    }

    /// Returns whether the receiving node keeps the work if it has room.
    pub(super) const fn stays(self) -> bool {
        matches!(self, WorkKind::Execution)
    }
}

/// A node as a place for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOffer {
    /// Node.
    pub id: String,
    /// Work at the node, including work that was sent to it.
    pub used: u64,
    /// Capacity.
    pub max: u64,
}

impl PlaceOffer {
    /// Returns whether it has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.used < self.max
    }

    /// Use in thousandths of the capacity.
    fn load(&self) -> u64 {
        self.used.saturating_mul(1000).checked_div(self.max).unwrap_or(u64::MAX)
    }
}

/// Returns whether node `own` may send work of a kind to this node, by what is known of it.
pub(super) fn is_place(node: &NodeRecord, own: &str, kind: WorkKind, now_ms: u64) -> bool {
    let is_reachable = node.id == own || node.description.peer_address.is_some();
    let takes_work = node.state == NodeState::Active && !node.drain_wanted;
    let has_role = node.description.roles.iter().any(|role| role == kind.role());
    node.is_alive(now_ms) && is_reachable && takes_work && has_role
}

/// Returns the nodes to ask, best first: those that have room, with the candidates of the key
/// before all others.
#[must_use]
pub fn places(key: &str, mut offers: Vec<PlaceOffer>) -> Vec<String> {
    rank(key, &mut offers);
    let bonus = |rank: usize| if rank < CANDIDATES { 0 } else { CANDIDATE_BONUS };
    let weighed = offers.into_iter().enumerate();
    let mut weighed: Vec<_> =
        weighed.map(|(rank, offer)| (offer.load().saturating_add(bonus(rank)), offer)).collect();
    // Stable: for equal loads the rank decides.
    weighed.sort_by_key(|(weight, _)| *weight);
    let free = weighed.into_iter().map(|(_, offer)| offer).filter(PlaceOffer::has_room);
    free.map(|offer| offer.id).collect()
}

/// Returns whether a node is among the first `count` of these nodes for a key. It stops at the
/// first `count` nodes that precede it, so of many nodes it checks few.
#[must_use]
pub fn is_among_first<T: AsRef<str>>(
    key: &str,
    node: &str,
    nodes: impl IntoIterator<Item = T>,
    count: usize,
) -> bool {
    let own = score(key, node);
    let is_before = |other: &T| other.as_ref() != node && score(key, other.as_ref()) > own;
    nodes.into_iter().filter(is_before).take(count).count() < count
}

/// Returns the node that rendezvous hashing ranks first for a key; none without nodes.
#[must_use]
pub fn first<'a>(key: &str, nodes: &'a [String]) -> Option<&'a str> {
    nodes.iter().max_by_key(|node| (score(key, node), Reverse(*node))).map(String::as_str)
}

/// Returns nodes in the order in which rendezvous hashing ranks them for a key.
#[must_use]
pub fn ranked(key: &str, nodes: &[String]) -> Vec<String> {
    let mut ranked = nodes.to_vec();
    ranked.sort_by_cached_key(|node| (Reverse(score(key, node)), node.clone()));
    ranked
}

/// Sorts nodes by their rank for a key.
fn rank(key: &str, offers: &mut [PlaceOffer]) {
    offers.sort_by_cached_key(|offer| (Reverse(score(key, &offer.id)), offer.id.clone()));
}

/// Score of a node for a key: the same on every node and in every version.
fn score(key: &str, node: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update((key.len() as u64).to_be_bytes());
    hash.update(key.as_bytes());
    hash.update(node.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    u64::from_be_bytes([
        digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn offer(index: usize, used: u64, max: u64) -> PlaceOffer {
        PlaceOffer { id: format!("srv_{index}"), used, max }
    }

    fn empty(count: usize) -> Vec<PlaceOffer> {
        (0..count).map(|index| offer(index, 0, 100)).collect()
    }

    proptest! {
        #[test]
        fn all_that_have_room_are_asked_once_and_no_others(
            key in ".{0,12}",
            loads in prop::collection::vec((0_u64..6, 0_u64..6), 0..12),
        ) {
            let numbered = loads.iter().enumerate();
            let offers: Vec<_> =
                numbered.map(|(index, (used, max))| offer(index, *used, *max)).collect();
            let mut free: Vec<_> =
                offers.iter().filter(|it| it.has_room()).map(|it| it.id.clone()).collect();
            let chosen = places(&key, offers.clone());
            // The order of the input does not matter.
            let mut turned = offers;
            turned.reverse();
            prop_assert_eq!(&places(&key, turned), &chosen);
            let mut sorted = chosen;
            sorted.sort();
            free.sort();
            prop_assert_eq!(sorted, free);
        }

        #[test]
        fn one_node_more_takes_keys_for_itself_alone(keys in 1_usize..60, count in 1_usize..12) {
            for key in 0..keys {
                let key = format!("agent-{key}");
                let before = places(&key, empty(count)).remove(0);
                let after = places(&key, empty(count + 1)).remove(0);
                prop_assert!(after == before || after == offer(count, 0, 0).id);
            }
        }
    }

    /// The node named at a handover is the one that would take the session over by itself.
    #[test]
    fn the_first_node_of_a_key_is_the_one_that_counts_itself_first() {
        let nodes: Vec<String> = (0..7).map(|index| format!("srv_{index}")).collect();
        for key in 0..50 {
            let key = format!("ses_{key}");
            let chosen = first(&key, &nodes).unwrap();
            for node in &nodes {
                assert_eq!(is_among_first(&key, node, &nodes, 1), *node == chosen);
            }
        }
        assert_eq!(first("ses_1", &[]), None);
    }

    #[test]
    fn work_of_a_key_goes_to_few_nodes_until_they_are_busy() {
        let mut offers = empty(10);
        let mut used: HashMap<String, u64> = HashMap::new();
        for placed in 0..1000 {
            let chosen = places("agent", offers.clone()).remove(0);
            let node = offers.iter_mut().find(|it| it.id == chosen).unwrap();
            node.used += 1;
            *used.entry(chosen).or_default() += 1;
            // A quarter of the work for each of them.
            if placed < 50 {
                assert!(used.len() <= CANDIDATES, "{used:?}");
            }
        }
        assert!(places("agent", offers).is_empty());
        assert!(used.len() == 10 && used.values().all(|count| *count == 100), "{used:?}");
    }

    /// Of many keys and nodes no node gets much more than its share.
    #[test]
    fn a_thousand_nodes_have_their_part_each() {
        let nodes: Vec<String> = (0..1000).map(|index| format!("srv_{index}")).collect();
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        let (mut last, mut last_key) = (Vec::new(), String::new());
        for key in 0..500 {
            let key = format!("agent-{key}");
            let mut scores: Vec<_> = nodes.iter().map(|node| (score(&key, node), node)).collect();
            scores.sort_unstable_by(|one, other| other.cmp(one));
            for (_, node) in &scores[..CANDIDATES] {
                *wanted.entry(node).or_default() += 1;
            }
            (last, last_key) = (scores, key);
        }
        for (rank, (_, node)) in last.iter().enumerate().take(5) {
            let is_first = is_among_first(&last_key, node, &nodes, CANDIDATES);
            assert_eq!(is_first, rank < CANDIDATES);
        }
        // One on average; with good hashes seven is already rare.
        assert!(wanted.len() > 550 && wanted.values().all(|count| *count < 10), "{wanted:?}");
    }

    /// Nodes know each other's load as it was a second ago, and what they have sent since.
    #[test]
    fn stale_loads_fill_no_node_beyond_its_room_by_much() {
        let (nodes, max, fronts) = (1000, 4_u64, 3);
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut truth = vec![0_u64; nodes];
        let mut refused = 0;
        for _second in 0..5 {
            let seen = truth.clone();
            let mut sent = vec![vec![0_u64; nodes]; fronts];
            for front in &mut sent {
                for _request in 0..40 {
                    let key = format!("agent-{}", draw(20));
                    let offers =
                        (0..nodes).map(|it| offer(it, seen[it] + front[it], max)).collect();
                    // A full node refuses the session, and the next node is tried.
                    let chosen = places(&key, offers);
                    let index = |id: &String| id["srv_".len()..].parse::<usize>().unwrap();
                    let taken = chosen.iter().take(4).map(index).find(|it| truth[*it] < max);
                    match taken {
                        Some(node) => {
                            truth[node] += 1;
                            front[node] += 1;
                        }
                        None => refused += 1,
                    }
                }
            }
        }
        let total: u64 = truth.iter().sum();
        assert_eq!(total + refused, 5 * 3 * 40);
        assert!(truth.iter().all(|used| *used <= max) && refused < 6, "{refused}");
    }
}
