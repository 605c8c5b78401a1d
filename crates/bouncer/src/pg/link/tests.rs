//! Scenarios: what either side sends, and what the other gets. See `stage` for the language.

mod defaults;
mod hostile;
mod lasting;
mod model;
mod readers;
mod stage;

use api::PoolMode;

use super::LinkLimits;
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
fn a_statement_is_prepared_once_for_all_clients() {
    check(
        "a> P[mine|SELECT 1] DS[mine] S
         s< P[#1|SELECT 1] DS[#1] S
         s> 1 t T[c] ZI
         a< 1 t T[c] ZI
         a: free
         b> P[yours|SELECT 1] B[|yours] E[] S
         s< B[|#1] E[] S
         s> 2 C[SELECT 1] ZI
         b< 1 2 C[SELECT 1] ZI
         b: free
         a> B[|mine] E[] S
         s< B[|#1] E[] S
         s> 2 C[SELECT 1] ZI
         server 2
         a> B[|mine] E[] S
         s< P[#1|SELECT 1] B[|#1] E[] S
         s> 1 2 C[SELECT 1] ZI
         a< 2 C[SELECT 1] ZI 2 C[SELECT 1] ZI
         a> CS[mine]
         a< 3
         a: held",
    );
}

#[test]
fn a_text_that_comes_again_is_planned_once() {
    check(
        "a> P[|SELECT $1] B[|] E[] S
         s< P[|SELECT $1] B[|] E[] S
         s> 1 2 C[SELECT 1] ZI
         a< 1 2 C[SELECT 1] ZI
         b> P[|SELECT $1] DS[] B[|] E[] S
         s< P[#1|SELECT $1] DS[#1] B[|#1] E[] S
         s> 1 t T[c] 2 C[SELECT 1] ZI
         b< 1 t T[c] 2 C[SELECT 1] ZI
         a> P[|SELECT $1] B[|] E[] S
         s< B[|#1] E[] S
         s> 2 C[SELECT 1] ZI
         a< 1 2 C[SELECT 1] ZI",
    );
}

#[test]
fn a_statement_without_a_name_outlives_its_server_connection() {
    check(
        "a> P[|SELECT 1] DS[] S
         s> 1 t T[c] ZI
         b> P[|SELECT 2] S
         s> 1 ZI
         s< P[|SELECT 1] DS[] S P[|SELECT 2] S
         a> B[|] E[] S
         s< P[#1|SELECT 1] B[|#1] E[] S
         s> 1 2 C[SELECT 1] ZI
         a< 1 t T[c] ZI 2 C[SELECT 1] ZI
         a> Q[SELECT 3]
         s> C[SELECT 1] ZI
         a> B[|] S
         s< Q[SELECT 3] DS[cove: refused] S
         s> E[ERROR|26000|cove: refused] ZI
         a< C[SELECT 1] ZI E[ERROR|26000|unnamed prepared statement does not exist] ZI",
    );
}

#[test]
fn a_name_is_given_once() {
    check(
        "a> P[s|SELECT 1] S
         s> 1 ZI
         a> P[s|SELECT 2] B[|s] S
         s< P[#1|SELECT 1] S DS[cove: refused] B[|#1] S
         s> E[ERROR|26000|no such statement] ZI
         a< 1 ZI E[ERROR|42P05|prepared statement \"s\" already exists] ZI
         a> CS[s] P[s|SELECT 2] S
         s< P[#2|SELECT 2] S
         s> 1 ZI
         a< 3 1 ZI",
    );
}

#[test]
fn what_the_server_passes_over_did_not_happen() {
    // The second statement was never prepared, and the name is free.
    check(
        "a> P[x|SELECT broken] P[s|SELECT 1] B[|s] E[] S
         s< P[#1|SELECT broken] P[#2|SELECT 1] B[|#2] E[] S
         s> E[ERROR|42703|no such column] ZI
         a< E[ERROR|42703|no such column] ZI
         a> P[s|SELECT 1] P[x|SELECT broken] S
         s< CS[#2] P[#2|SELECT 1] P[#1|SELECT broken] S
         s> 3 1 1 ZI
         a< 1 1 ZI
         a> P[fail|SELECT nothing] CS[s] S
         s> E[ERROR|42703|no] ZI
         s< P[#3|SELECT nothing] S
         a> B[|s] S
         s< B[|#2] S
         a< E[ERROR|42703|no] ZI",
    );
}

#[test]
fn a_batch_does_not_rely_on_one_that_may_have_failed() {
    check(
        "a> P[s|SELECT 1] S P[t|SELECT 1] B[|t] E[] S
         s< P[#1|SELECT 1] S CS[#1] P[#1|SELECT 1] B[|#1] E[] S
         s> 1 ZI 3 1 2 C[SELECT 1] ZI
         a< 1 ZI 1 2 C[SELECT 1] ZI
         a: free
         a> P[u|SELECT 2] S B[|u] S
         s< P[#2|SELECT 2] S
         s> E[ERROR|42601|no] ZI
         s< B[|u] S
         a: held",
    );
}

#[test]
fn an_unknown_name_is_for_the_server_to_refuse() {
    check(
        "a> B[|nobody] E[] S
         s< B[|nobody] E[] H
         s> E[ERROR|26000|no such statement]
         s< S
         s> ZI
         a< E[ERROR|26000|no such statement] ZI
         a> B[|cove_0123] DS[cove_0123] S
         s< B[|?ove_0123] DS[?ove_0123] S",
    );
}

#[test]
fn statements_out_of_use_are_closed_between_batches() {
    let setup = Setup { limits: LinkLimits { prepared_statements_max: 2 }, ..Setup::default() };
    play(
        &setup,
        "a> P[x|SELECT 1] P[y|SELECT 2] P[z|SELECT 3] B[|x] S
         s< P[#1|SELECT 1] P[#2|SELECT 2] P[#3|SELECT 3] B[|#1] S
         s> 1 1 1 2 ZI
         a< 1 1 1 2 ZI
         a> B[|z] S
         s< CS[#2] S B[|#3] S
         s> 3 ZI 2 ZI
         a< 2 ZI
         a> B[|y] S
         s< P[#2|SELECT 2] B[|#2] S",
    );
}

#[test]
fn forgetting_all_forgets_the_names_of_the_client_only() {
    check(
        "a> P[s|SELECT 1] S
         s> 1 ZI
         b> P[s|SELECT 1] S
         s> ZI
         a> Q[DEALLOCATE ALL]
         s> C[DEALLOCATE ALL] ZI
         s< P[#1|SELECT 1] S S Q[DEALLOCATE ALL] Q[?]
         s> T[c] C[SELECT 0] ZI
         b> B[|s] S
         s< P[#1|SELECT 1] B[|#1] S
         s> 1 2 ZI
         a> B[|s] S
         s< B[|s] S",
    );
}

#[test]
fn a_change_of_the_schema_prepares_anew() {
    check(
        "a> P[s|SELECT * FROM t] S
         s> 1 ZI
         a> Q[ALTER TABLE t ADD x int]
         s> C[ALTER TABLE] ZI
         s< P[#1|SELECT * FROM t] S Q[ALTER TABLE t ADD x int]
         b> P[s|SELECT * FROM t] S
         s< CS[#1] P[#1|SELECT * FROM t] S
         s> 3 1 ZI
         b< 1 ZI",
    );
}

#[test]
fn data_of_a_copy_waits_until_the_server_wants_it() {
    check(
        "a> Q[COPY t FROM STDIN] d[1] c Q[SELECT 1]
         s< Q[COPY t FROM STDIN]
         s> G
         s< d[1] c
         s> C[COPY 1] ZI
         s< Q[SELECT 1]
         s> C[SELECT 1] ZI
         a< G C[COPY 1] ZI C[SELECT 1] ZI
         a: free",
    );
}

#[test]
fn data_after_a_failed_copy_is_passed_over() {
    check(
        "a> Q[COPY nothing FROM STDIN] d[1] d[2] c
         s< Q[COPY nothing FROM STDIN]
         s> E[ERROR|42P01|no such table] ZI
         s<
         a< E[ERROR|42P01|no such table] ZI
         a: free
         a> Q[COPY t FROM STDIN]
         s> G
         a> d[x]
         s> E[ERROR|22P02|no number] ZI
         a> d[y] f[no]
         a: free
         s< Q[COPY t FROM STDIN] d[x]",
    );
}

#[test]
fn a_sync_within_a_copy_counts_once() {
    check(
        "a> P[|COPY t FROM STDIN] B[|] E[] S
         s< P[|COPY t FROM STDIN] B[|] E[] H
         s> 1 2 G
         s<
         a> d[1] c S
         s< d[1] c S
         s> C[COPY 1] ZI
         a< 1 2 G C[COPY 1] ZI
         a: free
         s: idle",
    );
    // The copy fails before the server reads anything: it is still to answer the Sync.
    check(
        "a> P[|COPY v FROM STDIN] B[|] E[] S
         s> 1 2 G E[ERROR|42809|a view]
         s< P[|COPY v FROM STDIN] B[|] E[] H S
         s> ZI
         a< 1 2 G E[ERROR|42809|a view] ZI
         a: free",
    );
}

#[test]
fn a_copy_out_streams() {
    check(
        "a> Q[COPY t TO STDOUT]
         s> Hx d[1] d[2] c C[COPY 2] ZI
         a< H d[1] d[2] c C[COPY 2] ZI
         a: free",
    );
}

#[test]
fn a_message_of_another_kind_within_a_copy_ends_the_client() {
    check(
        "a> Q[COPY t FROM STDIN]
         s> G
         a> Q[SELECT 1]
         a< G E[FATAL|08P01|a message of type 0x51 during COPY from stdin]
         a: closed
         s< Q[COPY t FROM STDIN] f
         s> E[ERROR|57014|gave up] ZI
         s: idle",
    );
}

#[test]
fn settings_go_ahead_of_the_query() {
    let setup = Setup {
        settings: &[('a', "TimeZone", "Europe/Berlin"), ('b', "search_path", "b")],
        ..Setup::default()
    };
    play(
        &setup,
        "a> Q[SELECT 1]
         s< Q[BEGIN;SET timezone TO 'Europe/Berlin';COMMIT] Q[SELECT 1]
         s> C[BEGIN] S[TimeZone|Europe/Berlin] C[SET] C[COMMIT] ZI C[SELECT 1] ZI
         a< S[TimeZone|Europe/Berlin] C[SELECT 1] ZI
         a: free
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> C[SELECT 1] ZI
         b> Q[SELECT 1]
         s< Q[BEGIN;RESET timezone;SELECT pg_catalog.set_config('search_path','b',false);COMMIT] \
         Q[SELECT 1]
         s> C[BEGIN] S[TimeZone|UTC] C[RESET] T[c] D[b] C[SELECT 1] C[COMMIT] ZI C[SELECT 1] ZI
         b< C[SELECT 1] ZI
         c> Q[SELECT 1]
         s> C[BEGIN] C[RESET] C[COMMIT] ZI C[SELECT 1] ZI
         c< C[SELECT 1] ZI",
    );
}

#[test]
fn settings_that_cannot_be_had_end_the_client() {
    let setup = Setup { settings: &[('a', "TimeZone", "Nowhere")], ..Setup::default() };
    play(
        &setup,
        "a> Q[SELECT 1]
         s> C[BEGIN] E[ERROR|22023|invalid value]
         a< E[FATAL|22023|the settings of the session cannot be applied: invalid value]
         a: closed
         s: broken",
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
fn what_a_client_sets_follows_it() {
    check(
        "a> Q[SET search_path TO a, \"B\"]
         s> C[SET] ZI
         s< Q[SET search_path TO a, \"B\"]
         a: free
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> C[SELECT 1] ZI
         server 2
         a> Q[SELECT 1]
         s< Q[BEGIN;SELECT pg_catalog.set_config('search_path','a, \"B\"',false);COMMIT] Q[SELECT 1]
         s> C[BEGIN] T[c] D[x] C[SELECT 1] C[COMMIT] ZI C[SELECT 1] ZI
         a< C[SET] ZI C[SELECT 1] ZI C[SELECT 1] ZI
         server 1
         b> Q[SELECT 1]
         s< Q[BEGIN;RESET search_path;COMMIT] Q[SELECT 1]",
    );
}

#[test]
fn a_setting_counts_if_its_transaction_commits() {
    check(
        "a> Q[BEGIN] Q[SET work_mem TO '1MB'] Q[ROLLBACK]
         s> C[BEGIN] ZT C[SET] ZT C[ROLLBACK] ZI
         a: free
         b> Q[SELECT 1]
         s< Q[BEGIN] Q[SET work_mem TO '1MB'] Q[ROLLBACK] Q[SELECT 1]
         s> C[SELECT 1] ZI
         a> Q[BEGIN] Q[SET work_mem TO '2MB'] Q[COMMIT]
         s> C[DISCARD SEQUENCES] ZI C[BEGIN] ZT C[SET] ZT C[COMMIT] ZI
         s< Q[DISCARD SEQUENCES] Q[BEGIN] Q[SET work_mem TO '2MB'] Q[COMMIT]
         b> Q[SELECT 1]
         s< Q[BEGIN;RESET work_mem;COMMIT] Q[SELECT 1]",
    );
}

#[test]
fn statements_under_settings_that_are_in_doubt_are_not_shared() {
    check(
        "a> P[s|SELECT * FROM t] S
         s> 1 ZI
         b> Q[BEGIN] Q[SET search_path TO b]
         s> C[DISCARD SEQUENCES] ZI C[BEGIN] ZT C[SET] ZT
         b> P[s|SELECT * FROM t] S
         s< P[#1|SELECT * FROM t] S Q[DISCARD SEQUENCES] Q[BEGIN] Q[SET search_path TO b] \
         P[#2|SELECT * FROM t] S",
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
fn settings_that_a_function_made_are_found_and_followed() {
    let setup = Setup { verify: api::Verify::Unknown, ..Setup::default() };
    play(
        &setup,
        "a> Q[SELECT f()]
         s> C[SELECT 1] ZI
         s< Q[SELECT f()] Q[?]
         s> R[s|work_mem|1024] R[r|login|none] C[SELECT 2] ZI
         a: free
         a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> C[SELECT 1] ZI
         b> Q[SELECT 1]
         s< Q[BEGIN;RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;CLOSE ALL;UNLISTEN *;\
         DISCARD TEMP;SELECT pg_catalog.pg_advisory_unlock_all();COMMIT] Q[SELECT 1]
         s> C[BEGIN] C[RESET] C[COMMIT] ZI C[SELECT 1] ZI
         a> Q[SELECT 1]
         s< Q[BEGIN;SET work_mem TO '1024';COMMIT] Q[SELECT 1]",
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
}

#[test]
fn sql_knows_the_statements_of_the_protocol() {
    check(
        "a> P[s|SELECT $1] S
         s> 1 ZI
         s< P[#1|SELECT $1] S
         server 2
         a> Q[EXECUTE s(1)]
         s< P[#1|SELECT $1] S Q[EXECUTE #1(1)]
         s> 1 ZI D[1] C[SELECT 1] ZI
         a< 1 ZI D[1] C[SELECT 1] ZI
         a: free
         a> Q[DEALLOCATE s]
         s< Q[DEALLOCATE #1]
         s> C[DEALLOCATE] ZI
         a: free
         a> P[s|SELECT $1] S
         s< P[#1|SELECT $1] S",
    );
    check(
        "a> P[s|SELECT $1] S
         s> 1 ZI
         a> P[|DEALLOCATE s] B[|] E[] S
         s< P[#1|SELECT $1] S P[|DEALLOCATE #1] B[|] E[] H
         s> 1 2 C[DEALLOCATE]
         s< S
         s> ZI
         a: free
         a> B[|s] S
         s< B[|s] S",
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
fn a_plan_that_does_not_fit_any_more_is_made_anew() {
    let stale = "E[ERROR|0A000|cached plan must not change result type|RevalidateCachedQuery]";
    check(
        &"a> P[s|SELECT * FROM t] S
         s> 1 ZI
         s< P[#1|SELECT * FROM t] S
         a> B[|s] DP[] E[] S
         s< B[|#1] DP[] E[] S
         s> STALE
         s< CS[#1] P[#1|SELECT * FROM t] B[|#1] DP[] E[] S
         s> ZI 3 1 2 T[c] D[1] C[SELECT 1] ZI
         a< 1 ZI 2 T[c] D[1] C[SELECT 1] ZI
         a: free"
            .replace("STALE", stale),
    );
    // Who does not ask for the columns gets the error, and then a new plan.
    check(
        &"a> P[s|SELECT * FROM t] S
         s> 1 ZI
         s< P[#1|SELECT * FROM t] S
         a> B[|s] E[] S
         s< B[|#1] E[] S
         s> STALE ZI
         a< 1 ZI E[ERROR|0A000|cached plan must not change result type] ZI
         a: free
         a> B[|s] E[] S
         s< CS[#1] P[#1|SELECT * FROM t] B[|#1] E[] S
         s> 3 1 2 C[SELECT 0] ZI
         a< 2 C[SELECT 0] ZI"
            .replace("STALE", stale),
    );
    // Nothing is done twice.
    check(
        &"a> P[s|SELECT * FROM t] P[w|INSERT INTO t] S
         s> 1 1 ZI
         s< P[#1|SELECT * FROM t] P[#2|INSERT INTO t] S
         a> B[|w] DP[] E[] B[|s] DP[] E[] S
         s> 2 n C[INSERT 0 1] STALE ZI
         s< B[|#2] DP[] E[] B[|#1] DP[] E[] S
         a: free"
            .replace("STALE", stale),
    );
    // Within a transaction it is an error as it is without a pooler.
    check(
        &"a> P[s|SELECT * FROM t] S Q[BEGIN]
         s> 1 ZI C[BEGIN] ZT
         s< P[#1|SELECT * FROM t] S Q[BEGIN]
         a> B[|s] DP[] E[] S
         s> STALE ZE
         s< B[|#1] DP[] E[] S"
            .replace("STALE", stale),
    );
}

#[test]
fn settings_of_no_module_stay_known_when_others_are_found() {
    let setup = Setup { verify: api::Verify::Unknown, ..Setup::default() };
    play(
        &setup,
        "a> Q[SET cove.b = 'v']
         s> C[SET] ZI
         a> Q[SELECT hidden_set('search_path', 'x')]
         s> C[SELECT 1] ZI
         s< Q[SET cove.b = 'v'] Q[SELECT hidden_set('search_path', 'x')] Q[?]
         s> R[s|search_path|x] R[r|login|none] C[SELECT 2] ZI
         a: free
         server 2
         a> Q[SELECT 1]
         s< Q[BEGIN;SET cove.b TO 'v';SELECT \
         pg_catalog.set_config('search_path','x',false);COMMIT] Q[SELECT 1]",
    );
}

#[test]
fn a_setting_that_only_the_server_can_read_is_asked_for() {
    check(
        "a> Q[SET SESSION cove.b = 'it\\s']
         s> C[SET] ZI
         a< C[SET] ZI
         s< Q[SET SESSION cove.b = 'it\\s'] Q[?]
         s> R[n|cove.b|it\\s] C[SELECT 1] ZI
         a: free
         server 2
         a> Q[SELECT 1]
         s< Q[BEGIN;SET cove.b TO  E'it\\\\s';COMMIT] Q[SELECT 1]",
    );
}

#[test]
fn a_setting_of_no_module_that_a_function_made_is_found_by_its_name() {
    let setup = Setup { verify: api::Verify::Unknown, ..Setup::default() };
    play(
        &setup,
        "a> Q[SELECT f('cove.b', 'v')]
         s> C[SELECT 1] ZI
         s< Q[SELECT f('cove.b', 'v')] Q[?]
         s> R[r|login|none] R[n|cove.b|v] C[SELECT 2] ZI
         a: free
         server 2
         a> Q[SELECT 1]
         s< Q[BEGIN;SET cove.b TO 'v';COMMIT] Q[SELECT 1]",
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
