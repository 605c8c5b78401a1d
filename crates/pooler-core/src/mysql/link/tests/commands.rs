//! Commands other than texts, departing clients, and clients that violate the protocol.

use super::codec;
use super::stage::{Setup, play};

fn plays(script: &str) {
    play(&Setup::default(), script);
}

#[test]
fn some_commands_need_no_server() {
    plays(
        "a> PING
         a< OK
         a: free
         a> CLOSE[5]
         a<
         a> REWIND[5]
         a< ERR[1243]
         a> EXECUTE[5]
         a< ERR[1243]
         a> STATISTICS
         s< STATISTICS
         s> TEXT[Uptime: 1]
         a< TEXT[Uptime: 1]
         a: free
         a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         a> PING
         s< PING
         s> OK[t]
         a< OK[t]
         a> QUIT
         a: closed",
    );
}

#[test]
fn only_what_has_not_begun_is_executed_again() {
    let prepared = |text: &str, columns: &str| {
        format!(
            "a> PREPARE[{text}]
             s< PREPARE[{text}]
             s> PREPARED[5{columns}
             a< PREPARED[1{columns}
             a> EXECUTE[1]
             s< EXECUTE[5]\n"
        )
    };
    for code in [1243, 1615] {
        let begun = prepared("SELECT a FROM v", "|1|0] DEF");
        plays(&format!(
            "{begun}
             s> ERR[{code}]
             a<
             s< CLOSE[5] PREPARE[SELECT a FROM v]
             s> PREPARED[6|1|0] DEF
             s< EXECUTE[6]
             s> COLS[1] DEF BIN[1] END
             a< COLS[1] DEF BIN[1] END"
        ));
        // The error comes from a function in the view.
        plays(&format!(
            "{begun}
             s> COLS[1] DEF ERR[{code}]
             a< COLS[1] DEF ERR[{code}]
             s< CLOSE[5] Q[SET session_track_schema=1]"
        ));
        // A procedure may have run partly.
        for before in ["", "COLS[1] DEF BIN[1] END[m] ", "OK[m] "] {
            plays(&format!(
                "{}
                 s> {before}ERR[{code}]
                 a< {before}ERR[{code}]
                 s< CLOSE[5] Q[SET session_track_schema=1]",
                prepared("CALL p()", "|0|0]")
            ));
        }
    }
}

#[test]
fn what_is_not_for_sharing_is_refused() {
    // Replication, shutdown, and unknown commands.
    for code in ["00", "08", "0B", "0D", "0F", "12", "13", "15", "1D", "1E", "20", "FA"] {
        plays(&format!("a> X[{code}00]\na< ERR[1235]\na: free\na> PING\na< OK"));
    }
    for code in ["99", ""] {
        plays(&format!("a> X[{code}]\na< ERR[1047]\na: free\na> PING\na< OK"));
    }
    plays("a> X[11616263]\na: changes abc");
}

#[test]
fn files_are_asked_for_only_where_they_may() {
    let text = "LOAD DATA LOCAL INFILE 'f' INTO TABLE t";
    plays(&format!("a> Q[{text}]\na< ERR[1148]\na: free"));
    // The server requests a file nevertheless.
    plays(
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> FILE[/etc/passwd]
         s< DATA[]
         a< ERR[1148]
         s> OK
         a<
         a: free",
    );
    let setup = Setup { local_infile: true, ..Setup::default() };
    play(
        &setup,
        &format!(
            "a> Q[{text}]
             s< Q[{text}]
             s> FILE[f]
             a< FILE[f]
             a> DATA[one] DATA[two] DATA[]
             s< DATA[one] DATA[two] DATA[]
             s> OK[n2]
             a< OK[n2]
             s~
             a: free
             A> Q[SELECT 1; {text}]
             s< Q[SELECT 1; {text}]
             s> COLS[1] DEF ROW[1] END[m] FILE[f]
             A< COLS[1] DEF EOF ROW[1] END[m] FILE[f]
             A> DATA[one]
             s< DATA[one]
             A gone: close"
        ),
    );
}

#[test]
fn a_farewell_has_a_number_that_its_client_expects() {
    plays("a> Q[SELECT 1]\ns< Q[SELECT 1]\na farewell: ERR[1158]");
    let setup = Setup { local_infile: true, ..Setup::default() };
    let text = "LOAD DATA LOCAL INFILE 'f' INTO TABLE t";
    let begin = format!("a> Q[{text}]\ns< Q[{text}]\ns> FILE[f]\na< FILE[f]");
    play(&setup, &format!("{begin}\na farewell: nothing"));
    play(&setup, &format!("{begin}\na> DATA[one]\na farewell: nothing"));
    play(&setup, &format!("{begin}\na> DATA[one] DATA[]\na farewell: ERR[1158]"));
}

#[test]
fn who_leaves_leaves_nothing() {
    plays(
        "a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a gone: draining
         s< RESET TRACKERS
         s> OK -- OK
         s: idle
         b> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         b< COLS[1] DEF ROW[1] END",
    );
    plays(
        "a> Q[SET @x = 1]
         s< Q[SET @x = 1]
         s> OK[state]
         a gone: draining
         s< RESET TRACKERS
         s> OK -- ERR[1193]
         s: idle
         s: pins",
    );
    plays(
        "a> Q[SELECT SLEEP(9)]
         s< Q[SELECT SLEEP(9)]
         s> COLS[1] DEF
         a gone: cancel
         s> ERR[1317]
         s: idle",
    );
    plays(
        "a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a> Q[SELECT SLEEP(9)]
         s< Q[SELECT SLEEP(9)]
         a gone: cancel
         s> ERR[1317]
         s< RESET TRACKERS
         s> ERR[1]
         s: broken",
    );
    let session = Setup { mode: api::PoolMode::Session, ..Setup::default() };
    play(
        &session,
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF ROW[1] END
         a gone: draining
         s< RESET TRACKERS
         s> OK -- OK
         s: idle",
    );
}

#[test]
fn a_server_may_say_why_it_closes() {
    plays(
        "a> Q[BEGIN]
         s< Q[BEGIN]
         s> OK[t]
         a< OK[t]
         s> -- ERR[1053]
         s: broken",
    );
    plays(
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> ERR[1053]
         a< ERR[1053]
         a: held",
    );
}

#[test]
fn replies_that_make_no_sense_end_the_connection() {
    for reply in ["TEXT[]", "OK OK", "EOF", "COLS[0]"] {
        plays(&format!("a> Q[SELECT 1]\ns< Q[SELECT 1]\ns> {reply}\ns: broken"));
    }
    let old = Setup { server: codec::OLD, ..Setup::default() };
    play(&old, "a> Q[SELECT 1]\ns< Q[SELECT 1]\ns> COLS[1] DEF ROW[1]\ns: broken");
}
