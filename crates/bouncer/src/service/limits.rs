//! Limits on server connections and clients that hold over all nodes: this node's part of each.
//!
//! A tenant's `limits.server_connections_max` with its reserve, and the connections of a server,
//! are shared ([`node::cluster::LimitShares`]). The pools open no connection beyond this node's
//! part, and close idle ones when it becomes smaller. It grows when clients wait.
//!
//! So are a tenant's `limits.clients_max`, and the limits on clients of each user. The relay counts
//! no more clients than this node's part; it shrinks as they leave.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use node::clock;
use node::cluster::{LimitGrant, LimitUse, SharedLimitUser, SharedLimitUses, follow_shared_limits};

use super::Bouncer;
use crate::relay::client_count::{ClientGroup, ClientUsage, SharedClientLimit};
use crate::relay::orders::ThreadCommand;
use crate::relay::pools::{ConnectionBounds, ConnectionUsage};
use crate::tenants::{ServerId, TenantId, TenantRouting};

/// Idle time after which a connection is closed if another node needs it.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// Shared limit on server connections, as identified at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionLimit {
    Server(ServerId),
    Tenant(TenantId),
}

type ConnectionLimitUses = SharedLimitUses<ConnectionLimit>;

/// The limits on server connections of a bouncer.
struct ServerConnectionLimits<'a>(&'a Bouncer);

/// The limits on clients of a bouncer.
struct BouncerClientLimits<'a>(&'a Bouncer);

/// Maintains this node's parts of a bouncer's limits. Never returns.
pub(super) async fn follow(bouncer: &Bouncer) {
    let Some(shares) = bouncer.0.limits.get() else { return std::future::pending().await };
    let threads = &bouncer.0.threads;
    let (connections, clients) = (ServerConnectionLimits(bouncer), BouncerClientLimits(bouncer));
    let (for_connections, for_clients) = (threads.demand(), threads.client_demand());
    tokio::join!(
        follow_shared_limits(shares, &connections, &for_connections),
        follow_shared_limits(shares, &clients, &for_clients),
    );
}

impl SharedLimitUser for ServerConnectionLimits<'_> {
    type Limit = ConnectionLimit;

    const SUBJECT: &'static str = "server connections";

    const PREFIX: &'static str = "connections/";

    /// Closes idle connections under limits that other nodes need.
    fn give_up_idle(&self, wanted: &[ConnectionLimit]) {
        let bouncer = &self.0.0;
        let routing = bouncer.current.load();
        let tenants = wanted.iter().flat_map(|limit| match limit {
            ConnectionLimit::Tenant(id) => vec![*id],
            ConnectionLimit::Server(id) => {
                let of_server = routing.tenants().filter(|tenant| tenant.server.id == *id);
                of_server.map(|tenant| tenant.id).collect()
            }
        });
        let tenants: Arc<[TenantId]> = tenants.collect();
        if let (false, Some(before)) = (tenants.is_empty(), clock::now().checked_sub(IDLE_MAX)) {
            bouncer.threads.order(&|| ThreadCommand::GiveUpIdle(Arc::clone(&tenants), before));
        }
    }

    fn take_parts(&self, parts: Vec<(ConnectionLimit, LimitGrant)>) {
        let mut bounds = ConnectionBounds::default();
        for (limit, LimitGrant { part, .. }) in parts {
            match limit {
                ConnectionLimit::Server(id) => bounds.servers.insert(id, part),
                ConnectionLimit::Tenant(id) => bounds.tenants.insert(id, part),
            };
        }
        self.0.0.threads.bound_connections(bounds);
    }

    fn uses(&self) -> ConnectionLimitUses {
        let bouncer = &self.0.0;
        let ConnectionUsage { servers, tenants } = bouncer.threads.connection_usage();
        let routing = bouncer.current.load();
        let mut uses = ConnectionLimitUses::new();
        let mut of_servers: HashMap<ServerId, LimitUse> = HashMap::new();
        for tenant in routing.tenants() {
            let server = of_servers.entry(tenant.server.id).or_insert_with(|| {
                let (address, tls) = (&tenant.server.address, tenant.server.tls.mode);
                let it = servers.get(&tenant.server.id).copied().unwrap_or_default();
                LimitUse {
                    resource: format!("connections/server/{address}/{tls:?}"),
                    limit: tenant.server.connections_max,
                    bound: it.bound,
                    used: it.used,
                    needed: 0,
                }
            });
            // Most tenants have no connections, and each is checked every time.
            let Some(it) = tenants.get(&tenant.id) else { continue };
            let limits = &tenant.limits;
            let limit =
                limits.server_connections_max.saturating_add(limits.server_connections_reserve);
            let needed = it.used.saturating_add(it.waiting).min(limit);
            server.needed = server.needed.saturating_add(needed);
            let resource = format!("connections/tenant/{:?}/{}", tenant.engine, tenant.name);
            let used = LimitUse { resource, limit, bound: it.bound, used: it.used, needed };
            add(&mut uses, ConnectionLimit::Tenant(tenant.id), used);
        }
        for (id, mut used) in of_servers {
            used.needed = used.needed.max(used.used).min(used.limit.max(used.used));
            add(&mut uses, ConnectionLimit::Server(id), used);
        }
        uses
    }
}

impl SharedLimitUser for BouncerClientLimits<'_> {
    type Limit = SharedClientLimit;

    const SUBJECT: &'static str = "clients";

    const PREFIX: &'static str = "clients/";

    fn uses(&self) -> SharedLimitUses<SharedClientLimit> {
        let bouncer = &self.0.0;
        let ClientUsage { groups, arrivals } = bouncer.threads.client_usage();
        let routing = bouncer.current.load();
        let uses = groups.into_iter().filter_map(|(group, it)| {
            let (resource, limit) = client_limit(&routing, &group)?;
            let needed = it.used.saturating_add(it.waiting).min(limit);
            let shared = SharedClientLimit { group, limit, arrivals };
            let (bound, used) = (it.bound, it.used);
            let used = LimitUse { resource: resource.clone(), limit, bound, used, needed };
            Some((resource, (shared, used)))
        });
        uses.collect()
    }

    fn take_parts(&self, parts: Vec<(SharedClientLimit, LimitGrant)>) {
        self.0.0.threads.bound_clients(&parts);
    }
}

/// Returns the name of a limit on clients, which is the same at all nodes, and the limit. `None` if
/// there is none.
fn client_limit(routing: &TenantRouting, group: &ClientGroup) -> Option<(String, u32)> {
    let (ClientGroup::Tenant(id) | ClientGroup::User(id, _)) = group;
    let tenant = routing.tenant(*id)?;
    let (engine, name) = (tenant.engine, &tenant.name);
    match group {
        ClientGroup::Tenant(_) => {
            let limit = tenant.limits.clients_max?;
            Some((format!("clients/tenant/{engine:?}/{name}"), limit))
        }
        // Names of tenants have no slash.
        ClientGroup::User(_, user) => {
            let limit = tenant.clients_max_of(&tenant.user(user))?;
            Some((format!("clients/user/{engine:?}/{name}/{user}"), limit))
        }
    }
}

/// Adds a limit if any of it is used, needed, or available.
fn add(uses: &mut ConnectionLimitUses, limit: ConnectionLimit, used: LimitUse) {
    if (used.bound, used.used, used.needed) != (0, 0, 0) {
        uses.insert(used.resource.clone(), (limit, used));
    }
}
