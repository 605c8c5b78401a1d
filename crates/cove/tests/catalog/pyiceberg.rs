//! PyIceberg, unmodified, with Arrow: it writes and reads the data itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::{BalancedPort, Network, Postgres, Scratch, Server, ServerCluster};

use crate::shared::{COMPAT, COVE, interpreter_with};

/// The first example of the documentation.
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

/// Both programs with three nodes behind a balancer, which sends each request to the next node.
#[test]
fn three_nodes_behind_a_balancer_are_one_catalog() {
    let files = Scratch::new();
    let catalog = format!("[catalog]\nroot = \"file://{}/main\"\n", files.path().display());
    let cluster = ServerCluster::start(COVE, Network::start(3), Postgres::shared(), &catalog);
    for program in ["pyiceberg_client.py", "pyiceberg_plan.py"] {
        run_at(program, cluster.port(BalancedPort::Requests), cluster.first());
    }
}

/// Runs a program against a new server.
fn run(program: &str) {
    let server = Server::start(COVE);
    run_at(program, server.client().address(), &server);
}

/// Runs a program against an address, with the token of a server.
fn run_at(program: &str, address: SocketAddr, server: &Server) {
    let output = Command::new(interpreter())
        .arg(Path::new(COMPAT).join("iceberg").join(program))
        .env("BASE", format!("http://{address}/catalog"))
        .env("TOKEN", server.token())
        // Without the user's own configuration.
        .env("PYICEBERG_HOME", server.scratch().path())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("ok\n"), "{out}\n{err}");
}
