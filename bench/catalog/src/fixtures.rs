//! Documents to measure: those of the seed's benchmark by their definitions, and a long one.

use serde_json::{Map, Value, json};

/// Returns the seed's document of 20 columns, of 1640 bytes.
pub fn small() -> Value {
    let properties = json!({"owner": "test", "created-by": "bingsan"});
    let empty = (json!([{"spec-id": 0, "fields": []}]), json!([{"order-id": 0, "fields": []}]));
    seed("test_table", (20, 0), properties, empty, json!({}))
}

/// Returns the seed's document of 100 columns and 10 snapshots, of 8113 bytes.
pub fn large() -> Value {
    let refs = json!({"main": {"snapshot-id": 1}});
    seed("large_table", (100, 10), json!({"owner": "test"}), (json!([]), json!([])), refs)
}

/// Returns the seed's document of 20 columns and twelve members, of 1523 bytes.
pub fn twelve_keys() -> Value {
    let properties = json!({"owner": "test"});
    let nothing = (json!([]), json!([]));
    let mut whole = seed("test_table", (20, 0), properties, nothing, json!({}));
    let members = whole.as_object_mut().expect("an object");
    for name in ["default-sort-order-id", "sort-orders"] {
        members.remove(name);
    }
    whole
}

fn seed(
    name: &str,
    (columns, snapshots): (usize, u8),
    properties: Value,
    (specs, orders): (Value, Value),
    refs: Value,
) -> Value {
    json!({
        "format-version": 2, "table-uuid": "550e8400-e29b-41d4-a716-446655440000",
        "location": format!("s3://warehouse/default/{name}"),
        "last-updated-ms": 1_703_376_000_000_i64,
        "properties": properties, "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "type": "struct", "fields": fields(columns)}],
        "default-spec-id": 0, "partition-specs": specs, "default-sort-order-id": 0,
        "sort-orders": orders, "snapshots": (0..snapshots).map(snapshot).collect::<Vec<_>>(),
        "snapshot-log": [], "refs": refs,
    })
}

fn fields(columns: usize) -> Vec<Value> {
    let field = |index: usize| {
        let letter = char::from(b'a' + u8::try_from(index % 26).expect("less than 26"));
        json!({"id": index + 1, "name": format!("field_{letter}"), "required": index.is_multiple_of(2),
            "type": "string"})
    };
    (0..columns).map(field).collect()
}

fn snapshot(index: u8) -> Value {
    let letter = char::from(b'0' + index);
    json!({
        "snapshot-id": index + 1, "timestamp-ms": 1_703_376_000_000_i64 + i64::from(index) * 1000,
        "summary": {"operation": "append"}, "sequence-number": index + 1, "schema-id": 0,
        "manifest-list": format!("s3://warehouse/default/test/metadata/snap-{letter}"),
    })
}

/// Adds the members that make a seed document valid Iceberg metadata: the seed's documents lack
/// members and contain dangling references.
pub fn completed(document: &Value) -> Value {
    let mut whole: Map<String, Value> = document.as_object().expect("an object").clone();
    let snapshots = document["snapshots"].as_array().expect("snapshots");
    whole.insert("last-sequence-number".into(), snapshots.len().into());
    whole.insert("last-column-id".into(), fields_of(document).into());
    whole.insert("last-partition-id".into(), 999.into());
    whole.insert("partition-specs".into(), json!([{"spec-id": 0, "fields": []}]));
    whole.insert("sort-orders".into(), json!([{"order-id": 0, "fields": []}]));
    if let Some(first) = snapshots.first() {
        let id = &first["snapshot-id"];
        whole.insert("current-snapshot-id".into(), id.clone());
        whole.insert("refs".into(), json!({"main": {"snapshot-id": id, "type": "branch"}}));
    }
    whole.into()
}

fn fields_of(document: &Value) -> usize {
    document["schemas"][0]["fields"].as_array().map_or(0, Vec::len)
}

/// Returns a document with `snapshots` snapshots in the form that engines write.
pub fn long(snapshots: i64) -> Value {
    let id = |index: i64| 7_000_000_000_000_000_000 + index;
    let at = |index: i64| 1_703_376_000_000 + index * 1000;
    let one = |index: i64| {
        json!({
            "sequence-number": index, "snapshot-id": id(index), "parent-snapshot-id": id(index - 1),
            "timestamp-ms": at(index), "schema-id": 0,
            "manifest-list": format!("s3://warehouse/default/test/metadata/s{}.avro", id(index)),
            "summary": {
                "operation": "append", "spark.app.id": "local-1717171717171",
                "added-data-files": "1", "added-records": "1000", "added-files-size": "48213",
                "changed-partition-count": "1", "total-records": (index * 1000).to_string(),
                "total-files-size": "123456789", "total-data-files": index.to_string(),
                "total-delete-files": "0", "total-position-deletes": "0",
                "total-equality-deletes": "0", "engine-name": "spark", "engine-version": "4.0.1",
            },
        })
    };
    let entry = |index: i64| json!({"timestamp-ms": at(index), "snapshot-id": id(index)});
    let mut whole = completed(&small());
    whole["snapshots"] = (1..=snapshots).map(one).collect();
    whole["snapshot-log"] = (1..=snapshots).map(entry).collect();
    whole["last-updated-ms"] = at(snapshots).into();
    whole["last-sequence-number"] = snapshots.into();
    whole["current-snapshot-id"] = id(snapshots).into();
    whole["refs"] = json!({"main": {"snapshot-id": id(snapshots), "type": "branch"}});
    whole
}

/// Returns a commit that appends to [`long`].
pub fn append(snapshots: i64) -> String {
    let id = 7_000_000_000_000_000_001 + snapshots;
    json!({
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": id - 1}],
        "updates": [
            {"action": "add-snapshot", "snapshot": {
                "sequence-number": snapshots + 1, "snapshot-id": id, "parent-snapshot-id": id - 1,
                "timestamp-ms": 1_703_376_000_500_i64 + snapshots * 1000, "schema-id": 0,
                "summary": {"operation": "append"}, "manifest-list": "s3://warehouse/next.avro",
            }},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id},
        ],
    })
    .to_string()
}
