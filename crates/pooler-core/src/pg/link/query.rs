//! Texts on their way to the server: which are refused, and which are rewritten.

use std::borrow::Cow;
use std::sync::Arc;

use api::PoolMode;
use wire::pg::exchange::{ExchangeRequest, ReplyAudience};
use wire::pg::frame::{
    HEADER_BYTES, PgHeader, TransactionStatus, frontend, put_header, split_string,
};
use wire::pg::sql::{
    ListenAction, PgEffects, PgNameAction, StatementVerb, rewrite_listen, rewrite_name,
};

use super::STATEMENT_BYTES_SCANNED_MAX;
use super::front::{PgLink, PgMessageOutcome, pass_over, shares};
use super::restore::TextProtocol;
use crate::link::{not_for_readers, not_for_sandboxes};
use crate::pg::server::{PgRequestPurpose, RewrittenRequest, TextRewrite};
use crate::pg::statements::NameId;
use crate::pg::texts::PgStatementFacts;

/// Why a text is refused: the code of the error, and its message.
pub(super) type Refusal = (&'static str, Cow<'static, str>);

/// Command about channels.
pub(super) enum ChannelCommand {
    /// Forwarded unchanged.
    AsIs,
    /// The relay's listener has to subscribe to channels first.
    NeedListener,
    Refused(Refusal),
    /// Rewritten to this text, with its original actions.
    Rewritten(Vec<u8>, Vec<ListenAction>),
}

/// A function may have allowed the next transaction to write, which is checked between two
/// transactions: when the server is at rest.
pub(super) const AFTER_END: Refusal = (
    "25006",
    Cow::Borrowed(
        "the tenant is read-only: send statements after the end of a transaction in a new request",
    ),
);

impl PgLink<'_, '_> {
    /// Handles a text of the simple protocol.
    pub(super) fn query(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let seen = header.total <= STATEMENT_BYTES_SCANNED_MAX;
        let Some(body) = rest.get(HEADER_BYTES..header.total) else {
            return if seen {
                PgMessageOutcome::More(header.total)
            } else {
                self.query_unseen(header, rest)
            };
        };
        if !seen {
            return self.query_unseen(header, rest);
        }
        let text = split_string(body).map_or(body, |(text, _)| text);
        let facts = self.shared.texts.facts(text);
        if let Some(refusal) = self.refusal(&facts) {
            return self.refuse_query(header, refusal);
        }
        let mut rewrite = None;
        let (text, facts) = match self.restored(text, &facts, TextProtocol::Simple) {
            Some(restored) => {
                rewrite = Some(restored.rewrite);
                (Cow::Owned(restored.text), restored.facts)
            }
            None => (Cow::Borrowed(text), facts),
        };
        if self.is_about_channels(&facts) {
            match self.channels(&text) {
                // It is handled like all others.
                ChannelCommand::AsIs => {}
                ChannelCommand::NeedListener => return PgMessageOutcome::NeedListener,
                ChannelCommand::Refused(refusal) => return self.refuse_query(header, refusal),
                ChannelCommand::Rewritten(text, actions) => {
                    if !self.prepare(&facts) {
                        return PgMessageOutcome::Wait;
                    }
                    self.client.barrier = facts.is_barrier;
                    self.runs(&facts);
                    let facts = Some(facts.without(PgEffects::LISTEN));
                    let rewrite = TextRewrite { actions, ..rewrite.unwrap_or_default() };
                    let note = RewrittenRequest::note(facts, Arc::new(rewrite));
                    return self.send_text(header, &text, note);
                }
            }
        }
        if !self.prepare(&facts) {
            return PgMessageOutcome::Wait;
        }
        self.client.barrier = facts.is_barrier;
        self.runs(&facts);
        if let Some((text, facts)) = self.renamed(&text, &facts, ReplyAudience::Nobody) {
            let note = match rewrite {
                Some(rewrite) => RewrittenRequest::note(Some(facts), Arc::new(rewrite)),
                None => PgRequestPurpose::Text(Some(facts)),
            };
            return self.send_text(header, &text, note);
        }
        match rewrite {
            Some(rewrite) => {
                let note = RewrittenRequest::note(Some(facts), Arc::new(rewrite));
                self.send_text(header, &text, note)
            }
            None => self.send_query(header, rest, PgRequestPurpose::Text(Some(facts))),
        }
    }

    /// Handles a text that is too long to be parsed.
    fn query_unseen(&mut self, header: PgHeader, rest: &[u8]) -> PgMessageOutcome {
        let facts = PgStatementFacts::UNKNOWN;
        if let Some(refusal) = self.refusal(&facts) {
            return self.refuse_query(header, refusal);
        }
        if !self.prepare(&facts) {
            return PgMessageOutcome::Wait;
        }
        self.client.barrier = facts.is_barrier;
        self.runs(&facts);
        self.send_query(header, rest, PgRequestPurpose::Text(Some(facts)))
    }

    fn send_query(
        &mut self,
        header: PgHeader,
        rest: &[u8],
        note: PgRequestPurpose,
    ) -> PgMessageOutcome {
        self.sent_query(note);
        self.pass(header, rest)
    }

    /// Sends another text instead of the message's.
    fn send_text(
        &mut self,
        header: PgHeader,
        text: &[u8],
        note: PgRequestPurpose,
    ) -> PgMessageOutcome {
        self.sent_query(note);
        put_header(self.out.to_server, frontend::QUERY, text.len() + 1);
        self.out.to_server.extend_from_slice(text);
        self.out.to_server.push(0);
        PgMessageOutcome::Bytes(header.total)
    }

    fn sent_query(&mut self, note: PgRequestPurpose) {
        // A text of the simple protocol replaces the unnamed statement.
        self.client.statements.unnamed = None;
        self.server.statements.unnamed = None;
        self.server.unseen_unnamed = false;
        self.server.sent(ExchangeRequest::Query, ReplyAudience::Client, note);
    }

    /// Prepares the session before a client's text is sent. False: replies must arrive first, and
    /// nothing was sent.
    #[must_use]
    pub(super) fn prepare(&mut self, facts: &PgStatementFacts) -> bool {
        let reads = facts.effects.intersects(PgEffects::SEQUENCE_READ);
        let asked = self.server.exchange.has_client_entries();
        if reads && asked && !self.server.unsynced && self.must_hide_sequences() {
            return false;
        }
        self.prepare_idle();
        self.client.reads_sequences |= reads;
        // Within the transaction it would be too late: the client's actions in it would be lost.
        // After a value of its own it would be too late as well: `nextval` may be the first of two
        // statements of which the second reads.
        let may_read = self.client.reads_sequences
            || facts.verb == StatementVerb::Begin
            || facts.effects.intersects(PgEffects::SEQUENCE_WRITE);
        if may_read && !asked && !self.server.unsynced {
            self.hide_sequences();
        }
        true
    }

    /// Returns whether the values of sequences are another client's, and can be cleared.
    fn must_hide_sequences(&self) -> bool {
        let server = &*self.server;
        server.foreign_sequences && server.exchange.status() == TransactionStatus::Idle
    }

    /// Clears the sequence values of other clients' sessions; the client's own follow later.
    fn hide_sequences(&mut self) {
        if self.must_hide_sequences() {
            let server = &mut *self.server;
            server.query(&[b"DISCARD SEQUENCES"], PgRequestPurpose::Sequences, self.out.to_server);
            server.foreign_sequences = false;
        }
    }

    /// Records a text that is about to run.
    pub(super) fn runs(&mut self, facts: &PgStatementFacts) {
        self.server.settings_in_doubt |= facts.changes_settings();
        self.server.may_lift |=
            self.client.read_only && facts.effects.intersects(PgEffects::HIDDEN);
        self.server.own_search_path |= facts.changes_search_path();
        self.server.may_begin |= facts.may_begin();
    }

    /// Returns the refusal of a text that must not run.
    pub(super) fn refusal(&self, facts: &PgStatementFacts) -> Option<Refusal> {
        let effects = facts.effects;
        let begins = effects.intersects(PgEffects::TRANSACTION)
            && (facts.verb == StatementVerb::Begin || effects.intersects(PgEffects::MULTI));
        if self.client.mode == PoolMode::Statement && begins {
            let message = "transactions of several statements are not allowed in statement mode";
            return Some(("0A000", message.into()));
        }
        if let Some(what) = facts.prohibitions.for_sandboxes.filter(|_| self.client.is_sandbox) {
            return Some(("42501", not_for_sandboxes(what).into()));
        }
        if let Some(what) = facts.prohibitions.for_readers.filter(|_| self.client.read_only) {
            return Some(("25006", not_for_readers(what).into()));
        }
        // Code may allow following transactions to write.
        let several = effects.contains(PgEffects::MULTI.with(PgEffects::TRANSACTION));
        if self.client.read_only && several && effects.intersects(PgEffects::FUNCTION) {
            let message = "the tenant is read-only: a text of several transactions that calls \
                           functions is refused";
            return Some(("25006", message.into()));
        }
        if self.client.read_only && effects.intersects(PgEffects::AFTER_END) {
            return Some(AFTER_END);
        }
        let writes = PgEffects::READ_WRITE.with(PgEffects::UNPARSED).with(PgEffects::DO);
        if self.client.read_only && effects.intersects(writes) {
            let message = "the tenant is read-only: a text that may ask for more is refused";
            return Some(("25006", message.into()));
        }
        None
    }

    fn refuse_query(&mut self, header: PgHeader, (code, message): Refusal) -> PgMessageOutcome {
        self.prepare_idle();
        self.refuse_request(code, &message);
        self.server.sync(ReplyAudience::Client, self.out.to_server);
        pass_over(self.client, header)
    }

    /// Returns whether a text starts or ends listening at a shared server connection.
    pub(super) fn is_about_channels(&self, facts: &PgStatementFacts) -> bool {
        facts.effects.intersects(PgEffects::LISTEN | PgEffects::UNLISTEN)
            && shares(self.client.mode)
    }

    /// Rewrites a text about channels to one that does not affect the server connection.
    pub(super) fn channels(&mut self, text: &[u8]) -> ChannelCommand {
        let Some((text, actions)) = rewrite_listen(text) else { return ChannelCommand::AsIs };
        let listening = self.client.listening.get_or_insert_default();
        if listening.ask(&actions) {
            return if listening.is_full() {
                ChannelCommand::Refused((
                    "54000",
                    "a client may not listen to so many channels".into(),
                ))
            } else {
                ChannelCommand::NeedListener
            };
        }
        ChannelCommand::Rewritten(text, actions)
    }

    /// Returns a text of SQL's `EXECUTE` or `DEALLOCATE` with the server's name of the statement,
    /// if the client prepared it by the protocol.
    pub(super) fn renamed(
        &mut self,
        text: &[u8],
        facts: &PgStatementFacts,
        within: ReplyAudience,
    ) -> Option<(Vec<u8>, PgStatementFacts)> {
        let look = facts.look.clone()?;
        let [name] = look.names.as_slice() else { return None };
        if !matches!(name.act, PgNameAction::Execute | PgNameAction::Deallocate) {
            return None;
        }
        let id = NameId::of(&self.shared.key, name.name.as_bytes());
        let statement = self.client.statements.named(id)?.clone();
        if self.ensure(&statement) && within == ReplyAudience::Nobody {
            // The text is not a part of the batch that prepares the statement.
            self.server.sync(ReplyAudience::Nobody, self.out.to_server);
        }
        let renamed = rewrite_name(text, name.range.clone(), statement.server_name());
        if name.act == PgNameAction::Execute {
            return Some((renamed, statement.facts.clone()));
        }
        self.server.deallocating = Some((id, statement.id));
        Some((renamed, facts.without(PgEffects::DEALLOCATE)))
    }
}
