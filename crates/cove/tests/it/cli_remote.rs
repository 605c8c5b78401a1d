//! `cove exec`, `cove queue` and `cove run --server`: a server used from a terminal.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{Certificate, Scratch, Server, process, until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use crate::asynchronous::{id, submit, wait_for_state};
use crate::support::{
    COVE, SOON, beside_others, held, is_execution_id, serve, shell, wait_until_gone, wake,
};

/// Returns a `cove` command that finds the server by its data directory.
fn command(server: &Server, arguments: &[&str]) -> Command {
    // Before the arguments of the program.
    let data_dir = server.data_dir();
    let at = arguments.iter().position(|it| *it == "--").unwrap_or(arguments.len());
    let mut command = testkit::command(COVE);
    command.args(&arguments[..at]).arg("--data-dir").arg(data_dir).args(&arguments[at..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(mut command: Command, stdin: &str) -> Output {
    let mut child = command.spawn().expect("start cove");
    let mut pipe = child.stdin.take().expect("a pipe");
    // A program may not read its input.
    drop(pipe.write_all(stdin.as_bytes()));
    drop(pipe);
    child.wait_with_output().expect("wait for cove")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Expected result of a command.
struct Expected<'a> {
    code: i32,
    /// Whole standard output.
    stdout: &'a str,
    /// Texts in standard error, which must be empty if there are none.
    stderr: &'a [&'a str],
}

fn check(output: &Output, what: &dyn std::fmt::Debug, expected: &Expected<'_>) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(expected.code), "{what:?}: {stderr}");
    assert_eq!(stdout, expected.stdout, "{what:?}: {stderr}");
    for phrase in expected.stderr {
        assert!(stderr.contains(phrase), "{what:?}: {stderr:?} lacks {phrase:?}");
    }
    assert!(!expected.stderr.is_empty() || stderr.is_empty(), "{what:?}: {stderr}");
}

/// Runs a command that must succeed, and returns its standard output.
fn done(server: &Server, arguments: &[&str]) -> String {
    let output = finish(command(server, arguments), "");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    text(&output.stdout)
}

#[test]
fn programs_end_there_as_they_end_here() {
    let _guard = beside_others();
    let server = serve();
    let scratch = server.scratch();
    let python = scratch.file("a.py", "print(int(input()) * 2)\n").display().to_string();
    let broken = scratch.file("b.c", "int main(void) { return }").display().to_string();
    let input = scratch.file("in.txt", "4\n").display().to_string();
    let sh = |script| ["--", "/bin/sh", "-c", script];
    let rows: Vec<(Vec<&str>, Expected<'_>)> = vec![
        (vec![&python, "--stdin-file", &input], Expected { code: 0, stdout: "8\n", stderr: &[] }),
        (
            sh("echo out; echo err >&2; exit 7").to_vec(),
            Expected { code: 7, stdout: "out\n", stderr: &["err\n", "RE: exited with code 7"] },
        ),
        (
            sh("printf '\\377\\000'; kill -SEGV $$").to_vec(),
            Expected { code: 139, stdout: "\u{fffd}\0", stderr: &["SG", "SIGSEGV"] },
        ),
        (
            [&["--cpu", "200ms"][..], &sh("while :; do :; done")].concat(),
            Expected { code: 124, stdout: "", stderr: &["TLE"] },
        ),
        (
            vec![&broken],
            Expected { code: 126, stdout: "", stderr: &["error:", "CE: did not compile"] },
        ),
        (
            vec!["--", "/nowhere/to/be/found"],
            Expected { code: 127, stdout: "", stderr: &["/nowhere/to/be/found"] },
        ),
        (vec!["--quiet", "--", "/bin/false"], Expected { code: 1, stdout: "", stderr: &[] }),
        (
            vec!["--cpu", "9h", "--", "/bin/true"],
            Expected { code: 2, stdout: "", stderr: &["limits.cpu_ms"] },
        ),
    ];
    let url = format!("http://{}", server.client().address());
    for (arguments, expected) in &rows {
        let all = [&["run", "--server", &url], &arguments[..]].concat();
        check(&finish(command(&server, &all), ""), &all, expected);
        let all = [&["exec", "submit", "--watch"], &arguments[..]].concat();
        let output = finish(command(&server, &all), "");
        // In addition, standard error contains the id.
        let first = text(&output.stderr).lines().next().unwrap_or_default().to_owned();
        let expected = match expected {
            Expected { stderr: [], .. } => &Expected { stderr: &["cove: ex_"], ..*expected },
            other => other,
        };
        check(&output, &all, expected);
        assert!(expected.code == 2 || first.starts_with("cove: ex_"), "{first}");
    }
}

#[test]
fn run_passes_input_through_as_it_comes() {
    let _guard = beside_others();
    let server = serve();
    let url = format!("http://{}", server.client().address());
    let run = ["run", "--server", &url];
    // More than all buffers on the path hold, in both directions at once.
    let long = "0123456789abcdef".repeat(128 << 10);
    let all = [&run[..], &["--output", "4M", "--", "/bin/cat"]].concat();
    let output = finish_beside(command(&server, &all), &long);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(output.stdout.len(), long.len());
    assert!(text(&output.stdout) == long, "what came back is not what went in");
    // If the program is standard input, its own input is empty.
    let all = [&run[..], &["--lang", "python", "-"]].concat();
    let program = "import sys; print(len(sys.stdin.read()))";
    let expected = Expected { code: 0, stdout: "0\n", stderr: &[] };
    check(&finish(command(&server, &all), program), &all, &expected);
    // Output before the end of the input.
    let all =
        [&run[..], &["--", "/bin/sh", "-c", "read a; echo got $a; read b; echo and $b"]].concat();
    let mut child = command(&server, &all).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for (typed, answer) in [("one\n", "got one"), ("two\n", "and two")] {
        stdin.write_all(typed.as_bytes()).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), answer);
    }
    assert!(child.wait().unwrap().success());
    let all = [&run[..], &["--json", "--", "/bin/sh", "-c", "echo x; exit 5"]].concat();
    let output = finish(command(&server, &all), "");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((&document["stdout"], &document["exit_code"]), (&json!("x\n"), &json!(5)));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(5), String::new()));
}

/// Writes the input in a separate thread, because the output is as long.
fn finish_beside(mut command: Command, stdin: &str) -> Output {
    let mut child = command.spawn().expect("start cove");
    let mut pipe = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(pipe.write_all(stdin.as_bytes())));
        child.wait_with_output().expect("wait for cove")
    })
}

/// Starts a command and waits for the first line of its program.
fn start_until_first(mut command: Command) -> (Child, BufReader<impl Read>) {
    let mut child = command.spawn().expect("start cove");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    (child, stdout)
}

#[test]
fn signals_to_run_cancel_and_signals_to_watch_do_not() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let url = format!("http://{}", client.address());
    for (signal, code, marker) in [("INT", 130, "64101"), ("TERM", 143, "64102")] {
        let script = format!("echo first; sleep {marker}");
        let all = ["run", "--server", &url, "--", "/bin/sh", "-c", &script];
        let (mut child, _stdout) = start_until_first(command(&server, &all));
        process::signal(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        wait_until_gone(marker);
        // The program ends before its end is recorded.
        let listed = client.get("/v1/executions?limit=1").json();
        wait_for_state(&client, &id(&listed["executions"][0]), "cancelled");
    }
    let id = submit(
        &client,
        &json!({
            "argv": ["/bin/sh", "-c", "echo first; sleep 64103"], "limits": {"wall_ms": 100_000},
        }),
    );
    let (mut child, _stdout) = start_until_first(command(&server, &["exec", "watch", &id]));
    process::signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains(&format!("the execution goes on: `cove exec watch {id}`")), "{stderr}");
    assert_eq!(client.get(&format!("/v1/executions/{id}")).json()["state"], "running");
    assert_eq!(done(&server, &["exec", "cancel", &id]).split(' ').next(), Some(&*id));
    wait_until_gone("64103");
    let output = finish(command(&server, &["exec", "watch", &id]), "");
    let expected = Expected { code: 125, stdout: "first\n", stderr: &["cancelled"] };
    // The output of an ended execution is shown for as long as its events are stored.
    check(&output, &id, &expected);
}

#[test]
fn watching_survives_the_death_of_the_server() {
    let _guard = beside_others();
    let mut server = serve();
    done(&server, &["queue", "pause"]);
    let id = submit(&server.client(), &shell("echo first; exit 3"));
    let mut child = command(&server, &["exec", "watch", &id]).spawn().unwrap();
    // The client does not wait for a server that was never reachable.
    until("the answer to the watcher", SOON, || {
        let metrics = server.client().get("/metrics").text();
        let answered = metrics.contains(r#"route="/v1/executions/{id}/events",status="200""#);
        if answered { Ok(()) } else { Err(metrics) }
    });
    server.restart();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let back = stderr.by_ref().map(Result::unwrap).find(|line| line.contains("is back"));
    assert!(back.is_some(), "it did not connect again");
    done(&server, &["queue", "resume"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(3), "first\n"));
    let rest: Vec<_> = stderr.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("RE: exited with code 3")), "{rest:?}");
}

#[test]
fn a_program_that_is_started_again_says_so() {
    let _guard = beside_others();
    let mut server = serve();
    let id = submit(&server.client(), &held("echo first; sleep 64104; echo last"));
    let (child, stdout) = start_until_first(command(&server, &["exec", "watch", &id]));
    server.expect_log("executions were cut off by the server's end");
    server.restart();
    wake("64104");
    let lines: Vec<_> = stdout.lines().map(Result::unwrap).collect();
    assert_eq!(lines, ["first", "last"]);
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    for phrase in ["lost the server", "is back", "started again"] {
        assert!(stderr.contains(phrase), "{stderr:?} lacks {phrase:?}");
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}

#[test]
fn executions_are_submitted_looked_at_and_listed() {
    let _guard = beside_others();
    let server = serve();
    let submit = |more: &[&str]| {
        let all = [&["exec", "submit", "--label", "a b", "--idempotency-key", "k"], more].concat();
        let printed = done(&server, &all);
        let id = printed.strip_suffix('\n').unwrap_or_default().to_owned();
        assert!(is_execution_id(&id), "{printed:?}");
        id
    };
    let program = ["--priority", "-5", "--", "/bin/sh", "-c", "echo out; echo err >&2"];
    let id = submit(&program);
    assert_eq!(submit(&program), id, "the key was used before");
    let json = done(&server, &["exec", "get", "--wait", "--json", &id]);
    let record: Value = serde_json::from_str(&json).expect("one JSON document");
    assert_eq!((&record["state"], &record["priority"]), (&json!("finished"), &json!(-5)));
    let details = done(&server, &["exec", "get", &id]);
    for phrase in [&*id, "OK: exited with code 0", "label       a b", "priority    -5", "finished"]
    {
        assert!(details.contains(phrase), "{details}");
    }
    let output = finish(command(&server, &["exec", "get", "--output", &id]), "");
    check(&output, &id, &Expected { code: 0, stdout: "out\n", stderr: &["err\n"] });
    // Long after its events have expired, the stored output is still shown.
    let output = finish(command(&server, &["exec", "watch", &id]), "");
    check(&output, &id, &Expected { code: 0, stdout: "out\n", stderr: &["err\n"] });

    let second = done(&server, &["exec", "submit", "--wait", "--json", "--", "/bin/true"]);
    let second: Value = serde_json::from_str(&second).expect("one JSON document");
    assert_eq!(second["result"]["verdict"], "OK", "{second}");
    let second = second["id"].as_str().unwrap();
    let lines = |arguments: &[&str]| {
        let printed = done(&server, &[&["exec", "list", "--json"], arguments].concat());
        let ids = printed.lines().map(|line| {
            let record: Value = serde_json::from_str(line).expect("a document on each line");
            record["id"].as_str().unwrap().to_owned()
        });
        ids.collect::<Vec<_>>()
    };
    assert_eq!(lines(&[]), [second, &id]);
    assert_eq!(lines(&["--limit", "1"]), [second]);
    assert_eq!(lines(&["--limit", "1", "--all-pages"]), [second, &id]);
    assert_eq!(lines(&["--label", "a b"]), [&*id]);
    assert_eq!(lines(&["--state", "queued,dead"]), [""; 0]);
    let table = done(&server, &["exec", "list"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.starts_with("id ") && table.ends_with("  a b\n"), "{table}");
}

#[test]
fn test_cases_come_from_a_directory_and_are_judged() {
    let _guard = beside_others();
    let server = serve();
    let scratch = server.scratch();
    for (name, content) in [
        ("1.in", "1\n"),
        ("1.out", "2.0\n"),
        ("2.in", "2\n"),
        ("2.out", "5\n"),
        ("10.in", "3\n"),
        ("10.out", "6\n"),
    ] {
        std::fs::create_dir_all(scratch.path().join("cases")).unwrap();
        scratch.file(&format!("cases/{name}"), content);
    }
    let cases = scratch.path().join("cases").display().to_string();
    let program = scratch.file("double.py", "print(int(input()) * 2)\n").display().to_string();
    let checker = scratch
        .file("check.py", "import sys\nsys.exit(0 if open(sys.argv[2]).read() else 1)\n")
        .display()
        .to_string();
    let submit = |more: &[&str], code: i32| {
        let all = [&["exec", "submit", "--wait", &program, "--tests", &cases], more].concat();
        let output = finish(command(&server, &all), "");
        assert_eq!(output.status.code(), Some(code), "{all:?}: {}", text(&output.stderr));
        done(&server, &["exec", "get", text(&output.stdout).trim()])
    };
    let result = submit(&["--comparison", "float:1e-6"], 1);
    assert!(result.contains("WA") && result.contains("2 of 3 passed"), "{result}");
    let names: Vec<_> =
        result.lines().rev().take(3).map(|it| it.trim().split(' ').next()).collect();
    assert_eq!(names, [Some("10"), Some("2"), Some("1")], "{result}");
    let result = submit(&["--comparison", "exact", "--stop-at-first-failure"], 1);
    assert!(result.contains("0 of 1 passed"), "{result}");
    let result = submit(&["--checker", &checker, "--fresh"], 0);
    assert!(result.contains("3 of 3 passed"), "{result}");
    // The whole request from a file, with an option besides.
    let request = json!({"argv": ["/bin/cat"], "stdin": "whole", "label": "x"}).to_string();
    let request = scratch.file("request.json", request).display().to_string();
    let id = done(&server, &["exec", "submit", "--request", &request, "--label", "y", "--wait"]);
    let record: Value =
        serde_json::from_str(&done(&server, &["exec", "get", "--json", id.trim()])).unwrap();
    assert_eq!((&record["result"]["stdout"], &record["label"]), (&json!("whole"), &json!("y")));
}

#[test]
fn the_queue_is_paused_drained_and_shown() {
    let _guard = beside_others();
    let server = serve();
    let stats = |arguments: &[&str]| -> Value {
        let printed = done(&server, &[&["queue"], arguments, &["--json"]].concat());
        serde_json::from_str(&printed).expect("one JSON document")
    };
    assert_eq!(stats(&["pause"])["paused"], true);
    let first = done(&server, &["exec", "submit", "--", "/bin/true"]);
    let second = done(&server, &["exec", "submit", "--", "/bin/true"]);
    let details = done(&server, &["exec", "get", second.trim()]);
    assert!(details.contains("queued, 1 before it"), "{details}");
    let details = done(&server, &["queue", "stats"]);
    assert!(details.contains("paused") && details.contains("queued     2"), "{details}");
    assert_eq!(
        done(&server, &["exec", "cancel", first.trim()]),
        format!("{} is cancelled\n", first.trim())
    );
    let output = finish(command(&server, &["queue", "drain"]), "y\n");
    let expected = Expected { code: 2, stdout: "", stderr: &["--yes"] };
    check(&output, &"drain", &expected);
    // A terminal is asked for confirmation; script(1) provides one.
    let drain = format!("{COVE} queue drain --data-dir {}", server.data_dir().display());
    let mut terminal = testkit::command("script");
    terminal.args(["--quiet", "--return", "--command", &drain, "/dev/null"]);
    terminal.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
    let output = finish(terminal, "n\n");
    let details = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{details}");
    assert!(details.contains("[y/N]") && details.contains("nothing was cancelled"), "{details}");
    assert_eq!(done(&server, &["queue", "drain", "--yes"]), "1 execution cancelled\n");
    assert_eq!(stats(&["stats", "--all"])["cancelled"], 2);
    assert_eq!(stats(&["retry"])["changed"], 0);
    let output = finish(command(&server, &["queue", "retry", first.trim()]), "");
    check(&output, &"retry", &Expected { code: 2, stdout: "", stderr: &["cove: "] });
    assert_eq!(stats(&["resume"])["paused"], false);
}

#[test]
fn mistakes_say_what_to_do() {
    let _guard = beside_others();
    let server = serve();
    let url = format!("http://{}", server.client().address());
    let https = url.replace("http", "https");
    let scratch = server.scratch();
    let wrong = scratch.file("wrong", "cove_wrong").display().to_string();
    let odd = scratch.file("a.odd", "?").display().to_string();
    let empty = scratch.path().join("nothing").display().to_string();
    let id = "ex_00000000000000000000000000";
    // A server with another protocol, and a port without a listener.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let strange = format!("http://{}", stranger.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = stranger.accept().unwrap();
        let mut head = [0; 4096];
        assert!(socket.read(&mut head).unwrap() > 0);
        socket.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").unwrap();
    });
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let free = format!("http://{free}");
    let rows: Vec<(Vec<&str>, i32, &[&str])> = vec![
        (
            vec!["queue", "stats", "--token-file", &wrong],
            125,
            &["does not know the token", "wrong"],
        ),
        (vec!["queue", "stats", "--server", &url, "--data-dir", &empty], 125, &["COVE_TOKEN"]),
        (vec!["queue", "stats", "--server", &free], 125, &["no server listens", "cove serve"]),
        (vec!["queue", "stats", "--server", &strange], 125, &["404", "Cove server?"]),
        (vec!["queue", "stats", "--server", &https], 125, &["no TLS", "http://"]),
        (vec!["run", "--server", &https, "--", "true"], 125, &["no TLS", "http://"]),
        (vec!["queue", "stats", "--server", "judge"], 2, &["--server", "http://"]),
        (vec!["queue", "stats", "--token-file", "/no/file"], 2, &["--token-file", "/no/file"]),
        (vec!["exec", "get", id], 2, &["there is no "]),
        (vec!["exec", "get", "../queue"], 2, &["not the id"]),
        (vec!["exec", "watch", id], 2, &["there is no "]),
        (vec!["exec", "submit", &odd], 2, &["a.odd", "--lang"]),
        (vec!["exec", "submit", "/no/such.py"], 2, &["/no/such.py"]),
        (vec!["exec", "submit"], 2, &["nothing to run"]),
        (vec!["exec", "submit", "--request", &odd], 2, &["a.odd", "expected value"]),
        (vec!["exec", "submit", "--priority", "101", &odd], 2, &["101"]),
        (vec!["exec", "submit", "--request", &odd, "--cpu", "1s"], 2, &["--cpu"]),
        (vec!["exec", "list", "--state", "done"], 2, &["state: there is no state"]),
        (vec!["run", "--tty", "--", "true"], 2, &["--server"]),
        (vec!["run", "--server", &url, "--tty", "--", "true"], 2, &["--tty needs a terminal"]),
        (vec!["run", "--server", &free, "--", "true"], 125, &["no server listens"]),
    ];
    for (arguments, code, phrase) in rows {
        let mut all = testkit::command(COVE);
        let data_dir = server.data_dir();
        if !arguments.contains(&"--data-dir") {
            all.env("COVE_DATA_DIR", data_dir);
        }
        all.args(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        check(&finish(all, ""), &arguments, &Expected { code, stdout: "", stderr: phrase });
    }
    answering.join().unwrap();
    // Operations that require an operator's token.
    let create = testkit::command(COVE)
        .args(["token", "--data-dir"])
        .arg(server.data_dir())
        .args(["create", "--name", "plain"])
        .output()
        .unwrap();
    let token = text(&create.stdout).trim().to_owned();
    until("the new token to be refused a pause", SOON, || {
        let mut pause = command(&server, &["queue", "pause"]);
        pause.env("COVE_TOKEN", &token).env("COVE_URL", &url);
        let stderr = text(&finish(pause, "").stderr);
        if stderr.contains("operator") { Ok(()) } else { Err(stderr) }
    });
}

#[test]
fn contexts_name_servers_and_their_tokens() {
    let server = serve();
    let scratch = Scratch::new();
    let cove = |arguments: &[&str], stdin: &str| {
        let mut command = testkit::command(COVE);
        command.args(arguments).env("XDG_CONFIG_HOME", scratch.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command, stdin)
    };
    let check_cove = |arguments: &[&str], stdin: &str, code, stdout: &str, stderr: &[&str]| {
        check(&cove(arguments, stdin), &arguments, &Expected { code, stdout, stderr });
    };
    let url = format!("http://{}", server.listener("http"));
    let add = ["context", "add", "kept", "--server", &url, "--token-file", "-"];
    check_cove(&add, server.token(), 0, "added context kept\n", &[]);
    let file = scratch.path().join("cove/contexts.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token_file = server.data_dir().join("token");
    let token_file = token_file.to_str().unwrap();
    let add = ["context", "add", "named", "--server", &url, "--token-file", token_file, "--use"];
    let message = "added context named; it is the current one\n";
    check_cove(&add, "", 0, message, &[]);

    let id = text(&cove(&["exec", "submit", "--", "/bin/true"], "").stdout);
    let id = id.trim();
    assert!(is_execution_id(id), "{id}");
    for context in ["kept", "named"] {
        let got = cove(&["exec", "get", "--wait", "--json", id, "--server", context], "");
        let record: Value = serde_json::from_slice(&got.stdout).expect(context);
        assert_eq!(record["id"], id, "{context}");
    }
    for arguments in [&["context", "list"][..], &["context", "show", "kept", "--json"]] {
        let output = text(&cove(arguments, "").stdout);
        assert!(output.contains("kept") && !output.contains(server.token()), "{output}");
    }

    let unknown = "unknown context \"other\": there are kept, named";
    check_cove(&["exec", "list", "--server", "other"], "", 2, "", &[unknown]);
    check_cove(&["context", "use", "other"], "", 2, "", &[unknown]);
    check_cove(&["context", "add", "a b", "--server", &url], "", 2, "", &["a name has 1 to 64"]);
    check_cove(&["context", "add", "a", "--server", "nowhere"], "", 2, "", &["--server: "]);
    check_cove(&["context", "remove", "named"], "", 0, "removed context named\n", &[]);
    check_cove(&["context", "show"], "", 2, "", &["no context is the current one"]);
    check_cove(&["context", "use", "kept"], "", 0, "current context is kept\n", &[]);
    let message = "no context is the current one\n";
    check_cove(&["context", "use", "--none"], "", 0, message, &[]);
}

/// Starts a proxy that terminates TLS, like those in front of remote servers. It ends with the
/// runtime.
fn tls_proxy(server: &Server, certificate: &Certificate) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let chain = CertificateDer::pem_file_iter(&certificate.certificate).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let behind = server.client().address();
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust the certificate disconnects, which the test expects.
                let Ok(mut outside) = acceptor.accept(socket).await else { return };
                let mut inside = tokio::net::TcpStream::connect(behind).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await);
            });
        }
    });
    (runtime, address)
}

#[test]
fn tls_is_spoken_with_those_who_are_trusted() {
    let _guard = beside_others();
    let server = serve();
    let certificate = Certificate::new(server.scratch());
    let (_runtime, address) = tls_proxy(&server, &certificate);
    let url = format!("https://localhost:{}", address.port());
    let run = ["run", "--server", &url, "--", "/bin/sh", "-c", "cat; exit 4"];
    let watch = ["exec", "submit", "--server", &url, "--watch", "--", "/bin/echo", "watched"];
    for (arguments, code, stdout) in [(&run[..], 4, "typed"), (&watch[..], 0, "watched\n")] {
        let mut trusting = command(&server, arguments);
        trusting.env("SSL_CERT_FILE", &certificate.certificate);
        let output = finish(trusting, "typed");
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), &*text(&output.stdout)),
            (Some(code), stdout),
            "{stderr}"
        );
        let output = finish(command(&server, arguments), "typed");
        check(&output, &arguments, &Expected { code: 125, stdout: "", stderr: &["no TLS"] });
    }
}

#[test]
fn a_terminal_is_given_and_given_back() {
    let _guard = beside_others();
    let server = serve();
    let url = format!("http://{}", server.client().address());
    // The initial size, a later size, a typed line; and the program's own end, or a signal.
    for (signal, code) in [(None, 6), (Some("TERM"), 143)] {
        let terminal = Terminal::start(&server, &url);
        let mut screen = terminal.screen;
        let mut stdin = terminal.stdin;
        let mut child = terminal.child;
        let mut read_until = |phrase: &str| {
            let mut line = String::new();
            while !line.contains(phrase) {
                line.clear();
                assert!(screen.read_line(&mut line).unwrap() > 0, "{phrase} was not shown");
            }
        };
        read_until("33 101");
        let name = std::fs::read_to_string(server.scratch().path().join("tty")).unwrap();
        let resize = ["-F", name.trim(), "rows", "40", "cols", "90"];
        assert!(testkit::command("stty").args(resize).status().unwrap().success());
        read_until("resized");
        match signal {
            None => stdin.write_all(b"typed\r").unwrap(),
            Some(signal) => {
                let marker = format!("--server\0{url}");
                let pids = process::with_marker(&marker);
                assert_eq!(pids.len(), 1, "{pids:?}");
                process::signal(pids[0], signal);
            }
        }
        let mut rest = String::new();
        screen.read_to_string(&mut rest).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
        assert!(rest.contains(&format!("code {code}")), "{rest:?}");
        assert_eq!(rest.contains("got typed"), signal.is_none(), "{rest:?}");
        let read =
            |name: &str| std::fs::read_to_string(server.scratch().path().join(name)).unwrap();
        assert_eq!(read("before"), read("after"));
    }
}

/// `cove run --tty` on a terminal of script(1).
struct Terminal {
    child: Child,
    stdin: std::process::ChildStdin,
    screen: BufReader<std::process::ChildStdout>,
}

impl Terminal {
    fn start(server: &Server, url: &str) -> Terminal {
        let inner = "test -t 0 && test -t 1 && stty size\n\
                     until [ \"$(stty size)\" = '40 90' ]; do sleep 0.05; done; echo resized\n\
                     read line; echo got $line; exit 6";
        let program = server.scratch().file("inner.sh", inner);
        let (directory, program) = (server.scratch().path().display(), program.display());
        let script = format!(
            "cd {directory}; tty > tty; stty rows 33 cols 101; stty -g > before; \
             {COVE} run --server {url} --data-dir {0} --tty {program}; echo code $?; stty -g > after",
            server.data_dir().display()
        );
        let mut terminal = testkit::command("script");
        terminal.args(["--quiet", "--command", &script, "/dev/null"]).env("SHELL", "/bin/sh");
        terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = terminal.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let screen = BufReader::new(child.stdout.take().unwrap());
        Terminal { child, stdin, screen }
    }
}
