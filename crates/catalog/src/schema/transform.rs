//! What is made of a column before it partitions or sorts.

use std::fmt;

use super::members_of_field;
use super::types::ColumnType;
use crate::Result;
use crate::error::illegal;
use crate::json::Fragment;

/// Columns that one transform is made of at the most.
pub const SOURCES_MAX: usize = 100;

/// Two are equal if they make the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transform {
    Identity,
    Bucket(u32),
    Truncate(u32),
    Year,
    Month,
    Day,
    Hour,
    /// Always null.
    Void,
    /// Nobody knows it here. The reference keeps such as well.
    Other(Box<str>),
}

impl Transform {
    /// Reads one, in any case, as the reference does.
    pub(crate) fn parse(text: &str) -> Result<Transform> {
        if let Some((name, width)) = with_width(text) {
            // Readers take it for a number of 32 bits with a sign.
            let width = width.parse::<i32>().ok().and_then(|width| u32::try_from(width).ok());
            let refuse = |what| illegal(format!("Invalid {what}: {text:.80} (must be > 0)"));
            match (name.to_ascii_lowercase().as_str(), width) {
                ("bucket", Some(count)) if count > 0 => return Ok(Transform::Bucket(count)),
                ("bucket", _) => return Err(refuse("number of buckets")),
                ("truncate", Some(width)) if width > 0 => return Ok(Transform::Truncate(width)),
                ("truncate", _) => return Err(refuse("truncate width")),
                _ => {}
            }
        }
        Ok(match text.to_ascii_lowercase().as_str() {
            "identity" => Transform::Identity,
            "year" => Transform::Year,
            "month" => Transform::Month,
            "day" => Transform::Day,
            "hour" => Transform::Hour,
            "void" => Transform::Void,
            _ => Transform::Other(text.into()),
        })
    }

    /// Whether it can be made of columns of this type.
    pub(crate) fn takes(&self, kind: &ColumnType) -> bool {
        use ColumnType as T;
        if matches!(kind, T::Other(_)) {
            return true;
        }
        match self {
            Transform::Identity => {
                !matches!(kind, T::Variant | T::Geometry { .. } | T::Geography { .. })
            }
            Transform::Bucket(_) => {
                kind.is_timestamp()
                    || matches!(kind, T::Int | T::Long | T::Decimal { .. } | T::Date | T::Time)
                    || matches!(kind, T::String | T::Uuid | T::Fixed(_) | T::Binary)
            }
            Transform::Truncate(_) => {
                matches!(kind, T::Int | T::Long | T::Decimal { .. } | T::String | T::Binary)
            }
            Transform::Year | Transform::Month | Transform::Day => {
                *kind == T::Date || kind.is_timestamp()
            }
            Transform::Hour => kind.is_timestamp(),
            Transform::Void | Transform::Other(_) => true,
        }
    }

    /// Whether it can be made of several columns.
    pub(crate) fn takes_several(&self) -> bool {
        matches!(self, Transform::Bucket(_) | Transform::Void | Transform::Other(_))
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transform::Identity => f.write_str("identity"),
            Transform::Bucket(count) => write!(f, "bucket[{count}]"),
            Transform::Truncate(width) => write!(f, "truncate[{width}]"),
            Transform::Year => f.write_str("year"),
            Transform::Month => f.write_str("month"),
            Transform::Day => f.write_str("day"),
            Transform::Hour => f.write_str("hour"),
            Transform::Void => f.write_str("void"),
            Transform::Other(text) => write!(f, "{text:.80}"),
        }
    }
}

/// `name[digits]`
fn with_width(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('[')?;
    let width = rest.strip_suffix(']')?;
    let is_number = !width.is_empty() && width.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((name, width))
}

/// The columns that a field is made of, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) sources: Vec<i32>,
    pub(crate) transform: Transform,
}

impl Term {
    /// Reads the term of a partition field or a sort field.
    pub(crate) fn read(field: &Fragment) -> Result<Term> {
        let [one, several, transform] =
            members_of_field(field, ["source-id", "source-ids", "transform"])?;
        let transform = transform.as_ref().and_then(Fragment::as_str);
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
        Ok(Term { sources, transform: Transform::parse(&transform)? })
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.transform)?;
        for (place, id) in self.sources.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{id}")?;
        }
        f.write_str(")")
    }
}
