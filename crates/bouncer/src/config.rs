//! The `[bouncer]` table: listeners, limits, and the tenants of `cove.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::{TenantDefaults, TenantEngine, TenantLimitsSpec, TenantSpec, TlsMode, UserAuth};
use pooler_core::pg::dial::ServerAuth;
use serde::{Deserialize, Serialize};

use crate::tenants::UserRuleSet;

/// Default listener for clients of PostgreSQL.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:6432";

/// Port in the name of a Unix socket in `unix_socket_dir` when there is no TCP listener.
pub const PORT_DEFAULT: u16 = 6432;

/// Default listener for clients of MySQL.
pub const MYSQL_LISTEN_DEFAULT: &str = "127.0.0.1:6433";

/// The file of the Unix socket for clients of MySQL in `unix_socket_dir`.
pub const MYSQL_SOCKET: &str = "mysql.sock";

/// Server version that clients of MySQL receive: the conclusions that drivers draw from it fit all
/// servers that are supported. MariaDB's own versions begin the same way, and drivers look for its
/// name.
pub const MYSQL_SERVER_VERSION: &str = "5.5.5-10.11.0-MariaDB-cove";

/// Longest `server_version`.
pub const MYSQL_SERVER_VERSION_BYTES_MAX: usize = 100;

/// Keys of the table that a reload applies; all others need a restart.
pub const RELOADED: [&str; 11] = [
    "clients_max",
    "console",
    "defaults",
    "health",
    "login_s",
    "server_connections_max",
    "server_name_suffix",
    "servers",
    "tenants",
    "tenants_max",
    "tls",
];

/// Settings of the bouncer. Every limit has its name here or in [`TenantLimitsSpec`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BouncerConfig {
    /// True if the bouncer is enabled.
    pub enabled: bool,
    /// TCP addresses for PostgreSQL, `host:port`; port 0 for any. In the environment they are
    /// separated by commas.
    pub listen: ListenAddresses,
    /// Listeners for clients of MySQL.
    pub mysql: MysqlTable,
    /// Directory for the Unix sockets `.s.PGSQL.PORT`, with the port of the first TCP address, and
    /// `mysql.sock`.
    pub unix_socket_dir: Option<PathBuf>,
    /// Mode of these sockets, in octal digits.
    pub unix_socket_mode: String,
    /// Listeners that belong to one tenant each.
    pub bound: Vec<TenantListener>,
    /// Suffix of the tenant in TLS server names: with `.db.example.com` the name
    /// `shop.db.example.com` selects the tenant `shop`.
    pub server_name_suffix: Option<String>,
    /// Relay threads; half as many as there are processors if absent.
    pub threads: Option<usize>,
    /// Maximum connected clients, of all tenants together.
    pub clients_max: u32,
    /// Seconds until a login times out.
    pub login_s: u32,
    /// Encryption of clients' connections.
    pub tls: TlsTable,
    /// Servers with settings beyond an address.
    pub servers: BTreeMap<String, ServerTable>,
    /// Maximum connections to a server without such settings, of all tenants together.
    pub server_connections_max: u32,
    /// Maximum tenants.
    pub tenants_max: usize,
    /// Seconds for which the answer of an `auth_query` is cached.
    pub auth_query_s: u32,
    /// Health checks of servers.
    pub health: HealthTable,
    /// Users of the console.
    pub console: ConsoleTable,
    /// Defaults of tenants.
    pub defaults: TenantDefaults,
    /// Tenants that are defined here rather than through the interface.
    pub tenants: Vec<TenantSpec>,
    /// Rules for users by name; from files of PgBouncer only.
    #[serde(skip)]
    pub rules: UserRuleSet,
}

/// Listening addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected `host:port` or a list of them")]
pub enum ListenAddresses {
    /// Separated by commas; empty for none.
    One(String),
    /// List with a single address per entry.
    Several(Vec<String>),
}

/// A listener whose clients belong to one tenant, whatever else they specify.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantListener {
    /// `host:port`, or the path of a Unix socket.
    pub listen: String,
    /// The tenant's name.
    pub tenant: String,
    /// Protocol: the tenant's own.
    #[serde(default)]
    pub engine: TenantEngine,
}

/// The `[bouncer.mysql]` table: clients of MySQL and MariaDB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MysqlTable {
    /// True if they are served.
    pub enabled: bool,
    /// TCP addresses, `host:port`; port 0 for any, empty for none.
    pub listen: ListenAddresses,
    /// Server version that clients receive before their tenant is known.
    pub server_version: String,
}

/// The `[bouncer.tls]` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsTable {
    /// Encryption that is required of clients. `prefer` without a certificate is the same as
    /// `disable`.
    pub mode: TlsMode,
    /// Certificate with its chain, PEM. Read again when the file changes.
    pub cert: Option<PathBuf>,
    /// Key, PEM.
    pub key: Option<PathBuf>,
    /// Authorities for clients' certificates, PEM.
    pub client_ca: Option<PathBuf>,
}

/// A `[bouncer.servers.NAME]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTable {
    /// `host:port`, `host`, or the directory of a Unix socket with or without `:port`.
    pub address: String,
    /// Maximum connections, of all tenants together.
    pub connections_max: Option<u32>,
    /// Encryption.
    pub tls: TlsMode,
    /// Authorities for its certificate, PEM; those of the system if absent.
    pub ca: Option<PathBuf>,
    /// The bouncer's own certificate for it, PEM.
    pub cert: Option<PathBuf>,
    /// Key of that certificate, PEM.
    pub key: Option<PathBuf>,
    /// True if the server's public key is trusted without verification when it requests a password.
    pub trust_server_key: bool,
    /// Proofs that a server of PostgreSQL may request; all if empty.
    pub require_auth: Vec<ServerAuth>,
    /// Minimum iterations of SCRAM where TLS does not verify the server; 4096 if absent.
    pub scram_iterations_min: Option<u32>,
}

/// The `[bouncer.health]` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthTable {
    /// Seconds between two checks of a tenant; 0 for no checks.
    pub interval_s: u32,
    /// Consecutive failed checks after which a tenant counts as unhealthy.
    pub failures: u32,
    /// Seconds until a check times out.
    pub timeout_s: u32,
    /// Maximum concurrent checks.
    pub parallel: usize,
}

/// The `[bouncer.console]` table: users of the database `pgbouncer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleTable {
    /// Authentication of its users.
    pub auth: UserAuth,
    /// Users with all rights.
    pub admin_users: Vec<ConsoleUser>,
    /// Read-only users.
    pub stats_users: Vec<ConsoleUser>,
}

/// A user of the console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleUser {
    /// Name.
    pub name: String,
    /// Password, a SCRAM secret or an MD5 hash; `env:NAME` and `file:PATH` are accepted.
    #[serde(deserialize_with = "api::secret_setting")]
    pub password: String,
}

impl ListenAddresses {
    /// Each address.
    pub fn addresses(&self) -> Vec<&str> {
        let parts: Vec<&str> = match self {
            ListenAddresses::One(text) => text.split(',').collect(),
            ListenAddresses::Several(texts) => texts.iter().map(String::as_str).collect(),
        };
        parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
    }

    /// Returns whether it has the default value.
    pub fn is_default(&self) -> bool {
        *self == ListenAddresses::default()
    }
}

impl MysqlTable {
    /// Returns whether the addresses have the default value.
    pub fn is_default(&self) -> bool {
        self.listen == MysqlTable::default().listen
    }
}

impl Default for MysqlTable {
    fn default() -> MysqlTable {
        MysqlTable {
            enabled: true,
            listen: ListenAddresses::One(MYSQL_LISTEN_DEFAULT.to_owned()),
            server_version: MYSQL_SERVER_VERSION.to_owned(),
        }
    }
}

impl Default for ListenAddresses {
    fn default() -> ListenAddresses {
        ListenAddresses::One(LISTEN_DEFAULT.to_owned())
    }
}

impl Default for BouncerConfig {
    fn default() -> BouncerConfig {
        BouncerConfig {
            enabled: true,
            listen: ListenAddresses::default(),
            mysql: MysqlTable::default(),
            unix_socket_dir: None,
            unix_socket_mode: "0777".to_owned(),
            bound: Vec::new(),
            server_name_suffix: None,
            threads: None,
            clients_max: 10_000,
            login_s: 30,
            tls: TlsTable::default(),
            servers: BTreeMap::new(),
            // Below PostgreSQL's own default of 100, of which 3 are for superusers.
            server_connections_max: 90,
            tenants_max: 10_000,
            auth_query_s: 60,
            health: HealthTable::default(),
            console: ConsoleTable::default(),
            defaults: TenantDefaults::default(),
            tenants: Vec::new(),
            rules: UserRuleSet::default(),
        }
    }
}

impl Default for TlsTable {
    fn default() -> TlsTable {
        TlsTable { mode: TlsMode::Prefer, cert: None, key: None, client_ca: None }
    }
}

impl Default for HealthTable {
    fn default() -> HealthTable {
        HealthTable { interval_s: 30, failures: 3, timeout_s: 5, parallel: 10 }
    }
}

/// Limits where neither a tenant nor `[bouncer.defaults]` sets one.
pub const LIMITS_DEFAULT: TenantLimitsSpec = TenantLimitsSpec {
    server_connections_max: Some(20),
    server_connections_min: Some(0),
    server_connections_reserve: Some(0),
    reserve_after_s: Some(5.0),
    user_server_connections_max: Some(0),
    clients_max: Some(0),
    user_clients_max: Some(0),
    waiting_max: Some(5000),
    prepared_statements_max: Some(200),
    connect_s: Some(5.0),
    wait_s: Some(30.0),
    query_s: Some(0.0),
    transaction_s: Some(0.0),
    idle_in_transaction_s: Some(0.0),
    client_idle_s: Some(0.0),
    client_write_s: Some(60.0),
    server_idle_s: Some(300.0),
    server_lifetime_s: Some(1800.0),
    server_retry_s: Some(15.0),
};
