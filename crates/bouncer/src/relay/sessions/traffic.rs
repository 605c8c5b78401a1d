//! Traffic of sessions: bytes of clients to their server connections, and back.

use pooler_core::link::{ClientNext, ServerNext};
use wire::pg::message::ErrorFields;

use super::SessionRelay;
use crate::relay::conn::{EventSource, SocketReadiness};
use crate::relay::context::{PendingWork, READS_PER_TURN_MAX};
use crate::relay::departure::ClientDeparture;
use crate::relay::login::LoginFlow;
use crate::relay::pools::LeaseOutcome;
use crate::relay::server::{RelayServer, ServerCloseReason, ServerPhase};
use crate::relay::sessions::{ClientPhase, ServerAttachment, ThreadContext};
use crate::relay::socket::ReadOutcome;
use crate::relay::subscriber::SubscriptionState;

/// Outcome of a session's input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionInput {
    /// This many bytes were used.
    Used(usize),
    /// This many bytes were used; the rest belongs to another login.
    ChangeUser(usize),
}

impl SessionRelay {
    /// Sends pending output to a client, and resumes reading from its server once all is sent.
    pub(crate) fn flush_client(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(client) = self.clients.get_mut(place) else { return };
        if let Err(error) = client.conn.flush(&mut context.freelist, &context.registry) {
            return self.client_gone(place, &ClientDeparture::Lost(error), context);
        }
        if client.conn.is_clogged() {
            return;
        }
        client.clogged_us = None;
        if matches!(client.phase, ClientPhase::Passed(_)) {
            return self.clients.queue(place, context);
        }
        if let Some(server) = client.server() {
            context.work.push_back(PendingWork::Server(server));
        }
        let is_full = client.session().is_some_and(|session| session.is_full);
        if is_full || client.conn.is_readable() {
            self.clients.queue(place, context);
        }
        self.update_channels(place, context);
        self.finish_closing(place, context);
    }

    /// Returns whether a client's input can be read now. If not, it stays in the kernel, whose flow
    /// control stops the client eventually.
    pub(crate) fn may_read_client(&mut self, place: u32, context: &mut ThreadContext) -> bool {
        let Some(client) = self.clients.get_mut(place) else { return false };
        let server = client.server().and_then(|server| self.servers.get(server));
        let is_held_up = client.is_held_up();
        let is_full = client.session().is_some_and(|session| session.is_full);
        // The client sends requests without reading the replies, or its server does not read its
        // input. A server without a pooler would stop reading, too.
        let is_stopped = is_full
            || client.conn.is_clogged()
            || server.is_some_and(|server| server.conn.is_clogged());
        if !is_held_up && !is_stopped {
            return true;
        }
        // The end of its input cannot be detected by reading now.
        let is_queued = client.server().is_none();
        if client.conn.is_gone() || (client.conn.is_closed() && client.conn.socket.is_tls()) {
            self.client_gone(place, &ClientDeparture::End, context);
        } else if client.conn.is_closed()
            && is_held_up
            && (is_queued || server.is_some_and(RelayServer::owes_reply))
        {
            self.client_ended(place, context);
        }
        false
    }

    /// Handles the end of a client's input. As with a server without a pooler, its requests are
    /// answered if it can still read; otherwise its statement is cancelled.
    pub(crate) fn client_ended(&mut self, place: u32, context: &mut ThreadContext) {
        let SessionRelay { clients, servers, .. } = self;
        let Some(client) = clients.get_mut(place) else { return };
        let may_listen = client.session().is_none_or(|session| session.link.listens_on());
        let is_there = may_listen && !client.conn.is_gone() && !client.conn.socket.is_tls();
        let session = client.session().filter(|_| is_there);
        let server = session.as_ref().and_then(|session| match session.place {
            ServerAttachment::Attached(server) => servers.get(server),
            ServerAttachment::Idle | ServerAttachment::Parked | ServerAttachment::Waiting(_) => {
                None
            }
        });
        let asked = session.filter(|session| match session.place {
            ServerAttachment::Idle => false,
            ServerAttachment::Parked | ServerAttachment::Waiting(_) => true,
            // An incomplete message gets no reply.
            ServerAttachment::Attached(_) => {
                !session.link.is_in_message() && server.is_some_and(RelayServer::owes_reply)
            }
        });
        let Some(session) = asked else {
            return self.client_gone(place, &ClientDeparture::End, context);
        };
        if std::mem::replace(&mut session.is_ending, true) {
            return;
        }
        // To find out whether the client still reads, the relay sends it a message without new
        // content: a closed socket replies with a reset. In the middle of a message the rest of
        // that message has the same effect.
        let between = server.is_none_or(RelayServer::is_between_messages);
        if between {
            session.link.probe(&mut context.outbox.to_client);
            self.send_outbox(Some(place), None, context);
        }
    }

    /// Closes a client that ended its input while it waited for a server connection and has sent
    /// only a part of a message: it would otherwise hold the connection for ever.
    pub(crate) fn leave_if_over(&mut self, place: u32, context: &mut ThreadContext) {
        let session = self.clients.session(place);
        let Some(session) = session.filter(|session| session.is_ending) else { return };
        let ServerAttachment::Attached(server) = session.place else { return };
        let is_in_message = session.link.is_in_message();
        if is_in_message || !self.servers.get(server).is_some_and(RelayServer::owes_reply) {
            self.client_gone(place, &ClientDeparture::End, context);
        }
    }

    /// Passes bytes to a session's link, with a server connection as soon as it needs one.
    pub(crate) fn feed_session(
        &mut self,
        place: u32,
        bytes: &[u8],
        context: &mut ThreadContext,
    ) -> SessionInput {
        if self.disconnect_fenced(place, context) {
            return SessionInput::Used(bytes.len());
        }
        let mut used = 0;
        loop {
            let SessionRelay { clients, servers, link, .. } = self;
            let Some(session) = clients.session(place) else {
                return SessionInput::Used(bytes.len());
            };
            if session.asks_elsewhere {
                return SessionInput::Used(used);
            }
            let server_place = match session.place {
                ServerAttachment::Idle => None,
                ServerAttachment::Parked | ServerAttachment::Waiting(_) => {
                    return SessionInput::Used(used);
                }
                ServerAttachment::Attached(server) => Some(server),
            };
            // The cancelled statement has ended, but another signal may still arrive.
            if server_place.and_then(|it| servers.get(it)).is_some_and(RelayServer::awaits_signal) {
                session.is_stalled = true;
                return SessionInput::Used(used);
            }
            let mut server = server_place.and_then(|it| servers.get_mut(it)?.link());
            let mut outputs = context.outbox.both();
            session.begin(link, &mut server, context.now_us, used == 0, &mut outputs);
            let rest = &bytes[used..];
            let result = link.from_client(&mut session.link, server, rest, &mut outputs);
            used += result.consumed;
            if let Some(watch) = &mut session.watch {
                let sent = rest.get(..result.consumed).unwrap_or_default();
                watch.sent(sent, context.now_us);
            }
            session.want = result.want;
            session.is_stalled = result.next == ClientNext::Wait;
            match result.next {
                ClientNext::Read | ClientNext::Wait => {
                    self.send_outbox(Some(place), server_place, context);
                    self.clients.watch(place, &self.servers, context);
                    return SessionInput::Used(used);
                }
                ClientNext::Drain => {
                    self.send_outbox(Some(place), server_place, context);
                    self.clients.watch(place, &self.servers, context);
                    self.clients.fill(place, context);
                    return SessionInput::Used(used);
                }
                ClientNext::NeedServer => match self.lease(place, context) {
                    LeaseOutcome::Yes => {}
                    LeaseOutcome::Waits => {
                        self.send_outbox(Some(place), None, context);
                        return SessionInput::Used(used);
                    }
                    LeaseOutcome::No => return SessionInput::Used(bytes.len()),
                },
                ClientNext::ChangeUser => {
                    self.send_outbox(Some(place), server_place, context);
                    return SessionInput::ChangeUser(used);
                }
                next => match self.follow_client(place, server_place, next, context) {
                    LoginFlow::Again => {}
                    LoginFlow::Stop => return SessionInput::Used(used),
                    LoginFlow::Took => return SessionInput::Used(bytes.len()),
                },
            }
        }
    }

    /// Performs rare actions that a link requests.
    pub(crate) fn follow_client(
        &mut self,
        place: u32,
        server: Option<u32>,
        next: ClientNext,
        context: &mut ThreadContext,
    ) -> LoginFlow {
        if next == ClientNext::Refuse {
            // Output for the client is sent with its dismissal.
            self.servers.send_request(server, context);
            self.close_when_sent(place, context);
            return LoginFlow::Took;
        }
        self.send_outbox(Some(place), server, context);
        match next {
            ClientNext::NeedListener => {
                match self.subscribed(|it, io| it.subscribe(place, io), context) {
                    SubscriptionState::Yes => LoginFlow::Again,
                    SubscriptionState::Waits => LoginFlow::Stop,
                    SubscriptionState::No => LoginFlow::Took,
                }
            }
            ClientNext::Kill { id, connection } => {
                if self.kill_asked(place, id, connection, context) {
                    again(self.clients.goes_on(place, context))
                } else {
                    LoginFlow::Took
                }
            }
            ClientNext::Released => {
                if let Some(server) = server {
                    self.detach(place, server, context);
                    self.servers.rest(server, context);
                    self.apply_server_events(context);
                }
                again(self.clients.goes_on(place, context))
            }
            ClientNext::Terminate => {
                self.client_gone(place, &ClientDeparture::Terminate, context);
                LoginFlow::Took
            }
            ClientNext::Read
            | ClientNext::Wait
            | ClientNext::Drain
            | ClientNext::NeedServer
            | ClientNext::ChangeUser
            | ClientNext::Refuse => LoginFlow::Stop,
        }
    }

    /// Handles an event of epoll for a server connection.
    pub(crate) fn server_ready(
        &mut self,
        place: u32,
        readiness: SocketReadiness,
        context: &mut ThreadContext,
    ) {
        let Some(server) = self.servers.get_mut(place) else { return };
        server.conn.note(readiness);
        if readiness.writable {
            if matches!(server.phase, ServerPhase::Opening(_))
                && !self.servers.has_connected(place, context)
            {
                return;
            }
            self.flush_server(place, context);
        }
        if readiness.readable || readiness.closed {
            self.read_server(place, context);
        }
    }

    /// Sends pending output to a server, and resumes reading from its client once all is sent.
    pub(crate) fn flush_server(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(server) = self.servers.get(place) else { return };
        // Pending output was taken from a sandbox while the lease held, which may have ended since.
        if let (false, Some(client)) = (server.conn.is_flushed(), server.client)
            && self.disconnect_fenced(client, context)
        {
            return;
        }
        let Some(server) = self.servers.get_mut(place) else { return };
        if let Err(error) = server.conn.flush(&mut context.freelist, &context.registry) {
            return self.server_failed(place, &ServerCloseReason::Lost(error), context);
        }
        if let (false, Some(client)) = (server.conn.is_clogged(), server.client) {
            self.clients.queue(client, context);
        }
    }

    /// Reads from a server connection until it has no more input, or others should have their turn.
    pub(crate) fn read_server(&mut self, place: u32, context: &mut ThreadContext) {
        for _ in 0..READS_PER_TURN_MAX {
            let Some(server) = self.servers.get_mut(place) else { return };
            let client = server.client.and_then(|client| self.clients.get(client));
            // The client does not read its output: further input stays in the kernel, whose flow
            // control stops the server eventually.
            if !server.conn.is_readable() || client.is_some_and(|it| it.conn.is_clogged()) {
                return;
            }
            match server.conn.read(&mut context.scratch) {
                Ok(ReadOutcome::Data { count, .. }) => self.server_sent(place, count, context),
                Ok(ReadOutcome::Nothing) => {
                    return self.servers.tls_started(place, context);
                }
                Ok(ReadOutcome::End) => {
                    return self.server_failed(place, &ServerCloseReason::End, context);
                }
                Err(error) => {
                    return self.server_failed(place, &ServerCloseReason::Lost(error), context);
                }
            }
        }
        context.ready.add(EventSource::Server(place), SocketReadiness::READABLE, self);
    }

    /// Handles input from a server: `count` bytes in the scratch buffer.
    pub(crate) fn server_sent(&mut self, place: u32, count: usize, context: &mut ThreadContext) {
        let Some(server) = self.servers.get_mut(place) else { return };
        let scratch = std::mem::take(&mut context.scratch);
        if server.conn.input.is_empty() {
            let used = self.feed_server(place, &scratch[..count], context);
            if let Some(server) = self.servers.get_mut(place) {
                server.conn.input.push(&scratch[used..count], &mut context.freelist);
            }
        } else {
            server.conn.input.push(&scratch[..count], &mut context.freelist);
            let mut input = std::mem::take(&mut server.conn.input);
            let used = self.feed_server(place, input.front(), context);
            input.consume(used, &mut context.freelist);
            match self.servers.get_mut(place) {
                Some(server) => server.conn.input = input,
                None => input.clear(&mut context.freelist),
            }
        }
        context.scratch = scratch;
    }

    /// Passes bytes to the handler of the current phase; returns how many were used.
    pub(crate) fn feed_server(
        &mut self,
        place: u32,
        bytes: &[u8],
        context: &mut ThreadContext,
    ) -> usize {
        match self.servers.get(place).map(|server| &server.phase) {
            Some(ServerPhase::Opening(_)) => {
                let used = self.servers.feed_opening(place, bytes, context);
                self.apply_server_events(context);
                match used < bytes.len()
                    && self.servers.get(place).is_some_and(RelayServer::is_live)
                {
                    // The login is complete; the rest is for the session.
                    true => used + self.feed_server(place, &bytes[used..], context),
                    false => used,
                }
            }
            Some(ServerPhase::Live(_)) => {
                let client = self.servers.get(place).and_then(|server| server.client);
                let used = self.feed_live(place, bytes, context);
                if let Some(client) = client {
                    self.update_channels(client, context);
                }
                used
            }
            None => bytes.len(),
        }
    }

    /// Passes a server's bytes to its link.
    pub(crate) fn feed_live(
        &mut self,
        place: u32,
        bytes: &[u8],
        context: &mut ThreadContext,
    ) -> usize {
        let mut used = 0;
        loop {
            let SessionRelay { clients, servers, link, .. } = self;
            let Some(server) = servers.get_mut(place) else { return bytes.len() };
            let client_place = server.client;
            let session = client_place
                .and_then(|client| clients.get_mut(client)?.session())
                .filter(|session| !session.is_fresh);
            let session = session.map(|session| &mut session.link);
            let Some(server_link) = server.link() else { return bytes.len() };
            let rest = &bytes[used..];
            let result = link.from_server(server_link, session, rest, &mut context.outbox.both());
            used += result.consumed;
            let progress = result.consumed > 0;
            let ended = server.account();
            let session = client_place.and_then(|client| clients.session(client));
            let is_timed = match (ended, session) {
                (Some(ended), Some(session)) => {
                    session.account(ended, &server.stats, context.now_us)
                }
                (_, _) => false,
            };
            if let Some(client) = client_place {
                if is_timed {
                    // Its next phase has another limit.
                    self.clients.watch(client, &self.servers, context);
                }
                self.clients.unstall(client, context);
            }
            match result.next {
                ServerNext::Read => {
                    self.send_outbox(client_place, Some(place), context);
                    if used == bytes.len() || !progress {
                        return used;
                    }
                }
                ServerNext::Released => {
                    self.send_outbox(client_place, Some(place), context);
                    if let Some(client) = client_place {
                        self.detach(client, place, context);
                    }
                    self.servers.rest(place, context);
                    self.apply_server_events(context);
                }
                ServerNext::Idle => {
                    self.send_outbox(None, Some(place), context);
                    self.servers.rest(place, context);
                    self.apply_server_events(context);
                }
                ServerNext::Failed => {
                    self.send_outbox(client_place, Some(place), context);
                    self.servers.close(place, &ServerCloseReason::Failed, context);
                    if let Some(client) = client_place {
                        self.clients.server_lost(client);
                        self.close_when_sent(client, context);
                    }
                    return bytes.len();
                }
                ServerNext::Broken(reason) => {
                    context.outbox.to_server.clear();
                    self.send_outbox(client_place, None, context);
                    self.server_failed(
                        place,
                        &ServerCloseReason::Broken(reason.to_string()),
                        context,
                    );
                    return bytes.len();
                }
            }
            if used == bytes.len() {
                return used;
            }
        }
    }

    /// Handles the loss of a server connection. Its client gets an error, unless it had not used
    /// the connection.
    pub(crate) fn server_failed(
        &mut self,
        place: u32,
        closing: &ServerCloseReason,
        context: &mut ThreadContext,
    ) {
        let Some(server) = self.servers.get_mut(place) else { return };
        if let ServerPhase::Opening(_) = server.phase {
            return self.servers.opening_failed(place, closing.failure(), context);
        }
        let is_told = server.link().is_some_and(|link| link.is_closing());
        let client = server.client.take();
        let is_told = is_told || !server.takes_error();
        self.servers.close(place, closing, context);
        let Some(client_place) = client else { return };
        if self.clients.server_lost(client_place) {
            // The server received no byte of this client; another connection will do.
            return self.clients.queue(client_place, context);
        }
        if is_told {
            return self.close_when_sent(client_place, context);
        }
        let message = format!("the connection to the server was lost: {closing}");
        self.disconnect(client_place, &ErrorFields::fatal("08006", &message), context);
    }

    /// Sends the output for a client and for a server.
    pub(crate) fn send_outbox(
        &mut self,
        client: Option<u32>,
        server: Option<u32>,
        context: &mut ThreadContext,
    ) {
        self.servers.send_request(server, context);
        if !context.outbox.to_client.is_empty() {
            self.clients.send(client, &self.servers, context);
        }
    }
}

/// Returns the next step of a session, which proceeds or not.
fn again(goes_on: bool) -> LoginFlow {
    match goes_on {
        true => LoginFlow::Again,
        false => LoginFlow::Stop,
    }
}
