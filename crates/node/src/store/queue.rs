//! Transactions that wait for a thread of the store.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::StoreTransaction;
use super::error::SqlStoreError;
use crate::{clock, fair};

/// Jobs of one caller that are committed together while others have jobs, too: those of others wait
/// for them.
const GROUP_MAX_PER_CALLER: usize = 8;
/// Time that a caller counts as one of several after its last job.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Access that a transaction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionAccess {
    /// Only looks.
    Read,
    /// Only looks, by one statement.
    Select,
    /// Writes; run at most once to its end.
    Write,
    /// Writes, and may be run again when nobody knows whether it was committed.
    WriteAgain,
}

/// Body of a transaction, leaving its value where its caller will look for it: behind a pointer, so
/// that nothing of the store is compiled for each transaction there is.
pub(super) type Body =
    Box<dyn FnMut(&mut dyn StoreTransaction) -> Result<(), SqlStoreError> + Send>;

/// A transaction on its way, with whoever waits for it.
pub(super) struct TransactionJob {
    /// Names it in metrics.
    pub(super) name: &'static str,
    /// Access that it needs.
    pub(super) access: TransactionAccess,
    body: Body,
    answer: oneshot::Sender<Result<(), SqlStoreError>>,
    /// Caller; none for the server's own.
    caller: Option<Arc<str>>,
}

fn panicked(panic: &(dyn Any + Send)) -> SqlStoreError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    SqlStoreError::Panicked(text.unwrap_or("not a text").to_owned())
}

impl TransactionJob {
    pub(super) fn new(
        name: &'static str,
        access: TransactionAccess,
        body: Body,
    ) -> (TransactionJob, oneshot::Receiver<Result<(), SqlStoreError>>) {
        let (answer, receiver) = oneshot::channel();
        (TransactionJob { name, access, body, answer, caller: fair::caller() }, receiver)
    }

    /// Runs its statements. May be called again after a roll-back.
    pub(super) fn run(
        &mut self,
        transaction: &mut dyn StoreTransaction,
    ) -> Result<(), SqlStoreError> {
        // The transaction is rolled back, and the body is not run again.
        let result = catch_unwind(AssertUnwindSafe(|| (self.body)(transaction)));
        result.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Returns whether nobody waits for it any more; then it need not begin.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Answers it.
    pub(super) fn finish(self, committed: Result<(), SqlStoreError>) {
        let TransactionJob { body, answer, .. } = self;
        // Nobody waits any more, which changes nothing about what is written.
        drop(answer.send(committed));
        // After the answer: what the body holds is not what its caller waits for.
        drop(body);
    }
}

/// Jobs for one or more threads: those of one caller in the order they came, callers in turn.
pub(super) struct TransactionQueue {
    state: Mutex<TransactionQueueState>,
    /// There is work, or the queue is closed.
    changed: Condvar,
    /// The queue is closed. Apart from the other, so that a pause takes nobody's wake-up.
    closing: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct TransactionQueueState {
    waiting: HashMap<Option<Arc<str>>, VecDeque<TransactionJob>>,
    /// Callers with jobs, in the order of their turns.
    turns: VecDeque<Option<Arc<str>>>,
    /// Jobs of all callers.
    count: usize,
    /// Caller and time of the latest job.
    latest: Option<(Option<Arc<str>>, Instant)>,
    /// Until when several callers count as having jobs.
    shared_until: Option<Instant>,
    closed: bool,
}

impl TransactionQueueState {
    fn push(&mut self, job: TransactionJob, now: Instant) {
        let caller = job.caller.clone();
        let is_shared = self.latest.as_ref().is_some_and(|(latest, at)| {
            *latest != caller && now.saturating_duration_since(*at) < SHARED_FOR
        });
        if is_shared {
            self.shared_until = Some(now + SHARED_FOR);
        }
        self.latest = Some((caller.clone(), now));
        let waiting = self.waiting.entry(caller.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(caller);
        }
        waiting.push_back(job);
        self.count += 1;
    }

    /// Up to `count_max` jobs, one of each caller in turn, and not more of one than it may have.
    fn take(&mut self, count_max: usize, now: Instant) -> Vec<TransactionJob> {
        let is_shared = self.turns.len() > 1 || self.shared_until.is_some_and(|until| now < until);
        let caller_max = if is_shared { GROUP_MAX_PER_CALLER } else { count_max };
        let rounds_max = caller_max.min(count_max);
        let mut jobs = Vec::with_capacity(count_max.min(self.count));
        for _ in 0..rounds_max {
            for _ in 0..self.turns.len() {
                if jobs.len() == count_max {
                    break;
                }
                let Some(caller) = self.turns.pop_front() else { break };
                let Some(waiting) = self.waiting.get_mut(&caller) else { continue };
                jobs.extend(waiting.pop_front());
                if waiting.is_empty() {
                    self.waiting.remove(&caller);
                } else {
                    self.turns.push_back(caller);
                }
            }
        }
        self.count -= jobs.len();
        jobs
    }
}

impl TransactionQueue {
    pub(super) fn new(waiting_max: usize) -> TransactionQueue {
        TransactionQueue {
            state: Mutex::default(),
            changed: Condvar::new(),
            closing: Condvar::new(),
            waiting_max,
        }
    }

    /// Adds a job, or says why not.
    pub(super) fn push(&self, job: TransactionJob) -> Result<(), SqlStoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(SqlStoreError::Closed);
        }
        if state.count >= self.waiting_max {
            return Err(SqlStoreError::Busy { waiting_max: self.waiting_max });
        }
        state.push(job, clock::now());
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for work and takes up to `count_max` jobs of it. None when the queue is closed and
    /// empty.
    pub(super) fn take(&self, count_max: usize) -> Option<Vec<TransactionJob>> {
        let mut state = self.state.lock();
        loop {
            if state.count > 0 {
                return Some(state.take(count_max, clock::now()));
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Jobs that no thread has taken yet.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().count
    }

    /// Takes no more jobs; those that wait are still done.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
        self.closing.notify_all();
    }

    /// Waits for a time, or until the queue is closed.
    pub(super) fn pause(&self, until: Instant) {
        let mut state = self.state.lock();
        while !state.closed && !self.closing.wait_until(&mut state, until).timed_out() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(caller: Option<&str>, name: &'static str) -> TransactionJob {
        let (job, _) = TransactionJob::new(name, TransactionAccess::Write, Box::new(|_| Ok(())));
        TransactionJob { caller: caller.map(Arc::from), ..job }
    }

    fn names(jobs: Option<Vec<TransactionJob>>) -> Vec<&'static str> {
        jobs.into_iter().flatten().map(|job| job.name).collect()
    }

    #[test]
    fn a_caller_alone_has_the_whole_group() {
        let queue = TransactionQueue::new(100);
        (0..20).for_each(|_| queue.push(job(Some("a"), "a")).unwrap());
        assert_eq!(names(queue.take(16)), ["a"; 16]);
        assert_eq!((names(queue.take(16)), queue.waiting()), (vec!["a"; 4], 0));
    }

    #[test]
    fn callers_take_turns_and_one_has_a_part_of_the_group() {
        let queue = TransactionQueue::new(100);
        (0..20).for_each(|_| queue.push(job(Some("flood"), "flood")).unwrap());
        for name in ["first", "second"] {
            queue.push(job(Some("quiet"), name)).unwrap();
        }
        queue.push(job(None, "server")).unwrap();
        let group = names(queue.take(64));
        assert_eq!(group[..5], ["flood", "first", "server", "flood", "second"]);
        assert_eq!(group.len(), GROUP_MAX_PER_CALLER + 3);
        // The other caller had a job a moment ago, and may have another one soon.
        assert_eq!(names(queue.take(64)), ["flood"; GROUP_MAX_PER_CALLER]);
        assert_eq!((names(queue.take(1)), queue.waiting()), (vec!["flood"], 3));
        let mut small = names(queue.take(2));
        small.extend(names(queue.take(2)));
        assert_eq!(small, ["flood"; 3]);
        queue.close();
        assert!(queue.take(1).is_none());
        assert!(queue.state.lock().waiting.is_empty());
    }

    #[test]
    fn a_full_queue_says_so() {
        let queue = TransactionQueue::new(2);
        queue.push(job(Some("a"), "a")).unwrap();
        queue.push(job(None, "b")).unwrap();
        let refused = queue.push(job(Some("c"), "c"));
        assert!(matches!(refused, Err(SqlStoreError::Busy { waiting_max: 2 })));
    }
}
