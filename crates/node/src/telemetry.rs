//! Logs and Prometheus metrics.
//!
//! Logs go to standard error, because standard output is for data. A service registers its metrics
//! with the [`Registry`] that it receives when it is built; the registry never changes afterwards.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
pub use prometheus_client::registry::Registry;
use prometheus_client::registry::Unit;
use serde::Deserialize;
pub use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::history::{LatencyCounts, LatencyHistogram, SharedCounter};
use crate::{clock, http, traces};

/// Clock ticks per second in `/proc/<pid>/stat`: USER_HZ, which is part of the kernel's ABI and 100
/// on every architecture that Cove runs on.
const USER_HZ: f64 = 100.0;

/// Upper bounds of the duration histograms, in seconds: from a fast answer to the longest run.
pub const DURATION_BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0,
    30.0,
];

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// JSON, an object per line.
    Json,
}

/// Log level of this process, which can be changed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogLevelControl(reload::Handle<LevelFilter, LogRegistry>);

/// Registry that log lines pass through first.
type LogRegistry = tracing_subscriber::Registry;

impl LogLevelControl {
    /// Writes lines of `level` and above from now on.
    pub fn set(&self, level: LevelFilter) {
        // It fails only when logging has ended, and then the error cannot be logged.
        drop(self.0.modify(|current| *current = level));
    }
}

/// Sends log lines of `level` and above to standard error, in colour if `has_colours`.
///
/// # Errors
/// If logging was set up before.
pub fn init_logs(
    format: LogFormat,
    level: LevelFilter,
    has_colours: bool,
) -> Result<LogLevelControl, Box<dyn std::error::Error + Send + Sync>> {
    let (level, control) = reload::Layer::new(level);
    let registry = LogRegistry::default().with(level);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(has_colours).with_target(false);
            let lines = lines.map_event_format(|lines| TracedLines { lines, format });
            registry.with(lines).try_init()
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_ansi(false);
            let lines = lines.map_event_format(|lines| TracedLines { lines, format });
            registry.with(lines).try_init()
        }
    }?;
    Ok(LogLevelControl(control))
}

/// Returns an error with its causes on one line, for logs and clients.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Adds trace ids to the log lines of traced work.
struct TracedLines<F> {
    lines: F,
    format: LogFormat,
}

impl<S, N, F> FormatEvent<S, N> for TracedLines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let ids = traces::with_current(|scope| {
            let context = scope.context();
            (context.trace_id, context.span_id)
        });
        let Some((trace, span)) = ids else {
            return self.lines.format_event(context, writer, event);
        };
        // Colours for terminals are lost on these lines.
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        match (self.format, line.strip_suffix("}\n"), line.strip_suffix('\n')) {
            (LogFormat::Json, Some(object), _) => {
                writeln!(writer, r#"{object},"trace_id":"{trace}","span_id":"{span}"}}"#)
            }
            (LogFormat::Text, _, Some(text)) => {
                writeln!(writer, "{text} trace_id={trace} span_id={span}")
            }
            (_, _, _) => writer.write_str(&line),
        }
    }
}

/// Registered metrics, ready for `/metrics`.
#[derive(Clone, Debug)]
pub struct MetricsRegistry(Arc<Registry>);

impl MetricsRegistry {
    /// Closes the registry: it is read-only afterwards.
    pub fn new(registry: Registry) -> MetricsRegistry {
        MetricsRegistry(Arc::new(registry))
    }

    /// Returns the current figures in the OpenMetrics text format, which Prometheus reads.
    ///
    /// # Errors
    /// If a collector fails.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 << 10);
        prometheus_client::encoding::text::encode(&mut text, &self.0)?;
        Ok(text)
    }

    /// Returns the answer to `GET /metrics`: as OpenMetrics, or in Prometheus' older text format
    /// for clients that accept text and do not accept OpenMetrics.
    pub fn response(&self, headers: &HeaderMap) -> Response {
        const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
        let accepts = |kind: &str| {
            let values = headers.get_all(header::ACCEPT).iter();
            let mut texts = values.filter_map(|value| value.to_str().ok());
            texts.any(|text| text.to_ascii_lowercase().contains(kind))
        };
        let is_classic = accepts("text/plain") && !accepts("application/openmetrics-text");
        match self.render() {
            Ok(text) if is_classic => {
                ([(header::CONTENT_TYPE, CLASSIC)], classic(&text)).into_response()
            }
            Ok(text) => ([(header::CONTENT_TYPE, OPEN)], text).into_response(),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to render metrics"
                );
                http::HttpError::internal().into_response()
            }
        }
    }
}

/// OpenMetrics in the text format 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>):
/// families have the names of their samples, and there are no `UNIT` lines and no `EOF` line.
fn classic(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    // A family's help precedes its type, which determines its name here.
    let mut help = None;
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            lines.push_str(line);
            lines.push('\n');
            continue;
        };
        let mut fields = comment.splitn(3, ' ');
        match (fields.next(), fields.next(), fields.next()) {
            (Some("HELP"), Some(_), Some(about)) => help = Some(about.replace("\\\"", "\"")),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (name, kind) = match kind {
                    "counter" => (format!("{name}_total"), "counter"),
                    "info" => (format!("{name}_info"), "gauge"),
                    "unknown" => (name.to_owned(), "untyped"),
                    other => (name.to_owned(), other),
                };
                if let Some(about) = help.take() {
                    lines.push_str(&format!("# HELP {name} {about}\n"));
                }
                lines.push_str(&format!("# TYPE {name} {kind}\n"));
            }
            _ => {}
        }
    }
    lines
}

/// Creates a registry with the metrics that every server has: its process and its build.
pub fn registry(version: &'static str) -> Registry {
    let mut registry = Registry::default();
    let labels = BuildLabels { version };
    let build = Family::<BuildLabels, Gauge>::default();
    build.get_or_create(&labels).set(1);
    registry.register("cove_build_info", "The version that runs", build);
    let started_s = clock::wall().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    registry.register_collector(Box::new(ProcessMetrics { started_s: started_s.as_secs_f64() }));
    registry
}

/// Registers a metric that names this node of a cluster, for joins with all others.
pub fn register_node(registry: &mut Registry, node: &str, zone: &str) {
    let labels = NodeLabels { node: node.to_owned(), zone: zone.to_owned() };
    let info = Family::<NodeLabels, Gauge>::default();
    info.get_or_create(&labels).set(1);
    registry.register("cove_node_info", "The node of a cluster, and its zone", info);
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
    zone: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The process metrics Prometheus clients agree on, read from `/proc/self` when they are scraped.
#[derive(Debug)]
struct ProcessMetrics {
    started_s: f64,
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: f64| {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, unit, gauge.metric_type())?;
            gauge.encode(metric)
        };
        gauge(
            "process_start_time",
            "When it started, since 1970",
            Some(&Unit::Seconds),
            self.started_s,
        )?;
        // A figure that cannot be read is left out: 0 would be wrong.
        if let Some(status) = ProcStatus::read() {
            let help = "Physical memory it occupies";
            gauge("process_resident_memory", help, Some(&Unit::Bytes), status.resident_bytes)?;
            gauge("process_threads", "Its threads", None, status.threads)?;
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Excludes the descriptor that reads the directory.
            let count = u32::try_from(entries.count().saturating_sub(1)).unwrap_or(u32::MAX);
            gauge("process_open_fds", "Its open file descriptors", None, f64::from(count))?;
        }
        if let Some(max) = open_fds_max() {
            gauge("process_max_fds", "File descriptors it may open", None, max)?;
        }
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let kind = counter.metric_type();
            let help = "CPU time it used";
            counter.encode(encoder.encode_descriptor(
                "process_cpu",
                help,
                Some(&Unit::Seconds),
                kind,
            )?)?;
        }
        Ok(())
    }
}

struct ProcStatus {
    resident_bytes: f64,
    threads: f64,
}

impl ProcStatus {
    fn read() -> Option<ProcStatus> {
        let text = fs::read_to_string("/proc/self/status").ok()?;
        let field = |name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(ProcStatus { resident_bytes: field("VmRSS:")? * 1024.0, threads: field("Threads:")? })
    }
}

fn open_fds_max() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Figures of this process that cost next to nothing to read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Used CPU time, in seconds.
    pub cpu_s: f64,
    /// Physical memory in use.
    pub resident_bytes: f64,
    /// Open file descriptors; none if the kernel does not count them (before Linux 6.2).
    pub open_fds: Option<f64>,
}

impl ProcessFigures {
    /// Reads the figures; none if `/proc` cannot be read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "there are not that many descriptors")]
    pub fn read() -> Option<ProcessFigures> {
        // The size of the directory is the number of descriptors, since Linux 6.2.
        let open_fds = fs::metadata("/proc/self/fd").ok().map(|it| it.len()).filter(|it| *it > 0);
        Some(ProcessFigures {
            cpu_s: cpu_seconds()?,
            resident_bytes: ProcStatus::read()?.resident_bytes,
            open_fds: open_fds.map(|it| it as f64),
        })
    }
}

/// Returns user and system time, fields 14 and 15 of `/proc/self/stat` (proc_pid_stat(5)).
fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in field 2 may contain spaces and parentheses; the last one ends it.
    let after_name = text.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / USER_HZ)
}

/// Metrics of HTTP requests.
#[derive(Clone, Debug)]
pub struct HttpMetrics {
    /// Time from the request's head to the answer's.
    duration: Family<RequestLabels, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    streams: Gauge,
    /// Counters for the server's history: of all requests, and of those below a path.
    all: Arc<RequestCounters>,
    below: Option<(&'static str, Arc<RequestCounters>)>,
}

/// Counters of requests since the start.
#[derive(Clone, Debug, Default)]
pub struct RequestActivity {
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that were answered with a status of 500 or above.
    pub failures: u64,
    /// Times from a request's head to its answer's head.
    pub took: LatencyCounts,
}

#[derive(Debug, Default)]
struct RequestCounters {
    requests: SharedCounter,
    failures: SharedCounter,
    took: LatencyHistogram,
}

impl RequestCounters {
    fn count(&self, status: u16, took: Duration) {
        self.requests.inc();
        if status >= 500 {
            self.failures.inc();
        }
        self.took.record(took);
    }

    fn read(&self) -> RequestActivity {
        RequestActivity {
            requests: self.requests.load(),
            failures: self.failures.load(),
            took: self.took.counts(),
        }
    }
}

/// Labels with few values each: the route is the pattern, not the path, so that callers cannot fill
/// the memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: Cow<'static, str>,
    status: u16,
}

impl HttpMetrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> HttpMetrics {
        let duration: Family<RequestLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        let in_flight = Gauge::default();
        registry.register_with_unit(
            "cove_http_request_duration",
            "Time from a request's head to its answer's head",
            Unit::Seconds,
            duration.clone(),
        );
        registry.register(
            "cove_http_requests_in_flight",
            "Requests being answered",
            in_flight.clone(),
        );
        let streams = Gauge::default();
        registry.register(
            "cove_http_streams",
            "WebSockets and answers of unknown length that are open",
            streams.clone(),
        );
        HttpMetrics { duration, in_flight, streams, all: Arc::default(), below: None }
    }

    /// Counts requests whose route begins with `prefix` separately as well.
    #[must_use]
    pub fn counting_below(self, prefix: &'static str) -> HttpMetrics {
        HttpMetrics { below: Some((prefix, Arc::default())), ..self }
    }

    /// Returns the counters of all requests, and of those below the path.
    #[must_use]
    pub fn activity(&self) -> (RequestActivity, Option<RequestActivity>) {
        (self.all.read(), self.below.as_ref().map(|(_, counters)| counters.read()))
    }

    /// Returns how many WebSockets and answers of unknown length are open.
    #[must_use]
    pub fn streams(&self) -> i64 {
        self.streams.get()
    }

    /// Counts a request as being answered until the guard is dropped.
    pub(crate) fn enter(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counts a stream as open until the guard is dropped.
    pub(crate) fn enter_stream(&self) -> InFlight {
        self.streams.inc();
        InFlight(self.streams.clone())
    }

    pub(crate) fn observe(
        &self,
        method: &axum::http::Method,
        route: Cow<'static, str>,
        status: u16,
        took: Duration,
    ) {
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            "HEAD" => "HEAD",
            "OPTIONS" => "OPTIONS",
            _ => "other",
        };
        self.all.count(status, took);
        if let Some((prefix, counters)) = &self.below
            && route.starts_with(prefix)
        {
            counters.count(status, took);
        }
        let labels = RequestLabels { method, route, status };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// A request being answered, or a stream that is open.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    //! The figures of this very process.

    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))[name.len()..].trim().parse().unwrap()
    }

    #[test]
    fn the_process_is_measured() {
        let text = MetricsRegistry::new(registry("1.2.3")).render().unwrap();
        assert!(text.contains("cove_build_info{version=\"1.2.3\"} 1"), "{text}");
        assert!(value(&text, "process_resident_memory_bytes") > 100_000.0);
        assert!(value(&text, "process_start_time_seconds") > 1.6e9);
        let open = value(&text, "process_open_fds");
        assert!(open >= 3.0 && open < value(&text, "process_max_fds"));
        assert!(value(&text, "process_threads") >= 1.0);
        assert!(value(&text, "process_cpu_seconds_total") >= 0.0);
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn cheap_figures_of_the_process_are_those_of_the_metrics() {
        let figures = ProcessFigures::read().unwrap();
        let text = MetricsRegistry::new(registry("1.2.3")).render().unwrap();
        let resident = value(&text, "process_resident_memory_bytes");
        assert!(
            (0.5..2.0).contains(&(figures.resident_bytes / resident)),
            "{figures:?} {resident}"
        );
        assert!(figures.cpu_s <= value(&text, "process_cpu_seconds_total"), "{figures:?}");
        assert!(figures.open_fds.is_none_or(|it| it >= 3.0), "{figures:?}");
    }

    #[test]
    fn requests_below_a_path_are_counted_by_themselves() {
        let metrics = HttpMetrics::new(&mut Registry::default()).counting_below("/catalog");
        let took = Duration::from_millis(3);
        for (route, status) in [("/catalog/v1/config", 200), ("/catalog/x", 503), ("/v1/x", 404)] {
            metrics.observe(&axum::http::Method::GET, route.into(), status, took);
        }
        let (all, below) = metrics.activity();
        let below = below.unwrap();
        assert_eq!((all.requests, all.failures), (3, 1));
        assert_eq!((below.requests, below.failures), (2, 1));
        assert!(below.took.percentile_since(&LatencyCounts::default(), 950).unwrap() >= 0.003);
    }

    #[test]
    fn who_accepts_text_gets_the_older_format() {
        let mut registry = registry("1.2.3");
        let counter = prometheus_client::metrics::counter::Counter::<u64>::default();
        registry.register("things", "Things \"made\"", counter);
        let metrics = MetricsRegistry::new(registry);
        for (accept, is_classic) in [
            (None, false),
            (Some("*/*"), false),
            (Some("text/plain"), true),
            (Some("text/plain;version=0.0.4;q=0.5"), true),
            (Some("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"), false),
        ] {
            let accept = accept.map(|it| (header::ACCEPT, it.parse().unwrap()));
            let response = metrics.response(&accept.clone().into_iter().collect());
            let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
            assert_eq!(kind.starts_with("text/plain; version=0.0.4"), is_classic, "{accept:?}");
        }
        let text = classic(&metrics.render().unwrap());
        let things =
            "# HELP things_total Things \"made\".\n# TYPE things_total counter\nthings_total 0\n";
        assert!(text.contains(things), "{text}");
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[derive(Clone, Default)]
    struct KeptLines(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl io::Write for KeptLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_of_a_trace_have_its_ids() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let kept = KeptLines::default();
            let writer = kept.clone();
            let lines = tracing_subscriber::fmt().with_writer(move || writer.clone());
            let lines = lines.with_ansi(false).without_time();
            let subscriber: Box<dyn Subscriber + Send + Sync> = match format {
                LogFormat::Text => {
                    Box::new(lines.map_event_format(|lines| TracedLines { lines, format }).finish())
                }
                LogFormat::Json => {
                    let lines = lines.json().flatten_event(true);
                    Box::new(lines.map_event_format(|lines| TracedLines { lines, format }).finish())
                }
            };
            let guard = tracing::subscriber::set_default(subscriber);
            let tracer = traces::tests::tracer_without_collector();
            let scope = tracer.begin("x", traces::SpanKind::Server, None).scope();
            let context = scope.clone().unwrap().context().clone();
            traces::in_scope(scope, async { tracing::info!(number = 7, "inside") }).await;
            tracing::info!("outside");
            drop(guard);
            let text = String::from_utf8(kept.0.lock().clone()).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let (trace, span) = (context.trace_id.to_string(), context.span_id.to_string());
            assert!(lines.len() == 2 && !lines[1].contains("trace_id"), "{text}");
            match format {
                LogFormat::Text => {
                    let end = format!("inside number=7 trace_id={trace} span_id={span}");
                    assert!(lines[0].ends_with(&end), "{text}");
                }
                LogFormat::Json => {
                    let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
                    let found = ["message", "trace_id", "span_id"].map(|name| line[name].as_str());
                    assert_eq!(found, [Some("inside"), Some(&*trace), Some(&*span)]);
                    assert_eq!(line["number"], 7);
                }
            }
        }
    }

    #[test]
    fn requests_are_counted_by_route() {
        let mut registry = Registry::default();
        let metrics = HttpMetrics::new(&mut registry);
        let guard = metrics.enter();
        let method = axum::http::Method::from_bytes(b"BREW").unwrap();
        metrics.observe(&method, "/v1/things".into(), 404, Duration::from_millis(3));
        let rendered = MetricsRegistry::new(registry);
        let text = rendered.render().unwrap();
        let labels = "method=\"other\",route=\"/v1/things\",status=\"404\"";
        let expected = format!("cove_http_request_duration_seconds_count{{{labels}}} 1");
        assert!(text.contains(&expected), "{text}");
        assert_eq!(value(&text, "cove_http_requests_in_flight"), 1.0);
        drop(guard);
        assert_eq!(value(&rendered.render().unwrap(), "cove_http_requests_in_flight"), 0.0);
    }
}
