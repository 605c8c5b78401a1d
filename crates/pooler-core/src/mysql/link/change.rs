//! Requests that a link inserts between a client's commands: settings, resets, and the last insert
//! id.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_change_user.html>
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_reset_connection.html>

use std::sync::Arc;

use wire::mysql::command::Command;
use wire::mysql::reply::ReplyKind;

use super::MysqlLinkContext;
use crate::link::LinkOutputs;
use crate::mysql::client::MysqlClientSession;
use crate::mysql::dial::{READ_ONLY, TRACK};
use crate::mysql::server::{MysqlRequestPurpose, MysqlServerSession};
use crate::mysql::settings::MysqlSettings;

/// Changes nothing; the server reports it together with all changes that it has not reported: those
/// of failed statements, and values that a statement restores after its end. Observed with MariaDB
/// 10.11.
pub(super) const FLUSH: &str = "SET session_track_schema=1";

/// Clears the warnings, and sets the counts to those of a neutral statement. It has to name a
/// table: other statements keep the warnings. Observed with MariaDB 10.11.
pub(super) const FORGET: &str = "SELECT 1 FROM (SELECT 1) AS t";

/// Releases named locks that may exist unnoticed.
pub(super) const UNLOCK: &str = "DO RELEASE_ALL_LOCKS()";

/// Changes the server's session to the client's settings: variables and schema. The values came
/// from a server, so a server accepts them. The client does not wait for the reply about variables;
/// but it does for that about the schema, because its next command would have another meaning in
/// the wrong one.
pub(super) fn settings(
    shared: &mut MysqlLinkContext,
    client: &MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut LinkOutputs<'_>,
) {
    if Arc::ptr_eq(&server.applied, &client.wanted) {
        return;
    }
    if server.applied != client.wanted {
        change(shared, client, server, out);
    }
    // Makes the comparison above sufficient from now on.
    server.applied = client.wanted.clone();
}

#[cold]
fn change(
    shared: &mut MysqlLinkContext,
    client: &MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut LinkOutputs<'_>,
) {
    let mut text = std::mem::take(&mut shared.scratch);
    text.clear();
    text.push(Command::Query.code());
    if server.applied.write_change(&client.wanted, &mut text) {
        server.inject(ReplyKind::Query, MysqlRequestPurpose::Settings, &text, out.to_server);
    }
    if let Some(schema) = server.applied.schema_change(&client.wanted) {
        text.clear();
        text.push(Command::InitDb.code());
        text.extend_from_slice(schema.as_bytes());
        server.inject(ReplyKind::Simple, MysqlRequestPurpose::Schema, &text, out.to_server);
    }
    shared.scratch = text;
}

/// Marks the connection as working for the client's session, if the client has a mark and the
/// connection has none. Nothing waits for the reply.
#[inline]
pub(super) fn mark(
    client: &MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut Vec<u8>,
) {
    if let Some(mark) = &client.mark
        && server.mark.is_none()
        && server.takes_marks
    {
        server.ask(MysqlRequestPurpose::Mark, &mark.take, out);
        server.mark = Some(mark.clone());
    }
}

/// Removes another session's mark before a client uses the connection.
#[inline]
pub(super) fn unmark_other(
    client: &MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut Vec<u8>,
) {
    let own = client.mark.as_ref().map(Arc::as_ptr);
    if server.mark.as_ref().is_some_and(|mark| own != Some(Arc::as_ptr(mark))) {
        unmark(server, out);
    }
}

/// Removes the mark, if there is one.
pub(crate) fn unmark(server: &mut MysqlServerSession, out: &mut Vec<u8>) {
    if let Some(mark) = server.mark.take() {
        server.ask(MysqlRequestPurpose::Unmark, &mark.release, out);
    }
}

/// Removes the mark from a connection that its client keeps. The client's next statement then
/// follows an inserted one, as at another connection.
pub(super) fn unmark_own(
    client: &mut MysqlClientSession,
    server: &mut MysqlServerSession,
    out: &mut Vec<u8>,
) {
    if server.mark.is_some() {
        unmark(server, out);
        client.diagnostics.rows_here = false;
        client.diagnostics.found_here = false;
        client.diagnostics.warnings_here = false;
    }
}

/// Resets the session, except for its schema, which servers keep.
pub(super) fn reset(server: &mut MysqlServerSession, out: &mut Vec<u8>) {
    let command = [Command::ResetConnection.code()];
    server.inject(ReplyKind::Simple, MysqlRequestPurpose::Reset, &command, out);
    was_reset(server);
    trackers(server, out);
}

/// Repeats the requests of the login whose effect a reset removes.
pub(super) fn trackers(server: &mut MysqlServerSession, out: &mut Vec<u8>) {
    if server.read_only {
        server.ask(MysqlRequestPurpose::Settings, READ_ONLY, out);
    }
    if server.tracks {
        server.ask(MysqlRequestPurpose::Trackers, TRACK, out);
    }
}

/// Records a reset that is in progress: the state now describes the session after it.
pub(super) fn was_reset(server: &mut MysqlServerSession) {
    if server.fresh.schema() != server.applied.schema() {
        let mut fresh = MysqlSettings::default();
        if let Some(schema) = server.applied.schema() {
            let _kept = fresh.put_schema(schema);
        }
        server.fresh = Arc::new(fresh);
    }
    server.applied = server.fresh.clone();
    server.statements.clear();
    server.pins.reset();
    server.is_untold = false;
    server.asks_values.clear();
    server.has_sequences = false;
    server.insert_id = Some(0);
    server.insert_id_is_own = false;
    server.insert_id_is_doubtful = false;
    server.asks_insert_id = false;
    server.uncommitted = false;
    server.reset_due = false;
    server.unlock_due = false;
    server.mark = None;
    server.dirty = false;
}
