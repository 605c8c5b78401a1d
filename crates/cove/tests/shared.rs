//! Code that the test binaries of this crate share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::python_environment;

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

/// Returns an interpreter with the packages that a file of `compat` names, stored under `name`.
pub(crate) fn interpreter_with(requirements: &str, name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    python_environment(&Path::new(COMPAT).join(requirements), &directory)
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
