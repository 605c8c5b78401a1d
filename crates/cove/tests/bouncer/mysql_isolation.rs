//! MySQL clients see only their own data, under any load and with any faults.
//!
//! As `isolation.rs` does for PostgreSQL, with the clients of `mysql_model.rs`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use testkit::{Cutter, MariaDb, Server};

use crate::isolation::{
    CONNECTIONS, Site, TENANTS, actors, api_text, check_calm, check_faults, cuts, database,
    play_for, seed, tenants, time,
};
use crate::mysql_model::{Actor, SCHEMA};
use crate::mysql_support::{Fronted, behind, front_at, maria};

/// No client is rejected because of waiting, and files may be loaded.
const PATIENT: &str = "limits.wait_s = 55\nlocal_infile = true";

impl Site for Fronted {
    type Actor = Actor;
    const TIME: Duration = Duration::from_secs(5);

    fn start(mode: &'static str, connections: u32, more: &str) -> (Fronted, Cutter) {
        let maria = Arc::new(maria());
        let proxy = Cutter::start(maria.tcp());
        let tenants = tenants(|name| behind(name, mode, connections).with(PATIENT), more);
        let upstream = proxy.address().to_string();
        let fronted = front_at(Arc::clone(&maria), &upstream, "", &tenants);
        schemas(&maria);
        (fronted, proxy)
    }

    fn cove(&mut self) -> &mut Server {
        &mut self.server
    }

    fn api_text(&self, path: &str) -> String {
        api_text(&self.server, path)
    }

    fn tcp(&self) -> SocketAddr {
        Fronted::tcp(self)
    }

    fn ask(&self, tenant: &str) -> Result<(), String> {
        let answer = self.try_login(tenant).and_then(|mut client| client.query("SELECT 1"));
        let answer = answer.map_err(|error| error.to_string())?;
        answer.error().map_or(Ok(()), |error| Err(error.to_string()))
    }
}

/// Creates the schema of each tenant's database.
fn schemas(maria: &MariaDb) {
    for tenant in 0..TENANTS {
        for statement in SCHEMA {
            maria.sql(&format!("USE {}; {statement}", database(tenant)));
        }
    }
}

#[test]
fn the_model_is_right_about_mariadb_itself() {
    let (seed, maria) = (seed(), maria());
    for tenant in 0..TENANTS {
        maria.sql(&format!("CREATE DATABASE {}", database(tenant)));
    }
    schemas(&maria);
    let mut actors: Vec<Actor> = actors(seed, &maria.address(), false);
    play_for(seed, &mut actors, time(Fronted::TIME) / 2, |_| {});
}

#[test]
fn clients_of_mysql_with_a_connection_each_see_only_their_own() {
    check_calm::<Fronted>("session", 8, "");
}

#[test]
fn clients_of_mysql_that_share_connections_see_only_their_own() {
    check_calm::<Fronted>("transaction", CONNECTIONS, "");
}

#[test]
fn connections_of_mysql_that_are_always_reset_have_nothing_to_show() {
    check_calm::<Fronted>("transaction", CONNECTIONS, "verify = \"always\"");
}

#[test]
fn clients_of_mysql_that_are_cut_at_any_byte_leave_nothing_behind() {
    check_faults::<Fronted>(&[], |stage, seed| stage.clients.plan(cuts(seed, 6000)), |_| {});
}

#[test]
fn servers_of_mysql_that_are_cut_at_any_byte_mix_nothing_up() {
    check_faults::<Fronted>(
        &["server"],
        |stage, seed| stage.server.plan(cuts(seed, 30_000)),
        |stage| stage.server.cut_all(),
    );
}

#[test]
fn connections_that_mariadb_kills_mix_nothing_up() {
    check_faults::<Fronted>(&["server"], |_, _| {}, |stage| stage.site.maria.kill_connections());
}

#[test]
fn a_mariadb_that_is_killed_again_and_again_mixes_nothing_up() {
    let mut blows = 0;
    check_faults::<Fronted>(
        &["server"],
        |_, _| {},
        |stage| {
            blows += 1;
            // The server recovers in between; clients find it dead, recovering, or available.
            if blows % 12 == 1 {
                stage.site.maria.restart();
            }
        },
    );
}
