//! A draining node hands its sessions over to others, while clients continue to use them.

use std::fs;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{
    Client, Message, Postgres, Request, Scratch, Server, node_config, nodes_seen_by, process,
    until, wait_for_each_other,
};

use crate::asynchronous::{id, post_request};
use crate::sessions_support::{
    Sessions, config, numbers, ok, path, probe, serve_sessions, start_inside,
};
use crate::support::{COVE, SOON, beside_others, wait_for_log};
use crate::takeover::Listener;

/// Logged once when sessions cannot be handed over, and once when they can again.
const FAILS: &str = "sessions cannot be handed over at present";
const GOES_ON: &str = "sessions are handed over again";
/// Logged by a node that forwards to a node that was just stopped.
const GONE: &str = "failed to pass a request on";
/// Close code of a terminal whose server shuts down.
const AWAY: u16 = 1001;

/// Length of a request body that is not forwarded.
const LONG_BODY_BYTES: usize = 65 << 10;

/// Runs `cove node` on a server.
pub(crate) fn node(server: &Server, arguments: &[&str]) -> Output {
    let mut command = testkit::command(COVE);
    command.arg("node").args(arguments).arg("--data-dir").arg(server.data_dir());
    command.output().unwrap()
}

/// Creates a session at this node.
fn create_at(node: &Sessions) -> String {
    create_of_at(node, &json!({"agent": "probe"}))
}

/// Creates a session at this node with any request.
pub(crate) fn create_of_at(node: &Sessions, session: &Value) -> String {
    let body = format!("{session}{}", " ".repeat(LONG_BODY_BYTES));
    let request = Request::new("POST", "/v1/sessions").header("content-type", "application/json");
    let made = node.client.send(&request.body(body));
    assert_eq!(made.status, 201, "{}", made.text());
    id(&made.json())
}

/// Three nodes with an agent that all have. The first one drains.
pub(crate) struct Trio {
    one: Server,
    two: Server,
    three: Server,
    objects: Scratch,
    /// Configuration of each.
    config: String,
    _database: Arc<Postgres>,
}

impl Trio {
    pub(crate) fn start(settings: &str) -> Trio {
        let (database, objects) = (Postgres::shared(), Scratch::new());
        fs::create_dir(objects.path().join("store")).unwrap();
        let url = format!("objects.url = \"{}\"\n", objects.path().join("store").display());
        let settings = format!("{url}{settings}");
        let config = node_config(&database.database(), &settings, &config("ready = 0"));
        let one = Server::start_with(COVE, &[], Some(&config));
        let (two, three) = (one.start_beside(&config), one.start_beside(&config));
        Sessions::from(&one).deploy(&probe("probe"));
        wait_for_each_other(&[&one, &two, &three]);
        Trio { one, two, three, objects, config, _database: database }
    }

    pub(crate) fn sessions(&self) -> [Sessions; 3] {
        [&self.one, &self.two, &self.three].map(Sessions::from)
    }

    /// Returns another node's view of the first one.
    fn first(&self) -> Value {
        let id = nodes_seen_by(&self.one).into_iter().find(|node| node["is_this"] == true);
        let id = id.unwrap()["id"].clone();
        nodes_seen_by(&self.two).into_iter().find(|node| node["id"] == id).unwrap()
    }

    /// Runs `cove node` on the second node about the first one.
    fn node(&self, verb: &str, arguments: &[&str]) -> Output {
        let id = self.first()["id"].as_str().unwrap().to_owned();
        node(&self.two, &[&[verb, &id], arguments].concat())
    }

    pub(crate) fn drain(&self) {
        let done = self.node("drain", &[]);
        assert!(done.status.success(), "{done:?}");
    }

    /// Waits until the first node has this many sessions, and this many of them busy.
    fn wait_for_left(&self, sessions: u64, busy: u64) {
        until(&format!("{sessions} sessions to be left, {busy} at work"), SOON, || {
            let first = self.first();
            match first["drain"]["sessions"] == sessions && first["drain"]["busy"] == busy {
                true => Ok(()),
                false => Err(first.to_string()),
            }
        });
    }

    /// Waits with the command line until the first node has no sessions.
    pub(crate) fn wait_until_drained(&self) {
        let done = self.node("drain", &["--wait", "--timeout", "60s"]);
        assert_eq!(done.status.code(), Some(0), "{done:?}\n{}", self.one.log());
    }
}

/// Asserts that a listener has received all stored events, in order, and none twice.
fn assert_gapless(listener: &Listener, kept: &[Value]) {
    let (received, stored) = (numbers(&listener.received), numbers(kept));
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    for seq in &stored {
        assert!(received.contains(seq), "{seq} was not heard: {received:?}, {stored:?}");
    }
}

#[test]
fn a_node_that_drains_hands_its_sessions_over() {
    let _guard = beside_others();
    let mut trio = Trio::start("");
    let [here, there, third] = trio.sessions();
    let sessions: Vec<String> = (0..4).map(|_| create_at(&here)).collect();
    for session in &sessions {
        here.ask(session, "before");
        here.out(session, "echo kept > file");
    }
    let (busy, resting) = (&sessions[0], &sessions[1]);
    // Through another node, and at the draining one.
    let mut listeners = Vec::new();
    for session in [busy, resting] {
        for client in [&there.client, &here.client] {
            listeners.push((session, Listener::start(client, session)));
        }
    }
    let mut turn = there.send(busy, "hold release");
    turn.until_text("holding");

    trio.drain();
    trio.wait_for_left(1, 1);
    // Requests to the node itself are answered by the session's new owner.
    for session in &sessions[1..] {
        assert_eq!(here.record(session)["state"], "active");
        assert_eq!(here.read(session, "file").text(), "kept\n");
        assert_eq!(there.out(session, "cat file"), "kept\n");
    }
    // The turn continues at its node, and so do other requests to its session.
    let late = trio.node("drain", &["--wait", "--timeout", "1s"]);
    let stderr = String::from_utf8_lossy(&late.stderr).into_owned();
    assert_eq!(late.status.code(), Some(124), "{late:?}");
    assert!(stderr.contains("1 session left, 1 at work"), "{stderr}");
    third.out(busy, "touch release");
    let answer = turn.end();
    assert_eq!((answer.result().as_str(), answer.errors().len()), ("released", 0));
    trio.wait_until_drained();
    assert_eq!(here.out(busy, "cat file"), "kept\n");

    // Listeners receive later events from the new owner.
    for (session, listener) in &mut listeners {
        let answer = third.hear(session, "again");
        listener.until_done(answer.events[0]["turn"].as_str().unwrap());
        assert_gapless(listener, &third.kept(session, 0));
        let moves = listener.received.iter().filter(|it| it["type"] == "lifecycle");
        assert!(moves.clone().any(|it| it["data"]["state"] == "active"), "{:?}", listener.received);
    }
    assert_eq!(trio.first()["drain"]["sessions"], 0);
    let metrics = here.client.get("/metrics").text();
    let counted = "cove_session_sandbox_events_total{what=\"handed_over\"} 4";
    assert!(metrics.contains(counted), "{metrics}");
    trio.one.signal("TERM");
    assert!(trio.one.wait(SOON).success());
    for session in &sessions {
        assert_eq!(there.out(session, "cat file"), "kept\n");
        there.end(session);
    }
}

/// Requests arrive through every node continuously, and overlap so that no session becomes idle by
/// itself: each is answered, and the sessions move.
#[test]
fn who_asks_in_the_middle_of_a_hand_over_is_answered() {
    let _guard = beside_others();
    let trio = Trio::start("");
    let all = trio.sessions();
    let sessions: Vec<String> = (0..3).map(|_| create_at(&all[0])).collect();
    let is_over = AtomicBool::new(false);
    let ask = |client: &Client, session: &str, number: usize| {
        let command = format!("echo {number} >> notes; sleep 0.2; echo said {number}");
        let target = format!("{}/exec", path(session));
        let answer = client.send(&post_request(&target, &json!({"command": command})));
        match answer.status {
            200 => assert_eq!(answer.json()["stdout"], format!("said {number}\n")),
            503 => assert!(answer.header("retry-after").is_some(), "{}", answer.text()),
            other => panic!("{other}: {}", answer.text()),
        }
        answer.status == 200
    };
    let counts: Vec<Vec<usize>> = thread::scope(|scope| {
        let asking: Vec<_> = (0..9)
            .map(|index| {
                let (client, session) = (&all[index % 3].client, &sessions[index / 3]);
                let (is_over, ask) = (&is_over, &ask);
                scope.spawn(move || {
                    let mut counts = Vec::new();
                    for number in 0.. {
                        let number = number * 10 + index;
                        if ask(client, session, number) {
                            counts.push(number);
                        }
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    counts
                })
            })
            .collect();
        let drained = trio.node("drain", &["--wait", "--timeout", "60s"]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(drained.status.code(), Some(0), "{drained:?}\n{}", trio.one.log());
        asking.into_iter().map(|it| it.join().unwrap()).collect()
    });
    for (index, session) in sessions.iter().enumerate() {
        let notes = all[1].out(session, "cat notes");
        let mut notes: Vec<usize> = notes.lines().map(|line| line.parse().unwrap()).collect();
        for number in counts[index * 3..index * 3 + 3].iter().flatten() {
            assert!(notes.contains(number), "{number} was answered and is gone: {notes:?}");
        }
        let count = notes.len();
        notes.sort_unstable();
        notes.dedup();
        assert_eq!(notes.len(), count, "something was done twice");
        all[1].end(session);
    }
}

/// Client that does numbered actions in a session through any available node, with retries.
struct InsistentWorker<'a> {
    nodes: &'a Mutex<Vec<Client>>,
    session: &'a str,
}

impl InsistentWorker<'_> {
    /// Records a number in the session, once.
    fn write(&self, number: usize) {
        let command = format!("grep -qx {number} notes || echo {number} >> notes");
        let exec =
            post_request(&format!("{}/exec", path(self.session)), &json!({"command": command}));
        let resume = post_request(&format!("{}/resume", path(self.session)), &json!({}));
        let mut attempt = number;
        until("the command to have run", SOON * 2, || {
            attempt += 1;
            let client = {
                let nodes = self.nodes.lock();
                nodes[attempt % nodes.len()].clone()
            };
            let answer = client.try_send(&exec).map_err(|error| error.to_string())?;
            match answer.status {
                200 => return Ok(()),
                // The session is stopped if its node has stopped.
                409 => drop(client.try_send(&resume)),
                502..=504 => {}
                other => panic!("{other}: {}", answer.text()),
            }
            Err(format!("{}: {}", answer.status, answer.text()))
        });
    }
}

/// One more node, one that drains and is stopped, one that is stopped without a drain: acknowledged
/// actions persist, and no client is rejected for long.
#[test]
fn nodes_come_and_go_while_clients_work() {
    let _guard = beside_others();
    let mut trio = Trio::start("");
    for node in [&mut trio.one, &mut trio.two, &mut trio.three] {
        node.expect_log(GONE);
    }
    let sessions: Vec<String> =
        trio.sessions().iter().flat_map(|node| [create_at(node), create_at(node)]).collect();
    let nodes = Mutex::new(trio.sessions().map(|node| node.client).to_vec());
    let is_over = AtomicBool::new(false);
    let written = AtomicUsize::new(0);
    let (_four, counts) = thread::scope(|scope| {
        let working: Vec<_> = sessions
            .iter()
            .map(|session| {
                let worker = InsistentWorker { nodes: &nodes, session };
                let (is_over, written) = (&is_over, &written);
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        worker.write(count);
                        count += 1;
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    count
                })
            })
            .collect();
        let wait_for_work = || {
            let before = written.load(Ordering::Relaxed);
            until("clients to get on", SOON * 2, || match written.load(Ordering::Relaxed) {
                now if now > before + 2 * sessions.len() => Ok(()),
                now => Err(format!("{now} after {before}")),
            });
        };
        let leaves = |client: &Client| {
            nodes.lock().retain(|node| node.address() != client.address());
        };
        wait_for_work();
        let mut joins = trio.two.start_beside(&trio.config);
        joins.expect_log(GONE);
        wait_for_each_other(&[&trio.one, &trio.two, &trio.three, &joins]);
        nodes.lock().push(joins.client());
        wait_for_work();

        trio.wait_until_drained();
        leaves(&trio.one.client());
        trio.one.signal("TERM");
        assert!(trio.one.wait(SOON).success());
        wait_for_work();

        // A balancer notices the stop by a 503 or a refused connection.
        trio.three.signal("TERM");
        assert!(trio.three.wait(SOON * 2).success());
        leaves(&trio.three.client());
        wait_for_work();
        is_over.store(true, Ordering::Relaxed);
        let counts: Vec<usize> = working.into_iter().map(|it| it.join().unwrap()).collect();
        (joins, counts)
    });
    let two = Sessions::from(&trio.two);
    for (session, count) in sessions.iter().zip(counts) {
        let wanted: String = (0..count).map(|number| format!("{number}\n")).collect();
        // The session is stopped if its node was stopped last.
        two.did(session, "resume");
        assert_eq!(two.out(session, "sort -n notes"), wanted);
        two.end(session);
    }
}

#[test]
fn a_node_that_is_undrained_keeps_what_it_still_has() {
    let _guard = beside_others();
    let trio = Trio::start("");
    let [here, there, _] = trio.sessions();
    let (busy, resting) = (&create_at(&here), &create_at(&here));
    let program = start_inside(&here, busy);
    let mut turn = there.send(busy, "hold release");
    turn.until_text("holding");
    here.out(resting, "echo kept > file");
    trio.drain();
    trio.wait_for_left(1, 1);
    let undrained = trio.node("undrain", &[]);
    assert!(undrained.status.success(), "{undrained:?}");
    wait_for_log(&trio.one, "this server takes work again");
    there.out(busy, "touch release");
    assert_eq!(turn.end().result(), "released");
    // The session stays with its running programs, and new sessions are created.
    create_at(&here);
    assert_eq!(process::name(program), "sleep");
    until("the node to be active", SOON, || match trio.first() {
        first if first["state"] == "active" => Ok(()),
        first => Err(first.to_string()),
    });
    assert_eq!(trio.first()["drain"], Value::Null);
    assert_eq!(there.out(resting, "cat file"), "kept\n");
    there.end(busy);
}

#[test]
fn a_node_keeps_its_sessions_while_the_object_store_is_away() {
    let _guard = beside_others();
    let mut trio = Trio::start("");
    trio.one.expect_log(FAILS);
    let [here, there, _] = trio.sessions();
    let sessions: Vec<String> = (0..3).map(|_| create_at(&here)).collect();
    for session in &sessions {
        here.out(session, "echo kept > file");
    }
    let program = start_inside(&here, &sessions[0]);
    let (store, away) = (trio.objects.path().join("store"), trio.objects.path().join("away"));
    fs::rename(&store, &away).unwrap();
    fs::write(&store, "no directory").unwrap();
    trio.drain();
    wait_for_log(&trio.one, FAILS);
    until("a failure to be shown", SOON, || match trio.first() {
        first if first["drain"]["failed"].as_u64() > Some(0) => Ok(()),
        first => Err(first.to_string()),
    });
    for session in &sessions {
        assert_eq!(there.out(session, "cat file; echo more >> file"), "kept\n");
    }
    assert_eq!(process::name(program), "sleep", "what runs goes on");
    fs::remove_file(&store).unwrap();
    fs::rename(&away, &store).unwrap();
    trio.wait_until_drained();
    for session in &sessions {
        assert_eq!(there.out(session, "cat file"), "kept\nmore\n");
        there.end(session);
    }
    let log = trio.one.log();
    let count = |text: &str| log.matches(text).count();
    assert_eq!((count(FAILS), count(GOES_ON)), (1, 1), "{log}");
}

#[test]
fn terminals_have_their_time_on_a_node_that_drains() {
    let _guard = beside_others();
    let trio = Trio::start("cluster.drain_terminals_s = 0.5\n");
    let [here, there, _] = trio.sessions();
    let session = &create_at(&here);
    let target = format!("{}/terminal?argv=sh&detach_s=60", path(session));
    let socket = there.client.websocket(&target);
    let mut socket = socket.unwrap_or_else(|response| panic!("{}", response.text()));
    assert_eq!(socket.json()["type"], "started");
    trio.wait_until_drained();
    let code = loop {
        // The prompt arrives first.
        if let Message::Close(code, why) = socket.message() {
            assert!(why.contains("the server drains"), "{why}");
            break code;
        }
    };
    assert_eq!(code, AWAY);
    let socket = here.client.websocket(&target);
    let mut socket = socket.unwrap_or_else(|response| panic!("{}", response.text()));
    assert_eq!(socket.json()["type"], "started");
    there.end(session);
}

/// Files that no other server can reach stay, and the command reports that.
#[test]
fn a_server_without_a_shared_object_store_keeps_its_sessions() {
    let _guard = beside_others();
    let server = serve_sessions("ready = 0");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.out(&session, "echo kept > file");
    let id = nodes_seen_by(&server)[0]["id"].as_str().unwrap().to_owned();
    let done = node(&server, &["drain", &id, "--wait"]);
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(1) && stderr.contains("objects.url"), "{done:?}");
    assert_eq!(nodes_seen_by(&server)[0]["drain"]["keeps_files"], true);
    assert_eq!(sessions.out(&session, "cat file"), "kept\n");
    ok(&sessions.client.send(&Request::new("POST", &format!("/v1/nodes/{id}/undrain"))));
    sessions.end(&session);
}
