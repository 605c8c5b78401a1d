//! Java packages for the test binaries that need some.

use std::fs;
use std::path::Path;
use std::process::Command;

use parking_lot::Mutex;

use crate::shared::{COMPAT, finish};

/// Returns the class path of a `pom.xml` of `compat`, downloaded when it has changed. Packages are
/// kept in Maven's shared repository.
pub(crate) fn class_path(pom: &str) -> String {
    // Several tests may download it concurrently.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let wanted = Path::new(COMPAT).join(pom);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(pom.replace('/', "-"));
    let (made, list) = (directory.join("made-of"), directory.join("class-path"));
    let known = fs::read_to_string(&list).unwrap_or_default();
    // Maven's repository may have been emptied since.
    let is_there = known.split(':').all(|it| Path::new(it).exists());
    if fs::read(&made).ok() == Some(fs::read(&wanted).unwrap()) && is_there {
        return known;
    }
    fs::create_dir_all(&directory).unwrap();
    let mut maven = Command::new("mvn");
    maven
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(&wanted)
        .arg("dependency:build-classpath");
    finish(maven.arg(format!("-Dmdep.outputFile={}", list.display())));
    fs::copy(&wanted, &made).unwrap();
    fs::read_to_string(&list).unwrap()
}
