//! Requests as they are sent to another node.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header, uri};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::upgrade::OnUpgrade;

use super::body::{ForwardedBody, kept};
use super::client::PeerTarget;
use super::protocol::{
    AUTHORITY, CLIENT, CLIENT_HOST, FOR_NODE, LISTENER, PEER_LISTENER, node_value,
};
use super::refusal::moved;
use crate::http::{ConnectionPeer, HttpError};
use crate::traces;

/// Hop-by-hop headers (RFC 9110, 7.6.1).
pub(super) const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A request that can be sent to a node, and to another one after a misdirection.
pub(super) struct ForwardedRequest {
    parts: Parts,
    listener: &'static str,
    pub(super) body: ForwardedBody,
    pub(super) upgrade: Option<OnUpgrade>,
}

impl ForwardedRequest {
    /// Creates a request without a body.
    pub(super) fn without_body(parts: Parts, listener: &'static str) -> ForwardedRequest {
        ForwardedRequest { parts, listener, body: ForwardedBody::Kept(Bytes::new()), upgrade: None }
    }

    /// Returns its method.
    pub(super) fn method(&self) -> &Method {
        &self.parts.method
    }

    /// Returns its head, and the listener that received it.
    pub(super) fn into_head(self) -> (Parts, &'static str) {
        (self.parts, self.listener)
    }

    /// Returns the request as sent to a node.
    pub(super) fn for_node(&self, target: &PeerTarget, body: Body) -> axum::http::Request<Body> {
        let mut sent = axum::http::Request::new(body);
        *sent.method_mut() = self.parts.method.clone();
        *sent.headers_mut() = self.head(target);
        let path = self.parts.uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| uri::PathAndQuery::from_static("/"));
        if self.upgrade.is_some() {
            *sent.uri_mut() = Uri::from(path);
            return sent;
        }
        *sent.uri_mut() = address_of(path);
        *sent.version_mut() = Version::HTTP_2;
        sent
    }

    /// Returns the headers that are sent to a node.
    fn head(&self, target: &PeerTarget) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        if self.upgrade.is_none() {
            OF_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
            headers.remove(header::UPGRADE);
        }
        // Answered by this node already, or not at all.
        headers.remove(header::EXPECT);
        // The other node's spans are children of this node's.
        traces::write_current(&mut headers);
        let host = headers.remove(header::HOST);
        let added = [
            (FOR_NODE, HeaderValue::from_str(&node_value(&target.id, &target.incarnation)).ok()),
            (LISTENER, Some(HeaderValue::from_static(self.listener))),
            (CLIENT_HOST, host),
            (CLIENT, self.client()),
        ];
        for (name, value) in added {
            headers.remove(&name);
            value.map(|value| headers.insert(name, value));
        }
        if self.upgrade.is_some() {
            headers.insert(header::HOST, HeaderValue::from_static(AUTHORITY));
        }
        headers
    }

    /// Returns the address of the client.
    fn client(&self) -> Option<HeaderValue> {
        let ConnectionPeer(address) = self.parts.extensions.get::<ConnectionPeer>()?;
        HeaderValue::from_str(&address.to_string()).ok()
    }

    /// Returns it to be answered here, and once more for another node if its body is kept. None if
    /// its body was sent already.
    pub(super) fn twice(self) -> Option<(ForwardedRequest, Option<ForwardedRequest>)> {
        let body = self.body.to_send()?;
        let again = match &self.body {
            ForwardedBody::Kept(bytes) => Some(ForwardedRequest {
                parts: self.parts.clone(),
                listener: self.listener,
                body: ForwardedBody::Kept(bytes.clone()),
                upgrade: self.upgrade.clone(),
            }),
            ForwardedBody::Streamed(_) => None,
        };
        Some((ForwardedRequest { body: ForwardedBody::streamed(body), ..self }, again))
    }

    /// Answers it with this node's own handlers after all.
    pub(super) async fn run_here(mut self, next: Next) -> Response {
        let Some(body) = self.body.to_send() else { return moved() };
        if let Some(upgrade) = self.upgrade {
            self.parts.extensions.insert(upgrade);
        }
        next.run(Request::from_parts(self.parts, body)).await
    }
}

/// Prepares a request for sending, and reads its body if it is short.
pub(super) async fn forwarded(
    mut parts: Parts,
    listener: &'static str,
    body: Body,
) -> Result<ForwardedRequest, HttpError> {
    // Of any protocol: a program in a sandbox may use any.
    let upgrade = match parts.headers.contains_key(header::UPGRADE) {
        true => parts.extensions.remove::<OnUpgrade>(),
        false => None,
    };
    let body = kept(body).await?;
    Ok(ForwardedRequest { parts, listener, body, upgrade })
}

/// Creates an internal request of this node.
pub(super) fn for_node_alone(
    target: &PeerTarget,
    method: Method,
    path: uri::PathAndQuery,
    body: Bytes,
) -> Option<axum::http::Request<Body>> {
    let mut sent = axum::http::Request::new(Body::from(body));
    *sent.method_mut() = method;
    *sent.uri_mut() = address_of(path);
    *sent.version_mut() = Version::HTTP_2;
    let run = HeaderValue::from_str(&node_value(&target.id, &target.incarnation)).ok()?;
    sent.headers_mut().insert(FOR_NODE, run);
    sent.headers_mut().insert(LISTENER, HeaderValue::from_static(PEER_LISTENER));
    Some(sent)
}

/// Returns the URI of an HTTP/2 request.
fn address_of(path: uri::PathAndQuery) -> Uri {
    let mut address = uri::Parts::default();
    address.scheme = Some(uri::Scheme::HTTPS);
    address.authority = Some(uri::Authority::from_static(AUTHORITY));
    address.path_and_query = Some(path);
    // All parts are present.
    Uri::from_parts(address).unwrap_or_default()
}
