//! Responses before routing: responses in memory, which never wait, need no router, extractors or
//! guards of long handlers.
//!
//! It is an optimisation without rules of its own: it returns what the routed handler would
//! return, and leaves refused, rare and uncached requests to that.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9112>

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;

use super::json::content_length;
use super::refusal::Render;
use super::shell::HttpShell;

/// Headers of requests that need more than a path: a body, another protocol, an expectation about
/// sending the body.
const NOT_PLAIN: [header::HeaderName; 3] =
    [header::TRANSFER_ENCODING, header::UPGRADE, header::EXPECT];

/// A request that has no body.
#[derive(Clone, Copy, Debug)]
pub struct FastHead<'a> {
    /// Method.
    pub method: &'a Method,
    /// Target.
    pub uri: &'a Uri,
    /// Headers.
    pub headers: &'a HeaderMap,
}

/// An immediate answer.
#[derive(Debug)]
pub struct AtOnce {
    /// The response.
    pub response: Response,
    /// The route that would have been taken, for metrics.
    pub route: &'static str,
}

/// Cache of a connection between its requests: for values that are expensive to compute and the
/// same for each request, such as the principal of a repeated token.
pub type Memory = Cell<Option<Box<dyn Any + Send>>>;

/// Handler that may answer a request without waiting.
pub trait FastPath: Send + Sync {
    /// Returns the answer that the routed handler would give, or none: then the request is routed.
    /// It must not block.
    fn answer(&self, head: FastHead<'_>, memory: &Memory) -> Option<AtOnce>;
}

/// Service at a listener: routes in their shell, and a fast path before them.
#[derive(Clone)]
pub struct ListenerSite {
    pub(super) router: Router,
    fast: Option<FastService>,
    /// Rendering of errors for input that never becomes a request.
    pub(super) render: Render,
}

#[derive(Clone)]
struct FastService {
    shell: HttpShell,
    path: Arc<dyn FastPath>,
}

impl fmt::Debug for ListenerSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("is_fast", &self.fast.is_some()).finish_non_exhaustive()
    }
}

impl From<Router> for ListenerSite {
    fn from(router: Router) -> ListenerSite {
        ListenerSite { router, fast: None, render: None }
    }
}

impl ListenerSite {
    /// Adds a fast path before the routes. `shell` is the one around the routes: requests that are
    /// answered at once have ids, are counted and are refused in a drain like all others.
    #[must_use]
    pub fn with_fast_path(self, shell: &HttpShell, path: Arc<dyn FastPath>) -> ListenerSite {
        ListenerSite { fast: Some(FastService { shell: shell.clone(), path }), ..self }
    }

    /// Returns its routes, without the fast path.
    pub fn routes(&self) -> Router {
        self.router.clone()
    }

    /// Renders errors in this interface's form also if there is no request yet.
    #[must_use]
    pub fn with_errors(self, render: Option<fn(&super::HttpError) -> Response>) -> ListenerSite {
        ListenerSite { render, ..self }
    }

    /// Returns an immediate answer to a request, if there is one.
    pub(super) fn answer(&self, request: &Request<Incoming>, memory: &Memory) -> Option<Response> {
        let FastService { shell, path } = self.fast.as_ref()?;
        let headers = request.headers();
        let has_body = content_length(headers).is_some_and(|length| length > 0);
        if has_body || NOT_PLAIN.iter().any(|name| headers.contains_key(name)) {
            return None;
        }
        let head = FastHead { method: request.method(), uri: request.uri(), headers };
        shell.at_once(head, || answer(&**path, head, memory))
    }
}

/// Calls a fast path. If it panics there is no immediate answer, and the server continues.
fn answer(path: &dyn FastPath, head: FastHead<'_>, memory: &Memory) -> Option<AtOnce> {
    // State behind the path is guarded by locks that do not outlive a panic.
    catch_unwind(AssertUnwindSafe(|| path.answer(head, memory))).unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        tracing::error!(message, "failed to answer at once: it panicked");
        None
    })
}

/// Returns the message of a panic.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("not a text")
}

/// Decodes a part of a path as a router does for a handler; none if it is empty or not UTF-8 once
/// decoded.
#[must_use]
pub fn path_part(text: &str) -> Option<Cow<'_, str>> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    (!decoded.is_empty()).then_some(decoded)
}
