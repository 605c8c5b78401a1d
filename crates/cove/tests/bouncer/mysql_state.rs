//! A MySQL client finds its session state again, and no other client sees it.
//!
//! Each script runs against MariaDB itself, and through Cove with a connection for each client and
//! with fewer connections than clients. Between two steps other clients use the connections that
//! are not held.

use testkit::{MyClient, MyLogin};

use crate::mysql_places::{CONNECTIONS, Place, directly, everywhere};
use crate::mysql_support::{Fronted, login};

/// A client's letter, a statement, and the expected result: rows with tabs and newlines, `!` with
/// the number of an error, or `*` for any result but an error.
type Step = (char, &'static str, &'static str);

fn run(
    place: &mut Place<'_>,
    connect: &dyn Fn(&Place<'_>) -> MyClient,
    what: &str,
    script: &[Step],
) {
    let mut clients: Vec<(char, MyClient)> = Vec::new();
    for (at, (letter, sql, expected)) in script.iter().enumerate() {
        if !clients.iter().any(|(name, _)| name == letter) {
            clients.push((*letter, connect(place)));
        }
        let (_, client) = clients.iter_mut().find(|(name, _)| name == letter).unwrap();
        let answer = client.query(sql).unwrap_or_else(|error| {
            panic!("{what}, {}, step {at}: {letter}: {sql}: {error}", place.name)
        });
        let seen = match answer.error() {
            Some(error) => format!("!{}", error.code),
            None => {
                let row = |row: Vec<Option<String>>| {
                    let values = row.into_iter().map(|it| it.unwrap_or_else(|| "NULL".to_owned()));
                    values.collect::<Vec<_>>().join("\t")
                };
                answer.rows().into_iter().map(row).collect::<Vec<_>>().join("\n")
            }
        };
        let is_right = seen == *expected || (*expected == "*" && !seen.starts_with('!'));
        assert!(
            is_right,
            "{what}, {}, step {at}: {letter}: {sql}\n  gave {seen:?}\n  not  \
             {expected:?}\n  {answer:?}",
            place.name
        );
        place.doing = format!("{what}, step {at}: {letter}: {sql}");
        place.stir();
    }
    // The clients disconnect without a message, in any state.
}

/// Runs scripts in every place, each on connections that the previous one has used.
fn check(name: &str, scripts: &[(&str, &[Step])]) {
    everywhere(name, "", |place| {
        for (what, script) in scripts {
            run(place, &|place: &Place<'_>| place.login(), what, script);
        }
        if let Some(fronted) = place.fronted.filter(|_| place.is_shared()) {
            is_clean(fronted, &place.database);
        }
    });
}

/// Checks every connection at once for state of other clients.
fn is_clean(fronted: &Fronted, tenant: &str) {
    let mut fresh = directly(&fronted.maria, tenant);
    let expected = fresh.run(LOOK).rows();
    let mut all: Vec<MyClient> = (0..CONNECTIONS).map(|_| fronted.login(tenant)).collect();
    for client in &mut all {
        client.run("BEGIN");
        assert_eq!(client.run(LOOK).rows(), expected, "{tenant}");
    }
}

/// Query of the state of a fresh session.
const LOOK: &str = "SELECT DATABASE(), @@sql_mode, @@time_zone, @@character_set_client, \
     @@character_set_connection, @@character_set_results, @@collation_connection, @@autocommit, \
     @@tx_isolation, @@tx_read_only, @@sort_buffer_size, @@lock_wait_timeout, @@sql_select_limit, \
     @@foreign_key_checks, @@unique_checks, @@max_statement_time, @@group_concat_max_len, @a, @b, \
     @who, @n, @mine, LAST_INSERT_ID(), CURRENT_ROLE(), @@timestamp BETWEEN \
     UNIX_TIMESTAMP(SYSDATE()) - 60 AND UNIX_TIMESTAMP(SYSDATE()) + 60, @@insert_id";

#[test]
#[expect(clippy::too_many_lines, reason = "a table of what is tried")]
fn settings_of_every_kind() {
    check(
        "set",
        &[
            (
                "plain settings",
                &[
                    ('a', "SET SESSION sort_buffer_size = 131072", "*"),
                    ('b', "SELECT @@sort_buffer_size", "2097152"),
                    ('a', "SELECT @@sort_buffer_size", "131072"),
                    (
                        'b',
                        "SET sort_buffer_size = 262144, @@lock_wait_timeout = 77, \
                         LOCAL max_statement_time = 9.5",
                        "*",
                    ),
                    ('a', "SELECT @@sort_buffer_size, @@lock_wait_timeout", "131072\t86400"),
                    (
                        'b',
                        "SELECT @@sort_buffer_size, @@lock_wait_timeout, @@max_statement_time",
                        "262144\t77\t9.500000",
                    ),
                    ('a', "SET sort_buffer_size = DEFAULT", "*"),
                    ('a', "SELECT @@sort_buffer_size", "2097152"),
                    ('b', "SET @@session.sort_buffer_size := @@global.sort_buffer_size", "*"),
                    ('b', "SELECT @@sort_buffer_size, @@lock_wait_timeout", "2097152\t77"),
                    ('b', "SET lock_wait_timeout = 70 + 8", "*"),
                    ('a', "SELECT @@lock_wait_timeout", "86400"),
                    ('b', "SELECT @@lock_wait_timeout", "78"),
                    (
                        'b',
                        "SET lock_wait_timeout = (SELECT 3 * 3), max_statement_time = DEFAULT",
                        "*",
                    ),
                    ('b', "SELECT @@lock_wait_timeout, @@max_statement_time", "9\t0.000000"),
                ],
            ),
            (
                "settings that fail",
                &[
                    ('a', "SET lock_wait_timeout = 5, no_such_variable = 1", "!1193"),
                    ('a', "SELECT @@lock_wait_timeout", "86400"),
                    ('a', "SET sql_mode = 'NO_SUCH_MODE'", "!1231"),
                    ('a', "SET max_connections = 5", "!1229"),
                    ('a', "SELECT @@sql_mode = @@global.sql_mode", "1"),
                ],
            ),
            (
                "modes change what a text says",
                &[
                    ('a', "SET sql_mode = 'ANSI_QUOTES'", "*"),
                    ('a', "SELECT \"x\" FROM (SELECT 7 AS x) t", "7"),
                    ('b', "SELECT \"x\" FROM (SELECT 7 AS x) t", "x"),
                    ('b', "SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "*"),
                    ('b', "SELECT '\\', 'a'", "\\\ta"),
                    ('b', "SELECT '\\\\'", "\\\\"),
                    ('a', "SELECT '\\\\', 1", "\\\t1"),
                    ('a', "SET sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')", "*"),
                    ('a', "SELECT @@sql_mode", "ANSI_QUOTES,STRICT_ALL_TABLES"),
                    ('b', "SELECT @@sql_mode", "NO_BACKSLASH_ESCAPES"),
                ],
            ),
            (
                "character sets",
                &[
                    ('a', "SET NAMES latin1", "*"),
                    ('b', "SET NAMES utf8mb4 COLLATE utf8mb4_bin", "*"),
                    (
                        'a',
                        "SELECT HEX('\u{e9}'), @@collation_connection",
                        "C3A9\tlatin1_swedish_ci",
                    ),
                    ('b', "SELECT HEX('\u{e9}'), @@collation_connection", "C3A9\tutf8mb4_bin"),
                    ('a', "SET CHARACTER SET utf8mb4", "*"),
                    (
                        'a',
                        "SELECT @@character_set_client, @@character_set_results",
                        "utf8mb4\tutf8mb4",
                    ),
                    ('b', "SET character_set_results = NULL", "*"),
                    ('b', "SELECT @@character_set_results", "NULL"),
                    ('a', "SELECT @@character_set_results", "utf8mb4"),
                ],
            ),
            (
                "values that are hard to write",
                &[
                    ('a', "SET time_zone = '-05:30', group_concat_max_len = 1073741824", "*"),
                    ('a', "SET SESSION default_storage_engine = Aria", "*"),
                    ('b', "SELECT @@time_zone, @@default_storage_engine", "SYSTEM\tInnoDB"),
                    (
                        'a',
                        "SELECT @@time_zone, @@group_concat_max_len, @@default_storage_engine",
                        "-05:30\t1073741824\tAria",
                    ),
                    (
                        'a',
                        "SET optimizer_switch = 'index_merge=off', unique_checks = OFF, \
                         foreign_key_checks = 0",
                        "*",
                    ),
                    (
                        'b',
                        "SELECT @@optimizer_switch LIKE 'index_merge=on%', @@unique_checks",
                        "1\t1",
                    ),
                    (
                        'a',
                        "SELECT @@optimizer_switch LIKE 'index_merge=off%', @@unique_checks",
                        "1\t0",
                    ),
                    ('a', "SET init_connect = 'x'", "!1229"),
                    (
                        'a',
                        "SET character_set_client = utf8mb4, \
                         collation_connection = 'utf8mb4_unicode_ci'",
                        "*",
                    ),
                    ('a', "SELECT @@collation_connection", "utf8mb4_unicode_ci"),
                ],
            ),
            (
                "settings of one statement",
                &[
                    (
                        'a',
                        "SET STATEMENT lock_wait_timeout = 3 FOR SELECT @@lock_wait_timeout",
                        "3",
                    ),
                    ('a', "SELECT @@lock_wait_timeout", "86400"),
                    ('b', "SELECT @@lock_wait_timeout", "86400"),
                ],
            ),
            (
                "settings that cannot be given again",
                &[
                    ('a', "SET timestamp = 1000000000", "*"),
                    ('a', "SELECT UNIX_TIMESTAMP()", "1000000000"),
                    ('b', "SELECT UNIX_TIMESTAMP() > 1700000000", "1"),
                    ('a', "SELECT UNIX_TIMESTAMP()", "1000000000"),
                    ('a', "SET timestamp = DEFAULT", "*"),
                    ('a', "SELECT UNIX_TIMESTAMP() > 1700000000", "1"),
                    ('b', "SET timestamp = 5, @n = 1", "*"),
                    ('b', "SELECT UNIX_TIMESTAMP()", "5"),
                ],
            ),
            (
                "isolation and reading only",
                &[
                    ('a', "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "*"),
                    ('b', "SET SESSION tx_read_only = 1", "*"),
                    ('a', "SELECT @@tx_isolation, @@tx_read_only", "SERIALIZABLE\t0"),
                    ('b', "SELECT @@tx_isolation, @@tx_read_only", "REPEATABLE-READ\t1"),
                    ('a', "CREATE TABLE reading (x INT)", "*"),
                    ('b', "INSERT INTO reading VALUES (1)", "!1792"),
                    ('a', "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "*"),
                    ('a', "SELECT @@tx_isolation", "SERIALIZABLE"),
                    ('a', "INSERT INTO reading VALUES (1)", "*"),
                    ('a', "DROP TABLE reading", "*"),
                ],
            ),
            (
                "databases",
                &[
                    ('a', "USE information_schema", "*"),
                    ('b', "SELECT DATABASE() LIKE 'set_%'", "1"),
                    ('a', "SELECT DATABASE()", "information_schema"),
                    ('a', "USE no_such_database", "!1049"),
                    ('a', "SELECT DATABASE()", "information_schema"),
                    ('b', "CREATE TABLE here AS SELECT 1 AS x", "*"),
                    ('a', "SELECT * FROM here", "!1109"),
                    ('b', "SELECT * FROM here; USE mysql; SELECT DATABASE()", "1\nmysql"),
                    ('b', "SELECT * FROM here", "!1146"),
                    ('a', "SELECT DATABASE()", "information_schema"),
                ],
            ),
        ],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of what is tried")]
fn what_ends_with_the_session() {
    check(
        "state",
        &[
            (
                "temporary tables",
                &[
                    ('a', "CREATE TEMPORARY TABLE t AS SELECT 'a' AS who", "*"),
                    ('b', "SELECT * FROM t", "!1146"),
                    ('b', "CREATE TEMPORARY TABLE t AS SELECT 'b' AS who", "*"),
                    ('a', "SELECT * FROM t", "a"),
                    ('b', "SELECT * FROM t", "b"),
                    ('a', "DROP TEMPORARY TABLE t", "*"),
                    ('a', "SELECT * FROM t", "!1146"),
                    ('b', "SELECT * FROM t", "b"),
                    ('a', "/*! CREATE */ TEMPORARY TABLE t SELECT 'again' AS who", "*"),
                    ('a', "SELECT * FROM t", "again"),
                ],
            ),
            (
                "temporary tables of those who are gone",
                &[
                    ('a', "SELECT * FROM t", "!1146"),
                    ('b', "SELECT * FROM t", "!1146"),
                    ('c', "SELECT * FROM t", "!1146"),
                ],
            ),
            (
                "variables",
                &[
                    ('a', "SELECT @a, @b, @who", "NULL\tNULL\tNULL"),
                    ('a', "SET @a = 1, @b := 'b'", "*"),
                    ('b', "SELECT @a, @b", "NULL\tNULL"),
                    ('b', "SELECT @a := 5", "5"),
                    ('a', "SELECT @a, @b", "1\tb"),
                    ('b', "SELECT @a", "5"),
                    ('a', "SELECT 2 INTO @who", "*"),
                    ('a', "SELECT @who, @a", "2\t1"),
                ],
            ),
            (
                "variables of those who are gone",
                &[
                    ('a', "SELECT @a, @b, @who", "NULL\tNULL\tNULL"),
                    ('b', "SELECT @a, @b, @who", "NULL\tNULL\tNULL"),
                    ('c', "SELECT @a, @b, @who", "NULL\tNULL\tNULL"),
                ],
            ),
            (
                "statements of SQL",
                &[
                    ('a', "PREPARE mine FROM 'SELECT ? + 1'", "*"),
                    ('b', "PREPARE mine FROM 'SELECT ? + 2'", "*"),
                    ('a', "EXECUTE mine USING 5", "6"),
                    ('b', "EXECUTE mine USING 5", "7"),
                    ('a', "DEALLOCATE PREPARE mine", "*"),
                    ('a', "EXECUTE mine USING 5", "!1243"),
                    ('b', "EXECUTE mine USING 6", "8"),
                    ('a', "EXECUTE IMMEDIATE 'SELECT 9'", "9"),
                    ('b', "DROP PREPARE mine", "*"),
                    ('b', "EXECUTE mine USING 5", "!1243"),
                ],
            ),
            (
                "the last number that was given",
                &[
                    ('a', "CREATE TABLE ids (id INT AUTO_INCREMENT PRIMARY KEY, who CHAR(1))", "*"),
                    ('a', "INSERT INTO ids (who) VALUES ('a')", "*"),
                    ('b', "INSERT INTO ids (who) VALUES ('b')", "*"),
                    ('a', "SELECT LAST_INSERT_ID()", "1"),
                    ('b', "SELECT LAST_INSERT_ID()", "2"),
                    ('a', "SELECT 5", "5"),
                    ('a', "SELECT LAST_INSERT_ID() + 10, @@last_insert_id", "11\t1"),
                    ('b', "SELECT who FROM ids WHERE id = LAST_INSERT_ID()", "b"),
                    ('c', "SELECT LAST_INSERT_ID()", "0"),
                    ('c', "SELECT LAST_INSERT_ID(77)", "77"),
                    ('b', "SELECT last_insert_id()", "2"),
                    ('c', "SELECT LAST_INSERT_ID()", "77"),
                    ('a', "INSERT INTO ids (id, who) VALUES (LAST_INSERT_ID() + 100, 'c')", "*"),
                    ('a', "SELECT id FROM ids WHERE who = 'c'", "101"),
                    ('a', "DROP TABLE ids", "*"),
                ],
            ),
            (
                "counts of rows",
                &[
                    ('a', "CREATE TABLE counts (x INT)", "*"),
                    ('a', "INSERT INTO counts VALUES (1), (2), (3)", "*"),
                    ('b', "SELECT ROW_COUNT()", "0"),
                    ('a', "UPDATE counts SET x = x + 1 WHERE x > 1", "*"),
                    ('a', "SELECT ROW_COUNT()", "2"),
                    ('a', "SELECT x FROM counts", "1\n3\n4"),
                    ('a', "SELECT FOUND_ROWS()", "3"),
                    ('b', "SELECT 1 FROM seq_1_to_7", "1\n1\n1\n1\n1\n1\n1"),
                    ('a', "SELECT SQL_CALC_FOUND_ROWS x FROM counts LIMIT 1", "1"),
                    ('b', "SELECT FOUND_ROWS() AS n", "7"),
                    ('a', "SELECT FOUND_ROWS()", "3"),
                    ('a', "DELETE FROM counts", "*"),
                    ('a', "select row_count()", "3"),
                    ('a', "DROP TABLE counts", "*"),
                ],
            ),
            (
                "warnings",
                &[
                    ('a', "DROP TABLE IF EXISTS mysql.no_such_table", "*"),
                    ('a', "SHOW WARNINGS", "Note\t1051\tUnknown table 'mysql.no_such_table'"),
                    ('b', "SHOW WARNINGS", ""),
                    ('a', "SHOW COUNT(*) WARNINGS", "1"),
                    ('a', "SELECT @@warning_count", "1"),
                    ('b', "SELECT 1/0", "NULL"),
                    ('b', "SHOW WARNINGS", "Warning\t1365\tDivision by 0"),
                    ('b', "SELECT CAST('x' AS SIGNED), CAST('y' AS SIGNED)", "0\t0"),
                    (
                        'b',
                        "SHOW WARNINGS LIMIT 1",
                        "Warning\t1292\tTruncated incorrect INTEGER value: 'x'",
                    ),
                    ('b', "SHOW COUNT(*) WARNINGS", "2"),
                    ('b', "SELECT nothing", "!1054"),
                    ('b', "SHOW ERRORS", "Error\t1054\tUnknown column 'nothing' in 'SELECT'"),
                    ('b', "SHOW WARNINGS", "Error\t1054\tUnknown column 'nothing' in 'SELECT'"),
                    ('b', "SHOW COUNT(*) ERRORS", "1"),
                    ('b', "SELECT seq FROM seq_1_to_1", "1"),
                    ('b', "SHOW WARNINGS", ""),
                    ('b', "SELECT @@warning_count, @@error_count", "0\t0"),
                ],
            ),
            (
                "numbers of connections",
                &[
                    ('a', "SELECT CONNECTION_ID() = CONNECTION_ID(), CONNECTION_ID() > 0", "1\t1"),
                    ('a', "SET @a = CONNECTION_ID()", "*"),
                    ('a', "SELECT @a = connection_id(), 'CONNECTION_ID()'", "1\tCONNECTION_ID()"),
                    ('b', "SELECT @a := CONNECTION_ID() > 0 /* CONNECTION_ID() */", "1"),
                    ('b', "KILL QUERY CONNECTION_ID()", "!1317"),
                ],
            ),
            (
                "handlers",
                &[
                    ('a', "CREATE TABLE handled AS SELECT seq FROM seq_1_to_3", "*"),
                    ('a', "HANDLER handled OPEN AS h", "*"),
                    ('a', "HANDLER h READ FIRST", "1"),
                    ('b', "HANDLER h READ NEXT", "!1109"),
                    ('a', "HANDLER h READ NEXT", "2"),
                    ('a', "HANDLER h CLOSE", "*"),
                    ('a', "HANDLER h READ NEXT", "!1109"),
                    ('a', "DROP TABLE handled", "*"),
                ],
            ),
            (
                "sequences",
                &[
                    ('a', "CREATE SEQUENCE s START WITH 5", "*"),
                    ('a', "SELECT NEXT VALUE FOR s", "5"),
                    ('b', "SELECT NEXTVAL(s)", "6"),
                    ('a', "SELECT LASTVAL(s)", "5"),
                    ('b', "SELECT PREVIOUS VALUE FOR s", "6"),
                    ('a', "DROP SEQUENCE s", "*"),
                ],
            ),
            (
                "roles",
                &[
                    ('a', "CREATE ROLE IF NOT EXISTS reader", "*"),
                    ('a', "GRANT reader TO CURRENT_USER", "*"),
                    ('a', "SET ROLE reader", "*"),
                    ('a', "SELECT CURRENT_ROLE()", "reader"),
                    ('b', "SELECT CURRENT_ROLE()", "NULL"),
                    ('a', "SET ROLE NONE", "*"),
                    ('a', "SELECT CURRENT_ROLE()", "NULL"),
                    ('b', "SET ROLE no_such_role", "!1959"),
                ],
            ),
        ],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of what is tried")]
fn locks_and_transactions() {
    check(
        "locks",
        &[
            (
                "locks by name",
                &[
                    ('a', "SELECT GET_LOCK('locks_l', 0)", "1"),
                    ('b', "SELECT GET_LOCK('locks_l', 0)", "0"),
                    ('a', "SELECT GET_LOCK('locks_l', 0), GET_LOCK('locks_m', 0)", "1\t1"),
                    ('a', "SELECT RELEASE_LOCK('locks_l')", "1"),
                    ('b', "SELECT IS_FREE_LOCK('locks_l')", "0"),
                    ('a', "SELECT RELEASE_LOCK('locks_l')", "1"),
                    ('b', "SELECT GET_LOCK('locks_l', 0), RELEASE_LOCK('locks_m')", "1\t0"),
                    ('a', "SELECT RELEASE_ALL_LOCKS()", "1"),
                    ('b', "DO RELEASE_LOCK('locks_l')", "*"),
                    ('a', "DO GET_LOCK('locks_left', 0)", "*"),
                ],
            ),
            (
                "locks of those who are gone",
                &[
                    ('a', "SELECT GET_LOCK('locks_left', 20)", "1"),
                    ('a', "SELECT RELEASE_LOCK('locks_left')", "1"),
                    ('b', "SELECT RELEASE_LOCK('locks_left')", "NULL"),
                ],
            ),
            (
                "locks that no text shows",
                &[
                    ('a', "CREATE FUNCTION hidden(n TEXT) RETURNS INT RETURN GET_LOCK(n, 0)", "*"),
                    ('a', "SELECT hidden('locks_h')", "1"),
                    ('b', "SELECT IS_FREE_LOCK('locks_x')", "1"),
                    ('a', "DROP FUNCTION hidden", "*"),
                ],
            ),
            (
                "locks of tables",
                &[
                    ('a', "CREATE TABLE locked AS SELECT 1 AS x", "*"),
                    ('a', "LOCK TABLES locked READ", "*"),
                    ('a', "SELECT x FROM locked", "1"),
                    ('a', "INSERT INTO locked VALUES (2)", "!1099"),
                    ('b', "SET lock_wait_timeout = 1", "*"),
                    ('b', "INSERT INTO locked VALUES (2)", "!1205"),
                    ('a', "UNLOCK TABLES", "*"),
                    ('b', "INSERT INTO locked VALUES (2)", "*"),
                    ('a', "LOCK TABLES locked WRITE", "*"),
                    ('b', "SELECT COUNT(*) FROM locked", "!1205"),
                ],
            ),
            (
                "tables that those locked who are gone",
                &[('a', "SELECT COUNT(*) FROM locked", "2"), ('a', "DROP TABLE locked", "*")],
            ),
            (
                "transactions and errors in them",
                &[
                    ('a', "CREATE TABLE t (x INT PRIMARY KEY) ENGINE=InnoDB", "*"),
                    ('a', "BEGIN", "*"),
                    ('a', "INSERT INTO t VALUES (1)", "*"),
                    ('a', "INSERT INTO t VALUES (1)", "!1062"),
                    ('a', "SELECT nothing", "!1054"),
                    ('a', "SELEC 1", "!1064"),
                    ('b', "SELECT COUNT(*) FROM t", "0"),
                    ('a', "SELECT COUNT(*) FROM t", "1"),
                    ('a', "ROLLBACK", "*"),
                    ('a', "SELECT COUNT(*) FROM t", "0"),
                    ('b', "START TRANSACTION WITH CONSISTENT SNAPSHOT", "*"),
                    ('a', "INSERT INTO t VALUES (2)", "*"),
                    ('b', "SELECT COUNT(*) FROM t", "0"),
                    ('b', "COMMIT AND CHAIN", "*"),
                    ('b', "INSERT INTO t VALUES (3)", "*"),
                    ('a', "SELECT x FROM t", "2"),
                    ('b', "ROLLBACK RELEASE", "*"),
                    ('a', "SELECT x FROM t", "2"),
                    ('a', "START TRANSACTION READ ONLY", "*"),
                    ('a', "INSERT INTO t VALUES (4)", "!1792"),
                    ('a', "COMMIT", "*"),
                    ('a', "INSERT INTO t VALUES (4)", "*"),
                    (
                        'a',
                        "BEGIN; INSERT INTO t VALUES (5); SAVEPOINT s; INSERT INTO t VALUES (6)",
                        "*",
                    ),
                    ('a', "ROLLBACK TO s", "*"),
                    ('a', "COMMIT", "*"),
                    ('c', "SELECT x FROM t ORDER BY x", "2\n4\n5"),
                    ('a', "BEGIN NOT ATOMIC INSERT INTO t VALUES (9); END", "*"),
                    ('c', "SELECT COUNT(*) FROM t WHERE x = 9", "1"),
                    ('a', "BEGIN", "*"),
                    ('a', "DELETE FROM t", "*"),
                ],
            ),
            (
                "transactions of those who are gone",
                &[
                    ('a', "SELECT COUNT(*) FROM t", "4"),
                    ('a', "SET autocommit = 0", "*"),
                    ('a', "SELECT COUNT(*) FROM t", "4"),
                    ('b', "INSERT INTO t VALUES (20)", "*"),
                    ('a', "SELECT COUNT(*) FROM t", "4"),
                    ('a', "COMMIT", "*"),
                    ('a', "SELECT COUNT(*) FROM t", "5"),
                    ('a', "DELETE FROM t", "*"),
                    ('a', "SELECT nothing", "!1054"),
                    ('b', "SELECT COUNT(*) FROM t", "5"),
                    ('a', "ROLLBACK", "*"),
                    ('a', "SELECT COUNT(*), @@autocommit FROM t", "5\t0"),
                    ('b', "SELECT @@autocommit", "1"),
                    ('a', "SET autocommit = 1", "*"),
                    ('a', "DELETE FROM t", "*"),
                    ('b', "SELECT COUNT(*) FROM t", "0"),
                    ('a', "DROP TABLE t", "*"),
                ],
            ),
            (
                "transactions of two phases",
                &[
                    ('a', "CREATE TABLE xt (x INT) ENGINE=InnoDB", "*"),
                    ('a', "XA START 'locks_1'", "*"),
                    ('a', "INSERT INTO xt VALUES (1)", "*"),
                    ('b', "SELECT COUNT(*) FROM xt", "0"),
                    ('a', "XA END 'locks_1'", "*"),
                    ('a', "XA PREPARE 'locks_1'", "*"),
                    ('a', "XA COMMIT 'locks_1'", "*"),
                    ('b', "SELECT COUNT(*) FROM xt", "1"),
                    ('a', "DROP TABLE xt", "*"),
                ],
            ),
            (
                "several statements and results",
                &[
                    ('a', "SELECT 1; SELECT '', NULL; DO 3; SELECT 4", "1\n\tNULL\n4"),
                    ('a', "SELECT 1; SELECT nothing; SELECT 3", "!1054"),
                    (
                        'a',
                        "CREATE PROCEDURE two(n INT) BEGIN SELECT n; SELECT '' FROM seq_1_to_2; \
                         SELECT n * 2; END",
                        "*",
                    ),
                    ('a', "CALL two(5)", "5\n\n\n10"),
                    ('b', "CALL two(6); SELECT 'end'", "6\n\n\n12\nend"),
                    (
                        'b',
                        "CREATE PROCEDURE leaves() BEGIN SET @mine = 5; \
                         CREATE TEMPORARY TABLE hid AS SELECT 1; END",
                        "*",
                    ),
                    ('b', "CALL leaves()", "*"),
                    ('a', "SELECT @mine", "NULL"),
                    ('b', "SELECT @mine FROM hid", "5"),
                    ('a', "SELECT * FROM hid", "!1146"),
                    (
                        'a',
                        "CREATE PROCEDURE fails() BEGIN SELECT 1; \
                         SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 3333; END",
                        "*",
                    ),
                    ('a', "CALL fails()", "!3333"),
                    ('a', "SELECT 7", "7"),
                    (
                        'a',
                        "CREATE PROCEDURE begins() BEGIN START TRANSACTION; SELECT 'open'; END",
                        "*",
                    ),
                    ('a', "CALL begins()", "open"),
                    ('a', "CREATE TABLE pt (x INT) ENGINE=InnoDB", "*"),
                    ('a', "CALL begins()", "open"),
                    ('a', "INSERT INTO pt VALUES (1)", "*"),
                    ('b', "SELECT COUNT(*) FROM pt", "0"),
                    ('a', "ROLLBACK", "*"),
                    ('a', "SELECT COUNT(*) FROM pt", "0"),
                    (
                        'a',
                        "DROP PROCEDURE two; DROP PROCEDURE leaves; \
                         DROP PROCEDURE fails; DROP PROCEDURE begins",
                        "*",
                    ),
                    ('a', "DROP TABLE pt", "*"),
                ],
            ),
        ],
    );
}

/// Logins with older capabilities, for which all responses are converted.
#[test]
fn older_clients_see_the_same() {
    use testkit::my::capability::{DEPRECATE_EOF, SESSION_TRACK};
    let script: &[Step] = &[
        ('a', "SELECT '', NULL UNION ALL SELECT 'x', 'y'", "\tNULL\nx\ty"),
        ('a', "SELECT 1; SELECT 2 FROM seq_1_to_3; DO 1", "1\n2\n2\n2"),
        ('a', "SELECT * FROM (SELECT 1 AS x) t WHERE x = 2", ""),
        ('a', "SET @a = 5", "*"),
        ('a', "SELECT @a", "5"),
        ('a', "SELECT nothing", "!1054"),
        ('a', "SELECT 3; SELECT nothing", "!1054"),
        ('a', "DROP TABLE IF EXISTS mysql.no_such_table", "*"),
        ('a', "SHOW WARNINGS", "Note\t1051\tUnknown table 'mysql.no_such_table'"),
        ('a', "USE mysql", "*"),
        ('a', "SELECT DATABASE()", "mysql"),
    ];
    everywhere("older", "", |place| {
        for without in [0, DEPRECATE_EOF, SESSION_TRACK, DEPRECATE_EOF | SESSION_TRACK] {
            let older = |login: MyLogin| login.without(without);
            let connect =
                |place: &Place<'_>| place.login_as(&older(login(&place.database))).unwrap();
            run(place, &connect, &format!("without {without:x}"), script);
        }
    });
}
