//! Responses before routing: those that are in memory and never wait need no router, extractors
//! or guards of long handlers.
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

/// Headers of requests that have more to them than a path: a body, another protocol, a condition
/// on a body being sent at all.
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

/// An answer that was at hand.
#[derive(Debug)]
pub struct AtOnce {
    /// The answer.
    pub response: Response,
    /// The route that would have been taken, for figures.
    pub route: &'static str,
}

/// Cache of a connection from one of its requests to the next: whatever costs much to find out and
/// says the same each time, such as whose token it is that every request shows.
pub type Memory = Cell<Option<Box<dyn Any + Send>>>;

/// Handler that may answer a request without waiting for anything.
pub trait FastPath: Send + Sync {
    /// The answer, which is the one that the routed handler would give, or none: then the request
    /// is routed. It must not block.
    fn answer(&self, head: FastHead<'_>, memory: &Memory) -> Option<AtOnce>;
}

/// Service at a listener: routes in their shell, and what may answer before them.
#[derive(Clone)]
pub struct ListenerSite {
    pub(super) router: Router,
    fast: Option<FastService>,
    /// Rendering of errors on what never becomes a request.
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
    /// Has `path` asked first. `shell` is the one around the routes: requests that are answered at
    /// once have ids, are counted and are refused in a drain like all others.
    #[must_use]
    pub fn with_fast_path(self, shell: &HttpShell, path: Arc<dyn FastPath>) -> ListenerSite {
        ListenerSite { fast: Some(FastService { shell: shell.clone(), path }), ..self }
    }

    /// Returns its routes, without what may answer before them.
    pub fn routes(&self) -> Router {
        self.router.clone()
    }

    /// Shows errors as this interface does also where there is no request yet.
    #[must_use]
    pub fn with_errors(self, render: Option<fn(&super::HttpError) -> Response>) -> ListenerSite {
        ListenerSite { render, ..self }
    }

    /// The answer to a request, where there is one at hand.
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

/// Asks a path. One that panics has nothing at hand, and the server goes on.
fn answer(path: &dyn FastPath, head: FastHead<'_>, memory: &Memory) -> Option<AtOnce> {
    // What is behind the path guards its state by locks that do not outlive a panic.
    catch_unwind(AssertUnwindSafe(|| path.answer(head, memory))).unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        tracing::error!(message, "failed to answer at once: it panicked");
        None
    })
}

/// Returns what somebody said who panicked.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("not a text")
}

/// A part of a path as a router gives it to a handler; none of what is empty or no text once it is
/// decoded.
#[must_use]
pub fn path_part(text: &str) -> Option<Cow<'_, str>> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    (!decoded.is_empty()).then_some(decoded)
}
