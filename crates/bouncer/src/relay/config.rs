//! Configuration of the relay.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use pooler_core::pg::login::CleartextPolicy;

use super::accept::ListenerSpec;
use super::socket::TcpPolicy;

/// Configuration of the relay; changes need a restart.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Listeners for clients.
    pub listeners: Vec<ListenerSpec>,
    /// Server version that clients of MySQL get.
    pub mysql_version: Arc<str>,
    /// Relay threads; half as many as there are processors when nothing is said. Servers and
    /// clients are often on the same machine, and a thread that is busy does more with each look at
    /// its sockets: on two processors one thread needs a fifth less of them for each transaction.
    pub threads: Option<NonZeroUsize>,
    /// Clients at one time, of all tenants together.
    pub clients_max: u32,
    /// Time that a login may take.
    pub login: Duration,
    /// Rule on where clients may be asked for cleartext passwords.
    pub cleartext: CleartextPolicy,
    /// Keepalive and timeouts of TCP.
    pub tcp: TcpPolicy,
    /// True if limits on server connections and clients hold over all nodes: then there are none of
    /// what is limited before this node has a part.
    pub shares_limits: bool,
}
