//! Results in SandboxFusion's format.

use std::collections::BTreeMap;
use std::fmt;

use api::{BytesEncoding, Execution, LimitHit, OutputFile, StageName, StageOutcome, Verdict};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::SandboxFusionFailure;
use super::dialects::{self, FusionStages};
use super::request::{FetchedName, NO_PYTEST, PlannedRun};
use crate::verdict::signal_number;

/// Status of a program that was killed for one of its limits.
const KILLED: i32 = -9;
/// Signal of a timer.
const TIMER_SIGNAL: &str = "SIGALRM";
/// Line with which Java reports that it has read the variable that enables assertions.
const JAVA_NOTE: &str = "NOTE: Picked up JDK_JAVA_OPTIONS: -ea\n";

/// Result of a cell, as `notebook.py` writes it: validated but not parsed into memory, so that no
/// program makes the server hold more than it wrote.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "that they are there and of their types is all that is wanted")]
struct CellShape {
    stdout: TextShape,
    stderr: TextShape,
    display: Vec<ObjectShape>,
    error: Vec<ObjectShape>,
}

/// Any text.
#[derive(Debug)]
struct TextShape;

/// Any object.
#[derive(Debug)]
struct ObjectShape;

impl<'de> Deserialize<'de> for TextShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextShape, D::Error> {
        deserializer.deserialize_str(ShapeVisitor).map(|()| TextShape)
    }
}

impl<'de> Deserialize<'de> for ObjectShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ObjectShape, D::Error> {
        deserializer.deserialize_map(ShapeVisitor).map(|()| ObjectShape)
    }
}

/// Visitor that validates the type and keeps nothing.
struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or an object")
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Answer of `/run_jupyter`.
#[derive(Debug)]
pub(super) struct NotebookReply {
    /// The answer without its cells.
    pub(super) object: Value,
    /// The cells, as JSON.
    pub(super) cells: Vec<u8>,
}

/// Returns the answer to a request that is not run.
pub(super) fn sandbox_error(message: &str) -> Value {
    json!({"status": "SandboxError", "message": message, "compile_result": null,
           "run_result": null, "executor_pod_name": null, "files": {}})
}

/// Returns the answer of `/run_code`.
pub(super) fn of_code(
    run: &PlannedRun,
    execution: &Execution,
) -> Result<Value, SandboxFusionFailure> {
    let mut compile_result = Value::Null;
    let mut run_result = Value::Null;
    for stage in &execution.stages {
        let outcome = execution.of_stage(stage);
        let result = command_result(run, outcome);
        match (stage.name, run.stages) {
            (StageName::Compile, FusionStages::Both) => compile_result = result,
            // A program that did not compile has not run; otherwise the program's own result
            // replaces this one.
            _ => run_result = result,
        }
    }
    let outcome = &execution.outcome;
    if run.language == dialects::PYTEST && outcome.exit_code == Some(NO_PYTEST) {
        let message = "language `pytest` is not run by this server: its Python has no pytest";
        return Err(SandboxFusionFailure::Refused(message.to_owned()));
    }
    let status = if outcome.verdict == Verdict::Ok { "Success" } else { "Failed" };
    Ok(json!({
        "status": status,
        "message": reason(outcome),
        "compile_result": compile_result,
        "run_result": run_result,
        "executor_pod_name": null,
        "files": files(&run.fetched, &execution.files),
    }))
}

/// Returns the answer of `/run_jupyter`. It has either the results of all cells or none.
pub(super) fn of_notebook(run: &PlannedRun, execution: &Execution) -> NotebookReply {
    let outcome = &execution.outcome;
    let written = stream(&outcome.stdout, outcome.stdout_base64.as_ref());
    let cells = (outcome.verdict == Verdict::Ok).then(|| cells(&written, run.cells)).flatten();
    drop(written);
    let mut driver = command_result(run, outcome);
    driver["stdout"] = "".into();
    if run.has_cell_timeout && outcome.signal.as_deref() == Some(TIMER_SIGNAL) {
        driver["status"] = "TimeLimitExceeded".into();
        driver["return_code"] = Value::Null;
    }
    let (status, fetched) = match cells {
        Some(_) => ("Success", files(&run.fetched, &execution.files)),
        None => ("Failed", BTreeMap::new()),
    };
    let object = json!({
        "status": status,
        "message": reason(outcome),
        "driver": driver,
        "executor_pod_name": null,
        "files": fetched,
    });
    NotebookReply { object, cells: cells.unwrap_or_else(|| b"[]".to_vec()) }
}

/// Returns the results of `count` cells, one in each line, as a JSON array. None if there is other
/// output, which only cells can have written.
fn cells(written: &str, count: usize) -> Option<Vec<u8>> {
    let mut array = Vec::with_capacity(written.len() + 2);
    let mut seen = 0;
    for line in written.lines() {
        serde_json::from_str::<CellShape>(line).ok()?;
        array.push(if seen == 0 { b'[' } else { b',' });
        array.extend_from_slice(line.as_bytes());
        seen += 1;
    }
    if seen == 0 {
        array.push(b'[');
    }
    array.push(b']');
    (seen == count).then_some(array)
}

/// Returns the result of one stage.
fn command_result(run: &PlannedRun, outcome: &StageOutcome) -> Value {
    let is_late = matches!(outcome.limit, Some(LimitHit::Cpu | LimitHit::Wall));
    let return_code = match (outcome.limit, &outcome.signal) {
        _ if is_late => None,
        // A program that reached a limit is shown as killed, even if it exited just before.
        (Some(_), _) => Some(KILLED),
        (None, Some(signal)) => Some(signal_number(signal).map_or(KILLED, |number| -number)),
        (None, None) => outcome.exit_code,
    };
    let mut stderr = stream(&outcome.stderr, outcome.stderr_base64.as_ref());
    if run.language == dialects::JAVA
        && let Some(rest) = stderr.strip_prefix(JAVA_NOTE)
    {
        stderr = rest.to_owned();
    }
    json!({
        "status": if is_late { "TimeLimitExceeded" } else { "Finished" },
        "execution_time": outcome.wall_ms / 1000.0,
        "cpu_time": outcome.cpu_ms / 1000.0,
        "return_code": return_code,
        "stdout": stream(&outcome.stdout, outcome.stdout_base64.as_ref()),
        "stderr": stderr,
    })
}

/// Returns why a program failed, if its results do not show it.
fn reason(outcome: &StageOutcome) -> String {
    let of_limit = outcome.limit.map(|limit| match limit {
        LimitHit::Cpu => "CPU time limit exceeded",
        LimitHit::Wall => "time limit exceeded",
        LimitHit::Memory => "memory limit exceeded",
        LimitHit::Output => "output limit exceeded",
    });
    of_limit.map(str::to_owned).or_else(|| outcome.message.clone()).unwrap_or_default()
}

/// Returns a whole stream, with invalid UTF-8 replaced.
fn stream(text: &str, exact: Option<&String>) -> String {
    let exact = exact.and_then(|exact| BASE64.decode(exact).ok());
    exact.map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the files that exist, under the names that the caller used.
fn files(fetched: &[FetchedName], outputs: &[OutputFile]) -> BTreeMap<String, String> {
    let content = |name: &FetchedName| {
        let file = outputs.iter().find(|file| file.name == name.inside)?;
        let content = file.content.as_ref()?;
        let content = match file.encoding {
            BytesEncoding::Utf8 => BASE64.encode(content),
            BytesEncoding::Base64 => content.clone(),
        };
        Some((name.requested.clone(), content))
    };
    fetched.iter().filter_map(content).collect()
}

#[cfg(test)]
mod tests;
