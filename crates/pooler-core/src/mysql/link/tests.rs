//! Scenarios of one or two clients and servers, byte by byte.

mod codec;
mod commands;
mod large;
mod marks;
mod model;
mod others;
mod pins;
mod sessions;
mod simulation;
mod stage;

use stage::{Setup, play};

fn plays(script: &str) {
    play(&Setup::default(), script);
}

#[test]
fn a_clean_statement_costs_nothing_besides() {
    plays(
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         a: held
         s> COLS[1] DEF ROW[1] END
         a< COLS[1] DEF ROW[1] END
         a: free
         s: idle
         b> Q[INSERT INTO t VALUES (1)]
         s< Q[INSERT INTO t VALUES (1)]
         s> OK[n1]
         b< OK[n1]
         b: free",
    );
}

#[test]
fn old_drivers_get_their_ends_of_lists() {
    plays(
        "A> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[2] DEF DEF ROW[|x] ROW[NULL|y] END[w0]
         A< COLS[2] DEF DEF EOF ROW[|x] ROW[NULL|y] END
         A: free
         A> Q[SELECT 1 WHERE FALSE]
         s< Q[SELECT 1 WHERE FALSE]
         s> COLS[1] DEF END
         A< COLS[1] DEF EOF END
         A> Q[CALL p()]
         s< Q[CALL p()]
         s> COLS[1] DEF ROW[1] END[m] COLS[1] DEF ROW[2] END[m] OK
         A< COLS[1] DEF EOF ROW[1] END[m] COLS[1] DEF EOF ROW[2] END[m] OK
         s~
         A: free
         A> FIELDS[t]
         s< FIELDS[t]
         s> DEF DEF END
         A< DEF DEF END
         A> Q[SET time_zone='x']
         s< Q[SET time_zone='x']
         s> OK[var:time_zone=x,state,info:hm]
         A< OK[info:hm]
         A: free",
    );
    let modern = Setup { server: codec::OLD, tracks: false, ..Setup::default() };
    play(
        &modern,
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF EOF ROW[1] ROW[2] END
         a< COLS[1] DEF ROW[1] ROW[2] END
         a: free
         A> Q[SELECT 1]
         s< Q[SELECT 1]
         s> COLS[1] DEF EOF END
         A< COLS[1] DEF EOF END
         A: free
         a> Q[UPDATE t SET x = 1]
         s< Q[UPDATE t SET x = 1]
         s> OK[n3,info:Rows]
         a< OK[n3,info:Rows]
         a: free",
    );
}
