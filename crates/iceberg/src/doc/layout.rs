//! In which order a document's members came, under which names, and in which form: what makes it
//! come back byte for byte.

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
    /// Version 1: the current schema once more.
    Schema,
    CurrentSchemaId,
    Schemas,
    /// Version 1: the fields of the default specification once more.
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
    /// Not known here.
    Unknown,
}

/// Number of members that are known here.
pub(super) const KNOWN_MEMBERS: usize = 25;

/// The known members as they are written, in the order in which new documents have them. That of
/// [`DocumentKey`] is the same.
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

    /// Returns whether a value is to be remembered as it came: it may be written in another way
    /// than this code writes it, or is not looked into.
    pub(super) fn has_own_form(self, raw: &str) -> bool {
        match self {
            DocumentKey::Unknown | DocumentKey::Schema | DocumentKey::PartitionSpec => true,
            // What it means depends on the version, which may come after it.
            DocumentKey::NextRowId => true,
            // No number that is written here begins like `-0`, and null is written as nothing is.
            _ if raw.starts_with(['-', 'n']) => true,
            DocumentKey::TableUuid | DocumentKey::Location => raw == "\"\"" || raw.contains('\\'),
            _ => false,
        }
    }

    /// Returns whether a complete document of this version has it.
    fn belongs(self, format_version: u8) -> bool {
        match self {
            DocumentKey::Schema | DocumentKey::PartitionSpec => format_version == 1,
            DocumentKey::LastSequenceNumber => format_version >= 2,
            DocumentKey::NextRowId => format_version >= super::FORMAT_VERSION_ROW_IDS,
            // Nobody wants an empty list of them in every document.
            DocumentKey::EncryptionKeys | DocumentKey::Unknown => false,
            _ => true,
        }
    }
}

/// A member.
#[derive(Clone, Debug)]
pub(super) struct DocumentSlot {
    pub(super) key: DocumentKey,
    /// Form of the member, where it is not the one that this code writes. Few members have one, and
    /// a document in memory has all its slots.
    form: Option<Box<MemberForm>>,
}

/// Form in which a member came.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberForm {
    /// Name, where the key alone does not tell it: unknown, or written with escapes.
    pub(super) name: Option<RawString>,
    /// Bytes as they came. A value whose meaning has not changed since is written like this. `None`
    /// for a member that was not there, and for one that this code writes in the same way.
    pub(super) raw: Option<RawJson>,
}

impl DocumentSlot {
    /// A member in the form that this code writes.
    pub(super) const fn plain(key: DocumentKey) -> DocumentSlot {
        DocumentSlot { key, form: None }
    }

    /// A member in the form in which it came.
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

    /// Forgets a form that says nothing.
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
    /// The schema and the specification that the singular members of version 1 stood for when they
    /// came.
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

    /// Adds what a complete document of this version has, and drops what it must not have.
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
