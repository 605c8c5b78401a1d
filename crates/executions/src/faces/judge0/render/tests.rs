//! Conversion of results to statuses, and of jobs to fields.

use api::{ExecutionId, ExecutionMode, StageResult, TestResult, TruncatedStreams};
use serde_json::json;

use super::*;
use crate::faces::judge0::submission::LABEL;
use crate::verdict::infrastructure_failure;

fn outcome(verdict: Verdict, code: Option<i32>, signal: Option<&str>) -> StageOutcome {
    StageOutcome {
        verdict,
        exit_code: code,
        signal: signal.map(str::to_owned),
        stdout: "out\n".to_owned(),
        stderr: String::new(),
        cpu_ms: 12.3,
        wall_ms: 1500.0,
        memory_peak_bytes: 2_000_000,
        message: None,
        ..infrastructure_failure()
    }
}

fn limited(verdict: Verdict, limit: LimitHit) -> StageOutcome {
    StageOutcome { limit: Some(limit), ..outcome(verdict, None, Some("SIGKILL")) }
}

fn execution(outcome: StageOutcome) -> Execution {
    Execution {
        id: ExecutionId("ex_01KBJ8QZ5N8M3V0Y2R7T4W6X9A".to_owned()),
        outcome,
        mode: ExecutionMode::Fresh,
        stages: Vec::new(),
        files: Vec::new(),
        tests: Vec::new(),
        last_seq: 0,
    }
}

fn remembered() -> SubmissionRecord {
    SubmissionRecord {
        face: LABEL.to_owned(),
        language_id: 71,
        cpu_time_limit: 5.0,
        number_of_runs: 1,
        ..SubmissionRecord::default()
    }
}

fn job(state: ExecutionState, result: Option<&Execution>) -> QueuedJob {
    QueuedJob {
        id: ExecutionId("ex_01KBJ8QZ5N8M3V0Y2R7T4W6X9A".to_owned()),
        tenant: "t".to_owned(),
        state,
        language: "python".to_owned(),
        label: Some(LABEL.to_owned()),
        priority: 0,
        created_ms: 1000,
        deadline_ms: None,
        started_ms: result.map(|_| 2000),
        finished_ms: result.map(|_| 3500),
        attempts: 1,
        message: None,
        verdict: None,
        face: Some(serde_json::to_string(&remembered()).unwrap()),
        request: None,
        result: result.map(|result| serde_json::to_vec(result).unwrap()),
    }
}

#[test]
fn every_verdict_has_a_status_and_a_message() {
    let not_started = StageOutcome {
        message: Some("start `./a.out`: no".to_owned()),
        ..outcome(Verdict::Re, Some(126), None)
    };
    let slow = StageOutcome { cpu_ms: 5000.1, ..outcome(Verdict::Ok, Some(0), None) };
    for (outcome, status, message) in [
        (outcome(Verdict::Ok, Some(0), None), "Accepted", None),
        (outcome(Verdict::Wa, Some(0), None), "Wrong Answer", None),
        (slow, "Time Limit Exceeded", Some("Time limit exceeded")),
        (limited(Verdict::Tle, LimitHit::Cpu), "Time Limit Exceeded", Some("Time limit exceeded")),
        (
            limited(Verdict::Tle, LimitHit::Wall),
            "Time Limit Exceeded",
            Some("Time limit exceeded (wall clock)"),
        ),
        (
            limited(Verdict::Mle, LimitHit::Memory),
            "Runtime Error (Other)",
            Some("Memory limit exceeded"),
        ),
        (
            limited(Verdict::Ole, LimitHit::Output),
            "Runtime Error (SIGXFSZ)",
            Some("Output limit exceeded"),
        ),
        (
            outcome(Verdict::Sg, None, Some("SIGSEGV")),
            "Runtime Error (SIGSEGV)",
            Some("Caught fatal signal 11"),
        ),
        (
            outcome(Verdict::Sg, None, Some("SIGXFSZ")),
            "Runtime Error (SIGXFSZ)",
            Some("Caught fatal signal 25"),
        ),
        (
            outcome(Verdict::Sg, None, Some("SIGFPE")),
            "Runtime Error (SIGFPE)",
            Some("Caught fatal signal 8"),
        ),
        (
            outcome(Verdict::Sg, None, Some("SIGABRT")),
            "Runtime Error (SIGABRT)",
            Some("Caught fatal signal 6"),
        ),
        (
            outcome(Verdict::Sg, None, Some("SIGTERM")),
            "Runtime Error (Other)",
            Some("Caught fatal signal 15"),
        ),
        (
            outcome(Verdict::Re, Some(3), None),
            "Runtime Error (NZEC)",
            Some("Exited with error status 3"),
        ),
        (not_started, "Exec Format Error", Some("start `./a.out`: no")),
        (infrastructure_failure(), "Internal Error", infrastructure_failure().message.as_deref()),
        (outcome(Verdict::Jf, Some(0), None), "Internal Error", None),
    ] {
        let judged = SubmissionOutcome::finished(&execution(outcome.clone()), &remembered());
        let seen = (STATUSES[judged.status - 1], judged.message.as_deref());
        assert_eq!(seen, (status, message), "{outcome:?}");
    }
}

#[test]
fn a_failed_compilation_shows_what_the_compiler_said_and_no_run() {
    let compile = |limit| StageOutcome {
        stderr: "error\n".to_owned(),
        limit,
        ..outcome(Verdict::Ce, Some(1), None)
    };
    for (limit, message) in
        [(None, None), (Some(LimitHit::Cpu), Some("Compilation time limit exceeded"))]
    {
        let mut execution = execution(compile(limit));
        let outcome = compile(limit);
        execution.stages = vec![StageResult {
            name: StageName::Compile,
            mode: ExecutionMode::Fresh,
            outcome,
            output_at_top: false,
        }];
        let judged = SubmissionOutcome::finished(&execution, &remembered());
        let expected = SubmissionOutcome {
            status: COMPILATION,
            compile_output: Some(b"error\nout\n".to_vec()),
            message: message.map(str::to_owned),
            ..SubmissionOutcome::default()
        };
        assert_eq!(judged, expected);
    }
}

#[test]
fn figures_of_several_runs_are_their_mean_and_the_first_failure_is_shown() {
    let run = |verdict, cpu_ms, memory_peak_bytes, stdout: &str| TestResult {
        name: String::new(),
        outcome: StageOutcome {
            cpu_ms,
            memory_peak_bytes,
            stdout: stdout.to_owned(),
            ..outcome(verdict, Some(0), None)
        },
        mode: ExecutionMode::Fresh,
        judge: None,
        output_at_top: false,
    };
    let mut execution = execution(outcome(Verdict::Ok, Some(0), None));
    execution.tests = vec![run(Verdict::Ok, 10.0, 1024, "a"), run(Verdict::Ok, 20.0, 3072, "b")];
    let judged = SubmissionOutcome::finished(&execution, &remembered());
    let seen = (judged.status, judged.cpu_ms, judged.memory_bytes, judged.stdout);
    assert_eq!(seen, (ACCEPTED, Some(15.0), Some(2048), Some(b"b".to_vec())));
    execution.tests.insert(0, run(Verdict::Wa, 30.0, 2048, "c"));
    let judged = SubmissionOutcome::finished(&execution, &remembered());
    assert_eq!((judged.status, judged.stdout), (WRONG_ANSWER, Some(b"c".to_vec())));
}

#[test]
fn programs_of_several_files_are_compared_here() {
    for (expected, status) in [("out", ACCEPTED), ("out  \n\n", ACCEPTED), ("other", WRONG_ANSWER)]
    {
        let remembered =
            SubmissionRecord { expected: Some(BASE64.encode(expected)), ..remembered() };
        let execution = execution(outcome(Verdict::Ok, Some(0), None));
        assert_eq!(
            SubmissionOutcome::finished(&execution, &remembered).status,
            status,
            "{expected:?}"
        );
    }
}

#[test]
fn the_default_fields_of_every_state() {
    let finished = execution(outcome(Verdict::Ok, Some(0), None));
    let dead =
        QueuedJob { message: Some("three times".to_owned()), ..job(ExecutionState::Dead, None) };
    let nothing = json!({"time": null, "memory": null, "stdout": null, "stderr": null,
                         "compile_output": null, "message": null});
    for (job, status_id, changes) in [
        (job(ExecutionState::Queued, None), IN_QUEUE, json!({})),
        (job(ExecutionState::Running, None), PROCESSING, json!({})),
        (dead, INTERNAL, json!({"message": "three times"})),
        (
            job(ExecutionState::Finished, Some(&finished)),
            ACCEPTED,
            json!({"time": "0.012", "memory": 1953, "stdout": "out\n"}),
        ),
    ] {
        let mut expected = nothing.clone();
        for (name, value) in changes.as_object().unwrap() {
            expected[name] = value.clone();
        }
        expected["token"] = token::of(&job.id).into();
        expected["status"] = status(status_id);
        let submitted = SubmissionView::of(job).unwrap();
        let document = submitted.render(DEFAULT_FIELDS, TextEncoding::Plain, &[]).unwrap();
        assert_eq!(document, expected);
    }
}

#[test]
fn texts_are_plain_or_base64_and_never_broken() {
    let bytes = StageOutcome {
        stdout: "\u{fffd}".to_owned(),
        stdout_base64: Some("/w==".to_owned()),
        truncated: TruncatedStreams::default(),
        ..outcome(Verdict::Ok, Some(0), None)
    };
    let submitted =
        SubmissionView::of(job(ExecutionState::Finished, Some(&execution(bytes)))).unwrap();
    assert_eq!(submitted.render(["stdout"], TextEncoding::Plain, &[]), Err(NotText));
    let document = submitted.render(["stdout", "stderr"], TextEncoding::Base64, &[]);
    assert_eq!(document, Ok(json!({"stdout": "/w==", "stderr": null})));
}

#[test]
fn every_field_is_known_and_a_job_of_another_face_is_not_shown() {
    let finished = execution(outcome(Verdict::Re, Some(7), None));
    let submitted = SubmissionView::of(job(ExecutionState::Finished, Some(&finished))).unwrap();
    let all = FIELDS.into_iter().chain(MADE_FIELDS).chain(NAMED_FIELDS);
    let document = submitted.render(all, TextEncoding::Plain, &[]).unwrap();
    for (field, expected) in [
        ("created_at", json!("1970-01-01T00:00:01.000Z")),
        ("started_at", json!("1970-01-01T00:00:02.000Z")),
        ("finished_at", json!("1970-01-01T00:00:03.500Z")),
        ("wall_time", json!("1.5")),
        ("exit_code", json!(7)),
        ("exit_signal", json!(null)),
        ("cpu_time_limit", json!("5.0")),
        ("status_id", json!(11)),
        ("language", json!({"id": 71, "name": null})),
        ("execution_host", json!("cove")),
    ] {
        assert_eq!(document[field], expected, "{field}");
    }
    let count = FIELDS.len() + MADE_FIELDS.len() + NAMED_FIELDS.len();
    assert_eq!(document.as_object().unwrap().len(), count);
    for face in [None, Some("{}"), Some(r#"{"face":"gojudge"}"#), Some("nonsense")] {
        let job = QueuedJob { face: face.map(str::to_owned), ..job(ExecutionState::Queued, None) };
        assert!(SubmissionView::of(job).is_none());
    }
}

#[test]
fn a_callback_has_the_default_fields_in_base64() {
    let finished = execution(outcome(Verdict::Ok, Some(0), None));
    let body = callback_body(&job(ExecutionState::Finished, Some(&finished))).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["stdout"], "b3V0Cg==");
    assert_eq!(body["status"], json!({"id": 3, "description": "Accepted"}));
    assert_eq!(body.as_object().unwrap().len(), DEFAULT_FIELDS.len());
}

#[test]
fn seconds_are_short_strings() {
    for (ms, expected) in
        [(0.0, "0.0"), (0.4, "0.0"), (1.0, "0.001"), (1000.0, "1.0"), (1250.6, "1.251")]
    {
        assert_eq!(seconds(ms), expected);
    }
}
