//! Responses: error envelopes, lists, and documents in parts that are not copied.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-13.1>

use std::array;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use iceberg::json::{put_integer, put_string};
use node::http;
use serde::Serialize;

use super::header_value;
use super::request::{self, CatalogRequest};
use super::suffix::FinishedSuffix;
use crate::cache::{CachedVersion, SnapshotSelection};
use crate::error::{CatalogError, ErrorReason, Result};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
const VARY: HeaderValue = HeaderValue::from_static("accept-encoding");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const SOON: HeaderValue = HeaderValue::from_static("1");

/// Shortest document that is compressed, in bytes: a shorter one fits into one packet anyway.
const GZIP_BYTES_MIN: usize = 1400;

/// Longest document that is copied to be sent in one part, in bytes.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// Returns a response with a JSON body.
pub(super) fn of_json(text: Bytes) -> Response {
    with_status(StatusCode::OK, text)
}

fn with_status(status: StatusCode, text: Bytes) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Returns a response with a value.
pub(super) fn of<T: Serialize>(value: &T) -> Result<Response> {
    body(value).map(of_json)
}

/// Serializes a value as JSON.
pub(super) fn body<T: Serialize>(value: &T) -> Result<Bytes> {
    Ok(serde_json::to_vec(value).map_err(CatalogError::internal)?.into())
}

/// Returns an empty response of success.
pub(super) fn done() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Returns a response that an object was created, with the object.
pub(super) fn made<T: Serialize>(value: &T) -> Result<Response> {
    Ok(with_status(StatusCode::CREATED, body(value)?))
}

/// Returns an empty response that an object was created.
pub(super) fn made_so() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::CREATED;
    response
}

/// Returns Iceberg's error envelope.
fn envelope(status: u16, kind: &str, message: &str) -> Response {
    let mut text = br#"{"error":"#.to_vec();
    put_reason(&mut text, status, kind, message);
    text.push(b'}');
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_status(status, text.into())
}

/// Appends an error in the form of the envelope.
pub(super) fn put_error(text: &mut Vec<u8>, error: &CatalogError) {
    put_reason(text, error.kind.status(), error.kind.name(), &error.message);
}

fn put_reason(text: &mut Vec<u8>, status: u16, kind: &str, message: &str) {
    text.extend_from_slice(br#"{"message":"#);
    put_string(text, message);
    text.extend_from_slice(br#","type":"#);
    put_string(text, kind);
    text.extend_from_slice(br#","code":"#);
    put_integer(text, i64::from(status));
    text.push(b'}');
}

/// Returns the response for a failed operation.
pub(super) fn refusal(error: &CatalogError) -> Response {
    if error.kind.status() >= 500 && error.kind != ErrorReason::NotImplemented {
        let cause = error as &dyn std::error::Error;
        tracing::error!(error = cause, "an operation of the catalog failed");
    }
    let mut response = envelope(error.kind.status(), error.kind.name(), &error.message);
    let headers = response.headers_mut();
    match error.kind {
        ErrorReason::NotAuthorized => drop(headers.insert(header::WWW_AUTHENTICATE, BEARER)),
        ErrorReason::ServiceUnavailable | ErrorReason::TooManyRequests => {
            drop(headers.insert(header::RETRY_AFTER, SOON));
        }
        // RFC 9110 §15.5.16
        ErrorReason::UnsupportedEncoding => drop(headers.insert(header::ACCEPT_ENCODING, IDENTITY)),
        _ => {}
    }
    response
}

/// Renders an error of the shell in Iceberg's envelope: a body that is too long, an unknown route,
/// a method that the route lacks, a server that stops.
#[must_use]
pub fn render(error: &http::HttpError) -> Response {
    let status = error.status().as_u16();
    let kind = match status {
        401 => ErrorReason::NotAuthorized.name(),
        403 => ErrorReason::Forbidden.name(),
        404 => ErrorReason::NotFound.name(),
        405 => ErrorReason::UnsupportedOperation.name(),
        429 => ErrorReason::TooManyRequests.name(),
        503 => ErrorReason::ServiceUnavailable.name(),
        400..=499 => ErrorReason::BadRequest.name(),
        _ => ErrorReason::Internal.name(),
    };
    envelope(status, kind, &error.to_string())
}

/// Returns a table with its entity tag, or "not modified".
pub(super) async fn table(
    input: &CatalogRequest<'_>,
    entry: &Arc<CachedVersion>,
    snapshots: SnapshotSelection,
    end: &FinishedSuffix,
) -> Result<Response> {
    let tag = weak(entry, snapshots, end)?;
    let mut response = document(input, entry, snapshots, end).await?;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Returns "not modified".
pub(super) fn not_modified(tag: &str) -> Result<Response> {
    let tag = quoted(tag)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Returns a table or view: its document, its location, and the parts that depend on the principal.
pub(super) async fn document(
    input: &CatalogRequest<'_>,
    entry: &Arc<CachedVersion>,
    snapshots: SnapshotSelection,
    end: &FinishedSuffix,
) -> Result<Response> {
    match is_packed(&input.parts.headers, entry) {
        true => Ok(packed(entry.gzip(snapshots, end.bytes().map(|it| &**it)).await?)),
        false => Ok(plain(entry, snapshots, end)),
    }
}

/// Returns the result of [`table`], or "not modified", if that requires no waiting.
pub(super) fn table_at_hand(
    headers: &HeaderMap,
    entry: &CachedVersion,
    snapshots: SnapshotSelection,
    end: &FinishedSuffix,
) -> Option<Response> {
    let tag = end.tag(entry.etag(snapshots));
    if request::has(headers, &tag) {
        return not_modified(&tag).ok();
    }
    let mut response = document_at_hand(headers, entry, snapshots, end)?;
    response.headers_mut().insert(header::ETAG, weak(entry, snapshots, end).ok()?);
    Some(response)
}

/// Returns the result of [`document`], if that requires no waiting.
pub(super) fn document_at_hand(
    headers: &HeaderMap,
    entry: &CachedVersion,
    snapshots: SnapshotSelection,
    end: &FinishedSuffix,
) -> Option<Response> {
    match is_packed(headers, entry) {
        true => entry.gzip_at_hand(snapshots, end.bytes().map(|it| &**it)).map(packed),
        false => Some(plain(entry, snapshots, end)),
    }
}

fn is_packed(headers: &HeaderMap, entry: &CachedVersion) -> bool {
    entry.document().len() >= GZIP_BYTES_MIN && request::takes_gzip(headers)
}

fn packed(all: [Bytes; 2]) -> Response {
    let mut response = pieces(all);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, GZIP);
    headers.insert(header::VARY, VARY);
    response
}

fn plain(entry: &CachedVersion, snapshots: SnapshotSelection, end: &FinishedSuffix) -> Response {
    let mut response = pieces(entry.frames(snapshots, end.bytes().cloned()));
    response.headers_mut().insert(header::VARY, VARY);
    response
}

/// Returns the entity tag of a response as a header value.
fn weak(
    entry: &CachedVersion,
    snapshots: SnapshotSelection,
    end: &FinishedSuffix,
) -> Result<HeaderValue> {
    match end.bytes() {
        None => HeaderValue::from_maybe_shared(entry.weak_etag(snapshots).clone())
            .map_err(CatalogError::internal),
        Some(_) => quoted(&end.tag(entry.etag(snapshots))),
    }
}

/// Formats a weak entity tag as a header value.
fn quoted(tag: &str) -> Result<HeaderValue> {
    header_value(&format!("W/\"{tag}\""))
}

/// Returns a JSON body in parts, with its length.
fn pieces<const N: usize>(all: [Bytes; N]) -> Response {
    let length: usize = all.iter().map(Bytes::len).sum();
    let body = match all.iter().filter(|piece| !piece.is_empty()).count() {
        0 | 1 => Body::from(all.into_iter().find(|piece| !piece.is_empty()).unwrap_or_default()),
        // Writing one part costs less than avoiding the copy of so few bytes.
        _ if length <= COPIED_BYTES_MAX => Body::from(all.concat()),
        _ => Body::new(DocumentBody { all: all.into_iter(), left: length as u64 }),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}

/// A body whose length is known, though not all of it is in one place: to the shell it is no stream
/// that may last.
struct DocumentBody<const N: usize> {
    all: array::IntoIter<Bytes, N>,
    /// Bytes.
    left: u64,
}

impl<const N: usize> HttpBody for DocumentBody<N> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let next = self.all.find(|piece| !piece.is_empty());
        self.left -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// An answer of another shape than Iceberg's, with a status and headers.
pub(super) fn other(
    status: StatusCode,
    headers: &[(HeaderName, HeaderValue)],
    text: Vec<u8>,
) -> Response {
    let mut response = with_status(status, text.into());
    for (name, value) in headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_in_pieces_says_its_length_before_and_while_it_is_sent() {
        let long = Bytes::from(vec![b'x'; COPIED_BYTES_MAX]);
        for all in [
            [Bytes::new(), Bytes::new(), Bytes::new()],
            [Bytes::new(), Bytes::from_static(b"one"), Bytes::new()],
            [Bytes::from_static(b"a"), Bytes::from_static(b"b"), Bytes::from_static(b"c")],
            [Bytes::from_static(b"a"), long.clone(), Bytes::from_static(b"c")],
            [long.clone(), Bytes::new(), long.clone()],
        ] {
            let expected = all.concat();
            let response = pieces(all);
            assert_eq!(response.headers()[header::CONTENT_LENGTH], expected.len().to_string());
            let mut body = response.into_body();
            let mut seen = Vec::new();
            loop {
                let left = (expected.len() - seen.len()) as u64;
                assert_eq!(body.size_hint().exact(), Some(left));
                let mut body = Pin::new(&mut body);
                let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
                let Some(frame) = frame else { break };
                let piece = frame.unwrap().into_data().unwrap();
                assert!(!piece.is_empty());
                seen.extend_from_slice(&piece);
            }
            assert!(body.is_end_stream());
            assert_eq!(seen, expected);
        }
    }
}
