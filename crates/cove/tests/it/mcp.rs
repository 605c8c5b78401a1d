//! The Model Context Protocol: the official SDK, unmodified, and what it does not show.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, until};

use crate::gateway::{Stage, shop, stage};
use crate::sessions_support::{SOON, config};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, assert_checks_passed, beside_others};

const STATELESS: &str = "2026-07-28";

fn serve() -> Server {
    Server::start_with(COVE, &[], Some(&config("memory_bytes = 536870912")))
}

/// Runs the SDK's client, which prints a line for each of its checks.
fn run_client(arguments: &[&str]) {
    let mut client = Command::new(interpreter());
    let output = client.arg(Path::new(COMPAT).join("mcp/client.py")).args(arguments).output();
    assert_checks_passed(&output.unwrap());
}

#[test]
fn the_python_sdk_uses_all_tools_in_both_kinds_of_revision() {
    let _guard = beside_others();
    let Stage { server, postgres, mariadb, .. } = &stage("memory_bytes = 536870912");
    let url = format!("http://{}/mcp", server.client().address());
    for mode in ["auto", "legacy"] {
        run_client(&["http", &url, server.token(), mode, "postgres:shop", "mysql:judge"]);
    }
    assert_eq!(postgres.sql("SELECT count(*) FROM items"), "100");
    assert_eq!(mariadb.sql("SELECT answer FROM judge.answers"), "forty-two");
}

#[test]
fn the_python_sdk_uses_all_tools_over_standard_streams() {
    let _guard = beside_others();
    let server = serve();
    let data_dir = server.data_dir();
    let data_dir = data_dir.to_str().unwrap();
    for mode in ["auto", "legacy"] {
        run_client(&["stdio", mode, COVE, "mcp", "--data-dir", data_dir]);
    }
}

#[test]
fn a_client_that_closes_a_query_ends_it_in_the_database() {
    let _guard = beside_others();
    let Stage { server, sessions, postgres, .. } = &stage("");
    let grants = json!([shop("read_only")]);
    let session = sessions.create(&json!({ "grants": grants }));
    let given =
        json!({ "session": session, "grant": "postgres:shop", "sql": "SELECT pg_sleep(600)" });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "query_sql", "arguments": given },
    });
    let body = body.to_string();
    let mut stream = TcpStream::connect(server.client().address()).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\n\r\n{body}",
        server.client().address(),
        server.token(),
        body.len()
    )
    .unwrap();
    let wait_for = |expected: &str| {
        until("statements in the database", SOON, || {
            let busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'clerk' \
                        AND state = 'active'";
            match postgres.sql(busy) {
                count if count == expected => Ok(()),
                count => Err(count),
            }
        });
    };
    wait_for("1");
    drop(stream);
    wait_for("0");
}

fn post(client: &Client, headers: &[(&str, &str)], body: &str) -> Response {
    let request = Request::new("POST", "/mcp").header("content-type", "application/json");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    client.send(&request.body(body))
}

/// A stateless request with the headers that belong to it.
fn stateless(client: &Client, method: &str, params: Value) -> Response {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut headers = vec![("mcp-protocol-version", STATELESS), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    post(client, &headers, &body.to_string())
}

#[test]
fn requests_that_are_not_of_the_protocol_are_refused_as_it_says() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let meta = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let undeclared = meta.replace("clientCapabilities", "clientInfo");
    let future = meta.replace(STATELESS, "2031-01-01");
    let batch = format!("[{list},{list}]");
    for (headers, body, status, code) in [
        (&[][..], "{", 400, Some(-32_700)),
        (&[], "{}", 400, Some(-32_600)),
        (&[], list, 200, None),
        (&[], batch.as_str(), 200, None),
        (&[], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 202, None),
        (&[], r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, 200, Some(-32_601)),
        (&[], meta, 400, Some(-32_020)),
        (&[("mcp-protocol-version", STATELESS), ("mcp-method", "ping")], meta, 400, Some(-32_020)),
        (&[("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")], meta, 200, None),
        (
            &[("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")],
            &undeclared,
            400,
            Some(-32_602),
        ),
        (
            &[("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")],
            list,
            400,
            Some(-32_602),
        ),
        (&[("mcp-protocol-version", "2031-01-01")], list, 400, Some(-32_022)),
        (&[("mcp-protocol-version", "2031-01-01")], &future, 400, Some(-32_022)),
        (&[("mcp-protocol-version", STATELESS)], &future, 400, Some(-32_020)),
        (&[("origin", "http://evil.example")], list, 403, Some(-32_600)),
        (&[("host", "evil.example"), ("origin", "http://evil.example")], list, 403, Some(-32_600)),
        (&[("host", "evil.example")], list, 403, Some(-32_600)),
    ] {
        let answer = post(&client, headers, body);
        assert_eq!(answer.status, status, "{headers:?} {body}: {}", answer.text());
        if let Some(code) = code {
            assert_eq!(answer.json()["error"]["code"], code, "{body}");
        }
    }
    let unknown = stateless(&client, "no/such", json!({}));
    assert_eq!((unknown.status, unknown.json()["error"]["code"].as_i64()), (404, Some(-32_601)));
    for method in ["GET", "DELETE"] {
        let answer = client.send(&Request::new(method, "/mcp"));
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
}

#[test]
fn a_token_has_the_tools_that_it_is_for() {
    let _guard = beside_others();
    let server = serve();
    assert_eq!(post(&server.client().anonymous(), &[], "{}").status, 401);
    let names = |client: &Client| {
        let answer = stateless(client, "tools/list", json!({}));
        let tools = answer.json()["result"]["tools"].clone();
        let names = tools.as_array().unwrap().iter().map(|tool| tool["name"].clone());
        names.map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let runner = server.other_client("runner", &["--scope", "executions"]);
    assert_eq!(names(&runner), ["run_code", "job"]);
    let keeper = server.other_client("keeper", &["--scope", "sessions"]);
    assert!(!names(&keeper).contains(&"run_code".to_owned()));
    let call = json!({ "name": "session", "arguments": { "action": "list" } });
    let refused = stateless(&runner, "tools/call", call.clone());
    assert_eq!(refused.json()["error"]["code"], -32_602, "{}", refused.text());

    // What one tenant has, another does not find.
    let made = json!({ "name": "session", "arguments": { "action": "create" } });
    let made = stateless(&server.client(), "tools/call", made).json();
    let session = made["result"]["structuredContent"]["id"].as_str().unwrap().to_owned();
    let listed = stateless(&keeper, "tools/call", call).text();
    assert!(!listed.contains(&session), "{listed}");
    let given = json!({ "session": session, "command": "id" });
    let call = json!({ "name": "run_command", "arguments": given });
    let refused = stateless(&keeper, "tools/call", call).json();
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let uri = format!("cove://sessions/{session}/files/etc/passwd");
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": uri },
    });
    let read = post(&keeper, &[], &body.to_string()).json();
    assert_eq!(read["error"]["code"], -32_602, "{read}");
}
