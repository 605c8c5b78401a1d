//! Requests of the extended protocol: statements, portals, batches.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY>

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::pg::exchange::{ExchangeRequest, ReplyAudience};
use wire::pg::frame::{
    HEADER_BYTES, PgHeader, TransactionStatus, frontend, put_header, split_string,
};
use wire::pg::message::{self, ErrorFields};
use wire::pg::sql::PgEffects;

use super::front::{PgLink, PgMessageOutcome, pass_over, refuse, unknown};
use super::query::{AFTER_END, ChannelCommand, Refusal};
use super::restore::{RestoredText, TextProtocol};
use super::{NAME_BYTES_MAX, REPLAY_BYTES_MAX, STATEMENT_BYTES_SCANNED_MAX};
use crate::pg::client::PgPartialMessage;
use crate::pg::server::{BatchEnds, PgRequestPurpose, RewrittenRequest, TextRewrite};
use crate::pg::statements::{
    CLIENT_STATEMENT_BYTES_MAX, CLIENT_STATEMENTS_MAX, NameId, NameUndo, PgStatement,
    SERVER_NAME_PREFIX, StatementPresence, write_close, write_parse,
};
use crate::pg::texts::PgStatementFacts;

/// A statement name that no server has.
const NO_STATEMENT: &[u8] = b"cove: refused";

/// A server's error for a missing unnamed statement.
const NO_UNNAMED: &str = "unnamed prepared statement does not exist";

/// Appends a request that fails.
pub(super) fn put_describe_nothing(out: &mut Vec<u8>) {
    put_header(out, frontend::DESCRIBE, NO_STATEMENT.len() + 2);
    out.push(b'S');
    out.extend_from_slice(NO_STATEMENT);
    out.push(0);
}

impl PgLink<'_, '_> {
    pub(super) fn parse(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        if header.total > STATEMENT_BYTES_SCANNED_MAX {
            return self.parse_unseen(header, rest);
        }
        let Some(body) = rest.get(HEADER_BYTES..header.total) else {
            return PgMessageOutcome::More(header.total);
        };
        let parts = split_string(body)
            .and_then(|(name, rest)| split_string(rest).map(|(text, types)| (name, text, types)));
        let Some((name, text, types)) = parts else { return unknown(header, self.out) };
        self.prepare_idle();
        // Under unknown settings the statement must not be shared.
        let in_doubt = self.server.settings_in_doubt;
        let plan_key =
            if in_doubt { self.shared.private_key() } else { self.client.wanted.plan_key() };
        let (statement, seen) = self.shared.texts.statement(text, types, plan_key);
        if let Some((code, message)) = self.refusal(&statement.facts) {
            self.refuse_request(code, &message);
            return PgMessageOutcome::Bytes(header.total);
        }
        if !self.prepare(&statement.facts) {
            return PgMessageOutcome::Wait;
        }
        let (statement, rewritten) = match self.rewritten(statement, types, plan_key) {
            Ok(found) => found,
            Err(taken) => return taken.unwrap_or(PgMessageOutcome::Bytes(header.total)),
        };
        let seen = seen && !in_doubt && !rewritten;
        if name.is_empty() {
            let undo = self.client.statements.put_unnamed(Some(statement.clone()));
            self.server.unseen_unnamed = false;
            if seen {
                self.parse_shared(&statement, undo);
            } else {
                self.server.statements.unnamed = Some(statement.id);
                let note = PgRequestPurpose::Unnamed { undo: Some(undo) };
                self.server.sent(ExchangeRequest::Parse, ReplyAudience::Client, note);
                write_parse(self.out.to_server, b"", &statement);
            }
            return PgMessageOutcome::Bytes(header.total);
        }
        let id = NameId::of(&self.shared.key, name);
        if self.server.is_uncertain(Some(id)) {
            return PgMessageOutcome::Wait;
        }
        if self.client.statements.named(id).is_some() {
            let name = String::from_utf8_lossy(name);
            self.refuse_request("42P05", &format!("prepared statement \"{name}\" already exists"));
        } else if !self.client.statements.has_room_for(&statement) {
            let message = format!(
                "a client may have {CLIENT_STATEMENTS_MAX} prepared statements, of \
                 {CLIENT_STATEMENT_BYTES_MAX} bytes together"
            );
            self.refuse_request("54000", &message);
        } else {
            self.client.statements.remember(id, name);
            let undo = self.client.statements.put(id, Some(statement.clone()));
            self.parse_shared(&statement, undo);
        }
        PgMessageOutcome::Bytes(header.total)
    }

    /// Returns the statement in the form for the server, and whether its text was rewritten.
    /// `None`: the request was handled.
    fn rewritten(
        &mut self,
        statement: Arc<PgStatement>,
        types: &[u8],
        plan_key: u64,
    ) -> Result<(Arc<PgStatement>, bool), Option<PgMessageOutcome>> {
        let key = self.shared.key.clone();
        let facts = &statement.facts;
        if let Some(restored) = self.restored(&statement.text, facts, TextProtocol::Extended) {
            let RestoredText { text, facts, rewrite } = restored;
            let statement = PgStatement::new(&key, &text, types, plan_key, facts);
            return Ok((statement.rewritten(rewrite), true));
        }
        if self.is_about_channels(facts) {
            return match self.channels(&statement.text) {
                ChannelCommand::AsIs => Ok((statement, false)),
                ChannelCommand::NeedListener => Err(Some(PgMessageOutcome::NeedListener)),
                ChannelCommand::Refused((code, message)) => {
                    self.refuse_request(code, &message);
                    Err(None)
                }
                ChannelCommand::Rewritten(text, actions) => {
                    let facts = facts.without(PgEffects::LISTEN);
                    let statement = PgStatement::new(&key, &text, types, plan_key, facts);
                    Ok((statement.rewritten(TextRewrite { actions, ..Default::default() }), true))
                }
            };
        }
        match self.renamed(&statement.text, facts, ReplyAudience::Client) {
            Some((text, facts)) => {
                Ok((PgStatement::new(&key, &text, types, plan_key, facts), true))
            }
            None => Ok((statement, false)),
        }
    }

    /// Handles a text that is too long to be parsed: it can only be prepared without a name, and is
    /// not kept.
    fn parse_unseen(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let Some(name) = rest.get(HEADER_BYTES) else {
            return PgMessageOutcome::More(HEADER_BYTES + 1);
        };
        if *name != 0 {
            let message = format!(
                "a prepared statement with a name may have {STATEMENT_BYTES_SCANNED_MAX} bytes"
            );
            return refuse(self.out, "54000", &message);
        }
        self.prepare_idle();
        if let Some((code, message)) = self.refusal(&PgStatementFacts::UNKNOWN) {
            self.refuse_request(code, &message);
            return pass_over(self.client, header);
        }
        let undo = self.client.statements.put_unnamed(None);
        self.server.statements.unnamed = None;
        self.server.batch_waits = true;
        self.server.unseen_unnamed = true;
        self.server.sent(
            ExchangeRequest::Parse,
            ReplyAudience::Client,
            PgRequestPurpose::Unnamed { undo: Some(undo) },
        );
        self.pass(header, rest)
    }

    /// Sends a `Parse` of a statement that is kept under a name of the pooler.
    fn parse_shared(&mut self, statement: &Arc<PgStatement>, undo: NameUndo) {
        let schema = self.shared.schema.load(Ordering::Relaxed);
        let statements = &self.server.statements;
        let is_current = statements.is_current(statement.id, schema) && !self.may_have_failed();
        let statements = &mut self.server.statements;
        match statements.use_in(statement.id, self.server.batch) {
            StatementPresence::There | StatementPresence::UnderWay if is_current => {
                self.say(PgRequestPurpose::Prepared { undo });
            }
            StatementPresence::Missing => {
                self.send_parse(statement, ReplyAudience::Client, Some(undo))
            }
            StatementPresence::There | StatementPresence::UnderWay | StatementPresence::InDoubt => {
                self.send_close(statement);
                self.send_parse(statement, ReplyAudience::Client, Some(undo));
            }
        }
    }

    /// Returns whether the transaction may have failed, in which the server would refuse to
    /// prepare.
    fn may_have_failed(&self) -> bool {
        let exchange = &self.server.exchange;
        match exchange.status() {
            TransactionStatus::Failed => true,
            TransactionStatus::Idle if !self.server.may_begin => false,
            // An earlier batch is in progress.
            TransactionStatus::Idle | TransactionStatus::InTransaction => {
                exchange.iter().any(|entry| {
                    entry.audience == ReplyAudience::Client
                        && matches!(entry.request, ExchangeRequest::Query | ExchangeRequest::Sync)
                })
            }
        }
    }

    fn send_parse(
        &mut self,
        statement: &PgStatement,
        audience: ReplyAudience,
        undo: Option<NameUndo>,
    ) {
        write_parse(self.out.to_server, statement.server_name(), statement);
        let schema = self.shared.schema.load(Ordering::Relaxed);
        self.server.statements.coming(statement.id, self.server.batch, schema);
        let note = PgRequestPurpose::Prepare { id: statement.id, undo };
        self.server.sent(ExchangeRequest::Parse, audience, note);
    }

    fn send_close(&mut self, statement: &PgStatement) {
        write_close(self.out.to_server, statement.id);
        self.server.sent(ExchangeRequest::Close, ReplyAudience::Nobody, PgRequestPurpose::Plain);
    }

    /// Answers a request here, when its turn comes.
    fn say(&mut self, note: PgRequestPurpose) {
        self.server.unsynced = true;
        self.server.sent(ExchangeRequest::Local, ReplyAudience::Client, note);
    }

    /// Makes a request of the extended protocol fail with an error of the pooler, as if the server
    /// had refused it: the transaction fails, and following requests are skipped.
    pub(super) fn refuse_request(&mut self, code: &str, message: &str) {
        let mut error = Vec::new();
        message::backend::error(&mut error, &ErrorFields::error(code, message));
        put_describe_nothing(self.out.to_server);
        let note = PgRequestPurpose::Refused(error.into_boxed_slice());
        self.server.sent(ExchangeRequest::DescribeStatement, ReplyAudience::Client, note);
    }

    /// Returns the statement of a name.
    fn meaning(&self, name: &[u8]) -> Option<&Arc<PgStatement>> {
        if name.is_empty() {
            return self.client.statements.unnamed.as_ref();
        }
        self.client.statements.named(NameId::of(&self.shared.key, name))
    }

    /// Returns the statement of a name, prepared at the server; `None` if the name is unknown here,
    /// so that the server reports the error.
    fn statement(&mut self, name: &[u8]) -> Option<(Arc<PgStatement>, bool)> {
        let statement = self.meaning(name)?.clone();
        let statements = &mut self.server.statements;
        let without_name = name.is_empty() && statements.unnamed == Some(statement.id);
        if without_name && !statements.has(statement.id) {
            return Some((statement, false));
        }
        let _sent = self.ensure(&statement);
        Some((statement, true))
    }

    /// Returns whether the statement of the name depends on requests that may have failed.
    fn is_uncertain(&self, name: &[u8]) -> bool {
        let id = if name.is_empty() { None } else { Some(NameId::of(&self.shared.key, name)) };
        self.server.is_uncertain(id)
    }

    /// Returns whether the name is empty and the client has no unnamed statement. The server may
    /// have another client's.
    fn is_nothing(&self, name: &[u8], found: bool) -> bool {
        name.is_empty() && !found && !self.server.unseen_unnamed
    }

    /// Prepares a statement at the server, unless it certainly exists there. Returns whether
    /// anything was sent.
    pub(super) fn ensure(&mut self, statement: &PgStatement) -> bool {
        match self.server.statements.use_in(statement.id, self.server.batch) {
            StatementPresence::There | StatementPresence::UnderWay => return false,
            StatementPresence::Missing => {}
            StatementPresence::InDoubt => self.send_close(statement),
        }
        self.send_parse(statement, ReplyAudience::Nobody, None);
        true
    }

    /// Appends the server's name for the client's statement.
    fn put_statement_name(&mut self, found: Option<&(Arc<PgStatement>, bool)>, name: &[u8]) {
        match found {
            Some((statement, true)) => {
                self.out.to_server.extend_from_slice(statement.server_name());
            }
            Some((_, false)) => {}
            // Clients must not guess the pooler's names.
            None if name.starts_with(SERVER_NAME_PREFIX) => {
                self.out.to_server.push(b'?');
                self.out.to_server.extend_from_slice(name.get(1..).unwrap_or_default());
            }
            None => self.out.to_server.extend_from_slice(name),
        }
        self.out.to_server.push(0);
    }

    pub(super) fn bind(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        if header.total <= REPLAY_BYTES_MAX && rest.len() < header.total {
            return PgMessageOutcome::More(header.total);
        }
        let part = rest.get(..header.total).unwrap_or(rest);
        let body = part.get(HEADER_BYTES..).unwrap_or_default();
        let names = split_string(body)
            .and_then(|(portal, rest)| split_string(rest).map(|(name, rest)| (portal, name, rest)));
        let Some((portal, name, values)) = names else {
            let most = header.total.min(HEADER_BYTES + 2 * NAME_BYTES_MAX);
            if part.len() < most {
                return PgMessageOutcome::More(most.min(rest.len() + 1));
            }
            return unknown(header, self.out);
        };
        if self.is_uncertain(name) {
            return PgMessageOutcome::Wait;
        }
        let facts = self.meaning(name).map(|statement| statement.facts.clone());
        if let Some((code, message)) = self.refuses_portal(portal, facts.as_ref()) {
            self.refuse_request(code, &message);
            return pass_over(self.client, header);
        }
        match facts {
            Some(facts) if !self.prepare(&facts) => return PgMessageOutcome::Wait,
            Some(_) => {}
            None => self.prepare_idle(),
        }
        let found = self.statement(name);
        if self.is_nothing(name, found.is_some()) {
            self.refuse_request("26000", NO_UNNAMED);
            return pass_over(self.client, header);
        }
        let server_name_bytes = match &found {
            Some((statement, true)) => statement.server_name().len(),
            Some((_, false)) => 0,
            None => name.len(),
        };
        let body_bytes = header.body() - name.len() + server_name_bytes;
        put_header(self.out.to_server, frontend::BIND, body_bytes);
        self.out.to_server.extend_from_slice(portal);
        self.out.to_server.push(0);
        self.put_statement_name(found.as_ref(), name);
        self.out.to_server.extend_from_slice(values);
        self.client.body = PgPartialMessage { left: header.total - part.len(), pass: true };
        let note = match &found {
            Some((statement, _)) => {
                self.server.batch_waits |= statement.facts.is_barrier;
                self.runs(&statement.facts);
                self.server.portal_rewrite = statement.rewrite.clone();
                let facts = Some(statement.facts.with_values(values));
                PgRequestPurpose::Bind { id: Some(statement.id), facts }
            }
            None => {
                self.server.batch_waits = true;
                self.runs(&PgStatementFacts::EXECUTION);
                self.server.portal_rewrite = None;
                PgRequestPurpose::Bind { id: None, facts: Some(PgStatementFacts::EXECUTION) }
            }
        };
        self.server.sent(ExchangeRequest::Bind, ReplyAudience::Client, note);
        PgMessageOutcome::Bytes(part.len())
    }

    /// Returns why a read-only client gets no such portal. One that ends the transaction has to be
    /// the last of its batch, and unnamed, so that it is not run in another transaction.
    fn refuses_portal(
        &mut self,
        portal: &[u8],
        facts: Option<&PgStatementFacts>,
    ) -> Option<Refusal> {
        if !self.client.read_only {
            return None;
        }
        if self.server.batch_ends == BatchEnds::Run {
            return Some(AFTER_END);
        }
        let ends = facts.is_some_and(PgStatementFacts::ends_transaction);
        if ends && !portal.is_empty() {
            let message = "the tenant is read-only: a portal that may end the transaction has no \
                           name";
            return Some(("25006", message.into()));
        }
        self.server.batch_ends = if ends { BatchEnds::Bound } else { BatchEnds::No };
        None
    }

    /// Handles `Describe`, `Close` and `Execute`, which contain little more than names.
    pub(super) fn small(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        if header.total > NAME_BYTES_MAX {
            return unknown(header, self.out);
        }
        let Some(body) = rest.get(HEADER_BYTES..header.total) else {
            return PgMessageOutcome::More(header.total);
        };
        self.prepare_idle();
        match (header.tag, body.split_first()) {
            (frontend::EXECUTE, _) => self.execute(header, rest),
            (frontend::DESCRIBE | frontend::CLOSE, Some((b'S', [name @ .., 0])))
                if self.is_uncertain(name) =>
            {
                PgMessageOutcome::Wait
            }
            (frontend::DESCRIBE, Some((b'S', [name @ .., 0]))) => {
                let found = self.statement(name);
                if self.is_nothing(name, found.is_some()) {
                    self.refuse_request("26000", NO_UNNAMED);
                    return PgMessageOutcome::Bytes(header.total);
                }
                let bytes = match &found {
                    Some((statement, true)) => statement.server_name().len(),
                    Some((_, false)) => 0,
                    None => name.len(),
                };
                put_header(self.out.to_server, frontend::DESCRIBE, bytes + 2);
                self.out.to_server.push(b'S');
                self.put_statement_name(found.as_ref(), name);
                let note = found.map_or(PgRequestPurpose::Plain, |(found, _)| {
                    PgRequestPurpose::Describe { id: found.id }
                });
                self.server.sent(ExchangeRequest::DescribeStatement, ReplyAudience::Client, note);
                PgMessageOutcome::Bytes(header.total)
            }
            (frontend::DESCRIBE, Some((b'P', _))) => {
                self.server.sent(
                    ExchangeRequest::DescribePortal,
                    ReplyAudience::Client,
                    PgRequestPurpose::Plain,
                );
                self.pass(header, rest)
            }
            (frontend::CLOSE, Some((b'S', [name @ .., 0]))) => {
                self.close_statement(name, header, rest)
            }
            (frontend::CLOSE, Some((b'P', _))) => {
                self.server.sent(
                    ExchangeRequest::Close,
                    ReplyAudience::Client,
                    PgRequestPurpose::Plain,
                );
                self.pass(header, rest)
            }
            _ => unknown(header, self.out),
        }
    }

    fn execute(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let rewrite = self.server.portal_rewrite.take();
        let note = match &rewrite {
            Some(rewrite) => RewrittenRequest::note(None, Arc::clone(rewrite)),
            None => PgRequestPurpose::Run,
        };
        if self.server.batch_ends == BatchEnds::Bound {
            self.server.batch_ends = BatchEnds::Run;
        }
        self.server.sent(ExchangeRequest::Execute, ReplyAudience::Client, note);
        let taken = self.pass(header, rest);
        if let Some(text) = rewrite.as_ref().and_then(|it| it.restores.as_deref()) {
            self.restore(text);
        }
        if self.server.batch_waits {
            // The next message may be data or a request; until that is known, nothing is sent. The
            // server does not send a plain result unless requested.
            put_header(self.out.to_server, frontend::FLUSH, 0);
            self.client.barrier = true;
        }
        taken
    }

    /// Closes the client's name; the statement stays for others.
    fn close_statement(&mut self, name: &[u8], header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let undo = if name.is_empty() {
            self.server.statements.unnamed = None;
            self.server.unseen_unnamed = false;
            self.client.statements.put_unnamed(None)
        } else {
            let id = NameId::of(&self.shared.key, name);
            if self.client.statements.named(id).is_none() && !name.starts_with(SERVER_NAME_PREFIX) {
                // It may be one of SQL's `PREPARE`, which only the server knows.
                self.server.sent(
                    ExchangeRequest::Close,
                    ReplyAudience::Client,
                    PgRequestPurpose::Plain,
                );
                return self.pass(header, rest);
            }
            self.client.statements.put(id, None)
        };
        self.say(PgRequestPurpose::Closed { undo: Some(undo) });
        PgMessageOutcome::Bytes(header.total)
    }
}
