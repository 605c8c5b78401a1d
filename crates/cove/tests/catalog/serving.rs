//! Routes of the catalog, their authorization, and the state after a kill.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Postgres, Request, Response, Server};

use crate::shared::COVE;

/// Commits of each writer that must be acknowledged before the kill.
const COMMITS_MIN: usize = 10;

fn post(client: &Client, path: &str, body: &Value) -> Response {
    let request = Request::new("POST", &format!("/catalog/v1/{path}"));
    client.send(&request.header("content-type", "application/json").body(body.to_string()))
}

fn table(name: &str) -> Value {
    json!({"name": name, "schema": {"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "long"},
    ]}})
}

fn commit(key: &str) -> Value {
    json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {key: "there"}}
    ]})
}

/// Nests a value in itself a number of times.
fn nested(inner: Value, levels: usize, around: impl Fn(usize, Value) -> Value) -> Value {
    (0..levels).fold(inner, |inner, level| around(level, inner))
}

/// A server thread with a stack too small for the permitted depth would crash the server.
#[test]
fn schemas_and_filters_are_read_to_the_limit_of_depth_and_refused_beyond_it() {
    let server = Server::start(COVE);
    let client = server.client();
    assert_eq!(post(&client, "main/namespaces", &json!({"namespace": ["n"]})).status, 200);
    let structs = |levels| {
        nested(json!("int"), levels, |level, inner| {
            let field = json!({"id": level + 2, "name": "f", "required": false, "type": inner});
            json!({"type": "struct", "fields": [field]})
        })
    };
    let lists = |levels| {
        nested(json!("int"), levels, |level, inner| {
            json!({"type": "list", "element-id": level + 2, "element": inner,
                "element-required": false})
        })
    };
    let tables = "main/namespaces/n/tables";
    for (name, kind, expected) in [
        ("structs", structs(132), 200),
        ("more-structs", structs(133), 400),
        ("lists", lists(396), 200),
        ("more-lists", lists(397), 400),
    ] {
        let column = json!({"id": 1, "name": "deep", "required": false, "type": kind});
        let schema = json!({"type": "struct", "fields": [column]});
        let made = post(&client, tables, &json!({"name": name, "schema": schema}));
        assert_eq!(made.status, expected, "{name}: {}", made.text());
        let loaded = client.get(&format!("/catalog/v1/{tables}/{name}"));
        assert_eq!(loaded.status, if expected == 200 { 200 } else { 404 }, "{name}");
        let planned = post(&client, &format!("{tables}/{name}/plan"), &json!({}));
        assert_eq!(planned.status, loaded.status, "{name}: {}", planned.text());
    }
    assert_eq!(post(&client, tables, &table("t")).status, 200);
    let is = json!({"type": "eq", "term": "id", "value": 1});
    let not =
        |levels| nested(is.clone(), levels, |_, child| json!({"type": "not", "child": child}));
    let and = |levels| {
        nested(is.clone(), levels, |level, left| {
            let right = json!({"type": "gt", "term": "id", "value": level});
            json!({"type": "and", "left": left, "right": right})
        })
    };
    for (filter, expected) in [(not(398), 200), (and(398), 200), (not(399), 400), (and(399), 400)] {
        let planned = post(&client, &format!("{tables}/t/plan"), &json!({"filter": filter}));
        assert_eq!(planned.status, expected, "{}", planned.text());
    }
}

#[test]
fn the_catalog_is_beside_the_rest_with_errors_of_its_own() {
    let server = Server::start(COVE);
    let client = server.client();
    let config = client.get("/catalog/v1/config");
    assert_eq!(config.status, 200, "{}", config.text());
    assert_eq!(config.json()["overrides"]["prefix"], json!("main"));
    for (client, path, status, kind) in [
        (client.anonymous(), "/catalog/v1/config", 401, "NotAuthorizedException"),
        (server.client(), "/catalog/v1/main/nothing", 404, "NotFoundException"),
        (
            server.other_client("runner", &["--scope", "executions"]),
            "/catalog/v1/config",
            403,
            "ForbiddenException",
        ),
        (
            server.other_client("reader", &["--scope", "catalog"]),
            "/catalog/v1/main/namespaces",
            403,
            "ForbiddenException",
        ),
    ] {
        let refused = client.get(path);
        assert_eq!(refused.status, status, "{path} {}", refused.text());
        assert_eq!(refused.json()["error"]["type"], json!(kind), "{path}");
    }
    // Other routes keep their own error format.
    let elsewhere = client.get("/v1/nothing");
    assert_eq!(elsewhere.json()["error"]["code"], json!("not_found"), "{}", elsewhere.text());
}

/// Request of the storm: its path, its body for a property with a given name, and the tables that
/// have the property afterwards.
struct Writer {
    path: &'static str,
    body: fn(&str) -> Value,
    tables: &'static [&'static str],
}

/// Writers of single tables, two of them of the same one, and two of both tables of a pair, which
/// they name in opposite order.
const WRITERS: [Writer; 5] = [
    Writer { path: "main/namespaces/n/tables/single", body: commit, tables: &["single"] },
    Writer { path: "main/namespaces/n/tables/shared", body: commit, tables: &["shared"] },
    Writer { path: "main/namespaces/n/tables/shared", body: commit, tables: &["shared"] },
    Writer {
        path: "main/transactions/commit",
        body: |key| transaction(["left", "right"], key),
        tables: &["left", "right"],
    },
    Writer {
        path: "main/transactions/commit",
        body: |key| transaction(["right", "left"], key),
        tables: &["left", "right"],
    },
];

const TABLES: [&str; 4] = ["single", "shared", "left", "right"];

fn transaction(tables: [&str; 2], key: &str) -> Value {
    let change = |name| {
        let mut change = commit(key);
        change["identifier"] = json!({"namespace": ["n"], "name": name});
        change
    };
    json!({"table-changes": tables.map(change)})
}

/// Writes until the server is killed, and reports acknowledged commits.
fn write(number: usize, client: &Client, sender: &Sender<(usize, String)>) {
    let writer = &WRITERS[number];
    for count in 0.. {
        let key = format!("w{number}-{count}");
        let request = Request::new("POST", &format!("/catalog/v1/{}", writer.path));
        // The kill may interrupt a request.
        let Ok(done) = client.try_send(&request.body((writer.body)(&key).to_string())) else {
            return;
        };
        assert!(matches!(done.status, 200 | 204), "{} {}", done.status, done.text());
        sender.send((number, key)).unwrap();
    }
}

/// Kills a server during a storm of commits, and checks the state that the next one finds.
fn check_storm(store: &str) {
    let mut server = Server::start_with(COVE, &[], Some(store));
    let client = server.client();
    let made = post(&client, "main/namespaces", &json!({"namespace": ["n"]}));
    assert_eq!(made.status, 200, "{}", made.text());
    for name in TABLES {
        let made = post(&client, "main/namespaces/n/tables", &table(name));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let (sender, acknowledged) = channel();
    let writers: Vec<_> = (0..WRITERS.len())
        .map(|number| {
            let (client, sender) = (server.client(), sender.clone());
            thread::spawn(move || write(number, &client, &sender))
        })
        .collect();
    drop(sender);
    let mut kept = Vec::new();
    let mut counts = [0; WRITERS.len()];
    // Each writer must have committed.
    while counts.iter().any(|it| *it < COMMITS_MIN) {
        let (number, key) = acknowledged.recv().unwrap();
        counts[number] += 1;
        kept.push((number, key));
    }
    server.signal("KILL");
    for writer in writers {
        writer.join().unwrap();
    }
    kept.extend(acknowledged.iter());
    server.restart();
    let client = server.client();
    let found = TABLES.map(|name| {
        let loaded = client.get(&format!("/catalog/v1/main/namespaces/n/tables/{name}"));
        assert_eq!(loaded.status, 200, "{}", loaded.text());
        loaded.json()
    });
    let properties = |name: &str| {
        let place = TABLES.iter().position(|it| *it == name).unwrap();
        found[place]["metadata"]["properties"].as_object().unwrap()
    };
    for (number, key) in &kept {
        for name in WRITERS[*number].tables {
            assert!(properties(name).contains_key(key), "{name} {key}");
        }
    }
    // A transaction is visible completely or not at all, including the one that the kill
    // interrupted.
    let keys = |name| properties(name).keys().filter(|it| it.starts_with('w')).collect::<Vec<_>>();
    let (mut left, mut right) = (keys("left"), keys("right"));
    left.sort();
    right.sort();
    assert_eq!(left, right);
    for table in &found {
        let location = table["metadata-location"].as_str().unwrap();
        let file = std::fs::read(location.strip_prefix("file://").unwrap()).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(file, table["metadata"], "{location}");
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_with_its_file() {
    check_storm("");
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_with_postgresql() {
    let database = Postgres::shared();
    check_storm(&format!("[store]\nurl = {:?}\n", database.database()));
}
