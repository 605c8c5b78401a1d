//! Disks and layers of sessions, on this machine and in the object store.
//!
//! A disk is a file that contains the image of a file system; a layer is a frozen disk that other
//! disks build on. Ids are never reused, so a stale copy that another server left behind is never
//! mistaken for the current one. Uploads to the object store are cut into pieces named by their
//! content (`image`), so a second snapshot of a disk stores only the changes.
//!
//! ```text
//! DATA_DIR/sessions/disks/d_….img      one for each session that has been here
//! DATA_DIR/sessions/layers/l_….img     agents' versions, snapshots, bases of forks
//! objects: disks/d_…/…, layers/l_…/…   a manifest, and pieces
//! ```
//!
//! A file receives its final name only when it is complete.

mod image;
mod piece;
mod prefetched;
mod recent;
mod restores;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use node::clock::{IdGenerator, is_id};
use node::objects::ObjectStore;
use parking_lot::Mutex;
use sandbox::{AttachedDiskImage, AttachedLayer, DiskError, DiskSize, Disks, SandboxedSession};

use self::image::PieceSource;
pub(crate) use self::image::{StoredDisk, UploadedPieces, disk_of};
use self::prefetched::PrefetchedPieces;
use self::recent::RecentLayers;
use self::restores::RestoreLimits;
pub(crate) use self::restores::RestoreRank;
use crate::error::SessionError;
use crate::metrics::RestoreMetrics;

/// Longest wait for an image that an exiting server still holds.
const ATTACH_WAIT: Duration = Duration::from_secs(20);
/// Directory of copies of disks while they are uploaded to the object store.
const COPIES: &str = "copies";

/// Prefix of manifest names.
const MANIFEST_PREFIX: &str = "m_";
/// Prefix of disk ids.
const DISK_PREFIX: &str = "d_";
/// Prefix of layer ids.
const LAYER_PREFIX: &str = "l_";
/// Directory of pieces that were fetched ahead of use.
const PREFETCHED: &str = "prefetched";

/// Id of a disk: `d_…`.
pub(crate) type DiskId = String;
/// Id of a layer: `l_…`.
pub(crate) type LayerId = String;

/// Source of a disk's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskSource {
    /// A new disk.
    Fresh,
    /// On this machine.
    Local,
    /// Downloaded from the object store, with a new id.
    Remote,
}

/// An attached disk. Dropping the last clone detaches it.
#[derive(Clone, Debug)]
pub(crate) struct AttachedDisk {
    pub(crate) id: DiskId,
    pub(crate) disk: Arc<AttachedDiskImage>,
    pub(crate) source: DiskSource,
}

/// A detached disk: its content is durable, and deleted blocks take no space in its file.
#[derive(Debug)]
pub(crate) struct SettledDisk(DiskId);

impl SettledDisk {
    /// Returns the disk's id.
    pub(crate) fn id(&self) -> &DiskId {
        &self.0
    }
}

/// Disks and layers of this server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WorkspaceStore(Arc<WorkspaceShared>);

struct WorkspaceShared {
    directory: PathBuf,
    maker: Disks,
    objects: ObjectStore,
    ids: IdGenerator,
    /// Size and maximum number of disks that are prepared in advance.
    ready_size: DiskSize,
    ready_max: usize,
    ready: Mutex<VecDeque<AttachedDisk>>,
    layers: Mutex<HashMap<LayerId, Weak<AttachedLayer>>>,
    /// Layers that stay attached for a while after their last use.
    recent: RecentLayers,
    /// Per-layer locks, so that concurrent users restore and attach a layer only once.
    fetching: Mutex<HashMap<LayerId, Weak<tokio::sync::Mutex<()>>>>,
    restores: RestoreLimits,
    prefetched: PrefetchedPieces,
    metrics: RestoreMetrics,
    /// Layers known to be in the object store.
    published: Mutex<HashSet<LayerId>>,
    publishing: tokio::sync::Mutex<()>,
}

impl WorkspaceStore {
    /// Opens the `sessions` directory of the data directory, creates it if it is missing, and
    /// removes unfinished files of an earlier server. Blocks.
    pub(crate) fn open(
        data_dir: &Path,
        objects: ObjectStore,
        ready_size: DiskSize,
        ready_max: usize,
        metrics: RestoreMetrics,
    ) -> Result<WorkspaceStore, SessionError> {
        let directory = data_dir.join("sessions");
        for name in ["disks", "layers", "templates"] {
            fs::create_dir_all(directory.join(name)).map_err(SessionError::internal)?;
        }
        let maker = Disks::open(&directory.join("templates")).map_err(SessionError::internal)?;
        match fs::remove_dir_all(directory.join(COPIES)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(SessionError::internal(error));
            }
            _ => fs::create_dir(directory.join(COPIES)).map_err(SessionError::internal)?,
        }
        let prefetched = directory.join(PREFETCHED);
        Ok(WorkspaceStore(Arc::new(WorkspaceShared {
            directory,
            maker,
            objects,
            ids: IdGenerator::new().map_err(SessionError::internal)?,
            ready_size,
            ready_max,
            ready: Mutex::default(),
            layers: Mutex::default(),
            recent: RecentLayers::default(),
            fetching: Mutex::default(),
            restores: RestoreLimits::new(),
            prefetched: PrefetchedPieces::open(prefetched).map_err(SessionError::internal)?,
            metrics,
            published: Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
        })))
    }

    fn disk_path(&self, id: &str) -> PathBuf {
        self.0.directory.join("disks").join(image_name(id))
    }

    fn layer_path(&self, id: &str) -> PathBuf {
        self.0.directory.join("layers").join(image_name(id))
    }

    fn copy_path(&self) -> PathBuf {
        self.0.directory.join(COPIES).join(self.0.ids.next("c_"))
    }

    /// Returns a fresh disk; a prepared one if `size` is the usual size.
    pub(crate) async fn blank(&self, size: DiskSize) -> Result<AttachedDisk, SessionError> {
        if size == self.0.ready_size
            && let Some(ready) = self.0.ready.lock().pop_front()
        {
            return Ok(ready);
        }
        self.make(size).await
    }

    async fn make(&self, size: DiskSize) -> Result<AttachedDisk, SessionError> {
        let id = self.0.ids.next(DISK_PREFIX);
        let (path, maker) = (self.disk_path(&id), self.0.maker.clone());
        let disk = blocking(move || {
            maker.create(&path, size).map_err(SessionError::internal)?;
            AttachedDiskImage::attach(&path, ATTACH_WAIT).map_err(SessionError::internal)
        })
        .await?;
        Ok(AttachedDisk { id, disk: Arc::new(disk), source: DiskSource::Fresh })
    }

    /// Prepares one disk if too few are ready, and returns whether it did.
    pub(crate) async fn replenish(&self) -> Result<bool, SessionError> {
        if self.0.ready.lock().len() >= self.0.ready_max {
            return Ok(false);
        }
        let made = self.make(self.0.ready_size).await?;
        self.0.ready.lock().push_back(made);
        Ok(true)
    }

    /// Removes the prepared disks and their files.
    pub(crate) async fn discard_ready(&self) {
        let ready: Vec<AttachedDisk> = self.0.ready.lock().drain(..).collect();
        for attached in ready {
            self.discard(attached).await;
        }
    }

    /// Removes an unused disk and its file.
    pub(crate) async fn discard(&self, attached: AttachedDisk) {
        let id = attached.id.clone();
        let detach = move || {
            drop(attached);
            Ok(())
        };
        if let Err(error) = blocking(detach).await {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to detach a disk");
        }
        self.remove_local(&id).await;
    }

    /// Attaches a disk: its local file if it exists, otherwise a copy restored from `manifest`
    /// under a new id. Restores run in order of `used_ms` (milliseconds since 1970), most recently
    /// used first.
    pub(crate) async fn attach(
        &self,
        id: &str,
        manifest: Option<&str>,
        used_ms: u64,
    ) -> Result<AttachedDisk, SessionError> {
        let path = self.disk_path(id);
        if self.has_disk(id).await? {
            let disk = blocking(move || {
                AttachedDiskImage::attach(&path, ATTACH_WAIT).map_err(SessionError::internal)
            })
            .await?;
            return Ok(AttachedDisk {
                id: id.to_owned(),
                disk: Arc::new(disk),
                source: DiskSource::Local,
            });
        }
        let Some(manifest) = manifest else {
            let message = format!("the disk {id} is on no server and in no object store");
            return Err(SessionError::internal(message));
        };
        let new = self.0.ids.next(DISK_PREFIX);
        let path = self.disk_path(&new);
        self.restore(RestoreRank::Disk(used_ms), manifest, &path).await?;
        let disk = blocking(move || {
            AttachedDiskImage::attach(&path, ATTACH_WAIT).map_err(SessionError::internal)
        })
        .await?;
        Ok(AttachedDisk { id: new, disk: Arc::new(disk), source: DiskSource::Remote })
    }

    /// Returns whether a disk is on this server.
    pub(crate) async fn has_disk(&self, id: &str) -> Result<bool, SessionError> {
        let path = self.disk_path(id);
        blocking(move || path.try_exists().map_err(SessionError::internal)).await
    }

    /// Returns the layers of a chain, in order. A layer is attached once for all its users, and
    /// restored from the object store if it is not on this machine.
    pub(crate) async fn layers(
        &self,
        chain: &[LayerId],
    ) -> Result<Vec<Arc<AttachedLayer>>, SessionError> {
        futures_util::future::try_join_all(chain.iter().map(|id| self.layer(id))).await
    }

    async fn restore(
        &self,
        rank: RestoreRank,
        manifest: &str,
        path: &Path,
    ) -> Result<(), SessionError> {
        let prefetched = self.0.prefetched.take(manifest);
        self.note_prefetched();
        let source = PieceSource {
            objects: &self.0.objects,
            prefetched: prefetched.as_ref(),
            metrics: &self.0.metrics,
        };
        let restored = image::restore(source, &self.0.restores, rank, manifest, path).await;
        if let Some(prefetched) = prefetched {
            prefetched.remove().await;
        }
        restored
    }

    /// Returns whether a session waits for images from the object store.
    pub(crate) fn is_restoring(&self) -> bool {
        self.0.restores.is_busy()
    }

    /// Fetches a disk that another node has stored, so that this node can take over its session
    /// faster.
    ///
    /// # Errors
    /// See [`PrefetchedPieces::fetch`].
    pub(crate) async fn prefetch(
        &self,
        manifest: &str,
        bytes_max: u64,
    ) -> Result<(), SessionError> {
        let name = self.0.ids.next("f_");
        let fetched = self.0.prefetched.fetch(&self.0.objects, manifest, &name, bytes_max).await;
        self.note_prefetched();
        fetched
    }

    /// Fetches a layer of another node's session, unless the layer is on this machine.
    ///
    /// # Errors
    /// See [`PrefetchedPieces::fetch`].
    pub(crate) async fn prefetch_layer(
        &self,
        id: &str,
        bytes_max: u64,
    ) -> Result<(), SessionError> {
        if !is_id(LAYER_PREFIX, id) {
            return Err(SessionError::invalid("layer", format!("`{id}` is no layer")));
        }
        let path = self.layer_path(id);
        if blocking(move || path.try_exists().map_err(SessionError::internal)).await? {
            return Ok(());
        }
        let (name, manifest) = (self.0.ids.next("fl_"), image::layer_manifest_key(id));
        let fetched = self.0.prefetched.fetch(&self.0.objects, &manifest, &name, bytes_max).await;
        self.note_prefetched();
        fetched
    }

    /// Removes disks and layers that were fetched ahead before `before`.
    ///
    /// # Errors
    /// If the files cannot be removed.
    pub(crate) async fn forget_prefetched(&self, before: Instant) -> Result<(), SessionError> {
        let removed = self.0.prefetched.remove_older(before).await;
        self.note_prefetched();
        removed
    }

    fn note_prefetched(&self) {
        let bytes = i64::try_from(self.0.prefetched.bytes()).unwrap_or(i64::MAX);
        self.0.metrics.prefetched_bytes.set(bytes);
    }

    /// Returns the lock that serializes restoring a layer.
    fn fetch_lock(&self, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.0.fetching.lock();
        if let Some(lock) = fetching.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        fetching.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        fetching.insert(id.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// Returns the layers of a chain, newest first, for a short use; they stay attached for a while
    /// afterwards.
    pub(crate) async fn recent_layers(
        &self,
        chain: &[LayerId],
    ) -> Result<Vec<Arc<AttachedLayer>>, SessionError> {
        let layers = self.layers(chain).await?;
        let used: Vec<_> = chain.iter().cloned().zip(layers.iter().cloned()).collect();
        let gone = self.0.recent.keep(&used, node::clock::now());
        drop_elsewhere(gone).await?;
        Ok(layers.into_iter().rev().collect())
    }

    /// Detaches layers that have been unused for a while.
    pub(crate) async fn detach_unused(&self) -> Result<(), SessionError> {
        drop_elsewhere(self.0.recent.take_unused(node::clock::now())).await
    }

    async fn layer(&self, id: &str) -> Result<Arc<AttachedLayer>, SessionError> {
        let known = || self.0.layers.lock().get(id).and_then(Weak::upgrade);
        if let Some(layer) = known() {
            return Ok(layer);
        }
        let fetching = self.fetch_lock(id);
        let _one_at_a_time = fetching.lock().await;
        if let Some(layer) = known() {
            return Ok(layer);
        }
        let path = self.layer_path(id);
        let exists = path.clone();
        if !blocking(move || exists.try_exists().map_err(SessionError::internal)).await? {
            let manifest = image::layer_manifest_key(id);
            self.restore(RestoreRank::Layer, &manifest, &path).await?;
            self.0.published.lock().insert(id.to_owned());
        }
        let layer = blocking(move || {
            AttachedLayer::attach(&path, ATTACH_WAIT).map_err(SessionError::internal)
        });
        let layer = Arc::new(layer.await?);
        let mut layers = self.0.layers.lock();
        layers.retain(|_, layer| layer.strong_count() > 0);
        layers.insert(id.to_owned(), Arc::downgrade(&layer));
        Ok(layer)
    }

    /// Turns a detached disk into a layer. The disk no longer exists afterwards.
    pub(crate) async fn freeze(&self, disk: &str) -> Result<LayerId, SessionError> {
        let id = self.0.ids.next(LAYER_PREFIX);
        let (from, to) = (self.disk_path(disk), self.layer_path(&id));
        let _permit = self.0.objects.removals().permit().await;
        blocking(move || {
            settle(&from)?;
            fs::rename(&from, &to).map_err(SessionError::internal)
        })
        .await?;
        Ok(id)
    }

    /// Creates a layer from the current content of a disk that is in use, possibly by `user`.
    pub(crate) async fn freeze_copy(
        &self,
        attached: &AttachedDisk,
        user: Option<&SandboxedSession>,
    ) -> Result<LayerId, SessionError> {
        let id = self.0.ids.next(LAYER_PREFIX);
        copy(attached, user, &self.layer_path(&id)).await?;
        Ok(id)
    }

    /// Uploads a disk in use (possibly by `user`) and its chain to the object store. Returns the
    /// key of the manifest, which [`WorkspaceStore::attach`] takes; `before` is the key of the
    /// session's previous snapshot. The disk and its user are held only for the duration of the
    /// local copy, so a stalled object store does not delay the end of the sandbox.
    pub(crate) async fn snapshot(
        &self,
        attached: AttachedDisk,
        user: Option<SandboxedSession>,
        chain: &[LayerId],
        before: Option<&str>,
        uploaded: &UploadedPieces,
    ) -> Result<StoredDisk, SessionError> {
        let path = self.copy_path();
        copy(&attached, user.as_ref(), &path).await?;
        drop(user);
        let id = attached.id.clone();
        let stored = async {
            // This may be the last reference, and detaching writes remaining data.
            let detach = move || {
                drop(attached);
                Ok(())
            };
            blocking(detach).await?;
            // A manifest must not refer to layers that are not stored.
            self.publish_all(chain).await?;
            let name = self.0.ids.next(MANIFEST_PREFIX);
            image::store_disk(&self.0.objects, &id, &name, &path, before, uploaded).await
        };
        let stored = stored.await;
        self.remove_file(path).await;
        stored
    }

    /// Detaches a disk whose sandbox is ending, and waits until no process has it attached. Returns
    /// `None` if the disk must still be settled because its last user did not detach it cleanly.
    pub(crate) async fn detach_settled(
        &self,
        attached: AttachedDisk,
    ) -> Result<Option<SettledDisk>, SessionError> {
        let AttachedDisk { id, disk, .. } = attached;
        let path = self.disk_path(&id);
        blocking(move || {
            // Runs while programs end. Their later writes are durable once the last program is
            // gone, and trimming their later deletions is not worth the wait.
            disk.sync().and_then(|()| disk.trim()).map_err(SessionError::internal)?;
            drop(disk);
            let is_whole = AttachedDiskImage::wait_until_detached(&path, ATTACH_WAIT);
            Ok(is_whole.map_err(SessionError::internal)?.then_some(SettledDisk(id)))
        })
        .await
    }

    /// Brings a detached disk into the state in which it is stored.
    pub(crate) async fn settle(&self, disk: &str) -> Result<(), SessionError> {
        let path = self.disk_path(disk);
        blocking(move || settle(&path)).await
    }

    /// Uploads a settled, detached disk. Only reads the disk, so the caller may cancel it when a
    /// session attaches the disk.
    pub(crate) async fn snapshot_cold(
        &self,
        disk: &str,
        chain: &[LayerId],
        before: Option<&str>,
        uploaded: &UploadedPieces,
    ) -> Result<StoredDisk, SessionError> {
        self.publish_all(chain).await?;
        let (path, name) = (self.disk_path(disk), self.0.ids.next(MANIFEST_PREFIX));
        image::store_disk(&self.0.objects, disk, &name, &path, before, uploaded).await
    }

    /// Uploads the layers that the object store does not have.
    pub(crate) async fn publish_all(&self, chain: &[LayerId]) -> Result<(), SessionError> {
        for id in chain {
            if self.0.published.lock().contains(id) {
                continue;
            }
            let _one_at_a_time = self.0.publishing.lock().await;
            let key = image::layer_manifest_key(id);
            if !self.0.objects.exists(&key).await.map_err(unavailable)? {
                image::store_layer(&self.0.objects, id, &self.layer_path(id)).await?;
            }
            self.0.published.lock().insert(id.clone());
        }
        Ok(())
    }

    /// Returns the allocated size of a layer's own file on this machine, in bytes.
    pub(crate) async fn layer_bytes(&self, id: &str) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.layer_path(id);
        let blocks = blocking(move || fs::metadata(path).map_err(SessionError::internal));
        blocks.await.map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// Returns the bytes that these disks take on this machine; disks that are elsewhere count as
    /// 0.
    pub(crate) async fn disks_bytes(&self, disks: Vec<DiskId>) -> Result<u64, SessionError> {
        use std::os::unix::fs::MetadataExt as _;
        let paths: Vec<PathBuf> = disks.iter().map(|disk| self.disk_path(disk)).collect();
        blocking(move || {
            let taken = paths.iter().filter_map(|path| fs::metadata(path).ok());
            Ok(taken.map(|metadata| metadata.blocks() * 512).sum())
        })
        .await
    }

    /// Returns the free bytes on the file system that holds this machine's disks.
    pub(crate) async fn free_bytes(&self) -> Result<u64, SessionError> {
        let maker = self.0.maker.clone();
        blocking(move || maker.free_bytes().map_err(SessionError::internal)).await
    }

    /// Removes a detached disk from this machine; objects in the object store stay.
    pub(crate) async fn remove_local(&self, disk: &str) {
        self.remove_file(self.disk_path(disk)).await;
    }

    /// Removes a disk from this machine and from the object store.
    pub(crate) async fn remove(&self, disk: &str) {
        self.remove_local(disk).await;
        image::remove(&self.0.objects, image::DISKS, disk).await;
    }

    /// Removes objects that a snapshot has replaced, once the session's row names the new manifest.
    pub(crate) async fn remove_replaced(&self, keys: &[String]) {
        image::remove_replaced(&self.0.objects, keys).await;
    }

    /// Removes a disk from the object store, by the key of its manifest.
    pub(crate) async fn remove_stored(&self, manifest: &str) {
        if let Some(disk) = disk_of(manifest) {
            image::remove(&self.0.objects, image::DISKS, disk).await;
        }
    }

    /// Removes a layer from this machine and from the object store. Sessions that have it attached
    /// keep working.
    pub(crate) async fn remove_layer(&self, layer: &str) {
        if let Err(error) = drop_elsewhere(self.0.recent.take(layer).into_iter().collect()).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, layer, "failed to detach a layer");
        }
        self.remove_file(self.layer_path(layer)).await;
        self.0.published.lock().remove(layer);
        image::remove(&self.0.objects, image::LAYERS, layer).await;
    }

    async fn remove_file(&self, path: PathBuf) {
        let _permit = self.0.objects.removals().permit().await;
        let removed = blocking(move || match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(SessionError::internal),
        });
        if let Err(error) = removed.await {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to remove an image");
        }
    }

    /// Removes files of disks and layers on this machine that the store does not list: a server
    /// crashed before it recorded them. Must run before any disk is created. Returns the number of
    /// removed files.
    pub(crate) async fn sweep(
        &self,
        disks: HashSet<DiskId>,
        layers: HashSet<LayerId>,
    ) -> Result<usize, SessionError> {
        let directory = self.0.directory.clone();
        blocking(move || {
            let mut removed = 0;
            for (name, known) in [("disks", disks), ("layers", layers)] {
                for entry in fs::read_dir(directory.join(name)).map_err(SessionError::internal)? {
                    let entry = entry.map_err(SessionError::internal)?;
                    let file = entry.file_name();
                    let id = file.to_str().and_then(|file| file.strip_suffix(".img"));
                    if id.is_none_or(|id| !known.contains(id)) {
                        fs::remove_file(entry.path()).map_err(SessionError::internal)?;
                        removed += 1;
                    }
                }
            }
            Ok(removed)
        })
        .await
    }
}

/// Returns the file name of a disk or of a layer.
pub(crate) fn image_name(id: &str) -> String {
    format!("{id}.img")
}

/// Result of [`copy_cold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColdCopy {
    /// The copy is complete.
    Done,
    /// Another process has the disk attached.
    InUse,
}

/// Copies a detached disk. A session that is resumed on it meanwhile waits.
pub(crate) async fn copy_cold(image: &Path, to: &Path) -> Result<ColdCopy, SessionError> {
    let (image, to) = (image.to_owned(), to.to_owned());
    blocking(move || {
        let attached = match AttachedDiskImage::attach(&image, ATTACH_WAIT) {
            Err(DiskError::InUse { .. }) => return Ok(ColdCopy::InUse),
            attached => attached.map_err(SessionError::internal)?,
        };
        attached.copy_to(&to).map_err(SessionError::internal)?;
        Ok(ColdCopy::Done)
    })
    .await
}

/// Copies a disk that is in use. Programs that write without pause are frozen for the duration.
pub(crate) async fn copy(
    attached: &AttachedDisk,
    user: Option<&SandboxedSession>,
    to: &Path,
) -> Result<(), SessionError> {
    let (disk, to) = (Arc::clone(&attached.disk), to.to_owned());
    let once = move || {
        let (disk, to) = (Arc::clone(&disk), to.clone());
        node::task::blocking(move || disk.copy_to(&to))
    };
    match (once().await.map_err(SessionError::internal)?, user.cloned()) {
        (Err(DiskError::Busy { .. }), Some(user)) => {
            // A separate task: the caller may be cancelled, but the programs must be resumed.
            let held = node::task::to_the_end(async move {
                user.freeze().await?;
                let copied = once().await;
                user.thaw().await?;
                copied.map_err(SessionError::internal)?.map_err(SessionError::internal)
            });
            held.await.map_err(SessionError::internal)?
        }
        (copied, _) => copied.map_err(SessionError::internal),
    }
}

/// Waits until the last user of a disk has detached it, replays the journal, and discards deleted
/// blocks so that they are not uploaded.
fn settle(path: &Path) -> Result<(), SessionError> {
    let disk = AttachedDiskImage::attach(path, ATTACH_WAIT).map_err(SessionError::internal)?;
    disk.sync().and_then(|()| disk.trim()).map_err(SessionError::internal)
}

/// Drops these references to layers; detaches the layers that have no other user.
async fn drop_elsewhere(layers: Vec<Arc<AttachedLayer>>) -> Result<(), SessionError> {
    if layers.is_empty() {
        return Ok(());
    }
    let detach = move || {
        drop(layers);
        Ok(())
    };
    blocking(detach).await
}

/// Runs `body`, which may wait for the disk, on a blocking thread.
async fn blocking<T: Send + 'static>(
    body: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    let done = node::task::blocking(body).await.map_err(SessionError::internal)?;
    done.map_err(or_disk_full)
}

/// Converts an internal error that the full disk of the server caused. Free space is measured once
/// a second, so a request may fail here before it is rejected for lack of space.
fn or_disk_full(error: SessionError) -> SessionError {
    let SessionError::Internal(cause) = &error else { return error };
    let mut source = Some(&**cause as &(dyn std::error::Error + 'static));
    while let Some(cause) = source {
        let io = cause.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the server's disk is full");
            return SessionError::DiskFull("the server's disk is full".to_owned());
        }
        source = cause.source();
    }
    error
}

fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SessionError {
    SessionError::Unavailable(error.into())
}

#[cfg(test)]
mod tests;
