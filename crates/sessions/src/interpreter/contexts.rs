//! Contexts of one sandbox; they end with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{CellEnd, CellEvent, CodeContextState, CodeContextView, ExecuteCell, Verdict};
use node::clock;
use parking_lot::Mutex;
use sandbox::SandboxedSession;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::cell::{CellMessage, CellRun, CellStream, ContextFate, failure};
use super::interrupts::{InterruptGate, InterruptRequest};
use super::languages::{CellLanguage, ContextStart};
use super::metrics::{ContextOrigin, GaugeShare, InterpreterMetrics};
use super::parked::ParkedInterpreter;
use super::process::{ContextControl, ContextProcess, CopyFailure};
use crate::error::SessionError;
use crate::service::SandboxGuard;
use crate::traces::CommandTrace;

/// Maximum number of contexts of one sandbox.
const CONTEXTS_MAX: usize = 128;
/// Maximum number of cells of one context that run or wait.
const CELLS_MAX: usize = 64;
/// Events queued for a slow caller before the cell is blocked.
const EVENTS_MAX: usize = 2;
/// Attempts to fork a context if the parked interpreter ends meanwhile.
const FORKS_MAX: usize = 2;

/// The contexts of one sandbox.
#[derive(Debug)]
pub(crate) struct SandboxContexts {
    metrics: Arc<InterpreterMetrics>,
    /// Oldest first.
    all: Mutex<Vec<Arc<CodeContext>>>,
    /// Locked during the interpreter's start, so that contexts wait for it.
    parked: tokio::sync::Mutex<ParkedSlot>,
    /// Out-of-memory kills that have been reported already.
    oom_kills: AtomicU64,
}

/// Known state of the parked interpreter.
#[derive(Debug, Default)]
enum ParkedSlot {
    #[default]
    NotStarted,
    Parked(Arc<ParkedInterpreter>),
    /// Started before the session was known, with this environment, and not used yet.
    Ahead(Arc<ParkedInterpreter>, Vec<Vec<u8>>),
    /// This sandbox cannot have one: contexts start as their own programs.
    Impossible,
}

/// Request for a context.
#[derive(Clone, Debug)]
pub(crate) struct NewContext {
    pub(crate) id: String,
    pub(crate) language: CellLanguage,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) is_default: bool,
}

/// A context. Its process may end and be replaced.
#[derive(Debug)]
pub(crate) struct CodeContext {
    new: NewContext,
    /// Process of the context, used by one cell at a time.
    process: tokio::sync::Mutex<Option<StartedContext>>,
    /// Controls the process while a cell has it.
    control: Mutex<Option<ContextControl>>,
    cells: Arc<Semaphore>,
    interrupts: InterruptGate,
    is_removed: AtomicBool,
    executions: AtomicU64,
    /// Id of the context that it was copied from.
    forked_from: Option<String>,
}

/// A process, and the parameters of its start.
#[derive(Debug)]
struct StartedContext {
    process: ContextProcess,
    start: ContextStart,
    _counted: GaugeShare,
}

impl SandboxContexts {
    /// Creates an empty set of contexts.
    pub(crate) fn new(metrics: Arc<InterpreterMetrics>) -> SandboxContexts {
        SandboxContexts {
            metrics,
            all: Mutex::default(),
            parked: tokio::sync::Mutex::default(),
            oom_kills: AtomicU64::new(0),
        }
    }

    /// Returns all contexts, oldest first.
    pub(crate) fn list(&self) -> Vec<CodeContextView> {
        self.all.lock().iter().map(|context| context.view()).collect()
    }

    /// Adds a context without a process.
    ///
    /// # Errors
    /// If there are too many contexts.
    pub(crate) fn add(&self, new: NewContext) -> Result<Arc<CodeContext>, SessionError> {
        let mut all = self.all.lock();
        let is_same = |it: &&Arc<CodeContext>| it.new.is_default && it.new.language == new.language;
        if new.is_default
            && let Some(known) = all.iter().find(is_same)
        {
            return Ok(Arc::clone(known));
        }
        check_room(&all)?;
        let context = Arc::new(CodeContext::new(new, None));
        all.push(Arc::clone(&context));
        Ok(context)
    }

    /// Adds a copy of a context that has its process already.
    async fn add_copy(&self, copy: &Arc<CodeContext>) -> Result<(), SessionError> {
        let added = {
            let mut all = self.all.lock();
            check_room(&all).map(|()| all.push(Arc::clone(copy)))
        };
        if added.is_err() {
            copy.kill().await;
        }
        added
    }

    /// Returns a context by its id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<CodeContext>> {
        self.all.lock().iter().find(|context| context.new.id == id).cloned()
    }

    /// Removes a context and ends its process.
    pub(crate) async fn remove(&self, context: &Arc<CodeContext>) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, context));
        context.is_removed.store(true, Ordering::Relaxed);
        context.kill().await;
    }

    /// Parks an interpreter, so that the first context need not wait for it.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(crate) async fn park(&self, guard: &SandboxGuard) -> Result<(), SessionError> {
        self.parked(guard).await.map(drop)
    }

    /// Parks an interpreter before the sandbox has a session. A session with another environment
    /// does not use it, because modules may load differently there.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(crate) async fn park_ahead(
        &self,
        sandbox: &SandboxedSession,
        env: Vec<Vec<u8>>,
    ) -> Result<(), SessionError> {
        let mut slot = self.parked.lock().await;
        if matches!(*slot, ParkedSlot::NotStarted) {
            let parked = ParkedInterpreter::start(sandbox, &env, &self.metrics).await?;
            *slot = match parked {
                Some(parked) => ParkedSlot::Ahead(parked, env),
                // The session's environment may still allow one.
                None => ParkedSlot::NotStarted,
            };
        }
        Ok(())
    }

    async fn parked(
        &self,
        guard: &SandboxGuard,
    ) -> Result<Option<Arc<ParkedInterpreter>>, SessionError> {
        let mut slot = self.parked.lock().await;
        match &*slot {
            ParkedSlot::Impossible => return Ok(None),
            ParkedSlot::Parked(parked) if parked.is_alive() => return Ok(Some(Arc::clone(parked))),
            ParkedSlot::Parked(_) | ParkedSlot::Ahead(..) | ParkedSlot::NotStarted => {}
        }
        let env = guard.environment(&BTreeMap::new()).await?;
        if let ParkedSlot::Ahead(parked, its_env) = &*slot {
            if parked.is_alive() && *its_env == env {
                let parked = Arc::clone(parked);
                *slot = ParkedSlot::Parked(Arc::clone(&parked));
                return Ok(Some(parked));
            }
            parked.kill().await;
        }
        let parked = ParkedInterpreter::start(&guard.sandbox()?, &env, &self.metrics).await?;
        *slot = match &parked {
            Some(parked) => ParkedSlot::Parked(Arc::clone(parked)),
            None => ParkedSlot::Impossible,
        };
        Ok(parked)
    }

    async fn start(
        &self,
        guard: &SandboxGuard,
        start: &ContextStart,
    ) -> Result<(ContextProcess, ContextOrigin), SessionError> {
        if start.language == CellLanguage::Python {
            for _ in 0..FORKS_MAX {
                let Some(parked) = self.parked(guard).await? else { break };
                match ContextProcess::fork(&parked, guard.frame_memory(), start).await {
                    Err(_) if !parked.is_alive() => {}
                    other => return other.map(|process| (process, ContextOrigin::Parked)),
                }
            }
        }
        let process = ContextProcess::start(&guard.sandbox()?, guard.frame_memory(), start).await?;
        Ok((process, ContextOrigin::Fresh))
    }
}

/// Rejects another context when the limit is reached.
fn check_room(all: &[Arc<CodeContext>]) -> Result<(), SessionError> {
    if all.len() < CONTEXTS_MAX {
        return Ok(());
    }
    Err(SessionError::TooMany(format!(
        "the session has {CONTEXTS_MAX} contexts, which is the most; delete one first"
    )))
}

impl CodeContext {
    fn new(new: NewContext, forked_from: Option<String>) -> CodeContext {
        CodeContext {
            new,
            process: tokio::sync::Mutex::default(),
            control: Mutex::default(),
            cells: Arc::new(Semaphore::new(CELLS_MAX)),
            interrupts: InterruptGate::default(),
            is_removed: AtomicBool::new(false),
            executions: AtomicU64::new(0),
            forked_from,
        }
    }

    /// Returns the context's public description.
    pub(crate) fn view(&self) -> CodeContextView {
        let state = match (self.interrupts.is_running(), &*self.control.lock()) {
            (true, _) => CodeContextState::Running,
            (false, Some(_)) => CodeContextState::Idle,
            (false, None) => CodeContextState::Cold,
        };
        CodeContextView {
            id: self.new.id.clone(),
            language: self.new.language.as_str().to_owned(),
            cwd: self.new.cwd.clone(),
            state,
            executions: self.executions.load(Ordering::Relaxed),
            default: self.new.is_default,
            forked_from: self.forked_from.clone(),
        }
    }

    /// Starts its process if it has none.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) async fn start(&self, guard: &SandboxGuard) -> Result<(), SessionError> {
        let mut process = self.process.lock().await;
        self.started(guard, &mut process).await.map(drop)
    }

    async fn started<'a>(
        &self,
        guard: &SandboxGuard,
        slot: &'a mut Option<StartedContext>,
    ) -> Result<&'a mut StartedContext, SessionError> {
        if slot.is_none() {
            let mut env = guard.variables().await?;
            env.extend(self.new.env.clone());
            let start =
                ContextStart { language: self.new.language, cwd: self.new.cwd.clone(), env };
            let (process, origin) = guard.contexts().start(guard, &start).await?;
            *self.control.lock() = Some(process.control.clone());
            self.executions.store(0, Ordering::Relaxed);
            let metrics = &guard.contexts().metrics;
            let counted = metrics.context_started(self.new.language, origin);
            *slot = Some(StartedContext { process, start, _counted: counted });
        }
        slot.as_mut().ok_or_else(|| SessionError::internal("it was just started"))
    }

    /// Runs a cell after the earlier ones have ended.
    ///
    /// # Errors
    /// If too many cells wait, or the code is invalid.
    pub(crate) fn execute(
        self: &Arc<Self>,
        guard: SandboxGuard,
        cell: ExecuteCell,
        timeout: Duration,
    ) -> Result<CellStream, SessionError> {
        if let Some(why) = self.new.language.refusal(&cell.code) {
            return Err(SessionError::invalid("code", why));
        }
        let place = self.place()?;
        let (told, events) = mpsc::channel(EVENTS_MAX);
        let context = Arc::clone(self);
        // The span includes the wait for earlier cells.
        let trace = CommandTrace::begin(node::traces::span("cell"), guard.session());
        node::task::spawn(async move {
            context.run(&guard, &cell, timeout, &told).await;
            drop((trace, place, guard));
        });
        Ok(CellStream { events })
    }

    /// Takes a place among the running and waiting cells of this context.
    fn place(&self) -> Result<OwnedSemaphorePermit, SessionError> {
        Arc::clone(&self.cells).try_acquire_owned().map_err(|_| {
            SessionError::TooMany(format!(
                "{CELLS_MAX} cells run or wait in this context, which is the most; wait for one"
            ))
        })
    }

    /// Forks the context after earlier cells have ended, into a context `id` with all of its
    /// definitions.
    ///
    /// # Errors
    /// If its language, running threads or the sandbox forbid that; if nothing is defined in it; if
    /// there are too many contexts.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        guard: SandboxGuard,
        id: String,
        force: bool,
    ) -> Result<Arc<CodeContext>, SessionError> {
        if let Some(why) = self.new.language.fork_refusal() {
            let language = self.new.language.as_str();
            let message = format!("contexts of {language} cannot be forked: {why}");
            return Err(SessionError::Conflict(message));
        }
        check_room(&guard.contexts().all.lock())?;
        let place = self.place()?;
        let (context, (told, answer)) = (Arc::clone(self), oneshot::channel());
        // Continues if the caller leaves, because the context's answer has to be read.
        node::task::spawn(async move {
            let made = context.copy(&guard, id, force).await;
            if let Err(Ok(unwanted)) = told.send(made) {
                guard.contexts().remove(&unwanted).await;
            }
            drop(place);
        });
        answer.await.unwrap_or_else(|_| Err(SessionError::internal("its task has ended")))
    }

    async fn copy(
        &self,
        guard: &SandboxGuard,
        id: String,
        force: bool,
    ) -> Result<Arc<CodeContext>, SessionError> {
        let mut slot = self.process.lock().await;
        if self.is_removed.load(Ordering::Relaxed) {
            return Err(SessionError::NotFound("context"));
        }
        let Some(started) = slot.as_mut() else {
            return Err(SessionError::Conflict(
                "the context has no process, so nothing is defined in it; create one instead"
                    .to_owned(),
            ));
        };
        let start = started.start.clone();
        let process = match started.process.copy(guard.frame_memory(), force).await {
            Ok(process) => process,
            Err(CopyFailure::Refused(error)) => return Err(error),
            Err(CopyFailure::Ended(error)) => {
                *slot = None;
                *self.control.lock() = None;
                return Err(error);
            }
        };
        let new = NewContext { id, is_default: false, ..self.new.clone() };
        let copy = CodeContext::new(new, Some(self.new.id.clone()));
        copy.executions.store(self.executions.load(Ordering::Relaxed), Ordering::Relaxed);
        *copy.control.lock() = Some(process.control.clone());
        let metrics = &guard.contexts().metrics;
        let counted = metrics.context_started(self.new.language, ContextOrigin::Context);
        *copy.process.lock().await = Some(StartedContext { process, start, _counted: counted });
        let copy = Arc::new(copy);
        guard.contexts().add_copy(&copy).await?;
        Ok(copy)
    }

    async fn run(
        &self,
        guard: &SandboxGuard,
        cell: &ExecuteCell,
        timeout: Duration,
        told: &mpsc::Sender<CellMessage>,
    ) {
        let mut process = tokio::select! {
            process = self.process.lock() => process,
            () = told.closed() => return,
        };
        if self.is_removed.load(Ordering::Relaxed) {
            return tell_failure(told, "ContextEnded", "the context was deleted").await;
        }
        let started = match self.started(guard, &mut process).await {
            Ok(started) => started,
            // The caller sees the end of its events.
            Err(SessionError::SandboxEnded(_)) => return,
            Err(error) => {
                return tell_failure(told, "ContextFailed", &error.to_string()).await;
            }
        };
        let count = self.executions.fetch_add(1, Ordering::Relaxed) + 1;
        // Before the caller learns that the cell has begun, since it may interrupt it at once.
        self.interrupts.begin();
        drop(told.send(CellEvent::Started { execution_count: count }.into()).await);
        let request = self.new.language.cell(cell, count, &started.start);
        let run = CellRun::new(guard, told, &self.interrupts, timeout);
        let began = run.began();
        let seen = &guard.contexts().oom_kills;
        let (fate, verdict) =
            run.run(&mut started.process, &request, seen.load(Ordering::Relaxed)).await;
        if let Some(verdict) = verdict {
            let wall = clock::now().duration_since(began);
            guard.contexts().metrics.cell_ended(self.new.language, verdict, wall);
        }
        self.interrupts.end();
        if fate == ContextFate::Ended {
            *process = None;
            *self.control.lock() = None;
            // Kills reported for this cell are not reported again.
            if let Ok(now) = guard.oom_kills().await {
                seen.fetch_max(now, Ordering::Relaxed);
            }
        }
    }

    /// Interrupts the running cell as soon as possible. Returns whether a cell is running.
    pub(crate) async fn interrupt(&self) -> bool {
        match self.interrupts.request() {
            InterruptRequest::NoCell => return false,
            // The task that follows the cell sends the interrupt.
            InterruptRequest::Held => {}
            InterruptRequest::Due => {
                let control = self.control.lock().clone();
                if let Some(control) = control {
                    control.interrupt().await;
                }
            }
        }
        true
    }

    /// Ends its process, and starts a new one without definitions.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) async fn restart(&self, guard: &SandboxGuard) -> Result<(), SessionError> {
        self.kill().await;
        let mut slot = self.process.lock().await;
        *slot = None;
        *self.control.lock() = None;
        self.started(guard, &mut slot).await.map(drop)
    }

    async fn kill(&self) {
        let control = self.control.lock().clone();
        if let Some(control) = control {
            control.kill().await;
        }
    }
}

/// Reports that a cell was not run.
async fn tell_failure(told: &mpsc::Sender<CellMessage>, name: &str, why: &str) {
    drop(told.send(CellEvent::Error(failure(name, why)).into()).await);
    let end = CellEnd {
        verdict: Verdict::Re,
        wall_ms: 0,
        cpu_ms: None,
        memory_bytes: None,
        context_ended: true,
    };
    drop(told.send(CellEvent::Ended(end).into()).await);
}
