//! Metrics of sessions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::SandboxCounts;
use node::telemetry::{DURATION_BUCKETS, Registry};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::interpreter::InterpreterMetrics;
use crate::model::{TokenCounts, UsageTotals};

/// Operations with a histogram: ways to get a sandbox, and others that take time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedOperation {
    /// Created from a prepared sandbox with the agent's files.
    CreateReady,
    /// Created from a prepared sandbox with a running agent.
    CreateAgentReady,
    /// Created without a prepared sandbox.
    CreateFresh,
    /// Resumed in its live sandbox.
    ResumeWarm,
    /// Resumed from its disk on this server.
    ResumeLocal,
    /// Resumed from the object store.
    ResumeRemote,
    /// A message, from its arrival to the first event of the agent.
    FirstEvent,
    /// A message, from its arrival until it is sent to the agent.
    TurnStart,
    /// A command, from the request to its end.
    Exec,
}

const TIMED: usize = 9;

impl TimedOperation {
    const ALL: [TimedOperation; TIMED] = [
        TimedOperation::CreateReady,
        TimedOperation::CreateAgentReady,
        TimedOperation::CreateFresh,
        TimedOperation::ResumeWarm,
        TimedOperation::ResumeLocal,
        TimedOperation::ResumeRemote,
        TimedOperation::FirstEvent,
        TimedOperation::TurnStart,
        TimedOperation::Exec,
    ];

    /// Returns the operation and path labels.
    fn labels(self) -> TimedLabels {
        let (operation, path) = match self {
            TimedOperation::CreateReady => ("create", "ready"),
            TimedOperation::CreateAgentReady => ("create", "agent_ready"),
            TimedOperation::CreateFresh => ("create", "fresh"),
            TimedOperation::ResumeWarm => ("resume", "warm"),
            TimedOperation::ResumeLocal => ("resume", "local"),
            TimedOperation::ResumeRemote => ("resume", "remote"),
            TimedOperation::FirstEvent => ("first_event", ""),
            TimedOperation::TurnStart => ("turn_start", ""),
            TimedOperation::Exec => ("exec", ""),
        };
        TimedLabels { operation, path }
    }

    fn place(self) -> usize {
        match self {
            TimedOperation::CreateReady => 0,
            TimedOperation::CreateAgentReady => 1,
            TimedOperation::CreateFresh => 2,
            TimedOperation::ResumeWarm => 3,
            TimedOperation::ResumeLocal => 4,
            TimedOperation::ResumeRemote => 5,
            TimedOperation::FirstEvent => 6,
            TimedOperation::TurnStart => 7,
            TimedOperation::Exec => 8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TimedLabels {
    operation: &'static str,
    path: &'static str,
}

/// Lifecycle events of a sandbox that its owner did not request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SandboxEvent {
    /// Evicted for another session.
    Evicted,
    /// Stopped because it was idle for too long.
    SweptIdle,
    /// The disk of a cold session was moved to the object store.
    SweptCold,
    /// Died by itself.
    Died,
    /// Found live at the server's startup.
    Recovered,
    /// Taken over from a lost node.
    TakenOver,
    /// Handed over to another node by this draining one.
    HandedOver,
    /// Frozen because the server's lease was over.
    Fenced,
}

impl SandboxEvent {
    fn label(self) -> &'static str {
        match self {
            SandboxEvent::Evicted => "evicted",
            SandboxEvent::SweptIdle => "swept_idle",
            SandboxEvent::SweptCold => "swept_cold",
            SandboxEvent::Died => "died",
            SandboxEvent::Recovered => "recovered",
            SandboxEvent::TakenOver => "taken_over",
            SandboxEvent::HandedOver => "handed_over",
            SandboxEvent::Fenced => "fenced",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CountedLabels {
    what: &'static str,
}

/// Metrics of restores from the object store. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoreMetrics {
    /// Pieces fetched from the object store during a restore.
    pub(crate) fetched: Counter,
    /// Pieces that had been fetched ahead.
    pub(crate) prefetched: Counter,
    /// Bytes prefetched for sessions of other nodes.
    pub(crate) prefetched_bytes: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PieceLabels {
    from: &'static str,
}

impl RestoreMetrics {
    fn new(registry: &mut Registry) -> RestoreMetrics {
        let pieces = Family::<PieceLabels, Counter>::default();
        let help = "Restored pieces of session disks, by source";
        registry.register("cove_session_restored_pieces", help, pieces.clone());
        let of = |from| pieces.get_or_create(&PieceLabels { from }).clone();
        let metrics = RestoreMetrics {
            fetched: of("objects"),
            prefetched: of("prefetched"),
            prefetched_bytes: Gauge::default(),
        };
        let help = "Files of other nodes' sessions that this server has fetched ahead";
        let bytes = metrics.prefetched_bytes.clone();
        registry.register_with_unit("cove_session_prefetched", help, Unit::Bytes, bytes);
        metrics
    }
}

/// Counters and histograms; each histogram is looked up once.
#[derive(Debug)]
pub(crate) struct SessionCounters {
    timed: [Histogram; TIMED],
    counted: Family<CountedLabels, Counter>,
    resumed: [AtomicU64; 3],
    prewarm_hits: AtomicU64,
    /// Numbers of begun turns and of ended commands.
    messages: AtomicU64,
    commands: AtomicU64,
    /// Metrics of restores from the object store.
    pub(crate) restores: RestoreMetrics,
    /// Metrics of the code interpreter.
    pub(crate) interpreter: Arc<InterpreterMetrics>,
}

impl SessionCounters {
    pub(crate) fn new(registry: &mut Registry) -> SessionCounters {
        let durations: Family<TimedLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        let timed =
            TimedOperation::ALL.map(|timed| durations.get_or_create(&timed.labels()).clone());
        let help = "Time of operations on sessions, by operation and variant";
        registry.register_with_unit("cove_session_duration", help, Unit::Seconds, durations);
        let counted = Family::<CountedLabels, Counter>::default();
        let help = "Evictions and deaths of sandboxes of sessions";
        registry.register("cove_session_sandbox_events", help, counted.clone());
        SessionCounters {
            timed,
            counted,
            resumed: Default::default(),
            prewarm_hits: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            restores: RestoreMetrics::new(registry),
            interpreter: Arc::new(InterpreterMetrics::new(registry)),
        }
    }

    pub(crate) fn took(&self, what: TimedOperation, time: Duration) {
        self.timed[what.place()].observe(time.as_secs_f64());
        let hits = match what {
            TimedOperation::ResumeWarm => &self.resumed[0],
            TimedOperation::ResumeLocal => &self.resumed[1],
            TimedOperation::ResumeRemote => &self.resumed[2],
            TimedOperation::CreateReady | TimedOperation::CreateAgentReady => &self.prewarm_hits,
            TimedOperation::TurnStart => &self.messages,
            TimedOperation::Exec => &self.commands,
            TimedOperation::CreateFresh | TimedOperation::FirstEvent => return,
        };
        hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, what: SandboxEvent) {
        self.counted.get_or_create(&CountedLabels { what: what.label() }).inc();
    }

    /// Returns the numbers of begun turns and of ended commands since the start.
    pub(crate) fn messages_and_commands(&self) -> (u64, u64) {
        (self.messages.load(Ordering::Relaxed), self.commands.load(Ordering::Relaxed))
    }

    /// Fills in the counters.
    pub(crate) fn fill(&self, counts: &mut SandboxCounts) {
        let [warm, local, remote] = &self.resumed;
        counts.resumed_warm = warm.load(Ordering::Relaxed);
        counts.resumed_local = local.load(Ordering::Relaxed);
        counts.resumed_remote = remote.load(Ordering::Relaxed);
        counts.prewarm_hits = self.prewarm_hits.load(Ordering::Relaxed);
    }
}

/// Gauges of sandboxes, evaluated on collection.
pub(crate) struct SandboxGauges<F> {
    pub(crate) counts: F,
    /// Setting `sessions.resident_max`.
    pub(crate) resident_max: usize,
}

impl<F> fmt::Debug for SandboxGauges<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

impl<F: Fn() -> SandboxCounts + Send + Sync + 'static> Collector for SandboxGauges<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = (self.counts)();
        let mut gauge = |name: &str, help: &str, value: usize| {
            let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            value.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        gauge("cove_session_sandboxes_warming", "Sandboxes being created", counts.warming)?;
        gauge("cove_session_sandboxes_warm", "Unused sandboxes", counts.warm)?;
        gauge("cove_session_sandboxes_running", "Sandboxes at work", counts.running)?;
        gauge("cove_session_sandboxes_waiting", "Sandboxes that wait for work", counts.waiting)?;
        gauge("cove_session_sandboxes_cold", "Cold sessions kept on this server", counts.cold)?;
        let help = "Most sandboxes that may be there at one time";
        gauge("cove_session_sandboxes_resident_max", help, self.resident_max)?;
        let help = "Most sandboxes and cold sessions that are kept on this server";
        gauge("cove_session_sandboxes_capacity", help, counts.capacity)?;
        let help = "Sessions that were resumed";
        let resumed = counts.resumed_warm + counts.resumed_local + counts.resumed_remote;
        let value = ConstCounter::new(resumed);
        value.encode(encoder.encode_descriptor(
            "cove_sessions_resumed",
            help,
            None,
            MetricType::Counter,
        )?)
    }
}

/// Collector of model usage metrics.
pub(crate) struct ModelUse {
    tally: Arc<UsageTotals>,
    /// Prefix of the metric names, which depends on the kind of requests.
    prefix: &'static str,
    whose: &'static str,
}

impl ModelUse {
    /// Creates the collector for agents.
    pub(crate) fn of_agents(tally: Arc<UsageTotals>) -> ModelUse {
        ModelUse { tally, prefix: "cove_model", whose: "agents" }
    }

    /// Creates the collector for grants.
    pub(crate) fn of_grants(tally: Arc<UsageTotals>) -> ModelUse {
        ModelUse { tally, prefix: "cove_gateway_model", whose: "grants" }
    }
}

impl fmt::Debug for ModelUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelUse")
    }
}

impl Collector for ModelUse {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let TokenCounts { requests, failed, input, output, cache_creation, cache_read } =
            self.tally.so_far();
        let (prefix, whose) = (self.prefix, self.whose);
        let mut counter = |name: &str, help: &str, value: u64| {
            let (name, value) = (format!("{prefix}_{name}"), ConstCounter::new(value));
            value.encode(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?)
        };
        counter("requests", &format!("Requests of {whose} to the model"), requests)?;
        counter("requests_failed", "Of them, those it did not answer", failed)?;
        counter("input_tokens", "Tokens that the model read", input)?;
        counter("output_tokens", "Tokens that the model wrote", output)?;
        let help = "Tokens that were put into the model's cache";
        counter("cache_creation_tokens", help, cache_creation)?;
        counter("cache_read_tokens", "Tokens read from the model's cache", cache_read)
    }
}
