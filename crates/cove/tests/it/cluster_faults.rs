//! Stopped nodes, one-way network failures, nodes that cannot reach each other, and a restarted
//! store: rows of the table in `docs/cluster.md`.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;
use testkit::{
    Cut, Cutter, Postgres, S3, Scratch, Server, Way, node_config, nodes_seen_by, process, until,
    wait_for_each_other,
};

use crate::asynchronous::{id, post_request};
use crate::cluster::{create_of_at, free_port, listen_at};
use crate::cluster_fence::{FencedServers, start_with};
use crate::drain;
use crate::sessions_support::{DISK_BYTES, Sessions, config, path, probe, start_inside};
use crate::support::{COVE, SOON, beside_others, wait_for_log};
use crate::takeover::{
    OVER, SYNCED, TAKEN, life, life_request, marked, wait_for_lapses, wait_for_life,
};

/// Lease of nodes that must lose it.
const LEASE_MS: u64 = 3_000;
/// Lease of nodes that must keep it, also on a busy machine.
const LONG_LEASE_MS: u64 = 20_000;
/// Additional delay of each piece of data to and from the object store.
const SLOW: Duration = Duration::from_millis(100);
/// Size of the disk that is filled.
const SMALL_DISK_BYTES: u64 = 512 << 20;
/// Time that is far shorter than the long lease, during which a node cannot reach the store.
const MOMENT_MS: u64 = 5_000;

/// Returns by how much the other node's row is older than that of the queried node.
fn silence_ms(seen_by: &Server) -> u64 {
    let nodes = nodes_seen_by(seen_by);
    let seen = |is_this: bool| {
        let node = nodes.iter().find(|node| node["is_this"] == is_this).unwrap();
        node["seen_ms"].as_u64().unwrap()
    };
    seen(true).saturating_sub(seen(false))
}

fn wait_for_silence(seen_by: &Server, wanted_ms: u64) {
    until("a node that says nothing", SOON * 3, || match silence_ms(seen_by) {
        ms if ms >= wanted_ms => Ok(()),
        ms => Err(format!("{ms} ms")),
    });
}

/// Takes a session over while its owner is unreachable, and lets the owner return: no effect of its
/// epoch arrives after the first effect of the next epoch.
fn check_takeover(
    stage: &mut FencedServers,
    goes: impl Fn(&FencedServers),
    comes_back: impl Fn(&FencedServers),
) {
    let expected =
        ["lease", "reach", "told", "usage of grants", "lost", "store", "session", "failed"];
    expected.iter().for_each(|line| stage.two.expect_log(line));
    let (here, there) = (Sessions::from(&stage.one), Sessions::from(&stage.two));
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": stage.grants()}));
    here.out(&session, "echo kept > file");
    here.ask(&session, "one");
    here.out(&session, "echo old > life");
    stage.begin(&here, &session);
    stage.wait_for_more(&session, "1");

    goes(stage);
    wait_for_life(&there, &session, "new");
    stage.begin(&there, &session);
    let epoch = stage.latest_epoch();
    assert!(epoch.parse::<u64>().unwrap() > 1, "{epoch}");
    stage.wait_for_more(&session, &epoch);
    let name = format!("cove:{session}:1");
    let before = (stage.rows(&name), stage.requests("1"));

    comes_back(stage);
    // The first request to the returned node, and all requests that its programs had in progress.
    if let Some(found) = life(&here, &session) {
        assert_eq!(found, "new");
    }
    until("the former owner to give up", SOON * 2, || match stage.one.log() {
        log if log.contains(TAKEN) => Ok(()),
        log => Err(log),
    });
    wait_for_life(&here, &session, "new");
    stage.wait_for_more(&session, &epoch);
    assert_eq!((stage.rows(&name), stage.requests("1")), before);
    there.end(&session);
}

#[test]
fn a_node_that_stood_still_for_ten_leases_has_no_effect_when_it_goes_on() {
    let _guard = beside_others();
    let mut stage = start_with(&format!("cluster.lease_ms = {LEASE_MS}\n"));
    check_takeover(
        &mut stage,
        |stage| stage.one.signal("STOP"),
        |stage| {
            wait_for_silence(&stage.two, 10 * LEASE_MS);
            stage.one.signal("CONT");
        },
    );
}

#[test]
fn a_node_whose_requests_do_not_reach_the_store_has_no_effect_after_its_lease() {
    let _guard = beside_others();
    let mut stage = start_with(&format!("cluster.lease_ms = {LEASE_MS}\n"));
    check_takeover(
        &mut stage,
        |stage| stage.way.silence_way(Way::Forth, true),
        |stage| stage.way.silence_way(Way::Forth, false),
    );
}

/// The node's renewals may reach the store, but the node receives no response.
#[test]
fn a_node_that_does_not_hear_the_store_has_no_effect_after_its_lease() {
    let _guard = beside_others();
    let mut stage = start_with(&format!("cluster.lease_ms = {LEASE_MS}\n"));
    check_takeover(
        &mut stage,
        |stage| stage.way.silence_way(Way::Back, true),
        |stage| stage.way.silence_way(Way::Back, false),
    );
}

/// The network fails for less than the lease: the node's programs continue, and no session is taken
/// over.
#[test]
fn a_node_that_is_cut_off_one_way_for_a_moment_goes_on() {
    let _guard = beside_others();
    let mut stage = start_with(&format!("cluster.lease_ms = {LONG_LEASE_MS}\n"));
    stage.two.expect_log("lease");
    let (here, there) = (Sessions::from(&stage.one), Sessions::from(&stage.two));
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": stage.grants()}));
    stage.begin(&here, &session);
    for way in [Way::Forth, Way::Back] {
        stage.way.silence_way(way, true);
        stage.wait_for_more(&session, "1");
        wait_for_silence(&stage.two, MOMENT_MS);
        stage.wait_for_more(&session, "1");
        stage.way.silence_way(way, false);
        until("the node to say something again", SOON, || match silence_ms(&stage.two) {
            ms if ms < MOMENT_MS / 2 => Ok(()),
            ms => Err(format!("{ms} ms")),
        });
        stage.wait_for_more(&session, "1");
    }
    assert!(!stage.two.log().contains("a node is lost"), "{}", stage.two.log());
    assert!(there.read(&session, "program.py").status < 300, "by the other node");
    there.end(&session);
}

/// The server's waits on the store end, although the server receives no error.
#[test]
fn a_server_that_hears_nothing_of_its_store_stops_all_the_same() {
    let _guard = beside_others();
    let mut stage = start_with(&format!("cluster.lease_ms = {LEASE_MS}\n"));
    for text in [
        "failed",
        "reach",
        "rest",
        "session",
        "told",
        "usage of grants",
        "written",
        "nothing listens",
    ] {
        stage.two.expect_log(text);
    }
    for text in ["rest", "written", "alone", "reach", "did not respond", "in the store"] {
        stage.one.expect_log(text);
    }
    let here = Sessions::from(&stage.one);
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": stage.grants()}));
    stage.begin(&here, &session);
    stage.wait_for_more(&session, "1");
    stage.way.silence(true);
    wait_for_log(&stage.one, OVER);
    stage.one.signal("TERM");
    assert!(stage.one.wait(SOON * 2).success(), "{}", stage.one.log());
}

/// The owner reaches the store, but the other node cannot reach the owner.
#[test]
fn a_node_that_its_peers_do_not_reach_keeps_what_it_has() {
    let _guard = beside_others();
    let (database, objects) = (Postgres::shared(), Scratch::new());
    let settings =
        format!("objects.url = \"{}\"\ncluster.lease_ms = {MOMENT_MS}\n", objects.path().display());
    let port = free_port();
    let network = Cutter::start(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
    let (url, tables) = (database.database(), config(SYNCED));
    let advertised = format!("cluster.advertise = \"{}\"\n{settings}", network.address());
    let of_one = node_config(&url, &advertised, &tables);
    let of_one = of_one.replace("cluster.listen = \"127.0.0.1:0\"", &listen_at(port));
    let mut one = Server::start_with(COVE, &[], Some(&of_one));
    let mut two = one.start_beside(&node_config(&url, &settings, &tables));
    for node in [&mut one, &mut two] {
        for text in [
            "failed to pass a request on",
            OVER,
            "reach",
            "told",
            "usage of grants",
            "in the store",
        ] {
            node.expect_log(text);
        }
    }
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    wait_for_each_other(&[&one, &two]);
    let session = &marked(&here);
    wait_for_life(&there, session, "old");

    network.silence(true);
    let started = nodes_seen_by(&one)[0]["seen_ms"].as_u64().unwrap();
    // The owner responds to its own clients, and the other node reports that the owner is
    // unreachable. A request on an existing connection may have been executed.
    let ask = || there.client.try_send(&life_request(session)).expect("an answer");
    let refused = until("a request to be refused", SOON, || match ask() {
        answer if answer.status == 502 => Err(answer.text()),
        answer => Ok(answer),
    });
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some(), "{}", refused.text());
    // Reads are answered from the store.
    assert_eq!(there.client.get(&path(session)).status, 200);
    wait_for_life(&here, session, "old");
    until("more than a lease without a connection", SOON, || {
        let now = nodes_seen_by(&one)[0]["seen_ms"].as_u64().unwrap();
        if now > started + 2 * MOMENT_MS { Ok(()) } else { Err(now.to_string()) }
    });
    wait_for_life(&here, session, "old");
    for node in [&one, &two] {
        assert!(!node.log().contains("a node is lost"), "{}", node.log());
    }

    network.silence(false);
    network.cut_all();
    wait_for_life(&there, session, "old");
    there.end(session);
}

/// The store is stopped for longer than a lease, and then runs as another process: both nodes check
/// their sessions, and continue.
#[test]
fn a_store_that_is_started_anew_makes_nobody_lose_a_session() {
    let _guard = beside_others();
    let (mut database, objects) = (Postgres::start(), Scratch::new());
    let settings =
        format!("objects.url = \"{}\"\ncluster.lease_ms = {LEASE_MS}\n", objects.path().display());
    let config = node_config(&database.database(), &settings, &config(SYNCED));
    let mut one = Server::start_with(COVE, &[], Some(&config));
    let mut two = one.start_beside(&config);
    wait_for_each_other(&[&one, &two]);
    for node in [&mut one, &mut two] {
        for text in [
            "lease",
            "told",
            "usage of grants",
            "store",
            "failed",
            "written",
            "could",
            "reach",
            "audit",
        ] {
            node.expect_log(text);
        }
    }
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    let sessions = [marked(&here), marked(&there)];
    let programs = [start_inside(&here, &sessions[0]), start_inside(&there, &sessions[1])];
    wait_for_lapses([&one, &two], || database.stop());
    database.start_again();
    for session in &sessions {
        wait_for_life(&here, session, "old");
        wait_for_life(&there, session, "old");
    }
    let before = nodes_seen_by(&one)[0]["seen_ms"].as_u64().unwrap();
    until("one more lease", SOON, || {
        let now = nodes_seen_by(&one)[0]["seen_ms"].as_u64().unwrap();
        if now > before + LEASE_MS + 1_000 { Ok(()) } else { Err(now.to_string()) }
    });
    for (session, program) in sessions.iter().zip(programs) {
        wait_for_life(&here, session, "old");
        assert_eq!(process::name(program), "sleep");
        there.end(session);
    }
    for node in [&one, &two] {
        let log = node.log();
        assert!(log.contains("another server stands for the store"), "{log}");
        assert!(!log.contains("a node is lost"), "{log}");
    }
}

/// A replica without the last writes replaces the store: sessions keep their owners, and a session
/// that the replica does not know no longer exists.
#[test]
fn a_replica_that_has_forgotten_something_stands_in_for_the_store() {
    let _guard = beside_others();
    let (mut database, objects) = (Postgres::start(), Scratch::new());
    let (replica, way) = (database.replica(), Cutter::start(database.tcp()));
    let store = database.database();
    let store = store.replace(&database.tcp().to_string(), &way.address().to_string());
    let settings = format!("objects.url = \"{}\"\n", objects.path().display());
    let config = node_config(&store, &settings, &config(SYNCED));
    let mut one = Server::start_with(COVE, &[], Some(&config));
    let mut two = one.start_beside(&config);
    for node in [&mut one, &mut two] {
        for text in [
            "lease",
            "told",
            "usage of grants",
            "store",
            "failed",
            "written",
            "could",
            "reach",
            "audit",
        ] {
            node.expect_log(text);
        }
    }
    // Logged for the session that is unknown to the replica.
    two.expect_log(TAKEN);
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    wait_for_each_other(&[&one, &two]);
    let sessions = [marked(&here), marked(&there)];
    let programs = [start_inside(&here, &sessions[0]), start_inside(&there, &sessions[1])];
    replica.stop_following();
    let forgotten = marked(&there);
    here.out(&sessions[0], "echo meanwhile > meanwhile");

    database.stop();
    replica.promote();
    way.lead_to(replica.tcp());
    way.cut_all();
    for node in [&one, &two] {
        wait_for_log(node, "another server stands for the store");
    }
    wait_for_renewals(&one, &two);
    for (session, program) in sessions.iter().zip(programs) {
        wait_for_life(&here, session, "old");
        wait_for_life(&there, session, "old");
        assert_eq!(process::name(program), "sleep");
    }
    assert_eq!(there.out(&sessions[0], "cat meanwhile"), "meanwhile\n");
    for node in [&here, &there] {
        // The session's node keeps it in memory until it writes to it.
        until("the session to be none", SOON, || {
            let answer = node.client.send(&life_request(&forgotten));
            if answer.status == 404 { Ok(()) } else { Err(answer.text()) }
        });
        // A request that comes before the space is measured again is asked to come again.
        let made = until("a session elsewhere", SOON, || {
            let response = node.try_create(&json!({"agent": "probe"}));
            match response.status {
                201 => Ok(id(&response.json())),
                503 => Err(response.text()),
                _ => panic!("{}", response.text()),
            }
        });
        assert!(there.ask(&made, "hello").contains("hello"));
        there.end(&made);
    }
    for session in &sessions {
        there.end(session);
    }
    for node in [&one, &two] {
        assert!(!node.log().contains("a node is lost"), "{}", node.log());
    }
}

/// The wall clock only affects displayed times.
#[test]
fn a_node_whose_wall_clock_is_set_keeps_what_it_has_and_takes_nothing() {
    let _guard = beside_others();
    let (database, objects) = (Postgres::shared(), Scratch::new());
    let settings = format!("objects.url = \"{}\"\n", objects.path().display());
    let config = node_config(&database.database(), &settings, &config(SYNCED));
    let one = Server::start_with(COVE, &[], Some(&config));
    let two = one.start_beside_with_clock(&config);
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    wait_for_each_other(&[&one, &two]);
    let sessions = [marked(&here), marked(&there)];
    let programs = [start_inside(&here, &sessions[0]), start_inside(&there, &sessions[1])];
    let jobs = [&here, &there].map(submit_slow);
    for ahead_s in [600, -600, 0] {
        two.set_clock(ahead_s);
        wait_for_renewals(&one, &two);
        for (session, program) in sessions.iter().zip(programs) {
            wait_for_life(&here, session, "old");
            wait_for_life(&there, session, "old");
            assert_eq!(process::name(program), "sleep");
        }
        let made = there.create(&json!({"agent": "probe"}));
        assert!(here.ask(&made, "hello").contains("hello"));
        there.end(&made);
    }
    for job in jobs {
        let record = until("the end of an execution", SOON, || {
            let record = here.client.get(&format!("/v1/executions/{job}")).json();
            if record["state"] == "finished" { Ok(record) } else { Err(record.to_string()) }
        });
        assert_eq!(
            (&record["attempts"], &record["result"]["stdout"]),
            (&json!(1), &json!("once\n"))
        );
    }
    for (node, session) in [&here, &there].into_iter().zip(&sessions) {
        node.end(session);
    }
    for node in [&one, &two] {
        let log = node.log();
        assert!(!log.contains("a node is lost") && !log.contains(OVER), "{log}");
    }
}

/// Submits an execution that runs while the clock is changed.
fn submit_slow(node: &Sessions) -> String {
    let job = json!({"argv": ["sh", "-c", "sleep 5; echo once"]});
    let accepted = node.client.send(&post_request("/v1/executions", &job));
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    id(&accepted.json())
}

/// Waits until both nodes have renewed their leases several times, by the store's clock.
fn wait_for_renewals(one: &Server, two: &Server) {
    let seen = |node: &Server| -> Vec<u64> {
        let mut nodes = nodes_seen_by(node);
        nodes.sort_by_key(|node| node["id"].to_string());
        nodes.iter().map(|node| node["seen_ms"].as_u64().unwrap()).collect()
    };
    let before = seen(one);
    for node in [one, two] {
        until("renewals of both nodes", SOON, || {
            let now = seen(node);
            match now.iter().zip(&before).all(|(now, before)| *now > before + 3_000) {
                true => Ok(()),
                false => Err(format!("{before:?}, {now:?}")),
            }
        });
    }
}

/// While the object store fails, no session gets older files, and when it is slow, callers wait.
#[test]
fn sessions_of_a_lost_node_wait_for_an_object_store_that_fails_and_then_is_slow() {
    let _guard = beside_others();
    let (database, objects) = (Postgres::shared(), S3::start());
    let way = Cutter::start(objects.address());
    let store = database.database();
    let at = |address: std::net::SocketAddr| {
        let url = objects.url("cluster");
        let url = url.replace(&objects.address().to_string(), &address.to_string());
        let settings = format!(
            "objects.url = {url:?}\nobjects.access_key_id = {:?}\n\
             objects.secret_access_key = {:?}\n",
            objects.access_key_id, objects.secret_access_key
        );
        node_config(&store, &settings, &config(SYNCED))
    };
    let mut one = Server::start_with(COVE, &[], Some(&at(objects.address())));
    let mut two = one.start_beside(&at(way.address()));
    for text in
        ["failed", "lost", "told", "usage of grants", "taken over", "object store", "could not"]
    {
        two.expect_log(text);
    }
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    wait_for_each_other(&[&one, &two]);
    let sessions: Vec<String> = (0..3).map(|_| marked(&here)).collect();
    way.plan(|_| Some(Cut { way: Way::Forth, after: 0 }));
    way.cut_all();
    one.signal("KILL");
    one.wait(SOON);
    wait_for_log(&two, "a node is lost");
    let cut = way.cuts();
    for session in &sessions {
        let refused = until("a request to be refused", SOON, || {
            let answer = there.client.send(&life_request(session));
            if answer.status == 502 { Err(answer.text()) } else { Ok(answer) }
        });
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{}", refused.text());
    }
    assert!(way.cuts() > cut, "it was asked for");
    way.delay(SLOW);
    way.plan(|_| None);
    for session in &sessions {
        wait_for_life(&there, session, "new");
    }
    // Later writes are slow as well.
    for session in &sessions {
        assert!(there.ask(session, "three").contains("three"));
        let recalled = there.recall(session);
        assert_eq!((&*recalled[0], &*recalled[recalled.len() - 2]), ("one", "three"));
        there.end(session);
    }
}

/// Separate file system for the data of a node. Servers on it must end before it is dropped.
struct SmallDisk(Scratch);

impl SmallDisk {
    fn mount() -> SmallDisk {
        let directory = Scratch::new();
        let options = format!("size={SMALL_DISK_BYTES},mode=0700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "cove-test"]).arg(directory.path());
        assert!(mount.status().unwrap().success());
        SmallDisk(directory)
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = File::create(self.0.path().join("filling")).unwrap();
        let piece = vec![1; 1 << 20];
        while file.write_all(&piece).is_ok() {}
        for _ in 0..piece.len() {
            if file.write_all(&[1]).is_err() {
                return;
            }
        }
        panic!("the disk has no end");
    }

    fn free(&self) {
        fs::remove_file(self.0.path().join("filling")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.unwrap().success() || thread::panicking());
    }
}

/// The sessions of the node can be read and handed over, and new ones are created elsewhere.
#[test]
fn a_node_whose_disk_is_full_loses_nothing_and_gets_no_new_sessions() {
    let _guard = beside_others();
    let (database, objects, disk) = (Postgres::shared(), Scratch::new(), SmallDisk::mount());
    let settings = format!("objects.url = \"{}\"\n", objects.path().display());
    let least = format!("{SYNCED}\ndisk_free_bytes_min = {DISK_BYTES}");
    let config = node_config(&database.database(), &settings, &config(&least));
    let mut one = Server::start_on(COVE, &config, |scratch| {
        symlink(disk.0.path(), scratch.path().join("data")).unwrap();
    });
    let two = one.start_beside(&config);
    for text in ["full", "failed", "written", "cannot", "No space", "handed over"] {
        one.expect_log(text);
    }
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    here.deploy(&probe("probe"));
    wait_for_each_other(&[&one, &two]);
    let sessions: Vec<String> = (0..3).map(|_| marked(&here)).collect();
    // Data that is not on the disk before it is full is lost.
    for session in &sessions {
        here.out(session, "sync file life");
    }
    disk.fill();
    until("the node to say that its disk is full", SOON, || {
        let ready = one.client().get("/health/ready");
        if ready.status == 503 { Ok(()) } else { Err(ready.text()) }
    });
    for session in &sessions {
        wait_for_life(&there, session, "old");
    }
    for node in [&here, &there] {
        // A request that comes before the space is measured again is asked to come again.
        let made = until("a session elsewhere", SOON, || {
            let response = node.try_create(&json!({"agent": "probe"}));
            match response.status {
                201 => Ok(id(&response.json())),
                503 => Err(response.text()),
                _ => panic!("{}", response.text()),
            }
        });
        assert!(there.ask(&made, "hello").contains("hello"));
        there.end(&made);
    }
    let id = nodes_seen_by(&one).into_iter().find(|node| node["is_this"] == true).unwrap();
    let id = id["id"].as_str().unwrap();
    let drained = drain::node(&two, &["drain", id, "--wait", "--timeout", "60s"]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}\n{}", one.log());
    for session in &sessions {
        wait_for_life(&there, session, "old");
        there.end(session);
    }
    disk.free();
    until("the node to be ready", SOON, || {
        let ready = one.client().get("/health/ready");
        if ready.status == 200 { Ok(()) } else { Err(ready.text()) }
    });
    one.signal("TERM");
    assert!(one.wait(SOON).success());
}
