//! Assignments of `SET`: the only module that knows their forms.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/set-variable.html>

use super::effects::MysqlEffects;
use super::keywords::{self, Word, is_replayable_variable};
use super::lexer::{MysqlLexer, MysqlToken, MysqlTokenKind};
use super::verbs;

/// Target of an assignment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AssignmentTarget {
    /// `@x`
    User,
    /// A server variable.
    Variable {
        held: ValueScope,
        name: MysqlToken,
    },
    /// `NAMES`
    Names,
    /// `CHARACTER SET`, `CHARSET`
    CharacterSet,
    /// `[SESSION | GLOBAL] TRANSACTION`
    Transaction(ValueScope),
    /// `PASSWORD`
    Password,
    /// `ROLE`
    Role,
    /// `DEFAULT ROLE`
    DefaultRole,
    /// `STATEMENT`: assignments for one statement follow.
    Statement,
    Unknown,
}

/// Scope of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ValueScope {
    Session,
    Global,
    /// `@@x`: the session, except for the characteristics of transactions, which hold for the next
    /// one.
    Unsaid,
    /// Next transaction only.
    Next,
}

/// Meaning of an assignment for the scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedAssignment {
    pub effects: MysqlEffects,
    pub next: AfterTarget,
    /// True if following texts are parsed differently.
    pub reads_differently: bool,
}

/// Part that follows an assignment's target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AfterTarget {
    /// Value, and possibly another assignment.
    Value,
    /// Assignments for one statement.
    Statement,
    /// No assignments follow.
    Over,
}

/// Parses a target. `first` is its first token; `ahead` is after that token, and afterwards after
/// the whole target.
pub(super) fn parse(first: &MysqlToken, ahead: &mut MysqlLexer<'_>) -> AssignmentTarget {
    let text = ahead.text();
    match first.kind {
        MysqlTokenKind::User => AssignmentTarget::User,
        MysqlTokenKind::System => system(first, ahead),
        MysqlTokenKind::Name => plain(*first, ValueScope::Session, ahead),
        MysqlTokenKind::Word => {
            let before = ahead.clone();
            let word = keywords::word(first.text(text));
            let scope = match word {
                Word::Global | Word::Persist | Word::PersistOnly => Some(ValueScope::Global),
                Word::Session | Word::Local => Some(ValueScope::Session),
                _ => None,
            };
            if let Some(held) = scope {
                return scoped(held, ahead);
            }
            let target = match (word, verbs::peek(ahead)) {
                (Word::Character, Word::Set) => return AssignmentTarget::CharacterSet,
                (Word::Default, Word::Role) => return AssignmentTarget::DefaultRole,
                (Word::Resource, _) => AssignmentTarget::Unknown,
                _ if is_assigned(&before) => plain(*first, ValueScope::Session, &before),
                (Word::Names, _) => AssignmentTarget::Names,
                (Word::Charset, _) => AssignmentTarget::CharacterSet,
                (Word::Transaction, _) => AssignmentTarget::Transaction(ValueScope::Next),
                (Word::Password, _) => AssignmentTarget::Password,
                (Word::Role, _) => AssignmentTarget::Role,
                (Word::Statement, _) => AssignmentTarget::Statement,
                _ => AssignmentTarget::Unknown,
            };
            *ahead = before;
            match (word, target) {
                (Word::Password, AssignmentTarget::Variable { .. }) => AssignmentTarget::Password,
                _ => target,
            }
        }
        _ => AssignmentTarget::Unknown,
    }
}

/// Returns whether a value follows.
fn is_assigned(lexer: &MysqlLexer<'_>) -> bool {
    lexer.clone().next().is_some_and(|it| it.is_mark(b'=') || it.kind == MysqlTokenKind::Assign)
}

/// Parses `SESSION …` and `GLOBAL …`.
fn scoped(held: ValueScope, ahead: &mut MysqlLexer<'_>) -> AssignmentTarget {
    let Some(name) = ahead.next() else { return AssignmentTarget::Unknown };
    match name.kind {
        MysqlTokenKind::Word if keywords::word(name.text(ahead.text())) == Word::Transaction => {
            AssignmentTarget::Transaction(held)
        }
        _ => last_part(name, held, ahead),
    }
}

/// Parses `name`, or `cache.name` of a server variable: the last part is the variable's name.
fn last_part(
    mut name: MysqlToken,
    held: ValueScope,
    ahead: &mut MysqlLexer<'_>,
) -> AssignmentTarget {
    let mut dot = ahead.clone();
    if held == ValueScope::Global && dot.next().is_some_and(|it| it.is_mark(b'.')) {
        let Some(part) = dot.next() else { return AssignmentTarget::Unknown };
        name = part;
        *ahead = dot;
    }
    match name.kind {
        MysqlTokenKind::Word | MysqlTokenKind::Name => plain(name, held, ahead),
        _ => AssignmentTarget::Unknown,
    }
}

/// Parses a name that has to be followed by its value.
fn plain(name: MysqlToken, held: ValueScope, ahead: &MysqlLexer<'_>) -> AssignmentTarget {
    match is_assigned(ahead) {
        true => AssignmentTarget::Variable { held, name },
        false => AssignmentTarget::Unknown,
    }
}

/// Parses `@@name`, `@@scope.name`, `@@scope.cache.name`.
fn system(first: &MysqlToken, ahead: &mut MysqlLexer<'_>) -> AssignmentTarget {
    let text = ahead.text();
    let name = MysqlToken { start: first.start + 2, ..*first };
    let mut dot = ahead.clone();
    if dot.next().is_none_or(|it| !it.is_mark(b'.')) {
        return plain(name, ValueScope::Unsaid, ahead);
    }
    *ahead = dot;
    let held = match keywords::word(name.text(text)) {
        Word::Session | Word::Local => ValueScope::Session,
        // Any other word is the name of a key cache, or a scope of the server.
        _ => ValueScope::Global,
    };
    let Some(name) = ahead.next() else { return AssignmentTarget::Unknown };
    last_part(name, held, ahead)
}

/// A value as far as it can be evaluated without the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ScannedValue {
    /// A string, number or bare word, and whether it has a minus sign.
    Constant {
        negative: bool,
        token: MysqlToken,
    },
    Default,
    Expression,
}

impl ScannedValue {
    /// Returns whether it is a constant that enables a variable.
    fn is_true(self, text: &[u8]) -> bool {
        let ScannedValue::Constant { negative: false, token } = self else { return false };
        let constant = token.text(text);
        let inner = match constant {
            [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
            _ => constant,
        };
        [&b"1"[..], b"on", b"true"].iter().any(|it| inner.eq_ignore_ascii_case(it))
    }
}

/// Parses a value after the name of its variable. Afterwards `ahead` is after a constant, or
/// anywhere within another expression.
pub(super) fn value(ahead: &mut MysqlLexer<'_>) -> ScannedValue {
    let text = ahead.text();
    ahead.next();
    let mut first = ahead.next();
    let negative = first.is_some_and(|it| it.is_mark(b'-'));
    if first.is_some_and(|it| it.is_mark(b'-') || it.is_mark(b'+')) {
        first = ahead.next().filter(|it| it.kind == MysqlTokenKind::Number);
    }
    let Some(token) = first else { return ScannedValue::Expression };
    let ends = match ahead.clone().next() {
        None => true,
        Some(next) => {
            let is_for =
                next.kind == MysqlTokenKind::Word && keywords::word(next.text(text)) == Word::For;
            next.is_mark(b',') || next.is_mark(b';') || is_for
        }
    };
    match token.kind {
        _ if !ends => ScannedValue::Expression,
        MysqlTokenKind::Word if keywords::word(token.text(text)) == Word::Default => {
            ScannedValue::Default
        }
        MysqlTokenKind::Word
        | MysqlTokenKind::Name
        | MysqlTokenKind::Text
        | MysqlTokenKind::Number => ScannedValue::Constant { negative, token },
        MysqlTokenKind::Binary
        | MysqlTokenKind::User
        | MysqlTokenKind::System
        | MysqlTokenKind::Assign
        | MysqlTokenKind::Mark(_) => ScannedValue::Expression,
    }
}

/// Returns the meaning of an assignment; `first_of_all` if it directly follows `SET`.
pub(super) fn target(
    token: &MysqlToken,
    lexer: &MysqlLexer<'_>,
    first_of_all: bool,
) -> ScannedAssignment {
    let mut ahead = lexer.clone();
    let over =
        |effects| ScannedAssignment { effects, next: AfterTarget::Over, reads_differently: false };
    let plain =
        |effects| ScannedAssignment { effects, next: AfterTarget::Value, reads_differently: false };
    match parse(token, &mut ahead) {
        AssignmentTarget::User => plain(MysqlEffects::USER_VARIABLE_WRITE),
        AssignmentTarget::Variable { held, name } => variable(held, &name, &mut ahead),
        AssignmentTarget::Names => ScannedAssignment {
            effects: MysqlEffects::NAMES | MysqlEffects::SET,
            next: AfterTarget::Value,
            reads_differently: true,
        },
        AssignmentTarget::CharacterSet => ScannedAssignment {
            // The connection gets the character set of the database.
            effects: MysqlEffects::NAMES | MysqlEffects::SET | MysqlEffects::SET_EXPRESSION,
            next: AfterTarget::Value,
            reads_differently: true,
        },
        AssignmentTarget::Transaction(ValueScope::Global) => over(MysqlEffects::GLOBAL),
        AssignmentTarget::Transaction(ValueScope::Session) => over(MysqlEffects::SET),
        AssignmentTarget::Transaction(ValueScope::Next | ValueScope::Unsaid) => {
            over(MysqlEffects::NEXT_TRANSACTION)
        }
        AssignmentTarget::Password => plain(MysqlEffects::GLOBAL | MysqlEffects::WRITES),
        AssignmentTarget::Role => plain(MysqlEffects::ROLE),
        AssignmentTarget::DefaultRole => over(MysqlEffects::GLOBAL | MysqlEffects::DDL),
        AssignmentTarget::Statement if first_of_all => ScannedAssignment {
            effects: MysqlEffects::NONE,
            next: AfterTarget::Statement,
            reads_differently: false,
        },
        AssignmentTarget::Statement | AssignmentTarget::Unknown => plain(MysqlEffects::SET_UNKNOWN),
    }
}

/// Maximum length of a variable's name that is compared.
const NAME_BYTES_MAX: usize = 64;

fn variable(held: ValueScope, name: &MysqlToken, ahead: &mut MysqlLexer<'_>) -> ScannedAssignment {
    let text = ahead.text();
    let mut bytes = [0; NAME_BYTES_MAX];
    let name = lower(unquoted(name.text(text)), &mut bytes);
    let read = value(ahead);
    let mut effects = match held {
        ValueScope::Global => {
            let effects = MysqlEffects::GLOBAL;
            return ScannedAssignment {
                effects,
                next: AfterTarget::Value,
                reads_differently: false,
            };
        }
        ValueScope::Unsaid if is_of_transaction(name) => MysqlEffects::NEXT_TRANSACTION,
        ValueScope::Unsaid => MysqlEffects::SET | MysqlEffects::SET_UNTOLD,
        ValueScope::Session | ValueScope::Next => MysqlEffects::SET,
    };
    if name.is_empty() {
        effects |= MysqlEffects::SET_UNKNOWN;
    }
    if read == ScannedValue::Expression {
        effects |= MysqlEffects::SET_EXPRESSION;
    }
    if !is_replayable_variable(name) {
        effects |= MysqlEffects::SET_FIXED;
    }
    match name {
        b"autocommit" => effects |= MysqlEffects::AUTOCOMMIT,
        b"transaction_read_only" | b"tx_read_only" if !read.is_true(text) => {
            effects |= MysqlEffects::READ_WRITE;
        }
        _ => {}
    }
    let reads_differently = matches!(name, b"sql_mode" | b"character_set_client");
    ScannedAssignment { effects, next: AfterTarget::Value, reads_differently }
}

/// Returns whether a variable holds for the next transaction if it has no scope.
pub(super) fn is_of_transaction(lower: &[u8]) -> bool {
    matches!(
        lower,
        b"transaction_isolation" | b"tx_isolation" | b"transaction_read_only" | b"tx_read_only"
    )
}

/// Returns the effects of reading `@@name`.
pub(super) fn reads(name: &[u8]) -> MysqlEffects {
    let name = unquoted(name);
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    if is(b"last_insert_id") || is(b"identity") {
        MysqlEffects::LAST_INSERT_ID
    } else if is(b"warning_count") || is(b"error_count") {
        MysqlEffects::SHOW_WARNINGS
    } else if is(b"pseudo_thread_id") {
        MysqlEffects::CONNECTION_ID
    } else {
        MysqlEffects::NONE
    }
}

/// Returns a name without its quotes, if it has any. Doubled quotes inside stay doubled.
pub(super) fn unquoted(name: &[u8]) -> &[u8] {
    match name {
        [b'`', inner @ .., b'`'] | [b'"', inner @ .., b'"'] => inner,
        _ => name,
    }
}

/// Returns `name` in lower case; empty if it is longer than a variable's name.
fn lower<'b>(name: &[u8], bytes: &'b mut [u8; NAME_BYTES_MAX]) -> &'b [u8] {
    let Some(bytes) = bytes.get_mut(..name.len()) else { return &[] };
    bytes.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    bytes
}
