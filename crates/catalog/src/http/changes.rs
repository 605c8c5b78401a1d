//! Changes: a page of them as JSON, or a stream, as server-sent events or on a WebSocket.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::extract::{FromRequestParts as _, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use futures_util::{SinkExt as _, StreamExt as _};
use iceberg::ident::TableIdent;
use node::clock;
use node::drain::DrainHandle;
use node::http::last_event_id;
use serde::Serialize;
use tokio::time;

use super::answer;
use super::request::CatalogRequest;
use crate::access::AccessControl;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{CHANGES_DEFAULT, CHANGES_MAX, CatalogChange, ChangeFilter, ChangeStream};
use crate::shell::from_shell;

/// Interval between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Interval at which a follower is authenticated again: revocation of its credential ends the
/// stream.
const IDENTIFY_INTERVAL: Duration = Duration::from_millis(500);

/// Time for which a follower on a WebSocket may leave changes unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for sending the close frame.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest message from a follower, in bytes: its content is ignored.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Close code of a WebSocket if the log does not reach back so far (RFC 6455 §7.4.2: private use):
/// 4000 plus the HTTP status 410.
const CLOSE_GONE: u16 = 4410;

/// Value that requests new changes only.
const LATEST: &str = "latest";

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ChangePageQuery {
    changes: Vec<CatalogChange>,
    /// Value of `after` for the next request.
    next_after: i64,
    more: bool,
    oldest: i64,
    newest: i64,
}

/// Reason why a stream of events ends.
#[derive(Serialize)]
struct StreamEndReason<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    code: u16,
}

pub(super) async fn changes(input: &CatalogRequest<'_>) -> Result<Response> {
    let catalog = &input.context.catalog;
    let warehouse = input.warehouse()?;
    let namespace = input.query("namespace")?.map(|text| input.split(text)).transpose()?;
    let ident = match (input.query("table")?, &namespace) {
        (Some(name), Some(namespace)) => Some(TableIdent::new(namespace.clone(), name)?),
        (Some(_), None) => {
            return Err(CatalogError::new(ErrorReason::BadRequest, "`table` needs a `namespace`"));
        }
        (None, _) => None,
    };
    let filter = ChangeFilter { namespace, ident };
    let after = after(input).await?;
    let is_socket = input.parts.headers.contains_key(header::UPGRADE);
    if !is_socket && !wants_events(input) {
        let limit = limit(input)?;
        let found =
            catalog.changes().changes(&input.who, &warehouse, &filter, after, limit).await?;
        return answer::of(&ChangePageQuery {
            changes: found.changes,
            next_after: found.next_after,
            more: found.is_more,
            oldest: found.bounds.oldest,
            newest: found.bounds.newest,
        });
    }
    let drain = input.parts.extensions.get::<DrainHandle>().cloned();
    let drain =
        drain.ok_or_else(|| CatalogError::internal("changes are routed outside of the shell"))?;
    if !is_socket {
        let follow = catalog.changes().follow(&input.who, &warehouse, filter, after).await?;
        return Ok(server_sent(ChangeFollower::new(input, follow, drain)));
    }
    let mut parts = input.parts.clone();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade =
        upgrade.map_err(|error| CatalogError::new(ErrorReason::BadRequest, error.to_string()))?;
    let follow = catalog.changes().follow(&input.who, &warehouse, filter, after).await?;
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    let follower = ChangeFollower::new(input, follow, drain);
    Ok(upgrade.on_upgrade(move |socket| talk(socket, follower)))
}

/// Returns the number after which changes are requested: from the query, or the id of the last
/// received event.
async fn after(input: &CatalogRequest<'_>) -> Result<Option<i64>> {
    let Some(text) = input.query("after")? else {
        let last = last_event_id(&input.parts.headers).map_err(|error| from_shell(&error))?;
        let refuse = |_| {
            CatalogError::new(
                ErrorReason::BadRequest,
                "`Last-Event-ID` is not the number of a change",
            )
        };
        return last.map(i64::try_from).transpose().map_err(refuse);
    };
    if text == LATEST {
        return input.context.catalog.changes().last_change().await.map(Some);
    }
    let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
    let refuse = || {
        CatalogError::new(ErrorReason::BadRequest, "`after` is the number of a change, or `latest`")
    };
    number.ok_or_else(refuse).map(Some)
}

fn limit(input: &CatalogRequest<'_>) -> Result<usize> {
    let Some(text) = input.query("limit")? else { return Ok(CHANGES_DEFAULT) };
    let limit = text.parse::<usize>().ok().filter(|limit| (1..=CHANGES_MAX).contains(limit));
    limit.ok_or_else(|| {
        CatalogError::new(
            ErrorReason::BadRequest,
            format!("`limit` is a number from 1 to {CHANGES_MAX}"),
        )
    })
}

fn wants_events(input: &CatalogRequest<'_>) -> bool {
    let values = input.parts.headers.get_all(header::ACCEPT).iter();
    let mut kinds = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    kinds.any(|it| {
        let kind = it.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/event-stream")
    })
}

/// Reason why the server ends a stream.
enum ChangeStreamEnd {
    /// The client should reconnect, here or elsewhere.
    Later,
    /// A rejection that a retry would repeat.
    Refused(CatalogError),
}

/// Follower of changes, for as long as its credential is valid.
struct ChangeFollower {
    follow: ChangeStream,
    drain: DrainHandle,
    access: AccessControl,
    headers: HeaderMap,
    /// Time of the next authentication.
    due: Instant,
}

impl ChangeFollower {
    fn new(input: &CatalogRequest<'_>, follow: ChangeStream, drain: DrainHandle) -> ChangeFollower {
        let (access, headers) = (input.context.access.clone(), input.parts.headers.clone());
        ChangeFollower { follow, drain, access, headers, due: clock::now() + IDENTIFY_INTERVAL }
    }

    /// Returns the next changes, or the reason for the end. Dropping the future postpones nothing:
    /// no change is sent while an authentication is due.
    async fn next(&mut self) -> std::result::Result<Vec<CatalogChange>, ChangeStreamEnd> {
        loop {
            if clock::now() >= self.due {
                let who =
                    self.access.identify(&self.headers).await.map_err(ChangeStreamEnd::Refused)?;
                self.follow.set_who(who);
                self.due = clock::now() + IDENTIFY_INTERVAL;
            }
            let changes = tokio::select! {
                changes = self.follow.next() => changes.map_err(ChangeStreamEnd::Refused)?,
                () = self.drain.begun() => None,
                () = time::sleep_until(self.due.into()) => continue,
            };
            return changes.ok_or(ChangeStreamEnd::Later);
        }
    }
}

fn server_sent(follower: ChangeFollower) -> Response {
    let answer = Sse::new(events(follower)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    // Proxies must not buffer events.
    ([("x-accel-buffering", "no")], answer).into_response()
}

fn events(
    follower: ChangeFollower,
) -> impl Stream<Item = std::result::Result<sse::Event, Infallible>> + Send {
    let batches = stream::unfold(Some(follower), |state| async move {
        let mut follower = state?;
        match follower.next().await {
            Ok(changes) => {
                let events: Vec<_> = changes.iter().map(|it| Ok(event(it))).collect();
                Some((events, Some(follower)))
            }
            Err(ChangeStreamEnd::Later) => None,
            Err(ChangeStreamEnd::Refused(error)) => {
                let (kind, code) = (error.kind.name(), error.kind.status());
                let farewell = StreamEndReason { message: &error.message, kind, code };
                let text = serde_json::to_string(&farewell).unwrap_or_default();
                Some((vec![Ok(sse::Event::default().event("error").data(text))], None))
            }
        }
    });
    batches.flat_map(stream::iter)
}

fn event(change: &CatalogChange) -> sse::Event {
    let text = serde_json::to_string(change).unwrap_or_default();
    sse::Event::default().event("change").id(change.seq.to_string()).data(text)
}

/// Sends changes until one side closes the socket, and sends the reason if it is this one.
async fn talk(socket: WebSocket, mut follower: ChangeFollower) {
    let (mut sink, mut source) = socket.split();
    // Not immediately: a socket that was closed meanwhile would be reported as broken.
    let mut beat = time::interval_at(time::Instant::now() + HEARTBEAT, HEARTBEAT);
    let (code, reason) = loop {
        let messages = tokio::select! {
            next = follower.next() => match next {
                Ok(changes) => changes.iter().map(text).collect(),
                Err(ChangeStreamEnd::Later) => {
                    break (close_code::AWAY, format!("come back with after={}", follower.follow.after()));
                }
                Err(ChangeStreamEnd::Refused(error)) => break (closing(error.kind), error.message),
            },
            _ = beat.tick() => vec![Message::Ping(bytes::Bytes::new())],
            message = source.next() => match message {
                // Its close frame is answered.
                Some(Ok(Message::Close(_))) => {
                    drop(time::timeout(GOODBYE_TIMEOUT, sink.close()).await);
                    return;
                }
                Some(Err(_)) | None => return,
                // Other messages of a follower are ignored; pings are answered below.
                Some(Ok(_)) => Vec::new(),
            },
        };
        let sent = async {
            for message in messages {
                sink.feed(message).await?;
            }
            sink.flush().await
        };
        match time::timeout(SEND_TIMEOUT, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                // The numbers of the received changes say where to continue.
                break (close_code::AGAIN, "too slow: come back with the last number".to_owned());
            }
        }
    };
    // A reason has at most 123 bytes (RFC 6455 §5.5).
    let reason: String = reason.chars().take(40).collect();
    let farewell = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    // A client that does not read it is disconnected.
    drop(time::timeout(GOODBYE_TIMEOUT, sink.send(farewell)).await);
}

fn text(change: &CatalogChange) -> Message {
    Message::text(serde_json::to_string(change).unwrap_or_default())
}

fn closing(kind: ErrorReason) -> u16 {
    match kind {
        ErrorReason::Gone => CLOSE_GONE,
        ErrorReason::Forbidden
        | ErrorReason::NotAuthorized
        | ErrorReason::AuthenticationTimeout => close_code::POLICY,
        _ => close_code::ERROR,
    }
}
