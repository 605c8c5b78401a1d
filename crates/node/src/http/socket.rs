//! A connection's bytes: notices that the client is gone while a handler runs, and gives up on a
//! client that does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Sleep;

/// Bytes that are read ahead of hyper. A client that sends more than this behind a request of which
/// it then does not await the answer is noticed only when the answer is written.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Both directions of a connection, as hyper sees it.
#[derive(Debug)]
pub(super) struct Socket {
    read: Arc<Mutex<ReadSide>>,
    write: OwnedWriteHalf,
    /// Longest time in which the client takes nothing of its answer.
    stall_max: Duration,
    /// Runs while a write waits.
    stall: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct ReadSide {
    tcp: OwnedReadHalf,
    /// Read by [`Watch`], not yet by hyper.
    ahead: Vec<u8>,
    /// Hyper's last read found nothing, so that it waits for bytes, and the end, itself.
    wanted: bool,
}

/// Sees the end of a connection that hyper does not read from at the moment.
///
/// Hyper looks for the end of the stream while a handler runs, but stops looking once the client
/// has sent anything behind its request, be it a pipelined request or a stray line end.
#[derive(Debug)]
pub(super) struct Watch(Arc<Mutex<ReadSide>>);

impl Socket {
    pub(super) fn new(stream: TcpStream, stall_max: Duration) -> (Socket, Watch) {
        let (tcp, write) = stream.into_split();
        let read = Arc::new(Mutex::new(ReadSide { tcp, ahead: Vec::new(), wanted: false }));
        let watch = Watch(Arc::clone(&read));
        (Socket { read, write, stall_max, stall: None }, watch)
    }

    /// Closes so that the client can read the answer to a request that was not read to its end:
    /// closing with unread bytes makes the kernel send a reset, which may overtake the answer.
    pub(super) async fn linger(mut self, time_max: Duration, bytes_max: u64) {
        if self.write.shutdown().await.is_err() {
            return;
        }
        let discard = async {
            let mut scrap = [0; 4096];
            let mut left = bytes_max;
            while let Ok(count @ 1..) = read_some(&self.read, &mut scrap).await
                && left > 0
            {
                left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
            }
        };
        // When the time is up the client has had its chance.
        drop(tokio::time::timeout(time_max, discard).await);
    }

    /// Bounds the time a write waits for the client.
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let stall_max = self.stall_max;
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
        self.stall = None;
        poll
    }
}

async fn read_some(side: &Mutex<ReadSide>, scrap: &mut [u8]) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        let mut buf = ReadBuf::new(scrap);
        ready!(Pin::new(&mut side.lock().tcp).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    })
    .await
}

impl Watch {
    /// Ready when the client has closed its side. Poll it after hyper, on the same task.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut side = self.0.lock();
        if side.wanted {
            return Poll::Pending;
        }
        let mut chunk = [0; 1024];
        while side.ahead.len() < AHEAD_BYTES_MAX {
            let mut buf = ReadBuf::new(&mut chunk);
            match ready!(Pin::new(&mut side.tcp).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => side.ahead.extend_from_slice(buf.filled()),
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let side = &mut *self.read.lock();
        if side.ahead.is_empty() {
            let poll = Pin::new(&mut side.tcp).poll_read(cx, buf);
            side.wanted = poll.is_pending();
            return poll;
        }
        let count = side.ahead.len().min(buf.remaining());
        buf.put_slice(&side.ahead[..count]);
        side.ahead.drain(..count);
        side.wanted = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.write).poll_write(cx, bytes);
        self.written(poll, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.write).poll_write_vectored(cx, slices);
        self.written(poll, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
