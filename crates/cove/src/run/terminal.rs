//! Terminal of `cove run --tty`: its size, and its raw mode while the program runs.

use std::io::{self, IsTerminal as _};

use api::TerminalSize;
use rustix::termios::{self, OptionalActions, Termios};

/// Terminal in raw mode, which passes every key on. Dropping it restores the former mode.
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Saves the terminal's mode, and makes it raw.
    pub(crate) fn enter() -> io::Result<RawTerminal> {
        let before = termios::tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(RawTerminal { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // After pending output is shown. The result is ignored if the terminal is closed.
        termios::tcsetattr(io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

/// Returns whether both standard input and standard output are a terminal.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Returns the current size.
pub(crate) fn size() -> io::Result<TerminalSize> {
    let size = termios::tcgetwinsize(io::stdout())?;
    // Some terminals, such as that of a script, report no size.
    Ok(match (size.ws_row, size.ws_col) {
        (0, _) | (_, 0) => TerminalSize { rows: 24, cols: 80 },
        (rows, cols) => TerminalSize { rows, cols },
    })
}
