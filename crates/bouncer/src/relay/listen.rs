//! `LISTEN` for clients that hold no server connection: their channel subscriptions, and the
//! delivery of notifications.
//!
//! The channels of a client are known to its link (`pg::listening`). Here the notification
//! connection of its pool subscribes to a channel before the client's statement is forwarded, and
//! each notification is queued for the clients that listen when it arrives.
//!
//! As with a server, a client receives notifications only outside of transactions and between
//! messages; until then they are queued. A notification that arrives while the transaction with the
//! `LISTEN` commits is queued until the outcome is known: the two arrive on different connections,
//! and the notification may have been sent after the commit. Nothing is dropped: a client that does
//! not read its notifications is disconnected, with the reason.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/sql-listen.html>

use std::collections::VecDeque;
use std::sync::Arc;

use pooler_core::pg::client::PgClientSession;
use wire::pg::frame::put_header;
use wire::pg::message::{ErrorFields, NoticeSeverity, backend};

use super::client::{ClientLogin, ServerAttachment};
use super::clients::ClientConnections;
use super::conn::{EventSource, RelayConnection, SocketReadiness};
use super::context::ThreadContext;
use super::notifier::{NotificationConnections, NotificationEvent};
use super::server::RelayServer;
use super::servers::ServerConnections;
use super::subscriber::{ChannelEvent, ChannelNotification, ChannelSubscriber, SubscriptionState};
use crate::tenants::{PoolId, TenantId, TenantSnapshot};

/// Maximum bytes of notifications that are held for one client.
pub(super) const NOTIFICATION_BYTES_MAX: usize = 1024 * 1024;

/// Client to disconnect, with the reason.
#[derive(Debug)]
pub(super) struct FailedSubscriber {
    /// Slot of the client.
    pub(super) client: u32,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

/// State of the thread that subscriptions act on.
#[derive(Debug)]
pub(super) struct SubscriberIo<'a> {
    pub(super) clients: &'a mut ClientConnections,
    pub(super) servers: &'a ServerConnections,
    pub(super) context: &'a mut ThreadContext,
}

/// The subscriptions of a thread's clients.
#[derive(Debug)]
pub(super) struct ChannelSubscriptions {
    notifications: NotificationConnections,
    /// Clients that the thread has yet to disconnect.
    failed: VecDeque<FailedSubscriber>,
}

impl ChannelSubscriptions {
    /// Creates a table without subscriptions.
    pub(super) fn new() -> ChannelSubscriptions {
        let (notifications, failed) = (NotificationConnections::new(), VecDeque::new());
        ChannelSubscriptions { notifications, failed }
    }

    /// Returns the first client to disconnect.
    #[inline]
    pub(super) fn next_failed(&mut self) -> Option<FailedSubscriber> {
        self.failed.pop_front()
    }

    /// Makes released slots available again, at the end of a turn.
    pub(super) fn turn(&mut self) {
        self.notifications.turn();
    }

    /// Checks the deadline of a notification connection.
    pub(super) fn check_deadline(&mut self, place: u32, io: &mut SubscriberIo<'_>) {
        self.notifications.check_deadline(place, io.context);
        self.apply_events(io);
    }

    /// Updates the notification connection of a pool after a change of its tenant.
    pub(super) fn refresh(&mut self, pool: PoolId, io: &mut SubscriberIo<'_>) {
        self.notifications.refresh(pool, io.context);
        self.apply_events(io);
    }

    /// Closes the notification connections of a tenant that no client uses any more, or all when
    /// the thread ends.
    pub(super) fn remove_unused(&mut self, of: Option<TenantId>, context: &mut ThreadContext) {
        self.notifications.remove_unused(of, context);
    }

    /// Subscribes the pool's notification connection to the channels that a client starts to listen
    /// to.
    pub(super) fn subscribe(&mut self, place: u32, io: &mut SubscriberIo<'_>) -> SubscriptionState {
        let SubscriberIo { clients, servers, context } = io;
        let notifications = &mut self.notifications;
        let Some(client) = clients.get_mut(place) else { return SubscriptionState::No };
        let serial = client.serial;
        let Some(session) = client.session() else { return SubscriptionState::No };
        let ServerAttachment::Attached(server) = session.place else {
            return SubscriptionState::No;
        };
        let Some(server) = servers.get(server) else { return SubscriptionState::No };
        let pool = server.slot.pool();
        let known = session.subscriber.as_ref().map(|subscriber| subscriber.notifier);
        let known = known.filter(|known| notifications.is_of_pool(*known, pool));
        let connection = known.or_else(|| notifications.of_pool(pool)).unwrap_or_else(|| {
            notifications.add(pool, Arc::clone(&server.tenant), server.target.clone())
        });
        let subscriber = session.subscriber.get_or_insert_with(|| ChannelSubscriber::boxed(place));
        subscriber.notifier = connection;
        let (mut is_confirmed, mut unknown) = (true, Vec::new());
        let Some(link) = session.link.pg_mut() else { return SubscriptionState::No };
        for wanted in link.wanted_channels() {
            let (new, confirmed) = notifications.subscribe(connection, place, wanted, &mut unknown);
            subscriber.channels.extend(new);
            is_confirmed &= confirmed;
        }
        if is_confirmed {
            link.channels_confirmed();
            subscriber.version = link.channels_version();
            return SubscriptionState::Yes;
        }
        session.is_stalled = true;
        notifications.await_channels(connection, (place, serial), &unknown, context);
        self.apply_events(io);
        SubscriptionState::Waits
    }

    /// Handles a possible change of a client's channels, or of whether it can receive
    /// notifications.
    #[inline]
    pub(super) fn update(&mut self, place: u32, io: &mut SubscriberIo<'_>) {
        let SubscriberIo { clients, context, .. } = io;
        let notifications = &mut self.notifications;
        let Some(session) = clients.session(place) else { return };
        let Some(subscriber) = &mut session.subscriber else { return };
        let Some(link) = session.link.pg() else { return };
        let version = link.channels_version();
        if subscriber.version != version {
            subscriber.version = version;
            let is_needed = |name: &Arc<str>| {
                link.needs_channel(name) || link.wanted_channels().iter().any(|it| **it == **name)
            };
            let connection = subscriber.notifier;
            let (kept, left): (Vec<_>, Vec<_>) =
                std::mem::take(&mut subscriber.channels).into_iter().partition(is_needed);
            // A connection that was lost has no channels.
            if notifications.unsubscribe(connection, place, left.iter(), context) {
                subscriber.channels = kept;
            }
            self.apply_events(io);
        }
        ChannelSubscriptions::send_events(place, io);
    }

    /// Removes the subscriptions of a session that has ended.
    pub(super) fn unsubscribe(
        &mut self,
        subscriber: &ChannelSubscriber,
        io: &mut SubscriberIo<'_>,
    ) {
        let channels = subscriber.channels.iter();
        let client = subscriber.client;
        let _is_there =
            self.notifications.unsubscribe(subscriber.notifier, client, channels, io.context);
        self.apply_events(io);
    }

    /// Handles an event of epoll for a notification connection.
    pub(super) fn ready(
        &mut self,
        place: u32,
        readiness: SocketReadiness,
        io: &mut SubscriberIo<'_>,
    ) {
        self.notifications.ready(place, readiness, io.context);
        self.apply_events(io);
    }

    /// Reads a notification connection once. Returns whether there may be more.
    pub(super) fn read(&mut self, place: u32, io: &mut SubscriberIo<'_>) -> bool {
        let is_read = self.notifications.read(place, io.context);
        self.apply_events(io);
        is_read
    }

    /// Handles the events of notification connections.
    fn apply_events(&mut self, io: &mut SubscriberIo<'_>) {
        // Disconnecting a client because of one event unsubscribes it: the resulting events are
        // handled after those already queued, which other clients have yet to receive.
        if !self.notifications.begin_events() {
            return;
        }
        while let Some(event) = self.notifications.next_event() {
            match event {
                NotificationEvent::Open(place) => self.open(place, io),
                NotificationEvent::Confirmed { client } => io.clients.unstall(client, io.context),
                NotificationEvent::Failed { client, serial, message } => {
                    self.fail(client, serial, message, io);
                }
                NotificationEvent::ChannelFailed { clients, message } => {
                    for client in clients {
                        // The connection that listens for the client failed: drivers log in again.
                        self.failed.push_back(FailedSubscriber {
                            client,
                            code: "08006",
                            message: message.clone(),
                            hint: None,
                        });
                    }
                }
                NotificationEvent::Notified { pool, channel, clients, pid, rest } => {
                    let sender = io.context.common.holders.sender(pool, pid, io.context.now_us);
                    let notification = Arc::new(ChannelNotification { channel, sender, rest });
                    let event = ChannelEvent::Notification(notification);
                    for client in clients {
                        self.queue_event(client, &event, io);
                    }
                }
                NotificationEvent::Gap { clients } => {
                    for client in clients {
                        let session = io.clients.session(client);
                        let link = session.and_then(|session| session.link.pg());
                        if link.is_some_and(|link| !link.channels().is_empty()) {
                            self.queue_event(client, &ChannelEvent::Gap, io);
                        }
                    }
                }
            }
        }
    }

    /// Opens a notification connection that is lost or new.
    fn open(&mut self, place: u32, io: &mut SubscriberIo<'_>) {
        let Some(pool) = self.notifications.pool(place) else { return };
        // Names may have other addresses by now; the connection opened last has the current one.
        let newest = io.servers.iter().filter(|(_, it)| it.slot.pool() == pool);
        let newest = newest.max_by_key(|(_, it)| it.begun_us).map(|(_, it)| it.target.clone());
        let now = |tenant: &Arc<TenantSnapshot>| io.context.routing.now(tenant).cloned();
        let Some(target) = self.notifications.begin_opening(place, now, newest) else { return };
        let begun = io.servers.pg_dial(pool, &target).and_then(|dial| {
            let socket = target.connect(io.context.common.config.tcp)?;
            let source = EventSource::Notifier(place);
            let conn = RelayConnection::new(socket, source, true, &io.context.registry)?;
            Ok((dial, conn))
        });
        let notifications = &mut self.notifications;
        match begun {
            Ok((dial, conn)) => notifications.opening(place, conn, dial, io.context),
            Err(error) => notifications.lost(place, &error.to_string(), io.context),
        }
    }

    /// Queues an event for a client, and sends it if that is possible now.
    fn queue_event(&mut self, place: u32, event: &ChannelEvent, io: &mut SubscriberIo<'_>) {
        let Some(session) = io.clients.session(place) else {
            return;
        };
        let is_busy = session.is_busy(io.servers);
        let ClientLogin { subscriber, link, .. } = session;
        let (Some(subscriber), Some(link)) = (subscriber, link.pg()) else { return };
        if let ChannelEvent::Notification(it) = event
            && !listens(link, &it.channel)
        {
            if !is_busy || !link.needs_channel(&it.channel) {
                return;
            }
            subscriber.is_unsure = true;
        }
        subscriber.held.push_back(event.clone());
        subscriber.held_bytes += event.bytes();
        ChannelSubscriptions::send_events(place, io);
        let Some(session) = io.clients.session(place) else {
            return;
        };
        let held = session.subscriber.as_ref().map_or(0, |subscriber| subscriber.held_bytes);
        if held > NOTIFICATION_BYTES_MAX {
            let message = format!(
                "more than {NOTIFICATION_BYTES_MAX} bytes of notifications wait for this client"
            );
            let hint = "Read what comes on the connection, and end transactions sooner on one that \
                        listens.";
            self.failed.push_back(FailedSubscriber {
                client: place,
                code: "53400",
                message,
                hint: Some(hint),
            });
        }
    }

    /// Sends a client its queued events, unless it is in a transaction or a reply is under way.
    fn send_events(place: u32, io: &mut SubscriberIo<'_>) {
        let SubscriberIo { clients, servers, context } = io;
        let Some(client) = clients.get_mut(place) else { return };
        let is_clogged = client.conn.is_clogged();
        let Some(session) = client.session() else { return };
        if is_clogged || session.is_busy(servers) {
            return;
        }
        let may_tell = !session.is_in_transaction();
        let ClientLogin { subscriber, link, pid, .. } = session;
        let Some(link) = link.pg() else { return };
        let Some(subscriber) = subscriber.as_mut().filter(|it| !it.held.is_empty()) else { return };
        if !may_tell && !subscriber.is_unsure {
            return;
        }
        subscriber.is_unsure = false;
        for _ in 0..subscriber.held.len() {
            let Some(event) = subscriber.held.pop_front() else { break };
            let is_for_it = match &event {
                ChannelEvent::Notification(it) => listens(link, &it.channel),
                ChannelEvent::Gap => true,
            };
            match (is_for_it, may_tell) {
                (true, true) => event.write(*pid, &mut context.outbox.to_client),
                (true, false) => {
                    subscriber.held.push_back(event);
                    continue;
                }
                (false, _) => {}
            }
            subscriber.held_bytes -= event.bytes();
        }
        if !context.outbox.to_client.is_empty() {
            clients.send(Some(place), servers, context);
        }
    }

    /// Disconnects a client that waits for channels which cannot be subscribed to.
    fn fail(&mut self, place: u32, serial: u64, message: String, io: &mut SubscriberIo<'_>) {
        let Some(client) = io.clients.get_mut(place) else { return };
        let is_it = client.serial == serial;
        let link = client.session().and_then(|session| session.link.pg());
        let waits = link.is_some_and(|link| !link.wanted_channels().is_empty());
        if is_it && waits {
            let failed = FailedSubscriber { client: place, code: "08006", message, hint: None };
            self.failed.push_back(failed);
        }
    }
}

impl ChannelSubscriber {
    fn boxed(client: u32) -> Box<ChannelSubscriber> {
        let (channels, held) = (Vec::new(), VecDeque::new());
        Box::new(ChannelSubscriber {
            client,
            notifier: u32::MAX,
            channels,
            version: 0,
            held,
            held_bytes: 0,
            is_unsure: false,
        })
    }
}

impl ClientLogin {
    /// Returns whether a reply to it is in progress, into which no notification may be inserted.
    fn is_busy(&self, servers: &ServerConnections) -> bool {
        match self.place {
            ServerAttachment::Attached(server) if !self.is_fresh => {
                servers.get(server).is_some_and(RelayServer::is_in_request)
            }
            ServerAttachment::Idle
            | ServerAttachment::Parked
            | ServerAttachment::Waiting(_)
            | ServerAttachment::Attached(_) => false,
        }
    }
}

/// Returns whether a client receives the notifications of a channel.
fn listens(link: &PgClientSession, channel: &str) -> bool {
    link.channels().iter().any(|it| **it == *channel)
}

impl ChannelEvent {
    /// Appends the notification as the client with this process id sees it.
    fn write(&self, client: u32, out: &mut Vec<u8>) {
        match self {
            ChannelEvent::Notification(it) => {
                put_header(out, wire::pg::frame::backend::NOTIFICATION, it.rest.len() + 4);
                out.extend_from_slice(&it.sender.as_seen_by(client).to_be_bytes());
                out.extend_from_slice(&it.rest);
            }
            ChannelEvent::Gap => {
                let message = "notifications may have been missed: the connection that listens \
                               for this one was lost, and listens again";
                let severity = NoticeSeverity::Notice;
                let fields = ErrorFields { severity, ..ErrorFields::error("01000", message) };
                backend::notice(out, &fields);
            }
        }
    }
}
