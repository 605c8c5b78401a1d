//! Services inside a sandbox for E2B's clients: processes and files over Connect, and health.
//!
//! # References
//! - <https://github.com/e2b-dev/infra/tree/main/packages/envd/spec>

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use node::clock;
use node::http::{CredentialBinding, UploadBody};
use sandbox::SandboxFiles;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::errors::{RestError, RpcError, not_running};
use super::filesystem::{self, DirectoryWatch, WatchRequest};
use super::frames::{self, EnvelopeReader};
use super::process::{InputData, ProcessEvent, ProcessSelector, PtyRequest, StartRequest};
use super::sandboxes::{LiveE2bSandbox, SandboxClosed};
use super::tokens::TokenPurpose;
use super::{E2bContext, discard, transfer};
use crate::service::SandboxGuard;

/// Maximum bytes of one message.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The content type of streams.
const STREAM_TYPE: &str = "application/connect+json";
/// Default interval of keep-alive messages in seconds, and its allowed range.
const KEEPALIVE_S: u64 = 90;
const KEEPALIVE_S_MIN: u64 = 1;
const KEEPALIVE_S_MAX: u64 = 3600;
/// The only user of a sandbox.
pub(super) const USER: &str = "user";
/// Numbers of the signals in Connect's protocol.
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Answers a request to services in a sandbox.
pub(super) async fn answer(face: &E2bContext, id: &str, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    match (request.method(), path.as_str()) {
        (&Method::GET, "/health") => health(face, id).await,
        (&Method::GET | &Method::POST, "/files") => transfer::answer(face, Some(id), request).await,
        (&Method::GET, "/metrics" | "/envs") => {
            let binding = CredentialBinding::of(request.extensions());
            if !has_token(face, id, request.headers(), &binding) {
                return RestError::unauthenticated().into_response();
            }
            about(face, id, &path).await
        }
        (&Method::POST, path) => match path.trim_start_matches('/').split_once('/') {
            Some((service, method)) => call(face, id, service, method, request).await,
            None => RestError::new(StatusCode::NOT_FOUND, "not found").into_response(),
        },
        _ => RestError::new(StatusCode::NOT_FOUND, "not found").into_response(),
    }
}

/// Returns whether a request has a token of a sandbox. If so, the request ends when the token is
/// revoked.
pub(super) fn has_token(
    face: &E2bContext,
    id: &str,
    headers: &HeaderMap,
    binding: &CredentialBinding,
) -> bool {
    let mut given = headers.get_all("x-access-token").iter();
    let token = given.next().and_then(|value| value.to_str().ok());
    given.next().is_none()
        && token.is_some_and(|token| face.is_opened(TokenPurpose::Access, id, token, binding))
}

async fn health(face: &E2bContext, id: &str) -> Response {
    // A health check does not resume a paused sandbox.
    match face.sandboxes.check(&face.sessions, id).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(closed) => closed.answer(id),
    }
}

impl SandboxClosed {
    /// Returns the response outside of streams.
    pub(super) fn answer(self, id: &str) -> Response {
        match self {
            SandboxClosed::NotRunning => not_running(id),
            SandboxClosed::Failed(error) => RestError::from(error).into_response(),
        }
    }
}

/// Returns metrics or environment of a sandbox.
async fn about(face: &E2bContext, id: &str, path: &str) -> Response {
    let (live, guard) = match face.sandboxes.open(&face.sessions, &face.keys, id).await {
        Ok(open) => open,
        Err(closed) => return closed.answer(id),
    };
    if path == "/envs" {
        let env = match guard.environment(&own(id, &live)).await {
            Ok(env) => env,
            Err(error) => return RestError::from(error).into_response(),
        };
        let pairs = env.iter().filter_map(|pair| {
            let text = String::from_utf8_lossy(pair);
            text.split_once('=').map(|(name, value)| (name.to_owned(), json!(value)))
        });
        return Json(pairs.collect::<serde_json::Map<_, _>>()).into_response();
    }
    match face.sample(&live.tenant, id).await {
        Ok(Some(sample)) => Json(json!({
            "ts": sample.at_ms / 1000,
            "cpu_count": sample.cpu_count,
            "cpu_used_pct": sample.cpu_used_pct,
            "mem_total": sample.memory_total,
            "mem_used": sample.memory_used,
            "disk_used": sample.disk_used,
            "disk_total": sample.disk_total,
        }))
        .into_response(),
        Ok(None) => not_running(id),
        Err(error) => RestError::from(error).into_response(),
    }
}

/// Returns the variables that describe the sandbox to its processes.
fn own(id: &str, live: &LiveE2bSandbox) -> BTreeMap<String, String> {
    [("E2B_SANDBOX", "true"), ("E2B_SANDBOX_ID", id), ("E2B_TEMPLATE_ID", &live.kept.template)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Rejects users that sandboxes do not have.
///
/// # Errors
/// If another user is named.
fn check_user(headers: &HeaderMap) -> Result<(), RpcError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(()) };
    let named = value.to_str().ok().and_then(|text| text.strip_prefix("Basic "));
    let named = named.and_then(|text| STANDARD.decode(text.trim()).ok());
    let Some(named) = named.and_then(|bytes| String::from_utf8(bytes).ok()) else { return Ok(()) };
    match named.split(':').next().unwrap_or_default() {
        "" | USER => Ok(()),
        other => {
            let other = super::errors::shown(other);
            Err(RpcError::invalid(format!("there is no user `{other}`; the only one is `user`")))
        }
    }
}

/// An authorized procedure call.
struct EnvdCall<'a> {
    live: Arc<LiveE2bSandbox>,
    guard: SandboxGuard,
    id: &'a str,
    headers: HeaderMap,
}

/// Calls a procedure.
async fn call(
    face: &E2bContext,
    id: &str,
    service: &str,
    method: &str,
    request: Request,
) -> Response {
    let is_stream = match content_type(request.headers()) {
        Some(STREAM_TYPE) => true,
        Some("application/json") => false,
        _ => {
            let accepted = [(header::ACCEPT, HeaderValue::from_static("application/json"))];
            return (StatusCode::UNSUPPORTED_MEDIA_TYPE, accepted).into_response();
        }
    };
    let refuse = |error: RpcError| if is_stream { failed(&error) } else { error.into_response() };
    let headers = request.headers().clone();
    let binding = CredentialBinding::of(request.extensions());
    let body = match UploadBody::from_request(request, &()).await {
        Ok(body) => body,
        Err(error) => return refuse(error.into()),
    };
    let allowed = match has_token(face, id, &headers, &binding) {
        true => check_user(&headers),
        false => {
            let message = "the access token is missing or wrong";
            Err(RpcError::new("unauthenticated", message))
        }
    };
    if let Err(error) = allowed {
        discard(body).await;
        return refuse(error);
    }
    let (live, guard) = match face.sandboxes.open(&face.sessions, &face.keys, id).await {
        Ok(open) => open,
        Err(closed) => {
            discard(body).await;
            return closed.answer(id);
        }
    };
    let call = EnvdCall { live, guard, id, headers };
    let answered = match (is_stream, service, method) {
        (true, "process.Process", "StreamInput") => call.stream_input(body).await,
        (true, "process.Process", "Start") => call.start(body).await,
        (true, "process.Process", "Connect") => call.connect(body).await,
        (true, "filesystem.Filesystem", "WatchDir") => call.watch(body).await,
        (false, "process.Process", _) => call.process(method, body).await,
        (false, "filesystem.Filesystem", _) => call.filesystem(method, body).await,
        _ => {
            discard(body).await;
            Err(unimplemented(service, method))
        }
    };
    answered.unwrap_or_else(refuse)
}

fn unimplemented(service: &str, method: &str) -> RpcError {
    let (service, method) = (super::errors::shown(service), super::errors::shown(method));
    RpcError::new("unimplemented", format!("there is no procedure {service}/{method} here"))
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    text.split(';').next().map(str::trim)
}

/// Returns a header's value as a number.
fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Returns a stream that contains only an error.
fn failed(error: &RpcError) -> Response {
    streamed(Body::from(frames::end(Some(error))))
}

fn streamed(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(STREAM_TYPE)),
        // Prevents proxies from buffering events.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, body).into_response()
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, RpcError> {
    serde_json::from_value(value).map_err(|error| RpcError::invalid(error.to_string()))
}

/// Reads the message of a unary call.
async fn unary<T: DeserializeOwned>(body: UploadBody) -> Result<T, RpcError> {
    let bytes = body.all(MESSAGE_BYTES_MAX as u64).await?;
    typed(frames::parse(&bytes)?)
}

/// Reads the single message of a call with a streamed response.
async fn first<T: DeserializeOwned>(body: UploadBody) -> Result<T, RpcError> {
    let bytes = body.all(MESSAGE_BYTES_MAX as u64).await?;
    let mut incoming = EnvelopeReader::new(MESSAGE_BYTES_MAX);
    incoming.push(&bytes);
    let message = incoming.next()?.ok_or_else(|| RpcError::invalid("the message is missing"))?;
    typed(message)
}

/// Process that a message refers to.
#[derive(serde::Deserialize)]
struct ProcessMessage {
    #[serde(default)]
    process: ProcessSelector,
    input: Option<Value>,
    pty: Option<PtyRequest>,
    signal: Option<Value>,
}

/// Watch that a message refers to.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchMessage {
    watcher_id: String,
}

impl EnvdCall<'_> {
    async fn process(&self, method: &str, body: UploadBody) -> Result<Response, RpcError> {
        let processes = &self.live.processes;
        let about: ProcessMessage = unary(body).await?;
        let find = || processes.find(&about.process);
        let answer = match method {
            "List" => processes.list(),
            "SendInput" => {
                let input = about.input.as_ref().unwrap_or(&Value::Null);
                find()?.write(&InputData::parse(input)?).await?;
                json!({})
            }
            "CloseStdin" => {
                find()?.close().await?;
                json!({})
            }
            "SendSignal" => {
                find()?.signal(signal(about.signal.as_ref())?).await?;
                json!({})
            }
            "Update" => {
                let size = about.pty.and_then(|pty| pty.size());
                if let Some(size) = size {
                    find()?.resize(size).await?;
                }
                json!({})
            }
            _ => return Err(unimplemented("process.Process", method)),
        };
        Ok(Json(answer).into_response())
    }

    async fn filesystem(&self, method: &str, body: UploadBody) -> Result<Response, RpcError> {
        let files = match self.files().await {
            Ok(files) => files,
            Err(error) => {
                discard(body).await;
                return Err(error);
            }
        };
        let watchers = &self.live.watchers;
        let answer = match method {
            "Stat" => filesystem::stat(&files, unary(body).await?).await?,
            "MakeDir" => filesystem::make_dir(&files, unary(body).await?).await?,
            "Move" => filesystem::rename(&files, unary(body).await?).await?,
            "Remove" => filesystem::remove(&files, unary(body).await?).await?,
            "ListDir" => filesystem::list(&files, unary(body).await?).await?,
            "CreateWatcher" => watchers.create(files, unary(body).await?).await?,
            "GetWatcherEvents" => {
                watchers.take(&unary::<WatchMessage>(body).await?.watcher_id).await?
            }
            "RemoveWatcher" => watchers.remove(&unary::<WatchMessage>(body).await?.watcher_id)?,
            _ => {
                discard(body).await;
                return Err(unimplemented("filesystem.Filesystem", method));
            }
        };
        Ok(Json(answer).into_response())
    }

    async fn files(&self) -> Result<SandboxFiles, RpcError> {
        Ok(self.guard.files().await?)
    }

    /// Returns the client's timeout for this call; none without a limit.
    fn time(&self) -> Option<Duration> {
        let ms = number(&self.headers, "connect-timeout-ms").filter(|ms| *ms > 0);
        ms.map(Duration::from_millis)
    }

    fn keepalive(&self) -> Interval {
        let seconds = number(&self.headers, "keepalive-ping-interval").unwrap_or(KEEPALIVE_S);
        let period = Duration::from_secs(seconds.clamp(KEEPALIVE_S_MIN, KEEPALIVE_S_MAX));
        let mut interval = interval_at(Instant::from_std(clock::now()) + period, period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    }

    async fn start(self, body: UploadBody) -> Result<Response, RpcError> {
        let request: StartRequest = first(body).await?;
        let own = own(self.id, &self.live);
        let processes = &self.live.processes;
        let told = processes.start(&self.guard, request, &own, self.time()).await?;
        // The process itself has the same time limit.
        Ok(self.follow(told, None))
    }

    async fn connect(self, body: UploadBody) -> Result<Response, RpcError> {
        let about: ProcessMessage = first(body).await?;
        let told = self.live.processes.connect(&about.process)?;
        let until = self.time().map(|time| Instant::from_std(clock::now()) + time);
        Ok(self.follow(told, until))
    }

    /// Streams the events of a process.
    fn follow(self, told: mpsc::Receiver<ProcessEvent>, until: Option<Instant>) -> Response {
        let following =
            ProcessFollower { told, keepalive: self.keepalive(), until, is_over: false };
        streamed(Body::from_stream(stream::unfold(following, ProcessFollower::next)))
    }

    /// Writes streamed input to a process until the client ends the stream.
    async fn stream_input(self, mut body: UploadBody) -> Result<Response, RpcError> {
        let mut incoming = EnvelopeReader::new(MESSAGE_BYTES_MAX);
        let mut process = None;
        loop {
            while let Some(message) = incoming.next()? {
                if let Some(start) = message.get("start") {
                    let about: ProcessMessage = typed(start.clone())?;
                    process = Some(self.live.processes.find(&about.process)?);
                }
                if let Some(data) = message.get("data") {
                    let input = data.get("input").unwrap_or(&Value::Null);
                    let to = process.as_ref();
                    let to = to.ok_or_else(|| RpcError::invalid("`start` comes first"))?;
                    to.write(&InputData::parse(input)?).await?;
                }
            }
            match body.chunk().await? {
                Some(bytes) => incoming.push(&bytes),
                None if incoming.is_empty() => break,
                None => return Err(RpcError::invalid("the last message is incomplete")),
            }
        }
        let mut answer = frames::message(&json!({})).to_vec();
        answer.extend_from_slice(&frames::end(None));
        Ok(streamed(Body::from(answer)))
    }

    /// Streams the events of a directory.
    async fn watch(self, body: UploadBody) -> Result<Response, RpcError> {
        let request: WatchRequest = first(body).await?;
        let files = self.files().await?;
        let watching = DirectoryFollower {
            watching: DirectoryWatch::start(files, request).await?,
            keepalive: self.keepalive(),
            until: self.time().map(|time| Instant::from_std(clock::now()) + time),
            has_begun: false,
            is_over: false,
        };
        Ok(streamed(Body::from_stream(stream::unfold(watching, DirectoryFollower::next))))
    }
}

fn signal(value: Option<&Value>) -> Result<i32, RpcError> {
    match value.and_then(Value::as_str) {
        Some("SIGNAL_SIGTERM") => Ok(SIGTERM),
        Some("SIGNAL_SIGKILL") => Ok(SIGKILL),
        _ => Err(RpcError::invalid("signal: must be SIGNAL_SIGTERM or SIGNAL_SIGKILL")),
    }
}

/// Item of a stream, and the state for the next one.
type Step<T> = Option<(Result<Bytes, Infallible>, T)>;

async fn timer(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn took_too_long() -> RpcError {
    RpcError::new("deadline_exceeded", "the time that the client gave is over")
}

/// Stream of a process's events to a client.
struct ProcessFollower {
    told: mpsc::Receiver<ProcessEvent>,
    keepalive: Interval,
    until: Option<Instant>,
    is_over: bool,
}

impl ProcessFollower {
    async fn next(mut self) -> Step<ProcessFollower> {
        if self.is_over {
            return None;
        }
        let told = tokio::select! {
            biased;
            told = self.told.recv() => told,
            () = timer(self.until) => Some(ProcessEvent::Over(Some(took_too_long()))),
            _ = self.keepalive.tick() => {
                let alive = json!({ "event": { "keepalive": {} } });
                Some(ProcessEvent::Message(frames::message(&alive)))
            }
        };
        let bytes = match told {
            Some(ProcessEvent::Message(bytes)) => {
                self.keepalive.reset();
                bytes
            }
            Some(ProcessEvent::Over(error)) => {
                self.is_over = true;
                frames::end(error.as_ref())
            }
            None => {
                self.is_over = true;
                frames::end(Some(&RpcError::sandbox_ended()))
            }
        };
        Some((Ok(bytes), self))
    }
}

/// Stream of a directory's events to a client.
struct DirectoryFollower {
    watching: DirectoryWatch,
    keepalive: Interval,
    until: Option<Instant>,
    has_begun: bool,
    is_over: bool,
}

impl DirectoryFollower {
    async fn next(mut self) -> Step<DirectoryFollower> {
        if self.is_over {
            return None;
        }
        if !self.has_begun {
            self.has_begun = true;
            return Some((Ok(frames::message(&json!({ "start": {} }))), self));
        }
        let bytes = tokio::select! {
            biased;
            () = timer(self.until) => {
                self.is_over = true;
                frames::end(Some(&took_too_long()))
            }
            told = self.watching.next() => match told {
                Some(told) => {
                    self.keepalive.reset();
                    frames::message(&json!({ "filesystem": told }))
                }
                // The directory or the sandbox is gone.
                None => {
                    self.is_over = true;
                    frames::end(None)
                }
            },
            _ = self.keepalive.tick() => frames::message(&json!({ "keepalive": {} })),
        };
        Some((Ok(bytes), self))
    }
}
