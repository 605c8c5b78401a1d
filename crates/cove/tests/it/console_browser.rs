//! The console in Debian's Chromium, at the real binary: `compat/console` has the checks, a file
//! for each screen. One browser for all of them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Server, install_packages};

use crate::gateway::databases;
use crate::shared::COMPAT;
use crate::support::{COVE, SOON, beside_others};

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

fn url(server: &Server) -> String {
    format!("http://{}", server.listener("http"))
}

#[test]
fn every_screen_works_in_a_browser_and_survives_the_end_of_the_server() {
    let _guard = beside_others();
    let (_postgres, _mariadb, tenants) = databases();
    let mut server = Server::start_with(COVE, &[], Some(&tenants));
    // A program runs whenever it is killed, so that it ends as a dead letter.
    server.expect_log("executions were cut off by the server's end");
    // Ends with this test, also when that fails; the browser ends with it.
    let mut node = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "node", "run.mjs"])
        .current_dir(project())
        .env("COVE_URL", url(&server))
        .env("COVE_TOKEN", server.token())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = node.stdin.take().unwrap();
    let mut told = Vec::new();
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
                writeln!(answers, "{}", url(&server)).unwrap();
            }
            _ => told.push(line),
        }
    }
    let told = told.join("\n");
    assert!(node.wait().unwrap().success(), "{told}");
    assert!(told.contains("checks passed"), "{told}");
}
