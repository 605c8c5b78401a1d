//! A connection whose first bytes are read few at a time, so that HTTP/2 is refused in one way.
//!
//! hyper closes a connection without a response when it reads the whole preface of HTTP/2 at once
//! (RFC 9113 §3.4), and responds with 400 when it reads only its first line. So the result depended
//! on how the client's bytes arrived. First reads shorter than the preface always yield the
//! response.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9112#section-2>

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of `PRI * HTTP/2.0` and its line end, 8 fewer than the preface.
const FIRST_BYTES: usize = 16;

/// A stream whose first [`FIRST_BYTES`] are returned in separate reads.
#[derive(Debug)]
pub(super) struct ShortFirstRead<S> {
    stream: S,
    /// Remaining bytes of the first part.
    left: usize,
}

impl<S> ShortFirstRead<S> {
    pub(super) fn new(stream: S) -> ShortFirstRead<S> {
        ShortFirstRead { stream, left: FIRST_BYTES }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ShortFirstRead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = &mut *self;
        if it.left == 0 || buffer.remaining() == 0 {
            return Pin::new(&mut it.stream).poll_read(context, buffer);
        }
        let mut space = [0; FIRST_BYTES];
        let length = it.left.min(buffer.remaining());
        let mut part = ReadBuf::new(&mut space[..length]);
        let polled = Pin::new(&mut it.stream).poll_read(context, &mut part);
        if let Poll::Ready(Ok(())) = polled {
            buffer.put_slice(part.filled());
            it.left -= part.filled().len();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ShortFirstRead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
