//! Spans of requests, by the semantic conventions of OpenTelemetry for HTTP servers.
//!
//! # References
//! - <https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server>

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;

use crate::traces::{self, Span, SpanKind, TraceContext, Tracer};

/// Methods that have names of their own in spans.
const KNOWN_METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// Begins the span of a request, whose context is that of the enclosing request in this process,
/// else the one in its headers.
pub(super) fn begin(
    tracer: &Tracer,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    route: &str,
) -> Span {
    let around = traces::current().map(|scope| scope.context().clone());
    let remote = around.or_else(|| TraceContext::from_headers(headers));
    let mut span = tracer.begin("HTTP", SpanKind::Server, remote);
    if !span.is_recorded() {
        return span;
    }
    let name = KNOWN_METHODS.into_iter().find(|known| *known == method.as_str());
    let has_route = route != "none";
    span.rename(|| match has_route {
        true => format!("{} {route}", name.unwrap_or("HTTP")),
        false => name.unwrap_or("HTTP").to_owned(),
    });
    span.set("http.request.method", name.unwrap_or("_OTHER"));
    if name.is_none() {
        span.set_text("http.request.method_original", method);
    }
    if has_route {
        span.set("http.route", route.to_owned());
    }
    // Without the query, which may contain credentials.
    span.set("url.path", uri.path().to_owned());
    span
}

/// Ends the span of an answered request. A request that its face refused for lack of a credential
/// is not recorded: unauthenticated callers create no spans.
pub(super) fn end(mut span: Span, id: &str, response: &Response) {
    if !span.is_recorded() {
        return;
    }
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        return span.discard();
    }
    span.set("http.response.status_code", status.as_u16());
    span.set("cove.request.id", id.to_owned());
    if status.is_server_error() {
        span.set("error.type", status.as_str().to_owned());
        span.fail("");
    }
}
