//! Every back end of the queue has the same guarantees.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use testkit::{Client, Postgres, Redis, Server, install_packages, process, until};

use crate::asynchronous::{
    SOON, assert_error, delete, ended, figures, id, post_request, record, set_paused, submit,
    submit_all, wait_for_state,
};
use crate::support::{beside_others, held, serve_with, shell, wait_for_sleep, wake};

/// Settings with a short lease, after which another server's executions are taken over.
const LEASE: &str = "jobs.lease_s = 3\n";

fn postgres(database: &str) -> String {
    format!("{LEASE}[store]\nurl = {database:?}\n")
}

fn redis(server: &Redis) -> String {
    format!("{LEASE}jobs.redis = {:?}\n", server.url())
}

/// Checks all operations of a caller, with a server that is killed in between. The running program
/// sleeps for `seconds`, which no other test uses.
fn check(backend: &str, seconds: &str, config: &str) {
    let mut server = serve_with(config);
    // A server with its own store notices at once; others when the lease has expired.
    server.expect_log("executions were cut off by the server's end");
    server.expect_log("its worker was lost; it is queued again");
    let client = server.client();
    let stats = figures(&client);
    assert_eq!((&stats["backend"], &stats["paused"]), (&json!(backend), &json!(false)));

    let done = submit(&client, &shell("echo done"));
    let result = ended(&client, &done);
    assert_eq!((&result["state"], &result["attempts"]), (&json!("finished"), &json!(1)));
    assert_eq!(result["result"]["stdout"], "done\n", "{backend}");

    let keyed = |request: &Value| {
        let request = post_request("/v1/executions", request);
        client.send(&request.header("idempotency-key", "key"))
    };
    let first = keyed(&shell("echo once"));
    assert_eq!(first.status, 202, "{}", first.text());
    let once = id(&first.json());
    assert_eq!(id(&keyed(&shell("echo once")).json()), once, "{backend}");
    let other = keyed(&shell("echo other"));
    assert_error(&other, 409, "conflict", Some("idempotency-key"));
    ended(&client, &once);

    let running = submit(&client, &shell("sleep 64401"));
    wait_for_state(&client, &running, "running");
    assert_eq!(delete(&client, &running).status, 200);
    wait_for_state(&client, &running, "cancelled");
    assert_error(&delete(&client, &running), 409, "conflict", None);

    set_paused(&client, true);
    let waiting = submit_all(&client, &[shell("echo 0"), shell("echo 1"), shell("echo 2")]);
    assert_eq!(delete(&client, &waiting[1]).json()["state"], "cancelled", "{backend}");
    let stats = figures(&client);
    assert_eq!((&stats["queued"], &stats["running"]), (&json!(2), &json!(0)), "{stats}");
    let newest_first =
        [&waiting[2], &waiting[1], &waiting[0], &running, &once, &done].map(String::as_str);
    assert_eq!(listed(&client, ""), newest_first, "{backend}");
    assert_eq!(listed(&client, "state=queued"), [&*waiting[2], &*waiting[0]], "{backend}");
    assert_eq!(listed(&client, &format!("cursor={running}&limit=1")), [&*once], "{backend}");

    // Waiting and ended executions are kept for the next server.
    server.restart();
    let client = server.client();
    assert_eq!(figures(&client)["paused"], true, "{backend}");
    assert_eq!(listed(&client, ""), newest_first, "{backend}");
    assert_eq!(record(&client, &done), result, "{backend}");
    set_paused(&client, false);
    for (id, stdout) in [(&waiting[0], "0\n"), (&waiting[2], "2\n")] {
        assert_eq!(ended(&client, id)["result"]["stdout"], stdout, "{backend}");
    }

    // A running execution is run again, and ends once.
    let lost = submit(&client, &held(&format!("sleep {seconds}; echo end")));
    wait_for_sleep(seconds);
    server.restart();
    wake(seconds);
    let client = server.client();
    let end = ended(&client, &lost);
    assert_eq!((&end["state"], &end["attempts"]), (&json!("finished"), &json!(2)), "{end}");
    assert_eq!(end["result"]["stdout"], "end\n", "{backend}");
    let stats = figures(&client);
    assert_eq!((&stats["finished"], &stats["cancelled"]), (&json!(5), &json!(2)), "{stats}");
}

/// Returns the ids of a page of a list.
fn listed(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("/v1/executions?{query}"));
    assert_eq!(page.status, 200, "{}", page.text());
    page.json()["executions"].as_array().unwrap().iter().map(id).collect()
}

#[test]
fn promises_are_kept_in_the_embedded_store() {
    let _guard = beside_others();
    check("sqlite", "64307", LEASE);
}

#[test]
fn promises_are_kept_in_postgresql() {
    let _guard = beside_others();
    let database = Postgres::shared();
    check("postgresql", "64310", &postgres(&database.database()));
}

#[test]
fn promises_are_kept_in_redis() {
    let _guard = beside_others();
    let server = Redis::start();
    check("redis", "64311", &redis(&server));
}

/// Returns the servers that run a `sleep` of this many seconds.
fn busy<'a>(servers: &[&'a Server], seconds: &str) -> Vec<&'a Server> {
    let sleeps = process::named("sleep", seconds);
    let is_busy = |server: &&&Server| {
        let family = process::descendants(server.pid());
        sleeps.iter().any(|sleep| family.contains(sleep))
    };
    servers.iter().filter(is_busy).copied().collect()
}

/// Checks two servers on one queue: both work, and one takes over from the other.
fn check_two(config: &str, marker: &str) {
    let config = format!("running_max = 1\n{config}");
    let mut one = serve_with(&config);
    let mut two = one.start_beside(&format!("[executions]\n{config}"));
    two.expect_log("its worker was lost; it is queued again");
    one.expect_log("its worker was lost; it is queued again");
    let script = format!("sleep {marker}; echo done");
    let ids = submit_all(&one.client(), &[held(&script), held(&script)]);
    until("both to work", SOON, || {
        let busy = busy(&[&one, &two], marker).len();
        if busy == 2 { Ok(()) } else { Err(format!("{busy} busy")) }
    });
    one.signal("KILL");
    assert!(!one.wait(SOON).success());
    // The program of the killed server ends; the other server runs both jobs in turn.
    until("one of them to be gone", SOON, || match process::named("sleep", marker).len() {
        1 => Ok(()),
        count => Err(format!("{count} run")),
    });
    let client = two.client();
    wake(marker);
    wake(marker);
    let mut attempts: Vec<u64> = ids
        .iter()
        .map(|id| {
            let record = ended(&client, id);
            assert_eq!(record["result"]["stdout"], "done\n", "{record}");
            record["attempts"].as_u64().unwrap()
        })
        .collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2]);
    assert_eq!(figures(&client)["finished"], 2);
}

#[test]
fn two_servers_share_the_work_in_postgresql() {
    let _guard = beside_others();
    let database = Postgres::shared();
    check_two(&postgres(&database.database()), "64308");
}

#[test]
fn two_servers_share_the_work_in_redis() {
    let _guard = beside_others();
    let server = Redis::start();
    check_two(&redis(&server), "64309");
}

/// Checks that grants of an execution apply on the server that runs it, whichever accepted it.
fn check_grants(config: &str, marker: &str) {
    let config = format!("running_max = 1\n{config}");
    let one = serve_with(&config);
    let busy_one = submit(&one.client(), &held(&format!("sleep {marker}")));
    wait_for_sleep(marker);
    let two = one.start_beside(&format!("[executions]\n{config}"));
    let mut request = shell("echo $HTTP_PROXY");
    request["grants"] = json!([{"kind": "http", "rules": [{"hosts": ["example.com"]}]}]);
    let record = ended(&one.client(), &submit(&one.client(), &request));
    assert_eq!(
        (&record["state"], &record["attempts"]),
        (&json!("finished"), &json!(1)),
        "{record}"
    );
    assert_eq!(record["result"]["stdout"], "http://127.0.0.1:3128\n", "{record}");
    assert_eq!(busy(&[&one], marker).len(), 1, "the other one ran it");
    wake(marker);
    ended(&two.client(), &busy_one);
}

#[test]
fn grants_hold_on_whichever_server_runs_an_execution() {
    let _guard = beside_others();
    let database = Postgres::shared();
    check_grants(&postgres(&database.database()), "64314");
}

/// Checks that a server whose clock is ten minutes ahead does not regard a held lease as expired.
fn check_ahead(config: &str, marker: &str) {
    let config = format!("running_max = 1\n{config}");
    let one = serve_with(&config);
    let held = submit(&one.client(), &held(&format!("sleep {marker}; echo done")));
    wait_for_sleep(marker);
    let two = one.start_beside_at(&format!("[executions]\n{config}"), "+10m");
    // Longer than a lease; meanwhile the server that runs it searches for lost executions each
    // second.
    let other = submit(&two.client(), &shell("sleep 5; echo other"));
    assert_eq!(ended(&two.client(), &other)["result"]["stdout"], "other\n");
    wake(marker);
    for client in [one.client(), two.client()] {
        let record = ended(&client, &held);
        assert_eq!(
            (&record["attempts"], &record["result"]["stdout"]),
            (&json!(1), &json!("done\n"))
        );
    }
}

#[test]
fn a_server_whose_clock_is_ahead_takes_no_job_from_another_in_postgresql() {
    let _guard = beside_others();
    let database = Postgres::shared();
    check_ahead(&postgres(&database.database()), "64312");
}

#[test]
fn a_server_whose_clock_is_ahead_takes_no_job_from_another_in_redis() {
    let _guard = beside_others();
    let server = Redis::start();
    check_ahead(&redis(&server), "64313");
}

/// Returns the directory of BullMQ, installed once below the target directory; see `compat/bullmq`.
fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/bullmq");
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-bullmq");
        install_packages(&source, project, &["requests.mjs"])
    })
}

#[test]
fn a_producer_of_bullmq_gets_results_and_reasons() {
    let _guard = beside_others();
    let redis_server = Redis::start();
    let mut server = serve_with(&redis(&redis_server));
    // A foreign producer's invalid job is kept for inspection.
    GIVEN_UP.iter().for_each(|text| server.expect_log(text));
    check_producer(&redis_server, || server.log());
}

/// Log lines of a server that runs the jobs of [`check_producer`].
pub(crate) const GIVEN_UP: [&str; 2] =
    ["given up; `cove queue retry`", "failed; it is queued again"];

/// Sends executions with BullMQ, and checks the results.
pub(crate) fn check_producer(queue: &Redis, log: impl Fn() -> String) {
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "node", "requests.mjs"])
        .arg(queue.address().port().to_string())
        .current_dir(project())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{}", log());
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    for (name, verdict, stdout) in
        [("python", "OK", "42\n"), ("argv", "RE", "out\n"), ("late", "OK", "late\n")]
    {
        let result = &answers[name]["result"];
        assert_eq!((&result["verdict"], &result["stdout"]), (&json!(verdict), &json!(stdout)));
    }
    for (name, says) in
        [("cobol", "language"), ("unknown", "colour"), ("list", "request"), ("limit", "cpu_ms")]
    {
        let failed = answers[name]["failed"].as_str().unwrap_or_default();
        assert!(failed.contains(says), "{name}: {}", answers[name]);
    }
}

#[test]
fn a_server_whose_queue_does_not_answer_is_not_ready() {
    let _guard = beside_others();
    let queue = Redis::start();
    let server = serve_with(&redis(&queue));
    let client = server.client().anonymous();
    assert_eq!(client.get("/health/ready").status, 200);
    queue.signal("STOP");
    until("readiness to notice", SOON, || {
        let response = client.get("/health/ready");
        let text = response.text();
        if response.status == 503 && text.contains("queue: ") { Ok(()) } else { Err(text) }
    });
    assert_eq!(client.get("/health/live").status, 200);
    queue.signal("CONT");
    until("readiness to come back", SOON, || {
        let response = client.get("/health/ready");
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    });
}
