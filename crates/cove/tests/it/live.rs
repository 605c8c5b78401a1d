//! Executions followed while they run: events, input, terminals, and the cost of slow and
//! misbehaving clients.

use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::{Client, Message, Request, Server, WebSocket, process, until};

use crate::asynchronous::{
    SOON, assert_error, ended, path, record, set_paused, socket, submit, submit_all, wait_for_state,
};
use crate::support::{
    alone_on_host, beside_others, held, serve, serve_with, settle, shell, wait_for_sleep,
    wait_until_gone, wake, warm_up,
};

/// Maximum memory that a flood of any size may cost the server.
const FLAT_BYTES: u64 = 24 << 20;

/// Size of the input for a program that does not read: far more than the kernel's buffers hold.
const INPUT_BYTES: usize = 64 << 20;

/// Returns an execution with interactive standard input.
fn interactive(script: &str) -> Value {
    let mut request = shell(script);
    request["interactive"] = json!(true);
    request
}

/// Returns the path of an execution's events.
fn events_path(id: &str) -> String {
    format!("{}/events", path(id))
}

/// Returns the types of events.
fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// Returns the bytes of one stream.
fn bytes(events: &[Value], stream: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events.iter().filter(|event| event["type"] == stream) {
        match (event["data"].as_str(), event["data_base64"].as_str()) {
            (Some(text), None) => bytes.extend(text.as_bytes()),
            (None, Some(text)) => bytes.extend(BASE64.decode(text).unwrap()),
            _ => panic!("not exactly one of both: {event}"),
        }
    }
    bytes
}

/// Returns the text of one stream.
fn text(events: &[Value], stream: &str) -> String {
    String::from_utf8(bytes(events, stream)).unwrap()
}

/// Asserts that sequence numbers grow by one.
fn assert_unbroken(events: &[Value], after: u64) {
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (after + 1..=after + events.len() as u64).collect();
    assert_eq!(numbers, expected);
}

/// Follows an execution to its end, and returns its events.
fn follow(client: &Client, id: &str, after: u64) -> Vec<Value> {
    let stream = client.events(&format!("{}?after={after}", events_path(id)));
    let stream = stream.unwrap_or_else(|response| panic!("{}", response.text()));
    let events: Vec<_> = stream.collect();
    for event in &events {
        assert_eq!(event.id, event.data["seq"].to_string());
        assert_eq!(event.name, event.data["type"].as_str().unwrap());
    }
    events.into_iter().map(|event| event.data).collect()
}

/// Reads events until the bytes of `stream` contain `wanted`.
fn read_until(socket: &mut WebSocket, stream: &str, wanted: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        events.push(socket.json());
        let so_far = String::from_utf8_lossy(&bytes(&events, stream)).into_owned();
        if so_far.contains(wanted) {
            return events;
        }
    }
}

#[test]
fn events_come_in_order_and_from_anywhere() {
    let _guard = beside_others();
    let mut server = serve();
    let client = server.client();
    set_paused(&client, true);
    let id = submit(&client, &shell("echo one; echo two >&2; sleep 0.2; echo three"));
    // Clients that connect before the execution starts, by both protocols.
    let early: Vec<_> = (0..3)
        .map(|number| {
            let (client, id) = (client.clone(), id.clone());
            thread::spawn(move || match number {
                0 => follow(&client, &id, 0),
                _ => {
                    let (events, code) = socket(&client, &id).rest();
                    assert_eq!(code, 1000);
                    events
                }
            })
        })
        .collect();
    set_paused(&client, false);
    let all = follow(&client, &id, 0);
    for listener in early {
        let seen = listener.join().unwrap();
        assert_eq!(names(&seen), names(&all));
        assert_eq!(bytes(&seen, "stdout"), bytes(&all, "stdout"));
    }
    assert_unbroken(&all, 0);
    let kinds = names(&all);
    assert_eq!(kinds[..3], ["queued", "started", "stage"], "{kinds:?}");
    assert_eq!(kinds[kinds.len() - 2..], ["exit", "verdict"], "{kinds:?}");
    assert_eq!(text(&all, "stdout"), "one\nthree\n");
    assert_eq!(text(&all, "stderr"), "two\n");
    let last = all.last().unwrap();
    assert_eq!(
        (&last["verdict"], &last["result"]["stdout"]),
        (&json!("OK"), &json!("one\nthree\n"))
    );
    assert_eq!(last["result"], record(&client, &id)["result"]);

    // A client may resume after any event number, by query or by header; after the last number it
    // receives no events.
    let count = all.len() as u64;
    for after in 0..=count {
        let rest = follow(&client, &id, after);
        assert_eq!(rest, all[usize::try_from(after).unwrap()..], "after {after}");
    }
    assert_eq!(follow(&client, &id, 1 << 40), Vec::<Value>::new());
    let request = Request::new("GET", &events_path(&id)).header("last-event-id", "2");
    let stream = client.events_by(&request).unwrap();
    assert_eq!(stream.map(|event| event.data).collect::<Vec<_>>(), all[2..]);
    let opened = client.websocket(&format!("{}?after=2", events_path(&id)));
    assert_eq!(opened.unwrap().rest(), (all[2..].to_vec(), 1000));
    for (request, field) in [
        (
            Request::new("GET", &events_path(&id)).header("last-event-id", "x"),
            Some("last-event-id"),
        ),
        (Request::new("GET", &format!("{}?after=-1", events_path(&id))), None),
        (Request::new("GET", &format!("{}?since=1", events_path(&id))), None),
    ] {
        assert_error(&client.send(&request), 400, "invalid_request", field);
    }
    let attach = client.get(&format!("{}?attach=true", events_path(&id)));
    assert_error(&attach, 426, "upgrade_required", Some("attach"));

    // The server that ran it has exited; the end event is still sent, under the same number.
    server.restart();
    let client = server.client();
    let received = follow(&client, &id, 0);
    assert_eq!(received[0], json!({"seq": count - 1, "type": "gap", "from": 1, "to": count - 1}));
    assert_eq!(received[1..], all[all.len() - 1..]);
    assert_eq!(follow(&client, &id, count - 1), all[all.len() - 1..]);
    assert_eq!(follow(&client, &id, count), Vec::<Value>::new());
}

#[test]
fn bytes_come_as_they_are() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    // All byte values, a character split over two writes, and an incomplete character at the end.
    let script = r"
i=0; while [ $i -lt 256 ]; do printf \\$(printf %o $i); i=$((i+1)); done
printf '\303'; sleep 0.1; printf '\244\342\202'; sleep 0.1; printf '\254'; sleep 0.1; printf '\360\237'";
    let expected: Vec<u8> =
        (0..=255).chain("ä€".bytes()).chain(b"\xf0\x9f".iter().copied()).collect();
    let id = submit(&client, &shell(script));
    let events = follow(&client, &id, 0);
    assert_eq!(bytes(&events, "stdout"), expected);
    let (same, _) = socket(&client, &id).rest();
    assert_eq!(same, events);
}

#[test]
fn input_reaches_the_program_in_every_form() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let id = submit(&client, &interactive("od -An -tx1 -v | tr -d ' \\n'; echo; echo end"));
    let mut socket = socket(&client, &id);
    socket.send(&json!({"type": "stdin", "data": "text ä\n"}));
    socket.send(&json!({"type": "stdin", "data_base64": BASE64.encode([0, 255, 10])}));
    socket.writer().binary(b"\x00frame\xfe").unwrap();
    socket.send(&json!({"type": "eof"}));
    let (events, code) = socket.rest();
    assert_eq!(code, 1000);
    let expected = b"text \xc3\xa4\n\x00\xff\n\x00frame\xfe";
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text(&events, "stdout"), format!("{expected}\nend\n"));
    assert_eq!(record(&client, &id)["state"], "finished");
    // Input after the end of input, or for a program that has closed it, is ignored.
    let id = submit(&client, &interactive("exec <&-; echo closed; sleep 64105; echo end"));
    let mut socket = crate::asynchronous::socket(&client, &id);
    let mut events = read_until(&mut socket, "stdout", "closed");
    socket.send(&json!({"type": "stdin", "data": "x".repeat(200_000)}));
    socket.send(&json!({"type": "eof"}));
    socket.send(&json!({"type": "stdin", "data": "late"}));
    wake("64105");
    events.extend(socket.rest().0);
    assert_eq!(text(&events, "stdout"), "closed\nend\n");
}

#[test]
fn signals_reach_the_program() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let id = submit(
        &client,
        &interactive(
            "trap 'echo caught' USR1; trap 'echo bye; exit 4' TERM; echo ready; \
            while :; do sleep 0.05; done",
        ),
    );
    let mut socket = socket(&client, &id);
    let mut events = read_until(&mut socket, "stdout", "ready");
    socket.send(&json!({"type": "signal", "signal": "SIGUSR1"}));
    events.extend(read_until(&mut socket, "stdout", "caught"));
    socket.send(&json!({"type": "signal", "signal": "SIGTERM"}));
    events.extend(socket.rest().0);
    assert_eq!(text(&events, "stdout"), "ready\ncaught\nbye\n");
    assert_eq!(record(&client, &id)["result"]["exit_code"], 4);
    let id = submit(&client, &interactive("echo ready; exec sleep 64106"));
    let mut socket = crate::asynchronous::socket(&client, &id);
    read_until(&mut socket, "stdout", "ready");
    socket.send(&json!({"type": "signal", "signal": "SIGKILL"}));
    let (events, code) = socket.rest();
    assert_eq!((events.last().unwrap()["verdict"].as_str(), code), (Some("SG"), 1000));
    assert_eq!(record(&client, &id)["result"]["signal"], "SIGKILL");
    wait_until_gone("64106");
}

#[test]
fn a_terminal_is_one_and_changes_its_size() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let mut request = json!({"argv": ["/bin/sh"], "terminal": {"rows": 30, "cols": 100}});
    request["env"] = json!({"PS1": "> "});
    let id = submit(&client, &request);
    let mut socket = socket(&client, &id);
    socket.send(&json!({"type": "stdin", "data": "test -t 0 && test -t 2 && stty size\n"}));
    read_until(&mut socket, "stdout", "30 100");
    socket.send(&json!({"type": "resize", "rows": 5, "cols": 7}));
    socket.send(&json!({"type": "stdin", "data": "stty size\n"}));
    read_until(&mut socket, "stdout", "5 7");
    // The terminal turns this key into a signal.
    socket.send(&json!({"type": "stdin", "data": "sleep 64111; echo st''ill\n"}));
    wait_for_sleep("64111");
    socket.send(&json!({"type": "stdin", "data": "\u{3}"}));
    wait_until_gone("64111");
    socket.send(&json!({"type": "stdin", "data": "exit 6\n"}));
    let (events, code) = socket.rest();
    assert_eq!(code, 1000);
    assert!(bytes(&events, "stderr").is_empty());
    assert_eq!(record(&client, &id)["result"]["exit_code"], 6);
}

#[test]
fn an_attached_execution_ends_with_its_connection() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for (round, marker) in ["64121", "64122", "64123", "64124"].into_iter().enumerate() {
        let script = format!("trap '' TERM HUP PIPE; echo ready; sleep {marker}; sleep {marker}");
        let request = if round == 3 { shell(&script) } else { interactive(&script) };
        let id = submit(&client, &request);
        let target = format!("{}?attach=true", events_path(&id));
        let mut socket = match client.websocket(&target) {
            Ok(socket) => socket,
            Err(response) => panic!("{}", response.text()),
        };
        read_until(&mut socket, "stdout", "ready");
        match round {
            0 => socket.cut(),
            1 => socket.writer().close(1000).unwrap(),
            2 => socket.send(&json!({"type": "cancel"})),
            _ => drop(socket),
        }
        let record = wait_for_state(&client, &id, "cancelled");
        assert_eq!(record["attempts"], 1);
        wait_until_gone(marker);
    }
    // The same before the execution starts.
    set_paused(&client, true);
    let id = submit(&client, &interactive("echo never"));
    socket(&client, &id).cut();
    wait_for_state(&client, &id, "cancelled");
    // The disconnection of a client that only watches ends no program.
    set_paused(&client, false);
    let id = submit(&client, &held("echo ready; sleep 64125; echo end"));
    let mut watching = socket(&client, &id);
    read_until(&mut watching, "stdout", "ready");
    watching.cut();
    wake("64125");
    assert_eq!(ended(&client, &id)["result"]["stdout"], "ready\nend\n");
}

#[test]
fn rude_messages_end_the_conversation_and_say_why() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let endless = interactive("echo ready; sleep 64131");
    for (text, says) in [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        (r#"{"type": "stdin"}"#, "exactly one"),
        (r#"{"type": "stdin", "data": "a", "data_base64": "YQ=="}"#, "exactly one"),
        (r#"{"type": "stdin", "data_base64": "%"}"#, "data_base64"),
        (r#"{"type": "stdin", "data": "a", "more": 1}"#, "more"),
        (r#"{"type": "signal", "signal": "SIGNONE"}"#, "there is no signal"),
        (r#"{"type": "resize", "rows": -1, "cols": 2}"#, "whole number"),
        (r#"{"type": "shutdown"}"#, "shutdown"),
    ] {
        let id = submit(&client, &endless);
        let mut socket = socket(&client, &id);
        read_until(&mut socket, "stdout", "ready");
        // A second attached client is rejected, and the program continues.
        let (events, code) = crate::asynchronous::socket(&client, &id).rest();
        assert_eq!((events.len(), code), (0, 4409));
        assert_eq!(record(&client, &id)["state"], "running");
        socket.writer().text(text).unwrap();
        match socket.message() {
            Message::Close(4400, reason) => assert!(reason.contains(says), "{text}: {reason}"),
            other => panic!("{text}: {other:?}"),
        }
        wait_for_state(&client, &id, "cancelled");
    }
    wait_until_gone("64131");
}

#[test]
fn tokens_of_sockets_are_taken_from_headers_only() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let id = submit(&client, &shell("echo x"));
    ended(&client, &id);
    let (nobody, token, target) = (client.anonymous(), server.token(), events_path(&id));
    let status = |request: Request| nobody.websocket_by(&request).map(|_| ()).unwrap_err().status;
    assert_eq!(status(Request::new("GET", &target)), 401);
    assert_eq!(status(Request::new("GET", &format!("{target}?token={token}"))), 401);
    assert_eq!(status(Request::new("GET", &format!("{target}?access_token={token}"))), 401);
    let offer =
        |protocols: &str| Request::new("GET", &target).header("sec-websocket-protocol", protocols);
    assert_eq!(status(offer("bearer.wrong")), 401);
    assert_eq!(status(offer(token)), 401);
    let protocol = format!("bearer.{token}");
    let mut socket = nobody.websocket_by(&offer(&protocol)).unwrap();
    let chosen = socket.headers.iter().find(|(name, _)| name == "sec-websocket-protocol");
    assert_eq!(chosen.map(|(_, value)| value.clone()), Some(protocol.clone()));
    assert_eq!(socket.rest().0.last().unwrap()["verdict"], "OK");
    // Only WebSocket upgrades may carry the token in their subprotocol.
    assert_error(&nobody.send(&offer(&protocol)), 401, "unauthenticated", None);
    assert!(!server.log().contains(token), "the token is in the log");
}

#[test]
fn input_for_a_program_that_never_reads_costs_nothing() {
    let _guard = alone_on_host();
    let server = serve();
    let client = server.client();
    warm_up(&client);
    settle(&client);
    let request =
        interactive("echo ready; while [ ! -e /tmp/end ]; do echo tick; sleep 0.05; done");
    let id = submit(&client, &request);
    let mut socket = socket(&client, &id);
    read_until(&mut socket, "stdout", "ready");
    let before = process::resident_bytes(server.pid());
    let mut writer = socket.writer();
    let flood = thread::spawn(move || {
        let chunk = vec![b'x'; 64 << 10];
        let mut sent = 0;
        while sent < INPUT_BYTES && writer.binary(&chunk).is_ok() {
            sent += chunk.len();
        }
        sent
    });
    // Events continue while the input is blocked.
    let mut peak = 0;
    for _ in 0..20 {
        read_until(&mut socket, "stdout", "tick");
        peak = peak.max(process::resident_bytes(server.pid()));
    }
    assert!(!flood.is_finished(), "the server took input that nobody reads");
    let grown = peak.saturating_sub(before);
    assert!(grown < FLAT_BYTES, "{grown} bytes more");
    socket.cut();
    assert!(flood.join().unwrap() < INPUT_BYTES);
    wait_for_state(&client, &id, "cancelled");
    assert_eq!(record(&client, &submit(&client, &shell("true")))["language"], "argv");
}

#[test]
fn a_flood_waits_for_a_slow_reader_and_memory_stays_flat() {
    let _guard = alone_on_host();
    let server = serve();
    let client = server.client();
    warm_up(&client);
    settle(&client);
    let flood = |attached: bool| {
        let script = "i=0; while [ $i -lt 100 ]; do head -c 1048576 /dev/zero | tr '\\0' x; \
            i=$((i+1)); done";
        let mut request = if attached { interactive(script) } else { shell(script) };
        request["limits"] = json!({"output_bytes": 16 << 20, "wall_ms": 100_000, "cpu_ms": 10_000});
        request
    };
    let before = process::resident_bytes(server.pid());
    let id = submit(&client, &flood(true));
    let mut slow = socket(&client, &id);
    let (mut taken, mut peak) = (0, 0);
    // A slow client reads small pieces, long enough to show that the program is blocked.
    while taken < 256 << 10 {
        taken += slow.sip(1 << 10).unwrap();
        peak = peak.max(process::resident_bytes(server.pid()));
    }
    assert_eq!(record(&client, &id)["state"], "running");
    assert!(peak.saturating_sub(before) < FLAT_BYTES, "{} bytes more", peak - before);
    slow.cut();
    wait_for_state(&client, &id, "cancelled");

    // A client that reads nothing. If it only watches, the program is not blocked. The attached
    // client comes second, because a client that reads nothing for half a minute is disconnected.
    let free = submit(&client, &flood(false));
    let watching = socket(&client, &free);
    let record = ended(&client, &free);
    assert_eq!(record["result"]["verdict"], "OLE", "{}", record["result"]["message"]);
    let held = submit(&client, &flood(true));
    let never = socket(&client, &held);
    wait_for_state(&client, &held, "running");
    never.cut();
    wait_for_state(&client, &held, "cancelled");
    // The watching client receives the missed events late.
    let mut watching = watching;
    let (events, code) = watching.rest();
    assert_eq!(code, 1000);
    assert_eq!(events.last().unwrap()["verdict"], "OLE");
    // The memory includes the stored result and the latest events of the execution that ran to its
    // end. While a result is stored and sent, each recipient has a copy of it.
    until("memory of a result that was sent to be given back", SOON, || {
        let more = process::resident_bytes(server.pid()).saturating_sub(before);
        if more < 3 * FLAT_BYTES { Ok(()) } else { Err(format!("{more} bytes more")) }
    });
}

#[test]
fn two_hundred_sockets_are_served_at_once() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    set_paused(&client, true);
    let requests: Vec<Value> = (0..50).map(|number| shell(&format!("echo {number}"))).collect();
    let ids = submit_all(&client, &requests);
    let sockets: Vec<_> = (0..200).map(|number| socket(&client, &ids[number % 50])).collect();
    set_paused(&client, false);
    for (number, mut socket) in sockets.into_iter().enumerate() {
        let (events, code) = socket.rest();
        assert_eq!(code, 1000);
        assert_unbroken(&events, 0);
        assert_eq!(text(&events, "stdout"), format!("{}\n", number % 50));
    }
}

#[test]
fn a_server_that_stops_says_goodbye() {
    let _guard = beside_others();
    let mut server = serve_with("");
    let client = server.client();
    let talking = submit(&client, &interactive("echo ready; read line; echo got $line"));
    let mut talk = socket(&client, &talking);
    read_until(&mut talk, "stdout", "ready");
    let watched = submit(&client, &held("echo ready; sleep 64142; echo done"));
    let mut watching = socket(&client, &watched);
    let mut stream = client.events(&events_path(&watched)).unwrap();
    read_until(&mut watching, "stdout", "ready");
    server.signal("TERM");
    // Watching clients reconnect to the next server; attached clients may finish.
    assert_eq!(watching.rest().1, 1001);
    while stream.next().is_some() {}
    wake("64142");
    talk.send(&json!({"type": "stdin", "data": "it\n"}));
    let (events, code) = talk.rest();
    assert_eq!((&*text(&events, "stdout"), code), ("got it\n", 1000));
    assert!(server.wait(SOON).success());
    restarted_knows(&mut server, &watched, "ready\ndone\n");
    restarted_knows(&mut server, &talking, "ready\ngot it\n");
}

/// Asserts that the next server on the same data directory has the result.
fn restarted_knows(server: &mut Server, id: &str, stdout: &str) {
    server.restart();
    let record = record(&server.client(), id);
    assert_eq!((&record["result"]["stdout"], &record["attempts"]), (&json!(stdout), &json!(1)));
}

#[test]
fn who_talks_to_a_server_that_stops_is_cut_off_in_the_end() {
    let _guard = beside_others();
    let config = "drain_s = 1\n[executions]\n";
    let mut server = Server::start_with(crate::support::COVE, &[], Some(config));
    server.expect_log("work was still in progress when the time to drain was up");
    let client = server.client();
    let id = submit(&client, &interactive("echo ready; sleep 64141"));
    let mut socket = socket(&client, &id);
    read_until(&mut socket, "stdout", "ready");
    server.signal("TERM");
    assert!(matches!(socket.rest().1, 1000 | 1001));
    assert!(server.wait(SOON).success());
    wait_until_gone("64141");
    server.restart();
    let record = record(&server.client(), &id);
    assert_eq!(record["state"], "cancelled", "{record}");
    // The server stops the execution and closes the connection at the same time; the message
    // depends on which it notices first.
    let message = record["message"].as_str().unwrap_or_default();
    assert!(message.contains("shuts down") || message.contains("caller went away"), "{record}");
}
