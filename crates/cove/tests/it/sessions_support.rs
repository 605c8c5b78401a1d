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

/// The agent that does what it is told.
const PROBE: &str = include_str!("../agents/probe.py");

/// A server for small sessions, with these lines in the `[sessions]` table of its configuration.
pub(crate) fn serve_sessions(settings: &str) -> Server {
    Server::start_with(COVE, &[], Some(&config(settings)))
}

/// The configuration of such a server. Lines of other tables may follow those of `[sessions]`.
pub(crate) fn config(settings: &str) -> String {
    // Interpreters that start ahead are of no use to sessions, and a lot to wait for.
    format!(
        "sandbox.warm_runtimes = false\nexecutions.languages = {LANGUAGES:?}\n\
         [sessions]\ndisk_bytes = {DISK_BYTES}\ndisk_inodes = 8192\n{settings}\n"
    )
}

/// What an agent is deployed with that does what it is told.
pub(crate) fn probe(name: &str) -> Value {
    json!({
        "name": name,
        "files": [{"path": "probe.py", "content": PROBE}],
        "runtime": {"type": "command", "argv": ["python3", "probe.py"]},
    })
}

/// `one` with the fields of `other` beside or in place of its own.
pub(crate) fn with(mut one: Value, other: &Value) -> Value {
    for (name, value) in other.as_object().unwrap() {
        one[name] = value.clone();
    }
    one
}

/// A client of `/v1/agents` and `/v1/sessions`.
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
    /// Deploys an agent that must be accepted.
    pub(crate) fn deploy(&self, request: &Value) -> Value {
        let response = post(&self.client, "/v1/agents", request);
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()
    }

    /// Asks for a session.
    pub(crate) fn try_create(&self, request: &Value) -> Response {
        post(&self.client, "/v1/sessions", request)
    }

    /// A session that must be made; its id.
    pub(crate) fn create(&self, request: &Value) -> String {
        let response = self.try_create(request);
        assert_eq!(response.status, 201, "{request}: {}", response.text());
        id(&response.json())
    }

    /// A session of the agent that does what it is told, which is deployed for that.
    pub(crate) fn probe(&self) -> String {
        self.deploy(&probe("probe"));
        self.create(&json!({"agent": "probe"}))
    }

    /// Record of a session.
    pub(crate) fn record(&self, session: &str) -> Value {
        ok(&self.client.get(&path(session)))
    }

    /// Does something to a session: `pause`, `stop`, `resume`, `fork`, `interrupt`.
    pub(crate) fn act(&self, session: &str, verb: &str) -> Response {
        post(&self.client, &format!("{}/{verb}", path(session)), &json!({}))
    }

    /// The same where it must succeed.
    pub(crate) fn did(&self, session: &str, verb: &str) -> Value {
        ok(&self.act(session, verb))
    }

    /// A copy of a session.
    pub(crate) fn fork(&self, session: &str) -> String {
        id(&self.did(session, "fork")["sessions"][0])
    }

    /// Ends a session for ever.
    pub(crate) fn end(&self, session: &str) -> Value {
        ok(&self.client.send(&Request::new("DELETE", &path(session))))
    }

    /// Waits until a session is in a state, and its sandbox in another.
    pub(crate) fn wait_for(&self, session: &str, state: &str, sandbox: &str) -> Value {
        until(&format!("{session} {state} and {sandbox}"), SOON, || {
            let record = self.record(session);
            let is_there = record["state"] == state && record["sandbox"] == sandbox;
            if is_there { Ok(record) } else { Err(record.to_string()) }
        })
    }

    /// Sends a message whose turn is heard as it comes.
    pub(crate) fn send(&self, session: &str, text: &str) -> Turn {
        self.send_as(session, &json!({"content": text}))
    }

    /// The same with further fields.
    pub(crate) fn send_as(&self, session: &str, message: &Value) -> Turn {
        let request = post_request(&format!("{}/messages", path(session)), message);
        let events = self.client.events_by(&request);
        let events = events.unwrap_or_else(|response| panic!("{message}: {}", response.text()));
        Turn { received: Vec::new(), events }
    }

    /// Sends a message and hears all of its turn.
    pub(crate) fn hear(&self, session: &str, text: &str) -> Heard {
        self.send(session, text).end()
    }

    /// Sends a message that must be answered; the answer.
    pub(crate) fn ask(&self, session: &str, text: &str) -> String {
        let turn = self.hear(session, text);
        assert_eq!(turn.errors(), [""; 0], "{text}");
        turn.result()
    }

    /// A message that must be refused.
    pub(crate) fn refused(&self, session: &str, status: u16, code: &str) -> String {
        let target = format!("{}/messages", path(session));
        let response = post(&self.client, &target, &json!({"content": "hello"}));
        assert_error(&response, status, code, None);
        response.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    /// All that was said to the agent in this conversation, as the agent remembers it.
    pub(crate) fn recall(&self, session: &str) -> Vec<String> {
        serde_json::from_str(&self.ask(session, "recall")).unwrap()
    }

    /// Runs a line of shell beside the agent.
    pub(crate) fn try_exec(&self, session: &str, command: &str) -> Response {
        let target = format!("{}/exec", path(session));
        post(&self.client, &target, &json!({"command": command, "timeout_ms": 60_000}))
    }

    /// The same where it must run; how it ended.
    pub(crate) fn exec(&self, session: &str, command: &str) -> Value {
        let response = self.try_exec(session, command);
        assert_eq!(response.status, 200, "{command}: {}", response.text());
        response.json()
    }

    /// The same where it must succeed; what it wrote.
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

    /// Brings what has these names in a directory into one of the workspace.
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

    /// Events of a session that are kept, after this number.
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

    /// Sandboxes of sessions, counted.
    pub(crate) fn counts(&self) -> Value {
        ok(&self.client.get("/v1/sandboxes?here=true"))
    }

    /// Waits until the counts have these figures.
    pub(crate) fn wait_for_counts(&self, wanted: &Value) {
        until(&format!("{wanted}"), SOON, || {
            let counts = self.counts();
            let mut figures = wanted.as_object().unwrap().iter();
            let is_so = figures.all(|(name, figure)| counts[name] == *figure);
            if is_so { Ok(()) } else { Err(counts.to_string()) }
        });
    }
}

/// Where a session is.
pub(crate) fn path(session: &str) -> String {
    format!("/v1/sessions/{session}")
}

/// The content of an answer that must be a good one.
pub(crate) fn ok(response: &Response) -> Value {
    assert!((200..300).contains(&response.status), "{}: {}", response.status, response.text());
    response.json()
}

/// A turn that is heard as it comes.
#[derive(Debug)]
pub(crate) struct Turn {
    received: Vec<Value>,
    events: EventStream,
}

impl Turn {
    /// Reads up to a text of the agent's.
    pub(crate) fn until_text(&mut self, text: &str) {
        self.until(&format!("the text {text:?}"), |event| {
            event["type"] == "text" && event["data"]["text"] == text
        });
    }

    /// Reads up to an event.
    pub(crate) fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        loop {
            let event = self.next();
            let event = event.unwrap_or_else(|| panic!("no {what} in {:?}", self.received));
            if is_it(&event) {
                return;
            }
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        self.received.first().unwrap()["turn"].as_str().unwrap().to_owned()
    }

    fn next(&mut self) -> Option<Value> {
        let sent = self.events.next()?;
        assert_eq!(sent.name, sent.data["type"].as_str().unwrap());
        // What is not kept has a number, and none to come back with.
        let number = sent.id.parse().ok();
        assert!(sent.id.is_empty() || sent.data["seq"].as_u64() == number, "{sent:?}");
        self.received.push(sent.data.clone());
        Some(sent.data)
    }

    /// Reads what is said until the server ends the stream, wherever that is in the turn.
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

/// A whole turn.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) events: Vec<Value>,
}

impl Heard {
    /// Asserts what holds for every turn: one beginning, one end, one name, growing numbers.
    pub(crate) fn new(events: Vec<Value>) -> Heard {
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!((of("turn_start"), of("done")), (1, 1), "{events:?}");
        assert_eq!(events.first().unwrap()["type"], "turn_start", "{events:?}");
        assert_eq!(events.last().unwrap()["type"], "done", "{events:?}");
        assert!(events.iter().all(|event| event["turn"] == events[0]["turn"]), "{events:?}");
        assert!(numbers(&events).is_sorted(), "{events:?}");
        Heard { events }
    }

    /// Answer of the agent.
    pub(crate) fn result(&self) -> String {
        let mut results = self.events.iter().filter(|event| event["type"] == "turn_complete");
        let result = results.next().unwrap_or_else(|| panic!("no result in {:?}", self.events));
        result["data"]["result"].as_str().unwrap().to_owned()
    }

    /// Messages of its errors.
    pub(crate) fn errors(&self) -> Vec<&str> {
        let errors = self.events.iter().filter(|event| event["type"] == "error");
        errors.map(|event| event["data"]["error"].as_str().unwrap()).collect()
    }
}

/// Numbers of events.
pub(crate) fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// Files with images of disks and layers that a server has, by the name of their directory.
pub(crate) fn images(server: &Server, kind: &str) -> Vec<PathBuf> {
    let directory = server.data_dir().join("sessions").join(kind);
    let entries = fs::read_dir(&directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Loop devices whose file is below `directory`, also when that is gone.
pub(crate) fn loop_devices(directory: &Path) -> Vec<String> {
    let directory = directory.to_string_lossy();
    let devices = fs::read_dir("/sys/block").unwrap();
    let files = devices.filter_map(|device| {
        fs::read_to_string(device.ok()?.path().join("loop/backing_file")).ok()
    });
    files.filter(|file| file.starts_with(&*directory)).collect()
}

/// Starts a program in a session that stays, and gives its process as the host sees it.
pub(crate) fn start_inside(sessions: &Sessions, session: &str) -> u32 {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let marker = format!("77{}.{number}", std::process::id());
    sessions.out(session, &format!("setsid sleep {marker} > /dev/null 2>&1 < /dev/null &"));
    wait_for_sleep(&marker).pid
}

/// The guest init of a session's sandbox, as the host sees it.
pub(crate) fn guest_init(sessions: &Sessions, session: &str) -> u32 {
    let inside = start_inside(sessions, session);
    let mut ancestor = inside;
    while process::name(ancestor) != "cove-init" {
        ancestor = process::parent(ancestor).unwrap();
        assert!(ancestor > 1, "no guest init above {inside}");
    }
    ancestor
}

/// Adds the paths of all files below a directory to what was found; none when it is not there.
pub(crate) fn walk(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, found),
            _ => drop(found.insert(path.display().to_string())),
        }
    }
}
