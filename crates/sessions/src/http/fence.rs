//! Fence of routes for sessions: a server whose lease is over answers 503, and pauses an answer in
//! progress until it has its lease back and still owns the session.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use api::ErrorCode;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use node::http::{FastHead, HttpError};
use node::task::Boxed;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::routing::{SessionInterface, session_of};
use crate::service::{SessionFence, Sessions};

/// Error of a request whose session another server owns by now.
const LOST: &str = "another node took the session over during the request";

/// Fenced routes of one interface.
#[derive(Clone)]
pub(crate) struct FencedInterface {
    pub(crate) sessions: Sessions,
    pub(crate) interface: SessionInterface,
}

/// Answers a request while this server holds the lease and the session.
pub(crate) async fn fenced(
    State(FencedInterface { sessions, interface }): State<FencedInterface>,
    request: Request,
    next: Next,
) -> Response {
    let head =
        FastHead { method: request.method(), uri: request.uri(), headers: request.headers() };
    let session = session_of(interface, head);
    let fence = match sessions.fence(session.as_deref()) {
        Ok(Some(fence)) => fence,
        Ok(None) => return next.run(request).await,
        Err(error) => return HttpError::from(error).into_response(),
    };
    let response = next.run(request).await;
    // The lease may have ended meanwhile, and another server may own the session.
    if !fence.passes().await {
        return HttpError::new(ErrorCode::NodeLost, LOST).into_response();
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // The upgraded connection checks the fence itself.
        return response;
    }
    response.map(|body| Body::new(FencedBody { body, fence, waiting: None }))
}

/// Body of an answer, each piece of which waits for the lease.
struct FencedBody {
    body: Body,
    fence: SessionFence,
    waiting: Option<Boxed<'static, bool>>,
}

/// Error that ends an answer whose session another server owns by now.
#[derive(Debug, thiserror::Error)]
#[error("another node has taken the session over")]
struct SessionTaken;

impl HttpBody for FencedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let is_ours = ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
                if !is_ours {
                    return Poll::Ready(Some(Err(axum::Error::new(SessionTaken))));
                }
            }
            if !self.fence.holds() {
                let fence = self.fence.clone();
                self.waiting = Some(Box::pin(async move { fence.passes().await }));
                continue;
            }
            if !self.fence.is_ours() {
                return Poll::Ready(Some(Err(axum::Error::new(SessionTaken))));
            }
            return Pin::new(&mut self.body).poll_frame(cx);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Upgraded connection that is closed when the lease ends.
pub(crate) struct FencedIo<T> {
    io: T,
    fence: Option<SessionFence>,
}

impl<T> FencedIo<T> {
    pub(crate) fn new(io: T, fence: Option<SessionFence>) -> FencedIo<T> {
        FencedIo { io, fence }
    }

    fn check(&self) -> std::io::Result<()> {
        match &self.fence {
            Some(fence) if fence.is_lost() => {
                Err(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, SessionTaken))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FencedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FencedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
