//! Access to the model for sandboxes with a model grant: to certain models, within a budget.
//!
//! The same requests and headers pass as in the relay of agents. In addition, a request is read
//! before it is sent, because its body names the model, and the usage of its answer is charged to
//! the budgets of the grant and of its tenant. If the client disconnects before the end of an
//! answer, the answer's usage is unknown and is estimated, rather too high, so that leaving early
//! does not save tokens.
//!
//! A budget is checked before a request is sent, and charged when its answer ends: concurrent
//! requests may exceed it.
//!
//! # References
//! - <https://docs.anthropic.com/en/api/messages>

mod budget;
mod exchange;
mod question;

/// Entries of the fuzz targets for messages between a sandbox and a model.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::question::ModelQuery;
    pub use crate::model::usage::fuzzing::usage;

    /// Parses a request and returns the model that it names.
    pub fn model(body: &[u8]) -> Option<String> {
        ModelQuery::read(body).ok().map(|question| question.model)
    }
}

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use node::client::TlsRoots;
use node::cluster::AmountLedger;
use node::fence::EffectFence;
use node::task::Boxed;
use node::telemetry::Registry;
use node::traces::Tracer;
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::budget::{ByteBudget, GrantBudget, HeldBytes, ModelAccounts, TenantBudget};
use self::exchange::ModelExchange;
use self::question::ModelQuery;
use super::upstream::{ModelUpstream, UpstreamAnswer};
use super::{BODY_BYTES_MAX, CONNECTION_TIME_MAX, CONNECTIONS_MAX};
use super::{Body, BoxError, ModelKey, ModelKeyOwner, ModelRefusal, UsageTotals};
use crate::metrics::ModelUse;
use crate::traces::ModelTracer;

/// Maximum bytes of request bodies held for one grant.
const HELD_BYTES_MAX_PER_GRANT: usize = 2 * BODY_BYTES_MAX;
/// Maximum bytes of request bodies held for one tenant's grants.
const HELD_BYTES_MAX_PER_TENANT: usize = 4 * BODY_BYTES_MAX;
/// Maximum bytes of all request bodies held.
const HELD_BYTES_MAX: usize = 16 * BODY_BYTES_MAX;
/// Longest wait for the body of a request.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// Largest body that is parsed on the serving thread; a longer one is parsed on a blocking thread.
const READ_AT_ONCE_MAX: usize = 256 << 10;

/// Tokens of a request and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelTokens {
    /// Tokens that the model read, without those from its cache.
    pub input: u64,
    /// Tokens that it wrote.
    pub output: u64,
    /// Tokens written to its cache.
    pub cache_write: u64,
    /// Tokens read from its cache.
    pub cache_read: u64,
}

impl ModelTokens {
    /// Returns the total number of tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        let questions = self.input.saturating_add(self.cache_write).saturating_add(self.cache_read);
        questions.saturating_add(self.output)
    }
}

/// Price of a model, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelPrice {
    /// Price of input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
    /// Price of input that is written to the cache.
    pub cache_write: f64,
    /// Price of input that is read from the cache.
    pub cache_read: f64,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelEnd {
    /// Answered.
    Answered,
    /// The model could not be reached or answered with an error, or the client disconnected.
    Failed,
    /// Not sent.
    Refused,
}

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// Method.
    pub method: &'a str,
    /// Path without the query, truncated for logs.
    pub path: &'a str,
    /// Requested model, if known; its name is truncated.
    pub model: Option<&'a str>,
    /// Outcome.
    pub end: ModelEnd,
    /// Status of the response; `None` if the client disconnected before.
    pub status: Option<u16>,
    /// Why it failed or was refused.
    pub error: Option<&'a str>,
    /// Duration of the request.
    pub took: Duration,
    /// Tokens of the request and its answer.
    pub tokens: ModelTokens,
    /// True if `tokens` is an estimate.
    pub is_estimated: bool,
    /// Bytes of the request's body.
    pub bytes_out: u64,
    /// Bytes of the answer's body.
    pub bytes_in: u64,
}

/// Receives reports of requests. Must not block.
pub trait ModelWitness: Send + Sync + fmt::Debug {
    /// Reports a finished request.
    fn saw(&self, request: &ModelRequest<'_>);
}

/// Specification of a door.
#[derive(Clone, Debug)]
pub struct ModelDoorSpec {
    /// Owner of the door: a session or execution. Its usage is recorded under this and `port`.
    pub holder: Arc<str>,
    /// True if the owner may move to another server, or outlive this one: its usage is stored.
    pub is_lasting: bool,
    /// Port in the sandbox.
    pub port: u16,
    /// Tenant of the holder.
    pub tenant: Arc<str>,
    /// Allowed models; all if empty.
    pub models: Vec<String>,
    /// Budget in tokens.
    pub tokens_max: Option<u64>,
    /// Budget in US dollars.
    pub dollars_max: Option<f64>,
    /// Prices of models. If `dollars_max` is set, a model without a price is rejected.
    pub prices: BTreeMap<String, ModelPrice>,
    /// Receiver of reports of finished requests.
    pub told: Arc<dyn ModelWitness>,
}

/// Why doors could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelDoorsError {
    /// The URL of the endpoint is invalid.
    #[error("sessions.model.url: {0}")]
    Url(&'static str),
    /// The key is invalid.
    #[error("sessions.model.api_key: has invalid characters")]
    Key,
}

/// Factory of doors to one endpoint. Cheap to clone.
#[derive(Clone)]
pub struct ModelDoors(Arc<ModelProxyShared>);

/// State that all doors share.
struct ModelProxyShared {
    upstream: ModelUpstream,
    access: ModelKeyOwner,
    accounts: ModelAccounts,
    room: Arc<ByteBudget>,
    tally: Arc<UsageTotals>,
    /// None if nothing is traced.
    tracer: Option<Tracer>,
}

impl fmt::Debug for ModelDoors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelDoors").field(&self.0.upstream.authority()).finish()
    }
}

impl ModelDoors {
    /// Creates doors to the endpoint at `url`, with the key that is added to their requests.
    /// `tokens_max_per_tenant` is each tenant's budget in tokens; 0 means no limit.
    ///
    /// # Errors
    /// If the URL or the key is invalid.
    pub fn new(
        url: &str,
        key: Option<&str>,
        roots: TlsRoots,
        tokens_max_per_tenant: u64,
    ) -> Result<ModelDoors, ModelDoorsError> {
        let upstream = ModelUpstream::new(url, roots).map_err(ModelDoorsError::Url)?;
        let key = match key {
            Some(key) => Some(ModelKey::new(key).ok_or(ModelDoorsError::Key)?),
            None => None,
        };
        Ok(ModelDoors(Arc::new(ModelProxyShared {
            upstream,
            access: ModelKeyOwner::Shared(key),
            accounts: ModelAccounts::new(tokens_max_per_tenant, HELD_BYTES_MAX_PER_TENANT),
            room: Arc::new(ByteBudget::new(HELD_BYTES_MAX)),
            tally: Arc::default(),
            tracer: None,
        })))
    }

    /// Connects requests to the traces of their sandboxes. Must be called before a door is opened.
    #[must_use]
    pub fn traced_by(mut self, tracer: Option<Tracer>) -> ModelDoors {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.tracer = tracer;
        }
        self
    }

    /// Records the usage of sessions and tenants in a ledger. Must be called before a door is
    /// opened.
    #[must_use]
    pub fn kept_in(mut self, ledger: Option<AmountLedger>) -> ModelDoors {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.accounts.keep_in(ledger);
        }
        self
    }

    /// Stops sending when the lease of `fence` ends. Must be called before a door is opened.
    #[must_use]
    pub fn fenced_by(mut self, fence: EffectFence) -> ModelDoors {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.upstream.fence_by(fence);
        }
        self
    }

    /// Registers the metrics of all doors together.
    pub fn register(&self, registry: &mut Registry) {
        let of_grants = ModelUse::of_grants(Arc::clone(&self.0.tally));
        registry.register_collector(Box::new(of_grants));
    }

    /// Opens a door.
    #[must_use]
    pub fn open(&self, spec: ModelDoorSpec) -> Arc<ModelDoor> {
        let (budget, tenant) = self.0.accounts.open(&spec);
        let tracer = self.0.tracer.clone();
        let tracer = tracer.map(|tracer| ModelTracer { tracer, holder: spec.holder.clone() });
        Arc::new(ModelDoor {
            shared: Arc::clone(&self.0),
            caller: spec.tenant,
            models: spec.models,
            budget,
            tenant,
            room: Arc::new(ByteBudget::new(HELD_BYTES_MAX_PER_GRANT)),
            told: spec.told,
            tracer,
        })
    }
}

/// Model access of one grant of one sandbox.
pub struct ModelDoor {
    shared: Arc<ModelProxyShared>,
    /// Tenant of the holder, whose upstream connections its requests use.
    caller: Arc<str>,
    models: Vec<String>,
    budget: GrantBudget,
    tenant: Arc<TenantBudget>,
    room: Arc<ByteBudget>,
    told: Arc<dyn ModelWitness>,
    tracer: Option<ModelTracer>,
}

impl fmt::Debug for ModelDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDoor").field("models", &self.models).finish_non_exhaustive()
    }
}

impl ModelDoor {
    /// Connections that should be served at one time.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        CONNECTIONS_MAX
    }

    /// Serves one connection to its end. Dropping the future ends it, with its requests.
    #[must_use]
    pub fn serve(self: Arc<Self>, stream: TcpStream) -> Boxed<'static, ()> {
        let answer = move |request| -> Boxed<'static, Response<Body>> {
            Box::pin(Arc::clone(&self).answer(request))
        };
        let serving = super::speak(stream, Box::new(answer));
        Box::pin(async move {
            if timeout(CONNECTION_TIME_MAX, serving).await.is_err() {
                tracing::trace!("a connection to the model has lasted too long");
            }
        })
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        self.shared.tally.request();
        let (head, body) = request.into_parts();
        let mut exchange = ModelExchange::new(Arc::clone(&self), &head);
        match self.relay(head, body, &mut exchange).await {
            Ok(answer) => {
                exchange.answered(answer.status());
                super::pass(answer, exchange)
            }
            Err(refused) => {
                self.shared.tally.failed();
                exchange.refused(refused);
                refused.into_response()
            }
        }
    }

    async fn relay(
        &self,
        mut head: Parts,
        body: Incoming,
        exchange: &mut ModelExchange,
    ) -> Result<Response<UpstreamAnswer>, ModelRefusal> {
        let shared = &self.shared;
        shared.upstream.check_lease()?;
        if !shared.access.allows(&head.method, head.uri.path()) {
            return Err(ModelRefusal::Path);
        }
        self.budget.check().await?;
        let body = match head.method {
            Method::POST => {
                let (question, body) = self.question(&head, body).await?;
                exchange.asked(&question, body.len());
                if !self.is_granted(&question) {
                    return Err(ModelRefusal::Model);
                }
                // The body was parsed as JSON, regardless of the client's content type.
                let json = HeaderValue::from_static("application/json");
                head.headers.insert(CONTENT_TYPE, json);
                body.boxed_unsync()
            }
            _ => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        };
        // The budget may have been used up while the body arrived.
        self.budget.check().await?;
        exchange.sent();
        let trace = |headers: &mut HeaderMap| {
            if let Some(tracer) = &self.tracer {
                tracer.write(headers);
            }
        };
        let (upstream, key) = (&shared.upstream, shared.access.key());
        super::send(upstream, &self.caller, &head, body, key, trace).await
    }

    /// Reads and parses the body of a request.
    async fn question(
        &self,
        head: &Parts,
        mut body: Incoming,
    ) -> Result<(ModelQuery, HeldBody), ModelRefusal> {
        if head.headers.contains_key(CONTENT_ENCODING) {
            return Err(ModelRefusal::Encoded);
        }
        if super::is_too_large(&body) {
            return Err(ModelRefusal::TooLarge);
        }
        let rooms = [&self.room, &self.tenant.room, &self.shared.room].map(Arc::clone);
        let mut held = HeldBytes::new(rooms);
        let reading = async {
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let Ok(piece) = frame.map_err(|_| ModelRefusal::Unread)?.into_data() else {
                    continue;
                };
                if bytes.len() + piece.len() > BODY_BYTES_MAX {
                    return Err(ModelRefusal::TooLarge);
                }
                if !held.grow(piece.len()) {
                    return Err(ModelRefusal::Full);
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(bytes.freeze())
        };
        let bytes = timeout(BODY_TIME_MAX, reading).await.map_err(|_| ModelRefusal::Unread)??;
        let read = match bytes.len() {
            0..=READ_AT_ONCE_MAX => ModelQuery::read(&bytes),
            _ => {
                let bytes = bytes.clone();
                let reading = node::task::blocking(move || ModelQuery::read(&bytes));
                reading.await.map_err(|_| ModelRefusal::Unread)?
            }
        };
        let question = read.map_err(ModelRefusal::Unclear)?;
        Ok((question, HeldBody { body: Full::new(bytes), _held: held }))
    }

    fn is_granted(&self, question: &ModelQuery) -> bool {
        let is_listed = |model: &String| self.models.contains(model);
        let is_open = self.models.is_empty();
        let is_granted = is_open
            || (is_listed(&question.model)
                && question.of_tools.iter().all(is_listed)
                && !question.has_others);
        is_granted && self.budget.has_price(&question.model)
    }
}

/// A body that was read completely. Releases its room when dropped.
#[derive(Debug)]
struct HeldBody {
    body: Full<Bytes>,
    _held: HeldBytes,
}

impl HeldBody {
    fn len(&self) -> u64 {
        self.body.size_hint().lower()
    }
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        polled.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
