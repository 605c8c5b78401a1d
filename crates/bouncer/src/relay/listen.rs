//! `LISTEN` for clients that hold no server connection: which channels they are subscribed to, and
//! when notifications are delivered.
//!
//! The channels of a client are known to its link (`pg::listening`). Here the notifier of its pool
//! subscribes to a channel before the client's statement is forwarded, and each notification is
//! queued for the clients that listen when it arrives.
//!
//! As with a server, a client gets notifications outside of transactions only, and between
//! messages; until then they are queued. One that arrives while the transaction commits that begins
//! to listen is queued until the outcome is known: the two come by different connections, and the
//! notification may be of after the commit. Nothing is dropped: a client that does not read what
//! it listens to is disconnected, with the reason.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/sql-listen.html>

use std::collections::VecDeque;
use std::sync::Arc;

use pooler_core::pg::client::PgClientSession;
use wire::pg::frame::{HEADER_BYTES, put_header};
use wire::pg::message::{ErrorFields, NoticeSeverity, backend};

use super::client::{ClientLogin, RelayClient, ServerAttachment};
use super::server::RelayServer;
use super::slots::SlotMap;
use super::subscriber::{ChannelEvent, ChannelNotification, ChannelSubscriber, SubscriptionState};
use super::worker::RelayWorker;

/// Bytes of notifications that are held for one client.
pub(super) const NOTIFICATION_BYTES_MAX: usize = 1024 * 1024;

impl RelayWorker {
    /// Subscribes the notifier to the channels that a client begins to listen to.
    pub(super) fn subscribe(&mut self, place: u32) -> SubscriptionState {
        let Some(client) = self.clients.get_mut(place) else { return SubscriptionState::No };
        let serial = client.serial;
        let Some(session) = client.session() else { return SubscriptionState::No };
        let ServerAttachment::Attached(server) = session.place else {
            return SubscriptionState::No;
        };
        let known = session.subscriber.as_ref().map(|subscriber| subscriber.notifier);
        let pool = self.servers.get(server).map(|server| server.slot.pool());
        // Its own may have been closed, and its place be another pool's by now.
        let known = known
            .filter(|notifier| self.notifiers.get(*notifier).map(|notifier| notifier.pool) == pool);
        let Some(notifier_place) = known.or_else(|| self.notifier_of_pool(server)) else {
            return SubscriptionState::No;
        };
        let RelayWorker { clients, notifiers, .. } = self;
        let session = clients.get_mut(place).and_then(RelayClient::session);
        let (Some(session), Some(notifier)) = (session, notifiers.get_mut(notifier_place)) else {
            return SubscriptionState::No;
        };
        let subscriber = session.subscriber.get_or_insert_with(|| ChannelSubscriber::boxed(place));
        subscriber.notifier = notifier_place;
        let (mut is_confirmed, mut fresh) = (true, Vec::new());
        let Some(link) = session.link.pg_mut() else { return SubscriptionState::No };
        for wanted in link.wanted_channels() {
            let name = match notifier.channels.get_key_value(&**wanted) {
                Some((name, _)) => Arc::clone(name),
                None => {
                    let name: Arc<str> = Arc::from(&**wanted);
                    fresh.push(Arc::clone(&name));
                    name
                }
            };
            let channel = notifier.channels.entry(Arc::clone(&name)).or_default();
            if channel.clients.insert(place) {
                subscriber.channels.push(name);
            }
            is_confirmed &= channel.is_confirmed;
        }
        if is_confirmed {
            link.channels_confirmed();
            subscriber.version = link.channels_version();
            return SubscriptionState::Yes;
        }
        session.is_stalled = true;
        if !notifier.waiting.contains(&(place, serial)) {
            notifier.waiting.push((place, serial));
        }
        self.request_channels(notifier_place, &fresh);
        SubscriptionState::Waits
    }

    /// Handles a possible change of a client's channels, or of whether it can take notifications.
    pub(super) fn update_channels(&mut self, place: u32) {
        let RelayWorker { clients, notifiers, outbox, .. } = self;
        let Some(session) = clients.get_mut(place).and_then(RelayClient::session) else { return };
        let Some(subscriber) = &mut session.subscriber else { return };
        let Some(link) = session.link.pg() else { return };
        let version = link.channels_version();
        if subscriber.version != version {
            subscriber.version = version;
            let is_needed = |name: &str| {
                link.needs_channel(name) || link.wanted_channels().iter().any(|it| **it == *name)
            };
            let notifier_place = subscriber.notifier;
            let notifier = notifiers.get_mut(notifier_place);
            match notifier {
                Some(notifier) => subscriber.channels.retain(|name| {
                    let is_needed = is_needed(name);
                    if !is_needed {
                        notifier.forget(name, place, &mut outbox.to_server);
                    }
                    is_needed
                }),
                None => subscriber.channels.clear(),
            }
            if !outbox.to_server.is_empty() {
                self.send_to_notifier(notifier_place);
            }
            self.close_notifier_later(notifier_place);
        }
        self.send_events(place);
    }

    /// Removes the subscriptions of a session that has ended.
    pub(super) fn unsubscribe(&mut self, subscriber: &ChannelSubscriber) {
        let RelayWorker { notifiers, outbox, .. } = self;
        let Some(notifier) = notifiers.get_mut(subscriber.notifier) else { return };
        // What is assembled already is for others.
        let before = std::mem::take(&mut outbox.to_server);
        for name in &subscriber.channels {
            notifier.forget(name, subscriber.client, &mut outbox.to_server);
        }
        if !outbox.to_server.is_empty() {
            self.send_to_notifier(subscriber.notifier);
        }
        self.outbox.to_server = before;
        self.close_notifier_later(subscriber.notifier);
    }

    /// Queues a notification for the clients that listen to its channel.
    pub(super) fn deliver_notification(&mut self, notifier: u32, message: &[u8]) {
        let Some((pid, rest)) = message.get(HEADER_BYTES..).and_then(|it| it.split_first_chunk())
        else {
            return;
        };
        let Some(end) = rest.iter().position(|byte| *byte == 0) else { return };
        let name = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        let Some(notifier) = self.notifiers.get(notifier) else { return };
        let Some((name, channel)) = notifier.channels.get_key_value(&*name) else { return };
        let pool = notifier.pool;
        let clients: Vec<u32> = channel.clients.iter().copied().collect();
        let (pid, now_us) = (u32::from_be_bytes(*pid), self.context.now_us);
        let sender = self.common.holders.sender(pool, pid, now_us);
        let notification =
            ChannelNotification { channel: Arc::clone(name), sender, rest: rest.into() };
        let event = ChannelEvent::Notification(Arc::new(notification));
        for client in clients {
            self.queue_event(client, &event);
        }
    }

    /// Notifies the clients of a notifier that notifications may have been missed.
    pub(super) fn report_gap(&mut self, notifier: u32) {
        let Some(notifier) = self.notifiers.get(notifier) else { return };
        let mut clients: Vec<u32> =
            notifier.channels.values().flat_map(|it| &it.clients).copied().collect();
        clients.sort_unstable();
        clients.dedup();
        for client in clients {
            let session = self.clients.get_mut(client).and_then(RelayClient::session);
            let link = session.and_then(|session| session.link.pg());
            if link.is_some_and(|link| !link.channels().is_empty()) {
                self.queue_event(client, &ChannelEvent::Gap);
            }
        }
    }

    /// Queues an event for a client, and sends it if that is possible now.
    fn queue_event(&mut self, place: u32, event: &ChannelEvent) {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let is_busy = session.is_busy(&self.servers);
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
        self.send_events(place);
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let held = session.subscriber.as_ref().map_or(0, |subscriber| subscriber.held_bytes);
        if held > NOTIFICATION_BYTES_MAX {
            let message = format!(
                "more than {NOTIFICATION_BYTES_MAX} bytes of notifications wait for this client"
            );
            let fields = ErrorFields::fatal("53400", &message).with_hint(
                "Read what comes on the connection, and end transactions sooner on one that \
                 listens.",
            );
            self.disconnect(place, &fields);
        }
    }

    /// Sends a client its queued events, unless it is in a transaction or a reply is under way.
    fn send_events(&mut self, place: u32) {
        let RelayWorker { clients, servers, outbox, .. } = self;
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
                (true, true) => event.write(*pid, &mut outbox.to_client),
                (true, false) => {
                    subscriber.held.push_back(event);
                    continue;
                }
                (false, _) => {}
            }
            subscriber.held_bytes -= event.bytes();
        }
        self.send_outbox(Some(place), None);
    }

    /// Reports to clients that their channels cannot be listened to.
    pub(super) fn fail_channels(&mut self, notifier: u32, names: &[Arc<str>], why: &str) {
        let message = format!("the channel cannot be listened to: {why}");
        for name in names {
            let Some(notifier) = self.notifiers.get_mut(notifier) else { return };
            let Some(channel) = notifier.channels.remove(name) else { continue };
            for client in channel.clients {
                // It is the connection that listens for it which failed: drivers log in again.
                self.disconnect(client, &ErrorFields::fatal("08006", &message));
            }
        }
    }

    /// Disconnects a client that waits for channels which cannot be subscribed to.
    pub(super) fn fail_subscription(&mut self, place: u32, serial: u64, message: &str) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let is_it = client.serial == serial;
        let link = client.session().and_then(|session| session.link.pg());
        let waits = link.is_some_and(|link| !link.wanted_channels().is_empty());
        if is_it && waits {
            self.disconnect(place, &ErrorFields::fatal("08006", message));
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
    /// Returns whether a reply is on its way to it, into which no notification may be put.
    fn is_busy(&self, servers: &SlotMap<RelayServer>) -> bool {
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

/// Returns whether a client gets the notifications of a channel.
fn listens(link: &PgClientSession, channel: &str) -> bool {
    link.channels().iter().any(|it| **it == *channel)
}

impl ChannelEvent {
    /// Appends it as the client with this process id sees it.
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
