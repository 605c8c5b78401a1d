//! Listeners: one thread accepts connections and distributes them to the threads with the fewest.
//!
//! This is better than `SO_REUSEPORT`, where the kernel chooses at random: of ten clients with long
//! connections seven may end on one core for hours. It costs one hand-over between threads for half
//! of the connections.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::TenantEngine;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, Type};

/// Connections that the kernel holds until they are accepted; it lowers this to `somaxconn`.
const PENDING_MAX: i32 = 4096;

/// Connections accepted in one turn, so that connected clients are served, too.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 16;

/// Pause in accepting after the process ran out of descriptors or memory, in microseconds: an
/// immediate retry would only use up the processor.
pub(crate) const ACCEPT_PAUSE_US: u64 = 100_000;

/// Address to listen at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListenAddress {
    /// A TCP address; port 0 for any.
    Tcp(SocketAddr),
    /// A socket file and its mode. A stale one without a listener is replaced.
    Unix {
        /// The file.
        path: PathBuf,
        /// Permissions.
        mode: u32,
    },
}

/// Definition of a listener.
#[derive(Clone, Debug)]
pub struct ListenerSpec {
    /// Address.
    pub address: ListenAddress,
    /// Protocol.
    pub engine: TenantEngine,
    /// True if it may be skipped when another process listens there.
    pub is_optional: bool,
    /// The tenant of all clients of this listener, whatever else they specify.
    pub tenant: Option<Arc<str>>,
}

/// Why a listener could not be created.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}")]
pub struct ListenError {
    address: String,
    #[source]
    source: io::Error,
}

#[derive(Debug)]
enum ListenerKind {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct RelayListener {
    kind: ListenerKind,
    /// Protocol.
    pub(crate) engine: TenantEngine,
    /// The tenant of all its clients.
    pub(crate) tenant: Option<Arc<str>>,
}

/// A connection that belongs to no thread yet.
#[derive(Debug)]
pub(crate) enum AcceptedConnection {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// The file of a Unix socket, removed with its listener.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl SocketFile {
    /// Leaves the file to another process, instead of removing it.
    fn leave(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.0.as_os_str().is_empty() {
            return;
        }
        // It may have been removed already; the error cannot be reported.
        drop(fs::remove_file(&self.0));
    }
}

impl ListenerSpec {
    /// Returns whether this definition is that of a listener that another process had at `address`.
    pub(super) fn is_at(&self, address: &str) -> bool {
        match &self.address {
            ListenAddress::Tcp(own) => address.parse().is_ok_and(|it: SocketAddr| {
                it.ip() == own.ip() && (own.port() == 0 || it.port() == own.port())
            }),
            ListenAddress::Unix { path, .. } => path.as_os_str() == address,
        }
    }
}

impl RelayListener {
    /// Takes over a listener of another process.
    pub(super) fn inherited(spec: &ListenerSpec, fd: OwnedFd) -> RelayListener {
        let kind = match &spec.address {
            ListenAddress::Tcp(_) => ListenerKind::Tcp(TcpListener::from_std(fd.into())),
            ListenAddress::Unix { path, .. } => {
                ListenerKind::Unix(UnixListener::from_std(fd.into()), SocketFile(path.clone()))
            }
        };
        RelayListener { kind, engine: spec.engine, tenant: spec.tenant.clone() }
    }

    /// Returns the descriptor and the address, for another process.
    pub(super) fn give(self, registry: &Registry) -> io::Result<(OwnedFd, String)> {
        match self.kind {
            ListenerKind::Tcp(mut listener) => {
                registry.deregister(&mut listener)?;
                let address = listener.local_addr()?.to_string();
                Ok((listener.as_fd().try_clone_to_owned()?, address))
            }
            ListenerKind::Unix(mut listener, file) => {
                registry.deregister(&mut listener)?;
                let fd = listener.as_fd().try_clone_to_owned()?;
                Ok((fd, file.leave().to_string_lossy().into_owned()))
            }
        }
    }

    /// Binds and listens.
    pub(crate) fn bind(spec: &ListenerSpec) -> Result<RelayListener, ListenError> {
        let kind = match &spec.address {
            ListenAddress::Tcp(address) => bind_tcp(*address)
                .map_err(|source| ListenError { address: address.to_string(), source })?,
            ListenAddress::Unix { path, mode } => bind_unix(path, *mode)
                .map_err(|source| ListenError { address: path.display().to_string(), source })?,
        };
        Ok(RelayListener { kind, engine: spec.engine, tenant: spec.tenant.clone() })
    }

    /// Returns the actual address of the listener; `None` for Unix sockets.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match &self.kind {
            ListenerKind::Tcp(listener) => listener.local_addr().ok(),
            ListenerKind::Unix(..) => None,
        }
    }

    /// Registers the listener for events of new connections.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.kind {
            ListenerKind::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            ListenerKind::Unix(listener, _) => {
                registry.register(listener, token, Interest::READABLE)
            }
        }
    }

    /// Returns the next connection; `None` if no connection is pending.
    pub(crate) fn accept(&self) -> io::Result<Option<AcceptedConnection>> {
        loop {
            let accepted = match &self.kind {
                ListenerKind::Tcp(listener) => {
                    listener.accept().map(|(it, _)| AcceptedConnection::Tcp(it))
                }
                ListenerKind::Unix(listener, _) => {
                    listener.accept().map(|(it, _)| AcceptedConnection::Unix(it))
                }
            };
            match accepted {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    // The client left before it was accepted, or a signal arrived.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<ListenerKind> {
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Allows listeners on `[::]` and `0.0.0.0` side by side.
        socket.set_only_v6(true)?;
    }
    // A restart must not wait until connections of the former process have timed out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(PENDING_MAX)?;
    Ok(ListenerKind::Tcp(TcpListener::from_std(socket.into())))
}

fn bind_unix(path: &Path, mode: u32) -> io::Result<ListenerKind> {
    let (socket, file) = bind_file(path, mode)?;
    Ok(ListenerKind::Unix(UnixListener::from_std(socket.into()), file))
}

/// Listens at a socket file, without blocking.
pub(super) fn bind_file(path: &Path, mode: u32) -> io::Result<(RawSocket, SocketFile)> {
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let address = SockAddr::unix(path)?;
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse || !is_abandoned(path, &address) {
            return Err(error);
        }
        fs::remove_file(path)?;
        socket.bind(&address)?;
    }
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(PENDING_MAX)?;
    Ok((socket, file))
}

/// Returns whether `path` is a socket without a listener.
fn is_abandoned(path: &Path, address: &SockAddr) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let refused = || {
        let probe = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
        probe.set_nonblocking(true)?;
        probe.connect(address)
    };
    is_socket && refused().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Raises the soft limit on descriptors to the hard one: each client and each server connection
/// uses one, and the usual soft limit of 1024 is too low. Returns the resulting limit.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;

    fn unix(path: &Path) -> ListenerSpec {
        let address = ListenAddress::Unix { path: path.to_owned(), mode: 0o700 };
        let engine = TenantEngine::Postgres;
        ListenerSpec { address, engine, is_optional: false, tenant: None }
    }

    #[test]
    fn an_abandoned_socket_is_replaced_and_a_living_one_is_not() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        let listener = RelayListener::bind(&unix(&path)).expect("replace");
        assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o700);
        let error = RelayListener::bind(&unix(&path)).expect_err("somebody listens");
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        let _client = std::os::unix::net::UnixStream::connect(&path).expect("connect");
        // One is the probe of the second listener, the other is the client.
        assert!(listener.accept().expect("accept").is_some());
        assert!(listener.accept().expect("accept").is_some());
        assert!(listener.accept().expect("accept").is_none());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        fs::write(&path, "precious").expect("write");
        RelayListener::bind(&unix(&path)).expect_err("not a socket");
        assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
    }

    #[test]
    fn port_0_is_any_port() {
        let address = ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let engine = TenantEngine::Postgres;
        let spec = ListenerSpec { address, engine, is_optional: false, tenant: None };
        let listener = RelayListener::bind(&spec).expect("bind");
        assert_ne!(listener.local_addr().expect("address").port(), 0);
    }
}
