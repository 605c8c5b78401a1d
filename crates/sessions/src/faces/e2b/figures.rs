//! Processor, memory and disk usage of a sandbox, now and in the last hour.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use super::cpu_count;
use crate::error::SessionError;
use crate::service::Sessions;

/// Interval between samples of a running sandbox.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(15);
/// Maximum number of samples kept of a sandbox: one hour.
const SAMPLES_MAX: usize = 240;

/// Usage of a sandbox at one time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UsageSample {
    pub(super) at_ms: u64,
    pub(super) cpu_count: usize,
    /// Since the previous sample; 0 for the first one.
    pub(super) cpu_used_pct: f64,
    pub(super) memory_used: u64,
    pub(super) memory_total: u64,
    pub(super) disk_used: u64,
    pub(super) disk_total: u64,
}

/// Time span in milliseconds since 1970, bounds included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SamplePeriod {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
}

impl SamplePeriod {
    /// All time.
    pub(super) const ALWAYS: SamplePeriod = SamplePeriod { from_ms: 0, to_ms: u64::MAX };

    /// Returns whether a time is in the span.
    pub(super) fn has(self, at_ms: u64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms)
    }
}

/// Samples of one sandbox, oldest first.
#[derive(Debug, Default)]
pub(super) struct UsageSamples(Mutex<SampleHistory>);

#[derive(Debug, Default)]
struct SampleHistory {
    kept: VecDeque<UsageSample>,
    /// Time of the last sample, and CPU milliseconds until then.
    looked: Option<(u64, u64)>,
}

impl UsageSamples {
    /// Takes a sample now; none if the sandbox does not run.
    ///
    /// # Errors
    /// If there is no such session.
    pub(super) async fn take(
        &self,
        sessions: &Sessions,
        tenant: &str,
        id: &str,
        becomes: SampleUse,
    ) -> Result<Option<UsageSample>, SessionError> {
        let queries = sessions.queries()?;
        let Some(now) = queries.metrics(tenant, id).await? else { return Ok(None) };
        let session = queries.get(tenant, id).await?;
        let mut history = self.0.lock();
        let before = history.looked.replace((now.at_ms, now.cpu_ms));
        let cpu_used_pct = before.map_or(0.0, |(at_ms, cpu_ms)| {
            percent(now.cpu_ms.saturating_sub(cpu_ms), now.at_ms.saturating_sub(at_ms))
        });
        let sample = UsageSample {
            at_ms: now.at_ms,
            cpu_count: cpu_count(),
            cpu_used_pct,
            memory_used: now.memory_bytes,
            memory_total: session.limits.memory_bytes.unwrap_or(0),
            disk_used: now.disk_bytes,
            disk_total: now.disk_total_bytes,
        };
        if becomes == SampleUse::Kept {
            history.keep(sample.clone());
        }
        Ok(Some(sample))
    }

    /// Returns the kept samples of a period.
    pub(super) fn of(&self, period: SamplePeriod) -> Vec<UsageSample> {
        let history = self.0.lock();
        history.kept.iter().filter(|sample| period.has(sample.at_ms)).cloned().collect()
    }
}

/// Use of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleUse {
    /// Kept for an hour.
    Kept,
    /// Dropped with the answer.
    Shown,
}

impl SampleHistory {
    fn keep(&mut self, sample: UsageSample) {
        if self.kept.len() >= SAMPLES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(sample);
    }
}

/// Returns a part of a whole in per cent, with two decimals.
fn percent(part: u64, whole: u64) -> f64 {
    let hundredths = part.saturating_mul(10_000).checked_div(whole).unwrap_or(0);
    f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0
}

#[cfg(test)]
mod tests {
    //! Samples, and the number kept.

    use super::*;

    fn sample(at_ms: u64) -> UsageSample {
        UsageSample {
            at_ms,
            cpu_count: 1,
            cpu_used_pct: 0.0,
            memory_used: 0,
            memory_total: 0,
            disk_used: 0,
            disk_total: 0,
        }
    }

    #[test]
    fn parts_are_percents() {
        for (part, whole, expected) in [(0, 0, 0.0), (1, 3, 33.33), (2, 1, 200.0)] {
            assert!((percent(part, whole) - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn samples_of_a_time_are_found_and_the_oldest_are_forgotten() {
        let samples = UsageSamples::default();
        for at_ms in 1..=SAMPLES_MAX as u64 + 5 {
            samples.0.lock().keep(sample(at_ms));
        }
        assert_eq!(samples.of(SamplePeriod::ALWAYS).len(), SAMPLES_MAX);
        let times = |from_ms, to_ms| -> Vec<u64> {
            samples.of(SamplePeriod { from_ms, to_ms }).iter().map(|sample| sample.at_ms).collect()
        };
        assert_eq!(times(0, 7), [6, 7]);
        assert!(times(10, 9).is_empty());
        assert_eq!(times(11, 12), [11, 12]);
    }
}
