//! Followers of the log that do not read: nothing is buffered for them, and they are disconnected.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Client, EventStream, Message, Request, Server, WebSocket, until};

use crate::shared::COVE;

/// Levels of the changing namespace, and bytes of each level's name: one change takes 7 KB.
const LEVELS: usize = 30;
const NAME_BYTES: usize = 240;

/// Number of changes.
const CHANGES: usize = 3000;

/// Followers of each kind.
const FOLLOWERS: usize = 10;

/// Allowed memory growth for all of them. It would be 420 MB if everything were buffered for them.
const GROWTH_BYTES_MAX: u64 = 160 << 20;

/// They are disconnected after 30 seconds, and the machine may be busy.
const CUT: Duration = Duration::from_secs(120);

const FEED: &str = "/catalog/management/v1/main/changes?after=0";

fn send(client: &Client, path: &str, body: &Value) {
    let request = Request::new("POST", &format!("/catalog/v1/main/{path}"));
    let request = request.header("content-type", "application/json").body(body.to_string());
    let reply = client.send(&request);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Returns the resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Returns the number of WebSockets and event streams of a server.
fn streams(client: &Client) -> u64 {
    let metrics = client.get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("cove_http_streams ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Makes the log long.
fn fill(server: &Server) {
    let levels: Vec<String> =
        (0..LEVELS).map(|level| format!("{level:02}").repeat(NAME_BYTES / 2)).collect();
    let client = server.client();
    for depth in 1..=LEVELS {
        send(&client, "namespaces", &json!({"namespace": levels[..depth]}));
    }
    let (path, count) = (levels.join("%1F"), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let (client, path, count) = (server.client(), path.clone(), Arc::clone(&count));
            thread::spawn(move || {
                loop {
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    if number >= CHANGES {
                        return;
                    }
                    let body = json!({"updates": {"k": number.to_string()}, "removals": []});
                    send(&client, &format!("namespaces/{path}/properties"), &body);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
}

/// Returns the numbers of the changes that arrived before a follower was disconnected.
fn arrived_on_socket(mut socket: WebSocket) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Ok(message) = socket.try_message() {
        match message {
            Message::Text(text) => {
                let change: Value = serde_json::from_str(&text).unwrap();
                numbers.push(change["seq"].as_u64().unwrap());
            }
            other => assert!(matches!(other, Message::Close(1013, _)), "{other:?}"),
        }
    }
    numbers
}

fn arrived_as_events(mut events: EventStream) -> Vec<u64> {
    let mut numbers = Vec::new();
    // An incomplete last event does not count.
    while let Ok(Some(event)) = events.try_next() {
        numbers.push(event.id.parse().unwrap());
    }
    numbers
}

#[test]
fn a_follower_that_does_not_read_costs_little_and_is_cut() {
    let server = Server::start(COVE);
    fill(&server);
    let (client, before) = (server.client(), resident(server.pid()));
    let sockets: Vec<_> = (0..FOLLOWERS).map(|_| client.websocket(FEED).unwrap()).collect();
    let events: Vec<_> = (0..FOLLOWERS).map(|_| client.events(FEED).unwrap()).collect();
    let mut most = 0;
    until("all of them to be cut", CUT, || {
        most = most.max(resident(server.pid()).saturating_sub(before));
        match streams(&client) {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    });
    assert!(most < GROWTH_BYTES_MAX, "{most} bytes more than {before}");
    // The received changes have no gap, and are not all.
    let sockets = sockets.into_iter().map(arrived_on_socket);
    for numbers in sockets.chain(events.into_iter().map(arrived_as_events)) {
        let count = u64::try_from(numbers.len()).unwrap();
        assert!(count > 0 && count < u64::try_from(LEVELS + CHANGES).unwrap(), "{count}");
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        // A follower can continue from there.
        let next = format!("/catalog/management/v1/main/changes?after={count}&limit=1");
        assert_eq!(client.get(&next).json()["changes"][0]["seq"], json!(count + 1));
    }
}
