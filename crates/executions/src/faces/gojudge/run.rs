//! Runs the programs of a request concurrently, each in a sandbox of its own.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use node::clock;
use sandbox::{ProgramControl, ProgramExit, SandboxCommand, TerminalDimensions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::config::GojudgeConfig;
use super::connect::{CollectedStream, ConnectedProgram, ProgramWires};
use super::elsewhere::{BorrowedFiles, OtherFileStores};
use super::group_admission::GroupAdmission;
use super::outcome;
use super::plan::{GojudgePlan, GojudgePlanner};
use super::store::FileStore;
use super::stream::OutputChunk;
use super::wire::{self, GojudgeResult, GojudgeStatus};
use crate::admission::RunPermit;
use crate::answers::{AnswerMemory, AnswerPatience};
use crate::error::ExecutionError;
use crate::limits::LimitTable;
use crate::sandboxes::SandboxFailure;
use crate::service::ExecutionService;

/// Maximum number of control requests that wait for one program: more than a caller normally sends.
const CONTROLS_MAX: usize = 16;
/// Assumed size of an answer before it is known. It is measured when the programs have ended, and
/// no program starts while more than the limit is held, so the excess is at most the answers of the
/// running programs.
const ANSWER_BYTES: u64 = 64 << 10;
/// Time to retry after all places were taken.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Size of a terminal before its caller sets one.
const TERMINAL_SIZE: TerminalDimensions = TerminalDimensions { rows: 24, cols: 80 };

/// Reason why no program was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunError {
    /// The request is invalid.
    Invalid { field: String, message: String },
    /// A file is not stored.
    NoSuchFile(String),
    /// There is no room for it now.
    Full(String),
    /// The caller cancelled it.
    Cancelled,
    /// The server failed; the log has the details.
    Internal,
}

impl RunError {
    pub(super) fn invalid(field: &str, message: impl Into<String>) -> RunError {
        RunError::Invalid { field: field.to_owned(), message: message.into() }
    }

    /// Returns the same error with the path prefixed by `parent`.
    pub(super) fn within(self, parent: &str) -> RunError {
        match self {
            RunError::Invalid { field, message } if field.is_empty() => {
                RunError::Invalid { field: parent.to_owned(), message }
            }
            RunError::Invalid { field, message } => {
                RunError::Invalid { field: format!("{parent}.{field}"), message }
            }
            other => other,
        }
    }

    /// Returns the time after which the request may be retried.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        matches!(self, RunError::Full(_)).then_some(RETRY_AFTER)
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Invalid { field, message } if field.is_empty() => f.write_str(message),
            RunError::Invalid { field, message } => write!(f, "{field}: {message}"),
            RunError::NoSuchFile(message) | RunError::Full(message) => f.write_str(message),
            RunError::Cancelled => f.write_str("request cancelled before execute"),
            RunError::Internal => f.write_str("the server failed; its log has the details"),
        }
    }
}

impl From<ExecutionError> for RunError {
    fn from(error: ExecutionError) -> RunError {
        let text = error.to_string();
        match error {
            ExecutionError::Refused(refusal) => RunError::invalid("memoryLimit", refusal.message),
            ExecutionError::QueueFull { .. }
            | ExecutionError::QueueBytesFull { .. }
            | ExecutionError::TooManyWaiting { .. }
            | ExecutionError::TooManyBytesWaiting { .. }
            | ExecutionError::TooManyAnswerBytes { .. }
            | ExecutionError::AnswerBytesFull { .. }
            | ExecutionError::WaitedTooLong { .. }
            | ExecutionError::Unavailable(_) => {
                RunError::Full(format!("worker queue is full: {text}"))
            }
            ExecutionError::NotFound
            | ExecutionError::Conflict(_)
            | ExecutionError::Forbidden(_) => RunError::invalid("", text),
        }
    }
}

/// Request of a caller while programs run.
#[derive(Debug)]
pub(super) enum CallerRequest {
    /// End all programs.
    Cancel,
    /// Resize the terminal of one program. The last part is notified when the size is queued; the
    /// caller's task delays input until then, so that no input overtakes it.
    Resize(usize, TerminalDimensions, oneshot::Sender<()>),
}

/// The caller's connection to running programs.
#[derive(Debug, Default)]
pub(super) struct CallerHandle {
    /// Requests of the caller; None once its sender is dropped.
    pub(super) requests: Option<mpsc::Receiver<CallerRequest>>,
    /// Input of the caller, by the tag of the stream.
    pub(super) inputs: HashMap<u8, mpsc::Receiver<Vec<u8>>>,
    /// Channel for the output that the caller requested.
    pub(super) output: Option<mpsc::Sender<OutputChunk>>,
}

/// Runs requests. Shared by all connections.
pub(super) struct GojudgeRunner {
    pub(super) service: ExecutionService,
    pub(super) config: GojudgeConfig,
    pub(super) store: FileStore,
    /// Files that are stored at other nodes.
    pub(super) others: Option<OtherFileStores>,
    /// Admission of groups; a program that runs alone does not need it.
    group_admission: GroupAdmission,
}

impl GojudgeRunner {
    pub(super) fn new(
        service: ExecutionService,
        config: GojudgeConfig,
        others: Option<OtherFileStores>,
    ) -> GojudgeRunner {
        let store = FileStore::new(&config);
        GojudgeRunner { service, config, store, others, group_admission: GroupAdmission::new() }
    }

    /// Runs a request to its end. Dropping the future ends its programs.
    pub(super) async fn run(
        &self,
        tenant: &str,
        request: wire::GojudgeRequest,
        mut remote: CallerHandle,
    ) -> Result<(Vec<GojudgeResult>, AnswerMemory), RunError> {
        let borrowed = self.borrow(tenant, &request).await?;
        let mut plan = self.plan(tenant, request, &borrowed, remote.output.is_some())?;
        let mut sizes = HashMap::new();
        let answers = self.service.answers();
        let admitted = async {
            let deadline = answers.deadline(AnswerPatience::Caller);
            let room = answers.room(tenant, ANSWER_BYTES, deadline).await?;
            let permits = self.admit(tenant, plan.programs.len(), plan.memory_bytes).await?;
            Ok::<_, RunError>((permits, room))
        };
        let (permits, mut room) = tokio::select! {
            admitted = admitted => admitted?,
            // Other requests are not possible before a program runs.
            () = until_cancelled(&mut remote.requests, &mut sizes) => {
                return Err(RunError::Cancelled);
            }
        };
        for (index, program) in plan.programs.iter_mut().enumerate() {
            if program.has_terminal {
                program.command.terminal = Some(*sizes.get(&index).unwrap_or(&TERMINAL_SIZE));
            }
        }
        let outcomes = self.run_admitted(tenant, plan, remote).await?;
        drop(permits);
        room.set(outcomes.iter().map(GojudgeResult::content_bytes).sum());
        Ok((outcomes, room))
    }

    fn plan(
        &self,
        tenant: &str,
        request: wire::GojudgeRequest,
        borrowed: &BorrowedFiles,
        has_streams: bool,
    ) -> Result<GojudgePlan, RunError> {
        let current = self.service.planner();
        let limits = current.config();
        let planner = GojudgePlanner {
            config: &self.config,
            store: &self.store,
            borrowed,
            tenant,
            now: clock::now(),
            run: current.rules(LimitTable::Run),
            compile: current.rules(LimitTable::Compile),
            running_max: self.service.running_max(),
            files_max: limits.files_max,
            outputs_bytes_max: limits.outputs_bytes_max,
            has_streams,
        };
        planner.plan(request)
    }

    /// Waits for a place for each program.
    async fn admit(
        &self,
        tenant: &str,
        count: usize,
        memory_bytes: u64,
    ) -> Result<Vec<RunPermit>, RunError> {
        let admission = self.service.admission();
        if count == 1 {
            return Ok(vec![admission.enter(tenant, memory_bytes).await?]);
        }
        let group = self.group_admission.acquire(tenant).await?;
        // The memory comes with the last place. A group that held it while waiting for places could
        // wait behind another request that needs that memory: a deadlock. Places alone are
        // harmless: one group acquires at a time, and it leaves one place to others.
        let mut permits = Vec::with_capacity(count);
        while permits.len() + 1 < count {
            let is_further = !permits.is_empty();
            permits.push(admission.enter_grouped(tenant, 0, count, is_further).await?);
        }
        permits.push(admission.enter_grouped(tenant, memory_bytes, count, true).await?);
        drop(group);
        Ok(permits)
    }

    async fn run_admitted(
        &self,
        tenant: &str,
        plan: GojudgePlan,
        mut remote: CallerHandle,
    ) -> Result<Vec<GojudgeResult>, RunError> {
        let mut tasks: JoinSet<Option<CollectedStream>> = JoinSet::new();
        let mut wires =
            ProgramWires::lay(&plan, &mut remote, self.config.stream_bytes_max, &mut tasks)
                .map_err(failed)?;
        let mut controls = Vec::with_capacity(plan.programs.len());
        let mut running = FuturesUnordered::new();
        for (index, mut program) in plan.programs.into_iter().enumerate() {
            let mut connected = wires.connect(index, &mut program, &mut tasks).map_err(failed)?;
            let mut command = std::mem::take(&mut program.command);
            if remote.requests.is_some() {
                let (control, commands) = mpsc::channel(CONTROLS_MAX);
                command.control = Some(commands);
                controls.push(control);
            }
            running.push(async move {
                let ended = match program.refused.take() {
                    Some(refused) => {
                        // Closes its ends of pipes.
                        drop(command);
                        ProgramEnd::Refused(refused)
                    }
                    None => self.run_program(command, &mut connected).await,
                };
                (index, program, connected.captures, ended)
            });
        }
        // Unused ends would keep pipes open.
        drop(wires);
        let mut ended = Vec::with_capacity(running.len());
        loop {
            tokio::select! {
                one = running.next() => match one {
                    Some(one) => ended.push(one),
                    None => break,
                },
                commands = next(&mut remote.requests) => match commands {
                    Some(commands) => forward_request(commands, &controls),
                    None => remote.requests = None,
                },
            }
        }
        drop(running);
        ended.sort_by_key(|(index, ..)| *index);
        // Every program has ended, and so the other ends of these pipes are closed.
        let mut collected: HashMap<usize, Vec<CollectedStream>> = HashMap::new();
        while let Some(task) = tasks.join_next().await {
            if let Some(kept) = task.map_err(failed)? {
                collected.entry(kept.program).or_default().push(kept);
            }
        }
        let keep = |name: &str, bytes: &[u8]| {
            self.store.add(tenant, name, bytes, clock::now()).map_err(|error| error.to_string())
        };
        let outcomes = ended.into_iter().map(|(index, program, captures, ended)| {
            let collected = collected.remove(&index).unwrap_or_default();
            outcome::outcome(program, captures, collected, ended, &keep)
        });
        Ok(outcomes.collect())
    }

    async fn run_program(
        &self,
        command: SandboxCommand,
        connected: &mut ConnectedProgram,
    ) -> ProgramEnd {
        let ran = async {
            let mut sandbox = self.service.sandboxes().sandbox().await?;
            sandbox.run(command, &mut connected.sink).await
        };
        let ended = match ran.await {
            Ok(exit) => ProgramEnd::Exit(Box::new(exit)),
            Err(SandboxFailure::NoRoom) => ProgramEnd::NoRoom,
            // Only grants are refused this late, and this face has no grants.
            Err(SandboxFailure::Refused(refusal)) => ProgramEnd::Refused(GojudgeResult::new(
                GojudgeStatus::InternalError,
                refusal.message,
            )),
            Err(SandboxFailure::Infrastructure(error)) => {
                tracing::error!(error = &*error as &dyn StdError, "failed to run a program");
                ProgramEnd::Refused(GojudgeResult::new(
                    GojudgeStatus::InternalError,
                    RunError::Internal.to_string(),
                ))
            }
        };
        connected.sink.flush().await;
        ended
    }
}

/// End of a program.
#[derive(Debug)]
pub(super) enum ProgramEnd {
    Exit(Box<ProgramExit>),
    /// Not run, because its files do not fit.
    NoRoom,
    /// Not run, with this result.
    Refused(GojudgeResult),
}

/// Receives the next request; never returns if there is no receiver.
async fn next(requests: &mut Option<mpsc::Receiver<CallerRequest>>) -> Option<CallerRequest> {
    match requests {
        Some(requests) => requests.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits until the caller cancels. Records requested terminal sizes until then.
async fn until_cancelled(
    requests: &mut Option<mpsc::Receiver<CallerRequest>>,
    sizes: &mut HashMap<usize, TerminalDimensions>,
) {
    loop {
        match next(requests).await {
            Some(CallerRequest::Cancel) => return,
            Some(CallerRequest::Resize(index, size, noted)) => {
                sizes.insert(index, size);
                noted.send(()).ok();
            }
            None => *requests = None,
        }
    }
}

/// Forwards a request of the caller. A program that has ended ignores it.
fn forward_request(request: CallerRequest, controls: &[mpsc::Sender<ProgramControl>]) {
    match request {
        CallerRequest::Cancel => {
            for control in controls {
                control.try_send(ProgramControl::Stop).ok();
            }
        }
        CallerRequest::Resize(index, size, noted) => {
            // One place is reserved for the stop request.
            if let Some(control) = controls.get(index).filter(|control| control.capacity() > 1) {
                control.try_send(ProgramControl::Resize(size)).ok();
            }
            noted.send(()).ok();
        }
    }
}

/// Logs details that the caller does not receive.
fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> RunError {
    let error = error.into();
    tracing::error!(error = &*error as &dyn StdError, "failed to prepare the streams of programs");
    RunError::Internal
}
