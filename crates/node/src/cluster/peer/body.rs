//! Bodies of forwarded requests: a short one is kept, so that it can be sent once more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::http::HttpError;

/// Longest body that is kept until the answer arrives, so that it can be sent once more.
const KEPT_BODY_BYTES_MAX: u64 = 64 << 10;
/// Time for such a body to arrive.
const KEPT_BODY_MAX: Duration = Duration::from_secs(30);

/// Body of a forwarded request.
pub(super) enum ForwardedBody {
    /// The whole body.
    Kept(Bytes),
    /// A body that is forwarded while it arrives.
    Streamed(StreamedBody),
}

/// Body that is forwarded while it arrives, to one node: to another one only if nothing of it was
/// read, as when the first one was not reached.
pub(super) struct StreamedBody(Arc<Mutex<Option<Body>>>);

impl StreamedBody {
    fn new(body: Body) -> StreamedBody {
        StreamedBody(Arc::new(Mutex::new(Some(body))))
    }

    /// Returns the body, which is taken with the first read of the returned one; none if it was
    /// taken already.
    fn lend(&self) -> Option<Body> {
        let hint = self.0.lock().as_ref().map(Body::size_hint)?;
        Some(Body::new(LentBody { lender: Arc::clone(&self.0), taken: None, hint }))
    }

    /// Takes the body, if nothing of it was read.
    pub(super) fn take(self) -> Option<Body> {
        self.0.lock().take()
    }
}

/// Body that is taken from its lender when it is read.
struct LentBody {
    lender: Arc<Mutex<Option<Body>>>,
    taken: Option<Body>,
    /// Length of the whole body.
    hint: SizeHint,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.taken.is_none() {
            let taken = self.lender.lock().take();
            self.taken = taken;
        }
        match &mut self.taken {
            Some(body) => Pin::new(body).poll_frame(context),
            // Lent twice and read twice, which no sender does.
            None => Poll::Ready(Some(Err(axum::Error::new("the body was sent to another node")))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.taken.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.taken.as_ref().map_or_else(|| self.hint, Body::size_hint)
    }
}

impl ForwardedBody {
    /// Creates a body that is forwarded while it arrives.
    pub(super) fn streamed(body: Body) -> ForwardedBody {
        ForwardedBody::Streamed(StreamedBody::new(body))
    }

    /// Returns the body to send, unless a part of it was sent before.
    pub(super) fn to_send(&self) -> Option<Body> {
        match self {
            ForwardedBody::Kept(bytes) => Some(Body::from(bytes.clone())),
            ForwardedBody::Streamed(body) => body.lend(),
        }
    }
}

/// Reads a body if it is short.
pub(super) async fn kept(body: Body) -> Result<ForwardedBody, HttpError> {
    let length = body.size_hint().exact().or_else(|| body.is_end_stream().then_some(0));
    match length.and_then(|length| usize::try_from(length).ok()) {
        Some(length) if length as u64 <= KEPT_BODY_BYTES_MAX => {
            let read = timeout(KEPT_BODY_MAX, to_bytes(body, length)).await;
            let read = read.map_err(|_| HttpError::invalid("the body took too long"))?;
            let read = read.map_err(|_| HttpError::invalid("the body ended early"))?;
            Ok(ForwardedBody::Kept(read))
        }
        _ => Ok(ForwardedBody::streamed(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_that_nobody_has_read_can_be_sent_to_another_node() {
        let chunks = ["long ", "text"].map(Ok::<_, std::io::Error>);
        let body = Body::from_stream(futures_util::stream::iter(chunks));
        let ForwardedBody::Streamed(body) = kept(body).await.unwrap() else { panic!("kept") };
        let body = ForwardedBody::Streamed(body);
        // The first node was not reached.
        drop(body.to_send().unwrap());
        let sent = body.to_send().unwrap();
        assert_eq!(to_bytes(sent, usize::MAX).await.unwrap(), "long text");
        assert!(body.to_send().is_none(), "it was read");
    }

    #[tokio::test]
    async fn a_body_is_sent_to_one_node() {
        let body = ForwardedBody::streamed(Body::from("text"));
        let (first, second) = (body.to_send().unwrap(), body.to_send().unwrap());
        assert_eq!(first.size_hint().exact(), Some(4));
        assert_eq!(to_bytes(first, usize::MAX).await.unwrap(), "text");
        assert!(to_bytes(second, usize::MAX).await.is_err(), "an empty one says something else");
    }
}
