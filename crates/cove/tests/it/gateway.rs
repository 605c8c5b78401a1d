//! Grants: what code in sandboxes can and cannot reach through the gateway's sockets.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, MariaDb, Postgres, Request, Response, Server, until};

use crate::asynchronous::post;
use crate::sessions_support::{SOON, Sessions, config, path, serve_sessions};
use crate::shared::finish;
use crate::support::{COVE, beside_others};

/// Secret of the server, which must never be visible in a sandbox.
pub(crate) const CANARY: &str = "canary-7f3a9c51e0";

/// Program that searches for it.
pub(crate) const SCANNER: &str = include_str!("../programs/scanner.py");

/// Program that tries to write through a read-only grant.
const MYSQL_READER: &str = include_str!("../programs/mysql_reader.py");

/// Databases with a role that has a password, and a server that knows it.
pub(crate) struct Stage {
    pub(crate) postgres: Postgres,
    pub(crate) mariadb: MariaDb,
    pub(crate) server: Server,
    pub(crate) sessions: Sessions,
}

pub(crate) fn stage(more: &str) -> Stage {
    let (postgres, mariadb, tenants) = databases();
    let server = Server::start_with(COVE, &[], Some(&(config(more) + &tenants)));
    let sessions = Sessions::from(&server);
    Stage { postgres, mariadb, server, sessions }
}

/// Starts two databases, and returns the configuration of tenants for them.
pub(crate) fn databases() -> (Postgres, MariaDb, String) {
    let postgres = Postgres::start();
    postgres.sql(&format!(
        "CREATE ROLE clerk LOGIN PASSWORD '{CANARY}'; \
         CREATE TABLE items AS SELECT x AS id, 'item ' || x AS name \
         FROM generate_series(1, 100) x; \
         GRANT ALL ON items TO clerk"
    ));
    let mariadb = MariaDb::start();
    mariadb.sql(
        "CREATE DATABASE judge; \
         CREATE TABLE judge.answers AS SELECT 1 AS id, 'forty-two' AS answer",
    );
    mariadb.user("judge", CANARY);
    let tenants = format!(
        "[bouncer]\nlisten = \"127.0.0.1:0\"\nmysql.listen = \"127.0.0.1:0\"\n\
         [[bouncer.tenants]]\nname = \"shop\"\nserver = \"{}\"\ndatabase = \"postgres\"\n\
         users = [{{ name = \"clerk\", password = \"{CANARY}\" }}]\n\
         limits.server_connections_max = 5\n\
         [[bouncer.tenants]]\nname = \"judge\"\nengine = \"mysql\"\nserver = \"{}\"\n\
         users = [{{ name = \"judge\", password = \"{CANARY}\" }}]\n",
        postgres.tcp(),
        mariadb.tcp(),
    );
    (postgres, mariadb, tenants)
}

pub(crate) fn shop(access: &str) -> Value {
    json!({"kind": "postgres", "tenant": "shop", "access": access})
}

pub(crate) fn judge() -> Value {
    json!({"kind": "mysql", "tenant": "judge"})
}

/// Runs a Python program in a session, and returns its output.
pub(crate) fn python(sessions: &Sessions, session: &str, program: &str, argument: &str) -> String {
    let written = sessions.write(session, "program.py", program.as_bytes());
    assert!(written.status < 300, "{}", written.text());
    let command = format!("/usr/bin/python3 program.py {argument}");
    sessions.out(session, &command).trim().to_owned()
}

pub(crate) fn patch(client: &Client, session: &str, body: &Value) -> Response {
    let request = Request::new("PATCH", &path(session));
    client.send(&request.header("content-type", "application/json").body(body.to_string()))
}

/// Returns the records of a holder, as soon as one matches.
pub(crate) fn audit(client: &Client, holder: &str, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    until("a record", SOON, || {
        let answer = client.get(&format!("/v1/audit?holder={holder}&limit=1000"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let records = answer.json()["records"].as_array().cloned().unwrap_or_default();
        match records.iter().any(&fits) {
            true => Ok(records),
            false => Err(format!("{records:?}")),
        }
    })
}

#[test]
fn drivers_reach_databases_with_no_arguments_and_no_secret() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, .. } = &stage;
    let session = sessions.create(&json!({"grants": [shop("read_only"), judge()]}));
    let output = python(
        sessions,
        &session,
        "import psycopg2, pymysql\n\
         a = psycopg2.connect('').cursor()\n\
         a.execute('SELECT name, current_user FROM items WHERE id = %s', (7,))\n\
         b = pymysql.connect().cursor()\n\
         b.execute('SELECT answer FROM answers WHERE id = %s', (1,))\n\
         print(a.fetchone(), b.fetchone())",
        "",
    );
    assert_eq!(output, "('item 7', 'clerk') ('forty-two',)");
    assert_eq!(
        sessions.out(&session, "psql -At -c 'SELECT count(*) FROM items'").trim(),
        "100",
        "the command line of PostgreSQL"
    );
    // Statements are recorded, without their values.
    let records = audit(&stage.server.client(), &session, |record| {
        record["text"] == "SELECT answer FROM answers WHERE id = ?"
    });
    let statement = "SELECT name, current_user FROM items WHERE id = ?";
    let found = records.iter().find(|record| record["text"] == statement).expect("a record");
    assert_eq!((&found["grant"], &found["rows"]), (&json!("postgres:shop"), &json!(1)));
    assert!(!records.iter().any(|record| record.to_string().contains(CANARY)));
}

#[test]
fn a_reader_only_reads_and_what_is_taken_back_ends() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, postgres, .. } = &stage;
    let client = stage.server.client();
    let session = sessions.create(&json!({"grants": [shop("read_only")]}));
    let write = "psql -At -c \"UPDATE items SET name = 'stolen'\"";
    assert_ne!(sessions.exec(&session, write)["exit_code"], 0);
    assert_eq!(postgres.sql("SELECT count(*) FROM items WHERE name = 'stolen'"), "0");
    // Nothing else is reachable: neither another port, nor the server itself, nor another sandbox's
    // grants.
    let port = stage.server.client().address().port();
    for target in ["3306", "8181", "3128", &port.to_string()] {
        let probe = format!("timeout 5 bash -c '</dev/tcp/127.0.0.1/{target}'");
        assert_ne!(sessions.exec(&session, &probe)["exit_code"], 0, "{target}");
    }
    let other = sessions.create(&json!({}));
    assert_ne!(sessions.exec(&other, "psql -h 127.0.0.1 -c 'SELECT 1'")["exit_code"], 0);
    // A grant can be added while the session runs, and applies to the next program.
    let granted = patch(&client, &session, &json!({"grants": [shop("read_write"), judge()]}));
    assert_eq!(granted.status, 200, "{}", granted.text());
    assert_eq!(sessions.exec(&session, write)["exit_code"], 0);
    assert_eq!(postgres.sql("SELECT count(*) FROM items WHERE name = 'stolen'"), "100");
    // If grants are revoked during a transaction, it is rolled back, and its client gets an error.
    let holder = "import os, psycopg2\n\
         a = psycopg2.connect(''); c = a.cursor(); c.execute('DELETE FROM items')\n\
         open('began', 'w').close()\n\
         try: c.execute('SELECT pg_sleep(600)')\n\
         except psycopg2.Error as error: \n\
         \x20   open('new', 'w').write(f'{error.pgcode} {error}'); os.rename('new', 'ended')\n";
    assert!(sessions.write(&session, "holder.py", holder.as_bytes()).status < 300);
    sessions.out(&session, "nohup /usr/bin/python3 holder.py > /dev/null 2>&1 &");
    let file = |name: &'static str| {
        until(name, SOON, || {
            let found = sessions.read(&session, name);
            if found.status == 200 { Ok(found.text()) } else { Err(found.text()) }
        })
    };
    file("began");
    let taken = patch(&client, &session, &json!({"grants": []}));
    assert_eq!(taken.status, 200, "{}", taken.text());
    // Its driver has the same message for a server that closes a connection by itself; the
    // bouncer's own tests check the error code.
    assert!(file("ended").contains("closed the connection"), "{}", file("ended"));
    audit(&client, &session, |record| {
        record["outcome"] == "refused" && record["error"] == "the grant was revoked"
    });
    assert_eq!(postgres.sql("SELECT count(*) FROM items"), "100");
    assert_ne!(sessions.exec(&session, "psql -h 127.0.0.1 -c 'SELECT 1'")["exit_code"], 0);
    // The sandbox is ended in the middle of another transaction.
    let back = patch(&client, &session, &json!({"grants": [shop("read_write")]}));
    assert_eq!(back.status, 200, "{}", back.text());
    sessions.out(&session, "rm began; nohup /usr/bin/python3 holder.py > /dev/null 2>&1 &");
    file("began");
    sessions.end(&session);
    until("its transaction is undone", SOON, || {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'clerk' \
                    AND state <> 'idle'";
        match postgres.sql(busy).as_str() {
            "0" => Ok(()),
            busy => Err(busy.to_owned()),
        }
    });
    assert_eq!(postgres.sql("SELECT count(*) FROM items"), "100");
}

#[test]
fn a_reader_of_mysql_only_reads() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, mariadb, .. } = &stage;
    let session = sessions.create(&json!({"grants": [judge()]}));
    let output = python(sessions, &session, MYSQL_READER, "");
    assert_eq!(output, "((1, 'forty-two'),)");
    assert_eq!(mariadb.sql("SELECT GROUP_CONCAT(answer) FROM judge.answers"), "forty-two");
    assert_eq!(mariadb.sql("SHOW TABLES IN judge"), "answers");
}

#[test]
fn grants_are_checked_before_there_is_a_sandbox() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    for (grants, field) in [
        (json!([{"kind": "postgres", "tenant": "nothing"}]), "grants[0].tenant"),
        (
            json!([{"kind": "postgres", "tenant": "nothing", "schema": "x, pg_catalog; drop"}]),
            "grants[0].schema",
        ),
        (json!([{"kind": "mysql", "tenant": "nothing", "schema": "mysql"}]), "grants[0].schema"),
        (json!([{"kind": "catalog", "warehouse": "nothing"}]), "grants[0]"),
        (json!([{"kind": "http", "rules": []}]), "grants[0].rules"),
    ] {
        let refused = sessions.try_create(&json!({"grants": grants}));
        assert_eq!(refused.status, 400, "{grants}: {}", refused.text());
        let at = refused.json()["error"]["field"].as_str().unwrap_or_default().to_owned();
        assert!(at.starts_with(field), "{grants}: {}", refused.text());
    }
    let listed = server.client().get("/v1/sessions").json();
    assert_eq!(listed["sessions"], json!([]));
}

#[test]
fn an_execution_queries_a_database_and_is_judged() {
    let _guard = beside_others();
    let stage = stage("");
    let request = json!({
        "language": "python",
        "source": "import pymysql\nc = pymysql.connect().cursor()\n\
                   c.execute('SELECT answer FROM answers WHERE id = %s', (int(input()),))\n\
                   print(c.fetchone()[0])",
        "grants": [judge()],
        "tests": [{"stdin": "1\n", "expected": "forty-two\n"}],
    });
    let answer = post(&stage.server.client(), "/v1/executions?wait=true", &request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["verdict"], "OK", "{}", answer.text());
    // The same for `cove run` on a server.
    let mut run = Command::new(COVE);
    let url = format!("http://{}", stage.server.client().address());
    run.args(["run", "--server", &url, "--grant", "postgres:shop", "--"]);
    run.args(["/usr/bin/psql", "-Atc", "SELECT count(*) FROM items"]);
    run.env("COVE_TOKEN", stage.server.token());
    assert_eq!(finish(&mut run), "100\n");
}

#[test]
fn the_example_of_a_judge_is_judged_as_its_page_says() {
    const SETUP: &str = include_str!("../../../../examples/gateway/judge/setup.sql");
    const REQUEST: &str = include_str!("../../../../examples/gateway/judge/request.json");
    let _guard = beside_others();
    let stage = stage("");
    stage.mariadb.sql(&SETUP.replace("PASSWORD", CANARY));
    let request: Value = serde_json::from_str(REQUEST).unwrap();
    let answer = post(&stage.server.client(), "/v1/executions?wait=true", &request).json();
    let verdicts = answer["tests"].as_array().unwrap().iter().map(|test| &test["verdict"]);
    assert_eq!(verdicts.collect::<Vec<_>>(), ["OK"; 3], "{answer}");
}
