//! The shell around handlers: processing of every request before and after its handler.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::ErrorCode;
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::future::Either;
use parking_lot::Mutex;

use super::access::{self, CompatFace, FaceAccess};
use super::connection::ConnectionPeer;
use super::credential::CredentialBinding;
use super::error::HttpError;
use super::fast::{AtOnce, FastHead, ListenerSite, panic_message};
use super::idempotency::{IdempotencyKeys, KeyedRequest};
use super::json::{BodyBudget, content_length};
use super::room::AnsweringRequest;
use super::server::ShellLimits;
use super::shares::{Share, ShareOwner, Shares};
use super::stream::{StreamEnds, StreamPlace, StreamPlaces, is_websocket};
use super::traced;
use crate::auth::TokenRegistry;
use crate::clock::{self, IdGenerator};
use crate::cluster::PeerForwarder;
use crate::current::CurrentSettings;
use crate::drain::{DrainHandle, WorkInProgress};
use crate::fair;
use crate::task::{self, Boxed};
use crate::telemetry::HttpMetrics;
use crate::traces::{Span, Tracer};

/// The header with the id of a request, in the answer and in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Time for which a handler may continue after its credential was revoked: a caller that revokes
/// its own token should receive the answer.
const REVOKED_GRACE: Duration = Duration::from_millis(250);

/// Multiple of the free memory for bodies that a caller's requests may have.
const BODIES_WEIGHT: usize = 1;

/// Path below which requests need a token and count as work.
const PROTECTED: &str = "/v1";

/// Id of a request: `req_` and 26 characters. Handlers may extract it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<RequestId>().cloned().ok_or_else(|| {
            tracing::error!("a handler that wants the request id is routed outside of the shell");
            HttpError::internal()
        })
    }
}

/// Marks an answer of another server, such as of a program in a sandbox: an extension of it.
#[derive(Clone, Copy, Debug)]
pub struct VerbatimAnswer;

/// Marks a request that another node has forwarded: an extension of it.
#[derive(Clone, Copy, Debug)]
pub struct PeerHop;

/// Name of the listener with Cove's own interface.
pub const MAIN_LISTENER: &str = "main";

/// Shell that every request passes through. Cheap to clone; clones share their limits.
#[derive(Clone, Debug)]
pub struct HttpShell {
    shared: Arc<ShellShared>,
    /// Routes whose bodies are streamed.
    streaming: Arc<[&'static str]>,
    /// Forwarder of requests that another node has to answer.
    forwarder: Option<PeerForwarder>,
    /// Keys of requests; none if clients' keys have no effect.
    keys: Option<IdempotencyKeys>,
    /// None if requests are not traced.
    tracer: Option<Tracer>,
}

#[derive(Debug)]
struct ShellShared {
    limits: CurrentSettings<ShellLimits>,
    tokens: TokenRegistry,
    drain: DrainHandle,
    metrics: HttpMetrics,
    ids: IdGenerator,
    bodies: Arc<Shares>,
    streams: StreamPlaces,
}

/// A shell around the routes of one listener.
#[derive(Clone)]
struct ShellService {
    shared: Arc<ShellShared>,
    streaming: Arc<[&'static str]>,
    /// Name of the listener, and the forwarder of requests that another node has to answer.
    listener: &'static str,
    forwarder: Option<PeerForwarder>,
    keys: Option<IdempotencyKeys>,
    tracer: Option<Tracer>,
    /// Faces by path prefix, the longest first.
    faces: Arc<[(&'static str, CompatFace)]>,
}

impl HttpShell {
    /// Creates a shell from its parts. If the limits are replaced later, those of streams and of
    /// all bodies together do not change.
    pub fn new(
        limits: impl Into<CurrentSettings<ShellLimits>>,
        tokens: TokenRegistry,
        drain: DrainHandle,
        metrics: HttpMetrics,
        ids: IdGenerator,
    ) -> HttpShell {
        let limits = limits.into();
        let at_start = limits.now();
        let units = usize::try_from(BodyBudget::units(at_start.bodies_bytes_max));
        let bodies = Shares::new(units.unwrap_or(usize::MAX), BODIES_WEIGHT);
        let streams = StreamPlaces::new(at_start.streams_max, metrics.clone());
        let shared = ShellShared { limits, tokens, drain, metrics, ids, bodies, streams };
        let (shared, streaming) = (Arc::new(shared), Arc::new([]));
        HttpShell { shared, streaming, forwarder: None, keys: None, tracer: None }
    }

    /// Traces requests.
    #[must_use]
    pub fn traced_by(self, tracer: Option<Tracer>) -> HttpShell {
        HttpShell { tracer, ..self }
    }

    /// Forwards requests that another node has to answer.
    #[must_use]
    pub fn forwarding(self, forwarder: Option<PeerForwarder>) -> HttpShell {
        HttpShell { forwarder, ..self }
    }

    /// Carries out requests of the native interface once if they are sent several times with one
    /// key.
    #[must_use]
    pub fn with_keys(self, keys: IdempotencyKeys) -> HttpShell {
        HttpShell { keys: Some(keys), ..self }
    }

    /// Adds routes, by their path patterns, whose handlers take bodies of any length with
    /// [`UploadBody`](super::UploadBody).
    #[must_use]
    pub fn streaming(self, routes: &[&'static str]) -> HttpShell {
        let all = self.streaming.iter().chain(routes).copied().collect();
        HttpShell { streaming: all, ..self }
    }

    /// Puts the shell around the routes of all services.
    pub fn wrap(&self, routes: Router) -> Router {
        self.wrap_with(routes, Vec::new())
    }

    /// As [`Self::wrap`], with faces of other systems, or parts of the native one with rules of
    /// their own: each covers everything below a path, such as `/compat/piston`.
    pub fn wrap_with(&self, routes: Router, faces: Vec<(&'static str, CompatFace)>) -> Router {
        let native = (PROTECTED, CompatFace::NATIVE);
        self.layer(MAIN_LISTENER, routes, faces.into_iter().chain([native]).collect())
    }

    /// Puts the shell around the routes of one face at the listener of this name: the face's access
    /// rules apply to all of it.
    pub fn wrap_face(
        &self,
        listener: &'static str,
        routes: Router,
        face: CompatFace,
    ) -> ListenerSite {
        let render = face.render;
        ListenerSite::from(self.layer(listener, routes, vec![("", face)])).with_errors(render)
    }

    /// Returns an immediate answer, processed as [`handle`] does with a handler's.
    pub(super) fn at_once(
        &self,
        head: FastHead<'_>,
        answer: impl FnOnce() -> Option<AtOnce>,
    ) -> Option<Response> {
        let started = clock::now();
        // Refused on the usual path.
        if self.shared.drain.is_draining() {
            return None;
        }
        let AtOnce { mut response, route } = answer()?;
        let id = self.shared.ids.next("req_");
        if let Some(tracer) = &self.tracer {
            let span = traced::begin(tracer, head.method, head.uri, head.headers, route);
            traced::end(span.since(started), &id, &response);
        }
        self.shared.note(head.method, Cow::Borrowed(route), started, &id, &mut response);
        Some(response)
    }

    fn layer(
        &self,
        listener: &'static str,
        routes: Router,
        mut faces: Vec<(&'static str, CompatFace)>,
    ) -> Router {
        faces.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let wrapped = ShellService {
            shared: Arc::clone(&self.shared),
            streaming: Arc::clone(&self.streaming),
            listener,
            forwarder: self.forwarder.clone(),
            keys: self.keys.clone(),
            tracer: self.tracer.clone(),
            faces: faces.into(),
        };
        routes
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(middleware::from_fn_with_state(wrapped, handle))
    }
}

impl ShellService {
    /// Returns the face of a path. Routes match the path as it was sent, without decoding, so the
    /// comparison is exact.
    fn face(&self, path: &str) -> Option<&CompatFace> {
        let is_below = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.faces.iter().find(|(prefix, _)| is_below(prefix)).map(|(_, face)| face)
    }

    /// Has a request answered by its handler, or by the node that owns its subject.
    fn dispatch(&self, request: Request, next: Next) -> impl Future<Output = Response> + use<> {
        let forwarder = self.forwarder.as_ref();
        match forwarder.and_then(|it| it.find(self.listener, &request)) {
            Some(found) => Either::Left(found.answer(request, next)),
            None => Either::Right(next.run(request)),
        }
    }

    /// Has an admitted request answered, once if it has a key.
    async fn answer(
        &self,
        admission: RequestAdmission,
        mut request: Request,
        next: Next,
        route: &str,
        is_streaming: bool,
        id: &Arc<str>,
    ) -> Response {
        let answering = request.extensions_mut().remove::<Arc<AnsweringRequest>>();
        let handler = match self.keyed(&mut request, route, is_streaming).await {
            Ok(None) => Either::Left(self.dispatch(request, next)),
            Ok(Some((keys, keyed))) => {
                let handler = self.clone().answer_once(keys, keyed, request, next, id.clone());
                Either::Right(Box::pin(handler) as Boxed<'_, Response>)
            }
            Err(error) => Either::Right(Box::pin(async { error.into_response() }) as _),
        };
        self.shared.answer(admission, handler, answering, id).await
    }

    /// Takes the idempotency key from a request of the native interface, if it has one.
    async fn keyed(
        &self,
        request: &mut Request,
        route: &str,
        is_streaming: bool,
    ) -> Result<Option<(IdempotencyKeys, KeyedRequest)>, HttpError> {
        let Some(keys) = self.keys.as_ref().filter(|_| route.starts_with(PROTECTED)) else {
            return Ok(None);
        };
        let keyed = KeyedRequest::take(request, route, is_streaming).await?;
        Ok(keyed.map(|keyed| (keys.clone(), keyed)))
    }

    /// Answers a request with a key. The handler continues without its client, which will retry for
    /// the answer, unless the operation ends with its client.
    async fn answer_once(
        self,
        keys: IdempotencyKeys,
        keyed: KeyedRequest,
        request: Request,
        next: Next,
        id: Arc<str>,
    ) -> Response {
        let ends_with_client = keyed.ends_with_client();
        let drain = self.shared.drain.clone();
        let binding = CredentialBinding::of(request.extensions());
        let Some(working) = drain.work() else { return HttpError::draining().into_response() };
        let answer = async move {
            let _working = working;
            let handler = self.dispatch(request, next);
            let handler = async {
                tokio::select! {
                    response = run(handler, &id) => response,
                    () = drain.cancelled() => HttpError::draining().into_response(),
                    () = revoked(&binding) => HttpError::unauthenticated().into_response(),
                }
            };
            keys.answer(keyed, handler).await
        };
        match ends_with_client {
            true => answer.await,
            false => task::to_the_end(answer).await.unwrap_or_else(|error| {
                tracing::error!(%error, "the task of a request with a key broke off");
                HttpError::internal().into_response()
            }),
        }
    }
}

/// State of an admitted request.
struct RequestAdmission {
    caller: ShareOwner,
    /// None for requests that are not protected.
    working: Option<WorkInProgress>,
    /// For a request that takes its connection over.
    place: Option<StreamPlace>,
    protocol: Option<HeaderValue>,
    binding: CredentialBinding,
}

impl ShellShared {
    /// Decides whether a request may reach its handler. A missing token is reported before any
    /// problem of the request, so that unauthenticated callers learn nothing.
    fn admit(
        &self,
        request: &mut Request,
        face: Option<&CompatFace>,
        is_streaming: bool,
    ) -> Result<RequestAdmission, HttpError> {
        let binding = CredentialBinding::default();
        let caller = ShareOwner::Address(None);
        let mut admission =
            RequestAdmission { caller, working: None, place: None, protocol: None, binding };
        let address =
            request.extensions().get::<ConnectionPeer>().map(|ConnectionPeer(peer)| peer.ip());
        let mut caller = ShareOwner::Address(address);
        if let Some(face) = face {
            if face.access != FaceAccess::Own {
                let peer = request.extensions().get::<ConnectionPeer>().copied();
                let admitted = access::admit(face, &self.tokens, request.headers(), peer)?;
                if admitted.revocation.is_some() {
                    caller = ShareOwner::Tenant(Arc::clone(&admitted.principal.tenant));
                }
                fair::identify(&admitted.principal.tenant);
                request.extensions_mut().insert(admitted.principal);
                admitted.revocation.into_iter().for_each(|it| admission.binding.bind(it));
                admission.protocol = admitted.protocol;
            }
            admission.working = Some(self.drain.work().ok_or_else(HttpError::draining)?);
        }
        let limits = self.limits.now();
        let budget = BodyBudget {
            bytes_max: limits.body_bytes_max,
            pause_max: limits.body_pause_max,
            bytes_per_s_min: limits.body_bytes_per_s_min,
            held: Arc::new(Mutex::new(Share::none(&self.bodies, caller.clone()))),
        };
        // Before any of it is read: a client that waits for `100 Continue` never sends it.
        let declared = content_length(request.headers()).filter(|_| !is_streaming);
        if declared.is_some_and(|length| length > budget.bytes_max) {
            return Err(budget.too_large());
        }
        // Before the handler runs, which may begin work for it.
        if is_websocket(request.headers()) {
            admission.place = Some(self.streams.enter(&caller)?);
        }
        request.extensions_mut().insert(budget);
        request.extensions_mut().insert(self.drain.clone());
        request.extensions_mut().insert(admission.binding.clone());
        admission.caller = caller;
        Ok(admission)
    }

    /// Counts an answered request, and adds its id to the answer.
    fn note(
        &self,
        method: &Method,
        route: Cow<'static, str>,
        started: Instant,
        id: &str,
        response: &mut Response,
    ) {
        let took = clock::now().duration_since(started);
        let status = response.status().as_u16();
        tracing::debug!(request = id, %method, %route, status, ?took, "answered");
        self.metrics.observe(method, route, status, took);
        // Ids are made of base 32 digits, which are always a valid header value.
        if let Ok(value) = HeaderValue::from_str(id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        if response.extensions_mut().remove::<VerbatimAnswer>().is_none() {
            // Browsers must not guess another content type.
            let headers = response.headers_mut();
            let no_sniffing = HeaderValue::from_static("nosniff");
            headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(no_sniffing);
        }
    }

    /// Runs the handler of an admitted request.
    async fn answer(
        &self,
        admission: RequestAdmission,
        handler: impl Future<Output = Response>,
        answering: Option<Arc<AnsweringRequest>>,
        id: &str,
    ) -> Response {
        let RequestAdmission { caller, working, place, protocol, binding } = admission;
        let mut response = if working.is_some() {
            tokio::select! {
                response = run(handler, id) => response,
                () = self.drain.cancelled() => HttpError::draining().into_response(),
                () = revoked(&binding) => HttpError::unauthenticated().into_response(),
            }
        } else {
            run(handler, id).await
        };
        if let Some(protocol) = protocol
            && response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            let headers = response.headers_mut();
            headers.entry(header::SEC_WEBSOCKET_PROTOCOL).or_insert(protocol);
        }
        if let Some(answering) = &answering
            && binding.is_bound()
        {
            answering.prove();
        }
        let ends = StreamEnds { caller, working, answering, binding, drain: &self.drain };
        let kept = self.streams.keep(response, place, ends);
        kept.unwrap_or_else(IntoResponse::into_response)
    }
}

async fn handle(State(wrapped): State<ShellService>, mut request: Request, next: Next) -> Response {
    let ShellService { shared, .. } = &wrapped;
    let started = clock::now();
    let in_flight = shared.metrics.enter();
    let id: Arc<str> = shared.ids.next("req_").into();
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);

    let face = wrapped.face(request.uri().path());
    // Public requests, such as liveness checks, are not traced.
    let span = wrapped.tracer.as_ref().filter(|_| face.is_some()).map_or_else(Span::none, |it| {
        traced::begin(it, request.method(), request.uri(), request.headers(), route)
    });
    let learned = match access::token(request.headers()) {
        Some(token) => shared.tokens.learn(&token).await,
        None => Ok(()),
    };
    let is_streaming = wrapped.streaming.contains(&route);
    let admitted = match learned {
        // A face with its own access control may recognise the token by itself.
        Err(error) if face.is_some_and(|face| face.access != FaceAccess::Own) => {
            Err(HttpError::issuer_down(&error))
        }
        _ => shared.admit(&mut request, face, is_streaming),
    };
    // Dropped after the handler: the memory of a body is accounted for until then.
    let _budget = request.extensions().get::<BodyBudget>().cloned();
    let response = match admitted {
        Err(error) => {
            // Refused requests are not traced.
            span.discard();
            error.into_response()
        }
        Ok(admission) => {
            let answer = wrapped.answer(admission, request, next, route, is_streaming, &id);
            let response = span.within(answer).await;
            traced::end(span, &id, &response);
            response
        }
    };
    let mut response = rendered(response, face);
    if let Some(challenge) = face.and_then(|face| face.challenge.as_ref())
        && response.status() == StatusCode::UNAUTHORIZED
        && let Ok(value) = HeaderValue::try_from(format!("Bearer {challenge}"))
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }

    let route = Cow::Owned(route.to_owned());
    shared.note(&method, route, started, &id, &mut response);
    drop(in_flight);
    response
}

/// Renders an error in the form of its face. A face's own answers have that form already.
fn rendered(mut response: Response, face: Option<&CompatFace>) -> Response {
    let Some(error) = response.extensions_mut().remove::<HttpError>() else { return response };
    let Some(render) = face.and_then(|face| face.render) else { return response };
    let mut answer = render(&error);
    for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE, header::ALLOW] {
        if let Some(value) = response.headers_mut().remove(&name) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// Returns when a handler's grace period after the revocation of its credential has passed.
async fn revoked(binding: &CredentialBinding) {
    binding.revoked().await;
    tokio::time::sleep(REVOKED_GRACE).await;
}

/// Runs a handler. If it panics the answer is 500, and the server continues.
async fn run(handler: impl Future<Output = Response>, request_id: &str) -> Response {
    match CatchPanic(Box::pin(handler)).await {
        Ok(response) => response,
        Err(panic) => {
            let message = panic_message(&*panic);
            tracing::error!(
                request = request_id,
                message,
                "failed to answer: the handler panicked"
            );
            HttpError::internal().into_response()
        }
    }
}

/// Turns a panic while polling into a value.
struct CatchPanic<F>(Pin<Box<F>>);

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The future is not polled again after a panic, so its half-done state is never observed.
        let poll = std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        match poll {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

/// Returns the error for an unknown path.
pub async fn not_found(uri: Uri) -> HttpError {
    let path = shortened(uri.path());
    HttpError::new(ErrorCode::NotFound, format!("`{path}` does not exist; see `/docs`"))
}

async fn method_not_allowed(method: Method, uri: Uri) -> HttpError {
    let path = shortened(uri.path());
    let message =
        format!("`{path}` does not support {}; see the header `allow`", shortened(method.as_str()));
    HttpError::new(ErrorCode::MethodNotAllowed, message)
}

/// Limits the length of the caller's own text in an error.
fn shortened(text: &str) -> &str {
    text.get(..100).unwrap_or(text)
}
