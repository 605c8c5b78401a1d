//! The terminal of whoever runs `cove run --tty`: its size, and its raw mode for as long as the
//! program has it.

use std::io::{self, IsTerminal as _};

use api::TerminalSize;
use rustix::termios::{self, OptionalActions, Termios};

/// The terminal passes every key on, until this is dropped.
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Remembers how the terminal is, and makes it raw.
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
        // After what was written is shown. A terminal that is gone needs no mode.
        termios::tcsetattr(io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

/// Returns whether both what is typed and what is shown are on a terminal.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Returns its size now.
pub(crate) fn size() -> io::Result<TerminalSize> {
    let size = termios::tcgetwinsize(io::stdout())?;
    // A terminal that does not know its size, such as that of a script, has none.
    Ok(match (size.ws_row, size.ws_col) {
        (0, _) | (_, 0) => TerminalSize { rows: 24, cols: 80 },
        (rows, cols) => TerminalSize { rows, cols },
    })
}
