//! When a connection is pinned to its client, and when the pin ends.

use api::{PoolMode, VerifyMode};

use super::codec;
use super::stage::{Setup, play};

/// Runs statements that are answered by `reply`, and checks the pins after each.
fn steps(setup: &Setup, steps: &[(&str, &str, &str)]) {
    let mut script = String::new();
    for (text, reply, pins) in steps {
        script += &format!("a> Q[{text}]\ns< Q[{text}]\ns> {reply}\ns~\ns: pins {pins}\n");
        script += if pins.is_empty() { "a: free\n" } else { "a: held\n" };
        // Other tests check the client's output.
        script += "a< *\n";
    }
    play(setup, &script);
}

fn check(all: &[(&str, &str, &str)]) {
    steps(&Setup::default(), all);
}

const ONE: &str = "COLS[1] DEF ROW[1] END";
const ZERO: &str = "COLS[1] DEF ROW[0] END";

#[test]
fn what_cannot_be_moved_keeps_its_connection() {
    check(&[
        ("CREATE TEMPORARY TABLE t1 (a INT)", "OK[state]", "temp_table"),
        ("CREATE TEMPORARY TABLE t2 (a INT)", "OK[state]", "temp_table"),
        ("DROP TEMPORARY TABLE t1", "OK[state]", "temp_table"),
        ("DROP TABLE t2", "ERR[1051]", "temp_table"),
        ("DROP TABLE t2", "OK[state]", ""),
    ]);
    check(&[
        ("CREATE TEMPORARY TABLE t (a INT)", "OK[state]", "temp_table"),
        // The sequence of the database.
        ("DROP SEQUENCE t", "OK", "temp_table"),
        ("CREATE TEMPORARY SEQUENCE s", "OK[state]", "temp_table"),
        ("DROP TABLE t", "OK[state]", "temp_table"),
        ("DROP TABLE s", "OK", "temp_table"),
        ("DROP SEQUENCE s", "OK[state]", ""),
    ]);
    check(&[("SET @x = 1", "OK[state]", "user_variable"), ("SELECT @x", ONE, "user_variable")]);
    check(&[("SELECT 1 INTO @x", "OK[n1,state]", "user_variable")]);
}

#[test]
fn locks_keep_their_connection() {
    check(&[
        ("SELECT GET_LOCK('a', 1)", ONE, "user_lock"),
        ("SELECT GET_LOCK('b', 1)", ONE, "user_lock"),
        ("SELECT GET_LOCK('c', 1)", ZERO, "user_lock"),
        ("SELECT RELEASE_LOCK('x')", ZERO, "user_lock"),
        ("SELECT RELEASE_LOCK('a')", ONE, "user_lock"),
        ("SELECT RELEASE_LOCK('b')", ONE, ""),
    ]);
    check(&[("SELECT GET_LOCK('c', 0)", ZERO, "")]);
    check(&[("SELECT GET_LOCK('c', 0)", "COLS[1] DEF ROW[NULL] END", "")]);
    check(&[
        ("SELECT GET_LOCK('a', 1)", ONE, "user_lock"),
        ("SELECT GET_LOCK('b', 1)", ONE, "user_lock"),
        ("DO RELEASE_ALL_LOCKS()", "OK", ""),
    ]);
    // The number of locks is not known.
    for text in ["SELECT GET_LOCK('a', 1), GET_LOCK('b', 1)", "DO GET_LOCK('a', 1)"] {
        check(&[
            (
                text,
                if text.starts_with("DO") { "OK" } else { "COLS[2] DEF DEF ROW[1|1] END" },
                "user_lock",
            ),
            ("SELECT RELEASE_LOCK('a')", ONE, "user_lock"),
            ("SELECT RELEASE_LOCK('b')", ONE, "user_lock"),
            ("SELECT RELEASE_ALL_LOCKS()", ONE, ""),
        ]);
    }
}

#[test]
fn a_value_that_is_not_the_locks_says_nothing_of_it() {
    for text in [
        "SELECT IF(GET_LOCK('a', 0) = 1, 0, 1)",
        "SELECT GET_LOCK('a', 5) = 0",
        "SELECT NOT GET_LOCK('a', 0)",
        "SELECT NULLIF(GET_LOCK('a', 0), 1)",
    ] {
        for reply in [ZERO, "COLS[1] DEF ROW[NULL] END"] {
            check(&[
                (text, reply, "user_lock"),
                ("SELECT RELEASE_LOCK('a')", ONE, "user_lock"),
                ("DO RELEASE_ALL_LOCKS()", "OK", ""),
            ]);
        }
    }
    check(&[("SELECT GET_LOCK('a', 0) + 1", "COLS[1] DEF ROW[2] END", "user_lock")]);
    check(&[("SELECT GET_LOCK('a', 0) AS got", ZERO, "")]);
    // Whether they were released is not known either.
    play(
        &Setup::default(),
        "a> Q[SELECT GET_LOCK('a', 0)]
         s< Q[SELECT GET_LOCK('a', 0)]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: held
         a> Q[SELECT IF(0, RELEASE_ALL_LOCKS(), 1)]
         s< Q[SELECT IF(0, RELEASE_ALL_LOCKS(), 1)]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         b> Q[SELECT 2]
         s< Q[DO RELEASE_ALL_LOCKS()] Q[SELECT 2]
         s> OK -- COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END",
    );
}

#[test]
fn locks_of_tables_and_open_ones_keep_their_connection() {
    check(&[
        ("LOCK TABLES t WRITE", "OK", "table_lock"),
        ("UNLOCK TABLES", "ERR[1064]", "table_lock"),
        ("UNLOCK TABLES", "OK", ""),
    ]);
    check(&[("FLUSH TABLES WITH READ LOCK", "OK", "table_lock"), ("UNLOCK TABLES", "OK", "")]);
    check(&[("BACKUP STAGE START", "OK", "backup"), ("BACKUP STAGE END", "OK", "")]);
    check(&[
        ("HANDLER t OPEN", "OK", "handler"),
        ("HANDLER t OPEN AS u", "OK", "handler"),
        ("HANDLER t READ FIRST", ONE, "handler"),
        ("HANDLER t CLOSE", "OK", "handler"),
        ("HANDLER u CLOSE", "OK", ""),
    ]);
    check(&[
        ("PREPARE s FROM 'SELECT 1'", "OK[state]", "sql_prepare"),
        ("PREPARE `S2` FROM 'SELECT 1'", "OK[state]", "sql_prepare"),
        ("EXECUTE s", ONE, "sql_prepare"),
        ("DEALLOCATE PREPARE S", "OK[state]", "sql_prepare"),
        ("DROP PREPARE s2", "OK[state]", ""),
    ]);
    check(&[
        ("SET timestamp = 1", "OK[var:timestamp=1,state]", "variable"),
        ("SELECT NOW()", ONE, "variable"),
        ("SET timestamp = DEFAULT", "OK[var:timestamp=1,state]", ""),
    ]);
    check(&[("SET SESSION sql_log_bin = 0", "OK[var:sql_log_bin=OFF,state]", "variable")]);
    check(&[("SET ROLE admin", "OK", "role")]);
    for text in ["SELECT NEXTVAL(s)", "SELECT NEXT VALUE FOR s", "INSERT INTO t VALUES (s.nextval)"]
    {
        let reply = if text.starts_with("INSERT") { "OK[n1]" } else { ONE };
        check(&[
            (text, reply, "sequence"),
            ("SELECT 1", ONE, "sequence"),
            ("SELECT LASTVAL(s)", ONE, "sequence"),
        ]);
    }
    check(&[("SELECT LASTVAL(s)", ONE, "sequence")]);
    check(&[
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "OK", "next_transaction"),
        ("SELECT 1", ONE, "next_transaction"),
        ("BEGIN", "OK[t]", "next_transaction"),
        ("COMMIT", "OK", ""),
    ]);
    check(&[
        ("SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1", ONE, "found_rows"),
        ("SELECT FOUND_ROWS()", ONE, ""),
    ]);
    check(&[
        ("SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1", ONE, "found_rows"),
        ("SELECT 1", ONE, ""),
    ]);
    check(&[("SELECT ROW_COUNT() + 1", ONE, "diagnostics"), ("SELECT 1", ONE, "")]);
    for end in ["XA COMMIT 'x'", "XA ROLLBACK 'x'"] {
        check(&[
            ("XA START 'x'", "OK[t]", "xa"),
            ("XA END 'x'", "OK[t]", "xa"),
            ("XA PREPARE 'x'", "OK[t]", "xa"),
            ("COMMIT", "ERR[1399]", "xa"),
            (end, "ERR[1402]", "xa"),
            (end, "OK", ""),
        ]);
    }
}

#[test]
fn what_failed_may_have_left_something_behind() {
    check(&[("SELECT GET_LOCK('a', 1), 1 / f(x)", "ERR[1305]", "user_lock")]);
    check(&[("CREATE TEMPORARY TABLE t1 AS SELECT nothing", "ERR[1054]", "temp_table")]);
    // The order of several statements' effects is unknown.
    check(&[
        (
            "SELECT GET_LOCK('a', 1); SELECT RELEASE_LOCK('a')",
            "COLS[1] DEF ROW[1] END[m] COLS[1] DEF ROW[1] END",
            "user_lock",
        ),
        ("DO RELEASE_ALL_LOCKS()", "OK", ""),
    ]);
}

#[test]
fn servers_tell_what_words_do_not() {
    check(&[("UPDATE t SET a = 1", "OK[n1,state]", "state")]);
    check(&[("CALL p()", "OK[state]", "state")]);
    check(&[("SELECT f()", "COLS[1] DEF ROW[1] END[state]", "state")]);
    check(&[("CALL p()", "OK[var:sql_log_bin=OFF]", "variable")]);
    check(&[("CALL p()", "OK", "")]);
    check(&[("INSERT INTO t VALUES (1)", "OK[n1,var:last_gtid=0-1-2]", "")]);
    check(&[("USE other", "OK[schema:other,state]", "")]);
    check(&[
        ("DROP DATABASE db", "OK[schema:,state]", "schema"),
        ("USE x", "OK[schema:x,state]", ""),
    ]);
    check(&[("SET time_zone = 'x'", "OK[var:time_zone=x,state]", "")]);
}

#[test]
fn what_servers_do_not_tell_is_understood_by_words() {
    check(&[("SET @@lock_wait_timeout = 7", "OK", "")]);
    check(&[("SET @@session.lock_wait_timeout = 7 + 1", "OK[var:lock_wait_timeout=8]", "")]);
    check(&[("SET SESSION TRANSACTION READ ONLY", "OK[var:tx_read_only=ON]", "")]);
    check(&[("SET @@lock_wait_timeout = 7", "ERR[1193]", "")]);
    for (text, reply) in [
        ("SET @@lock_wait_timeout = 7 + 1", "OK"),
        ("SET @@lock_wait_timeout = 7; SELECT broken", "OK[m] ERR[1054]"),
    ] {
        play(
            &Setup::default(),
            &format!(
                "a> Q[{text}]
                 s< Q[{text}]
                 s> {reply}
                 a< {reply}
                 s< Q[SET session_track_schema=1,SESSION lock_wait_timeout=@@lock_wait_timeout]
                 s> OK[var:lock_wait_timeout=8,state]
                 a: free
                 server 2
                 a> Q[SELECT 1]
                 s< Q[SET lock_wait_timeout=8] Q[SELECT 1]"
            ),
        );
    }
    play(
        &Setup::default(),
        "a> Q[SET a = 1, @@lock_wait_timeout = 7]
         s< Q[SET a = 1, @@lock_wait_timeout = 7]
         s> OK[var:a=1]
         a< OK[var:a=1]
         a: free
         b> Q[SELECT 1]
         s< Q[SET a=DEFAULT,lock_wait_timeout=DEFAULT] Q[SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END
         b< COLS[1] DEF ROW[1] END
         a> Q[SELECT 1]
         s< Q[SET a=1,lock_wait_timeout=7] Q[SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END",
    );
}

#[test]
fn a_server_that_tells_nothing_is_understood_by_words() {
    let setup = Setup { tracks: false, server: codec::OLD, ..Setup::default() };
    let one = "COLS[1] DEF EOF ROW[1] END";
    steps(
        &setup,
        &[
            ("SET time_zone = '+01:00'", "OK", ""),
            ("SET NAMES latin1", "OK", ""),
            ("USE other", "OK", ""),
        ],
    );
    steps(&setup, &[("SET time_zone = (SELECT x FROM t)", "OK", "settings")]);
    steps(&setup, &[("CALL p()", "OK", "settings"), ("SELECT 1", one, "settings")]);
}

#[test]
fn transactions_keep_their_connection() {
    check(&[("SELECT 1", ONE, "")]);
    play(
        &Setup::default(),
        "a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a: held
         a> Q[SELECT broken]
         s< Q[SELECT broken]
         s> ERR[1054]
         a< ERR[1054]
         a: held
         a> Q[COMMIT]
         s< Q[COMMIT]
         s> OK
         a< OK
         a: free
         a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a> Q[UPDATE t SET a = 1]
         s< Q[UPDATE t SET a = 1]
         s> ERR[1205]
         a< ERR[1205]
         a: held
         a> Q[UPDATE t SET a = 1]
         s< Q[UPDATE t SET a = 1]
         s> ERR[1213]
         a< ERR[1213]
         a: held
         s< Q[SET session_track_schema=1]
         s> OK
         a<
         a: free
         a> Q[SELECT broken]
         s< Q[SELECT broken]
         s> ERR[1054]
         a< ERR[1054]
         a: free",
    );
}

#[test]
fn without_autocommit_a_statement_begins_what_a_commit_ends() {
    play(
        &Setup::default(),
        "a> Q[SET autocommit=0]
         s< Q[SET autocommit=0]
         s> OK[a,var:autocommit=OFF]
         a< OK[a,var:autocommit=OFF]
         a: free
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END[a]
         a< COLS[1] DEF ROW[1] END[a]
         a: held
         a> Q[COMMIT]
         s< Q[COMMIT]
         s> OK[a]
         a< OK[a]
         a: free
         b> Q[SELECT 2]
         s< Q[SET autocommit=DEFAULT] Q[SELECT 2]
         s> OK -- COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END
         b: free
         a> Q[SELECT 3]
         s< Q[SET autocommit='OFF'] Q[SELECT 3]
         s> OK[a] -- COLS[1] DEF ROW[3] END[a]
         a< COLS[1] DEF ROW[3] END[a]
         a: held
         a> Q[SET autocommit=1]
         s< Q[SET autocommit=1]
         s> OK[var:autocommit=ON]
         a< OK[var:autocommit=ON]
         a: free",
    );
}

#[test]
fn modes_decide_when_a_connection_is_given_back() {
    let session = Setup { mode: PoolMode::Session, ..Setup::default() };
    play(
        &session,
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: held",
    );
    let statement = Setup { mode: PoolMode::Statement, ..Setup::default() };
    play(
        &statement,
        "a> Q[BEGIN]
         a< ERR[1235]
         a: free
         a> Q[SET autocommit=0]
         a< ERR[1235]
         a> Q[SET autocommit=1]
         s< Q[SET autocommit=1]
         s> OK[var:autocommit=ON]
         a< OK[var:autocommit=ON]
         a: free
         a> Q[CALL begins()]
         s< Q[CALL begins()]
         s> OK[t]
         a< OK[t] ERR[1235]
         a: closed",
    );
    let always = Setup { verify: VerifyMode::Always, ..Setup::default() };
    play(
        &always,
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         b> Q[SELECT 2]
         s< RESET TRACKERS Q[SELECT 2]
         s> OK -- OK -- COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END
         b: free",
    );
}

#[test]
fn locks_that_nobody_saw_are_given_back_before_another_comes() {
    play(
        &Setup::default(),
        "a> Q[CALL locks()]
         s< Q[CALL locks()]
         s> OK
         a< OK
         s~
         a: free
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         b> Q[SELECT 2]
         s< RESET TRACKERS Q[SELECT 2]
         s> OK -- OK -- COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END
         b: free",
    );
    let never = Setup { verify: VerifyMode::Never, ..Setup::default() };
    play(
        &never,
        "a> Q[CALL locks()]
         s< Q[CALL locks()]
         s> OK
         a< OK
         s~
         b> Q[SELECT 2]
         s< Q[SELECT 2]
         s> COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END",
    );
    // An old server has no such function: locks that cannot be released cause resets from then on.
    play(
        &Setup::default(),
        "a> Q[SELECT RELEASE_LOCK('a')]
         s< Q[SELECT RELEASE_LOCK('a')]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         b> Q[SELECT RELEASE_LOCK('b')]
         s< Q[DO RELEASE_ALL_LOCKS()] Q[SELECT RELEASE_LOCK('b')]
         s> ERR[1305] -- COLS[1] DEF ROW[1] END
         b< COLS[1] DEF ROW[1] END
         b: free
         a> Q[SELECT 1]
         s< RESET TRACKERS Q[SELECT 1]
         s> OK -- OK -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END",
    );
}

#[test]
fn what_is_answered_here_holds_no_connection() {
    play(
        &Setup::default(),
        "a> PREPARE[SELECT 7]
         s< PREPARE[SELECT 7]
         s> PREPARED[5|1|0] DEF
         a< PREPARED[1|1|0] DEF
         a: free
         b> PREPARE[SELECT 7]
         b< PREPARED[1|1|0] DEF
         b: free
         s: idle
         B> PREPARE[SELECT 7]
         B< PREPARED[1|1|0] DEF EOF
         B: free
         a> EXECUTE[1|c]
         s< EXECUTE[5|c]
         s> COLS[1] DEF END[c]
         a< COLS[1] DEF END[c]
         a: held
         a> CLOSE[1]
         s< CLOSE[5]
         a: free
         s: idle",
    );
}
