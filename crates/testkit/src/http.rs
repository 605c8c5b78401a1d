//! Blocking HTTP/1.1 client over a plain socket, which can also send invalid requests.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Longest silence of the server that a test accepts.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(90);
/// Largest response a test accepts.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Client of one server, with one connection per request.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
}

/// Request as it is sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// Path with query.
    pub target: String,
    /// Headers besides `content-length`; `host` and `connection` (`close`) are added unless they
    /// are present.
    pub headers: Vec<(String, String)>,
    /// Body; empty means none.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns a request without headers and body.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Request {
        Request {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    fn head(&self, length: Option<u64>) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            text.push_str("host: localhost\r\n");
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        match length {
            Some(length) => text.push_str(&format!("content-length: {length}\r\n")),
            None => text.push_str("transfer-encoding: chunked\r\n"),
        }
        // An upgrade request has its own `connection` header.
        if !self.headers.iter().any(|(name, _)| name == "connection") {
            text.push_str("connection: close\r\n");
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// Received response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Body, chunks joined.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {} {}", self.status, self.text()))
    }
}

impl Client {
    /// Returns a client of `address` with `token`.
    #[must_use]
    pub fn new(address: SocketAddr, token: Option<String>) -> Client {
        Client { address, token }
    }

    /// Returns a client of another server with the same token.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Client {
        Client { address, token: self.token.clone() }
    }

    /// Returns a client without a token.
    #[must_use]
    pub fn anonymous(&self) -> Client {
        Client { address: self.address, token: None }
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs one execution and waits for its result.
    #[must_use]
    pub fn run(&self, execution: &Value) -> Response {
        self.send(&self.execution(execution))
    }

    /// Returns the request that [`Client::run`] sends.
    #[must_use]
    pub fn execution(&self, execution: &Value) -> Request {
        Request::new("POST", "/v1/executions?wait=true")
            .header("content-type", "application/json")
            .body(execution.to_string())
    }

    /// Sends `GET target`.
    #[must_use]
    pub fn get(&self, target: &str) -> Response {
        self.send(&Request::new("GET", target))
    }

    /// Sends a request with a content length and reads the response.
    #[must_use]
    pub fn send(&self, request: &Request) -> Response {
        self.try_send(request).unwrap_or_else(|error| {
            panic!("{} {}: {error}", request.method, request.target);
        })
    }

    /// Sends a request, and returns failures as errors.
    ///
    /// # Errors
    /// If the server cannot be reached or does not respond in HTTP.
    pub fn try_send(&self, request: &Request) -> io::Result<Response> {
        let mut stream = self.open(request)?;
        read_response(&mut stream)
    }

    /// Sends a request and returns the connection without reading, so that the test can abandon it.
    ///
    /// # Errors
    /// If the server cannot be reached, or closes while the request is written.
    pub fn open(&self, request: &Request) -> io::Result<TcpStream> {
        let mut stream = self.connect()?;
        let length = u64::try_from(request.body.len()).map_err(io::Error::other)?;
        stream.write_all(&self.authorized(request).head(Some(length)))?;
        stream.write_all(&request.body)?;
        Ok(stream)
    }

    /// Announces a body of `length` bytes, sends only its beginning and reads the response.
    ///
    /// # Errors
    /// If the server cannot be reached or does not respond in HTTP.
    pub fn announce(&self, request: &Request, length: u64) -> io::Result<Response> {
        let mut stream = self.connect()?;
        stream.write_all(&self.authorized(request).head(Some(length)))?;
        stream.write_all(&request.body)?;
        read_response(&mut stream)
    }

    /// Sends `total` bytes in chunks, unless the server responds before; returns the response and
    /// the number of sent bytes.
    ///
    /// # Errors
    /// If the server cannot be reached or does not respond in HTTP.
    pub fn stream(&self, request: &Request, total: u64) -> io::Result<(Response, u64)> {
        let mut stream = self.connect()?;
        stream.write_all(&self.authorized(request).head(None))?;
        let mut reading = stream.try_clone()?;
        let reader = thread::spawn(move || read_response(&mut reading));
        let mut chunk = b"10000\r\n".to_vec();
        chunk.resize(chunk.len() + 0x10000, b' ');
        chunk.extend_from_slice(b"\r\n");
        let mut sent = 0;
        while sent < total && !reader.is_finished() {
            // With an error the server rejects the rest of the body.
            if stream.write_all(&chunk).is_err() {
                break;
            }
            sent += 0x10000;
        }
        if sent >= total {
            stream.write_all(b"0\r\n\r\n")?;
        }
        let response = reader.join().map_err(|_| io::Error::other("reader panicked"))??;
        Ok((response, sent))
    }

    /// Sends these bytes unchanged and reads the response.
    ///
    /// # Errors
    /// If the server cannot be reached or does not respond in HTTP.
    pub fn raw(&self, bytes: &[u8]) -> io::Result<Response> {
        let mut stream = self.connect()?;
        stream.write_all(bytes)?;
        stream.shutdown(Shutdown::Write)?;
        read_response(&mut stream)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn authorized(&self, request: &Request) -> Request {
        let own = request.headers.iter().any(|(name, _)| name == "authorization");
        match &self.token {
            Some(token) if !own => {
                request.clone().header("authorization", &format!("Bearer {token}"))
            }
            _ => request.clone(),
        }
    }
}

/// Reads a whole response.
///
/// # Errors
/// If the connection breaks, or the response is not HTTP/1.1.
fn read_response(stream: &mut TcpStream) -> io::Result<Response> {
    let mut reader = BufReader::new(stream);
    let mut response = read_head(&mut reader)?;
    if response.status == 100 {
        return read_response(reader.into_inner());
    }
    read_rest(&mut reader, &mut response)?;
    Ok(response)
}

/// Reads a status line and headers.
pub(crate) fn read_head(reader: &mut impl BufRead) -> io::Result<Response> {
    let line = read_line(reader)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("status line {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(Response { status, headers, body: Vec::new() });
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| io::Error::other(format!("header {line:?}")))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads the body that the headers announce.
pub(crate) fn read_rest(reader: &mut impl BufRead, response: &mut Response) -> io::Result<()> {
    let chunked = response.header("transfer-encoding").is_some_and(|value| value == "chunked");
    if chunked {
        read_chunks(reader, &mut response.body)?;
    } else if let Some(length) = response.header("content-length") {
        let length: usize = length.parse().map_err(io::Error::other)?;
        if length > RESPONSE_BYTES_MAX {
            return Err(io::Error::other(format!("a response of {length} bytes")));
        }
        response.body.resize(length, 0);
        reader.read_exact(&mut response.body)?;
    } else {
        reader.read_to_end(&mut response.body)?;
    }
    Ok(())
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let size = read_line(reader)?;
        let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
        let start = body.len();
        if start + size > RESPONSE_BYTES_MAX {
            return Err(io::Error::other("a response without end"));
        }
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        read_line(reader)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed"));
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    /// Serves `reply` once, and returns the response with the request that the server received.
    fn ask(reply: &'static str, request: &Request) -> (Response, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(listener.local_addr().unwrap(), Some("t".to_owned()));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; 4096];
            let count = stream.read(&mut asked).unwrap();
            stream.write_all(reply.as_bytes()).unwrap();
            String::from_utf8_lossy(&asked[..count]).into_owned()
        });
        let response = client.send(request);
        (response, server.join().unwrap())
    }

    #[test]
    fn a_response_is_read_by_length_by_chunks_and_to_the_end() {
        for reply in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: b\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: b\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx-a: b\r\n\r\nhello",
        ] {
            let (response, asked) = ask(reply, &Request::new("GET", "/x"));
            assert_eq!(response.status, 200);
            assert_eq!(response.header("x-a"), Some("b"));
            assert_eq!(response.text(), "hello");
            assert!(asked.starts_with("GET /x HTTP/1.1\r\n"), "{asked}");
            assert!(asked.contains("authorization: Bearer t\r\n"), "{asked}");
        }
    }
}
