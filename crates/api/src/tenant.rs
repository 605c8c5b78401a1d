//! Tenants of the bouncer: databases behind a name, with limits.
//!
//! [`TenantSpec`] is what a tenant is, in the interface as in `cove.toml`; [`TenantView`] is how
//! one is shown. Passwords go in and never come out.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tenant as it is asked for: body of `POST /v1/tenants` and `PUT /v1/tenants/{name}`, and a
/// `[[bouncer.tenants]]` of `cove.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TenantSpec {
    /// A letter or digit, then up to 62 letters, digits, `_` and `-`. Clients name it by the
    /// database they ask for, among other ways.
    pub name: String,
    /// Protocol of its server and its clients.
    pub engine: TenantEngine,
    /// The server: `host:port`, `host`, a Unix socket, or the name of a `[bouncer.servers.NAME]`. A
    /// Unix socket of PostgreSQL is its directory, with or without `:port`; one of MySQL is its
    /// file.
    pub server: String,
    /// Database there; the tenant's name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// When a server connection goes back to the pool; the default's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_mode: Option<PoolMode>,
    /// Users that may log in, by name. Others are looked up with `auth_query`, if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<TenantUserSpec>,
    /// Role of all users on the server, except users with their own. If absent, each user has the
    /// same name there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_user: Option<String>,
    /// Password of that role.
    #[serde(deserialize_with = "crate::secret_setting", skip_serializing_if = "Option::is_none")]
    pub server_password: Option<String>,
    /// Lookup of users that are not in `users`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_query: Option<AuthQuerySpec>,
    /// Names by which TLS clients reach it (server name indication).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_names: Vec<String>,
    /// Transports that clients may use; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transports: Option<Vec<ClientTransportMode>>,
    /// True if all transactions are read-only.
    pub read_only: bool,
    /// Weight of its share of a server that tenants have in common: 1 to 1000; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// When a server connection is examined before another client gets it; the default's when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyMode>,
    /// Settings that every server connection has, whatever its client asks for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// MySQL only: true if a server may ask its clients for files (`LOAD DATA LOCAL INFILE`). No
    /// when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_infile: Option<bool>,
    /// MySQL only: true if rows that were found count as affected, rather than those that changed,
    /// for clients that ask for it. No when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_rows: Option<bool>,
    /// Limits; those left out are the defaults'.
    pub limits: TenantLimitsSpec,
}

/// Protocol of a database server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TenantEngine {
    /// PostgreSQL's protocol.
    #[default]
    Postgres,
    /// MySQL's protocol, which MariaDB speaks as well.
    Mysql,
}

impl TenantEngine {
    /// Returns the name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TenantEngine::Postgres => "postgres",
            TenantEngine::Mysql => "mysql",
        }
    }
}

/// When a server connection goes back to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    /// When its client leaves.
    Session,
    /// After every transaction.
    #[default]
    Transaction,
    /// After every statement; transactions of several statements are refused.
    Statement,
}

/// When a server connection is examined before another client gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    /// After statements whose effect on the session's state is unknown.
    #[default]
    Unknown,
    /// After every transaction.
    Always,
    /// Never: the next client finds the state that such statements left.
    Never,
}

/// Transport of a client to the bouncer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClientTransportMode {
    /// TCP without encryption.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// A Unix socket.
    Unix,
}

/// Encryption of connections, as libpq's `sslmode` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// Never.
    Disable,
    /// When the other side insists.
    Allow,
    /// When the other side can.
    #[default]
    Prefer,
    /// Always, with whatever certificate.
    Require,
    /// Always, with a certificate of a trusted authority.
    VerifyCa,
    /// Always, with a certificate of a trusted authority for this name.
    VerifyFull,
}

/// A user of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TenantUserSpec {
    /// Name of the user, as clients send it.
    pub name: String,
    /// Authentication of the user.
    pub auth: UserAuth,
    /// With `password`: the password, or what the server keeps of it: a SCRAM secret
    /// (`SCRAM-SHA-256$…`) or an MD5 hash (`md5…`) of PostgreSQL, `*` and 40 hexadecimal digits of
    /// MySQL. In `cove.toml` also `env:NAME` or `file:PATH`.
    #[serde(deserialize_with = "crate::secret_setting", skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Role that it becomes on the server; the tenant's `server_user` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_user: Option<String>,
    /// Password of that role. Absent: the user's own, as far as it can be used there.
    #[serde(deserialize_with = "crate::secret_setting", skip_serializing_if = "Option::is_none")]
    pub server_password: Option<String>,
    /// In place of the tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_mode: Option<PoolMode>,
    /// Server connections that it may hold at one time; the tenant's `user_server_connections_max`
    /// when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connections_max: Option<u32>,
    /// Clients that may be connected with its name; the tenant's `user_clients_max` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_max: Option<u32>,
}

/// Authentication methods of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UserAuth {
    /// By knowing its password.
    #[default]
    Password,
    /// Not at all.
    Trust,
    /// By a TLS certificate whose common name is its name.
    Cert,
    /// By being the user of the operating system with its name, over a Unix socket.
    Peer,
}

/// Lookup of users on the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AuthQuerySpec {
    /// Role that looks them up. Nobody can log in as it this way.
    pub user: String,
    /// Password of that user.
    #[serde(deserialize_with = "crate::secret_setting", skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Database to do that in; the tenant's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// A query with the parameter `$1`, of MySQL `?`, that answers name and secret, of MySQL
    /// plugin and secret. Absent: one of `pg_authid` that leaves out expired passwords, of MySQL
    /// one of `mysql.user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// Limits of a tenant. Times are seconds; 0 turns a time limit off, and so does 0 for
/// `user_server_connections_max`, `user_clients_max` and `clients_max`. What is left out is the
/// default's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimitsSpec {
    /// Server connections at one time, of all users together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connections_max: Option<u32>,
    /// Server connections that are kept open for each user that has clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connections_min: Option<u32>,
    /// Server connections beyond the limit for clients that waited `reserve_after_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connections_reserve: Option<u32>,
    /// See `server_connections_reserve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_after_s: Option<f64>,
    /// Server connections of one user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_server_connections_max: Option<u32>,
    /// Clients that are connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_max: Option<u32>,
    /// Clients of one user that are connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_clients_max: Option<u32>,
    /// Clients that wait for a server connection; others are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_max: Option<u32>,
    /// Statements kept prepared on one server connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_statements_max: Option<u32>,
    /// To connect to the server and log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_s: Option<f64>,
    /// To wait for a server connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<f64>,
    /// For one statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_s: Option<f64>,
    /// For one transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_s: Option<f64>,
    /// Between two statements of a transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_in_transaction_s: Option<f64>,
    /// Between two transactions of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_idle_s: Option<f64>,
    /// For a client to take what it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_write_s: Option<f64>,
    /// Until an unused server connection is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_idle_s: Option<f64>,
    /// Until a server connection is closed at its next rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_lifetime_s: Option<f64>,
    /// Between attempts to reach a server that cannot be reached, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_retry_s: Option<f64>,
}

/// Defaults of tenants: `[bouncer.defaults]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TenantDefaults {
    /// When a server connection goes back to the pool.
    pub pool_mode: PoolMode,
    /// When a server connection is examined.
    pub verify: VerifyMode,
    /// Settings that every server connection of PostgreSQL has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Limits.
    pub limits: TenantLimitsSpec,
}

/// Place where a tenant is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TenantOrigin {
    /// In `cove.toml`: it is changed there.
    File,
    /// By the interface.
    Api,
}

/// Admission state of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TenantAdmission {
    /// Accepts clients.
    Open,
    /// Clients wait.
    Paused,
    /// Clients are refused.
    Refusing,
    /// New clients are refused, the others may finish.
    Draining,
}

/// Health of a tenant's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TenantHealth {
    /// Not checked yet.
    Unknown,
    /// The server answers.
    Healthy,
    /// The server failed to answer as often as is tolerated.
    Unhealthy,
}

/// A tenant, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Tenant"))]
pub struct TenantView {
    /// Definition of the tenant. Every password is replaced by `***`.
    pub spec: TenantSpec,
    /// Place where it is defined.
    pub origin: TenantOrigin,
    /// Admission state.
    pub admission: TenantAdmission,
    /// Health of its server.
    pub health: TenantHealth,
}

/// Answer of `GET /v1/tenants`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TenantList {
    /// By name.
    pub tenants: Vec<TenantView>,
}

/// Figures of a tenant: answer of `GET /v1/tenants/{name}/stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct TenantStats {
    /// Name of the tenant.
    pub name: String,
    /// Clients that are connected.
    pub clients: u64,
    /// Clients that have a server connection.
    pub clients_active: u64,
    /// Clients that wait for a server connection.
    pub clients_waiting: u64,
    /// Server connections.
    pub servers: u64,
    /// Server connections that a client holds.
    pub servers_active: u64,
    /// Server connections that are idle.
    pub servers_idle: u64,
    /// Server connections that are being opened, probed or reset.
    pub servers_busy: u64,
    /// Server connections that it may have; each node may open as many as its limit says.
    pub server_connections_max: u64,
    /// Transactions that ended, since the start.
    pub transactions: u64,
    /// Statements that were answered, since the start.
    pub queries: u64,
    /// Bytes from clients, since the start.
    pub received_bytes: u64,
    /// Bytes to clients, since the start.
    pub sent_bytes: u64,
    /// Microseconds that server connections were in the hands of clients, since the start.
    pub busy_us: u64,
    /// Microseconds that clients waited for server connections, since the start.
    pub wait_us: u64,
    /// Number of clients that were refused because too many waited, or for too long.
    pub exhausted: u64,
    /// Number of times a client kept a server connection beyond its transaction, by reason.
    pub pins: BTreeMap<String, u64>,
    /// Number of errors that clients got from their servers, by code: SQLSTATE of PostgreSQL, error
    /// number of MySQL. Codes beyond the first 64 are counted as `other`.
    pub errors: BTreeMap<String, u64>,
    /// Duration of statements in milliseconds.
    pub query_ms: Percentiles,
    /// Duration of transactions in milliseconds.
    pub transaction_ms: Percentiles,
    /// Time clients waited for a server connection, in milliseconds.
    pub wait_ms: Percentiles,
    /// Number of nodes whose figures these are, all together.
    pub nodes: u64,
    /// Nodes that did not answer in time, whose figures are not in these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl TenantStats {
    /// Adds what another node counted, but for the percentiles, which cannot be added.
    pub fn add(&mut self, other: TenantStats) {
        let sums = [
            (&mut self.clients, other.clients),
            (&mut self.clients_active, other.clients_active),
            (&mut self.clients_waiting, other.clients_waiting),
            (&mut self.servers, other.servers),
            (&mut self.servers_active, other.servers_active),
            (&mut self.servers_idle, other.servers_idle),
            (&mut self.servers_busy, other.servers_busy),
            (&mut self.server_connections_max, other.server_connections_max),
            (&mut self.transactions, other.transactions),
            (&mut self.queries, other.queries),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.busy_us, other.busy_us),
            (&mut self.wait_us, other.wait_us),
            (&mut self.exhausted, other.exhausted),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        for (sums, counts) in [(&mut self.pins, other.pins), (&mut self.errors, other.errors)] {
            for (key, count) in counts {
                let sum = sums.entry(key).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
}

/// Percentiles of a distribution, exact to a few per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct Percentiles {
    /// Half of them.
    pub p50: f64,
    /// 95 of a hundred.
    pub p95: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// All of them.
    pub max: f64,
}

/// Answer of `GET /v1/tenants/stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TenantStatsList {
    /// Figures of all tenants, by name.
    pub tenants: Vec<TenantStats>,
    /// Nodes that did not answer in time, whose figures are not in these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A client that is connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct BouncerClient {
    /// Process id that the client knows; cancel requests name it.
    pub pid: u32,
    /// Tenant of the client.
    pub tenant: String,
    /// User of the client.
    pub user: String,
    /// Address of the client; `unix` for a Unix socket.
    pub address: String,
    /// `login`, `idle`, `waiting`, `active`, `closing`.
    pub state: String,
    /// Process id of the server connection that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_pid: Option<u32>,
    /// Why it keeps that beyond its transaction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
    /// True if it is in a transaction.
    pub in_transaction: bool,
    /// The `application_name` of a client of PostgreSQL: what it says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_name: Option<String>,
    /// Since when it is connected, in seconds.
    pub connected_s: f64,
    /// Since when it is in its state, in seconds.
    #[serde(default)]
    pub state_s: f64,
    /// Since when it waits for a server connection, in seconds; none while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_s: Option<f64>,
    /// Since when its statement waits or runs, in seconds; none between statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement_s: Option<f64>,
    /// True if it came by TLS.
    pub tls: bool,
    /// Node at which it is, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Answer of `GET /v1/tenants/{name}/clients` and `/pins`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct BouncerClientList {
    /// In no order.
    pub clients: Vec<BouncerClient>,
    /// Nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A connection to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct BouncerServer {
    /// The server's process id for it.
    pub pid: u32,
    /// Tenant of the connection.
    pub tenant: String,
    /// Role that it is logged in as.
    pub user: String,
    /// Address of the server.
    pub address: String,
    /// `login`, `idle`, `active`, `resetting`, `cancelling`.
    pub state: String,
    /// The client that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_pid: Option<u32>,
    /// Since when it is open, in seconds.
    pub connected_s: f64,
    /// True if it is encrypted.
    pub tls: bool,
    /// Node at which it is, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Answer of `GET /v1/tenants/{name}/servers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct BouncerServerList {
    /// In no order.
    pub servers: Vec<BouncerServer>,
    /// Nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Result of health checks: answer of `GET /v1/tenants/{name}/health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TenantHealthReport {
    /// Current health.
    pub health: TenantHealth,
    /// Checks that failed one after the other.
    pub failures: u32,
    /// Why the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When the last one ended (RFC 3339, milliseconds, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<String>,
    /// Duration in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
}

/// Answer of `POST /v1/bouncer/reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct BouncerReloaded {
    /// Tenants that are there now.
    pub tenants: u64,
    /// Settings that changed and are taken over only by a restart.
    pub restart_needed_for: Vec<String>,
}
