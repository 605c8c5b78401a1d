//! Listener for other nodes, with the routes of the public listeners.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::key::{ClusterKey, ClusterKeyError};
use super::protocol::{
    ALIVE_INTERVAL, ALIVE_MAX, CLIENT, CLIENT_HOST, CONNECT_MAX, CONNECTION_WINDOW_BYTES, FOR_NODE,
    HEAD_BYTES_MAX, HTTP_1, HTTP_2, LISTENER, STREAM_WINDOW_BYTES, STREAMS_MAX, misdirected,
    node_value,
};
use crate::clock;
use crate::cluster::identity::NodeIdentity;
use crate::drain::DrainHandle;
use crate::fair::FairScheduler;
use crate::http::{
    BindError, ConnectionPeer, CutControl, CuttableIo, FairExecutor, PeerHop, UpgradedRequest,
    path_only,
};

/// Maximum number of connections of other nodes; further ones are closed. Each WebSocket has one.
const CONNECTIONS_MAX: usize = 16_384;
/// Interval at which connections without the key are logged.
const STRANGERS_TOLD_EVERY: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`: the process is out of descriptors, and only time helps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time that answers may take to reach their nodes once no work is left.
const FLUSH_MAX: Duration = Duration::from_millis(800);

/// Routes by the name of their public listener.
type PeerSites = Arc<[(&'static str, Router)]>;

/// A bound socket at which other nodes are served.
pub struct PeerListener {
    tcp: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for PeerListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl PeerListener {
    /// Binds `host:port`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// If the address is malformed, taken or not local.
    pub async fn bind(address: &str, key: &ClusterKey) -> Result<PeerListener, PeerBindError> {
        let acceptor = TlsAcceptor::from(Arc::new(key.server(&[HTTP_2, HTTP_1])?));
        let error = |source| BindError { address: address.to_owned(), source };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?;
        Ok(PeerListener { tcp, address, acceptor })
    }

    /// Returns the address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the drain has finished, which may take `patience` from its beginning, and every
    /// connection is closed. `sites` are the routes of the public listeners, by their names;
    /// callers take turns of `scheduler`, as at the public listeners.
    pub async fn serve(
        self,
        identity: &NodeIdentity,
        sites: Vec<(&'static str, Router)>,
        scheduler: FairScheduler,
        drain: DrainHandle,
        patience: Duration,
    ) {
        let service = PeerService {
            expected: node_value(&identity.id, &identity.incarnation).into(),
            sites: sites.into(),
            scheduler,
            strangers: Arc::default(),
        };
        let mut connections = JoinSet::new();
        let (close, closing) = watch::channel(false);
        let finished = drain.finished(patience);
        tokio::pin!(finished);
        loop {
            tokio::select! {
                accepted = self.tcp.accept() => match accepted {
                    Ok((stream, _)) if connections.len() < CONNECTIONS_MAX => {
                        let (acceptor, service) = (self.acceptor.clone(), service.clone());
                        let closing = closing.clone();
                        connections.spawn(async move {
                            serve_connection(stream, acceptor, service, closing).await;
                        });
                    }
                    Ok((_, peer)) => {
                        tracing::warn!(%peer, max = CONNECTIONS_MAX, "too many connections of nodes");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection of a node");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = &mut finished => break,
            }
        }
        close.send_replace(true);
        let all_closed = async { while connections.join_next().await.is_some() {} };
        drop(timeout(FLUSH_MAX, all_closed).await);
        connections.shutdown().await;
    }
}

/// Reason why other nodes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PeerBindError {
    /// The address cannot be listened at.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] ClusterKeyError),
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: PeerService,
    mut closing: watch::Receiver<bool>,
) {
    if let Err(error) = super::client::tune(&stream) {
        return tracing::debug!(%error, "set options of a connection");
    }
    let tls = match timeout(CONNECT_MAX, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return service.strangers.tell(&error),
        Err(_) => return tracing::debug!("TLS took too long"),
    };
    if tls.get_ref().1.alpn_protocol() == Some(HTTP_2) {
        let executor = FairExecutor::new(service.scheduler.clone(), "node".into());
        let answering = service_fn(move |request| service.clone().answer(request));
        let connection = http2::Builder::new(executor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .keep_alive_interval(ALIVE_INTERVAL)
            .keep_alive_timeout(ALIVE_MAX)
            .serve_connection(TokioIo::new(tls), answering);
        tokio::pin!(connection);
        tokio::select! {
            result = &mut connection => return log_end(&result),
            _ = closing.wait_for(|closing| *closing) => {}
        }
        connection.as_mut().graceful_shutdown();
        return log_end(&connection.await);
    }
    serve_upgrade(tls, service).await;
}

/// Serves a connection for one request, which may take it over.
async fn serve_upgrade(tls: TlsStream<TcpStream>, service: PeerService) {
    let kept: Arc<Mutex<Option<UpgradedRequest>>> = Arc::default();
    let (io, control) = CuttableIo::new(tls);
    let keep = Arc::clone(&kept);
    let scheduler = service.scheduler.clone();
    let answering = service_fn(move |request| {
        let (service, keep) = (service.clone(), Arc::clone(&keep));
        async move {
            let mut answer = service.answer(request).await?;
            if let Some(upgraded) = answer.extensions_mut().remove::<UpgradedRequest>() {
                *keep.lock() = Some(upgraded);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES_MAX as usize)
        .serve_connection(TokioIo::new(io), answering)
        .with_upgrades();
    log_end(&scheduler.run("node".into(), connection).await);
    // After an upgrade the socket lives on in a handler, until that drops it or its credential is
    // revoked.
    let Some(upgraded) = kept.lock().take() else { return };
    let CutControl { cut, dropped } = control;
    tokio::select! {
        // `dropped` carries no message: only its end matters.
        _ = dropped => {}
        () = upgraded.revoked() => cut.cut(),
    }
}

fn log_end(result: &Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection of a node ended");
    }
}

/// The service that answers requests of other nodes.
#[derive(Clone)]
struct PeerService {
    /// This node and its run.
    expected: Arc<str>,
    sites: PeerSites,
    scheduler: FairScheduler,
    strangers: Arc<StrangerLog>,
}

/// Log of connections without the key of the cluster: any client that reaches the port can make
/// them, so few are logged.
#[derive(Default)]
struct StrangerLog(Mutex<Option<Instant>>);

impl StrangerLog {
    fn tell(&self, error: &io::Error) {
        // A client that disconnects, as a node does after a timeout, has sent nothing wrong.
        if error.kind() != io::ErrorKind::InvalidData {
            return tracing::debug!(%error, "a connection ended before TLS was agreed on");
        }
        let now = clock::now();
        let mut last = self.0.lock();
        if last.is_none_or(|last| now.duration_since(last) >= STRANGERS_TOLD_EVERY) {
            *last = Some(now);
            tracing::warn!(%error, "a client without the cluster's key connected");
        }
    }
}

impl PeerService {
    async fn answer(self, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        let mut request = request.map(Body::new);
        let headers = request.headers_mut();
        let taken = TakenHeaders {
            node: headers.remove(FOR_NODE),
            listener: headers.remove(LISTENER),
            client: headers.remove(CLIENT),
            host: headers.remove(CLIENT_HOST),
        };
        // The address now belongs to another node, or to a later run.
        if taken.node.as_ref().is_none_or(|node| node.as_bytes() != self.expected.as_bytes()) {
            return Ok(misdirected());
        }
        let name = taken.listener.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
        let Some((_, router)) = self.sites.iter().find(|(known, _)| known.as_bytes() == name)
        else {
            return Ok(misdirected());
        };
        restore(request.headers_mut(), taken.host);
        *request.uri_mut() = path_only(request.uri());
        let client = taken.client.as_ref().and_then(|it| it.to_str().ok()?.parse().ok());
        if let Some(client) = client {
            request.extensions_mut().insert(ConnectionPeer(client));
        }
        request.extensions_mut().insert(PeerHop);
        TowerToHyperService::new(router.clone()).call(request).await
    }
}

/// Internal headers, which no handler sees.
struct TakenHeaders {
    node: Option<HeaderValue>,
    listener: Option<HeaderValue>,
    client: Option<HeaderValue>,
    host: Option<HeaderValue>,
}

/// Restores the host that the client named.
fn restore(headers: &mut HeaderMap, host: Option<HeaderValue>) {
    headers.remove(header::HOST);
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
}
