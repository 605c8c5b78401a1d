//! Changes of the session that an OK packet reports: the server's own trackers.
//!
//! Source: MySQL's source documentation, page "OK_Packet", and MariaDB's knowledge base, page
//! "`OK_Packet`", which allows several variables in one entry.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_ok_packet.html>

use super::lenenc::{PacketReader, put_bytes, put_int};

const SYSTEM_VARIABLES: u8 = 0;
const SCHEMA: u8 = 1;
const STATE_CHANGE: u8 = 2;
const GTIDS: u8 = 3;
const TRANSACTION_CHARACTERISTICS: u8 = 4;
const TRANSACTION_STATE: u8 = 5;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackedChange<'a> {
    /// A system variable of the session has a value.
    Variable {
        /// The name, as the server spells it.
        name: &'a [u8],
        /// The value as text.
        value: &'a [u8],
    },
    /// The default database is this one; empty for none.
    Schema(&'a [u8]),
    /// True if the session has state that is not reported otherwise.
    State(bool),
    /// Identifiers of transactions.
    Gtid(&'a [u8]),
    /// The statements that would begin a transaction like the current one.
    Characteristics(&'a [u8]),
    /// State of the transaction: eight characters, `_` for each flag that is not set.
    Transaction(&'a [u8]),
    /// Unknown kind of change.
    Other(u8),
}

/// The bytes are not a valid list of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's list of changes in the session does not make sense")]
pub struct MalformedChanges;

/// Parses [`super::packet::OkPacket::changes`]. Ends at the first error.
#[inline]
pub const fn changes(raw: &[u8]) -> TrackedChanges<'_> {
    TrackedChanges { entries: PacketReader::new(raw), variables: PacketReader::new(&[]) }
}

/// The changes that were not parsed yet.
#[derive(Clone, Debug)]
pub struct TrackedChanges<'a> {
    entries: PacketReader<'a>,
    /// Rest of an entry with several variables.
    variables: PacketReader<'a>,
}

impl<'a> Iterator for TrackedChanges<'a> {
    type Item = Result<TrackedChange<'a>, MalformedChanges>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.entries.is_empty() && self.variables.is_empty() {
            return None;
        }
        let change = self.read();
        if change.is_none() {
            *self = changes(&[]);
        }
        Some(change.ok_or(MalformedChanges))
    }
}

impl<'a> TrackedChanges<'a> {
    fn read(&mut self) -> Option<TrackedChange<'a>> {
        if !self.variables.is_empty() {
            return self.variable();
        }
        let kind = self.entries.u8()?;
        let data = self.entries.lenenc_bytes()?;
        let mut reader = PacketReader::new(data);
        match kind {
            SYSTEM_VARIABLES => {
                self.variables = reader;
                self.variable()
            }
            SCHEMA => reader.lenenc_bytes().map(TrackedChange::Schema),
            // One character, without a length of its own, unlike in the documentation: MariaDB
            // 10.11 and MySQL write it so.
            STATE_CHANGE => Some(TrackedChange::State(data.last() != Some(&b'0'))),
            GTIDS => {
                // The encoding; there is only one.
                reader.u8()?;
                reader.lenenc_bytes().map(TrackedChange::Gtid)
            }
            TRANSACTION_CHARACTERISTICS => {
                reader.lenenc_bytes().map(TrackedChange::Characteristics)
            }
            TRANSACTION_STATE => reader.lenenc_bytes().map(TrackedChange::Transaction),
            _ => Some(TrackedChange::Other(kind)),
        }
    }

    fn variable(&mut self) -> Option<TrackedChange<'a>> {
        let name = self.variables.lenenc_bytes()?;
        let value = self.variables.lenenc_bytes()?;
        Some(TrackedChange::Variable { name, value })
    }
}

/// Appends a change in a server's form; [`TrackedChange::Other`] is written without contents.
pub fn put_change(out: &mut Vec<u8>, change: &TrackedChange<'_>) {
    let mut data = Vec::new();
    let kind = match *change {
        TrackedChange::Variable { name, value } => {
            put_bytes(&mut data, name);
            put_bytes(&mut data, value);
            SYSTEM_VARIABLES
        }
        TrackedChange::Schema(name) => with(&mut data, name, SCHEMA),
        TrackedChange::State(changed) => {
            data.push(if changed { b'1' } else { b'0' });
            STATE_CHANGE
        }
        TrackedChange::Gtid(text) => {
            data.push(0);
            with(&mut data, text, GTIDS)
        }
        TrackedChange::Characteristics(text) => with(&mut data, text, TRANSACTION_CHARACTERISTICS),
        TrackedChange::Transaction(text) => with(&mut data, text, TRANSACTION_STATE),
        TrackedChange::Other(kind) => kind,
    };
    put_int(out, u64::from(kind));
    put_bytes(out, &data);
}

fn with(data: &mut Vec<u8>, text: &[u8], kind: u8) -> u8 {
    put_bytes(data, text);
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn read(raw: &[u8]) -> Vec<Result<TrackedChange<'_>, MalformedChanges>> {
        changes(raw).collect()
    }

    #[test]
    fn each_kind_is_read() {
        let variable = |name: &'static str, value: &'static str| {
            Ok(TrackedChange::Variable { name: name.as_bytes(), value: value.as_bytes() })
        };
        for (raw, wanted) in [
            (b"".as_slice(), vec![]),
            (b"\0\x0f\x0aautocommit\x03OFF", vec![variable("autocommit", "OFF")]),
            (b"\0\x08\x01a\x01b\x01c\x01d", vec![variable("a", "b"), variable("c", "d")]),
            (
                b"\x01\x05\x04test\x02\x011",
                vec![Ok(TrackedChange::Schema(b"test")), Ok(TrackedChange::State(true))],
            ),
            (
                b"\x02\x011\x02\x010",
                vec![Ok(TrackedChange::State(true)), Ok(TrackedChange::State(false))],
            ),
            (b"\x01\x01\0", vec![Ok(TrackedChange::Schema(b""))]),
            (b"\x03\x05\0\x03a:1", vec![Ok(TrackedChange::Gtid(b"a:1"))]),
            (b"\x05\x09\x08T_______", vec![Ok(TrackedChange::Transaction(b"T_______"))]),
            // Reports of MariaDB 10.11 for `BEGIN` and `SET NAMES`.
            (
                b"\x05\x09\x08T_______\x04\x13\x12START TRANSACTION;",
                vec![
                    Ok(TrackedChange::Transaction(b"T_______")),
                    Ok(TrackedChange::Characteristics(b"START TRANSACTION;")),
                ],
            ),
            (
                b"\0\x1c\x14character_set_client\x06latin1\x02\x011",
                vec![variable("character_set_client", "latin1"), Ok(TrackedChange::State(true))],
            ),
            (b"\x04\x07\x06BEGIN;", vec![Ok(TrackedChange::Characteristics(b"BEGIN;"))]),
            (
                b"\x09\x02ab\x01\x02\x01x",
                vec![Ok(TrackedChange::Other(9)), Ok(TrackedChange::Schema(b"x"))],
            ),
        ] {
            assert_eq!(read(raw), wanted, "{raw:?}");
        }
    }

    #[test]
    fn a_mistake_ends_the_list() {
        for raw in [
            b"\x01".as_slice(),
            b"\x01\x05\x04tes",
            b"\x01\0",
            b"\x01\x02\x04te",
            b"\0\0",
            b"\0\x02\x01a",
            b"\x03\x01\0",
            b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff1",
        ] {
            assert_eq!(read(raw), [Err(MalformedChanges)], "{raw:?}");
        }
        assert_eq!(read(b"\x02\x011\x01"), [Ok(TrackedChange::State(true)), Err(MalformedChanges)]);
    }

    fn change_of(kind: u8, one: &'static str, other: &'static str) -> TrackedChange<'static> {
        match kind {
            0 => TrackedChange::Variable { name: one.as_bytes(), value: other.as_bytes() },
            1 => TrackedChange::Schema(one.as_bytes()),
            2 => TrackedChange::State(one.is_empty()),
            3 => TrackedChange::Gtid(one.as_bytes()),
            4 => TrackedChange::Characteristics(one.as_bytes()),
            5 => TrackedChange::Transaction(one.as_bytes()),
            _ => TrackedChange::Other(kind),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            parts in proptest::collection::vec((0_u8..9, 0_usize..4, 0_usize..4), 0..8)
        ) {
            let texts = ["", "a", "sql_mode", "STRICT_ALL_TABLES,NO_ZERO_DATE"];
            let wanted: Vec<_> =
                parts.iter().map(|(kind, a, b)| change_of(*kind, texts[*a], texts[*b])).collect();
            let mut raw = Vec::new();
            wanted.iter().for_each(|change| put_change(&mut raw, change));
            let found: Result<Vec<_>, _> = changes(&raw).collect();
            prop_assert_eq!(found, Ok(wanted));
        }

        #[test]
        fn random_bytes_end_and_never_panic(raw: Vec<u8>) {
            prop_assert!(changes(&raw).count() <= raw.len());
        }
    }
}
