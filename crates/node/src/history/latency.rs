//! Counters and durations that any thread records and a sampler reads, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps in each power of two: a duration is accurate to an eighth of itself.
const STEPS: usize = 8;
const STEP_BITS: u32 = 3;
/// Powers of two above the first, which counts by ones: the last one ends at 2^36 µs, 19 hours.
const POWERS: usize = 33;
const BUCKETS: usize = STEPS * (POWERS + 1);

/// Counter of events since the start.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Counts one event.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of events.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Histogram of durations: log-linear, in microseconds.
#[derive(Debug)]
pub struct LatencyHistogram([AtomicU64; BUCKETS]);

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl LatencyHistogram {
    /// Records one duration.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket(us)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

/// Reading of a histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts(Vec<u64>);

impl LatencyCounts {
    /// Returns the duration in seconds that `per_mille` of those recorded since `before` did not
    /// exceed, accurate to an eighth; none if none was recorded.
    #[must_use]
    pub fn percentile_since(&self, before: &LatencyCounts, per_mille: u64) -> Option<f64> {
        let since = |bucket: usize, count: u64| {
            count.saturating_sub(before.0.get(bucket).copied().unwrap_or(0))
        };
        let total: u64 = self.0.iter().enumerate().map(|(at, count)| since(at, *count)).sum();
        let rank = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (at, count) in self.0.iter().enumerate() {
            seen += since(at, *count);
            if seen >= rank {
                return Some(Duration::from_micros(greatest(at)).as_secs_f64());
            }
        }
        None
    }
}

fn bucket(us: u64) -> usize {
    let power = (u64::BITS - us.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let step = usize::try_from(us >> power).unwrap_or(0);
    (power as usize * STEPS + step).min(BUCKETS - 1)
}

/// Returns the greatest duration that `bucket` counts, in microseconds.
fn greatest(bucket: usize) -> u64 {
    let power = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - power * STEPS) as u64;
    ((step + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_known_to_an_eighth() {
        for value in (0..4096_u64).chain((12..36).flat_map(|power| {
            let base = 1_u64 << power;
            [base - 1, base, base + base / 3]
        })) {
            let greatest = greatest(bucket(value));
            assert!(greatest >= value && greatest - value <= value / 8, "{value} is {greatest}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_what_came_between_two_readings() {
        let histogram = LatencyHistogram::default();
        histogram.record(Duration::from_secs(5));
        let before = histogram.counts();
        assert_eq!(before.percentile_since(&before, 500), None);
        for ms in 1..=100 {
            histogram.record(Duration::from_millis(ms));
        }
        let after = histogram.counts();
        for (per_mille, expected) in [(10, 0.001), (500, 0.05), (950, 0.095), (1000, 0.1)] {
            let found = after.percentile_since(&before, per_mille).expect("some");
            assert!((expected..=expected * 1.126).contains(&found), "{per_mille}: {found}");
        }
        let all = after.percentile_since(&LatencyCounts::default(), 1000).expect("some");
        assert!(all >= 5.0, "{all}");
    }
}
