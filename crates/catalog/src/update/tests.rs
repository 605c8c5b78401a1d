//! Commits: what is asked, and what becomes of the document.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::doc::TableDoc;
use crate::doc::tests::{V1, V2, V3, parse};
use crate::{Kind, Result};

const NOW_MS: i64 = 1_700_000_000_000;
/// The snapshots of `V2`; the second is the current one.
const FIRST: i64 = 3_051_729_675_574_597_004;
const SECOND: i64 = 3_055_729_675_574_597_004;

fn fragment(value: &Value) -> Fragment {
    Fragment::parse(Bytes::from(value.to_string())).expect("JSON")
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

/// `updates` change `base` in `changes`, pointers and values (null for what is gone), and in nothing
/// else but the time.
#[track_caller]
fn check(base: &str, updates: Value, changes: &[(&str, Value)]) -> TableDoc {
    let base = parse(base);
    let doc = applied(&base, updates.clone()).expect("applied").expect("a change");
    assert_eq!(doc.last_updated_ms, NOW_MS);
    let mut expected = base.clone();
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

/// `updates` change nothing.
#[track_caller]
fn check_nothing(base: &str, updates: Value) {
    let doc = applied(&parse(base), updates.clone()).expect("applied");
    assert!(doc.is_none(), "{updates} changed {doc:?}");
}

/// `updates` are refused.
#[track_caller]
fn check_refused(base: &str, updates: Value, kind: Kind, message: &str) {
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
    let stale = "Validation failed, please retry: Cannot add snapshot with sequence number 34 older \
                 than last sequence number 34";
    let cases = [
        (snapshot(7, Some(SECOND), 34, NOW_MS), Kind::CommitFailed, stale),
        (
            snapshot(FIRST, None, 35, NOW_MS),
            Kind::Validation,
            "Snapshot already exists for id: 305",
        ),
        (snapshot(-7, None, 35, NOW_MS), Kind::Validation, "negative id"),
        (json!({"snapshot-id": 7, "timestamp-ms": 1}), Kind::Validation, "`manifest-list`"),
        (json!({"snapshot-id": 7}), Kind::IllegalArgument, "`timestamp-ms` is missing"),
    ];
    for (new, kind, message) in cases {
        check_refused(V2, add_one(new), kind, message);
    }
    // A new line of history may begin with any number, as for the reference.
    let root = snapshot(7, None, 1, NOW_MS);
    check(V2, add_one(root.clone()), &[("/snapshots/-", root)]);
    let unknown = "Cannot set main to unknown snapshot: 7";
    check_refused(V2, json!([set_ref("main", 7)]), Kind::Validation, unknown);
    let late = json!([add(&snapshot(7, None, 35, NOW_MS + 70_000)), set_ref("main", 7)]);
    check_refused(V2, late, Kind::Validation, "Invalid update timestamp");
    let early = json!([add(&snapshot(7, None, 35, 1_000)), set_ref("main", 7)]);
    check_refused(V2, early, Kind::Validation, "Expected sorted snapshot log entries");
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
        Kind::CommitFailed,
        "first-row-id is behind table next-row-id: 24 < 25",
    );
    let doc = applied(&doc, next(30)).expect("applied").expect("a change");
    assert_eq!(doc.next_row_id, Some(35));
    for (first, added, message) in [
        (None, Some(1), "first-row-id is null"),
        (Some(0), None, "added-rows is null"),
        (Some(0), Some(-1), "added-rows is null or negative"),
        (Some(1), Some(i64::MAX), "no more row ids"),
    ] {
        check_refused(V3, json!([add(&with(first, added))]), Kind::Validation, message);
    }
}

#[test]
fn branches_and_tags() {
    let tag = json!({"action": "set-snapshot-ref", "ref-name": "v1", "type": "tag",
        "snapshot-id": FIRST, "max-ref-age-ms": 5});
    let said = json!({"snapshot-id": FIRST, "type": "tag", "max-ref-age-ms": 5});
    let doc = check(V2, json!([tag.clone()]), &[("/refs/v1", said)]);
    let text = String::from_utf8(doc.to_bytes().to_vec()).expect("UTF-8");
    check_nothing(&text, json!([tag]));
    check_nothing(V2, json!([set_ref("main", SECOND)]));
    check_nothing(V2, json!([{"action": "remove-snapshot-ref", "ref-name": "nobody"}]));
    let with = |name: &str, kind: &str, key: &str, value: i64| {
        json!([{"action": "set-snapshot-ref", "ref-name": name, "type": kind,
            "snapshot-id": FIRST, key: value}])
    };
    let cases = [
        (with("main", "tag", "x", 1), Kind::Validation, "it is a branch"),
        (with("a", "twig", "x", 1), Kind::IllegalArgument, "Invalid snapshot ref type: twig"),
        (
            with("a", "tag", "min-snapshots-to-keep", 1),
            Kind::IllegalArgument,
            "Tags do not support setting minSnapshotsToKeep",
        ),
        (
            with("a", "tag", "max-snapshot-age-ms", 1),
            Kind::IllegalArgument,
            "Tags do not support setting maxSnapshotAgeMs",
        ),
        (
            with("a", "branch", "min-snapshots-to-keep", 0),
            Kind::IllegalArgument,
            "Min snapshots to keep must be greater than 0",
        ),
        (
            with("a", "branch", "max-ref-age-ms", -1),
            Kind::IllegalArgument,
            "Max reference age must be greater than 0",
        ),
    ];
    for (updates, kind, message) in cases {
        check_refused(V2, updates, kind, message);
    }
}

fn schema(fields: &[(i32, &str)]) -> Value {
    let field = |(id, name): &(i32, &str)| json!({"id": id, "name": name, "required": false, "type": "long"});
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
    // What partitions the table must be there.
    let without = schema(&[(2, "y")]);
    let updates = json!([
        {"action": "add-schema", "schema": without},
        {"action": "set-current-schema", "schema-id": -1},
    ]);
    let message = "Cannot find source column for partition field";
    check_refused(V2, updates, Kind::Validation, message);
    let set = |id| json!([{"action": "set-current-schema", "schema-id": id}]);
    check_nothing(V2, set(1));
    check_refused(V2, set(9), Kind::Validation, "Cannot set current schema to unknown schema: 9");
    check_refused(V2, set(-1), Kind::Validation, "no schema has been added");
    let remove = |ids: &[i32]| json!([{"action": "remove-schemas", "schema-ids": ids}]);
    check(V2, remove(&[0, 5]), &[("/schemas/0", json!(null))]);
    check_refused(V2, remove(&[1]), Kind::IllegalArgument, "Cannot remove the current schema");
    let used = V2.replace(r#""schema-id":1,"x-new""#, r#""schema-id":0,"x-new""#);
    check_refused(&used, remove(&[0]), Kind::Validation, "was written with it");
    let expired = json!([
        {"action": "remove-schemas", "schema-ids": [0]},
        {"action": "remove-snapshots", "snapshot-ids": [SECOND]},
    ]);
    assert!(applied(&parse(&used), expired).expect("applied").is_some());
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
        check_refused(V2, updates, Kind::Validation, message);
    }
    let removal = json!([{"action": "remove-partition-specs", "spec-ids": [0]}]);
    check_refused(V2, removal, Kind::IllegalArgument, "Cannot remove the default partition spec");
    check_nothing(V2, json!([{"action": "remove-partition-specs", "spec-ids": [4]}]));
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
            Kind::Validation,
            "Cannot reassign the UUID",
        ),
        (
            json!([{"action": "set-location", "location": ""}]),
            Kind::Validation,
            "Cannot set an empty location",
        ),
        (
            json!([{"action": "set-properties",
                "updates": {"write.metadata.previous-versions-max": "many"}}]),
            Kind::Validation,
            "is not a number",
        ),
        (
            json!([{"action": "set-properties", "updates": {"format-version": "two"}}]),
            Kind::IllegalArgument,
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
    let said = value(&second);
    assert_eq!(said["schemas"][0]["schema-id"], json!(0));
    assert_eq!(said["partition-specs"][0]["fields"][1]["field-id"], json!(1001));
    assert_eq!(said["last-partition-id"], json!(1001));
    assert_eq!(said["sort-orders"], json!([{"order-id": 0, "fields": []}]));
    assert_eq!(said["last-sequence-number"], json!(0));
    for gone in ["schema", "partition-spec", "next-row-id"] {
        assert!(said.get(gone).is_none(), "{gone} is still there");
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
        check_refused(V2, upgrade(version), Kind::IllegalArgument, message);
    }
    let nameless = V1.replace(r#""table-uuid":"d20125c8-7284-442c-9aea-15fee620737c","#, "");
    check_refused(&nameless, upgrade(2), Kind::Validation, "UUID is required in format v2");
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
    let said = value(&doc);
    assert_eq!(said["schema"], said["schemas"][1]);
    assert_eq!(said["partition-spec"], said["partition-specs"][1]["fields"]);
    assert_eq!(said["schema"]["schema-id"], json!(1));
    assert_eq!(doc.last_column_id, 9);
    let gap = json!([{"action": "add-spec", "spec": {"fields": [
        {"source-id": 3, "transform": "identity", "name": "z", "field-id": 1005}]}}]);
    check_refused(V1, gap, Kind::Validation, "sequential IDs that are required in v1");
}

#[test]
fn requirements_speak_as_the_reference_does() {
    let base = parse(V2);
    let read = |value: Value| {
        let body = json!({"requirements": [value], "updates": []});
        parse_commit(&fragment(&body)).expect("a commit").requirements
    };
    let main =
        |id: Value| json!({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": id});
    let other =
        |id: Value| json!({"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": id});
    let cases = [
        (json!({"type": "assert-create"}), "table already exists"),
        (json!({"type": "assert-table-uuid", "uuid": "9C12D441-03FE-4693-9A96-A0705DDF69C1"}), ""),
        (
            json!({"type": "assert-table-uuid", "uuid": "u"}),
            "UUID does not match: expected 9c12d441-03fe-4693-9a96-a0705ddf69c1 != u",
        ),
        (main(json!(SECOND)), ""),
        (main(json!(1)), "branch main has changed: expected id 1 != 3055729675574597004"),
        (main(json!(null)), "branch main was created concurrently"),
        (json!({"type": "assert-ref-snapshot-id", "ref": "t"}), "tag t was created concurrently"),
        (other(json!(null)), ""),
        (other(json!(5)), "branch or tag b is missing, expected 5"),
        (json!({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3}), ""),
        (
            json!({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}),
            "last assigned field id changed: expected id 2 != 3",
        ),
        (
            json!({"type": "assert-current-schema-id", "current-schema-id": 0}),
            "current schema changed: expected id 0 != 1",
        ),
        (
            json!({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999}),
            "last assigned partition id changed: expected id 999 != 1000",
        ),
        (
            json!({"type": "assert-default-spec-id", "default-spec-id": 1}),
            "default partition spec changed: expected id 1 != 0",
        ),
        (
            json!({"type": "assert-default-sort-order-id", "default-sort-order-id": 0}),
            "default sort order changed: expected id 0 != 3",
        ),
    ];
    for (requirement, message) in cases {
        match super::check(&read(requirement.clone()), Some(&base)) {
            Ok(()) => assert_eq!(message, "", "{requirement} holds"),
            Err(error) => {
                assert_eq!(error.message, format!("Requirement failed: {message}"));
                assert_eq!(error.kind, Kind::CommitFailed);
            }
        }
    }
    assert!(super::check(&read(json!({"type": "assert-create"})), None).is_ok());
    assert!(super::check(&read(main(json!(1))), None).is_err());
    assert!(is_create(&[Requirement::Create]).expect("only that"));
    assert!(!is_create(&[Requirement::DefaultSpecId(0)]).expect("not that"));
    let both = is_create(&[Requirement::Create, Requirement::DefaultSpecId(0)]).expect_err("both");
    assert_eq!(both.message, "Invalid create requirements: [assert-default-spec-id]");
    assert_eq!(both.kind, Kind::IllegalArgument);
}

#[test]
fn what_is_not_known_or_not_whole_is_refused() {
    let body = |requirements: Value, updates: Value| {
        parse_commit(&fragment(&json!({"requirements": requirements, "updates": updates})))
    };
    let cases = [
        (json!([{"type": "assert-luck"}]), json!([]), "Unknown requirement type: assert-luck"),
        (json!([{}]), json!([]), "`type` is missing"),
        (json!([{"type": "assert-table-uuid"}]), json!([]), "`uuid` is missing"),
        (json!([]), json!([{"action": "explode"}]), "Unknown update action: explode"),
        (json!([]), json!([{}]), "`action` is missing"),
        (json!([]), json!([1]), "`action` is missing"),
        (json!([]), json!({}), "not an array"),
        (json!([]), json!(null), "`updates` is missing"),
        (json!([]), json!([{"action": "add-schema", "schema": 5}]), "is a number, not an object"),
        (
            json!([]),
            json!([{"action": "set-current-schema", "schema-id": "0"}]),
            "`schema-id` is not a whole number",
        ),
        (
            json!([]),
            json!([{"action": "remove-snapshots", "snapshot-ids": [1.5]}]),
            "whole number of 64 bits",
        ),
        (
            json!([]),
            json!([{"action": "set-properties", "updates": {"a": 1}}]),
            "the property `a` is not a string",
        ),
        (json!(vec![json!({"type": "assert-create"}); 1001]), json!([]), "1000 requirements"),
        (
            json!([]),
            json!(vec![json!({"action": "set-location", "location": "x"}); 10_001]),
            "10000 updates",
        ),
    ];
    for (requirements, updates, message) in cases {
        let error = body(requirements, updates).expect_err(message);
        assert!(error.message.contains(message), "{}", error.message);
        assert!([400, 413].contains(&error.kind.status()));
    }
    let named = json!({"identifier": {"namespace": ["a", "b"], "name": "t"}, "updates": []});
    let named = parse_commit(&fragment(&named)).expect("a commit without requirements");
    assert_eq!(named.identifier.map(|it| it.to_string()).as_deref(), Some("a.b.t"));
    // One removal for each snapshot is what clients send.
    let removals = vec![json!({"action": "remove-snapshots", "snapshot-ids": [FIRST]}); 20_000];
    assert!(body(json!([]), json!(removals)).is_ok());
}

#[test]
fn a_staged_create_is_finished_by_its_updates() {
    let all = json!([
        {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-schema", "schema": schema(&[(1, "x"), (2, "y")])},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": "file:/wh/t"},
        {"action": "set-properties", "updates": {"a": "b"}},
    ]);
    let updates = commit(all).expect("a commit").updates;
    let doc = from_updates(&updates, "unused", "unused", NOW_MS).expect("a table");
    assert_eq!(
        value(&doc),
        json!({
            "format-version": 3, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "file:/wh/t", "last-sequence-number": 0, "last-updated-ms": NOW_MS,
            "last-column-id": 2, "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": [
                {"id": 1, "name": "x", "required": false, "type": "long"},
                {"id": 2, "name": "y", "required": false, "type": "long"}]}],
            "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999, "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}], "properties": {"a": "b"},
            "current-snapshot-id": null, "next-row-id": 0, "refs": {}, "snapshots": [],
            "statistics": [], "partition-statistics": [], "snapshot-log": [], "metadata-log": []
        })
    );
    // What a client leaves out is what a table has that nobody asks anything of.
    let short = json!([
        {"action": "add-schema", "schema": schema(&[(1, "x")])},
        {"action": "set-current-schema", "schema-id": -1},
    ]);
    let uuid = "9c12d441-03fe-4693-9a96-a0705ddf69c3";
    let updates = commit(short).expect("a commit").updates;
    let doc = from_updates(&updates, uuid, "file:/d", NOW_MS).expect("a table");
    assert_eq!((doc.format_version, &*doc.uuid, &*doc.location), (2, uuid, "file:/d"));
    let none = from_updates(&[], uuid, "file:/d", NOW_MS).expect_err("no schema");
    assert_eq!(none.message, "Cannot create a table without a schema");
}

#[test]
fn the_metadata_log_keeps_as_many_as_it_is_told() {
    let mut doc = parse(V2);
    let mut fallen = Vec::new();
    for at in 0..150 {
        let updates = json!([{"action": "set-properties", "updates": {"n": at.to_string()}}]);
        let base = doc;
        let new = applied(&base, updates).expect("applied").expect("a change");
        let (new, gone) = logged(new, &base, &format!("s3://b/v{at}.json"));
        fallen.extend(gone);
        doc = new;
    }
    assert_eq!(doc.metadata_log.len(), 100);
    assert_eq!(
        doc.metadata_log.last().map(|it| it.metadata_file.to_string()).as_deref(),
        Some("s3://b/v149.json")
    );
    assert_eq!(fallen.len(), 51);
    assert_eq!(fallen[..2], ["s3://b/v1.json", "s3://b/v0.json"]);
    for (most, left) in [("3", 3), ("0", 1), ("-5", 1), ("2147483647", 101)] {
        let updates = json!([{"action": "set-properties", "updates": {
            "write.metadata.previous-versions-max": most,
            "write.metadata.delete-after-commit.enabled": "TRUE"}}]);
        let new = applied(&doc, updates).expect("applied").expect("a change");
        let (new, _) = logged(new, &doc, "s3://b/last.json");
        assert!(new.deletes_old_metadata() && !doc.deletes_old_metadata());
        assert_eq!(new.metadata_log.len(), left, "{most}");
        value(&new);
    }
}

#[test]
fn a_removal_for_each_of_many_snapshots_takes_no_time() {
    let mut whole: Value = serde_json::from_str(V2).expect("JSON");
    let many: Vec<Value> = (0..5_000).map(|id| snapshot(id, None, 1, 1)).collect();
    whole["snapshots"].as_array_mut().expect("snapshots").extend(many);
    let removal = |id: i64| json!({"action": "remove-snapshots", "snapshot-ids": [id]});
    let updates: Vec<Value> = (0..5_000).map(removal).collect();
    let doc = applied(&parse(&whole.to_string()), json!(updates)).expect("applied");
    assert_eq!(doc.expect("a change").snapshots.len(), 2);
}

#[test]
fn what_enters_a_document_does_not_hold_on_to_the_request() {
    let padding = " ".repeat(1 << 16);
    let new = snapshot(7, None, 35, NOW_MS).to_string().replace(',', &format!(",{padding}"));
    let body = format!(r#"{{"updates":[{{"action":"add-snapshot","snapshot":{new}}}]}}"#);
    let body = Fragment::parse(body.into()).expect("JSON");
    let request = parse_commit(&body).expect("a commit");
    let doc = apply(&parse(V2), &request.updates, NOW_MS).expect("applied").expect("a change");
    assert_eq!(
        doc.snapshot(7).map(|it| it.raw.text().to_owned()),
        Some(snapshot(7, None, 35, NOW_MS).to_string())
    );
}

/// An update of any kind, mostly about things that are there.
fn any_update() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(vec![FIRST, SECOND, 7, 8, 9, -1]);
    let small = -1..4_i32;
    let name = prop::sample::select(vec!["main", "t", "b"]);
    prop_oneof![
        (id.clone(), 30..40_i64).prop_map(|(id, n)| add(&snapshot(id, None, n, NOW_MS))),
        (name.clone(), id.clone()).prop_map(|(name, id)| set_ref(name, id)),
        prop::collection::vec(id.clone(), 0..3)
            .prop_map(|ids| json!({"action": "remove-snapshots", "snapshot-ids": ids})),
        name.prop_map(|name| json!({"action": "remove-snapshot-ref", "ref-name": name})),
        small.clone().prop_map(|id| json!({"action": "set-current-schema", "schema-id": id})),
        small.clone().prop_map(|id| json!({"action": "set-default-spec", "spec-id": id})),
        small.clone().prop_map(|id| json!({"action": "set-default-sort-order", "sort-order-id": id})),
        small.clone().prop_map(|id| json!({"action": "upgrade-format-version", "format-version": id})),
        prop::collection::vec(small.clone(), 0..2)
            .prop_map(|ids| json!({"action": "remove-schemas", "schema-ids": ids})),
        prop::collection::vec(small, 0..2)
            .prop_map(|ids| json!({"action": "remove-partition-specs", "spec-ids": ids})),
        (1..6_i32).prop_map(|id| json!({"action": "add-schema", "schema": schema(&[(1, "x"), (2, "y"), (id + 2, "n")])})),
        (1..4_i32).prop_map(|id| json!({"action": "add-spec", "spec": {"fields": [
            {"source-id": id, "transform": "identity", "name": "p"}]}})),
        (1..4_i32).prop_map(|id| json!({"action": "add-sort-order", "sort-order": {"fields": [
            {"source-id": id, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}})),
        ("[ab]", "[ab]").prop_map(|(k, v)| json!({"action": "set-properties", "updates": {k: v}})),
        "[ab]".prop_map(|k| json!({"action": "remove-properties", "removals": [k]})),
        id.prop_map(|id| json!({"action": "set-statistics", "statistics": {
            "snapshot-id": id, "statistics-path": "s3://p"}})),
    ]
}

proptest! {
    /// Whatever is asked: either it is refused, or a document comes out that its own reader takes,
    /// with every member that nobody knows still in it.
    #[test]
    fn commits_leave_a_document_that_can_be_read(
        base in prop::sample::select(vec![V1, V2, V3]),
        updates in prop::collection::vec(any_update(), 1..7),
    ) {
        let base = parse(base);
        if let Ok(Some(doc)) = applied(&base, json!(updates)) {
            let (doc, _) = logged(doc, &base, "s3://b/before.json");
            let said = value(&doc);
            for (name, raw) in base.unknown() {
                prop_assert_eq!(said[&*name.as_str()].to_string(), raw.text().parse::<Value>().expect("JSON").to_string());
            }
            prop_assert_eq!(doc.settle().expect("settled").1, doc.to_bytes());
        }
    }
}
