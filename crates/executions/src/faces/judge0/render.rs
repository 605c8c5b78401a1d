//! A job in Judge0's fields.

use api::{
    Execution, ExecutionRequest, ExecutionState, LimitHit, SourceFile, StageName, StageOutcome,
    Verdict,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::languages::NumberedLanguage;
use super::submission::SubmissionRecord;
use super::{archive, token};
use crate::answers::AnswerMemory;
use crate::faces::from_base64;
use crate::jobs;
use crate::queue::QueuedJob;
use crate::verdict::signal_number;

/// Fields of a submission that are returned by default.
pub(super) const DEFAULT_FIELDS: [&str; 8] =
    ["token", "time", "memory", "stdout", "stderr", "compile_output", "message", "status"];

/// All fields that `*` selects, except those that are composed of others.
pub(super) const FIELDS: [&str; 33] = [
    "source_code",
    "language_id",
    "stdin",
    "expected_output",
    "stdout",
    "status_id",
    "created_at",
    "finished_at",
    "time",
    "memory",
    "stderr",
    "token",
    "number_of_runs",
    "cpu_time_limit",
    "cpu_extra_time",
    "wall_time_limit",
    "memory_limit",
    "stack_limit",
    "max_processes_and_or_threads",
    "enable_per_process_and_thread_time_limit",
    "enable_per_process_and_thread_memory_limit",
    "max_file_size",
    "compile_output",
    "exit_code",
    "exit_signal",
    "message",
    "wall_time",
    "compiler_options",
    "command_line_arguments",
    "redirect_stderr_to_stdout",
    "callback_url",
    "additional_files",
    "enable_network",
];

/// Fields that are returned only if they are named: Judge0's own client cannot parse them.
pub(super) const NAMED_FIELDS: [&str; 5] =
    ["started_at", "queued_at", "updated_at", "queue_host", "execution_host"];

/// Fields that are composed of others.
pub(super) const MADE_FIELDS: [&str; 2] = ["status", "language"];

/// Name of the host in answers: the real one is not disclosed.
const HOST: &str = "cove";
/// The exit code of a program that could not be started (as in a shell).
const NOT_STARTED: i32 = 126;

/// Judge0's statuses, from 1.
pub(super) const STATUSES: [&str; 14] = [
    "In Queue",
    "Processing",
    "Accepted",
    "Wrong Answer",
    "Time Limit Exceeded",
    "Compilation Error",
    "Runtime Error (SIGSEGV)",
    "Runtime Error (SIGXFSZ)",
    "Runtime Error (SIGFPE)",
    "Runtime Error (SIGABRT)",
    "Runtime Error (NZEC)",
    "Runtime Error (Other)",
    "Internal Error",
    "Exec Format Error",
];

const IN_QUEUE: usize = 1;
const PROCESSING: usize = 2;
const ACCEPTED: usize = 3;
const WRONG_ANSWER: usize = 4;
const TIME_LIMIT: usize = 5;
const COMPILATION: usize = 6;
const SIGSEGV: usize = 7;
const SIGXFSZ: usize = 8;
const SIGFPE: usize = 9;
const SIGABRT: usize = 10;
const NZEC: usize = 11;
const OTHER: usize = 12;
const INTERNAL: usize = 13;
const EXEC_FORMAT: usize = 14;

/// Returns `{"id": …, "description": …}`.
pub(super) fn status(id: usize) -> Value {
    let description = id.checked_sub(1).and_then(|index| STATUSES.get(index));
    json!({ "id": id, "description": description })
}

/// Error for text that is not UTF-8 and was requested without base64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotText;

/// Encoding of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextEncoding {
    Base64,
    Plain,
}

/// Submission with all fields that can be returned.
#[derive(Debug)]
pub(super) struct SubmissionView {
    job: QueuedJob,
    remembered: SubmissionRecord,
    judged: SubmissionOutcome,
    /// `additional_files`, if they were packed.
    archive: Option<String>,
    /// Memory for its content, and for its copy in an answer.
    pub(super) room: Option<AnswerMemory>,
}

impl SubmissionView {
    /// Returns the view of a job of this face; None for others.
    pub(super) fn of(job: QueuedJob) -> Option<SubmissionView> {
        let remembered = SubmissionRecord::of(&job)?;
        let judged = SubmissionOutcome::of(&job, &remembered);
        Some(SubmissionView { job, remembered, judged, archive: None, room: None })
    }

    /// Returns the bytes of the stored job.
    pub(super) fn stored_bytes(&self) -> usize {
        self.job.stored_bytes()
    }

    /// Ties memory to the view.
    pub(super) fn holding(self, room: AnswerMemory) -> SubmissionView {
        SubmissionView { room: Some(room), ..self }
    }

    /// Adds its additional files as an archive, for [`SubmissionView::render`]. Takes time.
    pub(super) fn packed(self) -> SubmissionView {
        let request = self.job.request.as_deref().map(serde_json::from_slice);
        let request: Option<ExecutionRequest> = request.and_then(Result::ok);
        let archive = request.as_ref().map(additional).filter(|files| !files.is_empty());
        let archive = archive.and_then(archive::packed).map(|bytes| BASE64.encode(bytes));
        SubmissionView { archive, ..self }
    }

    /// Returns whether it has its final status.
    pub(super) fn is_final(&self) -> bool {
        self.job.state.is_final()
    }

    /// Returns its status.
    pub(super) fn status(&self) -> usize {
        self.judged.status
    }

    /// Returns the requested fields, in that order.
    pub(super) fn render<'a>(
        &self,
        fields: impl IntoIterator<Item = &'a str>,
        texts: TextEncoding,
        languages: &[NumberedLanguage],
    ) -> Result<Value, NotText> {
        let request = self.job.request.as_deref().map(serde_json::from_slice);
        let request: Option<ExecutionRequest> = request.and_then(Result::ok);
        let mut document = Map::new();
        for field in fields {
            let value = match self.text_field(field, request.as_ref()) {
                Some(bytes) => written(bytes, texts)?,
                None => self.plain_field(field, languages),
            };
            document.insert(field.to_owned(), value);
        }
        Ok(Value::Object(document))
    }

    /// Returns a field that is encoded if base64 was requested.
    fn text_field(
        &self,
        field: &str,
        request: Option<&ExecutionRequest>,
    ) -> Option<Option<Vec<u8>>> {
        let judged = &self.judged;
        let remembered = || self.remembered.expected.as_deref().and_then(from_base64);
        Some(match field {
            "stdout" => judged.stdout.clone(),
            "stderr" => judged.stderr.clone(),
            "compile_output" => judged.compile_output.clone(),
            "message" => judged.message.clone().map(String::into_bytes),
            "source_code" => request.and_then(source),
            "stdin" => request.and_then(|request| match request.tests.first() {
                Some(test) => bytes(test.stdin.as_ref(), test.stdin_base64.as_ref()),
                None => bytes(request.stdin.as_ref(), request.stdin_base64.as_ref()),
            }),
            "expected_output" => request.and_then(|request| match request.tests.first() {
                Some(test) => bytes(test.expected.as_ref(), test.expected_base64.as_ref()),
                None => remembered(),
            }),
            _ => return None,
        })
    }

    fn plain_field(&self, field: &str, languages: &[NumberedLanguage]) -> Value {
        let SubmissionView { job, remembered, judged, .. } = self;
        let date = |ms: Option<u64>| json!(ms.map(jobs::date));
        match field {
            "token" => json!(token::of(&job.id)),
            "time" => json!(judged.cpu_ms.map(seconds)),
            "wall_time" => json!(judged.wall_ms.map(seconds)),
            "memory" => json!(judged.memory_bytes.map(|bytes| bytes / 1024)),
            "status" => status(judged.status),
            "status_id" => json!(judged.status),
            "exit_code" => json!(judged.exit_code),
            "exit_signal" => json!(judged.exit_signal),
            "language" => {
                let known = languages.iter().find(|it| it.id == remembered.language_id);
                json!({ "id": remembered.language_id, "name": known.map(|it| &it.name) })
            }
            "created_at" | "queued_at" => date(Some(job.created_ms)),
            "started_at" => date(job.started_ms),
            "finished_at" => date(job.finished_ms),
            "updated_at" => date(job.finished_ms.or(job.started_ms).or(Some(job.created_ms))),
            "queue_host" => json!(HOST),
            "execution_host" => json!(job.started_ms.map(|_| HOST)),
            "language_id" => json!(remembered.language_id),
            "number_of_runs" => json!(remembered.number_of_runs),
            "cpu_time_limit" => json!(decimal(remembered.cpu_time_limit)),
            "cpu_extra_time" => json!(decimal(remembered.cpu_extra_time)),
            "wall_time_limit" => json!(decimal(remembered.wall_time_limit)),
            "memory_limit" => json!(remembered.memory_limit),
            "stack_limit" => json!(remembered.stack_limit),
            "max_processes_and_or_threads" => json!(remembered.max_processes_and_or_threads),
            "enable_per_process_and_thread_time_limit" => {
                json!(remembered.enable_per_process_and_thread_time_limit)
            }
            "enable_per_process_and_thread_memory_limit" => {
                json!(remembered.enable_per_process_and_thread_memory_limit)
            }
            "max_file_size" => json!(remembered.max_file_size),
            "compiler_options" => json!(remembered.compiler_options),
            "command_line_arguments" => json!(remembered.command_line_arguments),
            "redirect_stderr_to_stdout" => json!(remembered.redirect_stderr_to_stdout),
            "callback_url" => json!(remembered.callback_url),
            "additional_files" => json!(self.archive),
            "enable_network" => json!(false),
            _ => Value::Null,
        }
    }
}

/// Returns the body of a callback: the default fields of a job, with texts as base64. None for a
/// job of another face.
pub fn callback_body(job: &QueuedJob) -> Option<Vec<u8>> {
    let submitted = SubmissionView::of(job.clone())?;
    let body = submitted.render(DEFAULT_FIELDS, TextEncoding::Base64, &[]).ok()?;
    Some(body.to_string().into_bytes())
}

fn written(bytes: Option<Vec<u8>>, texts: TextEncoding) -> Result<Value, NotText> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    match texts {
        TextEncoding::Base64 => Ok(Value::String(BASE64.encode(bytes))),
        TextEncoding::Plain => String::from_utf8(bytes).map(Value::String).map_err(|_| NotText),
    }
}

fn bytes(text: Option<&String>, encoded: Option<&String>) -> Option<Vec<u8>> {
    text.map(|text| text.as_bytes().to_vec()).or_else(|| encoded.and_then(|it| from_base64(it)))
}

/// Returns the files of the archive.
fn additional(request: &ExecutionRequest) -> &[SourceFile] {
    let multi_file = request.language.as_deref() == Some(super::languages::MULTI_FILE);
    request.files.get(usize::from(!multi_file)..).unwrap_or_default()
}

/// Returns the source, which is the first file, if there is one.
fn source(request: &ExecutionRequest) -> Option<Vec<u8>> {
    if request.language.as_deref() == Some(super::languages::MULTI_FILE) {
        return None;
    }
    let file = request.files.first()?;
    match file.encoding {
        api::BytesEncoding::Utf8 => Some(file.content.as_bytes().to_vec()),
        api::BytesEncoding::Base64 => from_base64(&file.content),
    }
}

/// Formats seconds like Judge0: a string, without trailing zeros.
fn seconds(ms: f64) -> String {
    let text = format!("{:.3}", ms / 1000.0);
    decimal_text(&text)
}

fn decimal(number: f64) -> String {
    decimal_text(&format!("{number:.3}"))
}

fn decimal_text(text: &str) -> String {
    let text = text.trim_end_matches('0');
    if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
}

/// Outcome of a submission.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SubmissionOutcome {
    status: usize,
    stdout: Option<Vec<u8>>,
    stderr: Option<Vec<u8>>,
    compile_output: Option<Vec<u8>>,
    message: Option<String>,
    cpu_ms: Option<f64>,
    wall_ms: Option<f64>,
    memory_bytes: Option<u64>,
    exit_code: Option<i32>,
    exit_signal: Option<i32>,
}

impl SubmissionOutcome {
    fn of(job: &QueuedJob, remembered: &SubmissionRecord) -> SubmissionOutcome {
        let bare = |status| SubmissionOutcome { status, ..SubmissionOutcome::default() };
        match job.state {
            ExecutionState::Queued => bare(IN_QUEUE),
            ExecutionState::Running => bare(PROCESSING),
            ExecutionState::Finished => {
                let result = job.result.as_deref().map(serde_json::from_slice::<Execution>);
                match result {
                    Some(Ok(execution)) => SubmissionOutcome::finished(&execution, remembered),
                    // Without its result (in lists) no more is known.
                    None | Some(Err(_)) => bare(INTERNAL),
                }
            }
            ExecutionState::Cancelled | ExecutionState::Expired | ExecutionState::Dead => {
                let message = job.message.clone().unwrap_or_else(|| job.state.as_str().to_owned());
                SubmissionOutcome { message: Some(message), ..bare(INTERNAL) }
            }
        }
    }

    fn finished(execution: &Execution, remembered: &SubmissionRecord) -> SubmissionOutcome {
        let compile = execution.stages.iter().find(|stage| stage.name == StageName::Compile);
        let compile = compile.map(|stage| execution.of_stage(stage));
        let compile_output = compile.and_then(|outcome| {
            // Compilers report errors on standard error; their standard output follows.
            let mut all = stream(&outcome.stderr, outcome.stderr_base64.as_ref());
            all.extend(stream(&outcome.stdout, outcome.stdout_base64.as_ref()));
            Some(all).filter(|all| !all.is_empty())
        });
        if let Some(outcome) = compile.filter(|outcome| outcome.verdict != Verdict::Ok) {
            let broken = outcome.verdict == Verdict::Ie;
            let message = match outcome.limit {
                Some(LimitHit::Cpu | LimitHit::Wall) => {
                    Some("Compilation time limit exceeded".to_owned())
                }
                Some(LimitHit::Memory) => Some("Compilation memory limit exceeded".to_owned()),
                Some(LimitHit::Output) => Some("Compilation output limit exceeded".to_owned()),
                None => outcome.message.clone(),
            };
            let status = if broken { INTERNAL } else { COMPILATION };
            return SubmissionOutcome {
                status,
                compile_output,
                message,
                ..SubmissionOutcome::default()
            };
        }
        let runs: Vec<&StageOutcome> = match &*execution.tests {
            [] => vec![&execution.outcome],
            tests => tests.iter().map(|test| execution.of_test(test)).collect(),
        };
        let expected = remembered.expected.as_deref().and_then(from_base64);
        let status = |outcome: &StageOutcome| status_of(outcome, remembered, expected.as_deref());
        let failed = runs.iter().find(|outcome| status(outcome) != ACCEPTED);
        let decisive = failed.or(runs.last()).copied().unwrap_or(&execution.outcome);
        let status = status(decisive);
        if status == INTERNAL {
            let message = decisive.message.clone();
            return SubmissionOutcome {
                status,
                compile_output,
                message,
                ..SubmissionOutcome::default()
            };
        }
        let some = |bytes: Vec<u8>| Some(bytes).filter(|bytes| !bytes.is_empty());
        SubmissionOutcome {
            status,
            stdout: some(stream(&decisive.stdout, decisive.stdout_base64.as_ref())),
            stderr: some(stream(&decisive.stderr, decisive.stderr_base64.as_ref())),
            compile_output,
            message: message_of(decisive, status),
            cpu_ms: Some(mean(runs.iter().map(|run| run.cpu_ms))),
            wall_ms: Some(mean(runs.iter().map(|run| run.wall_ms))),
            memory_bytes: Some(mean_bytes(&runs)),
            exit_code: decisive.exit_code,
            exit_signal: decisive.signal.as_deref().and_then(signal_number),
        }
    }
}

fn stream(text: &str, encoded: Option<&String>) -> Vec<u8> {
    encoded.and_then(|encoded| from_base64(encoded)).unwrap_or_else(|| text.as_bytes().to_vec())
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn mean_bytes(runs: &[&StageOutcome]) -> u64 {
    let sum = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.memory_peak_bytes));
    let count = u64::try_from(runs.len()).unwrap_or(u64::MAX);
    sum.checked_div(count).unwrap_or(0)
}

fn status_of(
    outcome: &StageOutcome,
    remembered: &SubmissionRecord,
    expected: Option<&[u8]>,
) -> usize {
    match outcome.verdict {
        Verdict::Ok | Verdict::Wa if outcome.cpu_ms > remembered.cpu_time_limit * 1000.0 => {
            TIME_LIMIT
        }
        Verdict::Ok => match expected {
            Some(expected) if !same(outcome, expected) => WRONG_ANSWER,
            _ => ACCEPTED,
        },
        Verdict::Wa => WRONG_ANSWER,
        Verdict::Tle => TIME_LIMIT,
        Verdict::Ce => COMPILATION,
        // In Judge0, output goes to a file, and this signal kills a program whose file grows too
        // large.
        Verdict::Ole => SIGXFSZ,
        Verdict::Mle => OTHER,
        Verdict::Sg => match outcome.signal.as_deref() {
            Some("SIGSEGV") => SIGSEGV,
            Some("SIGXFSZ") => SIGXFSZ,
            Some("SIGFPE") => SIGFPE,
            Some("SIGABRT") => SIGABRT,
            _ => OTHER,
        },
        Verdict::Re if outcome.exit_code == Some(NOT_STARTED) && outcome.message.is_some() => {
            EXEC_FORMAT
        }
        Verdict::Re => NZEC,
        Verdict::Jf | Verdict::Ie => INTERNAL,
    }
}

/// Returns whether output equals the expected one except for white space at the ends of lines and
/// at the end.
fn same(outcome: &StageOutcome, expected: &[u8]) -> bool {
    let output = stream(&outcome.stdout, outcome.stdout_base64.as_ref());
    let lines = |text: &[u8]| -> Vec<Vec<u8>> {
        let lines = text.trim_ascii_end().split(|byte| *byte == b'\n');
        lines.map(|line| line.trim_ascii_end().to_vec()).collect()
    };
    lines(&output) == lines(expected)
}

fn message_of(outcome: &StageOutcome, status: usize) -> Option<String> {
    let by_limit = match outcome.limit {
        Some(LimitHit::Memory) => Some("Memory limit exceeded"),
        Some(LimitHit::Output) => Some("Output limit exceeded"),
        Some(LimitHit::Wall) => Some("Time limit exceeded (wall clock)"),
        Some(LimitHit::Cpu) => Some("Time limit exceeded"),
        None if status == TIME_LIMIT => Some("Time limit exceeded"),
        None => None,
    };
    if let Some(message) = by_limit {
        return Some(message.to_owned());
    }
    if status == ACCEPTED || status == WRONG_ANSWER {
        return None;
    }
    outcome.message.clone().or_else(|| match (&outcome.signal, outcome.exit_code) {
        (Some(name), _) => Some(match signal_number(name) {
            Some(number) => format!("Caught fatal signal {number}"),
            None => format!("Caught fatal signal {}", name.trim_start_matches("SIG")),
        }),
        (None, code) => code.map(|code| format!("Exited with error status {code}")),
    })
}

#[cfg(test)]
mod tests;
