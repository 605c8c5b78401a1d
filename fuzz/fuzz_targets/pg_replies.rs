//! Replies of a PostgreSQL server to a reader of a grant: the reader never hangs, and keeps no more
//! than its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = gateway::replies::postgres(bytes);
});
