//! Relay between an agent and the model: a listener inside the sandbox, served from outside.
//!
//! An agent speaks plain HTTP to a port on its loopback interface and has no key. Requests below
//! `/v1/` are sent to the configured endpoint only, with the key added here; the answer is streamed
//! back. In both directions only listed headers pass (`headers`), so neither a key nor a cookie
//! leaks. Nothing is stored except what connection buffers hold.
//!
//! Agents of all tenants share the relay: each tenant's requests take its own turns, and a tenant
//! may have at most as many requests in progress as remain free for others.
//!
//! It does not use `node::client`, because bodies are streamed and connections reused: each new
//! connection costs a handshake before the first token.

pub mod door;
mod headers;
mod upstream;
mod usage;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use node::client::TlsRoots;
use node::fair::FairScheduler;
use node::fence::{EffectFence, LEASE_LOST, LEASE_RETRY, LeaseLost, is_lease_lost};
use node::http::{Share, ShareOwner, ShareRefusal, Shares};
use node::task::Boxed;
use node::traces::Span;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::upstream::{ModelUpstream, UpstreamAnswer, UpstreamError};
use self::usage::{CountedAnswer, ModelUsage, UsageObserver};
pub(crate) use self::usage::{TokenCounts, UsageTotals};
use crate::traces::ModelTracer;

/// Maximum concurrent connections of one sandbox; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 32;
/// Maximum concurrent requests of all agents. Each uses a connection to the model, which is a
/// descriptor beside that of its agent.
pub(crate) const REQUESTS_MAX: usize = 4096;
/// Multiple of the free places that one tenant may take.
const REQUESTS_WEIGHT: usize = 1;
/// Maximum duration of one connection, with all its requests.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// Longest wait for the head of a request, and between two requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5 * 60);
/// Maximum bytes of a request's head, and of data read ahead.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a request's body; the Messages API has the same limit.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Longest wait for the head of an answer; the Messages API promises it within ten minutes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(11 * 60);
/// Pause after a connection could not be accepted because descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A streamed body.
type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Key for the model. Never shown.
#[derive(Clone)]
pub(crate) struct ModelKey(HeaderValue);

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelKey")
    }
}

impl ModelKey {
    /// Reads a configured key; none if it has invalid characters.
    pub(crate) fn new(key: &str) -> Option<ModelKey> {
        let mut value = HeaderValue::from_str(key.trim()).ok().filter(|key| !key.is_empty())?;
        value.set_sensitive(true);
        Some(ModelKey(value))
    }
}

/// Owner of the key that is added to a session's requests.
#[derive(Clone, Debug)]
pub(crate) enum ModelKeyOwner {
    /// Key of the session's owner: every path under `/v1/` is allowed.
    Own(ModelKey),
    /// Key of the server, which sessions share: paths that would show one key user's data to
    /// another, such as batches and files, are rejected.
    Shared(Option<ModelKey>),
}

/// Relays between agents and the model. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ModelRelay(Arc<ModelRelayShared>);

/// State that the sandboxes of all tenants share.
struct ModelRelayShared {
    upstream: ModelUpstream,
    /// Fair turns of tenants for all their requests to this server.
    turns: FairScheduler,
    /// Places for requests in progress.
    places: Arc<Shares>,
}

impl fmt::Debug for ModelRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelRelay").field(&self.0.upstream.authority()).finish()
    }
}

/// Access of one session to the model.
#[derive(Debug)]
pub(crate) struct ModelAccessSpec {
    /// The session's tenant, whose turns and places its requests take.
    pub(crate) tenant: Arc<str>,
    /// Owner of the key that is added to its requests.
    pub(crate) key: ModelKeyOwner,
    /// Counters of its usage.
    pub(crate) tally: Arc<UsageTotals>,
    /// None if nothing is traced.
    pub(crate) tracer: Option<ModelTracer>,
}

impl ModelRelay {
    /// Creates a relay to the endpoint at `url`, whose path, if any, is prefixed to every request's
    /// path. At most `requests_max` requests are in progress at a time.
    ///
    /// # Errors
    /// A description of the problem with `url`.
    pub(crate) fn new(
        url: &str,
        roots: TlsRoots,
        turns: FairScheduler,
        requests_max: usize,
    ) -> Result<ModelRelay, &'static str> {
        let upstream = ModelUpstream::new(url, roots)?;
        let places = Shares::new(requests_max, REQUESTS_WEIGHT);
        Ok(ModelRelay(Arc::new(ModelRelayShared { upstream, turns, places })))
    }

    /// Stops sending when the lease of `fence` ends. Must be called before a sandbox is served.
    pub(crate) fn fenced_by(mut self, fence: EffectFence) -> ModelRelay {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.upstream.fence_by(fence);
        }
        self
    }

    /// Serves a sandbox's listener; dropping the future ends all its requests.
    pub(crate) async fn serve(&self, listener: TcpListener, spec: ModelAccessSpec) {
        let ModelAccessSpec { tenant, key, tally, tracer } = spec;
        let caller = Arc::clone(&tenant);
        let shared = Arc::clone(&self.0);
        let session = Arc::new(ModelSession { shared, tenant, key, tally, tracer });
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let serving = Arc::clone(&session).connection(stream);
                    let serving = timeout(CONNECTION_TIME_MAX, serving);
                    connections.spawn(self.0.turns.run(Arc::clone(&caller), serving));
                }
                Err(error) => {
                    tracing::debug!(%error, "accept a connection to the model");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Handler of requests; boxed, so that hyper's server is compiled once.
type Answers = Box<dyn Fn(Request<Incoming>) -> Boxed<'static, Response<Body>> + Send + Sync>;

/// Serves one connection to its end.
async fn speak(stream: TcpStream, answers: Answers) {
    // If this fails, answers are only slower.
    stream.set_nodelay(true).ok();
    let service = service_fn(|request| {
        let answering = answers(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let mut connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = (&mut connection).await {
        tracing::trace!(%error, "serve a connection to the model");
    }
    node::http::close_lingering(connection.into_parts().io.into_inner()).await;
}

/// State that the requests of one session share.
struct ModelSession {
    shared: Arc<ModelRelayShared>,
    tenant: Arc<str>,
    key: ModelKeyOwner,
    tally: Arc<UsageTotals>,
    /// None if nothing is traced.
    tracer: Option<ModelTracer>,
}

impl ModelSession {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let answer = move |request| -> Boxed<'static, Response<Body>> {
            let session = Arc::clone(&self);
            Box::pin(async move { session.answer(request).await })
        };
        speak(stream, Box::new(answer)).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.tally.request();
        let mut span = self.tracer.as_ref().map_or_else(Span::none, ModelTracer::begin);
        let answer = match self.relay(request, &span).await {
            Ok(answer) => answer,
            Err(refused) => {
                self.tally.failed();
                refused.into_response()
            }
        };
        span.set("http.response.status_code", answer.status().as_u16());
        if answer.status().is_client_error() || answer.status().is_server_error() {
            span.fail("");
        }
        answer
    }

    async fn relay(
        &self,
        request: Request<Incoming>,
        span: &Span,
    ) -> Result<Response<Body>, ModelRefusal> {
        let upstream = &self.shared.upstream;
        upstream.check_lease()?;
        let (head, body) = request.into_parts();
        if !self.key.allows(&head.method, head.uri.path()) {
            return Err(ModelRefusal::Path);
        }
        if is_too_large(&body) {
            return Err(ModelRefusal::TooLarge);
        }
        let tenant = ShareOwner::Tenant(Arc::clone(&self.tenant));
        let place = self.shared.places.take(tenant, 1)?;
        let body = Limited::new(body, BODY_BYTES_MAX).boxed_unsync();
        let trace = |headers: &mut HeaderMap| {
            if let Some(scope) = span.scope() {
                scope.context().write(headers);
            }
        };
        let answer = send(upstream, &self.tenant, &head, body, self.key.key(), trace).await?;
        // Held until the answer's end, which may be long after its head.
        Ok(pass(answer, PlacedUsage { tally: Arc::clone(&self.tally), _place: place }))
    }
}

/// Counts the usage of an answer, and holds its request's place until the answer ends.
struct PlacedUsage {
    tally: Arc<UsageTotals>,
    _place: Share,
}

impl UsageObserver for PlacedUsage {
    fn enter(&mut self, usage: &ModelUsage, bytes: u64) {
        self.tally.enter(usage, bytes);
    }
}

/// Returns whether a body's declared length exceeds the limit.
fn is_too_large(body: &Incoming) -> bool {
    body.size_hint().lower() > u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX)
}

/// Sends a request upstream, with the allowed headers, the key and the headers that `trace` adds.
async fn send(
    upstream: &ModelUpstream,
    tenant: &Arc<str>,
    head: &Parts,
    body: Body,
    key: Option<&ModelKey>,
    trace: impl FnOnce(&mut HeaderMap),
) -> Result<Response<UpstreamAnswer>, ModelRefusal> {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri =
        format!("{}{path}", upstream.base_path()).parse().map_err(|_| ModelRefusal::Path)?;
    let mut message = Request::new(body);
    *message.method_mut() = head.method.clone();
    *message.uri_mut() = uri;
    headers::copy_request(&head.headers, message.headers_mut());
    trace(message.headers_mut());
    if let Some(ModelKey(key)) = key {
        message.headers_mut().insert("x-api-key", key.clone());
    }
    let sent = timeout(ANSWER_TIME_MAX, upstream.send(tenant, message)).await;
    sent.map_err(|_| ModelRefusal::Slow)?.map_err(ModelRefusal::from)
}

/// Returns the allowed parts of an answer, with usage counted in `ledger`.
fn pass<L>(answer: Response<UpstreamAnswer>, ledger: L) -> Response<Body>
where
    L: UsageObserver + Send + Unpin + 'static,
{
    let (head, body) = answer.into_parts();
    let mut passed = Response::new(());
    *passed.status_mut() = head.status;
    headers::copy_answer(&head.headers, passed.headers_mut());
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let counted = CountedAnswer::new(body, kind.unwrap_or_default(), ledger);
    passed.map(|()| counted.boxed_unsync())
}

impl ModelKeyOwner {
    /// Returns the key for its requests; none if the endpoint needs none.
    fn key(&self) -> Option<&ModelKey> {
        match self {
            ModelKeyOwner::Own(key) => Some(key),
            ModelKeyOwner::Shared(key) => key.as_ref(),
        }
    }

    /// Returns whether a request is allowed.
    fn allows(&self, method: &Method, path: &str) -> bool {
        let is_plain = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
            !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain)
        };
        let Some(rest) = path.strip_prefix("/v1/") else { return false };
        // Rejects paths that the endpoint could interpret as another path.
        if !rest.split('/').all(is_plain) {
            return false;
        }
        match self {
            ModelKeyOwner::Own(_) => true,
            ModelKeyOwner::Shared(_) => match rest {
                "messages" | "messages/count_tokens" => method == Method::POST,
                "models" => method == Method::GET,
                model => method == Method::GET && model.starts_with("models/"),
            },
        }
    }
}

/// Error of a request while other servers hold the rest of the budget.
const BUDGET_ELSEWHERE: &str = "another server holds the rest of the budget; try again";
/// Error of a request while the store cannot be reached.
const BUDGET_UNKNOWN: &str =
    "the store, which keeps the budget's usage, cannot be reached; try again";

/// Error of a request whose tenant has used its share of concurrent requests.
const SHARE_EXCEEDED: &str =
    "this tenant has too many requests to the model in progress; try again later";
/// Error of a request when the limit on concurrent requests is reached.
const PLACES_EXHAUSTED: &str =
    "this server has too many requests to the model in progress; try again later";

/// Error of a large request when the memory for bodies is used up.
const FULL: &str = "this server holds too many large requests to the model; try again later";

/// Why a request was not relayed; converted to the error format of the Messages API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelRefusal {
    Path,
    TooLarge,
    /// The body is encoded, so its content cannot be checked.
    Encoded,
    /// The body cannot be parsed, with the reason.
    Unclear(&'static str),
    /// The model is not granted.
    Model,
    /// A granted budget is used up, with the owner.
    Budget(&'static str),
    /// Other servers hold the rest of a budget.
    BudgetElsewhere,
    /// The store cannot report the rest of a budget.
    BudgetUnknown,
    /// Memory for bodies is used up.
    Full,
    /// The tenant has used its share of concurrent requests.
    Exceeded,
    /// All places for requests are taken.
    Exhausted,
    /// The body could not be read, or did not arrive in time.
    Unread,
    Down,
    Slow,
    Broken,
    /// The server's lease has ended.
    Fenced,
}

impl From<LeaseLost> for ModelRefusal {
    fn from(_: LeaseLost) -> ModelRefusal {
        ModelRefusal::Fenced
    }
}

impl From<ShareRefusal> for ModelRefusal {
    fn from(refusal: ShareRefusal) -> ModelRefusal {
        match refusal {
            ShareRefusal::Exceeded => ModelRefusal::Exceeded,
            ShareRefusal::Exhausted => ModelRefusal::Exhausted,
        }
    }
}

impl From<UpstreamError> for ModelRefusal {
    fn from(error: UpstreamError) -> ModelRefusal {
        // The cause is logged for the operator only: it may name hosts.
        tracing::debug!(error = &error as &dyn std::error::Error, "reach the model");
        if is_lease_lost(&error) {
            return ModelRefusal::Fenced;
        }
        match error {
            UpstreamError::TooLarge => ModelRefusal::TooLarge,
            UpstreamError::Connect(_) | UpstreamError::Tls(_) => ModelRefusal::Down,
            UpstreamError::Http(_) => ModelRefusal::Broken,
        }
    }
}

impl ModelRefusal {
    /// Returns status, error type and message.
    fn parts(self) -> (u16, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        match self {
            ModelRefusal::Path => (404, "not_found_error", "this is not relayed to the model"),
            ModelRefusal::TooLarge => (413, "request_too_large", "the request is too large"),
            ModelRefusal::Encoded => (415, INVALID, "the request must not have an encoding"),
            ModelRefusal::Unclear(why) => (400, INVALID, why),
            ModelRefusal::Model => (403, "permission_error", "this model is not granted"),
            ModelRefusal::Budget(whose) => (429, "rate_limit_error", whose),
            ModelRefusal::BudgetElsewhere => (429, "rate_limit_error", BUDGET_ELSEWHERE),
            ModelRefusal::BudgetUnknown => (503, "api_error", BUDGET_UNKNOWN),
            ModelRefusal::Exceeded => (429, "rate_limit_error", SHARE_EXCEEDED),
            ModelRefusal::Exhausted => (529, "overloaded_error", PLACES_EXHAUSTED),
            ModelRefusal::Full => (529, "overloaded_error", FULL),
            ModelRefusal::Unread => (408, "timeout_error", "the request did not come in time"),
            ModelRefusal::Down => (502, "api_error", "the model cannot be reached at present"),
            ModelRefusal::Slow => (504, "timeout_error", "the model did not answer in time"),
            ModelRefusal::Broken => (502, "api_error", "the connection to the model broke"),
            ModelRefusal::Fenced => (503, "api_error", LEASE_LOST),
        }
    }

    fn into_response(self) -> Response<Body> {
        let (status, kind, message) = self.parts();
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        let body = Full::new(Bytes::from(error.to_string()));
        let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self, ModelRefusal::Budget(_)) {
            // Otherwise clients retry in vain.
            answer.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        let comes_back = matches!(
            self,
            ModelRefusal::Fenced
                | ModelRefusal::BudgetElsewhere
                | ModelRefusal::BudgetUnknown
                | ModelRefusal::Exceeded
                | ModelRefusal::Exhausted
        );
        if comes_back {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(LEASE_RETRY.as_secs()));
        }
        answer
    }
}

#[cfg(test)]
mod tests;
