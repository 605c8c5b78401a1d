//! Tenants as the rest of the bouncer sees them: immutable snapshots, and what is shared across
//! them.
//!
//! A [`TenantRouting`] has all tenants at one time. Whoever changes one makes a new
//! [`TenantRouting`] and puts it into [`CurrentRouting`]; a relay thread takes it over between two
//! events. So no lock is on the way of a query, and a client that is connected sees a change at its
//! next transaction. What must be seen at once, such as a pause, is in [`TenantState`], which a
//! tenant keeps across changes.

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

/// Names a tenant for as long as the process lives, also when it was removed and came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// Names a server for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u32);

/// Names a pool, which is a tenant with a role on its server, for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// Error in a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DefinitionError {
    /// Path of the offending field: `limits.wait_s`, `users[2].name`.
    pub field: String,
    /// A sentence for a person.
    pub message: String,
}

impl DefinitionError {
    /// A field has a value that it cannot have.
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
    /// Names it: the same address with the same encryption has the same.
    pub id: ServerId,
    /// Address.
    pub address: BackendAddress,
    /// Connections at one time, of all tenants together.
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
    /// Our certificate towards it.
    pub cert: Option<PathBuf>,
    /// The key of that.
    pub key: Option<PathBuf>,
    /// True if a key that nobody vouches for is believed to be the server's when it asks for a
    /// password: that of its certificate, or without TLS one that a server of MySQL sends.
    pub trust_server_key: bool,
    /// Proofs that it may ask for, of PostgreSQL.
    pub rules: LoginRules,
}

impl ServerTls {
    /// Returns whether only the server itself gets through a handshake. Any authority of the
    /// system's vouches for anybody's name, so that without names these prove nothing.
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
    /// Names it in tables.
    pub id: TenantId,
    /// Names it for people.
    pub name: Arc<str>,
    /// Protocol of its server and clients.
    pub engine: TenantEngine,
    /// Place where it is defined.
    pub origin: TenantOrigin,
    /// Server.
    pub server: Arc<ServerAddress>,
    /// Database on the server.
    pub database: Arc<str>,
    /// When a server connection goes back.
    pub mode: PoolMode,
    /// Limits.
    pub limits: TenantLimits,
    /// True if all transactions are read-only.
    pub read_only: bool,
    /// Weight among tenants of the same server; at least 1.
    pub weight: u32,
    /// When a server connection is examined.
    pub verify: VerifyMode,
    /// Transports that clients may use; all when absent.
    pub transports: Option<Vec<ClientTransportMode>>,
    /// Settings that every server connection has, whatever its client asks for. Read-only tenants
    /// of PostgreSQL have `default_transaction_read_only` among them.
    pub settings: BTreeMap<String, String>,
    /// True if a server of MySQL may ask clients for files.
    pub local_infile: bool,
    /// True if clients of MySQL may have rows counted that were found.
    pub found_rows: bool,
    /// Users by name.
    pub users: HashMap<Box<str>, Arc<TenantUser>>,
    /// Whom other users are on the server; `None` where each is there who it is here.
    pub forced: Option<(Arc<str>, Option<ClientSecret>)>,
    /// Lookup of other users.
    pub auth_query: Option<AuthQuery>,
    /// Rules for users by name.
    pub rules: Arc<UserRuleSet>,
    /// State that survives changes of the definition.
    pub state: Arc<TenantState>,
    /// Twin of the tenant for read-only clients, with connections of its own within the same
    /// bounds; none of one that is read-only for all.
    pub read_only_twin: Option<Arc<TenantSnapshot>>,
    /// True if it is such a twin.
    pub is_twin: bool,
}

/// Lookup of users on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthQuery {
    /// Role that looks them up. Nobody can log in as it this way.
    pub user: Arc<str>,
    /// Password.
    pub password: Option<ClientSecret>,
    /// Database to do that in.
    pub database: Arc<str>,
    /// The query, with `$1` for the name, of MySQL `?`; `None` for the one that comes with us.
    pub query: Option<Arc<str>>,
}

/// A user of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantUser {
    /// Name, as clients send it.
    pub name: Arc<str>,
    /// Authentication of the client.
    pub auth: ClientAuth,
    /// Role that it becomes on the server.
    pub server_user: Arc<str>,
    /// Credentials for the server.
    pub server_secret: ServerSecret,
    /// In place of the tenant's.
    pub mode: Option<PoolMode>,
    /// Server connections of its role at one time.
    pub server_connections_max: Option<u32>,
    /// Clients with its name.
    pub clients_max: Option<u32>,
    /// Times in place of the tenant's.
    pub times: UserTimes,
}

/// Authentication of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// By knowing this password, or the one that this secret was made of.
    Secret(ClientSecret),
    /// Not at all.
    Trust,
    /// By a certificate with its name.
    Cert,
    /// By being this user of the operating system.
    Peer,
    /// By what the tenant's [`AuthQuery`] finds.
    Query,
    /// There is no such user. It is asked all the same, as if there was one, so that nobody learns
    /// who is there.
    Unknown,
}

/// Credentials of a role for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSecret {
    /// By nothing: the server trusts us, or knows our certificate.
    None,
    /// By this password, or the MD5 hash of it.
    Known(ClientSecret),
    /// By what the client showed us: the key that a SCRAM proof gives away, or its password.
    OfClient,
}

impl TenantSnapshot {
    /// When a server connection goes back that this user has.
    pub fn mode_of(&self, user: &TenantUser) -> PoolMode {
        user.mode.unwrap_or(self.mode)
    }

    /// Server connections that a role may have at one time; `None` when only the tenant's limit
    /// holds.
    pub fn connections_max_of(&self, user: &TenantUser) -> Option<u32> {
        user.server_connections_max.or(self.limits.user_server_connections_max)
    }

    /// Returns how long a user may do something, or nothing.
    pub fn times_of(&self, user: &TenantUser) -> UserTimes {
        user.times.over(&self.limits)
    }

    /// Clients that a user may have at one time.
    pub fn clients_max_of(&self, user: &TenantUser) -> Option<u32> {
        user.clients_max.or(self.limits.user_clients_max)
    }
}

/// All tenants at one time.
#[derive(Debug, Default)]
pub struct TenantRouting {
    /// Counts the snapshots.
    pub version: u64,
    by_name: HashMap<Arc<str>, Arc<TenantSnapshot>>,
    by_id: HashMap<TenantId, Arc<TenantSnapshot>>,
    /// In lower case; those that are made of a suffix are among them.
    by_server_name: HashMap<Box<str>, Arc<TenantSnapshot>>,
    offers: MysqlOffers,
}

/// Capabilities that any tenant of MySQL allows: clients are told what they may do before it is
/// known whose they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MysqlOffers {
    /// That a server asks clients for files.
    pub local_infile: bool,
    /// That rows are counted that were found.
    pub found_rows: bool,
}

impl TenantRouting {
    /// A tenant by its id; `None` when it was removed.
    pub fn tenant(&self, id: TenantId) -> Option<&Arc<TenantSnapshot>> {
        self.by_id.get(&id)
    }

    /// Returns what this tenant, or this twin of one, is by now; `None` when it was removed.
    pub fn now(&self, tenant: &TenantSnapshot) -> Option<&Arc<TenantSnapshot>> {
        let now = self.tenant(tenant.id)?;
        Some(now.read_only_twin.as_ref().filter(|_| tenant.is_twin).unwrap_or(now))
    }

    /// A tenant by its name.
    pub fn named(&self, name: &str) -> Option<&Arc<TenantSnapshot>> {
        self.by_name.get(name)
    }

    /// Returns what some tenant of MySQL allows.
    pub fn offers(&self) -> MysqlOffers {
        self.offers
    }

    /// All of them, in no order.
    pub fn tenants(&self) -> impl Iterator<Item = &Arc<TenantSnapshot>> {
        self.by_name.values()
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The snapshot that holds now. Shared by all threads.
#[derive(Debug, Default)]
pub struct CurrentRouting {
    /// Written by the service, read when `version` says that there is something new.
    routing: RwLock<Arc<TenantRouting>>,
    /// Version of the snapshot in `routing`; never ahead of it.
    version: AtomicU64,
}

impl CurrentRouting {
    /// Begins with a snapshot.
    pub fn new(routing: TenantRouting) -> CurrentRouting {
        let version = AtomicU64::new(routing.version);
        CurrentRouting { routing: RwLock::new(Arc::new(routing)), version }
    }

    /// The snapshot that holds now.
    pub fn load(&self) -> Arc<TenantRouting> {
        Arc::clone(&self.routing.read())
    }

    /// Returns the version of the current snapshot, without a lock.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Lets another snapshot hold.
    pub fn replace(&self, routing: TenantRouting) {
        let version = routing.version;
        *self.routing.write() = Arc::new(routing);
        self.version.store(version, Ordering::Release);
    }
}
