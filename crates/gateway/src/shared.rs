//! State that the gates of all sandboxes share.

use std::sync::Arc;

use node::current::CurrentSettings;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::tenant_values::TenantValues;
use tokio::sync::Semaphore;

use crate::audit::GatewayAudit;
use crate::config::GatewayConfig;
use crate::doors::{CatalogBackends, DatabaseBackends, ModelBackends};
use crate::egress::accounts::GrantAccounts;
use crate::egress::dial::{EgressDialer, LOOKUPS_MAX_PER_TENANT};

/// State that the gates of all sandboxes share.
pub(crate) struct GatewayShared {
    pub(crate) config: CurrentSettings<GatewayConfig>,
    pub(crate) audit: GatewayAudit,
    pub(crate) databases: Option<Arc<dyn DatabaseBackends>>,
    pub(crate) catalogs: Option<Arc<dyn CatalogBackends>>,
    pub(crate) models: Option<Arc<dyn ModelBackends>>,
    pub(crate) dialer: Arc<EgressDialer>,
    /// Accounts of `http` grants.
    pub(crate) accounts: GrantAccounts,
    /// Permits, one for each connection that is served here.
    pub(crate) rooms: Arc<Semaphore>,
    /// Blocks outgoing traffic after the server's lease has ended.
    pub(crate) fence: EffectFence,
    /// Scheduler of tenants: a served connection runs in the share of its tenant.
    pub(crate) turns: FairScheduler,
    /// State of the tenants that have a sandbox.
    pub(crate) tenants: TenantValues<TenantShare>,
}

/// State that the sandboxes of one tenant share.
#[derive(Debug)]
pub(crate) struct TenantShare {
    /// Permits, one for each of their connections.
    pub(crate) rooms: Arc<Semaphore>,
    /// Limits concurrent name lookups.
    pub(crate) lookups: Arc<Semaphore>,
}

impl GatewayShared {
    /// Returns the state that a tenant's sandboxes share, for as long as one of them exists.
    pub(crate) fn tenant(&self, name: &str) -> Arc<TenantShare> {
        self.tenants.value_of(name, || {
            let most = self.config.now().connections_max_per_tenant.min(Semaphore::MAX_PERMITS);
            TenantShare {
                rooms: Arc::new(Semaphore::new(most)),
                lookups: Arc::new(Semaphore::new(LOOKUPS_MAX_PER_TENANT)),
            }
        })
    }
}
