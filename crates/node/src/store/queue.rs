//! Transactions that wait for a thread of the store.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::StoreTransaction;
use super::error::SqlStoreError;

/// What a transaction needs of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionAccess {
    /// Only looks.
    Read,
    /// Writes; run at most once to its end.
    Write,
    /// Writes, and may be run again when nobody knows whether it was committed.
    WriteAgain,
}

/// What a transaction does, leaving its value where its caller will look for it: behind a pointer,
/// so that nothing of the store is compiled for each transaction there is.
pub(super) type Body =
    Box<dyn FnMut(&mut dyn StoreTransaction) -> Result<(), SqlStoreError> + Send>;

/// One transaction on its way, with whoever waits for it.
pub(super) struct TransactionJob {
    /// Names it in metrics.
    pub(super) name: &'static str,
    /// What it needs.
    pub(super) access: TransactionAccess,
    body: Body,
    answer: oneshot::Sender<Result<(), SqlStoreError>>,
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
        (TransactionJob { name, access, body, answer }, receiver)
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

    /// Whether nobody waits for it any more; then it need not begin.
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

/// Jobs in the order they came, for one or more threads.
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
    waiting: VecDeque<TransactionJob>,
    closed: bool,
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
        if state.waiting.len() >= self.waiting_max {
            return Err(SqlStoreError::Busy { waiting_max: self.waiting_max });
        }
        state.waiting.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for work and takes up to `count_max` jobs of it. None when the queue is closed and
    /// empty.
    pub(super) fn take(&self, count_max: usize) -> Option<Vec<TransactionJob>> {
        let mut state = self.state.lock();
        loop {
            if !state.waiting.is_empty() {
                let count = state.waiting.len().min(count_max);
                return Some(state.waiting.drain(..count).collect());
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
        self.state.lock().waiting.len()
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
