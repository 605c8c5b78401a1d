//! Transactions that wait for a thread of the store.
//!
//! Callers take turns ([`RoundRobin`]). This module adds the limit on one caller's jobs in a
//! commit, and lets a thread wait for work.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pool::RoundRobin;
use tokio::sync::oneshot;

use super::StoreTransaction;
use super::error::SqlStoreError;
use crate::{clock, fair};

/// Maximum number of jobs of one caller that are committed together while other callers have jobs,
/// too, which wait for the commit.
const GROUP_MAX_PER_CALLER: usize = 8;
/// Time after its last job for which a caller counts as active.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Access that a transaction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionAccess {
    /// Read-only.
    Read,
    /// Read-only, by one statement.
    Select,
    /// Writes; run at most once to its end.
    Write,
    /// Writes, and may be run again if the outcome of the commit is unknown.
    WriteAgain,
}

/// Body of a transaction, which leaves its value for its caller: behind a pointer, so that the
/// store is not compiled for each transaction.
pub(super) type Body =
    Box<dyn FnMut(&mut dyn StoreTransaction) -> Result<(), SqlStoreError> + Send>;

/// Work before a transaction is handed over, on a thread that may wait for a disk.
pub(super) type PrecedingWork = Box<dyn FnOnce() -> Result<(), SqlStoreError> + Send>;

/// Result of a transaction for its caller.
#[derive(Debug)]
pub(super) struct TransactionAnswer {
    /// Time at which it was handed over; none if the work before it failed.
    pub(super) handed_over: Option<Instant>,
    /// Success if it was committed.
    pub(super) result: Result<(), SqlStoreError>,
}

/// A waiting or running transaction, with the channel for its answer.
pub(super) struct TransactionJob {
    /// Name in metrics.
    pub(super) name: &'static str,
    /// Access that it needs.
    pub(super) access: TransactionAccess,
    body: Body,
    answer: oneshot::Sender<TransactionAnswer>,
    handed_over: Option<Instant>,
    /// Caller; none for the server's own transactions.
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
    ) -> (TransactionJob, oneshot::Receiver<TransactionAnswer>) {
        let (answer, receiver) = oneshot::channel();
        let caller = fair::caller();
        (TransactionJob { name, access, body, answer, handed_over: None, caller }, receiver)
    }

    /// Runs its statements. May be called again after a rollback.
    pub(super) fn run(
        &mut self,
        transaction: &mut dyn StoreTransaction,
    ) -> Result<(), SqlStoreError> {
        // The transaction is rolled back, and the body is not run again.
        let result = catch_unwind(AssertUnwindSafe(|| (self.body)(transaction)));
        result.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Returns whether its caller has stopped waiting; then it need not begin.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Sends the answer.
    pub(super) fn finish(self, committed: Result<(), SqlStoreError>) {
        let TransactionJob { body, answer, handed_over, .. } = self;
        // If the caller has stopped waiting, that changes nothing about the commit.
        drop(answer.send(TransactionAnswer { handed_over, result: committed }));
        // After the answer, because the caller does not wait for the body's drop.
        drop(body);
    }
}

/// Jobs for one or more threads: those of one caller in order of arrival, callers in turn.
pub(super) struct TransactionQueue {
    state: Mutex<TransactionQueueState>,
    /// Notified when there is work, or the queue is closed.
    changed: Condvar,
    /// Notified when the queue is closed. Separate from `changed`, so that a pause takes no wake-up
    /// for work.
    closing: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct TransactionQueueState {
    /// Jobs, by caller.
    waiting: RoundRobin<Option<Arc<str>>, TransactionJob>,
    /// Caller and time of the latest job.
    latest: Option<(Option<Arc<str>>, Instant)>,
    /// Time until which several callers count as active.
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
        self.waiting.push(caller, job);
    }

    /// Takes up to `count_max` jobs, one of each caller in turn; of each at most
    /// `GROUP_MAX_PER_CALLER` while several callers are active.
    fn take(&mut self, count_max: usize, now: Instant) -> Vec<TransactionJob> {
        let is_shared =
            self.waiting.keys_waiting() > 1 || self.shared_until.is_some_and(|until| now < until);
        let caller_max = if is_shared { GROUP_MAX_PER_CALLER } else { count_max };
        let rounds_max = caller_max.min(count_max);
        let mut jobs = Vec::with_capacity(count_max.min(self.waiting.len()));
        for _ in 0..rounds_max {
            let left = count_max - jobs.len();
            for _ in 0..self.waiting.keys_waiting().min(left) {
                jobs.extend(self.waiting.pop());
            }
        }
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

    /// Adds a job, or answers it with the refusal.
    pub(super) fn push(&self, mut job: TransactionJob) {
        let now = clock::now();
        job.handed_over = Some(now);
        let mut state = self.state.lock();
        let refusal = if state.closed {
            Some(SqlStoreError::Closed)
        } else if state.waiting.len() >= self.waiting_max {
            Some(SqlStoreError::Busy { waiting_max: self.waiting_max })
        } else {
            None
        };
        match refusal {
            Some(refusal) => {
                drop(state);
                job.finish(Err(refusal));
            }
            None => {
                state.push(job, now);
                drop(state);
                self.changed.notify_one();
            }
        }
    }

    /// Does the work before a job and adds the job, or answers it with the error of the work.
    pub(super) fn push_after(&self, before: PrecedingWork, job: TransactionJob) {
        let done = catch_unwind(AssertUnwindSafe(before));
        match done.unwrap_or_else(|panic| Err(panicked(&*panic))) {
            Ok(()) => self.push(job),
            Err(error) => job.finish(Err(error)),
        }
    }

    /// Waits for work and takes up to `count_max` jobs. None if the queue is closed and empty.
    pub(super) fn take(&self, count_max: usize) -> Option<Vec<TransactionJob>> {
        let mut state = self.state.lock();
        loop {
            if !state.waiting.is_empty() {
                return Some(state.take(count_max, clock::now()));
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Returns the number of jobs that no thread has taken yet.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Accepts no more jobs; waiting ones are still run.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
        self.closing.notify_all();
    }

    /// Waits until a time, or until the queue is closed.
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
        (0..20).for_each(|_| queue.push(job(Some("a"), "a")));
        assert_eq!(names(queue.take(16)), ["a"; 16]);
        assert_eq!((names(queue.take(16)), queue.waiting()), (vec!["a"; 4], 0));
    }

    #[test]
    fn callers_take_turns_and_one_has_a_part_of_the_group() {
        let queue = TransactionQueue::new(100);
        (0..20).for_each(|_| queue.push(job(Some("flood"), "flood")));
        for name in ["first", "second"] {
            queue.push(job(Some("quiet"), name));
        }
        queue.push(job(None, "server"));
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

    fn refusal(
        queue: &TransactionQueue,
        before: Option<PrecedingWork>,
    ) -> Option<TransactionAnswer> {
        let body: Body = Box::new(|_| Ok(()));
        let (job, mut answer) = TransactionJob::new("job", TransactionAccess::Write, body);
        match before {
            Some(before) => queue.push_after(before, job),
            None => queue.push(job),
        }
        answer.try_recv().ok()
    }

    #[test]
    fn a_full_queue_and_a_closed_one_say_so() {
        let queue = TransactionQueue::new(2);
        queue.push(job(Some("a"), "a"));
        queue.push(job(None, "b"));
        let refused = refusal(&queue, None).unwrap().result;
        assert!(matches!(refused, Err(SqlStoreError::Busy { waiting_max: 2 })));
        queue.close();
        assert!(matches!(refusal(&queue, None).unwrap().result, Err(SqlStoreError::Closed)));
    }

    #[test]
    fn a_job_whose_preceding_work_fails_is_answered_and_never_handed_over() {
        let queue = TransactionQueue::new(2);
        assert!(refusal(&queue, Some(Box::new(|| Ok(())))).is_none());
        assert_eq!(queue.waiting(), 1);
        let failed = refusal(&queue, Some(Box::new(|| Err(SqlStoreError::Spoiled)))).unwrap();
        assert!(matches!(failed.result, Err(SqlStoreError::Spoiled)));
        assert!(failed.handed_over.is_none());
        let panicked = refusal(&queue, Some(Box::new(|| panic!("no disk")))).unwrap();
        assert!(matches!(panicked.result, Err(SqlStoreError::Panicked(text)) if text == "no disk"));
        assert_eq!(queue.waiting(), 1);
    }
}
