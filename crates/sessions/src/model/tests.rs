//! Tests of the relay between a client and an endpoint that the test implements.

use std::net::SocketAddr;

use node::clock;
use node::cluster::ServingLease;
use node::telemetry::Registry;
use node::traces::{
    ExporterSettings, SpanKind, TraceResource, TraceSampler, Tracer, TracerSettings,
};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

pub(super) const KEY: &str = "sk-secret";
const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n";
const PIECE: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\"}\n\n";
const DELTA: &str =
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\n";

/// End of an encoded error of the Messages API.
pub(super) const ERROR_END: &str = "\"type\":\"error\"}";

/// An endpoint of the Messages API whose answers the test paces.
pub(super) struct Model {
    pub(super) address: SocketAddr,
    /// Head and body of each request.
    pub(super) asked: mpsc::UnboundedReceiver<String>,
    /// A command for each piece of an answer: `go`, or `cut` to break off.
    pub(super) go: mpsc::UnboundedSender<&'static str>,
    /// Notified when a client disconnects in the middle of its answer.
    pub(super) left: mpsc::UnboundedReceiver<()>,
    connections: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn model() -> Model {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ask, asked) = mpsc::unbounded_channel();
    let (go, going) = mpsc::unbounded_channel();
    let (leave, left) = mpsc::unbounded_channel();
    let connections = Arc::new(Mutex::new(0));
    let count = Arc::clone(&connections);
    let going = Arc::new(tokio::sync::Mutex::new(going));
    let task = tokio::spawn(async move {
        let mut all = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            *count.lock() += 1;
            let (ask, leave, going) = (ask.clone(), leave.clone(), Arc::clone(&going));
            all.spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(request) = read_request(&mut stream).await {
                    let is_streamed = request.contains("\"stream\":true");
                    ask.send(request).unwrap();
                    let mut going = going.lock().await;
                    if !answer(&mut stream, is_streamed, &mut going).await {
                        leave.send(()).unwrap();
                        return;
                    }
                }
            });
        }
    });
    Model { address, asked, go, left, connections, task }
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if stream.read_line(&mut text).await.ok()? == 0 {
            return None;
        }
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(text + &String::from_utf8(body).unwrap())
}

/// Sends an answer; returns whether the client read it to the end.
async fn answer(
    stream: &mut BufReader<TcpStream>,
    is_streamed: bool,
    going: &mut mpsc::UnboundedReceiver<&'static str>,
) -> bool {
    if !is_streamed {
        let body = r#"{"type":"message","usage":{"input_tokens":2,"output_tokens":3}}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nset-cookie: a=b\r\nx-api-key: sk-secret\r\nrequest-id: req_1\r\ncontent-length:";
        let text = format!("{head} {}\r\n\r\n{body}", body.len());
        return stream.write_all(text.as_bytes()).await.is_ok();
    }
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in [START, PIECE, DELTA] {
        let mut byte = [0];
        tokio::select! {
            word = going.recv() => if word != Some("go") { return true },
            gone = stream.read(&mut byte) => {
                assert!(matches!(gone, Ok(0) | Err(_)), "nothing is sent after a request");
                return false;
            }
        }
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.is_ok()
}

/// Starts a relay to `url` and returns its address. It ends with the test's runtime.
async fn relay(url: &str, access: ModelKeyOwner) -> (SocketAddr, Arc<UsageTotals>, JoinHandle<()>) {
    traced_relay(url, access, None).await
}

async fn traced_relay(
    url: &str,
    access: ModelKeyOwner,
    tracer: Option<ModelTracer>,
) -> (SocketAddr, Arc<UsageTotals>, JoinHandle<()>) {
    let tally = Arc::new(UsageTotals::default());
    let spec =
        ModelAccessSpec { tenant: "a".into(), key: access, tally: Arc::clone(&tally), tracer };
    let (address, task) = serve(&new_relay(url, REQUESTS_MAX), spec).await;
    (address, tally, task)
}

fn new_relay(url: &str, requests_max: usize) -> ModelRelay {
    let turns = FairScheduler::for_this_runtime();
    ModelRelay::new(url, TlsRoots::Machine, turns, requests_max).unwrap()
}

/// Serves an agent through a relay. It ends with the test's runtime.
async fn serve(relay: &ModelRelay, spec: ModelAccessSpec) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let relay = relay.clone();
    (address, tokio::spawn(async move { relay.serve(listener, spec).await }))
}

/// Serves a tenant's agent through a relay, with the server's key.
async fn serve_agent(relay: &ModelRelay, tenant: &str) -> SocketAddr {
    let tally = Arc::default();
    let spec = ModelAccessSpec { tenant: tenant.into(), key: shared(), tally, tracer: None };
    serve(relay, spec).await.0
}

fn shared() -> ModelKeyOwner {
    ModelKeyOwner::Shared(ModelKey::new(KEY))
}

pub(super) fn request(head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{head} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\nx-api-key: provided-by-cove\r\nauthorization: Bearer mine\r\nanthropic-version: 2023-06-01\r\ncookie: a=b\r\n\r\n{body}"
    )
}

/// Sends a request and reads the answer up to `end`.
pub(super) async fn ask(stream: &mut TcpStream, request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(stream, end).await
}

pub(super) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = timeout(Duration::from_secs(20), stream.read(&mut piece)).await;
        let count = read.expect("an answer in time").unwrap_or(0);
        text.extend_from_slice(&piece[..count]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        if count == 0 || so_far.contains(end) {
            return so_far;
        }
    }
}

#[tokio::test]
async fn a_request_gets_the_key_and_loses_what_it_brought() {
    let mut model = model().await;
    let (address, tally, _task) = relay(&format!("http://{}", model.address), shared()).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        let sent = request("POST /v1/messages?beta=true", "{\"a\":1}");
        let answered = ask(&mut client, &sent, "}}").await;
        let asked = model.asked.recv().await.unwrap();
        assert!(asked.starts_with("POST /v1/messages?beta=true HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("x-api-key: sk-secret\r\n"), "{asked}");
        assert!(asked.contains("anthropic-version: 2023-06-01\r\n"), "{asked}");
        assert!(asked.ends_with("{\"a\":1}"), "{asked}");
        for lost in ["provided-by-cove", "Bearer", "cookie"] {
            assert!(!asked.contains(lost), "{lost}: {asked}");
        }
        assert!(answered.starts_with("HTTP/1.1 200 OK\r\n"), "{answered}");
        assert!(answered.contains("request-id: req_1\r\n"), "{answered}");
        for kept_back in ["cookie", KEY] {
            assert!(!answered.contains(kept_back), "{kept_back}: {answered}");
        }
    }
    let used = tally.so_far();
    assert_eq!((used.requests, used.failed, used.input, used.output), (2, 0, 4, 6));
    // The second request reused the connection.
    assert_eq!(*model.connections.lock(), 1);
}

#[tokio::test]
async fn a_request_goes_on_with_the_trace_of_its_sandbox_and_with_no_other() {
    let mut model = model().await;
    let url = format!("http://{}", model.address);
    let settings = TracerSettings {
        sampler: TraceSampler::new(1.0).unwrap(),
        queue_spans_max: 1,
        has_statements: false,
        exporter: ExporterSettings {
            url: url.clone(),
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(1),
            batch_spans_max: 1,
            batch_delay: Duration::from_secs(1),
            is_gzip: false,
            resource: TraceResource::default(),
        },
    };
    let (tracer, _exporter) = Tracer::new(settings, &mut Registry::default());
    let traced = ModelTracer { tracer: tracer.clone(), holder: "ses_1".into() };
    let (address, _tally, _task) = traced_relay(&url, shared(), Some(traced)).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let forged = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let sent = request(&format!("POST /v1/messages HTTP/1.1\r\ntraceparent: {forged}\r\nx:"), "");
    let turn = tracer.begin("turn", SpanKind::Internal, None);
    let trace = turn.scope().unwrap().context().trace_id.to_string();
    let bound = turn.bind("ses_1");
    ask(&mut client, &sent, "}}").await;
    let asked = model.asked.recv().await.unwrap();
    assert!(asked.contains(&format!("traceparent: 00-{trace}-")), "{asked}");
    drop(bound);
    ask(&mut client, &sent, "}}").await;
    let asked = model.asked.recv().await.unwrap();
    assert!(!asked.contains("traceparent"), "{asked}");
}

#[tokio::test]
async fn an_answer_is_passed_on_as_it_comes() {
    let model = model().await;
    let (address, tally, _task) = relay(&format!("http://{}", model.address), shared()).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let sent = request("POST /v1/messages", r#"{"stream":true}"#);
    client.write_all(sent.as_bytes()).await.unwrap();
    for end in ["\"output_tokens\":1}}}", "content_block_delta\"}", "0\r\n\r\n"] {
        // The next piece is sent only after this one was read.
        model.go.send("go").unwrap();
        assert!(read_until(&mut client, end).await.contains(end));
    }
    let used = tally.so_far();
    assert_eq!((used.input, used.output), (11, 7));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let mut model = model().await;
    let (address, tally, task) = relay(&format!("http://{}", model.address), shared()).await;
    let sent = request("POST /v1/messages", r#"{"stream":true}"#);
    let mut client = TcpStream::connect(address).await.unwrap();
    model.go.send("go").unwrap();
    ask(&mut client, &sent, "output_tokens").await;
    drop(client);
    model.left.recv().await.unwrap();
    // The usage until then counts.
    assert_eq!(tally.so_far().input, 11);
    // Likewise at the end of the session.
    let mut client = TcpStream::connect(address).await.unwrap();
    model.go.send("go").unwrap();
    ask(&mut client, &sent, "output_tokens").await;
    task.abort();
    model.left.recv().await.unwrap();
    assert_eq!(read_until(&mut client, "never").await, "");
}

#[tokio::test]
async fn before_there_is_an_answer_too_a_client_that_leaves_ends_its_request() {
    // An endpoint that reads requests and sends nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (address, _tally, _task) = relay(&url, shared()).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request("POST /v1/messages", "{}").as_bytes()).await.unwrap();
    let mut endpoint = BufReader::new(listener.accept().await.unwrap().0);
    read_request(&mut endpoint).await.unwrap();
    drop(client);
    let read = timeout(Duration::from_secs(20), endpoint.read(&mut [0])).await;
    assert!(matches!(read.unwrap(), Ok(0) | Err(_)));
}

/// Checks the answer to a request, by status and error type.
async fn check(url: &str, access: ModelKeyOwner, head: &str, body: &str, expected: (u16, &str)) {
    let (address, tally, _task) = relay(url, access).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let answer = ask(&mut client, &request(head, body), ERROR_END).await;
    let (status, kind) = expected;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answer}");
    let (_, document) = answer.split_once("\r\n\r\n").unwrap();
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["type"], "error");
    assert_eq!(document["error"]["type"], kind, "{head}");
    assert!(!answer.contains(KEY) && !answer.contains(url), "{answer}");
    assert_eq!(tally.so_far().failed, 1);
}

#[tokio::test]
async fn what_is_not_relayed_is_answered_as_the_messages_api_would() {
    // No process listens there any more.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let not_found = (404, "not_found_error");
    for head in
        ["GET /", "HEAD /v1/messages", "POST /v2/messages", "GET /v1/files", "GET /v1/messages"]
    {
        if !head.starts_with("HEAD") {
            check(&url, shared(), head, "", not_found).await;
        }
    }
    check(&url, shared(), "POST /v1/messages/batches", "", not_found).await;
    check(&url, shared(), "POST /v1/../admin", "", not_found).await;
    let down = (502, "api_error");
    check(&url, shared(), "POST /v1/messages", "{}", down).await;
    let own = || ModelKeyOwner::Own(ModelKey::new("mine").unwrap());
    check(&url, own(), "GET /v1/files", "", down).await;
    check(&url, own(), "GET /v1/%2e%2e/admin", "", not_found).await;
    let large = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        BODY_BYTES_MAX + 1
    );
    let (address, _tally, _task) = relay(&url, shared()).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let answer = ask(&mut client, &large, ERROR_END).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_body_of_no_declared_length_is_bounded_too() {
    // An endpoint that reads everything.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap_or(0)
    });
    let (address, tally, _task) = relay(&url, shared()).await;
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    let sender = tokio::spawn(async move {
        let head = "POST /v1/messages HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        write.write_all(head.as_bytes()).await.unwrap();
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
        // The relay ends the request before all of the body is written.
        for _ in 0..2 * BODY_BYTES_MAX / (1 << 20) {
            if write.write_all(chunk.as_bytes()).await.is_err() {
                return true;
            }
        }
        false
    });
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(20), read.read_to_end(&mut answer)).await;
    drop(read.expect("an end in time"));
    assert!(sender.await.unwrap(), "all of it was taken");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let passed = usize::try_from(endpoint.await.unwrap()).unwrap();
    assert!(passed <= BODY_BYTES_MAX + BODY_BYTES_MAX / 16, "{passed}");
    assert_eq!(tally.so_far().failed, 1);
}

#[tokio::test]
async fn connections_of_one_sandbox_are_bounded() {
    let model = model().await;
    let (address, _tally, _task) = relay(&format!("http://{}", model.address), shared()).await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    // One more connection waits, and is served once another one closes.
    let mut late = TcpStream::connect(address).await.unwrap();
    let sent = request("GET /nothing", "");
    late.write_all(sent.as_bytes()).await.unwrap();
    for one in &mut held {
        assert!(ask(one, &sent, ERROR_END).await.contains("404"));
    }
    let early = late.try_read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "served beyond the limit");
    held.pop();
    assert!(read_until(&mut late, ERROR_END).await.contains("404"));
}

#[tokio::test]
async fn an_idle_connection_is_for_requests_of_its_tenant_alone() {
    let model = model().await;
    let relay = new_relay(&format!("http://{}", model.address), REQUESTS_MAX);
    // An agent of tenant `a`, another one of `a`, and one of `b`, one after the other.
    for (tenant, connections) in [("a", 1), ("a", 1), ("b", 2), ("a", 2), ("b", 2)] {
        let mut client = TcpStream::connect(serve_agent(&relay, tenant).await).await.unwrap();
        let answer = ask(&mut client, &request("POST /v1/messages", "{}"), "}}").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(*model.connections.lock(), connections, "{tenant}");
    }
}

#[tokio::test]
async fn requests_of_one_tenant_leave_places_to_others() {
    let mut model = model().await;
    let relay = new_relay(&format!("http://{}", model.address), 4);
    let agents = [serve_agent(&relay, "a").await, serve_agent(&relay, "a").await];
    let other = serve_agent(&relay, "b").await;
    let slow = request("POST /v1/messages", r#"{"stream":true}"#);
    let mut held = Vec::new();
    for address in agents {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(slow.as_bytes()).await.unwrap();
        model.asked.recv().await.unwrap();
        held.push(client);
    }
    // From any of its agents.
    for address in agents {
        let mut client = TcpStream::connect(address).await.unwrap();
        let refused = ask(&mut client, &slow, ERROR_END).await;
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        assert!(refused.contains("rate_limit_error"), "{refused}");
        assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    }
    let mut client = TcpStream::connect(other).await.unwrap();
    client.write_all(slow.as_bytes()).await.unwrap();
    assert!(model.asked.recv().await.is_some() && model.asked.try_recv().is_err());
    // An abandoned answer releases its place.
    drop(held.remove(0));
    model.left.recv().await.unwrap();
    let mut client = TcpStream::connect(agents[1]).await.unwrap();
    client.write_all(slow.as_bytes()).await.unwrap();
    assert!(model.asked.recv().await.is_some());
}

#[tokio::test]
async fn a_tenant_s_request_does_not_wait_behind_a_crowd_of_another_one_s() {
    const CROWD: usize = 3 * CONNECTIONS_MAX;
    let mut model = model().await;
    let relay = new_relay(&format!("http://{}", model.address), REQUESTS_MAX);
    let refused = request("GET /nothing", "");
    let mut crowd = Vec::new();
    while crowd.len() < CROWD {
        let address = serve_agent(&relay, "a").await;
        for _ in 0..CONNECTIONS_MAX {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
    }
    crowd.push(TcpStream::connect(serve_agent(&relay, "b").await).await.unwrap());
    for client in &mut crowd {
        // Each connection is served by now, and waits for a request.
        assert!(ask(client, &refused, ERROR_END).await.contains("404"));
    }
    // Concurrently: no request is served before the test yields.
    for (number, client) in crowd.iter().enumerate() {
        let sent = request(&format!("POST /v1/messages?{number}"), "{}");
        assert_eq!(client.try_write(sent.as_bytes()).unwrap(), sent.len());
    }
    let mut before = 0;
    let of_other = format!("POST /v1/messages?{CROWD} ");
    while !model.asked.recv().await.unwrap().starts_with(&of_other) {
        before += 1;
    }
    assert!(before < CROWD / 8, "{before} requests of another tenant came first");
}

#[test]
fn endpoints_and_keys_are_checked() {
    for (url, is_right) in [
        ("https://api.anthropic.com", true),
        ("http://127.0.0.1:8080/gateway/", true),
        ("http://[::1]:8080", true),
        ("ftp://a", false),
        ("api.anthropic.com", false),
        ("https://me:secret@host", false),
        ("https://host/?key=1", false),
    ] {
        assert_eq!(ModelUpstream::new(url, TlsRoots::Machine).is_ok(), is_right, "{url}");
    }
    assert_eq!(ModelUpstream::new("http://a/b/", TlsRoots::Machine).unwrap().base_path(), "/b");
    for (key, is_right) in [("sk-1\n", true), ("", false), ("a\nb", false)] {
        assert_eq!(ModelKey::new(key).is_some(), is_right, "{key:?}");
    }
    assert_eq!(format!("{:?}", shared()), "Shared(Some(ModelKey))");
}

/// A relay sends nothing after the lease has ended.
#[tokio::test]
async fn nothing_is_asked_of_the_model_after_the_lease() {
    let mut model = model().await;
    let lease = ServingLease::of(Duration::from_millis(1250));
    let url = format!("http://{}", model.address);
    let relay = new_relay(&url, REQUESTS_MAX).fenced_by(EffectFence::new(lease.clone()));
    let address = serve_agent(&relay, "a").await;
    let renewing = renew(&lease);
    let mut client = TcpStream::connect(address).await.unwrap();
    let sent = request("POST /v1/messages", r#"{"stream":true}"#);
    client.write_all(sent.as_bytes()).await.unwrap();
    model.go.send("go").unwrap();
    read_until(&mut client, "\"output_tokens\":1}}}").await;
    model.asked.recv().await.unwrap();

    renewing.abort();
    while lease.holds() {
        sleep(Duration::from_millis(5)).await;
    }
    // The answer in progress breaks off with its next piece.
    model.go.send("go").unwrap();
    let rest = read_until(&mut client, "content_block_delta").await;
    assert!(!rest.contains("content_block_delta"), "{rest}");
    let plain = request("POST /v1/messages", "{}");
    let mut client = TcpStream::connect(address).await.unwrap();
    let refused = ask(&mut client, &plain, ERROR_END).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(
        refused.contains("retry-after: 1\r\n") && refused.contains("lost its lease"),
        "{refused}"
    );
    assert!(model.asked.try_recv().is_err());

    let _renewing = renew(&lease);
    let answered = ask(&mut client, &plain, "}}").await;
    assert!(answered.starts_with("HTTP/1.1 200 OK\r\n"), "{answered}");
    assert!(model.asked.recv().await.is_some() && model.asked.try_recv().is_err());
}

fn renew(lease: &ServingLease) -> JoinHandle<()> {
    let lease = lease.clone();
    lease.renewed(clock::boot_ms());
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_millis(10)).await;
            lease.renewed(clock::boot_ms());
        }
    })
}
