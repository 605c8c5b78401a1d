//! Expired snapshots, by a table's own properties and the rules of the reference. No file and no
//! clock is read here.
//!
//! A branch keeps its newest snapshots: at least its minimum number, and older ones that are within
//! its maximum age. A tag keeps its snapshot. Branches and tags other than `main` expire at their
//! own maximum age. Snapshots that no branch descends from and no tag names stay until their
//! maximum age.

use std::collections::{HashMap, HashSet};

use iceberg::doc::{MAIN, ReferenceKind, SnapshotReference, TableDoc};

use crate::error::{CatalogError, ErrorReason, Result};

const MAX_SNAPSHOT_AGE_MS: &str = "history.expire.max-snapshot-age-ms";
const MIN_SNAPSHOTS_TO_KEEP: &str = "history.expire.min-snapshots-to-keep";
const MAX_REF_AGE_MS: &str = "history.expire.max-ref-age-ms";

/// Five days, as in the reference.
const MAX_SNAPSHOT_AGE_MS_DEFAULT: i64 = 5 * 24 * 3600 * 1000;
const MIN_SNAPSHOTS_TO_KEEP_DEFAULT: i64 = 1;

/// Snapshots, branches and tags to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpiryPlan {
    /// Branches and tags.
    pub(super) refs: Vec<String>,
    /// Snapshots that no remaining branch or tag keeps, oldest first.
    pub(super) snapshots: Vec<i64>,
}

impl ExpiryPlan {
    pub(super) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.snapshots.is_empty()
    }
}

fn number(doc: &TableDoc, name: &str, default: i64) -> Result<i64> {
    let Some(text) = doc.properties.get(name) else { return Ok(default) };
    let number = text.trim().parse::<i64>().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| {
        let excerpt: String = text.chars().take(40).collect();
        CatalogError::new(
            ErrorReason::Validation,
            format!("the property `{name}` is not a number: `{excerpt}`"),
        )
    })
}

/// Returns the expired snapshots and references at a time.
///
/// # Errors
/// `Validation` if a property is no number.
pub(super) fn expiry(doc: &TableDoc, now_ms: i64) -> Result<ExpiryPlan> {
    let max_age = number(doc, MAX_SNAPSHOT_AGE_MS, MAX_SNAPSHOT_AGE_MS_DEFAULT)?;
    let min_kept = number(doc, MIN_SNAPSHOTS_TO_KEEP, MIN_SNAPSHOTS_TO_KEEP_DEFAULT)?.max(1);
    let max_ref_age = number(doc, MAX_REF_AGE_MS, i64::MAX)?;
    let is_old = |at_ms: i64, age: i64| at_ms < now_ms.saturating_sub(age);
    let outlives = |it: &&SnapshotReference| {
        let at = doc.snapshot(it.snapshot_id).map(|it| it.timestamp_ms);
        let age = it.max_ref_age_ms.unwrap_or(max_ref_age);
        it.name == MAIN || at.is_some_and(|at_ms| !is_old(at_ms, age))
    };
    let (parents, _) = ancestry(doc);
    let mut kept: HashSet<i64> = doc.current_snapshot_id.into_iter().collect();
    // Ancestors of branches and tags, whether they keep them or not.
    let mut reached: HashSet<i64> = HashSet::new();
    for it in doc.refs.iter().filter(outlives) {
        kept.insert(it.snapshot_id);
        reached.insert(it.snapshot_id);
        if it.kind == ReferenceKind::Tag {
            continue;
        }
        let age = it.max_snapshot_age_ms.unwrap_or(max_age);
        let least = it.min_snapshots_to_keep.map_or(min_kept, i64::from).max(1);
        let (mut next, mut count, mut seen) = (Some(it.snapshot_id), 0_i64, HashSet::new());
        let mut keeps = true;
        while let Some(id) = next.filter(|id| seen.insert(*id)) {
            let Some(snapshot) = doc.snapshot(id) else { break };
            keeps = keeps && (count < least || !is_old(snapshot.timestamp_ms, age));
            count += 1;
            reached.insert(id);
            if keeps {
                kept.insert(id);
            }
            next = parents.get(&id).copied().flatten();
        }
    }
    let gone = doc.refs.iter().filter(|it| !outlives(it));
    let goes = |it: &&iceberg::doc::TableSnapshot| {
        let is_kept =
            kept.contains(&it.id) || !reached.contains(&it.id) && !is_old(it.timestamp_ms, max_age);
        !is_kept
    };
    Ok(ExpiryPlan {
        refs: gone.map(|it| it.name.as_str().into_owned()).collect(),
        snapshots: doc.snapshots.iter().filter(goes).map(|it| it.id).collect(),
    })
}

/// Returns the parent of each snapshot, and the ancestors of the current one.
pub(super) fn ancestry(doc: &TableDoc) -> (HashMap<i64, Option<i64>>, HashSet<i64>) {
    let parents: HashMap<_, _> = doc.snapshots.iter().map(|it| (it.id, it.parent)).collect();
    let (mut current, mut next) = (HashSet::new(), doc.current_snapshot_id);
    while let Some(id) = next {
        // A malformed document may contain cycles.
        if !parents.contains_key(&id) || !current.insert(id) {
            break;
        }
        next = parents.get(&id).copied().flatten();
    }
    (parents, current)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;

    const HOUR: i64 = 3_600_000;

    /// A snapshot's id, its parent, and its age in hours.
    type Shape = (i64, Option<i64>, i64);

    /// Creates a table with these snapshots.
    fn table(snapshots: &[Shape], refs: &Value, properties: &Value) -> TableDoc {
        let listed: Vec<_> = snapshots
            .iter()
            .map(|(id, parent, hours)| {
                let mut it = json!({"snapshot-id": id, "sequence-number": id,
                    "timestamp-ms": (1000 - hours) * HOUR, "summary": {"operation": "append"},
                    "manifest-list": format!("file:///w/{id}.avro"), "schema-id": 0});
                if let Some(parent) = parent {
                    it["parent-snapshot-id"] = json!(parent);
                }
                it
            })
            .collect();
        let current = refs["main"]["snapshot-id"].as_i64().unwrap_or(-1);
        let doc = json!({"format-version": 2, "table-uuid": "u", "location": "file:///w/t",
            "last-sequence-number": 99, "last-updated-ms": 1000 * HOUR, "last-column-id": 1,
            "current-schema-id": 0, "schemas": [{"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "x", "required": false, "type": "long"}]}],
            "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}], "properties": properties,
            "current-snapshot-id": current, "refs": refs, "snapshots": listed});
        TableDoc::parse(Bytes::from(doc.to_string())).unwrap()
    }

    fn check((snapshots, refs, properties): (&[Shape], Value, Value), expected: (&[i64], &[&str])) {
        let found = expiry(&table(snapshots, &refs, &properties), 1000 * HOUR).unwrap();
        let names: Vec<&str> = found.refs.iter().map(String::as_str).collect();
        assert_eq!((&*found.snapshots, &*names), expected, "{refs} {properties}");
    }

    #[test]
    fn a_snapshot_goes_when_nothing_keeps_it() {
        let line: &[_] = &[(1, None, 500), (2, Some(1), 300), (3, Some(2), 200), (4, Some(3), 1)];
        let main = |id: i64| json!({"main": {"snapshot-id": id, "type": "branch"}});
        let none = json!({});
        check((line, main(4), none.clone()), (&[1, 2, 3], &[]));
        let keep = json!({"history.expire.min-snapshots-to-keep": "3"});
        check((line, main(4), keep), (&[1], &[]));
        let age = json!({"history.expire.max-snapshot-age-ms": (250 * HOUR).to_string()});
        check((line, main(4), age), (&[1, 2], &[]));
        // The current snapshot stays at any age.
        check(
            (&line[..1], main(1), json!({"history.expire.max-snapshot-age-ms": "0"})),
            (&[], &[]),
        );
        let mut tagged = main(4);
        tagged["v1"] = json!({"snapshot-id": 2, "type": "tag"});
        check((line, tagged.clone(), none.clone()), (&[1, 3], &[]));
        tagged["v1"]["max-ref-age-ms"] = json!(299 * HOUR);
        check((line, tagged.clone(), none.clone()), (&[1, 2, 3], &["v1"]));
        tagged["v1"]["max-ref-age-ms"] = json!(301 * HOUR);
        check((line, tagged, none.clone()), (&[1, 3], &[]));
        let mut branched = main(4);
        branched["dev"] = json!({"snapshot-id": 3, "type": "branch", "min-snapshots-to-keep": 2});
        check((line, branched.clone(), none.clone()), (&[1], &[]));
        let refs = json!({"history.expire.max-ref-age-ms": (100 * HOUR).to_string()});
        check((line, branched, refs), (&[1, 2, 3], &["dev"]));
        // Unreferenced snapshots stay until their maximum age; main never expires.
        let loose: &[_] = &[(1, None, 500), (7, None, 500), (8, None, 1)];
        let refs = json!({"history.expire.max-ref-age-ms": "1"});
        check((loose, main(1), refs), (&[7], &[]));
        // A young snapshot behind an expired one expires with it.
        let odd: &[_] = &[(1, None, 1), (2, Some(1), 500), (3, Some(2), 1)];
        check((odd, main(3), none), (&[1, 2], &[]));
        // A document may contain cycles.
        let round: &[_] = &[(1, Some(2), 500), (2, Some(1), 500)];
        check((round, main(1), json!({})), (&[2], &[]));
    }

    #[test]
    fn a_property_that_is_no_number_is_told() {
        for name in [MAX_SNAPSHOT_AGE_MS, MIN_SNAPSHOTS_TO_KEEP, MAX_REF_AGE_MS] {
            for value in ["", "x", "-1", "1.5"] {
                let properties = json!({name: value});
                let error = expiry(&table(&[], &json!({}), &properties), 0).unwrap_err();
                assert!(error.message.contains(name), "{error}");
            }
        }
    }
}
