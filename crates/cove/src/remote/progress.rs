//! What is going on, on one line of a terminal that is rewritten in place. Elsewhere nothing.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios;

/// Characters of a line, where the terminal does not know its width.
const WIDTH_DEFAULT: usize = 80;

/// The line. It goes away with the value.
pub(crate) struct Progress {
    shown: bool,
    drawn: bool,
}

impl Progress {
    /// A line that is shown when standard error is a terminal and nobody asked for silence.
    pub(crate) fn new(silent: bool) -> Progress {
        Progress { shown: !silent && io::stderr().is_terminal(), drawn: false }
    }

    /// Whether it is worth finding out more.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown
    }

    /// Puts another text in its place.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.shown {
            return;
        }
        let width = termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { WIDTH_DEFAULT } else { width };
        // One less, or the terminal would begin another line.
        let text: String = text.chars().take(width - 1).collect();
        self.drawn = true;
        // Nobody is left to tell when standard error is closed.
        drop(write!(io::stderr(), "\r\x1b[K{text}"));
    }

    /// Takes the line away, for something else to be written there.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            self.drawn = false;
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
