//! What a commit requires of the table it finds, in the reference's words: clients and its test kit
//! compare them.

use super::Requirement;
use crate::doc::TableDoc;
use crate::{Error, Kind, Result};

/// Checks what a commit requires. `base` is the table as it is, if there is one.
///
/// # Errors
/// [`Kind::CommitFailed`] with the first requirement that does not hold. It is useless to try again
/// without having looked at the table.
pub fn check(requirements: &[Requirement], base: Option<&TableDoc>) -> Result<()> {
    requirements.iter().try_for_each(|requirement| match base {
        Some(base) => check_table(requirement, base),
        None => check_nothing(requirement),
    })
}

/// Whether a commit is to make the table: that must be all that it requires then.
///
/// # Errors
/// [`Kind::IllegalArgument`] when it requires something else beside it.
pub fn is_create(requirements: &[Requirement]) -> Result<bool> {
    if !requirements.contains(&Requirement::Create) {
        return Ok(false);
    }
    let others: Vec<&str> = requirements
        .iter()
        .filter(|requirement| **requirement != Requirement::Create)
        .map(Requirement::name)
        .collect();
    if others.is_empty() {
        return Ok(true);
    }
    let message = format!("Invalid create requirements: [{}]", others.join(", "));
    Err(Error::new(Kind::IllegalArgument, message))
}

impl Requirement {
    /// As the protocol calls it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Requirement::Create => "assert-create",
            Requirement::TableUuid(_) => "assert-table-uuid",
            Requirement::RefSnapshotId { .. } => "assert-ref-snapshot-id",
            Requirement::LastAssignedFieldId(_) => "assert-last-assigned-field-id",
            Requirement::CurrentSchemaId(_) => "assert-current-schema-id",
            Requirement::LastAssignedPartitionId(_) => "assert-last-assigned-partition-id",
            Requirement::DefaultSpecId(_) => "assert-default-spec-id",
            Requirement::DefaultSortOrderId(_) => "assert-default-sort-order-id",
        }
    }
}

fn check_table(requirement: &Requirement, base: &TableDoc) -> Result<()> {
    let same = |what: &str, expected: i32, found: i32| {
        if expected == found {
            return Ok(());
        }
        Err(failed(format!("{what} changed: expected id {expected} != {found}")))
    };
    match requirement {
        Requirement::Create => Err(failed("table already exists")),
        Requirement::TableUuid(uuid) if uuid.eq_ignore_ascii_case(&base.uuid) => Ok(()),
        Requirement::TableUuid(uuid) => {
            Err(failed(format!("UUID does not match: expected {} != {uuid}", base.uuid)))
        }
        Requirement::RefSnapshotId { name, snapshot_id } => {
            check_reference(name, *snapshot_id, base)
        }
        Requirement::LastAssignedFieldId(id) => {
            same("last assigned field id", *id, base.last_column_id)
        }
        Requirement::CurrentSchemaId(id) => same("current schema", *id, base.current_schema_id),
        Requirement::LastAssignedPartitionId(id) => {
            same("last assigned partition id", *id, base.last_partition_id)
        }
        Requirement::DefaultSpecId(id) => same("default partition spec", *id, base.default_spec_id),
        Requirement::DefaultSortOrderId(id) => {
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
fn check_nothing(requirement: &Requirement) -> Result<()> {
    match requirement {
        Requirement::Create
        | Requirement::LastAssignedFieldId(_)
        | Requirement::LastAssignedPartitionId(_)
        | Requirement::RefSnapshotId { snapshot_id: None, .. } => Ok(()),
        Requirement::TableUuid(_)
        | Requirement::RefSnapshotId { snapshot_id: Some(_), .. }
        | Requirement::CurrentSchemaId(_)
        | Requirement::DefaultSpecId(_)
        | Requirement::DefaultSortOrderId(_) => Err(failed("table does not exist")),
    }
}

fn failed(what: impl AsRef<str>) -> Error {
    Error::new(Kind::CommitFailed, format!("Requirement failed: {}", what.as_ref()))
}
