//! HTTP/2 at the public listeners: many requests on one connection, each in the turns of its
//! caller.
//!
//! The bounds of HTTP/1.1 requests apply here, too: as many are answered at one time as there may
//! be connections, a client that takes nothing of an answer is cut, and so is one that sends no
//! request for as long as a head may take.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9113>

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Uri, header, uri};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::connection::ConnectionService;
use super::error::HttpError;
use super::refusal::Render;
use super::server::ShellLimits;
use crate::clock;
use crate::fair::FairScheduler;

/// Maximum number of concurrent requests of one connection.
const STREAMS_MAX: u32 = 100;
/// Bytes that a client may send of one body, and of all on a connection, before they are read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of one answer that wait for the client's window.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Number of requests that a client may reset before they were accepted, until its connection is
/// cut: the flood of CVE-2023-44487.
const RESETS_MAX: usize = 20;
/// Interval at which a connection is checked for inactive clients.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of pings, and time for their answers: a client that disappeared without a word would
/// otherwise keep its handlers.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Runs the streams of a connection in the turns of a caller, until they identify another one.
#[derive(Clone)]
pub(crate) struct FairExecutor {
    scheduler: FairScheduler,
    caller: Arc<str>,
}

impl FairExecutor {
    pub(crate) fn new(scheduler: FairScheduler, caller: Arc<str>) -> FairExecutor {
        FairExecutor { scheduler, caller }
    }
}

impl<F> hyper::rt::Executor<F> for FairExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(self.scheduler.run(Arc::clone(&self.caller), future));
    }
}

/// Serves a connection until either side ends it. When the server is `closing`, it finishes the
/// requests in progress.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    executor: FairExecutor,
    service: ConnectionService,
    limits: ShellLimits,
    closing: &mut watch::Receiver<bool>,
) -> Result<(), hyper::Error> {
    let answers = Arc::new(UnfinishedAnswers::default());
    let (seat, render) = (service.seat(), service.render());
    let watched = Arc::clone(&answers);
    let service = service_fn(move |request| {
        let answers = Arc::clone(&watched);
        let answering = match normalized(request) {
            Ok(request) => Ok(service.answer(request)),
            Err(error) => Err(error),
        };
        async move {
            let answer = match answering {
                Ok(answering) => answering.await?,
                Err(error) => refused(&error, render),
            };
            Ok::<_, Infallible>(answer.map(|body| answers.watch(body)))
        }
    });
    let connection = http2::Builder::new(executor)
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut idle_since = Some(clock::now());
    let mut is_closing = false;
    loop {
        tokio::select! {
            result = &mut connection => return result,
            _ = looks.tick() => {
                let now = clock::now();
                if answers.is_stalled(now, limits.write_stall_max) {
                    tracing::debug!("the client does not read its answer");
                    return Ok(());
                }
                idle_since = seat.is_idle().then(|| idle_since.unwrap_or(now));
                let idle = idle_since.map(|since| now.saturating_duration_since(since));
                if idle.is_some_and(|idle| idle >= limits.header_read_max) && !is_closing {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            closed = closing.wait_for(|closing| *closing), if !is_closing => {
                drop(closed);
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Renders a refusal in the form of the listener's interface.
fn refused(error: &HttpError, render: Render) -> Response {
    match render {
        Some(render) => render(error),
        None => error.clone().into_response(),
    }
}

/// Returns the answer to a request for which there is no room.
pub(super) fn too_many(render: Render) -> Response {
    let message = "as many requests are being answered, here or for your address, as there may be \
                   connections";
    let error = HttpError::new(api::ErrorCode::Overloaded, message).retry_after(LOOK_INTERVAL);
    refused(&error, render)
}

/// Gives a request the target and the host of an HTTP/1.1 request, as handlers expect.
fn normalized(
    mut request: hyper::Request<Incoming>,
) -> Result<hyper::Request<Incoming>, HttpError> {
    if let Some(authority) = request.uri().authority() {
        // RFC 9113 §8.3.1: it must have no user, and takes precedence over `host`.
        let host = HeaderValue::from_str(authority.as_str()).ok();
        let host = host.filter(|_| !authority.as_str().contains('@')).ok_or_else(|| {
            HttpError::invalid("`:authority` is not `HOST` or `HOST:PORT` (RFC 9113 §8.3.1)")
        })?;
        request.headers_mut().insert(header::HOST, host);
    }
    *request.uri_mut() = path_only(request.uri());
    Ok(request)
}

/// Returns the target in the form of HTTP/1.1.
pub(crate) fn path_only(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    let path = path.unwrap_or_else(|| uri::PathAndQuery::from_static("/"));
    Uri::from(path)
}

/// Unfinished answers of a connection.
#[derive(Debug, Default)]
struct UnfinishedAnswers(Mutex<Vec<Weak<AnswerProgress>>>);

/// Progress of one answer: the time at which the connection received a part of it, if it has not
/// requested more since, because the client opens no window.
#[derive(Debug)]
struct AnswerProgress(Mutex<Option<Instant>>);

impl UnfinishedAnswers {
    /// Registers an answer.
    fn watch(&self, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let progress = Arc::new(AnswerProgress(Mutex::new(Some(clock::now()))));
        self.0.lock().push(Arc::downgrade(&progress));
        Body::new(WatchedAnswer { body, progress })
    }

    /// Returns whether the client has taken nothing of some answer for `stall_max`.
    fn is_stalled(&self, now: Instant, stall_max: Duration) -> bool {
        let mut is_stalled = false;
        self.0.lock().retain(|answer| {
            let Some(progress) = answer.upgrade() else { return false };
            let last_frame = *progress.0.lock();
            is_stalled |=
                last_frame.is_some_and(|at| now.saturating_duration_since(at) >= stall_max);
            true
        });
        is_stalled
    }
}

/// Body of an answer whose progress is watched.
struct WatchedAnswer {
    body: Body,
    progress: Arc<AnswerProgress>,
}

impl HttpBody for WatchedAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let last_frame = matches!(polled, Poll::Ready(Some(Ok(_)))).then(clock::now);
        *self.progress.0.lock() = last_frame;
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Logs the error that ended a connection.
pub(super) fn log_end(result: &Result<(), hyper::Error>) {
    if let Err(error) = result {
        let error = error as &dyn std::error::Error;
        let is_gone = error.source().is_some_and(<dyn std::error::Error>::is::<io::Error>);
        tracing::debug!(error, is_gone, "a connection of HTTP/2 ended");
    }
}
