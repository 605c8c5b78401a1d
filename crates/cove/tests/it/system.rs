//! A server seen by its operators: its checks, and the names under which it is reached.

use std::thread;

use serde_json::{Value, json};
use testkit::{Client, Request, Server, until};

use crate::asynchronous::post;
use crate::support::{COVE, SOON, beside_others, serve, serve_with, wait_until_gone};

fn names(report: &Value) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().map(|check| check["name"].as_str().unwrap().to_owned()).collect()
}

/// The report after the first run, which the first request begins.
fn first_report(server: &Server) -> Value {
    until("the first report", SOON, || {
        let view = server.client().get("/v1/doctor").json();
        match view["last"].is_object() {
            true => Ok(view["last"].clone()),
            false => Err(view.to_string()),
        }
    })
}

/// Asks for a run, and returns its report.
fn run_doctor(client: &Client) -> Value {
    let answer = post(client, "/v1/doctor", &json!({}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut view = answer.json();
    // On a busy machine it takes longer than callers are kept.
    while view["running"] == true {
        view = client.get("/v1/doctor").json();
    }
    view["last"].clone()
}

#[test]
fn a_server_checks_itself_for_operators_and_callers_share_a_run() {
    let _guard = beside_others();
    let server = serve();
    let owner = server.client();
    let other = server.other_client("other", &[]);
    for method in ["GET", "POST"] {
        let refused = other.send(&Request::new(method, "/v1/doctor"));
        assert_eq!(refused.status, 403, "{}", refused.text());
        let refused = owner.anonymous().send(&Request::new(method, "/v1/doctor"));
        assert_eq!(refused.status, 401);
    }
    let begun = owner.get("/v1/doctor").json();
    assert!(
        begun["running"] == true && begun.get("last").is_none(),
        "refused calls ran it: {begun}"
    );
    let first = first_report(&server);
    assert_eq!(first["node"], owner.get("/v1/whoami").json()["node"]);
    let report = &first["report"];
    assert_eq!((&report["ok"], &report["root"]), (&json!(true), &json!(true)), "{report}");
    for name in ["kernel", "memory limit", "stop a greedy one", "session disks", "sessions"] {
        assert!(names(report).iter().any(|it| it == name), "no check \"{name}\": {report}");
    }
    let languages = report["languages"].as_array().unwrap();
    assert!(languages.iter().any(|it| it["name"] == "python"), "{report}");

    // Callers at the same time have one run between them.
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let client = owner.clone();
            thread::spawn(move || run_doctor(&client))
        })
        .collect();
    let runs: Vec<Value> = callers.into_iter().map(|it| it.join().unwrap()).collect();
    assert!(runs[0]["started_ms"].as_u64() > first["started_ms"].as_u64(), "{runs:?}");
    assert!(runs.iter().all(|run| run == &runs[0]), "{runs:?}");
    assert_eq!(owner.get("/v1/doctor").json()["last"], runs[0]);
    assert!(!server.data_dir().join("doctor").exists(), "its disk is left behind");

    // The same from the command line; without a right to it, and where nobody answers.
    let url = format!("http://{}", owner.address());
    let doctor = |arguments: &[&str], token: &str| {
        let mut command = server.command("doctor");
        command.args(["--server", &url]).args(arguments).env("COVE_TOKEN", token);
        command.output().unwrap()
    };
    let output = doctor(&["--json"], server.token());
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), names(&run["report"])), (Some(0), names(report)));
    let output = doctor(&[], server.token());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ok       kernel") && text.contains("can be run here"), "{text}");
    assert_eq!(doctor(&[], "cove_wrong").status.code(), Some(125));
}

#[test]
fn checks_wait_for_their_turn_and_end_with_the_server() {
    let _guard = beside_others();
    let mut server = serve_with("running_max = 1\n");
    let owner = server.client();
    let holder = owner.clone();
    let held = crate::support::held("sleep 62.3");
    let held = thread::spawn(move || post(&holder, "/v1/executions?wait=true", &held).status);
    crate::support::wait_for_sleep("62.3");
    let begun = owner.get("/v1/doctor").json();
    assert_eq!(begun["running"], true);
    // The server serves, and what runs is not disturbed by a run that waits.
    assert_eq!(owner.get("/v1/languages").status, 200);
    let still = owner.get("/v1/doctor").json();
    assert!(still["running"] == true && still.get("last").is_none(), "{still}");
    server.signal("TERM");
    // Two signals that wait to be taken are one.
    crate::support::wait_for_log(&server, "draining");
    server.signal("TERM");
    server.wait(SOON);
    wait_until_gone("62.3");
    drop(held.join());
}

#[test]
fn the_console_is_not_served_under_names_of_others() {
    let _guard = beside_others();
    let server = serve();
    let owner = server.client();
    let own = owner.address().to_string();
    let made = |headers: &[(&str, &str)]| {
        let request = Request::new("POST", "/v1/console/codes");
        owner.send(
            &headers.iter().fold(request, |request, (name, value)| request.header(name, value)),
        )
    };
    // `host` stands for the client's own.
    let login = |client: &Client, code: &str, headers: &[(&str, &str)]| {
        let body = json!({"code": code}).to_string();
        let request = Request::new("POST", "/v1/console/login").body(body);
        let request = request.header("content-type", "application/json");
        client.send(
            &headers.iter().fold(request, |request, (name, value)| request.header(name, value)),
        )
    };
    let page = |client: &Client, path: &str, host: &str| {
        client.anonymous().send(&Request::new("GET", path).header("host", host))
    };
    let origin = |name: &str| format!("http://{name}");
    let code = made(&[("host", &own), ("origin", &origin(&own))]).json()["code"].clone();
    let code = code.as_str().unwrap();
    // A page of an attacker whose name leads here, and one that posts from its own place.
    let evil = "evil.example:4100";
    for (host, from) in
        [(evil, evil), (evil, own.as_str()), (own.as_str(), evil), (own.as_str(), "null")]
    {
        let from = if from == "null" { from.to_owned() } else { origin(from) };
        for forwarded in [&[][..], &[("x-forwarded-for", "192.0.2.9")]] {
            let headers = [&[("host", host), ("origin", &*from)][..], forwarded].concat();
            let refused = login(&owner.anonymous(), code, &headers);
            assert_eq!(refused.status, 403, "{headers:?}: {}", refused.text());
            assert!(refused.text().contains("console.hosts"), "{}", refused.text());
            assert_eq!(made(&headers).status, 403, "{headers:?}");
            let socket = headers
                .iter()
                .fold(crate::revocation::websocket("/v1/live"), |request, (name, value)| {
                    request.header(name, value)
                });
            assert_eq!(owner.send(&socket).status, 403, "{headers:?}");
        }
    }
    for path in ["/console", "/console/", "/console/sessions/ses_1", "/console/licences"] {
        let refused = page(&owner, path, evil);
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.text().contains("evil.example"), "{}", refused.text());
        for host in [own.as_str(), "localhost:4100", "cove.localhost", "[::1]:4100", "192.0.2.1"] {
            assert_eq!(page(&owner, path, host).status, 200, "{path} at {host}");
        }
    }
    // The code was not used up by what was refused.
    let headers = [("host", own.as_str()), ("origin", &*origin(&own))];
    assert_eq!(login(&owner.anonymous(), code, &headers).status, 200);
    // Tools and libraries send no origin, and the interface has no names of its own.
    assert_eq!(owner.send(&Request::new("GET", "/v1/whoami").header("host", evil)).status, 200);

    let named = Server::start_with(COVE, &[], Some("console.hosts = [\"cove.example\"]\n"));
    let owner = named.client();
    for (host, expected) in
        [("cove.example", 200), ("Cove.Example:443", 200), (evil, 403), ("127.0.0.1", 200)]
    {
        assert_eq!(page(&owner, "/console/", host).status, expected, "{host}");
    }
    let passed_on = [("origin", "https://cove.example"), ("x-forwarded-for", "192.0.2.9")];
    let wrong = login(&owner.anonymous(), "no-code", &passed_on);
    assert!(wrong.text().contains("code"), "a proxy that sets another host: {}", wrong.text());
    let foreign = [("origin", "https://evil.example"), ("x-forwarded-for", "192.0.2.9")];
    let refused = login(&owner.anonymous(), "no-code", &foreign);
    assert!(refused.text().contains("origin"), "{}", refused.text());
}
