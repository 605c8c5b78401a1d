//! What transforms make of values, and what a partition's value says of the values that it was
//! made of.

use super::calendar::{days_of, first_day};
use super::facts::{Facts, Upper};
use super::value::{Value, per_second};
use crate::schema::{ColumnType, Transform};

/// Seconds of an hour.
const HOUR: i64 = 3600;

/// The type of what a transform makes of a column; none where nobody knows.
pub(super) fn result_type(transform: &Transform, source: &ColumnType) -> Option<ColumnType> {
    match transform {
        Transform::Identity | Transform::Truncate(_) | Transform::Void => Some(source.clone()),
        Transform::Bucket(_) | Transform::Year | Transform::Month | Transform::Hour => {
            Some(ColumnType::Int)
        }
        Transform::Day => Some(ColumnType::Date),
        Transform::Other(_) => None,
    }
}

/// The bucket of a value, of so many.
pub(super) fn bucket_of(value: &Value, count: u32) -> Option<i64> {
    let hash = match value {
        Value::Integer(number) => murmur3(&number.to_le_bytes()),
        Value::Text(text) => murmur3(text.as_bytes()),
        Value::Bytes(bytes) => murmur3(bytes),
        Value::Decimal(unscaled) => {
            let bytes = unscaled.to_be_bytes();
            // The fewest bytes that say it, sign and all.
            let is_spare = |pair: &[u8]| match pair {
                [0, next] => *next < 0x80,
                [0xff, next] => *next >= 0x80,
                _ => false,
            };
            let spare = bytes.windows(2).take_while(|pair| is_spare(pair)).count();
            murmur3(bytes.get(spare..)?)
        }
        Value::Bool(_) | Value::Float(_) => return None,
    };
    Some(i64::from((hash & 0x7fff_ffff) % count.max(1)))
}

/// MurmurHash3 of 32 bits for x86, with the seed 0: the format's hash.
pub(super) fn murmur3(bytes: &[u8]) -> u32 {
    let mix =
        |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = 0_u32;
    for block in blocks {
        hash ^= mix(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !tail.is_empty() {
        hash ^= mix(tail.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
    }
    // The length is mixed in modulo 2^32.
    hash ^= u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or_default();
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// What the values of a column are where those of a partition field are from `lower` to `upper`.
/// `facts` says of the field whether there are nulls and the like, and keeps that: no transform but
/// one that drops everything makes null of a value.
pub(super) fn inverse(
    transform: &Transform,
    source: &ColumnType,
    facts: Facts,
    (lower, upper): (Option<&Value>, Option<&Value>),
) -> Facts {
    let nothing = || Facts { lower: None, upper: None, exact: false, ..facts.clone() };
    let numbers = (integer(lower), integer(upper));
    match (transform, numbers) {
        (Transform::Identity, _) => {
            let upper = upper.cloned().map(Upper::Value);
            Facts { lower: lower.cloned(), upper, ..facts }.settled()
        }
        // Nanoseconds are hashed as microseconds: they are not looked at.
        (Transform::Bucket(_), _)
            if matches!(source, ColumnType::TimestampNs | ColumnType::TimestampTzNs) =>
        {
            nothing()
        }
        (Transform::Bucket(count), (Some(first), Some(last))) => {
            Facts { buckets: Some((*count, first, last)), ..nothing() }
        }
        (Transform::Truncate(width), _) => truncated(*width, nothing(), (lower, upper)),
        (Transform::Year | Transform::Month | Transform::Day | Transform::Hour, (from, to)) => {
            // Old writers rounded times before 1970 up, so that what is called 0 or less may be of
            // the one before.
            let from = from.map(|it| if it <= 0 { it.saturating_sub(1) } else { it });
            let start = |period| start_of(transform, source, period);
            let lower = from.and_then(start).map(Value::Integer);
            let next = to.and_then(|it| it.checked_add(1)).and_then(start);
            let upper = next.and_then(|it| it.checked_sub(1)).map(Value::Integer);
            Facts { lower, upper: upper.map(Upper::Value), ..nothing() }.settled()
        }
        (Transform::Void, _) => Facts::none(),
        _ => nothing(),
    }
}

fn integer(value: Option<&Value>) -> Option<i64> {
    if let Some(Value::Integer(number)) = value { Some(*number) } else { None }
}

/// The first value of a column of this type that is in a year, month, day or hour.
fn start_of(transform: &Transform, source: &ColumnType, period: i64) -> Option<i64> {
    // Beyond this there are no such dates.
    let period = Some(period).filter(|it| it.abs() < 1 << 40)?;
    let seconds = match transform {
        Transform::Year => days_of(period.checked_add(1970)?, 1, 1) * HOUR * 24,
        Transform::Month => first_day(period) * HOUR * 24,
        Transform::Day => period * HOUR * 24,
        Transform::Hour => period * HOUR,
        _ => return None,
    };
    match source {
        ColumnType::Date => Some(seconds / (HOUR * 24)),
        kind if kind.is_timestamp() => seconds.checked_mul(per_second(kind)),
        _ => None,
    }
}

fn truncated(width: u32, facts: Facts, (lower, upper): (Option<&Value>, Option<&Value>)) -> Facts {
    let above = |value: &Value| match value {
        Value::Integer(number) => {
            Some(Upper::Value(Value::Integer(number.checked_add(i64::from(width) - 1)?)))
        }
        Value::Decimal(number) => {
            Some(Upper::Value(Value::Decimal(number.checked_add(i128::from(width) - 1)?)))
        }
        // What is shorter than the width was not cut.
        Value::Text(text) if text.chars().count() < usize::try_from(width).ok()? => {
            Some(Upper::Value(value.clone()))
        }
        Value::Bytes(bytes) if bytes.len() < usize::try_from(width).ok()? => {
            Some(Upper::Value(value.clone()))
        }
        Value::Text(_) | Value::Bytes(_) => Some(Upper::Prefix(value.clone())),
        Value::Bool(_) | Value::Float(_) => None,
    };
    Facts { lower: lower.cloned(), upper: upper.and_then(above), ..facts }.settled()
}

/// What a transform makes of a value.
#[cfg(test)]
pub(super) fn apply(transform: &Transform, source: &ColumnType, value: &Value) -> Option<Value> {
    use super::calendar::{date_of, month_of};
    let days = |number: i64| match source {
        ColumnType::Date => number,
        kind => number.div_euclid(86_400 * per_second(kind)),
    };
    Some(match (transform, value) {
        (Transform::Identity, value) => value.clone(),
        (Transform::Bucket(count), value) => Value::Integer(bucket_of(value, *count)?),
        (Transform::Truncate(width), Value::Integer(number)) => {
            Value::Integer(number - number.rem_euclid(i64::from(*width)))
        }
        (Transform::Truncate(width), Value::Decimal(number)) => {
            Value::Decimal(number - number.rem_euclid(i128::from(*width)))
        }
        (Transform::Truncate(width), Value::Text(text)) => {
            let width = usize::try_from(*width).ok()?;
            Value::Text(text.chars().take(width).collect::<String>().into())
        }
        (Transform::Truncate(width), Value::Bytes(bytes)) => {
            let width = usize::try_from(*width).ok()?;
            Value::Bytes(bytes.get(..width.min(bytes.len()))?.into())
        }
        (Transform::Year, Value::Integer(it)) => Value::Integer(date_of(days(*it)).0 - 1970),
        (Transform::Month, Value::Integer(it)) => Value::Integer(month_of(days(*it))),
        (Transform::Day, Value::Integer(it)) => Value::Integer(days(*it)),
        (Transform::Hour, Value::Integer(it)) => {
            Value::Integer(it.div_euclid(HOUR * per_second(source)))
        }
        _ => return None,
    })
}
