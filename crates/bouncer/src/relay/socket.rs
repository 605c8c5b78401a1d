//! A connection: TCP or Unix, plain or TLS, never blocking.
//!
//! A socket is registered with epoll once, edge-triggered and for reading only: write readiness
//! would wake the thread needlessly, on Unix sockets at each read of the peer. It is requested only
//! while there is a backlog.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/socket.7.html>
//! - <https://man7.org/linux/man-pages/man7/tcp.7.html>

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{SockRef, TcpKeepalive};
use tokio_rustls::rustls::{ClientConnection, Connection, ServerConnection};

use super::buffers::BACKLOG_BYTES_HIGH;
use super::passing::login::PassedSource;

/// Keepalive and timeouts of TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpPolicy {
    /// Quiet time before the first probe.
    pub keepalive_idle: Duration,
    /// Interval between probes.
    pub keepalive_interval: Duration,
    /// Probes without an answer before the connection counts as dead.
    pub keepalive_retries: u32,
    /// Time that sent bytes may stay unacknowledged (`TCP_USER_TIMEOUT`).
    pub user_timeout: Duration,
}

impl Default for TcpPolicy {
    fn default() -> Self {
        TcpPolicy {
            keepalive_idle: Duration::from_secs(30),
            keepalive_interval: Duration::from_secs(10),
            keepalive_retries: 3,
            user_timeout: Duration::from_secs(60),
        }
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReadOutcome {
    /// This many bytes were read; `more` is false only if the kernel certainly has no more.
    Data {
        /// Bytes in the caller's buffer.
        count: usize,
        /// True to read again before waiting.
        more: bool,
    },
    /// No bytes at present.
    Nothing,
    /// The peer will send nothing more.
    End,
}

#[derive(Debug)]
enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection, with the state of its encryption.
#[derive(Debug)]
pub(crate) struct RelaySocket {
    stream: SocketStream,
    tls: Option<Box<Connection>>,
    wants_room: bool,
    /// Node and origin of a client of another node.
    passed: Option<Box<PassedSource>>,
}

impl RelaySocket {
    /// Creates a TCP connection; small messages are sent at once.
    pub(crate) fn tcp(stream: TcpStream, policy: TcpPolicy) -> io::Result<Self> {
        let socket = SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(policy.keepalive_idle)
            .with_interval(policy.keepalive_interval)
            .with_retries(policy.keepalive_retries);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(policy.user_timeout))?;
        let stream = SocketStream::Tcp(stream);
        Ok(RelaySocket { stream, tls: None, wants_room: false, passed: None })
    }

    /// Creates a Unix connection.
    pub(crate) fn unix(stream: UnixStream) -> Self {
        let stream = SocketStream::Unix(stream);
        RelaySocket { stream, tls: None, wants_room: false, passed: None }
    }

    /// Creates the socket of a client of another node, which carries its bytes.
    pub(crate) fn of_other_node(stream: UnixStream, source: PassedSource) -> Self {
        RelaySocket { passed: Some(Box::new(source)), ..RelaySocket::unix(stream) }
    }

    /// Returns the origin of a client of another node; `None` for other clients.
    pub(crate) fn passed(&self) -> Option<&PassedSource> {
        self.passed.as_deref()
    }

    /// Returns whether the connection of a client is encrypted, at whichever node its TLS ends.
    pub(crate) fn is_tls_to_client(&self) -> bool {
        self.is_tls() || self.passed().is_some_and(|it| it.origin.is_tls())
    }

    /// Returns whether the peer is on this machine and the traffic cannot be intercepted: a Unix
    /// socket.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.stream, SocketStream::Unix(_))
    }

    /// Returns whether output is encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the state of the encryption, if there is one.
    pub(crate) fn tls(&self) -> Option<&Connection> {
        self.tls.as_deref()
    }

    /// Starts encryption, as the accepting side.
    pub(crate) fn accept_tls(&mut self, mut tls: ServerConnection) {
        tls.set_buffer_limit(Some(BACKLOG_BYTES_HIGH));
        self.tls = Some(Box::new(tls.into()));
    }

    /// Starts encryption, as the connecting side.
    pub(crate) fn start_tls(&mut self, mut tls: ClientConnection) {
        tls.set_buffer_limit(Some(BACKLOG_BYTES_HIGH));
        self.tls = Some(Box::new(tls.into()));
    }

    /// Returns whether a handshake is in progress.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Processes encrypted bytes that were read before encryption began.
    pub(crate) fn read_early(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes)?;
            let processed = tls.process_new_packets();
            flush_tls(tls, &mut self.stream)?;
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(())
    }

    /// Returns the user id of the process at the other end of a Unix socket.
    pub(crate) fn uid(&self) -> Option<u32> {
        match &self.stream {
            SocketStream::Tcp(_) => None,
            SocketStream::Unix(stream) => {
                rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
            }
        }
    }

    /// Returns the error of a failed connection attempt, once the socket is ready.
    pub(crate) fn connect_error(&self) -> io::Result<Option<io::Error>> {
        match &self.stream {
            SocketStream::Tcp(stream) => stream.take_error(),
            SocketStream::Unix(stream) => stream.take_error(),
        }
    }

    /// Returns whether the socket is connected.
    pub(crate) fn is_connected(&self) -> bool {
        match &self.stream {
            SocketStream::Tcp(stream) => stream.peer_addr().is_ok(),
            SocketStream::Unix(stream) => stream.peer_addr().is_ok(),
        }
    }

    /// Registers for readable bytes, and for room to write if `room` is set.
    pub(crate) fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        room: bool,
    ) -> io::Result<()> {
        self.wants_room = room;
        let interest = interest(room);
        match &mut self.stream {
            SocketStream::Tcp(stream) => registry.register(stream, token, interest),
            SocketStream::Unix(stream) => registry.register(stream, token, interest),
        }
    }

    /// Requests events for room to write, or ends that. Only a change costs a system call.
    pub(crate) fn want_room(
        &mut self,
        registry: &Registry,
        token: Token,
        room: bool,
    ) -> io::Result<()> {
        if self.wants_room == room {
            return Ok(());
        }
        self.wants_room = room;
        let interest = interest(room);
        match &mut self.stream {
            SocketStream::Tcp(stream) => registry.reregister(stream, token, interest),
            SocketStream::Unix(stream) => registry.reregister(stream, token, interest),
        }
    }

    /// Removes it from the thread's epoll, for another thread.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match &mut self.stream {
            SocketStream::Tcp(stream) => registry.deregister(stream),
            SocketStream::Unix(stream) => registry.deregister(stream),
        }
    }

    /// Reads available bytes into `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        match &mut self.tls {
            None => match retry(|| self.stream.read(buffer)) {
                Ok(0) => Ok(ReadOutcome::End),
                // A stream socket that returned fewer bytes than requested is empty (epoll(7)).
                Ok(count) => Ok(ReadOutcome::Data { count, more: count == buffer.len() }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::Nothing),
                Err(error) => Err(error),
            },
            Some(tls) => read_tls(tls, &mut self.stream, buffer),
        }
    }

    /// Writes as much of `bytes` as fits and returns the number of bytes taken. With TLS some of
    /// them may still be buffered here: see [`RelaySocket::has_pending`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            let taken = match &mut self.tls {
                None => match retry(|| self.stream.write(&bytes[written..])) {
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                },
                Some(tls) => {
                    let taken = tls.writer().write(&bytes[written..])?;
                    flush_tls(tls, &mut self.stream)?;
                    taken
                }
            };
            written += taken;
            if taken == 0 {
                break;
            }
            // A short write means a full socket; another attempt would fail.
            if self.tls.is_none() && written < bytes.len() {
                break;
            }
        }
        Ok(written)
    }

    /// Sends bytes that TLS has buffered, as far as there is room.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => flush_tls(tls, &mut self.stream),
        }
    }

    /// Returns whether encrypted bytes wait for room in the socket.
    pub(crate) fn has_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Ends the output: with TLS's closing alert, and the end of the stream.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        // The connection is closed next, whatever the outcome.
        drop(self.flush());
        drop(match &self.stream {
            SocketStream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            SocketStream::Unix(stream) => stream.shutdown(Shutdown::Write),
        });
    }

    /// Returns the address of the peer, for logs, limits and consoles; `None` for Unix sockets.
    pub(crate) fn peer(&self) -> Option<std::net::SocketAddr> {
        if let Some(source) = self.passed() {
            return source.origin.peer;
        }
        match &self.stream {
            SocketStream::Tcp(stream) => stream.peer_addr().ok(),
            SocketStream::Unix(_) => None,
        }
    }

    /// Returns the local address; `None` for Unix sockets.
    pub(crate) fn local(&self) -> Option<std::net::SocketAddr> {
        match &self.stream {
            SocketStream::Tcp(stream) => stream.local_addr().ok(),
            SocketStream::Unix(_) => None,
        }
    }
}

impl AsFd for RelaySocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            SocketStream::Tcp(stream) => stream.as_fd(),
            SocketStream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for SocketStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => stream.read(buffer),
            SocketStream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for SocketStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => stream.write(bytes),
            SocketStream::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            SocketStream::Tcp(stream) => stream.write_vectored(bytes),
            SocketStream::Unix(stream) => stream.write_vectored(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn interest(room: bool) -> Interest {
    if room { Interest::READABLE.add(Interest::WRITABLE) } else { Interest::READABLE }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Reads decrypted bytes, after as many records from the socket as are needed.
fn read_tls(
    tls: &mut Connection,
    stream: &mut SocketStream,
    buffer: &mut [u8],
) -> io::Result<ReadOutcome> {
    loop {
        match tls.reader().read(buffer) {
            Ok(0) => return Ok(ReadOutcome::End),
            Ok(count) => return Ok(ReadOutcome::Data { count, more: true }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The end of the stream without TLS's closing alert, which many clients omit. Every
            // message contains its length, so a truncation cannot go unnoticed.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(ReadOutcome::End);
            }
            Err(error) => return Err(error),
        }
        match tls.read_tls(stream) {
            Ok(0) => return Ok(ReadOutcome::End),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(ReadOutcome::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let processed = tls.process_new_packets();
        // Replies of the handshake, or the alert that reports an error.
        flush_tls(tls, stream)?;
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
}

fn flush_tls(tls: &mut Connection, stream: &mut SocketStream) -> io::Result<()> {
    while tls.wants_write() {
        match retry(|| tls.write_tls(stream)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (RelaySocket, RelaySocket) {
        let (one, two) = UnixStream::pair().expect("socket pair");
        (RelaySocket::unix(one), RelaySocket::unix(two))
    }

    #[test]
    fn a_short_read_says_that_there_is_no_more() {
        let (mut one, mut two) = pair();
        let mut buffer = [0; 8];
        assert_eq!(two.read(&mut buffer).expect("read"), ReadOutcome::Nothing);
        assert_eq!(one.write(b"0123456789").expect("write"), 10);
        assert_eq!(
            two.read(&mut buffer).expect("read"),
            ReadOutcome::Data { count: 8, more: true }
        );
        assert_eq!(
            two.read(&mut buffer).expect("read"),
            ReadOutcome::Data { count: 2, more: false }
        );
        one.finish();
        assert_eq!(two.read(&mut buffer).expect("read"), ReadOutcome::End);
    }

    #[test]
    fn a_full_socket_takes_a_part() {
        let (mut one, mut two) = pair();
        let bytes: Vec<u8> = (0..4_000_000_u32).flat_map(u32::to_be_bytes).collect();
        let mut sent = one.write(&bytes).expect("write");
        assert!(sent > 0 && sent < bytes.len());
        let mut buffer = vec![0; 65536];
        let mut received = Vec::new();
        while received.len() < bytes.len() {
            match two.read(&mut buffer).expect("read") {
                ReadOutcome::Data { count, .. } => received.extend_from_slice(&buffer[..count]),
                ReadOutcome::Nothing => sent += one.write(&bytes[sent..]).expect("write"),
                ReadOutcome::End => panic!("nobody closed"),
            }
        }
        assert!(received == bytes);
    }
}
