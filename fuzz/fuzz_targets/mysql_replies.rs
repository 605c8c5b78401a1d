//! Replies of a MySQL server to a reader of a grant, of a text and of a prepared statement: the
//! reader never hangs, and keeps no more than its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for parameters in [0, 1] {
        let _ = gateway::replies::mysql(bytes, parameters);
    }
});
