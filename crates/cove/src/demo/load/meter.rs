//! Counts and times of one service's operations, and the pace at which they start.

use std::time::{Duration, Instant};

use node::clock;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::sleep;

use crate::cli::LoadService;

/// Steps per power of two: times are exact to 1/16.
const STEPS: u64 = 16;
/// Last step, for 32 powers of two of microseconds, which is more than an hour.
const STEP_LAST: usize = 32 * 16 - 1;
/// Characters of an error that are kept.
const FAILURE_CHARS_MAX: usize = 300;

/// Counts of operations by their time.
#[derive(Clone, Debug)]
struct TimeCounts {
    counts: Vec<u64>,
    max_us: u64,
}

impl Default for TimeCounts {
    fn default() -> TimeCounts {
        TimeCounts { counts: vec![0; STEP_LAST + 1], max_us: 0 }
    }
}

impl TimeCounts {
    fn add(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        self.max_us = self.max_us.max(us);
        self.counts[step_of(us)] += 1;
    }

    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the time within which a percentage of the operations ended, in milliseconds.
    fn percentile_ms(&self, percent: u64) -> u64 {
        let rank = (self.total() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_us(step).min(self.max_us).div_ceil(1000);
            }
        }
        0
    }
}

/// Returns the step of a time: the power of two below it, and its next four bits.
fn step_of(us: u64) -> usize {
    let power = us.ilog2();
    let below = ((us << 4) >> power) & 15;
    let step = usize::try_from(u64::from(power) * STEPS + below);
    step.map_or(STEP_LAST, |step| step.min(STEP_LAST))
}

/// Returns the largest time of a step.
fn upper_us(step: usize) -> u64 {
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    let (power, below) = (step / STEPS, step % STEPS);
    ((1 << power) * (STEPS + below + 1)).div_ceil(STEPS)
}

/// Counts of one line.
#[derive(Debug)]
pub(super) struct LineCounts {
    pub(super) operations: u64,
    pub(super) failures: u64,
    pub(super) p50_ms: u64,
    pub(super) p95_ms: u64,
}

/// Summary of a service's load.
#[derive(Debug, Serialize)]
pub(super) struct LoadSummary {
    pub(super) service: &'static str,
    pub(super) operations: u64,
    pub(super) failures: u64,
    pub(super) per_second: f64,
    pub(super) p50_ms: u64,
    pub(super) p95_ms: u64,
    pub(super) max_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_failure: Option<String>,
}

#[derive(Debug, Default)]
struct MeterState {
    line: TimeCounts,
    line_failures: u64,
    all: TimeCounts,
    failures: u64,
    last_failure: Option<String>,
    next: Option<Instant>,
}

/// Measures the operations of one service.
#[derive(Debug)]
pub(super) struct LoadMeter {
    service: LoadService,
    rate: f64,
    state: Mutex<MeterState>,
}

impl LoadMeter {
    pub(super) fn new(service: LoadService, rate: f64) -> LoadMeter {
        LoadMeter { service, rate, state: Mutex::default() }
    }

    pub(super) fn service(&self) -> LoadService {
        self.service
    }

    /// Waits until this caller's next request is due. Missed requests are not made up for.
    pub(super) async fn pace(&self) {
        let now = clock::now();
        let at = {
            let mut state = self.state.lock();
            let at = state.next.map_or(now, |next| next.max(now));
            state.next = Some(at + Duration::from_secs_f64(1.0 / self.rate));
            at
        };
        sleep(at.saturating_duration_since(now)).await;
    }

    /// Runs one operation and counts it; returns whether it succeeded.
    pub(super) async fn measure(&self, act: impl Future<Output = anyhow::Result<()>>) -> bool {
        let begun = clock::now();
        let outcome = act.await;
        let mut state = self.state.lock();
        match outcome {
            Ok(()) => {
                let took = begun.elapsed();
                state.line.add(took);
                state.all.add(took);
                true
            }
            Err(error) => {
                state.line_failures += 1;
                state.failures += 1;
                let message = format!("{error:#}");
                state.last_failure = Some(message.chars().take(FAILURE_CHARS_MAX).collect());
                false
            }
        }
    }

    /// Returns the counts since the previous call.
    pub(super) fn since_last_line(&self) -> LineCounts {
        let mut state = self.state.lock();
        let line = std::mem::take(&mut state.line);
        let failures = std::mem::take(&mut state.line_failures);
        LineCounts {
            operations: line.total(),
            failures,
            p50_ms: line.percentile_ms(50),
            p95_ms: line.percentile_ms(95),
        }
    }

    pub(super) fn summary(&self, ms: u64) -> LoadSummary {
        let state = self.state.lock();
        let operations = state.all.total();
        let seconds = Duration::from_millis(ms.max(1)).as_secs_f64();
        let per_second = u32::try_from(operations).map_or(f64::MAX, f64::from) / seconds;
        LoadSummary {
            service: self.service.name(),
            operations,
            failures: state.failures,
            per_second: (per_second * 10.0).round() / 10.0,
            p50_ms: state.all.percentile_ms(50),
            p95_ms: state.all.percentile_ms(95),
            max_ms: state.all.max_us.div_ceil(1000),
            last_failure: state.last_failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_times() {
        let mut counts = TimeCounts::default();
        assert_eq!((counts.total(), counts.percentile_ms(50)), (0, 0));
        for ms in 1..=100 {
            counts.add(Duration::from_millis(ms));
        }
        let (half, most) = (counts.percentile_ms(50), counts.percentile_ms(95));
        assert!((50..=54).contains(&half) && (95..=100).contains(&most), "{half} {most}");
        assert_eq!((counts.total(), counts.percentile_ms(100)), (100, 100));
        for us in [0, 1, 2, 3, 15, 16, 17, 1_000, 1 << 31, u64::MAX] {
            let mut one = TimeCounts::default();
            one.add(Duration::from_micros(us));
            assert_eq!(one.total(), 1, "{us}");
            let step = step_of(us.max(1));
            assert!(step == STEP_LAST || upper_us(step) >= us, "{us}");
        }
    }
}
