//! Effects of an SQL text on the session that runs it: sufficient for a pooler, without a grammar.
//!
//! [`effects()`] is the quick analysis, which returns a set of bits; [`analyse`] adds the settings
//! and names that matter. Both accept untrusted text, in linear time and without recursion. They
//! are sound in one direction: the effects of a text may be overestimated, but never underestimated
//! as far as its words show them. Effects that words cannot show (triggers, views, functions of the
//! database) have the bit [`PgEffects::HIDDEN`] or [`PgEffects::FUNCTION`], and are found by
//! queries to the server.
//!
//! An unqualified name of a built-in function is taken for that function. PostgreSQL searches
//! `pg_catalog` first unless the client's `search_path` overrides that, which is why
//! [`PgEffects::with_own_search_path`] exists. If the database has a function of the same name with
//! better fitting argument types, its owner has created it, and the effects stay within that
//! owner's pools.
//!
//! # References
//! - <https://www.postgresql.org/docs/current/sql-commands.html>
//! - <https://www.postgresql.org/docs/current/sql-syntax-lexical.html>

mod details;
mod effects;
mod keywords;
mod lexer;
mod mentions;
mod prohibited;
mod quote;
mod rewrite;
mod scan;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::prohibitions::TextProhibitions;

pub use effects::PgEffects;
pub use mentions::custom_setting_name;
pub use quote::{
    SETTING_NAME_BYTES_MAX, is_setting_name, list_items, quote_identifier, quote_literal,
};
pub use rewrite::{ListenAction, SubscriptionChange, rewrite_listen, rewrite_name};

/// Returns the possible lasting effects of `text`. Allocates nothing.
#[must_use]
pub fn effects(text: &[u8]) -> PgEffects {
    scan::scan(text).effects
}

/// Analysis of a text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TextAnalysis {
    /// Effects that the text may leave behind. With `SET` and without `UNPARSED`, `changes` is
    /// complete.
    pub effects: PgEffects,
    /// Equal for texts that differ in constants, comments and spaces only. Not a secure hash.
    pub fingerprint: u64,
    /// Number of statements in the text; empty ones do not count.
    pub statements: usize,
    /// Kind of statement by the first word.
    pub verb: StatementVerb,
    /// Changes of the session's settings, in order.
    pub changes: Vec<PgSettingChange>,
    /// Names in statements, in order.
    pub names: Vec<PgNameUse>,
    /// Settings to which `set_config` or `SET` assigns values that only the server knows. `None`
    /// if not all names are known, or if there is no such setting.
    pub unresolved: Option<Vec<String>>,
    /// Custom settings whose names strings may pass to code that is not in the text.
    pub mentions: Vec<String>,
    /// Parts of the text that read-only clients and sandboxes may not use.
    pub prohibitions: TextProhibitions,
    /// Positions at which a setting is set to the session's initial value, in order.
    pub defaults: Vec<DefaultSite>,
}

/// A position in a text at which settings are set to the session's initial values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DefaultSite {
    /// Form of the statement.
    pub form: DefaultForm,
    /// Number of the statement in its text, from 0.
    pub statement: usize,
    /// The setting, in lower case; empty for all settings.
    pub name: String,
    /// Range of the statement without its semicolon, or of the argument.
    pub range: Range<usize>,
}

/// A way to request the session's initial value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultForm {
    /// `RESET name`
    Reset,
    /// `RESET ALL`
    ResetAll,
    /// `SET [SESSION] name TO DEFAULT`
    Set,
    /// `SET LOCAL name TO DEFAULT`
    SetLocal,
    /// `NULL`, as the value argument of `set_config`.
    Null,
}

/// Kind of the first statement of a text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StatementVerb {
    /// `BEGIN`, `START TRANSACTION`.
    Begin,
    /// `COMMIT`, `END`; also `COMMIT PREPARED`.
    Commit,
    /// `ROLLBACK`, `ABORT`; also `ROLLBACK TO` and `ROLLBACK PREPARED`.
    Rollback,
    /// `SAVEPOINT`, `RELEASE`.
    Savepoint,
    /// `SET`, `RESET`.
    Set,
    /// `SHOW`.
    Show,
    /// `LISTEN`, `UNLISTEN`.
    Listen,
    /// `PREPARE`, `EXECUTE`, `DEALLOCATE`.
    Statement,
    /// `DISCARD`.
    Discard,
    /// `COPY`.
    Copy,
    /// Any other statement, or none.
    #[default]
    Other,
}

/// A change of a setting that outlasts the transaction, if that commits.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum PgSettingChange {
    /// The setting is assigned. The value has the form that `set_config` accepts: a list of names
    /// (`search_path`) is one text, so it must not be replayed as `SET name = 'value'`.
    Value {
        /// Name in lower case; [`is_setting_name`] accepts it.
        name: String,
        /// Value as the client wrote it.
        value: String,
    },
    /// The setting gets the session's initial value.
    Default {
        /// Name in lower case.
        name: String,
    },
    /// All settings except for the role get their initial values.
    DefaultAll,
}

impl PgSettingChange {
    /// Returns the name of the setting; `None` for all settings.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            PgSettingChange::Value { name, .. } | PgSettingChange::Default { name } => Some(name),
            PgSettingChange::DefaultAll => None,
        }
    }
}

/// Use of a name by a statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PgNameUse {
    /// Action on the name.
    pub act: PgNameAction,
    /// Number of the statement in its text, from 0.
    pub statement: usize,
    /// The name without quotes, folded and truncated as in the server; empty if there is none.
    pub name: String,
    /// Position of the name in the text, with its quotes.
    pub range: Range<usize>,
    /// Position of the keyword of the action.
    pub keyword: Range<usize>,
}

/// Action on a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PgNameAction {
    /// `PREPARE name`
    Prepare,
    /// `EXECUTE name`
    Execute,
    /// `DEALLOCATE name`
    Deallocate,
    /// `DEALLOCATE ALL`
    DeallocateAll,
    /// `DISCARD ALL`
    DiscardAll,
    /// `LISTEN name`
    Listen,
    /// `UNLISTEN name`
    Unlisten,
    /// `UNLISTEN *`
    UnlistenAll,
}

/// Parses a text once, and a second time if it has settings or names. Allocates only then.
#[must_use]
pub fn analyse(text: &[u8]) -> TextAnalysis {
    let found = scan::scan(text);
    let mut analysis = TextAnalysis {
        effects: found.effects,
        fingerprint: found.fingerprint,
        statements: found.statements,
        verb: verb(text),
        prohibitions: found.prohibitions,
        ..TextAnalysis::default()
    };
    if found.effects.intersects(FOREIGN) {
        analysis.mentions = mentions::mentions(text);
        if keywords::mentions_lasting(text) {
            analysis.effects |= PgEffects::LASTING;
        }
    }
    if !found.effects.intersects(details::WITH_DETAILS) {
        return analysis;
    }
    let details = details::details(text);
    if details.lost {
        analysis.effects |= PgEffects::UNPARSED;
    }
    if details.set_unread {
        analysis.effects |= PgEffects::SET_CONFIG;
    }
    if analysis.effects.intersects(PgEffects::SET_CONFIG) {
        if details.set_config_understood && !details.lost {
            analysis.effects = analysis.effects.without(PgEffects::SET_CONFIG) | PgEffects::SET;
        } else if details.set_config_named && !details.lost {
            analysis.unresolved = Some(details.unresolved);
        }
    }
    if only_reads(&details.changes) && !analysis.effects.intersects(SAYS_MORE) {
        analysis.effects = analysis.effects.without(PgEffects::READ_WRITE);
    }
    analysis.changes = details.changes;
    analysis.names = details.names;
    analysis.defaults = details.defaults;
    analysis
}

/// Effects of code that is not in the text.
const FOREIGN: PgEffects =
    PgEffects::DO.with(PgEffects::CALL).with(PgEffects::FUNCTION).with(PgEffects::UNPARSED);

/// With one of these a text may permit writing in other ways than by changes of settings.
const SAYS_MORE: PgEffects = PgEffects::UNPARSED
    .with(PgEffects::SET_CONFIG)
    .with(PgEffects::SET_LOCAL)
    .with(PgEffects::TRANSACTION)
    .with(PgEffects::MULTI);

/// Returns whether the changes include the setting that forbids writing, and forbid it.
fn only_reads(changes: &[PgSettingChange]) -> bool {
    let name = "default_transaction_read_only";
    let mut changes = changes.iter().filter(|it| it.name() == Some(name)).peekable();
    let on = |change: &PgSettingChange| match change {
        PgSettingChange::Value { value, .. } => {
            matches!(value.to_ascii_lowercase().as_str(), "on" | "true" | "yes" | "1")
        }
        PgSettingChange::Default { .. } | PgSettingChange::DefaultAll => false,
    };
    changes.peek().is_some() && changes.all(on)
}

fn verb(text: &[u8]) -> StatementVerb {
    use keywords::Word;
    match scan::first(text) {
        Word::Begin | Word::Start => StatementVerb::Begin,
        Word::Commit | Word::End => StatementVerb::Commit,
        Word::Rollback | Word::Abort => StatementVerb::Rollback,
        Word::Savepoint | Word::Release => StatementVerb::Savepoint,
        Word::Set | Word::Reset => StatementVerb::Set,
        Word::Show => StatementVerb::Show,
        Word::Listen | Word::Unlisten => StatementVerb::Listen,
        Word::Prepare | Word::Execute | Word::Deallocate => StatementVerb::Statement,
        Word::Discard => StatementVerb::Discard,
        Word::Copy => StatementVerb::Copy,
        _ => StatementVerb::Other,
    }
}
