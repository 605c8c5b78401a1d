//! Blocking PostgreSQL client that sends exactly the given messages.
//!
//! It is not a driver: it keeps only the state that the protocol requires, sends valid or malformed
//! messages unchanged, and returns every received message.

mod scram;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Default response timeout; see [`PgClient::patience`].
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest accepted message, in bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Address of a server.
#[derive(Clone, Debug)]
pub enum PgAddress {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over a Unix socket at this path.
    Unix(PathBuf),
}

impl From<SocketAddr> for PgAddress {
    fn from(address: SocketAddr) -> PgAddress {
        PgAddress::Tcp(address)
    }
}

impl From<PathBuf> for PgAddress {
    fn from(path: PathBuf) -> PgAddress {
        PgAddress::Unix(path)
    }
}

/// Received message.
#[derive(Clone, PartialEq, Eq)]
pub struct PgMessage {
    /// Message type.
    pub tag: u8,
    /// Body after the length.
    pub body: Vec<u8>,
}

impl fmt::Debug for PgMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = char::from(self.tag);
        write!(
            f,
            "{tag}:{}",
            self.body.iter().take(200).copied().map(char::from).collect::<String>()
        )
    }
}

impl PgMessage {
    /// Returns the values of a row as text; `None` is NULL.
    #[must_use]
    pub fn row(&self) -> Vec<Option<String>> {
        let mut rest = Bytes(&self.body);
        let count = rest.u16().expect("the number of columns");
        (0..count).map(|_| rest.value().expect("a value")).collect()
    }

    /// Returns the fields of an error or a notice, by their letters.
    #[must_use]
    pub fn error(&self) -> PgError {
        let fields = self.body.split(|byte| *byte == 0).filter(|field| !field.is_empty());
        let fields = fields
            .map(|field| (char::from(field[0]), String::from_utf8_lossy(&field[1..]).into_owned()));
        PgError { fields: fields.collect() }
    }

    /// Returns the text before the first zero byte.
    #[must_use]
    pub fn text(&self) -> String {
        Bytes(&self.body).text().unwrap_or_default()
    }
}

/// Error from a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgError {
    /// Fields by the protocol's letters: `C` is the SQLSTATE, `M` the message.
    pub fields: BTreeMap<char, String>,
}

impl PgError {
    /// Returns the SQLSTATE.
    #[must_use]
    pub fn code(&self) -> &str {
        self.fields.get(&'C').map_or("", String::as_str)
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        self.fields.get(&'M').map_or("", String::as_str)
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

/// Received notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgNotification {
    /// Process id of the sender.
    pub pid: u32,
    /// Channel.
    pub channel: String,
    /// Payload.
    pub payload: String,
}

/// All messages up to `ReadyForQuery`.
#[derive(Clone, Debug, Default)]
pub struct PgAnswer {
    /// Messages in order, without notifications and parameter changes, which may arrive at any
    /// time.
    pub messages: Vec<PgMessage>,
}

impl PgAnswer {
    /// Returns all rows.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<Option<String>>> {
        self.of(b'D').map(PgMessage::row).collect()
    }

    /// Returns the first value of the first row.
    ///
    /// # Panics
    /// If there is none; the message contains the response.
    #[must_use]
    pub fn value(&self) -> String {
        let row = self.rows().into_iter().next();
        let value = row.and_then(|row| row.into_iter().next()).flatten();
        value.unwrap_or_else(|| panic!("no value in {self:?}"))
    }

    /// Returns the tags of completed commands.
    #[must_use]
    pub fn tags(&self) -> Vec<String> {
        self.of(b'C').map(PgMessage::text).collect()
    }

    /// Returns the first error.
    #[must_use]
    pub fn error(&self) -> Option<PgError> {
        self.of(b'E').next().map(PgMessage::error)
    }

    /// Returns the types of all messages.
    #[must_use]
    pub fn letters(&self) -> String {
        self.messages.iter().map(|message| char::from(message.tag)).collect()
    }

    fn of(&self, tag: u8) -> impl Iterator<Item = &PgMessage> {
        self.messages.iter().filter(move |message| message.tag == tag)
    }
}

/// Concatenated messages to send.
#[derive(Clone, Debug, Default)]
pub struct PgBatch(pub Vec<u8>);

impl PgBatch {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> PgBatch {
        PgBatch::default()
    }

    /// Adds a message of any type.
    #[must_use]
    pub fn message(mut self, tag: u8, parts: &[&[u8]]) -> PgBatch {
        let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
        self.0.push(tag);
        self.0.extend(u32::try_from(length).expect("a short message").to_be_bytes());
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self
    }

    /// Adds a simple query.
    #[must_use]
    pub fn query(self, sql: &str) -> PgBatch {
        self.message(b'Q', &[sql.as_bytes(), b"\0"])
    }

    /// Prepares `sql` under `name`; the server infers the parameter types.
    #[must_use]
    pub fn parse(self, name: &str, sql: &str) -> PgBatch {
        self.message(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"])
    }

    /// Binds text parameters to a statement; results have the text format.
    #[must_use]
    pub fn bind(self, portal: &str, name: &str, values: &[Option<&str>]) -> PgBatch {
        let mut rest = vec![0, 0];
        rest.extend(u16::try_from(values.len()).expect("few parameters").to_be_bytes());
        for value in values {
            match value {
                None => rest.extend((-1_i32).to_be_bytes()),
                Some(value) => {
                    let length = u32::try_from(value.len()).expect("a short value");
                    rest.extend(length.to_be_bytes());
                    rest.extend(value.as_bytes());
                }
            }
        }
        rest.extend([0, 0]);
        self.message(b'B', &[portal.as_bytes(), b"\0", name.as_bytes(), b"\0", &rest])
    }

    /// Requests the description of a statement (`S`) or a portal (`P`).
    #[must_use]
    pub fn describe(self, kind: u8, name: &str) -> PgBatch {
        self.message(b'D', &[&[kind], name.as_bytes(), b"\0"])
    }

    /// Closes a statement (`S`) or a portal (`P`).
    #[must_use]
    pub fn close(self, kind: u8, name: &str) -> PgBatch {
        self.message(b'C', &[&[kind], name.as_bytes(), b"\0"])
    }

    /// Runs a portal to its end, or for up to `rows_max` rows.
    #[must_use]
    pub fn execute(self, portal: &str, rows_max: u32) -> PgBatch {
        self.message(b'E', &[portal.as_bytes(), b"\0", &rows_max.to_be_bytes()])
    }

    /// Adds a `Sync` message, which ends a batch.
    #[must_use]
    pub fn sync(self) -> PgBatch {
        self.message(b'S', &[])
    }

    /// Adds a `Flush` message.
    #[must_use]
    pub fn flush(self) -> PgBatch {
        self.message(b'H', &[])
    }

    /// Adds data of a COPY.
    #[must_use]
    pub fn copy_data(self, data: &[u8]) -> PgBatch {
        self.message(b'd', &[data])
    }

    /// Adds the end of a COPY.
    #[must_use]
    pub fn copy_done(self) -> PgBatch {
        self.message(b'c', &[])
    }

    /// Adds a message that makes a COPY fail.
    #[must_use]
    pub fn copy_fail(self, why: &str) -> PgBatch {
        self.message(b'f', &[why.as_bytes(), b"\0"])
    }
}

/// Connection over TCP or a Unix socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn connect(address: &PgAddress) -> io::Result<Stream> {
        Ok(match address {
            PgAddress::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            PgAddress::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        })
    }

    pub(crate) fn patience(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_write_timeout(limit)?;
                stream.set_read_timeout(limit)
            }
            Stream::Unix(stream) => {
                stream.set_write_timeout(limit)?;
                stream.set_read_timeout(limit)
            }
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }

    /// Returns the sending half.
    pub(crate) fn sender(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Stream::Tcp(stream) => Box::new(stream.try_clone()?),
            Stream::Unix(stream) => Box::new(stream.try_clone()?),
        })
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        }
    }
}

/// Client connection.
#[derive(Debug)]
pub struct PgClient {
    stream: Stream,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    /// Process id for cancel requests.
    pub pid: u32,
    /// Secret key for cancel requests.
    pub key: Vec<u8>,
    /// Last reported server parameters.
    pub parameters: BTreeMap<String, String>,
    /// Every change of a parameter since login, in order.
    pub parameter_changes: Vec<(String, String)>,
    /// Notifications that were not read yet.
    pub notifications: Vec<PgNotification>,
    /// Last reported transaction status: `I`, `T` or `E`; 0 before the first one.
    pub status: u8,
    /// Version that the server proposed, and the options that it does not support.
    pub negotiated: Option<(u32, Vec<String>)>,
}

/// Protocol version of PostgreSQL since 2003.
pub const PROTOCOL_3_0: u32 = 3 << 16;
/// Version with cancel keys of any length.
pub const PROTOCOL_3_2: u32 = 3 << 16 | 2;

impl PgClient {
    /// Connects without sending a message.
    ///
    /// # Errors
    /// If the server does not listen.
    pub fn open(address: &PgAddress) -> io::Result<PgClient> {
        let stream = Stream::connect(address)?;
        stream.patience(Some(PATIENCE))?;
        Ok(PgClient {
            stream,
            input: Vec::new(),
            pid: 0,
            key: Vec::new(),
            parameters: BTreeMap::new(),
            parameter_changes: Vec::new(),
            notifications: Vec::new(),
            status: 0,
            negotiated: None,
        })
    }

    /// Connects and logs in, with the authentication method that the server requests.
    ///
    /// # Errors
    /// If the connection breaks; the server's error if it refuses.
    pub fn login(
        address: &PgAddress,
        parameters: &[(&str, &str)],
        password: &str,
    ) -> Result<PgClient, PgFailure> {
        PgClient::login_as(PROTOCOL_3_0, address, parameters, password)
    }

    /// Like [`PgClient::login`], with a given protocol version.
    ///
    /// # Errors
    /// As above.
    pub fn login_as(
        version: u32,
        address: &PgAddress,
        parameters: &[(&str, &str)],
        password: &str,
    ) -> Result<PgClient, PgFailure> {
        let mut client = PgClient::open(address)?;
        client.send(&startup(version, parameters))?;
        client.authenticate(password)?;
        Ok(client)
    }

    /// Answers authentication requests until the server is ready.
    ///
    /// # Errors
    /// As above.
    pub fn authenticate(&mut self, password: &str) -> Result<(), PgFailure> {
        let mut proof = None;
        loop {
            let message = self.message()?;
            match message.tag {
                b'R' => self.prove(&message, password, &mut proof)?,
                b'K' => {
                    let (pid, key) = message.body.split_at(4);
                    self.pid = u32::from_be_bytes(pid.try_into().expect("four bytes"));
                    self.key = key.to_vec();
                }
                b'v' => {
                    let mut rest = Bytes(&message.body);
                    let version = rest.u32().expect("a version");
                    let count = rest.u32().expect("a count");
                    let names = (0..count).map(|_| rest.text().expect("an option"));
                    self.negotiated = Some((version, names.collect()));
                }
                b'E' => return Err(PgFailure::Server(message.error())),
                b'Z' => {
                    self.parameter_changes.clear();
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    fn prove(
        &mut self,
        message: &PgMessage,
        password: &str,
        proof: &mut Option<scram::Exchange>,
    ) -> Result<(), PgFailure> {
        let mut rest = Bytes(&message.body);
        match rest.u32().expect("a kind of authentication") {
            0 => {}
            3 => self.send(&PgBatch::new().message(b'p', &[password.as_bytes(), b"\0"]).0)?,
            10 => {
                let exchange = scram::Exchange::new(password);
                let first = exchange.first();
                let length = u32::try_from(first.len()).expect("short").to_be_bytes();
                let parts: [&[u8]; 3] = [b"SCRAM-SHA-256\0", &length, first.as_bytes()];
                self.send(&PgBatch::new().message(b'p', &parts).0)?;
                *proof = Some(exchange);
            }
            11 => {
                let exchange = proof.as_mut().expect("a question after an answer");
                let last = exchange.answer(&String::from_utf8_lossy(rest.0));
                self.send(&PgBatch::new().message(b'p', &[last.as_bytes()]).0)?;
            }
            12 => {
                let exchange = proof.as_ref().expect("an end after an answer");
                if !exchange.is_server(rest.0) {
                    let error = io::Error::other("the server does not know the password");
                    return Err(PgFailure::Io(error));
                }
            }
            kind => return Err(PgFailure::Io(io::Error::other(format!("authentication {kind}")))),
        }
        Ok(())
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sets the receive timeout.
    pub fn patience(&self, limit: Duration) {
        self.stream.patience(Some(limit)).expect("limit the wait");
    }

    /// Closes the sending half; has no effect if the server has closed the connection.
    pub fn finish(&self) {
        match self.stream.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done.expect("end the way forth"),
        }
    }

    /// Returns the next message. Also records parameter changes, notifications and the status.
    ///
    /// # Errors
    /// If the connection breaks, or nothing arrives in time.
    pub fn message(&mut self) -> io::Result<PgMessage> {
        self.fill(5)?;
        let length = u32::from_be_bytes(self.input[1..5].try_into().expect("four bytes"));
        let total = usize::try_from(length).expect("64 bits") + 1;
        if !(5..=MESSAGE_BYTES_MAX).contains(&total) {
            return Err(io::Error::other(format!("a message of {total} bytes")));
        }
        self.fill(total)?;
        let message = PgMessage { tag: self.input[0], body: self.input[5..total].to_vec() };
        self.input.drain(..total);
        self.note(&message);
        Ok(message)
    }

    fn note(&mut self, message: &PgMessage) {
        let mut rest = Bytes(&message.body);
        match message.tag {
            b'S' => {
                let name = rest.text().expect("a name");
                let value = rest.text().expect("a value");
                self.parameters.insert(name.clone(), value.clone());
                self.parameter_changes.push((name, value));
            }
            b'A' => {
                let pid = rest.u32().expect("a pid");
                let channel = rest.text().expect("a channel");
                let payload = rest.text().expect("a payload");
                self.notifications.push(PgNotification { pid, channel, payload });
            }
            b'Z' => self.status = message.body[0],
            _ => {}
        }
    }

    /// Reads until `count` bytes are available.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        if self.input.len() >= count {
            return Ok(());
        }
        let mut piece = [0; 64 << 10];
        while self.input.len() < count {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                // A read with a timeout is also interrupted when the process is stopped
                // (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next byte outside a message: the response to a TLS request.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn byte(&mut self) -> io::Result<u8> {
        self.fill(1)?;
        Ok(self.input.remove(0))
    }

    /// Returns all messages until the server is ready.
    ///
    /// # Errors
    /// If the connection breaks; the error then contains the messages that arrived before.
    pub fn answer(&mut self) -> Result<PgAnswer, PgFailure> {
        let mut answer = PgAnswer::default();
        loop {
            match self.message() {
                Ok(message) if [b'S', b'A'].contains(&message.tag) => {}
                Ok(message) => {
                    let is_ready = message.tag == b'Z';
                    answer.messages.push(message);
                    if is_ready {
                        return Ok(answer);
                    }
                }
                Err(error) => return Err(PgFailure::Broken(answer, error)),
            }
        }
    }

    /// Sends a batch that ends with one `Sync`, and returns the response.
    ///
    /// # Errors
    /// As above.
    pub fn ask(&mut self, batch: &PgBatch) -> Result<PgAnswer, PgFailure> {
        self.send(&batch.0)?;
        self.answer()
    }

    /// Runs SQL by the simple protocol; SQL errors are in the response.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn query(&mut self, sql: &str) -> Result<PgAnswer, PgFailure> {
        self.ask(&PgBatch::new().query(sql))
    }

    /// Runs SQL that must not fail.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&mut self, sql: &str) -> PgAnswer {
        let answer = self.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        match answer.error() {
            None => answer,
            Some(error) => panic!("{sql}: {error}"),
        }
    }

    /// Runs SQL that must fail, and returns the error.
    ///
    /// # Panics
    /// If it does not fail.
    pub fn fail(&mut self, sql: &str) -> PgError {
        let answer = self.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        answer.error().unwrap_or_else(|| panic!("{sql} did not fail: {answer:?}"))
    }

    /// Returns the first value of the first row of SQL that must not fail.
    ///
    /// # Panics
    /// If it fails, or returns no value.
    pub fn value(&mut self, sql: &str) -> String {
        self.run(sql).value()
    }

    /// Waits for the server to close the connection. Returns whether it did within the timeout, and
    /// the messages before the end.
    pub fn end(&mut self) -> (bool, Vec<PgMessage>) {
        let mut messages = Vec::new();
        loop {
            match self.message() {
                Ok(message) => messages.push(message),
                Err(error) => {
                    let late = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                    return (!late.contains(&error.kind()), messages);
                }
            }
        }
    }

    /// Sends `Terminate` and closes the connection.
    pub fn close(mut self) {
        // The server may have closed the connection.
        drop(self.send(&PgBatch::new().message(b'X', &[]).0));
    }
}

/// Returns the startup message of a connection.
#[must_use]
pub fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        for text in [name, value] {
            body.extend(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    untagged(&body)
}

/// Returns a TLS request.
#[must_use]
pub fn ssl_request() -> Vec<u8> {
    untagged(&80_877_103_u32.to_be_bytes())
}

/// Returns a GSSAPI encryption request.
#[must_use]
pub fn gss_request() -> Vec<u8> {
    untagged(&80_877_104_u32.to_be_bytes())
}

/// Returns a request to cancel the running query of a connection.
#[must_use]
pub fn cancel_request(pid: u32, key: &[u8]) -> Vec<u8> {
    untagged(&[&80_877_102_u32.to_be_bytes(), &pid.to_be_bytes(), key].concat())
}

fn untagged(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a short message");
    [&length.to_be_bytes(), body].concat()
}

/// Reason for a missing response.
#[derive(Debug)]
pub enum PgFailure {
    /// The server returned an error.
    Server(PgError),
    /// The connection broke, or nothing arrived in time.
    Io(io::Error),
    /// The connection broke in the middle of a response.
    Broken(PgAnswer, io::Error),
}

impl PgFailure {
    /// Returns the server's error before the end, if there was one.
    #[must_use]
    pub fn error(&self) -> Option<PgError> {
        match self {
            PgFailure::Server(error) => Some(error.clone()),
            PgFailure::Io(_) => None,
            PgFailure::Broken(answer, _) => answer.error(),
        }
    }

    /// Returns whether the failure was a timeout.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let (PgFailure::Io(error) | PgFailure::Broken(_, error)) = self else { return false };
        [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
    }
}

impl From<io::Error> for PgFailure {
    fn from(error: io::Error) -> PgFailure {
        PgFailure::Io(error)
    }
}

impl fmt::Display for PgFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PgFailure::Server(error) => error.fmt(f),
            PgFailure::Io(error) => error.fmt(f),
            PgFailure::Broken(answer, error) => write!(f, "{error} after {:?}", answer.messages),
        }
    }
}

impl std::error::Error for PgFailure {}

/// Parser of a byte slice.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    fn value(&mut self) -> Option<Option<String>> {
        let length = self.take().map(i32::from_be_bytes)?;
        let Ok(length) = usize::try_from(length) else { return Some(None) };
        let (value, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Some(String::from_utf8_lossy(value).into_owned()))
    }
}

#[cfg(test)]
mod tests;
