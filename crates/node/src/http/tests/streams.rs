//! WebSockets, events and faces, against real sockets and an independent WebSocket client.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::extract::ws::{self, WebSocketUpgrade};
use axum::response::{IntoResponse as _, Response};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::fair::FairScheduler;

type Client = WebSocketStream<TcpStream>;

/// The server of the other tests, and one with a face's listener.
struct Both {
    server: Server,
    face: SocketAddr,
}

fn streams(waiting: mpsc::UnboundedSender<&'static str>) -> Router {
    let (deaf, events) = (waiting.clone(), waiting.clone());
    let echo = async move |upgrade: WebSocketUpgrade, drain: DrainHandle| {
        let say = SayOnDrop(waiting.clone());
        waiting.send("started").ok();
        upgrade.protocols(["cove.v1"]).on_upgrade(move |mut socket| async move {
            let _say = say;
            loop {
                let message = tokio::select! {
                    message = socket.recv() => message,
                    () = drain.cancelled() => {
                        let reason = ws::CloseFrame { code: 1001, reason: "bye".into() };
                        socket.send(ws::Message::Close(Some(reason))).await.ok();
                        break;
                    }
                };
                match message {
                    Some(Ok(message @ (ws::Message::Text(_) | ws::Message::Binary(_)))) => {
                        socket.send(message).await.ok();
                    }
                    Some(Ok(_)) => {}
                    _ => break,
                }
            }
        })
    };
    let deaf = async move |upgrade: WebSocketUpgrade| {
        let say = SayOnDrop(deaf.clone());
        upgrade.on_upgrade(move |mut socket| async move {
            let _say = say;
            while let Some(Ok(_)) = socket.recv().await {}
        })
    };
    let events = async move || {
        let say = SayOnDrop(events.clone());
        events.send("started").ok();
        let once = stream::once(async { Ok::<_, std::convert::Infallible>("data: 1\n\n") });
        let forever = stream::once(async move {
            let _say = say;
            std::future::pending().await
        });
        ([("content-type", "text/event-stream")], Body::from_stream(once.chain(forever)))
    };
    let large = get(|| async { "x".repeat(LARGE_BYTES) });
    let who = get(|who: TokenPrincipal| async move { who.name.to_string() });
    Router::new()
        .route("/v1/echo", get(echo))
        .route("/v1/deaf", get(deaf))
        .route("/v1/events", get(events))
        .route("/v1/large", large)
        .route("/v1/who", who.clone())
        .route("/compat/judge0/who", who.clone())
        .route(
            "/compat/judge0/things",
            post(|JsonBody(thing): JsonBody<Thing>| async { thing.name }),
        )
        .route("/who", who)
}

fn render(error: &HttpError) -> Response {
    let body = format!("judge0: {}", error.detail().message);
    (error.status(), body).into_response()
}

fn anybody() -> TokenPrincipal {
    TokenPrincipal::without_token("piston", "piston")
}

async fn start_both(limits: ShellLimits, patience: Duration, access: FaceAccess) -> Both {
    let directory = TempDir::new();
    let tokens = TokenRegistry::open(directory.path()).unwrap();
    tokens.ensure_first().unwrap();
    let token = fs::read_to_string(tokens.first_token_path()).unwrap().trim().to_owned();
    let drain = DrainHandle::new();
    let metrics = HttpMetrics::new(&mut Registry::default());
    let shell =
        HttpShell::new(limits, tokens.clone(), drain.clone(), metrics, IdGenerator::new().unwrap());
    let (sender, waiting) = mpsc::unbounded_channel();
    let main = BoundListener::bind("127.0.0.1:0").await.unwrap();
    let face = BoundListener::bind("127.0.0.1:0").await.unwrap();
    let (address, face_address) = (main.address(), face.address());
    let judge0 = CompatFace { render: Some(render), ..CompatFace::NATIVE };
    let routes = streams(sender);
    let listeners = vec![
        (main, shell.wrap_with(routes.clone(), vec![("/compat/judge0", judge0)]).into()),
        (face, shell.wrap_face("other", routes, CompatFace { access, ..CompatFace::NATIVE })),
    ];
    let turns = FairScheduler::for_this_runtime();
    let task = tokio::spawn(serve_all(listeners, limits, &turns, drain.clone(), patience));
    let server = Server { address, token, drain, tokens, waiting, task, _directory: directory };
    Both { server, face: face_address }
}

async fn start_streams(limits: ShellLimits, patience: Duration) -> Server {
    start_both(limits, patience, FaceAccess::Token).await.server
}

impl Server {
    /// Requests a WebSocket with these headers.
    async fn try_socket(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<(Client, tungstenite::handshake::client::Response), tungstenite::Error> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        timeout(DEADLINE, client_async(request, self.connect().await)).await.unwrap()
    }

    async fn socket(&self, path: &str) -> Client {
        let token = format!("Bearer {}", self.token);
        self.try_socket(path, &[("authorization", &token)]).await.unwrap().0
    }
}

async fn next(client: &mut Client) -> Option<Message> {
    timeout(DEADLINE, client.next()).await.unwrap().and_then(Result::ok)
}

#[tokio::test]
async fn a_websocket_outlasts_the_time_for_a_request() {
    let limit = Duration::from_millis(20);
    let limits =
        ShellLimits { header_read_max: limit, body_pause_max: limit, ..ShellLimits::default() };
    let mut server = start_streams(limits, DEADLINE).await;
    let mut client = server.socket("/v1/echo").await;
    assert_eq!(server.next_event().await, "started");
    let began = clock::now();
    while clock::now().duration_since(began) < 5 * limit {
        for message in [Message::text("hello"), Message::binary(vec![0_u8; 200_000])] {
            client.send(message.clone()).await.unwrap();
            assert_eq!(next(&mut client).await, Some(message));
        }
    }
    assert_eq!(server.drain.working(), 1);
    client.close(None).await.unwrap();
    while next(&mut client).await.is_some() {}
    assert_eq!(server.next_event().await, "dropped");
}

#[tokio::test]
async fn what_comes_with_the_handshake_is_not_lost() {
    let server = start_streams(ShellLimits::default(), DEADLINE).await;
    let mut stream = server.connect().await;
    let head = server.head("GET", "/v1/echo");
    let handshake = format!(
        "{head}connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    // RFC 6455, 5.2: a final text frame of five bytes, masked with zeros.
    let frame = b"\x81\x85\0\0\0\0hello";
    stream.write_all(&[handshake.as_bytes(), frame].concat()).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n\x81\x05hello") {
        let read = timeout(DEADLINE, stream.read_buf(&mut bytes)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_stream() {
    let mut server = start_streams(ShellLimits::default(), DEADLINE).await;
    let client = server.socket("/v1/echo").await;
    assert_eq!(server.next_event().await, "started");
    drop(client);
    assert_eq!(server.next_event().await, "dropped");

    let mut stream = server.connect().await;
    stream.write_all(format!("{}\r\n", server.head("GET", "/v1/events")).as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    read_until(&mut stream, "data: 1\n\n").await;
    assert_eq!(server.drain.working(), 1);
    let left = clock::now();
    drop(stream);
    assert_eq!(server.next_event().await, "dropped");
    let took = clock::now().duration_since(left);
    assert!(took < Duration::from_millis(100), "{took:?}");
    let idle = async {
        while server.drain.working() > 0 {
            tokio::task::yield_now().await
        }
    };
    timeout(DEADLINE, idle).await.unwrap();
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(end) {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "{bytes:?}");
        }
    };
    timeout(DEADLINE, read).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn streams_are_bounded_and_leave_connections_to_others() {
    let limits = ShellLimits { streams_max: 1, ..ShellLimits::default() };
    let mut server = start_streams(limits, DEADLINE).await;
    let client = server.socket("/v1/echo").await;
    assert_eq!(server.next_event().await, "started");
    let token = format!("Bearer {}", server.token);
    let refused = server.try_socket("/v1/echo", &[("authorization", &token)]).await.unwrap_err();
    let tungstenite::Error::Http(answer) = refused else { panic!("{refused:?}") };
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert_eq!(server.get("/v1/events").await.status, 503);
    let offer = format!("{}upgrade: h2c\r\n\r\n", server.head("GET", "/v1/who"));
    assert_eq!(server.send(offer.as_bytes()).await.status, 200);
    assert_eq!(server.get("/v1/who").await.status, 200);
    // The handler of the events had begun, that of the WebSocket had not.
    assert_eq!([server.next_event().await, server.next_event().await], ["started", "dropped"]);
    drop(client);
    assert_eq!(server.next_event().await, "dropped");
    let again = async {
        while server.try_socket("/v1/echo", &[("authorization", &token)]).await.is_err() {}
    };
    timeout(DEADLINE, again).await.unwrap();
}

#[tokio::test]
async fn draining_ends_streams_politely() {
    let mut server = start_streams(ShellLimits::default(), DEADLINE).await;
    let mut client = server.socket("/v1/echo").await;
    let mut stream = server.connect().await;
    stream.write_all(format!("{}\r\n", server.head("GET", "/v1/events")).as_bytes()).await.unwrap();
    read_until(&mut stream, "data: 1\n\n\r\n").await;
    server.drain.begin();
    // It continues until the patience has passed.
    client.send(Message::text("still")).await.unwrap();
    assert_eq!(next(&mut client).await, Some(Message::text("still")));
    server.drain.cancel();
    let Some(Message::Close(Some(frame))) = next(&mut client).await else { panic!("no close") };
    assert_eq!(frame.code, CloseCode::Away);
    // The regular end of a body in chunks.
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "0\r\n\r\n");
    timeout(DEADLINE, &mut server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn who_does_not_listen_to_the_drain_is_cut() {
    let mut server = start_streams(ShellLimits::default(), Duration::ZERO).await;
    let mut client = server.socket("/v1/deaf").await;
    server.drain.begin();
    timeout(2 * DEADLINE, &mut server.task).await.unwrap().unwrap();
    assert_eq!(server.next_event().await, "dropped");
    assert_eq!(next(&mut client).await, None);
}

#[tokio::test]
async fn a_token_may_come_as_a_protocol_and_never_in_the_address() {
    let server = start_streams(ShellLimits::default(), DEADLINE).await;
    let bearer = format!("bearer.{}", server.token);
    let header = format!("Bearer {}", server.token);
    let offered = "sec-websocket-protocol";
    let both = format!("cove.v1, {bearer}");
    let wrong = format!("bearer.cove_{}", "A".repeat(43));
    let query = format!("/v1/echo?token={0}&access_token={0}", server.token);
    for (path, headers, chosen) in [
        ("/v1/echo", vec![(offered, bearer.as_str())], Some(bearer.as_str())),
        ("/v1/echo", vec![(offered, both.as_str())], Some("cove.v1")),
        ("/v1/echo", vec![("x-auth-token", server.token.as_str())], Some("")),
        ("/v1/echo", vec![(offered, wrong.as_str())], None),
        ("/v1/echo", vec![(offered, bearer.as_str()), ("authorization", &header)], None),
        ("/v1/echo", vec![("x-auth-token", &server.token), ("authorization", &header)], None),
        ("/v1/echo", vec![], None),
        (query.as_str(), vec![], None),
    ] {
        let result = server.try_socket(path, &headers).await;
        let found = result.as_ref().ok().map(|(_, answer)| {
            let protocol = answer.headers().get(offered);
            protocol.map_or("", |protocol| protocol.to_str().unwrap())
        });
        assert_eq!(found, chosen, "{path} {headers:?}: {result:?}");
    }
    // A request for no WebSocket has no protocols.
    let request = format!("GET /v1/who HTTP/1.1\r\nhost: x\r\n{offered}: {bearer}\r\n\r\n");
    assert_eq!(server.send(request.as_bytes()).await.status, 401);
}

#[tokio::test]
async fn a_face_has_its_own_errors() {
    let limits = ShellLimits { body_bytes_max: 100, ..ShellLimits::default() };
    let server = start_streams(limits, DEADLINE).await;
    let token = format!("X-Auth-Token: {}\r\n", server.token);
    let json = "content-type: application/json\r\n";
    for (line, headers, body, status, start) in [
        ("GET /compat/judge0/who", token.as_str(), "", 200, "first"),
        ("GET /compat/judge0/who", "", "", 401, "judge0: a valid token"),
        ("GET /compat/judge0", "", "", 401, "judge0: a valid token"),
        ("GET /compat/judge0/none", &token, "", 404, "judge0: `/compat/judge0/none` does not"),
        ("POST /compat/judge0/who", &token, "", 405, "judge0: `/compat/judge0/who` does"),
        ("POST /compat/judge0/things", &format!("{token}{json}"), "{", 400, "judge0: "),
        ("POST /compat/judge0/things", &format!("{token}{json}"), &"x".repeat(101), 413, "judge0"),
        ("GET /compat/judge0s", "", "", 404, "{\"error\""),
    ] {
        let length = body.len();
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}");
        let answer = server.send(format!("{request}\r\n\r\n{body}").as_bytes()).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.body);
        assert!(answer.body.starts_with(start), "{line}: {}", answer.body);
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
        assert_eq!(answer.header("allow").is_some(), status == 405);
        assert!(answer.header("x-request-id").is_some());
    }
}

#[tokio::test]
async fn a_listener_may_do_without_tokens() {
    let wrong = format!("authorization: Bearer cove_{}\r\n", "A".repeat(43));
    let local = FaceAccess::Loopback(anybody());
    let open = FaceAccess::Open(anybody());
    for (access, host, headers, expected) in [
        (&local, "127.0.0.1", "", Some("piston")),
        (&local, "localhost:2000", "", Some("piston")),
        (&local, "[::1]:2000", "", Some("piston")),
        // A foreign name that resolves to this machine, and a foreign page.
        (&local, "evil.example", "", None),
        (&local, "localhost", "origin: http://evil.example\r\n", None),
        (&local, "127.0.0.1", wrong.as_str(), None),
        (&open, "evil.example", "", Some("piston")),
        (&open, "127.0.0.1", wrong.as_str(), None),
        (&FaceAccess::Token, "127.0.0.1", "", None),
    ] {
        let both = start_both(ShellLimits::default(), DEADLINE, access.clone()).await;
        let ask = async |address: SocketAddr, path: &str, headers: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let answer = read_answer(&mut stream).await;
            (answer.status == 200).then_some(answer.body)
        };
        let found = ask(both.face, "/who", headers).await;
        assert_eq!(found.as_deref(), expected, "{access:?} {host} {headers}");
        // All of a face's listener is protected, and the main one requires a token in any case.
        let hidden = ask(both.face, "/v1/who", headers).await;
        assert_eq!(hidden.as_deref(), expected);
        assert_eq!(ask(both.server.address, "/v1/who", headers).await, None);
        let token = format!("authorization: Bearer {}\r\n", both.server.token);
        assert_eq!(ask(both.face, "/who", &token).await.as_deref(), Some("first"));
    }
}

#[tokio::test]
async fn listeners_have_room_of_their_own_and_share_an_end() {
    let limits = ShellLimits { connections_max: 1, ..ShellLimits::default() };
    let mut both = start_both(limits, DEADLINE, FaceAccess::Open(anybody())).await;
    let mut kept = Vec::new();
    for address in [both.server.address, both.face] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = both.server.head("GET", "/v1/events");
        stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        assert_eq!(both.server.next_event().await, "started", "{address}");
        kept.push(stream);
    }
    // A connection with an unfinished answer is not evicted.
    for address in [both.server.address, both.face] {
        let mut third = TcpStream::connect(address).await.unwrap();
        assert_eq!(read_answer(&mut third).await.status, 503);
    }
    both.server.drain.begin();
    drop(kept);
    timeout(DEADLINE, &mut both.server.task).await.unwrap().unwrap();
    for address in [both.server.address, both.face] {
        assert!(TcpStream::connect(address).await.is_err());
    }
}

/// An answer of unknown length that ends at once is like any other.
#[tokio::test]
async fn a_short_stream_gives_its_place_back() {
    let directory = TempDir::new();
    let tokens = TokenRegistry::open(directory.path()).unwrap();
    let limits = ShellLimits { streams_max: 1, ..ShellLimits::default() };
    let drain = DrainHandle::new();
    let metrics = HttpMetrics::new(&mut Registry::default());
    let shell = HttpShell::new(limits, tokens, drain.clone(), metrics, IdGenerator::new().unwrap());
    let body = || async {
        Body::from_stream(stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"x"))]))
    };
    let listener = BoundListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.address();
    let router = shell.wrap(Router::new().route("/stream", get(body)));
    let task = tokio::spawn(listener.serve(router, limits, drain.clone(), DEADLINE));
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut all = String::new();
        timeout(DEADLINE, stream.read_to_string(&mut all)).await.unwrap().unwrap();
        assert!(all.ends_with("\r\n1\r\nx\r\n0\r\n\r\n"), "{all}");
    }
    drain.begin();
    timeout(DEADLINE, task).await.unwrap().unwrap();
}

/// After a leaked token is revoked, everything that it has opened ends: a terminal is a WebSocket.
#[tokio::test]
async fn a_revoked_token_takes_with_it_what_it_has_opened() {
    let mut server = start_streams(ShellLimits::default(), DEADLINE).await;
    let mut socket = server.socket("/v1/deaf").await;
    let mut echo = server.socket("/v1/echo").await;
    assert_eq!(server.next_event().await, "started");
    let mut events = server.connect().await;
    events.write_all(format!("{}\r\n", server.head("GET", "/v1/events")).as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    read_until(&mut events, "data: 1\n\n").await;
    // More than the kernel's buffers hold, and its length is known.
    let mut large = server.connect().await;
    large.write_all(format!("{}\r\n", server.head("GET", "/v1/large")).as_bytes()).await.unwrap();
    large.readable().await.unwrap();

    let id = server.tokens.list()[0].id.clone();
    server.tokens.revoke(&id).unwrap();
    for _ in 0..3 {
        assert_eq!(server.next_event().await, "dropped");
    }
    for client in [&mut socket, &mut echo] {
        let last = next(client).await;
        assert!(!matches!(last, Some(Message::Text(_) | Message::Binary(_))), "{last:?}");
    }
    // Cut, without the last chunk that would mark a complete answer.
    let mut rest = Vec::new();
    timeout(DEADLINE, events.read_to_end(&mut rest)).await.unwrap().ok();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
    let mut rest = Vec::new();
    timeout(DEADLINE, large.read_to_end(&mut rest)).await.unwrap().ok();
    assert!(rest.len() < LARGE_BYTES, "{}", rest.len());
    let again = server.try_socket("/v1/echo", &[("x-api-key", &server.token)]).await;
    assert!(matches!(again, Err(tungstenite::Error::Http(answer)) if answer.status() == 401));
}

#[tokio::test]
async fn a_request_that_waits_ends_with_its_token() {
    let mut server = start().await;
    let mut stream = server.connect().await;
    stream.write_all(format!("{}\r\n", server.head("GET", "/v1/wait")).as_bytes()).await.unwrap();
    assert_eq!(server.next_event().await, "started");
    let id = server.tokens.list()[0].id.clone();
    server.tokens.revoke(&id).unwrap();
    assert_eq!(server.next_event().await, "dropped");
    assert_eq!(read_answer(&mut stream).await.status, 401);
}
