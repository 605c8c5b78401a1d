//! A table's metadata document: its ids, and the original bytes of its parts. It is parsed once and
//! written again without losing anything, including unknown members.
//!
//! It never parses a schema, a specification or a summary; `schema` does, if an update needs it.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#table-metadata>

pub mod check;
mod emit;
mod layout;
mod parse;
pub mod properties;
#[cfg(test)]
pub(crate) mod tests;

use bytes::Bytes;

use crate::json::{RawJson, RawString, put_integer, put_name, put_string};
use layout::DocumentLayout;
pub(crate) use parse::{statistics as read_statistics, unsorted};
pub use properties::TableProperties;

/// Newest version of the format that is read and written.
pub const FORMAT_VERSION_MAX: u8 = 3;
/// Version of a new table if the request sets none.
pub const FORMAT_VERSION_DEFAULT: u8 = 2;
/// First version whose rows have ids, so that `next-row-id` is required.
pub const FORMAT_VERSION_ROW_IDS: u8 = 3;
/// Branch of the table's current state.
pub const MAIN: &str = "main";
/// Most schemas of a document, and most specifications, and most orders.
pub const PARTS_MAX: usize = 100_000;
/// Most unknown members of a document. A member of a few bytes takes many times as much memory.
pub const UNKNOWN_MEMBERS_MAX: usize = 1_000;
/// Value of `last-partition-id` before any partition field has an id: fields begin at 1000.
pub const LAST_PARTITION_ID_NONE: i32 = 999;

/// A table's metadata. The public fields are its content; its form (the order of keys, unknown
/// members, the form of numbers and strings) is kept separately.
#[derive(Clone, Debug)]
pub struct TableDoc {
    /// Version of the table format: 1, 2 or 3.
    pub format_version: u8,
    /// UUID of the table. Empty only in version 1, where it is optional.
    pub uuid: String,
    /// Location of new files of the table.
    pub location: String,
    /// Highest sequence number of a snapshot. 0 in version 1.
    pub last_sequence_number: i64,
    /// Time of the last update, in milliseconds since 1970.
    pub last_updated_ms: i64,
    /// Highest id assigned to a column.
    pub last_column_id: i32,
    /// Id of the table's current schema.
    pub current_schema_id: i32,
    /// All schemas that have not been removed.
    pub schemas: Vec<MetadataPart>,
    /// Id of the specification for new data.
    pub default_spec_id: i32,
    /// Partition specifications.
    pub specs: Vec<MetadataPart>,
    /// Highest id assigned to a partition field.
    pub last_partition_id: i32,
    /// Id of the sort order for new data.
    pub default_sort_order_id: i32,
    /// Sort orders.
    pub sort_orders: Vec<MetadataPart>,
    /// The table's properties, in order.
    pub properties: TableProperties,
    /// Newest snapshot of the main branch, if there is any.
    pub current_snapshot_id: Option<i64>,
    /// Branches and tags.
    pub refs: Vec<SnapshotReference>,
    /// Every snapshot that has not expired.
    pub snapshots: Vec<TableSnapshot>,
    /// History of the current snapshot.
    pub snapshot_log: Vec<SnapshotLogEntry>,
    /// Earlier metadata documents.
    pub metadata_log: Vec<MetadataLogEntry>,
    /// Statistics files.
    pub statistics: Vec<StatisticsPart>,
    /// Partition statistics files.
    pub partition_statistics: Vec<StatisticsPart>,
    /// Greater than every assigned row id. Present from version 3 on.
    pub next_row_id: Option<i64>,
    /// Keys that other keys are encrypted with.
    pub encryption_keys: Vec<KeyPart>,
    layout: DocumentLayout,
}

/// A schema, a partition specification or a sort order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPart {
    /// Id among those of its kind.
    pub id: i32,
    /// Original bytes.
    pub raw: RawJson,
}

/// A state of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSnapshot {
    /// `snapshot-id`
    pub id: i64,
    /// `parent-snapshot-id`
    pub parent: Option<i64>,
    /// `sequence-number`; 0 if it was written in version 1.
    pub sequence_number: i64,
    /// Time of creation, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// First row id of the rows that it added.
    pub first_row_id: Option<i64>,
    /// Upper bound of the number of row ids assigned to its rows.
    pub added_rows: Option<i64>,
    /// Schema that was current when it was created.
    pub schema_id: Option<i32>,
    /// Original bytes.
    pub raw: RawJson,
}

/// Kind of a name for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    /// Snapshots are added to it.
    Branch,
    /// Stays at its snapshot.
    Tag,
}

impl ReferenceKind {
    /// Returns the name in documents and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReferenceKind::Branch => "branch",
            ReferenceKind::Tag => "tag",
        }
    }
}

/// A name for a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotReference {
    /// Name.
    pub name: RawString,
    /// Id of its snapshot.
    pub snapshot_id: i64,
    /// Kind: branch or tag.
    pub kind: ReferenceKind,
    /// Number of snapshots of a branch that outlive their expiry.
    pub min_snapshots_to_keep: Option<i32>,
    /// Largest age of a branch's snapshots.
    pub max_snapshot_age_ms: Option<i64>,
    /// Largest age of the reference itself.
    pub max_ref_age_ms: Option<i64>,
    /// Original bytes, without the name.
    pub raw: RawJson,
}

impl SnapshotReference {
    /// Returns whether both have the same content, whatever their form.
    #[must_use]
    pub fn same(&self, other: &SnapshotReference) -> bool {
        self.name == other.name
            && self.snapshot_id == other.snapshot_id
            && self.kind == other.kind
            && self.min_snapshots_to_keep == other.min_snapshots_to_keep
            && self.max_snapshot_age_ms == other.max_snapshot_age_ms
            && self.max_ref_age_ms == other.max_ref_age_ms
    }

    /// Returns the main branch, if the document does not have it explicitly.
    pub(crate) fn main(snapshot_id: i64) -> SnapshotReference {
        let mut reference = SnapshotReference {
            name: MAIN.into(),
            snapshot_id,
            kind: ReferenceKind::Branch,
            min_snapshots_to_keep: None,
            max_snapshot_age_ms: None,
            max_ref_age_ms: None,
            raw: RawJson::null(),
        };
        reference.write();
        reference
    }

    /// Sets `raw` from the fields.
    pub(crate) fn write(&mut self) {
        let mut out = vec![b'{'];
        put_name(&mut out, "snapshot-id");
        put_integer(&mut out, self.snapshot_id);
        put_name(&mut out, "type");
        put_string(&mut out, self.kind.name());
        let retention = [
            ("min-snapshots-to-keep", self.min_snapshots_to_keep.map(i64::from)),
            ("max-snapshot-age-ms", self.max_snapshot_age_ms),
            ("max-ref-age-ms", self.max_ref_age_ms),
        ];
        for (name, value) in retention {
            if let Some(value) = value {
                put_name(&mut out, name);
                put_integer(&mut out, value);
            }
        }
        out.push(b'}');
        self.raw = RawJson::written(out);
    }
}

/// Log entry: a snapshot became the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLogEntry {
    /// Time, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Id of the snapshot.
    pub snapshot_id: i64,
    /// Original bytes.
    pub raw: RawJson,
}

impl SnapshotLogEntry {
    /// Creates an entry.
    #[must_use]
    pub fn new(timestamp_ms: i64, snapshot_id: i64) -> SnapshotLogEntry {
        let mut out = vec![b'{'];
        put_name(&mut out, "timestamp-ms");
        put_integer(&mut out, timestamp_ms);
        put_name(&mut out, "snapshot-id");
        put_integer(&mut out, snapshot_id);
        out.push(b'}');
        SnapshotLogEntry { timestamp_ms, snapshot_id, raw: RawJson::written(out) }
    }
}

/// Log entry: an earlier document of the table.
#[derive(Clone, Debug)]
pub struct MetadataLogEntry {
    /// Time of its last update, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Original bytes, including the location.
    pub raw: RawJson,
}

impl MetadataLogEntry {
    /// Returns the location. It is looked up in the bytes: a table keeps up to a hundred entries,
    /// which every commit copies, and needs the location only of a removed one.
    #[must_use]
    pub fn metadata_file(&self) -> String {
        let file = self.raw.get("metadata-file");
        file.as_ref().and_then(RawJson::as_str).unwrap_or_default().into_owned()
    }

    /// Creates an entry.
    #[must_use]
    pub fn new(timestamp_ms: i64, metadata_file: &str) -> MetadataLogEntry {
        let mut out = vec![b'{'];
        put_name(&mut out, "timestamp-ms");
        put_integer(&mut out, timestamp_ms);
        put_name(&mut out, "metadata-file");
        put_string(&mut out, metadata_file);
        out.push(b'}');
        MetadataLogEntry { timestamp_ms, raw: RawJson::written(out) }
    }
}

/// A statistics file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsPart {
    /// Id of its snapshot.
    pub snapshot_id: i64,
    /// Original bytes.
    pub raw: RawJson,
}

/// A key that encrypts other keys.
#[derive(Clone, Debug)]
pub struct KeyPart {
    /// `key-id`
    pub id: RawString,
    /// Original bytes.
    pub raw: RawJson,
}

impl TableDoc {
    /// Creates an empty document to fill: without schema, specification and sort order it is not
    /// valid yet.
    #[must_use]
    pub fn empty(format_version: u8, uuid: &str, location: &str, now_ms: i64) -> TableDoc {
        TableDoc {
            format_version,
            uuid: uuid.to_owned(),
            location: location.to_owned(),
            last_sequence_number: 0,
            last_updated_ms: now_ms,
            last_column_id: 0,
            current_schema_id: 0,
            schemas: Vec::new(),
            default_spec_id: 0,
            specs: Vec::new(),
            last_partition_id: LAST_PARTITION_ID_NONE,
            default_sort_order_id: 0,
            sort_orders: Vec::new(),
            properties: TableProperties::default(),
            current_snapshot_id: None,
            refs: Vec::new(),
            snapshots: Vec::new(),
            snapshot_log: Vec::new(),
            metadata_log: Vec::new(),
            statistics: Vec::new(),
            partition_statistics: Vec::new(),
            next_row_id: (format_version >= FORMAT_VERSION_ROW_IDS).then_some(0),
            encryption_keys: Vec::new(),
            layout: DocumentLayout::of_version(format_version),
        }
    }

    /// Returns the current schema. `None` only in a document that is still being filled.
    #[must_use]
    pub fn current_schema(&self) -> Option<&MetadataPart> {
        part(&self.schemas, self.current_schema_id)
    }

    /// Returns the partition specification for new data.
    #[must_use]
    pub fn default_spec(&self) -> Option<&MetadataPart> {
        part(&self.specs, self.default_spec_id)
    }

    /// Returns the sort order for new data.
    #[must_use]
    pub fn default_sort_order(&self) -> Option<&MetadataPart> {
        part(&self.sort_orders, self.default_sort_order_id)
    }

    /// Returns a snapshot by its id.
    #[must_use]
    pub fn snapshot(&self, id: i64) -> Option<&TableSnapshot> {
        // The newest snapshot is requested most often, and is usually the last.
        self.snapshots.iter().rev().find(|snapshot| snapshot.id == id)
    }

    /// Returns a branch or tag by its name.
    #[must_use]
    pub fn reference(&self, name: &str) -> Option<&SnapshotReference> {
        self.refs.iter().find(|reference| reference.name == name)
    }

    /// Returns the unknown members of the document, in order.
    pub fn unknown(&self) -> impl Iterator<Item = (&RawString, &RawJson)> {
        self.layout.unknown()
    }

    /// Returns whether documents that drop out of the metadata log are to be deleted.
    #[must_use]
    pub fn deletes_old_metadata(&self) -> bool {
        self.properties
            .get(properties::DELETE_AFTER_COMMIT)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Returns the document in a new buffer.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.size_hint());
        self.put(&mut out);
        out.into()
    }
}

/// Returns the part with this id.
#[must_use]
pub fn part(parts: &[MetadataPart], id: i32) -> Option<&MetadataPart> {
    parts.iter().rev().find(|part| part.id == id)
}
