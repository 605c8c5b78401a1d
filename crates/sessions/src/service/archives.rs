//! Moves disks of cold sessions to the object store, behind the requests that needed their room.
//!
//! A sandbox needs memory and processes that its predecessor gave up; the predecessor's disk may
//! leave later. So that a store that is slow does not fill this server's disk, the number of disks
//! on their way is bounded: beyond it a request waits for its own.

use std::sync::Arc;

use super::SessionsInner;

pub(super) mod queue;

impl SessionsInner {
    /// Moves the disk of a cold session to the object store: in the background, unless
    /// [`queue::ARCHIVES_PENDING_MAX`] others are on their way.
    pub(super) async fn archive_later(self: &Arc<Self>, id: Arc<str>) {
        let Some(pending) = self.archives.try_enter() else {
            self.archive(&id).await;
            return;
        };
        let inner = Arc::clone(self);
        node::task::spawn(async move {
            let _pending = pending;
            let Some(_running) = inner.archives.turn().await else { return };
            inner.archive(&id).await;
        });
    }
}
