//! Turns the parameters of a submission into an execution, with Judge0's error messages.
//!
//! # References
//! - <https://ce.judge0.com/#submissions-submission>

use std::collections::BTreeMap;

use api::{
    BytesEncoding, ExecutionRequest, LimitSpec, OutputComparison, SourceFile, TestCase,
    WebhookTarget,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::languages::{MULTI_FILE, NumberedKind, NumberedLanguage};
use super::{Judge0Config, archive, shell_words};
use crate::error::RequestRefusal;
use crate::faces::from_base64;
use crate::jobs::JobSubmission;
use crate::queue::QueuedJob;

/// Maximum bytes of `compiler_options` and of `command_line_arguments`.
const LINE_BYTES_MAX: usize = 512;
const KIB: u64 = 1024;
/// Cove's minima; Judge0 accepts lower values, which are not enough for any program.
const MEMORY_BYTES_MIN: u64 = 4 << 20;
const STACK_BYTES_MIN: u64 = 64 << 10;

/// Label that marks executions of this face.
pub(super) const LABEL: &str = "judge0";

/// Errors of a submission, by field (422).
pub(super) type Complaints = BTreeMap<String, Vec<String>>;

/// Data that is stored with a submission in addition to its request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SubmissionRecord {
    /// Always [`LABEL`].
    pub(super) face: String,
    pub(super) language_id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compiler_options: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command_line_arguments: Option<String>,
    pub(super) cpu_time_limit: f64,
    pub(super) cpu_extra_time: f64,
    pub(super) wall_time_limit: f64,
    pub(super) memory_limit: u64,
    pub(super) stack_limit: u64,
    pub(super) max_processes_and_or_threads: u64,
    pub(super) enable_per_process_and_thread_time_limit: bool,
    pub(super) enable_per_process_and_thread_memory_limit: bool,
    pub(super) max_file_size: u64,
    pub(super) redirect_stderr_to_stdout: bool,
    pub(super) number_of_runs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) callback_url: Option<String>,
    /// Expected output, base64, if this face compares it and not the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<String>,
}

impl SubmissionRecord {
    /// Returns the record of a job of this face; None for others.
    pub(super) fn of(job: &QueuedJob) -> Option<SubmissionRecord> {
        let remembered: SubmissionRecord = serde_json::from_str(job.face.as_deref()?).ok()?;
        (remembered.face == LABEL).then_some(remembered)
    }
}

/// Checks the parameters of one submission and turns them into an execution. `copies_left` is the
/// remaining budget of bytes repeated for `number_of_runs`; the submission's own are subtracted.
pub(super) fn parse(
    parameters: &Map<String, Value>,
    base64: bool,
    languages: &[NumberedLanguage],
    config: &Judge0Config,
    copies_left: &mut u64,
) -> Result<JobSubmission, Complaints> {
    let mut form = SubmissionForm { parameters, base64, complaints: Complaints::new() };
    let language = form.language(languages);
    let source = form.bytes("source_code");
    let archive = form.archive(config);
    let stdin = form.bytes("stdin");
    let expected = form.bytes("expected_output");
    let mut remembered = form.remembered(config);
    remembered.callback_url = form.text("callback_url");
    match language.map(|language| language.kind) {
        Some(NumberedKind::MultiFile) if archive.is_none() => {
            form.complain("additional_files", "can't be blank");
        }
        Some(NumberedKind::MultiFile) | None => {}
        Some(_) if source.is_none() => form.complain("source_code", "can't be blank"),
        Some(_) => {}
    }
    let lengths = [&stdin, &expected].map(|text| text.as_ref().map_or(0, Vec::len));
    form.copies(language, &remembered, lengths, copies_left);
    let complaints = form.complaints;
    let Some(language) = language.filter(|_| complaints.is_empty()) else {
        return Err(complaints);
    };
    remembered.language_id = language.id;
    let mut request = ExecutionRequest {
        label: Some(LABEL.to_owned()),
        limits: limits(&remembered),
        merge_stderr: remembered.redirect_stderr_to_stdout,
        args: remembered
            .command_line_arguments
            .as_deref()
            .map(shell_words::split)
            .unwrap_or_default(),
        compile_args: remembered
            .compiler_options
            .as_deref()
            .map(shell_words::options)
            .unwrap_or_default(),
        webhook: remembered.callback_url.clone().map(|url| WebhookTarget { url, secret: None }),
        ..ExecutionRequest::default()
    };
    program(&mut request, language, source.unwrap_or_default());
    if let Some(files) = archive {
        add_files(&mut request, files);
    }
    if language.kind == NumberedKind::MultiFile {
        // Its stages share a sandbox, where test cases are not possible.
        remembered.number_of_runs = 1;
        remembered.expected = expected.map(|bytes| BASE64.encode(bytes));
        (request.stdin, request.stdin_base64) = text(stdin);
    } else {
        input(&mut request, stdin, expected, remembered.number_of_runs);
    }
    let face = serde_json::to_string(&remembered).map_err(|error| {
        Complaints::from([("base".to_owned(), vec![format!("cannot be stored: {error}")])])
    })?;
    Ok(JobSubmission { request, idempotency_key: None, face: Some(face) })
}

/// Sets the program to run, and the source under its name.
fn program(request: &mut ExecutionRequest, language: &NumberedLanguage, source: Vec<u8>) {
    let name = language.source_file.clone().unwrap_or_default();
    let mut executable = false;
    match language.kind {
        NumberedKind::Language(language) => request.language = Some(language.to_owned()),
        NumberedKind::MultiFile => {
            request.language = Some(MULTI_FILE.to_owned());
            return;
        }
        NumberedKind::PlainText => request.argv = Some(vec!["/bin/cat".to_owned(), name.clone()]),
        NumberedKind::Executable => {
            request.argv = Some(vec![format!("./{name}")]);
            executable = true;
        }
    }
    let (content, encoding) = match text(Some(source)) {
        (None, Some(encoded)) => (encoded, BytesEncoding::Base64),
        (content, _) => (content.unwrap_or_default(), BytesEncoding::Utf8),
    };
    request.files.push(SourceFile { name, content, encoding, executable });
}

/// Adds the files of the archive, except one with the name of the source.
fn add_files(request: &mut ExecutionRequest, files: Vec<SourceFile>) {
    let source = request.files.first().map(|file| file.name.clone());
    request.files.extend(files.into_iter().filter(|file| Some(&file.name) != source.as_ref()));
}

/// Sets input and expected output, once for each run.
fn input(
    request: &mut ExecutionRequest,
    stdin: Option<Vec<u8>>,
    expected: Option<Vec<u8>>,
    runs: u64,
) {
    let (stdin, stdin_base64) = text(stdin);
    if runs == 1 && expected.is_none() {
        (request.stdin, request.stdin_base64) = (stdin, stdin_base64);
        return;
    }
    if expected.is_some() {
        request.comparison = Some(OutputComparison::TrailingSpace);
    }
    let (expected, expected_base64) = text(expected);
    let case = TestCase { stdin, stdin_base64, expected, expected_base64, ..TestCase::default() };
    request.tests = (0..runs).map(|_| case.clone()).collect();
    request.stop_at_first_failure = true;
}

fn limits(remembered: &SubmissionRecord) -> LimitSpec {
    let bytes = |kilobytes: u64| kilobytes.saturating_mul(KIB);
    LimitSpec {
        // The extra time shows by how much a program is too slow.
        cpu_ms: Some(milliseconds(remembered.cpu_time_limit + remembered.cpu_extra_time)),
        wall_ms: Some(milliseconds(remembered.wall_time_limit)),
        memory_bytes: Some(bytes(remembered.memory_limit).max(MEMORY_BYTES_MIN)),
        processes: Some(remembered.max_processes_and_or_threads.max(1)),
        // In Judge0, output is a file like any other.
        output_bytes: Some(bytes(remembered.max_file_size).max(1)),
        file_size_bytes: Some(bytes(remembered.max_file_size).max(1)),
        stack_bytes: Some(bytes(remembered.stack_limit).max(STACK_BYTES_MIN)),
        ..LimitSpec::default()
    }
}

/// Converts from seconds; at least one millisecond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be between 0 and the configured maximum; `as` saturates"
)]
fn milliseconds(seconds: f64) -> u64 {
    ((seconds * 1000.0).ceil() as u64).max(1)
}

/// Returns bytes as text if they are UTF-8, otherwise as base64.
fn text(bytes: Option<Vec<u8>>) -> (Option<String>, Option<String>) {
    match bytes.map(String::from_utf8) {
        None => (None, None),
        Some(Ok(text)) => (Some(text), None),
        Some(Err(error)) => (None, Some(BASE64.encode(error.as_bytes()))),
    }
}

/// Returns a refusal of Cove, with Judge0's field names.
pub(super) fn complaint(refusal: &RequestRefusal) -> Complaints {
    let field = refusal.field.split(['.', '[']).next().unwrap_or_default();
    let limit = refusal.field.strip_prefix("limits.");
    let source = ["source", "files[0].content"].contains(&refusal.field.as_str());
    let name = match (limit, field) {
        (Some("cpu_ms"), _) => "cpu_time_limit",
        (Some("wall_ms"), _) => "wall_time_limit",
        (Some("memory_bytes"), _) => "memory_limit",
        (Some("stack_bytes"), _) => "stack_limit",
        (Some("processes"), _) => "max_processes_and_or_threads",
        (Some("file_size_bytes" | "output_bytes"), _) => "max_file_size",
        (_, "language") => "language_id",
        (_, "compile_args") => "compiler_options",
        (_, "args" | "argv") => "command_line_arguments",
        (_, "stdin" | "stdin_base64" | "tests") => "stdin",
        (_, "webhook") => "callback_url",
        _ if source => "source_code",
        (_, "files") => "additional_files",
        _ => "base",
    };
    Complaints::from([(name.to_owned(), vec![refusal.message.clone()])])
}

/// The parameters, with the errors found so far.
struct SubmissionForm<'a> {
    parameters: &'a Map<String, Value>,
    base64: bool,
    complaints: Complaints,
}

impl SubmissionForm<'_> {
    fn complain(&mut self, field: &str, message: impl Into<String>) {
        self.complaints.entry(field.to_owned()).or_default().push(message.into());
    }

    /// Returns a value that exists and is not blank.
    fn value_of(&self, field: &str) -> Option<&Value> {
        self.parameters.get(field).filter(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            _ => true,
        })
    }

    fn text(&mut self, field: &str) -> Option<String> {
        match self.value_of(field)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => {
                self.complain(field, "must be a string");
                None
            }
        }
    }

    /// Returns a text that may be encoded.
    fn bytes(&mut self, field: &str) -> Option<Vec<u8>> {
        let text = self.text(field)?;
        if !self.base64 {
            return Some(text.into_bytes());
        }
        let bytes = from_base64(&text);
        if bytes.is_none() {
            let message = "is not base64; send it encoded, or with base64_encoded=false";
            self.complain(field, message);
        }
        bytes
    }

    fn line(&mut self, field: &str) -> Option<String> {
        let text = self.text(field)?;
        if text.len() > LINE_BYTES_MAX {
            let message = format!("is too long (maximum is {LINE_BYTES_MAX} characters)");
            self.complain(field, message);
        }
        Some(text)
    }

    fn number(&mut self, field: &str, default: f64, min: f64, max: f64) -> f64 {
        let value = match self.value_of(field) {
            None => return default,
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        let Some(value) = value.filter(|value| value.is_finite()) else {
            self.complain(field, "is not a number");
            return default;
        };
        if value < min {
            self.complain(field, format!("must be greater than or equal to {min}"));
        } else if value > max {
            self.complain(field, format!("must be less than or equal to {max}"));
        }
        value
    }

    fn integer(&mut self, field: &str, default: u64, min: u64, max: u64) -> u64 {
        let value = match self.value_of(field) {
            None => return default,
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.trim().to_owned(),
            Some(_) => String::new(),
        };
        // Clients whose numbers are all floating point write 64000.0.
        let digits = value.strip_suffix(".0").unwrap_or(&value);
        let Ok(number) = digits.parse::<i128>() else {
            let is_number = value.parse::<f64>().is_ok();
            self.complain(field, if is_number { "must be an integer" } else { "is not a number" });
            return default;
        };
        if number < i128::from(min) {
            self.complain(field, format!("must be greater than or equal to {min}"));
        } else if number > i128::from(max) {
            self.complain(field, format!("must be less than or equal to {max}"));
        }
        u64::try_from(number).unwrap_or(default)
    }

    fn flag(&mut self, field: &str, default: bool) -> bool {
        let value = match self.value_of(field) {
            None => return default,
            Some(Value::Bool(value)) => return *value,
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.to_ascii_lowercase(),
            Some(_) => String::new(),
        };
        match value.as_str() {
            "true" | "1" | "t" | "on" => true,
            "false" | "0" | "f" | "off" => false,
            _ => {
                self.complain(field, "must be true or false");
                default
            }
        }
    }

    fn language<'a>(&mut self, languages: &'a [NumberedLanguage]) -> Option<&'a NumberedLanguage> {
        if self.value_of("language_id").is_none() {
            self.complain("language_id", "can't be blank");
            return None;
        }
        let complaints = self.complaints.len();
        let id = self.integer("language_id", 0, 0, u64::MAX);
        let found = languages.iter().find(|language| language.id == id);
        if found.is_none() && self.complaints.len() == complaints {
            self.complain("language_id", format!("language with id {id} doesn't exist"));
        }
        found
    }

    /// Accounts the bytes that are repeated for each run, before they are copied.
    fn copies(
        &mut self,
        language: Option<&NumberedLanguage>,
        remembered: &SubmissionRecord,
        lengths: [usize; 2],
        left: &mut u64,
    ) {
        let runs = remembered.number_of_runs;
        if runs == 1 || language.is_none_or(|language| language.kind == NumberedKind::MultiFile) {
            return;
        }
        let bytes = lengths.map(|length| u64::try_from(length).unwrap_or(u64::MAX));
        let bytes = bytes[0].saturating_add(bytes[1]).saturating_mul(runs);
        match left.checked_sub(bytes) {
            Some(rest) => *left = rest,
            None => {
                let message = format!(
                    "is too large for this input and expected output: all runs of a request may \
                     have {left} bytes more"
                );
                self.complain("number_of_runs", message);
            }
        }
    }

    /// Returns the files of the archive.
    fn archive(&mut self, config: &Judge0Config) -> Option<Vec<SourceFile>> {
        let field = "additional_files";
        let encoded = self.text(field)?;
        let bytes_max = config.max_extract_size.saturating_mul(KIB);
        let files = from_base64(&encoded).map(|bytes| archive::files(&bytes, bytes_max));
        match files {
            None => self.complain(field, "is not base64"),
            Some(Err(problem)) => self.complain(field, problem),
            Some(Ok(files)) => return Some(files),
        }
        None
    }

    fn remembered(&mut self, config: &Judge0Config) -> SubmissionRecord {
        if self.flag("enable_network", false) {
            self.complain("enable_network", "enabling network is not allowed");
        }
        SubmissionRecord {
            face: LABEL.to_owned(),
            compiler_options: self.line("compiler_options"),
            command_line_arguments: self.line("command_line_arguments"),
            cpu_time_limit: self.number(
                "cpu_time_limit",
                config.cpu_time_limit,
                0.0,
                config.max_cpu_time_limit,
            ),
            cpu_extra_time: self.number(
                "cpu_extra_time",
                config.cpu_extra_time,
                0.0,
                config.max_cpu_extra_time,
            ),
            wall_time_limit: self.number(
                "wall_time_limit",
                config.wall_time_limit,
                1.0,
                config.max_wall_time_limit,
            ),
            memory_limit: self.integer(
                "memory_limit",
                config.memory_limit,
                2048,
                config.max_memory_limit,
            ),
            stack_limit: self.integer("stack_limit", config.stack_limit, 0, config.max_stack_limit),
            max_processes_and_or_threads: self.integer(
                "max_processes_and_or_threads",
                config.max_processes_and_or_threads,
                1,
                config.max_max_processes_and_or_threads,
            ),
            enable_per_process_and_thread_time_limit: self
                .flag("enable_per_process_and_thread_time_limit", false),
            enable_per_process_and_thread_memory_limit: self
                .flag("enable_per_process_and_thread_memory_limit", false),
            max_file_size: self.integer(
                "max_file_size",
                config.max_file_size,
                0,
                config.max_max_file_size,
            ),
            redirect_stderr_to_stdout: self.flag("redirect_stderr_to_stdout", false),
            number_of_runs: self.integer(
                "number_of_runs",
                config.number_of_runs,
                1,
                config.max_number_of_runs,
            ),
            ..SubmissionRecord::default()
        }
    }
}

#[cfg(test)]
mod tests;
