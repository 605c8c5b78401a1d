//! After the server's lease has ended nothing is sent outside, and callers receive an error.

use node::clock;
use node::cluster::ServingLease;

use super::*;

/// A lease that is renewed until the test ends it.
struct KeptLease {
    lease: ServingLease,
    renewing: JoinHandle<()>,
}

impl KeptLease {
    fn new() -> KeptLease {
        let lease = ServingLease::of(Duration::from_millis(1250));
        KeptLease { renewing: renew(&lease), lease }
    }

    async fn end(&self) {
        self.renewing.abort();
        while self.lease.holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn go_on(&mut self) {
        self.renewing = renew(&self.lease);
    }
}

fn renew(lease: &ServingLease) -> JoinHandle<()> {
    let lease = lease.clone();
    lease.renewed(clock::boot_ms());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            lease.renewed(clock::boot_ms());
        }
    })
}

fn fenced(rules: &str, lease: &KeptLease) -> Setup {
    Setup { fence: EffectFence::new(lease.lease.clone()), ..setup(rules) }
}

/// A server that records everything it receives, and sends no response.
struct Sink {
    port: u16,
    got: Arc<Mutex<Vec<u8>>>,
    ended: tokio::sync::mpsc::UnboundedReceiver<()>,
}

async fn sink() -> Sink {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (got, (tell, ended)) =
        (Arc::<Mutex<Vec<u8>>>::default(), tokio::sync::mpsc::unbounded_channel());
    let kept = Arc::clone(&got);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut piece).await {
                kept.lock().extend_from_slice(&piece[..count]);
            }
            tell.send(()).ok();
        }
    });
    Sink { port, got, ended }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.got.lock()).into_owned()
    }

    async fn until(&self, part: &str) {
        let waiting = async {
            while !self.text().contains(part) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, waiting).await.expect("bytes outside");
    }
}

fn internal(port: u16) -> String {
    format!(
        "[[rules]]\nhosts = ['api.example']\nports = [{port}]\ninternal = ['127.0.0.0/8']\n\
         methods = ['GET', 'POST', 'CONNECT']\n"
    )
}

#[tokio::test]
async fn requests_wait_for_the_lease_and_go_on_with_it() {
    let mut origin = origin("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let mut lease = KeptLease::new();
    let served = fenced(&internal(origin.port), &lease).serve().await;
    let url = format!("http://api.example:{}/one", origin.port);
    assert!(served.get(&url).await.ends_with("ok"));
    assert!(origin.next().await.starts_with("GET /one "));
    served.record().await;

    lease.end().await;
    for _ in 0..3 {
        let answer = served.get(&url).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(
            answer.contains("retry-after: 1\r\n") && answer.contains("lost its lease"),
            "{answer}"
        );
        let (outcome, _, error, out, _) = served.record().await;
        assert_eq!((outcome, out), (AuditOutcome::Refused, 0), "{error}");
    }
    assert!(origin.has_none());

    lease.go_on();
    assert!(served.get(&url).await.ends_with("ok"));
    assert!(origin.next().await.starts_with("GET /one "));
    assert!(origin.has_none(), "what was refused is not sent later");
}

#[tokio::test]
async fn a_body_breaks_off_with_the_lease() {
    let mut sink = sink().await;
    let lease = KeptLease::new();
    let served = fenced(&internal(sink.port), &lease).serve().await;
    let mut client = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST http://api.example:{}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Length: 10\r\n\r\nearly",
        sink.port
    );
    client.write_all(head.as_bytes()).await.unwrap();
    sink.until("early").await;
    lease.end().await;
    client.write_all(b"later").await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, client.read_to_end(&mut answer)).await.expect("an end").ok();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    timeout(DEADLINE, sink.ended.recv()).await.expect("the end of the connection outside");
    assert!(!sink.text().contains("later"), "{}", sink.text());
}

#[tokio::test]
async fn an_answer_breaks_off_with_the_lease() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let lease = KeptLease::new();
    let served = fenced(&internal(port), &lease).serve().await;
    let mut client = TcpStream::connect(served.address).await.unwrap();
    let head = format!("GET http://api.example:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.read_u8().await.unwrap();
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nearly").await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"early") {
        assert!(timeout(DEADLINE, client.read_buf(&mut got)).await.unwrap().unwrap() > 0);
    }
    lease.end().await;
    server.write_all(b"later").await.unwrap();
    timeout(DEADLINE, client.read_to_end(&mut got)).await.expect("an end").ok();
    assert!(got.ends_with(b"early"), "{}", String::from_utf8_lossy(&got));
}

#[tokio::test]
async fn a_tunnel_breaks_with_its_first_byte_after_the_lease() {
    let mut sink = sink().await;
    let mut lease = KeptLease::new();
    let served = fenced(&internal(sink.port), &lease).serve().await;
    let connect = format!(
        "CONNECT api.example:{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        sink.port
    );
    let mut client = TcpStream::connect(served.address).await.unwrap();
    client.write_all(connect.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(timeout(DEADLINE, client.read_buf(&mut head)).await.unwrap().unwrap() > 0);
    }
    client.write_all(b"early").await.unwrap();
    sink.until("early").await;
    lease.end().await;
    client.write_all(b"later").await.unwrap();
    timeout(DEADLINE, client.read_to_end(&mut head)).await.expect("an end").ok();
    timeout(DEADLINE, sink.ended.recv()).await.expect("the end of the tunnel");
    let (outcome, _, error, ..) = served.record().await;
    assert!(outcome == AuditOutcome::Refused && error.contains("lost its lease"), "{error}");
    let refused = served.send(&connect).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    lease.go_on();
    assert_eq!(sink.text(), "early");
}

#[tokio::test]
async fn a_request_says_whose_it_is_only_where_a_rule_wants_it() {
    let rule = |host: &str, port: u16, more: &str| {
        format!(
            "[[rules]]\nhosts = ['{host}']\nports = [{port}]\ninternal = ['127.0.0.0/8']\n{more}\n"
        )
    };
    let mut origin = origin("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let rules = rule("own.example", origin.port, "session_headers = true")
        + &rule("other.example", origin.port, "");
    let holder = GrantHolder::new("ses_1", "team").at_epoch(Some(7));
    let served = Setup { holder, ..setup(&rules) }.serve().await;
    let forged = "cove-session: ses_2\r\ncove-epoch: 9\r\nCove_Epoch: 9\r\n";
    for (host, expected) in [("own.example", true), ("other.example", false)] {
        let port = origin.port;
        let request = format!(
            "GET http://{host}:{port}/ HTTP/1.1\r\nHost: x\r\n{forged}Connection: close\r\n\r\n"
        );
        served.send(&request).await;
        let sent = origin.next().await.to_lowercase();
        let said = sent.contains("cove-session: ses_1\r\n") && sent.contains("cove-epoch: 7\r\n");
        assert_eq!(said, expected, "{sent}");
        assert!(!sent.contains("ses_2") && !sent.contains(": 9\r\n"), "{sent}");
    }
    // In a tunnel they would be invisible.
    let tunnel = format!(
        "CONNECT own.example:{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        origin.port
    );
    assert!(served.send(&tunnel).await.starts_with("HTTP/1.1 403 "));
}
