//! Default values of columns, in the format's "JSON single-value serialization". A reader that
//! cannot parse one cannot read the table.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#default-values>

use super::columns::SchemaColumn;
use super::types::ColumnType;
use crate::error::illegal;
use crate::ident::Uuid;
use crate::json::{JsonKind, RawJson};
use crate::{CatalogError, Result};

/// Most digits of a fraction of a second.
const MICROS_DIGITS: usize = 6;
const NANOS_DIGITS: usize = 9;

/// Checks that the defaults of a column are values of its type.
///
/// # Errors
/// `IllegalArgument` if one is not, or the type allows none.
pub(super) fn check_defaults(column: &SchemaColumn) -> Result<()> {
    let defaults = [&column.initial_default, &column.write_default];
    defaults.into_iter().flatten().try_for_each(|default| check(column, default))
}

fn check(column: &SchemaColumn, default: &RawJson) -> Result<()> {
    let kind = default.kind();
    let is_one = match &column.kind {
        ColumnType::Boolean => kind == JsonKind::Bool,
        ColumnType::Int => default.as_i32().is_some(),
        ColumnType::Long => default.as_i64().is_some(),
        ColumnType::Float | ColumnType::Double => kind == JsonKind::Number,
        ColumnType::Struct | ColumnType::Map => kind == JsonKind::Object,
        ColumnType::List => kind == JsonKind::Array,
        ColumnType::Unknown
        | ColumnType::Variant
        | ColumnType::Geometry { .. }
        | ColumnType::Geography { .. } => {
            let (name, default_text) = (&column.name, default.text());
            return Err(illegal(format!(
                "Invalid default value for {name:.80}: {default_text:.80} (must be null)"
            )));
        }
        ColumnType::Other(_) => true,
        text => default.as_str().is_some_and(|default_text| is_text_of(text, &default_text)),
    };
    if is_one { Ok(()) } else { Err(refuse(column, default)) }
}

fn refuse(column: &SchemaColumn, default: &RawJson) -> CatalogError {
    let (default_text, written) = (default.text(), column.written.text().trim_matches('"'));
    illegal(format!("Cannot cast default value to {written:.80}: {default_text:.80}"))
}

fn is_text_of(kind: &ColumnType, text: &str) -> bool {
    match kind {
        ColumnType::Decimal { scale, .. } => is_decimal(text, *scale),
        ColumnType::Date => is_date(text),
        ColumnType::Time => is_time(text, MICROS_DIGITS),
        ColumnType::Timestamp => is_timestamp(text, MICROS_DIGITS),
        ColumnType::TimestampNs => is_timestamp(text, NANOS_DIGITS),
        ColumnType::TimestampTz => is_utc(text, MICROS_DIGITS),
        ColumnType::TimestampTzNs => is_utc(text, NANOS_DIGITS),
        ColumnType::Uuid => text.parse::<Uuid>().is_ok(),
        ColumnType::Fixed(length) => {
            is_hex(text) && usize::try_from(*length).is_ok_and(|length| text.len() / 2 == length)
        }
        ColumnType::Binary => is_hex(text),
        _ => true,
    }
}

/// Checks a decimal number with exactly the scale of the type. An exponent moves the point.
fn is_decimal(text: &str, scale: u32) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let Ok(exponent) = exponent.parse::<i32>() else { return false };
    let digits = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_any = !whole.is_empty() || !fraction.is_empty();
    let behind = i64::try_from(fraction.len()).ok().map(|it| it - i64::from(exponent));
    has_any && are_digits(whole) && are_digits(fraction) && behind == Some(i64::from(scale))
}

/// Checks a date: `2026-11-22`.
fn is_date(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(day)) =
        (number(parts.next(), 4), number(parts.next(), 2), number(parts.next(), 2))
    else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Checks a time: `12:34:56.789012`; seconds and their fraction may be missing.
fn is_time(text: &str, fraction_digits: usize) -> bool {
    let (text, fraction) = match text.split_once('.') {
        Some((text, fraction)) => (text, Some(fraction)),
        None => (text, None),
    };
    let parts: Vec<Option<u32>> = text.split(':').map(|part| number(Some(part), 2)).collect();
    let is_clock = |hour: &Option<u32>, rest: &[Option<u32>]| {
        hour.is_some_and(|hour| hour < 24)
            && rest.iter().all(|part| part.is_some_and(|part| part < 60))
    };
    let is_clock = match parts.as_slice() {
        [hour, rest @ ..] if rest.len() == 2 => is_clock(hour, rest),
        [hour, rest @ ..] if rest.len() == 1 => fraction.is_none() && is_clock(hour, rest),
        _ => false,
    };
    is_clock
        && fraction.is_none_or(|fraction| {
            (1..=fraction_digits).contains(&fraction.len())
                && fraction.bytes().all(|byte| byte.is_ascii_digit())
        })
}

fn is_timestamp(text: &str, fraction_digits: usize) -> bool {
    let parts = text.split_once('T');
    parts.is_some_and(|(date, time)| is_date(date) && is_time(time, fraction_digits))
}

/// Checks a time with the offset of UTC.
fn is_utc(text: &str, fraction_digits: usize) -> bool {
    let local = ["+00:00", "-00:00", "Z"].iter().find_map(|zone| text.strip_suffix(zone));
    local.is_some_and(|local| is_timestamp(local, fraction_digits))
}

fn is_hex(text: &str) -> bool {
    text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses a number of exactly `digits` digits.
fn number(text: Option<&str>, digits: usize) -> Option<u32> {
    let is_one = |text: &&str| text.len() == digits && text.bytes().all(|it| it.is_ascii_digit());
    text.filter(is_one)?.parse().ok()
}
