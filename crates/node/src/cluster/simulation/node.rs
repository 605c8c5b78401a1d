//! A node of the simulation: its clocks, its links, and what its process knows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use super::store::{SessionIndex, SimulatedSnapshot, StoreRequest};
use crate::clock::SharedClock;
use crate::cluster::serving_lease::{LeaseVerifier, ServingLease};
use crate::cluster::takeover::{FIRST_CHOICE_MAX, StoreContinuity};

/// Most by which a clock is too fast or too slow, in millionths.
pub(super) const DRIFT_MAX: u64 = 200;

/// Clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedClocks {
    /// `CLOCK_BOOTTIME` at the beginning of time.
    pub(super) boot_ms: u64,
    /// Millionths by which it is too fast, beyond [`DRIFT_MAX`] too slow.
    pub(super) drift: u64,
    /// Wall clock, which nobody should ask.
    pub(super) wall_ms: u64,
    /// Time for which the machine was suspended: `CLOCK_MONOTONIC` did not go on.
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

/// A request on its way, or an answer to it.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) connection: StoreConnection,
    pub(super) request: StoreRequest,
    /// When it is given up.
    pub(super) until_ms: u64,
}

/// What was done about a lost run of a node (`LossProgress` of `sessions::service::takeover`).
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedLoss {
    pub(super) since_ms: u64,
    /// True when nothing is left for the pass of the first choice, and of everybody.
    pub(super) done: [bool; 2],
    pub(super) is_busy: bool,
}

/// What of something limited a process uses.
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
    /// Sessions that it works with, by their epochs.
    pub(super) sessions: BTreeMap<SessionIndex, u64>,
    /// Sessions that it looks for, or claims.
    pub(super) loading: BTreeSet<SessionIndex>,
    pub(super) pending: HashMap<u64, PendingRequest>,
    /// Servers of the store that its connections are to; none for one that is yet to be made.
    pub(super) connected: HashMap<StoreConnection, u64>,
    /// Server of the store that it knew last.
    pub(super) generation: Option<u64>,
    pub(super) share: SimulatedShare,
}

impl SimulatedProcess {
    /// Begins a run of a node.
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

    /// Notes that a connection is to this server of the store. Returns whether that is another one
    /// than it knew.
    pub(super) fn connect(&mut self, connection: StoreConnection, generation: u64) -> bool {
        self.connected.insert(connection, generation);
        self.generation.replace(generation).is_some_and(|before| before != generation)
    }

    /// Ends a connection: the next one may be to another server.
    pub(super) fn disconnect(&mut self, connection: StoreConnection) {
        self.connected.remove(&connection);
        self.clock.expire();
    }

    /// Ends a look for what a lost run had. Nothing is left for the pass of the time that is given;
    /// without one the store is asked again.
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
    /// Until when nothing goes to the store, comes from it, and passes to peers.
    pub(super) forth_cut_ms: u64,
    pub(super) back_cut_ms: u64,
    pub(super) peers_cut_ms: u64,
    /// Until when answers by other connections than that for renewals wait behind others.
    pub(super) busy_until_ms: u64,
}

impl SimulatedNode {
    pub(super) fn is_paused(&self, now_ms: u64) -> bool {
        now_ms < self.paused_until_ms
    }

    /// Clock by which its leases count.
    pub(super) fn lease_clock(&self, now_ms: u64, stands_still: bool) -> u64 {
        match stands_still {
            true => self.clocks.monotonic(now_ms),
            false => self.clocks.boot(now_ms),
        }
    }

    /// Returns whether it may act for what it has.
    pub(super) fn may_act(&self, now_ms: u64, stands_still: bool) -> bool {
        let Some(process) = &self.process else { return false };
        let clock_ms = self.lease_clock(now_ms, stands_still);
        !self.is_paused(now_ms) && process.serving.remaining_at(clock_ms) > Duration::ZERO
    }

    pub(super) fn has_peers(&self, now_ms: u64) -> bool {
        now_ms >= self.peers_cut_ms
    }
}
