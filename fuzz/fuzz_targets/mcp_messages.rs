//! Messages of the Model Context Protocol: for any input, each request is answered once, by its id.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp::fuzzing::{answers, host};

fuzz_target!(|bytes: &[u8]| {
    let answers = answers(bytes);
    if let Ok(sent) = serde_json::from_slice::<serde_json::Value>(bytes) {
        let sent = sent.as_array().map_or(1, Vec::len);
        assert!(answers.len() <= sent.max(1));
    }
    for answer in answers {
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("an answer is JSON");
        assert!(answer["jsonrpc"] == "2.0" && answer.get("id").is_some());
    }
    // An unknown name is never accepted as an address of this machine.
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.bytes().all(|byte| byte.is_ascii_lowercase())
    {
        assert!(!host(&format!("{text}.evil.example")));
    }
});
