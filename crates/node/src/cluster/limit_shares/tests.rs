//! Parts of limits: the rule by itself, many nodes in a simulation, and the rows in PostgreSQL.

use std::sync::Arc;

use testkit::Postgres;

use super::super::{NodeDescription, NodeLoad, NodeState};
use super::*;
use crate::store::{StoreConfig, StoreUrl};
use crate::telemetry::Registry;
use crate::testing::SeededRandom;

#[test]
fn parts_are_fair() {
    for (limit, needed, turn, expected) in [
        (20, vec![], 0, vec![]),
        (20, vec![0, 0], 0, vec![0, 0]),
        // A quarter more than is needed, where there is room.
        (20, vec![4, 8], 0, vec![5, 10]),
        (20, vec![1, 0], 0, vec![2, 0]),
        (20, vec![100, 1], 0, vec![19, 1]),
        (20, vec![100, 2, 100], 0, vec![9, 2, 9]),
        (20, vec![100, 100, 100], 0, vec![7, 7, 6]),
        (20, vec![100, 100, 100], 1, vec![7, 7, 6]),
        (0, vec![5, 5], 0, vec![0, 0]),
        // Less than one for each: they take turns, and a node without need gets none.
        (1, vec![5, 0, 5], 0, vec![1, 0, 0]),
        (1, vec![5, 0, 5], 1, vec![0, 0, 1]),
        (2, vec![5, 5, 5], 1, vec![0, 1, 1]),
        (2, vec![5, 5, 5], 2, vec![1, 0, 1]),
        (u32::MAX, vec![u32::MAX, u32::MAX], 0, vec![u32::MAX / 2 + 1, u32::MAX / 2]),
    ] {
        assert_eq!(fair_parts(limit, &needed, turn), expected, "{limit} {needed:?} {turn}");
    }
}

fn run(node: usize, number: u32) -> NodeIdentity {
    NodeIdentity { id: format!("n{node}"), incarnation: number.to_string(), home: String::new() }
}

/// A node that uses a limit, as it knows itself.
#[derive(Clone, Debug, Default)]
struct SimulatedNode {
    number: u32,
    bound: u32,
    used: u32,
    wanted: u32,
    /// Use that was measured and not settled yet, with the run that measured it.
    measured: Option<(u32, LimitUse)>,
}

fn index(random: &mut SeededRandom, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap()
}

/// Nodes and their rows in the store.
struct Simulation {
    random: SeededRandom,
    limit: u32,
    nodes: Vec<SimulatedNode>,
    rows: Vec<ShareRow>,
    turn: u64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut random = SeededRandom(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1));
        let count = 1 + index(&mut random, 12);
        let limit = [1, 2, 5, 20, 90][index(&mut random, 5)];
        let nodes = vec![SimulatedNode::default(); count];
        Simulation { random, limit, nodes, rows: Vec::new(), turn: 0 }
    }

    fn measure(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.measured = Some((
            node.number,
            LimitUse {
                resource: "it".to_owned(),
                limit: self.limit,
                bound: node.bound,
                used: node.used,
                needed: node.wanted,
            },
        ));
    }

    fn settle(&mut self, at: usize) {
        let Some((number, used)) = self.nodes[at].measured.take() else { return };
        if number != self.nodes[at].number {
            return;
        }
        let (row, part) = grant(&self.rows, &used, &run(at, number), self.turn);
        self.rows.retain(|other| other.node != row.node);
        self.rows.push(row);
        self.nodes[at].bound = part;
    }

    /// Performs one random step at one node. Connections are opened within the bound only; open
    /// ones may outlast it.
    fn step(&mut self) {
        let at = index(&mut self.random, self.nodes.len());
        match self.random.below(12) {
            0..3 => self.measure(at),
            3..6 => self.settle(at),
            6..8 => {
                let wanted = self.random.below(2 * u64::from(self.limit));
                self.nodes[at].wanted = u32::try_from(wanted).unwrap();
            }
            8..10 => {
                let node = &mut self.nodes[at];
                if node.used < node.bound.min(node.wanted) {
                    node.used += 1;
                }
            }
            10 => self.nodes[at].used = self.nodes[at].used.saturating_sub(1),
            _ if self.random.is_one_in(20) => {
                // It crashes and restarts: its connections are closed.
                let number = self.nodes[at].number + 1;
                self.nodes[at] = SimulatedNode { number, ..SimulatedNode::default() };
            }
            _ => self.turn += 1,
        }
        let used: u32 = self.nodes.iter().map(|node| node.used).sum();
        assert!(used <= self.limit, "{used} of {} are used: {:?}", self.limit, self.nodes);
    }

    /// Lets all nodes settle with unchanged needs, until nothing changes.
    fn come_to_rest(&mut self) {
        for _ in 0..40 {
            for at in 0..self.nodes.len() {
                self.measure(at);
                self.settle(at);
                let node = &mut self.nodes[at];
                node.used = node.bound.min(node.wanted);
            }
        }
    }
}

#[test]
fn what_nodes_use_together_never_exceeds_the_limit() {
    for seed in 0..2_000 {
        let mut simulation = Simulation::new(seed);
        for _ in 0..400 {
            simulation.step();
        }
        simulation.come_to_rest();
        // The whole limit is used, or the whole demand is met.
        let wanted: u32 = simulation.nodes.iter().map(|node| node.wanted).sum();
        let used: u32 = simulation.nodes.iter().map(|node| node.used).sum();
        assert_eq!(used, wanted.min(simulation.limit), "seed {seed}: {:?}", simulation.nodes);
        let least = simulation.nodes.iter().filter(|node| node.used < node.wanted);
        if let Some(least) = least.map(|node| node.used).min() {
            let most = simulation.nodes.iter().map(|node| node.used).max().unwrap();
            assert!(most <= least + 1, "seed {seed}: {:?}", simulation.nodes);
        }
    }
}

fn node(incarnation: &str, state: NodeState, seen_ms: u64, is_lost: bool) -> NodeRecord {
    NodeRecord {
        id: "other".to_owned(),
        incarnation: incarnation.to_owned(),
        started_ms: 0,
        seen_ms,
        state,
        drain_wanted: false,
        description: NodeDescription::default(),
        load: NodeLoad { lease_ms: 3_000, is_lost, ..NodeLoad::default() },
    }
}

#[test]
fn what_a_node_had_is_free_when_it_can_use_nothing_any_more() {
    use LimitScope::{Soft, Strict};
    let now_ms = 100_000;
    let judge = NodeJudge::new(now_ms, Some(u64::MAX));
    let row = ShareRow {
        node: "other".to_owned(),
        incarnation: "1".to_owned(),
        granted: 5,
        needed: 5,
        round: 1,
    };
    for (record, scope, expected) in [
        (Some(node("1", NodeState::Active, now_ms - 1, false)), Soft, false),
        (Some(node("1", NodeState::Active, now_ms - 1, false)), Strict, false),
        // Silent: it may be suspended, with all its connections.
        (Some(node("1", NodeState::Active, now_ms - 3_001, false)), Soft, true),
        (Some(node("1", NodeState::Active, now_ms - 3_001, false)), Strict, false),
        (Some(node("1", NodeState::Left, now_ms - 1, true)), Strict, true),
        (Some(node("1", NodeState::Left, now_ms - 1, false)), Strict, true),
        (Some(node("2", NodeState::Active, now_ms - 1, false)), Strict, true),
        (None, Strict, true),
    ] {
        let nodes = record.clone().map(|node| (node.id.clone(), node)).into_iter().collect();
        assert_eq!(is_free(&row, &nodes, judge, scope), expected, "{record:?} {scope:?}");
    }
}

/// Nodes of one PostgreSQL, each with a membership of its own.
async fn members(count: usize) -> (Arc<Postgres>, SqlStore, Vec<NodeMembership>) {
    let server = tokio::task::spawn_blocking(Postgres::shared).await.unwrap();
    let config = StoreConfig::new(StoreUrl::Postgres(server.database()));
    let store = SqlStore::open(config, &mut Registry::default()).await.unwrap();
    let mut members = Vec::new();
    for at in 0..count {
        let (run, description) = (run(at, 1), NodeDescription::default());
        let lease = Duration::from_secs(60);
        members.push(NodeMembership::join(&store, run, &description, lease).await.unwrap());
    }
    (server, store, members)
}

fn used(limit: u32, bound: u32, used: u32, needed: u32) -> Vec<LimitUse> {
    ["b", "a"]
        .map(|name| LimitUse { resource: name.to_owned(), limit, bound, used, needed })
        .to_vec()
}

/// Settles two limits alike, and returns the parts.
async fn parts(shares: &LimitShares, limit: u32, bound: u32, in_use: u32, needed: u32) -> Vec<u32> {
    let grants = shares.settle(&used(limit, bound, in_use, needed)).await.unwrap();
    grants.into_iter().map(|grant| grant.part).collect()
}

#[tokio::test]
async fn nodes_of_one_store_share_a_limit() {
    let (_server, store, members) = members(2).await;
    let mut shares = Vec::new();
    for member in &members {
        assert!(LimitShares::open(&store, member, LimitScope::Node).await.unwrap().is_none());
        shares.push(LimitShares::open(&store, member, LimitScope::Strict).await.unwrap().unwrap());
    }
    let [first, second] = [&shares[0], &shares[1]];
    assert_eq!(parts(first, 10, 0, 0, 10).await, [10, 10]);
    // Nothing is free before the first node has given a part up, which takes two steps.
    assert_eq!(parts(second, 10, 0, 0, 10).await, [0, 0]);
    assert_eq!(parts(first, 10, 10, 8, 10).await, [5, 5]);
    assert_eq!(parts(second, 10, 0, 0, 10).await, [0, 0]);
    assert_eq!(parts(first, 10, 5, 6, 10).await, [5, 5]);
    assert_eq!(parts(second, 10, 0, 0, 10).await, [4, 4]);
    assert_eq!(parts(first, 10, 5, 5, 10).await, [5, 5]);
    assert_eq!(parts(second, 10, 4, 4, 10).await, [5, 5]);
    // A lowered limit takes effect as connections are returned.
    assert_eq!(parts(first, 4, 5, 5, 10).await, [2, 2]);
    // A node that leaves gives its whole part to the other.
    members[1].leave().await;
    assert_eq!(parts(first, 10, 2, 2, 10).await, [10, 10]);
    assert_eq!(parts(first, 10, 0, 0, 0).await, [0, 0]);
    let left =
        store.read("test", |it| it.query("SELECT node FROM cove_limit_shares", &[])).await.unwrap();
    assert!(left.is_empty());
}

#[tokio::test]
async fn nodes_that_settle_at_once_wait_for_each_other() {
    let (_server, store, members) = members(4).await;
    let mut tasks = tokio::task::JoinSet::new();
    for member in members {
        let shares = LimitShares::open(&store, &member, LimitScope::Soft).await.unwrap().unwrap();
        tasks.spawn(async move {
            let mut bound = 0;
            for _ in 0..25 {
                let uses = used(10, bound, bound, 10);
                let parts = shares.settle(&uses).await.unwrap();
                bound = parts[0].part;
            }
            bound
        });
    }
    let parts: Vec<u32> = tasks.join_all().await;
    let (most, sum) = (parts.iter().max().unwrap(), parts.iter().sum::<u32>());
    assert!(sum <= 40 && *most <= 10, "{parts:?}");
    let row = store
        .read("test", |it| {
            it.query_one("SELECT CAST(count(*) AS BIGINT) FROM cove_limit_shares", &[])
        })
        .await
        .unwrap();
    assert_eq!(row.unwrap().get::<u64>(0).unwrap(), 8);
}

/// A node knows the use of the others, and whether they have reported it since its request.
#[tokio::test]
async fn a_node_is_told_what_the_others_use_and_since_when() {
    let (_server, store, members) = members(2).await;
    let mut shares = Vec::new();
    for member in &members {
        shares.push(LimitShares::open(&store, member, LimitScope::Strict).await.unwrap().unwrap());
    }
    let settle = async |node: usize, bound, in_use, needed| {
        shares[node].settle(&used(4, bound, in_use, needed)).await.unwrap()[0]
    };
    let alone = settle(0, 0, 0, 4).await;
    let expected = LimitGrant { part: 4, used_elsewhere: 0, round: 1, heard_elsewhere: u64::MAX };
    assert_eq!(alone, expected);
    let asked = settle(1, 0, 0, 1).await;
    let expected = LimitGrant { part: 0, used_elsewhere: 4, round: 2, heard_elsewhere: 1 };
    assert_eq!(asked, expected);
    assert_eq!(shares[0].wanted_elsewhere("a").await.unwrap(), ["a"]);
    assert_eq!(shares[0].wanted_elsewhere("c").await.unwrap(), [""; 0]);
    // All of it is used: there is nothing to wait for.
    assert_eq!(settle(0, 4, 4, 4).await.part, 3);
    let told = settle(1, 0, 0, 1).await;
    assert_eq!((told.used_elsewhere, told.heard_elsewhere > asked.round), (4, true));
    // A part that is kept and not needed is about to become free.
    assert_eq!(settle(0, 3, 2, 2).await.part, 3);
    let told = settle(1, 0, 0, 1).await;
    assert_eq!((told.part, told.used_elsewhere), (1, 2));
}
