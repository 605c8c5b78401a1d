//! What is served where, to whom, and what is there after a kill.

use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server};

use crate::shared::COVE;

/// Writers of the storm that is cut off.
const WRITERS: usize = 4;

/// Commits that have to be acknowledged before the kill.
const COMMITS_MIN: usize = 40;

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
    // The rest has kept its own errors.
    let elsewhere = client.get("/v1/nothing");
    assert_eq!(elsewhere.json()["error"]["code"], json!("not_found"), "{}", elsewhere.text());
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_with_its_file() {
    let mut server = Server::start(COVE);
    let client = server.client();
    let made = post(&client, "main/namespaces", &json!({"namespace": ["n"]}));
    assert_eq!(made.status, 200, "{}", made.text());
    for writer in 0..WRITERS {
        let made = post(&client, "main/namespaces/n/tables", &table(&format!("t{writer}")));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (client, sender) = (server.client(), sender.clone());
            thread::spawn(move || {
                for number in 0.. {
                    let key = format!("k{number}");
                    let path = format!("/catalog/v1/main/namespaces/n/tables/t{writer}");
                    let request = Request::new("POST", &path).body(commit(&key).to_string());
                    // The kill comes in the middle of one.
                    let Ok(done) = client.try_send(&request) else { return };
                    assert_eq!(done.status, 200, "{}", done.text());
                    sender.send((writer, key)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut acknowledged: Vec<_> = receiver.iter().take(COMMITS_MIN).collect();
    server.signal("KILL");
    for writer in writers {
        writer.join().unwrap();
    }
    acknowledged.extend(receiver.iter());
    server.restart();
    let client = server.client();
    let tables: Vec<Value> = (0..WRITERS)
        .map(|writer| {
            let loaded = client.get(&format!("/catalog/v1/main/namespaces/n/tables/t{writer}"));
            assert_eq!(loaded.status, 200, "{}", loaded.text());
            loaded.json()
        })
        .collect();
    for (writer, key) in &acknowledged {
        let properties = &tables[*writer]["metadata"]["properties"];
        assert_eq!(properties[key], json!("there"), "t{writer} {key}");
    }
    for table in &tables {
        let location = table["metadata-location"].as_str().unwrap();
        let file = std::fs::read(location.strip_prefix("file://").unwrap()).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(file, table["metadata"], "{location}");
    }
}
