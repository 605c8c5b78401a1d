//! Authentication and authorization: principals and their rights.
//!
//! There are several kinds of principals. A token of Cove's with the scope `catalog` identifies its
//! tenant or, if it is an operator's, an operator with all rights. A client is the catalog's own:
//! it exchanges its secret for an access token that lasts an hour, as OAuth 2 specifies, or uses
//! API keys, which last. Other principals present signed tokens of configured issuers. Guests are
//! identified by the listener on which they connect.
//!
//! Rights are granted on a warehouse, a namespace, a table or a view, and hold for everything in
//! it. They are granted to principals or to roles. They follow their object when it is renamed, and
//! are removed with it. Everything that a request needs is in memory; the store is read after a
//! change, and for a token that was not seen before.

mod attempts;
mod audit;
mod catalog_roles;
mod clients;
pub(crate) mod entities;
mod grants;
mod guests;
mod keys;
mod oidc;
mod policies;
mod principal_ids;
mod random;
mod roles;
mod store;
#[cfg(test)]
mod tests;
mod token_cache;
mod tokens;
mod validity;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use iceberg::ident::{NamespaceIdent, TableIdent};
use node::auth::{TokenRegistry, TokenScope};
use node::clock::{self, IdGenerator};
use node::cluster::PeerForwarder;
use node::http::{RouteTable as _, post};
use node::issuers::{IssuerConfig, IssuerError, JWT_BYTES_MAX, TrustedIssuers};
use node::lookup::SharedLookup;
use node::store::{COUNTER_AGE_MAX, SqlStore};
use node::task::Boxed;
use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

pub use self::attempts::{WRONG_SECRET_FORGIVEN, WRONG_SECRETS_MAX};
pub use self::audit::{
    AccessAudit, AuditLine, AuditPage, CatalogAuditFilter, CatalogAuditLimits, RequestOrigin,
    STRANGERS_PER_SECOND_MAX, WAITING_MAX, WRITE_INTERVAL,
};
pub use self::catalog_roles::{
    CATALOG_ROLES_MAX, CatalogRoleRecord, CatalogRoleRegistry, HOLDERS_MAX, catalog_role_principal,
};
pub use self::clients::{CLIENTS_MAX, ClientRecord, ClientRegistry, GRACE_MAX, NewSecret};
pub use self::entities::{ENTITY_PROPERTIES_BYTES_MAX, ENTITY_PROPERTIES_MAX, EntityRegistry};
pub use self::grants::{GRANTS_MAX, PrincipalGrant, RightSet};
pub use self::guests::{GuestRights, TemporaryPrincipal};
pub use self::keys::{
    ApiKeyRegistry, KEY_LIFETIME_MAX, KEY_PREFIX, KEYS_MAX, KEYS_OF_CLIENT_MAX, KeyRecord,
    NewApiKey,
};
pub use self::policies::{
    ColumnProjection, NewPolicy, NewProjection, POLICIES_MAX, PROJECTIONS_MAX, PolicyBody,
    PolicyPreview, PolicyPreviewRequest, PolicyRecord, PolicyRegistry, ReadScope,
    TABLE_POLICIES_BYTES_MAX,
};
pub use self::principal_ids::GUEST_PREFIX;
pub use self::random::SecretGenerator;
pub(crate) use self::random::{Hash, hash};
pub use self::roles::{
    MEMBERS_AT_ONCE_MAX, MEMBERS_MAX, MembersChange, ROLES_MAX, RoleRecord, RoleRegistry,
};
pub use self::token_cache::KNOWN_MAX;
pub use self::tokens::{AccessToken, AccessTokens, LIFETIME, TOKENS_OF_CLIENT_MAX};
pub use crate::store::{EntityChange, EntityKey, EntityKind, EntityRecord};

use self::attempts::WrongSecrets;
use self::audit::CatalogAudit;
use self::catalog_roles::CatalogRoles;
use self::clients::StoredClient;
use self::grants::GrantIndex;
use self::guests::TemporaryPrincipals;
use self::keys::ApiKeyIndex;
use self::policies::PolicyIndex;
pub(crate) use self::roles::no_such as no_such_role;
use self::roles::{CombinedRights, RoleMembership};
use self::store::AccessStore;
use self::token_cache::{BearerOwner, TokenCache};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{
    AccessRight, CatalogPrincipal, RightAuthority, RightTarget, TableRestrictions, VisibleNames,
};
use crate::shell::from_shell;
use crate::warehouse::Warehouse;

/// Role of nodes that run the catalog, and the path, for nodes only, at which they are notified of
/// changes of principals or rights.
const ROLE: &str = "catalog";
const CHANGED: &str = "/peer/catalog/access";

/// Time for which another server may honour a revoked right or credential if it receives no
/// notification.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// Interval between checks whether another server has changed something; they read memory if the
/// store was queried recently.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// Least time between two reads of the store for unknown principals.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between two checks whether the credentials of open connections are still valid.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Interval at which deferred writes are stored and expired entries removed.
const TIDY_INTERVAL: Duration = Duration::from_secs(60);

/// Prefix of access tokens, which distinguishes them from Cove's own.
pub const TOKEN_PREFIX: &str = "cat_";

/// Settings of access.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    /// Limits of the audit log.
    pub audit: CatalogAuditLimits,
    /// Issuers whose signed tokens are accepted.
    pub issuers: Vec<IssuerConfig>,
}

/// Principals, their secrets, their tokens and their rights. Cheap to clone.
#[derive(Clone)]
pub struct AccessControl(Arc<AccessInner>);

struct AccessInner {
    cove: TokenRegistry,
    store: AccessStore,
    ids: IdGenerator,
    generator: SecretGenerator,
    token_cache: TokenCache,
    issuers: TrustedIssuers,
    audit: CatalogAudit,
    guests: TemporaryPrincipals,
    wrong_secrets: WrongSecrets,
    /// Limits concurrent token lookups in the store.
    lookups: Semaphore,
    /// Shared lookup of clients, secrets and keys that are not in memory.
    unknown: SharedLookup,
    loaded: RwLock<LoadedAccess>,
    /// Held while the store is read, so that an older read never replaces a newer one.
    loading: tokio::sync::Mutex<()>,
    /// Signals that a credential may have ended.
    changes: watch::Sender<()>,
    /// Other nodes, if they can be reached.
    nodes: OnceLock<PeerForwarder>,
}

/// Content of the store, as of one version.
#[derive(Debug, Default)]
struct LoadedAccess {
    version: u64,
    clients: HashMap<Box<str>, Arc<StoredClient>>,
    keys: ApiKeyIndex,
    roles: RoleMembership,
    grants: GrantIndex,
    policies: PolicyIndex,
    ready: CombinedRights,
}

impl fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("version", &self.0.loaded.read().version).finish()
    }
}

impl AccessControl {
    /// Opens the principals and rights in the store; Cove's own tokens are accepted as well.
    ///
    /// # Errors
    /// If the store cannot be used, or an issuer's configuration is wrong.
    pub fn open(
        store: SqlStore,
        cove: TokenRegistry,
        settings: AccessSettings,
    ) -> Boxed<'static, Result<AccessControl>> {
        Box::pin(async move {
            let store = AccessStore::open(store).await?;
            let inner = AccessInner {
                cove,
                store,
                ids: IdGenerator::new().map_err(CatalogError::internal)?,
                generator: SecretGenerator::new()?,
                token_cache: TokenCache::default(),
                issuers: TrustedIssuers::of_principals(settings.issuers)
                    .map_err(oidc::catalog_error)?,
                audit: CatalogAudit::new(settings.audit),
                guests: TemporaryPrincipals::default(),
                wrong_secrets: WrongSecrets::default(),
                lookups: Semaphore::new(tokens::LOOKUPS_MAX),
                unknown: SharedLookup::new(LOOK_INTERVAL),
                loaded: RwLock::default(),
                loading: tokio::sync::Mutex::default(),
                changes: watch::Sender::new(()),
                nodes: OnceLock::new(),
            };
            let access = AccessControl(Arc::new(inner));
            access.load().await?;
            Ok(access)
        })
    }

    /// The audit log.
    #[must_use]
    pub fn audit_log(&self) -> AccessAudit<'_> {
        AccessAudit(self)
    }

    /// Roles of a warehouse, in the form of Polaris.
    #[must_use]
    pub fn catalog_roles(&self) -> CatalogRoleRegistry<'_> {
        CatalogRoleRegistry(self)
    }

    /// The catalog's own clients.
    #[must_use]
    pub fn clients(&self) -> ClientRegistry<'_> {
        ClientRegistry(self)
    }

    /// Properties and versions of principals, roles and warehouses.
    #[must_use]
    pub fn entities(&self) -> EntityRegistry<'_> {
        EntityRegistry(self)
    }

    /// API keys of clients.
    #[must_use]
    pub fn api_keys(&self) -> ApiKeyRegistry<'_> {
        ApiKeyRegistry(self)
    }

    /// Policies on rows and columns.
    #[must_use]
    pub fn policies(&self) -> PolicyRegistry<'_> {
        PolicyRegistry(self)
    }

    /// Roles and their members.
    #[must_use]
    pub fn roles(&self) -> RoleRegistry<'_> {
        RoleRegistry(self)
    }

    /// Access tokens of clients.
    #[must_use]
    pub fn tokens(&self) -> AccessTokens<'_> {
        AccessTokens(self)
    }

    /// Identifies the principal that makes a request.
    ///
    /// # Errors
    /// `NotAuthorized` if there is no token, more than one, or an unknown one;
    /// `AuthenticationTimeout` if it has expired; `Forbidden` if it is for another scope.
    pub async fn identify(&self, headers: &HeaderMap) -> Result<CatalogPrincipal> {
        if let Some(found) = self.recognise(headers, hash) {
            return found;
        }
        match bearer(headers) {
            Some(token) if token.starts_with(TOKEN_PREFIX) => self.tokens().holder(token).await,
            Some(key) if key.starts_with(KEY_PREFIX) => {
                self.tokens().catch_up().await?;
                self.api_keys().key_holder(&hash(key))
            }
            Some(token) => Box::pin(self.oidc_holder(token)).await,
            None => Err(CatalogError::internal("no token is looked up")),
        }
    }

    /// Identifies the principal from memory; `None` if the store or an issuer has to be queried.
    /// `hash` computes the SHA-256 of a token.
    ///
    /// # Errors
    /// Those of [`AccessControl::identify`].
    pub(crate) fn recognise(
        &self,
        headers: &HeaderMap,
        hash: impl FnOnce(&str) -> Hash,
    ) -> Option<Result<CatalogPrincipal>> {
        match bearer(headers) {
            Some(token) if token.starts_with(TOKEN_PREFIX) => {
                self.tokens().known_holder(token, hash)
            }
            // Another server may have created it a moment ago.
            Some(key) if key.starts_with(KEY_PREFIX) => {
                let found = self.api_keys().key_holder(&hash(key));
                let is_unknown = |error: &CatalogError| error.kind == ErrorReason::NotAuthorized;
                (!found.as_ref().is_err_and(is_unknown)).then_some(found)
            }
            Some(token) if self.0.issuers.may_be_of(token) => self.verified_holder(token, hash),
            _ => Some(self.holder_of_coves(headers)),
        }
    }

    /// Returns the principal of a signed token that was verified before; `None` for another one.
    fn verified_holder(
        &self,
        text: &str,
        hash: impl FnOnce(&str) -> Hash,
    ) -> Option<Result<CatalogPrincipal>> {
        if text.len() > JWT_BYTES_MAX {
            let refused = IssuerError::Refused("it is too long".to_owned());
            return Some(Err(oidc::catalog_error(refused)));
        }
        let found = self.0.token_cache.find(&hash(text))?;
        (found.ends_ms > clock::wall_ms()).then_some(Ok(found.who))
    }

    /// Returns the principal of a signed token, and caches it for a while.
    ///
    /// # Errors
    /// Those of [`oidc::verify`].
    async fn oidc_holder(&self, text: &str) -> Result<CatalogPrincipal> {
        if let Some(found) = self.verified_holder(text, hash) {
            return found;
        }
        let (hash, epoch, now_ms) = (hash(text), self.0.token_cache.epoch(), clock::wall_ms());
        let (who, ends_ms) = oidc::verify(&self.0.issuers, text, now_ms).await?;
        let owner = BearerOwner { who: who.clone(), secret: None, ends_ms };
        self.0.token_cache.put(hash, owner, epoch, now_ms);
        Ok(who)
    }

    /// Returns the principal of one of Cove's own tokens.
    fn holder_of_coves(&self, headers: &HeaderMap) -> Result<CatalogPrincipal> {
        let found = node::http::authenticate(&self.0.cove, headers, TokenScope::Catalog);
        let principal = found.map_err(|error| from_shell(&error))?;
        let operator = principal.operator;
        let who = CatalogPrincipal::new(&format!("tenant:{}", principal.tenant), &principal.name);
        Ok(CatalogPrincipal { operator, ..who })
    }

    /// Loads changes of other servers, within [`RELOAD_INTERVAL`], writes the audit log, once per
    /// [`WRITE_INTERVAL`], and tidies up, once per [`TIDY_INTERVAL`]. Never returns.
    pub fn keep_current(self) -> Boxed<'static, ()> {
        Box::pin(async move {
            let mut reload = tokio::time::interval(FOLLOW_INTERVAL);
            let mut check = tokio::time::interval(CHECK_INTERVAL);
            let mut write = tokio::time::interval(WRITE_INTERVAL);
            let mut tidy = tokio::time::interval(TIDY_INTERVAL);
            let mut failed = [false; 3];
            loop {
                let (task, result) = tokio::select! {
                    _ = reload.tick() => (0, self.follow(COUNTER_AGE_MAX).await),
                    // Time has passed, and tokens of Cove's own may have expired.
                    _ = check.tick() => {
                        self.0.changes.send_replace(());
                        continue;
                    }
                    _ = write.tick() => (1, self.audit_log().write_audit().await),
                    _ = tidy.tick() => (2, self.tidy().await),
                };
                // Logged once for each task, not at every attempt.
                let was_failing = std::mem::replace(&mut failed[task], result.is_err());
                if let Err(error) = &result
                    && !was_failing
                {
                    let error = error as &dyn std::error::Error;
                    tracing::error!(error, "failed to read or write the catalog's principals");
                }
            }
        })
    }

    /// Writes deferred key uses, and removes expired tokens and audit lines.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn tidy(&self) -> Result<()> {
        self.api_keys().keep_used().await?;
        self.audit_log().shorten_audit().await?;
        self.0.store.forget_tokens(clock::wall_ms()).await
    }

    /// Loads changes made since the last read, if there are any.
    ///
    /// # Errors
    /// If the store cannot be read. The loaded state stays in force.
    pub async fn reload(&self) -> Result<()> {
        self.follow(Duration::ZERO).await
    }

    /// Loads changes, as seen by a version counter that is at most `age_max` old.
    async fn follow(&self, age_max: Duration) -> Result<()> {
        let version = self.0.store.version(age_max).await?;
        if version == self.0.loaded.read().version { Ok(()) } else { self.load().await }
    }

    /// Loads a change made by this node, and has all other nodes load it: a principal that received
    /// a right at one node may use another node next.
    async fn changed(&self) -> Result<()> {
        self.load().await?;
        if let Some(nodes) = self.0.nodes.get() {
            nodes.tell_others(ROLE, CHANGED, Bytes::new()).await;
        }
        Ok(())
    }

    /// Sets the nodes that are notified of changes.
    pub fn join(&self, nodes: PeerForwarder) {
        // There is one cluster; a second call has no effect.
        drop(self.0.nodes.set(nodes));
    }

    /// Returns the routes at which other nodes report their changes.
    pub fn peer_routes(&self) -> Router {
        Router::new().at(CHANGED, post(changed_elsewhere)).with_state(self.clone())
    }

    async fn load(&self) -> Result<()> {
        let _lock = self.0.loading.lock().await;
        let kept = self.0.store.load().await?;
        let clients: HashMap<Box<str>, Arc<StoredClient>> =
            kept.clients.into_iter().map(|it| (it.id.clone(), Arc::new(it))).collect();
        let grants = GrantIndex::new(&kept.grants)?;
        let is_there =
            |who: &CatalogPrincipal| clients::of(who).is_none_or(|id| clients.contains_key(id));
        self.0.token_cache.keep(is_there);
        for hash in &kept.revoked {
            self.0.token_cache.forget(hash);
        }
        let mut loaded = self.0.loaded.write();
        let keys = ApiKeyIndex::new(kept.keys, &loaded.keys);
        let (version, roles) =
            (kept.version, RoleMembership::new(kept.roles, CatalogRoles::new(kept.catalog_roles)));
        let (policies, ready) = (PolicyIndex::new(kept.policies), CombinedRights::default());
        *loaded = LoadedAccess { version, clients, keys, roles, grants, policies, ready };
        drop(loaded);
        self.0.changes.send_replace(());
        Ok(())
    }

    /// Returns the rights of a principal to an object.
    fn rights(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        object: RightTarget<'_>,
    ) -> RightSet {
        if who.operator {
            return RightSet::ALL;
        }
        if let Some(guest) = who.guest() {
            return self.0.guests.rights(guest, warehouse.id(), object);
        }
        let loaded = self.0.loaded.read();
        let trees = loaded.ready.trees(who, &loaded.roles, &loaded.grants);
        trees.map(|it| it.rights(warehouse.id(), object)).unwrap_or_default()
    }

    /// Grants rights. Rights that the principal already has stay.
    ///
    /// # Errors
    /// `Forbidden` if the caller lacks the right to grant, or one of these rights; `BadRequest` if
    /// there are too many grants; `NotFound` if the role or client does not exist;
    /// `NoSuchNamespace`, `NoSuchTable`.
    pub async fn grant(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        grant: &PrincipalGrant,
    ) -> Result<()> {
        self.may_change(who, warehouse, grant)?;
        self.0.store.grant(warehouse.id(), grant).await?;
        self.changed().await
    }

    /// Revokes rights granted on exactly this object.
    ///
    /// # Errors
    /// `Forbidden` as in [`AccessControl::grant`]; `NotFound` if none of them was granted.
    pub async fn revoke(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        grant: &PrincipalGrant,
    ) -> Result<()> {
        let left = |found: RightSet, taken| Ok(found.without(taken));
        self.revoke_by(who, warehouse, grant, left).await
    }

    /// Revokes rights granted on exactly this object. `left` computes the remaining rights from the
    /// granted and the revoked ones.
    ///
    /// # Errors
    /// Those of [`AccessControl::revoke`] and of `left`.
    pub async fn revoke_by(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        grant: &PrincipalGrant,
        left: impl Fn(RightSet, RightSet) -> Result<RightSet> + Send + 'static,
    ) -> Result<()> {
        self.may_change(who, warehouse, grant)?;
        self.0.store.revoke(warehouse.id(), grant, left).await?;
        self.changed().await
    }

    /// Returns the grants on a warehouse and everything in it, optionally of one principal.
    ///
    /// # Errors
    /// `Forbidden` without the right to grant on the warehouse.
    pub async fn grants(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        principal: Option<&str>,
    ) -> Result<Vec<PrincipalGrant>> {
        self.may_grant(who, warehouse, RightTarget::Warehouse, RightSet::NONE)?;
        let kept = self.0.store.load().await?.grants.into_iter();
        let here = kept.filter(|(place, _)| **place == **warehouse.id()).map(|(_, grant)| grant);
        Ok(here.filter(|it| principal.is_none_or(|wanted| it.principal == wanted)).collect())
    }

    /// Rejects a caller that may not grant, or revoke, these rights.
    ///
    /// # Errors
    /// `Forbidden` and `BadRequest` as in [`AccessControl::grant`].
    pub fn may_change(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        grant: &PrincipalGrant,
    ) -> Result<()> {
        grant.check()?;
        let ident = match (&grant.namespace, &grant.name) {
            (Some(namespace), Some(name)) => Some(TableIdent::new(namespace.clone(), name)?),
            _ => None,
        };
        self.may_grant(who, warehouse, object(grant.namespace.as_ref(), &ident), grant.rights)
    }

    fn may_grant(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        object: RightTarget<'_>,
        rights: RightSet,
    ) -> Result<()> {
        let own = self.rights(who, warehouse, object);
        if !own.allow(AccessRight::Grant) {
            return Err(forbidden(who, AccessRight::Grant));
        }
        // A principal can grant or revoke only rights that it has.
        match rights.iter().find(|right| !own.allow(*right)) {
            Some(right) => Err(forbidden(who, right)),
            None => Ok(()),
        }
    }
}

impl RightAuthority for AccessControl {
    fn check(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        right: AccessRight,
        object: RightTarget<'_>,
    ) -> Result<()> {
        match self.rights(who, warehouse, object).allow(right) {
            true => Ok(()),
            false => Err(forbidden(who, right)),
        }
    }

    fn visible(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        parent: Option<&NamespaceIdent>,
    ) -> VisibleNames {
        let trees = match who.guest() {
            Some(guest) => self.0.guests.trees(guest),
            None => {
                let loaded = self.0.loaded.read();
                loaded.ready.trees(who, &loaded.roles, &loaded.grants)
            }
        };
        trees.map_or(VisibleNames::Nothing, |it| it.visible(warehouse.id(), parent))
    }

    fn restrictions(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
    ) -> Option<Arc<TableRestrictions>> {
        self.policies().restrictions_of(who, warehouse, ident)
    }

    fn refresh(&self) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            let before = self.0.loaded.read().version;
            if self.0.store.version(Duration::ZERO).await? == before {
                return Ok(());
            }
            self.changed().await
        })
    }
}

async fn changed_elsewhere(State(access): State<AccessControl>) -> StatusCode {
    match access.reload().await {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(error) => {
            // The rights are read again soon.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "failed to read rights that another node has changed");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// Rejects principals that are not operators.
pub(crate) fn only_operators(who: &CatalogPrincipal) -> Result<()> {
    if who.operator {
        return Ok(());
    }
    Err(CatalogError::new(ErrorReason::Forbidden, "this needs the token of an operator"))
}

fn forbidden(who: &CatalogPrincipal, right: AccessRight) -> CatalogError {
    let right = grants::name(right);
    CatalogError::new(
        ErrorReason::Forbidden,
        format!("`{}` has no right to {right} this", who.name),
    )
}

fn object<'a>(
    namespace: Option<&'a NamespaceIdent>,
    ident: &'a Option<TableIdent>,
) -> RightTarget<'a> {
    match (ident, namespace) {
        (Some(ident), _) => RightTarget::Relation(ident),
        (None, Some(namespace)) => RightTarget::Namespace(namespace),
        (None, None) => RightTarget::Warehouse,
    }
}

/// Returns the value of the only `Authorization: Bearer` header: with two tokens, a proxy could
/// check one and the server use the other.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
