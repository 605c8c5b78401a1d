//! Blocking WebSocket client (RFC 6455) that can also violate the protocol.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::http::{Client, READ_TIMEOUT, Request, Response, read_head, read_rest};
use crate::wait::Stopwatch;

/// Nonce of RFC 6455 §1.3, and the server's required response.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Any mask is sufficient, as long as the server has to undo it.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x01, 0x7f];
/// Largest message that a test accepts.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Received message. Pings are answered and not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// Close frame: its code (1005 if it has none) and reason.
    Close(u16, String),
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct WebSocket {
    reader: BufReader<TcpStream>,
    writer: Writer,
    /// Headers of the handshake response, with lower-case names.
    pub headers: Vec<(String, String)>,
}

/// Sending half, for another thread.
#[derive(Debug)]
pub struct Writer(TcpStream);

impl Client {
    /// Opens a WebSocket at `target` with the client's token.
    ///
    /// # Errors
    /// The response of a server that rejects it.
    pub fn websocket(&self, target: &str) -> Result<WebSocket, Response> {
        self.websocket_by(&Request::new("GET", target))
    }

    /// Opens a WebSocket with a request that has additional headers.
    ///
    /// # Errors
    /// The response of a server that rejects it.
    pub fn websocket_by(&self, request: &Request) -> Result<WebSocket, Response> {
        let request = request
            .clone()
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", KEY);
        let stream = self.open(&request).expect("send the handshake");
        let mut reader = BufReader::new(stream);
        let mut response = read_head(&mut reader).expect("read the answer to the handshake");
        if response.status != 101 {
            read_rest(&mut reader, &mut response).expect("read the refusal");
            return Err(response);
        }
        let accept = response.header("sec-websocket-accept").filter(|it| *it == ACCEPT);
        accept.expect("the answer to the key");
        let writer = Writer(reader.get_ref().try_clone().expect("share the socket"));
        Ok(WebSocket { reader, writer, headers: response.headers })
    }
}

impl WebSocket {
    /// Sends one JSON message.
    ///
    /// # Panics
    /// If the connection is closed.
    pub fn send(&mut self, message: &Value) {
        self.writer.text(&message.to_string()).expect("send a message");
    }

    /// Returns another sending half.
    #[must_use]
    pub fn writer(&self) -> Writer {
        Writer(self.writer.0.try_clone().expect("share the socket"))
    }

    /// Returns the next message.
    ///
    /// # Panics
    /// If the connection breaks, or nothing arrives in time.
    #[must_use]
    pub fn message(&mut self) -> Message {
        self.try_message().expect("read a message")
    }

    /// Returns the next message as JSON.
    ///
    /// # Panics
    /// If it is a close frame, or not JSON.
    #[must_use]
    pub fn json(&mut self) -> Value {
        match self.message() {
            Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?} in place of an event"),
        }
    }

    /// Returns all messages up to the close frame, and its code.
    ///
    /// # Panics
    /// If the connection ends without a close frame.
    #[must_use]
    pub fn rest(&mut self) -> (Vec<Value>, u16) {
        let mut events = Vec::new();
        loop {
            match self.message() {
                Message::Text(text) => events.push(serde_json::from_str(&text).expect("JSON")),
                Message::Close(code, _) => return (events, code),
                Message::Binary(bytes) => panic!("{} bytes that are no event", bytes.len()),
            }
        }
    }

    /// Returns the next message.
    ///
    /// # Errors
    /// If the connection breaks, or nothing arrives in time.
    pub fn try_message(&mut self) -> io::Result<Message> {
        let mut whole = Vec::new();
        let mut kind = None;
        let watch = Stopwatch::start();
        loop {
            let (last, opcode, payload) = self.frame()?;
            match opcode {
                PING => {
                    self.writer.frame(PONG, &payload)?;
                    // Otherwise a server that only sends pings would be awaited forever.
                    if watch.elapsed() > READ_TIMEOUT {
                        return Err(io::Error::other("nothing but pings came"));
                    }
                }
                PONG => {}
                CLOSE => {
                    let code =
                        payload.get(..2).map_or(1005, |it| u16::from_be_bytes([it[0], it[1]]));
                    let reason = payload.get(2..).unwrap_or_default();
                    return Ok(Message::Close(code, String::from_utf8_lossy(reason).into_owned()));
                }
                _ => {
                    kind.get_or_insert(opcode);
                    whole.extend_from_slice(&payload);
                    if !last {
                        continue;
                    }
                    return match kind {
                        Some(TEXT) => {
                            String::from_utf8(whole).map(Message::Text).map_err(io::Error::other)
                        }
                        Some(BINARY) => Ok(Message::Binary(whole)),
                        other => Err(io::Error::other(format!("a frame of kind {other:?}"))),
                    };
                }
            }
        }
    }

    /// Returns whether a frame is the last of a message, its opcode, and its content.
    fn frame(&mut self) -> io::Result<(bool, u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.reader.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.reader.read_exact(&mut bytes)?;
                u64::from(u16::from_be_bytes(bytes))
            }
            127 => {
                let mut bytes = [0; 8];
                self.reader.read_exact(&mut bytes)?;
                u64::from_be_bytes(bytes)
            }
            short => u64::from(short),
        };
        // A server does not mask (§5.1), so the highest bit is never set.
        if head[1] > 127 || length > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {length} bytes, {head:?}")));
        }
        let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.reader.read_exact(&mut payload)?;
        Ok((head[0] & 0x80 != 0, head[0] & 0x0f, payload))
    }

    /// Sets the receive timeout.
    ///
    /// # Panics
    /// If the socket is closed.
    pub fn set_timeout(&self, limit: Duration) {
        self.writer.0.set_read_timeout(Some(limit)).expect("set a timeout");
    }

    /// Reads up to `count` bytes of any kind, and returns their number.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn sip(&mut self, count: usize) -> io::Result<usize> {
        let there = self.reader.fill_buf()?.len().min(count);
        self.reader.consume(there);
        Ok(there)
    }

    /// Closes the connection without a close frame.
    pub fn cut(self) {
        // The other half may be in another thread.
        drop(self.writer.0.shutdown(Shutdown::Both));
    }
}

impl Writer {
    /// Sends text.
    ///
    /// # Errors
    /// If the connection is closed, or the server does not read in time.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.frame(TEXT, text.as_bytes())
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the connection is closed, or the server does not read in time.
    pub fn binary(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame(BINARY, bytes)
    }

    /// Sends a close frame.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn close(&mut self, code: u16) -> io::Result<()> {
        self.frame(CLOSE, &code.to_be_bytes())
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = vec![0x80 | opcode];
        match u16::try_from(payload.len()) {
            Ok(length) if length < 126 => bytes.push(0x80 | payload.len().to_le_bytes()[0]),
            Ok(length) => {
                bytes.push(0x80 | 126);
                bytes.extend(length.to_be_bytes());
            }
            Err(_) => {
                bytes.push(0x80 | 127);
                bytes.extend((payload.len() as u64).to_be_bytes());
            }
        }
        bytes.extend(MASK);
        bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.0.write_all(&bytes)
    }
}
