//! Traces: the spans of requests as a collector receives them, and the continuation of traces.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::{Client, Message, Postgres, Receiver, Request, Server, until};

use crate::asynchronous::ended;
use crate::cluster::Pair;
use crate::gateway::{CANARY, shop};
use crate::revocation::call;
use crate::sessions_support::{Sessions, config, path, probe};
use crate::support::{COVE, LANGUAGES, SOON, beside_others, run, shell};
use crate::webhooks::LOOPBACK;

const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Returns settings with which a server sends each span at once.
fn telemetry(collector: &str) -> String {
    format!(
        "[telemetry]\ntraces_endpoint = \"{collector}\"\ntraces_gzip = false\nbatch_delay_s = 0.05\n\
         traces_headers = {{ x-key = \"hunter2\" }}\nresource_attributes = {{ stage = \"test\" }}\n"
    )
}

/// Returns a unique trace context: a `traceparent` and the id of its trace.
fn context(flags: &str) -> (String, String) {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let trace = format!("{number:016x}{:016x}", u64::from(std::process::id()));
    (format!("00-{trace}-00000000000000aa-{flags}"), trace)
}

fn post(client: &Client, target: &str, traceparent: &str, body: &Value) -> Value {
    let request = Request::new("POST", target).header("content-type", "application/json");
    let request = request.header("traceparent", traceparent).header("tracestate", "vendor=1");
    let answer = client.send(&request.body(body.to_string()));
    assert!(answer.status < 300, "{target}: {}", answer.text());
    match answer.header("content-type") {
        Some("application/json") => answer.json(),
        _ => Value::Null,
    }
}

/// Spans of one trace, as a collector received them.
struct Spans(Vec<Value>);

impl Spans {
    /// Waits until spans with all these names have arrived.
    fn wait(collector: &Receiver, trace: &str, names: &[&str]) -> Spans {
        until(&format!("{names:?} of {trace}"), SOON, || {
            let found = Spans::found(collector, trace);
            let is_there = |name: &&str| found.0.iter().any(|span| span["name"] == *name);
            match names.iter().all(is_there) {
                true => Ok(found),
                false => Err(found.0.iter().map(|span| span["name"].to_string()).collect()),
            }
        })
    }

    /// Returns the spans that have arrived so far.
    fn found(collector: &Receiver, trace: &str) -> Spans {
        let mut found = Vec::new();
        for delivered in collector.delivered() {
            let document = delivered.json();
            let of_all = &document["resourceSpans"][0]["scopeSpans"][0]["spans"];
            found.extend(
                of_all.as_array().unwrap().iter().filter(|it| it["traceId"] == trace).cloned(),
            );
        }
        Spans(found)
    }

    /// Returns the only span with a name.
    fn one(&self, name: &str) -> &Value {
        let mut found = self.0.iter().filter(|span| span["name"] == name);
        let one = found.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.0));
        assert!(found.next().is_none(), "two of {name}: {:?}", self.0);
        one
    }

    /// Checks that each span is a child of the next one, and the last one a child of the client's
    /// span.
    fn check_path(&self, names: &[&str]) {
        for pair in names.windows(2) {
            let (inner, outer) = (self.one(pair[0]), self.one(pair[1]));
            assert_eq!(inner["parentSpanId"], outer["spanId"], "{pair:?}");
        }
        let first = self.one(names[names.len() - 1]);
        assert_eq!(first["parentSpanId"], "00000000000000aa", "{first}");
        assert_eq!(first["traceState"], "vendor=1", "{first}");
    }
}

/// Returns the attributes of a span by name, whatever their type.
fn attributes(span: &Value) -> BTreeMap<String, Value> {
    let pairs = span["attributes"].as_array().unwrap().iter().map(|pair| {
        let value = pair["value"].as_object().unwrap().values().next().unwrap();
        (pair["key"].as_str().unwrap().to_owned(), value.clone())
    });
    pairs.collect()
}

#[test]
fn an_execution_is_one_trace_from_the_request_to_its_program_and_webhook() {
    let _guard = beside_others();
    let collector = Receiver::start(|_| TAKEN);
    let hook = Receiver::start(|_| testkit::TAKEN);
    let config = format!(
        "[executions]\nlanguages = {LANGUAGES:?}\n{LOOPBACK}{}[log]\nformat = \"json\"\n\
         level = \"debug\"\n",
        telemetry(&collector.url())
    );
    let server = Server::start_with(COVE, &[], Some(&config));
    let client = server.client();
    let script = "print(__import__('os').environ.get('TRACEPARENT'))";

    // A synchronous execution.
    let (parent, trace) = context("01");
    let target = "/v1/executions?wait=true";
    let result = post(&client, target, &parent, &json!({"language": "python", "source": script}));
    let names = ["POST /v1/executions", "execution", "admission", "sandbox", "run"];
    let spans = Spans::wait(&collector, &trace, &names);
    spans.check_path(&["run", "execution", "POST /v1/executions"]);
    spans.check_path(&["sandbox", "execution", "POST /v1/executions"]);
    spans.check_path(&["admission", "execution", "POST /v1/executions"]);
    let request = attributes(spans.one("POST /v1/executions"));
    for (name, expected) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!("/v1/executions")),
        ("url.path", json!("/v1/executions")),
        ("http.response.status_code", json!("200")),
    ] {
        assert_eq!(request[name], expected, "{name}");
    }
    assert!(request["cove.request.id"].as_str().unwrap().starts_with("req_"), "{request:?}");
    let run = attributes(spans.one("run"));
    let figures = ["cove.cpu_ms", "cove.wall_ms", "cove.memory_peak_bytes", "cove.processes_peak"];
    assert!(figures.iter().all(|name| run.contains_key(*name)), "{run:?}");
    assert_eq!((&run["cove.verdict"], &run["process.exit.code"]), (&json!("OK"), &json!("0")));
    assert_eq!(attributes(spans.one("execution"))["cove.execution.id"], result["id"]);
    // The program receives the trace context, and no span contains its source.
    let inside = format!("00-{trace}-{}-01\n", spans.one("run")["spanId"].as_str().unwrap());
    assert_eq!(result["stdout"], inside);
    assert!(!format!("{:?}", spans.0).contains("environ"), "{:?}", spans.0);
    // Log lines of the request contain the trace id.
    let log = server.log();
    let lines: Vec<Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_trace = lines.iter().find(|line| line["trace_id"] == trace.as_str());
    assert_eq!(of_trace.unwrap_or_else(|| panic!("{log}"))["execution"], result["id"]);

    // A program whose request sets the variable itself.
    let (parent, trace) = context("01");
    let own = json!({"language": "python", "source": script, "env": {"TRACEPARENT": "own"}});
    let result = post(&client, target, &parent, &own);
    assert_eq!(result["stdout"], "own\n");
    Spans::wait(&collector, &trace, &["run"]);

    // A queued execution that fails, and its webhook.
    let (parent, trace) = context("01");
    let webhook = json!({"url": hook.url()});
    let queued = json!({"language": "python", "source": "1/0", "webhook": webhook});
    let record = post(&client, "/v1/executions", &parent, &queued);
    let id = record["id"].as_str().unwrap();
    assert_eq!(ended(&client, id)["result"]["verdict"], "RE");
    let sent = hook.wait_for(1).remove(0);
    let names = ["POST /v1/executions", "queue", "execution", "run", "webhook"];
    let spans = Spans::wait(&collector, &trace, &names);
    spans.check_path(&["run", "execution", "POST /v1/executions"]);
    spans.check_path(&["queue", "POST /v1/executions"]);
    spans.check_path(&["webhook", "POST /v1/executions"]);
    let webhook = spans.one("webhook")["spanId"].as_str().unwrap();
    assert_eq!(sent.header("traceparent"), format!("00-{trace}-{webhook}-01"));
    assert_eq!(attributes(spans.one("run"))["cove.verdict"], "RE");
    // The stored trace is not visible to clients.
    let execution = client.get(&format!("/v1/executions/{id}?include=request")).json();
    assert_eq!(execution["request"]["source"], "1/0", "{execution}");

    // A trace that is not sampled has no span, and its program has no variable.
    let (parent, trace) = context("00");
    let source = json!({"language": "python", "source": script});
    let result = post(&client, target, &parent, &source);
    assert_eq!(result["stdout"], "None\n");
    // A request without a token has no span either.
    let (stranger, of_stranger) = context("01");
    let request = Request::new("GET", "/v1/languages").header("traceparent", &stranger);
    assert_eq!(client.anonymous().send(&request).status, 401);
    // A later request does not cause these spans to be sent.
    let (last, of_last) = context("01");
    post(&client, target, &last, &source);
    Spans::wait(&collector, &of_last, &["POST /v1/executions"]);
    for none in [&trace, &of_stranger] {
        assert_eq!(Spans::found(&collector, none).0, Vec::<Value>::new());
    }
    let delivered = collector.delivered().remove(0);
    assert_eq!((&*delivered.line, delivered.header("x-key")), ("POST /hook", "hunter2"));
    let resource = attributes(&delivered.json()["resourceSpans"][0]["resource"]);
    assert_eq!((&resource["service.name"], &resource["stage"]), (&json!("cove"), &json!("test")));
}

/// Output of an agent that uses a tool, which fails.
const TOOL_LINES: &str = concat!(
    r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","#,
    r#""id":"t1","name":"Bash","input":{"command":"kept back"}}]}}"#,
    "\n",
    r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","#,
    r#""tool_use_id":"t1","content":"kept back","is_error":true}]}}"#,
    "\n",
);

/// Shell command with queries: one with the session's own trace, one with another trace, and an
/// invalid one.
const QUERIES: &str = r#"
psql -qtAc "SELECT 'kept back' /*traceparent='$TRACEPARENT'*/" &&
psql -qtAc "SELECT 2 /*traceparent='00-00000000000000000000000000000abc-00000000000000bb-01'*/" &&
! psql -qtAc "SELECT 1/0" 2>/dev/null &&
echo "$TRACEPARENT"
"#;

#[test]
fn a_session_and_its_queries_and_a_commit_are_parts_of_their_requests() {
    let _guard = beside_others();
    let collector = Receiver::start(|_| TAKEN);
    let postgres = Postgres::start();
    postgres.sql(&format!("CREATE ROLE clerk LOGIN PASSWORD '{CANARY}'"));
    let tenants = format!(
        "[bouncer]\nlisten = \"127.0.0.1:0\"\n[[bouncer.tenants]]\nname = \"shop\"\n\
         server = \"{}\"\ndatabase = \"postgres\"\n\
         users = [{{ name = \"clerk\", password = \"{CANARY}\" }}]\n",
        postgres.tcp()
    );
    let config = config("") + &tenants + &telemetry(&collector.url());
    let server = Server::start_with(COVE, &["--e2b", "127.0.0.1:0"], Some(&config));
    let (client, sessions) = (server.client(), Sessions::from(&server));

    sessions.deploy(&probe("probe"));
    let session = sessions.create(&json!({"agent": "probe", "grants": [shop("read_only")]}));
    check_message(&collector, &client, &session);
    check_queries(&collector, &client, &session);
    check_terminal(&collector, &client, &session);
    check_e2b(&collector, &server);
    check_commit(&collector, &client);
}

/// Checks the spans of a message to an agent.
fn check_message(collector: &Receiver, client: &Client, session: &str) {
    let (parent, trace) = context("01");
    let content = json!({"content": format!("raw {}", BASE64.encode(TOOL_LINES))});
    post(client, &format!("{}/messages", path(session)), &parent, &content);
    let route = "POST /v1/sessions/{id}/messages";
    let tool = "execute_tool Bash";
    let spans = Spans::wait(collector, &trace, &[route, "queue", "turn", "agent", tool]);
    spans.check_path(&["agent", "turn", route]);
    spans.check_path(&[tool, "turn", route]);
    assert_eq!(attributes(spans.one(tool))["gen_ai.tool.call.id"], "t1");
    assert_eq!(spans.one(tool)["status"]["code"], 2);
    assert_eq!(attributes(spans.one("turn"))["cove.tool_calls"], "1");
    spans.check_path(&["queue", route]);
    assert_eq!(attributes(spans.one("turn"))["cove.session.id"], session);
    assert!(!format!("{:?}", spans.0).contains("kept back"), "{:?}", spans.0);
}

/// Checks the spans of a command with queries through a grant.
fn check_queries(collector: &Receiver, client: &Client, session: &str) {
    let (parent, trace) = context("01");
    let exec = format!("{}/exec", path(session));
    let result = post(client, &exec, &parent, &json!({"command": QUERIES}));
    assert_eq!(result["exit_code"], 0, "{result}");
    let inside = result["stdout"].as_str().unwrap().lines().last().unwrap().to_owned();
    let is_whole = |spans: &Spans| spans.0.iter().filter(|it| it["name"] == "query shop").count();
    let spans = until("three queries", SOON, || {
        let spans = Spans::found(collector, &trace);
        let names = ["exec", "POST /v1/sessions/{id}/exec"];
        let has = |name: &str| spans.0.iter().any(|span| span["name"] == name);
        let is_there = is_whole(&spans) == 3 && names.into_iter().all(has);
        if is_there { Ok(spans) } else { Err(format!("{:?}", spans.0)) }
    });
    spans.check_path(&["exec", "POST /v1/sessions/{id}/exec"]);
    let exec = spans.one("exec")["spanId"].as_str().unwrap();
    assert_eq!(inside, format!("00-{trace}-{exec}-01"));
    let queries: Vec<&Value> = spans.0.iter().filter(|it| it["name"] == "query shop").collect();
    let mut links = Vec::new();
    let mut failures = 0;
    for query in queries {
        assert_eq!((&query["parentSpanId"], &query["kind"]), (&json!(exec), &json!(3)), "{query}");
        let about = attributes(query);
        let expected = (&json!("postgresql"), &json!("shop"), &json!("postgres:shop"));
        let found = (&about["db.system.name"], &about["db.namespace"], &about["cove.grant"]);
        assert_eq!(found, expected);
        assert!(!about.contains_key("db.query.text"), "{about:?}");
        links.extend(query["links"].as_array().into_iter().flatten().cloned());
        if about.get("db.response.status_code") == Some(&json!("22012")) {
            assert_eq!(query["status"]["code"], 2);
            failures += 1;
        }
    }
    let other =
        json!({"traceId": "00000000000000000000000000000abc", "spanId": "00000000000000bb"});
    assert_eq!((links, failures), (vec![other], 1));
    let connects = spans.0.iter().filter(|span| span["name"] == "connect shop");
    assert_eq!(connects.count(), 3, "{:?}", spans.0);
    assert!(!format!("{:?}", spans.0).contains("kept back"), "{:?}", spans.0);
}

/// Checks the span of a terminal, which ends with its program, long after the response to its
/// request.
fn check_terminal(collector: &Receiver, client: &Client, session: &str) {
    let (parent, trace) = context("01");
    let target = format!("{}/terminal?argv=sh", path(session));
    let request = Request::new("GET", &target).header("traceparent", &parent);
    let mut socket = client.websocket_by(&request.header("tracestate", "vendor=1")).unwrap();
    assert_eq!(socket.json()["type"], "started");
    let route = "GET /v1/sessions/{id}/terminal";
    let spans = Spans::wait(collector, &trace, &[route]);
    assert!(spans.0.iter().all(|span| span["name"] != "terminal"), "{:?}", spans.0);
    socket.send(&json!({"type": "stdin", "data": "echo [$TRACEPARENT]; exit 7\n"}));
    let mut output = String::new();
    let ended = loop {
        match socket.message() {
            Message::Binary(piece) => output += &String::from_utf8_lossy(&piece),
            Message::Text(text) => break serde_json::from_str::<Value>(&text).unwrap(),
            Message::Close(code, reason) => panic!("{code} {reason}: {output}"),
        }
    };
    assert_eq!(ended["exit_code"], 7, "{ended}");
    let spans = Spans::wait(collector, &trace, &[route, "terminal"]);
    spans.check_path(&["terminal", route]);
    let terminal = spans.one("terminal");
    let about = attributes(terminal);
    assert_eq!(
        (&about["cove.session.id"], &about["process.exit.code"]),
        (&json!(session), &json!("7"))
    );
    let inside = format!("[00-{trace}-{}-01]", terminal["spanId"].as_str().unwrap());
    assert!(output.contains(&inside), "{output}");
}

/// Checks the spans of a command that E2B's client starts.
fn check_e2b(collector: &Receiver, server: &Server) {
    let client = Client::new(server.listener("e2b"), None);
    let create =
        Request::new("POST", "/v2/sandboxes").header("x-api-key", &crate::e2b::key(server));
    let sandbox = client.send(&create.body(json!({"templateID": "base"}).to_string())).json();
    let (parent, trace) = context("01");
    let args = ["-c", "[ -n \"$TRACEPARENT\" ] && exit 5"];
    let start = json!({"process": {"cmd": "/bin/sh", "args": args}, "stdin": false});
    let start = call(&sandbox, "/process.Process/Start", &start).header("traceparent", &parent);
    assert_eq!(client.send(&start).status, 200);
    let spans = Spans::wait(collector, &trace, &["exec"]);
    assert_eq!(attributes(spans.one("exec"))["process.exit.code"], "5");
}

/// Checks the spans of a commit, and of a load that is answered from memory.
fn check_commit(collector: &Receiver, client: &Client) {
    let schema = json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "a", "required": false, "type": "long"}
    ]});
    let (unrecorded, _) = context("00");
    let base = "/catalog/v1";
    let config = client.get(&format!("{base}/config")).json();
    let prefix = config["overrides"]["prefix"].as_str().or(config["defaults"]["prefix"].as_str());
    let base = prefix.map_or(base.to_owned(), |prefix| format!("{base}/{prefix}"));
    post(client, &format!("{base}/namespaces"), &unrecorded, &json!({"namespace": ["n"]}));
    let tables = format!("{base}/namespaces/n/tables");
    post(client, &tables, &unrecorded, &json!({"name": "t", "schema": schema}));
    let (parent, trace) = context("01");
    let change = json!({"requirements": [], "updates": [
        {"action": "set-properties", "updates": {"k": "v"}}
    ]});
    post(client, &format!("{tables}/t"), &parent, &change);
    let names = ["validate", "commit", "apply", "write metadata", "store"];
    let spans = Spans::wait(collector, &trace, &names);
    let request = until("the span of the request", SOON, || {
        let spans = Spans::found(collector, &trace);
        let found = spans.0.iter().find(|span| span["kind"] == 2).cloned();
        found.ok_or_else(|| format!("{:?}", spans.0))
    });
    assert_eq!(request["parentSpanId"], "00000000000000aa");
    for inner in ["apply", "write metadata", "store"] {
        let commit = &spans.one("commit")["spanId"];
        assert_eq!(&spans.one(inner)["parentSpanId"], commit, "{inner}");
    }
    for inner in ["validate", "commit"] {
        assert_eq!(spans.one(inner)["parentSpanId"], request["spanId"], "{inner}");
    }
    assert_eq!(attributes(spans.one("commit"))["cove.retries"], "0");
    // Responses from memory, sent before routing, are traced as well.
    let (parent, trace) = context("01");
    let load = Request::new("GET", &format!("{tables}/t")).header("traceparent", &parent);
    assert_eq!(client.send(&load).status, 200);
    until("the span of a load", SOON, || {
        let spans = Spans::found(collector, &trace);
        match &spans.0[..] {
            [one] if one["parentSpanId"] == "00000000000000aa" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn a_request_that_another_node_answers_is_one_trace() {
    let _guard = beside_others();
    let collector = Receiver::start(|_| TAKEN);
    let settings = format!(
        "telemetry.traces_endpoint = \"{}\"\ntelemetry.traces_gzip = false\n\
         telemetry.batch_delay_s = 0.05\n",
        collector.url()
    );
    let pair = Pair::start(&settings);
    let session = Sessions::from(&pair.one).create(&json!({"agent": "probe"}));
    let route = "POST /v1/sessions/{id}/exec";
    let mut hops = Vec::new();
    for server in [&pair.one, &pair.two] {
        let (parent, trace) = context("01");
        let exec = format!("{}/exec", path(&session));
        let command = json!({"command": "echo $TRACEPARENT"});
        let result = post(&server.client(), &exec, &parent, &command);
        let spans = until("the span of the node that was asked", SOON, || {
            let spans = Spans::wait(&collector, &trace, &[route, "exec"]);
            let is_first = |span: &Value| span["parentSpanId"] == "00000000000000aa";
            if spans.0.iter().any(is_first) { Ok(spans) } else { Err(format!("{:?}", spans.0)) }
        });
        let exec = spans.one("exec");
        let ids = format!("00-{trace}-{}-01\n", exec["spanId"].as_str().unwrap());
        assert_eq!(result["stdout"], ids);
        // From the command up to the client, through one node or two.
        let mut parent = &exec["parentSpanId"];
        let mut requests = 0;
        while parent != "00000000000000aa" {
            let found = spans.0.iter().find(|span| span["spanId"] == *parent);
            let span = found.unwrap_or_else(|| panic!("no {parent} in {:?}", spans.0));
            assert_eq!((&span["name"], &span["kind"]), (&json!(route), &json!(2)));
            parent = &span["parentSpanId"];
            requests += 1;
        }
        hops.push(requests);
    }
    hops.sort_unstable();
    assert_eq!(hops, [1, 2]);
}

#[test]
fn a_collector_that_is_away_costs_nothing_but_its_spans() {
    let _guard = beside_others();
    // A collector that accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let telemetry = telemetry(&format!("http://{}", silent.local_addr().unwrap()));
    let config = format!(
        "[executions]\nlanguages = {LANGUAGES:?}\n{telemetry}queue_spans_max = 2\n\
         batch_spans_max = 1\nexport_timeout_s = 600\n"
    );
    let mut server = Server::start_with(COVE, &[], Some(&config));
    server.expect_log("the last spans could not be sent in time");
    let client = server.client();
    let counts = || {
        let metrics = client.anonymous().get("/metrics").text();
        let line = "cove_trace_spans_total{outcome=\"dropped\"} ";
        let dropped = metrics.lines().find_map(|it| it.strip_prefix(line)).unwrap().to_owned();
        dropped.parse::<u64>().unwrap()
    };
    // Each request creates one span; one span is being sent, and two wait in the queue.
    for _ in 0..10 {
        assert_eq!(client.get("/v1/languages").status, 200);
    }
    until("spans to be dropped", SOON, || match counts() {
        7.. => Ok(()),
        other => Err(other.to_string()),
    });
    assert_eq!(run(&client, &shell("true"))["verdict"], "OK");
}
