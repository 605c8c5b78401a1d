//! Session that this server owns: its row, its sandbox, its turns.

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

/// Most parts into which a tenant's share of the processor is divided. With more sandboxes at work
/// than that, each still gets one of them.
const CPU_PARTS_MAX: usize = 256;

/// A session that this server owns. While it is in the map of them, it is the truth.
pub(crate) struct SessionEntry {
    pub(crate) id: Arc<str>,
    pub(crate) tenant: Arc<str>,
    pub(crate) key: ResidentKey,
    pub(crate) log: Arc<SessionLog>,
    /// Lock of transitions, one at a time: whoever makes or ends the sandbox holds this.
    pub(crate) transition: Arc<tokio::sync::Mutex<()>>,
    /// True while a hand-over waits for those who work with the sandbox: who wants to begin waits
    /// for the transition.
    pub(crate) comes_to_rest: AtomicBool,
    /// Held while its files are on their way to the object store, and while they are removed there:
    /// an older copy must neither take the place of a newer one nor come after the end. Who holds
    /// the transition may wait for it, and never the other way round.
    pub(crate) storing: tokio::sync::Mutex<()>,
    /// Pieces in the object store that no manifest has yet.
    pub(crate) uploaded: UploadedPieces,
    /// Raised by those who wait for the transition: an upload behind requests gives way to them.
    pub(crate) wanted: WantedSignal,
    /// Raised while somebody waits to resume it.
    pub(crate) resumed: WantedSignal,
    /// Guards what changes. Never held over an await.
    pub(crate) state: Mutex<EntryState>,
    /// Number of listeners of the session as a whole.
    pub(crate) listeners: AtomicUsize,
    /// The latest lines of its agent's standard error, and what the server has to say.
    pub(crate) lines: Mutex<LatestLines>,
    /// True when it was handed over to another server: what happens next is told there.
    pub(crate) handed_over: watch::Sender<bool>,
}

/// Mutable state of a session.
pub(crate) struct EntryState {
    pub(crate) row: SessionRow,
    pub(crate) body: Option<Arc<SessionSandbox>>,
    pub(crate) turns: OpenTurns,
    /// Environment that its programs are started with; read once in a life.
    pub(crate) launch: Option<Arc<LaunchEnvironment>>,
    /// True if the session is no longer this server's: whoever finds that looks for it again.
    pub(crate) left: bool,
    /// Node that was told where its files are, because it would go on with it.
    pub(crate) announced_to: Option<String>,
}

/// An agent that was started, and how.
#[derive(Clone, Debug)]
pub(crate) struct RunningAgent {
    pub(crate) handle: AgentHandle,
    pub(crate) plan: Arc<LaunchPlan>,
    /// True if the agent was ready, and takes requests.
    pub(crate) has_control: bool,
}

/// The task that serves a sandbox's way to the model. Dropping this ends it.
pub(crate) struct ModelRelayTask(JoinHandle<()>);

impl ModelRelayTask {
    pub(crate) fn new(serving: impl Future<Output = ()> + Send + 'static) -> ModelRelayTask {
        ModelRelayTask(node::task::spawn(serving))
    }
}

impl ModelRelayTask {
    /// Ends it, and waits until its port is free.
    pub(crate) async fn end(mut self) {
        self.0.abort();
        // It was cancelled, which is no news.
        drop((&mut self.0).await);
    }
}

impl Drop for ModelRelayTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A sandbox of a session, or one that waits to become that.
pub(crate) struct SessionSandbox {
    /// Taken out when it is ended. Its last clone that is dropped ends it, so that nobody keeps one
    /// for longer than a call takes.
    sandbox: Mutex<Option<sandbox::SandboxedSession>>,
    /// Taken out when the sandbox is ended, so that whoever still has the body does not keep the
    /// disk attached.
    disk: Mutex<Option<AttachedDisk>>,
    /// Layers that the disk stands on. Kept so that others who stand on them find them attached.
    _layers: Vec<Arc<AttachedLayer>>,
    pub(crate) uses: UseCount,
    /// When somebody last worked with it, in milliseconds since 1970.
    pub(crate) used_ms: AtomicU64,
    /// When its files were last on their way to the object store, likewise; or when it was made.
    pub(crate) stored_ms: AtomicU64,
    /// The agent. Locked while it is being started, so that a message waits for that.
    pub(crate) agent: Arc<tokio::sync::Mutex<Option<RunningAgent>>>,
    /// The way to the model, once an agent needs it.
    pub(crate) relay: Mutex<Option<ModelRelayTask>>,
    /// Serves the sockets of its grants, once a program was started. Goes with the sandbox.
    pub(crate) gate: tokio::sync::Mutex<Option<Box<dyn GrantGate>>>,
    /// True if its programs stand still.
    frozen: watch::Sender<bool>,
    /// Divisor of a whole share of the processor that gives the sandbox's.
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

    /// The sandbox, when there is one.
    pub(crate) fn body(&self) -> Option<Arc<SessionSandbox>> {
        self.state.lock().body.clone()
    }

    /// Takes the sandbox away that was just ended, unless it is another one's turn by now.
    pub(crate) fn take_body(&self, ended: &Arc<SessionSandbox>) {
        self.state.lock().body.take_if(|body| Arc::ptr_eq(body, ended));
    }

    /// Returns whether the session is no longer this server's.
    pub(crate) fn is_left(&self) -> bool {
        self.state.lock().left
    }

    /// Notes what an agent says in a turn: when it begins, and how often it uses tools.
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

    /// Why the session may say no more, if its events and messages take as much as they may.
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

    /// Returns where the session is.
    pub(crate) fn session_state(&self) -> SessionState {
        self.state.lock().row.state
    }
}

impl EntryState {
    /// Refuses what only an active session does.
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

    /// The sandbox, for one call.
    ///
    /// # Errors
    /// If it has been ended.
    pub(crate) fn sandbox(&self) -> Result<sandbox::SandboxedSession, SessionError> {
        let sandbox = self.sandbox.lock().clone();
        sandbox.ok_or_else(|| SessionError::SandboxEnded("it was stopped".to_owned()))
    }

    /// Takes the sandbox away, to end it.
    pub(crate) fn take_sandbox(&self) -> Option<sandbox::SandboxedSession> {
        self.sandbox.lock().take()
    }

    /// Resolves with the reason when the sandbox is gone.
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

    /// Divides the processor by tenant: gives the sandbox its part of what its tenant's sandboxes
    /// get together, of which `at_work` are at work. In steps of two, so that a tenant that works
    /// with few sandboxes sends nothing, and one with many sends little.
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

    /// Stops every program where it is.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub(crate) async fn freeze(&self) -> Result<(), SessionError> {
        // First: where it is given up in the middle, some programs may stand still.
        self.frozen.send_replace(true);
        Ok(self.sandbox()?.freeze().await?)
    }

    /// Returns whether its programs stand still, now and later.
    pub(crate) fn frozen(&self) -> watch::Receiver<bool> {
        self.frozen.subscribe()
    }

    /// Lets programs go on that were stopped.
    ///
    /// # Errors
    /// If the sandbox is gone.
    pub(crate) async fn thaw(&self) -> Result<(), SessionError> {
        if self.frozen.send_replace(false) {
            self.sandbox()?.thaw().await?;
        }
        Ok(())
    }

    /// Returns its disk; none when the sandbox has been ended.
    pub(crate) fn disk(&self) -> Option<AttachedDisk> {
        self.disk.lock().clone()
    }

    /// Takes the disk away.
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
    /// Begins to work with the sandbox that is there; none when there is none.
    pub(crate) fn begin(
        books: &Arc<ResidentLedger>,
        entry: &Arc<SessionEntry>,
        now: Instant,
    ) -> Option<SandboxUse> {
        SandboxUse::of(books, entry, entry.body()?, now)
    }

    /// Begins to work with this sandbox of a session; none when it is on its way out.
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
    /// Directory in which commands run that name none, where the session's template says so.
    pub(crate) fn workdir(&self) -> Option<Vec<u8>> {
        let state = self.entry.state.lock();
        let template = state.row.template.as_ref();
        template.and_then(|template| template.workdir.clone()).map(String::into_bytes)
    }
}

impl Clone for SandboxUse {
    fn clone(&self) -> SandboxUse {
        // Whoever has one knows that the sandbox is at work; when it has gone meanwhile, the books
        // ignore the end of both.
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
