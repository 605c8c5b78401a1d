//! The relay's threads, as the control plane knows them.

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
    /// Gives an order to every thread.
    fn order(&self, make: &dyn Fn() -> ThreadCommand);
    /// Asks every thread what is there.
    fn snapshots(&self) -> Vec<oneshot::Receiver<ThreadSnapshot>>;
    /// Takes over what of the configuration holds for clients of all tenants, from the next one
    /// on.
    fn configured(&self, _config: &BouncerConfig) {}
    /// Takes a connection of a guest.
    fn admit(&self, stream: TcpStream, guest: Arc<SandboxClient>, place: LoginPlace);
    /// Returns what every thread counted for a tenant.
    fn stats(&self, tenant: TenantId) -> Vec<Arc<ThreadTenantStats>>;
    /// Returns when the certificate that clients see expires, in seconds since 1970.
    fn certificate_expiry_s(&self) -> Option<u64> {
        None
    }
    /// Returns the server connections that there are and may be now.
    fn connection_usage(&self) -> ConnectionUsage {
        ConnectionUsage::default()
    }
    /// Bounds them, where all nodes share their limits.
    fn bound_connections(&self, _bounds: ConnectionBounds) {}
    /// Returns who is told when a client of a tenant waits for one of which none did.
    fn demand(&self) -> Arc<Notify> {
        Arc::default()
    }
    /// Returns the clients that there are, wait, and may be now, where all nodes share their
    /// limits.
    fn client_usage(&self) -> ClientUsage {
        ClientUsage::default()
    }
    /// Takes this node's parts of limits on clients.
    fn bound_clients(&self, _parts: &[(SharedClientLimit, LimitGrant)]) {}
    /// Returns who is told when a client waits for this node's part of a limit.
    fn client_demand(&self) -> Arc<Notify> {
        Arc::default()
    }
}
