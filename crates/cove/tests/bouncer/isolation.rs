//! Clients see only their own data, under any load and with any faults.
//!
//! There are several tenants with one database each, clients that do random actions (`model.rs`),
//! and fewer server connections than clients. A failure message contains the seed; `TEST_SEED`
//! repeats the same steps, though not in the same order between clients. `TEST_SECONDS` makes tests
//! longer, and so does `TEST_STEPS`, the minimum number of steps of all clients together. The long
//! form is
//! ```text
//! TEST_STEPS=1000000 cargo test -p cove --test bouncer that_share_connections_see_only_their_own
//! ```

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use testkit::{Cut, Cutter, PgAddress, PgClient, Postgres, Server, Stopwatch, Way, until};

use crate::model::{Actor, Character, Plays, ROLES, Random, SCHEMA, Trouble};
use crate::support::{Behind, Bounced, PASSWORD, USER, bounce_at, postgres};

pub(crate) const TENANTS: usize = 3;
/// Clients per tenant.
const CLIENTS: usize = 5;
/// Server connections per tenant, if they are shared.
pub(crate) const CONNECTIONS: u32 = 3;
/// Minimum steps of each client.
const STEPS_MIN: u64 = 15;
/// Steps of each client after the end of the faults.
const CALM_STEPS: u64 = 25;
/// Time limit for the recovery from faults.
const RECOVERY: Duration = Duration::from_secs(60);
/// Minimum number of faults in a storm.
const BLOWS_MIN: u32 = 4;
/// Time between two faults of a storm.
const PAUSE: Duration = Duration::from_millis(150);
/// Short retry interval for an unavailable server.
const RETRY: &str = "limits.server_retry_s = 0.2";

/// Returns the seed of a run's random steps.
pub(crate) fn seed() -> u64 {
    match std::env::var_os("TEST_SEED") {
        Some(seed) => seed.to_str().unwrap().parse().unwrap(),
        // Random value from the standard library's hasher.
        None => RandomState::new().build_hasher().finish() % 1_000_000,
    }
}

/// Returns the duration of a random run, which `TEST_SECONDS` overrides.
pub(crate) fn time(time: Duration) -> Duration {
    let seconds = std::env::var_os("TEST_SECONDS");
    seconds.map_or(time, |it| Duration::from_secs(it.to_str().unwrap().parse().unwrap()))
}

/// Returns the minimum steps of all clients together, if `TEST_STEPS` is set.
fn steps_min() -> Option<u64> {
    let steps = std::env::var_os("TEST_STEPS")?;
    Some(steps.to_str().unwrap().parse().unwrap())
}

/// Steps since the beginning of a run.
#[derive(Clone, Copy, Debug)]
struct StepCounts {
    /// Steps of the requesting client.
    own: u64,
    /// Steps of all clients.
    all: u64,
}

/// Returns the name of a tenant and of its database.
pub(crate) fn database(tenant: usize) -> String {
    format!("tenant_{tenant}")
}

/// Database engine with Cove in front of it.
pub(crate) trait Site: Sized {
    /// Type of its clients.
    type Actor: Plays;
    /// Duration of a random run.
    const TIME: Duration;

    /// Starts a server, and Cove with such [`tenants`], which reaches it through a proxy.
    fn start(mode: &'static str, connections: u32, more: &str) -> (Self, Cutter);
    fn cove(&mut self) -> &mut Server;
    /// Returns Cove's response at a path of its HTTP interface, for assertion messages.
    fn api_text(&self, path: &str) -> String;
    /// Returns Cove's address for clients.
    fn tcp(&self) -> SocketAddr;
    /// Checks that a client of this tenant can log in and run a query.
    fn ask(&self, tenant: &str) -> Result<(), String>;
    /// Waits until the server accepts connections again, if it reports that.
    fn wait_recovered(&self) {}
}

/// Returns a tenant for each database, with additional configuration lines.
pub(crate) fn tenants(make: impl Fn(&str) -> Behind, more: &str) -> Vec<Behind> {
    (0..TENANTS).map(|tenant| make(&database(tenant)).with(RETRY).with(more)).collect()
}

impl Site for Bounced {
    type Actor = Actor;
    const TIME: Duration = Duration::from_secs(7);

    fn start(mode: &'static str, connections: u32, more: &str) -> (Bounced, Cutter) {
        let postgres = Arc::new(postgres());
        postgres.sql(ROLES);
        let proxy = Cutter::start(postgres.tcp());
        let tenants = tenants(|name| Behind::new(name, mode, connections), more);
        let upstream = proxy.address().to_string();
        let bounced = bounce_at(Arc::clone(&postgres), &upstream, "", &tenants);
        schemas(&postgres);
        (bounced, proxy)
    }

    fn cove(&mut self) -> &mut Server {
        &mut self.server
    }

    fn api_text(&self, path: &str) -> String {
        api_text(&self.server, path)
    }

    fn tcp(&self) -> SocketAddr {
        Bounced::tcp(self)
    }

    fn ask(&self, tenant: &str) -> Result<(), String> {
        let client = self.try_login(tenant, &[]);
        let answer = client.and_then(|mut client| client.query("SELECT 1"));
        let answer = answer.map_err(|error| error.to_string())?;
        answer.error().map_or(Ok(()), |error| Err(error.to_string()))
    }

    fn wait_recovered(&self) {
        self.postgres.wait_recovered();
    }
}

/// Site with proxies that can cause faults.
pub(crate) struct Stage<S> {
    pub(crate) site: S,
    pub(crate) clients: Cutter,
    pub(crate) server: Cutter,
}

impl<S: Site> Stage<S> {
    fn new(mode: &'static str, connections: u32, more: &str) -> Stage<S> {
        let (site, server) = S::start(mode, connections, more);
        let clients = Cutter::start(site.tcp());
        Stage { site, clients, server }
    }

    fn actors(&self, seed: u64, faults: bool) -> Vec<S::Actor> {
        actors(seed, &self.clients.address().into(), faults)
    }

    /// Waits until every tenant responds; from then on no fault is expected.
    fn recover(&self, actors: &mut [S::Actor]) {
        self.clients.plan(|_| None);
        self.server.plan(|_| None);
        // Connections with a planned cut are cut now.
        self.server.cut_all();
        self.site.wait_recovered();
        for tenant in 0..TENANTS {
            // Dead connections are detected one by one.
            let mut well = 0;
            until("a tenant to answer", RECOVERY, || {
                let answer = self.site.ask(&database(tenant));
                well = if answer.is_ok() { well + 1 } else { 0 };
                if well > CONNECTIONS { Ok(()) } else { Err(format!("{answer:?}")) }
            });
        }
        actors.iter_mut().for_each(Plays::calm);
    }

    fn api_text(&self, tenant: usize, what: &str) -> String {
        self.site.api_text(&format!("/v1/tenants/{}/{what}", database(tenant)))
    }

    /// Occupies every server connection at once, and checks that they have no state of other
    /// clients.
    fn check_all_connections(&self, seed: u64, connections: u32) {
        for tenant in 0..TENANTS {
            let mut all: Vec<S::Actor> = (0..connections)
                .map(|number| {
                    let number = 500 + usize::try_from(number).unwrap();
                    let (address, database) = (self.site.tcp().into(), database(tenant));
                    Plays::new(Character { tenant, number, address, database, faults: false }, seed)
                })
                .collect();
            for actor in &mut all {
                let outcome = actor.occupy();
                let figures = || ["clients", "servers"].map(|what| self.api_text(tenant, what));
                assert!(
                    outcome.is_ok(),
                    "seed {seed}: {outcome:?}{}\n{:?}",
                    actor.log(),
                    figures()
                );
            }
        }
    }
}

/// Returns a response of the HTTP interface.
pub(crate) fn api_text(server: &Server, path: &str) -> String {
    server.client().get(path).text()
}

/// Creates the schema of each tenant's database.
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

/// Returns the clients of all tenants.
pub(crate) fn actors<A: Plays>(seed: u64, address: &PgAddress, faults: bool) -> Vec<A> {
    let all = (0..TENANTS).flat_map(|tenant| (0..CLIENTS).map(move |number| (tenant, number)));
    all.map(|(tenant, number)| {
        let (address, database) = (address.clone(), database(tenant));
        A::new(Character { tenant, number, address, database, faults }, seed)
    })
    .collect()
}

/// Runs random steps of all clients until `is_over`, while `happens` runs.
fn play<A: Plays>(
    seed: u64,
    actors: &mut [A],
    is_over: impl Fn(StepCounts) -> bool + Sync,
    happens: impl FnOnce(),
) {
    let failed = AtomicBool::new(false);
    let all = AtomicU64::new(0);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = actors
            .iter_mut()
            .map(|actor| {
                let (is_over, failed, all) = (&is_over, &failed, &all);
                scope.spawn(move || {
                    let start = actor.steps();
                    let mut failure = None;
                    let counts = |actor: &A| StepCounts {
                        own: actor.steps() - start,
                        all: all.load(Ordering::Relaxed),
                    };
                    while !is_over(counts(actor)) && !failed.load(Ordering::Relaxed) {
                        all.fetch_add(1, Ordering::Relaxed);
                        if let Err(Trouble::Wrong(what)) = actor.step() {
                            failed.store(true, Ordering::Relaxed);
                            failure = Some(format!("{what}\nafter{}", actor.log()));
                        }
                    }
                    // Other clients wait for its connection.
                    actor.hang_up();
                    failure
                })
            })
            .collect();
        happens();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    let all = all.into_inner();
    assert!(failures.is_empty(), "seed {seed}, step {all}:\n{}", failures.join("\n\n"));
}

/// Runs random steps for a time, and a minimum of steps per client: the machine may be busy.
pub(crate) fn play_for<A: Plays>(
    seed: u64,
    actors: &mut [A],
    time: Duration,
    happens: impl FnOnce(&Stopwatch),
) {
    let (watch, all_min) = (Stopwatch::start(), steps_min());
    let is_over = |counts: StepCounts| match all_min {
        Some(all_min) => counts.all >= all_min,
        None => watch.elapsed() > time && counts.own >= STEPS_MIN,
    };
    play(seed, actors, is_over, || happens(&watch));
}

/// Causes faults for a time, and a minimum number of them: the machine may be busy.
fn storm(watch: &Stopwatch, time: Duration, mut blow: impl FnMut()) {
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

/// Runs random steps without faults.
pub(crate) fn check_calm<S: Site>(mode: &'static str, connections: u32, more: &str) {
    let seed = seed();
    let stage = Stage::<S>::new(mode, connections, more);
    let mut actors = stage.actors(seed, false);
    play_for(seed, &mut actors, time(S::TIME), |_| {});
    drop(actors);
    stage.check_all_connections(seed, connections);
}

/// Runs random steps with faults, and then checks the recovery.
pub(crate) fn check_faults<S: Site>(
    warnings: &[&str],
    breaks: impl FnOnce(&Stage<S>, u64),
    mut blow: impl FnMut(&Stage<S>),
) {
    let (seed, time) = (seed(), time(S::TIME));
    let mut stage = Stage::<S>::new("transaction", CONNECTIONS, "");
    for warning in warnings {
        stage.site.cove().expect_log(warning);
    }
    let mut actors = stage.actors(seed, true);
    breaks(&stage, seed);
    play_for(seed, &mut actors, time, |watch| storm(watch, time, || blow(&stage)));
    stage.recover(&mut actors);
    play(seed, &mut actors, |counts| counts.own >= CALM_STEPS, || {});
    drop(actors);
    stage.check_all_connections(seed, CONNECTIONS);
}

/// Returns a plan that cuts most connections after a random number of bytes in a random direction.
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
    let mut actors: Vec<Actor> = actors(seed, &postgres.address(), false);
    play_for(seed, &mut actors, time(Bounced::TIME) / 2, |_| {});
}

#[test]
fn clients_with_a_connection_each_see_only_their_own() {
    check_calm::<Bounced>("session", 8, "");
}

#[test]
fn clients_that_share_connections_see_only_their_own() {
    check_calm::<Bounced>("transaction", CONNECTIONS, "");
}

#[test]
fn connections_that_are_always_examined_have_nothing_to_show() {
    check_calm::<Bounced>("transaction", CONNECTIONS, "verify = \"always\"");
}

#[test]
fn clients_whose_connections_are_cut_at_any_byte_leave_nothing_behind() {
    check_faults::<Bounced>(&[], |stage, seed| stage.clients.plan(cuts(seed, 6000)), |_| {});
}

#[test]
fn connections_to_the_server_that_are_cut_at_any_byte_mix_nothing_up() {
    check_faults::<Bounced>(
        &["server"],
        |stage, seed| stage.server.plan(cuts(seed, 30_000)),
        |stage| stage.server.cut_all(),
    );
}

#[test]
fn connections_that_the_server_ends_mix_nothing_up() {
    check_faults::<Bounced>(&["server"], |_, _| {}, |stage| stage.site.postgres.cut_connections());
}

#[test]
fn a_server_that_is_killed_again_and_again_mixes_nothing_up() {
    let mut blows = 0;
    check_faults::<Bounced>(
        &["server"],
        |_, _| {},
        |stage| {
            blows += 1;
            // The server recovers in between, however long that takes; clients find it dead,
            // recovering, or available.
            if blows % 12 == 1 {
                stage.site.postgres.wait_recovered();
                stage.site.postgres.kill_connections();
            }
        },
    );
}
