//! The parked interpreter of a sandbox: one Python process that has imported its libraries, and
//! forks contexts that share them.
//!
//! It runs as a program of the session, so a cell may kill it. Its contexts end with it, and the
//! next request for a context starts another one.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sandbox::{ProcessHandle, ProcessStreams, ProgramChannel, SandboxedSession, SessionProgram};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tokio::time;

use super::languages::{ContextStart, adoption, parked_argv, parked_source, parked_start};
use super::metrics::{GaugeShare, InterpreterMetrics};
use crate::error::SessionError;

/// Maximum bytes of one message of the parked interpreter.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Longest time for its imports.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest time for it to read a message; it is idle between messages.
const SEND_MAX: Duration = Duration::from_secs(10);
/// Number of starts, each excluding the module whose import started a thread, before contexts start
/// as their own programs.
const ATTEMPTS_MAX: usize = 3;
/// The signal that no process can ignore.
const SIGKILL: i32 = 9;
/// Bytes per read of discarded output.
const DISCARD_BYTES: usize = 4 << 10;

/// Message of the parked interpreter.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ParkedEvent {
    /// Waits for requests.
    Ready,
    /// Must not fork, because importing a module has started a thread.
    Threads { module: String },
    /// Could not fork a context.
    Failed { id: u64, message: String },
    /// A context has ended.
    Ended { id: u64, code: Option<i32>, signal: Option<i32> },
}

/// End of a context's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContextExit {
    /// By itself, with a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Never started, with the reason.
    NotStarted(String),
    /// Unknown, because the process that reports it has ended as well.
    Unknown,
}

/// The server's side of the parked interpreter.
#[derive(Debug)]
pub(super) struct ParkedInterpreter {
    channel: ProgramChannel,
    handle: ProcessHandle,
    next_id: AtomicU64,
    /// Running contexts by number. None once the interpreter has ended.
    contexts: Mutex<Option<HashMap<u64, watch::Sender<Option<ContextExit>>>>>,
}

/// A forked context.
#[derive(Clone, Debug)]
pub(super) struct ForkedContext {
    parked: Arc<ParkedInterpreter>,
    id: u64,
    exit: watch::Receiver<Option<ContextExit>>,
}

impl ParkedInterpreter {
    /// Starts a parked interpreter with this environment. Returns `None` if this sandbox cannot
    /// have one: without Python, without memory for it, or with libraries that start threads.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(super) async fn start(
        sandbox: &SandboxedSession,
        env: &[Vec<u8>],
        metrics: &InterpreterMetrics,
    ) -> Result<Option<Arc<ParkedInterpreter>>, SessionError> {
        let mut without = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            match attempt(sandbox, env, &without).await? {
                ParkingOutcome::Ready(parked) => {
                    node::task::spawn(Arc::clone(&parked).listen(metrics.parked()));
                    return Ok(Some(parked));
                }
                ParkingOutcome::Threads(module) => {
                    tracing::info!(module, "a module starts threads and is not imported ahead");
                    without.push(module);
                }
                ParkingOutcome::Ended => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns whether it can still fork contexts.
    pub(super) fn is_alive(&self) -> bool {
        self.contexts.lock().is_some()
    }

    /// Forks a context with these three descriptors: its socket and its two streams.
    ///
    /// # Errors
    /// If it has ended, or does not read.
    pub(super) async fn fork(
        self: &Arc<Self>,
        start: &ContextStart,
        fds: [OwnedFd; 3],
    ) -> Result<ForkedContext, SessionError> {
        let context = self.expect_context()?;
        let borrowed = fds.each_ref().map(|fd| fd.as_fd());
        self.tell(&start.fork(context.id), &borrowed).await?;
        Ok(context)
    }

    /// Reserves a number for a context.
    fn expect_context(self: &Arc<Self>) -> Result<ForkedContext, SessionError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (ended, exit) = watch::channel(None);
        match &mut *self.contexts.lock() {
            Some(contexts) => drop(contexts.insert(id, ended)),
            None => return Err(over()),
        }
        Ok(ForkedContext { parked: Arc::clone(self), id, exit })
    }

    async fn tell(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SessionError> {
        match time::timeout(SEND_MAX, self.channel.send(message, fds)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                self.kill().await;
                Err(over())
            }
        }
    }

    /// Kills the interpreter, and thereby its contexts.
    pub(super) async fn kill(&self) {
        // An interpreter that has ended needs no signal.
        drop(self.handle.signal(SIGKILL).await);
    }

    /// Handles its messages until it ends; counted in a gauge meanwhile.
    async fn listen(self: Arc<Self>, _counted: GaugeShare) {
        while let Ok(Some(message)) = self.channel.receive(MESSAGE_BYTES_MAX).await {
            // Messages affect only this session, so invalid ones are ignored.
            let (id, exit) = match serde_json::from_slice(&message) {
                Ok(ParkedEvent::Ended { id, code: Some(code), .. }) => {
                    (id, ContextExit::Code(code))
                }
                Ok(ParkedEvent::Ended { id, signal: Some(signal), .. }) => {
                    (id, ContextExit::Signal(signal))
                }
                Ok(ParkedEvent::Ended { id, .. }) => (id, ContextExit::Unknown),
                Ok(ParkedEvent::Failed { id, message }) => (id, ContextExit::NotStarted(message)),
                Ok(ParkedEvent::Ready | ParkedEvent::Threads { .. }) | Err(_) => continue,
            };
            if let Some(contexts) = &mut *self.contexts.lock()
                && let Some(ended) = contexts.remove(&id)
            {
                ended.send_replace(Some(exit));
            }
        }
        // Wakes all callers that wait for the end of a context.
        drop(self.contexts.lock().take());
        self.kill().await;
    }
}

fn over() -> SessionError {
    SessionError::Conflict("the interpreter of the session has ended; try again".to_owned())
}

impl ForkedContext {
    /// Reserves a number for a copy of this context. The copy receives no signals before it is
    /// adopted.
    ///
    /// # Errors
    /// If the parked interpreter has ended.
    pub(super) fn expect_copy(&self) -> Result<ForkedContext, SessionError> {
        self.parked.expect_context()
    }

    /// Registers the process with this id, now a child of the parked interpreter, as the target of
    /// signals, and reports its end.
    ///
    /// # Errors
    /// If the parked interpreter has ended.
    pub(super) async fn adopt(&self, pid: u32) -> Result<(), SessionError> {
        self.parked.tell(&adoption(self.id, pid), &[]).await
    }

    /// Releases the number of a copy that was not created.
    pub(super) fn forget(&self) {
        if let Some(contexts) = &mut *self.parked.contexts.lock() {
            contexts.remove(&self.id);
        }
    }

    /// Sends a signal to the context and its descendants.
    pub(super) async fn signal(&self, signal: i32) {
        let request = serde_json::json!({ "op": "signal", "id": self.id, "signal": signal });
        // If the parked interpreter has ended, so has the context.
        drop(self.parked.tell(request.to_string().as_bytes(), &[]).await);
    }

    /// Kills the parked interpreter as a last resort; the context dies with it.
    pub(super) async fn kill_parent(&self) {
        self.parked.kill().await;
    }

    /// Waits for the context's end.
    pub(super) async fn exit(&self) -> ContextExit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or(ContextExit::Unknown),
            Err(_) => ContextExit::Unknown,
        }
    }
}

/// Result of one attempt to park an interpreter.
enum ParkingOutcome {
    Ready(Arc<ParkedInterpreter>),
    /// Importing this module has started a thread.
    Threads(String),
    Ended,
}

async fn attempt(
    sandbox: &SandboxedSession,
    env: &[Vec<u8>],
    without: &[String],
) -> Result<ParkingOutcome, SessionError> {
    let (channel, theirs) = ProgramChannel::pair().map_err(SessionError::internal)?;
    let program =
        SessionProgram { argv: parked_argv(), env: env.to_vec(), ..SessionProgram::default() };
    let process = sandbox.start_with_input(program, theirs).await?;
    if let ProcessStreams::Pipes(pipes) = process.streams {
        // Output of imports is discarded; an unread pipe would block the libraries.
        node::task::spawn(discard(pipes.stdout));
        if let Some(stderr) = pipes.stderr {
            node::task::spawn(discard(stderr));
        }
    }
    let handle = process.handle;
    let starting = async {
        channel.send(&parked_source(), &[]).await.ok()?;
        channel.send(&parked_start(without), &[]).await.ok()?;
        let message = channel.receive(MESSAGE_BYTES_MAX).await.ok()??;
        serde_json::from_slice::<ParkedEvent>(&message).ok()
    };
    match time::timeout(START_MAX, starting).await {
        Ok(Some(ParkedEvent::Ready)) => {}
        Ok(Some(ParkedEvent::Threads { module })) => return Ok(ParkingOutcome::Threads(module)),
        _ => {
            drop(handle.signal(SIGKILL).await);
            return Ok(ParkingOutcome::Ended);
        }
    }
    let parked = Arc::new(ParkedInterpreter {
        channel,
        handle,
        next_id: AtomicU64::new(1),
        contexts: Mutex::new(Some(HashMap::new())),
    });
    Ok(ParkingOutcome::Ready(parked))
}

/// Reads a stream to its end and discards it.
async fn discard(mut stream: impl AsyncRead + Unpin) {
    let mut buf = vec![0; DISCARD_BYTES];
    while matches!(stream.read(&mut buf).await, Ok(1..)) {}
}
