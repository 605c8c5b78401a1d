//! What is said of texts: tables of texts that leave nothing, of texts that do, and of details.

use super::*;

mod details;
mod facts;
mod prohibited;
mod random;

const PLAIN: SqlMode =
    SqlMode { ansi_quotes: false, no_backslash_escapes: false, charset: CharsetClass::Utf8 };

/// What is said of `text`, but for what nearly every text does.
fn found(text: &[u8], mode: SqlMode) -> Effects {
    effects(text, mode).without(ELSEWHERE)
}

/// Said nearly everywhere, or tested on their own.
const ELSEWHERE: Effects = Effects::TABLES
    .with(Effects::USER_VARIABLE_READ)
    .with(Effects::GET_LOCKS)
    .with(Effects::INSERTS)
    .with(Effects::LOADS)
    .with(Effects::SET_UNTOLD);

fn check(text: &str, expected: Effects) {
    assert_eq!(found(text.as_bytes(), PLAIN), expected, "{text}");
    // Neither case nor what stands between words means anything.
    let commented = format!("/* ' */ # \" \n{text} -- ;");
    assert_eq!(found(commented.as_bytes(), PLAIN), expected, "{commented}");
    let upper = text.to_ascii_uppercase();
    if !text.contains("\\") {
        assert_eq!(found(upper.as_bytes(), PLAIN), expected, "{upper}");
    }
}

#[test]
fn what_leaves_nothing_has_no_bit() {
    for text in [
        "",
        ";",
        "SELECT 1",
        "select 1; ",
        ";; SELECT 1 ;;",
        "SELECT c FROM sbtest1 WHERE id=?",
        "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 1 AND 100 ORDER BY c",
        "SELECT now(), current_timestamp(6), rand(), uuid(), sleep (1), utc_date()",
        "SELECT count(*), sum(x) OVER (PARTITION BY (y) ORDER BY (z)) FROM t",
        "SELECT group_concat(distinct a order by b separator ',') FROM t GROUP BY (a) WITH ROLLUP",
        "SELECT if(a, b, c), left('abc', 1), replace(a, b, c), insert(a, 1, 2, 'x') FROM t",
        "SELECT * FROM t WHERE id IN (1, 2) AND (a OR NOT (b)) AND EXISTS (SELECT 1)",
        "SELECT * FROM a JOIN (SELECT 1) b ON (a.x = b.x) LEFT JOIN c USING (id)",
        "SELECT * FROM t USE INDEX (a) FORCE INDEX FOR JOIN (b) PARTITION (p0)",
        "SELECT * FROM (SELECT 1) t (a)",
        "SELECT match (a, b) against ('x' in boolean mode) FROM t",
        "SELECT cast(a as char(10)), convert(a, decimal(10, 2)), a -> '$.b', a ->> '$.c' FROM t",
        "SELECT date '2020-01-01', interval 1 day + d, extract(year from d), trim(both from a)",
        "SELECT * FROM json_table('[]', '$[*]' columns (a varchar(10) path '$')) as t",
        "SELECT x'1f', b'01', 0x1f, 0b11, N'a', _utf8mb4'a', _latin1 x'41', 1e5, .5, 1., 'a' 'b'",
        "SELECT 'it''s; SET a = 1', \"GET_LOCK('a', 1)\", `get_lock`, 'a\\'; SET a = 1 -- '",
        "SELECT 1--1, 2 - - 3, a--b FROM t",
        "SELECT 1 -- ; SET a = 1",
        "SELECT 1 # ; SET a = 1",
        "SELECT 1 /* ; SET a = 1 */",
        "SELECT /*+ MAX_EXECUTION_TIME(1000) */ 1",
        "SELECT /*!40001 SQL_NO_CACHE */ * FROM `t`",
        "SELECT * FROM t FOR UPDATE SKIP LOCKED",
        "SELECT * FROM t LOCK IN SHARE MODE",
        "(SELECT 1) UNION ALL (SELECT 2) LIMIT 1",
        "SELECT a.temporary, b.kill, c.commit, `set`.`use` FROM a",
        "SELECT @@version, @@session.sql_mode, @@global.max_connections, @@`time_zone`",
        "SELECT @a, @`b c`, @'d', @\"e\"",
        "SELECT t.1a, t.5e FROM t",
        "WITH x (a, b) AS (SELECT 1, 2), y (c) AS (SELECT 3) SELECT * FROM x, y",
        "WITH RECURSIVE x (a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x) SELECT * FROM x",
        "VALUES (1), (2)",
        "TABLE t",
        "DO sleep(1)",
        "SHOW VARIABLES LIKE 'a'",
        "SHOW CREATE TABLE t",
        "DESCRIBE t",
        "DESC t a",
        "EXPLAIN SELECT 1",
        "EXPLAIN FORMAT=JSON SELECT 1",
        "ANALYZE FORMAT=JSON SELECT 1",
        "HELP 'select'",
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'x'",
    ] {
        check(text, Effects::NONE);
    }
}

#[test]
fn what_changes_rows_is_said() {
    for text in [
        "INSERT INTO t (a, b) VALUES (?, ?) ON DUPLICATE KEY UPDATE a = VALUES(a)",
        "INSERT INTO `s`.`t` (`a`) VALUES (1)",
        "INSERT IGNORE `t` (a) VALUES (1)",
        "INSERT t (a) SELECT 1",
        "INSERT INTO t SET a = 1, b = 2",
        "REPLACE t (a) VALUES (1)",
        "REPLACE INTO t (a) VALUES ROW(1)",
        "UPDATE t SET a = 1, role = 2, names = 3 WHERE id = ?",
        "DELETE FROM t WHERE id IN (SELECT 1)",
        "WITH x AS (SELECT 1) UPDATE t, x SET a = 1",
        "WITH x (a) AS (SELECT 1) DELETE FROM t USING t, x",
        "EXPLAIN UPDATE t SET a = 1",
        "ANALYZE DELETE FROM t",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "SELECT 1 INTO DUMPFILE '/tmp/x'",
        "LOAD DATA INFILE 'x' INTO TABLE t (a, b)",
    ] {
        check(text, Effects::WRITES);
    }
}

#[test]
fn what_may_give_numbers_to_rows_is_said() {
    const NUMBERS: Effects = Effects::INSERTS.with(Effects::LOADS);
    for (text, expected) in [
        ("INSERT INTO t VALUES (1)", Effects::INSERTS),
        ("REPLACE INTO t VALUES (1) RETURNING id", Effects::INSERTS),
        ("ANALYZE INSERT INTO t VALUES (1)", Effects::INSERTS),
        ("SET STATEMENT insert_id = 1 FOR INSERT INTO t VALUES (1)", Effects::INSERTS),
        ("SELECT 1; INSERT INTO t VALUES (1)", Effects::INSERTS),
        ("LOAD DATA INFILE 'x' INTO TABLE t", NUMBERS),
        ("LOAD XML LOCAL INFILE 'x' INTO TABLE t", NUMBERS),
        ("LOAD INDEX INTO CACHE t", Effects::NONE),
        ("UPDATE t SET a = 1", Effects::NONE),
        ("DELETE FROM t", Effects::NONE),
        ("SELECT REPLACE('a', 'b', 'c'), INSERT('a', 1, 2, 'b')", Effects::NONE),
    ] {
        let effects = effects(text.as_bytes(), PLAIN);
        assert_eq!(effects.without(effects.without(NUMBERS)), expected, "{text}");
    }
}

const SET_MANY: Effects = Effects::SET
    .with(Effects::USER_VARIABLE_WRITE)
    .with(Effects::GLOBAL)
    .with(Effects::SET_EXPRESSION);

/// Texts that leave something, and what.
const LEAVES: &[(&str, Effects)] = &[
    // Transactions.
    ("BEGIN", Effects::TRANSACTION_BEGIN),
    ("BEGIN WORK", Effects::TRANSACTION_BEGIN),
    ("BEGIN NOT ATOMIC SELECT 1; END", BLOCK.with(Effects::MULTI)),
    ("BEGIN SELECT 1; END", BLOCK.with(Effects::MULTI)),
    ("START TRANSACTION", Effects::TRANSACTION_BEGIN),
    ("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", Effects::TRANSACTION_BEGIN),
    ("START TRANSACTION READ WRITE", Effects::TRANSACTION_BEGIN.with(Effects::READ_WRITE)),
    ("COMMIT", Effects::COMMIT),
    ("COMMIT WORK AND NO CHAIN NO RELEASE", Effects::COMMIT),
    ("COMMIT AND CHAIN", Effects::COMMIT.with(Effects::TRANSACTION_BEGIN)),
    ("ROLLBACK AND CHAIN NO RELEASE", Effects::ROLLBACK.with(Effects::TRANSACTION_BEGIN)),
    ("ROLLBACK RELEASE", Effects::ROLLBACK.with(Effects::CLOSES)),
    ("ROLLBACK TO a", Effects::SAVEPOINT),
    ("ROLLBACK WORK TO SAVEPOINT `a`", Effects::SAVEPOINT),
    ("COMMIT TO a", Effects::COMMIT.with(Effects::UNPARSED)),
    ("SAVEPOINT a", Effects::SAVEPOINT),
    ("RELEASE SAVEPOINT a", Effects::SAVEPOINT),
    ("XA START 'a'", Effects::XA),
    ("XA COMMIT 'a' ONE PHASE", Effects::XA.with(Effects::XA_END)),
    ("XA ROLLBACK 'a'", Effects::XA.with(Effects::XA_END)),
    ("XA PREPARE 'commit'", Effects::XA),
    // Variables of the server.
    ("SET a = 1", Effects::SET),
    ("SET SESSION a = 1", Effects::SET),
    ("SET LOCAL a := 'x', @@b = ON, @@session.c = -1", Effects::SET),
    ("SET `a` = DEFAULT", Effects::SET),
    ("SET a=1, @b=2, GLOBAL d=3, @@e=(SELECT 1), LOCAL f=4", SET_MANY),
    ("SET PERSIST a = 1", Effects::GLOBAL),
    ("SET @@PERSIST_ONLY.a = 1", Effects::GLOBAL),
    ("SET @@global.a = (SELECT 1), GLOBAL hot.key_buffer_size = 1", Effects::GLOBAL),
    ("SET @@hot.key_buffer_size = 1", Effects::GLOBAL),
    ("SET a = 1 + 1", Effects::SET.with(Effects::SET_EXPRESSION)),
    ("SET a = @@b", Effects::SET.with(Effects::SET_EXPRESSION)),
    ("SET a = ?", Effects::SET.with(Effects::SET_EXPRESSION)),
    ("SET a = 'x' 'y'", Effects::SET.with(Effects::SET_EXPRESSION)),
    ("SET a.b = 1", Effects::SET_UNKNOWN),
    ("SET", Effects::NONE),
    ("SET x", Effects::SET_UNKNOWN),
    ("SET RESOURCE GROUP g", Effects::SET_UNKNOWN),
    ("SET autocommit = 0", Effects::SET.with(Effects::AUTOCOMMIT)),
    ("SET @@autocommit := OFF", Effects::SET.with(Effects::AUTOCOMMIT)),
    ("SET timestamp = 5", Effects::SET.with(Effects::SET_FIXED)),
    ("SET @@session.sql_log_bin = 0", Effects::SET.with(Effects::SET_FIXED)),
    ("SET `gtid_next` = 'x'", Effects::SET.with(Effects::SET_FIXED)),
    ("SET sql_mode = ANSI", Effects::SET),
    ("SET profiling = 1", Effects::SET.with(Effects::SET_FIXED)),
    ("SET NAMES utf8mb4 COLLATE utf8mb4_bin, a = 1", Effects::SET.with(Effects::NAMES)),
    ("SET NAMES DEFAULT", Effects::SET.with(Effects::NAMES)),
    ("SET CHARACTER SET utf8mb4", CHARACTER_SET),
    ("SET CHARSET 'utf8mb4'", CHARACTER_SET),
    ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY", Effects::NEXT_TRANSACTION),
    ("SET TRANSACTION READ WRITE", Effects::NEXT_TRANSACTION.with(Effects::READ_WRITE)),
    ("SET @@tx_isolation = 'SERIALIZABLE'", Effects::NEXT_TRANSACTION),
    ("SET tx_isolation = 'SERIALIZABLE'", Effects::SET),
    ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", Effects::SET),
    ("SET SESSION TRANSACTION READ WRITE", Effects::SET.with(Effects::READ_WRITE)),
    ("SET GLOBAL TRANSACTION READ ONLY", Effects::GLOBAL),
    ("SET tx_read_only = 1", Effects::SET),
    ("SET @@session.transaction_read_only = 'off'", Effects::SET.with(Effects::READ_WRITE)),
    ("SET tx_read_only = DEFAULT", Effects::SET.with(Effects::READ_WRITE)),
    ("SET STATEMENT max_statement_time = 1, tx_read_only = 0 FOR SELECT 1", Effects::READ_WRITE),
    ("SET STATEMENT timestamp = 1 FOR INSERT INTO t (a) VALUES (1)", Effects::WRITES),
    ("SET STATEMENT a = 1 FOR SET b = 2", Effects::SET_UNKNOWN.with(Effects::READ_WRITE)),
    (
        "PREPARE p FROM 'SET STATEMENT a = 1 FOR SET tx_read_only = 0'",
        Effects::SQL_PREPARE.with(Effects::READ_WRITE),
    ),
    ("SET STATEMENT a = 1 FOR CALL p()", Effects::CALL),
    ("SET PASSWORD = PASSWORD('x')", Effects::GLOBAL.with(Effects::WRITES)),
    ("SET PASSWORD FOR 'a'@'b' = 'x'", Effects::GLOBAL.with(Effects::WRITES)),
    ("SET ROLE a", Effects::ROLE),
    ("SET ROLE NONE", Effects::ROLE),
    ("SET DEFAULT ROLE a FOR b", Effects::GLOBAL.with(Effects::DDL)),
    ("USE `a`", Effects::USE),
    // User variables.
    ("SET @a = 1", Effects::USER_VARIABLE_WRITE),
    ("SET @`a b` := 1, @'c' = 2", Effects::USER_VARIABLE_WRITE),
    ("SELECT @a := 1", Effects::USER_VARIABLE_WRITE),
    ("SELECT @a/* */:=1 FROM t", Effects::USER_VARIABLE_WRITE),
    ("SELECT 1, 2 INTO @a, @b", Effects::USER_VARIABLE_WRITE),
    ("SELECT a INTO @`x` FROM t", Effects::USER_VARIABLE_WRITE),
    ("CALL p(@a)", Effects::USER_VARIABLE_WRITE.with(Effects::CALL)),
    ("EXECUTE s USING @a", Effects::USER_VARIABLE_WRITE.with(Effects::SQL_EXECUTE)),
    ("LOAD DATA INFILE 'x' INTO TABLE t (@a) SET b = @a", {
        Effects::WRITES.with(Effects::USER_VARIABLE_WRITE)
    }),
    ("GET DIAGNOSTICS @a = NUMBER", Effects::DIAGNOSTICS.with(Effects::USER_VARIABLE_WRITE)),
    ("GET CURRENT DIAGNOSTICS CONDITION 1 @a = MESSAGE_TEXT", {
        Effects::DIAGNOSTICS.with(Effects::USER_VARIABLE_WRITE)
    }),
    // Tables that are the session's, and locks.
    ("CREATE TEMPORARY TABLE t (a int)", TEMPORARY),
    ("CREATE OR REPLACE TEMPORARY TABLE t SELECT 1", TEMPORARY),
    ("CREATE TEMPORARY SEQUENCE s", TEMPORARY),
    ("CREATE TABLE temporary (a int)", Effects::DDL),
    ("DROP TEMPORARY TABLE IF EXISTS t", Effects::DDL.with(Effects::TEMP_DROP)),
    ("DROP TABLE a, b", Effects::DDL.with(Effects::TEMP_DROP)),
    ("ALTER TABLE a RENAME TO b", Effects::DDL.with(Effects::TEMP_RENAME)),
    ("RENAME TABLE a TO b", Effects::DDL.with(Effects::TEMP_RENAME)),
    ("SELECT GET_LOCK('a', 1)", Effects::GET_LOCK),
    ("SELECT GET_LOCK ('a', 1)", Effects::GET_LOCK),
    ("SELECT GET_LOCK/* */('a', 1)", Effects::GET_LOCK),
    ("DO get_lock\n('a', 1)", Effects::GET_LOCK),
    ("SELECT `get_lock`('a', 1)", Effects::GET_LOCK.with(Effects::UNKNOWN_FUNCTION)),
    ("SELECT 1 FROM t WHERE is_free_lock('a') AND release_lock('a')", Effects::RELEASE_LOCK),
    ("DO RELEASE_ALL_LOCKS()", Effects::RELEASE_ALL_LOCKS),
    ("LOCK TABLES a READ, b WRITE", Effects::LOCK_TABLES),
    ("LOCK TABLE a WRITE", Effects::LOCK_TABLES),
    ("UNLOCK TABLES", Effects::UNLOCK_TABLES),
    ("FLUSH TABLES WITH READ LOCK", Effects::ADMIN.with(Effects::LOCK_TABLES)),
    ("FLUSH TABLES a, b FOR EXPORT", Effects::ADMIN.with(Effects::LOCK_TABLES)),
    ("FLUSH PRIVILEGES", Effects::ADMIN),
    ("BACKUP STAGE START", Effects::BACKUP_LOCK),
    ("BACKUP STAGE END", Effects::BACKUP_UNLOCK),
    ("BACKUP LOCK t", Effects::BACKUP_LOCK),
    ("BACKUP UNLOCK", Effects::BACKUP_UNLOCK),
    ("LOCK INSTANCE FOR BACKUP", Effects::BACKUP_LOCK),
    ("UNLOCK INSTANCE", Effects::BACKUP_UNLOCK),
    ("HANDLER t OPEN AS h", Effects::HANDLER),
    ("HANDLER h READ FIRST", Effects::HANDLER),
    // Code that is not there.
    ("PREPARE s FROM 'SELECT ?'", Effects::SQL_PREPARE),
    ("PREPARE s FROM @a", Effects::SQL_PREPARE.with(Effects::READ_WRITE)),
    ("PREPARE s FROM 'SET SESSION TRANSACTION READ WRITE'", {
        Effects::SQL_PREPARE.with(Effects::READ_WRITE)
    }),
    ("PREPARE s FROM 'SET SESSION TRANSACTION' ' READ WRITE'", {
        Effects::SQL_PREPARE.with(Effects::READ_WRITE)
    }),
    ("EXECUTE s", Effects::SQL_EXECUTE),
    ("EXECUTE IMMEDIATE 'DO GET_LOCK(\"a\", 1)'", Effects::SQL_EXECUTE.with(Effects::GET_LOCK)),
    ("EXECUTE IMMEDIATE concat('a', 'b')", Effects::SQL_EXECUTE.with(Effects::READ_WRITE)),
    ("DEALLOCATE PREPARE s", Effects::SQL_DEALLOCATE),
    ("DROP PREPARE s", Effects::SQL_DEALLOCATE),
    ("CALL s.p(1)", Effects::CALL),
    ("CALL p(f(1))", Effects::CALL.with(Effects::UNKNOWN_FUNCTION)),
    ("SELECT f(1)", Effects::UNKNOWN_FUNCTION),
    ("SELECT s.f(1)", Effects::UNKNOWN_FUNCTION),
    ("SELECT s.abs(1)", Effects::UNKNOWN_FUNCTION),
    ("SELECT `f`(1)", Effects::UNKNOWN_FUNCTION),
    ("SELECT 1f(2)", Effects::UNKNOWN_FUNCTION),
    ("SELECT max (a) FROM t", Effects::UNKNOWN_FUNCTION),
    ("SELECT 1 FROM t WHERE sys.format_path(a) = ''", Effects::UNKNOWN_FUNCTION),
    ("INSERT INTO t (a) VALUES (f(1))", Effects::WRITES.with(Effects::UNKNOWN_FUNCTION)),
    ("CREATE TABLE t (a int) SELECT f(1) a", Effects::DDL.with(Effects::UNKNOWN_FUNCTION)),
    ("SET a = f(1)", {
        Effects::SET.with(Effects::SET_EXPRESSION).with(Effects::UNKNOWN_FUNCTION)
    }),
    // What only the last connection knows.
    ("SELECT LAST_INSERT_ID()", Effects::LAST_INSERT_ID),
    ("SELECT @@last_insert_id", Effects::LAST_INSERT_ID),
    ("SELECT @@session.identity", Effects::LAST_INSERT_ID),
    ("SELECT @@session.`identity`", Effects::LAST_INSERT_ID),
    ("INSERT INTO t (a) VALUES (LAST_INSERT_ID())", {
        Effects::LAST_INSERT_ID.with(Effects::WRITES)
    }),
    ("SELECT ROW_COUNT()", Effects::ROW_COUNT),
    ("SELECT FOUND_ROWS()", Effects::FOUND_ROWS),
    ("SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1", Effects::CALC_FOUND_ROWS),
    ("SHOW WARNINGS LIMIT 1", Effects::SHOW_WARNINGS),
    ("SHOW COUNT(*) ERRORS", Effects::SHOW_WARNINGS),
    ("SELECT @@warning_count, @@local.error_count", Effects::SHOW_WARNINGS),
    ("SELECT CONNECTION_ID()", Effects::CONNECTION_ID),
    ("SELECT @@pseudo_thread_id", Effects::CONNECTION_ID),
    ("KILL QUERY 5", Effects::KILL),
    ("PREPARE s FROM 'KILL 7'", Effects::SQL_PREPARE.with(Effects::KILL)),
    ("PREPARE s FROM 'SELECT `kill`, t.kill'", Effects::SQL_PREPARE),
    ("EXECUTE IMMEDIATE 'KILL 7'", Effects::SQL_EXECUTE.with(Effects::KILL)),
    ("SET STATEMENT max_statement_time = 1 FOR KILL 7", Effects::KILL),
    ("CREATE PROCEDURE p() KILL 7", Effects::DDL.with(Effects::ROUTINE)),
    ("BEGIN NOT ATOMIC IF 1 THEN KILL 7", {
        Effects::TRANSACTION_BEGIN.with(Effects::UNPARSED).with(Effects::KILL)
    }),
    ("SELECT GET_LOCK ('x', 1)", Effects::GET_LOCK),
    ("SELECT GET_LOCK\n/* */ ('x', 1)", Effects::GET_LOCK),
    ("SELECT RELEASE_ALL_LOCKS ()", Effects::RELEASE_ALL_LOCKS),
    ("KILL CONNECTION_ID()", Effects::KILL.with(Effects::CONNECTION_ID)),
    ("SELECT NEXTVAL(s)", Effects::SEQUENCE_NEXT),
    ("SELECT NEXT VALUE FOR s", Effects::SEQUENCE_NEXT),
    ("SELECT s.nextval", Effects::SEQUENCE_NEXT),
    ("SELECT LASTVAL(s)", Effects::SEQUENCE),
    ("SELECT PREVIOUS VALUE FOR s", Effects::SEQUENCE),
    ("SELECT s.currval", Effects::SEQUENCE),
    // The rest.
    ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", Effects::LOCAL_INFILE.with(Effects::WRITES)),
    ("LOAD DATA LOW_PRIORITY LOCAL INFILE 'x' INTO TABLE t", {
        Effects::LOCAL_INFILE.with(Effects::WRITES)
    }),
    ("LOAD XML LOCAL INFILE 'x' INTO TABLE t", Effects::LOCAL_INFILE.with(Effects::WRITES)),
    ("CREATE TABLE t (a varchar(10) DEFAULT 'x', KEY k (a), CHECK (a > 1))", Effects::DDL),
    ("CREATE INDEX i ON t (a)", Effects::DDL),
    ("ALTER TABLE t ADD COLUMN b decimal(10, 2), ADD FOREIGN KEY f (a) REFERENCES u (b)", {
        Effects::DDL
    }),
    ("CREATE TABLE event (a int); SET a = 1", {
        Effects::DDL.with(Effects::MULTI).with(Effects::SET)
    }),
    ("DROP DATABASE d", Effects::DDL),
    ("TRUNCATE TABLE t", Effects::DDL),
    ("GRANT SELECT (a) ON t TO u", Effects::DDL),
    ("CREATE USER 'a'@'b' IDENTIFIED BY 'x'", Effects::DDL),
    ("ANALYZE TABLE t PERSISTENT FOR COLUMNS (a) INDEXES (b)", Effects::ADMIN),
    ("OPTIMIZE TABLE t", Effects::ADMIN),
    ("CHANGE MASTER TO master_host = 'x'", Effects::ADMIN),
    ("START SLAVE", Effects::ADMIN),
    ("STOP REPLICA", Effects::ADMIN),
    ("RESET MASTER", Effects::ADMIN),
    ("PURGE BINARY LOGS TO 'x'", Effects::ADMIN),
    ("INSTALL PLUGIN a SONAME 'b'", Effects::ADMIN),
    ("SHUTDOWN", Effects::ADMIN),
    ("BINLOG 'x'", Effects::UNPARSED),
    ("FROBNICATE", Effects::UNPARSED),
    ("SELECT 1; SELECT 2", Effects::MULTI),
    ("BEGIN; SELECT 1; COMMIT", {
        Effects::MULTI.with(Effects::TRANSACTION_BEGIN).with(Effects::COMMIT)
    }),
    ("SELECT (1; SET a = 1", Effects::MULTI.with(Effects::SET)),
    // Texts that read differently from the middle on.
    ("SET sql_mode = ''; SELECT 1", Effects::MULTI.with(Effects::SET).with(Effects::UNPARSED)),
    ("SET NAMES gbk; SELECT 1", {
        Effects::MULTI.with(Effects::SET).with(Effects::NAMES).with(Effects::UNPARSED)
    }),
];

const BLOCK: Effects = Effects::UNPARSED.with(Effects::TRANSACTION_BEGIN);
const TEMPORARY: Effects = Effects::DDL.with(Effects::TEMP_CREATE);
const CHARACTER_SET: Effects = Effects::SET.with(Effects::NAMES).with(Effects::SET_EXPRESSION);

#[test]
fn what_leaves_something_has_its_bit() {
    for (text, expected) in LEAVES {
        check(text, *expected);
    }
}

#[test]
fn what_has_no_end_or_two_readings_is_not_understood() {
    for text in [
        "SELECT 'open",
        "SELECT \"open",
        "SELECT `open",
        "SELECT 'open\\'",
        "SELECT @`open",
        "SELECT /* open",
        "SELECT /*! open",
        "SELECT 1 /*!50000 ; SELECT 2 */",
        "SELECT /*!50000 1 /*!50000 + 1 */ */",
        "SELECT /*!12345678 1 */",
        "SELECT [a]",
        "SELECT $$a$$",
        "SELECT $a$ b $a$",
        "SELECT 1\0",
        "SELECT 1 -- \0 SET a = 1",
        "SELECT /*+ QB_NAME(`*/; SET a = 1; -- `) */ 1",
    ] {
        assert!(effects(text.as_bytes(), PLAIN).contains(Effects::UNPARSED), "{text}");
    }
}

#[test]
fn comments_that_are_code_are_read_as_code() {
    for (text, expected) in [
        ("/*!40101 SET NAMES utf8 */;", Effects::SET.with(Effects::NAMES)),
        ("/*! SET a = 1 */", Effects::SET),
        ("SELECT 1 /*!40000 , GET_LOCK('a', 1) */", Effects::GET_LOCK),
        ("SELECT /*! 1 /* not ' this */ , GET_LOCK('a', 1) */", Effects::GET_LOCK),
        ("/*M! SET a = 1 */", Effects::SET),
        ("/*M!100203 SET a = 1 */", Effects::SET),
        ("/*!80000 SET a = 1 */", Effects::SET),
        ("/*!100100 SET a = 1 */", Effects::SET),
        // As a comment it calls, as code it does not.
        ("SELECT GET_LOCK /*!80000 + 1 */ ('a', 1)", Effects::GET_LOCK),
        ("SELECT /*!80000 f */ (1)", Effects::UNKNOWN_FUNCTION),
        // It ends elsewhere when it is code.
        ("SELECT /*!80000 'a */ ; SET a = 1 -- ' */", {
            Effects::UNPARSED.with(Effects::SET).with(Effects::MULTI)
        }),
        ("SELECT 1 /*!80000 + 1 */ /*!80100 + 1 */", Effects::UNPARSED),
        ("SELECT 1 /*!80000 + 1 */ /*!80000 + 1 */", Effects::NONE),
        ("SELECT 1 */ 2", Effects::NONE),
    ] {
        assert_eq!(found(text.as_bytes(), PLAIN), expected, "{text}");
    }
}

#[test]
fn the_mode_decides_where_strings_end() {
    let ansi = SqlMode { ansi_quotes: true, ..PLAIN };
    let bare = SqlMode { no_backslash_escapes: true, ..PLAIN };
    let set = Effects::SET | Effects::MULTI;
    for (text, mode, expected) in [
        ("SELECT \"a\\\"; SET a = 1; -- \"", PLAIN, Effects::NONE),
        ("SELECT \"a\\\"; SET a = 1; -- \"", ansi, set),
        ("SELECT 'a\\'; SET a = 1; -- '", PLAIN, Effects::NONE),
        ("SELECT 'a\\'; SET a = 1; -- '", bare, set),
        ("SELECT 'a\\'; SET a = 1; -- '", ansi, Effects::NONE),
        ("SELECT \"get_lock\"('a', 1)", ansi, Effects::GET_LOCK | Effects::UNKNOWN_FUNCTION),
        ("SET \"timestamp\" = 1", ansi, Effects::SET | Effects::SET_FIXED),
        ("SET \"timestamp\" = 1", PLAIN, Effects::SET_UNKNOWN),
    ] {
        assert_eq!(found(text.as_bytes(), mode), expected, "{text} {mode:?}");
    }
    let of = |mode: &str, charset: &str| SqlMode::of(mode.as_bytes(), charset.as_bytes());
    assert_eq!(of("STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES", "utf8mb4"), bare);
    assert_eq!(of("REAL_AS_FLOAT,ANSI_QUOTES,IGNORE_SPACE,ANSI", "UTF8"), ansi);
    assert_eq!(of("oracle", "utf8mb3"), ansi);
    assert_eq!(of("", "latin1").charset, CharsetClass::AsciiSafe);
}

#[test]
fn the_character_set_decides_what_a_byte_is() {
    let safe = SqlMode { charset: CharsetClass::AsciiSafe, ..PLAIN };
    let not = SqlMode { charset: CharsetClass::Unsafe, ..PLAIN };
    for (text, mode, understood) in [
        (&b"SELECT 'a\x83\\'; SET a = 1 -- '"[..], PLAIN, true),
        (b"SELECT 'a\x83\\'; SET a = 1 -- '", not, false),
        (b"SELECT 1 /* \x83 */", not, false),
        (b"SELECT 'a'", not, true),
        (b"SELECT '\xa0', `\xa0` -- \xa0", safe, true),
        // A space in latin1.
        (b"CREATE TEMPORARY\xa0TABLE t (a int)", safe, false),
        (b"CREATE TEMPORARY\xa0TABLE t (a int)", PLAIN, false),
        ("SELECT \u{e0} FROM t".as_bytes(), PLAIN, true),
        ("SELECT \u{e0} FROM t".as_bytes(), safe, false),
    ] {
        let found = effects(text, mode);
        assert_eq!(!found.contains(Effects::UNPARSED), understood, "{}", text.escape_ascii());
    }
    for (number, charset) in [
        (45, CharsetClass::Utf8),
        (255, CharsetClass::Utf8),
        (2304, CharsetClass::Utf8),
        (8, CharsetClass::AsciiSafe),
        (63, CharsetClass::AsciiSafe),
        (28, CharsetClass::Unsafe),
        (1119, CharsetClass::Unsafe),
        (u16::MAX, CharsetClass::AsciiSafe),
    ] {
        assert_eq!(CharsetClass::of_collation(number), charset, "{number}");
    }
}

#[test]
fn bodies_of_routines_are_not_run() {
    let routine = Effects::DDL | Effects::ROUTINE;
    let then = routine | Effects::MULTI | Effects::SET;
    for (text, expected) in [
        ("CREATE PROCEDURE p() SELECT GET_LOCK('a', 1)", routine),
        ("CREATE DEFINER=`a`@`b` PROCEDURE p(x int) BEGIN SET @a = 1; CALL q(); END", routine),
        (
            "CREATE FUNCTION f() RETURNS int DETERMINISTIC BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION \
             BEGIN ROLLBACK; END; IF a THEN SET @a = 1; ELSE BEGIN SET @b = 1; END; END IF; \
             CASE x WHEN 1 THEN SET @c = 1; END CASE; SELECT CASE a WHEN 1 THEN 2 END; \
             l: LOOP LEAVE l; END LOOP l; FOR i IN 1..2 DO SET @d = 1; END FOR; RETURN 1; END; ",
            routine,
        ),
        ("CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW SET NEW.a = GET_LOCK('a', 1)", routine),
        ("CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO BEGIN DELETE FROM t; END", routine),
        ("ALTER EVENT e DO DELETE FROM t", routine),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; END; SET a = 1", then),
        ("CREATE PROCEDURE p() SELECT 1; SET a = 1", then),
        ("CREATE PROCEDURE begin() SELECT 1; SET a = 1", then),
        ("CREATE PROCEDURE p() SELECT begin FROM t; SET a = 1", then),
        ("CREATE PROCEDURE p() SELECT t.case FROM t; SET a = 1", then),
    ] {
        assert_eq!(found(text.as_bytes(), PLAIN), expected, "{text}");
    }
}

#[test]
fn variables_of_which_no_tracker_tells_are_told_apart() {
    for (text, expected) in [
        ("SET @@a = 1", true),
        ("SET b = 1, @@`a` := 2", true),
        ("SET a = 1", false),
        ("SET @@session.a = 1, @@local.b = 2, SESSION c = 3", false),
        ("SET @@global.a = 1, @a = 2", false),
        ("SET @@tx_isolation = 'SERIALIZABLE'", false),
        ("SELECT @@a", false),
    ] {
        let found = effects(text.as_bytes(), PLAIN).contains(Effects::SET_UNTOLD);
        assert_eq!(found, expected, "{text}");
        let details = details(text.as_bytes(), PLAIN);
        assert_eq!(details.assignments.iter().any(|it| it.is_untold), expected, "{text}");
    }
}

#[test]
fn locks_that_cannot_be_counted_are_told_apart() {
    for (text, expected) in [
        ("SELECT GET_LOCK('a', 1)", false),
        ("SELECT GET_LOCK('a', 1), get_lock('b', 1)", true),
        ("DO GET_LOCK('a', 1); DO GET_LOCK('b', 1)", true),
        ("SELECT GET_LOCK(a, 1) FROM t", true),
        ("EXECUTE IMMEDIATE 'DO GET_LOCK(\"a\", 1)'", true),
        ("SELECT 1", false),
    ] {
        let found = effects(text.as_bytes(), PLAIN).contains(Effects::GET_LOCKS);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_lock_alone_is_told_from_what_only_calls_for_one() {
    for (text, expected) in [
        ("SELECT GET_LOCK('a', 1)", true),
        ("select /* ) */ get_lock (CONCAT('a', (?)), 1) AS `x`;", true),
        ("SELECT GET_LOCK('a', 1) x", true),
        ("SELECT GET_LOCK('a', 1) 'x'", true),
        ("SELECT IF(GET_LOCK('a', 0) = 1, 0, 1)", false),
        ("SELECT GET_LOCK('a', 5) = 0", false),
        ("SELECT GET_LOCK('a', 5) + 1", false),
        ("SELECT GET_LOCK('a', 5) IS NULL", false),
        ("SELECT NOT GET_LOCK('a', 0)", false),
        ("SELECT -GET_LOCK('a', 0)", false),
        ("SELECT (GET_LOCK('a', 0))", false),
        ("SELECT GET_LOCK('a', 0), 0", false),
        ("SELECT GET_LOCK('a', 0) LIMIT 1", false),
        ("SELECT GET_LOCK('a', 0) UNION SELECT 0", false),
        ("SELECT GET_LOCK('a', 0); SELECT 0", false),
        ("SELECT GET_LOCK('a', 0) /*!50000 = 0 */", false),
        ("SELECT x.GET_LOCK('a', 0)", false),
        ("SELECT GET_LOCK", false),
        ("SELECT GET_LOCK('a', 0", false),
        ("DO GET_LOCK('a', 0)", false),
        ("", false),
    ] {
        assert_eq!(is_lock_alone(text.as_bytes(), PLAIN), expected, "{text}");
    }
}

#[test]
fn statements_that_use_tables_say_so() {
    for (text, expected) in [
        ("SELECT 1", false),
        ("SELECT a FROM t", true),
        ("SET @a = 1", false),
        ("SET @a = (SELECT b FROM t)", true),
        ("INSERT t VALUES (1)", true),
        ("UPDATE t SET a = 1", true),
        ("CALL p()", true),
        ("TABLE t", true),
        ("SHOW WARNINGS", false),
        ("BEGIN", false),
    ] {
        let found = effects(text.as_bytes(), PLAIN).contains(Effects::TABLES);
        assert_eq!(found, expected, "{text}");
    }
}
