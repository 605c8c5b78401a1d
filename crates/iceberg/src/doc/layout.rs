//! The order, names and form of a document's members, with which it is written back byte for byte.

use crate::json::{RawJson, RawString};

/// A member of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocumentKey {
    FormatVersion,
    TableUuid,
    Location,
    LastSequenceNumber,
    LastUpdatedMs,
    LastColumnId,
    /// Version 1: repeats the current schema.
    Schema,
    CurrentSchemaId,
    Schemas,
    /// Version 1: repeats the fields of the default specification.
    PartitionSpec,
    DefaultSpecId,
    PartitionSpecs,
    LastPartitionId,
    DefaultSortOrderId,
    SortOrders,
    Properties,
    CurrentSnapshotId,
    NextRowId,
    Refs,
    Snapshots,
    Statistics,
    PartitionStatistics,
    EncryptionKeys,
    SnapshotLog,
    MetadataLog,
    /// An unknown member.
    Unknown,
}

/// Number of known members.
pub(super) const KNOWN_MEMBERS: usize = 25;

/// Names of the known members as written, in the order in which new documents have them. The order
/// of [`DocumentKey`] is the same.
const KNOWN: [(DocumentKey, &str); KNOWN_MEMBERS] = [
    (DocumentKey::FormatVersion, "\"format-version\":"),
    (DocumentKey::TableUuid, "\"table-uuid\":"),
    (DocumentKey::Location, "\"location\":"),
    (DocumentKey::LastSequenceNumber, "\"last-sequence-number\":"),
    (DocumentKey::LastUpdatedMs, "\"last-updated-ms\":"),
    (DocumentKey::LastColumnId, "\"last-column-id\":"),
    (DocumentKey::Schema, "\"schema\":"),
    (DocumentKey::CurrentSchemaId, "\"current-schema-id\":"),
    (DocumentKey::Schemas, "\"schemas\":"),
    (DocumentKey::PartitionSpec, "\"partition-spec\":"),
    (DocumentKey::DefaultSpecId, "\"default-spec-id\":"),
    (DocumentKey::PartitionSpecs, "\"partition-specs\":"),
    (DocumentKey::LastPartitionId, "\"last-partition-id\":"),
    (DocumentKey::DefaultSortOrderId, "\"default-sort-order-id\":"),
    (DocumentKey::SortOrders, "\"sort-orders\":"),
    (DocumentKey::Properties, "\"properties\":"),
    (DocumentKey::CurrentSnapshotId, "\"current-snapshot-id\":"),
    (DocumentKey::NextRowId, "\"next-row-id\":"),
    (DocumentKey::Refs, "\"refs\":"),
    (DocumentKey::Snapshots, "\"snapshots\":"),
    (DocumentKey::Statistics, "\"statistics\":"),
    (DocumentKey::PartitionStatistics, "\"partition-statistics\":"),
    (DocumentKey::EncryptionKeys, "\"encryption-keys\":"),
    (DocumentKey::SnapshotLog, "\"snapshot-log\":"),
    (DocumentKey::MetadataLog, "\"metadata-log\":"),
];

impl DocumentKey {
    pub(super) fn of(name: &str) -> DocumentKey {
        KNOWN
            .iter()
            .find(|(key, _)| key.name() == name)
            .map_or(DocumentKey::Unknown, |(key, _)| *key)
    }

    /// Returns its name with quotation marks and a colon.
    pub(super) fn written(self) -> &'static str {
        KNOWN.get(self as usize).map_or("", |(_, written)| written)
    }

    pub(super) fn name(self) -> &'static str {
        let written = self.written();
        written.get(1..written.len().saturating_sub(2)).unwrap_or_default()
    }

    /// Returns whether a value's original form is kept: it may differ from the form that this code
    /// writes, or is not parsed.
    pub(super) fn has_own_form(self, raw: &str) -> bool {
        match self {
            DocumentKey::Unknown | DocumentKey::Schema | DocumentKey::PartitionSpec => true,
            // Its meaning depends on the version, which may follow later.
            DocumentKey::NextRowId => true,
            // This code never writes a number that begins with `-0`, and writes null like an absent
            // member.
            _ if raw.starts_with(['-', 'n']) => true,
            DocumentKey::TableUuid | DocumentKey::Location => raw == "\"\"" || raw.contains('\\'),
            _ => false,
        }
    }

    /// Returns whether a complete document of this version has the member.
    fn belongs(self, format_version: u8) -> bool {
        match self {
            DocumentKey::Schema | DocumentKey::PartitionSpec => format_version == 1,
            DocumentKey::LastSequenceNumber => format_version >= 2,
            DocumentKey::NextRowId => format_version >= super::FORMAT_VERSION_ROW_IDS,
            // An empty list of these is omitted.
            DocumentKey::EncryptionKeys | DocumentKey::Unknown => false,
            _ => true,
        }
    }
}

/// A member.
#[derive(Clone, Debug)]
pub(super) struct DocumentSlot {
    pub(super) key: DocumentKey,
    /// Form of the member, if it differs from the form that this code writes. Few members have one,
    /// and a document in memory has all its slots.
    form: Option<Box<MemberForm>>,
}

/// Original form of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberForm {
    /// Name, if the key does not determine it: unknown, or written with escapes.
    pub(super) name: Option<RawString>,
    /// Original bytes. A value that has not changed since is written like this. `None` for an
    /// absent member, and for one that this code writes in the same way.
    pub(super) raw: Option<RawJson>,
}

impl DocumentSlot {
    /// Creates a member in the form that this code writes.
    pub(super) const fn plain(key: DocumentKey) -> DocumentSlot {
        DocumentSlot { key, form: None }
    }

    /// Creates a member in its original form.
    pub(super) fn of_form(
        key: DocumentKey,
        name: Option<RawString>,
        raw: Option<RawJson>,
    ) -> DocumentSlot {
        let has_form = name.is_some() || raw.is_some();
        DocumentSlot { key, form: has_form.then(|| Box::new(MemberForm { name, raw })) }
    }

    pub(super) fn name(&self) -> Option<&RawString> {
        self.form.as_ref()?.name.as_ref()
    }

    pub(super) fn raw(&self) -> Option<&RawJson> {
        self.form.as_ref()?.raw.as_ref()
    }

    pub(super) fn form_mut(&mut self) -> Option<&mut MemberForm> {
        self.form.as_deref_mut()
    }

    /// Drops an empty form.
    pub(super) fn trim(&mut self) {
        self.form = self.form.take().filter(|form| form.name.is_some() || form.raw.is_some());
    }

    /// Returns whether a form is kept for the slot.
    pub(super) const fn has_form(&self) -> bool {
        self.form.is_some()
    }
}

/// The members in order.
#[derive(Clone, Debug)]
pub(super) struct DocumentLayout {
    pub(super) slots: Vec<DocumentSlot>,
    /// The schema and the specification that the singular members of version 1 originally repeated.
    pub(super) singular: (i32, i32),
}

impl DocumentLayout {
    /// Creates the layout of a new document.
    pub(super) fn of_version(format_version: u8) -> DocumentLayout {
        let known = KNOWN.iter().filter(|(key, _)| key.belongs(format_version));
        let slots = known.map(|(key, _)| DocumentSlot::plain(*key)).collect();
        DocumentLayout { slots, singular: (-1, -1) }
    }

    pub(super) fn has(&self, key: DocumentKey) -> bool {
        self.slots.iter().any(|slot| slot.key == key)
    }

    /// Adds the members that a complete document of this version has, and drops those that it must
    /// not have.
    pub(super) fn complete(&mut self, format_version: u8, has_encryption_keys: bool) {
        self.slots.retain(|slot| {
            let is_of_another =
                matches!(slot.key, DocumentKey::Schema | DocumentKey::PartitionSpec);
            !is_of_another || slot.key.belongs(format_version)
        });
        for (key, _) in KNOWN {
            let belongs = key.belongs(format_version)
                || key == DocumentKey::EncryptionKeys && has_encryption_keys;
            if belongs && !self.has(key) {
                self.slots.push(DocumentSlot::plain(key));
            }
        }
    }

    pub(super) fn unknown(&self) -> impl Iterator<Item = (&RawString, &RawJson)> {
        let unknown = self.slots.iter().filter(|slot| slot.key == DocumentKey::Unknown);
        unknown.filter_map(|slot| Some((slot.name()?, slot.raw()?)))
    }
}
