//! E2B's interface: its own clients, unmodified, and what they do not show.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, until};

use crate::sessions_support::{SOON, config};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, beside_others};

/// Memory of a sandbox in these tests: E2B's clients run interpreters in them.
const MEMORY: &str = "memory_bytes = 536870912";

/// A server with this interface.
fn serve() -> Server {
    Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&config(MEMORY)))
}

/// Where the server listens for E2B's clients.
fn address(server: &Server) -> SocketAddr {
    let text = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&text).unwrap();
    addresses["e2b"].as_str().unwrap().parse().unwrap()
}

/// The server's token, as E2B's clients want it.
fn key(server: &Server) -> String {
    let mut show = Command::new(COVE);
    show.args(["token", "--e2b", "--data-dir"]).arg(server.data_dir());
    let output = show.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a client of `compat/e2b`, which prints a line for each of its checks.
fn run_client(server: &Server, client: &mut Command) {
    let url = format!("http://{}", address(server));
    client.env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url).env("E2B_API_KEY", key(server));
    let output = client.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed: Vec<&Value> = lines.iter().filter(|line| line["ok"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{errors}");
    // A client that broke off in the middle has no failed checks either.
    assert!(output.status.success() && lines.len() > 10, "{text}\n{errors}");
}

#[test]
fn the_python_client_works_as_it_is() {
    let _guard = beside_others();
    let client = Path::new(COMPAT).join("e2b/client.py");
    run_client(&serve(), Command::new(interpreter()).arg(client));
}

#[test]
fn the_javascript_client_works_as_it_is() {
    let _guard = beside_others();
    run_client(&serve(), Command::new("node").arg("client.mjs").current_dir(project()));
}

/// The JavaScript client, installed once below the target directory.
fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-e2b");
        fs::create_dir_all(&project).unwrap();
        let mut is_same = project.join("node_modules/e2b").is_dir();
        for file in ["package.json", "package-lock.json", "client.mjs"] {
            let content = fs::read(Path::new(COMPAT).join("e2b").join(file)).unwrap();
            let there = fs::read(project.join(file)).unwrap_or_default();
            is_same &= there == content || file.ends_with(".mjs");
            fs::write(project.join(file), content).unwrap();
        }
        if !is_same {
            let mut npm = Command::new("npm");
            npm.args(["install", "--ignore-scripts", "--no-progress", "--no-audit", "--no-fund"]);
            let output = npm.current_dir(&project).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        project
    })
}

/// What a client without libraries does.
struct Face {
    client: Client,
    key: String,
}

/// A sandbox as the answer to its creation has it.
struct Sandbox {
    id: String,
    token: String,
    traffic_token: Option<String>,
    host: String,
}

impl Face {
    fn new(server: &Server) -> Face {
        Face { client: Client::new(address(server), None), key: key(server) }
    }

    fn rest(&self, method: &str, path: &str, body: &Value) -> Response {
        let request = Request::new(method, path).header("x-api-key", &self.key);
        self.client.send(&request.body(body.to_string()))
    }

    fn create(&self, more: &Value) -> Sandbox {
        let mut body = json!({ "templateID": "base" });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let response = self.rest("POST", "/v2/sandboxes", &body);
        assert_eq!(response.status, 201, "{}", response.text());
        Sandbox::from(&response.json())
    }

    /// One call that is answered by one message.
    fn call(&self, sandbox: &Sandbox, procedure: &str, body: &Value) -> Response {
        let request = sandbox.request("POST", procedure).header("content-type", "application/json");
        self.client.send(&request.body(body.to_string()))
    }

    /// One call that is answered by a stream, up to its end.
    fn stream(&self, sandbox: &Sandbox, procedure: &str, body: &Value) -> Vec<Value> {
        let request =
            sandbox.request("POST", procedure).header("content-type", "application/connect+json");
        let response = self.client.send(&request.body(framed(body)));
        assert_eq!(response.status, 200, "{}", response.text());
        frames(&response.body)
    }

    /// What a shell command writes, and how it ends.
    fn shell(&self, sandbox: &Sandbox, script: &str) -> String {
        let args = ["-l", "-c", script];
        let body = json!({ "process": { "cmd": "/bin/bash", "args": args }, "stdin": false });
        let frames = self.stream(sandbox, "/process.Process/Start", &body);
        let mut text = Vec::new();
        for frame in &frames {
            if let Some(data) = frame["event"]["data"]["stdout"].as_str() {
                text.extend(STANDARD.decode(data).unwrap());
            }
        }
        assert_eq!(frames.last(), Some(&json!({})), "{script}: {frames:?}");
        String::from_utf8(text).unwrap()
    }

    fn read(&self, sandbox: &Sandbox, path: &str) -> Response {
        self.client.send(&sandbox.request("GET", &format!("/files?path={path}")))
    }

    fn state(&self, sandbox: &Sandbox) -> String {
        let response = self.rest("GET", &format!("/sandboxes/{}", sandbox.id), &json!({}));
        match response.status {
            200 => response.json()["state"].as_str().unwrap().to_owned(),
            status => status.to_string(),
        }
    }
}

impl From<&Value> for Sandbox {
    fn from(value: &Value) -> Sandbox {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let id = text("sandboxID").unwrap();
        Sandbox {
            host: format!("{id}.{}", text("domain").unwrap()),
            token: text("envdAccessToken").unwrap(),
            traffic_token: text("trafficAccessToken"),
            id,
        }
    }
}

impl Sandbox {
    fn request(&self, method: &str, path: &str) -> Request {
        Request::new(method, path)
            .header("e2b-sandbox-id", &self.id)
            .header("x-access-token", &self.token)
    }

    fn port(&self, port: u16, path: &str) -> Request {
        Request::new("GET", path).header("host", &format!("{port}-{}", self.host))
    }
}

fn framed(value: &Value) -> Vec<u8> {
    let body = value.to_string().into_bytes();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &body].concat()
}

fn frames(mut bytes: &[u8]) -> Vec<Value> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(*head.last_chunk().unwrap());
        let (body, rest) = rest.split_at(usize::try_from(length).unwrap());
        frames.push(serde_json::from_slice(body).unwrap());
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

#[test]
fn a_paused_sandbox_stands_still_and_goes_on() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    let path = format!("/sandboxes/{}", sandbox.id);
    let count = "(i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.01; done) \
                 > /dev/null 2>&1 & sleep 0.2; cat /tmp/count";
    face.shell(&sandbox, count);
    assert_eq!(face.rest("POST", &format!("{path}/pause"), &json!({})).status, 204);
    assert_eq!(face.state(&sandbox), "paused");
    let gone = face.read(&sandbox, "/tmp/count");
    assert_eq!(gone.status, 502);
    assert!(gone.json()["message"].as_str().unwrap().contains("was not found"));
    assert_eq!(face.rest("POST", &format!("{path}/pause"), &json!({})).status, 409);
    let connected = face.rest("POST", &format!("/v2{path}/connect"), &json!({}));
    assert_eq!(connected.status, 201, "{}", connected.text());
    assert_eq!(connected.json()["envdAccessToken"], json!(sandbox.token));
    // It is the same process: a new one would begin at 1.
    let now = || face.shell(&sandbox, "cat /tmp/count").trim().parse::<u64>().unwrap_or(0);
    let first = now();
    until("the count goes on", SOON, || {
        let later = now();
        if later > first { Ok(()) } else { Err(format!("{first} {later}")) }
    });
    assert_eq!(face.rest("POST", &format!("/v2{path}/connect"), &json!({})).status, 200);
}

#[test]
fn what_comes_for_a_sandbox_brings_it_back_when_it_wants_that() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let options = json!({ "autoPause": true, "autoResume": { "enabled": true }, "timeout": 1 });
    let sandbox = face.create(&options);
    face.shell(&sandbox, "echo kept > kept");
    until("the sandbox pauses", SOON, || match face.state(&sandbox).as_str() {
        "paused" => Ok(()),
        other => Err(other.to_owned()),
    });
    let response = face.read(&sandbox, "kept");
    assert_eq!((response.status, response.text().as_str()), (200, "kept\n"));
    assert_eq!(face.state(&sandbox), "running");
    let detail = face.rest("GET", &format!("/sandboxes/{}", sandbox.id), &json!({})).json();
    assert_eq!(detail["lifecycle"], json!({ "autoResume": true, "onTimeout": "pause" }));
}

#[test]
fn a_sandbox_is_its_tenants_alone() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    let mut create = Command::new(COVE);
    create.args(["token", "--data-dir"]).arg(server.data_dir());
    create.args(["create", "--name", "other", "--e2b"]);
    let output = create.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let other = Face { client: face.client.clone(), key };
    until("the new token to be known", SOON, || {
        match other.rest("GET", "/v2/sandboxes", &json!({})) {
            response if response.status == 200 => {
                assert_eq!(response.json(), json!([]));
                Ok(())
            }
            response => Err(response.text()),
        }
    });
    let path = format!("/sandboxes/{}", sandbox.id);
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/pause")),
        ("POST", format!("{path}/connect")),
        ("POST", format!("/v2{path}/connect")),
        ("POST", format!("{path}/fork")),
        ("POST", format!("{path}/snapshots")),
        ("GET", format!("{path}/metrics")),
        ("GET", format!("{path}/logs")),
        ("GET", "/sandboxes/ses_01JD5N3V9Q4ZK6T8R2W7XYABCD".to_owned()),
    ] {
        let response = other.rest(method, &path, &json!({}));
        assert_eq!(response.status, 404, "{method} {path}");
        assert_eq!(response.json()["code"], 404);
    }
    assert_eq!(face.state(&sandbox), "running");
    // What is native is not here.
    let native = Request::new("POST", "/v1/sessions").header("content-type", "application/json");
    let native = server.client().send(&native.body("{}"));
    assert_eq!(native.status, 201, "{}", native.text());
    let id = native.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(face.rest("GET", &format!("/sandboxes/{id}"), &json!({})).status, 404);
}

#[test]
fn requests_are_refused_that_cannot_be_carried_out() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    for (body, status, says) in [
        (json!({ "templateID": "nothing" }), 404, "nothing"),
        (json!({ "templateID": "snap_nothing" }), 404, "snap_nothing"),
        (json!({ "timeout": 1_000_000_000 }), 400, "timeout"),
        (json!({ "envVars": { "A=B": "" } }), 400, "env"),
        (json!({ "network": { "allowOut": ["1.1.1.1"] } }), 400, "network.allowOut"),
        (json!({ "volumeMounts": [{ "name": "a", "path": "/a" }] }), 400, "volumeMounts"),
        (json!({ "metadata": 5 }), 400, "metadata"),
        (json!("base"), 400, "body"),
    ] {
        let response = face.rest("POST", "/v2/sandboxes", &body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
        let error = response.json();
        assert_eq!(error["code"], status);
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
    }
    let sandbox = face.create(&json!({}));
    for (procedure, body, status, code) in [
        ("/process.Process/List", json!({}), 200, Value::Null),
        ("/process.Process/Nothing", json!({}), 501, json!("unimplemented")),
        ("/process.Process/SendInput", json!({ "process": { "pid": 1 } }), 404, json!("not_found")),
        ("/process.Process/SendSignal", json!({}), 400, json!("invalid_argument")),
        ("/filesystem.Filesystem/Stat", json!({ "path": "/none" }), 404, json!("not_found")),
        ("/filesystem.Filesystem/Stat", json!({ "path": 5 }), 400, json!("invalid_argument")),
        ("/nothing.Nothing/Stat", json!({}), 501, json!("unimplemented")),
    ] {
        let response = face.call(&sandbox, procedure, &body);
        assert_eq!(response.status, status, "{procedure}: {}", response.text());
        assert_eq!(response.json()["code"], code, "{procedure}");
    }
    for (procedure, body, code) in [
        ("/process.Process/Start", json!({ "process": { "cmd": "" } }), "invalid_argument"),
        ("/process.Process/Start", json!({ "process": { "cmd": "a\0" } }), "invalid_argument"),
        ("/process.Process/Start", json!({ "process": { "cmd": "/none" } }), "invalid_argument"),
        ("/process.Process/Connect", json!({ "process": { "pid": 99 } }), "not_found"),
        ("/filesystem.Filesystem/WatchDir", json!({ "path": "/none" }), "not_found"),
        ("/process.Process/List", json!({}), "unimplemented"),
    ] {
        let frames = face.stream(&sandbox, procedure, &body);
        assert_eq!(frames.last().unwrap()["error"]["code"], code, "{procedure} {body}");
    }
}

#[test]
fn ports_pass_everything_on() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    // Says what it was asked, and turns into a stream of bytes when it is asked to.
    let program = r"
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_): pass
    def do_GET(self):
        if self.headers.get('Upgrade'):
            self.send_response(101); self.send_header('Upgrade', 'echo')
            self.send_header('Connection', 'upgrade'); self.end_headers()
            while data := self.rfile.readline(): self.wfile.write(data.upper())
            return
        sent = [self.headers['Authorization'], self.headers['X-API-KEY']]
        text = ' '.join([self.path, *map(str, sent)])
        self.send_response(200); self.send_header('Content-Length', len(text)); self.end_headers()
        self.wfile.write(text.encode())
http.server.ThreadingHTTPServer(('127.0.0.1', 8080), Handler).serve_forever()
";
    let to = sandbox.request("POST", "/files?path=server.py");
    assert_eq!(face.client.send(&to.body(program)).status, 200);
    let closed = face.client.send(&sandbox.port(8080, "/"));
    assert_eq!(closed.status, 502);
    assert!(closed.json()["message"].as_str().unwrap().contains("port is not open"));
    face.shell(&sandbox, "python3 server.py > log 2>&1 &");
    let request = sandbox.port(8080, "/sandboxes?a=b%20c");
    let request = request.header("authorization", "Bearer the program's own");
    let request = request.header("x-api-key", "the program's, too");
    until("the port answers", SOON, || {
        let response = face.client.send(&request);
        match response.status {
            200 => {
                let expected = "/sandboxes?a=b%20c Bearer the program's own the program's, too";
                assert_eq!(response.text(), expected);
                Ok(())
            }
            _ => Err(response.text()),
        }
    });
    // The clients' headers lead there as well.
    let by_headers = Request::new("GET", "/x").header("e2b-sandbox-id", &sandbox.id);
    let by_headers = face.client.send(&by_headers.header("e2b-sandbox-port", "8080"));
    assert_eq!(by_headers.status, 200, "{}", by_headers.text());
    echo_by_upgrade(&face, &sandbox);
}

/// Takes a connection over, and has its lines answered.
fn echo_by_upgrade(face: &Face, sandbox: &Sandbox) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let request = sandbox.port(8080, "/").header("upgrade", "echo").header("connection", "upgrade");
    let mut stream = face.client.open(&request).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 101"), "{line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    stream.write_all(b"hello\n").unwrap();
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "HELLO\n");
}

#[test]
fn ports_that_are_not_everybodys_want_a_token() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({ "network": { "allowPublicTraffic": false } }));
    let token = sandbox.traffic_token.clone().unwrap();
    let with = |token: &str| sandbox.port(8080, "/").header("e2b-traffic-access-token", token);
    assert_eq!(face.client.send(&sandbox.port(8080, "/")).status, 403);
    assert_eq!(face.client.send(&with(&sandbox.token)).status, 403);
    assert_eq!(face.client.send(&with(&token)).status, 502);
    let open = face.create(&json!({}));
    assert_eq!(open.traffic_token, None);
}

#[test]
fn files_of_any_length_pass_and_signatures_need_no_header() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    // More than what is taken of other bodies, which stay in memory.
    let content: Vec<u8> = (0..40 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
    let to = sandbox.request("POST", "/files?path=large");
    let response = face.client.send(&to.body(content.clone()));
    assert_eq!(response.status, 200, "{}", response.text());
    let back = face.read(&sandbox, "large");
    assert!(back.status == 200 && back.body == content, "{} {}", back.status, back.body.len());
    let full = sandbox.request("POST", "/files?path=larger").body(vec![1; 30 << 20]);
    let full = face.client.send(&full);
    assert_eq!(full.status, 507, "{}", full.text());

    // The address alone says which sandbox it is for, by who has signed it.
    let signature = face.shell(
        &sandbox,
        &format!(
            "printf 'large:read::{}' | openssl dgst -sha256 -binary | base64 | tr -d '=\\n'",
            sandbox.token
        ),
    );
    let signature = signature.replace('+', "%2B").replace('/', "%2F");
    let signed = format!("/files?path=large&signature=v1_{signature}");
    let answer = face.client.send(&Request::new("GET", &signed));
    assert_eq!((answer.status, answer.body.len()), (200, content.len()));
    assert_eq!(face.client.send(&Request::new("POST", &signed).body("x")).status, 401);
    let other = signed.replace("path=large", "path=other");
    assert_eq!(face.client.send(&Request::new("GET", &other)).status, 401);
    assert_eq!(face.client.send(&Request::new("GET", "/files?path=large")).status, 401);
}
