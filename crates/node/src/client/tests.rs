//! The client against scripted servers.

use testkit::{Certificate, Scratch};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;

/// Longest time that a test waits.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server that answers one request with these bytes, and then waits for the client to close.
async fn answering(answer: &'static [u8]) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        converse(stream, answer).await
    });
    (address, task)
}

async fn converse(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    answer: &[u8],
) -> String {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        stream.read_buf(&mut request).await.unwrap();
    }
    stream.write_all(answer).await.unwrap();
    stream.flush().await.unwrap();
    // Until the client closes, with or without a reset.
    stream.read_to_end(&mut request).await.ok();
    String::from_utf8(request).unwrap()
}

fn get(url: String) -> ClientRequest {
    ClientRequest { timeout: DEADLINE, ..ClientRequest::new(Method::GET, url) }
}

fn open() -> HttpClient {
    HttpClient::new(AddressGuard::Open)
}

fn guarded(allowed: &[&str]) -> HttpClient {
    HttpClient::new(AddressGuard::Public(
        allowed.iter().map(|entry| entry.parse().unwrap()).collect(),
    ))
}

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: b\r\n\r\nhello";

#[tokio::test]
async fn a_request_goes_out_and_its_answer_comes_back() {
    let (address, server) = answering(HELLO).await;
    let mut request = get(format!("http://{address}/a/b?c=%20d#fragment"));
    request.method = Method::POST;
    request.body = Bytes::from_static(b"body");
    request.headers.insert("x-mine", HeaderValue::from_static("1"));
    let response = open().send(request).await.unwrap();
    assert_eq!(response.status, StatusCode::OK);
    assert_eq!(response.headers["x-a"], "b");
    assert_eq!(response.bytes().await.unwrap(), b"hello");
    let received = server.await.unwrap();
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /a/b?c=%20d HTTP/1.1\r\n"), "{head}");
    let lines: Vec<_> = head.lines().collect();
    let host = format!("host: {address}");
    for line in [host.as_str(), "x-mine: 1", "content-length: 4", "connection: close"] {
        assert!(lines.contains(&line), "{line}: {head}");
    }
    assert!(head.contains("\r\nuser-agent: cove/"), "{head}");
    assert_eq!(body, "body");
}

#[tokio::test]
async fn a_redirect_is_an_answer() {
    let (address, server) = answering(
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let response = open().send(get(format!("http://{address}"))).await.unwrap();
    assert_eq!(response.status, StatusCode::FOUND);
    drop(response);
    server.await.unwrap();
}

#[tokio::test]
async fn a_body_is_read_piece_by_piece_and_its_length_is_bounded() {
    let (address, server) = answering(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
    )
    .await;
    let mut response = open().send(get(format!("http://{address}"))).await.unwrap();
    let mut all = Vec::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        all.extend_from_slice(&chunk);
    }
    assert_eq!(all, b"abcdefg");
    drop(response);
    server.await.unwrap();

    for (bytes_max, good) in [(5, true), (4, false)] {
        let (address, _server) = answering(HELLO).await;
        let request =
            ClientRequest { response_bytes_max: bytes_max, ..get(format!("http://{address}")) };
        let result = open().send(request).await.unwrap().bytes().await;
        assert_eq!(result.is_ok(), good, "{result:?}");
        assert!(good || matches!(result, Err(ClientError::TooLarge(4))));
    }
}

#[tokio::test]
async fn silence_ends_in_an_error() {
    let short = Duration::from_millis(30);
    let (address, server) = answering(b"").await;
    let request = ClientRequest { timeout: short, ..get(format!("http://{address}")) };
    let error = open().send(request).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout(limit) if limit == short), "{error:?}");
    // The server detects the close.
    timeout(DEADLINE, server).await.unwrap().unwrap();

    let half: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe";
    let (address, _server) = answering(half).await;
    let request = ClientRequest { pause_max: short, ..get(format!("http://{address}")) };
    let mut response = open().send(request).await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "he");
    let error = response.chunk().await.unwrap_err();
    assert!(matches!(error, ClientError::Paused(_)), "{error:?}");

    let (address, _server) = answering(half).await;
    let request =
        ClientRequest { timeout: Duration::from_millis(200), ..get(format!("http://{address}")) };
    let response = open().send(request).await.unwrap();
    let error = response.bytes().await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout(_)), "{error:?}");
}

#[tokio::test]
async fn what_is_not_http_is_an_error() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(2 * HEAD_BYTES_MAX));
    for answer in [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], long.leak().as_bytes()] {
        let (address, _server) = answering(answer).await;
        let error = open().send(get(format!("http://{address}"))).await.unwrap_err();
        assert!(matches!(error, ClientError::Http { .. }), "{error:?}");
    }
    let error = open().send(get("http://127.0.0.1:1/".to_owned())).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
}

/// Checks that a guarded client refuses, without connecting anywhere.
async fn check_refused(url: String) {
    let error = guarded(&[]).send(get(url.clone())).await.unwrap_err();
    let refused = matches!(error, ClientError::Refused(_) | ClientError::Url(_));
    assert!(refused, "{url}: {error:?}");
}

#[tokio::test]
async fn a_guarded_client_does_not_reach_inside() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.0.1.",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "2130706433",
        "017700000001",
        "0",
        "0.0.0.0",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1%25lo]",
        "１２７.0.0.1",
        "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
        "127。0。0。1",
        "user@127.0.0.1",
        "example.com@127.0.0.1",
        "127.0.0.1%00",
        "%6cocalhost",
    ] {
        check_refused(format!("http://{host}:{port}/")).await;
    }
    for url in [
        format!("http://127.0.0.1:{port}\\@example.com/"),
        format!("http:127.0.0.1:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("http:///127.0.0.1:{port}/"),
        format!("ftp://127.0.0.1:{port}/"),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1:70/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/latest/meta-data/".to_owned(),
        format!("http://127.0.0.1:{port}/ HTTP/1.1\r\nhost: x\r\n\r\n"),
        "http://8.8.8.8:99999/".to_owned(),
        "http://8.8.8.8:25/".to_owned(),
        "http://8.8.8.8:-1/".to_owned(),
        format!("http://8.8.8.8/{}", "x".repeat(URL_BYTES_MAX)),
        String::new(),
    ] {
        check_refused(url).await;
    }
    // No connection was made.
    let came = timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(came.is_err());
}

#[tokio::test]
async fn an_allow_list_opens_the_way() {
    for (entry, host) in
        [("127.0.0.0/8", "127.0.0.1"), ("localhost", "localhost"), ("LOCALHOST.", "LocalHost")]
    {
        let (address, server) = answering(HELLO).await;
        let url = format!("http://{host}:{}/", address.port());
        let response = guarded(&[entry]).send(get(url)).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        drop(response);
        server.await.unwrap();
    }
}

#[tokio::test]
async fn some_headers_are_not_the_callers() {
    for name in ["host", "content-length", "transfer-encoding", "connection", "upgrade", "expect"] {
        let mut request = get("http://127.0.0.1:1/".to_owned());
        request.headers.insert(name, HeaderValue::from_static("x"));
        let error = open().send(request).await.unwrap_err();
        assert!(matches!(&error, ClientError::Header(header) if header == name), "{error:?}");
    }
}

#[test]
fn a_request_is_shown_without_its_secrets() {
    let mut request = get("https://hooks.example/a?token=secret".to_owned());
    request.headers.insert("authorization", HeaderValue::from_static("secret"));
    let debug_text = format!("{request:?}");
    assert!(
        debug_text.contains("https://hooks.example/a") && !debug_text.contains("secret"),
        "{debug_text}"
    );
}

/// A server with TLS.
async fn secure(certificate: &Certificate) -> (SocketAddr, JoinHandle<Option<String>>) {
    let chain: Vec<_> = CertificateDer::pem_file_iter(&certificate.certificate)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    let config = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.ok()?;
        Some(converse(stream, HELLO).await)
    });
    (address, task)
}

#[tokio::test]
async fn tls_is_spoken_with_those_who_are_trusted() {
    let scratch = Scratch::new();
    let certificate = Certificate::new(&scratch);
    let trusting = || {
        HttpClient::with_roots(AddressGuard::Open, TlsRoots::File(certificate.certificate.clone()))
    };
    for host in ["localhost", "127.0.0.1"] {
        let (address, server) = secure(&certificate).await;
        let url = format!("https://{host}:{}/", address.port());
        let response = trusting().send(get(url)).await.unwrap();
        assert_eq!(response.bytes().await.unwrap(), b"hello");
        assert!(server.await.unwrap().unwrap().starts_with("GET / HTTP/1.1\r\n"));
    }
    // An untrusted certificate, or a certificate for another name.
    let (address, server) = secure(&certificate).await;
    let other = Scratch::new();
    let stranger = TlsRoots::File(Certificate::new(&other).certificate);
    let client = HttpClient::with_roots(AddressGuard::Open, stranger);
    let error = client.send(get(format!("https://localhost:{}/", address.port()))).await;
    assert!(matches!(error, Err(ClientError::Tls { .. })), "{error:?}");
    assert_eq!(server.await.unwrap(), None);
    let (address, server) = secure(&certificate).await;
    let url = format!("https://[::ffff:127.0.0.1]:{}/", address.port());
    let error = trusting().send(get(url)).await;
    assert!(matches!(error, Err(ClientError::Tls { .. })), "{error:?}");
    assert_eq!(server.await.unwrap(), None);
}
