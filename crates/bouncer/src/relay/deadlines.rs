//! Deadlines: a check of a connection handles a deadline that has passed, and arms the next check.

use std::time::Duration;

use super::client::{ClientLogin, ClientPhase, RelayClient, ServerAttachment};
use super::departure::CLOSING_US;
use super::server::RelayServer;
use super::servers::ServerConnections;
use super::timers::micros;
use crate::tenants::TenantRoute;

/// Grace period for the cancellation of a statement that took too long, before its client is
/// disconnected and its server connection closed, in microseconds.
pub(super) const OVERTIME_US: u64 = 5_000_000;

/// Deadline of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ClientDeadline {
    /// Login.
    Login,
    /// Wait for this node's part of a limit on clients.
    Entry,
    /// Reading of the last error before the connection closes.
    Farewell,
    /// Reading of what was sent.
    Write,
    /// Wait of a guest for its turn; the tenant's limit.
    Wait(Duration),
    /// Idle outside of a transaction.
    Idle,
    /// Idle in a transaction.
    IdleInTransaction,
    /// Statement.
    Query,
    /// Transaction.
    Transaction,
}

/// Times and activity of a session that has a server connection.
#[derive(Clone, Copy, Debug)]
struct AttachmentTimes {
    /// True if a reply is outstanding.
    waits: bool,
    /// True if a transaction is open, including the implicit one of an unfinished batch, which the
    /// server does not report.
    is_open: bool,
    request_us: u64,
    attached_us: u64,
    ready_us: u64,
    transaction_us: u64,
}

impl RelayClient {
    /// Returns the next deadline and its time.
    pub(super) fn deadline(
        &self,
        servers: &ServerConnections,
        login_us: u64,
    ) -> Option<(u64, ClientDeadline)> {
        match &self.phase {
            ClientPhase::Login(phase) => {
                let login_us = self.since_us + login_us;
                let awaited = phase.awaited.as_ref().filter(|awaited| awaited.until_us < login_us);
                Some(match awaited {
                    Some(awaited) => (awaited.until_us, ClientDeadline::Entry),
                    None => (login_us, ClientDeadline::Login),
                })
            }
            // Its wait in the pool's queue has a deadline of its own.
            ClientPhase::Greeting(_) | ClientPhase::Console(_) => None,
            ClientPhase::Passed(passed) => {
                passed.give_up_us.map(|at_us| (at_us, ClientDeadline::Farewell))
            }
            ClientPhase::Closing => Some((self.since_us + CLOSING_US, ClientDeadline::Farewell)),
            ClientPhase::Session(session) => {
                let held = match session.place {
                    ServerAttachment::Idle
                    | ServerAttachment::Parked
                    | ServerAttachment::Waiting(_) => None,
                    ServerAttachment::Attached(server) => {
                        let server = servers.get(server);
                        let waits = server.is_some_and(RelayServer::is_awaited);
                        Some(session.held(waits, server.is_some_and(RelayServer::is_unsynced)))
                    }
                };
                session_deadline(self, session, held)
            }
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

/// Returns the next deadline of a session, and its time.
fn session_deadline(
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
    // A cancelled statement has some time to end.
    let late = |at: Option<(u64, ClientDeadline)>| match session.overtime_us {
        Some(cancelled_us) => at.map(|(at, due)| (at.max(cancelled_us + OVERTIME_US), due)),
        None => at,
    };
    let of_place = match (session.place, held) {
        (ServerAttachment::Idle, _) => {
            [after(client.since_us, limits.client_idle, ClientDeadline::Idle), None]
        }
        (ServerAttachment::Parked, _) => {
            let wait = limits.wait.unwrap_or_default();
            [after(session.waiting_us, limits.wait, ClientDeadline::Wait(wait)), None]
        }
        // The wait in the pool's queue has a deadline of its own.
        (ServerAttachment::Waiting(_), _) | (ServerAttachment::Attached(_), None) => [None, None],
        (ServerAttachment::Attached(_), Some(held)) => [
            if held.waits {
                // The time in the queue is subject to another limit.
                let begun_us = held.request_us.max(held.attached_us);
                late(after(begun_us, limits.query, ClientDeadline::Query))
            } else if held.is_open || session.is_pinned_guest() {
                // The server does not report an unfinished batch. A pinned guest blocks a
                // connection that others need, as with an open transaction.
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
