//! Development tasks: `cargo run -p xtask -- gen` writes the generated files,
//! `cargo run -p xtask -- tidy` checks the conventions, and `-- licences` the licences of packages.
//! The tests of this crate do the first two. `-- sbom` lists the binary's dependencies, for
//! packages. `-- slowest cargo test …` names the slowest tests, and with `--rerun N` before the
//! command reruns up to N failed tests.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod r#gen;
mod licences;
mod sbom;
mod site_sources;
mod slowest;
mod tidy;

fn usage() -> ExitCode {
    eprintln!("usage: cargo run -p xtask -- gen|licences|sbom|tidy|slowest [--rerun N] COMMAND");
    ExitCode::from(2)
}

fn run_tests(arguments: &[String]) -> ExitCode {
    let (rerun_max, command) = match arguments {
        [flag, count, command @ ..] if flag == "--rerun" => (count.parse(), command),
        command => (Ok(0), command),
    };
    match rerun_max {
        Ok(rerun_max) if !command.is_empty() => {
            slowest::run(rerun_max, command, &mut std::io::stdout())
                .map_or_else(fail, ExitCode::from)
        }
        _ => usage(),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [task, command @ ..] = arguments.as_slice()
        && task == "slowest"
    {
        return run_tests(command);
    }
    let result = match arguments.first().map(String::as_str) {
        Some("gen") => r#gen::write(&root()),
        Some("licences") => licences::check(&root()),
        Some("sbom") => sbom::write(&root(), &arguments[1..]),
        Some("tidy") => tidy::check(&root()),
        _ => {
            return usage();
        }
    };
    match result {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_or_else` gives")]
fn fail(error: anyhow::Error) -> ExitCode {
    eprintln!("failed: {error:#}");
    ExitCode::FAILURE
}

/// Returns the root of the checkout.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
