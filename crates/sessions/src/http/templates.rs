//! `/v1/templates` and `/v1/template-files`: bases of sandboxes.

use std::convert::Infallible;

use api::{
    BuildTemplate, TagTemplate, TemplateArchive, TemplateBuildList, TemplateBuildStatus,
    TemplateBuildView, TemplateList, TemplateLogList, TemplateView,
};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response, sse};
use futures_util::stream;
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http::{self, JsonBody, UploadBody, query};
use serde::Deserialize;

use super::conversation::server_sent;
use super::{FilePath, SessionIdPath, accepts};
use crate::service::Sessions;
use crate::service::templates::{ArchiveHash, ArchiveUpload};

/// Media type of events.
const EVENT_STREAM: &str = "text/event-stream";

/// True to wait for the end of the build.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BuildWaitQuery {
    wait: bool,
}

pub(super) async fn build(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    uri: Uri,
    JsonBody(request): JsonBody<BuildTemplate>,
) -> Result<(StatusCode, axum::Json<TemplateBuildView>), http::HttpError> {
    let BuildWaitQuery { wait } = query(&uri)?;
    // Boxed, because it holds a whole plan.
    let mut build = Box::pin(sessions.templates()?.build_template(&who.tenant, request)).await?;
    if wait && build.finished_at.is_none() {
        build = sessions.templates()?.wait(&who.tenant, &build.template, &build.id).await?;
    }
    let status = match build.finished_at {
        Some(_) => StatusCode::OK,
        None => StatusCode::ACCEPTED,
    };
    Ok((status, axum::Json(build)))
}

pub(super) async fn list(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
) -> Result<axum::Json<TemplateList>, http::HttpError> {
    Ok(axum::Json(TemplateList { templates: sessions.templates()?.list(&who.tenant).await? }))
}

pub(super) async fn fetch(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
) -> Result<axum::Json<TemplateView>, http::HttpError> {
    Ok(axum::Json(sessions.templates()?.get(&who.tenant, &name).await?))
}

pub(super) async fn remove(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
) -> Result<StatusCode, http::HttpError> {
    sessions.templates()?.delete(&who.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn builds(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
) -> Result<axum::Json<TemplateBuildList>, http::HttpError> {
    let builds = sessions.templates()?.builds(&who.tenant, &name).await?;
    Ok(axum::Json(TemplateBuildList { builds }))
}

pub(super) async fn build_status(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(name, build): FilePath,
    uri: Uri,
) -> Result<axum::Json<TemplateBuildView>, http::HttpError> {
    let BuildWaitQuery { wait } = query(&uri)?;
    Ok(axum::Json(match wait {
        true => sessions.templates()?.wait(&who.tenant, &name, &build).await?,
        false => sessions.templates()?.build(&who.tenant, &name, &build).await?,
    }))
}

/// First line of a page of a log.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LogQuery {
    from: u64,
}

/// Returns the log of a build: a page, or a stream of lines until the build ends.
pub(super) async fn logs(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(name, build): FilePath,
    uri: Uri,
    headers: HeaderMap,
    drain: DrainHandle,
) -> Result<Response, http::HttpError> {
    let LogQuery { from } = query(&uri)?;
    let first = sessions.templates()?.log(&who.tenant, &name, &build, from).await?;
    if !accepts(&headers, EVENT_STREAM) {
        return Ok(axum::Json(first).into_response());
    }
    // By its id, because a tag may point to another build before this one ends.
    let id = sessions.templates()?.build(&who.tenant, &name, &build).await?.id;
    let state = LogFollower { sessions, tenant: who.tenant, name, id, next: from, is_over: false };
    let lines = stream::unfold((state, drain), |(mut state, drain)| async move {
        let page = tokio::select! {
            page = state.page() => page?,
            () = drain.begun() => return None,
        };
        Some((stream::iter(page), (state, drain)))
    });
    Ok(server_sent(futures_util::StreamExt::flatten(lines)))
}

/// Reader of a growing log.
struct LogFollower {
    sessions: Sessions,
    tenant: std::sync::Arc<str>,
    name: String,
    id: String,
    /// Index of the next line.
    next: u64,
    is_over: bool,
}

impl LogFollower {
    /// Returns the lines after those already sent, waiting for at least one. Returns `None` after
    /// the last line, or if the template was deleted.
    async fn page(&mut self) -> Option<Vec<Result<sse::Event, Infallible>>> {
        while !self.is_over {
            let templates = self.sessions.templates().ok()?;
            let read = templates.log(&self.tenant, &self.name, &self.id, self.next).await;
            let TemplateLogList { lines, status } = read.ok()?;
            let is_running =
                matches!(status, TemplateBuildStatus::Waiting | TemplateBuildStatus::Building);
            if lines.is_empty() && is_running {
                self.sessions.template_log_grows(&self.id, self.next).await;
                continue;
            }
            let mut events = Vec::with_capacity(lines.len() + 1);
            for line in &lines {
                let text = serde_json::to_string(line).unwrap_or_default();
                events.push(Ok(sse::Event::default().event("line").data(text)));
            }
            self.next = lines.last().map_or(self.next, |line| line.index + 1);
            if lines.is_empty() {
                self.is_over = true;
                let templates = self.sessions.templates().ok()?;
                let build = templates.build(&self.tenant, &self.name, &self.id).await.ok()?;
                let text = serde_json::to_string(&build).unwrap_or_default();
                events.push(Ok(sse::Event::default().event("build").data(text)));
            }
            return Some(events);
        }
        None
    }
}

pub(super) async fn tag(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(name): SessionIdPath,
    JsonBody(request): JsonBody<TagTemplate>,
) -> Result<axum::Json<TemplateView>, http::HttpError> {
    sessions.templates()?.tag(&who.tenant, &name, &request.build, &request.tags).await?;
    Ok(axum::Json(sessions.templates()?.get(&who.tenant, &name).await?))
}

pub(super) async fn untag(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(name, tag): FilePath,
) -> Result<StatusCode, http::HttpError> {
    sessions.templates()?.untag(&who.tenant, &name, &[tag]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns whether an archive exists and needs no upload.
pub(super) async fn has_archive(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(hash): SessionIdPath,
) -> Result<StatusCode, http::HttpError> {
    let upload = ArchiveUpload { tenant: &who.tenant, kind: ArchiveHash::Content, hash: &hash };
    match sessions.templates()?.archives().has(upload).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(crate::error::SessionError::NotFound("archive").into()),
    }
}

pub(super) async fn put_archive(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(hash): SessionIdPath,
    body: UploadBody,
) -> Result<axum::Json<TemplateArchive>, http::HttpError> {
    let upload = ArchiveUpload { tenant: &who.tenant, kind: ArchiveHash::Content, hash: &hash };
    let bytes = sessions.templates()?.archives().put(upload, body).await?;
    Ok(axum::Json(TemplateArchive { archive: hash, bytes }))
}
