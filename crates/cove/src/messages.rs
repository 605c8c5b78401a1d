//! Messages of commands on standard error.

use std::io::{self, Write as _};

use crate::{output, plain_text};

/// Prints an error on standard error.
pub(crate) fn complain(message: &str) {
    // A failure is ignored: standard error is closed.
    drop(writeln!(io::stderr(), "cove: {}", plain_text::plain_with_lines(message)));
}

/// Prints a hint on standard error, unless the command is quiet.
pub(crate) fn remark(message: &str) {
    if !output::is_quiet() {
        complain(message);
    }
}
