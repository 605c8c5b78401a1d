//! Third-party MySQL drivers, with Cove between them and MariaDB, and without it.
//!
//! The programs are in `compat/mysql`. Each runs directly against the server, which validates its
//! checks, then with a server connection for each client, and with a few that are shared.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::thread;

use crate::clients::{check_output, node_project, python, rust_program};
use crate::mysql_support::{Fronted, behind, front, maria};
use crate::shared::COMPAT;
use crate::support::{PASSWORD, USER};

/// Programs, and names of their databases.
const PROGRAMS: [&str; 5] = ["pymysql", "aiomysql", "mysql2", "connector_j", "mysql_async"];
/// Concurrent clients of a program.
const CLIENTS: u32 = 16;
/// Modes, with the number of server connections for a program's clients, and whether the server may
/// request files.
const MODES: [(&str, u32, bool); 2] = [("session", CLIENTS + 4, true), ("transaction", 5, false)];
/// Debian's path of the driver, which `scripts/test-deps.sh` installs.
const CONNECTOR_J: &str = "/usr/share/java/mariadb-java-client.jar";

/// Returns one server for all programs that run at the same time.
fn fronted() -> Arc<Fronted> {
    static SHARED: RwLock<Weak<Fronted>> = RwLock::new(Weak::new());
    let mut shared = SHARED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(fronted) = shared.upgrade() {
        return fronted;
    }
    let tenants = PROGRAMS.iter().flat_map(|program| {
        MODES.map(|(mode, connections, files)| {
            let name = format!("{program}_{mode}");
            behind(&name, mode, connections).with(&format!("local_infile = {files}"))
        })
    });
    let maria = maria();
    for program in PROGRAMS {
        maria.sql(&format!("CREATE DATABASE {program}_directly"));
    }
    // Fewer than the sum of the programs' limits: idle programs give connections up to working
    // ones. But enough that clients which wait for one more cannot hold them all.
    let limit = "server_connections_max = 110";
    let fronted = Arc::new(front(Arc::new(maria), limit, &tenants.collect::<Vec<_>>()));
    *shared = Arc::downgrade(&fronted);
    fronted
}

/// Runs a program in each mode. It prints a line for each of its checks.
fn check(program: &'static str, least: usize, command: impl Fn() -> Command) {
    let fronted = fronted();
    let direct = ("directly", fronted.maria.tcp(), true);
    let modes = MODES.map(|(mode, _, files)| (mode, fronted.tcp(), files));
    let runs: Vec<_> = [direct]
        .into_iter()
        .chain(modes)
        .map(|(place, address, files)| {
            let mut command = command();
            command.env("MYSQL_HOST", address.ip().to_string());
            command.env("MYSQL_PORT", address.port().to_string());
            command.env("MYSQL_USER", USER).env("MYSQL_PASSWORD", PASSWORD);
            command.env("MYSQL_DATABASE", format!("{program}_{place}"));
            command.env("CLIENTS", CLIENTS.to_string());
            command.env("LOCAL_INFILE", if files { "1" } else { "0" });
            (place, thread::spawn(move || command.output().unwrap()))
        })
        .collect();
    for (place, run) in runs {
        check_output(&format!("{program}, {place}"), least, &run.join().unwrap());
    }
}

#[test]
fn pymysql_sees_no_difference() {
    check("pymysql", 19, || python("mysql/pymysql_client.py"));
}

#[test]
fn aiomysql_sees_no_difference() {
    check("aiomysql", 6, || python("mysql/aiomysql_client.py"));
}

#[test]
fn mysql2_sees_no_difference() {
    let project = node_project("mysql");
    check("mysql2", 15, || {
        let mut node = Command::new("node");
        node.arg("client.mjs").current_dir(&project);
        node
    });
}

#[test]
fn connector_j_sees_no_difference() {
    let driver = Path::new(CONNECTOR_J);
    assert!(driver.is_file(), "there is no {CONNECTOR_J}; scripts/test-deps.sh installs it");
    check("connector_j", 11, || {
        let mut java = Command::new("java");
        java.args(["-cp", CONNECTOR_J]).arg(Path::new(COMPAT).join("mysql/Client.java"));
        java
    });
}

#[test]
fn mysql_async_sees_no_difference() {
    let program = rust_program("mysql");
    check("mysql_async", 8, || Command::new(&program));
}
