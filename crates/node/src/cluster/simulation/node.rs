//! A node of the simulation: its clocks, its links, and its process's knowledge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use super::store::{SessionIndex, SimulatedSnapshot, StoreRequest};
use crate::clock::SharedClock;
use crate::cluster::serving_lease::{LeaseVerifier, ServingLease};
use crate::cluster::takeover::{FIRST_CHOICE_MAX, StoreContinuity};

/// Maximum drift of a clock, in millionths.
pub(super) const DRIFT_MAX: u64 = 200;

/// Clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedClocks {
    /// `CLOCK_BOOTTIME` at the start.
    pub(super) boot_ms: u64,
    /// Millionths by which it is too fast, beyond [`DRIFT_MAX`] too slow.
    pub(super) drift: u64,
    /// Wall clock, which no component should read.
    pub(super) wall_ms: u64,
    /// Time for which the machine was suspended: `CLOCK_MONOTONIC` stood still.
    pub(super) suspended_ms: u64,
}

impl SimulatedClocks {
    pub(super) fn boot(&self, now_ms: u64) -> u64 {
        self.boot_ms + now_ms - now_ms * DRIFT_MAX / 1_000_000 + now_ms * self.drift / 1_000_000
    }

    pub(super) fn monotonic(&self, now_ms: u64) -> u64 {
        self.boot(now_ms).saturating_sub(self.suspended_ms)
    }
}

/// A connection of a process to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StoreConnection {
    /// The one for renewals alone ([`crate::store::SqlStore::reserved`]).
    Reserved,
    Shared,
}

/// A request in flight, or its answer.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) connection: StoreConnection,
    pub(super) request: StoreRequest,
    /// Time at which the request times out.
    pub(super) until_ms: u64,
}

/// Progress of the takeover from a lost run of a node (`LossProgress` of
/// `sessions::service::takeover`).
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedLoss {
    pub(super) since_ms: u64,
    /// True if nothing is left for the pass of the first choice, and for the pass of all nodes.
    pub(super) done: [bool; 2],
    pub(super) is_busy: bool,
}

/// A process's use of the limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SimulatedShare {
    pub(super) bound: u32,
    pub(super) used: u32,
    pub(super) needed: u32,
    pub(super) is_settling: bool,
}

/// A run of a server.
#[derive(Debug)]
pub(super) struct SimulatedProcess {
    pub(super) number: u32,
    pub(super) serving: ServingLease,
    pub(super) verifier: LeaseVerifier,
    pub(super) clock: SharedClock,
    pub(super) continuity: StoreContinuity,
    pub(super) snapshot: Option<Rc<SimulatedSnapshot>>,
    pub(super) is_registered: bool,
    pub(super) is_renewing: bool,
    pub(super) is_verifying: bool,
    pub(super) is_draining: bool,
    pub(super) takes_work: bool,
    pub(super) losses: HashMap<String, SimulatedLoss>,
    /// Sessions that it owns, by their epochs.
    pub(super) sessions: BTreeMap<SessionIndex, u64>,
    /// Sessions that it looks up, or claims.
    pub(super) loading: BTreeSet<SessionIndex>,
    pub(super) pending: HashMap<u64, PendingRequest>,
    /// Servers of the store that its connections lead to; none for a connection not yet made.
    pub(super) connected: HashMap<StoreConnection, u64>,
    /// Server of the store that it last connected to.
    pub(super) generation: Option<u64>,
    pub(super) share: SimulatedShare,
}

impl SimulatedProcess {
    /// Starts a run of a node.
    pub(super) fn begin(number: u32, lease_ms: u64) -> SimulatedProcess {
        let serving = ServingLease::of(Duration::from_millis(lease_ms));
        SimulatedProcess {
            number,
            verifier: serving.verify(),
            serving,
            clock: SharedClock::default(),
            continuity: StoreContinuity::default(),
            snapshot: None,
            is_registered: false,
            is_renewing: false,
            is_verifying: false,
            is_draining: false,
            takes_work: true,
            losses: HashMap::new(),
            sessions: BTreeMap::new(),
            loading: BTreeSet::new(),
            pending: HashMap::new(),
            connected: HashMap::new(),
            generation: None,
            share: SimulatedShare::default(),
        }
    }

    /// Records that a connection leads to this server of the store. Returns whether that is a
    /// different one than before.
    pub(super) fn connect(&mut self, connection: StoreConnection, generation: u64) -> bool {
        self.connected.insert(connection, generation);
        self.generation.replace(generation).is_some_and(|before| before != generation)
    }

    /// Ends a connection: the next one may be to another server.
    pub(super) fn disconnect(&mut self, connection: StoreConnection) {
        self.connected.remove(&connection);
        self.clock.expire();
    }

    /// Ends a takeover pass for a lost run. With `done_after`, nothing is left for the pass of that
    /// time; without it the store is queried again.
    pub(super) fn end_pass(&mut self, incarnation: &str, done_after: Option<Duration>) {
        let Some(loss) = self.losses.get_mut(incarnation) else { return };
        if let Some(lost_for) = done_after {
            loss.done[usize::from(lost_for >= FIRST_CHOICE_MAX)] = true;
        }
        loss.is_busy = false;
    }
}

/// A machine, its data directory and its links.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub(super) clocks: SimulatedClocks,
    pub(super) runs: u32,
    pub(super) process: Option<SimulatedProcess>,
    pub(super) paused_until_ms: u64,
    /// End of the time in which nothing goes to the store, comes from it, or passes to peers.
    pub(super) forth_cut_ms: u64,
    pub(super) back_cut_ms: u64,
    pub(super) peers_cut_ms: u64,
    /// End of the time in which answers on connections other than that for renewals queue up.
    pub(super) busy_until_ms: u64,
}

impl SimulatedNode {
    pub(super) fn is_paused(&self, now_ms: u64) -> bool {
        now_ms < self.paused_until_ms
    }

    /// Returns the clock by which its leases count.
    pub(super) fn lease_clock(&self, now_ms: u64, stands_still: bool) -> u64 {
        match stands_still {
            true => self.clocks.monotonic(now_ms),
            false => self.clocks.boot(now_ms),
        }
    }

    /// Returns whether it may act for its sessions.
    pub(super) fn may_act(&self, now_ms: u64, stands_still: bool) -> bool {
        let Some(process) = &self.process else { return false };
        let clock_ms = self.lease_clock(now_ms, stands_still);
        !self.is_paused(now_ms) && process.serving.remaining_at(clock_ms) > Duration::ZERO
    }

    pub(super) fn has_peers(&self, now_ms: u64) -> bool {
        now_ms >= self.peers_cut_ms
    }
}
