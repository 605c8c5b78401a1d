//! Figures on the files of a snapshot: their sizes, their deletes, and their distribution over
//! partitions. Manifests are processed one after the other, and none is kept.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#manifests>
//! - <https://iceberg.apache.org/docs/latest/configuration/#write-properties>

use std::collections::HashMap;

use serde::Serialize;

use super::manifest::{ContentFile, DataManifest, FileContent, ManifestEntryStatus, ManifestRef};
use super::prune::{PruneSpec, PruneSpecs, partition_key};
use crate::doc::TableDoc;
use crate::error::Result;
use crate::schema::{ColumnType, SchemaColumns};

/// Most partitions with separate figures; files of further ones are counted together.
pub const FIGURE_PARTITIONS_MAX: usize = 10_000;

/// Most bytes of partition values that identify these partitions.
const KEYS_BYTES_MAX: usize = 16 << 20;

/// Most characters of a partition that are shown.
const PARTITION_SHOWN_MAX: usize = 300;

const MIB: i64 = 1 << 20;

/// Upper ends of the histogram's ranges, in bytes; the last range has none.
pub const HISTOGRAM_ENDS: [i64; 9] =
    [MIB / 8, MIB, 8 * MIB, 32 * MIB, 64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB];

/// Delete file format of a deletion vector.
/// <https://iceberg.apache.org/spec/#deletion-vectors>
const VECTOR_FORMAT: &str = "puffin";

/// Files, with their rows and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileTotals {
    /// Number of files.
    pub files: u64,
    /// Rows of data files; of delete files the positions or keys in them.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

impl FileTotals {
    fn add(&mut self, rows: i64, bytes: i64) {
        self.files += 1;
        self.rows = self.rows.saturating_add(rows.unsigned_abs());
        self.bytes = self.bytes.saturating_add(bytes.unsigned_abs());
    }
}

/// Part of the histogram of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SizeRange {
    /// Least size.
    pub from_bytes: u64,
    /// Size from which on files are in the next part; none of the last one.
    pub to_bytes: Option<u64>,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Files of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartitionFigures {
    /// Values of the partition: `day=2026-11-28/region="eu"`. Empty where nothing is partitioned.
    pub partition: String,
    /// Specification of the partition.
    pub spec_id: i32,
    /// Data files.
    pub data: FileTotals,
    /// Data files below the small size.
    pub small_files: u64,
    /// Their bytes.
    pub small_bytes: u64,
    /// Bytes of the largest data file.
    pub largest_bytes: u64,
    /// Delete files.
    pub deletes: FileTotals,
}

impl PartitionFigures {
    /// Returns the ratio of the largest file's size to the average size, in hundredths.
    #[must_use]
    pub fn skew_hundredths(&self) -> u64 {
        let whole = u128::from(self.largest_bytes) * u128::from(self.data.files) * 100;
        let skew = whole.checked_div(u128::from(self.data.bytes)).unwrap_or(0);
        u64::try_from(skew).unwrap_or(u64::MAX)
    }
}

/// Manifests of the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestFigures {
    /// Manifests of data files.
    pub data: u64,
    /// Manifests of delete files.
    pub deletes: u64,
    /// Bytes of all, where the manifest list says so.
    pub bytes: u64,
    /// Entries of files that were removed.
    pub removed_entries: u64,
}

/// Figures in progress.
#[derive(Debug)]
pub struct SnapshotFigures {
    specs: PruneSpecs,
    names: HashMap<i32, Vec<String>>,
    small_below: i64,
    partitions: HashMap<Vec<u8>, PartitionFigures>,
    keys_bytes: usize,
    /// Processed manifests.
    pub manifests: ManifestFigures,
    /// Data files.
    pub data: FileTotals,
    /// Data files below the small size.
    pub small: FileTotals,
    /// Sizes of data files.
    pub histogram: Vec<SizeRange>,
    /// Position delete files, without vectors.
    pub position_deletes: FileTotals,
    /// Equality delete files.
    pub equality_deletes: FileTotals,
    /// Deletion vectors.
    pub vectors: FileTotals,
    /// Files of partitions without separate figures.
    pub beyond: u64,
}

impl SnapshotFigures {
    /// Creates empty figures for a snapshot of a table; data files below `small_below` bytes are
    /// small.
    ///
    /// # Errors
    /// If the document's schema or partition specifications cannot be read.
    pub fn new(doc: &TableDoc, small_below: i64) -> Result<SnapshotFigures> {
        let columns = match doc.current_schema() {
            Some(schema) => SchemaColumns::read(&schema.raw)?,
            None => SchemaColumns::default(),
        };
        let specs = PruneSpecs::read(doc, &columns)?;
        let fields = |spec: &crate::doc::MetadataPart| {
            let fields = spec.raw.get("fields");
            let fields = fields.as_ref().and_then(|it| it.items().ok()).into_iter().flatten();
            let name = |it: crate::json::RawJson| {
                it.get("name").and_then(|it| it.as_str().map(std::borrow::Cow::into_owned))
            };
            fields.map(|it| name(it).unwrap_or_default()).collect()
        };
        let starts = std::iter::once(0).chain(HISTOGRAM_ENDS);
        let ends = HISTOGRAM_ENDS.into_iter().map(Some).chain([None]);
        let range = |(from, to): (i64, Option<i64>)| SizeRange {
            from_bytes: from.unsigned_abs(),
            to_bytes: to.map(i64::unsigned_abs),
            ..SizeRange::default()
        };
        Ok(SnapshotFigures {
            names: doc.specs.iter().map(|spec| (spec.id, fields(spec))).collect(),
            specs,
            small_below,
            partitions: HashMap::new(),
            keys_bytes: 0,
            manifests: ManifestFigures::default(),
            data: FileTotals::default(),
            small: FileTotals::default(),
            histogram: starts.zip(ends).map(range).collect(),
            position_deletes: FileTotals::default(),
            equality_deletes: FileTotals::default(),
            vectors: FileTotals::default(),
            beyond: 0,
        })
    }

    /// Adds the files of a manifest.
    pub fn add(&mut self, of: &ManifestRef, manifest: &DataManifest) {
        match of.has_deletes {
            true => self.manifests.deletes += 1,
            false => self.manifests.data += 1,
        }
        self.manifests.bytes = self.manifests.bytes.saturating_add(of.length.unwrap_or(0));
        for entry in &manifest.entries {
            if entry.status == ManifestEntryStatus::Deleted {
                self.manifests.removed_entries += 1;
                continue;
            }
            let spec_id = of.spec_id.or(manifest.spec_id).unwrap_or_default();
            self.add_file(&entry.file, spec_id);
        }
    }

    fn add_file(&mut self, file: &ContentFile, spec_id: i32) {
        // A Puffin file contains many vectors; this entry is one of them.
        let is_vector = &*file.format == VECTOR_FORMAT;
        let bytes = file.content_size.filter(|_| is_vector).unwrap_or(file.bytes);
        let is_small = file.content == FileContent::Data && bytes < self.small_below;
        match file.content {
            FileContent::Data => {
                self.data.add(file.records, bytes);
                let place = HISTOGRAM_ENDS.partition_point(|end| *end <= bytes);
                if let Some(range) = self.histogram.get_mut(place) {
                    range.files += 1;
                    range.bytes = range.bytes.saturating_add(bytes.unsigned_abs());
                }
                if is_small {
                    self.small.add(file.records, bytes);
                }
            }
            FileContent::PositionDeletes if is_vector => self.vectors.add(file.records, bytes),
            FileContent::PositionDeletes => self.position_deletes.add(file.records, bytes),
            FileContent::EqualityDeletes => self.equality_deletes.add(file.records, bytes),
        }
        let Some(partition) = self.partition(file, spec_id) else {
            self.beyond += 1;
            return;
        };
        if file.content != FileContent::Data {
            partition.deletes.add(file.records, bytes);
            return;
        }
        partition.data.add(file.records, bytes);
        partition.largest_bytes = partition.largest_bytes.max(bytes.unsigned_abs());
        if is_small {
            partition.small_files += 1;
            partition.small_bytes = partition.small_bytes.saturating_add(bytes.unsigned_abs());
        }
    }

    /// Returns the figures of a file's partition; `None` if there are too many partitions.
    fn partition(&mut self, file: &ContentFile, spec_id: i32) -> Option<&mut PartitionFigures> {
        let spec = self.specs.get(spec_id);
        let key = match spec {
            Some(spec) => partition_key(spec, spec_id, file),
            None => spec_id.to_le_bytes().to_vec(),
        };
        if !self.partitions.contains_key(&key) {
            let bytes = self.keys_bytes.saturating_add(key.len());
            if self.partitions.len() == FIGURE_PARTITIONS_MAX || bytes > KEYS_BYTES_MAX {
                return None;
            }
            self.keys_bytes = bytes;
            let names = self.names.get(&spec_id).map_or(&[][..], Vec::as_slice);
            let partition = spec.map(|spec| partition_text(spec, names, file)).unwrap_or_default();
            let new = PartitionFigures { partition, spec_id, ..PartitionFigures::default() };
            self.partitions.insert(key.clone(), new);
        }
        self.partitions.get_mut(&key)
    }

    /// Returns the partitions with separate figures.
    #[must_use]
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = &PartitionFigures> {
        self.partitions.values()
    }

    /// Returns the partitions with the largest values of a figure, at most `most`.
    #[must_use]
    pub fn top_partitions(
        &self,
        most: usize,
        figure: impl Fn(&PartitionFigures) -> u64,
    ) -> Vec<PartitionFigures> {
        let mut all: Vec<&PartitionFigures> = self.partitions.values().collect();
        let order = |a: &&PartitionFigures, b: &&PartitionFigures| {
            figure(b).cmp(&figure(a)).then_with(|| a.partition.cmp(&b.partition))
        };
        if all.len() > most {
            all.select_nth_unstable_by(most, order);
            all.truncate(most);
        }
        all.sort_unstable_by(order);
        all.into_iter().cloned().collect()
    }
}

/// Formats the values of a partition with the names of its fields.
fn partition_text(spec: &PruneSpec, names: &[String], file: &ContentFile) -> String {
    let mut out = Vec::new();
    for (place, field) in spec.fields.iter().enumerate() {
        if place > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(names.get(place).map_or("", String::as_str).as_bytes());
        out.push(b'=');
        let value = file.partition.iter().find(|(id, _)| *id == field.id);
        let Some(value) = value.and_then(|(_, value)| value.as_ref()) else {
            out.extend_from_slice(b"null");
            continue;
        };
        let typed = field.kind.as_ref().and_then(|kind| Some((kind, value.typed(kind)?)));
        match typed {
            Some((kind, value)) => value.put_json(kind, &mut out),
            None => value.put_json(&ColumnType::Binary, &mut out),
        }
    }
    let text = String::from_utf8_lossy(&out);
    if text.chars().nth(PARTITION_SHOWN_MAX).is_none() {
        return text.into_owned();
    }
    text.chars().take(PARTITION_SHOWN_MAX).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::value::PlanValue;

    fn doc() -> TableDoc {
        let document = json!({
            "format-version": 2, "table-uuid": "0d6c8d2a-7d4e-4c63-9f5e-1f0c7b8a9d10",
            "location": "file:///w/t", "last-sequence-number": 1, "last-updated-ms": 1,
            "last-column-id": 1, "current-schema-id": 0,
            "schemas": [{"schema-id": 0, "type": "struct", "fields": [
                {"id": 1, "name": "region", "required": false, "type": "string"}]}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000,
                "name": "region", "transform": "identity"}]}],
            "last-partition-id": 1000, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}], "properties": {}
        });
        TableDoc::parse(document.to_string().into_bytes().into()).unwrap()
    }

    fn file(content: FileContent, format: &str, region: Option<&str>, bytes: i64) -> ContentFile {
        ContentFile {
            content,
            path: "f".into(),
            format: format.into(),
            partition: vec![(1000, region.map(|it| PlanValue::Text(it.into())))],
            records: 10,
            bytes,
            column_sizes: Default::default(),
            value_counts: Default::default(),
            null_counts: Default::default(),
            nan_counts: Default::default(),
            lower: Default::default(),
            upper: Default::default(),
            key_metadata: None,
            split_offsets: Vec::new(),
            equality_ids: Vec::new(),
            sort_order_id: None,
            first_row_id: None,
            referenced: None,
            content_offset: None,
            content_size: None,
        }
    }

    #[test]
    fn files_are_counted_by_size_content_and_partition() {
        let mut figures = SnapshotFigures::new(&doc(), 8 * MIB).unwrap();
        for (content, format, region, bytes) in [
            (FileContent::Data, "parquet", Some("eu"), MIB - 1),
            (FileContent::Data, "parquet", Some("eu"), 9 * MIB),
            (FileContent::Data, "parquet", None, 2048 * MIB),
            (FileContent::PositionDeletes, "parquet", Some("eu"), 100),
            (FileContent::PositionDeletes, "puffin", Some("eu"), 1000),
            (FileContent::EqualityDeletes, "avro", None, 10),
        ] {
            let mut file = file(content, format, region, bytes);
            file.content_size = Some(40);
            figures.add_file(&file, 0);
        }
        assert_eq!((figures.data.files, figures.data.rows), (3, 30));
        assert_eq!((figures.small.files, figures.small.bytes), (1, MIB.unsigned_abs() - 1));
        let filled: Vec<_> = figures.histogram.iter().map(|it| it.files).collect();
        assert_eq!(filled, [0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(figures.histogram[9].to_bytes, None);
        assert_eq!(figures.position_deletes.bytes, 100);
        // The size of a vector is that of its part of the file.
        assert_eq!((figures.vectors.files, figures.vectors.bytes), (1, 40));
        assert_eq!((figures.equality_deletes.files, figures.beyond), (1, 0));
        let largest = figures.top_partitions(1, |it| it.data.bytes);
        assert_eq!(largest[0].partition, "region=null");
        let skewed = figures.top_partitions(5, PartitionFigures::skew_hundredths);
        assert_eq!(skewed[0].partition, "region=\"eu\"");
        assert_eq!((skewed[0].skew_hundredths(), skewed[0].deletes.files), (180, 2));
        assert_eq!(skewed[1].skew_hundredths(), 100);
    }

    #[test]
    fn partitions_beyond_a_number_are_counted_together() {
        let mut figures = SnapshotFigures::new(&doc(), MIB).unwrap();
        let more = 7;
        for number in 0..FIGURE_PARTITIONS_MAX + more {
            let region = format!("r{number}");
            figures.add_file(&file(FileContent::Data, "orc", Some(&region), 1), 0);
        }
        assert_eq!(figures.partitions().len(), FIGURE_PARTITIONS_MAX);
        assert_eq!(figures.beyond, more as u64);
        assert_eq!(figures.data.files, (FIGURE_PARTITIONS_MAX + more) as u64);
        // Long values identify partitions in full, are truncated for display, and count with their
        // bytes.
        let mut figures = SnapshotFigures::new(&doc(), MIB).unwrap();
        for letter in ["a", "b", "c"] {
            let region = letter.repeat(KEYS_BYTES_MAX / 2 - 100);
            figures.add_file(&file(FileContent::Data, "orc", Some(&region), 1), 0);
        }
        assert_eq!((figures.partitions().len(), figures.beyond), (2, 1));
        let partitions = figures.top_partitions(1, |it| it.data.files);
        assert_eq!(partitions[0].partition.chars().count(), PARTITION_SHOWN_MAX + 1);
    }
}
