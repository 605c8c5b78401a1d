//! Scenarios as data: a script of moves, and the pool's reactions.
//!
//! Moves are words: `acquire a` queues or leases, `return`, `discard` and `detach` end the oldest
//! lease (or the oldest of a key: `return b`), `open` and `fail` answer the oldest ticket, `shut`
//! finishes the oldest closing, `+50` lets milliseconds pass. The pool's reactions follow each
//! move: leases as `a=1` (key and resource number), effects as `open a` and `close 1 idle`,
//! refusals as `a: why`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pool::{
    AbandonedTicket, Acquire, AcquireError, DriverEffect, EvictionTier, KeyLimits, Lease, Pool,
    PoolConfig, RetiredResource, Ticket,
};

use crate::support::{Alarm, poll, start};

type Key = char;

struct Scene {
    pool: Pool<Key, u32>,
    now: Instant,
    leases: VecDeque<Lease<Key, u32>>,
    waiting: Vec<(Key, Acquire<'static, Key, u32>, Arc<Alarm>)>,
    tickets: VecDeque<Ticket<Key, u32>>,
    closing: VecDeque<RetiredResource<Key, u32>>,
    opened: u32,
    outcome: String,
}

fn limits() -> KeyLimits {
    KeyLimits {
        max: 2,
        min_idle: 0,
        waiters_max: 3,
        idle_timeout: Duration::from_millis(100),
        lifetime_max: Duration::from_millis(1_000),
        lifetime_jitter: Duration::ZERO,
        open_retry: Duration::from_millis(50),
    }
}

fn config(total_max: usize) -> PoolConfig {
    PoolConfig { total_max, keys_max: 3, waiters_max: 5, stripes: 1, seed: 1, key: limits() }
}

/// Plays a script and compares what the pool did, move by move, with `expected`.
#[track_caller]
fn check(config: PoolConfig, script: &[&str], expected: &[&str]) {
    let now = start();
    let mut scene = Scene {
        pool: Pool::new(config, now),
        now,
        leases: VecDeque::new(),
        waiting: Vec::new(),
        tickets: VecDeque::new(),
        closing: VecDeque::new(),
        opened: 0,
        outcome: String::new(),
    };
    let outcomes: Vec<String> = script.iter().map(|step| scene.play(step)).collect();
    assert_eq!(outcomes, expected);
}

impl Scene {
    fn play(&mut self, step: &str) -> String {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let key = rest.chars().next();
        match verb {
            "acquire" => {
                let deadline = self.now + Duration::from_millis(200);
                let future = self.pool.acquire(&key.unwrap(), self.now, deadline);
                self.waiting.push((key.unwrap(), future, Arc::default()));
                self.poll(true);
            }
            "return" => drop(self.lease(key)),
            "discard" => self.lease(key).discard(),
            "detach" => drop(self.lease(key).into_inner()),
            "tier" => {
                let lease = self.leases.front_mut().unwrap();
                lease.set_tier(EvictionTier(rest.parse().unwrap()));
            }
            "open" => {
                self.opened += 1;
                self.tickets.pop_front().unwrap().opened(self.opened, self.now);
            }
            "fail" => self.tickets.pop_front().unwrap().failed(Arc::new(AbandonedTicket), self.now),
            "abandon" => drop(self.tickets.pop_front().unwrap()),
            "shut" => drop(self.closing.pop_front().unwrap()),
            "cancel" => drop(self.waiting.remove(0)),
            "warm" => {
                let min_idle = 2;
                let _handle = self
                    .pool
                    .key_with(&key.unwrap(), KeyLimits { max: 4, min_idle, ..limits() })
                    .unwrap();
            }
            "pause" => self.pool.key(&key.unwrap()).unwrap().pause(),
            "resume" => self.pool.key(&key.unwrap()).unwrap().resume(self.now),
            "drain" => self.pool.key(&key.unwrap()).unwrap().drain(self.now),
            "forget" => write!(self.outcome, " {}", self.pool.forget(&key.unwrap())).unwrap(),
            "close" => self.pool.close(self.now),
            later => {
                let millis = later.strip_prefix('+').unwrap().parse().unwrap();
                self.now += Duration::from_millis(millis);
                self.pool.tick(self.now);
            }
        }
        self.collect();
        std::mem::take(&mut self.outcome).trim_start().to_owned()
    }

    fn lease(&mut self, key: Option<Key>) -> Lease<Key, u32> {
        let position =
            self.leases.iter().position(|lease| key.is_none_or(|key| *lease.key() == key)).unwrap();
        self.leases.remove(position).unwrap()
    }

    fn collect(&mut self) {
        self.poll(false);
        for effect in self.pool.take_effects() {
            match effect {
                DriverEffect::Open(ticket) => {
                    write!(self.outcome, " open {}", ticket.key()).unwrap();
                    self.tickets.push_back(ticket);
                }
                DriverEffect::Close(retired) => {
                    let reason = format!("{:?}", retired.reason()).to_lowercase();
                    write!(self.outcome, " close {} {reason}", *retired).unwrap();
                    self.closing.push_back(retired);
                }
                DriverEffect::TickAt(_) => {}
            }
        }
    }

    /// Polls the last future if it is `new`, and all that were woken.
    fn poll(&mut self, new: bool) {
        let last = self.waiting.len().wrapping_sub(1);
        let mut position = 0;
        self.waiting.retain_mut(|(key, future, alarm)| {
            let due = alarm.rang() > 0 || (new && position == last);
            position += 1;
            if !due {
                return true;
            }
            match poll(future, alarm) {
                Poll::Pending => return true,
                Poll::Ready(Ok(lease)) => {
                    write!(self.outcome, " {key}={}", *lease).unwrap();
                    self.leases.push_back(lease);
                }
                Poll::Ready(Err(error)) => write!(self.outcome, " {key}: {error}").unwrap(),
            }
            false
        });
    }
}

#[test]
fn the_first_to_come_is_the_first_served() {
    check(
        config(9),
        &["acquire a", "acquire a", "acquire a", "open", "open", "return", "acquire a"],
        &["open a", "open a", "", "a=1", "a=2", "a=1", ""],
    );
}

#[test]
fn the_last_returned_is_the_first_reused() {
    check(
        config(9),
        &["acquire a", "acquire a", "open", "open", "return", "return", "acquire a"],
        &["open a", "open a", "a=1", "a=2", "", "", "a=2"],
    );
}

#[test]
fn a_cancelled_waiter_passes_its_turn_on() {
    check(
        config(1),
        &["acquire a", "open", "acquire a", "acquire a", "cancel", "return"],
        &["open a", "a=1", "", "", "", "a=1"],
    );
}

#[test]
fn a_full_queue_says_which_bound_it_reached() {
    check(
        config(1),
        &[
            "acquire a",
            "acquire a",
            "acquire a",
            "acquire a",
            "acquire b",
            "acquire b",
            "acquire b",
            "acquire c",
            "acquire d",
        ],
        &[
            "open a",
            "",
            "",
            "a: waiters of the key are at their limit of 3",
            "",
            "",
            "b: waiters of the pool are at their limit of 5",
            "c: waiters of the pool are at their limit of 5",
            "d: keys of the pool are at their limit of 3",
        ],
    );
}

#[test]
fn a_deadline_passes_in_a_tick() {
    check(
        config(1),
        &["acquire a", "acquire a", "+199", "+1", "open"],
        &[
            "open a",
            "",
            "",
            "a: no resource became free before the deadline a: no resource became free before the deadline",
            "",
        ],
    );
}

#[test]
fn an_idle_resource_makes_room_for_another_key() {
    check(
        config(2),
        &[
            "acquire a",
            "acquire a",
            "open",
            "open",
            "return",
            "return",
            "acquire b",
            "shut",
            "open",
        ],
        &["open a", "open a", "a=1", "a=2", "", "", "close 1 evicted", "open b", "b=3"],
    );
}

#[test]
fn the_highest_tier_is_evicted_first() {
    check(
        config(2),
        &[
            "acquire a",
            "open",
            "+1",
            "acquire a",
            "open",
            "return",
            "+1",
            "tier 7",
            "return",
            "acquire b",
        ],
        &["open a", "a=1", "", "open a", "a=2", "", "", "", "", "close 2 evicted"],
    );
}

#[test]
fn a_busy_key_does_not_starve_another() {
    // Both of `a` are leased and two more of `a` wait; `b` holds nothing and came last.
    check(
        config(2),
        &[
            "acquire a",
            "open",
            "acquire a",
            "open",
            "acquire a",
            "acquire a",
            "acquire b",
            "return",
            "shut",
            "open",
            "return",
        ],
        &["open a", "a=1", "open a", "a=2", "", "", "", "close 1 evicted", "open b", "b=3", "a=2"],
    );
}

#[test]
fn a_single_use_resource_is_replaced_when_it_is_taken() {
    check(
        config(9),
        &["warm a", "open", "open", "acquire a", "discard", "shut"],
        &["open a open a", "", "", "a=2 open a", "close 2 discarded", ""],
    );
}

#[test]
fn a_replacement_waits_for_the_place_of_what_it_replaces() {
    check(
        config(2),
        &["warm a", "open", "open", "acquire a", "discard", "shut", "open", "acquire a", "detach"],
        &["open a open a", "", "", "a=2", "close 2 discarded", "open a", "", "a=3", "open a"],
    );
}

#[test]
fn a_failed_open_fails_the_first_waiter_only() {
    check(
        config(9),
        &["acquire a", "acquire a", "acquire a", "fail", "abandon", "open"],
        &["open a", "open a", "", "a: open a resource open a", "a: open a resource", "a=1"],
    );
}

#[test]
fn background_opens_rest_after_a_failure() {
    check(
        config(9),
        &["warm a", "fail", "fail", "+49", "+1"],
        &["open a open a", "", "", "", "open a open a"],
    );
}

#[test]
fn idle_and_old_resources_are_closed() {
    check(
        config(9),
        &[
            "acquire a",
            "open",
            "return",
            "+99",
            "+1",
            "shut",
            "acquire a",
            "open",
            "+1000",
            "return",
        ],
        &["open a", "a=1", "", "", "close 1 idle", "", "open a", "a=2", "", "close 2 lifetime"],
    );
}

#[test]
fn the_minimum_is_kept_through_idleness() {
    check(
        config(9),
        &["warm a", "open", "open", "+500", "+500", "shut", "shut"],
        &["open a open a", "", "", "", "close 1 lifetime open a close 2 lifetime open a", "", ""],
    );
}

#[test]
fn a_paused_key_holds_back_and_resumes_in_order() {
    check(
        config(2),
        &["acquire a", "open", "pause a", "acquire a", "return", "acquire a", "resume a", "return"],
        &["open a", "a=1", "", "", "", "", "a=1 open a", "a=1"],
    );
}

#[test]
fn a_drained_key_empties_and_is_forgotten() {
    check(
        config(9),
        &[
            "acquire a",
            "acquire a",
            "open",
            "drain a",
            "open",
            "return",
            "acquire a",
            "forget a",
            "shut",
            "shut",
            "forget a",
        ],
        &[
            "open a",
            "open a",
            "a=1",
            "a: the key is being drained",
            "close 2 drained",
            "close 1 drained",
            "a: the key is being drained",
            "false",
            "",
            "",
            "true",
        ],
    );
}

#[test]
fn a_closed_pool_refuses_and_lets_leases_end() {
    check(
        config(9),
        &["acquire a", "open", "acquire a", "close", "acquire a", "open", "return"],
        &[
            "open a",
            "a=1",
            "open a",
            "a: the pool is closed",
            "a: the pool is closed",
            "close 2 closed",
            "close 1 closed",
        ],
    );
}

#[test]
fn lifetimes_are_spread_by_the_seed() {
    let spread = |seed| {
        let now = start();
        let pool = Pool::new(PoolConfig { seed, ..PoolConfig::default() }, now);
        let limits = KeyLimits {
            max: 8,
            min_idle: 8,
            lifetime_max: Duration::from_secs(100),
            lifetime_jitter: Duration::from_secs(50),
            idle_timeout: Duration::from_secs(1_000),
            ..KeyLimits::default()
        };
        let _handle = pool.key_with(&'a', limits).unwrap();
        for effect in pool.take_effects() {
            if let DriverEffect::Open(ticket) = effect {
                ticket.opened((), now);
            }
        }
        let closed_by = |seconds| {
            pool.tick(now + Duration::from_secs(seconds));
            pool.take_effects()
                .iter()
                .filter(|effect| matches!(effect, DriverEffect::Close(_)))
                .count()
        };
        (50..=100).map(closed_by).collect::<Vec<_>>()
    };
    let one = spread(1);
    assert_eq!(one.iter().sum::<usize>(), 8);
    assert!(one.iter().all(|together| *together < 8), "they do not all close together");
    assert_eq!(one, spread(1));
    assert_ne!(one, spread(2));
}

#[test]
fn a_pool_without_owner_lets_go_of_everything() {
    /// Records its drop.
    struct Loud(Rc<RefCell<u32>>);
    impl Drop for Loud {
        fn drop(&mut self) {
            *self.0.borrow_mut() += 1;
        }
    }
    let drops = Rc::new(RefCell::new(0));
    let now = start();
    let pool = Pool::new(config(9), now);
    let handle = pool.key_with(&'a', KeyLimits { min_idle: 2, ..limits() }).unwrap();
    for effect in pool.take_effects() {
        if let DriverEffect::Open(ticket) = effect {
            ticket.opened(Loud(Rc::clone(&drops)), now);
        }
    }
    let lease = handle.try_acquire(now).unwrap();
    drop(pool);
    assert_eq!(*drops.borrow(), 1, "the idle one goes at once");
    assert!(matches!(handle.try_acquire(now), Err(AcquireError::Closed)));
    drop(lease);
    assert_eq!(*drops.borrow(), 2, "the leased one when it returns");
    assert!(handle.stats().is_empty());
}
