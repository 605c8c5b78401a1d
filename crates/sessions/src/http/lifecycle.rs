//! `/v1/sessions`: sessions as a whole.

use std::collections::BTreeMap;

use api::{
    CreateSession, ForkRequest, SandboxCounts, SessionList, SessionMetrics, SessionState,
    SessionView, UpdateSession,
};
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::IntoResponse;
use node::auth::TokenPrincipal;
use node::clock;
use node::http::{self, JsonBody, query};
use serde::Deserialize;

use super::{SessionIdPath, page_size};
use crate::everywhere::counts_everywhere;
use crate::service::{ListQuery, SessionUpdate, Sessions};

/// Default and maximum number of sessions on a page.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 200;
/// Prefix of a metadata entry's name in the query of a list.
const METADATA_PREFIX: &str = "metadata.";

const STATES: [SessionState; 6] = [
    SessionState::Starting,
    SessionState::Active,
    SessionState::Paused,
    SessionState::Stopped,
    SessionState::Ended,
    SessionState::Error,
];

pub(super) async fn create(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    JsonBody(request): JsonBody<CreateSession>,
) -> Result<impl IntoResponse, http::HttpError> {
    let own = request.grants.as_deref().unwrap_or_default();
    sessions.grant_authority()?.authorize_for(&who, request.agent.as_deref(), own).await?;
    let session = sessions.create(&who.tenant, request).await?;
    let location = [(header::LOCATION, format!("/v1/sessions/{}", session.id))];
    Ok((StatusCode::CREATED, location, axum::Json(session)))
}

pub(super) async fn list(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<SessionList>, http::HttpError> {
    let query = listing(&uri)?;
    if let Some(cursor) = query.cursor.as_deref().filter(|cursor| !clock::is_id("ses_", cursor))
        && sessions.queries()?.get(&who.tenant, cursor).await.is_err()
    {
        let message = "must be the `next_cursor` of another page";
        return Err(http::HttpError::invalid(message).at("cursor"));
    }
    Ok(axum::Json(sessions.queries()?.list(&who.tenant, query).await?))
}

/// Parses the query of a list: fixed names, and one for each metadata filter.
pub(super) fn listing(uri: &Uri) -> Result<ListQuery, http::HttpError> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(pairs) = pairs.map_err(|_| http::HttpError::invalid("the query is wrong"))?;
    let mut query = ListQuery::default();
    let mut limit = None;
    let mut given = BTreeMap::new();
    for (name, value) in pairs {
        if given.insert(name.clone(), value.clone()).is_some() {
            return Err(http::HttpError::invalid("is specified twice").at(name));
        }
        match name.as_str() {
            "state" => query.states = states(&value)?,
            "agent" => query.agent = Some(value),
            "cursor" => query.cursor = Some(value),
            "limit" => {
                let number =
                    value.parse().map_err(|_| http::HttpError::invalid("must be a number"));
                limit = Some(number.map_err(|error| error.at("limit"))?);
            }
            other => match other.strip_prefix(METADATA_PREFIX) {
                Some(key) => drop(query.metadata.insert(key.to_owned(), value)),
                None => {
                    let shown: String = other.chars().take(64).collect();
                    let message = format!(
                        "unknown parameter; there are state, agent, cursor, limit and \
                         {METADATA_PREFIX}NAME"
                    );
                    return Err(http::HttpError::invalid(message).at(shown));
                }
            },
        }
    }
    query.limit = page_size(limit, PAGE_DEFAULT, PAGE_MAX)?;
    Ok(query)
}

fn states(names: &str) -> Result<Vec<SessionState>, http::HttpError> {
    let state = |name: &str| {
        STATES.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
            let message = format!(
                "there is no state {:?}; there are {}",
                name.chars().take(64).collect::<String>(),
                STATES.map(SessionState::as_str).join(", ")
            );
            http::HttpError::invalid(message).at("state")
        })
    };
    names.split(',').map(state).collect()
}

pub(super) async fn fetch(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionView>, http::HttpError> {
    Ok(axum::Json(sessions.queries()?.get(&who.tenant, &id).await?))
}

pub(super) async fn update(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    JsonBody(update): JsonBody<UpdateSession>,
) -> Result<axum::Json<SessionView>, http::HttpError> {
    let UpdateSession { metadata, options, on_disconnect, idle_s, grants } = update;
    if let Some(grants) = &grants {
        let session = sessions.queries()?.get(&who.tenant, &id).await?;
        sessions.grant_authority()?.authorize_for(&who, session.agent.as_deref(), grants).await?;
    }
    let update = SessionUpdate { metadata, options, on_disconnect, idle_s, grants, extra: None };
    Ok(axum::Json(sessions.update(&who.tenant, &id, update).await?))
}

pub(super) async fn pause(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionView>, http::HttpError> {
    Ok(axum::Json(sessions.pause(&who.tenant, &id).await?))
}

pub(super) async fn stop(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionView>, http::HttpError> {
    Ok(axum::Json(sessions.stop(&who.tenant, &id).await?))
}

pub(super) async fn resume(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionView>, http::HttpError> {
    Ok(axum::Json(sessions.resume(&who.tenant, &id).await?))
}

pub(super) async fn end(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionView>, http::HttpError> {
    Ok(axum::Json(sessions.end(&who.tenant, &id).await?))
}

pub(super) async fn fork(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    JsonBody(request): JsonBody<ForkRequest>,
) -> Result<(StatusCode, axum::Json<SessionList>), http::HttpError> {
    let count = usize::try_from(request.count.unwrap_or(1)).unwrap_or(usize::MAX);
    let sessions = sessions.fork(&who.tenant, &id, count).await?;
    Ok((StatusCode::CREATED, axum::Json(SessionList { sessions, next_cursor: None })))
}

/// Returns the usage of a session; a cold session is a conflict rather than zeros.
pub(super) async fn metrics(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionMetrics>, http::HttpError> {
    let metrics = sessions.queries()?.metrics(&who.tenant, &id).await?;
    metrics.map(axum::Json).ok_or_else(|| {
        http::HttpError::new(api::ErrorCode::Conflict, "the session has no sandbox at present")
    })
}

/// Query for counts of sandboxes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CountsQuery {
    /// True for only the node that receives the request.
    here: bool,
}

/// Returns counts of sandboxes: of the caller's tenant, or of all tenants for an operator.
pub(super) async fn counts(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<SandboxCounts>, http::HttpError> {
    let CountsQuery { here } = query(&uri)?;
    Ok(axum::Json(match here {
        true => sessions.counts_for(&who),
        false => counts_everywhere(&sessions, &who).await,
    }))
}
