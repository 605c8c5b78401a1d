//! Defects of bingsan, which this catalog replaces, and the test against each of them.
//!
//! | | bingsan | here |
//! |---|---|---|
//! | 1 | answers lack what clients require | [`a_document_has_all_that_clients_require`] |
//! | 2 | an empty prefix leads clients nowhere | [`a_prefix_leads_to_the_warehouse`] |
//! | 3 | ids of snapshots lose digits, so nothing is appended | [`ids_keep_all_their_digits`] |
//! | 4 | no metadata file is ever written | [`every_document_has_its_file`] |
//! | 5 | answers that something was done which was not | [`what_is_said_to_be_done_is_done`] |
//! | 6 | what a commit requires is not looked at | [`requirements_hold`] |
//! | 7 | updates come in another order; ids are not given | [`updates_come_in_their_order`] |
//! | 8 | lists end after a hundred names | [`lists_are_whole`] |
//! | 9 | wrong refusals, and none where one is due | [`refusals_are_those_of_iceberg`] |
//! | 10 | no tags, versions, compression, keys | [`versions_count`], and `flows.rs` for the rest |
//! | 11 | measures a rival by requests that fail | `bench/`, which looks at each answer |
//! | 12 | tells of what is not there | `what_clients_are_told_of_…` in `rights.rs` |
//! | 13 | measures without a store | `bench/`, against the real server |

use super::*;

const TABLES: &str = "/v1/main/namespaces/n/tables";
const TABLE: &str = "/v1/main/namespaces/n/tables/t";

/// Beyond the precision of a float.
const SNAPSHOT: i64 = 7_258_950_548_773_449_607;

fn filled() -> Server {
    let server = Server::start();
    server.fill("n", "t");
    server
}

fn done(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{}", response.text());
}

fn commit(server: &Server, requirements: &Value, updates: &Value) -> Response {
    let body = json!({"requirements": requirements, "updates": updates});
    server.ask("POST", TABLE, Some(&body))
}

fn metadata(server: &Server) -> Value {
    let loaded = server.ask("GET", TABLE, None);
    done(&loaded, 200);
    loaded.json()["metadata"].clone()
}

fn snapshot(id: i64, at: &Value) -> Value {
    json!({"action": "add-snapshot", "snapshot": {
        "snapshot-id": id, "sequence-number": 1, "timestamp-ms": at,
        "manifest-list": "file:///none", "summary": {"operation": "append"}, "schema-id": 0,
    }})
}

#[test]
fn a_document_has_all_that_clients_require() {
    let document = metadata(&filled());
    for (key, expected) in [
        ("format-version", json!(2)),
        ("last-sequence-number", json!(0)),
        ("last-column-id", json!(2)),
        ("last-partition-id", json!(999)),
        ("current-schema-id", json!(0)),
        ("default-spec-id", json!(0)),
        ("default-sort-order-id", json!(0)),
        ("partition-specs", json!([{"spec-id": 0, "fields": []}])),
        ("sort-orders", json!([{"order-id": 0, "fields": []}])),
    ] {
        assert_eq!(document[key], expected, "{key} of {document}");
    }
}

#[test]
fn a_prefix_leads_to_the_warehouse() {
    let server = Server::start();
    let config = server.ask("GET", "/v1/config", None).json();
    let prefix = config["overrides"]["prefix"].as_str().unwrap();
    assert!(!prefix.is_empty());
    done(&server.ask("GET", &format!("/v1/{prefix}/namespaces"), None), 200);
}

#[test]
fn ids_keep_all_their_digits() {
    let server = filled();
    let point = json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch",
        "snapshot-id": SNAPSHOT});
    let append = snapshot(SNAPSHOT, &metadata(&server)["last-updated-ms"]);
    done(&commit(&server, &json!([]), &json!([append, point])), 200);
    let is_at =
        |id: i64| json!([{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": id}]);
    let change = json!([{"action": "set-properties", "updates": {"a": "b"}}]);
    let near = commit(&server, &is_at(SNAPSHOT + 1), &change);
    assert_refused(&near, 409, "CommitFailedException");
    done(&commit(&server, &is_at(SNAPSHOT), &change), 200);
    assert_eq!(metadata(&server)["current-snapshot-id"].as_i64(), Some(SNAPSHOT));
}

#[test]
fn every_document_has_its_file() {
    let server = filled();
    let loaded = server.ask("GET", TABLE, None).json();
    let location = loaded["metadata-location"].as_str().unwrap();
    let file = std::fs::read(location.strip_prefix("file://").unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&file).unwrap(), loaded["metadata"]);
}

#[test]
fn what_is_said_to_be_done_is_done() {
    let server = filled();
    let change = json!({"identifier": {"namespace": ["n"], "name": "t"}, "requirements": [],
        "updates": [{"action": "set-properties", "updates": {"by": "transaction"}}]});
    let together = json!({"table-changes": [change]});
    done(&server.ask("POST", "/v1/main/transactions/commit", Some(&together)), 204);
    assert_eq!(metadata(&server)["properties"]["by"], json!("transaction"));

    let view = "/v1/main/namespaces/n/views/v";
    done(&server.ask("POST", "/v1/main/namespaces/n/views", Some(&new_view("v"))), 200);
    let replace = json!({"updates": [{"action": "set-properties", "updates": {"by": "view"}}]});
    done(&server.ask("POST", view, Some(&replace)), 200);
    let viewed = server.ask("GET", view, None).json();
    assert_eq!(viewed["metadata"]["properties"]["by"], json!("view"));

    let location = server.ask("GET", TABLE, None).json()["metadata-location"].clone();
    let path = location.as_str().unwrap().strip_prefix("file://").unwrap().to_owned();
    let uuid = metadata(&server)["table-uuid"].clone();
    done(&server.ask("DELETE", TABLE, None), 204);
    let register = json!({"name": "t", "metadata-location": location});
    done(&server.ask("POST", "/v1/main/namespaces/n/register", Some(&register)), 200);
    assert_eq!(metadata(&server)["table-uuid"], uuid);

    let mut staged = new_table("staged");
    staged["stage-create"] = json!(true);
    done(&server.ask("POST", TABLES, Some(&staged)), 200);
    done(&server.ask("HEAD", &format!("{TABLES}/staged"), None), 404);

    done(&server.ask("DELETE", &format!("{TABLE}?purgeRequested=true"), None), 204);
    assert!(!std::path::Path::new(&path).exists(), "{path}");
}

#[test]
fn requirements_hold() {
    let server = filled();
    let change = json!([{"action": "set-properties", "updates": {"a": "b"}}]);
    for (requirement, status, kind) in [
        (json!({"type": "assert-create"}), 409, "CommitFailedException"),
        (json!({"type": "assert-nothing-known"}), 400, "BadRequestException"),
        (
            json!({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 7}),
            409,
            "CommitFailedException",
        ),
    ] {
        assert_refused(&commit(&server, &json!([requirement]), &change), status, kind);
    }
    assert_eq!(metadata(&server)["properties"]["a"], Value::Null);
}

#[test]
fn updates_come_in_their_order() {
    let server = filled();
    let updates = json!([
        {"action": "set-properties", "updates": {"a": "first", "b": "first"}},
        {"action": "remove-properties", "removals": ["a", "b"]},
        {"action": "set-properties", "updates": {"a": "second"}},
    ]);
    done(&commit(&server, &json!([]), &updates), 200);
    let properties = metadata(&server)["properties"].clone();
    assert_eq!((&properties["a"], &properties["b"]), (&json!("second"), &Value::Null));
    // Nested columns count as well, and ids are assigned by the catalog.
    let nested = json!({"name": "nested", "schema": {"type": "struct", "fields": [
        {"id": 40, "name": "place", "required": false, "type": {"type": "struct", "fields": [
            {"id": 41, "name": "x", "required": false, "type": "int"},
        ]}},
        {"id": 7, "name": "last", "required": false, "type": "int"},
    ]}});
    let made = server.ask("POST", TABLES, Some(&nested));
    done(&made, 200);
    let document = &made.json()["metadata"];
    assert_eq!(document["last-column-id"], json!(3));
    let fields = &document["schemas"][0]["fields"];
    assert_eq!((&fields[0]["id"], &fields[1]["id"]), (&json!(1), &json!(2)));
    assert_eq!(fields[0]["type"]["fields"][0]["id"], json!(3));
}

#[test]
fn lists_are_whole() {
    let server = filled();
    let mut expected = vec!["t".to_owned()];
    for number in 0..130 {
        let name = format!("u{number:03}");
        done(&server.ask("POST", TABLES, Some(&new_table(&name))), 200);
        expected.push(name);
    }
    let names = |list: &Value| -> Vec<String> {
        let list = list["identifiers"].as_array().unwrap().iter();
        list.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    let whole = server.ask("GET", TABLES, None).json();
    assert_eq!((names(&whole), &whole["next-page-token"]), (expected.clone(), &Value::Null));
    let (mut found, mut token) = (Vec::new(), String::new());
    for _ in 0..2 {
        let page = server.ask("GET", &format!("{TABLES}?pageToken={token}"), None).json();
        found.extend(names(&page));
        token = page["next-page-token"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!((found, &*token), (expected, ""));
}

#[test]
fn refusals_are_those_of_iceberg() {
    let server = filled();
    let full = server.ask("DELETE", "/v1/main/namespaces/n", None);
    assert_refused(&full, 409, "NamespaceNotEmptyException");
    done(&server.ask("POST", "/v1/main/namespaces/n/views", Some(&new_view("v"))), 200);
    let taken = server.ask("POST", TABLES, Some(&new_table("v")));
    assert_refused(&taken, 409, "AlreadyExistsException");
    let dotted = json!({"namespace": ["a.b"]});
    done(&server.ask("POST", "/v1/main/namespaces", Some(&dotted)), 200);
    done(&server.ask("GET", "/v1/main/namespaces/a.b", None), 200);
    let orphan = json!({"namespace": ["nobody", "child"]});
    let orphan = server.ask("POST", "/v1/main/namespaces", Some(&orphan));
    assert_refused(&orphan, 404, "NoSuchNamespaceException");
    let change = json!({"identifier": {"namespace": ["n"], "name": "no"}, "requirements": [],
        "updates": []});
    let together = json!({"table-changes": [change]});
    let missing = server.ask("POST", "/v1/main/transactions/commit", Some(&together));
    assert_refused(&missing, 404, "NoSuchTableException");
}

#[test]
fn versions_count() {
    let server = filled();
    for number in 0..3 {
        let location = server.ask("GET", TABLE, None).json()["metadata-location"].clone();
        let (_, file) = location.as_str().unwrap().rsplit_once('/').unwrap();
        assert!(file.starts_with(&format!("{number:05}-")), "{file}");
        let change = json!([{"action": "set-properties", "updates": {"n": number.to_string()}}]);
        done(&commit(&server, &json!([]), &change), 200);
    }
    let mut newest = new_table("newest");
    newest["properties"]["format-version"] = json!("3");
    let made = server.ask("POST", TABLES, Some(&newest));
    done(&made, 200);
    assert_eq!(made.json()["metadata"]["format-version"], json!(3));
    assert_eq!(made.json()["metadata"]["next-row-id"], json!(0));
}
