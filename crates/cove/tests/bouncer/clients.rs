//! Third-party PostgreSQL drivers, with Cove between them and their server.
//!
//! The programs are in `compat/postgres`. Their checks pass with PostgreSQL alone, so a failure
//! here is caused by the pooler. Each runs in two modes: with a server connection for each client,
//! and with a few that are shared after each transaction.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use serde_json::Value;
use testkit::install_packages;

use crate::go::go;
use crate::shared::{COMPAT, interpreter};
use crate::support::{Behind, Bounced, PASSWORD, USER, bounce, postgres};

/// Programs, and names of their databases.
const PROGRAMS: [&str; 7] = ["psycopg", "psycopg2", "asyncpg", "node", "jdbc", "go", "rust"];
/// Concurrent clients of a program.
const CLIENTS: u32 = 16;
/// Modes, with the number of server connections for a program's clients.
const MODES: [(&str, u32); 2] = [("session", CLIENTS + 4), ("transaction", 5)];
/// Debian's path of the driver, which `scripts/test-deps.sh` installs.
const JDBC: &str = "/usr/share/java/postgresql.jar";

/// Returns one server for all programs that run at the same time.
fn bounced() -> Arc<Bounced> {
    static SHARED: Mutex<Weak<Bounced>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    if let Some(bounced) = shared.upgrade() {
        return bounced;
    }
    let tenants = PROGRAMS.iter().flat_map(|program| {
        MODES.map(|(mode, connections)| Behind::new(&database(program, mode), mode, connections))
    });
    // Fewer than the sum of the programs' limits: idle programs give connections up to working
    // ones, of which there are two at a time.
    let limit = "server_connections_max = 60";
    let bounced = Arc::new(bounce(Arc::new(postgres()), limit, &tenants.collect::<Vec<_>>()));
    *shared = Arc::downgrade(&bounced);
    bounced
}

fn database(program: &str, mode: &str) -> String {
    format!("{program}_{mode}")
}

/// Runs a program in each mode. It prints a line for each of its checks.
fn check(program: &'static str, least: usize, command: impl Fn() -> Command) {
    static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
    let bounced = bounced();
    // Clients of more programs could each hold some connections and wait forever for those of
    // others.
    let free = TURNS.iter().find_map(Mutex::try_lock);
    let _turn = free.unwrap_or_else(|| {
        let number = PROGRAMS.iter().position(|it| *it == program).unwrap();
        TURNS[number % TURNS.len()].lock()
    });
    let runs = MODES.map(|(mode, _)| {
        let mut command = command();
        let address = bounced.tcp();
        command.env("PGHOST", address.ip().to_string()).env("PGPORT", address.port().to_string());
        command.env("PGUSER", USER).env("PGPASSWORD", PASSWORD);
        command.env("PGDATABASE", database(program, mode)).env("CLIENTS", CLIENTS.to_string());
        (mode, thread::spawn(move || command.output().unwrap()))
    });
    for (mode, run) in runs {
        check_output(&format!("{program} in {mode} mode"), least, &run.join().unwrap());
    }
}

/// Checks a program's output: a line for each of its checks, at least `least`.
pub(crate) fn check_output(what: &str, least: usize, output: &Output) {
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let lines = lines.unwrap_or_else(|error| panic!("{what}: {error}\n{text}\n{errors}"));
    let failed = lines.iter().filter(|line| line["ok"] != true).map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        format!("{}\n{}", text("check"), text("error"))
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{what}:\n{}\n{errors}", failed.join("\n"));
    // A program that stopped in the middle has no failed checks either.
    assert!(output.status.success() && lines.len() >= least, "{what}: {text}\n{errors}");
}

/// Returns a command that runs a Python program of `compat`.
pub(crate) fn python(path: &str) -> Command {
    let mut command = Command::new(interpreter());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(Path::new(COMPAT).join(path));
    command
}

#[test]
fn psycopg_sees_no_difference() {
    check("psycopg", 22, || python("postgres/psycopg_client.py"));
}

#[test]
fn psycopg2_sees_no_difference() {
    check("psycopg2", 8, || python("postgres/psycopg2_client.py"));
}

#[test]
fn asyncpg_sees_no_difference() {
    check("asyncpg", 9, || python("postgres/asyncpg_client.py"));
}

#[test]
fn clients_for_javascript_see_no_difference() {
    let project = node_project("postgres");
    check("node", 12, || {
        let mut node = Command::new("node");
        node.arg("client.mjs").current_dir(&project);
        node
    });
}

/// Returns the directory in which `client.mjs` of a directory of `compat` can run.
pub(crate) fn node_project(of: &str) -> PathBuf {
    let project = scratch(&format!("compat-{of}-js"));
    install_packages(&Path::new(COMPAT).join(of), project, &["client.mjs"])
}

#[test]
fn jdbc_sees_no_difference() {
    assert!(Path::new(JDBC).is_file(), "there is no {JDBC}; scripts/test-deps.sh installs it");
    check("jdbc", 10, || {
        let mut java = Command::new("java");
        java.args(["-cp", JDBC]).arg(Path::new(COMPAT).join("postgres/Client.java"));
        java
    });
}

#[test]
fn clients_for_go_see_no_difference() {
    let program = go_program("postgres", "go");
    check("go", 10, || Command::new(&program));
}

/// Builds the program in a directory of `compat`.
pub(crate) fn go_program(of: &str, directory: &str) -> PathBuf {
    let program = scratch(&format!("compat-{of}-{directory}")).join("program");
    let mut build = go();
    build.args(["build", "-o"]).arg(&program).arg(".");
    step(build.current_dir(Path::new(COMPAT).join(of).join(directory)));
    program
}

#[test]
fn clients_for_rust_see_no_difference() {
    let program = rust_program("postgres");
    check("rust", 9, || Command::new(&program));
}

/// Builds the program in `rust` of a directory of `compat`.
pub(crate) fn rust_program(of: &str) -> PathBuf {
    let target = scratch(&format!("compat-{of}-rust"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--target-dir"]).arg(&target);
    // Without the test environment's flags and target directory, and quickly.
    build.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    step(build.current_dir(Path::new(COMPAT).join(of).join("rust")));
    target.join("debug/clients")
}

/// Returns a directory below the target directory, which is kept.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn step(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("the tests of drivers need {command:?}: {error}; see scripts/test-deps.sh")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{errors}");
}
