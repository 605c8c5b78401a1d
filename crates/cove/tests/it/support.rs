//! Helpers shared by the files of this binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::{self, Process};
use testkit::{Client, Server, until};

pub(crate) use crate::shared::{COVE, LANGUAGES};

/// Tests that compare the host before and after run alone; all others run concurrently.
static HOST: RwLock<()> = RwLock::new(());

/// Takes the lock for a test that inspects the whole host.
pub(crate) fn alone_on_host() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock for any other test.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    HOST.read().unwrap_or_else(PoisonError::into_inner)
}

/// Time limit for events that happen at once, on a machine that may be busy; it only serves to fail
/// a test that would never end.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Time limit for preparing sandboxes and the interpreters in them.
const SETTLED: Duration = Duration::from_secs(60);

/// Starts a server with default settings.
pub(crate) fn serve() -> Server {
    serve_with("")
}

/// Starts a server with these lines in the `[executions]` table of its configuration.
pub(crate) fn serve_with(executions: &str) -> Server {
    let config = format!("[executions]\nlanguages = {LANGUAGES:?}\n{executions}\n");
    Server::start_with(COVE, &[], Some(&config))
}

/// Returns an execution request for a shell command.
pub(crate) fn shell(script: &str) -> Value {
    json!({"argv": ["/bin/sh", "-c", script]})
}

/// Returns such a request for a script that a test blocks with a `sleep` for any time: see
/// [`wake`].
pub(crate) fn held(script: &str) -> Value {
    json!({"argv": ["/bin/sh", "-c", script], "limits": {"wall_ms": 100_000}})
}

/// Runs a request that must be accepted, and returns the response.
pub(crate) fn run(client: &Client, request: &Value) -> Value {
    let response = client.run(request);
    assert_eq!(response.status, 200, "{request}: {}", response.text());
    response.json()
}

/// Uses all places of a server concurrently, so that resources created on demand exist.
pub(crate) fn warm_up(client: &Client) {
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(run(client, &shell("sleep 0.1"))["verdict"], "OK"));
        }
    });
}

/// Waits until no program runs and all sandboxes are prepared.
pub(crate) fn settle(client: &Client) {
    let client = client.anonymous();
    until("every sandbox to be prepared", SETTLED, || {
        let metrics = client.get("/metrics").text();
        let is_none = |state: &&str| metrics.contains(&format!("\ncove_sandboxes_{state} 0\n"));
        if ["preparing", "leased"].iter().all(is_none) { Ok(()) } else { Err(metrics) }
    });
}

/// Returns whether `text` looks like an execution's id.
pub(crate) fn is_execution_id(text: &str) -> bool {
    let crockford = |c: char| {
        c.is_ascii_digit() || (c.is_ascii_alphabetic() && !"ILOU".contains(c.to_ascii_uppercase()))
    };
    text.strip_prefix("ex_").is_some_and(|rest| rest.len() == 26 && rest.chars().all(crockford))
}

/// Waits until a process with `marker` in its command line exists.
pub(crate) fn wait_for_program(marker: &str) {
    until(&format!("the program {marker}"), SOON, || {
        if process::with_marker(marker).is_empty() { Err("not there".to_owned()) } else { Ok(()) }
    });
}

/// Waits until no process has `marker` in its command line.
pub(crate) fn wait_until_gone(marker: &str) {
    until(&format!("the end of {marker}"), SOON, || {
        let left = process::with_marker(marker);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Waits for a `sleep` of this many seconds, and returns its process.
pub(crate) fn wait_for_sleep(seconds: &str) -> Process {
    until(&format!("a sleep of {seconds} s"), SOON, || {
        let found = process::named("sleep", seconds).into_iter().next();
        found.ok_or_else(|| format!("{:?}", process::with_marker(seconds)))
    })
}

/// Ends a `sleep` of this many seconds as soon as it runs, so that the waiting script continues.
/// The test thus determines how long a program runs, independently of the clock.
pub(crate) fn wake(seconds: &str) {
    let sleep = wait_for_sleep(seconds);
    process::end(sleep);
    until(&format!("the end of a sleep of {seconds} s"), SOON, || {
        if sleep.is_alive() { Err(format!("{sleep:?}")) } else { Ok(()) }
    });
}

/// Waits until the log of a server contains `text`.
pub(crate) fn wait_for_log(server: &Server, text: &str) {
    until(&format!("{text:?} in the log"), SOON, || {
        let log = server.log();
        if log.contains(text) { Ok(()) } else { Err(log) }
    });
}

/// Checks the output of a client that prints a line for each of its checks.
pub(crate) fn assert_checks_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed: Vec<&Value> = lines.iter().filter(|line| line["ok"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{errors}");
    // A client that ended early has no failed checks either.
    assert!(output.status.success() && lines.len() > 10, "{text}\n{errors}");
}

/// Runs a Node.js suite against a server. The suite may request a kill and a restart of the server
/// by separate lines of output, and receives a reply to each. Returns its other lines.
pub(crate) fn node_suite(server: &mut Server, node: &mut Command) -> String {
    let url = |server: &Server| format!("http://{}", server.listener("http"));
    node.env("COVE_URL", url(server)).env("COVE_TOKEN", server.token());
    // The kernel kills the suite when this test ends, even if it fails.
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL"]).arg(node.get_program()).args(node.get_args());
    bound.current_dir(node.get_current_dir().expect("a directory of the suite"));
    bound.envs(node.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut node = bound.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answers = node.stdin.take().unwrap();
    let mut addresses = Vec::new();
    for line in BufReader::new(node.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.as_str() {
            "server: kill" => {
                server.signal("KILL");
                server.wait(SOON);
                writeln!(answers, "killed").unwrap();
            }
            "server: restart" => {
                server.restart();
                writeln!(answers, "{}", url(server)).unwrap();
            }
            _ => addresses.push(line),
        }
    }
    let addresses = addresses.join("\n");
    assert!(node.wait().unwrap().success(), "{addresses}");
    addresses
}
