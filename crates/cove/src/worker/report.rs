//! Reports of a worker: one line for each event, as text on standard error or as JSON on standard
//! output. Inputs and results of tools are never part of a report.

use std::io::{self, Write as _};

use node::clock;
use serde_json::{Map, Value};

use crate::plain_text::plain;

/// Prints events.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerReport {
    json: bool,
}

impl WorkerReport {
    /// Returns a report that prints text, or JSON lines.
    pub(super) fn new(json: bool) -> WorkerReport {
        WorkerReport { json }
    }

    /// Prints one event with its fields, which is an object. Write errors are ignored, so that a
    /// closed output does not stop the work.
    pub(super) fn emit(self, event: &str, fields: Value) {
        let at = clock::rfc3339_ms(clock::wall());
        let line = line(self.json, &at, event, fields);
        if self.json {
            let mut out = io::stdout().lock();
            drop(writeln!(out, "{line}").and_then(|()| out.flush()));
        } else {
            drop(writeln!(io::stderr(), "{line}"));
        }
    }
}

fn line(json: bool, at: &str, event: &str, fields: Value) -> String {
    let Value::Object(fields) = fields else { return String::new() };
    if json {
        let mut document = Map::new();
        document.insert("at".to_owned(), at.into());
        document.insert("event".to_owned(), event.into());
        document.extend(fields);
        return Value::Object(document).to_string();
    }
    let mut line = format!("{at} {event}");
    for (name, value) in fields {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => plain(&text),
            other => other.to_string(),
        };
        let is_bare = !value.is_empty() && !value.contains([' ', '"', '=']);
        let value = if is_bare { value } else { format!("{value:?}") };
        line.push_str(&format!(" {name}={value}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let fields = json!({ "work": "w_1", "error": "a\nb \u{1b}[31m", "ms": 3, "none": null });
        let text = line(false, "now", "failed", fields.clone());
        assert!(text.starts_with("now failed "), "{text}");
        assert!(text.contains(" work=w_1") && text.contains(" ms=3"), "{text}");
        assert!(!text.contains(['\n', '\u{1b}']) && !text.contains("none"), "{text}");
        let document: Value = serde_json::from_str(&line(true, "now", "failed", fields)).unwrap();
        assert_eq!((&document["event"], &document["ms"]), (&json!("failed"), &json!(3)));
    }
}
