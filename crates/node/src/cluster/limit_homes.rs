//! Homes of a limit: the nodes that serve the clients subject to it. Pure: takes the known state of
//! nodes, returns a choice of them.
//!
//! A limit that is small compared with the number of nodes would give each a part of 0 or 1, and
//! clients would wait for one another's parts. So its parts are at few nodes, and clients that
//! connect to another node are served through these. The parts ([`super::LimitShares`]) enforce the
//! limit in any case: if nodes briefly disagree about the homes, the limit is not exceeded.

use super::placement;

/// Smallest part of a limit at each home that justifies more than one home.
pub const LIMIT_PART_MIN: u32 = 4;

/// Returns the number of homes of a limit; at least one.
fn homes_max(limit: u32, nodes: usize) -> usize {
    let homes = usize::try_from(limit / LIMIT_PART_MIN).unwrap_or(usize::MAX);
    homes.min(nodes).max(1)
}

/// Returns the homes of the named limit: the nodes that rendezvous hashing ranks first, or all
/// nodes if each gets a part of [`LIMIT_PART_MIN`]. None without nodes.
#[must_use]
pub fn limit_homes(name: &str, limit: u32, nodes: &[String]) -> Vec<String> {
    let mut ranked = placement::ranked(name, nodes);
    ranked.truncate(homes_max(limit, nodes.len()));
    ranked
}

/// Returns whether a node is one of the homes of a limit, among these nodes. It checks few of many
/// nodes.
#[must_use]
pub fn is_limit_home(name: &str, limit: u32, node: &str, nodes: &[String]) -> bool {
    let homes = homes_max(limit, nodes.len());
    let is_known = nodes.iter().any(|it| it == node);
    is_known && (homes >= nodes.len() || placement::is_among_first(name, node, nodes, homes))
}

/// Homes of limits of one size, by one node's knowledge of all nodes at a moment.
#[derive(Clone, Debug)]
pub struct LimitHomes {
    own: String,
    nodes: Vec<String>,
    limit: u32,
}

impl LimitHomes {
    /// Returns the homes of limits of this size, as `own` knows the nodes; `own` is not among them
    /// while it drains. None if such limits have parts at every node, or there is no other node.
    #[must_use]
    pub fn new(own: &str, nodes: Vec<String>, limit: u32) -> Option<LimitHomes> {
        let is_among = nodes.iter().any(|node| node == own);
        let count = nodes.len() + usize::from(!is_among);
        let live_at_few = count > 1 && homes_max(limit, count) < count;
        live_at_few.then(|| LimitHomes { own: own.to_owned(), nodes, limit })
    }

    /// Returns the homes of the named limit, highest rank first.
    #[must_use]
    pub fn of(&self, name: &str) -> Vec<String> {
        limit_homes(name, self.limit, &self.nodes)
    }

    /// Returns whether this node is a home of the named limit.
    #[must_use]
    pub fn is_here(&self, name: &str) -> bool {
        is_limit_home(name, self.limit, &self.own, &self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    fn nodes(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("srv_{index}")).collect()
    }

    #[test]
    fn a_limit_lives_where_each_node_has_a_part_that_is_worth_it() {
        let count = |limit, of_nodes| limit_homes("shop", limit, &nodes(of_nodes)).len();
        for (limit, of_nodes, homes) in [
            (1, 1, 1),
            (1, 3, 1),
            (0, 3, 1),
            (LIMIT_PART_MIN - 1, 3, 1),
            (2 * LIMIT_PART_MIN - 1, 3, 1),
            (2 * LIMIT_PART_MIN, 3, 2),
            (3 * LIMIT_PART_MIN, 3, 3),
            (u32::MAX, 3, 3),
            (20, 10, 5),
            (5, 0, 0),
        ] {
            assert_eq!(count(limit, of_nodes), homes, "{limit} at {of_nodes}");
        }
    }

    #[test]
    fn limits_that_live_at_every_node_have_no_homes() {
        let few = |own, of_nodes, limit| LimitHomes::new(own, nodes(of_nodes), limit).is_some();
        for (own, of_nodes, limit, expected) in [
            ("srv_0", 1, 1, false),
            ("srv_0", 3, 3 * LIMIT_PART_MIN - 1, true),
            ("srv_0", 3, 3 * LIMIT_PART_MIN, false),
            // It drains, and its callers are served elsewhere if the limit is small.
            ("srv_9", 1, 1, true),
            ("srv_9", 2, 3 * LIMIT_PART_MIN, false),
            ("srv_9", 2, 2 * LIMIT_PART_MIN, true),
            // All others drain as well.
            ("srv_9", 0, 1, false),
        ] {
            assert_eq!(few(own, of_nodes, limit), expected, "{own}: {limit} at {of_nodes}");
        }
        let homes = LimitHomes::new("srv_9", nodes(2), 1).unwrap();
        assert!(!homes.is_here("shop") && homes.of("shop").len() == 1);
    }

    #[test]
    fn limits_of_many_names_are_spread() {
        let nodes = nodes(10);
        let mut homes: HashMap<String, usize> = HashMap::new();
        for name in 0..1000 {
            for home in limit_homes(&format!("tenant-{name}"), 1, &nodes) {
                *homes.entry(home).or_default() += 1;
            }
        }
        assert!(homes.len() == 10 && homes.values().all(|count| (60..150).contains(count)));
    }

    proptest! {
        /// For any order of the nodes, and at each of them.
        #[test]
        fn all_nodes_find_the_same_homes(
            name in ".{0,12}", limit in 0_u32..60, count in 1_usize..12, turned in 0_usize..12,
        ) {
            let nodes = nodes(count);
            let homes = limit_homes(&name, limit, &nodes);
            let mut others = nodes.clone();
            others.rotate_left(turned % count);
            prop_assert_eq!(&limit_homes(&name, limit, &others), &homes);
            prop_assert!(!homes.is_empty() && homes.len() <= count);
            for node in &nodes {
                let is_home = is_limit_home(&name, limit, node, &others);
                prop_assert_eq!(is_home, homes.contains(node));
                let few = LimitHomes::new(node, others.clone(), limit);
                prop_assert_eq!(few.is_some(), homes.len() < count);
                let few = few.map(|few| (few.is_here(&name), few.of(&name)));
                prop_assert!(few.is_none_or(|few| few == (is_home, homes.clone())));
            }
            prop_assert!(!is_limit_home(&name, limit, "srv_none", &nodes));
        }

        /// A node that joins takes at most one home from another node, and one that leaves is
        /// replaced by one.
        #[test]
        fn homes_move_no_more_than_they_have_to(
            name in ".{0,12}", limit in 0_u32..60, count in 1_usize..12,
        ) {
            let (fewer, more) = (nodes(count), nodes(count + 1));
            let before: HashSet<_> = limit_homes(&name, limit, &fewer).into_iter().collect();
            let after: HashSet<_> = limit_homes(&name, limit, &more).into_iter().collect();
            let joined = format!("srv_{count}");
            prop_assert!(after.difference(&before).all(|node| *node == joined));
            prop_assert!(before.difference(&after).count() <= 1);
        }

        /// A smaller limit of the same name has its homes among those of a larger one.
        #[test]
        fn homes_of_a_smaller_limit_are_among_those_of_a_larger_one(
            name in ".{0,12}", limit in 0_u32..60, less in 0_u32..60, count in 1_usize..12,
        ) {
            let nodes = nodes(count);
            let larger = limit_homes(&name, limit, &nodes);
            let smaller = limit_homes(&name, limit.saturating_sub(less), &nodes);
            prop_assert!(larger.starts_with(&smaller));
        }
    }
}
