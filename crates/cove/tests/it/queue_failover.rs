//! A replica of Redis becomes the master of the queue while servers work: replicated executions
//! end, and others are unknown.

use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Cutter, Redis, Request, Response, Server, until};

use crate::asynchronous::{SOON, ended, figures, id, path, post_request, submit, submit_all};
use crate::support::{
    beside_others, held, serve_with, shell, wait_for_sleep, wait_until_gone, wake,
};

/// Log messages of servers while Redis is unavailable.
const EXPECTED: [&str; 4] = [
    "its worker was lost; it is queued again",
    "its lease was lost",
    "the queue cannot be reached",
    "Redis",
];

/// Two servers with a queue in Redis, which has a replica.
struct Stage {
    /// The servers are stopped before the proxy and Redis.
    one: Server,
    two: Server,
    /// Proxy between the servers and Redis.
    way: Cutter,
    master: Redis,
    replica: Redis,
}

fn start() -> Stage {
    let master = Redis::start();
    let (replica, way) = (master.replica(), Cutter::start(master.address()));
    let config = format!(
        "running_max = 1\njobs.lease_s = 3\njobs.redis = \"redis://{}/0\"\n",
        way.address()
    );
    let mut one = serve_with(&config);
    let mut two = one.start_beside(&format!("[executions]\n{config}"));
    for server in [&mut one, &mut two] {
        EXPECTED.iter().for_each(|text| server.expect_log(text));
    }
    Stage { one, two, way, master, replica }
}

/// Sends a request until the response is not 503, the status while the queue is unavailable.
fn insist(client: &Client, request: &Request) -> Response {
    until("an answer", SOON, || match client.send(request) {
        answer if answer.status == 503 => Err(answer.text()),
        answer => Ok(answer),
    })
}

/// Waits for the end of an execution, across any number of outages of the queue.
fn ended_at_last(client: &Client, id: &str) -> Value {
    until("the end of an execution", SOON, || {
        let answer = insist(client, &Request::new("GET", &format!("{}?wait=true", path(id))));
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        let record = answer.json();
        if record["finished_at"].is_null() { Err(record.to_string()) } else { Ok(record) }
    })
}

fn check_end(client: &Client, id: &str, stdout: &str, attempts: &[u64]) {
    let record = ended_at_last(client, id);
    assert_eq!(record["state"], "finished", "{record}");
    assert_eq!(record["result"]["stdout"], stdout, "{record}");
    assert!(attempts.contains(&record["attempts"].as_u64().unwrap()), "{record}");
}

/// Returns a request with an idempotency key.
fn keyed(key: &str) -> Request {
    post_request("/v1/executions", &shell(&format!("echo {key}"))).header("idempotency-key", key)
}

/// Waits until both servers run the script of a test.
fn wait_for_both(marker: &str) {
    until("both servers to work", SOON, || match testkit::process::named("sleep", marker).len() {
        2 => Ok(()),
        count => Err(format!("{count} run")),
    });
}

/// Returns the statistics of script calls of a Redis server since its start.
fn calls(redis: &Redis) -> String {
    redis.info("commandstats", "cmdstat_evalsha")
}

impl Stage {
    /// Runs one execution through each server, so that the queue's Redis server gets requests.
    fn work(&self) {
        for (client, text) in [(self.one.client(), "here"), (self.two.client(), "there")] {
            let record = ended(&client, &submit(&client, &shell(&format!("echo {text}"))));
            assert_eq!(record["result"]["stdout"], format!("{text}\n"), "{record}");
        }
    }
}

/// Failure of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MasterFate {
    /// Its process is killed.
    Killed,
    /// It stops responding, and its connections stay open.
    Silent,
    /// It becomes a replica of the other, and its connections stay open.
    Demoted,
}

/// The replica is up to date: everything that was accepted ends, once.
fn check(fate: MasterFate, marker: &str) {
    let mut stage = start();
    let client = stage.one.client();
    let done = submit(&client, &shell("echo done"));
    ended(&client, &done);
    let script = format!("sleep {marker}; echo end");
    let running = submit_all(&client, &[held(&script), held(&script)]);
    wait_for_both(marker);
    let waiting: Vec<String> =
        (0..5).map(|number| submit(&client, &shell(&format!("echo {number}")))).collect();
    let once = id(&client.send(&keyed("once")).json());

    stage.master.hold_writes();
    stage.master.wait_for(&stage.replica);
    match fate {
        MasterFate::Killed => stage.master.signal("KILL"),
        MasterFate::Silent => stage.master.signal("STOP"),
        MasterFate::Demoted => {}
    }
    stage.replica.promote();
    stage.way.lead_to(stage.replica.address());
    match fate {
        MasterFate::Killed => stage.way.cut_all(),
        MasterFate::Silent => {}
        MasterFate::Demoted => {
            stage.master.follow(&stage.replica);
            stage.master.let_writes();
        }
    }

    // A lease of three seconds may have expired while no worker could renew it.
    let again = insist(&client, &keyed("once"));
    assert_eq!((again.status, id(&again.json())), (202, once.clone()), "{fate:?}");
    until("what was running to end", SOON, || {
        for sleep in testkit::process::named("sleep", marker) {
            testkit::process::end(sleep);
        }
        let states: Vec<Value> = running
            .iter()
            .map(|id| insist(&client, &Request::new("GET", &path(id))).json()["state"].clone())
            .collect();
        match states.iter().all(|state| state == "finished") {
            true => Ok(()),
            false => Err(format!("{states:?}")),
        }
    });
    check_end(&client, &done, "done\n", &[1]);
    running.iter().for_each(|id| check_end(&client, id, "end\n", &[1, 2]));
    for (number, id) in waiting.iter().enumerate() {
        check_end(&client, id, &format!("{number}\n"), &[1]);
    }
    check_end(&client, &once, "once\n", &[1]);
    let stats = figures(&client);
    assert_eq!(
        (&stats["finished"], &stats["queued"], &stats["running"]),
        (&json!(9), &json!(0), &json!(0)),
        "{fate:?}: {stats}"
    );

    match fate {
        MasterFate::Killed => stage.master.restart(),
        MasterFate::Silent => {
            stage.master.signal("CONT");
            // The remaining connection is the one of this query.
            until("connections to the former master to end", SOON, || {
                match stage.master.info("clients", "connected_clients").as_str() {
                    "1" => Ok(()),
                    count => Err(count.to_owned()),
                }
            });
        }
        MasterFate::Demoted => {}
    }
    let before = (calls(&stage.master), calls(&stage.replica));
    stage.work();
    let after = (calls(&stage.master), calls(&stage.replica));
    assert_ne!(before.1, after.1);
    if fate != MasterFate::Demoted {
        // Commands that a replica executes for its master are counted as well.
        assert_eq!(before.0, after.0, "{fate:?}: the former master was asked");
    }
}

#[test]
fn a_queue_loses_nothing_when_a_killed_redis_is_replaced() {
    let _guard = beside_others();
    check(MasterFate::Killed, "64321");
}

#[test]
fn a_queue_loses_nothing_when_a_silent_redis_is_replaced() {
    let _guard = beside_others();
    check(MasterFate::Silent, "64322");
}

#[test]
fn a_queue_loses_nothing_when_its_redis_becomes_a_replica() {
    let _guard = beside_others();
    check(MasterFate::Demoted, "64323");
}

/// The replica lacks the latest writes: they are lost, and everything else continues.
#[test]
fn a_replica_of_redis_that_has_forgotten_something_stands_in_for_the_queue() {
    const MARKER: &str = "64324";
    const LOST: &str = "64325";
    let _guard = beside_others();
    let stage = start();
    let client = stage.one.client();
    let done = submit(&client, &shell("echo done"));
    ended(&client, &done);
    let script = format!("sleep {MARKER}; echo end");
    let running = submit(&client, &held(&script));
    wait_for_sleep(MARKER);
    let other = submit(&client, &held(&script));
    wait_for_both(MARKER);
    let waiting = submit(&client, &shell("echo waited"));
    stage.master.hold_writes();
    stage.master.wait_for(&stage.replica);
    stage.replica.promote();
    stage.master.let_writes();

    // The replica receives none of the following ends and submissions.
    wake(MARKER);
    wake(MARKER);
    for id in [&running, &other] {
        assert_eq!(ended(&client, id)["result"]["stdout"], "end\n");
    }
    assert_eq!(ended(&client, &waiting)["result"]["stdout"], "waited\n");
    let forgotten = id(&client.send(&keyed("again")).json());
    ended(&client, &forgotten);
    let script = held(&format!("sleep {LOST}; echo end"));
    let lost = submit_all(&client, &[script.clone(), script]);
    wait_for_both(LOST);
    let never = submit(&client, &shell("echo never"));
    let waits = {
        let (client, never) = (stage.two.client(), never.clone());
        thread::spawn(move || client.get(&format!("{}?wait=true", path(&never))).status)
    };

    stage.master.signal("KILL");
    stage.way.lead_to(stage.replica.address());
    stage.way.cut_all();
    // Requests that wait for a lost execution end, and its program is stopped.
    for id in [&forgotten, &never, &lost[0], &lost[1]] {
        let answer = insist(&client, &Request::new("GET", &format!("{}?wait=true", path(id))));
        assert_eq!(answer.status, 404, "{id}: {}", answer.text());
    }
    wait_until_gone(LOST);
    assert!(matches!(waits.join(), Ok(404 | 503)), "who waited before is told");
    // These two run again, because the ends of their first attempts were lost.
    until("the first two to end again", SOON, || {
        let states: Vec<Value> = [&running, &other]
            .iter()
            .map(|id| insist(&client, &Request::new("GET", &path(id))).json())
            .collect();
        for sleep in testkit::process::named("sleep", MARKER) {
            testkit::process::end(sleep);
        }
        match states.iter().all(|record| record["state"] == "finished") {
            true => Ok(()),
            false => Err(format!("{states:?}")),
        }
    });
    check_end(&client, &done, "done\n", &[1]);
    check_end(&client, &running, "end\n", &[2]);
    check_end(&client, &other, "end\n", &[2]);
    check_end(&client, &waiting, "waited\n", &[1]);
    let again = insist(&client, &keyed("again"));
    assert_eq!(again.status, 202, "{}", again.text());
    assert_ne!(id(&again.json()), forgotten);
    check_end(&client, &id(&again.json()), "again\n", &[1]);
    stage.work();
    let stats = figures(&client);
    assert_eq!(
        (&stats["finished"], &stats["queued"], &stats["running"]),
        (&json!(7), &json!(0), &json!(0)),
        "{stats}"
    );
}
