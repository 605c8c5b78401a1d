//! A program goes in, a verdict comes out.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to run, on which input and within which limits. Body of `POST /v1/executions`.
///
/// Exactly one of `language` and `argv` is given. With `language`, the program is `source` (one
/// file under the language's usual name) or `files` (the first one is the program's entry).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionRequest {
    /// Name or alias of a language of `GET /v1/languages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The command itself: program and arguments. Nothing is compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Text of a program that is one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Files placed in the working directory `/workspace` before the first stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SourceFile>,
    /// Arguments to the program, after the ones its language needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Standard input as text. Without it and `stdin_base64`, the program reads end of file at
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Standard input as base64 (RFC 4648 §4), for bytes that are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Environment variables of the run stage, added to a minimal set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Limits of the run stage. What is left out has the server's default.
    pub limits: LimitSpec,
    /// Limits of the compile stage. What is left out has the language's default.
    pub compile_limits: LimitSpec,
    /// Files below `/workspace` to return when the run stage has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

/// A file of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Relative path below `/workspace`, `/`-separated, without `.` or `..` parts.
    pub name: String,
    /// What it holds, as `encoding` says.
    pub content: String,
    /// How `content` is written down.
    #[serde(default)]
    pub encoding: Encoding,
    /// Whether its mode is 0755 rather than 0644.
    #[serde(default)]
    pub executable: bool,
}

/// How bytes are written down in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The text itself.
    #[default]
    Utf8,
    /// Base64 with padding (RFC 4648 §4).
    Base64,
}

/// Limits of one stage. What is left out has a default; what exceeds the server's maximum is
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSpec {
    /// CPU time of all its processes together, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Time from start to end, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Memory of all its processes together, with the files they write, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes kept of standard output and of standard error, each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Open file descriptors of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Size of one written file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_bytes: Option<u64>,
    /// Bytes in `/workspace`, `/tmp`, `/home/user` and `/dev/shm` together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Files and directories there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_inodes: Option<u64>,
    /// Size of the main thread's stack, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_bytes: Option<u64>,
}

/// Identifies one execution: `ex_` and 26 characters of Crockford base 32, sortable by time.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct ExecutionId(pub String);

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The answer: what the program did, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Execution {
    /// Names this execution in logs.
    pub id: ExecutionId,
    /// How the last stage that ran ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How the result came about.
    pub mode: Mode,
    /// Every stage that ran, in order.
    pub stages: Vec<Stage>,
    /// The files asked for in `outputs`, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OutputFile>,
}

/// One stage of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Which stage this is.
    pub name: StageName,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How a stage ended, with everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The judgement.
    pub verdict: Verdict,
    /// The program's exit code; null when a signal ended it or it never started.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it (`SIGSEGV`); null when it exited.
    pub signal: Option<String>,
    /// Standard output. What is not UTF-8 is replaced by U+FFFD here and exact in `stdout_base64`.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Exact standard output, only when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// Exact standard error, only when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// Whether output went missing beyond `output_bytes`.
    pub truncated: Truncated,
    /// The limit that ended the stage or spoiled its verdict.
    pub limit: Option<LimitHit>,
    /// CPU time of all its processes, in milliseconds with one decimal.
    pub cpu_ms: f64,
    /// Time from start to end, in milliseconds with one decimal.
    pub wall_ms: f64,
    /// Largest memory use of all its processes together, in bytes; 0 where the kernel does not
    /// tell.
    pub memory_peak_bytes: u64,
    /// Largest number of processes and threads at one time; 0 where the kernel does not tell.
    pub processes_peak: u64,
    /// Processes the kernel killed because the stage was out of memory.
    pub oom_kills: u64,
    /// What a person should know beyond the verdict, such as why the program could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The part of an execution a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    /// Source becomes an executable.
    Compile,
    /// The program itself.
    Run,
}

/// Which output streams were cut at their limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Truncated {
    /// More was written to standard output than is kept.
    pub stdout: bool,
    /// More was written to standard error than is kept.
    pub stderr: bool,
}

/// The judgement of a stage. Where several hold, the first of `IE OLE TLE MLE SG RE OK` wins; a
/// compile stage that is not `OK` is `CE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Exited with code 0 within all limits.
    Ok,
    /// Exited with another code (runtime error).
    Re,
    /// Ended by a signal.
    Sg,
    /// Reached the CPU or wall time limit.
    Tle,
    /// Reached the memory limit.
    Mle,
    /// Reached the output limit.
    Ole,
    /// Did not compile.
    Ce,
    /// Cove failed, not the program; it may be tried again.
    Ie,
}

impl Verdict {
    /// The short name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "OK",
            Verdict::Re => "RE",
            Verdict::Sg => "SG",
            Verdict::Tle => "TLE",
            Verdict::Mle => "MLE",
            Verdict::Ole => "OLE",
            Verdict::Ce => "CE",
            Verdict::Ie => "IE",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The limit that was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitHit {
    /// `cpu_ms`.
    Cpu,
    /// `wall_ms`.
    Wall,
    /// `memory_bytes`.
    Memory,
    /// `output_bytes`.
    Output,
}

impl LimitHit {
    /// The short name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitHit::Cpu => "cpu",
            LimitHit::Wall => "wall",
            LimitHit::Memory => "memory",
            LimitHit::Output => "output",
        }
    }
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a result came about. Speed modes have names of their own, so that no figure hides one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Mode {
    /// Every stage ran, in a sandbox that nobody used before or after.
    Fresh,
}

/// A file that was asked for in `outputs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputFile {
    /// The name it was asked for by.
    pub name: String,
    /// What it holds, as `encoding` says; null when it could not be read.
    pub content: Option<String>,
    /// How `content` is written down: base64 where it is not UTF-8.
    pub encoding: Encoding,
    /// Why it could not be read: missing, not a regular file, too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
