//! Model of the store: serialisable, since it executes one request after the other. It may be down,
//! be replaced by another server, and lose its last commits.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::SimulatedRules;
use crate::cluster::identity::NodeIdentity;
use crate::cluster::limit_shares::{self, LimitScope, LimitUse, ShareRow};
use crate::cluster::record::{NodeDescription, NodeLoad, NodeRecord, NodeState};
use crate::cluster::takeover::{NodeFate, NodeJudge};
use crate::testing::SeededRandom;

/// Time for which changes can still be lost.
const TAIL_MAX_MS: u64 = 2_000;
/// Interval within which reads see the same rows, if there are too many nodes to copy the rows for
/// each read.
const SHARED_READ_MS: u64 = 10;
/// Number of nodes from which this applies.
const MANY_NODES: usize = 300;
/// Interval at which the turn of a limit passes to another node (`TURN_MS` of `limit_shares`).
const TURN_MS: u64 = 2_000;
/// Maximum step of the store's clock when another server replaces it: the difference between two
/// machines with synchronised clocks.
const STORE_STEP_MS: u64 = 100;
/// Maximum age, in milliseconds, of the commits that are lost when the store is replaced.
const FORGOTTEN_MS: u64 = 1_000;

/// Index of a node, and of a session.
pub(super) type NodeIndex = usize;
pub(super) type SessionIndex = usize;

/// Row of `sessions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimulatedSessionRow {
    pub(super) owner: NodeIndex,
    pub(super) epoch: u64,
}

/// Request of a node to the store. Each names the statement that it models.
#[derive(Clone, Debug)]
pub(super) enum StoreRequest {
    /// `READ_CLOCK`, with the time at which it was sent.
    Clock { asked_ms: u64 },
    /// `NodeRegistry::register` of a run in the directory of the previous one.
    Register { sent_ms: u64, seen_ms: u64 },
    /// `NodeRegistry::renew`, the update.
    Renew { sent_ms: u64, seen_ms: u64, state: NodeState },
    /// `NodeRegistry::renew`, the list of all nodes.
    List { sent_ms: u64 },
    /// `NodeRegistry::expire`.
    Expire { node: NodeIndex, incarnation: String },
    /// `SessionStore::epochs_of_server`, and `session_of_anybody` for those that are not among
    /// them.
    Epochs { lapse: u64, held: Vec<(SessionIndex, u64)> },
    /// `SessionStore::sessions_of_lost`.
    FindLost { node: NodeIndex, incarnation: String, lost_for: Duration },
    /// `SessionStore::claim_lost`.
    ClaimLost {
        node: NodeIndex,
        incarnation: String,
        lost_for: Duration,
        ids: Vec<SessionIndex>,
        judge: NodeJudge,
    },
    /// `SessionStore::session`, to find its owner.
    Look { session: SessionIndex, was_passed_on: bool },
    /// `SessionStore::claim`.
    Claim { session: SessionIndex, from_epoch: u64, judge: NodeJudge, lapses: u64 },
    /// Read of the open turns of a session that was just claimed (`SessionLog::end_open_turns`).
    OpenTurns { session: SessionIndex, epoch: u64, lapses: u64 },
    /// `SessionStore::sessions_held`.
    Held,
    /// `SessionStore::give_back`.
    Give { session: SessionIndex, epoch: u64, taker: NodeIndex },
    /// `LimitShares::settle`.
    Settle { used: LimitUse, judge: NodeJudge },
}

impl StoreRequest {
    /// Returns whether it is caused by the loss of a node.
    pub(super) fn is_of_loss(&self) -> bool {
        matches!(
            self,
            StoreRequest::FindLost { .. }
                | StoreRequest::ClaimLost { .. }
                | StoreRequest::Expire { .. }
        )
    }
}

/// Answer of the store.
#[derive(Clone, Debug)]
pub(super) enum StoreAnswer {
    Clock {
        asked_ms: u64,
        ms: u64,
    },
    Registered {
        sent_ms: u64,
    },
    /// None if another run has replaced this one.
    Renewed {
        sent_ms: u64,
        was_expired: Option<bool>,
    },
    Listed {
        sent_ms: u64,
        snapshot: Rc<SimulatedSnapshot>,
    },
    Expired,
    /// Sessions of the node that now have another owner.
    Epochs {
        lapse: u64,
        taken: Vec<(SessionIndex, u64)>,
    },
    Found {
        node: NodeIndex,
        incarnation: String,
        lost_for: Duration,
        sessions: Vec<SessionIndex>,
    },
    ClaimedLost,
    Looked {
        session: SessionIndex,
        was_passed_on: bool,
        row: SimulatedSessionRow,
    },
    Claimed {
        session: SessionIndex,
        epoch: Option<u64>,
        lapses: u64,
    },
    OpenTurns {
        session: SessionIndex,
        epoch: u64,
        lapses: u64,
    },
    Held {
        sessions: Vec<(SessionIndex, u64)>,
    },
    Given,
    Settled {
        part: u32,
    },
    /// The connection led to a server that no longer exists.
    ConnectionLost,
    /// No server listens.
    Unavailable,
}

/// All nodes at a moment.
#[derive(Debug)]
pub(super) struct SimulatedSnapshot {
    pub(super) rows: Vec<Option<Rc<NodeRecord>>>,
    /// Nodes that may not be alive for a reader until [`SimulatedSnapshot::certain_until_ms`]; all
    /// others are alive.
    pub(super) doubtful: Vec<NodeIndex>,
    pub(super) certain_until_ms: u64,
    /// Names of the certain nodes that take sessions, once requested.
    certain: OnceCell<Vec<String>>,
}

/// A session that changed hands: checked by the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionMove {
    pub(super) session: SessionIndex,
    pub(super) from: NodeIndex,
    pub(super) to: NodeIndex,
    pub(super) reason: MoveReason,
}

/// Reason for a change of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveReason {
    /// The owner was lost.
    TakenOver,
    /// A client requested it, and its owner had ended.
    Asked,
    /// The owner drains.
    Given,
}

/// Row to restore when the store loses commits.
#[derive(Debug)]
enum StoreUndo {
    Node(NodeIndex, Option<Rc<NodeRecord>>),
    Session(SessionIndex, SimulatedSessionRow),
    Share(NodeIndex, Option<ShareRow>),
}

#[derive(Debug)]
pub(super) struct ModelStore {
    pub(super) rows: Vec<Option<Rc<NodeRecord>>>,
    pub(super) sessions: Vec<SimulatedSessionRow>,
    shares: BTreeMap<NodeIndex, ShareRow>,
    /// Sessions of each node.
    owned: Vec<Vec<SessionIndex>>,
    names: HashMap<String, NodeIndex>,
    description: NodeDescription,
    /// Milliseconds by which its clock is ahead of true time, beyond [`super::START_MS`].
    clock_ms: u64,
    /// Number of the present server.
    pub(super) generation: u64,
    away_until_ms: u64,
    /// True if requests are not even refused while it is down.
    pub(super) is_silent: bool,
    pub(super) slow_until_ms: u64,
    tail: VecDeque<(u64, StoreUndo)>,
    snapshot: Option<(u64, Rc<SimulatedSnapshot>)>,
    pub(super) moves: Vec<SessionMove>,
    rules: SimulatedRules,
}

/// A run of a node that is lost.
#[derive(Debug)]
struct LostRun {
    node: NodeIndex,
    incarnation: String,
}

/// Sender of a request.
#[derive(Clone, Debug)]
pub(super) struct StoreCaller {
    pub(super) node: NodeIndex,
    pub(super) incarnation: String,
    pub(super) lease_ms: u64,
}

impl ModelStore {
    pub(super) fn new(nodes: usize, description: NodeDescription, rules: SimulatedRules) -> Self {
        ModelStore {
            rows: vec![None; nodes],
            sessions: Vec::new(),
            shares: BTreeMap::new(),
            owned: vec![Vec::new(); nodes],
            names: (0..nodes).map(|node| (node_name(node), node)).collect(),
            description,
            clock_ms: super::START_MS,
            generation: 0,
            away_until_ms: 0,
            is_silent: false,
            slow_until_ms: 0,
            tail: VecDeque::new(),
            snapshot: None,
            moves: Vec::new(),
            rules,
        }
    }

    pub(super) fn is_away(&self, now_ms: u64) -> bool {
        now_ms < self.away_until_ms
    }

    pub(super) fn now_ms(&self, now_ms: u64) -> u64 {
        self.clock_ms + now_ms
    }

    pub(super) fn add_session(&mut self, owner: NodeIndex) {
        self.owned[owner].push(self.sessions.len());
        self.sessions.push(SimulatedSessionRow { owner, epoch: 1 });
    }

    /// Creates the row of a node that existed before the start.
    pub(super) fn enlist(&mut self, caller: &StoreCaller) {
        self.register(0, caller, super::START_MS);
        self.renew(0, caller, super::START_MS, NodeState::Active);
        self.tail.clear();
    }

    pub(super) fn node_of(&self, name: &str) -> NodeIndex {
        self.names[name]
    }

    /// Becomes another server, without the changes of the last `lost_ms`.
    fn fail_over(&mut self, now_ms: u64, lost_ms: u64) {
        self.generation += 1;
        self.snapshot = None;
        while let Some((done_ms, _)) = self.tail.back()
            && *done_ms + lost_ms > now_ms
        {
            match self.tail.pop_back().expect("it was looked at").1 {
                StoreUndo::Node(node, row) => self.rows[node] = row,
                StoreUndo::Session(session, row) => self.put_session(session, row),
                StoreUndo::Share(node, Some(row)) => drop(self.shares.insert(node, row)),
                StoreUndo::Share(node, None) => drop(self.shares.remove(&node)),
            }
        }
        self.tail.clear();
    }

    /// Takes the store down for a while.
    pub(super) fn lose(&mut self, now_ms: u64, chance: &mut SeededRandom) {
        self.away_until_ms = now_ms + chance.below(8_000);
        self.is_silent = chance.is_one_in(2);
        if !self.is_silent {
            // The store was restarted.
            self.fail_over(now_ms, 0);
        }
    }

    /// Replaces the store by another server, without its last commits.
    pub(super) fn stand_in(&mut self, now_ms: u64, chance: &mut SeededRandom) {
        let lost_ms = chance.below(FORGOTTEN_MS);
        self.fail_over(now_ms, lost_ms);
        self.away_until_ms = now_ms + chance.below(1_000);
        self.is_silent = false;
        self.clock_ms += chance.below(STORE_STEP_MS);
        self.clock_ms -= chance.below(STORE_STEP_MS);
    }

    /// Requests that a node drains, or stops draining, as an operator does.
    pub(super) fn ask_to_drain(&mut self, now_ms: u64, node: NodeIndex, drains: bool) {
        if let Some(row) = &self.rows[node] {
            let row = NodeRecord { drain_wanted: drains, ..(**row).clone() };
            self.set_row(now_ms, node, row);
        }
    }

    /// Executes a request.
    pub(super) fn execute(
        &mut self,
        now_ms: u64,
        caller: &StoreCaller,
        request: StoreRequest,
    ) -> StoreAnswer {
        while self.tail.front().is_some_and(|(at_ms, _)| at_ms + TAIL_MAX_MS < now_ms) {
            self.tail.pop_front();
        }
        match request {
            StoreRequest::Clock { asked_ms } => {
                StoreAnswer::Clock { asked_ms, ms: self.now_ms(now_ms) }
            }
            StoreRequest::Register { sent_ms, seen_ms } => {
                self.register(now_ms, caller, seen_ms);
                StoreAnswer::Registered { sent_ms }
            }
            StoreRequest::Renew { sent_ms, seen_ms, state } => {
                let was_expired = self.renew(now_ms, caller, seen_ms, state);
                StoreAnswer::Renewed { sent_ms, was_expired }
            }
            StoreRequest::List { sent_ms } => {
                StoreAnswer::Listed { sent_ms, snapshot: self.list(now_ms) }
            }
            StoreRequest::Expire { node, incarnation } => {
                self.expire(now_ms, node, &incarnation);
                StoreAnswer::Expired
            }
            StoreRequest::Epochs { lapse, held } => {
                let is_taken = |(session, epoch): &(SessionIndex, u64)| {
                    self.sessions[*session]
                        != SimulatedSessionRow { owner: caller.node, epoch: *epoch }
                };
                StoreAnswer::Epochs { lapse, taken: held.into_iter().filter(is_taken).collect() }
            }
            StoreRequest::FindLost { node, incarnation, lost_for } => {
                let sessions = self.owned[node].clone();
                StoreAnswer::Found { node, incarnation, lost_for, sessions }
            }
            StoreRequest::ClaimLost { node, incarnation, ids, judge, .. } => {
                self.claim_lost(now_ms, caller, &LostRun { node, incarnation }, &ids, judge);
                StoreAnswer::ClaimedLost
            }
            StoreRequest::Look { session, was_passed_on } => {
                StoreAnswer::Looked { session, was_passed_on, row: self.sessions[session] }
            }
            StoreRequest::Claim { session, from_epoch, judge, lapses } => {
                let epoch = self.claim(now_ms, caller, session, from_epoch, judge);
                StoreAnswer::Claimed { session, epoch, lapses }
            }
            StoreRequest::OpenTurns { session, epoch, lapses } => {
                StoreAnswer::OpenTurns { session, epoch, lapses }
            }
            StoreRequest::Held => {
                let held = self.owned[caller.node].iter();
                let sessions = held.map(|session| (*session, self.sessions[*session].epoch));
                StoreAnswer::Held { sessions: sessions.collect() }
            }
            StoreRequest::Give { session, epoch, taker } => {
                if self.sessions[session].epoch == epoch {
                    self.move_session(now_ms, session, taker, epoch, MoveReason::Given);
                }
                StoreAnswer::Given
            }
            StoreRequest::Settle { used, judge } => {
                StoreAnswer::Settled { part: self.settle(now_ms, caller, &used, judge) }
            }
        }
    }

    fn register(&mut self, now_ms: u64, caller: &StoreCaller, seen_ms: u64) {
        let before = self.rows[caller.node].as_ref();
        let row = NodeRecord {
            id: node_name(caller.node),
            incarnation: caller.incarnation.clone(),
            started_ms: seen_ms,
            seen_ms,
            state: NodeState::Joining,
            drain_wanted: before.is_some_and(|row| row.drain_wanted),
            description: self.description.clone(),
            load: NodeLoad::default(),
        };
        self.set_row(now_ms, caller.node, row);
    }

    fn renew(
        &mut self,
        now_ms: u64,
        caller: &StoreCaller,
        seen_ms: u64,
        state: NodeState,
    ) -> Option<bool> {
        let row = self.rows[caller.node].as_ref();
        let row = row.filter(|row| row.incarnation == caller.incarnation)?;
        let was_expired = row.state == NodeState::Left;
        let load = NodeLoad { lease_ms: caller.lease_ms, ..NodeLoad::default() };
        let row = NodeRecord { seen_ms, state, load, ..(**row).clone() };
        self.set_row(now_ms, caller.node, row);
        Some(was_expired)
    }

    fn expire(&mut self, now_ms: u64, node: NodeIndex, incarnation: &str) {
        let Some(row) = &self.rows[node] else { return };
        let may_be = matches!(row.state, NodeState::Active | NodeState::Joining);
        if row.incarnation == incarnation && may_be {
            let load = NodeLoad { is_lost: true, ..NodeLoad::default() };
            let row = NodeRecord { state: NodeState::Left, load, ..(**row).clone() };
            self.set_row(now_ms, node, row);
        }
    }

    fn list(&mut self, now_ms: u64) -> Rc<SimulatedSnapshot> {
        if let Some((at_ms, snapshot)) = &self.snapshot
            && self.rows.len() >= MANY_NODES
            && now_ms < at_ms + SHARED_READ_MS
        {
            return Rc::clone(snapshot);
        }
        let taken_ms = self.now_ms(now_ms);
        let lease_ms = self.rows.iter().flatten().map(|row| row.lease_ms()).min();
        let certain_until_ms = taken_ms + lease_ms.unwrap_or(0) / 2;
        let is_doubtful = |row: &Rc<NodeRecord>| !row.is_alive(certain_until_ms);
        let numbered = self.rows.iter().enumerate();
        let doubtful =
            numbered.filter(|(_, row)| row.as_ref().is_some_and(is_doubtful)).map(|(node, _)| node);
        let snapshot = Rc::new(SimulatedSnapshot {
            rows: self.rows.clone(),
            doubtful: doubtful.collect(),
            certain_until_ms,
            certain: OnceCell::new(),
        });
        self.snapshot = Some((now_ms, Rc::clone(&snapshot)));
        snapshot
    }

    /// Models `claim_lost` of `sessions::store::claims`.
    fn claim_lost(
        &mut self,
        now_ms: u64,
        caller: &StoreCaller,
        lost: &LostRun,
        ids: &[SessionIndex],
        judge: NodeJudge,
    ) {
        let is_lost = self.rows[lost.node].as_ref().is_some_and(|row| {
            row.incarnation == lost.incarnation && self.rules.fate(judge, row).is_lost()
        });
        if !is_lost || self.is_replaced(caller) {
            return;
        }
        for session in ids {
            let row = self.sessions[*session];
            if row.owner == lost.node {
                let epoch = row.epoch + 1;
                self.move_session(now_ms, *session, caller.node, epoch, MoveReason::TakenOver);
            }
        }
    }

    /// Models `claim` of `sessions::store::sessions`, with files in the object store.
    fn claim(
        &mut self,
        now_ms: u64,
        caller: &StoreCaller,
        session: SessionIndex,
        from_epoch: u64,
        judge: NodeJudge,
    ) -> Option<u64> {
        let row = self.sessions[session];
        if row.epoch != from_epoch || self.is_replaced(caller) {
            return None;
        }
        let is_free = row.owner == caller.node
            || self.rows[row.owner].as_ref().is_none_or(|owner| {
                // The sessions of an ended node may be claimed.
                self.rules.fate(judge, owner).is_over()
            });
        if !is_free {
            return None;
        }
        let epoch = row.epoch + 1;
        self.move_session(now_ms, session, caller.node, epoch, MoveReason::Asked);
        Some(epoch)
    }

    /// Models `settle_one` of `limit_shares`.
    fn settle(
        &mut self,
        now_ms: u64,
        caller: &StoreCaller,
        used: &LimitUse,
        judge: NodeJudge,
    ) -> u32 {
        let run = NodeIdentity {
            id: node_name(caller.node),
            incarnation: caller.incarnation.clone(),
            home: String::new(),
        };
        let mut known = BTreeMap::new();
        for node in self.shares.keys() {
            if let Some(row) = &self.rows[*node] {
                known.insert(row.id.clone(), (**row).clone());
            }
        }
        let free: Vec<NodeIndex> = self
            .shares
            .iter()
            .filter(|(node, row)| {
                **node != caller.node
                    && limit_shares::is_free(row, &known, judge, LimitScope::Strict)
            })
            .map(|(node, _)| *node)
            .collect();
        for node in free {
            self.set_share(now_ms, node, None);
        }
        let mut rows: Vec<ShareRow> = self.shares.values().cloned().collect();
        if self.rules.ignores_other_shares() {
            rows.retain(|row| row.node == run.id);
        }
        let (row, part) = limit_shares::grant(&rows, used, &run, judge.now_ms() / TURN_MS);
        let is_nothing = row.granted == 0 && row.needed == 0;
        self.set_share(now_ms, caller.node, (!is_nothing).then_some(row));
        if is_nothing { 0 } else { part }
    }

    fn is_replaced(&self, caller: &StoreCaller) -> bool {
        let row = self.rows[caller.node].as_ref();
        row.is_some_and(|row| row.incarnation != caller.incarnation)
    }

    fn set_row(&mut self, now_ms: u64, node: NodeIndex, row: NodeRecord) {
        let before = self.rows[node].replace(Rc::new(row));
        self.tail.push_back((now_ms, StoreUndo::Node(node, before)));
    }

    fn set_share(&mut self, now_ms: u64, node: NodeIndex, row: Option<ShareRow>) {
        let before = match row {
            Some(row) => self.shares.insert(node, row),
            None => self.shares.remove(&node),
        };
        self.tail.push_back((now_ms, StoreUndo::Share(node, before)));
    }

    fn move_session(
        &mut self,
        now_ms: u64,
        session: SessionIndex,
        to: NodeIndex,
        epoch: u64,
        reason: MoveReason,
    ) {
        let before = self.sessions[session];
        self.tail.push_back((now_ms, StoreUndo::Session(session, before)));
        self.put_session(session, SimulatedSessionRow { owner: to, epoch });
        if before.owner != to {
            self.moves.push(SessionMove { session, from: before.owner, to, reason });
        }
    }

    fn put_session(&mut self, session: SessionIndex, row: SimulatedSessionRow) {
        let before = std::mem::replace(&mut self.sessions[session], row);
        if before.owner != row.owner {
            self.owned[before.owner].retain(|owned| *owned != session);
            self.owned[row.owner].push(session);
        }
    }

    pub(super) fn sessions_of(&self, node: NodeIndex) -> &[SessionIndex] {
        &self.owned[node]
    }
}

impl SimulatedSnapshot {
    /// Returns the nodes that are judged lost, except `own` (`NodeMembership::lost`).
    pub(super) fn lost(
        &self,
        judge: NodeJudge,
        own: NodeIndex,
        rules: &SimulatedRules,
    ) -> Vec<NodeIndex> {
        let is_lost = |node: &NodeIndex| {
            let row = self.rows[*node].as_ref();
            *node != own && row.is_some_and(|row| rules.fate(judge, row).is_lost())
        };
        match rules.judged_ms(judge) <= self.certain_until_ms {
            true => self.doubtful.iter().copied().filter(is_lost).collect(),
            false => (0..self.rows.len()).filter(is_lost).collect(),
        }
    }

    /// Returns the names of the nodes that sessions are placed at
    /// (`NodeMembership::session_nodes`).
    pub(super) fn session_nodes(&self, now_ms: u64) -> Vec<String> {
        let is_place = |row: &&Rc<NodeRecord>| super::is_session_node(row, now_ms);
        if now_ms > self.certain_until_ms {
            return self.rows.iter().flatten().filter(is_place).map(|row| row.id.clone()).collect();
        }
        let certain = self.certain.get_or_init(|| {
            let rows = self.rows.iter().flatten();
            let is_certain = |row: &&Rc<NodeRecord>| row.is_alive(self.certain_until_ms);
            rows.filter(is_certain).filter(is_place).map(|row| row.id.clone()).collect()
        });
        let doubtful = self.doubtful.iter().filter_map(|node| self.rows[*node].as_ref());
        let mut nodes = certain.clone();
        nodes.extend(doubtful.filter(is_place).map(|row| row.id.clone()));
        nodes
    }

    /// Returns the state of a node.
    pub(super) fn fate(&self, node: NodeIndex, judge: NodeJudge) -> NodeFate {
        self.rows[node].as_ref().map_or(NodeFate::Stopped, |row| judge.fate(row))
    }
}

/// Name of a node.
pub(super) fn node_name(node: NodeIndex) -> String {
    format!("srv_{node}")
}

/// Name of a session.
pub(super) fn session_name(session: SessionIndex) -> String {
    format!("ses_{session}")
}
