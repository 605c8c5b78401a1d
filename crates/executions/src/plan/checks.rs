//! Refusals before a request is processed: contradictory fields, and text that is invalid for its
//! purpose. Pure; every refusal names its field.

use std::collections::{BTreeMap, HashSet};

use api::{ExecutionRequest, OutputComparison, SourceFile};
use sandbox::WorkspaceFile;

use super::{ARGUMENT_BYTES_MAX, ProgramStart};
use crate::error::RequestRefusal;

/// Maximum length of a path component: Linux's `NAME_MAX`.
const PATH_PART_BYTES_MAX: usize = 255;
/// Maximum length of a path: Linux's `PATH_MAX` of 4096 with its NUL, less the prefix
/// `/workspace/`.
const PATH_BYTES_MAX: usize = 4096 - 1 - "/workspace/".len();
/// Maximum number of components of a path. Deeper trees make every walk over them slow.
const PATH_PARTS_MAX: usize = 16;
/// Largest distance of a priority from 0.
const PRIORITY_MAX: i32 = 100;
/// Maximum number of characters of a label, and of a test case's name.
const LABEL_CHARS_MAX: usize = 256;
/// Maximum length of a webhook's address: every HTTP server accepts this.
const URL_BYTES_MAX: usize = 2048;
/// Maximum length of the secret of a webhook.
const SECRET_BYTES_MAX: usize = 256;
/// Maximum of lines or columns of a terminal; beyond it, programs mostly allocate for the screen.
const TERMINAL_MAX: u16 = 1000;
/// Maximum number of compiler arguments.
const COMPILE_ARGS_MAX: usize = 256;

/// Parts of one program of a request: the judged one, a checker or an interactor.
#[derive(Debug, Default)]
pub(super) struct PlannedProgram {
    pub(super) language: Option<String>,
    pub(super) argv: Option<Vec<String>>,
    pub(super) source: Option<String>,
    pub(super) files: Vec<SourceFile>,
    pub(super) args: Vec<String>,
    pub(super) compile_args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

impl PlannedProgram {
    /// Takes the program out of a request.
    pub(super) fn of_request(request: &mut ExecutionRequest) -> PlannedProgram {
        PlannedProgram {
            language: request.language.take(),
            argv: request.argv.take(),
            source: request.source.take(),
            files: std::mem::take(&mut request.files),
            args: std::mem::take(&mut request.args),
            compile_args: std::mem::take(&mut request.compile_args),
            env: std::mem::take(&mut request.env),
        }
    }

    pub(super) fn of_companion(companion: api::JudgeProgram) -> PlannedProgram {
        let api::JudgeProgram { language, argv, source, files, args, compile_args, env, .. } =
            companion;
        PlannedProgram { language, argv, source, files, args, compile_args, env }
    }

    /// Checks that exactly one of language and argv is set, that the other fields match, and that
    /// all words are valid.
    pub(super) fn check(&self) -> Result<(), RequestRefusal> {
        self.check_shape()?;
        self.check_arguments()
    }

    fn check_shape(&self) -> Result<(), RequestRefusal> {
        match (&self.language, &self.argv) {
            (None, None) => {
                return Err(RequestRefusal::invalid(
                    "language",
                    "either language or argv is needed",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(RequestRefusal::invalid(
                    "argv",
                    "language and argv exclude each other",
                ));
            }
            (Some(_), None) if self.source.is_none() && self.files.is_empty() => {
                let message = "either source or files is needed";
                return Err(RequestRefusal::invalid("source", message));
            }
            (Some(_), None) => {}
            (None, Some(argv)) => {
                if self.source.is_some() {
                    let message = "a source needs a language; give files along with argv";
                    return Err(RequestRefusal::invalid("source", message));
                }
                if argv.first().is_none_or(String::is_empty) {
                    let message = "must begin with the name of a program";
                    return Err(RequestRefusal::invalid("argv", message));
                }
            }
        }
        Ok(())
    }

    /// Refuses NUL, which would end an argument early, and invalid names.
    fn check_arguments(&self) -> Result<(), RequestRefusal> {
        check_strings("argv", self.argv.as_deref().unwrap_or_default())?;
        check_strings("args", &self.args)?;
        check_strings("compile_args", &self.compile_args)?;
        if self.compile_args.len() > COMPILE_ARGS_MAX {
            let message = format!("there may be at most {COMPILE_ARGS_MAX} arguments");
            return Err(RequestRefusal::invalid("compile_args", message));
        }
        for (name, value) in &self.env {
            check_env_name(name).map_err(|problem| RequestRefusal::invalid("env", problem))?;
            if value.contains('\0') {
                return Err(RequestRefusal::invalid(
                    format!("env.{name}"),
                    "contains a NUL character",
                ));
            }
        }
        Ok(())
    }
}

/// Refuses strings with NUL.
pub(super) fn check_strings(field: &str, strings: &[String]) -> Result<(), RequestRefusal> {
    match strings.iter().position(|word| word.contains('\0')) {
        Some(index) => {
            Err(RequestRefusal::invalid(format!("{field}[{index}]"), "contains a NUL character"))
        }
        None => Ok(()),
    }
}

/// Checks fields that exclude each other, and fields that apply to the execution as a whole.
/// `has_stdin` is true if standard input comes from elsewhere.
pub(super) fn check_whole(
    request: &ExecutionRequest,
    has_stdin: bool,
) -> Result<(), RequestRefusal> {
    check_exclusions(request, has_stdin)?;
    check_comparison(request)?;
    if let Some(size) = request.terminal {
        for (field, value) in [("terminal.rows", size.rows), ("terminal.cols", size.cols)] {
            if !(1..=TERMINAL_MAX).contains(&value) {
                let message = format!("must be from 1 to {TERMINAL_MAX}");
                return Err(RequestRefusal::invalid(field, message));
            }
        }
    }
    if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&request.priority) {
        let message = format!("must be from -{PRIORITY_MAX} to {PRIORITY_MAX}");
        return Err(RequestRefusal::invalid("priority", message));
    }
    if request.deadline_ms == Some(0) {
        return Err(RequestRefusal::invalid("deadline_ms", "must be at least 1"));
    }
    if let Some(label) = &request.label {
        check_label("label", label)?;
    }
    if let Some(webhook) = &request.webhook {
        let secret = webhook.secret.as_deref().unwrap_or("-");
        for (field, text, max) in [
            ("webhook.url", webhook.url.as_str(), URL_BYTES_MAX),
            ("webhook.secret", secret, SECRET_BYTES_MAX),
        ] {
            if text.is_empty() || text.len() > max {
                return Err(RequestRefusal::invalid(
                    field,
                    format!("must have from 1 to {max} bytes"),
                ));
            }
        }
    }
    Ok(())
}

/// Checks a name for people: short, and on one line.
pub(super) fn check_label(field: &str, label: &str) -> Result<(), RequestRefusal> {
    if label.chars().count() > LABEL_CHARS_MAX {
        let message = format!("must have at most {LABEL_CHARS_MAX} characters");
        return Err(RequestRefusal::invalid(field, message));
    }
    if label.chars().any(char::is_control) {
        return Err(RequestRefusal::invalid(field, "contains a control character"));
    }
    Ok(())
}

fn check_exclusions(request: &ExecutionRequest, has_stdin: bool) -> Result<(), RequestRefusal> {
    let field_if = |is_set: bool, field: &'static str| is_set.then_some(field);
    let stdin = || {
        field_if(request.stdin.is_some() || has_stdin, "stdin")
            .or(field_if(request.stdin_base64.is_some(), "stdin_base64"))
    };
    let live = || {
        field_if(request.terminal.is_some(), "terminal")
            .or(field_if(request.interactive, "interactive"))
    };
    let refuse = |field: &'static str, other: &str| {
        Err(RequestRefusal::invalid(field, format!("cannot be combined with {other}")))
    };
    if !request.tests.is_empty() {
        let outputs = field_if(!request.outputs.is_empty(), "outputs");
        if let Some(field) = stdin().or(outputs).or_else(live) {
            return refuse(field, "tests");
        }
    }
    if request.interactor.is_some() {
        let merged = field_if(request.merge_stderr, "merge_stderr");
        let compared = field_if(request.comparison.is_some(), "comparison");
        if let Some(field) = stdin().or_else(live).or(merged).or(compared) {
            return refuse(field, "interactor");
        }
    }
    // Standard input from elsewhere makes an execution interactive.
    let own = field_if(request.stdin.is_some(), "stdin");
    if let (Some(field), Some(live)) =
        (own.or(field_if(request.stdin_base64.is_some(), "stdin_base64")), live())
    {
        return refuse(field, live);
    }
    Ok(())
}

fn check_comparison(request: &ExecutionRequest) -> Result<(), RequestRefusal> {
    if request.stop_at_first_failure && request.tests.is_empty() {
        return Err(RequestRefusal::invalid("stop_at_first_failure", "needs tests"));
    }
    let has_expected =
        || request.tests.iter().any(|it| it.expected.is_some() || it.expected_base64.is_some());
    match &request.comparison {
        None => Ok(()),
        Some(_) if request.tests.is_empty() => {
            Err(RequestRefusal::invalid("comparison", "needs tests"))
        }
        // A checker may need only the input.
        Some(OutputComparison::Checker(_)) => Ok(()),
        Some(_) if !has_expected() => {
            Err(RequestRefusal::invalid("comparison", "needs a test with expected output"))
        }
        Some(OutputComparison::Float { absolute, relative }) => {
            for (field, value) in
                [("comparison.absolute", absolute), ("comparison.relative", relative)]
            {
                if !value.is_finite() || *value < 0.0 {
                    let message = "must be a finite, non-negative number";
                    return Err(RequestRefusal::invalid(field, message));
                }
            }
            Ok(())
        }
        Some(
            OutputComparison::Exact | OutputComparison::TrailingSpace | OutputComparison::Tokens,
        ) => Ok(()),
    }
}

/// Checks that `name` is a valid variable name: letters, digits and `_`, not beginning with a
/// digit.
pub(crate) fn check_env_name(name: &str) -> Result<(), String> {
    let well_formed = !name.is_empty()
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && !name.as_bytes()[0].is_ascii_digit();
    if well_formed {
        return Ok(());
    }
    let excerpt: String = name.chars().take(64).collect();
    Err(format!("{excerpt:?} cannot be the name of an environment variable"))
}

pub(super) fn check_outputs(outputs: &[String], outputs_max: usize) -> Result<(), RequestRefusal> {
    if outputs.len() > outputs_max {
        let message = format!("there may be at most {outputs_max} output files");
        return Err(RequestRefusal::invalid("outputs", message));
    }
    check_names(outputs.iter().map(String::as_str), "outputs", "")
}

/// Checks that every name is a path below the workspace, and that none occurs twice.
pub(super) fn check_names<'a>(
    names: impl Iterator<Item = &'a str>,
    list: &str,
    field: &str,
) -> Result<(), RequestRefusal> {
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        let refuse = |problem| RequestRefusal::invalid(format!("{list}[{index}]{field}"), problem);
        check_path(name).map_err(refuse)?;
        if !seen.insert(name) {
            return Err(refuse("is the name of an earlier one"));
        }
    }
    Ok(())
}

/// Checks that `path` is a plain relative path, which cannot lead out of its directory.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("is longer than 4084 bytes");
    }
    if path.contains('\0') {
        return Err("contains a NUL character");
    }
    if path.starts_with('/') {
        return Err("must be relative");
    }
    for (index, part) in path.split('/').enumerate() {
        match part {
            "" => return Err("has an empty part"),
            "." | ".." => return Err("must not have `.` or `..` as a part"),
            _ if part.len() > PATH_PART_BYTES_MAX => {
                return Err("has a part of more than 255 bytes");
            }
            _ if index >= PATH_PARTS_MAX => return Err("has more than 16 parts"),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that no file is also a directory: `a` and `a/b` cannot both be files.
pub(super) fn check_no_file_is_a_directory(files: &[WorkspaceFile]) -> Result<(), RequestRefusal> {
    if files.len() < 2 {
        return Ok(());
    }
    let names: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for (index, file) in files.iter().enumerate() {
        if directories(&file.path).any(|directory| names.contains(directory)) {
            let message = "needs a directory where there is another file";
            return Err(RequestRefusal::invalid(format!("files[{index}].name"), message));
        }
    }
    Ok(())
}

/// Returns every parent directory of `path`: `a` and `a/b` for `a/b/c`.
pub(super) fn directories(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Refuses arguments that `execve` would reject as too long, with the field's name.
pub(super) fn check_argument_bytes(
    start: &ProgramStart,
    field: &str,
) -> Result<(), RequestRefusal> {
    let bytes = |strings: &[Vec<u8>]| -> usize {
        strings.iter().map(|word| word.len() + 1 + size_of::<usize>()).sum()
    };
    let (argv, env) = (bytes(&start.argv), bytes(&start.env));
    if argv + env <= ARGUMENT_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "arguments and environment of one program must be at most {ARGUMENT_BYTES_MAX} bytes"
    );
    Err(RequestRefusal::invalid(if env > argv { "env" } else { field }, message))
}
