//! Start command of a template, which runs in a new session and whenever its sandbox is created
//! again.

use std::sync::Arc;
use std::time::Duration;

use sandbox::{ProcessEnd, ProcessStreams, SandboxedSession, SessionProcess, SessionProgram};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time;

use super::entry::{SessionEntry, SessionSandbox};
use super::environment::environment;
use super::launch::ProgramLauncher;
use super::logs::LogLevel;
use crate::error::SessionError;
use crate::store::rows::SessionTemplate;

/// Interval between runs of the ready command.
const READY_EVERY: Duration = Duration::from_millis(100);
/// Maximum bytes of a line of the start command's output.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Bytes per read.
const CHUNK_BYTES: usize = 16 << 10;
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;

impl ProgramLauncher {
    /// Runs the start command of a session's template in a new sandbox without programs, and waits
    /// until its ready command succeeds. The output goes to the session's log.
    pub(super) async fn start_template_in(
        &self,
        entry: &Arc<SessionEntry>,
        body: &SessionSandbox,
    ) -> Result<(), SessionError> {
        let template = entry.state.lock().row.template.clone();
        let Some(template) = template.filter(|_| has_commands(entry)) else { return Ok(()) };
        let launch = self.launch(entry).await?;
        self.gates.open(entry, body).await?;
        let env = environment(&launch.env);
        let sandbox = body.sandbox()?;
        let mut ended = None;
        if let Some(start) = &template.start {
            let process = sandbox.start(shell(start, &env, &template)).await?;
            ended = Some(follow(process, entry)?);
        }
        let Some(ready) = &template.ready else { return Ok(()) };
        let limit = self.config.now().templates.ready_s;
        let waiting = wait_until_ready(&sandbox, shell(ready, &env, &template), ended);
        match time::timeout(Duration::from_secs(limit.into()), waiting).await {
            Ok(result) => result,
            Err(_) => Err(SessionError::Agent(format!(
                "the template's ready command did not succeed within {limit} s \
                 (sessions.templates.ready_s)"
            ))),
        }
    }
}

/// Returns whether the template has a start or a ready command.
pub(super) fn has_commands(entry: &SessionEntry) -> bool {
    let state = entry.state.lock();
    state.row.template.as_ref().is_some_and(|it| it.start.is_some() || it.ready.is_some())
}

fn shell(command: &str, env: &[Vec<u8>], template: &SessionTemplate) -> SessionProgram {
    SessionProgram {
        argv: ["/bin/bash", "-c", command].map(|word| word.as_bytes().to_vec()).into(),
        env: env.to_vec(),
        cwd: template.workdir.clone().map(String::into_bytes),
        terminal: None,
        stdin: false,
        merged: true,
    }
}

/// Repeats the ready command until it succeeds.
async fn wait_until_ready(
    sandbox: &SandboxedSession,
    program: SessionProgram,
    start: Option<sandbox::ProcessHandle>,
) -> Result<(), SessionError> {
    loop {
        let process = sandbox.start(program.clone()).await?;
        if run(process).await?.code == Some(0) {
            return Ok(());
        }
        let end = start.as_ref().and_then(sandbox::ProcessHandle::end);
        if let Some(end) = end.filter(|end| end.code != Some(0)) {
            let how = match (end.code, end.signal) {
                (Some(code), _) => format!("exited with code {code}"),
                (None, _) => "was killed".to_owned(),
            };
            let message = format!("the template's start command {how} before it was ready");
            return Err(SessionError::Agent(message));
        }
        time::sleep(READY_EVERY).await;
    }
}

/// Runs a command and discards its output. Dropping the future kills the command.
async fn run(process: SessionProcess) -> Result<ProcessEnd, SessionError> {
    let SessionProcess { streams, mut handle, .. } = process;
    let guard = KilledOnDrop(Some(handle.clone()));
    let ended = match streams {
        ProcessStreams::Pipes(mut pipes) => {
            let drain = async {
                let mut buf = vec![0; CHUNK_BYTES];
                while let Ok(1..) = pipes.stdout.read(&mut buf).await {}
                std::future::pending::<()>().await;
            };
            tokio::select! {
                end = handle.wait() => end?,
                () = drain => return Err(SessionError::internal("draining does not end")),
            }
        }
        ProcessStreams::Terminal(_) => handle.wait().await?,
    };
    guard.disarm();
    Ok(ended)
}

/// Kills a process on drop, unless it has ended.
struct KilledOnDrop(Option<sandbox::ProcessHandle>);

impl KilledOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            node::task::spawn(async move {
                let _gone = handle.signal(SIGKILL).await;
            });
        }
    }
}

/// Copies a process's output into the session's log until the output ends.
fn follow(
    process: SessionProcess,
    entry: &Arc<SessionEntry>,
) -> Result<sandbox::ProcessHandle, SessionError> {
    let ProcessStreams::Pipes(pipes) = process.streams else {
        return Err(SessionError::internal("a command without terminal has pipes"));
    };
    let entry = Arc::downgrade(entry);
    let mut stdout = pipes.stdout;
    node::task::spawn(async move {
        let mut line = Vec::new();
        let mut buf = vec![0; CHUNK_BYTES];
        while let Some(bytes) = next(&mut stdout, &mut buf).await {
            // Without the session, no one can read its log.
            let Some(entry) = entry.upgrade() else { return };
            for &byte in bytes {
                if byte != b'\n' {
                    line.push(byte);
                }
                if byte == b'\n' || line.len() >= LINE_BYTES_MAX {
                    entry.lines.lock().push(LogLevel::Stderr, &String::from_utf8_lossy(&line));
                    line.clear();
                }
            }
        }
    });
    Ok(process.handle)
}

async fn next<'a>(stream: &mut (impl AsyncRead + Unpin), buf: &'a mut [u8]) -> Option<&'a [u8]> {
    match stream.read(buf).await {
        Ok(count @ 1..) => buf.get(..count),
        _ => None,
    }
}
