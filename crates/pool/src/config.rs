//! Bounds of a pool: every bound has a name here and a defined answer when it is reached.

use std::time::Duration;

/// Number of threads that are expected to lease at the same moment. More cost a little memory per
/// key, fewer cost speed.
pub const STRIPES_DEFAULT: usize = 4;

/// More stripes than this only make statistics and eviction slower.
pub const STRIPES_MAX: usize = 64;

/// Bounds of a whole pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Resources over all keys, whatever state they are in: being opened, idle, leased or being
    /// closed.
    pub total_max: usize,
    /// Keys known at one time. See [`Pool::forget`](crate::Pool::forget).
    pub keys_max: usize,
    /// Waiting acquirers over all keys.
    pub waiters_max: usize,
    /// Threads expected to lease at the same moment; 1 makes last-in first-out reuse exact across
    /// threads. Clamped to 1..=[`STRIPES_MAX`].
    pub stripes: usize,
    /// Seed of the jitter of lifetimes. The pool has no other source of randomness.
    pub seed: u64,
    /// Bounds of a key for which none were named.
    pub key: KeyLimits,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            total_max: 1_000,
            keys_max: 10_000,
            waiters_max: 10_000,
            stripes: STRIPES_DEFAULT,
            seed: 0,
            key: KeyLimits::default(),
        }
    }
}

/// Bounds of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// Resources of this key, whatever state they are in.
    pub max: usize,
    /// Idle ones the pool keeps ready: it opens in the background to reach this, and does not close
    /// below it for idleness. For single-use resources this is the number prepared ahead.
    pub min_idle: usize,
    /// Waiting acquirers of this key.
    pub waiters_max: usize,
    /// An idle resource is closed after this long without use.
    pub idle_timeout: Duration,
    /// A resource is closed this long after it was opened, once it is not leased.
    pub lifetime_max: Duration,
    /// Up to this much is taken off each `lifetime_max` at random, so that resources opened
    /// together do not all close together.
    pub lifetime_jitter: Duration,
    /// Time that background opening rests after an open failed. An acquirer that waits is not held
    /// back by it.
    pub open_retry: Duration,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            max: 20,
            min_idle: 0,
            waiters_max: 1_000,
            idle_timeout: Duration::from_secs(300),
            lifetime_max: Duration::from_secs(1_800),
            lifetime_jitter: Duration::from_secs(180),
            open_retry: Duration::from_secs(1),
        }
    }
}

/// Tier by which an idle resource is given up when another key needs its place: the highest tier
/// goes first, and within a tier the least recently used one. A leased resource is never given up,
/// whatever its tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvictionTier(pub u8);
