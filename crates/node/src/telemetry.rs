//! Logs and Prometheus metrics.
//!
//! Logs go to standard error, because standard output is for data. A service registers its metrics
//! with the [`Registry`] it is given when it is built; after that nobody changes the registry.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal};
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

use crate::{clock, http};

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

/// Sends log lines of `level` and above to standard error. Colours only where a person sees them:
/// on a terminal, and not when `colour` says no.
///
/// # Errors
/// When logging was set up before.
pub fn init_logs(
    format: LogFormat,
    level: LevelFilter,
    colour: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            lines.with_ansi(colour && io::stderr().is_terminal()).with_target(false).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    }
}

/// Registered metrics, ready to be shown at `/metrics`.
#[derive(Clone, Debug)]
pub struct MetricsRegistry(Arc<Registry>);

impl MetricsRegistry {
    /// Closes the registry: from here on it is only read.
    pub fn new(registry: Registry) -> MetricsRegistry {
        MetricsRegistry(Arc::new(registry))
    }

    /// The current figures in the OpenMetrics text format, which Prometheus reads.
    ///
    /// # Errors
    /// When a collector fails.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 << 10);
        prometheus_client::encoding::text::encode(&mut text, &self.0)?;
        Ok(text)
    }

    /// The answer to `GET /metrics`: as OpenMetrics, or in Prometheus' older text format for those
    /// who accept text and do not know the other.
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
/// families are called as their samples are, and there are no units and no end.
fn classic(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    // What is said of a family comes before its type, by which it is called.
    let mut help = None;
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            lines.push_str(line);
            lines.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
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

/// A registry with the metrics every server has: its process and its build.
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

/// Says in the metrics which node of a cluster this is, for joins with all others.
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

/// The process metrics Prometheus clients agree on, read from `/proc/self` when they are asked for.
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
        // A figure that cannot be read is left out: 0 would be a lie.
        if let Some(status) = ProcStatus::read() {
            let help = "Physical memory it occupies";
            gauge("process_resident_memory", help, Some(&Unit::Bytes), status.resident_bytes)?;
            gauge("process_threads", "Its threads", None, status.threads)?;
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // Minus the one that reads the directory.
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

/// User and system time, fields 14 and 15 of `/proc/self/stat` (proc_pid_stat(5)).
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
}

/// Few values each: the route is the pattern, not the path, so that callers cannot fill the memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: Cow<'static, str>,
    status: u16,
}

impl HttpMetrics {
    /// Registers them.
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
        HttpMetrics { duration, in_flight, streams }
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
