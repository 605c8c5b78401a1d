//! Proxy that breaks connections at a chosen byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

/// Maximum bytes that are copied at once; a cut may be in the middle of them.
const PIECE: usize = 16 << 10;
/// Interval at which a thread that waits for bytes checks whether it must stop.
const LOOK: Duration = Duration::from_millis(50);

/// Direction of the counted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the target.
    Forth,
    /// From the target to the client.
    Back,
}

/// Position at which a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Direction of the counted bytes.
    pub way: Way,
    /// Number of bytes that are forwarded, after which nothing is, in either direction.
    pub after: u64,
}

type Plan = Box<dyn FnMut(u64) -> Option<Cut> + Send>;

/// TCP proxy on a loopback port, which runs until it is dropped.
///
/// Each accepted connection is forwarded to a new one, byte by byte, until either side or its plan
/// ends it. Bytes that were read before the cut have arrived when the connection ends, as in a
/// network that fails after a packet.
#[derive(Debug)]
pub struct Cutter {
    address: SocketAddr,
    listener: TcpStream,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    plan: Mutex<Plan>,
    ended: AtomicBool,
    /// Directions in which nothing is forwarded, without an error: as behind a firewall that has
    /// dropped a connection's state.
    silent_forth: AtomicBool,
    silent_back: AtomicBool,
    /// Additional delay of each piece in milliseconds.
    delay_ms: AtomicU64,
    accepted: AtomicU64,
    cuts: AtomicU64,
    /// Weak, because a finished connection must be closed; otherwise its peer would wait forever.
    live: Mutex<Vec<Weak<Pair>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Shared {
    fn silent(&self, way: Way) -> &AtomicBool {
        match way {
            Way::Forth => &self.silent_forth,
            Way::Back => &self.silent_back,
        }
    }
}

/// Both sockets of a connection.
struct Pair {
    near: TcpStream,
    far: TcpStream,
    over: AtomicBool,
}

impl Pair {
    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        for stream in [&self.near, &self.far] {
            // The peer may have closed it.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Cutter {
    /// Starts a proxy that does not break connections.
    #[must_use]
    pub fn start(target: SocketAddr) -> Cutter {
        Cutter::start_with(target, |_| None)
    }

    /// Starts a proxy whose `plan` returns the cut of each connection. Connections are counted from
    /// zero.
    #[must_use]
    pub fn start_with(
        target: SocketAddr,
        plan: impl FnMut(u64) -> Option<Cut> + Send + 'static,
    ) -> Cutter {
        Cutter::bind(Ipv4Addr::LOCALHOST.into(), target, plan)
    }

    /// Starts a proxy on another address of this machine.
    #[must_use]
    pub fn start_at(address: IpAddr, target: SocketAddr) -> Cutter {
        Cutter::bind(address, target, |_| None)
    }

    fn bind(
        address: IpAddr,
        target: SocketAddr,
        plan: impl FnMut(u64) -> Option<Cut> + Send + 'static,
    ) -> Cutter {
        let listener = TcpListener::bind((address, 0)).expect("bind a port");
        let address = listener.local_addr().expect("the port");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            plan: Mutex::new(Box::new(plan)),
            ended: AtomicBool::new(false),
            silent_forth: AtomicBool::new(false),
            silent_back: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            live: Mutex::new(Vec::new()),
        });
        // The kernel does not distinguish the types, and only a stream can be shut down here.
        let clone = listener.try_clone().expect("share the listener");
        let clone = TcpStream::from(OwnedFd::from(clone));
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Cutter { address, shared, listener: clone, acceptor: Some(acceptor) }
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the plan for connections that are accepted from now on.
    pub fn plan(&self, plan: impl FnMut(u64) -> Option<Cut> + Send + 'static) {
        *self.shared.plan.lock() = Box::new(plan);
    }

    /// Stops forwarding, or resumes it with the bytes that arrived meanwhile; connections stay
    /// open.
    pub fn silence(&self, is_silent: bool) {
        self.silence_way(Way::Forth, is_silent);
        self.silence_way(Way::Back, is_silent);
    }

    /// Stops or resumes forwarding in one direction, so that only requests or only responses are
    /// lost.
    pub fn silence_way(&self, way: Way, is_silent: bool) {
        self.shared.silent(way).store(is_silent, Ordering::Relaxed);
    }

    /// Delays each piece of a connection.
    pub fn delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.shared.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Forwards new connections to another server. Existing ones are unchanged.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Closes all connections.
    pub fn cut_all(&self) {
        for pair in self.shared.live.lock().drain(..).filter_map(|pair| pair.upgrade()) {
            pair.end();
        }
    }

    /// Returns the number of accepted connections.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that their plan ended.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, even if its address no longer exists.
        drop(self.listener.shutdown(Shutdown::Both));
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
        self.cut_all();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::Relaxed) {
            return;
        }
        // The peer has already closed the connection.
        let Ok(near) = stream else { continue };
        let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
        let target = *shared.target.lock();
        let Ok(far) = TcpStream::connect(target) else { continue };
        let cut = (shared.plan.lock())(number);
        for stream in [&near, &far] {
            stream.set_nodelay(true).expect("send at once");
            stream.set_read_timeout(Some(LOOK)).expect("limit the wait");
        }
        let pair = Arc::new(Pair { near, far, over: AtomicBool::new(false) });
        let mut live = shared.live.lock();
        live.retain(|pair| pair.strong_count() > 0);
        live.push(Arc::downgrade(&pair));
        drop(live);
        for way in [Way::Forth, Way::Back] {
            let after = cut.filter(|cut| cut.way == way).map(|cut| cut.after);
            let (pair, shared) = (Arc::clone(&pair), Arc::clone(shared));
            thread::spawn(move || copy(&pair, way, after, &shared));
        }
    }
}

/// Delays a piece.
#[expect(clippy::disallowed_methods, reason = "a slow network is what this is")]
fn hold_back(pair: &Pair, way: Way, shared: &Shared) {
    thread::sleep(Duration::from_millis(shared.delay_ms.load(Ordering::Relaxed)));
    while shared.silent(way).load(Ordering::Relaxed) && !is_over(pair, shared) {
        thread::sleep(LOOK);
    }
}

fn is_over(pair: &Pair, shared: &Shared) -> bool {
    shared.ended.load(Ordering::Relaxed) || pair.over.load(Ordering::Relaxed)
}

/// Forwards bytes in one direction until its end.
fn copy(pair: &Pair, way: Way, after: Option<u64>, shared: &Shared) {
    let (mut from, mut to) = match way {
        Way::Forth => (&pair.near, &pair.far),
        Way::Back => (&pair.far, &pair.near),
    };
    let mut left = after.unwrap_or(u64::MAX);
    let mut piece = [0; PIECE];
    loop {
        if left == 0 {
            shared.cuts.fetch_add(1, Ordering::Relaxed);
            return pair.end();
        }
        if is_over(pair, shared) {
            return pair.end();
        }
        let room = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        match from.read(&mut piece[..room]) {
            Ok(0) => {
                // Only this direction ends; responses may still arrive.
                drop(to.shutdown(Shutdown::Write));
                return;
            }
            Ok(count) => {
                hold_back(pair, way, shared);
                if to.write_all(&piece[..count]).is_err() {
                    return pair.end();
                }
                left -= u64::try_from(count).unwrap_or(left);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return pair.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that echoes its input until the connection ends.
    fn echo() -> (SocketAddr, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut all, mut piece) = (Vec::new(), [0; 64]);
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                all.extend_from_slice(&piece[..count]);
                drop(stream.write_all(&piece[..count]));
            }
            all
        });
        (address, thread)
    }

    fn check(cut: Option<Cut>, arrived: &[u8], answered: &[u8]) {
        let (address, echo) = echo();
        let cutter = Cutter::start_with(address, move |_| cut);
        let mut stream = TcpStream::connect(cutter.address()).unwrap();
        stream.write_all(b"0123456789").unwrap();
        if cut.is_none() {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut answer = Vec::new();
        // A reset connection still returns the bytes that arrived before.
        drop(stream.read_to_end(&mut answer));
        assert_eq!((echo.join().unwrap().as_slice(), answer.as_slice()), (arrived, answered));
        assert_eq!((cutter.accepted(), cutter.cuts()), (1, u64::from(cut.is_some())));
    }

    #[test]
    fn a_connection_ends_where_its_plan_says() {
        check(None, b"0123456789", b"0123456789");
        check(Some(Cut { way: Way::Forth, after: 0 }), b"", b"");
        check(Some(Cut { way: Way::Back, after: 4 }), b"0123456789", b"0123");
    }

    #[test]
    fn an_answer_that_nobody_reads_is_not_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let cutter = Cutter::start(listener.local_addr().unwrap());
        let asks = TcpStream::connect(cutter.address()).unwrap();
        let (mut answers, _) = listener.accept().unwrap();
        // Until all buffers on the path are full.
        answers.set_write_timeout(Some(LOOK * 4)).unwrap();
        while answers.write(&[0; PIECE]).is_ok() {}
        drop(asks);
        answers.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        let failure = loop {
            if let Err(failure) = answers.write(&[0; PIECE]) {
                break failure.kind();
            }
        };
        assert!(
            [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&failure),
            "{failure}"
        );
    }

    #[test]
    fn all_connections_end_when_they_shall() {
        let (address, echo) = echo();
        let cutter = Cutter::start(address);
        let mut stream = TcpStream::connect(cutter.address()).unwrap();
        stream.write_all(b"a").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        cutter.cut_all();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        assert_eq!(echo.join().unwrap(), b"a");
        assert_eq!(cutter.cuts(), 0);
    }
}
