//! Files of a session's workspace, individually and as a bundle.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use api::{SandboxState, SessionView};
use axum::Json;
use axum::body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use futures_util::stream;
use sandbox::{
    EntryKind, FilesError, LIST_ENTRIES_MAX, LinkMode, ListDepth, MissingParents, TarReader,
    WriteMode,
};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

use super::call::{Answer, AshBody, AshCaller, AshFailure, AshQuery};
use super::{ids, media, time};
use crate::error::SessionError;
use crate::service::SessionFiles;

/// Directory of the files.
const WORKSPACE: &str = "/workspace";
/// Maximum depth of a listing, the sandbox's own limit.
const DEPTH_MAX: u32 = 64;
/// Maximum bytes of a file in a JSON answer.
const JSON_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of files in one request, bytes of each, and of all.
const WRITE_MAX: usize = 500;
const WRITE_BYTES_MAX: usize = 50 << 20;
const WRITE_ALL_BYTES_MAX: usize = 100 << 20;
/// Maximum bytes of a compressed bundle.
const BUNDLE_BYTES_MAX: usize = 100 << 20;
/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Directories that are skipped without hidden files.
const HIDDEN: [&str; 8] =
    [".cache", ".npm", ".pnpm-store", ".yarn", ".venv", "venv", ".tmp", "tmp"];
/// Header that names the source of the content.
const SOURCE: HeaderName = HeaderName::from_static("x-ash-source");

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AshFileList {
    include_hidden: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ArchiveFormat {
    pub(super) format: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AshWriteFile {
    files: Vec<NewFile>,
    target_path: Option<String>,
}

/// An uploaded file.
#[derive(Debug, Deserialize)]
pub(super) struct NewFile {
    pub(super) path: String,
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct AshBundle {
    bundle: String,
}

impl AshCaller {
    /// Returns the files of a session, and their source.
    async fn files(
        &self,
        uuid: &str,
    ) -> Result<(SessionView, SessionFiles, &'static str), AshFailure> {
        let session = self.session(uuid).await?;
        // Determined first, because opening the files starts a sandbox.
        let source = match session.sandbox {
            SandboxState::Cold => "snapshot",
            SandboxState::Warming
            | SandboxState::Warm
            | SandboxState::Running
            | SandboxState::Waiting => "sandbox",
        };
        match self.sessions().files(&self.tenant, &session.id).await {
            Ok(files) => Ok((session, files, source)),
            Err(SessionError::Ended) => {
                Err(AshFailure::not_found("No workspace available for this session"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// `GET /api/sessions/{id}/files`.
pub(super) async fn list(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshQuery(listing): AshQuery<AshFileList>,
) -> Answer {
    let (_, files, source) = caller.files(&uuid).await?;
    let found = files.list(WORKSPACE, DEPTH_MAX, LIST_ENTRIES_MAX).await?;
    let with_hidden = listing.include_hidden.as_deref() != Some("false");
    let mut entries = Vec::new();
    for entry in found.entries {
        let path = entry.path.strip_prefix(WORKSPACE).unwrap_or(&entry.path);
        let path = path.trim_start_matches('/');
        let is_wanted = with_hidden || !path.split('/').any(|part| HIDDEN.contains(&part));
        if entry.kind == EntryKind::File && is_wanted {
            let modified_ms = u64::try_from(entry.modified_ns / 1_000_000).unwrap_or(0);
            entries.push(json!({
                "path": path,
                "size": entry.size,
                "modifiedAt": time::shown(modified_ms),
            }));
        }
    }
    Ok(Json(json!({ "files": entries, "source": source })))
}

/// `GET /api/sessions/{id}/files/{path}`.
pub(super) async fn read(
    caller: AshCaller,
    Path((uuid, path)): Path<(String, String)>,
    AshQuery(ArchiveFormat { format }): AshQuery<ArchiveFormat>,
) -> Result<Response, AshFailure> {
    let full = inside(&path)?;
    let (_, files, source) = caller.files(&uuid).await?;
    let mut open = match files.read(&full).await {
        Ok(open) => open,
        // Exists, but is a pipe or a device.
        Err(FilesError::Invalid(_)) => return Err(AshFailure::bad("Path is not a file")),
        Err(error) => return Err(error.into()),
    };
    if format.as_deref() == Some("json") {
        let mut content = Vec::new();
        // The file may grow while it is read.
        (&mut open.file).take(JSON_BYTES_MAX + 1).read_to_end(&mut content).await.map_err(lost)?;
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX).max(open.len);
        if size > JSON_BYTES_MAX {
            return Err(AshFailure::bad(too_large(size)));
        }
        let text = String::from_utf8_lossy(&content);
        let answer = json!({ "path": path, "content": text, "size": size, "source": source });
        return Ok(Json(answer).into_response());
    }
    let mut headers = download(media::type_of(&path), &path);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(open.len));
    headers.insert(SOURCE, HeaderValue::from_static(source));
    // Limited to the announced length, though the file may grow.
    let content = open.file.take(open.len);
    Ok((headers, body_of(content, files)).into_response())
}

/// `POST /api/sessions/{id}/files`.
pub(super) async fn write(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshBody(body): AshBody<AshWriteFile>,
) -> Answer {
    if body.files.is_empty() || body.files.len() > WRITE_MAX {
        return Err(AshFailure::bad(format!("files: must be 1 to {WRITE_MAX}")));
    }
    let (_, files, _) = caller.files(&uuid).await?;
    let target = body.target_path.as_deref().unwrap_or(".");
    let mut written = Vec::with_capacity(body.files.len());
    let mut total = 0_usize;
    for file in body.files {
        let path = match target {
            "." | "" => file.path.clone(),
            target => format!("{}/{}", target.trim_end_matches('/'), file.path),
        };
        let result = write_one(&files, &path, &file.content, &mut total).await;
        written.push(match result {
            Ok(size) => json!({ "path": file.path, "written": true, "size": size }),
            Err(error) => json!({ "path": file.path, "written": false, "error": error }),
        });
    }
    Ok(Json(json!({ "files": written })))
}

/// Writes one file, and returns its size or an error message.
async fn write_one(
    files: &SessionFiles,
    path: &str,
    content: &str,
    total: &mut usize,
) -> Result<u64, String> {
    if !is_inside(path) {
        return Err("Invalid file path".to_owned());
    }
    let content = BASE64.decode(content).map_err(|error| format!("is not Base64: {error}"))?;
    if content.len() > WRITE_BYTES_MAX {
        return Err(format!("File too large ({} bytes, max {WRITE_BYTES_MAX})", content.len()));
    }
    *total = total.saturating_add(content.len());
    if *total > WRITE_ALL_BYTES_MAX {
        return Err("Batch size limit exceeded".to_owned());
    }
    put(files, path, &content).await.map_err(|error| error.to_string())
}

/// Writes a file of the workspace, and returns its size.
pub(super) async fn put(
    files: &SessionFiles,
    path: &str,
    content: &[u8],
) -> Result<u64, FilesError> {
    let full = format!("{WORKSPACE}/{path}");
    let mut writer = files.write(full, MissingParents::Make, WriteMode::Replace).await?;
    writer.write_all(content).await?;
    Ok(writer.finish().await?.size)
}

/// `DELETE /api/sessions/{id}/files/{path}`.
pub(super) async fn remove(
    caller: AshCaller,
    Path((uuid, path)): Path<(String, String)>,
) -> Answer {
    let full = inside(&path)?;
    let (_, files, _) = caller.files(&uuid).await?;
    // Does not follow a link, which is itself removed.
    let entry = files.stat(&full, LinkMode::Nothing).await?;
    if entry.kind == EntryKind::Dir {
        return Err(AshFailure::bad("Path is not a file"));
    }
    files.remove(&full, ListDepth::Single).await?;
    Ok(Json(json!({ "path": path, "deleted": true })))
}

/// `GET /api/sessions/{id}/workspace`.
pub(super) async fn download_bundle(
    caller: AshCaller,
    Path(uuid): Path<String>,
) -> Result<Response, AshFailure> {
    let (session, files, _) = caller.files(&uuid).await?;
    let archive = files.export_tar(WORKSPACE).await?;
    let name = format!("{}.tar.gz", ids::uuid(&session.id));
    let headers = download("application/gzip", &name);
    let packing = ArchiveStream {
        archive,
        packer: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        _files: files,
    };
    let pieces = stream::try_unfold(packing, ArchiveStream::next);
    Ok((headers, body::Body::from_stream(pieces)).into_response())
}

/// An archive that is compressed while it is read.
struct ArchiveStream {
    archive: TarReader,
    /// None once everything is compressed.
    packer: Option<GzEncoder<Vec<u8>>>,
    /// Keeps the sandbox at work.
    _files: SessionFiles,
}

impl ArchiveStream {
    async fn next(mut self) -> io::Result<Option<(Bytes, ArchiveStream)>> {
        let mut buf = vec![0; CHUNK_BYTES];
        while let Some(mut packer) = self.packer.take() {
            let count = self.archive.read(&mut buf).await?;
            let packed = if count == 0 {
                packer.finish()?
            } else {
                packer.write_all(buf.get(..count).unwrap_or_default())?;
                let packed = std::mem::take(packer.get_mut());
                self.packer = Some(packer);
                packed
            };
            if !packed.is_empty() {
                return Ok(Some((Bytes::from(packed), self)));
            }
        }
        Ok(None)
    }
}

/// `POST /api/sessions/{id}/workspace`.
pub(super) async fn upload_bundle(
    caller: AshCaller,
    Path(uuid): Path<String>,
    AshBody(body): AshBody<AshBundle>,
) -> Answer {
    let bundle = BASE64.decode(&body.bundle);
    let bundle =
        bundle.map_err(|error| AshFailure::bad(format!("bundle: is not Base64: {error}")))?;
    drop(body);
    if bundle.is_empty() {
        return Err(AshFailure::bad("Empty bundle"));
    }
    if bundle.len() > BUNDLE_BYTES_MAX {
        let message = format!("Bundle too large (max {BUNDLE_BYTES_MAX} bytes)");
        return Err(AshFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let (_, files, _) = caller.files(&uuid).await?;
    let unpacked = UnpackStream(MultiGzDecoder::new(io::Cursor::new(bundle)));
    match files.import_tar(WORKSPACE, unpacked).await {
        Ok(_) => Ok(Json(json!({ "message": "Workspace restored to live sandbox" }))),
        Err(FilesError::Io(error)) if is_broken(&error) => {
            Err(AshFailure::bad(format!("bundle: not a tar.gz: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn is_broken(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::InvalidInput | K::InvalidData | K::UnexpectedEof)
}

/// Compressed data in memory, decompressed while it is read. The disk limits the output.
struct UnpackStream(MultiGzDecoder<io::Cursor<Vec<u8>>>);

impl AsyncRead for UnpackStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.0.read(buf.initialize_unfilled())?;
        buf.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// Returns a body from a reader; `keep` is dropped with it.
fn body_of<K: Send + 'static>(
    reader: impl AsyncRead + Send + Unpin + 'static,
    keep: K,
) -> body::Body {
    let pieces = stream::try_unfold((reader, keep), |(mut reader, keep)| async move {
        let mut buf = vec![0; CHUNK_BYTES];
        let count = reader.read(&mut buf).await?;
        buf.truncate(count);
        Ok::<_, io::Error>((count > 0).then(|| (Bytes::from(buf), (reader, keep))))
    });
    body::Body::from_stream(pieces)
}

/// Returns the headers of a download.
pub(super) fn download(media_type: &str, path: &str) -> HeaderMap {
    let name = path.rsplit('/').next().unwrap_or_default();
    let mut headers = HeaderMap::new();
    let of_anything = HeaderValue::from_static("application/octet-stream");
    let media_type = HeaderValue::from_str(media_type).unwrap_or(of_anything);
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let disposition = format!("attachment; filename*=UTF-8''{}", media::encoded(name));
    if let Ok(value) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    headers
}

pub(super) fn too_large(size: u64) -> String {
    format!("File too large ({size} bytes, max {JSON_BYTES_MAX})")
}

/// Returns whether a path stays in the workspace.
pub(super) fn is_inside(path: &str) -> bool {
    !path.is_empty() && !path.starts_with(['/', '~']) && path.split('/').all(|part| part != "..")
}

fn inside(path: &str) -> Result<String, AshFailure> {
    match is_inside(path) {
        true => Ok(format!("{WORKSPACE}/{path}")),
        false => Err(AshFailure::bad("Invalid file path")),
    }
}

fn lost(error: io::Error) -> AshFailure {
    AshFailure::from(FilesError::Io(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_workspace() {
        for path in ["a", "a/b.txt", ".hidden", "a..b", "..a", "a b"] {
            assert!(is_inside(path), "{path}");
        }
        for path in ["", "/a", "..", "../a", "a/../b", "a/..", "~", "~/x"] {
            assert!(!is_inside(path), "{path}");
        }
    }

    #[test]
    fn names_of_downloads_cannot_become_headers() {
        let headers = download("text/plain", "a/b \"c\"\r\nx.txt");
        let expected = "attachment; filename*=UTF-8''b%20%22c%22%0D%0Ax.txt";
        assert_eq!(headers[header::CONTENT_DISPOSITION], expected);
        let headers = download("text/\nplain", "x");
        assert_eq!(headers[header::CONTENT_TYPE], "application/octet-stream");
    }
}
