//! A socket with its read and write buffers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mio::event::Event;
use mio::{Registry, Token};
use pooler_core::pg::login::TlsFacts;
use tokio_rustls::rustls::Connection;

use super::buffers::{BACKLOG_BYTES_HIGH, BufferFreelist, UnsentBytes};
use super::socket::{ReadOutcome, RelaySocket};
use crate::tls::ListenerTls;

/// Event source behind a token of epoll: the kind in the high bits, the slot in the low bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum EventSource {
    /// The inbox.
    Inbox,
    /// A listener.
    Listener(u32),
    /// A client.
    Client(u32),
    /// A server connection.
    Server(u32),
    /// A connection that carries a cancel request to a server.
    Cancel(u32),
    /// A connection that listens for clients.
    Notifier(u32),
    /// The socket to the node that serves a client.
    Passed(u32),
}

const KIND_BITS: u32 = 3;

impl EventSource {
    /// Returns the token that epoll carries.
    pub(super) fn token(self) -> Token {
        let (kind, place) = match self {
            EventSource::Inbox => (0, 0),
            EventSource::Listener(place) => (1, place),
            EventSource::Client(place) => (2, place),
            EventSource::Server(place) => (3, place),
            EventSource::Cancel(place) => (4, place),
            EventSource::Notifier(place) => (5, place),
            EventSource::Passed(place) => (6, place),
        };
        Token(((place as usize) << KIND_BITS) | kind)
    }

    /// Converts a token back.
    pub(super) fn of(token: Token) -> Option<EventSource> {
        let place = u32::try_from(token.0 >> KIND_BITS).ok()?;
        match token.0 & ((1 << KIND_BITS) - 1) {
            0 => Some(EventSource::Inbox),
            1 => Some(EventSource::Listener(place)),
            2 => Some(EventSource::Client(place)),
            3 => Some(EventSource::Server(place)),
            4 => Some(EventSource::Cancel(place)),
            5 => Some(EventSource::Notifier(place)),
            6 => Some(EventSource::Passed(place)),
            _ => None,
        }
    }
}

/// Readiness of a socket, as epoll reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketReadiness {
    /// There may be bytes, or the end of input.
    pub(super) readable: bool,
    /// There may be room.
    pub(super) writable: bool,
    /// The peer sends nothing more, or the connection is lost.
    pub(super) closed: bool,
    /// The connection is closed in both directions.
    pub(super) gone: bool,
}

impl SocketReadiness {
    /// There may be bytes that only the thread itself knows of.
    pub(super) const READABLE: SocketReadiness =
        SocketReadiness { readable: true, writable: false, closed: false, gone: false };

    /// Returns the union of both.
    fn or(self, other: SocketReadiness) -> SocketReadiness {
        SocketReadiness {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
            closed: self.closed || other.closed,
            gone: self.gone || other.gone,
        }
    }
}

impl From<&Event> for SocketReadiness {
    fn from(event: &Event) -> SocketReadiness {
        SocketReadiness {
            readable: event.is_readable() || event.is_error(),
            writable: event.is_writable() || event.is_error(),
            closed: event.is_read_closed() || event.is_error(),
            gone: event.is_write_closed() || event.is_error(),
        }
    }
}

/// A connection of a relay thread.
#[derive(Debug)]
pub(super) struct RelayConnection {
    /// The socket.
    pub(super) socket: RelaySocket,
    token: Token,
    /// Bytes that were read and not consumed.
    pub(super) input: UnsentBytes,
    /// Bytes that the socket has not taken yet.
    output: UnsentBytes,
    /// True if the socket may have bytes. Epoll reports that only once.
    readable: bool,
    /// True if the peer has closed its side, though input may remain.
    closed: bool,
    /// True if nothing can be sent to the peer any more.
    gone: bool,
    /// Readiness that waits for the tenant's turn; see [`super::ready`].
    waiting: Option<SocketReadiness>,
}

impl RelayConnection {
    /// Returns the facts of the TLS handshake with a client; the default before it, and without
    /// TLS.
    pub(super) fn tls_facts(&self, shown: &ListenerTls) -> TlsFacts {
        match self.socket.tls() {
            Some(Connection::Server(tls)) => shown.facts(tls),
            Some(Connection::Client(_)) | None => TlsFacts::default(),
        }
    }

    /// Returns the facts of the TLS handshake with a client, at whichever node it took place;
    /// `None` without TLS.
    pub(super) fn login_tls(&self, shown: &ListenerTls) -> Option<TlsFacts> {
        match self.socket.passed() {
            Some(source) => source.origin.tls_facts(),
            None => self.socket.is_tls().then(|| self.tls_facts(shown)),
        }
    }

    /// Registers `socket` as `source`; `room` requests an event when it has connected.
    pub(super) fn new(
        mut socket: RelaySocket,
        source: EventSource,
        room: bool,
        registry: &Registry,
    ) -> io::Result<RelayConnection> {
        let token = source.token();
        socket.register(registry, token, room)?;
        let (input, output) = (UnsentBytes::default(), UnsentBytes::default());
        Ok(RelayConnection {
            socket,
            token,
            input,
            output,
            readable: false,
            closed: false,
            gone: false,
            waiting: None,
        })
    }

    /// Registers it with another thread's epoll.
    pub(super) fn register(&mut self, source: EventSource, registry: &Registry) -> io::Result<()> {
        self.token = source.token();
        // Bytes that arrived meanwhile are found by reading.
        self.readable = true;
        self.waiting = None;
        self.socket.register(registry, self.token, !self.is_flushed())
    }

    /// Removes it from the thread's epoll.
    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }

    /// Returns whether no input or output is buffered, and the peer is connected.
    pub(super) fn is_at_rest(&self) -> bool {
        self.input.is_empty() && self.is_flushed() && !self.closed
    }

    /// Removes it from the thread's epoll; returns its socket, for another process.
    pub(super) fn leave(&mut self, registry: &Registry) -> io::Result<OwnedFd> {
        self.socket.deregister(registry)?;
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Records that writing failed: the remaining input may contain the reason.
    pub(super) fn mark_closed(&mut self) {
        self.readable = true;
        self.closed = true;
        self.gone = true;
    }

    /// Keeps an event of epoll until it is the tenant's turn. Returns false if another event is
    /// deferred already.
    pub(super) fn defer(&mut self, readiness: SocketReadiness) -> bool {
        let before = self.waiting;
        self.waiting = Some(before.map_or(readiness, |before| before.or(readiness)));
        before.is_none()
    }

    /// Takes the deferred event.
    pub(super) fn take_deferred(&mut self) -> Option<SocketReadiness> {
        self.waiting.take()
    }

    /// Records an event of epoll.
    pub(super) fn note(&mut self, readiness: SocketReadiness) {
        self.readable |= readiness.readable || readiness.closed;
        self.closed |= readiness.closed;
        self.gone |= readiness.gone;
    }

    /// Returns whether there may be something to read.
    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// Returns whether the peer has closed its sending side.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether nothing can be sent to the peer any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Reads once.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        let received = self.socket.read(buffer)?;
        self.readable = match received {
            // The end follows the peer's last byte; epoll does not report it again.
            ReadOutcome::Data { more, .. } => more || self.closed,
            ReadOutcome::Nothing => false,
            ReadOutcome::End => true,
        };
        Ok(received)
    }

    /// Sends `bytes` after pending output; bytes that the socket does not accept are kept.
    pub(super) fn send(
        &mut self,
        bytes: &[u8],
        freelist: &mut BufferFreelist,
        registry: &Registry,
    ) -> io::Result<()> {
        let written = if self.output.is_empty() { self.socket.write(bytes)? } else { 0 };
        self.output.push(&bytes[written..], freelist);
        self.watch_room(registry)
    }

    /// Sends pending output, as far as there is room.
    pub(super) fn flush(
        &mut self,
        freelist: &mut BufferFreelist,
        registry: &Registry,
    ) -> io::Result<()> {
        self.socket.flush()?;
        if !self.output.is_empty() {
            let written = self.socket.write(self.output.front())?;
            self.output.consume(written, freelist);
        }
        self.watch_room(registry)
    }

    fn watch_room(&mut self, registry: &Registry) -> io::Result<()> {
        let room = !self.is_flushed();
        self.socket.want_room(registry, self.token, room)
    }

    /// Returns whether no output is pending.
    pub(super) fn is_flushed(&self) -> bool {
        self.output.is_empty() && !self.socket.has_pending()
    }

    /// Returns whether so much output is pending that nothing should be added.
    pub(super) fn is_clogged(&self) -> bool {
        self.output.len() > BACKLOG_BYTES_HIGH
    }

    /// Releases the buffers and closes the connection.
    pub(super) fn close(mut self, freelist: &mut BufferFreelist) {
        self.input.clear(freelist);
        self.output.clear(freelist);
        self.socket.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_what_they_were() {
        for source in [
            EventSource::Inbox,
            EventSource::Listener(7),
            EventSource::Client(0),
            EventSource::Client(u32::MAX),
            EventSource::Server(12),
            EventSource::Cancel(3),
            EventSource::Notifier(9),
            EventSource::Passed(4),
        ] {
            assert_eq!(EventSource::of(source.token()), Some(source));
        }
        assert_eq!(EventSource::of(Token(7)), None);
    }

    #[test]
    fn a_connection_waits_once_with_all_that_was_told() {
        let (poll, other) = (mio::Poll::new().unwrap(), mio::Poll::new().unwrap());
        let (ours, _theirs) = mio::net::UnixStream::pair().unwrap();
        let (socket, source) = (RelaySocket::unix(ours), EventSource::Client(3));
        let mut conn = RelayConnection::new(socket, source, false, poll.registry()).unwrap();
        let room = SocketReadiness { readable: false, writable: true, closed: false, gone: false };
        assert!(conn.defer(SocketReadiness::READABLE));
        assert!(!conn.defer(room));
        let told = conn.take_deferred().unwrap();
        assert!(told.readable && told.writable && !told.closed && !told.gone);
        assert!(conn.take_deferred().is_none());

        // Pending events of one thread are irrelevant to another.
        assert!(conn.defer(room));
        conn.deregister(poll.registry()).unwrap();
        conn.register(source, other.registry()).unwrap();
        assert!(conn.defer(room));
    }
}
