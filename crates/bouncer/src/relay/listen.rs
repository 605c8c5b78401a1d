//! Clients that listen while no server connection is their own: what they hear, and when they are
//! told.
//!
//! What a client listens to is its link's business (`pg::listening`). Here the ear of its pool is
//! asked to hear a channel before the client's statement is forwarded, and each notification is
//! given to the clients that listen when it comes.
//!
//! As from a server, a client is told outside of transactions only, and between messages. Until
//! then notifications are held. One that comes while the transaction is being committed that
//! begins to listen is held until that is known: the two come by different connections, and the
//! notification may be of after the commit. Nothing is dropped: a client that does not take what
//! it listens to is closed, and told why.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::pg::frame::{HEADER_BYTES, put_header};
use wire::pg::message::{ErrorFields, NoticeSeverity, backend};

use super::client::{ClientLogin, RelayClient, ServerAttachment};
use super::server::RelayServer;
use super::slots::SlotMap;
use super::subscriber::{ChannelEvent, ChannelNotification, ChannelSubscriber, SubscriptionState};
use super::worker::RelayWorker;
use crate::pg::client::PgClientSession;

/// Bytes of notifications that are held for one client.
pub(super) const NOTIFICATION_BYTES_MAX: usize = 1024 * 1024;

impl RelayWorker {
    /// Has the channels heard that a client begins to listen to.
    pub(super) fn hear(&mut self, place: u32) -> SubscriptionState {
        let Some(client) = self.clients.get_mut(place) else { return SubscriptionState::No };
        let serial = client.serial;
        let Some(session) = client.session() else { return SubscriptionState::No };
        let ServerAttachment::Attached(server) = session.place else {
            return SubscriptionState::No;
        };
        let known = session.hearing.as_ref().map(|hearing| hearing.ear);
        let pool = self.servers.get(server).map(|server| server.slot.pool());
        // Its own may have been closed, and its place be another pool's by now.
        let known = known.filter(|ear| self.ears.get(*ear).map(|ear| ear.pool) == pool);
        let Some(ear_place) = known.or_else(|| self.ear_beside(server)) else {
            return SubscriptionState::No;
        };
        let RelayWorker { clients, ears, .. } = self;
        let session = clients.get_mut(place).and_then(RelayClient::session);
        let (Some(session), Some(ear)) = (session, ears.get_mut(ear_place)) else {
            return SubscriptionState::No;
        };
        let hearing = session.hearing.get_or_insert_with(|| ChannelSubscriber::boxed(place));
        hearing.ear = ear_place;
        let (mut heard, mut fresh) = (true, Vec::new());
        let Some(link) = session.link.pg_mut() else { return SubscriptionState::No };
        for wanted in link.wanted_channels() {
            let name = match ear.channels.get_key_value(&**wanted) {
                Some((name, _)) => Arc::clone(name),
                None => {
                    let name: Arc<str> = Arc::from(&**wanted);
                    fresh.push(Arc::clone(&name));
                    name
                }
            };
            let channel = ear.channels.entry(Arc::clone(&name)).or_default();
            if channel.clients.insert(place) {
                hearing.channels.push(name);
            }
            heard &= channel.heard;
        }
        if heard {
            link.channels_heard();
            hearing.version = link.channels_version();
            return SubscriptionState::Yes;
        }
        session.is_stalled = true;
        if !ear.waiting.contains(&(place, serial)) {
            ear.waiting.push((place, serial));
        }
        self.ask_ear(ear_place, &fresh);
        SubscriptionState::Waits
    }

    /// Handles a possible change of a client's channels, or of whether it can take notifications.
    pub(super) fn heed(&mut self, place: u32) {
        let RelayWorker { clients, ears, outbox, .. } = self;
        let Some(session) = clients.get_mut(place).and_then(RelayClient::session) else { return };
        let Some(hearing) = &mut session.hearing else { return };
        let Some(link) = session.link.pg() else { return };
        let version = link.channels_version();
        if hearing.version != version {
            hearing.version = version;
            let is_needed = |name: &str| {
                link.needs_channel(name) || link.wanted_channels().iter().any(|it| **it == *name)
            };
            let ear_place = hearing.ear;
            let ear = ears.get_mut(ear_place);
            match ear {
                Some(ear) => hearing.channels.retain(|name| {
                    let is_needed = is_needed(name);
                    if !is_needed {
                        ear.forget(name, place, &mut outbox.to_server);
                    }
                    is_needed
                }),
                None => hearing.channels.clear(),
            }
            if !outbox.to_server.is_empty() {
                self.send_to_ear(ear_place);
            }
            self.ear_may_rest(ear_place);
        }
        self.tell(place);
    }

    /// A session has ended that listened.
    pub(super) fn hush(&mut self, hearing: &ChannelSubscriber) {
        let RelayWorker { ears, outbox, .. } = self;
        let Some(ear) = ears.get_mut(hearing.ear) else { return };
        // What is assembled already is for others.
        let before = std::mem::take(&mut outbox.to_server);
        for name in &hearing.channels {
            ear.forget(name, hearing.client, &mut outbox.to_server);
        }
        if !outbox.to_server.is_empty() {
            self.send_to_ear(hearing.ear);
        }
        self.outbox.to_server = before;
        self.ear_may_rest(hearing.ear);
    }

    /// Gives a notification that an ear has heard to whom it is for.
    pub(super) fn spread(&mut self, ear: u32, message: &[u8]) {
        let Some((pid, rest)) = message.get(HEADER_BYTES..).and_then(|it| it.split_first_chunk())
        else {
            return;
        };
        let Some(end) = rest.iter().position(|byte| *byte == 0) else { return };
        let name = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        let Some(ear) = self.ears.get(ear) else { return };
        let Some((name, channel)) = ear.channels.get_key_value(&*name) else { return };
        let pool = ear.pool;
        let clients: Vec<u32> = channel.clients.iter().copied().collect();
        let (pid, now_us) = (u32::from_be_bytes(*pid), self.ground.now_us);
        let sender = self.common.holders.sender(pool, pid, now_us);
        let notification =
            ChannelNotification { channel: Arc::clone(name), sender, rest: rest.into() };
        let told = ChannelEvent::Notification(Arc::new(notification));
        for client in clients {
            self.give(client, &told);
        }
    }

    /// Tells the clients of an ear that it was not there for a while.
    pub(super) fn tell_of_gap(&mut self, ear: u32) {
        let Some(ear) = self.ears.get(ear) else { return };
        let mut clients: Vec<u32> =
            ear.channels.values().flat_map(|it| &it.clients).copied().collect();
        clients.sort_unstable();
        clients.dedup();
        for client in clients {
            let session = self.clients.get_mut(client).and_then(RelayClient::session);
            let link = session.and_then(|session| session.link.pg());
            if link.is_some_and(|link| !link.channels().is_empty()) {
                self.give(client, &ChannelEvent::Gap);
            }
        }
    }

    /// Has a client told of something, now or when it can be.
    fn give(&mut self, place: u32, told: &ChannelEvent) {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let is_busy = session.is_busy(&self.servers);
        let ClientLogin { hearing, link, .. } = session;
        let (Some(hearing), Some(link)) = (hearing, link.pg()) else { return };
        if let ChannelEvent::Notification(it) = told
            && !listens(link, &it.channel)
        {
            if !is_busy || !link.needs_channel(&it.channel) {
                return;
            }
            hearing.is_unsure = true;
        }
        hearing.held.push_back(told.clone());
        hearing.held_bytes += told.bytes();
        self.tell(place);
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let held = session.hearing.as_ref().map_or(0, |hearing| hearing.held_bytes);
        if held > NOTIFICATION_BYTES_MAX {
            let message = format!(
                "more than {NOTIFICATION_BYTES_MAX} bytes of notifications wait for this client"
            );
            let fields = ErrorFields::fatal("53400", &message).with_hint(
                "Read what comes on the connection, and end transactions sooner on one that \
                 listens.",
            );
            self.expel(place, &fields);
        }
    }

    /// Tells a client what is held for it, if it can be told now.
    fn tell(&mut self, place: u32) {
        let RelayWorker { clients, servers, outbox, .. } = self;
        let Some(client) = clients.get_mut(place) else { return };
        let is_clogged = client.conn.is_clogged();
        let Some(session) = client.session() else { return };
        if is_clogged || session.is_busy(servers) {
            return;
        }
        let may_tell = !session.is_in_transaction();
        let ClientLogin { hearing, link, pid, .. } = session;
        let Some(link) = link.pg() else { return };
        let Some(hearing) = hearing.as_mut().filter(|it| !it.held.is_empty()) else { return };
        if !may_tell && !hearing.is_unsure {
            return;
        }
        hearing.is_unsure = false;
        for _ in 0..hearing.held.len() {
            let Some(told) = hearing.held.pop_front() else { break };
            let is_for_it = match &told {
                ChannelEvent::Notification(it) => listens(link, &it.channel),
                ChannelEvent::Gap => true,
            };
            match (is_for_it, may_tell) {
                (true, true) => told.write(*pid, &mut outbox.to_client),
                (true, false) => {
                    hearing.held.push_back(told);
                    continue;
                }
                (false, _) => {}
            }
            hearing.held_bytes -= told.bytes();
        }
        self.send_outbox(Some(place), None);
    }

    /// Reports to clients that their channels cannot be listened to.
    pub(super) fn cannot_hear(&mut self, ear: u32, names: &[Arc<str>], why: &str) {
        let message = format!("the channel cannot be listened to: {why}");
        for name in names {
            let Some(ear) = self.ears.get_mut(ear) else { return };
            let Some(channel) = ear.channels.remove(name) else { continue };
            for client in channel.clients {
                // It is the connection that listens for it which failed: drivers log in again.
                self.expel(client, &ErrorFields::fatal("08006", &message));
            }
        }
    }

    /// A client waits for channels in vain.
    pub(super) fn cannot_listen(&mut self, place: u32, serial: u64, message: &str) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let is_it = client.serial == serial;
        let link = client.session().and_then(|session| session.link.pg());
        let waits = link.is_some_and(|link| !link.wanted_channels().is_empty());
        if is_it && waits {
            self.expel(place, &ErrorFields::fatal("08006", message));
        }
    }
}

impl ChannelSubscriber {
    fn boxed(client: u32) -> Box<ChannelSubscriber> {
        let (channels, held) = (Vec::new(), VecDeque::new());
        Box::new(ChannelSubscriber {
            client,
            ear: u32::MAX,
            channels,
            version: 0,
            held,
            held_bytes: 0,
            is_unsure: false,
        })
    }
}

impl ClientLogin {
    /// Returns whether replies are on their way to it, between which it cannot be told anything.
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

/// Returns whether a client is to be told of notifications on a channel.
fn listens(link: &PgClientSession, channel: &str) -> bool {
    link.channels().iter().any(|it| **it == *channel)
}

impl ChannelEvent {
    /// Appends it, as the client with this process id is told.
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
