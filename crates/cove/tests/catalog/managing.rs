//! `cove catalog`: identities, policies, the audit, functions, rows of metadata, and upkeep.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Request, Server, command};

use crate::commands::{REFUSED, UNAVAILABLE, check, cove, json_of};
use crate::shared::COVE;

/// Sends a request to the catalog without the command line.
fn ask(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let request = Request::new(method, path)
        .header("content-type", "application/json")
        .body(body.to_string());
    let answer = server.client().send(&request);
    assert!(answer.status < 300, "{method} {path}: {}", answer.text());
    if answer.text().is_empty() { Value::Null } else { answer.json() }
}

/// Adds snapshots to `n.t`, all but the last of which are old.
fn add_snapshots(server: &Server, count: i64) {
    let snapshot = |id: i64| {
        let mut it = json!({"snapshot-id": id, "sequence-number": id, "schema-id": 0,
            "timestamp-ms": 1_700_000_000_000_i64 + id, "manifest-list": format!("file:///l/{id}"),
            "summary": {"operation": "append", "added-records": "2", "total-records": "4"}});
        if id > 1 {
            it["parent-snapshot-id"] = json!(id - 1);
        }
        json!({"action": "add-snapshot", "snapshot": it})
    };
    for id in 1..=count {
        let main = json!({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch",
            "snapshot-id": id});
        let body = json!({"requirements": [], "updates": [snapshot(id), main]});
        ask(server, "POST", "/catalog/v1/main/namespaces/n/tables/t", &body);
    }
}

fn with_a_table() -> Server {
    let server = Server::start_catalog(COVE, None);
    let columns = "--column id:long --column region:string --column email:string";
    let create = format!("table create n.t {columns}");
    check(&server, &[("namespace create n", 0, "created "), (&create, 0, "created n.t")]);
    server
}

/// Creates a client, and returns its id.
fn client(server: &Server) -> String {
    let made = String::from_utf8(cove(server, "principal add spark").stdout).unwrap();
    made.split_once(':').unwrap().0.to_owned()
}

#[test]
fn roles_are_given_and_taken() {
    let server = with_a_table();
    let id = client(&server);
    check(
        &server,
        &[
            ("role list", 0, "=role  members\n"),
            (&format!("role add etl --member client:{id}"), 0, "=created role:etl\n"),
            ("role add etl", REFUSED, "etl"),
            ("role add none --member nobody", REFUSED, "a principal is one of"),
            ("role list", 0, "role:etl 1"),
            ("grant add role:etl read --namespace n", 0, "may read"),
            (
                "role give etl tenant:a tenant:b",
                0,
                "=tenant:a has role:etl\ntenant:b has role:etl\n",
            ),
            ("role show etl", 0, &format!("member client:{id}")),
            ("role show etl", 0, "member tenant:b"),
            ("role show etl", 0, "role:etl n read"),
            ("role take etl tenant:a", 0, "=tenant:a has role:etl no more\n"),
            ("role give none tenant:a", REFUSED, "none"),
            ("role give etl", REFUSED, "PRINCIPAL"),
            ("role show none", REFUSED, "Role does not exist: none"),
        ],
    );
    let role = json_of(&server, "role show etl");
    assert_eq!(role["members"], json!([format!("client:{id}"), "tenant:b"]));
    assert_eq!(role["grants"][0]["rights"], json!(["read"]));
    check(
        &server,
        &[
            ("role remove etl", 0, "=removed role:etl\n"),
            ("role remove etl", REFUSED, "etl"),
            ("grant list", 0, "=principal  to  rights\n"),
        ],
    );
}

#[test]
fn keys_are_told_once_and_are_good_until_they_are_removed() {
    let server = with_a_table();
    let id = client(&server);
    check(&server, &[(&format!("grant add client:{id} read --namespace n"), 0, "may read")]);
    let made = cove(&server, &format!("key add {id} ci --expires 90d"));
    let key = String::from_utf8(made.stdout).unwrap();
    let stderr = String::from_utf8(made.stderr).unwrap();
    assert!(key.starts_with("cove_ck_") && !stderr.contains(key.trim()), "{key} {stderr}");
    let file = server.scratch().file("ci.key", key.trim()).display().to_string();
    let listed = json_of(&server, &format!("key list {id}"));
    let key_id = listed["keys"][0]["key-id"].as_str().unwrap().to_owned();
    assert!(stderr.contains(&key_id) && listed["keys"][0].get("key").is_none(), "{listed}");
    let rotated = json_of(&server, &format!("key rotate {id} {key_id} --grace 1h"));
    let new = server.scratch().file("new.key", rotated["key"].as_str().unwrap());
    let new = new.display().to_string();
    let as_key = |file: &str| format!("table list n --token-file {file}");
    check(
        &server,
        &[
            (&format!("key list {id}"), 0, &format!("{key_id} ci")),
            (&as_key(&file), 0, "=n.t\n"),
            (&as_key(&new), 0, "=n.t\n"),
            (&format!("key list {id} --token-file {new}"), UNAVAILABLE, "operator"),
            (&format!("key add {id} ci --expires soon"), REFUSED, "soon"),
            ("key add none ci", REFUSED, "none"),
            (&format!("key remove {id} {key_id}"), 0, &format!("=removed {key_id}\n")),
            (&as_key(&new), UNAVAILABLE, "does not know the token"),
            (&format!("key remove {id} {key_id}"), REFUSED, ""),
        ],
    );
}

#[test]
fn policies_are_set_shown_and_removed() {
    let server = with_a_table();
    let filter = r#"{"type": "is-null", "term": "region"}"#;
    let filter = server.scratch().file("filter.json", filter).display().to_string();
    let set = "policy set eu --principal * --table n.t";
    check(
        &server,
        &[
            ("role add bi", 0, "created "),
            (set, REFUSED, "restricts nothing"),
            ("policy set eu --principal role:bi", REFUSED, "--table"),
            (&format!("{set} --where region"), REFUSED, "is not COLUMN=VALUE"),
            (&format!("{set} --where none=1"), REFUSED, "none"),
            (&format!("{set} --column email=blur"), REFUSED, "blur"),
            (&format!("{set} --where region=EU --filter {filter}"), REFUSED, "--filter"),
            (
                &format!("{set} --where region=EU --where id<10 --column email=sha-256-global"),
                0,
                "=* reads a part of n.t\n",
            ),
            ("policy list", 0, "eu * n.t some 1"),
            ("policy show eu", 0, "column email=sha-256-global"),
            ("policy show eu", 0, "trusted no"),
            ("policy show none", REFUSED, "Policy does not exist: none"),
            (
                &format!(
                    "policy set nulls --principal role:bi --table n.t --filter {filter} \
                          --trusted"
                ),
                0,
                "role:bi reads a part of n.t",
            ),
            ("policy list --principal role:bi", 0, "nulls role:bi n.t some 0 yes"),
        ],
    );
    let listed = |typed: &str| json_of(&server, typed)["policies"].as_array().unwrap().len();
    assert_eq!(listed("policy list --principal role:bi"), 1);
    assert_eq!((listed("policy list --table n.t"), listed("policy list --table n.u")), (2, 0));
    let policy = json_of(&server, "policy show eu");
    assert_eq!(policy["row-filter"]["type"], "and", "{policy}");
    check(
        &server,
        &[
            ("policy remove eu nulls", 0, "=removed eu\nremoved nulls\n"),
            ("policy remove eu", REFUSED, ""),
        ],
    );
}

#[test]
fn the_audit_is_shown_by_what_is_wanted_and_followed() {
    let server = with_a_table();
    let path = "/catalog/v1/main/namespaces/n/tables";
    let follow = ["catalog", "audit", "--follow", "--json", "--operation", "drop-table"];
    let mut follow = command(COVE)
        .args(follow)
        .arg("--data-dir")
        .arg(server.data_dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    check(
        &server,
        &[("table drop n.none", REFUSED, "does not exist"), ("table drop n.t", 0, "dropped ")],
    );
    let mut follow_lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let outcomes: Vec<Value> = (0..2)
        .map(|_| serde_json::from_str::<Value>(&follow_lines.next().unwrap().unwrap()).unwrap())
        .map(|mut it| it["outcome"].take())
        .collect();
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert_eq!(outcomes, ["refused", "done"]);
    check(
        &server,
        &[
            ("audit", 0, &format!("create-table done 200 {path}")),
            ("audit --since 1h --outcome refused", 0, "drop-table refused 404"),
            ("audit --operation create-namespace --limit 1", 0, "create-namespace"),
            (&format!("audit --path {path}/none"), 0, "NoSuchTableException"),
            ("audit --until 2020-01-01T00:00:00Z", 0, "="),
            ("audit --principal client:none", 0, "="),
            ("audit --outcome lost", REFUSED, "lost"),
            ("audit --since yesterday", REFUSED, "neither a time"),
        ],
    );
    let lines = cove(&server, "audit --json --limit 2").stdout;
    let lines = String::from_utf8(lines).unwrap();
    let ms = |line: &str| serde_json::from_str::<Value>(line).unwrap()["seq"].as_i64();
    let all: Vec<_> = lines.lines().map(ms).collect();
    assert!(all.len() == 2 && all[0] < all[1], "{lines}");
}

#[test]
fn functions_are_made_shown_and_removed() {
    let server = with_a_table();
    let document = json!({"format-version": 1, "doc": "adds one", "definitions": [{
        "definition-id": "int", "parameters": [{"type": "int", "name": "x"}],
        "return-type": "int", "current-version-id": 1, "function-type": "udf",
        "versions": [{"version-id": 1, "timestamp-ms": 1, "representations":
            [{"type": "sql", "dialect": "spark", "sql": "x + 1"}]}]}],
        "definition-log": [{"timestamp-ms": 1, "definition-versions":
            [{"definition-id": "int", "version-id": 1}]}]});
    let from = server.scratch().file("f.json", document.to_string()).display().to_string();
    let add = format!("function add n.add_one --from {from}");
    check(
        &server,
        &[
            ("function list n", 0, "="),
            (&add, 0, "=created n.add_one\n"),
            (&add, REFUSED, "add_one"),
            (&format!("{add} --overwrite"), 0, "=created n.add_one\n"),
            ("function list n", 0, "=n.add_one\n"),
            ("function show n.add_one", 0, "takes (x: int) -> int"),
            ("function show n.add_one", 0, "spark x + 1"),
            ("function show n.none", REFUSED, "none"),
            ("function add n.f", REFUSED, "--from"),
            ("function remove n.add_one", 0, "=dropped n.add_one\n"),
            ("function remove n.add_one", REFUSED, "add_one"),
        ],
    );
}

#[test]
fn what_is_protected_is_not_dropped_and_what_is_dropped_is_kept_as_long_as_is_said() {
    let server = with_a_table();
    check(
        &server,
        &[
            ("protection show --table n.t", 0, "=n.t is not protected\n"),
            ("protection on --table n.t", 0, "=n.t is protected\n"),
            ("table drop n.t", UNAVAILABLE, "protected"),
            ("protection show --table n.t", 0, "=n.t is protected\n"),
            ("protection off --table n.t", 0, "=n.t is not protected\n"),
            ("protection on --namespace n", 0, "=n is protected\n"),
            ("protection off --namespace n", 0, "=n is not protected\n"),
            ("protection on", REFUSED, "--table"),
            ("protection on --table n.none", REFUSED, "n.none"),
            ("retention set 36h", 0, "=dropped tables can be restored for 36 h 0 min\n"),
            ("retention show", 0, "36 h"),
            ("retention set none", 0, "=dropped tables are removed at once\n"),
            ("table drop n.t", 0, "dropped "),
            ("undrop list", 0, "=id  kind  name  dropped  goes\n"),
            ("retention reset", 0, "can be restored for"),
            ("retention set ever", REFUSED, "ever"),
        ],
    );
}

#[test]
fn what_metadata_says_is_shown_in_rows_and_as_it_was() {
    let server = with_a_table();
    add_snapshots(&server, 3);
    let changes = json_of_lines(&server, "changes --table n.t");
    let made = changes[0]["seq"].as_i64().unwrap();
    check(
        &server,
        &[
            ("table snapshots n.t", 0, "2023-11-14T22:13:20.002Z 2 1 append 2 4"),
            ("table history n.t", 0, "3 2 yes"),
            ("table refs n.t", 0, "main branch 3"),
            ("table columns n.t", 0, "2 region string"),
            (
                "table snapshots n.t --csv",
                0,
                "2023-11-14T22:13:20.001Z,1700000000001,1,,1,0,append",
            ),
            ("table refs n.t --csv --json", REFUSED, "either --csv or --json"),
            ("table refs n.none", REFUSED, "n.none"),
            (
                &format!("table snapshots n.t --as-of {made}"),
                0,
                "=at  snapshot  parent  operation  added  records\n",
            ),
            (&format!("table show n.t --as-of {made}"), 0, "snapshots 0"),
            ("table show n.t", 0, "snapshots 3"),
            ("table list n --as-of 1", 0, "="),
            (&format!("table list n --as-of {made}"), 0, "=n.t\n"),
            ("namespace list --as-of 0", 0, "="),
            ("table list n --as-of then", REFUSED, "as-of"),
            ("table files n.t", UNAVAILABLE, "outside of the warehouse"),
        ],
    );
    let rows = json_of(&server, "table snapshots n.t");
    assert_eq!(rows["rows"].as_array().unwrap().len(), 3);
    assert_eq!(rows["rows"][0]["summary"]["added-records"], "2");
}

fn json_of_lines(server: &Server, typed: &str) -> Vec<Value> {
    let output = cove(server, &format!("{typed} --json")).stdout;
    let output = String::from_utf8(output).unwrap();
    output.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn snapshots_expire_and_what_would_go_is_listed_first() {
    let server = with_a_table();
    add_snapshots(&server, 4);
    let went = "snapshot  1\nn.t    snapshot  2\nn.t    snapshot  3\n\n";
    let went = format!("table  kind      what\nn.t    {went}");
    let summary = "done: 1 of 1 tables: 3 snapshots, 0 refs, 0 files";
    check(
        &server,
        &[
            ("maintain expire-snapshots", REFUSED, "--all"),
            ("maintain expire-snapshots n.t --all", REFUSED, "--all"),
            ("maintain list", 0, "=id  asked for  state  tables  what went\n"),
            (
                "maintain expire-snapshots --all --dry-run",
                0,
                &format!("={went}{summary} would go\n"),
            ),
            ("table show n.t", 0, "snapshots 4"),
            ("maintain expire-snapshots n.t", 0, &format!("={went}{summary} went\n")),
            ("table show n.t", 0, "snapshots 1"),
            (
                "maintain clean-metadata --namespace n",
                0,
                "=done: 1 of 1 tables: 0 snapshots, 0 refs, 0 files went\n",
            ),
            ("maintain list", 0, "done 1 of 1 3 snapshots, 0 refs, 0 files (dry run)"),
            ("maintain expire-snapshots n.none", UNAVAILABLE, "1 things were not done"),
            ("maintain show mj_none", REFUSED, "mj_none"),
            ("maintain cancel mj_none", REFUSED, "mj_none"),
        ],
    );
    let detached = cove(&server, "maintain clean-metadata --all --detach");
    let id = String::from_utf8(detached.stdout).unwrap().trim().to_owned();
    check(
        &server,
        &[
            (&format!("maintain show {id} --wait"), 0, "done: 1 of 1 tables"),
            (&format!("maintain show {id}"), 0, "done: 1 of 1 tables"),
            (&format!("maintain cancel {id}"), 0, &format!("={id} is stopping\n")),
        ],
    );
    let report = json_of(&server, "maintain expire-snapshots --all");
    assert_eq!((&report["state"], &report["items"]), (&json!("done"), &json!([])), "{report}");
}

#[test]
fn jobs_that_a_kill_interrupted_are_found_and_what_is_left_is_done_by_another() {
    let mut server = with_a_table();
    add_snapshots(&server, 2);
    let path = "/catalog/management/v1/main/maintenance";
    // Two jobs run at a time. Each has many tables, so that the last one still waits.
    let names: Vec<_> =
        (0..1000).map(|it| json!({"namespace": ["n"], "name": it.to_string()})).collect();
    let body = json!({"actions": ["expire-snapshots"], "tables": names});
    let started: Vec<_> =
        (0..30).map(|_| ask(&server, "POST", path, &body)["id"].clone()).collect();
    server.restart();
    let listed = json_of(&server, "maintain list");
    let jobs = listed["jobs"].as_array().unwrap();
    for id in &started {
        let job = jobs.iter().find(|it| it["id"] == *id).unwrap_or_else(|| panic!("{id} is lost"));
        assert!(matches!(job["state"].as_str(), Some("done" | "interrupted")), "{job}");
    }
    let last = started.last().unwrap().as_str().unwrap();
    check(
        &server,
        &[
            (&format!("maintain show {last}"), 0, "interrupted: 0 of 1000 tables"),
            (&format!("maintain show {last} --wait"), UNAVAILABLE, "is interrupted"),
            (
                "maintain expire-snapshots n.t",
                0,
                "done: 1 of 1 tables: 1 snapshot, 0 refs, 0 files went",
            ),
        ],
    );
}
