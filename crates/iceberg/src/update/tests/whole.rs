//! Whole commits: parsing, requirements, and any mixture of updates.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

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
        match crate::update::check(&read(requirement.clone()), Some(&base)) {
            Ok(()) => assert_eq!(message, "", "{requirement} holds"),
            Err(error) => {
                assert_eq!(error.message, format!("Requirement failed: {message}"));
                assert_eq!(error.kind, ErrorReason::CommitFailed);
            }
        }
    }
    assert!(crate::update::check(&read(json!({"type": "assert-create"})), None).is_ok());
    assert!(crate::update::check(&read(main(json!(1))), None).is_err());
    assert!(is_create(&[CommitRequirement::Create]).expect("only that"));
    assert!(!is_create(&[CommitRequirement::DefaultSpecId(0)]).expect("not that"));
    let both = is_create(&[CommitRequirement::Create, CommitRequirement::DefaultSpecId(0)])
        .expect_err("both");
    assert_eq!(both.message, "Invalid create requirements: [assert-default-spec-id]");
    assert_eq!(both.kind, ErrorReason::IllegalArgument);
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
    // Clients send one removal for each snapshot.
    let removals = vec![json!({"action": "remove-snapshots", "snapshot-ids": [FIRST]}); 10_050];
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
    // Omitted parts get the defaults of a new table.
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
        doc.metadata_log.last().map(|it| it.metadata_file()).as_deref(),
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
    let body = RawJson::parse(body.into()).expect("JSON");
    let request = parse_commit(&body).expect("a commit");
    let doc = apply(&parse(V2), &request.updates, NOW_MS).expect("applied").expect("a change");
    assert_eq!(
        doc.snapshot(7).map(|it| it.raw.text().to_owned()),
        Some(snapshot(7, None, 35, NOW_MS).to_string())
    );
}

/// An update of any kind, mostly of existing objects.
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
        small
            .clone()
            .prop_map(|id| json!({"action": "set-default-sort-order", "sort-order-id": id})),
        small
            .clone()
            .prop_map(|id| json!({"action": "upgrade-format-version", "format-version": id})),
        prop::collection::vec(small.clone(), 0..2)
            .prop_map(|ids| json!({"action": "remove-schemas", "schema-ids": ids})),
        prop::collection::vec(small, 0..2)
            .prop_map(|ids| json!({"action": "remove-partition-specs", "spec-ids": ids})),
        (1..6_i32).prop_map(|id| {
            let fields = [(1, "x"), (2, "y"), (id + 2, "n")];
            json!({"action": "add-schema", "schema": schema(&fields)})
        }),
        (1..4_i32).prop_map(|id| json!({"action": "add-spec", "spec": {"fields": [
            {"source-id": id, "transform": "identity", "name": "p"}]}})),
        (1..4_i32).prop_map(|id| json!({"action": "add-sort-order", "sort-order": {"fields": [
            {"source-id": id, "transform": "identity", "direction": "asc",
                "null-order": "nulls-first"}]}})),
        ("[ab]", "[ab]").prop_map(|(k, v)| json!({"action": "set-properties", "updates": {k: v}})),
        "[ab]".prop_map(|k| json!({"action": "remove-properties", "removals": [k]})),
        id.prop_map(|id| json!({"action": "set-statistics", "statistics": {
            "snapshot-id": id, "statistics-path": "s3://p"}})),
    ]
}

proptest! {
    /// Any commit is either rejected, or results in a document that its own reader accepts, with
    /// all unknown members.
    #[test]
    fn commits_leave_a_document_that_can_be_read(
        base in prop::sample::select(vec![V1, V2, V3]),
        updates in prop::collection::vec(any_update(), 1..7),
    ) {
        let base = parse(base);
        if let Ok(Some(doc)) = applied(&base, json!(updates)) {
            let (doc, _) = logged(doc, &base, "s3://b/before.json");
            let document = value(&doc);
            for (name, raw) in base.unknown() {
                let raw: Value = raw.decode().expect("JSON");
                prop_assert_eq!(&document[&*name.as_str()], &raw);
            }
            prop_assert_eq!(doc.clone().settle().expect("settled").1, doc.to_bytes());
        }
    }
}
