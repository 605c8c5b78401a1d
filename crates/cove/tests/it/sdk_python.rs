//! The Python SDK, `sdk/python`, as it is packaged: installed alone, and with its own tests and
//! documentation, which pytest runs against a real server.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Scratch, Server, pip_install};

use crate::gateway::{CANARY, stage};
use crate::shared::{COMPAT, finish, interpreter_with};
use crate::support::{COVE, beside_others};

/// Memory for the interpreters in sessions and in their forks.
const SETTINGS: &str = "memory_bytes = 536870912";

fn project() -> PathBuf {
    Path::new(COMPAT).join("../sdk/python").canonicalize().unwrap()
}

/// Returns the interpreter with the development tools of the package.
fn tools() -> PathBuf {
    interpreter_with("../sdk/python/requirements-dev.txt", "sdk-python-tools")
}

/// Returns a command of these tools, which writes nothing into the checkout.
fn tool(arguments: &[&str]) -> Command {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-python-cache");
    let mut command = Command::new(tools());
    command.arg("-m").args(arguments).current_dir(project());
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("RUFF_NO_CACHE", "true");
    command.env("XDG_CACHE_HOME", &cache);
    command.env("MYPY_CACHE_DIR", cache);
    command
}

/// Builds a source package, and a wheel from its content. Returns the path of the wheel.
fn wheel(scratch: &Scratch) -> PathBuf {
    let made = scratch.path().join("dist");
    finish(tool(&["build", "--no-isolation", "--outdir"]).arg(&made).arg("."));
    let entries = fs::read_dir(made).unwrap().map(|entry| entry.unwrap().path());
    let mut packs: Vec<PathBuf> = entries.collect();
    packs.sort();
    let suffixes: Vec<&OsStr> = packs.iter().filter_map(|path| path.extension()).collect();
    assert_eq!(suffixes, ["whl", "gz"], "{packs:?}");
    packs.swap_remove(0)
}

fn at_server(command: &mut Command, server: &Server) {
    command.env("COVE_URL", format!("http://{}", server.listener("http")));
    command.env("COVE_TOKEN", server.token());
}

#[test]
fn the_wheel_brings_all_that_it_needs_and_its_suite_passes() {
    let _guard = beside_others();
    let stage = stage(SETTINGS);
    let scratch = Scratch::new();
    let wheel = wheel(&scratch);

    // The declared dependencies suffice: the wheel works in an environment without other packages.
    let environment = scratch.path().join("alone");
    finish(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&environment));
    let python = environment.join("bin/python");
    finish(pip_install(&python).arg(&wheel));
    let mut first = Command::new(&python);
    first.args(["-c", "from cove import Cove; print(Cove().run(argv=['/bin/echo', 'hi']).stdout)"]);
    at_server(&mut first, &stage.server);
    assert_eq!(finish(first.current_dir(scratch.path())), "hi\n\n");

    finish(pip_install(&tools()).args(["--no-deps", "--force-reinstall"]).arg(&wheel));
    let mut suite = tool(&["pytest", "-p", "no:cacheprovider", "-rs"]);
    at_server(&mut suite, &stage.server);
    suite.env("COVE_BINARY", COVE).env("COVE_TEST_PASSWORD", CANARY);
    suite.env("COVE_TEST_POSTGRES", stage.postgres.tcp().to_string());
    let printed = finish(&mut suite);
    assert!(printed.contains(" passed") && !printed.contains("skipped"), "{printed}");
}

#[test]
fn the_sources_are_typed_formatted_and_generated_from_what_there_is() {
    let _guard = beside_others();
    finish(&mut tool(&["ruff", "check", "."]));
    finish(&mut tool(&["ruff", "format", "--check", "."]));
    finish(&mut tool(&["mypy"]));
    let python = tools();
    finish(tool(&["pyright", "--pythonpath"]).arg(&python));
    let mut generate = Command::new(python);
    finish(generate.args(["scripts/generate.py", "--check"]).current_dir(project()));
}
