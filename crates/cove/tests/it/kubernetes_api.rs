//! A stand-in for the Kubernetes API server: HTTPS, service account tokens, and one Node object,
//! with get and watch as in the real server, in chunks with arbitrary boundaries.
//!
//! # References
//! - <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

use std::io::{BufRead as _, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use testkit::{Certificate, until};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto};

use crate::support::SOON;

/// Name of the only node.
pub(crate) const MACHINE: &str = "worker-7.internal";
/// Longest pause of a client within a request.
const READ_MAX: Duration = Duration::from_secs(60);

type TlsStream = StreamOwned<ServerConnection, TcpStream>;

/// The API server, which stops when the value is dropped.
pub(crate) struct ApiServer {
    address: SocketAddr,
    shared: Arc<ApiShared>,
    accepting: Option<JoinHandle<()>>,
}

struct ApiShared {
    tls: Arc<ServerConfig>,
    state: Mutex<ApiState>,
    changed: Condvar,
}

#[derive(Clone)]
struct ApiState {
    /// Version of the object.
    version: u64,
    spec: Value,
    is_there: bool,
    token: String,
    is_forbidden: bool,
    /// Number of times that all watches were ended in each way.
    cut: u64,
    expired: u64,
    /// Number of watches started.
    watched: u64,
    stopped: bool,
}

impl ApiServer {
    pub(crate) fn start(certificate: &Certificate, token: &str) -> ApiServer {
        let chain = CertificateDer::pem_file_iter(&certificate.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain.map(Result::unwrap).collect(), key);
        let state = ApiState {
            version: 41,
            spec: json!({"podCIDR": "10.244.7.0/24", "providerID": "kind://worker-7"}),
            is_there: true,
            token: token.to_owned(),
            is_forbidden: false,
            cut: 0,
            expired: 0,
            watched: 0,
            stopped: false,
        };
        let shared = Arc::new(ApiShared {
            tls: Arc::new(config.unwrap()),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming() {
                    if shared.state.lock().stopped {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    // The client may disconnect at any time.
                    thread::spawn(move || drop(shared.serve(stream.unwrap())));
                }
            }
        });
        ApiServer { address, shared, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    fn change(&self, change: impl FnOnce(&mut ApiState)) {
        change(&mut self.shared.state.lock());
        self.shared.changed.notify_all();
    }

    /// `kubectl cordon`, which adds a taint as well, and `kubectl uncordon`.
    pub(crate) fn cordon(&self, is_cordoned: bool) {
        self.change(|it| {
            it.version += 1;
            it.spec["unschedulable"] = match is_cordoned {
                true => json!(true),
                false => Value::Null,
            };
        });
    }

    /// `kubectl taint nodes`.
    pub(crate) fn taint(&self, keys: &[&str]) {
        let taint = |key: &&str| json!({"key": key, "effect": "NoSchedule"});
        self.change(|it| {
            it.version += 1;
            it.spec["taints"] = keys.iter().map(taint).collect();
        });
    }

    /// `kubectl delete node`, and the registration by a returning kubelet.
    pub(crate) fn remove(&self, is_removed: bool) {
        self.change(|it| {
            it.version += 1;
            it.is_there = !is_removed;
        });
    }

    /// Accepts only this token from now on.
    pub(crate) fn honour(&self, token: &str) {
        self.change(|it| token.clone_into(&mut it.token));
    }

    pub(crate) fn forbid(&self, is_forbidden: bool) {
        self.change(|it| it.is_forbidden = is_forbidden);
    }

    /// Breaks all watches in the middle of a line, as a restarting load balancer does.
    pub(crate) fn cut(&self) {
        self.change(|it| it.cut += 1);
    }

    /// Ends all watches because their resource version has expired.
    pub(crate) fn expire(&self) {
        self.change(|it| it.expired += 1);
    }

    /// Number of watches started.
    pub(crate) fn watches(&self) -> u64 {
        self.shared.state.lock().watched
    }

    /// Waits until more than `before` watches have started.
    pub(crate) fn wait_for_watch_beyond(&self, before: u64) {
        until("another watch", SOON, || match self.watches() {
            now if now > before => Ok(()),
            now => Err(now.to_string()),
        });
    }
}

impl ApiShared {
    /// Answers one request: clients of this connection ask to close it.
    fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        socket.set_read_timeout(Some(READ_MAX))?;
        let connection = ServerConnection::new(Arc::clone(&self.tls)).unwrap();
        let mut reader = BufReader::new(StreamOwned::new(connection, socket));
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let mut stream = reader.into_inner();
        let Some(first) = head.first() else { return Ok(()) };
        let target = first.strip_prefix("GET ").and_then(|it| it.strip_suffix(" HTTP/1.1"));
        let (target, state) = (target.unwrap_or_default(), self.state.lock().clone());
        let bearer = format!("authorization: Bearer {}", state.token);
        if !head.iter().any(|line| line.eq_ignore_ascii_case(&bearer)) {
            return answer(&mut stream, &status(401, "Unauthorized"));
        }
        if state.is_forbidden {
            let message = format!(
                "nodes \"{MACHINE}\" is forbidden: User \"system:serviceaccount:cove:cove\" cannot \
                 get resource \"nodes\" in API group \"\" at the cluster scope"
            );
            return answer(&mut stream, &status(403, &message));
        }
        let watched = format!("watch=true&fieldSelector=metadata.name%3D{MACHINE}&timeoutSeconds=");
        match target.strip_prefix("/api/v1/nodes").unwrap_or_default() {
            object if object == format!("/{MACHINE}") => {
                let found = match state.is_there {
                    true => object_of(&state),
                    false => status(404, &format!("nodes \"{MACHINE}\" not found")),
                };
                answer(&mut stream, &found)
            }
            query if query.strip_prefix('?').is_some_and(|it| it.starts_with(&watched)) => {
                self.watch(stream)
            }
            _ => answer(&mut stream, &status(404, "the server could not find the resource")),
        }
    }

    /// Sends the current object and each change.
    fn watch(&self, mut stream: TlsStream) -> std::io::Result<()> {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
              transfer-encoding: chunked\r\n\r\n",
        )?;
        stream.flush()?;
        let mut last: Option<ApiState> = None;
        let mut state = self.state.lock();
        state.watched += 1;
        let (cut, expired) = (state.cut, state.expired);
        loop {
            let now = state.clone();
            drop(state);
            if now.stopped {
                return Ok(());
            }
            if now.cut != cut {
                // The change itself is not sent.
                return chunk(&mut stream, b"{\"type\":\"MODIFIED\",\"obj");
            }
            if now.expired != expired {
                let error = json!({"type": "ERROR", "object": status(410, "too old")});
                event(&mut stream, &error)?;
                return chunk(&mut stream, b"");
            }
            let was_there = last.as_ref().is_some_and(|last| last.is_there);
            if last.as_ref().is_none_or(|last| last.version != now.version) {
                let kind = match (was_there, now.is_there) {
                    (false, true) => Some("ADDED"),
                    (true, true) => Some("MODIFIED"),
                    (true, false) => Some("DELETED"),
                    (false, false) => None,
                };
                if let Some(kind) = kind {
                    event(&mut stream, &json!({"type": kind, "object": object_of(&now)}))?;
                }
                let version = json!({"resourceVersion": now.version.to_string()});
                let bookmark = json!({"kind": "Node", "apiVersion": "v1", "metadata": version});
                event(&mut stream, &json!({"type": "BOOKMARK", "object": bookmark}))?;
            }
            last = Some(now.clone());
            state = self.state.lock();
            while !state.stopped
                && (state.version, state.cut, state.expired) == (now.version, now.cut, now.expired)
            {
                self.changed.wait(&mut state);
            }
        }
    }
}

/// The object, with many fields that Cove does not use.
fn object_of(state: &ApiState) -> Value {
    let image = |index: u32| json!({"names": [format!("example/{index}")], "sizeBytes": index});
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": MACHINE,
            "resourceVersion": state.version.to_string(),
            "labels": {"kubernetes.io/os": "linux", "cove/node": "true"},
        },
        "spec": state.spec,
        "status": {"images": (0..50).map(image).collect::<Vec<_>>()},
    })
}

fn status(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code,
    })
}

fn answer(stream: &mut TlsStream, body: &Value) -> std::io::Result<()> {
    let code = body["code"].as_u64().unwrap_or(200);
    let body = format!("{body}\n");
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )?;
    close(stream)
}

/// Writes a line in chunks that do not follow its content.
fn event(stream: &mut TlsStream, event: &Value) -> std::io::Result<()> {
    let line = format!("{event}\n");
    let (first, second) = line.as_bytes().split_at(line.len() / 3);
    chunk(stream, first)?;
    chunk(stream, second)
}

fn chunk(stream: &mut TlsStream, bytes: &[u8]) -> std::io::Result<()> {
    write!(stream, "{:x}\r\n", bytes.len())?;
    stream.write_all(bytes)?;
    stream.write_all(b"\r\n")?;
    stream.flush()
}

fn close(stream: &mut TlsStream) -> std::io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.change(|it| it.stopped = true);
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}
