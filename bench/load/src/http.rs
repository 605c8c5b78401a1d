//! A small HTTP/1.1 client with one kept connection, as an SDK would keep it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A server that says nothing for this long has failed the job.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// More than any answer of these workloads; a larger length is a confused server.
const BODY_BYTES_MAX: usize = 64 << 20;

/// One kept connection.
#[derive(Debug)]
pub(crate) struct Client {
    address: String,
    head: String,
    stream: Option<BufReader<TcpStream>>,
    request: Vec<u8>,
}

/// Status and body of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// A client of the server at `address` that shows `token`.
    pub(crate) fn new(address: &str, token: &str) -> Client {
        let head = format!(
            "host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        );
        Client { address: address.to_owned(), head, stream: None, request: Vec::new() }
    }

    /// Sends one request and reads its whole answer.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Reply, String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        self.request.clear();
        let length = body.len();
        let head = &self.head;
        write!(self.request, "{method} {path} HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n")
            .map_err(|e| format!("write a request: {e}"))?;
        self.request.extend_from_slice(body);
        stream.get_mut().write_all(&self.request).map_err(|e| format!("send a request: {e}"))?;
        let (reply, keep) = read_reply(&mut stream)?;
        if keep {
            self.stream = Some(stream);
        }
        Ok(reply)
    }

    fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let stream = TcpStream::connect(&self.address)
            .map_err(|e| format!("connect to {}: {e}", self.address))?;
        let prepare =
            stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(SILENCE_MAX)));
        prepare.map_err(|e| format!("prepare a connection: {e}"))?;
        Ok(BufReader::with_capacity(64 << 10, stream))
    }
}

/// Reads one answer; the flag says whether the connection may be used again.
fn read_reply(stream: &mut impl BufRead) -> Result<(Reply, bool), String> {
    let status_line = read_line(stream)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or_else(|| format!("understand status line {status_line:?}"))?;
    let (mut length, mut chunked, mut keep) = (None, false, true);
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("understand header {line:?}"))?;
        let value = value.trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                length = Some(value.parse().map_err(|e| format!("read a length: {e}"))?)
            }
            "transfer-encoding" => chunked = value == "chunked",
            "connection" => keep = value != "close",
            _ => {}
        }
    }
    let body = match (chunked, length) {
        (true, _) => read_chunks(stream)?,
        (false, Some(length)) => read_exactly(stream, length)?,
        (false, None) if status == 204 => Vec::new(),
        (false, None) => return Err("read an answer without a length".to_owned()),
    };
    Ok((Reply { status, body }, keep))
}

fn read_line(stream: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    let read =
        stream.take(64 << 10).read_line(&mut line).map_err(|e| format!("read an answer: {e}"))?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None if read == 0 => Err("read an answer: the server closed the connection".to_owned()),
        None => Err(format!("understand line {line:?}")),
    }
}

fn read_exactly(stream: &mut impl BufRead, length: usize) -> Result<Vec<u8>, String> {
    if length > BODY_BYTES_MAX {
        return Err(format!("take a body of {length} bytes"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(|e| format!("read a body: {e}"))?;
    Ok(body)
}

fn read_chunks(stream: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16)
            .map_err(|e| format!("understand chunk length {line:?}: {e}"))?;
        if length == 0 {
            // Trailers, if any, end with an empty line like headers.
            while !read_line(stream)?.is_empty() {}
            return Ok(body);
        }
        body.extend_from_slice(&read_exactly(stream, length)?);
        if body.len() > BODY_BYTES_MAX || !read_line(stream)?.is_empty() {
            return Err("understand a chunked body".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &str, status: u16, body: &str, keep: bool) {
        let mut stream = bytes.as_bytes();
        let expected = (Reply { status, body: body.as_bytes().to_vec() }, keep);
        assert_eq!(read_reply(&mut stream), Ok(expected));
        assert_eq!(stream, b"", "nothing of the next answer is swallowed, nothing is left over");
    }

    #[test]
    fn bodies_of_every_kind_are_read_to_their_end() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true);
        check(
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nConnection: close\r\n\r\n",
            503,
            "",
            false,
        );
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\nA;x=y\r\n 123456789\r\n0\r\n\r\n",
            200,
            "hello 123456789",
            true,
        );
        check("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true);
    }

    #[test]
    fn broken_answers_are_errors() {
        for bytes in [
            "",
            "SSH-2.0\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        ] {
            assert!(read_reply(&mut bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
