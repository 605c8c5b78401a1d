//! Scans of tables whose manifests are built here, byte by byte.

use std::time::Duration;

use testkit::avro::AvroWriter;

use super::*;
use crate::service::{AccessRight, MANIFESTS_AT_ONCE_MAX};

const TABLE: &str = "/v1/main/namespaces/n/tables/t";

/// A field of a record that may be null.
fn optional(id: i32, name: &str, kind: &Value) -> Value {
    json!({"field-id": id, "name": name, "type": ["null", kind]})
}

fn required(id: i32, name: &str, kind: &Value) -> Value {
    json!({"field-id": id, "name": name, "type": kind})
}

fn pairs(id: i32, name: &str, value: &str) -> Value {
    let pair = json!({"type": "record", "name": format!("p{id}"), "fields": [
        required(id + 1000, "key", &json!("int")),
        required(id + 2000, "value", &json!(value)),
    ]});
    optional(id, name, &json!({"type": "array", "items": pair}))
}

fn manifest_schema() -> Value {
    let partition = json!({"type": "record", "name": "r102", "fields": [
        optional(1000, "data", &json!("string")),
    ]});
    let file = json!({"type": "record", "name": "r2", "fields": [
        required(134, "content", &json!("int")),
        required(100, "file_path", &json!("string")),
        required(101, "file_format", &json!("string")),
        required(102, "partition", &partition),
        required(103, "record_count", &json!("long")),
        required(104, "file_size_in_bytes", &json!("long")),
        pairs(109, "value_counts", "long"),
        pairs(110, "null_value_counts", "long"),
        pairs(125, "lower_bounds", "bytes"),
        pairs(128, "upper_bounds", "bytes"),
        optional(135, "equality_ids", &json!({"type": "array", "items": "int"})),
        optional(142, "first_row_id", &json!("long")),
        optional(143, "referenced_data_file", &json!("string")),
        optional(144, "content_offset", &json!("long")),
        optional(145, "content_size_in_bytes", &json!("long")),
    ]});
    json!({"type": "record", "name": "manifest_entry", "fields": [
        required(0, "status", &json!("int")),
        optional(1, "snapshot_id", &json!("long")),
        optional(3, "sequence_number", &json!("long")),
        required(2, "data_file", &file),
    ]})
}

fn list_schema() -> Value {
    let summary = json!({"type": "record", "name": "r508", "fields": [
        required(509, "contains_null", &json!("boolean")),
        optional(510, "lower_bound", &json!("bytes")),
        optional(511, "upper_bound", &json!("bytes")),
    ]});
    json!({"type": "record", "name": "manifest_file", "fields": [
        required(500, "manifest_path", &json!("string")),
        required(501, "manifest_length", &json!("long")),
        required(502, "partition_spec_id", &json!("int")),
        required(517, "content", &json!("int")),
        required(515, "sequence_number", &json!("long")),
        required(503, "added_snapshot_id", &json!("long")),
        required(504, "added_files_count", &json!("int")),
        required(505, "existing_files_count", &json!("int")),
        optional(507, "partitions", &json!({"type": "array", "items": summary})),
        optional(520, "first_row_id", &json!("long")),
    ]})
}

/// A data file in the partition of a text, with ids from one number to another.
fn data(name: &str, partition: Option<&str>, (from, to): (i64, i64)) -> Value {
    let bound = |id: i64| json!([{"key": 1, "value": id.to_le_bytes()}]);
    let count = to - from + 1;
    json!({"status": 1, "data_file": {
        "content": 0, "file_path": name, "file_format": "PARQUET",
        "partition": {"data": partition}, "record_count": count, "file_size_in_bytes": 100,
        "value_counts": [{"key": 1, "value": count}],
        "null_value_counts": [{"key": 1, "value": 0}],
        "lower_bounds": bound(from), "upper_bounds": bound(to),
    }})
}

/// A delete file; `more` has further fields.
fn deletes(name: &str, content: i32, partition: Option<&str>, more: &Value) -> Value {
    let mut file = json!({
        "content": content, "file_path": name, "file_format": "PARQUET",
        "partition": {"data": partition}, "record_count": 1, "file_size_in_bytes": 10,
    });
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    json!({"status": 1, "data_file": file})
}

/// A table whose snapshots are built here.
struct Lake<'a> {
    server: &'a Server,
    location: String,
    /// Of the last snapshot.
    list: Vec<Value>,
    sequence: i64,
}

impl<'a> Lake<'a> {
    /// Partitioned by `data`.
    fn new(server: &'a Server) -> Lake<'a> {
        let spec = json!({"spec-id": 0, "fields": [
            {"source-id": 2, "field-id": 1000, "name": "data", "transform": "identity"},
        ]});
        Lake::of(server, &new_table("t")["schema"], &spec)
    }

    /// Of a schema and a partition spec.
    fn of(server: &'a Server, schema: &Value, spec: &Value) -> Lake<'a> {
        let made = json!({"namespace": ["n"]});
        server.ask("POST", "/v1/main/namespaces", Some(&made));
        let mut table = new_table("t");
        table["schema"] = schema.clone();
        table["partition-spec"] = spec.clone();
        let made = server.ask("POST", "/v1/main/namespaces/n/tables", Some(&table)).json();
        let location = made["metadata"]["location"].as_str().unwrap().to_owned();
        Lake { server, location, list: Vec::new(), sequence: 0 }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let location = format!("{}/metadata/{name}.avro", self.location);
        std::fs::write(location.strip_prefix("file://").unwrap(), bytes).unwrap();
        location
    }

    /// Creates a snapshot that adds manifests, each of data or of deletes.
    fn snapshot(&mut self, operation: &str, manifests: &[(bool, Vec<Value>)]) -> i64 {
        self.sequence += 1;
        let id = 100 + self.sequence;
        for (place, (has_deletes, entries)) in manifests.iter().enumerate() {
            let mut writer = AvroWriter::new(&manifest_schema(), "deflate");
            for entry in entries {
                writer = writer.record(entry);
            }
            let writer = writer.header("partition-spec-id", "0");
            let path = self.write(&format!("m{id}-{place}"), &writer.bytes());
            let texts =
                entries.iter().filter_map(|it| it["data_file"]["partition"]["data"].as_str());
            let mut texts: Vec<_> = texts.collect();
            texts.sort_unstable();
            let bound = |it: Option<&&str>| it.map(|it| it.as_bytes().to_vec());
            let has_null = entries.iter().any(|it| it["data_file"]["partition"]["data"].is_null());
            self.list.push(json!({
                "manifest_path": path, "manifest_length": 1, "partition_spec_id": 0,
                "content": i32::from(*has_deletes), "sequence_number": self.sequence,
                "added_snapshot_id": id, "added_files_count": entries.len(),
                "existing_files_count": 0, "first_row_id": (!has_deletes).then_some(1000),
                "partitions": [{"contains_null": has_null,
                    "lower_bound": bound(texts.first()), "upper_bound": bound(texts.last())}],
            }));
        }
        let mut writer = AvroWriter::new(&list_schema(), "null");
        for manifest in &self.list {
            writer = writer.record(manifest);
        }
        let list = self.write(&format!("snap-{id}"), &writer.bytes());
        self.commit(id, operation, &list);
        id
    }

    fn commit(&self, id: i64, operation: &str, list: &str) {
        let parent = (id > 101).then_some(id - 1);
        let mut snapshot = json!({
            "snapshot-id": id, "sequence-number": id - 100, "timestamp-ms": node::clock::wall_ms(),
            "manifest-list": list, "summary": {"operation": operation}, "schema-id": 0,
        });
        if let Some(parent) = parent {
            snapshot["parent-snapshot-id"] = json!(parent);
        }
        let commit = json!({"requirements": [], "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id},
        ]});
        let response = self.server.ask("POST", TABLE, Some(&commit));
        assert_eq!(response.status, 200, "{}", response.text());
    }

    /// Plans a scan, and fetches all of it: returns the responses in order.
    fn scan(&self, request: &Value) -> Vec<Value> {
        let response = self.server.ask("POST", &format!("{TABLE}/plan"), Some(request));
        assert_eq!(response.status, 200, "{}", response.text());
        let mut answers = vec![response.json()];
        assert_eq!(answers[0]["status"], json!("completed"), "{}", answers[0]);
        let mut waiting = plan_tasks(&answers[0]);
        while let Some(task) = waiting.pop() {
            let body = json!({"plan-task": task});
            let response = self.server.ask("POST", &format!("{TABLE}/tasks"), Some(&body));
            assert_eq!(response.status, 200, "{}", response.text());
            let answer = response.json();
            waiting.extend(plan_tasks(&answer));
            answers.push(answer);
        }
        answers
    }

    /// Returns the names of files that a scan reads, each with those of its deletes.
    fn files(&self, request: &Value) -> Vec<String> {
        let answers = self.scan(request);
        let mut files: Vec<String> = answers.iter().flat_map(named).collect();
        files.sort_unstable();
        files
    }
}

fn plan_tasks(answer: &Value) -> Vec<Value> {
    answer["plan-tasks"].as_array().cloned().unwrap_or_default()
}

fn named(answer: &Value) -> Vec<String> {
    let path = |file: &Value| file["file-path"].as_str().unwrap().to_owned();
    let tasks = answer["file-scan-tasks"].as_array().unwrap().iter();
    let name = |task: &Value| {
        let mut name = path(&task["data-file"]);
        for place in task["delete-file-references"].as_array().into_iter().flatten() {
            let place = usize::try_from(place.as_u64().unwrap()).unwrap();
            name = format!("{name} {}", path(&answer["delete-files"][place]));
        }
        name
    };
    tasks.map(name).collect()
}

fn filter(filter: &Value) -> Value {
    json!({"filter": filter})
}

#[test]
fn files_are_left_out_by_manifest_by_partition_and_by_bounds() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    assert_eq!(lake.files(&json!({})), [""; 0]);
    lake.snapshot(
        "append",
        &[
            (false, vec![data("a1", Some("a"), (1, 10)), data("b1", Some("b"), (11, 20))]),
            (false, vec![data("c1", Some("c"), (21, 30)), data("n1", None, (31, 40))]),
        ],
    );
    for (expression, expected) in [
        (json!(true), vec!["a1", "b1", "c1", "n1"]),
        (json!({"type": "false"}), vec![]),
        (json!({"type": "eq", "term": "data", "value": "a"}), vec!["a1"]),
        (json!({"type": "gt", "term": "id", "value": 20}), vec!["c1", "n1"]),
        (json!({"type": "is-null", "term": "data"}), vec!["n1"]),
        (json!({"type": "not-eq", "term": "data", "value": "a"}), vec!["b1", "c1", "n1"]),
        (
            json!({"type": "eq", "left": {"type": "reference", "id": 1},
                "right": {"type": "literal", "value": 15, "data-type": "long"}}),
            vec!["b1"],
        ),
        (
            json!({"type": "lt", "left": 25, "right": {"type": "reference", "name": "id"}}),
            vec!["c1", "n1"],
        ),
        (
            json!({"type": "not", "child": {"type": "or",
                "left": {"type": "in", "child": {"type": "reference", "name": "data"},
                    "values": {"type": "literals", "data-type": "string", "values": ["a", "b"]}},
                "right": {"type": "lt-eq", "term": "id", "value": 30}}}),
            vec!["n1"],
        ),
    ] {
        assert_eq!(lake.files(&filter(&expression)), expected, "{expression}");
    }
    // The residual filter is the part that the partition does not imply.
    let both = json!({"type": "and", "left": {"type": "eq", "term": "data", "value": "a"},
        "right": {"type": "gt", "term": "id", "value": 5}});
    let answers = lake.scan(&filter(&both));
    let rest = json!({"type": "gt", "term": "id", "value": 5});
    let task = &answers[0]["file-scan-tasks"][0];
    assert_eq!(task["residual-filter"], rest);
    assert_eq!(
        task["data-file"],
        json!({
            "content": "data", "file-path": "a1", "file-format": "parquet", "spec-id": 0,
            "partition": ["a"], "file-size-in-bytes": 100, "record-count": 10, "first-row-id": 1000,
            "data-sequence-number": 1,
        })
    );
    let mut expression = filter(&both);
    expression["stats-fields"] = json!(["ID"]);
    expression["case-sensitive"] = json!(false);
    let stats = lake.scan(&expression)[0]["file-scan-tasks"][0]["data-file"].clone();
    // The bytes of the manifest, as Iceberg's Java client and iceberg-go read them.
    assert_eq!(stats["lower-bounds"], json!({"keys": [1], "values": ["0100000000000000"]}));
    assert_eq!(stats["upper-bounds"], json!({"keys": [1], "values": ["0A00000000000000"]}));
    assert_eq!(stats["value-counts"], json!({"keys": [1], "values": [10]}));
    // The ids of rows are counted through a manifest.
    let answers = lake.scan(&filter(&json!({"type": "eq", "term": "data", "value": "b"})));
    assert_eq!(answers[0]["file-scan-tasks"][0]["data-file"]["first-row-id"], json!(1010));
    // The number of requested rows is sufficient.
    assert_eq!(lake.files(&json!({"min-rows-requested": 15})), ["a1", "b1"]);
}

/// Spark selects them for updates, deletes and merges.
#[test]
fn metadata_columns_and_unknown_names_in_select_change_nothing() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let files = [data("a1", Some("a"), (1, 10)), data("b1", Some("b"), (11, 20))];
    lake.snapshot("append", &[(false, files.to_vec())]);
    let metadata = ["_file", "_pos", "_spec_id", "_partition", "_deleted", "_row_id"];
    let more = ["_last_updated_sequence_number", "_change_type", "nope", "id.nope"];
    for name in metadata.into_iter().chain(more) {
        assert_eq!(lake.files(&json!({"select": ["id", name]})), ["a1", "b1"], "{name}");
    }
    let stats = json!({"stats-fields": ["id", "_file", "_pos", "_row_id"]});
    let answers = lake.scan(&stats);
    let keys = &answers[0]["file-scan-tasks"][0]["data-file"]["lower-bounds"]["keys"];
    assert_eq!(*keys, json!([1]));
    // They exclude no file, and are evaluated by the reader of the rows.
    let of_file = json!({"type": "eq", "term": "_file", "value": "b1"});
    let request = filter(&json!({"type": "and", "left": of_file,
        "right": {"type": "eq", "term": "data", "value": "a"}}));
    let answers = lake.scan(&request);
    assert_eq!(named(&answers[0]), ["a1"]);
    assert_eq!(answers[0]["file-scan-tasks"][0]["residual-filter"], of_file);
    for (term, op, value) in [("_pos", "lt", json!(5)), ("_spec_id", "not-eq", json!(7))] {
        let request = filter(&json!({"type": op, "term": term, "value": value}));
        assert_eq!(lake.files(&request), ["a1", "b1"], "{term}");
    }
    let plan = format!("{TABLE}/plan");
    for wrong in [
        filter(&json!({"type": "eq", "term": "_pos", "value": "x"})),
        filter(&json!({"type": "eq", "term": "_nope", "value": 1})),
        json!({"stats-fields": ["_nope"]}),
    ] {
        assert_refused(&server.ask("POST", &plan, Some(&wrong)), 400, "ValidationException");
    }
}

#[test]
fn deletes_are_those_that_were_written_after_a_file_and_about_it() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let first = lake.snapshot(
        "append",
        &[
            (false, vec![data("a1", Some("a"), (1, 10)), data("a2", Some("a"), (11, 20))]),
            (false, vec![data("b1", Some("b"), (1, 10))]),
        ],
    );
    lake.snapshot(
        "overwrite",
        &[
            (
                true,
                vec![
                    deletes("pos-a", 1, Some("a"), &json!({})),
                    deletes("pos-a2", 1, Some("a"), &json!({"referenced_data_file": "a2"})),
                    deletes("eq-b", 2, Some("b"), &json!({"equality_ids": [1]})),
                ],
            ),
            (false, vec![data("a3", Some("a"), (21, 30)), data("b2", Some("b"), (21, 30))]),
        ],
    );
    let expected = ["a1 pos-a", "a2 pos-a pos-a2", "a3 pos-a", "b1 eq-b", "b2"];
    assert_eq!(lake.files(&json!({})), expected);
    let dv = json!({"file_format": "PUFFIN", "referenced_data_file": "a2", "content_offset": 4,
        "content_size_in_bytes": 40});
    let far = json!({"equality_ids": [1],
        "null_value_counts": [{"key": 1, "value": 0}],
        "lower_bounds": [{"key": 1, "value": 1000_i64.to_le_bytes()}],
        "upper_bounds": [{"key": 1, "value": 2000_i64.to_le_bytes()}]});
    lake.snapshot(
        "delete",
        &[(true, vec![deletes("dv-a2", 1, Some("a"), &dv), deletes("eq-far", 2, Some("b"), &far)])],
    );
    let expected = ["a1 pos-a", "a2 dv-a2", "a3 pos-a", "b1 eq-b", "b2"];
    assert_eq!(lake.files(&json!({})), expected);
    let answer = &lake.scan(&filter(&json!({"type": "eq", "term": "id", "value": 15})))[0];
    assert_eq!(
        answer["delete-files"],
        json!([{
            "content": "position-deletes", "file-path": "dv-a2", "file-format": "puffin",
            "spec-id": 0, "partition": ["a"], "file-size-in-bytes": 10, "record-count": 1,
            "content-offset": 4, "content-size-in-bytes": 40, "referenced-data-file": "a2",
        }])
    );
    // A past snapshot, without later files.
    assert_eq!(lake.files(&json!({"snapshot-id": first})), ["a1", "a2", "b1"]);
}

#[test]
fn what_was_added_between_two_snapshots_is_planned_alone() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let one = |name: &str| vec![(false, vec![data(name, Some("a"), (1, 10))])];
    let first = lake.snapshot("append", &one("f1"));
    let second = lake.snapshot("append", &one("f2"));
    let third = lake.snapshot("overwrite", &one("f3"));
    let fourth = lake.snapshot("append", &one("f4"));
    for (start, end, expected) in [
        (Some(first), fourth, vec!["f2", "f4"]),
        (Some(second), third, vec![]),
        (Some(first), first, vec![]),
        (None, second, vec!["f1", "f2"]),
    ] {
        let mut request = json!({"end-snapshot-id": end});
        if let Some(start) = start {
            request["start-snapshot-id"] = json!(start);
        }
        assert_eq!(lake.files(&request), expected, "{request}");
    }
    for (request, kind) in [
        (json!({"start-snapshot-id": first}), "BadRequestException"),
        (json!({"snapshot-id": 1, "end-snapshot-id": first}), "BadRequestException"),
        (json!({"min-rows-requested": -1}), "BadRequestException"),
        (
            json!({"start-snapshot-id": fourth, "end-snapshot-id": first}),
            "IllegalArgumentException",
        ),
        (json!({"snapshot-id": 1}), "IllegalArgumentException"),
        (json!({"stats-fields": ["nope"]}), "ValidationException"),
        (filter(&json!({"type": "eq", "term": "nope", "value": 1})), "ValidationException"),
        (filter(&json!({"type": "eq", "term": "id", "value": "x"})), "ValidationException"),
        (filter(&json!({"type": "starts-with", "term": "id", "value": 1})), "ValidationException"),
        (filter(&json!({"type": "is-nan", "term": "id"})), "ValidationException"),
        (filter(&json!({"type": "nope"})), "BadRequestException"),
        (filter(&json!({"type": "eq", "term": "id"})), "BadRequestException"),
        (filter(&json!({"type": "eq", "left": "data", "right": "a"})), "BadRequestException"),
        (filter(&json!([])), "BadRequestException"),
        (
            filter(&json!({"type": "eq", "left": {"type": "apply", "function": "soundex",
            "arguments": [{"type": "reference", "name": "data"}]}, "right": "x"})),
            "BadRequestException",
        ),
    ] {
        let response = server.ask("POST", &format!("{TABLE}/plan"), Some(&request));
        assert_refused(&response, 400, kind);
    }
}

#[test]
fn a_long_scan_comes_in_parts_and_one_with_many_deletes_later() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let many: Vec<Value> =
        (0..4500).map(|it| data(&format!("f{it:05}"), Some("a"), (it, it))).collect();
    let small = (0..70).map(|it| (false, vec![data(&format!("g{it:05}"), Some("b"), (0, 9))]));
    let manifests: Vec<_> = std::iter::once((false, many)).chain(small).collect();
    lake.snapshot("append", &manifests);
    let answers = lake.scan(&json!({}));
    assert!(answers.len() > 3, "{}", answers.len());
    let files: Vec<_> = answers.iter().flat_map(named).collect();
    let unique: std::collections::BTreeSet<_> = files.iter().collect();
    assert_eq!((files.len(), unique.len()), (4570, 4570));

    let deletes = |it: usize| vec![deletes(&format!("d{it}"), 1, Some("b"), &json!({}))];
    let manifests: Vec<_> = (0..=MANIFESTS_AT_ONCE_MAX).map(|it| (true, deletes(it))).collect();
    lake.snapshot("delete", &manifests);
    let request = filter(&json!({"type": "eq", "term": "data", "value": "b"}));
    let response = server.ask("POST", &format!("{TABLE}/plan"), Some(&request)).json();
    assert_eq!(response["status"], json!("submitted"), "{response}");
    let plan = format!("{TABLE}/plan/{}", response["plan-id"].as_str().unwrap());
    let plan_view = until_made(&server, &plan);
    assert_eq!(plan_view["status"], json!("completed"));
    let found = plan_view["delete-files"].as_array().unwrap().len();
    assert_eq!(found, MANIFESTS_AT_ONCE_MAX + 1);
    // A plan is invisible to other principals, and removed after cancellation.
    let token = rights::token(&server, Some(AccessRight::Read), None);
    assert_eq!(server.ask_as(Some(&token), "GET", TABLE, None).status, 200);
    let others = server.ask_as(Some(&token), "GET", &plan, None);
    assert_refused(&others, 404, "NoSuchPlanIdException");
    let task = json!({"plan-task": plan_tasks(&plan_view)[0]});
    let others = server.ask_as(Some(&token), "POST", &format!("{TABLE}/tasks"), Some(&task));
    assert_refused(&others, 404, "NoSuchPlanTaskException");
    assert_eq!(server.ask("DELETE", &plan, None).status, 204);
    assert_eq!(server.ask("GET", &plan, None).json(), json!({"status": "cancelled"}));
    let later = server.ask("POST", &format!("{TABLE}/tasks"), Some(&task));
    assert_refused(&later, 404, "NoSuchPlanTaskException");
    let nobody = server.ask("GET", &format!("{TABLE}/plan/x"), None);
    assert_refused(&nobody, 404, "NoSuchPlanIdException");
}

/// Returns the final state of a plan.
fn until_made(server: &Server, plan: &str) -> Value {
    testkit::until("the plan is made", Duration::from_secs(60), || {
        let plan_view = server.ask("GET", plan, None).json();
        if plan_view["status"] == json!("submitted") {
            Err(plan_view.to_string())
        } else {
            Ok(plan_view)
        }
    })
}

#[test]
fn manifests_that_are_none_are_refused_and_those_of_other_tables_too() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let list = lake.write("broken", b"Obj\x01\x00 and no more");
    lake.sequence += 1;
    lake.commit(101, "append", &list);
    let plan = format!("{TABLE}/plan");
    assert_refused(&server.ask("POST", &plan, Some(&json!({}))), 400, "ValidationException");
    lake.commit(102, "append", &format!("{}/metadata/nothing.avro", lake.location));
    assert_refused(&server.ask("POST", &plan, Some(&json!({}))), 404, "NotFoundException");
    lake.commit(103, "append", "file:///etc/passwd");
    assert_refused(&server.ask("POST", &plan, Some(&json!({}))), 403, "ForbiddenException");
    // Another table's files reveal its content.
    server.fill("m", "secret");
    let other = server.ask("GET", "/v1/main/namespaces/m/tables/secret", None).json();
    let other = other["metadata"]["location"].as_str().unwrap().to_owned();
    lake.commit(104, "append", &format!("{other}/metadata/list.avro"));
    let token = rights::token(&server, Some(AccessRight::Read), Some("n"));
    let answer = server.ask_as(Some(&token), "POST", &plan, Some(&json!({})));
    assert_refused(&answer, 403, "ForbiddenException");
}

#[test]
fn who_may_read_a_part_of_a_table_gets_plans_of_that_part() {
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let files = [
        data("a1", Some("a"), (1, 10)),
        data("b1", Some("b"), (15, 25)),
        data("c1", Some("c"), (21, 30)),
    ];
    lake.snapshot("append", &[(false, files.to_vec())]);
    let token = rights::token(&server, Some(AccessRight::Read), None);
    let put = |name: &str, more: &Value| {
        let mut policy = json!({"principal": "*", "namespace": ["n"], "table": "t"});
        policy.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/management/v1/main/policies/{name}");
        let kept = server.ask("PUT", &path, Some(&policy));
        assert_eq!(kept.status, 200, "{}", kept.text());
    };
    let plan = |request: &Value| {
        server.ask_as(Some(&token), "POST", &format!("{TABLE}/plan"), Some(request))
    };
    let rows = json!({"type": "gt", "term": "id", "value": 20});
    put("rows", &json!({"row-filter": rows}));
    let answer = plan(&json!({})).json();
    assert_eq!(named(&answer), ["b1", "c1"]);
    assert_eq!(answer["file-scan-tasks"][0]["residual-filter"], rows);
    let both = filter(&json!({"type": "eq", "term": "data", "value": "b"}));
    assert_eq!(named(&plan(&both).json()), ["b1"]);
    // The excluded files do not reveal the range of hidden rows.
    for id in [1, 14] {
        let below = filter(&json!({"type": "lt", "term": "id", "value": id}));
        assert_eq!(named(&plan(&below).json()), ["b1", "c1"], "{id}");
    }
    let stats = json!({"stats-fields": ["id"]});
    let file = |answer: &Value| answer["file-scan-tasks"][0]["data-file"].clone();
    assert_eq!(file(&plan(&stats).json()), file(&answer));
    // An operator reads all of it.
    assert_eq!(lake.files(&json!({})), ["a1", "b1", "c1"]);
    let masked = json!([{"column": "data", "action": "mask-alphanum"}]);
    put("columns", &json!({"column-projections": masked}));
    assert_refused(&plan(&json!({})), 403, "ForbiddenException");
    // A trusted principal receives statistics, and masked columns exclude no files.
    put("columns", &json!({"column-projections": masked, "trusted": true}));
    put("rows", &json!({"row-filter": rows, "trusted": true}));
    assert_eq!(named(&plan(&both).json()), ["b1", "c1"]);
}

#[test]
fn what_is_within_a_hidden_column_is_hidden() {
    let server = Server::start();
    let schema = json!({"type": "struct", "fields": [
        {"id": 1, "name": "all", "required": false, "type": {"type": "struct", "fields": [
            {"id": 2, "name": "id", "required": true, "type": "long"},
            {"id": 3, "name": "data", "required": false, "type": "string"},
        ]}},
    ]});
    let spec = json!({"spec-id": 0, "fields": [
        {"source-id": 3, "field-id": 1000, "name": "data", "transform": "identity"},
    ]});
    let mut lake = Lake::of(&server, &schema, &spec);
    let mut files = vec![data("a1", Some("a"), (1, 10)), data("b1", Some("b"), (15, 25))];
    for file in &mut files {
        for counted in ["value_counts", "null_value_counts", "lower_bounds", "upper_bounds"] {
            file["data_file"][counted][0]["key"] = json!(2);
        }
    }
    lake.snapshot("append", &[(false, files)]);
    let token = rights::token(&server, Some(AccessRight::Read), None);
    let put = |trusted: bool| {
        let hidden = json!([{"column": "all", "action": "replace-with-null"}]);
        let policy = json!({"principal": "*", "namespace": ["n"], "table": "t",
            "column-projections": hidden, "trusted": trusted});
        let kept = server.ask("PUT", "/management/v1/main/policies/p", Some(&policy));
        assert_eq!(kept.status, 200, "{}", kept.text());
    };
    let plan = |request: &Value| {
        server.ask_as(Some(&token), "POST", &format!("{TABLE}/plan"), Some(request))
    };
    let by_partition = filter(&json!({"type": "eq", "term": "all.data", "value": "a"}));
    let by_counts = filter(&json!({"type": "lt", "term": "all.id", "value": 12}));
    for request in [&by_partition, &by_counts] {
        assert_eq!(named(&plan(request).json()), ["a1"], "{request}");
    }
    put(true);
    for request in [&by_partition, &by_counts] {
        assert_eq!(named(&plan(request).json()), ["a1", "b1"], "{request}");
    }
    put(false);
    assert_refused(&plan(&json!({})), 403, "ForbiddenException");
}

#[test]
fn the_health_of_a_table_comes_from_its_manifests() {
    const STATS: &str = "/management/v1/main/tables/n/t/stats";
    let server = Server::start();
    let mut lake = Lake::new(&server);
    let health = |query: &str| server.ask("GET", &format!("{STATS}{query}"), None);
    let empty = health("").json();
    assert_eq!((&empty["snapshot-id"], &empty["data"]["files"]), (&Value::Null, &json!(0)));
    assert_eq!(empty["recommendations"], json!([]), "{empty}");

    let file = |number: i64| data(&format!("f{number}"), Some("x"), (1, 10));
    let mut large = data("large", Some("y"), (1, 10));
    large["data_file"]["file_size_in_bytes"] = json!(600_i64 << 20);
    let mut gone = data("gone", Some("z"), (1, 10));
    gone["status"] = json!(2);
    let first = lake.snapshot("append", &[(false, (0..6).map(file).collect())]);
    let vector = deletes(
        "v.puffin",
        1,
        Some("x"),
        &json!({"file_format": "PUFFIN", "record_count": 25, "content_offset": 4,
            "content_size_in_bytes": 7, "referenced_data_file": "f1"}),
    );
    let by_position = deletes("p", 1, Some("x"), &json!({}));
    let by_key = deletes("e", 2, None, &json!({"equality_ids": [1]}));
    let second = lake.snapshot(
        "overwrite",
        &[(false, vec![large, gone]), (true, vec![vector, by_position, by_key])],
    );
    let found = health("").json();
    assert_eq!(found["snapshot-id"], json!(second));
    assert_eq!(found["data"], json!({"files": 7, "rows": 70, "bytes": 600 + (600_i64 << 20)}));
    assert_eq!(found["small"]["files"], json!(6));
    assert_eq!(found["rows-per-file"], json!(10));
    let by_size: Vec<_> = found["histogram"].as_array().unwrap().iter().collect();
    assert_eq!((&by_size[0]["files"], &by_size[8]["files"]), (&json!(6), &json!(1)));
    let deletes = &found["deletes"];
    assert_eq!(deletes["position"], json!({"files": 1, "rows": 1, "bytes": 10}));
    assert_eq!(deletes["equality"]["files"], json!(1));
    assert_eq!(deletes["vectors"], json!({"files": 1, "rows": 25, "bytes": 7}));
    assert_eq!(deletes["deleted-rows"], json!(26));
    let partitions = &found["partitions"];
    // The delete file without a partition counts as a partition of its own.
    assert_eq!(partitions["count"], json!(3));
    assert_eq!(partitions["largest"][0]["partition"], json!("data=\"y\""));
    assert_eq!(partitions["small"][0]["partition"], json!("data=\"x\""));
    let manifests = &found["manifests"];
    assert_eq!((&manifests["data"], &manifests["deletes"]), (&json!(2), &json!(1)));
    assert_eq!((&manifests["removed-entries"], &manifests["bytes"]), (&json!(1), &json!(3)));
    assert_eq!(found["snapshots"]["count"], json!(2));
    let compact = &found["recommendations"][0];
    assert_eq!((&compact["action"], &compact["operation"]), (&json!("compact"), &Value::Null));
    let call = "CALL system.rewrite_data_files(table => 'n.t')";
    assert_eq!(compact["elsewhere"], json!(call), "{found}");
    assert!(compact["reason"].as_str().unwrap().contains("26 of 70 rows"), "{found}");

    // Other snapshots, by id and by name.
    let old = health(&format!("?snapshot-id={first}")).json();
    assert_eq!(old["data"]["files"], json!(6));
    assert_eq!(health("?ref=main").json()["snapshot-id"], json!(second));
    for query in ["?ref=none", "?snapshot-id=5", "?snapshot-id=x", "?snapshot-id=101&ref=main"] {
        assert_eq!(health(query).status, 400, "{query}");
    }
    // Partitions contain values: restricted and unauthorized principals are rejected.
    let reader = rights::token(&server, Some(AccessRight::Read), Some("n"));
    let ask = |token: &str| server.ask_as(Some(token), "GET", STATS, None).status;
    assert_eq!(ask(&reader), 200);
    assert_eq!(ask(&rights::token(&server, None, None)), 403);
    let hidden = json!([{"column": "data", "action": "replace-with-null"}]);
    let policy = json!({"principal": "*", "namespace": ["n"], "table": "t",
        "column-projections": hidden});
    let kept = server.ask("PUT", "/management/v1/main/policies/p", Some(&policy));
    assert_eq!(kept.status, 200, "{}", kept.text());
    assert_eq!(ask(&reader), 403);
}
