//! `cove demo`: its objects work with third-party clients, a second run finds them, and they can be
//! removed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Scratch, Server, command, until};

use crate::gateway::audit;
use crate::gateway_data::{query, rows};
use crate::gateway_lake::{inside_packages, packages};
use crate::sessions_support::Sessions;
use crate::shared::{finish, interpreter_with};
use crate::support::{COVE, SOON, beside_others};

/// Reads the tables with PyIceberg in a sandbox.
const LOCAL_FILES: &str = include_str!("../../../../examples/gateway/local_files.py");
/// Steps of a complete run.
const STEPS: usize = 13;
/// Reads the tables with PyIceberg, at several of their snapshots.
const READ: &str = r#"
import json, os
from pyiceberg.catalog import load_catalog
catalog = load_catalog("c", type="rest", uri=os.environ["COVE_URL"] + "/catalog", token=os.environ["COVE_TOKEN"])
orders = catalog.load_table("demo.orders")
rows = orders.scan().to_arrow()
def at(name):
    return orders.scan(snapshot_id=orders.snapshot_by_name(name).snapshot_id).to_arrow().num_rows
print(json.dumps({
    "columns": rows.column_names, "rows": rows.num_rows,
    "ids": sorted(rows["id"].to_pylist()) == list(range(1, 601)),
    "total of 1": [r["total"] for r in rows.to_pylist() if r["id"] == 1],
    "without country": rows["country"].null_count,
    "tags": [at("first-day"), at("v1"), at("v2"), at("audit")],
    "snapshots": len(orders.snapshots()), "schemas": len(orders.schemas()),
    "lima": catalog.load_table("demo.customers").scan("city = 'Lima'").to_arrow().num_rows,
    "visits": catalog.load_table("demo.web.visits").scan().to_arrow().num_rows,
    "tables": sorted(".".join(t) for t in catalog.list_tables("demo")),
}))
"#;

fn post(client: &Client, path: &str, body: &Value) -> Response {
    let request = Request::new("POST", path).header("content-type", "application/json");
    client.send(&request.body(body.to_string()))
}

/// Server, and a directory for its commands' temporary files.
struct DemoStage {
    server: Server,
    temporary: Scratch,
}

impl DemoStage {
    fn start() -> DemoStage {
        let temporary = temporary();
        DemoStage { server: Server::start(COVE), temporary }
    }

    /// Runs the command; returns its document and whether it succeeded.
    fn demo(&self, arguments: &[&str]) -> (Value, bool) {
        let mut command = self.server.command("demo");
        command.arg("--json").args(arguments).env("TMPDIR", self.temporary.path());
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let document = serde_json::from_slice(&output.stdout);
        (document.unwrap_or_else(|error| panic!("{error}: {stderr}")), output.status.success())
    }
}

/// Creates a directory that the database's user may enter.
fn temporary() -> Scratch {
    let temporary = Scratch::new();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o711)).unwrap();
    temporary
}

fn states(document: &Value) -> Vec<&str> {
    let steps = document["steps"].as_array().unwrap();
    steps.iter().map(|step| step["state"].as_str().unwrap()).collect()
}

fn step<'v>(document: &'v Value, name: &str) -> &'v Value {
    let steps = document["steps"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).unwrap()
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

/// The tables are in a directory of the server that no sandbox sees: a grant provides their files.
fn rows_are_read_through_a_grant(stage: &DemoStage) {
    let (client, sessions) = (stage.server.client(), Sessions::from(&stage.server));
    let prefix = client.get("/catalog/v1/config").json()["overrides"]["prefix"].clone();
    let warehouse = prefix.as_str().unwrap();
    let grant = json!({"kind": "catalog", "warehouse": warehouse, "namespaces": ["demo"],
        "access": "read_only"});
    let session = sessions.create(&json!({
        "grants": [grant], "env": {"PYTHONPATH": "/workspace/packages:/workspace/duckdb"},
    }));
    let duckdb = inside_packages("iceberg/duckdb.txt", "compat-duckdb-inside");
    for (into, from) in [("packages", &packages()), ("duckdb", &duckdb)] {
        sessions.unpack(&session, into, from, &["."]);
    }
    let label = format!("catalog:{warehouse}");
    for (sql, expected) in [
        (
            "SELECT id, total, country FROM demo.orders WHERE id IN (1, 600) ORDER BY id",
            json!([[1, 5.37, null], [600, 47.0, "NO"]]),
        ),
        ("SELECT count(*), count(country) FROM demo.orders", json!([[600, 400]])),
        ("SELECT count(*) FROM demo.orders AT (VERSION => 'v1')", json!([[200]])),
        (
            "SELECT count(*) FROM demo.orders o JOIN demo.customers c ON o.customer = c.id \
             WHERE c.city = 'Lima'",
            json!([[120]]),
        ),
    ] {
        let found = rows(&client, &session, &label, &json!({"sql": sql}));
        assert_eq!(found["rows"], expected, "{sql}");
    }
    audit(&client, &session, |record| {
        let text = record["text"].as_str().unwrap_or_default();
        record["outcome"] == "done"
            && text.starts_with("GET /files/")
            && text.ends_with(".parquet 206")
    });
    // A separate program, and the requests that are rejected.
    assert!(sessions.write(&session, "local_files.py", LOCAL_FILES.as_bytes()).status < 300);
    let printed = sessions.out(&session, "python3 local_files.py demo.customers");
    assert_eq!(printed.lines().count(), 10, "{printed}");
    assert!(printed.contains("'city': 'Lima'"), "{printed}");
    let tried = "for file in etc/passwd proc/self/environ; do \
                 curl -s -o /dev/null -w '%{http_code} ' localhost:8181/files/$file; done";
    assert_eq!(sessions.out(&session, tried), "403 403 ");
    sessions.end(&session);
}

#[test]
fn it_makes_a_world_once_and_takes_it_away() {
    let _guard = beside_others();
    let stage = DemoStage::start();
    let client = stage.server.client();
    // Belongs to others, and must stay.
    let other = post(&client, "/v1/sessions", &json!({"metadata": {"demo": "mine"}}));
    assert_eq!(other.status, 201, "{}", other.text());
    let other = other.json();
    let (made, is_done) = stage.demo(&[]);
    assert!(is_done, "{made:#}");
    assert_eq!(states(&made), ["made"; STEPS], "{made:#}");
    assert!(made["console"].as_str().unwrap().contains("/console/#c="), "{made:#}");
    let verdicts = step(&made, "executions")["text"].as_str().unwrap();
    assert_eq!(verdicts, "OK OK WA RE TLE MLE OLE SG CE, and 12 that wait");
    let state = |purpose: &str| {
        let path = format!("/v1/sessions?metadata.demo=cove-demo&metadata.purpose={purpose}");
        client.get(&path).json()["sessions"][0]["state"].clone()
    };
    let found = ["conversation", "files", "process", "paused", "cells", "database"].map(state);
    assert_eq!(found, ["active", "active", "active", "paused", "active", "active"]);
    // Third-party clients read the data.
    let python = interpreter_with("iceberg/requirements.txt", "compat-iceberg");
    let mut read = Command::new(python);
    read.args(["-c", READ]).env("COVE_TOKEN", stage.server.token());
    read.env("COVE_URL", format!("http://{}", client.address()));
    let read = finish(read.env("PYICEBERG_HOME", stage.server.scratch().path()));
    let read: Value = serde_json::from_str(read.trim()).unwrap();
    assert_eq!(
        read,
        json!({
            "columns": ["id", "customer", "total", "ordered_at", "country"], "rows": 600, "ids": true,
            "total of 1": [5.37], "without country": 200, "tags": [20, 200, 400, 300], "snapshots": 30,
            "schemas": 3, "lima": 8, "visits": 40, "tables": ["demo.customers", "demo.orders"],
        })
    );
    rows_are_read_through_a_grant(&stage);
    let shell = client.get("/v1/sessions?metadata.purpose=database").json();
    let shell = shell["sessions"][0]["id"].as_str().unwrap();
    for grant in ["postgres:cove-demo", "mysql:cove-demo-mariadb"] {
        let body = json!({"sql": "SELECT count(*), min(city) FROM customers"});
        assert_eq!(rows(&client, shell, grant, &body)["rows"], json!([[40, "Lima"]]), "{grant}");
    }
    // Existing objects are not created again.
    let (again, is_done) = stage.demo(&[]);
    assert!(is_done, "{again:#}");
    assert_eq!(states(&again), ["present"; STEPS], "{again:#}");
    let (removed, is_done) = stage.demo(&["--remove"]);
    assert!(is_done, "{removed:#}");
    let list = client.get("/v1/sessions?state=starting,active,paused,stopped,error").json();
    let left: Vec<&Value> =
        list["sessions"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(left, [&other["id"]]);
    assert_eq!(client.get("/v1/agents").json()["agents"], json!([]));
    assert_eq!(client.get("/v1/tenants").json()["tenants"], json!([]));
    let clients = client.get("/catalog/management/v1/clients").json();
    assert_eq!(clients["clients"], json!([]));
    let prefix = client.get("/catalog/v1/config").json()["overrides"]["prefix"].clone();
    let prefix = prefix.as_str().unwrap();
    let namespaces = client.get(&format!("/catalog/v1/{prefix}/namespaces")).json();
    assert_eq!(namespaces["namespaces"], json!([]));
    assert!(is_empty(stage.temporary.path()), "a database is left");
    let (again, is_done) = stage.demo(&["--remove"]);
    assert!(is_done, "{again:#}");
}

/// Returns the number of executions and of live sessions of a load.
fn load_counts(client: &Client) -> (usize, usize) {
    let executions = client.get("/v1/executions?limit=100&label=cove-demo-load").json();
    let sessions = client.get("/v1/sessions?metadata.purpose=load&state=active").json();
    let count = |list: &Value, name: &str| list[name].as_array().map_or(0, Vec::len);
    (count(&executions, "executions"), count(&sessions, "sessions"))
}

#[test]
fn a_load_keeps_every_service_busy_and_leaves_nothing() {
    let _guard = beside_others();
    let mut stage = DemoStage::start();
    // The rate of the load's statements is unlimited. A machine that starts sandboxes slowly runs
    // more of them before it has run enough executions than the audit accepts for one grant.
    stage.server.expect_log("audit records are missing");
    let client = stage.server.client();
    let mut early = stage.server.command("demo");
    let refused = early.args(["load", "--for", "1s"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("there is no demo") && stderr.contains("`cove demo`"), "{stderr}");
    let (made, is_done) = stage.demo(&[]);
    assert!(is_done, "{made:#}");
    let limits = client.get("/v1/tenants/cove-demo").json()["limits"].clone();
    let mut load = stage.server.command("demo");
    load.args(["load", "--json", "--clients", "20", "--rate", "20"]).stdout(Stdio::piped());
    let load = load.spawn().unwrap();
    let writes = json!({"sql": "SELECT coalesce(sum(writes), 0)::int FROM demo_load"});
    let shell = client.get("/v1/sessions?metadata.purpose=database").json();
    let shell = shell["sessions"][0]["id"].as_str().unwrap().to_owned();
    until("requests to every service", SOON, || {
        let (executions, sessions) = load_counts(&client);
        let written = query(&client, &shell, "postgres:cove-demo", &writes).json();
        let written = written["rows"][0][0].as_i64().unwrap_or(0);
        match (executions > 8, sessions == 3, written > 20) {
            (true, true, true) => Ok(()),
            _ => Err(format!("{executions} executions, {sessions} sessions, {written} writes")),
        }
    });
    testkit::process::signal(load.id(), "INT");
    let ended = load.wait_with_output().unwrap();
    let stderr: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(ended.status.success(), "{stderr:#}");
    let services = stderr["services"].as_array().unwrap();
    let names: Vec<&str> = services.iter().map(|it| it["service"].as_str().unwrap()).collect();
    assert_eq!(names, ["executions", "databases", "catalog", "sessions", "gateway"]);
    for service in services {
        let operations = service["operations"].as_u64().unwrap();
        assert!(operations > 0 && service["failures"] == 0, "{service}");
        assert!(service["p50_ms"].as_u64() <= service["p95_ms"].as_u64(), "{service}");
    }
    // Nothing continues, and only records of executions are left.
    assert_eq!(load_counts(&client).1, 0);
    let running = "/v1/executions?label=cove-demo-load&state=queued,running";
    // A cancelled execution ends after the answer to its cancellation.
    until("the end of its executions", SOON, || match client.get(running).json()["executions"] {
        Value::Array(ref left) if left.is_empty() => Ok(()),
        ref left => Err(left.to_string()),
    });
    let there = json!({"sql": "SELECT to_regclass('demo_load')::text"});
    assert_eq!(rows(&client, &shell, "postgres:cove-demo", &there)["rows"], json!([[null]]));
    let prefix = client.get("/catalog/v1/config").json()["overrides"]["prefix"].clone();
    let tables = format!("/catalog/v1/{}/namespaces/demo/tables", prefix.as_str().unwrap());
    let tables = client.get(&tables).json();
    let is_loads = |it: &Value| it["name"] == "load";
    assert!(!tables["identifiers"].as_array().unwrap().iter().any(is_loads), "{tables}");
    assert_eq!(client.get("/v1/tenants/cove-demo").json()["limits"], limits);
    // A service without demo objects is rejected by name, and so is a caller without rights.
    let mut create = stage.server.command("token");
    let few = finish(create.args(["create", "--name", "few", "--scope", "executions"]));
    let known = Client::new(client.address(), Some(few.trim().to_owned()));
    until("the new token to be known", SOON, || match known.get("/v1/languages").status {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    for (service, token, code, word) in [
        ("databases", stage.server.token(), 2, "--data-dir"),
        ("sessions", few.trim(), 125, "lacks the scope"),
    ] {
        let mut refused = command(COVE);
        refused.args(["demo", "load", "--only", service, "--data-dir"]);
        refused.arg(stage.temporary.path().join("none"));
        refused.env("COVE_URL", format!("http://{}", client.address())).env("COVE_TOKEN", token);
        let refused = refused.output().unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{service}: {stderr}");
        assert!(stderr.contains(word), "{service}: {stderr}");
    }
    assert!(stage.demo(&["--remove"]).1);
}

#[test]
fn what_others_made_is_left_and_what_cannot_be_made_is_said() {
    let _guard = beside_others();
    let stage = DemoStage::start();
    let client = stage.server.client();
    let prefix = client.get("/catalog/v1/config").json()["overrides"]["prefix"].clone();
    let namespaces = format!("/catalog/v1/{}/namespaces", prefix.as_str().unwrap());
    let body = json!({"namespace": ["demo"]});
    assert_eq!(post(&client, &namespaces, &body).status, 200);
    let (made, is_done) = stage.demo(&["--postgres", "mysql://app:secret@127.0.0.1/shop"]);
    assert!(is_done, "{made:#}");
    for (name, word) in [
        ("orders", "`demo` is not the demo's"),
        ("other tables", "`demo` is not the demo's"),
        ("database", "postgres://USER:PASSWORD@HOST:PORT/DATABASE"),
    ] {
        let step = step(&made, name);
        assert_eq!(step["state"], "skipped", "{made:#}");
        assert!(step["text"].as_str().unwrap().contains(word), "{step}");
    }
    assert_eq!(step(&made, "agent")["state"], "made");
    // `--remove` reports and keeps objects that it cannot remove.
    let (removed, is_done) = stage.demo(&["--remove"]);
    assert!(!is_done);
    assert_eq!(step(&removed, "tables")["state"], "skipped", "{removed:#}");
    assert_eq!(client.get(&format!("{namespaces}/demo")).status, 200);
    assert_eq!(client.get("/v1/agents").json()["agents"], json!([]));
}

#[test]
fn a_server_of_its_own_ends_with_it() {
    let _guard = beside_others();
    let temporary = temporary();
    let mut demo = command(COVE);
    demo.args(["demo", "--serve", "--json", "--http", "127.0.0.1:0"]);
    demo.env("TMPDIR", temporary.path()).stdout(Stdio::piped());
    let mut demo = demo.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let made: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(states(&made), ["made"; STEPS], "{made:#}");
    testkit::process::signal(demo.id(), "INT");
    until("the end of the demo", SOON, || match demo.try_wait().unwrap() {
        Some(status) if status.success() => Ok(()),
        Some(status) => panic!("{status}"),
        None => Err("it runs".to_owned()),
    });
    assert!(is_empty(temporary.path()), "something is left");
}
