//! Metrics of executions.

use std::time::{Duration, Instant};

use api::{ErrorCode, ExecutionMode, Verdict};
use node::clock;
use node::telemetry::{DURATION_BUCKETS, Registry};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::activity::ActivityCounters;
use crate::admission::{Admission, AdmissionLoad};
use crate::cache::{CacheStats, CompileCache};
use crate::error::ExecutionError;

/// Parts of an execution whose duration is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedPart {
    /// Waiting for its turn.
    Queue,
    /// Waiting for a prepared sandbox.
    Sandbox,
    /// The compile stage.
    Compile,
    /// The run stage.
    Run,
    /// Total time, from the request to the answer.
    Total,
}

/// The counters and histograms. Those of the parts are looked up once, not for every execution.
#[derive(Debug)]
pub(crate) struct ExecutionMetrics {
    finished: Family<FinishedLabels, Counter>,
    refused: Family<RefusedLabels, Counter>,
    modes: Family<ModeLabels, Counter>,
    parts: [Histogram; 5],
    /// Counters for the server's history.
    pub(crate) activity: ActivityCounters,
}

/// Each has few values: languages come from the configuration, never from a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FinishedLabels {
    language: String,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabels {
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookupLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    stage: &'static str,
}

impl ExecutionMetrics {
    pub(crate) fn new(
        registry: &mut Registry,
        admission: &Admission,
        cache: &CompileCache,
    ) -> ExecutionMetrics {
        let finished = Family::<FinishedLabels, Counter>::default();
        let refused = Family::<RefusedLabels, Counter>::default();
        let modes = Family::<ModeLabels, Counter>::default();
        let durations: Family<PartLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        let parts = ["queue", "sandbox", "compile", "run", "total"]
            .map(|stage| durations.get_or_create(&PartLabels { stage }).clone());
        let help = "Executions that ended, by language and verdict";
        registry.register("cove_executions", help, finished.clone());
        let help = "Executions that were not run, by error code";
        registry.register("cove_executions_refused", help, refused.clone());
        let help = "Executions that ran, by speed mode";
        registry.register("cove_executions_mode", help, modes.clone());
        let help = "Time of the parts of an execution";
        registry.register_with_unit(
            "cove_execution_stage_duration",
            help,
            Unit::Seconds,
            durations,
        );
        registry.register_collector(Box::new(AdmissionGauges {
            admission: admission.clone(),
            cache: cache.clone(),
        }));
        ExecutionMetrics { finished, refused, modes, parts, activity: ActivityCounters::default() }
    }

    pub(crate) fn finished(&self, tenant: &str, language: &str, verdict: Verdict) {
        self.activity.ended(tenant, verdict, clock::now());
        let labels = FinishedLabels { language: language.to_owned(), verdict: verdict.as_str() };
        self.finished.get_or_create(&labels).inc();
    }

    pub(crate) fn mode(&self, mode: ExecutionMode) {
        self.modes.get_or_create(&ModeLabels { mode: mode.as_str() }).inc();
    }

    pub(crate) fn refused(&self, tenant: &str, error: &ExecutionError) {
        self.activity.refused(tenant, clock::now());
        let code = match error.code() {
            ErrorCode::UnknownLanguage => "unknown_language",
            ErrorCode::LanguageUnavailable => "language_unavailable",
            ErrorCode::TooManyRequests => "too_many_requests",
            ErrorCode::Overloaded => "overloaded",
            _ => "invalid_request",
        };
        self.refused.get_or_create(&RefusedLabels { code }).inc();
    }

    /// Records that `part` took from `since` until now; returns now.
    pub(crate) fn observe(&self, part: TimedPart, since: Instant) -> Instant {
        let now = clock::now();
        let took: Duration = now.duration_since(since);
        let index = match part {
            TimedPart::Queue => 0,
            TimedPart::Sandbox => 1,
            TimedPart::Compile => 2,
            TimedPart::Run => 3,
            TimedPart::Total => 4,
        };
        match part {
            TimedPart::Queue => self.activity.waited(took),
            TimedPart::Run => self.activity.ran(took),
            TimedPart::Sandbox | TimedPart::Compile | TimedPart::Total => {}
        }
        self.parts[index].observe(took.as_secs_f64());
        now
    }
}

/// Running and waiting executions, read on demand, so that no second count can be wrong.
#[derive(Debug)]
struct AdmissionGauges {
    admission: Admission,
    cache: CompileCache,
}

impl Collector for AdmissionGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let AdmissionLoad { running, waiting, memory_bytes } = self.admission.load();
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: u64| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
        };
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        gauge("cove_executions_running", "Executions that run", None, count(running))?;
        let running_max = self.admission.bounds().running_max;
        gauge("cove_executions_running_max", "Most that may run", None, count(running_max))?;
        gauge("cove_executions_waiting", "Executions that wait", None, count(waiting))?;
        gauge(
            "cove_executions_memory_reserved",
            "Sum of the memory limits of running programs",
            Some(&Unit::Bytes),
            memory_bytes,
        )?;
        let CacheStats { hits, joined, misses, entries, bytes } = self.cache.stats();
        gauge("cove_compile_cache_entries", "Programs in the compile cache", None, count(entries))?;
        gauge("cove_compile_cache", "What they take", Some(&Unit::Bytes), bytes)?;
        let help = "Requested compilations: cached, shared with one in progress, done";
        let mut encoder = encoder.encode_descriptor(
            "cove_compile_cache_lookups",
            help,
            None,
            MetricType::Counter,
        )?;
        for (result, count) in [("hit", hits), ("joined", joined), ("miss", misses)] {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_family(&LookupLabels { result })?)?;
        }
        Ok(())
    }
}
