//! Code that the test binaries of this crate share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use parking_lot::Mutex;

/// The binary under test.
pub(crate) const COVE: &str = env!("CARGO_BIN_EXE_cove");
/// Languages of the tests' servers.
pub(crate) const LANGUAGES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/languages.toml");
/// Directory of third-party clients.
pub(crate) const COMPAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compat");

/// Returns an interpreter with the packages of `compat/requirements.txt`, rebuilt when they change.
pub(crate) fn interpreter() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| interpreter_with("requirements.txt", "compat-python"))
}

/// Returns an interpreter with the packages that a file of `compat` names, stored under `name`. A
/// file `alone.txt` names all required packages, which are installed without their dependencies.
pub(crate) fn interpreter_with(requirements: &str, name: &str) -> PathBuf {
    // Several tests may create it concurrently.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let wanted = Path::new(COMPAT).join(requirements);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (python, made) = (directory.join("bin/python"), directory.join("made-of"));
    let is_same = fs::read(&made).ok() == Some(fs::read(&wanted).unwrap());
    // It links to the interpreter that created it, which may have been removed.
    if !is_same || !python.exists() {
        finish(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory));
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        install.arg(&wanted);
        if requirements.ends_with("alone.txt") {
            install.arg("--no-deps");
        }
        finish(&mut install);
        fs::copy(&wanted, &made).unwrap();
    }
    python
}

/// Runs a program that must succeed, and returns what it printed.
pub(crate) fn finish(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("the tests of foreign clients need {command:?}: {error}; see scripts/test-deps.sh")
    });
    let [output_text, errors] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{command:?} failed:\n{output_text}\n{errors}");
    output_text
}
