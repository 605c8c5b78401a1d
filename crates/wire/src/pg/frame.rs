//! Frames: a tag, a length that includes itself, a body.
//!
//! Nothing here copies or waits for a body: streaming a message requires only the five bytes of its
//! header. Source of the tags: PostgreSQL 18 documentation, "Message Formats".
//!
//! # References
//! - <https://www.postgresql.org/docs/current/protocol-message-formats.html>

/// Bytes of a message's header: the tag and the length.
pub const HEADER_BYTES: usize = 5;

/// Maximum length of a message, including its header. PostgreSQL's own bound for a field is 1 GiB;
/// a longer length is an attack or a desynchronized stream.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Tags of frontend messages.
pub mod frontend {
    /// A text of statements, for the simple protocol.
    pub const QUERY: u8 = b'Q';
    /// Prepare a statement.
    pub const PARSE: u8 = b'P';
    /// Create a portal from a statement and parameters.
    pub const BIND: u8 = b'B';
    /// Request the shape of a statement or portal.
    pub const DESCRIBE: u8 = b'D';
    /// Run a portal.
    pub const EXECUTE: u8 = b'E';
    /// Close a statement or portal.
    pub const CLOSE: u8 = b'C';
    /// End a batch.
    pub const SYNC: u8 = b'S';
    /// Send pending output.
    pub const FLUSH: u8 = b'H';
    /// Call a function by its number; obsolete, but still in the protocol.
    pub const FUNCTION_CALL: u8 = b'F';
    /// Data of a `COPY`.
    pub const COPY_DATA: u8 = b'd';
    /// The end of a `COPY`'s data.
    pub const COPY_DONE: u8 = b'c';
    /// The frontend aborts a `COPY`.
    pub const COPY_FAIL: u8 = b'f';
    /// A password, or a step of SASL.
    pub const PASSWORD: u8 = b'p';
    /// End the session.
    pub const TERMINATE: u8 = b'X';
}

/// Tags of backend messages.
pub mod backend {
    /// A step of authentication.
    pub const AUTHENTICATION: u8 = b'R';
    /// The value of a reported setting.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// The process id and key for cancel requests.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// The end of a query or batch, with the transaction status.
    pub const READY_FOR_QUERY: u8 = b'Z';
    /// The end of a command, with its tag.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// A row.
    pub const DATA_ROW: u8 = b'D';
    /// The columns of the following rows.
    pub const ROW_DESCRIPTION: u8 = b'T';
    /// No rows follow.
    pub const NO_DATA: u8 = b'n';
    /// The parameters of a statement.
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// A statement was prepared.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// A portal was created.
    pub const BIND_COMPLETE: u8 = b'2';
    /// A statement or portal was closed.
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// The text had no statement.
    pub const EMPTY_QUERY: u8 = b'I';
    /// A portal has more rows than requested.
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// An error.
    pub const ERROR: u8 = b'E';
    /// A notice.
    pub const NOTICE: u8 = b'N';
    /// A notification by any client's `NOTIFY`.
    pub const NOTIFICATION: u8 = b'A';
    /// The result of a function call.
    pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
    /// The frontend may send data.
    pub const COPY_IN: u8 = b'G';
    /// Data follows.
    pub const COPY_OUT: u8 = b'H';
    /// Data in both directions; replication only.
    pub const COPY_BOTH: u8 = b'W';
    /// Data of a `COPY`.
    pub const COPY_DATA: u8 = b'd';
    /// The end of a `COPY`'s data.
    pub const COPY_DONE: u8 = b'c';
    /// The server supports only an older minor version, or does not know an option.
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
}

/// Transaction status, as in `ReadyForQuery`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction.
    #[default]
    Idle,
    /// Inside a transaction.
    InTransaction,
    /// Inside a transaction that can only be rolled back.
    Failed,
}

impl TransactionStatus {
    /// Returns the byte on the wire.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }

    /// Parses the byte of a `ReadyForQuery`; `None` if it is invalid.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::InTransaction),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is less than its own size.
    #[error("a message of type {tag:#04x} has the length {length}, less than the length itself")]
    TooShort {
        /// The message's first byte.
        tag: u8,
        /// The length on the wire.
        length: u32,
    },
    /// The length is beyond [`MESSAGE_BYTES_MAX`].
    #[error("a message of type {tag:#04x} has {length} bytes, more than {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// The message's first byte.
        tag: u8,
        /// The length on the wire.
        length: u32,
    },
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgHeader {
    /// Type of the message; its meaning depends on the sender.
    pub tag: u8,
    /// All bytes of the message on the wire, including the header.
    pub total: usize,
}

impl PgHeader {
    /// Parses a header; `None` while there are fewer than [`HEADER_BYTES`].
    ///
    /// # Errors
    /// If the length is invalid.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<PgHeader>, FrameError> {
        let [tag, a, b, c, d, ..] = *bytes else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]);
        if length < 4 {
            return Err(FrameError::TooShort { tag, length });
        }
        match usize::try_from(length) {
            Ok(length) if length < MESSAGE_BYTES_MAX => {
                Ok(Some(PgHeader { tag, total: length + 1 }))
            }
            _ => Err(FrameError::TooLong { tag, length }),
        }
    }

    /// Returns the number of bytes of the body.
    #[inline]
    pub const fn body(&self) -> usize {
        self.total.saturating_sub(HEADER_BYTES)
    }
}

/// Appends a header for a body of `body` bytes.
///
/// A body beyond [`MESSAGE_BYTES_MAX`] cannot be represented; callers must bound its parts.
#[inline]
pub fn put_header(out: &mut Vec<u8>, tag: u8, body: usize) {
    debug_assert!(body < MESSAGE_BYTES_MAX, "a message of {body} bytes");
    out.push(tag);
    let length = u32::try_from(body.saturating_add(4)).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
}

/// Splits a string of the protocol, which ends with a zero, from the bytes after it; `None` if
/// there is no zero.
#[inline]
pub fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], wanted: Result<Option<PgHeader>, FrameError>) {
        assert_eq!(PgHeader::parse(bytes), wanted, "{bytes:?}");
    }

    #[test]
    fn a_head_says_how_long_the_message_is() {
        check(b"", Ok(None));
        check(b"Q\0\0\0", Ok(None));
        check(b"S\0\0\0\x04", Ok(Some(PgHeader { tag: b'S', total: 5 })));
        check(b"Q\0\0\0\x0dSELECT 1\0", Ok(Some(PgHeader { tag: b'Q', total: 14 })));
        check(b"Q\0\0\0\x03", Err(FrameError::TooShort { tag: b'Q', length: 3 }));
        check(b"Q\0\0\0\0", Err(FrameError::TooShort { tag: b'Q', length: 0 }));
        let most = u32::try_from(MESSAGE_BYTES_MAX).unwrap();
        check(
            &[[b'd'].as_slice(), &(most - 1).to_be_bytes()].concat(),
            Ok(Some(PgHeader { tag: b'd', total: MESSAGE_BYTES_MAX })),
        );
        for length in [most, 0x8000_0000, u32::MAX] {
            let bytes = [[b'd'].as_slice(), &length.to_be_bytes()].concat();
            check(&bytes, Err(FrameError::TooLong { tag: b'd', length }));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for body in [0, 1, 255, 70_000] {
            let mut out = Vec::new();
            put_header(&mut out, b'D', body);
            let header = PgHeader::parse(&out).unwrap().unwrap();
            assert_eq!((header.tag, header.body()), (b'D', body));
        }
    }

    #[test]
    fn strings_end_with_a_zero() {
        assert_eq!(split_string(b"a\0b"), Some((&b"a"[..], &b"b"[..])));
        assert_eq!(split_string(b"\0"), Some((&b""[..], &b""[..])));
        assert_eq!(split_string(b"abc"), None);
    }

    #[test]
    fn states_of_transactions_have_one_byte() {
        for byte in 0..=u8::MAX {
            if let Some(status) = TransactionStatus::from_byte(byte) {
                assert_eq!(status.byte(), byte);
            }
        }
        assert_eq!(TransactionStatus::from_byte(b'x'), None);
    }
}
