//! The shell against real sockets, by hand-written requests.

mod http2;
mod streams;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::auth::{TokenPrincipal, TokenRegistry};
use crate::clock::{self, IdGenerator};
use crate::drain::DrainHandle;
use crate::telemetry::{HttpMetrics, Registry};
use crate::testing::TempDir;

/// More than the kernel's buffers of both ends of a loopback connection hold.
const LARGE_BYTES: usize = 32 << 20;

/// Longest time that a test waits.
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thing {
    name: String,
    #[serde(default)]
    limits: ThingLimits,
    #[serde(default)]
    parts: Vec<ThingLimits>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ThingLimits {
    cpu_ms: Option<u64>,
}

struct Server {
    address: std::net::SocketAddr,
    token: String,
    drain: DrainHandle,
    tokens: TokenRegistry,
    /// One message when a handler of `/v1/wait` starts, another when it is dropped.
    waiting: mpsc::UnboundedReceiver<&'static str>,
    task: JoinHandle<()>,
    _directory: TempDir,
}

struct SayOnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for SayOnDrop {
    fn drop(&mut self) {
        self.0.send("dropped").ok();
    }
}

fn routes(waiting: mpsc::UnboundedSender<&'static str>) -> Router {
    let wait = move || {
        let waiting = waiting.clone();
        async move {
            waiting.send("started").ok();
            let _say = SayOnDrop(waiting);
            std::future::pending::<()>().await;
        }
    };
    Router::new()
        .route("/health/live", get(|| async { "live" }))
        .route("/v1/who", get(|who: TokenPrincipal| async move { who.name.to_string() }))
        .route("/v1/wait", post(wait.clone()).get(wait))
        .route(
            "/v1/panic",
            get(|| async {
                if true {
                    panic!("on purpose")
                }
            }),
        )
        .route(
            "/v1/things",
            post(|_: TokenPrincipal, JsonBody(thing): JsonBody<Thing>| async move {
                format!("{} {:?} {}", thing.name.len(), thing.limits.cpu_ms, thing.parts.len())
            }),
        )
        .route(
            "/v1/host",
            get(|uri: axum::http::Uri, headers: axum::http::HeaderMap| async move {
                format!("{} {uri}", headers["host"].to_str().unwrap())
            }),
        )
        .route("/v1/id", get(|id: RequestId| async move { id.0.to_string() }))
        .route("/v1/large", get(|| async { "x".repeat(LARGE_BYTES) }))
        .route("/open", get(|_: TokenPrincipal| async { "never" }))
}

async fn start_with(limits: ShellLimits, patience: Duration) -> Server {
    start_tls(limits, patience, None).await
}

async fn start_tls(
    limits: ShellLimits,
    patience: Duration,
    tls: Option<HttpListenerTls>,
) -> Server {
    let directory = TempDir::new();
    let tokens = TokenRegistry::open(directory.path()).unwrap();
    tokens.ensure_first().unwrap();
    let token = fs::read_to_string(tokens.first_token_path()).unwrap().trim().to_owned();
    let drain = DrainHandle::new();
    let metrics = HttpMetrics::new(&mut Registry::default());
    let shell =
        HttpShell::new(limits, tokens.clone(), drain.clone(), metrics, IdGenerator::new().unwrap());
    let (sender, waiting) = mpsc::unbounded_channel();
    let listener = BoundListener::bind("127.0.0.1:0").await.unwrap().with_tls(tls);
    let address = listener.address();
    let site = ListenerSite::from(shell.wrap(routes(sender)));
    let site = site.with_fast_path(&shell, Arc::new(OneAnswer));
    let task = tokio::spawn(listener.serve(site, limits, drain.clone(), patience));
    Server { address, token, drain, tokens, waiting, task, _directory: directory }
}

async fn start() -> Server {
    start_with(ShellLimits::default(), DEADLINE).await
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn error(&self) -> Value {
        let value: Value = serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.body));
        value["error"].clone()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the head of a request with the token, without the empty line at its end.
    fn head(&self, method: &str, path: &str) -> String {
        let token = &self.token;
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n")
    }

    async fn send(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        // The server may have refused and closed before everything is sent.
        stream.write_all(request).await.ok();
        read_answer(&mut stream).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(format!("{}\r\n", self.head("GET", path)).as_bytes()).await
    }

    async fn post_as(&self, content_type: &str, body: &[u8]) -> Answer {
        let head = self.head("POST", "/v1/things");
        let length = body.len();
        let head = format!("{head}{content_type}content-length: {length}\r\n\r\n");
        self.send(&[head.as_bytes(), body].concat()).await
    }

    async fn post(&self, body: &[u8]) -> Answer {
        self.post_as("content-type: application/json\r\n", body).await
    }

    async fn next_event(&mut self) -> &'static str {
        timeout(DEADLINE, self.waiting.recv()).await.expect("in time").expect("server runs")
    }
}

/// Reads one answer with a content length.
async fn read_answer(stream: &mut TcpStream) -> Answer {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = complete(&bytes) {
                return answer;
            }
            let read = stream.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
        }
    };
    timeout(DEADLINE, read).await.expect("an answer in time")
}

fn complete(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer { status, head: head.to_owned(), body: String::new() };
    let length: usize = answer.header("content-length").unwrap_or("0").parse().ok()?;
    answer.body = body.get(..length)?.to_owned();
    Some(answer)
}

#[tokio::test]
async fn only_v1_needs_a_token() {
    let server = start().await;
    assert_eq!(server.get("/v1/who").await.body, "first");
    let no_token = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(server.send(no_token("/health/live").as_bytes()).await.status, 200);
    for path in ["/v1", "/v1/", "/v1/who", "/v1/nothing", "/v1/who?x=1", "/open"] {
        let answer = server.send(no_token(path).as_bytes()).await;
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.error()["code"], "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let wrong =
        format!("GET /v1/who HTTP/1.1\r\nauthorization: Bearer cove_{}\r\n\r\n", "A".repeat(43));
    assert_eq!(server.send(wrong.as_bytes()).await.status, 401);
}

#[tokio::test]
async fn missing_routes_and_methods_have_the_same_shape() {
    let server = start().await;
    let answer = server.get("/nothing").await;
    assert_eq!((answer.status, &answer.error()["code"]), (404, &Value::from("not_found")));
    let answer = server.get("/v1/things").await;
    assert_eq!((answer.status, &answer.error()["code"]), (405, &Value::from("method_not_allowed")));
    assert_eq!(answer.header("allow"), Some("POST"));
    let id = answer.header("x-request-id").unwrap();
    assert!(id.starts_with("req_") && id.len() == 30, "{id}");
}

#[tokio::test]
async fn a_handler_knows_the_id_that_the_caller_sees() {
    let server = start().await;
    let first = server.get("/v1/id").await;
    assert_eq!(first.header("x-request-id"), Some(first.body.as_str()));
    assert_ne!(first.body, server.get("/v1/id").await.body);
}

#[tokio::test]
async fn a_panic_is_an_answer() {
    let server = start().await;
    let answer = server.get("/v1/panic").await;
    assert_eq!((answer.status, &answer.error()["code"]), (500, &Value::from("internal")));
    assert!(!answer.body.contains("on purpose"));
    assert_eq!(server.get("/v1/who").await.status, 200);
    assert_eq!(server.drain.working(), 0);
}

#[tokio::test]
async fn bad_json_is_explained() {
    let server = start().await;
    let check = async |body: &[u8], field: Option<&str>, message: &str| {
        let answer = server.post(body).await;
        let error = answer.error();
        assert_eq!(answer.status, 400, "{error}");
        assert_eq!(error["code"], "invalid_request");
        assert_eq!(error["field"], field.map_or(Value::Null, Value::from), "{error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        assert_eq!(error["retry"], false);
    };
    check(b"", None, "empty").await;
    check(b" \n", None, "empty").await;
    check(b"{\"name\": \"a\xff\"}", None, "byte 11").await;
    check(b"{\"name\"", None, "not JSON").await;
    check(b"{\"name\": \"a\",}", None, "line 1 column 14").await;
    check(b"{\"name\": \"a\"} x", None, "something follows").await;
    check(b"{\"name\": \"\\ud800\"}", None, "not JSON").await;
    check(b"[]", None, "the request body: expected an object, got an array").await;
    check(b"{}", Some("name"), "missing field `name`").await;
    check(b"{\"name\": 1}", Some("name"), "expected a string, got the number 1").await;
    check(b"{\"nam\": \"a\"}", Some("nam"), "unknown field `nam`").await;
    check(b"{\"name\": \"a\", \"name\": \"b\"}", Some("name"), "duplicate field `name`").await;
    let nested = b"{\"name\": \"a\", \"limits\": {\"cpu_ms\": -1}}";
    check(nested, Some("limits.cpu_ms"), "-1").await;
    let listed = b"{\"name\": \"a\", \"parts\": [{}, {\"cpu\": 1}]}";
    check(listed, Some("parts[1].cpu"), "unknown field `cpu`").await;
    let deep = format!("{{\"parts\": {}", "[".repeat(100_000));
    check(deep.as_bytes(), Some("parts[0]"), "expected an object, got an array").await;
}

#[tokio::test]
async fn bodies_are_json_by_their_type_and_not_compressed() {
    let server = start().await;
    let body = b"{\"name\": \"abc\"}";
    for good in
        ["application/json", "Application/JSON; charset=UTF-8", "application/x-www-form-urlencoded"]
    {
        let answer = server.post_as(&format!("content-type: {good}\r\n"), body).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "3 None 0"), "{good}");
    }
    let json = "content-type: application/json\r\ncontent-encoding: ";
    let answer = server.post_as(&format!("{json}Identity\r\n"), body).await;
    assert_eq!(answer.status, 200);
    let encoded = ["gzip", "x-gzip", "identity, gzip", ""];
    let encoded = encoded.map(|coding| format!("{json}{coding}\r\n"));
    let types =
        ["", "content-type: text/plain\r\n", "content-type: application/json; charset=latin1\r\n"];
    for bad in types.into_iter().chain(encoded.iter().map(String::as_str)) {
        let answer = server.post_as(bad, body).await;
        assert_eq!(answer.status, 415, "{bad}");
        assert_eq!(answer.error()["code"], "unsupported_media_type");
    }
}

fn small_bodies() -> ShellLimits {
    ShellLimits { body_bytes_max: 100_000, bodies_bytes_max: 150_000, ..ShellLimits::default() }
}

#[tokio::test]
async fn a_declared_large_body_is_refused_before_it_is_sent() {
    let server = start().await;
    let head = server.head("POST", "/v1/things");
    let gigabyte = 1_u64 << 30;
    let head = format!("{head}content-type: application/json\r\ncontent-length: {gigabyte}\r\n");
    // A client that waits for `100 Continue` never sends it ...
    let answer = server.send(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).await;
    assert_eq!((answer.status, &answer.error()["code"]), (413, &Value::from("body_too_large")));
    assert!(answer.error()["message"].as_str().unwrap().contains("33554432 bytes"));
    // ... and one that does not wait gets the same answer while it sends.
    let answer = server.send(format!("{head}\r\n{}", "x".repeat(100_000)).as_bytes()).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn a_client_that_sends_on_can_still_read_the_refusal() {
    let server = start().await;
    let mut stream = server.connect().await;
    let head = server.head("POST", "/v1/things");
    let length = 8 << 20;
    let large = 1_u64 << 30;
    let head = format!("{head}content-type: application/json\r\ncontent-length: {large}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // Blindly, like a client that reads only after it has sent everything.
    stream.write_all(&vec![b'x'; length]).await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status, 413);
}

#[tokio::test]
async fn a_chunked_body_is_refused_at_the_limit() {
    let server = start_with(small_bodies(), DEADLINE).await;
    let head = server.head("POST", "/v1/things");
    let head =
        format!("{head}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{}\r\n", 10_000, "x".repeat(10_000));
    let answer = server.send(format!("{head}{}", chunk.repeat(11)).as_bytes()).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn a_body_at_the_limit_is_taken_and_its_memory_is_given_back() {
    let server = start_with(small_bodies(), DEADLINE).await;
    let body = format!("{{\"name\": \"{}\"}}", "x".repeat(100_000 - 12));
    for _ in 0..5 {
        let answer = server.post(body.as_bytes()).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "99988 None 0"));
    }
}

#[tokio::test]
async fn bodies_together_are_bounded() {
    let server = start_with(small_bodies(), DEADLINE).await;
    let head = server.head("POST", "/v1/things");
    let head = format!("{head}content-type: application/json\r\ncontent-length: 100000\r\n\r\n");
    let mut slow = server.connect().await;
    slow.write_all(head.as_bytes()).await.unwrap();
    // The slow client's share is taken as soon as its handler runs.
    let body = format!("{{\"name\": \"{}\"}}", "x".repeat(90_000));
    let refused = async {
        loop {
            let answer = server.post(body.as_bytes()).await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let answer = timeout(DEADLINE, refused).await.unwrap();
    assert_eq!((answer.status, &answer.error()["code"]), (503, &Value::from("overloaded")));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.error()["retry"], true);
}

#[tokio::test]
async fn a_body_that_stops_arriving_is_given_up() {
    let limits =
        ShellLimits { body_pause_max: Duration::from_millis(20), ..ShellLimits::default() };
    let server = start_with(limits, DEADLINE).await;
    let head = server.head("POST", "/v1/things");
    let request = format!("{head}content-type: application/json\r\ncontent-length: 10\r\n\r\n{{");
    let answer = server.send(request.as_bytes()).await;
    assert_eq!(answer.status, 400);
}

/// Starts a request to `/v1/wait`, lets `leave` end it, and waits until its handler is dropped.
async fn check_disconnect(
    rest_of_request: &str,
    leave: impl AsyncFnOnce(TcpStream) -> Option<TcpStream>,
) {
    let mut server = start().await;
    let mut stream = server.connect().await;
    let request = format!("{}{rest_of_request}", server.head("POST", "/v1/wait"));
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    assert_eq!(server.drain.working(), 1);
    let left = clock::now();
    let kept = leave(stream).await;
    assert_eq!(server.next_event().await, "dropped");
    let took = clock::now().duration_since(left);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(server.drain.working(), 0);
    drop(kept);
}

#[tokio::test]
async fn a_client_that_closes_takes_its_handler_with_it() {
    check_disconnect("content-length: 0\r\n\r\n", async |stream| {
        drop(stream);
        None
    })
    .await;
}

#[tokio::test]
async fn a_client_that_resets_takes_its_handler_with_it() {
    check_disconnect("content-length: 0\r\n\r\n", async |stream| {
        stream.set_zero_linger().unwrap();
        drop(stream);
        None
    })
    .await;
}

#[tokio::test]
async fn a_client_that_stops_sending_counts_as_gone() {
    check_disconnect("content-length: 0\r\n\r\n", async |mut stream| {
        stream.shutdown().await.unwrap();
        Some(stream)
    })
    .await;
}

#[tokio::test]
async fn a_pipelined_request_does_not_hide_that_the_client_is_gone() {
    let rest = "content-length: 0\r\n\r\nGET /v1/who HTTP/1.1\r\nhost: x\r\n\r\n";
    check_disconnect(rest, async |stream| {
        drop(stream);
        None
    })
    .await;
    check_disconnect("content-length: 0\r\n\r\n", async |mut stream| {
        stream.write_all(b"\r\n").await.unwrap();
        Some(stream).take_if(|_| false)
    })
    .await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start().await;
    let mut stream = server.connect().await;
    let one = format!("{}\r\n", server.head("GET", "/v1/who"));
    let two = format!("{}\r\n", server.head("GET", "/nothing"));
    let last = format!("{}connection: close\r\n\r\n", server.head("GET", "/v1/who"));
    stream.write_all(format!("{one}{two}{last}").as_bytes()).await.unwrap();
    let mut all = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut all)).await.unwrap().unwrap();
    let statuses: Vec<_> = all
        .matches("HTTP/1.1 ")
        .zip(all.split("HTTP/1.1 ").skip(1))
        .map(|(_, rest)| &rest[..3])
        .collect();
    assert_eq!(statuses, ["200", "404", "200"], "{all}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let write_stall_max = Duration::from_millis(50);
    let limits = ShellLimits { write_stall_max, connections_max: 1, ..ShellLimits::default() };
    let server = start_with(limits, DEADLINE).await;
    let mut stream = server.connect().await;
    let request = format!("{}\r\n", server.head("GET", "/v1/large"));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.readable().await.unwrap();
    // The only place is free again once the connection is cut.
    let free = async { while server.get("/v1/who").await.status != 200 {} };
    timeout(DEADLINE, free).await.unwrap();
    let mut rest = Vec::new();
    // Truncated, with or without a reset.
    timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap().ok();
    assert!(rest.len() < LARGE_BYTES, "{}", rest.len());
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let limits =
        ShellLimits { header_read_max: Duration::from_millis(20), ..ShellLimits::default() };
    let server = start_with(limits, DEADLINE).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert_eq!((answer.status, &answer.error()["code"]), (408, &"invalid_request".into()));
    // A client that sends nothing receives nothing.
    let mut silent = server.connect().await;
    let mut rest = Vec::new();
    timeout(DEADLINE, silent.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_a_sentence() {
    let server = start().await;
    for (bytes, says) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], "not TLS"),
        (b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: ten\r\n\r\n", "content-length"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", "header"),
        (b"G\x01T / HTTP/1.1\r\n\r\n", "method"),
    ] {
        let answer = server.send(bytes).await;
        let error = answer.error();
        assert_eq!((answer.status, &error["code"]), (400, &"invalid_request".into()));
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        assert_eq!(answer.header("connection"), Some("close"));
    }
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let server = start().await;
    let many = "x: y\r\n".repeat(101);
    let long = format!("x: {}\r\n", "y".repeat(70_000));
    for headers in [many, long] {
        let answer = server.send(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes()).await;
        assert_eq!((answer.status, &answer.error()["code"]), (431, &"invalid_request".into()));
    }
}

#[tokio::test]
async fn connections_are_bounded() {
    let limits = ShellLimits { connections_max: 2, ..ShellLimits::default() };
    let mut server = start_with(limits, DEADLINE).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        let request = format!("{}\r\n", server.head("GET", "/v1/wait"));
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(server.next_event().await, "started");
        kept.push(stream);
    }
    let mut third = server.connect().await;
    let answer = read_answer(&mut third).await;
    assert_eq!((answer.status, &answer.error()["code"]), (503, &Value::from("overloaded")));
    drop(kept);
    assert_eq!(server.next_event().await, "dropped");
    assert_eq!(server.next_event().await, "dropped");
    let back = async { while server.get("/v1/who").await.status != 200 {} };
    timeout(DEADLINE, back).await.unwrap();
}

#[tokio::test]
async fn a_draining_server_answers_but_takes_no_work() {
    let mut server = start().await;
    let mut running = server.connect().await;
    let request = format!("{}\r\n", server.head("GET", "/v1/wait"));
    running.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    server.drain.begin();
    let answer = server.get("/v1/who").await;
    assert_eq!((answer.status, &answer.error()["code"]), (503, &Value::from("draining")));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(server.get("/health/live").await.status, 200);
    drop(running);
    assert_eq!(server.next_event().await, "dropped");
    timeout(DEADLINE, &mut server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn work_that_outlasts_the_patience_is_cancelled_and_told() {
    let mut server = start_with(ShellLimits::default(), Duration::from_millis(20)).await;
    let mut running = server.connect().await;
    let request = format!("{}\r\n", server.head("GET", "/v1/wait"));
    running.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    server.drain.begin();
    assert_eq!(server.next_event().await, "dropped");
    let answer = read_answer(&mut running).await;
    assert_eq!((answer.status, &answer.error()["code"]), (503, &Value::from("draining")));
    timeout(DEADLINE, &mut server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let mut server = start().await;
    let mut idle = server.connect().await;
    idle.write_all(format!("{}\r\n", server.head("GET", "/v1/who")).as_bytes()).await.unwrap();
    assert_eq!(read_answer(&mut idle).await.status, 200);
    server.drain.begin();
    timeout(DEADLINE, &mut server.task).await.unwrap().unwrap();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn many_clients_leave_nothing_behind() {
    let mut server = start().await;
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let mut stream = server.connect().await;
        let request = format!("{}\r\n", server.head("GET", "/v1/wait"));
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(server.next_event().await, "started");
        drop(stream);
        assert_eq!(server.next_event().await, "dropped");
        count.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!((count.load(Ordering::Relaxed), server.drain.working()), (50, 0));
}

/// Answers one path, and panics at another.
struct OneAnswer;

impl FastPath for OneAnswer {
    fn answer(&self, head: FastHead<'_>, _: &Memory) -> Option<AtOnce> {
        match head.uri.path() {
            "/at-hand" => Some(AtOnce { response: "at once".into_response(), route: "/at-hand" }),
            "/panics" => panic!("on purpose"),
            _ => None,
        }
    }
}

#[tokio::test]
async fn what_is_at_hand_is_answered_before_it_is_routed() {
    let mut server = start().await;
    let get = |path: &str, more: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n").into_bytes()
    };
    for (more, status) in [
        ("", 200),
        ("content-length: 0\r\n", 200),
        ("content-length: 1\r\n", 404),
        ("transfer-encoding: chunked\r\n", 404),
        ("upgrade: websocket\r\n", 404),
        ("expect: x\r\n", 404),
    ] {
        let answer = server.send(&[&*get("/at-hand", more), b"0\r\n\r\n"].concat()).await;
        assert_eq!(answer.status, status, "{more}");
        assert_eq!(answer.body == "at once", status == 200, "{more}");
        let id = answer.header("x-request-id").unwrap();
        assert!(id.starts_with("req_") && id.len() == 30, "{id}");
    }
    assert_eq!(server.send(&get("/panics", "")).await.status, 404, "a panic is no answer");
    let mut working = server.connect().await;
    working.write_all(format!("{}\r\n", server.head("GET", "/v1/wait")).as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    server.drain.begin();
    assert_eq!(server.send(&get("/at-hand", "")).await.status, 404, "nothing is in a drain");
}

/// Regression: one client with silent sockets, or half of a head, had locked out all others.
#[tokio::test]
async fn silent_connections_make_way_for_who_has_something_to_say() {
    let limits = ShellLimits { connections_max: 8, ..ShellLimits::default() };
    let server = start_with(limits, DEADLINE).await;
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut stream = server.connect().await;
        let half = if number % 2 == 0 { "" } else { "GET / HTTP/1.1\r\n" };
        stream.write_all(half.as_bytes()).await.ok();
        silent.push(stream);
        assert_eq!(server.get("/v1/who").await.status, 200, "{number}");
    }
    let mut first = silent.remove(0);
    timeout(DEADLINE, first.read_to_end(&mut Vec::new())).await.unwrap().ok();
}

/// Regression: 256 slow bodies of one token had exhausted the memory for all bodies.
#[tokio::test]
async fn one_tenant_leaves_memory_for_bodies_to_others() {
    let limits = ShellLimits { bodies_bytes_max: 8 << 20, ..ShellLimits::default() };
    let mut server = start_with(limits, DEADLINE).await;
    let (_, other) = server.tokens.create("other", false).unwrap();
    let declared = "content-type: application/json\r\ncontent-length: 1048576\r\n\r\n{";
    let mut slow = Vec::new();
    let refused = loop {
        let mut stream = server.connect().await;
        let request = format!("{}{declared}", server.head("POST", "/v1/things"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = timeout(Duration::from_millis(200), read_answer(&mut stream)).await;
        slow.push(stream);
        if let Ok(answer) = answer {
            break answer;
        }
        assert!(slow.len() < 8, "nothing was refused");
    };
    assert_eq!((refused.status, &refused.error()["code"]), (429, &"too_many_requests".into()));
    assert!(refused.header("retry-after").is_some());
    server.token = other.expose();
    let body = r#"{"name": "x"}"#;
    let head = server.head("POST", "/v1/things");
    let length = body.len();
    let headers = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    let answer = server.send(format!("{head}{headers}\r\n{body}").as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up() {
    let pause = Duration::from_millis(100);
    let limits = ShellLimits { body_pause_max: pause, ..ShellLimits::default() };
    let server = start_with(limits, DEADLINE).await;
    let mut stream = server.connect().await;
    let declared = "content-type: application/json\r\ncontent-length: 1048576\r\n\r\n";
    let request = format!("{}{declared}", server.head("POST", "/v1/things"));
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.split();
    let trickle = async {
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(pause / 10).await;
        }
    };
    let mut answer = Vec::new();
    let answered = async {
        while !String::from_utf8_lossy(&answer).contains("bytes a second") {
            assert!(read.read_buf(&mut answer).await.unwrap() > 0);
        }
    };
    tokio::select! {
        () = trickle => {}
        done = timeout(DEADLINE, answered) => done.unwrap(),
    }
    assert!(answer.starts_with(b"HTTP/1.1 400"));
}
