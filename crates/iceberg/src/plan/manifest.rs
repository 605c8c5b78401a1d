//! Manifest lists and manifests of all versions of the format, reduced to the fields that a scan
//! needs.
//!
//! Inherited fields are resolved on use ([`LiveFile`]): a manifest itself never changes, so that it
//! can be cached by its location.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#manifests>
//! - <https://iceberg.apache.org/spec/#manifest-lists>

use std::sync::Arc;

use super::avro::{AvroContainer, AvroDatum, AvroError};
use super::value::PlanValue;

/// Most manifests of a snapshot.
pub(super) const MANIFESTS_MAX: usize = 100_000;

/// Most files of a manifest.
pub(super) const ENTRIES_MAX: usize = 1_000_000;

/// Approximate maximum of bytes in memory of a manifest list.
const LIST_WEIGHT_MAX: usize = 128 << 20;

/// Approximate maximum of bytes in memory of a manifest.
const MANIFEST_WEIGHT_MAX: usize = 256 << 20;

/// Bytes in memory of a value of variable length, beside its content.
const BOX_BYTES: usize = 16;

type Read<T> = Result<T, AvroError>;

const NO_PATH: AvroError = AvroError("an entry has no path");

/// Summary of a partition field in a manifest list.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionSummary {
    pub(super) contains_null: bool,
    pub(super) contains_nan: Option<bool>,
    pub(super) lower: Option<Box<[u8]>>,
    pub(super) upper: Option<Box<[u8]>>,
}

/// A manifest, as described in a manifest list.
#[derive(Clone, Debug)]
pub struct ManifestRef {
    /// Location of its file.
    pub path: Arc<str>,
    /// Bytes of its file, if the list has them.
    pub(super) length: Option<u64>,
    /// `None` in a snapshot of version 1 without a manifest list: the manifest contains it.
    pub(super) spec_id: Option<i32>,
    pub(super) has_deletes: bool,
    pub(super) sequence_number: i64,
    pub(super) snapshot_id: Option<i64>,
    /// Number of added and existing files, if the list has it.
    pub(super) live: Option<u64>,
    pub(super) partitions: Option<Vec<PartitionSummary>>,
    pub(super) first_row_id: Option<i64>,
}

impl ManifestRef {
    /// Creates the reference of a manifest of which only the location is known.
    pub fn bare(path: &str) -> ManifestRef {
        ManifestRef {
            path: path.into(),
            length: None,
            spec_id: None,
            has_deletes: false,
            sequence_number: 0,
            snapshot_id: None,
            live: None,
            partitions: None,
            first_row_id: None,
        }
    }

    /// Returns the approximate bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let length = |it: &Option<Box<[u8]>>| it.as_ref().map_or(0, |it| BOX_BYTES + it.len());
        let summary = |it: &PartitionSummary| {
            size_of::<PartitionSummary>() + length(&it.lower) + length(&it.upper)
        };
        let summaries = self.partitions.iter().flatten().map(summary).sum::<usize>();
        size_of::<ManifestRef>() + BOX_BYTES + self.path.len() + summaries
    }
}

/// Status of a file in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManifestEntryStatus {
    Existing,
    Added,
    Deleted,
}

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FileContent {
    Data,
    PositionDeletes,
    EqualityDeletes,
}

/// Numbers by column id, sorted by id.
pub(super) type Counts = Box<[(i32, i64)]>;
/// Bounds by column id, sorted by id.
pub(super) type Bounds = Box<[(i32, Box<[u8]>)]>;

/// Returns the entry of a column id.
pub(super) fn of_column<T>(all: &[(i32, T)], id: i32) -> Option<&T> {
    let place = all.binary_search_by_key(&id, |(known, _)| *known).ok()?;
    all.get(place).map(|(_, value)| value)
}

/// A data file or a delete file.
#[derive(Clone, Debug)]
pub(super) struct ContentFile {
    pub(super) content: FileContent,
    pub(super) path: Arc<str>,
    pub(super) format: Box<str>,
    /// Values by the ids of partition fields.
    pub(super) partition: Vec<(i32, Option<PlanValue>)>,
    pub(super) records: i64,
    pub(super) bytes: i64,
    pub(super) column_sizes: Counts,
    pub(super) value_counts: Counts,
    pub(super) null_counts: Counts,
    pub(super) nan_counts: Counts,
    pub(super) lower: Bounds,
    pub(super) upper: Bounds,
    pub(super) key_metadata: Option<Box<[u8]>>,
    pub(super) split_offsets: Vec<i64>,
    pub(super) equality_ids: Vec<i32>,
    pub(super) sort_order_id: Option<i64>,
    pub(super) first_row_id: Option<i64>,
    pub(super) referenced: Option<Arc<str>>,
    pub(super) content_offset: Option<i64>,
    pub(super) content_size: Option<i64>,
}

/// A file in a manifest.
#[derive(Clone, Debug)]
pub(super) struct ManifestEntry {
    pub(super) status: ManifestEntryStatus,
    snapshot_id: Option<i64>,
    sequence_number: Option<i64>,
    /// Rows of the earlier files that inherit row ids, if this file inherits its row ids as well.
    rows_before: Option<i64>,
    pub(super) file: Arc<ContentFile>,
}

/// A parsed manifest.
#[derive(Debug)]
pub struct DataManifest {
    /// Specification id in its header.
    pub(super) spec_id: Option<i32>,
    pub(super) entries: Vec<ManifestEntry>,
    /// Approximate bytes in memory.
    pub weight: usize,
}

/// A file with the fields that it inherits from its manifest's entry in the snapshot.
#[derive(Clone, Debug)]
pub(super) struct LiveFile {
    pub(super) file: Arc<ContentFile>,
    pub(super) spec_id: i32,
    pub(super) sequence_number: i64,
    pub(super) first_row_id: Option<i64>,
}

impl DataManifest {
    /// Resolves an entry of this manifest; `None` if the manifest does not state the partition
    /// specification of its files.
    pub(super) fn live(&self, entry: &ManifestEntry, of: &ManifestRef) -> Option<LiveFile> {
        let file = Arc::clone(&entry.file);
        // Files of version 1 have no sequence number and count as older than all others.
        let inherited =
            if entry.status == ManifestEntryStatus::Added { of.sequence_number } else { 0 };
        let sequence_number = entry.sequence_number.unwrap_or(inherited);
        let assigned = of.first_row_id.zip(entry.rows_before);
        let first_row_id = file.first_row_id.or(assigned.and_then(|(a, b)| a.checked_add(b)));
        let spec_id = of.spec_id.or(self.spec_id)?;
        Some(LiveFile { file, spec_id, sequence_number, first_row_id })
    }
}

impl ManifestEntry {
    /// Returns the snapshot that added or removed the file.
    pub(super) fn snapshot_id(&self, of: &ManifestRef) -> Option<i64> {
        self.snapshot_id.or(of.snapshot_id)
    }
}

/// Parses a manifest list.
///
/// # Errors
/// If it is malformed, or exceeds a limit.
pub fn read_list(bytes: &[u8]) -> Read<Vec<ManifestRef>> {
    list_within(bytes, LIST_WEIGHT_MAX)
}

fn list_within(bytes: &[u8], weight_max: usize) -> Read<Vec<ManifestRef>> {
    let (mut all, mut weight) = (Vec::new(), 0_usize);
    AvroContainer::open(bytes)?.each(|row| {
        if all.len() == MANIFESTS_MAX {
            return Err(AvroError("the manifest list has too many manifests"));
        }
        let count = |id: i32| row.field(id).and_then(AvroDatum::as_i64);
        let files = |id: i32| count(id).and_then(|it| u64::try_from(it).ok());
        let path = row.field(500).and_then(text).ok_or(NO_PATH)?;
        let partitions = row.field(507).map(summaries).transpose()?;
        let manifest = ManifestRef {
            path: path.into(),
            length: files(501),
            spec_id: Some(count(502).map_or(Ok(0), i32::try_from).map_err(|_| NO_PATH)?),
            has_deletes: count(517) == Some(1),
            sequence_number: count(515).unwrap_or(0),
            snapshot_id: count(503),
            live: files(504).zip(files(505)).map(|(added, old)| added.saturating_add(old)),
            partitions,
            first_row_id: count(520),
        };
        weight = weight.saturating_add(manifest.weight());
        if weight > weight_max {
            return Err(AvroError("the manifest list takes too much memory"));
        }
        all.push(manifest);
        Ok(())
    })?;
    Ok(all)
}

fn summaries(all: &AvroDatum<'_>) -> Read<Vec<PartitionSummary>> {
    let AvroDatum::List(all) = all else { return Err(AvroError("partitions are not a list")) };
    let summary = |it: &AvroDatum<'_>| PartitionSummary {
        contains_null: it.field(509).is_none_or(|it| *it != AvroDatum::Bool(false)),
        contains_nan: match it.field(518) {
            Some(AvroDatum::Bool(is)) => Some(*is),
            _ => None,
        },
        lower: it.field(510).and_then(bytes).map(Into::into),
        upper: it.field(511).and_then(bytes).map(Into::into),
    };
    Ok(all.iter().map(summary).collect())
}

/// Parses a manifest.
///
/// # Errors
/// If it is malformed, or exceeds a limit.
pub fn read(bytes: &[u8]) -> Read<DataManifest> {
    read_within(bytes, MANIFEST_WEIGHT_MAX)
}

fn read_within(bytes: &[u8], weight_max: usize) -> Read<DataManifest> {
    let container = AvroContainer::open(bytes)?;
    let spec_id = container.entry("partition-spec-id").and_then(|it| it.parse().ok());
    let (mut entries, mut weight, mut rows) = (Vec::new(), 0_usize, 0_i64);
    container.each(|row| {
        if entries.len() == ENTRIES_MAX {
            return Err(AvroError("the manifest has too many files"));
        }
        let status = match row.field(0).and_then(AvroDatum::as_i64) {
            Some(0) => ManifestEntryStatus::Existing,
            Some(1) => ManifestEntryStatus::Added,
            Some(2) => ManifestEntryStatus::Deleted,
            _ => return Err(AvroError("an entry has no status")),
        };
        let file = content_file(row.field(2).ok_or(AvroError("an entry has no file"))?)?;
        let inherits = status != ManifestEntryStatus::Deleted && file.first_row_id.is_none();
        let rows_before = inherits.then_some(rows);
        if inherits {
            rows = rows.saturating_add(file.records);
        }
        weight = weight.saturating_add(size_of::<ManifestEntry>()).saturating_add(file.weight());
        if weight > weight_max {
            return Err(AvroError("the manifest takes too much memory"));
        }
        entries.push(ManifestEntry {
            status,
            snapshot_id: row.field(1).and_then(AvroDatum::as_i64),
            sequence_number: row.field(3).and_then(AvroDatum::as_i64),
            rows_before,
            file: Arc::new(file),
        });
        Ok(())
    })?;
    Ok(DataManifest { spec_id, entries, weight })
}

fn content_file(row: &AvroDatum<'_>) -> Read<ContentFile> {
    let number = |id: i32| row.field(id).and_then(AvroDatum::as_i64);
    let required = |id: i32| {
        let number = number(id).filter(|number| *number >= 0);
        number.ok_or(AvroError("a file does not say how long it is"))
    };
    let path = row.field(100).and_then(text).ok_or(NO_PATH)?;
    let format = row.field(101).and_then(text).ok_or(AvroError("a file has no format"))?;
    let content = match number(134) {
        None | Some(0) => FileContent::Data,
        Some(1) => FileContent::PositionDeletes,
        Some(2) => FileContent::EqualityDeletes,
        _ => return Err(AvroError("a file has an unknown content")),
    };
    let equality_ids = numbers(row, 135)?.into_iter().map(i32::try_from);
    Ok(ContentFile {
        content,
        path: path.into(),
        format: format.to_ascii_lowercase().into(),
        partition: row.field(102).map(partition).transpose()?.unwrap_or_default(),
        records: required(103)?,
        bytes: required(104)?,
        column_sizes: counts(row, 108)?,
        value_counts: counts(row, 109)?,
        null_counts: counts(row, 110)?,
        nan_counts: counts(row, 137)?,
        lower: bounds(row, 125)?,
        upper: bounds(row, 128)?,
        key_metadata: row.field(131).and_then(bytes).map(Into::into),
        split_offsets: numbers(row, 132)?,
        equality_ids: equality_ids
            .collect::<Result<_, _>>()
            .map_err(|_| AvroError("an equality id is not an id"))?,
        sort_order_id: number(140),
        first_row_id: number(142),
        referenced: row.field(143).and_then(text).map(Into::into),
        content_offset: number(144),
        content_size: number(145),
    })
}

fn text<'a>(it: &AvroDatum<'a>) -> Option<&'a str> {
    if let AvroDatum::Text(text) = it { Some(text) } else { None }
}

fn bytes<'a>(it: &AvroDatum<'a>) -> Option<&'a [u8]> {
    if let AvroDatum::Bytes(bytes) = it { Some(bytes) } else { None }
}

/// Returns a list of numbers; a missing one is empty.
fn numbers(row: &AvroDatum<'_>, id: i32) -> Read<Vec<i64>> {
    let Some(all) = row.field(id) else { return Ok(Vec::new()) };
    let AvroDatum::List(all) = all else { return Err(AvroError("numbers are not a list")) };
    all.iter().map(|it| it.as_i64().ok_or(AvroError("a number is malformed"))).collect()
}

/// Returns the pairs of a map by column ids; Avro has no maps with such keys.
fn pairs<'a, T>(
    row: &'a AvroDatum<'a>,
    id: i32,
    value: impl Fn(&'a AvroDatum<'a>) -> Option<T>,
) -> Read<Box<[(i32, T)]>> {
    const NO_PAIR: AvroError = AvroError("statistics of a file are not a map");
    let Some(all) = row.field(id) else { return Ok(Box::default()) };
    let AvroDatum::List(all) = all else { return Err(NO_PAIR) };
    let mut pairs = Vec::with_capacity(all.len());
    for pair in all {
        let AvroDatum::Record(pair) = pair else { return Err(NO_PAIR) };
        let [(_, AvroDatum::Int(key)), (_, found)] = pair.as_slice() else { return Err(NO_PAIR) };
        pairs.push((*key, value(found).ok_or(NO_PAIR)?));
    }
    // Writers iterate over hash maps.
    pairs.sort_by_key(|(key, _)| *key);
    Ok(pairs.into())
}

fn counts(row: &AvroDatum<'_>, id: i32) -> Read<Counts> {
    pairs(row, id, AvroDatum::as_i64)
}

fn bounds(row: &AvroDatum<'_>, id: i32) -> Read<Bounds> {
    pairs(row, id, |it| bytes(it).map(Into::into))
}

fn partition(row: &AvroDatum<'_>) -> Read<Vec<(i32, Option<PlanValue>)>> {
    let AvroDatum::Record(fields) = row else {
        return Err(AvroError("a partition is not a record"));
    };
    let field = |(id, value): &(Option<i32>, AvroDatum<'_>)| {
        let id = id.ok_or(AvroError("a field of a partition has no id"))?;
        let value = match value {
            AvroDatum::Null => None,
            AvroDatum::Bool(is) => Some(PlanValue::Bool(*is)),
            AvroDatum::Int(number) => Some(PlanValue::Integer(i64::from(*number))),
            AvroDatum::Long(number) => Some(PlanValue::Integer(*number)),
            AvroDatum::Float(number) => Some(PlanValue::Float(f64::from(*number))),
            AvroDatum::Double(number) => Some(PlanValue::Float(*number)),
            AvroDatum::Bytes(bytes) => Some(PlanValue::Bytes((*bytes).into())),
            AvroDatum::Text(text) => Some(PlanValue::Text((*text).into())),
            AvroDatum::List(_) | AvroDatum::Record(_) => {
                return Err(AvroError("a partition has a malformed value"));
            }
        };
        Ok((id, value))
    };
    fields.iter().map(field).collect()
}

impl ContentFile {
    /// Returns the approximate bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let counts = [&self.column_sizes, &self.value_counts, &self.null_counts, &self.nan_counts];
        let counts: usize = counts.iter().map(|it| size_of::<(i32, i64)>() * it.len()).sum();
        let bounds = self.lower.iter().chain(&*self.upper);
        let bounds = bounds.map(|(_, it)| size_of::<(i32, Box<[u8]>)>() + BOX_BYTES + it.len());
        let fields = self.partition.iter();
        let fields = fields.map(|(_, it)| {
            size_of::<(i32, Option<PlanValue>)>() + it.as_ref().map_or(0, PlanValue::weight)
        });
        let texts = self.path.len()
            + self.format.len()
            + self.referenced.as_ref().map_or(0, |it| it.len())
            + self.key_metadata.as_ref().map_or(0, |it| it.len());
        let lists = 8 * self.split_offsets.len() + 4 * self.equality_ids.len();
        let values = counts + bounds.sum::<usize>() + fields.sum::<usize>();
        size_of::<ContentFile>() + values + texts + lists
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::avro::AvroWriter;

    use super::*;

    #[test]
    fn what_takes_too_much_memory_is_refused() {
        let field = |id: i32, name: &str, kind: &serde_json::Value| json!({"field-id": id, "name": name, "type": kind});
        let list_of = |items: serde_json::Value| json!({"type": "array", "items": items});
        let has_null = field(509, "contains_null", &json!("boolean"));
        let summary = json!({"type": "record", "name": "r508", "fields": [has_null]});
        let list = json!({"type": "record", "name": "manifest_file", "fields": [
            field(500, "manifest_path", &json!("string")),
            field(507, "partitions", &list_of(summary)),
        ]});
        let summaries = vec![json!({"contains_null": true}); 1_000];
        let row = json!({"manifest_path": "m", "partitions": summaries});
        let list = AvroWriter::new(&list, "null").record(&row).record(&row).bytes();
        let weight = 2 * list_within(&list, usize::MAX).unwrap()[0].weight();
        assert!(weight > 2_000 * size_of::<PartitionSummary>(), "{weight}");
        assert_eq!(list_within(&list, weight).unwrap().len(), 2);
        let error = list_within(&list, weight - 1).unwrap_err();
        assert_eq!(error.0, "the manifest list takes too much memory");

        let pair = json!({"type": "record", "name": "k1_v2", "fields": [
            field(126, "key", &json!("int")), field(127, "value", &json!("bytes")),
        ]});
        let file = json!({"type": "record", "name": "r2", "fields": [
            field(100, "file_path", &json!("string")),
            field(101, "file_format", &json!("string")),
            field(103, "record_count", &json!("long")),
            field(104, "file_size_in_bytes", &json!("long")),
            field(125, "lower_bounds", &list_of(pair)),
        ]});
        let schema = json!({"type": "record", "name": "manifest_entry", "fields": [
            field(0, "status", &json!("int")), field(2, "data_file", &file),
        ]});
        let bounds = vec![json!({"key": 1, "value": [1]}); 1_000];
        let row = json!({"status": 1, "data_file": {"file_path": "f", "file_format": "PARQUET",
            "record_count": 1, "file_size_in_bytes": 1, "lower_bounds": bounds}});
        let manifest = AvroWriter::new(&schema, "null").record(&row).record(&row).bytes();
        let weight = read_within(&manifest, usize::MAX).unwrap().weight;
        assert!(weight > 2_000 * size_of::<(i32, Box<[u8]>)>(), "{weight}");
        assert_eq!(read_within(&manifest, weight).unwrap().entries.len(), 2);
        let error = read_within(&manifest, weight - 1).unwrap_err();
        assert_eq!(error.0, "the manifest takes too much memory");
    }
}
