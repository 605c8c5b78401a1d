//! Servers on one store act as one service, whichever receives a request.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{
    Client, Cut, Cutter, Message, Postgres, Request, Scratch, Server, Stopwatch, Way, node_config,
    nodes_seen_by, until, wait_for_each_other,
};

use crate::asynchronous::{ended, post, post_request, submit_all};
use crate::sessions_support::{Sessions, numbers, ok, path, probe};
use crate::support::{COVE, SOON, beside_others, run, shell};

/// Returns the configuration of servers that share a store, and reach each other.
fn config(database: &str, settings: &str) -> String {
    config_with(database, settings, "ready = 0")
}

pub(crate) fn config_with(database: &str, settings: &str, of_sessions: &str) -> String {
    let of_sessions = crate::sessions_support::config(of_sessions);
    node_config(database, settings, &of_sessions)
}

/// Two nodes, and an agent that both have.
pub(crate) struct Pair {
    pub(crate) one: Server,
    pub(crate) two: Server,
    pub(crate) config: String,
    pub(crate) objects: Scratch,
    _database: Arc<Postgres>,
}

impl Pair {
    pub(crate) fn start(settings: &str) -> Pair {
        Pair::start_with(settings, "ready = 0")
    }

    pub(crate) fn start_with(settings: &str, of_sessions: &str) -> Pair {
        let (database, objects) = (Postgres::shared(), Scratch::new());
        let objects_url = format!("objects.url = \"{}\"\n", objects.path().display());
        let config = format!("{objects_url}{settings}");
        let config = config_with(&database.database(), &config, of_sessions);
        let one = Server::start_with(COVE, &[], Some(&config));
        let two = one.start_beside(&config);
        Sessions::from(&one).deploy(&probe("probe"));
        wait_for_each_other(&[&one, &two]);
        Pair { one, two, config, objects, _database: database }
    }

    /// Returns clients of both.
    pub(crate) fn sessions(&self) -> (Sessions, Sessions) {
        (Sessions::from(&self.one), Sessions::from(&self.two))
    }
}

fn answers(server: &Server, token: &str) -> u16 {
    let client = Client::new(server.client().address(), Some(token.to_owned()));
    client.get("/v1/languages").status
}

#[test]
fn tokens_are_made_and_revoked_for_all_servers() {
    let _guard = beside_others();
    let (database, objects) = (Postgres::shared(), Scratch::new());
    let objects = format!("objects.url = \"{}\"", objects.path().display());
    let config = config(&database.database(), &objects);
    let one = Server::start_with(COVE, &[], Some(&config));
    let two = one.start_beside(&config);
    assert_eq!((answers(&one, one.token()), answers(&two, one.token())), (200, 200));

    let made = one.command("token").args(["--json", "create", "--name", "ci"]).output().unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    // At the first request, without delay.
    assert_eq!((answers(&two, token), answers(&one, token)), (200, 200));

    let listed = two.command("token").arg("list").output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains(id), "{listed:?}");
    assert!(two.command("token").args(["revoke", id]).output().unwrap().status.success());
    for server in [&one, &two] {
        until("the token to be refused", SOON, || match answers(server, token) {
            401 => Ok(()),
            other => Err(other.to_string()),
        });
    }
    let brief = ["create", "--name", "brief", "--expires", "1ms"];
    let brief = one.command("token").args(brief).output().unwrap();
    assert_eq!(answers(&two, String::from_utf8_lossy(&brief.stdout).trim()), 401);
}

/// A token in a file that no server reads would be useless and misleading.
#[test]
fn tokens_of_a_shared_store_are_not_made_in_the_file() {
    let _guard = beside_others();
    let database = Postgres::shared();
    let objects = Scratch::new();
    let objects = format!("objects.url = \"{}\"", objects.path().display());
    let server = Server::start_with(COVE, &[], Some(&config(&database.database(), &objects)));
    let mut create = testkit::command(COVE);
    create.args(["token", "--data-dir"]).arg(server.data_dir());
    let output = create.args(["create", "--name", "lost"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("COVE_STORE__URL"), "{errors}");
    assert!(!server.data_dir().join("tokens.jsonl").exists());
}

/// The steps of docs/cluster.md: keys are created on one server, and copied to the other with a
/// token.
#[test]
fn a_server_joins_with_a_token() {
    let _guard = beside_others();
    let (database, scratch) = (Postgres::shared(), Scratch::new());
    let table = format!("store.url = {:?}\nsandbox.warm_runtimes = false\n", database.database());
    let config = scratch.file("cove.toml", &table);
    let cluster = |data_dir: &str, arguments: &[&str]| {
        let mut command = testkit::command(COVE);
        command.arg("cluster").args(arguments).arg("--config").arg(&config);
        command.arg("--data-dir").arg(scratch.path().join(data_dir)).output().unwrap()
    };
    let output_text =
        |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = |output: &std::process::Output, with: &str| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(with), "{errors}");
    };
    failed(&cluster("one", &["token"]), "cove cluster init");
    let made = cluster("one", &["init"]);
    assert!(made.status.success() && output_text(&made).contains("cove cluster token"), "{made:?}");
    // A second time changes nothing.
    assert!(cluster("one", &["init"]).status.success());
    let token = output_text(&cluster("one", &["token"]));
    let token = token.trim();
    assert!(token.starts_with("cove_join_"), "{token}");
    failed(&cluster("two", &["join", "cove_join_wrong"]), "unknown join token");
    let joined = cluster("two", &["join", token]);
    assert!(joined.status.success(), "{joined:?}");
    for key in ["secrets.key", "webhook.key"] {
        let read = |data: &str| fs::read_to_string(scratch.path().join(data).join(key)).unwrap();
        assert_eq!(read("one").trim(), read("two").trim());
        let path = scratch.path().join("two").join(key);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
    failed(&cluster("three", &["join", token]), "was already used");
    failed(&cluster("two", &["join", token]), "is there already");
    // A server with other keys does not belong to the cluster.
    failed(&cluster("four", &["init"]), "secrets_key");
    let alone = testkit::command(COVE)
        .args(["cluster", "init", "--data-dir"])
        .arg(scratch.path().join("five"))
        .output()
        .unwrap();
    failed(&alone, "store.url");
}

#[test]
fn a_session_is_used_through_any_node() {
    let _guard = beside_others();
    let pair = Pair::start("");
    let (here, there) = pair.sessions();
    let session = &create_at(&here);

    // Messages, whose events arrive as they happen.
    let mut turn = there.send(session, "hold");
    turn.until("its start", |event| event["type"] == "turn_start");
    ok(&there.client.send(&Request::new("POST", &format!("{}/interrupt", path(session)))));
    turn.end();
    // The agent has counted the interrupted message, or was stopped before.
    let answer = there.ask(session, "one");
    let counted = (1..=2).find(|count| answer == format!("You said: one [messages: {count}]"));
    let next = counted.unwrap_or_else(|| panic!("{answer}")) + 1;
    assert_eq!(here.ask(session, "two"), format!("You said: two [messages: {next}]"));
    let kept = here.kept(session, 0);
    assert_eq!(there.kept(session, 0), kept);
    let numbers = numbers(&kept);
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");

    // Programs, with streamed output, and files of any size.
    assert_eq!(there.out(session, "echo $((6*7)); cat"), "42\n");
    let large: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    ok(&there.write(session, "large", &large));
    assert_eq!(here.read(session, "large").body, large);
    assert_eq!(there.read(session, "large").body, large);
    let target = format!("{}/exec", path(session));
    let body = json!({"command": "echo told; read line; echo heard $line", "stdin": "it\n"});
    let events = there.client.events_by(&post_request(&target, &body)).unwrap();
    let names: Vec<String> = events.map(|event| event.name).collect();
    assert_eq!((names[0].as_str(), names.last().unwrap().as_str()), ("started", "ended"));

    // A terminal, which uses a separate connection.
    let socket = there.client.websocket(&format!("{}/terminal?argv=sh", path(session)));
    let mut socket = socket.unwrap_or_else(|response| panic!("{}", response.text()));
    assert_eq!(socket.json()["type"], "started");
    socket.writer().binary(b"echo $((40+2))!\n").unwrap();
    let mut output = String::new();
    while !output.contains("42!") {
        match socket.message() {
            Message::Binary(bytes) => output.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {output:?}"),
        }
    }
    drop(socket);

    // State changes of the session, through any node.
    there.did(session, "pause");
    assert_eq!(here.record(session)["state"], "paused");
    assert_eq!(there.did(session, "resume")["state"], "active");
    let copy = there.fork(session);
    assert_eq!(there.out(&copy, "wc -c < large"), "3000000\n");
    there.end(&copy);
    there.did(session, "stop");
    // The session has no owner: the node that receives the request claims it.
    assert_eq!(there.did(session, "resume")["state"], "active");
    assert_eq!(here.out(session, "wc -c < large"), "3000000\n");
    here.end(session);
    assert_eq!(there.record(session)["state"], "ended");
    // Internal headers from other clients are ignored, and internal routes are not accessible.
    let mine = create_at(&here);
    let forged = Request::new("GET", &path(&mine))
        .header("cove-for-node", "srv_x run_x")
        .header("cove-listener", "peer")
        .header("cove-client", "127.0.0.1:1")
        .header("cove-client-host", "elsewhere");
    assert_eq!(ok(&there.client.send(&forged))["id"], mine.as_str());
    assert_eq!(there.client.get(&format!("/peer/executions/{mine}")).status, 404);
    here.end(&mine);
    // A session of another tenant is reported as missing, wherever it is.
    let other = pair.two.other_client("other", &[]);
    let mine = create_at(&here);
    assert_eq!(other.get(&path(&mine)).status, 404);
    assert_eq!(there.client.anonymous().get(&path(&mine)).status, 401);
    here.end(&mine);
}

/// A cached owner may be out of date.
#[test]
fn a_session_that_has_moved_is_found_where_it_is() {
    let _guard = beside_others();
    let pair = Pair::start("");
    let (here, there) = pair.sessions();
    let session = &create_at(&here);
    let three = pair.one.start_beside(&pair.config);
    wait_for_each_other(&[&pair.one, &pair.two, &three]);
    let third = Sessions::from(&three);
    assert_eq!(third.out(session, "echo at one"), "at one\n");
    // The session continues at the second node, which the third one does not know.
    here.did(session, "stop");
    assert_eq!(there.did(session, "resume")["state"], "active");
    assert_eq!(third.out(session, "echo at two"), "at two\n");
    assert_eq!(here.out(session, "echo at two"), "at two\n");
    let big = vec![7; 200_000];
    ok(&third.write(session, "big", &big));
    third.end(session);
}

#[test]
fn a_node_that_is_gone_is_waited_for_and_no_longer() {
    let _guard = beside_others();
    let mut pair = Pair::start("");
    let (here, there) = pair.sessions();
    let session = &create_at(&here);
    here.out(session, "true");
    assert_eq!(there.out(session, "echo x"), "x\n");
    pair.one.signal("KILL");
    pair.one.wait(SOON);
    pair.two.expect_log("failed to pass a request on");
    pair.two.expect_log("nothing listens at its address");
    // A change is rejected with the advice to retry; a read succeeds.
    let refused = there.try_exec(session, "true");
    assert!(refused.status == 503 || refused.status == 502, "{}", refused.text());
    until("a clear answer", SOON, || {
        let refused = there.try_exec(session, "true");
        match refused.json()["error"]["code"].as_str() {
            Some("overloaded") if refused.header("retry-after").is_some() => Ok(()),
            _ => Err(refused.text()),
        }
    });
    assert_eq!(there.record(session)["id"], session.as_str());
    // The node returns with another address and the same name.
    pair.one.restart();
    until("the session to go on", SOON, || match there.act(session, "resume") {
        answer if answer.status == 200 => Ok(()),
        answer => Err(answer.text()),
    });
    assert_eq!(there.out(session, "echo back"), "back\n");
    there.end(session);
}

/// A stopped node, which is running according to the store and the kernel, but does not respond.
#[test]
fn a_node_that_stands_still_is_given_up_and_taken_up_again() {
    let _guard = beside_others();
    let mut pair = Pair::start("");
    let (here, there) = pair.sessions();
    let session = &create_at(&here);
    assert_eq!(there.out(session, "echo before"), "before\n");
    pair.two.expect_log("failed to pass a request on");
    pair.one.signal("STOP");
    let refused = there.try_exec(session, "echo lost");
    assert_eq!(refused.json()["error"]["code"], "node_lost", "{}", refused.text());
    // The next request finds no connection, and may be retried.
    let refused = there.try_exec(session, "echo lost");
    assert!(refused.status == 502 || refused.status == 503, "{}", refused.text());
    pair.one.signal("CONT");
    until("it to answer again", SOON, || match there.try_exec(session, "echo after") {
        answer if answer.status == 200 => Ok(()),
        answer => Err(answer.text()),
    });
    there.end(session);
}

/// Nodes that cannot find each other, or share too little, report that before they start.
#[test]
fn a_node_that_shares_too_little_does_not_start() {
    let _guard = beside_others();
    let (scratch, database) = (Scratch::new(), Postgres::shared());
    let start = |table: &str, with: &str| {
        let config =
            scratch.file("cove.toml", format!("{table}cluster.listen = \"127.0.0.1:0\"\n"));
        let mut serve = testkit::command(COVE);
        serve.args(["serve", "--http", "127.0.0.1:0", "--config"]).arg(config);
        let output = serve.arg("--data-dir").arg(scratch.path().join("data")).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(with), "{errors}");
    };
    start("objects.url = \"/tmp\"\n", "set `store.url`");
    start(&format!("store.url = {:?}\n", database.database()), "set `objects.url`");
}

/// Returns a client of E2B's listener, with or without a token.
fn e2b(server: &Server, token: Option<&str>) -> Client {
    Client::new(server.listener("e2b"), token.map(str::to_owned))
}

#[test]
fn sandboxes_of_e2b_and_their_ports_are_reached_through_any_node() {
    let _guard = beside_others();
    let pair = Pair::start("compat.e2b.listen = \"127.0.0.1:0\"");
    let (here, there) =
        (e2b(&pair.one, Some(pair.one.token())), e2b(&pair.two, Some(pair.two.token())));
    let made = post_request("/sandboxes", &json!({"templateID": "base", "timeout": 120}));
    let made = ok(&here.send(&made));
    let id = made["sandboxID"].as_str().unwrap();
    assert_eq!(ok(&there.get(&format!("/sandboxes/{id}")))["sandboxID"], id);
    let (_, native) = pair.sessions();
    let serve = "cd /tmp; echo by name > it; (python3 -m http.server 8080 >/dev/null 2>&1 &) ; \
        for i in $(seq 100); do (echo > /dev/tcp/127.0.0.1/8080) 2>/dev/null && break; sleep 0.1; done";
    let body = json!({"argv": ["bash", "-c", serve]});
    ok(&native.client.send(&post_request(&format!("{}/exec", path(id)), &body)));
    for server in [&pair.one, &pair.two] {
        let request = Request::new("GET", "/it").header("host", &format!("8080-{id}.localhost"));
        let answer = e2b(server, None).send(&request);
        assert_eq!((answer.status, answer.text().as_str()), (200, "by name\n"));
    }
    assert_eq!(there.send(&Request::new("DELETE", &format!("/sandboxes/{id}"))).status, 204);
}

/// Clients follow and type at the node that they reached; the program runs at any node with a free
/// place.
#[test]
fn an_execution_is_followed_and_typed_at_through_any_node() {
    let _guard = beside_others();
    let pair = Pair::start("");
    let there = pair.two.client();
    drain(&pair.two, "drain");
    until("it to take no work", SOON, || {
        let this =
            nodes_seen_by(&pair.two).into_iter().find(|node| node["is_this"] == true).unwrap();
        if this["state"] == "draining" { Ok(()) } else { Err(this.to_string()) }
    });
    let submit = |source: &str, interactive: bool| {
        let job = json!({"language": "bash", "source": source, "interactive": interactive});
        let answer = post(&there, "/v1/executions", &job);
        assert_eq!(answer.status, 202, "{}", answer.text());
        format!("/v1/executions/{}", answer.json()["id"].as_str().unwrap())
    };
    // Input through the other node, before it has begun.
    let target = submit("read line; echo \"heard $line\"", true);
    let socket = there.websocket(&format!("{target}/events"));
    let mut socket = socket.unwrap_or_else(|response| panic!("{}", response.text()));
    socket.send(&json!({"type": "stdin", "data": "it\n"}));
    let (events, _) = socket.rest();
    let text = events.iter().filter(|event| event["type"] == "stdout");
    let text: String = text.filter_map(|event| event["data"].as_str()).collect();
    assert_eq!(text, "heard it\n", "{events:?}");

    // Output while it runs.
    let target = submit("echo begun; until [ -e /nowhere ]; do sleep 1; done", false);
    until("it to run", SOON, || {
        let state = there.get(&target).json()["state"].clone();
        if state == "running" { Ok(()) } else { Err(state.to_string()) }
    });
    let events = there.events(&format!("{target}/events")).unwrap();
    let mut seen = events
        .map(|event| (event.name, event.data))
        .skip_while(|(name, data)| !(name == "stdout" && data["data"] == "begun\n"));
    assert!(seen.next().is_some());
    assert!(there.send(&Request::new("DELETE", &target)).status < 300);
    let rest: Vec<_> = seen.collect();
    assert!(format!("{rest:?}").contains("cancelled"), "{rest:?}");
}

/// Requests about a plan may reach any node.
#[test]
fn plans_of_scans_are_found_through_any_node() {
    let _guard = beside_others();
    let root = Scratch::new();
    let pair = Pair::start(&format!("catalog.root = \"{}\"", root.path().display()));
    let (here, there) = (pair.one.client(), pair.two.client());
    let namespaces = "/catalog/v1/main/namespaces";
    ok(&post(&here, namespaces, &json!({"namespace": ["shop"]})));
    let schema = json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "id", "type": "long", "required": false}
    ]});
    let tables = format!("{namespaces}/shop/tables");
    ok(&post(&here, &tables, &json!({"name": "orders", "schema": schema})));
    let plan = ok(&post(&here, &format!("{tables}/orders/plan"), &json!({})));
    let id = plan["plan-id"].as_str().unwrap();
    let target = format!("{tables}/orders/plan/{id}");
    for client in [&here, &there] {
        assert_eq!(ok(&client.get(&target))["status"], "completed");
    }
    // A task of the plan, which is named in the body. The plan is empty, so the task does not
    // exist.
    let task = json!({"plan-task": format!("{id}.0.1.0")});
    for client in [&here, &there] {
        let answer = post(client, &format!("{tables}/orders/tasks"), &task);
        assert_eq!(answer.status, 404, "{}", answer.text());
        assert!(answer.text().contains("NoSuchPlanTask"), "{}", answer.text());
    }
    assert_eq!(there.send(&Request::new("DELETE", &target)).status, 204);
    let gone = here.get(&target);
    assert!(gone.status == 404 || gone.json()["status"] == "cancelled", "{}", gone.text());
}

/// Creates a session at the requested node, regardless of its regular placement.
pub(crate) fn create_at(node: &Sessions) -> String {
    create_of_at(node, &json!({"agent": "probe"}))
}

/// Creates such a session with any request.
pub(crate) fn create_of_at(node: &Sessions, request: &Value) -> String {
    let mut elsewhere = Vec::new();
    let found = loop {
        let before = sandboxes(node);
        let session = node.create(request);
        if sandboxes(node) > before {
            break session;
        }
        // Kept for now: the more sessions there are elsewhere, the sooner one is placed here.
        elsewhere.push(session);
        assert!(elsewhere.len() < 100, "no session is placed here");
    };
    elsewhere.iter().for_each(|session| drop(node.end(session)));
    found
}

/// Requests a node to drain, or to accept work again.
pub(crate) fn drain(server: &Server, verb: &str) {
    let all = nodes_seen_by(server);
    let this = all.iter().find(|node| node["is_this"] == true).unwrap();
    let target = format!("/v1/nodes/{}/{verb}", this["id"].as_str().unwrap());
    ok(&server.client().send(&Request::new("POST", &target)));
}

/// Returns the number of a node's sandboxes, as it reports.
fn sandboxes(sessions: &Sessions) -> u64 {
    let counts = sessions.counts();
    ["warming", "warm", "running", "waiting"].iter().filter_map(|it| counts[it].as_u64()).sum()
}

#[test]
fn a_full_node_passes_new_work_on() {
    let _guard = beside_others();
    let pair = Pair::start_with("", "resident_max = 2\ncapacity = 4");
    let (here, there) = pair.sessions();
    // All four have room, whichever node receives the request, and wherever the agent is placed.
    let started = (0..4).map(|_| {
        let session = here.create(&json!({"agent": "probe"}));
        // Busy sessions, so that none is evicted for another.
        let mut turn = here.send(&session, "hold");
        turn.until("its start", |event| event["type"] == "turn_start");
        (session, turn)
    });
    let all: Vec<_> = started.collect();
    assert_eq!((sandboxes(&here), sandboxes(&there)), (2, 2));
    assert!(nodes_seen_by(&pair.one).iter().all(|node| node["load"]["sandboxes_max"] == 2));
    let fifth = there.try_create(&json!({"agent": "probe"}));
    assert_eq!(fifth.status, 503, "{}", fifth.text());
    all.iter().for_each(|(session, _)| drop(there.end(session)));
}

#[test]
fn a_node_that_drains_takes_no_new_work() {
    let _guard = beside_others();
    let pair = Pair::start("");
    let (here, there) = pair.sessions();
    let kept = &here.create(&json!({"agent": "probe"}));
    drain(&pair.one, "drain");
    drain(&pair.two, "drain");
    let refused = until("both to drain", SOON, || match here.try_create(&json!({})) {
        answer if answer.status == 503 => Ok(answer),
        answer => {
            here.end(answer.json()["id"].as_str().unwrap());
            Err(answer.text())
        }
    });
    assert!(refused.text().contains("drains") && refused.header("retry-after").is_some());
    // Existing sessions continue, and queued executions wait. The session may be in transit from
    // the node that drained first.
    let command = json!({"command": "echo on"});
    let went_on = until("what is there to go on", SOON, || {
        let answer = post(&there.client, &format!("{}/exec", path(kept)), &command);
        if answer.status == 503 { Err(answer.text()) } else { Ok(answer) }
    });
    assert_eq!(ok(&went_on)["stdout"], "on\n");
    let queued = json!({"language": "bash", "source": "echo 1"});
    let queued = post(&here.client, "/v1/executions", &queued).json();
    let target = format!("/v1/executions/{}", queued["id"].as_str().unwrap());
    drain(&pair.two, "undrain");
    until("the other one to take it", SOON, || {
        let state = here.client.get(&target).json()["state"].clone();
        if state == "finished" { Ok(()) } else { Err(state.to_string()) }
    });
    let before = sandboxes(&there);
    let session = until("the other one to be known", SOON, || {
        let answer = here.try_create(&json!({"agent": "probe"}));
        if answer.status == 201 { Ok(answer.json()) } else { Err(answer.text()) }
    });
    assert_eq!(sandboxes(&there), before + 1, "{session}");
    there.end(session["id"].as_str().unwrap());
    there.end(kept);
}

#[test]
fn nodes_are_shown_and_drained_by_an_operator() {
    let _guard = beside_others();
    let pair = Pair::start("cluster.zone = \"a\"");
    let seen = nodes_seen_by(&pair.two);
    assert_eq!(seen.len(), 2);
    let this = seen.iter().find(|node| node["is_this"] == true).unwrap();
    let other = seen.iter().find(|node| node["is_this"] == false).unwrap();
    let address = pair.two.client().address().to_string();
    assert_eq!((&this["address"], &this["zone"]), (&json!(address), &json!("a")));
    assert!(this["peer_address"].is_string() && this["load"]["sandboxes_max"].as_u64() > Some(0));
    let roles = this["roles"].as_array().unwrap();
    assert!(["session", "front", "catalog"].iter().all(|role| roles.contains(&json!(role))));

    let stranger = pair.two.other_client("stranger", &[]);
    for (method, target) in [
        ("GET", "/v1/nodes".to_owned()),
        ("POST", format!("/v1/nodes/{}/drain", other["id"].as_str().unwrap())),
    ] {
        assert_eq!(stranger.send(&Request::new(method, &target)).status, 403, "{target}");
    }
    let run = |arguments: &[&str]| {
        let mut command = testkit::command(COVE);
        command.arg("node").args(arguments).arg("--data-dir").arg(pair.two.data_dir());
        command.output().unwrap()
    };
    let node = |arguments: &[&str]| {
        let output = run(&[arguments, &["--json"]].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let id = other["id"].as_str().unwrap();
    assert_eq!(node(&["drain", id])["state"], "draining");
    assert_eq!(node(&["show", id])["id"], id);
    assert_eq!(node(&["undrain", id])["state"], "active");
    assert_eq!(node(&["list"])["nodes"].as_array().unwrap().len(), 2);
    let missing = run(&["show", "srv_none"]);
    let errors = String::from_utf8_lossy(&missing.stderr);
    assert!(
        missing.status.code() == Some(2) && errors.contains("no node \"srv_none\""),
        "{errors}"
    );
}

/// Returns a free port on loopback.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The network between nodes is slow, cuts connections at any byte, or becomes silent: responses
/// are correct, no operation is done twice, and the nodes recover by themselves.
#[test]
fn the_network_between_nodes_may_fail() {
    let _guard = beside_others();
    let (database, objects) = (Postgres::shared(), Scratch::new());
    let url = database.database();
    let objects = format!("objects.url = \"{}\"\n", objects.path().display());
    let mut one = Server::start_with(COVE, &[], Some(&config(&url, &objects)));
    one.expect_log("failed to pass a request on");
    let port = free_port();
    let network = Cutter::start(SocketAddr::from(([127, 0, 0, 1], port)));
    let reached = format!("cluster.advertise = \"{}\"\n{objects}", network.address());
    let of_two = config(&url, &reached);
    let of_two = of_two.replace("cluster.listen = \"127.0.0.1:0\"", &listen_at(port));
    let two = one.start_beside(&of_two);
    wait_for_each_other(&[&one, &two]);
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    let id = create_at(&there);
    let target = format!("{}/exec", path(&id));
    let note = |number: usize| {
        let command = format!("echo {number} >> notes; echo said {number}");
        here.client.try_send(&post_request(&target, &json!({"command": command})))
    };
    let runs = |number: usize| {
        // If the response body breaks off, the command was started, and its result is unknown.
        let Ok(answer) = note(number) else { return false };
        let is_right =
            answer.status == 200 && answer.json()["stdout"] == format!("said {number}\n");
        match (is_right, answer.status) {
            (true, _) => true,
            // The command was not run, or its result is unknown.
            (false, 502 | 503) => false,
            (false, _) => panic!("{}", answer.text()),
        }
    };
    let mut is_right = Vec::new();
    network.delay(Duration::from_millis(30));
    for number in 0..5 {
        assert!(runs(number));
        is_right.push(number);
    }
    network.delay(Duration::ZERO);

    // Each connection ends at another byte, in a random direction.
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    network.plan(move |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let way = if random & 1 == 0 { Way::Forth } else { Way::Back };
        Some(Cut { way, after: (random >> 33) % 2_500 })
    });
    network.cut_all();
    is_right.extend((5..60).filter(|number| runs(*number)));
    assert!(network.cuts() > 5, "hardly anything was cut: {}", network.cuts());
    network.plan(|_| None);
    network.cut_all();
    until("requests to pass again", SOON, || match runs(60) {
        true => Ok(()),
        false => Err("not yet".to_owned()),
    });

    // An open connection that forwards nothing.
    network.silence(true);
    let started = Stopwatch::start();
    assert!(!runs(100), "nothing passes");
    assert!(started.elapsed() < SOON);
    network.silence(false);
    network.cut_all();
    until("requests to pass again", SOON, || match runs(101) {
        true => Ok(()),
        false => Err("not yet".to_owned()),
    });
    let notes = ok(&post(&there.client, &target, &json!({"command": "cat notes"})));
    let mut notes: Vec<usize> =
        notes["stdout"].as_str().unwrap().lines().map(|line| line.parse().unwrap()).collect();
    notes.retain(|number| *number < 60);
    for number in &is_right {
        assert!(notes.contains(number), "{number} was answered and not done: {notes:?}");
    }
    let count = notes.len();
    notes.sort_unstable();
    notes.dedup();
    assert_eq!(notes.len(), count, "something was done twice");
}

pub(crate) fn listen_at(port: u16) -> String {
    format!("cluster.listen = \"127.0.0.1:{port}\"")
}

/// Executions of one token that may run concurrently on all nodes together: enough for each node to
/// have a share.
const RUNNING_MAX: usize = 8;

/// Returns a program that prints its start and end times.
pub(crate) fn timed(seconds: &str) -> Value {
    shell(&format!("date +%s%N; sleep {seconds}; date +%s%N"))
}

/// Returns the start and end times of a program.
pub(crate) fn span(stdout: &Value) -> [u128; 2] {
    let text = stdout.as_str().unwrap_or_else(|| panic!("no output: {stdout}"));
    let times: Vec<u128> = text.lines().map(|line| line.parse().unwrap()).collect();
    times.try_into().unwrap()
}

/// Returns the maximum number of programs that ran concurrently.
pub(crate) fn most_at_once(spans: &[[u128; 2]]) -> usize {
    let running = |at: u128| spans.iter().filter(|[from, to]| (*from..*to).contains(&at)).count();
    spans.iter().map(|[from, _]| running(*from)).max().unwrap()
}

/// Runs programs concurrently, one after the other in each thread.
pub(crate) fn run_at(clients: &[Client], rounds: usize, seconds: &str) -> Vec<[u128; 2]> {
    std::thread::scope(|scope| {
        let run = |client| {
            move || -> Vec<_> {
                (0..rounds).map(|_| span(&run(client, &timed(seconds))["stdout"])).collect()
            }
        };
        let threads: Vec<_> = clients.iter().map(|client| scope.spawn(run(client))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// The limit applies to any distribution of executions over nodes.
#[test]
fn a_limit_on_executions_of_a_token_holds_over_all_nodes() {
    let _guard = beside_others();
    let settings = format!(
        "cluster.limits = \"strict\"\nexecutions.running_max = {RUNNING_MAX}\n\
         executions.running_max_per_tenant = {RUNNING_MAX}\n"
    );
    let pair = Pair::start(&settings);
    let servers = [&pair.one, &pair.two];
    // Without other tokens, no share is reserved for them.
    let other = pair.one.other_client("other", &[]);
    let others = servers.map(|server| other.at(server.client().address()));
    assert!(others.iter().all(|client| client.get("/v1/languages").status == 200));
    let [here, there] = servers.map(Server::client);

    // Requests to both nodes, and jobs, which either node runs.
    let jobs: Vec<String> = [&here, &there]
        .into_iter()
        .flat_map(|it| submit_all(it, &[timed("0.1"), timed("0.1")]))
        .collect();
    let callers: Vec<Client> = [&here, &there].into_iter().cycle().take(12).cloned().collect();
    let mut spans = run_at(&callers, 4, "0.05");
    let ends = jobs.iter().map(|id| span(&ended(&here, id)["result"]["stdout"]));
    spans.extend(ends);
    let most = most_at_once(&spans);
    assert!((1..=RUNNING_MAX).contains(&most), "{most} at one time: {spans:?}");

    // Unused shares move to the node that needs them.
    for client in [&here, &there] {
        let crowd = [(); RUNNING_MAX].map(|()| client.clone());
        until("all of the limit at one node", SOON, || match run_at(&crowd, 1, "0.5") {
            spans if most_at_once(&spans) == RUNNING_MAX => Ok(()),
            spans => Err(format!("{spans:?}")),
        });
    }
    // Another token has a separate limit.
    assert_eq!(run(&others[1], &shell("echo mine"))["stdout"], "mine\n");
}
