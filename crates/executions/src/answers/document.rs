//! JSON documents that are written to their clients piece by piece.
//!
//! No client makes the server hold several copies of a document: short parts are serialized at
//! once, long texts of a tree are escaped as they are sent, and stored JSON is sent as stored.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use serde_json::Value;

use super::AnswerMemory;
use crate::verdict::json_len;

/// Size of one piece. A connection holds a few of them in addition to the document.
const PIECE_BYTES: usize = 64 << 10;
/// Minimum length of text that is escaped when it is sent; shorter text is cheaper to copy.
const LONG_TEXT_BYTES: usize = 16 << 10;
/// Length of text that is escaped at a time: a piece has at most six times as much.
const ESCAPED_AT_ONCE_BYTES: usize = 16 << 10;

/// A JSON document that is being sent to a client, with its memory.
#[derive(Debug)]
pub(crate) struct AnswerDocument {
    parts: VecDeque<DocumentPart>,
    /// Number of bytes that are not sent yet.
    left: usize,
    room: Option<AnswerMemory>,
}

#[derive(Debug)]
enum DocumentPart {
    Written(Bytes),
    /// Text to be escaped, from `at` on.
    Text {
        text: String,
        at: usize,
    },
}

impl AnswerDocument {
    /// Serializes a value without text that is costly in JSON.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub(crate) fn of(value: &impl Serialize) -> Result<AnswerDocument, serde_json::Error> {
        let mut pieces = DocumentWriter::default();
        serde_json::to_writer(&mut pieces, value)?;
        Ok(pieces.finish())
    }

    /// Serializes a tree, whose long texts are escaped as they are sent.
    pub(crate) fn of_tree(value: Value) -> AnswerDocument {
        let mut pieces = DocumentWriter::default();
        pieces.tree(value);
        pieces.finish()
    }

    /// Serializes a value with text before and after it.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub(crate) fn between(
        before: &str,
        value: &impl Serialize,
        behind: &str,
    ) -> Result<AnswerDocument, serde_json::Error> {
        let mut pieces =
            DocumentWriter { open: before.as_bytes().to_vec(), ..DocumentWriter::default() };
        serde_json::to_writer(&mut pieces, value)?;
        pieces.open.extend_from_slice(behind.as_bytes());
        Ok(pieces.finish())
    }

    /// Serializes an object with additional members, whose values are stored JSON. The object must
    /// have members of its own.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub(crate) fn with_members(
        object: &impl Serialize,
        members: Vec<(&str, Vec<u8>)>,
    ) -> Result<AnswerDocument, serde_json::Error> {
        let mut text = serde_json::to_vec(object)?;
        text.pop();
        let mut pieces = DocumentWriter { open: text, ..DocumentWriter::default() };
        for (name, stored) in members {
            pieces.open.extend_from_slice(format!(",\"{name}\":").as_bytes());
            pieces.push(DocumentPart::Written(stored.into()));
        }
        pieces.open.push(b'}');
        Ok(pieces.finish())
    }

    /// Returns the number of bytes that are not sent yet.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Ties memory to the document until it is sent, and sets its size to that of the document.
    #[must_use]
    pub(crate) fn held(mut self, rooms: impl IntoIterator<Item = AnswerMemory>) -> AnswerDocument {
        let held = self.parts.iter().map(|part| match part {
            DocumentPart::Written(bytes) => bytes.len(),
            DocumentPart::Text { text, .. } => text.len(),
        });
        let held: usize = held.sum();
        // All rooms belong to the same tenant; the others are released.
        self.room = rooms.into_iter().next();
        if let Some(room) = &mut self.room {
            room.set(held);
        }
        self
    }

    /// Returns the next piece; None after the last one.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        let piece = loop {
            match self.parts.front_mut()? {
                DocumentPart::Written(bytes) if bytes.is_empty() => {}
                DocumentPart::Written(bytes) => break bytes.split_to(bytes.len().min(PIECE_BYTES)),
                DocumentPart::Text { text, at } if *at == text.len() => {}
                DocumentPart::Text { text, at } => {
                    let mut end = text.len().min(*at + ESCAPED_AT_ONCE_BYTES);
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    let piece = escaped(&text[*at..end]);
                    *at = end;
                    break piece;
                }
            }
            self.parts.pop_front();
        };
        self.left = self.left.saturating_sub(piece.len());
        Some(piece)
    }

    /// Returns the whole document at once, for signatures.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.left);
        while let Some(piece) = self.next_piece() {
            bytes.extend_from_slice(&piece);
        }
        bytes
    }

    /// Returns an answer with this status.
    pub(crate) fn answer(self, status: StatusCode) -> Response {
        let json = HeaderValue::from_static("application/json");
        (status, [(header::CONTENT_TYPE, json)], Body::new(self)).into_response()
    }
}

/// Returns a text in JSON, without its quotation marks.
fn escaped(text: &str) -> Bytes {
    // A string is always JSON.
    let mut quoted = serde_json::to_vec(text).unwrap_or_default();
    quoted.pop();
    Bytes::from(quoted).slice(1..)
}

impl HttpBody for AnswerDocument {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.left).unwrap_or(u64::MAX))
    }
}

/// Collects a document in pieces, so that none of it is moved when it grows.
#[derive(Debug, Default)]
struct DocumentWriter {
    parts: VecDeque<DocumentPart>,
    open: Vec<u8>,
    length: usize,
}

impl DocumentWriter {
    fn push(&mut self, part: DocumentPart) {
        self.close();
        self.length += match &part {
            DocumentPart::Written(bytes) => bytes.len(),
            DocumentPart::Text { text, .. } => json_len(text),
        };
        self.parts.push_back(part);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.length += self.open.len();
            self.parts.push_back(DocumentPart::Written(mem::take(&mut self.open).into()));
        }
    }

    fn text(&mut self, text: String) {
        if text.len() < LONG_TEXT_BYTES {
            return self.small(&text);
        }
        self.open.push(b'"');
        self.push(DocumentPart::Text { text, at: 0 });
        self.open.push(b'"');
    }

    fn small(&mut self, value: &impl Serialize) {
        // Strings, numbers and null always serialize; writing to a vector never fails.
        drop(serde_json::to_writer(self, value));
    }

    /// The parser bounds the recursion: it rejects deeper trees.
    fn tree(&mut self, value: Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.small(&value),
            Value::String(text) => self.text(text),
            Value::Array(values) => {
                self.open.push(b'[');
                for (index, value) in values.into_iter().enumerate() {
                    self.comma(index);
                    self.tree(value);
                }
                self.open.push(b']');
            }
            Value::Object(members) => {
                self.open.push(b'{');
                for (index, (name, value)) in members.into_iter().enumerate() {
                    self.comma(index);
                    self.small(&name);
                    self.open.push(b':');
                    self.tree(value);
                }
                self.open.push(b'}');
            }
        }
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.open.push(b',');
        }
    }

    fn finish(mut self) -> AnswerDocument {
        self.close();
        AnswerDocument { parts: self.parts, left: self.length, room: None }
    }
}

impl io::Write for DocumentWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.open.len().min(PIECE_BYTES - 1));
        self.open.extend_from_slice(&bytes[..taken]);
        if self.open.len() >= PIECE_BYTES {
            self.close();
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
