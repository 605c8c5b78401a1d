//! Faults: nodes die, are stopped, suspended and cut off, and the store is down, slow, or replaced
//! by another server.

use super::SimulatedFaults;
use super::ledger::InvariantViolation;
use super::schedule::{NodeTimer, SimulatedEvent};
use super::store::NodeIndex;
use super::world::SimulatedWorld;
use crate::cluster::placement;

/// Number of nodes that check the address of a node whose process ends (`WATCHERS` of
/// `peer::watch`).
const WATCHERS: usize = 3;
/// Minimum time until a watcher is refused twice, in milliseconds; up to 100 more (`ENDED_PAUSE`
/// and `REFUSED_PAUSE`).
const REFUSED_MS: u64 = 350;
impl SimulatedWorld {
    /// Causes a fault, and schedules the next one.
    pub(super) fn fail(&mut self) -> Result<(), InvariantViolation> {
        if !self.has_faults() {
            // Stopped nodes resume, and the store recovers.
            return Ok(());
        }
        let (now_ms, gap_ms) = (self.schedule.now_ms(), self.plan.fault_gap_ms);
        let next_ms = gap_ms / 2 + self.chance.below(gap_ms);
        self.schedule.after(next_ms, SimulatedEvent::Fault);
        let count = self.nodes.len();
        let node = self.index(count);
        match self.plan.faults {
            SimulatedFaults::StoreAlone => self.store.lose(now_ms, &mut self.chance),
            SimulatedFaults::Kills => self.kill(node)?,
            SimulatedFaults::All | SimulatedFaults::Failover => match self.chance.below(12) {
                0..2 => self.kill(node)?,
                2..5 => self.stand_still(node),
                5..8 => self.cut(node),
                8 => self.drain(node),
                9 => self.nodes[node].clocks.wall_ms = self.chance.below(2 * super::START_MS),
                10 if self.chance.is_one_in(4) => self.store.lose(now_ms, &mut self.chance),
                11 if self.chance.is_one_in(4) && self.plan.faults.forgets() => {
                    self.store.stand_in(now_ms, &mut self.chance);
                }
                _ => self.slow_down(node),
            },
        }
        Ok(())
    }

    /// Slows the store down for all nodes, or for one node's requests other than renewals.
    fn slow_down(&mut self, node: NodeIndex) {
        let until_ms = self.schedule.now_ms() + self.chance.below(5_000);
        match self.chance.is_one_in(3) {
            true => self.store.slow_until_ms = until_ms,
            false => self.nodes[node].busy_until_ms = until_ms,
        }
    }

    /// Kills a process, with its machine or without.
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
            self.schedule.after(within_ms, SimulatedEvent::Start { node });
        }
        Ok(())
    }

    /// Discards a process's state; its row remains.
    pub(super) fn end(&mut self, node: NodeIndex) {
        let Some(process) = self.nodes[node].process.take() else { return };
        self.nodes[node].paused_until_ms = 0;
        for session in process.sessions.keys() {
            self.ledger.leave(*session, node);
        }
        for session in self.store.sessions_of(node) {
            self.ledger.note_free(*session, self.schedule.now_ms());
        }
    }

    fn some_leases_ms(&mut self) -> u64 {
        let lease_ms = self.plan.lease_ms;
        let times = [lease_ms / 2, lease_ms * 3 / 2, lease_ms * 10];
        times[self.index(times.len())]
    }

    /// Stops a process (`SIGSTOP`) or suspends its machine.
    fn stand_still(&mut self, node: NodeIndex) {
        if self.nodes[node].process.is_none() || self.nodes[node].is_paused(self.schedule.now_ms())
        {
            return;
        }
        let still_ms = self.some_leases_ms().min(self.plan.faults_ms - self.schedule.now_ms());
        self.nodes[node].paused_until_ms = self.schedule.now_ms() + still_ms;
        if self.chance.is_one_in(2) {
            self.nodes[node].clocks.suspended_ms += still_ms;
        }
        self.schedule.after(still_ms, SimulatedEvent::GoesOn { node });
    }

    /// Cuts a node off from the store, one way or both, or from its peers.
    fn cut(&mut self, node: NodeIndex) {
        let until_ms = self.schedule.now_ms()
            + self.some_leases_ms().min(self.plan.faults_ms - self.schedule.now_ms());
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
        self.store.ask_to_drain(self.schedule.now_ms(), node, true);
        self.schedule.after(for_ms, SimulatedEvent::Drain { node, drains: false });
    }
}
