//! Leases of a pool, and the table of a sandbox pool.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pool::residents::{Residents, State};
use pool::{DriverEffect, KeyHandle, KeyLimits, Pool, PoolConfig};

type Handle = KeyHandle<String, u64>;

const WAITERS: usize = 16;
const LIVE: usize = 100;
const DEADLINE: Duration = Duration::from_secs(3600);

/// Returns a pool with `n` permanent resources.
fn filled(n: usize, now: Instant) -> (Pool<String, u64>, Handle) {
    let pool = Pool::new(PoolConfig { stripes: 2, ..PoolConfig::default() }, now);
    let limits = KeyLimits { max: n, min_idle: n, ..KeyLimits::default() };
    let handle = pool.key_with(&"tenant".to_owned(), limits).expect("the first key fits");
    open(&pool, now);
    handle.set_limits(KeyLimits { max: n, min_idle: 0, ..KeyLimits::default() }, now);
    (pool, handle)
}

/// Opens the resources that the pool requests. Returns their number.
fn open(pool: &Pool<String, u64>, now: Instant) -> usize {
    let mut opened = 0;
    for effect in pool.take_effects() {
        if let DriverEffect::Open(ticket) = effect {
            ticket.opened(7, now);
            opened += 1;
        }
    }
    opened
}

/// Leases an available resource and returns it.
pub fn acquire_return(operations: u64) {
    let now = Instant::now();
    let (_pool, handle) = filled(4, now);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..operations {
        let acquire = pin!(handle.acquire(now, now + DEADLINE));
        let Poll::Ready(Ok(lease)) = acquire.poll(&mut context) else { panic!("one is idle") };
        assert_eq!(*black_box(&*lease), 7);
    }
    assert_eq!(handle.stats().idle, 4);
}

/// Passes a lease to the first of sixteen waiters, each of which queues again at the end.
pub fn handover(operations: u64) {
    let now = Instant::now();
    let (_pool, handle) = filled(1, now);
    let mut context = Context::from_waker(Waker::noop());
    let mut queue = std::collections::VecDeque::with_capacity(WAITERS + 1);
    let mut lease = None;
    for _ in 0..=WAITERS {
        let mut acquire = Box::pin(handle.acquire(now, now + DEADLINE));
        match acquire.as_mut().poll(&mut context) {
            Poll::Ready(first) => lease = Some(first.expect("one is idle")),
            Poll::Pending => queue.push_back(acquire),
        }
    }
    for _ in 0..operations {
        drop(lease.take().expect("somebody has it"));
        let mut first = queue.pop_front().expect("some wait");
        let Poll::Ready(next) = first.as_mut().poll(&mut context) else { panic!("its turn") };
        lease = Some(next.expect("it was handed over"));
        first.set(handle.acquire(now, now + DEADLINE));
        assert!(first.as_mut().poll(&mut context).is_pending());
        queue.push_back(first);
    }
}

/// Opens a resource for a client and retires it, because no other client may use it.
pub fn open_retire(operations: u64) {
    let now = Instant::now();
    let pool = Pool::new(PoolConfig { stripes: 2, ..PoolConfig::default() }, now);
    let limits = KeyLimits { max: 1, min_idle: 0, ..KeyLimits::default() };
    let handle: Handle = pool.key_with(&"tenant".to_owned(), limits).expect("the first key fits");
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..operations {
        let mut acquire = pin!(handle.acquire(now, now + DEADLINE));
        assert!(acquire.as_mut().poll(&mut context).is_pending());
        assert_eq!(open(&pool, now), 1);
        let Poll::Ready(Ok(lease)) = acquire.poll(&mut context) else { panic!("it was opened") };
        lease.discard();
        drop(pool.take_effects());
    }
}

/// Returns residents in the states of a busy pool, with their names.
fn residents(capacity: usize, now: Instant) -> (Residents<String>, Vec<String>) {
    let mut residents = Residents::new(capacity, now);
    let ids: Vec<String> = (0..LIVE).map(|number| format!("sb-{number:06}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let state = match number % 10 {
            0..4 => State::Running,
            4..7 => State::Waiting,
            _ => State::Warm,
        };
        residents.insert(id.clone(), state, now).expect("there is room");
    }
    (residents, ids)
}

/// Marks a sandbox as running and idle again.
pub fn marks(operations: u64) {
    let now = Instant::now();
    let (mut residents, ids) = residents(LIVE, now);
    for number in 0..operations {
        let id = &ids[number as usize % (LIVE / 10) * 10 + 4];
        residents.mark_running(id, now).expect("it rests");
        residents.mark_waiting(id, now).expect("it works");
    }
    assert_eq!(residents.count(), LIVE);
}

/// Adds a sandbox to a full table, which evicts the one that was idle longest.
pub fn evict(operations: u64) {
    let now = Instant::now();
    let (mut residents, _) = residents(LIVE, now);
    for number in 0..operations {
        let new = format!("new-{number:06}");
        let evicted = residents.insert(new, State::Warm, now).expect("one can go");
        assert!(evicted.is_some());
    }
    assert_eq!(residents.count(), LIVE);
}
