//! Values of columns: in the binary form of bounds, in the Avro form of manifests, and in the JSON
//! form of responses and filters.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#appendix-d-single-value-serialization>

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::calendar::{DAY_MICROS, put_date, put_time, read_date, read_time, read_timestamp};
use crate::ident::Uuid;
use crate::json::{JsonKind, RawJson, put_integer, put_string};
use crate::schema::ColumnType;

const MICROS: i64 = 1_000_000;
const NANOS: i64 = 1_000_000_000;

/// Bytes of the longest decimal.
const DECIMAL_BYTES_MAX: usize = 16;

/// A non-null value. Its meaning depends on the column's type: integers, dates and times are all
/// stored as integers, in the units of the format.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlanValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    /// Unscaled; the scale is in the type.
    Decimal(i128),
    Text(Box<str>),
    /// Bytes, also for UUIDs.
    Bytes(Box<[u8]>),
}

/// A literal of a filter, which may be outside of the column's range.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterLiteral {
    Value(PlanValue),
    /// Greater than any value of the column.
    Above,
    /// Less than any value of the column.
    Below,
}

impl PlanValue {
    /// Compares two values; `None` for values of different types.
    pub(super) fn order(&self, other: &PlanValue) -> Option<Ordering> {
        Some(match (self, other) {
            (PlanValue::Bool(a), PlanValue::Bool(b)) => a.cmp(b),
            (PlanValue::Integer(a), PlanValue::Integer(b)) => a.cmp(b),
            (PlanValue::Float(a), PlanValue::Float(b)) => a.total_cmp(b),
            (PlanValue::Decimal(a), PlanValue::Decimal(b)) => a.cmp(b),
            (PlanValue::Text(a), PlanValue::Text(b)) => a.cmp(b),
            (PlanValue::Bytes(a), PlanValue::Bytes(b)) => a.cmp(b),
            _ => return None,
        })
    }

    /// Returns whether it is NaN.
    pub(super) fn is_nan(&self) -> bool {
        matches!(self, PlanValue::Float(number) if number.is_nan())
    }

    /// Returns the approximate bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let boxed = match self {
            PlanValue::Text(text) => text.len(),
            PlanValue::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        size_of::<PlanValue>() + boxed
    }

    /// Appends bytes that are unique among values of its type.
    pub(super) fn put_key(&self, out: &mut Vec<u8>) {
        match self {
            PlanValue::Bool(is) => out.push(u8::from(*is)),
            PlanValue::Integer(number) => out.extend_from_slice(&number.to_le_bytes()),
            PlanValue::Float(number) => out.extend_from_slice(&number.to_bits().to_le_bytes()),
            PlanValue::Decimal(number) => out.extend_from_slice(&number.to_le_bytes()),
            PlanValue::Text(text) => {
                out.extend_from_slice(&text.len().to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            PlanValue::Bytes(bytes) => {
                out.extend_from_slice(&bytes.len().to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Decodes a bound in the format's binary form of single values. Shorter ones are of a type
    /// that was widened later.
    pub(super) fn of_bytes(kind: &ColumnType, bytes: &[u8]) -> Option<PlanValue> {
        use ColumnType as T;
        let int = || bytes.try_into().ok().map(|it| i64::from(i32::from_le_bytes(it)));
        let long = || bytes.try_into().ok().map(i64::from_le_bytes);
        let float = || bytes.try_into().ok().map(|it| f64::from(f32::from_le_bytes(it)));
        let double = || bytes.try_into().ok().map(f64::from_le_bytes);
        Some(match kind {
            T::Boolean => match bytes {
                [byte] => PlanValue::Bool(*byte != 0),
                _ => return None,
            },
            T::Int | T::Date => PlanValue::Integer(int()?),
            T::Long => PlanValue::Integer(long().or_else(int)?),
            T::Time => PlanValue::Integer(long()?),
            T::Timestamp | T::TimestampTz | T::TimestampNs | T::TimestampTzNs => {
                let per_day = DAY_MICROS / MICROS * per_second(kind);
                PlanValue::Integer(long().or_else(|| int()?.checked_mul(per_day))?)
            }
            T::Float => PlanValue::Float(float()?),
            T::Double => PlanValue::Float(double().or_else(float)?),
            T::Decimal { .. } => PlanValue::Decimal(big_endian(bytes)?),
            T::String => PlanValue::Text(std::str::from_utf8(bytes).ok()?.into()),
            T::Uuid if bytes.len() != 16 => return None,
            T::Uuid | T::Fixed(_) | T::Binary => PlanValue::Bytes(bytes.into()),
            _ => return None,
        })
    }

    /// Converts a partition value from Avro to this type.
    pub(super) fn typed(&self, kind: &ColumnType) -> Option<PlanValue> {
        use ColumnType as T;
        match (kind, self) {
            (T::Decimal { .. }, PlanValue::Bytes(bytes)) => {
                big_endian(bytes).map(PlanValue::Decimal)
            }
            (T::Boolean, PlanValue::Bool(_))
            | (T::Int | T::Long | T::Date | T::Time, PlanValue::Integer(_))
            | (T::Float | T::Double, PlanValue::Float(_))
            | (T::String, PlanValue::Text(_))
            | (T::Uuid | T::Fixed(_) | T::Binary, PlanValue::Bytes(_)) => Some(self.clone()),
            (kind, PlanValue::Integer(_)) if kind.is_timestamp() => Some(self.clone()),
            _ => None,
        }
    }

    /// Appends the value in the format's JSON form of single values.
    pub(super) fn put_json(&self, kind: &ColumnType, out: &mut Vec<u8>) {
        let mut text = String::new();
        match (self, kind) {
            (PlanValue::Bool(is), _) => {
                out.extend_from_slice(if *is { b"true" } else { b"false" });
                return;
            }
            (PlanValue::Float(number), kind) => return put_float(*number, kind, out),
            (PlanValue::Integer(days), ColumnType::Date) => put_date(&mut text, *days),
            (PlanValue::Integer(micros), ColumnType::Time) => put_time(&mut text, *micros, MICROS),
            (PlanValue::Integer(units), kind) if kind.is_timestamp() => {
                let per_second = per_second(kind);
                let per_day = 86_400 * per_second;
                put_date(&mut text, units.div_euclid(per_day));
                text.push('T');
                put_time(&mut text, units.rem_euclid(per_day), per_second);
                if matches!(kind, ColumnType::TimestampTz | ColumnType::TimestampTzNs) {
                    text.push_str("+00:00");
                }
            }
            (PlanValue::Integer(number), _) => return put_integer(out, *number),
            (PlanValue::Decimal(unscaled), kind) => put_decimal(*unscaled, kind, &mut text),
            (PlanValue::Text(string), _) => return put_string(out, string),
            (PlanValue::Bytes(bytes), ColumnType::Uuid) => {
                for (place, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" };
                    // Writing to a string does not fail.
                    let _ = write!(text, "{dash}{byte:02x}");
                }
            }
            (PlanValue::Bytes(bytes), _) => text = upper_hex(bytes),
        }
        put_string(out, &text);
    }

    /// Parses a literal of a filter for a column of this type. Engines that represent dates and
    /// times as days and microseconds write them as numbers.
    ///
    /// # Errors
    /// A description of the expected form.
    pub(super) fn of_json(kind: &ColumnType, json: &RawJson) -> Result<FilterLiteral, String> {
        use ColumnType as T;
        let text = json.as_str();
        let text = text.as_deref();
        let value = match kind {
            T::Boolean => json.as_bool().map(PlanValue::Bool),
            T::Int => return integer(json, i64::from(i32::MIN), i64::from(i32::MAX)),
            T::Long => return integer(json, i64::MIN, i64::MAX),
            T::Float | T::Double => return real(json, kind),
            T::Decimal { scale, .. } => {
                let digits = text.or((json.kind() == JsonKind::Number).then(|| json.text()));
                digits.and_then(|it| decimal(it, *scale)).map(PlanValue::Decimal)
            }
            T::Date => {
                let days = text.and_then(read_date).or(json.as_i32().map(i64::from));
                days.map(PlanValue::Integer)
            }
            T::Time => {
                let read = text.and_then(|it| read_time(it, MICROS));
                let is_of_day = |it: &i64| (0..DAY_MICROS).contains(it);
                read.or(json.as_i64().filter(is_of_day)).map(PlanValue::Integer)
            }
            T::Timestamp | T::TimestampTz | T::TimestampNs | T::TimestampTzNs => {
                let has_zone = matches!(kind, T::TimestampTz | T::TimestampTzNs);
                let read = text.and_then(|it| read_timestamp(it, per_second(kind), has_zone));
                read.or(json.as_i64()).map(PlanValue::Integer)
            }
            T::String => text.map(|it| PlanValue::Text(it.into())),
            T::Uuid => {
                let uuid = text.and_then(|it| it.parse::<Uuid>().ok());
                uuid.map(|it| PlanValue::Bytes(it.as_bytes()[..].into()))
            }
            T::Fixed(length) => {
                let bytes = text.and_then(bytes_of_hex);
                let bytes = bytes.filter(|it| u32::try_from(it.len()).ok() == Some(*length));
                bytes.map(|it| PlanValue::Bytes(it.into()))
            }
            T::Binary => text.and_then(bytes_of_hex).map(|it| PlanValue::Bytes(it.into())),
            _ => None,
        };
        value
            .map(FilterLiteral::Value)
            .ok_or_else(|| format!("{:.80} is not a value of it", json.text()))
    }
}

/// Returns the units per second of a timestamp type.
pub(super) fn per_second(kind: &ColumnType) -> i64 {
    match kind {
        ColumnType::TimestampNs | ColumnType::TimestampTzNs => NANOS,
        _ => MICROS,
    }
}

/// Decodes a signed big-endian number.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    if bytes.len() > DECIMAL_BYTES_MAX {
        return None;
    }
    let sign = if first >= 0x80 { -1 } else { 0 };
    Some(bytes.iter().fold(sign, |sum: i128, byte| sum << 8 | i128::from(*byte)))
}

fn integer(value: &RawJson, min: i64, max: i64) -> Result<FilterLiteral, String> {
    let refuse = || format!("{:.80} is not an integer", value.text());
    if value.kind() != JsonKind::Number {
        return Err(refuse());
    }
    let text = value.text();
    // An integer may be written with a decimal point and zeros.
    let text = text.split_once('.').filter(|(_, zeros)| zeros.bytes().all(|it| it == b'0'));
    let text = text.map_or(value.text(), |(digits, _)| digits);
    let number: i128 =
        match text.parse() {
            Ok(number) => number,
            Err(_) if text.bytes().skip(1).all(|it| it.is_ascii_digit()) => {
                if text.starts_with('-') { i128::MIN } else { i128::MAX }
            }
            Err(_) => return Err(refuse()),
        };
    Ok(match i64::try_from(number) {
        Ok(number) if number >= min && number <= max => {
            FilterLiteral::Value(PlanValue::Integer(number))
        }
        _ if number < 0 => FilterLiteral::Below,
        _ => FilterLiteral::Above,
    })
}

fn real(value: &RawJson, kind: &ColumnType) -> Result<FilterLiteral, String> {
    let refuse = || format!("{:.80} is not a number", value.text());
    if value.kind() != JsonKind::Number {
        return Err(refuse());
    }
    let number = match kind {
        // In the precision of the column, so that equal digits compare as equal.
        ColumnType::Float => value.text().parse::<f32>().map(f64::from),
        _ => value.text().parse::<f64>(),
    };
    let number = number.map_err(|_| refuse())?;
    Ok(match number {
        f64::INFINITY => FilterLiteral::Above,
        f64::NEG_INFINITY => FilterLiteral::Below,
        number => FilterLiteral::Value(PlanValue::Float(number)),
    })
}

/// Returns the unscaled number, if it has no more decimal digits than `scale`.
fn decimal(text: &str, scale: u32) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || digits.len() > 100 {
        return None;
    }
    let mut number = 0_i128;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    let mut shift = i64::from(scale) + exponent - i64::try_from(fraction.len()).ok()?;
    while shift > 0 && number != 0 {
        number = number.checked_mul(10)?;
        shift -= 1;
    }
    while shift < 0 && number != 0 {
        if number % 10 != 0 {
            return None;
        }
        number /= 10;
        shift += 1;
    }
    Some(sign * number)
}

fn put_decimal(unscaled: i128, kind: &ColumnType, out: &mut String) {
    let scale = match kind {
        ColumnType::Decimal { scale, .. } => usize::try_from(*scale).unwrap_or_default(),
        _ => 0,
    };
    let sign = if unscaled < 0 { "-" } else { "" };
    let width = scale + 1;
    let digits = format!("{:0width$}", unscaled.unsigned_abs());
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale == 0 { "" } else { "." };
    // Writing to a string does not fail.
    let _ = write!(out, "{sign}{whole}{point}{fraction}");
}

fn put_float(number: f64, kind: &ColumnType, out: &mut Vec<u8>) {
    // JSON has no numbers for these; readers know the names.
    let name = if number.is_nan() {
        "NaN"
    } else if number == f64::INFINITY {
        "Infinity"
    } else if number == f64::NEG_INFINITY {
        "-Infinity"
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "it was one of 32 bits before")]
        let text = match kind {
            ColumnType::Float => format!("{:?}", number as f32),
            _ => format!("{number:?}"),
        };
        return out.extend_from_slice(text.as_bytes());
    };
    put_string(out, name);
}

/// Formats bytes as two hexadecimal digits each, as in responses.
pub(super) fn upper_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests;
