//! Interface of the gateway to services with sandboxes: authorization of grants, and the audit log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AuditRecordList, AuditSummaryKey, AuditSummaryReport, ErrorCode, Grant, GrantCheckReport,
    GrantOfferList,
};
use node::auth::{TokenPrincipal, TokenScope};
use node::client::TlsRoots;
use node::cluster::AmountLedger;
use node::current::CurrentSettings;
use node::fair::FairScheduler;
use node::fence::EffectFence;
use node::gateway::{GrantGateway, GrantHolder, GrantOpening};
use node::http;
use node::store::{SqlStore, SqlStoreError};
use node::task::{self, Boxed};
use node::telemetry::Registry;
use node::tenant_values::TenantValues;
use node::traces::Tracer;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::audit::{AuditFilter, GatewayAudit, GatewayAuditLimits};
use crate::config::GatewayConfig;
use crate::doors::{CatalogBackends, DatabaseBackends, ModelBackends};
use crate::egress::accounts::GrantAccounts;
use crate::egress::dial::{EgressDialer, NameResolver, SystemResolver};
use crate::gate::ReadyGrants;
use crate::kinds::ResolvedGrant;
use crate::metrics::{self, GatewayFigures};
use crate::resolve::{check_count, environment_of, resolve_one};
use crate::shared::GatewayShared;
use crate::store::AuditStore;
use crate::{offered, offers};

/// Dependencies of the gateway.
#[derive(Debug)]
pub struct GatewayParts {
    /// Settings, with resolved secrets.
    pub config: GatewayConfig,
    /// Store of the audit log.
    pub store: SqlStore,
    /// The bouncer, if there is one.
    pub databases: Option<Arc<dyn DatabaseBackends>>,
    /// The catalog, if there is one.
    pub catalogs: Option<Arc<dyn CatalogBackends>>,
    /// The model backend, if there is one.
    pub models: Option<Arc<dyn ModelBackends>>,
    /// Trusted roots of outgoing TLS connections.
    pub roots: TlsRoots,
    /// Resolver of names; `None` for the machine's own resolver.
    pub resolver: Option<Arc<dyn NameResolver>>,
    /// Records spans of grant uses; `None` without tracing.
    pub tracer: Option<Tracer>,
    /// Blocks outgoing traffic after the server's lease has ended.
    pub fence: EffectFence,
    /// Stores the usage of grants; in memory if `None`.
    pub amounts: Option<AmountLedger>,
    /// Scheduler of HTTP callers, shared by connections of sandboxes.
    pub turns: FairScheduler,
}

/// Reasons why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayStartError {
    /// A setting has an invalid value.
    #[error("{0}")]
    Setting(String),
    /// The store cannot be used.
    #[error("open the audit")]
    Store(#[from] SqlStoreError),
}

/// The gateway. Cheap to clone.
#[derive(Clone)]
pub struct GatewayService(Arc<GatewayInner>);

struct GatewayInner {
    shared: Arc<GatewayShared>,
    /// Stores the usage of grants, if there is a store for it.
    amounts: Option<AmountLedger>,
    /// `None` once it has been stopped.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for GatewayInner {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.get_mut() {
            writer.abort();
        }
    }
}

impl fmt::Debug for GatewayService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("config", &self.0.shared.config).finish_non_exhaustive()
    }
}

/// Counters of the gateway since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayActivity {
    /// Statements and requests of sandboxes.
    pub requests: u64,
    /// Requests and connections that were rejected.
    pub refusals: u64,
    /// Open connections.
    pub connections: usize,
}

impl GatewayService {
    /// Returns the counters, for the server's history.
    #[must_use]
    pub fn activity(&self) -> GatewayActivity {
        let shared = &self.0.shared;
        let (requests, refusals) = shared.audit.requests_and_refusals();
        let most = shared.config.now().connections_max.min(Semaphore::MAX_PERMITS);
        let connections = most.saturating_sub(shared.rooms.available_permits());
        GatewayActivity { requests, refusals, connections }
    }

    /// Starts the gateway and its background writer.
    ///
    /// # Errors
    /// If a setting is wrong or the store cannot be migrated.
    pub fn start(
        parts: GatewayParts,
        registry: &mut Registry,
    ) -> Boxed<'_, Result<GatewayService, GatewayStartError>> {
        Box::pin(async move {
            let GatewayParts { config, store, databases, catalogs, models, .. } = parts;
            let GatewayParts { roots, resolver, tracer, fence, amounts, turns, .. } = parts;
            offers::check(&config.offers).map_err(GatewayStartError::Setting)?;
            config.check().map_err(GatewayStartError::Setting)?;
            let store = AuditStore::open(store).await?;
            let audit =
                GatewayAudit::new(store, GatewayAuditLimits::new(&config), config.audit_statements);
            let audit = audit.traced_by(tracer);
            let resolver = resolver.unwrap_or_else(|| Arc::new(SystemResolver::default()));
            let most = config.connections_max.min(Semaphore::MAX_PERMITS);
            let shared = GatewayShared {
                audit: audit.clone(),
                databases,
                catalogs,
                models,
                dialer: Arc::new(EgressDialer::new(resolver, roots)),
                accounts: GrantAccounts::kept_in(amounts.clone()),
                rooms: Arc::new(Semaphore::new(most)),
                fence: fence.clone(),
                turns,
                tenants: TenantValues::default(),
                config: CurrentSettings::new(config),
            };
            let rooms = Arc::clone(&shared.rooms);
            metrics::register(
                GatewayFigures { audit: audit.clone(), rooms, most, fence },
                registry,
            );
            let writer = Mutex::new(Some(task::spawn(audit.write_for_ever())));
            let shared = Arc::new(shared);
            Ok(GatewayService(Arc::new(GatewayInner { shared, amounts, writer })))
        })
    }

    /// Replaces the settings, for grants that are opened from now on. Settings of connections, of
    /// the model's budgets and of the audit log must be unchanged.
    ///
    /// # Errors
    /// If a setting is wrong; the previous settings stay in force.
    pub fn replace_config(&self, config: GatewayConfig) -> Result<(), GatewayStartError> {
        offers::check(&config.offers).map_err(GatewayStartError::Setting)?;
        config.check().map_err(GatewayStartError::Setting)?;
        self.0.shared.config.replace(config);
        Ok(())
    }

    /// Writes pending audit records and the usage of grants, when the server shuts down.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn close(&self) -> Result<(), SqlStoreError> {
        // Its next write could otherwise run after the store is closed.
        let writer = self.0.writer.lock().take();
        if let Some(writer) = writer {
            writer.abort();
            let _ended = writer.await;
        }
        if let Some(amounts) = &self.0.amounts {
            amounts.close().await;
        }
        self.0.shared.audit.write().await
    }

    /// Returns audit records, oldest or newest first. Operators see all, other tokens those of
    /// their own tenant's sandboxes.
    ///
    /// # Errors
    /// 403 for another tenant's records or a missing scope; if the store cannot be read.
    pub async fn audit(
        &self,
        who: &TokenPrincipal,
        filter: AuditFilter,
    ) -> Result<AuditRecordList, http::HttpError> {
        let filter = allowed(who, filter)?;
        self.0.shared.audit.records(filter).await.map_err(unreadable)
    }

    /// Counts the same records by group.
    ///
    /// # Errors
    /// As for [`GatewayService::audit`].
    pub async fn audit_summary(
        &self,
        who: &TokenPrincipal,
        by: AuditSummaryKey,
        filter: AuditFilter,
    ) -> Result<AuditSummaryReport, http::HttpError> {
        let filter = allowed(who, filter)?;
        self.0.shared.audit.summary(by, filter).await.map_err(unreadable)
    }

    /// Returns the grants that the holder of a token may give to sandboxes. The result contains
    /// nothing of other tenants' offers, and no secret's value.
    ///
    /// # Errors
    /// 403 without a scope for creating sandboxes.
    pub fn offers(&self, who: &TokenPrincipal) -> Result<GrantOfferList, http::HttpError> {
        require_sandboxes(who)?;
        Ok(offered::list(&self.0.shared, who))
    }

    /// Returns whether a sandbox would receive these grants, as a session or execution of this
    /// token's holder. Creates nothing.
    ///
    /// # Errors
    /// 403 without a scope for creating sandboxes, 400 for too many grants.
    pub fn check(
        &self,
        who: &TokenPrincipal,
        grants: &[Grant],
    ) -> Result<GrantCheckReport, http::HttpError> {
        require_sandboxes(who)?;
        offered::check(&self.0.shared, who, grants)
    }
}

/// Rejects a token that can create neither executions nor sessions.
fn require_sandboxes(who: &TokenPrincipal) -> Result<(), http::HttpError> {
    if who.scopes.has(TokenScope::Executions) {
        return Ok(());
    }
    who.require(TokenScope::Sessions)
}

/// Restricts the filter to the records that a caller may see.
fn allowed(who: &TokenPrincipal, filter: AuditFilter) -> Result<AuditFilter, http::HttpError> {
    require_sandboxes(who)?;
    if who.operator {
        return Ok(filter);
    }
    let own = who.tenant.to_string();
    if filter.tenant.as_ref().is_some_and(|tenant| *tenant != own) {
        let message = "this is not the token's tenant";
        return Err(http::HttpError::new(ErrorCode::Forbidden, message).at("tenant"));
    }
    Ok(AuditFilter { tenant: Some(own), ..filter })
}

/// Time after which a client may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the error for an unreadable audit log. Pending records are written first, so a full disk
/// is a possible reason.
fn unreadable(error: SqlStoreError) -> http::HttpError {
    tracing::error!(error = &error as &dyn std::error::Error, "read the audit");
    let message = match &error {
        SqlStoreError::Full(_) => "the disk of the store is full",
        _ if error.is_temporary() => "the store cannot be reached at present",
        _ => return http::HttpError::internal(),
    };
    http::HttpError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

impl GrantGateway for GatewayService {
    fn authorize(&self, who: &TokenPrincipal, grants: &[Grant]) -> Result<(), http::HttpError> {
        offers::authorize(&self.0.shared.config.now(), who, grants)
    }

    fn resolve(
        &self,
        holder: &GrantHolder,
        grants: &[Grant],
    ) -> Result<Box<dyn GrantOpening>, http::HttpError> {
        let shared = &self.0.shared;
        check_count(grants)?;
        let mut ports = Vec::with_capacity(grants.len());
        let mut resolved: Vec<Box<dyn ResolvedGrant>> = Vec::with_capacity(grants.len());
        for (index, grant) in grants.iter().enumerate() {
            resolved.push(resolve_one(shared, index, grant, &ports)?);
            ports.push(grant.port());
        }
        let environment = environment_of(&ports, &resolved);
        let grants = grants.iter().cloned().zip(resolved).collect();
        let (shared, holder) = (Arc::clone(shared), holder.clone());
        Ok(Box::new(ReadyGrants { shared, holder, grants, ports, environment }))
    }
}
