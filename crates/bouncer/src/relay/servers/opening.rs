//! Opening of server connections: name resolution, socket, login; and their moves between threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use node::telemetry::error_chain;
use pooler_core::link::{LinkLimits, ServerDialNext, ServerGreeting, ServerLink};
use pooler_core::pg::server::{PgServerSession, PgServerSetup};
use pooler_core::pg::settings::ReportedParameters as Reported;
use pooler_core::{mysql, pg};
use tokio_rustls::rustls::Connection;

use super::ServerConnections;
use crate::relay::common::RelayShared;
use crate::relay::conn::{EventSource, RelayConnection};
use crate::relay::context::{ThreadContext, TimerKey};
use crate::relay::dialect::ErrorDialect;
use crate::relay::orders::{MovedServer, ThreadMessageKind};
use crate::relay::pools::{self, PoolFailure, PoolRef};
use crate::relay::resolve;
use crate::relay::server::{
    ConnectTarget, OpeningServer, RelayServer, ServerCloseReason, ServerPhase, ServerPurpose,
};
use crate::relay::timers::micros;
use crate::tenants::BackendAddress;
use crate::tls;

/// A server connection whose name is being resolved.
#[derive(Debug)]
pub(super) struct PendingResolve {
    pool: PoolRef,
    slot: pools::PooledSlot,
}

impl RelayServer {
    /// Returns the session of a connection that has logged in at a server of PostgreSQL.
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

    /// Returns the session of a connection that has logged in at a server of MySQL.
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

impl ServerConnections {
    /// Starts to open a connection for a pool.
    pub(super) fn open(
        &mut self,
        pool: PoolRef,
        slot: pools::PooledSlot,
        context: &mut ThreadContext,
    ) {
        let Some(role) = self.roles.get(slot.pool()) else {
            return self.roleless(pool, slot, context);
        };
        let tenant = Arc::clone(&role.tenant);
        match &tenant.server.address {
            BackendAddress::Unix { .. } | BackendAddress::Socket { .. } => {
                let path = tenant.server.address.socket_path().unwrap_or_default();
                self.connect(pool, slot, ConnectTarget::Unix(path), Vec::new(), context);
            }
            BackendAddress::Tcp { host, port } => match resolve::literal(host, *port) {
                Some(address) => {
                    self.connect(pool, slot, ConnectTarget::Tcp(address), Vec::new(), context)
                }
                None => {
                    let serial = context.next_serial();
                    if context.common.resolver.ask(host, *port, serial, &context.inbox) {
                        self.resolving.insert(serial, PendingResolve { pool, slot });
                    } else {
                        let message = "too many names are being looked up";
                        let failure = Arc::new(PoolFailure::unreached("53000", message));
                        self.pools.open_failed(pool, slot, failure, context.now);
                    }
                }
            },
        }
    }

    /// Handles an answer of the resolver.
    pub(crate) fn resolved(
        &mut self,
        serial: u64,
        addresses: Result<Vec<SocketAddr>, String>,
        context: &mut ThreadContext,
    ) {
        let Some(PendingResolve { pool, slot }) = self.resolving.remove(&serial) else { return };
        let (first, others) = match addresses {
            Ok(addresses) => match addresses.split_first() {
                Some((first, others)) => (*first, others.to_vec()),
                None => return self.unresolved(pool, slot, "the name has no address", context),
            },
            Err(error) => return self.unresolved(pool, slot, &error, context),
        };
        self.connect(pool, slot, ConnectTarget::Tcp(first), others, context);
    }

    fn unresolved(
        &mut self,
        pool: PoolRef,
        slot: pools::PooledSlot,
        error: &str,
        context: &ThreadContext,
    ) {
        let message = format!("look up the server's name: {error}");
        let failure = Arc::new(PoolFailure::unreached("08001", message));
        self.pools.open_failed(pool, slot, failure, context.now);
    }

    /// Handles a connection whose tenant was removed while it moved.
    fn roleless(&mut self, pool: PoolRef, slot: pools::PooledSlot, context: &ThreadContext) {
        let failure = PoolFailure::unreached("08000", "no such tenant");
        self.pools.open_failed(pool, slot, Arc::new(failure), context.now);
    }

    /// Starts to connect to the first address; the others are tried after it.
    fn connect(
        &mut self,
        pool: PoolRef,
        slot: pools::PooledSlot,
        target: ConnectTarget,
        mut others: Vec<SocketAddr>,
        context: &mut ThreadContext,
    ) {
        let Some(role) = self.roles.get(slot.pool()) else {
            return self.roleless(pool, slot, context);
        };
        let (tenant, user) = (Arc::clone(&role.tenant), Arc::clone(&role.user.server_user));
        let dial = self.roles.dial(slot.pool(), &target);
        let place = self.connections.reserve();
        let made = dial.and_then(|dial| {
            let socket = target.connect(context.common.config.tcp)?;
            let conn =
                RelayConnection::new(socket, EventSource::Server(place), true, &context.registry)?;
            Ok((dial, conn))
        });
        let (dial, conn) = match made {
            Ok(made) => made,
            Err(error) => {
                self.connections.give_up(place);
                if !others.is_empty() {
                    let next = ConnectTarget::Tcp(others.remove(0));
                    return self.connect(pool, slot, next, others, context);
                }
                let failure = Arc::new(ServerCloseReason::Lost(error).failure());
                return self.pools.open_failed(pool, slot, failure, context.now);
            }
        };
        let opening = OpeningServer { dial, connects: true, is_in_handshake: false, others };
        let now_us = context.now_us;
        let connect_us = micros(tenant.limits.connect);
        let stats = context.counters.tenant(tenant.id);
        stats.servers.add(1);
        context.counters.stats.servers.add(1);
        let purpose = ServerPurpose { pool, slot, tenant, user, target };
        let server = RelayServer::new(
            conn,
            opening,
            purpose,
            context.next_serial(),
            context.common.next_number(),
            now_us,
            stats,
        );
        self.connections.occupy(place, server);
        context.timers.arm(TimerKey::Server(place).id(), now_us + connect_us);
    }

    /// Handles write readiness of a connecting socket. Returns whether it is connected.
    pub(crate) fn has_connected(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let servers = &mut self.connections;
        let Some(server) = servers.get_mut(place) else { return false };
        let ServerPhase::Opening(opening) = &mut server.phase else { return true };
        if !opening.connects {
            return true;
        }
        let failed = server.conn.socket.connect_error().unwrap_or_else(Some);
        if let Some(error) = failed {
            self.connect_failed(place, error, context);
            return false;
        }
        if !server.conn.socket.is_connected() {
            return false;
        }
        opening.connects = false;
        let next = opening.dial.start(&mut context.outbox.to_server);
        server.journal_connected(place);
        self.follow_dial(place, next, context);
        true
    }

    /// Tries the next address, if there is one.
    fn connect_failed(&mut self, place: u32, error: io::Error, context: &mut ThreadContext) {
        let Some(server) = self.connections.get_mut(place) else { return };
        let ServerPhase::Opening(opening) = &mut server.phase else { return };
        let mut others = std::mem::take(&mut opening.others);
        if others.is_empty() {
            let mut failure = ServerCloseReason::Lost(error).failure();
            if context.words() == ErrorDialect::PgBouncer {
                failure.message = format!("connect failed: {}", failure.message).into();
            }
            return self.opening_failed(place, failure, context);
        }
        let next = ConnectTarget::Tcp(others.remove(0));
        if let Some((pool, slot)) = self.take_opening(place, context) {
            self.connect(pool, slot, next, others, context);
        }
    }

    /// Passes a server's output to its login; returns how many bytes were used.
    pub(crate) fn feed_opening(
        &mut self,
        place: u32,
        bytes: &[u8],
        context: &mut ThreadContext,
    ) -> usize {
        let mut used = 0;
        loop {
            let servers = &mut self.connections;
            let Some(server) = servers.get_mut(place) else { return bytes.len() };
            let ServerPhase::Opening(opening) = &mut server.phase else {
                return used;
            };
            let (consumed, next) =
                opening.dial.input(&bytes[used..], &mut context.outbox.to_server);
            used += consumed;
            let is_more = matches!(next, ServerDialNext::More);
            self.follow_dial(place, next, context);
            if is_more || used == bytes.len() {
                return used;
            }
        }
    }

    /// Performs an action that a login requests.
    pub(super) fn follow_dial(
        &mut self,
        place: u32,
        next: ServerDialNext,
        context: &mut ThreadContext,
    ) {
        match next {
            ServerDialNext::More => self.send_request(Some(place), context),
            ServerDialNext::StartTls => self.start_tls(place, context),
            ServerDialNext::Ready(greeting) => self.opened(place, greeting, context),
            ServerDialNext::Cancelled => {}
            ServerDialNext::Fail { stage, code, message } => {
                context.outbox.to_server.clear();
                if let Some(server) = self.connections.get(place) {
                    server.journal_refused(place, &message);
                }
                self.opening_failed(place, PoolFailure { stage, code, message }, context);
            }
        }
    }

    /// Handles a server connection that has logged in.
    fn opened(&mut self, place: u32, greeting: ServerGreeting, context: &mut ThreadContext) {
        let ServerConnections { connections: servers, pools, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        let link = match greeting {
            ServerGreeting::Pg(greeting) => server.begin_pg(*greeting, &context.common),
            ServerGreeting::My(greeting) => server.begin_mysql(&greeting),
        };
        let fingerprint = link.fingerprint();
        server.phase = ServerPhase::Live(link);
        server.since_us = context.now_us;
        server.stats.opened.add(1);
        server.count_idle(true);
        let next = pools.opened(server.pool, place, &mut server.slot, fingerprint, context.now);
        self.apply_freed_use(place, next, context);
    }

    /// Handles the failure to open a server connection.
    pub(crate) fn opening_failed(
        &mut self,
        place: u32,
        failure: PoolFailure,
        context: &mut ThreadContext,
    ) {
        let stats = self.connections.get(place).map(|server| Arc::clone(&server.stats));
        if let Some(server) = self.connections.get(place) {
            server.journal_closing(place, &failure.message, context.now_us);
        }
        let Some((pool, slot)) = self.take_opening(place, context) else { return };
        if let Some(stats) = stats {
            stats.open_failures.add(1);
        }
        tracing::info!(code = &*failure.code, "cannot connect to the server: {}", failure.message);
        self.pools.open_failed(pool, slot, Arc::new(failure), context.now);
    }

    /// Removes a connection that is not ready, and returns its parts.
    fn take_opening(
        &mut self,
        place: u32,
        context: &mut ThreadContext,
    ) -> Option<(PoolRef, pools::PooledSlot)> {
        let server = self.connections.remove(place)?;
        context.timers.disarm(TimerKey::Server(place).id());
        server.stats.servers.sub(1);
        context.counters.stats.servers.sub(1);
        server.conn.close(&mut context.freelist);
        Some((server.pool, server.slot))
    }

    /// Moves an idle server connection to another thread.
    pub(super) fn move_to_thread(
        &mut self,
        place: u32,
        thread: usize,
        context: &mut ThreadContext,
    ) {
        let Some(mut server) = self.connections.remove(place) else { return };
        context.timers.disarm(TimerKey::Server(place).id());
        server.stats.servers.sub(1);
        server.count_idle(false);
        context.counters.stats.servers.sub(1);
        if let Err(error) = server.conn.deregister(&context.registry) {
            tracing::debug!(error = &error as &dyn std::error::Error, "move a server connection");
            return;
        }
        let moved = MovedServer(Box::new(server));
        match context.common.peers.get(thread) {
            Some(peer) => peer.inbox.push(ThreadMessageKind::Moved(moved)),
            None => drop(moved),
        }
    }

    /// Takes a server connection from another thread.
    pub(crate) fn receive(
        &mut self,
        MovedServer(mut server): MovedServer,
        context: &mut ThreadContext,
    ) {
        let Some(fingerprint) = server.link().map(|link| link.fingerprint()) else {
            return;
        };
        let place = self.connections.reserve();
        let registered = server.conn.register(EventSource::Server(place), &context.registry);
        // Registered first: the pool may give the connection to a client at once.
        let taken = registered
            .ok()
            .and_then(|()| self.pools.received(place, &mut server.slot, fingerprint, context.now));
        let Some((pool, next)) = taken else { return self.connections.give_up(place) };
        server.pool = pool;
        server.serial = context.next_serial();
        server.stats = context.counters.tenant(server.tenant.id);
        server.stats.servers.add(1);
        server.count_idle(true);
        server.expire_mark(place, context);
        context.counters.stats.servers.add(1);
        self.connections.occupy(place, *server);
        self.apply_freed_use(place, next, context);
    }

    /// Starts the handshake with a server that has agreed to TLS.
    pub(super) fn start_tls(&mut self, place: u32, context: &mut ThreadContext) {
        self.send_request(Some(place), context);
        let Some(server) = self.connections.get_mut(place) else { return };
        let ServerPhase::Opening(opening) = &mut server.phase else { return };
        let address = &server.tenant.server;
        match context.common.server_tls.connection(&address.tls, &address.address) {
            Ok(tls) => {
                opening.is_in_handshake = true;
                server.conn.socket.start_tls(tls);
            }
            Err(error) => {
                let failure = PoolFailure::unreached("08001", error_chain(&error));
                return self.opening_failed(place, failure, context);
            }
        }
        if let Err(error) = server.conn.flush(&mut context.freelist, &context.registry) {
            self.opening_failed(place, ServerCloseReason::Lost(error).failure(), context);
        }
    }

    /// Continues after the TLS handshake.
    pub(crate) fn tls_started(&mut self, place: u32, context: &mut ThreadContext) {
        let servers = &mut self.connections;
        let Some(server) = servers.get_mut(place) else { return };
        if server.conn.socket.is_in_handshake() {
            return;
        }
        let end_point = match server.conn.socket.tls() {
            Some(Connection::Client(tls)) => tls::end_point(tls),
            Some(Connection::Server(_)) | None => None,
        };
        let ServerPhase::Opening(opening) = &mut server.phase else { return };
        if !std::mem::take(&mut opening.is_in_handshake) {
            return;
        }
        let next = opening.dial.tls_started(end_point, &mut context.outbox.to_server);
        self.follow_dial(place, next, context);
    }
}
