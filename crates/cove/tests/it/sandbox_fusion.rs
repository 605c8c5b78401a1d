//! SandboxFusion's interface: requests of reward functions, and the answers.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Client, Request, Response, Server, pip_install, process, until};

use crate::foreign;
use crate::shared::{COMPAT, LANGUAGES, finish, interpreter};
use crate::support::{COVE, SOON, beside_others, held, serve, wait_for_sleep, wait_until_gone};

/// Path prefix of the interface.
const FACE: &str = "/compat/sandbox-fusion";

fn post(path: &str, body: &Value) -> Request {
    let request = Request::new("POST", &format!("{FACE}{path}"));
    request.header("content-type", "application/json").body(body.to_string())
}

/// Sends a body; the response must have status 200.
fn answer(client: &Client, path: &str, body: &Value) -> Value {
    let response = client.send(&post(path, body));
    assert_eq!(response.status, 200, "{body}: {}", response.text());
    response.json()
}

fn run_code(client: &Client, body: &Value) -> Value {
    answer(client, "/run_code", body)
}

fn bash(script: &str) -> Value {
    json!({"language": "bash", "code": script, "run_timeout": 300})
}

/// Starts a server with these lines in the tables of executions and of this interface.
fn serve_with(executions: &str, face: &str) -> Server {
    let config = format!(
        "[executions]\nlanguages = {LANGUAGES:?}\n{executions}\n[compat.sandbox_fusion.settings]\n{face}\n"
    );
    Server::start_with(COVE, &[], Some(&config))
}

/// Returns the value of a metric without labels.
fn metric(client: &Client, name: &str) -> u64 {
    let text = client.get("/metrics").text();
    let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0)
}

fn wait_for_waiting(client: &Client, count: u64) {
    until(&format!("{count} waiting"), SOON, || match metric(client, "cove_executions_waiting") {
        now if now == count => Ok(()),
        now => Err(now.to_string()),
    });
}

fn open(client: &Client, body: &Value) -> TcpStream {
    client.open(&post("/run_code", body)).unwrap()
}

#[test]
fn its_own_client_is_served() {
    let _guard = beside_others();
    let server = serve_with("running_max = 2", "queue_timeout_s = 300");
    foreign::python("sandbox_fusion/client.py", &server, FACE);
}

#[test]
fn verl_s_reward_function_scores_samples() {
    let _guard = beside_others();
    // A small limit, so that most concurrent requests wait.
    let server = serve_with("running_max = 2", "queue_timeout_s = 300");
    verl(&server, &[]);
}

#[test]
fn verl_tries_a_server_at_capacity_again() {
    let _guard = beside_others();
    let server = serve_with("running_max = 2", "queue_timeout_s = 0.5");
    verl(&server, &[("PLACES", "2")]);
}

/// Returns a directory with verl alone, without its dependencies, which are far larger than the
/// module that is used.
fn verl_package() -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let python = interpreter();
    let _one = ONE.lock();
    let wanted = Path::new(COMPAT).join("sandbox_fusion/alone.txt");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verl-alone");
    let made = directory.join("made-of");
    if fs::read(&made).ok() != Some(fs::read(&wanted).unwrap()) {
        fs::remove_dir_all(&directory).ok();
        let mut install = pip_install(python);
        finish(install.arg("--no-deps").arg("--target").arg(&directory).arg("-r").arg(&wanted));
        fs::copy(&wanted, &made).unwrap();
    }
    directory
}

fn verl(server: &Server, variables: &[(&str, &str)]) {
    let package = verl_package();
    let package = package.to_str().unwrap();
    let variables = [&[("VERL", package)], variables].concat();
    let address = server.client().address();
    foreign::python_with("sandbox_fusion/reward.py", server, address, FACE, &variables);
}

#[test]
fn the_recipe_for_verl_does_what_its_page_says() {
    let _guard = beside_others();
    let server = serve();
    let recipe = Path::new(COMPAT).join("../examples/integrations/verl");
    let address = server.client().address();
    let mut score = Command::new(interpreter());
    score.arg(recipe.join("score.py"));
    score.env("PYTHONPATH", verl_package());
    let token = server.token();
    score.env("SANDBOX_FUSION_URL", format!("http://cove:{token}@{address}{FACE}/run_code"));
    let printed = finish(&mut score);
    let page = fs::read_to_string(recipe.join("README.md")).unwrap();
    assert!(page.contains(&format!("score.py\n{printed}")), "{printed}");
}

#[test]
fn a_server_at_capacity_says_504_and_nothing_else() {
    let _guard = beside_others();
    // Here, neither the limit on waiting callers nor that of one token rejects a request.
    let server = serve_with(
        "running_max = 1\nqueue_max = 1\nqueue_max_per_tenant = 1",
        "queue_timeout_s = 0.3",
    );
    let client = server.client();
    let running = open(&client, &bash("sleep 63001"));
    wait_for_sleep("63001");
    let compiled = json!({"language": "cpp", "code": "int main() {}"});
    let late = |response: &Response| {
        assert_eq!(response.status, 504, "{}", response.text());
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("no capacity became free"), "{detail}");
    };
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| late(&client.send(&post("/run_code", &compiled))));
        }
    });
    let notebook = json!({"cells": ["1"]});
    late(&client.send(&post("/run_jupyter", &notebook)));
    assert_eq!(metric(&client, "cove_executions_waiting"), 0);
    drop(running);
    wait_until_gone("63001");
    let after = run_code(&client, &bash("echo after"));
    assert_eq!(after["run_result"]["stdout"], "after\n", "{after}");
}

#[test]
fn a_client_that_hangs_up_frees_its_place_and_its_turn() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1", "queue_timeout_s = 300");
    let client = server.client();
    let running = open(&client, &bash("sleep 63011"));
    wait_for_sleep("63011");
    let waiting: Vec<TcpStream> = (0..8).map(|_| open(&client, &bash("sleep 63012"))).collect();
    wait_for_waiting(&client, 8);
    drop(waiting);
    wait_for_waiting(&client, 0);
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| run_code(&client, &bash("echo next")));
        wait_for_waiting(&client, 1);
        drop(running);
        next.join().unwrap()
    });
    assert_eq!(next["run_result"]["stdout"], "next\n", "{next}");
    assert_eq!(process::with_marker("63012"), Vec::<u32>::new());
    wait_until_gone("63011");
}

#[test]
fn a_crowd_of_one_token_keeps_no_other_from_its_turn() {
    let _guard = beside_others();
    let server = serve_with("running_max = 1\nqueue_max = 2", "queue_timeout_s = 300");
    let client = server.client();
    let (rig, other) = (server.other_client("rig", &[]), server.other_client("other", &[]));
    let running = open(&rig, &bash("sleep 63021"));
    wait_for_sleep("63021");
    let crowd: Vec<TcpStream> = (0..32).map(|_| open(&rig, &bash("sleep 63022"))).collect();
    wait_for_waiting(&client, 32);
    // More requests wait than callers of the native interface may; another token's request runs
    // after the next one of the crowd, and a caller of the native interface is not rejected either.
    let (turn, native) = std::thread::scope(|scope| {
        let turn = scope.spawn(|| run_code(&other, &bash("echo turn")));
        wait_for_waiting(&client, 33);
        let native = scope.spawn(|| other.run(&held("echo native")));
        wait_for_waiting(&client, 34);
        drop(running);
        let mut first = wait_for_sleep("63022");
        // Programs of the crowd do not end by themselves: the test ends each of them.
        while !(turn.is_finished() && native.is_finished()) {
            process::end(first);
            first = wait_for_sleep("63022");
        }
        (turn.join().unwrap(), native.join().unwrap())
    });
    assert_eq!(turn["run_result"]["stdout"], "turn\n", "{turn}");
    assert_eq!(native.json()["stdout"], "native\n", "{}", native.text());
    drop(crowd);
    wait_until_gone("63022");
}

#[test]
fn hostile_programs_score_themselves_alone() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for (language, code, status, return_code, message) in [
        (
            "bash",
            ":(){ :|:& };:; wait; sleep 63031",
            "TimeLimitExceeded",
            Value::Null,
            "time limit",
        ),
        ("python", "import os\nwhile True: os.fork()", "", Value::Null, ""),
        (
            "python",
            "x = bytearray(4 << 30); x[::4096] = b'1' * len(x[::4096])",
            "Finished",
            json!(-9),
            "memory",
        ),
        ("bash", "yes", "Finished", json!(-9), "output limit exceeded"),
        ("bash", "yes >&2", "Finished", json!(-9), "output limit exceeded"),
        ("bash", "kill -9 $$", "Finished", json!(-9), ""),
        ("bash", "kill -9 -1; kill -SEGV $$", "", Value::Null, ""),
        ("bash", "setsid sleep 63032 & exit 5", "Finished", json!(5), ""),
        (
            "python",
            "import os, socket\ntry: socket.create_connection(('127.0.0.1', 4100))\nexcept OSError: os._exit(4)",
            "Finished",
            json!(4),
            "",
        ),
        ("python", "print(open('/etc/shadow').read())", "Finished", json!(1), ""),
    ] {
        let body =
            json!({"language": language, "code": code, "run_timeout": 2, "memory_limit_MB": 256});
        let answer = run_code(&client, &body);
        assert_eq!(answer["status"], "Failed", "{code}: {answer}");
        let result = &answer["run_result"];
        if !status.is_empty() {
            let seen = (&result["status"], &result["return_code"]);
            assert_eq!(seen, (&json!(status), &return_code), "{code}: {answer}");
        }
        assert!(answer["message"].as_str().unwrap().contains(message), "{code}: {answer}");
        let written = result["stdout"].as_str().unwrap().len();
        assert!(written <= 1 << 20, "{code}: {written} bytes");
    }
    wait_until_gone("6303");
    let after = run_code(&client, &bash("echo fine"));
    assert_eq!(after["run_result"]["stdout"], "fine\n", "{after}");
}

#[test]
fn the_answer_has_every_field_and_stages_of_their_own() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let answer =
        run_code(&client, &json!({"language": "python", "code": "print(6 * 7)", "more": 1}));
    let run = &answer["run_result"];
    for figure in ["execution_time", "cpu_time"] {
        assert!(run[figure].as_f64().is_some_and(|time| time > 0.0 && time < 60.0), "{answer}");
    }
    let expected = json!({
        "status": "Success", "message": "", "compile_result": null, "executor_pod_name": null, "files": {},
        "run_result": {
            "status": "Finished", "return_code": 0, "stdout": "42\n", "stderr": "",
            "execution_time": run["execution_time"], "cpu_time": run["cpu_time"],
        },
    });
    assert_eq!(answer, expected);

    let endless = "#define A B B\n#define B C C\n#include \"main.cpp\"\nint main() {}";
    for (code, compile, run) in [
        ("int main() { return 4; }", json!(0), json!(4)),
        ("int main() { nonsense }", json!(1), Value::Null),
        (endless, json!(1), Value::Null),
    ] {
        let body = json!({"language": "cpp", "code": code, "compile_timeout": 60});
        let answer = run_code(&client, &body);
        let codes =
            ["compile_result", "run_result"].map(|stage| answer[stage]["return_code"].clone());
        assert_eq!(codes, [compile, run], "{answer}");
        assert_eq!(answer["status"], "Failed");
    }
    let text = json!({"language": "bash", "code": r"printf 'a\xff%.0s' {1..5000}"});
    let stdout = run_code(&client, &text)["run_result"]["stdout"].as_str().unwrap().to_owned();
    assert_eq!(stdout, "a\u{fffd}".repeat(5000));
}

#[test]
fn pytest_runs_where_it_is_installed() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let has_pytest =
        Command::new("/usr/bin/python3").args(["-c", "import pytest"]).output().unwrap();
    for (value, code) in [(3, 0), (4, 1)] {
        let source = format!("def test_sum(capfd):\n    assert 1 + 2 == {value}\n");
        let body = json!({"language": "pytest", "code": source, "run_timeout": 60});
        let answer = run_code(&client, &body);
        if has_pytest.status.success() {
            assert_eq!(answer["run_result"]["return_code"], code, "{answer}");
        } else {
            assert_eq!(answer["status"], "SandboxError", "{answer}");
            assert!(answer["message"].as_str().unwrap().contains("no pytest"), "{answer}");
        }
    }
}

#[test]
fn cells_run_in_one_process_and_show_what_they_have() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let plain = |text: &str| json!([{"text/plain": text}]);
    let none = || json!([]);
    let cells: Vec<(&str, &str, Value)> = vec![
        ("x = 20\ndef double(y): return 2 * y", "", none()),
        ("double(x) + 2", "", plain("42")),
        ("_ + 1", "", plain("43")),
        ("double(x);", "", none()),
        ("print('out')", "out\n", none()),
        (
            "import os; os.system('echo child'); os.write(1, b'raw\\n'); None",
            "child\nraw\n",
            none(),
        ),
        ("!echo shell {1..2}", "shell 1 2\n", none()),
        ("import asyncio\nawait asyncio.sleep(0, 'late')", "", plain("'late'")),
        (
            "class T:\n    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'T'\nT()",
            "",
            json!([{"text/html": "<b>", "text/plain": "T"}]),
        ),
        (
            "from IPython.display import display\ndisplay(1, 'two')",
            "",
            json!([{"text/plain": "1"}, {"text/plain": "'two'"}]),
        ),
        (
            "import pickle\npickle.loads(pickle.dumps(T()))",
            "",
            json!([{"text/html": "<b>", "text/plain": "T"}]),
        ),
        ("import sys\nsys.stdout = None\nprint('nowhere')", "", none()),
        ("os.write(1, b'still'); sys.stdout = sys.__stdout__", "still", none()),
        ("open('made', 'w').write(open('dir/given').read() * 2)", "", plain("4")),
    ];
    let sources: Vec<&str> = cells.iter().map(|(source, ..)| *source).collect();
    let body = json!({
        "cells": sources, "kernel": "python3", "total_timeout": 60,
        "files": {"dir/given": BASE64.encode("ab")}, "fetch_files": ["made", "absent"],
    });
    let answer = answer(&client, "/run_jupyter", &body);
    assert_eq!(
        (&answer["status"], &answer["driver"]["status"]),
        (&json!("Success"), &json!("Finished"))
    );
    for ((source, stdout, display), cell) in cells.iter().zip(answer["cells"].as_array().unwrap()) {
        let expected = json!({"stdout": stdout, "stderr": "", "display": display, "error": []});
        assert_eq!(cell, &expected, "{source}");
    }
    assert_eq!(answer["cells"].as_array().unwrap().len(), cells.len());
    assert_eq!(answer["files"], json!({"made": BASE64.encode("abab")}));
}

#[test]
fn a_cell_that_fails_says_where_and_the_next_one_runs() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let failing = [
        (
            "def f():\n    return 1 / 0\nf()",
            "ZeroDivisionError",
            "division by zero",
            "return 1 / 0",
        ),
        ("1 +", "SyntaxError", "invalid syntax", "1 +"),
        ("raise SystemExit(3)", "SystemExit", "3", "raise SystemExit(3)"),
        ("input()", "EOFError", "EOF when reading a line", "input()"),
        ("%timeit 1", "NameError", "there is no magic `timeit`", "%timeit 1"),
        (
            "class E(Exception):\n    def __str__(self): raise E\nraise E",
            "E",
            "<str() of",
            "raise E",
        ),
    ];
    let mut sources: Vec<&str> = failing.iter().map(|(source, ..)| *source).collect();
    sources.push("print('next')");
    let answer = answer(&client, "/run_jupyter", &json!({"cells": sources}));
    assert_eq!(answer["status"], "Success", "{answer}");
    for (index, (source, name, value, line)) in failing.iter().enumerate() {
        let error = &answer["cells"][index]["error"][0];
        assert_eq!(&error["ename"], name, "{source}: {answer}");
        assert!(error["evalue"].as_str().unwrap().starts_with(value), "{source}: {error}");
        let traceback = error["traceback"].to_string();
        assert!(traceback.contains(line), "{source}: {error}");
        assert!(traceback.contains(&format!("<cell {}>", index + 1)), "{source}: {error}");
    }
    assert_eq!(answer["cells"][failing.len()]["stdout"], "next\n");
}

#[test]
fn notebooks_end_at_their_time_and_report_nothing_but_results() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let spin = "while True:\n  try:\n    while True: pass\n  except BaseException: pass";
    let forged = r#"{"stdout":"forged","stderr":"","display":[],"error":[]}"#;
    // The cell writes to every descriptor that it finds.
    let forge = format!(
        "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'{forged}\\n')\n  except OSError: pass"
    );
    for (body, status, driver) in [
        (json!({"cells": ["1", spin], "total_timeout": 1}), "Failed", "TimeLimitExceeded"),
        (json!({"cells": ["1", spin], "cell_timeout": 0.5}), "Failed", "TimeLimitExceeded"),
        (
            json!({"cells": ["import time; time.sleep(600)"], "cell_timeout": 0.2}),
            "Failed",
            "TimeLimitExceeded",
        ),
        (json!({"cells": ["import os; os._exit(0)", "1"]}), "Failed", "Finished"),
        (json!({"cells": ["import os; os.kill(os.getpid(), 9)"]}), "Failed", "Finished"),
        (json!({"cells": ["x = b'1' * (2 << 30)"], "memory_limit_MB": 256}), "Failed", "Finished"),
        (json!({"cells": [forge, "1"]}), "Failed", "Finished"),
    ] {
        let answer = answer(&client, "/run_jupyter", &body);
        assert_eq!(answer["status"], status, "{body}: {answer}");
        assert_eq!(answer["driver"]["status"], driver, "{body}: {answer}");
        assert_eq!(answer["cells"], json!([]), "{body}: {answer}");
    }
    let flood = json!({"cells": ["print('x' * (20 << 20))", "1"]});
    let answer = answer(&client, "/run_jupyter", &flood);
    let stdout = answer["cells"][0]["stdout"].as_str().unwrap();
    assert_eq!(
        (stdout.len(), &answer["cells"][1]["display"][0]["text/plain"]),
        (1 << 20, &json!("1"))
    );
}

#[test]
fn figures_are_shown_where_matplotlib_is_installed() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let cells = [
        "import matplotlib.pyplot as plt",
        "%matplotlib inline\nplt.plot([1, 2], [3, 4])\nplt.show()",
        "plt.plot([1, 2]);",
        "figure, axes = plt.subplots(); plt.close(figure)\nfigure",
        "1",
    ];
    let body = json!({"cells": cells, "total_timeout": 200, "memory_limit_MB": 1024});
    let answer = answer(&client, "/run_jupyter", &body);
    assert_eq!(answer["status"], "Success", "{answer}");
    for (index, images) in [(0, 0), (1, 1), (2, 1), (3, 1), (4, 0)] {
        let cell = &answer["cells"][index];
        assert_eq!(cell["error"], json!([]), "{cell}");
        let displayed: Vec<&Value> = cell["display"].as_array().unwrap().iter().collect();
        let displayed: Vec<&str> =
            displayed.iter().filter_map(|it| it["image/png"].as_str()).collect();
        assert_eq!(displayed.len(), images, "{cell}");
        for image in displayed {
            assert!(BASE64.decode(image).unwrap().starts_with(b"\x89PNG\r\n"), "{image}");
        }
    }
}

#[test]
fn requests_that_are_none_and_callers_that_are_nobody_are_refused() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for (path, body, place, message) in [
        ("/run_code", json!({"language": "python"}), json!(["body", "code"]), "Field required"),
        ("/run_code", json!({"code": ""}), json!(["body", "language"]), "Field required"),
        (
            "/run_code",
            json!({"code": "", "language": "cobol"}),
            json!(["body", "language"]),
            "there is no language",
        ),
        ("/run_code", json!([]), json!(["body"]), ""),
        ("/run_code", json!({"code": 3, "language": "python"}), json!(["body", "code"]), ""),
        ("/run_jupyter", json!({}), json!(["body", "cells"]), "Field required"),
        (
            "/run_jupyter",
            json!({"cells": [], "kernel": "ir"}),
            json!(["body", "kernel"]),
            "Input should be",
        ),
    ] {
        let response = client.send(&post(path, &body));
        let detail = &response.json()["detail"][0];
        assert_eq!((response.status, &detail["loc"]), (422, &place), "{body}: {}", response.text());
        assert!(detail["msg"].as_str().unwrap().contains(message), "{body}: {detail}");
    }
    let good = json!({"language": "bash", "code": "echo x"});
    let basic = |token: &str| format!("Basic {}", BASE64.encode(format!("cove:{token}")));
    let anonymous = client.anonymous();
    for (request, status) in [
        (post("/run_code", &good), 401),
        (post("/run_code", &good).header("authorization", &basic(server.token())), 200),
        (post("/run_code", &good).header("authorization", &basic("cove_wrong")), 401),
        (
            post("/run_code", &good)
                .header("authorization", &basic(server.token()))
                .header("origin", "https://elsewhere.example"),
            401,
        ),
        (Request::new("GET", &format!("{FACE}/v1/ping")), 401),
        // Only this interface accepts a token as a password.
        (Request::new("GET", "/v1/languages").header("authorization", &basic(server.token())), 401),
    ] {
        let response = anonymous.send(&request);
        assert_eq!(response.status, status, "{request:?}: {}", response.text());
    }
    let ping = client.get(&format!("{FACE}/v1/ping"));
    assert_eq!((ping.status, ping.json()), (200, json!("pong")));
    for (method, path, status) in [("GET", "/run_code", 405), ("POST", "/submit", 404)] {
        let response = client.send(&Request::new(method, &format!("{FACE}{path}")));
        assert_eq!((response.status, response.json()["detail"].is_string()), (status, true));
    }
}

#[test]
fn a_listener_of_its_own_is_where_its_clients_look() {
    let _guard = beside_others();
    let config = "[compat.sandbox_fusion]\nlisten = \"127.0.0.1:0\"\n";
    let server = Server::start_with(COVE, &[], Some(config));
    let address = listening(&server);
    let client = Client::new(address.parse().unwrap(), None);
    let body = json!({"language": "bash", "code": "echo x"}).to_string();
    let request = Request::new("POST", "/run_code").header("content-type", "application/json");
    let response = client.send(&request.header("host", &address).body(body));
    assert_eq!(response.json()["run_result"]["stdout"], "x\n", "{}", response.text());
    let ping = client.send(&Request::new("GET", "/v1/ping").header("host", &address));
    assert_eq!(ping.json(), "pong");
}

/// Returns the address of the interface's listener, from the log.
fn listening(server: &Server) -> String {
    until("the listener", SOON, || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("sandbox-fusion")).ok_or(log.clone())?;
        let (_, rest) = line.split_once("127.0.0.1:").ok_or(line)?;
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Ok::<_, String>(format!("127.0.0.1:{port}"))
    })
}
