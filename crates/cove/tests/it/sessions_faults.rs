//! Faults around a session, and the consequences that must not follow.
//!
//! The tests `w01` to `w12` are named after the faults of another agent runtime against which they
//! were written; each would fail there.

use std::collections::BTreeSet;
use std::thread;

use serde_json::{Value, json};
use testkit::{Request, Response, Server, process, until};

use crate::asynchronous::{assert_error, id};
use crate::sessions_support::{
    Heard, SOON, Sessions, guest_init, images, loop_devices, numbers, ok, path, probe,
    serve_sessions, walk, with,
};
use crate::support::{beside_others, settle};

/// Setting without disks that are prepared in advance, so that every image belongs to a session.
const NOTHING_READY: &str = "ready = 0";

/// Kills the sandbox of a session from outside, as the kernel does when memory is short.
fn kill_sandbox(sessions: &Sessions, session: &str) {
    process::signal(guest_init(sessions, session), "KILL");
}

/// Waits until a server has no loop devices of sessions, and at most `before` processes.
fn wait_for_nothing(server: &Server, before: usize) {
    until("every process and loop device of sessions to be gone", SOON, || {
        settle(&server.client());
        let processes = process::descendants(server.pid()).len();
        let devices = loop_devices(server.scratch().path());
        if processes <= before && devices.is_empty() {
            return Ok(());
        }
        Err(format!("{processes} processes, {before} before; {devices:?}"))
    });
}

#[test]
fn w01_no_answer_without_a_token_has_a_key_in_it() {
    let _guard = beside_others();
    let server =
        serve_sessions("[sessions.model]\nurl = \"http://127.0.0.1:9\"\napi_key = \"env:PATH\"");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "hello");
    let anonymous = server.client().anonymous();
    let key = std::env::var_os("PATH").unwrap().to_string_lossy().into_owned();
    for target in [
        "/",
        "/health",
        "/health/ready",
        "/metrics",
        "/docs",
        "/openapi.json",
        "/dashboard",
        "/dashboard/config.js",
        "/api",
        "/api/health",
        "/v1",
        "/v1/agents",
        "/v1/sessions",
        "/v1/credentials",
        "/v1/sandboxes",
        &path(&session),
        &format!("{}/logs", path(&session)),
    ] {
        let response = anonymous.get(target);
        let everything = format!("{:?}\n{}", response.headers, response.text());
        for secret in [server.token(), key.as_str()] {
            assert!(!everything.contains(secret), "{target} tells a key: {everything}");
        }
        let needs_none = ["/health", "/health/ready", "/metrics", "/docs", "/openapi.json"];
        if target.starts_with("/v1/") {
            assert_eq!(response.status, 401, "{target}: {everything}");
        } else if !needs_none.contains(&target) {
            assert_ne!(response.status, 500, "{target}: {everything}");
        }
    }
    // Programs in the sandbox cannot connect to the server either.
    let port = server.client().address().port();
    for peer in [format!("{port}"), format!("127.0.0.1 {port}"), format!("localhost {port}")] {
        let came = sessions.ask(&session, &format!("connect {peer}"));
        assert!(came.starts_with("refused: "), "{peer}: {came}");
    }
}

#[test]
fn w02_a_cold_resume_goes_on_with_the_conversation() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let mut sent = vec!["one".to_owned(), "two".to_owned()];
    for text in &sent {
        sessions.ask(&session, text);
    }
    let who = |sessions: &Sessions| -> Value {
        serde_json::from_str(&sessions.ask(&session, "who")).unwrap()
    };
    let first = who(&sessions);
    assert_eq!((&first["session"], &first["resumed"]), (&json!(session), &Value::Null));
    sent.push("who".to_owned());
    // The sandbox is stopped and started again; then the server, regularly and by a kill.
    for how in ["stop", "TERM", "KILL"] {
        match how {
            "stop" => drop(sessions.did(&session, "stop")),
            "TERM" => {
                server.signal("TERM");
                assert!(server.wait(SOON).success());
                server.restart();
            }
            _ => server.restart(),
        }
        let sessions = Sessions::from(&server);
        sessions.did(&session, "resume");
        assert_eq!(sessions.record(&session)["state"], "active");
        sent.push("recall".to_owned());
        assert_eq!(sessions.recall(&session), sent, "after {how}");
        sent.push("who".to_owned());
        let now = who(&sessions);
        assert_eq!(now["session"], first["session"]);
        assert_eq!(now["conversation"], first["conversation"], "after {how}");
        assert_eq!((&now["resumed"], &now["pid"].is_u64()), (&json!("1"), &true));
    }
}

#[test]
fn w03_every_session_can_be_resumed_after_a_crash() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let make = |text: &str| {
        let session = sessions.create(&json!({"agent": "probe"}));
        sessions.ask(&session, text);
        session
    };
    let [active, running, paused, stopped] = ["active", "running", "paused", "stopped"].map(make);
    let fresh = sessions.create(&json!({"agent": "probe"}));
    sessions.did(&paused, "pause");
    sessions.did(&stopped, "stop");
    let mut turn = sessions.send(&running, "hold /tmp/never");
    turn.until_text("holding");
    let turn = turn.name();
    until("the beginning of the turn to be kept", SOON, || {
        let kept = sessions.kept(&running, 0);
        kept.iter().any(|event| event["turn"] == turn).then_some(()).ok_or("not yet".to_owned())
    });
    server.restart();
    let sessions = Sessions::from(&server);
    for (session, sent) in [
        (&active, vec!["active"]),
        (&running, vec!["running", "hold /tmp/never"]),
        (&paused, vec!["paused"]),
        (&stopped, vec!["stopped"]),
        (&fresh, vec![]),
    ] {
        let record = sessions.record(session);
        assert!(["paused", "stopped"].contains(&record["state"].as_str().unwrap()), "{record}");
        let resumed = sessions.did(session, "resume");
        assert_eq!((&resumed["id"], &resumed["state"]), (&json!(session), &json!("active")));
        let recalled = sessions.recall(session);
        assert_eq!(recalled[..recalled.len() - 1], sent[..], "{record}");
    }
    // The interrupted turn ends with an error.
    let events = sessions.kept(&running, 0);
    let of_turn = |event: &&Value| event["turn"] == turn;
    let cut: Vec<Value> = events.iter().filter(of_turn).cloned().collect();
    let cut = Heard::new(cut);
    assert_eq!(cut.errors().len(), 1, "{cut:?}");
}

#[test]
fn w04_a_sandbox_that_was_killed_is_not_taken_for_alive() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "remember me");
    kill_sandbox(&sessions, &session);
    sessions.wait_for(&session, "paused", "cold");
    let why = sessions.refused(&session, 409, "conflict");
    assert!(why.contains("resume"), "{why}");
    assert_error(&sessions.try_exec(&session, "true"), 409, "conflict", None);
    assert_eq!(sessions.did(&session, "resume")["state"], "active");
    assert_eq!(sessions.recall(&session), ["remember me", "recall"]);
    // A resume works even before the server has detected the loss of the sandbox.
    for _ in 0..3 {
        kill_sandbox(&sessions, &session);
        sessions.did(&session, "resume");
        until("an answer of the sandbox that was resumed", SOON, || {
            // The server may detect the loss after the resume, and pause the session again.
            let response = sessions.try_exec(&session, "echo alive");
            if response.status == 200 {
                assert_eq!(response.json()["stdout"], "alive\n");
                return Ok(());
            }
            sessions.did(&session, "resume");
            Err(response.text())
        });
    }
}

#[test]
fn w05_what_does_not_start_leaves_nothing_behind() {
    let _guard = beside_others();
    let settings = format!("{NOTHING_READY}\nagent_start_s = 1\nresident_max = 6");
    let server = serve_sessions(&settings);
    let sessions = Sessions::from(&server);
    settle(&server.client());
    let processes = process::descendants(server.pid()).len();
    let never =
        with(probe("never"), &json!({"runtime": {"type": "command", "argv": ["sleep", "7342.5"]}}));
    sessions.deploy(&never);
    let layers = images(&server, "layers").len();
    // Far more concurrent requests than places.
    let made: Vec<Response> = thread::scope(|scope| {
        let create = || sessions.try_create(&json!({"agent": "never"}));
        let all: Vec<_> = (0..30).map(|_| scope.spawn(create)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for response in &made {
        assert!([201, 503].contains(&response.status), "{}: {}", response.status, response.text());
    }
    let ids: Vec<String> =
        made.iter().filter(|it| it.status == 201).map(|it| id(&it.json())).collect();
    assert!(ids.len() >= 6, "only {} of 30", ids.len());
    let live = sessions.counts();
    assert!(live["warm"].as_u64().unwrap() + live["waiting"].as_u64().unwrap() <= 6, "{live}");
    assert_eq!(images(&server, "disks").len(), ids.len());
    // The sender of a message receives an error in time.
    let session = &ids[0];
    sessions.did(session, "resume");
    let turn = sessions.hear(session, "hello");
    assert_eq!(turn.errors().len(), 1, "{turn:?}");
    for session in &ids {
        assert_eq!(sessions.end(session)["state"], "ended");
    }
    wait_for_nothing(&server, processes);
    assert_eq!(process::with_marker("7342.5"), [0; 0]);
    assert_eq!(images(&server, "disks").len(), 0);
    assert_eq!(images(&server, "layers").len(), layers);
    sessions.wait_for_counts(&json!({"total": 0}));
}

#[test]
fn w06_what_runs_when_the_sandbox_dies_is_answered_at_once() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let mut turn = sessions.send(&session, "hold /tmp/never");
    turn.until_text("holding");
    let waiting = sessions.send(&session, "after that");
    let marker = format!("74{}.5", std::process::id());
    let command = format!("sleep {marker}");
    thread::scope(|scope| {
        let exec = scope.spawn(|| sessions.try_exec(&session, &command));
        until("the command", SOON, || match process::with_marker(&marker).is_empty() {
            true => Err("not there".to_owned()),
            false => Ok(()),
        });
        kill_sandbox(&sessions, &session);
        assert_error(&exec.join().unwrap(), 409, "conflict", None);
    });
    for turn in [turn.end(), waiting.end()] {
        assert_eq!(turn.errors().len(), 1, "{turn:?}");
    }
    sessions.wait_for(&session, "paused", "cold");
}

#[test]
fn w07_commands_and_messages_at_the_same_time_are_not_mixed() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let mut first = sessions.send(&session, "hold /tmp/go");
    first.until_text("holding");
    let second = sessions.send(&session, "say second");
    let third = sessions.send(&session, "say third");
    thread::scope(|scope| {
        let sessions = &sessions;
        let session = &session;
        for number in 0..8 {
            scope.spawn(move || {
                let text = format!("mixed {number}");
                assert_eq!(sessions.out(session, &format!("echo {text}")), format!("{text}\n"));
            });
        }
    });
    sessions.out(&session, "touch /tmp/go");
    for (turn, result) in [
        (first, "released"),
        (second, "You said: say second [messages: 2]"),
        (third, "You said: say third [messages: 3]"),
    ] {
        assert_eq!(turn.end().result(), result);
    }
    let history = ok(&sessions.client.get(&format!("{}/messages", path(&session))));
    let text: Vec<&Value> = history["messages"].as_array().unwrap().iter().collect();
    let roles: Vec<&str> = text.iter().map(|it| it["role"].as_str().unwrap()).collect();
    // The first turn has two messages of the agent: it sent one before it was released.
    let expected = ["user", "assistant", "assistant", "user", "assistant", "user", "assistant"];
    assert_eq!(roles, expected, "{history}");
}

#[test]
fn w08_a_fork_has_the_files_and_the_conversation() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let parent = sessions.probe();
    sessions.ask(&parent, "before");
    sessions.out(
        &parent,
        "echo parent > f.txt; mkdir -p .git node_modules/x; echo 1 > a.lock; echo h > ~/h",
    );
    let child = sessions.fork(&parent);
    let record = sessions.record(&child);
    assert_eq!((&record["state"], &record["parent"]), (&json!("active"), &json!(parent)));
    let list = "ls -A . node_modules; cat f.txt a.lock ~/h";
    assert_eq!(sessions.out(&child, list), sessions.out(&parent, list));
    assert_eq!(sessions.recall(&child), ["before", "recall"]);
    // From here on, the two sessions differ.
    sessions.out(&child, "echo child > f.txt; rm a.lock");
    sessions.ask(&parent, "after");
    assert_eq!(sessions.out(&parent, "cat f.txt a.lock"), "parent\n1\n");
    assert_eq!(
        sessions.out(&child, "cat f.txt; ls a.lock 2>&1 || true").lines().next(),
        Some("child")
    );
    assert_eq!(sessions.recall(&child), ["before", "recall", "recall"]);
    // A cold session can be forked, too, and so can a fork.
    sessions.did(&child, "stop");
    let grandchild = sessions.fork(&child);
    assert_eq!(sessions.out(&grandchild, "cat f.txt"), "child\n");
    assert_eq!(sessions.recall(&grandchild), ["before", "recall", "recall", "recall"]);
    sessions.end(&parent);
    sessions.end(&child);
    assert_eq!(sessions.out(&grandchild, "cat f.txt"), "child\n");
}

#[test]
fn w10_an_ended_session_leaves_no_file() {
    let _guard = beside_others();
    let server = serve_sessions(NOTHING_READY);
    let sessions = Sessions::from(&server);
    settle(&server.client());
    let processes = process::descendants(server.pid()).len();
    sessions.deploy(&probe("probe"));
    let files = || {
        let mut found = BTreeSet::new();
        for directory in ["sessions", "objects"] {
            walk(&server.data_dir().join(directory), &mut found);
        }
        found
    };
    // The agent's files remain, so they are created before the comparison.
    let warm = sessions.create(&json!({"agent": "probe"}));
    sessions.end(&warm);
    wait_for_nothing(&server, processes);
    let before = files();
    for how in ["active", "stopped", "forked"] {
        let session = sessions.create(&json!({"agent": "probe"}));
        sessions.ask(&session, "hello");
        sessions.out(&session, "head -c 300000 /dev/urandom > noise");
        match how {
            "stopped" => drop(sessions.did(&session, "stop")),
            "forked" => {
                let child = sessions.fork(&session);
                sessions.end(&child);
            }
            _ => {}
        }
        let ended = sessions.end(&session);
        assert_eq!((&ended["state"], &ended["sandbox"]), (&json!("ended"), &json!("cold")));
        let message = sessions.refused(&session, 410, "gone");
        assert!(!message.is_empty());
        // Ending it again succeeds, and it cannot be resumed.
        assert_eq!(sessions.end(&session)["state"], "ended");
        assert_error(&sessions.act(&session, "resume"), 410, "gone", None);
        wait_for_nothing(&server, processes);
        // A sweep removes the layer below a fork later: its creator may still be recording it.
        let left: Vec<_> = files().difference(&before).cloned().collect();
        let is_layer = |path: &&String| path.contains("/layers/");
        assert!(left.iter().filter(|path| !is_layer(path)).count() == 0, "{how}: {left:?}");
        assert!(how == "forked" || left.is_empty(), "{how}: {left:?}");
    }
}

/// The content of a message is stored and returned unchanged, as text or as blocks.
#[test]
fn w11_content_is_taken_as_it_is() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let block = |text: &str| json!({"type": "text", "text": text});
    let contents = [
        json!("hi"),
        json!([block("hi")]),
        json!([block("one"), block("two")]),
        json!("[\"hi\"]"),
        json!("line\nbreak \u{1F980} \u{0} \u{2028}"),
    ];
    for content in &contents {
        let turn = sessions.send_as(&session, &json!({"content": content})).end();
        assert_eq!(turn.errors(), [""; 0], "{content}");
        assert_eq!(turn.events[0]["data"]["content"], *content);
    }
    let history = ok(&sessions.client.get(&format!("{}/messages", path(&session))));
    let messages = history["messages"].as_array().unwrap();
    let kept = messages.iter().filter(|it| it["role"] == "user").map(|it| &it["content"]);
    assert_eq!(kept.collect::<Vec<_>>(), contents.iter().collect::<Vec<_>>());
    let recalled = sessions.recall(&session);
    assert_eq!(recalled[..3], ["hi", "hi", "one\ntwo"]);
    assert_eq!(recalled[4], contents[4].as_str().unwrap());
}

#[test]
fn w12_a_resume_brings_back_everything() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.out(
        &session,
        r#"set -e
        mkdir -p .git/objects node_modules/a/b __pycache__ .cache .npm .pnpm-store .yarn .venv venv
        mkdir -p .tmp tmp 'a dir with spaces' empty
        for name in yarn.lock Cargo.lock poetry.lock uv.lock a.sock a.pid .env .hidden; do
            echo "$name" > "$name"; echo "$name" > "node_modules/a/b/$name"
        done
        echo object > .git/objects/1; echo cache > .cache/c; echo tmp > tmp/t; echo v > .venv/v
        ln -s yarn.lock link; ln -s /etc/hostname absolute; ln -s nowhere dangling
        ln yarn.lock hard; mkfifo pipe; printf 'a\nb' > "$(printf 'new\nline')"; : > nothing
        chmod 4751 a.sock; chmod 000 a.pid; chmod 1777 empty
        touch -d '2001-02-03 04:05:06.789' Cargo.lock
        truncate -s 10M sparse; echo end >> sparse
        python3 -c 'import os; os.setxattr("nothing", "user.kept", b"yes")'
        mkdir -p ~/.config; echo home > ~/.config/f"#,
    );
    let list = r#"set -e; cd /
        find workspace home/user ! -name '*.jsonl' -printf '%p %y %m %s %n %l %T@\n' | sort
        find workspace home/user ! -uid $(id -u) -o ! -gid $(id -g)
        find workspace home/user -type f -readable ! -name '*.jsonl' -exec sha256sum {} + | sort
        python3 -c 'import os; print(os.getxattr("/workspace/nothing", "user.kept"))'
        du -k workspace/sparse"#;
    let before = sessions.out(&session, list);
    assert!(before.contains("node_modules/a/b/Cargo.lock"), "{before}");
    for how in ["stop", "restart"] {
        match how {
            "stop" => drop(sessions.did(&session, "stop")),
            _ => server.restart(),
        }
        let sessions = Sessions::from(&server);
        sessions.did(&session, "resume");
        assert_eq!(sessions.out(&session, list), before, "after {how}");
    }
}

#[test]
fn a_listener_that_goes_away_leaves_the_turn_alone_or_ends_it() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let check = |session: &Value, message: &Value, error: Option<&str>| {
        let session = sessions.create(&with(json!({"agent": "probe"}), session));
        let message = with(json!({"content": "hold /tmp/go"}), message);
        let mut turn = sessions.send_as(&session, &message);
        turn.until_text("holding");
        drop(turn);
        if error.is_none() {
            // Without a listener, the record still shows that the agent works.
            assert_eq!(sessions.record(&session)["sandbox"], "running");
            sessions.out(&session, "touch /tmp/go");
        }
        sessions.wait_for(&session, "active", "waiting");
        let stored = Heard::new(of_turns(&sessions.kept(&session, 0)));
        match error {
            Some(error) => assert!(stored.errors()[0].contains(error), "{stored:?}"),
            None => assert_eq!(stored.result(), "released"),
        }
        sessions.end(&session);
    };
    let (go_on, interrupt) =
        (json!({"on_disconnect": "continue"}), json!({"on_disconnect": "interrupt"}));
    check(&json!({}), &json!({}), None);
    check(&go_on, &json!({}), None);
    check(&interrupt, &json!({}), Some("interrupt"));
    check(&json!({}), &interrupt, Some("interrupt"));
    check(&interrupt, &go_on, None);
}

/// Returns the events that belong to turns.
fn of_turns(events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| !event["turn"].is_null()).cloned().collect()
}

#[test]
fn a_listener_that_does_not_read_does_not_slow_the_agent() {
    let _guard = beside_others();
    let server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    let request = crate::asynchronous::post_request(
        &format!("{}/messages", path(&session)),
        // More than the buffers of a connection hold: 4 MiB on the server's side, and little here.
        &json!({"content": "flood 60 100000"}),
    );
    let mut unread = server.client().events_by(&request).unwrap();
    let watching = Request::new("GET", &format!("{}/events", path(&session)));
    let mut also_unread = server.client().events_by(&watching).unwrap();
    let quick: Vec<_> = server
        .client()
        .events(&format!("{}/events?types=text,done", path(&session)))
        .unwrap()
        .take_while(|event| event.name != "done")
        .collect();
    assert_eq!(quick.len(), 61, "all of it was said while two did not read");
    // The two clients that did not read miss no events.
    for events in [&mut unread, &mut also_unread] {
        let mut texts = 0;
        for event in events {
            texts += usize::from(event.name == "text");
            if event.name == "done" {
                break;
            }
        }
        assert_eq!(texts, 61);
    }
    sessions.wait_for(&session, "active", "waiting");
}

#[test]
fn every_turn_has_an_end_whatever_becomes_of_its_agent() {
    let _guard = beside_others();
    let settings = "agent_start_s = 20\nline_bytes_max = 1000000\nturn_s = 3";
    let server = serve_sessions(settings);
    let sessions = Sessions::from(&server);
    sessions.deploy(&probe("probe"));
    let session = sessions.create(&json!({"agent": "probe", "limits": {"memory_bytes": 96 << 20}}));
    let deep = format!("{}{}\n", "[".repeat(1000), "]".repeat(1000));
    let encoded = |bytes: &[u8]| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    for (message, says) in [
        ("exit 3".to_owned(), "exited with code 3"),
        ("kill now".to_owned(), "SIGKILL"),
        ("grow 4000".to_owned(), "memory"),
        (format!("raw {}", encoded(b"this is no JSON\n")), ""),
        (format!("raw {}", encoded(b"\"neither an object\"\n")), ""),
        (format!("raw {}", encoded(b"{\"no\":\"type\"}\n")), ""),
        (format!("raw {}", encoded(deep.as_bytes())), ""),
        ("line 2000000".to_owned(), ""),
        ("hold /tmp/never".to_owned(), "took more than 3 s"),
        ("deaf /tmp/never".to_owned(), "took more than 3 s"),
    ] {
        let turn = sessions.hear(&session, &message);
        let errors = turn.errors();
        assert!(errors.len() == 1 && errors[0].contains(says), "{message}: {turn:?}");
        // The next message reaches a working agent, with the same conversation.
        let answer = sessions.ask(&session, "still there?");
        assert!(answer.starts_with("You said: still there?"), "after {message}: {answer}");
    }
    // Bytes that are not text and events of unknown types are no faults.
    let harmless = b"{\"type\":\"news\",\"text\":\"\xff\xfe\"}\n{\"type\":\"stream_event\"}\n";
    assert_eq!(sessions.ask(&session, &format!("raw {}", encoded(harmless))), "wrote it");
    // Output of the agent ends only its own turn.
    assert_eq!(sessions.ask(&session, "result 3"), "the right one");
    assert_eq!(sessions.ask(&session, "later I was too late"), "said nothing yet");
    let after = sessions.record(&session)["last_seq"].as_u64().unwrap();
    until("what was said between turns", SOON, || {
        let events = sessions.kept(&session, after);
        let late = events.iter().find(|it| it["data"]["text"] == "I was too late");
        match late {
            Some(event) if event["turn"].is_null() => Ok(()),
            Some(event) => panic!("{event} is of no turn"),
            None => Err(format!("{events:?}")),
        }
    });
}

#[test]
fn a_server_that_stops_ends_streams_and_keeps_everything() {
    let _guard = beside_others();
    let mut server = Server::start_with(
        crate::support::COVE,
        &[],
        Some(&format!("drain_s = 1\n{}", crate::sessions_support::config(""))),
    );
    server.expect_log("work was still in progress when the time to drain was up");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "before");
    sessions.out(&session, "echo kept > file");
    let mut turn = sessions.send(&session, "hold /tmp/never");
    turn.until_text("holding");
    let mut watching = server.client().events(&format!("{}/events", path(&session))).unwrap();
    server.signal("TERM");
    // When the time to drain is up, the stream ends at its current position. If it contains the end
    // of the turn, the turn has failed.
    let cut = turn.cut();
    let of = |kind: &str| cut.iter().filter(|event| event["type"] == kind).count();
    let went_well =
        |event: &&Value| event["type"] == "turn_complete" && event["data"]["is_error"] != true;
    assert!(
        cut.iter().filter(went_well).count() == 0 && (of("done") == 0 || of("error") > 0),
        "{cut:?}"
    );
    while let Ok(Some(_)) = watching.try_next() {}
    assert!(server.wait(SOON).success());
    assert_eq!(loop_devices(server.scratch().path()), [""; 0]);
    server.restart();
    let sessions = Sessions::from(&server);
    assert_eq!(sessions.record(&session)["state"], "paused");
    sessions.did(&session, "resume");
    assert_eq!(sessions.recall(&session), ["before", "hold /tmp/never", "recall"]);
    assert_eq!(sessions.out(&session, "cat file"), "kept\n");
}

#[test]
fn who_comes_back_after_a_crash_misses_nothing_and_hears_nothing_twice() {
    let _guard = beside_others();
    let mut server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.probe();
    sessions.ask(&session, "one");
    let target = format!("{}/events", path(&session));
    let mut watching = server.client().events(&target).unwrap();
    let mut streams = Vec::new();
    // In the middle of a turn with many events.
    let turn = sessions.send(&session, "flood 200 1000");
    while streams.len() < 100 {
        streams.push(watching.next().unwrap());
    }
    server.signal("KILL");
    while let Ok(Some(event)) = watching.try_next() {
        streams.push(event);
    }
    drop(turn);
    server.wait(SOON);
    server.restart();
    let sessions = Sessions::from(&server);
    sessions.did(&session, "resume");
    sessions.ask(&session, "two");
    let last = streams.last().unwrap().id.clone();
    let again = Request::new("GET", &target).header("last-event-id", &last);
    let mut rest = Vec::new();
    for event in server.client().events_by(&again).unwrap() {
        let is_last = event.name == "turn_complete"
            && event.data["data"]["result"]
                .as_str()
                .is_some_and(|it| it.starts_with("You said: two"));
        rest.push(event);
        if is_last {
            break;
        }
    }
    let first_rest: u64 = rest[0].id.parse().unwrap();
    assert!(first_rest > last.parse().unwrap(), "{first_rest} after {last}");
    // Both streams together contain all stored events, and perhaps events that were sent before the
    // crash but not stored.
    let together: Vec<Value> =
        streams.iter().chain(&rest).map(|event| event.data.clone()).collect();
    let received = numbers(&together);
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]), "{received:?}");
    let kept = sessions.kept(&session, 0);
    for event in &kept {
        let number = event["seq"].as_u64().unwrap();
        if number > *received.last().unwrap() {
            break;
        }
        assert!(together.contains(event), "{event} was missed");
    }
    let turns: BTreeSet<&str> = kept.iter().filter_map(|event| event["turn"].as_str()).collect();
    assert_eq!(turns.len(), 3);
    for turn in turns {
        let of_turn = kept.iter().filter(|event| event["turn"] == turn).cloned().collect();
        Heard::new(of_turn);
    }
}
