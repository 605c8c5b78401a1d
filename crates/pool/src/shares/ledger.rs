//! The ledger itself: pure, by ids, for the holder of the lock around it.
//!
//! Every operation leaves each server *settled*: it has no free slot, or no tenant is in line for
//! one. So a request that finds a free slot overtakes no other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rules::{self, TenantStanding};
use crate::sync::{AtomicU32, Ordering};

/// For how long after its last use a tenant counts when entitlements are computed.
pub const ACTIVE_FOR: Duration = Duration::from_secs(10);

/// Cost of a granted slot, charged to its tenant at once, in microseconds of busy time: about what
/// opening a connection costs a server. It keeps one tenant from being granted every free slot
/// before its first work is charged.
pub const GRANT_COST_US: u64 = 1_000;

/// Maximum number of holders that are searched for an idle connection to reclaim.
pub const VICTIMS_LOOKED_AT_MAX: usize = 64;

/// Added to a server's flags while more slots are held than its lowered bound allows.
const SERVER_OVER: u32 = 1 << 31;
/// A tenant's flag: it is in line.
const IN_LINE: u32 = 1;
/// A tenant's flag: the ledger must see every release, because of the tenant's own quotas.
const LOOK: u32 = 2;

/// A server that tenants share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedServerId(u32);

/// A tenant of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedTenantId(u32);

/// A tenant's connections as one user, which are interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u32);

impl KeyId {
    /// Returns a small number, for tables; it is reused after the key is removed.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Limits of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// Slots it may hold.
    pub connections_max: u32,
    /// Slots it is entitled to whatever its weight, even while it is inactive.
    pub connections_min: u32,
    /// Slots beyond `connections_max` that are used once a client has waited for `reserve_after`.
    pub reserve: u32,
    /// Time that a client waits before the reserve is used.
    pub reserve_after: Duration,
    /// Relative part of a contended server; at least 1.
    pub weight: u32,
}

impl Default for TenantQuota {
    fn default() -> TenantQuota {
        TenantQuota {
            connections_max: 20,
            connections_min: 0,
            reserve: 0,
            reserve_after: Duration::from_secs(5),
            weight: 1,
        }
    }
}

/// Bound that denied a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedBound {
    /// The key's own.
    Key,
    /// The tenant's.
    Tenant,
    /// The server's.
    Server,
}

/// Decision about a connection whose user has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishedVerdict {
    /// The connection stays.
    Keep,
    /// Close the connection: another tenant or key has the better claim to its slot.
    GiveUp {
        /// Tenant to which the slot was promised; pass it to [`QuotaLedger::closed`].
        to: Option<SharedTenantId>,
    },
}

/// Message to a thread about a change of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaEffect {
    /// The key got a slot that this thread wanted.
    Granted {
        /// Key of the slot.
        key: KeyId,
        /// Thread that must open a connection.
        thread: usize,
    },
    /// The thread must close an idle connection of the key, if it still has one.
    Reclaim {
        /// Key of the connection.
        key: KeyId,
        /// The thread that has it.
        thread: usize,
    },
}

#[derive(Debug)]
struct ServerRecord {
    connections_max: u32,
    held: u32,
    /// The weights of its active tenants.
    active_weight: u64,
    /// Virtual time: that of the tenant which was last granted a slot. Never goes back.
    time: u128,
    /// The tenants in line by virtual time: first those below their entitlement, then the others.
    lines: [BTreeSet<(u128, SharedTenantId)>; 2],
    /// The tenants that hold slots, the most dispensable last.
    holders: BTreeSet<Rank>,
    /// The active tenants by when they were last seen.
    recent: BTreeSet<(Instant, SharedTenantId)>,
    flags: Arc<AtomicU32>,
}

/// Inactivity, load, tenant.
type Rank = (bool, u64, SharedTenantId);

#[derive(Debug)]
struct TenantRecord {
    server: SharedServerId,
    limits: TenantQuota,
    held: u32,
    keys: BTreeSet<KeyId>,
    /// Number of keys that hold more than their lowered bound.
    keys_over: u32,
    /// Busy time by weight; see [`rules::virtual_time`].
    time: u128,
    /// Time at which it was last seen, if that makes it active.
    seen: Option<Instant>,
    /// Keys that want slots and are below their own bound, the longest waiting first.
    eligible: BTreeSet<(Instant, KeyId)>,
    /// Slots wanted by those.
    wanted: u32,
    /// Slots that others will close for it.
    promised: u32,
    /// True if a client waited long enough for the reserve.
    reserve_open: bool,
    /// Line and position in it, if it is in one.
    line: Option<(usize, u128)>,
    rank: Option<Rank>,
    flags: Arc<AtomicU32>,
}

#[derive(Debug)]
struct UserRecord {
    tenant: SharedTenantId,
    connections_max: u32,
    held: u32,
    wants: Vec<ThreadWant>,
    /// Entry in the tenant's `eligible`, and the number wanted there.
    filed: Option<(Instant, u32)>,
    /// True if it is counted in the tenant's `keys_over`.
    over: bool,
}

/// Connections that one thread wants for a key.
#[derive(Clone, Copy, Debug)]
struct ThreadWant {
    thread: usize,
    wanted: u32,
    since: Instant,
}

impl TenantRecord {
    fn has_room(&self) -> bool {
        let reserve = if self.reserve_open { self.limits.reserve } else { 0 };
        self.held < self.limits.connections_max.saturating_add(reserve)
    }

    fn standing(&self, server: &ServerRecord) -> TenantStanding {
        TenantStanding {
            held: self.held,
            entitled: rules::entitlement(
                server.connections_max,
                server.active_weight,
                &self.limits,
                self.seen.is_some(),
            ),
            weight: self.limits.weight.max(1),
            active: self.seen.is_some(),
            time: self.time.max(server.time),
        }
    }
}

impl UserRecord {
    fn has_room(&self) -> bool {
        self.held < self.connections_max
    }

    fn oldest_want(&self) -> Option<usize> {
        (0..self.wants.len()).min_by_key(|&index| self.wants[index].since)
    }
}

/// Ledger of slots: holders, wants and turns.
#[derive(Debug, Default)]
pub struct QuotaLedger {
    servers: Vec<ServerRecord>,
    tenants: Vec<TenantRecord>,
    keys: Vec<UserRecord>,
    servers_free: Vec<SharedServerId>,
    tenants_free: Vec<SharedTenantId>,
    keys_free: Vec<KeyId>,
    effects: Vec<QuotaEffect>,
}

/// Puts an item into a free place or at the end, and returns its index.
fn place<T>(things: &mut Vec<T>, free: Option<u32>, thing: T) -> u32 {
    match free {
        Some(index) => {
            things[index as usize] = thing;
            index
        }
        None => {
            things.push(thing);
            u32::try_from(things.len() - 1).unwrap_or(u32::MAX)
        }
    }
}

impl QuotaLedger {
    /// Adds a server with `connections_max` slots.
    pub fn add_server(&mut self, connections_max: u32) -> SharedServerId {
        let server = ServerRecord {
            connections_max,
            held: 0,
            active_weight: 0,
            time: 0,
            lines: [BTreeSet::new(), BTreeSet::new()],
            holders: BTreeSet::new(),
            recent: BTreeSet::new(),
            flags: Arc::new(AtomicU32::new(0)),
        };
        let free = self.servers_free.pop().map(|id| id.0);
        SharedServerId(place(&mut self.servers, free, server))
    }

    /// Adds a tenant.
    pub fn add_tenant(&mut self, server: SharedServerId, limits: TenantQuota) -> SharedTenantId {
        let tenant = TenantRecord {
            server,
            limits,
            held: 0,
            keys: BTreeSet::new(),
            keys_over: 0,
            time: 0,
            seen: None,
            eligible: BTreeSet::new(),
            wanted: 0,
            promised: 0,
            reserve_open: false,
            line: None,
            rank: None,
            flags: Arc::new(AtomicU32::new(0)),
        };
        let free = self.tenants_free.pop().map(|id| id.0);
        SharedTenantId(place(&mut self.tenants, free, tenant))
    }

    /// Adds a key, whose own bound is `connections_max`.
    pub fn add_key(&mut self, tenant: SharedTenantId, connections_max: u32) -> KeyId {
        let key = UserRecord {
            tenant,
            connections_max,
            held: 0,
            wants: Vec::new(),
            filed: None,
            over: false,
        };
        let free = self.keys_free.pop().map(|id| id.0);
        let id = KeyId(place(&mut self.keys, free, key));
        self.tenant_mut(tenant).keys.insert(id);
        self.refile(tenant);
        id
    }

    /// Removes a server of which no tenant is left.
    pub fn remove_server(&mut self, id: SharedServerId) {
        debug_assert_eq!(self.server(id).held, 0);
        self.servers_free.push(id);
    }

    /// Removes a tenant of which no key is left.
    pub fn remove_tenant(&mut self, id: SharedTenantId) {
        debug_assert!(self.tenant(id).keys.is_empty() && self.tenant(id).held == 0);
        self.deactivate(id);
        self.tenant_mut(id).promised = 0;
        self.refile(id);
        self.tenants_free.push(id);
    }

    /// Removes a key that holds no slot. Its wants are dropped.
    pub fn remove_key(&mut self, id: KeyId) {
        debug_assert_eq!(self.key(id).held, 0);
        self.key_mut(id).wants.clear();
        self.refile_key(id);
        let tenant = self.key(id).tenant;
        self.tenant_mut(tenant).keys.remove(&id);
        self.refile(tenant);
        self.keys_free.push(id);
    }

    /// Changes the slots of a server. If more are held, the next releases give them up.
    pub fn set_server(&mut self, id: SharedServerId, connections_max: u32) {
        self.server_mut(id).connections_max = connections_max;
        self.refile_all(id);
        self.settle(id);
    }

    /// Changes a tenant's limits.
    pub fn set_tenant(&mut self, id: SharedTenantId, limits: TenantQuota) {
        let seen = self.tenant(id).seen;
        self.deactivate(id);
        self.tenant_mut(id).limits = limits;
        if let Some(seen) = seen {
            self.activate(id, seen);
        }
        self.refile(id);
        self.settle(self.tenant(id).server);
    }

    /// Changes a key's own bound.
    pub fn set_key(&mut self, id: KeyId, connections_max: u32) {
        self.key_mut(id).connections_max = connections_max;
        self.refile_key(id);
        self.settle(self.server_of(id));
    }

    /// Takes a free slot. `since` is when the first client began to wait for it.
    ///
    /// # Errors
    /// The bound that denies the slot; use [`QuotaLedger::want`] then.
    pub fn open(&mut self, id: KeyId, since: Instant, now: Instant) -> Result<(), DeniedBound> {
        let tenant = self.key(id).tenant;
        self.touch(tenant, now);
        self.open_reserve(tenant, since, now);
        self.settle(self.server_of(id));
        if !self.key(id).has_room() {
            return Err(DeniedBound::Key);
        }
        if !self.tenant(tenant).has_room() {
            return Err(DeniedBound::Tenant);
        }
        let server = self.server(self.tenant(tenant).server);
        if server.held >= server.connections_max {
            return Err(DeniedBound::Server);
        }
        self.hold(id);
        self.refile_key(id);
        Ok(())
    }

    /// Sets the number of slots that a thread wants for a key, replacing the previous number; 0
    /// withdraws it. Repeat the call from time to time, because claims change with time. `idle`
    /// returns a thread with an idle connection of a key.
    pub fn want(
        &mut self,
        id: KeyId,
        thread: usize,
        wanted: u32,
        since: Instant,
        now: Instant,
        idle: &dyn Fn(KeyId) -> Option<usize>,
    ) {
        let key = self.key_mut(id);
        key.wants.retain(|want| want.thread != thread);
        if wanted > 0 {
            key.wants.push(ThreadWant { thread, wanted, since });
        }
        let tenant = key.tenant;
        if wanted > 0 {
            self.touch(tenant, now);
            self.open_reserve(tenant, since, now);
        }
        self.refile_key(id);
        self.settle(self.server_of(id));
        if self.key(id).filed.is_some() {
            self.reclaim(id, now, idle);
        }
    }

    /// Decides about a connection whose user has finished. `waiting_since` is when the oldest
    /// waiting client of this key began to wait, if there is one.
    pub fn release(
        &mut self,
        id: KeyId,
        waiting_since: Option<Instant>,
        now: Instant,
    ) -> FinishedVerdict {
        let key = self.key(id);
        let tenant_id = key.tenant;
        let tenant = self.tenant(tenant_id);
        let server_id = tenant.server;
        let server = self.server(server_id);
        let limits = &tenant.limits;
        let allowed = match tenant.eligible.is_empty() && waiting_since.is_none() {
            true => limits.connections_max,
            false => limits.connections_max.saturating_add(limits.reserve),
        };
        let over = key.held > key.connections_max
            || tenant.held > allowed
            || server.held > server.connections_max;
        if over {
            return FinishedVerdict::GiveUp { to: None };
        }
        self.age(server_id, now);
        match self.next_in_line(server_id) {
            Some(next) if next != tenant_id && self.gives(tenant_id, next) => self.promise(next),
            Some(_) | None if self.sibling_waits(id, now) => self.promise(tenant_id),
            Some(_) | None => FinishedVerdict::Keep,
        }
    }

    /// Ends a slot. `to` comes from the verdict that ended it.
    pub fn closed(&mut self, id: KeyId, to: Option<SharedTenantId>) {
        if let Some(to) = to {
            let tenant = self.tenant_mut(to);
            tenant.promised = tenant.promised.saturating_sub(1);
            self.refile(to);
        }
        let tenant_id = self.key(id).tenant;
        let server_id = self.tenant(tenant_id).server;
        assert!(self.key(id).held > 0, "a slot is ended once");
        self.key_mut(id).held -= 1;
        self.tenant_mut(tenant_id).held -= 1;
        self.server_mut(server_id).held -= 1;
        self.refile_key(id);
        self.settle(server_id);
    }

    /// Charges a key's tenant for the time that it kept its server busy.
    pub fn charge(&mut self, id: KeyId, busy_us: u64, now: Instant) {
        let tenant_id = self.key(id).tenant;
        self.touch(tenant_id, now);
        self.advance(tenant_id, busy_us);
        let server_id = self.tenant(tenant_id).server;
        let time = self.tenant(tenant_id).time;
        let server = self.server_mut(server_id);
        // No tenant waits, so none is owed anything: use that delays no other tenant is free.
        if server.lines.iter().all(BTreeSet::is_empty) {
            server.time = server.time.max(time);
        }
        self.refile(tenant_id);
    }

    /// Moves the pending effects to `into`; each is delivered once.
    pub fn take_effects(&mut self, into: &mut Vec<QuotaEffect>) {
        into.append(&mut self.effects);
    }

    /// Returns the number of slots held beyond a lowered bound of this key.
    #[must_use]
    pub fn surplus(&self, id: KeyId) -> u32 {
        let key = self.key(id);
        let tenant = self.tenant(key.tenant);
        let server = self.server(tenant.server);
        let own = key.held.saturating_sub(key.connections_max);
        let reserve = tenant.limits.connections_max.saturating_add(tenant.limits.reserve);
        let tenants = tenant.held.saturating_sub(reserve);
        own.max(tenants).max(server.held.saturating_sub(server.connections_max)).min(key.held)
    }

    /// Returns the number of slots that a key holds.
    #[must_use]
    pub fn key_held(&self, id: KeyId) -> u32 {
        self.key(id).held
    }

    /// Returns the number of slots that a tenant holds, and the number it is entitled to now.
    #[must_use]
    pub fn tenant_held(&self, id: SharedTenantId) -> (u32, u32) {
        let tenant = self.tenant(id);
        (tenant.held, tenant.standing(self.server(tenant.server)).entitled)
    }

    /// Returns the number of held slots of a server.
    #[must_use]
    pub fn server_held(&self, id: SharedServerId) -> u32 {
        self.server(id).held
    }

    /// Returns the tenant that gets the next free slot of this server.
    #[must_use]
    pub fn next_in_line(&self, id: SharedServerId) -> Option<SharedTenantId> {
        let [under, others] = &self.server(id).lines;
        under.first().or_else(|| others.first()).map(|&(_, tenant)| tenant)
    }

    /// Returns the flags that a release reads before it takes the lock: [`must_ask`].
    pub(super) fn flags(&self, id: KeyId) -> (Arc<AtomicU32>, Arc<AtomicU32>) {
        let tenant = self.tenant(self.key(id).tenant);
        (Arc::clone(&self.server(tenant.server).flags), Arc::clone(&tenant.flags))
    }
}

/// Returns whether a release has to ask the ledger: another tenant is in line, a bound was lowered,
/// or the tenant's own keys compete. A stale answer is harmless: waiting threads repeat their
/// wants.
pub(super) fn must_ask(server: &AtomicU32, tenant: &AtomicU32) -> bool {
    let own = tenant.load(Ordering::Relaxed);
    own & LOOK != 0 || server.load(Ordering::Relaxed) != own & IN_LINE
}

/// Steps of the operations above.
impl QuotaLedger {
    fn server(&self, id: SharedServerId) -> &ServerRecord {
        &self.servers[id.0 as usize]
    }

    fn server_mut(&mut self, id: SharedServerId) -> &mut ServerRecord {
        &mut self.servers[id.0 as usize]
    }

    fn tenant(&self, id: SharedTenantId) -> &TenantRecord {
        &self.tenants[id.0 as usize]
    }

    fn tenant_mut(&mut self, id: SharedTenantId) -> &mut TenantRecord {
        &mut self.tenants[id.0 as usize]
    }

    fn key(&self, id: KeyId) -> &UserRecord {
        &self.keys[id.index()]
    }

    fn key_mut(&mut self, id: KeyId) -> &mut UserRecord {
        &mut self.keys[id.index()]
    }

    fn server_of(&self, id: KeyId) -> SharedServerId {
        self.tenant(self.key(id).tenant).server
    }

    /// Counts a slot as held.
    fn hold(&mut self, id: KeyId) {
        let tenant = self.key(id).tenant;
        let server = self.tenant(tenant).server;
        self.key_mut(id).held += 1;
        self.tenant_mut(tenant).held += 1;
        self.server_mut(server).held += 1;
        self.advance(tenant, GRANT_COST_US);
    }

    /// Advances a tenant's virtual time, starting from the server's time at least: a tenant that
    /// did not use a server has saved nothing up.
    fn advance(&mut self, id: SharedTenantId, busy_us: u64) {
        let time = self.server(self.tenant(id).server).time;
        let tenant = self.tenant_mut(id);
        tenant.time = tenant
            .time
            .max(time)
            .saturating_add(rules::virtual_time(busy_us, tenant.limits.weight));
    }

    /// Gives free slots to those in line, in order.
    fn settle(&mut self, id: SharedServerId) {
        while self.server(id).held < self.server(id).connections_max {
            let Some(tenant_id) = self.next_in_line(id) else { break };
            let Some(&(_, key_id)) = self.tenant(tenant_id).eligible.first() else { break };
            let Some(index) = self.key(key_id).oldest_want() else { break };
            let time = self.tenant(tenant_id).time;
            let server = self.server_mut(id);
            server.time = server.time.max(time);
            let key = self.key_mut(key_id);
            let want = &mut key.wants[index];
            want.wanted -= 1;
            let thread = want.thread;
            if want.wanted == 0 {
                key.wants.swap_remove(index);
            }
            self.hold(key_id);
            self.refile_key(key_id);
            self.effects.push(QuotaEffect::Granted { key: key_id, thread });
        }
    }

    /// Updates whether a key is eligible, and so its tenant's place.
    fn refile_key(&mut self, id: KeyId) {
        let key = &mut self.keys[id.index()];
        let tenant = &mut self.tenants[key.tenant.0 as usize];
        if let Some((since, wanted)) = key.filed.take() {
            tenant.eligible.remove(&(since, id));
            tenant.wanted -= wanted;
        }
        let since = key.wants.iter().map(|want| want.since).min();
        if let Some(since) = since.filter(|_| key.has_room()) {
            let wanted = key.wants.iter().fold(0_u32, |sum, want| sum.saturating_add(want.wanted));
            // The sum over a tenant's keys must not overflow either.
            let wanted = wanted.min(u32::MAX - tenant.wanted);
            key.filed = Some((since, wanted));
            tenant.eligible.insert((since, id));
            tenant.wanted += wanted;
        }
        tenant.keys_over -= u32::from(std::mem::take(&mut key.over));
        key.over = key.held > key.connections_max;
        tenant.keys_over += u32::from(key.over);
        let tenant = key.tenant;
        self.refile(tenant);
    }

    /// Updates a tenant's line, its rank among holders, and its flags.
    fn refile(&mut self, id: SharedTenantId) {
        let tenant = &mut self.tenants[id.0 as usize];
        let server = &mut self.servers[tenant.server.0 as usize];
        if tenant.eligible.is_empty() {
            tenant.reserve_open = false;
        }
        if let Some((line, time)) = tenant.line.take() {
            server.lines[line].remove(&(time, id));
        }
        let standing = tenant.standing(server);
        if tenant.wanted > tenant.promised && tenant.has_room() {
            // A tenant that begins to wait is owed nothing for the time in which it did not wait.
            tenant.time = standing.time;
            let line = usize::from(standing.held >= standing.entitled);
            tenant.line = Some((line, standing.time));
            server.lines[line].insert((standing.time, id));
        }
        let rank = (tenant.held > 0).then(|| (!standing.active, standing.load(), id));
        if rank != tenant.rank {
            if let Some(rank) = tenant.rank {
                server.holders.remove(&rank);
            }
            server.holders.extend(rank);
            tenant.rank = rank;
        }
        let compete = tenant.keys.len() > 1 && !tenant.eligible.is_empty();
        let over = tenant.held > tenant.limits.connections_max || tenant.keys_over > 0;
        let own = if tenant.line.is_some() { IN_LINE } else { 0 };
        tenant.flags.store(own | if compete || over { LOOK } else { 0 }, Ordering::SeqCst);
        let in_line = server.lines.iter().map(BTreeSet::len).sum::<usize>();
        let in_line = u32::try_from(in_line).unwrap_or(u32::MAX) & !SERVER_OVER;
        let over = if server.held > server.connections_max { SERVER_OVER } else { 0 };
        server.flags.store(in_line | over, Ordering::SeqCst);
    }

    /// Updates all tenants in line after entitlements changed: each may belong in the other line.
    fn refile_all(&mut self, id: SharedServerId) {
        let lines = &self.server(id).lines;
        let in_line: Vec<SharedTenantId> =
            lines.iter().flatten().map(|&(_, tenant)| tenant).collect();
        for tenant in in_line {
            self.refile(tenant);
        }
    }

    /// Records that a tenant uses its server.
    fn touch(&mut self, id: SharedTenantId, now: Instant) {
        let server = self.tenant(id).server;
        match self.tenant(id).seen {
            // Exact to an eighth, so that a busy tenant does not sort the others at every turn.
            Some(seen) if now.saturating_duration_since(seen) < ACTIVE_FOR / 8 => {}
            Some(seen) => {
                self.tenant_mut(id).seen = Some(now);
                let recent = &mut self.server_mut(server).recent;
                recent.remove(&(seen, id));
                recent.insert((now, id));
            }
            None => {
                self.activate(id, now);
                self.refile(id);
                self.refile_all(server);
            }
        }
        self.age(server, now);
    }

    fn activate(&mut self, id: SharedTenantId, now: Instant) {
        let tenant = self.tenant_mut(id);
        tenant.seen = Some(now);
        let (server, weight) = (tenant.server, tenant.limits.weight.max(1));
        let server = self.server_mut(server);
        server.active_weight += u64::from(weight);
        server.recent.insert((now, id));
    }

    fn deactivate(&mut self, id: SharedTenantId) {
        let tenant = self.tenant_mut(id);
        let Some(seen) = tenant.seen.take() else { return };
        let (server, weight) = (tenant.server, tenant.limits.weight.max(1));
        let server = self.server_mut(server);
        server.active_weight -= u64::from(weight);
        server.recent.remove(&(seen, id));
    }

    /// Deactivates tenants that were not seen for [`ACTIVE_FOR`].
    fn age(&mut self, id: SharedServerId, now: Instant) {
        let mut changed = false;
        while let Some(&(seen, tenant)) = self.server(id).recent.first() {
            if now.saturating_duration_since(seen) <= ACTIVE_FOR {
                break;
            }
            self.deactivate(tenant);
            // A waiting tenant is active, however long it has waited.
            if self.tenant(tenant).wanted > 0 {
                self.activate(tenant, now);
            } else {
                self.refile(tenant);
                changed = true;
            }
        }
        if changed {
            self.refile_all(id);
        }
    }

    fn open_reserve(&mut self, id: SharedTenantId, since: Instant, now: Instant) {
        let tenant = self.tenant_mut(id);
        let waited = now.saturating_duration_since(since);
        if tenant.limits.reserve > 0
            && !tenant.reserve_open
            && waited >= tenant.limits.reserve_after
        {
            tenant.reserve_open = true;
        }
    }

    fn promise(&mut self, to: SharedTenantId) -> FinishedVerdict {
        self.tenant_mut(to).promised += 1;
        self.refile(to);
        FinishedVerdict::GiveUp { to: Some(to) }
    }

    fn gives(&self, holder: SharedTenantId, to: SharedTenantId) -> bool {
        let server = self.server(self.tenant(holder).server);
        rules::gives(&self.tenant(holder).standing(server), &self.tenant(to).standing(server))
    }

    /// Returns whether another key of the same tenant has the better claim to this key's slot.
    fn sibling_waits(&self, id: KeyId, now: Instant) -> bool {
        let holder = self.key(id);
        let tenant = self.tenant(holder.tenant);
        // The first eligible key gets the slot; giving it up to the same key would cost a login for
        // nothing.
        match tenant.eligible.first() {
            Some(&(since, other)) if other != id && tenant.wanted > tenant.promised => {
                let waited = now.saturating_duration_since(since);
                rules::sibling_gives(holder.held, self.key(other).held, waited)
            }
            Some(_) | None => false,
        }
    }

    /// Requests the close of idle connections, as many as the key wants, where that would help it.
    fn reclaim(&mut self, id: KeyId, now: Instant, idle: &dyn Fn(KeyId) -> Option<usize>) {
        let tenant_id = self.key(id).tenant;
        let tenant = self.tenant(tenant_id);
        let missing = tenant.wanted.saturating_sub(tenant.promised);
        let siblings = tenant.keys.iter().copied().take(VICTIMS_LOOKED_AT_MAX);
        let siblings = siblings.filter(|&key| key != id && self.sibling_waits(key, now));
        let others = self.server(tenant.server).holders.iter().rev().map(|&(_, _, holder)| holder);
        let others = others
            // If the tenant's own bound denies the slot, another tenant's connection does not help.
            .filter(|&holder| tenant.has_room() && holder != tenant_id)
            .take(VICTIMS_LOOKED_AT_MAX)
            .filter(|&holder| self.gives(holder, tenant_id))
            .flat_map(|holder| self.tenant(holder).keys.iter().copied())
            .take(VICTIMS_LOOKED_AT_MAX);
        let victims = others.chain(siblings);
        let victims = victims.filter_map(|key| idle(key).map(|thread| (key, thread)));
        let victims = victims.take(usize::try_from(missing).unwrap_or(usize::MAX));
        let effects = victims.map(|(key, thread)| QuotaEffect::Reclaim { key, thread });
        let effects: Vec<QuotaEffect> = effects.collect();
        self.effects.extend(effects);
    }
}
