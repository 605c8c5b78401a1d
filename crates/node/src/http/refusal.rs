//! Responses to input that never becomes a request: a head that is not HTTP, too large, or never
//! ends; a connection for which there is no room.
//!
//! They have a body in the form of the listener's interface, as every other refusal does. Hyper
//! answers a malformed head with a status alone; [`WatchedSocket`](super::socket::WatchedSocket)
//! withholds that, and a response of this module is sent instead.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;

use super::error::HttpError;
use super::server::ShellLimits;

/// Rendering of errors; none for Cove's own form.
pub(super) type Render = Option<fn(&HttpError) -> Response>;

/// First byte of a TLS record with a handshake (RFC 8446 §5.1).
pub(super) const TLS_HANDSHAKE: u8 = 22;

/// Refusal of input that is not a request.
pub(super) struct EarlyRefusal {
    status: StatusCode,
    error: HttpError,
}

impl EarlyRefusal {
    /// Returns the refusal of a head that hyper does not understand.
    pub(super) fn of(error: &hyper::Error, is_tls: bool, limits: &ShellLimits) -> EarlyRefusal {
        if is_tls {
            let message = "this port speaks HTTP and not TLS: use `http://`, or a proxy that ends \
                           TLS before it";
            return EarlyRefusal::bad(message.to_owned());
        }
        if error.is_parse_too_large() {
            let max = limits.header_bytes_max;
            let message = format!(
                "the head of the request has more than {max} bytes, or more than 100 lines"
            );
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return EarlyRefusal { status, error: HttpError::invalid(message) };
        }
        // Hyper names the part: `invalid HTTP method parsed`.
        let part = error.to_string();
        let part = part.strip_prefix("invalid ").unwrap_or(&part);
        let part = part.strip_suffix(" parsed").unwrap_or(part);
        EarlyRefusal::bad(format!("the request is not HTTP/1.1 (RFC 9112): the {part} is wrong"))
    }

    /// Returns the refusal of an unencrypted connection that must be encrypted.
    pub(super) fn plaintext() -> EarlyRefusal {
        let message = "this port requires TLS: use `https://` (see `tls.plaintext`)";
        EarlyRefusal::bad(message.to_owned())
    }

    /// Returns the refusal of a head that does not end.
    pub(super) fn timeout(limits: &ShellLimits) -> EarlyRefusal {
        let seconds = limits.header_read_max.as_secs();
        let message = format!("the head of the request did not arrive within {seconds} s");
        EarlyRefusal { status: StatusCode::REQUEST_TIMEOUT, error: HttpError::invalid(message) }
    }

    /// Returns a refusal with the status of an error.
    pub(super) fn new(error: HttpError) -> EarlyRefusal {
        EarlyRefusal { status: error.status(), error }
    }

    fn bad(message: String) -> EarlyRefusal {
        EarlyRefusal { status: StatusCode::BAD_REQUEST, error: HttpError::invalid(message) }
    }

    /// Returns the whole response. The connection ends with it.
    pub(super) fn bytes(&self, render: Render) -> Vec<u8> {
        let original = self.error.clone().into_response();
        let retry_after = original.headers().get(axum::http::header::RETRY_AFTER).cloned();
        let response = match render {
            Some(render) => render(&self.error),
            None => original,
        };
        let (mut parts, body) = response.into_parts();
        parts.headers.extend(retry_after.map(|wait| (axum::http::header::RETRY_AFTER, wait)));
        parts.headers.remove(axum::http::header::CONTENT_LENGTH);
        // Errors are in memory.
        let body = body.collect().now_or_never().and_then(Result::ok);
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let status = self.status;
        let reason = status.canonical_reason().unwrap_or_default();
        let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
        for (name, value) in &parts.headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let length = body.len();
        let rest = format!(
            "x-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        bytes.extend_from_slice(rest.as_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }
}
