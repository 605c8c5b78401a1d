//! Analysis of texts: tables of texts without effects, of texts with effects, and of details.

use super::*;

mod details;
mod facts;
mod prohibited;
mod random;

const PLAIN: SqlMode =
    SqlMode { ansi_quotes: false, no_backslash_escapes: false, charset: CharsetClass::Utf8 };

/// Returns the effects of `text`, without those of nearly every text.
fn found(text: &[u8], mode: SqlMode) -> MysqlEffects {
    effects(text, mode).without(ELSEWHERE)
}

/// Effects of nearly every text, or tested separately.
const ELSEWHERE: MysqlEffects = MysqlEffects::TABLES
    .with(MysqlEffects::USER_VARIABLE_READ)
    .with(MysqlEffects::GET_LOCKS)
    .with(MysqlEffects::INSERTS)
    .with(MysqlEffects::LOADS)
    .with(MysqlEffects::SET_UNTOLD);

fn check(text: &str, expected: MysqlEffects) {
    assert_eq!(found(text.as_bytes(), PLAIN), expected, "{text}");
    // Neither case nor whitespace between words matters.
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
        check(text, MysqlEffects::NONE);
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
        check(text, MysqlEffects::WRITES);
    }
}

#[test]
fn what_may_give_numbers_to_rows_is_said() {
    const NUMBERS: MysqlEffects = MysqlEffects::INSERTS.with(MysqlEffects::LOADS);
    for (text, expected) in [
        ("INSERT INTO t VALUES (1)", MysqlEffects::INSERTS),
        ("REPLACE INTO t VALUES (1) RETURNING id", MysqlEffects::INSERTS),
        ("ANALYZE INSERT INTO t VALUES (1)", MysqlEffects::INSERTS),
        ("SET STATEMENT insert_id = 1 FOR INSERT INTO t VALUES (1)", MysqlEffects::INSERTS),
        ("SELECT 1; INSERT INTO t VALUES (1)", MysqlEffects::INSERTS),
        ("LOAD DATA INFILE 'x' INTO TABLE t", NUMBERS),
        ("LOAD XML LOCAL INFILE 'x' INTO TABLE t", NUMBERS),
        ("LOAD INDEX INTO CACHE t", MysqlEffects::NONE),
        ("UPDATE t SET a = 1", MysqlEffects::NONE),
        ("DELETE FROM t", MysqlEffects::NONE),
        ("SELECT REPLACE('a', 'b', 'c'), INSERT('a', 1, 2, 'b')", MysqlEffects::NONE),
    ] {
        let effects = effects(text.as_bytes(), PLAIN);
        assert_eq!(effects.without(effects.without(NUMBERS)), expected, "{text}");
    }
}

const SET_MANY: MysqlEffects = MysqlEffects::SET
    .with(MysqlEffects::USER_VARIABLE_WRITE)
    .with(MysqlEffects::GLOBAL)
    .with(MysqlEffects::SET_EXPRESSION);

/// Texts with their effects.
const LEAVES: &[(&str, MysqlEffects)] = &[
    // Transactions.
    ("BEGIN", MysqlEffects::TRANSACTION_BEGIN),
    ("BEGIN WORK", MysqlEffects::TRANSACTION_BEGIN),
    ("BEGIN NOT ATOMIC SELECT 1; END", BLOCK.with(MysqlEffects::MULTI)),
    ("BEGIN SELECT 1; END", BLOCK.with(MysqlEffects::MULTI)),
    ("START TRANSACTION", MysqlEffects::TRANSACTION_BEGIN),
    ("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", MysqlEffects::TRANSACTION_BEGIN),
    (
        "START TRANSACTION READ WRITE",
        MysqlEffects::TRANSACTION_BEGIN.with(MysqlEffects::READ_WRITE),
    ),
    ("COMMIT", MysqlEffects::COMMIT),
    ("COMMIT WORK AND NO CHAIN NO RELEASE", MysqlEffects::COMMIT),
    ("COMMIT AND CHAIN", MysqlEffects::COMMIT.with(MysqlEffects::TRANSACTION_BEGIN)),
    ("ROLLBACK AND CHAIN NO RELEASE", MysqlEffects::ROLLBACK.with(MysqlEffects::TRANSACTION_BEGIN)),
    ("ROLLBACK RELEASE", MysqlEffects::ROLLBACK.with(MysqlEffects::CLOSES)),
    ("ROLLBACK TO a", MysqlEffects::SAVEPOINT),
    ("ROLLBACK WORK TO SAVEPOINT `a`", MysqlEffects::SAVEPOINT),
    ("COMMIT TO a", MysqlEffects::COMMIT.with(MysqlEffects::UNPARSED)),
    ("SAVEPOINT a", MysqlEffects::SAVEPOINT),
    ("RELEASE SAVEPOINT a", MysqlEffects::SAVEPOINT),
    ("XA START 'a'", MysqlEffects::XA),
    ("XA COMMIT 'a' ONE PHASE", MysqlEffects::XA.with(MysqlEffects::XA_END)),
    ("XA ROLLBACK 'a'", MysqlEffects::XA.with(MysqlEffects::XA_END)),
    ("XA PREPARE 'commit'", MysqlEffects::XA),
    // Server variables.
    ("SET a = 1", MysqlEffects::SET),
    ("SET SESSION a = 1", MysqlEffects::SET),
    ("SET LOCAL a := 'x', @@b = ON, @@session.c = -1", MysqlEffects::SET),
    ("SET `a` = DEFAULT", MysqlEffects::SET),
    ("SET a=1, @b=2, GLOBAL d=3, @@e=(SELECT 1), LOCAL f=4", SET_MANY),
    ("SET PERSIST a = 1", MysqlEffects::GLOBAL),
    ("SET @@PERSIST_ONLY.a = 1", MysqlEffects::GLOBAL),
    ("SET @@global.a = (SELECT 1), GLOBAL hot.key_buffer_size = 1", MysqlEffects::GLOBAL),
    ("SET @@hot.key_buffer_size = 1", MysqlEffects::GLOBAL),
    ("SET a = 1 + 1", MysqlEffects::SET.with(MysqlEffects::SET_EXPRESSION)),
    ("SET a = @@b", MysqlEffects::SET.with(MysqlEffects::SET_EXPRESSION)),
    ("SET a = ?", MysqlEffects::SET.with(MysqlEffects::SET_EXPRESSION)),
    ("SET a = 'x' 'y'", MysqlEffects::SET.with(MysqlEffects::SET_EXPRESSION)),
    ("SET a.b = 1", MysqlEffects::SET_UNKNOWN),
    ("SET", MysqlEffects::NONE),
    ("SET x", MysqlEffects::SET_UNKNOWN),
    ("SET RESOURCE GROUP g", MysqlEffects::SET_UNKNOWN),
    ("SET autocommit = 0", MysqlEffects::SET.with(MysqlEffects::AUTOCOMMIT)),
    ("SET @@autocommit := OFF", MysqlEffects::SET.with(MysqlEffects::AUTOCOMMIT)),
    ("SET timestamp = 5", MysqlEffects::SET.with(MysqlEffects::SET_FIXED)),
    ("SET @@session.sql_log_bin = 0", MysqlEffects::SET.with(MysqlEffects::SET_FIXED)),
    ("SET `gtid_next` = 'x'", MysqlEffects::SET.with(MysqlEffects::SET_FIXED)),
    ("SET sql_mode = ANSI", MysqlEffects::SET),
    ("SET profiling = 1", MysqlEffects::SET.with(MysqlEffects::SET_FIXED)),
    ("SET NAMES utf8mb4 COLLATE utf8mb4_bin, a = 1", MysqlEffects::SET.with(MysqlEffects::NAMES)),
    ("SET NAMES DEFAULT", MysqlEffects::SET.with(MysqlEffects::NAMES)),
    ("SET CHARACTER SET utf8mb4", CHARACTER_SET),
    ("SET CHARSET 'utf8mb4'", CHARACTER_SET),
    ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY", MysqlEffects::NEXT_TRANSACTION),
    ("SET TRANSACTION READ WRITE", MysqlEffects::NEXT_TRANSACTION.with(MysqlEffects::READ_WRITE)),
    ("SET @@tx_isolation = 'SERIALIZABLE'", MysqlEffects::NEXT_TRANSACTION),
    ("SET tx_isolation = 'SERIALIZABLE'", MysqlEffects::SET),
    ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", MysqlEffects::SET),
    ("SET SESSION TRANSACTION READ WRITE", MysqlEffects::SET.with(MysqlEffects::READ_WRITE)),
    ("SET GLOBAL TRANSACTION READ ONLY", MysqlEffects::GLOBAL),
    ("SET tx_read_only = 1", MysqlEffects::SET),
    (
        "SET @@session.transaction_read_only = 'off'",
        MysqlEffects::SET.with(MysqlEffects::READ_WRITE),
    ),
    ("SET tx_read_only = DEFAULT", MysqlEffects::SET.with(MysqlEffects::READ_WRITE)),
    (
        "SET STATEMENT max_statement_time = 1, tx_read_only = 0 FOR SELECT 1",
        MysqlEffects::READ_WRITE,
    ),
    ("SET STATEMENT timestamp = 1 FOR INSERT INTO t (a) VALUES (1)", MysqlEffects::WRITES),
    ("SET STATEMENT a = 1 FOR SET b = 2", MysqlEffects::SET_UNKNOWN.with(MysqlEffects::READ_WRITE)),
    (
        "PREPARE p FROM 'SET STATEMENT a = 1 FOR SET tx_read_only = 0'",
        MysqlEffects::SQL_PREPARE.with(MysqlEffects::READ_WRITE),
    ),
    ("SET STATEMENT a = 1 FOR CALL p()", MysqlEffects::CALL),
    ("SET PASSWORD = PASSWORD('x')", MysqlEffects::GLOBAL.with(MysqlEffects::WRITES)),
    ("SET PASSWORD FOR 'a'@'b' = 'x'", MysqlEffects::GLOBAL.with(MysqlEffects::WRITES)),
    ("SET ROLE a", MysqlEffects::ROLE),
    ("SET ROLE NONE", MysqlEffects::ROLE),
    ("SET DEFAULT ROLE a FOR b", MysqlEffects::GLOBAL.with(MysqlEffects::DDL)),
    ("USE `a`", MysqlEffects::USE),
    // User variables.
    ("SET @a = 1", MysqlEffects::USER_VARIABLE_WRITE),
    ("SET @`a b` := 1, @'c' = 2", MysqlEffects::USER_VARIABLE_WRITE),
    ("SELECT @a := 1", MysqlEffects::USER_VARIABLE_WRITE),
    ("SELECT @a/* */:=1 FROM t", MysqlEffects::USER_VARIABLE_WRITE),
    ("SELECT 1, 2 INTO @a, @b", MysqlEffects::USER_VARIABLE_WRITE),
    ("SELECT a INTO @`x` FROM t", MysqlEffects::USER_VARIABLE_WRITE),
    ("CALL p(@a)", MysqlEffects::USER_VARIABLE_WRITE.with(MysqlEffects::CALL)),
    ("EXECUTE s USING @a", MysqlEffects::USER_VARIABLE_WRITE.with(MysqlEffects::SQL_EXECUTE)),
    ("LOAD DATA INFILE 'x' INTO TABLE t (@a) SET b = @a", {
        MysqlEffects::WRITES.with(MysqlEffects::USER_VARIABLE_WRITE)
    }),
    (
        "GET DIAGNOSTICS @a = NUMBER",
        MysqlEffects::DIAGNOSTICS.with(MysqlEffects::USER_VARIABLE_WRITE),
    ),
    ("GET CURRENT DIAGNOSTICS CONDITION 1 @a = MESSAGE_TEXT", {
        MysqlEffects::DIAGNOSTICS.with(MysqlEffects::USER_VARIABLE_WRITE)
    }),
    // Tables of the session, and locks.
    ("CREATE TEMPORARY TABLE t (a int)", TEMPORARY),
    ("CREATE OR REPLACE TEMPORARY TABLE t SELECT 1", TEMPORARY),
    ("CREATE TEMPORARY SEQUENCE s", TEMPORARY),
    ("CREATE TABLE temporary (a int)", MysqlEffects::DDL),
    ("DROP TEMPORARY TABLE IF EXISTS t", MysqlEffects::DDL.with(MysqlEffects::TEMP_DROP)),
    ("DROP TABLE a, b", MysqlEffects::DDL.with(MysqlEffects::TEMP_DROP)),
    ("ALTER TABLE a RENAME TO b", MysqlEffects::DDL.with(MysqlEffects::TEMP_RENAME)),
    ("RENAME TABLE a TO b", MysqlEffects::DDL.with(MysqlEffects::TEMP_RENAME)),
    ("SELECT GET_LOCK('a', 1)", MysqlEffects::GET_LOCK),
    ("SELECT GET_LOCK ('a', 1)", MysqlEffects::GET_LOCK),
    ("SELECT GET_LOCK/* */('a', 1)", MysqlEffects::GET_LOCK),
    ("DO get_lock\n('a', 1)", MysqlEffects::GET_LOCK),
    ("SELECT `get_lock`('a', 1)", MysqlEffects::GET_LOCK.with(MysqlEffects::UNKNOWN_FUNCTION)),
    ("SELECT 1 FROM t WHERE is_free_lock('a') AND release_lock('a')", MysqlEffects::RELEASE_LOCK),
    ("DO RELEASE_ALL_LOCKS()", MysqlEffects::RELEASE_ALL_LOCKS),
    ("LOCK TABLES a READ, b WRITE", MysqlEffects::LOCK_TABLES),
    ("LOCK TABLE a WRITE", MysqlEffects::LOCK_TABLES),
    ("UNLOCK TABLES", MysqlEffects::UNLOCK_TABLES),
    ("FLUSH TABLES WITH READ LOCK", MysqlEffects::ADMIN.with(MysqlEffects::LOCK_TABLES)),
    ("FLUSH TABLES a, b FOR EXPORT", MysqlEffects::ADMIN.with(MysqlEffects::LOCK_TABLES)),
    ("FLUSH PRIVILEGES", MysqlEffects::ADMIN),
    ("BACKUP STAGE START", MysqlEffects::BACKUP_LOCK),
    ("BACKUP STAGE END", MysqlEffects::BACKUP_UNLOCK),
    ("BACKUP LOCK t", MysqlEffects::BACKUP_LOCK),
    ("BACKUP UNLOCK", MysqlEffects::BACKUP_UNLOCK),
    ("LOCK INSTANCE FOR BACKUP", MysqlEffects::BACKUP_LOCK),
    ("UNLOCK INSTANCE", MysqlEffects::BACKUP_UNLOCK),
    ("HANDLER t OPEN AS h", MysqlEffects::HANDLER),
    ("HANDLER h READ FIRST", MysqlEffects::HANDLER),
    // Code that is not in the text.
    ("PREPARE s FROM 'SELECT ?'", MysqlEffects::SQL_PREPARE),
    ("PREPARE s FROM @a", MysqlEffects::SQL_PREPARE.with(MysqlEffects::READ_WRITE)),
    ("PREPARE s FROM 'SET SESSION TRANSACTION READ WRITE'", {
        MysqlEffects::SQL_PREPARE.with(MysqlEffects::READ_WRITE)
    }),
    ("PREPARE s FROM 'SET SESSION TRANSACTION' ' READ WRITE'", {
        MysqlEffects::SQL_PREPARE.with(MysqlEffects::READ_WRITE)
    }),
    ("EXECUTE s", MysqlEffects::SQL_EXECUTE),
    (
        "EXECUTE IMMEDIATE 'DO GET_LOCK(\"a\", 1)'",
        MysqlEffects::SQL_EXECUTE.with(MysqlEffects::GET_LOCK),
    ),
    (
        "EXECUTE IMMEDIATE concat('a', 'b')",
        MysqlEffects::SQL_EXECUTE.with(MysqlEffects::READ_WRITE),
    ),
    ("DEALLOCATE PREPARE s", MysqlEffects::SQL_DEALLOCATE),
    ("DROP PREPARE s", MysqlEffects::SQL_DEALLOCATE),
    ("CALL s.p(1)", MysqlEffects::CALL),
    ("CALL p(f(1))", MysqlEffects::CALL.with(MysqlEffects::UNKNOWN_FUNCTION)),
    ("SELECT f(1)", MysqlEffects::UNKNOWN_FUNCTION),
    ("SELECT s.f(1)", MysqlEffects::UNKNOWN_FUNCTION),
    ("SELECT s.abs(1)", MysqlEffects::UNKNOWN_FUNCTION),
    ("SELECT `f`(1)", MysqlEffects::UNKNOWN_FUNCTION),
    ("SELECT 1f(2)", MysqlEffects::UNKNOWN_FUNCTION),
    ("SELECT max (a) FROM t", MysqlEffects::UNKNOWN_FUNCTION),
    ("SELECT 1 FROM t WHERE sys.format_path(a) = ''", MysqlEffects::UNKNOWN_FUNCTION),
    ("INSERT INTO t (a) VALUES (f(1))", MysqlEffects::WRITES.with(MysqlEffects::UNKNOWN_FUNCTION)),
    (
        "CREATE TABLE t (a int) SELECT f(1) a",
        MysqlEffects::DDL.with(MysqlEffects::UNKNOWN_FUNCTION),
    ),
    ("SET a = f(1)", {
        MysqlEffects::SET.with(MysqlEffects::SET_EXPRESSION).with(MysqlEffects::UNKNOWN_FUNCTION)
    }),
    // State that only the last connection has.
    ("SELECT LAST_INSERT_ID()", MysqlEffects::LAST_INSERT_ID),
    ("SELECT @@last_insert_id", MysqlEffects::LAST_INSERT_ID),
    ("SELECT @@session.identity", MysqlEffects::LAST_INSERT_ID),
    ("SELECT @@session.`identity`", MysqlEffects::LAST_INSERT_ID),
    ("INSERT INTO t (a) VALUES (LAST_INSERT_ID())", {
        MysqlEffects::LAST_INSERT_ID.with(MysqlEffects::WRITES)
    }),
    ("SELECT ROW_COUNT()", MysqlEffects::ROW_COUNT),
    ("SELECT FOUND_ROWS()", MysqlEffects::FOUND_ROWS),
    ("SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1", MysqlEffects::CALC_FOUND_ROWS),
    ("SHOW WARNINGS LIMIT 1", MysqlEffects::SHOW_WARNINGS),
    ("SHOW COUNT(*) ERRORS", MysqlEffects::SHOW_WARNINGS),
    ("SELECT @@warning_count, @@local.error_count", MysqlEffects::SHOW_WARNINGS),
    ("SELECT CONNECTION_ID()", MysqlEffects::CONNECTION_ID),
    ("SELECT @@pseudo_thread_id", MysqlEffects::CONNECTION_ID),
    ("KILL QUERY 5", MysqlEffects::KILL),
    ("PREPARE s FROM 'KILL 7'", MysqlEffects::SQL_PREPARE.with(MysqlEffects::KILL)),
    ("PREPARE s FROM 'SELECT `kill`, t.kill'", MysqlEffects::SQL_PREPARE),
    ("EXECUTE IMMEDIATE 'KILL 7'", MysqlEffects::SQL_EXECUTE.with(MysqlEffects::KILL)),
    ("SET STATEMENT max_statement_time = 1 FOR KILL 7", MysqlEffects::KILL),
    ("CREATE PROCEDURE p() KILL 7", MysqlEffects::DDL.with(MysqlEffects::ROUTINE)),
    ("BEGIN NOT ATOMIC IF 1 THEN KILL 7", {
        MysqlEffects::TRANSACTION_BEGIN.with(MysqlEffects::UNPARSED).with(MysqlEffects::KILL)
    }),
    ("SELECT GET_LOCK ('x', 1)", MysqlEffects::GET_LOCK),
    ("SELECT GET_LOCK\n/* */ ('x', 1)", MysqlEffects::GET_LOCK),
    ("SELECT RELEASE_ALL_LOCKS ()", MysqlEffects::RELEASE_ALL_LOCKS),
    ("KILL CONNECTION_ID()", MysqlEffects::KILL.with(MysqlEffects::CONNECTION_ID)),
    ("SELECT NEXTVAL(s)", MysqlEffects::SEQUENCE_NEXT),
    ("SELECT NEXT VALUE FOR s", MysqlEffects::SEQUENCE_NEXT),
    ("SELECT s.nextval", MysqlEffects::SEQUENCE_NEXT),
    ("SELECT LASTVAL(s)", MysqlEffects::SEQUENCE),
    ("SELECT PREVIOUS VALUE FOR s", MysqlEffects::SEQUENCE),
    ("SELECT s.currval", MysqlEffects::SEQUENCE),
    // The rest.
    (
        "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
        MysqlEffects::LOCAL_INFILE.with(MysqlEffects::WRITES),
    ),
    ("LOAD DATA LOW_PRIORITY LOCAL INFILE 'x' INTO TABLE t", {
        MysqlEffects::LOCAL_INFILE.with(MysqlEffects::WRITES)
    }),
    (
        "LOAD XML LOCAL INFILE 'x' INTO TABLE t",
        MysqlEffects::LOCAL_INFILE.with(MysqlEffects::WRITES),
    ),
    ("CREATE TABLE t (a varchar(10) DEFAULT 'x', KEY k (a), CHECK (a > 1))", MysqlEffects::DDL),
    ("CREATE INDEX i ON t (a)", MysqlEffects::DDL),
    ("ALTER TABLE t ADD COLUMN b decimal(10, 2), ADD FOREIGN KEY f (a) REFERENCES u (b)", {
        MysqlEffects::DDL
    }),
    ("CREATE TABLE event (a int); SET a = 1", {
        MysqlEffects::DDL.with(MysqlEffects::MULTI).with(MysqlEffects::SET)
    }),
    ("DROP DATABASE d", MysqlEffects::DDL),
    ("TRUNCATE TABLE t", MysqlEffects::DDL),
    ("GRANT SELECT (a) ON t TO u", MysqlEffects::DDL),
    ("CREATE USER 'a'@'b' IDENTIFIED BY 'x'", MysqlEffects::DDL),
    ("ANALYZE TABLE t PERSISTENT FOR COLUMNS (a) INDEXES (b)", MysqlEffects::ADMIN),
    ("OPTIMIZE TABLE t", MysqlEffects::ADMIN),
    ("CHANGE MASTER TO master_host = 'x'", MysqlEffects::ADMIN),
    ("START SLAVE", MysqlEffects::ADMIN),
    ("STOP REPLICA", MysqlEffects::ADMIN),
    ("RESET MASTER", MysqlEffects::ADMIN),
    ("PURGE BINARY LOGS TO 'x'", MysqlEffects::ADMIN),
    ("INSTALL PLUGIN a SONAME 'b'", MysqlEffects::ADMIN),
    ("SHUTDOWN", MysqlEffects::ADMIN),
    ("BINLOG 'x'", MysqlEffects::UNPARSED),
    ("FROBNICATE", MysqlEffects::UNPARSED),
    ("SELECT 1; SELECT 2", MysqlEffects::MULTI),
    ("BEGIN; SELECT 1; COMMIT", {
        MysqlEffects::MULTI.with(MysqlEffects::TRANSACTION_BEGIN).with(MysqlEffects::COMMIT)
    }),
    ("SELECT (1; SET a = 1", MysqlEffects::MULTI.with(MysqlEffects::SET)),
    // Texts that change their own parsing mode.
    (
        "SET sql_mode = ''; SELECT 1",
        MysqlEffects::MULTI.with(MysqlEffects::SET).with(MysqlEffects::UNPARSED),
    ),
    ("SET NAMES gbk; SELECT 1", {
        MysqlEffects::MULTI
            .with(MysqlEffects::SET)
            .with(MysqlEffects::NAMES)
            .with(MysqlEffects::UNPARSED)
    }),
];

const BLOCK: MysqlEffects = MysqlEffects::UNPARSED.with(MysqlEffects::TRANSACTION_BEGIN);
const TEMPORARY: MysqlEffects = MysqlEffects::DDL.with(MysqlEffects::TEMP_CREATE);
const CHARACTER_SET: MysqlEffects =
    MysqlEffects::SET.with(MysqlEffects::NAMES).with(MysqlEffects::SET_EXPRESSION);

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
        assert!(effects(text.as_bytes(), PLAIN).contains(MysqlEffects::UNPARSED), "{text}");
    }
}

#[test]
fn comments_that_are_code_are_read_as_code() {
    for (text, expected) in [
        ("/*!40101 SET NAMES utf8 */;", MysqlEffects::SET.with(MysqlEffects::NAMES)),
        ("/*! SET a = 1 */", MysqlEffects::SET),
        ("SELECT 1 /*!40000 , GET_LOCK('a', 1) */", MysqlEffects::GET_LOCK),
        ("SELECT /*! 1 /* not ' this */ , GET_LOCK('a', 1) */", MysqlEffects::GET_LOCK),
        ("/*M! SET a = 1 */", MysqlEffects::SET),
        ("/*M!100203 SET a = 1 */", MysqlEffects::SET),
        ("/*!80000 SET a = 1 */", MysqlEffects::SET),
        ("/*!100100 SET a = 1 */", MysqlEffects::SET),
        // If it is a comment, this is a call; if it is code, it is not.
        ("SELECT GET_LOCK /*!80000 + 1 */ ('a', 1)", MysqlEffects::GET_LOCK),
        ("SELECT /*!80000 f */ (1)", MysqlEffects::UNKNOWN_FUNCTION),
        // It ends elsewhere if it is code.
        ("SELECT /*!80000 'a */ ; SET a = 1 -- ' */", {
            MysqlEffects::UNPARSED.with(MysqlEffects::SET).with(MysqlEffects::MULTI)
        }),
        ("SELECT 1 /*!80000 + 1 */ /*!80100 + 1 */", MysqlEffects::UNPARSED),
        ("SELECT 1 /*!80000 + 1 */ /*!80000 + 1 */", MysqlEffects::NONE),
        ("SELECT 1 */ 2", MysqlEffects::NONE),
    ] {
        assert_eq!(found(text.as_bytes(), PLAIN), expected, "{text}");
    }
}

#[test]
fn the_mode_decides_where_strings_end() {
    let ansi = SqlMode { ansi_quotes: true, ..PLAIN };
    let bare = SqlMode { no_backslash_escapes: true, ..PLAIN };
    let set = MysqlEffects::SET | MysqlEffects::MULTI;
    for (text, mode, expected) in [
        ("SELECT \"a\\\"; SET a = 1; -- \"", PLAIN, MysqlEffects::NONE),
        ("SELECT \"a\\\"; SET a = 1; -- \"", ansi, set),
        ("SELECT 'a\\'; SET a = 1; -- '", PLAIN, MysqlEffects::NONE),
        ("SELECT 'a\\'; SET a = 1; -- '", bare, set),
        ("SELECT 'a\\'; SET a = 1; -- '", ansi, MysqlEffects::NONE),
        (
            "SELECT \"get_lock\"('a', 1)",
            ansi,
            MysqlEffects::GET_LOCK | MysqlEffects::UNKNOWN_FUNCTION,
        ),
        ("SET \"timestamp\" = 1", ansi, MysqlEffects::SET | MysqlEffects::SET_FIXED),
        ("SET \"timestamp\" = 1", PLAIN, MysqlEffects::SET_UNKNOWN),
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
        assert_eq!(!found.contains(MysqlEffects::UNPARSED), understood, "{}", text.escape_ascii());
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
    let routine = MysqlEffects::DDL | MysqlEffects::ROUTINE;
    let then = routine | MysqlEffects::MULTI | MysqlEffects::SET;
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
        let found = effects(text.as_bytes(), PLAIN).contains(MysqlEffects::SET_UNTOLD);
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
        let found = effects(text.as_bytes(), PLAIN).contains(MysqlEffects::GET_LOCKS);
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
        let found = effects(text.as_bytes(), PLAIN).contains(MysqlEffects::TABLES);
        assert_eq!(found, expected, "{text}");
    }
}
