//! Server connections that are closed on this side, but still counted by their servers.
//!
//! A server ends the process or thread of a connection in its own time. If the slot were released
//! earlier, another connection could be opened beyond the tenant's limit or the server's. So the
//! slot is kept until the server has closed its side, too.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-TERMINATION>

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use node::clock;
use parking_lot::Mutex;

use super::pools::PooledSlot;

/// Longest time that a slot is kept for a server that does not close its side.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(3);

/// Maximum number of events per poll.
const EVENTS_MAX: usize = 64;

/// Bytes per read of discarded input.
const READ_BYTES: usize = 16 << 10;

/// Token of the waker; no connection has it.
const WAKE: Token = Token(usize::MAX);

/// The thread that waits for servers to close connections.
#[derive(Debug)]
pub(super) struct ClosingServers(Arc<ClosingQueue>);

#[derive(Debug)]
struct ClosingQueue {
    new: Mutex<Vec<ClosingServer>>,
    waker: Waker,
    is_over: AtomicBool,
}

/// A connection on which nothing more is sent.
#[derive(Debug)]
struct ClosingServer {
    socket: OwnedFd,
    _slot: PooledSlot,
    until: Instant,
}

impl ClosingServers {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn start() -> io::Result<ClosingServers> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let queue = ClosingQueue { new: Mutex::default(), waker, is_over: AtomicBool::new(false) };
        let queue = Arc::new(queue);
        let own = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("bouncer-close".to_owned());
        drop(thread.spawn(move || own.run(poll))?);
        Ok(ClosingServers(queue))
    }

    /// Keeps a slot until the server at the other end of a socket has closed it.
    pub(super) fn wait(&self, socket: OwnedFd, slot: PooledSlot) {
        let until = clock::now() + CLOSING_TIME_MAX;
        self.0.new.lock().push(ClosingServer { socket, _slot: slot, until });
        self.0.wake();
    }
}

impl Drop for ClosingServers {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.wake();
    }
}

impl ClosingQueue {
    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "wake the thread that waits for servers to close");
        }
    }

    fn run(&self, mut poll: Poll) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut closing: HashMap<Token, ClosingServer> = HashMap::new();
        while !self.is_over.load(Ordering::Acquire) {
            let first = closing.values().map(|it| it.until).min();
            let pause = first.map(|until| until.saturating_duration_since(clock::now()));
            match poll.poll(&mut events, pause) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    let error = &error as &dyn std::error::Error;
                    return tracing::error!(error, "wait for servers to close connections");
                }
                _ => {}
            }
            for server in self.new.lock().drain(..) {
                // A socket that cannot be polled counts as closed.
                if let Ok(token) = server.register(poll.registry()) {
                    closing.insert(token, server);
                }
            }
            for event in &events {
                if closing.get(&event.token()).is_some_and(ClosingServer::is_closed) {
                    closing.remove(&event.token());
                }
            }
            let now = clock::now();
            closing.retain(|_, it| it.until > now);
        }
    }
}

impl ClosingServer {
    /// Registers the socket, by its number: it is open for as long as this is.
    fn register(&self, registry: &Registry) -> io::Result<Token> {
        let number = self.socket.as_raw_fd();
        let token = Token(usize::try_from(number).map_err(io::Error::other)?);
        registry.register(&mut SourceFd(&number), token, Interest::READABLE)?;
        Ok(token)
    }

    /// Reads and drops what the server still sends. Returns whether it has closed its side.
    fn is_closed(&self) -> bool {
        let mut bytes = [0; READ_BYTES];
        loop {
            match rustix::io::read(&self.socket, &mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error == rustix::io::Errno::INTR => {}
                Err(error) => return error != rustix::io::Errno::AGAIN,
            }
        }
    }
}
