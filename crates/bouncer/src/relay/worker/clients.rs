//! Clients of a thread in any phase: accepting, reading, deadlines.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::TcpStream as MioStream;
use pooler_core::pg::login::{PgLoginRefusal, welcome};
use wire::pg::frame::{HEADER_BYTES, PgHeader};
use wire::pg::message::ErrorFields;

use super::RelayWorker;
use crate::guest::client::{LoginPlace, SandboxClient};
use crate::relay::accept::AcceptedConnection;
use crate::relay::client::{ClientPhase, RelayClient, ServerAttachment};
use crate::relay::conn::{EventSource, RelayConnection, SocketReadiness};
use crate::relay::console::{COMMAND_BYTES_MAX, ConsoleClient, ConsoleRequest, PARAMETERS};
use crate::relay::console_backend::ConsoleRights;
use crate::relay::context::{READS_PER_TURN_MAX, TimerKey};
use crate::relay::deadlines::ClientDeadline;
use crate::relay::departure::ClientDeparture;
use crate::relay::guests::ClientOrigin;
use crate::relay::keys::KEY_BYTES;
use crate::relay::orders::ThreadMessageKind;
use crate::relay::pools::LeaseRefusal;
use crate::relay::sessions::SessionInput;
use crate::relay::socket::{ReadOutcome, RelaySocket};

impl RelayWorker {
    /// Handles an accepted connection.
    pub(super) fn accept_client(&mut self, accepted: AcceptedConnection, by: ClientOrigin) {
        self.context.counters.stats.accepted.add(1);
        let loads = self.context.common.peers.iter().map(|peer| peer.load.load(Ordering::Relaxed));
        if loads.sum::<usize>() > self.context.common.connections_max() {
            // Too many to send each an error: descriptors are needed for connected clients.
            self.context.common.peers[self.context.index].load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if let Err(error) = self.begin_client(accepted, by) {
            // The client has already left, or epoll is full: its descriptor is closed by now.
            tracing::debug!(error = &error as &dyn std::error::Error, "take a client");
            self.context.common.peers[self.context.index].load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn begin_client(
        &mut self,
        accepted: AcceptedConnection,
        by: ClientOrigin,
    ) -> io::Result<()> {
        let socket = match accepted {
            AcceptedConnection::Tcp(stream) => {
                RelaySocket::tcp(stream, self.context.common.config.tcp)?
            }
            AcceptedConnection::Unix(stream) => RelaySocket::unix(stream),
        };
        let place = self.sessions.clients_mut().reserve();
        let begun = self.new_login(&socket, place, by).and_then(|login| {
            let source = EventSource::Client(place);
            match RelayConnection::new(socket, source, false, &self.context.registry) {
                Ok(conn) => Ok((login, conn)),
                Err(error) => {
                    login.pid().inspect(|pid| self.context.common.keys.remove(*pid));
                    Err(error)
                }
            }
        });
        let (login, conn) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                self.context.outbox.to_client.clear();
                self.sessions.clients_mut().give_up(place);
                return Err(error);
            }
        };
        self.sessions.clients_mut().begin_login(place, conn, login, &mut self.context);
        // For MySQL, where the server sends first.
        self.sessions.send_outbox(Some(place), None, &mut self.context);
        Ok(())
    }

    /// Handles an event of epoll for a client.
    pub(super) fn client_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        client.conn.note(readiness);
        if readiness.writable {
            self.sessions.flush_client(place, &mut self.context);
        }
        if readiness.readable || readiness.closed {
            self.read_client(place);
        }
    }

    /// Reads from a client until it has no more input, or others should have their turn.
    pub(super) fn read_client(&mut self, place: u32) {
        let phase = self.sessions.clients().get(place).map(|client| &client.phase);
        if matches!(phase, Some(ClientPhase::Passed(_))) {
            return self.carry(place);
        }
        for _ in 0..READS_PER_TURN_MAX {
            let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
            if !client.conn.is_readable()
                || !self.sessions.may_read_client(place, &mut self.context)
            {
                return;
            }
            let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
            match client.conn.read(&mut self.context.scratch) {
                Ok(ReadOutcome::Data { count, .. }) => self.client_sent(place, count),
                Ok(ReadOutcome::Nothing) => return,
                Ok(ReadOutcome::End) => {
                    return self.sessions.client_ended(place, &mut self.context);
                }
                Err(error) => {
                    return self.sessions.client_gone(
                        place,
                        &ClientDeparture::Lost(error),
                        &mut self.context,
                    );
                }
            }
        }
        let RelayWorker { sessions, context, .. } = self;
        context.ready.add(EventSource::Client(place), SocketReadiness::READABLE, sessions);
    }

    /// Continues with a client: first with buffered input, then with its socket.
    pub(super) fn go_on_with_client(&mut self, place: u32) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        client.queued = false;
        if self.sessions.disconnect_violator(place, &mut self.context) {
            return;
        }
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        if let ClientPhase::Greeting(greeting) = &client.phase {
            match greeting.place {
                ServerAttachment::Attached(server) => {
                    // The connection was leased for its parameters alone.
                    let context = &mut self.context;
                    if let Some(told) = self.sessions.take_parameters(place, server, context) {
                        self.welcome(place, &told);
                    }
                }
                // The connection whose parameters it waited for was lost before its turn.
                ServerAttachment::Idle => self.greet_client(place),
                ServerAttachment::Parked | ServerAttachment::Waiting(_) => {}
            }
        }
        if let Some(client) = self.sessions.clients_mut().get_mut(place)
            && !client.is_still_full()
            && !client.conn.input.is_empty()
            && !client.is_held_up()
        {
            self.feed_backlog(place);
        }
        self.read_client(place);
        self.sessions.leave_if_over(place, &mut self.context);
    }

    /// Handles input from a client: `count` bytes in the scratch buffer.
    pub(super) fn client_sent(&mut self, place: u32, count: usize) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        if let ClientPhase::Session(session) = &client.phase {
            session.stats.received_bytes.add(count as u64);
        }
        if client.conn.input.is_empty() {
            let scratch = std::mem::take(&mut self.context.scratch);
            let used = self.feed_client(place, &scratch[..count]);
            if let Some(client) = self.sessions.clients_mut().get_mut(place) {
                client.conn.input.push(&scratch[used..count], &mut self.context.freelist);
            }
            self.context.scratch = scratch;
        } else {
            client.conn.input.push(&self.context.scratch[..count], &mut self.context.freelist);
            self.feed_backlog(place);
        }
    }

    /// Handles buffered input of a client, if there is enough of it.
    pub(super) fn feed_backlog(&mut self, place: u32) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let want = client.session().map_or(0, |session| session.want);
        if client.conn.input.len() < want {
            return;
        }
        let mut input = std::mem::take(&mut client.conn.input);
        let used = self.feed_client(place, input.front());
        let freelist = &mut self.context.freelist;
        match self.sessions.clients_mut().get_mut(place) {
            Some(client) => {
                input.consume(used, freelist);
                client.conn.input = input;
            }
            None => input.clear(freelist),
        }
    }

    /// Passes bytes to the handler of the client's phase; returns how many were used.
    pub(super) fn feed_client(&mut self, place: u32, bytes: &[u8]) -> usize {
        match self.sessions.clients_mut().get_mut(place).map(|client| &client.phase) {
            Some(ClientPhase::Login(_)) => self.feed_login(place, bytes),
            Some(ClientPhase::Session(_)) => {
                match self.sessions.feed_session(place, bytes, &mut self.context) {
                    SessionInput::Used(used) => used,
                    SessionInput::ChangeUser(used) => {
                        self.change_user(place, &bytes[used..]);
                        // The client has another user by now, or is logging in.
                        used + self.feed_client(place, &bytes[used..])
                    }
                }
            }
            Some(ClientPhase::Console(_)) => self.feed_console(place, bytes),
            // Input after the login is kept for the next phase.
            Some(ClientPhase::Greeting(_) | ClientPhase::Passed(_)) => 0,
            Some(ClientPhase::Closing) | None => bytes.len(),
        }
    }

    /// Accepts a connection of a guest.
    pub(super) fn accept_guest(
        &mut self,
        stream: TcpStream,
        guest: Arc<SandboxClient>,
        place: LoginPlace,
    ) {
        if let Err(error) = stream.set_nonblocking(true) {
            tracing::error!(error = &error as &dyn std::error::Error, "take a guest");
            self.context.common.peers[self.context.index].load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.accept_client(
            AcceptedConnection::Tcp(MioStream::from_std(stream)),
            ClientOrigin::Guest(guest, place),
        );
    }

    /// Handles a cancel request from a client.
    pub(super) fn cancel_requested(&mut self, place: u32, pid: u32, key: &[u8]) {
        let Some(client) = self.sessions.clients().get(place) else { return };
        let guest = client.login_guest();
        let is_guest = guest.is_some();
        let is_fenced = guest.is_some_and(|guest| guest.check_lease().is_err());
        let source = client.cancel_source();
        self.sessions.client_gone(place, &ClientDeparture::Dismissed, &mut self.context);
        // Without a limit all keys could be tried.
        if is_fenced || !self.context.common.cancel_rate.allow(source, self.context.now) {
            return;
        }
        let Some((thread, client)) = self.context.common.keys.find(pid, key) else {
            // All connections of a guest are at this node.
            if let Some(elsewhere) = self.context.common.elsewhere.get().filter(|_| !is_guest) {
                elsewhere.pass_on(pid, key);
            }
            return;
        };
        if thread == self.context.index {
            self.sessions.cancel_client(client, pid, &mut self.context);
        } else if let Some(peer) = self.context.common.peers.get(thread) {
            peer.inbox.push(ThreadMessageKind::Cancel { client, pid });
        }
    }

    /// Checks the deadline of a client.
    pub(super) fn check_client_deadline(&mut self, place: u32) {
        let Some((at_us, due)) = self.sessions.client_deadline(place, &self.context) else {
            return;
        };
        if at_us > self.context.now_us {
            return self.context.timers.arm(TimerKey::Client(place).id(), at_us);
        }
        match due {
            ClientDeadline::Login => {
                let message =
                    self.context.words().of("the login took too long", "client_login_timeout");
                self.sessions.disconnect(
                    place,
                    &ErrorFields::fatal("08006", message),
                    &mut self.context,
                );
            }
            ClientDeadline::Entry => self.entry_wait_expired(place),
            ClientDeadline::Farewell => {
                self.sessions.client_gone(place, &ClientDeparture::Dismissed, &mut self.context)
            }
            ClientDeadline::Write => {
                let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
                self.sessions.client_gone(place, &ClientDeparture::Lost(error), &mut self.context);
            }
            ClientDeadline::Wait(wait) => {
                let refusal = LeaseRefusal::WaitTimeout { wait };
                self.sessions.refuse(place, &refusal, &mut self.context);
            }
            ClientDeadline::Idle => {
                let own = "terminating connection due to `client_idle_s`";
                let message = self.context.words().of(own, "client_idle_timeout");
                self.sessions.disconnect(
                    place,
                    &ErrorFields::fatal(self.context.words().code("57P05"), message),
                    &mut self.context,
                );
            }
            ClientDeadline::IdleInTransaction => {
                let own = "terminating connection due to `idle_in_transaction_s`";
                let message = self.context.words().of(own, "idle transaction timeout");
                self.sessions.disconnect(
                    place,
                    &ErrorFields::fatal(self.context.words().code("25P03"), message),
                    &mut self.context,
                );
            }
            ClientDeadline::Query => {
                let message =
                    self.context.words().of("the statement exceeded `query_s`", "query timeout");
                self.sessions.overtime(place, "57014", message, &mut self.context);
            }
            ClientDeadline::Transaction => {
                let own = "the transaction exceeded `transaction_s`";
                let message = self.context.words().of(own, "transaction timeout");
                self.sessions.overtime(place, "25P04", message, &mut self.context);
            }
        }
    }

    /// Admits an authenticated client to the console.
    pub(super) fn begin_console(
        &mut self,
        place: u32,
        user: Arc<str>,
        rights: ConsoleRights,
    ) -> Result<(), PgLoginRefusal> {
        let backend = self.context.common.console.get();
        let (all_max, user_max) = match (rights, backend) {
            (ConsoleRights::Stats, Some(backend)) => backend.watchers_max(&user),
            (ConsoleRights::Admin, _) | (_, None) => (None, None),
        };
        let visit = self.context.common.population.route_to_console(&user, all_max, user_max);
        let visit =
            visit.map_err(|full| PgLoginRefusal::new("53300", self.context.words().full(full)))?;
        self.context.counters.stats.logins.sub(1);
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return Ok(()) };
        client.since_us = self.context.now_us;
        let registered = self.context.common.keys.register(self.context.index, place, KEY_BYTES);
        let (pid, key) = registered.map_err(|error| {
            let refusal = PgLoginRefusal::new("58000", "there is no key for this connection");
            PgLoginRefusal { cause: Some(error.to_string()), ..refusal }
        })?;
        welcome(PARAMETERS, pid, &key, &mut self.context.outbox.to_client);
        let console_client = ConsoleClient::new(user, rights, pid, visit);
        client.phase = ClientPhase::Console(Box::new(console_client));
        self.sessions.send_outbox(Some(place), None, &mut self.context);
        Ok(())
    }

    /// Passes bytes to the connection of a console client; returns how many were used.
    pub(super) fn feed_console(&mut self, place: u32, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let header = match PgHeader::parse(rest) {
                Ok(Some(header)) if header.total <= COMMAND_BYTES_MAX => header,
                Ok(None) => return used,
                Ok(Some(_)) | Err(_) => {
                    let message = "the console takes messages of 16 KiB at most";
                    self.sessions.disconnect(
                        place,
                        &ErrorFields::fatal("08P01", message),
                        &mut self.context,
                    );
                    return bytes.len();
                }
            };
            let Some(body) = rest.get(HEADER_BYTES..header.total) else { return used };
            used += header.total;
            let RelayWorker { sessions, context, .. } = self;
            let clients = sessions.clients_mut();
            let client = clients.get_mut(place);
            let Some(RelayClient { phase: ClientPhase::Console(console_client), serial, .. }) =
                client
            else {
                return bytes.len();
            };
            let serial = *serial;
            match console_client.take(header.tag, body, &mut context.outbox.to_client) {
                ConsoleRequest::Nothing => {
                    self.sessions.send_outbox(Some(place), None, &mut self.context)
                }
                ConsoleRequest::Question(text) => {
                    console_client.ask(place, serial, text, context);
                    return used;
                }
                ConsoleRequest::Farewell => {
                    self.sessions.client_gone(
                        place,
                        &ClientDeparture::Terminate,
                        &mut self.context,
                    );
                    return bytes.len();
                }
                ConsoleRequest::Wrong(fields) => {
                    self.sessions.disconnect(place, &fields, &mut self.context);
                    return bytes.len();
                }
            }
        }
    }

    /// Handles a reply of the console.
    pub(super) fn answered(&mut self, place: u32, serial: u64, answer: &[u8]) {
        let Some(client) = self.sessions.clients_mut().get_mut(place) else { return };
        let (true, ClientPhase::Console(console_client)) =
            (client.serial == serial, &mut client.phase)
        else {
            return;
        };
        console_client.answered();
        self.context.outbox.to_client.extend_from_slice(answer);
        self.sessions.send_outbox(Some(place), None, &mut self.context);
        // More input may have arrived meanwhile.
        self.sessions.clients_mut().queue(place, &mut self.context);
    }
}
