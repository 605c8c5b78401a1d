//! A body that is read as a stream of bytes.
//!
//! Only for routes that the shell knows as streaming ([`HttpShell`](super::HttpShell)): the
//! declared length is not compared with the bound of other bodies there, because the body is never
//! in memory as a whole, unless the handler requests that within a bound of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use api::ErrorCode;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::error::HttpError;
use super::json::{BodyBudget, content_length};

/// A body in pieces.
#[derive(Debug)]
pub struct UploadBody {
    body: Body,
    declared: Option<u64>,
    budget: BodyBudget,
    /// Bytes that were received and not read yet.
    piece: Bytes,
    /// Ends when the client pauses for too long.
    pause: Pin<Box<Sleep>>,
}

impl<S: Send + Sync> FromRequest<S> for UploadBody {
    type Rejection = HttpError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, HttpError> {
        let (parts, body) = request.into_parts();
        let Some(budget) = parts.extensions.get::<BodyBudget>().cloned() else {
            tracing::error!("a handler that wants a body is routed outside of the shell");
            return Err(HttpError::internal());
        };
        let declared = content_length(&parts.headers);
        let pause = Box::pin(sleep(budget.pause_max));
        Ok(UploadBody { body, declared, budget, piece: Bytes::new(), pause })
    }
}

impl UploadBody {
    /// Returns the length that the client declared, if it did.
    pub fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// Returns the next piece, never an empty one; none at the end.
    ///
    /// # Errors
    /// If the client pauses for too long, or disconnects in the middle.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        let piece = std::future::poll_fn(|cx| self.poll_piece(cx)).await;
        piece.map(|piece| Some(piece).filter(|piece| !piece.is_empty())).map_err(|it| it.into())
    }

    /// Returns the whole body, if it is small: at most `bytes_max` bytes, and within the server's
    /// memory for bodies.
    ///
    /// # Errors
    /// If it is larger, or there is no memory at present.
    pub async fn all(mut self, bytes_max: u64) -> Result<Bytes, HttpError> {
        let too_large = || {
            let message = format!("the request body is larger than {bytes_max} bytes");
            HttpError::new(ErrorCode::BodyTooLarge, message)
        };
        if self.declared.is_some_and(|declared| declared > bytes_max) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let began = Instant::now();
        loop {
            let patience = self.budget.patience(bytes.len() as u64, began);
            let piece = tokio::time::timeout(patience, self.chunk()).await;
            let Some(piece) = piece.map_err(|_| self.budget.too_slow(patience))?? else { break };
            let total = u64::try_from(bytes.len().saturating_add(piece.len())).unwrap_or(u64::MAX);
            if total > bytes_max {
                return Err(too_large());
            }
            self.budget.grow(total)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }

    /// Returns the received bytes of the body; none at its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, UploadError>> {
        if !self.piece.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut self.piece)));
        }
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    ready!(self.pause.as_mut().poll(cx));
                    return Poll::Ready(Err(UploadError::Paused(self.budget.pause_max)));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(Bytes::new())),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(UploadError::Incomplete)),
                Poll::Ready(Some(Ok(frame))) => {
                    let until = Instant::now() + self.budget.pause_max;
                    self.pause.as_mut().reset(until);
                    // A frame that is not data is a trailer; trailers are ignored.
                    if let Ok(piece) = frame.into_data()
                        && !piece.is_empty()
                    {
                        return Poll::Ready(Ok(piece));
                    }
                }
            }
        }
    }
}

/// Reason why a body is incomplete.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum UploadError {
    #[error("nothing of the request body arrived for {} s", .0.as_secs())]
    Paused(Duration),
    #[error("the request body is incomplete")]
    Incomplete,
}

impl From<UploadError> for HttpError {
    fn from(broken: UploadError) -> HttpError {
        HttpError::invalid(broken.to_string())
    }
}

impl AsyncRead for UploadBody {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut piece = match ready!(self.poll_piece(cx)) {
            Ok(piece) => piece,
            Err(broken) => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, broken)));
            }
        };
        let count = piece.len().min(room.remaining());
        room.put_slice(piece.get(..count).unwrap_or_default());
        piece.advance(count);
        self.piece = piece;
        Poll::Ready(Ok(()))
    }
}
