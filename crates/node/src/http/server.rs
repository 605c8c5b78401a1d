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

use super::connection;
use super::fast::Site;
use crate::drain::Drain;

/// Pause after a failed `accept`: the process is out of descriptors, and only time helps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long answers may take to reach their clients once no work is left.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Named limits of the server shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time, at all listeners together; the next one gets 503.
    pub connections_max: usize,
    /// WebSockets and answers of unknown length, such as events, at one time; the next one gets
    /// 503, so that they leave connections to others.
    pub streams_max: usize,
    /// Time for a request's head to arrive, and how long an idle connection is kept.
    pub header_read_max: Duration,
    /// Bytes of a request's head; beyond it 431. More than 100 header lines are refused likewise:
    /// that is hyper's default, and any other number costs an allocation per request.
    pub header_bytes_max: usize,
    /// Bytes of one request's body; beyond it 413.
    pub body_bytes_max: u64,
    /// Longest pause between two pieces of a body; beyond it 400.
    pub body_pause_max: Duration,
    /// Bytes of all bodies in memory together; beyond it 503.
    pub bodies_bytes_max: u64,
    /// Longest time in which a client takes nothing of its answer; beyond it the connection is cut.
    pub write_stall_max: Duration,
    /// How long the server reads on, to discard, after it has refused a body ...
    pub linger_max: Duration,
    /// ... and how many bytes of it.
    pub linger_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 1024,
            streams_max: 768,
            header_read_max: Duration::from_secs(30),
            header_bytes_max: 64 << 10,
            body_bytes_max: 32 << 20,
            body_pause_max: Duration::from_secs(30),
            bodies_bytes_max: 256 << 20,
            write_stall_max: Duration::from_secs(30),
            linger_max: Duration::from_secs(2),
            linger_bytes_max: 32 << 20,
        }
    }
}

/// The address cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("listen at `{address}`")]
pub struct BindError {
    /// The address as it was asked for.
    pub address: String,
    /// Why.
    pub source: io::Error,
}

/// A bound socket that nobody is served at yet.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `host:port`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// When the address is malformed, taken or not ours.
    pub async fn bind(address: &str) -> Result<Listener, BindError> {
        let error = |source| BindError { address: address.to_owned(), source };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?;
        Ok(Listener { tcp, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the drain has finished, which may take `patience` from its beginning, and every
    /// connection is closed.
    pub fn serve(
        self,
        site: impl Into<Site>,
        limits: Limits,
        drain: Drain,
        patience: Duration,
    ) -> Boxed<'static, ()> {
        serve_all(vec![(self, site.into())], limits, drain, patience)
    }
}

/// Serves at several listeners, each with a site of its own, as [`Listener::serve`] does at one.
pub fn serve_all(
    mut listeners: Vec<(Listener, Site)>,
    limits: Limits,
    drain: Drain,
    patience: Duration,
) -> Boxed<'static, ()> {
    Box::pin(async move {
        let mut connections = JoinSet::new();
        let (close, closing) = watch::channel(false);
        let finished = drain.finished(patience);
        tokio::pin!(finished);
        loop {
            tokio::select! {
                (site, stream, peer) = accept(&mut listeners) => {
                    if connections.len() < limits.connections_max {
                        let closing = closing.clone();
                        connections.spawn(connection::serve(stream, peer, site, limits, closing));
                    } else {
                        connection::refuse(&stream, limits.connections_max);
                    }
                }
                // Takes what a connection task leaves behind, so that the set does not grow.
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

/// The next connection of any listener, with what serves it.
async fn accept(listeners: &mut [(Listener, Site)]) -> (Site, TcpStream, SocketAddr) {
    loop {
        let accepted = poll_fn(|cx| {
            // Who was served last is asked last, so that a busy listener does not starve another.
            for index in 0..listeners.len() {
                let (listener, site) = &listeners[index];
                if let Poll::Ready(accepted) = listener.tcp.poll_accept(cx) {
                    let site = site.clone();
                    listeners[index..].rotate_left(1);
                    return Poll::Ready(accepted.map(|(stream, peer)| (site, stream, peer)));
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
