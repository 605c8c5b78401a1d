//! Cleanup of a server connection whose client left.

use wire::pg::exchange::{CopyState, ExchangeRequest, ReplyAudience};
use wire::pg::frame::TransactionStatus;
use wire::pg::message;

use super::batch::put_describe_nothing;
use super::{DepartureAction, LinkOutputs, ServerFailure, ServerNext};
use crate::pg::client::PgClientSession;
use crate::pg::dirt::DepartureCleanup;
use crate::pg::probe::{ProbeQueries, ProbeReader, ProbeTopics};
use crate::pg::server::{PgCleanup, PgRequestPurpose, PgServerSession};

/// Handles the departure of the client that held this server connection, in any state.
pub fn client_gone(
    client: &PgClientSession,
    server: &mut PgServerSession,
    out: &mut LinkOutputs<'_>,
) -> DepartureAction {
    server.attached = None;
    server.body.pass = false;
    if (client.body.left > 0 && client.body.pass) || server.closing {
        return DepartureAction::Close;
    }
    server.dirty |= !super::front::shares(client.mode);
    let runs = server.exchange.has_client_entries();
    let fails = server.exchange.is_skipping() || server.exchange.copying() == CopyState::In;
    match server.exchange.copying() {
        // It may be about to read data: a message that ends the batch would then violate the
        // protocol.
        CopyState::None if runs && server.unsynced && server.batch_waits && !fails => {
            return DepartureAction::Close;
        }
        CopyState::None | CopyState::Out => {}
        CopyState::In => {
            fail_copy(server, out);
            let front = server.exchange.front().map(|front| front.request);
            // The request is not in the queue: it was sent before the server read data.
            server.unsynced |= front == Some(ExchangeRequest::Execute);
        }
        // A replication connection cannot be reused.
        CopyState::Both => return DepartureAction::Close,
    }
    server.exchange.orphan();
    if server.unsynced || server.exchange.is_skipping() {
        if server.unsynced && !fails {
            // With a `Sync` alone the server would commit a batch that its client has not ended.
            put_describe_nothing(out.to_server);
            server.sent(
                ExchangeRequest::DescribeStatement,
                ReplyAudience::Nobody,
                PgRequestPurpose::Plain,
            );
        }
        server.sync(ReplyAudience::Nobody, out.to_server);
    }
    server.cleanup = PgCleanup::Draining;
    if !server.exchange.is_empty() {
        return if runs { DepartureAction::Cancel } else { DepartureAction::Draining };
    }
    match clean(server, out) {
        Some(ServerNext::Idle) => DepartureAction::Idle,
        Some(_) => DepartureAction::Close,
        None => DepartureAction::Draining,
    }
}

/// Ends a copy for which the server has begun to read: no client is left to send data. The server
/// ignores cancel requests while it waits for data.
pub(super) fn end_copy(server: &mut PgServerSession, out: &mut LinkOutputs<'_>) {
    fail_copy(server, out);
    // The server has skipped a `Sync` that was sent after the request.
    if server.exchange.front().is_some_and(|front| front.request == ExchangeRequest::Execute) {
        server.sync(ReplyAudience::Nobody, out.to_server);
    }
}

fn fail_copy(server: &mut PgServerSession, out: &mut LinkOutputs<'_>) {
    message::frontend::copy_fail(out.to_server, "the client is gone");
    server.exchange.copy_ended();
}

/// Takes the next step of a cleanup, once nothing is outstanding; none while a step is in progress.
pub(super) fn clean(server: &mut PgServerSession, out: &mut LinkOutputs<'_>) -> Option<ServerNext> {
    debug_assert!(server.exchange.is_empty(), "{server:?}");
    let idle = server.exchange.status() == TransactionStatus::Idle;
    match server.cleanup {
        PgCleanup::None => return None,
        PgCleanup::Draining if !idle => {
            server.query(&[b"ROLLBACK"], PgRequestPurpose::Rollback, out.to_server);
            server.cleanup = PgCleanup::RollingBack;
            return None;
        }
        PgCleanup::RollingBack | PgCleanup::Resetting if !idle => {
            return Some(cannot("the transaction did not end"));
        }
        PgCleanup::Draining | PgCleanup::RollingBack if server.dirt.asks_for_connections() => {
            let questions = ProbeQueries::about(ProbeTopics::CONNECTIONS);
            server.query(&[questions.sql().as_bytes()], PgRequestPurpose::Probe, out.to_server);
            server.answer = Some(Box::new(ProbeReader::new()));
            return None;
        }
        PgCleanup::Draining | PgCleanup::RollingBack => match server.dirt.leave() {
            DepartureCleanup::Close => {
                return Some(cannot("the session state of its client cannot be reset"));
            }
            DepartureCleanup::Nothing if !server.dirty => {}
            DepartureCleanup::Nothing | DepartureCleanup::Discard => {
                server.query(&[b"DISCARD ALL"], PgRequestPurpose::Reset, out.to_server);
                server.cleanup = PgCleanup::Resetting;
                return None;
            }
        },
        PgCleanup::Resetting => {}
    }
    server.cleanup = PgCleanup::None;
    Some(ServerNext::Idle)
}

fn cannot(message: &str) -> ServerNext {
    ServerNext::Broken(ServerFailure::Reset { message: message.into() })
}
