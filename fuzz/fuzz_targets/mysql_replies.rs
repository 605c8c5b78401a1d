//! What a server of MySQL sends to a reader of a grant, of a text and of a prepared statement: it
//! never hangs, and keeps no more than it was asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for parameters in [0, 1] {
        let _ = gateway::replies::mysql(bytes, parameters);
    }
});
