//! Programs that callers run in a session, besides its agent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{SessionExec, SessionExecResult};
use bytes::Bytes;
use node::clock;
use sandbox::{ProcessHandle, ProcessPipes, ProcessStreams, SessionProgram};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time;

use super::cluster::ClusterPlace;
use super::entry::SandboxUse;
use super::environment::environment;
use super::gates::GrantGates;
use super::launch::ProgramLauncher;
use super::lifecycle::SessionLifecycle;
use super::shared::SharedParts;
use crate::error::SessionError;
use crate::metrics::{SessionCounters, TimedOperation};
use crate::program_end::exec_result;
use crate::traces::CommandTrace;

/// Bytes kept of each stream of a command whose caller waits for its end.
const OUTPUT_BYTES_MAX: usize = 10 << 20;
/// Default time limit of a command.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Maximum time limit that a caller may set.
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Maximum number of arguments of a command, and bytes of one.
const ARGV_MAX: usize = 4096;
const ARGUMENT_BYTES_MAX: usize = 128 << 10;
/// Maximum bytes of standard input in the request.
const STDIN_BYTES_MAX: usize = 16 << 20;
/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Pieces of output queued for a slow caller before the program is blocked.
const CHUNKS_MAX: usize = 8;
/// Time for which the output of an ended program is read if its descendants keep the streams open.
const OUTPUT_GRACE: Duration = Duration::from_millis(100);
/// Longest wait for a killed program to end.
const KILL_MAX: Duration = Duration::from_secs(5);
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;

/// Event of a running command.
#[derive(Clone, Debug)]
pub enum ExecEvent {
    /// Started, with its pid in the sandbox.
    Started(u32),
    /// Bytes of its standard output.
    Stdout(Bytes),
    /// Bytes of its standard error.
    Stderr(Bytes),
    /// End of the command, and the last event. The result does not include the output.
    Ended(SessionExecResult),
}

/// A running command. Dropping this kills it.
#[derive(Debug)]
pub struct ExecStream {
    events: mpsc::Receiver<ExecEvent>,
}

impl ExecStream {
    /// Returns the next event; none after [`ExecEvent::Ended`].
    pub async fn next(&mut self) -> Option<ExecEvent> {
        self.events.recv().await
    }
}

/// Commands that callers run in sessions.
pub struct SessionCommands {
    cluster: Arc<ClusterPlace>,
    metrics: Arc<SessionCounters>,
    lifecycle: Arc<SessionLifecycle>,
    launcher: Arc<ProgramLauncher>,
    gates: Arc<GrantGates>,
}

impl fmt::Debug for SessionCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCommands").finish_non_exhaustive()
    }
}

impl SessionCommands {
    pub(super) fn new(
        shared: &SharedParts,
        lifecycle: Arc<SessionLifecycle>,
        launcher: Arc<ProgramLauncher>,
        gates: Arc<GrantGates>,
    ) -> Arc<SessionCommands> {
        let (cluster, metrics) = (Arc::clone(&shared.cluster), Arc::clone(&shared.metrics));
        Arc::new(SessionCommands { cluster, metrics, lifecycle, launcher, gates })
    }

    /// Runs a command and waits for its end.
    ///
    /// # Errors
    /// If the session is not active, or its sandbox ends meanwhile.
    pub async fn run(
        &self,
        tenant: &str,
        id: &str,
        request: SessionExec,
    ) -> Result<SessionExecResult, SessionError> {
        let began = clock::now();
        let (mut stdout, mut stderr) = (CollectedOutput::default(), CollectedOutput::default());
        let mut stream = self.stream(tenant, id, request).await?;
        let mut ended = None;
        while let Some(event) = stream.next().await {
            match event {
                ExecEvent::Started(_) => {}
                ExecEvent::Stdout(bytes) => stdout.push(&bytes),
                ExecEvent::Stderr(bytes) => stderr.push(&bytes),
                ExecEvent::Ended(result) => ended = Some(result),
            }
        }
        let Some(result) = ended else {
            return Err(SessionError::SandboxEnded("while a command ran".to_owned()));
        };
        self.cluster.check_lease()?;
        self.metrics.took(TimedOperation::Exec, clock::now().duration_since(began));
        Ok(SessionExecResult {
            truncated: stdout.truncated || stderr.truncated,
            stdout: stdout.text(),
            stderr: stderr.text(),
            ..result
        })
    }

    /// Runs a command and streams its output. A slow caller blocks the program.
    ///
    /// # Errors
    /// If the session is not active.
    pub async fn stream(
        &self,
        tenant: &str,
        id: &str,
        request: SessionExec,
    ) -> Result<ExecStream, SessionError> {
        self.cluster.check_lease()?;
        check(&request)?;
        let span = node::traces::span("exec");
        let at_work = self.lifecycle.active(tenant, id).await?;
        let trace = CommandTrace::begin(span, &at_work.entry.id);
        let launch = self.launcher.launch(&at_work.entry).await?;
        self.gates.open(&at_work.entry, &at_work.body).await?;
        let mut env = launch.env.clone();
        env.extend(request.env.clone());
        trace.pass_on(&mut env);
        let mut program = program(&request, &env);
        if program.cwd.is_none() {
            program.cwd = at_work.workdir();
        }
        let process = at_work.body.sandbox()?.start(program).await?;
        let timeout = request.timeout_ms.map_or(TIMEOUT, Duration::from_millis);
        let stdin = request.stdin.unwrap_or_default();
        let (told, events) = mpsc::channel(CHUNKS_MAX);
        let ProcessStreams::Pipes(pipes) = process.streams else {
            return Err(SessionError::internal("a command without terminal has pipes"));
        };
        let running = RunningCommand { at_work, handle: process.handle, told, trace };
        node::task::spawn(running.follow(pipes, stdin, timeout));
        Ok(ExecStream { events })
    }
}

/// Kept output of a stream.
#[derive(Default)]
struct CollectedOutput {
    bytes: Vec<u8>,
    truncated: bool,
}

impl CollectedOutput {
    fn push(&mut self, bytes: &[u8]) {
        let room = OUTPUT_BYTES_MAX - self.bytes.len();
        self.truncated |= bytes.len() > room;
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn text(self) -> String {
        match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

fn check(request: &SessionExec) -> Result<(), SessionError> {
    match (&request.command, &request.argv) {
        (Some(_), Some(_)) => return Err(SessionError::invalid("argv", "excludes `command`")),
        (None, None) => return Err(SessionError::invalid("command", "is missing")),
        (Some(command), None) => argument(command, "command")?,
        (None, Some(argv)) => {
            if argv.is_empty() || argv.len() > ARGV_MAX {
                return Err(SessionError::invalid(
                    "argv",
                    format!("must have 1 to {ARGV_MAX} parts"),
                ));
            }
            for (index, part) in argv.iter().enumerate() {
                argument(part, &format!("argv[{index}]"))?;
            }
        }
    }
    super::limits::check_env(&request.env, "env")?;
    if let Some(cwd) = &request.cwd {
        argument(cwd, "cwd")?;
    }
    if request.stdin.as_ref().is_some_and(|stdin| stdin.len() > STDIN_BYTES_MAX) {
        return Err(SessionError::invalid("stdin", format!("more than {STDIN_BYTES_MAX} bytes")));
    }
    if request.timeout_ms.is_some_and(|ms| !(1..=TIMEOUT_MS_MAX).contains(&ms)) {
        let message = format!("must be between 1 and {TIMEOUT_MS_MAX}");
        return Err(SessionError::invalid("timeout_ms", message));
    }
    Ok(())
}

fn argument(text: &str, field: &str) -> Result<(), SessionError> {
    if text.contains('\0') {
        return Err(SessionError::invalid(field, "has no NUL character"));
    }
    // The kernel's own bound for one string (MAX_ARG_STRLEN, execve(2)), its end included.
    if text.len() >= ARGUMENT_BYTES_MAX {
        return Err(SessionError::invalid(
            field,
            format!("has {ARGUMENT_BYTES_MAX} bytes or more"),
        ));
    }
    Ok(())
}

fn program(request: &SessionExec, env: &BTreeMap<String, String>) -> SessionProgram {
    let argv = match (&request.command, &request.argv) {
        (Some(command), _) => vec!["/bin/sh".into(), "-c".into(), command.clone().into()],
        (None, argv) => argv.iter().flatten().map(|part| part.clone().into()).collect(),
    };
    SessionProgram {
        argv,
        env: environment(env),
        cwd: request.cwd.clone().map(String::into_bytes),
        terminal: None,
        stdin: request.stdin.is_some(),
        merged: false,
    }
}

/// A running command.
struct RunningCommand {
    /// Keeps the sandbox at work.
    at_work: SandboxUse,
    handle: ProcessHandle,
    told: mpsc::Sender<ExecEvent>,
    trace: CommandTrace,
}

impl RunningCommand {
    /// Sends all events up to the end. Kills the program if the caller disconnects.
    async fn follow(self, pipes: ProcessPipes, stdin: String, timeout: Duration) {
        let RunningCommand { at_work, mut handle, told, trace } = self;
        let ProcessPipes { stdin: input, stdout, stderr } = pipes;
        let feed = feed(input, stdin);
        let _started = told.send(ExecEvent::Started(handle.pid())).await;
        let out = pump(stdout, told.clone(), ExecEvent::Stdout);
        let err = async {
            if let Some(stderr) = stderr {
                pump(stderr, told.clone(), ExecEvent::Stderr).await;
            }
        };
        let mut waiting = handle.clone();
        let ended = async {
            tokio::select! {
                end = waiting.wait() => Some(end),
                () = time::sleep(timeout) => None,
                () = told.closed() => None,
            }
        };
        // Output is read while the program runs, and for a grace period after its end, because its
        // descendants may never close the streams.
        let streams = async { tokio::join!(out, err) };
        let mut streams = Box::pin(streams);
        let mut feed = Box::pin(feed);
        let mut ended = Box::pin(ended);
        let (mut fed, mut drained) = (false, false);
        let end = loop {
            tokio::select! {
                end = &mut ended => break end,
                () = &mut feed, if !fed => fed = true,
                _ = &mut streams, if !drained => drained = true,
            }
        };
        let timed_out = end.is_none();
        let end = match end {
            Some(end) => end.ok(),
            None => {
                let _gone = handle.signal(SIGKILL).await;
                time::timeout(KILL_MAX, handle.wait()).await.ok().and_then(Result::ok)
            }
        };
        if !drained {
            let _left_behind = time::timeout(OUTPUT_GRACE, &mut streams).await;
        }
        drop(streams);
        if let Some(end) = end {
            let result = exec_result(&end, timed_out);
            trace.end(&result);
            let _nobody = told.send(ExecEvent::Ended(result)).await;
        }
        drop(at_work);
    }
}

/// Writes the input, and closes it.
async fn feed(input: Option<pipe::Sender>, text: String) {
    if let Some(mut input) = input {
        // A program need not read all of its input.
        let _unread = input.write_all(text.as_bytes()).await;
    }
}

/// Sends the output of a stream as events.
async fn pump(
    mut stream: impl AsyncRead + Unpin,
    told: mpsc::Sender<ExecEvent>,
    event: fn(Bytes) -> ExecEvent,
) {
    let mut buf = vec![0; CHUNK_BYTES];
    loop {
        match stream.read(&mut buf).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let bytes = Bytes::copy_from_slice(buf.get(..count).unwrap_or_default());
                if told.send(event(bytes)).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of commands without a sandbox.

    use super::*;

    #[test]
    fn refusals_name_their_field() {
        let command = |command: &str| SessionExec {
            command: Some(command.to_owned()),
            ..SessionExec::default()
        };
        let argv = |argv: &[&str]| SessionExec {
            argv: Some(argv.iter().map(|&part| part.to_owned()).collect()),
            ..SessionExec::default()
        };
        let check = |request: SessionExec, field: &str| match super::check(&request) {
            Err(SessionError::Refused(refusal)) => assert_eq!(refusal.field, field),
            other => panic!("{other:?} instead of a refusal of {field}"),
        };
        check(SessionExec::default(), "command");
        check(command("a\0b"), "command");
        check(argv(&[]), "argv");
        check(argv(&["a", "b\0"]), "argv[1]");
        check(SessionExec { argv: Some(vec!["x".to_owned()]), ..command("y") }, "argv");
        check(SessionExec { timeout_ms: Some(0), ..command("y") }, "timeout_ms");
        check(SessionExec { cwd: Some("\0".to_owned()), ..command("y") }, "cwd");
    }

    #[test]
    fn what_is_kept_is_bounded_and_says_so() {
        let mut kept = CollectedOutput::default();
        kept.push(&vec![b'x'; OUTPUT_BYTES_MAX - 1]);
        kept.push(b"y");
        assert!(!kept.truncated);
        kept.push(b"z");
        assert!(kept.truncated);
        assert_eq!(kept.text().len(), OUTPUT_BYTES_MAX);
    }
}
