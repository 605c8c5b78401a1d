//! Helpers shared by the files of this binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::{self, Process};
use testkit::{Client, Server, until};

pub(crate) use crate::shared::{COVE, LANGUAGES};

/// Tests that compare the host before and after must be alone; all others run side by side.
static HOST: RwLock<()> = RwLock::new(());

/// Held by tests that look at the whole host.
pub(crate) fn alone_on_host() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by all other tests.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    HOST.read().unwrap_or_else(PoisonError::into_inner)
}

/// Time for something that happens at once, on a machine that may be busy with anything: it is only
/// there so that what never happens fails.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Time for sandboxes to be prepared, interpreters that start in them included.
const SETTLED: Duration = Duration::from_secs(60);

/// A server with default settings.
pub(crate) fn serve() -> Server {
    serve_with("")
}

/// A server with these lines in the `[executions]` table of its configuration.
pub(crate) fn serve_with(executions: &str) -> Server {
    let config = format!("[executions]\nlanguages = {LANGUAGES:?}\n{executions}\n");
    Server::start_with(COVE, &[], Some(&config))
}

/// A shell command as an execution request.
pub(crate) fn shell(script: &str) -> Value {
    json!({"argv": ["/bin/sh", "-c", script]})
}

/// The same, of a script that a test holds up with a `sleep` for as long as it likes: see [`wake`].
pub(crate) fn held(script: &str) -> Value {
    json!({"argv": ["/bin/sh", "-c", script], "limits": {"wall_ms": 100_000}})
}

/// Runs a request that must be accepted.
pub(crate) fn run(client: &Client, request: &Value) -> Value {
    let response = client.run(request);
    assert_eq!(response.status, 200, "{request}: {}", response.text());
    response.json()
}

/// Uses every place of a server at the same time, so that what it makes on demand is made.
pub(crate) fn warm_up(client: &Client) {
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(run(client, &shell("sleep 0.1"))["verdict"], "OK"));
        }
    });
}

/// Waits until nothing runs and every sandbox is prepared that is kept so.
pub(crate) fn settle(client: &Client) {
    let client = client.anonymous();
    until("every sandbox to be prepared", SETTLED, || {
        let metrics = client.get("/metrics").text();
        let is_none = |state: &&str| metrics.contains(&format!("\ncove_sandboxes_{state} 0\n"));
        if ["preparing", "leased"].iter().all(is_none) { Ok(()) } else { Err(metrics) }
    });
}

/// Whether `text` looks like an execution's id.
pub(crate) fn is_execution_id(text: &str) -> bool {
    let crockford = |c: char| {
        c.is_ascii_digit() || (c.is_ascii_alphabetic() && !"ILOU".contains(c.to_ascii_uppercase()))
    };
    text.strip_prefix("ex_").is_some_and(|rest| rest.len() == 26 && rest.chars().all(crockford))
}

/// Waits until a program with this in its command line is there.
pub(crate) fn wait_for_program(marker: &str) {
    until(&format!("the program {marker}"), SOON, || {
        if process::with_marker(marker).is_empty() { Err("not there".to_owned()) } else { Ok(()) }
    });
}

/// Waits until nothing with this in its command line runs.
pub(crate) fn wait_until_gone(marker: &str) {
    until(&format!("the end of {marker}"), SOON, || {
        let left = process::with_marker(marker);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Waits until a `sleep` of so many seconds sleeps.
pub(crate) fn wait_for_sleep(seconds: &str) -> Process {
    until(&format!("a sleep of {seconds} s"), SOON, || {
        let found = process::named("sleep", seconds).into_iter().next();
        found.ok_or_else(|| format!("{:?}", process::with_marker(seconds)))
    })
}

/// Ends a `sleep` of so many seconds, once it is there, so that the script that waits for it goes
/// on. So a test says how long a program runs, and no clock does.
pub(crate) fn wake(seconds: &str) {
    let sleep = wait_for_sleep(seconds);
    process::end(sleep);
    until(&format!("the end of a sleep of {seconds} s"), SOON, || {
        if sleep.is_alive() { Err(format!("{sleep:?}")) } else { Ok(()) }
    });
}

/// Waits until a server has logged this.
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
    // A client that broke off in the middle has no failed checks either.
    assert!(output.status.success() && lines.len() > 10, "{text}\n{errors}");
}

/// Runs a suite in Node.js at a server, which the suite may have killed and started again: it says
/// so on a line of its own, and is answered when that is done. Returns its other lines.
pub(crate) fn node_suite(server: &mut Server, node: &mut Command) -> String {
    let url = |server: &Server| format!("http://{}", server.listener("http"));
    node.env("COVE_URL", url(server)).env("COVE_TOKEN", server.token());
    // Ends with this test, also when that fails, and what it has started with it.
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
