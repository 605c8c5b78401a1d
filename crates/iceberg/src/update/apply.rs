//! Applies updates to a document.

use super::TableUpdate;
use super::builder::TableBuilder;
use crate::Result;
use crate::doc::properties::{PREVIOUS_VERSIONS_MAX, PREVIOUS_VERSIONS_MAX_DEFAULT};
use crate::doc::{
    FORMAT_VERSION_DEFAULT, FORMAT_VERSION_MAX, MetadataLogEntry, MetadataPart, TableDoc, check,
    unsorted,
};
use crate::error::invalid;
use crate::json::RawJson;
use crate::schema;

/// Id of a missing schema, specification or order, before the first one is added.
const NO_ID: i32 = -1;

/// Applies updates, in order. `now_ms` is the time of the commit, in milliseconds since 1970.
/// `None` if they change nothing, so that no new document has to be written.
///
/// # Errors
/// `Validation` or `IllegalArgument` if the table would become invalid, and `CommitFailed` if an
/// addition is older than the present state: another commit was faster.
pub fn apply(base: &TableDoc, updates: &[TableUpdate], now_ms: i64) -> Result<Option<TableDoc>> {
    let mut doc = base.clone();
    make_room(&mut doc, updates);
    let mut builder = TableBuilder::new(doc, now_ms);
    builder.run(updates)?;
    if builder.is_changed { finish(builder).map(Some) } else { Ok(None) }
}

/// Reserves capacity for the additions of a commit: the lists would double, and would be shrunk
/// again when the document is settled.
fn make_room(doc: &mut TableDoc, updates: &[TableUpdate]) {
    let (mut snapshots, mut references) = (0, 0);
    for update in updates {
        match update {
            TableUpdate::AddSnapshot(_) => snapshots += 1,
            TableUpdate::SetSnapshotRef(_) => references += 1,
            _ => {}
        }
    }
    doc.snapshots.reserve_exact(snapshots);
    doc.snapshot_log.reserve_exact(references);
    doc.metadata_log.reserve_exact(1);
}

/// Creates a table from the updates that finish a staged create. `uuid` and `location` are the
/// defaults for a client that does not set them.
///
/// # Errors
/// Those of [`apply`], and if there is no schema among the updates.
pub fn from_updates(
    updates: &[TableUpdate],
    uuid: &str,
    location: &str,
    now_ms: i64,
) -> Result<TableDoc> {
    let version = updates.iter().find_map(|update| match update {
        TableUpdate::UpgradeFormatVersion(version) => u8::try_from(*version).ok(),
        _ => None,
    });
    let version = version.filter(|version| (1..=FORMAT_VERSION_MAX).contains(version));
    let version = version.unwrap_or(FORMAT_VERSION_DEFAULT);
    let mut doc = TableDoc::empty(version, "", location, now_ms);
    doc.current_schema_id = NO_ID;
    doc.default_spec_id = NO_ID;
    doc.default_sort_order_id = NO_ID;
    let mut builder = TableBuilder::new(doc, now_ms);
    builder.run(updates)?;
    let doc = &mut builder.doc;
    if doc.uuid.is_empty() {
        uuid.clone_into(&mut doc.uuid);
    }
    if doc.schemas.is_empty() {
        return Err(invalid("Cannot create a table without a schema"));
    }
    if doc.specs.is_empty() {
        let raw = RawJson::written(b"{\"spec-id\":0,\"fields\":[]}".to_vec());
        doc.specs.push(MetadataPart { id: 0, raw });
        doc.default_spec_id = 0;
    }
    if doc.sort_orders.is_empty() {
        doc.sort_orders.push(unsorted());
        doc.default_sort_order_id = 0;
    }
    finish(builder)
}

/// Adds `base`, which is at `base_location`, to the metadata log. Also returns the documents that
/// the log no longer names: they are deleted after the commit if `new` requires it, see
/// [`TableDoc::deletes_old_metadata`].
#[must_use]
pub fn logged(mut new: TableDoc, base: &TableDoc, base_location: &str) -> (TableDoc, Vec<String>) {
    // A foreign document may have an invalid value here; `set-properties` may not set one.
    let most = new.properties.get(PREVIOUS_VERSIONS_MAX).and_then(|most| most.parse::<i32>().ok());
    let most =
        most.map_or(PREVIOUS_VERSIONS_MAX_DEFAULT, |most| usize::try_from(most).unwrap_or(1));
    let log = &mut new.metadata_log;
    log.push(MetadataLogEntry::new(base.last_updated_ms, base_location));
    let too_many = log.len().saturating_sub(most.max(1));
    let fallen = log.drain(..too_many).map(|entry| entry.metadata_file());
    let fallen = fallen.collect();
    new.complete();
    (new, fallen)
}

fn finish(mut builder: TableBuilder) -> Result<TableDoc> {
    builder.repair_log();
    builder.check_removed_schemas()?;
    let mut doc = builder.doc;
    doc.last_updated_ms = builder.now_ms;
    doc.complete();
    check::check(&doc)?;
    if builder.has_new_shape {
        check_shape(&doc)?;
    }
    Ok(doc)
}

/// Checks that new data is partitioned and sorted by columns of the current schema.
fn check_shape(doc: &TableDoc) -> Result<()> {
    let (Some(schema), Some(spec), Some(order)) =
        (doc.current_schema(), doc.default_spec(), doc.default_sort_order())
    else {
        return Err(invalid("the table has no schema, no partition spec or no sort order"));
    };
    schema::bind_spec(&spec.raw, &schema.raw, doc)?;
    schema::bind_order(&order.raw, &schema.raw)?;
    Ok(())
}
