//! State that ends only with its server connection.

use super::check;
use super::stage::{Setup, play};

#[test]
fn a_connection_of_dblink_keeps_its_server_connection_and_ends_with_it() {
    for text in [
        "SELECT dblink_connect('secret', 'dbname=x')",
        "SELECT public.dblink_connect_u('dbname=x')",
        "DO 'BEGIN PERFORM dblink_connect(''dbname=x''); END'",
        "SELECT pg_replication_origin_session_setup('o')",
    ] {
        check(&format!(
            "a> Q[{text}]
             s> C[SELECT 1] ZI
             a: held
             a> Q[SELECT 1]
             s> C[SELECT 1] ZI
             a: held
             a gone: close"
        ));
    }
    // It is not transactional.
    check(
        "a> Q[BEGIN]
         s> C[BEGIN] ZT
         a> Q[SELECT dblink_connect('dbname=x')]
         s> C[SELECT 1] ZT
         a> Q[ROLLBACK]
         s> C[ROLLBACK] ZI
         a: held",
    );
}

fn asking() -> Setup {
    Setup { verify: api::VerifyMode::Unknown, ..Setup::default() }
}

#[test]
fn a_connection_of_dblink_that_code_opened_is_found() {
    play(
        &asking(),
        "a> Q[SELECT f()]
         s> C[SELECT 1] ZI
         s< Q[SELECT f()] Q[?]
         s> R[r|login|none] R[d|16500|-] C[SELECT 2] ZI
         s< F[16500]
         a: held
         s> V[secret] ZI
         a: held
         a gone: close",
    );
    play(
        &asking(),
        "a> Q[SELECT f()]
         s> C[SELECT 1] ZI R[r|login|none] R[d|16500|-] C[SELECT 2] ZI
         s> V[-] ZI
         a: free
         s: idle",
    );
    // The answer was lost to a cancel request with another target.
    play(
        &asking(),
        "a> Q[SELECT f()]
         s> C[SELECT 1] ZI R[r|login|none] R[d|16500|-] C[SELECT 2] ZI
         s> E[ERROR|57014|cancelled] ZI
         s< Q[SELECT f()] Q[?] F[16500] Q[?]
         s> R[d|16500|-] C[SELECT 1] ZI V[-] ZI
         a: free",
    );
    // It stays unknown.
    play(
        &asking(),
        "a> Q[SELECT f()]
         s> C[SELECT 1] ZI R[r|login|none] R[d|16500|-] C[SELECT 2] ZI
         s> E[ERROR|42501|not for you] ZI
         a: held",
    );
}

#[test]
fn a_client_that_leaves_is_not_believed_to_have_closed_what_code_opened() {
    play(
        &asking(),
        "a> Q[SELECT f()]
         a gone: cancel
         s> C[SELECT 1] ZI
         s< Q[SELECT f()] Q[?]
         s> R[d|16500|-] C[SELECT 1] ZI
         s< F[16500]
         s> V[secret] ZI
         s: broken",
    );
    play(
        &asking(),
        "a> Q[SELECT f()]
         a gone: cancel
         s> C[SELECT 1] ZI
         s< Q[SELECT f()] Q[?]
         s> C[SELECT 0] ZI
         s< Q[DISCARD ALL]
         s> C[DISCARD ALL] ZI
         s: idle",
    );
}

#[test]
fn a_copy_that_begins_after_its_client_left_ends_at_once() {
    check(
        "a> Q[COPY t FROM STDIN]
         a gone: cancel
         s< Q[COPY t FROM STDIN]
         s> G
         s< f
         s> E[ERROR|57014|COPY from stdin failed] ZI
         s: idle",
    );
    // Within a batch it is unknown which message would be a request.
    check(
        "a> P[|COPY t FROM STDIN] B[|] E[] S
         a gone: close",
    );
    check(
        "a> P[|COPY t FROM STDIN] B[|] E[] S
         s> 1 2 G
         a gone: cancel
         s< P[|COPY t FROM STDIN] B[|] E[] H f S",
    );
}
