//! Actions of nodes: each function names the function of the crate that it models. The decision
//! rules are those of the crate itself.

use std::time::Duration;

use super::ledger::InvariantViolation;
use super::node::{PendingRequest, SimulatedLoss, StoreConnection};
use super::schedule::{NodeTimer, SimulatedEvent};
use super::store::{
    NodeIndex, SessionIndex, SimulatedSessionRow, StoreAnswer, StoreRequest, session_name,
};
use super::world::SimulatedWorld;
use crate::cluster::limit_shares::LimitUse;
use crate::cluster::membership::RENEW_INTERVAL;
use crate::cluster::placement;
use crate::cluster::record::NodeState;
use crate::cluster::takeover::{self, FIRST_CHOICE_MAX, NodeFate, NodeJudge};

/// Number of renewals per lease (`RENEWALS_PER_LEASE` of `membership`).
const RENEWALS_PER_LEASE: u64 = 5;
/// Sessions that are claimed in one statement (`CLAIMED_MAX` of `sessions::store::claims`).
const CLAIMED_MAX: usize = 100;
/// Number of concurrent handovers, the interval between searches for sessions to hand over, and the
/// pause before a retry (`sessions::service::drain`).
const HANDOVERS_MAX: usize = 8;
const LOOK_MS: u64 = 250;
const RETRY_MS: u64 = 2_000;
/// Pause before the store is queried again for this server's sessions (`LeaseKeeper`).
const ASK_PAUSE_MS: u64 = 200;
/// Interval at which parts of limits are settled.
const SETTLE_MS: u64 = 500;
/// Pause before a watched node is checked again (`peer::watch`).
const RETRY_WATCH_MS: u64 = 500;

impl SimulatedWorld {
    /// Returns the clock by which the store's clock advances between two readings.
    pub(super) fn sample_clock(&self, node: NodeIndex) -> u64 {
        let clocks = &self.nodes[node].clocks;
        match self.plan.rules.clock_stands_still() {
            true => clocks.monotonic(self.schedule.now_ms()),
            false => clocks.boot(self.schedule.now_ms()),
        }
    }

    /// Returns a node's estimate of the store's clock (`SharedClock::now_ms`).
    fn store_ms(&self, node: NodeIndex) -> u64 {
        let process = self.nodes[node].process.as_ref().expect("whoever asks lives");
        process.clock.at(self.sample_clock(node)).unwrap_or(self.nodes[node].clocks.wall_ms)
    }

    fn lease_clock(&self, node: NodeIndex) -> u64 {
        self.nodes[node].lease_clock(self.schedule.now_ms(), self.plan.rules.lease_stands_still())
    }

    /// Models `NodeMembership::judge`.
    fn judge(&self, node: NodeIndex) -> NodeJudge {
        let process = self.nodes[node].process.as_ref().expect("whoever asks lives");
        let boot_ms = self.nodes[node].clocks.boot(self.schedule.now_ms());
        let (store_ms, lease_ms) = (self.store_ms(node), self.plan.lease_ms);
        self.plan.rules.judge(&process.continuity, boot_ms, store_ms, lease_ms)
    }

    fn interval_ms(&self) -> u64 {
        let longest_ms = u64::try_from(RENEW_INTERVAL.as_millis()).expect("it is short");
        longest_ms.min(self.plan.lease_ms / RENEWALS_PER_LEASE)
    }

    pub(super) fn tick(
        &mut self,
        node: NodeIndex,
        timer: NodeTimer,
    ) -> Result<(), InvariantViolation> {
        match timer {
            NodeTimer::Register => self.register(node),
            NodeTimer::Renew => self.renew(node),
            NodeTimer::Verify => self.verify(node),
            NodeTimer::Drain => self.look_for_sessions(node),
            NodeTimer::Settle => self.settle(node),
            NodeTimer::Refused { target, run } => self.tell_of_end(node, target, run),
        }
        Ok(())
    }

    /// Models `NodeMembership::join`, after `SqlStore::open`, which reads the clock.
    fn register(&mut self, node: NodeIndex) {
        let clock_ms = self.sample_clock(node);
        let process = self.nodes[node].process.as_mut().expect("it ticks");
        let request = match process.clock.at(clock_ms) {
            None => StoreRequest::Clock { asked_ms: clock_ms },
            Some(seen_ms) => StoreRequest::Register { sent_ms: self.lease_clock(node), seen_ms },
        };
        self.transmit(node, StoreConnection::Shared, request);
    }

    /// Models `NodeMembership::renew_for_ever`.
    fn renew(&mut self, node: NodeIndex) {
        let (sent_ms, seen_ms) = (self.lease_clock(node), self.store_ms(node));
        let process = self.nodes[node].process.as_mut().expect("it ticks");
        if std::mem::replace(&mut process.is_renewing, true) {
            return;
        }
        let state = if process.takes_work { NodeState::Active } else { NodeState::Draining };
        let request = StoreRequest::Renew { sent_ms, seen_ms, state };
        self.send(node, StoreConnection::Reserved, request);
    }

    /// Models `LeaseKeeper::give_up_taken`.
    fn verify(&mut self, node: NodeIndex) {
        let process = self.nodes[node].process.as_mut().expect("it ticks");
        let Some(lapse) = process.verifier.unverified() else { return };
        if std::mem::replace(&mut process.is_verifying, true) {
            return;
        }
        let held = process.sessions.iter().map(|(session, epoch)| (*session, *epoch)).collect();
        self.send(node, StoreConnection::Shared, StoreRequest::Epochs { lapse, held });
    }

    /// Gives up sessions that other nodes own (`SessionLifecycle::give_up`).
    fn verified(
        &mut self,
        node: NodeIndex,
        lapse: u64,
        taken: &[(SessionIndex, u64)],
    ) -> Result<(), InvariantViolation> {
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        process.is_verifying = false;
        for (session, epoch) in taken {
            if process.sessions.get(session) == Some(epoch) {
                process.sessions.remove(session);
                self.ledger.leave(*session, node);
            }
        }
        process.verifier.verified(lapse);
        self.set_timer(0, node, NodeTimer::Verify);
        self.check_node(node)
    }

    /// Models `SessionHandover::hand_over_some`.
    fn look_for_sessions(&mut self, node: NodeIndex) {
        let process = self.nodes[node].process.as_mut().expect("it ticks");
        if process.takes_work || std::mem::replace(&mut process.is_draining, true) {
            return;
        }
        self.send(node, StoreConnection::Shared, StoreRequest::Held);
    }

    /// Models `LimitShares::settle`, with the changes of use and need since the last time.
    fn settle(&mut self, node: NodeIndex) {
        self.set_timer(SETTLE_MS, node, NodeTimer::Settle);
        let (limit, judge) = (self.plan.limit(), self.judge(node));
        let (closes, wants) = (self.chance.is_one_in(2), self.chance.below(8));
        let process = self.nodes[node].process.as_mut().expect("it ticks");
        let share = &mut process.share;
        if wants == 0 {
            share.needed = u32::try_from(self.chance.below(u64::from(limit))).expect("it is small");
        }
        if share.used > share.bound.min(share.needed) && closes {
            share.used = share.bound.min(share.needed);
        }
        if std::mem::replace(&mut share.is_settling, true) {
            return;
        }
        let used = LimitUse {
            resource: "it".to_owned(),
            limit,
            bound: share.bound,
            used: share.used,
            needed: share.needed,
        };
        self.send(node, StoreConnection::Shared, StoreRequest::Settle { used, judge });
    }

    /// Models `PeerForwarder::watch_peer`, after the address has refused twice.
    fn tell_of_end(&mut self, node: NodeIndex, target: NodeIndex, run: u32) {
        let is_there = self.nodes[target].process.is_some() || self.nodes[target].runs != run;
        let is_member = self.nodes[node].process.as_ref().is_some_and(|it| it.is_registered);
        if is_there || !is_member {
            return;
        }
        if !self.nodes[node].has_peers(self.schedule.now_ms())
            || !self.nodes[target].has_peers(self.schedule.now_ms())
        {
            self.set_timer(RETRY_WATCH_MS, node, NodeTimer::Refused { target, run });
            return;
        }
        let request = StoreRequest::Expire { node: target, incarnation: self.incarnation(target) };
        self.send(node, StoreConnection::Shared, request);
    }

    /// Applies an answer of the store.
    pub(super) fn answered(
        &mut self,
        node: NodeIndex,
        pending: PendingRequest,
        generation: u64,
        answer: StoreAnswer,
    ) -> Result<(), InvariantViolation> {
        let PendingRequest { connection, request, .. } = pending;
        let boot_ms = self.nodes[node].clocks.boot(self.schedule.now_ms());
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        match &answer {
            StoreAnswer::ConnectionLost => {
                process.disconnect(connection);
                self.send(node, connection, request);
                return Ok(());
            }
            StoreAnswer::Unavailable => {
                process.disconnect(connection);
                self.failed(node, request);
                return Ok(());
            }
            _ => {
                let is_new = process.connect(connection, generation);
                if is_new && !self.plan.rules.trusts_new_store() {
                    // Models `NodeMembership::doubt_store`.
                    process.continuity.replaced(boot_ms);
                    process.serving.lapse();
                }
            }
        }
        self.take_answer(node, request, answer)
    }

    /// Applies the answer to its request.
    fn take_answer(
        &mut self,
        node: NodeIndex,
        request: StoreRequest,
        answer: StoreAnswer,
    ) -> Result<(), InvariantViolation> {
        let clock_ms = self.sample_clock(node);
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        match answer {
            StoreAnswer::Clock { asked_ms, ms } => {
                let is_first = process.clock.at(clock_ms).is_none();
                process.clock.sampled_at(asked_ms, clock_ms, ms);
                if is_first {
                    self.register(node);
                }
                Ok(())
            }
            StoreAnswer::Registered { sent_ms } => self.registered(node, sent_ms),
            StoreAnswer::Renewed { was_expired: None, .. } => {
                // Another run has replaced this one, or the store has lost its row: it stops.
                self.end(node);
                self.schedule.after(self.plan.lease_ms, SimulatedEvent::Start { node });
                Ok(())
            }
            StoreAnswer::Renewed { sent_ms, was_expired: Some(was_expired) } => {
                if was_expired {
                    process.serving.lapse();
                }
                self.send(node, StoreConnection::Reserved, StoreRequest::List { sent_ms });
                Ok(())
            }
            StoreAnswer::Listed { sent_ms, snapshot } => {
                process.snapshot = Some(snapshot);
                self.renewed(node, sent_ms)
            }
            StoreAnswer::Expired => {
                // Models `NodeMembership::look_again`.
                self.renew(node);
                Ok(())
            }
            StoreAnswer::Epochs { lapse, taken } => self.verified(node, lapse, &taken),
            StoreAnswer::Found { node: lost, incarnation, lost_for, sessions } => {
                self.claim_lost(node, lost, &incarnation, lost_for, &sessions);
                Ok(())
            }
            StoreAnswer::ClaimedLost => {
                if let StoreRequest::ClaimLost { incarnation, lost_for, .. } = request {
                    process.end_pass(&incarnation, Some(lost_for));
                }
                Ok(())
            }
            StoreAnswer::Looked { session, was_passed_on, row } => {
                self.looked(node, session, was_passed_on, row);
                Ok(())
            }
            StoreAnswer::Claimed { session, epoch: Some(epoch), lapses } => {
                let request = StoreRequest::OpenTurns { session, epoch, lapses };
                self.send(node, StoreConnection::Shared, request);
                Ok(())
            }
            StoreAnswer::Claimed { session, epoch: None, .. } => {
                process.loading.remove(&session);
                Ok(())
            }
            StoreAnswer::OpenTurns { session, epoch, lapses } => {
                self.claimed(node, session, epoch, lapses)
            }
            StoreAnswer::Held { sessions } => {
                self.hand_over(node, sessions);
                Ok(())
            }
            StoreAnswer::Given => Ok(()),
            StoreAnswer::Settled { part } => {
                let share = &mut process.share;
                share.is_settling = false;
                share.bound = part;
                share.used = share.used.max(share.bound.min(share.needed));
                self.check_limit()
            }
            StoreAnswer::ConnectionLost | StoreAnswer::Unavailable => Ok(()),
        }
    }

    /// Schedules a retry of a failed request, as the caller does.
    pub(super) fn failed(&mut self, node: NodeIndex, request: StoreRequest) {
        let (interval_ms, clock_ms) = (self.interval_ms(), self.sample_clock(node));
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        let (timer, within_ms) = match request {
            StoreRequest::Register { .. } => (NodeTimer::Register, interval_ms),
            StoreRequest::Renew { .. } | StoreRequest::List { .. } => {
                process.is_renewing = false;
                (NodeTimer::Renew, interval_ms)
            }
            StoreRequest::Expire { node: target, .. } => {
                let run = self.nodes[target].runs;
                (NodeTimer::Refused { target, run }, RETRY_WATCH_MS)
            }
            StoreRequest::Epochs { .. } => {
                process.is_verifying = false;
                (NodeTimer::Verify, ASK_PAUSE_MS)
            }
            StoreRequest::FindLost { incarnation, .. }
            | StoreRequest::ClaimLost { incarnation, .. } => {
                return process.end_pass(&incarnation, None);
            }
            StoreRequest::Look { session, .. }
            | StoreRequest::Claim { session, .. }
            | StoreRequest::OpenTurns { session, .. } => {
                process.loading.remove(&session);
                return;
            }
            StoreRequest::Held => {
                process.is_draining = false;
                (NodeTimer::Drain, RETRY_MS)
            }
            StoreRequest::Settle { .. } => {
                process.share.is_settling = false;
                return;
            }
            StoreRequest::Clock { .. } if process.clock.at(clock_ms).is_none() => {
                (NodeTimer::Register, interval_ms)
            }
            StoreRequest::Clock { .. } | StoreRequest::Give { .. } => return,
        };
        self.set_timer(within_ms, node, timer);
    }

    fn registered(&mut self, node: NodeIndex, sent_ms: u64) -> Result<(), InvariantViolation> {
        let lease_ms = self.lease_clock(node);
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        process.is_registered = true;
        process.serving.renewed_at(sent_ms, lease_ms);
        for session in self.store.sessions_of(node) {
            self.ledger.is_owned(*session, self.schedule.now_ms());
        }
        self.set_timer(0, node, NodeTimer::Renew);
        if node < self.plan.limited_nodes() {
            self.set_timer(SETTLE_MS, node, NodeTimer::Settle);
        }
        Ok(())
    }

    /// Performs the steps after a renewal.
    fn renewed(&mut self, node: NodeIndex, sent_ms: u64) -> Result<(), InvariantViolation> {
        let (lease_ms, boot_ms) =
            (self.lease_clock(node), self.nodes[node].clocks.boot(self.schedule.now_ms()));
        let (could_act, rules) = (self.may_act(node), self.plan.rules);
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        let from_ms = if rules.lease_counts_from_answer() { lease_ms } else { sent_ms };
        process.serving.renewed_at(from_ms, lease_ms);
        process.continuity.renewed(boot_ms, self.plan.lease_ms);
        process.is_renewing = false;
        let row = process.snapshot.as_ref().and_then(|it| it.rows[node].as_ref());
        process.takes_work = row.is_none_or(|row| !row.drain_wanted);
        if let Some(lapse) = process.verifier.unverified()
            && rules.skips_verification()
        {
            process.verifier.verified(lapse);
        }
        let drains = !process.takes_work;
        self.set_timer(self.interval_ms(), node, NodeTimer::Renew);
        self.verify(node);
        if drains {
            self.look_for_sessions(node);
        }
        self.take_over_lost(node);
        match could_act {
            true => Ok(()),
            false => self.check_node(node),
        }
    }

    /// Models `SessionTakeover::take_over_lost`.
    fn take_over_lost(&mut self, node: NodeIndex) {
        let (judge, rules) = (self.judge(node), self.plan.rules);
        let monotonic_ms = self.nodes[node].clocks.monotonic(self.schedule.now_ms());
        let process = self.nodes[node].process.as_mut().expect("it has renewed");
        let Some(snapshot) = process.snapshot.clone() else { return };
        let lost = snapshot.lost(judge, node, &rules);
        if lost.is_empty() {
            process.losses.clear();
            return;
        }
        let runs: Vec<_> = lost
            .iter()
            .filter_map(|lost| Some((*lost, snapshot.rows[*lost].as_ref()?.incarnation.clone())))
            .collect();
        process.losses.retain(|run, _| runs.iter().any(|(_, lost)| lost == run));
        let mut wanted = Vec::new();
        for (lost, run) in runs {
            let loss = process.losses.entry(run.clone()).or_insert(SimulatedLoss {
                since_ms: monotonic_ms,
                done: [false; 2],
                is_busy: false,
            });
            let lost_for = Duration::from_millis(monotonic_ms - loss.since_ms);
            let pass = usize::from(lost_for >= FIRST_CHOICE_MAX);
            // A draining node takes nothing over.
            if !loss.done[pass] && !loss.is_busy && process.takes_work {
                loss.is_busy = true;
                wanted.push(StoreRequest::FindLost { node: lost, incarnation: run, lost_for });
            }
        }
        wanted.into_iter().for_each(|it| self.send(node, StoreConnection::Shared, it));
    }

    /// Models `SessionTakeover::take_from`, after the sessions of the lost node are known.
    fn claim_lost(
        &mut self,
        node: NodeIndex,
        lost: NodeIndex,
        incarnation: &str,
        lost_for: Duration,
        sessions: &[SessionIndex],
    ) {
        let (judge, own) = (self.judge(node), super::store::node_name(node));
        let holds = self.may_act(node);
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        let mut ids = Vec::new();
        if let Some(snapshot) = &process.snapshot
            && !sessions.is_empty()
        {
            let nodes = snapshot.session_nodes(judge.now_ms());
            ids.extend(sessions.iter().copied().filter(|session| {
                takeover::is_own_turn(&session_name(*session), &own, &nodes, lost_for)
            }));
        }
        if !ids.is_empty() && !holds {
            // Models `ClusterPlace::check_lease`.
            return process.end_pass(incarnation, None);
        }
        if ids.is_empty() {
            process.end_pass(incarnation, Some(lost_for));
        }
        for some in ids.chunks(CLAIMED_MAX) {
            let (incarnation, ids) = (incarnation.to_owned(), some.to_vec());
            let request = StoreRequest::ClaimLost { node: lost, incarnation, lost_for, ids, judge };
            self.send(node, StoreConnection::Shared, request);
        }
    }

    /// Handles a client's request at the node that received it.
    pub(super) fn ask(
        &mut self,
        session: SessionIndex,
        node: NodeIndex,
        was_passed_on: bool,
    ) -> Result<(), InvariantViolation> {
        // Models `ClusterPlace::check_lease`, at the entrance.
        if !self.may_act(node) {
            return Ok(());
        }
        let process = self.nodes[node].process.as_mut().expect("it acts");
        if let Some(epoch) = process.sessions.get(&session) {
            let epoch = *epoch;
            return self.check_act(node, session, epoch);
        }
        if process.loading.insert(session) {
            let request = StoreRequest::Look { session, was_passed_on };
            self.send(node, StoreConnection::Shared, request);
        }
        Ok(())
    }

    /// Forwards a request to the owner, or makes this node the owner
    /// (`SessionLifecycle::acquire_for`).
    fn looked(
        &mut self,
        node: NodeIndex,
        session: SessionIndex,
        was_passed_on: bool,
        row: SimulatedSessionRow,
    ) {
        let judge = self.judge(node);
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        let fate = process.snapshot.as_ref().map(|it| it.fate(row.owner, judge));
        let is_elsewhere = row.owner != node && fate.is_none_or(|it| it == NodeFate::Present);
        if is_elsewhere {
            process.loading.remove(&session);
            let reaches = self.nodes[node].has_peers(self.schedule.now_ms())
                && self.nodes[row.owner].has_peers(self.schedule.now_ms());
            if reaches && !was_passed_on {
                let ask = SimulatedEvent::Ask { session, node: row.owner, was_passed_on: true };
                self.schedule.after(1, ask);
            }
            return;
        }
        let lapses = process.serving.lapses();
        let request = StoreRequest::Claim { session, from_epoch: row.epoch, judge, lapses };
        self.send(node, StoreConnection::Shared, request);
    }

    /// Begins to use a claimed session (`SessionDirectory::check_claim_is_new`).
    fn claimed(
        &mut self,
        node: NodeIndex,
        session: SessionIndex,
        epoch: u64,
        lapses: u64,
    ) -> Result<(), InvariantViolation> {
        let keeps_late = self.plan.rules.keeps_late_claims();
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        process.loading.remove(&session);
        // A session claimed before a lapse may have another owner since, and was not compared.
        if process.serving.lapses() != lapses && !keeps_late {
            return Ok(());
        }
        process.sessions.insert(session, epoch);
        self.ledger.hold(session, node);
        self.check_act(node, session, epoch)
    }

    /// Models `SessionHandover::hand_over_one` for idle sessions. The order is that of
    /// `HandoverPlan`, which is in a crate above this one: the longest unused first.
    fn hand_over(&mut self, node: NodeIndex, held: Vec<(SessionIndex, u64)>) {
        let (store_ms, own) = (self.store_ms(node), super::store::node_name(node));
        self.set_timer(LOOK_MS, node, NodeTimer::Drain);
        let may_act = self.may_act(node);
        let process = self.nodes[node].process.as_mut().expect("it was asked for");
        process.is_draining = false;
        let Some(snapshot) = process.snapshot.clone() else { return };
        let mut nodes = snapshot.session_nodes(store_ms);
        nodes.retain(|it| *it != own);
        if nodes.is_empty() || !may_act {
            return;
        }
        for (session, epoch) in held.into_iter().take(HANDOVERS_MAX) {
            // One in three is busy.
            if self.chance.is_one_in(3) {
                continue;
            }
            let process = self.nodes[node].process.as_mut().expect("it was asked for");
            if process.loading.contains(&session) {
                continue;
            }
            if process.sessions.remove(&session).is_some() {
                self.ledger.leave(session, node);
            }
            let taker = placement::first(&session_name(session), &nodes).expect("there are some");
            let taker = self.store.node_of(taker);
            let request = StoreRequest::Give { session, epoch, taker };
            self.send(node, StoreConnection::Shared, request);
        }
    }
}
