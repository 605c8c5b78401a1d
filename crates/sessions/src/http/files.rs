//! Files of a session: streamed uploads and downloads, archives, and watches.
//!
//! No file is held in memory as a whole. The connection's limit cuts off a client that does not
//! read its download, and the body's limit one that does not send, so neither blocks the few places
//! that a sandbox has for archives.

use std::convert::Infallible;
use std::io;

use api::{ArchiveImported, ErrorCode, FileChange, FileEntry, FileList, MoveFile};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::sse;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use node::auth::TokenPrincipal;
use node::drain::DrainHandle;
use node::http::{self, JsonBody, UploadBody, query};
use sandbox::{
    EntryKind, FilesError, LIST_ENTRIES_MAX, LinkMode, ListDepth, MissingParents, SandboxFileEntry,
    WatchKind, WriteMode,
};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use super::conversation::server_sent;
use super::{FilePath, SessionIdPath};
use crate::error::SessionError;
use crate::service::{SessionFiles, Sessions};

/// Media type of arbitrary bytes.
pub(super) const BYTES: &str = "application/octet-stream";
/// Media type of archives.
const TAR: &str = "application/x-tar";
/// Default directory to list, watch and archive.
const WORKSPACE: &str = "/workspace";
/// Default number of entries in one listing.
const LIST_DEFAULT: usize = 1000;
/// Bytes per read of a file.
const CHUNK_BYTES: usize = 128 << 10;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileListQuery {
    path: String,
    depth: u32,
    limit: Option<usize>,
}

impl Default for FileListQuery {
    fn default() -> FileListQuery {
        FileListQuery { path: WORKSPACE.to_owned(), depth: 1, limit: None }
    }
}

pub(super) async fn list(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
) -> Result<axum::Json<FileList>, http::HttpError> {
    let FileListQuery { path, depth, limit } = query(&uri)?;
    let limit = super::page_size(limit, LIST_DEFAULT, LIST_ENTRIES_MAX)?;
    let files = sessions.files(&who.tenant, &id).await?;
    let listing = files.list(&path, depth, limit).await.map_err(refusal)?;
    let entries = listing.entries.into_iter().map(shown).collect();
    Ok(axum::Json(FileList { entries, truncated: listing.cut }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileReadQuery {
    /// True to return its metadata rather than its content.
    stat: bool,
}

pub(super) async fn read(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, path): FilePath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, http::HttpError> {
    let FileReadQuery { stat } = query(&uri)?;
    let files = sessions.files(&who.tenant, &id).await?;
    if stat {
        let entry = files.stat(&path, LinkMode::Nothing).await.map_err(refusal)?;
        return Ok(axum::Json(shown(entry)).into_response());
    }
    let mut open = files.read(&path).await.map_err(refusal)?;
    let len = open.len;
    let (status, from, count) = match range(&headers, len) {
        ByteRange::All => (StatusCode::OK, 0, len),
        ByteRange::Part { from, count } => (StatusCode::PARTIAL_CONTENT, from, count),
        ByteRange::Outside => {
            let answer = http::HttpError::invalid(format!("the file has {len} bytes")).at("range");
            let mut answer = answer.into_response();
            *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            insert(&mut answer, header::CONTENT_RANGE, &format!("bytes */{len}"));
            return Ok(answer);
        }
    };
    if from > 0 {
        let sought = open.file.seek(io::SeekFrom::Start(from)).await;
        sought.map_err(|error| refusal(error.into()))?;
    }
    // A file that grows meanwhile is sent up to this length; one that shrinks cuts the answer off.
    let content = open.file.take(count);
    let mut answer = Response::new(streamed(content, files));
    *answer.status_mut() = status;
    insert(&mut answer, header::CONTENT_TYPE, BYTES);
    insert(&mut answer, header::CONTENT_LENGTH, &count.to_string());
    insert(&mut answer, header::ACCEPT_RANGES, "bytes");
    if status == StatusCode::PARTIAL_CONTENT {
        let last = (from + count).saturating_sub(1);
        insert(&mut answer, header::CONTENT_RANGE, &format!("bytes {from}-{last}/{len}"));
    }
    Ok(answer)
}

/// Sets a header whose value consists of digits and fixed words.
fn insert(answer: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// Requested part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteRange {
    All,
    Part { from: u64, count: u64 },
    Outside,
}

/// Parses the single range of a request (RFC 9110 §14.2). Malformed, multiple and other-unit ranges
/// are ignored, as the standard allows.
pub(super) fn range(headers: &HeaderMap, len: u64) -> ByteRange {
    let Some(text) = headers.get(header::RANGE).and_then(|it| it.to_str().ok()) else {
        return ByteRange::All;
    };
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|it| it.split_once('-')) else {
        return ByteRange::All;
    };
    let (from, end) = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        // The last `count` bytes.
        (Err(_), Ok(count)) if first.trim().is_empty() => (len.saturating_sub(count), len),
        (Ok(from), Ok(last)) if last >= from => (from, last.saturating_add(1).min(len)),
        (Ok(from), Err(_)) if last.trim().is_empty() => (from, len),
        _ => return ByteRange::All,
    };
    match end.checked_sub(from) {
        Some(count @ 1..) => ByteRange::Part { from, count },
        Some(0) | None => ByteRange::Outside,
    }
}

/// Returns a body from a reader. The session's sandbox stays at work meanwhile.
fn streamed(content: impl AsyncRead + Send + Unpin + 'static, files: SessionFiles) -> Body {
    let state = Some((content, files));
    let pieces = stream::unfold(state, |state| async move {
        let (mut content, files) = state?;
        let mut piece = BytesMut::with_capacity(CHUNK_BYTES);
        match content.read_buf(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece.freeze()), Some((content, files)))),
            Err(error) => {
                tracing::debug!(%error, "a download broke off");
                Some((Err::<Bytes, io::Error>(error), None))
            }
        }
    });
    Body::from_stream(pieces)
}

/// Query of a write request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileWriteQuery {
    /// True to fail if the file exists.
    create: bool,
    /// True to append to the existing content.
    append: bool,
    /// True to create a directory; the body is empty.
    directory: bool,
    /// Permissions, in octal digits.
    mode: Option<String>,
}

pub(super) async fn write(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, path): FilePath,
    uri: Uri,
    mut upload: UploadBody,
) -> Result<Response, http::HttpError> {
    let FileWriteQuery { create, append, directory, mode } = query(&uri)?;
    let mode = mode.map(|digits| permissions(&digits)).transpose()?;
    let how = match (create, append) {
        (true, true) => return Err(http::HttpError::invalid("excludes `create`").at("append")),
        (true, false) => WriteMode::Create,
        (false, true) => WriteMode::Append,
        (false, false) => WriteMode::Replace,
    };
    let files = sessions.files(&who.tenant, &id).await?;
    let (is_new, entry) = if directory {
        if append || upload.chunk().await?.is_some() {
            return Err(http::HttpError::invalid("a directory has no content").at("directory"));
        }
        let is_new = files.make_dir(&path, MissingParents::Make).await.map_err(refusal)?;
        if create && !is_new {
            return Err(refusal(FilesError::Exists));
        }
        (is_new, files.stat(&path, LinkMode::Links).await.map_err(refusal)?)
    } else {
        let is_new = match how {
            WriteMode::Create => true,
            WriteMode::Replace | WriteMode::Append => {
                matches!(files.stat(&path, LinkMode::Links).await, Err(FilesError::NotFound))
            }
        };
        let mut writer = files.write(&path, MissingParents::Make, how).await.map_err(refusal)?;
        while let Some(piece) = upload.chunk().await? {
            writer.write_all(&piece).await.map_err(|error| refusal(error.into()))?;
        }
        (is_new, writer.finish().await.map_err(refusal)?)
    };
    let mut entry = shown(entry);
    if let Some(mode) = mode {
        files.chmod(&path, mode).await.map_err(refusal)?;
        entry.mode = mode;
    }
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(entry)).into_response())
}

/// Parses octal permissions, such as `755` or `0644`.
pub(super) fn permissions(digits: &str) -> Result<u32, http::HttpError> {
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| http::HttpError::invalid("must be octal digits, at most 7777").at("mode"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileRemoveQuery {
    /// True to remove a directory with its content.
    recursive: bool,
}

pub(super) async fn remove(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, path): FilePath,
    uri: Uri,
) -> Result<StatusCode, http::HttpError> {
    let FileRemoveQuery { recursive } = query(&uri)?;
    let depth = if recursive { ListDepth::Recursive } else { ListDepth::Single };
    let files = sessions.files(&who.tenant, &id).await?;
    files.remove(&path, depth).await.map_err(refusal)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/files/move`.
pub(super) async fn rename(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    FilePath(id, path): FilePath,
    JsonBody(MoveFile { from, to }): JsonBody<MoveFile>,
) -> Result<axum::Json<FileEntry>, http::HttpError> {
    if path != "move" {
        let message = "files are written with PUT; POST is for `files/move`";
        return Err(http::HttpError::new(ErrorCode::MethodNotAllowed, message));
    }
    let files = sessions.files(&who.tenant, &id).await?;
    files.rename(&from, &to).await.map_err(refusal)?;
    let entry = files.stat(&to, LinkMode::Nothing).await.map_err(refusal)?;
    Ok(axum::Json(shown(entry)))
}

/// Source or target directory of an archive.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ArchiveQuery {
    path: String,
}

impl Default for ArchiveQuery {
    fn default() -> ArchiveQuery {
        ArchiveQuery { path: WORKSPACE.to_owned() }
    }
}

pub(super) async fn export(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
) -> Result<Response, http::HttpError> {
    let ArchiveQuery { path } = query(&uri)?;
    let files = sessions.files(&who.tenant, &id).await?;
    let archive = files.export_tar(&path).await.map_err(refusal)?;
    let mut answer = Response::new(streamed(archive, files));
    insert(&mut answer, header::CONTENT_TYPE, TAR);
    Ok(answer)
}

pub(super) async fn import(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
    upload: UploadBody,
) -> Result<axum::Json<ArchiveImported>, http::HttpError> {
    let ArchiveQuery { path } = query(&uri)?;
    let files = sessions.files(&who.tenant, &id).await?;
    let usage = files.import_tar(&path, upload).await.map_err(|error| match error {
        // This kind comes only from the body, never from the sandbox.
        FilesError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            http::HttpError::invalid(error.to_string())
        }
        other => refusal(other),
    })?;
    Ok(axum::Json(ArchiveImported { entries: usage.entries, bytes: usage.bytes }))
}

/// Path to watch, and whether recursively.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WatchQuery {
    path: String,
    recursive: bool,
}

impl Default for WatchQuery {
    fn default() -> WatchQuery {
        WatchQuery { path: WORKSPACE.to_owned(), recursive: false }
    }
}

pub(super) async fn watch(
    State(sessions): State<Sessions>,
    who: TokenPrincipal,
    SessionIdPath(id): SessionIdPath,
    uri: Uri,
    drain: DrainHandle,
) -> Result<Response, http::HttpError> {
    let WatchQuery { path, recursive } = query(&uri)?;
    let depth = if recursive { ListDepth::Recursive } else { ListDepth::Single };
    let files = sessions.files(&who.tenant, &id).await?;
    let watch = files.watch(&path, depth).await.map_err(refusal)?;
    let state = (watch, files, drain);
    let changes = stream::unfold(state, |(mut watch, files, drain)| async move {
        let event = tokio::select! {
            event = watch.next() => event?,
            () = drain.begun() => return None,
        };
        let change = FileChange { kind: change_name(event.kind).to_owned(), path: event.path };
        let text = serde_json::to_string(&change).unwrap_or_default();
        let sent = sse::Event::default().event(change_name(event.kind)).data(text);
        Some((Ok::<_, Infallible>(sent), (watch, files, drain)))
    });
    Ok(server_sent(changes))
}

fn change_name(kind: WatchKind) -> &'static str {
    match kind {
        WatchKind::Create => "create",
        WatchKind::Write => "write",
        WatchKind::Remove => "remove",
        WatchKind::Rename => "rename",
        WatchKind::Chmod => "chmod",
        WatchKind::Overflow => "overflow",
    }
}

fn shown(entry: SandboxFileEntry) -> FileEntry {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Dir => "dir",
        EntryKind::Symlink => "symlink",
        EntryKind::Other => "other",
    };
    FileEntry {
        path: entry.path,
        kind: kind.to_owned(),
        size: entry.size,
        mode: entry.mode,
        // Programs may set any time, even one before 1970.
        modified_ms: u64::try_from(entry.modified_ns / 1_000_000).unwrap_or(0),
        target: entry.symlink_target,
    }
}

/// Returns the error for a caller when an operation on a file fails.
pub(super) fn refusal(error: FilesError) -> http::HttpError {
    let message = match &error {
        FilesError::NotFound => "there is no such file or directory".to_owned(),
        other => other.to_string(),
    };
    match error {
        FilesError::NotFound => http::HttpError::new(ErrorCode::NotFound, message),
        FilesError::Exists | FilesError::NotEmpty | FilesError::NoSpace => {
            http::HttpError::new(ErrorCode::Conflict, message).at("path")
        }
        FilesError::NotADirectory | FilesError::IsADirectory => {
            http::HttpError::invalid(message).at("path")
        }
        // The message names its field itself.
        FilesError::Invalid(_) => http::HttpError::invalid(message),
        FilesError::PermissionDenied => {
            http::HttpError::new(ErrorCode::Forbidden, message).at("path")
        }
        FilesError::TooLarge(_) => http::HttpError::new(ErrorCode::BodyTooLarge, message),
        FilesError::TooMany(_) => SessionError::TooMany(message).into(),
        FilesError::Lost => SessionError::SandboxEnded(message).into(),
        FilesError::Io(error) => SessionError::internal(error).into(),
    }
}
