//! Handlers for records related to sessions: snapshots, credentials, attachments, usage.

use api::{
    CreateCredential, CredentialList, CredentialView, SessionAttachment, SessionAttachmentList,
    SessionUsage, SnapshotList, SnapshotRequest, SnapshotView, TurnUsage, UsageReport,
};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use node::auth::TokenPrincipal;
use node::http::{self, JsonBody, UploadBody, query};
use serde::Deserialize;

use super::{SessionIdPath, page_size};
use crate::service::{
    self, ATTACHMENT_BYTES_MAX, Sessions, StoredAttachment, UsageQuery, UsageTotal,
};

/// Default and maximum number of snapshots on a page.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 200;
/// Maximum number of turns in one usage report.
const TURNS_MAX: usize = 1000;
/// Maximum bytes of a media type.
const MEDIA_TYPE_BYTES_MAX: usize = 200;

pub(super) async fn snapshot(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    JsonBody(request): JsonBody<SnapshotRequest>,
) -> Result<(StatusCode, axum::Json<SnapshotView>), http::HttpError> {
    let snapshot = sessions.copies()?.snapshot(&who.tenant, &id, request.name).await?;
    Ok((StatusCode::CREATED, axum::Json(snapshot)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ShelfListQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn snapshots(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<SnapshotList>, http::HttpError> {
    page_of_snapshots(&sessions, &who, None, &uri).await
}

pub(super) async fn snapshots_of(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
) -> Result<axum::Json<SnapshotList>, http::HttpError> {
    // Snapshots outlive their session, whose id alone does not identify the tenant.
    sessions.queries()?.get(&who.tenant, &id).await?;
    page_of_snapshots(&sessions, &who, Some(&id), &uri).await
}

async fn page_of_snapshots(
    sessions: &Sessions,
    who: &TokenPrincipal,
    session: Option<&str>,
    uri: &Uri,
) -> Result<axum::Json<SnapshotList>, http::HttpError> {
    let ShelfListQuery { limit, cursor } = query(uri)?;
    let limit = page_size(limit, PAGE_DEFAULT, PAGE_MAX)?;
    let before = cursor.as_deref();
    let mut snapshots =
        sessions.copies()?.snapshots(&who.tenant, session, before, limit + 1).await?;
    let has_more = snapshots.len() > limit;
    snapshots.truncate(limit);
    let last = snapshots.last().filter(|_| has_more);
    let next_cursor = last.map(|last| last.id.clone());
    Ok(axum::Json(SnapshotList { snapshots, next_cursor }))
}

pub(super) async fn delete_snapshot(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<StatusCode, http::HttpError> {
    sessions.copies()?.delete_snapshot(&who.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn create_credential(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    JsonBody(request): JsonBody<CreateCredential>,
) -> Result<(StatusCode, axum::Json<CredentialView>), http::HttpError> {
    let CreateCredential { kind, label, secret } = request;
    let credential = sessions.credentials()?.create(&who.tenant, &kind, &label, &secret).await?;
    Ok((StatusCode::CREATED, axum::Json(credential)))
}

pub(super) async fn credentials(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
) -> Result<axum::Json<CredentialList>, http::HttpError> {
    Ok(axum::Json(CredentialList { credentials: sessions.credentials()?.list(&who.tenant).await? }))
}

pub(super) async fn delete_credential(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<StatusCode, http::HttpError> {
    sessions.credentials()?.delete(&who.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Properties of an attachment other than its content.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AttachmentQuery {
    name: String,
}

pub(super) async fn attach(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
    headers: HeaderMap,
    upload: UploadBody,
) -> Result<(StatusCode, axum::Json<SessionAttachment>), http::HttpError> {
    let AttachmentQuery { name } = query(&uri)?;
    let media_type = headers.get(header::CONTENT_TYPE).map(|value| {
        let text = value.to_str().ok().filter(|text| text.len() <= MEDIA_TYPE_BYTES_MAX);
        text.ok_or_else(|| http::HttpError::invalid("is not a media type").at("content-type"))
    });
    let media_type = media_type.transpose()?;
    // Checked before the content is read.
    sessions.queries()?.get(&who.tenant, &id).await?;
    let content = upload.all(u64::try_from(ATTACHMENT_BYTES_MAX).unwrap_or(u64::MAX)).await?;
    let added = sessions.attachments()?.add(&who.tenant, &id, &name, media_type, content).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(added))))
}

pub(super) async fn attachments(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<SessionAttachmentList>, http::HttpError> {
    sessions.queries()?.get(&who.tenant, &id).await?;
    let attachments = sessions.attachments()?.list(&who.tenant, &id).await?;
    let attachments = attachments.into_iter().map(shown).collect();
    Ok(axum::Json(SessionAttachmentList { attachments }))
}

pub(super) async fn attachment(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<Response, http::HttpError> {
    let (attachment, content) = sessions.attachments()?.read(&who.tenant, &id).await?;
    let mut answer = content.into_response();
    let headers = answer.headers_mut();
    let given = attachment.media_type.and_then(|it| HeaderValue::try_from(it).ok());
    let unknown = HeaderValue::from_static(super::files::BYTES);
    headers.insert(header::CONTENT_TYPE, given.unwrap_or(unknown));
    // A browser must not treat a user's file as a page of this server.
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(answer)
}

pub(super) async fn delete_attachment(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<StatusCode, http::HttpError> {
    sessions.attachments()?.delete(&who.tenant, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(it: StoredAttachment) -> SessionAttachment {
    SessionAttachment {
        id: it.id,
        session: it.session,
        name: it.name,
        media_type: it.media_type,
        bytes: it.bytes,
        created_ms: it.created_ms,
    }
}

/// Query of a usage report: filter, period, and whether to list turns.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UsageListQuery {
    session: Option<String>,
    agent: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    /// Number of turns to list; none by default.
    limit: Option<usize>,
}

pub(super) async fn usage(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    uri: Uri,
) -> Result<axum::Json<UsageReport>, http::HttpError> {
    let UsageListQuery { session, agent, from_ms, to_ms, limit } = query(&uri)?;
    let asked = UsageQuery { session, agent, from_ms, to_ms };
    let total = used(sessions.usage()?.total(&who.tenant, asked.clone()).await?);
    let turns = match limit {
        None => Vec::new(),
        Some(_) => {
            let limit = page_size(limit, TURNS_MAX, TURNS_MAX)?;
            sessions.usage()?.turns(&who.tenant, asked, limit).await?
        }
    };
    let turn = |it: service::TurnUsageRecord| TurnUsage {
        session: it.session,
        turn: it.turn,
        agent: it.agent,
        model: it.model,
        at_ms: it.at_ms,
        usage: used(it.used),
    };
    Ok(axum::Json(UsageReport { total, turns: turns.into_iter().map(turn).collect() }))
}

fn used(total: UsageTotal) -> SessionUsage {
    SessionUsage {
        turns: total.turns,
        input_tokens: total.input_tokens,
        output_tokens: total.output_tokens,
        cache_read_tokens: total.cache_read_tokens,
        cache_write_tokens: total.cache_write_tokens,
        cost_usd: total.cost_usd,
        tool_calls: total.tool_calls,
        duration_ms: total.duration_ms,
    }
}
