//! Converts the end of a program to go-judge's result. Pure, except for storing files.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use sandbox::{LimitBreach, ProgramExit};

use super::connect::{CaptureTarget, CollectedStream};
use super::plan::{CopyOut, GojudgeProgram};
use super::run::ProgramEnd;
use super::wire::{FileError, FileErrorKind, GojudgeResult, GojudgeStatus, text};

/// Signals that the kernel sends for exceeding a resource limit, and for a forbidden system call.
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;
const SIGSYS: i32 = 31;
/// Signal that kills a program that its caller has cancelled.
const SIGKILL: i32 = 9;

/// Stores a file by its name; returns its id, or the reason for a failure.
pub(super) type Keep<'a> = &'a dyn Fn(&str, &[u8]) -> Result<String, String>;

/// Returns the result of a program.
pub(super) fn outcome(
    program: GojudgeProgram,
    captures: [CaptureTarget; 2],
    collected: Vec<CollectedStream>,
    ended: ProgramEnd,
    keep: Keep<'_>,
) -> GojudgeResult {
    let mut exit = match ended {
        ProgramEnd::Exit(exit) => *exit,
        ProgramEnd::Refused(outcome) => return outcome,
        ProgramEnd::NoRoom => {
            let message = "the files of copyIn do not fit into the file system";
            let mut outcome = GojudgeResult::new(GojudgeStatus::FileError, message);
            outcome.file_error.push(FileError {
                name: program.command.files.first().map(|f| f.path.clone()).unwrap_or_default(),
                kind: FileErrorKind::CopyInCopyContent,
                message: message.to_owned(),
            });
            return outcome;
        }
    };
    let mut files = AnswerFiles { errors: program.refused_outputs, ..AnswerFiles::default() };
    files.take_captured(captures, &mut exit);
    for CollectedStream { name, kept, is_limited, .. } in collected {
        files.take_stream(name, kept.bytes, is_limited && kept.is_cut);
    }
    let mut contents = std::mem::take(&mut exit.outputs).into_iter();
    for output in program.outputs {
        let content = contents.next().unwrap_or_else(|| Err("no such file".to_owned()));
        files.take_output(output, content, program.output_bytes_max, program.truncates);
    }
    let AnswerFiles { mut found, mut errors, is_cut } = files;
    let mut file_ids = BTreeMap::new();
    for name in program.cached {
        let Some(content) = found.remove(&name) else { continue };
        match keep(&name, &content) {
            Ok(id) => {
                file_ids.insert(name, id);
            }
            Err(message) => {
                errors.push(FileError { name, kind: FileErrorKind::CopyOutCreateFile, message });
            }
        }
    }
    let (status, error) = judge(&exit, is_cut, program.cpu_max, &errors);
    GojudgeResult {
        status,
        exit_status: exit.signal.or(exit.code).unwrap_or(if exit.stopped { SIGKILL } else { 0 }),
        error,
        time: nanoseconds(exit.cpu),
        memory: exit.memory_peak_bytes,
        run_time: nanoseconds(exit.wall),
        proc_peak: exit.processes_peak,
        files: found.into_iter().map(|(name, content)| (name, text(content))).collect(),
        file_ids,
        file_error: errors,
    }
}

/// Returns the strongest applicable status, with its text: a limit before the end that it led to,
/// the end before missing files.
fn judge(
    exit: &ProgramExit,
    is_cut: bool,
    cpu_max: Duration,
    errors: &[FileError],
) -> (GojudgeStatus, String) {
    let none = String::new;
    if let Some(errno) = exit.exec_errno {
        return (
            GojudgeStatus::InternalError,
            format!("execve: {}", io::Error::from_raw_os_error(errno)),
        );
    }
    let breach = exit.breaches.first().copied();
    if is_cut || breach == Some(LimitBreach::Output) || exit.signal == Some(SIGXFSZ) {
        return (GojudgeStatus::OutputLimitExceeded, "Output Limit Exceeded".to_owned());
    }
    match breach {
        Some(LimitBreach::Cpu | LimitBreach::Wall) => {
            return (GojudgeStatus::TimeLimitExceeded, none());
        }
        Some(LimitBreach::Memory) => return (GojudgeStatus::MemoryLimitExceeded, none()),
        Some(LimitBreach::Output) | None => {}
    }
    if exit.cpu > cpu_max {
        return (GojudgeStatus::TimeLimitExceeded, none());
    }
    match (exit.signal, exit.code) {
        _ if exit.stopped => (GojudgeStatus::Signalled, none()),
        (Some(SIGXCPU), _) => (GojudgeStatus::TimeLimitExceeded, none()),
        (Some(SIGSYS), _) => (GojudgeStatus::DangerousSyscall, none()),
        (Some(_), _) => (GojudgeStatus::Signalled, none()),
        (None, Some(0)) => match errors.first() {
            Some(error) => (GojudgeStatus::FileError, error.message.clone()),
            None => (GojudgeStatus::Accepted, none()),
        },
        (None, Some(_)) => (GojudgeStatus::NonzeroExit, none()),
        (None, None) => (GojudgeStatus::InternalError, "the program was lost".to_owned()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The files of an answer while they are collected.
#[derive(Default)]
struct AnswerFiles {
    found: BTreeMap<String, Vec<u8>>,
    errors: Vec<FileError>,
    /// True if a stream exceeded its limit.
    is_cut: bool,
}

impl AnswerFiles {
    fn take_captured(&mut self, captures: [CaptureTarget; 2], exit: &mut ProgramExit) {
        let [stdout, stderr] = captures;
        let stdout = (stdout, std::mem::take(&mut exit.stdout), exit.stdout_truncated);
        let stderr = (stderr, std::mem::take(&mut exit.stderr), exit.stderr_truncated);
        for (capture, mut bytes, is_truncated) in [stdout, stderr] {
            let CaptureTarget::Keep { name, bytes_max } = capture else { continue };
            let max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
            // Output beyond the limit of one stream may be within that of the other, which is the
            // engine's limit; then only the length shows the excess.
            let is_cut = is_truncated || bytes.len() > max;
            bytes.truncate(max);
            self.take_stream(name, bytes, is_cut);
        }
    }

    fn take_stream(&mut self, name: String, bytes: Vec<u8>, is_cut: bool) {
        if is_cut {
            self.is_cut = true;
            self.errors.push(FileError {
                name: name.clone(),
                kind: FileErrorKind::CollectSizeExceeded,
                message: "Output Limit Exceeded".to_owned(),
            });
        }
        self.found.insert(name, bytes);
    }

    fn take_output(
        &mut self,
        CopyOut { name, is_optional, .. }: CopyOut,
        content: Result<Vec<u8>, String>,
        bytes_max: u64,
        truncates: bool,
    ) {
        let mut fail = |kind, message| {
            self.errors.push(FileError { name: name.clone(), kind, message });
        };
        let mut content = match content {
            Ok(content) => content,
            Err(problem) => {
                let kind = error_kind(&problem);
                if !(is_optional && kind == FileErrorKind::CopyOutOpen) {
                    fail(kind, format!("copyout: {name:?}: {problem}"));
                }
                return;
            }
        };
        let max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        if content.len() > max {
            let size = content.len();
            let message = format!("copyout: {name:?} size ({size}) exceeds limit ({bytes_max})");
            fail(FileErrorKind::CopyOutSizeExceeded, message);
            if !truncates {
                return;
            }
            content.truncate(max);
        }
        self.found.insert(name, content);
    }
}

/// Converts the engine's message about a file to its kind.
fn error_kind(problem: &str) -> FileErrorKind {
    if problem == "not a regular file" {
        FileErrorKind::CopyOutNotRegularFile
    } else if problem.contains(" bytes, more than ") {
        FileErrorKind::CopyOutSizeExceeded
    } else {
        FileErrorKind::CopyOutOpen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: Option<i32>, signal: Option<i32>, breaches: &[LimitBreach]) -> ProgramExit {
        ProgramExit { code, signal, breaches: breaches.to_vec(), ..ProgramExit::default() }
    }

    fn missing() -> Vec<FileError> {
        let kind = FileErrorKind::CopyOutOpen;
        vec![FileError { name: "x".to_owned(), kind, message: "gone".to_owned() }]
    }

    #[test]
    fn the_strongest_word_wins() {
        let second = Duration::from_secs(1);
        let over = ProgramExit { cpu: 2 * second, ..ended(Some(0), None, &[]) };
        let stopped = ProgramExit { stopped: true, ..ended(None, Some(9), &[]) };
        let not_there = ProgramExit { exec_errno: Some(2), ..ProgramExit::default() };
        for (exit, is_cut, errors, expected) in [
            (ended(Some(0), None, &[]), false, vec![], GojudgeStatus::Accepted),
            (ended(Some(0), None, &[]), false, missing(), GojudgeStatus::FileError),
            (ended(Some(0), None, &[]), true, missing(), GojudgeStatus::OutputLimitExceeded),
            (ended(Some(1), None, &[]), false, missing(), GojudgeStatus::NonzeroExit),
            (ended(Some(1), None, &[]), true, vec![], GojudgeStatus::OutputLimitExceeded),
            (ended(None, Some(11), &[]), false, missing(), GojudgeStatus::Signalled),
            (ended(None, Some(25), &[]), false, vec![], GojudgeStatus::OutputLimitExceeded),
            (ended(None, Some(24), &[]), false, vec![], GojudgeStatus::TimeLimitExceeded),
            (ended(None, Some(31), &[]), false, vec![], GojudgeStatus::DangerousSyscall),
            (
                ended(None, Some(9), &[LimitBreach::Cpu]),
                false,
                vec![],
                GojudgeStatus::TimeLimitExceeded,
            ),
            (
                ended(None, Some(9), &[LimitBreach::Wall]),
                false,
                vec![],
                GojudgeStatus::TimeLimitExceeded,
            ),
            (
                ended(Some(0), None, &[LimitBreach::Memory]),
                false,
                vec![],
                GojudgeStatus::MemoryLimitExceeded,
            ),
            (
                ended(None, Some(9), &[LimitBreach::Output, LimitBreach::Memory]),
                false,
                vec![],
                GojudgeStatus::OutputLimitExceeded,
            ),
            (over, false, missing(), GojudgeStatus::TimeLimitExceeded),
            (stopped, false, missing(), GojudgeStatus::Signalled),
            (not_there, true, missing(), GojudgeStatus::InternalError),
            (ProgramExit::default(), false, vec![], GojudgeStatus::InternalError),
        ] {
            let (status, _) = judge(&exit, is_cut, second, &errors);
            assert_eq!(status, expected, "{exit:?} {is_cut} {errors:?}");
        }
    }

    #[test]
    fn files_are_cut_where_that_is_wanted_and_missing_where_they_may_be() {
        let take = |is_optional, content: Result<&[u8], &str>, truncates| {
            let mut files = AnswerFiles::default();
            let output = CopyOut::new("f", is_optional);
            let content = content.map(<[u8]>::to_vec).map_err(str::to_owned);
            files.take_output(output, content, 3, truncates);
            (files.found.remove("f"), files.errors.first().map(|error| error.kind))
        };
        let (open, size) = (FileErrorKind::CopyOutOpen, FileErrorKind::CopyOutSizeExceeded);
        let irregular = FileErrorKind::CopyOutNotRegularFile;
        assert_eq!(take(false, Ok(b"abc"), false), (Some(b"abc".to_vec()), None));
        assert_eq!(take(false, Ok(b"abcd"), false), (None, Some(size)));
        assert_eq!(take(false, Ok(b"abcd"), true), (Some(b"abc".to_vec()), Some(size)));
        assert_eq!(take(false, Err("no such file"), true), (None, Some(open)));
        assert_eq!(take(true, Err("no such file"), true), (None, None));
        assert_eq!(take(true, Err("not a regular file"), true), (None, Some(irregular)));
        let large = "9 bytes, more than the 3 left of 3";
        assert_eq!(take(true, Err(large), true), (None, Some(size)));
    }
}
