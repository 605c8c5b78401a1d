//! Checks of a server's dependencies.
//!
//! Services add checks; `/health/ready` runs all of them. It needs no token, so checks are run at
//! most once in [`CHECK_INTERVAL`], and reasons contain no secret.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::clock;
use crate::task::Boxed;
use crate::telemetry::Registry;

/// Time for which the outcome of all checks is valid.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time for one check.
pub const CHECK_MAX: Duration = Duration::from_secs(2);

/// A check: returns nothing, or the reason why the server is not ready.
type Check = Arc<dyn Fn() -> Boxed<'static, Result<(), String>> + Send + Sync>;

/// Source of the names of unfinished background work.
type Progress = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The checks of a server. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub struct ReadinessChecks(Arc<ReadinessShared>);

#[derive(Default)]
struct ReadinessShared {
    checks: Mutex<Vec<(&'static str, Check)>>,
    progress: Mutex<Vec<Progress>>,
    /// The last outcome. Locked while checks run, so that concurrent callers wait for one run.
    last: tokio::sync::Mutex<Option<CheckOutcome>>,
    /// Results of the last run of the checks, for the metrics.
    passed: Mutex<Vec<(&'static str, bool)>>,
}

struct CheckOutcome {
    at: Instant,
    missing: Vec<String>,
}

impl fmt::Debug for ReadinessChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.checks.lock().iter().map(|(name, _)| *name).collect();
        f.debug_tuple("Readiness").field(&names).finish()
    }
}

impl ReadinessChecks {
    /// Adds a check. `name` is its subject, such as `store`; the reason follows it.
    pub fn add(
        &self,
        name: &'static str,
        check: impl Fn() -> Boxed<'static, Result<(), String>> + Send + Sync + 'static,
    ) {
        self.0.checks.lock().push((name, Arc::new(check)));
    }

    /// Adds background work that makes the server slower, and not less ready.
    pub fn add_progress(&self, progress: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.0.progress.lock().push(Arc::new(progress));
    }

    /// Returns the names of unfinished background work.
    pub fn preparing(&self) -> Vec<String> {
        self.0.progress.lock().iter().flat_map(|progress| progress()).collect()
    }

    /// Returns the failed checks, as `name: reason`; none if the server is ready.
    pub async fn missing(&self) -> Vec<String> {
        let mut last = self.0.last.lock().await;
        let now = clock::now();
        if let Some(outcome) = &*last
            && now.duration_since(outcome.at) < CHECK_INTERVAL
        {
            return outcome.missing.clone();
        }
        let checks = self.0.checks.lock().clone();
        let runs = checks.into_iter().map(|(name, check)| async move {
            match tokio::time::timeout(CHECK_MAX, check()).await {
                Ok(Ok(())) => None,
                Ok(Err(reason)) => Some(format!("{name}: {reason}")),
                Err(_) => Some(format!("{name}: no answer within {} s", CHECK_MAX.as_secs())),
            }
        });
        let outcomes = futures_util::future::join_all(runs).await;
        let names = self.0.checks.lock().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        *self.0.passed.lock() =
            names.into_iter().zip(outcomes.iter().map(Option::is_none)).collect();
        let missing: Vec<String> = outcomes.into_iter().flatten().collect();
        *last = Some(CheckOutcome { at: clock::now(), missing: missing.clone() });
        missing
    }

    /// Adds `cove_ready` to the metrics: 1 for each check that passed in its last run, else 0. Only
    /// [`ReadinessChecks::missing`] runs them, so call it before the metrics are read.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(ReadinessFigures(self.clone())));
    }
}

#[derive(Debug)]
struct ReadinessFigures(ReadinessChecks);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReadinessLabels {
    check: &'static str,
}

impl Collector for ReadinessFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let passed = self.0.0.passed.lock().clone();
        // A family without samples must not be written.
        if passed.is_empty() {
            return Ok(());
        }
        let help = "1 if the check of /health/ready passed when it was last run, else 0";
        let mut family = encoder.encode_descriptor("cove_ready", help, None, MetricType::Gauge)?;
        for (check, passed) in passed {
            let value = ConstGauge::new(i64::from(passed));
            value.encode(family.encode_family(&ReadinessLabels { check })?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_named_with_its_reason() {
        let readiness = ReadinessChecks::default();
        assert!(readiness.missing().await.is_empty());
        let readiness = ReadinessChecks::default();
        readiness.add("store", || Box::pin(async { Ok(()) }));
        readiness.add("disk", || Box::pin(async { Err("it is full".to_owned()) }));
        readiness.add("queue", || Box::pin(std::future::pending()));
        assert_eq!(readiness.missing().await, ["disk: it is full", "queue: no answer within 2 s"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_say_which_check_failed() {
        let readiness = ReadinessChecks::default();
        readiness.add("store", || Box::pin(async { Ok(()) }));
        readiness.add("disk", || Box::pin(async { Err("it is full".to_owned()) }));
        let mut registry = Registry::default();
        readiness.register(&mut registry);
        let metrics = crate::telemetry::MetricsRegistry::new(registry);
        assert_eq!(metrics.render().unwrap(), "# EOF\n", "nothing has been checked yet");
        readiness.missing().await;
        let text = metrics.render().unwrap();
        assert!(text.contains("cove_ready{check=\"store\"} 1\n"), "{text}");
        assert!(text.contains("cove_ready{check=\"disk\"} 0\n"), "{text}");
    }

    #[tokio::test]
    async fn what_goes_on_in_the_background_is_named_and_nothing_is_missing() {
        let readiness = ReadinessChecks::default();
        assert_eq!(readiness.preparing(), [""; 0]);
        readiness.add_progress(|| vec!["go".to_owned()]);
        assert_eq!(readiness.preparing(), ["go"]);
        assert!(readiness.missing().await.is_empty());
    }

    #[tokio::test]
    async fn a_crowd_costs_one_run() {
        let readiness = ReadinessChecks::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        readiness.add("store", move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        });
        for _ in 0..100 {
            readiness.missing().await;
        }
        // A slow machine may take longer than an outcome is valid.
        assert!(runs.load(Ordering::Relaxed) < 100);
    }
}
