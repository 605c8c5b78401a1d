//! The server connections of a thread: the roles with which they log in, the pools that share them,
//! and the cancel requests that follow them.
//!
//! They refer to clients only by their slot: [`ServerEvent`] reports what concerns clients, and
//! [`ServerConnections::next_refusal`] the clients that get no connection.

mod cancel_connections;
mod opening;
mod roles;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use ::pool::shares::ThreadHandle;
use pooler_core::link::{ClientLink, DepartureAction, ProtocolLinks, ServerCredentials};
use pooler_core::pg::dial::{PgDial, TlsRequest};

use self::cancel_connections::{CancelConnections, EndedCancel};
use self::opening::PendingResolve;
use self::roles::ServerRoles;
use super::conn::SocketReadiness;
use super::context::{PendingWork, ThreadContext, TimerKey};
use super::departure::ClientDeparture;
use super::journal;
use super::pools::{
    FreedConnectionUse, LeaseRefusal, PoolEffect, PoolFailure, PoolRef, PoolRegistry, PoolTerms,
    QueueTicket, ServerLease, ThreadPools,
};
use super::server::{ConnectTarget, RelayServer, ServerCloseReason, ServerPhase};
use super::slots::SlotMap;
use super::timers::micros;
use crate::tenants::{PoolId, TenantId, TenantRoute, TenantRouting, WorkAdmission};

/// Maximum time that a server connection takes to become idle after its client left, in
/// microseconds; other poolers call it `cancel_wait_timeout`.
const REST_US: u64 = 10_000_000;
/// Time after which a statement whose client has left is cancelled again: a request that arrives
/// before the statement has started has no effect.
const CANCEL_AGAIN_US: u64 = 1_000_000;

/// Time that an idle server connection keeps the mark of the session that used it last, in
/// microseconds. A session that uses the connection repeatedly thus does not pay for the mark each
/// time; and when the session's next owner ends marked connections, hardly any of them is an idle
/// one that another client is about to use.
const MARK_KEPT_US: u64 = 1_000_000;

/// Maximum number of cancel requests on their way to one server connection; more would change
/// nothing.
const CANCELS_PER_SERVER_MAX: u32 = 2;

/// Event of a server connection that concerns a client, which is given by its slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerEvent {
    /// A connection is free for a client that waits for one.
    Serve {
        /// The client.
        client: u32,
        /// The connection.
        server: u32,
    },
    /// The cancel requests for a client's statement have arrived.
    CancelsEnded {
        /// The client.
        client: u32,
    },
}

/// Origin of the credentials of a role.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RoleOrigin {
    /// A client has logged in with them.
    Login,
    /// A client of a former process had them: those of later logins are newer.
    Handover,
}

/// The server connections of a thread.
#[derive(Debug)]
pub(super) struct ServerConnections {
    connections: SlotMap<RelayServer>,
    /// Pools of the thread, which refer to connections and clients by their slots.
    pools: ThreadPools<u32, u32>,
    roles: ServerRoles,
    /// Connections whose names are being resolved, by the number of the request.
    resolving: HashMap<u64, PendingResolve>,
    cancels: CancelConnections,
    /// Events that the thread has yet to handle.
    events: VecDeque<ServerEvent>,
    /// Clients that are refused a connection, and why.
    refused: VecDeque<(u32, LeaseRefusal)>,
}

impl ServerConnections {
    /// Creates a table without connections.
    pub(super) fn new(
        registry: Arc<PoolRegistry>,
        handle: ThreadHandle,
        seed: u64,
    ) -> ServerConnections {
        ServerConnections {
            connections: SlotMap::new(),
            pools: ThreadPools::new(registry, handle, seed),
            roles: ServerRoles::default(),
            resolving: HashMap::new(),
            cancels: CancelConnections::new(),
            events: VecDeque::new(),
            refused: VecDeque::new(),
        }
    }

    /// Returns the oldest unhandled event.
    #[inline]
    pub(super) fn next_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Returns the first client that is refused a connection and was not informed yet.
    pub(super) fn next_refusal(&mut self) -> Option<(u32, LeaseRefusal)> {
        self.refused.pop_front()
    }

    /// Returns the connection in a slot.
    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&RelayServer> {
        self.connections.get(place)
    }

    /// Returns the connection in a slot for modification.
    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut RelayServer> {
        self.connections.get_mut(place)
    }

    /// Returns all connections.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &RelayServer)> {
        self.connections.iter()
    }

    /// Makes released slots available again, at the end of a turn.
    pub(super) fn turn(&mut self) {
        self.connections.turn();
        self.cancels.turn();
    }

    /// Returns the time of the pools' next check that no event triggers.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pools.next_due()
    }

    /// Handles messages from other threads' pools.
    pub(super) fn mail(&mut self, now: Instant) {
        self.pools.mail(now);
    }

    /// Applies the effects of the pools. Returns whether there were any.
    pub(super) fn apply_pool_effects(&mut self, context: &mut ThreadContext) -> bool {
        let now = context.now;
        if self.pools.next_due().is_some_and(|due| due <= now) {
            self.pools.tick(now);
        }
        let mut any = false;
        while let Some(effect) = self.pools.next_effect() {
            any = true;
            match effect {
                PoolEffect::Open { pool, place } => self.open(pool, place, context),
                PoolEffect::Close { conn, reason } => {
                    self.close(conn, &ServerCloseReason::Pool(reason), context);
                }
                PoolEffect::Move { conn, thread } => self.move_to_thread(conn, thread, context),
                PoolEffect::Refuse { client, refusal } => self.refused.push_back((client, refusal)),
            }
        }
        any
    }

    /// Counts a client of a pool, whose connections log in with the credentials of that client.
    pub(super) fn join(
        &mut self,
        id: PoolId,
        route: &TenantRoute,
        credentials: ServerCredentials,
        origin: RoleOrigin,
        now: Instant,
    ) -> PoolRef {
        match origin {
            RoleOrigin::Login => self.roles.replace(id, route, credentials),
            RoleOrigin::Handover => self.roles.add(id, route, credentials),
        }
        let terms = PoolTerms::of(&route.tenant, &route.user);
        self.pools.join(id, route.tenant.id, terms, now)
    }

    /// Counts one client of a pool less.
    pub(super) fn leave(&mut self, pool: PoolRef, now: Instant) {
        self.pools.leave(pool, now);
    }

    /// Leases a connection for a client, one with its settings if there is one.
    #[inline]
    pub(super) fn lease(
        &mut self,
        pool: PoolRef,
        client: u32,
        settings: u64,
        last: Option<u32>,
        now: Instant,
    ) -> ServerLease<u32> {
        self.pools.lease(pool, client, settings, last, now)
    }

    /// Takes a client out of the queue of a pool.
    pub(super) fn give_up_waiting(&mut self, pool: PoolRef, ticket: QueueTicket, now: Instant) {
        self.pools.give_up_waiting(pool, ticket, now);
    }

    /// Returns a login for a PostgreSQL connection outside of the pool.
    pub(super) fn pg_dial(&self, pool: PoolId, target: &ConnectTarget) -> std::io::Result<PgDial> {
        self.roles.pg_dial(pool, target)
    }

    /// Returns the pools of a tenant.
    pub(super) fn pools_of(&self, tenant: TenantId) -> Vec<PoolId> {
        let roles = self.roles.of_tenant(tenant).map(|(id, _)| id);
        roles.filter(|id| self.pools.find(*id).is_some()).collect()
    }

    /// Applies a new snapshot of tenants. Returns the tenants that have pools here.
    pub(super) fn update_tenants(&mut self, routing: &TenantRouting) -> Vec<TenantId> {
        self.roles.update(routing)
    }

    /// Applies the current definition of a tenant to its pools.
    pub(super) fn renew_terms(&mut self, tenant: TenantId, now: Instant) {
        for (id, role) in self.roles.of_tenant(tenant) {
            let Some(pool) = self.pools.find(id) else { continue };
            let terms = PoolTerms::of(&role.tenant, &role.user);
            self.pools.set_terms(pool, tenant, terms, now);
        }
    }

    /// Opens, holds or shuts a pool according to its tenant's admission.
    pub(super) fn apply_admission(&mut self, id: PoolId, now: Instant) {
        let (Some(role), Some(pool)) = (self.roles.get(id), self.pools.find(id)) else { return };
        let state = &role.tenant.state;
        match state.admission() {
            _ if state.is_removed() => self.pools.shut(pool, now),
            WorkAdmission::Open | WorkAdmission::Draining => self.pools.resume(pool, now),
            WorkAdmission::Paused => self.pools.hold(pool, now),
            WorkAdmission::Refusing => self.pools.shut(pool, now),
        }
    }

    /// Forgets the state of pools that no longer exist.
    pub(super) fn forget_unused(&mut self, links: &mut ProtocolLinks, context: &ThreadContext) {
        let pools = &self.pools;
        self.roles.keep_only(|id| {
            let is_used = pools.find(id).is_some();
            if !is_used {
                context.common.greetings.forget(id);
                links.forget_pool(id.0);
            }
            is_used
        });
    }

    /// Closes idle connections beyond the current maxima of their pools.
    pub(super) fn give_up_surplus(&mut self) {
        let pools: Vec<_> = self.pools.iter().map(|(pool, _)| pool).collect();
        pools.into_iter().for_each(|pool| self.pools.give_up_surplus(pool));
    }

    /// Closes connections of a tenant that have been idle since before `before`.
    pub(super) fn give_up_idle(&mut self, tenant: TenantId, before: Instant) {
        for id in self.pools_of(tenant) {
            if let Some(pool) = self.pools.find(id) {
                self.pools.give_up_idle(pool, before);
            }
        }
    }

    /// Closes all connections of a tenant, or of all tenants at the end of the thread.
    pub(super) fn close_all(&mut self, of: Option<TenantId>, context: &mut ThreadContext) {
        for place in self.connections.keys() {
            let server = self.connections.get(place);
            let server = server.filter(|it| of.is_none_or(|tenant| it.tenant.id == tenant));
            match server.map(|server| &server.phase) {
                Some(ServerPhase::Live(_)) => {
                    self.close(place, &ServerCloseReason::Ordered, context);
                }
                Some(ServerPhase::Opening(_)) => {
                    self.opening_failed(place, ServerCloseReason::Ordered.failure(), context);
                }
                None => {}
            }
        }
    }

    /// Ends all cancel requests, at the end of the thread.
    pub(super) fn end_cancels(&mut self, context: &mut ThreadContext) {
        self.cancels.end_all(context);
        self.apply_ended_cancels(context);
    }

    /// Checks the deadline of a connection that carries a cancel request.
    pub(super) fn check_cancel_deadline(&mut self, place: u32, context: &mut ThreadContext) {
        self.cancels.check_deadline(place, context);
        self.apply_ended_cancels(context);
    }

    /// Attaches a connection to a client.
    pub(super) fn hold(&mut self, place: u32, client: u32, now_us: u64) -> Option<&RelayServer> {
        let server = self.connections.get_mut(place)?;
        server.client = Some(client);
        server.leased_us = now_us;
        server.since_us = now_us;
        server.count_idle(false);
        Some(server)
    }

    /// Detaches a connection from its client.
    pub(super) fn let_go(&mut self, place: u32, now_us: u64) {
        if let Some(server) = self.connections.get_mut(place) {
            server.client = None;
            server.since_us = now_us;
            server.pins.clear();
        }
    }

    /// Returns a server connection without client and without outstanding replies to its pool.
    pub(super) fn give_back(&mut self, place: u32, context: &mut ThreadContext) {
        let ServerConnections { connections: servers, pools, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        if server.cancels > 0 {
            // It could hit the next client's statement; the connection is returned when the last
            // one has arrived.
            server.awaits_cancels = true;
            return;
        }
        let Some(settings) = server.link().map(|link| link.fingerprint()) else {
            return;
        };
        let busy_us = context.now_us.saturating_sub(server.leased_us);
        server.since_us = context.now_us;
        server.count_idle(true);
        server.stats.busy_us.add(busy_us);
        server.expire_mark(place, context);
        let next =
            pools.returned(server.pool, place, &mut server.slot, settings, busy_us, context.now);
        self.apply_freed_use(place, next, context);
    }

    /// Applies the pool's decision about a free server connection.
    pub(super) fn apply_freed_use(
        &mut self,
        place: u32,
        next: FreedConnectionUse<u32>,
        context: &mut ThreadContext,
    ) {
        match next {
            FreedConnectionUse::Idle => {}
            FreedConnectionUse::Serve(client) => {
                self.events.push_back(ServerEvent::Serve { client, server: place });
            }
            FreedConnectionUse::Close(reason) => {
                self.close(place, &ServerCloseReason::Pool(reason), context)
            }
            FreedConnectionUse::Move(thread) => self.move_to_thread(place, thread, context),
        }
    }

    /// Handles a server connection without client: it returns to its pool as soon as it may be
    /// shared.
    pub(super) fn rest(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(server) = self.connections.get_mut(place) else { return };
        match server.link().map(|link| link.is_idle()) {
            Some(true) => {
                server.is_cancelled = false;
                if std::mem::take(&mut server.is_resetting) {
                    server.stats.resets.add(1);
                }
                self.give_back(place, context);
            }
            Some(false) => self.await_idle(place, context),
            None => {}
        }
    }

    /// Closes a server connection that has no client.
    pub(super) fn close(
        &mut self,
        place: u32,
        closing: &ServerCloseReason,
        context: &mut ThreadContext,
    ) {
        let Some(mut server) = self.connections.remove(place) else { return };
        context.timers.disarm(TimerKey::Server(place).id());
        if server.is_resetting {
            server.stats.reset_failures.add(1);
        }
        if let Some(link) = server.link() {
            let pid = link.pid();
            tracing::debug!(pid, tenant = &*server.tenant.name, %closing, "server connection closed");
        }
        server.journal_closing(place, &journal::reason(closing), context.now_us);
        server.count_idle(false);
        // A pool that made the decision has forgotten the connection already.
        if !matches!(closing, ServerCloseReason::Pool(_)) {
            self.pools.lost(server.pool, place, context.now);
        }
        server.stats.servers.sub(1);
        context.counters.stats.servers.sub(1);
        if let ServerPhase::Live(link) = &server.phase
            && server.conn.is_flushed()
        {
            context.outbox.to_server.clear();
            link.put_goodbye(&mut context.outbox.to_server);
            let bytes = &context.outbox.to_server;
            // A courtesy; the end of the connection means the same.
            drop(server.conn.send(bytes, &mut context.freelist, &context.registry));
            context.outbox.to_server.clear();
        }
        let RelayServer { mut conn, slot, .. } = server;
        let is_open = !conn.is_closed();
        let socket = is_open.then(|| conn.leave(&context.registry));
        conn.close(&mut context.freelist);
        // A socket that cannot be waited for counts as closed.
        if let Some(Ok(socket)) = socket {
            context.common.closing.wait(socket, slot);
        }
    }

    /// Sends the output for a server, and keeps that for a client.
    pub(super) fn send_request(&mut self, server: Option<u32>, context: &mut ThreadContext) {
        if !context.outbox.to_server.is_empty() {
            self.send_to_server(server, context);
        }
    }

    fn send_to_server(&mut self, place: Option<u32>, context: &mut ThreadContext) {
        let servers = &mut self.connections;
        let server = place.and_then(|place| servers.get_mut(place));
        debug_assert!(server.is_some(), "bytes for a server that is not there");
        let Some(server) = server else { return context.outbox.to_server.clear() };
        let sent =
            server.conn.send(&context.outbox.to_server, &mut context.freelist, &context.registry);
        context.outbox.to_server.clear();
        if sent.is_err() {
            // The server's last output is still to be read: it contains the reason.
            server.conn.mark_closed();
            context.work.push_back(PendingWork::Server(place.unwrap_or_default()));
        }
    }

    /// Handles a server connection whose client has left: resets it, or closes it. A client that
    /// was not attached to the link yet has left no state there.
    pub(super) fn abandon(
        &mut self,
        place: u32,
        client: Option<&ClientLink>,
        links: &mut ProtocolLinks,
        leaving: &ClientDeparture,
        context: &mut ThreadContext,
    ) {
        let servers = &mut self.connections;
        let Some(server) = servers.get_mut(place) else { return };
        server.client = None;
        if server.conn.is_readable() {
            // Input that the client did not read stayed in the kernel, and epoll does not report it
            // again.
            context.work.push_back(PendingWork::Server(place));
        }
        let Some(client) = client else { return self.give_back(place, context) };
        let Some(server_link) = server.link() else { return };
        let was_idle = !server_link.has_client_entries();
        let gone = links.client_gone(client, server_link, &mut context.outbox.both());
        if !was_idle || client.is_in_transaction() {
            server.stats.dirty_disconnects.add(1);
        }
        // The requests of a client that terminated properly are completed, as by a server without a
        // pooler.
        let cancels =
            gone == DepartureAction::Cancel && !matches!(leaving, ClientDeparture::Terminate);
        server.is_cancelled = cancels;
        self.send_request(Some(place), context);
        match gone {
            DepartureAction::Idle => self.give_back(place, context),
            DepartureAction::Draining => self.await_idle(place, context),
            DepartureAction::Cancel => {
                if cancels {
                    self.cancel(place, context);
                }
                self.await_idle(place, context);
            }
            DepartureAction::Close => self.close(place, &ServerCloseReason::Unclean, context),
        }
    }

    /// Checks the deadline of a server connection.
    pub(super) fn check_deadline(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(server) = self.connections.get(place) else { return };
        let (at_us, opening) = match &server.phase {
            ServerPhase::Opening(_) => {
                (server.begun_us + micros(server.tenant.limits.connect), true)
            }
            ServerPhase::Live(_) if server.is_resetting => {
                let (at_us, is_cancelled) = (server.since_us + REST_US, server.is_cancelled);
                if is_cancelled && at_us > context.now_us {
                    self.cancel(place, context);
                    let next_us = at_us.min(context.now_us + CANCEL_AGAIN_US);
                    return context.timers.arm(TimerKey::Server(place).id(), next_us);
                }
                (at_us, false)
            }
            ServerPhase::Live(link) => {
                if link.is_marked() && server.client.is_none() {
                    self.release_mark(place, context);
                }
                return;
            }
        };
        if at_us > context.now_us {
            return context.timers.arm(TimerKey::Server(place).id(), at_us);
        }
        if opening {
            let own = "connecting and logging in took longer than `connect_s`";
            let message = context.words().of(own, "connect timeout");
            self.opening_failed(place, PoolFailure::unreached("08001", message), context);
        } else {
            self.close(place, &ServerCloseReason::Unclean, context);
        }
    }

    /// Removes the mark of a session from a server connection that was idle for long enough.
    fn release_mark(&mut self, place: u32, context: &mut ThreadContext) {
        let servers = &mut self.connections;
        let Some(server) = servers.get_mut(place) else { return };
        let at_us = server.since_us + MARK_KEPT_US;
        if at_us > context.now_us {
            return context.timers.arm(TimerKey::Server(place).id(), at_us);
        }
        if let Some(link) = server.link() {
            ProtocolLinks::release_mark(link, &mut context.outbox.both());
        }
        self.send_request(Some(place), context);
    }

    /// Arms the deadline by which a server connection must be idle after its client has left.
    pub(super) fn await_idle(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(server) = self.connections.get_mut(place) else { return };
        if !server.is_resetting {
            server.is_resetting = true;
            server.since_us = context.now_us;
            let wait_us = if server.is_cancelled { CANCEL_AGAIN_US } else { REST_US };
            context.timers.arm(TimerKey::Server(place).id(), context.now_us + wait_us);
        }
    }

    /// Sends a cancel request to the server of a connection whose client waits for a reply.
    pub(super) fn cancel(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(server) = self.connections.get_mut(place) else { return };
        if server.cancels >= CANCELS_PER_SERVER_MAX {
            return;
        }
        let (target, serial) = (server.target.clone(), server.serial);
        let tenant = Arc::clone(&server.tenant);
        let tls = if server.conn.socket.is_tls() { TlsRequest::Must } else { TlsRequest::Never };
        let Some(dial) =
            self.connections.get(place).and_then(|server| self.roles.cancel(server, tls))
        else {
            return;
        };
        if let Err(error) = self.cancels.begin(dial, &target, (place, serial), tenant, context) {
            tracing::info!(error = &error as &dyn std::error::Error, "forward a cancel request");
        } else if let Some(server) = self.connections.get_mut(place) {
            server.cancels += 1;
        }
    }

    /// Handles an event of epoll for a connection that carries a cancel request.
    pub(super) fn cancel_ready(
        &mut self,
        place: u32,
        readiness: SocketReadiness,
        context: &mut ThreadContext,
    ) {
        self.cancels.ready(place, readiness, context);
        self.apply_ended_cancels(context);
    }

    /// Makes server connections shareable again whose cancel requests have ended.
    pub(super) fn apply_ended_cancels(&mut self, context: &mut ThreadContext) {
        while let Some(EndedCancel { server: (place, serial), is_late }) = self.cancels.next_ended()
        {
            let server = self.connections.get_mut(place).filter(|it| it.serial == serial);
            let Some(server) = server else { continue };
            if is_late && server.awaits_cancels {
                // Whether the signal will still arrive is not known.
                self.close(place, &ServerCloseReason::Unclean, context);
                continue;
            }
            server.cancels -= 1;
            if server.cancels > 0 {
                continue;
            }
            if let Some(client) = server.client {
                self.events.push_back(ServerEvent::CancelsEnded { client });
            } else if std::mem::take(&mut server.awaits_cancels) {
                self.give_back(place, context);
            }
        }
    }
}

impl RelayServer {
    /// Arms the removal of the mark of a session, if there is one, from an idle connection.
    pub(super) fn expire_mark(&mut self, place: u32, context: &mut ThreadContext) {
        if self.link().is_some_and(|link| link.is_marked()) {
            context.timers.arm(TimerKey::Server(place).id(), context.now_us + MARK_KEPT_US);
        }
    }
}
