//! Protocol between nodes beyond HTTP: headers, names, and limits of both sides.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;

/// Header with the addressed node and its run.
pub(super) const FOR_NODE: HeaderName = HeaderName::from_static("cove-for-node");
/// Header with the address of the client.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("cove-client");
/// Header with the name of the listener that received the request.
pub(super) const LISTENER: HeaderName = HeaderName::from_static("cove-listener");
/// Header with the `host` that the client sent.
pub(super) const CLIENT_HOST: HeaderName = HeaderName::from_static("cove-client-host");
/// Header of an answer 421: the node does not have the subject of the request.
const MISDIRECTED: HeaderName = HeaderName::from_static("cove-misdirected");

/// Name of the internal routes between nodes.
pub const PEER_LISTENER: &str = "peer";

/// Protocols of a connection, by their names in TLS (ALPN).
pub(super) const HTTP_2: &[u8] = b"h2";
pub(super) const HTTP_1: &[u8] = b"http/1.1";

/// Bytes of a stream in flight before its reader has taken some. A stalled reader holds no more
/// than that.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 << 10;
/// The same for a connection: as much as HTTP/2 allows, so that stalled streams do not hold up the
/// others.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Maximum number of concurrent streams of one connection.
pub(super) const STREAMS_MAX: u32 = 32_768;
/// Bytes of the head of a request or an answer: those of the public listeners, and added headers.
pub(super) const HEAD_BYTES_MAX: u32 = 128 << 10;
/// Interval between pings of a silent peer, and time for its answer.
pub(super) const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
pub(super) const ALIVE_MAX: Duration = Duration::from_secs(5);
/// Time to connect to a peer, and to agree on TLS with it.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Host of all nodes: keys prove their identity, and handlers see the host that the client named.
pub(super) const AUTHORITY: &str = "node.cove";

/// Returns the value of the header that addresses a run of a node.
pub(super) fn node_value(id: &str, incarnation: &str) -> String {
    format!("{id} {incarnation}")
}

/// Returns the answer to a request that is for another node.
pub(super) fn misdirected() -> Response {
    let mark = (MISDIRECTED, HeaderValue::from_static("1"));
    (StatusCode::MISDIRECTED_REQUEST, [mark]).into_response()
}

/// Returns whether an answer is [`misdirected`], and not one of a handler of the node.
pub(super) fn is_misdirected(answer: &axum::http::Response<Incoming>) -> bool {
    answer.status() == StatusCode::MISDIRECTED_REQUEST && answer.headers().contains_key(MISDIRECTED)
}
