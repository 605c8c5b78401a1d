//! A server connection: its purpose and its known state.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use mio::net::{TcpStream, UnixStream};
use pooler_core::link::{ServerDialer, ServerLink};
use pooler_core::pg::dial::ServerAssurance;

use super::conn::RelayConnection;
use super::holders::HolderEntry;
use super::pools::{self, CloseReason, PoolFailure, PoolRef};
use super::socket::{RelaySocket, TcpPolicy};
use super::stats::ThreadTenantStats;
use crate::tenants::{ServerTls, TenantSnapshot};
use crate::tls;

/// Parameters that a server reports: names in its own spelling, and values.
pub(super) type Parameters = Arc<[(String, String)]>;

/// Target of a socket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ConnectTarget {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

/// A server connection that is not ready yet.
#[derive(Debug)]
pub(super) struct OpeningServer {
    pub(super) dial: ServerDialer,
    /// True if the socket has yet to be connected.
    pub(super) connects: bool,
    /// True if the TLS handshake is in progress.
    pub(super) is_in_handshake: bool,
    /// Addresses to try after this one.
    pub(super) others: Vec<SocketAddr>,
}

/// A server connection.
#[derive(Debug)]
pub(super) struct RelayServer {
    pub(super) conn: RelayConnection,
    pub(super) phase: ServerPhase,
    /// Serial, which distinguishes successive connections in a slot.
    pub(super) serial: u64,
    /// Number among all connections of the process.
    pub(super) number: u64,
    pub(super) pool: PoolRef,
    /// Slot of the pool that the connection occupies.
    pub(super) slot: pools::PooledSlot,
    pub(super) tenant: Arc<TenantSnapshot>,
    /// Role.
    pub(super) user: Arc<str>,
    /// Target, for cancel requests to follow.
    pub(super) target: ConnectTarget,
    /// Client that holds it.
    pub(super) client: Option<u32>,
    /// Entry of the holder for all threads, once its process is known.
    pub(super) holder: Option<HolderEntry>,
    /// Cancel requests on their way to its server.
    pub(super) cancels: u32,
    /// True if it is returned to its pool when those have arrived.
    pub(super) awaits_cancels: bool,
    /// Time at which its opening began.
    pub(super) begun_us: u64,
    /// Time at which it was leased.
    pub(super) leased_us: u64,
    /// Time at which its current state began.
    pub(super) since_us: u64,
    /// True if it counts as idle.
    pub(super) is_idle: bool,
    /// True if its client left it in a state that no other client may see.
    pub(super) is_resetting: bool,
    /// True if a statement without a client runs on it, which is cancelled until it ends.
    pub(super) is_cancelled: bool,
    /// Parameters that the server reported.
    pub(super) parameters: Parameters,
    /// Counters of its link at the last reading.
    pub(super) counted: (u64, u64),
    /// Pin reasons that were counted.
    pub(super) pins: Vec<&'static str>,
    pub(super) stats: Arc<ThreadTenantStats>,
}

/// Purpose of a server connection, from its start.
#[derive(Debug)]
pub(super) struct ServerPurpose {
    pub(super) pool: PoolRef,
    pub(super) slot: pools::PooledSlot,
    pub(super) tenant: Arc<TenantSnapshot>,
    pub(super) user: Arc<str>,
    pub(super) target: ConnectTarget,
}

/// Requests that have ended at a server connection since the last reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkProgress {
    /// True if a transaction has ended with them.
    pub(super) ends_transaction: bool,
}

/// Phase of a server connection's life.
#[derive(Debug)]
pub(super) enum ServerPhase {
    /// Connecting and logging in.
    Opening(Box<OpeningServer>),
    /// In use, or ready for it.
    Live(ServerLink),
}

/// Why a server connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerCloseReason {
    /// Closed by its pool.
    #[error("{0}")]
    Pool(CloseReason),
    /// The server closed it.
    #[error("the server closed the connection")]
    End,
    /// The connection was lost.
    #[error("{0}")]
    Lost(#[source] io::Error),
    /// The server violates the protocol, or announces that it closes.
    #[error("{0}")]
    Broken(String),
    /// Its client could not be served and got an error.
    #[error("the client could not be served")]
    Failed,
    /// It could not be reset after its client.
    #[error("it did not become idle after its client disconnected")]
    Unclean,
    /// Closed on command.
    #[error("closed by an operator")]
    Ordered,
}

impl ConnectTarget {
    /// Starts to connect.
    pub(super) fn connect(&self, policy: TcpPolicy) -> io::Result<RelaySocket> {
        match self {
            ConnectTarget::Tcp(address) => RelaySocket::tcp(TcpStream::connect(*address)?, policy),
            ConnectTarget::Unix(path) => Ok(RelaySocket::unix(UnixStream::connect(path)?)),
        }
    }

    /// Returns the assurance about the server, which decides whether a password may be sent to it.
    pub(super) fn assurance(&self, tls: &ServerTls) -> ServerAssurance {
        tls::assurance(tls, matches!(self, ConnectTarget::Unix(_)))
    }
}

impl ServerCloseReason {
    /// Returns the error for clients that wait for the connection.
    pub(super) fn failure(&self) -> PoolFailure {
        PoolFailure::unreached("08006", self.to_string())
    }
}

impl RelayServer {
    /// Creates a connection that is being opened.
    pub(super) fn new(
        conn: RelayConnection,
        opening: OpeningServer,
        purpose: ServerPurpose,
        serial: u64,
        number: u64,
        now_us: u64,
        stats: Arc<ThreadTenantStats>,
    ) -> RelayServer {
        let ServerPurpose { pool, slot, tenant, user, target } = purpose;
        RelayServer {
            conn,
            phase: ServerPhase::Opening(Box::new(opening)),
            serial,
            number,
            pool,
            slot,
            tenant,
            user,
            target,
            client: None,
            holder: None,
            cancels: 0,
            awaits_cancels: false,
            begun_us: now_us,
            leased_us: now_us,
            since_us: now_us,
            is_idle: false,
            is_resetting: false,
            is_cancelled: false,
            parameters: Parameters::default(),
            counted: (0, 0),
            pins: Vec::new(),
            stats,
        }
    }

    /// Returns the process id of its backend, once that is known.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.phase {
            ServerPhase::Live(link) => Some(link.pid()),
            ServerPhase::Opening(_) => None,
        }
    }

    /// Returns whether it has logged in.
    pub(super) fn is_live(&self) -> bool {
        self.live().is_some()
    }

    /// Counts it as idle, or no longer.
    pub(super) fn count_idle(&mut self, is_idle: bool) {
        match (std::mem::replace(&mut self.is_idle, is_idle), is_idle) {
            (false, true) => self.stats.servers_idle.add(1),
            (true, false) => self.stats.servers_idle.sub(1),
            (true, true) | (false, false) => {}
        }
    }

    /// Records the progress of its link since the last reading. Returns the progress, if there is
    /// any.
    #[inline]
    pub(super) fn account(&mut self) -> Option<LinkProgress> {
        let link = self.link()?;
        let (counts, errors) = (link.counts(), link.take_errors());
        if let Some(errors) = errors {
            self.stats.failed(&errors);
        }
        if counts == self.counted {
            return None;
        }
        let (queries, transactions) = self.counted;
        self.counted = counts;
        self.count_pins();
        self.stats.queries.add(counts.0.wrapping_sub(queries));
        self.stats.transactions.add(counts.1.wrapping_sub(transactions));
        Some(LinkProgress { ends_transaction: counts.1 != transactions })
    }

    /// Counts its pin reasons that were not counted before.
    pub(super) fn count_pins(&mut self) {
        let ServerPhase::Live(link) = &self.phase else { return };
        for pin in link.pins() {
            if !self.pins.contains(&pin) {
                self.stats.pinned(pin);
                self.pins.push(pin);
            }
        }
    }

    /// Returns the reasons why its client keeps it beyond its transaction.
    pub(super) fn pins(&self) -> Vec<&'static str> {
        match &self.phase {
            ServerPhase::Live(link) => link.pins().collect(),
            ServerPhase::Opening(_) => Vec::new(),
        }
    }

    /// Returns whether its client has received only whole messages.
    pub(super) fn is_between_messages(&self) -> bool {
        match &self.phase {
            ServerPhase::Live(link) => link.is_between_messages(),
            ServerPhase::Opening(_) => true,
        }
    }

    /// Returns whether an error may be sent to its client now.
    pub(super) fn takes_error(&self) -> bool {
        self.live().is_none_or(ServerLink::takes_error)
    }

    /// Returns whether its client waits for a reply.
    pub(super) fn is_awaited(&self) -> bool {
        match &self.phase {
            ServerPhase::Live(link) => link.has_client_entries(),
            ServerPhase::Opening(_) => false,
        }
    }

    /// Returns whether a cancel request is on its way to it whose target statement has ended.
    pub(super) fn awaits_signal(&self) -> bool {
        self.cancels > 0 && !self.is_awaited()
    }

    /// Returns whether its client has started a batch and not ended it.
    pub(super) fn is_unsynced(&self) -> bool {
        matches!(&self.phase, ServerPhase::Live(link) if link.is_unsynced())
    }

    /// Returns whether its client will receive a reply without sending more.
    pub(super) fn owes_reply(&self) -> bool {
        match &self.phase {
            ServerPhase::Live(link) => link.owes_reply(),
            ServerPhase::Opening(_) => false,
        }
    }

    /// Returns whether its client is between the first byte of a request and the last one of its
    /// reply.
    pub(super) fn is_in_request(&self) -> bool {
        match &self.phase {
            ServerPhase::Live(link) => link.is_in_request(),
            ServerPhase::Opening(_) => false,
        }
    }

    /// Returns its session, once it has logged in.
    pub(super) fn live(&self) -> Option<&ServerLink> {
        match &self.phase {
            ServerPhase::Live(link) => Some(link),
            ServerPhase::Opening(_) => None,
        }
    }

    /// Returns its session for modification, once it has logged in.
    pub(super) fn link(&mut self) -> Option<&mut ServerLink> {
        match &mut self.phase {
            ServerPhase::Live(link) => Some(link),
            ServerPhase::Opening(_) => None,
        }
    }
}
