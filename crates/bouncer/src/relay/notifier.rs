//! Notification connections: server connections that listen for a pool's clients, which hold none
//! of their own. A thread has at most one for each pool.
//!
//! They know clients only by their slots: actions on clients, and actions that only the thread can
//! perform, are reported as [`NotificationEvent`]s.
//!
//! A connection is opened when the first client listens to a channel, to the server of that
//! client's connection, and closed when no client has listened for a while. It counts toward no
//! limit: a tenant whose connections are all in use could not start to listen otherwise. A lost
//! connection is opened again, and clients are informed that they may have missed notifications.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use pooler_core::pg::dial::{PgDial, PgDialNext};
use tokio_rustls::rustls::Connection;
use wire::pg::frame::{HEADER_BYTES, PgHeader, backend};
use wire::pg::message::frontend;
use wire::pg::notice::ServerNotice;
use wire::pg::sql::quote_identifier;

use super::conn::{RelayConnection, SocketReadiness};
use super::context::{ThreadContext, TimerKey};
use super::server::ConnectTarget;
use super::slots::SlotMap;
use super::socket::ReadOutcome;
use super::timers::micros;
use crate::tenants::{PoolId, TenantId, TenantSnapshot, WorkAdmission};
use crate::tls;

/// Time that a connection without subscribers stays open, in microseconds.
const LINGER_US: u64 = 10_000_000;

/// Wait before a lost connection is opened again, in microseconds; doubles up to the tenant's
/// limit.
const RETRY_FIRST_US: u64 = 250_000;

/// Maximum channels in one statement.
const CHANNELS_PER_TEXT_MAX: usize = 64;

/// Maximum length of a message from a server: a notification has at most 8,000 bytes.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A connection that listens for the clients of a pool.
#[derive(Debug)]
struct NotificationConnection {
    pool: PoolId,
    tenant: Arc<TenantSnapshot>,
    /// Epoch of the tenant when it was opened.
    epoch: u32,
    target: ConnectTarget,
    state: NotificationState,
    /// Channels that it listens to, or will.
    channels: BTreeMap<Arc<str>, SubscribedChannel>,
    /// Slots and serials of clients that wait for channels to be confirmed.
    waiting: Vec<(u32, u64)>,
    /// Statements that were sent and not answered.
    asked: VecDeque<ListenRequest>,
    /// True if it was lost while clients listened, and they were not informed yet.
    missed: bool,
    /// Attempts to open it since it was last open.
    attempts: u32,
    /// Time since which it has no subscribers.
    quiet_us: Option<u64>,
}

/// Phase of a notification connection.
#[derive(Debug)]
enum NotificationState {
    /// Connecting and logging in.
    Opening(Box<NotificationOpening>),
    /// Listening.
    Open(RelayConnection),
    /// To be opened at this time; `None` while its tenant is held.
    Lost(Option<u64>),
}

#[derive(Debug)]
struct NotificationOpening {
    conn: RelayConnection,
    dial: PgDial,
    connects: bool,
    is_in_handshake: bool,
    since_us: u64,
}

/// A channel that a connection listens to.
#[derive(Debug, Default)]
struct SubscribedChannel {
    /// True if the server has confirmed it.
    is_confirmed: bool,
    /// Slots of the clients that listen to it.
    clients: BTreeSet<u32>,
}

/// Event of a notification connection, for the thread to act on.
#[derive(Debug)]
pub(super) enum NotificationEvent {
    /// A connection must be opened: [`NotificationConnections::opening`] or
    /// [`NotificationConnections::lost`] must follow.
    Open(u32),
    /// A client's channels may be confirmed.
    Confirmed {
        /// Slot of the client.
        client: u32,
    },
    /// A client cannot be subscribed to the channels that it waits for.
    Failed {
        /// Slot of the client.
        client: u32,
        /// Its serial.
        serial: u64,
        /// Why.
        message: String,
    },
    /// A subscription to a channel failed.
    ChannelFailed {
        /// Slots of its clients.
        clients: BTreeSet<u32>,
        /// Why.
        message: String,
    },
    /// A notification has arrived.
    Notified {
        /// The pool.
        pool: PoolId,
        /// The channel.
        channel: Arc<str>,
        /// Slots of the clients that listen, or are about to.
        clients: Vec<u32>,
        /// Process id of the server connection that sent it.
        pid: u32,
        /// Channel and payload as they are on the wire.
        rest: Box<[u8]>,
    },
    /// Notifications may have been missed.
    Gap {
        /// Slots of the clients that listen.
        clients: BTreeSet<u32>,
    },
}

/// The notification connections of a thread.
#[derive(Debug)]
pub(super) struct NotificationConnections {
    connections: SlotMap<NotificationConnection>,
    /// Statement to a server that is being assembled.
    to_server: Vec<u8>,
    events: VecDeque<NotificationEvent>,
    /// True while the thread handles events.
    acts: bool,
}

/// Request of a notification connection to its server.
#[derive(Debug)]
enum ListenRequest {
    Listen(Vec<Arc<str>>),
    Unlisten,
}

impl NotificationConnection {
    fn conn(&mut self) -> Option<&mut RelayConnection> {
        match &mut self.state {
            NotificationState::Opening(opening) => Some(&mut opening.conn),
            NotificationState::Open(conn) => Some(conn),
            NotificationState::Lost(_) => None,
        }
    }

    /// Subscribes to channels, if the connection is open.
    fn listen(&mut self, names: &[Arc<str>], out: &mut Vec<u8>) {
        if !matches!(self.state, NotificationState::Open(_)) {
            return;
        }
        for names in names.chunks(CHANNELS_PER_TEXT_MAX) {
            let mut text = Vec::new();
            for name in names {
                text.extend_from_slice(b"LISTEN ");
                quote_identifier(&mut text, name);
                text.push(b';');
            }
            frontend::query(out, &String::from_utf8_lossy(&text));
            self.asked.push_back(ListenRequest::Listen(names.to_vec()));
        }
    }

    /// Unsubscribes a client from a channel, and the connection if the client was the last one.
    fn forget(&mut self, name: &str, client: u32, out: &mut Vec<u8>) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        channel.clients.remove(&client);
        if !channel.clients.is_empty() {
            return;
        }
        self.channels.remove(name);
        if matches!(self.state, NotificationState::Open(_)) {
            let mut text = b"UNLISTEN ".to_vec();
            quote_identifier(&mut text, name);
            frontend::query(out, &String::from_utf8_lossy(&text));
            self.asked.push_back(ListenRequest::Unlisten);
        }
    }

    /// Closes the connection. Its channels are no longer confirmed.
    fn close(&mut self, retry_us: Option<u64>, context: &mut ThreadContext) {
        self.asked.clear();
        for channel in self.channels.values_mut() {
            self.missed |= std::mem::take(&mut channel.is_confirmed);
        }
        match std::mem::replace(&mut self.state, NotificationState::Lost(retry_us)) {
            NotificationState::Opening(opening) => opening.conn.close(&mut context.freelist),
            NotificationState::Open(conn) => conn.close(&mut context.freelist),
            NotificationState::Lost(_) => {}
        }
    }

    /// Parses a notification; `None` if the connection has no subscription to its channel.
    fn notified(&self, body: &[u8]) -> Option<NotificationEvent> {
        let (pid, rest) = body.split_first_chunk()?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8_lossy(rest.get(..end)?);
        let (name, channel) = self.channels.get_key_value(&*name)?;
        Some(NotificationEvent::Notified {
            pool: self.pool,
            channel: Arc::clone(name),
            clients: channel.clients.iter().copied().collect(),
            pid: u32::from_be_bytes(*pid),
            rest: rest.into(),
        })
    }
}

impl NotificationConnections {
    /// Creates an empty table.
    pub(super) fn new() -> NotificationConnections {
        NotificationConnections {
            connections: SlotMap::new(),
            to_server: Vec::new(),
            events: VecDeque::new(),
            acts: false,
        }
    }

    /// Starts the handling of events. Returns false if they are being handled already.
    pub(super) fn begin_events(&mut self) -> bool {
        !std::mem::replace(&mut self.acts, true)
    }

    /// Returns the oldest unhandled event. Without one, the handling of events ends.
    pub(super) fn next_event(&mut self) -> Option<NotificationEvent> {
        let event = self.events.pop_front();
        self.acts = event.is_some();
        event
    }

    /// Makes released slots available again, at the end of a turn.
    pub(super) fn turn(&mut self) {
        self.connections.turn();
    }

    /// Returns whether the connection in this slot is that of a pool: it may have been closed, and
    /// its slot reused for another pool.
    pub(super) fn is_of_pool(&self, place: u32, pool: PoolId) -> bool {
        self.connections.get(place).is_some_and(|it| it.pool == pool)
    }

    /// Returns the connection of a pool.
    pub(super) fn of_pool(&self, pool: PoolId) -> Option<u32> {
        self.connections.iter().find(|(_, it)| it.pool == pool).map(|(place, _)| place)
    }

    /// Adds the connection of a pool, which is opened when a channel is requested.
    pub(super) fn add(
        &mut self,
        pool: PoolId,
        tenant: Arc<TenantSnapshot>,
        target: ConnectTarget,
    ) -> u32 {
        let place = self.connections.reserve();
        let connection = NotificationConnection {
            pool,
            epoch: tenant.state.epoch(),
            tenant,
            target,
            state: NotificationState::Lost(None),
            channels: BTreeMap::new(),
            waiting: Vec::new(),
            asked: VecDeque::new(),
            missed: false,
            attempts: 0,
            quiet_us: None,
        };
        self.connections.occupy(place, connection);
        place
    }

    /// Subscribes a client to a channel. Returns the channel's name if the client is new to it, and
    /// whether the server has confirmed the channel.
    pub(super) fn subscribe(
        &mut self,
        place: u32,
        client: u32,
        wanted: &str,
        unknown: &mut Vec<Arc<str>>,
    ) -> (Option<Arc<str>>, bool) {
        let Some(connection) = self.connections.get_mut(place) else { return (None, false) };
        let name = match connection.channels.get_key_value(wanted) {
            Some((name, _)) => Arc::clone(name),
            None => {
                let name: Arc<str> = Arc::from(wanted);
                unknown.push(Arc::clone(&name));
                name
            }
        };
        let channel = connection.channels.entry(Arc::clone(&name)).or_default();
        let is_new = channel.clients.insert(client);
        (is_new.then_some(name), channel.is_confirmed)
    }

    /// Registers a client for the confirmation of channels, and subscribes the connection to those
    /// that are new.
    pub(super) fn await_channels(
        &mut self,
        place: u32,
        client: (u32, u64),
        unknown: &[Arc<str>],
        context: &mut ThreadContext,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if !connection.waiting.contains(&client) {
            connection.waiting.push(client);
        }
        connection.quiet_us = None;
        match connection.state {
            NotificationState::Open(_) => {
                connection.listen(unknown, &mut self.to_server);
                self.send(place, context);
            }
            NotificationState::Opening(_) => {}
            // Without a timer it could stay closed: it may have been about to be removed.
            NotificationState::Lost(Some(retry_us)) => {
                context.timers.arm(TimerKey::Notifier(place).id(), retry_us);
            }
            NotificationState::Lost(None) => self.events.push_back(NotificationEvent::Open(place)),
        }
    }

    /// Unsubscribes a client from channels, and arms the closing of the connection if no client is
    /// left. Returns whether the connection exists.
    pub(super) fn unsubscribe<'c>(
        &mut self,
        place: u32,
        client: u32,
        channels: impl Iterator<Item = &'c Arc<str>>,
        context: &mut ThreadContext,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(place) else { return false };
        for name in channels {
            connection.forget(name, client, &mut self.to_server);
        }
        if !self.to_server.is_empty() {
            self.send(place, context);
        }
        self.close_later(place, context);
        true
    }

    /// Starts to open a connection to the newest tenant and target; these are absent if the tenant
    /// is held. Returns what to connect to.
    pub(super) fn begin_opening(
        &mut self,
        place: u32,
        newest: impl FnOnce(&Arc<TenantSnapshot>) -> Option<Arc<TenantSnapshot>>,
        target: Option<ConnectTarget>,
    ) -> Option<ConnectTarget> {
        let connection = self.connections.get_mut(place)?;
        if connection.tenant.state.admission() == WorkAdmission::Paused {
            connection.state = NotificationState::Lost(None);
            return None;
        }
        if let Some(tenant) = newest(&connection.tenant) {
            connection.tenant = tenant;
        }
        connection.epoch = connection.tenant.state.epoch();
        if let Some(target) = target {
            connection.target = target;
        }
        Some(connection.target.clone())
    }

    /// Returns the pool of a connection.
    pub(super) fn pool(&self, place: u32) -> Option<PoolId> {
        self.connections.get(place).map(|it| it.pool)
    }

    /// Continues the opening of a connection whose socket was created.
    pub(super) fn opening(
        &mut self,
        place: u32,
        conn: RelayConnection,
        dial: PgDial,
        context: &mut ThreadContext,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let since_us = context.now_us;
        let opening =
            NotificationOpening { conn, dial, connects: true, is_in_handshake: false, since_us };
        let connect_us = micros(connection.tenant.limits.connect);
        connection.state = NotificationState::Opening(Box::new(opening));
        context.timers.arm(TimerKey::Notifier(place).id(), since_us + connect_us);
    }

    /// Handles an event of epoll; [`NotificationConnections::read`] then reads.
    pub(super) fn ready(
        &mut self,
        place: u32,
        readiness: SocketReadiness,
        context: &mut ThreadContext,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let Some(conn) = connection.conn() else { return };
        conn.note(readiness);
        if readiness.writable
            && let NotificationState::Opening(opening) = &mut connection.state
            && opening.connects
        {
            let failed = opening.conn.socket.connect_error().unwrap_or_else(Some);
            if let Some(error) = failed {
                return self.lost(place, &error.to_string(), context);
            }
            if !opening.conn.socket.is_connected() {
                return;
            }
            opening.connects = false;
            let next = opening.dial.start(&mut self.to_server);
            return self.follow_dial(place, next, context);
        }
        if readiness.writable
            && let Some(conn) = connection.conn()
            && let Err(error) = conn.flush(&mut context.freelist, &context.registry)
        {
            self.lost(place, &error.to_string(), context);
        }
    }

    /// Reads once; returns whether there may be more. Events must be handled between two reads, so
    /// that no more of them are queued than one read yields.
    pub(super) fn read(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let Some(connection) = self.connections.get_mut(place) else { return false };
        if let NotificationState::Opening(opening) = &connection.state
            && opening.connects
        {
            return false;
        }
        let conn = connection.conn().filter(|conn| conn.is_readable());
        let Some(conn) = conn else { return false };
        match conn.read(&mut context.scratch) {
            Ok(ReadOutcome::Data { count, .. }) => {
                conn.input.push(&context.scratch[..count], &mut context.freelist);
                self.feed(place, context);
                return true;
            }
            Ok(ReadOutcome::Nothing) => self.tls_started(place, context),
            Ok(ReadOutcome::End) => {
                self.lost(place, "the server closed the connection", context);
            }
            Err(error) => self.lost(place, &error.to_string(), context),
        }
        false
    }

    /// Handles the input of a connection.
    fn feed(&mut self, place: u32, context: &mut ThreadContext) {
        loop {
            let Some(connection) = self.connections.get_mut(place) else { return };
            match &mut connection.state {
                NotificationState::Opening(opening) => {
                    let NotificationOpening { conn, dial, .. } = &mut **opening;
                    if conn.input.is_empty() {
                        return;
                    }
                    let step = dial.input(conn.input.front(), &mut self.to_server);
                    conn.input.consume(step.consumed, &mut context.freelist);
                    let is_more = matches!(step.next, PgDialNext::More);
                    self.follow_dial(place, step.next, context);
                    if is_more {
                        return;
                    }
                }
                NotificationState::Open(conn) => {
                    let input = conn.input.front();
                    let header = match PgHeader::parse(input) {
                        Ok(Some(header)) if header.total > MESSAGE_BYTES_MAX => {
                            return self.lost(place, "a message is too long", context);
                        }
                        Ok(Some(header)) if header.total <= input.len() => header,
                        Ok(_) => return,
                        Err(error) => return self.lost(place, &error.to_string(), context),
                    };
                    let message = input[..header.total].to_vec();
                    conn.input.consume(header.total, &mut context.freelist);
                    self.received(place, header.tag, &message);
                }
                NotificationState::Lost(_) => return,
            }
        }
    }

    /// Performs an action that a login requests.
    fn follow_dial(&mut self, place: u32, next: PgDialNext, context: &mut ThreadContext) {
        if !matches!(next, PgDialNext::Fail(_)) {
            self.send(place, context);
        }
        match next {
            PgDialNext::More | PgDialNext::Cancelled => {}
            PgDialNext::StartTls => self.start_tls(place, context),
            PgDialNext::Ready(_) => self.opened(place, context),
            PgDialNext::Fail(error) => {
                self.to_server.clear();
                self.lost(place, &error.to_string(), context);
            }
        }
    }

    fn start_tls(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let NotificationState::Opening(opening) = &mut connection.state else { return };
        let address = &connection.tenant.server;
        let begun = context.common.server_tls.connection(&address.tls, &address.address);
        let begun = begun.map_err(io::Error::other).and_then(|tls| {
            opening.is_in_handshake = true;
            opening.conn.socket.start_tls(tls);
            opening.conn.flush(&mut context.freelist, &context.registry)
        });
        if let Err(error) = begun {
            self.lost(place, &error.to_string(), context);
        }
    }

    /// Continues a login after the TLS handshake.
    fn tls_started(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let NotificationState::Opening(opening) = &mut connection.state else { return };
        if !opening.is_in_handshake || opening.conn.socket.is_in_handshake() {
            return;
        }
        opening.is_in_handshake = false;
        let end_point = match opening.conn.socket.tls() {
            Some(Connection::Client(tls)) => tls::end_point(tls),
            Some(Connection::Server(_)) | None => None,
        };
        let next = opening.dial.tls_started(end_point, &mut self.to_server);
        self.follow_dial(place, next, context);
    }

    /// Subscribes a connection that has logged in to all of its channels.
    fn opened(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        match std::mem::replace(&mut connection.state, NotificationState::Lost(None)) {
            NotificationState::Opening(opening) => {
                connection.state = NotificationState::Open(opening.conn)
            }
            other => connection.state = other,
        }
        connection.attempts = 0;
        connection.asked.clear();
        let names: Vec<Arc<str>> = connection.channels.keys().cloned().collect();
        connection.listen(&names, &mut self.to_server);
        self.send(place, context);
        self.close_later(place, context);
    }

    /// Handles one message of a server.
    fn received(&mut self, place: u32, tag: u8, message: &[u8]) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        match tag {
            backend::NOTIFICATION => self.events.extend(connection.notified(body)),
            backend::ERROR => {
                let said = ServerNotice::parse(body).message().into_owned();
                // The requested channels cannot be subscribed to; clients that want them are
                // disconnected. An error without a request announces the end of the connection.
                if let Some(ListenRequest::Listen(names)) = connection.asked.front_mut() {
                    let names = std::mem::take(names);
                    let message = format!("failed to subscribe to the channel: {said}");
                    for name in names {
                        let Some(channel) = connection.channels.remove(&name) else { continue };
                        let (clients, message) = (channel.clients, message.clone());
                        let failed = NotificationEvent::ChannelFailed { clients, message };
                        self.events.push_back(failed);
                    }
                }
            }
            backend::READY_FOR_QUERY => {
                if let Some(ListenRequest::Listen(names)) = connection.asked.pop_front() {
                    for name in names {
                        if let Some(channel) = connection.channels.get_mut(&name) {
                            channel.is_confirmed = true;
                        }
                    }
                }
                let is_done = connection.asked.is_empty();
                if is_done && std::mem::take(&mut connection.missed) {
                    let all = connection.channels.values().flat_map(|it| &it.clients);
                    let clients = all.copied().collect();
                    self.events.push_back(NotificationEvent::Gap { clients });
                }
                let waiting = std::mem::take(&mut connection.waiting).into_iter();
                self.events
                    .extend(waiting.map(|(client, _)| NotificationEvent::Confirmed { client }));
            }
            _ => {}
        }
    }

    /// Sends the statements that were assembled for a server.
    fn send(&mut self, place: u32, context: &mut ThreadContext) {
        let connection = self.connections.get_mut(place);
        let Some(conn) = connection.and_then(NotificationConnection::conn) else {
            return self.to_server.clear();
        };
        let sent = conn.send(&self.to_server, &mut context.freelist, &context.registry);
        self.to_server.clear();
        if let Err(error) = sent {
            self.lost(place, &error.to_string(), context);
        }
    }

    /// Handles the loss of a connection, or a failure to open it.
    pub(super) fn lost(&mut self, place: u32, why: &str, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let shift = connection.attempts.min(16);
        let longest_us = micros(connection.tenant.limits.server_retry);
        let wait_us = (RETRY_FIRST_US << shift).min(longest_us);
        let retry_us = context.now_us + wait_us;
        connection.attempts += 1;
        tracing::info!(tenant = &*connection.tenant.name, why, "lost the connection that listens");
        connection.close(Some(retry_us), context);
        context.timers.arm(TimerKey::Notifier(place).id(), retry_us);
        let message = format!("the connection that listens for clients failed: {why}");
        for (client, serial) in std::mem::take(&mut connection.waiting) {
            let message = message.clone();
            self.events.push_back(NotificationEvent::Failed { client, serial, message });
        }
    }

    /// Arms the timer that closes a connection without subscribers.
    pub(super) fn close_later(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if connection.channels.is_empty() && connection.quiet_us.is_none() {
            connection.quiet_us = Some(context.now_us);
            context.timers.arm(TimerKey::Notifier(place).id(), context.now_us + LINGER_US);
        }
    }

    /// Checks the deadline of a connection.
    pub(super) fn check_deadline(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(connection) = self.connections.get(place) else { return };
        let connect_us = micros(connection.tenant.limits.connect);
        let due_us = match (&connection.state, connection.quiet_us) {
            (NotificationState::Opening(opening), _) => opening.since_us + connect_us,
            (NotificationState::Open(_) | NotificationState::Lost(_), Some(quiet_us)) => {
                quiet_us + LINGER_US
            }
            (NotificationState::Lost(Some(retry_us)), None) => *retry_us,
            (NotificationState::Open(_) | NotificationState::Lost(None), None) => return,
        };
        if due_us > context.now_us {
            return context.timers.arm(TimerKey::Notifier(place).id(), due_us);
        }
        match (&connection.state, connection.quiet_us) {
            (NotificationState::Opening(_), _) => {
                let why = "connecting and logging in took longer than `connect_s`";
                self.lost(place, why, context);
            }
            (NotificationState::Open(_) | NotificationState::Lost(_), Some(_)) => {
                self.remove(place, context)
            }
            (NotificationState::Open(_) | NotificationState::Lost(_), None) => {
                self.events.push_back(NotificationEvent::Open(place))
            }
        }
    }

    /// Removes a connection.
    fn remove(&mut self, place: u32, context: &mut ThreadContext) {
        if let Some(connection) = self.connections.get_mut(place) {
            connection.close(None, context);
        }
        context.timers.disarm(TimerKey::Notifier(place).id());
        self.connections.remove(place);
    }

    /// Updates the connection of a pool after a change of its tenant: it is closed while the tenant
    /// is held, and reopened if earlier connections are unfit.
    pub(super) fn refresh(&mut self, pool: PoolId, context: &mut ThreadContext) {
        let Some(place) = self.of_pool(pool) else { return };
        let Some(connection) = self.connections.get_mut(place) else { return };
        let state = Arc::clone(&connection.tenant.state);
        if state.is_removed() {
            return self.remove(place, context);
        }
        let is_held = state.admission() == WorkAdmission::Paused;
        if is_held || connection.epoch != state.epoch() {
            connection.close(None, context);
        } else if !matches!(connection.state, NotificationState::Lost(None)) {
            return;
        }
        if !is_held && !connection.channels.is_empty() {
            self.events.push_back(NotificationEvent::Open(place));
        }
    }

    /// Closes connections of a tenant that no client uses any more, or all when the thread ends.
    pub(super) fn remove_unused(&mut self, of: Option<TenantId>, context: &mut ThreadContext) {
        for place in self.connections.keys() {
            let is_meant = self.connections.get(place).is_some_and(|it| {
                of.is_none_or(|tenant| it.tenant.id == tenant && it.channels.is_empty())
            });
            if is_meant {
                self.remove(place, context);
            }
        }
    }
}
