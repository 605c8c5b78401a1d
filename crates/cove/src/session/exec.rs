//! `cove session exec`: runs a command in a session, as if it ran here.

use std::io::{self, Read as _, Write as _};

use anyhow::{Result, anyhow};
use api::{SessionExec, SessionExecEvent, SessionExecResult};
use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{CHANGE_TIMEOUT, WAIT_TIMEOUT, path, timeout_ms, usage};
use crate::cli::SessionExecArgs;
use crate::exit_codes::{EXIT_COVE, EXIT_TIME};
use crate::messages::complain;
use crate::remote::{Remote, plain};
use crate::run::print_json;

/// Largest input, in bytes.
const STDIN_BYTES_MAX: u64 = 16 << 20;
/// Names of signals, from 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

pub(super) async fn run(args: &SessionExecArgs, server: &Remote, json: bool) -> Result<u8> {
    let stdin = match args.stdin {
        false => None,
        true => {
            let mut bytes = Vec::new();
            io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            let is_small = u64::try_from(bytes.len()).is_ok_and(|len| len <= STDIN_BYTES_MAX);
            let text = String::from_utf8(bytes).ok().filter(|_| is_small);
            Some(text.ok_or_else(|| usage("--stdin: it is UTF-8 text of at most 16 MiB"))?)
        }
    };
    let body = SessionExec {
        command: None,
        argv: Some(args.argv.clone()),
        env: args.env.iter().cloned().collect(),
        cwd: args.cwd.clone(),
        stdin,
        timeout_ms: timeout_ms(args.timeout),
    };
    let mut request = server.request_with(Method::POST, &path(&args.id, "/exec"), &body)?;
    if json {
        request.timeout = WAIT_TIMEOUT;
        let result: SessionExecResult = server.ask(request).await?;
        print_json(&result)?;
        return Ok(exit_code(&result));
    }
    // Timeout until the command has started.
    request.timeout = CHANGE_TIMEOUT;
    let mut events = server.events(request).await?;
    let decode = |text: &str| BASE64.decode(text).map_err(|_| anyhow!("not Base64: {text:.20}"));
    while let Some(event) = events.next::<SessionExecEvent>().await? {
        match event {
            SessionExecEvent::Started { .. } | SessionExecEvent::Attached { .. } => {}
            SessionExecEvent::Stdout { data_base64 } => {
                io::stdout().write_all(&decode(&data_base64)?)?;
                io::stdout().flush()?;
            }
            // A failure is ignored: standard error is closed.
            SessionExecEvent::Stderr { data_base64 } => {
                drop(io::stderr().write_all(&decode(&data_base64)?));
            }
            SessionExecEvent::Ended(result) => return Ok(end(&result)),
            SessionExecEvent::Error { error } => return Err(anyhow!("{}", plain(&error))),
        }
    }
    Err(anyhow!("the server is gone"))
}

/// Returns the exit code of a command, and reports a timeout or a failed start.
pub(super) fn end(result: &SessionExecResult) -> u8 {
    if result.timed_out {
        complain("the command was killed: its time was up");
    }
    if let Some(why) = &result.start_error {
        complain(&format!("the command was not started: {}", plain(why)));
    }
    exit_code(result)
}

fn exit_code(result: &SessionExecResult) -> u8 {
    if result.timed_out {
        return EXIT_TIME;
    }
    if let Some(code) = result.exit_code {
        // As a parent process sees it: the lowest eight bits.
        return code.to_le_bytes()[0];
    }
    let name = result.signal.as_deref().unwrap_or_default();
    let name = name.strip_prefix("SIG").unwrap_or(name);
    let number = SIGNALS.iter().position(|it| *it == name).and_then(|at| u8::try_from(at).ok());
    number.map_or(EXIT_COVE, |number| 129 + number)
}

#[cfg(test)]
mod tests {
    //! Exit codes as in a shell.

    use super::*;

    #[test]
    fn commands_end_there_as_they_end_here() {
        let exited = |code| SessionExecResult { exit_code: Some(code), ..Default::default() };
        let killed =
            |name: &str| SessionExecResult { signal: Some(name.to_owned()), ..Default::default() };
        assert_eq!(exit_code(&exited(0)), 0);
        assert_eq!(exit_code(&exited(3)), 3);
        assert_eq!(exit_code(&killed("SIGHUP")), 129);
        assert_eq!(exit_code(&killed("SIGKILL")), 137);
        assert_eq!(exit_code(&killed("SIG40")), EXIT_COVE);
        assert_eq!(exit_code(&SessionExecResult { timed_out: true, ..killed("SIGKILL") }), 124);
    }
}
