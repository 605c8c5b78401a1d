//! Read access to files of tables in a directory of the server: `GET` and `HEAD` of `/files` and
//! the file's path, with ranges, as in S3's protocol for a bucket of that name.
//!
//! File names remain those of the directory (`file:///lake/t/1.parquet`), as in the tables' own
//! documents: a client in a sandbox requests `/files/lake/t/1.parquet`. A file is opened by the
//! catalog's rules for every part that is sent, so that a stalled client holds no descriptor.
//! Nothing is written: a grant can change only the metadata of such a table.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc9110#section-14>
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html>

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use node::objects::decoded;

use super::session::SandboxSession;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::{LocalFileVersion, TableLocation, Warehouse};

/// First segment of the paths of files, in the position of a bucket.
pub(super) const BUCKET: &str = "files";

/// Bytes of a file that are read at a time, and held in memory for one connection.
const PART_BYTES_MAX: usize = 256 << 10;

/// Longest range header that is parsed, in bytes.
const RANGE_BYTES_MAX: usize = 128;

/// Requested part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// All of it.
    Whole,
    /// From the first byte to before the second one. There is at least one.
    Part(u64, u64),
    /// Bytes beyond the end of the file.
    Unsatisfiable,
}

impl RequestedRange {
    /// Parses a range header, for a file with `length` bytes. Anything but a single byte range is
    /// ignored, as RFC 9110 allows.
    pub(super) fn of(text: &str, length: u64) -> RequestedRange {
        let Some((first, last)) = bounds(text) else { return RequestedRange::Whole };
        let (from, until) = match (first, last) {
            (Some(first), Some(last)) if last < first => return RequestedRange::Whole,
            (Some(first), Some(last)) => (first, last.saturating_add(1).min(length)),
            (Some(first), None) => (first, length),
            (None, Some(count)) => (length.saturating_sub(count), length),
            (None, None) => return RequestedRange::Whole,
        };
        if from < until { RequestedRange::Part(from, until) } else { RequestedRange::Unsatisfiable }
    }
}

/// Parses the numbers of `bytes=1-2`, either of which may be missing.
fn bounds(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text {
        "" => Some(None),
        // A number that is too long is beyond the end of every file.
        text if text.bytes().all(|it| it.is_ascii_digit()) => {
            Some(Some(text.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    Some((number(first)?, number(last)?))
}

/// Returns the file that a path names.
///
/// # Errors
/// `Forbidden` if it names none: another bucket, or an ambiguous path.
pub(super) fn file_of(path: &str) -> Result<TableLocation> {
    let refuse = || {
        let message = format!("files of this warehouse are at /{BUCKET} and their path");
        CatalogError::new(ErrorReason::Forbidden, message)
    };
    let rest = path.strip_prefix('/').and_then(|it| it.strip_prefix(BUCKET));
    let rest = rest.and_then(|it| it.strip_prefix('/')).ok_or_else(refuse)?;
    // Decoded once: a remaining escape is part of a name with a `%`.
    let name = decoded(rest).ok_or_else(refuse)?;
    if name.split('/').any(str::is_empty) {
        return Err(refuse());
    }
    let file: TableLocation = format!("file:///{name}").parse().map_err(|_| refuse())?;
    Ok(file)
}

/// Handles a request for a file.
///
/// # Errors
/// `Forbidden` for anything but reading, and for files that belong to no fully readable table;
/// `NotFound`.
pub(super) async fn read(
    session: &SandboxSession,
    warehouse: Arc<Warehouse>,
    parts: &Parts,
) -> Result<Response> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        let message = "files of a warehouse in a directory are only read through a grant";
        return Err(CatalogError::new(ErrorReason::Forbidden, message));
    }
    // Some clients name the operation in the query.
    if !matches!(parts.uri.query(), None | Some("" | "x-id=GetObject" | "x-id=HeadObject")) {
        let message = "requests for files of a warehouse in a directory take no parameters";
        return Err(CatalogError::new(ErrorReason::Forbidden, message));
    }
    let file = file_of(parts.uri.path())?;
    session.catalog.files().allow_local_read(&session.who, &warehouse, &file).await?;
    let location = file.to_string();
    let (version, _) = warehouse.files().read_part(&location, 0, 0).await?;
    let tag = version.tag();
    if text(&parts.headers, header::IF_MATCH).is_some_and(|it| it != tag && it != "*") {
        return Ok(bare(StatusCode::PRECONDITION_FAILED));
    }
    let is_same = text(&parts.headers, header::IF_RANGE).is_none_or(|it| it == tag);
    let range_text = text(&parts.headers, header::RANGE).filter(|_| is_same);
    let range =
        range_text.map_or(RequestedRange::Whole, |it| RequestedRange::of(it, version.length));
    let (status, from, until) = match range {
        RequestedRange::Whole => (StatusCode::OK, 0, version.length),
        RequestedRange::Part(from, until) => (StatusCode::PARTIAL_CONTENT, from, until),
        RequestedRange::Unsatisfiable => {
            let mut response = bare(StatusCode::RANGE_NOT_SATISFIABLE);
            let content_range = format!("bytes */{}", version.length);
            put(&mut response, header::CONTENT_RANGE, &content_range)?;
            return Ok(response);
        }
    };
    let mut response = bare(status);
    if parts.method == Method::GET {
        *response.body_mut() = body(LocalFileReader { warehouse, location, version, from, until });
    }
    put(&mut response, header::ACCEPT_RANGES, "bytes")?;
    put(&mut response, header::CONTENT_LENGTH, &(until - from).to_string())?;
    put(&mut response, header::CONTENT_TYPE, "application/octet-stream")?;
    put(&mut response, header::ETAG, &tag)?;
    if status == StatusCode::PARTIAL_CONTENT {
        let content_range = format!("bytes {from}-{}/{}", until - 1, version.length);
        put(&mut response, header::CONTENT_RANGE, &content_range)?;
    }
    Ok(response)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.trim()).filter(|it| it.len() <= RANGE_BYTES_MAX)
}

fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn put(response: &mut Response, name: header::HeaderName, value: &str) -> Result<()> {
    let value = HeaderValue::from_str(value).map_err(CatalogError::internal)?;
    response.headers_mut().insert(name, value);
    Ok(())
}

/// Reader of the rest of a local file.
struct LocalFileReader {
    warehouse: Arc<Warehouse>,
    location: String,
    version: LocalFileVersion,
    from: u64,
    until: u64,
}

impl LocalFileReader {
    /// Returns the next bytes; `None` at the end.
    async fn next(mut self) -> Result<Option<(Bytes, LocalFileReader)>> {
        if self.from >= self.until {
            return Ok(None);
        }
        let left = usize::try_from(self.until - self.from).unwrap_or(usize::MAX);
        let files = self.warehouse.files();
        let most = left.min(PART_BYTES_MAX);
        let (version, part) = files.read_part(&self.location, self.from, most).await?;
        // A replaced file does not continue the one that was begun.
        if version != self.version || part.len() != most {
            let message = "the file was changed while it was read";
            return Err(CatalogError::new(ErrorReason::ServiceUnavailable, message));
        }
        self.from += u64::try_from(part.len()).unwrap_or(u64::MAX);
        Ok(Some((part, self)))
    }
}

fn body(reader: LocalFileReader) -> Body {
    Body::from_stream(stream::try_unfold(reader, LocalFileReader::next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warehouse::WarehouseSpec;

    #[test]
    fn a_range_is_within_its_file() {
        use RequestedRange::{Part, Unsatisfiable, Whole};
        for (text, length, expected) in [
            ("bytes=0-3", 10, Part(0, 4)),
            ("bytes=4-", 10, Part(4, 10)),
            ("bytes=-3", 10, Part(7, 10)),
            ("bytes=-30", 10, Part(0, 10)),
            ("bytes=8-99999999999999999999999", 10, Part(8, 10)),
            ("bytes=9-9", 10, Part(9, 10)),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=3-2", 10, Whole),
            ("bytes=0-1,3-4", 10, Whole),
            ("bytes=-", 10, Whole),
            ("bytes=+1-2", 10, Whole),
            ("bytes= 1-2", 10, Whole),
            ("bytes", 10, Whole),
            ("lines=1-2", 10, Whole),
            ("", 10, Whole),
        ] {
            assert_eq!(RequestedRange::of(text, length), expected, "{text} of {length}");
        }
    }

    #[tokio::test]
    async fn what_is_written_over_is_not_put_together_with_what_was_sent() {
        let scratch = testkit::Scratch::new();
        let root = format!("file://{}", scratch.path().display());
        let spec = WarehouseSpec { name: "main".to_owned(), root, ..WarehouseSpec::default() };
        let warehouse = Arc::new(Warehouse::new(spec).unwrap());
        let (path, content) = (scratch.path().join("x"), vec![7; PART_BYTES_MAX + 1]);
        std::fs::write(&path, &content).unwrap();
        let location = format!("file://{}", path.display());
        let (version, _) = warehouse.files().read_part(&location, 0, 0).await.unwrap();
        let until = version.length;
        let reader = || LocalFileReader {
            warehouse: Arc::clone(&warehouse),
            location: location.clone(),
            version,
            from: 0,
            until,
        };
        let (part, rest) = reader().next().await.unwrap().unwrap();
        assert_eq!(part.len(), PART_BYTES_MAX);
        let (part, rest) = rest.next().await.unwrap().unwrap();
        assert_eq!(part.len(), 1);
        assert!(rest.next().await.unwrap().is_none());
        // Another file of the same length replaces it.
        let (_, rest) = reader().next().await.unwrap().unwrap();
        let beside = scratch.path().join("y");
        std::fs::write(&beside, &content).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        assert!(rest.next().await.is_err());
    }

    #[test]
    fn a_path_names_one_file_or_none() {
        for (path, expected) in [
            ("/files/w/t/1.parquet", Some("file:///w/t/1.parquet")),
            ("/files/w/a%20b=%C3%BC", Some("file:///w/a b=ü")),
            ("/files/w/a%2520b", Some("file:///w/a%20b")),
            ("/files/w/a+b", Some("file:///w/a+b")),
            ("/files/w/t%2Fx", Some("file:///w/t/x")),
            ("/files/w/../x", None),
            ("/files/w/%2e%2e/x", None),
            ("/files/w/%252e%252e/x", None),
            ("/files/w/..%2fx", None),
            ("/files/w/%252fx", None),
            ("/files/w/./x", None),
            ("/files//w/x", None),
            ("/files/w//x", None),
            ("/files/w/x/", None),
            ("/files/w/x%00", None),
            ("/files/w/x%0a", None),
            ("/files/w/%5c..%5cx", None),
            ("/files/w/x%3fy", None),
            ("/files/w/%ff", None),
            ("/files/w/%", None),
            ("/files/", None),
            ("/files", None),
            ("/filesystem/w/x", None),
            ("/w/x", None),
            ("//files/w/x", None),
        ] {
            let found = file_of(path).map(|it| it.to_string());
            assert_eq!(found.ok().as_deref(), expected, "{path}");
        }
    }
}
