//! `cove catalog`: the catalog alone, and its commands.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Server, command};

use crate::shared::COVE;

/// Command with its expected exit code and a part of its output.
pub(crate) type Row<'a> = (&'a str, i32, &'a str);

pub(crate) const REFUSED: i32 = 2;
pub(crate) const UNAVAILABLE: i32 = 125;

pub(crate) fn cove(server: &Server, typed: &str) -> Output {
    let mut command = command(COVE);
    command.arg("catalog").args(typed.split(' ')).arg("--data-dir").arg(server.data_dir());
    command.output().unwrap()
}

/// Runs commands one after the other. The expected text is on standard output if the command must
/// succeed, and on standard error otherwise; with a leading `=` it is the whole output.
pub(crate) fn check(server: &Server, rows: &[Row<'_>]) {
    for (typed, code, expected) in rows {
        let output = cove(server, typed);
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{typed}: {out}{err}");
        let text = if *code == 0 { &out } else { &err };
        match expected.strip_prefix('=') {
            Some(whole) => assert_eq!(text, whole, "{typed}"),
            None => {
                let found = text.lines().any(|line| collapsed(line).contains(&collapsed(expected)));
                assert!(found, "{typed}: {expected:?} is not in\n{text}");
            }
        }
    }
}

/// Returns a line with single spaces between its columns.
fn collapsed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn json_of(server: &Server, typed: &str) -> Value {
    let output = cove(server, &format!("{typed} --json"));
    assert_eq!(output.status.code(), Some(0), "{typed}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn namespaces_tables_and_views_are_made_shown_changed_and_dropped() {
    let server = Server::start_catalog(COVE, None);
    check(
        &server,
        &[
            ("namespace list", 0, "="),
            ("namespace create shop --property owner=sales", 0, "=created shop\n"),
            ("namespace create shop", REFUSED, "Namespace already exists: shop"),
            ("namespace create shop.eu", 0, "=created shop.eu\n"),
            (r"namespace create shop.v1\.5", 0, "created "),
            ("namespace create none.eu", REFUSED, "Namespace does not exist: none"),
            ("namespace create a..b", REFUSED, "a level of the name is empty"),
            ("namespace list", 0, "=shop\n"),
            ("namespace list shop", 0, "=shop.eu\nshop.v1\\.5\n"),
            (
                "namespace properties shop --set owner=eu --unset none",
                0,
                "=owner is set\nnone was not there\n",
            ),
            ("namespace properties shop", REFUSED, "--set"),
            ("namespace show shop", 0, "owner=eu"),
            ("table create shop.orders", REFUSED, "--column"),
            ("table create orders --column id:long", REFUSED, "its namespace is missing"),
            (
                "table create shop.orders --column id:long:required --column price:decimal(9,2) \
                 --property owner=sales --format-version 3",
                0,
                "created shop.orders at file:///",
            ),
            ("table create shop.orders --column id:long", REFUSED, "Table already exists"),
            ("table create shop.wrong --column id:longer", REFUSED, "longer"),
            (r"table create shop.v1\.5.x\.y --column id:long", 0, r"created shop.v1\.5.x\.y"),
            (r"table list shop.v1\.5", 0, "=shop.v1\\.5.x\\.y\n"),
            ("table show shop.orders", 0, "format 3"),
            ("table show shop.orders", 0, "property owner=sales"),
            ("table show shop.orders", 0, "1 id long yes"),
            ("table show shop.orders", 0, "2 price decimal(9,2)"),
            ("table show shop.none", REFUSED, "Table does not exist: shop.none"),
            ("table history shop.orders", 0, "current since snapshot parent leads here"),
            ("table properties shop.orders --set a=b --unset owner", 0, "a=b"),
            ("table history shop.orders --metadata", 0, "00001-"),
            ("table rename shop.orders shop.eu.sold", 0, "=shop.orders is shop.eu.sold now\n"),
            ("table list shop", 0, "="),
            ("view create shop.recent --sql select --column id:long", 0, "=created shop.recent\n"),
            ("view show shop.recent", 0, "spark select"),
            ("view show shop.recent", 0, "1 id long"),
            ("view properties shop.recent --set a=b", 0, "=a=b\n"),
            ("view rename shop.recent shop.latest", 0, "=shop.recent is shop.latest now\n"),
            ("view list shop", 0, "=shop.latest\n"),
            ("view drop shop.latest", 0, "=dropped shop.latest\n"),
            ("view drop shop.latest", REFUSED, "View does not exist: shop.latest"),
            ("namespace drop shop", REFUSED, "is not empty"),
            ("table drop shop.eu.sold --purge", 0, "=dropped shop.eu.sold\n"),
            ("namespace drop shop.eu", 0, "=dropped shop.eu\n"),
            ("namespace list --warehouse none", REFUSED, "Warehouse does not exist: none"),
            ("namespace list --server http://127.0.0.1:1", UNAVAILABLE, "no server listens"),
        ],
    );
}

#[test]
fn a_table_that_is_released_is_registered_again_and_json_is_the_answer_itself() {
    let server = Server::start_catalog(COVE, None);
    let body = json!({"schema": {"type": "struct", "fields": [
        {"id": 1, "name": "tags", "required": false, "type":
            {"type": "list", "element-id": 2, "element-required": false, "element": "string"}},
    ]}});
    let from = server.scratch().file("t.json", body.to_string()).display().to_string();
    let wrong = server.scratch().file("wrong.json", "[]").display().to_string();
    check(
        &server,
        &[
            ("namespace create n", 0, "created "),
            (&format!("table create n.t --from {from}"), 0, "created n.t"),
            (&format!("table create n.u --from {wrong}"), REFUSED, "not a JSON object"),
            ("table create n.u --from /nowhere", REFUSED, "read `/nowhere`"),
            ("table show n.t", 0, "1 tags list<string>"),
        ],
    );
    let table = json_of(&server, "table show n.t");
    let location = table["metadata-location"].as_str().unwrap().to_owned();
    assert_eq!(table["metadata"]["schemas"][0]["fields"][0]["name"], "tags");
    assert_eq!(json_of(&server, "table list n")["identifiers"][0]["name"], "t");
    let register = format!("table register n.t {location}");
    check(
        &server,
        &[
            ("table unregister n.t", 0, &format!("={location}\n")),
            ("table show n.t", REFUSED, "Table does not exist"),
            (&register, 0, "=n.t is registered\n"),
            (&register, REFUSED, "Table already exists"),
            (&format!("{register} --overwrite"), 0, "=n.t is registered\n"),
        ],
    );
}

#[test]
fn what_was_dropped_comes_back_and_every_change_is_told() {
    let server = Server::start_catalog(COVE, None);
    check(
        &server,
        &[
            ("namespace create n", 0, "created "),
            ("table create n.t --column id:long", 0, "created n.t"),
            ("table drop n.t", 0, "=dropped n.t\n"),
            ("undrop list", 0, "table n.t"),
            ("undrop restore none", REFUSED, ""),
        ],
    );
    let dropped = json_of(&server, "undrop list n");
    let id = dropped["dropped"][0]["id"].as_str().unwrap();
    let restore = format!("undrop restore {id} --name n.again");
    check(
        &server,
        &[
            (&restore, 0, "=n.again is back\n"),
            (&restore, REFUSED, ""),
            ("table list n", 0, "=n.again\n"),
            ("changes", 0, "1"),
            ("changes", 0, "create-namespace n"),
            ("changes --table n.t", 0, "drop-table n.t"),
            ("changes --after latest", 0, "="),
            ("changes --after x", REFUSED, "after"),
            ("table drop n.again", 0, "=dropped n.again\n"),
            (&format!("undrop purge {id}"), 0, "is gone for good"),
            (&restore, REFUSED, ""),
        ],
    );
    let changes = cove(&server, "changes --json --limit 2");
    let changes = String::from_utf8(changes.stdout).unwrap();
    let actions: Vec<Value> = changes
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["action"].take())
        .collect();
    assert_eq!(actions, ["create-namespace", "create-table"]);
}

#[test]
fn warehouses_are_made_changed_and_removed() {
    let server = Server::start_catalog(COVE, None);
    let place = server.data_dir().join("warehouse").join("lake");
    let add = format!("warehouse add lake --root file://{}", place.display());
    check(
        &server,
        &[
            ("warehouse list", 0, "main file://"),
            ("warehouse add lake", REFUSED, "--root"),
            ("warehouse add lake --root file:///elsewhere", UNAVAILABLE, "catalog.warehouse_roots"),
            (&add, 0, "=created lake\n"),
            (&add, REFUSED, "exists"),
            ("namespace create n --warehouse lake", 0, "=created n\n"),
            ("namespace list --warehouse lake", 0, "=n\n"),
            ("namespace list", 0, "="),
            ("warehouse show lake", 0, "namespaces 1"),
            ("warehouse set lake", REFUSED, "nothing to change"),
            ("warehouse set lake --status read-only", 0, "=updated lake\n"),
            ("warehouse show lake", 0, "status read-only"),
            ("namespace create m --warehouse lake", UNAVAILABLE, "read-only"),
            ("warehouse set lake --status active", 0, "=updated lake\n"),
            ("warehouse remove lake", REFUSED, ""),
            ("namespace drop n --warehouse lake", 0, "=dropped n\n"),
            ("warehouse remove lake", 0, "removed "),
            ("warehouse show lake", REFUSED, "Warehouse does not exist: lake"),
        ],
    );
}

#[test]
fn changes_are_followed_over_a_restart() {
    let mut server = Server::start_catalog(COVE, None);
    let mut follow = command(COVE);
    follow.args(["catalog", "changes", "--follow", "--limit", "3", "--json", "--data-dir"]);
    let follow = follow.arg(server.data_dir()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let follow = follow.spawn().unwrap();
    check(&server, &[("namespace create a", 0, "created "), ("namespace create b", 0, "created ")]);
    server.restart();
    check(&server, &[("namespace create c", 0, "created ")]);
    let output = follow.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let names: Vec<Value> = printed
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["namespace"].take())
        .collect();
    assert_eq!(names, [json!(["a"]), json!(["b"]), json!(["c"])]);
}

#[test]
fn clients_get_secrets_and_rights_and_lose_them() {
    let server = Server::start_catalog(COVE, None);
    let made = cove(&server, "principal add spark");
    let credential = String::from_utf8(made.stdout).unwrap();
    let (id, secret) = credential.trim().split_once(':').unwrap();
    assert!(!secret.is_empty() && String::from_utf8_lossy(&made.stderr).contains(id));
    let request = testkit::Request::new("POST", "/catalog/v1/oauth/tokens")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("grant_type=client_credentials&client_id={id}&client_secret={secret}"));
    let token = server.client().anonymous().send(&request).json();
    let token = server.scratch().file("spark.token", token["access_token"].as_str().unwrap());
    let as_spark = |typed: &str| format!("{typed} --token-file {}", token.display());
    let (add, revoke) = (
        format!("grant add client:{id} read,write --namespace n"),
        format!("grant revoke client:{id} read,write --namespace n"),
    );
    check(
        &server,
        &[
            ("namespace create n", 0, "created "),
            (&as_spark("table list n"), UNAVAILABLE, "has no right to read"),
            (&add, 0, &format!("=client:{id} may read, write\n")),
            (&as_spark("table list n"), 0, "="),
            (&as_spark("namespace drop n"), UNAVAILABLE, "has no right to manage"),
            (&as_spark("principal list"), UNAVAILABLE, "operator"),
            ("grant list", 0, &format!("client:{id} n read, write")),
            (&format!("grant add client:{id} fly"), REFUSED, "fly"),
            (&format!("grant add client:{id} read --table n.t"), REFUSED, "does not exist: n.t"),
            ("table create n.t --column id:long", 0, "created n.t"),
            (&format!("grant add client:{id} read --table n.t"), 0, "may read"),
            (&format!("grant list --principal client:{id}"), 0, "n.t read"),
            (&revoke, 0, "may not any more"),
            (&revoke, REFUSED, ""),
            ("principal list", 0, &format!("client:{id} spark what is granted")),
            (&format!("principal rotate {id} --grace 1h"), 0, &format!("{id}:")),
            (&format!("principal remove {id}"), 0, "removed "),
            (&format!("principal remove {id}"), REFUSED, "does not exist"),
            (&as_spark("table list n"), UNAVAILABLE, "does not know the token"),
        ],
    );
}

#[test]
fn the_catalog_alone_has_its_own_paths_health_and_figures_and_no_others() {
    let mut server = Server::start_catalog(COVE, None);
    let client = server.client();
    for (path, status) in [
        ("/catalog/v1/config", 200),
        ("/health/live", 200),
        ("/health/ready", 200),
        ("/metrics", 200),
        ("/v1/languages", 404),
        ("/docs", 404),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    assert_eq!(client.anonymous().get("/catalog/v1/config").status, 401);
    check(&server, &[("namespace create kept", 0, "created ")]);
    server.restart();
    check(&server, &[("namespace list", 0, "=kept\n")]);
    server.signal("TERM");
    assert!(server.wait(Duration::from_secs(30)).success());
    let off = "[catalog]\nenabled = false\n";
    let config = server.scratch().file("off.toml", off);
    let mut refused = command(COVE);
    refused.args(["catalog", "serve", "--config"]).arg(config).arg("--data-dir");
    let refused = refused.arg(server.data_dir()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("catalog.enabled"));
}
