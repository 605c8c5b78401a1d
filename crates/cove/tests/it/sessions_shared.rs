//! Servers that share a store and an object store: any of them can continue a session, but only one
//! at a time.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;
use testkit::{Postgres, Scratch, Server, until};

use crate::asynchronous::post;
use crate::sessions_support::{SOON, Sessions, config, numbers, ok, path, probe, walk};
use crate::support::{COVE, beside_others};

/// Key with which all of them seal secrets.
const SECRETS_KEY: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Returns the configuration of servers that share everything except their disks.
fn shared(database: &str, objects: &Scratch) -> String {
    let objects = objects.path().display().to_string();
    let of_sessions = config("ready = 0\nsnapshot_after_turn = true");
    format!(
        "store.url = {database:?}\nobjects.url = {objects:?}\nsecrets_key = {SECRETS_KEY:?}\n{of_sessions}"
    )
}

/// Two servers, their common agent, and a session of it on the first.
struct Two {
    one: Server,
    two: Server,
    session: String,
    _objects: Scratch,
    _database: std::sync::Arc<Postgres>,
}

fn start() -> Two {
    start_as(Server::start_beside)
}

fn start_as(beside: impl Fn(&Server, &str) -> Server) -> Two {
    let database = Postgres::shared();
    let objects = Scratch::new();
    let config = shared(&database.database(), &objects);
    let one = Server::start_with(COVE, &[], Some(&config));
    let two = beside(&one, &config);
    let sessions = Sessions::from(&one);
    sessions.deploy(&probe("probe"));
    let session =
        sessions.create(&json!({"agent": "probe", "env": {"SEALED": "in the shared store"}}));
    assert_eq!(sessions.ask(&session, "env SEALED"), "in the shared store");
    sessions.out(&session, "echo kept > file; echo home > ~/file; ln -s file link");
    Two { one, two, session, _objects: objects, _database: database }
}

#[test]
fn a_session_that_was_stopped_goes_on_at_another_server() {
    let _guard = beside_others();
    let Two { one, two, session, .. } = &start();
    let (here, there) = (Sessions::from(one), Sessions::from(two));
    // While one server has the session, the other one can show it, but not change it.
    let record = there.record(session);
    assert_eq!(record["id"], session.as_str());
    let message =
        post(&there.client, &format!("{}/messages", path(session)), &json!({"content": "x"}));
    assert_eq!(message.status, 409, "{}", message.text());
    assert_eq!(there.act(session, "resume").status, 409);
    here.ask(session, "one");
    here.did(session, "stop");
    // The session moves back and forth, each time with its whole state.
    let mut sent = vec!["env SEALED".to_owned(), "one".to_owned()];
    let mut seq = 0;
    for (number, (to, from)) in
        [(&there, &here), (&here, &there), (&there, &here)].into_iter().enumerate()
    {
        assert_eq!(to.did(session, "resume")["id"], session.as_str());
        sent.push("recall".to_owned());
        assert_eq!(to.recall(session), sent);
        assert_eq!(to.out(session, "cat file ~/file link"), "kept\nhome\nkept\n");
        assert_eq!(to.ask(session, "env SEALED"), "in the shared store");
        sent.push("env SEALED".to_owned());
        let made = to.out(session, &format!("echo {number} >> log; cat log"));
        assert_eq!(made.lines().count(), number + 1);
        assert_eq!(from.act(session, "resume").status, 409);
        to.did(session, "stop");
        let now = from.record(session)["last_seq"].as_u64().unwrap();
        assert!(now > seq, "{now} after {seq}");
        seq = now;
    }
    let received = numbers(&here.kept(session, 0));
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    // A new session of the agent needs its layer, which was created at the other server.
    let other = there.create(&json!({"agent": "probe"}));
    assert_eq!(there.recall(&other), ["recall"]);
    there.end(&other);
    there.end(session);
    assert_eq!(here.record(session)["state"], "ended");
}

/// A copy has the name of its original, and would take over its sessions.
#[test]
fn a_copy_of_a_data_directory_does_not_speak_for_its_original() {
    let _guard = beside_others();
    let Two { one, two, session, .. } = &start();
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let copied = Command::new("cp").arg("-a").arg(one.data_dir()).arg(&data).status().unwrap();
    assert!(copied.success());
    let config = std::fs::read_to_string(one.scratch().path().join("cove.toml")).unwrap();
    let output = testkit::command(COVE)
        .args(["serve", "--http", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .args(["--bouncer", "127.0.0.1:0", "--bouncer-mysql", "127.0.0.1:0"])
        .arg("--config")
        .arg(scratch.file("cove.toml", &config))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("is running already") && errors.contains("server.id"), "{errors}");
    // The original still has its session.
    let (here, there) = (Sessions::from(one), Sessions::from(two));
    assert!(here.ask(session, "still here").contains("still here"));
    assert_eq!(here.out(session, "cat file"), "kept\n");
    assert_eq!(there.act(session, "resume").status, 409);
}

/// By the clock of this server, all others were last seen ten minutes ago.
#[test]
fn a_server_whose_clock_is_ahead_takes_no_session_from_another() {
    let _guard = beside_others();
    let two = start_as(|one, config| one.start_beside_at(config, "+10m"));
    let Two { one, two, session, .. } = &two;
    let (here, there) = (Sessions::from(one), Sessions::from(two));
    for _ in 0..3 {
        assert_eq!(there.act(session, "resume").status, 409);
        assert!(here.ask(session, "still here").contains("still here"));
    }
    // The first server does not take over a session of this one either.
    let theirs = there.create(&json!({"agent": "probe"}));
    assert_eq!(here.act(&theirs, "resume").status, 409);
    assert!(there.ask(&theirs, "here as well").contains("here as well"));
    // Any server can resume a session that was stopped.
    assert_eq!(ok(&here.act(session, "stop"))["state"], "stopped");
    there.did(session, "resume");
    assert_eq!(there.out(session, "cat file"), "kept\n");
}

#[test]
fn sessions_of_a_server_that_is_gone_go_on_when_its_lease_is_over() {
    let _guard = beside_others();
    // Bound in this order, so that the servers stop before the shared stores.
    let Two { _database, _objects, session, two, mut one } = start();
    let (here, there) = (Sessions::from(&one), Sessions::from(&two));
    // When a turn begins, the files of the previous turn are in the object store.
    for text in ["one", "two"] {
        here.ask(&session, text);
    }
    let mut turn = here.send(&session, "hold /tmp/never");
    turn.until_text("holding");
    one.signal("KILL");
    one.wait(SOON);
    assert_eq!(there.act(&session, "resume").status, 409, "a lease holds for a while");
    until("the lease to be over", SOON, || {
        let response = there.act(&session, "resume");
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    });
    let recalled = there.recall(&session);
    assert_eq!(recalled[..3], ["env SEALED", "one", "two"], "{recalled:?}");
    assert_eq!(there.out(&session, "cat file ~/file link"), "kept\nhome\nkept\n");
    assert_eq!(there.ask(&session, "env SEALED"), "in the shared store");
    // The stored history is one sequence, with one end for each turn.
    let kept = there.kept(&session, 0);
    let received = numbers(&kept);
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    let of = |kind: &str| kept.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of("done"), of("turn_start"), "{kept:?}");
    // After its restart, the first server does not own the session.
    one.restart();
    let here = Sessions::from(&one);
    assert_eq!(here.act(&session, "resume").status, 409);
    there.ask(&session, "there");
    assert_eq!(ok(&there.act(&session, "stop"))["state"], "stopped");
    here.did(&session, "resume");
    let recalled = here.recall(&session);
    assert_eq!(recalled[recalled.len() - 2..], ["there", "recall"], "{recalled:?}");
}

#[test]
fn a_server_whose_store_is_gone_stops_all_the_same() {
    let _guard = beside_others();
    let database = Postgres::start();
    let objects = Scratch::new();
    let mut server = Server::start_with(COVE, &[], Some(&shared(&database.database(), &objects)));
    // The audit is written every second, so a slow stop may interrupt a write.
    let audit = "the audit cannot be written";
    for line in [
        "lost the store",
        "failed",
        "cannot be reached",
        "in the store",
        "alone",
        "put to rest",
        audit,
    ] {
        server.expect_log(line);
    }
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "hello");
    drop(database);
    server.signal("TERM");
    assert!(server.wait(SOON).success());
}

#[test]
fn what_a_turn_has_stored_goes_with_its_session() {
    let _guard = beside_others();
    let objects = Scratch::new();
    let of_sessions = config("ready = 0\nsnapshot_after_turn = true");
    let config = format!("objects.url = {:?}\n{of_sessions}", objects.path().display().to_string());
    let server = Server::start_with(COVE, &[], Some(&config));
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    for _ in 0..2 {
        let session = sessions.create(&json!({"agent": "probe"}));
        // The upload of this file is still in progress when the session ends.
        sessions.out(&session, "head -c 8M /dev/urandom > much");
        sessions.ask(&session, "hello");
        sessions.end(&session);
    }
    // After the server has stopped, no upload can run.
    drop(server);
    let mut left = BTreeSet::new();
    walk(&objects.path().join("disks"), &mut left);
    assert_eq!(left, BTreeSet::new());
}
