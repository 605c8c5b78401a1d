//! A session that this server owns: its row, its sandbox and its turns.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use api::{SessionEventKind, SessionState};
use node::clock;
use node::gateway::GrantGate;
use parking_lot::Mutex;
use sandbox::AttachedLayer;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::books::{ResidentKey, ResidentLedger, UseCount};
use super::environment::LaunchEnvironment;
use super::logs::LatestLines;
use super::open_turns::OpenTurns;
use super::wanted::WantedSignal;
use crate::agent::{AgentHandle, LaunchPlan, TurnId};
use crate::error::SessionError;
use crate::events::SessionLog;
use crate::interpreter::{InterpreterMetrics, SandboxContexts};
use crate::metrics::{SessionCounters, TimedOperation};
use crate::store::rows::SessionRow;
use crate::terminals::SandboxTerminals;
use crate::workspace::{AttachedDisk, UploadedPieces};

/// Maximum divisor of a tenant's share of the processor. With more sandboxes at work, each still
/// gets one of that many parts.
const CPU_PARTS_MAX: usize = 256;

/// A session that this server owns. While the directory holds it, it is authoritative.
pub(crate) struct SessionEntry {
    pub(crate) id: Arc<str>,
    pub(crate) tenant: Arc<str>,
    pub(crate) key: ResidentKey,
    pub(crate) log: Arc<SessionLog>,
    /// Serializes transitions: a task that starts or ends the sandbox holds it.
    pub(crate) transition: Arc<tokio::sync::Mutex<()>>,
    /// True while a hand-over waits for current users of the sandbox to finish: new users wait for
    /// the transition.
    pub(crate) comes_to_rest: AtomicBool,
    /// Held while its files are uploaded to the object store, and while they are removed there: an
    /// older copy must neither replace a newer one nor appear after the end. The holder of the
    /// transition may wait for this lock, never the reverse.
    pub(crate) storing: tokio::sync::Mutex<()>,
    /// Uploaded pieces that no manifest refers to yet.
    pub(crate) uploaded: UploadedPieces,
    /// Raised by requests that wait for the transition: a background upload gives way to them.
    pub(crate) wanted: WantedSignal,
    /// Raised while a request waits to resume it.
    pub(crate) resumed: WantedSignal,
    /// Guards the mutable state. Never held over an await.
    pub(crate) state: Mutex<EntryState>,
    /// Number of subscribers to the whole session.
    pub(crate) listeners: AtomicUsize,
    /// Latest lines of its agent's standard error, and messages of the server.
    pub(crate) lines: Mutex<LatestLines>,
    /// True once it was handed over to another server, where subscribers find later events.
    pub(crate) handed_over: watch::Sender<bool>,
}

/// Mutable state of a session.
pub(crate) struct EntryState {
    pub(crate) row: SessionRow,
    pub(crate) body: Option<Arc<SessionSandbox>>,
    pub(crate) turns: OpenTurns,
    /// Environment of its programs; loaded once in a life.
    pub(crate) launch: Option<Arc<LaunchEnvironment>>,
    /// True if this server does not own the session any more: callers look it up again.
    pub(crate) left: bool,
    /// Node that was notified of its files, because it would take the session over.
    pub(crate) announced_to: Option<String>,
}

/// A started agent and its launch plan.
#[derive(Clone, Debug)]
pub(crate) struct RunningAgent {
    pub(crate) handle: AgentHandle,
    pub(crate) plan: Arc<LaunchPlan>,
    /// True if the agent was ready and accepts control requests.
    pub(crate) has_control: bool,
}

/// Task that relays a sandbox's requests to the model. Dropping this ends it.
pub(crate) struct ModelRelayTask(JoinHandle<()>);

impl ModelRelayTask {
    pub(crate) fn new(serving: impl Future<Output = ()> + Send + 'static) -> ModelRelayTask {
        ModelRelayTask(node::task::spawn(serving))
    }
}

impl ModelRelayTask {
    /// Ends the task, and waits until its port is free.
    pub(crate) async fn end(mut self) {
        self.0.abort();
        // The task was cancelled, so its result carries no information.
        drop((&mut self.0).await);
    }
}

impl Drop for ModelRelayTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sandbox of a session, or a prepared one that waits for a session.
pub(crate) struct SessionSandbox {
    /// Taken when it is ended. Dropping the last clone ends it, so each clone lives only for one
    /// call.
    sandbox: Mutex<Option<sandbox::SandboxedSession>>,
    /// Taken when the sandbox is ended, so that remaining references to this struct do not keep the
    /// disk attached.
    disk: Mutex<Option<AttachedDisk>>,
    /// Layers below the disk. Held so that other sessions find them attached.
    _layers: Vec<Arc<AttachedLayer>>,
    pub(crate) uses: UseCount,
    /// Time of the last use, in milliseconds since 1970.
    pub(crate) used_ms: AtomicU64,
    /// Time of the last upload of its files, likewise; initially its creation time.
    pub(crate) stored_ms: AtomicU64,
    /// The agent. Locked while it is being started, so that messages wait for the start.
    pub(crate) agent: Arc<tokio::sync::Mutex<Option<RunningAgent>>>,
    /// Relay to the model, once an agent needs it.
    pub(crate) relay: Mutex<Option<ModelRelayTask>>,
    /// Serves the sockets of its grants, once a program was started. Ends with the sandbox.
    pub(crate) gate: tokio::sync::Mutex<Option<Box<dyn GrantGate>>>,
    /// True while its programs are frozen.
    frozen: watch::Sender<bool>,
    /// Divisor applied to a whole share of the processor.
    cpu_parts: AtomicU32,
    /// Contexts of its code interpreter.
    pub(crate) contexts: Arc<SandboxContexts>,
    /// Terminals that outlive their clients.
    pub(crate) terminals: Arc<SandboxTerminals>,
}

impl fmt::Debug for SessionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for SessionSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("uses", &self.uses).finish_non_exhaustive()
    }
}

impl SessionEntry {
    pub(crate) fn new(row: SessionRow, log: Arc<SessionLog>) -> SessionEntry {
        let id: Arc<str> = row.id.as_str().into();
        SessionEntry {
            key: ResidentKey::Session(Arc::clone(&id)),
            id,
            tenant: row.tenant.as_str().into(),
            log,
            transition: Arc::default(),
            comes_to_rest: AtomicBool::new(false),
            storing: tokio::sync::Mutex::default(),
            uploaded: UploadedPieces::default(),
            wanted: WantedSignal::default(),
            resumed: WantedSignal::default(),
            state: Mutex::new(EntryState {
                row,
                body: None,
                turns: OpenTurns::default(),
                launch: None,
                left: false,
                announced_to: None,
            }),
            listeners: AtomicUsize::new(0),
            lines: Mutex::default(),
            handed_over: watch::Sender::new(false),
        }
    }

    /// Returns the sandbox, if there is one.
    pub(crate) fn body(&self) -> Option<Arc<SessionSandbox>> {
        self.state.lock().body.clone()
    }

    /// Removes a sandbox that was just ended, unless another one has replaced it.
    pub(crate) fn take_body(&self, ended: &Arc<SessionSandbox>) {
        self.state.lock().body.take_if(|body| Arc::ptr_eq(body, ended));
    }

    /// Returns whether this server has ceased to own the session.
    pub(crate) fn is_left(&self) -> bool {
        self.state.lock().left
    }

    /// Records metrics of an agent's turn: its first event and the number of tool calls.
    pub(super) fn note(
        &self,
        turn: &TurnId,
        kind: SessionEventKind,
        data: &Value,
        metrics: &SessionCounters,
    ) {
        let current = self.state.lock().turns.current.clone();
        let Some(current) = current.filter(|current| current.id == *turn) else { return };
        if !current.has_begun.swap(true, Ordering::Relaxed) {
            metrics.took(TimedOperation::FirstEvent, clock::now().duration_since(current.arrived));
        }
        if kind == SessionEventKind::ToolUse {
            current.tool_calls.fetch_add(1, Ordering::Relaxed);
        }
        current.trace.saw(kind, data);
    }

    /// Returns why the session may store no more, if its events and messages have reached their
    /// limit.
    pub(crate) fn history_is_full(&self, bytes_max: u64) -> Option<String> {
        let bytes = self.log.history_bytes();
        (bytes >= bytes_max).then(|| {
            format!(
                "the events and messages of session `{}` take {bytes} bytes, and at most \
                 {bytes_max} are kept (sessions.history_bytes_max); go on in a fork of it, which \
                 begins with none",
                self.id
            )
        })
    }

    /// Returns the session's state.
    pub(crate) fn session_state(&self) -> SessionState {
        self.state.lock().row.state
    }
}

impl EntryState {
    /// Rejects operations that require an active session.
    pub(crate) fn active(&self) -> Result<(), SessionError> {
        match self.row.state {
            SessionState::Active => Ok(()),
            SessionState::Ended => Err(SessionError::Ended),
            state @ (SessionState::Starting
            | SessionState::Paused
            | SessionState::Stopped
            | SessionState::Error) => {
                let state = state.as_str();
                Err(SessionError::Conflict(format!("the session is {state}; resume it first")))
            }
        }
    }
}

impl SessionSandbox {
    pub(crate) fn new(
        sandbox: sandbox::SandboxedSession,
        disk: AttachedDisk,
        layers: Vec<Arc<AttachedLayer>>,
        metrics: Arc<InterpreterMetrics>,
    ) -> SessionSandbox {
        SessionSandbox {
            sandbox: Mutex::new(Some(sandbox)),
            disk: Mutex::new(Some(disk)),
            _layers: layers,
            uses: UseCount::default(),
            used_ms: AtomicU64::new(clock::wall_ms()),
            stored_ms: AtomicU64::new(clock::wall_ms()),
            agent: Arc::default(),
            relay: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
            frozen: watch::Sender::new(false),
            cpu_parts: AtomicU32::new(1),
            contexts: Arc::new(SandboxContexts::new(metrics)),
            terminals: Arc::default(),
        }
    }

    /// Returns the sandbox, for one call.
    ///
    /// # Errors
    /// If it has been ended.
    pub(crate) fn sandbox(&self) -> Result<sandbox::SandboxedSession, SessionError> {
        let sandbox = self.sandbox.lock().clone();
        sandbox.ok_or_else(|| SessionError::SandboxEnded("it was stopped".to_owned()))
    }

    /// Takes the sandbox, to end it.
    pub(crate) fn take_sandbox(&self) -> Option<sandbox::SandboxedSession> {
        self.sandbox.lock().take()
    }

    /// Resolves with the reason when the sandbox has ended.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let sandbox = self.sandbox.lock();
        let ended = sandbox.as_ref().map(sandbox::SandboxedSession::ended);
        drop(sandbox);
        async move {
            match ended {
                Some(ended) => ended.await,
                None => "it was stopped".to_owned(),
            }
        }
    }

    /// Gives the sandbox its part of its tenant's share of the processor, of which `at_work`
    /// sandboxes are at work. Changes in powers of two, so that updates are rare: none for a tenant
    /// with few sandboxes, few for one with many.
    pub(super) fn share_cpu(&self, at_work: usize) {
        let parts = at_work.next_power_of_two().min(CPU_PARTS_MAX);
        let parts = u32::try_from(parts).unwrap_or(1);
        if self.cpu_parts.swap(parts, Ordering::Relaxed) == parts {
            return;
        }
        let Ok(sandbox) = self.sandbox() else { return };
        node::task::spawn(async move {
            if let Err(error) = sandbox.divide_cpu_share(parts).await {
                tracing::debug!(%error, "a sandbox keeps its share of the processor");
            }
        });
    }

    /// Freezes all programs.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(crate) async fn freeze(&self) -> Result<(), SessionError> {
        // Set before freezing: if the call is cancelled midway, some programs may be frozen.
        self.frozen.send_replace(true);
        Ok(self.sandbox()?.freeze().await?)
    }

    /// Returns a receiver of whether its programs are frozen.
    pub(crate) fn frozen(&self) -> watch::Receiver<bool> {
        self.frozen.subscribe()
    }

    /// Resumes frozen programs.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(crate) async fn thaw(&self) -> Result<(), SessionError> {
        if self.frozen.send_replace(false) {
            self.sandbox()?.thaw().await?;
        }
        Ok(())
    }

    /// Returns its disk; none if the sandbox has been ended.
    pub(crate) fn disk(&self) -> Option<AttachedDisk> {
        self.disk.lock().clone()
    }

    /// Takes the disk.
    pub(crate) fn take_disk(&self) -> Option<AttachedDisk> {
        self.disk.lock().take()
    }
}

/// Use of a session's sandbox: while this exists, the sandbox is neither swept nor evicted.
pub(crate) struct SandboxUse {
    books: Arc<ResidentLedger>,
    pub(crate) entry: Arc<SessionEntry>,
    pub(crate) body: Arc<SessionSandbox>,
}

impl fmt::Debug for SandboxUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Use").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl SandboxUse {
    /// Begins to use the session's sandbox; none if it has none.
    pub(crate) fn begin(
        books: &Arc<ResidentLedger>,
        entry: &Arc<SessionEntry>,
        now: Instant,
    ) -> Option<SandboxUse> {
        SandboxUse::of(books, entry, entry.body()?, now)
    }

    /// Begins to use this sandbox of a session; none if it is ending.
    pub(crate) fn of(
        books: &Arc<ResidentLedger>,
        entry: &Arc<SessionEntry>,
        body: Arc<SessionSandbox>,
        now: Instant,
    ) -> Option<SandboxUse> {
        let at_work = books.begin(&entry.key, &entry.tenant, &body.uses, now)?;
        body.share_cpu(at_work);
        Some(SandboxUse { books: Arc::clone(books), entry: Arc::clone(entry), body })
    }
}

impl SandboxUse {
    /// Returns the default directory of commands, if the session's template sets one.
    pub(crate) fn workdir(&self) -> Option<Vec<u8>> {
        let state = self.entry.state.lock();
        let template = state.row.template.as_ref();
        template.and_then(|template| template.workdir.clone()).map(String::into_bytes)
    }
}

impl Clone for SandboxUse {
    fn clone(&self) -> SandboxUse {
        // The original guard keeps the sandbox at work; if the sandbox has ended meanwhile, the
        // ledger ignores the end of both uses.
        let _at_work =
            self.books.begin(&self.entry.key, &self.entry.tenant, &self.body.uses, clock::now());
        SandboxUse {
            books: Arc::clone(&self.books),
            entry: Arc::clone(&self.entry),
            body: Arc::clone(&self.body),
        }
    }
}

impl Drop for SandboxUse {
    fn drop(&mut self) {
        self.body.used_ms.store(clock::wall_ms(), Ordering::Relaxed);
        self.books.end(&self.entry.key, &self.entry.tenant, &self.body.uses, clock::now());
    }
}
