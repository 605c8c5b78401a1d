//! Messages of commands on standard error, beside their output.

use std::io::{self, Write as _};

use crate::{output, plain_text};

/// Says what went wrong, on standard error.
pub(crate) fn complain(message: &str) {
    // Who closed standard error does not want to know.
    drop(writeln!(io::stderr(), "cove: {}", plain_text::plain_with_lines(message)));
}

/// Says what may help, on standard error, unless only errors are wanted.
pub(crate) fn remark(message: &str) {
    if !output::is_quiet() {
        complain(message);
    }
}
