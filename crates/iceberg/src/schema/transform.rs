//! Transforms of a column before it partitions or sorts.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#partition-transforms>

use std::fmt;

use super::members_of_field;
use super::types::ColumnType;
use crate::Result;
use crate::error::illegal;
use crate::json::RawJson;

/// Most source columns of one transform.
pub const SOURCES_MAX: usize = 100;

/// A transform. Two are equal if they have the same result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FieldTransform {
    Identity,
    Bucket(u32),
    Truncate(u32),
    Year,
    Month,
    Day,
    Hour,
    /// Always null.
    Void,
    /// An unknown transform. The reference keeps these as well.
    Other(Box<str>),
}

impl FieldTransform {
    /// Parses a transform, case-insensitively, as the reference does.
    pub(crate) fn parse(text: &str) -> Result<FieldTransform> {
        if let Some((name, width)) = with_width(text) {
            // Readers parse it as a signed 32-bit number.
            let width = width.parse::<i32>().ok().and_then(|width| u32::try_from(width).ok());
            let refuse = |what| illegal(format!("Invalid {what}: {text:.80} (must be > 0)"));
            match (name.to_ascii_lowercase().as_str(), width) {
                ("bucket", Some(count)) if count > 0 => return Ok(FieldTransform::Bucket(count)),
                ("bucket", _) => return Err(refuse("number of buckets")),
                ("truncate", Some(width)) if width > 0 => {
                    return Ok(FieldTransform::Truncate(width));
                }
                ("truncate", _) => return Err(refuse("truncate width")),
                _ => {}
            }
        }
        Ok(match text.to_ascii_lowercase().as_str() {
            "identity" => FieldTransform::Identity,
            "year" => FieldTransform::Year,
            "month" => FieldTransform::Month,
            "day" => FieldTransform::Day,
            "hour" => FieldTransform::Hour,
            "void" => FieldTransform::Void,
            _ => FieldTransform::Other(text.into()),
        })
    }

    /// Returns whether columns of this type are allowed as a source.
    pub(crate) fn takes(&self, kind: &ColumnType) -> bool {
        use ColumnType as T;
        if matches!(kind, T::Other(_)) {
            return true;
        }
        match self {
            FieldTransform::Identity => {
                !matches!(kind, T::Variant | T::Geometry { .. } | T::Geography { .. })
            }
            FieldTransform::Bucket(_) => {
                kind.is_timestamp()
                    || matches!(kind, T::Int | T::Long | T::Decimal { .. } | T::Date | T::Time)
                    || matches!(kind, T::String | T::Uuid | T::Fixed(_) | T::Binary)
            }
            FieldTransform::Truncate(_) => {
                matches!(kind, T::Int | T::Long | T::Decimal { .. } | T::String | T::Binary)
            }
            FieldTransform::Year | FieldTransform::Month | FieldTransform::Day => {
                *kind == T::Date || kind.is_timestamp()
            }
            FieldTransform::Hour => kind.is_timestamp(),
            FieldTransform::Void | FieldTransform::Other(_) => true,
        }
    }

    /// Returns whether several source columns are allowed.
    pub(crate) fn takes_several(&self) -> bool {
        matches!(self, FieldTransform::Bucket(_) | FieldTransform::Void | FieldTransform::Other(_))
    }
}

impl fmt::Display for FieldTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldTransform::Identity => f.write_str("identity"),
            FieldTransform::Bucket(count) => write!(f, "bucket[{count}]"),
            FieldTransform::Truncate(width) => write!(f, "truncate[{width}]"),
            FieldTransform::Year => f.write_str("year"),
            FieldTransform::Month => f.write_str("month"),
            FieldTransform::Day => f.write_str("day"),
            FieldTransform::Hour => f.write_str("hour"),
            FieldTransform::Void => f.write_str("void"),
            FieldTransform::Other(text) => write!(f, "{text:.80}"),
        }
    }
}

/// Splits `name[digits]`.
fn with_width(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('[')?;
    let width = rest.strip_suffix(']')?;
    let is_number = !width.is_empty() && width.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((name, width))
}

/// The source columns and the transform of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransformTerm {
    pub(crate) sources: Vec<i32>,
    pub(crate) transform: FieldTransform,
}

impl TransformTerm {
    /// Parses the term of a partition field or a sort field.
    pub(crate) fn read(field: &RawJson) -> Result<TransformTerm> {
        let [one, several, transform] =
            members_of_field(field, ["source-id", "source-ids", "transform"])?;
        let transform = transform.as_ref().and_then(RawJson::as_str);
        let transform =
            transform.ok_or_else(|| illegal("Cannot parse missing string: transform"))?;
        let sources = match (several, one) {
            (Some(several), _) => several.decode()?,
            (None, Some(one)) => {
                let id = one.as_i32();
                vec![id.ok_or_else(|| illegal("Cannot parse to an integer value: source-id"))?]
            }
            (None, None) => return Err(illegal("Cannot parse missing int: source-id")),
        };
        if sources.is_empty() || sources.len() > SOURCES_MAX {
            return Err(illegal(format!("`source-ids` has 1 to {SOURCES_MAX} columns")));
        }
        Ok(TransformTerm { sources, transform: FieldTransform::parse(&transform)? })
    }
}

impl fmt::Display for TransformTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.transform)?;
        for (place, id) in self.sources.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{id}")?;
        }
        f.write_str(")")
    }
}
