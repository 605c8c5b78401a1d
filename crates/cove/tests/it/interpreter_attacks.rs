//! Hostile cells: they end only their own context, receive an error for it, and reach nothing else.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::Client;

use crate::asynchronous::post;
use crate::interpreter::{MEMORY, SessionCells};
use crate::sessions_support::serve_sessions;
use crate::support::{COVE, beside_others};

/// Runs a hostile cell in the Python context. Returns its report after the next cell has worked.
fn attack(cells: &SessionCells, code: &str) -> Value {
    let report = cells.run_for("python", code, Duration::from_secs(20));
    assert_eq!(cells.value("python", "1 + 1"), "2", "{code}: {report}");
    report
}

/// Finds the socket of the server among the descriptors of a context.
const FIND_SOCKET: &str = "import os, socket, stat
fds = [int(n) for n in os.listdir('/proc/self/fd')]
def is_socket(fd):
    try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError: return False
fd = [fd for fd in fds if is_socket(fd)][0]
";

#[test]
fn what_a_context_writes_to_the_server_is_checked() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    for garbage in [
        "b'garbage\\n'",
        "b'{\"type\":\"ready\",\"x\":' + b'[' * 100000 + b'\\n'",
        "b'{\"type\":\"result\",\"data\":{\"application/json\":\"[\"}}\\n'",
        "b'\\xff\\xfe\\n'",
    ] {
        let report = attack(&cells, &format!("{FIND_SOCKET}os.write(fd, {garbage})"));
        assert_eq!(report["error"]["name"], "ProtocolError", "{garbage}: {report}");
        assert_eq!((&report["verdict"], &report["context_ended"]), (&json!("RE"), &json!(true)));
    }
    // A line without an end is not buffered without limit.
    let endless = format!(
        "{FIND_SOCKET}s = socket.socket(fileno=os.dup(fd))\nwhile True: s.sendall(b'x' * 65536)"
    );
    assert_eq!(attack(&cells, &endless)["error"]["name"], "ProtocolError");
    // A forged report has no advantage for the cell.
    let lie = format!(
        "{FIND_SOCKET}os.write(fd, b'{{\"type\":\"done\",\"failed\":false,\"cpu_us\":0,\"memory_bytes\":0}}\\n')"
    );
    let report = cells.run("python", &lie);
    assert_eq!(report["verdict"], "OK", "{report}");
    // The second, forged end is taken for that of the next cell; then everything works as before.
    cells.run("python", "1");
    let report = cells.run("python", "import os; os._exit(0)");
    assert!(report["verdict"] == "RE" || report["verdict"] == "OK", "{report}");
    cells.run("python", "1");
    assert_eq!(cells.value("python", "2 + 2"), "4");
}

#[test]
fn a_context_that_dies_says_how_and_the_next_cell_starts_another() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    for (code, name, verdict) in [
        ("import os; os._exit(3)", "ContextEnded", "RE"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ContextEnded", "SG"),
        ("import ctypes; ctypes.string_at(0)", "ContextEnded", "SG"),
        // The parked interpreter is the parent of all contexts, which end with it.
        (
            "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)",
            "ContextEnded",
            "SG",
        ),
        // A stopped parked interpreter forwards no signal.
        (
            "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)\nwhile True:\n  try:\n    \
            while True: pass\n  except BaseException: pass",
            "TimeLimitExceeded",
            "TLE",
        ),
    ] {
        let report = attack(&cells, code);
        assert_eq!(report["error"]["name"], name, "{code}: {report}");
        assert_eq!(report["verdict"], verdict, "{code}: {report}");
        assert_eq!(report["context_ended"], true, "{code}: {report}");
    }
    assert_eq!(cells.run("bash", "exit 3")["error"]["name"], "ContextEnded");
    assert_eq!(cells.run("bash", "echo 1")["stdout"], "1\n");
    let exit = cells.run("javascript", "process.reallyExit(3)");
    assert_eq!(exit["error"]["name"], "ContextEnded", "{exit}");
    assert_eq!(cells.value("javascript", "1 + 1"), "2");
}

#[test]
fn floods_and_giants_are_bounded() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let report = attack(&cells, "while True: print('x' * 65536)");
    assert_eq!((&report["verdict"], &report["truncated"]), (&json!("OLE"), &json!(true)));
    // A result over the limit is truncated and marked as such.
    let report = attack(&cells, "'x' * (50 << 20)");
    assert_eq!(report["verdict"], "OK", "{}", report["error"]);
    let result = &report["results"][0];
    assert_eq!(result["truncated"], json!(["text/plain"]));
    assert!(result["data"]["text/plain"].as_str().unwrap().len() < 5 << 20);
    let report = attack(&cells, "[[0] * 1000] * 5000");
    let left_out = report["results"][0]["truncated"].as_array().unwrap();
    assert!(left_out.contains(&json!("application/json")), "{left_out:?}");
    for _ in 0..3 {
        let report = attack(&cells, "for i in range(10 ** 9): display(i)");
        assert!(report["verdict"] == "TLE" || report["verdict"] == "OLE", "{}", report["verdict"]);
    }
    let memory = "data = bytearray(4 << 30)\nfor i in range(0, len(data), 4096): data[i] = 1";
    let report = attack(&cells, memory);
    assert_eq!(report["verdict"], "MLE", "{report}");
    assert_eq!(report["error"]["name"], "MemoryLimitExceeded", "{report}");
    let forks = "import os\nwhile True:\n  try:\n    if os.fork() == 0:\n      import time; time.sleep(5); os._exit(0)\n  \
        except OSError: break";
    attack(&cells, forks);
}

#[test]
fn the_contexts_of_another_tenant_are_not_there() {
    let _guard = beside_others();
    let server = serve_sessions(MEMORY);
    let cells = SessionCells::new(&server);
    let context = cells.context(&json!({}));
    let mut create = std::process::Command::new(COVE);
    create.args(["token", "create", "--name", "other", "--data-dir"]).arg(server.data_dir());
    let token = String::from_utf8(create.output().unwrap().stdout).unwrap().trim().to_owned();
    let other = Client::new(server.client().address(), Some(token));
    testkit::until("the token to be known", crate::support::SOON, || {
        match other.get("/v1/languages").status {
            401 => Err("401".to_owned()),
            status => Ok(status),
        }
    });
    for target in ["", "/python/execute", "/python/restart"] {
        let response = post(&other, &cells.at(target), &json!({ "code": "1" }));
        assert!([400, 404].contains(&response.status), "{target}: {}", response.text());
    }
    assert_eq!(other.get(&cells.at(&format!("/{context}"))).status, 404);
    // In a session of the other tenant, the id does not exist.
    let own = SessionCells {
        sessions: crate::sessions_support::Sessions { client: other },
        session: String::new(),
    };
    let session = own.sessions.create(&json!({}));
    let own = SessionCells { session, ..own };
    assert_eq!(own.send(&context, &json!({ "code": "1" })).status, 404);
    assert_eq!(cells.value(&context, "1 + 1"), "2");
}
