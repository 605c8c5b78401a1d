//! Public descriptions of how programs ended.

use api::SessionExecResult;
use sandbox::ProcessEnd;

/// Returns the result of an ended program, without its output.
pub(crate) fn exec_result(end: &ProcessEnd, timed_out: bool) -> SessionExecResult {
    // Like a shell: 127 for a missing program, 126 for one that cannot be executed.
    const ENOENT: i32 = 2;
    let (code, start_error) = match (end.directory_errno, end.exec_errno) {
        (Some(errno), _) => (Some(126), Some(("working directory", errno))),
        (None, Some(ENOENT)) => (Some(127), Some(("program", ENOENT))),
        (None, Some(errno)) => (Some(126), Some(("program", errno))),
        (None, None) => (None, None),
    };
    let start_error = start_error.map(|(what, errno)| {
        let why = std::io::Error::from_raw_os_error(errno).to_string();
        format!("{what}: {}", why.split(" (os error").next().unwrap_or_default())
    });
    SessionExecResult {
        exit_code: code.or(end.code),
        signal: end.signal.map(signal_name),
        start_error,
        timed_out,
        ..SessionExecResult::default()
    }
}

/// Returns the name of a signal, as listed by `kill -l`.
pub(crate) fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    match place.and_then(|place| NAMES.get(place)) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIG{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        let rows =
            [(1, "SIGHUP"), (9, "SIGKILL"), (15, "SIGTERM"), (28, "SIGWINCH"), (31, "SIGSYS")];
        for (number, name) in rows {
            assert_eq!(signal_name(number), name);
        }
        assert_eq!(signal_name(40), "SIG40");
        assert_eq!(signal_name(0), "SIG0");
    }
}
