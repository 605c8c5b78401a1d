//! The ways out of a client: it leaves, or it is told to.

use std::io;
use std::sync::atomic::Ordering;

use wire::pg::message::{ErrorFields, backend};

use super::client::{ClientLogin, ClientPhase, ServerAttachment};
use super::login::{GreetingWait, LoginPhase};
use super::server::{RelayServer, ServerCloseReason};
use super::worker::{PendingWork, RelayWorker, TimerKey};
use crate::link::{ClientLink, DepartureAction};

/// Time that a client that was told why it has to go may take to read that, in microseconds. A
/// connection closed with unread bytes on it is reset, and the reason is lost on the way.
pub(super) const FAREWELL_US: u64 = 2_000_000;

/// Kinds of a client's departure.
#[derive(Debug)]
pub(super) enum ClientDeparture {
    /// Ended its session. What it asked for before is done nevertheless.
    Terminate,
    /// Closed its connection.
    End,
    /// Lost its connection.
    Lost(io::Error),
    /// We close it.
    Dismissed,
}

impl RelayWorker {
    /// Ends a client now.
    pub(super) fn client_gone(&mut self, place: u32, leaving: &ClientDeparture) {
        self.journal_leaving(place, leaving);
        let Some(client) = self.clients.remove(place) else { return };
        self.ground.timers.disarm(TimerKey::Client(place).id());
        if let ClientDeparture::Lost(error) = leaving {
            tracing::debug!(
                client = place,
                error = error as &dyn std::error::Error,
                "lost a client"
            );
        }
        match client.phase {
            ClientPhase::Login(login) => self.end_login(&login),
            ClientPhase::Greeting(greeting) => self.end_greeting(*greeting),
            ClientPhase::Session(session) => self.end_session(*session, leaving),
            ClientPhase::Console(visitor) => self.common.keys.remove(visitor.pid),
            ClientPhase::Closing => {}
        }
        client.conn.close(&mut self.ground.stock);
        self.books.stats.clients.sub(1);
        self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tells a client why it has to go, and lets it read that.
    pub(super) fn expel(&mut self, place: u32, fields: &ErrorFields<'_>) {
        if self.clients.get(place).is_none() {
            return;
        }
        self.journal_client(place, fields.message);
        let RelayWorker { clients, servers, outbox, .. } = self;
        let out = &mut outbox.to_client;
        match clients.get_mut(place).map(|client| &mut client.phase) {
            Some(ClientPhase::Session(session)) => {
                let server = match session.place {
                    ServerAttachment::Attached(server) if !session.is_fresh => servers.get(server),
                    ServerAttachment::Attached(_)
                    | ServerAttachment::Idle
                    | ServerAttachment::Parked
                    | ServerAttachment::Waiting(_) => None,
                };
                if server.is_none_or(RelayServer::takes_words) {
                    session.link.put_farewell(fields, out);
                }
            }
            Some(ClientPhase::Login(login)) => login.put_farewell(fields, out),
            Some(ClientPhase::Greeting(_) | ClientPhase::Console(_)) => backend::error(out, fields),
            // It was told already.
            Some(ClientPhase::Closing) | None => {}
        }
        self.dismiss(place);
    }

    /// Sends what is for the client, which is its last, and lets it read that.
    pub(super) fn dismiss(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else {
            self.outbox.to_client.clear();
            return;
        };
        let ground = &mut self.ground;
        client.conn.input.clear(&mut ground.stock);
        let sent = client.conn.send(&self.outbox.to_client, &mut ground.stock, &ground.registry);
        self.outbox.to_client.clear();
        client.since_us = ground.now_us;
        match std::mem::replace(&mut client.phase, ClientPhase::Closing) {
            ClientPhase::Login(login) => self.end_login(&login),
            ClientPhase::Greeting(greeting) => self.end_greeting(*greeting),
            ClientPhase::Session(session) => {
                self.end_session(*session, &ClientDeparture::Dismissed)
            }
            ClientPhase::Console(visitor) => self.common.keys.remove(visitor.pid),
            ClientPhase::Closing => {}
        }
        if let Err(error) = sent {
            return self.client_gone(place, &ClientDeparture::Lost(error));
        }
        self.ground.timers.arm(TimerKey::Client(place).id(), self.ground.now_us + FAREWELL_US);
        self.finish_farewell(place);
    }

    /// Says that nothing more comes, once everything was sent. The client's own end is awaited.
    pub(super) fn finish_farewell(&mut self, place: u32) {
        if let Some(client) = self.clients.get_mut(place)
            && matches!(client.phase, ClientPhase::Closing)
            && client.conn.is_flushed()
        {
            client.conn.socket.finish();
            if client.conn.is_readable() {
                self.queue_client(place);
            }
        }
    }

    /// Counts a login that came to nothing.
    fn end_login(&self, login: &LoginPhase) {
        if let Some(pid) = login.pid() {
            self.common.keys.remove(pid);
        }
        self.books.stats.logins.sub(1);
        self.books.stats.logins_failed.add(1);
    }

    /// Undoes what a client holds that is in, but was not told so.
    fn end_greeting(&mut self, greeting: GreetingWait) {
        greeting.stats.clients.sub(1);
        match greeting.place {
            ServerAttachment::Idle | ServerAttachment::Parked => {}
            ServerAttachment::Waiting(ticket) => {
                self.pools.give_up_waiting(greeting.pool, ticket, self.ground.now);
            }
            ServerAttachment::Attached(server) => {
                self.abandon(server, None, &ClientDeparture::Dismissed)
            }
        }
        self.pools.leave(greeting.pool, self.ground.now);
    }

    /// Undoes what a session holds.
    pub(super) fn end_session(&mut self, session: ClientLogin, leaving: &ClientDeparture) {
        self.common.keys.remove(session.pid);
        if let Some(hearing) = &session.hearing {
            self.hush(hearing);
        }
        session.stats.clients.sub(1);
        match session.place {
            ServerAttachment::Idle => {}
            ServerAttachment::Parked => session.stats.clients_waiting.sub(1),
            ServerAttachment::Waiting(ticket) => {
                session.stats.clients_waiting.sub(1);
                self.pools.give_up_waiting(session.pool, ticket, self.ground.now);
            }
            ServerAttachment::Attached(server) => {
                session.stats.clients_active.sub(1);
                let link = (!session.is_fresh).then_some(&session.link);
                self.abandon(server, link, leaving);
            }
        }
        self.pools.leave(session.pool, self.ground.now);
    }

    /// A server connection whose client has left: brings it to rest, or closes it. A client that
    /// the link has not heard of has left nothing there.
    pub(super) fn abandon(
        &mut self,
        place: u32,
        client: Option<&ClientLink>,
        leaving: &ClientDeparture,
    ) {
        let RelayWorker { servers, outbox, ground, link, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        server.client = None;
        if server.conn.is_readable() {
            // What the client did not take was left in the kernel, of which epoll told already.
            ground.work.push_back(PendingWork::Server(place));
        }
        let Some(client) = client else { return self.give_back(place) };
        let Some(server_link) = server.link() else { return };
        let was_idle = !server_link.has_client_entries();
        let gone = link.client_gone(client, server_link, &mut outbox.both());
        if !was_idle || client.is_in_transaction() {
            server.stats.dirty_disconnects.add(1);
        }
        // Who said goodbye gets done what it asked for, as from a server without us.
        let cancels =
            gone == DepartureAction::Cancel && !matches!(leaving, ClientDeparture::Terminate);
        server.is_cancelled = cancels;
        self.send_outbox(None, Some(place));
        match gone {
            DepartureAction::Idle => self.give_back(place),
            DepartureAction::Draining => self.await_rest(place),
            DepartureAction::Cancel => {
                if cancels {
                    self.cancel_at_server(place);
                }
                self.await_rest(place);
            }
            DepartureAction::Close => self.close_server(place, &ServerCloseReason::Unclean),
        }
    }
}
