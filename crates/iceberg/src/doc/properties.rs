//! A table's properties: a map of strings, in its original order and form.
//!
//! # References
//! - <https://iceberg.apache.org/docs/latest/configuration/#table-properties>

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::json::cursor::JsonCursor;
use crate::json::{JsonError, RawString};

/// Most properties of a table.
pub const PROPERTIES_MAX: usize = 100_000;
/// Property: number of earlier documents in the metadata log.
pub const PREVIOUS_VERSIONS_MAX: &str = "write.metadata.previous-versions-max";
/// Default number of previous versions, as in the reference.
pub const PREVIOUS_VERSIONS_MAX_DEFAULT: usize = 100;
/// Property: true if files that drop out of the log are deleted.
pub const DELETE_AFTER_COMMIT: &str = "write.metadata.delete-after-commit.enabled";
/// Property: version of the table format; it is set, not stored.
pub const FORMAT_VERSION: &str = "format-version";

/// Properties that repeat fields of the document. They are never stored.
pub const RESERVED: [&str; 9] = [
    FORMAT_VERSION,
    "uuid",
    "snapshot-count",
    "current-snapshot-id",
    "current-snapshot-summary",
    "current-snapshot-timestamp-ms",
    "current-schema",
    "default-partition-spec",
    "default-sort-order",
];

/// A map of strings, in order.
#[derive(Clone, Debug, Default)]
pub struct TableProperties(pub(crate) Vec<(RawString, RawString)>);

impl TableProperties {
    /// Reads an object whose values are strings.
    pub(crate) fn read(
        cursor: &mut JsonCursor<'_>,
        whole: &Bytes,
    ) -> Result<TableProperties, JsonError> {
        let mut entries = Vec::new();
        cursor.object(|cursor, name| {
            if entries.len() == PROPERTIES_MAX {
                let message = format!("there are more than {PROPERTIES_MAX} properties");
                return Err(JsonError::Shape(message));
            }
            let at = cursor.offset();
            let value = cursor.string().map_err(|error| match error {
                JsonError::Malformed { offset, .. } if offset == at => {
                    JsonError::Shape(format!("the property `{}` is not a string", name.decode()))
                }
                other => other,
            })?;
            entries.push((RawString::within(whole, name), RawString::within(whole, value)));
            Ok::<(), JsonError>(())
        })?;
        Ok(TableProperties(entries))
    }

    /// Returns the number of properties.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over all properties, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns a property; the last one, if a document has duplicates.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Cow<'_, str>> {
        self.0.iter().rev().find(|(it, _)| it == key).map(|(_, value)| value.as_str())
    }

    /// Sets a property, in its place or at the end.
    pub fn set(&mut self, key: &str, value: &str) {
        let place = self.0.iter_mut().rev().find(|(it, _)| it == key);
        match place {
            Some((_, old)) if *old == value => {}
            Some((_, old)) => *old = value.into(),
            None => self.0.push((key.into(), value.into())),
        }
    }

    /// Sets several properties; returns whether that changed anything. Reserved ones are left out.
    pub fn merge(&mut self, updates: &TableProperties) -> bool {
        let mut places: HashMap<String, usize> = HashMap::with_capacity(self.0.len());
        for (place, (key, _)) in self.0.iter().enumerate() {
            places.insert(key.as_str().into_owned(), place);
        }
        let mut is_changed = false;
        for (key, value) in &updates.0 {
            let name = key.as_str();
            if RESERVED.contains(&&*name) {
                continue;
            }
            match places.get(&*name).and_then(|&place| self.0.get_mut(place)) {
                Some((_, old)) if old == value => {}
                Some((_, old)) => {
                    *old = value.detached();
                    is_changed = true;
                }
                None => {
                    places.insert(name.into_owned(), self.0.len());
                    self.0.push((key.detached(), value.detached()));
                    is_changed = true;
                }
            }
        }
        is_changed
    }

    /// Removes several properties; returns whether any of them existed.
    pub fn remove_all<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) -> bool {
        let keys: HashSet<&str> = keys.into_iter().collect();
        let before = self.0.len();
        self.0.retain(|(key, _)| !keys.contains(&*key.as_str()));
        self.0.len() != before
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for TableProperties {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> TableProperties {
        let entries = entries.into_iter();
        TableProperties(entries.map(|(k, v)| (k.as_ref().into(), v.as_ref().into())).collect())
    }
}

impl PartialEq for TableProperties {
    /// Compares the contents, regardless of order.
    fn eq(&self, other: &TableProperties) -> bool {
        let map_of = |it: &TableProperties| -> HashMap<String, String> {
            it.iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect()
        };
        map_of(self) == map_of(other)
    }
}
