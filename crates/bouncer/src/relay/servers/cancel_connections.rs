//! Connections to servers that carry only a cancel request.
//!
//! They refer to server connections only by their slot: [`CancelConnections::next_ended`] reports
//! the end of a request.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use pooler_core::link::{ServerDialNext, ServerDialer};

use crate::relay::conn::{EventSource, RelayConnection, SocketReadiness};
use crate::relay::context::{ThreadContext, TimerKey};
use crate::relay::server::ConnectTarget;
use crate::relay::slots::SlotMap;
use crate::relay::socket::ReadOutcome;
use crate::tenants::TenantSnapshot;

/// Time that a cancel request may take to be accepted by the server, in microseconds.
const CANCEL_US: u64 = 10_000_000;

/// Target of a cancel request: the slot and serial of a server connection.
pub(super) type CancelledServer = (u32, u64);

/// A connection that carries a cancel request.
#[derive(Debug)]
struct CancelConnection {
    conn: RelayConnection,
    dial: ServerDialer,
    connects: bool,
    is_in_handshake: bool,
    server: CancelledServer,
    tenant: Arc<TenantSnapshot>,
    begun_us: u64,
}

/// Cancel request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCancel {
    /// The server connection.
    pub(super) server: CancelledServer,
    /// True if the server's signal may still arrive.
    pub(super) is_late: bool,
}

/// The connections of a thread that carry cancel requests.
#[derive(Debug)]
pub(super) struct CancelConnections {
    connections: SlotMap<CancelConnection>,
    /// Output for a server that is being assembled.
    to_server: Vec<u8>,
    ended: VecDeque<EndedCancel>,
}

impl CancelConnections {
    /// Creates a table without connections.
    pub(super) fn new() -> CancelConnections {
        CancelConnections {
            connections: SlotMap::new(),
            to_server: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns the oldest ended request that was not handled yet.
    pub(super) fn next_ended(&mut self) -> Option<EndedCancel> {
        self.ended.pop_front()
    }

    /// Makes released slots available again, at the end of a turn.
    pub(super) fn turn(&mut self) {
        self.connections.turn();
    }

    /// Starts to send a cancel request to a server.
    pub(super) fn begin(
        &mut self,
        dial: ServerDialer,
        target: &ConnectTarget,
        server: CancelledServer,
        tenant: Arc<TenantSnapshot>,
        context: &mut ThreadContext,
    ) -> io::Result<()> {
        let socket = target.connect(context.common.config.tcp)?;
        let place = self.connections.reserve();
        let source = EventSource::Cancel(place);
        let conn = match RelayConnection::new(socket, source, true, &context.registry) {
            Ok(conn) => conn,
            Err(error) => {
                self.connections.give_up(place);
                return Err(error);
            }
        };
        let begun_us = context.now_us;
        let connection = CancelConnection {
            conn,
            dial,
            connects: true,
            is_in_handshake: false,
            server,
            tenant,
            begun_us,
        };
        self.connections.occupy(place, connection);
        context.timers.arm(TimerKey::Cancel(place).id(), begun_us + CANCEL_US);
        Ok(())
    }

    /// Handles an event of epoll.
    pub(super) fn ready(
        &mut self,
        place: u32,
        readiness: SocketReadiness,
        context: &mut ThreadContext,
    ) {
        let Some(it) = self.connections.get_mut(place) else { return };
        it.conn.note(readiness);
        if readiness.writable && it.connects {
            if it.conn.socket.connect_error().is_ok_and(|error| error.is_none())
                && it.conn.socket.is_connected()
            {
                it.connects = false;
                let next = it.dial.start(&mut self.to_server);
                return self.follow(place, next, context);
            }
            return self.end(place, context);
        }
        if readiness.writable && it.conn.flush(&mut context.freelist, &context.registry).is_err() {
            return self.end(place, context);
        }
        self.read(place, context);
    }

    fn read(&mut self, place: u32, context: &mut ThreadContext) {
        loop {
            let Some(it) = self.connections.get_mut(place) else { return };
            if !it.conn.is_readable() {
                return;
            }
            let count = match it.conn.read(&mut context.scratch) {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) => return self.tls_started(place, context),
                // The signal was sent, or never will be.
                Ok(ReadOutcome::End) | Err(_) => return self.end(place, context),
            };
            it.conn.input.push(&context.scratch[..count], &mut context.freelist);
            let (used, next) = it.dial.input(it.conn.input.front(), &mut self.to_server);
            it.conn.input.consume(used, &mut context.freelist);
            self.follow(place, next, context);
        }
    }

    /// Performs an action that the dial requests.
    fn follow(&mut self, place: u32, next: ServerDialNext, context: &mut ThreadContext) {
        let Some(it) = self.connections.get_mut(place) else { return };
        let sent = it.conn.send(&self.to_server, &mut context.freelist, &context.registry);
        self.to_server.clear();
        match next {
            _ if sent.is_err() => self.end(place, context),
            ServerDialNext::More => {}
            // A server of PostgreSQL closes the connection once the signal was sent; MySQL has
            // confirmed it.
            ServerDialNext::Cancelled => {
                if matches!(it.dial, ServerDialer::My(_)) {
                    self.end(place, context);
                }
            }
            ServerDialNext::StartTls => self.start_tls(place, context),
            ServerDialNext::Ready(_) | ServerDialNext::Fail { .. } => self.end(place, context),
        }
    }

    /// Starts the TLS handshake with the server of a cancel request.
    fn start_tls(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(it) = self.connections.get_mut(place) else { return };
        let address = &it.tenant.server;
        let Ok(tls) = context.common.server_tls.connection(&address.tls, &address.address) else {
            return self.end(place, context);
        };
        it.is_in_handshake = true;
        it.conn.socket.start_tls(tls);
        if it.conn.flush(&mut context.freelist, &context.registry).is_err() {
            self.end(place, context);
        }
    }

    /// Continues after the handshake.
    fn tls_started(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(it) = self.connections.get_mut(place) else { return };
        if it.is_in_handshake && !it.conn.socket.is_in_handshake() {
            it.is_in_handshake = false;
            let next = it.dial.tls_started(None, &mut self.to_server);
            self.follow(place, next, context);
        }
    }

    /// Closes a connection.
    fn end(&mut self, place: u32, context: &mut ThreadContext) {
        self.remove(place, false, context);
    }

    fn remove(&mut self, place: u32, is_late: bool, context: &mut ThreadContext) {
        let Some(connection) = self.connections.remove(place) else { return };
        context.timers.disarm(TimerKey::Cancel(place).id());
        connection.conn.close(&mut context.freelist);
        self.ended.push_back(EndedCancel { server: connection.server, is_late });
    }

    /// Closes all, at the end of the thread.
    pub(super) fn end_all(&mut self, context: &mut ThreadContext) {
        for place in self.connections.keys() {
            self.end(place, context);
        }
    }

    /// Ends a request whose deadline has passed.
    pub(super) fn check_deadline(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get(place) else { return };
        let due_us = connection.begun_us + CANCEL_US;
        if due_us > context.now_us {
            return context.timers.arm(TimerKey::Cancel(place).id(), due_us);
        }
        self.remove(place, true, context);
    }
}
