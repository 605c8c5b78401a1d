//! Functions, tables and statements that are prohibited for read-only clients and sandboxes, by
//! their names.
//!
//! A read-only transaction of `MySQL` and `MariaDB` prevents changes of tables
//! (`Cannot execute statement in a READ ONLY transaction`), but neither locks of tables nor
//! statements about the server (<https://dev.mysql.com/doc/refman/8.4/en/commit.html>); a procedure
//! can end it and begin another one. Every user can display the hash of its own password
//! (<https://mariadb.com/docs/server/reference/sql-statements/administrative-sql-statements/show/show-grants>).
//! Called code of the database is not visible here: its effects are limited only by the rights of
//! the role.

use super::keywords::{self, Word};
use super::lexer::{MysqlLexer, MysqlToken, MysqlTokenKind};
use super::verbs::peek;

/// Maximum length of a compared name.
const NAME_BYTES_MAX: usize = 64;

/// System databases that contain password hashes, or statements of other clients.
const SYSTEM_SCHEMAS: &[&[u8]] = &[b"mysql", b"performance_schema", b"sys"];

/// Tables of `mysql` without such data, which clients use: those of time zones, and of `HELP`.
const HARMLESS_TABLES: &[&[u8]] = &[b"time_zone", b"help_"];

/// Prefixes of names in `sys` that show statements of other clients, with or without `x$`.
const TELLTALE_VIEWS: &[&[u8]] = &[b"processlist", b"session", b"statement", b"innodb_lock"];

/// A name in lower case and without quotes, as far as it is compared.
struct LowerName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl LowerName {
    fn of(token: Option<&MysqlToken>, text: &[u8]) -> LowerName {
        let mut lower = LowerName { bytes: [0; NAME_BYTES_MAX], length: 0 };
        let name = match token {
            Some(token) if token.kind == MysqlTokenKind::Word => token.text(text),
            Some(token) if token.kind == MysqlTokenKind::Name => {
                super::set::unquoted(token.text(text))
            }
            _ => b"",
        };
        if let Some(bytes) = lower.bytes.get_mut(..name.len()) {
            bytes.copy_from_slice(name);
            bytes.make_ascii_lowercase();
            lower.length = name.len();
        }
        lower
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Returns the next name or word.
fn next(lexer: &mut MysqlLexer<'_>) -> LowerName {
    let text = lexer.text();
    LowerName::of(lexer.next().as_ref(), text)
}

/// Returns a statement that is prohibited for read-only clients, by its first word and the
/// following ones.
pub(super) fn statement(word: Word, lexer: &MysqlLexer<'_>) -> Option<&'static str> {
    let mut ahead = lexer.clone();
    match word {
        Word::Call => Some("CALL"),
        Word::Lock => Some("LOCK TABLES"),
        // It prevents changes of the table by others until it is closed, outside of any
        // transaction.
        Word::Handler => Some("HANDLER"),
        Word::Backup => Some("BACKUP"),
        Word::Analyze => match next(&mut ahead).bytes() {
            b"table" | b"tables" | b"local" | b"no_write_to_binlog" => Some("ANALYZE TABLE"),
            _ => None,
        },
        Word::Check => Some("CHECK TABLE"),
        Word::Optimize => Some("OPTIMIZE TABLE"),
        Word::Repair => Some("REPAIR TABLE"),
        Word::Cache => Some("CACHE INDEX"),
        Word::Load if peek(&mut ahead) == Word::Index => Some("LOAD INDEX"),
        Word::Alter if peek(&mut ahead) == Word::Instance => Some("ALTER INSTANCE"),
        Word::Start if peek(&mut ahead) != Word::Transaction => Some("START REPLICA"),
        Word::Xa => Some("XA"),
        Word::Flush => Some("FLUSH"),
        Word::Reset => Some("RESET"),
        Word::Purge => Some("PURGE"),
        Word::Change => Some("CHANGE REPLICATION SOURCE"),
        Word::Stop => Some("STOP REPLICA"),
        Word::Install | Word::Uninstall => Some("INSTALL"),
        Word::Shutdown | Word::Restart => Some("SHUTDOWN"),
        Word::Import => Some("IMPORT TABLE"),
        Word::Clone => Some("CLONE"),
        _ => None,
    }
}

/// Returns a called function that is prohibited for read-only clients.
pub(super) fn call(name: &MysqlToken, text: &[u8]) -> Option<&'static str> {
    match LowerName::of(Some(name), text).bytes() {
        b"get_lock" => Some("GET_LOCK"),
        b"service_get_read_locks" => Some("service_get_read_locks"),
        b"service_get_write_locks" => Some("service_get_write_locks"),
        b"sys_exec" => Some("sys_exec"),
        b"sys_eval" => Some("sys_eval"),
        b"sys_set" => Some("sys_set"),
        name if name.starts_with(b"asynchronous_connection_failover_") => {
            Some("asynchronous_connection_failover functions")
        }
        name if name.starts_with(b"group_replication_") => Some("group_replication functions"),
        _ => None,
    }
}

/// Returns a clause that locks rows although they are only read; `lexer` is after `word`.
pub(super) fn locks_rows(word: Word, lexer: &MysqlLexer<'_>) -> Option<&'static str> {
    let mut ahead = lexer.clone();
    match word {
        Word::For if next(&mut ahead).bytes() == b"share" => Some("FOR SHARE"),
        Word::Lock => {
            let mode = [next(&mut ahead), next(&mut ahead)];
            let is_share = mode[0].bytes() == b"in" && mode[1].bytes() == b"share";
            is_share.then_some("LOCK IN SHARE MODE")
        }
        _ => None,
    }
}

/// Position of a token.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenPlace {
    /// After a dot, where every word is a name.
    pub behind_dot: bool,
    /// In the body of a routine, which runs later, unobserved.
    pub in_body: bool,
}

/// Returns the reason if a token, at any position, shows a use that is prohibited for sandboxes.
pub(super) fn token(
    token: &MysqlToken,
    place: TokenPlace,
    lexer: &MysqlLexer<'_>,
) -> Option<&'static str> {
    if !matches!(token.kind, MysqlTokenKind::Word | MysqlTokenKind::Name) {
        return None;
    }
    let text = lexer.text();
    if token.kind == MysqlTokenKind::Word && !place.behind_dot {
        let mut ahead = lexer.clone();
        let found = match keywords::word(token.text(text)) {
            Word::Show => show(lexer),
            Word::Alter if peek(&mut ahead) == Word::User => Some("ALTER USER"),
            Word::Load if loads_file(ahead.clone()) => Some("LOAD DATA of the server's files"),
            Word::Prepare | Word::Immediate if place.in_body => Some("PREPARE in a routine"),
            Word::For if peek(&mut ahead) == Word::Connection => Some("EXPLAIN FOR CONNECTION"),
            Word::Use if is_system_schema(next(&mut ahead).bytes()) => {
                Some("a database of the server's own")
            }
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    name(LowerName::of(Some(token), text).bytes(), place, lexer)
}

/// Returns true for a `LOAD` that reads a file of the server, not one of its client.
fn loads_file(mut lexer: MysqlLexer<'_>) -> bool {
    if !matches!(next(&mut lexer).bytes(), b"data" | b"xml") {
        return false;
    }
    let word = next(&mut lexer);
    match word.bytes() {
        b"low_priority" | b"concurrent" => next(&mut lexer).bytes() == b"infile",
        word => word == b"infile",
    }
}

/// Checks a name of a table or a column.
fn name(name: &[u8], place: TokenPlace, lexer: &MysqlLexer<'_>) -> Option<&'static str> {
    match name {
        b"processlist" => return Some("processlist"),
        b"innodb_trx" => return Some("innodb_trx"),
        b"global_priv" => return Some("global_priv"),
        b"authentication_string" => return Some("authentication_string"),
        b"load_file" => return Some("LOAD_FILE"),
        _ if place.behind_dot || !SYSTEM_SCHEMAS.contains(&name) => return None,
        _ => {}
    }
    let mut ahead = lexer.clone();
    if !ahead.next().is_some_and(|it| it.is_mark(b'.')) {
        return None;
    }
    let table = next(&mut ahead);
    let table = table.bytes();
    let plain = table.strip_prefix(b"x$").unwrap_or(table);
    let begins = |list: &[&[u8]]| list.iter().any(|it| plain.starts_with(it));
    match name {
        b"mysql" if !begins(HARMLESS_TABLES) => Some("a table of mysql"),
        b"performance_schema" => Some("performance_schema"),
        b"sys" if begins(TELLTALE_VIEWS) => Some("a view of sys"),
        _ => None,
    }
}

/// Checks `SHOW …` for data that is prohibited for sandboxes.
fn show(lexer: &MysqlLexer<'_>) -> Option<&'static str> {
    let mut ahead = lexer.clone();
    let [first, second] = [next(&mut ahead), next(&mut ahead)];
    match (first.bytes(), second.bytes()) {
        (b"grants", _) => Some("SHOW GRANTS"),
        (b"create", b"user") => Some("SHOW CREATE USER"),
        (b"create", b"server") => Some("SHOW CREATE SERVER"),
        (b"processlist", _) | (b"full", b"processlist") => Some("SHOW PROCESSLIST"),
        (b"explain", _) => Some("SHOW EXPLAIN"),
        (b"analyze", _) => Some("SHOW ANALYZE"),
        (b"slave" | b"slaves" | b"replica" | b"replicas", _) => Some("SHOW REPLICA STATUS"),
        (b"all", b"slaves" | b"replicas") => Some("SHOW REPLICA STATUS"),
        (b"master" | b"binlog" | b"relaylog", _) => Some("SHOW BINARY LOG STATUS"),
        (b"binary", b"log") => Some("SHOW BINARY LOG STATUS"),
        (b"engine", _) => Some("SHOW ENGINE"),
        _ => None,
    }
}

/// Returns true for a database that contains password hashes, or statements of other clients.
#[must_use]
pub fn is_system_schema(name: &[u8]) -> bool {
    SYSTEM_SCHEMAS.iter().any(|it| it.eq_ignore_ascii_case(name))
}
