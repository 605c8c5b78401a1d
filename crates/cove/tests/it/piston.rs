//! Piston's interface: requests and answers, field by field.

use serde_json::{Value, json};
use testkit::{Client, Request, Response};

use crate::foreign;
use crate::support::{beside_others, serve, serve_with};

const EXECUTE: &str = "/compat/piston/api/v2/execute";

fn post(client: &Client, path: &str, body: impl Into<Vec<u8>>) -> Response {
    let request = Request::new("POST", path).header("content-type", "application/json");
    client.send(&request.body(body))
}

/// Runs a source; the response must have status 200.
fn execute(client: &Client, language: &str, source: &str, more: &Value) -> Value {
    let mut body = json!({"language": language, "version": "*", "files": [{"content": source}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let response = post(client, EXECUTE, body.to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// Removes the figures that differ between runs, after checking their type.
fn without_figures(mut stage: Value) -> Value {
    let fields = stage.as_object_mut().unwrap();
    for figure in ["memory", "cpu_time", "wall_time"] {
        let value = fields.remove(figure);
        assert!(value.as_ref().is_some_and(Value::is_u64), "{figure}: {value:?}");
    }
    stage
}

fn ended(stdout: &str, code: i32) -> Value {
    let (status, message) = match code {
        0 => (Value::Null, Value::Null),
        code => (json!("RE"), json!(format!("Exited with error status {code}"))),
    };
    json!({"stdout": stdout, "stderr": "", "output": stdout, "code": code, "signal": null,
           "status": status, "message": message})
}

fn killed(status: &str, signal: &str, message: &str) -> Value {
    json!({"stdout": "", "stderr": "", "output": "", "code": null, "signal": signal,
           "status": status, "message": message})
}

/// Piston starts a source file, so its class may have any name, as in the test of Piston's own
/// package.
#[test]
fn java_s_class_may_have_any_name() {
    let _guard = beside_others();
    // Piston's default of three seconds is too short for a busy machine.
    let server = serve_with("[compat.piston.settings]\nrun_timeout = 60000\nrun_cpu_time = 30000");
    let client = server.client();
    let main = "{ public static void main(String[] a) { System.out.println(\"OK\"); } }";
    for (name, source) in [
        (None, format!("public class HelloWorld {main}")),
        (Some("test.java"), format!("public class HelloWorld {main}")),
        (Some("Test"), format!("class HelloWorld {main}")),
        (None, format!("package foo.bar;\nclass Other {main}")),
        (Some("Main.java"), format!("public class Main {main}")),
    ] {
        let mut body = json!({"language": "java", "version": "*", "files": [{"content": source}]});
        if let Some(name) = name {
            body["files"][0]["name"] = json!(name);
        }
        let response = post(&client, EXECUTE, body.to_string());
        let answer = response.json();
        assert_eq!(answer["run"]["stdout"], "OK\n", "{name:?}, {source}: {answer}");
        assert_eq!(answer.get("compile"), None, "{answer}");
    }
}

#[test]
fn programs_run_and_every_end_is_told() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let kill = |name: &str| format!("import os, signal\nos.kill(os.getpid(), signal.{name})");
    for (source, more, expected) in [
        ("print('hi')", json!({}), ended("hi\n", 0)),
        ("import sys; sys.exit(3)", json!({}), ended("", 3)),
        ("print(repr(input()))", json!({}), ended("''\n", 0)),
        ("print(input() + input())", json!({"stdin": "a\nb"}), ended("ab\n", 0)),
        (
            "import sys; print(sys.argv[1:])",
            json!({"args": ["x y", "z"]}),
            ended("['x y', 'z']\n", 0),
        ),
        ("import os; print(os.environ['PISTON_LANGUAGE'])", json!({}), ended("python\n", 0)),
        ("print('é€😀')", json!({}), ended("é€😀\n", 0)),
        (&kill("SIGSEGV"), json!({}), killed("SG", "SIGSEGV", "Caught fatal signal 11")),
        (
            "import time\ntime.sleep(60)",
            json!({"run_timeout": 300}),
            killed("TO", "SIGKILL", "Time limit exceeded (wall clock)"),
        ),
        (
            "while True: pass",
            json!({"run_cpu_time": 200}),
            killed("TO", "SIGKILL", "Time limit exceeded"),
        ),
        (
            "x = bytearray(200 << 20)",
            json!({"run_memory_limit": 64 << 20}),
            killed("SG", "SIGKILL", "Memory limit exceeded"),
        ),
    ] {
        let answer = execute(&client, "python", source, &more);
        assert_eq!(without_figures(answer["run"].clone()), expected, "{source}");
        assert_eq!((&answer["language"], answer.get("compile")), (&json!("python"), None));
        assert!(answer["version"].as_str().unwrap().starts_with("3."), "{answer}");
    }
}

#[test]
fn what_is_written_beyond_the_limit_is_cut_there_and_the_rest_is_kept() {
    let _guard = beside_others();
    let server = serve();
    for (stream, status, message) in
        [("stdout", "OL", "stdout length exceeded"), ("stderr", "EL", "stderr length exceeded")]
    {
        let source = format!("import sys\nwhile True: sys.{stream}.write('0123456789abcdef' * 64)");
        let run = execute(&server.client(), "python", &source, &json!({}))["run"].clone();
        assert_eq!(run[stream].as_str().unwrap().len(), 64 << 10);
        assert_eq!(run["output"], run[stream]);
        let seen = [&run["status"], &run["signal"], &run["code"], &run["message"]];
        assert_eq!(seen, [&json!(status), &json!("SIGKILL"), &Value::Null, &json!(message)]);
    }
}

#[test]
fn output_has_both_streams_in_the_order_in_which_they_came() {
    let _guard = beside_others();
    let server = serve();
    let source = "import sys, time\n\
                  for i in range(3):\n \
                  print('o', i, flush=True); time.sleep(0.05)\n \
                  print('e', i, file=sys.stderr, flush=True); time.sleep(0.05)";
    let run = execute(&server.client(), "python", source, &json!({}))["run"].clone();
    assert_eq!(run["output"], "o 0\ne 0\no 1\ne 1\no 2\ne 2\n");
    assert_eq!(
        (&run["stdout"], &run["stderr"]),
        (&json!("o 0\no 1\no 2\n"), &json!("e 0\ne 1\ne 2\n"))
    );
}

#[test]
fn compiling_is_a_stage_and_its_failure_is_the_run_s_too() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let main = "#include <stdio.h>\nint main(void){puts(\"c\");return 4;}";
    let answer = execute(&client, "c", main, &json!({}));
    assert_eq!(without_figures(answer["compile"].clone()), ended("", 0));
    assert_eq!(without_figures(answer["run"].clone()), ended("c\n", 4));
    // From the compile cache, with the same response.
    let again = execute(&client, "c", main, &json!({}));
    assert_eq!(without_figures(again["compile"].clone()), ended("", 0));
    assert_eq!(without_figures(again["run"].clone()), ended("c\n", 4));

    let answer = execute(&client, "gcc", "int main(void){ nonsense }", &json!({}));
    assert_eq!(answer["run"], answer["compile"]);
    assert_eq!((&answer["run"]["code"], &answer["run"]["status"]), (&json!(1), &json!("RE")));
    assert!(answer["run"]["stderr"].as_str().unwrap().contains("nonsense"), "{answer}");
    assert_eq!(answer["language"], "c");
}

#[test]
fn several_files_have_names_and_encodings() {
    let _guard = beside_others();
    let server = serve();
    let files = json!([
        {"content": "YQ==", "encoding": "base64"},
        {"name": "./lib/one.py", "content": "x = 5"},
        {"name": "main", "content": "ff00", "encoding": "hex"},
    ]);
    let mut files = files.as_array().unwrap().clone();
    files.insert(
        1,
        json!({"name": "start", "content":
        "import lib.one\nprint(lib.one.x, open('file0.code').read(), open('main', 'rb').read())"}),
    );
    let answer = execute(&server.client(), "py3", "", &json!({"files": files}));
    assert_eq!(without_figures(answer["run"].clone()), ended("5 a b'\\xff\\x00'\n", 0));
}

#[test]
fn bad_requests_are_answered_in_piston_s_shape() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let body = |changes: Value| {
        let mut body = json!({"language": "python", "version": "*", "files": [{"content": ""}]});
        for (name, value) in changes.as_object().unwrap() {
            body[name] = value.clone();
        }
        body.to_string()
    };
    for (body, status, message) in [
        (String::new(), 400, "the request body is empty"),
        ("{".to_owned(), 400, "the request body is not JSON"),
        ("[".repeat(1000), 400, "the request body is not JSON"),
        ("null".to_owned(), 400, "language is required as a string"),
        (body(json!({"version": 3})), 400, "version is required as a string"),
        (body(json!({"files": null})), 400, "files is required as an array"),
        (body(json!({"files": [{}]})), 400, "files[0].content is required as a string"),
        (body(json!({"language": "cobol"})), 400, "cobol-* runtime is unknown"),
        (body(json!({"version": "1.x"})), 400, "python-1.x runtime is unknown"),
        (body(json!({"files": []})), 400, "files must include at least one utf8 encoded file"),
        (body(json!({"run_timeout": "1"})), 400, "If specified, run_timeout must be a number"),
        (body(json!({"run_timeout": -1})), 400, "run_timeout must be non-negative"),
        (
            body(json!({"run_timeout": 3001})),
            400,
            "run_timeout cannot exceed the configured limit of 3000",
        ),
        (
            body(json!({"run_memory_limit": 1_u64 << 60})),
            400,
            "run_memory_limit cannot exceed the configured limit of ",
        ),
        (body(json!({"run_memory_limit": 1})), 400, "run_memory_limit must be at least "),
        (body(json!({"files": [{"name": "../x", "content": ""}]})), 400, "files[0].name "),
        (body(json!({"files": [{"name": "/x", "content": ""}]})), 400, "files[0].name "),
        (
            body(json!({"files": [{"name": "a", "content": ""}, {"name": "a", "content": ""}]})),
            400,
            "files[1].name is the name of an earlier one",
        ),
        (body(json!({"args": ["a\0b"]})), 400, "args[0] contains a NUL character"),
    ] {
        let response = post(&client, EXECUTE, body.as_bytes());
        let text = response.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(response.status, status, "{body}: {text}");
        assert!(text.starts_with(message), "{body}: {text}");
        assert_eq!(response.json().as_object().unwrap().len(), 1);
    }
}

#[test]
fn paths_methods_and_callers_are_checked_in_piston_s_shape() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let wrong = testkit::Client::new(client.address(), Some("cove_wrong".to_owned()));
    let plain = Request::new("POST", EXECUTE).header("content-type", "text/plain").body("{}");
    let none = Request::new("POST", EXECUTE).body("{}");
    let get = |path: &str| Request::new("GET", &format!("/compat/piston{path}"));
    for (client, request, status, message) in [
        (&client, plain, 415, "requests must be of type application/json"),
        (&client, none, 415, "requests must be of type application/json"),
        (&client, get("/api/v2/nothing"), 404, "Not Found"),
        (&client, get("/api/v3/runtimes"), 404, "Not Found"),
        (&client, get("/api/v2/execute"), 405, "Method Not Allowed"),
        (&client, get("/api/v2/connect"), 426, ""),
        (&client.anonymous(), get("/api/v2/runtimes"), 401, "a valid token is needed"),
        (&wrong, get("/api/v2/runtimes"), 401, "a valid token is needed"),
    ] {
        let response = client.send(&request);
        let text = response.json()["message"].as_str().unwrap_or("none").to_owned();
        let upgrade = status == 426 && [400, 426].contains(&response.status);
        assert!(response.status == status || upgrade, "{request:?}: {text}");
        assert!(text.starts_with(message), "{request:?}: {text}");
    }
    let huge = Request::new("POST", EXECUTE).header("content-type", "application/json");
    let response = client.announce(&huge, 1 << 40).unwrap();
    assert_eq!((response.status, response.json()["message"].is_string()), (413, true));
}

#[test]
fn runtimes_and_packages_are_what_the_host_has() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let runtimes = client.get("/compat/piston/api/v2/runtimes").json();
    assert_eq!(client.get("/compat/piston/api/v2/piston/runtimes").json(), runtimes);
    let c = runtimes.as_array().unwrap().iter().find(|runtime| runtime["language"] == "c++");
    let c = c.unwrap();
    assert_eq!((&c["aliases"][0], &c["runtime"]), (&json!("cpp"), &json!("gcc")));
    let version = c["version"].as_str().unwrap();
    assert_eq!(version.split('.').filter(|part| part.parse::<u64>().is_ok()).count(), 3);

    let path = "/compat/piston/api/v2/packages";
    let packages = client.get(path).json();
    let expected = json!({"language": "c++", "language_version": version, "installed": true});
    assert!(packages.as_array().unwrap().contains(&expected), "{packages}");
    for (method, body, status, message) in [
        ("POST", json!({"language": "c++", "version": "*"}), 500, "Already installed"),
        ("DELETE", json!({"language": "c++", "version": "*"}), 500, "languages are the host's"),
        (
            "POST",
            json!({"language": "x", "version": "1"}),
            404,
            "Requested package x-1 does not exist",
        ),
        ("DELETE", json!({"language": "x", "version": "1"}), 404, "Requested package x-1 does not"),
        ("POST", json!({"language": "x"}), 400, "version is required as a string"),
        ("POST", json!([]), 400, "language is required as a string"),
    ] {
        let request = Request::new(method, path).header("content-type", "application/json");
        let response = client.send(&request.body(body.to_string()));
        let text = response.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(response.status, status, "{method} {body}: {text}");
        assert!(text.starts_with(message), "{method} {body}: {text}");
    }
}

#[test]
fn a_hundred_at_once_get_their_own_answers() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    std::thread::scope(|scope| {
        for number in 0..100 {
            let client = &client;
            scope.spawn(move || {
                let source = format!("print({number} * 3)");
                let more = json!({"run_timeout": 3000});
                let run = execute(client, "python", &source, &more)["run"].clone();
                assert_eq!(run["stdout"], format!("{}\n", number * 3), "{run}");
            });
        }
    });
}

#[test]
fn clients_of_others_are_served() {
    let _guard = beside_others();
    let server = serve();
    foreign::python("piston/clients.py", &server, "/compat/piston");
}
