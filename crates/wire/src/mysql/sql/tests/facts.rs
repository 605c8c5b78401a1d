//! Dangers that are known from other poolers, each with texts that triggered them.

use super::*;

/// Texts that other poolers considered harmless, and their actual effects.
#[test]
fn what_others_missed_is_seen() {
    for (text, needed) in [
        // `SET TIMESTAMP` leaked to the next client.
        ("set timestamp=1700000000", MysqlEffects::SET_FIXED),
        ("SET @@timestamp=1700000000", MysqlEffects::SET_FIXED),
        // A temporary table by way of the binary protocol: its text is the same.
        ("CREATE TEMPORARY TABLE t AS SELECT ?", MysqlEffects::TEMP_CREATE),
        // Recognized as the beginning of a transaction only in some spellings.
        ("/* app */ begin", MysqlEffects::TRANSACTION_BEGIN),
        ("START  /**/ TRANSACTION", MysqlEffects::TRANSACTION_BEGIN),
        ("-- x\nBEGIN", MysqlEffects::TRANSACTION_BEGIN),
        // Searched for as a prefix, or only directly before the parenthesis.
        ("SELECT 1 + GET_LOCK ('a', 1)", MysqlEffects::GET_LOCK),
        ("select/**/get_lock/**/('a',1)", MysqlEffects::GET_LOCK),
        (" lock tables t read", MysqlEffects::LOCK_TABLES),
        ("/*!50000 LOCK TABLES */ t READ", MysqlEffects::LOCK_TABLES),
        // Every mention of a user variable counted; an assignment by `:=` within a statement
        // counts, too.
        ("SELECT * FROM t WHERE (@row := @row + 1) > 1", MysqlEffects::USER_VARIABLE_WRITE),
        ("UPDATE t SET a = (@x := a)", MysqlEffects::USER_VARIABLE_WRITE),
        // After another statement.
        ("SELECT 1; CREATE TEMPORARY TABLE t (a int)", MysqlEffects::TEMP_CREATE),
        ("SELECT 1;SET sql_log_bin=0", MysqlEffects::SET_FIXED),
        // Within another statement.
        ("SET STATEMENT max_statement_time=1 FOR LOCK TABLES t READ", MysqlEffects::LOCK_TABLES),
        ("EXPLAIN SELECT SQL_CALC_FOUND_ROWS 1", MysqlEffects::CALC_FOUND_ROWS),
        ("INSERT INTO t SELECT LAST_INSERT_ID(), CONNECTION_ID()", {
            MysqlEffects::LAST_INSERT_ID.with(MysqlEffects::CONNECTION_ID)
        }),
        ("SELECT IF(1, KILL, 2), connection_id ( ) FROM t", MysqlEffects::CONNECTION_ID),
        // A client that cancels another client's query.
        ("kill /* */ query 5", MysqlEffects::KILL),
        (
            "LOAD DATA CONCURRENT LOCAL INFILE '/etc/passwd' INTO TABLE t",
            MysqlEffects::LOCAL_INFILE,
        ),
        ("/*!LOAD DATA LOCAL INFILE 'x' INTO TABLE t */", MysqlEffects::LOCAL_INFILE),
    ] {
        assert!(effects(text.as_bytes(), PLAIN).contains(needed), "{text}");
    }
}
