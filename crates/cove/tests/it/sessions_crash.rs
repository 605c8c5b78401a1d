//! The server is killed repeatedly while many sessions are in use: nothing that it has acknowledged
//! is lost, and nothing without an owner is left.
//!
//! `TEST_CRASHES=20` runs the full test of twenty kills; the default is a few, so that the suite is
//! fast.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Host, Request, Server, Watch, process, until};

use crate::asynchronous::post_request;
use crate::sessions_support::{
    Heard, SOON, Sessions, images, loop_devices, numbers, ok, path, probe, serve_sessions,
};
use crate::support::{beside_others, settle};
use crate::takeover::turns;

/// Number of sessions.
const SESSIONS: usize = 50;
/// Number of threads, each with its own sessions.
const WORKERS: usize = 10;
/// Default number of kills, which `TEST_CRASHES` overrides.
const CRASHES: usize = 3;
/// Maximum number of responses of a server before it is killed.
const ANSWERS_MAX: usize = 200;

/// Expected state of a session.
#[derive(Debug, Default)]
struct Known {
    id: String,
    /// Messages that the agent has received, in order; it may also have received `unsure`.
    messages: Vec<String>,
    unsure: Option<String>,
    /// Files that were written; `unsure_file` may have been written.
    files: BTreeMap<String, Vec<u8>>,
    unsure_file: Option<String>,
    /// Messages that were answered successfully, over all restarts of the server.
    answered: BTreeSet<String>,
    /// Highest number of a received event.
    seq: u64,
}

/// Pseudo-random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    /// Returns a number below `end` (xorshift64*, Vigna 2016).
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % end
    }
}

fn crashes() -> usize {
    let wanted = std::env::var_os("TEST_CRASHES");
    wanted.map_or(CRASHES, |text| text.to_string_lossy().parse().expect("a number"))
}

/// Uses sessions until the server stops responding.
fn work(client: &Client, sessions: &mut [Known], seed: u64, answers: &AtomicUsize) {
    let mut random = Random(seed | 1);
    for number in 0.. {
        let session = &mut sessions[random.below(SESSIONS / WORKERS)];
        let name = format!("{seed:x}-{number}");
        let answered = match random.below(10) {
            0..4 => say(client, session, &name),
            4..7 => write(client, session, &name, random.below(200_000)),
            7 => act(client, session, "pause"),
            8 => act(client, session, "stop"),
            _ => act(client, session, "resume"),
        };
        if !answered {
            return;
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a message and waits for the end of its turn. Returns whether the server responded.
fn say(client: &Client, session: &mut Known, name: &str) -> bool {
    let text = format!("say {name}");
    let target = format!("{}/messages?wait=true", path(&session.id));
    session.unsure = Some(text.clone());
    let request = post_request(&target, &json!({"content": text}));
    let Ok(response) = client.try_send(&request) else { return false };
    if response.status == 409 {
        // The session was paused, and has not received the message.
        session.unsure = None;
        return act(client, session, "resume");
    }
    let answer = ok(&response);
    assert_eq!(answer["is_error"], false, "{name}: {answer}");
    assert!(answer["result"].as_str().unwrap().contains(&text), "{name}: {answer}");
    session.unsure = None;
    session.answered.insert(text.clone());
    session.messages.push(text);
    let seq = answer["seq"].as_u64().unwrap();
    assert!(seq > session.seq, "number {seq} after {}", session.seq);
    session.seq = seq;
    true
}

fn write(client: &Client, session: &mut Known, name: &str, size: usize) -> bool {
    let content: Vec<u8> = name.bytes().cycle().take(size).collect();
    let target = format!("{}/files/{name}", path(&session.id));
    session.unsure_file = Some(name.to_owned());
    let Ok(response) = client.try_send(&Request::new("PUT", &target).body(content.clone())) else {
        return false;
    };
    assert!((200..300).contains(&response.status), "{name}: {}", response.text());
    session.unsure_file = None;
    session.files.insert(name.to_owned(), content);
    true
}

fn act(client: &Client, session: &Known, verb: &str) -> bool {
    let target = format!("{}/{verb}", path(&session.id));
    let Ok(response) = client.try_send(&post_request(&target, &json!({}))) else { return false };
    assert_eq!(response.status, 200, "{verb} {}: {}", session.id, response.text());
    true
}

/// Checks that a session has everything that was acknowledged.
fn check(sessions: &Sessions, known: &mut Known) {
    let id = known.id.clone();
    let record = sessions.record(&id);
    assert_eq!(record["id"], id.as_str());
    assert!(["paused", "stopped"].contains(&record["state"].as_str().unwrap()), "{record}");
    sessions.did(&id, "resume");
    let mut recalled = sessions.recall(&id);
    assert_eq!(recalled.pop().as_deref(), Some("recall"));
    let all: Vec<String> = known.messages.iter().cloned().chain(known.unsure.take()).collect();
    let is_all = recalled == all || recalled == known.messages;
    assert!(is_all, "{id}: {recalled:?} instead of {all:?}");
    known.messages = recalled;
    known.messages.push("recall".to_owned());
    for (name, content) in &known.files {
        let response = sessions.read(&id, name);
        assert_eq!((response.status, &response.body == content), (200, true), "{id}: {name}");
    }
    if let Some(name) = known.unsure_file.take() {
        // The unacknowledged write may have had its full effect, a part of it or none.
        assert!([200, 404].contains(&sessions.read(&id, &name).status), "{id}: {name}");
        sessions.out(&id, &format!("rm -f {name}"));
    }
    let mut names: Vec<&String> = known.files.keys().collect();
    names.sort();
    let listed = sessions.out(&id, "ls -A -I probe.py -I __pycache__");
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, names, "{id}");
    check_log(&sessions.kept(&id, 0), known);
    known.seq = sessions.record(&id)["last_seq"].as_u64().unwrap();
}

/// Checks the stored events of a session: complete turns, one for each answered message, and
/// growing numbers.
fn check_log(kept: &[Value], known: &Known) {
    assert!(numbers(kept).windows(2).all(|pair| pair[0] < pair[1]), "{}", known.id);
    let mut turns: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for event in kept {
        if let Some(turn) = event["turn"].as_str() {
            turns.entry(turn).or_default().push(event.clone());
        }
    }
    let all_turns = turns.into_values().map(Heard::new);
    let good = all_turns.filter(|all_turns| all_turns.errors().is_empty());
    let contents: Vec<String> = good
        .map(|all_turns| all_turns.events[0]["data"]["content"].as_str().unwrap().to_owned())
        .collect();
    for text in &known.answered {
        let count = contents.iter().filter(|contents| *contents == text).count();
        assert_eq!(count, 1, "{}: {text} was answered", known.id);
    }
}

/// Kills a server while it works, and waits until all its processes have ended.
fn crash(server: &mut Server) {
    let before = process::descendants(server.pid());
    server.signal("KILL");
    server.wait(SOON);
    until("all processes of the server that was killed to be gone", SOON, || {
        let left: Vec<String> =
            before.iter().filter(|it| it.is_alive()).map(|it| process::name(it.pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    until("all its disks to be detached", SOON, || {
        let devices = loop_devices(server.scratch().path());
        if devices.is_empty() { Ok(()) } else { Err(format!("{devices:?}")) }
    });
    server.restart();
}

#[test]
fn nothing_that_was_answered_is_lost_and_nothing_is_left_behind() {
    let _guard = beside_others();
    let before = Host::snapshot(&Watch::default());
    let seed = RandomState::new().hash_one("crashes");
    let mut random = Random(seed | 1);
    let mut server = serve_sessions(&format!("ready = 0\nresident_max = {}", SESSIONS + 10));
    settle(&server.client());
    let processes = process::descendants(server.pid()).len();
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let create = || Known { id: sessions.create(&json!({"agent": "probe"})), ..Known::default() };
    let mut known: Vec<Known> = (0..SESSIONS).map(|_| create()).collect();
    for round in 0..crashes() {
        let (answers, client) = (AtomicUsize::new(0), server.client());
        let enough = 1 + random.below(ANSWERS_MAX);
        thread::scope(|scope| {
            for (number, own) in known.chunks_mut(SESSIONS / WORKERS).enumerate() {
                let seed = seed.wrapping_add((round * WORKERS + number) as u64);
                let (client, answers) = (&client, &answers);
                scope.spawn(move || work(client, own, seed, answers));
            }
            until(&format!("{enough} answers"), SOON, || {
                let count = answers.load(Ordering::Relaxed);
                if count >= enough { Ok(()) } else { Err(count.to_string()) }
            });
            crash(&mut server);
        });
        let sessions = Sessions::from(&server);
        thread::scope(|scope| {
            for own in known.chunks_mut(SESSIONS / WORKERS) {
                scope.spawn(|| own.iter_mut().for_each(|known| check(&sessions, known)));
            }
        });
    }
    let sessions = Sessions::from(&server);
    for known in &known {
        assert_eq!(sessions.end(&known.id)["state"], "ended");
    }
    assert_eq!(images(&server, "disks"), [""; 0].map(std::path::PathBuf::from));
    until("every process of the sessions to be gone", SOON, || {
        let now = process::descendants(server.pid()).len();
        if now <= processes { Ok(()) } else { Err(format!("{now}, {processes} before")) }
    });
    server.signal("TERM");
    assert!(server.wait(SOON).success());
    assert_eq!(loop_devices(server.scratch().path()), [""; 0]);
    until("the control groups of all its lives to be gone", SOON, || {
        let now = Host::snapshot(&Watch::default());
        let left: Vec<_> = now.groups().difference(before.groups()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Messages that waited when the server was killed wait until their session is resumed.
#[test]
fn messages_that_wait_outlast_the_server() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let mut turn = sessions.send(&session, "hold /tmp/never");
    turn.until_text("holding");
    let waiting = ["run echo second >> told", "run echo third >> told; cat told"];
    let pending = waiting.map(|text| sessions.send(&session, text));
    server.signal("KILL");
    server.wait(SOON);
    drop((turn, pending));
    server.restart();
    let sessions = Sessions::from(&server);
    assert_eq!(sessions.record(&session)["state"], "paused");
    sessions.did(&session, "resume");
    let events = until("the end of all turns", SOON, || {
        let events = sessions.kept(&session, 0);
        let ends = events.iter().filter(|event| event["type"] == "done").count();
        if ends == 3 { Ok(events) } else { Err(format!("{ends} of 3: {events:?}")) }
    });
    let turn_errors = turns(&events);
    let errors: Vec<bool> = turn_errors.iter().map(|(_, error)| error.is_some()).collect();
    assert_eq!(errors, [true, false, false], "{turn_errors:?}");
    let mut results = events.iter().filter(|event| event["type"] == "turn_complete");
    assert_eq!(results.next_back().unwrap()["data"]["result"], "second\nthird\n");
    // A pause ends waiting messages, also across a restart.
    let mut turn = sessions.send(&session, "hold /tmp/never");
    turn.until_text("holding");
    let refused = sessions.send(&session, "unheard");
    sessions.did(&session, "pause");
    let refused = refused.end();
    assert_eq!(refused.errors(), ["the session was paused: paused"]);
    server.signal("KILL");
    server.wait(SOON);
    server.restart();
    let sessions = Sessions::from(&server);
    sessions.did(&session, "resume");
    assert!(sessions.ask(&session, "on").starts_with("You said: on"));
    let turn_errors = turns(&sessions.kept(&session, 0));
    assert_eq!(
        turn_errors.iter().filter(|(text, _)| text == "unheard").count(),
        1,
        "{turn_errors:?}"
    );
}
