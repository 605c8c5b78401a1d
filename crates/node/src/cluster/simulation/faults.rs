//! What goes wrong: nodes die, stand still, are suspended and cut off, and the store is away, slow,
//! or another server than before.

use super::SimulatedFaults;
use super::ledger::InvariantViolation;
use super::store::NodeIndex;
use super::world::{NodeTimer, SimulatedEvent, SimulatedWorld};
use crate::cluster::placement;

/// Nodes that look at the address of a node whose process ends (`WATCHERS` of `peer::watch`).
const WATCHERS: usize = 3;
/// Milliseconds until they are refused twice, but for a tenth of a second (`ENDED_PAUSE` and
/// `REFUSED_PAUSE`).
const REFUSED_MS: u64 = 350;
/// Steps of the store's clock, when another server stands for it: what two machines that keep their
/// time differ by.
const STORE_STEP_MS: u64 = 100;
/// Most that a store forgets.
const FORGOTTEN_MS: u64 = 1_000;

impl SimulatedWorld {
    /// Has something go wrong, and the next thing some time later.
    pub(super) fn fail(&mut self) -> Result<(), InvariantViolation> {
        if !self.has_faults() {
            // Whatever stands still goes on, and the store stays.
            return Ok(());
        }
        let gap_ms = self.plan.fault_gap_ms;
        let next_ms = gap_ms / 2 + self.chance.below(gap_ms);
        self.after(next_ms, SimulatedEvent::Fault);
        let count = self.nodes.len();
        let node = self.index(count);
        match self.plan.faults {
            SimulatedFaults::StoreAlone => self.lose_store(),
            SimulatedFaults::Kills => self.kill(node)?,
            SimulatedFaults::All | SimulatedFaults::Failover => match self.chance.below(12) {
                0..2 => self.kill(node)?,
                2..5 => self.stand_still(node),
                5..8 => self.cut(node),
                8 => self.drain(node),
                9 => self.nodes[node].clocks.wall_ms = self.chance.below(2 * super::START_MS),
                10 if self.chance.is_one_in(4) => self.lose_store(),
                11 if self.chance.is_one_in(4) && self.plan.faults.forgets() => self.fail_over(),
                _ => self.slow_down(node),
            },
        }
        Ok(())
    }

    fn lose_store(&mut self) {
        let away_ms = self.chance.below(8_000);
        self.store.away_until_ms = self.now_ms + away_ms;
        self.store.is_silent = self.chance.is_one_in(2);
        if !self.store.is_silent {
            // It was started again.
            self.store.fail_over(self.now_ms, 0);
        }
    }

    fn fail_over(&mut self) {
        let lost_ms = self.chance.below(FORGOTTEN_MS);
        self.store.fail_over(self.now_ms, lost_ms);
        self.store.away_until_ms = self.now_ms + self.chance.below(1_000);
        self.store.is_silent = false;
        self.store.clock_ms += self.chance.below(STORE_STEP_MS);
        self.store.clock_ms -= self.chance.below(STORE_STEP_MS);
    }

    /// Has the store take its time for all, or for what a node asks beside renewals.
    fn slow_down(&mut self, node: NodeIndex) {
        let until_ms = self.now_ms + self.chance.below(5_000);
        match self.chance.is_one_in(3) {
            true => self.store.slow_until_ms = until_ms,
            false => self.nodes[node].busy_until_ms = until_ms,
        }
    }

    /// Ends a process, with its machine or without.
    fn kill(&mut self, node: NodeIndex) -> Result<(), InvariantViolation> {
        let living = self.nodes.iter().filter(|node| node.process.is_some()).count();
        if self.nodes[node].process.is_none() || living <= 2 {
            return Ok(());
        }
        self.kills += 1;
        self.end(node);
        let (run, with_machine) = (self.nodes[node].runs, self.chance.is_one_in(2));
        if !with_machine {
            let (own, others) = (super::store::node_name(node), self.others_of(node));
            for watcher in &others {
                if placement::is_among_first(&own, watcher, &others, WATCHERS) {
                    let watcher = self.store.node_of(watcher);
                    let within_ms = REFUSED_MS + self.chance.below(100);
                    let timer = NodeTimer::Refused { target: node, run };
                    self.set_timer(within_ms, watcher, timer);
                }
            }
        }
        if self.chance.is_one_in(2) {
            let within_ms = 200 + self.chance.below(self.plan.lease_ms * 6);
            self.after(within_ms, SimulatedEvent::Start { node });
        }
        Ok(())
    }

    /// Ends what a process has; its row stays.
    pub(super) fn end(&mut self, node: NodeIndex) {
        let Some(process) = self.nodes[node].process.take() else { return };
        self.nodes[node].paused_until_ms = 0;
        for session in process.sessions.keys() {
            self.ledger.leave(*session, node);
        }
        for session in self.store.sessions_of(node) {
            self.ledger.free_ms[*session].get_or_insert(self.now_ms);
        }
    }

    fn some_leases_ms(&mut self) -> u64 {
        let lease_ms = self.plan.lease_ms;
        let times = [lease_ms / 2, lease_ms * 3 / 2, lease_ms * 10];
        times[self.index(times.len())]
    }

    /// Has a process (`SIGSTOP`) or its machine stand still.
    fn stand_still(&mut self, node: NodeIndex) {
        if self.nodes[node].process.is_none() || self.nodes[node].is_paused(self.now_ms) {
            return;
        }
        let still_ms = self.some_leases_ms().min(self.plan.faults_ms - self.now_ms);
        self.nodes[node].paused_until_ms = self.now_ms + still_ms;
        if self.chance.is_one_in(2) {
            self.nodes[node].clocks.suspended_ms += still_ms;
        }
        self.after(still_ms, SimulatedEvent::GoesOn { node });
    }

    /// Cuts a node off from the store, one way or both, or from its peers.
    fn cut(&mut self, node: NodeIndex) {
        let until_ms = self.now_ms + self.some_leases_ms().min(self.plan.faults_ms - self.now_ms);
        let way = self.chance.below(4);
        let it = &mut self.nodes[node];
        match way {
            0 => it.forth_cut_ms = until_ms,
            1 => it.back_cut_ms = until_ms,
            2 => (it.forth_cut_ms, it.back_cut_ms) = (until_ms, until_ms),
            _ => it.peers_cut_ms = until_ms,
        }
    }

    fn drain(&mut self, node: NodeIndex) {
        let for_ms = 1_000 + self.chance.below(10_000);
        self.store.ask_to_drain(self.now_ms, node, true);
        self.after(for_ms, SimulatedEvent::Drain { node, drains: false });
    }
}
