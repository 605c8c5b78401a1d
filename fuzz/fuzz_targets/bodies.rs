//! Bodies of requests and streams that arrive in parts: the result does not depend on the split.
#![no_main]

use catalog::guest::fuzzing::{body, file};
use executions::faces::gojudge::fuzzing::request;
use libfuzzer_sys::fuzz_target;
use sessions::faces::e2b::fuzzing::messages;
use sessions::model_door::fuzzing::{model, usage};

/// Largest message of Connect, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let (cut, whole) = (usize::from(cut).max(1), bytes.len().max(1));
    assert_eq!(body(bytes, cut), body(bytes, whole));
    assert_eq!(messages(bytes, cut, MESSAGE_BYTES_MAX), messages(bytes, whole, MESSAGE_BYTES_MAX));
    if let Some((path, range)) = std::str::from_utf8(bytes).ok().and_then(|it| it.split_once('\n'))
        && let Some((location, from, until)) = file(path, range, MESSAGE_BYTES_MAX as u64)
    {
        assert!(from <= until && until <= MESSAGE_BYTES_MAX as u64, "{range}");
        let mut parts = location.strip_prefix("file:///").expect("a file").split('/');
        assert!(parts.all(|it| !matches!(it, "" | "." | "..")), "{location}");
    }
    for content_type in ["application/json", "text/event-stream"] {
        assert_eq!(usage(content_type, bytes, cut), usage(content_type, bytes, whole));
    }
    let is_read = model(bytes).is_some() || request(bytes) != (false, false);
    // Parts that are not read need not be UTF-8.
    if is_read && std::str::from_utf8(bytes).is_ok() {
        serde_json::from_slice::<serde_json::Value>(bytes).expect("a body that is no JSON");
    }
});
