//! Ash's interface: its clients, unmodified, and behaviour that they do not cover.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::{Client, Request, Response, Scratch, Server, until};

use crate::sessions_claude::Model;
use crate::sessions_support::{config, serve_sessions};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, SOON, beside_others};

/// Agent that repeats messages and counts them.
const ECHO: &str = include_str!("../../../../examples/agents/echo/agent.py");
/// Session that does not exist.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

fn call(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let request = Request::new(method, path).header("content-type", "application/json");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.send(&request.body(body))
}

/// Returns the response to a request that must succeed.
fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let response = call(client, method, path, body);
    assert!((200..300).contains(&response.status), "{method} {path}: {}", response.text());
    response.json()
}

fn refused(client: &Client, method: &str, path: &str, body: &Value, status: u16, error: &str) {
    let response = call(client, method, path, body);
    let text = response.text();
    assert_eq!(response.status, status, "{method} {path}: {text}");
    let document = response.json();
    assert_eq!(document["statusCode"], status, "{text}");
    assert!(document["error"].as_str().unwrap().contains(error), "{method} {path}: {text}");
    assert!(document.get("message").is_none(), "{text}");
}

/// Deploys an agent that replies without a model.
fn echo(client: &Client, name: &str) {
    let files = json!([{"path": "agent.py", "content": BASE64.encode(ECHO)}]);
    let runtime = json!({"type": "command", "argv": ["python3", "agent.py"]});
    let agent = json!({"name": name, "files": files, "config": {"runtime": runtime}});
    assert_eq!(ask(client, "POST", "/api/agents", &agent)["agent"]["version"], 1);
}

fn session(client: &Client, agent: &str) -> String {
    let made = ask(client, "POST", "/api/sessions", &json!({"agent": agent}));
    made["session"]["id"].as_str().unwrap().to_owned()
}

/// Sends a message and reads the stream as Ash's own tests do: frame by frame.
fn message(client: &Client, session: &str, body: &Value) -> Vec<(String, Value)> {
    let response = call(client, "POST", &format!("/api/sessions/{session}/messages"), body);
    let text = response.text();
    assert_eq!(response.status, 200, "{text}");
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-cache"));
    let frames = text.split_terminator("\n\n").filter(|frame| !frame.starts_with(':'));
    let events: Vec<(String, Value)> = frames
        .map(|frame| {
            let mut lines = frame.lines().skip_while(|line| line.starts_with("id: "));
            let name = lines.next().unwrap().strip_prefix("event: ").unwrap();
            let data = lines.next().unwrap().strip_prefix("data: ").unwrap();
            assert_eq!(lines.next(), None, "{frame}");
            (name.to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect();
    assert_eq!(events.first().unwrap().0, "session_start");
    assert_eq!(events.last().unwrap(), &("done".to_owned(), json!({"sessionId": session})));
    events
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

/// Returns the text of the turn's result.
fn result(events: &[(String, Value)]) -> &str {
    let (_, data) = events.iter().find(|(name, _)| name == "turn_complete").unwrap();
    data["result"].as_str().unwrap()
}

/// Runs a client against a server; each line that it prints is a check.
fn client_of(server: &Server, command: Command) {
    client_at(server, server.client().address(), command);
}

/// Runs a client against another address of the server, or of others with its tokens.
pub(crate) fn client_at(server: &Server, address: SocketAddr, mut command: Command) {
    let base = format!("http://{address}");
    command.env("ASH_SERVER_URL", base).env("ASH_API_KEY", server.token());
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed: Vec<&str> = out.lines().filter(|line| !line.contains("\"ok\": true")).collect();
    let failed: Vec<&str> =
        failed.into_iter().filter(|line| !line.contains("\"ok\":true")).collect();
    assert!(output.status.success() && failed.is_empty(), "{failed:#?}\n{err}\n{}", server.log());
    assert!(out.lines().count() > 5, "hardly anything was checked: {out}");
}

#[test]
fn the_published_clients_work_unchanged() {
    let _guard = beside_others();
    let model = Model::start();
    let server = model.serve("");
    let mut python = Command::new(interpreter());
    python.arg(Path::new(COMPAT).join("ash/client.py"));
    client_of(&server, python);
    let mut node = Command::new("node");
    node.arg(Path::new(COMPAT).join("ash/client.mjs"));
    client_of(&server, node);
}

#[test]
fn errors_have_ashs_shape_and_status() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let client = server.client();
    echo(&client, "echo");
    let id = session(&client, "echo");
    let at = |rest: &str| format!("/api/sessions/{id}{rest}");
    let nothing = Value::Null;
    let nobody = client.anonymous();
    refused(&nobody, "GET", "/api/agents", &nothing, 401, "Missing Authorization header");
    let wrong = Client::new(client.address(), Some("wrong".to_owned()));
    refused(&wrong, "GET", "/api/agents", &nothing, 401, "Invalid API key");
    for (method, path, body, status, error) in [
        ("GET", "/api/nothing".to_owned(), json!(null), 404, "does not exist"),
        ("GET", "/api/sessions/x".to_owned(), json!(null), 404, "Session not found"),
        ("GET", format!("/api/sessions/{NOBODY}"), json!(null), 404, "Session not found"),
        ("POST", "/api/sessions".to_owned(), json!({}), 400, "agent"),
        ("POST", "/api/sessions".to_owned(), json!({"agent": "x"}), 404, "Agent \"x\" not found"),
        (
            "POST",
            "/api/sessions".to_owned(),
            json!({"agent": "echo", "betas": ["x"]}),
            400,
            "betas: is not supported",
        ),
        (
            "POST",
            "/api/sessions".to_owned(),
            json!({"agent": "echo", "credentialId": NOBODY}),
            400,
            "Invalid or inaccessible credential",
        ),
        ("POST", at("/messages"), json!({"content": ["hi"]}), 400, "content[0]"),
        ("POST", at("/messages"), json!({"content": ""}), 400, "content"),
        ("POST", at("/exec"), json!({"command": "x", "timeout": 300_001}), 400, "timeout"),
        ("GET", at("/files/../x"), json!(null), 400, "Invalid file path"),
        ("GET", at("/files/missing"), json!(null), 404, "File not found"),
        ("POST", at("/workspace"), json!({"bundle": ""}), 400, "Empty bundle"),
        ("GET", at("/events?type=nothing"), json!(null), 400, "type"),
        ("GET", "/api/sessions?status=gone".to_owned(), json!(null), 400, "status"),
        ("POST", "/api/agents".to_owned(), json!({"name": "a/b"}), 400, "name"),
        (
            "POST",
            "/api/agents".to_owned(),
            json!({"name": "x", "path": "/etc"}),
            400,
            "reads no directories",
        ),
        ("GET", format!("/api/queue/{NOBODY}"), json!(null), 404, "Queue item not found"),
        ("DELETE", format!("/api/credentials/{NOBODY}"), json!(null), 404, "Credential not found"),
        ("GET", format!("/api/attachments/{NOBODY}"), json!(null), 404, "Attachment not found"),
    ] {
        refused(&client, method, &path, &body, status, error);
    }
    ask(&client, "POST", &at("/pause"), &nothing);
    refused(&client, "POST", &at("/pause"), &nothing, 400, "Cannot pause session with status");
    refused(&client, "POST", &at("/exec"), &json!({"command": "x"}), 400, "Session is paused");
    // Ending twice is permitted, and both responses have a body.
    for _ in 0..2 {
        assert_eq!(ask(&client, "DELETE", &at(""), &nothing)["session"]["status"], "ended");
    }
    refused(&client, "POST", &at("/resume"), &nothing, 410, "Session has ended");
    refused(&client, "POST", &at("/messages"), &json!({"content": "x"}), 400, "Session is ended");
    // Objects of other tenants are reported as missing.
    let theirs = server.other_client("other", &[]);
    refused(&theirs, "GET", &at(""), &nothing, 404, "Session not found");
    refused(&theirs, "GET", "/api/agents/echo", &nothing, 404, "Agent not found");
    let narrow = server.other_client("narrow", &["--scope", "sessions"]);
    refused(&narrow, "POST", "/api/agents", &json!({"name": "x"}), 403, "scope");
    server.signal("TERM");
    assert!(server.wait(SOON).success());
}

#[test]
fn a_turn_is_told_in_ashs_frames() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let client = server.client();
    echo(&client, "echo");
    let id = session(&client, "echo");
    let block = json!({"type": "text", "text": "one block"});
    for (content, expected) in [
        (json!("a\u{85}b\u{2028}c\u{2029}d"), "a\u{85}b\u{2028}c\u{2029}d"),
        (json!([block]), "one block"),
        (block, "one block"),
    ] {
        let events = message(&client, &id, &json!({"content": content}));
        let complete = names(&events);
        assert!(
            complete.ends_with(&["message", "turn_complete", "message", "done"]),
            "{complete:?}"
        );
        assert!(!complete.contains(&"text_delta"), "nobody asked: {complete:?}");
        assert!(result(&events).contains(expected), "{events:?}");
    }
    let request = json!({"content": "in pieces", "includePartialMessages": true});
    let events = message(&client, &id, &request);
    let pieces: String = events
        .iter()
        .filter(|(name, _)| name == "text_delta")
        .map(|(_, data)| data["delta"].as_str().unwrap())
        .collect();
    assert_eq!(pieces, result(&events));
    // Messages are stored unchanged, each with its sender's content.
    let path = format!("/api/sessions/{id}/messages");
    let kept = ask(&client, "GET", &path, &Value::Null)["messages"].clone();
    let of_user: Vec<Value> = kept
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(of_user[0], json!({"type": "user", "content": "a\u{85}b\u{2028}c\u{2029}d"}));
    assert_eq!(of_user[1]["content"][0]["text"], "one block");
}

#[test]
fn names_and_conversations_outlive_a_crash() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let client = server.client();
    echo(&client, "echo");
    let id = session(&client, "echo");
    message(&client, &id, &json!({"content": "remember"}));
    server.restart();
    let client = server.client();
    let path = format!("/api/sessions/{id}/resume");
    let resumed = ask(&client, "POST", &path, &Value::Null)["session"].clone();
    assert_eq!((&resumed["id"], &resumed["status"]), (&json!(id), &json!("active")));
    let events = message(&client, &id, &json!({"content": "again"}));
    assert!(result(&events).contains("[messages: 2]"), "{events:?}");
    let health = client.anonymous().get("/health").json();
    assert_eq!(health["pool"]["resumeColdHits"], 1, "{health}");
}

#[test]
fn agents_are_deployed_from_the_directory_that_has_them() {
    let _guard = beside_others();
    let agents = Scratch::new();
    fs::create_dir(agents.path().join("brief")).unwrap();
    fs::create_dir(agents.path().join("empty")).unwrap();
    fs::write(agents.path().join("brief/CLAUDE.md"), "# Brief\n").unwrap();
    let settings = format!("[compat.ash]\nagents = {:?}", agents.path());
    let server = Server::start_with(COVE, &[], Some(&config(&settings)));
    let client = server.client();
    let deploy = |path: &str| json!({"name": "brief", "path": path});
    for path in ["empty", "..", "/etc", "nowhere"] {
        let error = "Agent directory must contain CLAUDE.md";
        refused(&client, "POST", "/api/agents", &deploy(path), 400, error);
    }
    ask(&client, "POST", "/api/agents", &deploy("brief"));
    let file = "/api/agents/brief/files/CLAUDE.md?format=json";
    assert_eq!(ask(&client, "GET", file, &Value::Null)["content"], "# Brief\n");
}

#[test]
fn what_fails_in_the_queue_is_tried_again_and_given_up() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let client = server.client();
    echo(&client, "echo");
    let enqueue = |body: Value| {
        let item = ask(&client, "POST", "/api/queue", &body)["item"].clone();
        item["id"].as_str().unwrap().to_owned()
    };
    let item =
        |id: &str| ask(&client, "GET", &format!("/api/queue/{id}"), &Value::Null)["item"].clone();
    let ends_as = |id: &str, status: &str| {
        until("an item of the queue to end", SOON, || {
            let seen = item(id);
            if seen["status"] == status { Ok(()) } else { Err(seen.to_string()) }
        });
        item(id)
    };
    let fine = enqueue(json!({"agentName": "echo", "prompt": "hello", "priority": 1}));
    let done = ends_as(&fine, "completed");
    let session = done["sessionId"].as_str().unwrap();
    let messages = ask(&client, "GET", &format!("/api/sessions/{session}/messages"), &Value::Null);
    assert!(messages.to_string().contains("You said: hello"), "{messages}");
    let failing = enqueue(json!({"agentName": "nobody", "prompt": "x", "maxRetries": 1}));
    let failed = ends_as(&failing, "failed");
    assert_eq!(failed["retryCount"], 1);
    assert!(failed["error"].as_str().unwrap().contains("agent"), "{failed}");
    // An item that waits for its next attempt can be cancelled.
    let waiting = enqueue(json!({"agentName": "nobody", "prompt": "x", "maxRetries": 3}));
    until("the first try to fail", SOON, || {
        let seen = item(&waiting);
        if seen["retryCount"] == 1 { Ok(()) } else { Err(seen.to_string()) }
    });
    let cancelled = ask(&client, "DELETE", &format!("/api/queue/{waiting}"), &Value::Null);
    assert_eq!(cancelled["item"]["status"], "cancelled");
    refused(&client, "DELETE", &format!("/api/queue/{fine}"), &Value::Null, 400, "\"completed\"");
    let stats = ask(&client, "GET", "/api/queue/stats", &Value::Null)["stats"].clone();
    let expected = json!({
        "pending": 0, "processing": 0, "completed": 1, "failed": 1, "cancelled": 1,
    });
    assert_eq!(stats, expected);
}

#[test]
fn evaluations_ask_and_score() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let client = server.client();
    echo(&client, "echo");
    let at = |rest: &str| format!("/api/agents/echo/{rest}");
    let cases = json!({"cases": [
        {"question": "rust", "expectedTopics": ["RUST", "go"], "category": "a"},
        {"question": "danger", "expectedNotTopics": ["danger"], "category": "a"},
        {"question": "left out", "category": "b"},
        {"question": "asleep", "isActive": false, "category": "a"},
    ]});
    assert_eq!(ask(&client, "POST", &at("eval-cases/import"), &cases)["imported"], 4);
    let exported = ask(&client, "GET", &at("eval-cases/export"), &Value::Null)["cases"].clone();
    assert_eq!(exported.as_array().unwrap().len(), 4);
    let run = ask(&client, "POST", &at("eval-runs"), &json!({"categories": ["a"]}));
    assert_eq!((&run["totalCases"], &run["run"]["id"]), (&json!(2), &run["id"]));
    let path = at(&format!("eval-runs/{}", run["id"].as_str().unwrap()));
    until("the run to end", SOON, || {
        let seen = ask(&client, "GET", &path, &Value::Null);
        if seen["status"] == "completed" { Ok(()) } else { Err(seen.to_string()) }
    });
    let ended = ask(&client, "GET", &path, &Value::Null);
    assert_eq!(ended["completedCases"], 2);
    assert_eq!(ended["summary"]["passRate"], 0.5, "{ended}");
    let results = ask(&client, "GET", &format!("{path}/results"), &Value::Null)["results"].clone();
    let scores: Vec<(Option<f64>, Option<f64>)> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| (result["topicScore"].as_f64(), result["safetyScore"].as_f64()))
        .collect();
    assert_eq!(scores, [(Some(0.5), Some(1.0)), (Some(1.0), Some(0.0))]);
    let score = json!({"humanScore": 4, "humanNotes": "fine"});
    assert_eq!(ask(&client, "POST", &format!("{path}/score"), &score)["scored"], 2);
    refused(&client, "POST", &format!("{path}/score"), &json!({}), 400, "Provide humanScore");
    let one = at(&format!("eval-results/{}", results[0]["id"].as_str().unwrap()));
    let judged = ask(&client, "PATCH", &one, &json!({"humanScore": 2}))["result"].clone();
    assert_eq!((&judged["humanScore"], &judged["humanNotes"]), (&json!(2.0), &json!("fine")));
    let id = run["id"].as_str().unwrap();
    let compare = at(&format!("eval-runs/compare?runA={id}&runB={id}"));
    let compared = ask(&client, "GET", &compare, &Value::Null);
    assert_eq!(compared["results"][0]["question"], "rust");
    // The sessions of the evaluation have ended, and the agent has no record of it.
    let left = ask(&client, "GET", "/api/sessions?status=active", &Value::Null);
    assert_eq!(left["sessions"], json!([]));
    ask(&client, "DELETE", "/api/agents/echo", &Value::Null);
    echo(&client, "echo");
    assert_eq!(ask(&client, "GET", &at("eval-runs"), &Value::Null)["runs"], json!([]));
}
