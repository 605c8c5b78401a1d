//! Opening of server connections: name, socket, login; and how they move between threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::{TcpStream, UnixStream};
use pooler_core::link::{
    LinkLimits, LoggedInClient, ServerCredentials, ServerDialNext, ServerDialer, ServerGreeting,
    ServerLink,
};
use pooler_core::mysql;
use pooler_core::pg;
use pooler_core::pg::dial::{ServerAssurance, TlsRequest};
use pooler_core::pg::server::{PgServerSession, PgServerSetup};
use pooler_core::pg::settings::ReportedParameters as Reported;
use wire::mysql::capabilities::CapabilityFlags;
use wire::pg::startup::ProtocolVersion;

use super::common::RelayShared;
use super::conn::{EventSource, RelayConnection};
use super::dialect::ErrorDialect;
use super::orders::{MovedServer, ThreadMessageKind};
use super::pools::{self, PoolFailure, PoolRef};
use super::resolve;
use super::server::{
    ConnectTarget, OpeningServer, RelayServer, ServerCloseReason, ServerPhase, ServerPurpose,
};
use super::socket::RelaySocket;
use super::timers::micros;
use super::worker::{RelayWorker, TimerKey};
use crate::tenants::{BackendAddress, PoolId, ServerTls, TenantRoute, TenantSnapshot, TenantUser};
use crate::tls;

/// A tenant's role on its server, as its connections need it.
#[derive(Debug)]
pub(super) struct ServerRole {
    pub(super) tenant: Arc<TenantSnapshot>,
    pub(super) user: Arc<TenantUser>,
    /// Credentials of the client that logged in last, where clients bring them.
    credentials: ServerCredentials,
}

/// A server connection whose name is being looked up.
#[derive(Debug)]
pub(super) struct PendingResolve {
    pool: PoolRef,
    slot: pools::PooledSlot,
}

impl ServerRole {
    /// Creates the role of a tenant that has credentials of its own.
    pub(super) fn known(
        tenant: Arc<TenantSnapshot>,
        user: Arc<TenantUser>,
        credentials: ServerCredentials,
    ) -> ServerRole {
        ServerRole { tenant, user, credentials }
    }
}

impl ServerRole {
    fn pg_dial(
        &self,
        credentials: Arc<pg::dial::PgCredentials>,
        tls: TlsRequest,
        target: &ConnectTarget,
    ) -> io::Result<pg::dial::PgDial> {
        let mut nonce = [0; wire::pg::scram::NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let settings = self.tenant.settings.iter();
        let params = pg::dial::PgDialParams {
            user: self.user.server_user.as_ref().to_owned(),
            database: Some(self.tenant.database.as_ref().to_owned()),
            credentials,
            parameters: settings.map(|(name, value)| (name.clone(), value.clone())).collect(),
            tls,
            assurance: target.assurance(&self.tenant.server.tls),
            rules: self.tenant.server.tls.rules.clone(),
            version: ProtocolVersion::V3_0,
        };
        Ok(pg::dial::PgDial::new(params, nonce))
    }

    fn mysql_params(
        &self,
        credentials: Arc<mysql::dial::MysqlCredentials>,
        tls: TlsRequest,
        assurance: ServerAssurance,
    ) -> mysql::dial::MysqlDialParams {
        let tenant = &self.tenant;
        let more = |is_there: bool, capability: CapabilityFlags| {
            if is_there { capability } else { CapabilityFlags::NONE }
        };
        let mut statements = Vec::new();
        if tenant.read_only {
            statements.push(mysql::dial::READ_ONLY.to_owned());
        }
        mysql::dial::MysqlDialParams {
            user: self.user.server_user.as_ref().to_owned(),
            database: Some(tenant.database.as_ref().to_owned()),
            credentials,
            tls,
            assurance,
            more: more(tenant.found_rows, CapabilityFlags::FOUND_ROWS)
                .union(more(tenant.local_infile, CapabilityFlags::LOCAL_FILES)),
            collation: mysql::COLLATION,
            attributes: vec![("program_name".to_owned(), "cove".to_owned())],
            statements,
        }
    }
}

impl RelayServer {
    /// Returns its session, with a server of PostgreSQL that has let us in.
    fn begin_pg(
        &mut self,
        greeting: pg::dial::PgServerGreeting,
        common: &RelayShared,
    ) -> ServerLink {
        let pairs = greeting.parameters.iter().map(|(name, value)| (&**name, &**value));
        let pool = self.slot.pool();
        let setup = PgServerSetup {
            pid: greeting.pid,
            key: greeting.key.into(),
            pool: pool.0,
            user: self.user.as_ref().into(),
            parameters: Reported::of(pairs),
            settings: common.forced.of(&self.tenant),
            limits: self.link_limits(),
        };
        self.holder = Some(common.holders.enter(pool, greeting.pid));
        self.parameters = greeting.parameters.into();
        let epoch = self.tenant.state.epoch();
        common.greetings.put(pool, epoch, Arc::clone(&self.parameters));
        ServerLink::Pg(Box::new(PgServerSession::new(setup)))
    }

    /// Returns its session, with a server of MySQL that has let us in.
    fn begin_mysql(&self, greeting: &mysql::dial::MysqlServerGreeting) -> ServerLink {
        let mut settings = mysql::settings::MysqlSettings::default();
        settings.put_collation(greeting.collation.into());
        let _kept = settings.put(mysql::settings::SQL_MODE, Some(&greeting.sql_mode));
        let setup = mysql::server::MysqlServerSetup {
            thread_id: greeting.thread_id,
            pool: self.slot.pool().0,
            user: self.user.as_ref().into(),
            capabilities: greeting.capabilities,
            status: greeting.status,
            database: Some(self.tenant.database.as_ref().into()),
            settings: Arc::new(settings),
            read_only: self.tenant.read_only,
            tracks: greeting.tracks,
            limits: self.link_limits(),
        };
        ServerLink::My(Box::new(mysql::server::MysqlServerSession::new(setup)))
    }

    fn link_limits(&self) -> LinkLimits {
        let statements = self.tenant.limits.prepared_statements_max;
        LinkLimits { prepared_statements_max: usize::try_from(statements).unwrap_or(usize::MAX) }
    }
}

impl ConnectTarget {
    /// Begins to connect.
    pub(super) fn connect(&self, policy: super::socket::TcpPolicy) -> io::Result<RelaySocket> {
        match self {
            ConnectTarget::Tcp(address) => RelaySocket::tcp(TcpStream::connect(*address)?, policy),
            ConnectTarget::Unix(path) => Ok(RelaySocket::unix(UnixStream::connect(path)?)),
        }
    }

    /// Returns who may see a password there.
    fn assurance(&self, tls: &ServerTls) -> ServerAssurance {
        tls::assurance(tls, matches!(self, ConnectTarget::Unix(_)))
    }
}

impl ServerCloseReason {
    /// Returns the error for clients that wait for the connection.
    pub(super) fn failure(&self) -> PoolFailure {
        PoolFailure::unreached("08006", self.to_string())
    }
}

impl RelayWorker {
    /// Remembers how a pool's connections log in, as the client has it that has just done so.
    pub(super) fn remember_role(
        &mut self,
        id: PoolId,
        route: &TenantRoute,
        client: &LoggedInClient,
    ) {
        let TenantRoute { tenant, user } = route;
        let credentials = self.common.keyrings.credentials(route, client);
        let (tenant, user) = (Arc::clone(tenant), Arc::clone(user));
        self.roles.insert(id, ServerRole { tenant, user, credentials });
    }

    /// Begins a connection for a pool.
    pub(super) fn open_server(&mut self, pool: PoolRef, slot: pools::PooledSlot) {
        let Some(role) = self.roles.get(&slot.pool()) else { return self.roleless(pool, slot) };
        let tenant = Arc::clone(&role.tenant);
        match &tenant.server.address {
            BackendAddress::Unix { .. } | BackendAddress::Socket { .. } => {
                let path = tenant.server.address.socket_path().unwrap_or_default();
                self.connect_server(pool, slot, ConnectTarget::Unix(path), Vec::new());
            }
            BackendAddress::Tcp { host, port } => match resolve::literal(host, *port) {
                Some(address) => {
                    self.connect_server(pool, slot, ConnectTarget::Tcp(address), Vec::new())
                }
                None => {
                    self.serial += 1;
                    let serial = self.serial;
                    if self.common.resolver.ask(host, *port, serial, &self.inbox) {
                        self.resolving.insert(serial, PendingResolve { pool, slot });
                    } else {
                        let message = "too many names are being looked up";
                        let failure = Arc::new(PoolFailure::unreached("53000", message));
                        self.pools.open_failed(pool, slot, failure, self.context.now);
                    }
                }
            },
        }
    }

    /// The resolver has answered.
    pub(super) fn resolved(&mut self, serial: u64, addresses: Result<Vec<SocketAddr>, String>) {
        let Some(PendingResolve { pool, slot }) = self.resolving.remove(&serial) else { return };
        let (first, others) = match addresses {
            Ok(addresses) => match addresses.split_first() {
                Some((first, others)) => (*first, others.to_vec()),
                None => return self.unresolved(pool, slot, "the name has no address"),
            },
            Err(error) => return self.unresolved(pool, slot, &error),
        };
        self.connect_server(pool, slot, ConnectTarget::Tcp(first), others);
    }

    fn unresolved(&mut self, pool: PoolRef, slot: pools::PooledSlot, error: &str) {
        let message = format!("look up the server's name: {error}");
        let failure = Arc::new(PoolFailure::unreached("08001", message));
        self.pools.open_failed(pool, slot, failure, self.context.now);
    }

    /// The tenant was removed while a connection for it was on its way.
    fn roleless(&mut self, pool: PoolRef, slot: pools::PooledSlot) {
        let failure = PoolFailure::unreached("08000", "no such tenant");
        self.pools.open_failed(pool, slot, Arc::new(failure), self.context.now);
    }

    /// Begins to connect to one address; others are tried after it.
    fn connect_server(
        &mut self,
        pool: PoolRef,
        slot: pools::PooledSlot,
        target: ConnectTarget,
        mut others: Vec<SocketAddr>,
    ) {
        let Some(role) = self.roles.get(&slot.pool()) else { return self.roleless(pool, slot) };
        let (tenant, user) = (Arc::clone(&role.tenant), Arc::clone(&role.user.server_user));
        let dial = self.new_dial(slot.pool(), &target);
        let place = self.servers.reserve();
        let made = dial.and_then(|dial| {
            let socket = target.connect(self.common.config.tcp)?;
            let conn = RelayConnection::new(
                socket,
                EventSource::Server(place),
                true,
                &self.context.registry,
            )?;
            Ok((dial, conn))
        });
        let (dial, conn) = match made {
            Ok(made) => made,
            Err(error) => {
                self.servers.give_up(place);
                if !others.is_empty() {
                    let next = ConnectTarget::Tcp(others.remove(0));
                    return self.connect_server(pool, slot, next, others);
                }
                let failure = Arc::new(ServerCloseReason::Lost(error).failure());
                return self.pools.open_failed(pool, slot, failure, self.context.now);
            }
        };
        self.serial += 1;
        let opening = OpeningServer { dial, connects: true, is_in_handshake: false, others };
        let now_us = self.context.now_us;
        let connect_us = micros(tenant.limits.connect);
        let stats = self.counters.tenant(tenant.id);
        stats.servers.add(1);
        self.counters.stats.servers.add(1);
        let purpose = ServerPurpose { pool, slot, tenant, user, target };
        let server = RelayServer::new(
            conn,
            opening,
            purpose,
            self.serial,
            self.common.next_number(),
            now_us,
            stats,
        );
        self.servers.occupy(place, server);
        self.context.timers.arm(TimerKey::Server(place).id(), now_us + connect_us);
    }

    /// A login at the server as the role of a pool.
    fn new_dial(&self, pool: PoolId, target: &ConnectTarget) -> io::Result<ServerDialer> {
        let role = self.roles.get(&pool).ok_or(io::ErrorKind::NotFound)?;
        let tls = tls::request(&role.tenant.server.tls, &role.tenant.server.address);
        Ok(match &role.credentials {
            ServerCredentials::Pg(credentials) => {
                ServerDialer::Pg(role.pg_dial(Arc::clone(credentials), tls, target)?)
            }
            ServerCredentials::My(credentials) => {
                let assurance = target.assurance(&role.tenant.server.tls);
                let params = role.mysql_params(Arc::clone(credentials), tls, assurance);
                ServerDialer::My(mysql::dial::MysqlDial::new(params))
            }
        })
    }

    /// A login at the server of PostgreSQL as the role of a pool.
    pub(super) fn new_pg_dial(
        &self,
        pool: PoolId,
        target: &ConnectTarget,
    ) -> io::Result<pg::dial::PgDial> {
        let role = self.roles.get(&pool).ok_or(io::ErrorKind::NotFound)?;
        let ServerCredentials::Pg(credentials) = &role.credentials else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let tls = tls::request(&role.tenant.server.tls, &role.tenant.server.address);
        role.pg_dial(Arc::clone(credentials), tls, target)
    }

    /// A login that ends what a connection of a pool does; nothing when it cannot.
    pub(super) fn new_cancel(&self, server: &RelayServer, tls: TlsRequest) -> Option<ServerDialer> {
        let ServerPhase::Live(link) = &server.phase else { return None };
        match link {
            ServerLink::Pg(link) => {
                let key = link.key();
                let dial = || pg::dial::PgDial::cancel(link.pid(), key.to_vec(), tls);
                (!key.is_empty()).then(|| ServerDialer::Pg(dial()))
            }
            ServerLink::My(link) => {
                let role = self.roles.get(&server.slot.pool())?;
                let ServerCredentials::My(credentials) = &role.credentials else { return None };
                // Of the server as it was when the connection was made, as is the handshake.
                let assurance = server.target.assurance(&server.tenant.server.tls);
                let params = role.mysql_params(Arc::clone(credentials), tls, assurance);
                Some(ServerDialer::My(mysql::dial::MysqlDial::cancel(params, link.pid())))
            }
        }
    }

    /// Epoll says that a socket can be written to: whether it has connected.
    pub(super) fn has_connected(&mut self, place: u32) -> bool {
        let RelayWorker { servers, outbox, .. } = self;
        let Some(server) = servers.get_mut(place) else { return false };
        let ServerPhase::Opening(opening) = &mut server.phase else { return true };
        if !opening.connects {
            return true;
        }
        let failed = server.conn.socket.connect_error().unwrap_or_else(Some);
        if let Some(error) = failed {
            self.connect_failed(place, error);
            return false;
        }
        if !server.conn.socket.is_connected() {
            return false;
        }
        opening.connects = false;
        let next = opening.dial.start(&mut outbox.to_server);
        self.journal_connected(place);
        self.follow_dial(place, next);
        true
    }

    /// The next address, if there is one.
    fn connect_failed(&mut self, place: u32, error: io::Error) {
        let Some(server) = self.servers.get_mut(place) else { return };
        let ServerPhase::Opening(opening) = &mut server.phase else { return };
        let mut others = std::mem::take(&mut opening.others);
        if others.is_empty() {
            let mut failure = ServerCloseReason::Lost(error).failure();
            if self.words() == ErrorDialect::PgBouncer {
                failure.message = format!("connect failed: {}", failure.message).into();
            }
            return self.opening_failed(place, failure);
        }
        let next = ConnectTarget::Tcp(others.remove(0));
        if let Some((pool, slot)) = self.take_opening(place) {
            self.connect_server(pool, slot, next, others);
        }
    }

    /// Gives what a server sent to its login; says how much was used.
    pub(super) fn feed_opening(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let RelayWorker { servers, outbox, .. } = self;
            let Some(server) = servers.get_mut(place) else { return bytes.len() };
            let ServerPhase::Opening(opening) = &mut server.phase else {
                return used + self.feed_server(place, &bytes[used..]);
            };
            let (consumed, next) = opening.dial.input(&bytes[used..], &mut outbox.to_server);
            used += consumed;
            let is_more = matches!(next, ServerDialNext::More);
            self.follow_dial(place, next);
            if is_more || used == bytes.len() {
                return used;
            }
        }
    }

    /// Does what a step of a login asks for.
    pub(super) fn follow_dial(&mut self, place: u32, next: ServerDialNext) {
        match next {
            ServerDialNext::More => self.send_outbox(None, Some(place)),
            ServerDialNext::StartTls => self.start_server_tls(place),
            ServerDialNext::Ready(greeting) => self.opened(place, greeting),
            ServerDialNext::Cancelled => {}
            ServerDialNext::Fail { stage, code, message } => {
                self.outbox.to_server.clear();
                self.journal_refused(place, &message);
                self.opening_failed(place, PoolFailure { stage, code, message });
            }
        }
    }

    /// A server connection has logged in.
    fn opened(&mut self, place: u32, greeting: ServerGreeting) {
        let RelayWorker { servers, pools, context, common, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        let link = match greeting {
            ServerGreeting::Pg(greeting) => server.begin_pg(*greeting, common),
            ServerGreeting::My(greeting) => server.begin_mysql(&greeting),
        };
        let fingerprint = link.fingerprint();
        server.phase = ServerPhase::Live(link);
        server.since_us = context.now_us;
        server.stats.opened.add(1);
        server.count_idle(true);
        let next = pools.opened(server.pool, place, &mut server.slot, fingerprint, context.now);
        self.apply_freed_use(place, next);
    }

    /// A server connection could not be had.
    pub(super) fn opening_failed(&mut self, place: u32, failure: PoolFailure) {
        let stats = self.servers.get(place).map(|server| Arc::clone(&server.stats));
        if let Some(server) = self.servers.get(place) {
            self.journal_server(place, server, &failure.message);
        }
        let Some((pool, slot)) = self.take_opening(place) else { return };
        if let Some(stats) = stats {
            stats.open_failures.add(1);
        }
        tracing::info!(code = &*failure.code, "cannot connect to the server: {}", failure.message);
        self.pools.open_failed(pool, slot, Arc::new(failure), self.context.now);
    }

    /// Takes a connection apart that is not ready.
    fn take_opening(&mut self, place: u32) -> Option<(PoolRef, pools::PooledSlot)> {
        let server = self.servers.remove(place)?;
        self.context.timers.disarm(TimerKey::Server(place).id());
        server.stats.servers.sub(1);
        self.counters.stats.servers.sub(1);
        server.conn.close(&mut self.context.freelist);
        Some((server.pool, server.slot))
    }

    /// Sends an idle server connection to another thread.
    pub(super) fn move_server(&mut self, place: u32, thread: usize) {
        let Some(mut server) = self.servers.remove(place) else { return };
        self.context.timers.disarm(TimerKey::Server(place).id());
        server.stats.servers.sub(1);
        server.count_idle(false);
        self.counters.stats.servers.sub(1);
        if let Err(error) = server.conn.deregister(&self.context.registry) {
            tracing::debug!(error = &error as &dyn std::error::Error, "move a server connection");
            return;
        }
        let moved = MovedServer(Box::new(server));
        match self.common.peers.get(thread) {
            Some(peer) => peer.inbox.push(ThreadMessageKind::Moved(moved)),
            None => drop(moved),
        }
    }

    /// Takes a server connection that another thread sent.
    pub(super) fn receive_server(&mut self, MovedServer(mut server): MovedServer) {
        let Some(fingerprint) = server.link().map(|link| link.fingerprint()) else {
            return;
        };
        let place = self.servers.reserve();
        let registered = server.conn.register(EventSource::Server(place), &self.context.registry);
        // Registered first: what the pool gives away must be there.
        let taken = registered.ok().and_then(|()| {
            self.pools.received(place, &mut server.slot, fingerprint, self.context.now)
        });
        let Some((pool, next)) = taken else { return self.servers.give_up(place) };
        self.serial += 1;
        server.pool = pool;
        server.serial = self.serial;
        server.stats = self.counters.tenant(server.tenant.id);
        server.stats.servers.add(1);
        server.count_idle(true);
        server.expire_mark(place, &mut self.context);
        self.counters.stats.servers.add(1);
        self.servers.occupy(place, *server);
        self.apply_freed_use(place, next);
    }
}
