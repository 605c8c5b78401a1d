//! Settings: they follow their client, and reach no other client.

use super::check;
use super::stage::{Setup, play};

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
fn settings_that_a_function_made_are_found_and_followed() {
    let setup = Setup { verify: api::VerifyMode::Unknown, ..Setup::default() };
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
fn settings_of_no_module_stay_known_when_others_are_found() {
    let setup = Setup { verify: api::VerifyMode::Unknown, ..Setup::default() };
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
    let setup = Setup { verify: api::VerifyMode::Unknown, ..Setup::default() };
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
