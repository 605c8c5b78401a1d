//! Control plane of Claude Managed Agents' self-hosted environments, with the published types: the
//! work queue with its leases, and sessions with their events. The test takes the place of the
//! model: it decides which tools the agent calls. `managed_agents.rs` also runs Anthropic's own
//! worker with it, which shows that it speaks the protocol.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use testkit::Stopwatch;

use crate::support::SOON;

pub(crate) const ENVIRONMENT: &str = "env_test";
/// Key of the environment, which must not be visible in a sandbox.
pub(crate) const KEY: &str = "sk-ant-oat01-KEY-OF-THE-ENVIRONMENT";
const BETA: &str = "managed-agents-2026-04-01";
/// Time after which an unacknowledged item is handed out again.
const RECLAIM: Duration = Duration::from_secs(5);
/// Maximum wait for an event before the state is checked again.
const TICK: Duration = Duration::from_millis(50);

/// Response of the plane during an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaneOutage {
    /// Connections are closed without an answer.
    Gone,
    /// Every response is 529, with a `retry-after` of one second.
    Overloaded,
}

/// Unit of work as the control plane stores it.
#[derive(Clone, Debug)]
pub(crate) struct PlaneWork {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) state: &'static str,
    /// Workers that have claimed it.
    pub(crate) claims: Vec<String>,
    last_heartbeat: Option<String>,
    /// Time since the control plane started.
    polled: Option<Duration>,
    lease_ends: Option<Duration>,
}

#[derive(Default)]
struct PlaneSession {
    events: Vec<Value>,
    token: Option<String>,
    is_deleted: bool,
    status: &'static str,
    resources: Value,
}

#[derive(Default)]
struct PlaneState {
    works: Vec<PlaneWork>,
    sessions: BTreeMap<String, PlaneSession>,
    outage: Option<PlaneOutage>,
    /// Request line and authorization of every request.
    requests: Vec<(String, String)>,
    counter: u64,
    ttl_s: u64,
    clock: Option<Stopwatch>,
    is_over: bool,
}

struct PlaneShared {
    state: Mutex<PlaneState>,
    changed: Condvar,
}

/// Control plane, which stops on drop.
pub(crate) struct ManagedPlane {
    address: SocketAddr,
    shared: Arc<PlaneShared>,
    accepting: Option<JoinHandle<()>>,
}

impl ManagedPlane {
    /// Starts a control plane with long leases.
    pub(crate) fn start() -> ManagedPlane {
        ManagedPlane::start_with_ttl(60)
    }

    pub(crate) fn start_with_ttl(ttl_s: u64) -> ManagedPlane {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Mutex::new(PlaneState {
            ttl_s,
            clock: Some(Stopwatch::start()),
            ..PlaneState::default()
        });
        let shared = Arc::new(PlaneShared { state, changed: Condvar::new() });
        let accepted = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            let mut serving: Vec<JoinHandle<()>> = Vec::new();
            for stream in listener.incoming() {
                if accepted.state.lock().is_over {
                    break;
                }
                let shared = Arc::clone(&accepted);
                // A client that disconnects in the middle is no failure of the control plane.
                let serve = move || drop(stream.and_then(|stream| shared.serve(stream)));
                serving.retain(|it| !it.is_finished());
                serving.push(thread::spawn(serve));
            }
            for thread in serving {
                thread.join().unwrap();
            }
        });
        ManagedPlane { address, shared, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a session with work for it. If it has a token, requests about it must send that.
    pub(crate) fn session(&self, id: &str, token: Option<&str>) {
        self.session_with(id, token, json!([]));
    }

    pub(crate) fn session_with(&self, id: &str, token: Option<&str>, resources: Value) {
        let mut state = self.shared.state.lock();
        let session = PlaneSession {
            token: token.map(str::to_owned),
            status: "idle",
            resources,
            ..PlaneSession::default()
        };
        state.sessions.insert(id.to_owned(), session);
        drop(state);
        self.say(id, "go");
    }

    /// Sends a user message, which queues work unless there is some in progress.
    pub(crate) fn say(&self, session: &str, text: &str) {
        let mut state = self.shared.state.lock();
        state.append(
            session,
            json!({ "type": "user.message", "content": [{ "type": "text", "text": text }] }),
        );
        state.append(session, json!({ "type": "session.status_running" }));
        let is_served =
            state.works.iter().any(|work| work.session == session && work.state != "stopped");
        if !is_served {
            state.queue(session);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Emits an event, and returns its id.
    pub(crate) fn emit(&self, session: &str, event: Value) -> String {
        let id = self.shared.state.lock().append(session, event);
        self.shared.changed.notify_all();
        id
    }

    /// Calls a tool, and announces that the session waits for the result. Returns the call's id.
    pub(crate) fn begin(&self, session: &str, tool: &str, input: Value) -> String {
        self.begin_with(session, tool, input, "allow")
    }

    pub(crate) fn begin_with(
        &self,
        session: &str,
        tool: &str,
        input: Value,
        permission: &str,
    ) -> String {
        let call = json!({
            "type": "agent.tool_use", "name": tool, "input": input,
            "evaluated_permission": permission,
        });
        let id = self.emit(session, call);
        let reason = json!({ "type": "requires_action", "event_ids": [id] });
        self.emit(session, json!({ "type": "session.status_idle", "stop_reason": reason }));
        id
    }

    /// Ends the current turn.
    pub(crate) fn end_turn(&self, session: &str) {
        let reason = json!({ "type": "end_turn" });
        self.emit(session, json!({ "type": "session.status_idle", "stop_reason": reason }));
    }

    /// Deletes a session, and notifies its workers.
    pub(crate) fn delete(&self, session: &str) {
        self.emit(session, json!({ "type": "session.deleted" }));
        self.shared.state.lock().sessions.get_mut(session).unwrap().is_deleted = true;
    }

    /// Waits for the result of a call.
    pub(crate) fn result(&self, call: &str) -> Value {
        self.wait_for(&format!("the result of {call}"), |state| {
            state.results_of(call).into_iter().next()
        })
    }

    /// Calls a tool and waits. Returns whether it failed, and its text.
    pub(crate) fn call(&self, session: &str, tool: &str, input: Value) -> (bool, String) {
        let id = self.begin(session, tool, input);
        text_of(&self.result(&id))
    }

    /// Calls a tool that must succeed, and returns its text.
    pub(crate) fn ok(&self, session: &str, tool: &str, input: Value) -> String {
        let input_text = input.to_string();
        let (is_error, text) = self.call(session, tool, input);
        assert!(!is_error, "{tool} {input_text:.200}: {text}");
        text
    }

    /// Calls a tool that must fail, and returns its text.
    pub(crate) fn fails(&self, session: &str, tool: &str, input: Value) -> String {
        let input_text = input.to_string();
        let (is_error, text) = self.call(session, tool, input);
        assert!(is_error, "{tool} {input_text:.200}: {text}");
        text
    }

    /// Returns all results of a call that have arrived.
    pub(crate) fn results(&self, call: &str) -> Vec<Value> {
        self.shared.state.lock().results_of(call)
    }

    /// Returns all work of a session.
    pub(crate) fn works(&self, session: &str) -> Vec<PlaneWork> {
        let state = self.shared.state.lock();
        state.works.iter().filter(|work| work.session == session).cloned().collect()
    }

    /// Waits until the latest work of a session is in a state.
    pub(crate) fn wait_for_work(&self, session: &str, wanted: &str) -> PlaneWork {
        self.wait_for(&format!("{session} to be {wanted}"), |state| {
            let work = state.works.iter().rfind(|work| work.session == session)?;
            (work.state == wanted).then(|| work.clone())
        })
    }

    /// Asks the worker of a session to stop.
    pub(crate) fn stop_work(&self, session: &str) {
        let mut state = self.shared.state.lock();
        let work = state.works.iter_mut().rfind(|work| work.session == session).unwrap();
        work.state = "stopping";
    }

    /// Assigns a session's work to another worker, as after an expired lease.
    pub(crate) fn steal(&self, session: &str) {
        let mut state = self.shared.state.lock();
        let work = state.works.iter_mut().rfind(|work| work.session == session).unwrap();
        work.last_heartbeat = Some("somebody else's".to_owned());
        work.lease_ends = None;
    }

    /// Begins or ends an outage. Event streams are closed by it.
    pub(crate) fn set_outage(&self, outage: Option<PlaneOutage>) {
        self.shared.state.lock().outage = outage;
        self.shared.changed.notify_all();
    }

    /// Returns the requests so far whose line contains `part`, with their authorization.
    pub(crate) fn requests(&self, part: &str) -> Vec<(String, String)> {
        let state = self.shared.state.lock();
        state.requests.iter().filter(|(line, _)| line.contains(part)).cloned().collect()
    }

    fn wait_for<T>(&self, what: &str, probe: impl Fn(&PlaneState) -> Option<T>) -> T {
        testkit::until(what, SOON, || {
            let state = self.shared.state.lock();
            probe(&state).ok_or_else(|| format!("{:?}", state.works))
        })
    }
}

impl Drop for ManagedPlane {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

/// Returns whether a result is an error, and its text.
pub(crate) fn text_of(result: &Value) -> (bool, String) {
    let blocks = result["content"].as_array().unwrap();
    let text: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    (result["is_error"] == true, text.join("\n"))
}

impl PlaneState {
    fn now(&self) -> Duration {
        self.clock.as_ref().unwrap().elapsed()
    }

    fn number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn queue(&mut self, session: &str) {
        let id = format!("work_{}", self.number());
        self.works.push(PlaneWork {
            id,
            session: session.to_owned(),
            state: "queued",
            claims: Vec::new(),
            last_heartbeat: None,
            polled: None,
            lease_ends: None,
        });
    }

    fn append(&mut self, session: &str, mut event: Value) -> String {
        let number = self.number();
        let id = format!("sevt_{number}");
        event["id"] = id.clone().into();
        event["processed_at"] = format!("2026-11-28T10:00:{:02}.{number:06}Z", number % 60).into();
        self.sessions.get_mut(session).unwrap().events.push(event);
        id
    }

    fn results_of(&self, call: &str) -> Vec<Value> {
        let events = self.sessions.values().flat_map(|session| &session.events);
        let results = events.filter(|event| event["type"] == "user.tool_result");
        results.filter(|event| event["tool_use_id"] == call).cloned().collect()
    }

    /// Queues the items of lost workers again.
    fn expire(&mut self) {
        let now = self.now();
        for work in &mut self.works {
            let is_over = work.lease_ends.is_some_and(|end| end < now);
            if is_over && ["starting", "active"].contains(&work.state) {
                (work.state, work.last_heartbeat) = ("queued", None);
                (work.lease_ends, work.polled) = (None, None);
            }
        }
    }

    fn poll(&mut self, worker: &str) -> Value {
        self.expire();
        let now = self.now();
        let is_free = |work: &&mut PlaneWork| {
            let is_handed_out = work.polled.is_some_and(|at| now.saturating_sub(at) < RECLAIM);
            work.state == "queued" && !is_handed_out
        };
        let Some(work) = self.works.iter_mut().find(is_free) else { return Value::Null };
        work.polled = Some(now);
        work.claims.push(worker.to_owned());
        let work = work.clone();
        let token = self.sessions.get(&work.session).and_then(|it| it.token.clone());
        let mut document = document(&work);
        if let Some(token) = token {
            let secret = json!({ "sessions_token": token, "ingress_token": "x" });
            document["secret"] = URL_SAFE_NO_PAD.encode(secret.to_string()).into();
        }
        document
    }

    fn heartbeat(&mut self, id: &str, query: &BTreeMap<String, String>) -> PlaneAnswer {
        self.expire();
        let (number, now) = (self.number(), self.now());
        let ttl_s = query.get("desired_ttl_seconds").and_then(|ttl| ttl.parse().ok());
        let ttl_s: u64 = ttl_s.unwrap_or(self.ttl_s);
        let Some(work) = self.works.iter_mut().find(|work| work.id == id) else {
            return PlaneAnswer::error(404, "not_found_error");
        };
        let expected = query.get("expected_last_heartbeat").map(String::as_str);
        let is_ending = ["stopping", "stopped"].contains(&work.state);
        let known = work.last_heartbeat.as_deref().unwrap_or("NO_HEARTBEAT");
        if !is_ending && (expected != Some(known) || work.state == "queued") {
            let mut answer = PlaneAnswer::error(412, "invalid_request_error");
            answer.body["error"]["details"] = json!({
                "error_code": "heartbeat_precondition_failed",
                "current_state": { "state": work.state, "lease_extended": false,
                    "ttl_seconds": ttl_s, "last_heartbeat": work.last_heartbeat },
            });
            return answer;
        }
        let beat = format!("2026-11-28T10:00:00.{number:06}Z");
        if !is_ending {
            work.state = "active";
            work.last_heartbeat = Some(beat.clone());
            work.lease_ends = Some(now + Duration::from_secs(ttl_s));
        }
        PlaneAnswer::ok(json!({
            "type": "work_heartbeat", "last_heartbeat": beat, "lease_extended": !is_ending,
            "state": work.state, "ttl_seconds": ttl_s,
        }))
    }
}

fn document(work: &PlaneWork) -> Value {
    json!({
        "id": work.id, "type": "work", "state": work.state, "environment_id": ENVIRONMENT,
        "created_at": "2026-11-28T10:00:00Z", "metadata": {}, "secret": null,
        "data": { "type": "session", "id": work.session },
    })
}

struct PlaneAnswer {
    status: u16,
    body: Value,
}

impl PlaneAnswer {
    fn ok(body: Value) -> PlaneAnswer {
        PlaneAnswer { status: 200, body }
    }

    fn error(status: u16, kind: &str) -> PlaneAnswer {
        let error = json!({ "type": kind, "message": format!("refused with {status}") });
        PlaneAnswer { status, body: json!({ "type": "error", "error": error }) }
    }
}

/// Parsed request.
struct PlaneRequest {
    method: String,
    path: Vec<String>,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Value,
}

impl PlaneRequest {
    fn read(stream: &TcpStream) -> std::io::Result<(String, PlaneRequest)> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let request = PlaneRequest {
            method,
            path: path.split('/').skip(1).map(unescaped).collect(),
            query: pairs.map(|(name, value)| (name.to_owned(), unescaped(value))).collect(),
            headers,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        Ok((line.trim_end().to_owned(), request))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits: String = rest.by_ref().take(2).map(char::from).collect();
        bytes.push(u8::from_str_radix(&digits, 16).unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

impl PlaneShared {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(SOON))?;
        let (line, request) = PlaneRequest::read(&stream)?;
        let outage = {
            let mut state = self.state.lock();
            let authorization = request.header("authorization").to_owned();
            state.requests.push((line, authorization));
            state.outage
        };
        let answer = match outage {
            Some(PlaneOutage::Gone) => return Ok(()),
            Some(PlaneOutage::Overloaded) => PlaneAnswer::error(529, "overloaded_error"),
            None => {
                let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
                match (request.method.as_str(), path.as_slice()) {
                    ("GET", ["v1", "sessions", id, "events", "stream"])
                        if self.is_known(&request, Some(id)) =>
                    {
                        return self.stream(stream, id);
                    }
                    (method, path) => self.answer(method, path, &request),
                }
            }
        };
        let body = answer.body.to_string();
        let head = format!(
            "HTTP/1.1 {} Answer\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             retry-after: 1\r\nconnection: close\r\n\r\n",
            answer.status,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())
    }

    /// Returns whether a request has the environment's key or the token of its session, and the
    /// beta header.
    fn is_known(&self, request: &PlaneRequest, session: Option<&str>) -> bool {
        if !request.header("anthropic-beta").split(',').any(|it| it.trim() == BETA) {
            return false;
        }
        let state = self.state.lock();
        let token = session.and_then(|id| state.sessions.get(id)?.token.clone());
        request.header("authorization") == format!("Bearer {}", token.as_deref().unwrap_or(KEY))
    }

    fn answer(&self, method: &str, path: &[&str], request: &PlaneRequest) -> PlaneAnswer {
        match path {
            ["v1", "environments", ENVIRONMENT, "work", rest @ ..] => {
                self.answer_work(method, rest, request)
            }
            ["v1", "sessions", id, rest @ ..] => {
                if !self.is_known(request, Some(id)) {
                    return PlaneAnswer::error(401, "authentication_error");
                }
                self.answer_session(method, id, rest, request)
            }
            _ => PlaneAnswer::error(404, "not_found_error"),
        }
    }

    fn answer_work(&self, method: &str, rest: &[&str], request: &PlaneRequest) -> PlaneAnswer {
        let of_item = match rest {
            [id, "heartbeat" | "stop"] => {
                let state = self.state.lock();
                let work = state.works.iter().find(|work| work.id == *id);
                work.map(|work| work.session.clone())
            }
            _ => None,
        };
        if !self.is_known(request, of_item.as_deref()) {
            return PlaneAnswer::error(401, "authentication_error");
        }
        match (method, rest) {
            ("GET", ["poll"]) => {
                let block = request.query.get("block_ms").map(|ms| ms.parse::<u64>().unwrap());
                assert!(block.is_none_or(|ms| (1..=999).contains(&ms)), "{block:?}");
                let worker = request.header("anthropic-worker-id").to_owned();
                let mut state = self.state.lock();
                let until = state.now() + Duration::from_millis(block.unwrap_or(0));
                loop {
                    let work = state.poll(&worker);
                    if !work.is_null() || state.is_over || state.now() >= until {
                        return PlaneAnswer::ok(work);
                    }
                    self.changed.wait_for(&mut state, TICK);
                }
            }
            ("POST", [id, "ack"]) => {
                let mut state = self.state.lock();
                let lease_ends = state.now() + Duration::from_secs(state.ttl_s);
                let Some(work) = state.works.iter_mut().find(|work| work.id == *id) else {
                    return PlaneAnswer::error(404, "not_found_error");
                };
                if work.state == "queued" {
                    work.state = "starting";
                    work.lease_ends = Some(lease_ends);
                }
                PlaneAnswer::ok(document(work))
            }
            ("POST", [id, "heartbeat"]) => self.state.lock().heartbeat(id, &request.query),
            ("POST", [id, "stop"]) => {
                let mut state = self.state.lock();
                let Some(work) = state.works.iter_mut().find(|work| work.id == *id) else {
                    return PlaneAnswer::error(404, "not_found_error");
                };
                if work.state == "stopped" {
                    return PlaneAnswer::error(409, "invalid_request_error");
                }
                work.state = "stopped";
                PlaneAnswer::ok(document(work))
            }
            _ => PlaneAnswer::error(404, "not_found_error"),
        }
    }

    fn answer_session(
        &self,
        method: &str,
        id: &str,
        rest: &[&str],
        request: &PlaneRequest,
    ) -> PlaneAnswer {
        let mut state = self.state.lock();
        let Some(session) = state.sessions.get(id).filter(|it| !it.is_deleted) else {
            return PlaneAnswer::error(404, "not_found_error");
        };
        match (method, rest) {
            ("GET", []) => PlaneAnswer::ok(json!({
                "id": id, "type": "session", "status": session.status,
                "environment_id": ENVIRONMENT, "resources": session.resources, "metadata": {},
                "vault_ids": [], "outcome_evaluations": [], "stats": {}, "usage": {},
                "created_at": "2026-11-28T10:00:00Z", "updated_at": "2026-11-28T10:00:00Z",
                "agent": { "id": "agent_1", "type": "agent", "name": "tester", "version": 1,
                    "tools": [], "skills": [], "mcp_servers": [], "model": { "id": "m" } },
            })),
            ("GET", ["events"]) => {
                // Pages are small, so that there are several.
                let from: usize =
                    request.query.get("page").map(|page| page.parse().unwrap()).unwrap_or(0);
                let until = (from + 3).min(session.events.len());
                let next = (until < session.events.len()).then(|| until.to_string());
                PlaneAnswer::ok(json!({ "data": session.events[from..until], "next_page": next }))
            }
            ("POST", ["events"]) => {
                let events = request.body["events"].as_array().cloned().unwrap_or_default();
                for event in &events {
                    let call = event["tool_use_id"].as_str().unwrap_or_default();
                    let is_call = session
                        .events
                        .iter()
                        .any(|it| it["type"] == "agent.tool_use" && it["id"] == call);
                    let is_result = event["type"] == "user.tool_result"
                        && event["is_error"].is_boolean()
                        && event["content"].is_array();
                    if !is_call || !is_result || !state.results_of(call).is_empty() {
                        return PlaneAnswer::error(400, "invalid_request_error");
                    }
                }
                for event in &events {
                    state.append(id, event.clone());
                }
                self.changed.notify_all();
                PlaneAnswer::ok(json!({ "data": events }))
            }
            _ => PlaneAnswer::error(404, "not_found_error"),
        }
    }

    /// Sends events as they are emitted, until the session is deleted or the control plane stops.
    fn stream(&self, mut stream: TcpStream, id: &str) -> std::io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    connection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let mut next = self.state.lock().sessions[id].events.len();
        loop {
            let (fresh, is_over) = {
                let mut state = self.state.lock();
                let is_new = |state: &PlaneState| state.sessions[id].events.len() > next;
                if !is_new(&state) {
                    self.changed.wait_for(&mut state, TICK);
                }
                let fresh = state.sessions[id].events[next..].to_vec();
                let is_deleted = state.sessions[id].is_deleted;
                (fresh, state.is_over || state.outage.is_some() || is_deleted)
            };
            next += fresh.len();
            for event in fresh {
                let name = event["type"].as_str().unwrap().to_owned();
                write!(stream, "event: {name}\ndata: {event}\n\n")?;
            }
            if is_over {
                return Ok(());
            }
            // Writing detects a closed connection.
            stream.write_all(b"event: ping\ndata: {\"type\": \"ping\"}\n\n")?;
        }
    }
}
