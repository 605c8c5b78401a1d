//! Prohibited functions, tables and statements for readers and sandboxes, by their names.
//!
//! A read-only transaction of `MySQL` and `MariaDB` stops what changes tables (`Cannot execute
//! statement in a READ ONLY transaction`), and neither what locks them nor what is about the server
//! (<https://dev.mysql.com/doc/refman/8.4/en/commit.html>); a procedure ends it and begins another
//! one. Passwords' hashes are shown to everybody who asks for his own
//! (<https://mariadb.com/docs/server/reference/sql-statements/administrative-sql-statements/show/show-grants>).
//! Code of the database that is called is not seen here: what it may do rests on the rights of the
//! role.

use super::keywords::{self, Word};
use super::lexer::{MysqlLexer, MysqlToken, MysqlTokenKind};
use super::verbs::peek;

/// Longest name that is compared.
const NAME_BYTES_MAX: usize = 64;

/// Databases of the server that have passwords' hashes, and statements of others, in them.
const SYSTEM_SCHEMAS: &[&[u8]] = &[b"mysql", b"performance_schema", b"sys"];

/// Tables of `mysql` without such things, which clients ask for: of time zones, and of `HELP`.
const HARMLESS_TABLES: &[&[u8]] = &[b"time_zone", b"help_"];

/// Beginnings of names of `sys` that show statements of others, with or without `x$`.
const TELLTALE_VIEWS: &[&[u8]] = &[b"processlist", b"session", b"statement", b"innodb_lock"];

/// A name in lower case and without its quotes, as far as it is compared.
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

/// The next name or word.
fn next(lexer: &mut MysqlLexer<'_>) -> LowerName {
    let text = lexer.text();
    LowerName::of(lexer.next().as_ref(), text)
}

/// A statement that is not for readers, by its first word and what follows.
pub(super) fn statement(word: Word, lexer: &MysqlLexer<'_>) -> Option<&'static str> {
    let mut ahead = lexer.clone();
    match word {
        Word::Call => Some("CALL"),
        Word::Lock => Some("LOCK TABLES"),
        // It keeps others from altering the table until it is closed, in no transaction.
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

/// A function that is called and is not for readers.
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

/// Rows that are locked for others although they are only read; `lexer` is behind `word`.
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
    /// Behind a dot, where every word is a name.
    pub behind_dot: bool,
    /// In the body of a routine, which runs when nobody looks.
    pub in_body: bool,
}

/// A token, wherever it stands, with which a text shows what is not for sandboxes.
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

/// A name of a table or a column.
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

/// `SHOW …` of what is not for sandboxes.
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

/// Returns true for a database that has passwords' hashes, or statements of others, in it.
#[must_use]
pub fn is_system_schema(name: &[u8]) -> bool {
    SYSTEM_SCHEMAS.iter().any(|it| it.eq_ignore_ascii_case(name))
}
