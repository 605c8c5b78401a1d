//! State of executions in this process beyond the queue: their events, attached callers, and
//! cancellations of running ones.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{EventKind, ExecutionEvent, ExecutionId, ExecutionState};
use node::clock;
use parking_lot::Mutex;
use sandbox::{ProgramControl, StdinSource};
use tokio::sync::{mpsc, watch};
use tokio::time;

use super::{Jobs, POLL_INTERVAL};
use crate::answers::AnswerMemory;
use crate::error::ExecutionError;
use crate::events::{self, ExecutionLog, LogListener};
use crate::queue::QueuedJob;
use crate::service::ProgramIo;

/// Time for which the events of ended executions are kept for late subscribers.
const ENDED_AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of ended executions that are kept.
const ENDED_MAX: usize = 1_000;
/// Maximum bytes that they hold together, results included.
const ENDED_BYTES_MAX: usize = 64 << 20;
/// Maximum number of chunks of input that wait for the program, and of controls that wait for the
/// sandbox.
const INPUTS_MAX: usize = 16;

/// All live executions, by id.
#[derive(Debug, Default)]
pub(super) struct LiveExecutions {
    table: Mutex<LiveTable>,
}

#[derive(Debug, Default)]
struct LiveTable {
    lives: HashMap<ExecutionId, Arc<LiveExecution>>,
    ended: VecDeque<EndedExecution>,
    /// Total bytes held by ended executions.
    ended_bytes: usize,
}

/// An ended execution that is still kept.
#[derive(Debug)]
struct EndedExecution {
    since: Instant,
    id: ExecutionId,
    live: Arc<LiveExecution>,
    bytes: usize,
}

impl LiveTable {
    /// Drops the execution that ended first.
    fn drop_oldest(&mut self) {
        let Some(oldest) = self.ended.pop_front() else { return };
        self.ended_bytes -= oldest.bytes;
        // An execution that was retried meanwhile has the same id and must stay.
        if self.lives.get(&oldest.id).is_some_and(|live| Arc::ptr_eq(live, &oldest.live)) {
            self.lives.remove(&oldest.id);
        }
    }
}

/// An execution with its events.
#[derive(Debug)]
pub(crate) struct LiveExecution {
    pub(super) log: Arc<ExecutionLog>,
    /// Reason to end it, once it is cancelled.
    cancel: watch::Sender<Option<String>>,
    /// True if a caller is, or was, attached.
    attached: watch::Sender<bool>,
    /// Input of the attached caller; taken by the worker.
    io: Mutex<Option<Box<ProgramIo>>>,
}

impl LiveExecution {
    fn new(attempt: u32) -> LiveExecution {
        let log = Arc::new(ExecutionLog::new(attempt));
        log.push(EventKind::Queued { position: None });
        LiveExecution {
            log,
            cancel: watch::Sender::new(None),
            attached: watch::Sender::new(false),
            io: Mutex::new(None),
        }
    }

    /// Returns the reason when it is cancelled.
    pub(super) async fn cancelled(&self) -> String {
        let mut cancel = self.cancel.subscribe();
        // The sender is our own, so the wait cannot end in another way.
        let reason = cancel.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
        reason.unwrap_or_default()
    }

    /// Waits until a caller is attached and takes its input. Only once.
    pub(super) async fn attached(&self) -> ProgramIo {
        until(&self.attached).await;
        self.io.lock().take().map(|io| *io).unwrap_or_default()
    }

    pub(super) fn cancel(&self, reason: &str) {
        self.cancel.send_if_modified(|cancel| {
            let first = cancel.is_none();
            if first {
                *cancel = Some(reason.to_owned());
            }
            first
        });
    }
}

/// Returns when the flag is set.
async fn until(flag: &watch::Sender<bool>) {
    // The sender outlives the wait, so the wait cannot end in another way.
    let _up = flag.subscribe().wait_for(|up| *up).await.is_ok();
}

impl LiveExecutions {
    /// Returns the execution, and creates its entry if it is new. `attempt` is its next or current
    /// one.
    pub(super) fn get_or_create(&self, id: &ExecutionId, attempt: u32) -> Arc<LiveExecution> {
        let mut table = self.table.lock();
        let live =
            table.lives.entry(id.clone()).or_insert_with(|| Arc::new(LiveExecution::new(attempt)));
        Arc::clone(live)
    }

    pub(super) fn get(&self, id: &ExecutionId) -> Option<Arc<LiveExecution>> {
        self.table.lock().lives.get(id).cloned()
    }

    pub(super) fn cancel(&self, id: &ExecutionId, reason: &str) {
        if let Some(live) = self.get(id) {
            live.cancel(reason);
        }
    }

    /// Appends the last event, for possible listeners; without one, they query the queue for it.
    /// `bytes` is the size of the result in it.
    pub(super) fn end(&self, id: &ExecutionId, last: Option<EventKind>, bytes: usize) {
        let mut table = self.table.lock();
        let Some(live) = table.lives.get(id).cloned() else { return };
        match last {
            Some(kind) => live.log.push(kind),
            None => live.log.abandon(),
        }
        let bytes = bytes + live.log.bytes();
        table.ended_bytes += bytes;
        table.ended.push_back(EndedExecution { since: clock::now(), id: id.clone(), live, bytes });
        while table.ended_bytes > ENDED_BYTES_MAX || table.ended.len() > ENDED_MAX {
            table.drop_oldest();
        }
    }

    /// Removes an execution that starts again: its events are no longer valid.
    pub(super) fn forget(&self, id: &ExecutionId) {
        if let Some(live) = self.table.lock().lives.remove(id) {
            live.log.abandon();
        }
    }

    /// Drops entries that are not in use, and executions that ended some time ago.
    pub(super) fn prune(&self, now: Instant) {
        let mut table = self.table.lock();
        let is_old =
            |ended: &EndedExecution| now.saturating_duration_since(ended.since) > ENDED_AGE_MAX;
        while table.ended.front().is_some_and(is_old) {
            table.drop_oldest();
        }
        let LiveTable { lives, .. } = &mut *table;
        // The list of ended executions holds its entries, too.
        lives.retain(|_, live| Arc::strong_count(live) > 1);
    }

    /// See [`Jobs::attach`].
    pub(super) fn attach(
        &self,
        id: &ExecutionId,
        after: u64,
    ) -> Result<CallerAttachment, ExecutionError> {
        let live = self.get(id).ok_or(ExecutionError::NotFound)?;
        let (stdin, input) = mpsc::channel(INPUTS_MAX);
        let (control, controls) = mpsc::channel(INPUTS_MAX);
        let io = ProgramIo { stdin: Some(StdinSource::Live(input)), control: Some(controls) };
        {
            // Held over both steps, so that of two concurrent callers only one is attached.
            let mut place = live.io.lock();
            if *live.attached.borrow() {
                return Err(ExecutionError::Conflict(
                    "another client is attached to this execution".to_owned(),
                ));
            }
            *place = Some(Box::new(io));
            live.log.attach(after);
            live.attached.send_replace(true);
        }
        Ok(CallerAttachment { live, stdin: Some(stdin), control })
    }
}

/// The hold on an execution that ends with its caller.
#[derive(Debug)]
pub(crate) struct CallerAttachment {
    live: Arc<LiveExecution>,
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    control: mpsc::Sender<ProgramControl>,
}

impl CallerAttachment {
    /// Waits until the program accepts another chunk of input; `None` if it never will.
    pub(crate) async fn room(&self) -> Option<mpsc::Permit<'_, Vec<u8>>> {
        self.stdin.as_ref()?.reserve().await.ok()
    }

    /// Returns whether standard input is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.stdin.is_some()
    }

    /// Ends standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal or a size to the sandbox. A sandbox that cannot keep up misses some; so does
    /// a program that has not started or has ended.
    pub(crate) fn control(&self, control: ProgramControl) {
        if self.control.try_send(control).is_err() {
            tracing::debug!("a signal or a size was not delivered");
        }
    }

    /// Returns the log, for acknowledgements of the events that reached the caller.
    pub(crate) fn log(&self) -> Arc<ExecutionLog> {
        Arc::clone(&self.live.log)
    }
}

impl Drop for CallerAttachment {
    fn drop(&mut self) {
        self.live.cancel("its caller went away");
        self.live.log.detach();
    }
}

/// The events of one execution that may run on any server.
#[derive(Debug)]
pub(crate) struct ExecutionSubscription {
    jobs: Jobs,
    id: ExecutionId,
    /// Number of the last event that was returned.
    after: u64,
    /// Keeps the entry of the execution; `None` if it had ended before the subscription.
    listening: Option<(LogListener, Arc<LiveExecution>)>,
    /// Memory of a result that was read only for this subscription.
    room: Option<AnswerMemory>,
    over: bool,
}

impl ExecutionSubscription {
    pub(super) fn new(jobs: Jobs, job: &QueuedJob, after: u64) -> ExecutionSubscription {
        let lives = &jobs.inner.lives;
        let live = match (lives.get(&job.id), job.state) {
            (Some(live), _) => Some(live),
            (None, ExecutionState::Queued) => Some(lives.get_or_create(&job.id, job.attempts + 1)),
            (None, ExecutionState::Running) => Some(lives.get_or_create(&job.id, job.attempts)),
            (None, _) => None,
        };
        let listening = live.map(|live| (live.log.listen(after), live));
        ExecutionSubscription {
            id: job.id.clone(),
            after,
            listening,
            room: None,
            over: false,
            jobs,
        }
    }

    /// Returns the next events; `None` after the last one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Arc<ExecutionEvent>>> {
        while !self.over {
            let events = match &mut self.listening {
                // Polling finds an end on another server, or one that was not noticed here.
                Some((listener, _)) => match time::timeout(POLL_INTERVAL, listener.next()).await {
                    Ok(Some(events)) => events,
                    Ok(None) => {
                        self.listening = None;
                        continue;
                    }
                    Err(_) => self.ask().await,
                },
                None => {
                    let events = self.ask().await;
                    if events.is_empty() && !self.over {
                        time::sleep(POLL_INTERVAL).await;
                    }
                    events
                }
            };
            if let Some(last) = events.last() {
                self.after = last.seq;
                self.over = last.kind.is_last();
                return Some(events);
            }
        }
        None
    }

    /// Queries the queue for the end.
    async fn ask(&mut self) -> Vec<Arc<ExecutionEvent>> {
        match self.jobs.last_event(&self.id).await {
            Ok(Some((event, room))) if event.seq > self.after => {
                self.room = Some(room);
                let mut events = Vec::with_capacity(2);
                events.extend(events::gap(self.after + 1, event.seq).map(Arc::new));
                events.push(Arc::new(event));
                events
            }
            // The event was seen already, or the job was removed meanwhile.
            Ok(Some(_)) | Err(ExecutionError::NotFound) => {
                self.over = true;
                Vec::new()
            }
            // Not ended, or the queue is temporarily unavailable: queried again later.
            Ok(None) | Err(_) => Vec::new(),
        }
    }
}
