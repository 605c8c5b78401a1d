//! Spans of executions and their attributes. They contain nothing about programs, their input or
//! their output.

use api::{Execution, StageName, StageOutcome, Verdict};
use node::traces::{Span, VARIABLE};
use sandbox::SandboxCommand;

use crate::error::ExecutionError;

/// Name of the span of an execution, from its plan to its verdict.
pub(crate) const EXECUTION: &str = "execution";
/// Name of the span of the wait for a place and for memory.
pub(crate) const ADMISSION: &str = "admission";
/// Name of the span of the wait for a sandbox.
pub(crate) const SANDBOX: &str = "sandbox";

/// Returns the name of the span of a stage.
pub(crate) const fn stage_name(stage: StageName) -> &'static str {
    match stage {
        StageName::Compile => "compile",
        StageName::Run => "run",
        StageName::Interactor => "interactor",
        StageName::Checker => "checker",
    }
}

/// Records the end of a stage. A program's failure is not a failure of the server; only a failure
/// of the server itself marks the span as failed.
pub(crate) fn describe(span: &mut Span, outcome: &StageOutcome) {
    if !span.is_recorded() {
        return;
    }
    span.set("cove.verdict", outcome.verdict.as_str());
    if let Some(code) = outcome.exit_code {
        span.set("process.exit.code", code);
    }
    if let Some(signal) = &outcome.signal {
        span.set("cove.signal", signal.clone());
    }
    if let Some(limit) = outcome.limit {
        span.set("cove.limit", limit.as_str());
    }
    span.set("cove.cpu_ms", outcome.cpu_ms);
    span.set("cove.wall_ms", outcome.wall_ms);
    span.set("cove.memory_peak_bytes", outcome.memory_peak_bytes);
    span.set("cove.processes_peak", outcome.processes_peak);
    if outcome.verdict == Verdict::Ie {
        span.fail("the server failed to run the program");
    }
}

/// Records the end of an execution.
pub(crate) fn describe_execution<T>(
    span: &mut Span,
    ended: &Result<(Execution, T), ExecutionError>,
) {
    if !span.is_recorded() {
        return;
    }
    match ended {
        Ok((execution, _)) => {
            span.set("cove.mode", execution.mode.as_str());
            describe(span, &execution.outcome);
        }
        Err(error) => {
            // As in answers.
            let code = serde_json::to_value(error.detail().code).unwrap_or_default();
            let code = code.as_str().unwrap_or_default().to_owned();
            span.set("error.type", code.clone());
            span.fail(code);
        }
    }
}

/// Lets a program continue the trace, by a variable that its own environment can override.
pub(crate) fn pass_on(span: &Span, command: &mut SandboxCommand) {
    let Some(scope) = span.scope() else { return };
    let is_set = |entry: &Vec<u8>| {
        entry.strip_prefix(VARIABLE.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    if !command.env.iter().any(is_set) {
        command.env.push(format!("{VARIABLE}={}", scope.context().traceparent()).into_bytes());
    }
}
