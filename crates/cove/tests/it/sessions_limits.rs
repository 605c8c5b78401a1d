//! Limits of sessions, and the order of eviction.

use std::{fs, thread};

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, process};

use crate::asynchronous::{assert_error, post};
use crate::sessions_support::{Sessions, config, ok, path, probe, serve_sessions, start_inside};
use crate::support::{COVE, beside_others};

#[test]
fn running_sessions_are_never_evicted_and_waiting_ones_in_their_order() {
    let _guard = beside_others();
    let server = serve_sessions("resident_max = 3\nready = 0");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let create = || sessions.create(&json!({"agent": "probe"}));
    // Sessions that are used first, last, and not at all.
    let (first, last, unused) = (create(), create(), create());
    sessions.ask(&last, "hello");
    sessions.ask(&first, "hello");
    sessions.ask(&last, "hello again");
    let fourth = create();
    sessions.wait_for(&unused, "paused", "cold");
    sessions.ask(&fourth, "hello");
    let fifth = create();
    sessions.wait_for(&first, "paused", "cold");
    sessions.ask(&fifth, "hello");
    // All resident sessions are busy.
    let held: Vec<_> = [&last, &fourth, &fifth]
        .into_iter()
        .map(|session| {
            let mut turn = sessions.send(session, "hold /tmp/go");
            turn.until_text("holding");
            turn
        })
        .collect();
    sessions.wait_for_counts(&json!({"running": 3}));
    let refused = sessions.try_create(&json!({"agent": "probe"}));
    assert_error(&refused, 503, "overloaded", None);
    assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
    assert_error(&sessions.act(&first, "resume"), 503, "overloaded", None);
    // The session that was not resumed is unchanged.
    assert_eq!(sessions.record(&first)["state"], "paused");
    assert_eq!(sessions.counts()["running"], 3);
    for session in [&last, &fourth, &fifth] {
        sessions.out(session, "touch /tmp/go");
    }
    for turn in held {
        assert_eq!(turn.end().result(), "released");
    }
    sessions.did(&first, "resume");
    assert_eq!(sessions.recall(&first), ["hello", "recall"]);
}

#[test]
fn idle_sessions_give_up_their_sandboxes_and_busy_ones_do_not() {
    let _guard = beside_others();
    let server = serve_sessions("idle_s = 2");
    let sessions = Sessions::from(&server);
    let idle = sessions.probe();
    let busy = sessions.create(&json!({"agent": "probe"}));
    let patient = sessions.create(&json!({"agent": "probe", "idle_s": 3600}));
    let mut turn = sessions.send(&busy, "hold /tmp/go");
    turn.until_text("holding");
    sessions.ask(&patient, "hello");
    sessions.ask(&idle, "hello");
    sessions.wait_for(&idle, "paused", "cold");
    for (session, sandbox) in [(&busy, "running"), (&patient, "waiting")] {
        let record = sessions.record(session);
        assert_eq!((&record["state"], &record["sandbox"]), (&json!("active"), &json!(sandbox)));
    }
    sessions.out(&busy, "touch /tmp/go");
    assert_eq!(turn.end().result(), "released");
    sessions.did(&idle, "resume");
    assert_eq!(sessions.recall(&idle), ["hello", "recall"]);
}

#[test]
fn install_runs_inside_and_reaches_nothing_outside() {
    let _guard = beside_others();
    let server = serve_sessions("install_s = 20");
    let sessions = Sessions::from(&server);
    let port = server.client().address().port();
    let secret = server.scratch().file("secret", "on the host");
    let script = format!(
        r#"#!/bin/sh
        exec > report 2>&1
        id -u; pwd; echo $HOME
        cat {secret} || echo no host file
        ls {data} || echo no data directory
        python3 -c "import socket; socket.create_connection(('127.0.0.1', {port}), 3)" || echo no server
        python3 -c "import socket; socket.create_connection(('1.1.1.1', 80), 3)" || echo no network
        env | grep -i cove
        ps -e 2>/dev/null | wc -l
        echo made > made; echo home > ~/made
        "#,
        secret = secret.display(),
        data = server.data_dir().display(),
    );
    let mut agent = probe("installed");
    agent["files"]
        .as_array_mut()
        .unwrap()
        .push(json!({"path": "install.sh", "content": script, "executable": true}));
    sessions.deploy(&agent);
    let session = sessions.create(&json!({"agent": "installed"}));
    let report = sessions.out(&session, "cat report made ~/made");
    for line in ["no host file", "no data directory", "no server", "no network", "made", "home"] {
        assert!(report.lines().any(|it| it == line), "{line}: {report}");
    }
    assert!(!report.contains("on the host"), "{report}");
    assert_ne!(report.lines().next(), Some("0"), "{report}");
    // A failing and a killed install script are reported, and the agent stays as it was.
    for (body, says) in [("exit 7", "7"), ("echo to the end; kill -9 $$", "KILL")] {
        let mut broken = probe("installed");
        broken["files"].as_array_mut().unwrap().push(
            json!({"path": "install.sh", "content": format!("#!/bin/sh\n{body}\n"), "executable": true}),
        );
        let response = post(&sessions.client, "/v1/agents", &broken);
        assert!((400..500).contains(&response.status), "{}", response.text());
        assert!(response.text().contains(says), "{}", response.text());
    }
    assert_eq!(sessions.create(&json!({"agent": "installed"})).len(), session.len());
}

#[test]
fn limits_of_a_session_hold() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let limits = json!({
        "disk_bytes": 32 << 20, "disk_inodes": 2000, "memory_bytes": 128 << 20, "processes": 24,
        "tmp_bytes": 8 << 20, "open_files": 64,
    });
    let session = sessions.create(&json!({"agent": "probe", "limits": limits}));
    assert_eq!(sessions.record(&session)["limits"], limits);
    sessions.ask(&session, "hello");
    let fails = |command: &str, says: &str| {
        let result = sessions.exec(&session, command);
        let all =
            format!("{}{}", result["stdout"].as_str().unwrap(), result["stderr"].as_str().unwrap());
        assert!(all.contains(says), "{command}: {result}");
    };
    fails("head -c 64M /dev/zero > big", "No space left on device");
    sessions.out(&session, "rm big; head -c 16M /dev/urandom > fits; rm fits");
    fails(
        "mkdir d; cd d; for i in $(seq 3000); do : > f$i || exit; done",
        "No space left on device",
    );
    sessions.out(&session, "rm -r d; echo ok > after");
    fails("head -c 16M /dev/zero > /tmp/big", "No space left on device");
    sessions.out(&session, "rm /tmp/big");
    fails("head -c 16M /dev/zero > /dev/shm/big; rm /dev/shm/big", "No space left on device");
    let forks = r#"python3 -c '
import os, signal, time
children = []
try:
    while len(children) < 100:
        child = os.fork()
        if child == 0:
            time.sleep(60)
        children.append(child)
except OSError as error:
    print(len(children), error)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)'"#;
    fails(forks, "Resource temporarily unavailable");
    fails("python3 -c 'f = [open(\"/dev/null\") for _ in range(100)]'", "Too many open files");
    let result = sessions.exec(&session, "python3 -c 'x = bytearray(1 << 30); print(len(x))'");
    assert_ne!(result["exit_code"], 0, "{result}");
    // The session itself still works.
    assert_eq!(sessions.recall(&session), ["hello", "recall"]);
    assert_eq!(sessions.out(&session, "cat after"), "ok\n");
    let figures = ok(&sessions.client.get(&format!("{}/metrics", path(&session))));
    assert!(figures["memory_bytes"].as_u64().unwrap() <= 128 << 20, "{figures}");
    assert!(figures["disk_bytes"].as_u64().unwrap() <= 32 << 20, "{figures}");
    // Another session has the default limits.
    let other = sessions.create(&json!({"agent": "probe"}));
    sessions.out(&other, "head -c 40M /dev/zero > big");
    let inside = start_inside(&sessions, &other);
    assert!(process::name(inside) == "sleep");
}

/// Sandboxes of E2B's clients count as busy from their creation: a request that waits for a place
/// must not evict the sandbox of another request whose response is in transit.
#[test]
fn a_burst_of_creates_fills_every_place_and_the_rest_is_refused() {
    const PLACES: usize = 50;
    let _guard = beside_others();
    let settings = format!("memory_bytes = 67108864\nresident_max = {PLACES}\ncapacity = {PLACES}");
    let server = Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&config(&settings)));
    let addresses = fs::read_to_string(server.data_dir().join("addresses.json")).unwrap();
    let addresses: Value = serde_json::from_str(&addresses).unwrap();
    let address = addresses["e2b"].as_str().unwrap().parse().unwrap();
    let ask = |method: &str, path: &str, body: &Value| {
        let request = Request::new(method, path).header("x-api-key", server.token());
        Client::new(address, None).send(&request.body(body.to_string()))
    };
    for count in [60, 200] {
        let create = || ask("POST", "/sandboxes", &json!({ "templateID": "base", "timeout": 600 }));
        let answers: Vec<Response> = thread::scope(|scope| {
            let asking: Vec<_> = (0..count).map(|_| scope.spawn(create)).collect();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 201);
        let others: Vec<_> = refused.iter().filter(|answer| answer.status != 503).collect();
        assert!(others.is_empty(), "{others:?}");
        assert_eq!((made.len(), refused.len()), (PLACES, count - PLACES));
        let running = ask("GET", "/v2/sandboxes?state=running&limit=100", &json!({})).json();
        assert_eq!(running.as_array().unwrap().len(), PLACES, "none was given up for another");
        for answer in made {
            let id = answer.json()["sandboxID"].as_str().unwrap().to_owned();
            assert_eq!(ask("DELETE", &format!("/sandboxes/{id}"), &json!({})).status, 204);
        }
    }
}

#[test]
fn what_is_kept_of_a_session_has_a_bound() {
    const BYTES_MAX: u64 = 2_000_000;
    let _guard = beside_others();
    let server = serve_sessions(&format!("history_bytes_max = {BYTES_MAX}"));
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    assert_eq!(sessions.ask(&session, "flood 10 1000"), "flooded");
    let turn = sessions.hear(&session, "flood 1000 100000");
    let errors = turn.errors();
    assert!(errors.len() == 1 && errors[0].contains("sessions.history_bytes_max"), "{errors:?}");
    let refusal = sessions.refused(&session, 409, "conflict");
    assert!(refusal.contains(&session) && refusal.contains("fork"), "{refusal}");
    let kept = |session: &str| -> usize {
        sessions.kept(session, 0).iter().map(|event| event.to_string().len()).sum()
    };
    // The stored events may exceed the limit by one message of the agent and its events.
    assert!(kept(&session) < 2 * usize::try_from(BYTES_MAX).unwrap(), "{}", kept(&session));
    // The limit still applies after the session was stopped and resumed.
    sessions.did(&session, "stop");
    sessions.did(&session, "resume");
    sessions.refused(&session, 409, "conflict");
    // All else in the session works, and a fork continues.
    assert_eq!(sessions.out(&session, "echo well"), "well\n");
    let fork = sessions.fork(&session);
    assert_eq!(sessions.ask(&fork, "flood 10 1000"), "flooded");
}
