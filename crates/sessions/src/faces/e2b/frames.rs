//! Connect's stream messages: a byte of flags, a length of four bytes, and JSON.
//!
//! # References
//! - <https://connectrpc.com/docs/protocol/>

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Value, json};

use super::errors::RpcError;

/// Bytes before every message.
const HEAD_BYTES: usize = 5;
/// Flag of the message that ends a stream.
const END: u8 = 2;
/// Flag of a compressed message.
const COMPRESSED: u8 = 1;

/// Returns the frame of a message.
pub(super) fn message(value: &impl Serialize) -> Bytes {
    // Cannot fail: all keys are strings.
    raw(0, &serde_json::to_vec(value).unwrap_or_default())
}

/// Returns the frame of a message that is JSON already.
pub(super) fn message_of_text(text: &str) -> Bytes {
    raw(0, text.as_bytes())
}

/// Returns the message that ends a stream, with or without an error. Without it, the client treats
/// the stream as broken.
pub(super) fn end(error: Option<&RpcError>) -> Bytes {
    let body = error.map_or_else(|| json!({}), |error| json!({ "error": error.body() }));
    raw(END, body.to_string().as_bytes())
}

fn raw(flags: u8, body: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.push(flags);
    // Messages are created here, and are far below the maximum of four gigabytes.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes.into()
}

/// Extracts messages from received bytes.
#[derive(Debug)]
pub(super) struct EnvelopeReader {
    buf: BytesMut,
    bytes_max: usize,
    has_ended: bool,
}

impl EnvelopeReader {
    /// Creates a reader for messages of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> EnvelopeReader {
        EnvelopeReader { buf: BytesMut::new(), bytes_max, has_ended: false }
    }

    /// Adds received bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Returns the next complete message; none if more input is needed.
    ///
    /// # Errors
    /// If it is too long, compressed, or not JSON.
    pub(super) fn next(&mut self) -> Result<Option<Value>, RpcError> {
        let Some((&[flags, a, b, c, d], rest)) = self.buf.split_first_chunk() else {
            return Ok(None);
        };
        if self.has_ended {
            return Ok(None);
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            let message = format!("a message has more than {} bytes", self.bytes_max);
            return Err(RpcError::new("resource_exhausted", message));
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.buf.advance(HEAD_BYTES);
        let body = self.buf.split_to(length);
        if flags & COMPRESSED != 0 {
            return Err(RpcError::new("unimplemented", "compressed messages are not taken"));
        }
        if flags & END != 0 {
            self.has_ended = true;
            return Ok(None);
        }
        parse(&body).map(Some)
    }

    /// Returns whether no incomplete message is left.
    pub(super) fn is_empty(&self) -> bool {
        self.buf.is_empty() || self.has_ended
    }
}

/// Parses the JSON of a message. An empty body is a message without fields.
///
/// # Errors
/// If it is not JSON.
pub(super) fn parse(body: &[u8]) -> Result<Value, RpcError> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(body).map_err(|error| {
        let error = node::http::plain_json_error(&error);
        RpcError::invalid(format!("the message is not JSON: {error}"))
    })
}

#[cfg(test)]
mod tests {
    //! Messages survive encoding, in any split.

    use super::*;

    #[test]
    fn messages_are_whole_however_they_arrive() {
        let mut sent = Vec::new();
        sent.extend_from_slice(&message(&json!({ "a": 1 })));
        sent.extend_from_slice(&message(&json!({ "b": "ä" })));
        sent.extend_from_slice(&raw(0, b""));
        sent.extend_from_slice(&end(None));
        for step in 1..=sent.len() {
            let mut incoming = EnvelopeReader::new(100);
            let mut seen = Vec::new();
            for piece in sent.chunks(step) {
                incoming.push(piece);
                while let Some(value) = incoming.next().unwrap() {
                    seen.push(value);
                }
            }
            assert_eq!(seen, [json!({ "a": 1 }), json!({ "b": "ä" }), json!({})], "{step}");
            assert!(incoming.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_a_message_is_refused() {
        for (bytes, code) in [
            (raw(0, &[b'x'; 101]), "resource_exhausted"),
            (raw(1, b"{}"), "unimplemented"),
            (raw(0, b"{"), "invalid_argument"),
            (raw(0, b"\xff"), "invalid_argument"),
            (Bytes::from_static(&[0, 255, 255, 255, 255]), "resource_exhausted"),
        ] {
            let mut incoming = EnvelopeReader::new(100);
            incoming.push(&bytes);
            assert_eq!(incoming.next().unwrap_err().code(), code, "{bytes:?}");
        }
        let mut incoming = EnvelopeReader::new(100);
        incoming.push(&[0, 0, 0]);
        assert_eq!(incoming.next().unwrap(), None);
        assert!(!incoming.is_empty());
    }

    #[test]
    fn an_end_says_why() {
        assert_eq!(&end(None)[..], b"\x02\0\0\0\x02{}");
        let error = RpcError::new("not_found", "no");
        let bytes = end(Some(&error));
        assert_eq!(&bytes[5..], br#"{"error":{"code":"not_found","message":"no"}}"#);
    }
}
