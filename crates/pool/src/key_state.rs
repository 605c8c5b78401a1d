//! The idle resources of a key, and the path that leases and returns them without the ledger.
//!
//! Each key has a few stripes; a thread uses its own and searches the others when it is empty. A
//! stripe is a small stack under its own lock, so that independent threads do not contend.
//!
//! # Why no wake-up is lost
//! The ledger raises a *gate* when it must be consulted: an acquirer waits, another key starves,
//! the key is paused or drained. A returning thread reads the gates *while it holds its stripe's
//! lock*; the ledger raises a gate *before* it takes the same lock to look for idle resources. The
//! second to lock sees what the first did: either the ledger finds the resource on the stack, or
//! the returning thread finds the gate raised and goes to the ledger. The lock orders the two, so
//! the gates need no ordering of their own.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::config::{EvictionTier, KeyLimits};
use crate::pool::PoolInner;
use crate::stats::{KeyCounters, KeyFigures, KeyStats};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, fence, stripe_of_thread};

/// Flag: an acquirer waits for this key.
pub(crate) const GATE_WAITERS: u32 = 1;
/// The key is paused: acquirers wait although there may be idle resources.
pub(crate) const GATE_PAUSED: u32 = 2;
/// The key refuses acquirers and keeps no resources.
pub(crate) const GATE_DRAINING: u32 = 4;
/// The key was forgotten; its handles are stale.
pub(crate) const GATE_GONE: u32 = 8;

/// A resource and the pool's data about it. Boxed once when it is opened, so that moving it between
/// a stack, a waiter and a lease moves one pointer.
#[derive(Debug)]
pub(crate) struct PooledEntry<K, R> {
    pub(crate) resource: R,
    /// The key it belongs to.
    pub(crate) key_state: Arc<EntryAnchor<K, R>>,
    /// End of its lifetime, jitter included.
    pub(crate) expires_at: Instant,
    /// Time at which it was last leased or returned.
    pub(crate) used_at: Instant,
    pub(crate) tier: EvictionTier,
}

pub(crate) type Held<K, R> = Box<PooledEntry<K, R>>;

/// An entry's reference to the state of its key, behind a reference count of the entry's own:
/// returning an entry takes a second reference, because the stack that it goes to is inside the
/// object referred to, and all threads would contend for one count.
pub(crate) struct EntryAnchor<K, R>(Arc<KeyState<K, R>>);

impl<K, R> EntryAnchor<K, R> {
    pub(crate) fn new(key_state: &Arc<KeyState<K, R>>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(key_state)))
    }
}

impl<K, R> Deref for EntryAnchor<K, R> {
    type Target = KeyState<K, R>;

    fn deref(&self) -> &KeyState<K, R> {
        &self.0
    }
}

/// Keeps data written by different threads on separate cache lines; 128 because processors fetch
/// lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CacheStripe<K, R> {
    stack: Mutex<Vec<Held<K, R>>>,
    /// Length of `stack`; written under its lock, read by any thread.
    idle: AtomicUsize,
    /// Leases that started here; written under the lock of `stack`, read by any thread.
    acquired: AtomicU64,
}

/// State of one key that handles, leases and the ledger share.
pub(crate) struct KeyState<K, R> {
    pub(crate) key: K,
    /// Place of the key's record in the ledger; valid until `GATE_GONE`.
    pub(crate) id: usize,
    pub(crate) pool: Arc<PoolInner<K, R>>,
    /// `GATE_*` bits; written by the ledger only.
    pub(crate) gate: AtomicU32,
    /// Copy of the limit for the path without the ledger; written by the ledger only.
    pub(crate) min_idle: AtomicUsize,
    pub(crate) figures: KeyFigures,
    stripes: Box<[CacheStripe<K, R>]>,
}

impl<K, R> KeyState<K, R> {
    /// `stripes` is a power of two.
    pub(crate) fn new(
        key: K,
        id: usize,
        pool: Arc<PoolInner<K, R>>,
        stripes: usize,
        limits: &KeyLimits,
    ) -> Self {
        let stripes = (0..stripes)
            .map(|_| CacheStripe {
                stack: Mutex::new(Vec::new()),
                idle: AtomicUsize::new(0),
                acquired: AtomicU64::new(0),
            })
            .collect();
        Self {
            key,
            id,
            pool,
            gate: AtomicU32::new(0),
            min_idle: AtomicUsize::new(limits.min_idle),
            figures: KeyFigures::new(limits),
            stripes,
        }
    }

    fn gates_are_down(&self) -> bool {
        self.gate.load(Ordering::Relaxed) == 0 && self.pool.shared.gate.load(Ordering::Relaxed) == 0
    }

    fn own_stripe(&self) -> usize {
        stripe_of_thread() & (self.stripes.len() - 1)
    }

    /// Returns this thread's stripe first, then the others.
    fn stripes_from_own(&self) -> impl Iterator<Item = &CacheStripe<K, R>> {
        let (before, from) = self.stripes.split_at(self.own_stripe());
        from.iter().chain(before)
    }

    /// Takes an idle resource without the ledger; none if the ledger must be consulted.
    pub(crate) fn take_fast(&self, now: Instant) -> Option<Held<K, R>> {
        for stripe in self.stripes_from_own() {
            if stripe.idle.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut stack = stripe.stack.lock();
            if !self.gates_are_down() {
                return None;
            }
            match stack.last() {
                Some(entry) if entry.expires_at > now => {}
                // Only the ledger may retire it.
                Some(_) => return None,
                None => continue,
            }
            let Some(mut held) = stack.pop() else { continue };
            stripe.note(&stack);
            stripe.acquired.store(stripe.acquired.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            drop(stack);
            held.used_at = now;
            return Some(held);
        }
        None
    }

    /// Returns a resource without the ledger, or hands it back because the ledger must be
    /// consulted.
    pub(crate) fn give_fast(&self, held: Held<K, R>) -> Result<(), Held<K, R>> {
        let Some(stripe) = self.stripes.get(self.own_stripe()) else { return Err(held) };
        let mut stack = stripe.stack.lock();
        // Under the lock: the proof at the top of the file relies on this order.
        if !self.gates_are_down() {
            drop(stack);
            return Err(held);
        }
        stack.push(held);
        stripe.note(&stack);
        Ok(())
    }

    /// Returns whether fewer than `min_idle` are idle or being opened, so that the ledger should
    /// open some.
    ///
    /// Two threads may take from two stripes at the same time. With the fence at least one of them
    /// sees the other's store, so at least one of them returns true.
    pub(crate) fn is_short(&self) -> bool {
        let min_idle = self.min_idle.load(Ordering::Relaxed);
        if min_idle == 0 {
            return false;
        }
        fence(Ordering::SeqCst);
        self.idle() + self.figures.opening.load(Ordering::Relaxed) < min_idle
    }

    /// Returns the number of idle resources. Exact while the ledger is locked and a gate is up, an
    /// estimate otherwise.
    pub(crate) fn idle(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.idle.load(Ordering::Relaxed)).sum()
    }

    /// For the ledger: takes the resource to reuse next, this thread's most recent one or another
    /// stripe's.
    pub(crate) fn take_any(&self) -> Option<Held<K, R>> {
        for stripe in self.stripes_from_own() {
            let mut stack = stripe.stack.lock();
            if let Some(held) = stack.pop() {
                stripe.note(&stack);
                return Some(held);
            }
        }
        None
    }

    /// For the ledger: makes a resource idle, whatever the gates say.
    pub(crate) fn put(&self, held: Held<K, R>) {
        if let Some(stripe) = self.stripes.get(self.own_stripe()) {
            let mut stack = stripe.stack.lock();
            stack.push(held);
            stripe.note(&stack);
        }
    }

    /// For the ledger: makes room for `live` resources in every stripe, so that returning one never
    /// allocates.
    pub(crate) fn reserve(&self, live: usize) {
        for stripe in &self.stripes {
            let mut stack = stripe.stack.lock();
            let missing = live.saturating_sub(stack.len());
            stack.reserve(missing);
        }
    }

    /// For the ledger: calls `visit` with every idle resource, each stripe from the least to the
    /// most recently used.
    pub(crate) fn for_each_idle(&self, mut visit: impl FnMut(&PooledEntry<K, R>)) {
        for stripe in &self.stripes {
            for held in stripe.stack.lock().iter() {
                visit(held);
            }
        }
    }

    /// For the ledger: takes out the first idle resource that `wanted` accepts.
    pub(crate) fn take_where(
        &self,
        mut wanted: impl FnMut(&PooledEntry<K, R>) -> bool,
    ) -> Option<Held<K, R>> {
        for stripe in &self.stripes {
            let mut stack = stripe.stack.lock();
            if let Some(position) = stack.iter().position(|held| wanted(held)) {
                let held = stack.remove(position);
                stripe.note(&stack);
                return Some(held);
            }
        }
        None
    }

    /// Reads the figures without a lock; see [`KeyStats`] for their meaning.
    #[inline]
    pub(crate) fn stats(&self) -> KeyStats {
        self.figures.read(self.idle())
    }

    /// As [`Self::stats`], for the counters.
    pub(crate) fn counters(&self) -> KeyCounters {
        self.figures.read_counters(
            self.stripes.iter().map(|stripe| stripe.acquired.load(Ordering::Relaxed)).sum(),
        )
    }
}

impl<K, R> CacheStripe<K, R> {
    /// Publishes the length of the stack whose lock the caller holds.
    fn note(&self, stack: &[Held<K, R>]) {
        self.idle.store(stack.len(), Ordering::Relaxed);
    }
}

impl<K, R> std::fmt::Debug for EntryAnchor<K, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Anchor").finish_non_exhaustive()
    }
}

impl<K: std::fmt::Debug, R> std::fmt::Debug for KeyState<K, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home")
            .field("key", &self.key)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
