//! Responses that outlast their handler: WebSockets, events, bodies of unknown length.
//!
//! Each counts as work until its last byte, so that a drain waits for it, and holds one of a
//! limited number of places. When the drain cancels work, bodies end where they are, which HTTP
//! shows as their regular end; WebSockets are notified by the [`DrainHandle`] that their handlers
//! can extract, and are cut if they ignore it. When the credential of the request is revoked, both
//! are cut in the middle, so that no client takes the partial answer for a complete one.
//!
//! # References
//! - <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::ErrorCode;
use axum::body::{Body, HttpBody};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::credential::CredentialBinding;
use super::error::HttpError;
use super::room::AnsweringRequest;
use super::shares::{Share, ShareOwner, ShareRefusal, Shares};
use crate::drain::{DrainHandle, WorkInProgress};
use crate::telemetry::{HttpMetrics, InFlight};

/// Maximum size of an answer of known length that is sent in one piece.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;

/// Multiple of the free streams that a caller may have.
const STREAMS_WEIGHT: usize = 3;

/// Bytes of an answer that are passed to the connection at once.
const PART_BYTES_MAX: usize = 256 << 10;

/// Places for answers that outlast their handler.
#[derive(Debug)]
pub(super) struct StreamPlaces {
    places: Arc<Shares>,
    streams_max: usize,
    metrics: HttpMetrics,
}

/// A place for a stream, which counts the stream in the metrics.
#[derive(Debug)]
pub(super) struct StreamPlace {
    _share: Share,
    _counted: InFlight,
}

/// State that a connection keeps while a handler has taken it over.
#[derive(Clone, Debug)]
pub(crate) struct UpgradedRequest(Arc<UpgradedRequestState>);

#[derive(Debug)]
struct UpgradedRequestState {
    _place: StreamPlace,
    _working: Option<WorkInProgress>,
    binding: CredentialBinding,
}

impl UpgradedRequest {
    /// Returns when the connection has to end.
    pub(crate) async fn revoked(&self) {
        self.0.binding.revoked().await;
    }
}

/// Conditions that end an answer early, and guards that wait for its end.
pub(super) struct StreamEnds<'a> {
    pub(super) caller: ShareOwner,
    pub(super) answering: Option<Arc<AnsweringRequest>>,
    pub(super) working: Option<WorkInProgress>,
    pub(super) binding: CredentialBinding,
    pub(super) drain: &'a DrainHandle,
}

impl StreamPlaces {
    pub(super) fn new(streams_max: usize, metrics: HttpMetrics) -> StreamPlaces {
        let places = Shares::new(streams_max, STREAMS_WEIGHT);
        StreamPlaces { places, streams_max, metrics }
    }

    /// Takes a place, or returns the refusal.
    pub(super) fn enter(&self, caller: &ShareOwner) -> Result<StreamPlace, HttpError> {
        let refusal = match self.places.take(caller.clone(), 1) {
            Ok(share) => {
                return Ok(StreamPlace { _share: share, _counted: self.metrics.enter_stream() });
            }
            Err(refusal) => refusal,
        };
        let max = self.streams_max;
        let (code, message) = match refusal {
            ShareRefusal::Exhausted => {
                (ErrorCode::Overloaded, format!("the server has {max} streams, which is its limit"))
            }
            ShareRefusal::Exceeded => (
                ErrorCode::TooManyRequests,
                format!("you have your share of the {max} streams of the server; close some"),
            ),
        };
        Err(HttpError::new(code, message).retry_after(Duration::from_secs(1)))
    }

    /// Lets an answer keep its place and its work for as long as it lasts.
    pub(super) fn keep(
        &self,
        response: Response,
        place: Option<StreamPlace>,
        ends: StreamEnds<'_>,
    ) -> Result<Response, HttpError> {
        let StreamEnds { caller, answering, working, binding, drain } = ends;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let place = place.map_or_else(|| self.enter(&caller), Ok)?;
            let state = UpgradedRequestState { _place: place, _working: working, binding };
            let mut response = response;
            response.extensions_mut().insert(UpgradedRequest(Arc::new(state)));
            return Ok(response);
        }
        let body = response.body();
        let known = body.size_hint().exact().or_else(|| body.is_end_stream().then_some(0));
        let revoked = Box::pin(async move { binding.revoked().await });
        match known {
            Some(bytes) if bytes <= AT_ONCE_BYTES_MAX => Ok(response),
            // It ends by itself, and a drain does not wait for it.
            Some(_) => Ok(response.map(|body| {
                let rest = StreamRest::new(body, None, answering);
                let cancelled = Box::pin(std::future::pending());
                Body::new(RevocableBody { cancelled, revoked, rest: Some(rest) })
            })),
            None => {
                let place = place.map_or_else(|| self.enter(&caller), Ok)?;
                let drain = drain.clone();
                let cancelled = Box::pin(async move { drain.cancelled().await });
                Ok(response.map(|body| {
                    let kept = Some((place, working));
                    let rest = StreamRest::new(body, kept, answering);
                    Body::new(RevocableBody { cancelled, revoked, rest: Some(rest) })
                }))
            }
        }
    }
}

/// Returns whether a request asks for a WebSocket. Clients offer other protocols, such as Java's
/// `h2c`, and continue with HTTP if these are not accepted.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let mut offered = headers.get_all(header::UPGRADE).iter().filter_map(|it| it.to_str().ok());
    offered.any(|it| it.split(',').any(|name| name.trim().eq_ignore_ascii_case("websocket")))
}

/// A body that counts as work until its end, and ends when work is cancelled or the credential of
/// its request is revoked.
struct RevocableBody {
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// None after its end, so that everything that it holds is released.
    rest: Option<StreamRest>,
}

struct StreamRest {
    body: Body,
    /// Piece of the body that was not passed on: a large piece is sent in parts, so that the answer
    /// can end between them.
    piece: Bytes,
    _kept: Option<(StreamPlace, Option<WorkInProgress>)>,
    /// The connection is in use until the end.
    _answering: Option<Arc<AnsweringRequest>>,
}

/// Reason why a body ends in the middle, for the log.
#[derive(Debug, thiserror::Error)]
#[error("the credential of the request was revoked")]
struct CredentialRevoked;

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        // First, since there may always be something to send.
        if this.revoked.as_mut().poll(cx).is_ready() {
            this.rest = None;
            return Poll::Ready(Some(Err(axum::Error::new(CredentialRevoked))));
        }
        if let Some(part) = rest.part() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        // Ready frames are sent, so that the last events of cancelled work are still received.
        let frame = match Pin::new(&mut rest.body).poll_frame(cx) {
            Poll::Pending if this.cancelled.as_mut().poll(cx).is_ready() => None,
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame,
        };
        match frame {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(rest.take(frame)))),
            end => {
                this.rest = None;
                Poll::Ready(end)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.piece.is_empty() && rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let Some(rest) = &self.rest else { return SizeHint::with_exact(0) };
        let (waiting, mut hint) = (rest.piece.len() as u64, rest.body.size_hint());
        let upper = hint.upper().map(|upper| upper.saturating_add(waiting));
        // The upper bound first: it may not be below the lower one.
        upper.into_iter().for_each(|upper| hint.set_upper(upper));
        hint.set_lower(hint.lower().saturating_add(waiting));
        hint
    }
}

impl StreamRest {
    fn new(
        body: Body,
        kept: Option<(StreamPlace, Option<WorkInProgress>)>,
        answering: Option<Arc<AnsweringRequest>>,
    ) -> StreamRest {
        StreamRest { body, piece: Bytes::new(), _kept: kept, _answering: answering }
    }

    /// Returns the next part of a large piece.
    fn part(&mut self) -> Option<Bytes> {
        let length = self.piece.len().min(PART_BYTES_MAX);
        (length > 0).then(|| self.piece.split_to(length))
    }

    /// Returns a frame, or the first part of a large one.
    fn take(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(data) if data.len() > PART_BYTES_MAX => {
                self.piece = data;
                Frame::data(self.part().unwrap_or_default())
            }
            Ok(data) => Frame::data(data),
            Err(trailers) => trailers,
        }
    }
}

/// Handlers of long streams and WebSockets extract the drain: those that only watch end when it has
/// [begun](DrainHandle::begun), those that work end at the latest when it is
/// [cancelled](DrainHandle::cancelled).
impl<S: Sync> FromRequestParts<S> for DrainHandle {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<DrainHandle>().cloned().ok_or_else(|| {
            tracing::error!("a handler that wants the drain is routed outside of the shell");
            HttpError::internal()
        })
    }
}
