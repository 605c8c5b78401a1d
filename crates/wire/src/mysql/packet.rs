//! OK, EOF and error packets, and small results of the pooler's own.
//!
//! Everything parsed here is a whole payload without its header. Writers never fail.
//!
//! Source: MySQL's source documentation, pages "OK_Packet", "EOF_Packet", "ERR_Packet" and
//! "Column Definition".
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_response_packets.html>

use super::capabilities::{CapabilityFlags, StatusFlags};
use super::frame::put_built;
use super::lenenc::{NULL, PacketReader, put_bytes, put_int, put_value};

/// The first byte of an OK packet.
pub const OK: u8 = 0x00;
/// The first byte of an EOF packet, and of an OK packet that ends rows.
pub const EOF: u8 = 0xFE;
/// The first byte of an error.
pub const ERR: u8 = 0xFF;
/// The first byte of a request for a file of the client.
pub const LOCAL_INFILE: u8 = 0xFB;
/// An EOF packet is shorter than this; a row that begins with the same byte is not.
pub const EOF_LEN_BOUND: usize = 9;
/// The length of an EOF packet. An OK packet has at least two more.
pub const EOF_LEN: usize = 5;

/// SQLSTATE of an error without a specific one.
pub const STATE_GENERAL: [u8; 5] = *b"HY000";

/// Success of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OkPacket<'a> {
    /// Rows changed, or found if `FOUND_ROWS` was negotiated.
    pub affected_rows: u64,
    /// The first generated value of an `AUTO_INCREMENT` column; 0 for none.
    pub last_insert_id: u64,
    /// Status of the session.
    pub status: StatusFlags,
    /// Number of warnings, as shown by `SHOW WARNINGS`.
    pub warnings: u16,
    /// Info text.
    pub info: &'a [u8],
    /// Changes of the session, for [`super::changes::changes`]; empty if none are reported.
    pub changes: &'a [u8],
}

impl<'a> OkPacket<'a> {
    /// Parses an OK packet, that of a statement (0x00) or of the end of rows (0xFE). `caps` are
    /// those negotiated with its writer. `None` if it is not an OK packet.
    pub fn parse(payload: &'a [u8], caps: CapabilityFlags) -> Option<OkPacket<'a>> {
        let mut reader = PacketReader::new(payload);
        if !matches!(reader.u8()?, OK | EOF) {
            return None;
        }
        let affected_rows = reader.lenenc_int()?;
        let last_insert_id = reader.lenenc_int()?;
        let status = StatusFlags(reader.u16()?);
        let warnings = reader.u16()?;
        let (mut info, mut changes) = (&[][..], &[][..]);
        if caps.contains(CapabilityFlags::SESSION_TRACK) {
            if !reader.is_empty() {
                info = reader.lenenc_bytes()?;
            }
            if status.contains(StatusFlags::SESSION_STATE_CHANGED) {
                changes = reader.lenenc_bytes()?;
            }
        } else if !reader.is_empty() {
            // By the documentation this is the rest of the packet; servers write a length before
            // it.
            let rest = reader;
            info = match reader.lenenc_bytes() {
                Some(info) if reader.is_empty() => info,
                Some(_) | None => rest.peek_rest(),
            };
        }
        Some(OkPacket { affected_rows, last_insert_id, status, warnings, info, changes })
    }
}

/// Returns the status of an OK packet with either first byte, without parsing the rest; `None` if
/// it is not an OK packet. A relay needs no more of most replies.
#[inline]
pub fn status_flags(payload: &[u8]) -> Option<StatusFlags> {
    // Nearly always both counts have one byte.
    if let [OK | EOF, 0..NULL, 0..NULL, low, high, ..] = *payload {
        return Some(StatusFlags(u16::from_le_bytes([low, high])));
    }
    status_flags_behind_counts(payload)
}

#[cold]
fn status_flags_behind_counts(payload: &[u8]) -> Option<StatusFlags> {
    behind_counts(payload)?.u16().map(StatusFlags)
}

/// Returns the status with the number of warnings.
#[inline]
pub fn status_and_warnings(payload: &[u8]) -> Option<(StatusFlags, u16)> {
    if let [OK | EOF, 0..NULL, 0..NULL, low, high, warnings_low, warnings_high, ..] = *payload {
        let warnings = u16::from_le_bytes([warnings_low, warnings_high]);
        return Some((StatusFlags(u16::from_le_bytes([low, high])), warnings));
    }
    let mut reader = behind_counts(payload)?;
    Some((StatusFlags(reader.u16()?), reader.u16()?))
}

/// Returns the reader after the first byte and the counts of an OK packet.
fn behind_counts(payload: &[u8]) -> Option<PacketReader<'_>> {
    let mut reader = PacketReader::new(payload);
    if !matches!(reader.u8()?, OK | EOF) {
        return None;
    }
    reader.lenenc_int()?;
    reader.lenenc_int()?;
    Some(reader)
}

/// The end of columns or rows without `DEPRECATE_EOF`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EofPacket {
    /// Warnings so far.
    pub warnings: u16,
    /// Status of the session.
    pub status: StatusFlags,
}

impl EofPacket {
    /// Parses an EOF packet; `None` if it is not one.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<EofPacket> {
        let [EOF, warnings_low, warnings_high, low, high] = *payload else { return None };
        Some(EofPacket {
            warnings: u16::from_le_bytes([warnings_low, warnings_high]),
            status: StatusFlags(u16::from_le_bytes([low, high])),
        })
    }
}

/// Failure of a statement. It contains no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    /// MySQL's error number.
    pub code: u16,
    /// SQLSTATE; [`STATE_GENERAL`] if the packet has none, as before a login.
    pub state: [u8; 5],
    /// Message, in the client's character set.
    pub message: &'a [u8],
}

impl<'a> ErrPacket<'a> {
    /// Parses an error; `None` if it is not one.
    pub fn parse(payload: &'a [u8]) -> Option<ErrPacket<'a>> {
        let mut reader = PacketReader::new(payload);
        if reader.u8()? != ERR {
            return None;
        }
        let code = reader.u16()?;
        let mut marked = reader;
        let state = match (marked.u8(), marked.array()) {
            (Some(b'#'), Some(state)) => {
                reader = marked;
                state
            }
            (Some(_) | None, _) => STATE_GENERAL,
        };
        Some(ErrPacket { code, state, message: reader.rest() })
    }
}

/// Appends an OK packet as the reply to a command.
pub fn put_ok(out: &mut Vec<u8>, seq: &mut u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    put_built(out, seq, |out| put_ok_body(out, OK, ok, caps));
}

/// Appends an OK packet that ends rows, for a peer with `DEPRECATE_EOF`.
pub fn put_ok_as_eof(out: &mut Vec<u8>, seq: &mut u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    put_built(out, seq, |out| put_ok_body(out, EOF, ok, caps));
}

fn put_ok_body(out: &mut Vec<u8>, first: u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    let tracks = caps.contains(CapabilityFlags::SESSION_TRACK);
    let changed = tracks && ok.status.contains(StatusFlags::SESSION_STATE_CHANGED);
    // A peer without session tracking would look for changes that are not there.
    let status = if changed { ok.status } else { without_changes(ok.status) };
    out.push(first);
    put_int(out, ok.affected_rows);
    put_int(out, ok.last_insert_id);
    out.extend_from_slice(&status.0.to_le_bytes());
    out.extend_from_slice(&ok.warnings.to_le_bytes());
    if changed || !ok.info.is_empty() {
        put_bytes(out, ok.info);
    }
    if changed {
        put_bytes(out, ok.changes);
    }
}

const fn without_changes(status: StatusFlags) -> StatusFlags {
    status.without(StatusFlags::SESSION_STATE_CHANGED)
}

/// Appends an EOF packet.
pub fn put_eof(out: &mut Vec<u8>, seq: &mut u8, eof: EofPacket) {
    put_built(out, seq, |out| {
        out.push(EOF);
        out.extend_from_slice(&eof.warnings.to_le_bytes());
        out.extend_from_slice(&without_changes(eof.status).0.to_le_bytes());
    });
}

/// Appends the end of rows in the form of `caps`: an OK packet with `DEPRECATE_EOF`, else an EOF.
pub fn put_end(out: &mut Vec<u8>, seq: &mut u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    if caps.contains(CapabilityFlags::DEPRECATE_EOF) {
        put_ok_as_eof(out, seq, ok, caps);
    } else {
        put_eof(out, seq, EofPacket { warnings: ok.warnings, status: ok.status });
    }
}

/// Appends an error.
pub fn put_err(out: &mut Vec<u8>, seq: &mut u8, code: u16, state: [u8; 5], message: &[u8]) {
    put_built(out, seq, |out| {
        out.push(ERR);
        out.extend_from_slice(&code.to_le_bytes());
        out.push(b'#');
        out.extend_from_slice(&state);
        out.extend_from_slice(message);
    });
}

/// Type of a column of the pooler's own results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text in UTF-8.
    Text,
    /// Signed 64-bit number.
    Integer,
    /// Unsigned 64-bit number.
    Unsigned,
}

/// A column of the pooler's own results. It belongs to no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultColumn<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Type of its values.
    pub kind: ColumnKind,
}

impl<'a> ResultColumn<'a> {
    /// Creates a column of text.
    pub const fn text(name: &'a [u8]) -> Self {
        Self { name, kind: ColumnKind::Text }
    }
}

/// Appends a whole result in the text protocol: the number of columns, their definitions, the rows
/// and the end. `seq` is that of the first packet, and becomes the one after the last.
pub fn put_result(
    out: &mut Vec<u8>,
    seq: &mut u8,
    caps: CapabilityFlags,
    columns: &[ResultColumn<'_>],
    rows: &[Vec<Option<&[u8]>>],
    status: StatusFlags,
) {
    put_columns(out, seq, caps, columns, status);
    for row in rows {
        debug_assert_eq!(row.len(), columns.len(), "a row has a value for each column");
        put_built(out, seq, |out| row.iter().for_each(|value| put_value(out, *value)));
    }
    put_end(out, seq, &OkPacket { status, ..OkPacket::default() }, caps);
}

/// Appends the result as the reply to an execution, in the binary protocol. Numbers are passed in
/// digits, as in the text protocol; invalid or too large ones become NULL.
pub fn put_binary_result(
    out: &mut Vec<u8>,
    seq: &mut u8,
    caps: CapabilityFlags,
    columns: &[ResultColumn<'_>],
    rows: &[Vec<Option<&[u8]>>],
    status: StatusFlags,
) {
    put_columns(out, seq, caps, columns, status);
    for row in rows {
        debug_assert_eq!(row.len(), columns.len(), "a row has a value for each column");
        put_built(out, seq, |out| put_binary_row(out, columns, row));
    }
    put_end(out, seq, &OkPacket { status, ..OkPacket::default() }, caps);
}

/// Appends the beginning of a result: the number of columns and their definitions.
fn put_columns(
    out: &mut Vec<u8>,
    seq: &mut u8,
    caps: CapabilityFlags,
    columns: &[ResultColumn<'_>],
    status: StatusFlags,
) {
    put_built(out, seq, |out| put_int(out, columns.len() as u64));
    for column in columns {
        put_built(out, seq, |out| put_column(out, column));
    }
    if !caps.contains(CapabilityFlags::DEPRECATE_EOF) {
        put_eof(
            out,
            seq,
            EofPacket { warnings: 0, status: status.without(StatusFlags::MORE_RESULTS) },
        );
    }
}

/// Bits of a binary row's NULL bitmap before that of the first column.
const NULL_BITS_BEFORE: usize = 2;

/// Appends the payload of a row in the binary protocol: a zero, the NULL bitmap, and the values.
fn put_binary_row(out: &mut Vec<u8>, columns: &[ResultColumn<'_>], row: &[Option<&[u8]>]) {
    out.push(0);
    let map = out.len();
    out.resize(map + (columns.len() + NULL_BITS_BEFORE).div_ceil(8), 0);
    for (at, (column, value)) in columns.iter().zip(row).enumerate() {
        let is_there = match (column.kind, *value) {
            (_, None) => false,
            (ColumnKind::Text, Some(text)) => {
                put_bytes(out, text);
                true
            }
            (ColumnKind::Integer, Some(digits)) => {
                put_number(out, number::<i64>(digits).map(i64::to_le_bytes))
            }
            (ColumnKind::Unsigned, Some(digits)) => {
                put_number(out, number::<u64>(digits).map(u64::to_le_bytes))
            }
        };
        let bit = at + NULL_BITS_BEFORE;
        if !is_there && let Some(bits) = out.get_mut(map + bit / 8) {
            *bits |= 1 << (bit % 8);
        }
    }
}

/// Appends a number; returns whether there is one.
fn put_number(out: &mut Vec<u8>, number: Option<[u8; 8]>) -> bool {
    out.extend_from_slice(number.as_ref().map(<[u8; 8]>::as_slice).unwrap_or_default());
    number.is_some()
}

/// Parses digits.
fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends the payload of a column's definition.
fn put_column(out: &mut Vec<u8>, column: &ResultColumn<'_>) {
    let shape = ColumnShape::of(column.kind);
    put_bytes(out, b"def");
    // No schema, no table or original table; the column's name; no original name.
    for name in [b"", b"", b"", column.name, b""] {
        put_bytes(out, name);
    }
    out.push(FIXED_FIELDS_BYTES);
    out.extend_from_slice(&shape.collation.to_le_bytes());
    out.extend_from_slice(&shape.width.to_le_bytes());
    out.push(shape.kind);
    out.extend_from_slice(&shape.flags.to_le_bytes());
    out.push(shape.decimals);
    out.extend_from_slice(&[0; 2]);
}

/// Length of the fixed part of a column's definition after its names.
const FIXED_FIELDS_BYTES: u8 = 0x0C;

/// The fixed fields of a column's definition.
struct ColumnShape {
    collation: u16,
    width: u32,
    kind: u8,
    flags: u16,
    decimals: u8,
}

impl ColumnShape {
    const fn of(kind: ColumnKind) -> Self {
        let text = Self {
            collation: 45, // utf8mb4_general_ci
            width: 4096,
            kind: 253, // MYSQL_TYPE_VAR_STRING
            flags: 0,
            decimals: 31, // no fixed number of decimals
        };
        let number = Self {
            collation: 63,  // binary
            width: 21,      // 64 bits and a sign
            kind: 8,        // MYSQL_TYPE_LONGLONG
            flags: 1 | 128, // NOT_NULL_FLAG, BINARY_FLAG
            decimals: 0,
        };
        match kind {
            ColumnKind::Text => text,
            ColumnKind::Integer => number,
            ColumnKind::Unsigned => Self { flags: number.flags | 32, ..number }, // UNSIGNED_FLAG
        }
    }
}

#[cfg(test)]
mod tests;
