//! Messages to relay threads: from the control plane, the resolver, and other threads.
//!
//! Each thread has an inbox behind a lock that is held for a push or a swap, and an eventfd that
//! wakes it. A thread that was woken and has not read its inbox yet is not woken again.

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
    /// Use the new snapshot of tenants.
    Routing,
    /// A tenant's admission changed: hold its clients, resume them, or disconnect them.
    Admission(TenantId),
    /// Close a tenant's server connections: idle ones now, the others when they are returned.
    Reconnect(TenantId),
    /// Close idle server connections beyond the current maxima of their pools.
    GiveUpSurplus,
    /// Close server connections of these tenants that have been idle since this time: another node
    /// needs them.
    GiveUpIdle(Arc<[TenantId]>, Instant),
    /// Admit clients that wait for this node's part of a limit, as far as it has grown.
    RetryEntries,
    /// Close all clients and server connections of a tenant now.
    Kill(TenantId),
    /// Close the client that has this virtual process id.
    KillClient(u32),
    /// Close all clients of a guest: its access was revoked.
    RevokeGuest(u64),
    /// Close the clients of a guest that hold a server connection without using it.
    ReleaseIdleOfGuest(u64),
    /// Send a snapshot of the connections.
    Snapshot(oneshot::Sender<ThreadSnapshot>),
    /// Accept no clients, disconnect existing ones after their transactions, then end.
    Drain,
    /// Accept no more clients; existing ones continue.
    StopListening,
    /// Close everything and end.
    Stop,
    /// Message between relay threads.
    Internal(ThreadMessage),
}

/// Message between relay threads.
#[derive(Debug)]
pub struct ThreadMessage(pub(super) ThreadMessageKind);

/// See [`ThreadCommand::Internal`].
#[derive(Debug)]
pub(super) enum ThreadMessageKind {
    /// A connection to serve, and the number of its listener.
    Accepted(AcceptedConnection, usize),
    /// A connection of a guest to serve.
    Guest(std::net::TcpStream, Arc<SandboxClient>, LoginPlace),
    /// Permit of a guest's client to use a server connection, if it still waits.
    Turn {
        /// Slot.
        client: u32,
        /// Virtual process id.
        pid: u32,
        /// Permit, which is dropped if it is not needed.
        turn: LeaseQuotaPermit,
    },
    /// Cancels the statement of a client; the requester's key was checked.
    Cancel {
        /// Slot of the client to cancel.
        client: u32,
        /// Virtual process id.
        pid: u32,
    },
    /// Ends a client of this thread on behalf of another client.
    KillClient {
        /// Slot.
        client: u32,
        /// Virtual process id.
        pid: u32,
    },
    /// Result of the resolver for a server connection.
    Resolved {
        /// Number of the request.
        serial: u64,
        /// Addresses, or why there are none.
        addresses: Result<Vec<SocketAddr>, String>,
    },
    /// Result of the lookup of a user who wants to log in.
    Secret {
        /// Slot of the client.
        client: u32,
        /// Serial, which distinguishes successive clients in the slot.
        serial: u64,
        /// Secret; `None` if there is no such user.
        secret: Result<Option<crate::secrets::ClientSecret>, String>,
    },
    /// Result of a password check.
    Checked {
        /// Slot of the client.
        client: u32,
        /// Serial, which distinguishes successive clients in the slot.
        serial: u64,
        /// Result.
        checked: pooler_core::mysql::login::PasswordCheckResult,
    },
    /// Reply of other nodes to a client that wants another one killed.
    Killed {
        /// Slot of the requesting client.
        client: u32,
        /// Serial, which distinguishes successive clients in the slot.
        serial: u64,
        /// True if a node had the target.
        is_found: bool,
    },
    /// Reply of the console.
    ConsoleAnswer {
        /// Slot of the requesting client.
        client: u32,
        /// Serial, which distinguishes successive clients in the slot.
        serial: u64,
        /// Messages.
        answer: Vec<u8>,
    },
    /// Outcome of passing a client to a home.
    Passed {
        /// Slot of the client.
        client: u32,
        /// Serial, which distinguishes successive clients in the slot.
        serial: u64,
        /// Stream to the home; `None` if none took it.
        stream: Option<PassedStream>,
    },
    /// The connection to the home of a passed client was lost.
    HomeLost {
        /// Slot of the client.
        client: u32,
        /// Serial, which distinguishes successive clients in the slot.
        serial: u64,
    },
    /// A client that another node has passed.
    Arriving(Box<ArrivingClient>),
    /// End clients that other nodes passed, by their ids: they have left there.
    EndArrived(Arc<[u64]>),
    /// Disconnect clients that another node passed, by their ids: that node is stopping.
    SeeOff(Arc<[u64]>),
    /// Hand everything over to another process.
    HandOver(Sender<HandoverMessage>),
    /// A client of a former process.
    Adopted(AdoptedClient),
    /// An idle server connection, with its slot.
    Moved(MovedServer),
}

/// A server connection that moves between two threads.
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
    /// Orders that were not read yet.
    orders: Mutex<Vec<ThreadCommand>>,
    waker: Waker,
    /// True if the thread was woken and has not read its orders since.
    woken: AtomicBool,
}

impl ThreadInbox {
    /// Creates an inbox that wakes the poll of `registry` with `token`.
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

    /// Wakes the thread, to check for changes elsewhere.
    pub(super) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel)
            && let Err(error) = self.waker.wake()
        {
            // The write to an eventfd does not fail like this; and the order is only late, not
            // lost.
            tracing::error!(error = &error as &dyn std::error::Error, "wake a relay thread");
        }
    }

    /// Moves all orders to `orders`, which must be empty. Only the thread calls this.
    pub(super) fn take(&self, orders: &mut Vec<ThreadCommand>) {
        // Before the orders are taken: a push after this wakes the thread again, perhaps
        // needlessly.
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
