//! Fairness: many sandboxes share few server connections, and one that floods its sockets takes
//! nothing from the others and leaves nothing behind.

use std::thread;

use serde_json::json;
use testkit::{process, until};

use crate::gateway::{Stage, judge, shop, stage};
use crate::sessions_support::{SOON, Sessions};
use crate::support::beside_others;

/// Does to its sockets what it can.
const FLOOD: &str = include_str!("../programs/flood.py");
/// Asks as others do.
const NEIGHBOUR: &str = include_str!("../programs/neighbour.py");
/// Right answers of a neighbour: ten connections of twenty questions.
const RIGHT: &str = "200";
/// Sandboxes that ask at the same time.
const NEIGHBOURS: usize = 8;
/// Server connections of a tenant in the stage.
const SERVER_CONNECTIONS: u32 = 5;
/// Most descriptors that one sandbox holds of the server's: twenty connections and 32 logins of
/// each of two databases, 64 of a proxy, each with one on its way out.
const DESCRIPTORS_MAX: usize = 300;
/// Most memory that one sandbox holds of the server's.
const BYTES_MAX: usize = 128 << 20;

/// A session with these programs.
fn session(sessions: &Sessions) -> String {
    let rules = json!([{"hosts": ["example.com"]}]);
    let grants = [shop("read_only"), judge(), json!({"kind": "http", "rules": rules})];
    let session = sessions.create(&json!({"grants": grants}));
    for (name, content) in [("flood.py", FLOOD), ("neighbour.py", NEIGHBOUR)] {
        assert!(sessions.write(&session, name, content.as_bytes()).status < 300);
    }
    session
}

/// Lets all of them ask at once; each must get every answer. The most server connections that
/// there were at one time.
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

    // All that it held comes back with its end.
    sessions.end(&flooder);
    until("its connections are gone", SOON, || {
        let [left, _] = held(server.pid());
        if left <= descriptors + 20 { Ok(()) } else { Err(format!("{descriptors}, {left}")) }
    });
    assert_eq!(sessions.out(&neighbours[0], "/usr/bin/python3 neighbour.py").trim(), RIGHT);
}

/// Descriptors and bytes of the server.
fn held(pid: u32) -> [usize; 2] {
    [process::descriptors(pid), usize::try_from(process::resident_bytes(pid)).unwrap()]
}
