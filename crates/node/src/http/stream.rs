//! Answers that outlast their handler: WebSockets, events, bodies of unknown length.
//!
//! Each counts as work until its last byte, so that a drain waits for it, and holds one of a
//! limited number of places. When the drain gives up, bodies end where they are, which HTTP shows
//! as their regular end; WebSockets are told by the [`Drain`] that their handlers can extract, and
//! are cut when they do not listen.

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
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Error;
use crate::drain::{Drain, Working};
use crate::telemetry::{HttpMetrics, InFlight};

/// Places for answers that outlast their handler.
#[derive(Debug)]
pub(super) struct Streams {
    places: Arc<Semaphore>,
    streams_max: usize,
    metrics: HttpMetrics,
}

/// A place, and the work it stands for.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    _counted: InFlight,
}

/// What a connection keeps for as long as a handler has taken it over.
#[derive(Clone, Debug)]
pub(super) struct Kept(
    #[expect(dead_code, reason = "held, not read")] Arc<(Place, Option<Working>)>,
);

impl Streams {
    pub(super) fn new(streams_max: usize, metrics: HttpMetrics) -> Streams {
        let places = Arc::new(Semaphore::new(streams_max.min(Semaphore::MAX_PERMITS)));
        Streams { places, streams_max, metrics }
    }

    /// Takes a place, or says that there is none.
    pub(super) fn enter(&self) -> Result<Place, Error> {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => Ok(Place { _permit: permit, _counted: self.metrics.enter_stream() }),
            Err(_) => {
                let max = self.streams_max;
                let message = format!("the server has {max} streams, which is its limit");
                let error = Error::new(ErrorCode::Overloaded, message);
                Err(error.retry_after(Duration::from_secs(1)))
            }
        }
    }

    /// Lets an answer keep its place and its work for as long as it lasts.
    pub(super) fn keep(
        &self,
        response: Response,
        place: Option<Place>,
        working: Option<Working>,
        drain: &Drain,
    ) -> Result<Response, Error> {
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let body = response.body();
        if !upgraded && (body.size_hint().exact().is_some() || body.is_end_stream()) {
            return Ok(response);
        }
        let place = place.map_or_else(|| self.enter(), Ok)?;
        if upgraded {
            let mut response = response;
            response.extensions_mut().insert(Kept(Arc::new((place, working))));
            return Ok(response);
        }
        let cancelled = drain.clone();
        Ok(response.map(|body| {
            Body::new(Lasting {
                cancelled: Box::pin(async move { cancelled.cancelled().await }),
                rest: Some(Rest { body, _place: place, _working: working }),
            })
        }))
    }
}

/// Whether a request asks for a WebSocket. Other protocols are offered by clients that go on with
/// HTTP when they are not taken up, such as `h2c` by Java's.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let mut offered = headers.get_all(header::UPGRADE).iter().filter_map(|it| it.to_str().ok());
    offered.any(|it| it.split(',').any(|name| name.trim().eq_ignore_ascii_case("websocket")))
}

/// A body that counts as work until its end, and ends when work is given up.
struct Lasting {
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// None when it has ended, so that whatever it holds is free.
    rest: Option<Rest>,
}

struct Rest {
    body: Body,
    _place: Place,
    _working: Option<Working>,
}

impl HttpBody for Lasting {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        // What is ready goes out, so that the last events of what was cancelled are still seen.
        let frame = match Pin::new(&mut rest.body).poll_frame(cx) {
            Poll::Pending if this.cancelled.as_mut().poll(cx).is_ready() => None,
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame,
        };
        if !matches!(frame, Some(Ok(_))) {
            this.rest = None;
        }
        Poll::Ready(frame)
    }
}

/// Handlers of long streams and WebSockets extract the drain: whoever only watches ends when it has
/// [begun](Drain::begun), whoever works ends at the latest when it is
/// [cancelled](Drain::cancelled).
impl<S: Sync> FromRequestParts<S> for Drain {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Drain>().cloned().ok_or_else(|| {
            tracing::error!("a handler that wants the drain is routed outside of the shell");
            Error::internal()
        })
    }
}
