//! `/v1/agents`: folders with versions.

use api::{
    AgentFileEntry, AgentFileList, AgentList, AgentUpdate, AgentVersionList, AgentView,
    DeployRequest,
};
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::IntoResponse;
use node::auth::TokenPrincipal;
use node::http::{self, JsonBody, query};
use serde::Deserialize;

use super::{FilePath, SessionIdPath};
use crate::service::{FolderEntry, Sessions, deployed_grants};

/// Version to use; the active one if absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AgentVersionQuery {
    version: Option<u32>,
}

pub(super) async fn deploy(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    JsonBody(mut request): JsonBody<DeployRequest>,
) -> Result<(StatusCode, axum::Json<AgentView>), http::HttpError> {
    // Read here rather than by the service, whose other callers have not authorized them.
    let grants = deployed_grants(&request)?;
    sessions.grant_authority()?.authorize(&who, &grants)?;
    request.grants = Some(grants);
    // Boxed, because it holds a whole folder.
    let agent = Box::pin(sessions.agents()?.deploy(&who.tenant, request)).await?;
    Ok((StatusCode::CREATED, axum::Json(agent)))
}

pub(super) async fn list(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
) -> Result<axum::Json<AgentList>, http::HttpError> {
    Ok(axum::Json(AgentList { agents: sessions.agents()?.list(&who.tenant).await? }))
}

pub(super) async fn fetch(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
) -> Result<axum::Json<AgentView>, http::HttpError> {
    Ok(axum::Json(sessions.agents()?.get(&who.tenant, &name).await?))
}

pub(super) async fn update(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
    JsonBody(update): JsonBody<AgentUpdate>,
) -> Result<axum::Json<AgentView>, http::HttpError> {
    sessions.grant_authority()?.authorize(&who, update.grants.as_deref().unwrap_or_default())?;
    Ok(axum::Json(sessions.agents()?.update(&who.tenant, &name, update).await?))
}

pub(super) async fn remove(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
) -> Result<StatusCode, http::HttpError> {
    sessions.agents()?.delete(&who.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn versions(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
) -> Result<axum::Json<AgentVersionList>, http::HttpError> {
    let versions = sessions.agents()?.versions(&who.tenant, &name).await?;
    Ok(axum::Json(AgentVersionList { versions }))
}

pub(super) async fn files(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
    uri: Uri,
) -> Result<axum::Json<AgentFileList>, http::HttpError> {
    let AgentVersionQuery { version } = query(&uri)?;
    let entries = sessions.agents()?.files(&who.tenant, &name, version).await?;
    let entry = |it: FolderEntry| AgentFileEntry {
        path: it.path,
        size: it.size,
        executable: it.executable,
    };
    Ok(axum::Json(AgentFileList { files: entries.into_iter().map(entry).collect() }))
}

pub(super) async fn file(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(name, path): FilePath,
    uri: Uri,
) -> Result<impl IntoResponse, http::HttpError> {
    let AgentVersionQuery { version } = query(&uri)?;
    let content = sessions.agents()?.file(&who.tenant, &name, version, &path).await?;
    Ok(([(header::CONTENT_TYPE, super::files::BYTES)], content))
}
