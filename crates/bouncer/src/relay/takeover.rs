//! Takeover: a new process gets the listeners of this one, and its clients between transactions.
//!
//! The new process connects to a socket file that only its user may use. The old one first sends
//! the listening sockets, so that connections wait in the kernel and are never refused, and then
//! each client as soon as it is at rest, with the state of its session. A frame consists of a
//! header of five bytes (kind, length) with an optional descriptor, and a body of JSON.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/unix.7.html>

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// Greeting of both sides: a process with another version is refused.
const HELLO: [u8; 8] = *b"covepg01";

/// Maximum length of a frame's body.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Time limit for each frame of the initial exchange.
const PATIENCE: Duration = Duration::from_secs(10);

const HEAD_BYTES: usize = 5;

/// Message from one process to the other.
#[derive(Debug)]
pub(super) enum HandoverMessage {
    /// A listening socket and its address.
    Listener(OwnedFd, String),
    /// The end of the listening sockets.
    ListenersEnd,
    /// A client.
    Client(OwnedFd, Box<HandoverSession>),
}

/// A client that is handed over between processes.
#[derive(Debug)]
pub(super) struct AdoptedClient(pub(super) OwnedFd, pub(super) Box<HandoverSession>);

/// State of a session between transactions, for the next process.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct HandoverSession {
    pub(super) tenant: String,
    pub(super) user: String,
    pub(super) is_unix: bool,
    pub(super) pid: u32,
    pub(super) key: Vec<u8>,
    pub(super) requested: Vec<(String, String)>,
    pub(super) wanted: Vec<(String, String)>,
    pub(super) seen: Vec<(String, String)>,
    pub(super) statements: Vec<CarriedStatement>,
    /// State of a MySQL session, instead of PostgreSQL's.
    #[serde(default)]
    pub(super) mysql: Option<CarriedMysql>,
}

/// State of a MySQL session that is handed over.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CarriedMysql {
    pub(super) capabilities: u64,
    pub(super) collation: u16,
    pub(super) bound: Option<String>,
    pub(super) status: u16,
    pub(super) multi: bool,
    pub(super) insert_id: u64,
    pub(super) row_count: i64,
    pub(super) found_rows: u64,
    pub(super) requested: Vec<(String, String)>,
    pub(super) requested_schema: Option<String>,
    pub(super) wanted: Vec<(String, String)>,
    pub(super) wanted_schema: Option<String>,
    pub(super) statements: Vec<CarriedMysqlStatement>,
}

/// A statement that a client of MySQL has prepared.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CarriedMysqlStatement {
    pub(super) number: u32,
    pub(super) text: Vec<u8>,
    pub(super) columns: u16,
    pub(super) params: u16,
    pub(super) types: Option<Vec<u8>>,
}

/// A statement that a client has prepared by name.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CarriedStatement {
    pub(super) name: Vec<u8>,
    pub(super) text: Vec<u8>,
    pub(super) types: Vec<u8>,
}

impl HandoverMessage {
    fn kind(&self) -> u8 {
        match self {
            HandoverMessage::Listener(..) => b'L',
            HandoverMessage::ListenersEnd => b'E',
            // A process that supports only PostgreSQL must not mistake it for one of its clients.
            HandoverMessage::Client(_, carried) if carried.mysql.is_some() => b'M',
            HandoverMessage::Client(..) => b'C',
        }
    }
}

/// Returns whether the process at the other end runs as the same user, or as the superuser.
pub(super) fn is_own(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|it| it.uid == own || it.uid.is_root())
}

/// Connects to the former process, which must run as the same user or the superuser. Returns `None`
/// if there is none.
pub(super) fn follow(path: &Path) -> io::Result<Option<UnixStream>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
            _ => return Err(error),
        },
    };
    if !is_own(&stream) {
        // Another user's process could choose the identities of the clients that it hands over.
        let why = "another user listens at the socket";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&HELLO)?;
    hear_hello(&mut stream)?;
    Ok(Some(stream))
}

/// Waits for a successor to connect. Returns `None` if the peer is not one.
pub(super) fn followed(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    let (mut stream, _) = listener.accept()?;
    if !is_own(&stream) {
        return Ok(None);
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match hear_hello(&mut stream).and_then(|()| stream.write_all(&HELLO)) {
        Ok(()) => Ok(Some(stream)),
        Err(_) => Ok(None),
    }
}

fn hear_hello(stream: &mut UnixStream) -> io::Result<()> {
    let mut hello = [0; HELLO.len()];
    stream.read_exact(&mut hello)?;
    if hello == HELLO {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it hands over in another version"))
}

/// Sends a message.
pub(super) fn send(stream: &mut UnixStream, message: &HandoverMessage) -> io::Result<()> {
    let (fd, body) = match message {
        HandoverMessage::Listener(fd, address) => (Some(fd), serde_json::to_vec(address)?),
        HandoverMessage::ListenersEnd => (None, Vec::new()),
        HandoverMessage::Client(fd, carried) => (Some(fd), serde_json::to_vec(carried)?),
    };
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= FRAME_BYTES_MAX);
    let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
    let mut head = [message.kind(); HEAD_BYTES];
    head[1..].copy_from_slice(&length.to_be_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
    if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // A message of five bytes is sent as a whole or not at all.
    sendmsg(&*stream, &[IoSlice::new(&head)], &mut beside, SendFlags::NOSIGNAL)?;
    stream.write_all(&body)
}

/// Receives a message; `None` at the end of the stream.
pub(super) fn receive(stream: &mut UnixStream) -> io::Result<Option<HandoverMessage>> {
    let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut head = [0; HEAD_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(&*stream, &mut [IoSliceMut::new(&mut head)], &mut beside, flags)?.bytes;
    let mut fd = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    if got == 0 {
        return Ok(None);
    }
    stream.read_exact(head.get_mut(got..).unwrap_or_default())?;
    let [kind, length @ ..] = head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(bad("a frame is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    match (kind, fd) {
        (b'L', Some(fd)) => Ok(Some(HandoverMessage::Listener(fd, serde_json::from_slice(&body)?))),
        (b'E', None) => Ok(Some(HandoverMessage::ListenersEnd)),
        (b'C' | b'M', Some(fd)) => {
            Ok(Some(HandoverMessage::Client(fd, serde_json::from_slice(&body)?)))
        }
        _ => Err(bad("a frame of an unknown kind")),
    }
}
