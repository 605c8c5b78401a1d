//! What every request passes through, before and after its handler.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::ErrorCode;
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::error::Error;
use super::json::{BodyBudget, content_length};
use super::server::Limits;
use crate::auth::{self, Tokens};
use crate::clock::{self, Ids};
use crate::drain::{Drain, Working};
use crate::telemetry::HttpMetrics;

/// The header that names a request, in the answer and in the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Everything below this path needs a token and counts as work.
const PROTECTED: &str = "/v1";

/// Names a request: `req_` and 26 characters. Handlers may extract it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<RequestId>().cloned().ok_or_else(|| {
            tracing::error!("a handler that wants the request id is routed outside of the shell");
            Error::internal()
        })
    }
}

/// What the shell needs to know.
#[derive(Debug)]
pub struct Shell {
    limits: Limits,
    tokens: Tokens,
    drain: Drain,
    metrics: HttpMetrics,
    ids: Ids,
    bodies: Arc<Semaphore>,
}

impl Shell {
    /// Brings together what a request meets.
    pub fn new(
        limits: Limits,
        tokens: Tokens,
        drain: Drain,
        metrics: HttpMetrics,
        ids: Ids,
    ) -> Shell {
        let units = usize::try_from(BodyBudget::units(limits.bodies_bytes_max));
        let units = units.unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Shell { limits, tokens, drain, metrics, ids, bodies: Arc::new(Semaphore::new(units)) }
    }

    /// Puts the shell around the routes of all services.
    pub fn wrap(self, routes: Router) -> Router {
        routes
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(middleware::from_fn_with_state(Arc::new(self), handle))
    }

    /// Decides whether a request may reach its handler, in the order of who is to blame last: no
    /// token is reported before anything about the request, so that strangers learn nothing.
    fn admit(&self, request: &mut Request) -> Result<Option<Working>, Error> {
        let working = if is_protected(request.uri().path()) {
            let token = auth::bearer(request.headers()).ok_or_else(Error::unauthenticated)?;
            let principal = self.tokens.verify(token).ok_or_else(Error::unauthenticated)?;
            request.extensions_mut().insert(principal);
            Some(self.drain.work().ok_or_else(Error::draining)?)
        } else {
            None
        };
        let budget = BodyBudget {
            bytes_max: self.limits.body_bytes_max,
            pause_max: self.limits.body_pause_max,
            shared: Arc::clone(&self.bodies),
            held: Arc::new(Mutex::new(None)),
        };
        // Before a byte of it is read: a client that waits for `100 Continue` never sends it.
        if content_length(request.headers()).is_some_and(|length| length > budget.bytes_max) {
            return Err(budget.too_large());
        }
        request.extensions_mut().insert(budget);
        Ok(working)
    }
}

/// Routes are matched on the path as it was sent, without decoding, so comparing it is exact.
fn is_protected(path: &str) -> bool {
    path.strip_prefix(PROTECTED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

async fn handle(State(shell): State<Arc<Shell>>, mut request: Request, next: Next) -> Response {
    let started = clock::now();
    let in_flight = shell.metrics.enter();
    let id: Arc<str> = shell.ids.next("req_").into();
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);

    let admitted = shell.admit(&mut request);
    // Dropped after the handler: the memory of a body is accounted for until then.
    let _budget = request.extensions().get::<BodyBudget>().cloned();
    let mut response = match admitted {
        Err(error) => error.into_response(),
        Ok(None) => run(next.run(request), &id).await,
        Ok(Some(_working)) => tokio::select! {
            response = run(next.run(request), &id) => response,
            () = shell.drain.cancelled() => Error::draining().into_response(),
        },
    };

    let took = clock::now().duration_since(started);
    let status = response.status();
    shell.metrics.observe(&method, route, status.as_u16(), took);
    tracing::debug!(request = %id, %method, route, status = status.as_u16(), ?took, "answered");
    // Ids are made of base 32 digits, which are always a valid header value.
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    drop(in_flight);
    response
}

/// Runs a handler. One that panics answers 500, and the server goes on.
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
            Error::internal().into_response()
        }
    }
}

/// Turns a panic while polling into a value.
struct CatchPanic<F>(Pin<Box<F>>);

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The future is not polled again after a panic, so nobody sees what it left half done.
        let poll = std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        match poll {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("not a text")
}

async fn not_found(uri: Uri) -> Error {
    let path = shortened(uri.path());
    Error::new(ErrorCode::NotFound, format!("there is nothing at `{path}`; `/docs` lists what is"))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Error {
    let path = shortened(uri.path());
    let message = format!(
        "`{path}` does not support {}; `allow` says what it does",
        shortened(method.as_str())
    );
    Error::new(ErrorCode::MethodNotAllowed, message)
}

/// Callers are told what they sent, within reason.
fn shortened(text: &str) -> &str {
    text.get(..100).unwrap_or(text)
}
