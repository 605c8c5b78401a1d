//! A location taken apart, so that two of them can be compared.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{CatalogError, ErrorReason, Result};

/// Longest location, in bytes.
pub const LOCATION_BYTES_MAX: usize = 2048;

/// Longest part of a location between two `/`, in bytes: what file systems take.
const PART_BYTES_MAX: usize = 255;

/// Location in the file system, or in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableLocation {
    /// The bucket; none in the file system.
    bucket: Option<Box<str>>,
    /// Parts between the `/`; none is empty, `.` or `..`.
    parts: Vec<Box<str>>,
}

impl TableLocation {
    /// Returns whether this is below `root`, and not the root itself.
    #[must_use]
    pub fn is_below(&self, root: &TableLocation) -> bool {
        self.below(root).is_some()
    }

    /// The parts from `root` on; none when it is not below it.
    #[must_use]
    pub fn below(&self, root: &TableLocation) -> Option<&[Box<str>]> {
        let rest = self.parts.strip_prefix(&root.parts[..])?;
        if self.bucket == root.bucket && !rest.is_empty() { Some(rest) } else { None }
    }

    /// The bucket and the key in it; none in the file system.
    #[must_use]
    pub fn bucket_and_key(&self) -> Option<(&str, String)> {
        self.bucket.as_deref().map(|bucket| (bucket, self.parts.join("/")))
    }

    /// Returns whether one is the other, or below it.
    #[must_use]
    pub fn overlaps(&self, other: &TableLocation) -> bool {
        self == other || self.is_below(other) || other.is_below(self)
    }

    /// Returns its path in the file system; none in a bucket.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        match &self.bucket {
            Some(_) => None,
            None => Some(PathBuf::from(format!("/{}", self.parts.join("/")))),
        }
    }
}

impl fmt::Display for TableLocation {
    /// The one text that stands for a place, of all that lead there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bucket {
            Some(bucket) => write!(f, "s3://{bucket}")?,
            None => f.write_str("file://")?,
        }
        self.parts.iter().try_for_each(|part| write!(f, "/{part}"))
    }
}

impl FromStr for TableLocation {
    type Err = CatalogError;

    /// `file:///a/b`, `file:/a/b`, `/a/b`, or `s3://bucket/a/b` (`s3a`, `s3n` for old clients).
    ///
    /// Nothing is decoded: clients do not either. What some might read as "the directory above",
    /// or as the end of the path, is refused.
    fn from_str(text: &str) -> Result<TableLocation> {
        let refuse = |why: &str| {
            let excerpt: String = text.chars().take(200).collect();
            Err(CatalogError::new(
                ErrorReason::BadRequest,
                format!("the location `{excerpt}` {why}"),
            ))
        };
        if text.len() > LOCATION_BYTES_MAX {
            return refuse("is too long");
        }
        let is_plain = |it: u8| matches!(it, b' '..=b'~') && !b"?#\\".contains(&it);
        let is_refused = |it: char| it.is_control() || matches!(it, '?' | '#' | '\\');
        if !text.bytes().all(is_plain) && text.chars().any(is_refused) {
            return refuse("contains a character that no location may have");
        }
        let (bucket, path) = match text.split_once(':') {
            Some(("file", rest)) => match rest.strip_prefix("//") {
                Some(path) if path.starts_with('/') => (None, path),
                None if rest.starts_with('/') => (None, rest),
                _ => return refuse("names another machine"),
            },
            Some(("s3" | "s3a" | "s3n", rest)) => {
                let Some(rest) = rest.strip_prefix("//") else { return refuse("has no bucket") };
                let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() || bucket.contains([':', '@']) {
                    return refuse("has no bucket");
                }
                (Some(bucket.into()), path)
            }
            _ if text.starts_with('/') => (None, text),
            _ => return refuse("is neither below `file:///` nor below `s3://`"),
        };
        // Two keys that differ in this are two objects, and one name to who joins parts again.
        if bucket.is_some()
            && path.trim_end_matches('/').split('/').any(str::is_empty)
            && !path.is_empty()
        {
            return refuse("has an empty part");
        }
        let parts: Vec<Box<str>> =
            path.split('/').filter(|part| !part.is_empty()).map(Box::from).collect();
        if parts.iter().any(|part| part.len() > PART_BYTES_MAX) {
            return refuse("has a part that is too long");
        }
        if parts.iter().any(|part| leads_up(part)) {
            return refuse("has a part `.` or `..`");
        }
        Ok(TableLocation { bucket, parts })
    }
}

/// Returns whether a part is `.` or `..`, or is read as one by who decodes it.
fn leads_up(part: &str) -> bool {
    if !part.contains('%') {
        return matches!(part, "." | "..");
    }
    matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
        || part.to_ascii_lowercase().contains("%2f")
        || part.to_ascii_lowercase().contains("%5c")
}
