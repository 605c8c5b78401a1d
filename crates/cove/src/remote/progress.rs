//! Progress line on a terminal, updated in place. Prints nothing elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios;

use crate::output;

/// Characters of a line if the terminal does not report its width.
const WIDTH_DEFAULT: usize = 80;

/// Characters of a bar, without its ends.
const BAR_WIDTH: u64 = 24;

/// Returns a progress bar: `[######......] 12 of 24`.
pub(crate) fn bar(done: u64, total: u64) -> String {
    let filled = done.min(total).saturating_mul(BAR_WIDTH).checked_div(total);
    // A total of zero counts as done.
    let filled = usize::try_from(filled.unwrap_or(BAR_WIDTH)).unwrap_or_default();
    let empty = usize::try_from(BAR_WIDTH).unwrap_or_default().saturating_sub(filled);
    format!("[{}{}] {done} of {total}", "#".repeat(filled), ".".repeat(empty))
}

/// Progress line. Dropping it clears the line.
pub(crate) struct ProgressLine {
    is_enabled: bool,
    drawn: bool,
}

impl ProgressLine {
    /// Returns a line that is shown if standard error is a terminal and no quiet mode is set.
    pub(crate) fn new(silent: bool) -> ProgressLine {
        let is_enabled = !silent && !output::is_quiet() && io::stderr().is_terminal();
        ProgressLine { is_enabled, drawn: false }
    }

    /// Returns whether the line is drawn at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Replaces the text of the line.
    pub(crate) fn show(&mut self, text: &str) {
        if !self.is_enabled {
            return;
        }
        let width = termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let width = if width == 0 { WIDTH_DEFAULT } else { width };
        // One less, because the terminal would wrap a full line.
        let text: String = text.chars().take(width - 1).collect();
        self.drawn = true;
        // A failure is ignored: standard error is closed.
        drop(write!(io::stderr(), "\r\x1b[K{text}"));
    }

    /// Clears the line for other output.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            self.drawn = false;
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_what_is_done() {
        for (done, total, filled) in
            [(0, 10, 0), (1, 3, 8), (5, 10, 12), (10, 10, 24), (0, 0, 24), (9, 3, 24)]
        {
            let bar = bar(done, total);
            assert_eq!(bar.matches('#').count(), filled, "{bar}");
            assert_eq!(bar.find(']'), Some(25), "{bar}");
        }
    }
}
