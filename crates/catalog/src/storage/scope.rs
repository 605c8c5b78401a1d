//! Locations of a table: its location, and where its properties say that files go.

use iceberg::doc::TableDoc;

use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::{TableLocation, Warehouse};

/// Properties that say where files of a table go in place of its location. They are confined as
/// locations are.
pub const PATHS: [&str; 4] = [
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
];

/// Permission on a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilePermission {
    /// Look at them.
    Read,
    /// Write and remove them, too.
    Write,
}

/// Places of one table, all of them in buckets or all in directories; none is within another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableScope(Vec<TableLocation>);

impl TableScope {
    /// The places of a table.
    ///
    /// # Errors
    /// `BadRequest` when it is not in a bucket, or a place has characters that mean something in a
    /// policy; `Forbidden` when one is outside of the warehouse.
    pub fn of(warehouse: &Warehouse, doc: &TableDoc) -> Result<TableScope> {
        TableScope::checked(warehouse, doc, check)
    }

    /// The places of a table in directories of this machine.
    ///
    /// # Errors
    /// `BadRequest` when a place is in a bucket; `Forbidden` when one is outside of the warehouse.
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
        // Those above come before those below.
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

    /// The places: bucket, and key without a `/` at its end.
    pub fn prefixes(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().filter_map(TableLocation::bucket_and_key)
    }

    /// Their one text each.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }

    /// Returns whether a file is below one of the places.
    #[must_use]
    pub fn contains(&self, file: &TableLocation) -> bool {
        self.0.iter().any(|place| file.is_below(place))
    }

    /// Returns whether an object, or all that begins with a text, is in one of the places. The text
    /// is compared as it is: nothing in it is taken for something else.
    #[must_use]
    pub fn covers(&self, bucket: &str, key: &str) -> bool {
        self.prefixes().any(|(own, prefix)| {
            let rest = key.strip_prefix(&*prefix).and_then(|rest| rest.strip_prefix('/'));
            own == bucket && rest.is_some_and(is_plain)
        })
    }
}

/// Returns whether no service can take a key for another one: some resolve `..`, and some leave
/// `//` out. The last part may be missing, or the first part of a text that keys begin with.
fn is_plain(rest: &str) -> bool {
    let mut parts = rest.split('/').peekable();
    let mut is_plain = !rest.chars().any(char::is_control) && !rest.contains('\\');
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        is_plain &= !matches!(part, "." | "..") && (is_last || !part.is_empty());
    }
    is_plain
}

/// Refuses what would mean more in a policy than it says.
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

    /// A scope of these places, not looked at.
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
