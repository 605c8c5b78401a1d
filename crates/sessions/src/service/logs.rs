//! Lines that an agent writes to its standard error, for diagnosing failures.

use std::collections::VecDeque;

use node::clock;

/// Maximum number of lines kept of a session.
const LINES_MAX: usize = 10_000;
/// Maximum bytes of a session's lines.
const BYTES_MAX: usize = 1 << 20;

/// Source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Standard error of the agent.
    Stderr,
    /// The server.
    System,
}

impl LogLevel {
    /// Returns the JSON name.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Stderr => "stderr",
            LogLevel::System => "system",
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLogLine {
    /// Index from 0, including dropped lines.
    pub index: u64,
    /// Source.
    pub level: LogLevel,
    /// Text.
    pub text: String,
    /// Time in milliseconds since 1970.
    pub at_ms: u64,
}

/// Latest lines.
#[derive(Debug, Default)]
pub(crate) struct LatestLines {
    lines: VecDeque<AgentLogLine>,
    bytes: usize,
    next: u64,
}

impl LatestLines {
    pub(crate) fn push(&mut self, level: LogLevel, text: &str) {
        let line = AgentLogLine {
            index: self.next,
            level,
            text: text.to_owned(),
            at_ms: clock::wall_ms(),
        };
        self.next += 1;
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// Returns the lines from number `from` on.
    pub(crate) fn from(&self, from: u64) -> Vec<AgentLogLine> {
        self.lines.iter().filter(|line| line.index >= from).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    //! The latest lines are kept with their numbers.

    use super::*;

    #[test]
    fn what_is_too_much_goes_from_the_front() {
        let mut lines = LatestLines::default();
        for number in 0..LINES_MAX + 5 {
            lines.push(LogLevel::Stderr, &number.to_string());
        }
        let kept = lines.from(0);
        assert_eq!(kept.len(), LINES_MAX);
        assert_eq!((kept[0].index, kept[0].text.as_str()), (5, "5"));
        assert_eq!(lines.from(u64::try_from(LINES_MAX).unwrap() + 4).len(), 1);
        lines.push(LogLevel::System, &"x".repeat(BYTES_MAX));
        assert_eq!(lines.from(0).len(), 1);
        lines.push(LogLevel::System, &"x".repeat(BYTES_MAX + 1));
        assert_eq!(lines.from(0).len(), 0, "a line that is too long alone is not kept");
    }
}
