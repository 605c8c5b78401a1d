//! Lines from a context of a code interpreter: the result does not depend on how they are split.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = sessions::context_frames::frames(bytes, bytes.len().max(1));
    for cut in [1, 3, 64] {
        assert_eq!(sessions::context_frames::frames(bytes, cut), whole, "{cut}");
    }
});
