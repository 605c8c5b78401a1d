//! Moves disks of cold sessions to the object store, in the background of the requests that needed
//! their room.
//!
//! A new sandbox needs the memory and processes of an evicted one, but that one's disk may be moved
//! later. The number of pending disks is limited, so that a slow store does not fill this server's
//! disk; beyond the limit, a request waits for the move.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Disks moved concurrently. Each is read and compressed, which occupies a processor.
const ARCHIVES_AT_ONCE: usize = 2;
/// Maximum number of pending and moving disks, in addition to `sessions.capacity`.
pub(crate) const ARCHIVES_PENDING_MAX: usize = 64;

/// Limits on disks that are moved to the object store.
#[derive(Debug)]
pub(crate) struct ArchiveQueue {
    pending: Arc<Semaphore>,
    running: Semaphore,
}

impl ArchiveQueue {
    pub(crate) fn new() -> ArchiveQueue {
        ArchiveQueue {
            pending: Arc::new(Semaphore::new(ARCHIVES_PENDING_MAX)),
            running: Semaphore::new(ARCHIVES_AT_ONCE),
        }
    }

    /// Takes a place among the pending disks; none if there are [`ARCHIVES_PENDING_MAX`] already.
    pub(crate) fn try_enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.pending).try_acquire_owned().ok()
    }

    /// Waits until a pending disk may be moved.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.running.acquire().await.ok()
    }
}
