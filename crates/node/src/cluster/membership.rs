//! Membership of this node in its cluster.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time;

use super::identity::NodeIdentity;
use super::limit_homes::{LIMIT_PART_MIN, LimitHomes};
use super::placement::{self, PlaceOffer, WorkKind, is_place};
use super::record::{NodeDescription, NodeLoad, NodeRecord, NodeState};
use super::registry::{NodeRegistration, NodeRegistry};
use super::serving_lease::ServingLease;
use super::takeover::{NodeFate, NodeJudge, StoreContinuity};
use crate::clock;
use crate::drain::DrainHandle;
use crate::store::{SqlStore, SqlStoreError, StoreDialect};

/// Longest interval between renewals of a node's row in a shared store; a fifth of its lease if
/// that is shorter.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// The same, in a store that is not shared.
pub const RENEW_INTERVAL_ALONE: Duration = Duration::from_secs(5);

/// Number of renewals per lease.
const RENEWALS_PER_LEASE: u32 = 5;

/// Interval at which a starting node checks whether another run of it is alive.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why a node cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Another run of the node is alive, in another directory.
    #[error(
        "server {0} is running already, from a directory that this one is a copy of, or that is a \
         copy of this one: remove `server.id` from the copy, which gives it a name of its own"
    )]
    Running(String),
    /// The store cannot be used.
    #[error("register this server in the store")]
    Store(#[from] SqlStoreError),
}

/// Function that returns the node's present load.
type LoadSource = Arc<dyn Fn() -> NodeLoad + Send + Sync>;

/// A node's membership of its cluster. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct NodeMembership(Arc<MembershipShared>);

struct MembershipShared {
    registry: NodeRegistry,
    run: NodeIdentity,
    is_shared: bool,
    /// Time for which this node counts as alive after its last renewal.
    lease: Duration,
    /// All nodes, as last read.
    nodes: RwLock<HashMap<String, NodeRecord>>,
    continuity: Mutex<StoreContinuity>,
    load: OnceLock<LoadSource>,
    /// False if an operator asked the node to drain.
    takes_work: watch::Sender<bool>,
    /// Work that was sent to each node since the nodes were read.
    sent: Mutex<HashMap<String, u64>>,
    /// Right of this node to act for its sessions.
    serving: ServingLease,
    /// Number of renewals, each of which reads all nodes.
    renewals: watch::Sender<u64>,
    /// Notified when the next renewal should not wait.
    hurry: Notify,
}

/// A lost node, as known to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNode {
    /// Name.
    pub id: String,
    /// Name of its last run.
    pub incarnation: String,
    /// Time of its last renewal, by the store's clock.
    pub seen_ms: u64,
}

impl NodeMembership {
    /// Registers this run as the node's current one. An earlier run in the same directory has
    /// ended; one in another directory, of which this one is a copy, may be alive: this call waits
    /// until that run has not renewed for as long as its lease. From the first renewal on, this
    /// node counts as alive for `lease` after each renewal.
    ///
    /// # Errors
    /// If another run is alive, or the store cannot be used.
    pub async fn join(
        store: &SqlStore,
        run: NodeIdentity,
        description: &NodeDescription,
        lease: Duration,
    ) -> Result<NodeMembership, JoinError> {
        let registry = NodeRegistry::open(store).await?;
        let is_shared = store.dialect() == StoreDialect::Postgres;
        let serving = match is_shared {
            true => ServingLease::of(lease),
            false => ServingLease::unlimited(),
        };
        let mut first_ms = None;
        loop {
            let (now_ms, sent_ms) = (registry.now_ms(), clock::boot_ms());
            let registered = registry.register(&run, description, is_shared, now_ms).await?;
            let NodeRegistration::SeenElsewhere(seen_ms) = registered else {
                serving.renewed(sent_ms);
                break;
            };
            match first_ms {
                None => tracing::info!(
                    server = run.id,
                    "this server was seen in another directory just now; waiting for its lease"
                ),
                Some(first_ms) if first_ms != seen_ms => return Err(JoinError::Running(run.id)),
                Some(_) => {}
            }
            first_ms.get_or_insert(seen_ms);
            time::sleep(LOOK_INTERVAL).await;
        }
        // Renewals must neither wait behind other queries nor lose against a node that is suspended
        // in the middle of a transaction.
        let registry = registry.over(store.reserved(lease / 2).await?);
        let membership = NodeMembership(Arc::new(MembershipShared {
            registry,
            run,
            is_shared,
            lease,
            nodes: RwLock::default(),
            continuity: Mutex::default(),
            load: OnceLock::new(),
            takes_work: watch::Sender::new(true),
            sent: Mutex::default(),
            serving,
            renewals: watch::Sender::new(0),
            hurry: Notify::new(),
        }));
        // A drain may have been requested before the restart.
        membership.take_over(membership.0.registry.list().await?);
        Ok(membership)
    }

    /// Returns the identity of this run.
    #[must_use]
    pub fn identity(&self) -> &NodeIdentity {
        &self.0.run
    }

    /// Returns the registry of nodes.
    #[must_use]
    pub fn registry(&self) -> &NodeRegistry {
        &self.0.registry
    }

    /// Returns whether other nodes may share the store with this one.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.is_shared
    }

    /// Returns the right to act for this node's sessions, with its end.
    #[must_use]
    pub fn serving(&self) -> &ServingLease {
        &self.0.serving
    }

    /// Sets the source of this node's load. It must not block.
    pub fn measure(&self, load: impl Fn() -> NodeLoad + Send + Sync + 'static) {
        // A second caller measures the same services.
        drop(self.0.load.set(Arc::new(load)));
    }

    /// Returns the time for which this node counts as alive after its last renewal.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.0.lease
    }

    /// Number of renewals, each of which reads all nodes.
    #[must_use]
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.0.renewals.subscribe()
    }

    /// Returns the lost nodes, whose sessions others take over.
    #[must_use]
    pub fn lost(&self) -> Vec<LostNode> {
        let (judge, nodes) = (self.judge(), self.0.nodes.read());
        let is_lost = |node: &&NodeRecord| {
            node.id != self.0.run.id && self.0.is_shared && judge.fate(node).is_lost()
        };
        let lost = nodes.values().filter(is_lost).map(|node| LostNode {
            id: node.id.clone(),
            incarnation: node.incarnation.clone(),
            seen_ms: node.seen_ms,
        });
        lost.collect()
    }

    /// Returns the knowledge by which this node judges others now.
    #[must_use]
    pub fn judge(&self) -> NodeJudge {
        let now_ms = self.0.registry.now_ms();
        if !self.0.is_shared {
            return NodeJudge::new(now_ms, Some(u64::MAX));
        }
        let continuity = *self.0.continuity.lock();
        continuity.judge(clock::boot_ms(), now_ms, whole_ms(self.0.lease))
    }

    /// Returns whether this node takes new work: not while an operator wants it to drain.
    #[must_use]
    pub fn takes_work(&self) -> watch::Receiver<bool> {
        self.0.takes_work.subscribe()
    }

    /// Returns the nodes for work of a kind, this one included, by what is known of all now.
    pub(super) fn offers(&self, kind: WorkKind) -> Vec<PlaceOffer> {
        let own = &self.0.run.id;
        let (now_ms, sent) = (self.0.registry.now_ms(), self.0.sent.lock());
        let nodes = self.0.nodes.read();
        let is_offer = |node: &&NodeRecord| is_place(node, own, kind, now_ms);
        let offers = nodes.values().filter(is_offer).map(|node| {
            // This node's own load is known exactly.
            let (load, sent) = match node.id == *own {
                true => (self.load(), 0),
                false => (node.load, sent.get(&node.id).copied().unwrap_or_default()),
            };
            let (used, max) = kind.places(&load);
            PlaceOffer { id: node.id.clone(), used: used + sent, max }
        });
        offers.collect()
    }

    /// Returns whether this node is one of those that are made ready for work of a key: for no key
    /// while it drains, and for all keys if others cannot send work to it.
    #[must_use]
    pub fn is_ready_for(&self, key: &str) -> bool {
        let nodes: Vec<_> = self.offers(WorkKind::Session).into_iter().map(|it| it.id).collect();
        let own = &self.0.run.id;
        if !*self.0.takes_work.borrow() {
            return false;
        }
        !nodes.contains(own) || placement::is_among_first(key, own, &nodes, placement::CANDIDATES)
    }

    /// Returns the nodes that sessions are placed at, sorted by name.
    #[must_use]
    pub fn session_nodes(&self) -> Vec<String> {
        let mut nodes: Vec<_> =
            self.offers(WorkKind::Session).into_iter().map(|it| it.id).collect();
        nodes.sort();
        nodes
    }

    /// Returns the nodes of a role that are active and do not drain, as far as this node knows,
    /// sorted by name: this one, and others that can be reached.
    #[must_use]
    pub fn active_nodes(&self, role: &str) -> Vec<String> {
        let (own, judge) = (&self.0.run.id, self.judge());
        // `takes_work` reflects this node's drain before its row does.
        let takes_work = *self.0.takes_work.borrow();
        let nodes = self.0.nodes.read();
        let is_meant = |node: &&NodeRecord| {
            let is_own = node.id == *own;
            let is_active = node.state == NodeState::Active && !node.drain_wanted;
            let is_reached = is_own || node.description.peer_address.is_some();
            let has_role = node.description.roles.iter().any(|it| it == role);
            let is_there = is_active && is_reached && has_role && (takes_work || !is_own);
            is_there && !judge.fate(node).is_over()
        };
        let mut nodes: Vec<String> =
            nodes.values().filter(is_meant).map(|node| node.id.clone()).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Returns the homes of limits of one size at the nodes of a role, as this node knows them now;
    /// none if such a limit has a part at every node.
    #[must_use]
    pub fn limit_homes(&self, role: &str, limit: u32) -> Option<LimitHomes> {
        // Most limits are large and return here.
        let known = u32::try_from(self.0.nodes.read().len()).unwrap_or(u32::MAX);
        if limit / LIMIT_PART_MIN >= known {
            return None;
        }
        LimitHomes::new(&self.0.run.id, self.active_nodes(role), limit)
    }

    /// Returns the other node that receives a session when this one gives it away: the first by
    /// rendezvous hashing among those that take sessions and can be reached. None if there is none.
    #[must_use]
    pub fn taker_of(&self, session: &str) -> Option<String> {
        let own = &self.0.run.id;
        let mut nodes = self.session_nodes();
        nodes.retain(|node| node != own);
        placement::first(session, &nodes).map(str::to_owned)
    }

    /// Returns whether this node can forward requests to any other node.
    #[must_use]
    pub fn reaches_others(&self) -> bool {
        let nodes = self.0.nodes.read();
        nodes.values().any(|it| it.id != self.0.run.id && it.description.peer_address.is_some())
    }

    /// Returns whether all running nodes, this one included, can be reached by the others.
    #[must_use]
    pub fn all_reach_each_other(&self) -> bool {
        let now_ms = self.0.registry.now_ms();
        let nodes = self.0.nodes.read();
        let mut living = nodes.values().filter(|node| node.is_alive(now_ms));
        living.all(|node| node.description.peer_address.is_some())
    }

    /// Counts work that was sent to a node.
    pub(super) fn count_sent(&self, id: &str) {
        *self.0.sent.lock().entry(id.to_owned()).or_default() += 1;
    }

    fn load(&self) -> NodeLoad {
        let load = self.0.load.get().map(|load| load()).unwrap_or_default();
        NodeLoad { lease_ms: whole_ms(self.0.lease), ..load }
    }

    /// Returns a node if it runs, as far as this node knows.
    #[must_use]
    pub fn living(&self, id: &str) -> Option<NodeRecord> {
        let judge = self.judge();
        self.0.nodes.read().get(id).filter(|node| !judge.fate(node).is_over()).cloned()
    }

    /// Returns all running nodes, as far as this node knows, this one included.
    #[must_use]
    pub fn all_living(&self) -> Vec<NodeRecord> {
        let judge = self.judge();
        let nodes = self.0.nodes.read();
        nodes.values().filter(|node| !judge.fate(node).is_over()).cloned().collect()
    }

    /// Returns all nodes that may still hold something: running and silent ones.
    pub(super) fn all_not_over(&self) -> Vec<NodeRecord> {
        let judge = self.judge();
        let is_there =
            |node: &&NodeRecord| matches!(judge.fate(node), NodeFate::Present | NodeFate::Silent);
        self.0.nodes.read().values().filter(is_there).cloned().collect()
    }

    /// Resolves when a run of a node is lost or has ended.
    pub(super) async fn until_lost(&self, id: &str, incarnation: &str) {
        let mut renewals = self.renewals();
        while self.living(id).is_some_and(|node| node.incarnation == incarnation) {
            if renewals.changed().await.is_err() {
                return;
            }
        }
    }

    /// Renews the row until the server stops. If another run has replaced this one, which was
    /// suspended for longer than a lease in that case, shuts the server down.
    pub async fn keep(&self, drain: &DrainHandle) {
        // A task of its own, so that other futures of the caller cannot delay it.
        let mut keeping = JoinSet::new();
        let (membership, drain) = (self.clone(), drain.clone());
        keeping.spawn(async move { membership.renew_for_ever(&drain).await });
        if let Some(Err(error)) = keeping.join_next().await {
            tracing::error!(error = &error as &dyn std::error::Error, "renewals have ended");
        }
    }

    async fn renew_for_ever(&self, drain: &DrainHandle) {
        let shared = &self.0;
        let interval = match shared.is_shared {
            true => RENEW_INTERVAL.min(shared.lease / RENEWALS_PER_LEASE),
            false => RENEW_INTERVAL_ALONE,
        };
        let mut failed = false;
        let mut store_changes = shared.registry.store_changes();
        loop {
            let state = match drain.is_draining() || !*shared.takes_work.borrow() {
                true => NodeState::Draining,
                false => NodeState::Active,
            };
            let load = self.load();
            let (now_ms, sent_ms) = (shared.registry.now_ms(), clock::boot_ms());
            let renewed = shared.registry.renew(&shared.run, state, load, now_ms).await;
            let was_failed = std::mem::replace(&mut failed, renewed.is_err());
            let changes = shared.registry.store_changes();
            if std::mem::replace(&mut store_changes, changes) != changes {
                self.doubt_store();
            }
            match renewed {
                Ok(Some(renewal)) => {
                    if renewal.was_expired {
                        tracing::warn!(
                            "this node refused other nodes, and they considered it lost"
                        );
                        shared.serving.lapse();
                    }
                    shared.serving.renewed(sent_ms);
                    shared.continuity.lock().renewed(clock::boot_ms(), whole_ms(shared.lease));
                    self.take_over(renewal.nodes);
                }
                Ok(None) => {
                    let server = &shared.run.id;
                    tracing::error!(
                        server,
                        "another server has this one's name, from a copy of the data directory; \
                         this one stops"
                    );
                    return drain.begin();
                }
                // Logged once, not every second.
                Err(error) if !was_failed => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to renew this server's lease in the store"
                ),
                Err(_) => {}
            }
            let was_draining = state == NodeState::Draining;
            tokio::select! {
                () = time::sleep(interval) => {}
                () = shared.hurry.notified() => {}
                // At once: the listener is closed now, which others must not take for the end of
                // the node.
                () = drain.begun(), if !was_draining => {}
            }
        }
    }

    /// Has this node's state compared with the store, which may have lost its last commits: claims
    /// of this node, and renewals of others.
    fn doubt_store(&self) {
        tracing::info!(
            "another server stands for the store, or it was started anew: what this server has is \
             compared with it"
        );
        self.0.continuity.lock().replaced(clock::boot_ms());
        self.0.serving.lapse();
    }

    /// Requests a read of all nodes soon, after a change of one.
    pub(super) fn look_again(&self) {
        self.0.hurry.notify_one();
    }

    /// Records in the store that this node has stopped.
    pub async fn leave(&self) {
        if let Err(error) = self.0.registry.leave(&self.0.run).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to record in the store that this server stopped"
            );
        }
    }

    fn take_over(&self, nodes: Vec<NodeRecord>) {
        let own = nodes.iter().find(|node| node.id == self.0.run.id);
        let takes_work = own.is_none_or(|it| !it.drain_wanted);
        self.0
            .takes_work
            .send_if_modified(|takes| std::mem::replace(takes, takes_work) != takes_work);
        self.0.sent.lock().clear();
        *self.0.nodes.write() = nodes.into_iter().map(|node| (node.id.clone(), node)).collect();
        self.0.renewals.send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for NodeMembership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeMembership").field("run", &self.0.run).finish_non_exhaustive()
    }
}
