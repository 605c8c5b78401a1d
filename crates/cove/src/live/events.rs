//! Parser of server-sent events, as the routes of this server write them. Pure.
//!
//! # References
//! - <https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>

use std::collections::VecDeque;

use serde_json::json;

/// Maximum bytes of the data of one event. A longer event is sent without its data.
pub(super) const EVENT_BYTES_MAX: usize = 256 << 10;

/// Bytes of a line in addition to its data.
const FIELD_BYTES_MAX: usize = 16;

/// Event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerSentEvent {
    pub(super) name: String,
    pub(super) id: String,
    /// JSON.
    pub(super) data: String,
    /// True if the data was longer than [`EVENT_BYTES_MAX`].
    pub(super) is_cut: bool,
}

impl ServerSentEvent {
    /// Returns the event as JSON: its data, or its number and type if the data was too long.
    pub(super) fn into_json(self) -> String {
        match self.is_cut {
            false => self.data,
            true => {
                let seq = self.id.parse::<u64>().ok();
                json!({ "seq": seq, "type": self.name, "truncated": true }).to_string()
            }
        }
    }
}

/// Parser of a stream that arrives in pieces. Holds at most one line and one event.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    line: Vec<u8>,
    /// True if the line is longer than its kept part.
    is_long: bool,
    event: ServerSentEvent,
}

impl EventParser {
    /// Parses a piece, and adds the events that end in it.
    pub(super) fn take(&mut self, bytes: &[u8], events: &mut VecDeque<ServerSentEvent>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_end) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let room = (EVENT_BYTES_MAX + FIELD_BYTES_MAX).saturating_sub(self.line.len());
            self.is_long |= text.len() > room;
            self.line.extend_from_slice(text.get(..text.len().min(room)).unwrap_or_default());
            if is_end {
                self.end_line(events);
            }
        }
    }

    fn end_line(&mut self, events: &mut VecDeque<ServerSentEvent>) {
        let line = std::mem::take(&mut self.line);
        let is_long = std::mem::take(&mut self.is_long);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() && !is_long {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() || event.is_cut {
                events.push_back(event);
            }
            return;
        }
        let text = String::from_utf8_lossy(line);
        // A line that begins with a colon is a comment: its field name is empty.
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "id" => self.event.id = value.to_owned(),
            "data" => self.add_data(value, is_long),
            _ => {}
        }
    }

    fn add_data(&mut self, value: &str, is_long: bool) {
        let data = &mut self.event.data;
        self.event.is_cut |= is_long || data.len() + value.len() >= EVENT_BYTES_MAX;
        if self.event.is_cut {
            *data = String::new();
            return;
        }
        if !data.is_empty() {
            data.push('\n');
        }
        data.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events of a text that arrives in pieces of one size.
    fn parsed(text: &str, piece: usize) -> Vec<ServerSentEvent> {
        let (mut parser, mut events) = (EventParser::default(), VecDeque::new());
        for bytes in text.as_bytes().chunks(piece) {
            parser.take(bytes, &mut events);
        }
        events.into()
    }

    fn event(name: &str, id: &str, data: &str) -> ServerSentEvent {
        ServerSentEvent {
            name: name.to_owned(),
            id: id.to_owned(),
            data: data.to_owned(),
            is_cut: false,
        }
    }

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        for (text, expected) in [
            (
                "id: 1\nevent: queued\ndata: {\"seq\":1}\n\n",
                vec![event("queued", "1", "{\"seq\":1}")],
            ),
            (
                ":\n\nevent: a\ndata: {\ndata: }\n\ndata:x\r\n\r\n",
                vec![event("a", "", "{\n}"), event("", "", "x")],
            ),
            ("event: none\n\nid: 3\ndata: half", vec![]),
            ("data: größe\n\n", vec![event("", "", "größe")]),
        ] {
            for piece in [1, 2, 3, 7, text.len()] {
                assert_eq!(parsed(text, piece), expected, "{text:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_named_and_what_follows_is_whole() {
        let long = "x".repeat(EVENT_BYTES_MAX + 1);
        let text = format!("id: 7\nevent: verdict\ndata: {long}\n\nid: 8\ndata: {{}}\n\n");
        let lines = format!("data: {}\n", "y".repeat(1000)).repeat(300) + "id: 9\n\n";
        for piece in [1000, text.len()] {
            let events = parsed(&(text.clone() + &lines), piece);
            assert!(events.iter().all(|event| event.data.len() < EVENT_BYTES_MAX));
            let texts: Vec<_> = events.into_iter().map(ServerSentEvent::into_json).collect();
            let cut = json!({ "seq": 7, "type": "verdict", "truncated": true }).to_string();
            let also = json!({ "seq": 9, "type": "", "truncated": true }).to_string();
            assert_eq!(texts, [cut, "{}".to_owned(), also]);
        }
    }
}
