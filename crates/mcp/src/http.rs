//! The route `POST /mcp`: headers, host, origin, and dispatch of a message to its method.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports>

use std::sync::Arc;

use api::operations::mcp as table;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use node::auth::TokenPrincipal;
use node::http::{
    ConnectionPeer, InProcessRoutes, OperationRoutes, RouteTable as _, ServedInProcess,
    check_hosts, get,
};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::config::McpConfig;
use crate::message::{
    self, ClientBody, ClientRpc, HEADER_MISMATCH, INVALID_REQUEST, META_CAPABILITIES, META_VERSION,
    McpError, RpcRequest, STATELESS, WITH_HANDSHAKE,
};
use crate::offer::{McpCall, McpOffer, NOTICES_MAX, NoticeSender};
use crate::own::CoveOffer;
use crate::resource::{METADATA_PATH, ProtectedResource};
use crate::server::{McpRevision, McpServer};
use crate::stream::{CallAnswer, RunningCall, json_response};

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Setting that names the hosts of a server.
pub(crate) const HOSTS_SETTING: &str = "`mcp.hosts`";

/// Headers of revision 2026-07-28 that repeat parts of the body.
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// The endpoint.
#[derive(Clone, Debug)]
pub struct McpEndpoint {
    server: McpServer,
    native: InProcessRoutes,
    config: Arc<McpConfig>,
    resource: Option<Arc<ProtectedResource>>,
}

impl McpEndpoint {
    /// Creates an endpoint of a server of this version, not connected to a native interface yet.
    /// The key seals the states that clients return.
    #[must_use]
    pub fn new(version: &'static str, config: McpConfig, key: &[u8; 32]) -> McpEndpoint {
        let native = InProcessRoutes::default();
        let offer = Arc::new(CoveOffer::new(native.clone(), version));
        McpEndpoint { native, ..McpEndpoint::offering(offer, config, key) }
    }

    /// Creates an endpoint for another offer.
    #[must_use]
    pub fn offering(offer: Arc<dyn McpOffer>, config: McpConfig, key: &[u8; 32]) -> McpEndpoint {
        let server = McpServer::new(offer, key);
        let (native, config) = (InProcessRoutes::default(), Arc::new(config));
        McpEndpoint { server, native, config, resource: None }
    }

    /// Sets the metadata by which clients without a token find the authorization server.
    #[must_use]
    pub fn protected_as(self, resource: Option<ProtectedResource>) -> McpEndpoint {
        McpEndpoint { resource: resource.map(Arc::new), ..self }
    }

    /// Returns the challenge for callers without a valid token; `None` without a configured issuer.
    #[must_use]
    pub fn challenge(&self) -> Option<Arc<str>> {
        self.resource.as_ref().map(|resource| resource.challenge().into())
    }

    /// Connects the native interface, all routes in their shell, until the returned value is
    /// dropped.
    #[must_use]
    pub fn serve_from(&self, routes: Router) -> ServedInProcess {
        self.native.serve_from(routes)
    }
}

/// Path of the endpoint.
pub const PATH: &str = table::SEND_MCP_MESSAGE.path;

/// Routes for [`node::http::HttpShell`] to wrap.
pub fn routes(endpoint: McpEndpoint) -> Router {
    handlers()
        .at(METADATA_PATH, get(metadata))
        .at(&format!("{METADATA_PATH}{PATH}"), get(metadata))
        .with_state(endpoint)
}

fn handlers() -> Router<McpEndpoint> {
    OperationRoutes::of(table::MCP)
        .serve(&table::SEND_MCP_MESSAGE, serve)
        .serve(&table::OPEN_MCP_STREAM, no_stream)
        .serve(&table::END_MCP_SESSION, no_session)
        .routes()
}

/// Metadata of the server for clients without a token.
async fn metadata(State(endpoint): State<McpEndpoint>) -> Response {
    match &endpoint.resource {
        Some(resource) => json_response(StatusCode::OK, resource.document()),
        None => refuse(StatusCode::NOT_FOUND, "no issuer of tokens is configured"),
    }
}

/// The server sends nothing on its own.
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

async fn serve(
    State(endpoint): State<McpEndpoint>,
    principal: TokenPrincipal,
    peer: Option<Extension<ConnectionPeer>>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let peer = peer.map(|Extension(ConnectionPeer(address))| address);
    let McpEndpoint { server, resource, config, .. } = endpoint;
    let caller = McpCaller { server, resource, principal, headers: head.headers, peer };
    if let Err(message) = check_hosts(&caller.headers, peer, &config.hosts, HOSTS_SETTING) {
        return refuse(StatusCode::FORBIDDEN, &message);
    }
    let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
        let message = format!("the body ended early, or has more than {REQUEST_BYTES_MAX} bytes");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, &message);
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
        Ok(ClientBody::One(Ok(ClientRpc::Request(request)))) => caller.answer_one(request).await,
        Ok(ClientBody::Batch(messages)) => caller.answer_batch(messages).await,
    }
}

/// Returns the revision of a request, after checking its headers.
fn revision(headers: &HeaderMap, request: &RpcRequest) -> Result<McpRevision, McpError> {
    let header_text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let header = header_text(PROTOCOL_VERSION);
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
    if header != Some(version) {
        let message =
            format!("the header {PROTOCOL_VERSION} must be \"{version}\", as in the body");
        return Err(McpError::new(HEADER_MISMATCH, message));
    }
    if version != STATELESS {
        return Err(McpError::unsupported_version(version));
    }
    if request.client_capabilities().is_none() {
        let message = format!("`_meta` has no \"{META_CAPABILITIES}\"");
        return Err(McpError::params(message));
    }
    for (name, expected) in [(METHOD, Some(request.method.as_str())), (NAME, request.subject())] {
        if header_text(name).map(decoded).as_deref() != expected {
            let expected = expected.unwrap_or("nothing");
            let message = format!("the header {name} must be \"{expected}\", as in the body");
            return Err(McpError::new(HEADER_MISMATCH, message));
        }
    }
    Ok(McpRevision::Stateless)
}

/// Decodes the value of a header; non-ASCII values are in base64 (`=?base64?…?=`).
pub(crate) fn decoded(value: &str) -> String {
    use base64::Engine as _;
    let inner = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let bytes = inner.and_then(|inner| base64::prelude::BASE64_STANDARD.decode(inner).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| value.to_owned())
}

/// A caller, with the context of its request.
struct McpCaller {
    server: McpServer,
    resource: Option<Arc<ProtectedResource>>,
    principal: TokenPrincipal,
    headers: HeaderMap,
    peer: Option<std::net::SocketAddr>,
}

impl McpCaller {
    async fn answer_one(self, request: RpcRequest) -> Response {
        let revision = match revision(&self.headers, &request) {
            Ok(revision) => revision,
            Err(error) => {
                let answer = message::answer(&request.id, Err(error));
                return json_response(StatusCode::BAD_REQUEST, &answer);
            }
        };
        let takes_stream = self
            .headers
            .get_all(header::ACCEPT)
            .iter()
            .any(|value| value.to_str().is_ok_and(|value| value.contains("text/event-stream")));
        let token = request.meta().and_then(|meta| meta.get("progressToken")).cloned();
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        let call = self.call(revision, &request, takes_stream.then_some(sender));
        let (server, resource) = (self.server, self.resource);
        let answering = Box::pin(async move {
            let outcome = server.answer(revision, &request, call).await;
            let missing = outcome.as_ref().err().and_then(|error| error.missing_scope);
            let status = match (&outcome, revision) {
                (Err(_), _) if missing.is_some() => 403,
                (Err(error), McpRevision::Stateless) => error.http_status(),
                _ => 200,
            };
            let resource = resource.as_deref();
            CallAnswer {
                status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
                challenge: missing.map(|it| ProtectedResource::scope_challenge(resource, it)),
                body: message::answer(&request.id, outcome),
            }
        });
        if !takes_stream {
            return answering.await.into_response();
        }
        RunningCall { answering, notices, token }.respond().await
    }

    fn call(
        &self,
        revision: McpRevision,
        request: &RpcRequest,
        sender: Option<mpsc::Sender<Value>>,
    ) -> McpCall {
        McpCall {
            principal: self.principal.clone(),
            headers: self.headers.clone(),
            peer: self.peer,
            capabilities: request.client_capabilities().cloned().unwrap_or_default(),
            inputs: Map::new(),
            state: None,
            notices: NoticeSender {
                sender,
                progress_token: request.meta().and_then(|it| it.get("progressToken")).cloned(),
                wants_log: revision == McpRevision::WithHandshake || request.wants_log(),
            },
        }
    }

    /// Answers several messages of revision 2025-03-26, one after the other.
    async fn answer_batch(&self, messages: Vec<Result<ClientRpc, (Value, McpError)>>) -> Response {
        let revision = McpRevision::WithHandshake;
        let mut answers = Vec::new();
        for message in messages {
            match message {
                Ok(ClientRpc::Request(request)) => {
                    let call = self.call(revision, &request, None);
                    let outcome = self.server.answer(revision, &request, call).await;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, meta: Option<&str>) -> RpcRequest {
        let meta = meta.map(|version| json!({ META_VERSION: version, META_CAPABILITIES: {} }));
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": method,
            "params": { "name": "run_code", "_meta": meta },
        });
        match message::read(body.to_string().as_bytes()) {
            Ok(ClientBody::One(Ok(ClientRpc::Request(request)))) => request,
            other => panic!("{other:?}"),
        }
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_revision_is_that_of_the_body_and_headers_repeat_it() {
        let (version, call) = (("mcp-protocol-version", STATELESS), ("mcp-method", "tools/call"));
        let name = ("mcp-name", "run_code");
        for (fields, meta, expected) in [
            (&[][..], None, Ok(McpRevision::WithHandshake)),
            (&[("mcp-protocol-version", "2025-06-18")], None, Ok(McpRevision::WithHandshake)),
            (&[("mcp-protocol-version", "1999-01-01")], None, Err(message::UNSUPPORTED_VERSION)),
            (&[version], None, Err(message::INVALID_PARAMS)),
            (&[version, call, name], Some(STATELESS), Ok(McpRevision::Stateless)),
            (&[version, call, name], Some("2030-01-01"), Err(HEADER_MISMATCH)),
            (
                &[("mcp-protocol-version", "2030-01-01"), call, name],
                Some("2030-01-01"),
                Err(message::UNSUPPORTED_VERSION),
            ),
            (&[version, call], Some(STATELESS), Err(HEADER_MISMATCH)),
            (&[version, name], Some(STATELESS), Err(HEADER_MISMATCH)),
            (&[call, name], Some(STATELESS), Err(HEADER_MISMATCH)),
            (
                &[version, call, ("mcp-name", "=?base64?cnVuX2NvZGU=?=")],
                Some(STATELESS),
                Ok(McpRevision::Stateless),
            ),
        ] {
            let found = revision(&headers(fields), &request("tools/call", meta));
            assert_eq!(found.map_err(|error| error.code), expected, "{fields:?} {meta:?}");
        }
    }
}
