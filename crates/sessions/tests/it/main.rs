//! Sessions over the real engine, store and disks, by what their callers see. Needs root.
//!
//! Not libtest's `main`: the engine starts this binary again as its spawners, and must do so before
//! there is a second thread. Arguments are parts of names, as libtest takes them.
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
