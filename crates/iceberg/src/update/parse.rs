//! Parses a commit request for a table. Unknown parts are rejected: a partly applied commit would
//! be a different one.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use super::{CommitRequest, CommitRequirement, REQUIREMENTS_MAX, TableUpdate, UPDATES_MAX};
use crate::doc::{KeyPart, SnapshotReference, StatisticsPart, TableProperties, TableSnapshot};
use crate::error::{bad, too_many};
use crate::ident::TableIdent;
use crate::json::cursor::JsonCursor;
use crate::json::{RawJson, RawString};
use crate::{CatalogError, Result};

/// Parses the body of a commit.
///
/// # Errors
/// `BadRequest`: it is malformed, or has an unknown part; or `TooLarge`.
pub fn parse_commit(body: &RawJson) -> Result<CommitRequest> {
    let (identifier, requirements) = commit_parts(body, REQUIREMENTS_MAX, requirement)?;
    let list = body.present("updates").ok_or_else(|| missing("updates"))?;
    let (mut updates, mut counted) = (Vec::new(), 0);
    for item in list.items()? {
        let update = update(&item)?;
        if !matches!(update, TableUpdate::RemoveSnapshots(_)) {
            counted += 1;
        }
        if counted > UPDATES_MAX {
            return Err(too_many("updates", UPDATES_MAX));
        }
        updates.push(update);
    }
    Ok(CommitRequest { identifier, requirements, updates })
}

/// Parses the identifier and the requirements of a commit to a table or a view.
pub(crate) fn commit_parts<T>(
    body: &RawJson,
    most: usize,
    requirement: impl Fn(&RawJson) -> Result<T>,
) -> Result<(Option<TableIdent>, Vec<T>)> {
    let identifier = body.present("identifier").map(|it| it.decode()).transpose()?;
    // Some clients omit an empty list.
    let mut requirements = Vec::new();
    if let Some(list) = body.present("requirements") {
        for item in list.items()? {
            if requirements.len() == most {
                return Err(too_many("requirements", most));
            }
            requirements.push(requirement(&item)?);
        }
    }
    Ok((identifier, requirements))
}

fn requirement(item: &RawJson) -> Result<CommitRequirement> {
    let name = text(item, "type")?;
    Ok(match &*name {
        "assert-create" => CommitRequirement::Create,
        "assert-table-uuid" => CommitRequirement::TableUuid(text(item, "uuid")?),
        "assert-ref-snapshot-id" => CommitRequirement::RefSnapshotId {
            name: text(item, "ref")?,
            snapshot_id: item.present("snapshot-id").map(|it| as_long(&it)).transpose()?,
        },
        "assert-last-assigned-field-id" => {
            CommitRequirement::LastAssignedFieldId(int(item, "last-assigned-field-id")?)
        }
        "assert-current-schema-id" => {
            CommitRequirement::CurrentSchemaId(int(item, "current-schema-id")?)
        }
        "assert-last-assigned-partition-id" => {
            CommitRequirement::LastAssignedPartitionId(int(item, "last-assigned-partition-id")?)
        }
        "assert-default-spec-id" => CommitRequirement::DefaultSpecId(int(item, "default-spec-id")?),
        "assert-default-sort-order-id" => {
            CommitRequirement::DefaultSortOrderId(int(item, "default-sort-order-id")?)
        }
        _ => return Err(bad(format!("Unknown requirement type: {name:.80}"))),
    })
}

fn update(item: &RawJson) -> Result<TableUpdate> {
    let action = text(item, "action")?;
    Ok(match &*action {
        "assign-uuid" => TableUpdate::AssignUuid(text(item, "uuid")?),
        "upgrade-format-version" => TableUpdate::UpgradeFormatVersion(int(item, "format-version")?),
        "add-schema" => TableUpdate::AddSchema(object(item, "schema")?),
        "set-current-schema" => TableUpdate::SetCurrentSchema(int(item, "schema-id")?),
        "add-spec" => TableUpdate::AddSpec(object(item, "spec")?),
        "set-default-spec" => TableUpdate::SetDefaultSpec(int(item, "spec-id")?),
        "add-sort-order" => TableUpdate::AddSortOrder(object(item, "sort-order")?),
        "set-default-sort-order" => TableUpdate::SetDefaultSortOrder(int(item, "sort-order-id")?),
        "add-snapshot" => TableUpdate::AddSnapshot(snapshot(&object(item, "snapshot")?)?),
        "set-snapshot-ref" => TableUpdate::SetSnapshotRef(reference(item)?),
        "remove-snapshots" => TableUpdate::RemoveSnapshots(longs(item, "snapshot-ids")?),
        "remove-snapshot-ref" => TableUpdate::RemoveSnapshotRef(text(item, "ref-name")?),
        "set-location" => TableUpdate::SetLocation(text(item, "location")?),
        // Clients before 1.0 send the older names.
        "set-properties" => {
            TableUpdate::SetProperties(properties(either(item, "updates", "updated")?)?)
        }
        "remove-properties" => {
            TableUpdate::RemoveProperties(texts(&either(item, "removals", "removed")?)?)
        }
        "set-statistics" => TableUpdate::SetStatistics(statistics(item, "statistics")?),
        "remove-statistics" => TableUpdate::RemoveStatistics(long(item, "snapshot-id")?),
        "set-partition-statistics" => {
            TableUpdate::SetPartitionStatistics(statistics(item, "partition-statistics")?)
        }
        "remove-partition-statistics" => {
            TableUpdate::RemovePartitionStatistics(long(item, "snapshot-id")?)
        }
        "remove-partition-specs" => TableUpdate::RemovePartitionSpecs(ints(item, "spec-ids")?),
        "remove-schemas" => TableUpdate::RemoveSchemas(ints(item, "schema-ids")?),
        "add-encryption-key" => {
            TableUpdate::AddEncryptionKey(key(&object(item, "encryption-key")?)?)
        }
        "remove-encryption-key" => TableUpdate::RemoveEncryptionKey(text(item, "key-id")?),
        _ => return Err(bad(format!("Unknown update action: {action:.80}"))),
    })
}

fn snapshot(value: &RawJson) -> Result<TableSnapshot> {
    let value = value.compact();
    TableSnapshot::read(&mut JsonCursor::new(value.as_bytes())?, &value.bytes())
}

/// Parses a reference, whose members are in the same object as the name and the action.
fn reference(item: &RawJson) -> Result<SnapshotReference> {
    let name = RawString::new(&text(item, "ref-name")?);
    let mut reference =
        SnapshotReference::read(&mut JsonCursor::new(item.as_bytes())?, &item.bytes(), name)?;
    reference.write();
    Ok(reference)
}

fn statistics(item: &RawJson, name: &str) -> Result<StatisticsPart> {
    let value = object(item, name)?.compact();
    crate::doc::read_statistics(&mut JsonCursor::new(value.as_bytes())?, &value.bytes())
}

fn key(value: &RawJson) -> Result<KeyPart> {
    let value = value.compact();
    KeyPart::read(&mut JsonCursor::new(value.as_bytes())?, &value.bytes())
}

fn properties(value: RawJson) -> Result<TableProperties> {
    Ok(TableProperties::read(&mut JsonCursor::new(value.as_bytes())?, &value.bytes())?)
}

fn member(item: &RawJson, name: &str) -> Result<RawJson> {
    item.present(name).ok_or_else(|| missing(name))
}

fn either(item: &RawJson, name: &str, older: &str) -> Result<RawJson> {
    item.present(name).or_else(|| item.present(older)).ok_or_else(|| missing(name))
}

fn object(item: &RawJson, name: &str) -> Result<RawJson> {
    let value = member(item, name)?;
    value.members().map_err(|_| bad(format!("`{name}` is {}, not an object", value.kind())))?;
    Ok(value)
}

fn text(item: &RawJson, name: &str) -> Result<String> {
    let value = member(item, name)?;
    let text = value.as_str().ok_or_else(|| bad(format!("`{name}` is not a string")))?;
    Ok(text.into_owned())
}

fn texts(list: &RawJson) -> Result<Vec<String>> {
    let texts = list.items()?.map(|item| {
        let text =
            item.as_str().ok_or_else(|| bad("a list of strings has something else in it"))?;
        Ok(text.into_owned())
    });
    texts.collect()
}

fn int(item: &RawJson, name: &str) -> Result<i32> {
    let value = member(item, name)?;
    value.as_i32().ok_or_else(|| bad(format!("`{name}` is not a whole number of 32 bits")))
}

fn long(item: &RawJson, name: &str) -> Result<i64> {
    as_long(&member(item, name)?)
}

fn as_long(value: &RawJson) -> Result<i64> {
    value.as_i64().ok_or_else(|| bad("a snapshot's id is a whole number of 64 bits"))
}

fn longs(item: &RawJson, name: &str) -> Result<Vec<i64>> {
    member(item, name)?.items()?.map(|it| as_long(&it)).collect()
}

fn ints(item: &RawJson, name: &str) -> Result<Vec<i32>> {
    let items = member(item, name)?;
    let number = |it: RawJson| {
        it.as_i32().ok_or_else(|| bad(format!("`{name}` has something else than ids in it")))
    };
    items.items()?.map(number).collect()
}

fn missing(name: &str) -> CatalogError {
    bad(format!("`{name}` is missing"))
}
