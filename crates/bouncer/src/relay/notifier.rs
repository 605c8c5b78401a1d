//! Notifiers: the server connections that listen for a pool's clients, which hold none of their
//! own. A thread has at most one for each pool.
//!
//! A notifier is opened when the first client asks for a channel, to where that client's server
//! connection is, and closed when nobody has listened for a while. It counts toward no limit: a
//! tenant whose connections are all in use could not begin to listen otherwise. A lost notifier is
//! opened again, and clients are told that they may have missed notifications.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use pooler_core::pg::dial::{PgDial, PgDialNext};
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
use crate::tenants::{PoolId, TenantId, TenantSnapshot, WorkAdmission};
use crate::tls;

/// Time that a notifier without subscribers stays open, in microseconds.
const LINGER_US: u64 = 10_000_000;

/// Wait before a lost notifier is opened again, in microseconds; doubles up to the tenant's limit.
const RETRY_FIRST_US: u64 = 250_000;

/// Channels in one text.
const CHANNELS_PER_TEXT_MAX: usize = 64;

/// Longest message of a server that a notifier takes: a notification has 8,000 bytes at most.
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
    /// Places and serials of clients that wait for channels to be confirmed.
    pub(super) waiting: Vec<(u32, u64)>,
    /// Texts that were sent and not answered.
    asked: VecDeque<ListenRequest>,
    /// True if it was lost while clients listened, and they were not told yet.
    missed: bool,
    /// Attempts to open it since it last was open.
    attempts: u32,
    /// Since when it has no subscribers.
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
    is_in_handshake: bool,
    since_us: u64,
}

/// A channel that a notifier listens to.
#[derive(Debug, Default)]
pub(super) struct SubscribedChannel {
    /// The server has said so.
    pub(super) is_confirmed: bool,
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
    /// The notifier of a pool, opened beside a server connection of it when there was none.
    pub(super) fn notifier_of_pool(&mut self, server: u32) -> Option<u32> {
        let server = self.servers.get(server)?;
        let pool = server.slot.pool();
        if let Some((place, _)) = self.notifiers.iter().find(|(_, notifier)| notifier.pool == pool)
        {
            return Some(place);
        }
        let notifier = NotificationConnection {
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
        let place = self.notifiers.reserve();
        self.notifiers.occupy(place, notifier);
        Some(place)
    }

    /// Subscribes a notifier to channels; opens the notifier if it is not open.
    pub(super) fn request_channels(&mut self, place: u32, names: &[Arc<str>]) {
        let RelayWorker { notifiers, outbox, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        notifier.quiet_us = None;
        match notifier.state {
            NotificationState::Open(_) => {
                notifier.listen(names, &mut outbox.to_server);
                self.send_to_notifier(place);
            }
            NotificationState::Opening(_) => {}
            // It may have been about to be closed for good.
            NotificationState::Lost(Some(retry_us)) => {
                self.context.timers.arm(TimerKey::Notifier(place).id(), retry_us);
            }
            NotificationState::Lost(None) => self.open_notifier(place),
        }
    }

    /// Opens a notifier that is lost or new.
    fn open_notifier(&mut self, place: u32) {
        let Some(notifier) = self.notifiers.get_mut(place) else { return };
        let state = &notifier.tenant.state;
        if state.admission() == WorkAdmission::Paused {
            notifier.state = NotificationState::Lost(None);
            return;
        }
        if let Some(tenant) = self.routing.now(&notifier.tenant) {
            notifier.tenant = Arc::clone(tenant);
        }
        notifier.epoch = notifier.tenant.state.epoch();
        // Names may mean another address by now; who was opened last knows.
        let newest = self.servers.iter().filter(|(_, it)| it.slot.pool() == notifier.pool);
        if let Some((_, newest)) = newest.max_by_key(|(_, it)| it.begun_us) {
            notifier.target = newest.target.clone();
        }
        let (pool, target) = (notifier.pool, notifier.target.clone());
        let connect_us = micros(notifier.tenant.limits.connect);
        let begun = self.new_pg_dial(pool, &target).and_then(|dial| {
            let socket = target.connect(self.common.config.tcp)?;
            let conn = RelayConnection::new(
                socket,
                EventSource::Notifier(place),
                true,
                &self.context.registry,
            )?;
            Ok((dial, conn))
        });
        match begun {
            Ok((dial, conn)) => {
                let since_us = self.context.now_us;
                let opening = NotificationOpening {
                    conn,
                    dial,
                    connects: true,
                    is_in_handshake: false,
                    since_us,
                };
                if let Some(notifier) = self.notifiers.get_mut(place) {
                    notifier.state = NotificationState::Opening(Box::new(opening));
                }
                self.context.timers.arm(TimerKey::Notifier(place).id(), since_us + connect_us);
            }
            Err(error) => self.notifier_lost(place, &error.to_string()),
        }
    }

    /// Handles an event of epoll for a notifier.
    pub(super) fn notifier_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let RelayWorker { notifiers, outbox, context, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        let Some(conn) = notifier.conn() else { return };
        conn.note(readiness);
        if readiness.writable
            && let NotificationState::Opening(opening) = &mut notifier.state
            && opening.connects
        {
            let failed = opening.conn.socket.connect_error().unwrap_or_else(Some);
            if let Some(error) = failed {
                return self.notifier_lost(place, &error.to_string());
            }
            if !opening.conn.socket.is_connected() {
                return;
            }
            opening.connects = false;
            let next = opening.dial.start(&mut outbox.to_server);
            return self.follow_notifier_dial(place, next);
        }
        if readiness.writable
            && let Some(conn) = notifier.conn()
            && let Err(error) = conn.flush(&mut context.freelist, &context.registry)
        {
            return self.notifier_lost(place, &error.to_string());
        }
        self.read_notifier(place);
    }

    fn read_notifier(&mut self, place: u32) {
        loop {
            let RelayWorker { notifiers, scratch, context, .. } = self;
            let Some(notifier) = notifiers.get_mut(place) else { return };
            let Some(conn) = notifier.conn().filter(|conn| conn.is_readable()) else { return };
            let count = match conn.read(scratch) {
                Ok(ReadOutcome::Data { count, .. }) => count,
                Ok(ReadOutcome::Nothing) => return self.notifier_tls_started(place),
                Ok(ReadOutcome::End) => {
                    return self.notifier_lost(place, "the server closed the connection");
                }
                Err(error) => return self.notifier_lost(place, &error.to_string()),
            };
            conn.input.push(&scratch[..count], &mut context.freelist);
            self.feed_notifier(place);
        }
    }

    /// Handles what a notifier has received.
    fn feed_notifier(&mut self, place: u32) {
        loop {
            let RelayWorker { notifiers, outbox, context, .. } = self;
            let Some(notifier) = notifiers.get_mut(place) else { return };
            match &mut notifier.state {
                NotificationState::Opening(opening) => {
                    let NotificationOpening { conn, dial, .. } = &mut **opening;
                    if conn.input.is_empty() {
                        return;
                    }
                    let step = dial.input(conn.input.front(), &mut outbox.to_server);
                    conn.input.consume(step.consumed, &mut context.freelist);
                    let is_more = matches!(step.next, PgDialNext::More);
                    self.follow_notifier_dial(place, step.next);
                    if is_more {
                        return;
                    }
                }
                NotificationState::Open(conn) => {
                    let input = conn.input.front();
                    let header = match PgHeader::parse(input) {
                        Ok(Some(header)) if header.total > MESSAGE_BYTES_MAX => {
                            return self.notifier_lost(place, "a message is too long");
                        }
                        Ok(Some(header)) if header.total <= input.len() => header,
                        Ok(_) => return,
                        Err(error) => return self.notifier_lost(place, &error.to_string()),
                    };
                    let message = input[..header.total].to_vec();
                    conn.input.consume(header.total, &mut context.freelist);
                    self.notifier_received(place, header.tag, &message);
                }
                NotificationState::Lost(_) => return,
            }
        }
    }

    /// Does what a step of a notifier's login asks for.
    fn follow_notifier_dial(&mut self, place: u32, next: PgDialNext) {
        if !matches!(next, PgDialNext::Fail(_)) {
            self.send_to_notifier(place);
        }
        match next {
            PgDialNext::More | PgDialNext::Cancelled => {}
            PgDialNext::StartTls => self.start_notifier_tls(place),
            PgDialNext::Ready(_) => self.notifier_opened(place),
            PgDialNext::Fail(error) => {
                self.outbox.to_server.clear();
                self.notifier_lost(place, &error.to_string());
            }
        }
    }

    fn start_notifier_tls(&mut self, place: u32) {
        let RelayWorker { notifiers, context, common, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        let NotificationState::Opening(opening) = &mut notifier.state else { return };
        let address = &notifier.tenant.server;
        let begun = common.server_tls.connection(&address.tls, &address.address);
        let begun = begun.map_err(io::Error::other).and_then(|tls| {
            opening.is_in_handshake = true;
            opening.conn.socket.start_tls(tls);
            opening.conn.flush(&mut context.freelist, &context.registry)
        });
        if let Err(error) = begun {
            self.notifier_lost(place, &error.to_string());
        }
    }

    /// Goes on with a login once the handshake of TLS is done.
    fn notifier_tls_started(&mut self, place: u32) {
        let RelayWorker { notifiers, outbox, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        let NotificationState::Opening(opening) = &mut notifier.state else { return };
        if !opening.is_in_handshake || opening.conn.socket.is_in_handshake() {
            return;
        }
        opening.is_in_handshake = false;
        let end_point = match opening.conn.socket.tls() {
            Some(Connection::Client(tls)) => tls::end_point(tls),
            Some(Connection::Server(_)) | None => None,
        };
        let next = opening.dial.tls_started(end_point, &mut outbox.to_server);
        self.follow_notifier_dial(place, next);
    }

    /// Subscribes a notifier that has logged in to all of its channels.
    fn notifier_opened(&mut self, place: u32) {
        let RelayWorker { notifiers, outbox, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        match std::mem::replace(&mut notifier.state, NotificationState::Lost(None)) {
            NotificationState::Opening(opening) => {
                notifier.state = NotificationState::Open(opening.conn)
            }
            other => notifier.state = other,
        }
        notifier.attempts = 0;
        notifier.asked.clear();
        let names: Vec<Arc<str>> = notifier.channels.keys().cloned().collect();
        notifier.listen(&names, &mut outbox.to_server);
        self.send_to_notifier(place);
        self.close_notifier_later(place);
    }

    /// Handles one message of a notifier's server.
    fn notifier_received(&mut self, place: u32, tag: u8, message: &[u8]) {
        let Some(notifier) = self.notifiers.get_mut(place) else { return };
        let body = message.get(HEADER_BYTES..).unwrap_or_default();
        match tag {
            backend::NOTIFICATION => self.deliver_notification(place, message),
            backend::ERROR => {
                let said = ServerNotice::parse(body).message().into_owned();
                // The channels it answers cannot be subscribed to; who wants them is disconnected.
                // An error that answers nothing announces the end of the connection.
                if let Some(ListenRequest::Listen(names)) = notifier.asked.front_mut() {
                    let names = std::mem::take(names);
                    self.fail_channels(place, &names, &said);
                }
            }
            backend::READY_FOR_QUERY => {
                if let Some(ListenRequest::Listen(names)) = notifier.asked.pop_front() {
                    for name in names {
                        if let Some(channel) = notifier.channels.get_mut(&name) {
                            channel.is_confirmed = true;
                        }
                    }
                }
                let is_done = notifier.asked.is_empty();
                if is_done && std::mem::take(&mut notifier.missed) {
                    self.report_gap(place);
                }
                self.wake_waiting(place);
            }
            _ => {}
        }
    }

    /// Lets the clients go on that waited for channels to be confirmed.
    fn wake_waiting(&mut self, place: u32) {
        let Some(notifier) = self.notifiers.get_mut(place) else { return };
        for (client, _) in std::mem::take(&mut notifier.waiting) {
            self.unstall(client);
        }
    }

    /// Sends what was assembled for a notifier.
    pub(super) fn send_to_notifier(&mut self, place: u32) {
        let RelayWorker { notifiers, outbox, context, .. } = self;
        let Some(conn) = notifiers.get_mut(place).and_then(NotificationConnection::conn) else {
            return outbox.to_server.clear();
        };
        let sent = conn.send(&outbox.to_server, &mut context.freelist, &context.registry);
        outbox.to_server.clear();
        if let Err(error) = sent {
            self.notifier_lost(place, &error.to_string());
        }
    }

    /// Handles the loss of a notifier, or that it could not be opened.
    fn notifier_lost(&mut self, place: u32, why: &str) {
        let RelayWorker { notifiers, context, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        let shift = notifier.attempts.min(16);
        let longest_us = micros(notifier.tenant.limits.server_retry);
        let wait_us = (RETRY_FIRST_US << shift).min(longest_us);
        let retry_us = context.now_us + wait_us;
        notifier.attempts += 1;
        tracing::info!(tenant = &*notifier.tenant.name, why, "lost the connection that listens");
        self.notifier_closed(place, Some(retry_us));
        self.context.timers.arm(TimerKey::Notifier(place).id(), retry_us);
        let Some(notifier) = self.notifiers.get_mut(place) else { return };
        let message = format!("the connection that listens for clients failed: {why}");
        for (client, serial) in std::mem::take(&mut notifier.waiting) {
            self.fail_subscription(client, serial, &message);
        }
    }

    /// Closes the connection of a notifier. None of its channels is confirmed any more.
    fn notifier_closed(&mut self, place: u32, retry_us: Option<u64>) {
        let RelayWorker { notifiers, context, .. } = self;
        let Some(notifier) = notifiers.get_mut(place) else { return };
        notifier.asked.clear();
        for channel in notifier.channels.values_mut() {
            notifier.missed |= std::mem::take(&mut channel.is_confirmed);
        }
        match std::mem::replace(&mut notifier.state, NotificationState::Lost(retry_us)) {
            NotificationState::Opening(opening) => opening.conn.close(&mut context.freelist),
            NotificationState::Open(conn) => conn.close(&mut context.freelist),
            NotificationState::Lost(_) => {}
        }
    }

    /// Arms the timer that closes a notifier without subscribers.
    pub(super) fn close_notifier_later(&mut self, place: u32) {
        let now_us = self.context.now_us;
        let Some(notifier) = self.notifiers.get_mut(place) else { return };
        if notifier.channels.is_empty() && notifier.quiet_us.is_none() {
            notifier.quiet_us = Some(now_us);
            self.context.timers.arm(TimerKey::Notifier(place).id(), now_us + LINGER_US);
        }
    }

    /// Checks a notifier whose deadline may have passed.
    pub(super) fn check_notifier_deadline(&mut self, place: u32) {
        let now_us = self.context.now_us;
        let Some(notifier) = self.notifiers.get(place) else { return };
        let connect_us = micros(notifier.tenant.limits.connect);
        let due_us = match (&notifier.state, notifier.quiet_us) {
            (NotificationState::Opening(opening), _) => opening.since_us + connect_us,
            (NotificationState::Open(_) | NotificationState::Lost(_), Some(quiet_us)) => {
                quiet_us + LINGER_US
            }
            (NotificationState::Lost(Some(retry_us)), None) => *retry_us,
            (NotificationState::Open(_) | NotificationState::Lost(None), None) => return,
        };
        if due_us > now_us {
            return self.context.timers.arm(TimerKey::Notifier(place).id(), due_us);
        }
        match (&notifier.state, notifier.quiet_us) {
            (NotificationState::Opening(_), _) => {
                self.notifier_lost(place, "connecting and logging in took longer than `connect_s`");
            }
            (NotificationState::Open(_) | NotificationState::Lost(_), Some(_)) => {
                self.remove_notifier(place)
            }
            (NotificationState::Open(_) | NotificationState::Lost(_), None) => {
                self.open_notifier(place)
            }
        }
    }

    /// Removes a notifier.
    fn remove_notifier(&mut self, place: u32) {
        self.notifier_closed(place, None);
        self.context.timers.disarm(TimerKey::Notifier(place).id());
        self.notifiers.remove(place);
    }

    /// Brings the notifier of a pool up to date with its tenant: closed while that is held, opened
    /// anew when connections from before are unfit.
    pub(super) fn refresh_notifier(&mut self, pool: PoolId) {
        let Some((place, notifier)) =
            self.notifiers.iter().find(|(_, notifier)| notifier.pool == pool)
        else {
            return;
        };
        let state = &notifier.tenant.state;
        if state.is_removed() {
            return self.remove_notifier(place);
        }
        let is_held = state.admission() == WorkAdmission::Paused;
        if is_held || notifier.epoch != state.epoch() {
            self.notifier_closed(place, None);
        } else if !matches!(notifier.state, NotificationState::Lost(None)) {
            return;
        }
        let is_needed =
            self.notifiers.get(place).is_some_and(|notifier| !notifier.channels.is_empty());
        if !is_held && is_needed {
            self.open_notifier(place);
        }
    }

    /// Closes notifiers at the end of the thread, or those of a tenant that nobody needs any more.
    pub(super) fn remove_notifiers(&mut self, of: Option<TenantId>) {
        for place in self.notifiers.keys() {
            let notifier = self.notifiers.get(place);
            let is_meant = notifier.is_some_and(|notifier| {
                of.is_none_or(|tenant| notifier.tenant.id == tenant && notifier.channels.is_empty())
            });
            if is_meant {
                self.remove_notifier(place);
            }
        }
    }
}
