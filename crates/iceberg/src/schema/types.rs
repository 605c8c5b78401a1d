//! The types of columns, as far as there are rules about them. What nobody here knows is a type of
//! its own: a later version of the format may have it.
//!
//! # References
//! - <https://iceberg.apache.org/spec/#schemas-and-data-types>
//! - <https://iceberg.apache.org/spec/#appendix-c-json-serialization>

/// Most digits of a decimal.
const PRECISION_MAX: u32 = 38;
/// The coordinate system of places that name none.
const CRS_DEFAULT: &str = "OGC:CRS84";
/// Ways to draw a line between two points of the globe; the first is the one of who names none.
const EDGES: [&str; 5] = ["spherical", "vincenty", "thomas", "andoyer", "karney"];

/// A type. Two are equal if they say the same, however they are written.
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
    /// Type that is unknown here.
    Other(Box<str>),
}

impl ColumnType {
    /// Reads what a schema says where a type is no object. Names are read in any case, as the
    /// reference reads them.
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

    /// As [`ColumnType::parse`], but what is wrong is as good as unknown: it is in the document.
    pub(crate) fn read(text: &str) -> ColumnType {
        ColumnType::parse(text).unwrap_or_else(|_| ColumnType::Other(text.into()))
    }

    /// The first version of the format whose tables may have it. What is not known here may be in
    /// the newest only.
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

    /// Returns whether it has no parts that a specification or an order could mean instead.
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
