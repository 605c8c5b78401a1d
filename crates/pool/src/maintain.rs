//! Changes of a pool over time and by command: ticks, pause and resume, drain, close, changed
//! limits.

use std::sync::Arc;
use std::time::Instant;

use crate::config::KeyLimits;
use crate::error::{AcquireError, RetireReason};
use crate::key_state::{GATE_DRAINING, GATE_GONE, GATE_PAUSED, KeyState};
use crate::ledger::{LockedLedger, POOL_CLOSED, POOL_PAUSED, count, get, raise, take_first_to_go};
use crate::stats::bump;
use crate::sync::Ordering;

impl<K, R> LockedLedger<'_, K, R> {
    /// Expires deadlines, closes resources that are too old or idle for too long, retries
    /// background opens.
    pub(crate) fn tick(&mut self) {
        self.ledger.due = None;
        self.for_each_key(|ledger, id| {
            ledger.expire_waiters(id);
            ledger.reap(id);
            ledger.refill(id);
        });
        // A waiter that left may have been the one that held a place in the queue of starving keys.
        self.fill();
    }

    fn expire_waiters(&mut self, id: usize) {
        let now = self.now;
        let mut queue = self.ledger.record(id).queue;
        let key_state = Arc::clone(&self.ledger.record(id).key_state);
        let wakes = &mut *self.wakes;
        let earliest = self.ledger.waiters.expire(&mut queue, now, |waker| {
            bump(&key_state.figures.timeouts);
            wakes.push(waker);
        });
        self.ledger.record(id).queue = queue;
        self.note_waiting(id);
        if let Some(earliest) = earliest {
            self.due_by(earliest);
        }
    }

    /// Closes idle resources whose time has come; for idleness never below `min_idle`.
    fn reap(&mut self, id: usize) {
        let now = self.now;
        let record = self.ledger.record(id);
        let key_state = Arc::clone(&record.key_state);
        let (idle_timeout, min_idle) = (record.limits.idle_timeout, record.limits.min_idle);
        let retry_at = record.retry_at.filter(|retry_at| *retry_at > now);
        while let Some(held) = key_state.take_where(|entry| entry.expires_at <= now) {
            self.retire(held, RetireReason::Lifetime);
        }
        // The stacks are ordered by use, so the first match is the least recently used of its
        // stripe.
        while key_state.idle() > min_idle {
            let Some(held) = key_state.take_where(|entry| entry.used_at + idle_timeout <= now)
            else {
                break;
            };
            self.retire(held, RetireReason::Idle);
        }
        if count(&key_state.figures.live) > 0 {
            // A resource that becomes idle after this tick is due no earlier than this.
            let mut due = now + idle_timeout;
            key_state.for_each_idle(|entry| {
                due = due.min(entry.expires_at).min((entry.used_at + idle_timeout).max(now))
            });
            // Resources kept for `min_idle` are past their time already; checking them again at
            // once would not help.
            if due <= now {
                due = now + idle_timeout;
                key_state.for_each_idle(|entry| due = due.min(entry.expires_at));
            }
            self.due_by(due);
        }
        if let Some(retry_at) = retry_at {
            self.due_by(retry_at);
        }
    }

    /// Holds acquirers of one key, or of all, back. Leases remain valid.
    pub(crate) fn pause(&self, key_state: Option<&KeyState<K, R>>) {
        match key_state {
            Some(key_state) => raise(&key_state.gate, GATE_PAUSED, true),
            None => raise(&self.shared.gate, POOL_PAUSED, true),
        }
    }

    /// Ends [`Self::pause`], and a drain of a key.
    pub(crate) fn resume(&mut self, key_state: Option<&KeyState<K, R>>) {
        match key_state {
            Some(key_state) if get(&key_state.gate) & GATE_GONE == 0 => {
                raise(&key_state.gate, GATE_PAUSED | GATE_DRAINING, false);
                self.serve_idle(key_state.id);
                self.request(key_state.id);
            }
            Some(_) => {}
            None => {
                raise(&self.shared.gate, POOL_PAUSED, false);
                // First each key's idle resources go to its own waiters; only then do the remaining
                // waiters request more.
                self.for_each_key(Self::serve_idle);
                self.for_each_key(Self::request);
            }
        }
    }

    fn for_each_key(&mut self, mut act: impl FnMut(&mut Self, usize)) {
        for id in 0..self.ledger.records.len() {
            if self.ledger.records.get(id).is_some_and(Option::is_some) {
                act(self, id);
            }
        }
    }

    /// Refuses acquirers of a key and closes what it holds; leases end in their own time.
    pub(crate) fn drain(&mut self, key_state: &KeyState<K, R>) {
        if get(&key_state.gate) & GATE_GONE == 0 {
            raise(&key_state.gate, GATE_DRAINING, true);
            self.empty(key_state.id, &AcquireError::Draining, RetireReason::Drained);
            self.fill();
        }
    }

    /// Ends the pool.
    pub(crate) fn close(&mut self) {
        raise(&self.shared.gate, POOL_CLOSED, true);
        self.for_each_key(|ledger, id| {
            ledger.empty(id, &AcquireError::Closed, RetireReason::Closed)
        });
        self.fill();
        // The driver may be waiting for a decision that will never be made.
        self.wake_driver();
    }

    fn empty(&mut self, id: usize, error: &AcquireError, reason: RetireReason) {
        let key_state = Arc::clone(&self.ledger.record(id).key_state);
        while !self.ledger.record(id).queue.is_empty() {
            self.fail_first(id, error.clone());
        }
        while let Some(held) = key_state.take_any() {
            self.retire(held, reason);
        }
    }

    /// Sets new bounds for a key; resources beyond them are closed when they are returned or idle.
    pub(crate) fn limit_key(&mut self, key_state: &KeyState<K, R>, limits: KeyLimits) {
        if get(&key_state.gate) & GATE_GONE != 0 {
            return;
        }
        key_state.min_idle.store(limits.min_idle, Ordering::Relaxed);
        key_state.figures.min_idle.store(limits.min_idle, Ordering::Relaxed);
        key_state.figures.max.store(limits.max, Ordering::Relaxed);
        let max = limits.max;
        self.ledger.record(key_state.id).limits = limits;
        while count(&key_state.figures.live) - count(&key_state.figures.closing) > max {
            let Some(held) = take_first_to_go(key_state) else { break };
            self.retire(held, RetireReason::OverLimit);
        }
        self.request(key_state.id);
        self.refill(key_state.id);
        self.due_by(self.now);
    }

    /// Sets a new total bound; resources beyond it are only closed for other reasons.
    pub(crate) fn limit_total(&mut self, total_max: usize) {
        self.ledger.config.total_max = total_max;
        self.shared.figures.total_max.store(total_max, Ordering::Relaxed);
        self.fill();
        self.due_by(self.now);
    }

    /// Returns when the driver should call for the next tick.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.ledger.due
    }
}

impl<K: Eq + std::hash::Hash, R> LockedLedger<'_, K, R> {
    /// Removes a key that has no resources, no waiters and no promises.
    pub(crate) fn forget(&mut self, key: &K) -> bool {
        let Some(&id) = self.ledger.names.get(key) else { return true };
        let record = self.ledger.record(id);
        let in_use = count(&record.key_state.figures.live) > 0
            || !record.queue.is_empty()
            || record.promised > 0;
        if in_use {
            return false;
        }
        raise(&record.key_state.gate, GATE_GONE, true);
        let row = &mut self.ledger.starved;
        row.retain(|starved| *starved != id);
        self.ledger.names.remove(key);
        self.ledger.records[id] = None;
        true
    }
}
