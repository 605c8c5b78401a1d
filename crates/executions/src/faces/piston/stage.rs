//! Results in Piston's format.

use api::{Execution, LimitHit, StageName, StageOutcome};
use sandbox::ChunkStream;
use serde_json::{Map, Value, json};

use super::request::PistonJob;
use crate::service::ProgressObserver;
use crate::verdict::signal_number;

/// Collects the output of each stage, both streams together in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct CombinedOutput {
    stages: Vec<Vec<u8>>,
}

impl CombinedOutput {
    /// Returns the bytes of all stages.
    pub(super) fn len(&self) -> usize {
        self.stages.iter().map(Vec::len).sum()
    }
}

impl ProgressObserver for CombinedOutput {
    fn stage(&mut self, _stage: StageName, _test: Option<u32>) {
        self.stages.push(Vec::new());
    }

    fn chunk(&mut self, _stream: ChunkStream, bytes: &[u8]) {
        // Bounded by the output limits of the streams.
        if let Some(stage) = self.stages.last_mut() {
            stage.extend_from_slice(bytes);
        }
    }

    fn exit(&mut self, _: StageName, _: Option<u32>, _: api::ExecutionMode, _: &StageOutcome) {}
}

/// Returns the answer of `/execute`.
pub(super) fn answer(job: &PistonJob, execution: &Execution, together: &CombinedOutput) -> Value {
    let mut answer = Map::new();
    let mut last = Value::Null;
    for (index, stage) in execution.stages.iter().enumerate() {
        let output = together.stages.get(index).filter(|output| !output.is_empty());
        let output = output.map(|output| String::from_utf8_lossy(output).into_owned());
        last = excerpt(execution.of_stage(stage), output);
        let name = if stage.name == StageName::Compile { "compile" } else { "run" };
        answer.insert(name.to_owned(), last.clone());
    }
    // For a program that did not compile, the run stage is a copy of the compile stage.
    answer.entry("run").or_insert(last);
    answer.insert("language".to_owned(), job.runtime.language.clone().into());
    answer.insert("version".to_owned(), job.runtime.version.to_string().into());
    Value::Object(answer)
}

/// Returns a stage in Piston's shape. Without `output` (cached stages have none), it contains the
/// streams one after the other.
fn excerpt(outcome: &StageOutcome, output: Option<String>) -> Value {
    let end = StageEnd::of(outcome);
    let output = output.unwrap_or_else(|| format!("{}{}", outcome.stdout, outcome.stderr));
    json!({
        "signal": end.signal,
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "code": end.code,
        "output": output,
        "memory": outcome.memory_peak_bytes,
        "message": end.message,
        "status": end.status,
        "cpu_time": milliseconds(outcome.cpu_ms),
        "wall_time": milliseconds(outcome.wall_ms),
    })
}

/// End of a stage in Piston's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StageEnd {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<String>,
    pub(super) status: Option<&'static str>,
    pub(super) message: Option<String>,
}

impl StageEnd {
    pub(super) fn of(outcome: &StageOutcome) -> StageEnd {
        // A program that reached a limit is shown as killed, even if it exited just before.
        let killed = |status, message: &str| StageEnd {
            code: None,
            signal: Some("SIGKILL".to_owned()),
            status: Some(status),
            message: Some(message.to_owned()),
        };
        match outcome.limit {
            Some(LimitHit::Cpu) => return killed("TO", "Time limit exceeded"),
            Some(LimitHit::Wall) => return killed("TO", "Time limit exceeded (wall clock)"),
            Some(LimitHit::Output) if outcome.truncated.stderr && !outcome.truncated.stdout => {
                return killed("EL", "stderr length exceeded");
            }
            Some(LimitHit::Output) => return killed("OL", "stdout length exceeded"),
            Some(LimitHit::Memory) => return killed("SG", "Memory limit exceeded"),
            None => {}
        }
        let (status, message) = match (&outcome.signal, outcome.exit_code) {
            _ if outcome.verdict == api::Verdict::Ie => (Some("XX"), None),
            (Some(signal), _) => (Some("SG"), Some(fatal(signal))),
            (None, Some(0)) => (None, None),
            (None, Some(code)) => (Some("RE"), Some(format!("Exited with error status {code}"))),
            (None, None) => (Some("XX"), None),
        };
        StageEnd {
            code: outcome.exit_code,
            signal: outcome.signal.clone(),
            status,
            // The reason why a program could not be started is more useful than its code.
            message: outcome.message.clone().or(message),
        }
    }
}

fn fatal(signal: &str) -> String {
    match signal_number(signal) {
        Some(number) => format!("Caught fatal signal {number}"),
        None => format!("Caught fatal signal {}", signal.trim_start_matches("SIG")),
    }
}

/// Converts to whole milliseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of runs are positive and bounded by their limits; `as` saturates"
)]
fn milliseconds(ms: f64) -> u64 {
    ms.round() as u64
}

#[cfg(test)]
mod tests {
    use api::{TruncatedStreams, Verdict};

    use super::*;
    use crate::verdict::infrastructure_failure;

    fn outcome(code: Option<i32>, signal: Option<&str>, limit: Option<LimitHit>) -> StageOutcome {
        StageOutcome {
            verdict: Verdict::Re,
            exit_code: code,
            signal: signal.map(str::to_owned),
            limit,
            message: None,
            stdout: "out".to_owned(),
            stderr: "err".to_owned(),
            cpu_ms: 1.4,
            wall_ms: 2.5,
            memory_peak_bytes: 1000,
            ..infrastructure_failure()
        }
    }

    fn stderr_only() -> StageOutcome {
        StageOutcome {
            truncated: TruncatedStreams { stdout: false, stderr: true },
            ..outcome(None, Some("SIGKILL"), Some(LimitHit::Output))
        }
    }

    #[test]
    fn every_end_has_its_status() {
        let not_started = StageOutcome {
            message: Some("start `x`: no".to_owned()),
            ..outcome(Some(127), None, None)
        };
        for (outcome, code, signal, status, message) in [
            (outcome(Some(0), None, None), Some(0), None, None, None),
            (
                outcome(Some(3), None, None),
                Some(3),
                None,
                Some("RE"),
                Some("Exited with error status 3"),
            ),
            (
                outcome(None, Some("SIGSEGV"), None),
                None,
                Some("SIGSEGV"),
                Some("SG"),
                Some("Caught fatal signal 11"),
            ),
            (
                outcome(None, Some("SIG34"), None),
                None,
                Some("SIG34"),
                Some("SG"),
                Some("Caught fatal signal 34"),
            ),
            (
                outcome(Some(1), None, Some(LimitHit::Cpu)),
                None,
                Some("SIGKILL"),
                Some("TO"),
                Some("Time limit exceeded"),
            ),
            (
                outcome(None, None, Some(LimitHit::Wall)),
                None,
                Some("SIGKILL"),
                Some("TO"),
                Some("Time limit exceeded (wall clock)"),
            ),
            (
                outcome(Some(0), None, Some(LimitHit::Output)),
                None,
                Some("SIGKILL"),
                Some("OL"),
                Some("stdout length exceeded"),
            ),
            (stderr_only(), None, Some("SIGKILL"), Some("EL"), Some("stderr length exceeded")),
            (
                outcome(Some(0), None, Some(LimitHit::Memory)),
                None,
                Some("SIGKILL"),
                Some("SG"),
                Some("Memory limit exceeded"),
            ),
            (not_started, Some(127), None, Some("RE"), Some("start `x`: no")),
            (
                infrastructure_failure(),
                None,
                None,
                Some("XX"),
                infrastructure_failure().message.as_deref(),
            ),
        ] {
            let end = StageEnd::of(&outcome);
            let seen = (end.code, end.signal.as_deref(), end.status, end.message.as_deref());
            assert_eq!(seen, (code, signal, status, message), "{outcome:?}");
        }
    }

    #[test]
    fn a_stage_is_complete_and_its_output_is_in_order() {
        let expected = json!({
            "signal": null, "stdout": "out", "stderr": "err", "code": 0, "output": "eorurt",
            "memory": 1000, "message": null, "status": null, "cpu_time": 1, "wall_time": 3,
        });
        let outcome = outcome(Some(0), None, None);
        assert_eq!(excerpt(&outcome, Some("eorurt".to_owned())), expected);
        assert_eq!(excerpt(&outcome, None)["output"], "outerr");
    }
}
