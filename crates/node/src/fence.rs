//! Fence of effects: external effects of sandboxes end with the lease of their server.
//!
//! A server that was suspended, or cannot reach the store, may have lost its sessions to another
//! one without knowing it. All code that acts for a sandbox checks an [`EffectFence`] before each
//! request, statement and forwarded piece, so that no effect of a former owner follows its loss.
//! External connections are wrapped in a [`FencedStream`], which checks where bytes leave this
//! process: also bytes that a library, TLS or a slow server has delayed.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::cluster::ServingLease;

/// Error text for requests that are refused because the lease has ended.
pub const LEASE_LOST: &str = "this server has lost its lease in the store, so its sessions may be \
    at another server by now; try again";

/// Time after which a refused client may retry. The next renewal restores the lease.
pub const LEASE_RETRY: Duration = Duration::from_secs(1);

/// Error: the lease has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{LEASE_LOST}")]
pub struct LeaseLost;

impl From<LeaseLost> for io::Error {
    fn from(lost: LeaseLost) -> io::Error {
        io::Error::other(lost)
    }
}

/// Way by which a sandbox has an external effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectWay {
    /// Requests and tunnels of the proxy.
    Http,
    /// Requests to the model, of agents and of grants.
    Model,
    /// Requests to the catalog, and files of its tables.
    Catalog,
    /// Connections to databases.
    Database,
    /// Queries of callers through a session's grant.
    Query,
}

impl EffectWay {
    /// All ways, in the order of their counters.
    pub const ALL: [EffectWay; 5] = [
        EffectWay::Http,
        EffectWay::Model,
        EffectWay::Catalog,
        EffectWay::Database,
        EffectWay::Query,
    ];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EffectWay::Http => "http",
            EffectWay::Model => "model",
            EffectWay::Catalog => "catalog",
            EffectWay::Database => "database",
            EffectWay::Query => "query",
        }
    }
}

/// Fence of all sandboxes of this server. Cheap to clone; clones share their counters.
#[derive(Clone, Debug)]
pub struct EffectFence(Arc<FenceState>);

#[derive(Debug)]
struct FenceState {
    lease: ServingLease,
    /// Counts of refusals, in the order of [`EffectWay::ALL`].
    refused: [AtomicU64; EffectWay::ALL.len()],
}

impl EffectFence {
    /// Creates the fence of a server with this lease.
    #[must_use]
    pub fn new(lease: ServingLease) -> EffectFence {
        EffectFence(Arc::new(FenceState { lease, refused: Default::default() }))
    }

    /// Creates the fence of a server that no other can take over from: it is always open.
    #[must_use]
    pub fn open() -> EffectFence {
        EffectFence::new(ServingLease::unlimited())
    }

    /// Lets a request, a statement or a piece of one pass while the lease holds. Reads an atomic
    /// number and a clock, which takes no system call.
    ///
    /// # Errors
    /// If the lease has ended; the refusal is counted.
    #[inline]
    pub fn check(&self, way: EffectWay) -> Result<(), LeaseLost> {
        match self.0.lease.holds() {
            true => Ok(()),
            false => Err(self.refuse(way)),
        }
    }

    /// Returns whether the lease holds, for callers that refuse later or not at all.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.lease.holds()
    }

    #[cold]
    fn refuse(&self, way: EffectWay) -> LeaseLost {
        if let Some(counter) = self.counter(way) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        LeaseLost
    }

    /// Returns the number of refused or interrupted effects.
    #[must_use]
    pub fn refused(&self, way: EffectWay) -> u64 {
        self.counter(way).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    fn counter(&self, way: EffectWay) -> Option<&AtomicU64> {
        let place = EffectWay::ALL.iter().position(|it| *it == way);
        place.and_then(|place| self.0.refused.get(place))
    }

    /// Wraps an external connection, which breaks with its first byte after the lease.
    #[must_use]
    pub fn guard<S>(&self, way: EffectWay, stream: S) -> FencedStream<S> {
        FencedStream { stream, way, fence: self.clone() }
    }
}

/// External connection that breaks with its first byte after the lease.
#[derive(Debug)]
pub struct FencedStream<S> {
    stream: S,
    way: EffectWay,
    fence: EffectFence,
}

impl<S: AsyncRead + Unpin> AsyncRead for FencedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut it.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() > before {
            it.fence.check(it.way)?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FencedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let it = &mut *self;
        it.fence.check(it.way)?;
        Pin::new(&mut it.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets have nothing to flush: buffers are in higher layers, and use `poll_write`.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let it = &mut *self;
        it.fence.check(it.way)?;
        Pin::new(&mut it.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Returns whether an error is or was caused by [`LeaseLost`].
#[must_use]
pub fn is_lease_lost(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(one) = cause {
        if one.is::<LeaseLost>() {
            return true;
        }
        // The inner error of an I/O error is not its source.
        let within = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if within.is_some_and(|within| within.is::<LeaseLost>()) {
            return true;
        }
        cause = one.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn a_connection_breaks_with_its_first_byte_after_the_lease() {
        let lease = ServingLease::of(Duration::from_secs(3600));
        let fence = EffectFence::new(lease.clone());
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = fence.guard(EffectWay::Http, near);
        let error = near.write_all(b"early").await.unwrap_err();
        assert!(is_lease_lost(&error), "{error:?}");
        far.write_all(b"an answer").await.unwrap();
        let error = near.read_u8().await.unwrap_err();
        assert!(is_lease_lost(&error), "{error:?}");
        assert_eq!((fence.refused(EffectWay::Http), fence.refused(EffectWay::Model)), (2, 0));

        lease.renewed(clock::boot_ms());
        near.write_all(b"on").await.unwrap();
        let mut got = [0; 2];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"on", "nothing of what was refused has gone out");
        assert_eq!(fence.refused(EffectWay::Http), 2);
        assert!(!is_lease_lost(&io::Error::other("something else")));
    }

    #[test]
    fn a_server_alone_is_never_fenced() {
        let fence = EffectFence::open();
        assert!(EffectWay::ALL.iter().all(|way| fence.check(*way).is_ok()));
    }
}
