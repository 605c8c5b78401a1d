//! Public interface of a pool: its handle, handles per key, and the driver's side.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::acquire::Acquire;
use crate::config::{KeyLimits, PoolConfig, STRIPES_MAX};
use crate::error::AcquireError;
use crate::key_state::{GATE_GONE, KeyState};
use crate::lease::Lease;
use crate::ledger::{
    Ledger, LedgerDecision, LockedLedger, POOL_CLOSED, WakeList, count, get, raise,
};
use crate::permit::{RetiredResource, Ticket};
use crate::stats::{KeyCounters, KeyStats, PoolFigures, PoolStats};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// A bounded pool of resources `R` kept apart by key `K`. See the [crate's front page](crate).
///
/// A cheap handle: clones refer to the same pool. Dropping the last one closes the pool.
pub struct Pool<K, R> {
    owner: Arc<PoolOwner<K, R>>,
}

/// Closes the pool when the last [`Pool`] is dropped. Leases and key handles hold [`PoolInner`]
/// instead, so that they do not keep a pool open that has no driver.
struct PoolOwner<K, R> {
    inner: Arc<PoolInner<K, R>>,
}

/// Shared state of a pool.
pub(crate) struct PoolInner<K, R> {
    pub(crate) shared: PoolFlags,
    /// Guards all decisions. Locked before any stripe's lock, never after.
    ledger: Mutex<Ledger<K, R>>,
}

/// Flags that are read without the ledger's lock and written under it.
pub(crate) struct PoolFlags {
    /// `POOL_*` bits.
    pub(crate) gate: AtomicU32,
    pub(crate) figures: PoolFigures,
    epoch: Instant,
    /// Latest `now` of a tick or another visit to the ledger, in nanoseconds after `epoch`. Leases
    /// that are dropped without a clock at hand use it; it is at most one tick old.
    clock: AtomicU64,
    /// Set when the last [`Pool`] is dropped: no driver takes decisions any more.
    abandoned: AtomicU32,
}

impl PoolFlags {
    fn now(&self) -> Instant {
        self.epoch + Duration::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    fn advance(&self, now: Instant) {
        let nanos =
            u64::try_from(now.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        if nanos > self.clock.load(Ordering::Relaxed) {
            self.clock.store(nanos, Ordering::Relaxed);
        }
    }
}

impl<K, R> PoolInner<K, R> {
    /// Returns the latest time that was passed to the pool.
    pub(crate) fn now(&self) -> Instant {
        self.shared.now()
    }

    /// Calls `act` with the ledger locked, then wakes the waiters that `act` listed. Without `now`,
    /// the latest known time is used: only for `Drop`, where no clock is at hand.
    pub(crate) fn with_ledger<T>(
        &self,
        now: Option<Instant>,
        act: impl FnOnce(&mut LockedLedger<'_, K, R>) -> T,
    ) -> T {
        let mut wakes = WakeList::default();
        let result = {
            let mut ledger = self.ledger.lock();
            let now = match now {
                Some(now) => {
                    self.shared.advance(now);
                    now
                }
                None => self.shared.now(),
            };
            act(&mut LockedLedger {
                ledger: &mut ledger,
                shared: &self.shared,
                wakes: &mut wakes,
                now,
            })
        };
        wakes.wake();
        if self.shared.abandoned.load(Ordering::Relaxed) != 0 {
            self.settle_abandoned();
        }
        result
    }

    /// Performs the remaining decisions after the driver is gone: drops resources to close, refuses
    /// to open. When nothing is left, takes the ledger apart.
    fn settle_abandoned(&self) {
        // All at once: each effect's permit locks the ledger when it is dropped and calls this
        // function again.
        let decisions = std::mem::take(&mut self.ledger.lock().decisions);
        for decision in decisions {
            drop(DriverEffect::from(decision));
        }
        if count(&self.shared.figures.live) == 0 {
            // Records refer to key states and those to `PoolInner`: this breaks the cycle. Stale
            // handles see the gate.
            let mut ledger = self.ledger.lock();
            let records = std::mem::take(&mut ledger.records);
            let names = std::mem::take(&mut ledger.names);
            for record in records.iter().flatten() {
                raise(&record.key_state.gate, GATE_GONE, true);
            }
            drop(ledger);
            drop((records, names));
        }
    }

    fn next_decision(&self) -> Option<DriverEffect<K, R>> {
        let decision = self.ledger.lock().decisions.pop_front();
        decision.map(DriverEffect::from)
    }
}

/// Effects for the driver to perform. They can safely be performed one after another in the order
/// in which they are returned.
#[derive(Debug)]
pub enum DriverEffect<K, R> {
    /// Open a resource for the ticket's key and answer with [`Ticket::opened`] or
    /// [`Ticket::failed`].
    Open(Ticket<K, R>),
    /// Close this resource, then drop it: until then it counts against the bounds.
    Close(RetiredResource<K, R>),
    /// Call [`Pool::tick`] no later than this instant; replaces earlier `TickAt` effects.
    TickAt(Instant),
}

impl<K, R> From<LedgerDecision<K, R>> for DriverEffect<K, R> {
    fn from(decision: LedgerDecision<K, R>) -> Self {
        match decision {
            LedgerDecision::Open(key_state) => Self::Open(Ticket::new(key_state)),
            LedgerDecision::Close(held, reason) => Self::Close(RetiredResource::new(held, reason)),
        }
    }
}

impl<K: Eq + Hash + Clone, R> Pool<K, R> {
    /// Creates an empty pool. Its time starts at `now`.
    #[must_use]
    pub fn new(mut config: PoolConfig, now: Instant) -> Self {
        config.stripes = config.stripes.clamp(1, STRIPES_MAX).next_power_of_two();
        let shared = PoolFlags {
            gate: AtomicU32::new(0),
            figures: PoolFigures::new(config.total_max),
            epoch: now,
            clock: AtomicU64::new(0),
            abandoned: AtomicU32::new(0),
        };
        let inner = Arc::new(PoolInner { shared, ledger: Mutex::new(Ledger::new(config)) });
        Self { owner: Arc::new(PoolOwner { inner }) }
    }

    /// Returns the handle of `key`, which saves the look-up that [`Self::acquire`] makes each time.
    /// A new key gets the limits of [`PoolConfig::key`] and starts opening its `min_idle`.
    ///
    /// # Errors
    /// [`AcquireError::Full`] if there are `keys_max` keys, [`AcquireError::Closed`] if the pool is
    /// closed.
    pub fn key(&self, key: &K) -> Result<KeyHandle<K, R>, AcquireError> {
        self.handle(key, None)
    }

    /// As [`Self::key`], with limits of its own. For an existing key they replace the present ones.
    ///
    /// # Errors
    /// As [`Self::key`].
    pub fn key_with(&self, key: &K, limits: KeyLimits) -> Result<KeyHandle<K, R>, AcquireError> {
        let handle = self.handle(key, Some(limits.clone()))?;
        self.inner().with_ledger(None, |ledger| ledger.limit_key(&handle.key_state, limits));
        Ok(handle)
    }

    fn handle(&self, key: &K, limits: Option<KeyLimits>) -> Result<KeyHandle<K, R>, AcquireError> {
        let inner = self.inner();
        inner
            .with_ledger(None, |ledger| ledger.key_state_of(key, limits, inner))
            .map(|key_state| KeyHandle { key_state })
    }

    /// Waits for a resource of `key` until `deadline`. Frequent callers should keep a
    /// [`KeyHandle`].
    ///
    /// Nothing happens before the first poll. The deadline passes in a [`tick`](Self::tick).
    pub fn acquire(&self, key: &K, now: Instant, deadline: Instant) -> Acquire<'static, K, R> {
        Acquire::owned(self.key(key), now, deadline)
    }

    /// Returns a resource of `key` if one is idle and no acquirer waits. Opens nothing.
    ///
    /// # Errors
    /// As [`Self::key`], and [`AcquireError::Draining`].
    pub fn try_acquire(&self, key: &K, now: Instant) -> Result<Option<Lease<K, R>>, AcquireError> {
        self.key(key)?.try_acquire(now)
    }

    /// Removes a key that has no resources and no waiters; its handles are refused from then on.
    /// Returns whether the key is absent afterwards. Drain it first.
    #[must_use]
    pub fn forget(&self, key: &K) -> bool {
        self.inner().with_ledger(None, |ledger| ledger.forget(key))
    }
}

impl<K, R> Pool<K, R> {
    fn inner(&self) -> &Arc<PoolInner<K, R>> {
        &self.owner.inner
    }

    /// Advances time: deadlines, idle timeouts, lifetimes, background opens.
    pub fn tick(&self, now: Instant) {
        self.inner().with_ledger(Some(now), |ledger| ledger.tick());
    }

    /// Returns when [`Self::tick`] should be called next; none if no tick is needed.
    /// [`DriverEffect::TickAt`] announces changes.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        self.inner().with_ledger(None, |ledger| ledger.due())
    }

    /// Returns the next effect, without waiting.
    #[must_use]
    pub fn try_next_effect(&self) -> Option<DriverEffect<K, R>> {
        self.inner().next_decision()
    }

    /// Returns all pending effects, without waiting.
    #[must_use]
    pub fn take_effects(&self) -> Vec<DriverEffect<K, R>> {
        std::iter::from_fn(|| self.try_next_effect()).collect()
    }

    /// Waits for the next effect; `None` when the pool is closed and has no resources left.
    /// Cancel-safe. Use one driver at a time: a second one would take the first one's wake-ups.
    pub fn next_effect(&self) -> NextEffect<'_, K, R> {
        NextEffect { pool: self }
    }

    /// Holds all acquirers back; leases remain valid and returned resources become idle.
    pub fn pause(&self) {
        self.inner().with_ledger(None, |ledger| ledger.pause(None));
    }

    /// Ends [`Self::pause`]. Keys that are paused individually remain paused.
    pub fn resume(&self, now: Instant) {
        self.inner().with_ledger(Some(now), |ledger| ledger.resume(None));
    }

    /// Changes [`PoolConfig::total_max`]. With a lower bound the pool opens nothing until enough
    /// resources are closed; it closes none because of the bound.
    pub fn set_total_max(&self, total_max: usize, now: Instant) {
        self.inner().with_ledger(Some(now), |ledger| ledger.limit_total(total_max));
    }

    /// Closes the pool: waiters fail, idle resources are closed at once, leased ones when they
    /// return. [`Self::next_effect`] continues until all resources are closed.
    pub fn close(&self, now: Instant) {
        self.inner().with_ledger(Some(now), |ledger| ledger.close());
    }

    /// Returns figures over all keys, read without a lock.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.inner().shared.figures.read()
    }
}

impl<K, R> Clone for Pool<K, R> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<K, R> fmt::Debug for Pool<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<K, R> fmt::Debug for PoolInner<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("stats", &self.shared.figures.read()).finish_non_exhaustive()
    }
}

impl<K, R> Drop for PoolOwner<K, R> {
    fn drop(&mut self) {
        self.inner.with_ledger(None, |ledger| ledger.close());
        self.inner.shared.abandoned.store(1, Ordering::Relaxed);
        self.inner.settle_abandoned();
    }
}

/// A key of a pool: acquiring through it needs no look-up. Cheap to clone.
///
/// It does not keep the pool open, and it becomes stale when the key is forgotten.
pub struct KeyHandle<K, R> {
    pub(crate) key_state: Arc<KeyState<K, R>>,
}

impl<K, R> KeyHandle<K, R> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key_state.key
    }

    /// Waits for a resource until `deadline`: an idle one, a returned one, or one opened for this
    /// acquirer.
    ///
    /// Nothing happens before the first poll. The deadline passes in a [`tick`](Pool::tick).
    /// Dropping the future gives up its place; a resource already granted to it passes to the next
    /// waiter.
    pub fn acquire(&self, now: Instant, deadline: Instant) -> Acquire<'_, K, R> {
        Acquire::borrowed(self, now, deadline)
    }

    /// Returns a resource if one is idle and no acquirer waits. Opens nothing.
    ///
    /// # Errors
    /// [`AcquireError::Draining`], [`AcquireError::Closed`].
    pub fn try_acquire(&self, now: Instant) -> Result<Option<Lease<K, R>>, AcquireError> {
        if let Some(lease) = self.take_fast(now) {
            return Ok(Some(lease));
        }
        let held = self
            .key_state
            .pool
            .with_ledger(Some(now), |ledger| ledger.try_acquire(&self.key_state))?;
        Ok(held.map(Lease::new))
    }

    /// The path without the ledger.
    pub(crate) fn take_fast(&self, now: Instant) -> Option<Lease<K, R>> {
        let held = self.key_state.take_fast(now)?;
        if self.key_state.is_short() {
            self.key_state.pool.with_ledger(Some(now), |ledger| ledger.refill(self.key_state.id));
        }
        Some(Lease::new(held))
    }

    /// Holds acquirers of this key back; leases remain valid and returned resources become idle.
    pub fn pause(&self) {
        self.key_state.pool.with_ledger(None, |ledger| ledger.pause(Some(&self.key_state)));
    }

    /// Ends [`Self::pause`] or [`Self::drain`].
    pub fn resume(&self, now: Instant) {
        self.key_state.pool.with_ledger(Some(now), |ledger| ledger.resume(Some(&self.key_state)));
    }

    /// Refuses acquirers of this key, fails the waiting ones, and closes its resources, leased ones
    /// when they return. The drain is complete when [`KeyStats::is_empty`] returns true.
    pub fn drain(&self, now: Instant) {
        self.key_state.pool.with_ledger(Some(now), |ledger| ledger.drain(&self.key_state));
    }

    /// Changes this key's limits. Resources beyond them are closed, leased ones when they return.
    pub fn set_limits(&self, limits: KeyLimits, now: Instant) {
        self.key_state
            .pool
            .with_ledger(Some(now), |ledger| ledger.limit_key(&self.key_state, limits));
    }

    /// Returns this key's present holdings, read without a lock.
    #[must_use]
    #[inline]
    pub fn stats(&self) -> KeyStats {
        self.key_state.stats()
    }

    /// Returns this key's counters, read without a lock.
    #[must_use]
    pub fn counters(&self) -> KeyCounters {
        self.key_state.counters()
    }
}

impl<K, R> Clone for KeyHandle<K, R> {
    fn clone(&self) -> Self {
        Self { key_state: Arc::clone(&self.key_state) }
    }
}

impl<K: fmt::Debug, R> fmt::Debug for KeyHandle<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyHandle").field(&self.key_state).finish()
    }
}

/// Future of [`Pool::next_effect`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct NextEffect<'a, K, R> {
    pool: &'a Pool<K, R>,
}

impl<K, R> Future for NextEffect<'_, K, R> {
    type Output = Option<DriverEffect<K, R>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = self.pool.inner();
        let mut ledger = inner.ledger.lock();
        if let Some(decision) = ledger.decisions.pop_front() {
            drop(ledger);
            return Poll::Ready(Some(decision.into()));
        }
        if let Some(due) = ledger.due.filter(|_| ledger.due_moved) {
            ledger.due_moved = false;
            return Poll::Ready(Some(DriverEffect::TickAt(due)));
        }
        if get(&inner.shared.gate) & POOL_CLOSED != 0 && count(&inner.shared.figures.live) == 0 {
            return Poll::Ready(None);
        }
        match &mut ledger.driver {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
