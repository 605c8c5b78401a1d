//! Executions of bodies, and refused bodies.

use serde_json::Value;

use super::*;
use crate::config::ExecutionsConfig;

fn planner() -> ExecutionPlanner {
    ExecutionPlanner::new(ExecutionsConfig::default(), 1 << 30, "/usr/bin:/bin").unwrap()
}

fn languages() -> Vec<LanguageView> {
    let view = |(name, extension, compiled): (&str, &str, bool)| LanguageView {
        name: name.to_owned(),
        aliases: Vec::new(),
        extensions: vec![extension.to_owned()],
        version: None,
        compiled,
        available: true,
        preparing: false,
        reason: None,
    };
    [
        ("python", "py", false),
        ("cpp", "cpp", true),
        ("java", "java", true),
        ("typescript", "ts", true),
    ]
    .map(view)
    .into()
}

fn code(body: &Value) -> Result<PlannedRun, String> {
    let body: RunCodeBody = serde_json::from_value(body.clone()).unwrap();
    refusal_text(plan_code(body, &languages(), &planner(), &SandboxFusionConfig::default()))
}

fn notebook(body: &Value) -> Result<PlannedRun, String> {
    let body: NotebookBody = serde_json::from_value(body.clone()).unwrap();
    refusal_text(plan_notebook(body, &languages(), &planner(), &SandboxFusionConfig::default()))
}

fn refusal_text(planned: Result<PlannedRun, SandboxFusionFailure>) -> Result<PlannedRun, String> {
    planned.map_err(|failure| match failure {
        SandboxFusionFailure::Refused(message) => message,
        SandboxFusionFailure::Http(error) => format!("{}: {error}", error.status()),
    })
}

fn names(run: &PlannedRun) -> Vec<&str> {
    run.request.files.iter().map(|file| file.name.as_str()).collect()
}

#[test]
fn a_request_becomes_an_execution() {
    let run = code(&json!({
        "language": "cpp", "code": "int main(){}", "stdin": "in", "compile_timeout": 3,
        "run_timeout": 0.25, "memory_limit_MB": 64, "unknown": 1,
        "files": {"./lib//a.txt": "YQ==", "none": null, "x_IGNORE_THIS_FILE": "YQ=="},
        "fetch_files": ["b.txt", "./b.txt", "/workspace/c"],
    }))
    .unwrap();
    assert_eq!(names(&run), ["main.cpp", "lib/a.txt"]);
    let request = &run.request;
    assert_eq!(request.language.as_deref(), Some("cpp"));
    assert_eq!(request.compile_args, ["-std=c++17"]);
    assert_eq!((request.stdin.as_deref(), request.files[1].content.as_str()), (Some("in"), "YQ=="));
    assert_eq!(request.outputs, ["b.txt", "c"]);
    let requested: Vec<&str> = run.fetched.iter().map(|name| name.requested.as_str()).collect();
    assert_eq!(requested, ["b.txt", "./b.txt", "/workspace/c"]);
    let (limits, compile) = (&request.limits, &request.compile_limits);
    assert_eq!((limits.wall_ms, limits.memory_bytes), (Some(250), Some(64 << 20)));
    assert_eq!((compile.wall_ms, compile.memory_bytes), (Some(3000), None));
    // Its client waits no longer than the compiler, the program and this.
    assert_eq!(run.wait_max, Duration::from_secs(8));
}

#[test]
fn limits_are_brought_into_their_ranges() {
    for (fields, wall_ms, memory_bytes) in [
        (json!({}), Some(10_000), None),
        (json!({"run_timeout": null, "memory_limit_MB": null}), Some(10_000), None),
        (json!({"run_timeout": 0, "memory_limit_MB": 0}), Some(1), None),
        (json!({"run_timeout": -3, "memory_limit_MB": -1}), Some(1), None),
        (json!({"run_timeout": 1e300, "memory_limit_MB": 1e300}), Some(300_000), Some(1 << 30)),
        (json!({"run_timeout": 1, "memory_limit_MB": 1}), Some(1000), Some(4 << 20)),
    ] {
        let mut body = json!({"language": "python", "code": ""});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let limits = code(&body).unwrap().request.limits;
        assert_eq!((limits.wall_ms, limits.memory_bytes), (wall_ms, memory_bytes), "{fields}");
    }
}

#[test]
fn without_a_compile_stage_its_time_is_for_waiting() {
    for (language, more, expected) in [
        ("python", json!({"compile_timeout": 5}), 13),
        ("typescript", json!({"compile_timeout": 5}), 13),
        ("cpp", json!({"compile_timeout": 5}), 8),
        ("python", json!({"compile_timeout": 1e9}), 300),
    ] {
        let mut body = json!({"language": language, "code": ""});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let wait = code(&body).unwrap().wait_max;
        assert_eq!(wait, Duration::from_secs(expected), "{language} {more}");
    }
}

#[test]
fn the_code_hides_no_file_but_java_s_class() {
    let main = |name: &str, language: &str| {
        let body = json!({"language": language, "code": "own", "files": {name: "YQ=="}});
        let run = code(&body).unwrap();
        let files = run.request.files.iter();
        files.map(|file| (file.name.clone(), file.content.clone())).collect::<Vec<_>>()
    };
    let file = |name: &str, content: &str| (name.to_owned(), content.to_owned());
    assert_eq!(main("main.py", "python"), [file("main1.py", "own"), file("main.py", "YQ==")]);
    assert_eq!(main("Main.java", "java"), [file("Main.java", "own")]);
    let tests = code(&json!({"language": "pytest", "code": "own", "files": {"code.py": "YQ=="}}));
    let tests = tests.unwrap();
    assert_eq!(names(&tests), ["main.py", "code1.py", "code.py"]);
    assert_eq!(tests.request.args, ["code1.py"]);
    assert!(tests.request.files[0].content.contains(&format!("sys.exit({NO_PYTEST})")));
}

#[test]
fn what_is_wrong_is_said() {
    let good = || json!({"language": "python", "code": ""});
    for (change, expected) in [
        (json!({"code": null}), "400 Bad Request: code: Field required"),
        (json!({"language": null}), "400 Bad Request: language: Field required"),
        (json!({"language": "cobol"}), "400 Bad Request: language: there is no language \"cobol\""),
        (json!({"language": "ruby"}), "language `ruby` is not run by this server: "),
        (json!({"files": {"a": "?"}}), "files[\"a\"]: is not base64"),
        (json!({"files": {"/etc/x": ""}}), "files[\"/etc/x\"]: is outside of the program's"),
        (json!({"files": {"a/../../b": ""}}), "files[\"a/../../b\"]: is outside of the program's"),
        (json!({"files": {"./": ""}}), "files[\"./\"]: names no file"),
        (json!({"fetch_files": ["/mnt/b"]}), "fetch_files[\"/mnt/b\"]: is outside of the"),
    ] {
        let mut body = good();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let message = code(&body).unwrap_err();
        assert!(message.starts_with(expected), "{change}: {message}");
    }
    for (body, expected) in [
        (json!({}), "400 Bad Request: cells: Field required"),
        (json!({"cells": [], "kernel": "ir"}), "400 Bad Request: kernel: Input should be"),
        (json!({"cells": vec![""; CELLS_MAX + 1]}), "cells: has more than 1000 cells"),
    ] {
        let message = notebook(&body).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn a_notebook_is_one_program() {
    let body = json!({"cells": ["a", "b"], "cell_timeout": 1.5, "files": {"main.py": "YQ=="}});
    let run = notebook(&body).unwrap();
    assert_eq!(names(&run), ["main1.py", "main.py"]);
    assert_eq!((run.cells, run.has_cell_timeout), (2, true));
    let stdin: Value = serde_json::from_str(run.request.stdin.as_deref().unwrap()).unwrap();
    assert_eq!(stdin, json!({"cells": ["a", "b"], "cell_timeout": 1.5}));
    assert_eq!(run.request.limits.wall_ms, Some(45_000));
    let run = notebook(&json!({"cells": []})).unwrap();
    assert_eq!((run.cells, run.has_cell_timeout), (0, false));
}
