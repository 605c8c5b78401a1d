//! Blocking MySQL client that sends exactly the given messages.
//!
//! It is not a driver: it keeps only the state that the protocol requires, sends valid or malformed
//! messages unchanged, and returns everything that it receives. It is strict about properties that
//! a faulty pooler violates first: packet numbers, and the format of each response.

mod answer;
mod auth;
mod bytes;
mod session;

use std::io;
use std::net::Shutdown;
use std::time::Duration;

pub use answer::{MyAnswer, MyColumn, MyError, MyFailure, MyOk, MyResult, MyRows};
pub use auth::{CACHING_SHA2, NATIVE};

use crate::pg::{PgAddress, Stream};
use bytes::{Bytes, put_counted, text};

/// Default response timeout; see [`MyClient::patience`].
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest accepted message, in bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Maximum bytes of an unexpected packet in a message.
const SHOWN_BYTES: usize = 80;
/// Maximum payload of one packet; a message of this length or more continues in the next one.
pub const PACKET_BYTES_MAX: usize = 0xFF_FFFF;

/// Capabilities of a connection, by the protocol's bits.
pub mod capability {
    /// Affected rows are found rows rather than changed ones.
    pub const FOUND_ROWS: u32 = 1 << 1;
    /// The login names a database.
    pub const CONNECT_WITH_DB: u32 = 1 << 3;
    /// Packets are compressed.
    pub const COMPRESS: u32 = 1 << 5;
    /// The server may request a file of the client.
    pub const LOCAL_FILES: u32 = 1 << 7;
    /// The protocol since MySQL 4.1.
    pub const PROTOCOL_41: u32 = 1 << 9;
    /// Encryption.
    pub const SSL: u32 = 1 << 11;
    /// The status contains the transaction state.
    pub const TRANSACTIONS: u32 = 1 << 13;
    /// Passwords since MySQL 4.1.
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    /// Several statements in one text.
    pub const MULTI_STATEMENTS: u32 = 1 << 16;
    /// Several results for one text.
    pub const MULTI_RESULTS: u32 = 1 << 17;
    /// Several results for a prepared statement.
    pub const PS_MULTI_RESULTS: u32 = 1 << 18;
    /// Authentication plugin names.
    pub const PLUGIN_AUTH: u32 = 1 << 19;
    /// Connection attributes of the client.
    pub const CONNECT_ATTRS: u32 = 1 << 20;
    /// Authentication data longer than 255 bytes.
    pub const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    /// The server reports session changes.
    pub const SESSION_TRACK: u32 = 1 << 23;
    /// Rows end with an OK packet.
    pub const DEPRECATE_EOF: u32 = 1 << 24;
}

/// Server status, by the protocol's bits.
pub mod status {
    /// A transaction is open.
    pub const IN_TRANS: u16 = 1;
    /// Each statement is a transaction.
    pub const AUTOCOMMIT: u16 = 2;
    /// Another result follows.
    pub const MORE_RESULTS: u16 = 8;
    /// Rows wait to be fetched.
    pub const CURSOR_EXISTS: u16 = 0x40;
    /// All rows were fetched.
    pub const LAST_ROW_SENT: u16 = 0x80;
    /// Changes of the session follow.
    pub const SESSION_STATE_CHANGED: u16 = 0x4000;
}

/// Commands, by their first byte.
pub mod command {
    /// Ends the connection.
    pub const QUIT: u8 = 0x01;
    /// Changes the database.
    pub const INIT_DB: u8 = 0x02;
    /// Runs a text statement.
    pub const QUERY: u8 = 0x03;
    /// Lists the columns of a table.
    pub const FIELD_LIST: u8 = 0x04;
    /// Returns the statistics line.
    pub const STATISTICS: u8 = 0x09;
    /// Ends another connection.
    pub const PROCESS_KILL: u8 = 0x0C;
    /// Checks the connection.
    pub const PING: u8 = 0x0E;
    /// Changes the user of the connection.
    pub const CHANGE_USER: u8 = 0x11;
    /// Binary log, which has no end.
    pub const BINLOG_DUMP: u8 = 0x12;
    /// Registration of a replica.
    pub const REGISTER_SLAVE: u8 = 0x15;
    /// Prepares a statement.
    pub const STMT_PREPARE: u8 = 0x16;
    /// Runs a prepared statement.
    pub const STMT_EXECUTE: u8 = 0x17;
    /// Sends a piece of a parameter.
    pub const STMT_SEND_LONG_DATA: u8 = 0x18;
    /// Closes a prepared statement.
    pub const STMT_CLOSE: u8 = 0x19;
    /// Resets parameters and cursor of a prepared statement.
    pub const STMT_RESET: u8 = 0x1A;
    /// Enables or disables several statements in one text.
    pub const SET_OPTION: u8 = 0x1B;
    /// Fetches rows of a cursor.
    pub const STMT_FETCH: u8 = 0x1C;
    /// Resets the session to its state after the login.
    pub const RESET_CONNECTION: u8 = 0x1F;
}

/// Default capabilities of a client.
pub const USUAL: u32 = capability::PROTOCOL_41
    | capability::TRANSACTIONS
    | capability::SECURE_CONNECTION
    | capability::MULTI_STATEMENTS
    | capability::MULTI_RESULTS
    | capability::PS_MULTI_RESULTS
    | capability::PLUGIN_AUTH
    | capability::PLUGIN_AUTH_LENENC
    | capability::CONNECT_ATTRS
    | capability::SESSION_TRACK
    | capability::DEPRECATE_EOF;
/// `utf8mb4_general_ci`, which every server supports.
const COLLATION: u8 = 45;

/// Parameters of a login.
#[derive(Clone, Debug)]
pub struct MyLogin {
    /// The user's name.
    pub user: String,
    /// Password.
    pub password: String,
    /// Database, if there is one.
    pub database: Option<String>,
    /// Requested capabilities; those that the server does not offer are omitted.
    pub capabilities: u32,
    /// Number of a collation.
    pub collation: u8,
    /// Connection attributes.
    pub attributes: Vec<(String, String)>,
}

impl MyLogin {
    /// Returns an ordinary login.
    #[must_use]
    pub fn new(user: &str, password: &str, database: &str) -> MyLogin {
        let database = (!database.is_empty()).then(|| database.to_owned());
        MyLogin {
            user: user.to_owned(),
            password: password.to_owned(),
            database,
            capabilities: USUAL,
            collation: COLLATION,
            attributes: Vec::new(),
        }
    }

    /// Adds capabilities.
    #[must_use]
    pub fn with(mut self, capabilities: u32) -> MyLogin {
        self.capabilities |= capabilities;
        self
    }

    /// Removes capabilities.
    #[must_use]
    pub fn without(mut self, capabilities: u32) -> MyLogin {
        self.capabilities &= !capabilities;
        self
    }

    /// Adds a connection attribute.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: &str) -> MyLogin {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    fn put_attributes(&self, out: &mut Vec<u8>) {
        let mut all = Vec::new();
        for (name, value) in &self.attributes {
            put_counted(&mut all, name.as_bytes());
            put_counted(&mut all, value.as_bytes());
        }
        put_counted(out, &all);
    }
}

/// Initial handshake packet of a server.
#[derive(Clone, Debug, Default)]
pub struct MyGreeting {
    /// Version text.
    pub version: String,
    /// Connection id.
    pub thread_id: u32,
    /// Nonce for the authentication.
    pub nonce: Vec<u8>,
    /// Offered capabilities.
    pub capabilities: u32,
    /// Preferred authentication plugin.
    pub plugin: String,
}

impl MyGreeting {
    fn parse(packet: &[u8]) -> Option<MyGreeting> {
        let mut rest = Bytes(packet);
        if rest.u8()? != 10 {
            return None;
        }
        let version = text(rest.terminated()?);
        let thread_id = rest.u32()?;
        let mut nonce = rest.bytes(8)?.to_vec();
        rest.u8()?;
        let low = rest.u16()?;
        rest.u8()?;
        rest.u16()?;
        let high = rest.u16()?;
        let length = usize::from(rest.u8()?);
        rest.bytes(10)?;
        // At least twelve more bytes, and a zero that is not part of the nonce.
        let second = rest.bytes(length.saturating_sub(8).max(13))?;
        nonce.extend(second.split_last()?.1);
        let plugin = text(rest.terminated().unwrap_or(rest.0));
        let capabilities = u32::from(low) | u32::from(high) << 16;
        Some(MyGreeting { version, thread_id, nonce, capabilities, plugin })
    }
}

/// Prepared statement of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MyStatement {
    /// Id of the statement.
    pub id: u32,
    /// Number of result columns.
    pub columns: u16,
    /// Number of parameters.
    pub parameters: u16,
    /// Number of warnings of the preparation.
    pub warnings: u16,
}

/// Parameter value of a statement.
#[derive(Clone, Copy, Debug)]
pub enum MyValue<'a> {
    /// NULL.
    Null,
    /// A number.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Sent before by [`MyClient::long_data`].
    Long,
}

impl MyValue<'_> {
    /// Returns the protocol's type number.
    fn kind(self) -> u8 {
        match self {
            MyValue::Null => 0x06,
            MyValue::Int(_) => 0x08,
            MyValue::Text(_) => 0xFD,
            MyValue::Bytes(_) | MyValue::Long => 0xFC,
        }
    }
}

/// Returns the body of a command that runs a statement. Without `binds`, previously sent types
/// apply.
#[must_use]
pub fn execute(statement: u32, cursor: u8, values: &[MyValue<'_>], binds: bool) -> Vec<u8> {
    let mut body = statement.to_le_bytes().to_vec();
    body.push(cursor);
    body.extend(1_u32.to_le_bytes());
    if values.is_empty() {
        return body;
    }
    let mut nulls = vec![0_u8; values.len().div_ceil(8)];
    for (at, value) in values.iter().enumerate() {
        if matches!(value, MyValue::Null) {
            nulls[at / 8] |= 1 << (at % 8);
        }
    }
    body.extend(nulls);
    body.push(u8::from(binds));
    if binds {
        values.iter().for_each(|value| body.extend([value.kind(), 0]));
    }
    for value in values {
        match value {
            MyValue::Null | MyValue::Long => {}
            MyValue::Int(number) => body.extend(number.to_le_bytes()),
            MyValue::Text(text) => put_counted(&mut body, text.as_bytes()),
            MyValue::Bytes(bytes) => put_counted(&mut body, bytes),
        }
    }
    body
}

/// Returns a message as one packet, or several if it is too long.
#[must_use]
pub fn packets(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 4);
    let (mut number, mut rest) = (first, payload);
    loop {
        let (piece, more) = rest.split_at(rest.len().min(PACKET_BYTES_MAX));
        let length = u32::try_from(piece.len()).expect("24 bits").to_le_bytes();
        out.extend(&length[..3]);
        out.push(number);
        out.extend(piece);
        if piece.len() < PACKET_BYTES_MAX {
            return out;
        }
        (number, rest) = (number.wrapping_add(1), more);
    }
}

/// Returns a command as it is sent.
#[must_use]
pub fn message(command: u8, body: &[u8]) -> Vec<u8> {
    packets(0, &[&[command], body].concat())
}

/// Client connection.
#[derive(Debug)]
pub struct MyClient {
    stream: Stream,
    is_local: bool,
    /// Received bytes; those before `at` are already parsed.
    input: Vec<u8>,
    at: usize,
    /// Beginning of the last packet, for error messages.
    last: Vec<u8>,
    /// Number of the next packet of either side.
    pub sequence: u8,
    /// Initial handshake packet of the server.
    pub greeting: MyGreeting,
    /// Capabilities of both sides.
    pub capabilities: u32,
    /// Last reported server status.
    pub status: u16,
    /// Response to a file request of the server; an empty file by default.
    pub file: Option<Vec<u8>>,
    /// Names of the files that the server has requested.
    pub files_asked: Vec<String>,
}

impl MyClient {
    /// Connects without sending a packet.
    ///
    /// # Errors
    /// If the server does not listen.
    pub fn open(address: &PgAddress) -> io::Result<MyClient> {
        let stream = Stream::connect(address)?;
        stream.patience(Some(PATIENCE))?;
        Ok(MyClient {
            stream,
            is_local: matches!(address, PgAddress::Unix(_)),
            input: Vec::new(),
            at: 0,
            last: Vec::new(),
            sequence: 0,
            greeting: MyGreeting::default(),
            capabilities: 0,
            status: 0,
            file: None,
            files_asked: Vec::new(),
        })
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// If the connection breaks; the server's error if it refuses.
    pub fn login(address: &PgAddress, login: &MyLogin) -> Result<MyClient, MyFailure> {
        let mut client = MyClient::open(address)?;
        client.greet()?;
        client.put(&client.response(login))?;
        client.capabilities = login.capabilities & client.greeting.capabilities;
        client.prove(&login.password)?;
        Ok(client)
    }

    /// Reads the initial handshake packet.
    ///
    /// # Errors
    /// If the connection breaks; the server's error if it accepts no clients.
    pub fn greet(&mut self) -> Result<(), MyFailure> {
        let packet = self.packet()?;
        if packet.first() == Some(&0xFF) {
            return Err(MyFailure::Server(MyError::parse(&packet[1..]).ok_or_else(nonsense)?));
        }
        self.greeting = MyGreeting::parse(&packet).ok_or_else(nonsense)?;
        Ok(())
    }

    /// Returns the handshake response: the capabilities of the login that the server offers, and
    /// the authentication data for its plugin.
    #[must_use]
    pub fn response(&self, login: &MyLogin) -> Vec<u8> {
        let mut capabilities = login.capabilities & self.greeting.capabilities;
        if login.database.is_some() {
            capabilities |= capability::CONNECT_WITH_DB;
        }
        if login.attributes.is_empty() {
            capabilities &= !capability::CONNECT_ATTRS;
        }
        let mut out = capabilities.to_le_bytes().to_vec();
        out.extend(u32::try_from(MESSAGE_BYTES_MAX).expect("32 bits").to_le_bytes());
        out.push(login.collation);
        out.extend([0; 23]);
        out.extend(login.user.as_bytes());
        out.push(0);
        let proof = auth::proof(&self.greeting.plugin, &login.password, &self.greeting.nonce);
        put_counted(&mut out, &proof.unwrap_or_default());
        if let Some(database) = &login.database {
            out.extend(database.as_bytes());
            out.push(0);
        }
        out.extend(self.greeting.plugin.as_bytes());
        out.push(0);
        if capabilities & capability::CONNECT_ATTRS != 0 {
            login.put_attributes(&mut out);
        }
        out
    }

    /// Answers authentication requests until the server accepts the client.
    ///
    /// # Errors
    /// If the connection breaks; the server's error if it refuses.
    pub fn prove(&mut self, password: &str) -> Result<(), MyFailure> {
        loop {
            let packet = self.packet()?;
            match packet.first() {
                Some(0) => {
                    let tracks = self.capabilities & capability::SESSION_TRACK != 0;
                    let ok = MyOk::parse(&packet[1..], tracks).ok_or_else(nonsense)?;
                    self.status = ok.status;
                    return Ok(());
                }
                Some(0xFF) => {
                    let error = MyError::parse(&packet[1..]).ok_or_else(nonsense)?;
                    return Err(MyFailure::Server(error));
                }
                Some(0xFE) => {
                    let mut rest = Bytes(&packet[1..]);
                    let plugin = text(rest.terminated().ok_or_else(nonsense)?);
                    let nonce = rest.0.strip_suffix(&[0]).unwrap_or(rest.0);
                    let proof = auth::proof(&plugin, password, nonce);
                    self.put(&proof.ok_or_else(|| io::Error::other(plugin))?)?;
                }
                // The server had the authentication data cached.
                Some(1) if packet.get(1) == Some(&3) => {}
                Some(1) if packet.get(1) == Some(&4) && self.is_local => {
                    self.put(&[password.as_bytes(), &[0]].concat())?;
                }
                _ => {
                    let what = format!("a question of a login: {packet:?}");
                    return Err(io::Error::other(what).into());
                }
            }
        }
    }

    /// Changes the user of the connection.
    ///
    /// # Errors
    /// If the connection breaks; the server's error if it refuses.
    pub fn change_user(&mut self, login: &MyLogin) -> Result<(), MyFailure> {
        let mut body = login.user.as_bytes().to_vec();
        body.push(0);
        let proof = auth::proof(&self.greeting.plugin, &login.password, &self.greeting.nonce);
        let proof = proof.unwrap_or_default();
        body.push(u8::try_from(proof.len()).expect("a short proof"));
        body.extend(proof);
        body.extend(login.database.as_deref().unwrap_or_default().as_bytes());
        body.push(0);
        body.extend([login.collation, 0]);
        body.extend(self.greeting.plugin.as_bytes());
        body.push(0);
        if self.capabilities & capability::CONNECT_ATTRS != 0 {
            login.put_attributes(&mut body);
        }
        self.command(command::CHANGE_USER, &body)?;
        self.prove(&login.password)
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Returns the sending half, for sending independently of reading.
    ///
    /// # Errors
    /// If too many files are open.
    pub fn sender(&self) -> io::Result<Box<dyn io::Write + Send>> {
        self.stream.sender()
    }

    /// Sends the next packet of an exchange.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        let bytes = packets(self.sequence, payload);
        let count = u8::try_from(payload.len() / PACKET_BYTES_MAX % 256).expect("less than 256");
        self.sequence = self.sequence.wrapping_add(count).wrapping_add(1);
        self.send(&bytes)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn command(&mut self, command: u8, body: &[u8]) -> io::Result<()> {
        self.sequence = 0;
        self.put(&[&[command], body].concat())
    }

    /// Sets the receive timeout.
    pub fn patience(&self, limit: Duration) {
        self.stream.patience(Some(limit)).expect("limit the wait");
    }

    /// Closes the sending half.
    pub fn finish(&self) {
        match self.stream.shutdown(Shutdown::Write) {
            // The peer has already closed the connection.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done.expect("end the way forth"),
        }
    }

    /// Returns the next message, assembled from its packets, whose numbers must be correct.
    ///
    /// # Errors
    /// If the connection breaks, nothing arrives in time, or a number is wrong.
    pub fn packet(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            self.fill(4)?;
            let header: [u8; 4] = self.input[self.at..self.at + 4].try_into().expect("four bytes");
            let [a, b, c, number] = header;
            let length = usize::try_from(u32::from_le_bytes([a, b, c, 0])).expect("64 bits");
            self.fill(4 + length)?;
            let payload = &self.input[self.at + 4..self.at + 4 + length];
            // A server that closes a connection sends an unsolicited error.
            let is_last_word = number == 0 && payload.first() == Some(&0xFF);
            if number != self.sequence && !is_last_word {
                let what = format!("packet {number} instead of {}: {payload:.60?}", self.sequence);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            self.sequence = self.sequence.wrapping_add(1);
            message.extend_from_slice(payload);
            self.at += 4 + length;
            if message.len() > MESSAGE_BYTES_MAX {
                return Err(nonsense());
            }
            if length < PACKET_BYTES_MAX {
                self.last = message[..message.len().min(SHOWN_BYTES)].to_vec();
                return Ok(message);
            }
        }
    }

    /// Reads until `count` unparsed bytes are available.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        if self.input.len() - self.at >= count {
            return Ok(());
        }
        self.input.drain(..self.at);
        self.at = 0;
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

    /// Returns the number of received bytes that are not parsed, without waiting.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.input.len() - self.at
    }

    /// Waits for the server to close the connection. Returns whether it did within the timeout, and
    /// the last error before the end.
    pub fn end(&mut self) -> (bool, Option<MyError>) {
        let mut error = None;
        loop {
            match self.any_packet() {
                Ok(packet) if packet.first() == Some(&0xFF) => {
                    error = MyError::parse(&packet[1..]).or(error);
                }
                Ok(_) => {}
                Err(failure) => {
                    let late = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                    return (!late.contains(&failure.kind()), error);
                }
            }
        }
    }

    /// Reads a packet with any number.
    fn any_packet(&mut self) -> io::Result<Vec<u8>> {
        self.fill(4)?;
        self.sequence = self.input[self.at + 3];
        self.packet()
    }

    /// Sends `COM_QUIT` and closes the connection.
    pub fn close(mut self) {
        // The server may have closed the connection.
        drop(self.command(command::QUIT, &[]));
    }
}

/// Returns the error for an invalid packet.
fn nonsense() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests;
