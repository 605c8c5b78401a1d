//! A leased resource.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use crate::config::EvictionTier;
use crate::key_state::Held;

/// Exclusive use of a resource. Dropping it returns the resource to the next waiter, or to the idle
/// ones.
pub struct Lease<K, R> {
    /// Taken when the lease ends.
    held: Option<Held<K, R>>,
}

impl<K, R> Lease<K, R> {
    pub(crate) fn new(held: Held<K, R>) -> Self {
        Self { held: Some(held) }
    }

    /// Returns the key it belongs to.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.held().key_state.key
    }

    /// Sets the eviction tier that applies once it is idle again.
    pub fn set_tier(&mut self, tier: EvictionTier) {
        if let Some(held) = &mut self.held {
            held.tier = tier;
        }
    }

    /// Returns it at a known time. Dropping does the same with the time of the last tick, which can
    /// make it look idle for longer by as much as that tick is old.
    pub fn release(mut self, now: Instant) {
        if let Some(mut held) = self.held.take() {
            held.used_at = now;
            give_back(held);
        }
    }

    /// Gives it up for good: the driver closes it, and its place is free once it is closed.
    pub fn discard(mut self) {
        if let Some(held) = self.held.take() {
            let key_state = Arc::clone(&held.key_state);
            key_state.pool.with_ledger(None, |ledger| ledger.discard(held));
        }
    }

    /// Takes the resource out of the pool. Its place is free at once, although the resource still
    /// exists: to bound external resources by this pool, use [`Self::discard`].
    #[must_use]
    pub fn into_inner(mut self) -> R {
        match self.held.take() {
            Some(held) => {
                let entry = *held;
                entry.key_state.pool.with_ledger(None, |ledger| ledger.taken_out(&entry.key_state));
                entry.resource
            }
            None => unreachable!("only methods that consume the lease take it"),
        }
    }

    fn held(&self) -> &Held<K, R> {
        match &self.held {
            Some(held) => held,
            None => unreachable!("only methods that consume the lease take it"),
        }
    }
}

/// Ends a lease, without the ledger if it need not be consulted.
fn give_back<K, R>(mut held: Held<K, R>) {
    // A reference count of this entry's own, see `PooledEntry::key_state`: the stack that the entry
    // goes to is inside the object referred to.
    let key_state = Arc::clone(&held.key_state);
    held.used_at = held.used_at.max(key_state.pool.now());
    if held.expires_at > held.used_at {
        held = match key_state.give_fast(held) {
            Ok(()) => return,
            Err(held) => held,
        };
    }
    key_state.pool.with_ledger(None, |ledger| ledger.give_back(held));
}

impl<K, R> Deref for Lease<K, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.held().resource
    }
}

impl<K, R> DerefMut for Lease<K, R> {
    fn deref_mut(&mut self) -> &mut R {
        match &mut self.held {
            Some(held) => &mut held.resource,
            None => unreachable!("only methods that consume the lease take it"),
        }
    }
}

impl<K, R> Drop for Lease<K, R> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            give_back(held);
        }
    }
}

impl<K: fmt::Debug, R: fmt::Debug> fmt::Debug for Lease<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", self.key()).field("resource", &**self).finish()
    }
}
