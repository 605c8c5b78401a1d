//! Metrics of this server's code interpreter.

use std::time::Duration;

use api::Verdict;
use node::telemetry::{DURATION_BUCKETS, Registry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::languages::CellLanguage;

/// Counters and gauges of cells, contexts and parked interpreters.
#[derive(Debug)]
pub(crate) struct InterpreterMetrics {
    cells: Family<CellLabels, Counter>,
    durations: Family<LanguageLabels, Histogram, fn() -> Histogram>,
    started: Family<OriginLabels, Counter>,
    contexts: Gauge,
    parked: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CellLabels {
    language: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LanguageLabels {
    language: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginLabels {
    language: &'static str,
    origin: &'static str,
}

/// Origin of a context's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextOrigin {
    /// Started as its own program.
    Fresh,
    /// Forked by the parked interpreter.
    Parked,
    /// Forked by another context.
    Context,
}

/// Adds one to a gauge until it is dropped.
#[derive(Debug)]
pub(super) struct GaugeShare(Gauge);

impl GaugeShare {
    fn of(gauge: &Gauge) -> GaugeShare {
        gauge.inc();
        GaugeShare(gauge.clone())
    }
}

impl Drop for GaugeShare {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl InterpreterMetrics {
    pub(crate) fn new(registry: &mut Registry) -> InterpreterMetrics {
        let metrics = InterpreterMetrics {
            cells: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            started: Family::default(),
            contexts: Gauge::default(),
            parked: Gauge::default(),
        };
        let help = "Cells that ended, by language and verdict";
        registry.register("cove_interpreter_cells", help, metrics.cells.clone());
        let (help, name) = ("Wall time of cells, by language", "cove_interpreter_cell_duration");
        registry.register_with_unit(name, help, Unit::Seconds, metrics.durations.clone());
        let help = "Started processes of contexts, by language and source";
        registry.register("cove_interpreter_contexts_started", help, metrics.started.clone());
        let help = "Contexts that have a process";
        registry.register("cove_interpreter_contexts", help, metrics.contexts.clone());
        let help = "Interpreters that wait in sandboxes to fork contexts";
        registry.register("cove_interpreter_parked", help, metrics.parked.clone());
        metrics
    }

    /// Counts an ended cell.
    pub(super) fn cell_ended(&self, language: CellLanguage, verdict: Verdict, wall: Duration) {
        let language = language.as_str();
        let labels = CellLabels { language, verdict: verdict.as_str() };
        self.cells.get_or_create(&labels).inc();
        self.durations.get_or_create(&LanguageLabels { language }).observe(wall.as_secs_f64());
    }

    /// Counts a context's process until the returned guard is dropped.
    pub(super) fn context_started(
        &self,
        language: CellLanguage,
        origin: ContextOrigin,
    ) -> GaugeShare {
        let origin = match origin {
            ContextOrigin::Fresh => "fresh",
            ContextOrigin::Parked => "parked",
            ContextOrigin::Context => "context",
        };
        let labels = OriginLabels { language: language.as_str(), origin };
        self.started.get_or_create(&labels).inc();
        GaugeShare::of(&self.contexts)
    }

    /// Counts a parked interpreter until the returned guard is dropped.
    pub(super) fn parked(&self) -> GaugeShare {
        GaugeShare::of(&self.parked)
    }
}
