//! Messages between the server and processes in a sandbox, which may be compromised: a message that
//! was read and written again reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sandbox::fuzzing::messages(bytes));
