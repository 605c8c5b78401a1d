//! The gateway's interface to services with sandboxes: authorization of grants, and the audit log.

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
    /// Settings, with secrets that are no references any more.
    pub config: GatewayConfig,
    /// Store of the audit.
    pub store: SqlStore,
    /// The bouncer, if there is one.
    pub databases: Option<Arc<dyn DatabaseBackends>>,
    /// The catalog, if there is one.
    pub catalogs: Option<Arc<dyn CatalogBackends>>,
    /// The way to the model, if there is one.
    pub models: Option<Arc<dyn ModelBackends>>,
    /// Whom connections outside trust with TLS.
    pub roots: TlsRoots,
    /// Resolver of names; the machine's own resolver when there is none.
    pub resolver: Option<Arc<dyn NameResolver>>,
    /// Records spans of grant uses; `None` without tracing.
    pub tracer: Option<Tracer>,
    /// Lets nothing go outside after the server's lease.
    pub fence: EffectFence,
    /// Keeps what grants have used; in memory where there is none.
    pub amounts: Option<AmountLedger>,
    /// Turns of the callers of HTTP, which connections of sandboxes take as well.
    pub turns: FairScheduler,
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayStartError {
    /// A setting has a value that it cannot have.
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
    /// Keeps what grants have used, where something does.
    amounts: Option<AmountLedger>,
    /// None once it was ended.
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
    /// Requests and connections that were refused.
    pub refusals: u64,
    /// Connections that are served now.
    pub connections: usize,
}

impl GatewayService {
    /// Returns the counters, for the history of the server.
    #[must_use]
    pub fn activity(&self) -> GatewayActivity {
        let shared = &self.0.shared;
        let (requests, refusals) = shared.audit.requests_and_refusals();
        let most = shared.config.now().connections_max.min(Semaphore::MAX_PERMITS);
        let connections = most.saturating_sub(shared.rooms.available_permits());
        GatewayActivity { requests, refusals, connections }
    }

    /// Starts the gateway, and what writes behind it.
    ///
    /// # Errors
    /// When a setting is wrong or the store cannot be brought up to date.
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

    /// Puts other settings in force, for grants that are opened from now on. Those of connections,
    /// of the model's budgets and of the audit have to be the same as before.
    ///
    /// # Errors
    /// When a setting is wrong; what held before goes on to hold.
    pub fn replace_config(&self, config: GatewayConfig) -> Result<(), GatewayStartError> {
        offers::check(&config.offers).map_err(GatewayStartError::Setting)?;
        config.check().map_err(GatewayStartError::Setting)?;
        self.0.shared.config.replace(config);
        Ok(())
    }

    /// Writes what waits to be written, and what grants have used, for the end of the server.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn close(&self) -> Result<(), SqlStoreError> {
        // Its turn could come, or go on, when the store is closed already.
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

    /// Returns what was done, oldest first or newest first. Operators see all, others what their
    /// own tenant's sandboxes did.
    ///
    /// # Errors
    /// 403 for whoever asks for others', or lacks a scope; when the store cannot be read.
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

    /// Returns what the holder of a token may give to sandboxes. Nothing of another tenant's
    /// offers is in it, and no secret's value.
    ///
    /// # Errors
    /// 403 without one of the scopes that make sandboxes.
    pub fn offers(&self, who: &TokenPrincipal) -> Result<GrantOfferList, http::HttpError> {
        require_sandboxes(who)?;
        Ok(offered::list(&self.0.shared, who))
    }

    /// Returns whether a sandbox would be given these grants, as a session or execution of this
    /// token's. Makes nothing.
    ///
    /// # Errors
    /// 403 without one of the scopes that make sandboxes, 400 for too many grants.
    pub fn check(
        &self,
        who: &TokenPrincipal,
        grants: &[Grant],
    ) -> Result<GrantCheckReport, http::HttpError> {
        require_sandboxes(who)?;
        offered::check(&self.0.shared, who, grants)
    }
}

/// Refuses a token that can make neither executions nor sessions.
fn require_sandboxes(who: &TokenPrincipal) -> Result<(), http::HttpError> {
    if who.scopes.has(TokenScope::Executions) {
        return Ok(());
    }
    who.require(TokenScope::Sessions)
}

/// The filter with what of the audit a caller may see.
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

/// Time after which the store may be asked again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Answers why the audit cannot be read. What waits to be written is written first, so a disk
/// without room is a reason too.
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
