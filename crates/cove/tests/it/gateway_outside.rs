//! External servers for `http` grants in tests: they record every received byte, and respond as
//! badly as requested; and names whose addresses change.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use testkit::{Certificate, until};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, ServerConnection, StreamOwned};

use crate::support::SOON;

/// Address of the external servers: on the machine itself, but not the sandbox's own loopback
/// address.
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Prefix of the record of a connection with more than one request.
const MORE: &str = "MORE THAN ONE: ";

/// Prefix of a request that broke off.
pub(crate) const CUT: &str = "CUT: ";

/// Silence after which a client counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Response after a response, which was not requested.
const FORGED: &str = "HTTP/1.1 299 Forged\r\ncontent-length: 6\r\n\r\nforged";

/// Text before [`FORGED`] in the response at a path, and the resulting status in the sandbox for
/// `GET` and `HEAD`; 0 for a response that breaks off.
pub(crate) const BAD: &[(&str, &str, [u16; 2])] = &[
    ("/behind", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", [200, 200]),
    ("/nothing", "HTTP/1.1 204 No Content\r\ncontent-length: 83\r\n\r\n", [204, 204]),
    ("/unchanged", "HTTP/1.1 304 Not Modified\r\n\r\n", [304, 304]),
    (
        "/both",
        "HTTP/1.1 200 OK\r\ncontent-length: 90\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        [200, 200],
    ),
    ("/two", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 80\r\n\r\nok", [502, 502]),
    (
        "/fold",
        "HTTP/1.1 200 OK\r\nx: y\r\n content-length: 80\r\ncontent-length: 2\r\n\r\nok",
        [502, 502],
    ),
    ("/lines", "HTTP/1.1 200 OK\ncontent-length: 2\n\nok", [200, 200]),
    (
        "/returns",
        "HTTP/1.1 200 OK\r\nx: y\rcontent-length: 80\r\ncontent-length: 2\r\n\r\nok",
        [502, 502],
    ),
    (
        "/chunks",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\nok\r\n0\r\n\r\n",
        [0, 200],
    ),
    (
        "/huge",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff2\r\nok",
        [0, 200],
    ),
    (
        "/switch",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        [502, 502],
    ),
    // Only the forged response is valid here.
    ("/early", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n", [299, 299]),
    ("/old", "HTTP/0.9 200 OK\r\n\r\n", [502, 502]),
];

/// Server that records received data.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    tls: Option<Arc<ServerConfig>>,
    /// Complete data of each connection.
    seen: Mutex<Vec<String>>,
    open: AtomicUsize,
    stopped: AtomicBool,
}

impl Target {
    pub(crate) fn start() -> Target {
        Target::start_as(None)
    }

    /// Starts such a server with TLS and this certificate.
    pub(crate) fn start_with(certificate: &Certificate) -> Target {
        let chain = CertificateDer::pem_file_iter(&certificate.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(chain.map(Result::unwrap).collect(), key);
        Target::start_as(Some(Arc::new(config.unwrap())))
    }

    fn start_as(tls: Option<Arc<ServerConfig>>) -> Target {
        let listener = TcpListener::bind((OUTSIDE, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, open, stopped) = Default::default();
        let shared = Arc::new(Shared { tls, seen, open, stopped });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming() {
                    if shared.stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.open.fetch_add(1, Ordering::SeqCst);
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        let seen = shared.converse(stream.unwrap());
                        shared.seen.lock().push(String::from_utf8_lossy(&seen).into_owned());
                        shared.open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            }
        });
        Target { address, shared, accepting: Some(accepting) }
    }

    /// Returns the data since the last call, after all connections have ended: of each connection
    /// that sent any.
    pub(crate) fn seen(&self) -> Vec<String> {
        until("the end of all connections", SOON, || {
            match self.shared.open.load(Ordering::SeqCst) {
                0 => Ok(()),
                open => Err(format!("{open} are open")),
            }
        });
        let seen = std::mem::take(&mut *self.shared.seen.lock());
        seen.into_iter().filter(|sent| !sent.is_empty()).collect()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.accepting.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn converse(&self, stream: TcpStream) -> Vec<u8> {
        stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
        match &self.tls {
            Some(tls) => {
                let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                converse(StreamOwned::new(connection, stream.try_clone().unwrap()), &stream)
            }
            None => converse(&stream, &stream),
        }
    }
}

/// Reads a request, responds over a socket, and reads to the end; returns all received data.
fn converse(mut stream: impl Read + Write, socket: &TcpStream) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !is_whole(&seen) {
        if !stream.read(&mut byte).is_ok_and(|count| count > 0) {
            return if seen.is_empty() { seen } else { [CUT.as_bytes(), &seen].concat() };
        }
        seen.push(byte[0]);
    }
    // The client may have closed the connection.
    stream.write_all(answer(&String::from_utf8_lossy(&seen)).as_bytes()).ok();
    stream.flush().ok();
    socket.shutdown(Shutdown::Write).ok();
    let mut more = Vec::new();
    stream.read_to_end(&mut more).ok();
    match more.is_empty() {
        true => seen,
        false => [MORE.as_bytes(), &seen, &more].concat(),
    }
}

/// Returns whether a request has arrived with its body.
fn is_whole(seen: &[u8]) -> bool {
    let text = String::from_utf8_lossy(seen);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    if head.contains("\r\ntransfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() >= length.parse().unwrap())
}

fn answer(request: &str) -> String {
    let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
    if let Some((_, bad, _)) = BAD.iter().find(|(bad, ..)| *bad == path) {
        return format!("{bad}{FORGED}");
    }
    let header =
        request.lines().find(|line| line.starts_with("authorization: ")).unwrap_or_default();
    let mut chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let whole = |more: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\n{more}content-length: {}\r\n\r\n{body}", body.len())
    };
    match path.rsplit('/').next().unwrap_or_default() {
        "echo" => whole("", request),
        "header" => whole(&format!("x-echo: {header}\r\nx-cove-refused: forged\r\n"), "here"),
        "pieces" => {
            for byte in header.chars() {
                chunked.push_str(&format!("1\r\n{byte}\r\n"));
            }
            chunked + "0\r\n\r\n"
        }
        _ => whole("", &format!("here is {path}")),
    }
}

/// DNS server. Each name has a list of responses, the last of which is repeated.
pub(crate) struct Names {
    pub(crate) address: Ipv4Addr,
    lookups: Arc<Mutex<BTreeMap<String, usize>>>,
    stopped: Arc<AtomicBool>,
    answering: Option<JoinHandle<()>>,
}

impl Names {
    /// Responds at port 53 of an unused address.
    pub(crate) fn start(table: &[(&str, &[&[&str]])]) -> Names {
        static STARTED: AtomicU8 = AtomicU8::new(53);
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, STARTED.fetch_add(1, Ordering::Relaxed), high, low);
        let socket = UdpSocket::bind((address, 53)).unwrap();
        let parse = |answer: &&[&str]| answer.iter().map(|it| it.parse().unwrap()).collect();
        let table: BTreeMap<String, Vec<Vec<IpAddr>>> = table
            .iter()
            .map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect()))
            .collect();
        let counts: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let stopped = Arc::new(AtomicBool::new(false));
        let answering = thread::spawn({
            let (counts, stopped) = (Arc::clone(&counts), Arc::clone(&stopped));
            move || {
                let mut buffer = [0; 512];
                while let Ok((count, client)) = socket.recv_from(&mut buffer) {
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    let answer = name_answer(&buffer[..count], &table, &mut counts.lock());
                    socket.send_to(&answer, client).ok();
                }
            }
        });
        Names { address, lookups: counts, stopped, answering: Some(answering) }
    }

    /// Returns how many times a name was looked up.
    pub(crate) fn lookups(&self, name: &str) -> usize {
        self.lookups.lock().get(name).copied().unwrap_or(0)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let socket = UdpSocket::bind((self.address, 0)).unwrap();
        socket.send_to(&[0], (self.address, 53)).unwrap();
        self.answering.take().map(JoinHandle::join);
    }
}

/// Returns the DNS response to a DNS query (RFC 1035 §4).
fn name_answer(
    query: &[u8],
    table: &BTreeMap<String, Vec<Vec<IpAddr>>>,
    counts: &mut BTreeMap<String, usize>,
) -> Vec<u8> {
    /// Type of an IPv4 address.
    const A: [u8; 2] = [0, 1];
    const AAAA: [u8; 2] = [0, 28];
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).to_ascii_lowercase());
        at += length + 1;
    }
    let (name, kind) = (labels.join("."), &query[at + 1..at + 3]);
    let turn = counts.entry(name.clone()).or_default();
    let answers =
        table.get(&name).map_or(&[][..], |answers| &answers[(*turn).min(answers.len() - 1)]);
    // Both types are requested at the same time; one of them counts.
    *turn += usize::from(kind == A);
    let mut records = Vec::new();
    for address in answers {
        let bytes = match address {
            IpAddr::V4(address) if kind == A => address.octets().to_vec(),
            IpAddr::V6(address) if kind == AAAA => address.octets().to_vec(),
            _ => continue,
        };
        let length = u8::try_from(bytes.len()).unwrap();
        let head = [0xc0, 12, kind[0], kind[1], 0, 1, 0, 0, 0, 0, 0, length];
        records.push([&head[..], &bytes].concat());
    }
    let count = u8::try_from(records.len()).unwrap();
    let flags = [0x81, if table.contains_key(&name) { 0x80 } else { 0x83 }];
    let head = [&query[..2], &flags, &[0, 1, 0, count, 0, 0, 0, 0]].concat();
    [head, query[12..at + 5].to_vec(), records.concat()].concat()
}
