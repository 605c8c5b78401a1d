//! Connections that listen: one for each pool of a thread whose clients listen without a server
//! connection of their own.
//!
//! An ear is opened when the first client asks for a channel, to where that client's server
//! connection is, and closed when nobody has listened for a while. It counts among no limits: a
//! tenant whose connections are all in use could not begin to listen otherwise. When it is lost it
//! is opened again, and clients are told that they may have missed something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::Connection;
use wire::pg::frame::{HEADER_BYTES, PgHeader, backend};
use wire::pg::message::frontend;
use wire::pg::notice::ServerNotice;
use wire::pg::sql::quote_identifier;

use super::conn::{EventSource, RelayConnection, SocketReadiness};
use super::server::ConnectTarget;
use super::socket::ReadOutcome;
use super::timers::micros;
use super::worker::{RelayWorker, TimerKey};
use crate::pg::dial::{PgDial, PgDialNext};
use crate::tenants::{PoolId, TenantId, TenantSnapshot, WorkAdmission};
use crate::tls;

/// Time that an ear stays open that nobody needs, in microseconds.
const LINGER_US: u64 = 10_000_000;

/// Wait before a lost ear is opened again, in microseconds; doubles up to the tenant's limit.
const RETRY_FIRST_US: u64 = 250_000;

/// Channels in one text.
const CHANNELS_PER_TEXT_MAX: usize = 64;

/// Longest message of a server that an ear takes: a notification has 8,000 bytes at most.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// A connection that listens for the clients of a pool.
#[derive(Debug)]
pub(super) struct NotificationConnection {
    pub(super) pool: PoolId,
    tenant: Arc<TenantSnapshot>,
    /// The tenant's, when it was opened.
    epoch: u32,
    target: ConnectTarget,
    state: NotificationState,
    /// Channels that it listens to, or will.
    pub(super) channels: BTreeMap<Arc<str>, SubscribedChannel>,
    /// Places and serials of clients that wait until it hears more.
    pub(super) waiting: Vec<(u32, u64)>,
    /// Texts that were sent and not answered.
    asked: VecDeque<ListenRequest>,
    /// True if it was lost while clients listened that do not know yet.
    missed: bool,
    /// Attempts to open it since it last was open.
    attempts: u32,
    /// Since when nobody needs it.
    quiet_us: Option<u64>,
}

/// Phase of a notification connection.
#[derive(Debug)]
enum NotificationState {
    /// Connecting and logging in.
    Opening(Box<NotificationOpening>),
    /// Listening.
    Open(RelayConnection),
    /// To be opened at this time; never while its tenant is held.
    Lost(Option<u64>),
}

#[derive(Debug)]
struct NotificationOpening {
    conn: RelayConnection,
    dial: PgDial,
    connects: bool,
    shakes_hands: bool,
    since_us: u64,
}

/// A channel that an ear listens to.
#[derive(Debug, Default)]
pub(super) struct SubscribedChannel {
    /// The server has said so.
    pub(super) heard: bool,
    /// Places of the clients that it is for.
    pub(super) clients: BTreeSet<u32>,
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

    /// Asks for channels, if it can be asked.
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

    /// Takes a client off a channel; nobody else may need that.
    pub(super) fn forget(&mut self, name: &str, client: u32, out: &mut Vec<u8>) {
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
}

impl RelayWorker {
    /// The ear of a pool, opened beside a server connection of it when there was none.
    pub(super) fn ear_beside(&mut self, server: u32) -> Option<u32> {
        let server = self.servers.get(server)?;
        let pool = server.slot.pool();
        if let Some((place, _)) = self.ears.iter().find(|(_, ear)| ear.pool == pool) {
            return Some(place);
        }
        let ear = NotificationConnection {
            pool,
            tenant: Arc::clone(&server.tenant),
            epoch: server.tenant.state.epoch(),
            target: server.target.clone(),
            state: NotificationState::Lost(None),
            channels: BTreeMap::new(),
            waiting: Vec::new(),
            asked: VecDeque::new(),
            missed: false,
            attempts: 0,
            quiet_us: None,
        };
        let place = self.ears.reserve();
        self.ears.occupy(place, ear);
        Some(place)
    }

    /// Sends what an ear is to ask for `names`; opens the ear when it is not.
    pub(super) fn ask_ear(&mut self, place: u32, names: &[Arc<str>]) {
        let RelayWorker { ears, outbox, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        ear.quiet_us = None;
        match ear.state {
            NotificationState::Open(_) => {
                ear.listen(names, &mut outbox.to_server);
                self.send_to_ear(place);
            }
            NotificationState::Opening(_) => {}
            // It may have been about to be closed for good.
            NotificationState::Lost(Some(retry_us)) => {
                self.ground.timers.arm(TimerKey::Ear(place).id(), retry_us);
            }
            NotificationState::Lost(None) => self.open_ear(place),
        }
    }

    /// Opens an ear that is not.
    fn open_ear(&mut self, place: u32) {
        let Some(ear) = self.ears.get_mut(place) else { return };
        let state = &ear.tenant.state;
        if state.admission() == WorkAdmission::Paused {
            ear.state = NotificationState::Lost(None);
            return;
        }
        if let Some(tenant) = self.routing.now(&ear.tenant) {
            ear.tenant = Arc::clone(tenant);
        }
        ear.epoch = ear.tenant.state.epoch();
        // Names may mean another address by now; who was opened last knows.
        let newest = self.servers.iter().filter(|(_, it)| it.slot.pool() == ear.pool);
        if let Some((_, newest)) = newest.max_by_key(|(_, it)| it.begun_us) {
            ear.target = newest.target.clone();
        }
        let (pool, target) = (ear.pool, ear.target.clone());
        let connect_us = micros(ear.tenant.limits.connect);
        let begun = self.new_pg_dial(pool, &target).and_then(|dial| {
            let socket = target.connect(self.common.config.tcp)?;
            let conn =
                RelayConnection::new(socket, EventSource::Ear(place), true, &self.ground.registry)?;
            Ok((dial, conn))
        });
        match begun {
            Ok((dial, conn)) => {
                let since_us = self.ground.now_us;
                let opening = NotificationOpening {
                    conn,
                    dial,
                    connects: true,
                    shakes_hands: false,
                    since_us,
                };
                if let Some(ear) = self.ears.get_mut(place) {
                    ear.state = NotificationState::Opening(Box::new(opening));
                }
                self.ground.timers.arm(TimerKey::Ear(place).id(), since_us + connect_us);
            }
            Err(error) => self.ear_lost(place, &error.to_string()),
        }
    }

    /// Epoll says something of an ear.
    pub(super) fn ear_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let RelayWorker { ears, outbox, ground, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        let Some(conn) = ear.conn() else { return };
        conn.note(readiness);
        if readiness.writable
            && let NotificationState::Opening(opening) = &mut ear.state
            && opening.connects
        {
            let failed = opening.conn.socket.connect_error().unwrap_or_else(Some);
            if let Some(error) = failed {
                return self.ear_lost(place, &error.to_string());
            }
            if !opening.conn.socket.is_connected() {
                return;
            }
            opening.connects = false;
            let next = opening.dial.start(&mut outbox.to_server);
            return self.follow_ear(place, next);
        }
        if readiness.writable
            && let Some(conn) = ear.conn()
            && let Err(error) = conn.flush(&mut ground.stock, &ground.registry)
        {
            return self.ear_lost(place, &error.to_string());
        }
        self.read_ear(place);
    }

    fn read_ear(&mut self, place: u32) {
        loop {
            let RelayWorker { ears, scratch, ground, .. } = self;
            let Some(ear) = ears.get_mut(place) else { return };
            let Some(conn) = ear.conn().filter(|conn| conn.is_readable()) else { return };
            let count = match conn.read(scratch) {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) => return self.ear_shook_hands(place),
                Ok(ReadOutcome::End) => {
                    return self.ear_lost(place, "the server closed the connection");
                }
                Err(error) => return self.ear_lost(place, &error.to_string()),
            };
            conn.input.push(&scratch[..count], &mut ground.stock);
            self.feed_ear(place);
        }
    }

    /// Handles what an ear has received.
    fn feed_ear(&mut self, place: u32) {
        loop {
            let RelayWorker { ears, outbox, ground, .. } = self;
            let Some(ear) = ears.get_mut(place) else { return };
            match &mut ear.state {
                NotificationState::Opening(opening) => {
                    let NotificationOpening { conn, dial, .. } = &mut **opening;
                    if conn.input.is_empty() {
                        return;
                    }
                    let step = dial.input(conn.input.front(), &mut outbox.to_server);
                    conn.input.consume(step.consumed, &mut ground.stock);
                    let is_more = matches!(step.next, PgDialNext::More);
                    self.follow_ear(place, step.next);
                    if is_more {
                        return;
                    }
                }
                NotificationState::Open(conn) => {
                    let input = conn.input.front();
                    let header = match PgHeader::parse(input) {
                        Ok(Some(header)) if header.total > MESSAGE_BYTES_MAX => {
                            return self.ear_lost(place, "a message is too long");
                        }
                        Ok(Some(header)) if header.total <= input.len() => header,
                        Ok(_) => return,
                        Err(error) => return self.ear_lost(place, &error.to_string()),
                    };
                    let message = input[..header.total].to_vec();
                    conn.input.consume(header.total, &mut ground.stock);
                    self.ear_heard(place, header.tag, &message);
                }
                NotificationState::Lost(_) => return,
            }
        }
    }

    /// Does what a step of an ear's login asks for.
    fn follow_ear(&mut self, place: u32, next: PgDialNext) {
        if !matches!(next, PgDialNext::Fail(_)) {
            self.send_to_ear(place);
        }
        match next {
            PgDialNext::More | PgDialNext::Cancelled => {}
            PgDialNext::StartTls => self.ear_shakes_hands(place),
            PgDialNext::Ready(_) => self.ear_opened(place),
            PgDialNext::Fail(error) => {
                self.outbox.to_server.clear();
                self.ear_lost(place, &error.to_string());
            }
        }
    }

    fn ear_shakes_hands(&mut self, place: u32) {
        let RelayWorker { ears, ground, common, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        let NotificationState::Opening(opening) = &mut ear.state else { return };
        let address = &ear.tenant.server;
        let begun = common.server_tls.connection(&address.tls, &address.address);
        let begun = begun.map_err(io::Error::other).and_then(|tls| {
            opening.shakes_hands = true;
            opening.conn.socket.start_tls(tls);
            opening.conn.flush(&mut ground.stock, &ground.registry)
        });
        if let Err(error) = begun {
            self.ear_lost(place, &error.to_string());
        }
    }

    /// Goes on with a login once the handshake of TLS is done.
    fn ear_shook_hands(&mut self, place: u32) {
        let RelayWorker { ears, outbox, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        let NotificationState::Opening(opening) = &mut ear.state else { return };
        if !opening.shakes_hands || opening.conn.socket.is_shaking_hands() {
            return;
        }
        opening.shakes_hands = false;
        let end_point = match opening.conn.socket.tls() {
            Some(Connection::Client(tls)) => tls::end_point(tls),
            Some(Connection::Server(_)) | None => None,
        };
        let next = opening.dial.tls_started(end_point, &mut outbox.to_server);
        self.follow_ear(place, next);
    }

    /// An ear has logged in: it listens to everything that it is to.
    fn ear_opened(&mut self, place: u32) {
        let RelayWorker { ears, outbox, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        match std::mem::replace(&mut ear.state, NotificationState::Lost(None)) {
            NotificationState::Opening(opening) => {
                ear.state = NotificationState::Open(opening.conn)
            }
            other => ear.state = other,
        }
        ear.attempts = 0;
        ear.asked.clear();
        let names: Vec<Arc<str>> = ear.channels.keys().cloned().collect();
        ear.listen(&names, &mut outbox.to_server);
        self.send_to_ear(place);
        self.ear_may_rest(place);
    }

    /// Handles one message of an ear's server.
    fn ear_heard(&mut self, place: u32, tag: u8, message: &[u8]) {
        let Some(ear) = self.ears.get_mut(place) else { return };
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        match tag {
            backend::NOTIFICATION => self.spread(place, message),
            backend::ERROR => {
                let said = ServerNotice::parse(body).message().into_owned();
                // What it answers cannot be heard; whoever wants that goes. An error that answers
                // nothing announces the end of the connection.
                if let Some(ListenRequest::Listen(names)) = ear.asked.front_mut() {
                    let names = std::mem::take(names);
                    self.cannot_hear(place, &names, &said);
                }
            }
            backend::READY_FOR_QUERY => {
                if let Some(ListenRequest::Listen(names)) = ear.asked.pop_front() {
                    for name in names {
                        if let Some(channel) = ear.channels.get_mut(&name) {
                            channel.heard = true;
                        }
                    }
                }
                let is_done = ear.asked.is_empty();
                if is_done && std::mem::take(&mut ear.missed) {
                    self.tell_of_gap(place);
                }
                self.wake_waiting(place);
            }
            _ => {}
        }
    }

    /// Lets the clients look again that waited for what an ear hears.
    fn wake_waiting(&mut self, place: u32) {
        let Some(ear) = self.ears.get_mut(place) else { return };
        for (client, _) in std::mem::take(&mut ear.waiting) {
            self.unstall(client);
        }
    }

    /// Sends what was assembled for an ear.
    pub(super) fn send_to_ear(&mut self, place: u32) {
        let RelayWorker { ears, outbox, ground, .. } = self;
        let Some(conn) = ears.get_mut(place).and_then(NotificationConnection::conn) else {
            return outbox.to_server.clear();
        };
        let sent = conn.send(&outbox.to_server, &mut ground.stock, &ground.registry);
        outbox.to_server.clear();
        if let Err(error) = sent {
            self.ear_lost(place, &error.to_string());
        }
    }

    /// An ear does not listen any more, or cannot be opened.
    fn ear_lost(&mut self, place: u32, why: &str) {
        let RelayWorker { ears, ground, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        let shift = ear.attempts.min(16);
        let longest_us = micros(ear.tenant.limits.server_retry);
        let wait_us = (RETRY_FIRST_US << shift).min(longest_us);
        let retry_us = ground.now_us + wait_us;
        ear.attempts += 1;
        tracing::info!(tenant = &*ear.tenant.name, why, "lost the connection that listens");
        self.ear_closed(place, Some(retry_us));
        self.ground.timers.arm(TimerKey::Ear(place).id(), retry_us);
        let Some(ear) = self.ears.get_mut(place) else { return };
        let message = format!("the connection that listens for clients failed: {why}");
        for (client, serial) in std::mem::take(&mut ear.waiting) {
            self.cannot_listen(client, serial, &message);
        }
    }

    /// Takes the connection of an ear away. What it hears is nothing.
    fn ear_closed(&mut self, place: u32, retry_us: Option<u64>) {
        let RelayWorker { ears, ground, .. } = self;
        let Some(ear) = ears.get_mut(place) else { return };
        ear.asked.clear();
        for channel in ear.channels.values_mut() {
            ear.missed |= std::mem::take(&mut channel.heard);
        }
        match std::mem::replace(&mut ear.state, NotificationState::Lost(retry_us)) {
            NotificationState::Opening(opening) => opening.conn.close(&mut ground.stock),
            NotificationState::Open(conn) => conn.close(&mut ground.stock),
            NotificationState::Lost(_) => {}
        }
    }

    /// Lets an ear rest that nobody needs any more.
    pub(super) fn ear_may_rest(&mut self, place: u32) {
        let now_us = self.ground.now_us;
        let Some(ear) = self.ears.get_mut(place) else { return };
        if ear.channels.is_empty() && ear.quiet_us.is_none() {
            ear.quiet_us = Some(now_us);
            self.ground.timers.arm(TimerKey::Ear(place).id(), now_us + LINGER_US);
        }
    }

    /// Looks at an ear whose time may be up.
    pub(super) fn look_at_ear(&mut self, place: u32) {
        let now_us = self.ground.now_us;
        let Some(ear) = self.ears.get(place) else { return };
        let connect_us = micros(ear.tenant.limits.connect);
        let due_us = match (&ear.state, ear.quiet_us) {
            (NotificationState::Opening(opening), _) => opening.since_us + connect_us,
            (NotificationState::Open(_) | NotificationState::Lost(_), Some(quiet_us)) => {
                quiet_us + LINGER_US
            }
            (NotificationState::Lost(Some(retry_us)), None) => *retry_us,
            (NotificationState::Open(_) | NotificationState::Lost(None), None) => return,
        };
        if due_us > now_us {
            return self.ground.timers.arm(TimerKey::Ear(place).id(), due_us);
        }
        match (&ear.state, ear.quiet_us) {
            (NotificationState::Opening(_), _) => {
                self.ear_lost(place, "connecting and logging in took longer than `connect_s`");
            }
            (NotificationState::Open(_) | NotificationState::Lost(_), Some(_)) => {
                self.end_ear(place)
            }
            (NotificationState::Open(_) | NotificationState::Lost(_), None) => self.open_ear(place),
        }
    }

    /// Ends an ear for good.
    fn end_ear(&mut self, place: u32) {
        self.ear_closed(place, None);
        self.ground.timers.disarm(TimerKey::Ear(place).id());
        self.ears.remove(place);
    }

    /// Brings the ear of a pool up to date with its tenant: closed while that is held, opened anew
    /// when connections from before are unfit.
    pub(super) fn tend_ear(&mut self, pool: PoolId) {
        let Some((place, ear)) = self.ears.iter().find(|(_, ear)| ear.pool == pool) else { return };
        let state = &ear.tenant.state;
        if state.is_removed() {
            return self.end_ear(place);
        }
        let is_held = state.admission() == WorkAdmission::Paused;
        if is_held || ear.epoch != state.epoch() {
            self.ear_closed(place, None);
        } else if !matches!(ear.state, NotificationState::Lost(None)) {
            return;
        }
        let is_needed = self.ears.get(place).is_some_and(|ear| !ear.channels.is_empty());
        if !is_held && is_needed {
            self.open_ear(place);
        }
    }

    /// Closes ears at the end of the thread, or those of a tenant that nobody needs any more.
    pub(super) fn end_ears(&mut self, of: Option<TenantId>) {
        for place in self.ears.keys() {
            let ear = self.ears.get(place);
            let is_meant = ear.is_some_and(|ear| {
                of.is_none_or(|tenant| ear.tenant.id == tenant && ear.channels.is_empty())
            });
            if is_meant {
                self.end_ear(place);
            }
        }
    }
}
