//! Fairness: many sandboxes share few server connections, and one that floods its sockets does not
//! affect the others and leaves nothing behind.

use std::thread;

use serde_json::json;
use testkit::{process, until};

use crate::gateway::{Stage, judge, shop, stage};
use crate::sessions_support::{SOON, Sessions};
use crate::support::beside_others;

/// Program that floods its sockets.
const FLOOD: &str = include_str!("../programs/flood.py");
/// Program that sends ordinary queries.
const NEIGHBOUR: &str = include_str!("../programs/neighbour.py");
/// Correct responses for a neighbour: ten connections with twenty queries.
const RIGHT: &str = "200";
/// Number of concurrent neighbours.
const NEIGHBOURS: usize = 8;
/// Server connections of a tenant in the test setup.
const SERVER_CONNECTIONS: u32 = 5;
/// Maximum descriptors that the server holds for one sandbox: twenty connections and 32 logins for
/// each of two databases, 64 of a proxy, each with an outgoing one.
const DESCRIPTORS_MAX: usize = 300;
/// Maximum memory that the server holds for one sandbox.
const BYTES_MAX: usize = 128 << 20;

/// Creates a session with these programs.
fn session(sessions: &Sessions) -> String {
    let rules = json!([{"hosts": ["example.com"]}]);
    let grants = [shop("read_only"), judge(), json!({"kind": "http", "rules": rules})];
    let session = sessions.create(&json!({"grants": grants}));
    for (name, content) in [("flood.py", FLOOD), ("neighbour.py", NEIGHBOUR)] {
        assert!(sessions.write(&session, name, content.as_bytes()).status < 300);
    }
    session
}

/// Runs all neighbours at once; each must get every response. Returns the maximum number of
/// concurrent server connections.
fn all_are_served(stage: &Stage, sessions: &[String]) -> u32 {
    let mut most = 0;
    thread::scope(|scope| {
        let asking: Vec<_> = sessions
            .iter()
            .map(|session| {
                let command = "/usr/bin/python3 neighbour.py";
                scope.spawn(move || stage.sessions.out(session, command).trim().to_owned())
            })
            .collect();
        while asking.iter().any(|it| !it.is_finished()) {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'clerk'";
            most = most.max(stage.postgres.sql(count).parse().unwrap());
        }
        for client in asking {
            assert_eq!(client.join().unwrap(), RIGHT);
        }
    });
    most
}

#[test]
fn who_floods_slows_nobody_and_leaves_nothing() {
    let _guard = beside_others();
    let stage = stage("");
    let Stage { sessions, server, .. } = &stage;
    let neighbours: Vec<String> = (0..NEIGHBOURS).map(|_| session(sessions)).collect();
    let most = all_are_served(&stage, &neighbours);
    assert!((1..=SERVER_CONNECTIONS).contains(&most), "{most} server connections");

    let flooder = session(sessions);
    sessions.out(&flooder, "true");
    let [descriptors, bytes] = held(server.pid());
    sessions.out(&flooder, "nohup /usr/bin/python3 flood.py > said 2>&1 &");
    let greedy = until("the flood", SOON, || {
        let found = sessions.read(&flooder, "flooded");
        if found.status == 200 {
            return Ok(found.text());
        }
        Err(sessions.read(&flooder, "said").text())
    });
    assert_eq!(greedy, "20", "it gets the connections that are granted, and no more");
    let [more, larger] = held(server.pid());
    assert!(more <= descriptors + DESCRIPTORS_MAX, "{descriptors} descriptors, then {more}");
    assert!(larger <= bytes + BYTES_MAX, "{bytes} bytes, then {larger}");
    let most = all_are_served(&stage, &neighbours);
    assert!(most <= SERVER_CONNECTIONS, "{most} server connections");

    // All its resources are freed at its end.
    sessions.end(&flooder);
    until("its connections are gone", SOON, || {
        let [left, _] = held(server.pid());
        if left <= descriptors + 20 { Ok(()) } else { Err(format!("{descriptors}, {left}")) }
    });
    assert_eq!(sessions.out(&neighbours[0], "/usr/bin/python3 neighbour.py").trim(), RIGHT);
}

/// Returns descriptors and bytes of the server.
fn held(pid: u32) -> [usize; 2] {
    [process::descriptors(pid), usize::try_from(process::resident_bytes(pid)).unwrap()]
}
