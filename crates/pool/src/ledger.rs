//! The ledger of a pool, and every decision that needs it.
//!
//! A [`LockedLedger`] is the ledger with its lock held. It takes `now` as an argument, changes
//! counts and queues, and records follow-up work: [`LedgerDecision`]s for the driver and wakers for
//! [`PoolInner::with_ledger`](crate::pool::PoolInner::with_ledger) to wake once the lock is free.
//! This module never waits, reads a clock, or drops a resource.
//!
//! Starving keys take turns in a queue of their own and not by [`TurnOrder`](crate::TurnOrder): a
//! key that was promised a resource goes first, and keys are identified by numbers here.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::config::{EvictionTier, KeyLimits, PoolConfig};
use crate::error::{AcquireError, OpenError, ReachedLimit, RetireReason};
use crate::key_state::{
    EntryAnchor, GATE_DRAINING, GATE_GONE, GATE_PAUSED, GATE_WAITERS, Held, KeyState, PooledEntry,
};
use crate::pool::{PoolFlags, PoolInner};
use crate::stats::bump;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::waiters::{PlaceId, WaiterAnswer, WaiterLeft, WaiterQueue, WaiterTable};

/// A key waits for room under the total bound: every return must pass the ledger.
pub(crate) const POOL_STARVING: u32 = 1;
/// All keys are paused.
pub(crate) const POOL_PAUSED: u32 = 2;
/// No more leases, permanently.
pub(crate) const POOL_CLOSED: u32 = 4;

/// Task for the driver.
#[derive(Debug)]
pub(crate) enum LedgerDecision<K, R> {
    Open(Arc<KeyState<K, R>>),
    Close(Held<K, R>, RetireReason),
}

/// A key's record.
#[derive(Debug)]
pub(crate) struct KeyLedgerRecord<K, R> {
    pub(crate) key_state: Arc<KeyState<K, R>>,
    pub(crate) limits: KeyLimits,
    pub(crate) queue: WaiterQueue,
    /// Resources of other keys that are being closed so that this key can open as many.
    pub(crate) promised: usize,
    /// Count of servings at which this key was last served; the smaller one has waited longer for
    /// its turn.
    pub(crate) served: u64,
    /// True if the key is in `Ledger::starved`.
    pub(crate) starving: bool,
    /// Background opening is suspended until then.
    pub(crate) retry_at: Option<Instant>,
}

/// Counts and queues of a pool. Guarded by the lock in `PoolInner`.
#[derive(Debug)]
pub(crate) struct Ledger<K, R> {
    pub(crate) config: PoolConfig,
    pub(crate) names: HashMap<K, usize>,
    pub(crate) records: Vec<Option<KeyLedgerRecord<K, R>>>,
    pub(crate) waiters: WaiterTable<K, R>,
    /// Keys that want to open but found the total bound reached, in turn order.
    pub(crate) starved: VecDeque<usize>,
    /// For each resource being closed for another key's sake: that other key.
    pub(crate) promises: VecDeque<usize>,
    /// A search found no idle resource in any key and none became idle since. Only meaningful while
    /// a key starves: then every return passes through the ledger.
    pub(crate) dry: bool,
    /// A background open found no room. Keeps the search for keys below their minimum off the usual
    /// path.
    refill_blocked: bool,
    pub(crate) decisions: VecDeque<LedgerDecision<K, R>>,
    /// The driver's waker while it waits for a decision.
    pub(crate) driver: Option<Waker>,
    /// Time of the next tick, and whether the driver must learn that it moved forward.
    pub(crate) due: Option<Instant>,
    pub(crate) due_moved: bool,
    servings: u64,
    random: u64,
}

/// Wakers to wake once the lock is free. The first needs no allocation; there are rarely more.
#[derive(Debug, Default)]
pub(crate) struct WakeList {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl WakeList {
    pub(crate) fn push(&mut self, waker: Waker) {
        match &self.first {
            None => self.first = Some(waker),
            Some(_) => self.more.push(waker),
        }
    }

    pub(crate) fn wake(self) {
        for waker in self.first.into_iter().chain(self.more) {
            waker.wake();
        }
    }
}

/// Result of an acquirer's first visit.
pub(crate) enum FirstVisit<K, R> {
    Granted(Held<K, R>),
    Queued(PlaceId),
}

/// A visit to the ledger.
pub(crate) struct LockedLedger<'a, K, R> {
    pub(crate) ledger: &'a mut Ledger<K, R>,
    pub(crate) shared: &'a PoolFlags,
    pub(crate) wakes: &'a mut WakeList,
    pub(crate) now: Instant,
}

impl<K, R> Ledger<K, R> {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            names: HashMap::new(),
            records: Vec::new(),
            waiters: WaiterTable::new(),
            starved: VecDeque::new(),
            promises: VecDeque::new(),
            dry: false,
            refill_blocked: false,
            decisions: VecDeque::new(),
            driver: None,
            due: None,
            due_moved: false,
            servings: 0,
            random: config.seed,
            config,
        }
    }

    pub(crate) fn record(&mut self, id: usize) -> &mut KeyLedgerRecord<K, R> {
        match self.records.get_mut(id) {
            Some(Some(record)) => record,
            Some(None) | None => unreachable!("a record is removed only when nothing refers to it"),
        }
    }
}

impl<K, R> LockedLedger<'_, K, R> {
    /// Returns how many opens a key's waiters still call for: those not covered by one under way or
    /// promised, within its bound.
    fn wanted(&mut self, id: usize) -> usize {
        if get(&self.shared.gate) & (POOL_PAUSED | POOL_CLOSED) != 0 {
            return 0;
        }
        let record = self.ledger.record(id);
        if get(&record.key_state.gate) & (GATE_PAUSED | GATE_DRAINING | GATE_GONE) != 0 {
            return 0;
        }
        let figures = &record.key_state.figures;
        let uncovered = record.queue.len.saturating_sub(count(&figures.opening) + record.promised);
        let room = record.limits.max.saturating_sub(count(&figures.live) + record.promised);
        uncovered.min(room)
    }

    /// Takes an idle resource now, or queues. `key_state` may be stale.
    pub(crate) fn acquire(
        &mut self,
        key_state: &KeyState<K, R>,
        deadline: Instant,
        waker: &Waker,
    ) -> Result<FirstVisit<K, R>, AcquireError> {
        self.check_open(key_state)?;
        if let Some(held) = self.take_for_newcomer(key_state.id) {
            return Ok(FirstVisit::Granted(held));
        }
        if deadline <= self.now {
            bump(&key_state.figures.timeouts);
            return Err(AcquireError::Timeout);
        }
        let (queued, waiters_max) = (self.ledger.waiters.queued, self.ledger.config.waiters_max);
        let record = self.ledger.record(key_state.id);
        let full = if record.queue.len >= record.limits.waiters_max {
            Some((ReachedLimit::WaitersOfKey, record.limits.waiters_max))
        } else if queued >= waiters_max {
            Some((ReachedLimit::Waiters, waiters_max))
        } else {
            None
        };
        if let Some((limit, max)) = full {
            bump(&key_state.figures.refused);
            return Err(AcquireError::Full { limit, max });
        }
        let mut queue = record.queue;
        let place = self.ledger.waiters.push(&mut queue, key_state.id, deadline, waker.clone());
        self.ledger.record(key_state.id).queue = queue;
        self.note_waiting(key_state.id);
        self.due_by(deadline);
        // The gate is up now; a resource returned before that is on a stack and found here.
        self.serve_idle(key_state.id);
        self.request(key_state.id);
        match self.ledger.waiters.key_of(place) {
            Some(_) => Ok(FirstVisit::Queued(place)),
            None => match self.ledger.waiters.poll(place, waker) {
                WaiterAnswer::Granted(held) => Ok(FirstVisit::Granted(held)),
                WaiterAnswer::Failed(error) => Err(error),
                WaiterAnswer::Wait => unreachable!("a place in no queue has its answer"),
            },
        }
    }

    /// Takes an idle resource now or not at all. `key_state` may be stale.
    pub(crate) fn try_acquire(
        &mut self,
        key_state: &KeyState<K, R>,
    ) -> Result<Option<Held<K, R>>, AcquireError> {
        self.check_open(key_state)?;
        Ok(self.take_for_newcomer(key_state.id))
    }

    /// Returns the answer for a waiting future.
    pub(crate) fn poll(&mut self, place: PlaceId, waker: &Waker) -> WaiterAnswer<K, R> {
        self.ledger.waiters.poll(place, waker)
    }

    /// Removes the place of a waiting future that was dropped, and passes its turn on.
    pub(crate) fn leave(&mut self, place: PlaceId) {
        let mut queue = match self.ledger.waiters.key_of(place) {
            Some(id) => self.ledger.record(id).queue,
            None => WaiterQueue::default(),
        };
        match self.ledger.waiters.leave(place, &mut queue) {
            WaiterLeft::Queued(id) => {
                self.ledger.record(id).queue = queue;
                self.note_waiting(id);
                self.fill();
            }
            WaiterLeft::Granted(held) => self.give_back(held),
            WaiterLeft::Failed => {}
        }
    }

    /// Takes a resource back from a lease or from the driver: grants it to the key whose turn it
    /// is, or else makes it idle.
    pub(crate) fn give_back(&mut self, mut held: Held<K, R>) {
        let id = held.key_state.id;
        held.used_at = held.used_at.max(self.now);
        if let Some(reason) = self.reason_to_retire(&held) {
            return self.retire(held, reason);
        }
        let other = self.starved_before(id);
        if let Some(other) = other {
            self.retire(held, RetireReason::Evicted);
            self.promise(other);
            return self.fill();
        }
        let key_state = Arc::clone(&held.key_state);
        if self.is_paused(&key_state) {
            return self.make_idle(held);
        }
        if let Err(held) = self.grant(id, held) {
            self.make_idle(held);
        }
    }

    /// Retires a resource that must not be used again.
    pub(crate) fn discard(&mut self, held: Held<K, R>) {
        self.retire(held, RetireReason::Discarded);
    }

    /// Accepts a resource that the driver opened.
    pub(crate) fn opened(
        &mut self,
        key_state: &Arc<KeyState<K, R>>,
        resource: R,
        tier: EvictionTier,
    ) {
        let id = key_state.id;
        add(&key_state.figures.opening, -1);
        add(&self.shared.figures.opening, -1);
        bump(&key_state.figures.created);
        let limits = self.ledger.record(id).limits.clone();
        let jitter = self.jitter(limits.lifetime_jitter.min(limits.lifetime_max));
        self.ledger.record(id).retry_at = None;
        key_state.reserve(count(&key_state.figures.live));
        let held = Box::new(PooledEntry {
            resource,
            key_state: EntryAnchor::new(key_state),
            expires_at: self.now + limits.lifetime_max.saturating_sub(jitter),
            used_at: self.now,
            tier,
        });
        self.due_by(held.expires_at.min(self.now + limits.idle_timeout));
        self.give_back(held);
        // The resource may have gone to another key, or have exceeded a limit: then this key's
        // waiters still need one.
        self.request(id);
        self.refill(id);
    }

    /// Handles a failed open: fails the longest waiting acquirer and suspends background opening.
    pub(crate) fn open_failed(&mut self, key_state: &KeyState<K, R>, error: OpenError) {
        add(&key_state.figures.opening, -1);
        add(&self.shared.figures.opening, -1);
        let retry_at = {
            let now = self.now;
            let record = self.ledger.record(key_state.id);
            let retry_at = now + record.limits.open_retry;
            record.retry_at = Some(retry_at);
            retry_at
        };
        self.due_by(retry_at);
        self.fail_first(key_state.id, AcquireError::Open(error));
        self.release(key_state.id);
    }

    /// Records that a retired resource is closed.
    pub(crate) fn closed(&mut self, key_state: &KeyState<K, R>) {
        add(&key_state.figures.closing, -1);
        add(&self.shared.figures.closing, -1);
        bump(&key_state.figures.closed);
        self.release(key_state.id);
    }

    /// Records that a resource left the pool through `Lease::into_inner`.
    pub(crate) fn taken_out(&mut self, key_state: &KeyState<K, R>) {
        bump(&key_state.figures.closed);
        self.release(key_state.id);
    }

    /// Releases one place under the key's bound and the total one.
    fn release(&mut self, id: usize) {
        add(&self.ledger.record(id).key_state.figures.live, -1);
        add(&self.shared.figures.live, -1);
        self.request(id);
        self.refill(id);
    }

    /// Closes a resource that is not leased.
    pub(crate) fn retire(&mut self, held: Held<K, R>, reason: RetireReason) {
        let key_state = Arc::clone(&held.key_state);
        add(&key_state.figures.closing, 1);
        add(&self.shared.figures.closing, 1);
        self.decide(LedgerDecision::Close(held, reason));
        self.refill(key_state.id);
    }

    /// Hands `held` to the first waiter of its key.
    fn grant(&mut self, id: usize, held: Held<K, R>) -> Result<(), Held<K, R>> {
        let mut queue = self.ledger.record(id).queue;
        let waker = self.ledger.waiters.grant(&mut queue, held)?;
        self.wakes.push(waker);
        let record = self.ledger.record(id);
        record.queue = queue;
        bump(&record.key_state.figures.acquired);
        self.note_served(id);
        self.note_waiting(id);
        Ok(())
    }

    /// Hands idle resources of a key to its waiters.
    pub(crate) fn serve_idle(&mut self, id: usize) {
        let key_state = Arc::clone(&self.ledger.record(id).key_state);
        while !self.ledger.record(id).queue.is_empty() && !self.is_paused(&key_state) {
            let Some(held) = self.take_usable(&key_state) else { break };
            if let Err(held) = self.grant(id, held) {
                key_state.put(held);
                break;
            }
        }
        self.refill(id);
    }

    /// Fails the first waiter of a key, if there is one.
    pub(crate) fn fail_first(&mut self, id: usize, error: AcquireError) {
        let mut queue = self.ledger.record(id).queue;
        if let Some(waker) = self.ledger.waiters.fail_first(&mut queue, error) {
            self.wakes.push(waker);
        }
        self.ledger.record(id).queue = queue;
        self.note_waiting(id);
    }

    /// Adds a key to the queue of keys that want to open, then serves the queue.
    pub(crate) fn request(&mut self, id: usize) {
        if !self.ledger.record(id).starving && self.wanted(id) > 0 {
            self.ledger.record(id).starving = true;
            self.ledger.starved.push_back(id);
        }
        self.fill();
    }

    /// Opens for the keys in the queue, one each in turn, while there is room or room can be made.
    pub(crate) fn fill(&mut self) {
        self.redeem();
        while let Some(id) = self.ledger.starved.pop_front() {
            if self.wanted(id) == 0 {
                self.ledger.record(id).starving = false;
                continue;
            }
            if self.has_room() {
                self.open(id);
                self.ledger.starved.push_back(id);
                continue;
            }
            // The gate goes up before the search: later returns come to the ledger.
            raise(&self.shared.gate, POOL_STARVING, true);
            match self.take_candidate() {
                Some(held) => {
                    self.retire(held, RetireReason::Evicted);
                    self.promise(id);
                    self.ledger.starved.push_back(id);
                }
                None => {
                    self.ledger.starved.push_front(id);
                    return;
                }
            }
        }
        raise(&self.shared.gate, POOL_STARVING, false);
        self.ledger.dry = false;
        self.refill_blocked();
    }

    /// Keeps promises: a key that a resource was closed for goes first, because it has already had
    /// its turn for it. A promise lasts no longer than the closing that it refers to; if the bound
    /// was lowered meanwhile, that closing makes no room.
    fn redeem(&mut self) {
        while self.has_room() || self.ledger.promises.len() > count(&self.shared.figures.closing) {
            let Some(id) = self.ledger.promises.pop_front() else { return };
            self.ledger.record(id).promised -= 1;
            if self.wanted(id) > 0 && self.has_room() {
                self.open(id);
            } else if self.wanted(id) > 0 && !self.ledger.record(id).starving {
                self.ledger.record(id).starving = true;
                self.ledger.starved.push_front(id);
            }
        }
    }

    /// Opens in the background until a key has its `min_idle`; acquirers of any key go first.
    pub(crate) fn refill(&mut self, id: usize) {
        loop {
            let now = self.now;
            let record = self.ledger.record(id);
            let (key_state, figures) = (&record.key_state, &record.key_state.figures);
            let spare = count(&figures.opening).saturating_sub(record.queue.len);
            let lacks = key_state.idle() + spare < record.limits.min_idle;
            let may = count(&figures.live) < record.limits.max
                && get(&key_state.gate) & (GATE_DRAINING | GATE_GONE) == 0
                && record.retry_at.is_none_or(|retry_at| retry_at <= now);
            if !(lacks && may) {
                return;
            }
            if !self.has_spare_room() {
                self.ledger.refill_blocked = true;
                return;
            }
            self.open(id);
        }
    }

    /// Retries the background opens that found no room before, if there is room now.
    fn refill_blocked(&mut self) {
        if self.ledger.refill_blocked && self.has_spare_room() {
            self.ledger.refill_blocked = false;
            for id in 0..self.ledger.records.len() {
                if self.ledger.records.get(id).is_some_and(Option::is_some) {
                    self.refill(id);
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        count(&self.shared.figures.live) < self.ledger.config.total_max
    }

    /// Returns whether there is room that no starving key wants.
    fn has_spare_room(&self) -> bool {
        self.has_room()
            && self.ledger.starved.is_empty()
            && get(&self.shared.gate) & POOL_CLOSED == 0
    }

    fn open(&mut self, id: usize) {
        let key_state = Arc::clone(&self.ledger.record(id).key_state);
        add(&key_state.figures.live, 1);
        add(&key_state.figures.opening, 1);
        add(&self.shared.figures.live, 1);
        add(&self.shared.figures.opening, 1);
        self.note_served(id);
        self.decide(LedgerDecision::Open(key_state));
    }

    fn promise(&mut self, id: usize) {
        self.ledger.record(id).promised += 1;
        self.ledger.promises.push_back(id);
        self.note_served(id);
    }

    /// Returns the starving key that should have a resource of key `id` rather than `id`'s own
    /// waiters.
    ///
    /// A key without waiters gives up resources that it does not need. A key with waiters gives one
    /// up only to a key that has at least two fewer, or that has none and has waited longer for its
    /// turn: otherwise two busy keys would close and open all the time without any gain.
    fn starved_before(&mut self, id: usize) -> Option<usize> {
        if self.ledger.starved.is_empty() {
            return None;
        }
        let record = self.ledger.record(id);
        let own_waiters =
            !record.queue.is_empty() && get(&record.key_state.gate) & GATE_PAUSED == 0;
        let (own_live, own_served) = (count(&record.key_state.figures.live), record.served);
        for position in 0..self.ledger.starved.len() {
            let Some(&other) = self.ledger.starved.get(position) else { break };
            let record = self.ledger.record(other);
            let holds = count(&record.key_state.figures.live) + record.promised;
            let deserves = !own_waiters
                || holds + 2 <= own_live
                || (holds == 0 && record.served <= own_served);
            if other != id && deserves && self.wanted(other) > 0 {
                // The key goes to the end of the queue, as in `fill`.
                if let Some(other) = self.ledger.starved.remove(position) {
                    self.ledger.starved.push_back(other);
                }
                return Some(other);
            }
        }
        None
    }

    /// Takes the idle resource of any key to evict first: highest tier, then least recently used.
    fn take_candidate(&mut self) -> Option<Held<K, R>> {
        if self.ledger.dry {
            return None;
        }
        let ranked = self.ledger.records.iter().flatten().filter_map(|record| {
            let (tier, used_at) = first_to_go(&record.key_state)?;
            Some((tier, used_at, record.key_state.id))
        });
        let Some((tier, used_at, id)) = ranked.max() else {
            self.ledger.dry = true;
            return None;
        };
        let key_state = Arc::clone(&self.ledger.record(id).key_state);
        // The gate is up, so no other path can have taken it since.
        key_state.take_where(|entry| (entry.tier, Reverse(entry.used_at)) == (tier, used_at))
    }

    /// Returns why a returned resource must be retired; none if it may stay.
    fn reason_to_retire(&mut self, held: &Held<K, R>) -> Option<RetireReason> {
        let figures = &held.key_state.figures;
        if get(&self.shared.gate) & POOL_CLOSED != 0 {
            Some(RetireReason::Closed)
        } else if get(&held.key_state.gate) & GATE_DRAINING != 0 {
            Some(RetireReason::Drained)
        } else if held.expires_at <= self.now {
            Some(RetireReason::Lifetime)
        } else if count(&figures.live) - count(&figures.closing)
            > self.ledger.record(held.key_state.id).limits.max
        {
            Some(RetireReason::OverLimit)
        } else {
            None
        }
    }

    fn check_open(&self, key_state: &KeyState<K, R>) -> Result<(), AcquireError> {
        if get(&self.shared.gate) & POOL_CLOSED != 0 {
            return Err(AcquireError::Closed);
        }
        if get(&key_state.gate) & (GATE_DRAINING | GATE_GONE) != 0 {
            return Err(AcquireError::Draining);
        }
        Ok(())
    }

    pub(crate) fn is_paused(&self, key_state: &KeyState<K, R>) -> bool {
        get(&key_state.gate) & GATE_PAUSED != 0 || get(&self.shared.gate) & POOL_PAUSED != 0
    }

    /// Takes a resource for a new acquirer; none if earlier acquirers wait.
    fn take_for_newcomer(&mut self, id: usize) -> Option<Held<K, R>> {
        let record = self.ledger.record(id);
        let key_state = Arc::clone(&record.key_state);
        if !record.queue.is_empty() || self.is_paused(&key_state) {
            return None;
        }
        let mut held = self.take_usable(&key_state)?;
        held.used_at = self.now;
        bump(&key_state.figures.acquired);
        self.note_served(id);
        self.refill(id);
        Some(held)
    }

    /// Takes the next idle resource whose lifetime has not ended.
    fn take_usable(&mut self, key_state: &KeyState<K, R>) -> Option<Held<K, R>> {
        loop {
            let held = key_state.take_any()?;
            if held.expires_at > self.now {
                return Some(held);
            }
            self.retire(held, RetireReason::Lifetime);
        }
    }

    fn make_idle(&mut self, held: Held<K, R>) {
        let key_state = Arc::clone(&held.key_state);
        key_state.put(held);
        self.ledger.dry = false;
        if !self.ledger.starved.is_empty() {
            self.fill();
        }
    }

    fn decide(&mut self, decision: LedgerDecision<K, R>) {
        self.ledger.decisions.push_back(decision);
        self.wake_driver();
    }

    pub(crate) fn wake_driver(&mut self) {
        if let Some(driver) = self.ledger.driver.take() {
            self.wakes.push(driver);
        }
    }

    /// Ensures that a tick is due at `at` or earlier.
    pub(crate) fn due_by(&mut self, at: Instant) {
        if self.ledger.due.is_none_or(|due| at < due) {
            self.ledger.due = Some(at);
            self.ledger.due_moved = true;
            self.wake_driver();
        }
    }

    fn note_served(&mut self, id: usize) {
        self.ledger.servings += 1;
        self.ledger.record(id).served = self.ledger.servings;
    }

    /// Publishes the length of a key's queue, and its gate.
    pub(crate) fn note_waiting(&mut self, id: usize) {
        let queued = self.ledger.waiters.queued;
        let record = self.ledger.record(id);
        record.key_state.figures.waiting.store(record.queue.len, Ordering::Relaxed);
        raise(&record.key_state.gate, GATE_WAITERS, !record.queue.is_empty());
        self.shared.figures.waiting.store(queued, Ordering::Relaxed);
    }

    /// Returns a uniformly random duration below `most`: one step of splitmix64, scaled down.
    fn jitter(&mut self, most: Duration) -> Duration {
        self.ledger.random = self.ledger.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.ledger.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let scaled = (most.as_nanos() * u128::from(bits)) >> 64;
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

impl<K: Eq + Hash + Clone, R> LockedLedger<'_, K, R> {
    /// Returns the state of `key`, created if the key is new; `limits` only apply in that case.
    pub(crate) fn key_state_of(
        &mut self,
        key: &K,
        limits: Option<KeyLimits>,
        pool: &Arc<PoolInner<K, R>>,
    ) -> Result<Arc<KeyState<K, R>>, AcquireError> {
        if let Some(&id) = self.ledger.names.get(key) {
            return Ok(Arc::clone(&self.ledger.record(id).key_state));
        }
        if get(&self.shared.gate) & POOL_CLOSED != 0 {
            return Err(AcquireError::Closed);
        }
        let max = self.ledger.config.keys_max;
        if self.ledger.names.len() >= max {
            return Err(AcquireError::Full { limit: ReachedLimit::Keys, max });
        }
        let limits = limits.unwrap_or_else(|| self.ledger.config.key.clone());
        let id = match self.ledger.records.iter().position(Option::is_none) {
            Some(id) => id,
            None => {
                self.ledger.records.push(None);
                self.ledger.records.len() - 1
            }
        };
        let key_state = Arc::new(KeyState::new(
            key.clone(),
            id,
            Arc::clone(pool),
            self.ledger.config.stripes,
            &limits,
        ));
        self.ledger.names.insert(key.clone(), id);
        self.ledger.records[id] = Some(KeyLedgerRecord {
            key_state: Arc::clone(&key_state),
            limits,
            queue: WaiterQueue::default(),
            promised: 0,
            served: 0,
            starving: false,
            retry_at: None,
        });
        self.refill(id);
        Ok(key_state)
    }
}

/// Takes the idle resource of one key to evict first.
pub(crate) fn take_first_to_go<K, R>(key_state: &KeyState<K, R>) -> Option<Held<K, R>> {
    let first = first_to_go(key_state)?;
    key_state.take_where(|entry| (entry.tier, Reverse(entry.used_at)) == first)
}

/// Returns the rank of a key's idle resource to evict first: highest tier, then least recently
/// used.
fn first_to_go<K, R>(key_state: &KeyState<K, R>) -> Option<(EvictionTier, Reverse<Instant>)> {
    let mut first = None;
    key_state.for_each_idle(|entry| first = first.max(Some((entry.tier, Reverse(entry.used_at)))));
    first
}

/// Reads a figure that only the ledger writes.
pub(crate) fn count(figure: &AtomicUsize) -> usize {
    figure.load(Ordering::Relaxed)
}

/// Changes a figure that only the ledger writes.
fn add(figure: &AtomicUsize, by: isize) {
    let before = figure.load(Ordering::Relaxed);
    debug_assert!(before.checked_add_signed(by).is_some(), "a figure went below zero");
    figure.store(before.saturating_add_signed(by), Ordering::Relaxed);
}

pub(crate) fn get(gate: &AtomicU32) -> u32 {
    gate.load(Ordering::Relaxed)
}

/// Sets or clears a bit of a gate that only the ledger writes.
pub(crate) fn raise(gate: &AtomicU32, bit: u32, up: bool) {
    let bits = gate.load(Ordering::Relaxed);
    gate.store(if up { bits | bit } else { bits & !bit }, Ordering::Relaxed);
}
