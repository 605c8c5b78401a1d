//! Webhooks: ends of executions are sent to their owners, signed and retried, and never into the
//! server's network.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{Delivered, Receiver, TAKEN, until};

use crate::asynchronous::{SOON, assert_error, ended, post, record, submit};
use crate::support::{beside_others, serve_with, shell};

/// Response of a receiver that fails.
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

/// Setting that permits receivers on loopback.
pub(crate) const LOOPBACK: &str = "jobs.webhook_allow = [\"127.0.0.1\"]\n";

/// Returns a request whose end is sent to `url`.
fn hooked(script: &str, url: &str) -> Value {
    let mut request = shell(script);
    request["webhook"] = json!({ "url": url });
    request
}

/// Python script that computes a signature of Standard Webhooks without code of Cove.
const SIGN: &str = r#"
import base64, hmac, json, sys
it = json.load(sys.stdin)
secret = it["secret"]
key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
signed = b".".join([it["id"].encode(), it["timestamp"].encode(), it["body"].encode()])
print("v1," + base64.b64encode(hmac.new(key, signed, "sha256").digest()).decode(), end="")
"#;

fn signature(secret: &str, delivered: &Delivered) -> String {
    let input = json!({
        "secret": secret,
        "id": delivered.header("webhook-id"),
        "timestamp": delivered.header("webhook-timestamp"),
        "body": String::from_utf8(delivered.body.clone()).unwrap(),
    });
    let mut python = Command::new("python3");
    python.args(["-c", SIGN]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn deliveries_are_signed_records() {
    let _guard = beside_others();
    let receiver = Receiver::start(|_| TAKEN);
    let server = serve_with(LOOPBACK);
    let client = server.client();
    let default = client.get("/v1/webhooks/secret").json()["secret"].as_str().unwrap().to_owned();
    assert!(default.starts_with("whsec_"), "{default:.6}");
    let other = server.other_client("other", &[]);
    assert_ne!(other.get("/v1/webhooks/secret").json()["secret"], default.as_str());
    for (number, secret) in [None, Some("plain text"), Some("whsec_AAECAw==")].iter().enumerate() {
        let mut request = hooked("echo ü; exit 3", &receiver.url());
        if let Some(secret) = secret {
            request["webhook"]["secret"] = json!(secret);
        }
        let id = submit(&client, &request);
        let delivered = receiver.wait_for(number + 1).swap_remove(number);
        assert_eq!(delivered.line, "POST /hook");
        assert_eq!(delivered.json(), ended(&client, &id));
        assert_eq!(delivered.json()["result"]["verdict"], "RE");
        for (name, value) in [
            ("content-type", "application/json"),
            ("webhook-id", &id),
            ("webhook-attempt", "1"),
            ("webhook-signature", &signature(secret.unwrap_or(&default), &delivered)),
        ] {
            assert_eq!(delivered.header(name), value, "{name}");
        }
    }
    assert!(!server.log().contains(&default), "the key is in the log");
}

#[test]
fn every_way_to_end_is_told_once() {
    let _guard = beside_others();
    let receiver = Receiver::start(|_| TAKEN);
    let server = serve_with(LOOPBACK);
    let client = server.client();
    let finished = submit(&client, &hooked("true", &receiver.url()));
    receiver.wait_for(1);
    let running = submit(&client, &hooked("sleep 64201", &receiver.url()));
    crate::asynchronous::wait_for_state(&client, &running, "running");
    assert_eq!(crate::asynchronous::delete(&client, &running).status, 200);
    receiver.wait_for(2);
    crate::asynchronous::set_paused(&client, true);
    let waiting = submit(&client, &hooked("true", &receiver.url()));
    assert_eq!(crate::asynchronous::delete(&client, &waiting).status, 200);
    receiver.wait_for(3);
    let mut late = hooked("true", &receiver.url());
    late["deadline_ms"] = json!(1);
    let late = submit(&client, &late);
    receiver.wait_for(4);
    let drained = submit(&client, &hooked("true", &receiver.url()));
    assert_eq!(post(&client, "/v1/queue/drain", &Value::Null).json()["changed"], 1);
    let delivered = receiver.wait_for(5);
    let deliveries: Vec<(String, String)> = delivered
        .iter()
        .map(|it| (it.json()["id"].as_str().unwrap().to_owned(), it.json()["state"].to_string()))
        .collect();
    let expected = [
        (finished, "\"finished\""),
        (running, "\"cancelled\""),
        (waiting, "\"cancelled\""),
        (late, "\"expired\""),
        (drained, "\"cancelled\""),
    ];
    assert_eq!(deliveries, expected.map(|(id, state)| (id, state.to_owned())));
}

#[test]
fn a_receiver_that_fails_is_asked_again_and_given_up_in_the_end() {
    let _guard = beside_others();
    let unsteady = Receiver::start(|number| if number == 0 { FAILED } else { TAKEN });
    let broken = Receiver::start(|_| FAILED);
    // No receiver listens there until the first attempt has failed.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = serve_with(&format!("{LOOPBACK}jobs.webhook_attempts_max = 2\n"));
    server.expect_log("a webhook is abandoned");
    let client = server.client();
    let first = submit(&client, &hooked("true", &unsteady.url()));
    let unreachable = submit(&client, &hooked("true", &broken.url()));
    let refused = submit(&client, &hooked("true", &format!("http://{closed}/hook")));
    until("the first try to fail", SOON, || {
        let log = server.log();
        let failed = |line: &str| line.contains(&refused) && line.contains("a webhook failed");
        if log.lines().any(failed) { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let late = Receiver::start_at(closed, |_| TAKEN);
    let again = unsteady.wait_for(2);
    let attempts: Vec<&str> = again.iter().map(|it| it.header("webhook-attempt")).collect();
    assert_eq!(attempts, ["1", "2"]);
    assert_eq!(again[0].body, again[1].body);
    assert_eq!(again[1].header("webhook-id"), first);
    assert_eq!(late.wait_for(1)[0].header("webhook-attempt"), "2");
    until("it to be given up", SOON, || {
        let log = server.log();
        let over = |line: &str| line.contains(&unreachable) && line.contains("abandoned");
        if log.lines().any(over) { Ok(()) } else { Err("not yet".to_owned()) }
    });
    assert_eq!(broken.delivered().len(), 2);
    assert_eq!((unsteady.delivered().len(), late.delivered().len()), (2, 1));
    // The execution itself is not affected.
    assert_eq!(record(&client, &unreachable)["state"], "finished");
}

#[test]
fn a_delivery_survives_the_server() {
    let _guard = beside_others();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // A delivery in progress at the kill is due again after twice this time-out.
    let mut server = serve_with(&format!("{LOOPBACK}jobs.webhook_timeout_s = 1\n"));
    let url = format!("http://{closed}/hook");
    let id = submit(&server.client(), &hooked("echo kept", &url));
    ended(&server.client(), &id);
    let secret = server.client().get("/v1/webhooks/secret").json();
    server.signal("KILL");
    let _killed = server.wait(SOON);
    let receiver = Receiver::start_at(closed, |_| TAKEN);
    server.restart();
    let delivered = receiver.wait_for(1);
    assert_eq!(delivered[0].header("webhook-id"), id);
    assert_eq!(delivered[0].json()["result"]["stdout"], "kept\n");
    assert_eq!(server.client().get("/v1/webhooks/secret").json(), secret);
    let secret = secret["secret"].as_str().unwrap();
    let signed = signature(secret, &delivered[0]);
    assert_eq!(delivered[0].header("webhook-signature"), signed);
}

#[test]
fn nothing_inside_is_reached() {
    let _guard = beside_others();
    let mut server = serve_with("jobs.webhook_attempts_max = 1\n");
    server.expect_log("a webhook is abandoned");
    let client = server.client();
    let receiver = Receiver::start(|_| TAKEN);
    let port = receiver.address().port();
    let mut accepted = Vec::new();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://LOCALHOST.:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        "http://10.0.0.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("http://user:secret@127.0.0.1:{port}/"),
        "http://8.8.8.8:6379/".to_owned(),
        String::new(),
    ] {
        let response = post(&client, "/v1/executions", &hooked("true", &url));
        match response.status {
            // A host name is accepted at first: its addresses are checked when it is used.
            202 => accepted.push((url, response.json()["id"].as_str().unwrap().to_owned())),
            _ => assert_error(&response, 400, "invalid_request", Some("webhook.url")),
        }
    }
    for (url, id) in &accepted {
        until(&format!("{url} to be given up"), SOON, || {
            let log = server.log();
            let over = |line: &str| line.contains(id) && line.contains("abandoned");
            if log.lines().any(over) { Ok(()) } else { Err("not yet".to_owned()) }
        });
    }
    let by_name = |url: &str| url.to_ascii_lowercase().contains("localhost");
    assert!(accepted.iter().all(|(url, _)| by_name(url)), "{accepted:?}");
    assert_eq!(receiver.connections(), 0, "{:?}", receiver.delivered());
}

#[test]
fn redirects_are_not_followed() {
    let _guard = beside_others();
    let target = Receiver::start(|_| TAKEN);
    let moved =
        format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
    let moved: &'static str = Box::leak(moved.into_boxed_str());
    let receiver = Receiver::start(move |_| moved);
    let mut server = serve_with(&format!("{LOOPBACK}jobs.webhook_attempts_max = 1\n"));
    server.expect_log("a webhook is abandoned");
    let id = submit(&server.client(), &hooked("true", &receiver.url()));
    until("it to be given up", SOON, || {
        let log = server.log();
        let over = |line: &str| line.contains(&id) && line.contains("302");
        if log.lines().any(over) { Ok(()) } else { Err("not yet".to_owned()) }
    });
    assert_eq!((receiver.connections(), target.connections()), (1, 0));
}
