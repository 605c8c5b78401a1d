//! OK, EOF and error packets, and small results of our own.
//!
//! Everything read here is a payload without its head, whole. Writers never fail.
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
/// The first byte of a request for a file of the client's.
pub const LOCAL_INFILE: u8 = 0xFB;
/// An EOF packet is shorter than this; a row that begins with the same byte is not.
pub const EOF_LEN_BOUND: usize = 9;
/// The length of an EOF packet. An OK packet has at least two more.
pub const EOF_LEN: usize = 5;

/// SQLSTATE of an error that has none of its own.
pub const STATE_GENERAL: [u8; 5] = *b"HY000";

/// A statement went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OkPacket<'a> {
    /// Rows changed, or found if `FOUND_ROWS` was agreed on.
    pub affected_rows: u64,
    /// The first value that an `AUTO_INCREMENT` column was given; 0 for none.
    pub last_insert_id: u64,
    /// Status of the session.
    pub status: StatusFlags,
    /// Warnings that `SHOW WARNINGS` would show.
    pub warnings: u16,
    /// A line for people.
    pub info: &'a [u8],
    /// Changes of the session, for [`super::changes::changes`]; empty if nothing was told.
    pub changes: &'a [u8],
}

impl<'a> OkPacket<'a> {
    /// Reads an OK packet, that of a statement (0x00) or of the end of rows (0xFE). `caps` are
    /// those agreed on with whoever wrote it. None if it is no OK packet.
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
            // The documents say the rest of the packet; servers write a length before it.
            let rest = reader;
            info = match reader.lenenc_bytes() {
                Some(info) if reader.is_empty() => info,
                Some(_) | None => rest.peek_rest(),
            };
        }
        Some(OkPacket { affected_rows, last_insert_id, status, warnings, info, changes })
    }
}

/// The status of an OK packet, of either first byte, without reading the rest; none if it is no OK
/// packet. This is what a relay reads of each reply that it has no other interest in.
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

/// Returns what stands behind the first byte and the counts of an OK packet.
fn behind_counts(payload: &[u8]) -> Option<PacketReader<'_>> {
    let mut reader = PacketReader::new(payload);
    if !matches!(reader.u8()?, OK | EOF) {
        return None;
    }
    reader.lenenc_int()?;
    reader.lenenc_int()?;
    Some(reader)
}

/// The end of columns or rows for who has not agreed on `DEPRECATE_EOF`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EofPacket {
    /// Warnings so far.
    pub warnings: u16,
    /// Status of the session.
    pub status: StatusFlags,
}

impl EofPacket {
    /// Reads an EOF packet; none if it is none.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<EofPacket> {
        let [EOF, warnings_low, warnings_high, low, high] = *payload else { return None };
        Some(EofPacket {
            warnings: u16::from_le_bytes([warnings_low, warnings_high]),
            status: StatusFlags(u16::from_le_bytes([low, high])),
        })
    }
}

/// A statement failed. It carries no status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    /// MySQL's own number.
    pub code: u16,
    /// SQLSTATE; [`STATE_GENERAL`] if the packet has none, as those before a login have.
    pub state: [u8; 5],
    /// A sentence for people, in the client's character set.
    pub message: &'a [u8],
}

impl<'a> ErrPacket<'a> {
    /// Reads an error; none if it is none.
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

/// Appends an OK packet to a command.
pub fn put_ok(out: &mut Vec<u8>, seq: &mut u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    put_built(out, seq, |out| put_ok_body(out, OK, ok, caps));
}

/// Appends an OK packet that ends rows, for who has agreed on `DEPRECATE_EOF`.
pub fn put_ok_as_eof(out: &mut Vec<u8>, seq: &mut u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    put_built(out, seq, |out| put_ok_body(out, EOF, ok, caps));
}

fn put_ok_body(out: &mut Vec<u8>, first: u8, ok: &OkPacket<'_>, caps: CapabilityFlags) {
    let tracks = caps.contains(CapabilityFlags::SESSION_TRACK);
    let changed = tracks && ok.status.contains(StatusFlags::SESSION_STATE_CHANGED);
    // Who has not agreed on it would look for changes that are not there.
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

/// Appends the end of rows as `caps` have it: an OK packet with `DEPRECATE_EOF`, else an EOF.
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

/// Type of a column of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text in UTF-8.
    Text,
    /// A number of 64 bits with a sign.
    Integer,
    /// A number of 64 bits without one.
    Unsigned,
}

/// A column of a result of ours. It is of no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultColumn<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Type of its values.
    pub kind: ColumnKind,
}

impl<'a> ResultColumn<'a> {
    /// A column of text.
    pub const fn text(name: &'a [u8]) -> Self {
        Self { name, kind: ColumnKind::Text }
    }
}

/// Appends a whole result in the text protocol: the number of columns, their definitions, the rows
/// and the end. `seq` is that of the first packet, and becomes the one behind the last.
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

/// Writes the result as the answer to an execution: in the binary protocol. Numbers are given in
/// digits, as in the other; what is none, or too large, becomes NULL.
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

/// Appends what a result begins with: the number of columns and their definitions.
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

/// Bits of a binary row's map of NULLs that stand before that of the first column.
const NULL_BITS_BEFORE: usize = 2;

/// Appends the payload of a row in the binary protocol: a zero, the map of NULLs, and the values.
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

/// Appends a number; says whether there is one.
fn put_number(out: &mut Vec<u8>, number: Option<[u8; 8]>) -> bool {
    out.extend_from_slice(number.as_ref().map(<[u8; 8]>::as_slice).unwrap_or_default());
    number.is_some()
}

/// The number that digits say.
fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends the payload of a column's definition.
fn put_column(out: &mut Vec<u8>, column: &ResultColumn<'_>) {
    let shape = ColumnShape::of(column.kind);
    put_bytes(out, b"def");
    // No schema, no table under either name; the column's own name; no name of its own there.
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

/// Number of bytes of a column's definition behind its names.
const FIXED_FIELDS_BYTES: u8 = 0x0C;

/// The numbers of a column's definition.
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
            decimals: 31, // of what has none
        };
        let number = Self {
            collation: 63,  // of what is no text
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
