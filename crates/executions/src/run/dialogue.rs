//! Output of a solution to its interactor: passed on and counted, so that one that never stops is
//! stopped, and its interactor's failure is not the judge's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Read at a time: what a pipe of Linux holds (pipe(7)).
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that a solution has sent.
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

/// Passes on what comes out of one pipe into another, until either is closed or `bytes_max` are
/// exceeded; tells whether they were.
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
        // An interactor that has closed its input is within its rights; the solution is told by
        // the end of this pipe.
        if to.write_all(&buf).await.is_err() {
            return Ok(false);
        }
    }
}
