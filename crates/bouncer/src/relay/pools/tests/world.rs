//! Several threads, tenants and servers in one test, with simulated time and seeded randomness.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pool::shares::{TenantQuota, ThreadWake};

use super::super::{
    FreedConnectionUse, PoolEffect, PoolFailure, PoolRef, PoolRegistry, PoolTerms, PooledSlot,
    QueueTicket, ServerLease, ThreadPools,
};
use crate::tenants::{PoolId, ServerId, TenantId};

const THREADS: usize = 3;

struct Bells([AtomicBool; THREADS]);

impl ThreadWake for Bells {
    fn wake(&self, thread: usize) {
        self.0[thread].store(true, Ordering::SeqCst);
    }
}

/// A simulated event.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client requests a connection.
    Ask(usize),
    /// A client that still waits gives up.
    Tires(usize, QueueTicket),
    /// A client's transaction ends.
    Done(usize),
    /// An attempt to open a connection ends.
    Opened(u32),
    /// A connection arrives at another thread.
    Arrives(u32, usize),
    /// A thread reads its messages.
    Mail(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Thinking,
    Waiting(QueueTicket, Instant),
    Working(u32),
}

struct Client {
    thread: usize,
    pool: PoolRef,
    id: PoolId,
    state: State,
    last: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Opening,
    Idle,
    By(usize),
    Travelling,
}

struct Conn {
    thread: usize,
    pool: PoolRef,
    place: PooledSlot,
    held: Held,
}

struct World {
    pools: Vec<ThreadPools<u32, usize>>,
    bells: Arc<Bells>,
    registry: Arc<PoolRegistry>,
    terms: Vec<PoolTerms>,
    clients: Vec<Client>,
    conns: HashMap<u32, Conn>,
    conns_made: u32,
    /// By time, with a number that distinguishes equal times.
    events: BTreeMap<(Instant, u64), Event>,
    serial: u64,
    mailing: [bool; THREADS],
    now: Instant,
    chance: u64,
    /// Failures per thousand.
    failures: u64,
    /// True if clients make no more requests.
    resting: bool,
    served: u64,
    refused: u64,
    moved: u64,
    longest_wait: Duration,
    /// Waiting clients of each pool and thread, in order.
    queues: HashMap<(usize, PoolRef), VecDeque<usize>>,
}

/// Returns the tenant of a pool, or the server of a tenant: two pools each, three tenants each.
fn tenant_of(pool: usize) -> usize {
    pool / 2
}

impl World {
    fn new(seed: u64, clients: usize, pools: usize, failures: u64) -> World {
        let now = node::clock::now();
        let bells = Arc::new(Bells(std::array::from_fn(|_| AtomicBool::new(false))));
        let (registry, handles) =
            PoolRegistry::new(THREADS, Arc::clone(&bells) as Arc<dyn ThreadWake>, now);
        let mut world = World {
            pools: handles
                .into_iter()
                .map(|handle| ThreadPools::new(Arc::clone(&registry), handle, seed))
                .collect(),
            bells,
            registry,
            terms: Vec::new(),
            clients: Vec::new(),
            conns: HashMap::new(),
            conns_made: 0,
            events: BTreeMap::new(),
            serial: 0,
            mailing: [false; THREADS],
            now,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            failures,
            resting: false,
            served: 0,
            refused: 0,
            moved: 0,
            longest_wait: Duration::ZERO,
            queues: HashMap::new(),
        };
        for pool in 0..pools {
            let tenant = tenant_of(pool);
            world.terms.push(PoolTerms {
                server: ServerId(u32::try_from(tenant / 3).unwrap()),
                server_connections_max: 6,
                tenant: TenantQuota {
                    connections_max: 5,
                    weight: 1 + u32::try_from(tenant % 3).unwrap(),
                    ..TenantQuota::default()
                },
                connections_max: 4,
                connections_min: 0,
                waiting_max: 1_000,
                wait: (failures > 0).then_some(Duration::from_secs(2)),
                idle: Some(Duration::from_secs(2)),
                lifetime: Some(Duration::from_secs(10)),
                retry: Duration::from_secs(1),
                epoch: 0,
                revision: 0,
            });
        }
        for client in 0..clients {
            let (thread, pool) = (client % THREADS, world.below(pools));
            let id = PoolId(u32::try_from(pool).unwrap());
            let tenant = TenantId(u32::try_from(tenant_of(pool)).unwrap());
            let terms = world.terms[pool].clone();
            let pool = world.pools[thread].join(id, tenant, terms, now);
            let state = State::Thinking;
            world.clients.push(Client { thread, pool, id, state, last: None });
            let after = world.below(10_000);
            world.at(after, Event::Ask(client));
        }
        world
    }

    fn below(&mut self, bound: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        usize::try_from(self.chance % u64::try_from(bound).unwrap()).unwrap()
    }

    /// Schedules an event after `after_us` microseconds.
    fn at(&mut self, after_us: usize, event: Event) {
        self.serial += 1;
        let time = self.now + Duration::from_micros(u64::try_from(after_us).unwrap());
        self.events.insert((time, self.serial), event);
    }

    /// Processes the next event, or a thread's own timer.
    fn step(&mut self) -> bool {
        let due = self.pools.iter().filter_map(ThreadPools::next_due).min();
        let event = self.events.first_key_value().map(|((time, _), _)| *time);
        let Some(time) = due.into_iter().chain(event).min() else { return false };
        self.now = self.now.max(time);
        if event == Some(time) {
            let (_, event) = self.events.pop_first().unwrap();
            self.happen(event);
        } else {
            for pools in &mut self.pools {
                pools.tick(self.now);
            }
        }
        self.follow();
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask(client) => self.ask(client),
            Event::Tires(client, ticket) => self.tires(client, ticket),
            Event::Done(client) => self.done(client),
            Event::Opened(conn) => self.opened(conn),
            Event::Arrives(conn, thread) => self.arrives(conn, thread),
            Event::Mail(thread) => {
                self.mailing[thread] = false;
                self.pools[thread].mail(self.now);
            }
        }
    }

    fn ask(&mut self, client: usize) {
        let settings = u64::try_from(self.below(3)).unwrap();
        let Client { thread, pool, id, state, last } = self.clients[client];
        assert_eq!(state, State::Thinking);
        if self.resting {
            return;
        }
        match self.pools[thread].lease(pool, client, settings, last, self.now) {
            ServerLease::Ready(conn) => {
                let queue = self.queues.get(&(thread, pool));
                assert!(queue.is_none_or(VecDeque::is_empty), "nobody overtakes the queue");
                let conn_of = &self.conns[&conn];
                assert_eq!((conn_of.thread, conn_of.held), (thread, Held::Idle));
                assert_eq!(conn_of.place.pool(), id, "connections do not mix");
                self.work(client, conn);
            }
            ServerLease::Waiting(ticket) => {
                self.clients[client].state = State::Waiting(ticket, self.now);
                self.queues.entry((thread, pool)).or_default().push_back(client);
                if self.failures > 0 && self.below(50) == 0 {
                    self.at(3_000, Event::Tires(client, ticket));
                }
            }
            ServerLease::Refused(_) => self.refused(client),
        }
    }

    fn tires(&mut self, client: usize, ticket: QueueTicket) {
        let Client { thread, pool, state, .. } = self.clients[client];
        let waits = matches!(state, State::Waiting(own, _) if own == ticket);
        assert_eq!(self.pools[thread].give_up_waiting(pool, ticket, self.now), waits);
        if waits {
            self.queues.get_mut(&(thread, pool)).unwrap().retain(|one| *one != client);
            self.clients[client].state = State::Thinking;
            self.at(1_000, Event::Ask(client));
        }
    }

    fn refused(&mut self, client: usize) {
        self.refused += 1;
        self.clients[client].state = State::Thinking;
        let after = 1_000 + self.below(50_000);
        self.at(after, Event::Ask(client));
    }

    fn work(&mut self, client: usize, conn: u32) {
        self.served += 1;
        self.conns.get_mut(&conn).unwrap().held = Held::By(client);
        self.clients[client].state = State::Working(conn);
        self.clients[client].last = Some(conn);
        let after = 200 + self.below(2_000);
        self.at(after, Event::Done(client));
    }

    fn done(&mut self, client: usize) {
        let State::Working(conn) = self.clients[client].state else { panic!("it has none") };
        self.clients[client].state = State::Thinking;
        let after = 1 + self.below(5_000);
        self.at(after, Event::Ask(client));
        if u64::try_from(self.below(1_000)).unwrap() < self.failures {
            let conn_of = self.conns.remove(&conn).unwrap();
            self.pools[conn_of.thread].lost(conn_of.pool, conn, self.now);
            return;
        }
        let now = self.now;
        let settings = u64::from(conn % 3);
        let conn_of = self.conns.get_mut(&conn).unwrap();
        let pools = &mut self.pools[conn_of.thread];
        let next = pools.returned(conn_of.pool, conn, &mut conn_of.place, settings, 1_000, now);
        self.next(conn, next);
    }

    fn next(&mut self, conn: u32, next: FreedConnectionUse<usize>) {
        match next {
            FreedConnectionUse::Idle => self.conns.get_mut(&conn).unwrap().held = Held::Idle,
            FreedConnectionUse::Serve(client) => {
                let Client { thread, pool, id, state, .. } = self.clients[client];
                let State::Waiting(_, since) = state else { panic!("served without waiting") };
                let first = self.queues.get_mut(&(thread, pool)).unwrap().pop_front();
                assert_eq!(first, Some(client), "who came first is served first");
                let conn_of = &self.conns[&conn];
                assert_eq!((conn_of.thread, conn_of.place.pool()), (thread, id));
                self.longest_wait = self.longest_wait.max(self.now - since);
                self.work(client, conn);
            }
            FreedConnectionUse::Close(_) => drop(self.conns.remove(&conn)),
            FreedConnectionUse::Move(thread) => self.travel(conn, thread),
        }
    }

    fn travel(&mut self, conn: u32, thread: usize) {
        self.moved += 1;
        self.conns.get_mut(&conn).unwrap().held = Held::Travelling;
        let after = 5 + self.below(100);
        self.at(after, Event::Arrives(conn, thread));
    }

    fn opened(&mut self, conn: u32) {
        let (now, failures) = (self.now, self.failures);
        let fails = u64::try_from(self.below(1_000)).unwrap() < failures * 10;
        let conn_of = self.conns.get_mut(&conn).unwrap();
        assert_eq!(conn_of.held, Held::Opening);
        let (pool, thread) = (conn_of.pool, conn_of.thread);
        if fails {
            let failure = PoolFailure::unreached("08006", "refused");
            let place = self.conns.remove(&conn).unwrap().place;
            self.pools[thread].open_failed(pool, place, Arc::new(failure), now);
            return;
        }
        let next = self.pools[thread].opened(pool, conn, &mut conn_of.place, 0, now);
        self.next(conn, next);
    }

    fn arrives(&mut self, conn: u32, thread: usize) {
        let now = self.now;
        let conn_of = self.conns.get_mut(&conn).unwrap();
        conn_of.thread = thread;
        match self.pools[thread].received(conn, &mut conn_of.place, 0, now) {
            Some((pool, next)) => {
                conn_of.pool = pool;
                self.next(conn, next);
            }
            None => drop(self.conns.remove(&conn)),
        }
    }

    /// Executes the threads' effects, and checks the invariants.
    fn follow(&mut self) {
        for thread in 0..THREADS {
            while let Some(effect) = self.pools[thread].next_effect() {
                match effect {
                    PoolEffect::Open { pool, place } => {
                        self.conns_made += 1;
                        let held = Held::Opening;
                        self.conns.insert(self.conns_made, Conn { thread, pool, place, held });
                        let after = 1_000 + self.below(6_000);
                        self.at(after, Event::Opened(self.conns_made));
                    }
                    PoolEffect::Close { conn, .. } => {
                        let conn = self.conns.remove(&conn).unwrap();
                        assert_eq!((conn.thread, conn.held), (thread, Held::Idle));
                    }
                    PoolEffect::Move { conn, thread: to } => {
                        let conn_of = &self.conns[&conn];
                        assert_eq!((conn_of.thread, conn_of.held), (thread, Held::Idle));
                        self.travel(conn, to);
                    }
                    PoolEffect::Refuse { client, .. } => {
                        let Client { thread, pool, .. } = self.clients[client];
                        let first = self.queues.get_mut(&(thread, pool)).unwrap().pop_front();
                        assert_eq!(first, Some(client));
                        self.refused(client);
                    }
                }
            }
            if self.bells.0[thread].swap(false, Ordering::SeqCst) && !self.mailing[thread] {
                self.mailing[thread] = true;
                let after = 1 + self.below(60);
                self.at(after, Event::Mail(thread));
            }
        }
        self.assert_sound();
    }

    fn assert_sound(&self) {
        let count = |is_of: &dyn Fn(usize) -> bool| {
            let pools = self.conns.values().map(|conn| conn.place.pool().0 as usize);
            u32::try_from(pools.filter(|pool| is_of(*pool)).count()).unwrap()
        };
        for (pool, terms) in self.terms.iter().enumerate() {
            assert!(count(&|one| one == pool) <= terms.connections_max);
            let tenant = tenant_of(pool);
            assert!(count(&|one| tenant_of(one) == tenant) <= terms.tenant.connections_max);
            let of_server = |one: usize| self.terms[one].server == terms.server;
            assert!(count(&of_server) <= terms.server_connections_max);
        }
        for (thread, pools) in self.pools.iter().enumerate() {
            for (pool, _) in pools.iter() {
                let figures = pools.figures(pool, self.now);
                assert!(figures.idle == 0 || figures.waiting == 0, "idle beside who waits");
                let queue = self.queues.get(&(thread, pool)).map_or(0, VecDeque::len);
                assert_eq!(usize::try_from(figures.waiting).unwrap(), queue);
            }
        }
    }

    /// Lets all clients rest, and then time pass until nothing is left.
    fn rest(&mut self) {
        self.resting = true;
        let end = self.now + Duration::from_secs(30);
        while self.now < end && self.step() {}
        assert!(self.queues.values().all(VecDeque::is_empty), "somebody waits for ever");
        assert_eq!(self.conns.len(), 0, "idle connections end");
        let clients = std::mem::take(&mut self.clients);
        for client in clients {
            self.pools[client.thread].leave(client.pool, self.now);
        }
        let end = self.now + Duration::from_secs(120);
        while self.now < end && self.step() {}
        assert!(self.pools.iter().all(|pools| pools.iter().next().is_none()));
        assert!(self.registry.is_empty());
    }
}

fn run(seed: u64, (clients, pools): (usize, usize), failures: u64, steps: usize) -> World {
    let mut world = World::new(seed, clients, pools, failures);
    for _ in 0..steps {
        assert!(world.step());
    }
    world
}

/// With many more clients than connections, tenants that share servers, and all three threads,
/// every client is served, in order, soon, and nothing is left in the end.
#[test]
fn everybody_is_served_in_order_and_nothing_is_left() {
    for seed in 1..=3 {
        let mut world = run(seed, (60, 8), 0, 30_000);
        assert!(world.served > 2_500, "seed {seed}: {} served", world.served);
        assert_eq!(world.refused, 0);
        assert!(world.moved > 0);
        let limit = Duration::from_secs(1);
        assert!(world.longest_wait < limit, "seed {seed}: {:?}", world.longest_wait);
        world.rest();
    }
}

/// With few clients, connections are not opened repeatedly, nor moved back and forth.
#[test]
fn calm_pools_keep_their_connections() {
    for seed in 1..=2 {
        let world = run(seed, (4, 2), 0, 40_000);
        let per_served = |count: u64| count * 1_000 / world.served;
        let (opened, moved) = (per_served(world.conns_made.into()), per_served(world.moved));
        assert!(opened <= 20 && moved <= 60, "seed {seed}: {opened} opened, {moved} moved of 1000");
    }
}

/// Connections are lost, cannot be opened, and clients leave.
#[test]
fn faults_lose_nothing() {
    for seed in 1..=3 {
        let mut world = run(seed, (60, 8), 20, 30_000);
        assert!(world.served > 500, "seed {seed}: {} served", world.served);
        assert!(world.refused > 0);
        world.failures = 0;
        world.rest();
    }
}
