//! `/v1/executions/{id}/events`: server-sent events, or a WebSocket if one is requested.
//!
//! Both send every event as one JSON object with its sequence number. A WebSocket also accepts
//! [`ClientMessage`]s; an interactive execution is attached to the first one that connects, and
//! ends with it. `attach=true` attaches any other execution in the same way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::{ClientMessage, ExecutionEvent, ExecutionId};
use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::extract::{FromRequestParts as _, Request, State, WebSocketUpgrade};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::{self, SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http;
use sandbox::{ProgramControl, TerminalDimensions};
use serde::Deserialize;
use tokio::time;

use super::ExecutionIdPath;
use crate::answers::AnswerDocument;
use crate::events::ExecutionLog;
use crate::jobs::{CallerAttachment, ExecutionSubscription, Jobs, is_interactive};
use crate::queue::JobParts;
use crate::verdict;

/// Interval at which a comment or a ping shows that the connection is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Time after which a client that does not read a message counts as disconnected. A program that it
/// is attached to has its own wall limit.
const SEND_TIMEOUT: Duration = Duration::from_secs(300);
/// Largest message of a client.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of input that wait for a program that does not read. Beyond them, the socket is
/// not read.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// Size of a chunk of input in addition to its bytes, so that a flood of short ones is bounded,
/// too.
const CHUNK_BYTES: usize = 64;
/// Close code for data that is not a message (RFC 6455 §7.4.2: private use).
const CLOSE_MALFORMED: u16 = 4400;
/// Close code when another client is attached.
const CLOSE_CONFLICT: u16 = 4409;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FollowQuery {
    /// Number of the last event that the client has seen.
    after: Option<u64>,
    /// True if the execution ends with this connection.
    attach: bool,
}

/// `GET /v1/executions/{id}/events`.
pub(super) async fn events(
    State(jobs): State<Jobs>,
    who: TokenPrincipal,
    drain: DrainHandle,
    ExecutionIdPath(id): ExecutionIdPath,
    request: Request,
) -> Result<Response, http::HttpError> {
    let following: FollowQuery = http::query(request.uri())?;
    let after = match following.after {
        Some(after) => after,
        None => http::last_event_id(request.headers())?.unwrap_or(0),
    };
    let tenant = Arc::clone(&who.token_id);
    let (mut parts, _body) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    // Only a WebSocket needs to know whether it is interactive.
    let wanted = JobParts { request: upgrade.is_ok(), result: false };
    let job = jobs.job(&tenant, &id, wanted).await?;
    let subscription = jobs.follow(&job, after);
    let Ok(upgrade) = upgrade else {
        if following.attach {
            let message = "an execution can be attached to a WebSocket only";
            return Err(http::HttpError::new(api::ErrorCode::UpgradeRequired, message).at("attach"));
        }
        return Ok(server_sent(subscription, drain));
    };
    let attach = following.attach || job.request.as_deref().is_some_and(is_interactive);
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let attachment = match attach && !job.state.is_final() {
            false => None,
            true => match jobs.attach(&id, after) {
                Ok(attachment) => Some(attachment),
                Err(error) => return close(socket, CLOSE_CONFLICT, &error.to_string()).await,
            },
        };
        let attached = attachment.is_some();
        let incoming =
            ClientMessages { jobs: jobs.clone(), tenant: Arc::clone(&tenant), id: id.clone() };
        Box::pin(talk(socket, incoming, subscription, attachment, drain)).await;
        if attached {
            // Also cancels an execution that has not started. If it has ended already, that is
            // fine.
            let _ended = jobs.cancel(&tenant, &id).await;
        }
    }))
}

fn server_sent(subscription: ExecutionSubscription, drain: DrainHandle) -> Response {
    let following = EventFeed { subscription, drain, events: VecDeque::new(), open: None };
    let pieces = stream::unfold(following, |mut following| async move {
        let piece = following.next().await?;
        Some((Ok::<_, Infallible>(piece), following))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies must forward events without buffering.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

/// Server-sent events of one client, encoded one by one as it reads them.
struct EventFeed {
    subscription: ExecutionSubscription,
    drain: DrainHandle,
    events: VecDeque<Arc<ExecutionEvent>>,
    /// The rest of the event that is being sent.
    open: Option<AnswerDocument>,
}

impl EventFeed {
    /// Returns the next piece of an event, or a heartbeat; `None` after the last event.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.open.as_mut().and_then(AnswerDocument::next_piece) {
                return Some(piece);
            }
            self.open = None;
            if let Some(event) = self.events.pop_front() {
                self.open = as_sse(&event);
                continue;
            }
            // A client that only follows reconnects to the next server, with the number that it has
            // seen.
            let events = tokio::select! {
                events = self.subscription.next() => events?,
                () = self.drain.begun() => return None,
                () = time::sleep(HEARTBEAT) => return Some(Bytes::from_static(b":\n\n")),
            };
            self.events = events.into();
        }
    }
}

/// Encodes an event as a server-sent event.
fn as_sse(event: &ExecutionEvent) -> Option<AnswerDocument> {
    let before = format!("id: {}\nevent: {}\ndata: ", event.seq, event.kind.name());
    // JSON has no line ends outside of its strings, and escapes those within.
    AnswerDocument::between(&before, event, "\n\n").ok()
}

/// Closes the socket with a reason. Ignores errors, because the client may have disconnected.
async fn close(mut socket: WebSocket, code: u16, reason: &str) {
    let _gone = time::timeout(SEND_TIMEOUT, socket.send(goodbye(code, reason))).await;
}

fn goodbye(code: u16, reason: &str) -> Message {
    // RFC 6455 §5.5: a control frame holds 125 bytes, two of them the code.
    let mut reason = reason.to_owned();
    while reason.len() > 120 {
        reason.pop();
    }
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Why a conversation is over.
enum ConversationEnd {
    /// The last event was sent.
    Done,
    /// The client has disconnected.
    Gone,
    /// The server shuts down.
    Away,
    /// The client sent data that is not a valid message.
    Malformed(String),
}

/// Sends events and receives messages, concurrently.
async fn talk(
    socket: WebSocket,
    incoming: ClientMessages,
    subscription: ExecutionSubscription,
    mut attachment: Option<CallerAttachment>,
    drain: DrainHandle,
) {
    let attached = attachment.is_some();
    let away = async {
        // An attached execution may run to its end during the drain; other clients reconnect.
        if attached {
            drain.cancelled().await
        } else {
            drain.begun().await
        }
        ConversationEnd::Away
    };
    let (mut sink, stream) = socket.split();
    let log = attachment.as_ref().map(CallerAttachment::log);
    let over = tokio::select! {
        over = send_events(&mut sink, subscription, log) => over,
        over = incoming.run(stream, attachment.as_mut()) => over,
        over = away => over,
    };
    // Before the close frame, which a client may leave unread.
    drop(attachment);
    let goodbye = match over {
        ConversationEnd::Done => goodbye(close_code::NORMAL, ""),
        ConversationEnd::Away => goodbye(close_code::AWAY, "the server shuts down"),
        ConversationEnd::Malformed(why) => goodbye(CLOSE_MALFORMED, &why),
        ConversationEnd::Gone => return,
    };
    let _gone = send(&mut sink, goodbye).await;
}

/// Sends every event, and regular pings.
async fn send_events(
    sink: &mut SplitSink<WebSocket, Message>,
    mut subscription: ExecutionSubscription,
    log: Option<Arc<ExecutionLog>>,
) -> ConversationEnd {
    // Not at once: a client that answers a ping of a socket that was closed meanwhile gets an
    // error, and then does not read the remaining events.
    let mut heartbeat = time::interval_at(time::Instant::now() + HEARTBEAT, HEARTBEAT);
    loop {
        tokio::select! {
            events = subscription.next() => {
                let Some(events) = events else { return ConversationEnd::Done };
                for event in &events {
                    let text = serde_json::to_string(&**event).unwrap_or_default();
                    if !send(sink, Message::Text(text.into())).await {
                        return ConversationEnd::Gone;
                    }
                }
                if let Some(log) = &log {
                    log.acknowledge(&events);
                }
            }
            _ = heartbeat.tick() => {
                if !send(sink, Message::Ping(Vec::new().into())).await {
                    return ConversationEnd::Gone;
                }
            }
        }
    }
}

/// Returns whether the message was sent; a client that reads nothing for long counts as
/// disconnected.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> bool {
    matches!(time::timeout(SEND_TIMEOUT, sink.send(message)).await, Ok(Ok(())))
}

/// Receiver of messages from the client.
struct ClientMessages {
    jobs: Jobs,
    tenant: Arc<str>,
    id: ExecutionId,
}

/// Input that waits for the program, in order.
#[derive(Default)]
struct PendingInput {
    /// Chunks of input, none of them empty.
    input: VecDeque<Vec<u8>>,
    /// Size of the chunks, with [`CHUNK_BYTES`] for each.
    bytes: usize,
    /// True if the end of input follows them.
    ended: bool,
}

impl ClientMessages {
    async fn run(
        self,
        mut stream: SplitStream<WebSocket>,
        mut attachment: Option<&mut CallerAttachment>,
    ) -> ConversationEnd {
        let mut pending = PendingInput::default();
        loop {
            tokio::select! {
                message = stream.next(), if pending.bytes < PENDING_BYTES_MAX => {
                    let taken = match message {
                        None | Some(Err(_) | Ok(Message::Close(_))) => return ConversationEnd::Gone,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                        // Bytes for standard input, unchanged.
                        Some(Ok(Message::Binary(bytes))) => {
                            pending.push(bytes.to_vec());
                            Ok(())
                        }
                        Some(Ok(Message::Text(text))) => {
                            self.take(text.as_str(), &mut pending, attachment.as_deref()).await
                        }
                    };
                    if let Err(why) = taken {
                        return ConversationEnd::Malformed(why);
                    }
                    if attachment.is_none() {
                        // The program no longer reads it.
                        pending = PendingInput::default();
                    }
                }
                () = pending.hand_on(attachment.as_deref_mut()) => {}
            }
        }
    }

    async fn take(
        &self,
        text: &str,
        pending: &mut PendingInput,
        attachment: Option<&CallerAttachment>,
    ) -> Result<(), String> {
        let message: ClientMessage =
            http::parse_json("the message", text.as_bytes()).map_err(|error| error.to_string())?;
        let control = match message {
            ClientMessage::Stdin { data: Some(text), data_base64: None } => {
                pending.push(text.into_bytes());
                return Ok(());
            }
            ClientMessage::Stdin { data: None, data_base64: Some(text) } => {
                let bytes = BASE64.decode(text).map_err(|error| format!("data_base64: {error}"))?;
                pending.push(bytes);
                return Ok(());
            }
            ClientMessage::Stdin { .. } => {
                return Err("exactly one of data and data_base64 is needed".to_owned());
            }
            ClientMessage::Eof => {
                pending.ended = true;
                return Ok(());
            }
            ClientMessage::Cancel => {
                // An execution that has ended meanwhile needs no cancellation.
                let _ended = self.jobs.cancel(&self.tenant, &self.id).await;
                return Ok(());
            }
            // Accepts names with or without `SIG`.
            ClientMessage::Signal { signal } => match verdict::signal_number(&signal)
                .or_else(|| verdict::signal_number(&format!("SIG{signal}")))
            {
                Some(number) => ProgramControl::Signal(number),
                None => return Err(format!("there is no signal {signal:.20}")),
            },
            // Events need no acknowledgement.
            ClientMessage::Ack { .. } => return Ok(()),
            ClientMessage::Resize(size) => {
                ProgramControl::Resize(TerminalDimensions { rows: size.rows, cols: size.cols })
            }
        };
        if let Some(attachment) = attachment {
            attachment.control(control);
        }
        Ok(())
    }
}

impl PendingInput {
    /// Adds input; input after the end is dropped.
    fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() && !self.ended {
            self.bytes += bytes.len() + CHUNK_BYTES;
            self.input.push_back(bytes);
        }
    }

    /// Passes the first chunk to the program, or the end; waits while there is neither.
    /// Cancel-safe.
    async fn hand_on(&mut self, attachment: Option<&mut CallerAttachment>) {
        match (attachment, self.input.front()) {
            (Some(attachment), Some(first)) => {
                let Some(room) = attachment.room().await else {
                    // A program may close its input.
                    *self = PendingInput { ended: self.ended, ..PendingInput::default() };
                    return;
                };
                self.bytes -= first.len() + CHUNK_BYTES;
                if let Some(first) = self.input.pop_front() {
                    room.send(first);
                }
            }
            (Some(attachment), None) if self.ended && attachment.is_open() => {
                attachment.close_stdin();
            }
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flood_of_short_input_is_free() {
        let mut pending = PendingInput::default();
        for _ in 0..1000 {
            pending.push(Vec::new());
        }
        assert_eq!((pending.input.len(), pending.bytes), (0, 0));
        for _ in 0..PENDING_BYTES_MAX / CHUNK_BYTES {
            pending.push(vec![b'x']);
        }
        assert!(pending.bytes >= PENDING_BYTES_MAX);
        pending.ended = true;
        let count = pending.input.len();
        pending.push(vec![b'y']);
        assert_eq!(pending.input.len(), count);
    }
}
