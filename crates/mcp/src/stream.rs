//! Responses as streams of server-sent events: the notifications of a running call, then its
//! result.
//!
//! # References
//! - <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::message;

/// Time after which a running call is answered with a stream, if the client accepts one.
const STREAM_AFTER: Duration = Duration::from_secs(2);

/// Interval of progress events on it, which also keep the connection open.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Result of a call, with the status and headers for a response without a stream.
pub(crate) struct CallAnswer {
    pub(crate) status: StatusCode,
    /// `www-authenticate`.
    pub(crate) challenge: Option<String>,
    pub(crate) body: Value,
}

/// A running call.
pub(crate) type Answering = Pin<Box<dyn Future<Output = CallAnswer> + Send>>;

impl IntoResponse for CallAnswer {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body);
        if let Some(challenge) = self.challenge.and_then(|it| HeaderValue::try_from(it).ok()) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// A running call, and its notifications.
pub(crate) struct RunningCall {
    pub(crate) answering: Answering,
    pub(crate) notices: mpsc::Receiver<Value>,
    /// Token by which the client identifies its progress.
    pub(crate) token: Option<Value>,
}

/// Next event of a call.
enum CallEvent {
    Notice(Value),
    Answer(CallAnswer),
    Tick,
}

impl RunningCall {
    async fn next(&mut self, wait: Duration) -> CallEvent {
        tokio::select! {
            biased;
            Some(notice) = self.notices.recv() => CallEvent::Notice(notice),
            answer = &mut self.answering => CallEvent::Answer(answer),
            () = tokio::time::sleep(wait) => CallEvent::Tick,
        }
    }

    /// Responds with JSON to a short call, and with a stream to a long one or one with
    /// notifications.
    pub(crate) async fn respond(mut self) -> Response {
        let first = self.next(STREAM_AFTER).await;
        match first {
            CallEvent::Answer(answer) => match self.notices.try_recv() {
                Err(_) => answer.into_response(),
                Ok(notice) => self.stream(Some(notice), Some(answer.body), 0),
            },
            CallEvent::Notice(notice) => self.stream(Some(notice), None, 0),
            CallEvent::Tick => self.stream(None, None, STREAM_AFTER.as_secs()),
        }
    }

    /// A client cancels the call by closing the stream.
    fn stream(self, first: Option<Value>, answer: Option<Value>, seconds: u64) -> Response {
        let call = StreamedCall { call: self, first, answer, seconds };
        let events = stream::unfold(Some(call), |call| async { call?.next().await });
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
            (header::HeaderName::from_static("x-accel-buffering"), "no"),
        ];
        (headers, Body::from_stream(events.map(Ok::<_, Infallible>))).into_response()
    }
}

/// A call that is answered with a stream.
struct StreamedCall {
    call: RunningCall,
    /// Notification that started the stream.
    first: Option<Value>,
    /// Result, if it arrived before all notifications were sent.
    answer: Option<Value>,
    /// Seconds that it has run, as of the last progress event.
    seconds: u64,
}

impl StreamedCall {
    async fn next(mut self) -> Option<(Bytes, Option<StreamedCall>)> {
        if let Some(notice) = self.first.take() {
            return Some((event(&self.forward(notice)), Some(self)));
        }
        if let Some(answer) = self.answer.take() {
            return match self.call.notices.try_recv() {
                Err(_) => Some((event(&answer), None)),
                Ok(notice) => {
                    self.answer = Some(answer);
                    Some((event(&notice), Some(self)))
                }
            };
        }
        let bytes = match self.call.next(PROGRESS_EVERY).await {
            CallEvent::Notice(notice) => event(&self.forward(notice)),
            CallEvent::Answer(answer) => match self.call.notices.try_recv() {
                Err(_) => return Some((event(&answer.body), None)),
                Ok(notice) => {
                    self.answer = Some(answer.body);
                    event(&notice)
                }
            },
            CallEvent::Tick => {
                self.seconds += PROGRESS_EVERY.as_secs();
                match &self.call.token {
                    Some(token) => event(&message::progress(token, self.seconds)),
                    // A comment: ignored by the client, and keeps the connection open.
                    None => Bytes::from_static(b": still running\n\n"),
                }
            }
        };
        Some((bytes, Some(self)))
    }

    /// Stops the stream's own progress events once the tool sends some: progress must only grow.
    fn forward(&mut self, notice: Value) -> Value {
        if notice["method"] == "notifications/progress" {
            self.call.token = None;
        }
        notice
    }
}

/// Returns a JSON response.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, body.to_string()).into_response()
}

/// Formats an event of a stream. The JSON contains no line breaks.
fn event(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}
