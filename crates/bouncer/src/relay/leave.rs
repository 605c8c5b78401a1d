//! The end of a client: it leaves, or it is disconnected with an error.

use std::io;
use std::sync::atomic::Ordering;

use pooler_core::link::{ClientLink, DepartureAction};
use wire::pg::message::{ErrorFields, backend};

use super::client::{ClientLogin, ClientPhase, ServerAttachment};
use super::login::{GreetingWait, LoginPhase};
use super::server::{RelayServer, ServerCloseReason};
use super::worker::{PendingWork, RelayWorker, TimerKey};

/// Time that a client has to read its last error, in microseconds. A connection that is closed with
/// unread bytes on it is reset, and the error is lost on the way.
pub(super) const CLOSING_US: u64 = 2_000_000;

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
        self.context.timers.disarm(TimerKey::Client(place).id());
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
            ClientPhase::Console(console_client) => self.common.keys.remove(console_client.pid),
            ClientPhase::Passed(passed) => self.end_passed(*passed),
            ClientPhase::Closing => {}
        }
        client.conn.close(&mut self.context.freelist);
        self.counters.stats.clients.sub(1);
        self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends a client a fatal error, and closes the connection once it was read.
    pub(super) fn disconnect(&mut self, place: u32, fields: &ErrorFields<'_>) {
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
                if server.is_none_or(RelayServer::takes_error) {
                    session.link.put_fatal_error(fields, out);
                }
            }
            Some(ClientPhase::Login(login)) => login.put_fatal_error(fields, out),
            Some(ClientPhase::Greeting(_) | ClientPhase::Console(_)) => backend::error(out, fields),
            Some(ClientPhase::Passed(passed)) => passed.put_fatal_error(fields, out),
            // It was told already.
            Some(ClientPhase::Closing) | None => {}
        }
        self.close_when_sent(place);
    }

    /// Sends the client's last output, and closes the connection once it was read.
    pub(super) fn close_when_sent(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else {
            self.outbox.to_client.clear();
            return;
        };
        let context = &mut self.context;
        client.conn.input.clear(&mut context.freelist);
        let sent =
            client.conn.send(&self.outbox.to_client, &mut context.freelist, &context.registry);
        self.outbox.to_client.clear();
        client.since_us = context.now_us;
        match std::mem::replace(&mut client.phase, ClientPhase::Closing) {
            ClientPhase::Login(login) => self.end_login(&login),
            ClientPhase::Greeting(greeting) => self.end_greeting(*greeting),
            ClientPhase::Session(session) => {
                self.end_session(*session, &ClientDeparture::Dismissed)
            }
            ClientPhase::Console(console_client) => self.common.keys.remove(console_client.pid),
            ClientPhase::Passed(passed) => self.end_passed(*passed),
            ClientPhase::Closing => {}
        }
        if let Err(error) = sent {
            return self.client_gone(place, &ClientDeparture::Lost(error));
        }
        self.context.timers.arm(TimerKey::Client(place).id(), self.context.now_us + CLOSING_US);
        self.finish_closing(place);
    }

    /// Shuts down the sending side once everything was sent. The client closes its own.
    pub(super) fn finish_closing(&mut self, place: u32) {
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
        self.counters.stats.logins.sub(1);
        self.counters.stats.logins_failed.add(1);
    }

    /// Undoes what a client holds that is in, but was not told so.
    fn end_greeting(&mut self, greeting: GreetingWait) {
        greeting.stats.clients.sub(1);
        match greeting.place {
            ServerAttachment::Idle | ServerAttachment::Parked => {}
            ServerAttachment::Waiting(ticket) => {
                self.pools.give_up_waiting(greeting.pool, ticket, self.context.now);
            }
            ServerAttachment::Attached(server) => {
                self.abandon(server, None, &ClientDeparture::Dismissed)
            }
        }
        self.pools.leave(greeting.pool, self.context.now);
    }

    /// Undoes what a session holds.
    pub(super) fn end_session(&mut self, session: ClientLogin, leaving: &ClientDeparture) {
        self.common.keys.remove(session.pid);
        if let Some(subscriber) = &session.subscriber {
            self.unsubscribe(subscriber);
        }
        session.stats.clients.sub(1);
        match session.place {
            ServerAttachment::Idle => {}
            ServerAttachment::Parked => session.stats.clients_waiting.sub(1),
            ServerAttachment::Waiting(ticket) => {
                session.stats.clients_waiting.sub(1);
                self.pools.give_up_waiting(session.pool, ticket, self.context.now);
            }
            ServerAttachment::Attached(server) => {
                session.stats.clients_active.sub(1);
                let link = (!session.is_fresh).then_some(&session.link);
                self.abandon(server, link, leaving);
            }
        }
        self.pools.leave(session.pool, self.context.now);
    }

    /// A server connection whose client has left: brings it to rest, or closes it. A client that
    /// the link has not heard of has left nothing there.
    pub(super) fn abandon(
        &mut self,
        place: u32,
        client: Option<&ClientLink>,
        leaving: &ClientDeparture,
    ) {
        let RelayWorker { servers, outbox, context, link, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        server.client = None;
        if server.conn.is_readable() {
            // What the client did not take was left in the kernel, of which epoll told already.
            context.work.push_back(PendingWork::Server(place));
        }
        let Some(client) = client else { return self.return_server(place) };
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
            DepartureAction::Idle => self.return_server(place),
            DepartureAction::Draining => self.await_idle(place),
            DepartureAction::Cancel => {
                if cancels {
                    self.cancel_at_server(place);
                }
                self.await_idle(place);
            }
            DepartureAction::Close => self.close_server(place, &ServerCloseReason::Unclean),
        }
    }
}
