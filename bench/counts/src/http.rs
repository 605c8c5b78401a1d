//! Documents of executions: parsed requests and written answers.

use std::hint::black_box;

use api::{Execution, ExecutionRequest};

const REQUEST: &[u8] = br#"{"language":"python","source":"import sys\nfor line in sys.stdin:\n    print(line.strip()[::-1])\n",
"stdin":"one\ntwo\nthree\n","args":["--fast"],"env":{"LANG":"C.UTF-8"},
"files":[{"name":"data.csv","content":"a,b\n1,2\n3,4\n"}],
"limits":{"cpu_ms":10000,"wall_ms":20000,"memory_bytes":268435456,"processes":64,"output_bytes":65536}}"#;

const OUTCOME: &str = r#""verdict":"OK","exit_code":0,"signal":null,"stdout":"OUTPUT","stderr":"",
"truncated":{"stdout":false,"stderr":false},"limit":null,"cpu_ms":1.2,"wall_ms":3.4,
"memory_peak_bytes":1048576,"processes_peak":1,"oom_kills":0"#;

/// Parses a request with a source, a file and limits.
pub fn parse_request(operations: u64) {
    for _ in 0..operations {
        let request: ExecutionRequest =
            serde_json::from_slice(black_box(REQUEST)).expect("a request");
        assert_eq!(request.files.len(), 1);
    }
}

/// Writes an answer with 4 KiB of output.
pub fn write_answer(operations: u64) {
    let outcome = OUTCOME.replace("OUTPUT", &r"a line of text\n".repeat(256));
    let short = OUTCOME.replace("OUTPUT", "");
    let text = format!(
        r#"{{"id":"ex_0123456789abcdef",{outcome},"mode":"fresh","stages":[{{"name":"run","mode":"fresh",{short},"output_at_top":true}}]}}"#
    );
    let answer: Execution = serde_json::from_str(&text).expect("an answer");
    let mut out = Vec::with_capacity(2 * text.len());
    for _ in 0..operations {
        out.clear();
        serde_json::to_writer(&mut out, black_box(&answer)).expect("memory takes it");
        assert!(out.len() > 4096);
    }
}
