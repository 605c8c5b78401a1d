//! When a token is revoked, everything that it has opened ends, at every interface, and cannot be
//! reopened.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Request, Server, until};

use crate::asynchronous::{id, post, submit};
use crate::sessions_support::{SOON, config};
use crate::support::{COVE, beside_others, held, wait_for_sleep, wait_until_gone};

/// A long-lived stream, and the request and client that opened it.
struct Lasting {
    name: &'static str,
    client: Client,
    request: Request,
    stream: TcpStream,
}

/// Sends a request and waits until its response has begun.
fn open(name: &'static str, client: &Client, request: Request) -> Lasting {
    let mut stream = client.open(&request).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    let status = head.split(' ').nth(1);
    assert!(matches!(status, Some("200" | "101")), "{name}: {head}");
    Lasting { name, client: client.clone(), request, stream }
}

fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end.as_bytes()) {
        let count = stream.read(&mut byte).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend(byte);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Lasting {
    /// Waits for the end of the stream, and for the rejection of a second attempt.
    fn ends(mut self) {
        let name = self.name;
        let mut scrap = [0; 4096];
        loop {
            match self.stream.read(&mut scrap) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{name} goes on: {error}"),
            }
        }
        let again = self.client.send(&self.request);
        assert_eq!(again.status, 401, "{name}: {}", again.text());
    }
}

fn events(target: &str) -> Request {
    Request::new("GET", target).header("accept", "text/event-stream")
}

pub(crate) fn websocket(target: &str) -> Request {
    Request::new("GET", target)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// Returns a streaming request in the format of Connect's clients.
pub(crate) fn call(sandbox: &Value, procedure: &str, message: &Value) -> Request {
    let body = message.to_string();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    Request::new("POST", procedure)
        .header("e2b-sandbox-id", sandbox["sandboxID"].as_str().unwrap())
        .header("x-access-token", sandbox["envdAccessToken"].as_str().unwrap())
        .header("content-type", "application/connect+json")
        .body([&[0][..], &length, body.as_bytes()].concat())
}

fn e2b_address(server: &Server) -> SocketAddr {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    addresses["e2b"].as_str().unwrap().parse().unwrap()
}

/// Creates an operator token, which may follow the catalog's changes. Returns its id and text.
fn token(server: &Server) -> (String, String) {
    let mut create = Command::new(COVE);
    create.args(["token", "--data-dir"]).arg(server.data_dir());
    let output = create.args(["create", "--name", "leaked", "--operator"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let records = fs::read_to_string(server.data_dir().join("tokens.jsonl")).unwrap();
    let last: Value = serde_json::from_str(records.lines().last().unwrap()).unwrap();
    (last["id"].as_str().unwrap().to_owned(), text)
}

fn of_executions(client: &Client) -> Vec<Lasting> {
    let script = "sleep 61.7";
    let followed = format!("/v1/executions/{}/events", submit(client, &held(script)));
    let mut interactive = held("sleep 61.6");
    interactive["interactive"] = json!(true);
    let attached = submit(client, &interactive);
    let attached = format!("/v1/executions/{attached}/events?attach=true");
    vec![
        open("events of an execution", client, events(&followed)),
        open("a WebSocket of an execution", client, websocket(&followed)),
        open("an attached execution", client, websocket(&attached)),
    ]
}

fn of_sessions(client: &Client) -> Vec<Lasting> {
    let created = post(client, "/v1/sessions", &json!({}));
    assert_eq!(created.status, 201, "{}", created.text());
    let path = format!("/v1/sessions/{}", id(&created.json()));
    vec![
        open("a terminal", client, websocket(&format!("{path}/terminal?argv=sh"))),
        open("events of a session", client, events(&format!("{path}/events"))),
        open("a watch", client, events(&format!("{path}/watch"))),
    ]
}

/// Opens a terminal that survives the loss of its socket. Returns a request that attaches to it.
fn detached_terminal(client: &Client) -> Request {
    let created = post(client, "/v1/sessions", &json!({}));
    assert_eq!(created.status, 201, "{}", created.text());
    let path = format!("/v1/sessions/{}/terminal", id(&created.json()));
    let query = "?argv=sleep&argv=61.3&detach_s=600";
    let mut socket = client.websocket(&format!("{path}{query}")).unwrap();
    let name = socket.json()["terminal"].as_str().unwrap().to_owned();
    wait_for_sleep("61.3");
    socket.cut();
    until("the terminal to be detached", SOON, || {
        let list = client.get(&format!("{path}s")).json();
        let is_detached = list["terminals"][0]["state"] == "detached";
        if is_detached { Ok(()) } else { Err(list.to_string()) }
    });
    websocket(&format!("{path}?attach={name}"))
}

/// Opens streams with an access token of E2B's, and returns them with a finite request that uses
/// it.
fn of_e2b(server: &Server, token: &str) -> (Vec<Lasting>, Client, Request) {
    let client = Client::new(e2b_address(server), None);
    let create = Request::new("POST", "/v2/sandboxes").header("x-api-key", token);
    let created = client.send(&create.body(json!({"templateID": "base"}).to_string()));
    assert_eq!(created.status, 201, "{}", created.text());
    let sandbox = created.json();
    let start = json!({"process": {"cmd": "/bin/sleep", "args": ["61.9"]}, "stdin": false});
    let streams = vec![
        open("E2B's process", &client, call(&sandbox, "/process.Process/Start", &start)),
        open(
            "E2B's watch",
            &client,
            call(&sandbox, "/filesystem.Filesystem/WatchDir", &json!({"path": "/tmp"})),
        ),
    ];
    let read = Request::new("GET", "/files?path=/etc/hostname")
        .header("e2b-sandbox-id", sandbox["sandboxID"].as_str().unwrap())
        .header("x-access-token", sandbox["envdAccessToken"].as_str().unwrap());
    (streams, client, read)
}

/// Requests that are answered when their program ends, and the seconds that their programs sleep.
const WAITING: [(&str, &str); 3] = [
    ("a waiting execution", "61.8"),
    ("SandboxFusion's run_code", "61.5"),
    ("SandboxFusion's run_jupyter", "61.4"),
];

/// Opens requests without a response yet, at the native interface and at SandboxFusion's.
fn of_requests_that_wait(client: &Client) -> Vec<Lasting> {
    let fusion = |path: &str, body: &Value| {
        let request = Request::new("POST", &format!("/compat/sandbox-fusion/{path}"));
        request.header("content-type", "application/json").body(body.to_string())
    };
    let code = json!({"language": "bash", "code": "sleep 61.5", "run_timeout": 300});
    let cell = "import subprocess; subprocess.run(['sleep', '61.4'])";
    let notebook = json!({"cells": [cell], "total_timeout": 300});
    let requests = [
        client.execution(&held("sleep 61.8")),
        fusion("run_code", &code),
        fusion("run_jupyter", &notebook),
    ];
    let opened = WAITING.into_iter().zip(requests).map(|((name, seconds), request)| {
        let stream = client.open(&request).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        wait_for_sleep(seconds);
        Lasting { name, client: client.clone(), request, stream }
    });
    opened.collect()
}

fn of_the_catalog(client: &Client) -> Vec<Lasting> {
    let changes = "/catalog/management/v1/main/changes?after=latest";
    vec![
        open("changes of the catalog", client, events(changes)),
        open("a WebSocket of changes", client, websocket(changes)),
    ]
}

#[test]
fn a_revoked_token_ends_all_that_it_has_opened_on_every_face() {
    let _guard = beside_others();
    // Enough places to run all of the following at the same time.
    let table = format!("executions.running_max = 8\n{}", config(""));
    let server = Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&table));
    let (token_id, text) = token(&server);
    let client = Client::new(server.client().address(), Some(text.clone()));
    until("the new token to be known", SOON, || {
        let response = client.get("/v1/languages");
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    });
    let mut all = of_executions(&client);
    all.extend(of_sessions(&client));
    all.extend(of_the_catalog(&client));
    let detached = detached_terminal(&client);
    let (of_e2b, e2b, read) = of_e2b(&server, &text);
    assert_ne!(e2b.send(&read).status, 401);
    let waiting = of_requests_that_wait(&client);

    let mut revoke = Command::new(COVE);
    revoke.args(["token", "--data-dir"]).arg(server.data_dir()).args(["revoke", &token_id]);
    assert!(revoke.status().unwrap().success());
    all.into_iter().for_each(Lasting::ends);
    for Lasting { name, client, request, mut stream } in waiting {
        let refused = read_until(&mut stream, "\r\n");
        assert!(refused.starts_with("HTTP/1.1 401"), "{name}: {refused}");
        let again = client.send(&request);
        assert_eq!(again.status, 401, "{name}: {}", again.text());
    }
    // Their programs end as well.
    WAITING.map(|(_, seconds)| seconds).iter().for_each(|seconds| wait_until_gone(seconds));
    // A terminal without an attached client ends too: the session's owner has no access to it.
    wait_until_gone("61.3");
    let refused = client.send(&detached);
    assert_eq!(refused.status, 401, "{}", refused.text());
    for Lasting { name, mut stream, .. } in of_e2b {
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).err().map(|error| error.kind());
        assert!(matches!(end, None | Some(ErrorKind::ConnectionReset)), "{name}: {end:?}");
    }
    let refused = e2b.send(&read);
    assert_eq!(refused.status, 401, "{}", refused.text());
    // Asynchronous executions belong to the tenant, and continue.
    crate::support::wake("61.7");
    // Other tokens are not affected, and neither are the tenant's objects.
    assert_eq!(server.client().get("/v1/languages").status, 200);
}
