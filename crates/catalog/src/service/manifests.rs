//! Manifests by their locations: read once, and kept up to a number of bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::avro::AvroError;
use super::manifest::{self, DataManifest, ManifestRef};
use super::scan::ManifestListSource;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::Warehouse;

/// Longest manifest or manifest list, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 32 << 20;

/// Bytes of manifests that are kept.
pub const KEPT_BYTES_MAX: usize = 64 << 20;

/// Fraction of all bytes that one manifest may take; a larger one is not kept.
const LARGEST_PART: usize = 4;

/// Manifests that are read at a time.
const READS_MAX: usize = 4;

/// Manifests that were read, by warehouse and location: what is in a location never changes.
#[derive(Debug)]
pub(crate) struct ManifestCache {
    kept: Mutex<CachedManifest>,
    bytes_max: usize,
    turns: Semaphore,
}

#[derive(Debug, Default)]
struct CachedManifest {
    all: HashMap<Key, ManifestSlot>,
    queue: VecDeque<Key>,
    bytes: usize,
}

type Key = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct ManifestSlot {
    manifest: Arc<DataManifest>,
    is_used: bool,
}

impl Default for ManifestCache {
    fn default() -> ManifestCache {
        ManifestCache::new(KEPT_BYTES_MAX)
    }
}

impl ManifestCache {
    /// Creates a cache of this many bytes.
    pub(crate) fn new(bytes_max: usize) -> ManifestCache {
        let turns = Semaphore::new(READS_MAX);
        ManifestCache { kept: Mutex::default(), bytes_max, turns }
    }

    /// Bytes that are kept, and of how many manifests.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.bytes, kept.all.len())
    }

    fn get(&self, key: &Key) -> Option<Arc<DataManifest>> {
        let mut kept = self.kept.lock();
        let slot = kept.all.get_mut(key)?;
        slot.is_used = true;
        Some(Arc::clone(&slot.manifest))
    }

    fn keep(&self, key: Key, manifest: &Arc<DataManifest>) {
        if manifest.weight > self.bytes_max / LARGEST_PART {
            return;
        }
        let mut kept = self.kept.lock();
        let slot = ManifestSlot { manifest: Arc::clone(manifest), is_used: false };
        if kept.all.insert(key.clone(), slot).is_some() {
            return;
        }
        kept.bytes += manifest.weight;
        kept.queue.push_back(key);
        // What was used since it was looked at the last time is looked at once more.
        while kept.bytes > self.bytes_max {
            let Some(key) = kept.queue.pop_front() else { break };
            match kept.all.get_mut(&key) {
                Some(slot) if slot.is_used => {
                    slot.is_used = false;
                    kept.queue.push_back(key);
                }
                _ => {
                    let weight = kept.all.remove(&key).map_or(0, |slot| slot.manifest.weight);
                    kept.bytes = kept.bytes.saturating_sub(weight);
                }
            }
        }
    }
}

/// Reads manifests of a warehouse.
#[derive(Clone, Debug)]
pub(crate) struct ManifestReader {
    pub(crate) warehouse: Arc<Warehouse>,
    pub(crate) manifests: Arc<ManifestCache>,
}

impl ManifestReader {
    /// The manifests of a list.
    ///
    /// # Errors
    /// `NotFound` when its file is gone, `Validation` when it is none.
    pub(super) async fn list(&self, list: ManifestListSource) -> Result<Vec<ManifestRef>> {
        match list {
            ManifestListSource::Here(paths) => {
                Ok(paths.iter().map(|path| ManifestRef::bare(path)).collect())
            }
            ManifestListSource::At(path) => self.read(&path, manifest::read_list).await,
        }
    }

    /// A manifest.
    ///
    /// # Errors
    /// As of [`Reader::list`].
    pub(super) async fn manifest(&self, of: &ManifestRef) -> Result<Arc<DataManifest>> {
        let key = (Arc::clone(self.warehouse.id()), Arc::clone(&of.path));
        if let Some(found) = self.manifests.get(&key) {
            return Ok(found);
        }
        let read = Arc::new(self.read(&of.path, manifest::read).await?);
        self.manifests.keep(key, &read);
        Ok(read)
    }

    async fn read<T: Send + 'static>(
        &self,
        location: &str,
        parse: impl FnOnce(&[u8]) -> std::result::Result<T, AvroError> + Send + 'static,
    ) -> Result<T> {
        let _turn = self.manifests.turns.acquire().await.map_err(CatalogError::internal)?;
        let bytes = self.warehouse.files().read_at_most(location, MANIFEST_BYTES_MAX).await?;
        let parsed = node::task::blocking(move || parse(&bytes)).await;
        parsed.map_err(CatalogError::internal)?.map_err(|why| {
            let shown: String = location.chars().take(200).collect();
            CatalogError::new(
                ErrorReason::Validation,
                format!("the manifest `{shown}` cannot be read: {why}"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(weight: usize) -> Arc<DataManifest> {
        Arc::new(DataManifest { spec_id: None, entries: Vec::new(), weight })
    }

    fn key(number: usize) -> Key {
        ("w".into(), format!("m{number}").into())
    }

    #[test]
    fn what_is_in_use_stays_and_the_bytes_are_bounded() {
        let manifests = ManifestCache::new(1000);
        for number in 0..100 {
            manifests.keep(key(number), &manifest(100));
            assert!(manifests.get(&key(0)).is_some(), "{number}");
            assert!(manifests.size().0 <= 1000, "{number}");
        }
        assert_eq!(manifests.size(), (1000, 10));
        assert!(manifests.get(&key(1)).is_none());
        // The same again is no more than it was, and what is too large does not push out others.
        manifests.keep(key(0), &manifest(100));
        manifests.keep(key(1000), &manifest(251));
        assert_eq!(manifests.size(), (1000, 10));
    }
}
