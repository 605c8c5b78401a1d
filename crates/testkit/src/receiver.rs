//! An HTTP server that keeps what it is sent: the other end of webhooks.

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
/// How long a request is waited for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// One request that a [`Receiver`] got.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Method and path.
    pub line: String,
    /// Headers with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body as it came.
    pub body: Vec<u8>,
}

impl Delivered {
    /// A header that must be there.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map_or_else(|| panic!("no {name} in {self:?}"), |(_, value)| value)
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// What a receiver answers to the request with this number, from 0.
type Answer = dyn Fn(usize) -> &'static str + Send + Sync;

/// An HTTP server that keeps what it is sent.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    delivered: Mutex<Vec<Delivered>>,
    answer: Box<Answer>,
    /// How many have connected, whether or not they sent something.
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// The answer of a receiver that is content.
pub const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";

impl Receiver {
    /// Receives at a free port.
    pub fn start(answer: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Receiver {
        Receiver::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), answer)
    }

    /// Receives at this address.
    ///
    /// # Panics
    /// When somebody else does.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address to give to whoever is to send something.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Everything that came so far.
    #[must_use]
    pub fn delivered(&self) -> Vec<Delivered> {
        self.shared.delivered.lock().clone()
    }

    /// How many have connected, whether or not they sent something.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many came.
    ///
    /// # Panics
    /// When they do not.
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

/// Reads one request; none when the connection ends.
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
