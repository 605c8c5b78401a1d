//! Files of sessions that other nodes have, fetched ahead by the node that goes on with a session
//! if its own is lost: the one that rendezvous hashing names, as in a takeover and in a drain.
//!
//! A node that has stored files of a session tells that node where they are, and on what layers
//! they stand. It fetches them when it has nothing better to do; who is told too much forgets the
//! rest, and asks the object store for it when the time comes.

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

/// Disks and layers that are to be fetched. Beyond that they are forgotten.
const QUEUE_MAX: usize = 4096;
/// Pause before the next look whether disks are being restored, which go before.
const YIELD_PAUSE: Duration = Duration::from_millis(100);
/// Pause after something could not be fetched.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Interval at which it is looked what is too old.
const FORGET_EVERY: Duration = Duration::from_mins(1);

/// What another node has stored.
#[derive(Debug)]
enum StoredImage {
    /// A disk, by the key of its manifest.
    Disk(String),
    /// A layer, by its id.
    Layer(String),
}

/// Images that are to be fetched, in order of arrival.
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

    /// Takes note of files that another node has stored.
    pub(super) fn note_stored(&self, manifest: String) {
        self.note(StoredImage::Disk(manifest));
    }

    /// Takes note of a layer that such files stand on.
    pub(super) fn note_layer(&self, layer: String) {
        self.note(StoredImage::Layer(layer));
    }

    fn note(&self, image: StoredImage) {
        let is_wanted = self.config.now().prefetch_bytes_max > 0;
        if is_wanted && self.sender.try_send(image).is_err() {
            tracing::debug!("other nodes store files faster than they are fetched here");
        }
    }

    /// Fetches what other nodes have stored.
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
            // The queue outlives whoever fills it.
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

    /// Removes what was fetched for sessions that have been at rest since.
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
        // Room is for this node's own sessions first.
        self.storage.check_free().await?;
        match image {
            StoredImage::Disk(manifest) => self.workspaces.prefetch(manifest, bytes_max).await,
            StoredImage::Layer(id) => self.workspaces.prefetch_layer(id, bytes_max).await,
        }
    }
}
