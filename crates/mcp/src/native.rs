//! Requests to the native interface, in this process and with the caller's own token.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use node::http::ConnectionPeer;
use parking_lot::RwLock;
use serde_json::Value;

/// Longest answer that is taken from the native interface, in bytes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Headers that say who a caller is, and by which name it reached the server.
const IDENTIFYING: [HeaderName; 4] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
    header::HOST,
];

/// Routes of the native interface in their shell, for as long as it is served. Those of this crate
/// are among them and refer to this, so that somebody has to take them away in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct NativeRoutes(Arc<RwLock<Option<Router>>>);

impl NativeRoutes {
    pub(crate) fn set(&self, routes: Option<Router>) {
        *self.0.write() = routes;
    }
}

/// The native interface as one caller may use it.
#[derive(Clone, Debug)]
pub(crate) struct NativeApi {
    routes: NativeRoutes,
    /// Headers of the caller that say who it is and which node it wants.
    headers: HeaderMap,
    peer: Option<SocketAddr>,
}

/// An answer of the native interface that is not one of success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NativeError {
    pub(crate) status: StatusCode,
    /// Sentence for the model.
    pub(crate) message: String,
}

impl NativeApi {
    /// Takes from a request of the caller what identifies it.
    pub(crate) fn of(
        routes: NativeRoutes,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> NativeApi {
        let mut kept = HeaderMap::new();
        for name in IDENTIFYING {
            for value in headers.get_all(&name) {
                kept.append(name.clone(), value.clone());
            }
        }
        NativeApi { routes, headers: kept, peer }
    }

    /// Sends JSON, or nothing, and reads JSON.
    ///
    /// # Errors
    /// When the answer is not one of success, with its sentence.
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
            failed("the server answered with something that is no JSON")
        })
    }

    /// Sends bytes, or nothing, and reads bytes.
    ///
    /// # Errors
    /// When the answer is not one of success, with its sentence.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Option<Bytes>,
    ) -> Result<Bytes, NativeError> {
        let routes = self.routes.0.read().clone();
        let routes = routes.ok_or_else(|| failed("the server starts or ends; try again"))?;
        let mut request = Request::builder().method(method).uri(path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            if let Some(body) = &body {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            }
        }
        let body = body.map_or_else(Body::empty, Body::from);
        let mut request = request.body(body).map_err(|error| NativeError {
            status: StatusCode::BAD_REQUEST,
            message: format!("an argument cannot be part of an address: {error}"),
        })?;
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(ConnectionPeer(peer));
        }
        let service = TowerToHyperService::new(routes);
        let response = match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
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
