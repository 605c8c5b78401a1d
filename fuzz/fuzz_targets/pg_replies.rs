//! What a server of PostgreSQL sends to a reader of a grant: it never hangs, and keeps no more than
//! it was asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = gateway::replies::postgres(bytes);
});
