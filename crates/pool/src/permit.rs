//! Permits that the driver holds while it opens or closes a resource. Both count against the bounds
//! until they are dropped, so that a driver that forgets one, panics or is cancelled cannot leak a
//! slot.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use crate::config::EvictionTier;
use crate::error::{AbandonedTicket, OpenError, RetireReason};
use crate::key_state::{Held, KeyState};

/// The duty to open one resource. Dropped without an answer, it counts as failed with
/// [`AbandonedTicket`].
#[must_use = "a dropped ticket is a failed open"]
pub struct Ticket<K, R> {
    /// Taken when the ticket is answered.
    key_state: Option<Arc<KeyState<K, R>>>,
}

impl<K, R> Ticket<K, R> {
    pub(crate) fn new(key_state: Arc<KeyState<K, R>>) -> Self {
        Self { key_state: Some(key_state) }
    }

    /// Returns the key to open for.
    #[must_use]
    pub fn key(&self) -> &K {
        match &self.key_state {
            Some(key_state) => &key_state.key,
            None => unreachable!("an answered ticket is consumed"),
        }
    }

    /// Adds the opened resource to the pool.
    pub fn opened(self, resource: R, now: Instant) {
        self.opened_with(resource, EvictionTier::default(), now);
    }

    /// Adds the opened resource to the pool, with an eviction tier.
    pub fn opened_with(mut self, resource: R, tier: EvictionTier, now: Instant) {
        if let Some(key_state) = self.key_state.take() {
            key_state
                .pool
                .with_ledger(Some(now), |ledger| ledger.opened(&key_state, resource, tier));
        }
    }

    /// Reports that the open failed. The longest waiting acquirer of this key gets `error`.
    pub fn failed(mut self, error: OpenError, now: Instant) {
        if let Some(key_state) = self.key_state.take() {
            key_state.pool.with_ledger(Some(now), |ledger| ledger.open_failed(&key_state, error));
        }
    }
}

impl<K, R> Drop for Ticket<K, R> {
    fn drop(&mut self) {
        if let Some(key_state) = self.key_state.take() {
            key_state.pool.with_ledger(None, |ledger| {
                ledger.open_failed(&key_state, Arc::new(AbandonedTicket))
            });
        }
    }
}

impl<K: fmt::Debug, R> fmt::Debug for Ticket<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(self.key()).finish()
    }
}

/// A resource that left the pool and must be closed. It counts against the bounds until this value
/// is dropped.
pub struct RetiredResource<K, R> {
    /// Taken when it is dropped.
    held: Option<Held<K, R>>,
    reason: RetireReason,
}

impl<K, R> RetiredResource<K, R> {
    pub(crate) fn new(held: Held<K, R>, reason: RetireReason) -> Self {
        Self { held: Some(held), reason }
    }

    /// Returns the key it belonged to.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.held().key_state.key
    }

    /// Returns why it must be closed.
    #[must_use]
    pub fn reason(&self) -> RetireReason {
        self.reason
    }

    /// Takes the resource out. Its place is free from now on: if closing the resource takes time,
    /// keep the whole value until then.
    #[must_use]
    pub fn into_inner(mut self) -> R {
        match self.held.take() {
            Some(held) => {
                let entry = *held;
                entry.key_state.pool.with_ledger(None, |ledger| ledger.closed(&entry.key_state));
                entry.resource
            }
            None => unreachable!("only drop takes it, and it has not run"),
        }
    }

    fn held(&self) -> &Held<K, R> {
        match &self.held {
            Some(held) => held,
            None => unreachable!("only drop takes it, and it has not run"),
        }
    }
}

impl<K, R> Deref for RetiredResource<K, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.held().resource
    }
}

impl<K, R> DerefMut for RetiredResource<K, R> {
    fn deref_mut(&mut self) -> &mut R {
        match &mut self.held {
            Some(held) => &mut held.resource,
            None => unreachable!("only drop takes it, and it has not run"),
        }
    }
}

impl<K, R> Drop for RetiredResource<K, R> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let entry = *held;
            // The resource is dropped before its place is freed, so a bound on open connections
            // holds at every instant.
            drop(entry.resource);
            entry.key_state.pool.with_ledger(None, |ledger| ledger.closed(&entry.key_state));
        }
    }
}

impl<K: fmt::Debug, R> fmt::Debug for RetiredResource<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retired")
            .field("key", self.key())
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}
