//! Output of the program that runs a statement over a warehouse: the result does not depend on how
//! it is split.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = gateway::replies::lake_answer(bytes, bytes.len().max(1));
    for cut in [1, 3, 64] {
        assert_eq!(gateway::replies::lake_answer(bytes, cut), whole, "{cut}");
    }
});
