//! Traces: the parts of a request as spans, which are sent to an OpenTelemetry collector.
//!
//! A [`Tracer`] exists only if traces are on. The HTTP shell requests from it the first [`Span`] of
//! a request, whose context comes from the request's `traceparent` ([`TraceContext`]) or is new,
//! and runs the handler within it. Functions that the handler calls begin spans by [`span`] without
//! access to a tracer: the scope belongs to the task ([`current`]). It continues in tasks of
//! [`crate::task::to_the_end`], whose caller waits for them, and in no others: work that outlasts
//! its request takes the scope along by itself ([`TraceScope`]).
//!
//! A span that ends is put into a bounded queue without waiting: spans that do not fit are dropped
//! and counted. [`TraceExporter`] sends batches of the queue.
//!
//! Without a tracer, each of these functions reads one variable of the task and returns.
//!
//! The protocol is implemented here rather than taken from crates: `opentelemetry`, its SDK,
//! `opentelemetry-otlp` and `tracing-opentelemetry` add 11 packages to the tree, and 13 with an
//! HTTP client (`cargo tree`, November 2026), for one JSON document and one loop. The HTTP client,
//! gzip and JSON are here already, and a trace has to pass through places that are no `tracing`
//! spans: queues in databases, relay threads, sockets of sandboxes.
//!
//! # References
//! - <https://www.w3.org/TR/trace-context/>
//! - <https://opentelemetry.io/docs/specs/otel/trace/sdk/>
//! - <https://opentelemetry.io/docs/specs/otlp/>

mod context;
mod exporter;
mod holders;
mod otlp;
mod sampler;
mod span;
mod sql;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use futures_util::future::Either;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::mpsc;

pub use self::context::{SpanId, TraceContext, TraceId, VARIABLE};
pub use self::exporter::{ExporterSettings, RunningExporter, TraceExporter};
pub use self::holders::HolderTrace;
use self::holders::HolderTraces;
pub use self::otlp::TraceResource;
pub use self::sampler::TraceSampler;
use self::span::SpanRecord;
pub use self::span::{Span, SpanKind, SpanValue};
pub use self::sql::CommentTail;
use crate::telemetry::Registry;

tokio::task_local! {
    /// Position of the task in a trace.
    static CURRENT: TraceScope;
}

/// Time for the last spans when a server ends: an unreachable collector must not delay it.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Settings of a tracer.
#[derive(Clone, Debug)]
pub struct TracerSettings {
    /// Decides about traces without an earlier decision.
    pub sampler: TraceSampler,
    /// Maximum number of spans that wait to be sent; further ones are dropped.
    pub queue_spans_max: usize,
    /// True if spans of statements include their text, as far as the audit does.
    pub has_statements: bool,
    /// Exporter of the spans.
    pub exporter: ExporterSettings,
}

/// Creates spans. Cheap to clone.
#[derive(Clone)]
pub struct Tracer(Arc<TracerShared>);

struct TracerShared {
    sampler: TraceSampler,
    has_statements: bool,
    queue: mpsc::Sender<SpanRecord>,
    counters: TraceCounters,
    holders: HolderTraces,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("sampler", &self.0.sampler).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Creates a tracer, and the exporter of its spans, which the caller has to run.
    #[must_use]
    pub fn new(settings: TracerSettings, registry: &mut Registry) -> (Tracer, TraceExporter) {
        let TracerSettings { sampler, queue_spans_max, has_statements, exporter } = settings;
        let (queue, waiting) = mpsc::channel(queue_spans_max.max(1));
        let counters = TraceCounters::new(registry);
        let exporter = TraceExporter::new(exporter, waiting, counters.clone());
        let holders = HolderTraces::default();
        let shared = TracerShared { sampler, has_statements, queue, counters, holders };
        (Tracer(Arc::new(shared)), exporter)
    }

    /// Begins the first span of a trace here: of one that comes from elsewhere, or of a new one. If
    /// the trace is not recorded, the span only has a context, which is passed on.
    pub fn begin(&self, name: &'static str, kind: SpanKind, remote: Option<TraceContext>) -> Span {
        let Some(span_id) = random().and_then(SpanId::new) else { return Span::none() };
        let (context, parent) = match remote {
            Some(remote) if remote.is_sampled => {
                let parent = remote.span_id;
                (TraceContext { span_id, ..remote }, Some(parent))
            }
            // No span is created here, so the caller's span is the parent of later spans.
            Some(remote) => (remote, None),
            None => {
                let Some(trace_id) = random().and_then(TraceId::new) else { return Span::none() };
                let is_sampled = self.0.sampler.takes(trace_id);
                (TraceContext { trace_id, span_id, is_sampled, state: None }, None)
            }
        };
        Span::new(TraceScope { tracer: self.clone(), context }, name, kind, parent)
    }

    /// Returns the scope of a context that was stored before.
    #[must_use]
    pub fn scope(&self, context: TraceContext) -> TraceScope {
        TraceScope { tracer: self.clone(), context }
    }

    /// Returns the trace of the work that uses a sandbox now, if it is recorded.
    #[must_use]
    pub fn of_holder(&self, holder: &str) -> Option<TraceScope> {
        self.0.holders.latest(holder).map(|context| self.scope(context))
    }

    /// Returns whether spans of statements may include their text.
    #[must_use]
    pub fn has_statements(&self) -> bool {
        self.0.has_statements
    }

    /// Puts a span that has ended into the queue, or counts it as dropped.
    fn submit(&self, record: SpanRecord) {
        if self.0.queue.try_send(record).is_err() {
            self.0.counters.add(SpanOutcome::Dropped, 1);
        }
    }
}

/// Position in a trace, for spans within it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TraceScope {
    tracer: Tracer,
    context: TraceContext,
}

impl TraceScope {
    /// Returns the context.
    #[must_use]
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Begins a span here; an empty one if the trace is not recorded.
    pub fn span(&self, name: &'static str, kind: SpanKind) -> Span {
        if !self.context.is_sampled {
            return Span::none();
        }
        let Some(span_id) = random().and_then(SpanId::new) else { return Span::none() };
        let parent = Some(self.context.span_id);
        let context = TraceContext { span_id, ..self.context.clone() };
        Span::new(TraceScope { tracer: self.tracer.clone(), context }, name, kind, parent)
    }

    /// Makes a sandbox a part of this trace until the returned value is dropped; none if the trace
    /// is not recorded.
    #[must_use]
    pub fn bind(&self, holder: &str) -> Option<HolderTrace> {
        let is_recorded = self.context.is_sampled;
        is_recorded.then(|| HolderTrace::new(&self.tracer, holder, self.context.clone()))
    }
}

/// Returns the position in a trace of the current task, if it has one.
#[must_use]
pub fn current() -> Option<TraceScope> {
    CURRENT.try_with(TraceScope::clone).ok()
}

/// Calls a function with that position.
pub(crate) fn with_current<T>(read: impl FnOnce(&TraceScope) -> T) -> Option<T> {
    CURRENT.try_with(read).ok()
}

/// Begins a span of the current task within its trace; an empty one if nothing is recorded.
pub fn span(name: &'static str) -> Span {
    with_current(|scope| scope.span(name, SpanKind::Internal)).unwrap_or_else(Span::none)
}

/// Writes the context of the current task into the headers of an outgoing request. Without a
/// context they are unchanged.
pub fn write_current(headers: &mut HeaderMap) {
    with_current(|scope| scope.context.write(headers));
}

/// Runs a future as a part of a trace, or unchanged without a scope.
pub fn in_scope<F: Future>(
    scope: Option<TraceScope>,
    future: F,
) -> impl Future<Output = F::Output> {
    match scope {
        None => Either::Left(future),
        Some(scope) => Either::Right(CURRENT.scope(scope, future)),
    }
}

/// Returns random bytes for an id. They come from the kernel, because programs in sandboxes see
/// ids, and must not be able to predict those of others.
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Outcome of an ended span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanOutcome {
    /// The collector received it.
    Exported,
    /// The queue was full.
    Dropped,
    /// The span could not be sent.
    Failed,
    /// The collector rejected it.
    Rejected,
}

impl SpanOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            SpanOutcome::Exported => "exported",
            SpanOutcome::Dropped => "dropped",
            SpanOutcome::Failed => "failed",
            SpanOutcome::Rejected => "rejected",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Spans by outcome.
#[derive(Clone, Debug, Default)]
struct TraceCounters(Family<OutcomeLabels, Counter>);

impl TraceCounters {
    fn new(registry: &mut Registry) -> TraceCounters {
        let counters = TraceCounters::default();
        for outcome in [
            SpanOutcome::Exported,
            SpanOutcome::Dropped,
            SpanOutcome::Failed,
            SpanOutcome::Rejected,
        ] {
            counters.add(outcome, 0);
        }
        let help = "Spans of traces by what became of them: sent (exported), without room in the \
                    queue (dropped), not sent (failed), not wanted by the collector (rejected)";
        registry.register("cove_trace_spans", help, counters.0.clone());
        counters
    }

    fn add(&self, outcome: SpanOutcome, count: usize) {
        let labels = OutcomeLabels { outcome: outcome.as_str() };
        self.0.get_or_create(&labels).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    #[cfg(test)]
    fn count(&self, outcome: SpanOutcome) -> u64 {
        self.0.get_or_create(&OutcomeLabels { outcome: outcome.as_str() }).get()
    }
}
