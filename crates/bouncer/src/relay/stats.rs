//! Counters of a relay thread: relaxed atomics that only the thread writes and any thread reads.
//!
//! A counter is read and written back without a locked instruction, because there is one writer.
//! Readers eventually see every value; sums over threads are not a consistent snapshot.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use pooler_core::link::ErrorTally;
use serde::{Deserialize, Serialize};

use crate::tenants::TenantId;

/// Number that only one thread changes.
#[derive(Debug, Default)]
pub struct ThreadCounter(AtomicU64);

impl ThreadCounter {
    /// Returns the current value.
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `amount`. Only the owning thread may call this.
    pub fn add(&self, amount: u64) {
        self.0.store(self.load().wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts `amount`. Only the owning thread may call this.
    pub fn sub(&self, amount: u64) {
        self.0.store(self.load().saturating_sub(amount), Ordering::Relaxed);
    }
}

/// Buckets in each power of two: values are precise to 1/16.
const STEPS: usize = 16;
const STEP_BITS: u32 = 4;
/// Powers of two above the first range, which has buckets of 1; the last one ends at 2^36 µs, 19
/// hours.
const POWERS: usize = 32;
const BUCKETS: usize = STEPS * (POWERS + 1);

/// Histogram of durations: log-linear, in microseconds.
#[derive(Debug)]
pub struct DurationHistogram {
    buckets: [ThreadCounter; BUCKETS],
    sum_us: ThreadCounter,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        DurationHistogram {
            buckets: [const { ThreadCounter(AtomicU64::new(0)) }; BUCKETS],
            sum_us: ThreadCounter::default(),
        }
    }
}

impl DurationHistogram {
    /// Counts one duration. Only the owning thread may call this.
    pub fn record(&self, us: u64) {
        self.buckets[bucket(us)].add(1);
        self.sum_us.add(us);
    }

    /// Adds the counts to `total`.
    pub fn add_to(&self, total: &mut DurationDistribution) {
        for (to, from) in total.buckets.iter_mut().zip(&self.buckets) {
            *to += from.load();
        }
        total.sum_us += self.sum_us.load();
    }
}

fn bucket(us: u64) -> usize {
    let power = (u64::BITS - us.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let step = usize::try_from(us >> power).unwrap_or(0);
    (power as usize * STEPS + step).min(BUCKETS - 1)
}

/// Returns the greatest value in `bucket`.
fn greatest(bucket: usize) -> u64 {
    let power = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - power * STEPS) as u64;
    ((step + 1) << power) - 1
}

/// A sum of histograms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DurationDistribution {
    buckets: Vec<u64>,
    sum_us: u64,
}

impl Default for DurationDistribution {
    fn default() -> Self {
        DurationDistribution { buckets: vec![0; BUCKETS], sum_us: 0 }
    }
}

impl DurationDistribution {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Returns the duration that `per_mille` of them did not exceed, in microseconds, precise to
    /// 1/16; `None` if there were no durations.
    pub fn percentile_us(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        let rank = (count * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, of_bucket) in self.buckets.iter().enumerate() {
            seen += of_bucket;
            if seen >= rank {
                return Some(greatest(bucket));
            }
        }
        None
    }

    /// Returns the counts since an earlier reading of the same histograms.
    #[must_use]
    pub fn since(&self, before: &DurationDistribution) -> DurationDistribution {
        let buckets = self.buckets.iter().zip(&before.buckets);
        DurationDistribution {
            buckets: buckets.map(|(now, before)| now.saturating_sub(*before)).collect(),
            sum_us: self.sum_us.saturating_sub(before.sum_us),
        }
    }

    /// Adds counts of another distribution with the same buckets.
    pub(crate) fn add(&mut self, other: &DurationDistribution) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*more);
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// Returns the number of durations up to `us`, to the precision of the buckets.
    pub fn at_most(&self, us: u64) -> u64 {
        self.buckets[..=bucket(us)].iter().sum()
    }
}

/// Counters of one thread for one tenant.
#[derive(Debug, Default)]
pub struct ThreadTenantStats {
    /// Clients that are logged in.
    pub clients: ThreadCounter,
    /// Clients that connected here and are served by another node.
    pub clients_passed: ThreadCounter,
    /// Clients that have logged in, since the start.
    pub logins: ThreadCounter,
    /// Clients that hold a server connection.
    pub clients_active: ThreadCounter,
    /// Clients that wait for a server connection.
    pub clients_waiting: ThreadCounter,
    /// Server connections in any state.
    pub servers: ThreadCounter,
    /// Server connections without a client.
    pub servers_idle: ThreadCounter,
    /// Transactions that ended.
    pub transactions: ThreadCounter,
    /// Statements that ended: requests with a `ReadyForQuery` of their own.
    pub queries: ThreadCounter,
    /// Bytes from clients.
    pub received_bytes: ThreadCounter,
    /// Bytes to clients.
    pub sent_bytes: ThreadCounter,
    /// Microseconds in which a server connection was held for a client.
    pub busy_us: ThreadCounter,
    /// Refusals because a queue was full or a wait too long.
    pub exhausted: ThreadCounter,
    /// Clients that left in the middle of a request or transaction.
    pub dirty_disconnects: ThreadCounter,
    /// Successful resets of server connections.
    pub resets: ThreadCounter,
    /// Server connections that were closed because they could not be reset.
    pub reset_failures: ThreadCounter,
    /// Server connections that were opened.
    pub opened: ThreadCounter,
    /// Failed attempts to open a server connection.
    pub open_failures: ThreadCounter,
    /// Cancel requests that were forwarded or answered.
    pub cancels: ThreadCounter,
    times: OnceLock<Box<TenantDurations>>,
    /// Number of times a server connection was kept beyond a transaction, by reason.
    pins: Mutex<BTreeMap<&'static str, u64>>,
    /// Errors that servers sent to clients. Locked for an error or a reader.
    errors: Mutex<ErrorTally>,
}

/// Durations, allocated when the first one is recorded: an unused tenant costs little.
#[derive(Debug, Default)]
pub struct TenantDurations {
    /// From the first byte of a request to its `ReadyForQuery`.
    pub query: DurationHistogram,
    /// From the lease of a server connection to its return.
    pub transaction: DurationHistogram,
    /// From the request for a server connection to its lease, for clients that had to wait.
    pub wait: DurationHistogram,
}

impl ThreadTenantStats {
    /// Returns the histograms, for recording.
    pub fn times(&self) -> &TenantDurations {
        self.times.get_or_init(Box::default)
    }

    /// Counts that a client keeps a server connection beyond a transaction.
    pub(crate) fn pinned(&self, reason: &'static str) {
        *self.pins.lock().entry(reason).or_default() += 1;
    }

    /// Returns the number of such events, by reason.
    pub fn pins(&self) -> BTreeMap<&'static str, u64> {
        self.pins.lock().clone()
    }

    /// Counts errors that servers sent to clients.
    pub(crate) fn failed(&self, errors: &ErrorTally) {
        self.errors.lock().absorb(errors);
    }

    /// Returns the number of errors that servers sent to clients.
    pub(crate) fn errors_count(&self) -> u64 {
        self.errors.lock().count()
    }

    /// Adds the errors that servers sent to clients to `total`.
    pub(crate) fn add_errors_to(&self, total: &mut ErrorTally) {
        total.absorb(&self.errors.lock());
    }

    /// Returns the histograms, if anything was recorded.
    pub fn times_seen(&self) -> Option<&TenantDurations> {
        self.times.get().map(Box::as_ref)
    }
}

/// Counters of one thread that belong to no tenant.
#[derive(Debug, Default)]
pub struct ThreadStats {
    /// Connections that were accepted here or dealt to this thread.
    pub accepted: ThreadCounter,
    /// Connections that ended before their login was complete.
    pub logins_failed: ThreadCounter,
    /// Connections that are logging in.
    pub logins: ThreadCounter,
    /// Client connections, logged in or not.
    pub clients: ThreadCounter,
    /// Server connections.
    pub servers: ThreadCounter,
    /// Iterations of the loop.
    pub turns: ThreadCounter,
    /// Events that were handled in them.
    pub events: ThreadCounter,
}

/// All counters of one thread.
#[derive(Debug, Default)]
pub struct ThreadCounters {
    /// Counters that belong to no tenant.
    pub stats: ThreadStats,
    /// Locked when a client logs in or a reader needs it, never by a query.
    tenants: RwLock<HashMap<TenantId, Arc<ThreadTenantStats>>>,
}

impl ThreadCounters {
    /// Returns the counters of a tenant.
    pub fn tenant(&self, id: TenantId) -> Arc<ThreadTenantStats> {
        if let Some(stats) = self.tenants.read().get(&id) {
            return Arc::clone(stats);
        }
        Arc::clone(self.tenants.write().entry(id).or_default())
    }

    /// Returns the counters of a tenant, if it has any.
    pub fn known(&self, id: TenantId) -> Option<Arc<ThreadTenantStats>> {
        self.tenants.read().get(&id).cloned()
    }

    /// Forgets tenants without users of their counters that `is_kept` does not keep.
    pub(crate) fn keep_only(&self, is_kept: impl Fn(TenantId) -> bool) {
        self.tenants.write().retain(|id, stats| is_kept(*id) || Arc::strong_count(stats) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_known_to_a_sixteenth() {
        let values = (0..4096).chain((12..36).flat_map(|power| {
            let base = 1_u64 << power;
            [base - 1, base, base + 1, base + base / 3]
        }));
        let mut last = 0;
        for value in values {
            let bucket = bucket(value);
            assert!(bucket >= last || value < 1 << 20, "{value}");
            last = bucket;
            let greatest = greatest(bucket);
            assert!(greatest >= value, "{value} in {bucket} to {greatest}");
            assert!(greatest - value <= value / 16, "{value} in {bucket} to {greatest}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_come_from_the_ranks() {
        let histogram = DurationHistogram::default();
        for value in 1..=1000 {
            histogram.record(value);
        }
        let mut total = DurationDistribution::default();
        assert_eq!(total.percentile_us(500), None);
        histogram.add_to(&mut total);
        assert_eq!(total.count(), 1000);
        assert_eq!(total.sum_us(), 500_500);
        for per_mille in [1, 10, 500, 950, 990, 1000] {
            let value = total.percentile_us(per_mille).expect("some");
            assert!(value >= per_mille && value <= per_mille + per_mille / 16, "{per_mille}");
        }
        assert_eq!(total.at_most(15), 15);
    }
}
