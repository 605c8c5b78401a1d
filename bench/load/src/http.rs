//! A small HTTP/1.1 client with one kept connection, as an SDK would keep it.
//!
//! An answer is read completely ([`Client::send`]), or the caller reads its body
//! ([`Client::open`]): an event stream has no known length, and a WebSocket is no longer HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest silence of a server; after this the job has failed.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// More than any answer of these workloads; a larger length is a server error.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A kept connection.
#[derive(Debug)]
pub(crate) struct Client {
    address: String,
    head: String,
    stream: Option<BufReader<TcpStream>>,
    request: Vec<u8>,
}

/// Status and body of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// Creates a client of the server at `address` with `token`.
    pub(crate) fn new(address: &str, token: &str) -> Client {
        let head = format!(
            "host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        );
        Client { address: address.to_owned(), head, stream: None, request: Vec::new() }
    }

    /// Sends one request and reads its complete answer.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Reply, String> {
        let (mut stream, head) = self.open(method, path, "", body)?;
        let body = read_body(&mut stream, &head)?;
        if head.keep {
            self.keep(stream);
        }
        Ok(Reply { status: head.status, body })
    }

    /// Sends one request with the header lines `more` in addition to the usual ones, and reads the
    /// answer up to its body.
    pub(crate) fn open(
        &mut self,
        method: &str,
        path: &str,
        more: &str,
        body: &[u8],
    ) -> Result<(BufReader<TcpStream>, Head), String> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        self.request.clear();
        let (usual, length) = (&self.head, body.len());
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\n{usual}{more}content-length: {length}\r\n\r\n"
        )
        .map_err(|e| format!("write a request: {e}"))?;
        self.request.extend_from_slice(body);
        stream.get_mut().write_all(&self.request).map_err(|e| format!("send a request: {e}"))?;
        let head = read_head(&mut stream)?;
        Ok((stream, head))
    }

    /// Takes back a connection whose answer was read to its end.
    pub(crate) fn keep(&mut self, stream: BufReader<TcpStream>) {
        self.stream = Some(stream);
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

/// Head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Value of `sec-websocket-accept`.
    pub(crate) accept: Option<String>,
    length: Option<usize>,
    chunked: bool,
    /// Whether the connection may be reused.
    keep: bool,
}

fn read_head(stream: &mut impl BufRead) -> Result<Head, String> {
    let status_line = read_line(stream)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .ok_or_else(|| format!("understand status line {status_line:?}"))?;
    let mut head = Head { status, accept: None, length: None, chunked: false, keep: true };
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(head);
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("understand header {line:?}"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let length = value.parse().map_err(|e| format!("read a length: {e}"))?;
                head.length = Some(length);
            }
            "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => head.keep = !value.eq_ignore_ascii_case("close"),
            "sec-websocket-accept" => head.accept = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// Reads the complete body that `head` announces.
pub(crate) fn read_body(stream: &mut impl BufRead, head: &Head) -> Result<Vec<u8>, String> {
    match (head.chunked, head.length) {
        (true, _) => read_chunks(stream),
        (false, Some(length)) => read_exactly(stream, length),
        (false, None) if head.status == 204 => Ok(Vec::new()),
        (false, None) => Err("read an answer without a length".to_owned()),
    }
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
    while let Some(chunk) = read_chunk(stream)? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_BYTES_MAX {
            return Err("take a body of that size".to_owned());
        }
    }
    Ok(body)
}

/// Returns the next chunk of a chunked body; none at its end.
pub(crate) fn read_chunk(stream: &mut impl BufRead) -> Result<Option<Vec<u8>>, String> {
    let line = read_line(stream)?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    let length = usize::from_str_radix(digits, 16)
        .map_err(|e| format!("understand chunk length {line:?}: {e}"))?;
    if length == 0 {
        // Trailers, if any, end with an empty line like headers.
        while !read_line(stream)?.is_empty() {}
        return Ok(None);
    }
    let chunk = read_exactly(stream, length)?;
    if !read_line(stream)?.is_empty() {
        return Err("understand a chunked body".to_owned());
    }
    Ok(Some(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &str, status: u16, body: &str, keep: bool) {
        let mut stream = bytes.as_bytes();
        let head = read_head(&mut stream).unwrap();
        assert_eq!(read_body(&mut stream, &head), Ok(body.as_bytes().to_vec()));
        assert_eq!((head.status, head.keep), (status, keep));
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
            let mut stream = bytes.as_bytes();
            let read = read_head(&mut stream).and_then(|head| read_body(&mut stream, &head));
            assert!(read.is_err(), "{bytes:?}");
        }
    }
}
