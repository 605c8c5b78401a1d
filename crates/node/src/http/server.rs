//! Accepts connections, bounds them, and closes them when the server drains.

use crate::task::Boxed;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::{self, ConnectionContext};
use super::fast::ListenerSite;
use super::room::ConnectionRoom;
use crate::current::CurrentSettings;
use crate::drain::DrainHandle;
use crate::fair::FairScheduler;
use crate::tls::ServerCertificate;

/// Pause after a failed `accept`: the process is out of descriptors, and only time helps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time that answers may take to reach their clients once no work is left.
const FLUSH_MAX: Duration = Duration::from_millis(800);

/// Named limits of the server shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShellLimits {
    /// Connections at one time, at each listener; a further one evicts a silent one, and gets 503
    /// if there is none.
    pub connections_max: usize,
    /// Connections from one address at one time, at each listener, likewise. Behind a proxy all
    /// callers have one address.
    pub connections_per_address_max: usize,
    /// WebSockets and answers of unknown length, such as events, at one time; a further one gets
    /// 503, so that they leave connections to others. A tenant that has three times the free number
    /// gets 429.
    pub streams_max: usize,
    /// Time for a request's head to arrive, and for which an idle connection is kept.
    pub header_read_max: Duration,
    /// Bytes of a request's head; beyond it 431. More than 100 header lines are refused likewise:
    /// that is hyper's default, and any other number costs an allocation per request.
    pub header_bytes_max: usize,
    /// Bytes of one request's body; beyond it 413.
    pub body_bytes_max: u64,
    /// Longest pause between two pieces of a body; beyond it 400.
    pub body_pause_max: Duration,
    /// Pace of a body that is kept in memory: if the average is lower once `body_pause_max` has
    /// passed, 400.
    pub body_bytes_per_s_min: u64,
    /// Bytes of all bodies in memory together; beyond it 503. A tenant whose requests have as much
    /// of it as is free gets 429.
    pub bodies_bytes_max: u64,
    /// Longest time in which a client takes nothing of its answer; beyond it the connection is cut.
    pub write_stall_max: Duration,
    /// Time that the server continues to read and discard a body that it has refused ...
    pub linger_max: Duration,
    /// ... and the number of bytes.
    pub linger_bytes_max: u64,
}

impl Default for ShellLimits {
    fn default() -> Self {
        ShellLimits {
            connections_max: 1024,
            connections_per_address_max: 768,
            streams_max: 768,
            header_read_max: Duration::from_secs(30),
            header_bytes_max: 64 << 10,
            body_bytes_max: 32 << 20,
            body_pause_max: Duration::from_secs(30),
            body_bytes_per_s_min: 4 << 10,
            bodies_bytes_max: 256 << 20,
            write_stall_max: Duration::from_secs(30),
            linger_max: Duration::from_secs(2),
            linger_bytes_max: 32 << 20,
        }
    }
}

/// TLS of a listener.
#[derive(Clone, Debug)]
pub struct HttpListenerTls {
    /// Certificate for clients.
    pub certificate: ServerCertificate,
    /// Clients that need no TLS.
    pub plaintext: PlaintextPolicy,
}

/// Clients that are served without TLS at a listener that has a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaintextPolicy {
    /// No client.
    Never,
    /// Programs of this machine, such as its own command line, health checks and proxies.
    #[default]
    Loopback,
    /// All clients.
    Always,
}

impl PlaintextPolicy {
    pub(super) fn allows(self, peer: SocketAddr) -> bool {
        match self {
            PlaintextPolicy::Never => false,
            PlaintextPolicy::Loopback => peer.ip().to_canonical().is_loopback(),
            PlaintextPolicy::Always => true,
        }
    }
}

/// Error of binding an address.
#[derive(Debug, thiserror::Error)]
#[error("listen at `{address}`")]
pub struct BindError {
    /// The requested address.
    pub address: String,
    /// Cause.
    pub source: io::Error,
}

/// A bound socket that is not served yet.
#[derive(Debug)]
pub struct BoundListener {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Option<HttpListenerTls>,
}

impl BoundListener {
    /// Binds `host:port`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// If the address is malformed, taken or not local.
    pub async fn bind(address: &str) -> Result<BoundListener, BindError> {
        let error = |source| BindError { address: address.to_owned(), source };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?;
        Ok(BoundListener { tcp, address, tls: None })
    }

    /// Serves clients with TLS, if there is a certificate.
    #[must_use]
    pub fn with_tls(self, tls: Option<HttpListenerTls>) -> BoundListener {
        BoundListener { tls, ..self }
    }

    /// Returns the address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the TLS settings for its clients.
    #[must_use]
    pub fn tls(&self) -> Option<&HttpListenerTls> {
        self.tls.as_ref()
    }

    /// Serves until the drain has finished, which may take `patience` from its beginning, and every
    /// connection is closed.
    pub fn serve(
        self,
        site: impl Into<ListenerSite>,
        limits: impl Into<CurrentSettings<ShellLimits>>,
        drain: DrainHandle,
        patience: Duration,
    ) -> Boxed<'static, ()> {
        let (listeners, limits) = (vec![(self, site.into())], limits.into());
        Box::pin(async move {
            let scheduler = FairScheduler::for_this_runtime();
            serve_all(listeners, limits, &scheduler, drain, patience).await;
        })
    }
}

/// Serves at several listeners, each with a site of its own, as [`BoundListener::serve`] does at
/// one. Replaced limits apply to new connections. Callers take the turns of `scheduler`, which
/// other servers of them share.
pub fn serve_all(
    listeners: Vec<(BoundListener, ListenerSite)>,
    limits: impl Into<CurrentSettings<ShellLimits>>,
    scheduler: &FairScheduler,
    drain: DrainHandle,
    patience: Duration,
) -> Boxed<'static, ()> {
    let (limits, scheduler) = (limits.into(), scheduler.clone());
    Box::pin(async move {
        // Load on one listener takes nothing from another.
        let open = |(listener, site)| ServedListener {
            listener,
            site,
            room: ConnectionRoom::new(limits.clone()),
        };
        let mut listeners: Vec<ServedListener> = listeners.into_iter().map(open).collect();
        let mut connections = JoinSet::new();
        let (close, closing) = watch::channel(false);
        let finished = drain.finished(patience);
        tokio::pin!(finished);
        loop {
            tokio::select! {
                AcceptedSocket { stream, peer, site, tls, room } = accept(&mut listeners) => {
                    let limits = *limits.now();
                    if let Some(seat) = room.enter(peer.ip()) {
                        let (number, closing) = (seat.number(), closing.clone());
                        // Until the caller of its requests is identified.
                        let address = connection::of_address(peer);
                        let scheduler = scheduler.clone();
                        let context =
                            ConnectionContext { site, limits, tls, scheduler: scheduler.clone() };
                        let serving = connection::serve(stream, peer, context, closing, seat);
                        room.serves(number, connections.spawn(scheduler.run(address, serving)));
                    } else {
                        connection::refuse(&stream, &limits, site.render);
                    }
                }
                // Reaps finished connection tasks, so that the set does not grow.
                Some(result) = connections.join_next() => log_panic(result),
                () = &mut finished => break,
            }
        }
        drop(listeners);
        close.send_replace(true);
        let all_closed = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(FLUSH_MAX, all_closed).await.is_err() {
            tracing::debug!(connections = connections.len(), "connections are cut");
        }
        connections.shutdown().await;
    })
}

/// A listener that is served.
struct ServedListener {
    listener: BoundListener,
    site: ListenerSite,
    room: ConnectionRoom,
}

/// An accepted connection, with its listener's context.
struct AcceptedSocket {
    stream: TcpStream,
    peer: SocketAddr,
    site: ListenerSite,
    tls: Option<HttpListenerTls>,
    room: ConnectionRoom,
}

/// Returns the next connection of any listener.
async fn accept(listeners: &mut [ServedListener]) -> AcceptedSocket {
    loop {
        let accepted = poll_fn(|cx| {
            // The listener served last is polled last, so that a busy one does not starve another.
            for index in 0..listeners.len() {
                let open = &listeners[index];
                if let Poll::Ready(accepted) = open.listener.tcp.poll_accept(cx) {
                    let (site, room) = (open.site.clone(), open.room.clone());
                    let tls = open.listener.tls.clone();
                    listeners[index..].rotate_left(1);
                    let accepted = accepted.map(|(stream, peer)| AcceptedSocket {
                        stream,
                        peer,
                        site,
                        tls,
                        room,
                    });
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        });
        match accepted.await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn log_panic(result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}
