//! What must hold, whatever happens.

use std::collections::{BTreeMap, HashSet};

use super::store::{MoveReason, NodeIndex, SessionIndex, SessionMove};

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvariantViolation {
    /// Two nodes may act for a session.
    TwoServe { session: SessionIndex, nodes: [NodeIndex; 2] },
    /// A node acts for a session at an epoch before one at which somebody has acted.
    OldEpoch { session: SessionIndex, node: NodeIndex, epoch: u64, latest: u64 },
    /// A session was taken from a node that may act for it.
    TakenFromServing { session: SessionIndex, from: NodeIndex, to: NodeIndex },
    /// A session was taken over twice from one run of a node.
    MovedTwice { session: SessionIndex, from: NodeIndex },
    /// A session was taken over although no node had anything but a store that was away.
    MovedForNothing { session: SessionIndex, from: NodeIndex },
    /// All nodes together use more of something than there is.
    LimitExceeded { used: u32, limit: u32 },
    /// A session was without a living owner for too long.
    OwnedLate { session: SessionIndex, after_ms: u64 },
    /// A session has no living owner in the end.
    LeftBehind { session: SessionIndex, owner: NodeIndex },
    /// More is asked of the store because of losses than is bearable.
    Herd { requests: usize, bound: usize },
}

#[derive(Debug, Default)]
pub(super) struct SimulationLedger {
    /// Latest epoch at which somebody may have acted for a session.
    epochs: Vec<u64>,
    /// Nodes that have a session in memory.
    holders: Vec<Vec<NodeIndex>>,
    /// Since when a session has no living owner.
    free_ms: Vec<Option<u64>>,
    /// Takeovers by session, run, and when that was seen last: one that comes back may be lost
    /// again.
    moved: HashSet<(SessionIndex, String, u64)>,
    /// Requests because of losses, by time in leases.
    herd: BTreeMap<u64, usize>,
    pub(super) moves: u64,
    pub(super) longest_ms: u64,
}

impl SimulationLedger {
    pub(super) fn new(sessions: usize) -> SimulationLedger {
        SimulationLedger {
            epochs: vec![1; sessions],
            holders: vec![Vec::new(); sessions],
            free_ms: vec![None; sessions],
            ..SimulationLedger::default()
        }
    }

    pub(super) fn hold(&mut self, session: SessionIndex, node: NodeIndex) {
        if !self.holders[session].contains(&node) {
            self.holders[session].push(node);
        }
    }

    pub(super) fn leave(&mut self, session: SessionIndex, node: NodeIndex) {
        self.holders[session].retain(|holder| *holder != node);
    }

    /// Returns the nodes that have a session in memory.
    pub(super) fn holders(&self, session: SessionIndex) -> &[NodeIndex] {
        &self.holders[session]
    }

    /// Notes that a node may act for a session at an epoch, and checks that no later one was acted
    /// at before: but a store that forgets gives an epoch twice.
    pub(super) fn note_act(
        &mut self,
        session: SessionIndex,
        node: NodeIndex,
        epoch: u64,
        store_forgets: bool,
    ) -> Result<(), InvariantViolation> {
        let latest = self.epochs[session];
        if epoch < latest && !store_forgets {
            return Err(InvariantViolation::OldEpoch { session, node, epoch, latest });
        }
        self.epochs[session] = epoch;
        Ok(())
    }

    /// Notes that a session has no living owner from now on.
    pub(super) fn note_free(&mut self, session: SessionIndex, now_ms: u64) {
        self.free_ms[session].get_or_insert(now_ms);
    }

    /// Counts a request because of a loss, within this lease of those since the beginning.
    pub(super) fn count_loss_request(&mut self, lease: u64) {
        *self.herd.entry(lease).or_default() += 1;
    }

    /// Checks that there were never more of them within a lease than bearable.
    pub(super) fn check_herd(&self, bound: usize) -> Result<(), InvariantViolation> {
        match self.herd.values().copied().find(|requests| *requests > bound) {
            Some(requests) => Err(InvariantViolation::Herd { requests, bound }),
            None => Ok(()),
        }
    }

    /// Notes that a session has a living owner from now on.
    pub(super) fn is_owned(&mut self, session: SessionIndex, now_ms: u64) -> u64 {
        let after_ms = self.free_ms[session].take().map_or(0, |free_ms| now_ms - free_ms);
        self.longest_ms = self.longest_ms.max(after_ms);
        after_ms
    }

    /// Notes a move from a run of a node that was seen last then.
    pub(super) fn note_move(
        &mut self,
        it: SessionMove,
        run: String,
        seen_ms: u64,
    ) -> Result<(), InvariantViolation> {
        self.moves += 1;
        let is_first =
            it.reason != MoveReason::TakenOver || self.moved.insert((it.session, run, seen_ms));
        match is_first {
            true => Ok(()),
            false => Err(InvariantViolation::MovedTwice { session: it.session, from: it.from }),
        }
    }
}
