//! What relay threads are told from outside: by the control plane, by the resolver, by each other.
//!
//! Each thread has an inbox behind a lock that is held for a push or a swap, and an eventfd that
//! wakes it. A thread that was woken and has not looked yet is not woken again.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use mio::{Registry, Token, Waker};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::accept::Accepted;
use super::snapshot::Snapshot;
use super::succession::Adopted;
use super::takeover::Parcel;
use crate::guest::turns::Turn;
use crate::guest::{Guest, LoginPlace};
use crate::tenants::TenantId;

/// Something for a relay thread to do.
#[derive(Debug)]
pub enum Order {
    /// There is another snapshot of tenants.
    Routing,
    /// A tenant's admission changed: hold its clients back, let them go on, or see them off.
    Admission(TenantId),
    /// Close a tenant's server connections: idle ones now, the others when they come back.
    Reconnect(TenantId),
    /// Close all clients and server connections of a tenant now.
    Kill(TenantId),
    /// Close the client that has this virtual process id.
    KillClient(u32),
    /// Close all clients of a guest: what it had was taken back.
    RevokeGuest(u64),
    /// Close those clients of a guest that hold a server connection and do nothing with it.
    RestGuest(u64),
    /// Tell what is there.
    Snapshot(oneshot::Sender<Snapshot>),
    /// Accept nobody, see clients off after their transactions, then end.
    Drain,
    /// Accept nobody any more; whoever is there goes on.
    Deafen,
    /// Close everything and end.
    Stop,
    /// Orders of the relay to itself.
    Internal(Internal),
}

/// What threads of the relay tell each other.
#[derive(Debug)]
pub struct Internal(pub(super) Inner);

/// See [`Internal`].
#[derive(Debug)]
pub(super) enum Inner {
    /// A connection to serve; the number is its listener's.
    Accepted(Accepted, usize),
    /// A connection of a guest to serve.
    Guest(std::net::TcpStream, Arc<Guest>, LoginPlace),
    /// It is a guest's turn to use a server connection: that of this client, if it still waits.
    Turn {
        /// Its place.
        client: u32,
        /// Its virtual process id.
        pid: u32,
        /// Whoever does not want it drops it.
        turn: Turn,
    },
    /// A client asks to cancel what another one does, if it knows the key.
    Cancel {
        /// Place of the client that is meant.
        client: u32,
        /// Its virtual process id.
        pid: u32,
    },
    /// Another client wants the connection of one of this thread's to end.
    KillClient {
        /// Its place.
        client: u32,
        /// Its virtual process id.
        pid: u32,
    },
    /// What the resolver found for a server connection.
    Resolved {
        /// Which question this answers.
        serial: u64,
        /// Its addresses, or why there are none.
        addresses: Result<Vec<SocketAddr>, String>,
    },
    /// What the server knows of a user who wants to log in.
    Secret {
        /// Place of the client.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// Its secret; `None` when there is no such user.
        secret: Result<Option<crate::secrets::Password>, String>,
    },
    /// What came of a proof.
    Checked {
        /// Place of the client.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// What that is.
        checked: crate::mysql::login::Checked,
    },
    /// The console has answered.
    Said {
        /// Place of the client that asked.
        client: u32,
        /// Tells it from later ones in that place.
        serial: u64,
        /// Messages.
        answer: Vec<u8>,
    },
    /// Give everything to another process.
    GiveAway(Sender<Parcel>),
    /// A client of a former process.
    Adopted(Adopted),
    /// An idle server connection, with its slot.
    Moved(Moved),
}

/// A server connection between two threads.
pub(super) struct Moved(pub(super) Box<super::server::Server>);

impl fmt::Debug for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moved").finish()
    }
}

impl From<Inner> for Order {
    fn from(inner: Inner) -> Order {
        Order::Internal(Internal(inner))
    }
}

/// Where a thread gets its orders from.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Orders that nobody looked at yet.
    orders: Mutex<Vec<Order>>,
    waker: Waker,
    /// Whether the thread was woken and has not looked since.
    woken: AtomicBool,
}

impl Inbox {
    /// An inbox that wakes the poll of `registry` with `token`.
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Arc<Inbox>> {
        let waker = Waker::new(registry, token)?;
        let orders = Mutex::default();
        Ok(Arc::new(Inbox { orders, waker, woken: AtomicBool::new(false) }))
    }

    /// Adds an order and wakes the thread.
    pub(super) fn push(&self, order: impl Into<Order>) {
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
    pub(super) fn take(&self, orders: &mut Vec<Order>) {
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
        let inbox = Inbox::new(poll.registry(), Token(0)).expect("inbox");
        let sender = Arc::clone(&inbox);
        let thread = std::thread::spawn(move || {
            for pid in 0..10_000 {
                sender.push(Order::KillClient(pid));
            }
        });
        let (mut events, mut orders, mut expected) = (Events::with_capacity(8), Vec::new(), 0);
        while expected < 10_000 {
            poll.poll(&mut events, None).expect("poll");
            inbox.take(&mut orders);
            for order in orders.drain(..) {
                assert!(matches!(order, Order::KillClient(pid) if pid == expected));
                expected += 1;
            }
        }
        thread.join().expect("sender");
    }
}
