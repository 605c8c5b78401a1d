//! Protocol of a new connection, detected by its first bytes before anything is read.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8446#section-5.1> (records of TLS)
//! - <https://www.rfc-editor.org/rfc/rfc9113#section-3.4> (preface of HTTP/2)

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::refusal::TLS_HANDSHAKE;

/// Beginning of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Number of its bytes with which no request of HTTP/1.1 begins.
const PREFACE_BYTES: usize = 3;
/// Pause before the next check for a byte of a possible preface. It doubles up to the maximum, so
/// that a client that sends one byte costs almost nothing.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    Http1,
    /// By prior knowledge, without TLS.
    Http2,
    Tls,
}

/// Peeks at the first bytes, which remain to be read. An end counts as HTTP/1.1.
pub(super) async fn detect(stream: &TcpStream) -> io::Result<ClientProtocol> {
    let mut first = [0; PREFACE_BYTES];
    let mut pause = PAUSE;
    loop {
        let count = stream.peek(&mut first).await?;
        let begun = &first[..count];
        match begun.first() {
            Some(&TLS_HANDSHAKE) => return Ok(ClientProtocol::Tls),
            None => return Ok(ClientProtocol::Http1),
            Some(_) if !PREFACE.starts_with(begun) => return Ok(ClientProtocol::Http1),
            Some(_) if count == PREFACE_BYTES => return Ok(ClientProtocol::Http2),
            // `P` may become `POST`; bytes already received cause no wake-up.
            Some(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
