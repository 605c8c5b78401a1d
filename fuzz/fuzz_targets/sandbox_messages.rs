//! Messages between the server and what runs in a sandbox, which may have been taken over: what is
//! read and written again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sandbox::fuzzing::messages(bytes));
