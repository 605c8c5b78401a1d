//! Disks of sessions that other nodes have, as they are in the object store: fetched ahead by the
//! node that goes on with them if theirs is lost, so that it need not wait for the object store
//! then, where hundreds of disks are wanted at once.
//!
//! What is here is a copy and nothing more: a restore looks here for each piece before it asks the
//! object store, and checks it in the same way. Disks that were fetched first give way to others,
//! and none stays when it is removed there, or for longer than somebody may be in a hurry for it.

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
use super::{DISK_PREFIX, MANIFEST_PREFIX, blocking, unavailable};
use crate::error::SessionError;

/// Pieces that are fetched at a time: nobody waits for them.
const FETCHED_AT_ONCE: usize = 4;

/// Pieces of disks that were fetched ahead.
#[derive(Debug)]
pub(super) struct PrefetchedPieces {
    directory: PathBuf,
    index: Mutex<PrefetchIndex>,
}

/// Disk that was fetched.
#[derive(Debug)]
struct FetchedImage {
    directory: PathBuf,
    /// Sizes of the pieces as they are stored, by name.
    pieces: HashMap<String, u64>,
    at: Instant,
}

/// Disk that a restore finds here. Its pieces stay until this is dropped.
#[derive(Debug)]
pub(super) struct PrefetchedImage(FetchedImage);

impl PrefetchedImage {
    /// Returns a piece, as it is stored; none where it is not here, or cannot be read.
    pub(super) async fn piece(&self, name: &str) -> Option<Bytes> {
        self.0.pieces.get(name)?;
        let path = self.0.directory.join(name);
        let read = blocking(move || fs::read(path).map_err(SessionError::internal)).await;
        read.ok().map(Bytes::from)
    }

    /// Removes its pieces, without a pause for whoever else is served by this thread.
    pub(super) async fn remove(self) {
        // Where that cannot be, dropping it does the same.
        drop(remove_all(vec![self.0.directory.clone()]).await);
    }
}

impl Drop for PrefetchedImage {
    fn drop(&mut self) {
        remove(&self.0.directory);
    }
}

/// What is here, by disk. Pure.
#[derive(Debug, Default)]
struct PrefetchIndex {
    disks: HashMap<String, PrefetchEntry>,
    /// Disks by the order in which they were fetched.
    by_age: BTreeMap<u64, String>,
    /// Number of the next one.
    next: u64,
    bytes: u64,
}

#[derive(Debug)]
struct PrefetchEntry {
    number: u64,
    disk: FetchedImage,
}

impl PrefetchIndex {
    /// Takes a disk out.
    fn take(&mut self, disk: &str) -> Option<FetchedImage> {
        let PrefetchEntry { number, disk } = self.disks.remove(disk)?;
        self.by_age.remove(&number);
        self.bytes -= disk.pieces.values().sum::<u64>();
        Some(disk)
    }

    /// Takes those out that were fetched before this.
    fn take_older(&mut self, than: Instant) -> Vec<FetchedImage> {
        let old = self.disks.iter().filter(|(_, entry)| entry.disk.at < than);
        let old: Vec<String> = old.map(|(disk, _)| disk.clone()).collect();
        old.iter().filter_map(|disk| self.take(disk)).collect()
    }

    /// Adds a disk, and takes those out that have to give way for it. A disk that is too large by
    /// itself is among them.
    fn put(&mut self, name: &str, disk: FetchedImage, bytes_max: u64) -> Vec<FetchedImage> {
        let mut gone: Vec<FetchedImage> = self.take(name).into_iter().collect();
        let number = self.next;
        self.next += 1;
        self.bytes += disk.pieces.values().sum::<u64>();
        self.by_age.insert(number, name.to_owned());
        self.disks.insert(name.to_owned(), PrefetchEntry { number, disk });
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
    /// Opens an empty directory: what an earlier server had is removed. Blocks.
    pub(super) fn open(directory: PathBuf) -> io::Result<PrefetchedPieces> {
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&directory)?,
        }
        Ok(PrefetchedPieces { directory, index: Mutex::default() })
    }

    /// Returns the bytes that are here.
    pub(super) fn bytes(&self) -> u64 {
        self.index.lock().bytes
    }

    /// Takes out what is here of the disk of a manifest.
    pub(super) fn take(&self, manifest: &str) -> Option<PrefetchedImage> {
        self.index.lock().take(image::disk_of(manifest)?).map(PrefetchedImage)
    }

    /// Removes disks that were fetched before this.
    pub(super) async fn remove_older(&self, than: Instant) -> Result<(), SessionError> {
        let gone = self.index.lock().take_older(than);
        remove_all(gone.into_iter().map(|disk| disk.directory).collect()).await
    }

    /// Fetches the pieces of a disk, into a directory that has this name here. What an earlier
    /// manifest of the same disk had is kept as far as this one needs it. Those fetched first give
    /// way, so that no more than `bytes_max` are here; a disk with more than that is not kept.
    ///
    /// # Errors
    /// When the manifest is none of a disk, or something of it is missing or cannot be written.
    pub(super) async fn fetch(
        &self,
        objects: &ObjectStore,
        key: &str,
        name: &str,
        bytes_max: u64,
    ) -> Result<(), SessionError> {
        let disk = checked(key)?;
        let Some(manifest) = image::read_manifest(objects, key).await? else {
            // It was removed; or a newer one has replaced it, which is told of as well.
            if let Some(removed) = self.take(key) {
                removed.remove().await;
            }
            return Ok(());
        };
        let fetch = PrefetchOfImage {
            objects,
            prefix: image::prefix_of(key),
            directory: self.directory.join(name),
            // Whoever wants it meanwhile asks the object store.
            before: self.index.lock().take(disk),
        };
        let names = manifest.names().into_iter().map(str::to_owned).collect();
        let pieces = fetch.all(names, bytes_max).await;
        let PrefetchOfImage { directory, before, .. } = fetch;
        let mut gone: Vec<PathBuf> = before.into_iter().map(|disk| disk.directory).collect();
        let fetched = match pieces {
            Ok(pieces) => {
                let fetched = FetchedImage { directory, pieces, at: clock::now() };
                let others = self.index.lock().put(disk, fetched, bytes_max);
                gone.extend(others.into_iter().map(|disk| disk.directory));
                Ok(())
            }
            Err(error) => {
                gone.push(directory);
                Err(error)
            }
        };
        remove_all(gone).await?;
        fetched
    }
}

/// A disk that is being fetched.
struct PrefetchOfImage<'a> {
    objects: &'a ObjectStore,
    prefix: &'a str,
    directory: PathBuf,
    /// What an earlier manifest of it had.
    before: Option<FetchedImage>,
}

impl PrefetchOfImage<'_> {
    /// Fetches pieces of these names. Returns the size of each, as it is stored.
    async fn all(
        &self,
        names: Vec<String>,
        bytes_max: u64,
    ) -> Result<HashMap<String, u64>, SessionError> {
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
                return Err(SessionError::internal(format!(
                    "the disk has more than {bytes_max} bytes (sessions.prefetch_bytes_max)"
                )));
            }
            pieces.insert(name, bytes);
        }
        Ok(pieces)
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

/// Returns the disk of a manifest, whose key another node has sent.
fn checked(key: &str) -> Result<&str, SessionError> {
    let disk = image::disk_of(key).filter(|disk| is_id(DISK_PREFIX, disk));
    let name = key.rsplit_once('/').and_then(|(_, name)| name.strip_suffix(".json"));
    match (disk, name) {
        (Some(disk), Some(name))
            if is_id(MANIFEST_PREFIX, name) && key == image::disk_manifest_key(disk, name) =>
        {
            Ok(disk)
        }
        _ => Err(SessionError::invalid("manifest", format!("`{key}` is no manifest of a disk"))),
    }
}

/// Removes directories that are of no use any more.
async fn remove_all(directories: Vec<PathBuf>) -> Result<(), SessionError> {
    blocking(move || {
        directories.iter().for_each(|directory| remove(directory));
        Ok(())
    })
    .await
}

/// Removes what is of no use any more; what cannot be removed is removed at the next start.
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
    fn only_manifests_of_disks_are_fetched() {
        let id = "01M8MR4C0PB6C5XASBCW7ES8FX";
        let key = |disk: &str, name: &str| image::disk_manifest_key(disk, name);
        let good = key(&format!("d_{id}"), &format!("m_{id}"));
        assert_eq!(checked(&good).unwrap(), format!("d_{id}"));
        for bad in [
            key("..", &format!("m_{id}")),
            key(&format!("d_{id}"), "../../secret"),
            key(&format!("d_{id}/.."), &format!("m_{id}")),
            good.replace("disks/", "layers/"),
            format!("/{good}"),
            good.replace(".json", ""),
            String::new(),
        ] {
            assert!(checked(&bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// Whatever comes and goes, the sum is that of what is here and within the limit, and the
        /// first ones have given way.
        #[test]
        fn disks_fetched_first_give_way(
            steps in prop::collection::vec((0..6_usize, 0..50_u64, any::<bool>()), 1..60),
        ) {
            let (bytes_max, at) = (100, clock::now());
            let mut index = PrefetchIndex::default();
            let mut model: Vec<(String, u64)> = Vec::new();
            for (disk, bytes, is_taken) in steps {
                let disk = disk.to_string();
                model.retain(|(name, _)| *name != disk);
                if is_taken {
                    index.take(&disk);
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
                prop_assert_eq!(index.disks.len(), model.len());
            }
            prop_assert!(index.take_older(at).is_empty());
            let later = at + std::time::Duration::from_secs(1);
            prop_assert_eq!(index.take_older(later).len(), model.len());
            prop_assert_eq!((index.bytes, index.by_age.len()), (0, 0));
        }
    }
}
