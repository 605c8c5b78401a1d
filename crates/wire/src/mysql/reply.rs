//! The grammar of replies: the meaning of each packet by the command and the packets before.
//!
//! The first byte of a packet does not determine its meaning. 0x00 begins an OK packet, a row of a
//! prepared statement and a row of text whose first value is empty; 0xFE begins an EOF packet, an
//! OK packet that ends rows, and a row whose first value has 16 MiB. So there is a state for each
//! position in each reply, and nothing is guessed: a packet that is invalid at its position is an
//! error, after which the connection cannot be trusted.
//!
//! [`CommandReplyState::packet`] is called once per message; the continuation packets of a message
//! of 16 MiB or more do not count (see [`super::frame::PacketContinuation`]). It copies and buffers
//! nothing.
//!
//! Progress reports (MariaDB, errors with the number 0xFFFF) would appear between packets of a
//! reply; [`CapabilityFlags::MARIADB_PROGRESS`] must not be negotiated, and a report that arrives
//! nevertheless is treated as the error that it looks like. Nor may the capabilities be negotiated
//! that make column definitions optional: [`CapabilityFlags::OPTIONAL_RESULTSET_METADATA`] and
//! [`CapabilityFlags::MARIADB_CACHE_METADATA`].
//!
//! Source: MySQL's source documentation, pages "Text Resultset", "Binary Protocol Resultset",
//! "COM_STMT_PREPARE", "COM_STMT_FETCH" and "COM_FIELD_LIST".
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response.html>

use super::capabilities::{CapabilityFlags, StatusFlags};
use super::frame::PAYLOAD_MAX;
use super::lenenc::{NULL, PacketReader};
use super::packet::{
    EOF, EOF_LEN, EOF_LEN_BOUND, ERR, EofPacket, LOCAL_INFILE, OK, status_and_warnings,
};

/// Maximum columns of a result. MySQL and MariaDB have at most 4096; those of a prepared statement
/// are counted with 16 bits.
pub const COLUMNS_MAX: u64 = 0xFFFF;

/// Maximum packet that has to be parsed whole: OK, EOF, errors, column counts, the first packet of
/// a prepare. A longer one is refused.
pub const HELD_BYTES_MAX: usize = 1 << 20;

/// Minimum length of the first packet of a prepare.
const PREPARED_LEN: usize = 12;

/// Shape of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyKind {
    /// No reply.
    None,
    /// OK, an error, or EOF.
    Simple,
    /// Results with rows of text.
    Query,
    /// Results with rows in the binary protocol, for an execution without a cursor.
    Execute,
    /// Result or cursor, for an execution that requests a cursor. Only here `CURSOR_EXISTS` means
    /// that the rows have to be fetched: MariaDB also sets it while a block runs whose own cursor
    /// is open (`FOR … DO`).
    Cursor,
    /// The number of a statement, and the definitions of its parameters and columns.
    Prepare,
    /// Column definitions.
    FieldList,
    /// A packet of text.
    Text,
    /// Rows of a cursor.
    Rows,
    /// More than one reply to a request, or an endless stream. This grammar does not cover it.
    Foreign,
}

impl ReplyKind {
    /// Returns the kind for an execution with these flags (`COM_STMT_EXECUTE`), which select the
    /// kind of cursor; zero means none.
    #[must_use]
    pub const fn of_execution(flags: u8) -> ReplyKind {
        if flags == 0 { ReplyKind::Execute } else { ReplyKind::Cursor }
    }
}

/// Meaning of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEvent {
    /// Success of a statement without rows; the end of this result.
    Ok(StatusFlags),
    /// An error; the end of the reply.
    Error,
    /// The beginning of a result with this number of columns.
    Columns(u64),
    /// The definition of a column or a parameter.
    Column,
    /// An EOF after definitions. Absent with `DEPRECATE_EOF`.
    ColumnsEnd(StatusFlags),
    /// A row.
    Row,
    /// The end of rows, or of a result whose rows have to be fetched (`CURSOR_EXISTS`).
    End(StatusFlags),
    /// The server requests a file of the client, whose name follows the first byte. The client
    /// sends packets up to an empty one; then the reply continues.
    LocalInfile,
    /// A statement was prepared. Definitions follow, first those of parameters.
    Prepared {
        /// The server's number for it.
        id: u32,
        /// Columns of its rows.
        columns: u16,
        /// Parameters.
        params: u16,
        /// Warnings.
        warnings: u16,
    },
    /// The text.
    Text,
}

/// The server violated the grammar: the stream cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A packet that is invalid at this position.
    #[error("the server sent a packet that begins with {first:#04x} in {place}")]
    Unexpected {
        /// First byte.
        first: u8,
        /// Position in the reply.
        place: &'static str,
    },
    /// A packet without the required contents.
    #[error("the server sent an empty packet in {0}")]
    Empty(&'static str),
    /// A packet with malformed contents, or one that was not given whole.
    #[error("the server sent a packet that does not make sense in {0}")]
    Malformed(&'static str),
    /// More columns than allowed.
    #[error("the server announced {0} columns, more than {COLUMNS_MAX}")]
    TooManyColumns(u64),
    /// A packet that has to be parsed whole is longer than [`HELD_BYTES_MAX`].
    #[error("the server sent {0} bytes where at most {HELD_BYTES_MAX} make sense")]
    TooLong(usize),
}

/// Position of the next packet in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyPosition {
    /// OK, an error or EOF as a simple reply.
    Simple,
    /// The first packet of a result.
    Result,
    /// OK or an error after a file of the client.
    LocalInfile,
    /// Definitions of a result's columns.
    Columns { left: u64 },
    /// The EOF after them.
    ColumnsEnd,
    /// Rows.
    Rows,
    /// The first packet of a prepare.
    Prepared,
    /// Definitions of parameters; then those of columns.
    Params { left: u16, columns: u16 },
    /// The EOF after those of parameters.
    ParamsEnd { columns: u16 },
    /// Definitions of a statement's columns.
    StatementColumns { left: u16 },
    /// The EOF after them.
    StatementColumnsEnd,
    /// Column definitions of unknown number.
    Fields,
    /// A text.
    Text,
    /// End of the reply.
    Done,
}

impl ReplyPosition {
    const fn describe(self) -> &'static str {
        match self {
            Self::Simple => "the reply to a simple command",
            Self::Result => "the beginning of a result",
            Self::LocalInfile => "the reply to a file",
            Self::Columns { .. } | Self::ColumnsEnd => "the columns of a result",
            Self::Rows => "rows",
            Self::Prepared => "the reply to a preparation",
            Self::Params { .. } | Self::ParamsEnd { .. } => "the parameters of a statement",
            Self::StatementColumns { .. } | Self::StatementColumnsEnd => "a statement's columns",
            Self::Fields => "a list of fields",
            Self::Text => "a text",
            Self::Done => "no reply",
        }
    }
}

/// State of the reply to one command.
#[derive(Clone, Debug)]
pub struct CommandReplyState {
    kind: ReplyKind,
    place: ReplyPosition,
    deprecate_eof: bool,
    /// True if the last definition ended its block.
    block_ended: bool,
    status: StatusFlags,
    warnings: u16,
}

impl CommandReplyState {
    /// Creates the state before a reply, from a server with which `caps` were negotiated.
    #[inline]
    pub const fn new(kind: ReplyKind, caps: CapabilityFlags) -> Self {
        let place = match kind {
            ReplyKind::None | ReplyKind::Foreign => ReplyPosition::Done,
            ReplyKind::Simple => ReplyPosition::Simple,
            ReplyKind::Query | ReplyKind::Execute | ReplyKind::Cursor => ReplyPosition::Result,
            ReplyKind::Prepare => ReplyPosition::Prepared,
            ReplyKind::FieldList => ReplyPosition::Fields,
            ReplyKind::Text => ReplyPosition::Text,
            ReplyKind::Rows => ReplyPosition::Rows,
        };
        let deprecate_eof = caps.contains(CapabilityFlags::DEPRECATE_EOF);
        Self {
            kind,
            place,
            deprecate_eof,
            block_ended: false,
            status: StatusFlags::NONE,
            warnings: 0,
        }
    }

    /// Returns the kind of the reply.
    #[inline]
    pub const fn kind(&self) -> ReplyKind {
        self.kind
    }

    /// Returns whether no part of a reply with results has arrived. After a first result, the
    /// status in its OK or EOF announces further ones.
    #[inline]
    pub const fn is_before_first_result(&self) -> bool {
        matches!(self.place, ReplyPosition::Result) && self.status.0 == 0
    }

    /// Returns whether the reply is complete.
    #[inline]
    pub const fn is_done(&self) -> bool {
        matches!(self.place, ReplyPosition::Done)
    }

    /// Returns the session status of the last OK or EOF packet. An error has none.
    #[inline]
    pub const fn status(&self) -> StatusFlags {
        self.status
    }

    /// Returns the number of warnings in the last OK or EOF packet, or in the first packet of a
    /// prepare.
    #[inline]
    pub const fn warnings(&self) -> u16 {
        self.warnings
    }

    /// Returns, after [`ReplyEvent::Column`], whether it was the last definition of its block of
    /// columns or parameters. A translation for a client without `DEPRECATE_EOF` inserts an EOF
    /// there: at once in a prepare; in a result only before the first row or before an end, except
    /// for that of a cursor, whose result has a single EOF.
    #[inline]
    pub const fn is_block_end(&self) -> bool {
        self.block_ended
    }

    /// Returns whether [`CommandReplyState::packet`] requires the whole next packet, which begins
    /// with `first` and has `len` bytes. Other packets may be forwarded as they arrive.
    #[inline]
    pub const fn holds_whole(&self, first: u8, len: usize) -> bool {
        match self.place {
            ReplyPosition::Rows => first == ERR || self.is_end(first, len),
            ReplyPosition::Columns { .. }
            | ReplyPosition::Params { .. }
            | ReplyPosition::StatementColumns { .. } => first == ERR,
            ReplyPosition::Fields => first == ERR || self.is_end(first, len),
            ReplyPosition::Simple
            | ReplyPosition::Result
            | ReplyPosition::LocalInfile
            | ReplyPosition::ColumnsEnd
            | ReplyPosition::Prepared
            | ReplyPosition::ParamsEnd { .. }
            | ReplyPosition::StatementColumnsEnd => true,
            ReplyPosition::Text | ReplyPosition::Done => false,
        }
    }

    /// Returns whether the next packet, described in the same way, is a row.
    #[inline]
    pub const fn is_row(&self, first: u8, len: usize) -> bool {
        matches!(self.place, ReplyPosition::Rows) && first != ERR && !self.is_end(first, len)
    }

    /// Returns whether a packet among rows or fields ends them. A row that begins with 0xFE has a
    /// value of 16 MiB or more, so that its first packet is full.
    #[inline]
    const fn is_end(&self, first: u8, len: usize) -> bool {
        let bound = if self.deprecate_eof { PAYLOAD_MAX } else { EOF_LEN_BOUND };
        first == EOF && len < bound
    }

    /// Processes the next packet: `head` contains its first bytes, all of them if
    /// [`CommandReplyState::holds_whole`], else at least one; `len` is the length of its (first)
    /// payload.
    ///
    /// # Errors
    /// If the packet is invalid at this position; the connection must be closed.
    #[inline]
    pub fn packet(&mut self, head: &[u8], len: usize) -> Result<ReplyEvent, ReplyError> {
        let Some(&first) = head.first() else { return self.without_contents() };
        // The most frequent case first.
        if self.is_row(first, len) {
            return self.row(first);
        }
        if self.holds_whole(first, len) {
            if len > HELD_BYTES_MAX {
                return Err(ReplyError::TooLong(len));
            }
            if head.len() != len {
                return Err(self.malformed());
            }
        }
        if first == ERR && !matches!(self.place, ReplyPosition::Done) {
            self.place = ReplyPosition::Done;
            return Ok(ReplyEvent::Error);
        }
        match self.place {
            ReplyPosition::Simple => self.simple(first, head),
            ReplyPosition::LocalInfile if first == OK => self.ok(head),
            ReplyPosition::Result => self.result(first, head),
            ReplyPosition::Columns { left } => self.column(first, left),
            ReplyPosition::Rows | ReplyPosition::Fields if self.is_end(first, len) => {
                self.end(head)
            }
            ReplyPosition::Fields => self.definition(first),
            ReplyPosition::ColumnsEnd => self.columns_end(head),
            ReplyPosition::Prepared => self.prepared(first, head),
            ReplyPosition::Params { left, columns } => self.param(first, left, columns),
            ReplyPosition::StatementColumns { left } => self.statement_column(first, left),
            ReplyPosition::ParamsEnd { columns } => {
                let status = self.eof(head)?;
                self.place = statement_columns(columns);
                Ok(ReplyEvent::ColumnsEnd(status))
            }
            ReplyPosition::StatementColumnsEnd => {
                let status = self.eof(head)?;
                self.place = ReplyPosition::Done;
                Ok(ReplyEvent::ColumnsEnd(status))
            }
            ReplyPosition::Text => {
                self.place = ReplyPosition::Done;
                Ok(ReplyEvent::Text)
            }
            ReplyPosition::LocalInfile | ReplyPosition::Rows | ReplyPosition::Done => {
                Err(self.unexpected(first))
            }
        }
    }

    #[cold]
    fn without_contents(&mut self) -> Result<ReplyEvent, ReplyError> {
        // Only a text may be empty.
        if self.place == ReplyPosition::Text {
            self.place = ReplyPosition::Done;
            return Ok(ReplyEvent::Text);
        }
        Err(ReplyError::Empty(self.place.describe()))
    }

    #[cold]
    const fn unexpected(&self, first: u8) -> ReplyError {
        ReplyError::Unexpected { first, place: self.place.describe() }
    }

    #[cold]
    const fn malformed(&self) -> ReplyError {
        ReplyError::Malformed(self.place.describe())
    }

    #[inline]
    fn row(&self, first: u8) -> Result<ReplyEvent, ReplyError> {
        // Rows of the binary protocol begin with a zero, those of the text protocol with any byte.
        if first != 0 && self.kind != ReplyKind::Query {
            return Err(self.unexpected(first));
        }
        Ok(ReplyEvent::Row)
    }

    fn simple(&mut self, first: u8, head: &[u8]) -> Result<ReplyEvent, ReplyError> {
        match first {
            OK => self.ok(head),
            EOF => self.end(head),
            _ => Err(self.unexpected(first)),
        }
    }

    fn result(&mut self, first: u8, head: &[u8]) -> Result<ReplyEvent, ReplyError> {
        match first {
            OK => self.ok(head),
            LOCAL_INFILE => {
                self.place = ReplyPosition::LocalInfile;
                Ok(ReplyEvent::LocalInfile)
            }
            _ => {
                let mut reader = PacketReader::new(head);
                let count = reader.lenenc_int().filter(|_| reader.is_empty());
                match count.ok_or(self.malformed())? {
                    0 => Err(self.malformed()),
                    count @ 1..=COLUMNS_MAX => {
                        self.place = ReplyPosition::Columns { left: count };
                        Ok(ReplyEvent::Columns(count))
                    }
                    count => Err(ReplyError::TooManyColumns(count)),
                }
            }
        }
    }

    fn prepared(&mut self, first: u8, head: &[u8]) -> Result<ReplyEvent, ReplyError> {
        if first != OK {
            return Err(self.unexpected(first));
        }
        if head.len() < PREPARED_LEN {
            return Err(self.malformed());
        }
        let mut reader = PacketReader::new(head);
        reader.u8();
        let (id, columns, params) = (reader.u32(), reader.u16(), reader.u16());
        reader.u8();
        let (Some(id), Some(columns), Some(params), Some(warnings)) =
            (id, columns, params, reader.u16())
        else {
            return Err(self.malformed());
        };
        self.warnings = warnings;
        self.place = match params {
            0 => statement_columns(columns),
            left => ReplyPosition::Params { left, columns },
        };
        Ok(ReplyEvent::Prepared { id, columns, params, warnings })
    }

    /// Handles a definition, whose first byte is the length of a short name.
    #[inline]
    const fn definition(&self, first: u8) -> Result<ReplyEvent, ReplyError> {
        if first < NULL { Ok(ReplyEvent::Column) } else { Err(self.unexpected(first)) }
    }

    #[inline]
    fn column(&mut self, first: u8, left: u64) -> Result<ReplyEvent, ReplyError> {
        let event = self.definition(first)?;
        self.block_ended = left <= 1;
        self.place = match left.saturating_sub(1) {
            0 if self.deprecate_eof => ReplyPosition::Rows,
            0 => ReplyPosition::ColumnsEnd,
            left => ReplyPosition::Columns { left },
        };
        Ok(event)
    }

    fn param(&mut self, first: u8, left: u16, columns: u16) -> Result<ReplyEvent, ReplyError> {
        let event = self.definition(first)?;
        self.block_ended = left <= 1;
        self.place = match left.saturating_sub(1) {
            0 if self.deprecate_eof => statement_columns(columns),
            0 => ReplyPosition::ParamsEnd { columns },
            left => ReplyPosition::Params { left, columns },
        };
        Ok(event)
    }

    fn statement_column(&mut self, first: u8, left: u16) -> Result<ReplyEvent, ReplyError> {
        let event = self.definition(first)?;
        self.block_ended = left <= 1;
        self.place = match left.saturating_sub(1) {
            0 if self.deprecate_eof => ReplyPosition::Done,
            0 => ReplyPosition::StatementColumnsEnd,
            left => ReplyPosition::StatementColumns { left },
        };
        Ok(event)
    }

    fn columns_end(&mut self, head: &[u8]) -> Result<ReplyEvent, ReplyError> {
        let status = self.eof(head)?;
        if self.kind == ReplyKind::Cursor && status.contains(StatusFlags::CURSOR_EXISTS) {
            self.result_ended();
            return Ok(ReplyEvent::End(status));
        }
        self.place = ReplyPosition::Rows;
        Ok(ReplyEvent::ColumnsEnd(status))
    }

    #[inline]
    fn ok(&mut self, head: &[u8]) -> Result<ReplyEvent, ReplyError> {
        let (status, warnings) = status_and_warnings(head).ok_or(self.malformed())?;
        (self.status, self.warnings) = (status, warnings);
        self.result_ended();
        Ok(ReplyEvent::Ok(status))
    }

    /// Handles the end of rows or fields, or of a simple reply. A packet with the length of an EOF
    /// packet is one, whatever was negotiated: no OK packet is that short.
    #[inline]
    fn end(&mut self, head: &[u8]) -> Result<ReplyEvent, ReplyError> {
        if head.len() == EOF_LEN {
            self.eof(head)?;
        } else if self.deprecate_eof {
            let (status, warnings) = status_and_warnings(head).ok_or(self.malformed())?;
            (self.status, self.warnings) = (status, warnings);
        } else {
            return Err(self.malformed());
        }
        self.result_ended();
        Ok(ReplyEvent::End(self.status))
    }

    fn eof(&mut self, head: &[u8]) -> Result<StatusFlags, ReplyError> {
        let eof = EofPacket::parse(head).ok_or(self.malformed())?;
        (self.status, self.warnings) = (eof.status, eof.warnings);
        Ok(eof.status)
    }

    #[inline]
    fn result_ended(&mut self) {
        let several =
            matches!(self.kind, ReplyKind::Query | ReplyKind::Execute | ReplyKind::Cursor);
        self.place = if several && self.status.contains(StatusFlags::MORE_RESULTS) {
            ReplyPosition::Result
        } else {
            ReplyPosition::Done
        };
    }
}

const fn statement_columns(columns: u16) -> ReplyPosition {
    match columns {
        0 => ReplyPosition::Done,
        left => ReplyPosition::StatementColumns { left },
    }
}

#[cfg(test)]
mod tests;
