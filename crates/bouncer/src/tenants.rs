//! Tenants as seen by the rest of the bouncer: immutable snapshots, and state that is shared across
//! them.
//!
//! A [`TenantRouting`] has all tenants at one time. A change creates a new [`TenantRouting`] and
//! puts it into [`CurrentRouting`]; a relay thread picks it up between two events. So queries take
//! no lock, and a connected client sees a change at its next transaction. Changes that must be seen
//! at once, such as a pause, are in [`TenantState`], which a tenant keeps across changes.

mod address;
mod limits;
mod plan;
mod route;
mod rules;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{ClientTransportMode, PoolMode, TenantEngine, TenantOrigin, TlsMode, VerifyMode};
use parking_lot::RwLock;
use pooler_core::pg::dial::LoginRules;

use crate::secrets::ClientSecret;

pub use self::address::BackendAddress;
pub use self::limits::TenantLimits;
pub(crate) use self::plan::passwords;
pub use self::plan::{SharedSettings, TenantDefinition, TenantRegistry};
pub use self::route::{RouteError, RouteRequest, TenantRoute};
pub use self::rules::{UserRuleSet, UserRules, UserTimes, proof};
pub use self::state::{POOLS_PER_TENANT_MAX, ServerHealth, TenantState, WorkAdmission};

/// Identifies a tenant for the lifetime of the process, even if it is removed and created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// Identifies a server for the lifetime of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Identifies a pool, which is a tenant with a role on its server, for the lifetime of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// Error in a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DefinitionError {
    /// Path of the offending field: `limits.wait_s`, `users[2].name`.
    pub field: String,
    /// Message for users.
    pub message: String,
}

impl DefinitionError {
    /// Creates an error about an invalid value of a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> DefinitionError {
        DefinitionError { field: field.into(), message: message.into() }
    }

    /// Returns the same error with `outer` in front of its field.
    #[must_use]
    pub fn below(self, outer: &str) -> DefinitionError {
        DefinitionError { field: format!("{outer}.{}", self.field), message: self.message }
    }
}

/// A server that tenants may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Identifier: servers with the same address and encryption share it.
    pub id: ServerId,
    /// Address.
    pub address: BackendAddress,
    /// Maximum connections, of all tenants together.
    pub connections_max: u32,
    /// Encryption.
    pub tls: ServerTls,
}

/// Encryption of a connection to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerTls {
    /// Mode, as of libpq's `sslmode`.
    pub mode: TlsMode,
    /// Authorities for its certificate; those of the system when absent.
    pub ca: Option<PathBuf>,
    /// The bouncer's own certificate for the server.
    pub cert: Option<PathBuf>,
    /// Key of that certificate.
    pub key: Option<PathBuf>,
    /// True if the server's public key is trusted without verification when it requests a password:
    /// that of its certificate, or without TLS one that a server of MySQL sends.
    pub trust_server_key: bool,
    /// Proofs that a PostgreSQL server may request.
    pub rules: LoginRules,
}

impl ServerTls {
    /// Returns whether a completed handshake proves the server's identity. The system's authorities
    /// certify any name, so that without a check of names they prove nothing.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        match self.mode {
            TlsMode::VerifyFull => true,
            TlsMode::VerifyCa | TlsMode::Require => self.ca.is_some(),
            TlsMode::Prefer | TlsMode::Allow | TlsMode::Disable => false,
        }
    }
}

/// A tenant at one time.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// Identifier in tables.
    pub id: TenantId,
    /// Name for users.
    pub name: Arc<str>,
    /// Protocol of its server and clients.
    pub engine: TenantEngine,
    /// Place where it is defined.
    pub origin: TenantOrigin,
    /// Server.
    pub server: Arc<ServerAddress>,
    /// Database on the server.
    pub database: Arc<str>,
    /// Pool mode: when a server connection is returned.
    pub mode: PoolMode,
    /// Limits.
    pub limits: TenantLimits,
    /// True if all transactions are read-only.
    pub read_only: bool,
    /// Weight among tenants of the same server; at least 1.
    pub weight: u32,
    /// When a server connection is checked.
    pub verify: VerifyMode,
    /// Transports that clients may use; all if absent.
    pub transports: Option<Vec<ClientTransportMode>>,
    /// Settings of every server connection, whatever its client requests. Read-only tenants of
    /// PostgreSQL have `default_transaction_read_only` among them.
    pub settings: BTreeMap<String, String>,
    /// True if a server of MySQL may ask clients for files.
    pub local_infile: bool,
    /// True if clients of MySQL may request the number of found instead of changed rows.
    pub found_rows: bool,
    /// Users by name.
    pub users: HashMap<Box<str>, Arc<TenantUser>>,
    /// Role on the server of all users; `None` if each user has the role of its own name.
    pub forced: Option<(Arc<str>, Option<ClientSecret>)>,
    /// Lookup of other users.
    pub auth_query: Option<AuthQuery>,
    /// Rules for users by name.
    pub rules: Arc<UserRuleSet>,
    /// State that survives changes of the definition.
    pub state: Arc<TenantState>,
    /// Twin of the tenant for read-only clients, with connections of its own within the same
    /// bounds; `None` if the tenant itself is read-only.
    pub read_only_twin: Option<Arc<TenantSnapshot>>,
    /// True if it is such a twin.
    pub is_twin: bool,
}

/// Lookup of users on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthQuery {
    /// Role that runs the lookups. Clients cannot log in as this role by lookup.
    pub user: Arc<str>,
    /// Password.
    pub password: Option<ClientSecret>,
    /// Database to query.
    pub database: Arc<str>,
    /// The query, with `$1` for the name, or `?` for MySQL; `None` for the default one.
    pub query: Option<Arc<str>>,
}

/// A user of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantUser {
    /// Name, as clients send it.
    pub name: Arc<str>,
    /// Authentication of the client.
    pub auth: ClientAuth,
    /// Role of the user on the server.
    pub server_user: Arc<str>,
    /// Credentials for the server.
    pub server_secret: ServerSecret,
    /// Pool mode in place of the tenant's.
    pub mode: Option<PoolMode>,
    /// Maximum server connections of its role.
    pub server_connections_max: Option<u32>,
    /// Maximum clients of this user.
    pub clients_max: Option<u32>,
    /// Times in place of the tenant's.
    pub times: UserTimes,
}

/// Authentication of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// By knowledge of this password, or of the one from which this secret was derived.
    Secret(ClientSecret),
    /// None.
    Trust,
    /// By a certificate with its name.
    Cert,
    /// By the operating system user of the connection.
    Peer,
    /// By the secret that the tenant's [`AuthQuery`] finds.
    Query,
    /// There is no such user. It is asked for a proof all the same, so that the login does not
    /// reveal which users exist.
    Unknown,
}

/// Credentials of a role for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSecret {
    /// None: the server trusts the bouncer, or knows its certificate.
    None,
    /// This password, or its MD5 hash.
    Known(ClientSecret),
    /// From the client's login: the key that a SCRAM proof reveals, or its password.
    OfClient,
}

impl TenantSnapshot {
    /// Returns the pool mode of a user.
    pub fn mode_of(&self, user: &TenantUser) -> PoolMode {
        user.mode.unwrap_or(self.mode)
    }

    /// Returns the maximum server connections of a user's role; `None` if only the tenant's limit
    /// applies.
    pub fn connections_max_of(&self, user: &TenantUser) -> Option<u32> {
        user.server_connections_max.or(self.limits.user_server_connections_max)
    }

    /// Returns the time limits of a user.
    pub fn times_of(&self, user: &TenantUser) -> UserTimes {
        user.times.over(&self.limits)
    }

    /// Returns the maximum clients of a user.
    pub fn clients_max_of(&self, user: &TenantUser) -> Option<u32> {
        user.clients_max.or(self.limits.user_clients_max)
    }
}

/// All tenants at one time.
#[derive(Debug, Default)]
pub struct TenantRouting {
    /// Number of the snapshot.
    pub version: u64,
    by_name: HashMap<Arc<str>, Arc<TenantSnapshot>>,
    by_id: HashMap<TenantId, Arc<TenantSnapshot>>,
    /// Names in lower case, including those that are formed with a suffix.
    by_server_name: HashMap<Box<str>, Arc<TenantSnapshot>>,
    offers: MysqlOffers,
}

/// Capabilities that any tenant of MySQL allows: they are announced to clients before their tenant
/// is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MysqlOffers {
    /// Servers may request files from clients.
    pub local_infile: bool,
    /// Found rows may be counted instead of changed ones.
    pub found_rows: bool,
}

impl TenantRouting {
    /// Returns a tenant by its id; `None` if it was removed.
    pub fn tenant(&self, id: TenantId) -> Option<&Arc<TenantSnapshot>> {
        self.by_id.get(&id)
    }

    /// Returns the current snapshot of this tenant, or of this twin; `None` if it was removed.
    pub fn now(&self, tenant: &TenantSnapshot) -> Option<&Arc<TenantSnapshot>> {
        let now = self.tenant(tenant.id)?;
        Some(now.read_only_twin.as_ref().filter(|_| tenant.is_twin).unwrap_or(now))
    }

    /// Returns a tenant by its name.
    pub fn named(&self, name: &str) -> Option<&Arc<TenantSnapshot>> {
        self.by_name.get(name)
    }

    /// Returns the capabilities that some tenant of MySQL allows.
    pub fn offers(&self) -> MysqlOffers {
        self.offers
    }

    /// Returns all tenants, in no particular order.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<TenantSnapshot>> {
        self.by_name.values()
    }

    /// Returns the number of tenants.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The current snapshot. Shared by all threads.
#[derive(Debug, Default)]
pub struct CurrentRouting {
    /// Written by the service, read when `version` has changed.
    routing: RwLock<Arc<TenantRouting>>,
    /// Version of the snapshot in `routing`; never ahead of it.
    version: AtomicU64,
}

impl CurrentRouting {
    /// Creates the state with an initial snapshot.
    pub fn new(routing: TenantRouting) -> CurrentRouting {
        let version = AtomicU64::new(routing.version);
        CurrentRouting { routing: RwLock::new(Arc::new(routing)), version }
    }

    /// Returns the current snapshot.
    pub fn load(&self) -> Arc<TenantRouting> {
        Arc::clone(&self.routing.read())
    }

    /// Returns the version of the current snapshot, without a lock.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the snapshot.
    pub fn replace(&self, routing: TenantRouting) {
        let version = routing.version;
        *self.routing.write() = Arc::new(routing);
        self.version.store(version, Ordering::Release);
    }
}
