//! The pool's rows for a relay thread that leases a server connection: the thread has its own pools
//! and shares their bounds with the other threads.
//!
//! Connections are numbers. A thread has several clients and takes their turns; a connection moves
//! to another thread through a mailbox, as in the relay.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bouncer::relay::pools::{
    FreedConnectionUse as Next, PoolEffect as Effect, PoolRef, PoolRegistry as Registry,
    PoolTerms as Terms, PooledSlot as Place, ServerLease as Lease, ThreadPools as Pools,
};
use bouncer::tenants::{PoolId, ServerId, TenantId};
use crossbeam_channel::Receiver;
use pool::shares::{TenantQuota as TenantLimits, ThreadWake as Wake};

use crate::measure::{Row, measure, measure_prepared};

const THREADS: usize = 2;

/// Leases of one turn: a relay thread reads the clock once for all events of a turn.
const LEASES_PER_TURN: usize = 32;

/// Whether each thread has been woken.
#[derive(Default)]
struct Bells([AtomicBool; THREADS]);

impl Wake for Bells {
    fn wake(&self, thread: usize) {
        self.0[thread].store(true, Ordering::Release);
    }
}

/// Connections in transit to a thread.
type Letters = Mutex<Vec<(u32, Place)>>;

/// A thread with its part of the connections.
struct Side {
    thread: usize,
    pools: Pools<u32, u32>,
    pool: PoolRef,
    /// Places of this thread's connections, by number.
    places: Vec<Option<Place>>,
    letters: Arc<[Letters; THREADS]>,
    bells: Arc<Bells>,
    /// Connection of each client of this thread.
    has: Vec<Option<u32>>,
    waits: Vec<bool>,
    now: Instant,
}

/// Creates a pool of `n` connections, all idle and evenly distributed over the threads.
fn filled(n: u32, clients: usize) -> Vec<Side> {
    let now = Instant::now();
    let bells = Arc::new(Bells::default());
    let (registry, desks) = Registry::new(THREADS, Arc::clone(&bells) as Arc<dyn Wake>, now);
    let letters: Arc<[Letters; THREADS]> = Arc::default();
    let terms = Terms {
        server: ServerId(0),
        server_connections_max: n,
        tenant: TenantLimits { connections_max: n, ..TenantLimits::default() },
        connections_max: n,
        connections_min: 0,
        waiting_max: 1_000,
        wait: Some(Duration::from_secs(30)),
        idle: Some(Duration::from_secs(300)),
        lifetime: Some(Duration::from_secs(1_800)),
        retry: Duration::from_secs(15),
        epoch: 0,
        revision: 0,
    };
    let mut sides: Vec<Side> = desks
        .into_iter()
        .enumerate()
        .map(|(thread, desk)| {
            let mut pools = Pools::new(Arc::clone(&registry), desk, 1);
            let pool = pools.join(PoolId(0), TenantId(0), terms.clone(), now);
            let places = (0..n).map(|_| None).collect();
            let (letters, bells) = (Arc::clone(&letters), Arc::clone(&bells));
            let (has, waits) = (vec![None; clients], vec![false; clients]);
            Side { thread, pools, pool, places, letters, bells, has, waits, now }
        })
        .collect();
    for conn in 0..n {
        let side = &mut sides[conn as usize % THREADS];
        // The waiting client gets the connection that is opened for it.
        while !matches!(side.pools.lease(side.pool, u32::MAX, 0, None, now), Lease::Waiting(_)) {}
        while let Some(effect) = side.pools.next_effect() {
            let Effect::Open { mut place, .. } = effect else {
                continue;
            };
            side.pools.opened(side.pool, conn, &mut place, 0, now);
            side.places[conn as usize] = Some(place);
        }
    }
    for conn in 0..n {
        let side = &mut sides[conn as usize % THREADS];
        let mut place = side.places[conn as usize].take().expect("it was opened here");
        side.pools.returned(side.pool, conn, &mut place, 0, 0, now);
        side.places[conn as usize] = Some(place);
    }
    sides
}

impl Side {
    /// Begins a turn of a relay thread.
    fn turn(&mut self) {
        self.now = Instant::now();
        if self.pools.next_due().is_some_and(|due| due <= self.now) {
            self.pools.tick(self.now);
        }
        let bell = &self.bells.0[self.thread];
        if bell.load(Ordering::Relaxed) && bell.swap(false, Ordering::Acquire) {
            self.pools.mail(self.now);
            let arrived = std::mem::take(&mut *self.letters[self.thread].lock().expect("no panic"));
            for (conn, mut place) in arrived {
                let taken = self.pools.received(conn, &mut place, 0, self.now);
                self.places[conn as usize] = Some(place);
                self.follow(conn, taken.expect("the pool is here").1);
            }
        }
        while let Some(effect) = self.pools.next_effect() {
            match effect {
                Effect::Move { conn, thread } => self.send(conn, thread),
                other => panic!("{other:?} is not needed here"),
            }
        }
    }

    fn send(&mut self, conn: u32, thread: usize) {
        let place = self.places[conn as usize].take().expect("it is here");
        self.letters[thread].lock().expect("no panic").push((conn, place));
        self.bells.wake(thread);
    }

    fn follow(&mut self, conn: u32, next: Next<u32>) {
        match next {
            Next::Idle => {}
            Next::Serve(client) => {
                self.waits[client as usize] = false;
                self.has[client as usize] = Some(conn);
            }
            Next::Move(thread) => self.send(conn, thread),
            Next::Close(reason) => panic!("{reason} is not needed here"),
        }
    }

    /// Leases for a client. Returns whether a connection was available at once.
    fn lease(&mut self, client: usize) -> bool {
        let number = u32::try_from(client).expect("few clients");
        match self.pools.lease(self.pool, number, 0, None, self.now) {
            Lease::Ready(conn) => self.has[client] = Some(black_box(conn)),
            Lease::Waiting(_) => self.waits[client] = true,
            Lease::Refused(refusal) => panic!("{refusal}"),
        }
        !self.waits[client]
    }

    fn give_back(&mut self, client: usize) {
        let conn = self.has[client].take().expect("it has one");
        let mut place = self.places[conn as usize].take().expect("it is here");
        let next = self.pools.returned(self.pool, conn, &mut place, 0, 1, self.now);
        self.places[conn as usize] = Some(place);
        self.follow(conn, next);
    }

    /// Lets each client in turn lease and return, as often as `more` permits.
    fn at_once(&mut self, mut more: impl FnMut() -> bool) {
        loop {
            self.turn();
            for client in (0..self.has.len()).cycle().take(LEASES_PER_TURN) {
                if !more() {
                    return;
                }
                assert!(self.lease(client), "nobody keeps one");
                self.give_back(client);
            }
        }
    }

    /// Lets each client lease, and return in its next turn, so that queues form. A thread that is
    /// done serves the others until all are.
    fn holding(&mut self, ops: usize, busy: &AtomicUsize) {
        let mut done = 0;
        while done < ops || self.has.iter().any(Option::is_some) || self.waits.contains(&true) {
            self.turn();
            for client in 0..self.has.len() {
                if self.has[client].is_some() {
                    self.give_back(client);
                    done += 1;
                } else if !self.waits[client] && done < ops {
                    self.lease(client);
                }
            }
        }
        busy.fetch_sub(1, Ordering::Relaxed);
        while busy.load(Ordering::Relaxed) > 0 {
            self.turn();
            thread::yield_now();
        }
    }
}

/// Runs both threads. Returns whether every connection is idle on one of them afterwards.
fn both(sides: &mut [Side], work: impl Fn(&mut Side) + Sync) -> bool {
    thread::scope(|scope| {
        for side in &mut *sides {
            scope.spawn(|| work(side));
        }
    });
    let mut idle = 0;
    for side in &mut *sides {
        side.turn();
    }
    for side in &mut *sides {
        side.turn();
        let figures = side.pools.figures(side.pool, side.now);
        idle += figures.idle as usize;
        if figures.leased + figures.waiting > 0 {
            return false;
        }
    }
    idle == sides[0].places.len()
}

/// Returns a token for each operation, and no more.
fn tokens(ops: usize) -> Receiver<()> {
    let (give, take) = crossbeam_channel::bounded(ops);
    for _ in 0..ops {
        give.send(()).expect("it has room for all");
    }
    take
}

/// Returns the same rows as `bench/pool`, by name.
pub fn rows() -> Vec<Row> {
    let mut one = filled(1, 1);
    let mut twelve = filled(12, 1);
    let mut four = filled(4, 8);
    let mut eight = filled(8, 16);
    let fixed = |ops: usize| {
        let mut left = ops;
        move || {
            left = left.wrapping_sub(1);
            left < ops
        }
    };
    vec![
        measure("lease/acquire_return", 16_000, |ops| {
            one[0].at_once(fixed(ops));
            true
        }),
        measure("lease/parallel", 200_000, |ops| {
            both(&mut twelve, |side| side.at_once(fixed(ops / THREADS)))
        }),
        measure("lease/contended", 200_000, |ops| {
            both(&mut four, |side| side.at_once(fixed(ops / THREADS)))
        }),
        measure("lease/contended_yield", 100_000, |ops| {
            let busy = AtomicUsize::new(THREADS);
            both(&mut four, |side| side.holding(ops / THREADS, &busy))
        }),
        measure_prepared("lease/throughput", 200_000, tokens, |_, take| {
            both(&mut eight, |side| side.at_once(|| take.recv().is_ok()))
        }),
        measure("lease/stats", 200_000, |ops| {
            // Connections move: after the previous rows, one thread may have all of them.
            let figures = |side: &Side| side.pools.figures(side.pool, side.now);
            let side = four.iter().max_by_key(|side| figures(side).idle).expect("two threads");
            let mut idle = 0;
            for _ in 0..ops {
                idle = black_box(figures(side)).idle;
            }
            idle > 0
        }),
    ]
}
