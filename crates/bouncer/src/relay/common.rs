//! State that all relay threads share: touched at logins and new server connections, never by a
//! query.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use api::TenantEngine;
use parking_lot::{Mutex, RwLock};
use pooler_core::mysql;
use pooler_core::pg::settings::PgSettings;
use serde::{Deserialize, Serialize};

use super::client_count::ClientCount;
use super::closing::ClosingServers;
use super::config::RelayConfig;
use super::console_backend::ConsoleBackend;
use super::holders::ServerHolders;
use super::keys::CancelKeys;
use super::orders::{ThreadInbox, ThreadMessageKind};
use super::passing::ClientPasser;
use super::pools::PoolRegistry;
use super::prover::ProofThread;
use super::resolve::ResolverThread;
use super::server::Parameters;
use super::stats::ThreadCounters;
use super::timers::micros;
use crate::auth::ProtocolKeyrings;
use crate::rate::{LoginLimiter, LoginSource};
use crate::secrets::ClientSecret;
use crate::tenants::{CurrentRouting, PoolId, TenantId, TenantSnapshot};
use crate::tls::{ClientSide, ServerSide};

/// Connections beyond the maximum number of clients, for logins: a client above the limit is
/// refused once it is authenticated.
const LOGINS_BEYOND_MAX: usize = 1000;

/// Forwards a cancel request for a client of another node. It must not block.
pub trait CancelForwarder: std::fmt::Debug + Send + Sync {
    /// Passes a cancel request on, or drops it if there are too many.
    fn pass_on(&self, pid: u32, key: &[u8]);
    /// Kills a client of MySQL at the node that has it. A dropped reply means that there was no
    /// such client.
    fn kill(&self, kill: ForwardedKill, reply: KillReply);
}

/// `KILL` of MySQL, as it is sent to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedKill {
    /// Tenant of the client that asks.
    pub tenant: String,
    /// User of the requesting client, which may kill only its own connections.
    pub user: String,
    /// Connection number of the target client.
    pub id: u32,
    /// True to close the connection, and not only cancel its statement.
    pub connection: bool,
}

/// Recipient of the outcome of a [`ForwardedKill`].
#[derive(Debug)]
pub struct KillReply {
    pub(super) inbox: Arc<ThreadInbox>,
    pub(super) client: u32,
    pub(super) serial: u64,
    pub(super) is_found: bool,
}

impl KillReply {
    /// Sends whether there was such a client.
    pub fn give(mut self, is_found: bool) {
        self.is_found = is_found;
    }
}

impl Drop for KillReply {
    fn drop(&mut self) {
        let KillReply { client, serial, is_found, .. } = *self;
        self.inbox.push(ThreadMessageKind::Killed { client, serial, is_found });
    }
}

/// State that all relay threads share.
#[derive(Debug)]
pub(super) struct RelayShared {
    pub(super) config: RelayConfig,
    /// Part of the configuration that may change.
    pub(super) live: LiveConfig,
    /// Protocols of the listeners, and the tenants of those that are bound to one, by listener
    /// number.
    pub(super) bound: Vec<(TenantEngine, Option<Arc<str>>)>,
    /// The threads, by their numbers.
    pub(super) peers: Vec<PeerThread>,
    pub(super) current: Arc<CurrentRouting>,
    pub(super) keyrings: ProtocolKeyrings,
    pub(super) client_tls: Arc<ClientSide>,
    pub(super) server_tls: Arc<ServerSide>,
    pub(super) look_up: Arc<dyn LookUp>,
    /// The console, once there is one.
    pub(super) console: OnceLock<Arc<dyn ConsoleBackend>>,
    pub(super) resolver: ResolverThread,
    pub(super) keys: CancelKeys,
    /// Forwarder to other nodes, if there are any: a cancel request may be for one of their
    /// clients.
    pub(super) elsewhere: OnceLock<Arc<dyn CancelForwarder>>,
    /// Passer of clients to the homes of small limits, if enabled.
    pub(super) passer: OnceLock<Arc<dyn ClientPasser>>,
    /// True while clients of other nodes are accepted.
    pub(super) takes_passed: AtomicBool,
    /// Rate limit of cancel requests by address.
    pub(super) cancel_rate: LoginLimiter<IpAddr>,
    /// Rate limit of failed logins.
    pub(super) failed_logins: Arc<LoginLimiter<LoginSource>>,
    pub(super) prover: ProofThread,
    /// Connections that wait for their servers to close them.
    pub(super) closing: ClosingServers,
    pub(super) population: Arc<ClientCount>,
    /// State of the pools that all threads share.
    pub(super) pools: Arc<PoolRegistry>,
    pub(super) greetings: ServerGreetings,
    pub(super) holders: Arc<ServerHolders>,
    /// True while the threads are being stopped.
    pub(super) is_stopping: AtomicBool,
    /// Number of connections so far, of clients and to servers.
    pub(super) numbers: AtomicU64,
    /// True if another process takes over.
    pub(super) is_taken_over: AtomicBool,
    pub(super) forced: ForcedSettings<PgSettings>,
    pub(super) mysql_forced: ForcedSettings<mysql::settings::MysqlSettings>,
    /// Origin of microsecond times.
    pub(super) started: Instant,
}

impl RelayShared {
    /// Returns the number of a new connection.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the maximum number of client connections: the clients, and some that log in.
    pub(super) fn connections_max(&self) -> usize {
        (self.live.clients_max() as usize).saturating_add(LOGINS_BEYOND_MAX)
    }
}

/// Configuration that applies from the next client on.
#[derive(Debug)]
pub(super) struct LiveConfig {
    clients_max: AtomicU32,
    login_us: AtomicU64,
}

impl LiveConfig {
    /// Creates the configuration from the maximum number of clients and the login timeout.
    pub(super) fn new(clients_max: u32, login: Duration) -> LiveConfig {
        LiveConfig { clients_max: clients_max.into(), login_us: micros(login).into() }
    }

    /// Changes both.
    pub(super) fn set(&self, clients_max: u32, login: Duration) {
        self.clients_max.store(clients_max, Ordering::Relaxed);
        self.login_us.store(micros(login), Ordering::Relaxed);
    }

    /// Returns the maximum number of clients, of all tenants together.
    pub(super) fn clients_max(&self) -> u32 {
        self.clients_max.load(Ordering::Relaxed)
    }

    /// Returns the login timeout.
    pub(super) fn login_us(&self) -> u64 {
        self.login_us.load(Ordering::Relaxed)
    }
}

/// A thread, as seen by the others.
#[derive(Debug)]
pub(super) struct PeerThread {
    /// Orders.
    pub(super) inbox: Arc<ThreadInbox>,
    /// Counters of the thread.
    pub(super) counters: Arc<ThreadCounters>,
    /// Its connections, including assigned ones; the thread with the fewest gets the next one.
    pub(super) load: AtomicUsize,
}

/// Greetings of servers, for clients that log in.
#[derive(Debug, Default)]
pub(super) struct ServerGreetings(RwLock<HashMap<PoolId, (u32, Parameters)>>);

impl ServerGreetings {
    /// Returns the parameters of the pool's server, if one has reported them in this epoch.
    pub(super) fn get(&self, pool: PoolId, epoch: u32) -> Option<Parameters> {
        let known = self.0.read();
        let (of, parameters) = known.get(&pool)?;
        (*of == epoch).then(|| Arc::clone(parameters))
    }

    /// Stores the parameters that a server reported.
    pub(super) fn put(&self, pool: PoolId, epoch: u32, parameters: Parameters) {
        let known = self.0.read().get(&pool).map(|(of, known)| (*of, Arc::clone(known)));
        if known.is_none_or(|(of, known)| of != epoch || known != parameters) {
            self.0.write().insert(pool, (epoch, parameters));
        }
    }

    /// Forgets a pool of a tenant that was removed.
    pub(super) fn forget(&self, pool: PoolId) {
        self.0.write().remove(&pool);
    }
}

/// The settings that a tenant demands, as links take them; made once for each definition.
#[derive(Debug)]
pub(super) struct ForcedSettings<S> {
    /// By tenant, and whether the definition is a twin.
    known: Mutex<HashMap<(TenantId, bool), ForcedOf<S>>>,
    make: fn(&TenantSnapshot) -> S,
}

/// The settings of one definition.
type ForcedOf<S> = (Arc<TenantSnapshot>, Arc<S>);

impl<S> ForcedSettings<S> {
    /// Creates an empty table; `make` derives settings from a definition.
    pub(super) fn new(make: fn(&TenantSnapshot) -> S) -> ForcedSettings<S> {
        ForcedSettings { known: Mutex::default(), make }
    }

    /// Returns the settings of a tenant.
    pub(super) fn of(&self, tenant: &Arc<TenantSnapshot>) -> Arc<S> {
        let mut known = self.known.lock();
        let key = (tenant.id, tenant.is_twin);
        if let Some((of, settings)) = known.get(&key)
            && Arc::ptr_eq(of, tenant)
        {
            return Arc::clone(settings);
        }
        let settings = Arc::new((self.make)(tenant));
        known.insert(key, (Arc::clone(tenant), Arc::clone(&settings)));
        settings
    }

    /// Forgets tenants that were removed.
    pub(super) fn keep_only(&self, is_kept: impl Fn(TenantId) -> bool) {
        self.known.lock().retain(|(id, _), _| is_kept(*id));
    }
}

/// Returns the settings that a PostgreSQL tenant enforces.
pub(super) fn forced(tenant: &TenantSnapshot) -> PgSettings {
    PgSettings::of(tenant.settings.iter().map(|(name, value)| (&**name, &**value)))
}

/// Returns the settings that a MySQL tenant enforces.
pub(super) fn mysql_forced(tenant: &TenantSnapshot) -> mysql::settings::MysqlSettings {
    let pairs = tenant.settings.iter();
    mysql::settings::MysqlSettings::of(pairs.map(|(name, value)| (&**name, &**value)))
}

/// Looks up users on their tenant's server.
pub trait LookUp: fmt::Debug + Send + Sync {
    /// Reports a failed login with the secret that was found for this user. It may have been
    /// changed.
    fn doubt(&self, tenant: TenantId, user: &str);

    /// Starts a lookup of the secret of `user`; the answer may arrive at any time on any thread.
    fn look_up(&self, tenant: Arc<TenantSnapshot>, user: Arc<str>, answer: SecretReply);
}

/// Recipient of a user's secret.
#[derive(Debug)]
pub struct SecretReply {
    inbox: Arc<ThreadInbox>,
    client: u32,
    serial: u64,
}

impl SecretReply {
    pub(super) fn new(inbox: &Arc<ThreadInbox>, client: u32, serial: u64) -> SecretReply {
        SecretReply { inbox: Arc::clone(inbox), client, serial }
    }

    /// Sends the user's secret, `None` if there is no such user, or the reason why it is unknown.
    pub fn give(self, secret: Result<Option<ClientSecret>, String>) {
        let SecretReply { inbox, client, serial } = self;
        inbox.push(ThreadMessageKind::Secret { client, serial, secret });
    }
}
