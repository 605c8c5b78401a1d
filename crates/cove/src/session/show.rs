//! Prints the events of a turn: the agent's text on standard output, its actions on standard error.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Result;
use api::{SessionEvent, SessionEventKind};
use serde_json::Value;

use super::EXIT_TURN;
use crate::messages::complain;
use crate::plain_text::{plain, plain_lines, plain_with_lines};

/// Characters of a tool's input or result that are shown.
const DETAIL_CHARS_MAX: usize = 100;

/// Kinds of events that are printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventDisplay {
    /// The agent's text.
    pub(super) says: bool,
    /// The agent's actions.
    pub(super) does: bool,
}

/// Prints events one after the other.
pub(super) struct EventPrinter {
    display: EventDisplay,
    /// True if output is a terminal, where foreign text must not control it.
    is_terminal: bool,
    /// True if the current text arrives in pieces.
    in_pieces: bool,
    /// True if text was printed in this turn.
    has_spoken: bool,
    failed: bool,
    is_done: bool,
}

impl EventPrinter {
    pub(super) fn new(display: EventDisplay) -> EventPrinter {
        EventPrinter {
            display,
            is_terminal: io::stdout().is_terminal(),
            in_pieces: false,
            has_spoken: false,
            failed: false,
            is_done: false,
        }
    }

    /// Returns whether the text is printed on a terminal while it is generated.
    pub(super) fn is_live(&self) -> bool {
        self.display.says && self.is_terminal
    }

    /// Prints one event; returns whether it ends the turn.
    pub(super) fn event(&mut self, event: &SessionEvent) -> Result<bool> {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).unwrap_or_default();
        match event.kind {
            SessionEventKind::TurnStart => {
                (self.in_pieces, self.has_spoken, self.is_done) = (false, false, false);
            }
            SessionEventKind::TextDelta => {
                (self.in_pieces, self.has_spoken) = (true, true);
                self.print(text("delta"))?;
            }
            SessionEventKind::Text => {
                self.has_spoken = true;
                match std::mem::take(&mut self.in_pieces) {
                    true => self.print("\n")?,
                    false => self.say_line(text("text"))?,
                }
            }
            SessionEventKind::ToolUse => {
                let input = event.data.get("input").filter(|input| !input.is_null());
                let input = input.map(Value::to_string).unwrap_or_default();
                self.note(&format!("· {} {}", text("name"), input));
            }
            SessionEventKind::ToolResult => {
                let content = event.data.get("content").map(flat).unwrap_or_default();
                let failed = event.data.get("is_error").and_then(Value::as_bool) == Some(true);
                self.note(&format!("  {} {content}", if failed { "failed:" } else { "→" }));
            }
            SessionEventKind::TurnComplete => {
                if !self.has_spoken {
                    self.say_line(text("result"))?;
                }
                self.failed |= event.data.get("is_error").and_then(Value::as_bool) == Some(true);
            }
            SessionEventKind::Error => {
                self.failed = true;
                if self.display.says {
                    complain(&plain_lines(text("error")));
                }
            }
            SessionEventKind::Lifecycle => {
                self.note(&format!("the session is {}: {}", text("state"), text("reason")));
            }
            SessionEventKind::Done => {
                self.is_done = true;
                return Ok(true);
            }
            SessionEventKind::ThinkingDelta
            | SessionEventKind::InputJsonDelta
            | SessionEventKind::Reasoning
            | SessionEventKind::Message => {}
        }
        Ok(false)
    }

    /// Returns the exit code of a turn.
    pub(super) fn end(&self) -> Result<u8> {
        if !self.is_done {
            anyhow::bail!("the server ended the events before the turn was over");
        }
        Ok(if self.failed { EXIT_TURN } else { 0 })
    }

    fn say_line(&self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.print(text)?;
        if text.ends_with('\n') { Ok(()) } else { self.print("\n") }
    }

    fn print(&self, text: &str) -> io::Result<()> {
        if !self.display.says {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        match self.is_terminal {
            true => out.write_all(plain_with_lines(text).as_bytes())?,
            false => out.write_all(text.as_bytes())?,
        }
        out.flush()
    }

    fn note(&self, text: &str) {
        if self.display.does {
            // A failure is ignored: standard error is closed.
            drop(writeln!(io::stderr(), "{}", one_line(text)));
        }
    }
}

/// Returns a text on one line of at most [`DETAIL_CHARS_MAX`] characters: a line break and the
/// following indentation become a space. Leading spaces are kept.
fn one_line(text: &str) -> String {
    let mut lines = text.lines();
    let mut line = lines.next().unwrap_or_default().trim_end().replace('\t', " ");
    for next in lines.map(str::trim).filter(|next| !next.is_empty()) {
        line.push(' ');
        line.push_str(&next.replace('\t', " "));
        if line.len() > DETAIL_CHARS_MAX * char::MAX.len_utf8() {
            break;
        }
    }
    let line = plain(&line);
    match line.char_indices().nth(DETAIL_CHARS_MAX) {
        Some(_) => line.chars().take(DETAIL_CHARS_MAX - 1).chain(['…']).collect(),
        None => line,
    }
}

/// Returns the result of a tool as one text: it is a text or blocks of text.
fn flat(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    //! Text output about turns.

    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_others_does_not_steer_the_terminal() {
        assert_eq!(plain_with_lines("a\tb\nc\x1b[2Jd\r"), "a\tb\nc\u{fffd}[2Jd\u{fffd}");
    }

    #[test]
    fn what_tools_do_is_on_one_line() {
        assert_eq!(one_line("  → a\tb\n\n  c\r\nd\n"), "  → a b c d");
        assert_eq!(one_line("a\x1b[2Jb\nc\rd"), "a\u{fffd}[2Jb c\u{fffd}d");
        assert_eq!(one_line(&"é\n".repeat(50)), "é ".repeat(50).trim_end());
        assert_eq!(one_line(&"é\n".repeat(51)), format!("{}é…", "é ".repeat(49)));
        assert_eq!(one_line("\n"), "");
    }

    #[test]
    fn what_tools_give_is_one_text() {
        assert_eq!(flat(&json!("a")), "a");
        assert_eq!(flat(&json!([{"type": "text", "text": "a"}, {"type": "image"}])), "a");
        assert_eq!(flat(&json!({"a": 1})), r#"{"a":1}"#);
    }

    #[test]
    fn a_turn_has_an_end_and_a_code() {
        let event = |kind, data| SessionEvent { seq: 1, at_ms: 0, turn: None, kind, data };
        let quiet = EventDisplay { says: false, does: false };
        let mut show = EventPrinter::new(quiet);
        assert!(!show.event(&event(SessionEventKind::TurnStart, json!({}))).unwrap());
        assert!(show.end().is_err(), "it is not over");
        assert!(!show.event(&event(SessionEventKind::Text, json!({"text": "a"}))).unwrap());
        assert!(show.event(&event(SessionEventKind::Done, json!({}))).unwrap());
        assert_eq!(show.end().unwrap(), 0);
        show.event(&event(SessionEventKind::Error, json!({"error": "x"}))).unwrap();
        assert_eq!(show.end().unwrap(), EXIT_TURN);
    }
}
