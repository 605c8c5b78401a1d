//! `COPY` in both directions.

use super::check;

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
    // The copy fails before the server reads anything: it will still answer the Sync.
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
