//! A blocking WebSocket client (RFC 6455) that can also do what no client should.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::http::{Client, READ_TIMEOUT, Request, Response, read_head, read_rest};
use crate::wait::Stopwatch;

/// The nonce of RFC 6455 §1.3, and what a server must answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Any mask will do, as long as the server has to undo it.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x01, 0x7f];
/// Largest message that a test accepts.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What came over a WebSocket. Pings are answered and not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// The other side's goodbye: its code (1005 when it gave none) and reason.
    Close(u16, String),
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct WebSocket {
    reader: BufReader<TcpStream>,
    writer: Writer,
    /// Headers of the answer to the handshake, with lower-case names.
    pub headers: Vec<(String, String)>,
}

/// The sending half, for a thread of its own.
#[derive(Debug)]
pub struct Writer(TcpStream);

impl Client {
    /// Opens a WebSocket at `target` with the client's token.
    ///
    /// # Errors
    /// The answer of a server that does not want one.
    pub fn websocket(&self, target: &str) -> Result<WebSocket, Response> {
        self.websocket_by(&Request::new("GET", target))
    }

    /// The same with a request that has headers of its own.
    ///
    /// # Errors
    /// The answer of a server that does not want one.
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
    /// When the connection is gone.
    pub fn send(&mut self, message: &Value) {
        self.writer.text(&message.to_string()).expect("send a message");
    }

    /// The sending half, to use beside this one.
    #[must_use]
    pub fn writer(&self) -> Writer {
        Writer(self.writer.0.try_clone().expect("share the socket"))
    }

    /// The next message.
    ///
    /// # Panics
    /// When the connection breaks, or nothing comes for long.
    #[must_use]
    pub fn message(&mut self) -> Message {
        self.try_message().expect("read a message")
    }

    /// The next message as JSON.
    ///
    /// # Panics
    /// When it is a goodbye, or no JSON.
    #[must_use]
    pub fn json(&mut self) -> Value {
        match self.message() {
            Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?} in place of an event"),
        }
    }

    /// Everything up to the goodbye, and its code.
    ///
    /// # Panics
    /// When the connection ends without a goodbye.
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

    /// The next message.
    ///
    /// # Errors
    /// When the connection breaks or nothing comes for long.
    pub fn try_message(&mut self) -> io::Result<Message> {
        let mut whole = Vec::new();
        let mut kind = None;
        let watch = Stopwatch::start();
        loop {
            let (last, opcode, payload) = self.frame()?;
            match opcode {
                PING => {
                    self.writer.frame(PONG, &payload)?;
                    // Whoever lives and has nothing to say would be waited for without an end.
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

    /// Whether it is the last frame of a message, its kind, its content.
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
        // A server does not mask (§5.1), so that the highest bit is never set.
        if head[1] > 127 || length > MESSAGE_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {length} bytes, {head:?}")));
        }
        let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.reader.read_exact(&mut payload)?;
        Ok((head[0] & 0x80 != 0, head[0] & 0x0f, payload))
    }

    /// How long to wait for the other side, in place of the usual time.
    ///
    /// # Panics
    /// When the socket is gone.
    pub fn set_timeout(&self, limit: Duration) {
        self.writer.0.set_read_timeout(Some(limit)).expect("set a timeout");
    }

    /// Reads up to `count` bytes of what comes, whatever it is, and says how many came.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn sip(&mut self, count: usize) -> io::Result<usize> {
        let there = self.reader.fill_buf()?.len().min(count);
        self.reader.consume(there);
        Ok(there)
    }

    /// Goes away without a goodbye.
    pub fn cut(self) {
        // The other half may be in a thread of its own.
        drop(self.writer.0.shutdown(Shutdown::Both));
    }
}

impl Writer {
    /// Sends text.
    ///
    /// # Errors
    /// When the connection is gone, or the server takes nothing for long.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.frame(TEXT, text.as_bytes())
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection is gone, or the server takes nothing for long.
    pub fn binary(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame(BINARY, bytes)
    }

    /// Says goodbye.
    ///
    /// # Errors
    /// When the connection is gone.
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
