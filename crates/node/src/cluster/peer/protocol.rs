//! Protocol between nodes, where it is more than HTTP: headers, names, and limits of both sides.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;

/// Header with the node, and the run of it, that a request is for.
pub(super) const FOR_NODE: HeaderName = HeaderName::from_static("cove-for-node");
/// Header with the address of the client that sent it.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("cove-client");
/// Header with the listener that the client sent it to.
pub(super) const LISTENER: HeaderName = HeaderName::from_static("cove-listener");
/// Header with the `host` that the client sent.
pub(super) const CLIENT_HOST: HeaderName = HeaderName::from_static("cove-client-host");
/// Header of an answer 421: the node has not what the request is about.
const MISDIRECTED: HeaderName = HeaderName::from_static("cove-misdirected");

/// Name of the routes that are for nodes alone.
pub const PEER_LISTENER: &str = "peer";

/// Protocols of a connection, by their names in TLS (ALPN).
pub(super) const HTTP_2: &[u8] = b"h2";
pub(super) const HTTP_1: &[u8] = b"http/1.1";

/// Bytes of a stream that are under way before its reader has taken some. A reader that stands
/// still holds no more than that.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 << 10;
/// The same of a connection: as much as HTTP/2 allows, so that streams that stand still do not
/// hold up the others.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Streams of one connection at one time.
pub(super) const STREAMS_MAX: u32 = 32_768;
/// Bytes of the head of a request or an answer: those of the public listeners, and what is added.
pub(super) const HEAD_BYTES_MAX: u32 = 128 << 10;
/// Interval at which a silent peer is asked whether it is there, and time that it has to say so.
pub(super) const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
pub(super) const ALIVE_MAX: Duration = Duration::from_secs(5);
/// Time to connect to a peer, and to agree on TLS with it.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Host of all nodes: keys prove who they are, and handlers see the one that the client named.
pub(super) const AUTHORITY: &str = "node.cove";

/// Value of the header that says which run of which node a request is for.
pub(super) fn node_value(id: &str, incarnation: &str) -> String {
    format!("{id} {incarnation}")
}

/// The answer to a request that is for another node.
pub(super) fn misdirected() -> Response {
    let mark = (MISDIRECTED, HeaderValue::from_static("1"));
    (StatusCode::MISDIRECTED_REQUEST, [mark]).into_response()
}

/// Returns whether an answer is [`misdirected`], and not one of a handler of the node.
pub(super) fn is_misdirected(answer: &axum::http::Response<Incoming>) -> bool {
    answer.status() == StatusCode::MISDIRECTED_REQUEST && answer.headers().contains_key(MISDIRECTED)
}
