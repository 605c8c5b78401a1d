//! Accepts connections, bounds them, and closes them when the server drains.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection;
use crate::drain::Drain;

/// Pause after a failed `accept`: the process is out of descriptors, and only time helps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long answers may take to reach their clients once no work is left.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Named limits of the server shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time; the next one gets 503.
    pub connections_max: usize,
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
    pub async fn serve(self, router: Router, limits: Limits, drain: Drain, patience: Duration) {
        let mut connections = JoinSet::new();
        let (close, closing) = watch::channel(false);
        let finished = drain.finished(patience);
        tokio::pin!(finished);
        loop {
            tokio::select! {
                stream = accept(&self.tcp) => {
                    if connections.len() < limits.connections_max {
                        let (router, closing) = (router.clone(), closing.clone());
                        connections.spawn(connection::serve(stream, router, limits, closing));
                    } else {
                        connection::refuse(&stream, limits.connections_max);
                    }
                }
                // Takes what a connection task leaves behind, so that the set does not grow.
                Some(result) = connections.join_next() => log_panic(result),
                () = &mut finished => break,
            }
        }
        drop(self.tcp);
        close.send_replace(true);
        let all_closed = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(FLUSH_MAX, all_closed).await.is_err() {
            tracing::debug!(connections = connections.len(), "connections are cut");
        }
        connections.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
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
