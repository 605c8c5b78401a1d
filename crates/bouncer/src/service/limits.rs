//! Limits on server connections that hold over all nodes: this node's part of each.
//!
//! A tenant's `limits.server_connections_max` with its reserve, and the connections of a server,
//! are shared ([`node::cluster::LimitShares`]). The pools open no connection beyond this node's
//! part, and close idle ones when it becomes smaller. It grows when clients wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use node::clock;
use node::cluster::{LimitScope, LimitShares, LimitUse, SETTLED_MAX};
use node::store::SqlStoreError;

use super::Bouncer;
use crate::relay::orders::ThreadCommand;
use crate::relay::pools::{ConnectionBounds, ConnectionUsage};
use crate::tenants::{ServerId, TenantId};

/// Interval at which a node looks whether others need what it has.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval at which a node whose clients wait asks for more.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Time after which a connection that nobody uses is closed when another node needs it.
const IDLE_MAX: Duration = Duration::from_millis(100);
/// Shortest time from a change of its parts to the next question.
const SETTLE_GAP: Duration = Duration::from_millis(10);

/// Limit that is shared, as this node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedLimit {
    Server(ServerId),
    Tenant(TenantId),
}

/// Limits of which this node uses or needs something, by their names.
type LimitUses = BTreeMap<String, (SharedLimit, LimitUse)>;

/// What was settled last.
#[derive(Debug, Default)]
struct SettledLimits {
    uses: Vec<LimitUse>,
    bounds: ConnectionBounds,
    /// True if a limit had less than was needed.
    is_short: bool,
    /// True if the store could not be asked.
    is_failing: bool,
}

impl Bouncer {
    /// Has limits on server connections hold over all nodes. For a relay that was started so.
    pub fn share_limits(&self, shares: LimitShares) {
        // There is one cluster.
        drop(self.0.limits.set(shares));
    }

    /// Keeps this node's parts of limits. Never ends.
    pub(super) async fn follow_limits(&self) {
        let Some(shares) = self.0.limits.get() else { return std::future::pending().await };
        let demand = self.0.threads.demand();
        let mut settled = SettledLimits::default();
        loop {
            let pause = match () {
                () if settled.is_short => ASK_EVERY,
                () if settled.uses.is_empty() => Duration::MAX,
                () => LOOK_EVERY,
            };
            tokio::select! {
                () = demand.notified(), if !settled.is_short => {}
                () = tokio::time::sleep(pause) => {}
            }
            let asked = clock::now();
            let outcome = self.settle_limits(shares, &mut settled).await;
            let was_failing = std::mem::replace(&mut settled.is_failing, outcome.is_err());
            if let Err(error) = outcome {
                self.limit_alone(shares, &mut settled);
                if !was_failing {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "cannot share limits on server connections with other nodes"
                    );
                }
            } else if was_failing {
                tracing::info!("limits on server connections are shared with other nodes again");
            }
            tokio::time::sleep(SETTLE_GAP.saturating_sub(clock::now() - asked)).await;
        }
    }

    /// Says what this node uses, and takes what it may use.
    async fn settle_limits(
        &self,
        shares: &LimitShares,
        settled: &mut SettledLimits,
    ) -> Result<(), SqlStoreError> {
        let all = self.limit_uses();
        let mut uses: Vec<LimitUse> = all.values().map(|(_, it)| it.clone()).collect();
        // What is not used any more is given back, once nothing of it can be taken.
        let is_over = |it: &&LimitUse| !all.contains_key(&it.resource) && !is_nothing(it);
        let over = settled.uses.iter().filter(is_over);
        uses.extend(over.map(|it| LimitUse { bound: 0, used: 0, needed: 0, ..it.clone() }));
        let wanted = match uses.is_empty() {
            true => Vec::new(),
            false => shares.wanted_elsewhere().await?,
        };
        self.give_up_idle(&all, &wanted);
        let is_same = uses == settled.uses && !settled.is_short && !settled.is_failing;
        if is_same && wanted.is_empty() {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(uses.len());
        for some in uses.chunks(SETTLED_MAX) {
            parts.extend(shares.settle(some).await?);
        }
        let mut bounds = ConnectionBounds::default();
        settled.is_short = false;
        for ((limit, it), part) in all.values().zip(parts) {
            settled.is_short |= part < it.needed;
            match limit {
                SharedLimit::Server(id) => bounds.servers.insert(*id, part),
                SharedLimit::Tenant(id) => bounds.tenants.insert(*id, part),
            };
        }
        settled.uses = uses;
        self.bound(settled, bounds);
        Ok(())
    }

    /// Closes what is idle of limits that other nodes need.
    fn give_up_idle(&self, all: &LimitUses, wanted: &[String]) {
        let routing = self.0.current.load();
        let wanted = wanted.iter().filter_map(|resource| all.get(resource));
        let tenants = wanted.flat_map(|(limit, _)| match limit {
            SharedLimit::Tenant(id) => vec![*id],
            SharedLimit::Server(id) => {
                let of_server = routing.tenants().filter(|tenant| tenant.server.id == *id);
                of_server.map(|tenant| tenant.id).collect()
            }
        });
        let tenants: Arc<[TenantId]> = tenants.collect();
        if let (false, Some(before)) = (tenants.is_empty(), clock::now().checked_sub(IDLE_MAX)) {
            self.0.threads.order(&|| ThreadCommand::GiveUpIdle(Arc::clone(&tenants), before));
        }
    }

    /// Takes the even part of what is needed while the store is away, where a limit may be
    /// exceeded.
    fn limit_alone(&self, shares: &LimitShares, settled: &mut SettledLimits) {
        if shares.scope() != LimitScope::Soft {
            return;
        }
        let mut bounds = settled.bounds.clone();
        for (limit, it) in self.limit_uses().into_values() {
            let bound = match limit {
                SharedLimit::Server(id) => bounds.servers.entry(id).or_default(),
                SharedLimit::Tenant(id) => bounds.tenants.entry(id).or_default(),
            };
            *bound = (*bound).max(shares.even_part(it.limit).min(it.needed));
        }
        self.bound(settled, bounds);
    }

    fn bound(&self, settled: &mut SettledLimits, bounds: ConnectionBounds) {
        if settled.bounds != bounds {
            settled.bounds = bounds.clone();
            self.0.threads.bound_connections(bounds);
        }
    }

    /// Returns what this node uses and needs of each limit of which it has something.
    fn limit_uses(&self) -> LimitUses {
        let ConnectionUsage { servers, tenants } = self.0.threads.connection_usage();
        let routing = self.0.current.load();
        let mut uses = LimitUses::new();
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
            // Most of many tenants have nothing, and are looked at each time.
            let Some(it) = tenants.get(&tenant.id) else { continue };
            let limits = &tenant.limits;
            let limit =
                limits.server_connections_max.saturating_add(limits.server_connections_reserve);
            let needed = it.used.saturating_add(it.waiting).min(limit);
            server.needed = server.needed.saturating_add(needed);
            let resource = format!("connections/tenant/{:?}/{}", tenant.engine, tenant.name);
            let used = LimitUse { resource, limit, bound: it.bound, used: it.used, needed };
            add(&mut uses, SharedLimit::Tenant(tenant.id), used);
        }
        for (id, mut used) in of_servers {
            used.needed = used.needed.max(used.used).min(used.limit.max(used.used));
            add(&mut uses, SharedLimit::Server(id), used);
        }
        uses
    }
}

/// Adds a limit if anything of it is used, needed, or may be used.
fn add(uses: &mut LimitUses, limit: SharedLimit, used: LimitUse) {
    if !is_nothing(&used) {
        uses.insert(used.resource.clone(), (limit, used));
    }
}

fn is_nothing(used: &LimitUse) -> bool {
    (used.bound, used.used, used.needed) == (0, 0, 0)
}
