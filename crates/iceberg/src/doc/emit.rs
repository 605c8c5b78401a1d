//! Writes a document: the members in their original order, each in its original form unless its
//! value has changed. Nothing is allocated outside of the output buffer.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#appendix-c-json-serialization>

use std::slice;

use bytes::Bytes;

use super::layout::{DocumentKey, DocumentSlot, MemberForm};
use super::{FORMAT_VERSION_ROW_IDS, MetadataPart, TableDoc};
use crate::json::{RawJson, RawString, put_comma, put_integer, put_string};
use crate::{CatalogError, Result, memory};

/// Approximate bytes of a document without its parts.
const FRAME_BYTES: usize = 1024;

/// An output buffer, and the offsets of parts in it if they are requested.
struct DocumentOutput<'a> {
    out: &'a mut Vec<u8>,
    starts: Option<&'a mut Vec<usize>>,
}

impl DocumentOutput<'_> {
    /// Writes a part in its original form.
    fn part(&mut self, raw: &[u8]) {
        if let Some(starts) = &mut self.starts {
            starts.push(self.out.len());
        }
        self.out.extend_from_slice(raw);
    }

    /// Writes an array of parts in their original form.
    fn array<'b>(&mut self, parts: impl Iterator<Item = &'b RawJson>) {
        self.out.push(b'[');
        for raw in parts {
            put_comma(self.out);
            self.part(raw.as_bytes());
        }
        self.out.push(b']');
    }

    /// Writes an object of members in their original form.
    fn object<'b>(&mut self, members: impl Iterator<Item = (&'b RawString, &'b [u8])>) {
        self.out.push(b'{');
        for (name, value) in members {
            put_comma(self.out);
            self.part(name.raw());
            self.out.push(b':');
            self.part(value);
        }
        self.out.push(b'}');
    }
}

/// A text, and the offsets of the parts in it that are still to be moved there.
struct WrittenParts<'a> {
    text: &'a Bytes,
    starts: slice::Iter<'a, usize>,
}

impl WrittenParts<'_> {
    fn value(&mut self, raw: &mut RawJson) -> Option<()> {
        raw.move_to(self.text, *self.starts.next()?)
    }

    fn values<'b>(&mut self, mut raws: impl Iterator<Item = &'b mut RawJson>) -> Option<()> {
        raws.try_for_each(|raw| self.value(raw))
    }

    fn string(&mut self, string: &mut RawString) -> Option<()> {
        string.move_to(self.text, *self.starts.next()?)
    }
}

impl TableDoc {
    /// Appends the document. Parts that [`TableDoc::parse`] read are written byte for byte, without
    /// the white space between them.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.write(&mut DocumentOutput { out, starts: None }, None);
    }

    /// Appends the document with only those snapshots that branches and tags refer to.
    pub fn put_refs(&self, out: &mut Vec<u8>) {
        let mut named: Vec<i64> = self.refs.iter().map(|it| it.snapshot_id).collect();
        named.sort_unstable();
        self.write(&mut DocumentOutput { out, starts: None }, Some(&named));
    }

    /// Writes the document into one new buffer. The returned document has the same content, and its
    /// parts lie in that buffer, so that it keeps no other buffer alive.
    ///
    /// # Errors
    /// Only on a defect of this code.
    pub fn settle(self) -> Result<(TableDoc, Bytes)> {
        self.settle_within(&[], &[])
    }

    /// Like [`TableDoc::settle`], with other bytes before and after the document in the same
    /// buffer.
    ///
    /// # Errors
    /// Those of [`TableDoc::settle`].
    pub fn settle_within(mut self, before: &[u8], after: &[u8]) -> Result<(TableDoc, Bytes)> {
        let mut out = Vec::with_capacity(before.len() + self.size_hint() + after.len());
        let mut starts = Vec::with_capacity(2 * self.snapshots.len() + FRAME_BYTES / 8);
        out.extend_from_slice(before);
        self.write(&mut DocumentOutput { out: &mut out, starts: Some(&mut starts) }, None);
        out.extend_from_slice(after);
        let written = memory::frozen(out);
        let mut places = WrittenParts { text: &written, starts: starts.iter() };
        if self.move_into(&mut places).is_none() || places.starts.next().is_some() {
            return Err(CatalogError::internal(
                "the parts of a document are not where they were written",
            ));
        }
        self.shrink();
        Ok((self, written))
    }

    /// Returns the bytes reserved by the allocator, without the text that its parts lie in.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let forms = self.layout.slots.iter().filter(|slot| slot.has_form()).count();
        memory::of_text(&self.uuid)
            + memory::of_text(&self.location)
            + memory::of_items(&self.schemas)
            + memory::of_items(&self.specs)
            + memory::of_items(&self.sort_orders)
            + memory::of_items(&self.properties.0)
            + memory::of_items(&self.refs)
            + memory::of_items(&self.snapshots)
            + memory::of_items(&self.snapshot_log)
            + memory::of_items(&self.metadata_log)
            + memory::of_items(&self.statistics)
            + memory::of_items(&self.partition_statistics)
            + memory::of_items(&self.encryption_keys)
            + memory::of_items(&self.layout.slots)
            + forms * memory::of_block(size_of::<MemberForm>())
    }

    /// Releases the spare capacity of its lists: a document lives long.
    pub(super) fn shrink(&mut self) {
        self.schemas.shrink_to_fit();
        self.specs.shrink_to_fit();
        self.sort_orders.shrink_to_fit();
        self.properties.0.shrink_to_fit();
        self.refs.shrink_to_fit();
        self.snapshots.shrink_to_fit();
        self.snapshot_log.shrink_to_fit();
        self.metadata_log.shrink_to_fit();
        self.statistics.shrink_to_fit();
        self.partition_statistics.shrink_to_fit();
        self.encryption_keys.shrink_to_fit();
        self.layout.slots.shrink_to_fit();
    }

    /// Returns the approximate size of the written document, in bytes; seldom too small.
    #[must_use]
    pub fn size_hint(&self) -> usize {
        let parts = [&self.schemas, &self.specs, &self.sort_orders].into_iter().flatten();
        let statistics = self.statistics.iter().chain(&self.partition_statistics);
        let raws = (parts.map(|it| &it.raw))
            .chain(statistics.map(|it| &it.raw))
            .chain(self.snapshots.iter().map(|it| &it.raw))
            .chain(self.snapshot_log.iter().map(|it| &it.raw))
            .chain(self.metadata_log.iter().map(|it| &it.raw))
            .chain(self.refs.iter().map(|it| &it.raw))
            .chain(self.encryption_keys.iter().map(|it| &it.raw))
            .chain(self.unknown().map(|(_, raw)| raw));
        let properties = self.properties.0.iter().map(|(k, v)| k.raw().len() + v.raw().len() + 2);
        let names = self.refs.iter().map(|it| it.name.raw().len() + 1);
        let raws = raws.map(|raw| raw.as_bytes().len() + 1);
        let singular = self.current_schema().filter(|_| self.format_version == 1);
        let strings = self.location.len() + singular.map_or(0, |it| it.raw.as_bytes().len());
        FRAME_BYTES + strings + raws.chain(properties).chain(names).sum::<usize>()
    }

    fn write(&self, output: &mut DocumentOutput<'_>, only_snapshots: Option<&[i64]>) {
        output.out.push(b'{');
        for slot in &self.layout.slots {
            put_comma(output.out);
            match slot.name() {
                Some(name) => {
                    output.part(name.raw());
                    output.out.push(b':');
                }
                None => output.out.extend_from_slice(slot.key.written().as_bytes()),
            }
            self.write_value(output, slot, only_snapshots);
        }
        output.out.push(b'}');
    }

    fn write_value(
        &self,
        output: &mut DocumentOutput<'_>,
        slot: &DocumentSlot,
        only_snapshots: Option<&[i64]>,
    ) {
        if let Some(raw) = slot.raw().filter(|raw| self.still_says(slot.key, raw)) {
            return output.part(raw.as_bytes());
        }
        let is_named = |id: i64| only_snapshots.is_none_or(|ids| ids.binary_search(&id).is_ok());
        match slot.key {
            DocumentKey::FormatVersion => put_integer(output.out, self.format_version.into()),
            DocumentKey::TableUuid if self.uuid.is_empty() => put_or_null(output.out, None),
            DocumentKey::TableUuid => put_string(output.out, &self.uuid),
            DocumentKey::Location => put_string(output.out, &self.location),
            DocumentKey::LastSequenceNumber => put_integer(output.out, self.last_sequence_number),
            DocumentKey::LastUpdatedMs => put_integer(output.out, self.last_updated_ms),
            DocumentKey::LastColumnId => put_integer(output.out, self.last_column_id.into()),
            DocumentKey::CurrentSchemaId => put_integer(output.out, self.current_schema_id.into()),
            DocumentKey::DefaultSpecId => put_integer(output.out, self.default_spec_id.into()),
            DocumentKey::LastPartitionId => put_integer(output.out, self.last_partition_id.into()),
            DocumentKey::DefaultSortOrderId => {
                put_integer(output.out, self.default_sort_order_id.into())
            }
            DocumentKey::Schema => put_or_null(output.out, self.current_schema().map(|it| &it.raw)),
            DocumentKey::PartitionSpec => {
                let fields = self.default_spec().and_then(|spec| spec.raw.get("fields"));
                put_or_null(output.out, fields.as_ref());
            }
            DocumentKey::CurrentSnapshotId => match self.current_snapshot_id {
                Some(id) => put_integer(output.out, id),
                // Readers of version 3 accept null; older ones require a number.
                None if self.format_version >= FORMAT_VERSION_ROW_IDS => {
                    output.out.extend_from_slice(b"null");
                }
                None => put_integer(output.out, -1),
            },
            DocumentKey::NextRowId => put_integer(output.out, self.next_row_id.unwrap_or_default()),
            DocumentKey::Schemas => output.array(raws(&self.schemas)),
            DocumentKey::PartitionSpecs => output.array(raws(&self.specs)),
            DocumentKey::SortOrders => output.array(raws(&self.sort_orders)),
            DocumentKey::Properties => {
                output.object(self.properties.0.iter().map(|(key, value)| (key, value.raw())));
            }
            DocumentKey::Refs => {
                output.object(self.refs.iter().map(|it| (&it.name, it.raw.as_bytes())))
            }
            DocumentKey::Snapshots => {
                let snapshots = self.snapshots.iter().filter(|it| is_named(it.id));
                output.array(snapshots.map(|it| &it.raw));
            }
            DocumentKey::Statistics => output.array(self.statistics.iter().map(|it| &it.raw)),
            DocumentKey::PartitionStatistics => {
                output.array(self.partition_statistics.iter().map(|it| &it.raw));
            }
            DocumentKey::EncryptionKeys => {
                output.array(self.encryption_keys.iter().map(|it| &it.raw))
            }
            DocumentKey::SnapshotLog => output.array(self.snapshot_log.iter().map(|it| &it.raw)),
            DocumentKey::MetadataLog => output.array(self.metadata_log.iter().map(|it| &it.raw)),
            DocumentKey::Unknown => put_or_null(output.out, slot.raw()),
        }
    }

    /// Returns whether a member read as `raw` still has that value, so that it is written in its
    /// original form. The elements of lists and maps are written one by one, so the result for
    /// these is false unless they are null.
    fn still_says(&self, key: DocumentKey, raw: &RawJson) -> bool {
        let is = |number: i64| raw.as_i64() == Some(number);
        match key {
            DocumentKey::FormatVersion => is(self.format_version.into()),
            DocumentKey::TableUuid => raw.as_str().unwrap_or_default() == self.uuid,
            DocumentKey::Location => raw.as_str().is_some_and(|location| location == self.location),
            DocumentKey::LastSequenceNumber => is(self.last_sequence_number),
            DocumentKey::LastUpdatedMs => is(self.last_updated_ms),
            DocumentKey::LastColumnId => is(self.last_column_id.into()),
            DocumentKey::CurrentSchemaId => is(self.current_schema_id.into()),
            DocumentKey::DefaultSpecId => is(self.default_spec_id.into()),
            DocumentKey::LastPartitionId => is(self.last_partition_id.into()),
            DocumentKey::DefaultSortOrderId => is(self.default_sort_order_id.into()),
            DocumentKey::Schema => self.layout.singular.0 == self.current_schema_id,
            DocumentKey::PartitionSpec => self.layout.singular.1 == self.default_spec_id,
            DocumentKey::CurrentSnapshotId => match self.current_snapshot_id {
                Some(id) => is(id),
                None => raw.is_null() || is(-1),
            },
            // Before version 3 it has no meaning, and is kept unchanged.
            DocumentKey::NextRowId => self.next_row_id.is_none_or(is),
            DocumentKey::Schemas => raw.is_null() && self.schemas.is_empty(),
            DocumentKey::PartitionSpecs => raw.is_null() && self.specs.is_empty(),
            DocumentKey::SortOrders => raw.is_null() && self.sort_orders.is_empty(),
            DocumentKey::Properties => raw.is_null() && self.properties.is_empty(),
            DocumentKey::Refs => raw.is_null() && self.refs.is_empty(),
            DocumentKey::Snapshots => raw.is_null() && self.snapshots.is_empty(),
            DocumentKey::Statistics => raw.is_null() && self.statistics.is_empty(),
            DocumentKey::PartitionStatistics => {
                raw.is_null() && self.partition_statistics.is_empty()
            }
            DocumentKey::EncryptionKeys => raw.is_null() && self.encryption_keys.is_empty(),
            DocumentKey::SnapshotLog => raw.is_null() && self.snapshot_log.is_empty(),
            DocumentKey::MetadataLog => raw.is_null() && self.metadata_log.is_empty(),
            DocumentKey::Unknown => true,
        }
    }

    /// Replaces every part by a slice of the text of `places`. Visits them in the order of `write`.
    fn move_into(&mut self, places: &mut WrittenParts<'_>) -> Option<()> {
        let mut slots = std::mem::take(&mut self.layout.slots);
        for slot in &mut slots {
            let key = slot.key;
            if let Some(form) = slot.form_mut() {
                if let Some(name) = &mut form.name {
                    places.string(name)?;
                }
                if let Some(raw) = &mut form.raw {
                    if self.still_says(key, raw) {
                        places.value(raw)?;
                        continue;
                    }
                    // Its value has changed, or its elements are written one by one.
                    form.raw = None;
                }
                slot.trim();
            }
            self.move_elements(key, places)?;
        }
        self.layout.slots = slots;
        Some(())
    }

    /// Moves the elements of a list or a map.
    fn move_elements(&mut self, key: DocumentKey, places: &mut WrittenParts<'_>) -> Option<()> {
        match key {
            DocumentKey::Schemas => places.values(self.schemas.iter_mut().map(|it| &mut it.raw)),
            DocumentKey::PartitionSpecs => {
                places.values(self.specs.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::SortOrders => {
                places.values(self.sort_orders.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::Snapshots => {
                places.values(self.snapshots.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::Statistics => {
                places.values(self.statistics.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::PartitionStatistics => {
                places.values(self.partition_statistics.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::SnapshotLog => {
                places.values(self.snapshot_log.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::MetadataLog => {
                places.values(self.metadata_log.iter_mut().map(|it| &mut it.raw))
            }
            DocumentKey::Properties => self.properties.0.iter_mut().try_for_each(|(key, value)| {
                places.string(key)?;
                places.string(value)
            }),
            DocumentKey::Refs => self.refs.iter_mut().try_for_each(|reference| {
                places.string(&mut reference.name)?;
                places.value(&mut reference.raw)
            }),
            DocumentKey::EncryptionKeys => self.encryption_keys.iter_mut().try_for_each(|part| {
                part.id = part.id.detached();
                places.value(&mut part.raw)
            }),
            _ => Some(()),
        }
    }

    /// Adds every member that a document of its version has; other members that were absent stay
    /// absent.
    pub(crate) fn complete(&mut self) {
        self.layout.complete(self.format_version, !self.encryption_keys.is_empty());
    }
}

fn raws(parts: &[MetadataPart]) -> impl Iterator<Item = &RawJson> {
    parts.iter().map(|it| &it.raw)
}

fn put_or_null(out: &mut Vec<u8>, value: Option<&RawJson>) {
    out.extend_from_slice(value.map_or(b"null", RawJson::as_bytes));
}
