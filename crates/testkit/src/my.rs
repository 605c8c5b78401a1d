//! A blocking MySQL client that says exactly what a test wants said.
//!
//! It is no driver: it keeps nothing that the protocol does not force on it, sends what it is told,
//! broken or not, and shows everything that came. What it is strict about is what a broken pooler
//! breaks first: numbers of packets, and that every answer has the form that its command asks for.

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

/// How long an answer may take before the client gives up, unless [`MyClient::patience`] says so.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is longer than this is nonsense in a test.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// So much of a packet is shown that should not have come.
const SHOWN_BYTES: usize = 80;
/// The most that one packet holds; what is as long goes on in the next one.
pub const PACKET_BYTES_MAX: usize = 0xFF_FFFF;

/// What either side of a connection can do, by the protocol's bits.
pub mod capability {
    /// Counts rows that were found rather than changed.
    pub const FOUND_ROWS: u32 = 1 << 1;
    /// A login names a database.
    pub const CONNECT_WITH_DB: u32 = 1 << 3;
    /// Packets are compressed.
    pub const COMPRESS: u32 = 1 << 5;
    /// The server may ask for a file of the client's.
    pub const LOCAL_FILES: u32 = 1 << 7;
    /// The protocol since MySQL 4.1.
    pub const PROTOCOL_41: u32 = 1 << 9;
    /// Encryption.
    pub const SSL: u32 = 1 << 11;
    /// Says whether a transaction is open.
    pub const TRANSACTIONS: u32 = 1 << 13;
    /// Passwords since MySQL 4.1.
    pub const SECURE_CONNECTION: u32 = 1 << 15;
    /// Several statements in one text.
    pub const MULTI_STATEMENTS: u32 = 1 << 16;
    /// Several results for one text.
    pub const MULTI_RESULTS: u32 = 1 << 17;
    /// The same for prepared statements.
    pub const PS_MULTI_RESULTS: u32 = 1 << 18;
    /// Names of ways to prove who one is.
    pub const PLUGIN_AUTH: u32 = 1 << 19;
    /// What a client tells of itself.
    pub const CONNECT_ATTRS: u32 = 1 << 20;
    /// Proofs longer than 255 bytes.
    pub const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    /// Changes of the session are told.
    pub const SESSION_TRACK: u32 = 1 << 23;
    /// Rows end with the packet of a statement's end.
    pub const DEPRECATE_EOF: u32 = 1 << 24;
}

/// What a server says of its state, by the protocol's bits.
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
    /// The end.
    pub const QUIT: u8 = 0x01;
    /// Another database.
    pub const INIT_DB: u8 = 0x02;
    /// A statement as text.
    pub const QUERY: u8 = 0x03;
    /// Columns of a table.
    pub const FIELD_LIST: u8 = 0x04;
    /// A line of figures.
    pub const STATISTICS: u8 = 0x09;
    /// Ends another connection.
    pub const PROCESS_KILL: u8 = 0x0C;
    /// Is anybody there?
    pub const PING: u8 = 0x0E;
    /// Another user on the same connection.
    pub const CHANGE_USER: u8 = 0x11;
    /// Endless: the binary log.
    pub const BINLOG_DUMP: u8 = 0x12;
    /// Endless: a replica.
    pub const REGISTER_SLAVE: u8 = 0x15;
    /// Prepares a statement.
    pub const STMT_PREPARE: u8 = 0x16;
    /// Runs it.
    pub const STMT_EXECUTE: u8 = 0x17;
    /// A piece of a parameter.
    pub const STMT_SEND_LONG_DATA: u8 = 0x18;
    /// Forgets it.
    pub const STMT_CLOSE: u8 = 0x19;
    /// Forgets its parameters and its cursor.
    pub const STMT_RESET: u8 = 0x1A;
    /// Several statements in one text, or not.
    pub const SET_OPTION: u8 = 0x1B;
    /// Rows of a cursor.
    pub const STMT_FETCH: u8 = 0x1C;
    /// A session as after a login.
    pub const RESET_CONNECTION: u8 = 0x1F;
}

/// What a client asks for that has nothing special in mind.
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
/// `utf8mb4_general_ci`, which every server knows.
const COLLATION: u8 = 45;

/// Who logs in, and as what.
#[derive(Clone, Debug)]
pub struct MyLogin {
    /// The user's name.
    pub user: String,
    /// How it proves who it is.
    pub password: String,
    /// The database, which may be none.
    pub database: Option<String>,
    /// What it asks for; what the server does not offer is left out.
    pub capabilities: u32,
    /// The number of a collation.
    pub collation: u8,
    /// What it tells of itself.
    pub attributes: Vec<(String, String)>,
}

impl MyLogin {
    /// A login as most are.
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

    /// The same with these capabilities as well.
    #[must_use]
    pub fn with(mut self, capabilities: u32) -> MyLogin {
        self.capabilities |= capabilities;
        self
    }

    /// The same without these capabilities.
    #[must_use]
    pub fn without(mut self, capabilities: u32) -> MyLogin {
        self.capabilities &= !capabilities;
        self
    }

    /// The same with something it tells of itself.
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

/// What a server says first.
#[derive(Clone, Debug, Default)]
pub struct MyGreeting {
    /// Its version, in its own words.
    pub version: String,
    /// The connection's number.
    pub thread_id: u32,
    /// What proofs are made with.
    pub nonce: Vec<u8>,
    /// What it offers.
    pub capabilities: u32,
    /// The way in which it would like to have it proved who comes.
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
        // Twelve more bytes at least, and a zero that is none of it.
        let second = rest.bytes(length.saturating_sub(8).max(13))?;
        nonce.extend(second.split_last()?.1);
        let plugin = text(rest.terminated().unwrap_or(rest.0));
        let capabilities = u32::from(low) | u32::from(high) << 16;
        Some(MyGreeting { version, thread_id, nonce, capabilities, plugin })
    }
}

/// A statement that a server has prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MyStatement {
    /// Its number.
    pub id: u32,
    /// Columns of its rows.
    pub columns: u16,
    /// Its parameters.
    pub parameters: u16,
    /// Warnings of its preparation.
    pub warnings: u16,
}

/// A parameter of a statement.
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
    /// Was sent before, by [`MyClient::long_data`].
    Long,
}

impl MyValue<'_> {
    /// The type that the protocol calls it.
    fn kind(self) -> u8 {
        match self {
            MyValue::Null => 0x06,
            MyValue::Int(_) => 0x08,
            MyValue::Text(_) => 0xFD,
            MyValue::Bytes(_) | MyValue::Long => 0xFC,
        }
    }
}

/// The body of a command that runs a statement. Without `binds` the types that were told before
/// hold.
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

/// A packet, or several where one does not hold it.
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

/// A command as it is sent.
#[must_use]
pub fn message(command: u8, body: &[u8]) -> Vec<u8> {
    packets(0, &[&[command], body].concat())
}

/// A connection.
#[derive(Debug)]
pub struct MyClient {
    stream: Stream,
    is_local: bool,
    /// Bytes that were read; those before `at` were looked at.
    input: Vec<u8>,
    at: usize,
    /// How the last packet began, for whoever reads of a failure.
    last: Vec<u8>,
    /// The number of the next packet, whoever sends it.
    pub sequence: u8,
    /// What the server said first.
    pub greeting: MyGreeting,
    /// What both sides can do.
    pub capabilities: u32,
    /// The server's state as it was last told.
    pub status: u16,
    /// What it answers when the server asks for a file; without it, it answers with an empty one.
    pub file: Option<Vec<u8>>,
    /// Files that the server has asked for.
    pub files_asked: Vec<String>,
}

impl MyClient {
    /// Connects and says nothing.
    ///
    /// # Errors
    /// When nobody listens.
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
    /// When the connection breaks; the server's error when it refuses.
    pub fn login(address: &PgAddress, login: &MyLogin) -> Result<MyClient, MyFailure> {
        let mut client = MyClient::open(address)?;
        client.greet()?;
        client.put(&client.response(login))?;
        client.capabilities = login.capabilities & client.greeting.capabilities;
        client.prove(&login.password)?;
        Ok(client)
    }

    /// Reads what the server says first.
    ///
    /// # Errors
    /// When the connection breaks; the server's error when it takes nobody.
    pub fn greet(&mut self) -> Result<(), MyFailure> {
        let packet = self.packet()?;
        if packet.first() == Some(&0xFF) {
            return Err(MyFailure::Server(MyError::parse(&packet[1..]).ok_or_else(nonsense)?));
        }
        self.greeting = MyGreeting::parse(&packet).ok_or_else(nonsense)?;
        Ok(())
    }

    /// What answers a greeting: the capabilities of the login that the server offers, and a proof
    /// for the plugin that it names.
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

    /// Answers what the server asks for until it has let the client in.
    ///
    /// # Errors
    /// When the connection breaks; the server's error when it refuses.
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
                // It had the proof already.
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

    /// Becomes another user on the same connection.
    ///
    /// # Errors
    /// When the connection breaks; the server's error when it refuses.
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

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The way forth alone, for whoever sends while somebody else reads, or nobody does.
    ///
    /// # Errors
    /// When there are too many files open.
    pub fn sender(&self) -> io::Result<Box<dyn io::Write + Send>> {
        self.stream.sender()
    }

    /// Sends the next packet of an exchange.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        let bytes = packets(self.sequence, payload);
        let count = u8::try_from(payload.len() / PACKET_BYTES_MAX % 256).expect("less than 256");
        self.sequence = self.sequence.wrapping_add(count).wrapping_add(1);
        self.send(&bytes)
    }

    /// Begins a command.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn command(&mut self, command: u8, body: &[u8]) -> io::Result<()> {
        self.sequence = 0;
        self.put(&[&[command], body].concat())
    }

    /// How long it waits for bytes.
    pub fn patience(&self, limit: Duration) {
        self.stream.patience(Some(limit)).expect("limit the wait");
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        match self.stream.shutdown(Shutdown::Write) {
            // The other side has ended it already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            done => done.expect("end the way forth"),
        }
    }

    /// The next message, put together of its packets, which must be numbered as they should.
    ///
    /// # Errors
    /// When the connection breaks, nothing comes in time or a number is wrong.
    pub fn packet(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            self.fill(4)?;
            let header: [u8; 4] = self.input[self.at..self.at + 4].try_into().expect("four bytes");
            let [a, b, c, number] = header;
            let length = usize::try_from(u32::from_le_bytes([a, b, c, 0])).expect("64 bits");
            self.fill(4 + length)?;
            let payload = &self.input[self.at + 4..self.at + 4 + length];
            // A server that ends a connection says so without having been asked.
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

    /// Reads until there are so many bytes that nobody has looked at.
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
                // A read with a deadline ends so when the process was held, too (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Bytes that came and that nobody asked for, without waiting for any.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.input.len() - self.at
    }

    /// Whether the server has ended the connection, waiting for it as long as its patience lasts.
    /// The error that was said before the end is given.
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

    /// A packet of whatever number.
    fn any_packet(&mut self) -> io::Result<Vec<u8>> {
        self.fill(4)?;
        self.sequence = self.input[self.at + 3];
        self.packet()
    }

    /// Says goodbye.
    pub fn close(mut self) {
        // Nobody may be there any more.
        drop(self.command(command::QUIT, &[]));
    }
}

/// What came is not what may come.
fn nonsense() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests;
