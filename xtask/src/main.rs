//! Development tasks: `cargo run -p xtask -- gen` writes the generated files,
//! `cargo run -p xtask -- tidy` checks the conventions, and `-- licences` the licences of packages.
//! The tests of this crate do the first two.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod r#gen;
mod licences;
mod tidy;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let result = match task.as_deref() {
        Some("gen") => r#gen::write(&root()),
        Some("licences") => licences::check(&root()),
        Some("tidy") => tidy::check(&root()),
        _ => {
            eprintln!("usage: cargo run -p xtask -- gen|licences|tidy");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the checkout.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
