//! Individual behaviours, then a simulation of several threads in one.

mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::shares::{TenantQuota, ThreadWake};

use super::{
    CloseReason, ConnectionBounds, FETCH_IDLE_AFTER, FORGET_AFTER, FreedConnectionUse,
    LeaseRefusal, PoolEffect, PoolFailure, PoolRef, PoolRegistry, PoolTerms, PooledSlot,
    QueueTicket, REMIND_EVERY, RETRY_FIRST, ServerConnectionUse, ServerLease, ThreadPoolFigures,
    ThreadPools,
};
use crate::tenants::{PoolId, ServerId, TenantId};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Silent;

impl ThreadWake for Silent {
    fn wake(&self, _: usize) {}
}

fn terms() -> PoolTerms {
    PoolTerms {
        server: ServerId(0),
        server_connections_max: 10,
        tenant: TenantQuota { connections_max: 10, ..TenantQuota::default() },
        connections_max: 10,
        connections_min: 0,
        waiting_max: 3,
        wait: Some(ms(5_000)),
        idle: Some(ms(60_000)),
        lifetime: Some(ms(600_000)),
        retry: ms(15_000),
        epoch: 0,
        revision: 0,
    }
}

/// Threads whose connections and clients are identified by numbers.
struct Bench {
    registry: Arc<PoolRegistry>,
    pools: Vec<ThreadPools<u32, u32>>,
    pool: Vec<PoolRef>,
    places: Vec<(u32, PooledSlot)>,
    conns: u32,
    now: Instant,
}

impl Bench {
    fn new(threads: usize, terms: &PoolTerms) -> Bench {
        let now = node::clock::now();
        let (registry, handles) = PoolRegistry::new(threads, Arc::new(Silent), now);
        let mut pools: Vec<ThreadPools<u32, u32>> = handles
            .into_iter()
            .map(|handle| ThreadPools::new(Arc::clone(&registry), handle, 7))
            .collect();
        let join = |pools: &mut ThreadPools<u32, u32>| {
            pools.join(PoolId(0), TenantId(0), terms.clone(), now)
        };
        let pool = pools.iter_mut().map(join).collect();
        Bench { registry, pools, pool, places: Vec::new(), conns: 0, now }
    }

    /// Bounds the connections of the tenant and of its server.
    fn bound(&mut self, connections: u32) {
        self.registry.set_bounds(ConnectionBounds {
            servers: [(ServerId(0), connections)].into(),
            tenants: [(TenantId(0), connections)].into(),
        });
        for (pools, pool) in self.pools.iter_mut().zip(&self.pool) {
            pools.give_up_surplus(*pool);
        }
    }

    /// Returns the connections of the tenant, and those of its server.
    fn usage(&self) -> (ServerConnectionUse, ServerConnectionUse) {
        let usage = self.registry.usage();
        (usage.tenants[&TenantId(0)], usage.servers[&ServerId(0)])
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
        for pools in &mut self.pools {
            pools.tick(self.now);
        }
    }

    fn lease(&mut self, thread: usize, client: u32) -> ServerLease<u32> {
        self.lease_with(thread, client, (0, None))
    }

    fn lease_with(
        &mut self,
        thread: usize,
        client: u32,
        wish: (u64, Option<u32>),
    ) -> ServerLease<u32> {
        self.pools[thread].lease(self.pool[thread], client, wish.0, wish.1, self.now)
    }

    /// Returns a thread's effects in words; connections that it must close are closed.
    fn effects(&mut self, thread: usize) -> Vec<String> {
        self.pools[thread].mail(self.now);
        let mut said = Vec::new();
        while let Some(effect) = self.pools[thread].next_effect() {
            said.push(match effect {
                PoolEffect::Open { place, .. } => {
                    self.conns += 1;
                    self.places.push((self.conns, place));
                    format!("open {}", self.conns)
                }
                PoolEffect::Close { conn, reason } => {
                    self.places.retain(|(one, _)| *one != conn);
                    format!("close {conn}: {reason}")
                }
                PoolEffect::Move { conn, thread } => format!("move {conn} to {thread}"),
                PoolEffect::Refuse { client, refusal } => format!("refuse {client}: {refusal}"),
            });
        }
        said
    }

    fn place(&mut self, conn: u32) -> PooledSlot {
        let at = self.places.iter().position(|(one, _)| *one == conn).unwrap();
        self.places.swap_remove(at).1
    }

    fn opened(&mut self, thread: usize, conn: u32) -> FreedConnectionUse<u32> {
        let mut place = self.place(conn);
        let pool = self.pool[thread];
        let next = self.pools[thread].opened(pool, conn, &mut place, 0, self.now);
        self.kept(conn, place, next)
    }

    fn returned(&mut self, thread: usize, conn: u32, settings: u64) -> FreedConnectionUse<u32> {
        let mut place = self.place(conn);
        let (pool, now) = (self.pool[thread], self.now);
        let next = self.pools[thread].returned(pool, conn, &mut place, settings, 100, now);
        self.kept(conn, place, next)
    }

    fn received(&mut self, thread: usize, conn: u32) -> FreedConnectionUse<u32> {
        let mut place = self.place(conn);
        let (_, next) = self.pools[thread].received(conn, &mut place, 0, self.now).unwrap();
        self.kept(conn, place, next)
    }

    fn kept(
        &mut self,
        conn: u32,
        place: PooledSlot,
        next: FreedConnectionUse<u32>,
    ) -> FreedConnectionUse<u32> {
        if !matches!(next, FreedConnectionUse::Close(_)) {
            self.places.push((conn, place));
        }
        next
    }

    fn failed(&mut self, thread: usize, conn: u32) {
        let place = self.place(conn);
        let failure = PoolFailure::unreached("08006", "connection refused");
        let (pool, now) = (self.pool[thread], self.now);
        self.pools[thread].open_failed(pool, place, Arc::new(failure), now);
    }

    fn figures(&self, thread: usize) -> ThreadPoolFigures {
        self.pools[thread].figures(self.pool[thread], self.now)
    }

    /// Opens `count` connections and leaves them idle.
    fn idle(&mut self, thread: usize, count: u32) {
        for client in 0..count {
            assert!(matches!(self.lease(thread, client), ServerLease::Waiting(_)));
            assert_eq!(self.effects(thread), [format!("open {}", self.conns)]);
            assert_eq!(self.opened(thread, self.conns), FreedConnectionUse::Serve(client));
        }
        for conn in self.conns - count + 1..=self.conns {
            assert_eq!(self.returned(thread, conn, 0), FreedConnectionUse::Idle);
        }
    }
}

#[test]
fn a_client_waits_for_the_first_connection_and_then_shares_it() {
    let mut bench = Bench::new(1, &terms());
    assert_eq!(bench.lease(0, 1), ServerLease::Waiting(QueueTicket(0)));
    assert_eq!(bench.effects(0), ["open 1"]);
    // One at a time until one has succeeded.
    assert_eq!(bench.lease(0, 2), ServerLease::Waiting(QueueTicket(1)));
    assert_eq!(bench.effects(0), [""; 0]);
    assert_eq!(bench.opened(0, 1), FreedConnectionUse::Serve(1));
    assert_eq!(bench.effects(0), ["open 2"]);
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Serve(2));
    assert_eq!(bench.opened(0, 2), FreedConnectionUse::Idle);
    assert_eq!(bench.lease(0, 3), ServerLease::Ready(2));
    assert_eq!(bench.figures(0), ThreadPoolFigures { leased: 2, ..ThreadPoolFigures::default() });
}

/// Where all nodes share a limit, a node's part of it may grow and shrink at any time.
#[tokio::test]
async fn connections_are_those_of_the_nodes_part() {
    let usage = |bound, used, waiting| ServerConnectionUse { bound, used, waiting };
    let quota = TenantQuota { connections_max: 2, reserve: 1, ..TenantQuota::default() };
    let mut bench = Bench::new(1, &PoolTerms { tenant: quota, ..terms() });
    bench.bound(0);
    assert_eq!(bench.lease(0, 0), ServerLease::Waiting(QueueTicket(0)));
    assert_eq!(bench.effects(0), [""; 0]);
    bench.registry.demand().notified().await;
    assert_eq!(bench.usage(), (usage(0, 0, 1), usage(0, 0, 0)));
    bench.bound(1);
    assert_eq!(bench.effects(0), ["open 1"]);
    assert_eq!(bench.opened(0, 1), FreedConnectionUse::Serve(0));
    assert_eq!(bench.lease(0, 1), ServerLease::Waiting(QueueTicket(1)));
    bench.registry.demand().notified().await;
    bench.bound(5);
    assert_eq!(bench.effects(0), ["open 2"]);
    assert_eq!(bench.opened(0, 2), FreedConnectionUse::Serve(1));
    // The tenant's definition bounds its connections, whatever the part.
    assert_eq!(bench.usage(), (usage(5, 2, 0), usage(5, 2, 0)));
    // Idle connections are closed at once, leased ones when they are returned.
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Idle);
    bench.bound(1);
    let closed = format!("close 1: {}", CloseReason::GivenUp);
    assert_eq!(bench.effects(0), [closed]);
    assert_eq!(bench.usage(), (usage(1, 1, 0), usage(1, 1, 0)));
    // Another node needs a connection that was idle for a while.
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Idle);
    let (pool, now) = (bench.pool[0], bench.now);
    bench.pools[0].give_up_idle(pool, now - ms(1));
    assert_eq!(bench.effects(0), [""; 0]);
    assert_eq!(bench.lease(0, 2), ServerLease::Ready(2));
    bench.pools[0].give_up_idle(pool, now);
    assert_eq!(bench.effects(0), [""; 0]);
    bench.bound(0);
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Close(CloseReason::GivenUp));
    assert_eq!(bench.usage(), (usage(0, 0, 0), usage(0, 0, 0)));
}

#[test]
fn the_connection_that_fits_best_is_chosen_among_those_used_last() {
    // Settings of a client, its previous connection, and the expected connection.
    for (settings, last, expected) in [
        (5, None, 6),    // the one used last
        (5, Some(3), 3), // its own, which has its settings
        (7, Some(5), 4), // its settings before its own
        (7, Some(2), 4), // its own was used too long ago
        (9, Some(1), 6), // so was the only one with its settings
    ] {
        let mut bench = Bench::new(1, &terms());
        bench.idle(0, 6);
        for conn in (1..=6).rev() {
            assert_eq!(bench.lease(0, conn), ServerLease::Ready(conn));
        }
        for (conn, settings) in [(1, 9), (2, 7), (3, 5), (4, 7), (5, 5), (6, 5)] {
            assert_eq!(bench.returned(0, conn, settings), FreedConnectionUse::Idle);
        }
        let found = bench.lease_with(0, 0, (settings, last));
        assert_eq!(found, ServerLease::Ready(expected), "{settings} {last:?}");
    }
}

#[test]
fn no_more_wait_than_may_and_none_for_longer() {
    let mut bench = Bench::new(1, &PoolTerms { connections_max: 1, ..terms() });
    bench.idle(0, 1);
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(1));
    let mut tickets = Vec::new();
    for client in 1..=3 {
        match bench.lease(0, client) {
            ServerLease::Waiting(ticket) => tickets.push(ticket),
            other => panic!("{other:?}"),
        }
        bench.later(ms(10));
    }
    let full = LeaseRefusal::QueueFull { waiting_max: 3 };
    assert_eq!(bench.lease(0, 4), ServerLease::Refused(full));
    let (pool, now) = (bench.pool[0], bench.now);
    assert!(bench.pools[0].give_up_waiting(pool, tickets[1], now));
    assert!(!bench.pools[0].give_up_waiting(pool, tickets[1], now), "only once");
    assert_eq!(bench.lease(0, 5), ServerLease::Waiting(QueueTicket(4)));
    bench.later(ms(4_975));
    let late = "no server connection became free within 5 s";
    assert_eq!(bench.effects(0), [format!("refuse 1: {late}")]);
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Serve(3));
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Serve(5));
    assert!(!bench.pools[0].give_up_waiting(pool, tickets[2], now), "it was served");
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Idle);
}

#[test]
fn a_server_that_is_down_fails_all_at_once_and_is_tried_later() {
    let mut bench = Bench::new(1, &terms());
    bench.lease(0, 1);
    bench.lease(0, 2);
    assert_eq!(bench.effects(0), ["open 1"]);
    bench.failed(0, 1);
    let down = "connection refused";
    assert_eq!(bench.effects(0), [format!("refuse 1: {down}"), format!("refuse 2: {down}")]);
    assert!(matches!(bench.lease(0, 3), ServerLease::Refused(LeaseRefusal::Down(_))), "at once");
    // The second attempt is made for the next client, and later ones after increasing waits.
    for (attempt, wait) in [(2, RETRY_FIRST), (3, RETRY_FIRST * 2), (4, RETRY_FIRST * 4)] {
        bench.later(wait / 2 - ms(1));
        assert!(
            matches!(bench.lease(0, 4), ServerLease::Refused(_)),
            "attempt {attempt} too early"
        );
        bench.later(wait / 2 + ms(1));
        assert!(matches!(bench.lease(0, 4), ServerLease::Waiting(_)), "attempt {attempt}");
        assert_eq!(bench.effects(0), [format!("open {attempt}")]);
        bench.failed(0, attempt);
        assert_eq!(bench.effects(0), [format!("refuse 4: {down}")]);
    }
    bench.later(terms().retry);
    bench.lease(0, 5);
    assert_eq!(bench.effects(0), ["open 5"]);
    assert_eq!(bench.opened(0, 5), FreedConnectionUse::Serve(5));
    // A connection exists, so new clients wait for it.
    bench.lease(0, 6);
    assert_eq!(bench.effects(0), ["open 6"]);
    bench.failed(0, 6);
    assert_eq!(bench.effects(0), [""; 0]);
    assert_eq!(bench.returned(0, 5, 0), FreedConnectionUse::Serve(6));
}

#[test]
fn connections_end_by_idleness_and_age_but_for_the_minimum() {
    let mut bench = Bench::new(1, &PoolTerms { connections_min: 1, ..terms() });
    bench.later(ms(1));
    assert_eq!(bench.effects(0), ["open 1"]);
    assert_eq!(bench.opened(0, 1), FreedConnectionUse::Idle);
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(1));
    bench.lease(0, 1);
    assert_eq!(bench.effects(0), ["open 2"]);
    assert_eq!(bench.opened(0, 2), FreedConnectionUse::Serve(1));
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Idle);
    bench.later(ms(1));
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Idle);
    bench.later(ms(60_000));
    assert_eq!(bench.effects(0), ["close 1: idle for too long"]);
    assert_eq!(bench.lease(0, 3), ServerLease::Ready(2));
    bench.later(ms(600_000));
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Close(CloseReason::Lifetime));
    bench.later(ms(1_100));
    assert_eq!(bench.effects(0), ["open 3"]);
    assert_eq!(bench.opened(0, 3), FreedConnectionUse::Idle);
    // Without clients there is no minimum, and in the end no pool.
    let (pool, now) = (bench.pool[0], bench.now);
    bench.pools[0].leave(pool, now);
    bench.later(FORGET_AFTER + ms(1));
    assert_eq!(bench.effects(0), ["close 3: idle for too long"]);
    assert_eq!(bench.pools[0].find(PoolId(0)), None);
    assert_eq!(bench.pools[0].next_due(), None);
}

#[test]
fn a_connection_that_another_thread_leaves_idle_is_fetched() {
    let mut bench = Bench::new(2, &terms());
    bench.idle(0, 2);
    // As it was in use a moment ago, another one is opened.
    bench.lease(1, 9);
    assert_eq!(bench.effects(1), ["open 3"]);
    assert_eq!(bench.opened(1, 3), FreedConnectionUse::Serve(9));
    bench.later(FETCH_IDLE_AFTER);
    bench.lease(1, 8);
    assert_eq!(bench.effects(1), [""; 0]);
    assert_eq!(bench.effects(0), ["move 1 to 1"]);
    assert_eq!(bench.received(1, 1), FreedConnectionUse::Serve(8));
    // The requested thread may have no idle connection left.
    bench.lease(1, 7);
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(2));
    assert_eq!(bench.effects(0), [""; 0]);
    assert_eq!(bench.effects(1), ["open 4"]);
}

#[test]
fn a_released_connection_goes_to_the_thread_whose_client_waits_longer() {
    let mut bench = Bench::new(2, &PoolTerms { connections_max: 2, ..terms() });
    bench.idle(0, 2);
    assert_eq!(
        (bench.lease(0, 0), bench.lease(0, 1)),
        (ServerLease::Ready(2), ServerLease::Ready(1))
    );
    bench.lease(1, 9);
    assert_eq!(bench.effects(1), [""; 0]);
    bench.later(ms(3));
    bench.lease(0, 3);
    assert_eq!(bench.returned(0, 1, 0), FreedConnectionUse::Move(1));
    // Only one was needed there.
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Serve(3));
    assert_eq!(bench.received(1, 1), FreedConnectionUse::Serve(9));
    assert_eq!(bench.returned(1, 1, 0), FreedConnectionUse::Idle);
}

#[test]
fn an_idle_connection_is_closed_for_another_tenant_that_waits() {
    let full = PoolTerms { server_connections_max: 2, ..terms() };
    let mut bench = Bench::new(1, &full);
    bench.idle(0, 2);
    let other = bench.pools[0].join(PoolId(1), TenantId(1), full, bench.now);
    assert!(matches!(bench.pools[0].lease(other, 5, 0, None, bench.now), ServerLease::Waiting(_)));
    assert_eq!(bench.effects(0), ["close 1: slot needed elsewhere"]);
    assert_eq!(bench.effects(0), ["open 3"]);
    let mut place = bench.place(3);
    assert_eq!(
        bench.pools[0].opened(other, 3, &mut place, 0, bench.now),
        FreedConnectionUse::Serve(5)
    );
    // Both threads have their share.
    bench.lease(0, 1);
    bench.lease(0, 2);
    let now = bench.now;
    assert_eq!(
        bench.pools[0].returned(other, 3, &mut place, 0, 100, now),
        FreedConnectionUse::Idle
    );
    bench.later(REMIND_EVERY);
    assert_eq!(bench.effects(0), [""; 0]);
}

#[test]
fn a_held_pool_gives_nothing_and_ends_its_connections() {
    let mut bench = Bench::new(1, &terms());
    bench.idle(0, 2);
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(2));
    let (pool, now) = (bench.pool[0], bench.now);
    bench.pools[0].hold(pool, now);
    assert_eq!(bench.effects(0), ["close 1: pool held"]);
    bench.lease(0, 1);
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Close(CloseReason::Held));
    bench.later(ms(100));
    assert_eq!(bench.effects(0), [""; 0]);
    let now = bench.now;
    bench.pools[0].resume(pool, now);
    assert_eq!(bench.effects(0), ["open 3"]);
    bench.pools[0].shut(pool, now);
    assert_eq!(bench.effects(0), ["refuse 1: the tenant is being shut down"]);
    assert_eq!(bench.opened(0, 3), FreedConnectionUse::Close(CloseReason::Held));
    assert_eq!(bench.lease(0, 2), ServerLease::Refused(LeaseRefusal::Shut));
    assert!(bench.places.is_empty());
}

#[test]
fn connections_of_another_epoch_or_server_are_unfit() {
    let mut bench = Bench::new(1, &terms());
    bench.idle(0, 2);
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(2));
    let (pool, now) = (bench.pool[0], bench.now);
    let next_epoch = PoolTerms { epoch: 1, ..terms() };
    bench.pools[0].set_terms(pool, TenantId(0), next_epoch.clone(), now);
    assert_eq!(bench.effects(0), ["close 1: made for what was before"]);
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Close(CloseReason::Unfit));
    bench.idle(0, 1);
    let elsewhere = PoolTerms { server: ServerId(1), ..next_epoch };
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(3));
    bench.pools[0].set_terms(pool, TenantId(0), elsewhere, now);
    assert_eq!(bench.returned(0, 3, 0), FreedConnectionUse::Close(CloseReason::Unfit));
    bench.idle(0, 1);
    // With fewer slots, surplus idle connections are closed at once.
    let fewer = PoolTerms { server: ServerId(1), epoch: 1, connections_max: 0, ..terms() };
    bench.pools[0].set_terms(pool, TenantId(0), fewer, now);
    assert_eq!(bench.effects(0), ["close 4: slot needed elsewhere"]);
}

#[test]
fn what_breaks_is_replaced_for_those_who_wait() {
    let mut bench = Bench::new(1, &PoolTerms { connections_max: 1, ..terms() });
    bench.idle(0, 1);
    assert_eq!(bench.lease(0, 0), ServerLease::Ready(1));
    bench.lease(0, 1);
    let (pool, now) = (bench.pool[0], bench.now);
    bench.pools[0].lost(pool, 1, now);
    drop(bench.place(1));
    assert_eq!(bench.effects(0), ["open 2"]);
    assert_eq!(bench.opened(0, 2), FreedConnectionUse::Serve(1));
    assert_eq!(bench.returned(0, 2, 0), FreedConnectionUse::Idle);
    bench.pools[0].lost(pool, 2, now);
    drop(bench.place(2));
    assert_eq!(bench.figures(0), ThreadPoolFigures::default());
    // A connection of the thread itself counts, too.
    let extra = bench.pools[0].extra(pool, now).unwrap();
    assert!(bench.pools[0].extra(pool, now).is_none());
    drop(extra);
    assert!(bench.pools[0].extra(pool, now).is_some());
}

#[test]
fn a_thread_that_forgets_what_it_opens_may_open_again() {
    let mut bench = Bench::new(1, &PoolTerms { connections_max: 1, ..terms() });
    bench.lease(0, 0);
    for conn in 1..=20 {
        assert_eq!(bench.effects(0), [format!("open {conn}")]);
        drop(bench.place(conn));
        assert_eq!(bench.figures(0).opening, 0);
        bench.later(REMIND_EVERY);
    }
}
