//! Disks and layers of sessions, on this machine and in the object store.
//!
//! A disk is a file with the image of a file system; a layer is a disk that was frozen and that
//! others stand on. Both have ids that are never used twice, so that a copy that another server
//! left behind is never mistaken for the current one. What goes to the object store is cut into
//! pieces that are named by their content (`image`): a second snapshot of a disk stores what has
//! changed.
//!
//! ```text
//! DATA_DIR/sessions/disks/d_….img      one for each session that has been here
//! DATA_DIR/sessions/layers/l_….img     agents' versions, snapshots, what forks stand on
//! objects: disks/d_…/…, layers/l_…/…   a manifest, and pieces
//! ```
//!
//! A file is complete or not there: it gets its name when it is.

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

/// Time that an image may be held by a server that is just going away.
const ATTACH_WAIT: Duration = Duration::from_secs(20);
/// Directory of copies of disks while they are uploaded to the object store.
const COPIES: &str = "copies";

/// Begins the name of a manifest.
const MANIFEST_PREFIX: &str = "m_";
/// Begins the name of a disk.
const DISK_PREFIX: &str = "d_";
/// Begins the name of a layer.
const LAYER_PREFIX: &str = "l_";
/// Directory of pieces that were fetched ahead.
const PREFETCHED: &str = "prefetched";

/// Names a disk: `d_…`.
pub(crate) type DiskId = String;
/// Names a layer: `l_…`.
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

/// A disk that is attached. Dropping the last one detaches it.
#[derive(Clone, Debug)]
pub(crate) struct AttachedDisk {
    pub(crate) id: DiskId,
    pub(crate) disk: Arc<AttachedDiskImage>,
    pub(crate) source: DiskSource,
}

/// Disk that nobody has attached: everything on it is durable, and what was deleted takes no room
/// in its file.
#[derive(Debug)]
pub(crate) struct SettledDisk(DiskId);

impl SettledDisk {
    /// Returns which disk it is.
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
    /// Size of the disks that are kept ready, and how many.
    ready_size: DiskSize,
    ready_max: usize,
    ready: Mutex<VecDeque<AttachedDisk>>,
    layers: Mutex<HashMap<LayerId, Weak<AttachedLayer>>>,
    /// Those that stay attached although nobody uses them.
    recent: RecentLayers,
    /// Locks of layers that are being brought and attached, so that it is done once for each.
    fetching: Mutex<HashMap<LayerId, Weak<tokio::sync::Mutex<()>>>>,
    restores: RestoreLimits,
    prefetched: PrefetchedPieces,
    metrics: RestoreMetrics,
    /// Layers known to be in the object store.
    published: Mutex<HashSet<LayerId>>,
    publishing: tokio::sync::Mutex<()>,
}

impl WorkspaceStore {
    /// Opens the directory `sessions` of the data directory, and makes it when it is missing. What
    /// an earlier server left unfinished is removed. Blocks.
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

    /// A fresh disk; one of those that are ready when it has the usual size.
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

    /// Makes one disk for those that are kept ready, when there are too few; tells whether it did.
    pub(crate) async fn replenish(&self) -> Result<bool, SessionError> {
        if self.0.ready.lock().len() >= self.0.ready_max {
            return Ok(false);
        }
        let made = self.make(self.0.ready_size).await?;
        self.0.ready.lock().push_back(made);
        Ok(true)
    }

    /// Gives up the disks that are kept ready, with their files.
    pub(crate) async fn discard_ready(&self) {
        let ready: Vec<AttachedDisk> = self.0.ready.lock().drain(..).collect();
        for attached in ready {
            self.discard(attached).await;
        }
    }

    /// Gives up a disk that nobody has used, with its file.
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

    /// Attaches a disk: the file of this machine, else what the manifest in the object store says,
    /// under a new id. Of those that are brought from there, the ones that were used last, in
    /// milliseconds since 1970, come first.
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

    /// The layers of a chain, in its order, attached once for all who stand on them; brought from
    /// the object store where they are not here.
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

    /// Returns whether images are being brought from the object store for somebody.
    pub(crate) fn is_restoring(&self) -> bool {
        self.0.restores.is_busy()
    }

    /// Fetches a disk that another node has stored, for when this one goes on with its session.
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

    /// Fetches a layer that a session of another node stands on, unless it is on this machine.
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

    /// Removes disks and layers that were fetched ahead before this.
    ///
    /// # Errors
    /// When the machine cannot be asked.
    pub(crate) async fn forget_prefetched(&self, before: Instant) -> Result<(), SessionError> {
        let removed = self.0.prefetched.remove_older(before).await;
        self.note_prefetched();
        removed
    }

    fn note_prefetched(&self) {
        let bytes = i64::try_from(self.0.prefetched.bytes()).unwrap_or(i64::MAX);
        self.0.metrics.prefetched_bytes.set(bytes);
    }

    /// The lock of a layer that is being brought.
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

    /// The same, the newest first, for somebody who is soon done with them: they stay attached for
    /// a while.
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

    /// Detaches layers that nobody has used for a while.
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

    /// Makes a layer of a disk that is not attached any more. The disk is gone then.
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

    /// Makes a layer of what a disk that is in use, by `user` if by anybody, contains now.
    pub(crate) async fn freeze_copy(
        &self,
        attached: &AttachedDisk,
        user: Option<&SandboxedSession>,
    ) -> Result<LayerId, SessionError> {
        let id = self.0.ids.next(LAYER_PREFIX);
        copy(attached, user, &self.layer_path(&id)).await?;
        Ok(id)
    }

    /// Brings a disk that is in use, by `user` if by anybody, and its chain, to the object store.
    /// Answers the key of the manifest, by which [`WorkspaceStore::attach`] finds it; `before` is
    /// that of the session's last snapshot. The disk and its user are kept for no longer than the
    /// copy takes: a store that takes nothing at present holds nobody up who wants to end the
    /// sandbox.
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
            // It may be the last one, and detaching writes what is left.
            let detach = move || {
                drop(attached);
                Ok(())
            };
            blocking(detach).await?;
            // What a manifest stands on is there before it is.
            self.publish_all(chain).await?;
            let name = self.0.ids.next(MANIFEST_PREFIX);
            image::store_disk(&self.0.objects, &id, &name, &path, before, uploaded).await
        };
        let stored = stored.await;
        self.remove_file(path).await;
        stored
    }

    /// Detaches a disk whose sandbox is ending, and waits until nobody has it attached. None where
    /// it has to be settled all the same: its last user did not get to the end.
    pub(crate) async fn detach_settled(
        &self,
        attached: AttachedDisk,
    ) -> Result<Option<SettledDisk>, SessionError> {
        let AttachedDisk { id, disk, .. } = attached;
        let path = self.disk_path(&id);
        blocking(move || {
            // While programs end. What they still write is durable when the last one is gone, and
            // what they delete is not worth waiting for.
            disk.sync().and_then(|()| disk.trim()).map_err(SessionError::internal)?;
            drop(disk);
            let is_whole = AttachedDiskImage::wait_until_detached(&path, ATTACH_WAIT);
            Ok(is_whole.map_err(SessionError::internal)?.then_some(SettledDisk(id)))
        })
        .await
    }

    /// Brings a disk that is not attached into the state in which it is stored.
    pub(crate) async fn settle(&self, disk: &str) -> Result<(), SessionError> {
        let path = self.disk_path(disk);
        blocking(move || settle(&path)).await
    }

    /// Makes a snapshot of a settled disk that is not attached. It only reads the disk, so that it
    /// may be dropped for somebody who attaches it.
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

    /// Brings layers to the object store, where they are not there.
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

    /// Size of a layer's own file on this machine, in bytes that are really there.
    pub(crate) async fn layer_bytes(&self, id: &str) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.layer_path(id);
        let blocks = blocking(move || fs::metadata(path).map_err(SessionError::internal));
        blocks.await.map_or(0, |metadata| metadata.blocks() * 512)
    }

    /// Bytes that these disks take on this machine; none for those that are not here.
    pub(crate) async fn disks_bytes(&self, disks: Vec<DiskId>) -> Result<u64, SessionError> {
        use std::os::unix::fs::MetadataExt as _;
        let paths: Vec<PathBuf> = disks.iter().map(|disk| self.disk_path(disk)).collect();
        blocking(move || {
            let taken = paths.iter().filter_map(|path| fs::metadata(path).ok());
            Ok(taken.map(|metadata| metadata.blocks() * 512).sum())
        })
        .await
    }

    /// Bytes that are free on the file system of this machine's disks.
    pub(crate) async fn free_bytes(&self) -> Result<u64, SessionError> {
        let maker = self.0.maker.clone();
        blocking(move || maker.free_bytes().map_err(SessionError::internal)).await
    }

    /// Removes a disk that is not attached from this machine; the object store keeps what it has.
    pub(crate) async fn remove_local(&self, disk: &str) {
        self.remove_file(self.disk_path(disk)).await;
    }

    /// Removes a disk for good.
    pub(crate) async fn remove(&self, disk: &str) {
        self.remove_local(disk).await;
        image::remove(&self.0.objects, image::DISKS, disk).await;
    }

    /// Removes what a snapshot has replaced, once the session's row names the new manifest.
    pub(crate) async fn remove_replaced(&self, keys: &[String]) {
        image::remove_replaced(&self.0.objects, keys).await;
    }

    /// Removes a disk from the object store, by the key of its manifest.
    pub(crate) async fn remove_stored(&self, manifest: &str) {
        if let Some(disk) = disk_of(manifest) {
            image::remove(&self.0.objects, image::DISKS, disk).await;
        }
    }

    /// Removes a layer for good. Whoever still stands on it here goes on.
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

    /// Removes files of disks and layers of this machine that nobody knows of: what a server made
    /// and did not come to note. Only before anything is made. Answers how many.
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
    /// The copy is there.
    Done,
    /// Somebody has the disk attached.
    InUse,
}

/// Copies a disk that nobody has attached. A session that is resumed on it meanwhile waits.
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

/// Copies a disk that is in use. Programs that never stop writing are held for as long as it takes.
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
            // A task of its own: whoever waits may go away, and the programs must go on.
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

/// Waits until the last user of a disk is gone, repeats what that one's journal has, and gives the
/// room of what was deleted back, so that it is not carried along.
fn settle(path: &Path) -> Result<(), SessionError> {
    let disk = AttachedDiskImage::attach(path, ATTACH_WAIT).map_err(SessionError::internal)?;
    disk.sync().and_then(|()| disk.trim()).map_err(SessionError::internal)
}

/// Detaches layers, unless others have them.
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

/// Does what may wait for the disk where nothing else waits for it.
async fn blocking<T: Send + 'static>(
    body: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    node::task::blocking(body).await.map_err(SessionError::internal)?
}

fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SessionError {
    SessionError::Unavailable(error.into())
}

#[cfg(test)]
mod tests;
