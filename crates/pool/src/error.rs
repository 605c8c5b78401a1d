//! Errors of acquirers and drivers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Error of a driver that could not open a resource.
pub type OpenError = Arc<dyn Error + Send + Sync>;

/// The bound of a [`PoolConfig`](crate::PoolConfig) or [`KeyLimits`](crate::KeyLimits) that was
/// reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// [`PoolConfig::keys_max`](crate::PoolConfig::keys_max).
    Keys,
    /// [`PoolConfig::waiters_max`](crate::PoolConfig::waiters_max).
    Waiters,
    /// [`KeyLimits::waiters_max`](crate::KeyLimits::waiters_max).
    WaitersOfKey,
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys => "keys of the pool",
            Self::Waiters => "waiters of the pool",
            Self::WaitersOfKey => "waiters of the key",
        })
    }
}

/// Reason why an acquirer did not get a resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// A bound was reached; trying later can help.
    Full {
        /// Bound that is reached.
        limit: ReachedLimit,
        /// Value.
        max: usize,
    },
    /// The deadline passed first; trying later can help.
    Timeout,
    /// The driver could not open the resource this acquirer was waiting for.
    Open(OpenError),
    /// The key is being drained or was forgotten; others are not affected.
    Draining,
    /// The pool is closed permanently.
    Closed,
}

impl AcquireError {
    /// Returns whether the same request may succeed later without a change of the configuration.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Timeout | Self::Open(_) => true,
            Self::Draining | Self::Closed => false,
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit, max } => write!(f, "{limit} are at their limit of {max}"),
            Self::Timeout => f.write_str("no resource became free before the deadline"),
            Self::Open(_) => f.write_str("open a resource"),
            Self::Draining => f.write_str("the key is being drained"),
            Self::Closed => f.write_str("the pool is closed"),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Open(source) => Some(&**source),
            Self::Full { .. } | Self::Timeout | Self::Draining | Self::Closed => None,
        }
    }
}

/// A ticket was dropped without an answer.
#[derive(Clone, Copy, Debug)]
pub struct AbandonedTicket;

impl fmt::Display for AbandonedTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the driver gave up without an answer")
    }
}

impl Error for AbandonedTicket {}

/// Reason why a resource is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetireReason {
    /// Discarded by its user.
    Discarded,
    /// Not used for [`idle_timeout`](crate::KeyLimits::idle_timeout).
    Idle,
    /// Older than its lifetime.
    Lifetime,
    /// Another key needed its place.
    Evicted,
    /// Over its key's lowered bound.
    OverLimit,
    /// Drained with its key.
    Drained,
    /// The pool is closed.
    Closed,
}
