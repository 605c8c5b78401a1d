//! Turns the end of a program into its verdict and outcome. Pure.

use std::time::Duration;

use api::{
    BytesEncoding, Execution, LimitHit, OutputFile, StageName, StageOutcome, TruncatedStreams,
    Verdict,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sandbox::{LimitBreach, ProgramExit};

/// The exit code of shells for a program that does not exist.
const NOT_FOUND: i32 = 127;
/// The exit code of shells for a program that cannot be started.
const NOT_STARTED: i32 = 126;

/// Maximum size of output that an answer contains twice, at the top and in its stage or test case;
/// and maximum size of the readable form of output that is not UTF-8, in addition to its exact
/// bytes. Longer copies would make answers several times as large as their content.
pub(crate) const REPEATED_BYTES_MAX: usize = 64 << 10;
/// Maximum size of text for which JSON needs more than twice its length: a control character takes
/// six bytes there (RFC 8259 §7).
const COSTLY_TEXT_BYTES_MAX: usize = 4 << 10;

/// Judges the end of one stage.
pub(crate) fn outcome(stage: StageName, program: &[u8], exit: ProgramExit) -> StageOutcome {
    let (verdict, limit) = judge(&exit);
    let verdict = match (stage, verdict) {
        (StageName::Compile, Verdict::Ok | Verdict::Ie) => verdict,
        (StageName::Compile, _) => Verdict::Ce,
        (StageName::Run | StageName::Interactor | StageName::Checker, verdict) => verdict,
    };
    let (exit_code, message) = match exit.exec_errno {
        None => (exit.code, None),
        Some(errno) => {
            let (code, why) = not_started(errno);
            let program = String::from_utf8_lossy(program);
            let program: String = program.chars().take(256).collect();
            (Some(code), Some(format!("start `{program}`: {why}")))
        }
    };
    let (stdout, stdout_base64) = text(exit.stdout);
    let (stderr, stderr_base64) = text(exit.stderr);
    StageOutcome {
        verdict,
        exit_code,
        signal: exit.signal.map(signal_name),
        stdout,
        stderr,
        stdout_base64,
        stderr_base64,
        truncated: TruncatedStreams {
            stdout: exit.stdout_truncated,
            stderr: exit.stderr_truncated,
        },
        limit,
        cpu_ms: milliseconds(exit.cpu),
        wall_ms: milliseconds(exit.wall),
        memory_peak_bytes: exit.memory_peak_bytes,
        processes_peak: exit.processes_peak,
        oom_kills: exit.oom_kills,
        message,
    }
}

/// Returns the outcome of a stage that Cove itself failed to run. Details are for the log, not for
/// callers.
pub(crate) fn infrastructure_failure() -> StageOutcome {
    StageOutcome {
        verdict: Verdict::Ie,
        exit_code: None,
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
        stdout_base64: None,
        stderr_base64: None,
        truncated: TruncatedStreams::default(),
        limit: None,
        cpu_ms: 0.0,
        wall_ms: 0.0,
        memory_peak_bytes: 0,
        processes_peak: 0,
        oom_kills: 0,
        message: Some("the server failed to run this; it may be tried again".to_owned()),
    }
}

/// Returns the strongest applicable verdict: `OLE TLE MLE SG RE OK`.
fn judge(exit: &ProgramExit) -> (Verdict, Option<LimitHit>) {
    let breached = |breach| exit.breaches.contains(&breach);
    if breached(LimitBreach::Output) || exit.stdout_truncated || exit.stderr_truncated {
        return (Verdict::Ole, Some(LimitHit::Output));
    }
    // If both limits were reached, the engine's order says which was first.
    let time = exit.breaches.iter().find_map(|breach| match breach {
        LimitBreach::Cpu => Some(LimitHit::Cpu),
        LimitBreach::Wall => Some(LimitHit::Wall),
        LimitBreach::Memory | LimitBreach::Output => None,
    });
    if time.is_some() {
        return (Verdict::Tle, time);
    }
    // A child that was killed for lack of memory changes the verdict even if its parent exits with
    // 0.
    if breached(LimitBreach::Memory) || exit.oom_kills > 0 {
        return (Verdict::Mle, Some(LimitHit::Memory));
    }
    let verdict = match (exit.exec_errno, exit.signal, exit.code) {
        (Some(_), _, _) => Verdict::Re,
        (None, Some(_), _) => Verdict::Sg,
        (None, None, Some(0)) => Verdict::Ok,
        (None, None, Some(_)) => Verdict::Re,
        // Neither exited nor killed: the engine lost it.
        (None, None, None) => Verdict::Ie,
    };
    (verdict, None)
}

/// Exit code and reason of a failed `execve`.
fn not_started(errno: i32) -> (i32, String) {
    let why = match errno {
        1 => "not permitted",
        2 => {
            return (
                NOT_FOUND,
                "there is no such program, or its interpreter is missing".to_owned(),
            );
        }
        7 => "its arguments are too long",
        8 => "it is neither an executable for this machine nor a script with a `#!` line",
        12 => "there is not enough memory for it",
        13 => "it is not an executable file",
        20 => "its path leads through a file",
        21 => "it is a directory",
        26 => "it is being written to",
        36 => "its name is too long",
        40 => "its path has too many symbolic links",
        _ => return (NOT_STARTED, format!("errno {errno}")),
    };
    (NOT_STARTED, why.to_owned())
}

/// Returns the number of a signal by Linux's name, such as `SIGINT`; real-time ones have no names.
pub fn signal_number(name: &str) -> Option<i32> {
    let place = SIGNAL_NAMES.iter().position(|known| *known == name)?;
    i32::try_from(place + 1).ok()
}

/// Linux's names of the signals from 1 on (signal(7)).
const SIGNAL_NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Returns Linux's name of a signal.
fn signal_name(signal: i32) -> String {
    let index = usize::try_from(signal).ok().and_then(|signal| signal.checked_sub(1));
    match index.and_then(|index| SIGNAL_NAMES.get(index)) {
        Some(name) => (*name).to_owned(),
        // Real-time signals have numbers, not names (signal(7)).
        None => format!("SIG{signal}"),
    }
}

/// Returns the text, and also the exact bytes if the text is not complete.
fn text(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) if !is_costly(&text) => (text, None),
        Ok(text) => (beginning(&text), Some(BASE64.encode(text))),
        Err(error) => {
            let bytes = error.as_bytes();
            let readable = &bytes[..bytes.len().min(REPEATED_BYTES_MAX)];
            let readable = String::from_utf8_lossy(readable).into_owned();
            let readable = if is_costly(&readable) { beginning(&readable) } else { readable };
            (readable, Some(BASE64.encode(bytes)))
        }
    }
}

/// Returns whether text is better sent as bytes: it is long and JSON would take more than twice as
/// much for it.
pub(crate) fn is_costly(text: &str) -> bool {
    text.len() > COSTLY_TEXT_BYTES_MAX && json_len(text) > 2 * text.len()
}

/// Returns the length of a text in JSON, without its quotation marks, as serde_json writes it.
pub(crate) fn json_len(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    });
    bytes.sum()
}

/// Returns the readable beginning of a costly text.
fn beginning(text: &str) -> String {
    let mut end = text.len().min(COSTLY_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Returns the copy of `inner` for the top of the answer. Moves long output into it, so that the
/// answer holds it once; also returns whether it did.
pub(crate) fn move_to_top(inner: &mut StageOutcome) -> (StageOutcome, bool) {
    let length = |text: &String, exact: &Option<String>| {
        exact.as_ref().map_or(text.len(), |exact| (exact.len() / 4 * 3).saturating_sub(2))
    };
    let stdout = length(&inner.stdout, &inner.stdout_base64);
    if stdout.max(length(&inner.stderr, &inner.stderr_base64)) <= REPEATED_BYTES_MAX {
        return (inner.clone(), false);
    }
    let streams = (
        std::mem::take(&mut inner.stdout),
        std::mem::take(&mut inner.stderr),
        inner.stdout_base64.take(),
        inner.stderr_base64.take(),
    );
    let (stdout, stderr, stdout_base64, stderr_base64) = streams;
    (StageOutcome { stdout, stderr, stdout_base64, stderr_base64, ..inner.clone() }, true)
}

/// Returns the bytes of output in an outcome.
pub(crate) fn output_bytes(outcome: &StageOutcome) -> usize {
    let base64 = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    outcome.stdout.len()
        + outcome.stderr.len()
        + base64(&outcome.stdout_base64)
        + base64(&outcome.stderr_base64)
}

/// Returns the bytes of output and files in an execution.
pub(crate) fn content_bytes(execution: &Execution) -> usize {
    let stages = execution.stages.iter().map(|stage| output_bytes(&stage.outcome));
    let tests = execution
        .tests
        .iter()
        .map(|test| output_bytes(&test.outcome) + test.judge.as_ref().map_or(0, output_bytes));
    let files = execution.files.iter().filter_map(|file| file.content.as_ref().map(String::len));
    output_bytes(&execution.outcome) + stages.chain(tests).chain(files).sum::<usize>()
}

/// Milliseconds with one decimal: finer figures would let programs observe each other.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// Returns a requested file.
pub(crate) fn output_file(name: String, content: Result<Vec<u8>, String>) -> OutputFile {
    let (content, encoding, error) = match content {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) if !is_costly(&text) => (Some(text), BytesEncoding::Utf8, None),
            Ok(text) => (Some(BASE64.encode(text)), BytesEncoding::Base64, None),
            Err(error) => (Some(BASE64.encode(error.as_bytes())), BytesEncoding::Base64, None),
        },
        Err(error) => (None, BytesEncoding::Utf8, Some(error)),
    };
    OutputFile { name, content, encoding, error }
}

#[cfg(test)]
mod tests;
