//! `GET /metrics`: figures from the store or the file system are read first, within a time limit.
//!
//! The route requires no token, so costly figures of the store are read at most once in
//! [`QUEUE_INTERVAL`], regardless of the number of requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::QueueStats;
use axum::http::HeaderMap;
use axum::response::Response;
use executions::Jobs;
use node::clock;
use node::http::HttpListenerTls;
use node::readiness::{CHECK_MAX, ReadinessChecks};
use node::telemetry::{MetricsRegistry, Registry};
use node::tls::ServerCertificate;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Time for which figures of the queue are cached.
const QUEUE_INTERVAL: Duration = Duration::from_secs(5);

/// Metrics with their cached figures. Clones share the figures.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    metrics: MetricsRegistry,
    readiness: ReadinessChecks,
    queue: Option<QueueFigures>,
}

impl MetricsPage {
    /// Registers the last metrics and seals the registry. `certificate` is that of the HTTP
    /// listeners, `jobs` the server's if it runs programs.
    pub(crate) fn new(
        mut registry: Registry,
        readiness: &ReadinessChecks,
        certificate: Option<&HttpListenerTls>,
        jobs: Option<&Jobs>,
        data_dir: &Path,
    ) -> MetricsPage {
        readiness.register(&mut registry);
        registry.register_collector(Box::new(DataDirFigures(data_dir.to_owned())));
        if let Some(tls) = certificate {
            registry.register_collector(Box::new(CertificateFigures(tls.certificate.clone())));
        }
        let queue = jobs.map(|jobs| {
            let figures = QueueFigures { jobs: jobs.clone(), shared: Arc::default() };
            registry.register_collector(Box::new(figures.clone()));
            figures
        });
        let readiness = readiness.clone();
        MetricsPage { metrics: MetricsRegistry::new(registry), readiness, queue }
    }

    /// Returns the response to `GET /metrics`.
    pub(crate) async fn response(&self, headers: &HeaderMap) -> Response {
        let queue = async {
            if let Some(queue) = &self.queue {
                queue.refresh().await;
            }
        };
        tokio::join!(self.readiness.missing(), queue);
        self.metrics.response(headers)
    }
}

/// Figures of the queue. Servers that share a queue report the same.
#[derive(Clone)]
struct QueueFigures {
    jobs: Jobs,
    shared: Arc<QueueFiguresShared>,
}

#[derive(Default)]
struct QueueFiguresShared {
    /// Time of the last read. Locked during a read, so that concurrent requests wait for it.
    at: tokio::sync::Mutex<Option<Instant>>,
    /// None if the back end did not respond: zeros would be false.
    stats: Mutex<Option<QueueStats>>,
}

impl fmt::Debug for QueueFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueFigures").field("stats", &*self.shared.stats.lock()).finish()
    }
}

impl QueueFigures {
    async fn refresh(&self) {
        let mut at = self.shared.at.lock().await;
        let now = clock::now();
        if at.is_some_and(|at| now.duration_since(at) < QUEUE_INTERVAL) {
            return;
        }
        let stats = tokio::time::timeout(CHECK_MAX, self.jobs.stats(None)).await;
        *self.shared.stats.lock() = stats.ok().and_then(Result::ok);
        *at = Some(clock::now());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueStateLabels {
    state: &'static str,
}

impl Collector for QueueFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(stats) = self.shared.stats.lock().clone() else { return Ok(()) };
        let gauge = MetricType::Gauge;
        let help = "Asynchronous executions that the queue holds, by state";
        let mut family = encoder.encode_descriptor("cove_queue_executions", help, None, gauge)?;
        for (state, count) in [
            ("queued", stats.queued),
            ("running", stats.running),
            ("finished", stats.finished),
            ("cancelled", stats.cancelled),
            ("expired", stats.expired),
            ("dead", stats.dead),
        ] {
            let value = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            value.encode(family.encode_family(&QueueStateLabels { state })?)?;
        }
        let help = "1 if the queue is paused, so that nothing is started, else 0";
        let paused = ConstGauge::new(i64::from(stats.paused));
        paused.encode(encoder.encode_descriptor("cove_queue_paused", help, None, gauge)?)?;
        let help = "Tokens that have something waiting in the queue";
        let tenants = ConstGauge::new(i64::try_from(stats.tenants_waiting).unwrap_or(i64::MAX));
        let written = encoder.encode_descriptor("cove_queue_tenants_waiting", help, None, gauge)?;
        tenants.encode(written)?;
        let help = "Age of the oldest execution that waits in the queue; 0 if none does";
        let oldest = Duration::from_millis(stats.oldest_queued_ms.unwrap_or(0));
        let oldest = ConstGauge::new(oldest.as_secs_f64());
        let unit = Some(&Unit::Seconds);
        oldest.encode(encoder.encode_descriptor("cove_queue_oldest", help, unit, gauge)?)
    }
}

/// Free space for the data directory, and thus for the SQLite store, objects in a directory, and
/// disks of sessions.
#[derive(Debug)]
struct DataDirFigures(PathBuf);

impl Collector for DataDirFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Ok(found) = rustix::fs::statvfs(&self.0) else { return Ok(()) };
        let bytes =
            |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
        let inodes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: i64| {
            let value = ConstGauge::new(value);
            value.encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)
        };
        let unit = Some(&Unit::Bytes);
        let help = "Bytes that the server may still write to the file system of the data directory";
        gauge("cove_data_dir_free", help, unit, bytes(found.f_bavail))?;
        let help = "Size of the file system of the data directory";
        gauge("cove_data_dir_size", help, unit, bytes(found.f_blocks))?;
        // File systems without a fixed number of files, such as btrfs, report 0 for all.
        if found.f_files == 0 {
            return Ok(());
        }
        let help = "Free inodes on the file system of the data directory";
        gauge("cove_data_dir_free_inodes", help, None, inodes(found.f_favail))
    }
}

/// Expiry time of the HTTP listeners' certificate.
#[derive(Debug)]
struct CertificateFigures(ServerCertificate);

impl Collector for CertificateFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(expiry_s) = self.0.expiry_s() else { return Ok(()) };
        let help = "When the certificate of the HTTP listeners expires, since 1970";
        let name = "cove_http_certificate_expiry_timestamp";
        let expiry = ConstGauge::new(i64::try_from(expiry_s).unwrap_or(i64::MAX));
        let unit = Some(&Unit::Seconds);
        expiry.encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)
    }
}
