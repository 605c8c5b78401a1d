//! Iceberg's manifests and manifest lists in Avro, with their compression. Reading them uses no
//! more memory and time than `fuzz/run` allows.
#![no_main]

use iceberg::plan::fuzzing::{manifest, manifest_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = manifest(bytes);
    let _ = manifest_list(bytes);
});
