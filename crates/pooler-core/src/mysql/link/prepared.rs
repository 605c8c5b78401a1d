//! Prepared statements: a client's commands for them, and a server's replies.
//!
//! Statement numbers are translated in place. A statement that a server connection lacks is
//! prepared there first, and the client's command waits for that; parameter types that were bound
//! at another connection are inserted into an execution that relies on them.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase_ps.html>
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_stmt_prepare.html>

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::mysql::capabilities::StatusFlags;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_header};
use wire::mysql::packet::ErrPacket;
use wire::mysql::reply::ReplyKind;
use wire::mysql::sql::MysqlEffects;

use super::commands::say_ok;
use super::front::{MysqlLink, MysqlPacketOutcome, pass_over, refuse};
use super::give::play;
use crate::link::LinkOutputs;
use crate::mysql::client::{CommandRefusal, MysqlClientSession};
use crate::mysql::server::{MysqlReplyAudience, MysqlRequestPurpose, MysqlServerSession};
use crate::mysql::statements::{
    MysqlStatement, MysqlStatementId, PendingExecution, PendingPrepare, PrepareFailure,
    PrepareReason, StatementMemory, private_place,
};

mod execute;
pub(super) mod reframe;

/// Bytes of a statement command with a number: the command's code and the number.
const NUMBERED_BYTES: usize = 5;

/// Bytes of `COM_STMT_FETCH`: code, number, and number of rows.
const FETCH_BYTES: usize = 9;

/// Bytes of the header of `COM_STMT_SEND_LONG_DATA`: code, number, and parameter.
const LONG_DATA_BYTES: usize = 7;

/// Errors of statement commands, with the servers' numbers.
///
/// Source: MariaDB 10.11, `mysqld_error.h`; the numbers are MySQL's as well.
mod errors {
    /// There is no statement of this number.
    pub(super) const UNKNOWN_STATEMENT: u16 = 1243;
    /// The statement has no open cursor.
    pub(super) const NO_CURSOR: u16 = 1421;
    /// The parameters are invalid.
    pub(super) const WRONG_ARGUMENTS: u16 = 1210;
    /// The packet is malformed.
    pub(super) const MALFORMED: u16 = 1835;
    /// The statement has to be prepared again.
    pub(super) const NEEDS_PREPARING: u16 = 1615;
    /// There are too many statements.
    pub(super) const TOO_MANY: u16 = 1461;
}

fn unknown_statement() -> CommandRefusal {
    let message = "unknown prepared statement";
    CommandRefusal::new(errors::UNKNOWN_STATEMENT, b"HY000", message)
}

fn malformed() -> CommandRefusal {
    CommandRefusal::new(errors::MALFORMED, b"HY000", "the packet cannot be understood")
}

fn wrong_arguments() -> CommandRefusal {
    let message = "the parameters of the prepared statement have no types";
    CommandRefusal::new(errors::WRONG_ARGUMENTS, b"HY000", message)
}

/// Returns the number in a statement command, once it has arrived. `None`: the command has none.
fn number(header: PacketHeader, rest: &[u8]) -> Result<Option<u32>, MysqlPacketOutcome> {
    if header.len < NUMBERED_BYTES {
        return Ok(None);
    }
    let at = HEADER_BYTES + 1;
    match rest.get(at..HEADER_BYTES + NUMBERED_BYTES).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => Ok(Some(u32::from_le_bytes(*bytes))),
        None => Err(MysqlPacketOutcome::More(HEADER_BYTES + NUMBERED_BYTES)),
    }
}

/// Handles `COM_STMT_CLOSE` of a client without a server connection. There is no reply.
pub(super) fn close_alone(
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
) -> MysqlPacketOutcome {
    match number(header, rest) {
        Ok(Some(number)) => drop(client.statements.close(number)),
        Ok(None) => {}
        Err(taken) => return taken,
    }
    pass_over(client, header, rest)
}

/// Answers commands of a client without a server connection, none of whose statements has state at
/// a server. Returns `None` if a server has to answer.
pub(super) fn alone(
    client: &mut MysqlClientSession,
    command: Command,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> Option<MysqlPacketOutcome> {
    let number = match number(header, rest) {
        Ok(number) => number,
        Err(taken) => return Some(taken),
    };
    let is_known = number.is_some_and(|number| client.statements.find(number).is_some());
    let refusal = match command {
        Command::StmtSendLongData if is_known => return None,
        // There is no reply, and so no error.
        Command::StmtSendLongData => return Some(pass_over(client, header, rest)),
        Command::StmtExecute if is_known => return None,
        Command::StmtFetch if is_known => no_cursor(),
        Command::StmtReset if is_known => {
            if let Some(number) = number {
                client.statements.forget_failure(number);
            }
            say_ok(client, out.to_client);
            return Some(pass_over(client, header, rest));
        }
        _ if number.is_none() => malformed(),
        _ => unknown_statement(),
    };
    Some(refuse(client, header, rest, refusal, out))
}

fn no_cursor() -> CommandRefusal {
    CommandRefusal::new(errors::NO_CURSOR, b"HY000", "the statement has no open cursor")
}

/// Closes the least recently used statements, to make room. There is no reply, and outstanding
/// requests precede it.
pub(super) fn trim(
    server: &mut MysqlServerSession,
    but: Option<MysqlStatementId>,
    out: &mut LinkOutputs<'_>,
) {
    while server.statements.len() > server.limits.prepared_statements_max {
        let Some(oldest) = server.statements.oldest(but) else { break };
        close(server, oldest, out.to_server);
    }
}

/// Closes a statement at the server, if it exists there.
fn close(server: &mut MysqlServerSession, place: MysqlStatementId, out: &mut Vec<u8>) {
    if let Some(number) = server.statements.take(place) {
        put_close(number, out);
    }
}

fn put_close(number: u32, out: &mut Vec<u8>) {
    put_header(out, NUMBERED_BYTES, 0);
    out.push(Command::StmtClose.code());
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_prepare(text: &[u8], out: &mut Vec<u8>) {
    // Texts are shorter than the maximum of a packet: `STATEMENT_BYTES_SCANNED_MAX`.
    put_header(out, text.len() + 1, 0);
    out.push(Command::StmtPrepare.code());
    out.extend_from_slice(text);
}

impl MysqlLink<'_, '_> {
    /// Prepares a statement for the client: with a kept reply, or at the server. The text may
    /// differ from the one that the client sent.
    pub(super) fn prepare(
        &mut self,
        header: PacketHeader,
        rest: &[u8],
        text: &[u8],
    ) -> MysqlPacketOutcome {
        if !self.client.statements.has_room_for(text) {
            let message = "the client has prepared as many statements as it may";
            let refusal = CommandRefusal::new(errors::TOO_MANY, b"42000", message);
            return self.refuse(header, rest, refusal);
        }
        let (mode, wanted) = (self.client.sql_mode, &self.client.wanted);
        let statement = self.shared.texts.statement(text, mode, wanted);
        self.client.statements.last_prepared = None;
        let generation = self.shared.schema.load(Ordering::Relaxed);
        if self.prepare_here(&statement, generation) {
            return MysqlPacketOutcome::Bytes(header.total());
        }
        put_prepare(text, self.out.to_server);
        let place = statement.id;
        let preparing = PendingPrepare::new(statement, place, PrepareReason::Asked, generation);
        let note = MysqlRequestPurpose::Prepare(Box::new(preparing));
        self.server.push(ReplyKind::Prepare, MysqlReplyAudience::Client, note);
        MysqlPacketOutcome::Bytes(header.total())
    }

    /// Replies with the server's earlier reply to the same prepare, if that is still valid.
    fn prepare_here(&mut self, statement: &Arc<MysqlStatement>, generation: u64) -> bool {
        let server = &mut *self.server;
        if !server.statements.is_current(statement.id, generation) {
            return false;
        }
        let caps = server.capabilities;
        let Some(place) = server.statements.use_place(statement.id) else { return false };
        let Some(reply) = &place.reply else { return false };
        let wanted = &self.client.wanted;
        let number = self.client.statements.put(statement.clone(), place.counts, wanted);
        play(self.client, ReplyKind::Prepare, caps, reply, Some(number), self.out.to_client);
        true
    }

    /// Prepares a statement at the server for a command of the client, under the settings under
    /// which the client prepared it. The command waits.
    fn prepare_for(&mut self, number: u32, place: MysqlStatementId) -> MysqlPacketOutcome {
        let Some((_, open)) = self.client.statements.find(number) else {
            return MysqlPacketOutcome::Wait;
        };
        let statement = open.statement.clone();
        let wanted = self.client.wanted.clone();
        if statement.plan_key != wanted.plan_key() {
            self.client.wanted = Arc::new(wanted.planned_as(&open.settings));
        }
        let settled = self.settle();
        self.client.wanted = wanted;
        if settled {
            put_prepare(&statement.text, self.out.to_server);
            let generation = self.shared.schema.load(Ordering::Relaxed);
            let preparing =
                PendingPrepare::new(statement, place, PrepareReason::Needed(number), generation);
            let note = MysqlRequestPurpose::Prepare(Box::new(preparing));
            self.server.push(ReplyKind::Prepare, MysqlReplyAudience::Nobody, note);
        }
        MysqlPacketOutcome::Wait
    }

    /// Returns the identity and the number of the client's statement at the server. `Err`: it has
    /// to be prepared first, which is in progress.
    fn placed(&mut self, number: u32) -> Result<(MysqlStatementId, u32), MysqlPacketOutcome> {
        let Some((_, open)) = self.client.statements.find(number) else {
            return Err(MysqlPacketOutcome::Wait);
        };
        let (mut place, statement) = (open.place, open.statement.id);
        let taken = self.client.statements.is_taken(place, number);
        // Unknown settings may differ from those under which it was prepared.
        if place == statement && (taken || self.server.has_unknown_settings()) {
            place = private_place(&self.shared.key, statement, self.client.id.0, number);
            if let Some((_, open)) = self.client.statements.find_mut(number) {
                open.place = place;
            }
        }
        match self.server.statements.use_place(place) {
            Some(found) => Ok((place, found.number)),
            None => Err(self.prepare_for(number, place)),
        }
    }

    /// Handles `COM_STMT_SEND_LONG_DATA`: there is no reply, and so no error.
    pub(super) fn stmt_long_data(
        &mut self,
        header: PacketHeader,
        rest: &[u8],
    ) -> MysqlPacketOutcome {
        let number = match number(header, rest) {
            Ok(Some(number)) => number,
            Ok(None) => return pass_over(self.client, header, rest),
            Err(taken) => return taken,
        };
        if header.len < LONG_DATA_BYTES {
            return pass_over(self.client, header, rest);
        }
        let at = HEADER_BYTES + NUMBERED_BYTES;
        let Some(parameter) = rest.get(at..at + 2).and_then(|bytes| bytes.first_chunk()) else {
            return MysqlPacketOutcome::More(HEADER_BYTES + LONG_DATA_BYTES);
        };
        let parameter = u16::from_le_bytes(*parameter);
        let Some((number, open)) = self.client.statements.find(number) else {
            return pass_over(self.client, header, rest);
        };
        let params = open.counts.params;
        if self.client.statements.has_failed(number) {
            return pass_over(self.client, header, rest);
        }
        if parameter >= params {
            // A server keeps the statement in error until it is reset; so does the pooler, without
            // affecting other users of the statement.
            let failure = PrepareFailure {
                code: errors::WRONG_ARGUMENTS,
                state: *b"HY000",
                message: b"long data was sent for a parameter that there is not"[..].into(),
                until_reset: true,
            };
            self.client.statements.fail(number, failure);
            return pass_over(self.client, header, rest);
        }
        let (place, server_number) = match self.placed(number) {
            Ok(placed) => placed,
            Err(taken) => return taken,
        };
        if !self.settle() {
            return MysqlPacketOutcome::Wait;
        }
        self.client.statements.set_memory(number, |memory| memory.long_data = true);
        self.server.statements.set_user(place, Some(number));
        self.pass_numbered(header, rest, server_number)
    }

    /// Forwards a command with the server's number in it.
    fn pass_numbered(
        &mut self,
        header: PacketHeader,
        rest: &[u8],
        server_number: u32,
    ) -> MysqlPacketOutcome {
        let at = self.out.to_server.len() + HEADER_BYTES + 1;
        let taken = self.pass(header, rest);
        if let Some(place) = self.out.to_server.get_mut(at..at + 4) {
            place.copy_from_slice(&server_number.to_le_bytes());
        }
        taken
    }

    /// Handles `COM_STMT_CLOSE`: the client forgets the number. The server keeps the statement for
    /// others, unless it has state that no other client may see.
    pub(super) fn stmt_close(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        let number = match number(header, rest) {
            Ok(number) => number,
            Err(taken) => return taken,
        };
        if let Some(open) = number.and_then(|number| self.client.statements.close(number))
            && (open.memory.is_any() || open.place != open.statement.id)
        {
            close(self.server, open.place, self.out.to_server);
        }
        pass_over(self.client, header, rest)
    }

    /// Handles `COM_STMT_RESET`.
    pub(super) fn stmt_reset(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        match self.numbered(Command::StmtReset, header, rest) {
            Ok((number, server_number)) => {
                self.client.statements.forget_failure(number);
                self.server.push(
                    ReplyKind::Simple,
                    MysqlReplyAudience::Client,
                    MysqlRequestPurpose::ResetStatement(number),
                );
                self.pass_numbered(header, rest, server_number)
            }
            Err(taken) => taken,
        }
    }

    /// Handles `COM_STMT_FETCH`.
    pub(super) fn stmt_fetch(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        match self.numbered(Command::StmtFetch, header, rest) {
            Ok((number, server_number)) if header.len == FETCH_BYTES => {
                self.server.push(
                    ReplyKind::Rows,
                    MysqlReplyAudience::Client,
                    MysqlRequestPurpose::Fetch(number),
                );
                self.pass_numbered(header, rest, server_number)
            }
            Ok(_) => self.refuse(header, rest, malformed()),
            Err(taken) => taken,
        }
    }

    /// Returns the client's number and the server's of a statement with state at the server. A
    /// statement without state is answered as without a server.
    fn numbered(
        &mut self,
        command: Command,
        header: PacketHeader,
        rest: &[u8],
    ) -> Result<(u32, u32), MysqlPacketOutcome> {
        let found = number(header, rest)?
            .and_then(|number| self.client.statements.find(number))
            .filter(|(_, open)| match command {
                Command::StmtFetch => open.memory.cursor,
                _ => open.memory.is_any(),
            })
            .map(|(number, open)| (number, open.place));
        let placed = found.and_then(|(number, place)| {
            self.server.statements.use_place(place).map(|found| (number, found.number))
        });
        match placed {
            Some(placed) => Ok(placed),
            None => match alone(self.client, command, header, rest, self.out) {
                Some(taken) => Err(taken),
                None => Err(MysqlPacketOutcome::Wait),
            },
        }
    }
}

/// Consequence of a completed prepare for the client's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrepareOutcome {
    /// Answered, or the command can continue.
    Done,
    /// The execution that failed before was sent again.
    Resent,
    /// The execution that failed before is impossible: the client has to receive this error.
    Failed,
}

/// Returns the client's number for the statement that is prepared for it.
pub(super) fn client_number(client: &mut MysqlClientSession, preparing: &PendingPrepare) -> u32 {
    client.statements.put(preparing.statement.clone(), preparing.counts, &client.wanted)
}

/// Handles the complete reply to a prepare.
pub(super) fn prepared(
    client: Option<&mut MysqlClientSession>,
    server: &mut MysqlServerSession,
    preparing: PendingPrepare,
    error: Option<&ErrPacket<'_>>,
    out: &mut LinkOutputs<'_>,
) -> PrepareOutcome {
    let PendingPrepare { place, purpose, generation, number, counts, reply, .. } = preparing;
    if let Some(error) = error {
        return match (purpose, client) {
            (PrepareReason::Needed(number), Some(client)) => {
                client.statements.fail(number, PrepareFailure::of(error));
                PrepareOutcome::Done
            }
            (PrepareReason::Again(_), _) => PrepareOutcome::Failed,
            (PrepareReason::Asked | PrepareReason::Needed(_), _) => PrepareOutcome::Done,
        };
    }
    let is_used = server.statements.place_mut(place).is_some_and(|place| place.user.is_some());
    if is_used {
        // The client's own statement of the same text has state there: this one is not needed
        // before it is executed, and then it gets an identity of its own.
        put_close(number, out.to_server);
        return PrepareOutcome::Done;
    }
    let reply = reply.map(Vec::into_boxed_slice);
    if let Some(before) = server.statements.put(place, number, counts, reply, generation) {
        put_close(before, out.to_server);
    }
    trim(server, Some(place), out);
    match (purpose, client) {
        (PrepareReason::Asked, _) | (_, None) => PrepareOutcome::Done,
        (PrepareReason::Needed(number), Some(client)) => {
            let Some((_, open)) = client.statements.find_mut(number) else {
                return PrepareOutcome::Done;
            };
            if open.counts.params == counts.params {
                // The rows of an execution describe changed columns to the client.
                open.counts = counts;
            } else {
                let failure = PrepareFailure {
                    code: errors::NEEDS_PREPARING,
                    state: *b"HY000",
                    message: b"the statement has to be prepared again"[..].into(),
                    until_reset: false,
                };
                client.statements.fail(number, failure);
            }
            PrepareOutcome::Done
        }
        (PrepareReason::Again(executing), Some(_)) => execute::resend(server, executing, out),
    }
}

/// Handles an error of the front request by which the server does not have, or cannot run, the
/// statement to execute. Prepares the statement again, to repeat the execution. False: the client
/// has to receive the error.
pub(super) fn again(
    generation: u64,
    server: &mut MysqlServerSession,
    error: &ErrPacket<'_>,
    out: &mut LinkOutputs<'_>,
) -> bool {
    if !matches!(error.code, errors::UNKNOWN_STATEMENT | errors::NEEDS_PREPARING) {
        return false;
    }
    let executing = match server.front().map(|front| &front.note) {
        Some(MysqlRequestPurpose::Execute(executing)) if !executing.is_second => executing.clone(),
        _ => return false,
    };
    // The error may come from code that the statement calls, whose earlier effects must not be
    // repeated.
    if executing.facts().effects.intersects(MysqlEffects::UNKNOWN) {
        return false;
    }
    // Long data was lost with the statement.
    let memory_lost =
        server.statements.place_mut(executing.place).is_some_and(|place| place.user.is_some());
    if server.statements.kept.is_empty()
        || memory_lost
        || server.has_more_outstanding()
        || executing.statement.plan_key != server.applied.plan_key()
    {
        return false;
    }
    drop(server.pop());
    let statement = executing.statement.clone();
    let place = executing.place;
    close(server, place, out.to_server);
    put_prepare(&statement.text, out.to_server);
    let executing = PendingExecution { is_second: true, ..executing };
    let purpose = PrepareReason::Again(executing);
    let preparing = PendingPrepare::new(statement, place, purpose, generation);
    server.push(
        ReplyKind::Prepare,
        MysqlReplyAudience::Nobody,
        MysqlRequestPurpose::Prepare(Box::new(preparing)),
    );
    true
}

/// Handles the complete reply to an execution.
pub(super) fn executed(
    client: Option<&mut MysqlClientSession>,
    server: &mut MysqlServerSession,
    executing: &PendingExecution,
    result: Result<StatusFlags, &ErrPacket<'_>>,
    out: &mut LinkOutputs<'_>,
) {
    let is_open = result.is_ok_and(|status| {
        executing.reply == ReplyKind::Cursor
            && status.contains(StatusFlags::CURSOR_EXISTS)
            && !status.contains(StatusFlags::LAST_ROW_SENT)
    });
    let user = if is_open && client.is_some() { Some(executing.number) } else { None };
    server.statements.set_user(executing.place, user);
    if let Err(error) = result {
        match error.code {
            // No other client may encounter any remains of it.
            errors::UNKNOWN_STATEMENT
            | errors::NEEDS_PREPARING
            | errors::WRONG_ARGUMENTS
            | errors::MALFORMED => close(server, executing.place, out.to_server),
            // Whether the server took the types before the error is not known.
            _ => server.statements.unbind(executing.place),
        }
    }
    if let Some(client) = client {
        client.statements.set_memory(executing.number, |memory| {
            memory.cursor = is_open;
            memory.long_data = false;
        });
    }
}

/// Handles the complete reply to a request for rows of a cursor.
pub(super) fn fetched(
    client: Option<&mut MysqlClientSession>,
    server: &mut MysqlServerSession,
    number: u32,
    result: Result<StatusFlags, &ErrPacket<'_>>,
) {
    let is_over = match result {
        Ok(status) => status.contains(StatusFlags::LAST_ROW_SENT),
        Err(error) => matches!(error.code, errors::NO_CURSOR | errors::UNKNOWN_STATEMENT),
    };
    if is_over {
        // Long data may have been sent since the cursor was opened.
        forget(client, server, number, |memory| memory.cursor = false);
    }
}

/// Handles a reset statement.
pub(super) fn was_reset(
    client: Option<&mut MysqlClientSession>,
    server: &mut MysqlServerSession,
    number: u32,
) {
    forget(client, server, number, |memory| *memory = StatementMemory::default());
}

/// Clears state of the client's statement of this number at the server.
fn forget(
    client: Option<&mut MysqlClientSession>,
    server: &mut MysqlServerSession,
    number: u32,
    change: impl FnOnce(&mut StatementMemory),
) {
    let Some(client) = client else { return };
    client.statements.set_memory(number, change);
    if let Some((_, open)) = client.statements.find(number)
        && !open.memory.is_any()
    {
        server.statements.set_user(open.place, None);
    }
}

#[cfg(test)]
mod tests;
