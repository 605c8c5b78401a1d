//! Scenarios: the input of either side, and the expected output. See `stage` for the language.

mod copy;
mod defaults;
mod hostile;
mod lasting;
mod model;
mod prepared;
mod readers;
mod settings;
mod stage;

use api::PoolMode;

use stage::{Setup, play};

fn check(script: &str) {
    play(&Setup::default(), script);
}

#[test]
fn a_simple_query_holds_a_server_for_as_long_as_it_runs() {
    check(
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         a: held
         s> T[c] D[1] D[2] C[SELECT 2] ZI
         a< T[c] D[1] D[2] C[SELECT 2] ZI
         a: free
         s: idle
         b> Q[SELECT 2]
         s< Q[SELECT 2]
         s> E[ERROR|42P01|no such table] ZI
         b< E[ERROR|42P01|no such table] ZI
         b: free",
    );
}

#[test]
fn a_transaction_holds_its_server() {
    check(
        "a> Q[BEGIN]
         s> C[BEGIN] ZT
         a: held
         a> Q[SELECT x] Q[ROLLBACK]
         s> E[ERROR|42703|no x] ZE C[ROLLBACK] ZI
         a< C[BEGIN] ZT E[ERROR|42703|no x] ZE C[ROLLBACK] ZI
         a: free",
    );
}

#[test]
fn a_session_holds_its_server_until_it_ends() {
    let setup = Setup { mode: PoolMode::Session, ..Setup::default() };
    play(
        &setup,
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> C[SELECT 1] ZI
         a: held
         a> X
         s< Q[DISCARD ALL]
         s: busy
         s> C[DISCARD ALL] ZI
         s: idle",
    );
}

#[test]
fn a_statement_must_not_leave_a_transaction_open() {
    let setup = Setup { mode: PoolMode::Statement, ..Setup::default() };
    play(
        &setup,
        "a> Q[SELECT 1]
         s> C[SELECT 1] ZI
         a: free
         a> Q[BEGIN]
         s< Q[SELECT 1] DS[cove: refused] S
         s> E[ERROR|26000|no such statement] ZI
         a< C[SELECT 1] ZI E[ERROR|0A000|transactions of several statements are not allowed in \
         statement mode] ZI
         a: free
         a> Q[CALL begins()]
         s> C[CALL] ZT
         a: closed",
    );
}

#[test]
fn requests_that_need_no_server_get_none() {
    check(
        "a> S
         a< ZI
         a> H
         a<
         a> d[late] c f[no]
         a<
         a: free
         a> X
         a: closed",
    );
}

#[test]
fn a_batch_holds_its_server_until_it_is_synced() {
    check(
        "a> P[|SELECT 1] B[|] DP[] E[] H
         s< P[|SELECT 1] B[|] DP[] E[] H
         s> 1 2 T[c] D[1] C[SELECT 1]
         a< 1 2 T[c] D[1] C[SELECT 1]
         a: held
         a> S
         s< S
         s> ZI
         a< ZI
         a: free",
    );
}

#[test]
fn several_batches_in_a_burst_stay_in_order() {
    check(
        "a> P[|SELECT 1] B[|] E[] S P[|SELECT 2] B[|] E[] S
         s< P[|SELECT 1] B[|] E[] S P[|SELECT 2] B[|] E[] S
         s> 1 2 C[SELECT 1] ZI
         a: held
         s> 1 E[ERROR|22012|division by zero] ZI
         a< 1 2 C[SELECT 1] ZI 1 E[ERROR|22012|division by zero] ZI
         a: free",
    );
}

#[test]
fn parameters_and_notices_reach_whom_they_concern() {
    check(
        "a> Q[SET TimeZone TO 'UTC+1']
         s> S[TimeZone|UTC+1] N[NOTICE|00000|hear] C[SET] ZI
         a< S[TimeZone|UTC+1] N[NOTICE|00000|hear] C[SET] ZI
         s> N[NOTICE|00000|nobody] A[c|x] S[in_hot_standby|off]
         s: idle
         a> Q[SELECT 1]
         s< Q[SET TimeZone TO 'UTC+1'] Q[SELECT 1]
         a< S[in_hot_standby|off]
         s> C[SELECT 1] ZI
         b> Q[SELECT 1]
         s< Q[BEGIN;RESET timezone;COMMIT] Q[SELECT 1]
         s> C[BEGIN] S[TimeZone|UTC] C[RESET] C[COMMIT] ZI
         b< S[in_hot_standby|off]",
    );
}

#[test]
fn a_client_that_leaves_leaves_nothing_behind() {
    check(
        "a> Q[SELECT pg_sleep(9)]
         a gone: cancel
         s> E[ERROR|57014|canceled] ZI
         s: idle",
    );
    check(
        "a> Q[BEGIN]
         s> C[BEGIN] ZT
         a gone: draining
         s< Q[BEGIN] Q[ROLLBACK]
         s: busy
         s> C[ROLLBACK] ZI
         s: idle
         b> Q[SELECT 1]
         b<",
    );
    check(
        "a> P[|SELECT 1] B[|] E[] H
         s> 1 2
         a gone: cancel
         s< P[|SELECT 1] B[|] E[] H DS[cove: refused] S
         s> D[1] C[SELECT 1] E[ERROR|26000|no such statement] ZI
         s: idle",
    );
    check(
        "a> Q[COPY t FROM STDIN]
         s> G
         a> d[1]
         a gone: cancel
         s< Q[COPY t FROM STDIN] d[1] f
         s> E[ERROR|57014|gave up] ZI
         s: idle",
    );
    check(
        "a> P[|COPY t FROM STDIN] B[|] E[] S
         s> 1 2 G
         a gone: cancel
         s< P[|COPY t FROM STDIN] B[|] E[] H f S
         s> E[ERROR|57014|gave up] ZI
         s: idle",
    );
    check(
        "a> Q[BEGIN] Q[oops]
         s> C[BEGIN] ZT
         a gone: cancel
         s> E[ERROR|42601|oops] ZE
         s< Q[BEGIN] Q[oops] Q[ROLLBACK]
         s> C[ROLLBACK] ZI
         s: idle",
    );
    check(
        "a> H
         a gone: nothing",
    );
}

#[test]
fn a_server_that_closes_says_so() {
    check(
        "s> E[FATAL|57P01|terminating]
         s: broken",
    );
    check(
        "a> Q[SELECT 1]
         s> E[FATAL|57P01|terminating]
         a< E[FATAL|57P01|terminating]
         s: busy",
    );
}

#[test]
fn what_stays_behind_keeps_the_server_with_its_client() {
    check(
        "a> Q[SELECT pg_advisory_lock(1)]
         s> T[c] D[x] C[SELECT 1] ZI
         a< T[c] D[x] C[SELECT 1] ZI
         s< Q[SELECT pg_advisory_lock(1)] Q[?]
         a: held
         s> T[c] R[a|-|-] C[SELECT 1] ZI
         a<
         a: held
         a> Q[SELECT 1]
         s> C[SELECT 1] ZI
         a: held
         s< Q[SELECT 1]
         a> Q[SELECT pg_advisory_unlock(1)]
         s> C[SELECT 1] ZI
         s< Q[SELECT pg_advisory_unlock(1)] Q[?]
         s> T[c] C[SELECT 0] ZI
         a: free
         s: idle",
    );
    check(
        "a> Q[CREATE TEMP TABLE t (x int)]
         s> C[CREATE TABLE] ZI T[c] R[t|-|-] C[SELECT 1] ZI
         a: held
         a gone: draining
         s< Q[CREATE TEMP TABLE t (x int)] Q[?] Q[DISCARD ALL]
         s> C[DISCARD ALL] ZI
         s: idle",
    );
    check(
        "a> Q[LOAD 'x']
         s> C[LOAD] ZI
         a: held
         a gone: close",
    );
}

#[test]
fn a_question_does_not_stand_in_the_way() {
    check(
        "a> Q[SELECT pg_advisory_lock(1)]
         s> C[SELECT 1] ZI
         a> Q[SELECT 2]
         s> R[a|-|-] C[SELECT 1] ZI C[SELECT 2] ZI
         a< C[SELECT 1] ZI C[SELECT 2] ZI
         a: held",
    );
    check(
        "a> Q[SELECT pg_advisory_lock(1)]
         s> C[SELECT 1] ZI
         a gone: draining
         s> R[a|-|-] C[SELECT 1] ZI
         s< Q[SELECT pg_advisory_lock(1)] Q[?] Q[DISCARD ALL]
         s> C[DISCARD ALL] ZI
         s: idle",
    );
    check(
        "a> Q[SELECT pg_advisory_lock(1)]
         s> C[SELECT 1] ZI R[nonsense]
         s: broken",
    );
}

#[test]
fn values_of_sequences_are_nobody_elses() {
    check(
        "a> Q[SELECT nextval('s')]
         s> C[SELECT 1] ZI
         b> Q[SELECT lastval()]
         s< Q[SELECT nextval('s')] Q[DISCARD SEQUENCES] Q[SELECT lastval()]
         s> C[DISCARD SEQUENCES] ZI E[ERROR|55000|not yet defined] ZI
         b< E[ERROR|55000|not yet defined] ZI
         b> Q[SELECT nextval('s')] Q[SELECT lastval()]
         s< Q[SELECT nextval('s')] Q[SELECT lastval()]
         s> C[SELECT 1] ZI C[SELECT 1] ZI
         a> Q[SELECT 1]
         s> C[SELECT 1] ZI
         b> Q[INSERT INTO t DEFAULT VALUES]
         s< Q[SELECT 1] Q[DISCARD SEQUENCES] Q[INSERT INTO t DEFAULT VALUES]",
    );
    // A client that reads its own value in a separate statement gets it.
    check(
        "a> Q[SELECT 1]
         s> C[SELECT 1] ZI
         b> Q[SELECT nextval('s')]
         s< Q[SELECT 1] Q[DISCARD SEQUENCES] Q[SELECT nextval('s')]
         s> C[DISCARD SEQUENCES] ZI C[SELECT 1] ZI
         b> Q[SELECT currval('s')]
         s< Q[SELECT currval('s')]",
    );
}

#[test]
fn listening_needs_no_server_connection() {
    check(
        "a> Q[LISTEN news]
         hears: news
         s< Q[UNLISTEN news]
         a listens:
         s> C[UNLISTEN] ZI
         a< C[LISTEN] ZI
         a listens: news
         a: free
         a> Q[BEGIN] Q[LISTEN more; SELECT 1; UNLISTEN news] Q[ROLLBACK]
         hears: more
         s< Q[BEGIN] Q[UNLISTEN more; SELECT 1; UNLISTEN news] Q[ROLLBACK]
         s> C[BEGIN] ZT C[UNLISTEN] D[1] C[SELECT 1] C[UNLISTEN] ZT C[ROLLBACK] ZI
         a< C[BEGIN] ZT C[LISTEN] D[1] C[SELECT 1] C[UNLISTEN] ZT C[ROLLBACK] ZI
         a listens: news
         a> P[|LISTEN \"Odd one\"] B[|] E[] S
         hears: Odd one
         s< P[|UNLISTEN \"Odd one\"] B[|] E[] S
         s> 1 2 C[UNLISTEN] ZI
         a< 1 2 C[LISTEN] ZI
         a listens: news,Odd one
         a> Q[UNLISTEN *]
         s> C[UNLISTEN] ZI
         a< C[UNLISTEN] ZI
         a listens:
         a: free",
    );
}

#[test]
fn a_question_that_is_cancelled_is_asked_again() {
    check(
        "a> Q[SELECT pg_advisory_lock(1)]
         s> C[SELECT 1] ZI
         a> Q[SELECT 2]
         s< Q[SELECT pg_advisory_lock(1)] Q[?] Q[SELECT 2]
         s> E[ERROR|57014|cancelled] ZI C[SELECT 2] ZI
         a< C[SELECT 1] ZI C[SELECT 2] ZI
         s< Q[?]
         s> R[a|-|-] C[SELECT 1] ZI
         a: held",
    );
}
