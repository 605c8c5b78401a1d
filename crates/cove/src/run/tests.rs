//! Exit codes and messages of verdicts, and limits from flags.

use api::{LimitHit, LimitSpec, TruncatedStreams};

use super::*;

fn outcome(verdict: Verdict) -> StageOutcome {
    StageOutcome {
        verdict,
        exit_code: None,
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
        stdout_base64: None,
        stderr_base64: None,
        truncated: TruncatedStreams::default(),
        limit: None,
        cpu_ms: 1002.5,
        wall_ms: 1010.0,
        memory_peak_bytes: 3 << 20,
        processes_peak: 1,
        oom_kills: 0,
        message: None,
    }
}

fn check(outcome: &StageOutcome, code: u8, sentence: &str) {
    assert_eq!(exit_code(outcome), code, "{}", outcome.verdict);
    let line = judgement(outcome);
    let expected =
        format!("{}: {sentence} (cpu 1002.5 ms, wall 1010 ms, memory 3 MiB)", outcome.verdict);
    assert_eq!(line, expected);
}

#[test]
fn every_verdict_has_an_exit_code_and_a_sentence() {
    let exited = |code| StageOutcome { exit_code: Some(code), ..outcome(Verdict::Re) };
    check(&exited(4), 4, "exited with code 4");
    check(&exited(255), 255, "exited with code 255");
    let signalled =
        |name: &str| StageOutcome { signal: Some(name.to_owned()), ..outcome(Verdict::Sg) };
    check(&signalled("SIGSEGV"), 139, "ended by SIGSEGV");
    check(&signalled("SIGKILL"), 137, "ended by SIGKILL");
    check(&signalled("SIGRTMIN+2"), 164, "ended by SIGRTMIN+2");
    let limited = |verdict, limit| StageOutcome { limit: Some(limit), ..outcome(verdict) };
    check(&limited(Verdict::Tle, LimitHit::Cpu), 124, "reached its cpu time limit");
    check(&limited(Verdict::Tle, LimitHit::Wall), 124, "reached its wall time limit");
    check(&limited(Verdict::Mle, LimitHit::Memory), 137, "reached its memory limit");
    check(&limited(Verdict::Ole, LimitHit::Output), 137, "reached its output limit");
    check(&limited(Verdict::Ce, LimitHit::Cpu), 126, "the compiler reached its cpu limit");
    check(&outcome(Verdict::Ce), 126, "did not compile");
    check(&outcome(Verdict::Ie), 125, "cove failed to run it");
    check(&outcome(Verdict::Ok), 0, "exited with code 0");
    let missing = StageOutcome { message: Some("start `x`: no".to_owned()), ..exited(127) };
    check(&missing, 127, "start `x`: no");
}

#[test]
fn signals_have_the_kernels_numbers() {
    let check = |name: &str, number: Option<u8>| assert_eq!(signal_number(name), number, "{name}");
    check("SIGHUP", Some(1));
    check("SIGKILL", Some(9));
    check("SIGSTKFLT", Some(16));
    check("SIGSYS", Some(31));
    check("SIGRTMIN", Some(34));
    check("SIGRTMIN+30", Some(64));
    check("SIGRTMIN+31", None);
    check("SIGNONE", None);
    check("KILL", None);
}

#[test]
fn what_is_asked_for_is_allowed() {
    let mut config = executions::ExecutionsConfig {
        limits: LimitSpec { cpu_ms: Some(5_000), processes: Some(3), ..LimitSpec::default() },
        limits_max: LimitSpec { cpu_ms: Some(9_000), ..LimitSpec::default() },
        ..executions::ExecutionsConfig::default()
    };
    let requested = LimitSpec { cpu_ms: Some(600_000), ..LimitSpec::default() };
    let request = ExecutionRequest { limits: requested, ..ExecutionRequest::default() };
    lift_maxima(&mut config, &request);
    assert_eq!(config.limits_max.cpu_ms, Some(600_000));
    assert_eq!(config.limits_max.wall_ms, Some(1_200_000));
    assert_eq!((config.limits.cpu_ms, config.limits.processes), (None, Some(3)));
}
