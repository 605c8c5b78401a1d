//! Snapshots, the branches and tags that refer to them, and the log of current snapshots.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#snapshots>
//! - <https://iceberg.apache.org/spec/#snapshot-references>

use std::collections::HashSet;

use super::ADDED_SNAPSHOTS_MAX;
use super::builder::TableBuilder;
use crate::doc::{MAIN, ReferenceKind, SnapshotLogEntry, SnapshotReference, TableSnapshot};
use crate::error::{illegal, invalid};
use crate::json::JsonKind;
use crate::{CatalogError, ErrorReason, Result};

impl TableBuilder {
    pub(super) fn add_snapshot(&mut self, snapshot: &TableSnapshot) -> Result<()> {
        self.check_new(snapshot)?;
        let doc = &mut self.doc;
        if let Some(next) = &mut doc.next_row_id {
            let first = snapshot
                .first_row_id
                .ok_or_else(|| invalid("Cannot add a snapshot: first-row-id is null"))?;
            let added = snapshot
                .added_rows
                .filter(|added| *added >= 0)
                .ok_or_else(|| invalid("Cannot add a snapshot: added-rows is null or negative"))?;
            if first < *next {
                return Err(stale(format!(
                    "Cannot add a snapshot, first-row-id is behind table next-row-id: \
                     {first} < {next}"
                )));
            }
            // The reference adds to the old number. That is the same unless the snapshot skips ids;
            // then the next snapshot would reuse ids of this one.
            let after = first.checked_add(added);
            *next = after.ok_or_else(|| invalid("Cannot add a snapshot: no more row ids"))?;
        }
        doc.last_sequence_number = doc.last_sequence_number.max(snapshot.sequence_number);
        doc.snapshots.push(snapshot.clone());
        self.known_snapshots().insert(snapshot.id);
        self.added_snapshots.insert(snapshot.id);
        self.is_changed = true;
        Ok(())
    }

    fn check_new(&mut self, snapshot: &TableSnapshot) -> Result<()> {
        let doc = &self.doc;
        for (is_missing, what) in [
            (doc.schemas.is_empty(), "schema"),
            (doc.specs.is_empty(), "partition spec"),
            (doc.sort_orders.is_empty(), "sort order"),
        ] {
            if is_missing {
                let message = format!("Attempting to add a snapshot before a {what} is added");
                return Err(invalid(message));
            }
        }
        let (version, last) = (doc.format_version, doc.last_sequence_number);
        if self.added_snapshots.len() == ADDED_SNAPSHOTS_MAX {
            let message = format!("a commit may add {ADDED_SNAPSHOTS_MAX} snapshots at the most");
            return Err(CatalogError::new(ErrorReason::TooLarge, message));
        }
        if self.known_snapshots().contains(snapshot.id) {
            return Err(invalid(format!("Snapshot already exists for id: {}", snapshot.id)));
        }
        if snapshot.id < 0 || snapshot.sequence_number < 0 {
            return Err(invalid("Cannot add a snapshot with a negative id or sequence number"));
        }
        let number = snapshot.sequence_number;
        if version == 1 && number != 0 {
            return Err(invalid(format!("Sequence number must be 0 in v1: {number}")));
        }
        if version > 1 && number <= last && snapshot.parent.is_some() {
            return Err(stale(format!(
                "Cannot add snapshot with sequence number {number} older than last sequence \
                 number {last}"
            )));
        }
        // Version 1 may list its manifests in the document instead.
        let list = snapshot.raw.get("manifest-list").map(|list| list.kind());
        let manifests = snapshot.raw.get("manifests").map(|list| list.kind());
        let is_listed = list == Some(JsonKind::String)
            || version == 1 && list.is_none() && manifests == Some(JsonKind::Array);
        if !is_listed {
            return Err(invalid("Cannot add a snapshot: `manifest-list` is missing"));
        }
        Ok(())
    }

    pub(super) fn set_reference(&mut self, reference: &SnapshotReference) -> Result<()> {
        check_retention(reference)?;
        let name = reference.name.as_str();
        let place = self.doc.refs.iter().position(|it| it.name == reference.name);
        if place.and_then(|it| self.doc.refs.get(it)).is_some_and(|it| it.same(reference)) {
            return Ok(());
        }
        let id = reference.snapshot_id;
        if !self.known_snapshots().contains(id) {
            return Err(invalid(format!("Cannot set {name} to unknown snapshot: {id}")));
        }
        if name == MAIN {
            if reference.kind == ReferenceKind::Tag {
                return Err(invalid(format!("Cannot set {MAIN} to a tag: it is a branch")));
            }
            self.set_current(id);
        }
        match place.and_then(|place| self.doc.refs.get_mut(place)) {
            Some(old) => *old = reference.clone(),
            None => self.doc.refs.push(reference.clone()),
        }
        self.is_changed = true;
        Ok(())
    }

    /// The log has the creation time of a snapshot if this commit added it, otherwise the time of
    /// selection.
    fn set_current(&mut self, id: i64) {
        let is_added = self.added_snapshots.contains(&id);
        let made_ms = self.doc.snapshot(id).filter(|_| is_added).map(|it| it.timestamp_ms);
        let entry = SnapshotLogEntry::new(made_ms.unwrap_or(self.now_ms), id);
        self.doc.snapshot_log.push(entry);
        self.doc.current_snapshot_id = Some(id);
        if is_added {
            self.was_current.push(id);
        }
    }

    pub(super) fn remove_reference(&mut self, name: &str) {
        if name == MAIN {
            self.doc.current_snapshot_id = None;
        }
        let before = self.doc.refs.len();
        self.doc.refs.retain(|it| it.name != name);
        self.is_changed |= self.doc.refs.len() != before;
    }

    /// Statistics and references of removed snapshots are removed with them. Unknown ids count as
    /// already removed.
    pub(super) fn remove_snapshots(&mut self, ids: &HashSet<i64>) {
        if !self.known_snapshots().remove_all(ids) {
            return;
        }
        let doc = &mut self.doc;
        doc.snapshots.retain(|it| !ids.contains(&it.id));
        doc.statistics.retain(|it| !ids.contains(&it.snapshot_id));
        doc.partition_statistics.retain(|it| !ids.contains(&it.snapshot_id));
        doc.refs.retain(|it| !ids.contains(&it.snapshot_id));
        if doc.current_snapshot_id.is_some_and(|id| ids.contains(&id)) {
            doc.current_snapshot_id = None;
        }
        (self.is_changed, self.has_removed_snapshots) = (true, true);
    }

    /// Keeps in the log only what clients can still travel to: no snapshot that was current only
    /// within this commit, and nothing before a removed one.
    pub(super) fn repair_log(&mut self) {
        let current = self.doc.current_snapshot_id;
        let passing: HashSet<i64> =
            self.was_current.iter().copied().filter(|id| Some(*id) != current).collect();
        if passing.is_empty() && !self.has_removed_snapshots {
            return;
        }
        let log = std::mem::take(&mut self.doc.snapshot_log);
        let mut kept = Vec::with_capacity(log.len());
        for entry in log {
            if !self.known_snapshots().contains(entry.snapshot_id) {
                if self.has_removed_snapshots {
                    kept.clear();
                }
            } else if !passing.contains(&entry.snapshot_id) {
                kept.push(entry);
            }
        }
        // A foreign document may lack a log, which must contain the current snapshot.
        if let Some(snapshot) = current.and_then(|id| self.doc.snapshot(id))
            && kept.last().is_none_or(|last| last.snapshot_id != snapshot.id)
        {
            let last_ms = kept.last().map_or(snapshot.timestamp_ms, |last| last.timestamp_ms);
            kept.push(SnapshotLogEntry::new(snapshot.timestamp_ms.max(last_ms), snapshot.id));
        }
        self.doc.snapshot_log = kept;
    }

    /// A snapshot is read with the schema that it was written with, so that schema must stay.
    pub(super) fn check_removed_schemas(&self) -> Result<()> {
        let needed =
            |it: &&TableSnapshot| it.schema_id.is_some_and(|id| self.removed_schemas.contains(&id));
        let user = match self.removed_schemas.as_slice() {
            [] => None,
            _ => self.doc.snapshots.iter().find(needed),
        };
        match user {
            Some(TableSnapshot { id, schema_id: Some(schema), .. }) => Err(invalid(format!(
                "Cannot remove schema {schema}: snapshot {id} was written with it"
            ))),
            _ => Ok(()),
        }
    }

    fn known_snapshots(&mut self) -> &mut SnapshotIds {
        let snapshots = &self.doc.snapshots;
        self.snapshot_ids.get_or_insert_with(|| SnapshotIds::of(snapshots))
    }
}

/// Ids of a document's snapshots while some are added and removed.
#[derive(Debug)]
pub(super) struct SnapshotIds {
    /// Earlier ids, sorted.
    before: Vec<i64>,
    added: HashSet<i64>,
}

impl SnapshotIds {
    fn of(snapshots: &[TableSnapshot]) -> SnapshotIds {
        let mut before: Vec<i64> = snapshots.iter().map(|it| it.id).collect();
        #[expect(
            clippy::stable_sort_primitive,
            reason = "it is the one that finds what is in order"
        )]
        before.sort();
        SnapshotIds { before, added: HashSet::new() }
    }

    fn contains(&self, id: i64) -> bool {
        self.before.binary_search(&id).is_ok() || self.added.contains(&id)
    }

    fn insert(&mut self, id: i64) {
        self.added.insert(id);
    }

    /// Removes ids; returns whether any of them existed.
    fn remove_all(&mut self, ids: &HashSet<i64>) -> bool {
        let count = self.before.len() + self.added.len();
        self.before.retain(|id| !ids.contains(id));
        self.added.retain(|id| !ids.contains(id));
        self.before.len() + self.added.len() < count
    }
}

fn check_retention(reference: &SnapshotReference) -> Result<()> {
    if reference.kind == ReferenceKind::Tag {
        for (is_set, what) in [
            (reference.min_snapshots_to_keep.is_some(), "minSnapshotsToKeep"),
            (reference.max_snapshot_age_ms.is_some(), "maxSnapshotAgeMs"),
        ] {
            if is_set {
                return Err(illegal(format!("Tags do not support setting {what}")));
            }
        }
    }
    for (number, message) in [
        (
            reference.min_snapshots_to_keep.map(i64::from),
            "Min snapshots to keep must be greater than 0",
        ),
        (reference.max_snapshot_age_ms, "Max snapshot age must be greater than 0 ms"),
        (reference.max_ref_age_ms, "Max reference age must be greater than 0"),
    ] {
        if number.is_some_and(|number| number <= 0) {
            return Err(illegal(message));
        }
    }
    Ok(())
}

/// Rejects a commit that lost a race: the client then reloads the table, and its files are not
/// lost.
fn stale(message: impl AsRef<str>) -> CatalogError {
    let message = format!("Validation failed, please retry: {}", message.as_ref());
    CatalogError::new(ErrorReason::CommitFailed, message)
}
