//! The Model Context Protocol: its official SDKs, inspector and conformance suite, and Claude's
//! command line, unmodified, and behaviour that they do not cover.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Scratch, Server, install_packages, packaged_node, until};

use crate::gateway::{Stage, shop, stage};
use crate::sessions_claude::{KEY, Model, claude_program};
use crate::sessions_support::config;
use crate::shared::{COMPAT, finish, interpreter};
use crate::support::{
    COVE, SOON, assert_checks_passed, beside_others, wait_for_sleep, wait_until_gone, wake,
};

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
    let arguments =
        json!({ "session": session, "grant": "postgres:shop", "sql": "SELECT pg_sleep(600)" });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "query_sql", "arguments": arguments },
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

fn compat() -> PathBuf {
    Path::new(COMPAT).join("mcp")
}

/// Returns the directory of clients for Node.js, installed once below the target directory.
fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-mcp");
        install_packages(&compat(), project, &["client.mjs", "with_token.mjs"])
    })
}

fn node() -> Command {
    let mut node = Command::new(packaged_node(project()));
    node.current_dir(project());
    node
}

/// Returns the command line with which a client starts `cove mcp`.
fn bridge(server: &Server) -> Vec<String> {
    let data_dir = server.data_dir().to_str().unwrap().to_owned();
    [COVE, "mcp", "--data-dir", &data_dir].map(str::to_owned).to_vec()
}

#[test]
fn the_typescript_sdks_use_tools_and_resources() {
    let _guard = beside_others();
    let server = serve();
    let url = format!("http://{}/mcp", server.client().address());
    for sdk in ["v1", "v2", "v2-legacy"] {
        let http = [sdk, "http", &url, server.token()].map(str::to_owned).to_vec();
        let stdio = [sdk, "stdio"].map(str::to_owned).into_iter().chain(bridge(&server)).collect();
        for arguments in [http, stdio] {
            let output = node().arg("client.mjs").args(&arguments).output();
            assert_checks_passed(&output.unwrap());
        }
    }
}

#[test]
fn the_rust_sdk_uses_tools_and_resources() {
    let _guard = beside_others();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-mcp-rust");
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--locked", "--target-dir"]).arg(&target);
    build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    finish(build.current_dir(compat().join("rust")));
    let program = target.join("debug/cove-compat-mcp");
    let server = serve();
    let url = format!("http://{}/mcp", server.client().address());
    for mode in ["stateless", "legacy"] {
        let http = [mode, "http", &url, server.token()].map(str::to_owned).to_vec();
        let stdio = [mode, "stdio"].map(str::to_owned).into_iter().chain(bridge(&server)).collect();
        for arguments in [http, stdio] {
            assert_checks_passed(&Command::new(&program).args(&arguments).output().unwrap());
        }
    }
}

/// Exit codes of the inspector's command line.
const TOOL_FAILED: i32 = 5;
const NOT_AUTHORIZED: i32 = 3;

#[test]
fn the_inspector_lists_and_calls_tools() {
    let _guard = beside_others();
    let server = serve();
    let scratch = Scratch::new();
    let url = format!("http://{}/mcp", server.client().address());
    let inspect = |token: &str, more: &[&str]| -> Output {
        let script = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        let mut inspector = node();
        inspector.env("HOME", scratch.path()).args([script, "--cli", &url, "--transport", "http"]);
        inspector.args(["--format", "json", "--stored-auth-only", "--header"]);
        inspector.arg(format!("Authorization: Bearer {token}")).args(more).output().unwrap()
    };
    let call = ["--method", "tools/call", "--tool-name", "run_code", "--tool-arg"];
    for era in ["legacy", "modern"] {
        let with =
            |more: &[&str]| inspect(server.token(), &[&["--protocol-era", era], more].concat());
        let listed = with(&["--method", "tools/list", "--strict"]);
        let document: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        assert_eq!(document["result"]["tools"][0]["name"], "run_code", "{listed:?}");
        assert_eq!(listed.status.code(), Some(0), "schemas are portable: {listed:?}");
        let ran = with(&[&call[..], &["language=py", "code=print(6*7)"]].concat());
        let document: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        assert_eq!(document["result"]["structuredContent"]["stdout"], "42\n", "{ran:?}");
        let failed = with(&[&call[..], &["language=none", "code=1"]].concat());
        assert_eq!(failed.status.code(), Some(TOOL_FAILED), "{failed:?}");
    }
    let refused = inspect("nothing", &["--method", "tools/list"]);
    assert_eq!(refused.status.code(), Some(NOT_AUTHORIZED), "{refused:?}");
}

/// Proxy that adds the server's token to requests.
struct TokenProxy {
    process: Child,
    url: String,
}

impl TokenProxy {
    fn start(server: &Server) -> TokenProxy {
        let port = server.client().address().port().to_string();
        let mut proxy = Command::new("setpriv");
        proxy.args(["--pdeathsig", "KILL", "--"]).arg(packaged_node(project()));
        proxy.args(["with_token.mjs", &port, server.token()]).current_dir(project());
        let mut process = proxy.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        TokenProxy { process, url }
    }
}

impl Drop for TokenProxy {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The suite sends no token, so a proxy adds it. Scenarios that need the suite's own tools are
/// tested in `crates/mcp/tests/conformance`.
#[test]
fn the_endpoint_conforms_where_no_tools_of_the_suite_are_needed() {
    let _guard = beside_others();
    let server = serve();
    let proxy = TokenProxy::start(&server);
    let scratch = Scratch::new();
    for (revision, scenario) in [
        ("2026-07-28", "server-stateless"),
        ("2026-07-28", "tools-list"),
        ("2026-07-28", "caching"),
        ("2026-07-28", "dns-rebinding-protection"),
        ("2026-07-28", "http-header-validation"),
        ("2026-07-28", "sep-2164-resource-not-found"),
        ("2025-11-25", "server-initialize"),
        ("2025-11-25", "ping"),
        ("2025-11-25", "tools-list"),
        ("2025-11-25", "dns-rebinding-protection"),
    ] {
        let script = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
        let output = node()
            .args([script, "server", "--scenario", scenario, "--spec-version", revision, "--url"])
            .arg(format!("{}/mcp", proxy.url))
            .arg("--expected-failures")
            .arg(compat().join("expected-failures-cove.yaml"))
            .arg("--output-dir")
            .arg(scratch.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{scenario} of {revision}: {text}");
    }
}

#[test]
fn claudes_command_line_calls_a_tool() {
    let _guard = beside_others();
    let (server, model, scratch) = (serve(), Model::start(), Scratch::new());
    let url = format!("http://{}/mcp", server.client().address());
    let token = format!("Bearer {}", server.token());
    let http = json!({ "type": "http", "url": url, "headers": { "Authorization": token } });
    let bridge = bridge(&server);
    let stdio = json!({ "command": bridge[0], "args": bridge[1..] });
    for (way, entry) in [("http", http), ("stdio", stdio)] {
        let servers = json!({ "mcpServers": { "cove": entry } });
        let file = scratch.file(way, servers.to_string());
        let arguments = json!({ "language": "py", "code": "print('from', 'cove')" });
        let output = Command::new(claude_program())
            .args(["-p", &format!("tool: mcp__cove__run_code {arguments}"), "--strict-mcp-config"])
            .args(["--allowedTools", "mcp__cove__run_code", "--mcp-config"])
            .arg(file)
            .env("ANTHROPIC_BASE_URL", format!("http://{}", model.address()))
            .env("ANTHROPIC_API_KEY", KEY)
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("HOME", scratch.path())
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains("from cove"), "{way}: {output:?}\n{}", server.log());
    }
}

fn post(client: &Client, headers: &[(&str, &str)], body: &str) -> Response {
    // Servers reject the client's default host name.
    let host = client.address().to_string();
    let named = headers.iter().any(|(name, _)| *name == "host");
    let host = (!named).then_some(("host", &*host));
    let request = Request::new("POST", "/mcp").header("content-type", "application/json");
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain(host).collect();
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    client.send(&request.body(body))
}

/// Sends a stateless request with the headers that it requires.
pub(crate) fn stateless(client: &Client, method: &str, params: Value) -> Response {
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
    // The server declares nothing that can be subscribed to, so this method does not exist.
    let declared = stateless(&client, "server/discover", json!({})).json();
    let capabilities = declared["result"]["capabilities"].clone();
    assert!(capabilities["tools"].is_object(), "{declared}");
    for (list, field) in
        [("tools", "listChanged"), ("resources", "listChanged"), ("resources", "subscribe")]
    {
        assert_ne!(capabilities[list][field], true, "{capabilities}");
    }
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let listen = stateless(&client, "subscriptions/listen", filter);
    let error = &listen.json()["error"];
    assert_eq!((listen.status, error["code"].as_i64()), (404, Some(-32_601)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("tasks/get"), "{error}");
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
    assert_eq!((refused.status, refused.json()["error"]["code"].as_i64()), (403, Some(-32_602)));
    let challenge = refused.header("www-authenticate").unwrap();
    assert_eq!(challenge, "Bearer error=\"insufficient_scope\", scope=\"sessions\"");

    // A tenant cannot find objects of another tenant.
    let made = json!({ "name": "session", "arguments": { "action": "create" } });
    let made = stateless(&server.client(), "tools/call", made).json();
    let session = made["result"]["structuredContent"]["id"].as_str().unwrap().to_owned();
    let listed = stateless(&keeper, "tools/call", call).text();
    assert!(!listed.contains(&session), "{listed}");
    let arguments = json!({ "session": session, "command": "id" });
    let call = json!({ "name": "run_command", "arguments": arguments });
    let refused = stateless(&keeper, "tools/call", call).json();
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let uri = format!("cove://sessions/{session}/files/etc/passwd");
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": uri },
    });
    let read = post(&keeper, &[], &body.to_string()).json();
    assert_eq!(read["error"]["code"], -32_602, "{read}");
}

/// Sends a stateless request of a client that supports tasks.
fn with_tasks(client: &Client, method: &str, subject: &str, params: Value) -> Response {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let headers =
        [("mcp-protocol-version", STATELESS), ("mcp-method", method), ("mcp-name", subject)];
    post(client, &headers, &body.to_string())
}

fn run_as_task(client: &Client, code: &str) -> Value {
    let arguments = json!({ "language": "bash", "code": code });
    let params = json!({ "name": "run_code", "arguments": arguments });
    with_tasks(client, "tools/call", "run_code", params).json()["result"].clone()
}

#[test]
fn a_program_that_runs_for_long_is_a_task_of_the_queue() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let task = |client: &Client, method: &str, id: &str| {
        with_tasks(client, method, id, json!({ "taskId": id }))
    };
    // A program that ends soon is answered without a task.
    let soon = run_as_task(&client, "echo soon");
    assert_eq!((&soon["resultType"], &soon["isError"]), (&json!("complete"), &json!(false)));
    assert_eq!(soon["structuredContent"]["stdout"], "soon\n", "{soon}");

    let made = run_as_task(&client, "sleep 97643.1; echo woken");
    assert_eq!(made["resultType"], "task", "{made}");
    let id = made["taskId"].as_str().unwrap().to_owned();
    assert_eq!(task(&client, "tasks/get", &id).json()["result"]["status"], "working");
    // The task is an ordinary execution, visible only to its owner.
    assert_eq!(client.get(&format!("/v1/executions/{id}")).status, 200);
    let other = server.other_client("other", &[]);
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let refused = task(&other, method, &id).json();
        assert_eq!(refused["error"]["code"], -32_602, "{method}: {refused}");
    }
    let undeclared = stateless(&client, "tasks/get", json!({ "taskId": id, "name": id }));
    assert_eq!(
        (undeclared.status, undeclared.json()["error"]["code"].as_i64()),
        (400, Some(-32_021))
    );
    wake("97643.1");
    let ended = until("the task to be completed", SOON, || {
        let found = task(&client, "tasks/get", &id).json()["result"].clone();
        if found["status"] == "completed" { Ok(found) } else { Err(found.to_string()) }
    });
    assert_eq!(ended["result"]["structuredContent"]["stdout"], "woken\n", "{ended}");

    let made = run_as_task(&client, "sleep 97643.2");
    let id = made["taskId"].as_str().unwrap().to_owned();
    wait_for_sleep("97643.2");
    for _ in 0..2 {
        // A second cancellation, after the end of the task, is no error.
        let ack = task(&client, "tasks/cancel", &id).json();
        assert_eq!(ack["result"], json!({ "resultType": "complete" }), "{ack}");
        until("the task to be cancelled", SOON, || {
            let found = task(&client, "tasks/get", &id).json()["result"].clone();
            if found["status"] == "cancelled" { Ok(()) } else { Err(found.to_string()) }
        });
    }
    wait_until_gone("97643.2");
    for id in ["ex_01M7ZSJM3P2AZVFP0M84SC7SNT", "../sessions", "ses_1", ""] {
        let refused = task(&client, "tasks/get", id).json();
        assert_eq!(refused["error"]["code"], -32_602, "{id}: {refused}");
    }
}
