//! A way to the model for sandboxes that were granted it: to some models, and so much of them.
//!
//! What passes and what does not is as with the relay of agents. Beside that a request is read
//! before it is sent, because its body says which model it is for, and what answers use is taken
//! from the budget of the grant and of its tenant. An answer whose end nobody waited for does not
//! say what it used; then it is estimated, rather too high, so that nobody gets one for nothing by
//! leaving early.
//!
//! A budget is looked at before a request is sent, and charged when its answer is gone: what is on
//! its way at the same time may go beyond it.
//!
//! # References
//! - <https://docs.anthropic.com/en/api/messages>

mod budget;
mod exchange;
mod question;

/// Entries of the fuzz targets for what passes between a sandbox and a model.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::question::ModelQuery;
    pub use crate::model::usage::fuzzing::usage;

    /// Reads a request; answers the model that it names.
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

/// Bytes of the requests of one grant that are held at one time.
const HELD_BYTES_MAX_PER_GRANT: usize = 2 * BODY_BYTES_MAX;
/// Bytes of the requests of one tenant's grants that are held at one time.
const HELD_BYTES_MAX_PER_TENANT: usize = 4 * BODY_BYTES_MAX;
/// Bytes of all requests that are held at one time.
const HELD_BYTES_MAX: usize = 16 * BODY_BYTES_MAX;
/// Time for the body of a request.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of a body that are read where it is served; a longer one is read beside that.
const READ_AT_ONCE_MAX: usize = 256 << 10;

/// Tokens of a request and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelTokens {
    /// Tokens that the model read, without those from its cache.
    pub input: u64,
    /// Tokens that it wrote.
    pub output: u64,
    /// Tokens that were put into its cache.
    pub cache_write: u64,
    /// Tokens that came from its cache.
    pub cache_read: u64,
}

impl ModelTokens {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let questions = self.input.saturating_add(self.cache_write).saturating_add(self.cache_read);
        questions.saturating_add(self.output)
    }
}

/// Price of a model, in dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelPrice {
    /// Price of input.
    pub input: f64,
    /// Price of output.
    pub output: f64,
    /// Price of input that is put into the cache.
    pub cache_write: f64,
    /// Price of input that comes from the cache.
    pub cache_read: f64,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelEnd {
    /// Answered.
    Answered,
    /// The model could not be reached or answered with an error, or who asked went away.
    Failed,
    /// Not sent.
    Refused,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// Method.
    pub method: &'a str,
    /// Path, without a query, and not more of it than is worth being written down.
    pub path: &'a str,
    /// The model that was asked for, as far as it is known; not more of its name than that.
    pub model: Option<&'a str>,
    /// Outcome.
    pub end: ModelEnd,
    /// Status of the response; `None` if the client disconnected before.
    pub status: Option<u16>,
    /// Why it failed or was refused.
    pub error: Option<&'a str>,
    /// Time that it took.
    pub took: Duration,
    /// Tokens of the request and its answer.
    pub tokens: ModelTokens,
    /// True if that is an estimate.
    pub is_estimated: bool,
    /// Bytes of its body.
    pub bytes_out: u64,
    /// Bytes of the answer's body.
    pub bytes_in: u64,
}

/// Receives reports of requests. Must not block.
pub trait ModelWitness: Send + Sync + fmt::Debug {
    /// A request is over.
    fn saw(&self, request: &ModelRequest<'_>);
}

/// Specification of a door.
#[derive(Clone, Debug)]
pub struct ModelDoorSpec {
    /// Owner of the door: a session or execution. Its use is remembered by this and `port`.
    pub holder: Arc<str>,
    /// True if the owner may move to another server, or outlast this one: its use is kept in the
    /// store.
    pub is_lasting: bool,
    /// Port inside.
    pub port: u16,
    /// Tenant of the holder.
    pub tenant: Arc<str>,
    /// Models that may be asked for; every one when there is none.
    pub models: Vec<String>,
    /// Tokens that may be used.
    pub tokens_max: Option<u64>,
    /// Dollars that may be spent.
    pub dollars_max: Option<f64>,
    /// Prices of models. A model without a price is refused where there is `dollars_max`.
    pub prices: BTreeMap<String, ModelPrice>,
    /// Receiver of requests that are over.
    pub told: Arc<dyn ModelWitness>,
}

/// Why there are no doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelDoorsError {
    /// The address of the endpoint is wrong.
    #[error("sessions.model.url: {0}")]
    Url(&'static str),
    /// The key is none.
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
    /// None where nothing is traced.
    tracer: Option<Tracer>,
}

impl fmt::Debug for ModelDoors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ModelDoors").field(&self.0.upstream.authority()).finish()
    }
}

impl ModelDoors {
    /// Doors to the endpoint at `url`, with the key that is added to their requests. The tokens
    /// that each tenant may use: 0 is for no limit.
    ///
    /// # Errors
    /// If the address or the key cannot be used.
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

    /// Lets requests go on with the traces that sandboxes are parts of. To be called before a door
    /// is opened.
    #[must_use]
    pub fn traced_by(mut self, tracer: Option<Tracer>) -> ModelDoors {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.tracer = tracer;
        }
        self
    }

    /// Keeps in a ledger what sessions and tenants use. To be called before a door is opened.
    #[must_use]
    pub fn kept_in(mut self, ledger: Option<AmountLedger>) -> ModelDoors {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.accounts.keep_in(ledger);
        }
        self
    }

    /// Sends nothing after the lease of `fence`. To be called before a door is opened.
    #[must_use]
    pub fn fenced_by(mut self, fence: EffectFence) -> ModelDoors {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.upstream.fence_by(fence);
        }
        self
    }

    /// Adds the figures of all doors together.
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

/// The way to the model of one grant of one sandbox.
pub struct ModelDoor {
    shared: Arc<ModelProxyShared>,
    /// Tenant of the holder, whose connections its requests take.
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

    /// Serves one connection to its end. Dropping the future ends it, with the requests that are on
    /// their way.
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
                // Whatever was said of the bytes: what was read is sent.
                let json = HeaderValue::from_static("application/json");
                head.headers.insert(CONTENT_TYPE, json);
                body.boxed_unsync()
            }
            _ => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        };
        // The body may have come slowly.
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

    /// Reads what is asked for.
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

/// A body that was read whole. Gives its room back when it is gone.
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
