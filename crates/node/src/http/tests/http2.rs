//! HTTP/2 by prior knowledge, and its bounds; TLS by a certificate of the test's own.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::tls::ServerCertificate;

/// A connection to the server for many concurrent requests.
async fn connect(server: &Server, window_bytes: u32) -> (SendRequest<Body>, JoinHandle<()>) {
    let stream = TokioIo::new(server.connect().await);
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window_bytes)
        .handshake(stream)
        .await
        .unwrap();
    // It ends when the server closes it, or when all senders are dropped.
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

fn request(server: &Server, path: &str) -> Request<Body> {
    let token = format!("Bearer {}", server.token);
    let uri = format!("http://host.example:81{path}");
    Request::get(uri).header("authorization", token).body(Body::empty()).unwrap()
}

async fn text(answer: Response<Incoming>) -> String {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn requests_share_a_connection_and_are_answered_as_others() {
    let mut server = start().await;
    let (mut sender, _connection) = connect(&server, 1 << 20).await;
    let waits = tokio::spawn(sender.send_request(request(&server, "/v1/wait")));
    assert_eq!(server.next_event().await, "started");
    let answer = sender.send_request(request(&server, "/v1/who")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(answer.headers().contains_key("x-request-id"));
    assert_eq!(text(answer).await, "first");
    let answer = sender.send_request(request(&server, "/nothing")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert!(text(answer).await.contains("`/nothing` does not exist"));
    let answer = sender.send_request(request(&server, "/v1/large")).await.unwrap();
    assert_eq!(text(answer).await.len(), LARGE_BYTES);
    // A client that resets one request ends its handler, and nothing else.
    waits.abort();
    assert_eq!(server.next_event().await, "dropped");
    assert_eq!(
        text(sender.send_request(request(&server, "/v1/who")).await.unwrap()).await,
        "first"
    );
}

#[tokio::test]
async fn the_host_is_that_of_the_authority() {
    let server = start().await;
    let (mut sender, _connection) = connect(&server, 1 << 20).await;
    let mut hosted = request(&server, "/v1/host");
    hosted.headers_mut().insert("host", "elsewhere.example".parse().unwrap());
    let answer = text(sender.send_request(hosted).await.unwrap()).await;
    assert_eq!(answer, "host.example:81 /v1/host");
    let mut named = request(&server, "/v1/host");
    *named.uri_mut() = "http://user@host.example/v1/host".parse().unwrap();
    let answer = sender.send_request(named).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert!(text(answer).await.contains(":authority"));
}

#[tokio::test]
async fn as_many_requests_are_answered_as_there_may_be_connections() {
    let limits = ShellLimits { connections_max: 3, ..ShellLimits::default() };
    let mut server = start_with(limits, DEADLINE).await;
    let (mut sender, _connection) = connect(&server, 1 << 20).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(tokio::spawn(sender.send_request(request(&server, "/v1/wait"))));
        assert_eq!(server.next_event().await, "started");
    }
    let refused = sender.send_request(request(&server, "/v1/who")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(text(refused).await.contains("as many requests are being answered"));
    waiting.pop().unwrap().abort();
    assert_eq!(server.next_event().await, "dropped");
    assert_eq!(
        text(sender.send_request(request(&server, "/v1/who")).await.unwrap()).await,
        "first"
    );
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut() {
    let limits =
        ShellLimits { write_stall_max: Duration::from_millis(300), ..ShellLimits::default() };
    let server = start_with(limits, DEADLINE).await;
    let (mut sender, connection) = connect(&server, 16 << 10).await;
    let answer = sender.send_request(request(&server, "/v1/large")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let mut body = answer.into_body();
    // The first piece is not released, so that the window remains closed.
    let first = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
    timeout(DEADLINE, connection).await.expect("the server cuts it").unwrap();
    drop(first);
}

#[tokio::test]
async fn a_connection_without_requests_ends_and_a_drain_finishes_those_there_are() {
    let limits =
        ShellLimits { header_read_max: Duration::from_millis(300), ..ShellLimits::default() };
    let mut server = start_with(limits, DEADLINE).await;
    let (_sender, connection) = connect(&server, 1 << 20).await;
    timeout(DEADLINE, connection).await.expect("an idle connection ends").unwrap();

    let (mut sender, connection) = connect(&server, 1 << 20).await;
    let waits = tokio::spawn(sender.send_request(request(&server, "/v1/wait")));
    assert_eq!(server.next_event().await, "started");
    assert_eq!(
        text(sender.send_request(request(&server, "/v1/who")).await.unwrap()).await,
        "first"
    );
    server.drain.begin();
    let refused = sender.send_request(request(&server, "/v1/who")).await;
    assert!(refused.is_err() || refused.unwrap().status() == StatusCode::SERVICE_UNAVAILABLE);
    drop(sender);
    waits.abort();
    assert_eq!(server.next_event().await, "dropped");
    timeout(DEADLINE, connection).await.expect("the connection ends").unwrap();
    timeout(DEADLINE, &mut server.task).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn what_only_begins_like_http_2_is_http_1() {
    let server = start().await;
    for pieces in [["P", "OST /v1/things"], ["PR", "OPFIND /v1/things"], ["PRI", " * HTTP/1.1"]] {
        let mut stream = server.connect().await;
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // A cut connection must not hang.
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("an end").ok();
    }
    let mut stream = server.connect().await;
    stream.write_all(b"P").await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    assert_eq!(server.get("/v1/who").await.body, "first");
}

#[tokio::test]
async fn who_has_to_encrypt_is_told_so() {
    let scratch = testkit::Scratch::new();
    let testkit::Certificate { certificate, key } = testkit::Certificate::new(&scratch);
    let certificate = ServerCertificate::open(&certificate, &key).unwrap();
    for plaintext in [PlaintextPolicy::Never, PlaintextPolicy::Loopback] {
        let tls = HttpListenerTls { certificate: certificate.clone(), plaintext };
        let server = start_tls(ShellLimits::default(), DEADLINE, Some(tls)).await;
        let answer = server.get("/v1/who").await;
        match plaintext {
            PlaintextPolicy::Never => {
                assert_eq!(answer.status, 400);
                let message = answer.error()["message"].clone();
                assert!(message.as_str().unwrap().contains("this port requires TLS"), "{message}");
            }
            _ => assert_eq!(answer.body, "first"),
        }
    }
    let peer = |address: &str| address.parse().unwrap();
    for (policy, of_others) in [
        (PlaintextPolicy::Never, false),
        (PlaintextPolicy::Loopback, false),
        (PlaintextPolicy::Always, true),
    ] {
        assert_eq!(policy.allows(peer("192.0.2.1:9")), of_others);
        assert_eq!(policy.allows(peer("[::ffff:192.0.2.1]:9")), of_others);
        let of_this = policy != PlaintextPolicy::Never;
        assert_eq!(policy.allows(peer("[::ffff:127.0.0.9]:9")), of_this);
        assert_eq!(policy.allows(peer("[::1]:9")), of_this);
    }
}
