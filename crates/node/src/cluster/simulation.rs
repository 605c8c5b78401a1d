//! Simulation of a whole cluster: up to ten thousand nodes on one store, by a heap of events.
//!
//! The decision rules are those of the crate itself: leases ([`super::ServingLease`]), the store's
//! clock ([`crate::clock::SharedClock`]), judgement of nodes ([`super::takeover`]), rendezvous
//! hashing ([`super::placement`]) and parts of limits ([`super::limit_shares`]). SQL statements and
//! parts of the sessions crate are modelled, and each model names its original. Two nodes that may
//! act for one session are detected at the moment at which the second one may. A failure names its
//! seed; seeds that have found a defect are run first.

mod acts;
mod faults;
mod ledger;
mod node;
mod schedule;
mod store;
mod world;

use self::ledger::InvariantViolation;
use self::world::SimulatedWorld;
use super::placement;
use super::placement::WorkKind;
use super::record::{NodeDescription, NodeRecord};
use super::takeover::{FIRST_CHOICE_MAX, NodeFate, NodeJudge, StoreContinuity};

/// Reading of the store's clock at the start.
const START_MS: u64 = 1_000_000_000;
/// Milliseconds without faults in which everything settles: a node that dies before its first
/// renewal counts as alive for [`super::NODE_LEASE`], and the store may have been down just before.
const QUIET_MS: u64 = 38_000;

/// Faults of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedFaults {
    /// All but a store that loses commits.
    All,
    /// All, and a store that is replaced by one without its last commits.
    Failover,
    /// Nodes die, and nothing else fails.
    Kills,
    /// The store fails and recovers; nodes do not fail.
    StoreAlone,
}

impl SimulatedFaults {
    fn loses_requests(self) -> bool {
        matches!(self, SimulatedFaults::All | SimulatedFaults::Failover)
    }

    fn forgets(self) -> bool {
        self == SimulatedFaults::Failover
    }
}

/// A broken rule, to check that the simulation detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokenRule {
    /// A lease counts from the answer to its renewal.
    LeaseFromAnswer,
    /// A lease counts by a clock that stops while the machine is suspended.
    LeaseStandsStill,
    /// The store's clock advances by that one.
    ClockStandsStill,
    /// Nodes count as lost half a lease early.
    EarlyClaims,
    /// A node takes over even if the store was just down.
    NoContinuity,
    /// A node whose lease had ended continues without comparing its sessions.
    NoVerification,
    /// A claim from before the end of the lease is kept although its answer arrives after it.
    LateClaims,
    /// A replaced server of the store is taken for the same.
    TrustedFailover,
    /// Parts of a limit are granted without regard to the other parts.
    SharesWithoutSum,
}

/// Rules of the nodes.
#[derive(Clone, Copy, Debug, Default)]
struct SimulatedRules {
    broken: Option<BrokenRule>,
    lease_ms: u64,
}

impl SimulatedRules {
    fn breaks(&self, rule: BrokenRule) -> bool {
        self.broken == Some(rule)
    }

    fn lease_counts_from_answer(&self) -> bool {
        self.breaks(BrokenRule::LeaseFromAnswer)
    }

    fn lease_stands_still(&self) -> bool {
        self.breaks(BrokenRule::LeaseStandsStill)
    }

    fn clock_stands_still(&self) -> bool {
        self.breaks(BrokenRule::ClockStandsStill)
    }

    fn skips_verification(&self) -> bool {
        self.breaks(BrokenRule::NoVerification)
    }

    fn keeps_late_claims(&self) -> bool {
        self.breaks(BrokenRule::LateClaims)
    }

    fn trusts_new_store(&self) -> bool {
        self.breaks(BrokenRule::TrustedFailover)
    }

    fn ignores_other_shares(&self) -> bool {
        self.breaks(BrokenRule::SharesWithoutSum)
    }

    /// Returns the knowledge by which a node judges others.
    fn judge(
        &self,
        continuity: &StoreContinuity,
        boot_ms: u64,
        store_ms: u64,
        lease_ms: u64,
    ) -> NodeJudge {
        match self.breaks(BrokenRule::NoContinuity) {
            true => NodeJudge::new(store_ms, Some(u64::MAX)),
            false => continuity.judge(boot_ms, store_ms, lease_ms),
        }
    }

    /// Returns the time by which a node is judged.
    fn judged_ms(&self, judge: NodeJudge) -> u64 {
        let early_ms = if self.breaks(BrokenRule::EarlyClaims) { self.lease_ms / 2 } else { 0 };
        judge.now_ms() + early_ms
    }

    fn fate(&self, judge: NodeJudge, node: &NodeRecord) -> NodeFate {
        match self.breaks(BrokenRule::EarlyClaims) {
            true => NodeJudge::new(self.judged_ms(judge), Some(u64::MAX)).fate(node),
            false => judge.fate(node),
        }
    }
}

/// Parameters of one run of the simulation.
#[derive(Clone, Copy, Debug)]
struct SimulationPlan {
    seed: u64,
    nodes: usize,
    sessions_per_node: usize,
    lease_ms: u64,
    faults: SimulatedFaults,
    rules: SimulatedRules,
    /// Milliseconds with faults, then milliseconds without faults in which everything must settle,
    /// and milliseconds between two faults.
    faults_ms: u64,
    quiet_ms: u64,
    fault_gap_ms: u64,
}

impl SimulationPlan {
    /// Creates the plan of a seed.
    fn of(seed: u64, nodes: usize) -> SimulationPlan {
        let faults = match seed % 6 {
            0 => SimulatedFaults::StoreAlone,
            1 => SimulatedFaults::Kills,
            2 | 3 => SimulatedFaults::Failover,
            _ => SimulatedFaults::All,
        };
        let lease_ms = match nodes {
            0..1_000 => [1_500, 3_000][usize::from(seed % 5 > 1)],
            1_000..5_000 => 4_000,
            _ => 10_000,
        };
        SimulationPlan {
            seed,
            nodes,
            sessions_per_node: 4,
            lease_ms,
            faults,
            rules: SimulatedRules { broken: None, lease_ms },
            faults_ms: if nodes < 1_000 { 10 * lease_ms } else { 4 * lease_ms },
            quiet_ms: QUIET_MS + 4 * lease_ms,
            fault_gap_ms: if faults == SimulatedFaults::Kills { 2 * lease_ms / 3 } else { 300 },
        }
    }

    fn breaking(self, rule: BrokenRule) -> SimulationPlan {
        let rules = SimulatedRules { broken: Some(rule), ..self.rules };
        SimulationPlan { rules, ..self }
    }

    /// Number of nodes that use a resource limited over all nodes.
    fn limited_nodes(&self) -> usize {
        self.nodes.min(12)
    }

    fn limit(&self) -> u32 {
        [5, 20, 90][usize::try_from(self.seed % 3).expect("it is small")]
    }

    /// Milliseconds after which a session must have a living owner again, if nothing but deaths
    /// happens: its owner's lease, a look by all nodes, the time of the first choice, which may be
    /// dead as well, and another look, each with the round trips to the store.
    fn owned_again_max_ms(&self) -> Option<u64> {
        let first_ms = u64::try_from(FIRST_CHOICE_MAX.as_millis()).expect("it is short");
        (self.faults == SimulatedFaults::Kills)
            .then_some(self.lease_ms + first_ms + self.lease_ms + 1_000)
    }

    /// Maximum number of requests to the store within one lease because nodes were lost: each node
    /// searches for the sessions of each lost one twice, and again after each failure; sessions
    /// left over are claimed by all nodes at once. In the worst case all losses of four leases
    /// coincide.
    fn herd_max(&self) -> usize {
        let losses = usize::try_from(4 * self.lease_ms / self.fault_gap_ms + 1).expect("few");
        losses * (2 * self.nodes + 2 * self.sessions_per_node)
    }

    fn run(self) -> Result<SimulatedWorld, InvariantViolation> {
        let mut world = SimulatedWorld::new(self);
        world.run().map(|()| world)
    }
}

fn description() -> NodeDescription {
    NodeDescription {
        peer_address: Some("10.0.0.1:4190".to_owned()),
        roles: vec![WorkKind::Session.role().to_owned()],
        ..NodeDescription::default()
    }
}

fn is_session_node(node: &NodeRecord, now_ms: u64) -> bool {
    placement::is_place(node, "", WorkKind::Session, now_ms)
}

#[cfg(test)]
mod tests;
