//! Streams of events that survive the loss of their source node: later events are requested from
//! the subject's new node, from the last forwarded number on.
//!
//! # References
//! - <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, uri};
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use tokio::time;

use super::client::PeerTarget;
use super::forward::PeerForwarder;
use super::moved::SubjectMoved;
use super::request::ForwardedRequest;
use super::subject::{RequestSubject, SubjectOwner};
use crate::clock;
use crate::drain::DrainHandle;

/// Header with the number of the last event that a client has received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Query field with the same number.
const AFTER: &str = "after=";
/// Media type of a stream of events.
const EVENT_STREAM: &str = "text/event-stream";
/// Time for the subject of a stream to be taken over, before this node returns the stored events.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);
/// Time after which a stream that no node can continue ends.
const RESUME_MAX: Duration = Duration::from_secs(60);
/// Pause between two searches for its owner.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Request for events that is repeated when its answer breaks off.
pub(super) struct ResumedStream {
    forwarder: PeerForwarder,
    listener: &'static str,
    parts: Parts,
    origin: StreamOrigin,
    /// Shutdown of this node.
    drain: DrainHandle,
    body: BodyDataStream,
    reader: EventReader,
}

/// Origin of a stream.
pub(super) struct StreamOrigin {
    /// Source node; none for this one.
    pub(super) target: Option<PeerTarget>,
    /// Subject of the stream.
    pub(super) subject: RequestSubject,
    /// This node's own handlers.
    pub(super) next: Next,
}

impl ResumedStream {
    /// Returns whether the answer to a request can be resumed.
    pub(super) fn is_possible(
        subject: &RequestSubject,
        method: &Method,
        answer: &HeaderMap,
    ) -> bool {
        let media_type = answer.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        matches!(subject, RequestSubject::Session(_))
            && *method == Method::GET
            && media_type.is_some_and(|it| it.starts_with(EVENT_STREAM))
    }

    /// Returns an answer that continues when its node is lost.
    pub(super) fn answer(
        forwarder: PeerForwarder,
        origin: StreamOrigin,
        request: ForwardedRequest,
        answer: Response,
    ) -> Response {
        let (head, body) = answer.into_parts();
        let (parts, listener) = request.into_head();
        let drain = parts.extensions.get::<DrainHandle>().cloned().unwrap_or_default();
        let stream = ResumedStream {
            drain,
            forwarder,
            listener,
            parts,
            origin,
            body: body.into_data_stream(),
            reader: EventReader::default(),
        };
        let pieces = stream::try_unfold(stream, |mut stream| async move {
            Ok::<_, axum::Error>(stream.piece().await?.map(|piece| (piece, stream)))
        });
        Response::from_parts(head, Body::from_stream(pieces))
    }

    /// Returns the next whole events; none at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, axum::Error> {
        loop {
            let came = tokio::select! {
                came = self.body.next() => came,
                () = until_lost(&self.forwarder, self.origin.target.as_ref()) => {
                    Some(Err(axum::Error::new(NodeLost)))
                }
                // The client reconnects to another node, with the number of the last event that it
                // received.
                () = self.drain.begun() => return Ok(None),
            };
            match came {
                Some(Ok(bytes)) => {
                    if let Some(events) = self.reader.push(&bytes) {
                        return Ok(Some(events));
                    }
                }
                None => return Ok(self.reader.rest()),
                // An error of this node's own stream, which no other node could continue.
                Some(Err(error))
                    if self.origin.target.is_none() && !SubjectMoved::caused(&error) =>
                {
                    return Err(error);
                }
                Some(Err(error)) => {
                    tracing::info!(%error, "a stream of events broke off; it is gone on with");
                    self.reader.forget_part();
                    match self.resume().await {
                        Some(body) => self.body = body,
                        None => return Err(error),
                    }
                }
            }
        }
    }

    /// Requests the next events, wherever they are.
    async fn resume(&mut self) -> Option<BodyDataStream> {
        let broke = clock::now();
        loop {
            time::sleep(LOOK_PAUSE).await;
            let waited = clock::now().duration_since(broke);
            if waited >= RESUME_MAX || self.drain.is_draining() {
                return None;
            }
            self.origin.target = None;
            let answer = match self.forwarder.owner(&self.origin.subject).await {
                SubjectOwner::This => self.ask_here().await,
                SubjectOwner::Node(id) => match self.forwarder.address(&id) {
                    Some(target) => {
                        let sent = self.request().for_node(&target, Body::empty());
                        let answer = self.forwarder.send(&target, sent, false).await;
                        self.origin.target = Some(target);
                        answer.ok().map(|answer| answer.map(Body::new))
                    }
                    // Its node is lost, and no node has taken it over yet.
                    None if waited < TAKEOVER_MAX => None,
                    None => self.ask_here().await,
                },
                SubjectOwner::Other(_) => None,
            };
            let answer = answer.filter(|answer| answer.status() == StatusCode::OK);
            if let Some(answer) = answer {
                return Some(answer.into_body().into_data_stream());
            }
        }
    }

    /// Requests the events from this node's own handlers.
    fn ask_here(&self) -> impl Future<Output = Option<Response>> + Send + use<> {
        let (parts, _) = self.request().into_head();
        let request = axum::extract::Request::from_parts(parts, Body::empty());
        let next = self.origin.next.clone();
        async move { Some(next.run(request).await) }
    }

    /// Returns the request for the events after the last one.
    fn request(&self) -> ForwardedRequest {
        let mut parts = self.parts.clone();
        if let Some(last) = self.reader.last_id.as_ref() {
            parts.uri = without_after(&parts.uri);
            if let Ok(last) = HeaderValue::from_bytes(last) {
                parts.headers.insert(LAST_EVENT_ID, last);
            }
        }
        ForwardedRequest::without_body(parts, self.listener)
    }
}

/// Error of a stream whose node is lost.
#[derive(Debug, thiserror::Error)]
#[error("its node is lost")]
struct NodeLost;

async fn until_lost(forwarder: &PeerForwarder, target: Option<&PeerTarget>) {
    let Some(target) = target else { return std::future::pending().await };
    forwarder.membership().until_lost(&target.id, &target.incarnation).await;
}

/// Removes the number from a query, which would take precedence over the header.
fn without_after(uri: &Uri) -> Uri {
    let Some(query) = uri.query() else { return uri.clone() };
    let kept: Vec<_> = query.split('&').filter(|field| !field.starts_with(AFTER)).collect();
    let target = match kept.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), kept.join("&")),
    };
    let mut parts = uri::Parts::from(uri.clone());
    parts.path_and_query = target.parse().ok();
    Uri::from_parts(parts).unwrap_or_default()
}

/// Reader of events that arrive in pieces.
#[derive(Debug, Default)]
struct EventReader {
    /// Beginning of an incomplete event.
    part: BytesMut,
    /// Number of the last forwarded event.
    last_id: Option<Bytes>,
}

impl EventReader {
    /// Adds bytes, and returns the events that are complete now.
    fn push(&mut self, bytes: &[u8]) -> Option<Bytes> {
        // The end may have arrived with its first byte before.
        let from = self.part.len().saturating_sub(1);
        self.part.extend_from_slice(bytes);
        let unread = self.part.get(from..).unwrap_or_default();
        let end = from + unread.windows(2).rposition(|pair| pair == b"\n\n")? + 2;
        let whole = self.part.split_to(end).freeze();
        let mut lines = whole.rsplit(|byte| *byte == b'\n');
        if let Some(id) = lines.find_map(|line| line.strip_prefix(b"id:")) {
            self.last_id = Some(Bytes::copy_from_slice(id.trim_ascii()));
        }
        Some(whole)
    }

    /// Returns the remaining bytes at the end.
    fn rest(&mut self) -> Option<Bytes> {
        let rest = self.part.split().freeze();
        (!rest.is_empty()).then_some(rest)
    }

    fn forget_part(&mut self) {
        self.part.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes are cut, events are whole, and the last number is known.
    #[test]
    fn events_are_passed_on_whole() {
        let text = b"id: 4\ndata: a\n\n: beat\n\nevent: x\nid:5\ndata: b\n\nid: 6\ndata: cut";
        for cut in 1..text.len() {
            let mut reader = EventReader::default();
            let pieces: Vec<Bytes> =
                text.chunks(cut).filter_map(|piece| reader.push(piece)).collect();
            let whole = pieces.concat();
            assert_eq!(whole, text[..text.len() - b"id: 6\ndata: cut".len()], "{cut}");
            assert!(pieces.iter().all(|piece| piece.ends_with(b"\n\n")), "{cut}");
            assert_eq!(reader.last_id.as_deref(), Some(&b"5"[..]));
            reader.forget_part();
            assert_eq!(reader.rest(), None);
        }
    }

    #[test]
    fn the_number_of_the_query_is_that_of_the_header() {
        for (before, after) in [
            ("/a", "/a"),
            ("/a?after=1", "/a"),
            ("/a?types=x&after=12&limit=2", "/a?types=x&limit=2"),
            ("http://h/a?after=1", "http://h/a"),
        ] {
            assert_eq!(without_after(&before.parse().unwrap()).to_string(), after);
        }
    }
}
