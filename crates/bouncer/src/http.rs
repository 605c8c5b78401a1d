//! The native HTTP face: parses requests, calls the bouncer, renders replies.
//!
//! Without a bouncer every operation reports why there is none.

use api::operations::tenants as table;
use api::{
    BouncerClientList, BouncerReloaded, BouncerServerList, TenantHealthReport, TenantList,
    TenantSpec, TenantStats, TenantStatsList, TenantView,
};
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use node::http::{self, JsonBody, OperationRoutes, query};
use serde::Deserialize;

use crate::error::BouncerError;
use crate::service::{Bouncer, TenantOrder};

/// Returns the routes of tenants, for [`node::http::HttpShell`] to wrap. Without a bouncer each
/// operation reports why there is none.
pub fn routes(bouncer: Result<Bouncer, &'static str>) -> Router {
    match bouncer {
        Ok(bouncer) => handlers().with_state(Some(bouncer)),
        Err(why) => {
            let refuse =
                move || async move { http::HttpError::from(BouncerError::NotHere(why.to_owned())) };
            handlers()
                .layer(middleware::from_fn(move |_: Request, _: Next| refuse()))
                .with_state(None)
        }
    }
}

fn handlers() -> Router<Option<Bouncer>> {
    OperationRoutes::of(table::TENANTS)
        .serve(&table::CREATE_TENANT, create)
        .serve(&table::LIST_TENANTS, list)
        .serve(&table::ALL_TENANT_STATS, all_stats)
        // A tenant of this name is listed, and can be changed and removed like all others.
        .serve_at(table::ALL_TENANT_STATS.path, &table::REPLACE_TENANT, replace_stats)
        .serve_at(table::ALL_TENANT_STATS.path, &table::DELETE_TENANT, remove_stats)
        .serve(&table::GET_TENANT, fetch)
        .serve(&table::REPLACE_TENANT, replace)
        .serve(&table::DELETE_TENANT, remove)
        .serve(&table::TENANT_STATS, stats)
        .serve(&table::TENANT_HEALTH, health)
        .serve(&table::TENANT_CLIENTS, clients)
        .serve(&table::KILL_TENANT_CLIENT, kill_client)
        .serve(&table::TENANT_SERVERS, servers)
        .serve(&table::TENANT_PINS, pins)
        .serve(&table::PAUSE_TENANT, pause)
        .serve(&table::RESUME_TENANT, resume)
        .serve(&table::DRAIN_TENANT, drain)
        .serve(&table::RECONNECT_TENANT, reconnect)
        .serve(&table::KILL_TENANT, kill)
        .serve(&table::RELOAD_BOUNCER, reload)
        .routes()
}

/// The bouncer of a request.
struct RequestState(Bouncer);

impl FromRequestParts<Option<Bouncer>> for RequestState {
    type Rejection = http::HttpError;

    async fn from_request_parts(
        _: &mut Parts,
        bouncer: &Option<Bouncer>,
    ) -> Result<RequestState, http::HttpError> {
        // Without a bouncer no handler is called.
        bouncer.clone().map(RequestState).ok_or_else(http::HttpError::internal)
    }
}

/// The tenant in the path.
struct TenantPath(String);

impl FromRequestParts<Option<Bouncer>> for TenantPath {
    type Rejection = http::HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Option<Bouncer>,
    ) -> Result<TenantPath, http::HttpError> {
        let path: Result<Path<Vec<String>>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        let not_text = || http::HttpError::invalid("the path is not UTF-8");
        let Path(segments) = path.map_err(|_| not_text())?;
        segments.into_iter().next().map(TenantPath).ok_or_else(not_text)
    }
}

async fn create(
    RequestState(bouncer): RequestState,
    JsonBody(spec): JsonBody<TenantSpec>,
) -> Result<impl IntoResponse, http::HttpError> {
    let tenant = bouncer.create(spec).await?;
    let location = format!("/v1/tenants/{}", tenant.spec.name);
    Ok((StatusCode::CREATED, [(LOCATION, location)], axum::Json(tenant)))
}

async fn list(RequestState(bouncer): RequestState) -> axum::Json<TenantList> {
    axum::Json(TenantList { tenants: bouncer.list().await })
}

async fn fetch(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<TenantView>, http::HttpError> {
    Ok(axum::Json(bouncer.tenant(&name).await?))
}

async fn replace(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
    JsonBody(spec): JsonBody<TenantSpec>,
) -> Result<axum::Json<TenantView>, http::HttpError> {
    Ok(axum::Json(bouncer.replace(&name, spec).await?))
}

async fn remove(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<StatusCode, http::HttpError> {
    bouncer.remove(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stats(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<TenantStats>, http::HttpError> {
    Ok(axum::Json(bouncer.stats_everywhere(&name).await?))
}

async fn all_stats(RequestState(bouncer): RequestState) -> axum::Json<TenantStatsList> {
    axum::Json(bouncer.all_stats_everywhere().await)
}

async fn replace_stats(
    state: RequestState,
    body: JsonBody<TenantSpec>,
) -> Result<axum::Json<TenantView>, http::HttpError> {
    replace(state, TenantPath("stats".to_owned()), body).await
}

async fn remove_stats(state: RequestState) -> Result<StatusCode, http::HttpError> {
    remove(state, TenantPath("stats".to_owned())).await
}

async fn health(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<TenantHealthReport>, http::HttpError> {
    Ok(axum::Json(bouncer.health(&name)?))
}

async fn clients(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<BouncerClientList>, http::HttpError> {
    Ok(axum::Json(bouncer.clients_everywhere(&name).await?))
}

async fn servers(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<BouncerServerList>, http::HttpError> {
    Ok(axum::Json(bouncer.servers_everywhere(&name).await?))
}

async fn pins(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<BouncerClientList>, http::HttpError> {
    let mut list = bouncer.clients_everywhere(&name).await?;
    list.clients.retain(|client| !client.pins.is_empty());
    Ok(axum::Json(list))
}

async fn kill_client(
    RequestState(bouncer): RequestState,
    path: Result<Path<(String, u32)>, PathRejection>,
) -> Result<StatusCode, http::HttpError> {
    let Ok(Path((name, pid))) = path else {
        return Err(http::HttpError::invalid("must be a process id").at("pid"));
    };
    bouncer.kill_client_everywhere(&name, pid).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Query of a pause.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PauseQuery {
    refuse: bool,
}

async fn pause(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
    uri: Uri,
) -> Result<axum::Json<TenantView>, http::HttpError> {
    let PauseQuery { refuse } = query(&uri)?;
    let order = if refuse { TenantOrder::Refuse } else { TenantOrder::Pause };
    bouncer.order(&name, order).await?;
    Ok(axum::Json(bouncer.tenant(&name).await?))
}

async fn resume(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<axum::Json<TenantView>, http::HttpError> {
    bouncer.order(&name, TenantOrder::Resume).await?;
    Ok(axum::Json(bouncer.tenant(&name).await?))
}

async fn drain(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<(StatusCode, axum::Json<TenantView>), http::HttpError> {
    bouncer.order(&name, TenantOrder::Drain).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(bouncer.tenant(&name).await?)))
}

async fn reconnect(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<StatusCode, http::HttpError> {
    bouncer.order(&name, TenantOrder::Reconnect).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn kill(
    RequestState(bouncer): RequestState,
    TenantPath(name): TenantPath,
) -> Result<StatusCode, http::HttpError> {
    bouncer.order(&name, TenantOrder::Kill).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn reload(
    RequestState(bouncer): RequestState,
) -> Result<axum::Json<BouncerReloaded>, http::HttpError> {
    Ok(axum::Json(bouncer.reload().await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_handler() {
        drop(handlers());
    }
}
