//! A topic's route, read for one subscription: as events, or again and again.

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
use node::drain::DrainHandle;
use node::http::{HttpError, InProcessCaller};
use serde_json::Value;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{self, MissedTickBehavior};

use super::events::{EVENT_BYTES_MAX, EventParser, ServerSentEvent};
use super::topics::TopicSource;

/// Interval at which a list or document is read.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the audit is read, whose records are written as often.
const NUMBERED_INTERVAL: Duration = Duration::from_millis(500);

/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Reads that may fail in a row, because the server or this caller has too much to do, before a
/// topic ends.
const FAILURES_MAX: u32 = 10;

/// Messages of one socket that wait to be sent.
pub(super) const MESSAGES_QUEUED_MAX: usize = 256;

/// Bytes of one socket's messages that wait to be sent.
pub(super) const BYTES_QUEUED_MAX: usize = 2 << 20;

/// A message that waits to be sent.
pub(super) struct QueuedLiveMessage {
    pub(super) id: Arc<str>,
    /// Number of the subscription on its socket: an `id` may be used again.
    pub(super) number: u64,
    pub(super) text: String,
    /// True if nothing more comes of the subscription.
    pub(super) is_last: bool,
    /// The room that it takes.
    _room: OwnedSemaphorePermit,
}

/// Way of a subscription's messages to its socket. Waits while the client does not read.
#[derive(Clone)]
pub(super) struct LiveOutlet {
    pub(super) id: Arc<str>,
    pub(super) number: u64,
    pub(super) sender: mpsc::Sender<QueuedLiveMessage>,
    pub(super) room: Arc<Semaphore>,
}

/// The socket is gone.
#[derive(Debug)]
pub(super) struct SocketGone;

impl LiveOutlet {
    async fn say(&self, message: LiveServerMessage, is_last: bool) -> Result<(), SocketGone> {
        let message = LiveServerMessage { id: self.id.to_string(), ..message };
        self.queue(serde_json::to_string(&message).unwrap_or_default(), is_last).await
    }

    /// Sends JSON as an event.
    async fn event(&self, json: &str) -> Result<(), SocketGone> {
        let id = serde_json::to_string(&*self.id).unwrap_or_default();
        self.queue(format!("{{\"id\":{id},\"event\":{json}}}"), false).await
    }

    async fn queue(&self, text: String, is_last: bool) -> Result<(), SocketGone> {
        // The largest one has all the room for itself.
        let bytes = u32::try_from(text.len().min(BYTES_QUEUED_MAX)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        let _room = room.map_err(|_| SocketGone)?;
        let (id, number) = (Arc::clone(&self.id), self.number);
        let message = QueuedLiveMessage { id, number, text, is_last, _room };
        self.sender.send(message).await.map_err(|_| SocketGone)
    }

    /// Returns whether messages wait of which the client has not read.
    fn is_behind(&self) -> bool {
        self.sender.capacity() < MESSAGES_QUEUED_MAX / 2
            || self.room.available_permits() < BYTES_QUEUED_MAX / 2
    }
}

/// Why a topic is not followed any more.
enum TopicEnd {
    /// Nothing more can happen.
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

/// Reader of one topic.
pub(super) struct TopicReader {
    pub(super) caller: InProcessCaller,
    pub(super) outlet: LiveOutlet,
    pub(super) drain: DrainHandle,
    /// Held while a document is read, so that a socket has one in memory.
    pub(super) turn: Arc<Mutex<()>>,
}

impl TopicReader {
    /// Reads until the topic ends or the socket is gone.
    pub(super) async fn run(self, source: TopicSource) {
        let end = match source {
            TopicSource::Events { target, has_end_reason } => {
                self.events(&target, has_end_reason).await
            }
            TopicSource::Changed { target, list, key } => self.changed(&target, list, key).await,
            TopicSource::Numbered { target, newest, list, after } => {
                self.numbered(&target, newest, list, after).await
            }
            TopicSource::Document { target } => self.document(&target).await,
        };
        let end = match end {
            Ok(never) => match never {},
            Err(end) => end,
        };
        // Who is gone needs no goodbye.
        let _gone = match end {
            TopicEnd::Over => {
                let message =
                    LiveServerMessage { ended: Some(true), ..LiveServerMessage::default() };
                self.outlet.say(message, true).await
            }
            TopicEnd::Refused(error) => {
                let message =
                    LiveServerMessage { error: Some(error), ..LiveServerMessage::default() };
                self.outlet.say(message, true).await
            }
            TopicEnd::Gone => return,
        };
    }

    async fn followed(&self) -> Result<(), SocketGone> {
        let message = LiveServerMessage { ok: Some(true), ..LiveServerMessage::default() };
        self.outlet.say(message, false).await
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
            // The credential was revoked, or the node that answers is gone.
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
        // A stream that a drain ends goes on at the next server: the socket says so.
        match self.drain.is_draining() {
            true => Err(TopicEnd::Gone),
            false => Err(TopicEnd::Over),
        }
    }

    /// Reads a document; none where that may succeed later.
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
        target: &str,
        list: &str,
        key: &str,
    ) -> Result<std::convert::Infallible, TopicEnd> {
        let mut ticks = ticks(READ_INTERVAL);
        let mut known: HashMap<String, u64> = HashMap::new();
        let (mut failures, mut is_followed) = (0, false);
        loop {
            ticks.tick().await;
            if is_followed && self.outlet.is_behind() {
                continue; // What is current is read when there is room for it.
            }
            let Some(mut document) = self.read(target, &mut failures).await? else { continue };
            if !is_followed {
                self.followed().await?;
                is_followed = true;
            }
            let records = document.get_mut(list).map(Value::take);
            let Some(Value::Array(records)) = records else { continue };
            let mut seen = HashMap::with_capacity(records.len());
            // The list begins with the newest; the client is told of the oldest first.
            for record in records.into_iter().rev() {
                let Some(name) = record.get(key).and_then(Value::as_str) else { continue };
                let text = record.to_string();
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                let hash = hasher.finish();
                let is_new = known.get(name) != Some(&hash);
                seen.insert(name.to_owned(), hash);
                if is_new {
                    self.record(record, key, text).await?;
                }
            }
            known = seen;
        }
    }

    /// Sends a record, or its key and state where it is too long.
    async fn record(&self, record: Value, key: &str, text: String) -> Result<(), SocketGone> {
        if text.len() < EVENT_BYTES_MAX {
            return self.outlet.event(&text).await;
        }
        let short = serde_json::json!({
            key: record.get(key), "state": record.get("state"), "truncated": true,
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
            // Records that do not fit are not looked at again.
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
                self.outlet.say(message, false).await?;
                missed = 0;
            }
            self.outlet.event(&document.to_string()).await?;
        }
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

/// Why a route refuses to be read, in Cove's own words or those of Iceberg's interface.
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

/// Why a stream of events ends, as its last event says.
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
