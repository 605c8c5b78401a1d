//! Statements over tables of a warehouse. No server behind the grant runs SQL, so a program in the
//! holder's own sandbox does: PyIceberg reads the tables through a read-only door, and DuckDB
//! computes the result. It has no more rights than other programs there, and its output is
//! untrusted ([`answer`]).

mod answer;

use std::collections::BTreeMap;
use std::time::Duration;

use api::{ErrorCode, GrantQuery};
use node::gateway::{HolderExit, HolderOutput, HolderProgram, HolderSandbox};
use node::http::HttpError;
use serde::Serialize;
use serde_json::Value;

use self::answer::{AnswerFailure, AnswerFailureKind, AnswerReader};
use super::room::RESULT_BYTES_MAX;
use super::{ResultTable, SqlFailure, WarehouseDoor};

#[cfg(any(test, fuzzing))]
pub(super) use self::answer::fuzzing;

/// The program.
const PROGRAM: &str = include_str!("lake_query.py");

/// Time limit of a statement, including the start of its interpreter.
const STATEMENT_MAX: Duration = Duration::from_secs(60);

/// Most bytes of the program's standard error that are kept: the last line of a failure.
const STDERR_BYTES_MAX: usize = 4 << 10;

/// Exit codes of a program that could not be started, as in a shell.
const NOT_STARTED: [i32; 2] = [126, 127];

/// Input of the program.
#[derive(Debug, Serialize)]
struct LakeRequest<'a> {
    sql: &'a str,
    parameters: Vec<Value>,
    max_rows: u32,
    max_bytes: usize,
    uri: String,
    warehouse: &'a str,
}

/// Reason why a statement over a warehouse has no result.
#[derive(Debug)]
pub(super) enum LakeFailure {
    /// An error of the statement, its values or the catalog.
    Sql(SqlFailure),
    /// A statement of a kind that is never run.
    Refused(String),
    /// The session lacks the interpreter or the packages named here.
    Missing(String),
    /// The sandbox could not run the program.
    Sandbox(HttpError),
}

impl LakeFailure {
    /// Returns the error for the caller; `label` is the grant's.
    pub(super) fn answer(self, label: &str) -> HttpError {
        match self {
            LakeFailure::Sql(failure) => failure.answer("sql"),
            LakeFailure::Refused(message) => HttpError::invalid(message).at("sql"),
            LakeFailure::Sandbox(error) => error,
            LakeFailure::Missing(what) => {
                let message = format!(
                    "`{label}` leads to Iceberg tables, which a program in the session queries: \
                     it needs python3 with pyiceberg[pyarrow] and duckdb, and there is no {what}; \
                     create the session from a template with the step `pip_install` of \
                     `pyiceberg[pyarrow]` and `duckdb`"
                );
                HttpError::new(ErrorCode::Conflict, message).at("sql")
            }
        }
    }

    /// Returns whether the statement was rejected without an attempt.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            LakeFailure::Refused(_) => true,
            LakeFailure::Sql(_) | LakeFailure::Missing(_) | LakeFailure::Sandbox(_) => false,
        }
    }
}

/// Runs one statement. Dropping the future ends the program.
///
/// # Errors
/// Errors of DuckDB, PyIceberg or the catalog; if the session cannot run the program.
pub(super) async fn run(
    door: &WarehouseDoor,
    query: &GrantQuery,
    rows: u32,
    inside: &dyn HolderSandbox,
) -> Result<ResultTable, LakeFailure> {
    let port = match &door.beside {
        None => door.port,
        Some(beside) => beside.port(inside).await.map_err(LakeFailure::Sandbox)?,
    };
    let request = LakeRequest {
        sql: &query.sql,
        parameters: query.parameters.iter().map(parameter).collect(),
        max_rows: rows,
        max_bytes: RESULT_BYTES_MAX,
        uri: format!("http://127.0.0.1:{port}"),
        warehouse: &door.warehouse,
    };
    let stdin = serde_json::to_string(&request).map_err(|error| {
        tracing::error!(%error, "write a statement as JSON");
        LakeFailure::Sandbox(HttpError::internal())
    })?;
    // Files in the working directory cannot replace a library, and no bytecode cache is left
    // behind.
    let env = ["PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE"];
    let program = HolderProgram {
        argv: ["python3", "-c", PROGRAM].map(str::to_owned).to_vec(),
        env: env
            .map(|name| (name.to_owned(), "1".to_owned()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        stdin,
        time_max: STATEMENT_MAX,
    };
    let mut running = inside.start(program).await.map_err(LakeFailure::Sandbox)?;
    let (mut reader, mut errors) = (AnswerReader::new(rows), Vec::new());
    let exit = loop {
        match running.next().await {
            Some(HolderOutput::Stdout(bytes)) => {
                let goes_on = reader.push(&bytes).map_err(|error| {
                    LakeFailure::Sql(SqlFailure::database("program", error.to_string()))
                })?;
                if !goes_on {
                    break HolderExit::default();
                }
            }
            Some(HolderOutput::Stderr(bytes)) => {
                errors.extend_from_slice(&bytes);
                let beyond = errors.len().saturating_sub(STDERR_BYTES_MAX);
                errors.drain(..beyond);
            }
            Some(HolderOutput::Ended(exit)) => break exit,
            None => break HolderExit::default(),
        }
    };
    // Kills the program if its remaining output is not needed.
    drop(running);
    match reader.finish() {
        Some(Ok(table)) => Ok(table),
        Some(Err(AnswerFailure { kind, code, message })) => Err(match kind {
            AnswerFailureKind::Refused => LakeFailure::Refused(message),
            AnswerFailureKind::Missing => LakeFailure::Missing(code),
            AnswerFailureKind::Parameters => LakeFailure::Sql(SqlFailure::parameters(message)),
            AnswerFailureKind::Statement | AnswerFailureKind::Catalog => {
                LakeFailure::Sql(SqlFailure::database(&code, message))
            }
        }),
        None => Err(without_answer(&exit, &errors)),
    }
}

/// Returns the reason why a program ended without a report.
fn without_answer(exit: &HolderExit, errors: &[u8]) -> LakeFailure {
    let failed = |message: String| LakeFailure::Sql(SqlFailure::database("program", message));
    match exit {
        HolderExit { timed_out: true, .. } => failed(format!(
            "the statement was ended after {} s, which is the limit",
            STATEMENT_MAX.as_secs()
        )),
        HolderExit { code: Some(code), .. } if NOT_STARTED.contains(code) => {
            LakeFailure::Missing("python3".to_owned())
        }
        HolderExit { signal: Some(signal), .. } => failed(format!(
            "the statement's program was ended by {signal}; it may have needed more memory than \
             the session has"
        )),
        HolderExit { code, .. } => {
            let errors = String::from_utf8_lossy(errors);
            let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
            let last: String = last.chars().take(300).collect();
            failed(format!("the statement's program ended with exit code {code}: {last}"))
        }
    }
}

/// Converts a parameter for DuckDB: objects and lists become JSON text.
fn parameter(value: &Value) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) => Value::String(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
