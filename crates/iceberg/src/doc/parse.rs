//! Parses a document in one pass, in any order of its members.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#table-metadata-fields>

use bytes::Bytes;

use super::layout::{DocumentKey, DocumentLayout, DocumentSlot, KNOWN_MEMBERS};
use super::{
    FORMAT_VERSION_MAX, FORMAT_VERSION_ROW_IDS, KeyPart, LAST_PARTITION_ID_NONE, MetadataLogEntry,
    MetadataPart, PARTS_MAX, ReferenceKind, SnapshotLogEntry, SnapshotReference, StatisticsPart,
    TableDoc, TableProperties, TableSnapshot, UNKNOWN_MEMBERS_MAX, check,
};
use crate::error::illegal;
use crate::json::cursor::{JsonCursor, JsonText};
use crate::json::{JsonKind, RawJson, RawString};
use crate::{CatalogError, Result};

/// Parts found so far.
#[derive(Default)]
struct DocumentDraft {
    slots: Vec<DocumentSlot>,
    unknown: usize,
    format_version: Option<i64>,
    uuid: Option<String>,
    location: Option<String>,
    last_sequence_number: Option<i64>,
    last_updated_ms: Option<i64>,
    last_column_id: Option<i32>,
    schema: Option<RawJson>,
    current_schema_id: Option<i32>,
    schemas: Option<Vec<MetadataPart>>,
    partition_spec: Option<RawJson>,
    default_spec_id: Option<i32>,
    specs: Option<Vec<MetadataPart>>,
    last_partition_id: Option<i32>,
    default_sort_order_id: Option<i32>,
    sort_orders: Option<Vec<MetadataPart>>,
    properties: TableProperties,
    current_snapshot_id: Option<i64>,
    next_row_id: Option<i64>,
    refs: Option<Vec<SnapshotReference>>,
    snapshots: Vec<TableSnapshot>,
    statistics: Vec<StatisticsPart>,
    partition_statistics: Vec<StatisticsPart>,
    encryption_keys: Vec<KeyPart>,
    snapshot_log: Vec<SnapshotLogEntry>,
    metadata_log: Vec<MetadataLogEntry>,
}

impl TableDoc {
    /// Parses a document and checks that it is consistent.
    ///
    /// # Errors
    /// `IllegalArgument` or `BadRequest`: it is malformed, has an unknown version, or contradicts
    /// itself. Readers of stored documents convert this into a server error.
    pub fn parse(text: Bytes) -> Result<TableDoc> {
        let slots = Vec::with_capacity(KNOWN_MEMBERS);
        let mut draft = DocumentDraft { slots, ..DocumentDraft::default() };
        let mut cursor = JsonCursor::new(&text)?;
        cursor.object(|cursor, name| draft.member(cursor, &text, name))?;
        cursor.end()?;
        let mut doc = draft.finish()?;
        check::check(&doc)?;
        doc.shrink();
        Ok(doc)
    }
}

impl DocumentDraft {
    fn member(
        &mut self,
        cursor: &mut JsonCursor<'_>,
        whole: &Bytes,
        name: JsonText<'_>,
    ) -> Result<()> {
        let key = DocumentKey::of(&name.decode());
        if key != DocumentKey::Unknown && self.slots.iter().any(|slot| slot.key == key) {
            return Err(illegal(format!("the table metadata has `{}` twice", key.name())));
        }
        self.unknown += usize::from(key == DocumentKey::Unknown);
        if self.unknown > UNKNOWN_MEMBERS_MAX {
            return Err(illegal(format!(
                "the table metadata has more than {UNKNOWN_MEMBERS_MAX} unknown members"
            )));
        }
        let start = cursor.offset();
        // A null member counts as absent.
        if key == DocumentKey::Unknown || cursor.peek()? == JsonKind::Null {
            cursor.value()?;
        } else {
            self.known(key, cursor, whole)?;
        }
        let raw = cursor.since(start);
        let raw = key.has_own_form(raw).then(|| RawJson::within(whole, raw));
        let is_named = key == DocumentKey::Unknown || name.is_escaped();
        let name = is_named.then(|| RawString::within(whole, name));
        self.slots.push(DocumentSlot::of_form(key, name, raw));
        Ok(())
    }

    fn known(
        &mut self,
        key: DocumentKey,
        cursor: &mut JsonCursor<'_>,
        whole: &Bytes,
    ) -> Result<()> {
        let name = key.name();
        match key {
            DocumentKey::FormatVersion => self.format_version = Some(long(cursor, name)?),
            DocumentKey::TableUuid => self.uuid = Some(string(cursor, name)?.decode().into_owned()),
            DocumentKey::Location => {
                self.location = Some(string(cursor, name)?.decode().into_owned())
            }
            DocumentKey::LastSequenceNumber => {
                self.last_sequence_number = Some(long(cursor, name)?)
            }
            DocumentKey::LastUpdatedMs => self.last_updated_ms = Some(long(cursor, name)?),
            DocumentKey::LastColumnId => self.last_column_id = Some(int(cursor, name)?),
            DocumentKey::Schema => self.schema = Some(RawJson::within(whole, cursor.value()?)),
            DocumentKey::CurrentSchemaId => self.current_schema_id = Some(int(cursor, name)?),
            DocumentKey::Schemas => self.schemas = Some(parts(cursor, whole, "schema-id")?),
            DocumentKey::PartitionSpec => {
                self.partition_spec = Some(RawJson::within(whole, cursor.value()?));
            }
            DocumentKey::DefaultSpecId => self.default_spec_id = Some(int(cursor, name)?),
            DocumentKey::PartitionSpecs => self.specs = Some(parts(cursor, whole, "spec-id")?),
            DocumentKey::LastPartitionId => self.last_partition_id = Some(int(cursor, name)?),
            DocumentKey::DefaultSortOrderId => {
                self.default_sort_order_id = Some(int(cursor, name)?)
            }
            DocumentKey::SortOrders => self.sort_orders = Some(parts(cursor, whole, "order-id")?),
            DocumentKey::Properties => self.properties = TableProperties::read(cursor, whole)?,
            DocumentKey::CurrentSnapshotId => self.current_snapshot_id = Some(long(cursor, name)?),
            DocumentKey::NextRowId => self.next_row_id = Some(long(cursor, name)?),
            DocumentKey::Refs => {
                let mut refs = Vec::new();
                cursor.object(|cursor, name| {
                    refs.push(SnapshotReference::read(
                        cursor,
                        whole,
                        RawString::within(whole, name),
                    )?);
                    Ok::<(), CatalogError>(())
                })?;
                self.refs = Some(refs);
            }
            DocumentKey::Snapshots => {
                self.snapshots = list(cursor, |it| TableSnapshot::read(it, whole))?
            }
            DocumentKey::Statistics => self.statistics = list(cursor, |it| statistics(it, whole))?,
            DocumentKey::PartitionStatistics => {
                self.partition_statistics = list(cursor, |it| statistics(it, whole))?;
            }
            DocumentKey::EncryptionKeys => {
                self.encryption_keys = list(cursor, |it| KeyPart::read(it, whole))?;
            }
            DocumentKey::SnapshotLog => {
                self.snapshot_log = list(cursor, |it| SnapshotLogEntry::read(it, whole))?
            }
            DocumentKey::MetadataLog => {
                self.metadata_log = list(cursor, |it| MetadataLogEntry::read(it, whole))?;
            }
            DocumentKey::Unknown => drop(cursor.value()?),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<TableDoc> {
        let version = need(self.format_version, "format-version")?;
        let format_version = u8::try_from(version)
            .ok()
            .filter(|version| (1..=FORMAT_VERSION_MAX).contains(version))
            .ok_or_else(|| illegal(format!("Cannot read unsupported version {version}")))?;
        let is_first = format_version == 1;
        let (current_schema_id, schemas) = self.schemas(is_first)?;
        let (default_spec_id, specs) = self.specs(is_first)?;
        let last_partition_id = match self.last_partition_id {
            Some(id) => id,
            None if is_first => specs.iter().map(last_field_id).max().unwrap_or(0),
            None => return Err(must_exist("last-partition-id", format_version)),
        };
        let (default_sort_order_id, sort_orders) = match self.sort_orders {
            Some(orders) => (need(self.default_sort_order_id, "default-sort-order-id")?, orders),
            None if is_first => (0, vec![unsorted()]),
            None => return Err(must_exist("sort-orders", format_version)),
        };
        let last_sequence_number = match self.last_sequence_number {
            Some(number) => number,
            None if is_first => 0,
            None => return Err(must_exist("last-sequence-number", format_version)),
        };
        let next_row_id = if format_version >= FORMAT_VERSION_ROW_IDS {
            Some(need(self.next_row_id, "next-row-id")?)
        } else {
            None
        };
        let current_snapshot_id = self.current_snapshot_id.filter(|&id| id != -1);
        let mut refs = self.refs.unwrap_or_default();
        // "There is always a main branch reference pointing to the current-snapshot-id even if the
        // refs map is null": the table format, §Table metadata.
        if let Some(id) = current_snapshot_id
            && !refs.iter().any(|it| it.name == super::MAIN)
        {
            refs.push(SnapshotReference::main(id));
        }
        Ok(TableDoc {
            format_version,
            uuid: self.uuid.unwrap_or_default(),
            location: need(self.location, "location")?,
            last_sequence_number,
            last_updated_ms: need(self.last_updated_ms, "last-updated-ms")?,
            last_column_id: need(self.last_column_id, "last-column-id")?,
            current_schema_id,
            schemas,
            default_spec_id,
            specs,
            last_partition_id,
            default_sort_order_id,
            sort_orders,
            properties: self.properties,
            current_snapshot_id,
            refs,
            snapshots: self.snapshots,
            snapshot_log: self.snapshot_log,
            metadata_log: self.metadata_log,
            statistics: self.statistics,
            partition_statistics: self.partition_statistics,
            next_row_id,
            encryption_keys: self.encryption_keys,
            layout: DocumentLayout {
                slots: self.slots,
                singular: (current_schema_id, default_spec_id),
            },
        })
    }

    /// Returns the current schema's id and all schemas. Old documents of version 1 have only one.
    fn schemas(&mut self, is_first: bool) -> Result<(i32, Vec<MetadataPart>)> {
        if let Some(schemas) = self.schemas.take() {
            return Ok((need(self.current_schema_id, "current-schema-id")?, schemas));
        }
        if !is_first {
            return Err(must_exist("schemas", 2));
        }
        let schema = need(self.schema.take(), "schema")?;
        let id = schema.get("schema-id").and_then(|id| id.as_i32());
        let raw = match id {
            Some(_) => schema,
            None => schema.with("schema-id", &RawJson::integer(0))?,
        };
        Ok((id.unwrap_or(0), vec![MetadataPart { id: id.unwrap_or(0), raw }]))
    }

    /// Returns the default specification's id and all specifications. Old documents of version 1
    /// have only the fields of one.
    fn specs(&mut self, is_first: bool) -> Result<(i32, Vec<MetadataPart>)> {
        if let Some(specs) = self.specs.take() {
            return Ok((need(self.default_spec_id, "default-spec-id")?, specs));
        }
        if !is_first {
            return Err(must_exist("partition-specs", 2));
        }
        let fields = need(self.partition_spec.take(), "partition-spec")?;
        let raw = RawJson::written(b"{\"spec-id\":0}".to_vec()).with("fields", &fields)?;
        Ok((0, vec![MetadataPart { id: 0, raw }]))
    }
}

impl TableSnapshot {
    /// Parses a snapshot of a document or an update.
    pub(crate) fn read(cursor: &mut JsonCursor<'_>, whole: &Bytes) -> Result<TableSnapshot> {
        let (mut id, mut timestamp_ms, mut sequence_number) = (None, None, None);
        let (mut parent, mut first_row_id, mut added_rows) = (None, None, None);
        let mut schema_id = None;
        let raw = object(cursor, whole, |cursor, name| {
            match name {
                "snapshot-id" => id = Some(long(cursor, "snapshot-id")?),
                "parent-snapshot-id" => parent = long_or_null(cursor, "parent-snapshot-id")?,
                "sequence-number" => sequence_number = long_or_null(cursor, "sequence-number")?,
                "timestamp-ms" => timestamp_ms = Some(long(cursor, "timestamp-ms")?),
                "first-row-id" => first_row_id = long_or_null(cursor, "first-row-id")?,
                "added-rows" => added_rows = long_or_null(cursor, "added-rows")?,
                "schema-id" => schema_id = int_or_null(cursor, "schema-id")?,
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        Ok(TableSnapshot {
            id: need(id, "snapshot-id")?,
            parent,
            sequence_number: sequence_number.unwrap_or(0),
            timestamp_ms: need(timestamp_ms, "timestamp-ms")?,
            first_row_id,
            added_rows,
            schema_id,
            raw,
        })
    }
}

impl SnapshotReference {
    /// Parses the value of a reference in documents, or its fields in updates.
    pub(crate) fn read(
        cursor: &mut JsonCursor<'_>,
        whole: &Bytes,
        name: RawString,
    ) -> Result<SnapshotReference> {
        let (mut snapshot_id, mut kind) = (None, None);
        let (mut keep, mut snapshot_age, mut ref_age) = (None, None, None);
        let raw = object(cursor, whole, |cursor, name| {
            match name {
                "snapshot-id" => snapshot_id = Some(long(cursor, "snapshot-id")?),
                "type" => kind = Some(reference_kind(&string(cursor, "type")?.decode())?),
                "min-snapshots-to-keep" => keep = int_or_null(cursor, "min-snapshots-to-keep")?,
                "max-snapshot-age-ms" => {
                    snapshot_age = long_or_null(cursor, "max-snapshot-age-ms")?;
                }
                "max-ref-age-ms" => ref_age = long_or_null(cursor, "max-ref-age-ms")?,
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        Ok(SnapshotReference {
            name,
            snapshot_id: need(snapshot_id, "snapshot-id")?,
            kind: need(kind, "type")?,
            min_snapshots_to_keep: keep,
            max_snapshot_age_ms: snapshot_age,
            max_ref_age_ms: ref_age,
            raw,
        })
    }
}

impl SnapshotLogEntry {
    fn read(cursor: &mut JsonCursor<'_>, whole: &Bytes) -> Result<SnapshotLogEntry> {
        let (mut timestamp_ms, mut snapshot_id) = (None, None);
        let raw = object(cursor, whole, |cursor, name| {
            match name {
                "timestamp-ms" => timestamp_ms = Some(long(cursor, "timestamp-ms")?),
                "snapshot-id" => snapshot_id = Some(long(cursor, "snapshot-id")?),
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        Ok(SnapshotLogEntry {
            timestamp_ms: need(timestamp_ms, "timestamp-ms")?,
            snapshot_id: need(snapshot_id, "snapshot-id")?,
            raw,
        })
    }
}

impl MetadataLogEntry {
    fn read(cursor: &mut JsonCursor<'_>, whole: &Bytes) -> Result<MetadataLogEntry> {
        let (mut timestamp_ms, mut has_file) = (None, false);
        let raw = object(cursor, whole, |cursor, name| {
            match name {
                "timestamp-ms" => timestamp_ms = Some(long(cursor, "timestamp-ms")?),
                "metadata-file" => {
                    string(cursor, "metadata-file")?;
                    has_file = true;
                }
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        Ok(MetadataLogEntry {
            timestamp_ms: need(timestamp_ms, "timestamp-ms")?,
            raw: need(has_file.then_some(raw), "metadata-file")?,
        })
    }
}

impl KeyPart {
    /// Parses a key of a document or an update.
    pub(crate) fn read(cursor: &mut JsonCursor<'_>, whole: &Bytes) -> Result<KeyPart> {
        let (mut id, mut has_metadata) = (None, false);
        let raw = object(cursor, whole, |cursor, name| {
            match name {
                "key-id" => id = Some(RawString::within(whole, string(cursor, "key-id")?)),
                "encrypted-key-metadata" => {
                    string(cursor, "encrypted-key-metadata")?;
                    has_metadata = true;
                }
                _ => drop(cursor.value()?),
            }
            Ok(())
        })?;
        need(has_metadata.then_some(()), "encrypted-key-metadata")?;
        Ok(KeyPart { id: need(id, "key-id")?, raw })
    }
}

/// Parses a statistics file of a document or an update.
pub(crate) fn statistics(cursor: &mut JsonCursor<'_>, whole: &Bytes) -> Result<StatisticsPart> {
    let (mut snapshot_id, mut has_path) = (None, false);
    let raw = object(cursor, whole, |cursor, name| {
        match name {
            "snapshot-id" => snapshot_id = Some(long(cursor, "snapshot-id")?),
            "statistics-path" => {
                string(cursor, "statistics-path")?;
                has_path = true;
            }
            _ => drop(cursor.value()?),
        }
        Ok(())
    })?;
    need(has_path.then_some(()), "statistics-path")?;
    Ok(StatisticsPart { snapshot_id: need(snapshot_id, "snapshot-id")?, raw })
}

/// Returns the order of an unsorted table.
pub(crate) fn unsorted() -> MetadataPart {
    MetadataPart { id: 0, raw: RawJson::written(b"{\"order-id\":0,\"fields\":[]}".to_vec()) }
}

/// Parses `branch` or `tag`, case-insensitively, as the reference does.
pub(crate) fn reference_kind(name: &str) -> Result<ReferenceKind> {
    [ReferenceKind::Branch, ReferenceKind::Tag]
        .into_iter()
        .find(|kind| name.eq_ignore_ascii_case(kind.name()))
        .ok_or_else(|| illegal(format!("Invalid snapshot ref type: {name}")))
}

/// Returns the highest id of a specification's fields. In version 1 fields may lack ids; they are
/// numbered in order.
fn last_field_id(spec: &MetadataPart) -> i32 {
    let fields = spec.raw.get("fields");
    let Some(fields) = fields.as_ref().and_then(|fields| fields.items().ok()) else {
        return LAST_PARTITION_ID_NONE;
    };
    fields.fold(LAST_PARTITION_ID_NONE, |last, field| {
        let id = field.get("field-id").and_then(|id| id.as_i32());
        id.unwrap_or_else(|| last.saturating_add(1)).max(last)
    })
}

fn parts(
    cursor: &mut JsonCursor<'_>,
    whole: &Bytes,
    id_name: &'static str,
) -> Result<Vec<MetadataPart>> {
    let mut count = 0;
    list(cursor, |cursor| {
        let mut id = None;
        count += 1;
        if count > PARTS_MAX {
            return Err(illegal(format!("there are more than {PARTS_MAX} parts with `{id_name}`")));
        }
        let raw = object(cursor, whole, |cursor, name| {
            if name == id_name {
                id = Some(int(cursor, id_name)?);
            } else {
                cursor.value()?;
            }
            Ok(())
        })?;
        // A schema of version 1 may lack it.
        Ok(MetadataPart { id: id.unwrap_or(0), raw })
    })
}

/// Passes an object; `member` receives each name, and passes the value. Returns the object in its
/// original form.
fn object<'a>(
    cursor: &mut JsonCursor<'a>,
    whole: &Bytes,
    mut member: impl FnMut(&mut JsonCursor<'a>, &str) -> Result<()>,
) -> Result<RawJson> {
    cursor.peek()?;
    let start = cursor.offset();
    cursor.object(|cursor, name| member(cursor, &name.decode()))?;
    Ok(RawJson::within(whole, cursor.since(start)))
}

fn list<'a, T>(
    cursor: &mut JsonCursor<'a>,
    mut read: impl FnMut(&mut JsonCursor<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut items = Vec::new();
    cursor.array(|cursor| {
        items.push(read(cursor)?);
        Ok::<(), CatalogError>(())
    })?;
    Ok(items)
}

/// Parses an integer of 64 bits.
pub(crate) fn long(cursor: &mut JsonCursor<'_>, name: &str) -> Result<i64> {
    let value = cursor.value()?;
    let number = value.parse().ok().filter(|_| !value.starts_with('"'));
    number.ok_or_else(|| illegal(format!("Cannot parse to a long value: {name}: {value:.40}")))
}

/// Parses an integer of 32 bits.
pub(crate) fn int(cursor: &mut JsonCursor<'_>, name: &str) -> Result<i32> {
    let value = cursor.value()?;
    let number = value.parse().ok();
    number.ok_or_else(|| illegal(format!("Cannot parse to an integer value: {name}: {value:.40}")))
}

fn long_or_null(cursor: &mut JsonCursor<'_>, name: &str) -> Result<Option<i64>> {
    if cursor.peek()? == JsonKind::Null {
        cursor.value()?;
        return Ok(None);
    }
    long(cursor, name).map(Some)
}

fn int_or_null(cursor: &mut JsonCursor<'_>, name: &str) -> Result<Option<i32>> {
    if cursor.peek()? == JsonKind::Null {
        cursor.value()?;
        return Ok(None);
    }
    int(cursor, name).map(Some)
}

fn string<'a>(cursor: &mut JsonCursor<'a>, name: &str) -> Result<JsonText<'a>> {
    if cursor.peek()? != JsonKind::String {
        let value = cursor.value()?;
        return Err(illegal(format!("Cannot parse to a string value: {name}: {value:.40}")));
    }
    Ok(cursor.string()?)
}

fn need<T>(value: Option<T>, name: &str) -> Result<T> {
    value.ok_or_else(|| illegal(format!("`{name}` is missing")))
}

fn must_exist(name: &str, format_version: u8) -> CatalogError {
    illegal(format!("{name} must exist in format v{format_version}"))
}
