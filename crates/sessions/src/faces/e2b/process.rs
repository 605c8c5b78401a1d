//! Processes of a sandbox. Their output goes to all listeners, and they outlive every listener.
//!
//! Each process has one task that reads its streams and sends ready messages to all listeners. A
//! slow listener blocks the program, as a full pipe does; a disconnected one is removed. Without
//! listeners, output is read and discarded.
//!
//! # References
//! - <https://github.com/e2b-dev/infra/tree/main/packages/envd/spec>

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use sandbox::{
    ProcessEnd, ProcessHandle, ProcessPipes, ProcessStreams, ProcessTerminal, SessionProgram,
    TerminalDimensions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time;

use super::errors::{RpcError, shown};
use super::frames;
use crate::program_end::exec_result;
use crate::service::SandboxGuard;
use crate::traces::CommandTrace;

/// Maximum number of running processes of one sandbox that clients started.
const PROCESSES_MAX: usize = 256;
/// Maximum number of listeners of one process.
const LISTENERS_MAX: usize = 64;
/// Messages queued per listener before the program is blocked.
const MESSAGES_MAX: usize = 8;
/// Bytes per read.
const CHUNK_BYTES: usize = 32 << 10;
/// Silence after which the streams of an ended process are abandoned: its orphans may never close
/// them.
const OUTPUT_GRACE: Duration = Duration::from_millis(100);
/// Maximum number of bytes read after a process has ended: the most that a pipe holds.
const OUTPUT_LEFT_BYTES_MAX: u64 = 1 << 20;
/// Longest wait for a killed process to end.
const KILL_MAX: Duration = Duration::from_secs(5);
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;
/// Maximum bytes of one argument or variable, and of all of them.
const STRING_BYTES_MAX: usize = 128 << 10;
const CONFIG_BYTES_MAX: usize = 2 << 20;
/// Default working directory of processes.
const HOME: &str = "/home/user";

/// Parameters of a process's start, as clients send and get them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ProcessConfig {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct PtySize {
    cols: u16,
    rows: u16,
}

/// Terminal requested by the client.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct PtyRequest {
    size: Option<PtySize>,
}

impl PtyRequest {
    /// Returns the requested size, if there is one.
    pub(super) fn size(self) -> Option<PtySize> {
        self.size
    }
}

/// Body of `Start`.
#[derive(Debug, Deserialize)]
pub(super) struct StartRequest {
    process: ProcessConfig,
    pty: Option<PtyRequest>,
    tag: Option<String>,
    /// Absent in requests of clients that predate this field.
    stdin: Option<bool>,
}

/// Selector of a process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessSelector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// Event sent to listeners.
#[derive(Clone, Debug)]
pub(super) enum ProcessEvent {
    /// An encoded message.
    Message(Bytes),
    /// End of the stream, with an error if there was one.
    Over(Option<RpcError>),
}

/// Processes of one sandbox, oldest first. They hold no reference to the sandbox, because a paused
/// sandbox may have to end.
#[derive(Debug)]
pub(super) struct SandboxProcesses {
    running: Mutex<Vec<Arc<RunningProcess>>>,
    places: Arc<Semaphore>,
}

impl Default for SandboxProcesses {
    fn default() -> SandboxProcesses {
        SandboxProcesses {
            running: Mutex::default(),
            places: Arc::new(Semaphore::new(PROCESSES_MAX)),
        }
    }
}

/// A running process.
#[derive(Debug)]
pub(super) struct RunningProcess {
    pid: u32,
    config: ProcessConfig,
    tag: Option<String>,
    handle: ProcessHandle,
    input: tokio::sync::Mutex<InputTarget>,
    /// None once the process has ended.
    listeners: Mutex<Option<Vec<mpsc::Sender<ProcessEvent>>>>,
    progress: OutputProgress,
    _place: OwnedSemaphorePermit,
}

/// Target of input.
#[derive(Debug)]
enum InputTarget {
    Pipe(pipe::Sender),
    Terminal(ProcessTerminal),
    /// Closed, or never open.
    Closed,
}

/// Progress of reading a process's output.
#[derive(Debug, Default)]
struct OutputProgress {
    bytes: AtomicU64,
    /// True while the reader waits for a slow listener.
    is_waiting: AtomicBool,
}

/// Output stream.
#[derive(Clone, Copy, Debug)]
enum OutputStream {
    Stdout,
    Stderr,
    Pty,
}

impl OutputStream {
    fn message(self, bytes: &[u8]) -> Bytes {
        let kind = match self {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
            OutputStream::Pty => "pty",
        };
        let data = STANDARD.encode(bytes);
        frames::message_of_text(&format!(r#"{{"event":{{"data":{{"{kind}":"{data}"}}}}}}"#))
    }
}

impl SandboxProcesses {
    /// Starts a process and returns the receiver of its events. After `time` the process is killed,
    /// with or without listeners.
    ///
    /// # Errors
    /// If the request is invalid, the sandbox has too many processes, or the sandbox has ended.
    pub(super) async fn start(
        self: &Arc<Self>,
        guard: &SandboxGuard,
        request: StartRequest,
        own: &BTreeMap<String, String>,
        time: Option<Duration>,
    ) -> Result<mpsc::Receiver<ProcessEvent>, RpcError> {
        let name = if request.pty.is_some() { "terminal" } else { "exec" };
        let trace = CommandTrace::begin(node::traces::span(name), guard.session());
        let program = program(guard, &request, own, &trace).await?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let message = format!("the sandbox has {PROCESSES_MAX} processes, which is its limit");
            RpcError::new("resource_exhausted", message)
        })?;
        let process = guard.start(program).await?;
        let (input, outputs) = match process.streams {
            ProcessStreams::Pipes(ProcessPipes { stdin, stdout, stderr }) => {
                let input = stdin.map_or(InputTarget::Closed, InputTarget::Pipe);
                (input, ProcessOutputs::Pipes(stdout, stderr))
            }
            ProcessStreams::Terminal(terminal) => {
                (InputTarget::Terminal(terminal.clone()), ProcessOutputs::Terminal(terminal))
            }
        };
        let (first, told) = mpsc::channel(MESSAGES_MAX);
        let running = Arc::new(RunningProcess {
            pid: process.pid,
            config: request.process,
            tag: request.tag,
            handle: process.handle,
            input: tokio::sync::Mutex::new(input),
            listeners: Mutex::new(Some(vec![first.clone()])),
            progress: OutputProgress::default(),
            _place: place,
        });
        // Cannot fail: the channel is empty.
        let _told = first.try_send(ProcessEvent::Message(running.started()));
        self.running.lock().push(Arc::clone(&running));
        let all = Arc::clone(self);
        // Ends with the process, which ends with its sandbox at the latest.
        node::task::spawn(async move { running.follow(outputs, time, &all, trace).await });
        Ok(told)
    }

    /// Subscribes to a process from now on.
    ///
    /// # Errors
    /// If there is no such process, or it has too many listeners.
    pub(super) fn connect(
        &self,
        selector: &ProcessSelector,
    ) -> Result<mpsc::Receiver<ProcessEvent>, RpcError> {
        let running = self.find(selector)?;
        let (listener, told) = mpsc::channel(MESSAGES_MAX);
        let _told = listener.try_send(ProcessEvent::Message(running.started()));
        let mut listeners = running.listeners.lock();
        let Some(listeners) = &mut *listeners else { return Err(gone(selector)) };
        listeners.retain(|listener| !listener.is_closed());
        if listeners.len() >= LISTENERS_MAX {
            let message = format!("{LISTENERS_MAX} listen to the process, which is the limit");
            return Err(RpcError::new("resource_exhausted", message));
        }
        listeners.push(listener);
        Ok(told)
    }

    /// Returns the running processes.
    pub(super) fn list(&self) -> Value {
        let one = |running: &Arc<RunningProcess>| {
            let mut one = json!({ "pid": running.pid, "config": running.config });
            if let Some(tag) = &running.tag {
                one["tag"] = json!(tag);
            }
            one
        };
        let running = self.running.lock();
        let all = running.iter().filter(|it| it.handle.end().is_none());
        json!({ "processes": all.map(one).collect::<Vec<_>>() })
    }

    /// Sends all listeners the end of their stream because the sandbox is paused, and removes them.
    /// The processes continue after the sandbox is resumed.
    pub(super) fn hang_up(&self) {
        let paused = RpcError::new("unavailable", "the sandbox was paused");
        for running in self.running.lock().iter() {
            let listeners = running.listeners.lock().as_mut().map(std::mem::take);
            for listener in listeners.into_iter().flatten() {
                // A listener with a full queue sees its channel close instead.
                let _told = listener.try_send(ProcessEvent::Over(Some(paused.clone())));
            }
        }
    }

    /// Finds a running process.
    ///
    /// # Errors
    /// If no running process matches.
    pub(super) fn find(&self, selector: &ProcessSelector) -> Result<Arc<RunningProcess>, RpcError> {
        let is_meant = |running: &Arc<RunningProcess>| match (selector.pid, &selector.tag) {
            (Some(pid), _) => running.pid == pid,
            (None, Some(tag)) => running.tag.as_ref() == Some(tag),
            (None, None) => false,
        };
        // The list also has ended processes whose output is still being read.
        let is_there = |it: &&Arc<RunningProcess>| it.handle.end().is_none() && is_meant(it);
        self.running.lock().iter().find(is_there).cloned().ok_or_else(|| gone(selector))
    }
}

fn gone(selector: &ProcessSelector) -> RpcError {
    match (selector.pid, &selector.tag) {
        (Some(pid), _) => RpcError::not_found(format!("process with pid {pid} not found")),
        (None, Some(tag)) => {
            RpcError::not_found(format!("process with tag {} not found", shown(tag)))
        }
        (None, None) => RpcError::invalid("process: specify `pid` or `tag`"),
    }
}

async fn program(
    guard: &SandboxGuard,
    request: &StartRequest,
    own: &BTreeMap<String, String>,
    trace: &CommandTrace,
) -> Result<SessionProgram, RpcError> {
    let ProcessConfig { cmd, args, envs, cwd } = &request.process;
    if cmd.is_empty() {
        return Err(RpcError::invalid("process.cmd: is empty"));
    }
    check(&request.process)?;
    let mut env = guard.variables().await?;
    env.extend(own.clone());
    env.extend(envs.clone());
    trace.pass_on(&mut env);
    let terminal = request.pty.map(|pty| {
        let size = pty.size.unwrap_or(PtySize { cols: 80, rows: 24 });
        TerminalDimensions { rows: size.rows, cols: size.cols }
    });
    let cwd = cwd.as_deref().filter(|cwd| !cwd.is_empty());
    let directory = match cwd {
        Some(cwd) => super::filesystem::at_home(cwd),
        None => guard.workdir().unwrap_or_else(|| HOME.to_owned()),
    };
    let mut argv = vec![cmd.clone().into_bytes()];
    argv.extend(args.iter().map(|arg| arg.clone().into_bytes()));
    Ok(SessionProgram {
        argv,
        env: guard.environment(&env).await?,
        cwd: Some(directory.into_bytes()),
        terminal,
        stdin: request.stdin.unwrap_or(true),
        merged: false,
    })
}

/// Rejects configurations that no process can be started with.
fn check(config: &ProcessConfig) -> Result<(), RpcError> {
    let ProcessConfig { cmd, args, envs, cwd } = config;
    let names = || envs.keys().map(String::as_str);
    let all = [cmd.as_str()].into_iter().chain(args.iter().map(String::as_str)).chain(names());
    let all = all.chain(envs.values().map(String::as_str)).chain(cwd.as_deref());
    let mut bytes = 0;
    for text in all {
        if text.contains('\0') {
            return Err(RpcError::invalid("process: nothing in it has a NUL character"));
        }
        // The kernel's own bound for one string (MAX_ARG_STRLEN, execve(2)), its end included.
        if text.len() >= STRING_BYTES_MAX {
            let message = format!("process: a text in it has {STRING_BYTES_MAX} bytes or more");
            return Err(RpcError::invalid(message));
        }
        bytes += text.len();
    }
    if bytes > CONFIG_BYTES_MAX {
        let message = format!("process: more than {CONFIG_BYTES_MAX} bytes in all");
        return Err(RpcError::invalid(message));
    }
    if names().any(|name| name.is_empty() || name.contains('=')) {
        return Err(RpcError::invalid("process.envs: a name is empty or has a `=`"));
    }
    Ok(())
}

/// Output streams of a process.
enum ProcessOutputs {
    Pipes(pipe::Receiver, Option<pipe::Receiver>),
    Terminal(ProcessTerminal),
}

/// End of a process.
enum E2bProcessEnd {
    Ended(ProcessEnd),
    /// Killed at its time limit.
    TimedOut,
    /// The sandbox has ended.
    Lost,
}

impl RunningProcess {
    fn started(&self) -> Bytes {
        frames::message(&json!({ "event": { "start": { "pid": self.pid } } }))
    }

    /// Writes to the process's input.
    ///
    /// # Errors
    /// If the input is closed, or of the other kind.
    pub(super) async fn write(&self, data: &InputData) -> Result<(), RpcError> {
        let mut input = self.input.lock().await;
        let written = match (&mut *input, data) {
            (InputTarget::Pipe(pipe), InputData::Stdin(bytes)) => pipe.write_all(bytes).await,
            (InputTarget::Terminal(terminal), InputData::Pty(bytes)) => {
                terminal.write_all(bytes).await
            }
            (InputTarget::Closed, InputData::Stdin(_)) => {
                return Err(RpcError::new("failed_precondition", "its input is closed"));
            }
            (InputTarget::Terminal(_), InputData::Stdin(_)) => {
                let message = "the process has a terminal; write to that";
                return Err(RpcError::new("failed_precondition", message));
            }
            (InputTarget::Pipe(_) | InputTarget::Closed, InputData::Pty(_)) => {
                return Err(RpcError::new("failed_precondition", "the process has no terminal"));
            }
        };
        written.map_err(|_broken| {
            RpcError::new("failed_precondition", "the process does not read its input any more")
        })
    }

    /// Closes the process's input.
    ///
    /// # Errors
    /// If the input is a terminal, which ends only by the character Ctrl-D.
    pub(super) async fn close(&self) -> Result<(), RpcError> {
        let mut input = self.input.lock().await;
        if matches!(*input, InputTarget::Terminal(_)) {
            let message = "a terminal is not closed; write the character 4 (Ctrl-D)";
            return Err(RpcError::new("failed_precondition", message));
        }
        *input = InputTarget::Closed;
        Ok(())
    }

    /// Sends a signal to the process and its descendants.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(super) async fn signal(&self, signal: i32) -> Result<(), RpcError> {
        self.handle.signal(signal).await.map_err(crate::SessionError::from)?;
        if signal == SIGKILL {
            // Wait, so that a subsequent request finds the process gone.
            let mut handle = self.handle.clone();
            drop(time::timeout(KILL_MAX, handle.wait()).await);
        }
        Ok(())
    }

    /// Resizes the process's terminal.
    ///
    /// # Errors
    /// If it has no terminal.
    pub(super) async fn resize(&self, size: PtySize) -> Result<(), RpcError> {
        match &*self.input.lock().await {
            InputTarget::Terminal(terminal) => {
                let size = TerminalDimensions { rows: size.rows, cols: size.cols };
                terminal.resize(size).map_err(|error| RpcError::invalid(error.to_string()))
            }
            InputTarget::Pipe(_) | InputTarget::Closed => {
                Err(RpcError::new("failed_precondition", "the process has no terminal"))
            }
        }
    }

    /// Reads the process's output until it ends, and sends both output and end to the listeners.
    async fn follow(
        &self,
        outputs: ProcessOutputs,
        time: Option<Duration>,
        all: &SandboxProcesses,
        trace: CommandTrace,
    ) {
        let streams = async {
            match outputs {
                ProcessOutputs::Pipes(stdout, stderr) => {
                    let stderr = async {
                        if let Some(stderr) = stderr {
                            self.relay(stderr, OutputStream::Stderr).await;
                        }
                    };
                    tokio::join!(self.relay(stdout, OutputStream::Stdout), stderr);
                }
                ProcessOutputs::Terminal(terminal) => self.relay(terminal, OutputStream::Pty).await,
            }
        };
        let mut streams = Box::pin(streams);
        let mut ended = Box::pin(self.end(time));
        let mut is_drained = false;
        let end = loop {
            tokio::select! {
                end = &mut ended => break end,
                () = &mut streams, if !is_drained => is_drained = true,
            }
        };
        if !is_drained && matches!(end, E2bProcessEnd::Ended(_)) {
            self.drain(&mut streams).await;
        }
        drop(streams);
        match &end {
            E2bProcessEnd::Ended(end) => trace.end(&exec_result(end, false)),
            E2bProcessEnd::TimedOut | E2bProcessEnd::Lost => drop(trace),
        }
        all.running.lock().retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
        let listeners = self.listeners.lock().take();
        for told in last_words(&end) {
            for listener in listeners.iter().flatten() {
                let _gone = listener.send(told.clone()).await;
            }
        }
    }

    async fn end(&self, time: Option<Duration>) -> E2bProcessEnd {
        let mut handle = self.handle.clone();
        let ended = match time {
            Some(time) => time::timeout(time, handle.wait()).await,
            None => Ok(handle.wait().await),
        };
        match ended {
            Ok(Ok(end)) => E2bProcessEnd::Ended(end),
            Ok(Err(_)) => E2bProcessEnd::Lost,
            Err(_) => {
                let _gone = handle.signal(SIGKILL).await;
                // Listeners do not wait longer than this, even if the kill fails.
                drop(time::timeout(KILL_MAX, handle.wait()).await);
                E2bProcessEnd::TimedOut
            }
        }
    }

    /// Reads the remaining output of an ended process.
    async fn drain(&self, streams: &mut (impl Future<Output = ()> + Unpin)) {
        let until = self.progress.bytes.load(Ordering::Relaxed) + OUTPUT_LEFT_BYTES_MAX;
        loop {
            let before = self.progress.bytes.load(Ordering::Relaxed);
            if time::timeout(OUTPUT_GRACE, &mut *streams).await.is_ok() {
                return;
            }
            let now = self.progress.bytes.load(Ordering::Relaxed);
            let is_silent = now == before && !self.progress.is_waiting.load(Ordering::Relaxed);
            if is_silent || now >= until {
                return;
            }
        }
    }

    /// Sends the output of one stream to the listeners.
    async fn relay(&self, mut from: impl AsyncRead + Unpin, kind: OutputStream) {
        let mut buf = vec![0; CHUNK_BYTES];
        loop {
            let count = match from.read(&mut buf).await {
                Ok(count @ 1..) => count,
                Ok(_) | Err(_) => return,
            };
            let bytes = buf.get(..count).unwrap_or_default();
            self.progress.bytes.fetch_add(count as u64, Ordering::Relaxed);
            let listeners = self.listeners.lock().clone().unwrap_or_default();
            if listeners.is_empty() {
                continue;
            }
            let message = ProcessEvent::Message(kind.message(bytes));
            let mut has_lost = false;
            self.progress.is_waiting.store(true, Ordering::Relaxed);
            for listener in &listeners {
                has_lost |= listener.send(message.clone()).await.is_err();
            }
            self.progress.is_waiting.store(false, Ordering::Relaxed);
            if has_lost && let Some(listeners) = &mut *self.listeners.lock() {
                listeners.retain(|listener| !listener.is_closed());
            }
        }
    }
}

/// Returns the final events of a process.
fn last_words(end: &E2bProcessEnd) -> Vec<ProcessEvent> {
    let over = |error| vec![ProcessEvent::Over(Some(error))];
    match end {
        E2bProcessEnd::TimedOut => {
            over(RpcError::new("deadline_exceeded", "the process took longer than it may"))
        }
        E2bProcessEnd::Lost => over(RpcError::sandbox_ended()),
        E2bProcessEnd::Ended(end) => match (end.directory_errno, end.exec_errno, &end.failure) {
            (Some(_), _, _) => over(RpcError::invalid("cwd: there is no such directory")),
            (None, Some(errno), _) => {
                let error = std::io::Error::from_raw_os_error(errno);
                over(RpcError::invalid(format!("process.cmd: {error}")))
            }
            (None, None, Some(failure)) => {
                tracing::error!(%failure, "a process of a sandbox was not started");
                over(RpcError::new("internal", "the process was not started"))
            }
            (None, None, None) => {
                let event = json!({ "event": { "end": end_event(end) } });
                vec![ProcessEvent::Message(frames::message(&event)), ProcessEvent::Over(None)]
            }
        },
    }
}

/// Formats the end of a process like Go's `os.ProcessState`, which clients expect.
fn end_event(end: &ProcessEnd) -> Value {
    match (end.code, end.signal) {
        (Some(0), _) => json!({ "exited": true, "status": "exit status 0" }),
        (Some(code), _) => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": status })
        }
        (None, signal) => {
            let status = format!("signal: {}", signal_words(signal.unwrap_or(0)));
            json!({ "exitCode": -1, "exited": false, "status": status, "error": status })
        }
    }
}

fn signal_words(number: i32) -> String {
    let words = match number {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    words.to_owned()
}

/// Input bytes for a process.
#[derive(Debug)]
pub(super) enum InputData {
    Stdin(Vec<u8>),
    Pty(Vec<u8>),
}

impl InputData {
    /// Reads `{"stdin": "…"}` or `{"pty": "…"}`.
    ///
    /// # Errors
    /// If the value has neither, or the text is not base64.
    pub(super) fn parse(value: &Value) -> Result<InputData, RpcError> {
        let bytes = |name: &str| {
            let text = value.get(name)?.as_str()?;
            Some(
                STANDARD
                    .decode(text)
                    .map_err(|_| RpcError::invalid(format!("input.{name}: is not base64"))),
            )
        };
        match (bytes("stdin"), bytes("pty")) {
            (Some(stdin), None) => Ok(InputData::Stdin(stdin?)),
            (None, Some(pty)) => Ok(InputData::Pty(pty?)),
            _ => Err(RpcError::invalid("input: either `stdin` or `pty` is needed")),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Exit descriptions and messages, without a sandbox.

    use super::*;

    fn ended(code: Option<i32>, signal: Option<i32>) -> ProcessEnd {
        ProcessEnd {
            code,
            signal,
            exec_errno: None,
            directory_errno: None,
            failure: None,
            oom_kills: 0,
        }
    }

    #[test]
    fn ends_have_gos_words() {
        let well = json!({ "exited": true, "status": "exit status 0" });
        assert_eq!(end_event(&ended(Some(0), None)), well);
        for (end, code, exited, status) in [
            (ended(Some(3), None), 3, true, "exit status 3"),
            (ended(None, Some(9)), -1, false, "signal: killed"),
            (ended(None, Some(40)), -1, false, "signal: signal 40"),
        ] {
            let expected =
                json!({ "exitCode": code, "exited": exited, "status": status, "error": status });
            assert_eq!(end_event(&end), expected);
        }
    }

    #[test]
    fn what_could_not_be_started_is_an_error_and_not_an_end() {
        let code = |end: ProcessEnd| match last_words(&E2bProcessEnd::Ended(end)).as_slice() {
            [ProcessEvent::Over(Some(error))] => error.code(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            code(ProcessEnd { exec_errno: Some(2), ..ended(None, None) }),
            "invalid_argument"
        );
        let directory = ProcessEnd { directory_errno: Some(2), ..ended(None, None) };
        assert_eq!(code(directory), "invalid_argument");
    }

    #[test]
    fn input_is_of_one_kind() {
        assert!(
            matches!(InputData::parse(&json!({ "stdin": "aGk=" })), Ok(InputData::Stdin(b)) if b == b"hi")
        );
        assert!(
            matches!(InputData::parse(&json!({ "pty": "" })), Ok(InputData::Pty(b)) if b.is_empty())
        );
        for wrong in
            [json!({}), json!({ "stdin": "?" }), json!({ "stdin": "", "pty": "" }), json!(1)]
        {
            assert_eq!(InputData::parse(&wrong).unwrap_err().code(), "invalid_argument", "{wrong}");
        }
    }

    #[test]
    fn output_is_a_message_with_base64() {
        let bytes = OutputStream::Stdout.message(b"hi\xff");
        assert_eq!(&bytes[5..], br#"{"event":{"data":{"stdout":"aGn/"}}}"#);
    }
}
