//! Effects of a text of SQL on the session that runs it: enough for a pooler, and no grammar.
//!
//! [`effects()`] is the quick answer, a set of bits; [`analyse`] adds the settings and names that
//! have to be understood. Both read text from strangers, in linear time and without recursion. They
//! are sound in one direction: a text may be said to do more than it does, and is not said to do
//! less than its words can tell. What words cannot tell (triggers, views, functions of the
//! database) has the bit [`PgEffects::HIDDEN`] or [`PgEffects::FUNCTION`], and is found by asking
//! the server.
//!
//! A plain name of a built-in function is taken for that function. PostgreSQL looks into
//! `pg_catalog` first unless the client's `search_path` says otherwise, which is why
//! [`PgEffects::with_own_search_path`] exists; that a database has a function of the same name
//! whose argument types fit better is the owner's doing, and stays within that owner's pools.
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

/// Returns what `text` may leave behind. Allocates nothing.
#[must_use]
pub fn effects(text: &[u8]) -> PgEffects {
    scan::scan(text).effects
}

/// Analysis of a text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TextAnalysis {
    /// Effects that the text may leave behind. `SET` without `UNPARSED` means that `changes` has
    /// all of it.
    pub effects: PgEffects,
    /// Equal for texts that differ in constants, comments and spaces only. Not a secure hash.
    pub fingerprint: u64,
    /// Number of statements it has; empty ones do not count.
    pub statements: usize,
    /// Kind of statement by the first word.
    pub verb: StatementVerb,
    /// Changes of settings for the session, in order.
    pub changes: Vec<PgSettingChange>,
    /// The names that statements give, in order.
    pub names: Vec<PgNameUse>,
    /// Settings that `set_config` is called for with values that only the server knows, or that
    /// `SET` gives such a value. `None` when not even all names are known, or there is none.
    pub unresolved: Option<Vec<String>>,
    /// Settings of no module that code which is not in the text may be told of in strings.
    pub mentions: Vec<String>,
    /// Parts of the text that readers and sandboxes may not use.
    pub prohibitions: TextProhibitions,
    /// Places where a setting gets the value that the session began with, in order.
    pub defaults: Vec<DefaultSite>,
}

/// A place in a text where settings get the values that the session began with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DefaultSite {
    /// Wording in the text.
    pub form: DefaultForm,
    /// Number of the statement in its text, from 0.
    pub statement: usize,
    /// The setting, in lower case; empty where all are meant.
    pub name: String,
    /// The statement without its semicolon, or the argument.
    pub range: Range<usize>,
}

/// A way to ask for the value that the session began with.
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
    /// `NULL`, as the value that `set_config` is called with.
    Null,
}

/// Kind of statement that a text begins with.
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

/// A change of a setting that lasts beyond the transaction, if that commits.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum PgSettingChange {
    /// The setting gets a value. It is written as `set_config` takes it: a list of names
    /// (`search_path`) is one text, so it must not be replayed as `SET name = 'value'`.
    Value {
        /// In lower case; [`is_setting_name`] holds.
        name: String,
        /// Value as the client wrote it.
        value: String,
    },
    /// The setting goes back to what it was when the session began.
    Default {
        /// In lower case.
        name: String,
    },
    /// All settings do, but for the role.
    DefaultAll,
}

impl PgSettingChange {
    /// The name of the setting, unless all are meant.
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
    /// The name without quotes, folded and cut as the server does; empty where there is none.
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

/// Reads a text once, and a second time when it has settings or names. Allocates only then.
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

/// Code that is not in the text.
const FOREIGN: PgEffects =
    PgEffects::DO.with(PgEffects::CALL).with(PgEffects::FUNCTION).with(PgEffects::UNPARSED);

/// With one of these a text may ask to write elsewhere than in its changes of settings.
const SAYS_MORE: PgEffects = PgEffects::UNPARSED
    .with(PgEffects::SET_CONFIG)
    .with(PgEffects::SET_LOCAL)
    .with(PgEffects::TRANSACTION)
    .with(PgEffects::MULTI);

/// Returns whether the changes have one of the setting that forbids to write, and it forbids.
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
