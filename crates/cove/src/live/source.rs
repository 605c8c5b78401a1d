//! Reads a topic's route for one subscription: as events, or by polling.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use api::{ErrorBody, ErrorCode, ErrorDetail, LiveServerMessage};
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use node::changes::{ChangeListener, ChangeScope, RecordFeed};
use node::drain::DrainHandle;
use node::http::{HttpError, InProcessCaller};
use serde_json::Value;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{self, MissedTickBehavior};

use super::events::{EVENT_BYTES_MAX, EventParser, ServerSentEvent};
use super::topics::{FollowedService, RecordRoute, TopicSource};

/// Interval at which a document is read, and a list that other servers change as well.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which a list is read whose changes this server all announces: only for changes that
/// time causes, such as an expired record.
const QUIET_INTERVAL: Duration = Duration::from_secs(300);

/// Time from a change until its record is read, together with all other changes of that time: a
/// short program is queued, runs and ends within it. A client sees a change within 250 ms, of which
/// this is the largest part.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// Maximum number of changed records that are read one by one. For more, the list is read, and then
/// not again for [`READ_INTERVAL`].
const RECORDS_READ_MAX: usize = 8;

/// Minimum time between two reads of a summary.
const SUMMARY_PAUSE: Duration = Duration::from_millis(500);

/// Interval at which a summary is read without a change, to update the ages in it.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which the audit is read; its records are written as often.
const NUMBERED_INTERVAL: Duration = Duration::from_millis(500);

/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Consecutive failed reads, because the server or this caller is overloaded, after which a topic
/// ends.
const FAILURES_MAX: u32 = 10;

/// Maximum messages that are queued for one socket.
pub(super) const MESSAGES_QUEUED_MAX: usize = 256;

/// Maximum bytes of the messages that are queued for one socket.
pub(super) const BYTES_QUEUED_MAX: usize = 2 << 20;

/// Queued message.
pub(super) struct QueuedLiveMessage {
    pub(super) id: Arc<str>,
    /// Number of the subscription on its socket: an `id` may be reused.
    pub(super) number: u64,
    pub(super) text: String,
    /// True if the subscription sends no more messages.
    pub(super) is_last: bool,
    /// Permit for its bytes.
    _room: OwnedSemaphorePermit,
}

/// Queue of a subscription's messages to its socket. Waits while the client does not read.
#[derive(Clone)]
pub(super) struct LiveOutlet {
    pub(super) id: Arc<str>,
    pub(super) number: u64,
    pub(super) sender: mpsc::Sender<QueuedLiveMessage>,
    pub(super) room: Arc<Semaphore>,
}

/// The socket is closed.
#[derive(Debug)]
pub(super) struct SocketGone;

impl LiveOutlet {
    async fn send_message(
        &self,
        message: LiveServerMessage,
        is_last: bool,
    ) -> Result<(), SocketGone> {
        let message = LiveServerMessage { id: self.id.to_string(), ..message };
        self.queue(serde_json::to_string(&message).unwrap_or_default(), is_last).await
    }

    /// Sends JSON as an event.
    async fn event(&self, json: &str) -> Result<(), SocketGone> {
        let id = serde_json::to_string(&*self.id).unwrap_or_default();
        self.queue(format!("{{\"id\":{id},\"event\":{json}}}"), false).await
    }

    async fn queue(&self, text: String, is_last: bool) -> Result<(), SocketGone> {
        // A message of the maximum size uses all permits.
        let bytes = u32::try_from(text.len().min(BYTES_QUEUED_MAX)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        let _room = room.map_err(|_| SocketGone)?;
        let (id, number) = (Arc::clone(&self.id), self.number);
        let message = QueuedLiveMessage { id, number, text, is_last, _room };
        self.sender.send(message).await.map_err(|_| SocketGone)
    }

    /// Returns whether the queue is at least half full, because the client reads slowly.
    fn is_behind(&self) -> bool {
        self.sender.capacity() < MESSAGES_QUEUED_MAX / 2
            || self.room.available_permits() < BYTES_QUEUED_MAX / 2
    }
}

/// Reason for the end of a topic.
enum TopicEnd {
    /// The source has ended.
    Over,
    Refused(ErrorDetail),
    Gone,
}

impl From<SocketGone> for TopicEnd {
    fn from(_: SocketGone) -> TopicEnd {
        TopicEnd::Gone
    }
}

impl From<HttpError> for TopicEnd {
    fn from(error: HttpError) -> TopicEnd {
        TopicEnd::Refused(error.detail().clone())
    }
}

/// Feeds of the changes that this server makes.
#[derive(Clone, Debug)]
pub(crate) struct FollowedFeeds {
    pub(crate) executions: RecordFeed,
    pub(crate) sessions: RecordFeed,
    /// True if other servers change the same lists, which these feeds do not announce.
    pub(crate) has_others: bool,
}

impl FollowedFeeds {
    fn listen(&self, service: FollowedService) -> ChangeListener {
        match service {
            FollowedService::Executions => self.executions.listen(),
            FollowedService::Sessions => self.sessions.listen(),
        }
    }

    fn read_interval(&self) -> Duration {
        if self.has_others { READ_INTERVAL } else { QUIET_INTERVAL }
    }
}

/// Followed list, and the route to one of its records.
struct FollowedList {
    target: String,
    list: &'static str,
    record: RecordRoute,
}

/// Reader of one topic.
pub(super) struct TopicReader {
    pub(super) caller: InProcessCaller,
    pub(super) outlet: LiveOutlet,
    pub(super) drain: DrainHandle,
    /// Held while a document is read, so that each socket has only one in memory.
    pub(super) turn: Arc<Mutex<()>>,
    pub(super) feeds: FollowedFeeds,
}

impl TopicReader {
    /// Reads until the topic ends or the socket is closed.
    pub(super) async fn run(self, source: TopicSource) {
        let end = match source {
            TopicSource::Events { target, has_end_reason } => {
                self.events(&target, has_end_reason).await
            }
            TopicSource::Changed { target, list, record, service } => {
                self.changed(&FollowedList { target, list, record }, service).await
            }
            TopicSource::Numbered { target, newest, list, after } => {
                self.numbered(&target, newest, list, after).await
            }
            TopicSource::Document { target } => self.document(&target).await,
            TopicSource::Summary { target, service } => self.summary(&target, service).await,
        };
        let end = match end {
            Ok(never) => match never {},
            Err(end) => end,
        };
        // A closed socket needs no final message.
        let _gone = match end {
            TopicEnd::Over => {
                let message =
                    LiveServerMessage { ended: Some(true), ..LiveServerMessage::default() };
                self.outlet.send_message(message, true).await
            }
            TopicEnd::Refused(error) => {
                let message =
                    LiveServerMessage { error: Some(error), ..LiveServerMessage::default() };
                self.outlet.send_message(message, true).await
            }
            TopicEnd::Gone => return,
        };
    }

    async fn followed(&self) -> Result<(), SocketGone> {
        let message = LiveServerMessage { ok: Some(true), ..LiveServerMessage::default() };
        self.outlet.send_message(message, false).await
    }

    async fn get(&self, target: &str, accept: &'static str) -> Result<Response, TopicEnd> {
        let request = Request::builder().uri(target).header(header::ACCEPT, accept);
        let request = request.body(Body::empty()).map_err(|_| {
            TopicEnd::from(HttpError::invalid("a parameter cannot be part of an address"))
        })?;
        let response = self.caller.send(request).await;
        let response = response.ok_or_else(|| TopicEnd::from(HttpError::draining()))?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(TopicEnd::Refused(refusal(response).await)),
        }
    }

    async fn events(
        &self,
        target: &str,
        has_end_reason: bool,
    ) -> Result<std::convert::Infallible, TopicEnd> {
        let response = self.get(target, "text/event-stream").await?;
        self.followed().await?;
        let mut pieces = response.into_body().into_data_stream();
        let (mut parser, mut events) = (EventParser::default(), VecDeque::new());
        while let Some(piece) = pieces.next().await {
            // The credential was revoked, or the connection to the responding node is lost.
            let piece = piece.map_err(|_| {
                let message = "the events ended early; subscribe again with the last number";
                TopicEnd::from(HttpError::new(ErrorCode::NodeLost, message))
            })?;
            parser.take(&piece, &mut events);
            while let Some(event) = events.pop_front() {
                if has_end_reason && event.name == "error" {
                    return Err(TopicEnd::Refused(end_reason(&event)));
                }
                self.outlet.event(&event.into_json()).await?;
            }
        }
        // A stream that a drain ends continues at the next server: the socket reports it.
        match self.drain.is_draining() {
            true => Err(TopicEnd::Gone),
            false => Err(TopicEnd::Over),
        }
    }

    /// Reads a document; none if a later attempt may succeed.
    async fn read(&self, target: &str, failures: &mut u32) -> Result<Option<Value>, TopicEnd> {
        let _turn = self.turn.lock().await;
        let response = match self.get(target, "application/json").await {
            Ok(response) => response,
            Err(TopicEnd::Refused(error)) if error.retry && *failures < FAILURES_MAX => {
                *failures += 1;
                return Ok(None);
            }
            Err(end) => return Err(end),
        };
        *failures = 0;
        let bytes = to_bytes(response.into_body(), DOCUMENT_BYTES_MAX).await.map_err(|_| {
            let message = "the document ended early, or has more than 8 MiB; ask for less of it";
            TopicEnd::from(HttpError::new(ErrorCode::BodyTooLarge, message))
        })?;
        let value = serde_json::from_slice(&bytes).map_err(|error| {
            tracing::error!(%error, target, "a topic's route answered with no JSON");
            TopicEnd::from(HttpError::internal())
        })?;
        Ok(Some(value))
    }

    async fn changed(
        &self,
        followed: &FollowedList,
        service: FollowedService,
    ) -> Result<std::convert::Infallible, TopicEnd> {
        // Before the first read, so that no change is missed in between.
        let mut changes = self.feeds.listen(service);
        // Hashes of the records that the client has. Records that are read one by one are added
        // until the list is read again.
        let mut known: HashMap<String, u64> = HashMap::new();
        let (mut failures, mut is_followed) = (0, false);
        let (mut scope, mut is_flood) = (ChangeScope::All, false);
        loop {
            if is_followed && self.outlet.is_behind() {
                // The current state is read when the queue has room.
                scope = ChangeScope::All;
                time::sleep(READ_INTERVAL).await;
                continue;
            }
            let was_read = match (&scope, followed.record) {
                (ChangeScope::All, _) | (_, RecordRoute::List) => {
                    match self.read(&followed.target, &mut failures).await? {
                        Some(document) => {
                            if !is_followed {
                                self.followed().await?;
                                is_followed = true;
                            }
                            let records = records_of(document, followed.list);
                            let before = std::mem::take(&mut known);
                            for record in records {
                                self.tell_change(record, Some(&before), &mut known).await?;
                            }
                            true
                        }
                        None => false,
                    }
                }
                (ChangeScope::Records(ids), _) => {
                    self.changed_records(followed, ids, &mut known, &mut failures).await?
                }
            };
            if !was_read {
                scope = ChangeScope::All;
                time::sleep(READ_INTERVAL).await;
                continue;
            }
            if is_flood {
                time::sleep(READ_INTERVAL).await;
            }
            let changed = changes.changed(RECORDS_READ_MAX, BATCH_WINDOW);
            let changed = time::timeout(self.feeds.read_interval(), changed).await;
            is_flood = matches!(changed, Ok(ChangeScope::All));
            // If a changed record was not read, the whole list is read.
            scope = changed.unwrap_or(ChangeScope::All);
        }
    }

    /// Reads records one by one with the caller's rights. Returns false if a later attempt may
    /// succeed.
    async fn changed_records(
        &self,
        followed: &FollowedList,
        ids: &[Arc<str>],
        known: &mut HashMap<String, u64>,
        failures: &mut u32,
    ) -> Result<bool, TopicEnd> {
        for id in ids {
            let id = crate::percent::escaped(id);
            let target = match followed.record {
                RecordRoute::Document(path) => format!("{path}{id}"),
                RecordRoute::Filter | RecordRoute::List => format!("{}&id={id}", followed.target),
            };
            let document = match self.read(&target, failures).await {
                Ok(Some(document)) => document,
                Ok(None) => return Ok(false),
                // The record is not visible to this caller, or no longer exists.
                Err(TopicEnd::Refused(error)) if error.code == ErrorCode::NotFound => continue,
                Err(end) => return Err(end),
            };
            let records = match followed.record {
                RecordRoute::Document(_) => vec![document],
                RecordRoute::Filter | RecordRoute::List => records_of(document, followed.list),
            };
            for record in records {
                self.tell_change(record, None, known).await?;
            }
        }
        Ok(true)
    }

    /// Sends a record that differs from the client's copy, and records its hash. `before` has the
    /// previous hashes if `known` is built anew.
    async fn tell_change(
        &self,
        record: Value,
        before: Option<&HashMap<String, u64>>,
        known: &mut HashMap<String, u64>,
    ) -> Result<(), SocketGone> {
        let Some(id) = record.get("id").and_then(Value::as_str) else { return Ok(()) };
        let text = record.to_string();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        let last = known.insert(id.to_owned(), hash);
        let last = before.map_or(last, |before| before.get(id).copied());
        let is_new = last != Some(hash);
        if is_new { self.record(record, text).await } else { Ok(()) }
    }

    /// Sends a record, or its id and state if it is too long.
    async fn record(&self, record: Value, text: String) -> Result<(), SocketGone> {
        if text.len() < EVENT_BYTES_MAX {
            return self.outlet.event(&text).await;
        }
        let short = serde_json::json!({
            "id": record.get("id"), "state": record.get("state"), "truncated": true,
        });
        self.outlet.event(&short.to_string()).await
    }

    async fn numbered(
        &self,
        target: &str,
        newest: &str,
        list: &str,
        after: Option<u64>,
    ) -> Result<std::convert::Infallible, TopicEnd> {
        let mut ticks = ticks(NUMBERED_INTERVAL);
        let mut failures = 0;
        let mut after = after;
        let mut is_followed = false;
        loop {
            ticks.tick().await;
            let Some(last) = after else {
                let Some(document) = self.read(newest, &mut failures).await? else { continue };
                let first = document.get(list).and_then(|records| records.get(0));
                after = Some(first.and_then(number).unwrap_or(0));
                ticks.reset_immediately();
                continue;
            };
            let next = format!("{target}&after={last}");
            let Some(mut document) = self.read(&next, &mut failures).await? else { continue };
            if !is_followed {
                self.followed().await?;
                is_followed = true;
            }
            let next = document.get("next_after").and_then(Value::as_u64);
            let newest = document.get("newest").and_then(Value::as_u64);
            let records = document.get_mut(list).map(Value::take);
            let Some(Value::Array(records)) = records else { continue };
            for record in records {
                after = number(&record).or(after);
                self.outlet.event(&record.to_string()).await?;
            }
            // Records that do not match the filter are not read again.
            after = after.max(next.or(newest));
            if next.is_some() {
                ticks.reset_immediately();
            }
        }
    }

    async fn document(&self, target: &str) -> Result<std::convert::Infallible, TopicEnd> {
        let mut ticks = ticks(READ_INTERVAL);
        let (mut failures, mut is_followed, mut missed) = (0, false, 0_u64);
        loop {
            ticks.tick().await;
            if is_followed && self.outlet.is_behind() {
                missed += 1;
                continue;
            }
            let Some(document) = self.read(target, &mut failures).await? else { continue };
            if !is_followed {
                self.followed().await?;
                is_followed = true;
            }
            if missed > 0 {
                let message =
                    LiveServerMessage { lagged: Some(missed), ..LiveServerMessage::default() };
                self.outlet.send_message(message, false).await?;
                missed = 0;
            }
            self.outlet.event(&document.to_string()).await?;
        }
    }

    async fn summary(
        &self,
        target: &str,
        service: Option<FollowedService>,
    ) -> Result<std::convert::Infallible, TopicEnd> {
        let mut changes = service.map(|service| self.feeds.listen(service));
        let interval = SUMMARY_INTERVAL.min(self.feeds.read_interval());
        let (mut failures, mut last) = (0, None);
        loop {
            if !self.outlet.is_behind()
                && let Some(document) = self.read(target, &mut failures).await?
            {
                let text = document.to_string();
                if last.is_none() {
                    self.followed().await?;
                }
                if last.as_ref() != Some(&text) {
                    self.outlet.event(&text).await?;
                    last = Some(text);
                }
            }
            let read_at = time::Instant::now();
            match &mut changes {
                Some(changes) => {
                    let changed = changes.changed(1, BATCH_WINDOW);
                    let _changed_or_time = time::timeout(interval, changed).await;
                }
                None => time::sleep(READ_INTERVAL).await,
            }
            // Limits the reads of a busy server to a rate that a reader can follow.
            time::sleep_until(read_at + SUMMARY_PAUSE).await;
        }
    }
}

/// Returns the records of a list, the oldest first: the list begins with the newest.
fn records_of(mut document: Value, list: &str) -> Vec<Value> {
    match document.get_mut(list).map(Value::take) {
        Some(Value::Array(records)) => records.into_iter().rev().collect(),
        _ => Vec::new(),
    }
}

fn ticks(interval: Duration) -> time::Interval {
    let mut ticks = time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn number(record: &Value) -> Option<u64> {
    record.get("seq").and_then(Value::as_u64)
}

/// Returns the reason for a rejected read, from an error in Cove's or Iceberg's format.
async fn refusal(response: Response) -> ErrorDetail {
    let status = response.status();
    let bytes = to_bytes(response.into_body(), EVENT_BYTES_MAX).await.unwrap_or_default();
    if let Ok(body) = serde_json::from_slice::<ErrorBody>(&bytes) {
        return body.error;
    }
    let foreign: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let message = match foreign["error"]["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("the topic's route answered with status {}", status.as_u16()),
    };
    of_status(status, message)
}

/// Returns the reason for the end of a stream, from its last event.
fn end_reason(event: &ServerSentEvent) -> ErrorDetail {
    let reason: Value = serde_json::from_str(&event.data).unwrap_or_default();
    let code = reason.get("code").and_then(Value::as_u64).and_then(|it| u16::try_from(it).ok());
    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
    let message = reason.get("message").and_then(Value::as_str).unwrap_or("the topic has ended");
    of_status(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), message.to_owned())
}

fn of_status(status: StatusCode, message: String) -> ErrorDetail {
    let code = match status {
        StatusCode::UNAUTHORIZED => ErrorCode::Unauthenticated,
        StatusCode::FORBIDDEN => ErrorCode::Forbidden,
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::CONFLICT => ErrorCode::Conflict,
        StatusCode::GONE => ErrorCode::Gone,
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::TooManyRequests,
        StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Overloaded,
        status if status.is_client_error() => ErrorCode::InvalidRequest,
        _ => ErrorCode::Internal,
    };
    let retry = matches!(code, ErrorCode::TooManyRequests | ErrorCode::Overloaded);
    ErrorDetail { code, message, field: None, retry }
}
