//! Connections between the nodes of a cluster: HTTP/2 for requests and streams, HTTP/1.1 for each
//! request that takes its connection over, both within TLS 1.3.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9113>
//! - <https://www.rfc-editor.org/rfc/rfc7301>

mod body;
mod client;
mod failures;
mod forward;
mod key;
mod listener;
mod moved;
mod place;
mod resume;
mod routing;
mod streams;
mod watch;

use std::time::Duration;

use axum::http::HeaderName;

pub use self::forward::{
    PeerAnswer, PeerForwarder, RequestLocator, RequestSubject, SubjectOwner, WorkKind,
};
pub use self::key::{ClusterKey, ClusterKeyError};
pub use self::listener::PeerListener;
pub use self::moved::SubjectMoved;
pub use self::streams::{OfferedStream, PeerStream, PeerStreamError};

/// Header with the node, and the run of it, that a request is for.
const FOR_NODE: HeaderName = HeaderName::from_static("cove-for-node");
/// Header with the address of the client that sent it.
const CLIENT: HeaderName = HeaderName::from_static("cove-client");
/// Header with the listener that the client sent it to.
const LISTENER: HeaderName = HeaderName::from_static("cove-listener");
/// Header with the `host` that the client sent.
const CLIENT_HOST: HeaderName = HeaderName::from_static("cove-client-host");
/// Header of an answer 421: the node has not what the request is about.
const MISDIRECTED: HeaderName = HeaderName::from_static("cove-misdirected");

/// Name of the routes that are for nodes alone.
pub const PEER_LISTENER: &str = "peer";

/// Protocols of a connection, by their names in TLS (ALPN).
const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// Bytes of a stream that are under way before its reader has taken some. A reader that stands
/// still holds no more than that.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
/// The same of a connection: as much as HTTP/2 allows, so that streams that stand still do not
/// hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Streams of one connection at one time.
const STREAMS_MAX: u32 = 32_768;
/// Bytes of the head of a request or an answer: those of the public listeners, and what is added.
const HEAD_BYTES_MAX: u32 = 128 << 10;
/// Interval at which a silent peer is asked whether it is there, and time that it has to say so.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const ALIVE_MAX: Duration = Duration::from_secs(5);
/// Time to connect to a peer, and to agree on TLS with it.
const CONNECT_MAX: Duration = Duration::from_secs(2);
