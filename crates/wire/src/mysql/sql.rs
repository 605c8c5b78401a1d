//! Effects of a text of SQL on the session that runs it: enough for a pooler, and no grammar.
//!
//! [`effects()`] is the quick answer, a set of bits; [`details()`] adds the variables and names
//! that have to be understood, [`question()`] returns the question of a text that a pooler can
//! answer itself, and [`rewrite_connection_id`] puts a client's own number into its text. All read
//! text from strangers, in linear time. They are sound in one direction: a text may be said to do
//! more than it does, and is not said to do less than its words can tell. What words cannot tell
//! (routines, triggers, views, functions of the database) has a bit of [`MysqlEffects::UNKNOWN`] or
//! [`MysqlEffects::TABLES`], and is found by the server's trackers, or not at all: then it has to
//! be reset.
//!
//! A text is read as the session reads it: [`SqlMode`] says how. What reads differently by the
//! version of the server, `/*!80000 … */` and `/*M! … */`, is read both ways.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/sql-statements.html>
//! - <https://mariadb.com/docs/server/reference/sql-statements>

mod details;
mod effects;
mod keywords;
mod lexer;
mod mode;
mod prohibited;
mod question;
mod quote;
mod rewrite;
mod routine;
mod scan;
mod set;
mod verbs;

pub use effects::MysqlEffects;
pub use keywords::is_replayable_variable;
pub use mode::{CharsetClass, SqlMode};
pub use prohibited::is_system_schema;

use crate::prohibitions::TextProhibitions;

/// Details beyond the effects, in the order of the text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MysqlTextDetails {
    /// Number of statements the text has; empty ones do not count.
    pub statements: usize,
    /// Variables of the server that `SET` gives values.
    pub assignments: Vec<VariableAssignment>,
    /// Names of databases, tables and prepared statements that matter to a session.
    pub names: Vec<MysqlNameUse>,
    /// Target of `KILL`.
    pub kill: Option<KillStatement>,
    /// True if something was not understood that has to be: nothing above is complete then.
    pub lost: bool,
}

impl MysqlTextDetails {
    /// The database that the last `USE` chose.
    #[must_use]
    pub fn use_database(&self) -> Option<&str> {
        let last = self.names.iter().rev().find(|it| it.act == MysqlNameAction::Use)?;
        Some(&last.name)
    }
}

/// A variable of the server that gets a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VariableAssignment {
    /// Number of the statement in its text, from 0.
    pub statement: usize,
    /// Scope of the value.
    pub scope: VariableScope,
    /// True if it is set by `@@name` without a scope, of which `MariaDB`'s trackers do not tell.
    pub is_untold: bool,
    /// In lower case: letters, digits and underscores, 64 at most. `SET NAMES` and
    /// `SET CHARACTER SET` are said as the variables they set, `SET SESSION TRANSACTION` as
    /// `transaction_isolation` and `transaction_read_only`.
    pub name: String,
    /// The value.
    pub value: AssignedValue,
}

/// Scope of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VariableScope {
    /// In this session.
    Session,
    /// In the server: `GLOBAL`, `PERSIST`, `PERSIST_ONLY`.
    Global,
    /// In the next transaction.
    Next,
}

/// Value that a variable is set to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AssignedValue {
    /// A constant, decoded: of `'it''s'` it is `it's`, of `TRUE` it is `1`.
    Literal(String),
    /// Default of a new session.
    Default,
    /// Expression that only the server can evaluate.
    Expression,
}

/// Use of a name by a statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MysqlNameUse {
    /// Number of the statement in its text, from 0.
    pub statement: usize,
    /// Action.
    pub act: MysqlNameAction,
    /// The database before the dot. A name without one is looked for in the session's own.
    pub schema: Option<String>,
    /// The name as it is written, without quotes. Names of prepared statements are in lower case,
    /// because the server does not tell the cases apart; empty where there is none.
    pub name: String,
}

/// Action on a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MysqlNameAction {
    /// `USE name`
    Use,
    /// `PREPARE name FROM …`
    Prepare,
    /// `EXECUTE name`
    Execute,
    /// `EXECUTE IMMEDIATE …`, which has no name.
    ExecuteImmediate,
    /// `DEALLOCATE PREPARE name`, `DROP PREPARE name`
    Deallocate,
    /// `CREATE TEMPORARY TABLE name`
    CreateTemporary,
    /// `CREATE TEMPORARY SEQUENCE name`
    CreateTemporarySequence,
    /// `DROP [TEMPORARY] TABLE name`, for each of its names.
    Drop,
    /// `DROP [TEMPORARY] SEQUENCE name`, for each of its names. It leaves a temporary table of that
    /// name where it is.
    DropSequence,
    /// `HANDLER table OPEN [AS name]`: the alias, if there is one.
    OpenHandler,
    /// `HANDLER name CLOSE`
    CloseHandler,
}

/// Statement `KILL`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KillStatement {
    /// The connection, not only what it runs.
    pub connection: bool,
    /// Target.
    pub target: KillTarget,
}

/// Whom `KILL` means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KillTarget {
    /// The connection of this number.
    Id(u64),
    /// `CONNECTION_ID()`: the one that asks.
    Own,
    /// A user, a query by its number, or a number that has to be computed.
    Other,
}

/// A question that a pooler can answer when the connection that knew was given away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionQuestion {
    /// Topic.
    pub what: QuestionTopic,
    /// The name of the column of the answer, as the server would give it.
    pub column: String,
}

/// Topic of a question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuestionTopic {
    /// `SHOW WARNINGS`
    Warnings(RowLimit),
    /// `SHOW ERRORS`
    Errors(RowLimit),
    /// `SHOW COUNT(*) WARNINGS`, `SELECT @@warning_count`
    WarningCount,
    /// `SHOW COUNT(*) ERRORS`, `SELECT @@error_count`
    ErrorCount,
    /// `SELECT ROW_COUNT()`
    RowCount,
    /// `SELECT FOUND_ROWS()`
    FoundRows,
}

/// `LIMIT offset, count`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RowLimit {
    /// Rows that are left out first.
    pub offset: u64,
    /// Rows that are wanted.
    pub count: u64,
}

impl RowLimit {
    /// No limit.
    pub const NONE: RowLimit = RowLimit { offset: 0, count: u64::MAX };
}

/// Returns what `text` may leave behind. Allocates nothing.
#[must_use]
pub fn effects(text: &[u8], mode: SqlMode) -> MysqlEffects {
    scan::scan(text, mode).0
}

/// Returns the effects and what readers and sandboxes may not do.
#[must_use]
pub fn effects_and_prohibitions(text: &[u8], mode: SqlMode) -> (MysqlEffects, TextProhibitions) {
    scan::scan(text, mode)
}

/// Returns what a text says about variables and names. For texts whose effects say that there are
/// some.
#[must_use]
pub fn details(text: &[u8], mode: SqlMode) -> MysqlTextDetails {
    details::details(text, mode)
}

/// Returns the question of a text that is one which a pooler can answer, and nothing else.
#[must_use]
pub fn question(text: &[u8], mode: SqlMode) -> Option<SessionQuestion> {
    question::question(text, mode)
}

/// Returns whether a text is `SELECT GET_LOCK(…)` and nothing else, so that its value is that of
/// the call.
#[must_use]
pub fn is_lock_alone(text: &[u8], mode: SqlMode) -> bool {
    question::is_lock_alone(text, mode)
}

/// Appends `text` to `out`, with `id` in place of every question for the number of its connection;
/// columns keep their names. Appends nothing and says `false` when there is none, when it would be
/// stored (`CREATE VIEW`, `CREATE PROCEDURE`), or when the text is not understood: it then has to
/// go as it is.
pub fn rewrite_connection_id(text: &[u8], mode: SqlMode, id: u32, out: &mut Vec<u8>) -> bool {
    rewrite::connection_id(text, mode, id, out)
}

#[cfg(test)]
mod tests;
