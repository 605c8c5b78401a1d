//! Interleavings of small worlds, all with at most three preemptions: no lost wake-up, no resource
//! held twice, no leak under cancellation.
//!
//! A lost wake-up shows as a deadlock, which `loom` reports. To check that these tests can fail,
//! the gates were read before the stripe's lock instead of under it in `KeyState::give_fast`:
//! `a_return_meets_a_waiter` deadlocks then. Without the fence in `KeyState::is_short`,
//! `two_takers_leave_no_shortage_unseen` fails; without those in `UserHandle::needed_elsewhere`,
//! `want` and `set_waiting`, the two tests about missed waiters fail.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use loom::future::block_on;
use loom::thread;
use pool::shares::{ConnectionShares, TenantQuota, ThreadLetter, ThreadWake};
use pool::{DriverEffect, KeyHandle, KeyLimits, Pool, PoolConfig};

type Small = Pool<u8, Token>;

/// A resource with a mark that only its holder may have set.
struct Token {
    held: loom::sync::atomic::AtomicBool,
}

impl Token {
    /// Fails if the same resource has another holder.
    fn hold(&self) {
        let before = self.held.swap(true, loom::sync::atomic::Ordering::Relaxed);
        assert!(!before, "one resource in two hands");
        self.held.store(false, loom::sync::atomic::Ordering::Relaxed);
    }
}

#[expect(clippy::disallowed_methods, reason = "std offers no other way to make an `Instant`")]
fn start() -> Instant {
    Instant::now()
}

/// Performs all effects of the pool.
fn drive(pool: &Small, now: Instant) {
    while let Some(effect) = pool.try_next_effect() {
        perform(effect, now);
    }
}

fn perform(effect: DriverEffect<u8, Token>, now: Instant) {
    match effect {
        DriverEffect::Open(ticket) => {
            ticket.opened(Token { held: loom::sync::atomic::AtomicBool::new(false) }, now)
        }
        DriverEffect::Close(retired) => drop(retired),
        DriverEffect::TickAt(_) => {}
    }
}

/// A pool with `n` idle resources of key 0 and room for no more.
fn filled(n: usize, now: Instant) -> (Small, KeyHandle<u8, Token>) {
    let pool = Pool::new(PoolConfig { total_max: n, stripes: 2, ..PoolConfig::default() }, now);
    let handle =
        pool.key_with(&0, KeyLimits { max: n, min_idle: n, ..KeyLimits::default() }).unwrap();
    drive(&pool, now);
    handle.set_limits(KeyLimits { max: n, ..KeyLimits::default() }, now);
    assert_eq!(handle.stats().idle, n);
    (pool, handle)
}

fn explore(world: impl Fn(Instant) + Send + Sync + 'static) {
    let now = start();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(move || world(now));
}

fn later(now: Instant) -> Instant {
    now + Duration::from_secs(30)
}

#[test]
fn a_return_meets_a_waiter() {
    explore(|now| {
        let (_pool, handle) = filled(1, now);
        let lease = handle.try_acquire(now).unwrap().unwrap();
        let other = {
            let handle = handle.clone();
            thread::spawn(move || block_on(handle.acquire(now, later(now))).unwrap().hold())
        };
        lease.hold();
        drop(lease);
        other.join().unwrap();
        assert_eq!((handle.stats().idle, handle.stats().waiting), (1, 0));
    });
}

#[test]
fn one_resource_is_never_in_two_hands() {
    explore(|now| {
        let (_pool, handle) = filled(1, now);
        let other = {
            let handle = handle.clone();
            thread::spawn(move || block_on(handle.acquire(now, later(now))).unwrap().hold())
        };
        block_on(handle.acquire(now, later(now))).unwrap().hold();
        other.join().unwrap();
        assert_eq!((handle.stats().idle, handle.stats().leased), (1, 0));
    });
}

#[test]
fn a_cancelled_waiter_loses_nothing() {
    explore(|now| {
        let (_pool, handle) = filled(1, now);
        let lease = handle.try_acquire(now).unwrap().unwrap();
        let other = {
            let handle = handle.clone();
            thread::spawn(move || {
                let mut future = handle.acquire(now, later(now));
                let answer = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(lease) = answer {
                    lease.unwrap().hold();
                }
                drop(future);
            })
        };
        lease.hold();
        drop(lease);
        other.join().unwrap();
        assert_eq!((handle.stats().idle, handle.stats().waiting), (1, 0));
    });
}

#[test]
fn a_cancelled_waiter_passes_its_turn_on() {
    explore(|now| {
        let (_pool, handle) = filled(1, now);
        let lease = handle.try_acquire(now).unwrap().unwrap();
        let mut first = handle.acquire(now, later(now));
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let second = {
            let handle = handle.clone();
            thread::spawn(move || block_on(handle.acquire(now, later(now))).unwrap().hold())
        };
        drop(lease);
        drop(first);
        second.join().unwrap();
        assert_eq!((handle.stats().idle, handle.stats().waiting), (1, 0));
    });
}

#[test]
fn a_return_to_one_key_feeds_another() {
    explore(|now| {
        let (pool, handle) = filled(1, now);
        let lease = handle.try_acquire(now).unwrap().unwrap();
        let other = pool.key(&1).unwrap();
        let waiting = {
            let other = other.clone();
            thread::spawn(move || block_on(other.acquire(now, later(now))).unwrap().hold())
        };
        drop(lease);
        // The close that makes room, then the open, and any other effects in between.
        while other.counters().created == 0 {
            match block_on(pool.next_effect()) {
                Some(effect) => perform(effect, now),
                None => panic!("the pool is not closed"),
            }
        }
        waiting.join().unwrap();
        assert_eq!((handle.stats().idle, other.stats().idle, pool.stats().live), (0, 1, 1));
    });
}

#[test]
fn two_takers_leave_no_shortage_unseen() {
    explore(|now| {
        let pool = Pool::new(PoolConfig { total_max: 8, stripes: 2, ..PoolConfig::default() }, now);
        let limits = |min_idle| KeyLimits { max: 8, min_idle, ..KeyLimits::default() };
        let handle = pool.key_with(&0, limits(2)).unwrap();
        drive(&pool, now);
        // Threads are numbered as they start and use the stripes in turn: this one moves a resource
        // to the other stripe,
        let mine = handle.try_acquire(now).unwrap().unwrap();
        let mover = handle.clone();
        thread::spawn(move || drop(mover.try_acquire(now).unwrap().unwrap())).join().unwrap();
        drop(mine);
        // and the next one would use ours.
        thread::spawn(|| ()).join().unwrap();
        drive(&pool, now);
        assert_eq!(handle.stats().idle, 4);
        handle.set_limits(limits(3), now);
        let other = {
            let handle = handle.clone();
            thread::spawn(move || handle.try_acquire(now).unwrap().unwrap())
        };
        let mine = handle.try_acquire(now).unwrap().unwrap();
        let theirs = other.join().unwrap();
        let stats = handle.stats();
        assert!(stats.idle == 2 && stats.opening == 1, "nobody saw the shortage: {stats:?}");
        drop((mine, theirs));
    });
}

#[test]
fn closing_reaches_everything() {
    explore(|now| {
        let (pool, handle) = filled(1, now);
        let other = {
            let handle = handle.clone();
            thread::spawn(move || {
                if let Ok(lease) = block_on(handle.acquire(now, later(now))) {
                    lease.hold();
                }
            })
        };
        pool.close(now);
        while let Some(effect) = block_on(pool.next_effect()) {
            perform(effect, now);
        }
        other.join().unwrap();
        assert!(handle.stats().is_empty());
    });
}

/// Does nothing: the tests check the letter boxes anyway.
struct Deaf;

impl ThreadWake for Deaf {
    fn wake(&self, _: usize) {}
}

#[test]
fn whoever_shows_an_idle_connection_sees_who_is_in_line_or_is_asked_for_it() {
    explore(|now| {
        let (shares, handles) = ConnectionShares::new(2, Box::new(Deaf), now);
        let server = shares.server(2);
        let tenant = || server.tenant(TenantQuota::default()).key(2);
        let (has, wants) = (tenant(), tenant());
        let permits = (has.open(now, now).unwrap(), has.open(now, now).unwrap());
        let showing = has.clone();
        let shower = thread::spawn(move || {
            showing.set_idle(0, Some(now));
            showing.needed_elsewhere(0)
        });
        wants.want(1, 1, now, now);
        let mut letters = Vec::new();
        handles[0].take_letters(&mut letters);
        let reclaims = matches!(letters[..], [ThreadLetter::Reclaim(_)]);
        let sees = shower.join().unwrap();
        assert!(sees || reclaims, "an idle connection and a tenant in line miss one another");
        drop((letters, permits));
    });
}

#[test]
fn a_thread_that_waits_sees_an_idle_connection_or_is_seen() {
    explore(|now| {
        let (shares, _handles) = ConnectionShares::new(2, Box::new(Deaf), now);
        let key = shares.server(2).tenant(TenantQuota::default()).key(2);
        let showing = key.clone();
        let shower = thread::spawn(move || {
            showing.set_idle(0, Some(now));
            showing.needed_elsewhere(0)
        });
        key.set_waiting(1, Some(now));
        let sees = key.idle_elsewhere(1).is_some();
        assert!(shower.join().unwrap() || sees, "an idle connection and a client miss one another");
    });
}
