//! `cove demo`: what it makes is read by clients of others, found by a second run, and taken away.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Scratch, Server, command, until};

use crate::shared::{finish, interpreter_with};
use crate::support::{COVE, SOON, beside_others};

/// Steps of a run that makes all.
const STEPS: usize = 12;
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

/// A server, and a directory that is its commands' place for temporary files.
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
        let said = String::from_utf8_lossy(&output.stderr);
        let document = serde_json::from_slice(&output.stdout);
        (document.unwrap_or_else(|error| panic!("{error}: {said}")), output.status.success())
    }
}

/// A directory that the user of a database may pass through.
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

#[test]
fn it_makes_a_world_once_and_takes_it_away() {
    let _guard = beside_others();
    let stage = DemoStage::start();
    let client = stage.server.client();
    // Of others, and stays.
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
    // Others read what was written.
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
    // What is there is not made again.
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
        ("database shell", "there is no tenant"),
    ] {
        let step = step(&made, name);
        assert_eq!(step["state"], "skipped", "{made:#}");
        assert!(step["text"].as_str().unwrap().contains(word), "{step}");
    }
    assert_eq!(step(&made, "agent")["state"], "made");
    // It says that it leaves something, and leaves it.
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
