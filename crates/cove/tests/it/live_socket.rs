//! `GET /v1/live`: subscriptions on one WebSocket, their rights, and the treatment of misbehaving
//! clients.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Message, Request, Server, WebSocket, until};

use crate::asynchronous::submit;
use crate::sessions_support::{SOON, Sessions, config};
use crate::support::{COVE, beside_others, held, wait_for_sleep, wake};

fn live(client: &Client) -> WebSocket {
    // This route rejects the default host name of test clients.
    let request = Request::new("GET", "/v1/live").header("host", &client.address().to_string());
    client.websocket_by(&request).unwrap_or_else(|response| panic!("{}", response.text()))
}

fn subscribe(socket: &mut WebSocket, id: &str, topic: &str, parameters: Value) {
    let mut message = json!({ "op": "subscribe", "id": id, "topic": topic });
    message.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
    socket.send(&message);
}

/// Returns the next message of a subscription that satisfies `is_right`, and skips others.
fn next(socket: &mut WebSocket, id: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = socket.json();
        if message["id"] == id && is_right(&message) {
            return message;
        }
        assert!(message["id"] != id || message.get("error").is_none(), "{message}");
    }
}

fn refusal(socket: &mut WebSocket, id: &str) -> (String, Option<String>) {
    let message = socket.json();
    assert_eq!(message["id"], id, "{message}");
    let field = message["error"]["field"].as_str().map(str::to_owned);
    (message["error"]["code"].as_str().unwrap_or_default().to_owned(), field)
}

#[test]
fn one_socket_follows_executions_sessions_files_the_catalog_and_the_audit() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let (sessions, client) = (Sessions::from(&server), server.client());
    let session = sessions.create(&json!({}));
    let mut socket = live(&client);
    let execution = submit(&client, &held("echo one; sleep 71.3; echo two"));
    let is_ok = |message: &Value| message["ok"] == true;
    for (id, topic, parameters) in [
        ("run", "execution.events", json!({ "execution": execution })),
        ("events", "session.events", json!({ "session": session, "after": 0 })),
        ("files", "session.files", json!({ "session": session, "recursive": true })),
        ("changes", "catalog.changes", json!({ "warehouse": "main" })),
        ("audit", "audit", json!({})),
        ("list", "executions", json!({})),
        ("sessions", "sessions", json!({ "state": ["active", "paused"] })),
    ] {
        subscribe(&mut socket, id, topic, parameters);
        next(&mut socket, id, is_ok);
    }

    wait_for_sleep("71.3");
    wake("71.3");
    let two = next(&mut socket, "run", |it| it["event"]["data"] == "two\n");
    assert!(two["event"]["seq"].is_u64(), "{two}");
    next(&mut socket, "run", |it| it["event"]["verdict"] == "OK");
    next(&mut socket, "run", |it| it["ended"] == true);
    let is_it = |it: &Value| it["event"]["id"] == execution.as_str();
    next(&mut socket, "list", |it| is_it(it) && it["event"]["state"] == "finished");

    assert!(sessions.write(&session, "new.txt", b"x").status < 300);
    let file = next(&mut socket, "files", |it| it["event"]["path"].is_string());
    assert!(file["event"]["path"].as_str().unwrap().ends_with("new.txt"), "{file}");
    let namespace = json!({ "namespace": ["followed"] }).to_string();
    let create = Request::new("POST", "/catalog/v1/main/namespaces")
        .header("content-type", "application/json")
        .body(namespace);
    assert_eq!(client.send(&create).status, 200);
    let change = next(&mut socket, "changes", |it| it.get("event").is_some());
    assert!(change.to_string().contains("followed"), "{change}");
    drop(sessions.did(&session, "pause"));
    let is_paused = |it: &Value| it["event"]["state"] == "paused";
    next(&mut socket, "sessions", |it| it["event"]["id"] == session.as_str() && is_paused(it));

    // Ids of ended and of cancelled subscriptions can be reused.
    subscribe(&mut socket, "run", "execution.events", json!({ "execution": execution }));
    next(&mut socket, "run", is_ok);
    socket.send(&json!({ "op": "unsubscribe", "id": "files" }));
    subscribe(&mut socket, "files", "audit", json!({ "after": 0 }));
    next(&mut socket, "files", is_ok);
    drop(sessions.end(&session));
    next(&mut socket, "events", |it| it["ended"] == true);
}

/// Without a notification, a list is read again only after five minutes, longer than a test waits
/// for a message.
#[test]
fn changes_of_executions_and_sessions_are_pushed_to_those_who_may_see_them() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let (sessions, client) = (Sessions::from(&server), server.client());
    let other = server.other_client("other", &["--scope", "sessions", "--scope", "executions"]);
    let (mut socket, mut of_other) = (live(&client), live(&other));
    let is_ok = |message: &Value| message["ok"] == true;
    for (id, topic, parameters) in [
        ("all", "executions", json!({})),
        ("finished", "executions", json!({ "state": "finished" })),
        ("sessions", "sessions", json!({})),
        ("paused", "sessions", json!({ "state": "paused" })),
    ] {
        subscribe(&mut socket, id, topic, parameters);
        next(&mut socket, id, is_ok);
    }
    for topic in ["executions", "sessions"] {
        subscribe(&mut of_other, topic, topic, json!({}));
        next(&mut of_other, topic, is_ok);
    }

    let execution = submit(&client, &held("sleep 71.7"));
    let in_state = |id: &str, state: &'static str| {
        let id = id.to_owned();
        move |it: &Value| it["event"]["id"] == id.as_str() && it["event"]["state"] == state
    };
    next(&mut socket, "all", in_state(&execution, "running"));
    wait_for_sleep("71.7");
    wake("71.7");
    let ended = next(&mut socket, "finished", |it| it.get("event").is_some());
    assert!(in_state(&execution, "finished")(&ended), "{ended}");
    let session = sessions.create(&json!({}));
    next(&mut socket, "sessions", in_state(&session, "active"));
    drop(sessions.did(&session, "pause"));
    next(&mut socket, "paused", in_state(&session, "paused"));
    let renamed = json!({ "metadata": { "name": "renamed" } });
    let patch = Request::new("PATCH", &format!("/v1/sessions/{session}"))
        .header("content-type", "application/json")
        .body(renamed.to_string());
    assert_eq!(client.send(&patch).status, 200);
    next(&mut socket, "sessions", |it| it["event"]["metadata"]["name"] == "renamed");
    drop(sessions.end(&session));
    next(&mut socket, "sessions", in_state(&session, "ended"));

    // The first event of the other tenant is its own, although it was already subscribed when the
    // events above were published.
    let own = submit(&other, &json!({ "argv": ["/bin/true"] }));
    let first = next(&mut of_other, "executions", |it| it.get("event").is_some());
    assert_eq!(first["event"]["id"], own.as_str(), "{first}");
    let own = Sessions { client: other }.create(&json!({}));
    let first = next(&mut of_other, "sessions", |it| it.get("event").is_some());
    assert_eq!(first["event"]["id"], own.as_str(), "{first}");
}

#[test]
fn a_topic_is_for_whom_its_route_is() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let (sessions, client) = (Sessions::from(&server), server.client());
    let session = sessions.create(&json!({}));
    let execution = submit(&client, &json!({ "argv": ["/bin/true"] }));
    let other = server.other_client("other", &["--scope", "sessions"]);
    let mut socket = live(&other);
    for (topic, parameters, expected) in [
        ("session.events", json!({ "session": session }), ("not_found", None)),
        ("session.files", json!({ "session": session }), ("not_found", None)),
        ("execution.events", json!({ "execution": execution }), ("forbidden", None)),
        ("executions", json!({}), ("forbidden", None)),
        ("tenants", json!({}), ("forbidden", None)),
        ("tenants.list", json!({}), ("forbidden", None)),
        ("queue", json!({}), ("forbidden", None)),
        (
            "history",
            json!({ "series": "cove_http_*,cove_http_streams" }),
            ("forbidden", Some("series")),
        ),
        ("history", json!({ "step": "soon" }), ("invalid_request", Some("step"))),
        ("catalog.changes", json!({ "warehouse": "main" }), ("forbidden", None)),
        ("audit", json!({ "tenant": "main" }), ("forbidden", Some("tenant"))),
        ("audit", json!({ "text": "x".repeat(300) }), ("invalid_request", Some("text"))),
        ("session.events", json!({ "session": "../agents" }), ("not_found", None)),
        ("terminals", json!({}), ("invalid_request", Some("topic"))),
        ("sessions", json!({ "limit": 5000 }), ("invalid_request", Some("limit"))),
    ] {
        subscribe(&mut socket, "x", topic, parameters.clone());
        let (code, field) = refusal(&mut socket, "x");
        assert_eq!((code.as_str(), field.as_deref()), expected, "{topic} {parameters}");
    }

    // Limits, and messages that are invalid.
    for index in 0..64 {
        subscribe(&mut socket, &index.to_string(), "sessions", json!({}));
    }
    subscribe(&mut socket, "more", "sessions", json!({}));
    let is_refused = |it: &Value| it["error"]["code"] == "too_many_requests";
    while !is_refused(&socket.json()) {}
    subscribe(&mut socket, "0", "sessions", json!({}));
    while socket.json()["error"]["code"] != "conflict" {}
    for text in ["{}", "[1]", "{\"op\":\"subscribe\",\"id\":\"\",\"topic\":\"sessions\"}", "x"] {
        let mut socket = live(&client);
        socket.writer().text(text).unwrap();
        let Message::Close(code, _) = socket.message() else { panic!("{text}") };
        assert_eq!(code, 4400, "{text}");
    }
    let host = client.address().to_string();
    let plain = Request::new("GET", "/v1/live").header("host", &host);
    assert_eq!(client.send(&plain).status, 426);
    drop(sessions.end(&session));
}

/// A page of another site may try to open a WebSocket to this machine.
#[test]
fn pages_and_names_of_others_open_no_socket() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let client = server.client();
    let address = client.address();
    let own = format!("http://{address}");
    for (host, origin, status) in [
        (address.to_string(), Some(own.as_str()), None),
        (address.to_string(), None, None),
        (address.to_string(), Some("http://evil.example"), Some(403)),
        (address.to_string(), Some("null"), Some(403)),
        ("evil.example".to_owned(), Some("http://evil.example"), Some(403)),
    ] {
        let mut request = Request::new("GET", "/v1/live").header("host", &host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let found = client.websocket_by(&request).err().map(|response| response.status);
        assert_eq!(found, status, "{host} {origin:?}");
    }
}

#[test]
fn a_revoked_token_ends_the_socket() {
    let _guard = beside_others();
    let server = Server::start_with(COVE, &[], Some(&config("")));
    let cove = |arguments: &[&str]| {
        let mut command = Command::new(COVE);
        command.args(["token", "--data-dir"]).arg(server.data_dir()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let token = cove(&["create", "--name", "followed"]).trim().to_owned();
    let client = Client::new(server.client().address(), Some(token));
    until("the token to be known", SOON, || match client.get("/v1/languages").status {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    let mut socket = live(&client);
    subscribe(&mut socket, "1", "sessions", json!({}));
    next(&mut socket, "1", |it| it["ok"] == true);
    let list = cove(&["list"]);
    let line = list.lines().find(|line| line.contains("followed")).expect("the token is listed");
    cove(&["revoke", line.split_whitespace().next().unwrap()]);
    while socket.try_message().is_ok_and(|message| matches!(message, Message::Text(_))) {}
    let again = client.websocket("/v1/live").err().map(|response| response.status);
    assert_eq!(again, Some(401));
}
