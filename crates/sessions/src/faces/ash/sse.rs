//! Events of a turn for Ash's clients.
//!
//! Ash's clients parse lines: `event:` names the type of the next `data:`, and other lines are
//! ignored. So each frame has both, in one piece, and the event's number for clients that use it.
//!
//! # References
//! - <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use api::{SessionEvent, SessionEventKind as Kind};
use serde_json::{Value, json};

/// Sent in idle periods. A comment, which clients ignore.
pub(super) const HEARTBEAT: &str = ": heartbeat\n\n";

/// Encoder of a turn's frames.
#[derive(Debug)]
pub(super) struct TurnFrames {
    /// Session id in the clients' form.
    session: String,
    /// True if partial messages were requested.
    partial: bool,
}

impl TurnFrames {
    pub(super) fn new(session: String, partial: bool) -> TurnFrames {
        TurnFrames { session, partial }
    }

    /// Returns the first frame.
    pub(super) fn start(&self) -> String {
        let data = json!({ "sessionId": self.session, "version": env!("CARGO_PKG_VERSION") });
        frame(None, "session_start", &data)
    }

    /// Returns the last frame.
    pub(super) fn done(&self, seq: Option<u64>) -> String {
        frame(seq, "done", &json!({ "sessionId": self.session }))
    }

    /// Returns an error frame and the last frame.
    pub(super) fn broken(&self, why: &str) -> String {
        frame(None, "error", &json!({ "error": why })) + &self.done(None)
    }

    /// Translates an event into no frame, one, or two.
    pub(super) fn of(&self, event: &SessionEvent) -> String {
        let seq = Some(event.seq);
        let data = &event.data;
        let field = |name: &str| data.get(name).cloned().unwrap_or_default();
        match event.kind {
            Kind::TextDelta => {
                let delta = json!({ "type": "text_delta", "text": field("delta") });
                self.piece(seq, "text_delta", data, &delta)
            }
            Kind::ThinkingDelta => {
                let delta = json!({ "type": "thinking_delta", "thinking": field("delta") });
                self.piece(seq, "thinking_delta", data, &delta)
            }
            Kind::InputJsonDelta => {
                let delta = json!({ "type": "input_json_delta", "partial_json": field("delta") });
                self.piece(seq, "input_json_delta", &delta, &delta)
            }
            // A client that received the pieces does not need the whole text.
            Kind::Reasoning if !self.partial => {
                frame(seq, "thinking_delta", &json!({ "delta": field("text") }))
            }
            Kind::ToolUse => frame(seq, "tool_use", data),
            Kind::ToolResult => {
                let data = json!({
                    "tool_use_id": field("tool_use_id"),
                    "content": content(data.get("content")),
                    "is_error": field("is_error"),
                });
                frame(seq, "tool_result", &data)
            }
            Kind::Message => frame(seq, "message", data),
            Kind::TurnComplete => {
                let data = json!({ "numTurns": field("num_turns"), "result": field("result") });
                frame(seq, "turn_complete", &data)
            }
            Kind::Error => frame(seq, "error", data),
            Kind::Done => self.done(seq),
            Kind::TurnStart | Kind::Text | Kind::Reasoning | Kind::Lifecycle => String::new(),
        }
    }

    /// Returns a piece of a message, by its own name and as the agent's line.
    fn piece(&self, seq: Option<u64>, name: &str, data: &Value, delta: &Value) -> String {
        let line = json!({
            "type": "stream_event",
            "event": { "type": "content_block_delta", "index": 0, "delta": delta },
            "parent_tool_use_id": null,
        });
        frame(seq, name, data) + &frame(seq, "message", &line)
    }
}

/// Returns a tool's answer, as text if it consists only of text.
pub(super) fn content(content: Option<&Value>) -> Value {
    let Some(Value::Array(blocks)) = content else { return content.cloned().unwrap_or_default() };
    let text = |block: &Value| match block.get("type").and_then(Value::as_str) {
        Some("text") => block.get("text").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    match blocks.iter().map(text).collect::<Option<Vec<String>>>() {
        Some(texts) => Value::String(texts.concat()),
        None => Value::Array(blocks.clone()),
    }
}

fn frame(seq: Option<u64>, name: &str, data: &Value) -> String {
    let id = seq.map(|seq| format!("id: {seq}\n")).unwrap_or_default();
    let data = one_line(data.to_string());
    format!("{id}event: {name}\ndata: {data}\n\n")
}

/// Escapes JSON into one line for all readers: Python's `splitlines` also splits at characters that
/// JSON permits in strings.
fn one_line(json: String) -> String {
    const ENDS: [(char, &str); 3] =
        [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    if !json.contains(ENDS.map(|(end, _)| end)) {
        return json;
    }
    ENDS.iter().fold(json, |json, (end, escaped)| json.replace(*end, escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the translation of an event, by event and data; both of Ash's parsers agree.
    fn check(partial: bool, kind: Kind, data: Value, expected: &[(&str, Value)]) {
        let frames = TurnFrames::new("the-session".to_owned(), partial);
        let event = SessionEvent { seq: 7, at_ms: 1, turn: Some("t".to_owned()), kind, data };
        let text = frames.of(&event);
        let mut found = Vec::new();
        let mut name = "";
        for line in text.split('\n') {
            if let Some(rest) = line.strip_prefix("event: ") {
                name = rest;
            } else if let Some(rest) = line.strip_prefix("data: ") {
                found.push((name, serde_json::from_str(rest).unwrap()));
            } else {
                assert!(line.is_empty() || line == "id: 7", "{line:?}");
            }
        }
        assert_eq!(found, expected);
    }

    fn line(delta: Value) -> Value {
        json!({
            "type": "stream_event",
            "event": { "type": "content_block_delta", "index": 0, "delta": delta },
            "parent_tool_use_id": null,
        })
    }

    #[test]
    fn events_have_ashs_names_and_fields() {
        check(false, Kind::TurnStart, json!({"content": "hi"}), &[]);
        check(false, Kind::Text, json!({"text": "x"}), &[]);
        let delta = json!({"delta": "x"});
        let raw = line(json!({"type": "text_delta", "text": "x"}));
        check(true, Kind::TextDelta, delta.clone(), &[("text_delta", delta), ("message", raw)]);
        let delta = json!({"delta": "{"});
        let of_input = json!({"type": "input_json_delta", "partial_json": "{"});
        let raw = line(of_input.clone());
        let expected = [("input_json_delta", of_input), ("message", raw)];
        check(true, Kind::InputJsonDelta, delta, &expected);
        let thought = json!({"text": "hm"});
        let whole = [("thinking_delta", json!({"delta": "hm"}))];
        check(false, Kind::Reasoning, thought.clone(), &whole);
        check(true, Kind::Reasoning, thought, &[]);
        let used = json!({"id": "t1", "name": "Bash", "input": {"command": "ls"}});
        check(false, Kind::ToolUse, used.clone(), &[("tool_use", used)]);
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let result = json!({"tool_use_id": "t1", "content": blocks, "is_error": false});
        let shown = json!({"tool_use_id": "t1", "content": "ab", "is_error": false});
        check(false, Kind::ToolResult, result, &[("tool_result", shown)]);
        let complete = json!({"num_turns": 2, "result": "ok", "is_error": false});
        let shown = json!({"numTurns": 2, "result": "ok"});
        check(false, Kind::TurnComplete, complete, &[("turn_complete", shown)]);
        let error = json!({"error": "why"});
        check(false, Kind::Error, error.clone(), &[("error", error)]);
        let done = json!({"sessionId": "the-session"});
        check(false, Kind::Done, json!({}), &[("done", done)]);
    }

    #[test]
    fn what_is_not_only_text_stays_as_it_is() {
        let image = json!([{"type": "text", "text": "a"}, {"type": "image", "source": {}}]);
        assert_eq!(content(Some(&image)), image);
        assert_eq!(content(Some(&json!("text"))), json!("text"));
        assert_eq!(content(None), Value::Null);
    }

    #[test]
    fn data_is_one_line_for_every_reader() {
        let text = "a\u{85}b\u{2028}c\u{2029}d\ne\u{b}";
        let line = one_line(json!({ "text": text }).to_string());
        assert!(line.is_ascii(), "{line}");
        assert!(!line.contains(['\n', '\u{b}']));
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["text"], text);
    }

    #[test]
    fn every_end_is_told() {
        let frames = TurnFrames::new("s".to_owned(), false);
        let done = "event: done\ndata: {\"sessionId\":\"s\"}\n\n";
        let broken = format!("event: error\ndata: {{\"error\":\"why\"}}\n\n{done}");
        assert_eq!(frames.broken("why"), broken);
        assert!(frames.start().starts_with("event: session_start\ndata: {\"sessionId\":\"s\","));
    }
}
