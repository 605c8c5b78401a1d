//! This version opens the data directory of an earlier one: all objects exist and are usable, and
//! the tables of the store are migrated. It also opens a directory to which a later version has
//! added, but not one from which a later version has removed something.
//!
//! `fixtures/make-upgrade-fixture.sh` creates the directories. Tables refer to their files by path,
//! so the server has its directory at `/mnt`, in a separate mount namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Scratch, Server};

use crate::asynchronous::{ended, figures, post, set_paused, submit};
use crate::sessions_support::{Sessions, ok, probe};
use crate::support::{COVE, SOON, beside_others, shell};

/// Directories that earlier versions wrote, with the tables that have changed since: the service,
/// and its version there. `stop30` is the commit 0fe5a6a8, before the first release.
const FIXTURES: &[(&str, &[(&str, i64)])] = &[("upgrade-stop30", &[("idempotency", 0)])];

/// Configuration of the fixture's server, except that results are kept however old the fixture is,
/// and that health checks are off, which would log missing servers.
const CONFIG: &str = "\
sandbox.warm_runtimes = false
catalog.root = 'file:///mnt/data/warehouse/main'
[sessions]
disk_bytes = 16777216
disk_inodes = 1024
[bouncer.health]
interval_s = 0
[executions.jobs]
keep_s = 3153600000
";

/// Unpacks a fixture.
fn unpack(name: &str, scratch: &Scratch) {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let archive = format!("{fixtures}/{name}.tar.gz");
    let unpacked = Command::new("tar").args(["-xzSf", &archive, "-C"]).arg(scratch.path()).output();
    let unpacked = unpacked.unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
}

/// Script that mounts the parent of the data directory at `/mnt`, and runs the server.
const AT_MNT: &str = r#"#!/bin/sh
for argument; do
    if [ "$before" = --data-dir ]; then above=$(dirname "$argument"); fi
    before=$argument
done
exec unshare -m sh -c 'mount --bind "$0" /mnt && exec "$@"' "$above" COVE "$@"
"#;

/// Creates a program that runs the server with this mount. Returns its path.
fn binary_at_mnt(scratch: &Scratch) -> String {
    let path = scratch.file("cove-at-mnt", AT_MNT.replace("COVE", COVE));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Runs statements on a store, and returns their rows.
fn sql(data_dir: &Path, statements: &str) -> Value {
    let program = "import json, sqlite3, sys\n\
        store = sqlite3.connect(sys.argv[1])\n\
        rows = store.execute(sys.argv[2]).fetchall()\n\
        store.commit()\n\
        print(json.dumps(rows))";
    let mut python = Command::new("python3");
    let output = python.args(["-c", program]).arg(data_dir.join("cove.sqlite")).arg(statements);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the version of a service's tables.
fn version(data_dir: &Path, service: &str) -> i64 {
    let of_service = "SELECT COALESCE(MAX(version), 0) FROM cove_migrations WHERE service";
    let rows = sql(data_dir, &format!("{of_service} = '{service}'"));
    rows[0][0].as_i64().unwrap()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn what_an_earlier_version_kept_is_there_and_can_be_worked_with() {
    let _guard = beside_others();
    for (name, changed) in FIXTURES {
        let beside = Scratch::new();
        let server = Server::start_on(&binary_at_mnt(&beside), CONFIG, |scratch| {
            unpack(name, scratch);
            for (service, before) in *changed {
                let data_dir = scratch.path().join("data");
                assert_eq!(version(&data_dir, service), *before, "{name}: {service}");
            }
        });
        check_executions(&server);
        check_sessions(&server);
        check_catalog(&server);
        check_tokens_and_tenants(&server);
        for (service, before) in *changed {
            let now = version(&server.data_dir(), service);
            assert!(now > *before, "{name}: {service} is at {now}");
        }
    }
}

fn check_executions(server: &Server) {
    let client = server.client();
    let listed = ok(&client.get("/v1/executions"));
    let listed = listed["executions"].as_array().unwrap();
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert_eq!(figures(&client)["paused"], true);
    set_paused(&client, false);
    for execution in listed {
        let label = execution["label"].as_str().unwrap();
        let expected = label.strip_prefix("ended ").unwrap_or("waited");
        let result = ended(&client, execution["id"].as_str().unwrap());
        assert_eq!(result["result"]["stdout"], format!("{expected}\n"), "{result}");
    }
    let id = submit(&client, &shell("echo new"));
    assert_eq!(ended(&client, &id)["result"]["stdout"], "new\n");
}

fn check_sessions(server: &Server) {
    let sessions = Sessions::from(server);
    let session = text(&server.scratch().path().join("session"));
    assert_eq!(sessions.record(&session)["state"], "stopped");
    sessions.did(&session, "resume");
    assert_eq!(sessions.read(&session, "note.txt").text(), "kept\n");
    assert_eq!(sessions.out(&session, "echo more >> note.txt && cat note.txt"), "kept\nmore\n");
    let new = sessions.create(&json!({"agent": "echo"}));
    let answer = sessions.ask(&new, "hello");
    assert!(answer.contains("hello"), "{answer}");
}

fn check_catalog(server: &Server) {
    let client = server.client();
    let loaded = ok(&client.get("/catalog/v1/main/namespaces/shop/tables/orders"));
    let location = loaded["metadata-location"].as_str().unwrap();
    let file = location.strip_prefix("file:///mnt/").unwrap();
    assert!(server.scratch().path().join(file).is_file(), "{location}");
    let updates = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"later": "there"}}
    ]});
    ok(&post(&client, "/catalog/v1/main/namespaces/shop/tables/orders", &updates));
    let view = ok(&client.get("/catalog/v1/main/namespaces/shop/views/recent"));
    assert!(view.to_string().contains("select id from shop.orders"), "{view}");
    let management = "/catalog/management/v1";
    let policies = ok(&client.get(&format!("{management}/main/policies")));
    assert_eq!(policies["policies"][0]["name"], "eu-only", "{policies}");
    let audit = ok(&client.get(&format!("{management}/audit?pageSize=100")));
    assert!(audit["lines"].as_array().unwrap().len() > 3, "{audit}");
}

fn check_tokens_and_tenants(server: &Server) {
    let token = text(&server.scratch().path().join("other-token"));
    let reader = Client::new(server.client().address(), Some(token));
    let who = ok(&reader.get("/v1/whoami"));
    assert_eq!((&who["name"], &who["tenant"]), (&json!("reader"), &json!("team")), "{who}");
    assert_eq!(reader.get("/v1/agents").status, 403);
    let tenant = ok(&server.client().get("/v1/tenants/shop"));
    assert_eq!(tenant["spec"]["users"][0]["name"], "app", "{tenant}");
}

/// A later version has added to the store, and then this version is used again.
#[test]
fn a_store_that_a_later_version_has_added_to_is_worked_with() {
    let _guard = beside_others();
    let mut server = Server::start_with(COVE, &[], Some(CONFIG));
    server.signal("TERM");
    assert!(server.wait(SOON).success());
    let later = "SELECT service, MAX(version) + 1 FROM cove_migrations GROUP BY service";
    sql(&server.data_dir(), &format!("INSERT INTO cove_migrations {later}"));
    sql(&server.data_dir(), "ALTER TABLE agents ADD COLUMN later TEXT");
    let before = version(&server.data_dir(), "sessions");
    server.restart();
    let client = server.client();
    let id = submit(&client, &shell("echo gone back"));
    assert_eq!(ended(&client, &id)["result"]["stdout"], "gone back\n");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("later"));
    let session = sessions.create(&json!({"agent": "later"}));
    assert_eq!(sessions.out(&session, "echo $((6 * 7))"), "42\n");
    assert_eq!(version(&server.data_dir(), "sessions"), before);
}

#[test]
fn a_store_that_a_later_version_has_removed_from_is_refused_and_stays_as_it_is() {
    let _guard = beside_others();
    for (name, _) in FIXTURES {
        for service in ["sessions", "executions", "catalog"] {
            let scratch = Scratch::new();
            unpack(name, &scratch);
            let data_dir = scratch.path().join("data");
            sql(&data_dir, &format!("INSERT INTO cove_migrations VALUES ('{service}', 999)"));
            let floors =
                "cove_migration_floors (service TEXT NOT NULL PRIMARY KEY, version BIGINT)";
            sql(&data_dir, &format!("CREATE TABLE {floors}"));
            sql(&data_dir, &format!("INSERT INTO cove_migration_floors VALUES ('{service}', 998)"));
            let mut serve = testkit::command(COVE);
            serve.args(["serve", "--http", "127.0.0.1:0", "--bouncer", "127.0.0.1:0"]);
            serve.args(["--bouncer-mysql", "127.0.0.1:0", "--data-dir"]).arg(&data_dir);
            serve.arg("--config").arg(scratch.file("cove.toml", CONFIG));
            let output = serve.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let expected =
                format!("the store has version 999 of `{service}`, this version of cove");
            assert_eq!(output.status.code(), Some(1), "{service}: {stderr}");
            assert!(stderr.contains(&expected), "{service}: {stderr}");
            assert_eq!(version(&data_dir, service), 999);
        }
    }
}
