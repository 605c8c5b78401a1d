//! Texts on their way to the server: which are refused, answered here, or rewritten.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query.html>

use api::PoolMode;
use wire::mysql::command::Command;
use wire::mysql::frame::{HEADER_BYTES, PacketHeader, put_packet};
use wire::mysql::packet::put_result;
use wire::mysql::reply::ReplyKind;
use wire::mysql::sql::{AssignedValue, KillTarget, MysqlEffects, rewrite_connection_id};

use super::front::{MysqlLink, MysqlPacketOutcome, pass_over, refuse};
use super::{MysqlLinkContext, STATEMENT_BYTES_SCANNED_MAX, change, local};
use crate::link::{ClientNext, LinkOutputs};
use crate::mysql::client::{CommandRefusal, MysqlClientSession};
use crate::mysql::server::{MysqlReplyAudience, MysqlRequestPurpose};
use crate::mysql::texts::MysqlStatementFacts;

/// MySQL's error for an unsupported feature.
const NOT_SUPPORTED: (u16, &[u8; 5]) = (1235, b"42000");

/// A text, as far as it has arrived.
enum QueryText<'a> {
    Text(&'a [u8]),
    /// Too long to be parsed.
    Unseen,
    More(usize),
}

#[inline]
fn seen(header: PacketHeader, rest: &[u8]) -> QueryText<'_> {
    if header.len > STATEMENT_BYTES_SCANNED_MAX {
        return QueryText::Unseen;
    }
    match rest.get(HEADER_BYTES + 1..header.total()) {
        Some(text) => QueryText::Text(text),
        None => QueryText::More(header.total()),
    }
}

/// Handles a text of a client without a server connection: most need one.
pub(super) fn alone(
    shared: &mut MysqlLinkContext,
    client: &mut MysqlClientSession,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    let text = match seen(header, rest) {
        QueryText::Text(text) => text,
        QueryText::More(want) => return MysqlPacketOutcome::More(want),
        QueryText::Unseen => {
            return match refusal(client, &MysqlStatementFacts::UNKNOWN) {
                Some(refusal) => refuse(client, header, rest, refusal, out),
                None => MysqlPacketOutcome::NeedServer,
            };
        }
    };
    if !client.is_mode_known && !reads_alike(text) {
        return MysqlPacketOutcome::NeedServer;
    }
    let facts = shared.texts.facts(text, client.sql_mode);
    if let Some(refusal) = refusal(client, &facts) {
        return refuse(client, header, rest, refusal, out);
    }
    if facts.effects.intersects(MysqlEffects::KILL) {
        return kill(client, &facts, header, rest, out);
    }
    if let Some(asked) = &facts.asked {
        local::answer(client, asked, put_result, out.to_client);
        return pass_over(client, header, rest);
    }
    client.looked = Some(facts);
    MysqlPacketOutcome::NeedServer
}

/// Returns whether a text is parsed the same in every SQL mode: no token in it depends on the mode.
fn reads_alike(text: &[u8]) -> bool {
    !text.iter().any(|byte| matches!(byte, b'"' | b'\\'))
}

/// Returns the refusal of a text that must not run.
#[inline]
pub(super) fn refusal(
    client: &MysqlClientSession,
    facts: &MysqlStatementFacts,
) -> Option<CommandRefusal> {
    const LOOKED_AT: MysqlEffects = MysqlEffects::READ_WRITE
        .with(MysqlEffects::UNPARSED)
        .with(MysqlEffects::SET_UNKNOWN)
        .with(MysqlEffects::TRANSACTION_BEGIN)
        .with(MysqlEffects::AUTOCOMMIT)
        .with(MysqlEffects::LOCAL_INFILE);
    if let Some(what) = facts.prohibitions.for_sandboxes.filter(|_| client.is_sandbox) {
        return Some(CommandRefusal::not_for_sandboxes(what));
    }
    if let Some(what) = facts.prohibitions.for_readers.filter(|_| client.read_only) {
        return Some(CommandRefusal::not_for_readers(what));
    }
    if !facts.effects.intersects(LOOKED_AT) {
        return None;
    }
    let has = |effect| facts.effects.intersects(effect);
    if client.read_only
        && has(MysqlEffects::READ_WRITE | MysqlEffects::UNPARSED | MysqlEffects::SET_UNKNOWN)
    {
        return Some(CommandRefusal::read_only());
    }
    if has(MysqlEffects::LOCAL_INFILE) && !client.local_infile {
        let message = "loading local files is not allowed for this tenant";
        return Some(CommandRefusal::new(1148, b"42000", message));
    }
    if client.mode != PoolMode::Statement {
        return None;
    }
    let begins =
        has(MysqlEffects::TRANSACTION_BEGIN) || (has(MysqlEffects::AUTOCOMMIT) && is_off(facts));
    let message = "transactions of several statements are not allowed in statement mode";
    begins.then(|| CommandRefusal::new(NOT_SUPPORTED.0, NOT_SUPPORTED.1, message))
}

/// Returns whether `autocommit` may be off after the text.
fn is_off(facts: &MysqlStatementFacts) -> bool {
    let Some(details) = facts.details.as_deref().filter(|details| !details.lost) else {
        return true;
    };
    details.assignments.iter().filter(|it| it.name == "autocommit").any(|it| match &it.value {
        AssignedValue::Literal(value) => !matches!(value.to_ascii_lowercase().as_str(), "1" | "on"),
        AssignedValue::Default | AssignedValue::Expression => true,
    })
}

/// Handles `KILL` with the number of a client of the bouncer, which the server would take for one
/// of its own threads.
fn kill(
    client: &mut MysqlClientSession,
    facts: &MysqlStatementFacts,
    header: PacketHeader,
    rest: &[u8],
    out: &mut LinkOutputs<'_>,
) -> MysqlPacketOutcome {
    let several = facts.effects.intersects(MysqlEffects::MULTI);
    let kill = facts.details.as_deref().and_then(|details| details.kill).filter(|_| !several);
    let id = kill.and_then(|kill| match kill.target {
        KillTarget::Id(id) => u32::try_from(id).ok(),
        KillTarget::Own => Some(client.id.0),
        KillTarget::Other => None,
    });
    match (kill, id) {
        (Some(kill), Some(id)) => {
            let next = ClientNext::Kill { id, connection: kill.connection };
            MysqlPacketOutcome::Next(header.total(), next)
        }
        _ => {
            let message = "only a connection's number can be killed through the bouncer, \
                           in a text of its own";
            let refusal = CommandRefusal::new(NOT_SUPPORTED.0, NOT_SUPPORTED.1, message);
            refuse(client, header, rest, refusal, out)
        }
    }
}

impl MysqlLink<'_, '_> {
    /// Handles a text of statements.
    #[inline]
    pub(super) fn query(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        let text = match seen(header, rest) {
            QueryText::Text(text) => text,
            QueryText::More(want) => return MysqlPacketOutcome::More(want),
            QueryText::Unseen => return self.query_unseen(header, rest),
        };
        let facts = match self.client.looked.take() {
            Some(facts) => facts,
            None => self.shared.texts.facts(text, self.client.sql_mode),
        };
        if let Some(refusal) = refusal(self.client, &facts) {
            return self.refuse(header, rest, refusal);
        }
        if facts.effects.intersects(MysqlEffects::KILL) {
            return kill(self.client, &facts, header, rest, self.out);
        }
        if let Some(asked) = &facts.asked
            && local::is_known(self.client, asked)
        {
            local::answer(self.client, asked, put_result, self.out.to_client);
            return pass_over(self.client, header, rest);
        }
        if !self.before(&facts) {
            self.client.looked = Some(facts);
            return MysqlPacketOutcome::Wait;
        }
        if self.client.multi != self.server.multi && has_several(text) {
            self.allow_several();
        }
        let rewritten = facts.effects.intersects(MysqlEffects::CONNECTION_ID);
        self.server.push(
            ReplyKind::Query,
            MysqlReplyAudience::Client,
            MysqlRequestPurpose::Text(facts),
        );
        if rewritten && self.send_rewritten(text) {
            return MysqlPacketOutcome::Bytes(header.total());
        }
        self.pass(header, rest)
    }

    /// Handles a text to prepare.
    pub(super) fn stmt_prepare(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        let text = match seen(header, rest) {
            QueryText::Text(text) => text,
            QueryText::More(want) => return MysqlPacketOutcome::More(want),
            // It was refused before.
            QueryText::Unseen => return pass_over(self.client, header, rest),
        };
        let facts = self.shared.texts.facts(text, self.client.sql_mode);
        if let Some(refusal) = refusal(self.client, &facts) {
            return self.refuse(header, rest, refusal);
        }
        if facts.effects.intersects(MysqlEffects::KILL) {
            let message = "KILL cannot be prepared through the bouncer";
            let refusal = CommandRefusal::new(NOT_SUPPORTED.0, NOT_SUPPORTED.1, message);
            return self.refuse(header, rest, refusal);
        }
        if !self.settle() {
            return MysqlPacketOutcome::Wait;
        }
        let (mode, id) = (self.client.sql_mode, self.client.id.0);
        let mut rewritten = Vec::new();
        if facts.effects.intersects(MysqlEffects::CONNECTION_ID)
            && rewrite_connection_id(text, mode, id, &mut rewritten)
        {
            return self.prepare(header, rest, &rewritten);
        }
        self.prepare(header, rest, text)
    }

    /// Handles a text that is too long to be parsed.
    fn query_unseen(&mut self, header: PacketHeader, rest: &[u8]) -> MysqlPacketOutcome {
        if let Some(refusal) = refusal(self.client, &MysqlStatementFacts::UNKNOWN) {
            return self.refuse(header, rest, refusal);
        }
        if !self.before(&MysqlStatementFacts::UNKNOWN) {
            return MysqlPacketOutcome::Wait;
        }
        if self.client.multi != self.server.multi {
            self.allow_several();
        }
        self.server.push(
            ReplyKind::Query,
            MysqlReplyAudience::Client,
            MysqlRequestPurpose::Text(MysqlStatementFacts::UNKNOWN),
        );
        self.pass(header, rest)
    }

    /// Prepares the session before a client's text is sent. False: replies must arrive first, and
    /// nothing of the text may be sent.
    #[inline]
    #[must_use]
    pub(super) fn before(&mut self, facts: &MysqlStatementFacts) -> bool {
        if facts.effects.intersects(MysqlEffects::SEQUENCE)
            && self.server.has_sequences
            && self.client.is_new_here
        {
            change::reset(self.server, self.out.to_server);
            change::mark(self.client, self.server, self.out.to_server);
        }
        if !self.settle() {
            return false;
        }
        if facts.effects.intersects(MysqlEffects::RELEASE_ALL_LOCKS) {
            // The function returns the number of locks, and the mark is not one of the client's.
            change::unmark_own(self.client, self.server, self.out.to_server);
        }
        if self.server.has_others_diagnostics && !facts.effects.is_empty() {
            self.forget_diagnostics(facts.effects);
        }
        if !self.server.insert_id_is_own && !facts.effects.is_empty() {
            self.give_insert_id(facts.effects);
        }
        true
    }

    /// Clears the state of the previous statement, if it is another client's and the text may query
    /// it by itself.
    fn forget_diagnostics(&mut self, effects: MysqlEffects) {
        const ROWS: MysqlEffects =
            MysqlEffects::ROW_COUNT.with(MysqlEffects::DIAGNOSTICS).with(MysqlEffects::UNKNOWN);
        const FOUND: MysqlEffects = MysqlEffects::FOUND_ROWS.with(MysqlEffects::UNKNOWN);
        const WARNINGS: MysqlEffects =
            MysqlEffects::SHOW_WARNINGS.with(MysqlEffects::DIAGNOSTICS).with(MysqlEffects::UNKNOWN);
        let told = &self.client.diagnostics;
        let is_own = (told.rows_here || !effects.intersects(ROWS))
            && (told.found_here || !effects.intersects(FOUND))
            && (told.warnings_here || !effects.intersects(WARNINGS));
        if !is_own {
            self.server.has_others_diagnostics = false;
            self.server.ask(MysqlRequestPurpose::Forget, change::FORGET, self.out.to_server);
        }
    }

    /// Sets the server's session to the client's own insert id before a text that may read or keep
    /// it: code outside of the text may read it as well. An id that only a view can read is at
    /// least not another client's.
    fn give_insert_id(&mut self, effects: MysqlEffects) {
        const READS: MysqlEffects = MysqlEffects::LAST_INSERT_ID.with(MysqlEffects::UNKNOWN);
        const CHANGES: MysqlEffects = MysqlEffects::INSERTS
            .with(MysqlEffects::DDL)
            .with(MysqlEffects::SET_FIXED)
            .with(MysqlEffects::LOADS);
        // These begin transactions in which it may be read later, when a `SET` in between would
        // change `ROW_COUNT()`.
        const BEGINS: MysqlEffects = MysqlEffects::TRANSACTION_BEGIN.with(MysqlEffects::AUTOCOMMIT);
        const READS_VIEWS: MysqlEffects = MysqlEffects::TABLES.with(MysqlEffects::HANDLER);
        let own = self.client.diagnostics.insert_id;
        let is_doubtful = self.server.insert_id_is_doubtful;
        if self.server.insert_id == Some(own) && !is_doubtful {
            self.server.insert_id_is_own = true;
            return;
        }
        let is_own = effects.intersects(READS.with(CHANGES).with(BEGINS));
        let id = match is_own {
            true => own,
            false if self.server.insert_id == Some(own) => return,
            false if effects.intersects(READS_VIEWS) => 0,
            false => return,
        };
        self.server.insert_id_is_own = is_own;
        if self.server.insert_id != Some(id) || (is_doubtful && effects.intersects(READS)) {
            let text = format!("SET last_insert_id={id}");
            self.server.ask(MysqlRequestPurpose::InsertId, &text, self.out.to_server);
            self.server.insert_id = Some(id);
            self.server.insert_id_is_doubtful = false;
        }
    }

    /// Enables or disables several statements in a text at the server, as the client has requested.
    #[cold]
    fn allow_several(&mut self) {
        let command = [Command::SetOption.code(), u8::from(!self.client.multi), 0];
        self.server.inject(
            ReplyKind::Simple,
            MysqlRequestPurpose::Multi,
            &command,
            self.out.to_server,
        );
        self.server.multi = self.client.multi;
    }

    /// Sends the text, in which the client's number replaces a query for that of its connection.
    fn send_rewritten(&mut self, text: &[u8]) -> bool {
        let (mode, id) = (self.client.sql_mode, self.client.id.0);
        let mut command = vec![Command::Query.code()];
        if !rewrite_connection_id(text, mode, id, &mut command) {
            return false;
        }
        put_packet(self.out.to_server, &mut 0, &command);
        true
    }
}

/// Returns whether there may be more than one statement. A semicolon in a string may give a false
/// positive; there are no false negatives.
fn has_several(text: &[u8]) -> bool {
    text.trim_ascii_end().strip_suffix(b";").unwrap_or(text).contains(&b';')
}
