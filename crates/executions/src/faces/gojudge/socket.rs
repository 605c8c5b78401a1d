//! `/ws`: many requests on one connection, each answered when it ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{self, MissedTickBehavior};

use super::run::{CallerHandle, CallerRequest, GojudgeRunner, RunError};
use super::wire;
use crate::answers::AnswerMemory;
use crate::aside::aside;

/// Interval at which a ping is sent, as by go-judge.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(50);
/// Time without a message of the client, pongs included, after which it counts as disconnected.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Time after which a client that does not read an answer counts as disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Message for connections that are open when the server ends.
pub(super) const SHUTTING_DOWN: &str = "the server is shutting down";
/// Capacity for a client's control requests of one request: the only one is its cancellation.
const ASKED_MAX: usize = 1;

pub(super) async fn connect(
    State(runner): State<Arc<GojudgeRunner>>,
    who: TokenPrincipal,
    drain: DrainHandle,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match accept(&runner, upgrade) {
        Ok(upgrade) => upgrade,
        Err(why) => return (StatusCode::BAD_REQUEST, Json(why)).into_response(),
    };
    upgrade.on_upgrade(move |socket| async move {
        Box::pin(ConnectionRequests::new(runner, who.token_id, drain).serve(socket)).await;
    })
}

/// Prepares an upgrade, or returns the error in go-judge's format.
pub(super) fn accept(
    runner: &GojudgeRunner,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<WebSocketUpgrade, String> {
    let bytes_max = runner.config.message_bytes_max;
    match upgrade {
        Ok(upgrade) => Ok(upgrade.max_message_size(bytes_max).max_frame_size(bytes_max)),
        Err(rejection) => Err(rejection.body_text()),
    }
}

/// The requests of one connection.
struct ConnectionRequests {
    runner: Arc<GojudgeRunner>,
    tenant: Arc<str>,
    drain: DrainHandle,
    /// Dropped with the connection, which ends all of them.
    running: JoinSet<wire::GojudgeResponse>,
    /// Cancel channel of each running request, by its id.
    cancels: HashMap<String, mpsc::Sender<CallerRequest>>,
}

impl ConnectionRequests {
    fn new(runner: Arc<GojudgeRunner>, tenant: Arc<str>, drain: DrainHandle) -> ConnectionRequests {
        ConnectionRequests {
            runner,
            tenant,
            drain,
            running: JoinSet::new(),
            cancels: HashMap::new(),
        }
    }

    async fn serve(mut self, socket: WebSocket) {
        let (mut sink, mut stream) = socket.split();
        let mut pings = pings();
        let mut silent_since = time::Instant::now();
        loop {
            let answer = tokio::select! {
                message = stream.next() => {
                    silent_since = time::Instant::now();
                    match message {
                        None | Some(Err(_) | Ok(Message::Close(_))) => return,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
                        Some(Ok(Message::Text(text))) => self.take(text.as_bytes()),
                        Some(Ok(Message::Binary(bytes))) => self.take(&bytes),
                    }
                }
                Some(ended) = self.running.join_next() => match ended {
                    Ok(answer) => {
                        self.cancels.remove(&answer.request_id);
                        Some(answer)
                    }
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "a request of a WebSocket ended unexpectedly");
                        return;
                    }
                },
                // Running requests are answered during the drain.
                () = self.drain.begun(), if self.running.is_empty() => {
                    return close(&mut sink, close_code::AWAY, SHUTTING_DOWN).await;
                }
                () = self.drain.cancelled() => {
                    return close(&mut sink, close_code::AWAY, SHUTTING_DOWN).await;
                }
                _ = pings.tick() => {
                    let sent = send(&mut sink, Message::Ping(Vec::new().into())).await;
                    if !sent || silent_since.elapsed() > SILENCE_MAX {
                        return;
                    }
                    None
                }
            };
            if let Some(answer) = answer {
                let bytes = answer.content_bytes();
                // The memory is held until the text is sent.
                let write =
                    move || (serde_json::to_string(&answer).unwrap_or_default(), answer.room);
                let Ok((text, _room)) = aside(bytes, write).await else { return };
                if !send(&mut sink, Message::Text(text.into())).await {
                    return;
                }
            }
        }
    }

    /// Handles a message; returns an answer at once if no program is run.
    fn take(&mut self, message: &[u8]) -> Option<wire::GojudgeResponse> {
        let request: wire::GojudgeRequest = match serde_json::from_slice(message) {
            Ok(request) => request,
            Err(error) => {
                let error = node::http::plain_json_error(&error);
                return Some(refusal("", format!("the message is not a request: {error}")));
            }
        };
        if !request.cancel_request_id.is_empty() {
            if let Some(cancel) = self.cancels.get(&request.cancel_request_id) {
                // If the channel is full, the request is being cancelled already.
                cancel.try_send(CallerRequest::Cancel).ok();
            }
            return None;
        }
        let id = request.request_id.clone();
        if id.is_empty() {
            return Some(refusal("", "empty request id"));
        }
        if self.cancels.contains_key(&id) {
            let message = format!("duplicated request id: {id:?}");
            return Some(refusal(&id, message));
        }
        if self.drain.is_draining() {
            return Some(refusal(&id, SHUTTING_DOWN));
        }
        let requests_max = self.runner.config.socket_requests_max;
        if self.running.len() >= requests_max {
            let message =
                format!("worker queue is full: {requests_max} requests of this connection");
            return Some(refusal(&id, message));
        }
        let (cancel, requests) = mpsc::channel(ASKED_MAX);
        self.cancels.insert(id.clone(), cancel);
        let (runner, tenant) = (Arc::clone(&self.runner), Arc::clone(&self.tenant));
        self.running.spawn(async move {
            let remote = CallerHandle { requests: Some(requests), ..CallerHandle::default() };
            let ended = Box::pin(runner.run(&tenant, request, remote)).await;
            response(id, ended)
        });
        None
    }
}

/// Returns the answer to a request that was run, or could not be.
pub(super) fn response(
    request_id: String,
    ended: Result<(Vec<wire::GojudgeResult>, AnswerMemory), RunError>,
) -> wire::GojudgeResponse {
    match ended {
        Ok((results, room)) => {
            wire::GojudgeResponse { request_id, results, error: String::new(), room: Some(room) }
        }
        Err(error) => refusal(&request_id, error.to_string()),
    }
}

fn refusal(request_id: &str, error: impl Into<String>) -> wire::GojudgeResponse {
    let (request_id, error) = (request_id.to_owned(), error.into());
    wire::GojudgeResponse { request_id, results: Vec::new(), error, room: None }
}

/// Returns the timer of pings; the first one is not at once.
pub(super) fn pings() -> time::Interval {
    let mut pings = time::interval_at(time::Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// Returns whether the message was sent; a client that reads nothing for long counts as
/// disconnected.
pub(super) async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> bool {
    matches!(time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}

/// Closes the socket with a reason. Ignores errors, because the client may have disconnected.
pub(super) async fn close(sink: &mut SplitSink<WebSocket, Message>, code: u16, reason: &str) {
    // RFC 6455 §5.5: a control frame holds 125 bytes, two of them the code.
    let reason = reason.get(..reason.floor_char_boundary(120)).unwrap_or_default();
    let _gone = send(sink, Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
}
