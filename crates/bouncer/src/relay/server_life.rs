//! The life of a server connection, as the thread drives it: it logs in, is idle, is held, is
//! cleaned, is closed.

use pooler_core::link::ServerNext;
use wire::pg::message::ErrorFields;

use super::client::{ClientPhase, ServerAttachment};
use super::conn::SocketReadiness;
use super::journal;
use super::server::{RelayServer, ServerCloseReason, ServerPhase};
use super::socket::ReadOutcome;
use super::worker::{PendingWork, READS_PER_TURN_MAX, RelayWorker, TimerKey};
use crate::guest::watch::ReplyAction;

impl RelayWorker {
    /// Epoll says something of a server connection.
    pub(super) fn server_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let Some(server) = self.servers.get_mut(place) else { return };
        server.conn.note(readiness);
        if readiness.writable {
            if matches!(server.phase, ServerPhase::Opening(_)) && !self.has_connected(place) {
                return;
            }
            self.flush_server(place);
        }
        if readiness.readable || readiness.closed {
            self.read_server(place);
        }
    }

    /// Sends what waits for a server, and reads its client again once that is done.
    fn flush_server(&mut self, place: u32) {
        let Some(server) = self.servers.get(place) else { return };
        // What waits was taken from a sandbox while the lease held, which it may not do any more.
        if let (false, Some(client)) = (server.conn.is_flushed(), server.client)
            && self.disconnect_fenced(client)
        {
            return;
        }
        let Some(server) = self.servers.get_mut(place) else { return };
        let context = &mut self.context;
        if let Err(error) = server.conn.flush(&mut context.freelist, &context.registry) {
            return self.server_failed(place, &ServerCloseReason::Lost(error));
        }
        if let (false, Some(client)) = (server.conn.is_clogged(), server.client) {
            self.queue_client(client);
        }
    }

    /// Reads a server connection until it has nothing more, or others should have their turn.
    pub(super) fn read_server(&mut self, place: u32) {
        for _ in 0..READS_PER_TURN_MAX {
            let Some(server) = self.servers.get_mut(place) else { return };
            let client = server.client.and_then(|client| self.clients.get(client));
            // The client does not take what it has: what comes stays in the kernel, and the server
            // is stopped by that in time.
            if !server.conn.is_readable() || client.is_some_and(|it| it.conn.is_clogged()) {
                return;
            }
            match server.conn.read(&mut self.scratch) {
                Ok(ReadOutcome::Data { count, .. }) => self.server_sent(place, count),
                Ok(ReadOutcome::Nothing) => return self.server_tls_started(place),
                Ok(ReadOutcome::End) => return self.server_failed(place, &ServerCloseReason::End),
                Err(error) => return self.server_failed(place, &ServerCloseReason::Lost(error)),
            }
        }
        self.context.work.push_back(PendingWork::Server(place));
    }

    /// Handles what a server sent: `count` bytes in the scratch.
    fn server_sent(&mut self, place: u32, count: usize) {
        let Some(server) = self.servers.get_mut(place) else { return };
        let scratch = std::mem::take(&mut self.scratch);
        if server.conn.input.is_empty() {
            let used = self.feed_server(place, &scratch[..count]);
            if let Some(server) = self.servers.get_mut(place) {
                server.conn.input.push(&scratch[used..count], &mut self.context.freelist);
            }
        } else {
            server.conn.input.push(&scratch[..count], &mut self.context.freelist);
            let mut input = std::mem::take(&mut server.conn.input);
            let used = self.feed_server(place, input.front());
            input.consume(used, &mut self.context.freelist);
            match self.servers.get_mut(place) {
                Some(server) => server.conn.input = input,
                None => input.clear(&mut self.context.freelist),
            }
        }
        self.scratch = scratch;
    }

    /// Gives bytes to whatever the phase makes of them; says how many were used.
    pub(super) fn feed_server(&mut self, place: u32, bytes: &[u8]) -> usize {
        match self.servers.get(place).map(|server| &server.phase) {
            Some(ServerPhase::Opening(_)) => self.feed_opening(place, bytes),
            Some(ServerPhase::Live(_)) => {
                let client = self.servers.get(place).and_then(|server| server.client);
                let used = self.feed_live(place, bytes);
                if let Some(client) = client {
                    self.update_channels(client);
                }
                used
            }
            None => bytes.len(),
        }
    }

    /// Gives what a server sent to its link.
    fn feed_live(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let RelayWorker { clients, servers, outbox, link, .. } = self;
            let Some(server) = servers.get_mut(place) else { return bytes.len() };
            let client_place = server.client;
            let session = client_place
                .and_then(|client| clients.get_mut(client)?.session())
                .filter(|session| !session.is_fresh);
            let session = session.map(|session| &mut session.link);
            let Some(server_link) = server.link() else { return bytes.len() };
            let rest = &bytes[used..];
            let result = link.from_server(server_link, session, rest, &mut outbox.both());
            used += result.consumed;
            let progress = result.consumed > 0;
            self.account(place);
            if let Some(client) = client_place {
                self.unstall(client);
            }
            match result.next {
                ServerNext::Read => {
                    self.send_outbox(client_place, Some(place));
                    if used == bytes.len() || !progress {
                        return used;
                    }
                }
                ServerNext::Released => {
                    self.send_outbox(client_place, Some(place));
                    if let Some(client) = client_place {
                        self.detach(client, place);
                    }
                    self.rest(place);
                }
                ServerNext::Idle => {
                    self.send_outbox(None, Some(place));
                    self.rest(place);
                }
                ServerNext::Failed => {
                    self.send_outbox(client_place, Some(place));
                    self.close_server(place, &ServerCloseReason::Failed);
                    if let Some(client) = client_place {
                        self.server_taken(client);
                        self.close_when_sent(client);
                    }
                    return bytes.len();
                }
                ServerNext::Broken(reason) => {
                    self.outbox.to_server.clear();
                    self.send_outbox(client_place, None);
                    self.server_failed(place, &ServerCloseReason::Broken(reason.to_string()));
                    return bytes.len();
                }
            }
            if used == bytes.len() {
                return used;
            }
        }
    }
}

impl RelayWorker {
    /// Counts what a link has counted since the last look.
    fn account(&mut self, place: u32) {
        let RelayWorker { clients, servers, context, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        let Some(link) = server.link() else { return };
        let (counts, errors) = (link.counts(), link.take_errors());
        if let Some(errors) = errors {
            server.stats.failed(&errors);
        }
        if counts == server.counted {
            return;
        }
        let (queries, transactions) = server.counted;
        server.counted = counts;
        server.count_pins();
        server.stats.queries.add(counts.0.wrapping_sub(queries));
        server.stats.transactions.add(counts.1.wrapping_sub(transactions));
        let session = server.client.and_then(|client| clients.get_mut(client)?.session());
        let Some(session) = session else { return };
        let now_us = context.now_us;
        server.stats.times().query.record(now_us.saturating_sub(session.request_us));
        session.request_us = now_us;
        session.ready_us = now_us;
        if counts.1 != transactions {
            let begun_us = std::mem::replace(&mut session.transaction_us, now_us);
            server.stats.times().transaction.record(now_us.saturating_sub(begun_us));
        }
        if let (true, Some(client)) = (session.is_timed, server.client) {
            // What it does next has another limit.
            self.watch_client(client);
        }
    }

    /// A server connection that no client holds: back to its pool as soon as it may be shared.
    pub(super) fn rest(&mut self, place: u32) {
        let Some(server) = self.servers.get_mut(place) else { return };
        match server.link().map(|link| link.is_idle()) {
            Some(true) => {
                server.is_cancelled = false;
                if std::mem::take(&mut server.is_resetting) {
                    server.stats.resets.add(1);
                }
                self.return_server(place);
            }
            Some(false) => self.await_idle(place),
            None => {}
        }
    }

    /// A server connection ended by itself. Its client is told, unless nothing of it was lost.
    pub(super) fn server_failed(&mut self, place: u32, closing: &ServerCloseReason) {
        let Some(server) = self.servers.get_mut(place) else { return };
        if let ServerPhase::Opening(_) = server.phase {
            return self.opening_failed(place, closing.failure());
        }
        let is_told = server.link().is_some_and(|link| link.is_closing());
        let client = server.client.take();
        let is_told = is_told || !server.takes_error();
        self.close_server(place, closing);
        let Some(client_place) = client else { return };
        if self.server_taken(client_place) {
            // It had not been given a byte of this client's: another one will do.
            return self.queue_client(client_place);
        }
        if is_told {
            return self.close_when_sent(client_place);
        }
        let message = format!("the connection to the server was lost: {closing}");
        self.disconnect(client_place, &ErrorFields::fatal("08006", &message));
    }

    /// Takes note that a client's server connection is no more. Whether nothing of it was used.
    fn server_taken(&mut self, place: u32) -> bool {
        let Some(client) = self.clients.get_mut(place) else { return false };
        match &mut client.phase {
            ClientPhase::Session(session) => {
                session.rest();
                session.stats.clients_active.sub(1);
                session.link.server_lost();
                std::mem::take(&mut session.is_fresh)
            }
            ClientPhase::Greeting(greeting) => {
                greeting.place = ServerAttachment::Idle;
                true
            }
            ClientPhase::Login(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        }
    }

    /// Closes a server connection that has no client.
    pub(super) fn close_server(&mut self, place: u32, closing: &ServerCloseReason) {
        let Some(mut server) = self.servers.remove(place) else { return };
        self.context.timers.disarm(TimerKey::Server(place).id());
        if server.is_resetting {
            server.stats.reset_failures.add(1);
        }
        if let Some(link) = server.link() {
            let pid = link.pid();
            tracing::debug!(pid, tenant = &*server.tenant.name, %closing, "server connection closed");
        }
        self.journal_server(place, &server, &journal::reason(closing));
        server.count_idle(false);
        // Whose pool decided has forgotten it already.
        if !matches!(closing, ServerCloseReason::Pool(_)) {
            self.pools.lost(server.pool, place, self.context.now);
        }
        server.stats.servers.sub(1);
        self.counters.stats.servers.sub(1);
        let context = &mut self.context;
        if let ServerPhase::Live(link) = &server.phase
            && server.conn.is_flushed()
        {
            self.outbox.to_server.clear();
            link.put_goodbye(&mut self.outbox.to_server);
            let bytes = &self.outbox.to_server;
            // Politeness; the end of the connection says the same.
            drop(server.conn.send(bytes, &mut context.freelist, &context.registry));
            self.outbox.to_server.clear();
        }
        let RelayServer { mut conn, slot, .. } = server;
        let is_open = !conn.is_closed();
        let socket = is_open.then(|| conn.leave(&context.registry));
        conn.close(&mut context.freelist);
        // One that cannot be waited for is over.
        if let Some(Ok(socket)) = socket {
            self.common.closing.wait(socket, slot);
        }
    }

    /// Sends what was assembled for a client and for a server.
    pub(super) fn send_outbox(&mut self, client: Option<u32>, server: Option<u32>) {
        self.send_request(server);
        if !self.outbox.to_client.is_empty() {
            self.send_to_client(client);
        }
    }

    /// Sends what was assembled for a server, and keeps what is for a client.
    pub(super) fn send_request(&mut self, server: Option<u32>) {
        if !self.outbox.to_server.is_empty() {
            self.send_to_server(server);
        }
    }

    fn send_to_server(&mut self, place: Option<u32>) {
        let RelayWorker { servers, outbox, context, .. } = self;
        let server = place.and_then(|place| servers.get_mut(place));
        debug_assert!(server.is_some(), "bytes for a server that is not there");
        let Some(server) = server else { return outbox.to_server.clear() };
        let sent = server.conn.send(&outbox.to_server, &mut context.freelist, &context.registry);
        outbox.to_server.clear();
        if sent.is_err() {
            // What it said before it went away is still to be read: it tells why.
            server.conn.mark_closed();
            context.work.push_back(PendingWork::Server(place.unwrap_or_default()));
        }
    }

    fn send_to_client(&mut self, place: Option<u32>) {
        let RelayWorker { clients, outbox, context, .. } = self;
        let client = place.and_then(|place| clients.get_mut(place));
        debug_assert!(client.is_some(), "bytes for a client that is not there");
        let Some(client) = client else { return outbox.to_client.clear() };
        let mut is_violator = false;
        if let ClientPhase::Session(session) = &mut client.phase {
            session.stats.sent_bytes.add(outbox.to_client.len() as u64);
            if let Some(watch) = &mut session.watch
                && watch.received(&mut outbox.to_client, context.now_us) == ReplyAction::Violation
            {
                is_violator = true;
            }
        }
        let sent = client.conn.send(&outbox.to_client, &mut context.freelist, &context.registry);
        outbox.to_client.clear();
        match sent {
            Ok(()) if client.conn.is_flushed() => {}
            Ok(()) => self.watch_clogged(place.unwrap_or_default()),
            Err(_) => {
                client.conn.mark_closed();
                self.queue_client(place.unwrap_or_default());
            }
        }
        if is_violator {
            self.queue_client(place.unwrap_or_default());
        }
    }
}
