//! A program goes in, a verdict comes out.

use std::collections::BTreeMap;
use std::fmt;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Grant;

/// A program to run, on which input and within which limits. Body of `POST /v1/executions`.
///
/// Exactly one of `language` and `argv` is given. With `language`, the program is `source` (one
/// file under the language's usual name) or `files` (the first one is the program's entry).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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
    /// Files placed in the working directory before the first stage; with `source`, beside it. The
    /// directory is `/workspace` unless a template has another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SourceFile>,
    /// Arguments to the program, after the ones its language needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Arguments to the compiler, after the ones its language gives it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compile_args: Vec<String>,
    /// True if standard error goes where standard output goes, in order.
    #[serde(skip_serializing_if = "is_false")]
    pub merge_stderr: bool,
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
    /// Grants of the program, which reaches them through sockets of its own loopback. With `tests`,
    /// each run has them anew; compilers, checkers and interactors have none. Variables that
    /// clients look for are set, unless `env` has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Template that every sandbox of it begins with: `name`, `name:tag` or an id. Its files are at
    /// their places, its environment is below that of `env`, and files, programs and outputs are in
    /// its working directory. What programs change is their own. The token needs the scope
    /// `sessions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Limits of the run stage. What is left out has the server's default.
    pub limits: LimitSpec,
    /// Limits of the compile stage. What is left out has the language's default.
    pub compile_limits: LimitSpec,
    /// Files below the working directory to return when the run stage has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Test cases: the program is compiled once and run once for each, every run in a sandbox of
    /// its own. Excludes `stdin`, `outputs`, `interactive` and `terminal`. Left out where there are
    /// none: an empty list is an error.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "at_least_one")]
    pub tests: Vec<TestCase>,
    /// Comparison of a test case's output with the expected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<OutputComparison>,
    /// True if test cases after the first that is not `OK` are left out.
    #[serde(skip_serializing_if = "is_false")]
    pub stop_at_first_failure: bool,
    /// A second program, connected to the first by pipes: each one's standard output is the
    /// other's standard input. It judges the first. With `tests`, it is run anew for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interactor: Option<JudgeProgram>,
    /// True if standard input, signals and end of file come over a WebSocket of the caller's. The
    /// program starts when one is connected and is ended when it goes away.
    #[serde(skip_serializing_if = "is_false")]
    pub interactive: bool,
    /// Runs the program on a terminal of this size instead of pipes; implies `interactive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// True to take no short cut: neither the compile cache nor a runtime that was started ahead.
    #[serde(skip_serializing_if = "is_false")]
    pub fresh: bool,
    /// Priority among the waiting executions of a tenant; the highest runs first, from -100 to 100.
    /// Waiting raises it, so that nothing waits for ever.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Time within which it must have started, from submission, in milliseconds. After it, a
    /// waiting execution ends as `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whom to tell of the result. Only for asynchronous executions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookTarget>,
    /// Text to find the execution by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Refuses an empty list of test cases: a judge that lost its tests would be told `OK`.
fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TestCase>, D::Error> {
    let tests = Vec::<TestCase>::deserialize(deserializer)?;
    if tests.is_empty() {
        let message = "must have at least one test case; leave it out to run without any";
        return Err(serde::de::Error::custom(message));
    }
    Ok(tests)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to predicates")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to predicates")]
fn is_zero(value: &i32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to predicates")]
fn is_zero_u64(value: &u64) -> bool {
    *value == 0
}

/// Input of a program with its expected output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TestCase {
    /// Name in the result; its number, from 1, when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Standard input as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Standard input as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Arguments to the program, instead of the request's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Expected standard output as text. Without it and `expected_base64`, nothing is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Expected standard output as base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_base64: Option<String>,
    /// Limits of this run, where they differ from the request's.
    pub limits: LimitSpec,
}

/// Comparison of output with the expected output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutputComparison {
    /// Byte for byte.
    Exact,
    /// White space at the end of lines and empty lines at the end do not count. The default.
    #[default]
    TrailingSpace,
    /// Words are compared; how much and which white space is between them does not count.
    Tokens,
    /// Like tokens, but two numbers are equal when they differ by at most `absolute`, or by at
    /// most `relative` times the expected one.
    Float {
        /// Absolute tolerance, not negative.
        #[serde(default)]
        absolute: f64,
        /// Relative tolerance, not negative.
        #[serde(default)]
        relative: f64,
    },
    /// A program of the caller's decides. It is run in a sandbox with the paths of three files as
    /// arguments: input, output, expected output. Exit code 0 accepts, 1 and 2 refuse (testlib's
    /// convention); anything else is the checker's failure. What it writes becomes the message.
    Checker(Box<JudgeProgram>),
}

/// A program beside the one that is judged: a checker or an interactor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JudgeProgram {
    /// Name or alias of a language; exactly one of this and `argv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The command itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Text of a program that is one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Source files.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::object::many")]
    pub files: Vec<SourceFile>,
    /// Arguments before those that Cove adds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Arguments to its compiler, after the ones its language gives it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compile_args: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Limits of its run.
    #[serde(deserialize_with = "crate::object::one")]
    pub limits: LimitSpec,
    /// Limits of its compilation.
    #[serde(deserialize_with = "crate::object::one")]
    pub compile_limits: LimitSpec,
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Address that results are sent to: `POST` with the body of `GET /v1/executions/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WebhookTarget {
    /// An `https` or `http` address outside of private networks.
    pub url: String,
    /// Key of the signature in the header `webhook-signature` (Standard Webhooks 1.0:
    /// HMAC-SHA-256 of `id.timestamp.body`). Without it, the token's own key is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A file of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Relative path below `/workspace`, `/`-separated, without `.` or `..` parts.
    pub name: String,
    /// Content, encoded as `encoding` says.
    pub content: String,
    /// Encoding of `content`.
    #[serde(default)]
    pub encoding: BytesEncoding,
    /// True if its mode is 0755 rather than 0644.
    #[serde(default)]
    pub executable: bool,
}

/// Encoding of bytes in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BytesEncoding {
    /// The text itself.
    #[default]
    Utf8,
    /// Base64 with padding (RFC 4648 §4).
    Base64,
}

/// Limits of one stage. What is left out has a default; what exceeds the server's maximum is
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(transparent)]
pub struct ExecutionId(pub String);

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The answer: what the program did, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Execution {
    /// Names this execution in logs.
    pub id: ExecutionId,
    /// Outcome of the last stage that ran.
    #[serde(flatten)]
    pub outcome: StageOutcome,
    /// Speed mode that was used.
    pub mode: ExecutionMode,
    /// Every stage that ran, in order.
    pub stages: Vec<StageResult>,
    /// The files asked for in `outputs`, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OutputFile>,
    /// Results of the test cases that ran, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<TestResult>,
    /// Number of its last event; 0 for an execution without events.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub last_seq: u64,
}

/// Result of one test case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TestResult {
    /// Name of the test case.
    pub name: String,
    /// Outcome of the run; the verdict takes the comparison into account.
    #[serde(flatten)]
    pub outcome: StageOutcome,
    /// Speed mode that was used.
    pub mode: ExecutionMode,
    /// Outcome of the checker or interactor, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<StageOutcome>,
    /// True when its output is too long to stand twice: then it is that of the execution, at the
    /// top of the answer, and left out here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_at_top: bool,
}

/// Result of one stage of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct StageResult {
    /// Name of the stage.
    pub name: StageName,
    /// Speed mode that was used.
    pub mode: ExecutionMode,
    /// Outcome of the stage.
    #[serde(flatten)]
    pub outcome: StageOutcome,
    /// True when its output is too long to stand twice: then it is that of the execution, at the
    /// top of the answer, and left out here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_at_top: bool,
}

impl Execution {
    /// The outcome of one of its stages, with its output wherever that stands.
    pub fn of_stage<'a>(&'a self, stage: &'a StageResult) -> &'a StageOutcome {
        if stage.output_at_top { &self.outcome } else { &stage.outcome }
    }

    /// The outcome of one of its test cases, with its output wherever that stands.
    pub fn of_test<'a>(&'a self, test: &'a TestResult) -> &'a StageOutcome {
        if test.output_at_top { &self.outcome } else { &test.outcome }
    }
}

/// Outcome of a stage, with everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct StageOutcome {
    /// The judgement.
    pub verdict: Verdict,
    /// The program's exit code; null when a signal ended it or it never started.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it (`SIGSEGV`); null when it exited.
    pub signal: Option<String>,
    /// Standard output. Where `stdout_base64` is given, that is exact and this is for reading: what
    /// is not UTF-8 is replaced by U+FFFD, and only the beginning of what is long is here.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Exact standard output, only when it is not UTF-8, or has more than 4 KiB of which so much is
    /// control characters that JSON would take more than twice as long for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// Exact standard error, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// Streams that lost output beyond `output_bytes`.
    pub truncated: TruncatedStreams,
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
    /// Explanation for a person beyond the verdict, such as why the program could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The part of an execution a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    /// Source becomes an executable.
    Compile,
    /// The program itself.
    Run,
    /// The interactor, beside the program.
    Interactor,
    /// The checker, after the program.
    Checker,
}

/// Output streams that were cut at their limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TruncatedStreams {
    /// More was written to standard output than is kept.
    pub stdout: bool,
    /// More was written to standard error than is kept.
    pub stderr: bool,
}

/// The judgement of a stage. Where several hold, the first of `IE OLE TLE MLE SG RE JF WA OK` wins;
/// a compile stage that is not `OK` is `CE`. With test cases, the execution's is that of the first
/// one that is not `OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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
    /// Ran to its end, but its answer is wrong.
    Wa,
    /// The checker or interactor failed, not the program and not Cove.
    Jf,
    /// Cove failed, not the program; it may be tried again.
    Ie,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 10] = [
        Verdict::Ok,
        Verdict::Re,
        Verdict::Sg,
        Verdict::Tle,
        Verdict::Mle,
        Verdict::Ole,
        Verdict::Ce,
        Verdict::Wa,
        Verdict::Jf,
        Verdict::Ie,
    ];

    /// Returns the verdict with this short name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == name)
    }

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
            Verdict::Wa => "WA",
            Verdict::Jf => "JF",
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
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

/// Speed mode of a result. Speed modes have names of their own, so that no figure hides one.
/// In every mode, each program runs in a sandbox of its own, which is used once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExecutionMode {
    /// Every stage ran from its beginning.
    #[default]
    Fresh,
    /// The compiled program was taken from the compile cache.
    Cached,
    /// The program was run by a fork of an interpreter that was initialised ahead.
    Zygote,
    /// The program was run by a runtime that was started ahead, for this one program.
    Prestarted,
    /// `cached` and `zygote` at once.
    CachedZygote,
    /// `cached` and `prestarted` at once.
    CachedPrestarted,
}

impl ExecutionMode {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ExecutionMode::Fresh => "fresh",
            ExecutionMode::Cached => "cached",
            ExecutionMode::Zygote => "zygote",
            ExecutionMode::Prestarted => "prestarted",
            ExecutionMode::CachedZygote => "cached_zygote",
            ExecutionMode::CachedPrestarted => "cached_prestarted",
        }
    }
}

/// A file that was asked for in `outputs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OutputFile {
    /// The name it was asked for by.
    pub name: String,
    /// Content, encoded as `encoding` says; null when it could not be read.
    pub content: Option<String>,
    /// Form of `content`: base64 where it is not UTF-8, or long and full of control
    /// characters.
    pub encoding: BytesEncoding,
    /// Why it could not be read: missing, not a regular file, too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
