//! Workers of the queue: one task for each tenant with items, which processes one item at a time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::CreateSession;
use node::drain::DrainHandle;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time;

use super::super::{FACE, turn};
use super::{KIND, QueueItem, QueueItemStatus};
use crate::error::SessionError;
use crate::service::{CreateExtras, FaceDocument, Sessions};

/// Items that a server processes concurrently.
const AT_ONCE: usize = 8;
/// Pause after the first failure of an item, in milliseconds; doubled after each further one, up to
/// a limit.
const RETRY_MS: u64 = 5_000;
const RETRY_MS_MAX: u64 = 5 * 60 * 1000;
/// Duration of a claim, and interval of its renewal.
const LEASE_MS: u64 = 2 * 60 * 1000;
const RENEW_EVERY: Duration = Duration::from_secs(30);
/// Interval of the search for items that other servers have abandoned.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Pause before the store is tried again after a failure.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// Items read per page.
const PAGE: usize = 50;

/// Tenants whose items are being processed.
#[derive(Clone)]
pub(in super::super) struct QueueTenants {
    working: Arc<Mutex<HashMap<Arc<str>, Arc<Notify>>>>,
    places: Arc<Semaphore>,
    drain: DrainHandle,
}

impl fmt::Debug for QueueTenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl QueueTenants {
    pub(in super::super) fn new(drain: DrainHandle) -> QueueTenants {
        QueueTenants { working: Arc::default(), places: Arc::new(Semaphore::new(AT_ONCE)), drain }
    }

    /// Finds items of earlier runs at startup, and periodically those that other servers have
    /// abandoned.
    pub(in super::super) async fn keep(self, sessions: Sessions) {
        let mut is_first = true;
        while !self.drain.is_draining() {
            if let Err(error) = self.sweep(&sessions, is_first).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "no queue could be read");
            } else {
                is_first = false;
            }
            tokio::select! {
                () = time::sleep(SWEEP_EVERY) => {}
                () = self.drain.begun() => {}
            }
        }
    }

    async fn sweep(&self, sessions: &Sessions, is_first: bool) -> Result<(), SessionError> {
        let processing = QueueItemStatus::Processing.as_str();
        for tenant in sessions.documents()?.tenants(KIND, processing).await? {
            self.free(sessions, &tenant, is_first).await?;
        }
        let pending = QueueItemStatus::Pending.as_str();
        for tenant in sessions.documents()?.tenants(KIND, pending).await? {
            self.wake(sessions, &tenant.into());
        }
        Ok(())
    }

    /// Returns abandoned items to the pending state.
    async fn free(
        &self,
        sessions: &Sessions,
        tenant: &str,
        is_first: bool,
    ) -> Result<(), SessionError> {
        let processing = Some(QueueItemStatus::Processing.as_str());
        for document in sessions.documents()?.list(tenant, KIND, processing, None, PAGE).await? {
            let item = item_of(&document);
            // At startup, no task of this server processes items that it claimed before.
            let is_ours = item.server.as_deref() == Some(sessions.server());
            let is_left = item.lease_ms < sessions.now_ms() || (is_ours && is_first);
            if is_left {
                put(sessions, tenant, &document, QueueItemStatus::Pending, &item).await?;
            }
        }
        Ok(())
    }

    /// Ensures that a task processes a tenant's items.
    pub(in super::super) fn wake(&self, sessions: &Sessions, tenant: &Arc<str>) {
        if self.drain.is_draining() {
            return;
        }
        let woken = {
            let mut working = self.working.lock();
            if let Some(task) = working.get(tenant) {
                task.notify_one();
                return;
            }
            let woken = Arc::new(Notify::new());
            working.insert(Arc::clone(tenant), Arc::clone(&woken));
            woken
        };
        node::task::spawn(self.clone().run(sessions.clone(), Arc::clone(tenant), woken));
    }

    /// Processes the items of a tenant until there are none.
    async fn run(self, sessions: Sessions, tenant: Arc<str>, woken: Arc<Notify>) {
        while !self.drain.is_draining() {
            let pause = match next(&sessions, &tenant).await {
                Ok(NextQueueStep::Due(document)) => {
                    let Ok(_place) = self.places.acquire().await else { break };
                    match self.process(&sessions, &tenant, document).await {
                        Ok(()) => continue,
                        Err(error) => failed(&error),
                    }
                }
                Ok(NextQueueStep::At(due_ms)) => {
                    Duration::from_millis(due_ms.saturating_sub(sessions.now_ms()))
                }
                Ok(NextQueueStep::None) => {
                    self.working.lock().remove(&tenant);
                    // An item may have arrived just now, while this task still counted as running.
                    if !matches!(next(&sessions, &tenant).await, Ok(NextQueueStep::None)) {
                        self.wake(&sessions, &tenant);
                    }
                    return;
                }
                Err(error) => failed(&error),
            };
            tokio::select! {
                () = time::sleep(pause) => {}
                () = woken.notified() => {}
                () = self.drain.begun() => {}
            }
        }
        self.working.lock().remove(&tenant);
    }

    /// Claims an item, processes it, and records the result.
    async fn process(
        &self,
        sessions: &Sessions,
        tenant: &str,
        document: FaceDocument,
    ) -> Result<(), SessionError> {
        let now_ms = sessions.now_ms();
        let mut item = QueueItem {
            server: Some(sessions.server().to_owned()),
            started_ms: Some(now_ms),
            lease_ms: now_ms + LEASE_MS,
            ..item_of(&document)
        };
        let claimed = put(sessions, tenant, &document, QueueItemStatus::Processing, &item).await?;
        // The item was cancelled or claimed by another server.
        let Some(mut document) = claimed else { return Ok(()) };
        let result = match session(sessions, tenant, &mut item).await {
            Err(error) => Err(error),
            Ok(session) => {
                let mut asking = Box::pin(turn::ask(sessions, tenant, &session, &item.prompt));
                loop {
                    tokio::select! {
                        asked = &mut asking => break asked,
                        () = time::sleep(RENEW_EVERY) => {}
                    }
                    item.lease_ms = sessions.now_ms() + LEASE_MS;
                    match put(sessions, tenant, &document, QueueItemStatus::Processing, &item).await
                    {
                        Ok(Some(renewed)) => document = renewed,
                        // Another server has claimed it meanwhile.
                        Ok(None) => return Ok(()),
                        Err(error) => drop(failed(&error)),
                    }
                }
            }
        };
        let error = match result {
            Ok(outcome) => outcome.error,
            Err(error) => Some(error.to_string()),
        };
        let status = self.settle(&mut item, error, sessions.now_ms());
        loop {
            match put(sessions, tenant, &document, status, &item).await {
                Ok(_) => return Ok(()),
                Err(error) if self.drain.is_draining() => return Err(error),
                Err(error) => time::sleep(failed(&error)).await,
            }
        }
    }

    /// Returns the next status of an item.
    fn settle(&self, item: &mut QueueItem, error: Option<String>, now_ms: u64) -> QueueItemStatus {
        item.server = None;
        item.error = error;
        if item.error.is_none() {
            item.completed_ms = Some(now_ms);
            return QueueItemStatus::Completed;
        }
        // A shutdown of the server does not count as a failure.
        if self.drain.is_draining() {
            return QueueItemStatus::Pending;
        }
        item.retries += 1;
        if item.retries >= item.max_retries {
            item.completed_ms = Some(now_ms);
            return QueueItemStatus::Failed;
        }
        item.due_ms = now_ms + pause_ms(item.retries);
        QueueItemStatus::Pending
    }
}

/// Next step of a worker.
enum NextQueueStep {
    Due(FaceDocument),
    At(u64),
    None,
}

/// Returns the next due item: the most urgent one, then the oldest.
async fn next(sessions: &Sessions, tenant: &str) -> Result<NextQueueStep, SessionError> {
    let now_ms = sessions.now_ms();
    let mut best: Option<(u32, FaceDocument)> = None;
    let mut soonest: Option<u64> = None;
    let mut after: Option<String> = None;
    loop {
        let pending = Some(QueueItemStatus::Pending.as_str());
        let page =
            sessions.documents()?.list(tenant, KIND, pending, after.as_deref(), PAGE).await?;
        after = page.last().map(|last| last.id.clone());
        let is_last = page.len() < PAGE;
        for document in page {
            let item = item_of(&document);
            if item.due_ms > now_ms {
                soonest = Some(soonest.map_or(item.due_ms, |due| due.min(item.due_ms)));
            } else if best.as_ref().is_none_or(|(priority, _)| item.priority > *priority) {
                best = Some((item.priority, document));
            }
        }
        if is_last {
            break;
        }
    }
    Ok(match (best, soonest) {
        (Some((_, document)), _) => NextQueueStep::Due(document),
        (None, Some(due_ms)) => NextQueueStep::At(due_ms),
        (None, None) => NextQueueStep::None,
    })
}

/// Returns the session of an item; created if it has none.
async fn session(
    sessions: &Sessions,
    tenant: &str,
    item: &mut QueueItem,
) -> Result<String, SessionError> {
    if let Some(session) = &item.session {
        return Ok(session.clone());
    }
    let request = CreateSession { agent: Some(item.agent.clone()), ..CreateSession::default() };
    let extras = CreateExtras { face: Some(FACE), ..CreateExtras::default() };
    let made = sessions.create_as(tenant, request, extras).await?;
    item.session = Some(made.id.clone());
    Ok(made.id)
}

async fn put(
    sessions: &Sessions,
    tenant: &str,
    known: &FaceDocument,
    status: QueueItemStatus,
    item: &QueueItem,
) -> Result<Option<FaceDocument>, SessionError> {
    let body = serde_json::to_value(item).map_err(SessionError::internal)?;
    sessions.documents()?.replace(tenant, known, Some(status.as_str()), body).await
}

fn item_of(document: &FaceDocument) -> QueueItem {
    serde_json::from_value(document.body.clone()).unwrap_or_default()
}

fn failed(error: &SessionError) -> Duration {
    tracing::warn!(error = error as &dyn std::error::Error, "a queue has to wait");
    STORE_PAUSE
}

fn pause_ms(retries: u32) -> u64 {
    let doubled = RETRY_MS.checked_shl(retries.saturating_sub(1).min(16)).unwrap_or(RETRY_MS_MAX);
    doubled.min(RETRY_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_waits_longer_each_time() {
        let pauses: Vec<u64> = [1, 2, 3, 7, 8, 50].into_iter().map(pause_ms).collect();
        assert_eq!(pauses, [5_000, 10_000, 20_000, 300_000, 300_000, 300_000]);
    }

    #[test]
    fn an_item_is_tried_as_often_as_it_says() {
        let queue = QueueTenants::new(DrainHandle::new());
        let mut item = QueueItem { max_retries: 2, ..QueueItem::default() };
        let why = || Some("why".to_owned());
        assert_eq!(queue.settle(&mut item, why(), 5), QueueItemStatus::Pending);
        assert_eq!(queue.settle(&mut item, why(), 5), QueueItemStatus::Failed);
        assert_eq!((item.retries, item.error.as_deref()), (2, Some("why")));
        assert_eq!(queue.settle(&mut item, None, 5), QueueItemStatus::Completed);
        let mut never = QueueItem::default();
        assert_eq!(queue.settle(&mut never, why(), 5), QueueItemStatus::Failed);
    }

    #[test]
    fn the_end_of_the_server_is_not_counted() {
        let drain = DrainHandle::new();
        let queue = QueueTenants::new(drain.clone());
        drain.begin();
        let mut item = QueueItem { max_retries: 1, ..QueueItem::default() };
        assert_eq!(queue.settle(&mut item, Some("why".to_owned()), 5), QueueItemStatus::Pending);
        assert_eq!((item.retries, item.due_ms), (0, 0));
    }
}
