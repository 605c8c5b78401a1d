//! Manifests by location: read once, cached up to a number of bytes, and passed to scans.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use iceberg::plan::{
    AvroError, BoundScan, DataManifest, FileRow, ManifestListSource, ManifestRef, PlanPage,
    PlanPageBuilder, ScanPosition, SnapshotFigures, read_manifest, read_manifest_list,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::Warehouse;

/// Longest manifest or manifest list, in bytes.
pub(super) const MANIFEST_BYTES_MAX: u64 = 32 << 20;

/// Most bytes of cached manifests.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 20;

/// Divisor of the cache size for the largest manifest; a larger one is not cached.
const LARGEST_PART: usize = 4;

/// Most manifests for one page of files.
const MANIFESTS_OF_PAGE_MAX: usize = 32;

/// Most concurrent reads of manifests.
const READS_MAX: usize = 4;

/// Cached manifests, by warehouse and location: files at a location are immutable.
#[derive(Debug)]
pub(crate) struct ManifestCache {
    manifests: Mutex<CachedManifest>,
    bytes_max: usize,
    permits: Semaphore,
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
        let permits = Semaphore::new(READS_MAX);
        ManifestCache { manifests: Mutex::default(), bytes_max, permits }
    }

    /// Returns the bytes and the number of cached manifests.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        let kept = self.manifests.lock();
        (kept.bytes, kept.all.len())
    }

    fn get(&self, key: &Key) -> Option<Arc<DataManifest>> {
        let mut kept = self.manifests.lock();
        let slot = kept.all.get_mut(key)?;
        slot.is_used = true;
        Some(Arc::clone(&slot.manifest))
    }

    fn keep(&self, key: Key, manifest: &Arc<DataManifest>) {
        if manifest.weight > self.bytes_max / LARGEST_PART {
            return;
        }
        let mut kept = self.manifests.lock();
        let slot = ManifestSlot { manifest: Arc::clone(manifest), is_used: false };
        if kept.all.insert(key.clone(), slot).is_some() {
            return;
        }
        kept.bytes += manifest.weight;
        kept.queue.push_back(key);
        // A manifest that was used since the last pass gets a second chance.
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

/// Start of a page of files: a manifest in its list, and an entry in it.
pub(crate) type FilePlace = (usize, usize);

/// Manifests of a snapshot, opaque to other modules.
pub(crate) struct ManifestList(Vec<ManifestRef>);

impl ManifestList {
    /// Returns the locations of the manifests.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|it| &*it.path)
    }
}

/// Reads manifests of a warehouse.
#[derive(Clone, Debug)]
pub(crate) struct ManifestReader {
    pub(crate) warehouse: Arc<Warehouse>,
    pub(crate) manifests: Arc<ManifestCache>,
}

impl ManifestReader {
    /// Returns the manifests of a list.
    ///
    /// # Errors
    /// `NotFound` if its file is missing, `Validation` if it is invalid.
    async fn list(&self, list: ManifestListSource) -> Result<Vec<ManifestRef>> {
        match list {
            ManifestListSource::Here(paths) => {
                Ok(paths.iter().map(|path| ManifestRef::bare(path)).collect())
            }
            ManifestListSource::At(path) => self.read(&path, read_manifest_list).await,
        }
    }

    /// Returns a manifest.
    ///
    /// # Errors
    /// As in [`ManifestReader::list`].
    async fn manifest(&self, of: &ManifestRef) -> Result<Arc<DataManifest>> {
        let key = (Arc::clone(self.warehouse.id()), Arc::clone(&of.path));
        if let Some(found) = self.manifests.get(&key) {
            return Ok(found);
        }
        let read = Arc::new(self.read(&of.path, read_manifest).await?);
        self.manifests.keep(key, &read);
        Ok(read)
    }

    /// Reads the lists of a scan's manifests.
    ///
    /// # Errors
    /// As in [`ManifestReader::list`]; `Validation` if there are too many manifests.
    pub(super) async fn read_lists(
        &self,
        scan: &mut BoundScan,
        lists: Vec<ManifestListSource>,
    ) -> Result<()> {
        for list in lists {
            scan.add_list(self.list(list).await?)?;
        }
        scan.end_lists();
        Ok(())
    }

    /// Reads the delete files of a scan.
    ///
    /// # Errors
    /// Those of reading manifests.
    pub(super) async fn read_deletes(&self, scan: &mut BoundScan) -> Result<()> {
        for manifest in scan.take_delete_manifests() {
            let read = self.manifest(&manifest).await?;
            scan.add_deletes(&manifest, &read)?;
        }
        Ok(())
    }

    /// Returns the files of a scan from a position on, as many as a response has, and the positions
    /// of the remaining parts.
    ///
    /// # Errors
    /// Those of reading manifests and of [`PlanPageBuilder::add`].
    pub(super) async fn page(
        &self,
        scan: &Arc<BoundScan>,
        position: ScanPosition,
    ) -> Result<(PlanPage, Vec<ScanPosition>)> {
        let mut page = PlanPageBuilder::new(Arc::clone(scan), position);
        while let Some(manifest) = page.next_manifest() {
            let read = self.manifest(manifest).await?;
            let add = move || page.add(&read).map(|()| page);
            page = node::task::blocking(add).await.map_err(CatalogError::internal)??;
        }
        Ok(page.finish())
    }

    /// Returns the manifests of a snapshot.
    ///
    /// # Errors
    /// `NotFound` if the file is missing, `Validation` if it is invalid.
    pub(crate) async fn manifests_of(&self, list: ManifestListSource) -> Result<ManifestList> {
        Ok(ManifestList(self.list(list).await?))
    }

    /// Returns the files of manifests from a position on, at most `limit`, and the next position.
    ///
    /// # Errors
    /// As in [`ManifestReader::manifests_of`].
    pub(crate) async fn files(
        &self,
        list: &ManifestList,
        (from, mut entry): FilePlace,
        limit: usize,
    ) -> Result<(Vec<FileRow>, Option<FilePlace>)> {
        let mut rows = Vec::new();
        for (place, of) in list.0.iter().enumerate().skip(from) {
            if place >= from.saturating_add(MANIFESTS_OF_PAGE_MAX) {
                return Ok((rows, Some((place, 0))));
            }
            let manifest = self.manifest(of).await?;
            for (at, row) in manifest.files(of, entry) {
                if rows.len() == limit {
                    return Ok((rows, Some((place, at))));
                }
                rows.push(row);
            }
            entry = 0;
        }
        Ok((rows, None))
    }

    /// Adds the files of manifests to figures, one manifest after the other: of the first `most`,
    /// stopping once they take about `weight_max` bytes in memory.
    ///
    /// # Errors
    /// As in [`ManifestReader::manifests_of`].
    pub(crate) async fn figures(
        &self,
        list: &ManifestList,
        mut figures: SnapshotFigures,
        most: usize,
        weight_max: usize,
    ) -> Result<SnapshotFigures> {
        let mut weight = 0_usize;
        for of in list.0.iter().take(most) {
            if weight >= weight_max {
                break;
            }
            let (manifest, of) = (self.manifest(of).await?, of.clone());
            weight = weight.saturating_add(manifest.weight);
            let add = move || {
                figures.add(&of, &manifest);
                figures
            };
            figures = node::task::blocking(add).await.map_err(CatalogError::internal)?;
        }
        Ok(figures)
    }

    /// Collects all files of a snapshot: its manifests and their files, including those that it has
    /// removed if `removed` is set. Manifests in `known` are skipped.
    ///
    /// # Errors
    /// As in [`ManifestReader::manifests_of`]; `Validation` if there are more than `most`.
    pub(crate) async fn collect(
        &self,
        list: &ManifestList,
        known: &mut HashSet<Arc<str>>,
        all: &mut HashSet<Arc<str>>,
        removed: bool,
        most: usize,
    ) -> Result<()> {
        for of in &list.0 {
            all.insert(Arc::clone(&of.path));
            if !known.insert(Arc::clone(&of.path)) {
                continue;
            }
            let manifest = self.manifest(of).await?;
            all.extend(manifest.locations(removed).map(Arc::clone));
            if all.len() > most {
                let message = format!("the snapshots have more than {most} files");
                return Err(CatalogError::new(ErrorReason::Validation, message));
            }
        }
        Ok(())
    }

    async fn read<T: Send + 'static>(
        &self,
        location: &str,
        parse: impl FnOnce(&[u8]) -> std::result::Result<T, AvroError> + Send + 'static,
    ) -> Result<T> {
        let _permit = self.manifests.permits.acquire().await.map_err(CatalogError::internal)?;
        let bytes = self.warehouse.files().read_at_most(location, MANIFEST_BYTES_MAX).await?;
        let parsed = node::task::blocking(move || parse(&bytes)).await;
        parsed.map_err(CatalogError::internal)?.map_err(|why| {
            let excerpt: String = location.chars().take(200).collect();
            CatalogError::new(
                ErrorReason::Validation,
                format!("the manifest `{excerpt}` cannot be read: {why}"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testkit::avro::AvroWriter;

    use super::*;

    /// Returns a manifest of this many files.
    fn manifest(files: usize) -> Arc<DataManifest> {
        let field =
            |id: i32, name: &str, kind: &Value| json!({"field-id": id, "name": name, "type": kind});
        let file = json!({"type": "record", "name": "r2", "fields": [
            field(100, "file_path", &json!("string")),
            field(101, "file_format", &json!("string")),
            field(103, "record_count", &json!("long")),
            field(104, "file_size_in_bytes", &json!("long")),
        ]});
        let schema = json!({"type": "record", "name": "manifest_entry", "fields": [
            field(0, "status", &json!("int")), field(2, "data_file", &file),
        ]});
        let row = json!({"status": 1, "data_file": {"file_path": "f", "file_format": "PARQUET",
            "record_count": 1, "file_size_in_bytes": 1}});
        let mut writer = AvroWriter::new(&schema, "null");
        for _ in 0..files {
            writer = writer.record(&row);
        }
        Arc::new(read_manifest(&writer.bytes()).unwrap())
    }

    fn key(number: usize) -> Key {
        ("w".into(), format!("m{number}").into())
    }

    #[test]
    fn what_is_in_use_stays_and_the_bytes_are_bounded() {
        let (small, weight) = (manifest(1), manifest(1).weight);
        let manifests = ManifestCache::new(10 * weight);
        for number in 0..100 {
            manifests.keep(key(number), &small);
            assert!(manifests.get(&key(0)).is_some(), "{number}");
            assert!(manifests.size().0 <= 10 * weight, "{number}");
        }
        assert_eq!(manifests.size(), (10 * weight, 10));
        assert!(manifests.get(&key(1)).is_none());
        // Inserting the same manifest again changes nothing, and one that is too large evicts no
        // others.
        manifests.keep(key(0), &small);
        let large = manifest(10);
        assert!(large.weight > 10 * weight / LARGEST_PART);
        manifests.keep(key(1000), &large);
        assert_eq!(manifests.size(), (10 * weight, 10));
    }
}
