//! Moves disks of cold sessions to the object store, behind the requests that needed their room.
//!
//! A sandbox needs memory and processes that its predecessor gave up; the predecessor's disk may
//! leave later. So that a store that is slow does not fill this server's disk, the number of disks
//! on their way is bounded: beyond it a request waits for its own.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::SessionsInner;

/// Disks that are moved at a time. Each is read and compressed, which takes a processor.
const ARCHIVES_AT_ONCE: usize = 2;
/// Disks that wait to be moved, or are being moved, beyond `sessions.capacity`.
pub(super) const ARCHIVES_PENDING_MAX: usize = 64;

/// Bounds on disks that are on their way to the object store.
#[derive(Debug)]
pub(super) struct ArchiveQueue {
    pending: Arc<Semaphore>,
    running: Semaphore,
}

impl ArchiveQueue {
    pub(super) fn new() -> ArchiveQueue {
        ArchiveQueue {
            pending: Arc::new(Semaphore::new(ARCHIVES_PENDING_MAX)),
            running: Semaphore::new(ARCHIVES_AT_ONCE),
        }
    }
}

impl SessionsInner {
    /// Moves the disk of a cold session to the object store: in the background, unless
    /// [`ARCHIVES_PENDING_MAX`] others are on their way.
    pub(super) async fn archive_later(self: &Arc<Self>, id: Arc<str>) {
        let Ok(pending) = Arc::clone(&self.archives.pending).try_acquire_owned() else {
            self.archive(&id).await;
            return;
        };
        let inner = Arc::clone(self);
        node::task::spawn(async move {
            let _pending = pending;
            let Ok(_running) = inner.archives.running.acquire().await else { return };
            inner.archive(&id).await;
        });
    }
}
