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
    /// Server version that is reported to clients of MySQL.
    pub mysql_version: Arc<str>,
    /// Number of relay threads; half as many as there are processors if `None`. Servers and clients
    /// are often on the same machine, and a busy thread does more per poll of its sockets: on two
    /// processors one thread needs a fifth less processor time for each transaction.
    pub threads: Option<NonZeroUsize>,
    /// Maximum number of clients, of all tenants together.
    pub clients_max: u32,
    /// Login timeout.
    pub login: Duration,
    /// Rule on where clients may be asked for cleartext passwords.
    pub cleartext: CleartextPolicy,
    /// Keepalive and timeouts of TCP.
    pub tcp: TcpPolicy,
    /// True if limits on server connections and clients hold over all nodes: then nothing that is
    /// limited is admitted before this node has a part.
    pub shares_limits: bool,
}
