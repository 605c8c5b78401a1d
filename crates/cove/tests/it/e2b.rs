//! E2B's interface: its own clients, unmodified, and behaviour that they do not cover.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, install_packages, until};

use crate::sessions_support::{SOON, config};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, assert_checks_passed, beside_others};

/// Memory of a sandbox in these tests: E2B's clients run interpreters there.
const MEMORY: &str = "memory_bytes = 536870912";

/// Starts a server with this interface.
fn serve() -> Server {
    serve_with(MEMORY)
}

/// Starts a server with other settings of sessions.
pub(crate) fn serve_with(settings: &str) -> Server {
    Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&config(settings)))
}

/// Returns the server's token in the form that E2B's clients require.
pub(crate) fn key(server: &Server) -> String {
    let mut show = Command::new(COVE);
    show.args(["token", "--e2b", "--data-dir"]).arg(server.data_dir());
    let output = show.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a client of `compat/e2b`, which prints a line for each of its checks.
pub(crate) fn run_client(server: &Server, client: &mut Command) {
    run_client_at(server, server.listener("e2b"), client);
}

/// Runs such a client against another address of the server, or of others with its tokens.
pub(crate) fn run_client_at(server: &Server, address: SocketAddr, client: &mut Command) {
    let url = format!("http://{address}");
    client.env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url).env("E2B_API_KEY", key(server));
    assert_checks_passed(&client.output().unwrap());
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

/// Returns the directory of the JavaScript client, installed once below the target directory.
pub(crate) fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-e2b");
        let scripts = ["client.mjs", "interpreter.mjs", "templates.mjs"];
        install_packages(&Path::new(COMPAT).join("e2b"), project, &scripts)
    })
}

/// Client without libraries.
struct Face {
    client: Client,
    key: String,
}

/// Sandbox, from the response to its creation.
struct Sandbox {
    id: String,
    token: String,
    traffic_token: Option<String>,
    host: String,
}

impl Face {
    fn new(server: &Server) -> Face {
        Face { client: Client::new(server.listener("e2b"), None), key: key(server) }
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

    /// Calls a unary procedure.
    fn call(&self, sandbox: &Sandbox, procedure: &str, body: &Value) -> Response {
        let request = sandbox.request("POST", procedure).header("content-type", "application/json");
        self.client.send(&request.body(body.to_string()))
    }

    /// Calls a streaming procedure, and returns all its messages.
    fn stream(&self, sandbox: &Sandbox, procedure: &str, body: &Value) -> Vec<Value> {
        let request =
            sandbox.request("POST", procedure).header("content-type", "application/connect+json");
        let response = self.client.send(&request.body(framed(body)));
        assert_eq!(response.status, 200, "{}", response.text());
        frames(&response.body)
    }

    /// Returns the output of a shell command, and its result.
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
    // The process is the same: a new one would begin at 1.
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
    face.shell(&sandbox, "echo kept > kept; sleep 1000 > /dev/null 2>&1 & echo $! > pid");
    let paused = |sandbox: &Sandbox| {
        until("the sandbox pauses", SOON, || match face.state(sandbox).as_str() {
            "paused" => Ok(()),
            other => Err(other.to_owned()),
        });
    };
    paused(&sandbox);
    let response = face.read(&sandbox, "kept");
    assert_eq!((response.status, response.text().as_str()), (200, "kept\n"));
    assert_eq!(face.state(&sandbox), "running");
    let detail = face.rest("GET", &format!("/sandboxes/{}", sandbox.id), &json!({})).json();
    assert_eq!(detail["lifecycle"], json!({ "autoResume": true, "onTimeout": "pause" }));
    // Running programs continue.
    let alive = "kill -0 $(cat pid) 2> /dev/null && echo alive || echo gone";
    assert_eq!(face.shell(&sandbox, alive), "alive\n");
    // Running programs also survive requests while the sandbox is being paused.
    let boot = |sandbox: &Sandbox| face.read(sandbox, "/proc/sys/kernel/random/boot_id").text();
    let booted = boot(&sandbox);
    let path = format!("/sandboxes/{}", sandbox.id);
    for round in 0..20 {
        let over = face.rest("POST", &format!("{path}/timeout"), &json!({ "timeout": 0 }));
        assert_eq!(over.status, 204);
        paused(&sandbox);
        assert_eq!(face.read(&sandbox, "kept").status, 200);
        assert_eq!(face.shell(&sandbox, alive), "alive\n", "{round}");
    }
    assert_eq!(boot(&sandbox), booted);
    // If only files are kept, the sandbox returns on an explicit request, but not by traffic.
    let options = json!({ "autoPause": true, "autoPauseMemory": false, "timeout": 60 });
    let sandbox = face.create(&options);
    face.shell(&sandbox, "sleep 1000 > /dev/null 2>&1 & echo $! > pid");
    let booted = boot(&sandbox);
    let path = format!("/sandboxes/{}", sandbox.id);
    let over = face.rest("POST", &format!("{path}/timeout"), &json!({ "timeout": 0 }));
    assert_eq!(over.status, 204);
    paused(&sandbox);
    assert_eq!(face.read(&sandbox, "pid").status, 502);
    assert_eq!(face.rest("POST", &format!("/v2{path}/connect"), &json!({})).status, 201);
    assert_eq!(face.shell(&sandbox, alive), "gone\n");
    assert_ne!(boot(&sandbox), booted);
}

/// Returns the events of a watch so far.
fn events(face: &Face, sandbox: &Sandbox, watcher: &Value) -> Vec<(String, String)> {
    let body = json!({ "watcherId": watcher });
    let answer = face.call(sandbox, "/filesystem.Filesystem/GetWatcherEvents", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let events = answer["events"].as_array().unwrap();
    events.iter().map(|event| (text(&event["name"]), text(&event["type"]))).collect()
}

// E2B's own tests query events once, directly after writing. Half of the events had not arrived,
// and some had names that only the server uses.
#[test]
fn a_watch_has_told_all_that_was_done_before_it_is_asked() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    face.shell(&sandbox, "mkdir -p d/below");
    let watch = |recursive: bool| {
        let body = json!({ "path": "d", "recursive": recursive });
        let answer = face.call(&sandbox, "/filesystem.Filesystem/CreateWatcher", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["watcherId"].clone()
    };
    let (flat, deep) = (watch(false), watch(true));
    let event_names = |name: &str, kinds: &[&str]| -> Vec<(String, String)> {
        let kind = |kind: &&str| (name.to_owned(), format!("EVENT_TYPE_{kind}"));
        kinds.iter().map(kind).collect()
    };
    let write = |path: &str| {
        let to = sandbox.request("POST", &format!("/files?path={path}"));
        assert_eq!(face.client.send(&to.body("content")).status, 200);
    };
    for round in 0..20 {
        let (name, below) = (format!("f{round}"), format!("below/f{round}"));
        write(&format!("d/{name}"));
        let created = event_names(&name, &["CREATE", "WRITE", "CHMOD"]);
        assert_eq!(events(&face, &sandbox, &flat), created, "{round}");
        assert_eq!(events(&face, &sandbox, &deep), created, "{round}");
        write(&format!("d/{name}"));
        write(&format!("d/{below}"));
        let written = event_names(&name, &["WRITE", "CHMOD"]);
        assert_eq!(events(&face, &sandbox, &flat), written, "{round}");
        let of_both = [written, event_names(&below, &["CREATE", "WRITE", "CHMOD"])].concat();
        assert_eq!(events(&face, &sandbox, &deep), of_both, "{round}");
    }
    // A new directory is watched as well.
    face.shell(&sandbox, "mkdir d/new && echo 1 > d/new/f");
    let deep = events(&face, &sandbox, &deep);
    for expected in [("new", "CREATE"), ("new/f", "CREATE"), ("new/f", "WRITE")] {
        let expected = event_names(expected.0, &[expected.1]).remove(0);
        assert!(deep.contains(&expected), "{expected:?} {deep:?}");
    }
    assert_eq!(events(&face, &sandbox, &flat), event_names("new", &["CREATE"]));
}

#[test]
fn a_link_is_told_as_what_it_leads_to() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    let links = "mkdir d; echo 1 > d/f; ln -s d/f file; ln -s d dir; ln -s dir/f two; ln -s x none";
    face.shell(&sandbox, links);
    for (name, kind, target) in [
        ("file", "FILE_TYPE_FILE", "/home/user/d/f"),
        ("dir", "FILE_TYPE_DIRECTORY", "/home/user/d"),
        ("two", "FILE_TYPE_FILE", "/home/user/d/f"),
        ("none", "FILE_TYPE_SYMLINK", "/home/user/x"),
    ] {
        let stat = face.call(&sandbox, "/filesystem.Filesystem/Stat", &json!({ "path": name }));
        let stat = stat.json()["entry"].clone();
        assert_eq!(
            (&stat["type"], &stat["symlinkTarget"]),
            (&json!(kind), &json!(target)),
            "{stat}"
        );
        let list = face.call(&sandbox, "/filesystem.Filesystem/ListDir", &json!({ "path": "." }));
        let list = list.json();
        let entries = list["entries"].as_array().unwrap();
        assert!(entries.contains(&stat), "{stat} {list}");
    }
}

#[test]
fn figures_are_those_of_the_time_that_is_asked_for() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    let path = format!("/sandboxes/{}/metrics", sandbox.id);
    let ask = |query: &str| face.rest("GET", &format!("{path}{query}"), &json!({})).json();
    let all = ask("");
    let now = all.as_array().unwrap().last().unwrap()["timestampUnix"].as_u64().unwrap();
    let since = ask(&format!("?start={}", now - 60));
    assert!(!since.as_array().unwrap().is_empty(), "{since}");
    assert_eq!(ask(&format!("?start={}&end={}", now - 3600, now - 1800)), json!([]));
    assert_eq!(ask(&format!("?start={}", now + 3600)), json!([]));
    let wrong = face.rest("GET", &format!("{path}?start=x"), &json!({}));
    assert_eq!(wrong.status, 400);
}

#[test]
fn a_command_hears_that_its_sandbox_was_killed() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let sandbox = face.create(&json!({}));
    let path = format!("/sandboxes/{}", sandbox.id);
    let frames = std::thread::scope(|scope| {
        let body = json!({ "process": { "cmd": "/bin/sleep", "args": ["1000"] } });
        let running = scope.spawn({
            let (face, sandbox) = (&face, &sandbox);
            move || face.stream(sandbox, "/process.Process/Start", &body)
        });
        until("the command runs", SOON, || {
            let list = face.call(&sandbox, "/process.Process/List", &json!({})).json();
            let count = list["processes"].as_array().map_or(0, Vec::len);
            if count == 1 { Ok(()) } else { Err(list.to_string()) }
        });
        assert_eq!(face.rest("DELETE", &path, &json!({})).status, 204);
        running.join().unwrap()
    });
    let error = &frames.last().unwrap()["error"];
    assert_eq!(error["code"], "unavailable");
    let message = error["message"].as_str().unwrap();
    // E2B's clients expect this text.
    assert!(message.contains("sandbox was killed or reached its end of life"), "{message}");
    assert_eq!(face.state(&sandbox), "404");
}

/// Starts an external server at an address of this test: E2B's rules have no ports.
fn outside() -> (String, std::thread::JoinHandle<()>, std::net::TcpListener) {
    use std::io::{Read as _, Write as _};
    let address = (1..255).find_map(|last| {
        let address = format!("127.{}.{}.{last}", 64 + std::process::id() % 64, last);
        let listener = std::net::TcpListener::bind((address.as_str(), 80)).ok()?;
        Some((address, listener))
    });
    let (address, listener) = address.expect("an address whose port 80 is free");
    let accepting = listener.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        while let Ok((mut stream, _)) = accepting.accept() {
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap_or(0);
            if request[..count].starts_with(b"END") {
                return;
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\noutside";
            let _gone = stream.write_all(answer.as_bytes());
        }
    });
    (address, thread, listener)
}

#[test]
fn network_rules_are_a_grant_that_can_be_changed() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let (address, thread, listener) = outside();
    let url = format!("http://{address}/");
    let network = json!({ "denyOut": ["0.0.0.0/0"], "allowOut": [address] });
    let sandbox = face.create(&json!({ "network": network }));
    let ask = |url: &str| {
        let command = format!(
            "curl -s -m 20 {url} || echo $?; curl -s -o /dev/null -m 20 -w %{{http_code}} {url}"
        );
        face.shell(&sandbox, &command)
    };
    assert_eq!(ask(&url), "outside200");
    // Another address of the same machine, which is not allowed.
    assert!(ask("http://127.0.0.2/").ends_with("403"));
    let update =
        |body: &Value| face.rest("PUT", &format!("/sandboxes/{}/network", sandbox.id), body);
    assert_eq!(update(&json!({})).status, 204);
    assert!(ask(&url).ends_with("000"), "the proxy is gone");
    assert_eq!(update(&json!({ "allowOut": [address] })).status, 204);
    assert_eq!(ask(&url), "outside200");
    // Replaced in place: the remaining rules differ.
    assert_eq!(update(&json!({ "allowOut": ["a.example"] })).status, 204);
    assert!(ask(&url).ends_with("403"));
    assert_eq!(update(&json!({ "allowPublicTraffic": false })).status, 400);
    assert_eq!(update(&json!({ "denyOut": ["a.example"] })).status, 400);
    // The rules persist when the sandbox returns.
    assert_eq!(update(&json!({ "allowOut": [address] })).status, 204);
    let path = format!("/sandboxes/{}", sandbox.id);
    let pause = face.rest("POST", &format!("{path}/pause"), &json!({ "memory": false }));
    assert_eq!(pause.status, 204);
    assert_eq!(face.rest("POST", &format!("/v2{path}/connect"), &json!({})).status, 201);
    assert_eq!(ask(&url), "outside200");
    // A token without offers cannot grant this to a sandbox.
    let mut create = Command::new(COVE);
    create.args(["token", "--data-dir"]).arg(server.data_dir());
    let output = create.args(["create", "--name", "other", "--e2b"]).output().unwrap();
    let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let other = Face { client: face.client.clone(), key };
    until("the new token is refused", SOON, || {
        let body = json!({ "templateID": "base", "network": { "allowOut": ["a.example"] } });
        let refused = other.rest("POST", "/v2/sandboxes", &body);
        let text = refused.text();
        if refused.status == 403 && text.contains("http:a.example") { Ok(()) } else { Err(text) }
    });
    use std::io::Write as _;
    std::net::TcpStream::connect((address.as_str(), 80)).unwrap().write_all(b"END").unwrap();
    thread.join().unwrap();
    drop(listener);
}

#[test]
fn requests_to_ports_have_the_host_that_the_sandbox_wants() {
    let _guard = beside_others();
    let server = serve();
    let face = Face::new(&server);
    let mask = json!({ "maskRequestHost": "masked.example:${PORT}" });
    let sandbox = face.create(&json!({ "network": mask }));
    let program = r"
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        text = [it for it in str(self.headers).splitlines() if it.lower().startswith('host')][0]
        self.send_response(200); self.end_headers(); self.wfile.write(text.encode())
http.server.HTTPServer(('127.0.0.1', 8080), Handler).serve_forever()
";
    let to = sandbox.request("POST", "/files?path=server.py");
    assert_eq!(face.client.send(&to.body(program)).status, 200);
    face.shell(&sandbox, "python3 server.py > log 2>&1 &");
    until("the port answers", SOON, || {
        let response = face.client.send(&sandbox.port(8080, "/"));
        match response.status {
            200 => {
                assert_eq!(response.text(), "Host: masked.example:8080");
                Ok(())
            }
            _ => Err(response.text()),
        }
    });
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
    // A native session is not visible here.
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
        (json!({ "network": { "allowOut": ["1.1.1.1:80"] } }), 400, "network.allowOut[0]"),
        // A misspelt field, which once resulted in a sandbox with public ports.
        (
            json!({ "network": { "allow_public_traffic": false } }),
            400,
            "network.allow_public_traffic: unknown field",
        ),
        (json!({ "network": { "egressProxy": { "address": "a:1" } } }), 400, "egressProxy"),
        (json!({ "volumeMounts": [{ "name": "a", "path": "/a" }] }), 400, "volumeMounts"),
        (json!({ "metadata": 5 }), 400, "metadata"),
        (json!("base"), 400, "expected an object"),
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
    // Returns the request, and switches to a byte stream on request.
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
    // The clients' headers select the port as well.
    let by_headers = Request::new("GET", "/x").header("e2b-sandbox-id", &sandbox.id);
    let by_headers = face.client.send(&by_headers.header("e2b-sandbox-port", "8080"));
    assert_eq!(by_headers.status, 200, "{}", by_headers.text());
    echo_by_upgrade(&face, &sandbox);
}

/// Upgrades a connection, and checks that its lines are answered.
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
    // Larger than the limit of other request bodies, which are held in memory.
    let content: Vec<u8> = (0..40 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
    let to = sandbox.request("POST", "/files?path=large");
    let response = face.client.send(&to.body(content.clone()));
    assert_eq!(response.status, 200, "{}", response.text());
    let back = face.read(&sandbox, "large");
    assert!(back.status == 200 && back.body == content, "{} {}", back.status, back.body.len());
    let full = sandbox.request("POST", "/files?path=larger").body(vec![1; 30 << 20]);
    let full = face.client.send(&full);
    assert_eq!(full.status, 507, "{}", full.text());

    // The URL alone identifies the sandbox, by its signature.
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
    let stale = face.client.send(&Request::new("GET", &format!("{signed}&signature_expiration=1")));
    assert_eq!(stale.json(), json!({ "code": 401, "message": "signature is already expired" }));
    assert_eq!(face.client.send(&Request::new("GET", "/files?path=large")).status, 401);
}
