//! The TypeScript SDK as it is published: packed, installed into a clean directory, type-checked as
//! its users do, and run against the real binary in Node.js, Deno, Bun and Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Server, install_packages};

use crate::gateway::databases;
use crate::shared::COMPAT;
use crate::support::{COVE, beside_others, node_suite};

/// Directories that the build of the package needs, copied beside it.
const SOURCES: &[&str] = &["src", "scripts"];

fn sdk() -> PathBuf {
    Path::new(COMPAT).join("../sdk/typescript")
}

fn files_of(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn npm(arguments: &[&str], directory: &Path) -> String {
    let mut npm = Command::new("npm");
    npm.args(arguments).current_dir(directory).env("npm_config_update_notifier", "false");
    let output = npm.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the package as `npm pack` creates it, built with the pinned tools.
fn tarball() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-typescript");
    let project = install_packages(&sdk(), place, &["tsconfig.json", "README.md"]);
    for directory in SOURCES {
        let copy = project.join(directory);
        if copy.exists() {
            fs::remove_dir_all(&copy).unwrap();
        }
        fs::create_dir(&copy).unwrap();
        for name in files_of(&sdk().join(directory)) {
            fs::copy(sdk().join(directory).join(&name), copy.join(&name)).unwrap();
        }
    }
    let document = Path::new(COMPAT).join("../crates/api/openapi.json");
    let arguments = ["scripts/generate.mjs", "--check", document.to_str().unwrap()];
    let check = Command::new("node").args(arguments).current_dir(&project).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let file_name = npm(&["pack", "--silent"], &project);
    project.join(file_name.trim())
}

/// Returns the directory of the tests, with the package installed beside their dependencies.
fn project() -> PathBuf {
    let source = sdk().join("test");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-typescript-test");
    // A deleted test must not run.
    for old in fs::read_dir(&place).into_iter().flatten() {
        let path = old.unwrap().path();
        if path.extension().is_some_and(|it| it == "mjs") {
            fs::remove_file(path).unwrap();
        }
    }
    // Without the output of manual runs.
    let is_script = |name: &String| name.ends_with(".mjs") && !name.ends_with(".built.mjs");
    let scripts: Vec<String> = files_of(&source).into_iter().filter(is_script).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let project = install_packages(&source, place, &scripts);
    let tarball = tarball();
    let install = ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"];
    npm(&[&install[..], &[tarball.to_str().unwrap()]].concat(), &project);
    project
}

#[test]
fn the_package_works_where_javascript_runs_and_survives_the_end_of_the_server() {
    let _guard = beside_others();
    let project = project();
    let (_postgres, _mariadb, tenants) = databases();
    let mut server = Server::start_with(COVE, &[], Some(&tenants));
    server.expect_log("executions were cut off by the server's end");
    let mut node = Command::new("node");
    node.arg("run.mjs").current_dir(project).env("COVE_PAGES", Path::new(COMPAT).join(".."));
    let output = node_suite(&mut server, &mut node);
    assert!(output.contains("# fail 0") && !output.contains("# pass 0"), "{output}");
}
