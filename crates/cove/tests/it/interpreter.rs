//! The code interpreter of sessions: cells keep their definitions. Covers the native interface, the
//! command line, and E2B's unmodified clients.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Request, Response, Server, until};

use crate::asynchronous::{post, post_request};
use crate::e2b;
use crate::sessions_support::{SOON, Sessions, ok, path, serve_sessions};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, beside_others};

/// Memory of a session: data libraries need some.
pub(crate) const MEMORY: &str = "memory_bytes = 1073741824";

/// A session and its cells.
pub(crate) struct SessionCells {
    pub(crate) sessions: Sessions,
    pub(crate) session: String,
}

impl SessionCells {
    pub(crate) fn new(server: &Server) -> SessionCells {
        let sessions = Sessions::from(server);
        let session = sessions.create(&json!({ "env": { "OWN": "yes" } }));
        SessionCells { sessions, session }
    }

    pub(crate) fn at(&self, rest: &str) -> String {
        format!("{}/contexts{rest}", path(&self.session))
    }

    /// Creates a context. Returns its id.
    pub(crate) fn context(&self, body: &Value) -> String {
        let response = post(&self.sessions.client, &self.at(""), body);
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn view(&self, context: &str) -> Value {
        ok(&self.sessions.client.get(&self.at(&format!("/{context}"))))
    }

    pub(crate) fn send(&self, context: &str, cell: &Value) -> Response {
        post(&self.sessions.client, &self.at(&format!("/{context}/execute")), cell)
    }

    /// Runs a cell with any outcome.
    pub(crate) fn run(&self, context: &str, code: &str) -> Value {
        self.run_for(context, code, Duration::from_secs(60))
    }

    /// Like [`Self::run`], with a time limit.
    pub(crate) fn run_for(&self, context: &str, code: &str, time: Duration) -> Value {
        let time = u64::try_from(time.as_millis()).unwrap();
        ok(&self.send(context, &json!({ "code": code, "timeout_ms": time })))
    }

    /// Text of the value of a cell that ends successfully.
    pub(crate) fn value(&self, context: &str, code: &str) -> String {
        let report = self.run(context, code);
        assert_eq!(report["verdict"], "OK", "{code}: {report}");
        let results = report["results"].as_array().unwrap();
        let main = results.iter().find(|it| it["is_main_result"] == true);
        let text = main.and_then(|it| it["data"]["text/plain"].as_str());
        text.unwrap_or_default().to_owned()
    }

    /// Starts a cell, and returns when its context reports that it runs.
    fn begin<'a>(
        &self,
        scope: &'a std::thread::Scope<'a, '_>,
        context: &str,
        code: &str,
    ) -> std::thread::ScopedJoinHandle<'a, Value> {
        let (client, target) =
            (self.sessions.client.clone(), self.at(&format!("/{context}/execute")));
        let cell = json!({ "code": code, "timeout_ms": 60_000 });
        let running = scope.spawn(move || ok(&post(&client, &target, &cell)));
        until("the cell runs", SOON, || {
            let view = self.view(context);
            if view["state"] == "running" { Ok(()) } else { Err(view.to_string()) }
        });
        running
    }
}

#[test]
fn a_context_keeps_what_its_cells_define() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    assert_eq!(cells.value("python", "x = 20; x"), "20");
    assert_eq!(cells.value("python", "x + 1"), "21");
    for (language, first, second, expected) in [
        ("javascript", "let a = 1", "let a = 2; a + 1", "3"),
        ("typescript", "const a: number = 1", "a + 1", "2"),
    ] {
        cells.value(language, first);
        assert_eq!(cells.value(language, second), expected, "{language}");
    }
    cells.value("bash", "x=1; cd /tmp");
    let report = cells.run("bash", "echo $x $OWN; pwd");
    assert_eq!((&report["stdout"], &report["verdict"]), (&json!("1 yes\n/tmp\n"), &json!("OK")));
    // Another context has none of these definitions.
    let other = cells.context(&json!({ "cwd": "/tmp", "env": { "MORE": "2" } }));
    let report = cells.run(&other, "x");
    assert_eq!(report["error"]["name"], "NameError", "{report}");
    assert_eq!(report["verdict"], "RE");
    let code = "import os; (os.getcwd(), os.environ['OWN'], os.environ['MORE'])";
    assert_eq!(cells.value(&other, code), "('/tmp', 'yes', '2')");
    let view = cells.view(&other);
    assert_eq!((&view["executions"], &view["default"]), (&json!(2), &json!(false)));
    let list = ok(&cells.sessions.client.get(&cells.at("")));
    let languages: Vec<&str> = list["contexts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["language"].as_str().unwrap())
        .collect();
    assert_eq!(languages.last(), Some(&"python"), "{languages:?}");
    // A restarted context has none either.
    assert_eq!(
        ok(&post(&cells.sessions.client, &cells.at("/python/restart"), &json!({})))["executions"],
        0
    );
    assert_eq!(cells.run("python", "x")["error"]["name"], "NameError");
    let gone = Request::new("DELETE", &cells.at(&format!("/{other}")));
    assert_eq!(cells.sessions.client.send(&gone).status, 204);
    assert_eq!(cells.send(&other, &json!({ "code": "1" })).status, 404);
}

#[test]
fn cells_run_without_ipython() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let sessions = Sessions::from(&server);
    let session = sessions.create(&json!({ "env": { "PYTHONPATH": "/workspace/without" } }));
    let cells = SessionCells { sessions, session };
    let hide = "mkdir without; echo 'raise ImportError' > without/IPython.py";
    assert_eq!(cells.run("bash", hide)["verdict"], "OK");
    for (code, expected) in [
        ("import sys; 'IPython.core' in sys.modules", "False"),
        ("x = 20; await __import__('asyncio').sleep(0, x + 1)", "21"),
        ("!echo nothing to show", ""),
        ("list(range(30))", "[0,"),
    ] {
        let report = cells.run("python", code);
        if expected.is_empty() {
            assert_eq!(report["results"], json!([]), "{code}: {report}");
        } else {
            let text = report["results"][0]["data"]["text/plain"].as_str().unwrap_or_default();
            assert!(text.starts_with(expected), "{code}: {report}");
        }
    }
    let report = cells.run("python", "%timeit 1");
    let value = report["error"]["value"].as_str().unwrap();
    assert!(value.contains("no magic `timeit`"), "{report}");
}

#[test]
fn what_comes_of_a_cell_is_told_as_it_comes() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let code = "import sys\nprint('a', flush=True)\nprint('b', file=sys.stderr)\ndisplay(1)\n2";
    let request = post_request(&cells.at("/python/execute"), &json!({ "code": code }));
    let events = cells.sessions.client.events_by(&request).unwrap();
    let events_data: Vec<Value> = events.map(|event| event.data).collect();
    let kinds: Vec<&str> = events_data.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"started"), "{events_data:?}");
    assert_eq!(kinds.last(), Some(&"ended"), "{events_data:?}");
    let mut between: Vec<&str> = kinds[1..kinds.len() - 1].to_vec();
    between.sort_unstable();
    assert_eq!(between, ["result", "result", "stderr", "stdout"], "{events_data:?}");
    let end = events_data.last().unwrap();
    assert_eq!(end["verdict"], "OK");
    assert!(end["memory_bytes"].as_u64() > Some(1 << 20), "{end}");
    let results: Vec<&Value> = events_data.iter().filter(|it| it["type"] == "result").collect();
    assert_eq!(results[0]["is_main_result"], false);
    assert_eq!(results[1]["data"]["text/plain"], "2");
}

#[test]
fn a_cell_over_its_time_ends_and_the_next_one_runs() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let second = Duration::from_secs(1);
    for (language, define, endless, value, expected) in [
        ("python", "kept = 1", "while True: pass", "kept", "1"),
        ("javascript", "let kept = 1", "while (true) {}", "kept", "1"),
        ("javascript", "kept = 2", "await new Promise(() => {})", "kept", "2"),
    ] {
        cells.value(language, define);
        let report = cells.run_for(language, endless, second);
        assert_eq!(report["verdict"], "TLE", "{language}: {report}");
        assert_eq!(report["error"]["name"], "TimeLimitExceeded", "{report}");
        assert_eq!(report["context_ended"], false, "{report}");
        assert_eq!(cells.value(language, value), expected);
    }
    cells.value("bash", "kept=1");
    assert_eq!(cells.run_for("bash", "sleep 1000", second)["verdict"], "TLE");
    assert_eq!(cells.run("bash", "echo $kept")["stdout"], "1\n");
    // A program that ignores the interrupt ends with its context.
    let stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let report = cells.run_for("python", stubborn, second);
    assert_eq!((&report["verdict"], &report["context_ended"]), (&json!("TLE"), &json!(true)));
    assert_eq!(cells.run("python", "kept")["error"]["name"], "NameError");
}

#[test]
fn a_cell_is_interrupted_by_a_request_and_by_a_client_that_leaves() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    cells.value("python", "import time; kept = 1");
    std::thread::scope(|scope| {
        let running = cells.begin(scope, "python", "time.sleep(1000)");
        let answer = post(&cells.sessions.client, &cells.at("/python/interrupt"), &json!({}));
        assert_eq!(ok(&answer)["interrupted"], true);
        let report = running.join().unwrap();
        assert_eq!(report["error"]["name"], "KeyboardInterrupt", "{report}");
        assert_eq!(report["verdict"], "RE");
    });
    let idle = post(&cells.sessions.client, &cells.at("/python/interrupt"), &json!({}));
    assert_eq!(ok(&idle)["interrupted"], false);
    let code = json!({ "code": "print('begun', flush=True); time.sleep(1000)" });
    let request = post_request(&cells.at("/python/execute"), &code);
    let mut events = cells.sessions.client.events_by(&request).unwrap();
    assert!(events.next().is_some() && events.next().is_some());
    drop(events);
    assert_eq!(cells.value("python", "kept"), "1");
}

/// Cells that delay the next cell in the driver itself, after it was sent and before its own code
/// runs: they signal this, and wait for permission to continue. All except the IPython callback
/// delay it in a way that cannot be interrupted.
const HELD_UP: [(&str, &str, &str); 4] = [
    (
        "python",
        "import os, signal, time
true_signal = signal.signal
def held_up(number, handler):
    if handler is signal.default_int_handler:
        open('waits', 'w').close()
        while not os.path.exists('go'):
            time.sleep(0.01)
    return true_signal(number, handler)
signal.signal = held_up",
        "time.sleep(1000)",
    ),
    (
        "python",
        // IPython reports that a callback was interrupted, and continues.
        "import os, time
def held_up():
    open('waits', 'w').close()
    while not os.path.exists('go'):
        time.sleep(0.01)
get_ipython().events.register('pre_execute', held_up)",
        "time.sleep(1000)",
    ),
    (
        "javascript",
        "const write = fs.writeFileSync;
fs.writeFileSync = (name, data) => {
  if (name === '/proc/self/clear_refs') {
    write('waits', '');
    while (!fs.existsSync('go')) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
  }
  return write(name, data);
};",
        "while (true) {}",
    ),
    (
        "bash",
        // The cell itself has two lines, and prompts once in between.
        "PROMPT_COMMAND='if [ \"$told\" ]; then > waits; until [ -e go ]; do sleep 0.01; done; fi
told=1'",
        // No child: a shell loses signals that arrive while it starts one.
        "while :; do :; done",
    ),
];

#[test]
fn an_interrupt_that_comes_before_a_cell_can_heed_it_is_not_lost() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    for (number, (language, hold_up, endless)) in HELD_UP.into_iter().enumerate() {
        let place = format!("/workspace/{number}");
        assert_eq!(cells.run("bash", &format!("mkdir {place}"))["verdict"], "OK");
        let context = cells.context(&json!({ "language": language, "cwd": place }));
        assert_eq!(cells.run(&context, hold_up)["verdict"], "OK", "{language}");
        let at = format!("/{context}/interrupt");
        std::thread::scope(|scope| {
            let running = cells.begin(scope, &context, endless);
            let waits = format!("until [ -e {place}/waits ]; do sleep 0.01; done");
            assert_eq!(cells.run("bash", &waits)["verdict"], "OK", "{language}");
            let answer = post(&cells.sessions.client, &cells.at(&at), &json!({}));
            assert_eq!(ok(&answer)["interrupted"], true, "{language}");
            // Signals pass through the parked interpreter in order with fork requests: a signal
            // that was not held has arrived by now.
            let behind = cells.context(&json!({}));
            assert_eq!(cells.run(&behind, "1")["verdict"], "OK");
            assert_eq!(cells.run("bash", &format!("> {place}/go"))["verdict"], "OK");
            let report = running.join().unwrap();
            // The cell ended before its time limit, and the context still exists.
            assert_eq!(report["verdict"], "RE", "{language}: {report}");
            assert_eq!(report["context_ended"], false, "{language}: {report}");
        });
        let idle = post(&cells.sessions.client, &cells.at(&at), &json!({}));
        assert_eq!(ok(&idle)["interrupted"], false, "{language}");
    }
}

#[test]
fn mistakes_in_requests_for_cells_are_named() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let client = &cells.sessions.client;
    for (target, body, status, field) in [
        ("", json!({ "language": "cobol" }), 400, Some("language")),
        ("", json!({ "cwd": "/none" }), 400, Some("cwd")),
        ("", json!({ "cwd": "/\0" }), 400, Some("cwd")),
        ("", json!({ "language": "javascript", "cwd": "/none" }), 400, Some("cwd")),
        ("", json!({ "language": "bash", "cwd": "/none" }), 400, Some("cwd")),
        ("", json!({ "env": { "1": "x" } }), 400, Some("env.1")),
        ("/python/execute", json!({ "code": "1", "timeout_ms": 0 }), 400, Some("timeout_ms")),
        ("/python/execute", json!({ "code": "1", "env": { "=": "" } }), 400, Some("env.=")),
        ("/bash/execute", json!({ "code": "a\0b" }), 400, Some("code")),
        ("/ctx_none/execute", json!({ "code": "1" }), 404, None),
        ("/ctx_none/restart", json!({}), 404, None),
        ("/ctx_none/interrupt", json!({}), 404, None),
    ] {
        let response = post(client, &cells.at(target), &body);
        assert_eq!(response.status, status, "{target} {body}: {}", response.text());
        let found = &response.json()["error"]["field"];
        assert_eq!(found.as_str(), field, "{target} {body}: {}", response.text());
    }
}

/// Runs `cove session run` at the server.
fn command_line(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(COVE);
    command.args(["session", "run", "--data-dir"]).arg(server.data_dir());
    command.arg("--server").arg(format!("http://{}", server.client().address()));
    command.args(arguments).output().unwrap()
}

#[test]
fn the_command_line_runs_cells() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let id = cells.session.as_str();
    for (arguments, code, stdout) in [
        (vec![id, "--code", "x = 20"], 0, ""),
        (vec![id, "--code", "print('a'); x + 1"], 0, "a\n21\n"),
        (vec![id, "--language", "bash", "--code", "echo b"], 0, "b\n"),
        (vec![id, "--code", "missing"], 1, ""),
        (vec![id, "--code", "while True: pass", "--timeout", "1s"], 124, ""),
        (vec![id, "--code", "import os; os._exit(3)"], 1, ""),
        (vec![id, "--context", "ctx_none", "--code", "1"], 2, ""),
    ] {
        let output = command_line(&server, &arguments);
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            (output.status.code(), output_text.as_str()),
            (Some(code), stdout),
            "{output:?}"
        );
    }
}

#[test]
fn e2b_clients_of_the_code_interpreter_work_as_they_are() {
    let _guard = beside_others();
    let client = Path::new(COMPAT).join("e2b/interpreter.py");
    let server = e2b::serve_with(MEMORY);
    e2b::run_client(&server, Command::new(interpreter()).arg(client));
    let mut client = Command::new("node");
    e2b::run_client(&server, client.arg("interpreter.mjs").current_dir(e2b::project()));
}
