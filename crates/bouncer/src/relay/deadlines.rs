//! Deadlines: a look at a connection finds what is due, if anything, and arms the next look.

use pooler_core::link::ProtocolLinks;
use wire::pg::message::ErrorFields;

use super::client::{ClientLogin, ClientPhase, RelayClient, ServerAttachment};
use super::dialect::ErrorDialect;
use super::leave::{CLOSING_US, ClientDeparture};
use super::pools::PoolFailure;
use super::server::{RelayServer, ServerCloseReason, ServerPhase};
use super::timers::micros;
use super::worker::{EventContext, RelayWorker, TimerKey};
use crate::tenants::TenantRoute;

/// Time that a server connection may take to come to rest after its client left, in microseconds;
/// `cancel_wait_timeout` of others.
const REST_US: u64 = 10_000_000;
/// Time that until a statement of a client that is gone is cancelled once more: one that had not
/// begun when the request arrived knows nothing of it.
const CANCEL_AGAIN_US: u64 = 1_000_000;

/// Time that a statement that took too long may take to be cancelled before its client is dismissed
/// and its server connection closed, in microseconds.
const OVERTIME_US: u64 = 5_000_000;

/// Time that an idle server connection keeps the mark of the session that used it last, in
/// microseconds: a session that uses it again and again does not pay for the mark each time, and
/// when a session's next owner ends what is marked, hardly any of that is idle and somebody else's
/// soon.
const MARK_KEPT_US: u64 = 1_000_000;

/// Deadline of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ClientDeadline {
    /// Login.
    Login,
    /// Wait for this node's part of a limit on clients.
    Entry,
    /// Reading of the last error before the connection closes.
    Farewell,
    /// Reading of what was sent.
    Write,
    /// Wait for a guest's turn.
    Wait,
    /// Idle outside of a transaction.
    Idle,
    /// Idle in a transaction.
    IdleInTransaction,
    /// Statement.
    Query,
    /// Transaction.
    Transaction,
}

/// Times of a session that has a server connection, and what it does there.
#[derive(Clone, Copy, Debug)]
struct AttachmentTimes {
    /// True if a reply is awaited.
    waits: bool,
    /// True if there is a transaction, be it that of a batch that was not ended: of that the server
    /// says nothing.
    is_open: bool,
    request_us: u64,
    attached_us: u64,
    ready_us: u64,
    transaction_us: u64,
}

impl RelayWorker {
    /// Looks at a client.
    pub(super) fn check_client_deadline(&mut self, place: u32) {
        let Some((at_us, due)) = self.client_deadline(place) else { return };
        if at_us > self.context.now_us {
            return self.context.timers.arm(TimerKey::Client(place).id(), at_us);
        }
        match due {
            ClientDeadline::Login => {
                let message = self.words().of("the login took too long", "client_login_timeout");
                self.disconnect(place, &ErrorFields::fatal("08006", message));
            }
            ClientDeadline::Entry => self.entry_wait_expired(place),
            ClientDeadline::Farewell => self.client_gone(place, &ClientDeparture::Dismissed),
            ClientDeadline::Write => {
                let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
                self.client_gone(place, &ClientDeparture::Lost(error));
            }
            ClientDeadline::Wait => self.lease_wait_expired(place),
            ClientDeadline::Idle => {
                let own = "terminating connection due to `client_idle_s`";
                let message = self.words().of(own, "client_idle_timeout");
                self.disconnect(place, &ErrorFields::fatal(self.words().code("57P05"), message));
            }
            ClientDeadline::IdleInTransaction => {
                let own = "terminating connection due to `idle_in_transaction_s`";
                let message = self.words().of(own, "idle transaction timeout");
                self.disconnect(place, &ErrorFields::fatal(self.words().code("25P03"), message));
            }
            ClientDeadline::Query => {
                let message = self.words().of("the statement exceeded `query_s`", "query timeout");
                self.overtime(place, "57014", message);
            }
            ClientDeadline::Transaction => {
                let own = "the transaction exceeded `transaction_s`";
                let message = self.words().of(own, "transaction timeout");
                self.overtime(place, "25P04", message);
            }
        }
    }

    /// Arms the next look at a session, if its tenant has limits on time.
    pub(super) fn watch_client(&mut self, place: u32) {
        let client = self.clients.get(place);
        let timed = client.is_some_and(|client| match &client.phase {
            ClientPhase::Session(session) => session.is_timed,
            ClientPhase::Login(_)
            | ClientPhase::Greeting(_)
            | ClientPhase::Console(_)
            | ClientPhase::Passed(_)
            | ClientPhase::Closing => false,
        });
        if timed && let Some((at_us, _)) = self.client_deadline(place) {
            self.context.timers.arm(TimerKey::Client(place).id(), at_us);
        }
    }

    /// A client does not take what it is sent: arms a look at it.
    pub(super) fn watch_clogged(&mut self, place: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        if client.clogged_us.is_none() {
            client.clogged_us = Some(self.context.now_us);
            if let Some((at_us, _)) = self.client_deadline(place) {
                self.context.timers.arm(TimerKey::Client(place).id(), at_us);
            }
        }
    }

    /// Returns what is due first of a client, and when.
    fn client_deadline(&self, place: u32) -> Option<(u64, ClientDeadline)> {
        let client = self.clients.get(place)?;
        match &client.phase {
            ClientPhase::Login(phase) => {
                let login_us = client.since_us + self.common.live.login_us();
                let awaited = phase.awaited.as_ref().filter(|awaited| awaited.until_us < login_us);
                Some(match awaited {
                    Some(awaited) => (awaited.until_us, ClientDeadline::Entry),
                    None => (login_us, ClientDeadline::Login),
                })
            }
            // Its place in the queue has a deadline of its own.
            ClientPhase::Greeting(_) | ClientPhase::Console(_) => None,
            ClientPhase::Passed(passed) => {
                passed.give_up_us.map(|at_us| (at_us, ClientDeadline::Farewell))
            }
            ClientPhase::Closing => Some((client.since_us + CLOSING_US, ClientDeadline::Farewell)),
            ClientPhase::Session(session) => {
                let held = match session.place {
                    ServerAttachment::Idle
                    | ServerAttachment::Parked
                    | ServerAttachment::Waiting(_) => None,
                    ServerAttachment::Attached(server) => {
                        let server = self.servers.get(server);
                        let waits = server.is_some_and(RelayServer::is_awaited);
                        Some(session.held(waits, server.is_some_and(RelayServer::is_unsynced)))
                    }
                };
                deadline(client, session, held)
            }
        }
    }

    /// A statement or transaction takes too long: cancels what runs, and sees the client off when
    /// that does not help or nothing runs.
    fn overtime(&mut self, place: u32, code: &'static str, message: &str) {
        let (now_us, words) = (self.context.now_us, self.words());
        let Some(session) = self.clients.get_mut(place).and_then(RelayClient::session) else {
            return;
        };
        let ServerAttachment::Attached(server_place) = session.place else { return };
        let waits = self.servers.get(server_place).is_some_and(RelayServer::is_awaited);
        // PgBouncer has no patience with either of them.
        let first = session.overtime_us.is_none() && words == ErrorDialect::Own;
        if waits && first {
            session.overtime_us = Some(now_us);
            self.cancel_at_server(server_place);
            return self.context.timers.arm(TimerKey::Client(place).id(), now_us + OVERTIME_US);
        }
        self.disconnect(place, &ErrorFields::fatal(words.code(code), message));
    }

    /// Looks at a server connection.
    pub(super) fn check_server_deadline(&mut self, place: u32) {
        let Some(server) = self.servers.get(place) else { return };
        let (at_us, opening) = match &server.phase {
            ServerPhase::Opening(_) => {
                (server.begun_us + micros(server.tenant.limits.connect), true)
            }
            ServerPhase::Live(_) if server.is_resetting => {
                let (at_us, is_cancelled) = (server.since_us + REST_US, server.is_cancelled);
                if is_cancelled && at_us > self.context.now_us {
                    self.cancel_at_server(place);
                    let next_us = at_us.min(self.context.now_us + CANCEL_AGAIN_US);
                    return self.context.timers.arm(TimerKey::Server(place).id(), next_us);
                }
                (at_us, false)
            }
            ServerPhase::Live(link) => {
                if link.is_marked() && server.client.is_none() {
                    self.release_mark(place);
                }
                return;
            }
        };
        if at_us > self.context.now_us {
            return self.context.timers.arm(TimerKey::Server(place).id(), at_us);
        }
        if opening {
            let own = "connecting and logging in took longer than `connect_s`";
            let message = self.words().of(own, "connect timeout");
            self.opening_failed(place, PoolFailure::unreached("08001", message));
        } else {
            self.close_server(place, &ServerCloseReason::Unclean);
        }
    }

    /// Takes the mark of a session from a server connection that was idle for long enough.
    fn release_mark(&mut self, place: u32) {
        let RelayWorker { servers, outbox, context, .. } = self;
        let Some(server) = servers.get_mut(place) else { return };
        let at_us = server.since_us + MARK_KEPT_US;
        if at_us > context.now_us {
            return context.timers.arm(TimerKey::Server(place).id(), at_us);
        }
        if let Some(link) = server.link() {
            ProtocolLinks::release_mark(link, &mut outbox.both());
        }
        self.send_request(Some(place));
    }

    /// Gives a server connection time to come to rest after its client has left.
    pub(super) fn await_idle(&mut self, place: u32) {
        let Some(server) = self.servers.get_mut(place) else { return };
        if !server.is_resetting {
            server.is_resetting = true;
            server.since_us = self.context.now_us;
            let wait_us = if server.is_cancelled { CANCEL_AGAIN_US } else { REST_US };
            self.context.timers.arm(TimerKey::Server(place).id(), self.context.now_us + wait_us);
        }
    }
}

impl RelayServer {
    /// Has the mark of a session, if there is one, taken away from a connection that rests.
    pub(super) fn expire_mark(&mut self, place: u32, context: &mut EventContext) {
        if self.link().is_some_and(|link| link.is_marked()) {
            context.timers.arm(TimerKey::Server(place).id(), context.now_us + MARK_KEPT_US);
        }
    }
}

impl ClientLogin {
    fn held(&self, waits: bool, is_unsynced: bool) -> AttachmentTimes {
        AttachmentTimes {
            waits,
            is_open: is_unsynced || self.is_in_transaction(),
            request_us: self.request_us,
            attached_us: self.attached_us,
            ready_us: self.ready_us,
            transaction_us: self.transaction_us,
        }
    }
}

/// Returns what is due first of a session, and when.
fn deadline(
    client: &RelayClient,
    session: &ClientLogin,
    held: Option<AttachmentTimes>,
) -> Option<(u64, ClientDeadline)> {
    let TenantRoute { tenant, user } = &session.route;
    let limits = tenant.times_of(user);
    let after = |begun_us: u64, limit: Option<std::time::Duration>, due: ClientDeadline| {
        limit.map(|limit| (begun_us.saturating_add(micros(limit)), due))
    };
    let write = client
        .clogged_us
        .and_then(|since| after(since, tenant.limits.client_write, ClientDeadline::Write));
    // What was cancelled has some time to end.
    let late = |at: Option<(u64, ClientDeadline)>| match session.overtime_us {
        Some(cancelled_us) => at.map(|(at, due)| (at.max(cancelled_us + OVERTIME_US), due)),
        None => at,
    };
    let of_place = match (session.place, held) {
        (ServerAttachment::Idle, _) => {
            [after(client.since_us, limits.client_idle, ClientDeadline::Idle), None]
        }
        (ServerAttachment::Parked, _) => {
            [after(session.waiting_us, limits.wait, ClientDeadline::Wait), None]
        }
        // The place in the queue has a deadline of its own.
        (ServerAttachment::Waiting(_), _) | (ServerAttachment::Attached(_), None) => [None, None],
        (ServerAttachment::Attached(_), Some(held)) => [
            if held.waits {
                // The time in the queue is another limit's.
                let begun_us = held.request_us.max(held.attached_us);
                late(after(begun_us, limits.query, ClientDeadline::Query))
            } else if held.is_open || session.is_pinned_guest() {
                // Of a batch the server says nothing. A guest that is pinned takes from others
                // what they need, as if a transaction was open.
                let begun_us = held.request_us.max(held.ready_us);
                after(begun_us, limits.idle_in_transaction, ClientDeadline::IdleInTransaction)
            } else {
                // Pinned.
                after(held.ready_us, limits.client_idle, ClientDeadline::Idle)
            },
            late(after(held.transaction_us, limits.transaction, ClientDeadline::Transaction))
                .filter(|_| held.waits || held.is_open),
        ],
    };
    of_place.into_iter().chain([write]).flatten().min_by_key(|(at_us, _)| *at_us)
}
