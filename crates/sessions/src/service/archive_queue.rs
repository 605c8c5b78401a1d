//! Moves disks of cold sessions to the object store, behind the requests that needed their room.
//!
//! A sandbox needs memory and processes that its predecessor gave up; the predecessor's disk may
//! leave later. So that a store that is slow does not fill this server's disk, the number of disks
//! on their way is bounded: beyond it a request waits for its own.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Disks that are moved at a time. Each is read and compressed, which takes a processor.
const ARCHIVES_AT_ONCE: usize = 2;
/// Disks that wait to be moved, or are being moved, beyond `sessions.capacity`.
pub(crate) const ARCHIVES_PENDING_MAX: usize = 64;

/// Bounds on disks that are on their way to the object store.
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

    /// Takes a place among the disks that are on their way; none while there are
    /// [`ARCHIVES_PENDING_MAX`].
    pub(crate) fn try_enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.pending).try_acquire_owned().ok()
    }

    /// Waits for the turn of a disk that has a place.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.running.acquire().await.ok()
    }
}
