//! PyIceberg, unmodified, with Arrow: it writes and reads the data, and the catalog never does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::Server;

use crate::shared::{COMPAT, COVE, interpreter_with};

#[test]
fn it_creates_writes_reads_and_changes_tables() {
    run("pyiceberg_client.py");
}

#[test]
fn what_is_planned_here_is_what_it_plans_itself() {
    run("pyiceberg_plan.py");
}

/// Runs a program against a server of its own.
fn run(program: &str) {
    static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
    let server = Server::start(COVE);
    let made = || interpreter_with("iceberg/requirements.txt", "compat-iceberg");
    let output = Command::new(INTERPRETER.get_or_init(made))
        .arg(Path::new(COMPAT).join("iceberg").join(program))
        .env("BASE", format!("http://{}/catalog", server.client().address()))
        .env("TOKEN", server.token())
        // What it is configured by otherwise is the user's.
        .env("PYICEBERG_HOME", server.scratch().path())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}\n{err}");
}
