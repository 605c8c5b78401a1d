//! Invariants that must hold in every run.

use std::collections::{BTreeMap, HashSet};

use super::store::{MoveReason, NodeIndex, SessionIndex, SessionMove};

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvariantViolation {
    /// Two nodes may act for a session.
    TwoServe { session: SessionIndex, nodes: [NodeIndex; 2] },
    /// A node acts for a session at an epoch before the latest one at which a node has acted.
    OldEpoch { session: SessionIndex, node: NodeIndex, epoch: u64, latest: u64 },
    /// A session was taken from a node that may act for it.
    TakenFromServing { session: SessionIndex, from: NodeIndex, to: NodeIndex },
    /// A session was taken over twice from one run of a node.
    MovedTwice { session: SessionIndex, from: NodeIndex },
    /// A session was taken over although the only fault was the store's.
    MovedForNothing { session: SessionIndex, from: NodeIndex },
    /// All nodes together use more of a limit than allowed.
    LimitExceeded { used: u32, limit: u32 },
    /// A session was without a living owner for too long.
    OwnedLate { session: SessionIndex, after_ms: u64 },
    /// A session has no living owner in the end.
    LeftBehind { session: SessionIndex, owner: NodeIndex },
    /// Losses cause more requests to the store than allowed.
    Herd { requests: usize, bound: usize },
}

#[derive(Debug, Default)]
pub(super) struct SimulationLedger {
    /// Latest epoch at which a node may have acted for a session.
    epochs: Vec<u64>,
    /// Nodes that have a session in memory.
    holders: Vec<Vec<NodeIndex>>,
    /// Time since which a session has no living owner.
    free_ms: Vec<Option<u64>>,
    /// Takeovers by session, run, and time of the run's last renewal: a run that recovers may be
    /// lost again.
    moved: HashSet<(SessionIndex, String, u64)>,
    /// Requests caused by losses, by time in leases.
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

    /// Records that a node may act for a session at an epoch, and checks that no later epoch was
    /// used before; a store that loses commits may assign an epoch twice.
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

    /// Records that a session has no living owner from now on.
    pub(super) fn note_free(&mut self, session: SessionIndex, now_ms: u64) {
        self.free_ms[session].get_or_insert(now_ms);
    }

    /// Counts a request caused by a loss, by the number of its lease period since the start.
    pub(super) fn count_loss_request(&mut self, lease: u64) {
        *self.herd.entry(lease).or_default() += 1;
    }

    /// Checks that the number of these requests within a lease never exceeded the bound.
    pub(super) fn check_herd(&self, bound: usize) -> Result<(), InvariantViolation> {
        match self.herd.values().copied().find(|requests| *requests > bound) {
            Some(requests) => Err(InvariantViolation::Herd { requests, bound }),
            None => Ok(()),
        }
    }

    /// Records that a session has a living owner from now on.
    pub(super) fn is_owned(&mut self, session: SessionIndex, now_ms: u64) -> u64 {
        let after_ms = self.free_ms[session].take().map_or(0, |free_ms| now_ms - free_ms);
        self.longest_ms = self.longest_ms.max(after_ms);
        after_ms
    }

    /// Records a move from a run of a node, which last renewed its row at `seen_ms`.
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
