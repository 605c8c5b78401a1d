//! Connection to a server of MySQL or MariaDB for the bouncer's own queries; it shares the errors
//! and limits of [`control`](crate::control).

use std::fmt;
use std::sync::Arc;

use pooler_core::mysql::COLLATION;
use pooler_core::mysql::dial::{MysqlCredentials, MysqlDial, MysqlDialNext, MysqlDialParams};
use wire::mysql::capabilities::CapabilityFlags;
use wire::mysql::command::Command;
use wire::mysql::frame::{self, PacketHeader};
use wire::mysql::handshake;
use wire::mysql::lenenc::PacketReader;
use wire::mysql::packet::ErrPacket;
use wire::mysql::reply::{CommandReplyState, ReplyEvent, ReplyKind};

use crate::control::{ANSWER_BYTES_MAX, ControlError, ControlLine, ROWS_MAX, Rows};
use crate::tenants::ServerAddress;
use crate::tls::{self, ServerSide};

/// Maximum columns of an answer.
const COLUMNS_MAX: u64 = 64;

/// Address and user of a control connection.
#[derive(Clone, Debug)]
pub struct MysqlControlTarget<'a> {
    /// The server.
    pub server: &'a ServerAddress,
    /// The schema there; `None` if no unqualified tables are used.
    pub database: Option<&'a str>,
    /// The user.
    pub user: &'a str,
    /// Credentials of the user.
    pub credentials: Arc<MysqlCredentials>,
    /// Program name that the server shows.
    pub application: &'a str,
}

/// A connection that is logged in.
pub struct MysqlControlConnection {
    line: ControlLine,
    capabilities: CapabilityFlags,
    is_mariadb: bool,
}

impl MysqlControlConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the login.
    pub async fn open(
        tls: &ServerSide,
        errand: MysqlControlTarget<'_>,
    ) -> Result<MysqlControlConnection, ControlError> {
        let address = &errand.server.address;
        let dial = MysqlDial::new(MysqlDialParams {
            user: errand.user.to_owned(),
            database: errand.database.map(str::to_owned),
            credentials: errand.credentials,
            tls: tls::request(&errand.server.tls, address),
            assurance: tls::assurance(&errand.server.tls, address.socket_path().is_some()),
            more: CapabilityFlags::NONE,
            collation: COLLATION,
            attributes: vec![("program_name".to_owned(), errand.application.to_owned())],
            statements: Vec::new(),
        });
        let line = ControlLine::connect(address).await?;
        let control =
            MysqlControlConnection { line, capabilities: CapabilityFlags::NONE, is_mariadb: false };
        control.log_in(dial, tls, errand.server).await
    }

    async fn log_in(
        mut self,
        mut dial: MysqlDial,
        tls: &ServerSide,
        server: &ServerAddress,
    ) -> Result<MysqlControlConnection, ControlError> {
        let mut out = Vec::new();
        let mut next = dial.start(&mut out);
        loop {
            self.line.send(&mut out).await?;
            match next {
                MysqlDialNext::More => {
                    self.line.read().await?;
                    let step = dial.input(&self.line.input, &mut out);
                    self.line.input.drain(..step.consumed);
                    next = step.next;
                }
                MysqlDialNext::StartTls => {
                    self.line.start_tls(tls, server).await?;
                    next = dial.tls_started(&mut out);
                }
                MysqlDialNext::Ready(greeting) => {
                    self.capabilities = greeting.capabilities;
                    self.is_mariadb = handshake::is_mariadb(greeting.version.as_bytes());
                    return Ok(self);
                }
                MysqlDialNext::Fail(error) => return Err(ControlError::LogInMysql(error)),
                MysqlDialNext::Cancelled => return Err(ControlError::Closed),
            }
        }
    }

    /// Returns whether the server is MariaDB.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        self.is_mariadb
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// If the server does not answer it.
    pub async fn ping(&mut self) -> Result<(), ControlError> {
        self.command(Command::Ping, b"").await.map(drop)
    }

    /// Runs one statement, and returns the rows of its last result. After any error other than one
    /// from the server the connection cannot be used any more.
    ///
    /// # Errors
    /// If the server reports one, closes the connection, or sends too much.
    pub async fn ask(&mut self, text: &str) -> Result<Rows, ControlError> {
        self.command(Command::Query, text.as_bytes()).await
    }

    async fn command(&mut self, command: Command, body: &[u8]) -> Result<Rows, ControlError> {
        let (mut out, mut seq) = (Vec::new(), 0);
        let payload = [&[command.code()], body].concat();
        frame::put_packet(&mut out, &mut seq, &payload);
        self.line.send(&mut out).await?;
        let mut answer = MysqlControlReply::new(command.reply(), self.capabilities);
        loop {
            let header = PacketHeader::parse(&self.line.input);
            let Some(header) = header.filter(|header| header.total() <= self.line.input.len())
            else {
                self.line.read().await?;
                continue;
            };
            let payload = self.line.input.get(frame::HEADER_BYTES..header.total());
            let is_done = answer.take(header, payload.unwrap_or_default())?;
            self.line.input.drain(..header.total());
            if is_done {
                return answer.error.map_or(Ok(answer.rows), Err);
            }
        }
    }

    /// Sends a quit command, so that the server does not log a broken connection.
    pub async fn close(mut self) {
        let (mut out, mut seq) = (Vec::new(), 0);
        frame::put_packet(&mut out, &mut seq, &[Command::Quit.code()]);
        // An error means that the connection is closed already.
        drop(self.line.send(&mut out).await);
    }
}

impl fmt::Debug for MysqlControlConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// Part of an answer received so far.
#[derive(Debug)]
struct MysqlControlReply {
    reply: CommandReplyState,
    seq: u8,
    received: usize,
    columns: u64,
    rows: Rows,
    error: Option<ControlError>,
}

impl MysqlControlReply {
    fn new(kind: ReplyKind, capabilities: CapabilityFlags) -> MysqlControlReply {
        let reply = CommandReplyState::new(kind, capabilities);
        MysqlControlReply { reply, seq: 1, received: 0, columns: 0, rows: Rows::new(), error: None }
    }

    /// Takes the next packet; returns whether it was the last one.
    fn take(&mut self, header: PacketHeader, payload: &[u8]) -> Result<bool, ControlError> {
        if header.seq != self.seq || header.is_continued() {
            return Err(ControlError::Protocol("a packet that is too long or out of order"));
        }
        self.seq = self.seq.wrapping_add(1);
        self.received = self.received.saturating_add(header.total());
        if self.received > ANSWER_BYTES_MAX || self.rows.len() > ROWS_MAX {
            return Err(ControlError::Protocol("too long an answer"));
        }
        let event = self.reply.packet(payload, payload.len());
        match event.map_err(|_| ControlError::Protocol("a packet that cannot come"))? {
            ReplyEvent::Columns(columns) if columns > COLUMNS_MAX => {
                return Err(ControlError::Protocol("too many columns"));
            }
            ReplyEvent::Columns(columns) => {
                self.columns = columns;
                self.rows.clear();
            }
            ReplyEvent::Row => self.rows.push(row(payload, self.columns)?),
            ReplyEvent::Error => {
                let error = ErrPacket::parse(payload).ok_or(ControlError::Protocol("an error"))?;
                self.error = Some(ControlError::Refused {
                    code: format!("{} {}", error.code, String::from_utf8_lossy(&error.state)),
                    message: String::from_utf8_lossy(error.message).into_owned(),
                });
            }
            ReplyEvent::LocalInfile => return Err(ControlError::Protocol("a demand for a file")),
            _ => {} // ignored: definitions, ends of results
        }
        Ok(self.reply.is_done())
    }
}

/// Returns the values of a row.
fn row(payload: &[u8], columns: u64) -> Result<Vec<Option<String>>, ControlError> {
    let malformed = || ControlError::Protocol("a row");
    let mut reader = PacketReader::new(payload);
    let mut values = Vec::new();
    for _ in 0..columns {
        let value = reader.value().ok_or_else(malformed)?;
        let text = value.map(|bytes| std::str::from_utf8(bytes).map(str::to_owned));
        values.push(text.transpose().map_err(|_| malformed())?);
    }
    reader.is_empty().then_some(values).ok_or_else(malformed)
}

#[cfg(test)]
mod tests;
