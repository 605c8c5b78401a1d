//! Types of MySQL and MariaDB, and values of the binary protocol. Pure.
//!
//! # References
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/field__types_8h.html>
//! - <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_binary_resultset.html>

use std::fmt::Write as _;

use serde_json::Value;
use wire::mysql::lenenc::PacketReader;

use super::super::values::{self, ValueForm};

/// Flag of unsigned columns.
const FLAG_UNSIGNED: u16 = 1 << 5;
/// Flag of enumeration columns.
const FLAG_ENUM: u16 = 1 << 8;
/// Flag of set columns.
const FLAG_SET: u16 = 1 << 11;
/// The character set of bytes.
const CHARSET_BINARY: u16 = 63;

/// Type of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct MysqlType {
    code: u8,
    flags: u16,
    charset: u16,
}

impl MysqlType {
    pub(super) const fn new(code: u8, flags: u16, charset: u16) -> MysqlType {
        MysqlType { code, flags, charset }
    }

    const fn is_unsigned(self) -> bool {
        self.flags & FLAG_UNSIGNED != 0
    }

    /// Returns its name.
    pub(super) fn name(self) -> String {
        let is_binary = self.charset == CHARSET_BINARY;
        let name = match (self.code, is_binary) {
            _ if self.flags & FLAG_ENUM != 0 => "enum",
            _ if self.flags & FLAG_SET != 0 => "set",
            (0 | 246, _) => "decimal",
            (1, _) => "tinyint",
            (2, _) => "smallint",
            (3, _) => "int",
            (4, _) => "float",
            (5, _) => "double",
            (6, _) => "null",
            (7, _) => "timestamp",
            (8, _) => "bigint",
            (9, _) => "mediumint",
            (10 | 14, _) => "date",
            (11, _) => "time",
            (12, _) => "datetime",
            (13, _) => "year",
            (16, _) => "bit",
            (245, _) => "json",
            (247, _) => "enum",
            (248, _) => "set",
            (249..=252, true) => "blob",
            (249..=252, false) => "text",
            (254, true) => "binary",
            (254, false) => "char",
            (255, _) => "geometry",
            (_, true) => "varbinary",
            (_, false) => "varchar",
        };
        let is_integer = matches!(self.code, 1..=3 | 8 | 9);
        match is_integer && self.is_unsigned() {
            true => format!("{name} unsigned"),
            false => name.to_owned(),
        }
    }

    fn form(self) -> ValueForm {
        match self.code {
            1..=3 | 8 | 9 | 13 => ValueForm::Integer,
            4 | 5 => ValueForm::Float,
            16 => ValueForm::Bits,
            245 => ValueForm::Document,
            255 => ValueForm::RawBytes,
            15 | 249..=254 if self.charset == CHARSET_BINARY => ValueForm::RawBytes,
            _ => ValueForm::Text,
        }
    }

    /// Returns a value of the text protocol as JSON.
    pub(super) fn value(self, bytes: Option<&[u8]>) -> Value {
        bytes.map_or(Value::Null, |bytes| values::value(self.form(), bytes))
    }

    /// Reads a value of the binary protocol; the result is the same as in the text protocol, except
    /// for fractional seconds that are all zero. `None` if it is truncated.
    pub(super) fn binary(self, reader: &mut PacketReader<'_>) -> Option<Value> {
        let is_unsigned = self.is_unsigned();
        let text = match self.code {
            1 => {
                let byte = reader.u8()?;
                if is_unsigned { byte.to_string() } else { i8::from_le_bytes([byte]).to_string() }
            }
            2 | 13 => {
                let bytes = reader.array()?;
                let number = u16::from_le_bytes(bytes);
                let is_unsigned = is_unsigned || self.code == 13;
                if is_unsigned { number.to_string() } else { i16::from_le_bytes(bytes).to_string() }
            }
            3 | 9 => {
                let bytes = reader.array()?;
                let number = u32::from_le_bytes(bytes);
                if is_unsigned { number.to_string() } else { i32::from_le_bytes(bytes).to_string() }
            }
            8 => {
                let bytes = reader.array()?;
                let number = u64::from_le_bytes(bytes);
                if is_unsigned { number.to_string() } else { i64::from_le_bytes(bytes).to_string() }
            }
            4 => f32::from_le_bytes(reader.array()?).to_string(),
            5 => f64::from_le_bytes(reader.array()?).to_string(),
            6 => return Some(Value::Null),
            7 | 10 | 12 | 14 => date(self.code, reader)?,
            11 => time(reader)?,
            _ => return Some(self.value(Some(reader.lenenc_bytes()?))),
        };
        Some(self.value(Some(text.as_bytes())))
    }
}

/// Reads a date, with the time for types that have one.
fn date(code: u8, reader: &mut PacketReader<'_>) -> Option<String> {
    let length = reader.u8()?;
    let mut part = PacketReader::new(reader.bytes(usize::from(length))?);
    let (mut year, mut month, mut day) = (0, 0, 0);
    if length > 0 {
        (year, month, day) = (part.u16()?, part.u8()?, part.u8()?);
    }
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    if matches!(code, 10 | 14) {
        return Some(text);
    }
    text.push(' ');
    clock(&mut text, 0, length > 4, &mut part)?;
    Some(text)
}

/// Reads a time span, in hours.
fn time(reader: &mut PacketReader<'_>) -> Option<String> {
    let length = reader.u8()?;
    let mut part = PacketReader::new(reader.bytes(usize::from(length))?);
    let mut text = String::new();
    let mut days = 0;
    if length > 0 {
        if part.u8()? != 0 {
            text.push('-');
        }
        days = part.u32()?;
    }
    clock(&mut text, days, length > 0, &mut part)?;
    Some(text)
}

fn clock(text: &mut String, days: u32, has_time: bool, part: &mut PacketReader<'_>) -> Option<()> {
    let (mut hours, mut minutes, mut seconds) = (0, 0, 0);
    if has_time {
        (hours, minutes, seconds) = (part.u8()?, part.u8()?, part.u8()?);
    }
    let hours = u64::from(days) * 24 + u64::from(hours);
    let _infallible = write!(text, "{hours:02}:{minutes:02}:{seconds:02}");
    if !part.is_empty() {
        let _infallible = write!(text, ".{:06}", part.u32()?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_binary_value_is_that_of_the_text_protocol() {
        let text = |code, flags, charset| MysqlType::new(code, flags, charset);
        for (known, bytes, name, expected) in [
            (text(1, 0, 63), &[0xff][..], "tinyint", json!(-1)),
            (text(1, FLAG_UNSIGNED, 63), &[0xff], "tinyint unsigned", json!(255)),
            (text(2, 0, 63), &[0xfe, 0xff], "smallint", json!(-2)),
            (text(13, 0, 63), &[0xea, 0x07], "year", json!(2026)),
            (text(3, 0, 63), &[1, 0, 0, 0], "int", json!(1)),
            (text(8, FLAG_UNSIGNED, 63), &[0xff; 8], "bigint unsigned", {
                json!("18446744073709551615")
            }),
            (text(5, 0, 63), &0.1_f64.to_le_bytes(), "double", json!(0.1)),
            (text(4, 0, 63), &0.1_f32.to_le_bytes(), "float", json!(0.1)),
            (text(246, 0, 63), b"\x041.10", "decimal", json!("1.10")),
            (text(10, 0, 63), &[4, 0xea, 7, 11, 28], "date", json!("2026-11-28")),
            (text(12, 0, 63), &[7, 0xea, 7, 11, 28, 1, 2, 3], "datetime", {
                json!("2026-11-28 01:02:03")
            }),
            (text(7, 0, 63), &[11, 0xea, 7, 11, 28, 1, 2, 3, 5, 0, 0, 0], "timestamp", {
                json!("2026-11-28 01:02:03.000005")
            }),
            (text(12, 0, 63), &[0], "datetime", json!("0000-00-00 00:00:00")),
            (text(11, 0, 63), &[8, 1, 2, 0, 0, 0, 3, 4, 5], "time", json!("-51:04:05")),
            (text(252, 0, 63), b"\x01a", "blob", json!("YQ==")),
            (text(252, 0, 45), b"\x01a", "text", json!("a")),
            (text(245, 0, 45), b"\x02[]", "json", json!([])),
            (text(16, 0, 63), b"\x01\x03", "bit", json!(3)),
            (text(254, FLAG_ENUM, 45), b"\x01a", "enum", json!("a")),
        ] {
            assert_eq!(known.name(), name);
            let mut reader = PacketReader::new(bytes);
            assert_eq!(known.binary(&mut reader), Some(expected), "{name}");
            assert!(reader.is_empty(), "{name}");
            let mut reader = PacketReader::new(bytes.get(..bytes.len() - 1).unwrap());
            assert_eq!(known.binary(&mut reader), None, "{name}, cut off");
        }
    }
}
