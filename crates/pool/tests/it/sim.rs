//! A million random steps, each checked against a naive model of a pool.
//!
//! The model has no stripes, gates or turn queues: it keeps lists of holders and waiters, derives
//! the pool's actions from leases and effects, and asserts after every step what must hold then. A
//! failure names its seed and step.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pool::{
    Acquire, AcquireError, DriverEffect, EvictionTier, KeyHandle, KeyLimits, Lease, OpenError,
    Pool, PoolConfig, RetireReason, RetiredResource, Ticket,
};

use crate::support::{Alarm, Chance, poll};

const STEPS_PER_SEED: usize = 100_000;
const KEYS: usize = 4;

/// A resource that records its drop.
struct Token {
    id: usize,
    dropped: Rc<RefCell<Vec<usize>>>,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.id);
    }
}

struct Waiting {
    key: usize,
    deadline: Instant,
    alarm: Arc<Alarm>,
    rang: usize,
    future: Acquire<'static, usize, Token>,
}

/// An idle resource as the model sees it; the last of a key's list is the one to reuse.
#[derive(Clone, Copy)]
struct Idle {
    id: usize,
    used_at: Instant,
}

#[derive(Default)]
struct Modelled {
    limits: KeyLimits,
    idle: Vec<Idle>,
    queue: VecDeque<usize>,
    paused: bool,
    draining: bool,
    retry_at: Option<Instant>,
    timeouts: u64,
    created: u64,
    closed: u64,
    acquired: u64,
}

/// The model's record of one resource for its whole life.
struct Life {
    tier: EvictionTier,
    opened_at: Instant,
    drops: usize,
}

struct World {
    pool: Pool<usize, Token>,
    handles: Vec<KeyHandle<usize, Token>>,
    keys: Vec<Modelled>,
    chance: Chance,
    now: Instant,
    total_max: usize,
    all_paused: bool,
    leases: Vec<Lease<usize, Token>>,
    tickets: Vec<Ticket<usize, Token>>,
    retired: Vec<RetiredResource<usize, Token>>,
    waiting: BTreeMap<usize, Waiting>,
    waiters_made: usize,
    lives: Vec<Life>,
    dropped: Rc<RefCell<Vec<usize>>>,
    /// The resource that this step returned or opened, and its key: the model has seen no effect
    /// for it yet.
    moving: Option<(usize, usize)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let now = crate::support::start();
        let total_max = 3 + chance.below(10);
        let config = PoolConfig {
            total_max,
            stripes: 1 << chance.below(3),
            seed,
            waiters_max: 40,
            ..PoolConfig::default()
        };
        let pool = Pool::new(config, now);
        let mut keys = Vec::new();
        let mut handles = Vec::new();
        for key in 0..KEYS {
            let limits = random_limits(&mut chance);
            handles.push(pool.key_with(&key, limits.clone()).unwrap());
            keys.push(Modelled { limits, ..Modelled::default() });
        }
        let mut world = Self {
            pool,
            handles,
            keys,
            chance,
            now,
            total_max,
            all_paused: false,
            leases: Vec::new(),
            tickets: Vec::new(),
            retired: Vec::new(),
            waiting: BTreeMap::new(),
            waiters_made: 0,
            lives: Vec::new(),
            dropped: Rc::default(),
            moving: None,
        };
        world.observe();
        world
    }

    fn step(&mut self) {
        let key = self.chance.below(KEYS);
        match self.chance.below(100) {
            0..26 => self.acquire(key),
            26..30 => self.try_acquire(key),
            30..56 => self.end_lease(),
            56..60 => self.cancel(),
            60..76 => self.answer_ticket(),
            76..88 => self.finish_closing(),
            88..95 => self.pass_time(),
            95 => self.pause_or_resume_all(),
            96 => self.pause_or_resume(key),
            97 => self.drain_or_resume(key),
            98 => self.change_limits(key),
            _ => self.change_total(),
        }
        self.observe();
        self.check();
    }

    fn acquire(&mut self, key: usize) {
        let deadline =
            self.now + Duration::from_millis(u64::try_from(self.chance.below(80)).unwrap());
        let mut future = self.pool.acquire(&key, self.now, deadline);
        let alarm = Arc::new(Alarm::default());
        let expected = self.reusable(key);
        let all_waiting = self.waiting.len();
        let answer = poll(&mut future, &alarm);
        let modelled = &mut self.keys[key];
        match answer {
            Poll::Ready(Ok(lease)) => {
                assert_eq!(Some(lease.id), expected, "the most recently used one is reused");
                modelled.acquired += 1;
                modelled.idle.retain(|idle| idle.id != lease.id);
                self.leases.push(lease);
            }
            Poll::Ready(Err(AcquireError::Draining)) => assert!(modelled.draining),
            Poll::Ready(Err(AcquireError::Timeout)) => {
                assert!(deadline <= self.now && expected.is_none());
                modelled.timeouts += 1;
            }
            Poll::Ready(Err(AcquireError::Full {
                limit: pool::ReachedLimit::WaitersOfKey,
                max,
            })) => {
                assert_eq!(max, modelled.limits.waiters_max);
                assert!(
                    modelled.queue.len() >= max,
                    "a lowered bound may be exceeded by those who waited before"
                );
            }
            Poll::Ready(Err(AcquireError::Full { limit: pool::ReachedLimit::Waiters, max })) => {
                assert_eq!((all_waiting, max), (40, 40))
            }
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => {
                assert!(expected.is_none() && !modelled.draining && deadline > self.now);
                let number = self.waiters_made;
                self.waiters_made += 1;
                modelled.queue.push_back(number);
                self.waiting.insert(number, Waiting { key, deadline, alarm, rang: 0, future });
            }
        }
    }

    fn try_acquire(&mut self, key: usize) {
        let expected = self.reusable(key);
        match self.handles[key].try_acquire(self.now) {
            Ok(lease) => {
                assert_eq!(lease.as_ref().map(|lease| lease.id), expected);
                if let Some(lease) = lease {
                    self.keys[key].acquired += 1;
                    self.keys[key].idle.retain(|idle| idle.id != lease.id);
                    self.leases.push(lease);
                }
            }
            Err(error) => {
                assert!(matches!(error, AcquireError::Draining) && self.keys[key].draining)
            }
        }
    }

    /// Returns what a new acquirer must get: the last idle resource that is not too old, if no
    /// acquirer waits.
    fn reusable(&self, key: usize) -> Option<usize> {
        let modelled = &self.keys[key];
        let closed_to_newcomers =
            modelled.draining || modelled.paused || self.all_paused || !modelled.queue.is_empty();
        if closed_to_newcomers {
            return None;
        }
        let usable =
            |idle: &&Idle| self.lives[idle.id].opened_at + modelled.limits.lifetime_max > self.now;
        modelled.idle.iter().rev().find(usable).map(|idle| idle.id)
    }

    fn end_lease(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let index = self.chance.below(self.leases.len());
        let mut lease = self.leases.swap_remove(index);
        let (key, id) = (*lease.key(), lease.id);
        match self.chance.below(20) {
            0 | 1 => lease.discard(),
            2 => {
                let before = self.dropped.borrow().len();
                let token = lease.into_inner();
                assert_eq!(self.dropped.borrow().len(), before, "taking it out does not drop it");
                drop(token);
                self.keys[key].closed += 1;
            }
            choice => {
                self.moving = Some((key, id));
                if choice < 8 {
                    let tier = EvictionTier(u8::try_from(self.chance.below(3)).unwrap());
                    lease.set_tier(tier);
                    self.lives[id].tier = tier;
                }
                if choice < 14 { drop(lease) } else { lease.release(self.now) }
            }
        }
    }

    fn cancel(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let index = self.chance.below(self.waiting.len());
        let number = *self.waiting.keys().nth(index).unwrap();
        let gone = self.waiting.remove(&number).unwrap();
        self.keys[gone.key].queue.retain(|queued| *queued != number);
        drop(gone.future);
    }

    fn answer_ticket(&mut self) {
        if self.tickets.is_empty() {
            return;
        }
        let index = self.chance.below(self.tickets.len());
        let ticket = self.tickets.swap_remove(index);
        let key = *ticket.key();
        match self.chance.below(12) {
            0 | 1 => {
                self.keys[key].retry_at = Some(self.now + self.keys[key].limits.open_retry);
                let error: OpenError = Arc::new(pool::AbandonedTicket);
                let first = self.keys[key].queue.front().copied();
                if self.chance.below(2) == 0 {
                    ticket.failed(error, self.now)
                } else {
                    drop(ticket)
                }
                if let Some(first) = first {
                    // Exactly the longest waiting acquirer receives the error.
                    let mut failed = self.waiting.remove(&first).unwrap();
                    assert!(failed.alarm.rang() > failed.rang);
                    assert!(matches!(
                        poll(&mut failed.future, &failed.alarm),
                        Poll::Ready(Err(AcquireError::Open(_)))
                    ));
                    self.keys[key].queue.pop_front();
                }
            }
            _ => {
                let id = self.lives.len();
                self.lives.push(Life { tier: EvictionTier(0), opened_at: self.now, drops: 0 });
                self.keys[key].created += 1;
                self.keys[key].retry_at = None;
                self.moving = Some((key, id));
                ticket.opened(Token { id, dropped: Rc::clone(&self.dropped) }, self.now);
            }
        }
    }

    fn finish_closing(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let index = self.chance.below(self.retired.len());
        let retired = self.retired.swap_remove(index);
        self.keys[*retired.key()].closed += 1;
        if self.chance.below(3) == 0 { drop(retired.into_inner()) } else { drop(retired) }
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_millis(u64::try_from(self.chance.below(30)).unwrap());
        self.pool.tick(self.now);
        let late: Vec<usize> =
            self.waiting.iter().filter(|(_, w)| w.deadline <= self.now).map(|(n, _)| *n).collect();
        for number in late {
            let mut late = self.waiting.remove(&number).unwrap();
            assert!(late.alarm.rang() > late.rang, "a waiter whose deadline passed is woken");
            assert!(matches!(
                poll(&mut late.future, &late.alarm),
                Poll::Ready(Err(AcquireError::Timeout))
            ));
            self.keys[late.key].queue.retain(|queued| *queued != number);
            self.keys[late.key].timeouts += 1;
        }
        for (key, modelled) in self.keys.iter_mut().enumerate() {
            modelled.retry_at = modelled.retry_at.filter(|retry_at| *retry_at > self.now);
            assert_eq!(modelled.timeouts, self.handles[key].counters().timeouts);
        }
        assert!(
            self.pool.next_tick().is_none_or(|due| due > self.now),
            "a tick leaves nothing due"
        );
    }

    fn pause_or_resume_all(&mut self) {
        if self.all_paused {
            self.pool.resume(self.now)
        } else {
            self.pool.pause()
        }
        self.all_paused = !self.all_paused;
    }

    fn pause_or_resume(&mut self, key: usize) {
        let handle = &self.handles[key];
        let modelled = &mut self.keys[key];
        if modelled.paused || modelled.draining {
            handle.resume(self.now);
            (modelled.paused, modelled.draining) = (false, false);
        } else {
            handle.pause();
            modelled.paused = true;
        }
    }

    fn drain_or_resume(&mut self, key: usize) {
        if self.keys[key].draining {
            return self.pause_or_resume(key);
        }
        self.handles[key].drain(self.now);
        self.keys[key].draining = true;
        for number in std::mem::take(&mut self.keys[key].queue) {
            let mut failed = self.waiting.remove(&number).unwrap();
            assert!(matches!(
                poll(&mut failed.future, &failed.alarm),
                Poll::Ready(Err(AcquireError::Draining))
            ));
        }
    }

    fn change_limits(&mut self, key: usize) {
        let limits = random_limits(&mut self.chance);
        // A lifetime is fixed when a resource is opened; keeping it equal keeps the model simple.
        self.keys[key].limits = limits.clone();
        self.handles[key].set_limits(limits, self.now);
    }

    fn change_total(&mut self) {
        self.total_max = 3 + self.chance.below(10);
        self.pool.set_total_max(self.total_max, self.now);
    }

    /// Reads the pool's actions in this step.
    fn observe(&mut self) {
        let moving = self.moving.take();
        let mut moved = moving;
        let effects = self.pool.take_effects();
        for key in 0..KEYS {
            // The served acquirer is the first of the queue.
            while let Some(first) = self.keys[key].queue.front().copied() {
                let waiting = self.waiting.get_mut(&first).unwrap();
                if waiting.alarm.rang() == waiting.rang {
                    break;
                }
                let Poll::Ready(Ok(lease)) = poll(&mut waiting.future, &waiting.alarm) else {
                    panic!("woken for nothing")
                };
                moved = moved.filter(|(_, id)| *id != lease.id);
                let modelled = &mut self.keys[key];
                assert!(!modelled.paused && !self.all_paused);
                modelled.idle.retain(|idle| idle.id != lease.id);
                modelled.queue.pop_front();
                modelled.acquired += 1;
                self.waiting.remove(&first);
                self.leases.push(lease);
            }
        }
        for effect in effects {
            match effect {
                DriverEffect::Open(ticket) => self.tickets.push(ticket),
                DriverEffect::Close(retired) => {
                    self.observe_close(&retired, moving);
                    moved = moved.filter(|(_, id)| *id != retired.id);
                    self.retired.push(retired);
                }
                DriverEffect::TickAt(_) => {}
            }
        }
        if let Some((key, id)) = moved {
            self.keys[key].idle.push(Idle { id, used_at: self.now });
        }
        for waiting in self.waiting.values() {
            assert_eq!(
                waiting.alarm.rang(),
                waiting.rang,
                "nobody is woken before the first of the queue"
            );
        }
        for id in self.dropped.borrow_mut().drain(..) {
            self.lives[id].drops += 1;
            assert_eq!(self.lives[id].drops, 1, "a resource is dropped once");
        }
    }

    fn observe_close(
        &mut self,
        retired: &RetiredResource<usize, Token>,
        moving: Option<(usize, usize)>,
    ) {
        let (key, id) = (*retired.key(), retired.id);
        let position = self.keys[key].idle.iter().position(|idle| idle.id == id);
        let age = self.now - self.lives[id].opened_at;
        let limits = &self.keys[key].limits;
        match (retired.reason(), position) {
            (RetireReason::Lifetime, _) => assert!(age >= limits.lifetime_max),
            (RetireReason::Idle, Some(position)) => {
                assert!(self.keys[key].idle[position].used_at + limits.idle_timeout <= self.now);
                assert!(self.keys[key].idle.len() > limits.min_idle);
            }
            (RetireReason::Drained, _) => assert!(self.keys[key].draining),
            (RetireReason::Evicted | RetireReason::OverLimit, _) => {}
            (RetireReason::Discarded, None) => {}
            (reason, position) => panic!("{reason:?} of a resource at {position:?}"),
        }
        match retired.reason() {
            // A resource that was just returned or opened goes straight to the key whose turn it
            // is.
            RetireReason::Evicted if moving.is_none_or(|(_, moved)| moved != id) => {
                self.check_first_to_go(id, 0..KEYS)
            }
            RetireReason::OverLimit if moving.is_none() => self.check_first_to_go(id, key..key + 1),
            _ => {}
        }
        if let Some(position) = position {
            self.keys[key].idle.remove(position);
        }
    }

    /// Asserts that no idle resource of `keys` had a higher tier, or the same tier and a longer
    /// idle time.
    fn check_first_to_go(&self, id: usize, keys: std::ops::Range<usize>) {
        let idle = || self.keys[keys.clone()].iter().flat_map(|modelled| &modelled.idle);
        let rank = |idle: &Idle| (self.lives[idle.id].tier, std::cmp::Reverse(idle.used_at));
        let chosen = idle().find(|idle| idle.id == id).expect("only idle ones are given up");
        assert!(
            idle().all(|other| rank(chosen) >= rank(other)),
            "the highest tier goes first, then the least recently used"
        );
    }

    fn count_of<T>(list: &[T], key: usize, key_of: impl Fn(&T) -> usize) -> usize {
        list.iter().filter(|item| key_of(item) == key).count()
    }

    /// Asserts the invariants that hold after every step.
    fn check(&self) {
        let mut starving = false;
        let totals = self.pool.stats();
        for (key, modelled) in self.keys.iter().enumerate() {
            let (stats, counters) = (self.handles[key].stats(), self.handles[key].counters());
            let leased = Self::count_of(&self.leases, key, |lease| *lease.key());
            let opening = Self::count_of(&self.tickets, key, |ticket| *ticket.key());
            let closing = Self::count_of(&self.retired, key, |retired| *retired.key());
            assert_eq!(
                (stats.idle, stats.leased, stats.opening, stats.closing, stats.waiting),
                (modelled.idle.len(), leased, opening, closing, modelled.queue.len()),
                "key {key}"
            );
            assert_eq!(
                (counters.acquired, counters.created, counters.closed),
                (modelled.acquired, modelled.created, modelled.closed)
            );
            let held_back = modelled.paused || modelled.draining || self.all_paused;
            assert!(
                held_back || modelled.queue.is_empty() || modelled.idle.is_empty(),
                "idle beside a waiter"
            );
            let live = stats.idle + leased + opening + closing;
            let uncovered = modelled.queue.len().saturating_sub(opening);
            let wants = !held_back && uncovered > 0 && live < modelled.limits.max;
            assert!(!wants || totals.live >= self.total_max, "a waiter although there is room");
            // Each resource that is being closed may have been promised to it already.
            starving |=
                wants && uncovered > totals.closing && modelled.limits.max - live > totals.closing;
            let spare = opening.saturating_sub(modelled.queue.len());
            let lacks = modelled.idle.len() + spare < modelled.limits.min_idle
                && live < modelled.limits.max
                && modelled.retry_at.is_none()
                && !modelled.draining;
            assert!(
                !lacks || totals.live >= self.total_max,
                "fewer idle than the minimum although there is room"
            );
        }
        let idle: usize = self.keys.iter().map(|modelled| modelled.idle.len()).sum();
        assert!(!starving || idle == 0, "a key starves although others have idle resources");
        let live = idle + self.leases.len() + self.tickets.len() + self.retired.len();
        assert_eq!((totals.live, totals.waiting), (live, self.waiting.len()));
    }

    /// Closes the pool in the middle of other operations.
    fn finish(mut self) {
        self.pool.close(self.now);
        for (_, mut waiting) in std::mem::take(&mut self.waiting) {
            assert!(matches!(
                poll(&mut waiting.future, &waiting.alarm),
                Poll::Ready(Err(AcquireError::Closed))
            ));
        }
        self.leases.clear();
        self.tickets.clear();
        self.retired.clear();
        let alarm = Arc::new(Alarm::default());
        loop {
            match poll(&mut self.pool.next_effect(), &alarm) {
                Poll::Ready(Some(effect)) => drop(effect),
                Poll::Ready(None) => break,
                Poll::Pending => panic!("something is left that nobody will end"),
            }
        }
        for id in self.dropped.borrow_mut().drain(..) {
            self.lives[id].drops += 1;
        }
        assert!(
            self.lives.iter().all(|life| life.drops == 1),
            "every resource is dropped exactly once"
        );
    }
}

fn random_limits(chance: &mut Chance) -> KeyLimits {
    let max = 1 + chance.below(6);
    KeyLimits {
        max,
        min_idle: [0, 0, 1, 2][chance.below(4)].min(max),
        waiters_max: 1 + chance.below(12),
        idle_timeout: Duration::from_millis(120),
        lifetime_max: Duration::from_millis(400),
        lifetime_jitter: Duration::ZERO,
        open_retry: Duration::from_millis(50),
    }
}

#[test]
fn a_million_steps_agree_with_the_model() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        for step in 0..STEPS_PER_SEED {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.step()));
            assert!(outcome.is_ok(), "seed {seed}, step {step}");
        }
        world.finish();
    }
}
