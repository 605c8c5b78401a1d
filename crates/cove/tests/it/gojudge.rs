//! The go-judge interface: requests of its clients, and the answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Client, Request, Server, until};

use crate::support::{COVE, beside_others, serve};

/// Path prefix of the interface.
const FACE: &str = "/compat/go-judge";
const SECOND: u64 = 1_000_000_000;

/// A program as clients describe it; fields of `more` replace the defaults.
fn cmd(args: &[&str], more: Value) -> Value {
    let mut cmd = json!({
        "args": args,
        "env": ["PATH=/usr/bin:/bin", "TERM=xterm"],
        "files": [{"content": ""}, {"name": "stdout", "max": 10240}, {"name": "stderr", "max": 10240}],
        "cpuLimit": 5 * SECOND,
        "clockLimit": 10 * SECOND,
        "memoryLimit": 128 << 20,
        "procLimit": 50,
    });
    for (name, value) in more.as_object().unwrap() {
        cmd[name] = value.clone();
    }
    cmd
}

fn sh(script: &str, more: Value) -> Value {
    cmd(&["/bin/sh", "-c", script], more)
}

fn post(client: &Client, body: &Value) -> testkit::Response {
    let request = Request::new("POST", &format!("{FACE}/run"));
    client.send(&request.header("content-type", "application/json").body(body.to_string()))
}

fn run(client: &Client, body: &Value) -> Vec<Value> {
    let response = post(client, body);
    assert_eq!(response.status, 200, "{body}: {}", response.text());
    response.json().as_array().unwrap().clone()
}

fn run_one(client: &Client, cmd: Value) -> Value {
    run(client, &json!({"cmd": [cmd]})).pop().unwrap()
}

/// Runs the programs in order and compares the fields in `expected`.
fn check(client: &Client, table: &[(Value, Value)]) {
    for (cmd, expected) in table {
        let outcome = run_one(client, cmd.clone());
        for (name, value) in expected.as_object().unwrap() {
            match value.as_object() {
                // Files are compared one by one: other files may be present.
                Some(files) => {
                    for (file, content) in files {
                        assert_eq!(&outcome[name][file], content, "{cmd}: {outcome}");
                    }
                }
                None => assert_eq!(&outcome[name], value, "{cmd}: {outcome}"),
            }
        }
    }
}

#[test]
fn every_status_is_go_judge_s() {
    let _beside = beside_others();
    let server = serve();
    let status = |status: &str| json!({"status": status});
    let ok = |stdout: &str| json!({"status": "Accepted", "files": {"stdout": stdout}});
    check(
        &server.client(),
        &[
            (sh("echo hi", json!({})), ok("hi\n")),
            (
                sh(
                    "cat; pwd -P",
                    json!({"files": [{"content": "in "}, {"name": "stdout", "max": 99}]}),
                ),
                ok("in /workspace\n"),
            ),
            (sh("exit 3", json!({})), json!({"status": "Nonzero Exit Status", "exitStatus": 3})),
            (sh("kill -SEGV $$", json!({})), json!({"status": "Signalled", "exitStatus": 11})),
            (
                sh("while :; do :; done", json!({"cpuLimit": SECOND / 10})),
                status("Time Limit Exceeded"),
            ),
            (
                sh("sleep 20", json!({"clockLimit": SECOND / 10})),
                json!({"status": "Time Limit Exceeded", "exitStatus": 9}),
            ),
            (sh("yes", json!({})), status("Output Limit Exceeded")),
            // The output exceeds the limit of its collector, but not the one that kills a program:
            // it is reported although the program ended normally.
            (
                sh(
                    "echo 12345",
                    json!({"files": [null, {"name": "o", "max": 3}, {"name": "e", "max": 90}]}),
                ),
                json!({"status": "Output Limit Exceeded", "exitStatus": 0, "files": {"o": "123"}}),
            ),
            (
                cmd(&["python3", "-c", "b'x' * (300 << 20)"], json!({})),
                status("Memory Limit Exceeded"),
            ),
            (cmd(&["no-such-program"], json!({})), status("Internal Error")),
        ],
    );
}

#[test]
fn files_and_streams_are_go_judge_s() {
    let _beside = beside_others();
    let server = serve();
    let status = |status: &str| json!({"status": status});
    let ok = |stdout: &str| json!({"status": "Accepted", "files": {"stdout": stdout}});
    check(
        &server.client(),
        &[
            (sh("true", json!({"copyOut": ["missing"]})), status("File Error")),
            (sh("true", json!({"copyOut": ["missing?"]})), status("Accepted")),
            (sh("mkfifo out", json!({"copyOut": ["out"]})), status("File Error")),
            (sh("ln -s /etc/passwd out", json!({"copyOut": ["out"]})), status("File Error")),
            (
                sh("printf 12345 >out", json!({"copyOut": ["out"], "copyOutMax": 4})),
                json!({"status": "File Error", "files": {"out": null}}),
            ),
            (
                sh(
                    "printf 12345 >out",
                    json!({"copyOut": ["out"], "copyOutMax": 4, "copyOutTruncate": true}),
                ),
                json!({"status": "File Error", "files": {"out": "1234"}}),
            ),
            (
                sh(
                    "cat /w/d/f /workspace/l",
                    json!({"copyIn":
                {"d/f": {"content": "1"}, "/w/l": {"symlink": "d/f"}}}),
                ),
                ok("11"),
            ),
            (
                cmd(
                    &["tool", "x"],
                    json!({"copyIn": {"tool": {"content": "#!/bin/sh\necho got $1"}}}),
                ),
                ok("got x\n"),
            ),
            (sh("true", json!({"copyIn": {"../x": {"content": ""}}})), status("File Error")),
            (sh("true", json!({"copyIn": {"/etc/x": {"content": ""}}})), status("File Error")),
            (
                sh(
                    "echo a; echo b >&2; echo c",
                    json!({"files": [null, {"name": "o", "max": 99}, {"name": "o", "max": 99}]}),
                ),
                json!({"files": {"o": "a\nb\nc\n"}}),
            ),
            (
                sh(
                    "cat <&3; echo y >&4",
                    json!({"files": [null, {"name": "stdout", "max": 9}, null,
                {"content": "x"}, {"name": "four", "max": 9}]}),
                ),
                json!({"status": "Accepted", "files": {"stdout": "x", "four": "y\n"}}),
            ),
            (sh("printf '\\377a\\342\\202'", json!({})), ok("\u{fffd}a\u{fffd}\u{fffd}")),
            (
                sh(
                    "read x; test -t 0 && stty size; echo $x",
                    json!({"tty": true,
                "files": [{"content": "in\n"}, {"name": "stdout", "max": 99}, null]}),
                ),
                ok("in\r\n24 80\r\nin\r\n"),
            ),
        ],
    );
}

#[test]
fn bad_requests_are_refused_in_go_judge_s_shape() {
    let _beside = beside_others();
    let server = serve();
    let client = server.client();
    for (body, status, says) in [
        (json!({}), 400, "no cmd provided"),
        (json!({"cmd": "x"}), 400, "cmd: "),
        (json!({"cmd": [cmd(&[], json!({}))]}), 400, "cmd[0].args: "),
        (
            json!({"cmd": [cmd(&["x"], json!({"files": [{"src": "/etc/passwd"}]}))]}),
            400,
            "cmd[0].files[0].src: ",
        ),
        (
            json!({"cmd": [cmd(&["x"], json!({"copyIn": {"f": {"fileId": "../x"}}}))]}),
            500,
            "file does not exists with id: \"../x\"",
        ),
    ] {
        let response = post(&client, &body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
        let text = response.json();
        assert!(text.as_str().unwrap().starts_with(says), "{body}: {text}");
    }
    for body in ["", "{", "[]", "\u{0}"] {
        let request = Request::new("POST", &format!("{FACE}/run")).body(body);
        let response = client.send(&request.header("content-type", "application/json"));
        assert_eq!(response.status, 400, "{body}: {}", response.text());
        assert!(response.json().is_string(), "{body}");
    }
    for method in ["GET", "DELETE"] {
        let response = client.send(&Request::new(method, &format!("{FACE}/file/%ff")));
        assert_eq!(response.status, 400, "{method}: {}", response.text());
        assert!(response.json().is_string(), "{method}: {}", response.text());
    }
    assert_eq!(client.anonymous().get(&format!("{FACE}/file")).status, 401);
}

#[test]
fn two_programs_talk_over_pipes_in_both_directions() {
    let _beside = beside_others();
    let server = serve();
    let asks = "import sys\nfor i in range(1000):\n print(i, flush=True)\n \
                assert int(sys.stdin.readline()) == 2 * i\n";
    let answers = "import sys\nfor line in sys.stdin: print(2 * int(line), flush=True)\n";
    for proxy in [false, true] {
        let silent = json!({"files": [null, null, {"name": "stderr", "max": 10240}]});
        let end = |index: u8, fd: u8| json!({"index": index, "fd": fd});
        let request = json!({
            "cmd": [cmd(&["python3", "-c", asks], silent.clone()),
                    cmd(&["python3", "-c", answers], silent.clone())],
            "pipeMapping": [
                {"in": end(0, 1), "out": end(1, 0), "proxy": proxy, "name": "asked", "max": 6},
                {"in": end(1, 1), "out": end(0, 0), "proxy": proxy},
            ],
        });
        let outcomes = run(&server.client(), &request);
        for outcome in &outcomes {
            assert_eq!(outcome["status"], "Accepted", "{outcome}");
        }
        let kept = if proxy { json!("0\n1\n2\n") } else { Value::Null };
        assert_eq!(outcomes[0]["files"]["asked"], kept);
    }
}

#[test]
fn what_is_compiled_is_kept_for_its_tenant_until_it_is_deleted() {
    let _beside = beside_others();
    let server = serve();
    let client = server.client();
    let data_dir = server.data_dir();
    let create = ["create", "--name", "other"];
    let mut command = testkit::command(COVE);
    command.args(["token", "--data-dir"]).arg(data_dir).args(create);
    let created = command.output().unwrap();
    let other = String::from_utf8(created.stdout).unwrap();
    let token = other.split_whitespace().find(|word| word.starts_with("cove_")).unwrap().to_owned();
    let other = Client::new(client.address(), Some(token));

    check_kept_files(&client, |path, program| {
        // Another tenant cannot see, read, delete or use the file.
        assert_eq!(other.get(&format!("{FACE}/file")).json(), json!({}));
        assert_eq!(other.get(path).status, 404);
        assert_eq!(other.send(&Request::new("DELETE", path)).status, 404);
        assert_eq!(post(&other, &json!({"cmd": [program]})).status, 500);
    });
}

/// Compiles a program, runs it, and deletes it. Before the deletion, calls `inspect` with the
/// file's path and a command that runs it.
pub(crate) fn check_kept_files(client: &Client, inspect: impl FnOnce(&str, &Value)) {
    let source =
        "#include <stdio.h>\nint main(void) { int a; scanf(\"%d\", &a); printf(\"%d\", 2 * a); }";
    let compiled = run_one(
        client,
        cmd(
            &["/usr/bin/gcc", "a.c", "-o", "a"],
            json!({"copyIn": {"a.c": {"content": source}}, "copyOutCached": ["a"]}),
        ),
    );
    assert_eq!(compiled["status"], "Accepted", "{compiled}");
    let id = compiled["fileIds"]["a"].as_str().unwrap();
    let program = cmd(
        &["a"],
        json!({"copyIn": {"a": {"fileId": id}},
        "files": [{"content": "21"}, {"name": "stdout", "max": 99}]}),
    );
    assert_eq!(run_one(client, program.clone())["files"]["stdout"], "42");

    let path = format!("{FACE}/file/{id}");
    assert_eq!(client.get(&format!("{FACE}/file")).json(), json!({id: "a"}));
    assert_eq!(client.get(&path).body.get(..4), Some(&b"\x7fELF"[..]));
    inspect(&path, &program);

    assert_eq!(client.send(&Request::new("DELETE", &path)).status, 200);
    assert_eq!(client.send(&Request::new("DELETE", &path)).status, 404);
    assert_eq!(client.get(&path).status, 404);
}

#[test]
fn uploads_come_back_as_they_were() {
    let _beside = beside_others();
    let server = serve();
    let client = server.client();
    let content: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let form = |name: &str, content: &[u8]| {
        let head = format!(
            "--B\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"é\"\r\n\r\n"
        );
        let body = [head.as_bytes(), content, b"\r\n--B--\r\n"].concat();
        let request = Request::new("POST", &format!("{FACE}/file"));
        client.send(&request.header("content-type", "multipart/form-data; boundary=B").body(body))
    };
    let id = form("file", &content).json().as_str().unwrap().to_owned();
    let back = client.get(&format!("{FACE}/file/{id}"));
    assert_eq!(back.body, content);
    assert_eq!(back.header("content-disposition"), Some("attachment; filename*=UTF-8''%C3%A9"));
    let counted =
        run_one(&client, sh("wc -c", json!({"files": [{"fileId": id}, {"name": "o", "max": 99}]})));
    assert_eq!(counted["files"]["o"], "100000\n");
    let refused = form("other", b"x");
    assert_eq!((refused.status, refused.json()), (400, json!("http: no such file")));
}

#[test]
fn fifty_at_once_each_get_their_own_answer() {
    let _beside = beside_others();
    let server = serve();
    let client = server.client();
    thread::scope(|scope| {
        for number in 0..50 {
            let client = &client;
            scope.spawn(move || {
                let outcome = run_one(client, sh(&format!("echo {number}"), json!({})));
                assert_eq!(outcome["files"]["stdout"], format!("{number}\n"), "{outcome}");
            });
        }
    });
}

#[test]
fn one_socket_carries_many_requests_and_their_ends() {
    let _beside = beside_others();
    let server = serve();
    let mut socket = Socket::open(&server, "ws");
    let request = |id: &str, script: &str| json!({"requestId": id, "cmd": [sh(script, json!({}))]});
    socket.send(1, request("long", "sleep 100").to_string().as_bytes());
    for number in 0..20 {
        let id = number.to_string();
        socket.send(1, request(&id, &format!("echo {id}")).to_string().as_bytes());
    }
    for _ in 0..20 {
        let answer = socket.json();
        let expected = format!("{}\n", answer["requestId"].as_str().unwrap());
        assert_eq!(answer["results"][0]["files"]["stdout"], expected, "{answer}");
    }
    for (message, says) in [
        ("{", "the message is not a request"),
        (&*request("", "true").to_string(), "empty request id"),
        (&*request("long", "true").to_string(), "duplicated request id"),
        (r#"{"requestId": "x"}"#, "no cmd provided"),
    ] {
        socket.send(1, message.as_bytes());
        let answer = socket.json();
        assert!(answer["error"].as_str().unwrap().starts_with(says), "{message}: {answer}");
    }
    socket.send(1, br#"{"cancelRequestId": "long"}"#);
    let answer = socket.json();
    assert_eq!(answer["results"][0]["status"], "Signalled", "{answer}");
    // A running request ends with its connection.
    socket.send(1, request("left", "sleep 100").to_string().as_bytes());
    wait_for_running(&server, 1);
    drop(socket);
    wait_for_running(&server, 0);
}

#[test]
fn a_stream_has_a_terminal_that_changes_its_size() {
    let _beside = beside_others();
    let server = serve();
    let mut socket = Socket::open(&server, "stream");
    let files = json!([{"streamIn": true}, {"streamOut": true}, {"streamOut": true}]);
    let script = "stty size; read x; stty size; read y; echo got $y; exit 7";
    let request = json!({"cmd": [sh(script, json!({"tty": true, "files": files}))]});
    socket.send(2, &[&[1], request.to_string().as_bytes()].concat());
    let mut screen = String::new();
    socket.show_until(&mut screen, "24 80\r\n");
    socket.send(2, b"\x02{\"index\": 0, \"fd\": 0, \"rows\": 33, \"cols\": 101}");
    socket.send(2, b"\x03\x00\n");
    socket.show_until(&mut screen, "33 101\r\n");
    socket.send(2, b"\x03\x00bye\n");
    let answer = socket.answer(&mut screen);
    assert!(screen.ends_with("got bye\r\n"), "{screen:?}");
    assert_eq!(answer["results"][0]["exitStatus"], 7, "{answer}");
}

#[test]
fn streams_carry_bytes_to_and_from_each_program() {
    let _beside = beside_others();
    let server = serve();
    let mut socket = Socket::open(&server, "stream");
    let request = json!({"cmd": [
        cmd(&["cat"], json!({"files": [{"streamIn": true}, {"streamOut": true}]})),
        sh("cat <&3 >&4", json!({"files": [null, null, null, {"streamIn": true}, {"streamOut": true}]})),
    ]});
    socket.send(2, &[&[1], request.to_string().as_bytes()].concat());
    socket.send(2, b"\x03\x00one\xff");
    assert_eq!(socket.receive(), Some(b"\x02\x01one\xff".to_vec()));
    socket.send(2, b"\x03\x13two");
    assert_eq!(socket.receive(), Some(b"\x02\x14two".to_vec()));
    // An empty message means end of input.
    socket.send(2, b"\x03\x00");
    socket.send(2, b"\x03\x13");
    let answer = socket.answer(&mut String::new());
    assert_eq!(answer["results"][0]["status"], "Accepted", "{answer}");
    assert_eq!(answer["results"][1]["status"], "Accepted", "{answer}");
    assert_eq!(socket.receive(), None, "the answer is the last message");
}

#[test]
fn a_stream_ends_when_it_is_cancelled_or_left_or_misused() {
    let _beside = beside_others();
    let server = serve();
    let files = json!([{"streamIn": true}, {"streamOut": true}]);
    let request =
        json!({"cmd": [sh("sleep 100", json!({"files": files, "clockLimit": 60 * SECOND}))]});
    let request = [&[1], request.to_string().as_bytes()].concat();
    let begin = || {
        let mut socket = Socket::open(&server, "stream");
        socket.send(2, &request);
        wait_for_running(&server, 1);
        socket
    };
    let mut socket = begin();
    socket.send(2, b"\x04");
    let answer = socket.answer(&mut String::new());
    assert_eq!(answer["results"][0]["status"], "Signalled", "{answer}");
    wait_for_running(&server, 0);
    drop(begin());
    wait_for_running(&server, 0);
    for message in [&b"\x03\x55x"[..], b"\x02{}", b"\x02junk", b"\x09", b"", &request] {
        let mut socket = begin();
        socket.send(2, message);
        assert_eq!(socket.receive(), None, "{message:?}");
        wait_for_running(&server, 0);
    }
    // A cancellation is processed behind more unread input than a pipe holds.
    let mut socket = begin();
    let input = [&b"\x03\x00"[..], &vec![b'x'; 60_000]].concat();
    for message in [&input[..]; 10].into_iter().chain([&b"\x04"[..]]) {
        socket.send(2, message);
    }
    let answer = socket.answer(&mut String::new());
    assert_eq!(answer["results"][0]["status"], "Signalled", "{answer}");
    wait_for_running(&server, 0);
    for first in [&b"\x03\x00x"[..], b"\x01{", b"\x04", b""] {
        let mut socket = Socket::open(&server, "stream");
        socket.send(2, first);
        assert_eq!(socket.receive(), None, "{first:?}");
    }
}

#[test]
fn a_stream_that_nobody_reads_makes_its_program_wait() {
    let _beside = beside_others();
    let server = serve();
    let mut socket = Socket::open(&server, "stream");
    let files = json!([null, {"streamOut": true}]);
    let request = json!({"cmd": [cmd(&["yes"], json!({"files": files, "clockLimit": SECOND}))]});
    socket.send(2, &[&[1], request.to_string().as_bytes()].concat());
    // The wall limit continues while the output waits, so the program ends before a byte is read.
    wait_for_running(&server, 1);
    let answer = socket.answer(&mut String::new());
    assert_eq!(answer["results"][0]["status"], "Time Limit Exceeded", "{answer}");
}

/// Waits until `count` executions are running.
fn wait_for_running(server: &Server, count: usize) {
    let line = format!("cove_executions_running {count}");
    until(&line, Duration::from_secs(10), || {
        let metrics = server.client().get("/metrics").text();
        let is_so = metrics.lines().any(|other| other == line);
        is_so.then_some(()).ok_or(metrics)
    });
}

/// A minimal WebSocket client.
struct Socket(TcpStream);

impl Socket {
    fn open(server: &Server, path: &str) -> Socket {
        let mut stream = TcpStream::connect(server.client().address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let token = server.token();
        let head = format!(
            "GET {FACE}/{path} HTTP/1.1\r\nhost: cove\r\nauthorization: Bearer {token}\r\n\
             connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Socket(stream)
    }

    /// Sends a text (1) or binary (2) message, masked with zeros, which leaves it unchanged.
    fn send(&mut self, kind: u8, message: &[u8]) {
        let mut frame = vec![0x80 | kind];
        match message.len() {
            len @ 0..126 => frame.push(0x80 | u8::try_from(len).unwrap()),
            len => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(len).unwrap().to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(message);
        self.0.write_all(&frame).unwrap();
    }

    /// Returns the next message that is not a ping, or `None` when the server closes the
    /// connection.
    fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).ok()?;
            let len = match head[1] {
                126 => u64::from(u16::from_be_bytes(self.array())),
                127 => u64::from_be_bytes(self.array()),
                len => u64::from(len),
            };
            let mut message = vec![0; usize::try_from(len).unwrap()];
            self.0.read_exact(&mut message).unwrap();
            match head[0] & 15 {
                1 | 2 => return Some(message),
                8 => return None,
                _ => {}
            }
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn json(&mut self) -> Value {
        serde_json::from_slice(&self.receive().expect("an answer")).unwrap()
    }

    /// Collects the output of the first program until it ends with `end`.
    fn show_until(&mut self, screen: &mut String, end: &str) {
        while !screen.ends_with(end) {
            let message = self.receive().unwrap_or_else(|| panic!("{screen:?} and no {end:?}"));
            assert_eq!(message.get(..2), Some(&[2, 1][..]), "{screen:?} {message:?}");
            screen.push_str(std::str::from_utf8(&message[2..]).unwrap());
        }
    }

    /// Collects output until the answer arrives.
    fn answer(&mut self, screen: &mut String) -> Value {
        loop {
            let message = self.receive().expect("an answer");
            match message.split_first() {
                Some((1, json)) => return serde_json::from_slice(json).unwrap(),
                Some((2, output)) => screen.push_str(&String::from_utf8_lossy(&output[1..])),
                _ => panic!("{message:?}"),
            }
        }
    }
}
