//! Judge0's interface: requests and answers, field by field.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Client, Request, Response, until};

use crate::foreign;
use crate::support::{beside_others, serve, serve_with};

const SUBMISSIONS: &str = "/compat/judge0/submissions";
const END_LIMIT: Duration = Duration::from_secs(60);

fn post(client: &Client, path: &str, body: impl Into<Vec<u8>>) -> Response {
    let request = Request::new("POST", path).header("content-type", "application/json");
    client.send(&request.body(body))
}

/// Submits in plain text and waits; the answer has status 201.
fn run(client: &Client, body: &Value, fields: &str) -> Value {
    let path = format!("{SUBMISSIONS}?base64_encoded=false&wait=true&fields={fields}");
    let response = post(client, &path, body.to_string());
    assert_eq!(response.status, 201, "{body}: {}", response.text());
    response.json()
}

fn python(source: &str, more: Value) -> Value {
    submission(71, source, &more)
}

fn submission(language: u64, source: &str, more: &Value) -> Value {
    let mut body = json!({"language_id": language, "source_code": source});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn every_status_is_reached() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let kill = |name: &str| {
        python(&format!("import os, signal\nos.kill(os.getpid(), signal.{name})"), json!({}))
    };
    let quick = json!({"cpu_time_limit": 0.2, "cpu_extra_time": 0.1});
    for (body, status, message) in [
        (python("print('x')", json!({})), "Accepted", None),
        (python("print('x  \\n')", json!({"expected_output": "x"})), "Accepted", None),
        (python("print('y')", json!({"expected_output": "x"})), "Wrong Answer", None),
        (python("while True: pass", quick), "Time Limit Exceeded", Some("Time limit exceeded")),
        (
            python("import time\ntime.sleep(60)", json!({"wall_time_limit": 1})),
            "Time Limit Exceeded",
            Some("Time limit exceeded (wall clock)"),
        ),
        (submission(50, "int main(void){ x }", &json!({})), "Compilation Error", None),
        (kill("SIGSEGV"), "Runtime Error (SIGSEGV)", Some("Caught fatal signal 11")),
        (kill("SIGFPE"), "Runtime Error (SIGFPE)", Some("Caught fatal signal 8")),
        (kill("SIGABRT"), "Runtime Error (SIGABRT)", Some("Caught fatal signal 6")),
        (kill("SIGTERM"), "Runtime Error (Other)", Some("Caught fatal signal 15")),
        (
            submission(
                46,
                "trap - XFSZ; head -c 10000 /dev/zero > f",
                &json!({"max_file_size": 1}),
            ),
            "Runtime Error (NZEC)",
            Some("Exited with error status 153"),
        ),
        (
            python("import sys; sys.exit(3)", json!({})),
            "Runtime Error (NZEC)",
            Some("Exited with error status 3"),
        ),
        (
            python("x = bytearray(200 << 20)", json!({"memory_limit": 64000})),
            "Runtime Error (Other)",
            Some("Memory limit exceeded"),
        ),
        (
            python("while True: print('x' * 1000)", json!({"max_file_size": 16})),
            "Runtime Error (SIGXFSZ)",
            Some("Output limit exceeded"),
        ),
        (submission(44, "not a program", &json!({})), "Exec Format Error", None),
    ] {
        let answer = run(&client, &body, "status,message,token");
        assert_eq!(answer["status"]["description"], status, "{body}: {answer}");
        if let Some(message) = message {
            assert_eq!(answer["message"], message, "{body}: {answer}");
        }
    }
}

#[test]
fn a_submission_is_shown_as_judge0_shows_it() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let body = python(
        "import sys\nprint(input(), sys.argv[1:]); print('e', file=sys.stderr); sys.exit(2)",
        json!({"stdin": "in", "command_line_arguments": "a 'b c'", "number_of_runs": 1,
               "cpu_time_limit": "2.5", "expected_output": "in"}),
    );
    let all = run(&client, &body, "*");
    for (field, expected) in [
        ("source_code", body["source_code"].clone()),
        ("stdin", json!("in")),
        ("expected_output", json!("in")),
        ("stdout", json!("in ['a', 'b c']\n")),
        ("stderr", json!("e\n")),
        ("compile_output", Value::Null),
        ("message", json!("Exited with error status 2")),
        ("exit_code", json!(2)),
        ("exit_signal", Value::Null),
        ("status", json!({"id": 11, "description": "Runtime Error (NZEC)"})),
        ("status_id", json!(11)),
        ("language_id", json!(71)),
        ("cpu_time_limit", json!("2.5")),
        ("memory_limit", json!(128_000)),
        ("command_line_arguments", json!("a 'b c'")),
        ("enable_network", json!(false)),
        ("additional_files", Value::Null),
        ("callback_url", Value::Null),
    ] {
        assert_eq!(all[field], expected, "{field}");
    }
    assert!(all["time"].as_str().unwrap().parse::<f64>().unwrap() > 0.0);
    assert!(all["wall_time"].as_str().unwrap().parse::<f64>().unwrap() > 0.0);
    assert!(all["memory"].as_u64().unwrap() > 1000);
    assert!(all["finished_at"].as_str().unwrap().ends_with('Z'));
    assert!(all["language"]["name"].as_str().unwrap().starts_with("Python (3."));

    let token = all["token"].as_str().unwrap();
    assert_eq!((token.len(), &token[14..15]), (36, "4"));
    let one = client.get(&format!("{SUBMISSIONS}/{token}?base64_encoded=false&fields=*"));
    assert_eq!(one.json(), all);
    let default = client.get(&format!("{SUBMISSIONS}/{token}")).json();
    let mut names: Vec<_> = default.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected =
        ["compile_output", "memory", "message", "status", "stderr", "stdout", "time", "token"];
    assert_eq!(names, expected);
    assert_eq!(default["stderr"], "ZQo=", "base64 unless asked otherwise");
}

#[test]
fn texts_are_base64_unless_a_request_says_otherwise() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    // "print(input())", in lines and without padding, as sent by Ruby clients and others.
    let body =
        json!({"language_id": 71, "source_code": "cHJpbnQo\naW5wdXQoKSk\n", "stdin": "4oKs"});
    let response = post(&client, &format!("{SUBMISSIONS}?wait=true"), body.to_string());
    assert_eq!((response.status, &response.json()["stdout"]), (201, &json!("4oKsCg==")));

    // Output that is not text cannot be returned as text; the token is always returned.
    let bytes = python("import os; os.write(1, b'\\xff')", json!({}));
    let path = format!("{SUBMISSIONS}?base64_encoded=false&wait=true");
    let response = post(&client, &path, bytes.to_string());
    assert_eq!(response.status, 201);
    let error = "some attributes for this submission cannot be converted to UTF-8, \
                 use base64_encoded=true query parameter";
    assert_eq!(response.json()["error"], error);
    let token = response.json()["token"].as_str().unwrap().to_owned();
    let plain = client.get(&format!("{SUBMISSIONS}/{token}?base64_encoded=false"));
    assert_eq!((plain.status, plain.json()), (400, json!({ "error": error })));
    assert_eq!(client.get(&format!("{SUBMISSIONS}/{token}")).json()["stdout"], "/w==");

    // Forms are accepted, too.
    let form = Request::new("POST", &format!("{SUBMISSIONS}?base64_encoded=false&wait=true"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body("language_id=71&source_code=print%28%27a+b%27%29");
    let response = client.send(&form);
    assert_eq!((response.status, &response.json()["stdout"]), (201, &json!("a b\n")));
}

#[test]
fn options_change_what_they_say() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let c = "#include <stdio.h>\nint main(void){printf(\"%d\\n\", X);return 0;}";
    let both = "import sys\nprint('o', flush=True)\nprint('e', file=sys.stderr, flush=True)";
    for (body, field, expected) in [
        (submission(50, c, &json!({"compiler_options": "-DX=7 ;|$"})), "stdout", json!("7\n")),
        (python(both, json!({"redirect_stderr_to_stdout": true})), "stdout", json!("o\ne\n")),
        (python(both, json!({"redirect_stderr_to_stdout": true})), "stderr", Value::Null),
        (python("print(1)", json!({"number_of_runs": 3})), "stdout", json!("1\n")),
        (submission(43, "just text", &json!({})), "stdout", json!("just text")),
        (
            submission(46, "echo $1", &json!({"command_line_arguments": "'x y'"})),
            "stdout",
            json!("x y\n"),
        ),
        (submission(50, "int main(void){ x }", &json!({})), "stdout", Value::Null),
        (submission(50, "int main(void){ x }", &json!({})), "time", Value::Null),
    ] {
        let answer = run(&client, &body, "*");
        assert_eq!(answer[field], expected, "{body}: {answer}");
    }
    let failed =
        run(&client, &submission(50, "int main(void){ oops }", &json!({})), "compile_output");
    assert!(failed["compile_output"].as_str().unwrap().contains("oops"));
}

/// A zip archive with `m.py`, which contains `x = 7`.
const ARCHIVE: &str = "\
    UEsDBBQAAAAAAAAAIQC9LqzdBgAAAAYAAAAEAAAAbS5weXggPSA3ClBLAQIUAxQAAAAAAA\
    AAIQC9LqzdBgAAAAYAAAAEAAAAAAAAAAAAAACkgQAAAABtLnB5UEsFBgAAAAABAAEAMgAA\
    ACgAAAAAAA==";

#[test]
fn additional_files_are_shown_of_one_submission_and_run_again() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let source = "import m\nprint(m.x)";
    let first = run(&client, &python(source, json!({ "additional_files": ARCHIVE })), "*");
    assert_eq!(first["stdout"], "7\n", "{first}");
    let token = first["token"].as_str().unwrap();
    let query = "base64_encoded=false&fields=additional_files";
    let submission = client.get(&format!("{SUBMISSIONS}/{token}?{query}")).json();
    assert_eq!(submission["additional_files"], first["additional_files"]);
    // The returned archive contains the same files.
    let again = json!({ "additional_files": submission["additional_files"] });
    assert_eq!(run(&client, &python(source, again), "stdout"), json!({"stdout": "7\n"}));

    let nothing = json!({ "additional_files": null });
    let batch = client.get(&format!("{SUBMISSIONS}/batch?{query}&tokens={token}")).json();
    assert_eq!(batch["submissions"], json!([nothing]));
    let page = client.get(&format!("{SUBMISSIONS}?{query}")).json();
    assert_eq!(page["submissions"], json!([nothing, nothing]));
}

#[test]
fn batches_are_accepted_one_by_one_and_read_together() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let path = format!("{SUBMISSIONS}/batch?base64_encoded=false");
    let batch = json!({"submissions": [
        python("print(1)", json!({})),
        python("print(2)", json!({"language_id": 1})),
        7,
        python("print(3)", json!({"callback_url": "http://127.0.0.1/x"})),
        python("print(4)", json!({})),
    ]});
    let response = post(&client, &path, batch.to_string());
    assert_eq!(response.status, 201, "{}", response.text());
    let answers = response.json();
    let tokens: Vec<&str> =
        answers.as_array().unwrap().iter().filter_map(|answer| answer["token"].as_str()).collect();
    assert_eq!((answers.as_array().unwrap().len(), tokens.len()), (5, 2), "{answers}");
    assert_eq!(answers[1], json!({"language_id": ["language with id 1 doesn't exist"]}));
    assert_eq!(answers[2], json!({"base": ["must be an object"]}));
    assert!(answers[3]["callback_url"].is_array(), "{answers}");

    let tokens = format!("{},nothing,{}", tokens[0], tokens[1]);
    let path = format!("{path}&tokens={tokens}&fields=stdout,status_id");
    let poll = until("the end of a batch", END_LIMIT, || {
        let poll = client.get(&path).json();
        let done = [0, 2].iter().all(|&at| poll["submissions"][at]["status_id"] == 3);
        if done { Ok(poll) } else { Err(poll.to_string()) }
    });
    let expected = json!({"submissions": [
        {"stdout": "1\n", "status_id": 3}, null, {"stdout": "4\n", "status_id": 3}]});
    assert_eq!(poll, expected);
    let header = Request::new("GET", &format!("{SUBMISSIONS}/batch?base64_encoded=false"));
    let response = client.send(&header.header("tokens", &tokens));
    assert_eq!(response.json()["submissions"][2]["stdout"], "4\n");
}

#[test]
fn pages_lead_through_one_s_own_submissions_and_delete_forgets_one() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for number in 0..5 {
        run(&client, &python(&format!("print({number})"), json!({})), "token");
    }
    // Executions of other interfaces are not listed here.
    assert_eq!(client.run(&json!({"argv": ["/bin/true"]})).status, 200);
    let page = |query: &str| {
        let path = format!("{SUBMISSIONS}?base64_encoded=false&fields=stdout,token&{query}");
        client.get(&path).json()
    };
    let first = page("per_page=2");
    let meta = json!({"current_page": 1, "next_page": 2, "prev_page": null, "total_pages": 3,
                      "total_count": 5});
    assert_eq!(first["meta"], meta);
    assert_eq!(first["submissions"][0]["stdout"], "4\n", "newest first");
    let last = page("page=3&per_page=2");
    assert_eq!(
        (last["submissions"].as_array().unwrap().len(), &last["meta"]["next_page"]),
        (1, &Value::Null)
    );
    assert_eq!(page("page=9")["submissions"], json!([]));

    let token = first["submissions"][0]["token"].as_str().unwrap();
    let one = format!("{SUBMISSIONS}/{token}?base64_encoded=false&fields=stdout");
    let deleted = client.send(&Request::new("DELETE", &one));
    assert_eq!((deleted.status, deleted.json()), (200, json!({"stdout": "4\n"})));
    assert_eq!(client.get(&one).status, 404);
    assert_eq!(page("")["meta"]["total_count"], 4);

    let slow = post(
        &client,
        &format!("{SUBMISSIONS}?base64_encoded=false"),
        python("import time\ntime.sleep(3)", json!({})).to_string(),
    );
    let token = slow.json()["token"].as_str().unwrap().to_owned();
    let refused = client.send(&Request::new("DELETE", &format!("{SUBMISSIONS}/{token}")));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.json()["error"].as_str().unwrap().contains("because its status is"));
}

/// Sends a body and compares the answer; a field that is null in `expected` may have any value.
fn check_refused(client: &Client, path: &str, body: &str, status: u16, expected: &Value) {
    let response = post(client, path, body.as_bytes());
    let seen = response.json();
    assert_eq!(response.status, status, "{body}: {seen}");
    match expected.as_object().filter(|fields| fields.values().any(Value::is_null)) {
        // Judge0 defines the names of invalid fields; the messages are Cove's.
        Some(fields) => {
            let names = |value: &Value| -> Vec<String> {
                value.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(names(&seen), fields.keys().cloned().collect::<Vec<_>>(), "{body}");
        }
        None => assert_eq!(&seen, expected, "{body}"),
    }
}

#[test]
fn bad_requests_are_answered_in_judge0_s_shape() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let (plain, batch) =
        (format!("{SUBMISSIONS}?base64_encoded=false"), format!("{SUBMISSIONS}/batch"));
    let many = json!({"submissions": vec![python("", json!({})); 21]}).to_string();
    let large = python("x", json!({"stdin": "x".repeat(2 << 20), "number_of_runs": 20}));
    for (path, body, status, expected) in [
        (&plain, "{}".to_owned(), 422, json!({"language_id": ["can't be blank"]})),
        (
            &plain,
            python("x", json!({"cpu_time_limit": 100})).to_string(),
            422,
            json!({"cpu_time_limit": ["must be less than or equal to 15"]}),
        ),
        (
            &plain,
            python("x", json!({"compiler_options": "-O2"})).to_string(),
            422,
            json!({"compiler_options": null}),
        ),
        (
            &plain,
            python("x", json!({"callback_url": "ftp://x"})).to_string(),
            422,
            json!({"callback_url": null}),
        ),
        (
            &plain,
            python("x", json!({"stdin": "a\0b", "command_line_arguments": "\0"})).to_string(),
            422,
            json!({"command_line_arguments": null}),
        ),
        (&plain, large.to_string(), 422, json!({"number_of_runs": null})),
        (&plain, String::new(), 400, json!({"error": null})),
        (&plain, "{".to_owned(), 400, json!({"error": null})),
        (&plain, "[]".to_owned(), 400, json!({"error": "the request body must be a JSON object"})),
        (
            &format!("{plain}&fields=stdout,x,y"),
            "{}".to_owned(),
            400,
            json!({"error": "invalid fields: [x, y]"}),
        ),
        (&batch, "{}".to_owned(), 400, json!({"error": "submissions must be an array"})),
        (
            &batch,
            r#"{"submissions":[]}"#.to_owned(),
            400,
            json!({"error": "there should be at least one submission in a batch"}),
        ),
        (
            &batch,
            many,
            400,
            json!({"error": "number of submissions in a batch should be less than or equal to 20"}),
        ),
        (
            &batch,
            r#"{"submissions":[{}]}"#.to_owned(),
            422,
            json!([{"language_id": ["can't be blank"]}]),
        ),
    ] {
        check_refused(&client, path, &body, status, &expected);
    }
}

#[test]
fn what_is_not_there_or_not_json_is_said_in_judge0_s_shape() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    for (path, status) in [
        ("/submissions/nothing", 404),
        ("/submissions/00000000-0000-4000-8000-000000000000", 404),
        ("/submissions?page=0", 400),
        ("/submissions?per_page=x", 400),
        ("/submissions/batch", 400),
        ("/languages/1", 404),
        ("/languages/x", 404),
        ("/languages/%ff", 400),
        ("/submissions/%ff", 400),
        ("/nothing", 404),
    ] {
        let response = client.get(&format!("/compat/judge0{path}"));
        assert_eq!(response.status, status, "{path}: {}", response.text());
        assert!(response.json()["error"].is_string(), "{path}: {}", response.text());
    }
    let response = client.send(&Request::new("DELETE", &format!("{SUBMISSIONS}/%ff")));
    assert_eq!((response.status, response.json()["error"].is_string()), (400, true));
    let text = Request::new("POST", SUBMISSIONS).header("content-type", "text/plain").body("{}");
    let response = client.send(&text);
    assert_eq!((response.status, response.json()["error"].is_string()), (415, true));
}

#[test]
fn whoever_has_no_token_learns_nothing_and_one_s_submissions_are_one_s_own() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let token = run(&client, &python("print(1)", json!({})), "token")["token"].clone();
    let path = format!("{SUBMISSIONS}/{}", token.as_str().unwrap());
    let nobody = client.anonymous();
    for (method, path) in [
        ("GET", path.as_str()),
        ("POST", "/compat/judge0/authenticate"),
        ("GET", "/compat/judge0/about"),
    ] {
        let response = nobody.send(&Request::new(method, path));
        assert_eq!((response.status, response.json()["error"].is_string()), (401, true), "{path}");
    }
    for header in ["x-auth-token", "authorization"] {
        let value = match header {
            "authorization" => format!("Bearer {}", server.token()),
            _ => server.token().to_owned(),
        };
        for path in ["authenticate", "authorize"] {
            let request = Request::new("POST", &format!("/compat/judge0/{path}"));
            let request = request.header(header, &value).header("x-auth-user", server.token());
            assert_eq!(nobody.send(&request).status, 200, "{header} {path}");
        }
    }
    let wrong = Request::new("POST", "/compat/judge0/authenticate").header("x-auth-token", "wrong");
    assert_eq!(nobody.send(&wrong).status, 401);

    let made = testkit::command(crate::support::COVE)
        .args(["token", "--data-dir"])
        .arg(server.data_dir())
        .args(["create", "--name", "other"])
        .output()
        .unwrap();
    let other = String::from_utf8_lossy(&made.stdout);
    let other = other.split_whitespace().find(|word| word.starts_with("cove_")).unwrap();
    let other = testkit::Client::new(client.address(), Some(other.to_owned()));
    assert_eq!(other.get(&path).status, 404);
    assert_eq!(other.send(&Request::new("DELETE", &path)).status, 404);
    assert_eq!(other.get(SUBMISSIONS).json()["meta"]["total_count"], 0);
    assert_eq!(client.get(&path).status, 200);
}

#[test]
fn the_server_tells_about_itself() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let get = |path: &str| {
        let response = client.get(&format!("/compat/judge0{path}"));
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response
    };
    let languages = get("/languages").json();
    let ids: HashSet<u64> =
        languages.as_array().unwrap().iter().filter_map(|it| it["id"].as_u64()).collect();
    for id in [43, 44, 46, 48, 49, 50, 52, 53, 54, 60, 62, 63, 71, 74, 89, 91, 92, 93, 94, 95, 100]
    {
        assert!(ids.contains(&id), "{id}");
    }
    assert_eq!(get("/languages/all").json()[0]["is_archived"], false);
    assert_eq!(get("/languages/71").json()["source_file"], "main.py");
    assert_eq!(get("/statuses").json()[3], json!({"id": 4, "description": "Wrong Answer"}));
    assert_eq!(get("/statuses").json().as_array().unwrap().len(), 14);
    assert_eq!(get("/config_info").json()["max_cpu_time_limit"], 15.0);
    assert!(get("/workers").json()[0]["available"].as_u64().unwrap() > 0);
    assert_eq!(get("/about").json()["version"], "1.13.1");
    assert_eq!(get("/version").text(), "1.13.1");
    assert!(get("/system_info").json()["CPU(s)"].is_string());
    assert!(get("/isolate").text().contains("Cove"));
    assert!(get("/license").text().contains("Apache"));
    run(&client, &python("print(1)", json!({})), "token");
    let statistics = get("/statistics").json();
    assert_eq!(
        (&statistics["submissions"]["total"], &statistics["languages"][0]["language"]["id"]),
        (&json!(1), &json!(71))
    );
}

#[test]
fn an_end_is_told_to_the_callback_with_put() {
    let _guard = beside_others();
    let server = serve_with("[executions.jobs]\nwebhook_allow = [\"127.0.0.0/8\"]");
    let client = server.client();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/told?x=1", receiver.local_addr().unwrap());
    let body = python("print('é')", json!({"callback_url": url}));
    let path = format!("{SUBMISSIONS}?base64_encoded=false");
    let token = post(&client, &path, body.to_string()).json()["token"].clone();

    let (mut stream, _) = receiver.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_lowercase()),
        }
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut callback = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut callback).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert_eq!(head[0], "put /told?x=1 http/1.1");
    assert!(head.iter().any(|line| line.starts_with("webhook-signature: v1,")), "{head:?}");
    let callback: Value = serde_json::from_slice(&callback).unwrap();
    assert_eq!(
        (&callback["token"], &callback["stdout"], &callback["status"]["id"]),
        (&token, &json!("w6kK"), &json!(3))
    );
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
                let expected = format!("{}", number * 3);
                let more = json!({"expected_output": expected});
                let submission =
                    run(client, &python(&format!("print({number} * 3)"), more), "stdout,status_id");
                assert_eq!(submission, json!({"stdout": format!("{expected}\n"), "status_id": 3}));
            });
        }
    });
}

#[test]
fn clients_of_others_are_served() {
    let _guard = beside_others();
    let server = serve();
    foreign::python("judge0/clients.py", &server, "/compat/judge0");
}
