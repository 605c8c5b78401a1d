//! Follows one execution of Cove until its last event: on a WebSocket, as server-sent events, or by
//! polling.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::http::{self, Client};

/// A client's key and the server's expected answer: the example of RFC 6455 §1.3. The key proves
/// that the server speaks WebSocket and is not a secret.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// More than the result of any of these workloads.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// RFC 6455 §5.2.
const OPCODE_CONTINUATION: u8 = 0;
const OPCODE_TEXT: u8 = 1;
const OPCODE_CLOSE: u8 = 8;
const OPCODE_PING: u8 = 9;
const OPCODE_PONG: u8 = 10;

/// The WebSocket of one execution.
#[derive(Debug)]
pub(crate) struct Socket(BufReader<TcpStream>);

/// A frame. `last` is whether it ends its message.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    last: bool,
    opcode: u8,
    payload: Vec<u8>,
}

impl Socket {
    /// Connects to `path`, on a new connection; `client` has the server's address and the token.
    pub(crate) fn connect(client: &mut Client, path: &str) -> Result<Socket, String> {
        let more = format!(
            "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: {KEY}\r\n"
        );
        let (mut stream, head) = client.open("GET", path, &more, b"")?;
        if head.status != 101 {
            let body = http::read_body(&mut stream, &head)?;
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(format!("open a WebSocket: status {} {text:.200}", head.status));
        }
        if head.accept.as_deref() != Some(ACCEPT) {
            return Err(format!("open a WebSocket: it was accepted with {:?}", head.accept));
        }
        Ok(Socket(stream))
    }

    /// Reads events up to the last one and returns it.
    pub(crate) fn last_event(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let event = self.message()?;
            if is_last(&event) {
                return Ok(event);
            }
        }
    }

    /// Closes the connection: the server sends a close frame after the last event, and gets a
    /// reply.
    pub(crate) fn close(mut self) -> Result<(), String> {
        match self.message() {
            Ok(event) => {
                let text = String::from_utf8_lossy(&event).into_owned();
                Err(format!("see the end of events: there is another one: {text:.200}"))
            }
            // It was a close frame; other mistakes of a server that has answered do not fail the
            // job.
            Err(_) => Ok(()),
        }
    }

    /// Returns the next message. A close frame gets a reply and is an error, since events are
    /// missing.
    fn message(&mut self) -> Result<Vec<u8>, String> {
        let mut message = Vec::new();
        loop {
            let frame = read_frame(&mut self.0)?;
            match frame.opcode {
                OPCODE_TEXT | OPCODE_CONTINUATION => {
                    message.extend_from_slice(&frame.payload);
                    if frame.last {
                        return Ok(message);
                    }
                }
                OPCODE_PING => self.answer(OPCODE_PONG, &frame.payload)?,
                OPCODE_PONG => {}
                OPCODE_CLOSE => {
                    self.answer(OPCODE_CLOSE, &frame.payload)?;
                    let reason = frame.payload.get(2..).unwrap_or_default();
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    return Err(format!("read events: closed before the last one: {reason}"));
                }
                opcode => return Err(format!("understand a frame with opcode {opcode}")),
            }
        }
    }

    fn answer(&mut self, opcode: u8, payload: &[u8]) -> Result<(), String> {
        let stream = self.0.get_mut();
        stream.write_all(&control(opcode, payload)).map_err(|e| format!("send a frame: {e}"))
    }
}

/// Returns a client's control frame. Its mask is zero: masks protect intermediate caches, not this
/// client.
fn control(opcode: u8, payload: &[u8]) -> Vec<u8> {
    // RFC 6455 §5.5: at most 125 bytes, so the length is one byte.
    let payload = payload.get(..125).unwrap_or(payload);
    let length = u8::try_from(payload.len()).unwrap_or(0);
    [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

fn read_frame(stream: &mut impl BufRead) -> Result<Frame, String> {
    let mut take = |count: usize| -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).map_err(|e| format!("read a frame: {e}"))?;
        Ok(bytes)
    };
    let number = |bytes: Vec<u8>| bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let first = number(take(1)?);
    let second = number(take(1)?);
    let length = match second & 0x7f {
        126 => number(take(2)?),
        127 => number(take(8)?),
        length => length,
    };
    if second & 0x80 != 0 || length > MESSAGE_BYTES_MAX {
        return Err(format!("take a frame of {length} bytes with second byte {second:#x}"));
    }
    let length = usize::try_from(length).map_err(|e| format!("take a frame: {e}"))?;
    let opcode = u8::try_from(first & 0x0f).map_err(|e| format!("understand a frame: {e}"))?;
    Ok(Frame { last: first & 0x80 != 0, opcode, payload: take(length)? })
}

/// Returns whether this is the last event. The event's name is the first `type`: only its number
/// precedes it, so a program's output cannot be mistaken for it.
fn is_last(event: &[u8]) -> bool {
    let name = b"\"type\":\"";
    let Some(at) = event.windows(name.len()).position(|window| window == name) else {
        return false;
    };
    let rest = event.get(at + name.len()..).unwrap_or_default();
    rest.starts_with(b"verdict\"") || rest.starts_with(b"ended\"")
}

/// The server-sent events of one execution.
#[derive(Debug)]
pub(crate) struct Events {
    stream: BufReader<TcpStream>,
    pending: Vec<u8>,
}

impl Events {
    /// Requests the events at `path`.
    pub(crate) fn open(client: &mut Client, path: &str) -> Result<Events, String> {
        let (mut stream, head) = client.open("GET", path, "accept: text/event-stream\r\n", b"")?;
        if head.status != 200 {
            let body = http::read_body(&mut stream, &head)?;
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(format!("open events: status {} {text:.200}", head.status));
        }
        Ok(Events { stream, pending: Vec::new() })
    }

    /// Reads events up to the last one and returns it.
    pub(crate) fn last_event(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let chunk = http::read_chunk(&mut self.stream)?
                .ok_or("read events: closed before the last one")?;
            self.pending.extend_from_slice(&chunk);
            while let Some(event) = next_event(&mut self.pending) {
                if is_last(&event) {
                    return Ok(event);
                }
            }
        }
    }

    /// Reads to the end and returns the connection to `client`.
    pub(crate) fn close(mut self, client: &mut Client) -> Result<(), String> {
        while http::read_chunk(&mut self.stream)?.is_some() {}
        client.keep(self.stream);
        Ok(())
    }
}

/// Removes the next complete event from `pending` and returns its data.
fn next_event(pending: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = pending.windows(2).position(|window| window == b"\n\n")?;
    let event: Vec<u8> = pending.drain(..end + 2).collect();
    let data = event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data:"));
    // A comment is an event without data.
    Some(data.unwrap_or_default().trim_ascii().to_vec())
}

/// Returns the result in the last event, or why there is none.
pub(crate) fn result(event: &[u8]) -> Result<Value, String> {
    let mut event: Value =
        serde_json::from_slice(event).map_err(|e| format!("understand an event: {e}"))?;
    match event["type"].as_str() {
        Some("verdict") => Ok(event["result"].take()),
        _ => Err(format!("get a result: it ended as {} {}", event["state"], event["message"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Option<(bool, u8, usize)>) {
        let frame = read_frame(&mut &bytes[..]);
        let seen = frame.as_ref().ok().map(|f| (f.last, f.opcode, f.payload.len()));
        assert_eq!(seen, expected, "{frame:?}");
    }

    #[test]
    fn frames_of_every_length_are_read_and_broken_ones_are_errors() {
        check(b"\x81\x02hi", Some((true, OPCODE_TEXT, 2)));
        check(b"\x01\x02hi", Some((false, OPCODE_TEXT, 2)));
        check(&[&b"\x80\x7e\x01\x00"[..], &[b'x'; 256]].concat(), Some((true, 0, 256)));
        let long = [&b"\x81\x7f\0\0\0\0\0\x01\0\0"[..], &[b'x'; 65536]].concat();
        check(&long, Some((true, OPCODE_TEXT, 65536)));
        check(b"\x81\x82\0\0\0\0hi", None);
        check(b"\x81\x7f\x7f\0\0\0\0\0\0\0", None);
        check(b"\x81\x05hi", None);
    }

    #[test]
    fn a_control_frame_is_masked_and_short() {
        assert_eq!(control(OPCODE_PONG, b"hi"), b"\x8a\x82\0\0\0\0hi");
        assert_eq!(control(OPCODE_PONG, &[b'x'; 200]).len(), 6 + 125);
    }

    #[test]
    fn the_last_event_is_told_by_its_name_only() {
        for (event, last) in [
            (r#"{"seq":9,"type":"verdict","verdict":"OK","result":{}}"#, true),
            (r#"{"seq":9,"type":"ended","state":"cancelled"}"#, true),
            (r#"{"seq":3,"type":"stdout","data":"\"type\":\"verdict\""}"#, false),
            (r#"{"seq":3,"type":"exit","stage":"run"}"#, false),
            ("", false),
        ] {
            assert_eq!(is_last(event.as_bytes()), last, "{event}");
        }
    }

    #[test]
    fn events_are_taken_whole_however_they_arrive() {
        let mut pending = b"id: 1\nevent: queued\ndata: {\"seq\":1}\n\n: hello\n\ndata: {".to_vec();
        assert_eq!(next_event(&mut pending).as_deref(), Some(&b"{\"seq\":1}"[..]));
        assert_eq!(next_event(&mut pending).as_deref(), Some(&b""[..]));
        assert_eq!(next_event(&mut pending), None);
        pending.extend_from_slice(b"}\n\n");
        assert_eq!(next_event(&mut pending).as_deref(), Some(&b"{}"[..]));
    }

    #[test]
    fn only_a_verdict_has_a_result() {
        let event = br#"{"seq":9,"type":"verdict","result":{"stdout":"x"}}"#;
        assert_eq!(result(event).unwrap()["stdout"], "x");
        assert!(result(br#"{"seq":9,"type":"ended","state":"dead"}"#).is_err());
    }
}
