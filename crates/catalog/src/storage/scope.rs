//! Locations of a table: its location, and the file locations in its properties.

use iceberg::doc::TableDoc;

use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::{TableLocation, Warehouse};

/// Properties with locations of a table's files beside its location. They are confined like
/// locations.
pub const PATHS: [&str; 4] = [
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
];

/// Permission on a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilePermission {
    /// Read them.
    Read,
    /// Read, write and remove them.
    Write,
}

/// Locations of one table, all of them in buckets or all in directories; none is within another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableScope(Vec<TableLocation>);

impl TableScope {
    /// Returns the locations of a table in buckets.
    ///
    /// # Errors
    /// `BadRequest` if it is not in a bucket, or a location has characters with a meaning in
    /// policies; `Forbidden` if one is outside of the warehouse.
    pub fn of(warehouse: &Warehouse, doc: &TableDoc) -> Result<TableScope> {
        TableScope::checked(warehouse, doc, check)
    }

    /// Returns the locations of a table in directories of this machine.
    ///
    /// # Errors
    /// `BadRequest` if a location is in a bucket; `Forbidden` if one is outside of the warehouse.
    pub fn in_directories(warehouse: &Warehouse, doc: &TableDoc) -> Result<TableScope> {
        TableScope::checked(warehouse, doc, |text, place| match place.path() {
            Some(_) => Ok(()),
            None => {
                let excerpt: String = text.chars().take(200).collect();
                let message = format!("the location `{excerpt}` is in a bucket");
                Err(CatalogError::new(ErrorReason::BadRequest, message))
            }
        })
    }

    fn checked(
        warehouse: &Warehouse,
        doc: &TableDoc,
        check: impl Fn(&str, &TableLocation) -> Result<()>,
    ) -> Result<TableScope> {
        let paths = PATHS.iter().filter_map(|name| doc.properties.get(name));
        let texts = std::iter::once(doc.location.as_str().into()).chain(paths);
        let mut places: Vec<TableLocation> = Vec::new();
        for text in texts {
            warehouse.check_location(&text)?;
            let place: TableLocation = text.parse()?;
            check(&text, &place)?;
            places.push(place);
        }
        // Parents sort before their descendants.
        places.sort();
        places.dedup();
        let mut kept: Vec<TableLocation> = Vec::new();
        for place in places {
            if !kept.iter().any(|it| place.is_below(it)) {
                kept.push(place);
            }
        }
        Ok(TableScope(kept))
    }

    /// Returns the locations as bucket, and key without a final `/`.
    pub fn prefixes(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().filter_map(TableLocation::bucket_and_key)
    }

    /// Returns the canonical text of each location.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }

    /// Returns whether a file is below one of the locations.
    #[must_use]
    pub fn contains(&self, file: &TableLocation) -> bool {
        self.0.iter().any(|place| file.is_below(place))
    }

    /// Returns whether an object, or all keys with a prefix, are in one of the locations. The key
    /// is compared literally, without any interpretation.
    #[must_use]
    pub fn covers(&self, bucket: &str, key: &str) -> bool {
        self.prefixes().any(|(own, prefix)| {
            let rest = key.strip_prefix(&*prefix).and_then(|rest| rest.strip_prefix('/'));
            own == bucket && rest.is_some_and(is_plain)
        })
    }
}

/// Returns whether a key is unambiguous for all services: some resolve `..`, and some collapse
/// `//`. The last segment may be empty, as may the only segment of a prefix.
fn is_plain(rest: &str) -> bool {
    let mut parts = rest.split('/').peekable();
    let mut is_plain = !rest.chars().any(char::is_control) && !rest.contains('\\');
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        is_plain &= !matches!(part, "." | "..") && (is_last || !part.is_empty());
    }
    is_plain
}

/// Rejects characters with a special meaning in policies.
fn check(text: &str, place: &TableLocation) -> Result<()> {
    let refuse = |why: &str| {
        let excerpt: String = text.chars().take(200).collect();
        Err(CatalogError::new(ErrorReason::BadRequest, format!("the location `{excerpt}` {why}")))
    };
    let Some((_, key)) = place.bucket_and_key() else {
        return refuse("is not in a bucket, so it has no credentials and no signatures");
    };
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=+%@:,~/".contains(&byte);
    if key.is_empty() || !key.bytes().all(is_good) {
        return refuse("has characters that credentials cannot be bound to");
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a scope of these locations, unchecked.
    pub(in crate::storage) fn scope(places: &[&str]) -> TableScope {
        TableScope(places.iter().map(|it| it.parse().unwrap()).collect())
    }

    #[test]
    fn a_scope_covers_what_is_below_it_and_nothing_that_looks_like_it() {
        let scope = scope(&["s3://b/w/t", "s3://c/data"]);
        for (bucket, key, expected) in [
            ("b", "w/t/metadata/1.json", true),
            ("b", "w/t/", true),
            ("b", "w/t/x/", true),
            ("b", "w/t/a b=ü%2F..x", true),
            ("c", "data/x", true),
            ("b", "w/t", false),
            ("b", "w/t2/x", false),
            ("b", "w", false),
            ("b", "", false),
            ("b", "/w/t/x", false),
            ("b", "w//t/x", false),
            ("b", "w/t//x", false),
            ("b", "w/t//", false),
            ("b", "w/t/../u/x", false),
            ("b", "w/t/./x", false),
            ("b", "w/t/..", false),
            ("b", "w/t/a\\..\\b", false),
            ("b", "w/t/a\nb", false),
            ("b", "W/t/x", false),
            ("c", "w/t/x", false),
            ("d", "w/t/x", false),
        ] {
            assert_eq!(scope.covers(bucket, key), expected, "{bucket} {key:?}");
        }
    }

    #[test]
    fn what_means_more_in_a_policy_is_refused() {
        for text in ["s3://b/w/*", "s3://b/a$b", "s3://b/a b", "s3://b/ü", "s3://b", "file:///w/t"]
        {
            let place: TableLocation = text.parse().unwrap();
            assert_eq!(check(text, &place).unwrap_err().kind, ErrorReason::BadRequest, "{text}");
        }
        let place: TableLocation = "s3://b/w/t-1_x.y=z".parse().unwrap();
        check("", &place).unwrap();
    }
}
