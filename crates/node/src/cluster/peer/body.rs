//! Bodies of requests that are passed on: a short one is kept, so that it can be sent once more.

use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use bytes::Bytes;
use tokio::time::timeout;

use crate::http::HttpError;

/// Longest body that is kept until the answer is there, so that it can be sent once more.
const KEPT_BODY_BYTES_MAX: u64 = 64 << 10;
/// Time for such a body to arrive.
const KEPT_BODY_MAX: Duration = Duration::from_secs(30);

/// Body of a request that is passed on.
pub(super) enum ForwardedBody {
    /// All of it.
    Kept(Bytes),
    /// It goes on as it comes; none when it was sent.
    Streamed(Option<Body>),
}

impl ForwardedBody {
    /// Takes the body, if it was not sent before.
    pub(super) fn take(&mut self) -> Option<Body> {
        match self {
            ForwardedBody::Kept(bytes) => Some(Body::from(bytes.clone())),
            ForwardedBody::Streamed(body) => body.take(),
        }
    }
}

/// Reads a body that is short.
pub(super) async fn kept(body: Body) -> Result<ForwardedBody, HttpError> {
    let length = body.size_hint().exact().or_else(|| body.is_end_stream().then_some(0));
    match length.and_then(|length| usize::try_from(length).ok()) {
        Some(length) if length as u64 <= KEPT_BODY_BYTES_MAX => {
            let read = timeout(KEPT_BODY_MAX, to_bytes(body, length)).await;
            let read = read.map_err(|_| HttpError::invalid("the body took too long"))?;
            let read = read.map_err(|_| HttpError::invalid("the body broke off"))?;
            Ok(ForwardedBody::Kept(read))
        }
        _ => Ok(ForwardedBody::Streamed(Some(body))),
    }
}
