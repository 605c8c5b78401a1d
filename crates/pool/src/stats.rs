//! Figures that are read without a lock.
//!
//! Each figure is exact by itself; figures read together may be some operations apart, because the
//! pool continues while they are read. Differences are therefore saturating.

use crate::config::KeyLimits;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Holdings and counters of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStats {
    /// Ready and not leased.
    pub idle: usize,
    /// Leased.
    pub leased: usize,
    /// Requested of the driver, not opened yet.
    pub opening: usize,
    /// Handed to the driver to close, not closed yet.
    pub closing: usize,
    /// Acquirers in the queue.
    pub waiting: usize,
    /// The bound of `idle + leased + opening + closing`.
    pub max: usize,
    /// Number of idle resources that the pool keeps ready.
    pub min_idle: usize,
}

/// Counters of one key since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounters {
    /// Leases ever handed out.
    pub acquired: u64,
    /// Resources ever opened.
    pub created: u64,
    /// Resources ever closed or taken out by [`Lease::into_inner`](crate::Lease::into_inner).
    pub closed: u64,
    /// Acquirers whose deadline passed.
    pub timeouts: u64,
    /// Acquirers that were refused because a queue was full.
    pub refused: u64,
}

impl KeyStats {
    /// Returns whether the key has no resource in any state and no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.idle + self.leased + self.opening + self.closing + self.waiting == 0
    }
}

/// Holdings of a pool over all its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Resources in any state.
    pub live: usize,
    /// Requested of the driver, not opened yet.
    pub opening: usize,
    /// Handed to the driver to close, not closed yet.
    pub closing: usize,
    /// Acquirers in the queues.
    pub waiting: usize,
    /// The bound of `live`.
    pub total_max: usize,
}

/// Figures behind [`KeyStats`]. Written by the ledger under its lock, read by any thread.
#[derive(Debug)]
pub(crate) struct KeyFigures {
    pub(crate) live: AtomicUsize,
    pub(crate) opening: AtomicUsize,
    pub(crate) closing: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) max: AtomicUsize,
    pub(crate) min_idle: AtomicUsize,
    /// Leases handed out by the ledger; those of the other path are counted in the stripes.
    pub(crate) acquired: AtomicU64,
    pub(crate) created: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl KeyFigures {
    pub(crate) fn new(limits: &KeyLimits) -> Self {
        Self {
            live: AtomicUsize::new(0),
            opening: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            max: AtomicUsize::new(limits.max),
            min_idle: AtomicUsize::new(limits.min_idle),
            acquired: AtomicU64::new(0),
            created: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn read(&self, idle: usize) -> KeyStats {
        let opening = self.opening.load(Ordering::Relaxed);
        let closing = self.closing.load(Ordering::Relaxed);
        KeyStats {
            idle,
            leased: self.live.load(Ordering::Relaxed).saturating_sub(idle + opening + closing),
            opening,
            closing,
            waiting: self.waiting.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            min_idle: self.min_idle.load(Ordering::Relaxed),
        }
    }

    /// `acquired` counts the leases that bypassed the ledger.
    pub(crate) fn read_counters(&self, acquired: u64) -> KeyCounters {
        KeyCounters {
            acquired: acquired + self.acquired.load(Ordering::Relaxed),
            created: self.created.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

/// Figures behind [`PoolStats`]. Written by the ledger under its lock, read by any thread.
#[derive(Debug)]
pub(crate) struct PoolFigures {
    pub(crate) live: AtomicUsize,
    pub(crate) opening: AtomicUsize,
    pub(crate) closing: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) total_max: AtomicUsize,
}

impl PoolFigures {
    pub(crate) fn new(total_max: usize) -> Self {
        Self {
            live: AtomicUsize::new(0),
            opening: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            total_max: AtomicUsize::new(total_max),
        }
    }

    pub(crate) fn read(&self) -> PoolStats {
        PoolStats {
            live: self.live.load(Ordering::Relaxed),
            opening: self.opening.load(Ordering::Relaxed),
            closing: self.closing.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            total_max: self.total_max.load(Ordering::Relaxed),
        }
    }
}

/// Adds one to a figure that only the holder of the ledger's lock writes: a load and a store, no
/// locked instruction.
pub(crate) fn bump(figure: &AtomicU64) {
    figure.store(figure.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
