//! Effects of an SQL text on the session that runs it: sufficient for a pooler, without a grammar.
//!
//! [`effects()`] is the quick analysis, which returns a set of bits; [`details()`] adds the
//! variables and names that matter, [`question()`] returns the query of a text that a pooler can
//! answer itself, and [`rewrite_connection_id`] inserts a client's own number into its text. All
//! accept untrusted text, in linear time. They are sound in one direction: the effects of a text
//! may be overestimated, but never underestimated as far as its words show them. Effects that words
//! cannot show (routines, triggers, views, functions of the database) have a bit of
//! [`MysqlEffects::UNKNOWN`] or [`MysqlEffects::TABLES`], and are reported by the server's
//! trackers, or not at all: then the session must be reset.
//!
//! A text is parsed in the session's [`SqlMode`]. Parts that depend on the version of the server,
//! `/*!80000 … */` and `/*M! … */`, are parsed both ways.
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
    /// Server variables that `SET` assigns.
    pub assignments: Vec<VariableAssignment>,
    /// Names of databases, tables and prepared statements that matter to a session.
    pub names: Vec<MysqlNameUse>,
    /// Target of `KILL`.
    pub kill: Option<KillStatement>,
    /// True if a relevant part was not understood: the fields above are then incomplete.
    pub lost: bool,
}

impl MysqlTextDetails {
    /// Returns the database that the last `USE` selects.
    #[must_use]
    pub fn use_database(&self) -> Option<&str> {
        let last = self.names.iter().rev().find(|it| it.act == MysqlNameAction::Use)?;
        Some(&last.name)
    }
}

/// A server variable that is assigned.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VariableAssignment {
    /// Number of the statement in its text, from 0.
    pub statement: usize,
    /// Scope of the value.
    pub scope: VariableScope,
    /// True if it is assigned as `@@name` without a scope, which `MariaDB`'s trackers do not
    /// report.
    pub is_untold: bool,
    /// Name in lower case: letters, digits and underscores, 64 at most. `SET NAMES` and
    /// `SET CHARACTER SET` are listed as the variables that they set, `SET SESSION TRANSACTION` as
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
    /// For the next transaction.
    Next,
}

/// Value that a variable is set to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AssignedValue {
    /// A constant, decoded: for `'it''s'` it is `it's`, for `TRUE` it is `1`.
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
    /// The database before the dot. A name without one belongs to the session's database.
    pub schema: Option<String>,
    /// The name as written, without quotes. Names of prepared statements are in lower case, because
    /// they are case-insensitive at the server; empty if there is none.
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
    /// `DROP [TEMPORARY] SEQUENCE name`, for each of its names. It does not drop a temporary table
    /// of that name.
    DropSequence,
    /// `HANDLER table OPEN [AS name]`: the alias, if there is one.
    OpenHandler,
    /// `HANDLER name CLOSE`
    CloseHandler,
}

/// Statement `KILL`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KillStatement {
    /// True for the connection, not only its statement.
    pub connection: bool,
    /// Target.
    pub target: KillTarget,
}

/// Target of `KILL`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KillTarget {
    /// The connection of this number.
    Id(u64),
    /// `CONNECTION_ID()`: the session's own connection.
    Own,
    /// A user, a query by its number, or an expression for a number.
    Other,
}

/// A query that a pooler can answer when the connection that had the state was released.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionQuestion {
    /// Topic.
    pub what: QuestionTopic,
    /// Name of the answer's column, as the server would return it.
    pub column: String,
}

/// Topic of a query.
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
    /// Rows to skip.
    pub offset: u64,
    /// Maximum rows.
    pub count: u64,
}

impl RowLimit {
    /// No limit.
    pub const NONE: RowLimit = RowLimit { offset: 0, count: u64::MAX };
}

/// Returns the possible lasting effects of `text`. Allocates nothing.
#[must_use]
pub fn effects(text: &[u8], mode: SqlMode) -> MysqlEffects {
    scan::scan(text, mode).0
}

/// Returns the effects, and the prohibitions for read-only clients and sandboxes.
#[must_use]
pub fn effects_and_prohibitions(text: &[u8], mode: SqlMode) -> (MysqlEffects, TextProhibitions) {
    scan::scan(text, mode)
}

/// Returns the variables and names in a text. For texts whose effects show that there are some.
#[must_use]
pub fn details(text: &[u8], mode: SqlMode) -> MysqlTextDetails {
    details::details(text, mode)
}

/// Returns the query, if a text consists of one that a pooler can answer.
#[must_use]
pub fn question(text: &[u8], mode: SqlMode) -> Option<SessionQuestion> {
    question::question(text, mode)
}

/// Returns whether a text is `SELECT GET_LOCK(…)` and nothing else, so that its value is the result
/// of the call.
#[must_use]
pub fn is_lock_alone(text: &[u8], mode: SqlMode) -> bool {
    question::is_lock_alone(text, mode)
}

/// Appends `text` to `out`, with `id` in place of every query for the number of its connection;
/// columns keep their names. Appends nothing and returns `false` if there is none, if it would be
/// stored (`CREATE VIEW`, `CREATE PROCEDURE`), or if the text is not understood: it must then be
/// forwarded unchanged.
pub fn rewrite_connection_id(text: &[u8], mode: SqlMode, id: u32, out: &mut Vec<u8>) -> bool {
    rewrite::connection_id(text, mode, id, out)
}

#[cfg(test)]
mod tests;
