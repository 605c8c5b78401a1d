//! The end of a reply: the effects of the statement on its session, and whether the connection is
//! released.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{PoolMode, VerifyMode};
use wire::mysql::capabilities::StatusFlags;
use wire::mysql::changes::{TrackedChange, changes};
use wire::mysql::frame::PacketHeader;
use wire::mysql::packet::{ErrPacket, OkPacket};
use wire::mysql::reply::ReplyEvent;
use wire::mysql::sql::MysqlEffects;

use super::back::{MysqlReplyHandler, has_more};
use super::change::{self, FLUSH};
use super::front::shares;
use super::prepared::{self, PrepareOutcome};
use super::{commands, leaves};
use crate::link::{ServerErrorCode, ServerFailure};
use crate::mysql::client::{MysqlClientSession, NextInput};
use crate::mysql::pins::PinReason;
use crate::mysql::server::{
    MysqlReplyAudience, MysqlRequestPurpose, MysqlServerSession, OutstandingRequest,
};
use crate::mysql::settings::{SettingChange, is_harmless, is_replayable};
use crate::mysql::texts::MysqlStatementFacts;

/// A deadlock: the server has rolled the transaction back, and reports that in no other way.
const DEADLOCK: u16 = 1213;

/// Errors after which the server closes the connection: it is shut down, or the connection was
/// killed (MySQL's and MariaDB's number).
const CLOSING: [u16; 3] = [1053, 1927, 3169];

/// A cancellation that arrived too late for its target.
const INTERRUPTED: u16 = 1317;

/// The function does not exist.
const NO_FUNCTION: u16 = 1305;

/// Status flags that are sent to a client between two commands.
const LASTING: u16 = StatusFlags::IN_TRANS.0
    | StatusFlags::AUTOCOMMIT.0
    | StatusFlags::NO_BACKSLASH_ESCAPES.0
    | StatusFlags::ANSI_QUOTES.0
    | StatusFlags::IN_TRANS_READONLY.0;

/// Variables that no statement sets, and that servers report nevertheless.
const READ_ONLY: [&str; 5] =
    ["error_count", "in_transaction", "last_gtid", "statement_id", "warning_count"];

/// Effects of statements that clear the warnings of earlier ones.
const CLEARS_WARNINGS: MysqlEffects = MysqlEffects::TABLES
    .with(MysqlEffects::WRITES)
    .with(MysqlEffects::DDL)
    .with(MysqlEffects::TEMP_CREATE)
    .with(MysqlEffects::TEMP_DROP)
    .with(MysqlEffects::TEMP_RENAME)
    .with(MysqlEffects::LOCK_TABLES)
    .with(MysqlEffects::HANDLER)
    .with(MysqlEffects::UNKNOWN);

/// Effects of code that is not in the text.
const HIDDEN: MysqlEffects =
    MysqlEffects::CALL.with(MysqlEffects::UNKNOWN_FUNCTION).with(MysqlEffects::SQL_EXECUTE);

/// Queries the warnings of the previous statement.
const SHOW_WARNINGS: &str = "SHOW WARNINGS";

/// Queries the last insert id.
const SELECT_INSERT_ID: &str = "SELECT LAST_INSERT_ID()";

/// The variable that the pooler itself sets, to receive the other reports.
const OURS: &str = "session_track_schema";

impl MysqlReplyHandler<'_, '_> {
    /// Handles the end of a successful result.
    pub(super) fn result(
        &mut self,
        event: ReplyEvent,
        header: PacketHeader,
        part: &[u8],
        warnings: u16,
    ) {
        let status = self.server.status;
        let changed = status.contains(StatusFlags::SESSION_STATE_CHANGED);
        if changed || matches!(event, ReplyEvent::Ok(_)) {
            let ok = OkPacket::parse(part, self.server.capabilities).unwrap_or_default();
            if changed {
                self.told(ok.changes);
            }
            if let ReplyEvent::Ok(_) = event {
                self.counted(&ok);
            }
        }
        if !matches!(event, ReplyEvent::Ok(_)) && self.inserts() {
            // `INSERT … RETURNING`: the end of its rows does not report the id.
            self.server.insert_id = None;
            self.server.asks_insert_id = true;
        }
        if !matches!(event, ReplyEvent::Ok(_))
            && self.is_heard()
            && let Some(client) = &mut self.client
        {
            client.diagnostics.found_rows = self.server.rows;
            client.diagnostics.found_here = true;
            client.diagnostics.counted(-1, true);
        }
        if self.is_heard()
            && let Some(client) = &mut self.client
        {
            client.status = StatusFlags(status.0 & LASTING);
            client.read_as(status);
            client.diagnostics.warned = warnings > 0 && !has_more(status);
            client.diagnostics.warnings_here |= warnings > 0;
        }
        self.give(event, header, part);
        if has_more(status) {
            self.server.rows = 0;
        }
    }

    /// Returns whether the front request inserts rows.
    fn inserts(&self) -> bool {
        let effects = match self.server.front().map(|front| &front.note) {
            Some(MysqlRequestPurpose::Text(facts)) => facts.effects,
            Some(MysqlRequestPurpose::Execute(executing)) => executing.facts().effects,
            _ => return false,
        };
        effects.intersects(MysqlEffects::INSERTS)
    }

    /// Records the values that the client may query after a statement without rows.
    fn counted(&mut self, ok: &OkPacket<'_>) {
        if ok.last_insert_id != 0 {
            // It may be an explicit value, which `LAST_INSERT_ID()` does not return.
            self.server.insert_id = None;
        }
        if !self.is_heard() {
            return;
        }
        let Some(client) = &mut self.client else { return };
        let rows = i64::try_from(ok.affected_rows).unwrap_or(i64::MAX);
        client.diagnostics.counted(rows, true);
        if ok.last_insert_id != 0 {
            client.diagnostics.insert_id = ok.last_insert_id;
            self.server.asks_insert_id = true;
        }
    }

    /// Handles the session changes that the server's trackers report.
    #[cold]
    fn told(&mut self, raw: &[u8]) {
        // The changes of inserted requests are known.
        let Some(front) = self.server.front() else { return };
        let (facts, explains) = match &front.note {
            MysqlRequestPurpose::Text(facts) => (facts.clone(), leaves::explains(facts.effects)),
            MysqlRequestPurpose::Execute(executing) => {
                let facts = executing.facts().clone();
                let explains = leaves::explains(facts.effects);
                (facts, explains)
            }
            MysqlRequestPurpose::Use(_)
            | MysqlRequestPurpose::Plain
            | MysqlRequestPurpose::Prepare(_)
            | MysqlRequestPurpose::ResetStatement(_) => (MysqlStatementFacts::NOTHING, true),
            // It is a `SET`, for which a server always reports a change of the session's state.
            MysqlRequestPurpose::Flush => (MysqlStatementFacts::NOTHING, true),
            _ => return,
        };
        let mut variables = Vec::new();
        let mut schema = None;
        for change in changes(raw) {
            match change {
                Ok(TrackedChange::Variable { name, value }) => variables.push((name, value)),
                Ok(TrackedChange::Schema(name)) => schema = Some(name),
                Ok(TrackedChange::State(true)) if !explains => {
                    self.server.pins.set(PinReason::State)
                }
                Ok(
                    TrackedChange::State(_)
                    | TrackedChange::Gtid(_)
                    | TrackedChange::Characteristics(_)
                    | TrackedChange::Transaction(_)
                    | TrackedChange::Other(_),
                ) => {}
                Err(_) => self.server.pins.set(PinReason::State),
            }
        }
        let is_flush = matches!(
            self.server.front(),
            Some(OutstandingRequest { note: MysqlRequestPurpose::Flush, .. })
        );
        let names = |name: &str| variables.iter().any(|(told, _)| *told == name.as_bytes());
        if facts.effects.intersects(MysqlEffects::UNKNOWN)
            && names("character_set_connection")
            && !names("collation_connection")
        {
            // A routine restored the character set, and with it the collation, which is not
            // reported.
            self.server.pins.set(PinReason::Settings);
        }
        let changed = self.told_variables(&variables, leaves::collation(&facts));
        // A statement restores its own temporary settings after its end.
        self.server.is_untold |= changed && !is_flush && !leaves::sets(facts.effects);
        if let Some(schema) = schema {
            self.told_schema(schema);
        }
    }

    /// Handles changed variables of the session; returns whether a relevant one changed.
    fn told_variables(&mut self, variables: &[(&[u8], &[u8])], collation: Option<&str>) -> bool {
        let server = &mut *self.server;
        let mut known = Vec::with_capacity(variables.len());
        let mut pinned = false;
        for (name, value) in variables {
            let texts = (std::str::from_utf8(name), std::str::from_utf8(value));
            let (Ok(name), Ok(value)) = texts else {
                server.pins.variable(name);
                pinned = true;
                continue;
            };
            let lower = name.to_ascii_lowercase();
            if READ_ONLY.contains(&lower.as_str()) || (lower == OURS && value != "OFF") {
                continue;
            }
            if is_replayable(&lower) {
                known.push((name, value));
                server.told.push(lower.into());
            } else if is_harmless(&lower, value) {
                server.pins.variable_default(lower.as_bytes());
            } else {
                server.pins.variable(lower.as_bytes());
                pinned = true;
            }
        }
        if known.is_empty() && collation.is_none() {
            return pinned;
        }
        let mut applied = (*server.applied).clone();
        if applied.told(known.iter().copied(), collation) != SettingChange::Kept {
            server.pins.set(PinReason::Settings);
        }
        server.applied = self.shared.settings.share(Arc::new(applied));
        if let Some(client) = &mut self.client {
            let mut wanted = (*client.wanted).clone();
            let _pinned = wanted.told(known.iter().copied(), collation);
            client.want(self.shared.settings.share(Arc::new(wanted.overlaid(&client.forced))));
        }
        true
    }

    /// Handles a change of the session's schema.
    pub(super) fn told_schema(&mut self, schema: &[u8]) {
        let server = &mut *self.server;
        let Ok(schema) = std::str::from_utf8(schema) else {
            return server.pins.set(PinReason::Schema);
        };
        let mut applied = (*server.applied).clone();
        if applied.put_schema(schema) != SettingChange::Kept {
            // No other session can be moved there, and this one possibly not away from there.
            return server.pins.set(PinReason::Schema);
        }
        server.pins.end(PinReason::Schema);
        server.applied = self.shared.settings.share(Arc::new(applied));
        if let Some(client) = &mut self.client {
            let mut wanted = (*client.wanted).clone();
            let _kept = wanted.put_schema(schema);
            client.want(self.shared.settings.share(Arc::new(wanted)));
        }
    }

    /// Handles an error of the client's request or of an inserted one.
    pub(super) fn failed(
        &mut self,
        error: &ErrPacket<'_>,
        header: PacketHeader,
        part: &[u8],
    ) -> Result<(), ServerFailure> {
        if CLOSING.contains(&error.code) {
            self.server.closing = true;
        }
        if error.code == DEADLOCK && self.server.tracks {
            // A `SIGNAL` can forge this error: the server's status is queried before it is trusted.
            self.server.status = self.server.status.without(StatusFlags::IN_TRANS);
            self.server.is_untold = true;
        }
        let heard = self.is_heard();
        self.give(ReplyEvent::Error, header, part);
        if heard && let Some(client) = &mut self.client {
            self.server.errors.add(ServerErrorCode::Number(error.code), 1);
            client.status = StatusFlags(self.server.status.0 & LASTING);
            client.diagnostics.failed(error.code, error.message, true);
        }
        let message = || String::from_utf8_lossy(error.message).into();
        match self.server.front().map(|front| &front.note) {
            Some(MysqlRequestPurpose::Reset) => {
                return Err(ServerFailure::Reset { message: message() });
            }
            Some(MysqlRequestPurpose::Trackers) if error.code == INTERRUPTED => {
                return Err(ServerFailure::Reset { message: message() });
            }
            Some(MysqlRequestPurpose::Trackers) => self.server.tracks = false,
            // The pending changes stay unknown, and a repetition may fail each time.
            Some(MysqlRequestPurpose::Flush) => self.server.pins.set(PinReason::Settings),
            Some(MysqlRequestPurpose::Unlock) if error.code == NO_FUNCTION => {
                self.server.unlocks = false
            }
            // The session continues without a mark; an interrupted request for one is repeated
            // later.
            Some(MysqlRequestPurpose::Mark) => {
                self.server.mark = None;
                self.server.takes_marks &= error.code == INTERRUPTED;
            }
            // A reset removes it before another client uses the connection.
            Some(MysqlRequestPurpose::Unmark) => self.server.reset_due = true,
            Some(
                MysqlRequestPurpose::Settings
                | MysqlRequestPurpose::Schema
                | MysqlRequestPurpose::Multi
                | MysqlRequestPurpose::InsertId
                | MysqlRequestPurpose::Forget
                | MysqlRequestPurpose::Unlock,
            ) => {
                self.server.dirty = true;
                if let Some(client) = &mut self.client {
                    let said = String::from_utf8_lossy(error.message);
                    let sentence = format!("the session state cannot be restored: {said}");
                    client.seq = client.seq.max(1);
                    let state = &error.state;
                    client.put_error(error.code, state, &sentence, self.out.to_client);
                    self.failed = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the completed reply to the front request.
    pub(super) fn done(&mut self, error: Option<&ErrPacket<'_>>) -> Result<(), ServerFailure> {
        let heard = self.is_heard();
        let lock_row = self.server.lock_row.filter(|_| self.server.rows == 1);
        let Some(entry) = self.server.pop() else { return Ok(()) };
        let OutstandingRequest { audience, note, .. } = entry;
        let is_asked = audience == MysqlReplyAudience::Client;
        if is_asked && let Some(client) = &mut self.client {
            client.is_new_here = false;
            client.seq = 0;
            if let NextInput::File { .. } = client.turn {
                client.turn = NextInput::File { pass: false };
            }
            self.server.wants_file = false;
            self.server.queries += 1;
            let is_over = !self.server.status.contains(StatusFlags::IN_TRANS);
            self.server.transactions += u64::from(is_over);
        }
        self.noted(note, error, lock_row, heard)?;
        self.server.told.clear();
        if is_asked {
            self.refuse_transaction();
        }
        self.release();
        Ok(())
    }

    /// Records the effects of the request.
    fn noted(
        &mut self,
        note: MysqlRequestPurpose,
        error: Option<&ErrPacket<'_>>,
        lock_row: Option<bool>,
        heard: bool,
    ) -> Result<(), ServerFailure> {
        match note {
            MysqlRequestPurpose::Text(facts) => self.ran(&facts, error.is_none(), lock_row, heard),
            MysqlRequestPurpose::Execute(executing) => {
                let (client, result) =
                    (self.client.as_deref_mut(), outcome(self.server.status, error));
                prepared::executed(client, self.server, &executing, result, self.out);
                self.ran(executing.facts(), error.is_none(), lock_row, heard);
            }
            MysqlRequestPurpose::Prepare(preparing) => {
                let client = self.client.as_deref_mut();
                let done = prepared::prepared(client, self.server, *preparing, error, self.out);
                self.prepared(done, error);
            }
            MysqlRequestPurpose::Fetch(number) => {
                let (client, result) =
                    (self.client.as_deref_mut(), outcome(self.server.status, error));
                prepared::fetched(client, self.server, number, result);
            }
            MysqlRequestPurpose::ResetStatement(number) if error.is_none() => {
                prepared::was_reset(self.client.as_deref_mut(), self.server, number);
            }
            MysqlRequestPurpose::Use(schema) if error.is_none() => {
                self.told_schema(schema.as_bytes())
            }
            MysqlRequestPurpose::ResetSession if error.is_none() => {
                change::was_reset(self.server);
                if let Some(client) = &mut self.client {
                    commands::forget(client);
                }
            }
            MysqlRequestPurpose::AskInsertId(Some(id)) => {
                self.server.insert_id = Some(id);
                self.server.insert_id_is_doubtful = false;
                if let Some(client) = &mut self.client {
                    client.diagnostics.insert_id = id;
                }
            }
            MysqlRequestPurpose::AskWarnings(warnings) => {
                if let (Some(client), None) = (&mut self.client, error) {
                    client.diagnostics.warnings = Some(warnings);
                }
            }
            MysqlRequestPurpose::Plain
            | MysqlRequestPurpose::ResetStatement(_)
            | MysqlRequestPurpose::Use(_)
            | MysqlRequestPurpose::ResetSession
            | MysqlRequestPurpose::AskInsertId(None)
            | MysqlRequestPurpose::Settings
            | MysqlRequestPurpose::Schema
            | MysqlRequestPurpose::Multi
            | MysqlRequestPurpose::InsertId
            | MysqlRequestPurpose::Forget
            | MysqlRequestPurpose::Unlock
            | MysqlRequestPurpose::Mark
            | MysqlRequestPurpose::Unmark
            | MysqlRequestPurpose::Trackers
            | MysqlRequestPurpose::Flush
            | MysqlRequestPurpose::Reset => {}
        }
        Ok(())
    }

    /// Sends the best available error to an execution that waited for its statement.
    fn prepared(&mut self, done: PrepareOutcome, error: Option<&ErrPacket<'_>>) {
        let (PrepareOutcome::Failed, Some(client)) = (done, &mut self.client) else { return };
        let message = "the statement has to be prepared again";
        match error {
            Some(error) => {
                let said = String::from_utf8_lossy(error.message);
                client.put_error(error.code, &error.state, &said, self.out.to_client);
            }
            None => client.put_error(1615, b"HY000", message, self.out.to_client),
        }
        client.seq = 0;
    }

    /// Records the effects of a text, or of a statement that was prepared from one.
    #[inline]
    fn ran(
        &mut self,
        facts: &MysqlStatementFacts,
        went_well: bool,
        lock_row: Option<bool>,
        heard: bool,
    ) {
        let effects = facts.effects;
        let server = &mut *self.server;
        let in_transaction = server.status.contains(StatusFlags::IN_TRANS);
        if server.status.contains(StatusFlags::AUTOCOMMIT) {
            server.uncommitted = false;
        } else if effects.intersects(MysqlEffects::COMMIT | MysqlEffects::ROLLBACK)
            && !in_transaction
        {
            server.uncommitted = effects.intersects(MysqlEffects::MULTI);
        } else if !leaves::is_only_settings(effects) {
            server.uncommitted = true;
        }
        if let Some(client) = &mut self.client
            && went_well
            && heard
            && effects.intersects(CLEARS_WARNINGS)
        {
            client.diagnostics.warnings = None;
            client.diagnostics.warnings_here = true;
        }
        if !went_well {
            server.is_untold |= leaves::may_change_before_it_fails(effects);
            // User variables and temporary tables of a failed statement are never reported.
            let verify = self.client.as_ref().map_or(VerifyMode::Always, |client| client.verify);
            server.reset_due |= effects.intersects(HIDDEN) && verify != VerifyMode::Never;
        }
        if !effects.is_empty() || !server.pins.is_empty() {
            let verify = self.client.as_ref().map_or(VerifyMode::Always, |client| client.verify);
            leaves::behind(server, facts, went_well, lock_row, verify);
            if went_well && effects.intersects(MysqlEffects::DDL) {
                let _before = self.shared.schema.fetch_add(1, Ordering::Relaxed);
            }
            self.understood(facts, went_well);
        }
        if effects.intersects(MysqlEffects::UNKNOWN)
            && let Some(client) = &mut self.client
        {
            // A routine may have released all locks: if the client stays attached, the connection
            // is marked again.
            change::unmark_own(client, self.server, self.out.to_server);
        }
    }

    /// Records settings that a text changed and that the server did not report: some servers report
    /// nothing, and MariaDB never reports `SET @@name`.
    #[cold]
    fn understood(&mut self, facts: &MysqlStatementFacts, went_well: bool) {
        let told = std::mem::take(&mut self.server.told);
        if !went_well && !facts.effects.intersects(MysqlEffects::MULTI) {
            return;
        }
        let told = self.server.tracks.then_some(&told);
        let Some(understood) = leaves::settings(facts, told) else {
            return self.server.pins.set(PinReason::Settings);
        };
        if understood.is_nothing() {
            return;
        }
        if understood.asks || !went_well {
            if told.is_none() {
                return self.server.pins.set(PinReason::Settings);
            }
            let names = understood.variables.iter().map(|(name, _)| Box::from(*name));
            self.server.asks_values.extend(names);
            self.server.is_untold = true;
            return;
        }
        if let Some(schema) = understood.schema {
            self.told_schema(schema.as_bytes());
        }
        let (client, server) = (&mut self.client, &mut *self.server);
        let mut applied = (*server.applied).clone();
        let mut wanted = client.as_ref().map(|client| (*client.wanted).clone());
        for (name, value) in understood.variables {
            let put = applied.put(name, value);
            if let (Some(client), Some(wanted)) = (&client, &mut wanted) {
                let value = value.or(client.startup.value(name));
                let _pinned = wanted.put(name, value);
            }
            if put != SettingChange::Kept {
                server.pins.set(PinReason::Settings);
            }
        }
        server.applied = self.shared.settings.share(Arc::new(applied));
        if let (Some(client), Some(wanted)) = (client, wanted) {
            let wanted = wanted.overlaid(&client.forced);
            client.want(self.shared.settings.share(Arc::new(wanted)));
        }
    }

    /// Disconnects a client in statement mode that is in a transaction, which a procedure may have
    /// begun.
    fn refuse_transaction(&mut self) {
        let is_open = self.server.status.contains(StatusFlags::IN_TRANS);
        if let Some(client) = &mut self.client
            && client.mode == PoolMode::Statement
            && is_open
        {
            let message = "transactions of several statements are not allowed in statement mode";
            client.put_error(1235, b"42000", message, self.out.to_client);
            self.failed = true;
        }
    }

    /// Detaches the connection from a client that does not need it any more.
    #[inline]
    fn release(&mut self) {
        let Some(client) = &mut self.client else { return };
        if !self.failed && release(client, self.server, self.out.to_server) {
            self.client = None;
            self.released = true;
        } else if self.server.is_quiet()
            && (self.server.is_in_transaction() || !self.server.pins.is_empty())
        {
            // With a mark its locks can be found although no statement runs.
            change::mark(client, self.server, self.out.to_server);
        }
    }
}

/// Detaches the connection from a client that does not need it any more; returns whether it did. If
/// not, it may have queried state from the server that the client needs first.
#[inline]
pub(super) fn release(
    client: &mut MysqlClientSession,
    server: &mut MysqlServerSession,
    to_server: &mut Vec<u8>,
) -> bool {
    if !server.is_quiet()
        || server.is_in_transaction()
        || !server.pins.is_empty()
        || server.closing
        || server.dirty
        || !shares(client.mode)
        || client.is_in_message()
        || client.statements.memory().is_any()
        || client.waits_here
    {
        return false;
    }
    if std::mem::take(&mut client.diagnostics.warned) {
        let note = MysqlRequestPurpose::AskWarnings(Box::default());
        server.ask(note, SHOW_WARNINGS, to_server);
        return false;
    }
    if std::mem::take(&mut server.is_untold) && server.tracks {
        flush(server, to_server);
        return false;
    }
    if std::mem::take(&mut server.asks_insert_id) {
        let note = MysqlRequestPurpose::AskInsertId(None);
        server.ask(note, SELECT_INSERT_ID, to_server);
        return false;
    }
    server.reset_due |= client.verify == VerifyMode::Always;
    client.attached = false;
    server.attached = None;
    true
}

/// Makes the server report session changes that it has not reported.
#[cold]
fn flush(server: &mut MysqlServerSession, out: &mut Vec<u8>) {
    let mut text = FLUSH.to_owned();
    for name in std::mem::take(&mut server.asks_values) {
        for part in [",SESSION ", &*name, "=@@", &*name] {
            text.push_str(part);
        }
    }
    server.ask(MysqlRequestPurpose::Flush, &text, out);
}

/// Returns the outcome of a statement: the status of its last result, or the error.
fn outcome<'a>(
    status: StatusFlags,
    error: Option<&'a ErrPacket<'a>>,
) -> Result<StatusFlags, &'a ErrPacket<'a>> {
    error.map_or(Ok(status), Err)
}
