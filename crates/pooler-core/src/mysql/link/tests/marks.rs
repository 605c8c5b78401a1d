//! Connections are marked while they work for a session, at no cost for other clients.
//!
//! Clients a and c belong to one session, client b to none.

use super::stage::{Setup, play};

fn plays(script: &str) {
    play(&Setup { marked: &['a', 'c'], ..Setup::default() }, script);
}

#[test]
fn a_connection_keeps_its_mark_until_somebody_else_comes() {
    plays(
        "a> Q[SELECT 1]
         s< MARK Q[SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         s: idle
         a> Q[SELECT 2]
         s< Q[SELECT 2]
         s> COLS[1] DEF ROW[2] END
         a< COLS[1] DEF ROW[2] END
         a: free
         c> Q[SELECT 3]
         s< Q[SELECT 3]
         s> COLS[1] DEF ROW[3] END
         c< COLS[1] DEF ROW[3] END
         c: free
         b> Q[SELECT 4]
         s< UNMARK Q[SELECT 4]
         s> OK -- COLS[1] DEF ROW[4] END
         b< COLS[1] DEF ROW[4] END
         b: free
         a> Q[SELECT 5]
         s< MARK Q[SELECT 5]
         s> OK -- COLS[1] DEF ROW[5] END
         a< COLS[1] DEF ROW[5] END
         a: free",
    );
}

#[test]
fn a_connection_that_rests_loses_its_mark() {
    plays(
        "a> Q[SELECT 1]
         s< MARK Q[SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         s: rests
         s< UNMARK
         s: idle
         s> OK
         s: idle
         a> Q[SELECT 2]
         s< MARK Q[SELECT 2]
         s> OK -- COLS[1] DEF ROW[2] END
         a< COLS[1] DEF ROW[2] END
         s: rests
         s< UNMARK
         b> Q[SELECT 3]
         s< Q[SELECT 3]
         s> OK -- COLS[1] DEF ROW[3] END
         b< COLS[1] DEF ROW[3] END
         b: free
         s: rests
         s~",
    );
}

#[test]
fn a_transaction_is_marked_once() {
    plays(
        "a> Q[BEGIN]
         s< MARK Q[BEGIN]
         s> OK -- OK[t]
         a< OK[t]
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END[t]
         a< COLS[1] DEF ROW[1] END[t]
         a: held
         a> Q[COMMIT]
         s< Q[COMMIT]
         s> OK
         a< OK
         a: free
         s: idle",
    );
}

#[test]
fn a_client_that_leaves_leaves_no_mark() {
    plays(
        "a> Q[BEGIN]
         s< MARK Q[BEGIN]
         s> OK -- OK[t]
         a gone: draining
         s< RESET TRACKERS
         s> OK -- OK
         s: idle
         b> Q[SELECT 1]
         s< Q[SELECT 1]",
    );
}

#[test]
fn where_there_are_no_locks_the_session_goes_on_without() {
    plays(
        "a> Q[SELECT 1]
         s< MARK Q[SELECT 1]
         s> ERR[1235] -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         s: idle
         a> Q[SELECT 2]
         s< Q[SELECT 2]
         s> COLS[1] DEF ROW[2] END
         a< COLS[1] DEF ROW[2] END
         a: free",
    );
}

#[test]
fn a_cancellation_that_meets_the_mark_is_made_good() {
    plays(
        "a> Q[BEGIN]
         s< MARK Q[BEGIN]
         s> ERR[1317] -- OK[t]
         a< OK[t]
         s< MARK
         s> OK[t]
         a: held
         a> Q[COMMIT]
         s< Q[COMMIT]
         s> OK
         a< OK
         a: free
         s: rests
         s< UNMARK
         s> ERR[1317]
         s: idle
         b> Q[SELECT 2]
         s< RESET TRACKERS Q[SELECT 2]
         s> OK -- OK -- COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END",
    );
}

#[test]
fn a_client_that_releases_all_locks_does_not_count_the_mark() {
    plays(
        "a> Q[BEGIN]
         s< MARK Q[BEGIN]
         s> OK -- OK[t]
         a< OK[t]
         a> Q[SELECT RELEASE_ALL_LOCKS()]
         s< UNMARK Q[SELECT RELEASE_ALL_LOCKS()]
         s> OK[t] -- COLS[1] DEF ROW[0] END[t]
         a< COLS[1] DEF ROW[0] END[t]
         s< MARK
         s> OK[t]
         a: held
         a> Q[CALL p()]
         s< Q[CALL p()]
         s> OK[t]
         a< OK[t]
         s< UNMARK
         s> OK[t]
         s< MARK
         s> OK[t]
         a: held",
    );
}

#[test]
fn what_a_statement_has_done_is_still_known_behind_the_mark() {
    plays(
        "a> Q[UPDATE t SET a = 1]
         s< MARK Q[UPDATE t SET a = 1]
         s> OK -- OK[n3]
         a< OK[n3]
         a: free
         s: rests
         s< UNMARK
         s> OK
         a> Q[SELECT ROW_COUNT()]
         s~
         a< COLS[1] DEF ROW[3] END
         a: free",
    );
}

#[test]
fn a_session_that_is_made_new_is_marked_anew() {
    plays(
        "a> Q[BEGIN]
         s< MARK Q[BEGIN]
         s> OK -- OK[t]
         a< OK[t]
         a> RESET
         s< RESET TRACKERS
         s> OK -- OK
         a< OK
         a: free
         a> Q[SELECT 1]
         s< MARK Q[SELECT 1]",
    );
}
