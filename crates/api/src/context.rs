//! Contexts of a session's code interpreter: what cells are run in, and what comes of one.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution::Verdict;

/// Body of `POST /v1/sessions/{id}/contexts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CreateCodeContext {
    /// `python`, `javascript`, `typescript` or `bash`; `python` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Working directory; `/workspace` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment beside the session's.
    pub env: BTreeMap<String, String>,
}

/// Body of `POST /v1/sessions/{id}/contexts/{context}/fork`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ForkCodeContext {
    /// Forks it although threads run in it: the copy does not have them, and a lock that one of
    /// them holds stays locked in it.
    pub force: bool,
}

/// Context of a code interpreter: a process that keeps what its cells have defined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "CodeContext"))]
pub struct CodeContextView {
    /// Names it: `ctx_…`.
    pub id: String,
    /// Language of its cells.
    pub language: String,
    /// Directory that it starts in.
    pub cwd: String,
    /// State of its process.
    pub state: CodeContextState,
    /// Cells that it has run since it was started; a copy counts on from those of its origin.
    pub executions: u64,
    /// True for the one that the name of its language stands for.
    pub default: bool,
    /// Id of the context that it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
}

/// State of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CodeContextState {
    /// No process: the next cell starts one, with nothing defined.
    Cold,
    /// Waits for a cell.
    Idle,
    /// Runs one.
    Running,
}

/// Answer of `GET /v1/sessions/{id}/contexts`: oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CodeContextList {
    /// All there are.
    pub contexts: Vec<CodeContextView>,
}

/// Body of `POST /v1/sessions/{id}/contexts/{context}/execute`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ExecuteCell {
    /// The cell.
    pub code: String,
    /// Environment for this cell alone.
    pub env: BTreeMap<String, String>,
    /// Milliseconds after which it is interrupted, and a little later killed with its context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Event of a cell while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CellEvent {
    /// The context has begun with it.
    Started {
        /// Number of the cell in its context, from 1.
        execution_count: u64,
    },
    /// Output on standard output; bytes that are not UTF-8 are replaced.
    Stdout {
        /// The text.
        text: String,
    },
    /// Output on standard error.
    Stderr {
        /// The text.
        text: String,
    },
    /// A result, or something that the cell displays.
    Result(CellResult),
    /// The cell failed.
    Error(CellFailure),
    /// Ended. The last event.
    Ended(CellEnd),
    /// No longer available, because its sandbox is gone. The last event.
    Gone {
        /// Why.
        error: String,
    },
}

/// A value in all its representations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CellResult {
    /// True for the value of the cell, false for what it displays.
    pub is_main_result: bool,
    /// Representations by MIME type: text, Base64 for binary types, JSON for `application/json`,
    /// `e2b/data` (columns of a data frame) and `e2b/chart` (data of a chart).
    pub data: BTreeMap<String, Value>,
    /// MIME types that were cut or left out because they are too long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
}

/// Error of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CellFailure {
    /// Class of the error, such as `NameError`; `TimeLimitExceeded`, `OutputLimitExceeded`,
    /// `MemoryLimitExceeded`, `ContextEnded` and `ProtocolError` are Cove's own.
    pub name: String,
    /// Message of the error.
    pub value: String,
    /// Places in the code that led to it, without colours.
    pub traceback: String,
}

/// End of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CellEnd {
    /// Verdict: `OK`, `RE` for an error, `TLE`, `MLE`, `OLE`, `SG` for a context that was
    /// killed.
    pub verdict: Verdict,
    /// Wall time.
    pub wall_ms: u64,
    /// Processor time of the context's process and of what it has waited for, as the process itself
    /// says; none when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Most memory that the context's process had during the cell, as the process itself says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// True if the context's process has ended: what was defined is lost, and the next cell starts
    /// a new one.
    pub context_ended: bool,
}

/// Answer of `POST /v1/sessions/{id}/contexts/{context}/execute` without a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct CellReport {
    /// Number of the cell in its context, from 1.
    pub execution_count: u64,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Results and what was displayed, in their order.
    pub results: Vec<CellResult>,
    /// Error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CellFailure>,
    /// True if there was more output than is kept.
    pub truncated: bool,
    /// End of the cell.
    #[serde(flatten)]
    pub end: CellEnd,
}
