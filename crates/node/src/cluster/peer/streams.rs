//! Streams between nodes: each has a connection of its own, opened by a request that specifies its
//! purpose, and carries bytes both ways.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-7.8>

use std::fmt;
use std::io;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header, uri};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::UnixStream;

use super::client::PeerTarget;
use super::forward::PeerForwarder;
use super::protocol::{AUTHORITY, FOR_NODE, LISTENER, PEER_LISTENER, node_value};
use crate::cluster::limit_homes::{is_limit_home, limit_homes};
use crate::cluster::membership::NodeMembership;
use crate::task::Boxed;

/// Protocol of such a connection after the `upgrade`.
const PROTOCOL: HeaderValue = HeaderValue::from_static("cove-stream");

/// Bytes in flight in each direction, before more are read.
const BUFFER_BYTES: usize = 64 << 10;

/// Reason why there is no stream to a node.
#[derive(Debug, thiserror::Error)]
pub enum PeerStreamError {
    /// The node is not in the cluster.
    #[error("node {0} is not connected")]
    Unknown(String),
    /// The node was not reached, or was lost.
    #[error("open a stream to node {node}")]
    Lost {
        /// The node.
        node: String,
        /// Cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node refused the stream.
    #[error("node {node} does not take the stream: {status}")]
    Refused {
        /// The node.
        node: String,
        /// Answer of the node.
        status: StatusCode,
    },
}

/// Stream to another node.
pub struct PeerStream {
    io: TokioIo<Upgraded>,
    /// Run of the node at the other end, if this node has opened the stream.
    target: Option<(NodeMembership, PeerTarget)>,
}

/// Stream that another node has opened, and that was not accepted yet.
pub struct OfferedStream {
    upgrade: OnUpgrade,
    /// Purpose of the stream.
    pub body: Bytes,
}

impl fmt::Debug for PeerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerStream").finish_non_exhaustive()
    }
}

impl fmt::Debug for OfferedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfferedStream").finish_non_exhaustive()
    }
}

impl PeerForwarder {
    /// Returns whether this node is one of the homes of a limit ([`limit_homes`]). It always is if
    /// it reaches no other node.
    #[must_use]
    pub fn is_limit_home(&self, role: &str, name: &str, limit: u32) -> bool {
        let nodes = self.membership().active_nodes(role);
        let own = &self.membership().identity().id;
        let is_alone = nodes.iter().all(|node| node == own);
        is_alone || is_limit_home(name, limit, own, &nodes)
    }

    /// Returns the homes of a limit, as this node knows the others now.
    #[must_use]
    pub fn limit_homes(&self, role: &str, name: &str, limit: u32) -> Vec<String> {
        limit_homes(name, limit, &self.membership().active_nodes(role))
    }

    /// Opens a stream to a node, at an internal path. `body` specifies its purpose.
    ///
    /// # Errors
    /// If the node is not reached, or refuses the stream.
    pub async fn open_stream(
        &self,
        node: &str,
        path: &str,
        body: Bytes,
    ) -> Result<PeerStream, PeerStreamError> {
        let unknown = || PeerStreamError::Unknown(node.to_owned());
        let lost = |source: Box<dyn std::error::Error + Send + Sync>| PeerStreamError::Lost {
            node: node.to_owned(),
            source,
        };
        let target = self.address(node).ok_or_else(unknown)?;
        let path: uri::PathAndQuery = path.parse().map_err(|_| unknown())?;
        let mut request = axum::http::Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from(path);
        let run = node_value(&target.id, &target.incarnation);
        let run = HeaderValue::from_str(&run).map_err(|_| unknown())?;
        for (name, value) in [
            (header::HOST, HeaderValue::from_static(AUTHORITY)),
            (header::CONNECTION, HeaderValue::from_static("upgrade")),
            (header::UPGRADE, PROTOCOL),
            (FOR_NODE, run),
            (LISTENER, HeaderValue::from_static(PEER_LISTENER)),
        ] {
            request.headers_mut().insert(name, value);
        }
        let mut answer = self.send(&target, request, true).await.map_err(|it| lost(it.into()))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (node, status) = (node.to_owned(), answer.status());
            return Err(PeerStreamError::Refused { node, status });
        }
        let upgraded = hyper::upgrade::on(&mut answer).await.map_err(|it| lost(it.into()))?;
        let target = Some((self.membership().clone(), target));
        Ok(PeerStream { io: TokioIo::new(upgraded), target })
    }
}

impl PeerStream {
    /// Carries bytes between a socket and the node, in both directions, until both have ended. The
    /// end of one direction is carried on as such.
    ///
    /// # Errors
    /// If one of the sides broke off, or the node is lost.
    pub async fn carry(self, local: &mut UnixStream) -> io::Result<()> {
        let PeerStream { mut io, target } = self;
        let lost = async {
            match &target {
                Some((membership, PeerTarget { id, incarnation, .. })) => {
                    membership.until_lost(id, incarnation).await;
                }
                // The opening node ends the stream when it stops, and TCP does when it is silent.
                None => std::future::pending().await,
            }
        };
        let (one, other) = (BUFFER_BYTES, BUFFER_BYTES);
        tokio::select! {
            copied = copy_bidirectional_with_sizes(local, &mut io, one, other) => {
                copied.map(drop)
            }
            () = lost => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl OfferedStream {
    /// Reads the purpose of a stream, which another node opens by this request.
    ///
    /// # Errors
    /// The answer to a request that opens no stream, or whose body is longer than `bytes_max`.
    pub async fn read(request: Request, bytes_max: usize) -> Result<OfferedStream, StatusCode> {
        let (mut parts, body) = request.into_parts();
        let is_offered = parts.headers.get(header::UPGRADE) == Some(&PROTOCOL);
        let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| is_offered);
        let upgrade = upgrade.ok_or(StatusCode::UPGRADE_REQUIRED)?;
        let body = to_bytes(body, bytes_max).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        Ok(OfferedStream { upgrade, body })
    }

    /// Accepts the stream, and carries its bytes from and to a socket. Returns the answer to the
    /// request.
    pub fn take(self, mut local: UnixStream) -> Response {
        let OfferedStream { upgrade, .. } = self;
        // Outside the turns of requests: the streams of all nodes would share the turns of one
        // caller.
        let carrying: Boxed<'static, ()> = Box::pin(async move {
            let carried = match upgrade.await {
                Ok(upgraded) => {
                    let stream = PeerStream { io: TokioIo::new(upgraded), target: None };
                    stream.carry(&mut local).await
                }
                Err(error) => Err(io::Error::other(error)),
            };
            if let Err(error) = carried {
                tracing::debug!(%error, "a stream of another node ended");
            }
        });
        drop(tokio::spawn(carrying));
        let head = [
            (header::CONNECTION, HeaderValue::from_static("upgrade")),
            (header::UPGRADE, PROTOCOL),
        ];
        (StatusCode::SWITCHING_PROTOCOLS, head).into_response()
    }
}
