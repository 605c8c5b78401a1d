//! What has to happen at a server connection whose client left.

use wire::pg::exchange::{Audience, Copying, Request};
use wire::pg::frame::TransactionStatus;
use wire::pg::message;

use super::batch::put_describe_nothing;
use super::{Broken, Gone, Outputs, ServerNext};
use crate::pg::client::ClientSession;
use crate::pg::dirt::Leave;
use crate::pg::probe::{Questions, Reader, Topics};
use crate::pg::server::{Cleanup, Note, ServerSession};

/// The client that held this server connection is gone, whatever it was doing.
pub fn client_gone(
    client: &ClientSession,
    server: &mut ServerSession,
    out: &mut Outputs<'_>,
) -> Gone {
    server.attached = None;
    server.body.pass = false;
    if (client.body.left > 0 && client.body.pass) || server.closing {
        return Gone::Close;
    }
    server.dirty |= !super::front::shares(client.mode);
    let runs = server.exchange.has_client_entries();
    let fails = server.exchange.is_skipping() || server.exchange.copying() == Copying::In;
    match server.exchange.copying() {
        // It may be about to read data: what would end the batch is then no request, but breaks
        // the protocol.
        Copying::None if runs && server.unsynced && server.batch_waits && !fails => {
            return Gone::Close;
        }
        Copying::None | Copying::Out => {}
        Copying::In => {
            fail_copy(server, out);
            let front = server.exchange.front().map(|front| front.request);
            // The request is not in the queue: it was sent before data was read.
            server.unsynced |= front == Some(Request::Execute);
        }
        // Replication has nothing to come back to.
        Copying::Both => return Gone::Close,
    }
    server.exchange.orphan();
    if server.unsynced || server.exchange.is_skipping() {
        if server.unsynced && !fails {
            // With a `Sync` alone the server would commit what its client has not ended.
            put_describe_nothing(out.to_server);
            server.sent(Request::DescribeStatement, Audience::Nobody, Note::Plain);
        }
        server.sync(Audience::Nobody, out.to_server);
    }
    server.cleanup = Cleanup::Draining;
    if !server.exchange.is_empty() {
        return if runs { Gone::Cancel } else { Gone::Draining };
    }
    match clean(server, out) {
        Some(ServerNext::Idle) => Gone::Idle,
        Some(_) => Gone::Close,
        None => Gone::Draining,
    }
}

/// Ends a copy that the server has begun to read: no client is there to send data. It takes no
/// notice of a cancel request while it waits for them.
pub(super) fn end_copy(server: &mut ServerSession, out: &mut Outputs<'_>) {
    fail_copy(server, out);
    // It has passed over a `Sync` that was sent behind the request.
    if server.exchange.front().is_some_and(|front| front.request == Request::Execute) {
        server.sync(Audience::Nobody, out.to_server);
    }
}

fn fail_copy(server: &mut ServerSession, out: &mut Outputs<'_>) {
    message::frontend::copy_fail(out.to_server, "the client is gone");
    server.exchange.copy_ended();
}

/// The next step of cleaning up, once nothing is outstanding; none while a step is under way.
pub(super) fn clean(server: &mut ServerSession, out: &mut Outputs<'_>) -> Option<ServerNext> {
    debug_assert!(server.exchange.is_empty(), "{server:?}");
    let idle = server.exchange.status() == TransactionStatus::Idle;
    match server.cleanup {
        Cleanup::None => return None,
        Cleanup::Draining if !idle => {
            server.query(&[b"ROLLBACK"], Note::Rollback, out.to_server);
            server.cleanup = Cleanup::RollingBack;
            return None;
        }
        Cleanup::RollingBack | Cleanup::Resetting if !idle => {
            return Some(cannot("the transaction did not end"));
        }
        Cleanup::Draining | Cleanup::RollingBack if server.dirt.asks_for_connections() => {
            let questions = Questions::about(Topics::CONNECTIONS);
            server.query(&[questions.sql().as_bytes()], Note::Probe, out.to_server);
            server.answer = Some(Box::new(Reader::new()));
            return None;
        }
        Cleanup::Draining | Cleanup::RollingBack => match server.dirt.leave() {
            Leave::Close => return Some(cannot("there is no way back from what its client did")),
            Leave::Nothing if !server.dirty => {}
            Leave::Nothing | Leave::Discard => {
                server.query(&[b"DISCARD ALL"], Note::Reset, out.to_server);
                server.cleanup = Cleanup::Resetting;
                return None;
            }
        },
        Cleanup::Resetting => {}
    }
    server.cleanup = Cleanup::None;
    Some(ServerNext::Idle)
}

fn cannot(message: &str) -> ServerNext {
    ServerNext::Broken(Broken::Reset { message: message.into() })
}
