//! A connection's bytes: detects that the client disconnected while a handler runs, cuts a client
//! that does not read, and outlives HTTP when a handler takes the connection over.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc6455>

use std::convert::Infallible;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use super::cuttable::{CutSignal, CuttableIo};
use super::refusal::TLS_HANDSHAKE;
use super::room::ConnectionUse;

/// Longest refusal that hyper writes by itself.
const REFUSAL_BYTES_MAX: usize = 256;

/// Bytes that are read ahead of hyper. The disconnect of a client that sends more than this after
/// an unfinished request is detected only when the answer is written.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Transport of a connection.
pub(super) enum ConnectionStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

type CuttableTls = CuttableIo<TlsStream<TcpStream>>;

#[derive(Debug)]
enum ReadStream {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<CuttableTls>, Arc<CutSignal>),
}

#[derive(Debug)]
enum WriteStream {
    Plain(OwnedWriteHalf),
    Tls(WriteHalf<CuttableTls>),
}

impl ConnectionStream {
    fn split(self) -> (ReadStream, WriteStream) {
        match self {
            ConnectionStream::Plain(tcp) => {
                let (read, write) = tcp.into_split();
                (ReadStream::Plain(read), WriteStream::Plain(write))
            }
            ConnectionStream::Tls(tls) => {
                let (io, control) = CuttableIo::new(*tls);
                let (read, write) = tokio::io::split(io);
                (ReadStream::Tls(read, control.cut), WriteStream::Tls(write))
            }
        }
    }
}

impl ReadStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            ReadStream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            ReadStream::Tls(tls, _) => Pin::new(tls).poll_read(cx, buf),
        }
    }

    /// Ends both directions, also for tasks that wait in one of them.
    fn cut(&self) {
        match self {
            ReadStream::Plain(tcp) => {
                let tcp: &TcpStream = tcp.as_ref();
                // It may have ended already, which is fine.
                socket2::SockRef::from(tcp).shutdown(Shutdown::Both).ok();
            }
            ReadStream::Tls(_, cut) => cut.cut(),
        }
    }
}

impl WriteStream {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            WriteStream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            WriteStream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            WriteStream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            WriteStream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            WriteStream::Plain(tcp) => tcp.is_write_vectored(),
            WriteStream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            WriteStream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            WriteStream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            WriteStream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            WriteStream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    /// Writes as much as possible without waiting. Best effort.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            WriteStream::Plain(tcp) => tcp.try_write(bytes).map(drop),
            WriteStream::Tls(_) => {
                // A client that cannot take it now is not waited for.
                let mut cx = Context::from_waker(Waker::noop());
                let Poll::Ready(written) = self.poll_write(&mut cx, bytes) else {
                    return Err(io::ErrorKind::WouldBlock.into());
                };
                written?;
                match self.poll_flush(&mut cx) {
                    Poll::Ready(flushed) => flushed,
                    Poll::Pending => Ok(()),
                }
            }
        }
    }
}

/// Both directions of a connection, for hyper or a handler that takes it over from hyper.
#[derive(Debug)]
pub(super) struct WatchedSocket {
    shared: Arc<SocketShared>,
    /// Longest time in which the client takes nothing of its answer.
    stall_max: Duration,
    /// Updated while a part of an answer waits.
    presence: Arc<ConnectionUse>,
    /// Runs while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
    /// Dropped with the socket, which [`SocketWatch`] detects.
    _alive: oneshot::Sender<Infallible>,
}

#[derive(Debug)]
struct SocketShared {
    read: Mutex<ReadSide>,
    write: Mutex<WriteStream>,
    /// A handler has taken the connection over, and closes it by itself.
    upgraded: AtomicBool,
    /// True if the client's first bytes are TLS.
    tls: AtomicBool,
    /// Hyper's own refusal, which is not sent unchanged.
    withheld: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct ReadSide {
    io: ReadStream,
    /// Read by [`SocketWatch`], not yet by hyper.
    ahead: Vec<u8>,
    /// True if hyper's last read found nothing, so that hyper itself waits for bytes and the end.
    wanted: bool,
    /// True if nothing has been read yet.
    is_new: bool,
}

/// Detects the end of a connection that hyper does not read from at the moment, and closes it.
///
/// Hyper looks for the end of the stream while a handler runs, but stops looking once the client
/// has sent anything after its request, be it a pipelined request or a stray line end.
#[derive(Debug)]
pub(super) struct SocketWatch {
    shared: Arc<SocketShared>,
    alive: oneshot::Receiver<Infallible>,
}

impl WatchedSocket {
    pub(super) fn new(
        stream: ConnectionStream,
        stall_max: Duration,
        presence: Arc<ConnectionUse>,
    ) -> (WatchedSocket, SocketWatch) {
        let (io, write) = stream.split();
        let shared = Arc::new(SocketShared {
            read: Mutex::new(ReadSide { io, ahead: Vec::new(), wanted: false, is_new: true }),
            write: Mutex::new(write),
            upgraded: AtomicBool::new(false),
            tls: AtomicBool::new(false),
            withheld: Mutex::default(),
        });
        let (sender, alive) = oneshot::channel();
        let watch = SocketWatch { shared: Arc::clone(&shared), alive };
        (WatchedSocket { shared, stall_max, presence, stall: None, _alive: sender }, watch)
    }

    /// Withholds a complete answer that is a refusal without a body and ends the connection, as
    /// hyper writes it by itself. If it is not hyper's, it is sent at the end of the connection.
    fn withhold(&self, slices: &[io::IoSlice<'_>]) -> Option<usize> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        let is_upgraded = self.shared.upgraded.load(Ordering::Acquire);
        if !(1..=REFUSAL_BYTES_MAX).contains(&length) || is_upgraded {
            return None;
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let text = std::str::from_utf8(&bytes).ok()?;
        let has = |line: &str| text.contains(line);
        let is_refusal = text.starts_with("HTTP/1.1 4")
            && text.find("\r\n\r\n") == length.checked_sub(4)
            && has("\r\nconnection: close\r\n")
            && has("\r\ncontent-length: 0\r\n")
            && !has("\r\nx-request-id: ");
        is_refusal.then(|| {
            *self.shared.withheld.lock() = bytes;
            length
        })
    }

    /// Bounds the time a write waits for the client.
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let stall_max = self.stall_max;
        self.presence.set_unsent(true);
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_max)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer"))
    }

    fn written(
        &mut self,
        poll: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if poll.is_pending() {
            return self.stalled(cx).map(Err);
        }
        if self.stall.take().is_some() {
            self.presence.set_unsent(false);
        }
        poll
    }
}

async fn read_some(side: &Mutex<ReadSide>, scrap: &mut [u8]) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        let mut buf = ReadBuf::new(scrap);
        ready!(side.lock().io.poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    })
    .await
}

impl SocketWatch {
    /// Ready when the client has closed its side. Poll it after hyper, on the same task.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut side = self.shared.read.lock();
        if side.wanted {
            return Poll::Pending;
        }
        let mut chunk = [0; 1024];
        while side.ahead.len() < AHEAD_BYTES_MAX {
            let mut buf = ReadBuf::new(&mut chunk);
            match ready!(side.io.poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => side.ahead.extend_from_slice(buf.filled()),
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Returns hyper's withheld refusal of a head, which is to be sent or replaced.
    pub(super) fn take_withheld(&self) -> Vec<u8> {
        std::mem::take(&mut *self.shared.withheld.lock())
    }

    /// Returns whether the client's first bytes are TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.shared.tls.load(Ordering::Relaxed)
    }

    /// Sends a response that is not hyper's, as the last of the connection. Best effort.
    pub(super) fn send_last(&self, bytes: &[u8]) {
        if let Err(error) = self.shared.write.lock().try_write(bytes) {
            tracing::debug!(%error, "refuse a request");
        }
    }

    /// Returns whether the socket is still in use. After hyper has ended, its user is a handler
    /// that has taken the connection over.
    pub(super) fn is_upgraded(&mut self) -> bool {
        let has_socket = matches!(self.alive.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        self.shared.upgraded.store(has_socket, Ordering::Release);
        has_socket
    }

    /// Returns when the handler has dropped the socket. Dropping this future cuts the connection,
    /// which the handler then reads as its end.
    pub(super) async fn until_dropped(mut self) {
        let cut = SocketCut(Arc::clone(&self.shared));
        // Nothing is ever sent.
        drop((&mut self.alive).await);
        drop(cut);
    }

    /// Closes so that the client can read the answer to a request that was not read to its end:
    /// closing with unread bytes makes the kernel send a reset, which may overtake the answer.
    pub(super) async fn linger(self, time_max: Duration, bytes_max: u64) {
        let shutdown = |cx: &mut Context<'_>| self.shared.write.lock().poll_shutdown(cx);
        if std::future::poll_fn(shutdown).await.is_err() {
            return;
        }
        let discard = async {
            let mut scrap = [0; 4096];
            let mut left = bytes_max;
            while let Ok(count @ 1..) = read_some(&self.shared.read, &mut scrap).await
                && left > 0
            {
                left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
            }
        };
        // After this time the client is not waited for any longer.
        drop(tokio::time::timeout(time_max, discard).await);
    }
}

/// Ends both directions of a connection when dropped.
struct SocketCut(Arc<SocketShared>);

impl Drop for SocketCut {
    fn drop(&mut self) {
        self.0.read.lock().io.cut();
    }
}

impl AsyncRead for WatchedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let side = &mut *self.shared.read.lock();
        if side.ahead.is_empty() {
            let before = buf.filled().len();
            let poll = side.io.poll_read(cx, buf);
            side.wanted = poll.is_pending();
            if let Some(first) = buf.filled().get(before) {
                self.presence.set_begun(true);
                if side.is_new {
                    side.is_new = false;
                    self.shared.tls.store(*first == TLS_HANDSHAKE, Ordering::Relaxed);
                }
            }
            return poll;
        }
        let count = side.ahead.len().min(buf.remaining());
        buf.put_slice(&side.ahead[..count]);
        side.ahead.drain(..count);
        side.wanted = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(count) = self.withhold(&[io::IoSlice::new(bytes)]) {
            return Poll::Ready(Ok(count));
        }
        let poll = self.shared.write.lock().poll_write(cx, bytes);
        self.written(poll, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(count) = self.withhold(slices) {
            return Poll::Ready(Ok(count));
        }
        let poll = self.shared.write.lock().poll_write_vectored(cx, slices);
        self.written(poll, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.shared.write.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.write.lock().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Hyper's shutdown is left to `linger`, which continues to read meanwhile.
        if !self.shared.upgraded.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        self.shared.write.lock().poll_shutdown(cx)
    }
}
