//! A request of a guest: its target, the bytes transferred, its outcome. It is reported when the
//! last part of it has been sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use api::AuditOutcome;
use axum::body::{Body, HttpBody};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Method, Uri};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use node::clock;
use parking_lot::Mutex;

/// Most reported bytes of a request's target.
const TEXT_BYTES_MAX: usize = 2048;

/// Record of a guest's request.
#[derive(Clone, Copy, Debug)]
pub struct SandboxRequestRecord<'a> {
    /// The method and the target.
    pub text: &'a str,
    /// The status of the response; 0 if there was none.
    pub status: u16,
    /// Outcome.
    pub outcome: AuditOutcome,
    /// Why it failed or was rejected.
    pub error: Option<&'a str>,
    /// Duration, to the last byte of the response.
    pub took: Duration,
    /// Bytes sent by the guest.
    pub bytes_out: u64,
    /// Bytes received by the guest.
    pub bytes_in: u64,
}

/// Observes the requests of a guest. Must not block.
pub trait SandboxRequestObserver: Send + Sync + fmt::Debug {
    /// Receives the record of a request. Copies the fields that it stores.
    fn observe(&self, seen: &SandboxRequestRecord<'_>);
}

/// A request.
#[derive(Debug)]
pub(crate) struct SandboxExchange {
    text: String,
    watch: Arc<dyn SandboxRequestObserver>,
    started: Instant,
    /// Time of the last progress, in milliseconds since the request started.
    moved_ms: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    status: AtomicU16,
    error: Mutex<Option<String>>,
}

/// Returns a method and its target for the record.
pub(crate) fn request_name(method: &Method, uri: &Uri) -> String {
    let mut text = format!("{method} {}", uri.path());
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}

impl SandboxExchange {
    pub(super) fn new(text: String, watch: Arc<dyn SandboxRequestObserver>) -> SandboxExchange {
        SandboxExchange {
            text,
            watch,
            started: clock::now(),
            moved_ms: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            status: AtomicU16::new(0),
            error: Mutex::default(),
        }
    }

    fn moved(&self) {
        let passed = clock::now().saturating_duration_since(self.started).as_millis();
        self.moved_ms.store(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the time without progress.
    pub(super) fn rested(&self) -> Duration {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        clock::now().saturating_duration_since(self.started).saturating_sub(moved)
    }

    /// Counts bytes sent by the guest.
    pub(crate) fn sent(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        self.moved();
    }

    /// Records why the request failed or was rejected. The first reason is kept as the cause.
    pub(crate) fn note(&self, why: &str) {
        self.error.lock().get_or_insert_with(|| why.to_owned());
    }

    /// Returns whether a reason was already recorded.
    pub(super) fn is_noted(&self) -> bool {
        self.error.lock().is_some()
    }

    /// Returns the response with a body whose bytes are counted.
    pub(crate) fn answered(
        self: &Arc<SandboxExchange>,
        method: &Method,
        response: Response,
    ) -> Response {
        self.status.store(response.status().as_u16(), Ordering::Relaxed);
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
        let is_head = *method == Method::HEAD;
        let exchange = Arc::clone(self);
        response.map(|inner| {
            let length = length.or(inner.size_hint().exact());
            let left = if is_head { Some(0) } else { length };
            Body::new(CountedBody { inner, exchange, left })
        })
    }
}

impl Drop for SandboxExchange {
    fn drop(&mut self) {
        let (status, error) = (*self.status.get_mut(), self.error.get_mut().take());
        let outcome = match status {
            0 | 500.. => AuditOutcome::Failed,
            400 | 401 | 403 | 405 | 406 | 411 | 413 | 429 => AuditOutcome::Refused,
            // That an object does not exist is a regular result.
            404 => AuditOutcome::Done,
            400.. => AuditOutcome::Failed,
            _ => AuditOutcome::Done,
        };
        let broken = "the connection ended before the answer did";
        let error = error.as_deref().or((status == 0).then_some(broken));
        let outcome = match (outcome, error) {
            (AuditOutcome::Done, Some(_)) if status < 400 => AuditOutcome::Failed,
            (outcome, _) => outcome,
        };
        self.watch.observe(&SandboxRequestRecord {
            text: &self.text,
            status,
            outcome,
            error,
            took: clock::now().saturating_duration_since(self.started),
            bytes_out: *self.bytes_out.get_mut(),
            bytes_in: *self.bytes_in.get_mut(),
        });
    }
}

/// A response body to the guest.
struct CountedBody {
    inner: Body,
    exchange: Arc<SandboxExchange>,
    /// Remaining bytes, if they are known; otherwise 0 at the end.
    left: Option<u64>,
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if self.left != Some(0) && !self.inner.is_end_stream() {
            self.exchange.note("the answer broke off");
        }
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.exchange.bytes_in.fetch_add(bytes, Ordering::Relaxed);
                self.left = self.left.map(|left| left.saturating_sub(bytes));
            }
            Some(Err(error)) => self.exchange.note(&format!("the answer broke off: {error}")),
            None => self.left = Some(0),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
