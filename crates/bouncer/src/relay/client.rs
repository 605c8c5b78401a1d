//! The life of a client: logging in, idle, waiting for a server connection, holding one, leaving.

use std::sync::Arc;

use pooler_core::link::{ClientLink, LinkOutputs, ProtocolLinks, ServerLink};

use super::client_count::CountedClient;
use super::conn::RelayConnection;
use super::console::ConsoleClient;
use super::guests::ListenerBinding;
use super::login::{GreetingWait, LoginPhase};
use super::passing::PassedClient;
use super::pools::{PoolRef, QueueTicket};
use super::server::LinkProgress;
use super::stats::ThreadTenantStats;
use super::subscriber::ChannelSubscriber;
use crate::guest::turns::LeaseQuotaPermit;
use crate::guest::watch::ConnectionObserver;
use crate::tenants::{TenantId, TenantRoute};

/// A client connection.
#[derive(Debug)]
pub(super) struct RelayClient {
    pub(super) conn: RelayConnection,
    pub(super) phase: ClientPhase,
    /// Distinguishes it from earlier clients of this slot.
    pub(super) serial: u64,
    /// Number among all connections of the process.
    pub(super) number: u64,
    /// Time at which it connected.
    pub(super) begun_us: u64,
    /// Time at which its phase, or its relation to server connections within the session, began.
    pub(super) since_us: u64,
    /// Time since which it has not read its pending output.
    pub(super) clogged_us: Option<u64>,
    /// True if the node that it connected to is stopping, and it is served here.
    pub(super) is_seen_off: bool,
    /// True if it is in the queue of pending work.
    pub(super) queued: bool,
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
    /// True if the link has not been attached to its server connection yet.
    pub(super) is_fresh: bool,
    /// True if the link takes no more input before the server has sent something.
    pub(super) is_stalled: bool,
    /// True if it waits for other nodes to report whether they have the client to kill.
    pub(super) asks_elsewhere: bool,
    /// True if it has to read its replies before it may send more.
    pub(super) is_full: bool,
    /// Channels that it listens to; `None` if it never did.
    pub(super) subscriber: Option<Box<ChannelSubscriber>>,
    /// True if its tenant limits the times of clients, or of this user's.
    pub(super) is_timed: bool,
    /// Bytes of input without which there is no progress.
    pub(super) want: usize,
    /// The server connection that it held last.
    pub(super) last_server: Option<u32>,
    /// Time at which it entered the queue.
    pub(super) waiting_us: u64,
    /// Time at which the current statement or batch began.
    pub(super) request_us: u64,
    /// Time at which it got the server connection that it holds.
    pub(super) attached_us: u64,
    /// Time at which the server was last ready for more.
    pub(super) ready_us: u64,
    /// Time at which the transaction began.
    pub(super) transaction_us: u64,
    /// True if it sends nothing more, and only receives its outstanding replies.
    pub(super) is_ending: bool,
    /// Time at which its statement was cancelled for taking too long.
    pub(super) overtime_us: Option<u64>,
    pub(super) stats: Arc<ThreadTenantStats>,
    /// The collation of a MySQL client's login, for a new login on the same connection.
    pub(super) collation: u16,
    /// Tenant that its listener is bound to, for a new login as well.
    pub(super) bound: ListenerBinding,
    /// Observer of a guest's traffic.
    pub(super) watch: Option<Box<ConnectionObserver>>,
    /// Permit of a guest, while it has a server connection or is in the queue for one.
    pub(super) turn: Option<LeaseQuotaPermit>,
    /// Its entry in the count of clients.
    _head: CountedClient,
}

/// Relation of a client to server connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ServerAttachment {
    /// Needs no server connection.
    Idle,
    /// Guest that waits because other clients of its grant use up the share.
    Parked,
    /// In the queue for one.
    Waiting(QueueTicket),
    /// Holds this one.
    Attached(u32),
}

impl ServerAttachment {
    /// Returns whether it is in a pool's queue.
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

    /// Adds the state with which a MySQL client can log in again.
    pub(super) fn of_mysql(self, collation: u16, bound: ListenerBinding) -> ClientLogin {
        ClientLogin { collation, bound, ..self }
    }

    /// Attaches the link to a new server connection, and records the start of a request: at its
    /// first byte, unless a reply is outstanding.
    #[inline]
    pub(super) fn begin(
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
            // The first byte of a new request.
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

    /// Records in `stats` the durations of the request and transaction that ended at its server
    /// connection. Returns whether time limits apply to its next phase.
    #[inline]
    pub(super) fn account(
        &mut self,
        progress: LinkProgress,
        stats: &ThreadTenantStats,
        now_us: u64,
    ) -> bool {
        stats.times().query.record(now_us.saturating_sub(self.request_us));
        self.request_us = now_us;
        self.ready_us = now_us;
        if progress.ends_transaction {
            let begun_us = std::mem::replace(&mut self.transaction_us, now_us);
            stats.times().transaction.record(now_us.saturating_sub(begun_us));
        }
        self.is_timed
    }

    /// Returns whether the last status sent to the client was "in a transaction".
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

    /// Returns its tenant, once it has logged in.
    pub(super) fn tenant_id(&self) -> Option<TenantId> {
        match &self.phase {
            ClientPhase::Session(session) => Some(session.route.tenant.id),
            ClientPhase::Greeting(greeting) => Some(greeting.route.tenant.id),
            ClientPhase::Passed(passed) => Some(passed.tenant_id),
            ClientPhase::Login(_) | ClientPhase::Console(_) | ClientPhase::Closing => None,
        }
    }

    /// Returns the session of a client that is logged in.
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

    /// Returns the server connection that it holds.
    pub(super) fn server(&self) -> Option<u32> {
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

    /// Returns the virtual process id of its session.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.phase {
            ClientPhase::Session(session) => Some(session.pid),
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => None,
        }
    }

    /// Returns whether it still has to read its replies. If not, it is no longer marked as full.
    pub(super) fn is_still_full(&mut self) -> bool {
        let is_clogged = self.conn.is_clogged();
        let Some(session) = self.session() else { return false };
        session.is_full &= is_clogged;
        session.is_full
    }

    /// Returns whether its input has to wait for another event.
    pub(super) fn is_held_up(&self) -> bool {
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
