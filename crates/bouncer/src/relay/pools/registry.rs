//! State that the threads' pools share.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pool::shares::{self, ConnectionShares, SlotPermit, ThreadHandle, ThreadWake, UserHandle};
use tokio::sync::Notify;

use super::{PoolFailure, RETRY_FIRST};
use crate::tenants::{PoolId, ServerId, TenantId, TenantSnapshot, TenantUser};

/// Terms of a pool, from the definitions of its tenant and user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    /// The server of its connections.
    pub server: ServerId,
    /// Slots of the server, for all of its tenants.
    pub server_connections_max: u32,
    /// Slots of the tenant, and its weight.
    pub tenant: shares::TenantQuota,
    /// Slots of this pool.
    pub connections_max: u32,
    /// Connections kept while the pool has clients.
    pub connections_min: u32,
    /// Maximum number of the tenant's clients that wait.
    pub waiting_max: u32,
    /// Maximum time that a client waits.
    pub wait: Option<Duration>,
    /// Time after which an idle connection is closed.
    pub idle: Option<Duration>,
    /// Maximum age of a connection; reduced by up to a tenth.
    pub lifetime: Option<Duration>,
    /// Longest time between attempts to reach a server.
    pub retry: Duration,
    /// Connections with another epoch are unfit.
    pub epoch: u32,
    /// Failures with another revision are ignored.
    pub revision: u32,
}

impl PoolTerms {
    /// Returns the terms for a user of a tenant.
    pub fn of(tenant: &TenantSnapshot, user: &TenantUser) -> PoolTerms {
        let connections_max = tenant.connections_max_of(user).unwrap_or(u32::MAX);
        let limits = &tenant.limits;
        PoolTerms {
            server: tenant.server.id,
            server_connections_max: tenant.server.connections_max,
            tenant: shares::TenantQuota {
                connections_max: limits.server_connections_max,
                connections_min: limits.server_connections_min,
                reserve: limits.server_connections_reserve,
                reserve_after: limits.reserve_after,
                weight: tenant.weight,
            },
            connections_max,
            connections_min: limits.server_connections_min,
            waiting_max: limits.waiting_max,
            wait: tenant.times_of(user).wait,
            idle: limits.server_idle,
            lifetime: limits.server_lifetime,
            retry: limits.server_retry,
            epoch: tenant.state.epoch(),
            revision: tenant.state.revision(),
        }
    }
}

/// Maximum server connections of this node, where all nodes share their limits. Servers and tenants
/// without an entry may have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Connections to each server.
    pub servers: HashMap<ServerId, u32>,
    /// Connections of each tenant.
    pub tenants: HashMap<TenantId, u32>,
}

/// Server connections of a server or a tenant at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerConnectionUse {
    /// Maximum number at present.
    pub bound: u32,
    /// Current number, including connections that are being opened and closed.
    pub used: u32,
    /// Clients that wait for a connection; of a tenant only.
    pub waiting: u32,
}

/// Server connections of all servers and tenants that have a pool or a bound.
#[derive(Clone, Debug, Default)]
pub struct ConnectionUsage {
    /// By server.
    pub servers: HashMap<ServerId, ServerConnectionUse>,
    /// By tenant.
    pub tenants: HashMap<TenantId, ServerConnectionUse>,
}

impl ConnectionBounds {
    fn of_server(&self, server: ServerId) -> u32 {
        self.servers.get(&server).copied().unwrap_or(0)
    }

    /// Returns the quota of a tenant at this node.
    fn quota(&self, tenant: TenantId, defined: shares::TenantQuota) -> shares::TenantQuota {
        let bound = self.tenants.get(&tenant).copied().unwrap_or(0);
        let connections_max = defined.connections_max.min(bound);
        shares::TenantQuota {
            connections_max,
            connections_min: defined.connections_min.min(connections_max),
            reserve: defined.reserve.min(bound - connections_max),
            ..defined
        }
    }
}

/// Request between threads.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolMessage {
    /// Send idle connections of this pool.
    Ask {
        /// Pool.
        pool: PoolId,
        /// Requesting thread.
        by: usize,
        /// Number of slots.
        wanted: u32,
    },
    /// The thread has no idle connections.
    Decline {
        /// Pool.
        pool: PoolId,
    },
}

/// State about pools that all relay threads share.
pub struct PoolRegistry {
    shares: ConnectionShares,
    known: Mutex<RegisteredPool>,
    notes: Box<[Mutex<Vec<PoolMessage>>]>,
    wake: Arc<dyn ThreadWake>,
    /// Notified when the first client of a tenant begins to wait.
    demand: Arc<Notify>,
}

#[derive(Default)]
struct RegisteredPool {
    servers: HashMap<ServerId, KnownServer>,
    tenants: HashMap<TenantId, KnownTenant>,
    pools: HashMap<PoolId, Arc<PoolShared>>,
    /// Bounds from limits that all nodes share; `None` if this node has its limits for itself.
    bounds: Option<ConnectionBounds>,
}

struct KnownServer {
    server: shares::ServerHandle,
    /// Maximum connections by the definition of one of its tenants, and the maximum at this node.
    defined: u32,
    connections_max: u32,
    /// Number of its known tenants.
    tenants: u32,
}

struct KnownTenant {
    /// Number of its known pools.
    pools: u32,
    server: ServerId,
    tenant: shares::TenantHandle,
    /// Quota by its definition, and the quota at this node.
    defined: shares::TenantQuota,
    limits: shares::TenantQuota,
    waiting: Arc<AtomicU32>,
}

/// State of one pool that all threads share.
pub(super) struct PoolShared {
    pub(super) id: PoolId,
    tenant: TenantId,
    pub(super) key: UserHandle,
    /// The thread that keeps its minimum.
    pub(super) home: usize,
    /// Connections on all threads, including those that are being opened.
    live: AtomicU32,
    /// True if the last attempt to open one succeeded.
    proven: AtomicBool,
    /// True if `trouble` is set.
    troubled: AtomicBool,
    trouble: Mutex<Option<ServerTrouble>>,
    /// Clients of the tenant that wait, on all threads and in all pools.
    waiting: Arc<AtomicU32>,
    demand: Arc<Notify>,
}

/// A server that cannot be reached.
#[derive(Clone, Debug)]
pub(super) struct ServerTrouble {
    /// Most recent failure.
    pub(super) failure: Arc<PoolFailure>,
    /// Number of consecutive failed attempts.
    attempts: u32,
    /// Time of the next attempt, at the earliest.
    pub(super) retry_at: Instant,
}

struct WakeShared(Arc<dyn ThreadWake>);

impl ThreadWake for WakeShared {
    fn wake(&self, thread: usize) {
        self.0.wake(thread);
    }
}

impl PoolRegistry {
    /// Creates a registry for `threads` threads; each gets one of the handles for its
    /// [`super::ThreadPools`].
    pub fn new(
        threads: usize,
        wake: Arc<dyn ThreadWake>,
        now: Instant,
    ) -> (Arc<PoolRegistry>, Vec<ThreadHandle>) {
        let (shares, handles) =
            ConnectionShares::new(threads, Box::new(WakeShared(Arc::clone(&wake))), now);
        let notes = (0..threads).map(|_| Mutex::default()).collect();
        let (known, demand) = (Mutex::default(), Arc::default());
        (Arc::new(PoolRegistry { shares, known, notes, wake, demand }), handles)
    }

    /// Notified when the first client of a tenant begins to wait.
    pub fn demand(&self) -> &Arc<Notify> {
        &self.demand
    }

    /// Sets this node's bounds for limits that all nodes share.
    /// [`super::ThreadPools::give_up_surplus`] closes idle connections beyond them; others are
    /// closed when they are returned. Returns false if the bounds are unchanged.
    pub fn set_bounds(&self, bounds: ConnectionBounds) -> bool {
        let mut known = self.known.lock();
        let RegisteredPool { servers, tenants, bounds: before, .. } = &mut *known;
        if before.as_ref() == Some(&bounds) {
            return false;
        }
        for (id, server) in servers {
            let connections_max = server.defined.min(bounds.of_server(*id));
            if server.connections_max != connections_max {
                server.connections_max = connections_max;
                server.server.set_connections_max(connections_max);
            }
        }
        for (id, tenant) in tenants {
            let limits = bounds.quota(*id, tenant.defined);
            if tenant.limits != limits {
                tenant.limits = limits;
                tenant.tenant.set_limits(limits);
            }
        }
        *before = Some(bounds);
        true
    }

    /// Returns the current numbers and maxima of server connections.
    pub fn usage(&self) -> ConnectionUsage {
        let known = self.known.lock();
        let bounds = known.bounds.clone().unwrap_or_default();
        let bound_alone = |bound| ServerConnectionUse { bound, ..ServerConnectionUse::default() };
        let mut usage = ConnectionUsage {
            servers: bounds.servers.into_iter().map(|(id, it)| (id, bound_alone(it))).collect(),
            tenants: bounds.tenants.into_iter().map(|(id, it)| (id, bound_alone(it))).collect(),
        };
        for (id, server) in &known.servers {
            let (bound, used) = (server.connections_max, server.server.held());
            let known = usage.servers.entry(*id).or_default();
            *known = ServerConnectionUse { bound: bound.max(known.bound), used, waiting: 0 };
        }
        for (id, tenant) in &known.tenants {
            let bound = tenant.limits.connections_max.saturating_add(tenant.limits.reserve);
            let (used, _) = tenant.tenant.held();
            let waiting = tenant.waiting.load(Ordering::Relaxed);
            let known = usage.tenants.entry(*id).or_default();
            *known = ServerConnectionUse { bound: bound.max(known.bound), used, waiting };
        }
        usage
    }

    /// Returns the shared state of a pool, created or updated.
    pub(super) fn common(
        &self,
        id: PoolId,
        tenant_id: TenantId,
        terms: &PoolTerms,
    ) -> Arc<PoolShared> {
        let mut known = self.known.lock();
        let RegisteredPool { servers, tenants, pools, bounds } = &mut *known;
        let of_server = bounds.as_ref().map_or(u32::MAX, |it| it.of_server(terms.server));
        let server_max = terms.server_connections_max.min(of_server);
        let limits = bounds.as_ref().map_or(terms.tenant, |it| it.quota(tenant_id, terms.tenant));
        let known_server = servers.entry(terms.server).or_insert_with(|| KnownServer {
            server: self.shares.server(server_max),
            defined: terms.server_connections_max,
            connections_max: server_max,
            tenants: 0,
        });
        known_server.defined = terms.server_connections_max;
        known_server.connections_max = server_max;
        let KnownServer { server, tenants: known_tenants, .. } = known_server;
        server.set_connections_max(server_max);
        let fresh = |pools, waiting| KnownTenant {
            pools,
            server: terms.server,
            tenant: server.tenant(limits),
            defined: terms.tenant,
            limits,
            waiting,
        };
        let tenant = tenants.entry(tenant_id).or_insert_with(|| {
            *known_tenants += 1;
            fresh(0, Arc::default())
        });
        if tenant.server != terms.server {
            // Its pools follow one by one; open connections keep their slots at the old server.
            *known_tenants += 1;
            let before = tenant.server;
            *tenant = fresh(tenant.pools, Arc::clone(&tenant.waiting));
            leave_server(servers, before);
        }
        tenant.defined = terms.tenant;
        if tenant.limits != limits {
            tenant.tenant.set_limits(limits);
            tenant.limits = limits;
        }
        if let Some(common) = pools.get(&id)
            && common.key.is_of(&tenant.tenant)
        {
            common.key.set_connections_max(terms.connections_max);
            return Arc::clone(common);
        }
        let threads = self.notes.len().max(1);
        let common = Arc::new(PoolShared {
            id,
            tenant: tenant_id,
            key: tenant.tenant.key(terms.connections_max),
            home: id.0 as usize % threads,
            live: AtomicU32::new(0),
            proven: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
            waiting: Arc::clone(&tenant.waiting),
            demand: Arc::clone(&self.demand),
        });
        if pools.insert(id, Arc::clone(&common)).is_none() {
            tenant.pools += 1;
        }
        common
    }

    /// Removes a pool that a thread does not use any more, and the state that only this pool
    /// needed; unless another thread or a connection uses it.
    pub(super) fn forget(&self, common: &Arc<PoolShared>) {
        let mut known = self.known.lock();
        let RegisteredPool { servers, tenants, pools, .. } = &mut *known;
        let is_known = pools.get(&common.id).is_some_and(|known| Arc::ptr_eq(known, common));
        // One reference is in the table and one is the caller's. Without the lock, others can only
        // be made from an existing third one.
        if !is_known || Arc::strong_count(common) > 2 {
            return;
        }
        pools.remove(&common.id);
        let Some(tenant) = tenants.get_mut(&common.tenant) else { return };
        tenant.pools -= 1;
        if tenant.pools == 0 {
            let server = tenant.server;
            tenants.remove(&common.tenant);
            leave_server(servers, server);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let known = self.known.lock();
        known.pools.is_empty() && known.tenants.is_empty() && known.servers.is_empty()
    }

    /// Leaves a message for a thread.
    pub(super) fn tell(&self, thread: usize, note: PoolMessage) {
        if let Some(notes) = self.notes.get(thread) {
            notes.lock().push(note);
            self.wake.wake(thread);
        }
    }

    /// Takes the messages for a thread.
    pub(super) fn take_notes(&self, thread: usize, into: &mut Vec<PoolMessage>) {
        if let Some(notes) = self.notes.get(thread) {
            into.append(&mut notes.lock());
        }
    }
}

/// Removes a tenant, and its server with the last tenant.
fn leave_server(servers: &mut HashMap<ServerId, KnownServer>, id: ServerId) {
    if let Some(server) = servers.get_mut(&id) {
        server.tenants -= 1;
        if server.tenants == 0 {
            servers.remove(&id);
        }
    }
}

impl PoolShared {
    /// Returns whether a connection exists or is being opened.
    pub(super) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Returns the trouble of the server, if there is any.
    pub(super) fn trouble(&self) -> Option<ServerTrouble> {
        if !self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        self.trouble.lock().clone()
    }

    /// Records that a connection was opened.
    pub(super) fn reached(&self) {
        self.proven.store(true, Ordering::Relaxed);
        self.forget_trouble();
    }

    /// Clears the trouble, so that the next attempt counts as the first.
    pub(super) fn forget_trouble(&self) {
        if self.troubled.swap(false, Ordering::Relaxed) {
            *self.trouble.lock() = None;
        }
    }

    /// Records that no connection could be opened. `jitter` is a random number.
    pub(super) fn failed(
        &self,
        failure: Arc<PoolFailure>,
        retry: Duration,
        jitter: u64,
        now: Instant,
    ) {
        let mut trouble = self.trouble.lock();
        // Concurrent attempts count as one.
        let attempts = match &*trouble {
            Some(before) if now < before.retry_at => before.attempts,
            Some(before) => before.attempts.saturating_add(1),
            None => 1,
        };
        let wait = RETRY_FIRST.saturating_mul(1 << (attempts - 1).min(16)).min(retry);
        let retry_at = now + wait - part(wait / 2, jitter);
        *trouble = Some(ServerTrouble { failure, attempts, retry_at });
        self.proven.store(false, Ordering::Relaxed);
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// Counts a client that begins to wait, if the limit allows it.
    pub(super) fn begin_to_wait(&self, waiting_max: u32) -> bool {
        let more = |waiting: u32| (waiting < waiting_max).then_some(waiting + 1);
        let waited = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if waited == Ok(0) {
            self.demand.notify_one();
        }
        waited.is_ok()
    }

    pub(super) fn end_to_wait(&self, count: u32) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Returns a random part of a time.
pub(super) fn part(time: Duration, chance: u64) -> Duration {
    let thousandths = u32::try_from(chance % 1_000).unwrap_or(0);
    time * thousandths / 1_000
}

/// A server connection's slot, with the state that its pool needs. Lives as long as the connection,
/// and moves with it from thread to thread.
pub struct PooledSlot {
    pub(super) permit: SlotPermit,
    pub(super) common: Arc<PoolShared>,
    pub(super) epoch: u32,
    /// Time at which the connection is too old.
    pub(super) expires: Option<Instant>,
    /// Present while the connection is being opened.
    pub(super) opening: Option<OpeningCount>,
}

/// Counts as a connection that a pool of one thread is opening, until it is dropped: a thread that
/// does not report the outcome of an attempt does not lose the right to open another connection.
pub(super) struct OpeningCount(Arc<AtomicU32>);

impl OpeningCount {
    pub(super) fn new(count: &Arc<AtomicU32>) -> OpeningCount {
        count.fetch_add(1, Ordering::Relaxed);
        OpeningCount(Arc::clone(count))
    }
}

impl Drop for OpeningCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PooledSlot {
    pub(super) fn new(
        permit: SlotPermit,
        common: Arc<PoolShared>,
        epoch: u32,
        opening: Option<OpeningCount>,
    ) -> PooledSlot {
        common.live.fetch_add(1, Ordering::Relaxed);
        PooledSlot { permit, common, epoch, expires: None, opening }
    }

    /// Returns the pool that it belongs to, on any thread.
    pub fn pool(&self) -> PoolId {
        self.common.id
    }
}

impl Drop for PooledSlot {
    fn drop(&mut self) {
        self.common.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for PooledSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("pool", &self.common.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("threads", &self.notes.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").field("id", &self.id).finish_non_exhaustive()
    }
}
