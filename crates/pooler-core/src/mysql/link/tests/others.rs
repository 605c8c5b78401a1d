//! State that one client could leave to another, and does not.

use super::stage::{Setup, play};

fn plays(script: &str) {
    play(&Setup::default(), script);
}

#[test]
fn a_deadlock_that_a_client_signals_ends_no_transaction() {
    plays(
        "a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a> Q[SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=1213]
         s< Q[SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=1213]
         s> ERR[1213]
         a< ERR[1213]
         s< Q[SET session_track_schema=1]
         s> OK[t]
         a<
         a: held",
    );
}

#[test]
fn what_was_told_of_one_text_says_nothing_of_the_next() {
    plays(
        "a> Q[SET STATEMENT sql_mode='' FOR SELECT 1]
         s< Q[SET STATEMENT sql_mode='' FOR SELECT 1]
         s> COLS[1] DEF ROW[1] END[var:sql_mode=]
         a< COLS[1] DEF ROW[1] END[var:sql_mode=]
         s< Q[SET session_track_schema=1]
         s> OK[var:sql_mode=TRADITIONAL,state]
         a<
         a: free
         b> Q[SET @@time_zone='x', @@sql_mode='ANSI_QUOTES']
         s< Q[SET sql_mode=DEFAULT] Q[SET @@time_zone='x', @@sql_mode='ANSI_QUOTES']
         s> OK -- OK
         b< OK
         b: free
         a> Q[SELECT 1]
         s< Q[SET sql_mode='TRADITIONAL',time_zone=DEFAULT] Q[SELECT 1]",
    );
}

#[test]
fn code_behind_a_text_finds_the_clients_own_last_insert_id() {
    plays(
        "a> Q[INSERT INTO t VALUES (NULL)]
         s< Q[INSERT INTO t VALUES (NULL)]
         s> OK[n1,i7]
         a< OK[n1,i7]
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[7] END
         a: free
         b> Q[CALL p()]
         s< Q[SELECT 1 FROM (SELECT 1) AS t] Q[SET last_insert_id=0] Q[CALL p()]
         s> COLS[1] DEF ROW[1] END -- OK -- OK
         b< OK",
    );
    // An explicit value is not the result of the function; a client that queries it gets the right
    // one.
    plays(
        "a> Q[INSERT INTO t VALUES (NULL)]
         s< Q[INSERT INTO t VALUES (NULL)]
         s> OK[n1,i7]
         a< OK[n1,i7]
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[7] END
         b> Q[SELECT LAST_INSERT_ID()]
         s< Q[SET last_insert_id=0] Q[SELECT LAST_INSERT_ID()]
         s> OK -- COLS[1] DEF ROW[0] END
         b< COLS[1] DEF ROW[0] END
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[0] END
         b<
         b: free
         a> Q[INSERT INTO t VALUES (NULL)]
         s< Q[SET last_insert_id=7] Q[INSERT INTO t VALUES (NULL)]
         s> OK -- OK[n1,i8]
         a< OK[n1,i8]
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[8] END
         b> Q[INSERT INTO t VALUES (50)]
         s< Q[SET last_insert_id=0] Q[INSERT INTO t VALUES (50)]
         s> OK -- OK[n1,i50]
         b< OK[n1,i50]
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[0] END
         b<
         b: free
         b> Q[SELECT LAST_INSERT_ID()]
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[0] END
         b< COLS[1] DEF ROW[0] END",
    );
}

#[test]
fn a_client_that_resets_its_session_is_another_one() {
    plays(
        "a> Q[CALL p()]
         s< Q[CALL p()]
         s> OK
         a< OK
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[0] END
         a<
         a: free
         a> RESET
         a< OK
         a> Q[SELECT @secret]
         s< RESET TRACKERS Q[SELECT @secret]",
    );
}

#[test]
fn a_question_that_fails_is_not_asked_for_ever() {
    plays(
        "a> Q[INSERT INTO t VALUES (1)]
         s< Q[INSERT INTO t VALUES (1)]
         s> ERR[1062]
         a< ERR[1062]
         s< Q[SET session_track_schema=1]
         s> ERR[1317]
         a<
         s~
         s: pins settings",
    );
}
