//! Warnings and errors of a client's last statement, kept for a client that no longer has the
//! server connection from which they could be queried.
//!
//! # References
//! - <https://dev.mysql.com/doc/refman/8.4/en/show-warnings.html>

use wire::mysql::capabilities::{CapabilityFlags, StatusFlags};
use wire::mysql::lenenc::PacketReader;
use wire::mysql::packet::{ColumnKind, ResultColumn};
use wire::mysql::sql::RowLimit;

/// Maximum bytes of messages that are kept. Servers keep 64 messages by default; a message has at
/// most 512 bytes.
pub(super) const WARNING_BYTES_MAX: usize = 64 * 1024;

/// Maximum messages that are kept, however short they are.
const WARNINGS_MAX: usize = 1_024;

/// Level of an error.
const ERROR: &[u8] = b"Error";

/// Warning of a server about a statement.
#[derive(Debug)]
struct ServerWarning {
    /// `Note`, `Warning` or `Error`.
    level: Box<[u8]>,
    /// MySQL's number of the warning, in digits.
    code: Box<[u8]>,
    /// Message, in the client's character set.
    message: Box<[u8]>,
}

/// Warnings of a server about one statement.
#[derive(Debug, Default)]
pub(crate) struct ServerWarnings {
    kept: Vec<ServerWarning>,
    bytes: usize,
    /// Number of warnings.
    count: u64,
    /// Number of errors among them.
    errors: u64,
}

impl ServerWarnings {
    /// Creates the warnings of a statement that failed.
    pub(crate) fn of_error(code: u16, message: &[u8]) -> ServerWarnings {
        let mut warnings = ServerWarnings::default();
        warnings.push(ERROR, code.to_string().as_bytes(), message);
        warnings
    }

    /// Adds a row of the reply to `SHOW WARNINGS`. A malformed row changes nothing.
    pub(crate) fn row(&mut self, row: &[u8]) {
        let mut reader = PacketReader::new(row);
        let mut next = || reader.lenenc_bytes();
        if let (Some(level), Some(code), Some(message)) = (next(), next(), next()) {
            self.push(level, code, message);
        }
    }

    fn push(&mut self, level: &[u8], code: &[u8], message: &[u8]) {
        self.count += 1;
        self.errors += u64::from(level.eq_ignore_ascii_case(ERROR));
        let bytes = level.len() + code.len() + message.len();
        if self.bytes + bytes <= WARNING_BYTES_MAX && self.kept.len() < WARNINGS_MAX {
            self.bytes += bytes;
            let (level, code, message) = (level.into(), code.into(), message.into());
            self.kept.push(ServerWarning { level, code, message });
        }
    }

    /// Returns the number of warnings, including errors.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of errors.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }
}

/// Function that appends a result: `put_result`, or its counterpart in the binary protocol.
pub(crate) type PutResult = fn(
    &mut Vec<u8>,
    &mut u8,
    CapabilityFlags,
    &[ResultColumn<'_>],
    &[Vec<Option<&[u8]>>],
    StatusFlags,
);

/// Appends the reply to `SHOW WARNINGS`, or to `SHOW ERRORS`.
pub(crate) fn put(
    warnings: Option<&ServerWarnings>,
    (errors_only, limit): (bool, RowLimit),
    (caps, status): (CapabilityFlags, StatusFlags),
    (put_result, seq): (PutResult, &mut u8),
    out: &mut Vec<u8>,
) {
    const COLUMNS: [ResultColumn<'_>; 3] = [
        ResultColumn::text(b"Level"),
        ResultColumn { name: b"Code", kind: ColumnKind::Unsigned },
        ResultColumn::text(b"Message"),
    ];
    let kept = warnings.map(|warnings| warnings.kept.as_slice()).unwrap_or_default();
    let rows: Vec<Vec<Option<&[u8]>>> = kept
        .iter()
        .filter(|warning| !errors_only || warning.level.eq_ignore_ascii_case(ERROR))
        .skip(usize::try_from(limit.offset).unwrap_or(usize::MAX))
        .take(usize::try_from(limit.count).unwrap_or(usize::MAX))
        .map(|warning| vec![Some(&*warning.level), Some(&*warning.code), Some(&*warning.message)])
        .collect();
    put_result(out, seq, caps, &COLUMNS, &rows, status);
}

#[cfg(test)]
mod tests {
    use wire::mysql::frame::{HEADER_BYTES, PacketHeader};
    use wire::mysql::lenenc::put_bytes;
    use wire::mysql::packet::put_result;

    use super::*;

    fn row(parts: [&str; 3]) -> Vec<u8> {
        let mut row = Vec::new();
        for part in parts {
            put_bytes(&mut row, part.as_bytes());
        }
        row
    }

    /// Adds the rows of a reply whose definitions have no end marker.
    fn answer(
        warnings: Option<&ServerWarnings>,
        errors_only: bool,
        limit: RowLimit,
    ) -> Vec<Vec<u8>> {
        let (mut out, mut seq) = (Vec::new(), 1);
        let caps = CapabilityFlags::DEPRECATE_EOF;
        let state = (caps, StatusFlags::AUTOCOMMIT);
        put(warnings, (errors_only, limit), state, (put_result, &mut seq), &mut out);
        let (mut packets, mut rest) = (Vec::new(), &out[..]);
        while let Some(header) = PacketHeader::parse(rest) {
            assert_eq!(usize::from(header.seq), packets.len() + 1);
            packets.push(rest[HEADER_BYTES..header.total()].to_vec());
            rest = &rest[header.total()..];
        }
        assert_eq!(usize::from(seq), packets.len() + 1);
        packets.pop();
        packets.split_off(4)
    }

    #[test]
    fn what_was_said_is_said_again() {
        let note = row(["Note", "1051", "Unknown table 'test.t'"]);
        let warning = row(["Warning", "1265", "Data truncated for column 'a' at row 1"]);
        let error = row(["Error", "1062", "Duplicate entry '1' for key 'PRIMARY'"]);
        let mut warnings = ServerWarnings::default();
        for row in [&note, &warning, &error] {
            warnings.row(row);
        }
        warnings.row(b"\x01");
        assert_eq!((warnings.count(), warnings.errors()), (3, 1));
        let all = |limit| answer(Some(&warnings), false, limit);
        assert_eq!(all(RowLimit::NONE), [note, warning.clone(), error.clone()]);
        assert_eq!(all(RowLimit { offset: 1, count: 1 }), [warning]);
        assert_eq!(all(RowLimit { offset: 7, count: 1 }), Vec::<Vec<u8>>::new());
        assert_eq!(answer(Some(&warnings), true, RowLimit::NONE), [error]);
        assert_eq!(answer(None, false, RowLimit::NONE), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn an_error_is_a_warning() {
        let warnings = ServerWarnings::of_error(1064, b"no");
        assert_eq!(answer(Some(&warnings), false, RowLimit::NONE), [row(["Error", "1064", "no"])]);
        assert_eq!((warnings.count(), warnings.errors()), (1, 1));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut warnings = ServerWarnings::default();
        let long = "x".repeat(1_000);
        for _ in 0..10_000 {
            warnings.row(&row(["Warning", "1", &long]));
        }
        assert_eq!(warnings.count(), 10_000);
        assert!(warnings.bytes <= WARNING_BYTES_MAX && warnings.kept.len() < 70);
        let mut warnings = ServerWarnings::default();
        for _ in 0..10_000 {
            warnings.row(&row(["", "", ""]));
        }
        assert_eq!(warnings.kept.len(), WARNINGS_MAX);
    }
}
