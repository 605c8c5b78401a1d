//! Disks of other nodes' sessions and the layers below them, fetched ahead from the object store by
//! the node that takes them over if their node is lost. It then need not wait for the object store,
//! which would receive requests for hundreds of disks at once.
//!
//! Prefetched pieces are only copies: a restore looks here for each piece before it asks the object
//! store, and verifies it in the same way. The oldest images are evicted first; images are also
//! removed by age, and a disk when its object is removed. A layer never changes: it is fetched once
//! for all sessions that use it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use node::clock::{self, is_id};
use node::objects::ObjectStore;
use parking_lot::Mutex;

use super::image;
use super::{DISK_PREFIX, LAYER_PREFIX, MANIFEST_PREFIX, blocking, unavailable};
use crate::error::SessionError;

/// Pieces fetched concurrently; few, because no caller waits for them.
const FETCHED_AT_ONCE: usize = 4;

/// Pieces of images that were fetched ahead.
#[derive(Debug)]
pub(super) struct PrefetchedPieces {
    directory: PathBuf,
    index: Mutex<PrefetchIndex>,
}

/// Image that was fetched.
#[derive(Debug)]
struct FetchedImage {
    directory: PathBuf,
    /// Stored size of each piece, by name. Empty for a layer that is too large.
    pieces: HashMap<String, u64>,
    at: Instant,
}

/// Image that a restore has taken. Its pieces stay until this is dropped.
#[derive(Debug)]
pub(super) struct PrefetchedImage(FetchedImage);

impl PrefetchedImage {
    /// Returns a piece in its stored form; none if it is missing or unreadable.
    pub(super) async fn piece(&self, name: &str) -> Option<Bytes> {
        self.0.pieces.get(name)?;
        let path = self.0.directory.join(name);
        let read = blocking(move || fs::read(path).map_err(SessionError::internal)).await;
        read.ok().map(Bytes::from)
    }

    /// Removes its pieces on a blocking thread, so that this thread is not delayed.
    pub(super) async fn remove(self) {
        // If this fails, dropping `self` removes them.
        drop(remove_all(vec![self.0.directory.clone()]).await);
    }
}

impl Drop for PrefetchedImage {
    fn drop(&mut self) {
        remove(&self.0.directory);
    }
}

/// Index of prefetched images, by their folder in the object store. Pure.
#[derive(Debug, Default)]
struct PrefetchIndex {
    images: HashMap<String, PrefetchEntry>,
    /// Images in order of their fetch.
    by_age: BTreeMap<u64, String>,
    /// Number of the next image.
    next: u64,
    bytes: u64,
}

#[derive(Debug)]
struct PrefetchEntry {
    number: u64,
    image: FetchedImage,
}

impl PrefetchIndex {
    /// Removes an image and returns it.
    fn take(&mut self, name: &str) -> Option<FetchedImage> {
        let PrefetchEntry { number, image } = self.images.remove(name)?;
        self.by_age.remove(&number);
        self.bytes -= image.pieces.values().sum::<u64>();
        Some(image)
    }

    /// Marks an image as fetched now. Returns false if it is not in the index.
    fn renew(&mut self, name: &str, now: Instant) -> bool {
        let Some(mut image) = self.take(name) else { return false };
        image.at = now;
        self.insert(name, image);
        true
    }

    fn insert(&mut self, name: &str, image: FetchedImage) {
        let number = self.next;
        self.next += 1;
        self.bytes += image.pieces.values().sum::<u64>();
        self.by_age.insert(number, name.to_owned());
        self.images.insert(name.to_owned(), PrefetchEntry { number, image });
    }

    /// Removes and returns the images that were fetched before `than`.
    fn take_older(&mut self, than: Instant) -> Vec<FetchedImage> {
        let old = self.images.iter().filter(|(_, entry)| entry.image.at < than);
        let old: Vec<String> = old.map(|(name, _)| name.clone()).collect();
        old.iter().filter_map(|name| self.take(name)).collect()
    }

    /// Adds an image, and removes and returns the images evicted for it; an image that exceeds the
    /// limit alone is among them.
    fn put(&mut self, name: &str, image: FetchedImage, bytes_max: u64) -> Vec<FetchedImage> {
        let mut gone: Vec<FetchedImage> = self.take(name).into_iter().collect();
        self.insert(name, image);
        while self.bytes > bytes_max
            && let Some((_, first)) = self.by_age.first_key_value()
        {
            let first = first.clone();
            gone.extend(self.take(&first));
        }
        gone
    }
}

impl PrefetchedPieces {
    /// Opens an empty directory and removes an earlier server's files. Blocks.
    pub(super) fn open(directory: PathBuf) -> io::Result<PrefetchedPieces> {
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&directory)?,
        }
        Ok(PrefetchedPieces { directory, index: Mutex::default() })
    }

    /// Returns the total bytes of prefetched pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.index.lock().bytes
    }

    /// Takes the prefetched image of a manifest.
    pub(super) fn take(&self, manifest: &str) -> Option<PrefetchedImage> {
        self.index.lock().take(image::prefix_of(manifest)).map(PrefetchedImage)
    }

    /// Removes images that were fetched before `than`.
    pub(super) async fn remove_older(&self, than: Instant) -> Result<(), SessionError> {
        let gone = self.index.lock().take_older(than);
        remove_all(gone.into_iter().map(|image| image.directory).collect()).await
    }

    /// Fetches the pieces of an image into a directory `name`. Pieces of an earlier manifest of the
    /// same disk are reused. Evicts the oldest images, so that at most `bytes_max` bytes are kept;
    /// a larger image is not kept. Does not contact the object store for a layer that is already
    /// here.
    ///
    /// # Errors
    /// If `key` is not the manifest key of a disk or a layer, the image is larger than `bytes_max`,
    /// a piece is missing, or a file cannot be written.
    pub(super) async fn fetch(
        &self,
        objects: &ObjectStore,
        key: &str,
        name: &str,
        bytes_max: u64,
    ) -> Result<(), SessionError> {
        let image = checked(key)?;
        let is_layer = image::disk_of(key).is_none();
        if is_layer && self.index.lock().renew(image, clock::now()) {
            return Ok(());
        }
        let Some(manifest) = image::read_manifest(objects, key).await? else {
            // It was removed or replaced by a newer one, which is announced separately.
            if let Some(removed) = self.take(key) {
                removed.remove().await;
            }
            return Ok(());
        };
        let fetch = PrefetchOfImage {
            objects,
            prefix: image,
            directory: self.directory.join(name),
            // A restore meanwhile uses the object store.
            before: self.index.lock().take(image),
        };
        let names = manifest.names().into_iter().map(str::to_owned).collect();
        let pieces = fetch.all(names, bytes_max).await;
        let PrefetchOfImage { directory, before, .. } = fetch;
        let mut gone: Vec<PathBuf> = before.into_iter().map(|image| image.directory).collect();
        let too_large = || {
            let limit = format!("{bytes_max} bytes (sessions.prefetch_bytes_max)");
            SessionError::internal(format!("`{image}` has more than {limit}"))
        };
        let (kept, fetched) = match pieces {
            Ok(Some(pieces)) => (Some(pieces), Ok(())),
            // Keep an entry without pieces, so that this layer is not fetched again for every
            // session that uses it.
            Ok(None) if is_layer => (Some(HashMap::new()), Err(too_large())),
            Ok(None) => (None, Err(too_large())),
            Err(error) => (None, Err(error)),
        };
        if kept.as_ref().is_none_or(HashMap::is_empty) {
            gone.push(directory.clone());
        }
        if let Some(pieces) = kept {
            let fetched = FetchedImage { directory, pieces, at: clock::now() };
            let others = self.index.lock().put(image, fetched, bytes_max);
            gone.extend(others.into_iter().map(|image| image.directory));
        }
        remove_all(gone).await?;
        fetched
    }
}

/// An image that is being fetched.
struct PrefetchOfImage<'a> {
    objects: &'a ObjectStore,
    prefix: &'a str,
    directory: PathBuf,
    /// Pieces of an earlier manifest of the same image.
    before: Option<FetchedImage>,
}

impl PrefetchOfImage<'_> {
    /// Fetches the named pieces. Returns the stored size of each; none if they exceed `bytes_max`
    /// in total.
    async fn all(
        &self,
        names: Vec<String>,
        bytes_max: u64,
    ) -> Result<Option<HashMap<String, u64>>, SessionError> {
        let directory = self.directory.clone();
        blocking(move || fs::create_dir(directory).map_err(SessionError::internal)).await?;
        let mut fetching = stream::iter(names)
            .map(|name| async move {
                let bytes = self.one(&name).await?;
                Ok::<_, SessionError>((name, bytes))
            })
            .buffer_unordered(FETCHED_AT_ONCE);
        let (mut pieces, mut sum) = (HashMap::new(), 0);
        while let Some((name, bytes)) = fetching.try_next().await? {
            sum += bytes;
            if sum > bytes_max {
                return Ok(None);
            }
            pieces.insert(name, bytes);
        }
        Ok(Some(pieces))
    }

    async fn one(&self, name: &str) -> Result<u64, SessionError> {
        let path = self.directory.join(name);
        let known = self.before.as_ref().and_then(|it| Some((it, *it.pieces.get(name)?)));
        if let Some((before, bytes)) = known {
            let old = before.directory.join(name);
            blocking(move || fs::hard_link(old, path).map_err(SessionError::internal)).await?;
            return Ok(bytes);
        }
        let key = image::piece_key(self.prefix, name);
        let object = self.objects.get(&key).await.map_err(unavailable)?;
        let lost = || SessionError::internal(format!("the object `{key}` is missing"));
        let object = object.ok_or_else(lost)?;
        let bytes = object.len() as u64;
        blocking(move || fs::write(path, &object).map_err(SessionError::internal)).await?;
        Ok(bytes)
    }
}

/// Checks a manifest key that another node has sent, and returns the folder of its image.
fn checked(key: &str) -> Result<&str, SessionError> {
    let (folder, name) = key.rsplit_once('/').unwrap_or_default();
    let name = name.strip_suffix(".json").unwrap_or_default();
    let is_manifest = match folder.split_once('/') {
        Some((image::DISKS, disk)) => is_id(DISK_PREFIX, disk) && is_id(MANIFEST_PREFIX, name),
        Some((image::LAYERS, layer)) => {
            is_id(LAYER_PREFIX, layer) && key == image::layer_manifest_key(layer)
        }
        _ => false,
    };
    let refused =
        || SessionError::invalid("manifest", format!("`{key}` is no manifest of an image"));
    is_manifest.then_some(folder).ok_or_else(refused)
}

/// Removes obsolete directories.
async fn remove_all(directories: Vec<PathBuf>) -> Result<(), SessionError> {
    blocking(move || {
        directories.iter().for_each(|directory| remove(directory));
        Ok(())
    })
    .await
}

/// Removes an obsolete directory; if that fails, the next start removes it.
fn remove(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%error, directory = %directory.display(), "a copy stays until the next start");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_manifests_of_images_are_fetched() {
        let id = "01M8MR4C0PB6C5XASBCW7ES8FX";
        let key = |disk: &str, name: &str| image::disk_manifest_key(disk, name);
        let good = key(&format!("d_{id}"), &format!("m_{id}"));
        assert_eq!(checked(&good).unwrap(), format!("disks/d_{id}"));
        let layer = image::layer_manifest_key(&format!("l_{id}"));
        assert_eq!(checked(&layer).unwrap(), format!("layers/l_{id}"));
        for bad in [
            key("..", &format!("m_{id}")),
            key(&format!("d_{id}"), "../../secret"),
            key(&format!("d_{id}/.."), &format!("m_{id}")),
            good.replace("disks/", "layers/"),
            format!("/{good}"),
            good.replace(".json", ""),
            layer.replace("l_", "d_"),
            layer.replace("manifest", &format!("m_{id}")),
            layer.replace("layers/", "disks/"),
            format!("{layer}/../manifest.json"),
            image::layer_manifest_key(".."),
            String::new(),
        ] {
            assert!(checked(&bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// After any steps, the byte count equals the sum of the images and is within the limit,
        /// and the oldest images have been evicted.
        #[test]
        fn images_fetched_first_give_way(
            steps in prop::collection::vec((0..6_usize, 0..50_u64, 0..3_u8), 1..60),
        ) {
            let (bytes_max, at) = (100, clock::now());
            let mut index = PrefetchIndex::default();
            let mut model: Vec<(String, u64)> = Vec::new();
            for (disk, bytes, step) in steps {
                let disk = disk.to_string();
                let known = model.iter().position(|(name, _)| *name == disk);
                let known = known.map(|place| model.remove(place));
                if step == 0 {
                    index.take(&disk);
                } else if step == 1 {
                    prop_assert_eq!(index.renew(&disk, at), known.is_some());
                    model.extend(known);
                } else {
                    let pieces = HashMap::from([("a".to_owned(), bytes), ("b".to_owned(), 1)]);
                    let fetched = FetchedImage { directory: PathBuf::from(&disk), pieces, at };
                    index.put(&disk, fetched, bytes_max);
                    model.push((disk, bytes + 1));
                    while model.iter().map(|(_, bytes)| bytes).sum::<u64>() > bytes_max {
                        model.remove(0);
                    }
                }
                prop_assert_eq!(index.bytes, model.iter().map(|(_, bytes)| bytes).sum::<u64>());
                let kept: Vec<&String> = index.by_age.values().collect();
                prop_assert_eq!(kept, model.iter().map(|(name, _)| name).collect::<Vec<_>>());
                prop_assert_eq!(index.images.len(), model.len());
            }
            prop_assert!(index.take_older(at).is_empty());
            let later = at + std::time::Duration::from_secs(1);
            prop_assert_eq!(index.take_older(later).len(), model.len());
            prop_assert_eq!((index.bytes, index.by_age.len()), (0, 0));
        }
    }
}
