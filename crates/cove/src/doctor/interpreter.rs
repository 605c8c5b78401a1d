//! Checks that the code interpreter can fork: a sandbox runs the imports of the parked interpreter,
//! and the threads that they start are counted.

use api::{CheckStatus, Execution, ExecutionRequest, LimitSpec, Verdict};
use executions::{ExecutionError, ExecutionService, ProgramIo};
use sessions::{ForkHazards, ModuleHazard};

use super::{DoctorFinding, TRIAL_TENANT, check};

/// Names of the checks in the report.
const PARKED: &str = "interpreter";
const PLAIN: &str = "interpreter forks";
/// Exit code of the script if there is no Python.
const NOT_FOUND: i32 = 127;
/// Starts Python if it is installed.
const SCRIPT: &str = "command -v python3 >/dev/null || exit 127; exec python3 -";
/// Remedy for every library whose threads `parked.py` limits.
const REMEDY: &str = "OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1";

/// Runs the imports, and returns the hazards with the checks about them.
pub(super) async fn inspect(
    service: &ExecutionService,
) -> (Option<ForkHazards>, Vec<DoctorFinding>) {
    let request = ExecutionRequest {
        argv: Some(["/bin/sh", "-c", SCRIPT].map(str::to_owned).to_vec()),
        stdin: Some(ForkHazards::program()),
        // Data libraries are large, and a first import on a busy machine is slow.
        limits: LimitSpec {
            cpu_ms: Some(60_000),
            wall_ms: Some(120_000),
            memory_bytes: Some(1 << 30),
            ..LimitSpec::default()
        },
        ..ExecutionRequest::default()
    };
    let run = Box::pin(service.execute(TRIAL_TENANT, request, ProgramIo::default(), &mut ())).await;
    match found(run) {
        Ok(hazards) => {
            let checks = judge(&hazards);
            (Some(hazards), checks)
        }
        Err((why, follows)) => (None, vec![check(PARKED, why).but(CheckStatus::Note, follows)]),
    }
}

fn found(run: Result<Execution, ExecutionError>) -> Result<ForkHazards, (String, &'static str)> {
    let unknown = "whether contexts of Python can be forked is not known";
    let outcome = match run {
        Ok(execution) => execution.outcome,
        Err(error) => return Err((format!("the imports were not tried: {error}"), unknown)),
    };
    if outcome.exit_code == Some(NOT_FOUND) {
        return Err(("no python3".to_owned(), "sessions have no contexts of Python"));
    }
    if outcome.verdict != Verdict::Ok {
        let last = outcome.stderr.trim_end().lines().next_back().unwrap_or_default();
        return Err((format!("the imports ended with {} {last}", outcome.verdict), unknown));
    }
    let parsed = ForkHazards::parse(outcome.stdout.as_bytes());
    parsed.map_err(|error| (format!("the imports gave no answer: {error}"), unknown))
}

/// Returns the checks about threads that imports started.
fn judge(hazards: &ForkHazards) -> Vec<DoctorFinding> {
    let python = format!("Python {}", hazards.python);
    let Some(parked) = &hazards.parked else {
        let found = format!("{python}: importing its libraries was not done in time");
        return vec![check(PARKED, found).but(
            CheckStatus::Note,
            "contexts of Python start by themselves, import for themselves and cannot be forked",
        )];
    };
    let loaded = parked.modules.iter().filter(|it| it.error.is_none() && it.threads.is_empty());
    let loaded: Vec<&str> = loaded.map(|it| it.module.as_str()).collect();
    let mut checks = vec![check(PARKED, format!("{python} has {}", loaded.join(", ")))];
    for module in parked.modules.iter().filter(|it| it.has_failed()) {
        let found = format!("{}: {}", module.module, module.error.as_deref().unwrap_or_default());
        checks.push(check(PARKED, found).but(
            CheckStatus::Note,
            "it is left out of the parked interpreter, and cells that import it fail as well",
        ));
    }
    for module in parked.modules.iter().filter(|it| !it.threads.is_empty()) {
        checks.push(check(PARKED, started(module)).but(
            CheckStatus::Note,
            "it is left out of the parked interpreter: each context imports it for itself, and \
             cannot be forked after that",
        ));
    }
    if parked.copy_calculates == Some(false) {
        checks.push(check(PARKED, "linear algebra hangs or fails in a copy of it").but(
            CheckStatus::Note,
            "cells that calculate with NumPy hang; install a NumPy whose OpenBLAS is built with \
             pthreads, as the wheels of PyPI are",
        ));
    }
    let plain = hazards.plain.iter().flatten().filter(|it| !it.threads.is_empty());
    let plain: Vec<String> = plain.map(started).collect();
    if !plain.is_empty() {
        checks.push(DoctorFinding {
            follows: Some(format!(
                "the parked interpreter sets {REMEDY}; set that in `env` of a context that starts \
                 by itself, or whose cells start such libraries by a program, to fork it"
            )),
            ..check(PLAIN, format!("without being told not to, {}", plain.join("; ")))
        });
    }
    checks
}

/// Describes the threads that a module starts.
fn started(module: &ModuleHazard) -> String {
    let ModuleHazard { module, threads, libraries, .. } = module;
    let by =
        if libraries.is_empty() { String::new() } else { format!(" by {}", libraries.join(", ")) };
    let (count, names) = (threads.len(), threads.join(", "));
    let plural = if count == 1 { "" } else { "s" };
    format!("{module} starts {count} thread{plural} ({names}){by}")
}

#[cfg(test)]
mod tests {
    //! Consequences of imports.

    use super::*;

    fn lines(answer: &str) -> Vec<String> {
        let hazards = ForkHazards::parse(answer.as_bytes()).unwrap();
        judge(&hazards).into_iter().map(|it| format!("{:?} {}", it.status, it.found)).collect()
    }

    #[test]
    fn modules_that_start_threads_are_named_with_their_library() {
        let numpy = r#"{"module": "numpy", "error": null, "threads": ["python3 (native)"],
            "libraries": ["libopenblas.so"]}"#;
        let quiet = numpy.replace(r#"["python3 (native)"]"#, "[]");
        let missing = r#"{"module": "pandas", "error": "not installed", "threads": [],
            "libraries": []}"#;
        let broken = missing.replace("not installed", "OSError: no such library");
        let answer = |parked: &str, calculates: &str| {
            format!(
                r#"{{"python": "3.11.2", "plain": [{numpy}], "parked":
                {{"modules": [{parked}], "copy_calculates": {calculates}}}}}"#
            )
        };
        let plain = "Ok without being told not to, numpy starts 1 thread (python3 (native)) by \
            libopenblas.so";
        for (answer, expected) in [
            (answer(&format!("{quiet}, {missing}"), "true"), vec!["Ok Python 3.11.2 has numpy"]),
            (
                answer(numpy, "null"),
                vec![
                    "Ok Python 3.11.2 has ",
                    "Note numpy starts 1 thread (python3 (native)) by libopenblas.so",
                ],
            ),
            (
                answer(&format!("{quiet}, {broken}"), "false"),
                vec![
                    "Ok Python 3.11.2 has numpy",
                    "Note pandas: OSError: no such library",
                    "Note linear algebra hangs or fails in a copy of it",
                ],
            ),
        ] {
            let expected: Vec<&str> = expected.into_iter().chain([plain]).collect();
            assert_eq!(lines(&answer), expected);
        }
        let late = r#"{"python": "3.11.2", "plain": null, "parked": null}"#;
        assert!(lines(late)[0].starts_with("Note Python 3.11.2: "), "{:?}", lines(late));
    }
}
