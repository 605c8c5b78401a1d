//! The world of the simulation: the effects of its events, the transmission of requests to the
//! store and of answers, and the checks at each moment at which a node becomes able to act.

use super::ledger::{InvariantViolation, SimulationLedger};
use super::node::{
    DRIFT_MAX, PendingRequest, SimulatedClocks, SimulatedNode, SimulatedProcess, StoreConnection,
};
use super::schedule::{EventSchedule, NodeTimer, SimulatedEvent};
use super::store::{
    ModelStore, NodeIndex, SessionIndex, StoreAnswer, StoreCaller, StoreRequest, node_name,
};
use super::{SimulatedFaults, SimulationPlan, description};
use crate::testing::SeededRandom;

/// Milliseconds that a request or an answer takes, usually and at worst.
const LEG_MS: u64 = 15;
const SLOW_LEG_MS: u64 = 600;
/// One in this many requests or answers is lost, while there are faults.
const LOST_ONE_IN: u64 = 2_000;
/// Milliseconds after which a request to the store other than a renewal times out
/// (`StoreConfig::statement_max`).
const STATEMENT_MAX_MS: u64 = 30_000;
/// Milliseconds between two requests of clients for the same session, on average.
const ASK_MS: u64 = 8_000;

#[derive(Debug)]
pub(super) struct SimulatedWorld {
    pub(super) plan: SimulationPlan,
    pub(super) chance: SeededRandom,
    pub(super) schedule: EventSchedule,
    pub(super) store: ModelStore,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) ledger: SimulationLedger,
    pub(super) kills: u64,
}

impl SimulatedWorld {
    pub(super) fn new(plan: SimulationPlan) -> SimulatedWorld {
        let mut chance = SeededRandom(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut store = ModelStore::new(plan.nodes, description(), plan.rules);
        let count = plan.nodes * plan.sessions_per_node;
        let mut nodes = Vec::new();
        for node in 0..plan.nodes {
            (0..plan.sessions_per_node).for_each(|_| store.add_session(node));
            let clocks = SimulatedClocks {
                boot_ms: 10_000 + chance.below(1_000_000),
                drift: chance.below(2 * DRIFT_MAX),
                wall_ms: super::START_MS - 600_000 + chance.below(1_200_000),
                suspended_ms: 0,
            };
            nodes.push(SimulatedNode {
                clocks,
                runs: 0,
                process: None,
                paused_until_ms: 0,
                forth_cut_ms: 0,
                back_cut_ms: 0,
                peers_cut_ms: 0,
                busy_until_ms: 0,
            });
        }
        let mut world = SimulatedWorld {
            plan,
            chance,
            schedule: EventSchedule::default(),
            store,
            nodes,
            ledger: SimulationLedger::new(count),
            kills: 0,
        };
        for node in 0..world.nodes.len() {
            // The node existed before.
            let (incarnation, lease_ms) = (format!("run_{node}_0"), plan.lease_ms);
            let caller = StoreCaller { node, incarnation, lease_ms };
            world.store.enlist(&caller);
            let within_ms = world.chance.below(world.plan.lease_ms / 5);
            world.schedule.after(within_ms, SimulatedEvent::Start { node });
        }
        for session in 0..count {
            // At its first owner, so that it is in use there when faults begin.
            let node = session / world.plan.sessions_per_node;
            let within_ms = world.plan.lease_ms + world.chance.below(ASK_MS);
            world
                .schedule
                .after(within_ms, SimulatedEvent::Ask { session, node, was_passed_on: false });
        }
        world.schedule.after(world.plan.lease_ms * 2, SimulatedEvent::Fault);
        world
    }

    /// Runs to the end.
    pub(super) fn run(&mut self) -> Result<(), InvariantViolation> {
        let end_ms = self.plan.faults_ms + self.plan.quiet_ms;
        while let Some(event) = self.schedule.advance(end_ms) {
            self.happen(event)?;
        }
        self.check_end()
    }

    pub(super) fn has_faults(&self) -> bool {
        self.schedule.now_ms() < self.plan.faults_ms
    }

    pub(super) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.chance.below(count as u64)).expect("it was one")
    }

    pub(super) fn set_timer(&mut self, ms: u64, node: NodeIndex, timer: NodeTimer) {
        let run = self.nodes[node].runs;
        self.schedule.after(ms, SimulatedEvent::Timer { node, run, timer });
    }

    /// Returns the process of a node, if it is the same run as before.
    pub(super) fn process(&mut self, node: NodeIndex, run: u32) -> Option<&mut SimulatedProcess> {
        self.nodes[node].process.as_mut().filter(|process| process.number == run)
    }

    fn happen(&mut self, event: SimulatedEvent) -> Result<(), InvariantViolation> {
        // Events for a stopped node wait until it resumes.
        let waits = match &event {
            SimulatedEvent::Timer { node, .. }
            | SimulatedEvent::Answered { node, .. }
            | SimulatedEvent::GivenUp { node, .. }
            | SimulatedEvent::Ask { node, .. }
            | SimulatedEvent::Start { node } => Some(*node),
            SimulatedEvent::Arrives { .. }
            | SimulatedEvent::Fault
            | SimulatedEvent::GoesOn { .. }
            | SimulatedEvent::Drain { .. } => None,
        };
        if let Some(node) = waits
            && self.nodes[node].is_paused(self.schedule.now_ms())
        {
            self.schedule.at(self.nodes[node].paused_until_ms, event);
            return Ok(());
        }
        match event {
            SimulatedEvent::Timer { node, run, timer } => match self.process(node, run).is_some() {
                true => self.tick(node, timer),
                false => Ok(()),
            },
            SimulatedEvent::Arrives { node, run, id, request } => {
                self.arrive(node, run, id, request)
            }
            SimulatedEvent::Answered { node, run, id, generation, answer } => {
                let pending = self.process(node, run).and_then(|it| it.pending.remove(&id));
                match pending {
                    Some(pending) => self.answered(node, pending, generation, answer),
                    None => Ok(()),
                }
            }
            SimulatedEvent::GivenUp { node, run, id } => {
                let Some(process) = self.process(node, run) else { return Ok(()) };
                if let Some(pending) = process.pending.remove(&id) {
                    process.disconnect(pending.connection);
                    self.failed(node, pending.request);
                }
                Ok(())
            }
            SimulatedEvent::Ask { session, node, was_passed_on } => {
                if !was_passed_on {
                    self.ask_again(session);
                }
                self.ask(session, node, was_passed_on)
            }
            SimulatedEvent::Fault => self.fail(),
            SimulatedEvent::GoesOn { node } => self.check_node(node),
            SimulatedEvent::Start { node } => {
                self.start(node);
                Ok(())
            }
            SimulatedEvent::Drain { node, drains } => {
                self.store.ask_to_drain(self.schedule.now_ms(), node, drains);
                Ok(())
            }
        }
    }

    /// Schedules a client's request for a session, at the node that it knows or at another one.
    fn ask_again(&mut self, session: SessionIndex) {
        let count = self.nodes.len();
        let node = match self.chance.is_one_in(3) {
            true => self.index(count),
            false => self.store.sessions[session].owner,
        };
        let within_ms = ASK_MS / 2 + self.chance.below(ASK_MS);
        self.schedule.after(within_ms, SimulatedEvent::Ask { session, node, was_passed_on: false });
    }

    /// Starts a run of a node.
    fn start(&mut self, node: NodeIndex) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let it = &mut self.nodes[node];
        it.runs += 1;
        it.process = Some(SimulatedProcess::begin(it.runs, self.plan.lease_ms));
        self.set_timer(0, node, NodeTimer::Register);
    }

    /// Sends a request to the store, preceded by a reading of its clock if one is due.
    pub(super) fn send(
        &mut self,
        node: NodeIndex,
        connection: StoreConnection,
        request: StoreRequest,
    ) {
        let clock_ms = self.sample_clock(node);
        let process = self.nodes[node].process.as_ref().expect("whoever sends lives");
        if process.clock.wants_sample_at(clock_ms) {
            self.transmit(node, connection, StoreRequest::Clock { asked_ms: clock_ms });
        }
        self.transmit(node, connection, request);
    }

    pub(super) fn transmit(
        &mut self,
        node: NodeIndex,
        connection: StoreConnection,
        request: StoreRequest,
    ) {
        let (id, now_ms) = (self.schedule.next_number(), self.schedule.now_ms());
        let time_ms = match connection {
            StoreConnection::Reserved => self.plan.lease_ms / 2,
            StoreConnection::Shared => STATEMENT_MAX_MS,
        };
        let until_ms = now_ms + time_ms;
        let leg_ms = self.leg_ms();
        let is_lost = self.is_lost() || now_ms < self.nodes[node].forth_cut_ms;
        let process = self.nodes[node].process.as_mut().expect("whoever sends lives");
        let run = process.number;
        let pending = PendingRequest { connection, request: request.clone(), until_ms };
        process.pending.insert(id, pending);
        match is_lost {
            true => self.schedule.at(until_ms, SimulatedEvent::GivenUp { node, run, id }),
            false => {
                self.schedule.after(leg_ms, SimulatedEvent::Arrives { node, run, id, request })
            }
        }
    }

    fn leg_ms(&mut self) -> u64 {
        match self.schedule.now_ms() < self.store.slow_until_ms {
            true => self.chance.below(SLOW_LEG_MS),
            false => 1 + self.chance.below(LEG_MS),
        }
    }

    fn is_lost(&mut self) -> bool {
        let may_be = self.has_faults() && self.plan.faults.loses_requests();
        may_be && self.chance.is_one_in(LOST_ONE_IN)
    }

    /// Executes a request at the store, and sends the answer.
    fn arrive(
        &mut self,
        node: NodeIndex,
        run: u32,
        id: u64,
        request: StoreRequest,
    ) -> Result<(), InvariantViolation> {
        let now_ms = self.schedule.now_ms();
        let (lease_ms, generation) = (self.plan.lease_ms, self.store.generation);
        // It is executed whether or not its sender still waits for it, or lives.
        let incarnation = format!("run_{node}_{run}");
        let pending = self.process(node, run).and_then(|process| {
            let pending = process.pending.get(&id)?;
            let connected = process.connected.get(&pending.connection).copied();
            Some((pending.until_ms, connected, pending.connection))
        });
        let is_stale = pending.is_some_and(|(_, connected, _)| {
            connected.is_some_and(|connected| connected != generation)
        });
        let answer = if self.store.is_away(now_ms) {
            match self.store.is_silent {
                true => None,
                false => Some(StoreAnswer::Unavailable),
            }
        } else if is_stale {
            Some(StoreAnswer::ConnectionLost)
        } else {
            if request.is_of_loss() {
                self.ledger.count_loss_request(now_ms / lease_ms);
            }
            let caller = StoreCaller { node, incarnation, lease_ms };
            let answer = self.store.execute(now_ms, &caller, request);
            self.check_moves()?;
            Some(answer)
        };
        let Some((until_ms, _, connection)) = pending else { return Ok(()) };
        let is_busy = now_ms < self.nodes[node].busy_until_ms;
        let leg_ms = match connection {
            StoreConnection::Shared if is_busy => self.chance.below(3 * lease_ms),
            StoreConnection::Shared | StoreConnection::Reserved => self.leg_ms(),
        };
        let is_lost = self.is_lost() || now_ms < self.nodes[node].back_cut_ms;
        match answer {
            Some(answer) if !is_lost && now_ms + leg_ms <= until_ms => {
                self.schedule
                    .after(leg_ms, SimulatedEvent::Answered { node, run, id, generation, answer });
            }
            Some(_) | None => {
                self.schedule.at(until_ms.max(now_ms), SimulatedEvent::GivenUp { node, run, id });
            }
        }
        Ok(())
    }

    /// Checks the sessions that changed owner.
    fn check_moves(&mut self) -> Result<(), InvariantViolation> {
        for it in std::mem::take(&mut self.store.moves) {
            if self.plan.faults == SimulatedFaults::StoreAlone {
                let (session, from) = (it.session, it.from);
                return Err(InvariantViolation::MovedForNothing { session, from });
            }
            let is_taken = it.reason != super::store::MoveReason::Given;
            if is_taken && self.may_act(it.from) {
                let (session, from, to) = (it.session, it.from, it.to);
                return Err(InvariantViolation::TakenFromServing { session, from, to });
            }
            let row = self.store.rows[it.from].as_ref();
            let row_lease_ms = row.map(|row| row.lease_ms());
            if let Some(row) = row.filter(|_| !self.plan.faults.forgets()) {
                self.ledger.note_move(it, row.incarnation.clone(), row.seen_ms)?;
            }
            if self.nodes[it.to].process.is_some() {
                // A node that dies before its first renewal counts as alive for longer.
                let was_new = row_lease_ms.is_none_or(|lease_ms| lease_ms != self.plan.lease_ms);
                let after_ms = self.ledger.is_owned(it.session, self.schedule.now_ms());
                self.check_owned_late(it.session, if was_new { 0 } else { after_ms })?;
            }
        }
        Ok(())
    }

    fn check_owned_late(
        &self,
        session: SessionIndex,
        after_ms: u64,
    ) -> Result<(), InvariantViolation> {
        match self.plan.owned_again_max_ms() {
            Some(most_ms) if after_ms > most_ms => {
                Err(InvariantViolation::OwnedLate { session, after_ms })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn may_act(&self, node: NodeIndex) -> bool {
        self.nodes[node].may_act(self.schedule.now_ms(), self.plan.rules.lease_stands_still())
    }

    /// Checks all sessions that a node may act for from now on.
    pub(super) fn check_node(&mut self, node: NodeIndex) -> Result<(), InvariantViolation> {
        if !self.may_act(node) {
            return Ok(());
        }
        let process = self.nodes[node].process.as_ref().expect("it acts");
        let sessions: Vec<_> = process.sessions.iter().map(|(it, epoch)| (*it, *epoch)).collect();
        sessions.into_iter().try_for_each(|(session, epoch)| self.check_act(node, session, epoch))
    }

    /// Checks that a node alone may act for a session, at the latest epoch.
    pub(super) fn check_act(
        &mut self,
        node: NodeIndex,
        session: SessionIndex,
        epoch: u64,
    ) -> Result<(), InvariantViolation> {
        if !self.may_act(node) {
            return Ok(());
        }
        for other in self.ledger.holders(session) {
            if *other != node && self.may_act(*other) {
                return Err(InvariantViolation::TwoServe { session, nodes: [*other, node] });
            }
        }
        self.ledger.note_act(session, node, epoch, self.plan.faults.forgets())
    }

    pub(super) fn check_limit(&self) -> Result<(), InvariantViolation> {
        if self.plan.faults.forgets() {
            return Ok(());
        }
        let limit = self.plan.limit();
        let processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        let used = processes.map(|process| process.share.used).sum();
        match used <= limit {
            true => Ok(()),
            false => Err(InvariantViolation::LimitExceeded { used, limit }),
        }
    }

    fn check_end(&self) -> Result<(), InvariantViolation> {
        for (session, row) in self.store.sessions.iter().enumerate() {
            let is_there = self.nodes[row.owner].process.is_some();
            if !is_there {
                return Err(InvariantViolation::LeftBehind { session, owner: row.owner });
            }
        }
        self.ledger.check_herd(self.plan.herd_max())
    }

    /// Returns the name of a node's present or last run.
    pub(super) fn incarnation(&self, node: NodeIndex) -> String {
        format!("run_{node}_{}", self.nodes[node].runs)
    }

    pub(super) fn others_of(&self, target: NodeIndex) -> Vec<String> {
        let there = |node: &NodeIndex| {
            let row = self.store.rows[*node].as_ref();
            *node != target && row.is_some_and(|row| row.state != crate::cluster::NodeState::Left)
        };
        (0..self.nodes.len()).filter(there).map(node_name).collect()
    }
}
