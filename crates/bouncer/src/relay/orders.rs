//! Messages to relay threads: by the control plane, by the resolver, by each other.
//!
//! Each thread has an inbox behind a lock that is held for a push or a swap, and an eventfd that
//! wakes it. A thread that was woken and has not looked yet is not woken again.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use mio::{Registry, Token, Waker};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::accept::AcceptedConnection;
use super::passing::{ArrivingClient, PassedStream};
use super::snapshot::ThreadSnapshot;
use super::takeover::{AdoptedClient, HandoverMessage};
use crate::guest::client::{LoginPlace, SandboxClient};
use crate::guest::turns::LeaseQuotaPermit;
use crate::tenants::TenantId;

/// Command for a relay thread.
#[derive(Debug)]
pub enum ThreadCommand {
    /// There is another snapshot of tenants.
    Routing,
    /// A tenant's admission changed: hold its clients back, let them go on, or see them off.
    Admission(TenantId),
    /// Close a tenant's server connections: idle ones now, the others when they come back.
    Reconnect(TenantId),
    /// Close idle server connections beyond what their pools may have by now.
    GiveUpSurplus,
    /// Close server connections of these tenants that nobody has used since: another node needs
    /// them.
    GiveUpIdle(Arc<[TenantId]>, Instant),
    /// Let clients in that wait for this node's part of a limit, as far as it has grown.
    RetryEntries,
    /// Close all clients and server connections of a tenant now.
    Kill(TenantId),
    /// Close the client that has this virtual process id.
    KillClient(u32),
    /// Close all clients of a guest: what it had was taken back.
    RevokeGuest(u64),
    /// Close those clients of a guest that hold a server connection and do nothing with it.
    ReleaseIdleOfGuest(u64),
    /// Tell what is there.
    Snapshot(oneshot::Sender<ThreadSnapshot>),
    /// Accept nobody, see clients off after their transactions, then end.
    Drain,
    /// Accept nobody any more; whoever is there goes on.
    StopListening,
    /// Close everything and end.
    Stop,
    /// Orders of the relay to itself.
    Internal(ThreadMessage),
}

/// Message between relay threads.
#[derive(Debug)]
pub struct ThreadMessage(pub(super) ThreadMessageKind);

/// See [`ThreadCommand::Internal`].
#[derive(Debug)]
pub(super) enum ThreadMessageKind {
    /// A connection to serve; the number is its listener's.
    Accepted(AcceptedConnection, usize),
    /// A connection of a guest to serve.
    Guest(std::net::TcpStream, Arc<SandboxClient>, LoginPlace),
    /// Turn of a guest's client to use a server connection, if it still waits.
    Turn {
        /// Place.
        client: u32,
        /// Virtual process id.
        pid: u32,
        /// Turn, which is dropped when it is not needed.
        turn: LeaseQuotaPermit,
    },
    /// A client asks to cancel what another one does, if it knows the key.
    Cancel {
        /// Place of the client that is meant.
        client: u32,
        /// Virtual process id.
        pid: u32,
    },
    /// Another client wants the connection of one of this thread's to end.
    KillClient {
        /// Place.
        client: u32,
        /// Virtual process id.
        pid: u32,
    },
    /// Result of the resolver for a server connection.
    Resolved {
        /// Number of the question.
        serial: u64,
        /// Addresses, or why there are none.
        addresses: Result<Vec<SocketAddr>, String>,
    },
    /// Result of the lookup of a user who wants to log in.
    Secret {
        /// Place of the client.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// Secret; `None` when there is no such user.
        secret: Result<Option<crate::secrets::ClientSecret>, String>,
    },
    /// Result of a password check.
    Checked {
        /// Place of the client.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// Result.
        checked: pooler_core::mysql::login::PasswordCheckResult,
    },
    /// Other nodes have said whether they have the client that one of this thread's wants killed.
    Killed {
        /// Place of the client that asked.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// True if one had it.
        is_found: bool,
    },
    /// The console has answered.
    ConsoleAnswer {
        /// Place of the client that asked.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// Messages.
        answer: Vec<u8>,
    },
    /// A home has taken a client, or none has.
    Passed {
        /// Place of the client.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// Stream to the home.
        stream: Option<PassedStream>,
    },
    /// The home of a client went away in the middle.
    HomeLost {
        /// Place of the client.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
    },
    /// A client that another node has passed.
    Arriving(Box<ArrivingClient>),
    /// End clients that came to another node, by their ids: they are gone there.
    EndArrived(Arc<[u64]>),
    /// See clients off that came to another node, by their ids: that node stops.
    SeeOff(Arc<[u64]>),
    /// Give everything to another process.
    HandOver(Sender<HandoverMessage>),
    /// A client of a former process.
    Adopted(AdoptedClient),
    /// An idle server connection, with its slot.
    Moved(MovedServer),
}

/// A server connection between two threads.
pub(super) struct MovedServer(pub(super) Box<super::server::RelayServer>);

impl fmt::Debug for MovedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moved").finish()
    }
}

impl From<ThreadMessageKind> for ThreadCommand {
    fn from(inner: ThreadMessageKind) -> ThreadCommand {
        ThreadCommand::Internal(ThreadMessage(inner))
    }
}

/// Inbox of a thread.
#[derive(Debug)]
pub(super) struct ThreadInbox {
    /// Orders that nobody looked at yet.
    orders: Mutex<Vec<ThreadCommand>>,
    waker: Waker,
    /// True if the thread was woken and has not looked since.
    woken: AtomicBool,
}

impl ThreadInbox {
    /// An inbox that wakes the poll of `registry` with `token`.
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Arc<ThreadInbox>> {
        let waker = Waker::new(registry, token)?;
        let orders = Mutex::default();
        Ok(Arc::new(ThreadInbox { orders, waker, woken: AtomicBool::new(false) }))
    }

    /// Adds an order and wakes the thread.
    pub(super) fn push(&self, order: impl Into<ThreadCommand>) {
        self.orders.lock().push(order.into());
        self.wake();
    }

    /// Wakes the thread, to look at what changed elsewhere.
    pub(super) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Err(error) = self.waker.wake()
        {
            // An eventfd cannot fail so; and the order is not lost, only late.
            tracing::error!(error = &error as &dyn std::error::Error, "wake a relay thread");
        }
    }

    /// Moves all orders to `orders`, which is empty. Only the thread calls this.
    pub(super) fn take(&self, orders: &mut Vec<ThreadCommand>) {
        // Before the orders are taken: who pushes after this wakes again, perhaps for nothing.
        self.woken.store(false, Ordering::Release);
        std::mem::swap(&mut *self.orders.lock(), orders);
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn a_push_wakes_and_nothing_is_lost() {
        let mut poll = Poll::new().expect("poll");
        let inbox = ThreadInbox::new(poll.registry(), Token(0)).expect("inbox");
        let sender = Arc::clone(&inbox);
        let thread = std::thread::spawn(move || {
            for pid in 0..10_000 {
                sender.push(ThreadCommand::KillClient(pid));
            }
        });
        let (mut events, mut orders, mut expected) = (Events::with_capacity(8), Vec::new(), 0);
        while expected < 10_000 {
            poll.poll(&mut events, None).expect("poll");
            inbox.take(&mut orders);
            for order in orders.drain(..) {
                assert!(matches!(order, ThreadCommand::KillClient(pid) if pid == expected));
                expected += 1;
            }
        }
        thread.join().expect("sender");
    }
}
