//! Nodes that are lost, and nodes that only seem lost: their sessions continue at other nodes
//! without a request, and never at two nodes.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Client, Cutter, EventStream, Postgres, Request, Response, Scratch, Server, node_config,
    nodes_seen_by, process, until, wait_for_each_other,
};

use crate::cluster::{Pair, create_at};
use crate::sessions_support::{Sessions, config, numbers, path, probe, start_inside};
use crate::support::{COVE, SOON, beside_others};

/// Settings with which a turn's files are in the object store when its end is sent, and later files
/// are not.
pub(crate) const SYNCED: &str = "ready = 0\nsnapshots = \"turn_sync\"";
/// Logged by a server that does not know whether its sessions are still its own.
pub(crate) const OVER: &str = "the lease of this server is over";
/// Reason for which it rejects operations then. A server that has just started on a busy machine
/// logs it too.
const LATE: &str = "this server has not reached the store for so long";
/// Logged about a session that another server has taken over.
pub(crate) const TAKEN: &str = "a session is another server's now";
/// Time limit for a response while nodes stop and start.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Creates a session at this node. All its files are in the object store, except one: a node that
/// shows this file has the disk of the first life.
pub(crate) fn marked(here: &Sessions) -> String {
    let session = create_at(here);
    here.out(&session, "echo kept > file");
    here.ask(&session, "one");
    here.out(&session, "echo old > life");
    session
}

/// Returns the life of a session that responds, or none if no node does.
pub(crate) fn life(sessions: &Sessions, session: &str) -> Option<String> {
    let answer = sessions.client.try_send(&life_request(session));
    life_in(&answer.ok()?)
}

pub(crate) fn life_request(session: &str) -> Request {
    let body = serde_json::json!({"command": "cat file; cat life || echo new"});
    crate::asynchronous::post_request(&format!("{}/exec", path(session)), &body)
}

fn life_in(answer: &Response) -> Option<String> {
    if answer.status != 200 {
        assert!(matches!(answer.status, 502 | 503), "{}: {}", answer.status, answer.text());
        return None;
    }
    let stdout = answer.json()["stdout"].as_str().unwrap().to_owned();
    let life = stdout.strip_prefix("kept\n").unwrap_or_else(|| panic!("{stdout}"));
    Some(life.trim().to_owned())
}

pub(crate) fn wait_for_life(sessions: &Sessions, session: &str, wanted: &str) {
    until(&format!("the {wanted} life of {session}"), ANSWER_MAX, || {
        match life(sessions, session) {
            Some(found) if found == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

/// Events of a session, as a client of a node receives them.
pub(crate) struct Listener {
    events: EventStream,
    pub(crate) received: Vec<Value>,
}

impl Listener {
    pub(crate) fn start(client: &Client, session: &str) -> Listener {
        let events = client.events(&format!("{}/events", path(session)));
        let events = events.unwrap_or_else(|refusal| panic!("{}", refusal.text()));
        Listener { events, received: Vec::new() }
    }

    /// Reads up to an event that satisfies `is_it`, and returns it.
    pub(crate) fn until(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.events.next();
            let event = event.unwrap_or_else(|| panic!("no {what} in {:?}", self.received)).data;
            self.received.push(event.clone());
            if is_it(&event) {
                return event;
            }
        }
    }

    pub(crate) fn until_done(&mut self, turn: &str) {
        self.until("end of a turn", |event| event["type"] == "done" && event["turn"] == turn);
    }
}

/// Runs `cause`, which ends the leases of both nodes, and waits until both log that.
pub(crate) fn wait_for_lapses(nodes: [&Server; 2], cause: impl FnOnce()) {
    // On a busy machine, the log may contain this line from the start of the server.
    let takeovers = |node: &Server| node.log().matches(OVER).count();
    let before = nodes.map(takeovers);
    cause();
    for (node, before) in nodes.into_iter().zip(before) {
        until("the lease to be over", SOON, || match takeovers(node) > before {
            true => Ok(()),
            false => Err(node.log()),
        });
    }
}

/// Returns the turns of a session in the order of their beginnings: message to the agent, and
/// error.
pub(crate) fn turns(events: &[Value]) -> Vec<(String, Option<String>)> {
    let starts = events.iter().filter(|event| event["type"] == "turn_start");
    let turn = |start: &Value| {
        let of_turn = |event: &&Value| event["turn"] == start["turn"];
        let error = events.iter().filter(of_turn).find(|event| event["type"] == "error");
        let error = error.map(|event| event["data"]["error"].as_str().unwrap().to_owned());
        assert_eq!(events.iter().filter(of_turn).filter(|it| it["type"] == "done").count(), 1);
        (start["data"]["content"].as_str().unwrap().to_owned(), error)
    };
    starts.map(turn).collect()
}

/// The owner is killed while messages wait: the node that takes the session over handles them.
#[test]
fn messages_that_wait_outlast_their_node() {
    let _guard = beside_others();
    let mut pair = Pair::start_with("cluster.lease_ms = 60000\n", SYNCED);
    let (here, there) = pair.sessions();
    let session = marked(&here);
    let before = there.record(&session)["last_seq"].as_u64().unwrap();
    let mut turn = here.send(&session, "hold /tmp/never");
    turn.until_text("holding");
    let waiting = [
        there.send(&session, "run echo second >> told"),
        there.send_as(&session, &json!({"content": "unheard", "on_disconnect": "interrupt"})),
        here.send(&session, "run echo third >> told; cat file told"),
    ];
    pair.two.expect_log("failed to pass a request on");
    pair.two.expect_log("nothing listens at its address");
    pair.one.signal("KILL");
    pair.one.wait(SOON);
    let events = until("the end of all turns", ANSWER_MAX, || {
        let events = there.kept(&session, before);
        let ends = events.iter().filter(|event| event["type"] == "done").count();
        if ends == 4 { Ok(events) } else { Err(format!("{ends} of 4: {events:?}")) }
    });
    drop(waiting);
    let mut turn_errors = turns(&events);
    // The server detects at once that this turn has lost its listener, so its position varies.
    let unheard = turn_errors.iter().position(|(text, _)| text == "unheard").unwrap();
    assert_eq!(turn_errors.remove(unheard).1.as_deref(), Some("the turn was interrupted"));
    let lost = Some("the node that worked on this was lost".to_owned());
    let second = ("run echo second >> told".to_owned(), None);
    let third = ("run echo third >> told; cat file told".to_owned(), None);
    assert_eq!(turn_errors, [("hold /tmp/never".to_owned(), lost), second, third]);
    let mut results = events.iter().filter(|event| event["type"] == "turn_complete");
    let last = results.next_back().unwrap()["data"]["result"].as_str().unwrap();
    assert_eq!(last, "kept\nsecond\nthird\n");
    assert!(there.ask(&session, "on").starts_with("You said: on"));
}

/// The node that takes a session over has fetched its files before: the test removes them from the
/// object store.
#[test]
fn files_are_fetched_ahead_by_the_node_that_takes_over() {
    let _guard = beside_others();
    let mut pair = Pair::start_with("cluster.lease_ms = 60000\n", SYNCED);
    let (here, there) = pair.sessions();
    // The file is in a layer that the other node does not have.
    let original = create_at(&here);
    here.out(&original, "echo kept > file");
    let session = here.fork(&original);
    here.ask(&session, "one");
    here.out(&session, "echo old > life");
    here.end(&original);
    let other = marked(&here);
    let figure = |name: &str| {
        let metrics = there.client.get("/metrics").text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or_default()
    };
    let prefetched = pair.two.data_dir().join("sessions/prefetched");
    let images = |kind: &str| {
        let names = std::fs::read_dir(&prefetched).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with(kind)).count()
    };
    let disks = || images("f_");
    until("both disks at the other node", SOON, || match disks() {
        2 => Ok(()),
        count => Err(count.to_string()),
    });
    // The other node does not keep the disk of an ended session either.
    here.end(&other);
    until("one disk at the other node", SOON, || match disks() {
        1 => Ok(()),
        count => Err(count.to_string()),
    });
    assert!(figure("cove_session_prefetched_bytes") > 0.0);
    // The agent's layer may have been fetched to that node before.
    assert!((1..=2).contains(&images("fl_")), "{}", images("fl_"));
    for kind in ["disks", "layers"] {
        let stored = std::fs::read_dir(pair.objects.path().join(kind)).unwrap();
        let pieces = stored.map(|image| image.unwrap().path().join("pieces"));
        for pieces in pieces.filter(|pieces| pieces.exists()) {
            std::fs::remove_dir_all(pieces).unwrap();
        }
    }
    pair.two.expect_log("failed to pass a request on");
    pair.two.expect_log("nothing listens at its address");
    pair.one.signal("KILL");
    pair.one.wait(SOON);
    wait_for_life(&there, &session, "new");
    assert!(figure("cove_session_restored_pieces_total{from=\"prefetched\"}") > 0.0);
    assert!(figure("cove_session_prefetched_bytes") < 1.0, "they are a disk of this node now");
}

/// A node that was absent when files were stored fetches them after its start.
#[test]
fn files_are_fetched_ahead_by_a_node_that_comes_later() {
    let _guard = beside_others();
    let mut pair = Pair::start_with("", SYNCED);
    let (here, _) = pair.sessions();
    // A request to the node that has just stopped.
    pair.one.expect_log("failed to pass a request on");
    pair.two.signal("TERM");
    assert!(pair.two.wait(SOON).success());
    until("nobody to be there who would go on with sessions", SOON, || {
        let nodes = nodes_seen_by(&pair.one);
        match nodes.iter().any(|node| node["is_this"] == false && node["state"] == "active") {
            true => Err(format!("{nodes:?}")),
            false => Ok(()),
        }
    });
    marked(&here);
    pair.two.restart();
    let prefetched = pair.two.data_dir().join("sessions/prefetched");
    until("the disk and its layer at the other node", SOON, || {
        match prefetched.read_dir().unwrap().count() {
            2 => Ok(()),
            count => Err(count.to_string()),
        }
    });
}

/// The owner is killed with several sessions, a turn in progress and a listener at another node.
#[test]
fn sessions_of_a_node_that_was_killed_go_on_without_a_gap() {
    let _guard = beside_others();
    // Far longer than the test: the takeover does not wait for it.
    let mut pair = Pair::start_with("cluster.lease_ms = 60000\n", SYNCED);
    let (here, there) = pair.sessions();
    // With two nodes, both are candidates for an agent's sessions; with three, one node is not.
    let sessions: Vec<String> = (0..4).map(|_| marked(&here)).collect();
    let mut three = pair.one.start_beside(&pair.config);
    wait_for_each_other(&[&pair.one, &pair.two, &three]);
    let third = Sessions::from(&three);
    let busy = &sessions[0];
    let mut listener = Listener::start(&there.client, busy);
    let mut turn = here.send(busy, "hold /tmp/never");
    turn.until_text("holding");
    let name = turn.name();
    listener.until("the text", |event| event["data"]["text"] == "holding");

    for node in [&mut pair.two, &mut three] {
        node.expect_log("failed to pass a request on");
        node.expect_log("nothing listens at its address");
    }
    pair.one.signal("KILL");
    pair.one.wait(SOON);
    listener.until_done(&name);
    let error = listener.received.iter().find(|event| event["type"] == "error").unwrap();
    assert_eq!(error["data"]["error"], "the node that worked on this was lost");
    for session in &sessions {
        wait_for_life(&third, session, "new");
        wait_for_life(&there, session, "new");
        assert_eq!(there.record(session)["state"], "active");
    }
    // Listeners receive later events as well.
    let answer = third.hear(busy, "again");
    listener.until_done(answer.events[0]["turn"].as_str().unwrap());
    let kept = third.kept(busy, 0);
    let (received, stored) = (numbers(&listener.received), numbers(&kept));
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    for seq in &stored {
        assert!(received.contains(seq), "{seq} was not heard: {received:?}, {stored:?}");
    }
    let of = |kind: &str| kept.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of("done"), of("turn_start"), "{kept:?}");
    // After its restart, the node does not own them.
    pair.one.restart();
    let back = Sessions::from(&pair.one);
    for session in &sessions {
        wait_for_life(&back, session, "new");
        back.end(session);
    }
}

/// An owner that was stopped for longer than its lease does not answer with its old state.
#[test]
fn a_node_that_stood_still_for_longer_than_its_lease_answers_for_nobody() {
    let _guard = beside_others();
    let mut pair = Pair::start_with("cluster.lease_ms = 3000\n", SYNCED);
    for node in [&mut pair.one, &mut pair.two] {
        let expected = [
            "failed to pass a request on",
            OVER,
            LATE,
            TAKEN,
            "in the store",
            "lost the store",
            // The node was about to store the files of a turn when it was stopped.
            "could not be brought to the object store",
        ];
        expected.into_iter().for_each(|text| node.expect_log(text));
    }
    let (here, there) = pair.sessions();
    let session = &marked(&here);
    let program = start_inside(&here, session);
    let mut listener = Listener::start(&there.client, session);
    pair.one.signal("STOP");
    // These requests wait for the node, and are the first that it sees when it continues.
    let (answers, answered) = mpsc::channel();
    for _ in 0..4 {
        let (client, request, answers) =
            (here.client.clone(), life_request(session), answers.clone());
        thread::spawn(move || answers.send(client.try_send(&request)));
    }
    drop(answers);
    wait_for_life(&there, session, "new");
    pair.one.signal("CONT");
    for answer in answered {
        // An error or a closed connection does not answer with the old state either.
        if let Ok(Some(life)) = answer.map(|answer| life_in(&answer)) {
            assert_eq!(life, "new");
        }
    }
    until("what it had to be gone", SOON, || match process::name(program).as_str() {
        "sleep" => Err(format!("{program}")),
        _ => Ok(()),
    });
    wait_for_life(&here, session, "new");
    let turn = here.hear(session, "hello");
    listener.until_done(turn.events[0]["turn"].as_str().unwrap());
    assert!(pair.one.log().contains(TAKEN));
    there.end(session);
}

#[test]
fn a_node_that_stood_still_for_a_moment_keeps_what_it_has() {
    let _guard = beside_others();
    let pair = Pair::start_with("cluster.lease_ms = 20000\n", SYNCED);
    let (here, there) = pair.sessions();
    let session = &marked(&here);
    let owner = || {
        let nodes = nodes_seen_by(&pair.two);
        let seen = |is_this: bool| {
            let node = nodes.iter().find(|node| node["is_this"] == is_this).unwrap();
            node["seen_ms"].as_u64().unwrap()
        };
        (seen(false), seen(true))
    };
    pair.one.signal("STOP");
    until("half of a lease without it", SOON, || {
        let (one, two) = owner();
        if two > one + 10_000 { Ok(()) } else { Err(format!("{one} {two}")) }
    });
    pair.one.signal("CONT");
    assert_eq!(life(&here, session).as_deref(), Some("old"));
    wait_for_life(&there, session, "old");
    assert!(!pair.one.log().contains(OVER), "{}", pair.one.log());
    assert!(!pair.two.log().contains("a node is lost"), "{}", pair.two.log());
    there.end(session);
}

/// The store is unavailable for longer than a lease: all work pauses, and continues in place.
#[test]
fn a_store_that_comes_back_makes_nobody_lose_a_session() {
    let _guard = beside_others();
    let (database, objects) = (Postgres::start(), Scratch::new());
    let way = Cutter::start(database.tcp());
    let store =
        database.database().replace(&database.tcp().to_string(), &way.address().to_string());
    assert!(store.contains(&way.address().to_string()), "{store}");
    let settings =
        format!("objects.url = \"{}\"\ncluster.lease_ms = 3000\n", objects.path().display());
    let config = node_config(&store, &settings, &config(SYNCED));
    let mut one = Server::start_with(COVE, &[], Some(&config));
    let mut two = one.start_beside(&config);
    wait_for_each_other(&[&one, &two]);
    for node in [&mut one, &mut two] {
        for text in [
            OVER,
            "in the store",
            "lost the store",
            "cannot be reached",
            "failed",
            "cannot be written",
            "could not be",
            "could be read",
            "failed to pass a request on",
        ] {
            node.expect_log(text);
        }
    }
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    let sessions = [marked(&here), marked(&there)];
    let programs = [start_inside(&here, &sessions[0]), start_inside(&there, &sessions[1])];
    wait_for_lapses([&one, &two], || way.silence(true));
    for (node, session) in [(&here, &sessions[0]), (&there, &sessions[1])] {
        let refused = node.try_exec(session, "true");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{}", refused.text());
    }
    way.silence(false);
    way.cut_all();
    for session in &sessions {
        wait_for_life(&here, session, "old");
        wait_for_life(&there, session, "old");
    }
    // No delayed takeover happens during another lease.
    let before = nodes_seen_by(&one)[0]["seen_ms"].as_u64().unwrap();
    until("one more lease", SOON, || {
        let now = nodes_seen_by(&one)[0]["seen_ms"].as_u64().unwrap();
        if now > before + 4_000 { Ok(()) } else { Err(now.to_string()) }
    });
    for (session, program) in sessions.iter().zip(programs) {
        wait_for_life(&here, session, "old");
        assert_eq!(process::name(program), "sleep");
        there.end(session);
    }
    for node in [&one, &two] {
        assert!(!node.log().contains("a node is lost"), "{}", node.log());
    }
}

/// The owner is killed right after it sends the end of a turn: the turn's files are kept.
#[test]
fn an_answer_that_was_told_has_its_files_elsewhere() {
    let _guard = beside_others();
    // Far longer than the test: the takeover does not wait for it.
    let settings = "ready = 0\nsnapshots = \"turn_sync\"";
    let mut pair = Pair::start_with("cluster.lease_ms = 60000\n", settings);
    let (here, there) = pair.sessions();
    let session = &create_at(&here);
    // The upload of this file would take longer than the response to this test.
    let sum = here.out(session, "head -c 16M /dev/urandom > much && sha256sum much");
    let unused = &create_at(&here);
    here.out(unused, "echo kept > file");
    for session in [unused, session] {
        here.ask(session, "one");
    }
    pair.one.signal("KILL");
    pair.one.wait(SOON);
    for text in ["failed to pass a request on", "nothing listens at its address"] {
        pair.two.expect_log(text);
    }
    let request = || {
        let body = serde_json::json!({"command": "sha256sum much"});
        crate::asynchronous::post_request(&format!("{}/exec", path(session)), &body)
    };
    until("the files at the other node", ANSWER_MAX, || match there.client.try_send(&request()) {
        Ok(answer) if answer.status == 200 => {
            assert_eq!(answer.json()["stdout"].as_str(), Some(&*sum));
            Ok(())
        }
        Ok(answer) => Err(format!("{}: {}", answer.status, answer.text())),
        Err(error) => Err(format!("{error:?}")),
    });
    there.end(session);
    // This disk has never been at this node, which has nothing to store when it stops the session.
    until("the other one to be stopped", ANSWER_MAX, || match there.act(unused, "stop") {
        answer if answer.status == 503 => Err(answer.text()),
        answer => {
            assert_eq!(answer.status, 200, "{}", answer.text());
            Ok(())
        }
    });
    there.did(unused, "resume");
    assert_eq!(there.out(unused, "cat file"), "kept\n");
    there.end(unused);
}
