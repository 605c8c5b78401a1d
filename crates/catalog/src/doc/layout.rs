//! In which order a document's members came, under which names, and in which form: what makes it
//! come back byte for byte.

use crate::json::{Fragment, Str};

/// A member of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
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

/// The known members as they are written, in the order in which new documents have them. That of
/// [`Key`] is the same.
const KNOWN: [(Key, &str); 25] = [
    (Key::FormatVersion, "\"format-version\":"),
    (Key::TableUuid, "\"table-uuid\":"),
    (Key::Location, "\"location\":"),
    (Key::LastSequenceNumber, "\"last-sequence-number\":"),
    (Key::LastUpdatedMs, "\"last-updated-ms\":"),
    (Key::LastColumnId, "\"last-column-id\":"),
    (Key::Schema, "\"schema\":"),
    (Key::CurrentSchemaId, "\"current-schema-id\":"),
    (Key::Schemas, "\"schemas\":"),
    (Key::PartitionSpec, "\"partition-spec\":"),
    (Key::DefaultSpecId, "\"default-spec-id\":"),
    (Key::PartitionSpecs, "\"partition-specs\":"),
    (Key::LastPartitionId, "\"last-partition-id\":"),
    (Key::DefaultSortOrderId, "\"default-sort-order-id\":"),
    (Key::SortOrders, "\"sort-orders\":"),
    (Key::Properties, "\"properties\":"),
    (Key::CurrentSnapshotId, "\"current-snapshot-id\":"),
    (Key::NextRowId, "\"next-row-id\":"),
    (Key::Refs, "\"refs\":"),
    (Key::Snapshots, "\"snapshots\":"),
    (Key::Statistics, "\"statistics\":"),
    (Key::PartitionStatistics, "\"partition-statistics\":"),
    (Key::EncryptionKeys, "\"encryption-keys\":"),
    (Key::SnapshotLog, "\"snapshot-log\":"),
    (Key::MetadataLog, "\"metadata-log\":"),
];

impl Key {
    pub(super) fn of(name: &str) -> Key {
        KNOWN.iter().find(|(key, _)| key.name() == name).map_or(Key::Unknown, |(key, _)| *key)
    }

    /// Its name with quotation marks and a colon.
    pub(super) fn written(self) -> &'static str {
        KNOWN.get(self as usize).map_or("", |(_, written)| written)
    }

    pub(super) fn name(self) -> &'static str {
        let written = self.written();
        written.get(1..written.len().saturating_sub(2)).unwrap_or_default()
    }

    /// Whether a complete document of this version has it.
    fn belongs(self, format_version: u8) -> bool {
        match self {
            Key::Schema | Key::PartitionSpec => format_version == 1,
            Key::LastSequenceNumber => format_version >= 2,
            Key::NextRowId => format_version >= super::FORMAT_VERSION_ROW_IDS,
            // Nobody wants an empty list of them in every document.
            Key::EncryptionKeys | Key::Unknown => false,
            _ => true,
        }
    }
}

/// One member.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    /// Where the key alone does not tell it: unknown, or written with escapes.
    pub(super) name: Option<Str>,
    /// As it came. A value whose meaning has not changed since is written like this. `None` for a
    /// member that was not there.
    pub(super) raw: Option<Fragment>,
}

/// The members in order.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) slots: Vec<Slot>,
    /// The schema and the specification that the singular members of version 1 stood for when they
    /// came.
    pub(super) singular: (i32, i32),
}

impl Layout {
    /// Of a new document.
    pub(super) fn of_version(format_version: u8) -> Layout {
        let known = KNOWN.iter().filter(|(key, _)| key.belongs(format_version));
        let slots = known.map(|(key, _)| Slot { key: *key, name: None, raw: None }).collect();
        Layout { slots, singular: (-1, -1) }
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.slots.iter().any(|slot| slot.key == key)
    }

    /// Adds what a complete document of this version has, and drops what it must not have.
    pub(super) fn complete(&mut self, format_version: u8, has_encryption_keys: bool) {
        self.slots.retain(|slot| {
            let is_of_another = matches!(slot.key, Key::Schema | Key::PartitionSpec);
            !is_of_another || slot.key.belongs(format_version)
        });
        for (key, _) in KNOWN {
            let belongs =
                key.belongs(format_version) || key == Key::EncryptionKeys && has_encryption_keys;
            if belongs && !self.has(key) {
                self.slots.push(Slot { key, name: None, raw: None });
            }
        }
    }

    pub(super) fn unknown(&self) -> impl Iterator<Item = (&Str, &Fragment)> {
        let unknown = self.slots.iter().filter(|slot| slot.key == Key::Unknown);
        unknown.filter_map(|slot| Some((slot.name.as_ref()?, slot.raw.as_ref()?)))
    }
}
