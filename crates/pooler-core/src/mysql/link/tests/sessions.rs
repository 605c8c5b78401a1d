//! A client's session is the same at every connection.

use super::stage::{Setup, play};

fn plays(script: &str) {
    play(&Setup::default(), script);
}

#[test]
fn settings_go_with_the_client() {
    plays(
        "a> Q[SET time_zone = '+01:00']
         s< Q[SET time_zone = '+01:00']
         s> OK[var:time_zone=+01:00,state]
         a< OK[var:time_zone=+01:00,Change]
         a: free
         a> Q[SELECT NOW()]
         s< Q[SELECT NOW()]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         b> Q[SELECT NOW()]
         s< Q[SET time_zone=DEFAULT] Q[SELECT NOW()]
         s> OK[var:time_zone=SYSTEM] -- COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[2] END
         b: free
         server 2
         a> Q[SELECT NOW()]
         s< Q[SET time_zone='+01:00'] Q[SELECT NOW()]
         s> OK -- COLS[1] DEF ROW[3] END
         a< COLS[1] DEF ROW[3] END
         a: free",
    );
}

#[test]
fn the_schema_is_waited_for() {
    plays(
        "a> USE[other]
         s< USE[other]
         s> OK[schema:other,state]
         a< OK[schema:other,Change]
         a: free
         server 2
         a> Q[SELECT 1]
         s< USE[other]
         s> OK[schema:other]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         server 1
         b> Q[SELECT 2]
         s< USE[db]
         s> ERR[1049]
         b< ERR[1049]
         b: closed
         s: broken",
    );
}

#[test]
fn what_cannot_be_set_fails_the_client() {
    plays(
        "a> Q[SET time_zone = 'x']
         s< Q[SET time_zone = 'x']
         s> OK[var:time_zone=x]
         a< OK[var:time_zone=x]
         server 2
         a> Q[SELECT 1]
         s< Q[SET time_zone='x'] Q[SELECT 1]
         s> ERR[1298]
         a< ERR[1298]
         a: closed
         s: broken",
    );
}

#[test]
fn forced_settings_stay() {
    let setup = Setup { forced: &[("max_statement_time", "5")], ..Setup::default() };
    play(
        &setup,
        "a> Q[SET max_statement_time = 0]
         s< Q[SET max_statement_time = 0]
         s> OK[var:max_statement_time=0,state]
         a< OK[var:max_statement_time=0,Change]
         a: free
         a> Q[SELECT 1]
         s< Q[SET max_statement_time=5] Q[SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END",
    );
}

#[test]
fn the_last_insert_id_is_the_clients_own() {
    plays(
        "a> Q[INSERT INTO t VALUES (NULL)]
         s< Q[INSERT INTO t VALUES (NULL)]
         s> OK[n1,i7]
         a< OK[n1,i7]
         s< Q[SELECT LAST_INSERT_ID()]
         a: held
         s> COLS[1] DEF ROW[7] END
         a<
         a: free
         b> Q[SELECT LAST_INSERT_ID()]
         s< Q[SET last_insert_id=0] Q[SELECT LAST_INSERT_ID()]
         s> OK -- COLS[1] DEF ROW[0] END
         b< COLS[1] DEF ROW[0] END
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[0] END
         b<
         b: free
         a> Q[SELECT LAST_INSERT_ID()]
         s< Q[SET last_insert_id=7] Q[SELECT LAST_INSERT_ID()]
         s> OK -- COLS[1] DEF ROW[7] END
         a< COLS[1] DEF ROW[7] END
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[7] END
         a: free
         a> Q[SELECT LAST_INSERT_ID(9)]
         s< Q[SELECT LAST_INSERT_ID(9)]
         s> COLS[1] DEF ROW[9] END
         a< COLS[1] DEF ROW[9] END
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[9] END
         a: free
         server 2
         a> Q[SELECT LAST_INSERT_ID()]
         s< Q[SET last_insert_id=9] Q[SELECT LAST_INSERT_ID()]
         s> OK -- COLS[1] DEF ROW[9] END
         a< COLS[1] DEF ROW[9] END",
    );
}

/// Ids that no reply reports: errors hide those of earlier rows, and so do result rows.
#[test]
fn an_id_of_which_no_reply_tells_is_asked_for() {
    let one = "COLS[1] DEF ROW[8] END";
    for (text, reply) in [
        ("INSERT INTO t VALUES (NULL), (1)", "ERR[1062]"),
        ("INSERT INTO t VALUES (NULL) RETURNING id", one),
        ("REPLACE INTO t VALUES (NULL) RETURNING id", one),
        ("LOAD DATA INFILE 'f' INTO TABLE t", "OK[n1]"),
        ("INSERT INTO t VALUES (NULL); SELECT broken", "OK[n1,i8,m] ERR[1054]"),
        ("EXECUTE IMMEDIATE CONCAT('INSERT')", "OK[n1]"),
        ("CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY) SELECT 1", "OK[n1]"),
    ] {
        let flush =
            if reply.contains("ERR") { "Q[SET session_track_schema=1]\ns> OK\ns< " } else { "" };
        plays(&format!(
            "a> Q[{text}]
             s< Q[{text}]
             s> {reply}
             a< *
             s< {flush}Q[SELECT LAST_INSERT_ID()]
             s> COLS[1] DEF ROW[8] END
             a<
             a: free
             server 2
             a> Q[SELECT LAST_INSERT_ID()]
             s< Q[SET last_insert_id=8] Q[SELECT LAST_INSERT_ID()]"
        ));
    }
}

/// A view or a function cannot read the id of another client.
#[test]
fn others_find_no_id_in_their_session() {
    plays(
        "a> Q[INSERT INTO t VALUES (NULL)]
         s< Q[INSERT INTO t VALUES (NULL)]
         s> OK[n1,i7]
         a< OK[n1,i7]
         s< Q[SELECT LAST_INSERT_ID()]
         s> COLS[1] DEF ROW[7] END
         a: free
         b> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         b: free
         b> Q[SELECT id FROM reads]
         s< Q[SET last_insert_id=0] Q[SELECT id FROM reads]
         s> OK -- COLS[1] DEF ROW[0] END
         b: free
         a> Q[INSERT INTO u VALUES (1)]
         s< Q[SET last_insert_id=7] Q[INSERT INTO u VALUES (1)]
         s> OK -- OK[n1]
         a: free",
    );
}

/// Texts that query more than is kept do not see the state of another client.
#[test]
fn diagnostics_of_others_are_taken_away_first() {
    for (text, is_forgotten) in [
        ("SELECT 1", false),
        ("UPDATE t SET a = 1", false),
        ("SELECT ROW_COUNT() + 1", true),
        ("SELECT 1, FOUND_ROWS()", true),
        ("GET DIAGNOSTICS CONDITION 1 @m = MESSAGE_TEXT", true),
        ("SHOW WARNINGS; SELECT 1", true),
        ("CALL p()", true),
        ("SELECT f(1)", true),
    ] {
        let forgets = if is_forgotten { "Q[SELECT 1 FROM (SELECT 1) AS t] " } else { "" };
        plays(&format!(
            "a> Q[SELECT broken]
             s< Q[SELECT broken]
             s> ERR[1054]
             a: free
             b> Q[{text}]
             s< {forgets}Q[{text}]"
        ));
    }
}

#[test]
fn warnings_are_kept_for_who_asks_later() {
    plays(
        "a> Q[INSERT INTO t VALUES ('x')]
         s< Q[INSERT INTO t VALUES ('x')]
         s> OK[n1,w1]
         a< OK[w1,n1]
         s< Q[SHOW WARNINGS]
         a: held
         s> COLS[3] DEF DEF DEF ROW[Warning|1366|bad] END
         a<
         a: free
         b> Q[SHOW WARNINGS]
         b< COLS[3] DEF DEF DEF END
         a> Q[SHOW WARNINGS]
         a< COLS[3] DEF DEF DEF ROW[Warning|1366|bad] END
         a> Q[SHOW COUNT(*) WARNINGS]
         a< COLS[1] DEF ROW[1] END
         a> Q[SELECT @@warning_count]
         a< COLS[1] DEF ROW[1] END
         a> Q[SELECT broken]
         s< Q[SELECT broken]
         s> ERR[1054]
         a< ERR[1054]
         a: free
         a> Q[SHOW ERRORS]
         a< COLS[3] DEF DEF DEF ROW[Error|1054|no] END
         a> Q[SELECT 1 FROM t]
         s< Q[SELECT 1 FROM t]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a> Q[SHOW WARNINGS]
         a< COLS[3] DEF DEF DEF END
         A> Q[SHOW WARNINGS]
         A< COLS[3] DEF DEF DEF EOF END",
    );
    // State from before a transaction that nothing in it has cleared.
    plays(
        "a> Q[SELECT broken]
         s< Q[SELECT broken]
         s> ERR[1054]
         a< ERR[1054]
         a: free
         a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a> Q[SHOW WARNINGS]
         a< COLS[3] DEF DEF DEF ROW[Error|1054|no] END[t]
         a> Q[INSERT INTO t VALUES (1)]
         s< Q[INSERT INTO t VALUES (1)]
         s> OK[t,n1]
         a< OK[t,n1]
         a> Q[SHOW WARNINGS]
         s< Q[SHOW WARNINGS]
         s> COLS[3] DEF DEF DEF END[t]
         a< COLS[3] DEF DEF DEF END[t]",
    );
    plays(
        "a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a> Q[SHOW WARNINGS]
         a< COLS[3] DEF DEF DEF END[t]",
    );
}

#[test]
fn what_nobody_waits_for_leaves_nothing_to_others() {
    plays(
        "a> Q[INSERT INTO t VALUES (NULL)]
         s< Q[INSERT INTO t VALUES (NULL)]
         a gone: cancel
         s> OK[n1,i7]
         s: idle
         b> Q[SELECT LAST_INSERT_ID()]
         s< Q[SET last_insert_id=0] Q[SELECT LAST_INSERT_ID()]
         s> OK -- COLS[1] DEF ROW[0] END
         b< COLS[1] DEF ROW[0] END",
    );
}

#[test]
fn a_reset_keeps_the_schema() {
    plays(
        "a> USE[other]
         s< USE[other]
         s> OK[schema:other,state]
         a< OK[schema:other,Change]
         a> RESET
         a< OK
         server 2
         a> Q[SELECT DATABASE()]
         s< USE[other]",
    );
}

#[test]
fn counts_are_kept_for_who_asks_later() {
    plays(
        "a> Q[UPDATE t SET a = 1]
         s< Q[UPDATE t SET a = 1]
         s> OK[n3]
         a< OK[n3]
         a> Q[SELECT ROW_COUNT()]
         a< COLS[1] DEF ROW[3] END
         a: free
         a> Q[SELECT ROW_COUNT()]
         a< COLS[1] DEF ROW[-1] END
         a> Q[SELECT a FROM t]
         s< Q[SELECT a FROM t]
         s> COLS[1] DEF ROW[1] ROW[2] END
         a< COLS[1] DEF ROW[1] ROW[2] END
         A> Q[SELECT a FROM t]
         s< Q[SELECT a FROM t]
         s> COLS[1] DEF ROW[1] ROW[2] ROW[3] END
         A< COLS[1] DEF EOF ROW[1] ROW[2] ROW[3] END
         a> Q[select found_rows()]
         a< COLS[1] DEF ROW[2] END
         A> Q[select found_rows()]
         A< COLS[1] DEF EOF ROW[3] END",
    );
}

/// MySQL reports the number of every statement, and MariaDB the count of the rows at their end.
#[test]
fn rows_are_counted_whatever_is_told_behind_them() {
    plays(
        "a> Q[SELECT a FROM t]
         s< Q[SELECT a FROM t]
         s> COLS[1] DEF ROW[1] ROW[2] END[var:statement_id=576]
         a< COLS[1] DEF ROW[1] ROW[2] END[var:statement_id=576]
         a: free
         a> Q[SELECT FOUND_ROWS()]
         a< COLS[1] DEF ROW[2] END
         a> Q[SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1]
         s< Q[SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1]
         s> COLS[1] DEF ROW[1] END[var:statement_id=577]
         a< COLS[1] DEF ROW[1] END[var:statement_id=577]
         a: held
         a> Q[SELECT FOUND_ROWS()]
         s< Q[SELECT FOUND_ROWS()]",
    );
}

#[test]
fn a_client_knows_its_own_number() {
    plays(
        "a> Q[SELECT CONNECTION_ID()]
         s< Q[SELECT (97) AS `CONNECTION_ID()`]
         s> COLS[1] DEF ROW[97] END
         a< COLS[1] DEF ROW[97] END
         a> Q[KILL 12]
         a: kills 12
         a< OK
         a> Q[KILL QUERY 13]
         a: kills 13 query
         a< OK
         a> KILL[14]
         a: kills 14
         a< OK
         a> Q[KILL USER x]
         a< ERR[1235]
         a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a> Q[KILL QUERY 15]
         a: kills 15 query
         a< OK[t]",
    );
}

#[test]
fn several_statements_are_for_those_who_ask() {
    plays(
        "a> OPTION[1]
         a< END
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a> Q[SELECT 1; SELECT 2]
         s< OPTION[1] Q[SELECT 1; SELECT 2]
         s> END -- ERR[1064]
         a< ERR[1064]
         s< Q[SET session_track_schema=1]
         s> OK[state]
         a: free
         b> Q[SELECT 1; SELECT 2]
         s< OPTION[0] Q[SELECT 1; SELECT 2]
         s> END -- COLS[1] DEF ROW[1] END[m] COLS[1] DEF ROW[2] END
         b< COLS[1] DEF ROW[1] END[m] COLS[1] DEF ROW[2] END
         b: free
         A> OPTION[0]
         A< END",
    );
}

#[test]
fn a_reset_is_answered_where_nothing_is_to_be_reset() {
    plays(
        "a> Q[SET time_zone = 'x']
         s< Q[SET time_zone = 'x']
         s> OK[var:time_zone=x]
         a< OK[var:time_zone=x]
         a> RESET
         a< OK
         a> Q[SELECT 1]
         s< Q[SET time_zone=DEFAULT] Q[SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a> Q[SET @x = 1]
         s< Q[SET @x = 1]
         s> OK[state]
         a< OK[Change]
         a: held
         a> RESET
         s< RESET TRACKERS
         s> OK -- OK
         a< OK
         a: free
         s: pins",
    );
}

#[test]
fn sequences_are_not_read_by_others() {
    plays(
        "a> Q[INSERT INTO t VALUES (DEFAULT)]
         s< Q[INSERT INTO t VALUES (DEFAULT)]
         s> OK[n1]
         a< OK[n1]
         a: free
         b> Q[SELECT LASTVAL(s)]
         s< RESET TRACKERS Q[SELECT LASTVAL(s)]
         s> OK -- OK -- COLS[1] DEF ROW[NULL] END
         b< COLS[1] DEF ROW[NULL] END
         b: held",
    );
}

#[test]
fn what_a_server_has_not_told_is_asked_for() {
    plays(
        "a> Q[CALL p()]
         s< Q[CALL p()]
         s> ERR[1644]
         a< ERR[1644]
         s< Q[SET session_track_schema=1]
         s> OK[var:session_track_schema=ON,var:time_zone=x,state]
         a<
         s~
         a: free
         b> Q[SELECT 1]
         s< RESET TRACKERS Q[SELECT 1]
         s> OK -- OK -- COLS[1] DEF ROW[1] END
         b< COLS[1] DEF ROW[1] END
         a> Q[SET STATEMENT max_statement_time=1 FOR SELECT 1]
         s< Q[SET time_zone='x'] Q[SET STATEMENT max_statement_time=1 FOR SELECT 1]
         s> OK -- COLS[1] DEF ROW[1] END[var:max_statement_time=1]
         a< COLS[1] DEF ROW[1] END[var:max_statement_time=1]
         s< Q[SET session_track_schema=1]
         s> OK[var:max_statement_time=0,state]
         a: free",
    );
    plays(
        "a> Q[CALL p()]
         s< Q[CALL p()]
         s> OK[var:character_set_connection=latin1]
         s~
         s: pins settings",
    );
}
