//! Programs that exceed their limits, with their expected outcome.

use api::{CheckStatus, Execution, ExecutionRequest, LimitSpec, Verdict};
use executions::{ExecutionError, ExecutionService, ProgramIo};

use super::{DoctorFinding, TRIAL_TENANT, check};

/// Program with its expected outcome. True if it requires limits of memory and processes.
struct TrialProgram {
    name: &'static str,
    script: &'static str,
    limits: LimitSpec,
    expected: Verdict,
    /// True if it needs memory and processes to be limited.
    needs_limits: bool,
}

/// Runs the trials for which this machine has limits, one after the other.
pub(super) async fn run(service: &ExecutionService, limited: bool) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for trial in trials().iter().filter(|trial| limited || !trial.needs_limits) {
        let request = ExecutionRequest {
            argv: Some(["/bin/sh", "-c", trial.script].map(str::to_owned).to_vec()),
            limits: trial.limits,
            ..ExecutionRequest::default()
        };
        let observer = &mut ();
        let run = service.execute(TRIAL_TENANT, request, ProgramIo::default(), observer);
        findings.push(trial.judge(Box::pin(run).await));
    }
    findings
}

fn trials() -> [TrialProgram; 3] {
    let none = LimitSpec::default();
    [
        TrialProgram {
            name: "run a program",
            script: "test \"$(echo works)\" = works",
            limits: none,
            expected: Verdict::Ok,
            needs_limits: false,
        },
        TrialProgram {
            name: "stop a busy one",
            script: "while :; do :; done",
            limits: LimitSpec { cpu_ms: Some(50), ..none },
            expected: Verdict::Tle,
            needs_limits: false,
        },
        TrialProgram {
            name: "stop a greedy one",
            // `tail` must keep input without a line end in memory.
            script: "head -c 256M /dev/zero | tail -n 1",
            limits: LimitSpec { memory_bytes: Some(32 << 20), ..none },
            expected: Verdict::Mle,
            needs_limits: true,
        },
    ]
}

impl TrialProgram {
    fn judge(&self, result: Result<Execution, ExecutionError>) -> DoctorFinding {
        let failure = "programs do not end as they must; the log above may say why";
        match result {
            Ok(execution) if execution.outcome.verdict == self.expected => {
                let (verdict, ms) = (execution.outcome.verdict, execution.outcome.wall_ms);
                check(self.name, format!("{verdict} after {ms} ms"))
            }
            Ok(execution) => {
                let (verdict, expected) = (execution.outcome.verdict, self.expected);
                check(self.name, format!("{verdict} instead of {expected}"))
                    .but(CheckStatus::Missing, failure)
            }
            // A busy server does not isolate programs less.
            Err(error) if error.retry_after().is_some() => check(self.name, error.to_string())
                .but(CheckStatus::Note, "it was not tried; run the checks again later"),
            Err(error) => check(self.name, error.to_string()).but(CheckStatus::Missing, failure),
        }
    }
}
