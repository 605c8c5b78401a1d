//! Prepared statements: shared between clients, prepared again where they are missing, closed when
//! unused.

use super::super::LinkLimits;
use super::check;
use super::stage::{Setup, play};

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
    // A client that does not request the columns gets the error, and then a new plan.
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
    // Nothing is executed twice.
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
    // Within a transaction it is an error, as without a pooler.
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
