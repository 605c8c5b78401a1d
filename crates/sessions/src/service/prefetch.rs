//! Files of other nodes' sessions, fetched ahead by the node that takes a session over if its own
//! node is lost: the one that rendezvous hashing selects, as in a takeover and in a drain.
//!
//! A node that has stored files of a session notifies that node of their location and layers. The
//! notified node fetches them when it is otherwise idle; if its queue is full, it drops
//! notifications and reads those files from the object store when they are needed.

use std::sync::Arc;
use std::time::Duration;

use node::clock;
use node::current::CurrentSettings;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time;

use super::shared::SharedParts;
use super::storage::StorageQuota;
use crate::config::SessionsConfig;
use crate::error::SessionError;
use crate::workspace::WorkspaceStore;

/// Maximum number of queued disks and layers; further ones are dropped.
const QUEUE_MAX: usize = 4096;
/// Interval of checks whether restores, which take precedence, are running.
const YIELD_PAUSE: Duration = Duration::from_millis(100);
/// Pause after a failed fetch.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Interval of the removal of old files.
const FORGET_EVERY: Duration = Duration::from_mins(1);

/// Image that another node has stored.
#[derive(Debug)]
enum StoredImage {
    /// A disk, by the key of its manifest.
    Disk(String),
    /// A layer, by its id.
    Layer(String),
}

/// Images to fetch, in order of arrival.
pub(crate) struct PrefetchQueue {
    config: CurrentSettings<SessionsConfig>,
    workspaces: WorkspaceStore,
    storage: Arc<StorageQuota>,
    sender: mpsc::Sender<StoredImage>,
    receiver: Mutex<Option<mpsc::Receiver<StoredImage>>>,
}

impl PrefetchQueue {
    pub(super) fn new(shared: &SharedParts) -> PrefetchQueue {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        PrefetchQueue {
            config: shared.config.clone(),
            workspaces: shared.workspaces.clone(),
            storage: Arc::clone(&shared.storage),
            sender,
            receiver: Mutex::new(Some(receiver)),
        }
    }

    /// Queues the files that another node has stored.
    pub(super) fn note_stored(&self, manifest: String) {
        self.note(StoredImage::Disk(manifest));
    }

    /// Queues a layer below such files.
    pub(super) fn note_layer(&self, layer: String) {
        self.note(StoredImage::Layer(layer));
    }

    fn note(&self, image: StoredImage) {
        let is_wanted = self.config.now().prefetch_bytes_max > 0;
        if is_wanted && self.sender.try_send(image).is_err() {
            tracing::debug!("other nodes store files faster than they are fetched here");
        }
    }

    /// Fetches queued images, for ever.
    pub(super) async fn fetch_all(&self) {
        let Some(mut receiver) = self.receiver.lock().take() else { return };
        let mut forgot = clock::now();
        loop {
            let told = time::timeout(FORGET_EVERY, receiver.recv()).await;
            let now = clock::now();
            if now.duration_since(forgot) >= FORGET_EVERY {
                self.forget_prefetched().await;
                forgot = now;
            }
            let Ok(told) = told else { continue };
            // Does not happen: the sender lives as long as the queue.
            let Some(image) = told else { return };
            while self.workspaces.is_restoring() {
                time::sleep(YIELD_PAUSE).await;
            }
            let fetched = self.fetch(&image).await;
            if let Err(error) = &fetched {
                let error = error as &dyn std::error::Error;
                tracing::debug!(?image, error, "files of another node's session are not here");
            }
            if fetched.is_err() {
                time::sleep(FAILURE_PAUSE).await;
            }
        }
    }

    /// Removes files fetched for sessions that have been at rest since.
    async fn forget_prefetched(&self) {
        let age = Duration::from_secs(self.config.now().cold_s.into());
        let Some(before) = clock::now().checked_sub(age) else { return };
        if let Err(error) = self.workspaces.forget_prefetched(before).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "files of other nodes' sessions are still here");
        }
    }

    async fn fetch(&self, image: &StoredImage) -> Result<(), SessionError> {
        let bytes_max = self.config.now().prefetch_bytes_max;
        // This node's own sessions take precedence for disk space.
        self.storage.check_free().await?;
        match image {
            StoredImage::Disk(manifest) => self.workspaces.prefetch(manifest, bytes_max).await,
            StoredImage::Layer(id) => self.workspaces.prefetch_layer(id, bytes_max).await,
        }
    }
}
