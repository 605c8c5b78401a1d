//! DBBouncer's REST interface: `/tenants`, `/health`, `/ready`.
//!
//! A tenant of DBBouncer is a database with one user. Here clients authenticate as that user, with
//! the password that DBBouncer used only at the server. The API key is an operator's token with the
//! scope `tenants`; responses have the names and units that Go's encoder produces for DBBouncer's
//! types. MySQL is refused.

mod duration;

use std::collections::BTreeMap;

use api::{
    PoolMode, TenantAdmission, TenantEngine, TenantHealth, TenantLimitsSpec, TenantSpec,
    TenantUserSpec, TenantView,
};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http;
use node::http::{RouteTable, get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use self::duration::DurationSpan;
use crate::error::BouncerError;
use crate::service::{Bouncer, REDACTED, TenantOrder};

/// DBBouncer's placeholder for a password.
const THEIR_REDACTED: &str = "***REDACTED***";

/// Path below which a token is needed.
pub const PROTECTED: &str = "/tenants";

/// DBBouncer's paths, without a prefix.
pub fn routes(bouncer: Bouncer, drain: &DrainHandle) -> Router {
    let drain = drain.clone();
    let protected = Router::new()
        .at("/tenants", get(list).post(create))
        .at("/tenants/{id}", get(fetch).put(update).delete(remove))
        .at("/tenants/{id}/stats", get(stats))
        .at("/tenants/{id}/drain", post(empty))
        .at("/tenants/{id}/pause", post(pause))
        .at("/tenants/{id}/resume", post(resume))
        .layer(middleware::from_fn(for_operators));
    Router::new()
        .at("/health", get(health))
        .at(
            "/ready",
            get(move |bouncer| {
                let is_draining = drain.is_draining();
                ready(bouncer, is_draining)
            }),
        )
        .merge(protected)
        .with_state(bouncer)
}

/// Renders errors in DBBouncer's format. For [`node::http::CompatFace::render`].
pub fn render_error(error: &http::HttpError) -> Response {
    // DBBouncer answers a body that is too long as a bad request.
    let status = match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            StatusCode::BAD_REQUEST
        }
        other => other,
    };
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}

async fn for_operators(who: TokenPrincipal, request: Request, next: Next) -> Response {
    match who.operator {
        true => next.run(request).await,
        false => render_error(&BouncerError::Forbidden.into()),
    }
}

/// A response, or an error in DBBouncer's format.
type Answer = Result<Response, DbbouncerError>;

struct DbbouncerError(http::HttpError);

impl IntoResponse for DbbouncerError {
    fn into_response(self) -> Response {
        render_error(&self.0)
    }
}

impl From<BouncerError> for DbbouncerError {
    fn from(error: BouncerError) -> DbbouncerError {
        DbbouncerError(error.into())
    }
}

impl From<http::HttpError> for DbbouncerError {
    fn from(error: http::HttpError) -> DbbouncerError {
        DbbouncerError(error)
    }
}

impl From<PathRejection> for DbbouncerError {
    fn from(_: PathRejection) -> DbbouncerError {
        DbbouncerError(http::HttpError::invalid("the path is not UTF-8"))
    }
}

type Id = Result<Path<String>, PathRejection>;

/// A tenant in DBBouncer's format. Fields that a change leaves out stay unchanged.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DbbouncerTenant {
    id: Option<String>,
    db_type: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    dbname: Option<String>,
    username: Option<String>,
    password: Option<String>,
    pool_mode: Option<PoolMode>,
    min_connections: Option<u32>,
    max_connections: Option<u32>,
    idle_timeout: Option<DurationSpan>,
    max_lifetime: Option<DurationSpan>,
    acquire_timeout: Option<DurationSpan>,
    dial_timeout: Option<DurationSpan>,
}

impl DbbouncerTenant {
    /// Applies the fields to a tenant.
    fn apply(self, spec: &mut TenantSpec) -> Result<(), http::HttpError> {
        let engine = self.db_type.as_deref().map(engine).transpose()?;
        let (host, port) = split(&spec.server, spec.engine);
        // The previous port belonged to the other engine, unless it was set explicitly.
        let port = match engine {
            Some(engine) if port == port_of(spec.engine) => port_of(engine),
            _ => port,
        };
        spec.engine = engine.unwrap_or(spec.engine);
        let host = self.host.unwrap_or(host);
        if host.is_empty() {
            return Err(http::HttpError::invalid("host is missing").at("host"));
        }
        let is_bare_v6 = host.contains(':') && !host.starts_with(['[', '/']);
        let host = if is_bare_v6 { format!("[{host}]") } else { host };
        spec.server = match spec.engine {
            // The path of a socket, which has no port.
            TenantEngine::Mysql if host.starts_with('/') => host,
            TenantEngine::Mysql | TenantEngine::Postgres => {
                format!("{host}:{}", self.port.unwrap_or(port))
            }
        };
        spec.database = self.dbname.or(spec.database.take());
        spec.pool_mode = self.pool_mode.or(spec.pool_mode);
        if self.username.is_some() || self.password.is_some() {
            let mut user = spec.users.drain(..).next().unwrap_or_default();
            user.name = self.username.unwrap_or(user.name);
            let password = self.password.map(|it| match &*it {
                THEIR_REDACTED => REDACTED.to_owned(),
                _ => it,
            });
            user.password = password.or(user.password);
            spec.users = vec![user];
        }
        let limits = &mut spec.limits;
        let seconds = |span: Option<DurationSpan>| span.map(DurationSpan::as_secs_f64);
        limits.server_connections_min = self.min_connections.or(limits.server_connections_min);
        limits.server_connections_max = self.max_connections.or(limits.server_connections_max);
        limits.server_idle_s = seconds(self.idle_timeout).or(limits.server_idle_s);
        limits.server_lifetime_s = seconds(self.max_lifetime).or(limits.server_lifetime_s);
        limits.wait_s = seconds(self.acquire_timeout).or(limits.wait_s);
        limits.connect_s = seconds(self.dial_timeout).or(limits.connect_s);
        Ok(())
    }
}

/// Returns the engine for DBBouncer's name of a database kind.
fn engine(db_type: &str) -> Result<TenantEngine, http::HttpError> {
    match db_type {
        "postgres" | "postgresql" => Ok(TenantEngine::Postgres),
        "mysql" | "mariadb" => Ok(TenantEngine::Mysql),
        _ => Err(http::HttpError::invalid("db_type must be `postgres` or `mysql`").at("db_type")),
    }
}

fn port_of(engine: TenantEngine) -> u16 {
    match engine {
        TenantEngine::Postgres => 5432,
        TenantEngine::Mysql => 3306,
    }
}

/// Host and port of an address that has both or the host only.
fn split(server: &str, engine: TenantEngine) -> (String, u16) {
    match server.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => match port.parse() {
            Ok(port) => (host.to_owned(), port),
            Err(_) => (server.to_owned(), port_of(engine)),
        },
        _ => (server.to_owned(), port_of(engine)),
    }
}

/// A tenant in DBBouncer's format.
fn shown(bouncer: &Bouncer, tenant: &TenantView) -> Value {
    let TenantSpec { name, engine, server, database, users, limits, .. } = &tenant.spec;
    let (host, port) = split(server, *engine);
    let user = users.first();
    let health = bouncer.health(name).ok();
    json!({
        "id": name,
        "config": {
            "DBType": engine.as_str(),
            "Host": host,
            "Port": port,
            "DBName": database.as_deref().unwrap_or(name),
            "Username": user.map_or("", |user: &TenantUserSpec| &user.name),
            "Password": user.and_then(|user| user.password.as_ref()).map_or("", |_| THEIR_REDACTED),
            "PoolMode": tenant.spec.pool_mode,
            "MinConnections": limits.server_connections_min,
            "MaxConnections": limits.server_connections_max,
            "IdleTimeout": nanoseconds(limits, |it| it.server_idle_s),
            "MaxLifetime": nanoseconds(limits, |it| it.server_lifetime_s),
            "AcquireTimeout": nanoseconds(limits, |it| it.wait_s),
            "DialTimeout": nanoseconds(limits, |it| it.connect_s),
        },
        "stats": figures(bouncer, tenant),
        "health": {
            "status": word(tenant.health),
            "last_check": health.as_ref().and_then(|it| it.checked_at.as_deref()),
            "last_error": health.as_ref().and_then(|it| it.error.as_deref()),
            "consecutive_failures": health.as_ref().map_or(0, |it| it.failures),
        },
        "paused": is_paused(tenant.admission),
    })
}

fn is_paused(admission: TenantAdmission) -> bool {
    match admission {
        TenantAdmission::Open => false,
        TenantAdmission::Paused | TenantAdmission::Refusing | TenantAdmission::Draining => true,
    }
}

fn word(health: TenantHealth) -> &'static str {
    match health {
        TenantHealth::Unknown => "unknown",
        TenantHealth::Healthy => "healthy",
        TenantHealth::Unhealthy => "unhealthy",
    }
}

fn nanoseconds(
    limits: &TenantLimitsSpec,
    of: impl Fn(&TenantLimitsSpec) -> Option<f64>,
) -> Option<u64> {
    let time = std::time::Duration::try_from_secs_f64(of(limits)?).ok()?;
    u64::try_from(time.as_nanos()).ok()
}

/// A tenant's pool; `None` if the tenant was removed meanwhile.
fn figures(bouncer: &Bouncer, tenant: &TenantView) -> Option<Value> {
    let stats = bouncer.stats(&tenant.spec.name).ok()?;
    let routing = bouncer.routing();
    let held = routing.named(&tenant.spec.name)?;
    Some(json!({
        "tenant_id": tenant.spec.name,
        "db_type": held.engine.as_str(),
        "pool_mode": held.mode,
        "active": stats.servers_active,
        "idle": stats.servers_idle,
        "total": stats.servers,
        "waiting": stats.clients_waiting,
        "max_connections": held.limits.server_connections_max,
        "min_connections": held.limits.server_connections_min,
        "pool_exhausted_total": stats.exhausted,
    }))
}

async fn list(State(bouncer): State<Bouncer>) -> Json<Value> {
    let tenants = bouncer.list().await;
    Json(tenants.iter().map(|tenant| shown(&bouncer, tenant)).collect())
}

async fn create(
    State(bouncer): State<Bouncer>,
    body: Result<http::JsonBody<DbbouncerTenant>, http::HttpError>,
) -> Answer {
    let http::JsonBody(mut body) = body?;
    let name = body.id.take().unwrap_or_default();
    for (field, is_there) in [
        ("id", !name.is_empty()),
        ("db_type", body.db_type.is_some()),
        ("dbname", body.dbname.is_some()),
        ("username", body.username.is_some()),
        ("password", body.password.is_some()),
    ] {
        if !is_there {
            return Err(http::HttpError::invalid(format!("{field} is missing")).at(field).into());
        }
    }
    let mut spec = TenantSpec { name, ..TenantSpec::default() };
    body.apply(&mut spec)?;
    let tenant = bouncer.create(spec).await?;
    Ok((StatusCode::CREATED, Json(shown(&bouncer, &tenant))).into_response())
}

async fn fetch(State(bouncer): State<Bouncer>, id: Id) -> Answer {
    let Path(id) = id?;
    let tenant = bouncer.tenant(&id).await?;
    Ok(Json(shown(&bouncer, &tenant)).into_response())
}

async fn update(
    State(bouncer): State<Bouncer>,
    id: Id,
    body: Result<http::JsonBody<DbbouncerTenant>, http::HttpError>,
) -> Answer {
    let Path(id) = id?;
    let http::JsonBody(body) = body?;
    let mut spec = bouncer.tenant(&id).await?.spec;
    body.apply(&mut spec)?;
    let tenant = bouncer.replace(&id, spec).await?;
    Ok(Json(shown(&bouncer, &tenant)).into_response())
}

async fn remove(State(bouncer): State<Bouncer>, id: Id) -> Answer {
    let Path(id) = id?;
    bouncer.remove(&id).await?;
    Ok(Json(json!({ "status": "deleted", "id": id })).into_response())
}

async fn stats(State(bouncer): State<Bouncer>, id: Id) -> Answer {
    let Path(id) = id?;
    let tenant = bouncer.tenant(&id).await?;
    Ok(Json(figures(&bouncer, &tenant)).into_response())
}

async fn empty(State(bouncer): State<Bouncer>, id: Id) -> Answer {
    let Path(id) = id?;
    bouncer.order(&id, TenantOrder::Drain).await?;
    Ok(Json(json!({ "status": "draining", "id": id })).into_response())
}

/// Clients of a tenant that DBBouncer has paused are refused.
async fn pause(State(bouncer): State<Bouncer>, id: Id) -> Answer {
    let Path(id) = id?;
    bouncer.order(&id, TenantOrder::Refuse).await?;
    Ok(Json(json!({ "status": "paused", "id": id })).into_response())
}

async fn resume(State(bouncer): State<Bouncer>, id: Id) -> Answer {
    let Path(id) = id?;
    bouncer.order(&id, TenantOrder::Resume).await?;
    Ok(Json(json!({ "status": "active", "id": id })).into_response())
}

/// Names and health of tenants need the right to see tenants; their number does not.
async fn health(State(bouncer): State<Bouncer>) -> Json<Value> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for tenant in bouncer.list().await {
        *counts.entry(word(tenant.health)).or_default() += 1;
    }
    Json(json!({ "status": "healthy", "tenants": counts }))
}

/// The server is ready if it can serve any tenant: a tenant that was not checked yet counts as
/// healthy.
async fn ready(State(bouncer): State<Bouncer>, is_draining: bool) -> (StatusCode, Json<Value>) {
    let tenants = bouncer.list().await;
    let is_lost = |tenant: &TenantView| tenant.health == TenantHealth::Unhealthy;
    let is_ready = !is_draining && (tenants.is_empty() || !tenants.iter().all(is_lost));
    match is_ready {
        true => (StatusCode::OK, Json(json!({ "status": "ready" }))),
        false => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "not ready" }))),
    }
}
