//! Transforms of values, and the bounds that a partition value implies for its source values.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#partition-transforms>

use super::calendar::{days_of, first_day};
use super::facts::{UpperBound, ValueFacts};
use super::value::{PlanValue, per_second};
use crate::schema::{ColumnType, FieldTransform};

/// Seconds of an hour.
const HOUR: i64 = 3600;

/// Returns the type of a transform's result; `None` if it is unknown.
pub(super) fn result_type(transform: &FieldTransform, source: &ColumnType) -> Option<ColumnType> {
    match transform {
        FieldTransform::Identity | FieldTransform::Truncate(_) | FieldTransform::Void => {
            Some(source.clone())
        }
        FieldTransform::Bucket(_)
        | FieldTransform::Year
        | FieldTransform::Month
        | FieldTransform::Hour => Some(ColumnType::Int),
        FieldTransform::Day => Some(ColumnType::Date),
        FieldTransform::Other(_) => None,
    }
}

/// Returns the bucket of a value, out of `count`.
pub(super) fn bucket_of(value: &PlanValue, count: u32) -> Option<i64> {
    let hash = match value {
        PlanValue::Integer(number) => murmur3(&number.to_le_bytes()),
        PlanValue::Text(text) => murmur3(text.as_bytes()),
        PlanValue::Bytes(bytes) => murmur3(bytes),
        PlanValue::Decimal(unscaled) => {
            let bytes = unscaled.to_be_bytes();
            // The shortest two's-complement form.
            let is_spare = |pair: &[u8]| match pair {
                [0, next] => *next < 0x80,
                [0xff, next] => *next >= 0x80,
                _ => false,
            };
            let spare = bytes.windows(2).take_while(|pair| is_spare(pair)).count();
            murmur3(bytes.get(spare..)?)
        }
        PlanValue::Bool(_) | PlanValue::Float(_) => return None,
    };
    Some(i64::from((hash & 0x7fff_ffff) % count.max(1)))
}

/// MurmurHash3 of 32 bits for x86, with the seed 0: the hash that the format specifies.
pub(super) fn murmur3(bytes: &[u8]) -> u32 {
    let mix =
        |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, remainder) = bytes.as_chunks::<4>();
    let mut hash = 0_u32;
    for block in blocks {
        hash ^= mix(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !remainder.is_empty() {
        hash ^= mix(remainder.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
    }
    // The length is mixed in modulo 2^32.
    hash ^= u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or_default();
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// Returns the facts about a column whose partition field has values from `lower` to `upper`.
/// `facts` has the field's nulls and NaNs, which hold for the column as well: no transform but
/// `void` makes a null of a value.
pub(super) fn inverse(
    transform: &FieldTransform,
    source: &ColumnType,
    facts: ValueFacts,
    lower: Option<&PlanValue>,
    upper: Option<&PlanValue>,
) -> ValueFacts {
    let nothing = || ValueFacts { lower: None, upper: None, exact: false, ..facts.clone() };
    let numbers = (integer(lower), integer(upper));
    match (transform, numbers) {
        (FieldTransform::Identity, _) => {
            let upper = upper.cloned().map(UpperBound::Value);
            ValueFacts { lower: lower.cloned(), upper, ..facts }.settled()
        }
        // Nanoseconds are hashed as microseconds: no conclusion is drawn.
        (FieldTransform::Bucket(_), _)
            if matches!(source, ColumnType::TimestampNs | ColumnType::TimestampTzNs) =>
        {
            nothing()
        }
        (FieldTransform::Bucket(count), (Some(first), Some(last))) => {
            ValueFacts { buckets: Some((*count, first, last)), ..nothing() }
        }
        (FieldTransform::Truncate(width), _) => truncated(*width, nothing(), lower, upper),
        (
            FieldTransform::Year
            | FieldTransform::Month
            | FieldTransform::Day
            | FieldTransform::Hour,
            (from, to),
        ) => {
            // Old writers rounded times before 1970 up, so that a period of 0 or less may contain
            // values of the one before.
            let from = from.map(|it| if it <= 0 { it.saturating_sub(1) } else { it });
            let start = |period| start_of(transform, source, period);
            let lower = from.and_then(start).map(PlanValue::Integer);
            let next = to.and_then(|it| it.checked_add(1)).and_then(start);
            let upper = next.and_then(|it| it.checked_sub(1)).map(PlanValue::Integer);
            ValueFacts { lower, upper: upper.map(UpperBound::Value), ..nothing() }.settled()
        }
        (FieldTransform::Void, _) => ValueFacts::none(),
        _ => nothing(),
    }
}

fn integer(value: Option<&PlanValue>) -> Option<i64> {
    if let Some(PlanValue::Integer(number)) = value { Some(*number) } else { None }
}

/// Returns the first value of a column of this type in a year, month, day or hour.
fn start_of(transform: &FieldTransform, source: &ColumnType, period: i64) -> Option<i64> {
    // No dates exist beyond this.
    let period = Some(period).filter(|it| it.abs() < 1 << 40)?;
    let seconds = match transform {
        FieldTransform::Year => days_of(period.checked_add(1970)?, 1, 1) * HOUR * 24,
        FieldTransform::Month => first_day(period) * HOUR * 24,
        FieldTransform::Day => period * HOUR * 24,
        FieldTransform::Hour => period * HOUR,
        _ => return None,
    };
    match source {
        ColumnType::Date => Some(seconds / (HOUR * 24)),
        kind if kind.is_timestamp() => seconds.checked_mul(per_second(kind)),
        _ => None,
    }
}

fn truncated(
    width: u32,
    facts: ValueFacts,
    lower: Option<&PlanValue>,
    upper: Option<&PlanValue>,
) -> ValueFacts {
    let above = |value: &PlanValue| match value {
        PlanValue::Integer(number) => {
            Some(UpperBound::Value(PlanValue::Integer(number.checked_add(i64::from(width) - 1)?)))
        }
        PlanValue::Decimal(number) => {
            Some(UpperBound::Value(PlanValue::Decimal(number.checked_add(i128::from(width) - 1)?)))
        }
        // A text shorter than the width was not truncated.
        PlanValue::Text(text) if text.chars().count() < usize::try_from(width).ok()? => {
            Some(UpperBound::Value(value.clone()))
        }
        PlanValue::Bytes(bytes) if bytes.len() < usize::try_from(width).ok()? => {
            Some(UpperBound::Value(value.clone()))
        }
        PlanValue::Text(_) | PlanValue::Bytes(_) => Some(UpperBound::Prefix(value.clone())),
        PlanValue::Bool(_) | PlanValue::Float(_) => None,
    };
    ValueFacts { lower: lower.cloned(), upper: upper.and_then(above), ..facts }.settled()
}

/// Returns the result of a transform for a value.
#[cfg(test)]
pub(super) fn apply(
    transform: &FieldTransform,
    source: &ColumnType,
    value: &PlanValue,
) -> Option<PlanValue> {
    use super::calendar::{date_of, month_of};
    let days = |number: i64| match source {
        ColumnType::Date => number,
        kind => number.div_euclid(86_400 * per_second(kind)),
    };
    Some(match (transform, value) {
        (FieldTransform::Identity, value) => value.clone(),
        (FieldTransform::Bucket(count), value) => PlanValue::Integer(bucket_of(value, *count)?),
        (FieldTransform::Truncate(width), PlanValue::Integer(number)) => {
            PlanValue::Integer(number - number.rem_euclid(i64::from(*width)))
        }
        (FieldTransform::Truncate(width), PlanValue::Decimal(number)) => {
            PlanValue::Decimal(number - number.rem_euclid(i128::from(*width)))
        }
        (FieldTransform::Truncate(width), PlanValue::Text(text)) => {
            let width = usize::try_from(*width).ok()?;
            PlanValue::Text(text.chars().take(width).collect::<String>().into())
        }
        (FieldTransform::Truncate(width), PlanValue::Bytes(bytes)) => {
            let width = usize::try_from(*width).ok()?;
            PlanValue::Bytes(bytes.get(..width.min(bytes.len()))?.into())
        }
        (FieldTransform::Year, PlanValue::Integer(it)) => {
            PlanValue::Integer(date_of(days(*it)).0 - 1970)
        }
        (FieldTransform::Month, PlanValue::Integer(it)) => PlanValue::Integer(month_of(days(*it))),
        (FieldTransform::Day, PlanValue::Integer(it)) => PlanValue::Integer(days(*it)),
        (FieldTransform::Hour, PlanValue::Integer(it)) => {
            PlanValue::Integer(it.div_euclid(HOUR * per_second(source)))
        }
        _ => return None,
    })
}
