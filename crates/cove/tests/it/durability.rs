//! An accepted execution ends exactly once, with any process killed in between.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Receiver, Server, TAKEN, process, until};

use crate::asynchronous::{
    SOON, assert_error, ended, figures, path, post, record, set_paused, submit, submit_all,
    wait_for_state,
};
use crate::support::{
    COVE, beside_others, held, serve_with, shell, wait_for_log, wait_for_program, wait_for_sleep,
    wake,
};
use crate::webhooks::LOOPBACK;

/// Number of jobs of the test that kills the server.
const JOBS: usize = 1_000;
/// Numbers of ended jobs at which it is killed.
const KILLED_AT: [u64; 3] = [150, 400, 700];
/// Time for all jobs on a busy machine.
const DRAINED: Duration = Duration::from_secs(120);

/// Log line of a server that finds executions of its killed predecessor.
const CUT_OFF: &str = "executions were cut off by the server's end";

/// Waits until this many jobs have ended, all as expected.
fn wait_for_finished(server: &Server, count: u64) {
    let client = server.client();
    until(&format!("{count} results"), DRAINED, || {
        let figures = figures(&client);
        let finished = figures["finished"].as_u64().unwrap();
        if finished >= count { Ok(()) } else { Err(figures.to_string()) }
    });
}

#[test]
fn three_kills_lose_and_double_nothing() {
    let _guard = beside_others();
    let receiver = Receiver::start(|_| TAKEN);
    // One attempt more than there are kills, so that no job can run out of attempts.
    let mut server = serve_with(&format!("{LOOPBACK}jobs.attempts_max = 4\n"));
    server.expect_log(CUT_OFF);
    let client = server.client();
    set_paused(&client, true);
    let mut ids = Vec::new();
    for batch in 0..JOBS / 100 {
        let requests: Vec<Value> = (0..100)
            .map(|number| {
                let mut request = shell(&format!("echo job {}", batch * 100 + number));
                request["webhook"] = json!({"url": receiver.url()});
                request
            })
            .collect();
        ids.extend(submit_all(&client, &requests));
    }
    set_paused(&client, false);
    for killed_at in KILLED_AT {
        wait_for_finished(&server, killed_at);
        let left = figures(&server.client());
        assert!(left["queued"].as_u64().unwrap() > 0, "there was nothing left to lose: {left}");
        server.restart();
    }
    wait_for_finished(&server, JOBS as u64);
    let client = server.client();
    let stats = figures(&client);
    for (figure, count) in
        [("finished", JOBS), ("queued", 0), ("running", 0), ("dead", 0), ("cancelled", 0)]
    {
        assert_eq!(stats[figure], count, "{stats}");
    }
    let mut results = HashMap::new();
    let mut again = 0;
    for (number, id) in ids.iter().enumerate() {
        let record = record(&client, id);
        assert_eq!(record["state"], "finished", "{record}");
        assert_eq!(record["result"]["stdout"], format!("job {number}\n"), "{record}");
        let attempts = record["attempts"].as_u64().unwrap();
        assert!((1..=4).contains(&attempts), "{record}");
        again += u64::from(attempts > 1);
        results.insert(id.clone(), record);
    }
    assert_eq!(results.len(), JOBS);
    // Only a few ran at each kill: the server's places, at most.
    assert!(again <= 3 * 16, "{again} ran more than once");
    until("every end to be told", DRAINED, || {
        let mut announced: Vec<String> = receiver
            .delivered()
            .iter()
            .map(|delivered| delivered.header("webhook-id").to_owned())
            .collect();
        announced.sort();
        announced.dedup();
        if announced.len() == JOBS { Ok(()) } else { Err(announced.len().to_string()) }
    });
    // If the server crashes before it records the delivery, an event may be sent twice; a second
    // terminal event is never sent.
    for delivered in receiver.delivered() {
        assert_eq!(delivered.json(), results[delivered.header("webhook-id")]);
    }
}

#[test]
fn what_ran_when_the_server_died_runs_again() {
    let _guard = beside_others();
    let mut server = serve_with("");
    server.expect_log(CUT_OFF);
    let client = server.client();
    let id = submit(&client, &held("echo begun; sleep 64303; echo end"));
    let mut events = client.events(&format!("{}/events", path(&id))).unwrap();
    let seen = events.by_ref().find(|event| event.name == "stdout").unwrap();
    let last: u64 = seen.id.parse().unwrap();
    server.restart();
    let client = server.client();
    wake("64303");
    // A client that reconnects with its last event number receives the second attempt, with higher
    // ones.
    let target = format!("{}/events?after={last}", path(&id));
    let events: Vec<Value> = client.events(&target).unwrap().map(|event| event.data).collect();
    let started = events.iter().find(|event| event["type"] == "started").unwrap();
    assert_eq!(started["attempt"], 2);
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(numbers[0] > last && numbers.is_sorted(), "{numbers:?}");
    assert_eq!(events.last().unwrap()["type"], "verdict");
    let record = ended(&client, &id);
    assert_eq!((&record["attempts"], &record["state"]), (&json!(2), &json!("finished")));
    assert_eq!(record["result"]["stdout"], "begun\nend\n");
    assert_eq!(figures(&client)["finished"], 1);
}

#[test]
fn what_kills_the_server_each_time_ends_as_a_dead_letter() {
    let _guard = beside_others();
    let mut server = serve_with("");
    server.expect_log(CUT_OFF);
    let id = submit(&server.client(), &shell("sleep 64302"));
    for _ in 0..2 {
        wait_for_program("64302");
        server.restart();
    }
    let client = server.client();
    let dead = ended(&client, &id);
    assert_eq!((&dead["state"], &dead["attempts"]), (&json!("dead"), &json!(2)), "{dead}");
    assert!(dead["message"].is_string(), "{dead}");
    assert_eq!(figures(&client)["dead"], 1);
    // The owner may retry the execution, with a new count of attempts.
    let retried = post(&client, &format!("{}/retry", path(&id)), &Value::Null);
    assert_eq!(retried.status, 200, "{}", retried.text());
    wait_for_program("64302");
    let record = wait_for_state(&client, &id, "running");
    assert_eq!(record["attempts"], 1, "{record}");
    assert_eq!(crate::asynchronous::delete(&client, &id).status, 200);
    wait_for_state(&client, &id, "cancelled");
}

/// Returns the process id of the spawner, a child of the server, from which a sandboxed process
/// descends.
fn spawner_of(pid: u32, server: u32) -> u32 {
    std::iter::successors(Some(pid), |pid| process::parent(*pid))
        .find(|pid| process::parent(*pid) == Some(server))
        .expect("an ancestor that is a child of the server")
}

#[test]
fn a_spawner_that_dies_costs_an_attempt_and_no_result() {
    let _guard = beside_others();
    for (attempts_max, state) in [(2, "finished"), (1, "dead")] {
        let mut server = serve_with(&format!("jobs.attempts_max = {attempts_max}\n"));
        for line in
            ["spawner", "ended unexpectedly", "it is queued again", "given up; `cove queue retry`"]
        {
            server.expect_log(line);
        }
        let client = server.client();
        let id = submit(&client, &held("echo begun; sleep 64304; echo end"));
        let first = wait_for_sleep("64304");
        // Only the spawner that runs it: the next attempt may start at another spawner at once.
        process::signal(spawner_of(first.pid, server.pid()), "KILL");
        until("the end of what it ran", SOON, || {
            if first.is_alive() { Err(format!("{first:?}")) } else { Ok(()) }
        });
        if state == "finished" {
            wake("64304");
        }
        let record = ended(&client, &id);
        assert_eq!((&record["state"], &record["attempts"]), (&json!(state), &json!(attempts_max)));
        if state == "finished" {
            assert_eq!(record["result"]["stdout"], "begun\nend\n");
            continue;
        }
        assert!(record["message"].as_str().is_some_and(|it| !it.is_empty()), "{record}");
        assert_eq!(record["result"], Value::Null);
        let retried = post(&client, "/v1/queue/retry", &Value::Null);
        assert_eq!(retried.json()["changed"], 1, "{}", retried.text());
        wake("64304");
        let record = ended(&client, &id);
        assert_eq!((&record["state"], &record["attempts"]), (&json!("finished"), &json!(1)));
        let again = post(&client, &format!("{}/retry", path(&id)), &Value::Null);
        assert_error(&again, 409, "conflict", None);
    }
}

#[test]
fn a_server_that_stops_lets_jobs_end_or_gives_them_back() {
    let _guard = beside_others();
    for (drain_s, seconds, state) in [(300, "64306", "finished"), (1, "64305", "running")] {
        let config = format!("drain_s = {drain_s}\n[executions]\n");
        let mut server = Server::start_with(COVE, &[], Some(&config));
        server.expect_log("work was still in progress when the time to drain was up");
        server.expect_log("it is queued again");
        let id = submit(&server.client(), &held(&format!("sleep {seconds}; echo end")));
        wait_for_sleep(seconds);
        let waiting = submit(&server.client(), &json!({"argv": ["true"], "deadline_ms": 60_000}));
        server.signal("TERM");
        if state == "finished" {
            wait_for_log(&server, "draining");
            wake(seconds);
        }
        assert!(server.wait(SOON).success());
        server.restart();
        let client = server.client();
        let record = wait_for_state(&client, &id, state);
        // A return to the queue does not count as an attempt.
        assert_eq!(record["attempts"], 1, "{record}");
        assert_eq!(ended(&client, &waiting)["state"], "finished");
        if state == "running" {
            assert_eq!(crate::asynchronous::delete(&client, &id).status, 200);
            wait_for_state(&client, &id, "cancelled");
        }
    }
}

#[test]
fn a_pause_outlasts_the_server() {
    let _guard = beside_others();
    let mut server = serve_with("");
    set_paused(&server.client(), true);
    let id = submit(&server.client(), &shell("echo later"));
    server.restart();
    let client = server.client();
    let stats = figures(&client);
    assert_eq!((&stats["paused"], &stats["queued"]), (&json!(true), &json!(1)), "{stats}");
    assert_eq!(record(&client, &id)["state"], "queued");
    set_paused(&client, false);
    assert_eq!(ended(&client, &id)["result"]["stdout"], "later\n");
}
