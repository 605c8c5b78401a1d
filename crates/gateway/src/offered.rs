//! Lists the grants that a token may give, for forms and users, and checks grants without creating
//! anything.
//!
//! Both use the same checks as grants themselves ([`crate::offers`], [`crate::kinds`]), so that
//! every listed grant can be given. Grants that are not offered to the token's tenant are not
//! looked up: a response never reveals whether a database or warehouse of another tenant exists.

use api::{
    CatalogGrant, CheckedGrant, DatabaseGrant, DatabaseGrantLimits, Grant, GrantAccess,
    GrantCheckReport, GrantOfferLimits, GrantOfferList, GrantRefusal, HttpGrant, HttpGrantLimits,
    ModelGrant, OfferedDatabase, OfferedGrant, OfferedHosts, OfferedModel, OfferedWarehouse,
    TenantEngine,
};
use node::auth::TokenPrincipal;
use node::http;

use crate::config::GrantOffer;
use crate::egress::rules::PORTS;
use crate::kinds::{self, ResolvedGrant};
use crate::offers::{self, READ_WRITE, TenantOffers};
use crate::resolve::{self, GRANTS_MAX};
use crate::shared::GatewayShared;

/// Most offers in one response.
const OFFERS_MAX: usize = 1000;
/// Most roles of one database in a response.
const ROLES_MAX: usize = 32;
/// Lowest port that the server can listen on in a sandbox.
const PORT_MIN: u16 = 1024;

/// Lists the grants that a token may create.
pub(crate) fn list(shared: &GatewayShared, who: &TokenPrincipal) -> GrantOfferList {
    let is_unrestricted = offers::is_unrestricted(who);
    let mut all = match is_unrestricted {
        true => everything(shared),
        false => of_tenant(shared, &who.tenant),
    };
    let truncated = all.len() > OFFERS_MAX;
    all.truncate(OFFERS_MAX);
    GrantOfferList {
        tenant: who.tenant.to_string(),
        unrestricted: is_unrestricted,
        offers: all,
        truncated,
        limits: limits(shared),
    }
}

/// Returns the server's limits.
fn limits(shared: &GatewayShared) -> GrantOfferLimits {
    let config = shared.config.now();
    let http = config.http.complete(&HttpGrantLimits::default());
    let tokens = config.model.tokens_per_tenant;
    GrantOfferLimits {
        grants: GRANTS_MAX as u64,
        database: config.database.complete(&DatabaseGrantLimits::default()),
        http: HttpGrantLimits {
            connections: Some(http.connections),
            requests: Some(http.requests),
            bytes: Some(http.bytes),
        },
        model_tokens: (tokens > 0).then_some(tokens),
    }
}

/// All targets, for tokens that may create any grant.
fn everything(shared: &GatewayShared) -> Vec<OfferedGrant> {
    let mut all = Vec::new();
    // One more than the maximum, to detect that there are more.
    let most = OFFERS_MAX + 1;
    for known in shared.databases.iter().flat_map(|it| it.known(most, ROLES_MAX)) {
        all.push(database(shared, known.engine, &known.tenant, true, known.roles));
    }
    for name in shared.catalogs.iter().flat_map(|it| it.known(most)) {
        all.push(warehouse(shared, &name, true));
    }
    all.push(OfferedGrant::Http(OfferedHosts {
        hosts: vec!["*".to_owned()],
        ports: Vec::new(),
        secrets: shared.config.now().secrets.0.keys().cloned().collect(),
        internal: Vec::new(),
        port: Grant::Http(HttpGrant::default()).port(),
    }));
    if shared.models.is_some() {
        all.push(model(shared));
    }
    all
}

/// Offers of the configuration to one tenant, by kind and name.
fn of_tenant(shared: &GatewayShared, tenant: &str) -> Vec<OfferedGrant> {
    let config = shared.config.now();
    let offers = TenantOffers::new(&config.offers, tenant);
    let mut all: Vec<OfferedGrant> = Vec::new();
    for offered in offers.iter().flat_map(|offer| of_offer(shared, offer)) {
        if !all.contains(&offered) {
            all.push(offered);
        }
    }
    all.sort_by_key(order);
    all
}

/// Sort key of an offer in the list.
fn order(offered: &OfferedGrant) -> (u8, String) {
    match offered {
        OfferedGrant::Postgres(it) => (0, it.tenant.clone()),
        OfferedGrant::Mysql(it) => (1, it.tenant.clone()),
        OfferedGrant::Catalog(it) => (2, it.warehouse.clone()),
        OfferedGrant::Http(it) => (3, it.hosts.first().cloned().unwrap_or_default()),
        OfferedGrant::Model(_) => (4, String::new()),
    }
}

/// Returns the grants of one entry of the configuration.
fn of_offer(shared: &GatewayShared, offer: &GrantOffer) -> Vec<OfferedGrant> {
    let (mut all, mut hosts) = (Vec::new(), Vec::new());
    for label in &offer.grants {
        let (kind, name) = kinds::kind_and_name(label);
        let name = name.unwrap_or_default();
        let (plain, writes) = match name.strip_suffix(READ_WRITE) {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        // Redundant beside the entry with the mark for writing.
        let is_repeated = !writes && offer.grants.contains(&format!("{label}{READ_WRITE}"));
        let roles = || offer.roles.clone();
        match kind {
            "postgres" | "mysql" | "catalog" if is_repeated => {}
            "postgres" => {
                all.push(database(shared, TenantEngine::Postgres, plain, writes, roles()));
            }
            "mysql" => all.push(database(shared, TenantEngine::Mysql, plain, writes, roles())),
            "catalog" => all.push(warehouse(shared, plain, writes)),
            "http" => hosts.push(name.to_owned()),
            // The only remaining kind: others were rejected when the server started.
            _ => all.push(model(shared)),
        }
    }
    if !hosts.is_empty() {
        let ports = if offer.ports.is_empty() { PORTS.to_vec() } else { offer.ports.clone() };
        all.push(OfferedGrant::Http(OfferedHosts {
            hosts,
            ports,
            secrets: offer.secrets.clone(),
            internal: offer.internal.clone(),
            port: Grant::Http(HttpGrant::default()).port(),
        }));
    }
    all
}

fn access(writes: bool) -> Vec<GrantAccess> {
    match writes {
        true => vec![GrantAccess::ReadOnly, GrantAccess::ReadWrite],
        false => vec![GrantAccess::ReadOnly],
    }
}

/// Returns a database, with those of the offered roles that it has.
fn database(
    shared: &GatewayShared,
    engine: TenantEngine,
    tenant: &str,
    writes: bool,
    mut roles: Vec<String>,
) -> OfferedGrant {
    let grant = |role: Option<&str>| {
        let (tenant, role) = (tenant.to_owned(), role.map(str::to_owned));
        let grant = DatabaseGrant { tenant, role, ..DatabaseGrant::default() };
        match engine {
            TenantEngine::Postgres => Grant::Postgres(grant),
            TenantEngine::Mysql => Grant::Mysql(grant),
        }
    };
    roles.retain(|role| problem(shared, &grant(Some(role))).is_none());
    roles.truncate(ROLES_MAX);
    let problem = problem(shared, &grant(None));
    let role_required = problem.is_some() && !roles.is_empty();
    let offered = OfferedDatabase {
        tenant: tenant.to_owned(),
        access: access(writes),
        port: grant(None).port(),
        unavailable: problem.filter(|_| !role_required),
        role_required,
        roles,
    };
    match engine {
        TenantEngine::Postgres => OfferedGrant::Postgres(offered),
        TenantEngine::Mysql => OfferedGrant::Mysql(offered),
    }
}

fn warehouse(shared: &GatewayShared, name: &str, writes: bool) -> OfferedGrant {
    let warehouse = name.to_owned();
    let grant =
        Grant::Catalog(CatalogGrant { warehouse: name.to_owned(), ..CatalogGrant::default() });
    OfferedGrant::Catalog(OfferedWarehouse {
        warehouse,
        access: access(writes),
        port: grant.port(),
        unavailable: problem(shared, &grant),
    })
}

fn model(shared: &GatewayShared) -> OfferedGrant {
    let grant = Grant::Model(ModelGrant::default());
    OfferedGrant::Model(OfferedModel {
        priced_models: shared.config.now().model.prices.keys().cloned().collect(),
        port: grant.port(),
        unavailable: problem(shared, &grant),
    })
}

/// Returns the reason why no token can create a grant at present.
fn problem(shared: &GatewayShared, grant: &Grant) -> Option<String> {
    kinds::kind_of(grant).resolve(shared).err().map(|error| error.message)
}

/// Checks for each grant whether a sandbox of the token's holder would receive it.
///
/// # Errors
/// 400 for more grants than a sandbox can have.
pub(crate) fn check(
    shared: &GatewayShared,
    who: &TokenPrincipal,
    grants: &[Grant],
) -> Result<GrantCheckReport, http::HttpError> {
    resolve::check_count(grants)?;
    let mut ports = Vec::with_capacity(grants.len());
    let mut resolved: Vec<Box<dyn ResolvedGrant>> = Vec::with_capacity(grants.len());
    let mut checked = Vec::with_capacity(grants.len());
    for (index, grant) in grants.iter().enumerate() {
        let refusal = match check_one(shared, who, index, grant, &ports) {
            Ok(one) => {
                resolved.push(one);
                None
            }
            Err(error) => Some(refusal(&error)),
        };
        ports.push(grant.port());
        let given = refusal.is_none();
        checked.push(CheckedGrant { grant: grant.label(), port: grant.port(), given, refusal });
    }
    let given = resolved.len() == grants.len();
    let environment = match given {
        true => resolve::environment_of(&ports, &resolved),
        false => Default::default(),
    };
    Ok(GrantCheckReport { given, grants: checked, environment })
}

/// Checks one grant, in the order of the checks of a request for a sandbox.
fn check_one(
    shared: &GatewayShared,
    who: &TokenPrincipal,
    index: usize,
    grant: &Grant,
    ports: &[u16],
) -> Result<Box<dyn ResolvedGrant>, http::HttpError> {
    offers::authorize_one(&shared.config.now(), who, index, grant)?;
    if grant.port() < PORT_MIN {
        let message = format!("must be at least {PORT_MIN}");
        return Err(http::HttpError::invalid(message).at(format!("grants[{index}].port")));
    }
    resolve::resolve_one(shared, index, grant, ports)
}

fn refusal(error: &http::HttpError) -> GrantRefusal {
    let detail = error.detail();
    GrantRefusal {
        code: detail.code,
        message: detail.message.clone(),
        field: detail.field.clone().unwrap_or_default(),
    }
}
