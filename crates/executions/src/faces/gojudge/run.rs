//! Runs the programs of a request side by side, each in a sandbox of its own.

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

/// Control requests that may wait for one program: more than a caller has reason to ask at once.
const CONTROLS_MAX: usize = 16;
/// Bytes that an answer is taken to hold before it is known. It is counted when the programs have
/// ended, and nothing begins while more is held than may be: what can be too much is the answers of
/// those that run at one time.
const ANSWER_BYTES: u64 = 64 << 10;
/// When to come again after all places were taken.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Size of a terminal before its caller sets one.
const TERMINAL_SIZE: TerminalDimensions = TerminalDimensions { rows: 24, cols: 80 };

/// Why nothing was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunError {
    /// The request cannot be run as it is.
    Invalid { field: String, message: String },
    /// A file that is not stored.
    NoSuchFile(String),
    /// There is no room for it now.
    Full(String),
    /// The caller no longer wants it.
    Cancelled,
    /// The server failed; the log has the details.
    Internal,
}

impl RunError {
    pub(super) fn invalid(field: &str, message: impl Into<String>) -> RunError {
        RunError::Invalid { field: field.to_owned(), message: message.into() }
    }

    /// Returns the same error with the path seen from outside of `parent`.
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

    /// When the same request may be sent again.
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
    /// To end all of them.
    Cancel,
    /// Another size for the terminal of one. Whoever waits for the last part gives no input until
    /// the size is where no input overtakes it.
    Resize(usize, TerminalDimensions, oneshot::Sender<()>),
}

/// The caller's part in programs that run.
#[derive(Debug, Default)]
pub(super) struct CallerHandle {
    /// Requests of the caller; none once its sender is gone.
    pub(super) requests: Option<mpsc::Receiver<CallerRequest>>,
    /// Input of the caller, by the tag of the stream.
    pub(super) inputs: HashMap<u8, mpsc::Receiver<Vec<u8>>>,
    /// Channel for the output that the caller wants.
    pub(super) output: Option<mpsc::Sender<OutputChunk>>,
}

/// Runs requests. Shared by all connections.
pub(super) struct GojudgeRunner {
    pub(super) service: ExecutionService,
    pub(super) config: GojudgeConfig,
    pub(super) store: FileStore,
    /// Files that are kept at other nodes.
    pub(super) others: Option<OtherFileStores>,
    /// Turns of groups; what runs alone has all it needs.
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

    /// Runs a request to its end. Dropping the future ends what runs.
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
            // Nothing else is asked before there is anything.
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

    /// Waits for as many places as there are programs.
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
        // The memory comes with the last place. A group that held it while it waits for places
        // would wait behind somebody who waits for that very memory, and both would wait for ever.
        // Places alone are harmless: one group acquires at a time, and it leaves one to others.
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
                        // Its ends of pipes go with it.
                        drop(command);
                        ProgramEnd::Refused(refused)
                    }
                    None => self.run_program(command, &mut connected).await,
                };
                (index, program, connected.captures, ended)
            });
        }
        // Ends that nobody was given would keep pipes open.
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
        // Every program is gone, and so are the other ends of these pipes.
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
            // Only grants are refused so late, and this face gives none.
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
    /// Not run: its files do not fit.
    NoRoom,
    /// Not run.
    Refused(GojudgeResult),
}

/// Waits for what comes next; for ever where nothing can.
async fn next(requests: &mut Option<mpsc::Receiver<CallerRequest>>) -> Option<CallerRequest> {
    match requests {
        Some(requests) => requests.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits until the caller gives up. Sizes of terminals that it asks for until then are noted.
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

/// Passes on what the caller wants. A program that has ended does not heed it.
fn forward_request(request: CallerRequest, controls: &[mpsc::Sender<ProgramControl>]) {
    match request {
        CallerRequest::Cancel => {
            for control in controls {
                control.try_send(ProgramControl::Stop).ok();
            }
        }
        CallerRequest::Resize(index, size, noted) => {
            // One place is kept for the end.
            if let Some(control) = controls.get(index).filter(|control| control.capacity() > 1) {
                control.try_send(ProgramControl::Resize(size)).ok();
            }
            noted.send(()).ok();
        }
    }
}

/// Tells the log what the caller is not told.
fn failed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> RunError {
    let error = error.into();
    tracing::error!(error = &*error as &dyn StdError, "failed to prepare the streams of programs");
    RunError::Internal
}
