//! The life of a client: it logs in, is idle, waits for a server connection, holds one, leaves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pooler_core::link::{ClientLink, ClientNext, LinkOutputs, ProtocolLinks, ServerLink};

use super::accept::AcceptedConnection;
use super::client_count::CountedClient;
use super::conn::{EventSource, RelayConnection, SocketReadiness};
use super::console::ConsoleClient;
use super::guests::{ClientOrigin, ListenerBinding};
use super::leave::ClientDeparture;
use super::login::{GreetingWait, LoginFlow, LoginPhase};
use super::passing::PassedClient;
use super::pools::{LeaseOutcome, PoolRef, QueueTicket};
use super::server::RelayServer;
use super::socket::{ReadOutcome, RelaySocket};
use super::stats::ThreadTenantStats;
use super::subscriber::{ChannelSubscriber, SubscriptionState};
use super::worker::{PendingWork, READS_PER_TURN_MAX, RelayWorker, TimerKey};
use crate::guest::turns::LeaseQuotaPermit;
use crate::guest::watch::ConnectionObserver;
use crate::tenants::TenantRoute;

/// A client connection.
#[derive(Debug)]
pub(super) struct RelayClient {
    pub(super) conn: RelayConnection,
    pub(super) phase: ClientPhase,
    /// Tells it from others that had this place.
    pub(super) serial: u64,
    /// Number among all connections of the process.
    pub(super) number: u64,
    /// When it connected.
    pub(super) begun_us: u64,
    /// When its phase, or its place within the session, began.
    pub(super) since_us: u64,
    /// Since when it has not taken what it was sent.
    pub(super) clogged_us: Option<u64>,
    /// True if the node that it came to stops, and it is served here.
    pub(super) is_seen_off: bool,
    /// True if it is on the list of work.
    queued: bool,
}

/// Phase of a client's life.
#[derive(Debug)]
pub(super) enum ClientPhase {
    /// Logging in.
    Login(Box<LoginPhase>),
    /// Authenticated, and waiting for the parameters of a server.
    Greeting(Box<GreetingWait>),
    /// Logged in.
    Session(Box<ClientLogin>),
    /// At the console.
    Console(Box<ConsoleClient>),
    /// Served by another node.
    Passed(Box<PassedClient>),
    /// Closing, once its error is sent.
    Closing,
}

/// A client that is logged in.
#[derive(Debug)]
pub(super) struct ClientLogin {
    pub(super) link: ClientLink,
    pub(super) route: TenantRoute,
    pub(super) pool: PoolRef,
    pub(super) pid: u32,
    pub(super) place: ServerAttachment,
    /// True if its server connection is so new that the link does not know of it.
    pub(super) is_fresh: bool,
    /// True if the link takes nothing more before the server has said something.
    pub(super) is_stalled: bool,
    /// True if it waits for other nodes to say whether they have the client that it wants killed.
    pub(super) asks_elsewhere: bool,
    /// True if it has to take what it was answered before it may ask more.
    is_full: bool,
    /// Channels that it listens to; none if it never did.
    pub(super) subscriber: Option<Box<ChannelSubscriber>>,
    /// True if its tenant limits the times of clients, or of this user's.
    pub(super) is_timed: bool,
    /// Bytes of input without which there is no progress.
    want: usize,
    /// The server connection that it had last.
    pub(super) last_server: Option<u32>,
    /// When it got its place in the queue.
    pub(super) waiting_us: u64,
    /// When the statement or batch under way began.
    pub(super) request_us: u64,
    /// When it got the server connection that it holds.
    pub(super) attached_us: u64,
    /// When the server was last ready for more.
    pub(super) ready_us: u64,
    /// When the transaction began.
    pub(super) transaction_us: u64,
    /// True if it has said its last, and gets its answers yet.
    pub(super) is_ending: bool,
    /// When something was cancelled because it took too long.
    pub(super) overtime_us: Option<u64>,
    pub(super) stats: Arc<ThreadTenantStats>,
    /// The collation that it began with, of MySQL, for when it logs in anew.
    pub(super) collation: u16,
    /// Tenant that its listener is bound to, for the same.
    pub(super) bound: ListenerBinding,
    /// Reads along, with a guest.
    pub(super) watch: Option<Box<ConnectionObserver>>,
    /// A guest's, while it has a server connection or is in the queue for one.
    pub(super) turn: Option<LeaseQuotaPermit>,
    /// Counts it among the clients.
    _head: CountedClient,
}

/// Relation of a client to server connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ServerAttachment {
    /// Needs none.
    Idle,
    /// Guest whose other clients use its share: waits for its turn.
    Parked,
    /// In the queue for one.
    Waiting(QueueTicket),
    /// Holds one.
    Attached(u32),
}

impl ServerAttachment {
    /// Returns whether it is in some queue.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, ServerAttachment::Parked | ServerAttachment::Waiting(_))
    }
}

impl ClientLogin {
    /// Records that it has no server connection and waits for none.
    pub(super) fn rest(&mut self) {
        self.place = ServerAttachment::Idle;
        self.turn = None;
    }

    /// Creates the state of a client that has just logged in.
    pub(super) fn new(
        link: ClientLink,
        route: TenantRoute,
        head: CountedClient,
        pool: PoolRef,
        pid: u32,
        stats: Arc<ThreadTenantStats>,
    ) -> ClientLogin {
        let is_timed = route.tenant.times_of(&route.user).limit_clients();
        ClientLogin {
            link,
            route,
            pool,
            pid,
            place: ServerAttachment::Idle,
            is_fresh: false,
            is_stalled: false,
            asks_elsewhere: false,
            is_full: false,
            subscriber: None,
            is_timed,
            want: 0,
            last_server: None,
            waiting_us: 0,
            request_us: 0,
            attached_us: 0,
            ready_us: 0,
            transaction_us: 0,
            is_ending: false,
            overtime_us: None,
            stats,
            collation: 0,
            bound: ListenerBinding::default(),
            watch: None,
            turn: None,
            _head: head,
        }
    }

    /// Adds what a client of MySQL needs to log in anew.
    pub(super) fn of_mysql(self, collation: u16, bound: ListenerBinding) -> ClientLogin {
        ClientLogin { collation, bound, ..self }
    }

    /// Tells the link of a server connection that is new, and takes the time of what begins: with
    /// the first of its bytes, unless a reply is awaited yet.
    #[inline]
    fn begin(
        &mut self,
        links: &mut ProtocolLinks,
        server: &mut Option<&mut ServerLink>,
        now_us: u64,
        is_first: bool,
        out: &mut LinkOutputs<'_>,
    ) {
        match server {
            Some(server) if self.is_fresh => {
                self.is_fresh = false;
                self.transaction_us = now_us;
                self.attached_us = now_us;
                links.attach(&mut self.link, server, out);
            }
            Some(server) if server.has_client_entries() => {}
            // What begins now is something new.
            Some(_) | None if is_first => {
                self.request_us = now_us;
                let is_unsynced = server.as_ref().is_some_and(|server| server.is_unsynced());
                if !is_unsynced && !self.is_in_transaction() {
                    self.transaction_us = now_us;
                }
            }
            Some(_) | None => {}
        }
    }

    /// Returns whether the client was last told that it is in a transaction.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.link.is_in_transaction()
    }
}

impl RelayClient {
    /// Creates a client that begins with this phase.
    pub(super) fn new(
        conn: RelayConnection,
        phase: ClientPhase,
        serial: u64,
        number: u64,
        now_us: u64,
    ) -> RelayClient {
        RelayClient {
            conn,
            phase,
            serial,
            number,
            begun_us: now_us,
            since_us: now_us,
            clogged_us: None,
            is_seen_off: false,
            queued: false,
        }
    }

    /// The session, of a client that is logged in.
    pub(super) fn session(&mut self) -> Option<&mut ClientLogin> {
        match &mut self.phase {
            ClientPhase::Session(session) => Some(session),
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    /// The server connection that it holds.
    fn server(&self) -> Option<u32> {
        match &self.phase {
            ClientPhase::Session(session) => match session.place {
                ServerAttachment::Attached(server) => Some(server),
                ServerAttachment::Idle
                | ServerAttachment::Parked
                | ServerAttachment::Waiting(_) => None,
            },
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    /// Returns whether it has yet to take what it was answered. If not, it is not full any more.
    fn is_still_full(&mut self) -> bool {
        let is_clogged = self.conn.is_clogged();
        let Some(session) = self.session() else { return false };
        session.is_full &= is_clogged;
        session.is_full
    }

    /// Returns whether what it sends has to wait until something else has happened.
    fn is_held_up(&self) -> bool {
        match &self.phase {
            ClientPhase::Session(session) => {
                session.place.is_waiting() || session.is_stalled || session.asks_elsewhere
            }
            ClientPhase::Greeting(_) => true,
            ClientPhase::Login(login) => login.is_waiting(),
            ClientPhase::Console(console_client) => console_client.is_waiting(),
            ClientPhase::Passed(_) | ClientPhase::Closing => false,
        }
    }
}

impl RelayWorker {
    /// Takes a connection that was accepted.
    pub(super) fn accept_client(&mut self, accepted: AcceptedConnection, by: ClientOrigin) {
        self.serial += 1;
        self.counters.stats.accepted.add(1);
        let loads = self.common.peers.iter().map(|peer| peer.load.load(Ordering::Relaxed));
        if loads.sum::<usize>() > self.common.connections_max() {
            // Too many to be told one by one: descriptors are needed for those who are in.
            self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        if let Err(error) = self.begin_client(accepted, by) {
            // It left before it was looked at, or epoll is full: its descriptor is closed by now.
            tracing::debug!(error = &error as &dyn std::error::Error, "take a client");
            self.common.peers[self.index].load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn begin_client(&mut self, accepted: AcceptedConnection, by: ClientOrigin) -> io::Result<()> {
        let socket = match accepted {
            AcceptedConnection::Tcp(stream) => RelaySocket::tcp(stream, self.common.config.tcp)?,
            AcceptedConnection::Unix(stream) => RelaySocket::unix(stream),
        };
        let place = self.clients.reserve();
        let begun = self.new_login(&socket, place, by).and_then(|login| {
            let source = EventSource::Client(place);
            match RelayConnection::new(socket, source, false, &self.context.registry) {
                Ok(conn) => Ok((login, conn)),
                Err(error) => {
                    login.pid().inspect(|pid| self.common.keys.remove(*pid));
                    Err(error)
                }
            }
        });
        let (login, conn) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                self.outbox.to_client.clear();
                self.clients.give_up(place);
                return Err(error);
            }
        };
        let phase = ClientPhase::Login(Box::new(login));
        let (now_us, number) = (self.context.now_us, self.common.next_number());
        self.clients.occupy(place, RelayClient::new(conn, phase, self.serial, number, now_us));
        self.counters.stats.clients.add(1);
        self.counters.stats.logins.add(1);
        let login_us = self.common.live.login_us();
        self.context.timers.arm(TimerKey::Client(place).id(), now_us + login_us);
        // Of MySQL: there the server speaks first.
        self.send_outbox(Some(place), None);
        Ok(())
    }

    /// Epoll says something of a client.
    pub(super) fn client_ready(&mut self, place: u32, readiness: SocketReadiness) {
        let Some(client) = self.clients.get_mut(place) else { return };
        client.conn.note(readiness);
        if readiness.writable {
            self.flush_client(place);
        }
        if readiness.readable || readiness.closed {
            self.read_client(place);
        }
    }

    /// Sends what waits for a client, and reads its server again once that is done.
    fn flush_client(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let context = &mut self.context;
        if let Err(error) = client.conn.flush(&mut context.freelist, &context.registry) {
            return self.client_gone(place, &ClientDeparture::Lost(error));
        }
        if client.conn.is_clogged() {
            return;
        }
        client.clogged_us = None;
        if matches!(client.phase, ClientPhase::Passed(_)) {
            return self.queue_client(place);
        }
        if let Some(server) = client.server() {
            context.work.push_back(PendingWork::Server(server));
        }
        let is_full = client.session().is_some_and(|session| session.is_full);
        if is_full || client.conn.is_readable() {
            self.queue_client(place);
        }
        self.update_channels(place);
        self.finish_closing(place);
    }

    /// Reads a client until it has nothing more, or others should have their turn.
    fn read_client(&mut self, place: u32) {
        let phase = self.clients.get(place).map(|client| &client.phase);
        if matches!(phase, Some(ClientPhase::Passed(_))) {
            return self.carry(place);
        }
        for _ in 0..READS_PER_TURN_MAX {
            let Some(client) = self.clients.get_mut(place) else { return };
            if !client.conn.is_readable() || !self.may_read_client(place) {
                return;
            }
            let Some(client) = self.clients.get_mut(place) else { return };
            match client.conn.read(&mut self.scratch) {
                Ok(ReadOutcome::Data { count, .. }) => self.client_sent(place, count),
                Ok(ReadOutcome::Nothing) => return,
                Ok(ReadOutcome::End) => return self.client_ended(place),
                Err(error) => return self.client_gone(place, &ClientDeparture::Lost(error)),
            }
        }
        self.queue_client(place);
    }

    /// Returns whether what a client sends can be taken now. If not, it stays in the kernel, and
    /// the client is stopped by that in time.
    fn may_read_client(&mut self, place: u32) -> bool {
        let Some(client) = self.clients.get_mut(place) else { return false };
        let server = client.server().and_then(|server| self.servers.get(server));
        let is_held_up = client.is_held_up();
        let is_full = client.session().is_some_and(|session| session.is_full);
        // It asks and does not take the answers, or its server does not take what it says. A server
        // without us would not read it either.
        let is_stopped = is_full
            || client.conn.is_clogged()
            || server.is_some_and(|server| server.conn.is_clogged());
        if !is_held_up && !is_stopped {
            return true;
        }
        // Its end cannot be found by reading now.
        let is_queued = client.server().is_none();
        if client.conn.is_gone() || (client.conn.is_closed() && client.conn.socket.is_tls()) {
            self.client_gone(place, &ClientDeparture::End);
        } else if client.conn.is_closed()
            && is_held_up
            && (is_queued || server.is_some_and(RelayServer::owes_reply))
        {
            self.client_ended(place);
        }
        false
    }

    /// A client will say nothing more. Like a server without us, we answer what it has asked, if it
    /// is still there: of one that is not, the statement is cancelled.
    fn client_ended(&mut self, place: u32) {
        let RelayWorker { clients, servers, outbox, .. } = self;
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
            // Of a message that will never be complete there is no answer.
            ServerAttachment::Attached(_) => {
                !session.link.is_in_message() && server.is_some_and(RelayServer::owes_reply)
            }
        });
        let Some(session) = asked else { return self.client_gone(place, &ClientDeparture::End) };
        if std::mem::replace(&mut session.is_ending, true) {
            return;
        }
        // Whether it listens is found out by telling it something that it knows already: a closed
        // socket answers with a reset. In the middle of a message more is to come, which does too.
        let between = server.is_none_or(RelayServer::is_between_messages);
        if between {
            session.link.probe(&mut outbox.to_client);
            self.send_outbox(Some(place), None);
        }
    }

    /// A client that ended its side while it waited for a server connection, with half a message
    /// for it, would hold that for ever.
    fn leave_if_over(&mut self, place: u32) {
        let session = self.clients.get_mut(place).and_then(RelayClient::session);
        let Some(session) = session.filter(|session| session.is_ending) else { return };
        let ServerAttachment::Attached(server) = session.place else { return };
        let is_in_message = session.link.is_in_message();
        if is_in_message || !self.servers.get(server).is_some_and(RelayServer::owes_reply) {
            self.client_gone(place, &ClientDeparture::End);
        }
    }

    /// Puts a client on the list of work, once.
    pub(super) fn queue_client(&mut self, place: u32) {
        if let Some(client) = self.clients.get_mut(place)
            && !client.queued
        {
            client.queued = true;
            self.context.work.push_back(PendingWork::Client(place));
        }
    }

    /// Goes on with a client: input that was not consumed first, then what its socket has.
    pub(super) fn go_on_with_client(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        client.queued = false;
        if self.disconnect_violator(place) {
            return;
        }
        let Some(client) = self.clients.get_mut(place) else { return };
        if let ClientPhase::Greeting(greeting) = &client.phase {
            match greeting.place {
                ServerAttachment::Attached(server) => self.welcome_by_server(place, server),
                // The connection that was to greet it broke before its turn came.
                ServerAttachment::Idle => self.greet_client(place),
                ServerAttachment::Parked | ServerAttachment::Waiting(_) => {}
            }
        }
        if let Some(client) = self.clients.get_mut(place)
            && !client.is_still_full()
            && !client.conn.input.is_empty()
            && !client.is_held_up()
        {
            self.feed_backlog(place);
        }
        self.read_client(place);
        self.leave_if_over(place);
    }

    /// Handles what a client sent: `count` bytes in the scratch.
    fn client_sent(&mut self, place: u32, count: usize) {
        let Some(client) = self.clients.get_mut(place) else { return };
        if let ClientPhase::Session(session) = &client.phase {
            session.stats.received_bytes.add(count as u64);
        }
        if client.conn.input.is_empty() {
            let scratch = std::mem::take(&mut self.scratch);
            let used = self.feed_client(place, &scratch[..count]);
            if let Some(client) = self.clients.get_mut(place) {
                client.conn.input.push(&scratch[used..count], &mut self.context.freelist);
            }
            self.scratch = scratch;
        } else {
            client.conn.input.push(&self.scratch[..count], &mut self.context.freelist);
            self.feed_backlog(place);
        }
    }

    /// Handles what a client sent earlier, when there is enough of it.
    fn feed_backlog(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let want = client.session().map_or(0, |session| session.want);
        if client.conn.input.len() < want {
            return;
        }
        let mut input = std::mem::take(&mut client.conn.input);
        let used = self.feed_client(place, input.front());
        let freelist = &mut self.context.freelist;
        match self.clients.get_mut(place) {
            Some(client) => {
                input.consume(used, freelist);
                client.conn.input = input;
            }
            None => input.clear(freelist),
        }
    }

    /// Gives bytes to whatever the client's phase makes of them; says how many were used.
    pub(super) fn feed_client(&mut self, place: u32, bytes: &[u8]) -> usize {
        match self.clients.get_mut(place).map(|client| &client.phase) {
            Some(ClientPhase::Login(_)) => self.feed_login(place, bytes),
            Some(ClientPhase::Session(_)) => self.feed_session(place, bytes),
            Some(ClientPhase::Console(_)) => self.feed_console(place, bytes),
            // What comes after the login is carried by who reads next.
            Some(ClientPhase::Greeting(_) | ClientPhase::Passed(_)) => 0,
            Some(ClientPhase::Closing) | None => bytes.len(),
        }
    }

    /// Gives bytes to a session's link, with a server connection as soon as it needs one.
    fn feed_session(&mut self, place: u32, bytes: &[u8]) -> usize {
        if self.disconnect_fenced(place) {
            return bytes.len();
        }
        let mut used = 0;
        loop {
            let RelayWorker { clients, servers, outbox, link, context, .. } = self;
            let Some(session) = clients.get_mut(place).and_then(RelayClient::session) else {
                return bytes.len();
            };
            if session.asks_elsewhere {
                return used;
            }
            let server_place = match session.place {
                ServerAttachment::Idle => None,
                ServerAttachment::Parked | ServerAttachment::Waiting(_) => return used,
                ServerAttachment::Attached(server) => Some(server),
            };
            // What was cancelled has ended, and the server may yet be signalled once more.
            if server_place.and_then(|it| servers.get(it)).is_some_and(RelayServer::awaits_signal) {
                session.is_stalled = true;
                return used;
            }
            let mut server = server_place.and_then(|it| servers.get_mut(it)?.link());
            let mut outputs = outbox.both();
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
                    self.send_outbox(Some(place), server_place);
                    self.watch_client(place);
                    return used;
                }
                ClientNext::Drain => {
                    self.send_outbox(Some(place), server_place);
                    self.watch_client(place);
                    self.fill(place);
                    return used;
                }
                ClientNext::NeedServer => match self.lease(place) {
                    LeaseOutcome::Yes => {}
                    LeaseOutcome::Waits => {
                        self.send_outbox(Some(place), None);
                        return used;
                    }
                    LeaseOutcome::No => return bytes.len(),
                },
                ClientNext::ChangeUser => {
                    self.send_outbox(Some(place), server_place);
                    self.change_user(place, &bytes[used..]);
                    // It is somebody else by now, or nobody yet.
                    return used + self.feed_client(place, &bytes[used..]);
                }
                next => match self.follow_client(place, server_place, next) {
                    LoginFlow::Again => {}
                    LoginFlow::Stop => return used,
                    LoginFlow::Took => return bytes.len(),
                },
            }
        }
    }

    /// Does what a link asks for that is not asked for often.
    fn follow_client(&mut self, place: u32, server: Option<u32>, next: ClientNext) -> LoginFlow {
        if next == ClientNext::Refuse {
            // What is for the client goes with its dismissal.
            self.send_request(server);
            self.close_when_sent(place);
            return LoginFlow::Took;
        }
        self.send_outbox(Some(place), server);
        match next {
            ClientNext::NeedListener => match self.subscribe(place) {
                SubscriptionState::Yes => LoginFlow::Again,
                SubscriptionState::Waits => LoginFlow::Stop,
                SubscriptionState::No => LoginFlow::Took,
            },
            ClientNext::Kill { id, connection } => {
                if self.kill_asked(place, id, connection) {
                    self.again(place)
                } else {
                    LoginFlow::Took
                }
            }
            ClientNext::Released => {
                if let Some(server) = server {
                    self.detach(place, server);
                    self.rest(server);
                }
                self.again(place)
            }
            ClientNext::Terminate => {
                self.client_gone(place, &ClientDeparture::Terminate);
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

    /// Goes on with a client after its turn, once it has taken what it was answered.
    fn fill(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let is_clogged = client.conn.is_clogged();
        if let Some(session) = client.session() {
            session.is_full = true;
        }
        // Otherwise it is queued when there is room.
        if !is_clogged {
            self.queue_client(place);
        }
    }

    /// Goes on with a client at once, unless it has to take first what it was answered.
    fn again(&mut self, place: u32) -> LoginFlow {
        if self.clients.get(place).is_none_or(|client| !client.conn.is_clogged()) {
            return LoginFlow::Again;
        }
        self.fill(place);
        LoginFlow::Stop
    }

    /// The server has said something: a client whose link waited for that may go on, and one that
    /// has said its last may have got all its answers.
    pub(super) fn unstall(&mut self, place: u32) {
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let is_ending = session.is_ending;
        if std::mem::take(&mut session.is_stalled) || is_ending {
            self.queue_client(place);
        }
    }

    /// Goes on with a client whose server connection went back, if it has sent more.
    pub(super) fn queue_client_with_input(&mut self, place: u32) {
        if let Some(client) = self.clients.get(place)
            && (!client.conn.input.is_empty() || client.conn.is_readable())
        {
            self.queue_client(place);
        }
    }
}
