//! One table of parameters and their errors, one of parameters and their executions.

use std::io::Write as _;

use serde_json::json;

use super::*;

/// Budget of repeated bytes.
const COPIES: u64 = 1000;

fn languages() -> Vec<NumberedLanguage> {
    let numbered = |id, kind, file: Option<&str>| NumberedLanguage {
        id,
        name: String::new(),
        kind,
        source_file: file.map(str::to_owned),
    };
    vec![
        numbered(43, NumberedKind::PlainText, Some("text.txt")),
        numbered(44, NumberedKind::Executable, Some("a.out")),
        numbered(71, NumberedKind::Language("python"), Some("main.py")),
        numbered(89, NumberedKind::MultiFile, None),
    ]
}

fn parsed(parameters: &Value, base64: bool) -> Result<JobSubmission, Complaints> {
    let none = Map::new();
    let parameters = parameters.as_object().unwrap_or(&none);
    let mut copies_left = COPIES;
    parse(parameters, base64, &languages(), &Judge0Config::default(), &mut copies_left)
}

/// Returns a valid submission with some parameters replaced.
fn with(changes: Value) -> Value {
    let mut parameters = json!({"source_code": "print(1)", "language_id": 71});
    for (name, value) in changes.as_object().unwrap() {
        parameters[name] = value.clone();
    }
    parameters
}

fn zipped(files: &[(&str, &[u8])]) -> String {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    BASE64.encode(writer.finish().unwrap().into_inner())
}

/// Each row has parameters and the expected errors.
fn check_complaints(rows: &[(Value, Value)]) {
    for (parameters, expected) in rows {
        let complaints = parsed(parameters, false).unwrap_err();
        assert_eq!(&json!(complaints), expected, "{parameters}");
    }
}

#[test]
fn complaints_name_the_field() {
    let long = "x".repeat(513);
    check_complaints(&[
        (json!([]), json!({"language_id": ["can't be blank"]})),
        (json!({"language_id": 71}), json!({"source_code": ["can't be blank"]})),
        (with(json!({"source_code": ""})), json!({"source_code": ["can't be blank"]})),
        (
            with(json!({"source_code": {}})),
            json!({"source_code": ["must be a string", "can't be blank"]}),
        ),
        (
            with(json!({"language_id": 1000})),
            json!({"language_id": ["language with id 1000 doesn't exist"]}),
        ),
        (with(json!({"language_id": "x"})), json!({"language_id": ["is not a number"]})),
        (with(json!({"language_id": 71.5})), json!({"language_id": ["must be an integer"]})),
        (
            with(json!({"language_id": -1})),
            json!({"language_id": ["must be greater than or equal to 0"]}),
        ),
        (with(json!({"language_id": 89})), json!({"additional_files": ["can't be blank"]})),
        (
            with(json!({"enable_network": true})),
            json!({"enable_network": ["enabling network is not allowed"]}),
        ),
        (
            with(json!({"enable_network": "x"})),
            json!({"enable_network": ["must be true or false"]}),
        ),
        (
            with(json!({"compiler_options": long})),
            json!({"compiler_options": ["is too long (maximum is 512 characters)"]}),
        ),
        (
            with(json!({"command_line_arguments": long})),
            json!({"command_line_arguments": ["is too long (maximum is 512 characters)"]}),
        ),
        (with(json!({"additional_files": "%"})), json!({"additional_files": ["is not base64"]})),
        (with(json!({"stdin": []})), json!({"stdin": ["must be a string"]})),
    ]);
    let complaints = parsed(&with(json!({"additional_files": "bm8="})), false).unwrap_err();
    assert!(complaints["additional_files"][0].starts_with("is not a zip archive"));
    let complaints = parsed(&with(json!({"stdin": "%"})), true).unwrap_err();
    let fields: Vec<_> = complaints.keys().map(String::as_str).collect();
    assert_eq!(fields, ["source_code", "stdin"], "all at once");
}

#[test]
fn copies_are_counted_before_they_are_made() {
    let too_large = |left: u64| {
        let message = format!(
            "is too large for this input and expected output: all runs of a request may have \
             {left} bytes more"
        );
        json!({ "number_of_runs": [message] })
    };
    let runs = |stdin: usize, expected: usize, runs: u64| {
        with(json!({"stdin": "i".repeat(stdin), "expected_output": "o".repeat(expected),
                    "number_of_runs": runs}))
    };
    let mut left = COPIES;
    for (parameters, expected) in [
        (runs(50, 1, 20), Some(too_large(1000))),
        (runs(0, 501, 2), Some(too_large(1000))),
        // Only one copy of these exists.
        (runs(5000, 5000, 1), None),
        (runs(30, 20, 10), None),
        (runs(25, 26, 10), Some(too_large(500))),
        (runs(25, 25, 10), None),
        (runs(1, 0, 2), Some(too_large(0))),
        (runs(0, 0, 20), None),
    ] {
        let parameters = parameters.as_object().unwrap();
        let parsed = parse(parameters, false, &languages(), &Judge0Config::default(), &mut left);
        assert_eq!(parsed.err().map(|complaints| json!(complaints)), expected);
    }
    assert_eq!(left, 0);
}

#[test]
fn an_archive_is_not_remembered_beside_its_files() {
    let archive = zipped(&[("d/m.py", b"x = 1")]);
    let parameters = with(json!({ "additional_files": archive }));
    let submission = parsed(&parameters, false).unwrap();
    assert_eq!(submission.request.files.len(), 2);
    let face = submission.face.unwrap();
    assert!(!face.contains(&archive) && face.len() < 1000, "{face}");
}

#[test]
fn limits_are_refused_beyond_their_bounds() {
    check_complaints(&[
        (
            with(json!({"cpu_time_limit": 15.1})),
            json!({"cpu_time_limit": ["must be less than or equal to 15"]}),
        ),
        (
            with(json!({"cpu_time_limit": -1})),
            json!({"cpu_time_limit": ["must be greater than or equal to 0"]}),
        ),
        (with(json!({"cpu_time_limit": "soon"})), json!({"cpu_time_limit": ["is not a number"]})),
        (with(json!({"cpu_time_limit": "NaN"})), json!({"cpu_time_limit": ["is not a number"]})),
        (
            with(json!({"cpu_extra_time": 6})),
            json!({"cpu_extra_time": ["must be less than or equal to 5"]}),
        ),
        (
            with(json!({"wall_time_limit": 0.5})),
            json!({"wall_time_limit": ["must be greater than or equal to 1"]}),
        ),
        (
            with(json!({"wall_time_limit": 21})),
            json!({"wall_time_limit": ["must be less than or equal to 20"]}),
        ),
        (
            with(json!({"memory_limit": 2047})),
            json!({"memory_limit": ["must be greater than or equal to 2048"]}),
        ),
        (
            with(json!({"memory_limit": 512_001})),
            json!({"memory_limit": ["must be less than or equal to 512000"]}),
        ),
        (
            with(json!({"stack_limit": 128_001})),
            json!({"stack_limit": ["must be less than or equal to 128000"]}),
        ),
        (
            with(json!({"max_processes_and_or_threads": 0})),
            json!({"max_processes_and_or_threads": ["must be greater than or equal to 1"]}),
        ),
        (
            with(json!({"max_processes_and_or_threads": 121})),
            json!({"max_processes_and_or_threads": ["must be less than or equal to 120"]}),
        ),
        (
            with(json!({"max_file_size": 4097})),
            json!({"max_file_size": ["must be less than or equal to 4096"]}),
        ),
        (
            with(json!({"number_of_runs": 0})),
            json!({"number_of_runs": ["must be greater than or equal to 1"]}),
        ),
        (
            with(json!({"number_of_runs": 21})),
            json!({"number_of_runs": ["must be less than or equal to 20"]}),
        ),
    ]);
}

/// Returns the execution of [`with`] without changes.
fn plain() -> Value {
    json!({
        "language": "python",
        "files": [{"name": "main.py", "content": "print(1)", "encoding": "utf8", "executable": false}],
        "limits": {"cpu_ms": 6000, "wall_ms": 10_000, "memory_bytes": 131_072_000, "processes": 60,
                   "output_bytes": 1_048_576, "file_size_bytes": 1_048_576,
                   "stack_bytes": 65_536_000},
        "compile_limits": {},
        "label": "judge0",
    })
}

/// Each row has changed parameters, whether they are base64, and the differences of the execution.
fn check(rows: &[(Value, bool, Value)]) {
    for (changes, base64, expected) in rows {
        let submission = parsed(&with(changes.clone()), *base64).unwrap();
        let mut whole = plain();
        for (name, value) in expected.as_object().unwrap() {
            whole[name] = value.clone();
        }
        whole.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(json!(submission.request), whole, "{changes}");
        let face: SubmissionRecord = serde_json::from_str(&submission.face.unwrap()).unwrap();
        assert_eq!(face.face, LABEL);
    }
}

#[test]
fn a_submission_becomes_an_execution() {
    let case = json!({"stdin": "in", "expected": "out", "limits": {}});
    check(&[
        (json!({}), false, json!({})),
        (
            json!({"source_code": "cHJpbnQoMSk=", "stdin": "/w==", "language_id": "71"}),
            true,
            json!({"stdin_base64": "/w=="}),
        ),
        (
            json!({"stdin": "in", "expected_output": "out", "number_of_runs": "2"}),
            false,
            json!({"tests": [case, case], "comparison": {"mode": "trailing_space"},
                   "stop_at_first_failure": true}),
        ),
        (
            json!({"cpu_time_limit": 0, "cpu_extra_time": "0.5", "wall_time_limit": 1.5,
                   "memory_limit": 2048, "stack_limit": 0, "max_file_size": 0,
                   "max_processes_and_or_threads": 1}),
            false,
            json!({"limits": {"cpu_ms": 500, "wall_ms": 1500, "memory_bytes": 4_194_304,
                              "processes": 1, "output_bytes": 1, "file_size_bytes": 1,
                              "stack_bytes": 65_536}}),
        ),
        (
            json!({"command_line_arguments": "a 'b c' $(d)", "compiler_options": "-O2 ;x|y",
                   "redirect_stderr_to_stdout": true, "callback_url": "https://example.org/x"}),
            false,
            json!({"args": ["a", "b c", "$(d)"], "compile_args": ["-O2", "xy"],
                   "merge_stderr": true, "webhook": {"url": "https://example.org/x"}}),
        ),
    ]);
}

#[test]
fn programs_that_have_no_language_and_files_become_executions() {
    check(&[
        (
            json!({"language_id": 43}),
            false,
            json!({"language": null, "argv": ["/bin/cat", "text.txt"],
                   "files": [{"name": "text.txt", "content": "print(1)", "encoding": "utf8",
                              "executable": false}]}),
        ),
        (
            json!({"language_id": 44, "source_code": "f0VMRv8="}),
            true,
            json!({"language": null, "argv": ["./a.out"],
                   "files": [{"name": "a.out", "content": "f0VMRv8=", "encoding": "base64",
                              "executable": true}]}),
        ),
        (
            json!({"language_id": 89, "source_code": null, "expected_output": "x",
                   "number_of_runs": 5, "additional_files": zipped(&[("run", b"echo x")])}),
            false,
            json!({"language": "multi-file",
                   "files": [{"name": "run", "content": "echo x", "encoding": "utf8",
                              "executable": false}]}),
        ),
        (
            json!({"additional_files": zipped(&[("main.py", b"no"), ("d/m.py", b"x = 1")])}),
            false,
            json!({"files": [plain()["files"][0],
                             {"name": "d/m.py", "content": "x = 1", "encoding": "utf8",
                              "executable": false}]}),
        ),
    ]);
}

#[test]
fn what_cove_refuses_is_told_in_judge0_s_names() {
    for (field, name) in [
        ("limits.cpu_ms", "cpu_time_limit"),
        ("limits.memory_bytes", "memory_limit"),
        ("compile_args", "compiler_options"),
        ("compile_args[1]", "compiler_options"),
        ("args[0]", "command_line_arguments"),
        ("stdin_base64", "stdin"),
        ("tests[0].stdin", "stdin"),
        ("webhook.url", "callback_url"),
        ("files[0].content", "source_code"),
        ("files[3].name", "additional_files"),
        ("files", "additional_files"),
        ("language", "language_id"),
        ("else", "base"),
    ] {
        let complaints = complaint(&RequestRefusal::invalid(field, "no"));
        assert_eq!(json!(complaints), json!({ name: ["no"] }), "{field}");
    }
}
