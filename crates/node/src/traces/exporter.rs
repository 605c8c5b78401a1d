//! Sends spans to a collector by OTLP over HTTP, in batches.
//!
//! Batches that a collector cannot accept now are sent again, with growing pauses, in at most
//! [`ATTEMPTS_MAX`] attempts; meanwhile ended spans go to the queue, which drops those that do not
//! fit.
//!
//! # References
//! - <https://opentelemetry.io/docs/specs/otlp/#otlphttp>

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use super::otlp::{self, OtlpAnswer, TraceResource};
use super::span::SpanRecord;
use super::{FLUSH_MAX, SpanOutcome, TraceCounters, random};
use crate::client::{AddressGuard, ClientRequest, HttpClient};
use crate::telemetry::error_chain;
use crate::{clock, task};

/// Maximum number of attempts for a batch: with the pauses between them, some 30 seconds.
const ATTEMPTS_MAX: u32 = 6;
/// Pause after the first attempt; it doubles with each.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause, even if a collector requests a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of bytes of a collector's answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Settings of an exporter.
#[derive(Clone)]
pub struct ExporterSettings {
    /// URL of the collector, with the path for traces.
    pub url: String,
    /// Headers of each request, such as a key.
    pub headers: HeaderMap,
    /// Time for one request.
    pub timeout: Duration,
    /// Maximum number of spans in one request.
    pub batch_spans_max: usize,
    /// Time that a span waits for others before it is sent.
    pub batch_delay: Duration,
    /// True if bodies are compressed.
    pub is_gzip: bool,
    /// Description of the service that creates the spans.
    pub resource: TraceResource,
}

impl std::fmt::Debug for ExporterSettings {
    /// Omits headers, which contain credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExporterSettings").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Exporter of the spans of one tracer.
#[derive(Debug)]
pub struct TraceExporter {
    settings: ExporterSettings,
    waiting: mpsc::Receiver<SpanRecord>,
    counters: TraceCounters,
    client: HttpClient,
    /// True if the collector could not be reached last time: an outage is logged once.
    is_failing: bool,
}

/// Running exporter.
#[derive(Debug)]
pub struct RunningExporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RunningExporter {
    /// Sends waiting spans, within [`FLUSH_MAX`], and ends.
    pub async fn close(mut self) {
        // If the receiver is gone, the task has ended by itself.
        let _sent = self.stop.send(());
        if timeout(FLUSH_MAX, &mut self.task).await.is_err() {
            tracing::warn!("the last spans could not be sent in time");
            self.task.abort();
        }
    }
}

/// Result of one attempt.
enum AttemptAnswer {
    /// Accepted, except for this many spans.
    Taken { rejected: usize },
    /// The collector refuses the spans, and a retry would fail as well.
    Refused(String),
    /// The collector may accept the spans later, after this time if it has specified one.
    Later(String, Option<Duration>),
}

impl TraceExporter {
    pub(super) fn new(
        settings: ExporterSettings,
        waiting: mpsc::Receiver<SpanRecord>,
        counters: TraceCounters,
    ) -> TraceExporter {
        // The operator configures the URL, so private addresses are allowed.
        let client = HttpClient::new(AddressGuard::Open);
        TraceExporter { settings, waiting, counters, client, is_failing: false }
    }

    /// Starts sending.
    #[must_use]
    pub fn start(self) -> RunningExporter {
        let (stop, stopped) = oneshot::channel();
        let task = task::spawn(self.run(stopped));
        RunningExporter { stop, task }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::new();
        while !self.collect(&mut batch, &mut stopped).await {
            let full = std::mem::take(&mut batch);
            if self.export(&full, &mut stopped, false).await {
                break;
            }
        }
        // The remaining spans, in as few requests as possible.
        self.waiting.close();
        loop {
            while batch.len() < self.settings.batch_spans_max
                && let Ok(span) = self.waiting.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            self.export(&std::mem::take(&mut batch), &mut stopped, true).await;
        }
    }

    /// Collects spans until there is a full batch, or the first one has waited long enough. Returns
    /// whether the exporter should end.
    async fn collect(
        &mut self,
        batch: &mut Vec<SpanRecord>,
        stopped: &mut oneshot::Receiver<()>,
    ) -> bool {
        let most = self.settings.batch_spans_max;
        let mut deadline: Option<Instant> = None;
        while batch.len() < most {
            // Without a deadline it waits for the first span alone.
            let due = deadline.unwrap_or_else(|| clock::now() + self.settings.batch_delay);
            tokio::select! {
                count = self.waiting.recv_many(batch, most - batch.len()) => {
                    if count == 0 {
                        return true;
                    }
                    deadline.get_or_insert_with(|| clock::now() + self.settings.batch_delay);
                }
                () = sleep_until(due.into()), if deadline.is_some() => return false,
                _ = &mut *stopped => return true,
            }
        }
        false
    }

    /// Sends a batch until it is accepted, refused, or the attempts are used up: only one if the
    /// exporter is ending. Returns whether it was stopped meanwhile.
    async fn export(
        &mut self,
        batch: &[SpanRecord],
        stopped: &mut oneshot::Receiver<()>,
        mut is_stopped: bool,
    ) -> bool {
        let body = match self.body(batch) {
            Ok(body) => Bytes::from(body),
            Err(error) => {
                self.failed(batch.len(), &error.to_string());
                return is_stopped;
            }
        };
        let mut pause = PAUSE;
        for attempt in 1.. {
            match self.send(body.clone()).await {
                AttemptAnswer::Taken { rejected } => {
                    self.taken(batch.len(), rejected.min(batch.len()));
                    break;
                }
                AttemptAnswer::Refused(why) => {
                    self.failed(batch.len(), &why);
                    break;
                }
                AttemptAnswer::Later(why, after) => {
                    if is_stopped || attempt >= ATTEMPTS_MAX {
                        self.failed(batch.len(), &why);
                        break;
                    }
                    tracing::debug!(why, "spans are sent again later");
                    let wait = after.unwrap_or_else(|| jittered(pause)).min(PAUSE_MAX);
                    pause = (pause * 2).min(PAUSE_MAX);
                    tokio::select! {
                        () = sleep_until((clock::now() + wait).into()) => {}
                        _ = &mut *stopped => is_stopped = true,
                    }
                }
            }
        }
        is_stopped
    }

    fn body(&self, batch: &[SpanRecord]) -> io::Result<Vec<u8>> {
        let document = otlp::document(&self.settings.resource, batch)?;
        if !self.settings.is_gzip {
            return Ok(document);
        }
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&document)?;
        packed.finish()
    }

    async fn send(&self, body: Bytes) -> AttemptAnswer {
        let ExporterSettings { url, headers, timeout, is_gzip, .. } = &self.settings;
        let mut request = ClientRequest::new(Method::POST, url);
        request.headers = headers.clone();
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(header::CONTENT_TYPE, json);
        if *is_gzip {
            request.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        request.body = body;
        request.timeout = *timeout;
        request.response_bytes_max = ANSWER_BYTES_MAX;
        let answer = match self.client.send(request).await {
            Ok(answer) => answer,
            Err(error) => return AttemptAnswer::Later(error_chain(&error), None),
        };
        let (status, after) = (answer.status, retry_after(&answer.headers));
        match status {
            status if status.is_success() => {
                // The status confirms it; the body is optional.
                let body = answer.bytes().await.unwrap_or_default();
                AttemptAnswer::Taken { rejected: OtlpAnswer::rejected(&body) }
            }
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                AttemptAnswer::Later(format!("the collector answered {status}"), after)
            }
            status => AttemptAnswer::Refused(format!("the collector answered {status}")),
        }
    }

    fn taken(&mut self, count: usize, rejected: usize) {
        self.counters.add(SpanOutcome::Exported, count - rejected);
        self.counters.add(SpanOutcome::Rejected, rejected);
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("spans are sent again");
        }
    }

    fn failed(&mut self, count: usize, why: &str) {
        self.counters.add(SpanOutcome::Failed, count);
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                why,
                "spans cannot be sent: `telemetry.traces_endpoint` has to be a collector that \
                 takes OTLP over HTTP in JSON"
            );
        }
    }
}

/// Returns the seconds after which a collector requests a retry. A date is not parsed: the default
/// pause suffices.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Returns a pause of half to all of this, so that nodes that lost a collector together do not
/// retry together.
fn jittered(pause: Duration) -> Duration {
    let [random] = random().unwrap_or([255]);
    pause / 2 + pause * u32::from(random) / 510
}
