//! Leases and claims of a cluster, step by step, with a store that goes away, answers that take
//! their time, nodes that stand still and nodes that die. A failure names its seed and its time.

use std::collections::HashMap;

use super::*;
use crate::cluster::{LEASE_MARGIN, NodeDescription, NodeLoad};
use crate::testing::SeededRandom;

const SEEDS: u64 = 200;
const SESSIONS: usize = 24;
/// Milliseconds of a step, of the part with faults, and of the one behind it in which everything
/// must come to its end.
const STEP_MS: u64 = 50;
const FAULTS_MS: u64 = 30_000;
const QUIET_MS: u64 = 20_000;
/// What two nodes make of the store's clock differs by so much at most: twice that is less than the
/// margin of a lease.
const CLOCK_MS: u64 = 100;
/// Time for a renewal to be answered, on a bad day and on a good one.
const ANSWER_MS: u64 = 1_200;
const QUICK_ANSWER_MS: u64 = 200;
/// Sessions that a node claims in a step.
const CLAIMED_MAX: usize = 8;
/// Beginning of time, so that clocks may be behind.
const START_MS: u64 = 1_000_000;

/// A renewal on its way.
struct SimulatedRenewal {
    sent_ms: u64,
    executed_ms: u64,
    answered_ms: u64,
    /// True when the store has taken it.
    is_taken: bool,
}

struct SimulatedNode {
    id: String,
    lease_ms: u64,
    /// What it makes of the store's clock, as a distance above the least.
    clock_ms: u64,
    is_dead: bool,
    died_ms: u64,
    still_until_ms: u64,
    next_ms: u64,
    renewal: Option<SimulatedRenewal>,
    serving_until_ms: u64,
    continuity: StoreContinuity,
    nodes: Vec<NodeRecord>,
    /// When it saw first that a node was lost.
    lost: HashMap<String, u64>,
    /// Sessions that it believes to have, by their epochs.
    sessions: HashMap<usize, u64>,
}

#[derive(Clone, Copy, PartialEq)]
struct SimulatedSession {
    owner: usize,
    epoch: u64,
    free_ms: Option<u64>,
}

/// Faults that a world has.
#[derive(Clone, Copy, PartialEq)]
enum SimulatedFaults {
    All,
    StoreAlone,
}

struct World {
    seed: u64,
    chance: SeededRandom,
    now_ms: u64,
    away_until_ms: u64,
    nodes: Vec<SimulatedNode>,
    rows: Vec<NodeRecord>,
    sessions: Vec<SimulatedSession>,
    faults: SimulatedFaults,
    moves: u64,
    longest_ms: u64,
}

impl World {
    fn new(seed: u64, faults: SimulatedFaults) -> World {
        let mut chance = SeededRandom(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let count = usize::try_from(2 + chance.below(5)).unwrap();
        let lease_ms = [1_500, 3_000][usize::try_from(chance.below(2)).unwrap()];
        let now_ms = START_MS;
        let mut nodes = Vec::new();
        let mut rows = Vec::new();
        for index in 0..count {
            let id = format!("srv_{index}");
            rows.push(NodeRecord {
                id: id.clone(),
                incarnation: format!("run_{index}"),
                started_ms: now_ms,
                seen_ms: now_ms,
                state: NodeState::Active,
                drain_wanted: false,
                description: NodeDescription::default(),
                load: NodeLoad { lease_ms, ..NodeLoad::default() },
            });
            nodes.push(SimulatedNode {
                id,
                lease_ms,
                clock_ms: chance.below(CLOCK_MS),
                is_dead: false,
                died_ms: 0,
                still_until_ms: 0,
                next_ms: now_ms + chance.below(lease_ms / 5),
                renewal: None,
                serving_until_ms: now_ms + lease_ms / 2,
                continuity: StoreContinuity::default(),
                nodes: Vec::new(),
                lost: HashMap::new(),
                sessions: HashMap::new(),
            });
        }
        let mut sessions = Vec::new();
        for session in 0..SESSIONS {
            let owner = usize::try_from(chance.below(count as u64)).unwrap();
            nodes[owner].sessions.insert(session, 1);
            sessions.push(SimulatedSession { owner, epoch: 1, free_ms: None });
        }
        let (away_until_ms, moves, longest_ms) = (0, 0, 0);
        World {
            seed,
            chance,
            now_ms,
            away_until_ms,
            nodes,
            rows,
            sessions,
            faults,
            moves,
            longest_ms,
        }
    }

    fn is_away(&self) -> bool {
        self.now_ms < self.away_until_ms
    }

    fn fail(&mut self) {
        if self.chance.is_one_in(200) {
            self.away_until_ms = self.now_ms + self.chance.below(8_000);
        }
        if self.faults == SimulatedFaults::StoreAlone {
            return;
        }
        let index = usize::try_from(self.chance.below(self.nodes.len() as u64)).unwrap();
        let living = self.nodes.iter().filter(|node| !node.is_dead).count();
        if self.chance.is_one_in(100) {
            let lease_ms = self.nodes[index].lease_ms;
            let still_ms = [lease_ms / 2, lease_ms * 3 / 2, lease_ms * 10]
                [usize::try_from(self.chance.below(3)).unwrap()];
            self.nodes[index].still_until_ms = self.now_ms + still_ms;
        }
        if living > 1 && !self.nodes[index].is_dead && self.chance.is_one_in(150) {
            self.nodes[index].is_dead = true;
            self.nodes[index].died_ms = self.now_ms;
            for session in &mut self.sessions {
                if session.owner == index {
                    session.free_ms = Some(self.now_ms);
                }
            }
        }
    }

    fn step(&mut self, has_faults: bool) {
        self.now_ms += STEP_MS;
        if has_faults {
            self.fail();
        }
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_dead {
                self.renew(index, has_faults);
            }
        }
        // Somebody is refused where a dead node was, unless he does not look.
        if !self.is_away() {
            for index in 0..self.nodes.len() {
                let is_found = self.nodes[index].is_dead && self.chance.is_one_in(20);
                if is_found && index % 2 == 0 {
                    self.rows[index].state = NodeState::Left;
                    self.rows[index].load.is_lost = true;
                }
            }
        }
        self.check();
    }

    /// What one node does, and what the store does for it.
    fn renew(&mut self, index: usize, has_faults: bool) {
        let (now_ms, is_away) = (self.now_ms, self.is_away());
        let node = &mut self.nodes[index];
        // What was sent arrives, whether or not its sender stands still.
        if let Some(renewal) = &mut node.renewal
            && !renewal.is_taken
            && renewal.executed_ms <= now_ms
            && !is_away
        {
            renewal.is_taken = true;
            self.rows[index].seen_ms = renewal.sent_ms + node.clock_ms;
        }
        if now_ms < node.still_until_ms {
            return;
        }
        match &node.renewal {
            None if node.next_ms <= now_ms => {
                let is_slow = has_faults && self.faults == SimulatedFaults::All;
                let slow = if is_slow { ANSWER_MS } else { QUICK_ANSWER_MS };
                let executed_ms = now_ms + self.chance.below(slow) / 2;
                let answered_ms = executed_ms + self.chance.below(slow) / 2;
                let renewal =
                    SimulatedRenewal { sent_ms: now_ms, executed_ms, answered_ms, is_taken: false };
                node.renewal = Some(renewal);
            }
            Some(renewal) if renewal.answered_ms <= now_ms => {
                let (sent_ms, is_taken) = (renewal.sent_ms, renewal.is_taken);
                node.renewal = None;
                node.next_ms = now_ms + node.lease_ms / 5;
                if is_taken {
                    self.renewed(index, sent_ms);
                }
            }
            None | Some(_) => {}
        }
    }

    fn renewed(&mut self, index: usize, sent_ms: u64) {
        let (now_ms, sessions) = (self.now_ms, &self.sessions);
        let node = &mut self.nodes[index];
        let margin_ms = u64::try_from(LEASE_MARGIN.as_millis()).unwrap();
        if node.serving_until_ms <= now_ms {
            // It compares what it has before it goes on.
            node.sessions.retain(|session, epoch| {
                sessions[*session].owner == index && sessions[*session].epoch == *epoch
            });
        }
        node.serving_until_ms = node.serving_until_ms.max(sent_ms + node.lease_ms - margin_ms);
        node.continuity.renewed(now_ms, node.lease_ms);
        node.nodes.clone_from(&self.rows);
        self.take_over(index);
    }

    fn judge(&self, index: usize) -> NodeJudge {
        let node = &self.nodes[index];
        let covered_ms = node.continuity.covered_ms(self.now_ms, node.lease_ms);
        NodeJudge::new(self.now_ms + node.clock_ms, covered_ms)
    }

    fn take_over(&mut self, index: usize) {
        let judge = self.judge(index);
        let own = self.nodes[index].id.clone();
        let seen = self.nodes[index].nodes.clone();
        let living: Vec<String> = seen
            .iter()
            .filter(|node| node.id == own || node.is_alive(judge.now_ms()))
            .map(|node| node.id.clone())
            .collect();
        let mut claimed = 0;
        for (lost, record) in seen.iter().enumerate() {
            if lost == index || !judge.fate(record).is_lost() {
                self.nodes[index].lost.remove(&record.id);
                continue;
            }
            let now_ms = self.now_ms;
            let since_ms = *self.nodes[index].lost.entry(record.id.clone()).or_insert(now_ms);
            let lost_for = Duration::from_millis(now_ms - since_ms);
            for session in 0..self.sessions.len() {
                let is_its = self.sessions[session].owner == lost;
                let key = format!("ses_{session}");
                if !is_its || !is_own_turn(&key, &own, &living, lost_for) || claimed >= CLAIMED_MAX
                {
                    continue;
                }
                // The store compares once more.
                if self.is_away() || !judge.fate(&self.rows[lost]).is_lost() {
                    continue;
                }
                claimed += 1;
                self.moves += 1;
                let free_ms = self.sessions[session].free_ms.take();
                self.longest_ms = self.longest_ms.max(free_ms.map_or(0, |free| now_ms - free));
                let epoch = self.sessions[session].epoch + 1;
                self.sessions[session] = SimulatedSession { owner: index, epoch, free_ms: None };
                self.nodes[index].sessions.insert(session, epoch);
            }
        }
    }

    fn check(&self) {
        let mut serving = [None; SESSIONS];
        for (index, node) in self.nodes.iter().enumerate() {
            let acts = !node.is_dead
                && self.now_ms >= node.still_until_ms
                && self.now_ms < node.serving_until_ms;
            for session in node.sessions.keys().filter(|_| acts) {
                let before = serving[*session].replace(index);
                assert_eq!(
                    before,
                    None,
                    "seed {}, {} ms: two serve session {session}",
                    self.seed,
                    self.now_ms - START_MS
                );
            }
        }
    }
}

/// However leases end, no two nodes serve a session, and every session of a node that has died is
/// another one's in the end.
#[test]
fn no_two_nodes_serve_a_session_and_none_is_left_behind() {
    let (mut moves, mut longest_ms) = (0, 0);
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, SimulatedFaults::All);
        for _ in 0..FAULTS_MS / STEP_MS {
            world.step(true);
        }
        // Whatever stands still goes on, and the store stays.
        world.away_until_ms = 0;
        for node in &mut world.nodes {
            node.still_until_ms = 0;
        }
        for _ in 0..QUIET_MS / STEP_MS {
            world.step(false);
        }
        for (session, at) in world.sessions.iter().enumerate() {
            let owner = &world.nodes[at.owner];
            assert!(!owner.is_dead, "seed {seed}: session {session} is left behind");
            let epoch = owner.sessions.get(&session);
            assert_eq!(epoch, Some(&at.epoch), "seed {seed}: nobody serves session {session}");
        }
        moves += world.moves;
        longest_ms = longest_ms.max(world.longest_ms);
    }
    assert!(moves > SEEDS * 10, "hardly anything was taken over: {moves}");
    // A store that was away, a lease of waiting, one to be found out, and the second choice.
    assert!(longest_ms < FAULTS_MS + QUIET_MS, "{longest_ms}");
}

/// All nodes are late when the store was away, and none of them is lost.
#[test]
fn a_store_that_was_away_moves_no_session() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, SimulatedFaults::StoreAlone);
        let before = world.sessions.clone();
        for _ in 0..FAULTS_MS / STEP_MS {
            world.step(true);
        }
        world.away_until_ms = 0;
        for _ in 0..QUIET_MS / STEP_MS {
            world.step(false);
        }
        assert!(world.sessions == before, "seed {seed}: {} sessions have moved", world.moves);
    }
}

/// One node of many dies: each session is taken once, and no node takes much more than its part.
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
    assert!(taken.len() == 9 && taken.values().all(|count| (60..150).contains(count)), "{taken:?}");
}
