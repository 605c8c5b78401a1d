//! The dangers that are known from other poolers, each with texts that showed them.

use super::*;

/// Texts that other poolers took for harmless, and what has to be seen in them.
#[test]
fn what_others_missed_is_seen() {
    for (text, needed) in [
        // `SET TIMESTAMP` leaked to the next client.
        ("set timestamp=1700000000", Effects::SET_FIXED),
        ("SET @@timestamp=1700000000", Effects::SET_FIXED),
        // A temporary table by way of the binary protocol: its text is the same.
        ("CREATE TEMPORARY TABLE t AS SELECT ?", Effects::TEMP_CREATE),
        // Seen as the beginning of a transaction by some spellings only.
        ("/* app */ begin", Effects::TRANSACTION_BEGIN),
        ("START  /**/ TRANSACTION", Effects::TRANSACTION_BEGIN),
        ("-- x\nBEGIN", Effects::TRANSACTION_BEGIN),
        // Looked for as a prefix or with the parenthesis beside it.
        ("SELECT 1 + GET_LOCK ('a', 1)", Effects::GET_LOCK),
        ("select/**/get_lock/**/('a',1)", Effects::GET_LOCK),
        (" lock tables t read", Effects::LOCK_TABLES),
        ("/*!50000 LOCK TABLES */ t READ", Effects::LOCK_TABLES),
        // Any mention of a user variable counted; a value by `:=` within a statement too.
        ("SELECT * FROM t WHERE (@row := @row + 1) > 1", Effects::USER_VARIABLE_WRITE),
        ("UPDATE t SET a = (@x := a)", Effects::USER_VARIABLE_WRITE),
        // Behind another statement.
        ("SELECT 1; CREATE TEMPORARY TABLE t (a int)", Effects::TEMP_CREATE),
        ("SELECT 1;SET sql_log_bin=0", Effects::SET_FIXED),
        // Within another statement.
        ("SET STATEMENT max_statement_time=1 FOR LOCK TABLES t READ", Effects::LOCK_TABLES),
        ("EXPLAIN SELECT SQL_CALC_FOUND_ROWS 1", Effects::CALC_FOUND_ROWS),
        ("INSERT INTO t SELECT LAST_INSERT_ID(), CONNECTION_ID()", {
            Effects::LAST_INSERT_ID.with(Effects::CONNECTION_ID)
        }),
        ("SELECT IF(1, KILL, 2), connection_id ( ) FROM t", Effects::CONNECTION_ID),
        // A client that cancels somebody else's query.
        ("kill /* */ query 5", Effects::KILL),
        ("LOAD DATA CONCURRENT LOCAL INFILE '/etc/passwd' INTO TABLE t", Effects::LOCAL_INFILE),
        ("/*!LOAD DATA LOCAL INFILE 'x' INTO TABLE t */", Effects::LOCAL_INFILE),
    ] {
        assert!(effects(text.as_bytes(), PLAIN).contains(needed), "{text}");
    }
}
