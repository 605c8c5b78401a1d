//! Attempts of a client to read or change another client's state.

use super::check;

#[test]
fn values_of_sequences_are_hidden_behind_other_requests_too() {
    // Sent at once: the replies are in order.
    check(
        "a> Q[SELECT nextval('s')]
         s> C[SELECT 1] ZI
         b> Q[SELECT 1] Q[SELECT lastval()]
         s< Q[SELECT nextval('s')] Q[SELECT 1]
         s> C[SELECT 1] ZI
         s< Q[DISCARD SEQUENCES] Q[SELECT lastval()]",
    );
    // In a transaction it would be too late.
    check(
        "a> Q[SELECT nextval('s')]
         s> C[SELECT 1] ZI
         b> Q[BEGIN] Q[SELECT lastval()]
         s< Q[SELECT nextval('s')] Q[DISCARD SEQUENCES] Q[BEGIN] Q[SELECT lastval()]",
    );
    // Not at its first use of this connection.
    check(
        "a> Q[SELECT nextval('s')]
         s> C[SELECT 1] ZI
         b> Q[SELECT 1]
         s> C[SELECT 1] ZI
         b> Q[SELECT lastval()]
         s< Q[SELECT nextval('s')] Q[SELECT 1] Q[DISCARD SEQUENCES] Q[SELECT lastval()]",
    );
    // A statement that was prepared before.
    check(
        "b> P[x|SELECT lastval()] S
         s> 1 ZI
         a> Q[SELECT nextval('s')]
         s> C[DISCARD SEQUENCES] ZI C[SELECT 1] ZI
         s< P[#1|SELECT lastval()] S Q[DISCARD SEQUENCES] Q[SELECT nextval('s')]
         b> B[|x] E[] S
         s< Q[DISCARD SEQUENCES] B[|#1] E[] S",
    );
    check(
        "a> Q[SELECT nextval('s')]
         s> C[SELECT 1] ZI
         b> Q[UNLISTEN c; SELECT lastval()]
         s< Q[SELECT nextval('s')] Q[DISCARD SEQUENCES] Q[UNLISTEN c; SELECT lastval()]",
    );
}

/// Client a changes settings in a way that is unknown before the reply arrives, and prepares a
/// statement after it: the statement that b prepares must be another one.
fn check_not_shared(settings: &str) {
    let one = "P[y|SELECT '01/02/2020'::date] S";
    check(&format!(
        "b> {one}
         s> 1 ZI
         a> {settings} {one}
         s< P[#1|SELECT '01/02/2020'::date] S {settings} P[#2|SELECT '01/02/2020'::date] S"
    ));
}

#[test]
fn a_statement_prepared_under_settings_in_doubt_is_nobody_elses() {
    for settings in
        ["Q[SET datestyle TO dmy; UNLISTEN c]", "Q[SELECT own_function()]", "F[set_config]"]
    {
        check_not_shared(settings);
    }
}
