//! Metrics of transactions.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::telemetry::Registry;

/// Upper bounds in seconds: from a commit in memory to one that waited for a disk, or for others.
const DURATION_BUCKETS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0,
    10.0,
];

/// Upper bounds of the number of transactions that were committed together.
const GROUP_BUCKETS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Metrics of transactions. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct StoreMetrics {
    duration: Family<StoreLabels, Histogram, fn() -> Histogram>,
    errors: Family<StoreLabels, Counter>,
    retries: Family<StoreLabels, Counter>,
    group: Histogram,
}

/// The name is one of those in the code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    name: &'static str,
}

impl StoreMetrics {
    pub(super) fn new(registry: &mut Registry) -> StoreMetrics {
        let duration: Family<StoreLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        let metrics = StoreMetrics {
            duration,
            errors: Family::default(),
            retries: Family::default(),
            group: Histogram::new(GROUP_BUCKETS),
        };
        registry.register_with_unit(
            "cove_store_transaction_duration",
            "Time from handing over a transaction to its commit, waiting included",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "cove_store_transaction_errors",
            "Transactions that were not committed",
            metrics.errors.clone(),
        );
        registry.register(
            "cove_store_transaction_retries",
            "Transactions that were run again, having lost against others or the connection",
            metrics.retries.clone(),
        );
        registry.register(
            "cove_store_group_size",
            "Write transactions that were committed together",
            metrics.group.clone(),
        );
        metrics
    }

    pub(super) fn finished(&self, name: &'static str, took: Duration, committed: bool) {
        let labels = StoreLabels { name };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
        if !committed {
            self.errors.get_or_create(&labels).inc();
        }
    }

    pub(super) fn retried(&self, name: &'static str) {
        self.retries.get_or_create(&StoreLabels { name }).inc();
    }

    pub(super) fn committed_together(&self, count: usize) {
        self.group.observe(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    }
}
