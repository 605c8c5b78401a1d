//! Snapshots of a relay thread's connections: for the console and the API.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::tenants::{PoolId, TenantId};

/// Connections of one thread, at one time.
#[derive(Debug, Default)]
pub struct ThreadSnapshot {
    /// Number of the thread.
    pub thread: usize,
    /// Clients.
    pub clients: Vec<ClientView>,
    /// Server connections.
    pub servers: Vec<ServerView>,
}

/// State of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientState {
    /// Logs in.
    Login,
    /// Idle.
    Idle,
    /// Waits for a server connection.
    Waiting,
    /// Holds one.
    Active,
    /// Is at the console.
    Console,
    /// Its final error is being sent.
    Closing,
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientView {
    /// Number among all connections.
    pub number: u64,
    /// Virtual process id; 0 while it logs in.
    pub pid: u32,
    /// Tenant, once that is known.
    pub tenant: Option<(TenantId, Arc<str>)>,
    /// User.
    pub user: Option<Arc<str>>,
    /// State.
    pub state: ClientState,
    /// Address; `None` for Unix sockets.
    pub address: Option<SocketAddr>,
    /// True if its connection is encrypted.
    pub tls: bool,
    /// Microseconds since it connected.
    pub age_us: u64,
    /// Microseconds since its state began.
    pub state_us: u64,
    /// Process id of the server connection that it holds.
    pub server_pid: Option<u32>,
    /// Reasons why it keeps that beyond its transaction.
    pub pins: Vec<&'static str>,
    /// True if it is in a transaction.
    pub in_transaction: bool,
    /// Statements that it has prepared.
    pub statements: usize,
    /// Microseconds since the current statement began, waiting or running; `None` between
    /// statements.
    pub statement_us: Option<u64>,
    /// The `application_name` of a client of PostgreSQL.
    pub application_name: Option<Box<str>>,
}

/// State of a server connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerState {
    /// Connects and logs in.
    Login,
    /// Idle.
    Idle,
    /// Is held by a client.
    Active,
    /// Is being reset after a client, or checked.
    Resetting,
    /// Waits until cancel requests have arrived.
    Cancelling,
}

/// A server connection.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// Number among all connections.
    pub number: u64,
    /// Process id of its backend; 0 while it connects.
    pub pid: u32,
    /// Tenant.
    pub tenant: (TenantId, Arc<str>),
    /// Pool.
    pub pool: PoolId,
    /// Role.
    pub user: Arc<str>,
    /// State.
    pub state: ServerState,
    /// Address; `None` for Unix sockets.
    pub address: Option<SocketAddr>,
    /// True if its connection is encrypted.
    pub tls: bool,
    /// Microseconds since its opening began.
    pub age_us: u64,
    /// Microseconds since its state began.
    pub state_us: u64,
    /// Virtual process id of the client that holds it.
    pub client_pid: Option<u32>,
}
