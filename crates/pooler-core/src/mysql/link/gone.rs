//! Actions at a server connection whose client left.

use super::change;
use super::front::shares;
use crate::link::{DepartureAction, LinkOutputs, ServerFailure, ServerNext};
use crate::mysql::client::{MysqlClientSession, NextInput};
use crate::mysql::server::{MysqlCleanup, MysqlServerSession};

/// Handles the departure of the client that held this server connection, in any state.
pub fn client_gone(
    client: &MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut LinkOutputs<'_>,
) -> DepartureAction {
    server.attached = None;
    server.body.pass = false;
    // An incomplete command must not be completed; and the server would take an incomplete file for
    // a whole one.
    let is_half = client.body.pass && (client.body.left > 0 || client.body.goes_on);
    let is_over = server.closing || server.pins.outlasts_reset();
    if is_half || client.turn != NextInput::Command || server.wants_file || is_over {
        return DepartureAction::Close;
    }
    server.dirty |= !shares(client.mode);
    server.dirty |= client.statements.memory().is_any();
    server.asks_insert_id = false;
    let runs = server.has_client_entries();
    server.orphan();
    server.cleanup = MysqlCleanup::Draining;
    if !server.is_quiet() {
        return if runs { DepartureAction::Cancel } else { DepartureAction::Draining };
    }
    match clean(server, out) {
        Some(ServerNext::Idle) => DepartureAction::Idle,
        Some(_) => DepartureAction::Close,
        None => DepartureAction::Draining,
    }
}

/// Takes the next step of a cleanup, once nothing is outstanding; none while a step is in progress.
pub(super) fn clean(
    server: &mut MysqlServerSession,
    out: &mut LinkOutputs<'_>,
) -> Option<ServerNext> {
    debug_assert!(server.is_quiet(), "{server:?}");
    if server.closing || server.pins.outlasts_reset() {
        let message = "the session state of its client cannot be reset".into();
        return Some(ServerNext::Broken(ServerFailure::Reset { message }));
    }
    let is_dirty = server.dirty
        || server.mark.is_some()
        || server.is_in_transaction()
        || !server.pins.is_empty();
    match server.cleanup {
        MysqlCleanup::None => return None,
        MysqlCleanup::Draining if is_dirty => {
            change::reset(server, out.to_server);
            server.cleanup = MysqlCleanup::Resetting;
            return None;
        }
        MysqlCleanup::Resetting if server.is_in_transaction() => {
            let message = "the transaction did not end".into();
            return Some(ServerNext::Broken(ServerFailure::Reset { message }));
        }
        MysqlCleanup::Draining | MysqlCleanup::Resetting => {}
    }
    server.cleanup = MysqlCleanup::None;
    // The remaining statements belong to no client.
    if server.statements.forget_users() {
        server.reset_due = true;
    }
    Some(ServerNext::Idle)
}
