//! Names of namespaces, tables and views, and UUIDs.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{CatalogError, ErrorReason, Result};

/// Most levels of a namespace.
pub const LEVELS_MAX: usize = 32;

/// Longest level of a namespace and longest name of a table or a view, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Separator of levels in the text form of a namespace: the character "unit separator".
pub const SEPARATOR: char = '\u{1f}';

/// A namespace by its levels, outermost first. There is at least one; none is empty or contains a
/// control character. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceIdent(Arc<[Box<str>]>);

impl NamespaceIdent {
    /// Creates the namespace with these levels.
    ///
    /// # Errors
    /// `BadRequest` if there is no level, too many, or one that is no valid name.
    pub fn new<S: AsRef<str>>(levels: impl IntoIterator<Item = S>) -> Result<NamespaceIdent> {
        let mut checked: Vec<Box<str>> = Vec::new();
        for level in levels {
            let level = level.as_ref();
            check_name(level, "a level of a namespace")?;
            if checked.len() == LEVELS_MAX {
                let message = format!("a namespace has at most {LEVELS_MAX} levels");
                return Err(CatalogError::new(ErrorReason::BadRequest, message));
            }
            checked.push(level.into());
        }
        if checked.is_empty() {
            return Err(CatalogError::new(ErrorReason::BadRequest, "Empty namespace"));
        }
        Ok(NamespaceIdent(checked.into()))
    }

    /// Parses a namespace from its text form, as in a path: its levels are divided by
    /// [`SEPARATOR`], or by `separator` if the text does not contain that character.
    ///
    /// # Errors
    /// Those of [`NamespaceIdent::new`].
    pub fn split(text: &str, separator: &str) -> Result<NamespaceIdent> {
        if text.contains(SEPARATOR) || separator.is_empty() {
            return NamespaceIdent::new(text.split(SEPARATOR));
        }
        NamespaceIdent::new(text.split(separator))
    }

    /// Returns the levels, outermost first.
    #[must_use]
    pub fn levels(&self) -> &[Box<str>] {
        &self.0
    }

    /// Returns the parent; `None` for a top-level namespace.
    #[must_use]
    pub fn parent(&self) -> Option<NamespaceIdent> {
        let (_, above) = self.0.split_last()?;
        if above.is_empty() { None } else { Some(NamespaceIdent(above.into())) }
    }

    /// Returns whether `other` is this namespace or below it.
    #[must_use]
    pub fn contains(&self, other: &NamespaceIdent) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Returns a unique text form: the levels divided by [`SEPARATOR`]. The store uses it, and
    /// [`NamespaceIdent::split`] parses it.
    #[must_use]
    pub fn key(&self) -> String {
        self.joined(SEPARATOR)
    }

    fn joined(&self, separator: char) -> String {
        let mut text = String::new();
        for (index, level) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(separator);
            }
            text.push_str(level);
        }
        text
    }
}

impl fmt::Display for NamespaceIdent {
    /// Formats it for messages: the levels divided by dots.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined('.'))
    }
}

impl fmt::Debug for NamespaceIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for NamespaceIdent {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

impl<'de> Deserialize<'de> for NamespaceIdent {
    fn deserialize<D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<NamespaceIdent, D::Error> {
        let levels = Vec::<String>::deserialize(deserializer)?;
        NamespaceIdent::new(levels).map_err(serde::de::Error::custom)
    }
}

/// A table or a view by its namespace and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TableIdent {
    /// Namespace.
    pub namespace: NamespaceIdent,
    /// Name in the namespace.
    pub name: Box<str>,
}

impl TableIdent {
    /// Creates the identifier of a table or view.
    ///
    /// # Errors
    /// `BadRequest` if the name is empty, too long or contains a control character.
    pub fn new(namespace: NamespaceIdent, name: &str) -> Result<TableIdent> {
        TableIdent::check_name(name)?;
        Ok(TableIdent { namespace, name: name.into() })
    }

    /// Rejects an invalid name.
    ///
    /// # Errors
    /// `BadRequest` if it is empty, too long or contains a control character.
    pub fn check_name(name: &str) -> Result<()> {
        check_name(name, "a name")
    }
}

impl fmt::Display for TableIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace, self.name)
    }
}

impl<'de> Deserialize<'de> for TableIdent {
    fn deserialize<D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<TableIdent, D::Error> {
        #[derive(Deserialize)]
        struct FixedText {
            namespace: NamespaceIdent,
            name: String,
        }
        let FixedText { namespace, name } = FixedText::deserialize(deserializer)?;
        TableIdent::new(namespace, &name).map_err(serde::de::Error::custom)
    }
}

/// Control characters are separators of names in the store and in paths; PostgreSQL cannot store
/// NUL.
fn check_name(name: &str, what: &str) -> Result<()> {
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("has more than {NAME_BYTES_MAX} bytes")
    } else if name.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(CatalogError::new(ErrorReason::BadRequest, format!("{what} {problem}")))
}

/// A UUID (RFC 9562).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// Creates a random UUID (version 4).
    ///
    /// # Errors
    /// `Internal` if the kernel provides no random bytes.
    pub fn v4() -> Result<Uuid> {
        Ok(Uuid::marked(random()?, 4))
    }

    /// Creates a UUID that sorts by time (version 7), from milliseconds since 1970.
    ///
    /// # Errors
    /// `Internal` if the kernel provides no random bytes.
    pub fn v7(unix_ms: u64) -> Result<Uuid> {
        let mut bytes = random()?;
        let [_, _, ms @ ..] = unix_ms.to_be_bytes();
        bytes[..6].copy_from_slice(&ms);
        Ok(Uuid::marked(bytes, 7))
    }

    /// Creates a UUID from these bytes, of any version.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// Returns its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the version: 4, 7 and so on.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.0[6] >> 4
    }

    fn marked(mut bytes: [u8; 16], version: u8) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | version << 4;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = CatalogError;

    /// Parses 36 characters: 32 digits in either case and four hyphens.
    fn from_str(text: &str) -> Result<Uuid> {
        let refuse = || {
            let excerpt: String = text.chars().take(40).collect();
            CatalogError::new(ErrorReason::BadRequest, format!("`{excerpt}` is not a UUID"))
        };
        let (mut bytes, mut digits) = ([0_u8; 16], 0);
        for (index, byte) in text.bytes().enumerate() {
            if matches!(index, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return Err(refuse());
                }
                continue;
            }
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                b'A'..=b'F' => byte - b'A' + 10,
                _ => return Err(refuse()),
            };
            let place = bytes.get_mut(digits / 2).ok_or_else(refuse)?;
            *place = *place << 4 | digit;
            digits += 1;
        }
        if digits == 32 { Ok(Uuid(bytes)) } else { Err(refuse()) }
    }
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| CatalogError::internal(io::Error::from(error)))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_read_back_from_its_key_whatever_it_is_called() {
        for levels in [vec!["a"], vec!["a.b"], vec!["a", "b"], vec!["ä/ö", "%1F", " "]] {
            let ident = NamespaceIdent::new(&levels).unwrap();
            assert_eq!(NamespaceIdent::split(&ident.key(), ".x").unwrap(), ident);
            let json = serde_json::to_string(&ident).unwrap();
            assert_eq!(serde_json::from_str::<NamespaceIdent>(&json).unwrap(), ident);
        }
        let nested = NamespaceIdent::split("a.b", ".").unwrap();
        assert_eq!(nested, NamespaceIdent::new(["a", "b"]).unwrap());
        assert_eq!(
            NamespaceIdent::split("a.b\u{1f}c", ".").unwrap().levels(),
            ["a.b".into(), "c".into()]
        );
        assert_eq!(nested.to_string(), "a.b");
        let parent = nested.parent().unwrap();
        assert!(parent.contains(&nested) && !nested.contains(&parent));
        assert_eq!(parent.parent(), None);
    }

    #[test]
    fn what_cannot_be_a_name_is_none() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for levels in [vec![], vec![""], vec!["a", ""], vec!["a\0"], vec!["\u{1f}"], vec![&*long]] {
            let error = NamespaceIdent::new(&levels).unwrap_err();
            assert_eq!(error.kind, ErrorReason::BadRequest, "{levels:?}");
        }
        assert!(NamespaceIdent::new(["x"; LEVELS_MAX]).is_ok());
        assert!(NamespaceIdent::new(["x"; LEVELS_MAX + 1]).is_err());
        let table = r#"{"namespace":["a"],"name":""}"#;
        assert!(serde_json::from_str::<TableIdent>(table).is_err());
        let table = r#"{"namespace":["a","b"],"name":"t"}"#;
        let table: TableIdent = serde_json::from_str(table).unwrap();
        assert_eq!(table.to_string(), "a.b.t");
    }

    #[test]
    fn a_uuid_is_read_as_it_is_written() {
        let text = "0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!((uuid.to_string().as_str(), uuid.version()), (text, 7));
        assert_eq!(text.to_uppercase().parse::<Uuid>().unwrap(), uuid);
        let (four, seven) = (Uuid::v4().unwrap(), Uuid::v7(7).unwrap());
        assert_eq!((four.version(), seven.version()), (4, 7));
        assert!(Uuid::v7(8).unwrap().as_bytes()[..6] > seven.as_bytes()[..6]);
        assert_eq!(four.to_string().parse::<Uuid>().unwrap(), four);
        for text in ["", "0193a1b2", &text[1..], &format!("{text}0"), &text.replace('-', "0")] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
