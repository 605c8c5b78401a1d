//! Helpers for tests of sessions: servers with sessions, agents, and a client for both.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use testkit::{Client, EventStream, Request, Response, Server, process, until};

use crate::asynchronous::{assert_error, id, post, post_request};
use crate::support::{COVE, LANGUAGES, wait_for_sleep};

pub(crate) use crate::support::SOON;

/// Size of a session's disk in most tests, in bytes.
pub(crate) const DISK_BYTES: u64 = 64 << 20;

/// Source of the probe agent, which executes the commands in its messages.
const PROBE: &str = include_str!("../agents/probe.py");

/// Starts a server for small sessions, with these lines in the `[sessions]` table of its
/// configuration.
pub(crate) fn serve_sessions(settings: &str) -> Server {
    Server::start_with(COVE, &[], Some(&config(settings)))
}

/// Returns the configuration of such a server. Lines of other tables may follow those of
/// `[sessions]`.
pub(crate) fn config(settings: &str) -> String {
    // Sessions do not use prestarted interpreters, which take long to start.
    format!(
        "sandbox.warm_runtimes = false\nexecutions.languages = {LANGUAGES:?}\n\
         [sessions]\ndisk_bytes = {DISK_BYTES}\ndisk_inodes = 8192\n{settings}\n"
    )
}

/// Returns the request that deploys the probe agent.
pub(crate) fn probe(name: &str) -> Value {
    json!({
        "name": name,
        "files": [{"path": "probe.py", "content": PROBE}],
        "runtime": {"type": "command", "argv": ["python3", "probe.py"]},
    })
}

/// Returns `one` with the fields of `other`, which replace fields with the same names.
pub(crate) fn with(mut one: Value, other: &Value) -> Value {
    for (name, value) in other.as_object().unwrap() {
        one[name] = value.clone();
    }
    one
}

/// Client of `/v1/agents` and `/v1/sessions`.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    pub(crate) client: Client,
}

impl From<&Server> for Sessions {
    fn from(server: &Server) -> Sessions {
        Sessions { client: server.client() }
    }
}

impl Sessions {
    /// Deploys an agent; the request must succeed.
    pub(crate) fn deploy(&self, request: &Value) -> Value {
        let response = post(&self.client, "/v1/agents", request);
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()
    }

    /// Requests a session.
    pub(crate) fn try_create(&self, request: &Value) -> Response {
        post(&self.client, "/v1/sessions", request)
    }

    /// Creates a session; the request must succeed. Returns its id.
    pub(crate) fn create(&self, request: &Value) -> String {
        let response = self.try_create(request);
        assert_eq!(response.status, 201, "{request}: {}", response.text());
        id(&response.json())
    }

    /// Deploys the probe agent, and creates a session of it.
    pub(crate) fn probe(&self) -> String {
        self.deploy(&probe("probe"));
        self.create(&json!({"agent": "probe"}))
    }

    /// Returns the record of a session.
    pub(crate) fn record(&self, session: &str) -> Value {
        ok(&self.client.get(&path(session)))
    }

    /// Performs an action on a session: `pause`, `stop`, `resume`, `fork`, `interrupt`.
    pub(crate) fn act(&self, session: &str, verb: &str) -> Response {
        post(&self.client, &format!("{}/{verb}", path(session)), &json!({}))
    }

    /// Performs such an action, which must succeed.
    pub(crate) fn did(&self, session: &str, verb: &str) -> Value {
        ok(&self.act(session, verb))
    }

    /// Forks a session. Returns the id of the copy.
    pub(crate) fn fork(&self, session: &str) -> String {
        id(&self.did(session, "fork")["sessions"][0])
    }

    /// Ends a session permanently.
    pub(crate) fn end(&self, session: &str) -> Value {
        ok(&self.client.send(&Request::new("DELETE", &path(session))))
    }

    /// Waits until a session and its sandbox are in these states.
    pub(crate) fn wait_for(&self, session: &str, state: &str, sandbox: &str) -> Value {
        until(&format!("{session} {state} and {sandbox}"), SOON, || {
            let record = self.record(session);
            let is_there = record["state"] == state && record["sandbox"] == sandbox;
            if is_there { Ok(record) } else { Err(record.to_string()) }
        })
    }

    /// Sends a message, and returns its turn as a stream.
    pub(crate) fn send(&self, session: &str, text: &str) -> Turn {
        self.send_as(session, &json!({"content": text}))
    }

    /// Sends a message with any fields.
    pub(crate) fn send_as(&self, session: &str, message: &Value) -> Turn {
        let request = post_request(&format!("{}/messages", path(session)), message);
        let events = self.client.events_by(&request);
        let events = events.unwrap_or_else(|response| panic!("{message}: {}", response.text()));
        Turn { received: Vec::new(), events }
    }

    /// Sends a message, and reads its whole turn.
    pub(crate) fn hear(&self, session: &str, text: &str) -> Heard {
        self.send(session, text).end()
    }

    /// Sends a message whose turn must have no errors. Returns the agent's answer.
    pub(crate) fn ask(&self, session: &str, text: &str) -> String {
        let turn = self.hear(session, text);
        assert_eq!(turn.errors(), [""; 0], "{text}");
        turn.result()
    }

    /// Sends a message that must be rejected. Returns the error message.
    pub(crate) fn refused(&self, session: &str, status: u16, code: &str) -> String {
        let target = format!("{}/messages", path(session));
        let response = post(&self.client, &target, &json!({"content": "hello"}));
        assert_error(&response, status, code, None);
        response.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Returns all messages of this conversation, as the agent remembers them.
    pub(crate) fn recall(&self, session: &str) -> Vec<String> {
        serde_json::from_str(&self.ask(session, "recall")).unwrap()
    }

    /// Runs a shell command beside the agent.
    pub(crate) fn try_exec(&self, session: &str, command: &str) -> Response {
        let target = format!("{}/exec", path(session));
        post(&self.client, &target, &json!({"command": command, "timeout_ms": 60_000}))
    }

    /// Runs a shell command that must start. Returns its result.
    pub(crate) fn exec(&self, session: &str, command: &str) -> Value {
        let response = self.try_exec(session, command);
        assert_eq!(response.status, 200, "{command}: {}", response.text());
        response.json()
    }

    /// Runs a shell command that must succeed. Returns its standard output.
    pub(crate) fn out(&self, session: &str, command: &str) -> String {
        let result = self.exec(session, command);
        assert_eq!(result["exit_code"], 0, "{command}: {result}");
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Writes a file of the workspace.
    pub(crate) fn write(&self, session: &str, file: &str, content: &[u8]) -> Response {
        let target = format!("{}/files/{file}", path(session));
        self.client.send(&Request::new("PUT", &target).body(content))
    }

    /// Packs entries of a local directory, and unpacks them into a directory of the workspace.
    pub(crate) fn unpack(&self, session: &str, into: &str, from: &Path, names: &[&str]) {
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(from).args(["--exclude=__pycache__", "-c"]).args(names);
        let packed = tar.output().unwrap();
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let target = format!("{}/archive?path={into}", path(session));
        ok(&self.client.send(&Request::new("PUT", &target).body(packed.stdout)));
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, session: &str, file: &str) -> Response {
        self.client.get(&format!("{}/files/{file}", path(session)))
    }

    /// Returns the stored events of a session after this number.
    pub(crate) fn kept(&self, session: &str, after: u64) -> Vec<Value> {
        let mut after = after;
        let mut kept = Vec::new();
        loop {
            let target = format!("{}/events?after={after}&limit=1000", path(session));
            let request = Request::new("GET", &target).header("accept", "application/json");
            let page = ok(&self.client.send(&request));
            kept.extend(page["events"].as_array().unwrap().iter().cloned());
            match page["next_after"].as_u64() {
                Some(next) => after = next,
                None => return kept,
            }
        }
    }

    /// Returns the numbers of session sandboxes.
    pub(crate) fn counts(&self) -> Value {
        ok(&self.client.get("/v1/sandboxes?here=true"))
    }

    /// Waits until the counts have these values.
    pub(crate) fn wait_for_counts(&self, wanted: &Value) {
        until(&format!("{wanted}"), SOON, || {
            let counts = self.counts();
            let mut figures = wanted.as_object().unwrap().iter();
            let is_so = figures.all(|(name, figure)| counts[name] == *figure);
            if is_so { Ok(()) } else { Err(counts.to_string()) }
        });
    }
}

/// Returns the path of a session in the API.
pub(crate) fn path(session: &str) -> String {
    format!("/v1/sessions/{session}")
}

/// Returns the content of a response, which must be successful.
pub(crate) fn ok(response: &Response) -> Value {
    assert!((200..300).contains(&response.status), "{}: {}", response.status, response.text());
    response.json()
}

/// Turn that is read as a stream.
#[derive(Debug)]
pub(crate) struct Turn {
    received: Vec<Value>,
    events: EventStream,
}

impl Turn {
    /// Reads up to this text of the agent.
    pub(crate) fn until_text(&mut self, text: &str) {
        self.until(&format!("the text {text:?}"), |event| {
            event["type"] == "text" && event["data"]["text"] == text
        });
    }

    /// Reads up to an event that satisfies `is_it`.
    pub(crate) fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        loop {
            let event = self.next();
            let event = event.unwrap_or_else(|| panic!("no {what} in {:?}", self.received));
            if is_it(&event) {
                return;
            }
        }
    }

    /// Returns the name of the turn.
    pub(crate) fn name(&self) -> String {
        self.received.first().unwrap()["turn"].as_str().unwrap().to_owned()
    }

    fn next(&mut self) -> Option<Value> {
        let sent = self.events.next()?;
        assert_eq!(sent.name, sent.data["type"].as_str().unwrap());
        // Events that are not stored have a number, but no id to resume from.
        let number = sent.id.parse().ok();
        assert!(sent.id.is_empty() || sent.data["seq"].as_u64() == number, "{sent:?}");
        self.received.push(sent.data.clone());
        Some(sent.data)
    }

    /// Reads until the server ends the stream, at any point of the turn.
    pub(crate) fn cut(mut self) -> Vec<Value> {
        while self.next().is_some() {}
        self.received
    }

    /// Reads to the end.
    pub(crate) fn end(mut self) -> Heard {
        while self.next().is_some() {}
        Heard::new(self.received)
    }
}

/// Complete turn.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) events: Vec<Value>,
}

impl Heard {
    /// Checks the invariants of every turn: one beginning, one end, one name, growing numbers.
    pub(crate) fn new(events: Vec<Value>) -> Heard {
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!((of("turn_start"), of("done")), (1, 1), "{events:?}");
        assert_eq!(events.first().unwrap()["type"], "turn_start", "{events:?}");
        assert_eq!(events.last().unwrap()["type"], "done", "{events:?}");
        assert!(events.iter().all(|event| event["turn"] == events[0]["turn"]), "{events:?}");
        assert!(numbers(&events).is_sorted(), "{events:?}");
        Heard { events }
    }

    /// Returns the agent's answer.
    pub(crate) fn result(&self) -> String {
        let mut results = self.events.iter().filter(|event| event["type"] == "turn_complete");
        let result = results.next().unwrap_or_else(|| panic!("no result in {:?}", self.events));
        result["data"]["result"].as_str().unwrap().to_owned()
    }

    /// Returns the messages of its errors.
    pub(crate) fn errors(&self) -> Vec<&str> {
        let errors = self.events.iter().filter(|event| event["type"] == "error");
        errors.map(|event| event["data"]["error"].as_str().unwrap()).collect()
    }
}

/// Returns the numbers of events.
pub(crate) fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// Returns the images of a server's disks or layers, by the name of their directory.
pub(crate) fn images(server: &Server, kind: &str) -> Vec<PathBuf> {
    let directory = server.data_dir().join("sessions").join(kind);
    let entries = fs::read_dir(&directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the backing files of loop devices below `directory`, even if it no longer exists.
pub(crate) fn loop_devices(directory: &Path) -> Vec<String> {
    let directory = directory.to_string_lossy();
    let devices = fs::read_dir("/sys/block").unwrap();
    let files = devices.filter_map(|device| {
        fs::read_to_string(device.ok()?.path().join("loop/backing_file")).ok()
    });
    files.filter(|file| file.starts_with(&*directory)).collect()
}

/// Starts a program in a session that keeps running. Returns its process id on the host.
pub(crate) fn start_inside(sessions: &Sessions, session: &str) -> u32 {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let marker = format!("77{}.{number}", std::process::id());
    sessions.out(session, &format!("setsid sleep {marker} > /dev/null 2>&1 < /dev/null &"));
    wait_for_sleep(&marker).pid
}

/// Returns the process id on the host of a session's guest init.
pub(crate) fn guest_init(sessions: &Sessions, session: &str) -> u32 {
    let inside = start_inside(sessions, session);
    let mut ancestor = inside;
    while process::name(ancestor) != "cove-init" {
        ancestor = process::parent(ancestor).unwrap();
        assert!(ancestor > 1, "no guest init above {inside}");
    }
    ancestor
}

/// Adds the paths of all files below a directory to `found`; none if it does not exist.
pub(crate) fn walk(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, found),
            _ => drop(found.insert(path.display().to_string())),
        }
    }
}
