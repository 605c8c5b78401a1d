//! Sessions over the real engine, store and disks, checked through their public interface. Needs
//! root.
//!
//! Does not use libtest's `main`: the engine runs this binary again as its spawners, and must do so
//! before a second thread starts. Arguments select tests by parts of their names, as with libtest.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "Clippy knows tests by libtest's attributes, which this binary does without"
)]

mod agents;
mod grants;
mod lifecycle;
mod shares;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = sandbox::spawner_main_if_asked() {
        return code;
    }
    support::main(&[agents::TESTS, grants::TESTS, lifecycle::TESTS, shares::TESTS])
}
