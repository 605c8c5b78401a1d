//! Values of statements: parameters, rows and their conversions.

use super::error::SqlStoreError;

/// A parameter of a statement, or one column of a row.
///
/// Both engines distinguish these five kinds. Columns are `BIGINT`, `DOUBLE PRECISION`, `TEXT` and
/// `BYTEA`, which both support; a Boolean is `BIGINT` 0 or 1.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// SQL's null.
    Null,
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text without the character NUL, which PostgreSQL cannot store.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl SqlValue {
    /// Returns the kind of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            SqlValue::Null => "null",
            SqlValue::Int(_) => "a whole number",
            SqlValue::Real(_) => "a floating-point number",
            SqlValue::Text(_) => "text",
            SqlValue::Blob(_) => "bytes",
        }
    }
}

macro_rules! from_whole {
    ($($type:ty),*) => {$(
        impl From<$type> for SqlValue {
            fn from(number: $type) -> SqlValue {
                SqlValue::Int(i64::from(number))
            }
        }
    )*};
}
from_whole!(i64, i32, u32, i16, u16, u8, bool);

impl From<f64> for SqlValue {
    fn from(number: f64) -> SqlValue {
        SqlValue::Real(number)
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> SqlValue {
        SqlValue::Text(text.to_owned())
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> SqlValue {
        SqlValue::Text(text)
    }
}

impl From<&String> for SqlValue {
    fn from(text: &String) -> SqlValue {
        SqlValue::Text(text.clone())
    }
}

impl From<&[u8]> for SqlValue {
    fn from(bytes: &[u8]) -> SqlValue {
        SqlValue::Blob(bytes.to_vec())
    }
}

impl From<Vec<u8>> for SqlValue {
    fn from(bytes: Vec<u8>) -> SqlValue {
        SqlValue::Blob(bytes)
    }
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> SqlValue {
        value.map_or(SqlValue::Null, Into::into)
    }
}

/// Type that a column can be read as.
pub trait FromValue: Sized {
    /// Description of the expected value, for messages.
    const EXPECTED: &'static str;

    /// Converts a value to this type; none if it is of another kind or out of range.
    fn from_value(value: &SqlValue) -> Option<Self>;
}

macro_rules! to_whole {
    ($($type:ty),*) => {$(
        impl FromValue for $type {
            const EXPECTED: &'static str = concat!("a whole number (", stringify!($type), ")");

            fn from_value(value: &SqlValue) -> Option<Self> {
                match value {
                    SqlValue::Int(number) => <$type>::try_from(*number).ok(),
                    _ => None,
                }
            }
        }
    )*};
}
to_whole!(i64, u64, i32, u32, i16, u16, u8, usize);

impl FromValue for bool {
    const EXPECTED: &'static str = "0 or 1";

    fn from_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Int(0) => Some(false),
            SqlValue::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl FromValue for f64 {
    const EXPECTED: &'static str = "a floating-point number";

    fn from_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Real(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for String {
    const EXPECTED: &'static str = "text";

    fn from_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    const EXPECTED: &'static str = "bytes";

    fn from_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Blob(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl FromValue for SqlValue {
    const EXPECTED: &'static str = "a value";

    fn from_value(value: &SqlValue) -> Option<Self> {
        Some(value.clone())
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Null => Some(None),
            other => T::from_value(other).map(Some),
        }
    }
}

/// A row of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlRow(Vec<SqlValue>);

impl SqlRow {
    pub(super) fn new(values: Vec<SqlValue>) -> SqlRow {
        SqlRow(values)
    }

    /// Returns the column at `index`, from 0, as `T`; an `Option` accepts null.
    ///
    /// # Errors
    /// If there is no such column, or its value is of another type.
    pub fn get<T: FromValue>(&self, index: usize) -> Result<T, SqlStoreError> {
        let value = self.0.get(index).ok_or(SqlStoreError::Column {
            index,
            expected: T::EXPECTED,
            found: "no such column",
        })?;
        T::from_value(value).ok_or(SqlStoreError::Column {
            index,
            expected: T::EXPECTED,
            found: value.kind(),
        })
    }

    /// Returns all columns.
    pub fn values(&self) -> &[SqlValue] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_read_as_what_it_is_and_as_nothing_else() {
        let row = SqlRow::new(vec![
            SqlValue::from(300_i64),
            SqlValue::from("text"),
            SqlValue::from(b"\x00\xff".as_slice()),
            SqlValue::from(0.5),
            SqlValue::from(None::<i64>),
            SqlValue::from(true),
        ]);
        assert_eq!(row.get::<i64>(0).unwrap(), 300);
        assert_eq!(row.get::<Option<u64>>(0).unwrap(), Some(300));
        assert_eq!(row.get::<String>(1).unwrap(), "text");
        assert_eq!(row.get::<Vec<u8>>(2).unwrap(), [0, 255]);
        assert_eq!(row.get::<f64>(3).unwrap(), 0.5);
        assert_eq!(row.get::<Option<String>>(4).unwrap(), None);
        assert!(row.get::<bool>(5).unwrap());
        for error in [
            row.get::<u8>(0).unwrap_err(),
            row.get::<String>(0).unwrap_err(),
            row.get::<i64>(4).unwrap_err(),
            row.get::<bool>(0).unwrap_err(),
            row.get::<i64>(6).unwrap_err(),
        ] {
            assert!(matches!(error, SqlStoreError::Column { .. }), "{error}");
        }
        let message = row.get::<u8>(0).unwrap_err().to_string();
        assert_eq!(message, "column 0 is a whole number, expected a whole number (u8)");
    }
}
