//! Nodes that stand still, are cut off one way or from each other, and a store that is started
//! anew: rows of the table in `docs/cluster.md`.

use serde_json::json;
use testkit::{
    Cutter, Postgres, Scratch, Server, Way, node_config, nodes_seen_by, process, until,
    wait_for_each_other,
};

use crate::cluster::{create_of_at, free_port, listen_at};
use crate::cluster_fence::{FencedServers, start_with};
use crate::sessions_support::{Sessions, config, path, probe, start_inside};
use crate::support::{COVE, SOON, beside_others};
use crate::takeover::{
    OVER, SYNCED, TAKEN, life, life_request, marked, wait_for_lapses, wait_for_life,
};

/// Lease of nodes that lose it.
const LEASE_MS: u64 = 3_000;
/// Lease of nodes that keep it, also on a busy machine.
const LONG_LEASE_MS: u64 = 20_000;
/// Time that is far less than that, and in which a node has lost the store.
const MOMENT_MS: u64 = 5_000;

/// By how much the row of another node is older than that of the node which is asked.
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

/// Takes a session over while its owner is not there, and has that come back: nothing of its epoch
/// arrives anywhere from the first effect of the next epoch on.
fn check_takeover(
    stage: &mut FencedServers,
    goes: impl Fn(&FencedServers),
    comes_back: impl Fn(&FencedServers),
) {
    let expected = ["lease", "reach", "told", "lost", "store", "session", "failed"];
    expected.iter().for_each(|line| stage.two.expect_log(line));
    let (here, there) = (Sessions::from(&stage.one), Sessions::from(&stage.two));
    let session = create_of_at(&here, &json!({"agent": "probe", "grants": stage.grants()}));
    here.out(&session, "echo kept > file");
    // A turn has brought its files to the object store when the next one begins.
    for text in ["one", "two"] {
        here.ask(&session, text);
    }
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
    // The first thing that it is asked, and all that its programs had under way.
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

/// Its renewals may arrive, but it does not hear of that.
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

/// For less than its lease: its programs go on all the time, and nobody takes anything over.
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

/// The owner reaches the store, and the other node does not reach it.
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
        for text in ["failed to pass a request on", OVER, "reach", "told"] {
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
    // It answers for itself, and the other one says that it cannot be reached. What was sent over a
    // connection that was there may have been done.
    let ask = || there.client.try_send(&life_request(session)).expect("an answer");
    let refused = until("a request to be refused", SOON, || match ask() {
        answer if answer.status == 502 => Err(answer.text()),
        answer => Ok(answer),
    });
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some(), "{}", refused.text());
    // What only looks is answered from the store.
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

/// Its connections end, it refuses others for longer than a lease, and then it is another process:
/// both nodes look what they have, and go on with it.
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
        for text in ["lease", "told", "store", "failed", "written", "could", "reach", "audit"] {
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
