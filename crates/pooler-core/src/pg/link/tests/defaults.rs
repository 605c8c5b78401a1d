//! Resets: a client's settings are reset to its start values, at any point of a transaction.

use super::stage::{Setup, play};

/// Block of code that sets the search path to its exact value; `SET` would change its spelling.
const PATH: &str =
    "DO 'BEGIN PERFORM pg_catalog.set_config(''search_path'',''x,\"Y z\"'',false); END'";

/// Returns the setup of a client that started with a name and a search path.
fn started() -> Setup {
    Setup {
        settings: &[('a', "application_name", "mine"), ('a', "search_path", "x,\"Y z\"")],
        ..Setup::default()
    }
}

/// Checks that a text within a transaction is sent as `expected`, and the client receives `told`.
fn check_text(text: &str, expected: &str, answers: &str, told: &str) {
    play(
        &started(),
        &format!(
            "a> Q[BEGIN]
             s> C[BEGIN] C[SET] C[SELECT 1] C[COMMIT] ZI C[BEGIN] ZT
             s< Q[BEGIN;SET application_name TO 'mine';SELECT pg_catalog.set_config('search_path',\
             'x,\"Y z\"',false);COMMIT] Q[BEGIN]
             a> Q[{text}]
             s< Q[{expected}]
             s> {answers} ZT
             a< C[BEGIN] ZT {told} ZT
             a> Q[COMMIT]
             s< Q[COMMIT]
             s> C[COMMIT] ZI
             a< C[COMMIT] ZI
             a: free
             a> Q[SELECT 1]
             s< Q[SELECT 1]"
        ),
    );
}

#[test]
fn a_reset_within_a_transaction_gives_what_the_client_started_with() {
    let all = format!("RESET ALL;SET application_name TO 'mine';{PATH}");
    let local = PATH.replace("false", "true");
    for (text, expected, answers, told) in [
        ("RESET search_path", PATH, "C[DO]", "C[RESET]"),
        ("SET search_path TO DEFAULT", PATH, "C[DO]", "C[SET]"),
        ("SET SESSION search_path = default", PATH, "C[DO]", "C[SET]"),
        ("SET LOCAL search_path TO DEFAULT", &local, "C[DO]", "C[SET]"),
        (
            "SELECT set_config('search_path', NULL, false)",
            "SELECT set_config('search_path', 'x,\"Y z\"', false)",
            "C[SELECT 1]",
            "C[SELECT 1]",
        ),
        ("RESET ALL", &all, "C[RESET] C[SET] C[DO]", "C[RESET]"),
        (
            "SELECT 1; RESET ALL ; RESET application_name;SHOW search_path",
            &format!("SELECT 1; {all} ; SET application_name TO 'mine';SHOW search_path"),
            "C[SELECT 1] C[RESET] C[SET] C[DO] C[SET] C[SHOW]",
            "C[SELECT 1] C[RESET] C[RESET] C[SHOW]",
        ),
        // The server's own value is the client's as well.
        ("RESET work_mem", "RESET work_mem", "C[RESET]", "C[RESET]"),
        ("SET LOCAL work_mem TO DEFAULT", "SET LOCAL work_mem TO DEFAULT", "C[SET]", "C[SET]"),
    ] {
        check_text(text, expected, answers, told);
    }
}

#[test]
fn a_reset_among_texts_about_channels_is_one() {
    play(
        &started(),
        "a> Q[SELECT 1]
         s> C[BEGIN] C[SET] C[SELECT 1] C[COMMIT] ZI C[SELECT 1] ZI
         a< C[SELECT 1] ZI
         a> Q[CLOSE ALL; RESET ALL; UNLISTEN *; RESET ALL; LISTEN news;]
         hears: news
         s> C[CLOSE CURSOR ALL] C[RESET] C[SET] C[SET] C[UNLISTEN] C[RESET] C[SET] C[SET] \
         C[UNLISTEN] ZI
         a< C[CLOSE CURSOR ALL] C[RESET] C[UNLISTEN] C[RESET] C[LISTEN] ZI
         a listens: news",
    );
}

#[test]
fn a_reset_in_a_batch_gives_what_the_client_started_with() {
    let begin = "BEGIN;SET application_name TO 'mine';SELECT pg_catalog.set_config('search_path',\
                 'x,\"Y z\"',false);COMMIT";
    let script = "a> P[|RESET search_path] B[|] E[] P[|SET application_name TO DEFAULT] B[|] E[] S
         s< Q[BEGIN] P[|PATH] B[|] E[] \
         P[|SET application_name TO 'mine'] B[|] E[] S
         s> C[BEGIN] C[SET] C[SELECT 1] C[COMMIT] ZI 1 2 C[DO] 1 2 C[SET] ZI
         a< 1 2 C[RESET] 1 2 C[SET] ZI
         a: free
         a> P[s|RESET ALL] B[|s] E[] P[|SHOW application_name] B[|] E[] S
         s< P[#1|RESET ALL] B[|#1] E[] CS[cove: restore] \
         P[cove: restore|SELECT pg_catalog.set_config('application_name','mine',false),\
         pg_catalog.set_config('search_path','x,\"Y z\"',false)] \
         B[cove: restore|cove: restore] E[cove: restore] CS[cove: restore] \
         P[|SHOW application_name] B[|] E[] S
         s> 1 2 C[RESET] 3 1 2 D[x] C[SELECT 1] 3 1 2 D[mine] C[SHOW] ZI
         a< 1 2 C[RESET] 1 2 D[mine] C[SHOW] ZI
         a: free
         a> B[|s] E[] S
         s> 2 E[ERROR|25P02|in a failed transaction] ZI
         a< 2 E[ERROR|25P02|in a failed transaction] ZI
         a: free
         s: idle";
    play(&started(), &script.replace("Q[BEGIN]", &format!("Q[{begin}]")).replace("PATH", PATH));
}

#[test]
fn a_reset_that_is_rolled_back_was_none() {
    let setup = Setup { settings: &[('a', "work_mem", "5MB")], ..Setup::default() };
    play(
        &setup,
        "a> Q[SET work_mem TO '7MB']
         s> C[BEGIN] C[SET] C[COMMIT] ZI C[SET] ZI
         a> Q[BEGIN]
         s> C[BEGIN] ZT
         a> Q[RESET work_mem]
         s> C[SET] ZT
         a> Q[ROLLBACK]
         s> C[ROLLBACK] ZI
         s< Q[BEGIN;SET work_mem TO '5MB';COMMIT] Q[SET work_mem TO '7MB'] Q[BEGIN] \
         Q[SET work_mem TO '5MB'] Q[ROLLBACK]
         server 2
         a> Q[SELECT 1]
         s< Q[BEGIN;SET work_mem TO '7MB';COMMIT] Q[SELECT 1]",
    );
}

#[test]
fn what_code_has_reset_is_what_the_client_started_with() {
    let setup = Setup {
        settings: &[('a', "work_mem", "5MB")],
        verify: api::VerifyMode::Unknown,
        ..Setup::default()
    };
    play(
        &setup,
        "a> Q[SELECT resets()]
         s> C[BEGIN] C[SET] C[COMMIT] ZI C[SELECT 1] ZI
         s< Q[BEGIN;SET work_mem TO '5MB';COMMIT] Q[SELECT resets()] Q[?]
         s> R[r|login|none] C[SELECT 1] ZI
         a: free
         a> Q[SELECT 1]
         s< Q[BEGIN;SET work_mem TO '5MB';COMMIT] Q[SELECT 1]",
    );
    // Requests before the answer wait for it.
    play(
        &setup,
        "a> Q[SELECT resets()]
         s> C[BEGIN] C[SET] C[COMMIT] ZI C[SELECT 1] ZI
         a> Q[SHOW work_mem]
         s< Q[BEGIN;SET work_mem TO '5MB';COMMIT] Q[SELECT resets()] Q[?]
         s> R[r|login|none] C[SELECT 1] ZI
         s< Q[BEGIN;SET work_mem TO '5MB';COMMIT] Q[SHOW work_mem]",
    );
}

#[test]
fn what_a_client_started_with_is_not_forgotten_by_asking() {
    let settings = &[('a', "application_name", "mine")];
    let setup = Setup { verify: api::VerifyMode::Always, settings, ..Setup::default() };
    play(
        &setup,
        "a> Q[RESET ALL]
         s> C[BEGIN] C[SET] C[COMMIT] ZI C[RESET] C[SET] ZI
         a< C[RESET] ZI
         s< Q[BEGIN;SET application_name TO 'mine';COMMIT] \
         Q[RESET ALL;SET application_name TO 'mine'] Q[?]
         s> R[s|application_name|mine] R[r|login|none] C[SELECT 1] ZI
         a: free
         a> Q[SHOW application_name]
         s< Q[SHOW application_name]",
    );
}
