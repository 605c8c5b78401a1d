//! A pool of one thread: its state, without the steps that involve other pools.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::registry::{PoolShared, PoolTerms};
use super::{
    CHARGE_EVERY, FORGET_AFTER, LOOKED_AT_MAX, LeaseRefusal, PoolGate, REMIND_EVERY, sooner,
};

/// A pool on this thread.
pub(super) struct LocalPool<C, W> {
    pub(super) common: Arc<PoolShared>,
    pub(super) terms: PoolTerms,
    pub(super) gate: PoolGate,
    /// Clients that use it.
    pub(super) members: u32,
    /// Idle connections, the most recently used last.
    pub(super) idle: Vec<IdleServer<C>>,
    /// Waiting clients, the longest first.
    pub(super) waiting: VecDeque<PoolWaiter<W>>,
    /// Ticket of the next client. Never reused, so that a stale ticket matches no client.
    pub(super) next_ticket: u64,
    pub(super) leased: u32,
    /// Connections that are being opened: the number of slots marked as opening.
    pub(super) opening: Arc<AtomicU32>,
    /// True if another thread was asked for connections and has not answered.
    pub(super) asking: bool,
    /// True if the shares and other threads know that clients wait here.
    pub(super) starving: bool,
    /// Time at which the claim is renewed.
    pub(super) remind_at: Instant,
    /// Busy time that was not charged yet.
    pub(super) busy_us: u64,
    pub(super) charge_at: Instant,
    /// Time at which the last client left.
    pub(super) left_at: Instant,
    /// Time in the agenda.
    pub(super) due: Option<Instant>,
}

#[derive(Clone, Copy)]
pub(super) struct IdleServer<C> {
    pub(super) conn: C,
    pub(super) settings: u64,
    pub(super) since: Instant,
    pub(super) expires: Option<Instant>,
}

pub(super) struct PoolWaiter<W> {
    pub(super) ticket: u64,
    pub(super) client: W,
    pub(super) since: Instant,
}

impl<C, W> LocalPool<C, W> {
    /// Returns since when the first client waits, if one does.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.waiting.front().map(|waiter| waiter.since)
    }

    /// Returns the number of waiting clients.
    pub(super) fn waiters(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// Returns how many connections are being opened.
    pub(super) fn opening(&self) -> u32 {
        self.opening.load(Ordering::Relaxed)
    }

    pub(super) fn pop_waiter(&mut self) -> Option<PoolWaiter<W>> {
        let waiter = self.waiting.pop_front()?;
        self.common.end_to_wait(1);
        Some(waiter)
    }

    /// Publishes since when the longest idle connection is idle.
    pub(super) fn publish_idle(&self, thread: usize) {
        self.common.key.set_idle(thread, self.idle.first().map(|idle| idle.since));
    }

    pub(super) fn is_unused(&self) -> bool {
        self.members == 0
            && self.waiting.is_empty()
            && self.idle.is_empty()
            && self.leased + self.opening() == 0
    }
}

impl<C: Copy + Eq, W> LocalPool<C, W> {
    /// Returns the best idle connection: the client's last one if that has its settings, then one
    /// that has them, then the most recently used.
    pub(super) fn choose(&self, settings: u64, last: Option<C>) -> Option<usize> {
        let top = self.idle.len().checked_sub(1)?;
        let lowest = self.idle.len().saturating_sub(LOOKED_AT_MAX);
        let fits = |at: &usize| self.idle[*at].settings == settings;
        let mut fitting = (lowest..=top).rev().filter(fits);
        let first = fitting.next();
        let mine = |at: &usize| Some(self.idle[*at].conn) == last;
        first.into_iter().chain(fitting).find(mine).or(first).or(Some(top))
    }

    /// Returns the reason to refuse all clients while there is no connection and the retry time has
    /// not come.
    pub(super) fn down(&self, now: Instant) -> Option<LeaseRefusal> {
        if self.common.live() > 0 {
            return None;
        }
        let trouble = self.common.trouble().filter(|trouble| now < trouble.retry_at)?;
        Some(LeaseRefusal::Down(trouble.failure))
    }

    pub(super) fn charge(&mut self, now: Instant) {
        self.charge_at = now + CHARGE_EVERY;
        let busy_us = std::mem::take(&mut self.busy_us);
        if busy_us > 0 {
            self.common.key.charge(busy_us, now);
        }
    }

    pub(super) fn lacks_min(&self, thread: usize) -> bool {
        self.gate == PoolGate::Open
            && self.members > 0
            && self.common.home == thread
            && self.common.live() < self.terms.connections_min
    }

    /// Returns the time of the next check that no event triggers.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        let mut next = None;
        if let Some(since) = self.waits_since() {
            next = sooner(next, self.terms.wait.map(|wait| since + wait));
            next = sooner(next, Some(now + REMIND_EVERY));
        }
        if let Some(first) = self.idle.first() {
            next = sooner(next, self.terms.idle.map(|limit| first.since + limit));
            let expires = self.idle.iter().filter_map(|idle| idle.expires).min();
            next = sooner(next, expires);
        }
        if self.busy_us > 0 || self.leased > 0 {
            next = sooner(next, Some(now + CHARGE_EVERY));
        }
        if self.members > 0 && self.terms.connections_min > 0 {
            next = sooner(next, Some(now + CHARGE_EVERY));
        }
        if self.members == 0 {
            next = sooner(next, Some(self.left_at + FORGET_AFTER));
        }
        // Actions that were not possible at their time are retried a moment later, not at once.
        next.map(|next| next.max(now + Duration::from_millis(1)))
    }
}
