//! Number of clients, of all tenants and of each tenant and user, and the check whether one more is
//! allowed.
//!
//! Where limits hold over all nodes, this node has a part of each ([`crate::service`] maintains
//! it). If the part is used up, and this node alone does not reach the limit, a new client waits
//! until the part has grown or other nodes are known to use the rest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use node::cluster::LimitGrant;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tenants::{TenantId, TenantRoute};

/// Maximum number of requests to the store, per limit, that other nodes have not answered: more
/// than are made while one client waits.
const ASKED_MAX: usize = 64;

/// Clients that have a limit in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientGroup {
    /// Clients of a tenant.
    Tenant(TenantId),
    /// Clients of a user of a tenant.
    User(TenantId, Arc<str>),
}

/// Limit on clients that holds over all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedClientLimit {
    /// Group of the clients.
    pub group: ClientGroup,
    /// Maximum number of them, at all nodes together.
    pub limit: u32,
    /// Number of clients that had had to wait when this node's usage was measured
    /// ([`ClientUsage::arrivals`]).
    pub arrivals: u64,
}

/// Clients of a group at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientUse {
    /// Maximum number at present.
    pub bound: u32,
    /// Current number.
    pub used: u32,
    /// Number of clients that wait to be admitted.
    pub waiting: u32,
}

/// Usage of all tenants and users that have a client, or may have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientUsage {
    /// By group. Sandboxes count among those of their tenant alone.
    pub groups: HashMap<ClientGroup, ClientUse>,
    /// Number of clients that have had to wait so far.
    pub arrivals: u64,
}

/// The limit that a client exceeds.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum ClientLimit {
    /// Limit of all tenants together.
    #[error("too many clients: `bouncer.clients_max` is {0}")]
    All(u32),
    /// Limit of the tenant.
    #[error("too many clients of this tenant: `limits.clients_max` is {0}")]
    Tenant(u32),
    /// Limit of the user.
    #[error("too many clients of this user: the limit is {0}")]
    User(u32),
}

/// Number of clients.
#[derive(Debug, Default)]
pub(super) struct ClientCount {
    counts: Mutex<ClientCounts>,
    /// Notified when a client waits.
    demand: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ClientCounts {
    all: u32,
    tenants: HashMap<TenantId, u32>,
    users: HashMap<(TenantId, Arc<str>), u32>,
    /// Sandbox clients, by the names under which they are counted.
    guests: HashMap<(TenantId, Arc<str>), u32>,
    /// Clients of the console.
    visitors: HashMap<Arc<str>, u32>,
    /// Parts of limits that this node may use; `None` if limits hold for this node alone.
    parts: Option<ClientParts>,
}

/// Parts of limits that this node may use, where all nodes share them.
#[derive(Debug, Default)]
struct ClientParts {
    /// Parts by group. A group without an entry may have no clients.
    groups: HashMap<ClientGroup, ClientPart>,
    /// Number of clients that have had to wait so far.
    arrivals: u64,
}

/// Part of a limit.
#[derive(Debug, Default)]
struct ClientPart {
    bound: u32,
    /// Clients that wait for it to grow.
    waiting: u32,
    /// Requests to the store, each with its last arrival and its transaction.
    asked: Vec<(u64, u64)>,
    /// Last arrival that was found to be one too many, after all other nodes had reported their
    /// usage.
    refused: u64,
}

/// A client to count.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientArrival<'a> {
    pub(super) route: &'a TenantRoute,
    /// True for a sandbox client: the limit of its grant holds per node.
    pub(super) is_guest: bool,
    /// Maximum clients, of all tenants together.
    pub(super) clients_max: u32,
}

/// Result of an attempt to count a client.
#[derive(Debug)]
pub(super) enum ClientEntry {
    /// Counted, and one of the clients.
    Counted(CountedClient),
    /// Must wait: this node may have no more for now.
    Waits(WaitingClient),
}

/// A counted client, until this is dropped.
#[derive(Debug)]
pub(super) struct CountedClient {
    population: Arc<ClientCount>,
    tenant: TenantId,
    user: Arc<str>,
    is_guest: bool,
}

/// A client that waits to be counted, until this is dropped.
#[derive(Debug)]
pub(super) struct WaitingClient {
    population: Arc<ClientCount>,
    groups: Vec<ClientGroup>,
    /// Its number among those that have had to wait.
    arrival: u64,
    /// Limit that it waits for.
    pub(super) limit: ClientLimit,
}

/// A limit that a client is subject to.
struct GroupLimit {
    group: ClientGroup,
    used: u32,
    max: u32,
    full: ClientLimit,
    is_shared: bool,
}

impl ClientArrival<'_> {
    fn tenant(&self) -> TenantId {
        self.route.tenant.id
    }

    fn user(&self) -> Arc<str> {
        Arc::clone(&self.route.user.name)
    }
}

impl ClientCounts {
    /// Returns the limits of a client's tenant and user, if they have any.
    fn limits(&self, arrival: &ClientArrival<'_>) -> impl Iterator<Item = GroupLimit> {
        let (id, route) = (arrival.tenant(), arrival.route);
        let of_tenant = route.tenant.limits.clients_max.map(|max| GroupLimit {
            group: ClientGroup::Tenant(id),
            used: self.tenants.get(&id).copied().unwrap_or(0),
            max,
            full: ClientLimit::Tenant(max),
            is_shared: true,
        });
        let of_user = route.tenant.clients_max_of(&route.user).map(|max| GroupLimit {
            group: ClientGroup::User(id, arrival.user()),
            used: self.named(arrival.is_guest).get(&(id, arrival.user())).copied().unwrap_or(0),
            max,
            full: ClientLimit::User(max),
            is_shared: !arrival.is_guest,
        });
        of_tenant.into_iter().chain(of_user)
    }

    /// Returns the limit that a client would have to wait for.
    ///
    /// # Errors
    /// If the client is one too many, independently of other nodes' usage; or was found to be.
    fn missing(
        &self,
        arrival: &ClientArrival<'_>,
        waiting: Option<&WaitingClient>,
    ) -> Result<Option<ClientLimit>, ClientLimit> {
        if self.all >= arrival.clients_max {
            return Err(ClientLimit::All(arrival.clients_max));
        }
        let mut missing = None;
        for limit in self.limits(arrival) {
            if limit.used >= limit.max {
                return Err(limit.full);
            }
            let Some(parts) = self.parts.as_ref().filter(|_| limit.is_shared) else { continue };
            let part = parts.groups.get(&limit.group);
            if limit.used < part.map_or(0, |part| part.bound) {
                continue;
            }
            let is_refused =
                |it: &WaitingClient| part.is_some_and(|part| it.arrival <= part.refused);
            if waiting.is_some_and(is_refused) {
                return Err(limit.full);
            }
            missing = missing.or(Some(limit.full));
        }
        Ok(missing)
    }

    /// Returns the counts of clients by their names.
    fn named(&self, is_guest: bool) -> &HashMap<(TenantId, Arc<str>), u32> {
        if is_guest { &self.guests } else { &self.users }
    }

    fn named_mut(&mut self, is_guest: bool) -> &mut HashMap<(TenantId, Arc<str>), u32> {
        if is_guest { &mut self.guests } else { &mut self.users }
    }

    /// Returns the number of clients in a group.
    fn used(&self, group: &ClientGroup) -> u32 {
        let used = match group {
            ClientGroup::Tenant(id) => self.tenants.get(id),
            ClientGroup::User(id, user) => self.users.get(&(*id, Arc::clone(user))),
        };
        used.copied().unwrap_or(0)
    }
}

impl WaitingClient {
    /// Returns its number among the clients that have had to wait.
    pub(super) fn arrival(&self) -> u64 {
        self.arrival
    }
}

impl ClientCount {
    /// Creates a count for limits that hold over all nodes: no clients of limited groups are
    /// admitted before this node has a part.
    pub(super) fn shared() -> ClientCount {
        let counts = ClientCounts { parts: Some(ClientParts::default()), ..Default::default() };
        ClientCount { counts: Mutex::new(counts), demand: Arc::default() }
    }

    /// Returns the receiver of notifications about waiting clients.
    pub(super) fn demand(&self) -> &Arc<Notify> {
        &self.demand
    }

    /// Counts one more client, if it is allowed. A client that has waited passes its `waiting`.
    ///
    /// # Errors
    /// If it is one too many.
    pub(super) fn enter(
        self: &Arc<Self>,
        arrival: &ClientArrival<'_>,
        waiting: Option<WaitingClient>,
    ) -> Result<ClientEntry, ClientLimit> {
        let mut counts = self.counts.lock();
        let Some(limit) = counts.missing(arrival, waiting.as_ref())? else {
            return Ok(ClientEntry::Counted(self.count(&mut counts, arrival)));
        };
        Ok(ClientEntry::Waits(match waiting {
            Some(mut waiting) => {
                waiting.limit = limit;
                waiting
            }
            None => {
                self.demand.notify_one();
                self.wait(&mut counts, arrival, limit)
            }
        }))
    }

    /// Counts a client that connected to a former process, whatever part this node has by now.
    ///
    /// # Errors
    /// If it is one too many.
    pub(super) fn adopt(
        self: &Arc<Self>,
        arrival: &ClientArrival<'_>,
    ) -> Result<CountedClient, ClientLimit> {
        let mut counts = self.counts.lock();
        counts.missing(arrival, None)?;
        Ok(self.count(&mut counts, arrival))
    }

    /// Returns whether the number of clients, of all tenants together, has reached `clients_max`.
    pub(super) fn is_full(&self, clients_max: u32) -> bool {
        self.counts.lock().all >= clients_max
    }

    /// Counts a client that another node serves among the connections of this one, if one more is
    /// allowed. Limits of its tenant apply where it is served.
    ///
    /// # Errors
    /// If it is one too many.
    pub(super) fn enter_passed(
        self: &Arc<Self>,
        clients_max: u32,
    ) -> Result<CountedPassedClient, ClientLimit> {
        let mut counts = self.counts.lock();
        if counts.all >= clients_max {
            return Err(ClientLimit::All(clients_max));
        }
        counts.all += 1;
        Ok(CountedPassedClient { population: Arc::clone(self) })
    }

    fn count(
        self: &Arc<Self>,
        counts: &mut ClientCounts,
        arrival: &ClientArrival<'_>,
    ) -> CountedClient {
        let (tenant, user, is_guest) = (arrival.tenant(), arrival.user(), arrival.is_guest);
        counts.all += 1;
        *counts.tenants.entry(tenant).or_default() += 1;
        *counts.named_mut(is_guest).entry((tenant, Arc::clone(&user))).or_default() += 1;
        CountedClient { population: Arc::clone(self), tenant, user, is_guest }
    }

    fn wait(
        self: &Arc<Self>,
        counts: &mut ClientCounts,
        arrival: &ClientArrival<'_>,
        limit: ClientLimit,
    ) -> WaitingClient {
        let shared = counts.limits(arrival).filter(|limit| limit.is_shared);
        let groups: Vec<ClientGroup> = shared.map(|limit| limit.group).collect();
        let parts = counts.parts.get_or_insert_default();
        parts.arrivals += 1;
        for group in &groups {
            parts.groups.entry(group.clone()).or_default().waiting += 1;
        }
        WaitingClient { population: Arc::clone(self), groups, arrival: parts.arrivals, limit }
    }

    /// Returns the numbers of clients, of waiting clients, and the current maxima.
    pub(super) fn usage(&self) -> ClientUsage {
        let counts = self.counts.lock();
        let Some(parts) = &counts.parts else { return ClientUsage::default() };
        let mut groups: HashMap<ClientGroup, ClientUse> = HashMap::new();
        let of_tenants = counts.tenants.iter().map(|(id, used)| (ClientGroup::Tenant(*id), *used));
        let of_users = counts.users.iter();
        let of_users =
            of_users.map(|((id, user), used)| (ClientGroup::User(*id, Arc::clone(user)), *used));
        for (group, used) in of_tenants.chain(of_users) {
            groups.entry(group).or_default().used = used;
        }
        for (group, part) in &parts.groups {
            let usage = groups.entry(group.clone()).or_default();
            (usage.bound, usage.waiting) = (part.bound, part.waiting);
        }
        ClientUsage { groups, arrivals: parts.arrivals }
    }

    /// Sets the part that this node may use of each limit; limits that are not listed have none.
    /// Returns whether any client waits, which may be admitted or refused now.
    pub(super) fn set_parts(&self, granted: &[(SharedClientLimit, LimitGrant)]) -> bool {
        let mut counts = self.counts.lock();
        let mut before = counts.parts.take().unwrap_or_default();
        let mut groups = HashMap::with_capacity(granted.len());
        for (shared, grant) in granted {
            let mut part = before.groups.remove(&shared.group).unwrap_or_default();
            part.take(grant, shared, counts.used(&shared.group));
            groups.insert(shared.group.clone(), part);
        }
        let waited_for = before.groups.into_iter().filter(|(_, part)| part.waiting > 0);
        groups.extend(waited_for.map(|(group, part)| (group, ClientPart { bound: 0, ..part })));
        let is_awaited = groups.values().any(|part| part.waiting > 0);
        counts.parts = Some(ClientParts { groups, arrivals: before.arrivals });
        is_awaited
    }

    /// Counts one more client of the console, if it is allowed.
    pub(super) fn route_to_console(
        self: &Arc<Self>,
        user: &Arc<str>,
        all_max: Option<u32>,
        user_max: Option<u32>,
    ) -> Result<CountedConsoleClient, ClientLimit> {
        let mut counts = self.counts.lock();
        let all: u32 = counts.visitors.values().sum();
        if let Some(max) = all_max.filter(|max| all >= *max) {
            return Err(ClientLimit::Tenant(max));
        }
        let of_user = counts.visitors.get(user).copied().unwrap_or(0);
        if let Some(max) = user_max.filter(|max| of_user >= *max) {
            return Err(ClientLimit::User(max));
        }
        counts.visitors.insert(Arc::clone(user), of_user + 1);
        Ok(CountedConsoleClient { population: Arc::clone(self), user: Arc::clone(user) })
    }
}

impl ClientPart {
    /// Sets the granted part, and marks clients as refused that wait in vain: those reported to the
    /// store before all other nodes reported usages that leave nothing.
    fn take(&mut self, grant: &LimitGrant, shared: &SharedClientLimit, used: u32) {
        self.bound = grant.part;
        if self.waiting == 0 {
            self.asked.clear();
            return;
        }
        // Without the store, other nodes were not involved.
        if grant.round == 0 {
            return;
        }
        let is_new = self.asked.last().is_none_or(|(arrivals, _)| *arrivals < shared.arrivals);
        if is_new && self.asked.len() < ASKED_MAX {
            self.asked.push((shared.arrivals, grant.round));
        }
        let is_full = used.saturating_add(grant.used_elsewhere) >= shared.limit;
        self.asked.retain(|(arrivals, round)| {
            let is_answered = *round < grant.heard_elsewhere;
            if is_answered && is_full {
                self.refused = self.refused.max(*arrivals);
            }
            !is_answered
        });
    }
}

/// A counted client of the console, until this is dropped.
#[derive(Debug)]
pub(super) struct CountedConsoleClient {
    population: Arc<ClientCount>,
    user: Arc<str>,
}

impl Drop for CountedConsoleClient {
    fn drop(&mut self) {
        one_less(self.population.counts.lock().visitors.entry(Arc::clone(&self.user)));
    }
}

/// A counted client that another node serves, until this is dropped.
#[derive(Debug)]
pub(super) struct CountedPassedClient {
    population: Arc<ClientCount>,
}

impl Drop for CountedPassedClient {
    fn drop(&mut self) {
        self.population.counts.lock().all -= 1;
    }
}

impl Drop for CountedClient {
    fn drop(&mut self) {
        let mut counts = self.population.counts.lock();
        counts.all -= 1;
        one_less(counts.tenants.entry(self.tenant));
        let named = counts.named_mut(self.is_guest);
        one_less(named.entry((self.tenant, Arc::clone(&self.user))));
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        let mut counts = self.population.counts.lock();
        let Some(parts) = &mut counts.parts else { return };
        for group in &self.groups {
            if let Some(part) = parts.groups.get_mut(group) {
                part.waiting = part.waiting.saturating_sub(1);
            }
        }
    }
}

fn one_less<K>(entry: Entry<'_, K, u32>) {
    if let Entry::Occupied(mut count) = entry {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests;
