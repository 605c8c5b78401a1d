//! PyIceberg, unmodified, with Arrow: it writes and reads the data, and the catalog never does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::Server;

use crate::shared::{COMPAT, COVE, interpreter_with};

/// The program that a newcomer starts with, as the documentation runs it.
#[test]
fn the_first_table_of_the_documentation_is_made_and_read() {
    let server = Server::start(COVE);
    let program = Path::new(COMPAT).join("../examples/catalog/first.py");
    let output = Command::new(interpreter())
        .arg(program)
        .env("COVE_URL", format!("http://{}", server.client().address()))
        .env("COVE_TOKEN", server.token())
        .env("PYICEBERG_HOME", server.scratch().path())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert_eq!(out, "[{'id': 2, 'name': 'salt'}, {'id': 3, 'name': 'rice'}]\n", "{err}");
}

#[test]
fn it_creates_writes_reads_and_changes_tables() {
    run("pyiceberg_client.py");
}

#[test]
fn what_is_planned_here_is_what_it_plans_itself() {
    run("pyiceberg_plan.py");
}

fn interpreter() -> &'static Path {
    static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
    INTERPRETER.get_or_init(|| interpreter_with("iceberg/requirements.txt", "compat-iceberg"))
}

/// Runs a program against a server of its own.
fn run(program: &str) {
    let server = Server::start(COVE);
    let output = Command::new(interpreter())
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
