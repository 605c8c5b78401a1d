//! Early rejection of overload and its end; a client that disconnects ends its execution.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Client, Response, process, until};

use crate::asynchronous::{ended, submit};
use crate::support::{SOON, alone_on_host, beside_others, run, serve, serve_with, shell, warm_up};

/// A run must end within 100 ms after its client; the rest is time for this test to notice.
const KILLED: Duration = Duration::from_millis(400);

/// Starts a sleeping program with an identifiable argument, and waits until it runs.
fn start_sleeping(client: &Client, marker: &str) -> TcpStream {
    let connection = open(client, &shell(&format!("sleep {marker}; exit 0")));
    wait_for(marker, true, SOON);
    connection
}

fn open(client: &Client, request: &Value) -> TcpStream {
    client.open(&client.execution(request)).expect("send a request")
}

/// Waits until processes with `marker` in their command line exist, or until none does.
fn wait_for(marker: &str, present: bool, limit: Duration) {
    until(&format!("processes {marker} present: {present}"), limit, || {
        let found = process::with_marker(marker);
        if found.is_empty() != present { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

fn assert_refused(response: &Response, status: u16, code: &str) {
    assert_eq!(response.status, status, "{}", response.text());
    let body = response.json();
    assert_eq!(body["error"]["code"], code, "{body}");
    assert_eq!(body["error"]["retry"], true, "{body}");
    let wait = response.header("retry-after").and_then(|value| value.parse::<u32>().ok());
    assert!(
        wait.is_some_and(|wait| wait >= 1),
        "retry-after: {:?}",
        response.header("retry-after")
    );
}

/// Returns the number of waiting requests, from the metrics.
fn waiting(client: &Client) -> Option<u64> {
    let text = client.get("/metrics").text();
    let line = text.lines().find(|line| line.starts_with("cove_executions_waiting"))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn wait_for_waiting(client: &Client, count: u64) {
    until(&format!("{count} waiting"), SOON, || match waiting(client) {
        Some(now) if now == count => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_full_queue_refuses_and_recovers() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\nqueue_max = 2\nqueue_max_per_tenant = 2\n");
    let client = server.client();
    let running = start_sleeping(&client, "62001");
    let first = open(&client, &shell("sleep 62002"));
    let second = open(&client, &shell("sleep 62002"));
    wait_for_waiting(&client, 2);
    let refused = client.run(&shell("true"));
    assert!(refused.status == 503 || refused.status == 429, "{}", refused.text());
    let code = if refused.status == 503 { "overloaded" } else { "too_many_requests" };
    assert_refused(&refused, refused.status, code);
    drop((running, first, second));
    wait_for("62001", false, SOON);
    wait_for("62002", false, SOON);
    until("room again", SOON, || {
        let response = client.run(&shell("echo again"));
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    });
}

#[test]
fn the_whole_queue_is_refused_with_503() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\nqueue_max = 1\nqueue_max_per_tenant = 9\n");
    let client = server.client();
    let running = start_sleeping(&client, "62003");
    let queued = open(&client, &shell("true"));
    wait_for_waiting(&client, 1);
    assert_refused(&client.run(&shell("true")), 503, "overloaded");
    drop((running, queued));
    wait_for("62003", false, SOON);
}

#[test]
fn one_caller_can_not_fill_the_queue_alone() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\nqueue_max = 9\nqueue_max_per_tenant = 1\n");
    let client = server.client();
    let running = start_sleeping(&client, "62004");
    let queued = open(&client, &shell("true"));
    wait_for_waiting(&client, 1);
    assert_refused(&client.run(&shell("true")), 429, "too_many_requests");
    drop((running, queued));
    wait_for("62004", false, SOON);
}

#[test]
fn a_job_does_not_wait_for_another_token_s_crowd() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\nqueue_max = 12\nqueue_max_per_tenant = 12\n");
    let client = server.client();
    let (one, two) = (server.other_client("one", &[]), server.other_client("two", &[]));
    let running = start_sleeping(&one, "62005");
    let first = open(&one, &shell("sleep 62006; exit 0"));
    wait_for_waiting(&client, 1);
    let crowd: Vec<_> = (1..12).map(|_| open(&one, &shell("sleep 62007; exit 0"))).collect();
    wait_for_waiting(&client, 12);
    // Synchronous requests of other callers are rejected; a job is accepted.
    assert_refused(&two.run(&shell("true")), 503, "overloaded");
    let job = submit(&two, &shell("echo turn"));
    wait_for_waiting(&client, 13);
    drop(running);
    wait_for("62006", true, SOON);
    // One of the crowd had its turn; the job is next, and the others would run for very long.
    drop(first);
    let record = ended(&two, &job);
    assert_eq!(record["result"]["stdout"], "turn\n", "{record}");
    wait_for("62007", true, SOON);
    drop(crowd);
    wait_for("62007", false, SOON);
}

#[test]
fn a_client_that_leaves_has_its_run_killed() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for round in 0..5 {
        let marker = format!("6201{round}");
        // Different states of the program: sleeping, ignoring signals, flooding, forking,
        // compiling.
        let script = match round {
            0 => format!("sleep {marker}"),
            1 => format!("trap '' TERM INT HUP PIPE; sleep {marker}; sleep {marker}"),
            2 => format!("sleep {marker} & while :; do echo x; sleep 0.001; done"),
            3 => format!("while :; do sleep {marker} & sleep 0.05; done"),
            _ => format!("setsid sleep {marker} & sleep {marker}"),
        };
        let connection = open(&client, &shell(&script));
        wait_for(&marker, true, SOON);
        drop(connection);
        wait_for(&marker, false, KILLED);
    }
    assert_eq!(run(&client, &shell("echo fine"))["stdout"], "fine\n");
}

#[test]
fn a_client_that_leaves_the_queue_never_runs() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\n");
    let client = server.client();
    let running = start_sleeping(&client, "62021");
    let gives_up = open(&client, &shell("sleep 62022"));
    wait_for_waiting(&client, 1);
    drop(gives_up);
    wait_for_waiting(&client, 0);
    drop(running);
    assert_eq!(run(&client, &shell("echo next"))["stdout"], "next\n");
    assert_eq!(process::with_marker("62022"), Vec::<u32>::new());
}

#[test]
fn memory_limits_of_what_runs_never_exceed_the_budget() {
    let _guard = beside_others();
    let server = serve_with("running_max = 4\nmemory_budget_bytes = 419430400\n");
    let client = server.client();
    let too_much = client.run(&json!({"argv": ["true"], "limits": {"memory_bytes": 500 << 20}}));
    assert_eq!(too_much.status, 400, "{}", too_much.text());
    assert_eq!(too_much.json()["error"]["field"], "limits.memory_bytes");
    let request = |marker: &str, mebibytes: u64| {
        json!({"argv": ["/bin/sh", "-c", format!("sleep {marker}")],
            "limits": {"memory_bytes": mebibytes << 20}})
    };
    let large = open(&client, &request("62031", 300));
    wait_for("62031", true, SOON);
    let waits = open(&client, &request("62032", 300));
    wait_for_waiting(&client, 1);
    assert_eq!(process::with_marker("62032"), Vec::<u32>::new());
    drop(large);
    wait_for("62032", true, SOON);
    drop(waits);
    wait_for("62032", false, SOON);
}

#[test]
fn a_flood_is_answered_and_leaves_the_server_as_it_was() {
    let _guard = alone_on_host();
    let server = serve_with("queue_max = 16\nqueue_max_per_tenant = 16\n");
    let client = server.client();
    warm_up(&client);
    let descriptors = process::descriptors(server.pid());
    let (done, refused) = thread::scope(|scope| {
        let flood = || {
            let mut counts = (0, 0);
            for _ in 0..8 {
                let response = client.run(&json!({"argv": ["echo", "here"]}));
                match response.status {
                    200 => {
                        assert_eq!(response.json()["stdout"], "here\n", "{}", response.text());
                        counts.0 += 1;
                    }
                    503 | 429 => {
                        assert!(response.header("retry-after").is_some());
                        counts.1 += 1;
                    }
                    other => panic!("{other} {}", response.text()),
                }
            }
            counts
        };
        let clients: Vec<_> = (0..48).map(|_| scope.spawn(flood)).collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert_eq!(done + refused, 48 * 8);
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    let resident = process::resident_bytes(server.pid());
    assert!(resident < 128 << 20, "the server has {resident} bytes");
    until("descriptors as before", SOON, || {
        let now = process::descriptors(server.pid());
        if now <= descriptors { Ok(()) } else { Err(format!("{descriptors} before, {now} now")) }
    });
    assert_eq!(run(&client, &shell("echo fine"))["stdout"], "fine\n");
}
