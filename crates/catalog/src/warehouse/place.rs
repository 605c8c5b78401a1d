//! A parsed location, for comparisons.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{CatalogError, ErrorReason, Result};

/// Longest location, in bytes.
pub const LOCATION_BYTES_MAX: usize = 2048;

/// Longest segment of a location, in bytes: the limit of file systems.
const PART_BYTES_MAX: usize = 255;

/// Location in the file system, or in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableLocation {
    /// The bucket; `None` in the file system.
    bucket: Option<Box<str>>,
    /// Segments between the `/`; none is empty, `.` or `..`.
    parts: Vec<Box<str>>,
}

impl TableLocation {
    /// Returns whether this is below `root`, and not the root itself.
    #[must_use]
    pub fn is_below(&self, root: &TableLocation) -> bool {
        self.below(root).is_some()
    }

    /// Returns the segments below `root`; `None` if it is not below it.
    #[must_use]
    pub fn below(&self, root: &TableLocation) -> Option<&[Box<str>]> {
        let rest = self.parts.strip_prefix(&root.parts[..])?;
        if self.bucket == root.bucket && !rest.is_empty() { Some(rest) } else { None }
    }

    /// Returns the bucket and the key in it; `None` in the file system.
    #[must_use]
    pub fn bucket_and_key(&self) -> Option<(&str, String)> {
        self.bucket.as_deref().map(|bucket| (bucket, self.parts.join("/")))
    }

    /// Returns whether they are equal, or one is below the other.
    #[must_use]
    pub fn overlaps(&self, other: &TableLocation) -> bool {
        self == other || self.is_below(other) || other.is_below(self)
    }

    /// Returns its path in the file system; `None` in a bucket.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        match &self.bucket {
            Some(_) => None,
            None => Some(PathBuf::from(format!("/{}", self.parts.join("/")))),
        }
    }
}

impl fmt::Display for TableLocation {
    /// Formats the canonical text of the location.
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

    /// Parses `file:///a/b`, `file:/a/b`, `/a/b`, or `s3://bucket/a/b` (`s3a`, `s3n` for old
    /// clients).
    ///
    /// Nothing is decoded: clients do not decode either. Segments that some software might
    /// interpret as the parent directory, or as the end of the path, are rejected.
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
        // Keys that differ in empty segments are two objects, but one name for software that
        // normalises paths.
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

/// Returns whether a segment is `.` or `..`, or becomes one when decoded.
fn leads_up(part: &str) -> bool {
    if !part.contains('%') {
        return matches!(part, "." | "..");
    }
    matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
        || part.to_ascii_lowercase().contains("%2f")
        || part.to_ascii_lowercase().contains("%5c")
}
