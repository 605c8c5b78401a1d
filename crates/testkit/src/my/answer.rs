//! Responses of a MySQL server.

use std::fmt;
use std::io;

use super::bytes::{Bytes, text};

/// End of a statement or of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MyOk {
    /// Number of changed rows.
    pub affected_rows: u64,
    /// First automatically generated row id.
    pub last_insert_id: u64,
    /// Server status: [`super::status`].
    pub status: u16,
    /// Number of warnings.
    pub warnings: u16,
    /// Information text.
    pub info: String,
    /// Encoded session changes.
    pub changes: Vec<u8>,
}

impl MyOk {
    /// Parses an OK packet after its first byte.
    pub(super) fn parse(body: &[u8], tracks: bool) -> Option<MyOk> {
        let mut rest = Bytes(body);
        let mut ok = MyOk {
            affected_rows: rest.number()?,
            last_insert_id: rest.number()?,
            status: rest.u16()?,
            warnings: rest.u16()?,
            ..MyOk::default()
        };
        if !tracks {
            ok.info = text(rest.0);
        } else if !rest.0.is_empty() {
            ok.info = text(rest.counted()?);
            if ok.status & super::status::SESSION_STATE_CHANGED != 0 {
                ok.changes = rest.counted()?.to_vec();
            }
        }
        Some(ok)
    }

    /// Parses the older end of rows after its first byte.
    pub(super) fn parse_eof(body: &[u8]) -> Option<MyOk> {
        let mut rest = Bytes(body);
        let warnings = rest.u16()?;
        Some(MyOk { warnings, status: rest.u16()?, ..MyOk::default() })
    }
}

/// Error from a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MyError {
    /// MySQL's error number.
    pub code: u16,
    /// SQLSTATE.
    pub state: String,
    /// Message.
    pub message: String,
}

impl MyError {
    /// Parses an error after its first byte. Before the login it has no SQLSTATE.
    pub(super) fn parse(body: &[u8]) -> Option<MyError> {
        let mut rest = Bytes(body);
        let code = rest.u16()?;
        let state = match rest.0.first() {
            Some(b'#') => text(rest.bytes(6)?.get(1..)?),
            _ => String::new(),
        };
        Some(MyError { code, state, message: text(rest.0) })
    }
}

impl fmt::Display for MyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.state, self.message)
    }
}

/// Column of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MyColumn {
    /// Name.
    pub name: String,
    /// Type number of the protocol.
    pub kind: u8,
    /// Flags.
    pub flags: u16,
    /// Number of the character set and collation.
    pub collation: u16,
}

/// Flag of unsigned columns; others are signed.
const UNSIGNED: u16 = 0x20;

impl MyColumn {
    pub(super) fn parse(packet: &[u8]) -> Option<MyColumn> {
        let mut rest = Bytes(packet);
        // Catalog, schema, table, original table.
        for _ in 0..4 {
            rest.counted()?;
        }
        let name = text(rest.counted()?);
        rest.counted()?;
        rest.number()?;
        let collation = rest.u16()?;
        rest.u32()?;
        Some(MyColumn { name, collation, kind: rest.u8()?, flags: rest.u16()? })
    }

    /// Returns a value of the binary protocol as text.
    pub(super) fn value(&self, rest: &mut Bytes<'_>) -> Option<Vec<u8>> {
        let unsigned = self.flags & UNSIGNED != 0;
        let number = match self.kind {
            0x01 => signed(rest.u8()?.into(), 8, unsigned),
            0x02 | 0x0D => signed(rest.u16()?.into(), 16, unsigned),
            0x03 | 0x09 => signed(rest.u32()?.into(), 32, unsigned),
            0x08 => signed(rest.u64()?, 64, unsigned),
            0x04 => f32::from_le_bytes(rest.take()?).to_string(),
            0x05 => f64::from_le_bytes(rest.take()?).to_string(),
            // Dates and times have a length prefix, too.
            _ => return rest.counted().map(<[u8]>::to_vec),
        };
        Some(number.into_bytes())
    }
}

fn signed(number: u64, bits: u32, unsigned: bool) -> String {
    if unsigned {
        return number.to_string();
    }
    let shift = 64 - bits;
    ((number << shift).cast_signed() >> shift).to_string()
}

/// Set of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MyRows {
    /// Columns.
    pub columns: Vec<MyColumn>,
    /// Received values, with numbers of the binary protocol as text; `None` is NULL.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
    /// End of the rows; none if an error ended them.
    pub end: Option<MyOk>,
}

impl MyRows {
    /// Returns the values as text.
    #[must_use]
    pub fn texts(&self) -> Vec<Vec<Option<String>>> {
        let values = |row: &Vec<Option<Vec<u8>>>| {
            row.iter().map(|value| value.as_deref().map(text)).collect()
        };
        self.rows.iter().map(values).collect()
    }
}

/// Result of a statement.
#[derive(Clone, PartialEq, Eq)]
pub enum MyResult {
    /// Success without rows.
    Ok(MyOk),
    /// Failure, also in the middle of rows.
    Error(MyError),
    /// Rows.
    Rows(MyRows),
}

impl fmt::Debug for MyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MyResult::Ok(ok) => write!(f, "{ok:?}"),
            MyResult::Error(error) => write!(f, "{error}"),
            MyResult::Rows(rows) => {
                let texts = rows.texts();
                let (first, count) = (texts.iter().take(20).collect::<Vec<_>>(), texts.len());
                write!(f, "{:.1200} of {count} rows, {:?}", format!("{first:?}"), rows.end)
            }
        }
    }
}

/// Complete response to one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MyAnswer {
    /// Results in order.
    pub results: Vec<MyResult>,
}

impl MyAnswer {
    /// Returns all rows of all results.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<Option<String>>> {
        self.results.iter().flat_map(MyResult::rows).collect()
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

    /// Returns the first error.
    #[must_use]
    pub fn error(&self) -> Option<MyError> {
        self.results.iter().find_map(|result| match result {
            MyResult::Error(error) => Some(error.clone()),
            MyResult::Ok(_) | MyResult::Rows(_) => None,
        })
    }

    /// Returns the end of the last result.
    ///
    /// # Panics
    /// If it ended with an error, which the message contains.
    #[must_use]
    pub fn ok(&self) -> &MyOk {
        match self.results.last() {
            Some(MyResult::Ok(ok)) => ok,
            Some(MyResult::Rows(MyRows { end: Some(ok), .. })) => ok,
            _ => panic!("no good end: {self:?}"),
        }
    }

    /// Returns a letter for each result: `O`, `E`, or `R` for rows.
    #[must_use]
    pub fn letters(&self) -> String {
        let letter = |result: &MyResult| match result {
            MyResult::Ok(_) => 'O',
            MyResult::Error(_) => 'E',
            MyResult::Rows(_) => 'R',
        };
        self.results.iter().map(letter).collect()
    }
}

impl MyResult {
    fn rows(&self) -> Vec<Vec<Option<String>>> {
        match self {
            MyResult::Rows(rows) => rows.texts(),
            MyResult::Ok(_) | MyResult::Error(_) => Vec::new(),
        }
    }
}

/// Reason for a missing response.
#[derive(Debug)]
pub enum MyFailure {
    /// The server returned an error.
    Server(MyError),
    /// The connection broke, nothing arrived in time, or a packet was invalid.
    Io(io::Error),
    /// The connection broke in the middle of a response.
    Broken(MyAnswer, io::Error),
}

impl MyFailure {
    /// Returns the server's error, if there was one.
    #[must_use]
    pub fn error(&self) -> Option<MyError> {
        match self {
            MyFailure::Server(error) => Some(error.clone()),
            MyFailure::Io(_) => None,
            MyFailure::Broken(answer, _) => answer.error(),
        }
    }

    /// Returns whether the failure was a timeout.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        let (MyFailure::Io(error) | MyFailure::Broken(_, error)) = self else { return false };
        [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
    }

    /// Returns whether the failure was an invalid packet.
    #[must_use]
    pub fn is_nonsense(&self) -> bool {
        let (MyFailure::Io(error) | MyFailure::Broken(_, error)) = self else { return false };
        error.kind() == io::ErrorKind::InvalidData
    }
}

impl From<io::Error> for MyFailure {
    fn from(error: io::Error) -> MyFailure {
        MyFailure::Io(error)
    }
}

impl fmt::Display for MyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MyFailure::Server(error) => error.fmt(f),
            MyFailure::Io(error) => error.fmt(f),
            MyFailure::Broken(answer, error) => write!(f, "{error} after {:?}", answer.results),
        }
    }
}

impl std::error::Error for MyFailure {}
