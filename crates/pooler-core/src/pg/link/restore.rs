//! Resets of settings to the values that a client started with.
//!
//! A server resets a setting to its own session's initial value, which is not the client's: `SET`
//! cannot change those. So a statement that resets a setting is rewritten, in its place in the
//! text, to one that sets it. Following statements in the same transaction thus see the right
//! value, and savepoints and rollbacks affect it like a reset. After a `RESET ALL` the settings are
//! set one by one. The client receives the command tags of its original statements.
//!
//! A reset in code that is not in the text cannot be rewritten: until the end of its transaction
//! the client sees the server's value.

use wire::pg::exchange::{ExchangeRequest, ReplyAudience};
use wire::pg::frame::{frontend, put_header};
use wire::pg::message;
use wire::pg::sql::{DefaultForm, DefaultSite, PgEffects, PgSettingChange, quote_literal};

use super::front::PgLink;
use crate::pg::server::{PgRequestPurpose, TagChange, TextRewrite};
use crate::pg::settings::{is_respelled, write_assignment, write_block, write_call};
use crate::pg::texts::PgStatementFacts;

/// Name of the statement and of the portal that run after a `RESET ALL`.
const RESTORE: &str = "cove: restore";

/// A text without resets.
#[derive(Debug)]
pub(super) struct RestoredText {
    pub(super) text: Vec<u8>,
    pub(super) facts: PgStatementFacts,
    pub(super) rewrite: TextRewrite,
}

/// Protocol by which a text is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TextProtocol {
    /// A `Query`, which may have several statements.
    Simple,
    /// A `Parse`, which has one.
    Extended,
}

impl PgLink<'_, '_> {
    /// Returns a text in which each reset of a setting that the client started with is rewritten to
    /// an assignment. `None` if there is none.
    pub(super) fn restored(
        &self,
        text: &[u8],
        facts: &PgStatementFacts,
        protocol: TextProtocol,
    ) -> Option<RestoredText> {
        let look = facts.look.as_ref()?;
        // In a text that cannot be parsed the boundaries of statements are uncertain.
        if look.defaults.is_empty() || facts.effects.intersects(PgEffects::UNPARSED) {
            return None;
        }
        let mut out = Vec::with_capacity(text.len() + 64);
        let mut rewrite = TextRewrite::default();
        let mut copied = 0;
        let mut added = 0;
        for site in &look.defaults {
            let before = out.len();
            out.extend_from_slice(text.get(copied..site.range.start)?);
            let statement = site.statement + added;
            if site.form != DefaultForm::ResetAll {
                if !self.write_default(site, &mut out) {
                    out.truncate(before);
                    continue;
                }
                let shown = match site.form {
                    DefaultForm::Reset => Some("RESET"),
                    DefaultForm::Set | DefaultForm::SetLocal if self.is_block(&site.name) => {
                        Some("SET")
                    }
                    _ => None,
                };
                if let Some(shown) = shown {
                    rewrite.tags.push(TagChange { statement, shown: Some(shown) });
                }
            } else if protocol == TextProtocol::Extended {
                out.extend_from_slice(text.get(site.range.clone())?);
                rewrite.restores = self.write_restore();
            } else {
                out.extend_from_slice(text.get(site.range.clone())?);
                for (name, value) in self.startup() {
                    out.push(b';');
                    if !write_default_value("SET", name, value, &mut out) {
                        let _semicolon = out.pop();
                        continue;
                    }
                    added += 1;
                    let statement = site.statement + added;
                    rewrite.tags.push(TagChange { statement, shown: None });
                }
            }
            copied = site.range.end;
        }
        out.extend_from_slice(text.get(copied..)?);
        if out == text && rewrite.restores.is_none() {
            return None;
        }
        let changes = look.changes.iter().flat_map(|change| self.restoring(change)).collect();
        let blocks = look.defaults.iter().any(|site| match site.form {
            DefaultForm::ResetAll => self.startup().any(|(name, value)| is_respelled(name, value)),
            _ => self.is_block(&site.name),
        });
        let facts = facts.restoring(&out, changes, blocks);
        Some(RestoredText { text: out, facts, rewrite })
    }

    /// Returns settings that the client started with and the server connection did not.
    fn startup(&self) -> impl Iterator<Item = (&str, &str)> {
        let server = &self.server.startup;
        self.client.startup.iter().filter(|(name, value)| server.value(name) != Some(*value))
    }

    /// Writes the value of one setting instead of its default. False: the text stays unchanged.
    fn write_default(&self, site: &DefaultSite, out: &mut Vec<u8>) -> bool {
        let found = self.startup().find(|(name, _)| *name == site.name);
        let Some((name, value)) = found else { return false };
        match site.form {
            DefaultForm::Reset | DefaultForm::Set => write_default_value("SET", name, value, out),
            DefaultForm::SetLocal => write_default_value("SET LOCAL", name, value, out),
            DefaultForm::Null => {
                quote_literal(out, value);
                true
            }
            DefaultForm::ResetAll => false,
        }
    }

    /// Returns whether the client's own value of a setting is assigned by a block of code.
    fn is_block(&self, name: &str) -> bool {
        self.startup().any(|(known, value)| known == name && is_respelled(name, value))
    }

    /// Returns the text that restores all start settings of the client.
    fn write_restore(&self) -> Option<Box<[u8]>> {
        let mut out = Vec::new();
        for (name, value) in self.startup() {
            out.extend_from_slice(if out.is_empty() { b"SELECT " } else { b"," });
            write_call(name, value, &mut out);
        }
        (!out.is_empty()).then(|| out.into_boxed_slice())
    }

    /// Translates a change of settings to one whose defaults are the client's own.
    fn restoring(&self, change: &PgSettingChange) -> Vec<PgSettingChange> {
        let set = |(name, value): (&str, &str)| PgSettingChange::Value {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        match change {
            PgSettingChange::Value { .. } => vec![change.clone()],
            PgSettingChange::Default { name } => {
                let found = self.startup().find(|it| it.0 == name);
                vec![found.map_or_else(|| change.clone(), set)]
            }
            PgSettingChange::DefaultAll => {
                [change.clone()].into_iter().chain(self.startup().map(set)).collect()
            }
        }
    }

    /// Runs the assignments that follow a portal that resets all settings, within its batch. If the
    /// portal fails, the server skips them.
    pub(super) fn restore(&mut self, text: &[u8]) {
        let out = &mut *self.out.to_server;
        // An earlier failed batch may have left one.
        message::frontend::close_statement(out, RESTORE);
        self.server.sent(ExchangeRequest::Close, ReplyAudience::Nobody, PgRequestPurpose::Restore);
        put_header(out, frontend::PARSE, RESTORE.len() + 1 + text.len() + 1 + 2);
        out.extend_from_slice(RESTORE.as_bytes());
        out.push(0);
        out.extend_from_slice(text);
        out.extend_from_slice(&[0; 3]);
        self.server.sent(ExchangeRequest::Parse, ReplyAudience::Nobody, PgRequestPurpose::Restore);
        // The portal is named as well: the unnamed one is the client's.
        put_header(out, frontend::BIND, 2 * (RESTORE.len() + 1) + 6);
        for _ in 0..2 {
            out.extend_from_slice(RESTORE.as_bytes());
            out.push(0);
        }
        out.extend_from_slice(&[0; 6]);
        self.server.sent(ExchangeRequest::Bind, ReplyAudience::Nobody, PgRequestPurpose::Restore);
        put_header(out, frontend::EXECUTE, RESTORE.len() + 1 + 4);
        out.extend_from_slice(RESTORE.as_bytes());
        out.extend_from_slice(&[0; 5]);
        self.server.sent(
            ExchangeRequest::Execute,
            ReplyAudience::Nobody,
            PgRequestPurpose::Restore,
        );
        // Its portals are closed with it.
        message::frontend::close_statement(out, RESTORE);
        self.server.sent(ExchangeRequest::Close, ReplyAudience::Nobody, PgRequestPurpose::Restore);
    }
}

/// Appends the assignment of a setting's exact value. False: it cannot be written.
fn write_default_value(verb: &str, name: &str, value: &str, out: &mut Vec<u8>) -> bool {
    if is_respelled(name, value) {
        write_block(name, value, verb == "SET LOCAL", out);
        return true;
    }
    write_assignment(verb, name, value, out)
}
