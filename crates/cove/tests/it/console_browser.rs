//! The console in Debian's Chromium, with the real binary: `compat/console` contains the checks, a
//! file for each screen. One browser runs them all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Scratch, Server, command, install_packages};

use crate::gateway::databases;
use crate::gateway_lake::{inside_packages, packages};
use crate::shared::{COMPAT, finish, interpreter_with};
use crate::support::{COVE, beside_others, node_suite};

/// Returns the driver and the checks, installed once below the target directory.
fn project() -> PathBuf {
    let source = Path::new(COMPAT).join("console");
    let entries = fs::read_dir(&source).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let scripts: Vec<String> = names.filter(|name| name.ends_with(".mjs")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-console");
    // Removed checks must not be run.
    for old in fs::read_dir(&place).into_iter().flatten() {
        let path = old.unwrap().path();
        if path.extension().is_some_and(|it| it == "mjs") {
            fs::remove_file(path).unwrap();
        }
    }
    install_packages(&source, place, &scripts)
}

#[test]
fn every_screen_works_in_a_browser_and_survives_the_end_of_the_server() {
    let _guard = beside_others();
    let (_postgres, _mariadb, tenants) = databases();
    let mut server = Server::start_with(COVE, &[], Some(&tenants));
    // A program runs at every kill, so that it ends as a dead letter.
    server.expect_log("executions were cut off by the server's end");
    // No server listens at the address of this tenant, which the periodic check reports.
    server.expect_log("the server does not answer tenant=\"dialogs\"");
    // The documentation is also checked from a directory.
    let scratch = Scratch::new();
    let docs = scratch.path().join("docs");
    let first = finish(command(COVE).args(["docs", "--out"]).arg(&docs));
    assert_eq!(first, format!("{}/index.html\n", docs.display()));
    let mut suite = Command::new("node");
    suite.arg("run.mjs").current_dir(project()).env("COVE_DOCS", docs);
    // Table rows need the packages on both sides.
    suite.env("COVE_PYTHON", interpreter_with("iceberg/requirements.txt", "compat-iceberg"));
    let duckdb = inside_packages("iceberg/duckdb.txt", "compat-duckdb-inside");
    suite.env("COVE_PACKAGES", format!("{}:{}", packages().display(), duckdb.display()));
    let output = node_suite(&mut server, &mut suite);
    assert!(output.contains("checks passed"), "{output}");
}
