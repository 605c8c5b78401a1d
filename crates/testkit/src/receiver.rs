//! HTTP server that records its requests, used as the receiver of webhooks.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::until;

/// Largest request that a test accepts.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Time limit for the arrival of requests.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Request that a [`Receiver`] received.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Method and path.
    pub line: String,
    /// Headers with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body, unchanged.
    pub body: Vec<u8>,
}

impl Delivered {
    /// Returns a header that must be present.
    ///
    /// # Panics
    /// If it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map_or_else(|| panic!("no {name} in {self:?}"), |(_, value)| value)
    }

    /// Returns the body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Returns the response to the request with this number, from 0.
type Answer = dyn Fn(usize) -> &'static str + Send + Sync;

/// HTTP server that records its requests.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    delivered: Mutex<Vec<Delivered>>,
    answer: Box<Answer>,
    /// Number of connections, with or without a request.
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// Successful response of a receiver.
pub const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";

impl Receiver {
    /// Starts a receiver on a free port.
    pub fn start(answer: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Receiver {
        Receiver::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), answer)
    }

    /// Starts a receiver on this address.
    ///
    /// # Panics
    /// If the address is in use.
    pub fn start_at(
        address: SocketAddr,
        answer: impl Fn(usize) -> &'static str + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind(address).expect("bind the receiver");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            delivered: Mutex::default(),
            answer: Box::new(answer),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                while let Ok((stream, _)) = listener.accept() {
                    if shared.stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.take(stream));
                }
            }
        });
        Receiver { address, shared, accepting: Some(accepting) }
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for senders.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Returns all requests so far.
    #[must_use]
    pub fn delivered(&self) -> Vec<Delivered> {
        self.shared.delivered.lock().clone()
    }

    /// Returns the number of connections, with or without a request.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits for `count` requests.
    ///
    /// # Panics
    /// If they do not arrive in time.
    pub fn wait_for(&self, count: usize) -> Vec<Delivered> {
        until(&format!("{count} deliveries"), WAIT_MAX, || {
            let delivered = self.delivered();
            if delivered.len() >= count { Ok(delivered) } else { Err(format!("{delivered:?}")) }
        })
    }
}

impl Shared {
    /// Serves the requests of one connection.
    fn take(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = receive(&mut reader) {
            let number = {
                let mut delivered = self.delivered.lock();
                delivered.push(request);
                delivered.len() - 1
            };
            if reader.get_mut().write_all((self.answer)(number).as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Reads one request; returns `None` if the connection ends.
fn receive(reader: &mut BufReader<TcpStream>) -> Option<Delivered> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    assert!(length <= BODY_BYTES_MAX, "{length} bytes");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = line.trim().trim_end_matches(" HTTP/1.1").to_owned();
    Some(Delivered { line, headers, body })
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Ok(stream) = TcpStream::connect(self.address) {
            drop(stream.shutdown(Shutdown::Both));
        }
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("address", &self.address).finish_non_exhaustive()
    }
}
