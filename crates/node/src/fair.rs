//! Fair use of the runtime's threads: callers take turns, however many connections each has.
//!
//! The runtime runs ready tasks in the order in which they became ready. With 64 busy connections
//! of one tenant, a request of another would wait for 64 others at each of its steps. So a task
//! that becomes ready is not handed to the runtime at once: it waits in the queue of its caller,
//! and callers with ready tasks are served in turn ([`RoundRobin`]). Only as many tasks as there
//! are slots are with the runtime at a time; a slot is free again when its task has been polled, so
//! no task holds one while it waits for a disk or a network.
//!
//! A task belongs to the caller that [`identify`] names from within it. Tasks that it starts with
//! [`crate::task::spawn`] belong to the same caller.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use pool::RoundRobin;

/// Number of tasks with the runtime at a time, for each of its threads. The next one is handed over
/// when one has been polled, by the same thread, which then polls it.
const SLOTS_PER_THREAD: usize = 1;

thread_local! {
    /// The task that this thread polls.
    static CURRENT: RefCell<Option<Arc<FairTask>>> = const { RefCell::new(None) };
}

/// Lets callers take turns. Cheap to clone.
#[derive(Clone)]
pub struct FairScheduler(Arc<Mutex<ReadyTasks>>);

/// Ready tasks that are not with the runtime.
struct ReadyTasks {
    slots_free: usize,
    /// By caller.
    waiting: RoundRobin<Arc<str>, Arc<FairTask>>,
}

struct FairTask {
    scheduler: FairScheduler,
    /// Wakes the task at the runtime.
    runtime: AtomicWaker,
    /// Locked after the scheduler's lock, if both are needed.
    state: Mutex<TaskState>,
}

struct TaskState {
    caller: Arc<str>,
    phase: TaskPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskPhase {
    /// Waits for an event.
    Waiting,
    /// Ready, in the queue of its caller.
    Queued,
    /// With the runtime, in a slot.
    Dispatched,
    Polled {
        has_slot: bool,
        /// Became ready again meanwhile.
        is_woken: bool,
    },
    Ended,
}

impl fmt::Debug for FairScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairScheduler").finish_non_exhaustive()
    }
}

impl FairScheduler {
    /// Creates a scheduler for the current runtime.
    pub fn for_this_runtime() -> FairScheduler {
        let threads = tokio::runtime::Handle::current().metrics().num_workers();
        FairScheduler::with_slots(threads.max(1) * SLOTS_PER_THREAD)
    }

    fn with_slots(slots: usize) -> FairScheduler {
        let ready = ReadyTasks { slots_free: slots, waiting: RoundRobin::default() };
        FairScheduler(Arc::new(Mutex::new(ready)))
    }

    /// Wraps a future so that it is polled in the turns of a caller.
    pub fn run<F: Future>(&self, caller: Arc<str>, future: F) -> FairFuture<F> {
        let state = Mutex::new(TaskState { caller, phase: TaskPhase::Waiting });
        let (scheduler, runtime) = (self.clone(), AtomicWaker::new());
        let task = Arc::new(FairTask { scheduler, runtime, state });
        FairFuture { waker: Waker::from(Arc::clone(&task)), task, future: Box::pin(future) }
    }
}

/// Sets the caller of the current task; does nothing if that takes no turns.
pub fn identify(caller: &Arc<str>) {
    CURRENT.with_borrow(|current| {
        let Some(task) = current else { return };
        let mut state = task.state.lock();
        if state.caller != *caller {
            state.caller = Arc::clone(caller);
        }
    });
}

/// Returns the caller of the current task; none if that takes no turns.
pub(crate) fn caller() -> Option<Arc<str>> {
    CURRENT.with_borrow(|task| Some(Arc::clone(&task.as_ref()?.state.lock().caller)))
}

/// Lets a future take the turns of the current task.
pub(crate) fn inherit<F: Future>(future: F) -> Result<FairFuture<F>, F> {
    match CURRENT.with_borrow(Option::clone) {
        Some(task) => {
            let caller = Arc::clone(&task.state.lock().caller);
            Ok(task.scheduler.run(caller, future))
        }
        None => Err(future),
    }
}

impl ReadyTasks {
    /// Returns the task whose turn it is, if a slot is free. Wake it without the lock.
    fn dispatch(&mut self) -> Option<Arc<FairTask>> {
        while self.slots_free > 0 {
            let task = self.waiting.pop()?;
            let phase = &mut task.state.lock().phase;
            // It may have been polled, or dropped, since it was queued.
            if *phase == TaskPhase::Queued {
                *phase = TaskPhase::Dispatched;
                self.slots_free -= 1;
                return Some(Arc::clone(&task));
            }
        }
        None
    }
}

impl FairTask {
    /// Queues the task if it waits, and hands the next one to the runtime.
    fn make_ready(self: &Arc<Self>) {
        let next = {
            let mut ready = self.scheduler.0.lock();
            let mut state = self.state.lock();
            match &mut state.phase {
                phase @ TaskPhase::Waiting => *phase = TaskPhase::Queued,
                TaskPhase::Polled { is_woken, .. } => {
                    *is_woken = true;
                    return;
                }
                TaskPhase::Queued | TaskPhase::Dispatched | TaskPhase::Ended => return,
            }
            let caller = Arc::clone(&state.caller);
            drop(state);
            ready.waiting.push(caller, Arc::clone(self));
            ready.dispatch()
        };
        wake(next);
    }

    fn begin_poll(&self) {
        let phase = &mut self.state.lock().phase;
        let has_slot = *phase == TaskPhase::Dispatched;
        *phase = TaskPhase::Polled { has_slot, is_woken: false };
    }

    /// Returns the slot, and hands it to the next task.
    fn leave(self: &Arc<Self>, is_over: bool) {
        let next = {
            let mut ready = self.scheduler.0.lock();
            let mut state = self.state.lock();
            let (has_slot, is_woken) = match state.phase {
                TaskPhase::Polled { has_slot, is_woken } => (has_slot, is_woken),
                TaskPhase::Dispatched => (true, false),
                TaskPhase::Waiting | TaskPhase::Queued | TaskPhase::Ended => (false, false),
            };
            state.phase = match (is_over, is_woken) {
                (true, _) => TaskPhase::Ended,
                (false, true) => TaskPhase::Queued,
                (false, false) => TaskPhase::Waiting,
            };
            let caller = Arc::clone(&state.caller);
            let is_queued = state.phase == TaskPhase::Queued;
            drop(state);
            if has_slot {
                ready.slots_free += 1;
            }
            if is_queued {
                ready.waiting.push(caller, Arc::clone(self));
            }
            ready.dispatch()
        };
        wake(next);
    }
}

fn wake(task: Option<Arc<FairTask>>) {
    if let Some(task) = task {
        task.runtime.wake();
    }
}

impl Wake for FairTask {
    fn wake(self: Arc<Self>) {
        self.make_ready();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.make_ready();
    }
}

/// A future that is polled in the turns of its caller; a task of its own.
pub struct FairFuture<F> {
    task: Arc<FairTask>,
    waker: Waker,
    future: Pin<Box<F>>,
}

impl<F> fmt::Debug for FairFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairFuture").finish_non_exhaustive()
    }
}

impl<F: Future> Future for FairFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { task, waker, future } = &mut *self;
        task.runtime.register(cx.waker());
        task.begin_poll();
        let poll = {
            let _current = CurrentTask::enter(Arc::clone(task));
            future.as_mut().poll(&mut Context::from_waker(waker))
        };
        task.leave(poll.is_ready());
        poll
    }
}

impl<F> Drop for FairFuture<F> {
    fn drop(&mut self) {
        // Also after a panic.
        self.task.leave(true);
    }
}

/// Sets this thread's current task, and restores the previous one when dropped.
struct CurrentTask(Option<Arc<FairTask>>);

impl CurrentTask {
    fn enter(task: Arc<FairTask>) -> CurrentTask {
        CurrentTask(CURRENT.replace(Some(task)))
    }
}

impl Drop for CurrentTask {
    fn drop(&mut self) {
        drop(CURRENT.replace(self.0.take()));
    }
}

#[cfg(test)]
mod tests;
