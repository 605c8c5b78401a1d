//! Connections to other nodes: one HTTP/2 connection for each node, and one HTTP/1.1 connection for
//! each upgrade.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::key::{ClusterKey, ClusterKeyError};
use super::protocol::{
    ALIVE_INTERVAL, ALIVE_MAX, CONNECT_MAX, CONNECTION_WINDOW_BYTES, HEAD_BYTES_MAX, HTTP_1,
    HTTP_2, STREAM_WINDOW_BYTES,
};
use crate::task;

/// Name of the peer in TLS. Keys prove its identity, so all nodes have the same name.
const TLS_NAME: &str = "node.cove";

/// Reason why a node does not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// The node cannot be reached: nothing was sent.
    #[error("connect to node {node} at `{address}`")]
    Connect {
        /// The node.
        node: String,
        /// Address of the node.
        address: String,
        /// Cause.
        source: io::Error,
    },
    /// The connection broke after the request may have arrived.
    #[error("exchange HTTP with node {node}")]
    Http {
        /// The node.
        node: String,
        /// Cause.
        source: hyper::Error,
    },
    /// The node is lost, and may have received the request.
    #[error("node {node} is lost")]
    Lost {
        /// The node.
        node: String,
    },
}

/// Address of a run of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerTarget {
    pub(super) id: String,
    pub(super) incarnation: String,
    pub(super) address: String,
}

/// HTTP/2 connection to a node, or the lock that is held while there is none yet.
type PeerSlot = Arc<tokio::sync::Mutex<Option<http2::SendRequest<Body>>>>;

/// HTTP/2 connection to a node.
type PeerConnection = http2::Connection<TokioIo<TlsStream<TcpStream>>, Body, TokioExecutor>;

/// Sends requests to other nodes.
pub(super) struct PeerClient {
    streams: TlsConnector,
    upgrades: TlsConnector,
    /// HTTP/2 connections by the run that they lead to.
    connections: Mutex<HashMap<PeerTarget, PeerSlot>>,
}

impl PeerClient {
    pub(super) fn new(key: &ClusterKey) -> Result<PeerClient, ClusterKeyError> {
        let connector =
            |protocol| key.client(&[protocol]).map(|it| TlsConnector::from(Arc::new(it)));
        Ok(PeerClient {
            streams: connector(HTTP_2)?,
            upgrades: connector(HTTP_1)?,
            connections: Mutex::default(),
        })
    }

    /// Drops connections to runs of nodes that have ended.
    pub(super) fn keep_only(&self, is_alive: impl Fn(&PeerTarget) -> bool) {
        self.connections.lock().retain(|target, _| is_alive(target));
    }

    /// Sends a request, which may share a connection with others, and returns when the head of the
    /// answer has arrived.
    pub(super) async fn send(
        &self,
        target: &PeerTarget,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, PeerError> {
        let mut sender = self.connection(target).await?;
        sender.send_request(request).await.map_err(broken(target))
    }

    /// Sends a request on a connection of its own, which it may take over.
    pub(super) async fn send_alone(
        &self,
        target: &PeerTarget,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, PeerError> {
        let tls = connect(target, &self.upgrades).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(tls)).await.map_err(broken(target))?;
        let connection = connection.with_upgrades();
        task::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a node ended");
            }
        });
        sender.send_request(request).await.map_err(broken(target))
    }

    async fn connection(&self, target: &PeerTarget) -> Result<http2::SendRequest<Body>, PeerError> {
        let slot = {
            let mut connections = self.connections.lock();
            match connections.get(target) {
                Some(slot) => Arc::clone(slot),
                None => Arc::clone(connections.entry(target.clone()).or_default()),
            }
        };
        let mut slot = slot.lock().await;
        if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let (sender, connection) = self.handshake(target).await?;
        let node = target.id.clone();
        task::spawn(async move {
            match connection.await {
                Ok(()) => tracing::debug!(node, "the connection to a node ended"),
                Err(error) => tracing::info!(node, %error, "the connection to a node broke"),
            }
        });
        *slot = Some(sender.clone());
        Ok(sender)
    }

    async fn handshake(
        &self,
        target: &PeerTarget,
    ) -> Result<(http2::SendRequest<Body>, PeerConnection), PeerError> {
        let tls = connect(target, &self.streams).await?;
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX)
            .keep_alive_interval(ALIVE_INTERVAL)
            .keep_alive_timeout(ALIVE_MAX)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(tls))
            .await
            .map_err(broken(target))
    }

    /// Connects to a node, and returns when that connection has ended.
    pub(super) async fn watch(&self, target: &PeerTarget) -> Result<(), PeerError> {
        // Without its sender the connection would be closed from here.
        let (_sender, connection) = self.handshake(target).await?;
        connection.await.map_err(broken(target))
    }
}

/// Returns whether nothing listens at the address of a node: its machine is up and refuses. If a
/// name has several addresses, all must refuse.
pub(super) async fn is_refused(target: &PeerTarget) -> bool {
    let Ok(addresses) = lookup_host(&target.address).await else { return false };
    let mut is_refused = false;
    for address in addresses {
        match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => is_refused = true,
            // The address accepts the connection or does not answer, which proves nothing.
            Ok(_) | Err(_) => return false,
        }
    }
    is_refused
}

fn broken(target: &PeerTarget) -> impl FnOnce(hyper::Error) -> PeerError {
    let node = target.id.clone();
    |source| PeerError::Http { node, source }
}

async fn connect(
    target: &PeerTarget,
    connector: &TlsConnector,
) -> Result<TlsStream<TcpStream>, PeerError> {
    let error = |source| PeerError::Connect {
        node: target.id.clone(),
        address: target.address.clone(),
        source,
    };
    let connecting = async {
        let stream = TcpStream::connect(&target.address).await?;
        tune(&stream)?;
        let name = ServerName::try_from(TLS_NAME).map_err(io::Error::other)?;
        connector.connect(name, stream).await
    };
    let connected = timeout(CONNECT_MAX, connecting).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(error)
}

/// Sets the socket options of both sides: small messages are sent at once, and a node that
/// disappears without a word is detected, even if HTTP is silent for long.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(ALIVE_INTERVAL)
        .with_interval(Duration::from_secs(2))
        .with_retries(3);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(ALIVE_INTERVAL + ALIVE_MAX))
}
