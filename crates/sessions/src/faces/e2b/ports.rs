//! Ports of a sandbox, addressed by host name, `PORT-ID.domain`, or by E2B's two headers.
//!
//! Requests, including upgrades, are forwarded unchanged and without inspection.

use std::pin::Pin;
use std::task::{Context, Poll};

use api::ErrorCode;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use node::http::{self, CredentialBinding, Share, ShareOwner, VerbatimAnswer};

use super::E2bContext;
use super::errors::{RestError, not_running, port_closed};
use super::interpreter;
use super::tokens::{TokenPurpose, is_id};
use crate::error::SessionError;
use crate::http::fence::FencedIo;
use crate::service::SandboxGuard;

/// Port that addresses E2B's own services in a sandbox.
pub(super) const ENVD_PORT: u16 = 49983;
/// Port of the code interpreter, which Cove itself serves.
const INTERPRETER_PORT: u16 = 49999;
/// Placeholder for the port in a host mask.
const PORT_IN_MASK: &str = "${PORT}";
/// Header with the token for ports that are not public.
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
/// Hop-by-hop headers (RFC 9110 §7.6.1); upgrades are handled separately.
const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortTarget {
    /// The server.
    Server,
    /// A port of a sandbox.
    Sandbox { id: String, port: u16 },
}

/// Returns the target of a request, from its host name or the headers of E2B's clients.
///
/// # Errors
/// If the headers are invalid.
pub(super) fn target(headers: &HeaderMap, uri: &Uri) -> Result<PortTarget, RestError> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if let Some(target) = host.or_else(|| uri.host()).and_then(named) {
        return Ok(target);
    }
    let Some(id) = headers.get("e2b-sandbox-id") else { return Ok(PortTarget::Server) };
    let id = id.to_str().map_err(|_| RestError::invalid("e2b-sandbox-id: not text"))?;
    let port = match headers.get("e2b-sandbox-port") {
        None => ENVD_PORT,
        Some(port) => {
            let port = port.to_str().ok().and_then(|port| port.parse().ok());
            port.ok_or_else(|| RestError::invalid("e2b-sandbox-port: not a port"))?
        }
    };
    Ok(PortTarget::Sandbox { id: id.to_owned(), port })
}

/// Parses the target in a host name.
fn named(host: &str) -> Option<PortTarget> {
    let (name, _domain) = host.split_once('.')?;
    let (port, id) = name.split_once('-')?;
    let id = id.to_ascii_lowercase();
    let port = port.parse().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    is_id(&id).then_some(PortTarget::Sandbox { id, port })
}

/// Forwards a request to a port of a sandbox.
pub(super) async fn forward(
    face: &E2bContext,
    id: &str,
    port: u16,
    mut request: Request,
) -> Response {
    let (live, guard) = match face.sandboxes.open(&face.sessions, &face.keys, id).await {
        Ok(open) => open,
        Err(closed) => return closed.answer(id),
    };
    let token = request.headers_mut().remove(TRAFFIC_TOKEN);
    if live.kept.private_ports {
        let token = token.as_ref().and_then(|token| token.to_str().ok());
        let binding = CredentialBinding::of(request.extensions());
        let is_opened = |token| face.is_opened(TokenPurpose::Traffic, id, token, &binding);
        if !token.is_some_and(is_opened) {
            let message = "the ports of this sandbox need its traffic access token";
            return RestError::new(StatusCode::FORBIDDEN, message).into_response();
        }
    }
    if let Some(mask) = &live.kept.masked_host {
        let host = HeaderValue::try_from(mask.replace(PORT_IN_MASK, &port.to_string()));
        // Masks that are invalid header values were rejected when the sandbox was created.
        if let Ok(host) = host {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    let owner = ShareOwner::Tenant(live.tenant.as_str().into());
    let Ok(place) = face.port_places.take(owner, 1) else {
        let message = "too many connections to ports of this tenant's sandboxes are open \
            (`compat.e2b.settings.port_connections_max`); try again when some have ended";
        return RestError::from(http::HttpError::new(ErrorCode::TooManyRequests, message))
            .into_response();
    };
    let is_interpreter = port == INTERPRETER_PORT;
    if is_interpreter && live.kept.template == interpreter::TEMPLATE {
        return interpreter::answer(face, id, PortUse { guard, place }, request).await;
    }
    let stream = match guard.connect(port).await {
        Ok(stream) => stream,
        // A program of another template that listens there takes precedence.
        Err(SessionError::Conflict(_)) if is_interpreter => {
            return interpreter::answer(face, id, PortUse { guard, place }, request).await;
        }
        Err(SessionError::Conflict(_)) => return port_closed(id, port),
        Err(SessionError::SandboxEnded(_)) => return not_running(id),
        Err(error) => return RestError::from(error).into_response(),
    };
    match pass(stream, PortUse { guard, place }, request).await {
        Ok(mut response) => {
            response.extensions_mut().insert(VerbatimAnswer);
            response
        }
        Err(error) => {
            tracing::debug!(%error, "a port of a sandbox did not answer");
            let message = "the program at this port of the sandbox did not answer as HTTP does";
            RestError::new(StatusCode::BAD_GATEWAY, message).into_response()
        }
    }
}

/// Keeps the sandbox at work, and the connection's place.
pub(super) struct PortUse {
    guard: SandboxGuard,
    #[expect(dead_code, reason = "held until the connection ends")]
    place: Share,
}

impl PortUse {
    /// Returns the sandbox.
    pub(super) fn guard(&self) -> &SandboxGuard {
        &self.guard
    }
}

async fn pass(
    stream: tokio::net::TcpStream,
    port_use: PortUse,
    mut request: Request,
) -> Result<Response, hyper::Error> {
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let ours = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let (mut sender, connection) = http1::Builder::new()
        // Like most clients, because some programs do not parse lower-case header names.
        .title_case_headers(true)
        .handshake(TokioIo::new(stream))
        .await?;
    // Ends with the answer or its upgraded connection, at the latest with the sandbox.
    node::task::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a port of a sandbox broke");
        }
    });
    prepare(request.headers_mut(), upgrade.as_ref());
    let target = request.uri().path_and_query().map_or("/", |it| it.as_str());
    if let Ok(uri) = Uri::try_from(target) {
        *request.uri_mut() = uri;
    }
    let mut response = sender.send_request(request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(ours) = ours
    {
        let theirs = hyper::upgrade::on(&mut response);
        node::task::spawn(join(ours, theirs, port_use));
        return Ok(response.map(|_| Body::empty()));
    }
    for name in &OF_CONNECTION {
        response.headers_mut().remove(name);
    }
    Ok(response
        .map(|body| Body::new(ForwardedAnswer { body, _port_use: port_use, _sender: sender })))
}

/// Removes the hop-by-hop headers.
fn prepare(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>) {
    let also: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_CONNECTION.iter().chain(&also) {
        headers.remove(name);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade.clone());
    }
}

/// Relays bytes in both directions until both sides have closed.
async fn join(ours: OnUpgrade, theirs: OnUpgrade, port_use: PortUse) {
    let fence = port_use.guard.fence();
    let (ours, theirs) = match tokio::try_join!(ours, theirs) {
        Ok(both) => both,
        Err(error) => return tracing::debug!(%error, "an upgrade of a connection failed"),
    };
    let mut theirs = FencedIo::new(TokioIo::new(theirs), fence);
    let mut ours = TokioIo::new(ours);
    // If one side fails, both are closed.
    drop(tokio::io::copy_bidirectional(&mut ours, &mut theirs).await);
}

/// A streamed answer. Keeps its sandbox at work, and its connection open.
struct ForwardedAnswer {
    body: Incoming,
    _port_use: PortUse,
    _sender: http1::SendRequest<Body>,
}

impl hyper::body::Body for ForwardedAnswer {
    type Data = bytes::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    //! Parsing of host names.

    use super::*;
    use crate::faces::e2b::tokens::new_id;

    #[test]
    fn a_host_or_two_headers_name_a_port() {
        let id = new_id().unwrap();
        let sandbox = |port| PortTarget::Sandbox { id: id.clone(), port };
        let upper = id.to_uppercase();
        for (host, port_header, expected) in [
            (format!("8000-{id}.example.com:81"), None, sandbox(8000)),
            (format!("49983-{upper}.localhost"), None, sandbox(ENVD_PORT)),
            (format!("8000-{id}.localhost"), Some("1"), sandbox(8000)),
            (format!("8000-{id}"), None, sandbox(ENVD_PORT)),
            (format!("+80-{id}.a"), None, sandbox(ENVD_PORT)),
            (format!("70000-{id}.a"), None, sandbox(ENVD_PORT)),
            ("8000-ses_1.a".to_owned(), Some("49999"), sandbox(49999)),
            ("127.0.0.1:5".to_owned(), None, sandbox(ENVD_PORT)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert("e2b-sandbox-id", id.parse().unwrap());
            if let Some(port) = port_header {
                headers.insert("e2b-sandbox-port", port.parse().unwrap());
            }
            let found = target(&headers, &Uri::from_static("/"));
            assert_eq!(found.unwrap(), expected, "{host}");
        }
        assert_eq!(target(&HeaderMap::new(), &Uri::from_static("/")).unwrap(), PortTarget::Server);
    }

    #[test]
    fn what_is_about_one_connection_is_not_passed_on() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, "X-Private, upgrade".parse().unwrap());
        headers.insert(header::UPGRADE, "websocket".parse().unwrap());
        headers.insert("x-private", "1".parse().unwrap());
        headers.insert("authorization", "Bearer of-the-program".parse().unwrap());
        let mut plain = headers.clone();
        prepare(&mut plain, None);
        assert_eq!(plain.len(), 1);
        let upgrade = HeaderValue::from_static("websocket");
        prepare(&mut headers, Some(&upgrade));
        assert_eq!(headers.get(header::CONNECTION).unwrap(), "upgrade");
        assert_eq!(headers.get(header::UPGRADE).unwrap(), "websocket");
        assert!(!headers.contains_key("x-private"));
    }
}
