//! Amounts used by grants persist across a restart of the server, and count on all nodes together.
//! The tests count the requests that external servers receive.

use serde_json::{Value, json};
use testkit::{Receiver, TAKEN, until};

use crate::cluster::Pair;
use crate::drain::{Trio, create_of_at};
use crate::gateway::{audit, patch};
use crate::sessions_support::{Sessions, serve_sessions};
use crate::support::{SOON, beside_others};
use crate::takeover::SYNCED;

/// Maximum requests of the grant of these tests.
const REQUESTS_MAX: usize = 10;
/// Requests of a session before a fault of its server.
const BEFORE: usize = 6;

/// Sends requests to a URL until one is refused, up to a number, and prints each status.
const PROXY_PROGRAM: &str = "\
import sys, urllib.request, urllib.error
for _ in range(int(sys.argv[2])):
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=30).status, flush=True)
    except urllib.error.HTTPError as error:
        print(error.code, error.headers.get('x-cove-refused'), flush=True)
        break
";

/// Sends requests to the model until one is refused, up to a number, and prints each status.
const MODEL_PROGRAM: &str = "\
import http.client, json, sys
for _ in range(int(sys.argv[1])):
    connection = http.client.HTTPConnection('127.0.0.1', 8100, timeout=30)
    body = json.dumps({'model': 'small', 'max_tokens': 50, 'messages': []})
    connection.request('POST', '/v1/messages', body, {'content-type': 'application/json'})
    answer = connection.getresponse()
    text = answer.read().decode()
    print(answer.status, flush=True)
    if answer.status != 200:
        print(text, flush=True)
        break
";

/// Response of the model that has used [`ANSWER_TOKENS`].
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
    content-length: 126\r\nconnection: close\r\n\r\n\
    {\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\
    \"model\":\"small\",\"usage\":{\"input_tokens\":30,\"output_tokens\":20}}";
const ANSWER_TOKENS: usize = 50;

fn grant(receiver: &Receiver) -> Value {
    let rule = json!({"hosts": ["127.0.0.1"], "ports": [receiver.address().port()],
        "internal": ["127.0.0.0/8"]});
    json!({"kind": "http", "rules": [rule], "limits": {"requests": REQUESTS_MAX}})
}

/// Runs a program of a session, and returns the number of successes and its last line.
fn run(sessions: &Sessions, session: &str, program: &str, arguments: &str) -> (usize, String) {
    let written = sessions.write(session, "program.py", program.as_bytes());
    assert!(written.status < 300, "{}", written.text());
    // The default of clients excludes the proxy's address.
    let command = format!("no_proxy= NO_PROXY= python3 program.py {arguments}");
    let out = sessions.out(session, &command);
    let done = out.lines().filter(|line| ["200", "204"].contains(line)).count();
    (done, out.lines().last().unwrap_or_default().to_owned())
}

/// Sends requests by the grant of a session.
fn ask(sessions: &Sessions, session: &str, receiver: &Receiver, count: usize) -> (usize, String) {
    let arguments = format!("http://{}/ {count}", receiver.address());
    run(sessions, session, PROXY_PROGRAM, &arguments)
}

/// Asserts that a session gets the rest of its grant, and no more.
fn assert_rest(sessions: &Sessions, session: &str, receiver: &Receiver, least: usize) {
    let (done, last) = ask(sessions, session, receiver, 2 * REQUESTS_MAX);
    assert_eq!(last, "429 requests: the grant's limit is reached");
    let all = receiver.delivered().len();
    assert_eq!(all, BEFORE + done);
    assert!((BEFORE + least..=REQUESTS_MAX).contains(&all), "{all} requests in all");
}

#[test]
fn what_a_grant_has_used_outlasts_its_server() {
    let _guard = beside_others();
    let receiver = Receiver::start(|_| TAKEN);
    let mut server = serve_sessions("");
    let sessions = Sessions::from(&server);
    let session = sessions.create(&json!({"grants": [grant(&receiver)]}));
    let (done, last) = ask(&sessions, &session, &receiver, BEFORE);
    assert_eq!((done, last.as_str()), (BEFORE, "204"));
    // After a regular shutdown, nothing is lost.
    server.signal("TERM");
    assert!(server.wait(SOON).success());
    server.restart();
    let sessions = Sessions::from(&server);
    sessions.did(&session, "resume");
    assert_rest(&sessions, &session, &receiver, REQUESTS_MAX - BEFORE);
    // A changed grant keeps its used amount, also after a crash; small amounts are leased in
    // advance, so few are lost.
    let more = json!({"grants": [{"kind": "http", "rules": grant(&receiver)["rules"],
        "limits": {"requests": REQUESTS_MAX + 5}}]});
    let patched = patch(&sessions.client, &session, &more);
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(ask(&sessions, &session, &receiver, 2).0, 2);
    server.restart();
    let sessions = Sessions::from(&server);
    sessions.did(&session, "resume");
    let (done, last) = ask(&sessions, &session, &receiver, REQUESTS_MAX);
    assert!((2..=3).contains(&done), "{done} after a crash");
    assert_eq!(last, "429 requests: the grant's limit is reached");
    // A fork of the session has a separate amount.
    let fork = sessions.fork(&session);
    let patched = patch(&sessions.client, &fork, &json!({"grants": [grant(&receiver)]}));
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(ask(&sessions, &fork, &receiver, 2 * REQUESTS_MAX).0, REQUESTS_MAX);
    for session in [&session, &fork] {
        sessions.end(session);
    }
}

#[test]
fn what_a_grant_has_used_goes_with_its_session_from_a_node_that_drains() {
    let _guard = beside_others();
    let trio = Trio::start("cluster.limits = \"strict\"\n");
    let receiver = Receiver::start(|_| TAKEN);
    let [here, there, third] = trio.sessions();
    let request = json!({"agent": "probe", "grants": [grant(&receiver)]});
    let session = create_of_at(&here, &request);
    assert_eq!(ask(&here, &session, &receiver, BEFORE).0, BEFORE);
    trio.drain();
    trio.wait_until_drained();
    // The node that handed it over has returned its leased amount.
    assert_rest(&there, &session, &receiver, REQUESTS_MAX - BEFORE);
    assert_eq!(ask(&third, &session, &receiver, 1).0, 0);
    there.end(&session);
}

#[test]
fn what_a_grant_has_used_is_known_after_its_node_was_killed() {
    let _guard = beside_others();
    let settings = "cluster.limits = \"strict\"\ncluster.lease_ms = 60000\n";
    let mut pair = Pair::start_with(settings, SYNCED);
    let receiver = Receiver::start(|_| TAKEN);
    let (here, there) = pair.sessions();
    let request = json!({"agent": "probe", "grants": [grant(&receiver)]});
    let session = create_of_at(&here, &request);
    assert_eq!(ask(&here, &session, &receiver, BEFORE).0, BEFORE);
    // A turn's files are in the object store when the next turn begins.
    for text in ["one", "two"] {
        here.ask(&session, text);
    }
    pair.two.expect_log("failed to pass a request on");
    pair.two.expect_log("nothing listens at its address");
    pair.one.signal("KILL");
    pair.one.wait(SOON);
    until("the session to be taken over", SOON, || {
        let answer = there.try_exec(&session, "true");
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    });
    // Leased but unused amounts are lost: one at most, with a small limit.
    assert_rest(&there, &session, &receiver, REQUESTS_MAX - BEFORE - 1);
    pair.one.restart();
    let back = Sessions::from(&pair.one);
    assert_eq!(ask(&back, &session, &receiver, 1).0, 0);
    back.end(&session);
}

#[test]
fn a_tenant_has_one_budget_of_tokens_at_all_nodes() {
    let _guard = beside_others();
    let model = Receiver::start(|_| ANSWER);
    let budget = 20 * ANSWER_TOKENS;
    let settings = format!(
        "ready = 0\n[sessions.model]\nurl = \"http://{}\"\n\
         [gateway.model]\ntokens_per_tenant = {budget}",
        model.address()
    );
    let mut pair = Pair::start_with("cluster.limits = \"strict\"\n", &settings);
    let (here, there) = pair.sessions();
    let request = json!({"agent": "probe", "grants": [{"kind": "model"}]});
    let made = [(&here, create_of_at(&here, &request)), (&there, create_of_at(&there, &request))];
    let mut answered = 0;
    for round in 0.. {
        let runs: Vec<(usize, String)> =
            made.iter().map(|(node, session)| run(node, session, MODEL_PROGRAM, "3")).collect();
        answered += runs.iter().map(|(done, _)| done).sum::<usize>();
        let is_over =
            |(_, last): &(usize, String)| last.contains("the budget of the tenant is used up");
        if runs.iter().all(is_over) {
            break;
        }
        assert!(round < 20, "{answered} are answered: {runs:?}");
    }
    // Usage is known after the response, so each of the last requests may exceed the limit.
    assert!((20..=21).contains(&answered), "{answered} are answered");
    assert_eq!(model.delivered().len(), answered);
    let done = |record: &Value| record["outcome"] == "refused";
    audit(&here.client, &made[0].1, done);
    // The used amount also persists when all servers restart.
    for server in [&mut pair.one, &mut pair.two] {
        server.signal("TERM");
        assert!(server.wait(SOON).success());
    }
    pair.one.restart();
    let here = Sessions::from(&pair.one);
    here.did(&made[0].1, "resume");
    let (done, last) = run(&here, &made[0].1, MODEL_PROGRAM, "3");
    assert!(done == 0 && last.contains("the budget of the tenant is used up"), "{last}");
}
