//! Consistency rules of one document, with the messages of the reference where it has any.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#table-metadata-fields>

use super::properties::PROPERTIES_MAX;
use super::{FORMAT_VERSION_ROW_IDS, MAIN, MetadataPart, PARTS_MAX, TableDoc, TableSnapshot, part};
use crate::Result;
use crate::error::invalid;
use crate::json::TEXT_BYTES_MAX;

/// Tolerated difference between the clocks of two machines, by which a log may be unsorted.
const CLOCK_SKEW_MS: i64 = 60_000;

/// Checks a complete document.
///
/// # Errors
/// `Validation` with the first violated rule.
pub fn check(doc: &TableDoc) -> Result<()> {
    check_version(doc)?;
    if doc.location.is_empty() {
        return Err(invalid("the table has no location"));
    }
    // A document that is written must be readable again.
    if doc.properties.len() > PROPERTIES_MAX {
        return Err(invalid(format!("the table has more than {PROPERTIES_MAX} properties")));
    }
    if doc.size_hint() > TEXT_BYTES_MAX {
        return Err(invalid(format!("the metadata is longer than {TEXT_BYTES_MAX} bytes")));
    }
    unique("schema", &doc.schemas)?;
    unique("partition spec", &doc.specs)?;
    unique("sort order", &doc.sort_orders)?;
    let ids = [
        ("schema", "current-schema-id", "schemas", &doc.schemas, doc.current_schema_id),
        ("partition spec", "default-spec-id", "partition-specs", &doc.specs, doc.default_spec_id),
        (
            "sort order",
            "default-sort-order-id",
            "sort-orders",
            &doc.sort_orders,
            doc.default_sort_order_id,
        ),
    ];
    for (what, name, list, parts, id) in ids {
        if part(parts, id).is_none() {
            return Err(invalid(format!("Cannot find {what} with {name}={id} from {list}")));
        }
    }
    check_snapshots(doc)?;
    check_logs(doc)
}

fn check_version(doc: &TableDoc) -> Result<()> {
    let version = doc.format_version;
    if version >= 2 && doc.uuid.is_empty() {
        return Err(invalid(format!("UUID is required in format v{version}")));
    }
    if version == 1 && doc.last_sequence_number != 0 {
        let number = doc.last_sequence_number;
        return Err(invalid(format!("Sequence number must be 0 in v1: {number}")));
    }
    let mut numbers = vec![
        ("last-sequence-number", doc.last_sequence_number),
        ("last-partition-id", doc.last_partition_id.into()),
    ];
    if version >= FORMAT_VERSION_ROW_IDS {
        numbers.push(("next-row-id", doc.next_row_id.unwrap_or(-1)));
    }
    match numbers.iter().find(|(_, number)| *number < 0) {
        Some((name, number)) => Err(invalid(format!("`{name}` is negative: {number}"))),
        None => Ok(()),
    }
}

fn check_snapshots(doc: &TableDoc) -> Result<()> {
    let mut ids: Vec<i64> = doc.snapshots.iter().map(|snapshot| snapshot.id).collect();
    // They are almost sorted: sorting takes one pass.
    #[expect(clippy::stable_sort_primitive, reason = "it is the one that finds what is in order")]
    ids.sort();
    if let Some([id, _]) = ids.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(invalid(format!("there are several snapshots with id {id}")));
    }
    let is_there = |id: i64| ids.binary_search(&id).is_ok();
    doc.snapshots.iter().try_for_each(|snapshot| check_snapshot(doc, snapshot))?;
    if doc.current_snapshot_id.is_some_and(|id| !is_there(id)) {
        return Err(invalid("Invalid table metadata: Cannot find current version"));
    }
    if let Some(dangling) = doc.refs.iter().find(|it| !is_there(it.snapshot_id)) {
        let name = &dangling.name;
        return Err(invalid(format!(
            "Snapshot for reference {name} does not exist in the existing snapshots list"
        )));
    }
    let main = doc.reference(MAIN).map(|main| main.snapshot_id);
    match (doc.current_snapshot_id, main) {
        (Some(current), Some(main)) if current != main => Err(invalid(format!(
            "Current snapshot ID does not match main branch ({current} != {main})"
        ))),
        (None, Some(main)) => {
            Err(invalid(format!("Current snapshot is not set, but main branch exists: {main}")))
        }
        _ => Ok(()),
    }
}

fn check_snapshot(doc: &TableDoc, snapshot: &TableSnapshot) -> Result<()> {
    if doc.format_version >= 2 && snapshot.sequence_number > doc.last_sequence_number {
        return Err(invalid(format!(
            "Invalid snapshot with sequence number {} greater than last sequence number {}",
            snapshot.sequence_number, doc.last_sequence_number
        )));
    }
    for (name, number) in
        [("first-row-id", snapshot.first_row_id), ("added-rows", snapshot.added_rows)]
    {
        if let Some(number) = number.filter(|&number| number < 0) {
            let id = snapshot.id;
            return Err(invalid(format!("`{name}` of snapshot {id} is negative: {number}")));
        }
    }
    Ok(())
}

fn check_logs(doc: &TableDoc) -> Result<()> {
    let is_sorted = |before: i64, after: i64| after.saturating_sub(before) >= -CLOCK_SKEW_MS;
    let updated = doc.last_updated_ms;
    let times = |pair: &[super::SnapshotLogEntry]| match pair {
        [before, after] => is_sorted(before.timestamp_ms, after.timestamp_ms),
        _ => true,
    };
    if !doc.snapshot_log.windows(2).all(times) {
        return Err(invalid("Expected sorted snapshot log entries."));
    }
    if let Some(last) = doc.snapshot_log.last()
        && !is_sorted(last.timestamp_ms, updated)
    {
        let last = last.timestamp_ms;
        return Err(invalid(format!(
            "Invalid update timestamp {updated}: before last snapshot log entry at {last}"
        )));
    }
    let times = |pair: &[super::MetadataLogEntry]| match pair {
        [before, after] => is_sorted(before.timestamp_ms, after.timestamp_ms),
        _ => true,
    };
    if !doc.metadata_log.windows(2).all(times) {
        return Err(invalid("Expected sorted previous metadata log entries."));
    }
    if let Some(last) = doc.metadata_log.last()
        && !is_sorted(last.timestamp_ms, updated)
    {
        let last = last.timestamp_ms;
        return Err(invalid(format!(
            "Invalid update timestamp {updated}: before the latest metadata log entry \
             timestamp {last}"
        )));
    }
    Ok(())
}

fn unique(what: &str, parts: &[MetadataPart]) -> Result<()> {
    if parts.is_empty() {
        return Err(invalid(format!("the table has no {what}")));
    }
    if parts.len() > PARTS_MAX {
        return Err(invalid(format!("there are more than {PARTS_MAX} of one kind: {what}")));
    }
    let mut ids: Vec<i32> = parts.iter().map(|part| part.id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => Err(invalid(format!("there are several of one {what}: id {pair:?}"))),
        None => Ok(()),
    }
}
