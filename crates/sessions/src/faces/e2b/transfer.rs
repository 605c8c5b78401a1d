//! Upload and download of file content: `/files`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::multipart::{Field, Multipart};
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::stream;
use node::clock;
use node::http::{CredentialBinding, FastHead, RouteTable as _, UploadBody, get};
use sandbox::{FileWriter, MissingParents, OpenFile, SandboxFileEntry, SandboxFiles, WriteMode};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time;

use super::envd::{USER, has_token};
use super::errors::RestError;
use super::filesystem::{METADATA_MAX, at_home, read_metadata, set_metadata};
use super::query::parameters;
use super::tokens::{SignedClaims, SignedOperation};
use super::{E2bContext, discard};
use crate::service::SandboxGuard;

/// Linux file whose content changes with each boot (`random(4)`).
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";
/// Longest pause between two pieces of an upload.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of files in one upload.
const FILES_MAX: usize = 1000;
/// Maximum number of parts in one upload, including parts that are not files.
const PARTS_MAX: usize = 2000;
/// Bytes per read of a file.
const CHUNK_BYTES: usize = 64 << 10;
/// Compressed bytes that are decompressed at a time: each may expand to a thousand.
const PACKED_BYTES: usize = 4 << 10;
/// Maximum bytes of one metadata value.
const METADATA_BYTES_MAX: usize = 4 << 10;
/// Prefix of metadata headers.
const METADATA_HEADER: &str = "x-metadata-";

/// Query string.
#[derive(Debug, Default)]
struct TransferQuery {
    path: Option<String>,
    username: String,
    signature: Option<String>,
    expires_s: Option<u64>,
}

impl TransferQuery {
    fn parse(text: &str) -> Result<TransferQuery, RestError> {
        let mut query = TransferQuery::default();
        for (name, value) in parameters(text) {
            match name.as_str() {
                "path" => query.path = Some(value),
                "username" => query.username = value,
                "signature" => query.signature = Some(value),
                "signature_expiration" => {
                    let seconds = value.parse();
                    query.expires_s = Some(seconds.map_err(|_| {
                        RestError::invalid("signature_expiration: is not a number of seconds")
                    })?);
                }
                // Unknown parameters are ignored.
                _ => {}
            }
        }
        Ok(query)
    }

    /// Returns the signed claims of a signed URL.
    fn signed(&self) -> Option<SignedClaims<'_>> {
        Some(SignedClaims {
            path: self.path.as_deref().unwrap_or_default(),
            user: &self.username,
            expires_s: self.expires_s,
            signature: self.signature.as_deref()?,
        })
    }
}

/// Path, for nodes only, at which a node answers whether a URL was signed for one of its sandboxes.
/// The URL's query is appended.
const SIGNED_HERE: &str = "/peer/e2b/signed";

/// Returns the path at which nodes are asked for the sandbox of a signed request, which does not
/// name its sandbox.
#[must_use]
pub fn signed_at(request: FastHead<'_>) -> Option<String> {
    let query = request.uri.query().filter(|_| request.uri.path() == "/files")?;
    let is_signed = query.split('&').any(|it| it.starts_with("signature=v1_"));
    let operation = SignedOperation::of(request.method)?;
    is_signed.then(|| format!("{SIGNED_HERE}/{}?{query}", operation.name()))
}

/// Routes for other nodes.
pub(super) fn peer_routes(face: Arc<E2bContext>) -> Router {
    Router::new()
        .at("/peer/e2b/signed/read", get(signed_for_reading))
        .at("/peer/e2b/signed/write", get(signed_for_writing))
        .with_state(face)
}

async fn signed_for_reading(State(face): State<Arc<E2bContext>>, uri: Uri) -> StatusCode {
    signed_here(&face, &uri, SignedOperation::Read)
}

async fn signed_for_writing(State(face): State<Arc<E2bContext>>, uri: Uri) -> StatusCode {
    signed_here(&face, &uri, SignedOperation::Write)
}

fn signed_here(face: &E2bContext, uri: &Uri, operation: SignedOperation) -> StatusCode {
    let query = TransferQuery::parse(uri.query().unwrap_or_default()).ok();
    let signed = query.as_ref().and_then(TransferQuery::signed);
    match signed.and_then(|signed| face.sandboxes.signer(&signed, operation)) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

/// Answers a request for file content, of the given sandbox or of the one that signed the URL.
pub(super) async fn answer(face: &E2bContext, id: Option<&str>, request: Request) -> Response {
    let Some(operation) = SignedOperation::of(request.method()) else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    let query = match TransferQuery::parse(request.uri().query().unwrap_or_default()) {
        Ok(query) => query,
        Err(error) => return error.into_response(),
    };
    let binding = CredentialBinding::of(request.extensions());
    let headers = request.headers().clone();
    let id = match admit(face, id, operation, &query, &headers, &binding).await {
        Ok(id) => id,
        Err(error) => return refused(request, error.into_response()).await,
    };
    if !matches!(query.username.as_str(), "" | USER) {
        let message = "username: the only user of a sandbox is `user`";
        return refused(request, RestError::invalid(message).into_response()).await;
    }
    let (live, guard) = match face.sandboxes.open(&face.sessions, &face.keys, &id).await {
        Ok(open) => open,
        Err(closed) => return refused(request, closed.answer(&id)).await,
    };
    let answered = match operation {
        // `/proc` is not readable here, except this file, by which clients detect a restart.
        SignedOperation::Read if query.path.as_deref() == Some(BOOT_ID_PATH) => {
            Ok(format!("{}\n", live.boot_id).into_response())
        }
        SignedOperation::Read => download(guard, query.path).await,
        SignedOperation::Write => upload(&guard, query.path, request).await,
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

/// Returns the answer to a request whose body was not read.
async fn refused(request: Request, answer: Response) -> Response {
    if let Ok(body) = UploadBody::from_request(request, &()).await {
        discard(body).await;
    }
    answer
}

/// Authorizes a request, and returns the id of its sandbox.
async fn admit(
    face: &E2bContext,
    id: Option<&str>,
    operation: SignedOperation,
    query: &TransferQuery,
    headers: &HeaderMap,
    binding: &CredentialBinding,
) -> Result<String, RestError> {
    if let Some(id) = id
        && has_token(face, id, headers, binding)
    {
        return Ok(id.to_owned());
    }
    let signed = query.signed().ok_or_else(RestError::unauthenticated)?;
    if signed.is_stale(clock::wall_ms()) {
        return Err(RestError::new(StatusCode::UNAUTHORIZED, "signature is already expired"));
    }
    let signer = match id {
        Some(id) => signer_of(face, id, &signed, operation).await,
        None => face.sandboxes.signer(&signed, operation),
    };
    let (id, holder) = signer.ok_or_else(RestError::unauthenticated)?;
    match face.is_held(&holder, binding) {
        true => Ok(id),
        false => Err(RestError::unauthenticated()),
    }
}

/// Finds, among the API tokens of the sandbox's tenant, the one behind a URL's signature.
async fn signer_of(
    face: &E2bContext,
    id: &str,
    signed: &SignedClaims<'_>,
    operation: SignedOperation,
) -> Option<(String, String)> {
    let tenant = match face.sandboxes.known(id) {
        Some(live) => live.tenant.clone(),
        None => face.sessions.queries().ok()?.tenant_of(id).await.ok()?,
    };
    let holders = face.tokens.principals_of(&tenant).into_iter().map(|it| it.token_id);
    let mut signers =
        holders.filter(|holder| signed.is_of(operation, &face.keys.access(id, holder)));
    signers.next().map(|holder| (id.to_owned(), holder.to_string()))
}

async fn download(guard: SandboxGuard, path: Option<String>) -> Result<Response, RestError> {
    let path = path.ok_or_else(|| RestError::invalid("path: is missing"))?;
    let path = at_home(&path);
    let files = guard.files().await?;
    let open = files.read(&path).await.map_err(|error| about(error, &path))?;
    let headers = [
        // Prevents browsers from rendering content of sandboxes.
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::CONTENT_LENGTH, HeaderValue::from(open.len)),
    ];
    Ok((headers, Body::from_stream(content(open, guard))).into_response())
}

/// Streams a file's content up to its length when it was opened, which was announced.
fn content(
    open: OpenFile,
    guard: SandboxGuard,
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> {
    stream::unfold((open, guard), |(mut open, guard)| async move {
        if open.len == 0 {
            return None;
        }
        let room = usize::try_from(open.len).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let mut buf = vec![0; room];
        match open.file.read(&mut buf).await {
            // The file was truncated meanwhile; the client sees that its answer is incomplete.
            Ok(0) => Some((Err(std::io::ErrorKind::UnexpectedEof.into()), (open, guard))),
            Ok(count) => {
                buf.truncate(count);
                open.len = open.len.saturating_sub(count as u64);
                Some((Ok(buf.into()), (open, guard)))
            }
            Err(error) => Some((Err(error), (open, guard))),
        }
    })
}

fn about(error: sandbox::FilesError, path: &str) -> RestError {
    match error {
        sandbox::FilesError::NotFound => {
            RestError::new(StatusCode::NOT_FOUND, format!("path '{path}' does not exist"))
        }
        sandbox::FilesError::IsADirectory => {
            RestError::invalid(format!("path '{path}' is a directory"))
        }
        other => other.into(),
    }
}

/// Parameters of all files of an upload.
struct UploadQuery<'a> {
    files: &'a SandboxFiles,
    metadata: Vec<(String, String)>,
    is_packed: bool,
}

async fn upload(
    guard: &SandboxGuard,
    path: Option<String>,
    request: Request,
) -> Result<Response, RestError> {
    let is_packed = match request.headers().get(header::CONTENT_ENCODING) {
        None => false,
        Some(value) if value == "identity" => false,
        Some(value) if value == "gzip" => true,
        Some(_) => return Err(RestError::invalid("content-encoding: must be gzip or identity")),
    };
    let files = guard.files().await?;
    let metadata = metadata_of(request.headers())?;
    let uploading = UploadQuery { files: &files, metadata, is_packed };
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let written = if kind.starts_with("multipart/form-data") {
        let form = Multipart::from_request(request, &()).await;
        let form = form.map_err(|error| RestError::new(error.status(), error.body_text()))?;
        uploading.take_form(form, path).await?
    } else {
        let path = path.ok_or_else(|| RestError::invalid("path: is missing"))?;
        let body = UploadBody::from_request(request, &()).await?;
        vec![uploading.take(TransferSource::Body(body), &path).await?]
    };
    Ok(Json(written).into_response())
}

/// Parses metadata from a request's headers.
fn metadata_of(headers: &HeaderMap) -> Result<Vec<(String, String)>, RestError> {
    let mut metadata = Vec::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(METADATA_HEADER) else { continue };
        let fits = !key.is_empty() && value.len() <= METADATA_BYTES_MAX;
        let value = value.to_str().ok().filter(|_| fits && metadata.len() < METADATA_MAX);
        let value = value.ok_or_else(|| {
            RestError::invalid(format!("{name}: is too long, too many, or no plain text"))
        })?;
        metadata.push((key.to_owned(), value.to_owned()));
    }
    Ok(metadata)
}

/// Source of content.
enum TransferSource<'a> {
    Body(UploadBody),
    Part(Field<'a>),
}

impl TransferSource<'_> {
    async fn chunk(&mut self) -> Result<Option<Bytes>, RestError> {
        match self {
            TransferSource::Body(body) => Ok(body.chunk().await?),
            TransferSource::Part(part) => {
                let chunk = time::timeout(PAUSE_MAX, part.chunk()).await.map_err(|_| late())?;
                chunk.map_err(|error| RestError::new(error.status(), error.body_text()))
            }
        }
    }
}

fn late() -> RestError {
    let seconds = PAUSE_MAX.as_secs();
    RestError::invalid(format!("nothing of the upload arrived for {seconds} s"))
}

impl UploadQuery<'_> {
    /// Receives all files of a form.
    async fn take_form(
        &self,
        mut form: Multipart,
        path: Option<String>,
    ) -> Result<Vec<Value>, RestError> {
        let mut written = Vec::new();
        for _ in 0..PARTS_MAX {
            let part = time::timeout(PAUSE_MAX, form.next_field()).await.map_err(|_| late())?;
            let part = part.map_err(|error| RestError::new(error.status(), error.body_text()))?;
            let Some(part) = part else {
                if written.is_empty() {
                    return Err(RestError::invalid("the form has no part `file`"));
                }
                return Ok(written);
            };
            if part.name() != Some("file") {
                continue;
            }
            if written.len() >= FILES_MAX || (path.is_some() && !written.is_empty()) {
                let message = if path.is_some() {
                    "path: names one file, and the form has more"
                } else {
                    "the form has too many files"
                };
                return Err(RestError::invalid(message));
            }
            let named = part.file_name().map(unescaped);
            let to = path.clone().or(named).filter(|to| !to.is_empty());
            let to = to.ok_or_else(|| RestError::invalid("path: a file has none"))?;
            written.push(self.take(TransferSource::Part(part), &to).await?);
        }
        Err(RestError::invalid(format!("the form has more than {PARTS_MAX} parts")))
    }

    /// Receives one file.
    async fn take(&self, mut source: TransferSource<'_>, path: &str) -> Result<Value, RestError> {
        let path = at_home(path);
        let opened = self.files.write(&path, MissingParents::Make, WriteMode::Replace).await;
        let mut writer = opened.map_err(|error| about(error, &path))?;
        let entry = if self.is_packed {
            let mut unpacker = GzDecoder::new(Vec::new());
            while let Some(chunk) = source.chunk().await? {
                for packed in chunk.chunks(PACKED_BYTES) {
                    unpacker.write_all(packed).map_err(not_packed)?;
                    write(&mut writer, unpacker.get_ref()).await?;
                    unpacker.get_mut().clear();
                }
            }
            let rest = unpacker.finish().map_err(not_packed)?;
            write(&mut writer, &rest).await?;
            writer.finish().await?
        } else {
            while let Some(chunk) = source.chunk().await? {
                write(&mut writer, &chunk).await?;
            }
            writer.finish().await?
        };
        set_metadata(self.files, &entry.path, &self.metadata).await?;
        Ok(self.shown(&entry).await)
    }

    async fn shown(&self, entry: &SandboxFileEntry) -> Value {
        let mut shown = json!({ "path": entry.path, "name": entry.name, "type": "file" });
        if !self.metadata.is_empty() {
            let all: Map<String, Value> = read_metadata(self.files, &entry.path).await;
            shown["metadata"] = Value::Object(all);
        }
        shown
    }
}

async fn write(writer: &mut FileWriter, bytes: &[u8]) -> Result<(), RestError> {
    writer.write_all(bytes).await.map_err(sandbox::FilesError::from)?;
    Ok(())
}

fn not_packed(_: std::io::Error) -> RestError {
    RestError::invalid("content-encoding: the body is not gzip, or not whole")
}

/// Decodes the three characters that are escaped in form file names (WHATWG HTML,
/// multipart/form-data).
fn unescaped(name: &str) -> String {
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

#[cfg(test)]
mod tests {
    //! Parts that can be tested without a sandbox.

    use super::*;

    #[test]
    fn queries_are_decoded() {
        let text = "path=%2Fa%20b&username=user&signature=v1_a%2Bb&signature_expiration=5";
        let query = TransferQuery::parse(text).unwrap();
        assert_eq!(query.path.as_deref(), Some("/a b"));
        assert_eq!((query.username.as_str(), query.expires_s), ("user", Some(5)));
        assert_eq!(query.signature.as_deref(), Some("v1_a+b"));
        assert!(TransferQuery::parse("signature_expiration=soon").is_err());
        assert_eq!(TransferQuery::parse("").unwrap().path, None);
    }

    #[test]
    fn metadata_is_bounded() {
        let headers = |count: usize, bytes: usize| {
            let pairs = (0..count).map(|index| {
                let name = format!("x-metadata-key{index}");
                (name.parse().unwrap(), HeaderValue::from_str(&"v".repeat(bytes)).unwrap())
            });
            pairs.collect::<HeaderMap>()
        };
        assert_eq!(metadata_of(&headers(2, 3)).unwrap().len(), 2);
        assert!(metadata_of(&headers(METADATA_MAX + 1, 3)).is_err());
        assert!(metadata_of(&headers(1, METADATA_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn names_of_forms_are_taken_back() {
        assert_eq!(unescaped("a%22b%0D%0Ac%20"), "a\"b\r\nc%20");
    }
}
