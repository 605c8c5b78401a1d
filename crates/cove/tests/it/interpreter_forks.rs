//! Forked contexts, interpreters that are parked before their session is created, and the metrics
//! of both.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, until};

use crate::asynchronous::post;
use crate::interpreter::{MEMORY, SessionCells};
use crate::sessions_support::{SOON, Sessions, ok, serve_sessions};
use crate::support::{COVE, beside_others};

/// Starts a thread that does not end.
const THREAD: &str = "import threading, time
threading.Thread(target=time.sleep, args=(1000,), name='poller', daemon=True).start()";

fn try_fork(cells: &SessionCells, context: &str, force: bool) -> Response {
    post(&cells.sessions.client, &cells.at(&format!("/{context}/fork")), &json!({ "force": force }))
}

/// Forks a context. Returns the id of the copy.
fn fork(cells: &SessionCells, context: &str) -> String {
    let response = try_fork(cells, context, false);
    assert_eq!(response.status, 201, "{}", response.text());
    response.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_fork_has_all_that_is_defined_and_goes_its_own_way() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let define = "import asyncio, os, random, numpy\nx = [1]\ndef f(): return sum(x)\n\
        os.chdir('/tmp'); os.environ['OWN'] = 'changed'\nawait asyncio.sleep(0)";
    cells.value("python", define);
    let copy = fork(&cells, "python");
    let view = cells.view(&copy);
    let origin = cells.view("python");
    assert_eq!((&view["forked_from"], &view["state"]), (&origin["id"], &json!("idle")), "{view}");
    assert_eq!((&view["executions"], &view["default"]), (&json!(1), &json!(false)), "{view}");
    assert_eq!(cells.value(&copy, "f(), os.getcwd(), os.environ['OWN']"), "(1, '/tmp', 'changed')");
    // Neither context changes the other; both have an event loop.
    cells.value(&copy, "x.append(10)");
    for (context, expected) in [("python", "1"), (copy.as_str(), "11")] {
        assert_eq!(cells.value(context, "await asyncio.sleep(0, f())"), expected, "{context}");
    }
    for drawn in ["random.random()", "numpy.random.rand()", "os.getpid()"] {
        assert_ne!(cells.value("python", drawn), cells.value(&copy, drawn), "{drawn}");
    }
    // Each context has its own output, interrupts, limits and end.
    let report = cells.run(&copy, "print('mine'); os.system('echo child'); None");
    assert_eq!(report["stdout"], "mine\nchild\n", "{report}");
    let report = cells.run_for(&copy, "while True: pass", std::time::Duration::from_secs(1));
    assert_eq!((&report["verdict"], &report["context_ended"]), (&json!("TLE"), &json!(false)));
    let second = fork(&cells, &copy);
    assert_eq!(cells.run("python", "os._exit(4)")["context_ended"], true);
    assert_eq!(cells.value(&copy, "f()"), "11");
    let report = cells.run(&copy, "os._exit(3)");
    let message = report["error"]["value"].as_str().unwrap();
    assert!(message.contains("exited with code 3"), "{report}");
    let gone = Request::new("DELETE", &cells.at(&format!("/{copy}")));
    assert_eq!(cells.sessions.client.send(&gone).status, 204);
    assert_eq!(cells.value(&second, "f()"), "11");
    let report = cells.run(&second, "import signal; os.kill(os.getpid(), signal.SIGKILL)");
    assert_eq!(report["verdict"], "SG", "{report}");
}

#[test]
fn what_cannot_be_forked_is_refused_with_the_reason() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    for (context, defined, reason) in [
        ("javascript", "1", "Node.js runs threads"),
        ("bash", "true", "cannot be handed the sockets"),
        ("python", "", "has no process"),
        ("python", THREAD, "1 thread runs in it: poller."),
        ("ctx_none", "", "context"),
    ] {
        if !defined.is_empty() {
            assert_eq!(cells.run(context, defined)["verdict"], "OK", "{context}");
        }
        let refused = try_fork(&cells, context, false);
        let status = if context == "ctx_none" { 404 } else { 409 };
        assert_eq!(refused.status, status, "{context}: {}", refused.text());
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(reason), "{context}: {message}");
    }
    // The context continues, and can be forked by force, without the thread.
    assert_eq!(cells.value("python", "threading.active_count()"), "2");
    let forced = try_fork(&cells, "python", true);
    assert_eq!(forced.status, 201, "{}", forced.text());
    let copy = forced.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(cells.value(&copy, "threading.active_count()"), "1");
    // Threads of native code are named as well.
    let native = "import ctypes\nlibc = ctypes.CDLL(None)\nt = ctypes.c_ulong()\n\
        routine = ctypes.cast(libc.pause, ctypes.c_void_p)\n\
        libc.pthread_create(ctypes.byref(t), None, routine, None)";
    assert_eq!(cells.value(&copy, native), "0");
    let refused = try_fork(&cells, &copy, false);
    assert!(refused.text().contains("(native)"), "{}", refused.text());
}

#[test]
fn a_context_that_lies_about_its_copy_harms_no_other() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let victim = cells.context(&json!({}));
    let pid = cells.value(&victim, "import os; kept = 1; os.getpid()");
    // The driver of the context reports another process id for its copies.
    for pid in [pid.as_str(), "1", "4000000000"] {
        let lie = format!(
            "driver = get_ipython().output.show.__globals__\n\
             class Liar(driver['Channel']):\n    \
                 def send(self, message):\n        \
                     if 'pid' in message: message['pid'] = {pid}\n        \
                     return super().send(message)\n\
             driver['Channel'] = Liar"
        );
        assert_eq!(cells.run("python", &lie)["verdict"], "OK");
        // Operations on the copy do not affect the named process.
        let copy = fork(&cells, "python");
        let gone = Request::new("DELETE", &cells.at(&format!("/{copy}")));
        assert_eq!(cells.sessions.client.send(&gone).status, 204, "{pid}");
        assert_eq!(cells.value(&victim, "kept"), "1", "{pid}");
        let restarted = post(&cells.sessions.client, &cells.at("/python/restart"), &json!({}));
        assert_eq!(ok(&restarted)["executions"], 0);
        assert_eq!(cells.value("python", "1 + 1"), "2", "{pid}");
    }
}

/// Runs `cove session context` at the server. Returns its output.
fn command_line(server: &Server, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(COVE);
    command.args(["session", "context", "--data-dir"]).arg(server.data_dir());
    command.arg("--server").arg(format!("http://{}", server.client().address()));
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_command_line_forks_contexts() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let run = |arguments: &[&str]| command_line(&server, arguments);
    let id = cells.session.as_str();
    let made = run(&["create", id, "--cwd", "/tmp", "-e", "MORE=2"]).unwrap();
    assert_eq!(cells.value(&made, "import os; x = 1; os.environ['MORE']"), "'2'");
    let copy = run(&["fork", id, &made]).unwrap();
    assert_eq!(cells.value(&copy, "x"), "1");
    let table = run(&["list", id]).unwrap();
    let line = table.lines().find(|line| line.starts_with(&copy)).unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[1..], ["python", "idle", "2", "/tmp", &made], "{table}");
    let listed: Value = serde_json::from_str(&run(&["list", id, "--json"]).unwrap()).unwrap();
    assert_eq!(listed["contexts"].as_array().unwrap().len(), 4, "{listed}");
    assert_eq!(run(&["interrupt", id, &copy]).unwrap(), "no cell was running");
    assert_eq!(run(&["restart", id, &copy]).unwrap(), copy);
    let refused = run(&["fork", id, "bash"]).unwrap_err();
    assert!(refused.contains("contexts of bash cannot be forked"), "{refused}");
    assert_eq!(run(&["delete", id, &copy]), Ok(String::new()));
    assert!(run(&["delete", id, &copy]).is_err());
}

/// Value of a metric, or 0 if the metric is absent.
fn metric(client: &Client, line: &str) -> f64 {
    let text = client.get("/metrics").text();
    let value = text.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

fn wait_for_metric(client: &Client, line: &str, wanted: f64) {
    until(line, SOON, || match metric(client, line) {
        value if value.total_cmp(&wanted).is_eq() => Ok(()),
        value => Err(format!("{line} is {value}, not {wanted}")),
    });
}

#[test]
fn cells_and_contexts_are_counted() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let client = &cells.sessions.client;
    cells.value("python", "x = 1");
    cells.run("python", "missing");
    cells.run_for("bash", "sleep 1000", std::time::Duration::from_millis(200));
    fork(&cells, "python");
    for (line, expected) in [
        (r#"cove_interpreter_cells_total{language="python",verdict="OK"}"#, 1.0),
        (r#"cove_interpreter_cells_total{language="python",verdict="RE"}"#, 1.0),
        (r#"cove_interpreter_cells_total{language="bash",verdict="TLE"}"#, 1.0),
        (r#"cove_interpreter_cell_duration_seconds_count{language="python"}"#, 2.0),
        (r#"cove_interpreter_contexts_started_total{language="python",origin="parked"}"#, 1.0),
        (r#"cove_interpreter_contexts_started_total{language="python",origin="context"}"#, 1.0),
        (r#"cove_interpreter_contexts_started_total{language="bash",origin="fresh"}"#, 1.0),
        ("cove_interpreter_contexts", 3.0),
        ("cove_interpreter_parked", 1.0),
    ] {
        assert!(
            metric(client, line).total_cmp(&expected).is_eq(),
            "{line}: {}",
            metric(client, line)
        );
    }
    cells.sessions.end(&cells.session);
    wait_for_metric(client, "cove_interpreter_contexts", 0.0);
    wait_for_metric(client, "cove_interpreter_parked", 0.0);
}

#[test]
fn an_interpreter_is_parked_before_its_session_is_there() {
    let _guard = beside_others();
    let server = serve_sessions(&format!("{MEMORY}\npark_interpreter = true"));
    let sessions = Sessions::from(&server);
    let client = sessions.client.clone();
    sessions.deploy(&json!({
        "name": "ready", "runtime": { "type": "none" }, "env": { "AGENT": "yes" },
        "settings": { "prewarm_sandboxes": 1, "park_interpreter": true },
    }));
    // The parked interpreter is in a sandbox that no session has requested yet.
    wait_for_metric(&client, "cove_interpreter_parked", 1.0);
    let hits = || sessions.counts()["prewarm_hits"].as_u64().unwrap();
    let session = sessions.create(&json!({ "agent": "ready" }));
    assert_eq!(hits(), 1);
    let cells = SessionCells { sessions: sessions.clone(), session };
    let code = "import os, sys; 'numpy' in sys.modules, os.environ['AGENT']";
    assert_eq!(cells.value("python", code), "(True, 'yes')");
    // That context was forked from the interpreter parked earlier; the second one is in the sandbox
    // that waits for the next session.
    wait_for_metric(&client, "cove_interpreter_parked", 2.0);
    // A session with another environment for its programs has its own interpreter.
    let own = json!({ "agent": "ready", "env": { "PYTHONPATH": "/workspace/own" } });
    let session = sessions.create(&own);
    assert_eq!(hits(), 2);
    let cells = SessionCells { sessions: sessions.clone(), session };
    assert_eq!(cells.value("python", "import sys; '/workspace/own' in sys.path"), "True");
    // A session without an agent parks an interpreter when it is created, because of the server's
    // configuration.
    wait_for_metric(&client, "cove_interpreter_parked", 3.0);
    sessions.create(&json!({}));
    wait_for_metric(&client, "cove_interpreter_parked", 4.0);
}
