//! The pools of one thread: which server connection a client gets, and which ones are opened,
//! closed or moved to another thread.
//!
//! [`ThreadPools`] makes the decisions and keeps the state; its thread has the sockets and executes
//! return values and [`PoolEffect`]s. It refers to connections and clients by the thread's own
//! names for them (`C`, `W`), does no I/O and reads no clock. State that threads share is in
//! [`PoolRegistry`]: the bounds of all kinds (`pool::shares`), the reachability of servers, and
//! messages between threads.
//!
//! # Life of a server connection
//! [`PoolEffect::Open`] contains a [`PooledSlot`], which the thread keeps with the connection for
//! its lifetime, and which moves with it: dropping it frees the slot. Then the thread calls
//! [`ThreadPools::opened`] or [`ThreadPools::open_failed`]; [`ServerLease::Ready`] or
//! [`FreedConnectionUse::Serve`] gives the connection to a client; [`ThreadPools::returned`] takes
//! it back; [`PoolEffect::Close`], [`FreedConnectionUse::Close`] and [`ThreadPools::lost`] end its
//! life.
//!
//! # Invariants
//! - Clients are served in the order of arrival; a client that arrives while others wait is queued
//!   behind them.
//! - A pool of a thread never has an idle connection and a waiting client at the same time, unless
//!   the pool is held.
//! - Leasing an idle connection, and returning one that no client waits for, takes no lock and
//!   allocates nothing.
//! - No client waits longer than the limit, and no more clients wait than the limit allows.

mod local;
mod one;
mod registry;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pooler_core::link::FailureStage;

pub use local::ThreadPools;
pub use registry::{
    ConnectionBounds, ConnectionUsage, PoolRegistry, PoolTerms, PooledSlot, ServerConnectionUse,
};

/// Minimum time that a connection has been idle on another thread before it is fetched, if another
/// one could be opened instead. Connections in use are returned sooner, and would move back and
/// forth.
pub const FETCH_IDLE_AFTER: Duration = Duration::from_millis(100);

/// Margin by which a client of another thread must have waited longer than the first one here
/// before a connection of this thread moves there.
pub const OLDER_BY: Duration = Duration::from_millis(1);

/// Interval at which a thread with waiting clients renews its claim: claims change with time.
pub const REMIND_EVERY: Duration = Duration::from_millis(10);

/// Interval at which busy time is charged, if no decision has required it earlier.
pub const CHARGE_EVERY: Duration = Duration::from_secs(1);

/// Maximum connections that one thread opens at once for one pool; one until the first has
/// succeeded.
pub const OPENING_MAX: u32 = 4;

/// Wait before the second attempt to reach a server; doubles up to the limit.
pub const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Number of idle connections that are searched for one with the client's settings.
pub const LOOKED_AT_MAX: usize = 4;

/// Time that a pool without clients is kept.
pub const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Result of a client's request for a server connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeaseOutcome {
    /// The client has a connection.
    Yes,
    /// The client is in the queue.
    Waits,
    /// The client was refused with an error.
    No,
}

/// A pool on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolRef(u32);

/// A client's place in a pool's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTicket(u64);

/// Why a server connection could not be opened, as reported to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFailure {
    /// Stage of the failure.
    pub stage: FailureStage,
    /// SQLSTATE.
    pub code: Box<str>,
    /// Message.
    pub message: Box<str>,
}

impl PoolFailure {
    /// Creates the failure of a server that cannot be reached.
    pub fn unreached(code: &str, message: impl Into<Box<str>>) -> PoolFailure {
        PoolFailure { stage: FailureStage::Connect, code: code.into(), message: message.into() }
    }

    /// Returns the message for a client of the tenant.
    pub fn sentence(&self, tenant: &str) -> String {
        let message = &self.message;
        match self.stage {
            FailureStage::Connect => {
                format!("the server of tenant \"{tenant}\" cannot be reached: {message}")
            }
            FailureStage::Login => {
                format!("the login at the server of tenant \"{tenant}\" failed: {message}")
            }
            FailureStage::Refused => {
                format!("the server of tenant \"{tenant}\" refused the login: {message}")
            }
        }
    }
}

/// Result of a client's request for a server connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerLease<C> {
    /// This connection.
    Ready(C),
    /// A place in the queue.
    Waiting(QueueTicket),
    /// Refused.
    Refused(LeaseRefusal),
}

/// Why a client is refused a server connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRefusal {
    /// The queue is full.
    QueueFull {
        /// The limit.
        waiting_max: u32,
    },
    /// The client has waited for as long as the limit allows.
    WaitTimeout {
        /// The limit.
        wait: Duration,
    },
    /// The server cannot be reached.
    Down(Arc<PoolFailure>),
    /// The pool is shut.
    Shut,
}

/// Use of a connection that became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedConnectionUse<W> {
    /// Kept idle in the pool.
    Idle,
    /// Given to this client.
    Serve(W),
    /// To be closed.
    Close(CloseReason),
    /// To be moved to this thread, with its slot.
    Move(usize),
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Idle for longer than the limit.
    Idle,
    /// Older than the limit.
    Lifetime,
    /// Opened in an earlier epoch, or to another server.
    Unfit,
    /// The pool is held or shut.
    Held,
    /// Given up for a tenant with a better claim to its slot, or because there are fewer slots.
    GivenUp,
}

/// Task for the thread.
#[derive(Debug)]
pub enum PoolEffect<C, W> {
    /// Open a connection for this pool.
    Open {
        /// The pool.
        pool: PoolRef,
        /// The slot, to be kept with the connection.
        place: PooledSlot,
    },
    /// Close an idle connection.
    Close {
        /// Connection.
        conn: C,
        /// Why.
        reason: CloseReason,
    },
    /// Move an idle connection to another thread, with its slot.
    Move {
        /// Connection.
        conn: C,
        /// Destination.
        thread: usize,
    },
    /// Inform a client that it is refused.
    Refuse {
        /// Client.
        client: W,
        /// Why.
        refusal: LeaseRefusal,
    },
}

/// Figures of one pool on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPoolFigures {
    /// Idle connections.
    pub idle: u32,
    /// Connections that clients hold.
    pub leased: u32,
    /// Connections that are being opened.
    pub opening: u32,
    /// Clients that wait.
    pub waiting: u32,
    /// Time that the first of them has waited.
    pub waited: Duration,
}

/// Whether a pool gives out connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolGate {
    /// Open.
    Open,
    /// Temporarily closed: clients wait.
    Held,
    /// Permanently closed: clients are refused.
    Shut,
}

/// Returns the earlier of two times, where `None` is never.
fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (time, None) | (None, time) => time,
    }
}

impl fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseRefusal::QueueFull { waiting_max } => {
                write!(f, "{waiting_max} clients wait for a server connection already")
            }
            LeaseRefusal::WaitTimeout { wait } => {
                write!(f, "no server connection became free within {} s", wait.as_secs_f64())
            }
            LeaseRefusal::Down(failure) => f.write_str(&failure.message),
            LeaseRefusal::Shut => f.write_str("the tenant is being shut down"),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CloseReason::Idle => "idle for too long",
            CloseReason::Lifetime => "too old",
            CloseReason::Unfit => "made for what was before",
            CloseReason::Held => "pool held",
            CloseReason::GivenUp => "slot needed elsewhere",
        })
    }
}
