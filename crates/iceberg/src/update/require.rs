//! Requirements of a commit for the table it finds, in the reference's words: clients and its test
//! kit compare them.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use super::CommitRequirement;
use crate::doc::TableDoc;
use crate::{CatalogError, ErrorReason, Result};

/// Checks the requirements of a commit. `base` is the present table, if it exists.
///
/// # Errors
/// `CommitFailed` with the first requirement that does not hold. It is useless to try again without
/// having looked at the table.
pub fn check(requirements: &[CommitRequirement], base: Option<&TableDoc>) -> Result<()> {
    requirements.iter().try_for_each(|requirement| match base {
        Some(base) => check_table(requirement, base),
        None => check_nothing(requirement),
    })
}

/// Returns whether a commit is to make the table: that must be all that it requires then.
///
/// # Errors
/// `IllegalArgument` when it requires something else beside it.
pub fn is_create(requirements: &[CommitRequirement]) -> Result<bool> {
    if !requirements.contains(&CommitRequirement::Create) {
        return Ok(false);
    }
    let others: Vec<&str> = requirements
        .iter()
        .filter(|requirement| **requirement != CommitRequirement::Create)
        .map(CommitRequirement::name)
        .collect();
    if others.is_empty() {
        return Ok(true);
    }
    let message = format!("Invalid create requirements: [{}]", others.join(", "));
    Err(CatalogError::new(ErrorReason::IllegalArgument, message))
}

impl CommitRequirement {
    /// Returns the name in the protocol.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            CommitRequirement::Create => "assert-create",
            CommitRequirement::TableUuid(_) => "assert-table-uuid",
            CommitRequirement::RefSnapshotId { .. } => "assert-ref-snapshot-id",
            CommitRequirement::LastAssignedFieldId(_) => "assert-last-assigned-field-id",
            CommitRequirement::CurrentSchemaId(_) => "assert-current-schema-id",
            CommitRequirement::LastAssignedPartitionId(_) => "assert-last-assigned-partition-id",
            CommitRequirement::DefaultSpecId(_) => "assert-default-spec-id",
            CommitRequirement::DefaultSortOrderId(_) => "assert-default-sort-order-id",
        }
    }
}

fn check_table(requirement: &CommitRequirement, base: &TableDoc) -> Result<()> {
    let same = |what: &str, expected: i32, found: i32| {
        if expected == found {
            return Ok(());
        }
        Err(failed(format!("{what} changed: expected id {expected} != {found}")))
    };
    match requirement {
        CommitRequirement::Create => Err(failed("table already exists")),
        CommitRequirement::TableUuid(uuid) if uuid.eq_ignore_ascii_case(&base.uuid) => Ok(()),
        CommitRequirement::TableUuid(uuid) => {
            Err(failed(format!("UUID does not match: expected {} != {uuid}", base.uuid)))
        }
        CommitRequirement::RefSnapshotId { name, snapshot_id } => {
            check_reference(name, *snapshot_id, base)
        }
        CommitRequirement::LastAssignedFieldId(id) => {
            same("last assigned field id", *id, base.last_column_id)
        }
        CommitRequirement::CurrentSchemaId(id) => {
            same("current schema", *id, base.current_schema_id)
        }
        CommitRequirement::LastAssignedPartitionId(id) => {
            same("last assigned partition id", *id, base.last_partition_id)
        }
        CommitRequirement::DefaultSpecId(id) => {
            same("default partition spec", *id, base.default_spec_id)
        }
        CommitRequirement::DefaultSortOrderId(id) => {
            same("default sort order", *id, base.default_sort_order_id)
        }
    }
}

fn check_reference(name: &str, expected: Option<i64>, base: &TableDoc) -> Result<()> {
    match (base.reference(name), expected) {
        (None, None) => Ok(()),
        (Some(found), Some(expected)) if found.snapshot_id == expected => Ok(()),
        (Some(found), Some(expected)) => Err(failed(format!(
            "{} {name} has changed: expected id {expected} != {}",
            found.kind.name(),
            found.snapshot_id
        ))),
        (Some(found), None) => {
            Err(failed(format!("{} {name} was created concurrently", found.kind.name())))
        }
        (None, Some(expected)) => {
            Err(failed(format!("branch or tag {name} is missing, expected {expected}")))
        }
    }
}

/// There is no table. What speaks of ids that only a table has is not asked then.
fn check_nothing(requirement: &CommitRequirement) -> Result<()> {
    match requirement {
        CommitRequirement::Create
        | CommitRequirement::LastAssignedFieldId(_)
        | CommitRequirement::LastAssignedPartitionId(_)
        | CommitRequirement::RefSnapshotId { snapshot_id: None, .. } => Ok(()),
        CommitRequirement::TableUuid(_)
        | CommitRequirement::RefSnapshotId { snapshot_id: Some(_), .. }
        | CommitRequirement::CurrentSchemaId(_)
        | CommitRequirement::DefaultSpecId(_)
        | CommitRequirement::DefaultSortOrderId(_) => Err(failed("table does not exist")),
    }
}

fn failed(what: impl AsRef<str>) -> CatalogError {
    CatalogError::new(ErrorReason::CommitFailed, format!("Requirement failed: {}", what.as_ref()))
}
