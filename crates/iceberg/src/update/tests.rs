//! Commits: requests and the resulting documents.

mod whole;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::doc::TableDoc;
use crate::doc::tests::{V1, V2, V3, parse};
use crate::{ErrorReason, Result};

const NOW_MS: i64 = 1_700_000_000_000;
/// The snapshots of `V2`; the second is the current one.
const FIRST: i64 = 3_051_729_675_574_597_004;
const SECOND: i64 = 3_055_729_675_574_597_004;

fn fragment(value: &Value) -> RawJson {
    RawJson::parse(Bytes::from(value.to_string())).expect("JSON")
}

fn commit(updates: Value) -> Result<CommitRequest> {
    parse_commit(&fragment(&json!({"requirements": [], "updates": updates})))
}

fn applied(base: &TableDoc, updates: Value) -> Result<Option<TableDoc>> {
    apply(base, &commit(updates)?.updates, NOW_MS)
}

fn value(doc: &TableDoc) -> Value {
    let text = doc.to_bytes();
    let again = TableDoc::parse(text.clone()).expect("a document that can be read");
    assert_eq!(again.to_bytes(), text);
    serde_json::from_slice(&text).expect("JSON")
}

/// Checks that `updates` change `base` exactly in `changes`, pointers and values (null for a
/// removed one), and in the time.
#[track_caller]
fn check(base: &str, updates: Value, changes: &[(&str, Value)]) -> TableDoc {
    let base = parse(base);
    let doc = applied(&base, updates.clone()).expect("applied").expect("a change");
    assert_eq!(doc.last_updated_ms, NOW_MS);
    let mut expected = base;
    expected.complete();
    let mut expected = serde_json::from_slice::<Value>(&expected.to_bytes()).expect("JSON");
    expected["last-updated-ms"] = json!(NOW_MS);
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        let parent = expected.pointer_mut(parent).expect(pointer);
        match (parent, value) {
            (Value::Object(members), Value::Null) => drop(members.remove(name)),
            (Value::Object(members), value) => drop(members.insert(name.into(), value.clone())),
            (Value::Array(items), Value::Null) => {
                drop(items.remove(name.parse::<usize>().expect("an index")));
            }
            (Value::Array(items), value) => items.push(value.clone()),
            (other, _) => panic!("{pointer} in {other}"),
        }
    }
    assert_eq!(value(&doc), expected, "{updates}");
    doc
}

/// Checks that `updates` change nothing.
#[track_caller]
fn check_nothing(base: &str, updates: Value) {
    let doc = applied(&parse(base), updates.clone()).expect("applied");
    assert!(doc.is_none(), "{updates} changed {doc:?}");
}

/// Checks that `updates` are rejected.
#[track_caller]
fn check_refused(base: &str, updates: Value, kind: ErrorReason, message: &str) {
    let error = applied(&parse(base), updates.clone()).expect_err("refused");
    assert!(error.message.contains(message), "{updates}: {}", error.message);
    assert_eq!(error.kind, kind, "{updates}: {}", error.message);
}

fn snapshot(id: i64, parent: Option<i64>, number: i64, timestamp_ms: i64) -> Value {
    let mut value = json!({
        "snapshot-id": id, "sequence-number": number, "timestamp-ms": timestamp_ms,
        "manifest-list": "s3://a/b.avro", "summary": {"operation": "append"}, "schema-id": 1
    });
    if let Some(parent) = parent {
        value["parent-snapshot-id"] = json!(parent);
    }
    value
}

fn add(snapshot: &Value) -> Value {
    json!({"action": "add-snapshot", "snapshot": snapshot})
}

fn set_ref(name: &str, id: i64) -> Value {
    json!({"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": id})
}

#[test]
fn an_append_is_the_current_state_afterwards() {
    let new = snapshot(7, Some(SECOND), 35, NOW_MS - 5);
    check(
        V2,
        json!([add(&new), set_ref("main", 7)]),
        &[
            ("/snapshots/-", new),
            ("/last-sequence-number", json!(35)),
            ("/current-snapshot-id", json!(7)),
            ("/refs/main", json!({"snapshot-id": 7, "type": "branch"})),
            ("/snapshot-log/-", json!({"timestamp-ms": NOW_MS - 5, "snapshot-id": 7})),
        ],
    );
}

#[test]
fn a_snapshot_that_was_current_only_within_a_commit_is_not_in_the_log() {
    let (seventh, eighth) = (snapshot(7, None, 35, NOW_MS), snapshot(8, Some(7), 36, NOW_MS));
    check(
        V2,
        json!([add(&seventh), set_ref("main", 7), add(&eighth), set_ref("main", 8)]),
        &[
            ("/snapshots/-", seventh),
            ("/snapshots/-", eighth),
            ("/last-sequence-number", json!(36)),
            ("/current-snapshot-id", json!(8)),
            ("/refs/main", json!({"snapshot-id": 8, "type": "branch"})),
            ("/snapshot-log/-", json!({"timestamp-ms": NOW_MS, "snapshot-id": 8})),
        ],
    );
}

#[test]
fn going_back_is_logged_with_the_time_of_the_commit() {
    check(
        V2,
        json!([set_ref("main", FIRST)]),
        &[
            ("/current-snapshot-id", json!(FIRST)),
            ("/refs/main", json!({"snapshot-id": FIRST, "type": "branch"})),
            ("/snapshot-log/-", json!({"timestamp-ms": NOW_MS, "snapshot-id": FIRST})),
        ],
    );
}

#[test]
fn what_is_removed_takes_its_names_its_history_and_its_statistics_along() {
    check(
        V2,
        json!([{"action": "remove-snapshots", "snapshot-ids": [FIRST, 99]}]),
        &[
            ("/snapshots/0", json!(null)),
            ("/refs/t", json!(null)),
            ("/snapshot-log/0", json!(null)),
        ],
    );
    check(
        V2,
        json!([
            {"action": "remove-snapshots", "snapshot-ids": [SECOND]},
            {"action": "remove-snapshots", "snapshot-ids": [FIRST]},
        ]),
        &[
            ("/snapshots", json!([])),
            ("/refs", json!({})),
            ("/snapshot-log", json!([])),
            ("/statistics", json!([])),
            ("/current-snapshot-id", json!(-1)),
        ],
    );
    // Nothing before a gap stays in the log.
    let bare = V2.replace(r#""t":{"type":"tag""#, r#""t":{"type":"branch""#);
    let doc = check(
        &bare,
        json!([{"action": "remove-snapshots", "snapshot-ids": [SECOND]}, set_ref("main", FIRST)]),
        &[
            ("/snapshots/1", json!(null)),
            ("/refs/main", json!({"snapshot-id": FIRST, "type": "branch"})),
            ("/statistics", json!([])),
            ("/current-snapshot-id", json!(FIRST)),
            ("/snapshot-log", json!([{"timestamp-ms": NOW_MS, "snapshot-id": FIRST}])),
        ],
    );
    assert!(doc.reference("t").is_some());
    check(
        V2,
        json!([{"action": "remove-snapshot-ref", "ref-name": "main"}]),
        &[("/refs/main", json!(null)), ("/current-snapshot-id", json!(-1))],
    );
}

#[test]
fn snapshots_that_cannot_be_added_are_refused() {
    let add_one = |value: Value| json!([add(&value)]);
    let stale = "Validation failed, please retry: Cannot add snapshot with sequence number 34 \
                 older than last sequence number 34";
    let cases = [
        (snapshot(7, Some(SECOND), 34, NOW_MS), ErrorReason::CommitFailed, stale),
        (
            snapshot(FIRST, None, 35, NOW_MS),
            ErrorReason::Validation,
            "Snapshot already exists for id: 305",
        ),
        (snapshot(-7, None, 35, NOW_MS), ErrorReason::Validation, "negative id"),
        (json!({"snapshot-id": 7, "timestamp-ms": 1}), ErrorReason::Validation, "`manifest-list`"),
        (
            json!({"snapshot-id": 7, "timestamp-ms": 1, "sequence-number": 35, "manifests": []}),
            ErrorReason::Validation,
            "`manifest-list`",
        ),
        (json!({"snapshot-id": 7}), ErrorReason::IllegalArgument, "`timestamp-ms` is missing"),
    ];
    for (new, kind, message) in cases {
        check_refused(V2, add_one(new), kind, message);
    }
    // Version 1 has no sequence numbers, and may list its manifests.
    let old =
        json!({"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 1, "manifests": []});
    check(V1, add_one(old.clone()), &[("/snapshots/-", old.clone())]);
    let mut numbered = old;
    numbered["sequence-number"] = json!(1);
    check_refused(
        V1,
        add_one(numbered),
        ErrorReason::Validation,
        "Sequence number must be 0 in v1: 1",
    );
    // A new line of history may begin with any number, as in the reference.
    let root = snapshot(7, None, 1, NOW_MS);
    check(V2, add_one(root.clone()), &[("/snapshots/-", root)]);
    let unknown = "Cannot set main to unknown snapshot: 7";
    check_refused(V2, json!([set_ref("main", 7)]), ErrorReason::Validation, unknown);
    let late = json!([add(&snapshot(7, None, 35, NOW_MS + 70_000)), set_ref("main", 7)]);
    check_refused(V2, late, ErrorReason::Validation, "Invalid update timestamp");
    let early = json!([add(&snapshot(7, None, 35, 1_000)), set_ref("main", 7)]);
    check_refused(V2, early, ErrorReason::Validation, "Expected sorted snapshot log entries");
}

#[test]
fn rows_get_ids_from_version_3_on() {
    let with = |first: Option<i64>, added: Option<i64>| {
        let mut value = snapshot(7, None, 1, NOW_MS);
        value["schema-id"] = json!(0);
        for (name, number) in [("first-row-id", first), ("added-rows", added)] {
            if let Some(number) = number {
                value[name] = json!(number);
            }
        }
        value
    };
    let new = with(Some(0), Some(25));
    let doc = check(
        V3,
        json!([add(&new)]),
        &[
            ("/snapshots", json!([new])),
            ("/last-sequence-number", json!(1)),
            ("/next-row-id", json!(25)),
        ],
    );
    let text = String::from_utf8(doc.to_bytes().to_vec()).expect("UTF-8");
    let next = |first| {
        let mut new = with(Some(first), Some(5));
        new["snapshot-id"] = json!(8);
        new["sequence-number"] = json!(2);
        json!([add(&new)])
    };
    check_refused(
        &text,
        next(24),
        ErrorReason::CommitFailed,
        "first-row-id is behind table next-row-id: 24 < 25",
    );
    let doc = applied(&doc, next(30)).expect("applied").expect("a change");
    assert_eq!(doc.next_row_id, Some(35));
    let none = json!([add(&with(Some(0), Some(0)))]);
    assert_eq!(applied(&parse(V3), none).expect("applied").and_then(|it| it.next_row_id), Some(0));
    for (first, added, message) in [
        (None, Some(1), "first-row-id is null"),
        (Some(0), None, "added-rows is null"),
        (Some(0), Some(-1), "added-rows is null or negative"),
        (Some(1), Some(i64::MAX), "no more row ids"),
    ] {
        check_refused(V3, json!([add(&with(first, added))]), ErrorReason::Validation, message);
    }
}

#[test]
fn branches_and_tags() {
    let tag = json!({"action": "set-snapshot-ref", "ref-name": "v1", "type": "tag",
        "snapshot-id": FIRST, "max-ref-age-ms": 5});
    let reference = json!({"snapshot-id": FIRST, "type": "tag", "max-ref-age-ms": 5});
    let doc = check(V2, json!([tag]), &[("/refs/v1", reference)]);
    let text = String::from_utf8(doc.to_bytes().to_vec()).expect("UTF-8");
    check_nothing(&text, json!([tag]));
    check_nothing(V2, json!([set_ref("main", SECOND)]));
    check_nothing(V2, json!([{"action": "remove-snapshot-ref", "ref-name": "nobody"}]));
    let with = |name: &str, kind: &str, key: &str, value: i64| {
        json!([{"action": "set-snapshot-ref", "ref-name": name, "type": kind,
            "snapshot-id": FIRST, key: value}])
    };
    let cases = [
        (with("main", "tag", "x", 1), ErrorReason::Validation, "it is a branch"),
        (
            with("a", "twig", "x", 1),
            ErrorReason::IllegalArgument,
            "Invalid snapshot ref type: twig",
        ),
        (
            with("a", "tag", "min-snapshots-to-keep", 1),
            ErrorReason::IllegalArgument,
            "Tags do not support setting minSnapshotsToKeep",
        ),
        (
            with("a", "tag", "max-snapshot-age-ms", 1),
            ErrorReason::IllegalArgument,
            "Tags do not support setting maxSnapshotAgeMs",
        ),
        (
            with("a", "branch", "min-snapshots-to-keep", 0),
            ErrorReason::IllegalArgument,
            "Min snapshots to keep must be greater than 0",
        ),
        (
            with("a", "branch", "max-ref-age-ms", -1),
            ErrorReason::IllegalArgument,
            "Max reference age must be greater than 0",
        ),
    ];
    for (updates, kind, message) in cases {
        check_refused(V2, updates, kind, message);
    }
}

fn schema(fields: &[(i32, &str)]) -> Value {
    let field = |(id, name): &(i32, &str)| {
        let (id, name) = (*id, *name);
        json!({"id": id, "name": name, "required": false, "type": "long"})
    };
    json!({"type": "struct", "schema-id": 99,
        "fields": fields.iter().map(field).collect::<Vec<_>>()})
}

#[test]
fn schemas_get_the_next_id_and_known_ones_keep_theirs() {
    let new = schema(&[(1, "x"), (2, "y"), (4, "w")]);
    let mut kept = new.clone();
    kept["schema-id"] = json!(2);
    check(
        V2,
        json!([
            {"action": "add-schema", "schema": new, "last-column-id": 77},
            {"action": "set-current-schema", "schema-id": -1},
        ]),
        &[("/schemas/-", kept), ("/last-column-id", json!(4)), ("/current-schema-id", json!(2))],
    );
    let known = json!({"type": "struct", "identifier-field-ids": [], "fields": [
        {"name": "x", "id": 1, "type": "long", "required": true}]});
    check_nothing(V2, json!([{"action": "add-schema", "schema": known}]));
    // Source columns of the partitioning must exist.
    let without = schema(&[(2, "y")]);
    let updates = json!([
        {"action": "add-schema", "schema": without},
        {"action": "set-current-schema", "schema-id": -1},
    ]);
    let message = "Cannot find source column for partition field";
    check_refused(V2, updates, ErrorReason::Validation, message);
    let set = |id| json!([{"action": "set-current-schema", "schema-id": id}]);
    check_nothing(V2, set(1));
    check_refused(
        V2,
        set(9),
        ErrorReason::IllegalArgument,
        "Cannot set current schema to unknown schema: 9",
    );
    check_refused(V2, set(-1), ErrorReason::Validation, "no schema has been added");
    let remove = |ids: &[i32]| json!([{"action": "remove-schemas", "schema-ids": ids}]);
    check(V2, remove(&[0, 5]), &[("/schemas/0", json!(null))]);
    check_refused(
        V2,
        remove(&[1]),
        ErrorReason::IllegalArgument,
        "Cannot remove the current schema",
    );
    let used = V2.replace(r#""schema-id":1,"x-new""#, r#""schema-id":0,"x-new""#);
    check_refused(&used, remove(&[0]), ErrorReason::Validation, "was written with it");
    let expired = json!([
        {"action": "remove-schemas", "schema-ids": [0]},
        {"action": "remove-snapshots", "snapshot-ids": [SECOND]},
    ]);
    assert!(applied(&parse(&used), expired).expect("applied").is_some());
}

#[test]
fn a_default_that_is_null_is_none() {
    let column = |more: Value| {
        let mut column = json!({"id": 7, "name": "n", "required": false, "type": "long",
            "doc": null});
        column.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        column
    };
    let nested = |inner: Value| {
        json!({"id": 8, "name": "l", "required": false, "type": {"type": "list", "element-id": 9,
            "element-required": false, "element": {"type": "struct", "fields": [inner]}}})
    };
    let with = |column: &Value, id: i32| {
        let fields = [nested(column.clone())];
        json!({"type": "struct", "schema-id": id, "fields": fields})
    };
    let sent = column(json!({"initial-default": null, "write-default": null}));
    let kept = column(json!({}));
    check(
        V2,
        json!([{"action": "add-schema", "schema": with(&sent, 5)}]),
        &[("/schemas/-", with(&kept, 2)), ("/last-column-id", json!(9))],
    );
}

#[test]
fn specifications_and_orders_get_the_next_id_and_known_ones_keep_theirs() {
    let spec = json!({"fields": [{"source-id": 2, "transform": "bucket[4]", "name": "y_bucket"}]});
    check(
        V2,
        json!([
            {"action": "add-spec", "spec": spec},
            {"action": "set-default-spec", "spec-id": -1},
        ]),
        &[
            (
                "/partition-specs/-",
                json!({"spec-id": 1, "fields": [{"source-id": 2, "transform": "bucket[4]",
                    "name": "y_bucket", "field-id": 1001}]}),
            ),
            ("/default-spec-id", json!(1)),
            ("/last-partition-id", json!(1001)),
        ],
    );
    let known = json!({"spec-id": 9, "fields": [
        {"source-id": 1, "transform": "identity", "name": "x"}]});
    check_nothing(V2, json!([{"action": "add-spec", "spec": known}]));
    let order = json!({"order-id": 9, "fields": [{"source-id": 1, "transform": "identity",
        "direction": "desc", "null-order": "nulls-last"}]});
    let mut kept = order.clone();
    kept["order-id"] = json!(4);
    check(
        V2,
        json!([
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ]),
        &[("/sort-orders/-", kept), ("/default-sort-order-id", json!(4))],
    );
    check(
        V2,
        json!([{"action": "add-sort-order", "sort-order": {"order-id": 9, "fields": []}}]),
        &[("/sort-orders/-", json!({"order-id": 0, "fields": []}))],
    );
    let set = |action: &str, key: &str, id: i32| json!([{"action": action, key: id}]);
    let cases = [
        (set("set-default-spec", "spec-id", 9), "unknown spec: 9"),
        (set("set-default-spec", "spec-id", -1), "no spec has been added"),
        (set("set-default-sort-order", "sort-order-id", 9), "unknown order: 9"),
        (set("set-default-sort-order", "sort-order-id", -1), "no sort order has been added"),
    ];
    for (updates, message) in cases {
        check_refused(V2, updates, ErrorReason::Validation, message);
    }
    let removal = json!([{"action": "remove-partition-specs", "spec-ids": [0]}]);
    check_refused(
        V2,
        removal,
        ErrorReason::IllegalArgument,
        "Cannot remove the default partition spec",
    );
    check_nothing(V2, json!([{"action": "remove-partition-specs", "spec-ids": [4]}]));
    let two =
        V2.replace(r#""partition-specs":["#, r#""partition-specs":[{"spec-id":4,"fields":[]},"#);
    check(
        &two,
        json!([{"action": "remove-partition-specs", "spec-ids": [4, 7]}]),
        &[("/partition-specs/0", json!(null))],
    );
}

#[test]
fn properties_locations_and_uuids() {
    check(
        V2,
        json!([
            {"action": "set-properties", "updates": {"a": "1", "key": "other", "uuid": "x"}},
            {"action": "remove-properties", "removals": ["read.split.target.size", "none"]},
            {"action": "set-location", "location": "file:/elsewhere"},
        ]),
        &[
            ("/properties", json!({"key": "other", "a": "1"})),
            ("/location", json!("file:/elsewhere")),
        ],
    );
    check(
        V2,
        json!([{"action": "remove-properties", "removals": ["key", "read.split.target.size"]}]),
        &[("/properties", json!({}))],
    );
    check_nothing(
        V2,
        json!([
            {"action": "set-properties", "updates": {"key": "v/w", "current-snapshot-id": "1"}},
            {"action": "remove-properties", "removals": ["none"]},
            {"action": "set-location", "location": "file:///wh/ns/té"},
            {"action": "assign-uuid", "uuid": "9C12D441-03fe-4693-9a96-a0705ddf69c1"},
            {"action": "upgrade-format-version", "format-version": 2},
        ]),
    );
    let cases = [
        (
            json!([{"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c9"}]),
            ErrorReason::Validation,
            "Cannot reassign the UUID",
        ),
        (
            json!([{"action": "set-location", "location": ""}]),
            ErrorReason::Validation,
            "Cannot set an empty location",
        ),
        (
            json!([{"action": "set-properties",
                "updates": {"write.metadata.previous-versions-max": "many"}}]),
            ErrorReason::Validation,
            "is not a number",
        ),
        (
            json!([{"action": "set-properties", "updates": {"format-version": "two"}}]),
            ErrorReason::IllegalArgument,
            "is not a version: two",
        ),
    ];
    for (updates, kind, message) in cases {
        check_refused(V2, updates, kind, message);
    }
}

#[test]
fn statistics_and_keys_are_one_for_each_name() {
    let file = json!({"snapshot-id": SECOND, "statistics-path": "s3://new", "x": 1});
    let doc = check(
        V2,
        json!([
            {"action": "set-statistics", "snapshot-id": SECOND, "statistics": file},
            {"action": "set-partition-statistics", "partition-statistics": file},
            {"action": "add-encryption-key",
                "encryption-key": {"key-id": "k", "encrypted-key-metadata": "YQ=="}},
            {"action": "add-encryption-key",
                "encryption-key": {"key-id": "k", "encrypted-key-metadata": "Yg=="}},
        ]),
        &[
            ("/statistics", json!([file])),
            ("/partition-statistics", json!([file])),
            ("/encryption-keys", json!([{"key-id": "k", "encrypted-key-metadata": "YQ=="}])),
        ],
    );
    let text = String::from_utf8(doc.to_bytes().to_vec()).expect("UTF-8");
    check_nothing(&text, json!([{"action": "set-statistics", "statistics": file}]));
    check(
        &text,
        json!([
            {"action": "remove-statistics", "snapshot-id": SECOND},
            {"action": "remove-partition-statistics", "snapshot-id": SECOND},
            {"action": "remove-encryption-key", "key-id": "k"},
        ]),
        &[
            ("/statistics", json!([])),
            ("/partition-statistics", json!([])),
            ("/encryption-keys", json!([])),
        ],
    );
    check_nothing(
        V2,
        json!([
            {"action": "remove-statistics", "snapshot-id": 1},
            {"action": "remove-partition-statistics", "snapshot-id": 1},
            {"action": "remove-encryption-key", "key-id": "k"},
        ]),
    );
}

#[test]
fn a_table_goes_from_version_1_to_3_and_not_back() {
    let upgrade = |to: i32| json!([{"action": "upgrade-format-version", "format-version": to}]);
    let second = applied(&parse(V1), upgrade(2)).expect("applied").expect("a change");
    let document = value(&second);
    assert_eq!(document["schemas"][0]["schema-id"], json!(0));
    assert_eq!(document["partition-specs"][0]["fields"][1]["field-id"], json!(1001));
    assert_eq!(document["last-partition-id"], json!(1001));
    assert_eq!(document["sort-orders"], json!([{"order-id": 0, "fields": []}]));
    assert_eq!(document["last-sequence-number"], json!(0));
    for gone in ["schema", "partition-spec", "next-row-id"] {
        assert!(document.get(gone).is_none(), "{gone} is still there");
    }
    let third = applied(&second, upgrade(3)).expect("applied").expect("a change");
    assert_eq!(value(&third)["next-row-id"], json!(0));
    let at_once = applied(&parse(V1), upgrade(3)).expect("applied").expect("a change");
    assert_eq!(value(&at_once), value(&third));
    let by_property = json!([{"action": "set-properties", "updates": {"format-version": "3"}}]);
    let by_property = applied(&second, by_property).expect("applied").expect("a change");
    assert_eq!(value(&by_property), value(&third));
    for (version, message) in [
        (4, "Cannot upgrade table to unsupported format version: v4 (supported: v3)"),
        (-1, "Cannot upgrade table to unsupported format version: v-1"),
        (1, "Cannot downgrade v2 table to v1"),
    ] {
        check_refused(V2, upgrade(version), ErrorReason::IllegalArgument, message);
    }
    let nameless = V1.replace(r#""table-uuid":"d20125c8-7284-442c-9aea-15fee620737c","#, "");
    check_refused(&nameless, upgrade(2), ErrorReason::Validation, "UUID is required in format v2");
}

#[test]
fn version_1_repeats_what_is_current() {
    let updates = json!([
        {"action": "add-schema", "schema": schema(&[(1, "x"), (2, "y"), (9, "new")])},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": [
            {"source-id": 9, "transform": "identity", "name": "new", "field-id": 1000}]}},
        {"action": "set-default-spec", "spec-id": -1},
    ]);
    let doc = applied(&parse(V1), updates).expect("applied").expect("a change");
    let document = value(&doc);
    assert_eq!(document["schema"], document["schemas"][1]);
    assert_eq!(document["partition-spec"], document["partition-specs"][1]["fields"]);
    assert_eq!(document["schema"]["schema-id"], json!(1));
    assert_eq!(doc.last_column_id, 9);
    let gap = json!([{"action": "add-spec", "spec": {"fields": [
        {"source-id": 3, "transform": "identity", "name": "z", "field-id": 1005}]}}]);
    check_refused(V1, gap, ErrorReason::Validation, "sequential IDs that are required in v1");
}
