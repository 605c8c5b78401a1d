//! `GET /v1/history`: measured values appear in the first response, only for tenants that may see
//! them and within the limits; the topic that continues the report; `cove history`.

use std::process::Output;

use serde_json::{Value, json};
use testkit::{Client, Request, Server, WebSocket, until};

use crate::support::{
    COVE, SOON, beside_others, held, run, serve, serve_with, wait_for_sleep, wake,
};

/// Measured values of a series, by its name and the value of its label.
fn measured(report: &Value, name: &str, label: Option<&str>) -> Vec<f64> {
    let series = report["series"].as_array().unwrap();
    let found = series.iter().find(|it| {
        let labels = it.get("labels").and_then(Value::as_object);
        let own = labels.and_then(|labels| labels.values().next()).and_then(Value::as_str);
        it["name"] == name && own == label
    });
    let values = found.map(|it| it["values"].as_array().unwrap().clone()).unwrap_or_default();
    values.iter().filter_map(Value::as_f64).collect()
}

fn most(report: &Value, name: &str, label: Option<&str>) -> f64 {
    measured(report, name, label).into_iter().fold(0.0, f64::max)
}

/// Waits until a series has been above zero.
fn wait_for(client: &Client, name: &str, label: Option<&str>) -> Value {
    until(&format!("{name} above zero"), SOON, || {
        let report = client.get(&format!("/v1/history?step=1s&series={name}")).json();
        if most(&report, name, label) > 0.0 { Ok(report) } else { Err(report.to_string()) }
    })
}

fn history(server: &Server, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = testkit::command(COVE);
    command.args(["history", "--data-dir"]).arg(server.data_dir()).args(arguments);
    for name in ["LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn what_was_measured_is_there_at_the_first_look_and_for_whom_it_is() {
    let _guard = beside_others();
    let server = serve();
    let operator = server.client();
    let other = server.other_client("other", &["--scope", "executions"]);
    let third = server.other_client("third", &["--scope", "executions", "--scope", "sessions"]);

    // Series of the whole server, by the outcome of executions.
    assert_eq!(run(&other, &json!({ "argv": ["/bin/true"] }))["verdict"], "OK");
    assert_eq!(run(&operator, &json!({ "argv": ["/bin/false"] }))["verdict"], "RE");
    wait_for(&operator, "cove_executions_ended", Some("ok"));
    let report = wait_for(&operator, "cove_executions_ended", Some("failed"));
    assert_eq!(report["node"], operator.get("/v1/whoami").json()["node"]);
    assert_eq!((&report["step_ms"], report.get("tenant")), (&json!(1000), None));
    wait_for(&operator, "cove_execution_run_p95_seconds", None);
    let times = report["times_ms"].as_array().unwrap();
    assert_eq!(times.len(), 900);
    assert!(times.windows(2).all(|it| it[1].as_u64() == it[0].as_u64().map(|it| it + 1000)));
    let all = operator.get("/v1/history").json();
    assert_eq!((&all["step_ms"], all["times_ms"].as_array().unwrap().len()), (&json!(5000), 180));
    for name in ["process_resident_memory_bytes", "cove_http_requests", "cove_sandboxes_prepared"] {
        assert!(most(&all, name, None) > 0.0, "{name}: {all}");
    }
    // Before the server started there are no values, which differs from zero.
    assert!(measured(&all, "process_resident_memory_bytes", None).len() < 180);

    // A tenant sees only values of its own executions.
    wait_for(&other, "cove_executions_ended", Some("ok"));
    let own = other.get("/v1/history").json();
    assert!(most(&own, "cove_executions_started", None) > 0.0, "{own}");
    assert_eq!(most(&own, "cove_executions_ended", Some("failed")), 0.0, "{own}");
    assert!(own["tenant"].is_string(), "{own}");
    let names: Vec<&str> =
        own["series"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.iter().all(|it| it.starts_with("cove_executions_")), "{names:?}");
    let none = third.get("/v1/history").json();
    assert_eq!(most(&none, "cove_executions_ended", Some("ok")), 0.0, "{none}");
    for (client, query, status, field) in [
        (&other, "series=cove_http_requests", 403, Some("series")),
        (&other, "series=cove_execution_wait_p95_seconds", 403, Some("series")),
        (&other, "series=cove_session_sandboxes", 403, Some("series")),
        (&third, "series=cove_session_sandboxes", 200, None),
        (&other, "series=cove_bouncer_clients&tenant=shop", 403, Some("series")),
        (&operator, "series=cove_nothing", 400, Some("series")),
        (&operator, "window=25h", 400, Some("window")),
        (&operator, "window=24h&step=10s", 400, Some("step")),
        (&operator, "window=1h&step=15s", 400, Some("step")),
        (&operator, "window=soon", 400, Some("window")),
        (&operator, "colour=blue", 400, None),
    ] {
        let answer = client.get(&format!("/v1/history?{query}"));
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
        assert_eq!(answer.json()["error"]["field"].as_str(), field, "{query}");
    }
    assert_eq!(operator.anonymous().get("/v1/history").status, 401);

    // On the command line.
    let output = history(&server, &["executions_*", "--window", "5m"], &[("LANG", "C")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.is_ascii(), "{text}");
    let line = text.lines().find(|it| it.starts_with("cove_executions_ended{class=\"ok\"}"));
    assert!(line.is_some_and(|it| it.contains('#') && it.contains("/s")), "{text}");
    let output = history(&server, &["process_open_fds"], &[("LC_ALL", "en_US.UTF-8")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains('█') || text.contains("no series yet"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let output = history(&server, &["http_requests", "--json"], &[]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(most(&report, "cove_http_requests", None) > 0.0, "{report}");
    let output = history(&server, &["nonsense"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown series"), "{output:?}");
}

#[test]
fn history_and_the_queue_are_followed_on_the_socket() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let other = server.other_client("other", &["--scope", "executions"]);
    let address = client.address().to_string();
    let live = |client: &Client| -> WebSocket {
        let request = Request::new("GET", "/v1/live").header("host", &address);
        client.websocket_by(&request).unwrap_or_else(|response| panic!("{}", response.text()))
    };
    let (mut socket, mut of_other) = (live(&client), live(&other));
    let series = "cove_executions_running";
    for socket in [&mut socket, &mut of_other] {
        socket.send(&json!({
            "op": "subscribe", "id": "past", "topic": "history", "series": [series], "step": "1s"
        }));
        socket.send(&json!({ "op": "subscribe", "id": "queue", "topic": "queue" }));
    }
    of_other.send(&json!({
        "op": "subscribe", "id": "all", "topic": "history", "series": ["cove_http_requests"]
    }));
    of_other.send(&json!({ "op": "subscribe", "id": "total", "topic": "queue", "all": true }));
    // In any order, between events of permitted topics.
    let mut refused = 0;
    while refused < 2 {
        let message = of_other.json();
        if message["id"] == "all" || message["id"] == "total" {
            assert_eq!(message["error"]["code"], "forbidden", "{message}");
            refused += 1;
        }
    }
    let request = Request::new("POST", "/v1/executions")
        .header("content-type", "application/json")
        .body(held("sleep 72.1").to_string());
    assert_eq!(client.send(&request).status, 202);
    wait_for_sleep("72.1");
    let mut follow = |id: &str, is_right: &dyn Fn(&Value) -> bool| loop {
        let message = socket.json();
        assert!(message.get("error").is_none(), "{message}");
        if message["id"] == id && is_right(&message["event"]) {
            return message["event"].clone();
        }
    };
    // The queue topic sends one event, the history topic one per second.
    follow("queue", &|event| event["running"] == 1);
    let event = follow("past", &|event| event.is_object() && most(event, series, None) == 1.0);
    assert_eq!(event["times_ms"].as_array().unwrap().len(), 3, "{event}");
    wake("72.1");
    follow("queue", &|event| event["running"] == 0);
    // The other tenant has run nothing.
    let own = other.get(&format!("/v1/history?series={series}")).json();
    assert_eq!(most(&own, series, None), 0.0, "{own}");
}

#[test]
fn a_server_without_a_history_says_so() {
    let _guard = beside_others();
    let server = serve_with("[history]\nenabled = false");
    let answer = server.client().get("/v1/history");
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("history.enabled"), "{}", answer.text());
}
