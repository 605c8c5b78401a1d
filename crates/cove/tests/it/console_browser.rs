//! The console in Debian's Chromium, at the real binary: `compat/console` has the checks, a file
//! for each screen. One browser for all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Server, install_packages};

use crate::gateway::databases;
use crate::shared::COMPAT;
use crate::support::{COVE, beside_others, node_suite};

/// The driver and the checks, installed once below the target directory.
fn project() -> PathBuf {
    let source = Path::new(COMPAT).join("console");
    let entries = fs::read_dir(&source).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let scripts: Vec<String> = names.filter(|name| name.ends_with(".mjs")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-console");
    // A check that is gone must not be run.
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
    // A program runs whenever it is killed, so that it ends as a dead letter.
    server.expect_log("executions were cut off by the server's end");
    let told = node_suite(&mut server, Command::new("node").arg("run.mjs").current_dir(project()));
    assert!(told.contains("checks passed"), "{told}");
}
