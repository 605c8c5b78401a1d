//! The proxy over real sockets, with servers that record requests.

mod amounts;
mod fence;

use std::io;
use std::net::SocketAddr;

use api::HttpRule;
use node::client::TlsRoots;
use testkit::{Certificate, Scratch};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::dial::NameResolver;
use super::*;
use crate::config::{AuditStatements, NamedSecrets};

/// Reached only by failing tests.
const DEADLINE: Duration = Duration::from_secs(30);

/// Resolver with scripted results; the last one is repeated.
#[derive(Debug)]
struct Script(Mutex<(Vec<Vec<&'static str>>, usize)>);

impl NameResolver for Script {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
        port: u16,
        _: OwnedSemaphorePermit,
    ) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        let mut state = self.0.lock();
        let (answers, asked) = &mut *state;
        let answer = answers[(*asked).min(answers.len() - 1)].clone();
        *asked += 1;
        let all = answer.into_iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
        let all = Ok(all.collect());
        Box::pin(async move { all })
    }
}

/// Outcome, text, error, bytes out and in.
type Record = (AuditOutcome, String, String, u64, u64);

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Record>>);

impl AuditSink for Recorder {
    fn statements(&self) -> AuditStatements {
        AuditStatements::None
    }

    fn saw(&self, it: &GatewayEvent<'_>) {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let (out, back) = (it.bytes_out.unwrap_or(0), it.bytes_in.unwrap_or(0));
        self.0.lock().push((it.outcome, text(it.text), text(it.error), out, back));
    }
}

/// A proxy on a loopback port.
struct Served {
    address: SocketAddr,
    recorder: Arc<Recorder>,
    script: Arc<Script>,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Setup {
    rules: String,
    limits: HttpLimits,
    names: Vec<Vec<&'static str>>,
    roots: TlsRoots,
    fence: EffectFence,
    holder: GrantHolder,
    account: Arc<GrantAccount>,
}

/// Rules that reach servers of these tests.
fn setup(rules: &str) -> Setup {
    let limits = HttpLimits { connections: 0, requests: 0, bytes: 0 };
    let names = vec![vec!["127.0.0.1"]];
    let (fence, holder) = (EffectFence::open(), GrantHolder::new("ses_1", "team"));
    let roots = TlsRoots::Machine;
    let account = Arc::default();
    Setup { rules: rules.to_owned(), limits, names, roots, fence, holder, account }
}

#[derive(serde::Deserialize)]
struct Table {
    rules: Vec<HttpRule>,
}

impl Setup {
    async fn serve(self) -> Served {
        let secrets = NamedSecrets([("key".to_owned(), "Bearer planted-canary".to_owned())].into());
        let table: Table = toml::from_str(&self.rules).unwrap();
        let rules = GrantRules::new(&table.rules, &secrets).unwrap();
        let script = Arc::new(Script(Mutex::new((self.names, 0))));
        let resolver: Arc<dyn NameResolver> = Arc::clone(&script) as _;
        let dialer = Arc::new(EgressDialer::new(resolver, self.roots));
        let recorder = Arc::new(Recorder::default());
        let witness: Arc<dyn AuditSink> = Arc::clone(&recorder) as _;
        let lookups = Arc::new(Semaphore::new(1));
        let (fence, holder, account) = (self.fence, self.holder, self.account);
        let shows_queries = false;
        let surroundings =
            ProxyContext { dialer, lookups, account, witness, shows_queries, fence, holder };
        let proxy = Arc::new(EgressProxy::new(rules, self.limits, surroundings));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(Arc::clone(&proxy).serve(stream));
            }
        });
        Served { address, recorder, script, task }
    }
}

impl Served {
    /// Sends these bytes and reads until the end.
    async fn send(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A reset counts as an end as well.
        timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an end").ok();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, url: &str) -> String {
        self.send(&format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    }

    /// Waits for the next record.
    async fn record(&self) -> Record {
        let waiting = async {
            loop {
                let first = {
                    let mut records = self.recorder.0.lock();
                    (!records.is_empty()).then(|| records.remove(0))
                };
                match first {
                    Some(record) => return record,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(DEADLINE, waiting).await.expect("a record")
    }
}

/// A server that sends these bytes on each connection and returns the received ones.
struct Origin {
    port: u16,
    got: tokio::sync::mpsc::UnboundedReceiver<String>,
}

async fn origin(answer: &'static str) -> Origin {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, got) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let tell = tell.clone();
            tokio::spawn(async move { tell.send(converse(stream, answer).await) });
        }
    });
    Origin { port, got }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut asked = Vec::new();
    while !asked.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut asked).await.unwrap_or(0) == 0 {
            return String::from_utf8_lossy(&asked).into_owned();
        }
    }
    // The body follows directly.
    tokio::time::timeout(Duration::from_millis(100), async {
        while stream.read_buf(&mut asked).await.is_ok_and(|count| count > 0) {}
    })
    .await
    .ok();
    stream.write_all(answer.as_bytes()).await.ok();
    stream.read_to_end(&mut asked).await.ok();
    String::from_utf8_lossy(&asked).into_owned()
}

impl Origin {
    async fn next(&mut self) -> String {
        timeout(DEADLINE, self.got.recv()).await.expect("a request").unwrap()
    }

    fn has_none(&mut self) -> bool {
        self.got.try_recv().is_err()
    }
}

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-echo: Bearer planted-canary\r\n\
    x-cove-refused: forged\r\nset-cookie: a=b\r\n\r\nhello";

fn rule(port: u16, more: &str) -> String {
    format!("[[rules]]\nhosts = ['*']\nports = [{port}]\ninternal = ['127.0.0.0/8']\n{more}\n")
}

#[tokio::test]
async fn a_secret_goes_out_and_does_not_come_back() {
    let mut origin = origin(HELLO).await;
    let port = origin.port;
    let rules = rule(port, "paths = ['/v1/*']\n[rules.headers.authorization]\nsecret = 'key'");
    let proxy = setup(&rules).serve().await;
    let request = format!(
        "POST http://API.example:{port}/v1/%69tems/../x?q=%20value&t=1 HTTP/1.1\r\n\
         Host: other.example\r\nAuthorization: Basic own\r\nAuthorization: Basic own2\r\n\
         Proxy-Authorization: Basic p\r\nX-Hop: 1\r\nConnection: close, X-Hop\r\n\
         Content-Length: 4\r\n\r\nbody"
    );
    let answer = proxy.send(&request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
    assert!(answer.contains("set-cookie: a=b"), "{answer}");
    assert!(!answer.contains("canary") && !answer.contains("forged"), "{answer}");
    let asked = origin.next().await;
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/x?q=%20value&t=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(body, "body");
    let mut lines: Vec<&str> = head.lines().skip(1).collect();
    lines.sort_unstable();
    let host = format!("host: api.example:{port}");
    let expected = [
        "accept-encoding: identity",
        "authorization: Bearer planted-canary",
        "connection: close",
        "content-length: 4",
        &host,
    ];
    assert_eq!(lines, expected);
    let (outcome, text, error, out, back) = proxy.record().await;
    assert_eq!((outcome, error.as_str(), out, back), (AuditOutcome::Done, "", 4, 5));
    assert_eq!(text, format!("POST http://API.example:{port}/v1/%69tems/../x?q=…&t=…"));
}

#[tokio::test]
async fn an_answer_that_repeats_a_secret_breaks_off() {
    let all = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
         9\r\nyou sent \r\n9\r\nplanted-c\r\n6\r\nanary!\r\n0\r\n\r\n";
    // The rest of it would follow in another response.
    let half = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
         11\r\nyou sent planted-\r\n0\r\n\r\n";
    for answer in [all, half] {
        let mut origin = origin(answer).await;
        let rules = rule(origin.port, "[rules.headers.authorization]\nsecret = 'key'");
        let proxy = setup(&rules).serve().await;
        let request = format!(
            "GET http://a.example:{}/ HTTP/1.1\r\nHost: x\r\nRange: bytes=0-16\r\n\
             If-Range: \"a\"\r\nConnection: close\r\n\r\n",
            origin.port
        );
        let answer = proxy.send(&request).await;
        assert!(!answer.contains("planted") && !answer.contains("\r\n0\r\n"), "{answer}");
        let asked = origin.next().await.to_lowercase();
        assert!(asked.contains("planted-canary") && !asked.contains("range"), "{asked}");
        let (outcome, _, error, ..) = proxy.record().await;
        assert_eq!(outcome, AuditOutcome::Refused);
        assert_eq!(error, "the response contains a secret");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_searched_is_refused() {
    for (answer, reason) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx",
            "the answer is compressed",
        ),
        (
            "HTTP/1.1 200 OK\r\nx-a: planted-\r\nx-b: canary\r\ncontent-length: 0\r\n\r\n",
            "the answer repeats a secret in its headers",
        ),
    ] {
        let origin = origin(answer).await;
        let rules = rule(origin.port, "[rules.headers.authorization]\nsecret = 'key'");
        let proxy = setup(&rules).serve().await;
        let answer = proxy.get(&format!("http://a.example:{}/", origin.port)).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(!answer.contains("planted") && !answer.contains("xx"), "{answer}");
        let (outcome, _, error, ..) = proxy.record().await;
        assert_eq!(outcome, AuditOutcome::Failed);
        assert!(error.starts_with(reason), "{error}");
    }
}

#[tokio::test]
async fn a_request_cannot_stand_for_another_method_path_or_host() {
    let overrides = "X-HTTP-Method-Override: DELETE\r\nX_HTTP_Method: DELETE\r\n\
                     X-Original-URL: /admin/x\r\nX-Rewrite-URL: /admin/x\r\n\
                     X-Forwarded-Host: b.example\r\nForwarded: host=b.example\r\n\
                     CF-Connecting-IP: b.example\r\nClient_IP: b.example\r\n\
                     X-Cluster-Client-IP: b.example\r\nX-Envoy-Original-Host: b.example\r\n";
    for (rest, kept) in [
        ("", ["x-http-method-override", "x-original-url"].as_slice()),
        ("methods = ['GET']", &["x-original-url"]),
        ("paths = ['/v1/*']", &["x-http-method-override"]),
        ("[rules.headers.authorization]\nsecret = 'key'", &[]),
    ] {
        let mut origin = origin(HELLO).await;
        let proxy = setup(&rule(origin.port, rest)).serve().await;
        let ask = |query: &str| {
            format!(
                "GET http://a.example:{}/v1/h{query} HTTP/1.1\r\nHost: x\r\n{overrides}\
                 Connection: close\r\n\r\n",
                origin.port
            )
        };
        let (plain, with_field) = (ask(""), ask("?_method=DELETE"));
        let answer = proxy.send(&plain).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{rest}: {answer}");
        let seen = origin.next().await.to_lowercase();
        for name in ["x-http-method-override", "x_http_method", "x-original-url", "x-rewrite-url"] {
            let expected = match name {
                "x_http_method" => kept.contains(&"x-http-method-override"),
                "x-rewrite-url" => kept.contains(&"x-original-url"),
                other => kept.contains(&other),
            };
            assert_eq!(seen.contains(&format!("{name}:")), expected, "{rest}: {name}");
        }
        assert!(!seen.contains("b.example"), "{rest}: {seen}");
        proxy.record().await;
        let answer = proxy.send(&with_field).await;
        let compares_method = !kept.contains(&"x-http-method-override");
        let status = if compares_method { "403" } else { "200" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{rest}: {answer}");
    }
}

#[tokio::test]
async fn a_form_cannot_stand_for_another_method() {
    let form = "content-type: application/x-www-form-urlencoded";
    for (rest, head, body, status) in [
        ("methods = ['POST']", form, "a=1&_method=DELETE", 403),
        ("methods = ['POST']", form, "a=1&method=DELETE", 200),
        ("methods = ['POST']", "content-type: application/json", "_method=DELETE", 200),
        ("[rules.headers.authorization]\nsecret = 'key'", form, "%5Fmethod=PUT", 403),
        ("", form, "_method=DELETE", 200),
    ] {
        let origin = origin(HELLO).await;
        let proxy = setup(&rule(origin.port, rest)).serve().await;
        let request = format!(
            "POST http://a.example:{}/v1/h HTTP/1.1\r\nHost: x\r\n{head}\r\n\
             content-length: {}\r\nConnection: close\r\n\r\n{body}",
            origin.port,
            body.len()
        );
        let answer = proxy.send(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{rest} {body}: {answer}");
    }
}

#[tokio::test]
async fn what_no_rule_allows_does_not_leave() {
    let mut origin = origin(HELLO).await;
    let port = origin.port;
    let rules = format!(
        "[[rules]]\neffect = 'deny'\nhosts = ['a.example']\npaths = ['/admin/*']\n{}",
        rule(port, "methods = ['GET']")
    );
    let proxy = setup(&rules).serve().await;
    let line = |line: &str| format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    for (request, status, refused) in [
        (format!("GET http://a.example:{port}/x/..%2fadmin/"), 403, "path: servers"),
        (format!("GET http://a.example:{port}/x/../%61dmin/"), 403, "rules[0]"),
        (format!("PUT http://a.example:{port}/"), 403, "no rule fits"),
        (format!("TRACE http://b.example:{port}/"), 403, "method: TRACE"),
        ("GET http://b.example/".to_owned(), 403, "no rule fits"),
        (format!("CONNECT b.example:{port}"), 403, "no rule fits"),
        (format!("CONNECT a.example:{port}"), 403, "rules[0]"),
        ("CONNECT a.example".to_owned(), 400, "port"),
        (format!("GET https://b.example:{port}/"), 400, "scheme"),
        (format!("GET http://b.example@c.example:{port}/"), 400, "host"),
        (format!("GET http://1.2.3.4.5:{port}/"), 400, "host"),
        // A resolver would treat it as the host that the first rule denies.
        (format!("GET http://a.example..:{port}/admin/"), 400, "host"),
        ("GET http://b.example:0/".to_owned(), 400, "port"),
        ("GET /".to_owned(), 400, "this is a proxy"),
    ] {
        let answer = proxy.send(&line(&request)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(answer.contains(&format!("x-cove-refused: {refused}")), "{request}: {answer}");
        let (outcome, _, error, ..) = proxy.record().await;
        assert_eq!(outcome, AuditOutcome::Refused, "{request}");
        assert!(error.starts_with(refused), "{request}: {error}");
    }
    assert!(origin.has_none());
    let answer = proxy.get(&format!("http://b.example:{port}/a%2fb//c")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(origin.next().await.starts_with("GET /a%2fb//c HTTP/1.1\r\n"));
}

#[tokio::test]
async fn no_password_is_written_down() {
    let proxy = setup(&rule(1, "")).serve().await;
    for (line, expected) in [
        ("GET http://user:planted@a.example:81/x?key=planted", "GET http://a.example:81/x?key=…"),
        ("GET https://user:planted@a.example?planted", "GET https://a.example/?…"),
        ("CONNECT user:planted@a.example:443", "CONNECT a.example:443"),
        ("OPTIONS *", "OPTIONS *"),
        ("GET /x", "GET /x"),
    ] {
        let answer = proxy.send(&format!("{line} HTTP/1.1\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains("planted"), "{answer}");
        let (_, text, error, ..) = proxy.record().await;
        assert_eq!(text, expected);
        assert!(!error.contains("planted"), "{error}");
    }
    let uri = "http://user:planted@a.example/x?key=value".parse().unwrap();
    assert_eq!(shown(&Method::GET, &uri, true), "GET http://a.example/x?key=value");
}

#[tokio::test]
async fn no_request_is_hidden_in_another_one() {
    let mut origin = origin(HELLO).await;
    let port = origin.port;
    let proxy = setup(&rule(port, "methods = ['POST']\npaths = ['/ok']")).serve().await;
    let hidden = format!("GET http://a.example:{port}/hidden HTTP/1.1\r\nHost: x\r\n\r\n");
    let length = hidden.len();
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n".to_owned(),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: 0, {length}\r\n"),
        "Content-Length: +5\r\n".to_owned(),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding: gzip, chunked\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Transfer-Encoding:\x0bchunked\r\n".to_owned(),
        "X: y\r\n Transfer-Encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        "Content-Length: 0\r\nConnection: content-length\r\n".to_owned(),
    ] {
        let request = format!(
            "POST http://a.example:{port}/ok HTTP/1.1\r\nHost: x\r\n{headers}\r\n0\r\n\r\n{hidden}"
        );
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 16];
        timeout(DEADLINE, stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        match answer.starts_with("HTTP/1.1 200") {
            // One request was sent, with one length, and nothing of the bytes after it.
            true => {
                drop(stream);
                let asked = origin.next().await;
                assert_eq!(asked.matches("HTTP/1.1").count(), 1, "{headers}: {asked}");
                assert!(!asked.contains("hidden"), "{headers}: {asked}");
                let framed = ["content-length:", "transfer-encoding:"];
                let framed = framed.iter().filter(|name| asked.contains(**name)).count();
                assert!(framed <= 1, "{headers}: {asked}");
            }
            false => assert!(answer.starts_with("HTTP/1.1 400"), "{headers}: {answer}"),
        }
    }
    assert!(origin.has_none());
}

#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let mut origin = origin(HELLO).await;
    let port = origin.port;
    let rules = format!("[[rules]]\nhosts = ['*']\nports = [{port}]\n");
    for names in [
        vec!["127.0.0.1"],
        vec!["8.8.8.8", "127.0.0.1"],
        vec!["169.254.169.254"],
        vec!["10.0.0.1"],
        vec!["::ffff:127.0.0.1"],
        vec!["64:ff9b::7f00:1"],
        vec!["2002:7f00:1::"],
        vec!["::1"],
        vec!["fe80::1"],
        vec!["224.0.0.1"],
    ] {
        let proxy = Setup { names: vec![names.clone()], ..setup(&rules) }.serve().await;
        for line in ["GET http://a.example:PORT/", "CONNECT a.example:PORT"] {
            let line = line.replace("PORT", &port.to_string());
            let answer = proxy.send(&format!("{line} HTTP/1.1\r\nConnection: close\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{names:?}: {answer}");
            assert!(
                answer.contains("x-cove-refused: address: `a.example` resolves to"),
                "{answer}"
            );
        }
    }
    // Literals in every notation.
    let proxy = setup(&rules).serve().await;
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "0177.1", "[::1]", "[::ffff:7f00:1]", "0"] {
        let answer = proxy.get(&format!("http://{host}:{port}/")).await;
        assert!(answer.contains("x-cove-refused: address: "), "{host}: {answer}");
    }
    assert_eq!(proxy.script.0.lock().1, 0);
    assert!(origin.has_none());
    // A name is resolved once, and the connection goes to the checked address.
    let names = vec![vec!["127.0.0.1"], vec!["127.0.0.2"]];
    let proxy = Setup { names, ..setup(&rule(port, "")) }.serve().await;
    let answer = proxy.get(&format!("http://a.example:{port}/")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(proxy.script.0.lock().1, 1);
    drop(origin.next().await);
}

#[tokio::test]
async fn limits_are_kept() {
    let mut origin = origin(HELLO).await;
    let url = format!("http://a.example:{}/", origin.port);
    let limits = HttpLimits { connections: 0, requests: 2, bytes: 0 };
    let proxy = Setup { limits, ..setup(&rule(origin.port, "")) }.serve().await;
    for _ in 0..2 {
        assert!(proxy.get(&url).await.starts_with("HTTP/1.1 200"));
        drop(origin.next().await);
    }
    let answer = proxy.get(&url).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("x-cove-refused: requests: "), "{answer}");

    let limits = HttpLimits { connections: 0, requests: 0, bytes: 7 };
    let proxy = Setup { limits, ..setup(&rule(origin.port, "")) }.serve().await;
    assert!(proxy.get(&url).await.ends_with("hello"));
    let answer = proxy.get(&url).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("x-cove-refused: bytes: "), "{answer}");
    let long = format!("POST {url} HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
    assert!(proxy.send(&long).await.starts_with("HTTP/1.1 429"));
}

#[tokio::test]
async fn a_body_of_unknown_length_breaks_off_at_the_limit() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n\
        5\r\nworld\r\n0\r\n\r\n";
    let origin = origin(chunks).await;
    let url = format!("http://a.example:{}/", origin.port);
    let limits = HttpLimits { connections: 0, requests: 0, bytes: 7 };
    let proxy = Setup { limits, ..setup(&rule(origin.port, "")) }.serve().await;
    let answer = proxy.get(&url).await;
    assert!(!answer.contains("world") && !answer.contains("\r\n0\r\n"), "{answer}");
    let (outcome, _, error, ..) = proxy.record().await;
    assert_eq!(outcome, AuditOutcome::Refused);
    assert!(error.starts_with("bytes"), "{error}");
    assert!(proxy.get(&url).await.contains("x-cove-refused: bytes: "));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_the_servers_fault() {
    let origin = origin(HELLO).await;
    let limits = HttpLimits { connections: 0, requests: 0, bytes: 7 };
    for (chunks, status, error) in [
        ("0x5\r\nhello\r\n0\r\n\r\n", 400, "the body ended early"),
        ("5\r\nhelloXX0\r\n\r\n", 400, "the body ended early"),
        ("ffffffffffffffff1\r\nhello\r\n0\r\n\r\n", 400, "the body ended early"),
        ("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n", 429, "bytes: the grant's limit is reached"),
    ] {
        let proxy = Setup { limits, ..setup(&rule(origin.port, "")) }.serve().await;
        let head = format!("POST http://a.example:{}/ HTTP/1.1", origin.port);
        let head = format!("{head}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
        let answer = proxy.send(&format!("{head}{chunks}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{chunks:?}: {answer}");
        assert_eq!(proxy.record().await.2, error, "{chunks:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_said() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let proxy = setup(&rule(free, "")).serve().await;
    let answer = proxy.get(&format!("http://a.example:{free}/")).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("x-cove-refused: connect to `a.example`"), "{answer}");
    assert_eq!(proxy.record().await.0, AuditOutcome::Failed);
    let mut origin = origin("220 mail ready\r\n").await;
    let proxy = setup(&rule(origin.port, "")).serve().await;
    let answer = proxy.get(&format!("http://a.example:{}/", origin.port)).await;
    assert!(answer.starts_with("HTTP/1.1 502") && !answer.contains("mail"), "{answer}");
    drop(origin.next().await);
}

#[tokio::test]
async fn an_answer_with_two_lengths_is_none() {
    let two = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n";
    let origin = origin(two).await;
    let proxy = setup(&rule(origin.port, "")).serve().await;
    for method in ["GET", "HEAD"] {
        let line = format!("{method} http://a.example:{}/ HTTP/1.1", origin.port);
        let answer = proxy.send(&format!("{line}\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{method}: {answer}");
    }
}

/// Opens a tunnel and returns its socket, once it is established.
async fn tunnel(proxy: &Served, host: &str, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let byte = timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap();
        answer.push(byte);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stream
}

async fn rest_of(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("an end").ok();
    rest
}

#[tokio::test]
async fn a_tunnel_passes_bytes_both_ways() {
    let mut origin = origin("answer").await;
    let proxy = setup(&rule(origin.port, "")).serve().await;
    let mut stream = tunnel(&proxy, "a.example", origin.port).await;
    stream.write_all(b"question\r\n\r\n").await.unwrap();
    let mut answer = [0; 6];
    timeout(DEADLINE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"answer");
    drop(stream);
    assert_eq!(origin.next().await, "question\r\n\r\n");
    let (outcome, text, _, out, back) = proxy.record().await;
    assert_eq!((outcome, out, back), (AuditOutcome::Done, 12, 6));
    assert_eq!(text, format!("CONNECT a.example:{}", origin.port));

    let limits = HttpLimits { connections: 0, requests: 0, bytes: 12 };
    let proxy = Setup { limits, ..setup(&rule(origin.port, "")) }.serve().await;
    let mut stream = tunnel(&proxy, "a.example", origin.port).await;
    stream.write_all(b"question\r\n\r\n").await.unwrap();
    assert!(!rest_of(stream).await.starts_with(b"answer"));
    assert_eq!(proxy.record().await.0, AuditOutcome::Refused);
}

#[tokio::test]
async fn tls_in_a_tunnel_is_for_its_host() {
    let mut origin = origin("").await;
    let port = origin.port;
    let proxy = setup(&rule(port, "")).serve().await;
    for (name, error) in [
        ("b.example", "tls: it is for another host"),
        ("a.example.evil.example", "tls: it is for another host"),
        ("", "tls: the first message is malformed"),
    ] {
        let mut stream = tunnel(&proxy, "a.example", port).await;
        // In small parts, as an attacker might send it.
        for piece in hello::tests::hello(name).chunks(20) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(rest_of(stream).await, [21, 3, 3, 0, 2, 2, 49], "{name}");
        let (outcome, _, why, out, _) = proxy.record().await;
        assert_eq!((outcome, why.as_str(), out), (AuditOutcome::Refused, error, 0));
        assert_eq!(origin.next().await, "", "{name}");
    }
    let mut stream = tunnel(&proxy, "A.example", port).await;
    let hello = [&hello::tests::hello("a.EXAMPLE")[..], b"\r\n\r\n"].concat();
    stream.write_all(&hello).await.unwrap();
    drop(rest_of(stream));
    assert!(origin.next().await.contains("a.EXAMPLE"));
}

/// A TLS server for `localhost`, and the roots that trust it.
async fn tls_origin(scratch: &Scratch, answer: &'static str) -> (Origin, TlsRoots) {
    let certificate = Certificate::new(scratch);
    let chain = CertificateDer::pem_file_iter(&certificate.certificate).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    let config = ServerConfig::builder_with_provider(node::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, got) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                tell.send(converse(stream, answer).await).ok();
            }
        }
    });
    (Origin { port, got }, TlsRoots::File(certificate.certificate))
}

#[tokio::test]
async fn tls_is_spoken_outside_for_those_who_cannot_add_a_key() {
    let scratch = Scratch::new();
    let (mut origin, roots) = tls_origin(&scratch, HELLO).await;
    let port = origin.port;
    let rules = rule(port, "tls = true\n[rules.headers.authorization]\nsecret = 'key'");
    // No secret is sent to a server with an untrusted certificate, or with one for another name.
    let stranger = setup(&rules).serve().await;
    let proxy = Setup { roots, ..setup(&rules) }.serve().await;
    for (proxy, host) in [(&stranger, "localhost"), (&proxy, "a.example")] {
        let answer = proxy.get(&format!("http://{host}:{port}/")).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.contains("x-cove-refused: agree on TLS with"), "{answer}");
    }
    let answer = proxy.get(&format!("http://localhost:{port}/")).await;
    assert!(answer.ends_with("hello") && !answer.contains("canary"), "{answer}");
    let asked = origin.next().await;
    assert!(asked.contains("authorization: Bearer planted-canary\r\n"), "{asked}");
}

#[tokio::test]
async fn a_real_client_speaks_tls_through_a_tunnel() {
    let scratch = Scratch::new();
    let (mut origin, roots) = tls_origin(&scratch, "answer").await;
    let port = origin.port;
    let proxy = setup(&rule(port, "")).serve().await;
    let connector = node::client::connector(&roots).unwrap();
    // TLS has no server name for an address.
    for host in ["localhost", "127.0.0.1"] {
        let stream = tunnel(&proxy, host, port).await;
        let name = ServerName::try_from(host).unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        stream.write_all(b"question\r\n\r\n").await.unwrap();
        let mut answer = [0; 6];
        timeout(DEADLINE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"answer", "{host}");
        drop(stream);
        assert_eq!(origin.next().await, "question\r\n\r\n");
    }
    let stream = tunnel(&proxy, "a.example", port).await;
    let name = ServerName::try_from("localhost").unwrap();
    let error = connector.connect(name, stream).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    assert!(origin.has_none());
}
