//! `cove worker anthropic` with real sandboxes, at a control plane that uses the published types.
//!
//! The first two tests run the same session with Anthropic's own worker and with Cove's: the
//! control plane speaks the protocol, and Cove's tools behave like the published ones.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::{Scratch, Server, process, until};

use crate::managed_plane::{ENVIRONMENT, KEY, ManagedPlane, PlaneOutage, text_of};
use crate::sessions_support::{SOON, Sessions, serve_sessions};
use crate::shared::{COMPAT, interpreter};
use crate::support::{COVE, beside_others, wait_for_sleep, wait_until_gone};

/// Running worker process, killed on drop.
struct WorkerProcess {
    child: Child,
    scratch: Scratch,
}

impl WorkerProcess {
    fn start(command: &mut Command) -> WorkerProcess {
        let scratch = Scratch::new();
        let log = File::create(scratch.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        WorkerProcess { child: command.spawn().unwrap(), scratch }
    }

    /// Starts Cove's worker for a server, with the environment's key in its process environment.
    fn cove(server: &Server, plane: &ManagedPlane, more: &[&str]) -> WorkerProcess {
        WorkerProcess::start(
            testkit::command(COVE)
                .args(["worker", "anthropic", "--json", "--max-idle", "1s"])
                .args(["--environment", ENVIRONMENT, "--control-plane", &plane.url()])
                .arg("--data-dir")
                .arg(server.data_dir())
                .args(more)
                .env("ANTHROPIC_ENVIRONMENT_KEY", KEY),
        )
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    /// Waits for an event in the log.
    fn wait_for(&self, event: &str) -> Value {
        until(&format!("the event {event}"), SOON, || {
            let log = self.log();
            let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.into_iter().find(|it| it["event"] == event).ok_or(log)
        })
    }

    fn signal(&self, name: &str) {
        process::signal(self.child.id(), name);
    }

    fn wait(&mut self) -> i32 {
        until("the end of the worker", SOON, || match self.child.try_wait().unwrap() {
            Some(status) => Ok(status.code().unwrap_or(-1)),
            None => Err(self.log()),
        })
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a test that fails shows what its worker said")]
            {
                eprintln!("the worker's log:\n{}", self.log());
            }
        }
    }
}

/// Runs a session of two turns that uses all six tools. Relative paths refer to `root`.
fn use_all_tools(plane: &ManagedPlane, session: &str, root: &str) {
    let ok = |tool: &str, input: Value| plane.ok(session, tool, input);
    let fails = |tool: &str, input: Value| plane.fails(session, tool, input);
    // Writes create directories; reads may be partial.
    assert_eq!(
        ok("write", json!({ "file_path": "src/a.txt", "content": "one\ntwo\nthree\n" })),
        "wrote 14 bytes to src/a.txt"
    );
    let whole = json!({ "file_path": "src/a.txt" });
    assert_eq!(ok("read", whole), "one\ntwo\nthree\n");
    for (range, expected) in [
        (json!([2, 2]), "two"),
        (json!([1, 2]), "one\ntwo"),
        (json!([2, -1]), "two\nthree\n"),
        (json!([3, 0]), "three\n"),
        (json!([9, 10]), "(no output)"),
    ] {
        let input = json!({ "file_path": format!("{root}/src/a.txt"), "view_range": range });
        assert_eq!(ok("read", input), expected, "{range}");
    }
    // An edit must match exactly once, unless it replaces all matches.
    let edit = |old: &str, new: &str, all: bool| {
        json!({
            "file_path": "src/a.txt", "old_string": old, "new_string": new, "replace_all": all,
        })
    };
    assert_eq!(ok("edit", edit("two", "2", false)), "edited src/a.txt (1 replacement(s))");
    assert_eq!(
        fails("edit", edit("e", "E", false)),
        "edit: old_string appears 3 times in src/a.txt (must be unique)"
    );
    assert_eq!(ok("edit", edit("e", "E", true)), "edited src/a.txt (3 replacement(s))");
    assert_eq!(fails("edit", edit("none", "x", false)), "edit: old_string not found in src/a.txt");
    // The shell keeps its directory and variables, and can be restarted.
    assert_eq!(ok("bash", json!({ "command": "cd src && X=7 && cat a.txt" })), "onE\n2\nthrEE");
    assert_eq!(ok("bash", json!({ "command": "pwd; echo $X" })), format!("{root}/src\n7"));
    assert_eq!(fails("bash", json!({ "command": "echo bad >&2; false" })), "bad");
    assert_eq!(ok("bash", json!({ "command": "cat; echo end" })), "end");
    assert_eq!(ok("bash", json!({ "restart": true })), "bash session restarted");
    assert_eq!(ok("bash", json!({ "command": "pwd; echo \"[$X]\"" })), format!("{root}\n[]"));
    assert!(
        fails("bash", json!({ "command": "sleep 60", "timeout_ms": 300 })).contains("timed out")
    );
    assert!(fails("bash", json!({ "command": "true" })).contains("restart required"));
    ok("bash", json!({ "restart": true }));
    // Searches return absolute paths, the newest file first.
    ok("bash", json!({ "command": "touch -d @1000 src/old.txt; touch -d @2000 new.txt" }));
    let glob = ok("glob", json!({ "pattern": "**/*.txt" }));
    let expected = ["src/a.txt", "new.txt", "src/old.txt"].map(|name| format!("{root}/{name}"));
    assert_eq!(glob.lines().collect::<Vec<_>>(), expected);
    assert_eq!(ok("glob", json!({ "pattern": "*.none" })), "no matches");
    assert!(fails("glob", json!({ "pattern": "/etc/*" })).contains("absolute pattern"));
    assert!(fails("glob", json!({ "pattern": "../*" })).contains("'..'"));
    let hits = ok("grep", json!({ "pattern": "thr[A-Z]{2}" }));
    assert_eq!(hits, format!("{root}/src/a.txt:3:thrEE"));
    assert_eq!(ok("grep", json!({ "pattern": "absent" })), "no matches");
    fails("grep", json!({ "pattern": "(" }));
    // A file that is not text is returned as an image, or is an error.
    ok("bash", json!({ "command": "printf '\\377\\376' > binary; printf PNG > picture.png" }));
    assert!(fails("read", json!({ "file_path": "binary" })).contains("not valid UTF-8"));
    let call = plane.begin(session, "read", json!({ "file_path": "picture.png" }));
    let picture = plane.result(&call);
    let source = json!({
        "type": "base64", "media_type": "image/png", "data": BASE64.encode("PNG"),
    });
    assert_eq!(picture["content"], json!([{ "type": "image", "source": source }]));
    fails("read", json!({ "file_path": "absent" }));
    fails("bash", json!({}));
    // A second turn finds the files of the first.
    plane.end_turn(session);
    plane.say(session, "and again");
    assert_eq!(ok("bash", json!({ "command": "cat src/a.txt" })), "onE\n2\nthrEE");
    plane.end_turn(session);
    plane.wait_for_work(session, "stopped");
}

#[test]
fn the_plane_of_the_tests_is_one_that_anthropics_own_worker_works_for() {
    let _guard = beside_others();
    let (plane, scratch) = (ManagedPlane::start(), Scratch::new());
    plane.session("sesn_foreign", Some("token-of-the-session"));
    let script = Path::new(COMPAT).join("managed_agents/worker.py");
    let mut command = Command::new(interpreter());
    command.arg(script).args([&plane.url(), ENVIRONMENT, KEY]).arg(scratch.path());
    let _worker = WorkerProcess::start(&mut command);
    use_all_tools(&plane, "sesn_foreign", scratch.path().to_str().unwrap());
}

#[test]
fn a_session_uses_all_six_tools_over_two_turns() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_own", Some("token-of-the-session"));
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    use_all_tools(&plane, "sesn_own", "/workspace");
    // Requests about the session used its own token, and all others the environment's key.
    let of = |part: &str, credential: &str| {
        let requests = plane.requests(part);
        assert!(!requests.is_empty(), "{part}");
        let expected = format!("Bearer {credential}");
        assert!(requests.iter().all(|(_, it)| *it == expected), "{requests:?}");
    };
    of("/v1/sessions/", "token-of-the-session");
    of("/heartbeat", "token-of-the-session");
    of("/stop", "token-of-the-session");
    of("/poll", KEY);
    of("/ack", KEY);
    assert!(!worker.log().contains(KEY) && !worker.log().contains("token-of-the-session"));
}

/// Returns the only Cove session of a Managed Agents session.
fn cove_session(server: &Server, session: &str) -> Value {
    let path = format!("/v1/sessions?metadata.anthropic_session={session}");
    let found = server.client().get(&path).json()["sessions"].as_array().unwrap().clone();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn files_are_kept_over_a_pause_and_a_restart_of_the_worker() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start_with_ttl(3));
    plane.session("sesn_kept", None);
    let first = WorkerProcess::cove(&server, &plane, &[]);
    plane.ok("sesn_kept", "write", json!({ "file_path": "kept.txt", "content": "kept" }));
    plane.end_turn("sesn_kept");
    plane.wait_for_work("sesn_kept", "stopped");
    let before = cove_session(&server, "sesn_kept");
    assert_eq!(before["state"], "paused", "{before}");
    drop(first);
    // The second worker is killed in the middle of a turn, and cannot report it.
    let mut second = WorkerProcess::cove(&server, &plane, &[]);
    plane.say("sesn_kept", "go on");
    assert_eq!(plane.ok("sesn_kept", "read", json!({ "file_path": "kept.txt" })), "kept");
    second.child.kill().unwrap();
    second.wait();
    let call = plane.begin("sesn_kept", "read", json!({ "file_path": "kept.txt" }));
    let _third = WorkerProcess::cove(&server, &plane, &[]);
    assert_eq!(text_of(&plane.result(&call)), (false, "kept".to_owned()));
    plane.end_turn("sesn_kept");
    plane.wait_for_work("sesn_kept", "stopped");
    assert_eq!(cove_session(&server, "sesn_kept")["id"], before["id"]);
    assert_eq!(plane.works("sesn_kept").len(), 2, "the killed worker's item is gone on with");
}

#[test]
fn two_workers_share_a_queue_and_do_nothing_twice() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    let sessions: Vec<String> = (0..6).map(|number| format!("sesn_{number}")).collect();
    let mut calls = Vec::new();
    for session in &sessions {
        plane.session(session, None);
        let command = json!({ "command": "echo run >> runs; cat runs" });
        calls.push(plane.begin(session, "bash", command));
    }
    let workers =
        ["2", "2"].map(|count| WorkerProcess::cove(&server, &plane, &["--concurrency", count]));
    for (session, call) in sessions.iter().zip(&calls) {
        assert_eq!(text_of(&plane.result(call)), (false, "run".to_owned()), "{session}");
        plane.end_turn(session);
    }
    for (session, call) in sessions.iter().zip(&calls) {
        let work = plane.wait_for_work(session, "stopped");
        assert_eq!((work.claims.len(), plane.results(call).len()), (1, 1), "{work:?}");
        cove_session(&server, session);
    }
    for worker in &workers {
        assert!(!worker.log().contains("result_refused"));
    }
}

#[test]
fn a_control_plane_that_goes_away_gets_each_result_once() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_away", None);
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    for outage in [PlaneOutage::Gone, PlaneOutage::Overloaded] {
        let marker = format!("88{}", process_number());
        let command = format!("echo run >> runs; sleep {marker}; cat runs; rm runs");
        let call = plane.begin("sesn_away", "bash", json!({ "command": command }));
        let sleep = wait_for_sleep(&marker);
        plane.set_outage(Some(outage));
        process::end(sleep);
        // The result exists, but the control plane does not accept it.
        until("an attempt to send the result", SOON, || {
            let log = worker.log();
            let is_tried = log
                .lines()
                .any(|line| line.contains("\"what\":\"result\"") && line.contains(&call));
            if is_tried { Ok(()) } else { Err(log) }
        });
        plane.set_outage(None);
        let (is_error, text) = text_of(&plane.result(&call));
        assert!(text.contains("run") && !text.contains("run\nrun"), "{is_error} {text}");
        assert_eq!(plane.results(&call).len(), 1);
    }
    plane.end_turn("sesn_away");
    let work = plane.wait_for_work("sesn_away", "stopped");
    assert_eq!(work.claims.len(), 1, "{work:?}");
}

/// Returns a number that makes the arguments of a program unique.
fn process_number() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn a_cove_server_that_restarts_is_waited_for() {
    let _guard = beside_others();
    let (mut server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_cove", None);
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    plane.ok("sesn_cove", "write", json!({ "file_path": "a", "content": "kept" }));
    // A running command is lost with its server, and the model receives an error.
    let marker = format!("87{}", process_number());
    let running = plane.begin("sesn_cove", "bash", json!({ "command": format!("sleep {marker}") }));
    wait_for_sleep(&marker);
    server.signal("KILL");
    server.wait(SOON);
    let (is_error, text) = text_of(&plane.result(&running));
    assert!(is_error && text.contains("restart required"), "{text}");
    let call = plane.begin("sesn_cove", "read", json!({ "file_path": "a" }));
    worker.wait_for("retry");
    server.restart();
    assert_eq!(text_of(&plane.result(&call)), (false, "kept".to_owned()));
    plane.ok("sesn_cove", "bash", json!({ "restart": true }));
    assert_eq!(plane.ok("sesn_cove", "bash", json!({ "command": "cat a" })), "kept");
}

#[test]
fn a_command_that_runs_ends_with_an_interrupt_a_stop_and_a_lost_lease() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start_with_ttl(2));
    plane.session("sesn_cut", None);
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    let begin = || {
        let marker = format!("86{}", process_number());
        // The command ignores signals that ask it to end.
        let command = format!("trap '' HUP TERM INT; sleep {marker}; sleep {marker}");
        let call = plane.begin("sesn_cut", "bash", json!({ "command": command }));
        wait_for_sleep(&marker);
        (marker, call)
    };
    let (marker, call) = begin();
    plane.emit("sesn_cut", json!({ "type": "user.interrupt" }));
    wait_until_gone(&marker);
    let (is_error, text) = text_of(&plane.result(&call));
    assert!(is_error && text.contains("interrupted"), "{text}");
    plane.ok("sesn_cut", "bash", json!({ "restart": true }));

    let (marker, call) = begin();
    plane.stop_work("sesn_cut");
    wait_until_gone(&marker);
    plane.wait_for_work("sesn_cut", "stopped");
    assert_eq!(plane.results(&call), [Value::Null; 0]);

    // The call is still open: the worker runs it again, and loses its lease.
    plane.say("sesn_cut", "go on");
    wait_for_sleep(&marker);
    plane.steal("sesn_cut");
    worker.wait_for("lease_lost");
    wait_until_gone(&marker);
    assert_eq!(plane.results(&call), [Value::Null; 0]);
    // The worker does not stop an item that another worker has claimed.
    assert_eq!(plane.works("sesn_cut").last().unwrap().state, "active");
}

#[test]
fn a_worker_that_is_stopped_finishes_its_call_and_returns_the_rest() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_drain", None);
    let mut first = WorkerProcess::cove(&server, &plane, &[]);
    let marker = format!("85{}", process_number());
    let running = plane.begin(
        "sesn_drain",
        "bash",
        json!({ "command": format!("sleep {marker}; echo finished >> runs; cat runs") }),
    );
    let sleep = wait_for_sleep(&marker);
    let waiting = plane.begin("sesn_drain", "bash", json!({ "command": "cat runs; echo other" }));
    first.signal("TERM");
    first.wait_for("stopping");
    process::end(sleep);
    assert!(text_of(&plane.result(&running)).1.contains("finished"));
    assert_eq!(first.wait(), 0);
    assert_eq!(plane.results(&waiting), [Value::Null; 0]);
    // Long before the lease would expire, another worker continues.
    let mut second = WorkerProcess::cove(&server, &plane, &[]);
    assert_eq!(text_of(&plane.result(&waiting)), (false, "finished\nother".to_owned()));
    // After a second signal, no program is left.
    let marker = format!("84{}", process_number());
    plane.begin("sesn_drain", "bash", json!({ "command": format!("sleep {marker}") }));
    wait_for_sleep(&marker);
    second.signal("TERM");
    second.wait_for("stopping");
    second.signal("TERM");
    assert_eq!(second.wait(), 0);
    wait_until_gone(&marker);
}

#[test]
fn nothing_runs_without_permission_and_tools_of_others_are_left_alone() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_ask", None);
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    let ask = |command: &str, permission: &str| {
        plane.begin_with("sesn_ask", "bash", json!({ "command": command }), permission)
    };
    let [denied, refused, approved] =
        [("touch denied", "deny"), ("touch refused", "ask"), ("touch asked", "ask")]
            .map(|(command, permission)| ask(command, permission));
    let custom = json!({ "type": "agent.custom_tool_use", "name": "bash", "input": {} });
    plane.emit("sesn_ask", custom);
    let foreign = plane.begin("sesn_ask", "web_search", json!({ "query": "x" }));
    assert_eq!(plane.ok("sesn_ask", "bash", json!({ "command": "ls" })), "(no output)");
    let verdict = |call: &str, result: &str| json!({ "type": "user.tool_confirmation", "tool_use_id": call, "result": result });
    plane.emit("sesn_ask", verdict(&refused, "deny"));
    plane.emit("sesn_ask", verdict(&denied, "allow"));
    plane.emit("sesn_ask", verdict(&approved, "allow"));
    plane.result(&approved);
    assert_eq!(plane.ok("sesn_ask", "bash", json!({ "command": "ls" })), "asked");
    for call in [&denied, &refused, &foreign] {
        assert_eq!(plane.results(call), [Value::Null; 0]);
    }
    // A session whose memory stores cannot be mounted is not run without them.
    let memories = json!([{ "type": "memory_store", "id": "mem_1" }]);
    plane.session_with("sesn_memory", None, memories);
    plane.wait_for_work("sesn_memory", "stopped");
    assert!(worker.wait_for("failed").to_string().contains("memory stores"));
    // The Cove session of a deleted session is ended, and its files are deleted.
    let session = cove_session(&server, "sesn_ask")["id"].as_str().unwrap().to_owned();
    plane.delete("sesn_ask");
    Sessions::from(&server).wait_for(&session, "ended", "cold");
}

#[test]
fn hostile_inputs_are_errors_of_the_tool() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_hostile", None);
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    let ok = |tool: &str, input: Value| plane.ok("sesn_hostile", tool, input);
    let prepare = "ln -s /proc/1/environ link; ln -s loop loop; mkfifo pipe; mkdir dir; \
                   head -c 300000 /dev/zero | tr '\\0' x > long; \
                   head -c 9000000 /dev/zero > big.png; \
                   printf 'echo run' > run.sh; chmod 755 run.sh; printf 'a\\n%.0s' $(seq 9) > nine";
    ok("bash", json!({ "command": prepare }));
    for (tool, input) in [
        ("read", json!({ "file_path": "link" })),
        ("read", json!({ "file_path": "loop" })),
        ("read", json!({ "file_path": "pipe" })),
        ("read", json!({ "file_path": "dir" })),
        ("read", json!({ "file_path": "/dev/zero" })),
        ("read", json!({ "file_path": "a\0b" })),
        ("read", json!({ "file_path": "" })),
        ("read", json!({ "file_path": "x".repeat(10_000) })),
        ("read", json!({ "file_path": "é".repeat(2_000) })),
        ("glob", json!({ "pattern": "*", "path": "é".repeat(2_000) })),
        ("read", json!({ "file_path": "../../../../etc/shadow" })),
        ("read", json!({ "file_path": "long" })),
        ("read", json!({ "file_path": "long", "view_range": [1, 1] })),
        ("read", json!({ "file_path": "big.png" })),
        ("read", json!({ "file_path": "nine", "view_range": [1] })),
        ("read", json!({ "file_path": 7 })),
        ("read", json!({})),
        ("write", json!({ "file_path": "/etc/passwd", "content": "x" })),
        ("write", json!({ "file_path": "dir", "content": "x" })),
        ("write", json!({ "file_path": "nine/below", "content": "x" })),
        ("edit", json!({ "file_path": "long", "old_string": "x", "new_string": "y" })),
        ("edit", json!({ "file_path": "nine", "old_string": "", "new_string": "y" })),
        ("glob", json!({ "pattern": "[" })),
        ("glob", json!({ "pattern": "{a,b}".repeat(30) })),
        ("glob", json!({ "pattern": "*", "path": "absent" })),
        ("grep", json!({ "pattern": "a\0" })),
        ("grep", json!({ "pattern": "x", "path": "absent; touch hacked" })),
        ("bash", json!({ "command": "a\0b" })),
        ("bash", json!({ "command": "x".repeat(300_000) })),
        ("bash", json!({ "command": ["ls"] })),
        ("bash", json!({ "command": "sleep 9", "timeout_ms": -1 })),
    ] {
        let input_text = input.to_string();
        let text = plane.fails("sesn_hostile", tool, input);
        assert!(text.starts_with(&format!("{tool}: ")), "{tool} {input_text:.100}: {text:.300}");
    }
    // Patterns that resemble options or commands are treated as patterns.
    for pattern in
        ["-f/etc/passwd", "--help", "$(touch hacked)", "`touch hacked`", "'; touch hacked;'"]
    {
        assert_eq!(ok("grep", json!({ "pattern": pattern })), "no matches", "{pattern}");
    }
    // Long output is truncated: the end of a command's output is kept, the beginning of a search's.
    let output = ok("bash", json!({ "command": "seq 1 2000000" }));
    assert!(output.starts_with("[output truncated]\n") && output.ends_with("\n2000000"));
    assert!(output.len() < 110_000, "{}", output.len());
    let output = ok("bash", json!({ "command": "head -c 200000 /dev/urandom" }));
    assert!(output.starts_with("[output truncated]"));
    ok("bash", json!({ "command": "seq 1 200000 > numbers" }));
    let output = ok("grep", json!({ "pattern": "\\d" , "path": "numbers" }));
    assert!(output.starts_with("/workspace/numbers:1:1\n") && output.contains("[output truncated"));
    ok("bash", json!({ "command": "mkdir many; cd many; touch $(seq 1 300)" }));
    let output = ok("glob", json!({ "pattern": "many/*" }));
    assert!(
        output.lines().count() == 201 && output.ends_with("[100 more; use a narrower pattern]")
    );
    // Input that would break a naively driven shell leaves it working.
    for command in ["echo 'open", "cat <<EOF", "if true; then", "exec 0<&-; read x", "((", "}"] {
        plane.call("sesn_hostile", "bash", json!({ "command": command }));
        assert_eq!(ok("bash", json!({ "command": "echo alive" })), "alive", "{command}");
    }
    plane.fails("sesn_hostile", "bash", json!({ "command": "exit 3" }));
    ok("bash", json!({ "restart": true }));
    // An edit preserves the execute permission.
    ok("edit", json!({ "file_path": "run.sh", "old_string": "run", "new_string": "ran" }));
    assert_eq!(ok("bash", json!({ "command": "./run.sh; ls hacked 2>/dev/null; true" })), "ran");
    assert!(!worker.log().contains("result_refused"), "{}", worker.log());
}

#[test]
fn the_key_is_nowhere_in_the_sandbox() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    plane.session("sesn_key", Some("token-of-the-session"));
    let worker = WorkerProcess::cove(&server, &plane, &[]);
    // The secrets are assembled in the sandbox, so that the search does not find its own command.
    let command = "set +e; a=KEY-OF-THE; b=ENVIRONMENT; c=token-of; d=the-session; \
        { env; cat /proc/*/environ /proc/*/cmdline; \
          grep -rhs -e \"$a-$b\" -e \"$c-$d\" /workspace /home /tmp /etc /run /var /dev/shm; } \
        2>/dev/null | tr '\\0' '\\n' > /tmp/seen; \
        wc -l < /tmp/seen; grep -c -e \"$a-$b\" -e \"$c-$d\" -e ANTHROPIC /tmp/seen; true";
    let text = plane.ok("sesn_key", "bash", json!({ "command": command }));
    let numbers: Vec<u64> = text.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert!(numbers[0] > 10 && numbers[1] == 0, "{text}");
    // The server does not store the key either: neither in its log, nor in a file of its data
    // directory.
    let data = server.data_dir();
    let found = Command::new("grep").args(["-rlsF", KEY]).arg(&data).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    assert!(!server.log().contains(KEY) && !worker.log().contains(KEY));
}

#[test]
fn a_worker_that_cannot_work_says_so() {
    let _guard = beside_others();
    let (server, plane) = (serve_sessions(""), ManagedPlane::start());
    let scratch = Scratch::new();
    let key = scratch.file("key", format!("{KEY}\n"));
    let wrong = scratch.file("wrong", "another key");
    let (key, wrong) = (key.to_str().unwrap(), wrong.to_str().unwrap());
    let url = plane.url();
    let data_dir = server.data_dir();
    let run = |arguments: &[&str]| {
        let mut command = testkit::command(COVE);
        command.args(["worker", "anthropic", "--data-dir"]).arg(&data_dir).args(arguments);
        for name in ["ANTHROPIC_ENVIRONMENT_KEY", "ANTHROPIC_ENVIRONMENT_ID", "ANTHROPIC_BASE_URL"]
        {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let output_bytes = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(output_bytes).unwrap())
    };
    let plain = ["--environment", ENVIRONMENT, "--control-plane", &url];
    for (more, code, says) in [
        (&["--environment-key-file", key, "--once"][..], 0, "stopped"),
        (&["--environment-key-file", wrong], 125, "authentication_error"),
        (
            &["--environment-key-file", key, "--api-version", "managed-agents-2031-01-01"],
            125,
            "401",
        ),
        (&["--environment-key-file", "/absent"], 2, "--environment-key-file"),
        (&[], 2, "ANTHROPIC_ENVIRONMENT_KEY"),
        (&["--environment-key-file", key, "--concurrency", "0"], 2, "1 to 256"),
        (&["--environment-key-file", key, "--agent", "absent"], 2, "absent"),
        (&["--environment-key-file", key, "--server", "http://127.0.0.1:1"], 125, "127.0.0.1:1"),
    ] {
        let (ended, output_bytes) = run(&[&plain[..], more].concat());
        assert!(ended == code && output_bytes.contains(says), "{more:?}: {ended} {output_bytes}");
        assert!(
            !output_bytes.contains(KEY) && !output_bytes.contains("another key"),
            "{output_bytes}"
        );
    }
    let (ended, output_bytes) = run(&["--environment-key-file", key]);
    assert!(ended == 2 && output_bytes.contains("--environment"), "{ended} {output_bytes}");
    // A token without the scope is rejected before any item is claimed.
    let stranger = server
        .command("token")
        .args(["create", "--name", "x", "--scope", "executions"])
        .output()
        .unwrap();
    let token = scratch.file("token", stranger.stdout);
    let with_token = ["--environment-key-file", key, "--token-file", token.to_str().unwrap()];
    // The server reads a new token within a second.
    until("a refusal of the scope", SOON, || {
        let (ended, output_bytes) = run(&[&plain[..], &with_token].concat());
        assert_eq!(ended, 125, "{output_bytes}");
        if output_bytes.contains("scope") { Ok(()) } else { Err(output_bytes) }
    });
    assert_eq!(plane.works("sesn_absent").len(), 0);
}
