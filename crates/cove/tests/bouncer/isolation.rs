//! Nobody sees anything of anybody else, whatever they all do and whatever breaks.
//!
//! Tenants with a database each, clients that do at random what clients do (`bouncer_model.rs`),
//! and fewer connections to the server than clients. A failure names the seed; `TEST_SEED` runs the
//! same steps again, though not in the same order between clients.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::{Cut, Cutter, PgAddress, PgClient, Postgres, Stopwatch, Way, until};

use crate::model::{Actor, Character, ROLES, Random, SCHEMA, Trouble};
use crate::support::{Behind, Bounced, PASSWORD, USER, bounce_at, postgres};

const TENANTS: usize = 3;
/// Clients of each.
const CLIENTS: usize = 5;
/// Connections to the server of each, where they are shared.
const CONNECTIONS: u32 = 3;
/// How long clients do what they like.
const TIME: Duration = Duration::from_secs(7);
/// Steps of each client at least.
const STEPS_MIN: u64 = 15;
/// Steps of each client after whatever was broken is whole again.
const CALM_STEPS: u64 = 25;
/// Time for everything to work again.
const RECOVERY: Duration = Duration::from_secs(60);
/// Blows of a storm at least.
const BLOWS_MIN: u32 = 4;
/// Between two blows of a storm.
const PAUSE: Duration = Duration::from_millis(150);
/// A server that was gone is tried again so soon.
const RETRY: &str = "limits.server_retry_s = 0.2";

/// What the steps of a run are drawn with.
pub(crate) fn seed() -> u64 {
    match std::env::var_os("TEST_SEED") {
        Some(seed) => seed.to_str().unwrap().parse().unwrap(),
        // The library's own source of chance.
        None => RandomState::new().build_hasher().finish() % 1_000_000,
    }
}

fn database(tenant: usize) -> String {
    format!("tenant_{tenant}")
}

/// PostgreSQL, Cove and the tenants, with proxies where something shall break.
struct Stage {
    bounced: Bounced,
    clients: Cutter,
    server: Arc<Cutter>,
}

impl Stage {
    fn new(mode: &'static str, connections: u32, more: &str) -> Stage {
        let postgres = Arc::new(postgres());
        postgres.sql(ROLES);
        let server = Arc::new(Cutter::start(postgres.tcp()));
        let tenants: Vec<Behind> = (0..TENANTS)
            .map(|tenant| Behind::new(&database(tenant), mode, connections).with(RETRY).with(more))
            .collect();
        let upstream = server.address().to_string();
        let bounced = bounce_at(Arc::clone(&postgres), &upstream, "", &tenants);
        schemas(&postgres);
        let clients = Cutter::start(bounced.tcp());
        Stage { bounced, clients, server }
    }

    fn actors(&self, seed: u64, faults: bool) -> Vec<Actor> {
        actors(seed, &self.clients.address().into(), faults)
    }

    /// Waits until every tenant answers, and then lets nothing go wrong any more.
    fn recover(&self, actors: &mut [Actor]) {
        self.clients.plan(|_| None);
        self.server.plan(|_| None);
        // Whoever was to be cut later on is cut now.
        self.server.cut_all();
        self.bounced.postgres.wait_recovered();
        for tenant in 0..TENANTS {
            // Connections that are dead are found out one by one.
            let mut well = 0;
            until("a tenant to answer", RECOVERY, || {
                let client = self.bounced.try_login(&database(tenant), &[]);
                let answer = client.and_then(|mut client| client.query("SELECT 1"));
                let is_well = answer.as_ref().is_ok_and(|answer| answer.error().is_none());
                well = if is_well { well + 1 } else { 0 };
                if well > CONNECTIONS { Ok(()) } else { Err(format!("{answer:?}")) }
            });
        }
        for actor in actors.iter_mut() {
            actor.calm();
        }
    }

    /// Looks, at every connection to the server at once, whether somebody left something there.
    fn look_everywhere(&self, seed: u64, connections: u32) {
        for tenant in 0..TENANTS {
            let mut all: Vec<Actor> = (0..connections)
                .map(|number| {
                    let number = 500 + usize::try_from(number).unwrap();
                    let address = self.bounced.address();
                    let database = database(tenant);
                    Actor::new(Character { tenant, number, address, database, faults: false }, seed)
                })
                .collect();
            for actor in &mut all {
                let outcome = actor.occupy();
                assert!(outcome.is_ok(), "seed {seed}: {outcome:?}{}", actor.log());
            }
        }
    }
}

/// What clients find in each tenant's database.
fn schemas(postgres: &Postgres) {
    let address = postgres.address();
    for tenant in 0..TENANTS {
        let database = database(tenant);
        let parameters = [("user", USER), ("database", database.as_str())];
        let mut client = PgClient::login(&address, &parameters, PASSWORD).unwrap();
        client.run(SCHEMA);
        client.close();
    }
}

fn actors(seed: u64, address: &PgAddress, faults: bool) -> Vec<Actor> {
    let all = (0..TENANTS).flat_map(|tenant| (0..CLIENTS).map(move |number| (tenant, number)));
    all.map(|(tenant, number)| {
        let (address, database) = (address.clone(), database(tenant));
        Actor::new(Character { tenant, number, address, database, faults }, seed)
    })
    .collect()
}

/// Who does at random what clients do.
pub(crate) trait Plays: Send {
    /// Steps that were done.
    fn steps(&self) -> u64;
    /// Does one thing.
    fn step(&mut self) -> Result<(), Trouble>;
    /// What it did last.
    fn log(&self) -> String;
    /// Leaves without a word.
    fn hang_up(&mut self);
}

impl Plays for Actor {
    fn steps(&self) -> u64 {
        self.steps
    }

    fn step(&mut self) -> Result<(), Trouble> {
        Actor::step(self)
    }

    fn log(&self) -> String {
        Actor::log(self)
    }

    fn hang_up(&mut self) {
        Actor::hang_up(self);
    }
}

/// Lets all of them do what they like until `is_over`, while something happens to them.
pub(crate) fn play<A: Plays>(
    seed: u64,
    actors: &mut [A],
    is_over: impl Fn(u64) -> bool + Sync,
    happens: impl FnOnce(),
) {
    let failed = AtomicBool::new(false);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = actors
            .iter_mut()
            .map(|actor| {
                let (is_over, failed) = (&is_over, &failed);
                scope.spawn(move || {
                    let start = actor.steps();
                    let mut failure = None;
                    while !is_over(actor.steps() - start) && !failed.load(Ordering::Relaxed) {
                        if let Err(Trouble::Wrong(what)) = actor.step() {
                            failed.store(true, Ordering::Relaxed);
                            failure = Some(format!("{what}\nafter{}", actor.log()));
                        }
                    }
                    // Others wait for what it has.
                    actor.hang_up();
                    failure
                })
            })
            .collect();
        happens();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n\n"));
}

/// The same for a time, and until each has done something: the machine may be busy.
pub(crate) fn play_for<A: Plays>(
    seed: u64,
    actors: &mut [A],
    time: Duration,
    happens: impl FnOnce(&Stopwatch),
) {
    let watch = Stopwatch::start();
    play(seed, actors, |steps| watch.elapsed() > time && steps >= STEPS_MIN, || happens(&watch));
}

/// Blow after blow, while time lasts, and until there were some: the machine may be busy.
pub(crate) fn storm(watch: &Stopwatch, time: Duration, mut blow: impl FnMut()) {
    let mut count = 0;
    while watch.elapsed() < time || count < BLOWS_MIN {
        let next = PAUSE * count;
        until("the next blow", time, || {
            if watch.elapsed() >= next { Ok(()) } else { Err(String::new()) }
        });
        blow();
        count += 1;
    }
}

fn check_calm(mode: &'static str, connections: u32, more: &str) {
    let seed = seed();
    let stage = Stage::new(mode, connections, more);
    let mut actors = stage.actors(seed, false);
    play_for(seed, &mut actors, TIME, |_| {});
    drop(actors);
    stage.look_everywhere(seed, connections);
}

/// Breaks things while clients do what they like, and then looks whether all is well.
fn check_faults(warnings: &[&str], breaks: impl FnOnce(&Stage, u64), blow: impl FnMut(&Stage)) {
    let seed = seed();
    let mut blow = blow;
    let mut stage = Stage::new("transaction", CONNECTIONS, "");
    for warning in warnings {
        stage.bounced.server.expect_log(warning);
    }
    let mut actors = stage.actors(seed, true);
    breaks(&stage, seed);
    play_for(seed, &mut actors, TIME, |watch| storm(watch, TIME, || blow(&stage)));
    stage.recover(&mut actors);
    play(seed, &mut actors, |steps| steps >= CALM_STEPS, || {});
    drop(actors);
    stage.look_everywhere(seed, CONNECTIONS);
}

/// Cuts most connections after a random number of bytes, one way or the other.
pub(crate) fn cuts(seed: u64, bytes_max: u64) -> impl FnMut(u64) -> Option<Cut> + Send + 'static {
    let mut random = Random::new(seed);
    move |_| {
        let way = if random.below(2) == 0 { Way::Forth } else { Way::Back };
        let after = random.below(bytes_max);
        (random.below(4) != 0).then_some(Cut { way, after })
    }
}

#[test]
fn the_model_is_right_about_postgresql_itself() {
    let seed = seed();
    let postgres = postgres();
    postgres.sql(ROLES);
    for tenant in 0..TENANTS {
        postgres.sql(&format!("CREATE DATABASE {}", database(tenant)));
    }
    schemas(&postgres);
    play_for(seed, &mut actors(seed, &postgres.address(), false), TIME / 2, |_| {});
}

#[test]
fn clients_with_a_connection_each_see_only_their_own() {
    check_calm("session", 8, "");
}

#[test]
fn clients_that_share_connections_see_only_their_own() {
    check_calm("transaction", CONNECTIONS, "");
}

#[test]
fn connections_that_are_always_examined_have_nothing_to_show() {
    check_calm("transaction", CONNECTIONS, "verify = \"always\"");
}

#[test]
fn clients_whose_connections_are_cut_at_any_byte_leave_nothing_behind() {
    check_faults(&[], |stage, seed| stage.clients.plan(cuts(seed, 6000)), |_| {});
}

#[test]
fn connections_to_the_server_that_are_cut_at_any_byte_mix_nothing_up() {
    check_faults(
        &["server"],
        |stage, seed| stage.server.plan(cuts(seed, 30_000)),
        |stage| stage.server.cut_all(),
    );
}

#[test]
fn connections_that_the_server_ends_mix_nothing_up() {
    check_faults(&["server"], |_, _| {}, |stage| stage.bounced.postgres.cut_connections());
}

#[test]
fn a_server_that_is_killed_again_and_again_mixes_nothing_up() {
    let mut blows = 0;
    check_faults(
        &["server"],
        |_, _| {},
        |stage| {
            blows += 1;
            // It recovers in between; clients find it dead, recovering, or back.
            if blows % 12 == 1 {
                stage.bounced.postgres.kill_connections();
            }
        },
    );
}
