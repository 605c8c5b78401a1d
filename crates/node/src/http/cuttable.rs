//! Connections that can be closed while another task uses them: behind TLS, a shutdown of the
//! socket alone would not wake the other side.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// Connection that can be cut while another task uses it, and that reports when it is dropped.
#[derive(Debug)]
pub(crate) struct CuttableIo<T> {
    inner: T,
    cut: Arc<CutSignal>,
    _dropped: oneshot::Sender<()>,
}

/// The controlling end of a [`CuttableIo`].
#[derive(Debug)]
pub(crate) struct CutControl {
    pub(crate) cut: Arc<CutSignal>,
    /// Fails when the connection was dropped.
    pub(crate) dropped: oneshot::Receiver<()>,
}

/// Signal to end a connection.
#[derive(Debug, Default)]
pub(crate) struct CutSignal {
    is_cut: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl<T> CuttableIo<T> {
    pub(crate) fn new(inner: T) -> (CuttableIo<T>, CutControl) {
        let cut = Arc::new(CutSignal::default());
        let (sender, dropped) = oneshot::channel();
        let io = CuttableIo { inner, cut: Arc::clone(&cut), _dropped: sender };
        (io, CutControl { cut, dropped })
    }

    fn check(&self, cx: &Context<'_>, waker: &AtomicWaker) -> io::Result<()> {
        waker.register(cx.waker());
        match self.cut.is_cut.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }
}

impl CutSignal {
    /// Ends the connection for its user.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CuttableIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx, &self.cut.reader)?;
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CuttableIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx, &self.cut.writer)?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx, &self.cut.writer)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
