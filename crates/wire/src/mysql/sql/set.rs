//! What `SET` is about to set: the one place that knows the forms of an assignment.

use super::effects::Effects;
use super::lexer::{Kind, Lexer, Token};
use super::verbs;
use super::words::{self, Word, is_replayable_variable};

/// What an assignment sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Target {
    /// `@x`
    User,
    /// A variable of the server.
    Variable {
        held: Held,
        name: Token,
    },
    /// `NAMES`
    Names,
    /// `CHARACTER SET`, `CHARSET`
    CharacterSet,
    /// `[SESSION | GLOBAL] TRANSACTION`
    Transaction(Held),
    /// `PASSWORD`
    Password,
    /// `ROLE`
    Role,
    /// `DEFAULT ROLE`
    DefaultRole,
    /// `STATEMENT`: what follows are assignments for one statement.
    Statement,
    Unknown,
}

/// Where a value holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Held {
    Session,
    Global,
    /// `@@x`: the session, but for the characteristics of transactions, which hold for the next.
    Unsaid,
    /// Of transactions: the next.
    Next,
}

/// What an assignment means for the scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assignment {
    pub effects: Effects,
    pub next: Next,
    /// Whether texts behind it read differently.
    pub reads_differently: bool,
}

/// What follows an assignment's target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// Its value, and maybe another assignment.
    Value,
    /// Assignments for one statement.
    Statement,
    /// No assignment.
    Over,
}

/// Reads a target. `first` is its first token, `ahead` what follows, and then what follows all of
/// the target.
pub(super) fn parse(first: &Token, ahead: &mut Lexer<'_>) -> Target {
    let text = ahead.text();
    match first.kind {
        Kind::User => Target::User,
        Kind::System => system(first, ahead),
        Kind::Name => plain(*first, Held::Session, ahead),
        Kind::Word => {
            let before = ahead.clone();
            let word = words::word(first.text(text));
            let scope = match word {
                Word::Global | Word::Persist | Word::PersistOnly => Some(Held::Global),
                Word::Session | Word::Local => Some(Held::Session),
                _ => None,
            };
            if let Some(held) = scope {
                return scoped(held, ahead);
            }
            let target = match (word, verbs::peek(ahead)) {
                (Word::Character, Word::Set) => return Target::CharacterSet,
                (Word::Default, Word::Role) => return Target::DefaultRole,
                (Word::Resource, _) => Target::Unknown,
                _ if is_given(&before) => plain(*first, Held::Session, &before),
                (Word::Names, _) => Target::Names,
                (Word::Charset, _) => Target::CharacterSet,
                (Word::Transaction, _) => Target::Transaction(Held::Next),
                (Word::Password, _) => Target::Password,
                (Word::Role, _) => Target::Role,
                (Word::Statement, _) => Target::Statement,
                _ => Target::Unknown,
            };
            *ahead = before;
            match (word, target) {
                (Word::Password, Target::Variable { .. }) => Target::Password,
                _ => target,
            }
        }
        _ => Target::Unknown,
    }
}

/// Whether a value follows.
fn is_given(lexer: &Lexer<'_>) -> bool {
    lexer.clone().next().is_some_and(|it| it.is_mark(b'=') || it.kind == Kind::Assign)
}

/// `SESSION …`, `GLOBAL …`
fn scoped(held: Held, ahead: &mut Lexer<'_>) -> Target {
    let Some(name) = ahead.next() else { return Target::Unknown };
    match name.kind {
        Kind::Word if words::word(name.text(ahead.text())) == Word::Transaction => {
            Target::Transaction(held)
        }
        _ => last_part(name, held, ahead),
    }
}

/// `name`, or `cache.name` of a variable of the server: the last part is the variable's name.
fn last_part(mut name: Token, held: Held, ahead: &mut Lexer<'_>) -> Target {
    let mut dot = ahead.clone();
    if held == Held::Global && dot.next().is_some_and(|it| it.is_mark(b'.')) {
        let Some(part) = dot.next() else { return Target::Unknown };
        name = part;
        *ahead = dot;
    }
    match name.kind {
        Kind::Word | Kind::Name => plain(name, held, ahead),
        _ => Target::Unknown,
    }
}

/// A name that has to be followed by its value.
fn plain(name: Token, held: Held, ahead: &Lexer<'_>) -> Target {
    match is_given(ahead) {
        true => Target::Variable { held, name },
        false => Target::Unknown,
    }
}

/// `@@name`, `@@scope.name`, `@@scope.cache.name`
fn system(first: &Token, ahead: &mut Lexer<'_>) -> Target {
    let text = ahead.text();
    let name = Token { start: first.start + 2, ..*first };
    let mut dot = ahead.clone();
    if dot.next().is_none_or(|it| !it.is_mark(b'.')) {
        return plain(name, Held::Unsaid, ahead);
    }
    *ahead = dot;
    let held = match words::word(name.text(text)) {
        Word::Session | Word::Local => Held::Session,
        // Whatever else stands there is the name of a key cache, or a scope of the server.
        _ => Held::Global,
    };
    let Some(name) = ahead.next() else { return Target::Unknown };
    last_part(name, held, ahead)
}

/// A value as far as it can be read without the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value {
    /// One string, number or bare word, and whether a minus sign stands before it.
    Constant {
        negative: bool,
        token: Token,
    },
    Default,
    Expression,
}

impl Value {
    /// Whether it is a constant that switches a variable on.
    fn is_true(self, text: &[u8]) -> bool {
        let Value::Constant { negative: false, token } = self else { return false };
        let constant = token.text(text);
        let inner = match constant {
            [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
            _ => constant,
        };
        [&b"1"[..], b"on", b"true"].iter().any(|it| inner.eq_ignore_ascii_case(it))
    }
}

/// Reads a value from behind the name of its variable. Afterwards `ahead` is behind a constant, and
/// anywhere within what is none.
pub(super) fn value(ahead: &mut Lexer<'_>) -> Value {
    let text = ahead.text();
    ahead.next();
    let mut first = ahead.next();
    let negative = first.is_some_and(|it| it.is_mark(b'-'));
    if first.is_some_and(|it| it.is_mark(b'-') || it.is_mark(b'+')) {
        first = ahead.next().filter(|it| it.kind == Kind::Number);
    }
    let Some(token) = first else { return Value::Expression };
    let ends = match ahead.clone().next() {
        None => true,
        Some(next) => {
            let is_for = next.kind == Kind::Word && words::word(next.text(text)) == Word::For;
            next.is_mark(b',') || next.is_mark(b';') || is_for
        }
    };
    match token.kind {
        _ if !ends => Value::Expression,
        Kind::Word if words::word(token.text(text)) == Word::Default => Value::Default,
        Kind::Word | Kind::Name | Kind::Text | Kind::Number => Value::Constant { negative, token },
        Kind::Binary | Kind::User | Kind::System | Kind::Assign | Kind::Mark(_) => {
            Value::Expression
        }
    }
}

/// What an assignment means; `first_of_all` when nothing stands between `SET` and it.
pub(super) fn target(token: &Token, lexer: &Lexer<'_>, first_of_all: bool) -> Assignment {
    let mut ahead = lexer.clone();
    let over = |effects| Assignment { effects, next: Next::Over, reads_differently: false };
    let plain = |effects| Assignment { effects, next: Next::Value, reads_differently: false };
    match parse(token, &mut ahead) {
        Target::User => plain(Effects::USER_VARIABLE_WRITE),
        Target::Variable { held, name } => variable(held, &name, &mut ahead),
        Target::Names => Assignment {
            effects: Effects::NAMES | Effects::SET,
            next: Next::Value,
            reads_differently: true,
        },
        Target::CharacterSet => Assignment {
            // That of the connection becomes that of the database.
            effects: Effects::NAMES | Effects::SET | Effects::SET_EXPRESSION,
            next: Next::Value,
            reads_differently: true,
        },
        Target::Transaction(Held::Global) => over(Effects::GLOBAL),
        Target::Transaction(Held::Session) => over(Effects::SET),
        Target::Transaction(Held::Next | Held::Unsaid) => over(Effects::NEXT_TRANSACTION),
        Target::Password => plain(Effects::GLOBAL | Effects::WRITES),
        Target::Role => plain(Effects::ROLE),
        Target::DefaultRole => over(Effects::GLOBAL | Effects::DDL),
        Target::Statement if first_of_all => {
            Assignment { effects: Effects::NONE, next: Next::Statement, reads_differently: false }
        }
        Target::Statement | Target::Unknown => plain(Effects::SET_UNKNOWN),
    }
}

/// Longest name of a variable that is compared with those that mean something.
const NAME_BYTES_MAX: usize = 64;

fn variable(held: Held, name: &Token, ahead: &mut Lexer<'_>) -> Assignment {
    let text = ahead.text();
    let mut bytes = [0; NAME_BYTES_MAX];
    let name = lower(unquoted(name.text(text)), &mut bytes);
    let read = value(ahead);
    let mut effects = match held {
        Held::Global => {
            let effects = Effects::GLOBAL;
            return Assignment { effects, next: Next::Value, reads_differently: false };
        }
        Held::Unsaid if is_of_transaction(name) => Effects::NEXT_TRANSACTION,
        Held::Unsaid => Effects::SET | Effects::SET_UNTOLD,
        Held::Session | Held::Next => Effects::SET,
    };
    if name.is_empty() {
        effects |= Effects::SET_UNKNOWN;
    }
    if read == Value::Expression {
        effects |= Effects::SET_EXPRESSION;
    }
    if !is_replayable_variable(name) {
        effects |= Effects::SET_FIXED;
    }
    match name {
        b"autocommit" => effects |= Effects::AUTOCOMMIT,
        b"transaction_read_only" | b"tx_read_only" if !read.is_true(text) => {
            effects |= Effects::READ_WRITE;
        }
        _ => {}
    }
    let reads_differently = matches!(name, b"sql_mode" | b"character_set_client");
    Assignment { effects, next: Next::Value, reads_differently }
}

/// Variables that hold for the next transaction when no scope is said.
pub(super) fn is_of_transaction(lower: &[u8]) -> bool {
    matches!(
        lower,
        b"transaction_isolation" | b"tx_isolation" | b"transaction_read_only" | b"tx_read_only"
    )
}

/// What it means to read `@@name`.
pub(super) fn reads(name: &[u8]) -> Effects {
    let name = unquoted(name);
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    if is(b"last_insert_id") || is(b"identity") {
        Effects::LAST_INSERT_ID
    } else if is(b"warning_count") || is(b"error_count") {
        Effects::SHOW_WARNINGS
    } else if is(b"pseudo_thread_id") {
        Effects::CONNECTION_ID
    } else {
        Effects::NONE
    }
}

/// A name without its quotes, if it has some. Doubled quotes inside stay doubled.
pub(super) fn unquoted(name: &[u8]) -> &[u8] {
    match name {
        [b'`', inner @ .., b'`'] | [b'"', inner @ .., b'"'] => inner,
        _ => name,
    }
}

/// `name` in lower case; what is longer than a variable's name becomes empty.
fn lower<'b>(name: &[u8], bytes: &'b mut [u8; NAME_BYTES_MAX]) -> &'b [u8] {
    let Some(bytes) = bytes.get_mut(..name.len()) else { return &[] };
    bytes.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    bytes
}
