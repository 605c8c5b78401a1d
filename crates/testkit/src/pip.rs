//! Virtual environments of Python with pinned packages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the interpreter of a virtual environment in `directory` with the packages of a
/// requirements file. It is created if it does not exist, or has those of another version of the
/// file. A file `alone.txt` names all required packages, which are installed without their
/// dependencies.
///
/// # Panics
/// If the environment cannot be created or a package not be installed.
#[must_use]
pub fn python_environment(requirements: &Path, directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).expect("a directory for the environment");
    // Several tests and test binaries may create it concurrently.
    let lock = File::create(directory.with_extension("lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let (python, made) = (directory.join("bin/python"), directory.join("made-of"));
    let wanted = fs::read(requirements).expect("a requirements file");
    let is_same = fs::read(&made).ok().as_ref() == Some(&wanted);
    // It links to the interpreter that created it, which may have been removed.
    if !is_same || !python.exists() {
        let mut create = Command::new("python3");
        // `pip_install` does not need a pip in the environment, which takes seconds to install.
        finish(create.args(["-m", "venv", "--clear", "--without-pip"]).arg(directory));
        let mut install = pip_install(&python);
        if requirements.ends_with("alone.txt") {
            install.arg("--no-deps");
        }
        finish(install.arg("-r").arg(requirements));
        fs::write(&made, wanted).expect("a note of what was installed");
    }
    python
}

/// Returns a command that installs packages for an interpreter, by the pip of the machine.
///
/// Modules are not compiled: an import compiles those that are used, which are few of the thousands
/// in the packages of some clients.
#[must_use]
pub fn pip_install(python: &Path) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(python);
    pip.args(["--quiet", "--disable-pip-version-check", "install", "--no-compile"]);
    pip
}

fn finish(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("the tests of foreign clients need {command:?}: {error}; see scripts/test-deps.sh")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{errors}");
}
