//! Measurements, as one JSON document.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Broken;

const EXAMPLES_MAX: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Figures {
    latencies_us: Vec<f64>,
    connects_us: Vec<f64>,
    refused: u64,
    wrong: u64,
    examples: Vec<String>,
    seconds: f64,
    pub(crate) is_late: bool,
}

impl Figures {
    pub(crate) fn answered(&mut self, took: Duration) {
        self.latencies_us.push(took.as_secs_f64() * 1e6);
    }

    pub(crate) fn connected(&mut self, took: Duration) {
        self.connects_us.push(took.as_secs_f64() * 1e6);
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.seconds = time.as_secs_f64();
    }

    pub(crate) fn failed(&mut self, why: Broken) {
        let text = match why {
            Broken::Refused(text) => {
                self.refused += 1;
                text
            }
            Broken::Wrong(text) => {
                self.wrong += 1;
                text
            }
        };
        if self.examples.len() < EXAMPLES_MAX && !self.examples.contains(&text) {
            self.examples.push(text);
        }
    }

    pub(crate) fn add(&mut self, other: Figures) {
        self.latencies_us.extend(other.latencies_us);
        self.connects_us.extend(other.connects_us);
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.examples.extend(other.examples);
        self.examples.dedup();
        self.examples.truncate(EXAMPLES_MAX);
        self.seconds = self.seconds.max(other.seconds);
        self.is_late |= other.is_late;
    }

    pub(crate) fn document(mut self) -> Value {
        self.latencies_us.sort_by(f64::total_cmp);
        self.connects_us.sort_by(f64::total_cmp);
        let (asked, connects) = (&self.latencies_us, &self.connects_us);
        json!({
            "answers": asked.len(),
            "wrong": self.wrong,
            "refused": self.refused,
            "examples": self.examples,
            "is_late": self.is_late,
            "seconds": self.seconds,
            "p50_us": percentile(asked, 50),
            "p95_us": percentile(asked, 95),
            "p99_us": percentile(asked, 99),
            "max_us": asked.last(),
            "connects": connects.len(),
            "connect_p50_us": percentile(connects, 50),
            "connect_max_us": connects.last(),
            "cpu_us": cpu_us(),
        })
    }
}

/// Returns the smallest value that `percent` percent of the values do not exceed (nearest rank).
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the CPU time of all threads of this process, including logins.
fn cpu_us() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let whole = Duration::from_secs(u64::try_from(spent.tv_sec).unwrap_or(0));
    let rest = Duration::from_nanos(u64::try_from(spent.tv_nsec).unwrap_or(0));
    (whole + rest).as_secs_f64() * 1e6
}
