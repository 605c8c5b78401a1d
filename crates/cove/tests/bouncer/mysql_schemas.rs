//! Clients in different schemas on few connections: almost every statement changes a connection's
//! schema, and every statement is answered.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use testkit::my::command;
use testkit::{MyClient, MyValue};

use crate::mysql_support::{Fronted, behind, front, shared_maria};

/// More than any of these responses takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds of each client.
const ROUNDS: usize = 150;

/// Checks the current schema, with a statement that was prepared in another one.
fn visits(client: &mut MyClient, schemas: &[String], begin: usize) {
    let sql = "SELECT DATABASE(), (SELECT MAX(name) FROM here), ?";
    let mut statement = client.prepare(sql).unwrap();
    // It stays in the schema in which it was prepared, including `DATABASE()` (MariaDB 10.11).
    let mut home = client.value("SELECT DATABASE()");
    let mut at = &schemas[begin];
    for round in 0..ROUNDS {
        let schema = &schemas[(begin + round / 3) % schemas.len()];
        match round % 4 {
            0 => {
                drop(client.simple(command::INIT_DB, schema.as_bytes()).unwrap().unwrap());
                at = schema;
            }
            1 => {
                client.run(&format!("USE {schema}"));
                at = schema;
            }
            2 if round % 5 == 0 => {
                client.close_statement(statement.id).unwrap();
                statement = client.prepare(sql).unwrap();
                home = client.value("SELECT DATABASE()");
            }
            3 if round % 7 == 0 => {
                let reset = client.simple(command::STMT_RESET, &statement.id.to_le_bytes());
                drop(reset.unwrap().unwrap());
            }
            _ => {}
        }
        if round % 2 == 0 {
            assert_eq!(client.value("SELECT DATABASE()"), *at, "{begin}, round {round}");
        }
        let value = round.to_string();
        let answer = client.execute(&statement, &[MyValue::Text(&value)]).unwrap();
        assert_eq!(answer.error(), None, "{begin}, round {round}");
        let row: Vec<String> = answer.rows().remove(0).into_iter().flatten().collect();
        assert_eq!(row, [home.as_str(), &home, &value], "{begin}, round {round}");
    }
}

/// Runs a number of concurrent clients on the tenant's connections.
fn check(fronted: &Fronted, tenant: &str, clients: usize) {
    let schemas: Vec<String> = (0..clients + 1).map(|at| format!("{tenant}_{at}")).collect();
    for schema in &schemas {
        fronted.maria.sql(&format!(
            "CREATE DATABASE {schema}; CREATE TABLE {schema}.here (name VARCHAR(60)); \
             INSERT INTO {schema}.here VALUES ('{schema}')"
        ));
    }
    let together = Arc::new(Barrier::new(clients));
    let visitors: Vec<_> = (0..clients)
        .map(|begin| {
            let mut client = fronted.login(tenant);
            client.patience(PATIENCE);
            let (schemas, together) = (schemas.clone(), Arc::clone(&together));
            thread::spawn(move || {
                client.run(&format!("USE {}", schemas[begin]));
                together.wait();
                visits(&mut client, &schemas, begin);
            })
        })
        .collect();
    for visitor in visitors {
        visitor.join().unwrap();
    }
}

#[test]
fn every_statement_is_answered_whatever_schema_the_connections_are_in() {
    let tenants = [
        behind("visits_one", "transaction", 1),
        behind("visits_two", "transaction", 2),
        behind("visits_always", "transaction", 2).with("verify = \"always\""),
    ];
    let fronted = front(shared_maria(), "", &tenants);
    for (tenant, clients) in [("visits_one", 2), ("visits_two", 8), ("visits_always", 8)] {
        check(&fronted, tenant, clients);
    }
}
