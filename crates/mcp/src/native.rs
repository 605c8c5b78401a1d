//! Requests to the native interface, in this process and with the caller's own token.

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use node::http::{ConnectionPeer, InProcessCaller, InProcessRoutes};
use serde_json::Value;

/// Longest response from the native interface, in bytes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// The native interface on behalf of one caller.
#[derive(Clone, Debug)]
pub(crate) struct NativeApi(InProcessCaller);

/// A response of the native interface without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NativeError {
    pub(crate) status: StatusCode,
    /// Sentence for the model.
    pub(crate) message: String,
}

impl NativeApi {
    /// Creates the interface from the credentials of a caller's request.
    pub(crate) fn of(
        routes: InProcessRoutes,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> NativeApi {
        NativeApi(InProcessCaller::of(routes, headers, peer.map(ConnectionPeer)))
    }

    /// Sends optional JSON, and returns the JSON response.
    ///
    /// # Errors
    /// If the response is no success, with its message.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, NativeError> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let answer = self.call(method, path, "application/json", body).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| {
            tracing::error!(%error, path, "the native interface answered with no JSON");
            failed("the server did not respond with JSON")
        })
    }

    /// Sends optional bytes, and returns the bytes of the response.
    ///
    /// # Errors
    /// If the response is no success, with its message.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Option<Bytes>,
    ) -> Result<Bytes, NativeError> {
        let mut request = Request::builder().method(method).uri(path);
        if let (Some(headers), Some(body)) = (request.headers_mut(), &body) {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let body = body.map_or_else(Body::empty, Body::from);
        let request = request.body(body).map_err(|error| NativeError {
            status: StatusCode::BAD_REQUEST,
            message: format!("an argument cannot be part of an address: {error}"),
        })?;
        let response = self.0.send(request).await;
        let response = response.ok_or_else(|| failed("the server starts or ends; try again"))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body
            .map_err(|_| {
                failed("the answer ended early, or is longer than 32 MiB; ask for less at a time")
            })?
            .to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        let detail: Option<api::ErrorBody> = serde_json::from_slice(&body).ok();
        let message = match detail.map(|body| body.error) {
            Some(error) => match error.field {
                Some(field) => format!("{field}: {}", error.message),
                None => error.message,
            },
            None => format!("the server answered with status {}", head.status.as_u16()),
        };
        Err(NativeError { status: head.status, message })
    }
}

fn failed(message: &str) -> NativeError {
    NativeError { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.to_owned() }
}
