//! Nobody of MySQL sees anything of anybody else, whatever they all do and whatever breaks.
//!
//! As `isolation.rs` does for PostgreSQL, with the clients of `mysql_model.rs`. `TEST_SEED` runs
//! the same steps again, and `TEST_SECONDS` makes each test longer.

use std::sync::Arc;
use std::time::Duration;

use testkit::{Cut, Cutter, MariaDb, PgAddress, until};

use crate::isolation::{Plays, cuts, play, play_for, seed, storm};
use crate::model::Trouble;
use crate::mysql_model::{Actor, Character, SCHEMA};
use crate::mysql_support::{Fronted, behind, front_at, maria};
use crate::support::Behind;

const TENANTS: usize = 3;
/// Clients of each.
const CLIENTS: usize = 5;
/// Connections to the server of each, where they are shared.
const CONNECTIONS: u32 = 3;
/// How long clients do what they like.
const TIME: Duration = Duration::from_secs(5);
/// Steps of each client after whatever was broken is whole again.
const CALM_STEPS: u64 = 25;
/// Time for everything to work again.
const RECOVERY: Duration = Duration::from_secs(60);
/// A server that was gone is tried again so soon, and nobody is sent away for waiting.
const LIMITS: &str = "limits.server_retry_s = 0.2\nlimits.wait_s = 55";

fn time() -> Duration {
    let seconds = std::env::var_os("TEST_SECONDS");
    seconds.map_or(TIME, |it| Duration::from_secs(it.to_str().unwrap().parse().unwrap()))
}

fn database(tenant: usize) -> String {
    format!("tenant_{tenant}")
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

/// MariaDB, Cove and the tenants, with proxies where something shall break.
struct Stage {
    fronted: Fronted,
    clients: Cutter,
    server: Cutter,
}

impl Stage {
    fn new(mode: &'static str, connections: u32, more: &str) -> Stage {
        let maria = Arc::new(maria());
        let server = Cutter::start(maria.tcp());
        let tenants: Vec<Behind> = (0..TENANTS)
            .map(|tenant| behind(&database(tenant), mode, connections).with(LIMITS).with(more))
            .collect();
        let upstream = server.address().to_string();
        let fronted = front_at(Arc::clone(&maria), &upstream, "", &tenants);
        schemas(&maria);
        let clients = Cutter::start(fronted.tcp());
        Stage { fronted, clients, server }
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
        for tenant in 0..TENANTS {
            // Connections that are dead are found out one by one.
            let mut well = 0;
            until("a tenant to answer", RECOVERY, || {
                let client = self.fronted.try_login(&database(tenant));
                let answer = client.and_then(|mut client| client.query("SELECT 1"));
                let is_well = answer.as_ref().is_ok_and(|answer| answer.error().is_none());
                well = if is_well { well + 1 } else { 0 };
                if well > CONNECTIONS { Ok(()) } else { Err(format!("{answer:?}")) }
            });
        }
        actors.iter_mut().for_each(Actor::calm);
    }

    /// Looks, at every connection to the server at once, whether somebody left something there.
    fn look_everywhere(&self, seed: u64, connections: u32) {
        for tenant in 0..TENANTS {
            let mut all: Vec<Actor> = (0..connections)
                .map(|number| {
                    let number = 500 + usize::try_from(number).unwrap();
                    let (address, database) = (self.fronted.address(), database(tenant));
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
fn schemas(maria: &MariaDb) {
    for tenant in 0..TENANTS {
        for statement in SCHEMA {
            maria.sql(&format!("USE {}; {statement}", database(tenant)));
        }
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

fn check_calm(mode: &'static str, connections: u32, more: &str) {
    let seed = seed();
    let stage = Stage::new(mode, connections, more);
    let mut actors = stage.actors(seed, false);
    play_for(seed, &mut actors, time(), |_| {});
    drop(actors);
    stage.look_everywhere(seed, connections);
}

/// Breaks things while clients do what they like, and then looks whether all is well.
fn check_faults(
    warnings: &[&str],
    client_cuts: Option<u64>,
    server_cuts: Option<u64>,
    mut blow: impl FnMut(&Stage),
) {
    let seed = seed();
    let mut stage = Stage::new("transaction", CONNECTIONS, "");
    for warning in warnings {
        stage.fronted.server.expect_log(warning);
    }
    let mut actors = stage.actors(seed, true);
    let plan = |bytes: Option<u64>| {
        let mut cuts = bytes.map(|bytes| cuts(seed, bytes));
        move |number| -> Option<Cut> { cuts.as_mut().and_then(|cuts| cuts(number)) }
    };
    stage.clients.plan(plan(client_cuts));
    stage.server.plan(plan(server_cuts));
    play_for(seed, &mut actors, time(), |watch| storm(watch, time(), || blow(&stage)));
    stage.recover(&mut actors);
    play(seed, &mut actors, |steps| steps >= CALM_STEPS, || {});
    drop(actors);
    stage.look_everywhere(seed, CONNECTIONS);
}

#[test]
fn the_model_is_right_about_mariadb_itself() {
    let (seed, maria) = (seed(), maria());
    for tenant in 0..TENANTS {
        maria.sql(&format!("CREATE DATABASE {}", database(tenant)));
    }
    schemas(&maria);
    play_for(seed, &mut actors(seed, &maria.address(), false), time() / 2, |_| {});
}

#[test]
fn clients_of_mysql_with_a_connection_each_see_only_their_own() {
    check_calm("session", 8, "");
}

#[test]
fn clients_of_mysql_that_share_connections_see_only_their_own() {
    check_calm("transaction", CONNECTIONS, "");
}

#[test]
fn connections_of_mysql_that_are_always_reset_have_nothing_to_show() {
    check_calm("transaction", CONNECTIONS, "verify = \"always\"");
}

#[test]
fn clients_of_mysql_that_are_cut_at_any_byte_leave_nothing_behind() {
    check_faults(&[], Some(6000), None, |_| {});
}

#[test]
fn servers_of_mysql_that_are_cut_at_any_byte_mix_nothing_up() {
    check_faults(&["server"], None, Some(30_000), |stage| stage.server.cut_all());
}

#[test]
fn connections_that_mariadb_kills_mix_nothing_up() {
    check_faults(&["server"], None, None, |stage| stage.fronted.maria.kill_connections());
}

#[test]
fn a_mariadb_that_is_killed_again_and_again_mixes_nothing_up() {
    let mut blows = 0;
    check_faults(&["server"], None, None, |stage| {
        blows += 1;
        // It recovers in between; clients find it dead, recovering, or back.
        if blows % 12 == 1 {
            stage.fronted.maria.restart();
        }
    });
}
