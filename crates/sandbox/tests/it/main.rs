//! The engine against the real kernel, as seen by programs in its sandboxes.
//!
//! Not libtest's `main`: the engine starts this binary again as its spawners, and must do so before
//! there is a second thread. Arguments are parts of names, as in libtest.
#![expect(
    clippy::unwrap_used,
    reason = "Clippy knows tests by libtest's attributes, which this binary does without"
)]

mod disk;
mod files;
mod hostile;
mod loopback;
mod session;
mod session_files;
mod session_hostile;
mod streams;
mod support;
mod terminals;
mod warm;
mod warm_java;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = sandbox::spawner_main_if_asked() {
        return code;
    }
    support::main(&[
        disk::TESTS,
        files::TESTS,
        hostile::TESTS,
        loopback::TESTS,
        session::TESTS,
        session_files::TESTS,
        session_hostile::TESTS,
        streams::TESTS,
        terminals::TESTS,
        warm::TESTS,
        warm_java::TESTS,
    ])
}
