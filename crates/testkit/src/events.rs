//! Reader of server-sent events (WHATWG HTML §9.2) from a chunked response.

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

use serde_json::Value;

use crate::http::{Client, READ_TIMEOUT, Request, Response, read_head, read_rest};
use crate::wait::Stopwatch;

/// Server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub struct SentEvent {
    /// Value of `id`.
    pub id: String,
    /// Value of `event`.
    pub name: String,
    /// Value of `data`, parsed as JSON.
    pub data: Value,
}

/// Iterator over the events of one response.
#[derive(Debug)]
pub struct EventStream {
    lines: BufReader<Chunked>,
    /// Headers of the response, with lower-case names.
    pub headers: Vec<(String, String)>,
}

impl Client {
    /// Requests the events at `target`.
    ///
    /// # Errors
    /// The response of a server that rejects it.
    pub fn events(&self, target: &str) -> Result<EventStream, Response> {
        self.events_by(&Request::new("GET", target))
    }

    /// Requests events with additional headers.
    ///
    /// # Errors
    /// The response of a server that rejects it.
    pub fn events_by(&self, request: &Request) -> Result<EventStream, Response> {
        let request = request.clone().header("accept", "text/event-stream");
        let mut reader = BufReader::new(self.open(&request).expect("ask for events"));
        let mut response = read_head(&mut reader).expect("read the answer");
        if response.status != 200 {
            read_rest(&mut reader, &mut response).expect("read the refusal");
            return Err(response);
        }
        for (name, value) in
            [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        {
            response.header(name).filter(|it| *it == value).expect("an answer that is events");
        }
        let lines = BufReader::new(Chunked { reader, left: 0, over: false });
        Ok(EventStream { lines, headers: response.headers })
    }
}

impl Iterator for EventStream {
    type Item = SentEvent;

    /// Returns the next event; `None` at the regular end of the response.
    ///
    /// # Panics
    /// If the connection breaks.
    fn next(&mut self) -> Option<SentEvent> {
        self.try_next().expect("read an event")
    }
}

impl EventStream {
    /// Returns the next event, or an error if the connection breaks; `None` at the regular end.
    ///
    /// # Errors
    /// If the connection breaks.
    ///
    /// # Panics
    /// If an event is not JSON.
    pub fn try_next(&mut self) -> io::Result<Option<SentEvent>> {
        let (mut id, mut name, mut data) = (String::new(), String::new(), String::new());
        let watch = Stopwatch::start();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() && !data.is_empty() {
                let data = serde_json::from_str(&data).expect("JSON");
                return Ok(Some(SentEvent { id, name, data }));
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => id = value.to_owned(),
                "event" => name = value.to_owned(),
                "data" => data.push_str(value),
                // Comments keep the connection alive.
                _ if watch.elapsed() > READ_TIMEOUT => {
                    return Err(io::Error::other("nothing but comments came"));
                }
                _ => {}
            }
        }
    }
}

/// Body of a chunked response.
#[derive(Debug)]
struct Chunked {
    reader: BufReader<TcpStream>,
    /// Bytes left of the current chunk.
    left: usize,
    over: bool,
}

impl Read for Chunked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.over {
            return Ok(0);
        }
        if self.left == 0 {
            self.left = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            if self.left == 0 {
                self.over = true;
                return Ok(0);
            }
        }
        let wanted = buf.len().min(self.left);
        let count = self.reader.read(&mut buf[..wanted])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        if self.left == 0 {
            // Line end after a chunk.
            self.line()?;
        }
        Ok(count)
    }
}

impl Chunked {
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim().to_owned())
    }
}
