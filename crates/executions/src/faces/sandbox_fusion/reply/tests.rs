//! Every end of a program, and its answer.

use std::time::Duration;

use api::{ExecutionId, ExecutionMode, StageResult};

use super::*;
use crate::verdict::infrastructure_failure;

fn outcome(code: Option<i32>, signal: Option<&str>, limit: Option<LimitHit>) -> StageOutcome {
    StageOutcome {
        verdict: match (code, limit) {
            (Some(0), None) => Verdict::Ok,
            _ => Verdict::Re,
        },
        exit_code: code,
        signal: signal.map(str::to_owned),
        limit,
        message: None,
        stdout: "out".to_owned(),
        stderr: "err".to_owned(),
        cpu_ms: 1500.0,
        wall_ms: 2500.0,
        ..infrastructure_failure()
    }
}

fn planned(language: &'static str, stages: FusionStages) -> PlannedRun {
    PlannedRun {
        request: api::ExecutionRequest::default(),
        wait_max: Duration::ZERO,
        language,
        stages,
        fetched: Vec::new(),
        cells: 0,
        has_cell_timeout: false,
    }
}

fn execution(stages: &[(StageName, StageOutcome)]) -> Execution {
    let result = |(name, outcome): &(StageName, StageOutcome)| StageResult {
        name: *name,
        mode: ExecutionMode::Fresh,
        outcome: outcome.clone(),
        output_at_top: false,
    };
    Execution {
        id: ExecutionId("ex_1".to_owned()),
        outcome: stages.last().unwrap().1.clone(),
        mode: ExecutionMode::Fresh,
        stages: stages.iter().map(result).collect(),
        files: Vec::new(),
        tests: Vec::new(),
        last_seq: 0,
    }
}

#[test]
fn every_end_has_its_status_and_code() {
    let run = planned("python", FusionStages::RunOnly);
    for (outcome, status, result, code, message) in [
        (outcome(Some(0), None, None), "Success", "Finished", Some(0), ""),
        (outcome(Some(3), None, None), "Failed", "Finished", Some(3), ""),
        (outcome(None, Some("SIGSEGV"), None), "Failed", "Finished", Some(-11), ""),
        (outcome(None, Some("SIG34"), None), "Failed", "Finished", Some(-9), ""),
        (
            outcome(None, Some("SIGKILL"), Some(LimitHit::Wall)),
            "Failed",
            "TimeLimitExceeded",
            None,
            "time limit exceeded",
        ),
        (
            outcome(Some(0), None, Some(LimitHit::Cpu)),
            "Failed",
            "TimeLimitExceeded",
            None,
            "CPU time limit exceeded",
        ),
        (
            outcome(Some(0), None, Some(LimitHit::Memory)),
            "Failed",
            "Finished",
            Some(-9),
            "memory limit exceeded",
        ),
        (
            outcome(None, None, Some(LimitHit::Output)),
            "Failed",
            "Finished",
            Some(-9),
            "output limit exceeded",
        ),
    ] {
        let answer = of_code(&run, &execution(&[(StageName::Run, outcome.clone())])).unwrap();
        let expected = json!({
            "status": status, "message": message, "compile_result": null, "executor_pod_name": null,
            "files": {},
            "run_result": {
                "status": result, "return_code": code, "stdout": "out", "stderr": "err",
                "execution_time": 2.5, "cpu_time": 1.5,
            },
        });
        assert_eq!(answer, expected, "{outcome:?}");
    }
}

#[test]
fn stages_are_those_that_sandbox_fusion_has() {
    let (good, bad) = (outcome(Some(0), None, None), outcome(Some(1), None, None));
    let both = [(StageName::Compile, good.clone()), (StageName::Run, good)];
    let failed = [(StageName::Compile, bad)];
    for (stages, ran, compile, run) in [
        (FusionStages::Both, execution(&both), json!(0), json!(0)),
        (FusionStages::Both, execution(&failed), json!(1), Value::Null),
        (FusionStages::RunOnly, execution(&both), Value::Null, json!(0)),
        // The result in place of the run is returned.
        (FusionStages::RunOnly, execution(&failed), Value::Null, json!(1)),
    ] {
        let answer = of_code(&planned("x", stages), &ran).unwrap();
        let codes = [&answer["compile_result"], &answer["run_result"]].map(|it| &it["return_code"]);
        assert_eq!(codes, [&compile, &run], "{answer}");
    }
}

#[test]
fn output_is_whole_and_java_s_note_is_not_the_program_s() {
    let exact = Some(BASE64.encode([b"\xff".as_slice(), &[7; 6000]].concat()));
    let binary = StageOutcome { stdout_base64: exact, ..outcome(Some(0), None, None) };
    let answer =
        of_code(&planned("python", FusionStages::RunOnly), &execution(&[(StageName::Run, binary)]));
    let stdout = answer.unwrap()["run_result"]["stdout"].as_str().unwrap().to_owned();
    assert!(stdout.starts_with("\u{fffd}\u{7}") && stdout.chars().count() == 6001);
    let noted = StageOutcome { stderr: format!("{JAVA_NOTE}mine"), ..outcome(Some(0), None, None) };
    for (language, expected) in [("java", "mine"), ("cpp", noted.stderr.as_str())] {
        let ran = execution(&[(StageName::Run, noted.clone())]);
        let answer = of_code(&planned(language, FusionStages::Both), &ran).unwrap();
        assert_eq!(answer["run_result"]["stderr"], expected, "{language}");
    }
}

#[test]
fn a_python_without_pytest_is_not_the_program_s_fault() {
    let ran = execution(&[(StageName::Run, outcome(Some(NO_PYTEST), None, None))]);
    assert!(of_code(&planned("pytest", FusionStages::RunOnly), &ran).is_err());
    assert!(of_code(&planned("python", FusionStages::RunOnly), &ran).is_ok());
}

#[test]
fn files_that_are_there_are_returned_as_they_were_asked_for() {
    let file = |name: &str, content: Option<&str>, encoding| OutputFile {
        name: name.to_owned(),
        content: content.map(str::to_owned),
        encoding,
        error: content.is_none().then(|| "missing".to_owned()),
    };
    let mut ran = execution(&[(StageName::Run, outcome(Some(0), None, None))]);
    ran.files = vec![
        file("a", Some("text"), BytesEncoding::Utf8),
        file("b", Some("/w=="), BytesEncoding::Base64),
        file("c", None, BytesEncoding::Utf8),
    ];
    let name = |requested: &str, inside: &str| FetchedName {
        requested: requested.to_owned(),
        inside: inside.to_owned(),
    };
    let fetched = vec![name("a", "a"), name("./a", "a"), name("b", "b"), name("c", "c")];
    let run = PlannedRun { fetched, ..planned("python", FusionStages::RunOnly) };
    let answer = of_code(&run, &ran).unwrap();
    assert_eq!(answer["files"], json!({"a": "dGV4dA==", "./a": "dGV4dA==", "b": "/w=="}));
}

const CELL: &str = r#"{"stdout":"o","stderr":"","display":[{"text/plain":"1"}],"error":[]}"#;

#[test]
fn cells_are_passed_on_only_as_they_should_be() {
    for (written, count, expected) in [
        (String::new(), 0, Some("[]".to_owned())),
        (format!("{CELL}\n"), 1, Some(format!("[{CELL}]"))),
        (format!("{CELL}\n{CELL}\n"), 2, Some(format!("[{CELL},{CELL}]"))),
        (format!("{CELL}\n"), 2, None),
        (format!("{CELL}\n{CELL}\n"), 1, None),
        (format!("hello\n{CELL}\n"), 1, None),
        (format!("{CELL},{CELL}\n"), 1, None),
        (CELL.replace("\"o\"", "1"), 1, None),
        (CELL.replace("[]", "[1]"), 1, None),
        (CELL.replace("[]", "[[]]"), 1, None),
        (CELL.replace("\"error\"", "\"other\""), 1, None),
        (CELL.replace("\"1\"", &"[".repeat(1000)), 1, None),
    ] {
        let found = cells(&written, count).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(found, expected, "{written}");
    }
}

#[test]
fn a_notebook_that_did_not_end_well_has_no_cells() {
    let written = |outcome: StageOutcome| StageOutcome { stdout: format!("{CELL}\n"), ..outcome };
    let run =
        PlannedRun { cells: 1, has_cell_timeout: true, ..planned("python", FusionStages::RunOnly) };
    for (outcome, status, driver, code, has_cells) in [
        (outcome(Some(0), None, None), "Success", "Finished", json!(0), true),
        (outcome(Some(1), None, None), "Failed", "Finished", json!(1), false),
        (outcome(None, Some("SIGALRM"), None), "Failed", "TimeLimitExceeded", Value::Null, false),
        (
            outcome(None, Some("SIGKILL"), Some(LimitHit::Wall)),
            "Failed",
            "TimeLimitExceeded",
            Value::Null,
            false,
        ),
    ] {
        let reply = of_notebook(&run, &execution(&[(StageName::Run, written(outcome))]));
        let NotebookReply { object, cells } = reply;
        assert_eq!(object["status"], status);
        assert_eq!(object["driver"]["status"], driver);
        assert_eq!(object["driver"]["return_code"], code);
        assert_eq!(cells != b"[]", has_cells, "{object}");
    }
}
