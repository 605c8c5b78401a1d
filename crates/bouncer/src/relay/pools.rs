//! The pools of one thread: which server connection a client gets, and which ones are opened,
//! closed or moved to another thread.
//!
//! [`ThreadPools`] decides and remembers; its thread has the sockets and does what it is told, by
//! what calls return and by [`PoolEffect`]s. It knows connections and clients by the thread's own
//! names for them (`C`, `W`), does no I/O and reads no clock. What threads share is in
//! [`PoolRegistry`]: the bounds of all kinds (`pool::shares`), whether a server can be reached, and
//! notes to each other.
//!
//! # Life of a server connection
//! [`PoolEffect::Open`] comes with a [`PooledSlot`], which the thread keeps with the connection for
//! as long as that lives, and which moves with it: dropping it frees the slot. Then
//! [`ThreadPools::opened`] or [`ThreadPools::open_failed`]; [`ServerLease::Ready`] or
//! [`FreedConnectionUse::Serve`] gives it to a client; [`ThreadPools::returned`] takes it back;
//! [`PoolEffect::Close`], [`FreedConnectionUse::Close`] and [`ThreadPools::lost`] end it.
//!
//! # Invariants
//! - Who came first is served first; who comes while others wait, waits behind them.
//! - An idle connection and a client that waits are never both in one pool of a thread, unless the
//!   pool is held.
//! - To lease an idle connection and to return one that nobody waits for takes no lock and
//!   allocates nothing.
//! - Nobody waits longer than the limit, and no more than the limit wait.

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

/// Time that a connection has been idle on another thread before it is fetched although another one
/// could be opened. One that is in use returns sooner, and would go to and fro.
pub const FETCH_IDLE_AFTER: Duration = Duration::from_millis(100);

/// By how much a client of another thread must have waited longer than the first one here, to be
/// given a connection of this thread.
pub const OLDER_BY: Duration = Duration::from_millis(1);

/// Interval at which a thread whose clients wait says so again: claims change with time.
pub const REMIND_EVERY: Duration = Duration::from_millis(10);

/// Interval at which busy time is charged that no decision asked for.
pub const CHARGE_EVERY: Duration = Duration::from_secs(1);

/// Connections that one thread opens at once for one pool; one until the first has succeeded.
pub const OPENING_MAX: u32 = 4;

/// Wait before the second attempt to reach a server; doubles until the limit.
pub const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Number of idle connections that are searched for one with the client's settings.
pub const LOOKED_AT_MAX: usize = 4;

/// Time that a pool of which no client is left is remembered.
pub const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Result of a client's request for a server connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeaseOutcome {
    /// Has one.
    Yes,
    /// In the queue.
    Waits,
    /// Refused with an error.
    No,
}

/// A pool on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolRef(u32);

/// A client's place in a pool's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTicket(u64);

/// Why a server connection could not be had, as clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFailure {
    /// Stage of the failure.
    pub stage: FailureStage,
    /// SQLSTATE.
    pub code: Box<str>,
    /// A sentence.
    pub message: Box<str>,
}

impl PoolFailure {
    /// Failure of a server that is not reached.
    pub fn unreached(code: &str, message: impl Into<Box<str>>) -> PoolFailure {
        PoolFailure { stage: FailureStage::Connect, code: code.into(), message: message.into() }
    }

    /// Sentence for a client of the tenant.
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
    /// This one.
    Ready(C),
    /// A place in the queue.
    Waiting(QueueTicket),
    /// Refused.
    Refused(LeaseRefusal),
}

/// Why a client gets no server connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRefusal {
    /// The queue is full.
    QueueFull {
        /// The limit.
        waiting_max: u32,
    },
    /// The client waited for as long as the limit is.
    WaitTimeout {
        /// The limit.
        wait: Duration,
    },
    /// The server cannot be reached.
    Down(Arc<PoolFailure>),
    /// The pool was shut.
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
    /// To be sent to this thread, with its place.
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
        /// For which.
        pool: PoolRef,
        /// To be kept with the connection.
        place: PooledSlot,
    },
    /// Close an idle connection.
    Close {
        /// Connection.
        conn: C,
        /// Why.
        reason: CloseReason,
    },
    /// Send an idle connection to another thread, with its place.
    Move {
        /// Connection.
        conn: C,
        /// Whither.
        thread: usize,
    },
    /// Tell a client that it gets none.
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
    /// Connections that nobody uses.
    pub idle: u32,
    /// Connections that clients have.
    pub leased: u32,
    /// Connections that are being opened.
    pub opening: u32,
    /// Clients that wait.
    pub waiting: u32,
    /// For how long the first of them has waited.
    pub waited: Duration,
}

/// State of a pool: whether it gives connections away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolGate {
    /// Open.
    Open,
    /// Not now: clients wait.
    Held,
    /// Never again: clients are refused.
    Shut,
}

/// Sooner of two times, where either may be never.
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
