//! The end of a client: it leaves, or it is disconnected with an error.

use std::sync::atomic::Ordering;

use wire::pg::message::{ErrorFields, backend};

use super::SessionRelay;
use crate::relay::client::{ClientLogin, ClientPhase, ServerAttachment};
use crate::relay::context::TimerKey;
use crate::relay::deadlines::{ClientDeadline, OVERTIME_US};
use crate::relay::departure::{CLOSING_US, ClientDeparture};
use crate::relay::dialect::ErrorDialect;
use crate::relay::listen::SubscriberIo;
use crate::relay::login::GreetingWait;
use crate::relay::server::RelayServer;
use crate::relay::sessions::ThreadContext;

impl SessionRelay {
    /// Ends a client now.
    pub(crate) fn client_gone(
        &mut self,
        place: u32,
        leaving: &ClientDeparture,
        context: &mut ThreadContext,
    ) {
        let Some(client) = self.clients.remove(place) else { return };
        client.journal_leaving(place, leaving, context.now_us);
        context.timers.disarm(TimerKey::Client(place).id());
        if let ClientDeparture::Lost(error) = leaving {
            tracing::debug!(
                client = place,
                error = error as &dyn std::error::Error,
                "lost a client"
            );
        }
        match client.phase {
            ClientPhase::Login(login) => login.end(context),
            ClientPhase::Greeting(greeting) => self.end_greeting(*greeting, context),
            ClientPhase::Session(session) => self.end_session(*session, leaving, context),
            ClientPhase::Console(console_client) => context.common.keys.remove(console_client.pid),
            ClientPhase::Passed(passed) => passed.end(context),
            ClientPhase::Closing => {}
        }
        client.conn.close(&mut context.freelist);
        context.counters.stats.clients.sub(1);
        context.common.peers[context.index].load.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends a client a fatal error, and closes the connection once the error was read.
    pub(crate) fn disconnect(
        &mut self,
        place: u32,
        fields: &ErrorFields<'_>,
        context: &mut ThreadContext,
    ) {
        let Some(client) = self.clients.get(place) else { return };
        client.journal_closing(place, fields.message, context.now_us);
        let SessionRelay { clients, servers, .. } = self;
        let out = &mut context.outbox.to_client;
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
            // The error was sent already.
            Some(ClientPhase::Closing) | None => {}
        }
        self.close_when_sent(place, context);
    }

    /// Sends the client's last output, and closes the connection once it was read.
    pub(crate) fn close_when_sent(&mut self, place: u32, context: &mut ThreadContext) {
        let Some(client) = self.clients.get_mut(place) else {
            context.outbox.to_client.clear();
            return;
        };
        client.conn.input.clear(&mut context.freelist);
        let sent =
            client.conn.send(&context.outbox.to_client, &mut context.freelist, &context.registry);
        context.outbox.to_client.clear();
        client.since_us = context.now_us;
        match std::mem::replace(&mut client.phase, ClientPhase::Closing) {
            ClientPhase::Login(login) => login.end(context),
            ClientPhase::Greeting(greeting) => self.end_greeting(*greeting, context),
            ClientPhase::Session(session) => {
                self.end_session(*session, &ClientDeparture::Dismissed, context)
            }
            ClientPhase::Console(console_client) => context.common.keys.remove(console_client.pid),
            ClientPhase::Passed(passed) => passed.end(context),
            ClientPhase::Closing => {}
        }
        if let Err(error) = sent {
            return self.client_gone(place, &ClientDeparture::Lost(error), context);
        }
        context.timers.arm(TimerKey::Client(place).id(), context.now_us + CLOSING_US);
        self.finish_closing(place, context);
    }

    /// Shuts down the sending side once all output was sent. The client then closes its side.
    pub(crate) fn finish_closing(&mut self, place: u32, context: &mut ThreadContext) {
        if let Some(client) = self.clients.get_mut(place)
            && matches!(client.phase, ClientPhase::Closing)
            && client.conn.is_flushed()
        {
            client.conn.socket.finish();
            if client.conn.is_readable() {
                self.clients.queue(place, context);
            }
        }
    }

    /// Releases the resources of a client that is authenticated and waits for its greeting.
    pub(crate) fn end_greeting(&mut self, greeting: GreetingWait, context: &mut ThreadContext) {
        greeting.stats.clients.sub(1);
        match greeting.place {
            ServerAttachment::Idle | ServerAttachment::Parked => {}
            ServerAttachment::Waiting(ticket) => {
                self.servers.give_up_waiting(greeting.pool, ticket, context.now);
            }
            ServerAttachment::Attached(server) => {
                let SessionRelay { servers, link, .. } = self;
                servers.abandon(server, None, link, &ClientDeparture::Dismissed, context);
            }
        }
        self.servers.leave(greeting.pool, context.now);
        self.apply_server_events(context);
    }

    /// Releases the resources of a session.
    pub(crate) fn end_session(
        &mut self,
        session: ClientLogin,
        leaving: &ClientDeparture,
        context: &mut ThreadContext,
    ) {
        context.common.keys.remove(session.pid);
        if let Some(subscriber) = &session.subscriber {
            let SessionRelay { subscriptions, clients, servers, .. } = self;
            subscriptions.unsubscribe(subscriber, &mut SubscriberIo { clients, servers, context });
        }
        session.stats.clients.sub(1);
        match session.place {
            ServerAttachment::Idle => {}
            ServerAttachment::Parked => session.stats.clients_waiting.sub(1),
            ServerAttachment::Waiting(ticket) => {
                session.stats.clients_waiting.sub(1);
                self.servers.give_up_waiting(session.pool, ticket, context.now);
            }
            ServerAttachment::Attached(server) => {
                session.stats.clients_active.sub(1);
                let client = (!session.is_fresh).then_some(&session.link);
                let SessionRelay { servers, link, .. } = self;
                servers.abandon(server, client, link, leaving, context);
            }
        }
        self.servers.leave(session.pool, context.now);
        self.apply_server_events(context);
    }

    /// Returns the next deadline of a client, and its time.
    pub(crate) fn client_deadline(
        &self,
        place: u32,
        context: &ThreadContext,
    ) -> Option<(u64, ClientDeadline)> {
        let client = self.clients.get(place)?;
        client.deadline(&self.servers, context.common.live.login_us())
    }

    /// Handles a statement or transaction that takes too long: cancels a running statement, and
    /// disconnects the client if that has no effect or nothing runs.
    pub(crate) fn overtime(
        &mut self,
        place: u32,
        code: &'static str,
        message: &str,
        context: &mut ThreadContext,
    ) {
        let (now_us, words) = (context.now_us, context.words());
        let Some(session) = self.clients.session(place) else {
            return;
        };
        let ServerAttachment::Attached(server_place) = session.place else { return };
        let waits = self.servers.get(server_place).is_some_and(RelayServer::is_awaited);
        // PgBouncer disconnects at once in both cases.
        let first = session.overtime_us.is_none() && words == ErrorDialect::Own;
        if waits && first {
            session.overtime_us = Some(now_us);
            self.servers.cancel(server_place, context);
            return context.timers.arm(TimerKey::Client(place).id(), now_us + OVERTIME_US);
        }
        self.disconnect(place, &ErrorFields::fatal(words.code(code), message), context);
    }
}
