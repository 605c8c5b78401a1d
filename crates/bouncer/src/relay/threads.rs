//! Interface of the relay's threads to the control plane.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use node::cluster::LimitGrant;
use tokio::sync::{Notify, oneshot};

use super::client_count::{ClientUsage, SharedClientLimit};
use super::orders::ThreadCommand;
use super::pools::{ConnectionBounds, ConnectionUsage};
use super::snapshot::ThreadSnapshot;
use super::stats::ThreadTenantStats;
use crate::config::BouncerConfig;
use crate::guest::client::{LoginPlace, SandboxClient};
use crate::tenants::TenantId;

/// Interface of the relay for the control plane.
pub trait RelayThreads: fmt::Debug + Send + Sync {
    /// Sends an order to every thread.
    fn order(&self, make: &dyn Fn() -> ThreadCommand);
    /// Requests a snapshot from every thread.
    fn snapshots(&self) -> Vec<oneshot::Receiver<ThreadSnapshot>>;
    /// Applies the part of the configuration that concerns clients of all tenants, from the next
    /// client on.
    fn configured(&self, _config: &BouncerConfig) {}
    /// Accepts a connection of a guest.
    fn admit(&self, stream: TcpStream, guest: Arc<SandboxClient>, place: LoginPlace);
    /// Returns the counters of every thread for a tenant.
    fn stats(&self, tenant: TenantId) -> Vec<Arc<ThreadTenantStats>>;
    /// Returns when the certificate that clients see expires, in seconds since 1970.
    fn certificate_expiry_s(&self) -> Option<u64> {
        None
    }
    /// Returns the current numbers and maxima of server connections.
    fn connection_usage(&self) -> ConnectionUsage {
        ConnectionUsage::default()
    }
    /// Sets bounds on server connections, where all nodes share their limits.
    fn bound_connections(&self, _bounds: ConnectionBounds) {}
    /// Returns the notification that is sent when the first client of a tenant begins to wait for a
    /// server connection.
    fn demand(&self) -> Arc<Notify> {
        Arc::default()
    }
    /// Returns the current numbers and maxima of clients, and the numbers of waiting ones, where
    /// all nodes share their limits.
    fn client_usage(&self) -> ClientUsage {
        ClientUsage::default()
    }
    /// Sets this node's parts of limits on clients.
    fn bound_clients(&self, _parts: &[(SharedClientLimit, LimitGrant)]) {}
    /// Returns the notification that is sent when a client waits for this node's part of a limit.
    fn client_demand(&self) -> Arc<Notify> {
        Arc::default()
    }
}
