//! New tables equal those that the reference (Iceberg 1.11) creates from the same requests.

use serde_json::{Value, json};

use super::*;
use crate::ErrorReason;

const CREATES: &str = include_str!("tests/creates.json");
const UUID: Uuid = Uuid::from_bytes([7; 16]);
const NOW_MS: i64 = 1_700_000_000_000;

fn fragment(value: &Value) -> RawJson {
    RawJson::of(value).expect("JSON")
}

fn written(doc: &TableDoc) -> Value {
    serde_json::from_slice(&doc.to_bytes()).expect("JSON")
}

#[test]
fn tables_begin_as_those_of_the_reference() {
    let cases: Vec<Value> = serde_json::from_str(CREATES).expect("a table");
    assert!(cases.len() >= 9);
    for case in cases {
        let mut body = case.clone();
        body["name"] = json!("t");
        let request = CreateTable::parse(&fragment(&body)).expect("a request");
        let location = request.location.clone().expect("a location");
        let doc = request.document(UUID, &location, NOW_MS);
        let (doc, expected) = match (doc, case["refused"].as_str()) {
            (Ok(doc), None) => (doc, &case["table"]),
            (Err(error), Some(message)) => {
                assert!(error.message.contains(message), "{case}\n{error:?}");
                continue;
            }
            (doc, _) => panic!("{case}\n{doc:?}"),
        };
        let table = written(&doc);
        for (name, expected) in expected.as_object().expect("a table") {
            assert_eq!(&table[name], expected, "{name} of {case}");
        }
        assert_eq!(table["table-uuid"], json!(UUID.to_string()));
        assert_eq!(table["last-updated-ms"], json!(NOW_MS));
        // The document is valid, and commits can continue from it.
        let (read, _) = doc.clone().settle().expect("settled");
        let read = TableDoc::parse(read.to_bytes()).expect("a document");
        check_registered(&read).expect("a table");
        assert_eq!(written(&read), table);
    }
}

#[test]
fn what_is_no_request_is_none() {
    let schema = json!({"type": "struct", "fields": []});
    for (body, expected) in [
        (json!({"schema": schema}), "Invalid table name: null"),
        (json!({"name": null, "schema": schema}), "Invalid table name: null"),
        (json!({"name": 7, "schema": schema}), "`name` is not a string"),
        (json!({"name": "t"}), "Invalid schema: null"),
        (json!({"name": "t", "schema": []}), "`schema` is an array, not an object"),
        (json!({"name": "t", "schema": schema, "write-order": 1}), "`write-order` is a number"),
        (json!({"name": "t", "schema": schema, "stage-create": "yes"}), "`stage-create`"),
        (json!({"name": "t", "schema": schema, "location": ""}), "`location` is empty"),
        (json!({"name": "t", "schema": schema, "properties": {"a": 1}}), "`a` is not a string"),
        (json!([]), "Invalid table name: null"),
    ] {
        let refused = CreateTable::parse(&fragment(&body)).expect_err("no request");
        assert_eq!(refused.kind, ErrorReason::BadRequest, "{body}");
        assert!(refused.message.contains(expected), "{body} {refused:?}");
    }
    let nulls = json!({"name": "t", "schema": schema, "location": null, "partition-spec": null,
        "write-order": null, "stage-create": null, "properties": null});
    let request = CreateTable::parse(&fragment(&nulls)).expect("a request");
    assert!(!request.is_staged && request.location.is_none() && request.spec.is_none());
    let staged = json!({"name": "t", "schema": schema, "stage-create": true});
    assert!(CreateTable::parse(&fragment(&staged)).expect("a request").is_staged);
    let most = json!({"name": "t", "schema": schema,
        "properties": {"write.metadata.previous-versions-max": "many"}});
    let request = CreateTable::parse(&fragment(&most)).expect("a request");
    let refused = request.document(UUID, "file:///t", NOW_MS).expect_err("no number");
    assert_eq!(refused.kind, ErrorReason::Validation);
}

#[test]
fn a_location_ends_without_a_slash() {
    for (location, expected) in [
        ("file:///a//", "file:///a"),
        ("s3://", "s3://"),
        ("s3://b/", "s3://b"),
        ("/", ""),
        ("a", "a"),
    ] {
        assert_eq!(without_slash(location), expected);
    }
}

#[test]
fn a_table_is_registered_if_commits_can_go_on_from_it() {
    let base = json!({
        "format-version": 2, "table-uuid": UUID.to_string(), "location": "file:///t",
        "last-sequence-number": 0, "last-updated-ms": 1, "last-column-id": 1,
        "current-schema-id": 0, "schemas": [{"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "a", "required": true, "type": "int"}]}],
        "default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": [
            {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "a"}]}],
        "last-partition-id": 1000, "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
    });
    let check = |change: fn(&mut Value)| {
        let mut changed = base.clone();
        change(&mut changed);
        check_registered(&TableDoc::parse(changed.to_string().into()).expect("a document"))
    };
    assert!(check(|_| {}).is_ok());
    for (change, expected) in [
        (
            (|doc| {
                doc["format-version"] = json!(1);
                doc["table-uuid"] = json!(null);
            }) as fn(&mut Value),
            "without a UUID",
        ),
        (|doc| doc["last-column-id"] = json!(0), "`last-column-id` is 0"),
        (|doc| doc["schemas"][0]["fields"] = json!([]), "Cannot find source column"),
        (|doc| doc["schemas"][0]["fields"] = json!({}), "non-array"),
        (
            |doc| {
                doc["sort-orders"][0]["fields"] = json!([{"source-id": 9, "transform": "identity",
                    "direction": "asc", "null-order": "nulls-last"}]);
            },
            "Cannot find source column for sort field: identity(9) ASC NULLS LAST",
        ),
    ] {
        let refused = check(change).expect_err(expected);
        assert!(refused.message.contains(expected), "{refused:?}");
    }
}
