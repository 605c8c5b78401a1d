//! The relay: threads that own the sockets of clients and servers and carry bytes between them.
//!
//! There is no async runtime here. Each thread has an epoll, its clients and its server
//! connections; a query touches one thread, takes no lock and allocates nothing. Shared state is
//! accessed only when clients log in and when server connections are opened, moved or
//! waited for. The control plane sends [`orders`] to the threads and reads [`stats`].
//!
//! Each thread is a [`worker`], which owns all else by layers: a layer knows the layers below it,
//! and reports to those above by return values and by events that its owner polls. All borrow the
//! thread's [`context`] for an event.
//!
//! | file | what |
//! |---|---|
//! | `worker.rs` | the loop of a thread, commands, and clients that are in no session: logins, the console, clients of other nodes, the handover between processes |
//! | `ready.rs` | queue of socket events, in which tenants take turns |
//! | `sessions.rs` | the sessions: leases, traffic, departures, cancel requests, `KILL` |
//! | `clients.rs`, `client.rs` | the clients and their phases |
//! | `login.rs`, `entry.rs`, `prover.rs`, `handshake.rs`, `guests.rs`, `console.rs` | phases before or beside a session |
//! | `servers.rs`, `server.rs` | the server connections: opening, roles, life, cancel requests |
//! | `pools.rs` | assignment of server connections to clients |
//! | `listen.rs`, `notifier.rs`, `subscriber.rs`, `holders.rs` | clients that listen without a server connection of their own |
//! | `listeners.rs`, `accept.rs` | acceptance of connections |
//! | `passing.rs` | clients that another node serves, and those of other nodes that are served here |
//! | `takeover.rs`, `succession.rs`, `handover_keeper.rs` | handover to another process |
//! | `deadlines.rs`, `timers.rs`, `departure.rs` | deadlines, and reasons for clients' departures |
//! | `orders.rs`, `threads.rs`, `snapshot.rs`, `views.rs` | commands and snapshots of a thread |
//! | `context.rs`, `conn.rs`, `socket.rs`, `buffers.rs`, `slots.rs` | lent state, sockets, memory |
//! | `cancel.rs`, `keys.rs`, `resolve.rs`, `common.rs`, `stats.rs` | state of the process |

mod accept;
mod buffers;
mod cancel;
mod client;
pub mod client_count;
mod clients;
mod closing;
mod common;
mod config;
mod conn;
mod console;
pub(crate) mod console_backend;
mod context;
mod deadlines;
mod departure;
pub(crate) mod dialect;
mod entry;
mod guests;
mod handover_keeper;
mod handshake;
mod holders;
mod journal;
mod keys;
mod listen;
mod listeners;
mod login;
mod notifier;
pub mod orders;
mod passing;
pub mod pools;
mod prover;
mod ready;
mod resolve;
mod server;
mod servers;
mod sessions;
mod slots;
pub mod snapshot;
mod socket;
pub mod stats;
mod subscriber;
mod succession;
mod takeover;
pub(crate) mod threads;
mod timers;
mod views;
mod worker;

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use ::pool::shares::ThreadWake;
use api::TenantEngine;
use mio::Poll;
use node::cluster::LimitGrant;
use node::telemetry::error_chain;
use parking_lot::Mutex;
use pooler_core::link::ProtocolLinks;
use pooler_core::pg::statements::HashKey;
use tokio::sync::{Notify, oneshot};

use self::accept::RelayListener;
use self::client_count::{ClientCount, ClientUsage, SharedClientLimit};
use self::common::{PeerThread, RelayShared};
use self::conn::EventSource;
use self::orders::{ThreadCommand, ThreadInbox, ThreadMessageKind};
use self::pools::{ConnectionBounds, ConnectionUsage};
use self::prover::ProofThread;
use self::resolve::ResolverThread;
use self::snapshot::ThreadSnapshot;
use self::stats::{ThreadCounters, ThreadTenantStats};
use self::threads::RelayThreads;
use self::worker::{RelayWorker, WorkerParts};
use crate::auth::ProtocolKeyrings;
use crate::config::{BouncerConfig, TlsTable};
use crate::guest::client::{LoginPlace, SandboxClient};
use crate::rate::{CANCELS, FAILED_LOGINS, LoginLimiter};
use crate::relay::passing::ArrivingClient;
use crate::tenants::{CurrentRouting, TenantId, TenantRoute};
use crate::tls::{ClientSide, ClientTls, ServerSide};

pub use self::accept::{ListenAddress, ListenError, ListenerSpec};
pub use self::common::{CancelForwarder, ForwardedKill, KillReply, LookUp, SecretReply};
pub use self::config::RelayConfig;
pub use self::console_backend::{ConsoleBackend, ConsoleReplySlot};
pub use self::dialect::{DATABASE, ErrorDialect};
pub use self::handover_keeper::{KeptHandover, keep_handover};
pub use self::journal::JOURNAL;
pub use self::passing::{
    ClientPasser, PASSED_LOGIN_BYTES_MAX, PassRefusal, PassReply, PassedLogin, PassedNotice,
    TenantLimit,
};
pub use self::socket::TcpPolicy;

/// Most relay threads: more than processors in any machine that this runs on.
const THREADS_MAX: usize = 256;

/// Permissions of the socket file for the next process.
const TAKEOVER_MODE: u32 = 0o600;

/// Dependencies of the relay.
#[derive(Debug)]
pub struct RelayParts {
    /// The tenants.
    pub current: Arc<CurrentRouting>,
    /// Secrets of users.
    pub keyrings: ProtocolKeyrings,
    /// TLS towards clients.
    pub client_tls: Arc<ClientSide>,
    /// TLS towards servers.
    pub server_tls: Arc<ServerSide>,
    /// Lookup of users that only their servers know.
    pub look_up: Arc<dyn LookUp>,
}

/// Why the relay could not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayStartError {
    /// The address is in use, or not of this machine.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The former process hands nothing over, or the socket file for the next one cannot be used.
    #[error("take over from another process")]
    TakeOver(#[source] io::Error),
    /// The system cannot create a thread or an epoll instance.
    #[error("start the relay's threads")]
    Thread(#[source] io::Error),
}

/// The relay's threads. Dropping it ends them and closes every connection.
pub struct Relay {
    common: Arc<RelayShared>,
    addresses: Vec<(TenantEngine, SocketAddr)>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The socket file at which the next process takes over from this one.
    offers: Option<PathBuf>,
    /// The process that this one takes over from.
    former: Option<UnixStream>,
}

/// Configuration of the handover between processes.
#[derive(Debug)]
pub struct HandoverConfig {
    /// The socket file at which the next process requests the listeners and clients of this one.
    pub socket: PathBuf,
    /// Process that this one follows.
    pub former: FormerProcess,
}

/// Process from which listeners and clients come.
#[derive(Debug)]
pub enum FormerProcess {
    /// Process at the socket file when the relay starts, if there is one.
    AtSocket,
    /// Process that was contacted before, and may have ended since.
    Kept(KeptHandover),
    /// No process: an earlier check found none.
    Absent,
}

/// Connection to a former process, and the socket file for the next one.
struct FollowedProcess {
    /// Socket file for the next process.
    socket: PathBuf,
    /// Source of the former process's listeners and clients, if there is one.
    stream: Option<UnixStream>,
    keeper: Option<Child>,
}

impl HandoverConfig {
    /// Connects to the former process, or its keeper.
    fn follow(self) -> io::Result<FollowedProcess> {
        let (stream, keeper) = match self.former {
            FormerProcess::AtSocket => (takeover::follow(&self.socket)?, None),
            FormerProcess::Kept(kept) => (Some(kept.stream), Some(kept.keeper)),
            FormerProcess::Absent => (None, None),
        };
        Ok(FollowedProcess { socket: self.socket, stream, keeper })
    }
}

/// Wakes threads for their pools.
struct ThreadWakers(Vec<Arc<ThreadInbox>>);

impl ThreadWake for ThreadWakers {
    fn wake(&self, thread: usize) {
        if let Some(inbox) = self.0.get(thread) {
            inbox.wake();
        }
    }
}

impl Relay {
    /// Listens, and starts the threads.
    ///
    /// # Errors
    /// If an address is in use, or a system resource is exhausted.
    pub fn start(config: RelayConfig, parts: RelayParts) -> Result<Relay, RelayStartError> {
        Relay::start_after(config, parts, None)
    }

    /// Starts the relay as the successor of a former process.
    ///
    /// # Errors
    /// As for [`Relay::start`], or if the former process cannot be followed.
    pub fn start_after(
        config: RelayConfig,
        parts: RelayParts,
        succession: Option<HandoverConfig>,
    ) -> Result<Relay, RelayStartError> {
        let descriptors = accept::raise_descriptor_limit();
        let followed = succession.map(HandoverConfig::follow).transpose();
        let mut followed = followed.map_err(RelayStartError::TakeOver)?;
        let former = followed.as_mut().and_then(|followed| followed.stream.take());
        let inherited = former.map(succession::inherit).transpose();
        let mut inherited = inherited.map_err(RelayStartError::TakeOver)?;
        let mut listeners = Vec::with_capacity(config.listeners.len());
        for spec in &config.listeners {
            let inherited = inherited.as_mut().and_then(|it| it.listener(spec));
            match inherited.map_or_else(|| RelayListener::bind(spec), Ok) {
                Ok(listener) => listeners.push(listener),
                Err(error) if spec.is_optional => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the bouncer skips an address that is in use");
                }
                Err(error) => return Err(error.into()),
            }
        }
        let of = |it: &RelayListener| Some((it.engine, it.local_addr()?));
        let addresses: Vec<(TenantEngine, SocketAddr)> = listeners.iter().filter_map(of).collect();
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = config.threads.map_or(processors.div_ceil(2), NonZeroUsize::get);
        let count = threads.min(THREADS_MAX);
        let (common, threads) =
            start_threads(config, parts, listeners, count).map_err(RelayStartError::Thread)?;
        let of = |engine| {
            let of_engine = addresses.iter().filter(|(of, _)| *of == engine);
            of_engine.map(|(_, address)| *address).collect::<Vec<SocketAddr>>()
        };
        let (pg, mysql) = (of(TenantEngine::Postgres), of(TenantEngine::Mysql));
        tracing::info!(addresses = ?pg, ?mysql, threads = count, ?descriptors, "bouncer listens");
        let threads = Mutex::new(threads);
        let mut relay = Relay { common, addresses, threads, offers: None, former: None };
        if let Some(inherited) = inherited {
            relay.former = inherited.stream.try_clone().ok();
            let common = Arc::clone(&relay.common);
            let keeper = followed.as_mut().and_then(|followed| followed.keeper.take());
            relay.spawn("bouncer-take-in", move || {
                succession::take_in(inherited, &common);
                // It has exited by itself, or does so at the end of its stream.
                keeper.map(|mut keeper| keeper.wait());
            })?;
        }
        if let Some(followed) = followed {
            relay.offer(followed.socket)?;
        }
        Ok(relay)
    }

    /// Waits for the process that takes over from this one.
    fn offer(&mut self, socket: PathBuf) -> Result<(), RelayStartError> {
        let bound = accept::bind_file(&socket, TAKEOVER_MODE).and_then(|(listener, file)| {
            listener.set_nonblocking(false).map(|()| (listener.into(), file))
        });
        let (listener, file) = bound.map_err(RelayStartError::TakeOver)?;
        let common = Arc::clone(&self.common);
        self.offers = Some(socket);
        self.spawn("bouncer-offer", move || succession::offer(listener, file, &common))
    }

    fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), RelayStartError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.lock().push(thread.map_err(RelayStartError::Thread)?);
        Ok(())
    }

    /// Returns whether another process takes over: clients leave this one as they come to rest, and
    /// none is accepted.
    pub fn is_taken_over(&self) -> bool {
        self.common.is_taken_over.load(Ordering::Acquire)
    }

    /// Returns the TCP addresses that the relay listens on, with their protocols, in the order of
    /// the configuration.
    pub fn addresses(&self) -> &[(TenantEngine, SocketAddr)] {
        &self.addresses
    }

    /// Opens the console; only the first call has an effect.
    pub fn open_console(&self, backend: Arc<dyn ConsoleBackend>) {
        // A second backend is not needed.
        drop(self.common.console.set(backend));
    }

    /// Sets the forwarder of cancel requests for clients of other nodes; only the first call has an
    /// effect.
    pub fn pass_cancels_on(&self, to: Arc<dyn CancelForwarder>) {
        // A second forwarder leads to the same nodes.
        drop(self.common.elsewhere.set(to));
    }

    /// Returns whether limits hold over all nodes.
    pub fn shares_limits(&self) -> bool {
        self.common.config.shares_limits
    }

    /// Sets the passer of clients to the homes of their tenants' limits; only the first call has an
    /// effect.
    pub fn pass_clients_to(&self, homes: Arc<dyn ClientPasser>) {
        // A second passer leads to the same nodes.
        drop(self.common.passer.set(homes));
    }

    /// Cancels the statement of the client with this process id, if the key matches. Returns false
    /// if there is no such client here.
    pub fn cancel(&self, pid: u32, key: &[u8]) -> bool {
        let Some((thread, client)) = self.common.keys.find(pid, key) else { return false };
        let Some(peer) = self.common.peers.get(thread) else { return false };
        peer.inbox.push(ThreadMessageKind::Cancel { client, pid });
        true
    }

    /// Kills a client of MySQL on this node, or its statement, on behalf of a client of the same
    /// user at another node. Returns false if there is none.
    pub fn kill(&self, kill: &ForwardedKill) -> bool {
        let ForwardedKill { tenant, user, id: pid, connection } = kill;
        let routing = self.common.current.load();
        let Some(tenant) = routing.named(tenant) else { return false };
        let Some((thread, client)) = self.common.keys.find_owned(*pid, tenant.id, user) else {
            return false;
        };
        let Some(peer) = self.common.peers.get(thread) else { return false };
        peer.inbox.push(match connection {
            true => ThreadMessageKind::KillClient { client, pid: *pid },
            false => ThreadMessageKind::Cancel { client, pid: *pid },
        });
        true
    }

    /// Returns the counters of each thread.
    pub fn counters(&self) -> impl Iterator<Item = &Arc<ThreadCounters>> {
        self.common.peers.iter().map(|peer| &peer.counters)
    }

    /// Stops accepting clients, and disconnects existing ones between their transactions. The
    /// threads end with [`Relay::stop`].
    pub fn drain(&self) {
        self.common.takes_passed.store(false, Ordering::Release);
        self.order(&|| ThreadCommand::Drain);
    }

    /// Returns whether any client is left.
    pub fn has_clients(&self) -> bool {
        self.counters().any(|counters| counters.stats.clients.load() > 0)
    }

    /// Closes everything, and waits for the threads to end.
    pub fn stop(&self) {
        self.common.takes_passed.store(false, Ordering::Release);
        self.common.is_stopping.store(true, Ordering::Release);
        self.order(&|| ThreadCommand::Stop);
        if let Some(former) = &self.former {
            // An error means that it is closed already.
            drop(former.shutdown(Shutdown::Both));
        }
        if let Some(path) = self.offers.as_ref().filter(|_| !self.is_taken_over()) {
            // Wakes the thread that waits there for the next process.
            drop(UnixStream::connect(path));
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a relay thread panicked");
            }
        }
    }

    /// Takes a client that another node has passed. Returns a socket whose bytes must be carried
    /// from and to that node.
    ///
    /// # Errors
    /// If the other node must serve the client itself.
    pub fn take_passed(&self, login: PassedLogin) -> Result<UnixStream, PassRefusal> {
        let common = &self.common;
        let loads = common.peers.iter().map(|peer| peer.load.load(Ordering::Relaxed));
        let is_full = loads.sum::<usize>() >= common.connections_max();
        let is_full = is_full || common.population.is_full(common.live.clients_max());
        if is_full || !common.takes_passed.load(Ordering::Acquire) {
            return Err(PassRefusal::Full);
        }
        let routing = common.current.load();
        let tenant = routing.named(&login.tenant).ok_or(PassRefusal::Unfit)?;
        let user = tenant.user(&login.user);
        let limit = TenantLimit::of(tenant, &user);
        if common.passer.get().is_some_and(|passer| !passer.is_home(&limit)) {
            return Err(PassRefusal::NoHome);
        }
        // With a duplicate number a `KILL` could hit the wrong client.
        if login.mysql_numbers().is_some_and(|(pid, _)| common.keys.is_taken(pid)) {
            return Err(PassRefusal::Unfit);
        }
        let route = TenantRoute { tenant: Arc::clone(tenant), user };
        let arrived = login.clone().arrive(route, &common.keyrings).map_err(|error| {
            tracing::warn!(%error, tenant = login.tenant, "a client of another node is not taken");
            PassRefusal::Unfit
        })?;
        let pair = UnixStream::pair().and_then(|(one, other)| {
            one.set_nonblocking(true)?;
            other.set_nonblocking(true)?;
            Ok((one, other))
        });
        let (socket, other) = pair.map_err(|error| {
            tracing::warn!(%error, "a client of another node is not taken");
            PassRefusal::Full
        })?;
        let fewest = common.peers.iter().min_by_key(|peer| peer.load.load(Ordering::Relaxed));
        let Some(peer) = fewest else { return Err(PassRefusal::Full) };
        peer.load.fetch_add(1, Ordering::Relaxed);
        let arriving = ArrivingClient { socket, login, arrived };
        peer.inbox.push(ThreadMessageKind::Arriving(Box::new(arriving)));
        Ok(other)
    }

    /// Disconnects clients between their transactions that other nodes have passed and that stop
    /// now.
    pub fn see_off_arrived(&self, ids: &Arc<[u64]>) {
        for peer in &self.common.peers {
            peer.inbox.push(ThreadMessageKind::SeeOff(Arc::clone(ids)));
        }
    }

    /// Ends clients that other nodes have passed, and whose connections there are closed.
    pub fn end_arrived(&self, ids: &Arc<[u64]>) {
        for peer in &self.common.peers {
            peer.inbox.push(ThreadMessageKind::EndArrived(Arc::clone(ids)));
        }
    }
}

impl RelayThreads for Relay {
    fn order(&self, make: &dyn Fn() -> ThreadCommand) {
        for peer in &self.common.peers {
            peer.inbox.push(make());
        }
    }

    fn admit(&self, stream: TcpStream, guest: Arc<SandboxClient>, place: LoginPlace) {
        let loads = self.common.peers.iter();
        let Some(peer) = loads.min_by_key(|peer| peer.load.load(Ordering::Relaxed)) else { return };
        peer.load.fetch_add(1, Ordering::Relaxed);
        peer.inbox.push(ThreadMessageKind::Guest(stream, guest, place));
    }

    fn snapshots(&self) -> Vec<oneshot::Receiver<ThreadSnapshot>> {
        let ask = |peer: &PeerThread| {
            let (reply, receiver) = oneshot::channel();
            peer.inbox.push(ThreadCommand::Snapshot(reply));
            receiver
        };
        self.common.peers.iter().map(ask).collect()
    }

    fn configured(&self, config: &BouncerConfig) {
        let login = Duration::from_secs(config.login_s.max(1).into());
        self.common.live.set(config.clients_max, login);
        let TlsTable { mode, cert, key, client_ca } = config.tls.clone();
        if let Err(error) = self.common.client_tls.replace(ClientTls { mode, cert, key, client_ca })
        {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                "TLS setup failed: {}; the previous configuration stays in effect",
                error_chain(error)
            );
        }
    }

    fn stats(&self, tenant: TenantId) -> Vec<Arc<ThreadTenantStats>> {
        self.counters().filter_map(|counters| counters.known(tenant)).collect()
    }

    fn certificate_expiry_s(&self) -> Option<u64> {
        self.common.client_tls.load().expiry_s()
    }

    fn connection_usage(&self) -> ConnectionUsage {
        self.common.pools.usage()
    }

    fn bound_connections(&self, bounds: ConnectionBounds) {
        if self.common.pools.set_bounds(bounds) {
            self.order(&|| ThreadCommand::GiveUpSurplus);
        }
    }

    fn demand(&self) -> Arc<Notify> {
        Arc::clone(self.common.pools.demand())
    }

    fn client_usage(&self) -> ClientUsage {
        self.common.population.usage()
    }

    fn bound_clients(&self, parts: &[(SharedClientLimit, LimitGrant)]) {
        if self.common.population.set_parts(parts) {
            self.order(&|| ThreadCommand::RetryEntries);
        }
    }

    fn client_demand(&self) -> Arc<Notify> {
        Arc::clone(self.common.population.demand())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Creates the state that the threads share, and starts them.
fn start_threads(
    config: RelayConfig,
    parts: RelayParts,
    listeners: Vec<RelayListener>,
    count: usize,
) -> io::Result<(Arc<RelayShared>, Vec<JoinHandle<()>>)> {
    let started = node::clock::now();
    let resolver = ResolverThread::start()?;
    let failed_logins = Arc::new(LoginLimiter::new(FAILED_LOGINS, started));
    let prover = ProofThread::start(Arc::clone(&failed_logins))?;
    let closing = closing::ClosingServers::start()?;
    let mut polls = Vec::with_capacity(count);
    let mut peers = Vec::with_capacity(count);
    for _ in 0..count {
        let poll = Poll::new()?;
        let inbox = ThreadInbox::new(poll.registry(), EventSource::Inbox.token())?;
        peers.push(PeerThread { inbox, counters: Arc::default(), load: 0.into() });
        polls.push(poll);
    }
    let wakers = ThreadWakers(peers.iter().map(|peer| Arc::clone(&peer.inbox)).collect());
    let (registry, handles) = pools::PoolRegistry::new(count, Arc::new(wakers), started);
    let mut population = ClientCount::default();
    if config.shares_limits {
        registry.set_bounds(pools::ConnectionBounds::default());
        population = ClientCount::shared();
    }
    let common = Arc::new(RelayShared {
        bound: listeners.iter().map(|it| (it.engine, it.tenant.clone())).collect(),
        live: common::LiveConfig::new(config.clients_max, config.login),
        config,
        peers,
        current: parts.current,
        keyrings: parts.keyrings,
        client_tls: parts.client_tls,
        server_tls: parts.server_tls,
        look_up: parts.look_up,
        console: OnceLock::new(),
        resolver,
        keys: keys::CancelKeys::default(),
        elsewhere: OnceLock::new(),
        passer: OnceLock::new(),
        takes_passed: true.into(),
        cancel_rate: LoginLimiter::new(CANCELS, started),
        failed_logins,
        prover,
        closing,
        population: Arc::new(population),
        pools: Arc::clone(&registry),
        greetings: common::ServerGreetings::default(),
        holders: Arc::default(),
        is_stopping: false.into(),
        numbers: 0.into(),
        is_taken_over: false.into(),
        forced: common::ForcedSettings::new(common::forced),
        mysql_forced: common::ForcedSettings::new(common::mysql_forced),
        started,
    });
    let key = HashKey::new();
    let schemas: [Arc<AtomicU64>; 2] = Default::default();
    // The first thread accepts for all threads.
    let mut listeners = Some(listeners);
    let mut threads = Vec::with_capacity(count);
    for (index, (poll, handle)) in polls.into_iter().zip(handles).enumerate() {
        let link = ProtocolLinks::new(&key, &schemas);
        let listeners = listeners.take().unwrap_or_default();
        let registry = Arc::clone(&registry);
        let parts = WorkerParts { poll, listeners, handle, registry, link };
        let worker = RelayWorker::new(index, parts, &common)?;
        let thread = std::thread::Builder::new().name(format!("bouncer-{index}"));
        threads.push(thread.spawn(move || worker.run())?);
    }
    Ok((common, threads))
}
