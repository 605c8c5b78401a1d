//! Read-only clients: refused requests, and requests that have to wait.

use super::stage::{Setup, play};

#[test]
fn a_tenant_that_may_only_read_cannot_ask_for_more() {
    let setup = Setup {
        read_only: true,
        forced: &[("default_transaction_read_only", "on")],
        ..Setup::default()
    };
    play(
        &setup,
        "a> Q[SELECT 1]
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] Q[SELECT 1]
         s> C[BEGIN] C[SET] C[COMMIT] ZI C[SELECT 1] ZI
         s< Q[?]
         s> C[SELECT 0] ZI
         a: free
         a> Q[BEGIN READ WRITE]
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] DS[cove: refused] S
         s> C[COMMIT] ZI E[ERROR|26000|no such statement] ZI
         a< C[SELECT 1] ZI E[ERROR|25006|the tenant is read-only: a text that may ask for more is \
         refused] ZI
         a> P[|SET default_transaction_read_only TO off] S
         s< DS[cove: refused] S
         s> E[ERROR|26000|no such statement] ZI
         a: free",
    );
    // Whether a function allowed the next transaction to write is checked before that begins.
    play(
        &setup,
        "a> Q[BEGIN]
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] Q[BEGIN]
         s> C[BEGIN] C[SET] C[COMMIT] ZI C[BEGIN] ZT
         a< C[BEGIN] ZT
         a> Q[COMMIT; DELETE FROM t]
         s< DS[cove: refused] S
         s> E[ERROR|26000|no such statement] ZE
         a< E[ERROR|25006|the tenant is read-only: send statements after the end of a \
         transaction in a new request] ZE",
    );
    play(
        &setup,
        "a> P[|COMMIT] B[|] E[] P[d|DELETE FROM t] B[|d] E[] S
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] P[|COMMIT] B[|] E[] \
         P[#1|DELETE FROM t] DS[cove: refused] E[] S",
    );
    play(
        &setup,
        "a> P[|COMMIT] B[c|] S
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] P[|COMMIT] \
         DS[cove: refused] S",
    );
}

#[test]
fn a_server_that_tells_whether_it_may_write_is_not_asked() {
    let on = &[("default_transaction_read_only", "on")];
    let setup =
        Setup { read_only: true, forced: on, startup: on, reported: on, ..Setup::default() };
    play(
        &setup,
        "a> Q[SELECT 1]
         s< Q[SELECT 1]
         s> C[SELECT 1] ZI
         a: free
         a> Q[SELECT f()] Q[SELECT 2]
         s< Q[SELECT f()]
         s> C[SELECT 1] S[default_transaction_read_only|off] ZI
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] Q[SELECT 2]
         s> C[BEGIN] C[SET] C[COMMIT] S[default_transaction_read_only|on] ZI C[SELECT 2] ZI
         a: free
         a> Q[SELECT f()]
         s< Q[SELECT f()]
         s> C[SELECT 1] S[default_transaction_read_only|off] ZI
         a: free
         a> Q[SELECT 3]
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] Q[SELECT 3]
         s> C[BEGIN] C[SET] C[COMMIT] S[default_transaction_read_only|on] ZI C[SELECT 3] ZI
         a: free
         b> Q[TABLE v] Q[SELECT 4]
         s< Q[BEGIN;RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;CLOSE ALL;UNLISTEN *;\
         DISCARD TEMP;SELECT pg_catalog.pg_advisory_unlock_all();COMMIT] Q[TABLE v]
         s> C[COMMIT] ZI C[SELECT 3] S[default_transaction_read_only|off] ZI
         s< Q[BEGIN;SET default_transaction_read_only TO 'on';COMMIT] Q[SELECT 4]
         s> C[BEGIN] C[SET] C[COMMIT] S[default_transaction_read_only|on] ZI C[SELECT 4] ZI
         b: free
         b> Q[SELECT 5]
         s< Q[SELECT 5]",
    );
}
