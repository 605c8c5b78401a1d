//! Statements through Iceberg grants: a program in the session runs them, with PyIceberg and DuckDB
//! from the package index, on a warehouse in a bucket.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, S3, Scratch, Server, until};

use crate::gateway::{audit, patch};
use crate::gateway_data::{begin_query, query, refusal, rows, types};
use crate::gateway_lake::{PACKAGES, inside_packages, lake_config, packages};
use crate::mcp::stateless;
use crate::sessions_support::Sessions;
use crate::shared::finish;
use crate::support::{COVE, SOON, beside_others};

const LAKE: &str = "catalog:lake";
/// Directory of DuckDB in sessions.
const DUCKDB: &str = "duckdb";
/// Program that creates the tables.
const TABLES: &str = include_str!("../programs/lake_tables.py");
/// Program that tries to write through every listening port.
const PORTS: &str = include_str!("../programs/lake_ports.py");
/// Counts a session's programs that run statements, by a word that this command does not contain.
const COUNT: &str = "cat /proc/[0-9]*/cmdline 2>/dev/null | grep -c 'json_serialize_sq[l]' || true";
/// Statement that does not end within a test.
const ENDLESS: &str = "SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000000000) b";

/// Server with a warehouse, and a session that may write to it.
struct LakeStage {
    _store: S3,
    _scratch: Scratch,
    server: Server,
    sessions: Sessions,
    session: String,
    /// Snapshot of the table with its first file only.
    first: String,
}

fn lake_stage() -> LakeStage {
    let (store, scratch) = (S3::start(), Scratch::new());
    let table = lake_config(&store, &scratch);
    // Every request is counted below.
    let table = format!("{table}[gateway]\naudit_records_per_s_per_grant = 0\n");
    let server = Server::start_with(COVE, &[], Some(&table));
    let sessions = Sessions::from(&server);
    let session = session(&sessions, &[PACKAGES, DUCKDB], "read_write");
    assert!(sessions.write(&session, "tables.py", TABLES.as_bytes()).status < 300);
    let first = sessions.out(&session, "python3 tables.py").trim().to_owned();
    LakeStage { _store: store, _scratch: scratch, server, sessions, session, first }
}

/// Creates a session with packages in its programs' search path.
fn session(sessions: &Sessions, names: &[&str], access: &str) -> String {
    let places: Vec<String> = names.iter().map(|name| format!("/workspace/{name}")).collect();
    let session = sessions.create(&json!({
        "grants": [{"kind": "catalog", "warehouse": "lake", "access": access}],
        "env": {"PYTHONPATH": places.join(":")},
    }));
    for name in names {
        let from = match *name {
            DUCKDB => inside_packages("iceberg/duckdb.txt", "compat-duckdb-inside"),
            _ => packages(),
        };
        sessions.unpack(&session, name, &from, &["."]);
    }
    session
}

/// Returns the number of a session's last record; 0 before the first one.
fn last_record(client: &Client, session: &str) -> u64 {
    let answer = client.get(&format!("/v1/audit?holder={session}&limit=1000")).json();
    let records = answer["records"].as_array().into_iter().flatten();
    records.filter_map(|record| record["seq"].as_u64()).max().unwrap_or(0)
}

/// Returns the data files that a session's programs have requested after a record.
fn data_files(client: &Client, session: &str, after: u64) -> BTreeSet<String> {
    let is_later = |record: &Value| record["seq"].as_u64() > Some(after);
    let records = audit(client, session, |it| is_later(it) && it["event"] == "statement");
    let later = records.iter().filter(|record| is_later(record));
    let texts = later.filter_map(|record| record["text"].as_str());
    let paths = texts.flat_map(|text| text.split([' ', '?'])).filter(|it| it.ends_with(".parquet"));
    paths.map(str::to_owned).collect()
}

/// Waits until no program, or at least one, of a session runs statements.
fn wait_for_programs(sessions: &Sessions, session: &str, expected: usize) {
    until(&format!("{expected} statements"), SOON, || {
        let found = sessions.out(session, COUNT);
        match (found.trim() == "0", expected) {
            (true, 0) | (false, 1) => Ok(()),
            _ => Err(found),
        }
    });
}

fn check(stage: &LakeStage, sql: &str, parameters: &Value, expected: &Value) {
    let body = json!({"sql": sql, "parameters": parameters});
    let found = rows(&stage.server.client(), &stage.session, LAKE, &body);
    assert_eq!(&found["rows"], expected, "{sql}: {found}");
}

fn values_come_as_they_are(stage: &LakeStage) {
    let client = stage.server.client();
    let body = json!({"sql": "SELECT * FROM shop.orders ORDER BY id"});
    let found = rows(&client, &stage.session, LAKE, &body);
    let expected = json!([
        [
            1, "1.10", "2026-11-28 12:00:00.5+00", "2026-11-28", ["a", null],
            {"name": "x", "score": 1.5}, "AP8=", true, 0.1, "kettle"
        ],
        [200, "20.00", "2026-11-28 12:00:00.5+00", "2020-01-01", [], null, "", false, -1.0, "a \"b\""],
        [300, "-3.33", "2026-11-28 12:00:00.5+00", "2030-01-01", ["z"], null, "eg==", false, 2.0, "cup"],
        ["9007199254740993", null, null, null, null, null, null, null, "nan", null],
    ]);
    assert_eq!(found["rows"], expected);
    let expected = "BIGINT DECIMAL(10,2) TIMESTAMP WITH TIME ZONE DATE VARCHAR[] \
                    STRUCT(\"name\" VARCHAR, score DOUBLE) BLOB BOOLEAN DOUBLE VARCHAR";
    assert_eq!(types(&found).join(" "), expected);
    assert_eq!((&found["row_count"], &found["truncated"]), (&json!(4), &json!(false)));
    for (sql, parameters, expected) in [
        (
            "SELECT o.id, p.city FROM shop.orders o JOIN a.b.people p USING (id) \
             WHERE p.city <> $1 ORDER BY 1",
            json!(["Lima"]),
            json!([[1, "Oslo"]]),
        ),
        ("SELECT count(*), sum(total), max(day) FROM shop.orders", json!([]), {
            json!([[4, "17.77", "2030-01-01"]])
        }),
        // Conditions that statistics cannot decide are still evaluated.
        ("SELECT id FROM \"shop\".\"orders\" WHERE name = 'a \"b\"'", json!([]), json!([[200]])),
        ("SELECT id FROM shop.orders WHERE f > 1 AND f < 3", json!([]), json!([[300]])),
        ("SELECT id FROM shop.orders WHERE day >= ? AND ok IS NOT NULL", json!(["2029-01-01"]), {
            json!([[300]])
        }),
        ("WITH x AS (SELECT id FROM shop.orders) SELECT count(*) FROM x; -- all", json!([]), {
            json!([[4]])
        }),
        ("SELECT $1, $2", json!([{"k": [1]}, null]), json!([["{\"k\":[1]}", null]])),
        (
            "SHOW TABLES",
            json!([]),
            json!([["a.b", "people"], ["shop", "orders"], ["v1.2", "one"], ["v1\\.2", "one"],]),
        ),
        // A dot within a level, and one that separates two.
        ("SELECT number FROM \"v1\\.2\".one", json!([]), json!([[0]])),
        ("SELECT number FROM v1.\"2\".one", json!([]), json!([[1]])),
        ("SELECT number FROM \"v1.2\".one", json!([]), json!([[1]])),
        ("SELECT column_name FROM (DESCRIBE a.b.people)", json!([]), json!([["id"], ["city"]])),
    ] {
        check(stage, sql, &parameters, &expected);
    }
    let at = format!("SELECT count(*) FROM shop.orders o AT (VERSION => {})", stage.first);
    check(stage, &at, &json!([]), &json!([[2]]));
    // Recorded like database statements, without values.
    let text = "SELECT id FROM shop.orders WHERE f > ? AND f < ?";
    audit(&client, &stage.session, |record| {
        record["event"] == "statement" && record["text"] == text && record["rows"] == 1
    });
}

fn a_page_reads_what_it_shows(stage: &LakeStage) {
    let client = stage.server.client();
    let session = session(&stage.sessions, &[PACKAGES, DUCKDB], "read_only");
    for (sql, max_rows, files) in [
        ("SELECT * FROM shop.orders LIMIT 1", 100, 1),
        // One row more than shown, which reveals that there are more, is in the second file.
        ("SELECT id, name FROM shop.orders", 1, 2),
        // The first file has numbers on both sides.
        ("SELECT name FROM shop.orders WHERE id = 300", 100, 2),
        ("SELECT name FROM shop.orders WHERE day < DATE '2021-01-01' AND id > 5", 100, 1),
        ("SELECT count(*) FROM shop.orders", 100, 3),
    ] {
        let after = last_record(&client, &session);
        let body = json!({"sql": sql, "max_rows": max_rows});
        let found = rows(&client, &session, LAKE, &body);
        assert_eq!(found["row_count"], 1, "{sql}: {found}");
        let fetched = data_files(&client, &session, after);
        assert_eq!(fetched.len(), files, "{sql}: {fetched:?}");
    }
    stage.sessions.end(&session);
    let body = json!({"sql": "SELECT id FROM shop.orders", "max_rows": 3});
    let cut = rows(&client, &stage.session, LAKE, &body);
    assert_eq!((&cut["row_count"], &cut["limit"]), (&json!(3), &json!("rows")), "{cut}");
    let body = json!({"sql": "SELECT repeat('x', 1000000) FROM range(20)", "max_rows": 100});
    let cut = rows(&client, &stage.session, LAKE, &body);
    assert_eq!(
        (&cut["row_count"], &cut["limit"]),
        (&json!(4), &json!("bytes")),
        "{}",
        cut["limit"]
    );
}

fn nothing_else_is_run(stage: &LakeStage) {
    let client = stage.server.client();
    let secret = "a file of the session";
    assert!(stage.sessions.write(&stage.session, "secret.txt", secret.as_bytes()).status < 300);
    for sql in [
        "DELETE FROM shop.orders",
        "INSERT INTO shop.orders SELECT * FROM shop.orders",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE shop.orders",
        "SELECT 1; DROP TABLE shop.orders",
        "COPY (SELECT 1) TO '/workspace/stolen'",
        "EXPORT DATABASE '/workspace/stolen'",
        "ATTACH '/workspace/stolen' AS stolen",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "PRAGMA enable_profiling",
        "CALL pragma_version()",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT * FROM '/workspace/secret.txt'",
        "SELECT * FROM read_csv('/workspace/secret.txt')",
        "SELECT * FROM read_text('/workspace/secret.txt')",
        "SELECT * FROM glob('/workspace/*')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''/workspace/stolen''')",
        "SELECT * FROM request",
        "SELECT * FROM orders",
        "SELECT * FROM shop.nothing",
        "SELECT nothing FROM shop.orders",
        "not a statement",
    ] {
        let message = refusal(&client, &stage.session, LAKE, sql);
        assert!(!message.contains(secret), "{sql}: {message}");
    }
    assert_eq!(stage.sessions.read(&stage.session, "stolen").status, 404);
    check(stage, "SELECT count(*) FROM shop.orders", &json!([]), &json!([[4]]));
    let wrong = json!({"sql": "SELECT $1", "parameters": [1, 2]});
    let wrong = query(&client, &stage.session, LAKE, &wrong);
    assert_eq!((wrong.status, &wrong.json()["error"]["field"]), (400, &json!("parameters")));
    // The door of these statements is read-only for any client; the grant's own door writes.
    assert!(stage.sessions.write(&stage.session, "ports.py", PORTS.as_bytes()).status < 300);
    let found = stage.sessions.out(&stage.session, "python3 ports.py");
    assert_eq!(found, "own 200\nbeside 403\n");
}

#[test]
fn statements_over_tables_of_a_warehouse_are_those_of_a_database() {
    let _guard = beside_others();
    let stage = lake_stage();
    values_come_as_they_are(&stage);
    a_page_reads_what_it_shows(&stage);
    nothing_else_is_run(&stage);
    // The two other ways to run a statement.
    let mut command = Command::new(COVE);
    command.args([
        "session",
        "sql",
        &stage.session,
        LAKE,
        "SELECT city FROM a.b.people ORDER BY 1",
    ]);
    command.env("COVE_URL", format!("http://{}", stage.server.client().address()));
    let output = finish(command.env("COVE_TOKEN", stage.server.token()));
    assert!(output.contains("Lima") && output.contains("Oslo"), "{output}");
    let arguments = json!({
        "session": stage.session, "grant": LAKE, "sql": "SELECT city FROM a.b.people ORDER BY 1",
    });
    let call = json!({"name": "query_sql", "arguments": arguments});
    let reply = stateless(&stage.server.client(), "tools/call", call).json();
    let found = &reply["result"]["structuredContent"]["rows"];
    assert_eq!(found, &json!([["Lima"], ["Oslo"]]), "{reply}");
}

#[test]
fn a_session_that_cannot_run_a_statement_says_what_it_needs() {
    let _guard = beside_others();
    let LakeStage { _store, _scratch, server, sessions, session: able, .. } = lake_stage();
    let client = server.client();
    let one = json!({"sql": "SELECT 1 AS x"});
    let bare = session(&sessions, &[], "read_only");
    let answer = query(&client, &bare, LAKE, &one);
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["code"]), (409, &json!("conflict")), "{error}");
    for part in ["duckdb", "pyiceberg[pyarrow]", "pip_install", LAKE] {
        assert!(error["message"].as_str().unwrap().contains(part), "{part}: {error}");
    }
    // Programs that a session substitutes are not trusted.
    for (program, expected) in [
        ("import os; os.write(1, b'{\"rows\": 1}\\n')", "wrote a malformed result"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "line that is too long"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ] {
        let path = format!("{DUCKDB}/sitecustomize.py");
        assert!(sessions.write(&able, &path, program.as_bytes()).status < 300);
        let error = refusal(&client, &able, LAKE, "SELECT 1");
        assert!(error.contains(expected), "{program}: {error}");
        wait_for_programs(&sessions, &able, 0);
    }
    let nothing = sessions.write(&able, &format!("{DUCKDB}/sitecustomize.py"), b"");
    assert!(nothing.status < 300);
    assert_eq!(rows(&client, &able, LAKE, &one)["rows"], json!([[1]]));
    // If a caller disconnects, its program ends, and so it does if the grant is revoked.
    let leaving = begin_query(&server, &able, LAKE, ENDLESS);
    wait_for_programs(&sessions, &able, 1);
    drop(leaving);
    wait_for_programs(&sessions, &able, 0);
    let mut held = begin_query(&server, &able, LAKE, ENDLESS);
    wait_for_programs(&sessions, &able, 1);
    assert_eq!(patch(&client, &able, &json!({"grants": []})).status, 200);
    wait_for_programs(&sessions, &able, 0);
    let mut head = [0; 12];
    held.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 409");
    assert_eq!(query(&client, &able, LAKE, &one).status, 404);
}
