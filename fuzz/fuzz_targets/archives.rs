//! Archives: tar as sessions read it, zip as in Judge0's submissions.
#![no_main]

use executions::faces::judge0::fuzzing as judge0;
use libfuzzer_sys::fuzz_target;

/// Maximum unpacked size of a zip, in bytes.
const UNPACKED_BYTES_MAX: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    sandbox::fuzzing::archive(bytes);
    let Some([first, second]) = judge0::archive(bytes, UNPACKED_BYTES_MAX) else { return };
    let size: usize = first.iter().map(|(_, content, _)| content.len()).sum();
    assert!(size as u64 <= UNPACKED_BYTES_MAX, "{size} bytes out of a zip");
    assert!(second.is_empty() || first == second, "{first:?} was packed and became {second:?}");
});
