//! Changes of a table: a commit's requirements on the present state, and its updates.
//!
//! It never reads a clock or a file, and never decides whether a commit wins: it takes a document
//! and returns another one.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

mod apply;
mod builder;
mod defaults;
mod parse;
mod require;
mod snapshots;
#[cfg(test)]
mod tests;

use crate::doc::{KeyPart, SnapshotReference, StatisticsPart, TableProperties, TableSnapshot};
use crate::ident::TableIdent;
use crate::json::RawJson;

pub use apply::{apply, from_updates, logged};
pub(crate) use parse::commit_parts;
pub use parse::parse_commit;
pub use require::{check, is_create};

/// Most updates of one commit, not counting those that remove snapshots: clients send one of these
/// for each snapshot.
pub const UPDATES_MAX: usize = 10_000;
/// Most requirements of one commit.
pub const REQUIREMENTS_MAX: usize = 1_000;
/// Most schemas that one commit adds, and most specifications, and most orders: each is compared
/// with all existing ones.
pub const ADDED_PARTS_MAX: usize = 100;
/// Most snapshots that one commit adds.
pub const ADDED_SNAPSHOTS_MAX: usize = 10_000;
/// Denotes the part that this commit added last.
pub const LAST_ADDED: i32 = -1;

/// Commit request of a client for one table.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// Name of the table, if the path does not contain it.
    pub identifier: Option<TableIdent>,
    /// Requirements.
    pub requirements: Vec<CommitRequirement>,
    /// Updates, applied in this order.
    pub updates: Vec<TableUpdate>,
}

/// Requirement of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitRequirement {
    /// `assert-create`: the table does not exist.
    Create,
    /// `assert-table-uuid`
    TableUuid(String),
    /// `assert-ref-snapshot-id`
    RefSnapshotId {
        /// The branch or tag.
        name: String,
        /// Snapshot of the reference; `None` if it must not exist.
        snapshot_id: Option<i64>,
    },
    /// `assert-last-assigned-field-id`
    LastAssignedFieldId(i32),
    /// `assert-current-schema-id`
    CurrentSchemaId(i32),
    /// `assert-last-assigned-partition-id`
    LastAssignedPartitionId(i32),
    /// `assert-default-spec-id`
    DefaultSpecId(i32),
    /// `assert-default-sort-order-id`
    DefaultSortOrderId(i32),
}

/// A change of a table.
#[derive(Clone, Debug)]
pub enum TableUpdate {
    /// `assign-uuid`
    AssignUuid(String),
    /// `upgrade-format-version`
    UpgradeFormatVersion(i32),
    /// `add-schema`
    AddSchema(RawJson),
    /// `set-current-schema`; [`LAST_ADDED`] for the last that was added.
    SetCurrentSchema(i32),
    /// `add-spec`
    AddSpec(RawJson),
    /// `set-default-spec`; [`LAST_ADDED`] for the last that was added.
    SetDefaultSpec(i32),
    /// `add-sort-order`
    AddSortOrder(RawJson),
    /// `set-default-sort-order`; [`LAST_ADDED`] for the last that was added.
    SetDefaultSortOrder(i32),
    /// `add-snapshot`
    AddSnapshot(TableSnapshot),
    /// `set-snapshot-ref`
    SetSnapshotRef(SnapshotReference),
    /// `remove-snapshots`
    RemoveSnapshots(Vec<i64>),
    /// `remove-snapshot-ref`
    RemoveSnapshotRef(String),
    /// `set-location`
    SetLocation(String),
    /// `set-properties`
    SetProperties(TableProperties),
    /// `remove-properties`
    RemoveProperties(Vec<String>),
    /// `set-statistics`
    SetStatistics(StatisticsPart),
    /// `remove-statistics`
    RemoveStatistics(i64),
    /// `set-partition-statistics`
    SetPartitionStatistics(StatisticsPart),
    /// `remove-partition-statistics`
    RemovePartitionStatistics(i64),
    /// `remove-partition-specs`
    RemovePartitionSpecs(Vec<i32>),
    /// `remove-schemas`
    RemoveSchemas(Vec<i32>),
    /// `add-encryption-key`
    AddEncryptionKey(KeyPart),
    /// `remove-encryption-key`
    RemoveEncryptionKey(String),
}
