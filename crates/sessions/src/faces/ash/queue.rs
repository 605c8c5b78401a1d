//! Queued prompts: stored, sent to an agent one after the other, and retried on failure.
//!
//! An item is a document whose parent is its status, so items can be counted and found by status. A
//! worker claims an item by a compare-and-set and renews the claim periodically; an item whose
//! claim is not renewed returns to the queue. So an item is processed at least once, by one server
//! at a time.

mod work;

use std::collections::VecDeque;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) use self::work::QueueTenants;
use super::call::{Answer, AshBody, AshCaller, AshFailure, AshQuery, created, session_id};
use super::sessions::shown;
use super::{ids, time};
use crate::service::FaceDocument;

/// Kind of the documents.
const KIND: &str = "ash.queue";
/// Maximum number of waiting items of one tenant.
const PENDING_MAX: u64 = 1000;
/// Maximum number of items of one tenant; beyond it, the oldest finished items are removed.
const ITEMS_MAX: u64 = 2000;
/// Maximum bytes of a prompt.
const PROMPT_BYTES_MAX: usize = 64 << 10;
/// Default and maximum number of attempts for an item.
const RETRIES: u32 = 3;
const RETRIES_MAX: u32 = 100;
/// Default and maximum number of items in one answer.
const LIST: usize = 50;
const LIST_MAX: usize = 500;

/// Status of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueItemStatus {
    Pending,
    Processing,
    Completed,
    Failed,
    Cancelled,
}

impl QueueItemStatus {
    const ALL: [QueueItemStatus; 5] = [
        QueueItemStatus::Pending,
        QueueItemStatus::Processing,
        QueueItemStatus::Completed,
        QueueItemStatus::Failed,
        QueueItemStatus::Cancelled,
    ];

    fn as_str(self) -> &'static str {
        match self {
            QueueItemStatus::Pending => "pending",
            QueueItemStatus::Processing => "processing",
            QueueItemStatus::Completed => "completed",
            QueueItemStatus::Failed => "failed",
            QueueItemStatus::Cancelled => "cancelled",
        }
    }

    fn parse(text: &str) -> Option<QueueItemStatus> {
        QueueItemStatus::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// Stored form of an item, without its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct QueueItem {
    agent: String,
    prompt: String,
    /// Session that it is for, or that was created for it.
    session: Option<String>,
    priority: u32,
    retries: u32,
    max_retries: u32,
    error: Option<String>,
    started_ms: Option<u64>,
    completed_ms: Option<u64>,
    /// Earliest time of the next attempt.
    due_ms: u64,
    /// Server that processes it, and the end of its lease.
    server: Option<String>,
    lease_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewQueueItem {
    agent_name: String,
    prompt: String,
    session_id: Option<String>,
    priority: Option<u32>,
    max_retries: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct QueueListQuery {
    status: Option<String>,
    limit: Option<usize>,
}

/// `POST /api/queue`.
pub(super) async fn enqueue(
    caller: AshCaller,
    AshBody(new): AshBody<NewQueueItem>,
) -> Result<Response, AshFailure> {
    if new.prompt.is_empty() || new.prompt.len() > PROMPT_BYTES_MAX {
        return Err(AshFailure::bad(format!("prompt: must have 1 to {PROMPT_BYTES_MAX} bytes")));
    }
    let max_retries = new.max_retries.unwrap_or(RETRIES);
    if max_retries > RETRIES_MAX {
        return Err(AshFailure::bad(format!("maxRetries: must be at most {RETRIES_MAX}")));
    }
    let session = match &new.session_id {
        None => None,
        Some(uuid) => Some(session_id(uuid)?),
    };
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    let pending = Some(QueueItemStatus::Pending.as_str());
    if sessions.documents()?.count(tenant, KIND, pending).await? >= PENDING_MAX {
        let message = format!("{PENDING_MAX} items are waiting already");
        return Err(AshFailure::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    make_room(&caller).await?;
    let item = QueueItem {
        agent: new.agent_name,
        prompt: new.prompt,
        session,
        priority: new.priority.unwrap_or(0),
        max_retries,
        ..QueueItem::default()
    };
    let id = caller.new_id();
    let body = serde_json::to_value(&item).map_err(AshFailure::internal)?;
    sessions.documents()?.put(tenant, KIND, &id, pending, body).await?;
    let kept = find(&caller, &id).await?;
    caller.face.shared.queue.wake(&caller.face.sessions, &caller.tenant);
    Ok(created(json!({ "item": shape(&caller, &kept) })))
}

/// Removes the oldest finished items if there are too many.
async fn make_room(caller: &AshCaller) -> Result<(), AshFailure> {
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    if sessions.documents()?.count(tenant, KIND, None).await? < ITEMS_MAX {
        return Ok(());
    }
    for status in [QueueItemStatus::Completed, QueueItemStatus::Cancelled, QueueItemStatus::Failed]
    {
        let parent = Some(status.as_str());
        let oldest = sessions.documents()?.list(tenant, KIND, parent, None, LIST).await?;
        if !oldest.is_empty() {
            for item in oldest {
                sessions.documents()?.delete(tenant, KIND, &item.id).await?;
            }
            return Ok(());
        }
    }
    Ok(())
}

/// `GET /api/queue`.
pub(super) async fn list(caller: AshCaller, AshQuery(listing): AshQuery<QueueListQuery>) -> Answer {
    let limit = listing.limit.unwrap_or(LIST).clamp(1, LIST_MAX);
    let status = match listing.status.as_deref() {
        None | Some("") => None,
        Some(text) => match QueueItemStatus::parse(text) {
            Some(status) => Some(status.as_str()),
            None => return Err(AshFailure::bad(format!("status: `{}` is none", shown(text)))),
        },
    };
    // Documents are listed by age; only the newest are kept in memory, because prompts are long.
    let mut items = VecDeque::with_capacity(limit);
    let mut after: Option<String> = None;
    loop {
        let sessions = caller.sessions();
        let page = sessions
            .documents()?
            .list(&caller.tenant, KIND, status, after.as_deref(), LIST)
            .await?;
        for item in &page {
            items.truncate(limit - 1);
            items.push_front(shape(&caller, item));
        }
        after = page.last().map(|last| last.id.clone());
        if page.len() < LIST {
            return Ok(Json(json!({ "items": items })));
        }
    }
}

/// `GET /api/queue/stats`.
pub(super) async fn stats(caller: AshCaller) -> Answer {
    let mut stats = serde_json::Map::new();
    for status in QueueItemStatus::ALL {
        let name = status.as_str();
        let count = caller.sessions().documents()?.count(&caller.tenant, KIND, Some(name)).await?;
        stats.insert(name.to_owned(), json!(count));
    }
    Ok(Json(json!({ "stats": stats })))
}

/// `GET /api/queue/{id}`.
pub(super) async fn get(caller: AshCaller, Path(id): Path<String>) -> Answer {
    let item = find(&caller, &id).await?;
    Ok(Json(json!({ "item": shape(&caller, &item) })))
}

/// `DELETE /api/queue/{id}`.
pub(super) async fn cancel(caller: AshCaller, Path(id): Path<String>) -> Answer {
    let item = find(&caller, &id).await?;
    let (sessions, tenant) = (caller.sessions(), &*caller.tenant);
    let cancelled = Some(QueueItemStatus::Cancelled.as_str());
    let is_pending = item.parent.as_deref() == Some(QueueItemStatus::Pending.as_str());
    if is_pending {
        let body = item.body.clone();
        let changed = sessions.documents()?.replace(tenant, &item, cancelled, body).await?;
        if let Some(changed) = changed {
            return Ok(Json(json!({ "item": shape(&caller, &changed) })));
        }
    }
    let status = find(&caller, &id).await?.parent.unwrap_or_default();
    Err(AshFailure::bad(format!("Cannot cancel item with status \"{status}\"")))
}

async fn find(caller: &AshCaller, id: &str) -> Result<FaceDocument, AshFailure> {
    let found =
        caller.sessions().documents()?.find(&caller.tenant, KIND, &id.to_lowercase()).await?;
    found.ok_or_else(|| AshFailure::not_found("Queue item not found"))
}

fn shape(caller: &AshCaller, document: &FaceDocument) -> Value {
    let item: QueueItem = serde_json::from_value(document.body.clone()).unwrap_or_default();
    json!({
        "id": document.id,
        "tenantId": &*caller.tenant,
        "sessionId": item.session.as_deref().map(ids::uuid),
        "agentName": item.agent,
        "prompt": item.prompt,
        "status": document.parent,
        "priority": item.priority,
        "retryCount": item.retries,
        "maxRetries": item.max_retries,
        "error": item.error,
        "createdAt": time::shown(document.created_ms),
        "startedAt": item.started_ms.map(time::shown),
        "completedAt": item.completed_ms.map(time::shown),
    })
}
