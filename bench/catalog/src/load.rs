//! The load generator: a closed loop of kept connections, each with one request in flight.
//!
//! The specification is JSON on standard input, the figures are JSON on standard output. Every
//! answer must have the expected status; the answers to one request must have the same length and
//! the same bytes, in any order. `{n}` in a path or a body is replaced by a number that is unique
//! to the request; the answers to such requests are not compared.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::Deserialize;

use crate::chunks::Chunks;

/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Size of one read, in bytes.
const READ_BYTES: usize = 256 << 10;

/// Longest wait for an event.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Maximum number of failures that are described.
const EXAMPLES: usize = 3;

/// Answers up to this length have all their bytes checked.
const SUMMED_BYTES_MAX: usize = 64 << 10;

/// Share of longer answers that is checked: one in so many, because the server uses the same
/// processors.
const SUMMED_ONE_IN: usize = 16;

#[derive(Deserialize)]
struct Spec {
    address: SocketAddr,
    connections: usize,
    seconds: f64,
    status: u16,
    /// The first value of `{n}`.
    #[serde(default)]
    first: u64,
    /// Maximum number of requests; only the time limits them if omitted.
    most: Option<usize>,
    /// Whether each connection repeats one of the requests, instead of sending all in turn.
    #[serde(default)]
    stay: bool,
    /// Whether all connections share one list, from which each takes the next request, so that each
    /// request is sent once per pass.
    #[serde(default)]
    stride: bool,
    /// Whether only the status of answers is checked: a server that packs the same members in a
    /// different order each time produces answers of different lengths.
    #[serde(default)]
    differ: bool,
    requests: Vec<Request>,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl Request {
    fn put(&self, host: SocketAddr, number: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let numbered = |text: &str| text.replace("{n}", &number.to_string());
        out.clear();
        write!(out, "{} {} HTTP/1.1\r\nhost: {host}\r\n", self.method, numbered(&self.path))?;
        for (name, value) in &self.headers {
            write!(out, "{name}: {value}\r\n")?;
        }
        match &self.body {
            None => out.write_all(b"\r\n"),
            Some(body) => {
                let body = numbered(body);
                write!(out, "content-length: {}\r\n\r\n{body}", body.len())
            }
        }
    }

    fn is_fixed(&self) -> bool {
        !self.path.contains("{n}") && !self.body.as_ref().is_some_and(|it| it.contains("{n}"))
    }
}

/// How the end of an answer is determined.
#[derive(Clone, Copy)]
enum End {
    Head,
    Left(usize),
    Chunks(Chunks),
}

/// Common properties of the answers to one request.
#[derive(Clone, Copy)]
struct Body {
    length: usize,
    /// Sum of all bytes, if computed: the same for members in a different order.
    sum: Option<u64>,
}

struct Connection {
    stream: TcpStream,
    request: usize,
    out: Vec<u8>,
    written: usize,
    head: Vec<u8>,
    end: End,
    status: u16,
    body: Body,
    answers: usize,
    since: Instant,
}

struct Load<'a> {
    spec: &'a Spec,
    next: u64,
    sent: usize,
    answered: usize,
    fixed: Vec<Option<Vec<u8>>>,
    bodies: HashMap<usize, Body>,
    times_us: Vec<u32>,
    failures: u64,
    examples: Vec<String>,
}

pub fn run() -> Result<(), String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| error.to_string())?;
    let spec: Spec = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut load = Load {
        next: spec.first,
        sent: 0,
        answered: 0,
        fixed: vec![None; spec.requests.len()],
        bodies: HashMap::new(),
        times_us: Vec::with_capacity(1 << 20),
        failures: 0,
        examples: Vec::new(),
        spec: &spec,
    };
    let took = load.work().map_err(|error| error.to_string())?;
    load.times_us.sort_unstable();
    let at = |percent: usize| {
        let rank = (load.times_us.len() * percent).div_ceil(100).max(1) - 1;
        load.times_us.get(rank).copied().unwrap_or(0)
    };
    let figures = serde_json::json!({
        "requests": load.times_us.len(), "seconds": took.as_secs_f64(),
        "per_second": load.times_us.len() as f64 / took.as_secs_f64(),
        "p50_us": at(50), "p95_us": at(95), "p99_us": at(99), "failures": load.failures,
        "failure_examples": load.examples, "next": load.next,
        "bytes": load.bodies.values().next().map(|it| it.length),
    });
    println!("{figures}");
    Ok(())
}

impl Load<'_> {
    fn work(&mut self) -> io::Result<Duration> {
        let mut poll = Poll::new()?;
        let mut all = Vec::new();
        let start = Instant::now();
        for index in 0..self.spec.connections {
            let stream = std::net::TcpStream::connect(self.spec.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(index), interest)?;
            all.push(Connection {
                stream,
                request: index % self.spec.requests.len(),
                out: Vec::new(),
                written: 0,
                head: Vec::new(),
                end: End::Head,
                status: 0,
                body: Body { length: 0, sum: None },
                answers: 0,
                since: start,
            });
        }
        for connection in &mut all {
            self.send(connection)?;
        }
        let (mut events, mut buffer) = (Events::with_capacity(1024), vec![0; READ_BYTES]);
        let duration = Duration::from_secs_f64(self.spec.seconds);
        let start = Instant::now();
        while start.elapsed() < duration && self.spec.most.is_none_or(|it| self.answered < it) {
            poll.poll(&mut events, Some(SILENCE_MAX))?;
            if events.is_empty() {
                return Err(io::Error::other("nothing happens any more"));
            }
            for event in &events {
                let connection = &mut all[event.token().0];
                flush(connection)?;
                self.read(connection, &mut buffer)?;
            }
        }
        Ok(start.elapsed())
    }

    /// Sends the next request of a connection.
    fn send(&mut self, connection: &mut Connection) -> io::Result<()> {
        let spec = self.spec;
        if spec.stride {
            connection.request = self.sent % spec.requests.len();
        } else if !spec.stay {
            connection.request = (connection.request + 1) % spec.requests.len();
        }
        self.sent += 1;
        let request = &spec.requests[connection.request];
        match &self.fixed[connection.request] {
            Some(text) => connection.out.clone_from(text),
            None => {
                request.put(spec.address, self.next, &mut connection.out)?;
                self.next += 1;
                if request.is_fixed() {
                    self.fixed[connection.request] = Some(connection.out.clone());
                }
            }
        }
        connection.written = 0;
        connection.end = End::Head;
        connection.head.clear();
        connection.since = Instant::now();
        flush(connection)
    }

    fn read(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            match connection.stream.read(buffer) {
                Ok(0) => return Err(io::Error::other("the server closed a connection")),
                Ok(length) => {
                    if connection.take(&buffer[..length])? {
                        self.note(connection);
                        self.answered += 1;
                        if self.spec.most.is_none_or(|most| self.sent < most) {
                            self.send(connection)?;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Records a complete answer.
    fn note(&mut self, connection: &mut Connection) {
        connection.answers += 1;
        let (body, is_fixed) = (connection.body, self.fixed[connection.request].is_some());
        let first = self.bodies.entry(connection.request).or_insert(body);
        let is_same = first.length == body.length && first.is_like(body);
        // The first answer may be one without a sum.
        first.sum = first.sum.or(body.sum);
        if connection.status == self.spec.status && (is_same || !is_fixed || self.spec.differ) {
            let us = u32::try_from(connection.since.elapsed().as_micros()).unwrap_or(u32::MAX);
            self.times_us.push(us);
            return;
        }
        self.failures += 1;
        if self.examples.len() < EXAMPLES {
            let path = &self.spec.requests[connection.request].path;
            let (status, length) = (connection.status, body.length);
            let other = if is_same { "" } else { ", other bytes than the first" };
            self.examples.push(format!("{path}: status {status}, {length} bytes{other}"));
        }
    }
}

impl Body {
    fn is_like(self, other: Body) -> bool {
        self.sum.zip(other.sum).is_none_or(|(one, two)| one == two)
    }

    fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        if let Some(sum) = &mut self.sum {
            *sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
    }
}

fn flush(connection: &mut Connection) -> io::Result<()> {
    while connection.written < connection.out.len() {
        match connection.stream.write(&connection.out[connection.written..]) {
            Ok(length) => connection.written += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Connection {
    /// Consumes received bytes. Returns whether the answer is complete.
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        if let End::Head = self.end {
            let before = self.head.len();
            self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]);
            let Some(end) = self.head.windows(4).position(|it| it == b"\r\n\r\n") else {
                let is_long = self.head.len() > HEAD_BYTES_MAX;
                return if is_long { Err(io::Error::other("too long a head")) } else { Ok(false) };
            };
            bytes = &bytes[end + 4 - before..];
            self.begin(end)?;
        }
        match &mut self.end {
            End::Head => Err(io::Error::other("no head")),
            End::Left(left) => {
                *left = left
                    .checked_sub(bytes.len())
                    .ok_or_else(|| io::Error::other("an answer is longer than it says"))?;
                self.body.add(bytes);
                Ok(*left == 0)
            }
            End::Chunks(chunks) => chunks.take(bytes, |part| self.body.add(part)),
        }
    }

    /// Reads the head that ends at `end`.
    fn begin(&mut self, end: usize) -> io::Result<()> {
        let head = String::from_utf8_lossy(&self.head[..end]);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        self.status = status.ok_or_else(|| io::Error::other("no status"))?;
        let mut length = None;
        let mut is_chunked = false;
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            }
            is_chunked |= name.eq_ignore_ascii_case("transfer-encoding");
        }
        let is_short = length.is_some_and(|it| it <= SUMMED_BYTES_MAX);
        let is_summed = is_short || self.answers.is_multiple_of(SUMMED_ONE_IN);
        self.body = Body { length: 0, sum: is_summed.then_some(0) };
        self.end = match (is_chunked, length, self.status) {
            (true, _, _) => End::Chunks(Chunks::new()),
            (false, Some(length), status) if status != 304 => End::Left(length),
            _ => End::Left(0),
        };
        Ok(())
    }
}
