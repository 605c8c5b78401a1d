//! What clients do all day: simple and extended queries, pipelines, COPY, rows of any size.

use api::PoolMode;
use testkit::{PgBatch, PgClient, Postgres};

use crate::support::{Pooler, tenant};

/// Runs `work` in both modes, over TCP and Unix sockets, with one thread and with two.
fn check(work: impl Fn(&mut PgClient)) {
    let server = Postgres::shared();
    for threads in [1, 2] {
        let tenants = vec![
            tenant("session", &server, PoolMode::Session),
            tenant("transaction", &server, PoolMode::Transaction),
        ];
        let pooler = Pooler::start(threads, tenants);
        for mode in ["session", "transaction"] {
            for address in [pooler.tcp(), pooler.unix()] {
                let parameters = [("user", "app"), ("database", mode)];
                let mut client = PgClient::login(&address, &parameters, "").expect("log in");
                work(&mut client);
                work(&mut client);
                client.close();
            }
        }
    }
}

#[test]
fn simple_queries_are_answered() {
    check(|client| {
        assert_eq!(client.value("SELECT 6 * 7"), "42");
        let answer = client.run("SELECT 1; SELECT 2");
        assert_eq!(answer.letters(), "TDCTDCZ");
        assert_eq!(client.fail("SELECT 1 / 0").code(), "22012");
        assert_eq!(client.value("SELECT 1"), "1");
    });
}
