//! Records related to sessions: credentials, attachments and usage.

use std::collections::{BTreeMap, HashMap};

use api::CredentialView;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Answer, AshBody, AshCaller, AshFailure, AshQuery, created, removed};
use super::files::{download, put};
use super::sessions::is_shown;
use super::{evals, ids, media, time};
use crate::error::SessionError;
use crate::service::{ListQuery, StoredAttachment, TurnUsageRecord, UsageQuery, UsageTotal};

/// Maximum bytes of an attachment.
const ATTACHMENT_BYTES_MAX: usize = 10 << 20;
/// Longest stored name of an attachment: file systems allow little more.
const FILENAME_BYTES_MAX: usize = 200;
/// Message id of an attachment without a message.
const UNLINKED: &str = "unlinked";
/// Kind of the documents that link attachments to messages.
const LINK: &str = "ash.attachment";
/// Maximum bytes of a message id.
const MESSAGE_ID_BYTES_MAX: usize = 200;
/// Maximum and default number of usage entries in one answer.
const USAGE_MAX: usize = 1000;
const USAGE: usize = 100;

#[derive(Debug, Deserialize)]
pub(super) struct NewCredential {
    #[serde(rename = "type")]
    kind: String,
    key: String,
    #[serde(default)]
    label: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewAttachment {
    filename: String,
    content: String,
    mime_type: Option<String>,
    message_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshUsage {
    session_id: Option<String>,
    agent_name: Option<String>,
    after: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

/// `POST /api/credentials`.
pub(super) async fn create_credential(
    caller: AshCaller,
    AshBody(body): AshBody<NewCredential>,
) -> Result<Response, AshFailure> {
    let label = body.label.unwrap_or_default();
    if body.kind == "bedrock" && !is_bedrock(&body.key) {
        let wanted = "accessKeyId, secretAccessKey, and region";
        return Err(AshFailure::bad(format!(
            "Bedrock credential must be a JSON object with {wanted}"
        )));
    }
    let sessions = caller.sessions();
    let made =
        sessions.credentials()?.create(&caller.tenant, &body.kind, &label, &body.key).await?;
    Ok(created(json!({ "credential": credential(&caller, &made) })))
}

fn is_bedrock(key: &str) -> bool {
    let key: Value = serde_json::from_str(key).unwrap_or_default();
    ["accessKeyId", "secretAccessKey", "region"].iter().all(|name| key[*name].is_string())
}

/// `GET /api/credentials`.
pub(super) async fn credentials(caller: AshCaller) -> Answer {
    let all = caller.sessions().credentials()?.list(&caller.tenant).await?;
    let shown: Vec<Value> = all.iter().map(|one| credential(&caller, one)).collect();
    Ok(Json(json!({ "credentials": shown })))
}

/// `DELETE /api/credentials/{id}`.
pub(super) async fn remove_credential(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let id = ids::ours(ids::CREDENTIAL, &uuid).ok_or(SessionError::NotFound("credential"))?;
    caller.sessions().credentials()?.delete(&caller.tenant, &id).await?;
    Ok(removed())
}

fn credential(caller: &AshCaller, credential: &CredentialView) -> Value {
    json!({
        "id": ids::uuid(&credential.id),
        "tenantId": &*caller.tenant,
        "type": credential.kind,
        "label": credential.label,
        "active": true,
        "createdAt": credential.created_at,
        "lastUsedAt": credential.last_used_at,
    })
}

/// `POST /api/sessions/{id}/attachments`.
pub(super) async fn attach(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshBody(body): AshBody<NewAttachment>,
) -> Result<Response, AshFailure> {
    let session = caller.session(&uuid).await?;
    let content = BASE64.decode(&body.content);
    let content =
        content.map_err(|error| AshFailure::bad(format!("content: is not Base64: {error}")))?;
    if content.is_empty() {
        return Err(AshFailure::bad("Empty attachment content"));
    }
    if content.len() > ATTACHMENT_BYTES_MAX {
        let message = format!("Attachment too large (max {ATTACHMENT_BYTES_MAX} bytes)");
        return Err(AshFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let message = body.message_id.filter(|id| !id.is_empty());
    if message.as_ref().is_some_and(|id| id.len() > MESSAGE_ID_BYTES_MAX) {
        return Err(AshFailure::bad("messageId: is too long"));
    }
    let name = filename(&body.filename);
    let media_type = body.mime_type.unwrap_or_else(|| media::UNKNOWN.to_owned());
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    // Written to the workspace first: if there is no room, nothing is stored.
    let files = match sessions.files(tenant, &session.id).await {
        Ok(files) => Some(files),
        // Only its workspace is gone.
        Err(SessionError::Ended) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(files) = files {
        put(&files, &format!("attachments/{name}"), &content).await?;
    }
    let content = Bytes::from(content);
    let kept = sessions.attachments()?.add(tenant, &session.id, &name, Some(&media_type), content);
    let kept = kept.await?;
    if let Some(message) = &message {
        let body = json!(message);
        sessions.documents()?.put(tenant, LINK, &kept.id, Some(&session.id), body).await?;
    }
    let message = message.as_deref().unwrap_or(UNLINKED);
    Ok(created(json!({ "attachment": attachment(&caller, &kept, message) })))
}

/// `GET /api/sessions/{id}/attachments`.
pub(super) async fn attachments(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let session = caller.session(&uuid).await?;
    let all = caller.sessions().attachments()?.list(&caller.tenant, &session.id).await?;
    let links = caller.documents(LINK, Some(&session.id)).await?;
    let links: HashMap<String, Value> =
        links.into_iter().map(|link| (link.id, link.body)).collect();
    let shown: Vec<Value> = all
        .iter()
        .map(|one| {
            let message = links.get(&one.id).and_then(Value::as_str).unwrap_or(UNLINKED);
            attachment(&caller, one, message)
        })
        .collect();
    Ok(Json(json!({ "attachments": shown })))
}

/// `GET /api/attachments/{id}`.
pub(super) async fn download_attachment(
    caller: AshCaller,
    Path(uuid): Path<String>,
) -> Result<Response, AshFailure> {
    let id = attachment_id(&uuid)?;
    let (kept, content) = caller.sessions().attachments()?.read(&caller.tenant, &id).await?;
    let media_type = kept.media_type.as_deref().unwrap_or(media::UNKNOWN);
    Ok((download(media_type, &kept.name), content).into_response())
}

/// `DELETE /api/attachments/{id}`.
pub(super) async fn remove_attachment(caller: AshCaller, Path(uuid): Path<String>) -> Answer {
    let id = attachment_id(&uuid)?;
    caller.sessions().attachments()?.delete(&caller.tenant, &id).await?;
    caller.sessions().documents()?.delete(&caller.tenant, LINK, &id).await?;
    Ok(removed())
}

fn attachment_id(uuid: &str) -> Result<String, AshFailure> {
    Ok(ids::ours(ids::ATTACHMENT, uuid).ok_or(SessionError::NotFound("attachment"))?)
}

fn attachment(caller: &AshCaller, attachment: &StoredAttachment, message: &str) -> Value {
    let id = ids::uuid(&attachment.id);
    json!({
        "id": id,
        "tenantId": &*caller.tenant,
        "messageId": message,
        "sessionId": ids::uuid(&attachment.session),
        "filename": attachment.name,
        "mimeType": attachment.media_type.as_deref().unwrap_or(media::UNKNOWN),
        "size": attachment.bytes,
        "storagePath": format!("attachments/{id}"),
        "createdAt": time::shown(attachment.created_ms),
    })
}

/// Returns the last component of a name, without control characters and shortened.
fn filename(given: &str) -> String {
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
    while name.len() > FILENAME_BYTES_MAX {
        name.pop();
    }
    match name.trim() {
        "" | "." | ".." => "attachment".to_owned(),
        name => name.to_owned(),
    }
}

impl AshUsage {
    fn query(self) -> Result<UsageQuery, AshFailure> {
        let at = |name: &str, text: Option<String>| match text.filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => match time::parse(&text) {
                Some(ms) => Ok(Some(ms)),
                None => Err(AshFailure::bad(format!("{name}: must be a time of RFC 3339"))),
            },
        };
        let session = match self.session_id.filter(|id| !id.is_empty()) {
            Some(uuid) => Some(super::call::session_id(&uuid)?),
            None => None,
        };
        Ok(UsageQuery {
            session,
            agent: self.agent_name.filter(|name| !name.is_empty()),
            // Only entries after that time.
            from_ms: at("after", self.after)?.map(|ms| ms.saturating_add(1)),
            to_ms: at("before", self.before)?,
        })
    }
}

/// `GET /api/usage`.
pub(super) async fn usage(caller: AshCaller, AshQuery(used): AshQuery<AshUsage>) -> Answer {
    let limit = used.limit.unwrap_or(USAGE).clamp(1, USAGE_MAX);
    let turns = caller.sessions().usage()?.turns(&caller.tenant, used.query()?, limit).await?;
    let all = turns.iter().flat_map(|turn| entries(&caller, turn)).take(limit);
    Ok(Json(json!({ "events": all.collect::<Vec<Value>>() })))
}

/// Returns the usage of one turn as one entry per kind.
fn entries(caller: &AshCaller, turn: &TurnUsageRecord) -> Vec<Value> {
    let used = &turn.used;
    let rows = [
        ("input_tokens", json!(used.input_tokens), used.input_tokens > 0),
        ("output_tokens", json!(used.output_tokens), used.output_tokens > 0),
        ("cache_creation_tokens", json!(used.cache_write_tokens), used.cache_write_tokens > 0),
        ("cache_read_tokens", json!(used.cache_read_tokens), used.cache_read_tokens > 0),
        ("tool_call", json!(used.tool_calls), used.tool_calls > 0),
        ("message", json!(used.turns), true),
        ("compute_seconds", json!(seconds(used)), used.duration_ms > 0),
    ];
    let entry = |(kind, value, _): (&str, Value, bool)| {
        json!({
            "id": ids::derived(&[&turn.session, &turn.turn, kind]),
            "sessionId": ids::uuid(&turn.session),
            "tenantId": &*caller.tenant,
            "agentName": turn.agent.as_deref().unwrap_or_default(),
            "eventType": kind,
            "value": value,
            "createdAt": time::shown(turn.at_ms),
        })
    };
    rows.into_iter().filter(|(_, _, is_any)| *is_any).map(entry).collect()
}

fn seconds(used: &UsageTotal) -> f64 {
    std::time::Duration::from_millis(used.duration_ms).as_secs_f64()
}

/// `GET /api/usage/stats`.
pub(super) async fn usage_stats(caller: AshCaller, AshQuery(used): AshQuery<AshUsage>) -> Answer {
    let total = caller.sessions().usage()?.total(&caller.tenant, used.query()?).await?;
    Ok(Json(json!({ "stats": stats(&total) })))
}

fn stats(total: &UsageTotal) -> Value {
    json!({
        "totalInputTokens": total.input_tokens,
        "totalOutputTokens": total.output_tokens,
        "totalCacheCreationTokens": total.cache_write_tokens,
        "totalCacheReadTokens": total.cache_read_tokens,
        "totalToolCalls": total.tool_calls,
        "totalMessages": total.turns,
        "totalComputeSeconds": seconds(total),
    })
}

/// `GET /api/analytics`.
pub(super) async fn analytics(caller: AshCaller, AshQuery(used): AshQuery<AshUsage>) -> Answer {
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    let agents = sessions.agents()?.list(tenant).await?;
    let usage = sessions.usage()?.total(tenant, used.query()?).await?;
    let mut by_status: BTreeMap<&str, u64> = BTreeMap::new();
    let mut filter = ListQuery { limit: USAGE_MAX, ..ListQuery::default() };
    loop {
        let page = sessions.queries()?.list(tenant, filter.clone()).await?;
        for session in page.sessions.iter().filter(|session| is_shown(session)) {
            *by_status.entry(session.state.as_str()).or_default() += 1;
        }
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    let runs = evals::count(&caller).await?;
    Ok(Json(json!({
        "agents": { "total": agents.len() },
        "sessions": { "total": by_status.values().sum::<u64>(), "byStatus": by_status },
        "usage": stats(&usage),
        "evals": { "totalRuns": runs.values().sum::<u64>(), "byStatus": runs },
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attachments_are_names_of_files() {
        for (given, expected) in [
            ("note.txt", "note.txt"),
            ("../note.txt", "note.txt"),
            ("C:\\a\\b.txt", "b.txt"),
            ("a/", "attachment"),
            ("..", "attachment"),
            ("", "attachment"),
            ("a\0\nb", "ab"),
        ] {
            assert_eq!(filename(given), expected, "{given:?}");
        }
        assert_eq!(filename(&"\u{e9}".repeat(300)).len(), FILENAME_BYTES_MAX);
    }

    #[test]
    fn keys_of_bedrock_are_complete() {
        assert!(is_bedrock(r#"{"accessKeyId":"a","secretAccessKey":"b","region":"c"}"#));
        for key in ["", "x", "[]", r#"{"accessKeyId":"a","secretAccessKey":"b"}"#] {
            assert!(!is_bedrock(key), "{key}");
        }
    }

    #[test]
    fn usage_is_asked_by_names_and_times_of_theirs() {
        let used = |text: &str| serde_json::from_str::<AshUsage>(text).unwrap().query();
        let query = used(r#"{"agentName":"a","after":"1970-01-01T00:00:01Z","sessionId":""}"#);
        let expected =
            UsageQuery { agent: Some("a".to_owned()), from_ms: Some(1001), ..Default::default() };
        assert_eq!(query, Ok(expected));
        assert!(used(r#"{"after":"yesterday"}"#).is_err());
        assert!(used(r#"{"sessionId":"x"}"#).is_err());
    }
}
