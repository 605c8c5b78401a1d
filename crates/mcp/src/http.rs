//! The route `POST /mcp`: headers, origin, one JSON answer or a stream with progress.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>
//! - <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream;
use node::auth::TokenPrincipal;
use node::http::{ConnectionPeer, RouteTable as _, post};
use serde_json::{Value, json};

use crate::message::{
    self, ClientBody, ClientRpc, HEADER_MISMATCH, INVALID_REQUEST, META_VERSION, McpError,
    RpcRequest, STATELESS, WITH_HANDSHAKE,
};
use crate::native::{NativeApi, NativeRoutes};
use crate::server::{McpCaller, McpRevision};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Time after which a call that goes on is answered with a stream, where the client takes one.
const STREAM_AFTER: Duration = Duration::from_secs(2);

/// Interval of progress on it, which also keeps the connection open.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Headers of revision 2026-07-28 that repeat the body.
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// The endpoint.
#[derive(Clone, Debug)]
pub struct McpEndpoint {
    native: NativeRoutes,
    /// Version of the server.
    version: &'static str,
}

impl McpEndpoint {
    /// An endpoint of a server of this version, without anything behind it yet.
    #[must_use]
    pub fn new(version: &'static str) -> McpEndpoint {
        McpEndpoint { native: NativeRoutes::default(), version }
    }

    /// Puts the native interface behind it, all routes in their shell, until what is returned is
    /// dropped.
    #[must_use]
    pub fn serve_from(&self, routes: Router) -> ServedTools {
        self.native.set(Some(routes));
        ServedTools(self.native.clone())
    }
}

/// Tools that have the native interface behind them.
#[derive(Debug)]
pub struct ServedTools(NativeRoutes);

impl Drop for ServedTools {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Path of the endpoint.
pub const PATH: &str = "/mcp";

/// Routes for [`node::http::HttpShell`] to wrap.
pub fn routes(endpoint: McpEndpoint) -> Router {
    Router::new().at(PATH, post(serve).get(no_stream).delete(no_session)).with_state(endpoint)
}

/// There is nothing that a server says by itself.
async fn no_stream() -> Response {
    refuse(StatusCode::METHOD_NOT_ALLOWED, "no stream without a request: send a POST")
}

/// There are no sessions.
async fn no_session() -> Response {
    refuse(StatusCode::METHOD_NOT_ALLOWED, "there are no sessions of the protocol to end")
}

fn refuse(status: StatusCode, message: &str) -> Response {
    let mut response = json_response(
        status,
        &message::failure(&Value::Null, McpError::new(INVALID_REQUEST, message)),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, body.to_string()).into_response()
}

async fn serve(
    State(endpoint): State<McpEndpoint>,
    principal: TokenPrincipal,
    peer: Option<Extension<ConnectionPeer>>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let headers = head.headers;
    if let Err(message) = check_origin(&headers) {
        return refuse(StatusCode::FORBIDDEN, &message);
    }
    let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
        let message = format!("the body ended early, or has more than {REQUEST_BYTES_MAX} bytes");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, &message);
    };
    let peer = peer.map(|Extension(ConnectionPeer(address))| address);
    let caller = McpCaller {
        principal,
        api: NativeApi::of(endpoint.native, &headers, peer),
        version: endpoint.version,
    };
    match message::read(&body) {
        Err(error) => {
            json_response(StatusCode::BAD_REQUEST, &message::failure(&Value::Null, error))
        }
        Ok(ClientBody::One(Err((id, error)))) => {
            json_response(StatusCode::BAD_REQUEST, &message::failure(&id, error))
        }
        Ok(ClientBody::One(Ok(ClientRpc::Notification { .. } | ClientRpc::Answer))) => {
            StatusCode::ACCEPTED.into_response()
        }
        Ok(ClientBody::One(Ok(ClientRpc::Request(request)))) => {
            answer_one(caller, &headers, request).await
        }
        Ok(ClientBody::Batch(messages)) => answer_batch(&caller, messages).await,
    }
}

/// Refuses pages of other origins: a name that leads to this machine could be theirs (DNS
/// rebinding).
fn check_origin(headers: &HeaderMap) -> Result<(), String> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let origin = origin.to_str().unwrap_or_default();
    let is_own = origin
        .parse::<Uri>()
        .ok()
        .and_then(|uri| Some(uri.authority()?.to_string()))
        .is_some_and(|authority| authority.eq_ignore_ascii_case(host));
    match is_own {
        true => Ok(()),
        false => Err(format!("origin \"{origin}\" may not use this server from a browser")),
    }
}

/// The revision of a request, with its headers checked.
fn revision(headers: &HeaderMap, request: &RpcRequest) -> Result<McpRevision, McpError> {
    let told = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let header = told(PROTOCOL_VERSION);
    let Some(version) = request.stateless_version() else {
        return match header {
            Some(STATELESS) => Err(McpError::params(format!(
                "`_meta` has no \"{META_VERSION}\", which the header {PROTOCOL_VERSION} promises"
            ))),
            Some(version) if !WITH_HANDSHAKE.contains(&version) => {
                Err(McpError::unsupported_version(version))
            }
            _ => Ok(McpRevision::WithHandshake),
        };
    };
    if version != STATELESS {
        return Err(McpError::unsupported_version(version));
    }
    for (name, expected) in [
        (PROTOCOL_VERSION, Some(version)),
        (METHOD, Some(request.method.as_str())),
        (NAME, request.subject()),
    ] {
        if told(name).map(decoded).as_deref() != expected {
            let expected = expected.unwrap_or("nothing");
            let message = format!("the header {name} must be \"{expected}\", as in the body");
            return Err(McpError::new(HEADER_MISMATCH, message));
        }
    }
    Ok(McpRevision::Stateless)
}

/// Value of a header; what is not ASCII comes as base64 (`=?base64?…?=`).
fn decoded(value: &str) -> String {
    use base64::Engine as _;
    let inner = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let bytes = inner.and_then(|inner| base64::prelude::BASE64_STANDARD.decode(inner).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| value.to_owned())
}

async fn answer_one(caller: McpCaller, headers: &HeaderMap, request: RpcRequest) -> Response {
    let revision = match revision(headers, &request) {
        Ok(revision) => revision,
        Err(error) => {
            let answer = message::answer(&request.id, Err(error));
            return json_response(StatusCode::BAD_REQUEST, &answer);
        }
    };
    let takes_stream = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains("text/event-stream")));
    let token = request.meta().and_then(|meta| meta.get("progressToken")).cloned();
    let mut answering: Answering = Box::pin(async move {
        let outcome = caller.answer(revision, &request).await;
        let status = match (&outcome, revision) {
            (Err(error), McpRevision::Stateless) => error.http_status(),
            _ => 200,
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        (status, message::answer(&request.id, outcome))
    });
    if !takes_stream {
        let (status, answer) = answering.await;
        return json_response(status, &answer);
    }
    match select(&mut answering, Box::pin(tokio::time::sleep(STREAM_AFTER))).await {
        Either::Left(((status, answer), _)) => json_response(status, &answer),
        Either::Right(_) => streamed(answering, token),
    }
}

type Answering = Pin<Box<dyn Future<Output = (StatusCode, Value)> + Send>>;

/// An answer that comes later, behind progress. A client that closes it takes the call back.
fn streamed(answering: Answering, token: Option<Value>) -> Response {
    struct StreamedCall {
        answering: Answering,
        token: Option<Value>,
        seconds: u64,
    }
    let call = StreamedCall { answering, token, seconds: STREAM_AFTER.as_secs() };
    let events = stream::unfold(Some(call), |call| async {
        let mut call = call?;
        let tick = Box::pin(tokio::time::sleep(PROGRESS_EVERY));
        let outcome = select(&mut call.answering, tick).await;
        if let Either::Left(((_, answer), _)) = outcome {
            return Some((event(&answer), None));
        }
        drop(outcome);
        call.seconds += PROGRESS_EVERY.as_secs();
        let bytes = match &call.token {
            Some(token) => event(&message::progress(token, call.seconds)),
            // A comment: nothing for the client, and the connection stays open.
            None => Bytes::from_static(b": still running\n\n"),
        };
        Some((bytes, Some(call)))
    });
    let events = futures_util::StreamExt::map(events, Ok::<_, std::convert::Infallible>);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}

/// An event of a stream. JSON has no line breaks of its own.
fn event(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

/// Answers several messages of revision 2025-03-26, one after the other.
async fn answer_batch(
    caller: &McpCaller,
    messages: Vec<Result<ClientRpc, (Value, McpError)>>,
) -> Response {
    let mut answers = Vec::new();
    for message in messages {
        match message {
            Ok(ClientRpc::Request(request)) => {
                let outcome = caller.answer(McpRevision::WithHandshake, &request).await;
                answers.push(message::answer(&request.id, outcome));
            }
            Ok(ClientRpc::Notification { .. } | ClientRpc::Answer) => {}
            Err((id, error)) => answers.push(message::failure(&id, error)),
        }
    }
    match answers.is_empty() {
        true => StatusCode::ACCEPTED.into_response(),
        false => json_response(StatusCode::OK, &json!(answers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, meta: Option<&str>) -> RpcRequest {
        let meta = meta.map(|version| json!({ META_VERSION: version }));
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": method,
            "params": { "name": "run_code", "_meta": meta },
        });
        match message::read(body.to_string().as_bytes()) {
            Ok(ClientBody::One(Ok(ClientRpc::Request(request)))) => request,
            other => panic!("{other:?}"),
        }
    }

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_revision_is_that_of_the_body_and_headers_repeat_it() {
        let (version, call) = (("mcp-protocol-version", STATELESS), ("mcp-method", "tools/call"));
        let name = ("mcp-name", "run_code");
        for (given, meta, expected) in [
            (&[][..], None, Ok(McpRevision::WithHandshake)),
            (&[("mcp-protocol-version", "2025-06-18")], None, Ok(McpRevision::WithHandshake)),
            (&[("mcp-protocol-version", "1999-01-01")], None, Err(message::UNSUPPORTED_VERSION)),
            (&[version], None, Err(message::INVALID_PARAMS)),
            (&[version, call, name], Some(STATELESS), Ok(McpRevision::Stateless)),
            (&[version, call, name], Some("2030-01-01"), Err(message::UNSUPPORTED_VERSION)),
            (&[version, call], Some(STATELESS), Err(HEADER_MISMATCH)),
            (&[version, name], Some(STATELESS), Err(HEADER_MISMATCH)),
            (&[call, name], Some(STATELESS), Err(HEADER_MISMATCH)),
            (
                &[version, call, ("mcp-name", "=?base64?cnVuX2NvZGU=?=")],
                Some(STATELESS),
                Ok(McpRevision::Stateless),
            ),
        ] {
            let found = revision(&headers(given), &request("tools/call", meta));
            assert_eq!(found.map_err(|error| error.code), expected, "{given:?} {meta:?}");
        }
    }

    #[test]
    fn pages_of_others_are_refused() {
        for (given, is_allowed) in [
            (&[("host", "127.0.0.1:4100")][..], true),
            (&[("host", "127.0.0.1:4100"), ("origin", "http://127.0.0.1:4100")], true),
            (&[("host", "127.0.0.1:4100"), ("origin", "http://evil.example")], false),
            (&[("host", "127.0.0.1:4100"), ("origin", "null")], false),
            (&[("host", "cove.example"), ("origin", "https://cove.example")], true),
        ] {
            assert_eq!(check_origin(&headers(given)).is_ok(), is_allowed, "{given:?}");
        }
    }
}
