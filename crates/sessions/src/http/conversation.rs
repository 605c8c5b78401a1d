//! Messages, and the streams of their events.
//!
//! The answer to a message is the stream of its turn, which always ends with `done`. If the server
//! shuts down before the turn ends, an `error` precedes the `done`, and a client that reconnects
//! finds the rest at `…/events`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::{
    InterruptAnswer, MessageAnswer, MessageRequest, SessionEvent, SessionEventKind,
    SessionEventList, SessionLogLine, SessionLogs, SessionMessage, SessionMessageList,
};
use axum::BoxError;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use node::auth::TokenPrincipal;
use node::clock;
use node::cluster::SubjectMoved;
use node::drain::DrainHandle;
use node::http::{self, JsonBody, last_event_id, query};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SessionIdPath, accepts, page_size};
use crate::service::{AgentLogLine, ConversationMessage, EventStream, MessageStream, Sessions};

/// Interval at which a comment shows that the connection is alive.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Default and maximum number of events or messages on a page.
const PAGE_DEFAULT: usize = 200;
const PAGE_MAX: usize = 1000;
/// Error of a turn that continues elsewhere or was ended without this subscriber.
const SERVER_GONE: &str = "the server shuts down; `events` has the rest once it is back";
const TURN_LOST: &str = "the session is not on this server any more; `events` has the rest";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TurnWaitQuery {
    /// True to answer once the turn has ended.
    wait: bool,
}

pub(super) async fn send(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
    drain: DrainHandle,
    JsonBody(request): JsonBody<MessageRequest>,
) -> Result<Response, http::HttpError> {
    let TurnWaitQuery { wait } = query(&uri)?;
    let partial = request.partial;
    let stream = sessions.conversations()?.send(&who.tenant, &id, request).await?;
    if wait {
        return Ok(axum::Json(answer(stream).await).into_response());
    }
    Ok(server_sent(turn_events(stream, drain, partial)))
}

/// Waits for the end of a turn.
async fn answer(mut stream: MessageStream) -> MessageAnswer {
    let mut answer = MessageAnswer {
        session: stream.session().to_owned(),
        turn: stream.turn().to_owned(),
        ..MessageAnswer::default()
    };
    let mut is_done = false;
    while let Some(events) = stream.next().await {
        for event in events {
            answer.seq = event.seq;
            is_done |= event.kind == SessionEventKind::Done;
            note(&mut answer, &event);
        }
    }
    if !is_done {
        answer.is_error = true;
        answer.error.get_or_insert_with(|| TURN_LOST.to_owned());
    }
    answer
}

/// Records an event's contribution to the answer.
fn note(answer: &mut MessageAnswer, event: &SessionEvent) {
    let data = &event.data;
    match event.kind {
        SessionEventKind::Text => {
            // The last text is the result, for agents whose result has no text.
            if let Some(text) = data.get("text").and_then(Value::as_str) {
                answer.result = Some(text.to_owned());
            }
        }
        SessionEventKind::TurnComplete => {
            if let Some(text) = data.get("result").and_then(Value::as_str) {
                answer.result = Some(text.to_owned());
            }
            answer.is_error |= data.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            answer.num_turns = data.get("num_turns").and_then(Value::as_u64);
            answer.usage = data.get("usage").filter(|usage| !usage.is_null()).cloned();
            answer.cost_usd = data.get("cost_usd").and_then(Value::as_f64);
            answer.duration_ms = data.get("duration_ms").and_then(Value::as_u64);
        }
        SessionEventKind::Error => {
            answer.is_error = true;
            let error = data.get("error").and_then(Value::as_str).unwrap_or_default();
            answer.error = Some(error.to_owned());
        }
        SessionEventKind::TurnStart
        | SessionEventKind::TextDelta
        | SessionEventKind::ThinkingDelta
        | SessionEventKind::InputJsonDelta
        | SessionEventKind::Reasoning
        | SessionEventKind::ToolUse
        | SessionEventKind::ToolResult
        | SessionEventKind::Message
        | SessionEventKind::Done
        | SessionEventKind::Lifecycle => {}
    }
}

/// Returns the events of one turn, up to its `done`.
fn turn_events(
    stream: MessageStream,
    drain: DrainHandle,
    partial: bool,
) -> impl Stream<Item = Result<sse::Event, Infallible>> + Send {
    let state = Some((stream, drain, 0));
    let batches = stream::unfold(state, move |state| async move {
        let (mut stream, drain, last) = state?;
        let events = tokio::select! {
            biased;
            events = stream.next() => events.ok_or(TURN_LOST),
            // The drain time for turns is over.
            () = drain.cancelled() => Err(SERVER_GONE),
        };
        match events {
            Ok(events) => {
                let last = events.last().map_or(last, |event| event.seq);
                let is_done = events.iter().any(|it| it.kind == SessionEventKind::Done);
                let shown = events.iter().filter(|event| partial || !event.kind.is_partial());
                let shown: Vec<_> = shown.map(|event| Ok(as_sse(event))).collect();
                Some((shown, (!is_done).then_some((stream, drain, last))))
            }
            Err(why) => {
                let farewell = farewell(&stream, last, why);
                Some((farewell.iter().map(|event| Ok(without_id(event))).collect(), None))
            }
        }
    });
    futures_util::StreamExt::flat_map(batches, stream::iter)
}

/// Returns the events that end the stream of an unfinished turn. They are not in the log, so they
/// carry the number of its last event, and no id.
fn farewell(stream: &MessageStream, seq: u64, why: &str) -> [SessionEvent; 2] {
    let event = |kind, data| SessionEvent {
        seq,
        at_ms: clock::wall_ms(),
        turn: Some(stream.turn().to_owned()),
        kind,
        data,
    };
    [
        event(SessionEventKind::Error, json!({ "error": why })),
        event(SessionEventKind::Done, json!({})),
    ]
}

fn as_sse(event: &SessionEvent) -> sse::Event {
    without_id(event).id(event.seq.to_string())
}

fn without_id(event: &SessionEvent) -> sse::Event {
    let text = serde_json::to_string(event).unwrap_or_default();
    sse::Event::default().event(event.kind.as_str()).data(text)
}

/// Returns a response of server-sent events, with periodic keep-alive comments.
pub(super) fn server_sent<E: Into<BoxError> + 'static>(
    events: impl Stream<Item = Result<sse::Event, E>> + Send + 'static,
) -> Response {
    let answer = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    // Prevents proxies from buffering events.
    ([("x-accel-buffering", "no")], answer).into_response()
}

pub(super) async fn interrupt(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
) -> Result<axum::Json<InterruptAnswer>, http::HttpError> {
    let interrupted = sessions.conversations()?.interrupt(&who.tenant, &id).await?;
    Ok(axum::Json(InterruptAnswer { interrupted }))
}

/// Query for a session's events or messages.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventFollowQuery {
    /// Number of the last event seen.
    after: Option<u64>,
    /// Names of the requested events, separated by commas.
    types: Option<String>,
    /// Maximum number of entries on a page.
    limit: Option<usize>,
}

const KINDS: [SessionEventKind; 13] = [
    SessionEventKind::TurnStart,
    SessionEventKind::TextDelta,
    SessionEventKind::ThinkingDelta,
    SessionEventKind::InputJsonDelta,
    SessionEventKind::Text,
    SessionEventKind::Reasoning,
    SessionEventKind::ToolUse,
    SessionEventKind::ToolResult,
    SessionEventKind::Message,
    SessionEventKind::TurnComplete,
    SessionEventKind::Error,
    SessionEventKind::Done,
    SessionEventKind::Lifecycle,
];

/// Parses the kinds of a filter; empty means all.
pub(super) fn kinds(names: Option<&str>) -> Result<Vec<SessionEventKind>, http::HttpError> {
    let kind = |name: &str| {
        KINDS.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| {
            let message = format!(
                "there is no type {:?}; there are {}",
                name.chars().take(64).collect::<String>(),
                KINDS.map(SessionEventKind::as_str).join(", ")
            );
            http::HttpError::invalid(message).at("types")
        })
    };
    names.map_or_else(|| Ok(Vec::new()), |names| names.split(',').map(kind).collect())
}

pub(super) async fn events(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
    headers: HeaderMap,
    drain: DrainHandle,
) -> Result<Response, http::HttpError> {
    let following: EventFollowQuery = query(&uri)?;
    let kinds = kinds(following.types.as_deref())?;
    let after = match following.after {
        Some(after) => after,
        None => last_event_id(&headers)?.unwrap_or(0),
    };
    if accepts(&headers, "application/json") {
        let limit = page_size(following.limit, PAGE_DEFAULT, PAGE_MAX)?;
        let events =
            sessions.conversations()?.event_page(&who.tenant, &id, after, limit, kinds).await?;
        let next_after = (events.len() == limit).then(|| events.last().map(|last| last.seq));
        let page = SessionEventList { next_after: next_after.flatten(), events };
        return Ok(axum::Json(page).into_response());
    }
    if following.limit.is_some() {
        let message = "is for pages: request them with `accept: application/json`";
        return Err(http::HttpError::invalid(message).at("limit"));
    }
    let stream = sessions.conversations()?.events(&who.tenant, &id, after).await?;
    Ok(server_sent(session_events(stream, drain, kinds)))
}

/// Returns all events of a session, until it ends or the server shuts down. The stream breaks off
/// when another server takes the session over.
fn session_events(
    stream: EventStream,
    drain: DrainHandle,
    kinds: Vec<SessionEventKind>,
) -> impl Stream<Item = Result<sse::Event, SubjectMoved>> + Send {
    let state = Some((stream, drain, kinds));
    let batches = stream::unfold(state, |state| async move {
        let (mut stream, drain, kinds) = state?;
        // A client that only watches reconnects to the next server, with its last number.
        let events = tokio::select! {
            events = stream.next() => events,
            () = drain.begun() => return None,
        };
        let events: Vec<Arc<SessionEvent>> = match events {
            Ok(events) => events?,
            Err(moved) => return Some((vec![Err(moved)], None)),
        };
        let wanted = events.iter().filter(|it| kinds.is_empty() || kinds.contains(&it.kind));
        let wanted: Vec<_> = wanted.map(|event| Ok(as_sse(event))).collect();
        Some((wanted, Some((stream, drain, kinds))))
    });
    futures_util::StreamExt::flat_map(batches, stream::iter)
}

/// Query for a conversation.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MessageListQuery {
    after: u64,
    limit: Option<usize>,
}

pub(super) async fn messages(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
) -> Result<axum::Json<SessionMessageList>, http::HttpError> {
    let MessageListQuery { after, limit } = query(&uri)?;
    let limit = page_size(limit, PAGE_DEFAULT, PAGE_MAX)?;
    let messages = sessions.conversations()?.messages(&who.tenant, &id, after, limit).await?;
    let next_after = (messages.len() == limit).then(|| messages.last().map(|last| last.seq));
    let message = |it: ConversationMessage| SessionMessage {
        seq: it.seq,
        at_ms: it.at_ms,
        turn: it.turn,
        role: it.role,
        content: it.content,
    };
    let messages = messages.into_iter().map(message).collect();
    Ok(axum::Json(SessionMessageList { messages, next_after: next_after.flatten() }))
}

/// Query for lines of a log.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LogLinesQuery {
    /// Number of the first line.
    from: u64,
}

pub(super) async fn logs(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
) -> Result<axum::Json<SessionLogs>, http::HttpError> {
    let LogLinesQuery { from } = query(&uri)?;
    let lines = sessions.conversations()?.logs(&who.tenant, &id, from).await?;
    let next = lines.last().map_or(from, |last| last.index + 1);
    let line = |it: AgentLogLine| SessionLogLine {
        index: it.index,
        level: it.level.as_str().to_owned(),
        text: it.text,
        at_ms: it.at_ms,
    };
    Ok(axum::Json(SessionLogs { lines: lines.into_iter().map(line).collect(), next }))
}
