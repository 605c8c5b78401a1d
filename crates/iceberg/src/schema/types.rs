//! The types of columns, as far as rules apply to them. An unknown type is represented as such: a
//! later version of the format may define it.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#schemas-and-data-types>
//! - <https://iceberg.apache.org/spec/#appendix-c-json-serialization>

/// Most digits of a decimal.
const PRECISION_MAX: u32 = 38;
/// Default coordinate reference system.
const CRS_DEFAULT: &str = "OGC:CRS84";
/// Interpolation algorithms for edges of geographies; the first is the default.
const EDGES: [&str; 5] = ["spherical", "vincenty", "thomas", "andoyer", "karney"];

/// A column type. Two are equal if they have the same meaning, however they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Decimal {
        precision: u32,
        scale: u32,
    },
    Date,
    Time,
    Timestamp,
    TimestampTz,
    TimestampNs,
    TimestampTzNs,
    String,
    Uuid,
    Fixed(u32),
    Binary,
    Variant,
    /// Unknown type, whose values are always null.
    Unknown,
    Geometry {
        crs: Box<str>,
    },
    Geography {
        crs: Box<str>,
        edges: &'static str,
    },
    Struct,
    List,
    Map,
    /// A type that this code does not know.
    Other(Box<str>),
}

impl ColumnType {
    /// Parses a type that is not an object. Names are case-insensitive, as in the reference.
    pub(crate) fn parse(text: &str) -> Result<ColumnType, String> {
        if let Some(simple) = simple(&text.to_ascii_lowercase()) {
            return Ok(simple);
        }
        let (name, arguments) = match text.split_once(['(', '[']) {
            Some((name, rest)) => (name, rest.strip_suffix([')', ']'])),
            None => (text, Some("")),
        };
        let has_brackets = text.contains('[');
        let name = name.trim_end().to_ascii_lowercase();
        match (name.as_str(), arguments, has_brackets) {
            ("fixed", Some(length), true) => match length.trim().parse() {
                Ok(length) => Ok(ColumnType::Fixed(length)),
                Err(_) => Err(unparsable(text)),
            },
            ("decimal", Some(arguments), false) => decimal(arguments, text),
            ("geometry", Some(crs), false) => Ok(ColumnType::Geometry { crs: crs_of(crs) }),
            ("geography", Some(arguments), false) => geography(arguments),
            ("fixed" | "decimal" | "geometry" | "geography", ..) => Err(unparsable(text)),
            _ => Ok(ColumnType::Other(text.into())),
        }
    }

    /// Like [`ColumnType::parse`], but treats an invalid type as unknown: it is in the document
    /// already.
    pub(crate) fn read(text: &str) -> ColumnType {
        ColumnType::parse(text).unwrap_or_else(|_| ColumnType::Other(text.into()))
    }

    /// Returns the first version of the format whose tables may have the type. An unknown type is
    /// allowed in the newest only.
    pub(crate) fn first_version(&self) -> u8 {
        match self {
            ColumnType::TimestampNs
            | ColumnType::TimestampTzNs
            | ColumnType::Variant
            | ColumnType::Unknown
            | ColumnType::Geometry { .. }
            | ColumnType::Geography { .. }
            | ColumnType::Other(_) => 3,
            _ => 1,
        }
    }

    /// Returns whether it has no nested fields that a specification or an order could refer to.
    pub(crate) fn is_primitive(&self) -> bool {
        !matches!(
            self,
            ColumnType::Struct | ColumnType::List | ColumnType::Map | ColumnType::Variant
        )
    }

    pub(crate) fn is_timestamp(&self) -> bool {
        matches!(
            self,
            ColumnType::Timestamp
                | ColumnType::TimestampTz
                | ColumnType::TimestampNs
                | ColumnType::TimestampTzNs
        )
    }
}

fn simple(name: &str) -> Option<ColumnType> {
    Some(match name {
        "boolean" => ColumnType::Boolean,
        "int" => ColumnType::Int,
        "long" => ColumnType::Long,
        "float" => ColumnType::Float,
        "double" => ColumnType::Double,
        "date" => ColumnType::Date,
        "time" => ColumnType::Time,
        "timestamp" => ColumnType::Timestamp,
        "timestamptz" => ColumnType::TimestampTz,
        "timestamp_ns" => ColumnType::TimestampNs,
        "timestamptz_ns" => ColumnType::TimestampTzNs,
        "string" => ColumnType::String,
        "uuid" => ColumnType::Uuid,
        "binary" => ColumnType::Binary,
        "variant" => ColumnType::Variant,
        "unknown" => ColumnType::Unknown,
        _ => return None,
    })
}

fn decimal(arguments: &str, text: &str) -> Result<ColumnType, String> {
    let numbers = arguments.split_once(',').map(|(a, b)| (a.trim().parse(), b.trim().parse()));
    let Some((Ok(precision), Ok(scale))) = numbers else { return Err(unparsable(text)) };
    if precision > PRECISION_MAX {
        return Err(format!(
            "Decimals with precision larger than {PRECISION_MAX} are not supported: {precision}"
        ));
    }
    if precision == 0 || scale > precision {
        return Err(unparsable(text));
    }
    Ok(ColumnType::Decimal { precision, scale })
}

fn geography(arguments: &str) -> Result<ColumnType, String> {
    let (crs, edges) = arguments.split_once(',').unwrap_or((arguments, EDGES[0]));
    let edges = edges.trim();
    let known = EDGES.into_iter().find(|known| edges.eq_ignore_ascii_case(known));
    let edges =
        known.ok_or_else(|| format!("Invalid edge interpolation algorithm: {edges:.40}"))?;
    Ok(ColumnType::Geography { crs: crs_of(crs), edges })
}

fn crs_of(text: &str) -> Box<str> {
    match text.trim() {
        "" => CRS_DEFAULT.into(),
        crs => crs.into(),
    }
}

fn unparsable(text: &str) -> String {
    format!("Cannot parse type string to primitive: {text:.80}")
}
