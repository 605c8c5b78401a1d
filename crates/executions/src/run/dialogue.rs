//! Passes a solution's output on to its interactor and counts it, so that a solution that never
//! stops writing is stopped, and the failure of its interactor does not count as the judge's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Bytes read at a time: the capacity of a Linux pipe (pipe(7)).
const CHUNK_BYTES: usize = 64 << 10;

/// Number of bytes that a solution has sent.
#[derive(Clone, Debug)]
pub(super) struct SentBytes(Arc<AtomicU64>);

impl SentBytes {
    pub(super) fn new() -> SentBytes {
        SentBytes(Arc::default())
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Copies one pipe into another, until either is closed or `bytes_max` are exceeded; returns
/// whether they were.
pub(super) async fn pass_on(
    from: OwnedFd,
    to: OwnedFd,
    bytes_max: u64,
    sent: SentBytes,
) -> std::io::Result<bool> {
    let mut from = Receiver::from_owned_fd(from)?;
    let mut to = Sender::from_owned_fd(to)?;
    let mut buf = Vec::with_capacity(CHUNK_BYTES);
    loop {
        buf.clear();
        if from.read_buf(&mut buf).await? == 0 {
            return Ok(false);
        }
        let count = u64::try_from(buf.len()).unwrap_or(u64::MAX);
        if sent.0.fetch_add(count, Ordering::Relaxed).saturating_add(count) > bytes_max {
            return Ok(true);
        }
        // An interactor may close its input; the end of this pipe shows that to the solution.
        if to.write_all(&buf).await.is_err() {
            return Ok(false);
        }
    }
}
