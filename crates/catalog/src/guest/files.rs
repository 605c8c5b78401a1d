//! Files of the tables that a guest may see, by the part of S3's protocol that clients need.
//!
//! A request names its bucket in the path. The table is found by its location, and the rights to
//! that table decide; then the request is checked like one that the server only signs, and
//! forwarded with the warehouse's own key. Bodies stream both ways. Of the store's response, only
//! the parts that clients need are returned: its errors may reveal the key.
//!
//! # References
//! - <https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html>

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, SizeHint};
use node::client::{BodyError, Outgoing};
use node::fence::{EffectFence, EffectWay, LEASE_LOST};
use tokio::time::timeout;

use super::exchange::{SandboxExchange, request_name};
use super::local_files;
use super::pieces::{ChunkedDecoder, MALFORMED};
use super::session::{BufferedBody, SandboxSession};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::storage::{self, StoreReply, XML_BYTES_MAX};

/// Largest object of a single write, in bytes: the limit of the services.
pub(super) const OBJECT_BYTES_MAX: u64 = 5 << 30;

/// Longest time without progress of a request or its response.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Interval at which progress is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Most bytes of a store's error that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Message for a missing length.
const LENGTH_MISSING: &str = "a file needs `content-length`";

/// Message for an incomplete response.
const BROKEN_OFF: &str = "the object store's answer broke off";

const CONTENT_SHA256: &str = "x-amz-content-sha256";
const COPY_SOURCE: &str = "x-amz-copy-source";
const DECODED_LENGTH: &str = "x-amz-decoded-content-length";

/// Response headers that concern a file.
const ANSWERED: [HeaderName; 8] = [
    header::ACCEPT_RANGES,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
];

/// Handles all paths that are not Iceberg's own.
pub(super) async fn answer(
    Extension(session): Extension<Arc<SandboxSession>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if path == "/v1" || path.starts_with("/v1/") {
        return crate::http::no_route(&session, &parts);
    }
    let query = parts.uri.query().map_or(String::new(), |it| format!("?{it:.500}"));
    let exchange = session.exchange(format!("{}{query}", request_name(&parts.method, &parts.uri)));
    let done = Box::pin(relay(&session, &exchange, &parts, body)).await;
    let response = done.unwrap_or_else(|error| {
        exchange.note(&error.message);
        refusal(&error)
    });
    exchange.answered(&parts.method, response)
}

/// Role of a request's body.
enum BodyForm {
    /// There is no body.
    Nothing,
    /// Parameters of the request.
    Words,
    /// Content of a file.
    File,
}

type Parameters = BTreeMap<String, String>;

fn form(parts: &Parts, parameters: &Parameters) -> BodyForm {
    match parts.method {
        Method::PUT if parts.headers.contains_key(COPY_SOURCE) => BodyForm::Nothing,
        Method::PUT => BodyForm::File,
        Method::POST if parameters.contains_key("uploads") => BodyForm::Nothing,
        Method::POST => BodyForm::Words,
        _ => BodyForm::Nothing,
    }
}

async fn relay(
    session: &SandboxSession,
    exchange: &Arc<SandboxExchange>,
    parts: &Parts,
    body: Body,
) -> Result<Response> {
    session.check_lease()?;
    let warehouse = session.warehouse()?;
    let Some(store) = warehouse.storage() else {
        return local_files::read(session, Arc::clone(&warehouse), parts).await;
    };
    let parameters = storage::parameters(parts.uri.query().unwrap_or_default())?;
    let (form, is_cut) = (form(parts, &parameters), is_cut(&parts.headers));
    let mut rest = Some(body);
    let xml: Option<BufferedBody> = match form {
        BodyForm::Words if is_cut => {
            return Err(CatalogError::new(
                ErrorReason::BadRequest,
                "a body of this kind is not cut in pieces",
            ));
        }
        BodyForm::Words => {
            let body = rest.take().unwrap_or_default();
            Some(session.read(body, exchange, XML_BYTES_MAX as u64).await?)
        }
        BodyForm::File | BodyForm::Nothing => None,
    };
    let text = xml.as_ref().map(|it| String::from_utf8(it.bytes.to_vec())).transpose();
    let text =
        text.map_err(|_| CatalogError::new(ErrorReason::BadRequest, "the body is not UTF-8 text"))?;
    let head = (&parts.method, &parts.uri, &parts.headers);
    let store_request = store.relayed(head, text, is_cut)?;
    let (bucket, key) = store.subject(&store_request)?;
    let (catalog, staged) = (&session.catalog, session.staged_at(&bucket, &key));
    let (scope, permission) =
        catalog.files().files_at(&session.who, &warehouse, &bucket, &key, staged).await?;
    let outgoing = match (form, rest) {
        (BodyForm::File, Some(body)) => {
            let fence = session.fence.clone();
            FileUpload::new(body, &parts.headers, Arc::clone(exchange), fence)?.boxed_unsync()
        }
        _ => full_body(store_request.body().unwrap_or_default()),
    };
    let answer =
        watched(exchange, store.relay(&store_request, scope, permission, outgoing)).await?;
    let is_made = parts.method == Method::POST && parameters.contains_key("uploadId");
    passed(parts, exchange, answer, is_made).await
}

fn full_body(text: &str) -> Outgoing {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    body.map_err(|never| match never {}).boxed_unsync()
}

/// Waits for a response while there is progress.
async fn watched(
    exchange: &SandboxExchange,
    answer: impl Future<Output = Result<node::client::ClientResponse>>,
) -> Result<node::client::ClientResponse> {
    let mut answer = pin!(answer);
    loop {
        match timeout(LOOK_INTERVAL, &mut answer).await {
            // The guest's body was invalid; the store is not at fault.
            Ok(Err(error))
                if error.kind == ErrorReason::ServiceUnavailable && exchange.is_noted() =>
            {
                return Err(CatalogError::new(
                    ErrorReason::BadRequest,
                    "the body does not match its checksum",
                ));
            }
            Ok(done) => return done,
            Err(_) if exchange.rested() > PAUSE_MAX => {
                let message = format!("nothing has moved for {} s", PAUSE_MAX.as_secs());
                return Err(CatalogError::new(ErrorReason::ServiceUnavailable, message));
            }
            Err(_) => {}
        }
    }
}

/// Returns whether a body is in S3's chunk format.
fn is_cut(headers: &HeaderMap) -> bool {
    let hash = headers.get(CONTENT_SHA256).and_then(|it| it.to_str().ok());
    hash.is_some_and(|it| it.starts_with("STREAMING-"))
}

/// Returns a number in a header.
fn number(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// A file to upload: it has exactly the announced length.
struct FileUpload {
    inner: Body,
    pieces: Option<ChunkedDecoder>,
    /// Received bytes that are not parsed yet.
    input: Bytes,
    left: u64,
    exchange: Arc<SandboxExchange>,
    fence: EffectFence,
}

impl FileUpload {
    fn new(
        inner: Body,
        headers: &HeaderMap,
        exchange: Arc<SandboxExchange>,
        fence: EffectFence,
    ) -> Result<FileUpload> {
        let (pieces, length) = match is_cut(headers) {
            true => (Some(ChunkedDecoder::default()), number(headers, DECODED_LENGTH)),
            false => (None, number(headers, header::CONTENT_LENGTH)),
        };
        let left =
            length.ok_or_else(|| CatalogError::new(ErrorReason::Validation, LENGTH_MISSING))?;
        if left > OBJECT_BYTES_MAX {
            let message = format!("an object is written with at most {OBJECT_BYTES_MAX} bytes");
            return Err(CatalogError::new(ErrorReason::TooLarge, message));
        }
        Ok(FileUpload { inner, pieces, input: Bytes::new(), left, exchange, fence })
    }

    fn fail(
        &mut self,
        why: &'static str,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BodyError>>> {
        self.left = 0;
        self.exchange.note(why);
        Poll::Ready(Some(Err(why.into())))
    }
}

impl HttpBody for FileUpload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BodyError>>> {
        let it = &mut *self;
        loop {
            if it.left == 0 {
                return Poll::Ready(None);
            }
            let piece = match &mut it.pieces {
                None => Some(std::mem::take(&mut it.input)).filter(|it| !it.is_empty()),
                Some(pieces) => match pieces.next(&mut it.input) {
                    Ok(piece) => piece,
                    Err(why) => return it.fail(why),
                },
            };
            if let Some(piece) = piece {
                let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                let Some(left) = it.left.checked_sub(length) else { return it.fail(MALFORMED) };
                if it.fence.check(EffectWay::Catalog).is_err() {
                    return it.fail(LEASE_LOST);
                }
                it.left = left;
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if it.pieces.as_ref().is_some_and(ChunkedDecoder::is_done) {
                return it.fail(MALFORMED);
            }
            match ready!(Pin::new(&mut it.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        it.exchange.sent(data.len());
                        it.input = data;
                    }
                }
                Some(Err(_)) | None => return it.fail("the body is incomplete"),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Returns the parts of the store's response that are passed on. `is_made`: an object was assembled
/// from its parts.
async fn passed(
    parts: &Parts,
    exchange: &Arc<SandboxExchange>,
    answer: node::client::ClientResponse,
    is_made: bool,
) -> Result<Response> {
    let status = answer.status;
    if !status.is_success() && status != StatusCode::NOT_MODIFIED {
        return failed(parts, exchange, answer).await;
    }
    let is_copy = parts.method == Method::PUT && parts.headers.contains_key(COPY_SOURCE);
    if is_copy || is_made {
        return completed_object(answer, is_copy).await;
    }
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let is_passed = |name: &HeaderName| {
        let text = name.as_str();
        ANSWERED.contains(name)
            || text.starts_with("x-amz-meta-")
            || (is_read && text.starts_with("x-amz-checksum-"))
    };
    let mut headers = answer.headers.clone();
    let unknown: Vec<HeaderName> = headers.keys().filter(|it| !is_passed(it)).cloned().collect();
    for name in unknown {
        headers.remove(name);
    }
    let is_empty = parts.method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
    let body = match is_empty {
        true => Body::empty(),
        false => Body::from_stream(stream::try_unfold(answer, async |mut answer| {
            let chunk = answer.chunk().await?;
            Ok::<_, node::client::ClientError>(chunk.map(|chunk| (chunk, answer)))
        })),
    };
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Ok(response)
}

/// Reads a short response.
async fn short(answer: &mut node::client::ClientResponse, bytes_max: usize) -> Result<String> {
    let mut bytes = Vec::new();
    let broken = |error| CatalogError::caused(ErrorReason::ServiceUnavailable, BROKEN_OFF, error);
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        if bytes.len().saturating_add(chunk.len()) > bytes_max {
            break;
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the result of a copy or of assembling an object. Services begin their response before
/// the outcome is known, so an error may follow a status of success.
async fn completed_object(
    mut answer: node::client::ClientResponse,
    is_copy: bool,
) -> Result<Response> {
    let text = short(&mut answer, XML_BYTES_MAX).await?;
    let reply = StoreReply::read(&text);
    let tag = reply.as_ref().filter(|it| it.root != "Error").and_then(|it| it.text_of("ETag"));
    let Some(tag) = tag else {
        let code = reply.and_then(|it| it.text_of("Code")).unwrap_or_default();
        let message = format!("the object store has failed: {}", plain(&code));
        return Err(CatalogError::new(ErrorReason::ServiceUnavailable, message));
    };
    let tag = format!("<ETag>&quot;{}&quot;</ETag>", plain(&tag));
    let text = match is_copy {
        true => {
            let date = reply.and_then(|it| it.text_of("LastModified")).unwrap_or_default();
            let date: String = date.chars().filter(|it| !"<>&".contains(*it)).take(40).collect();
            format!("<CopyObjectResult>{tag}<LastModified>{date}</LastModified></CopyObjectResult>")
        }
        false => {
            format!("<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>")
        }
    };
    Ok(xml(StatusCode::OK, &text))
}

/// Returns a rejection by the store, in the words of this server: the original may reveal the key.
async fn failed(
    parts: &Parts,
    exchange: &Arc<SandboxExchange>,
    mut answer: node::client::ClientResponse,
) -> Result<Response> {
    let status = answer.status;
    let text = match parts.method {
        Method::HEAD => String::new(),
        _ => short(&mut answer, ERROR_BYTES_MAX).await?,
    };
    let code = StoreReply::read(&text).and_then(|it| it.text_of("Code"));
    let code = plain(&code.unwrap_or_default());
    exchange.note(&format!("the object store says {} {code}", status.as_u16()));
    let (status, code): (StatusCode, &str) = match status.as_u16() {
        401 | 403 => (StatusCode::FORBIDDEN, "AccessDenied"),
        404 => (status, if code.is_empty() { "NoSuchKey" } else { &code }),
        304 | 400 | 405 | 408 | 409 | 411 | 412 | 416 | 429 | 503 => (status, &code),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    };
    Ok(xml_error(status, code, "the object store says so"))
}

/// Returns the ASCII letters, digits and hyphens of a text.
fn plain(text: &str) -> String {
    text.chars().filter(|it| it.is_ascii_alphanumeric() || *it == '-').take(100).collect()
}

/// Returns the response for a rejection by this server.
fn refusal(error: &CatalogError) -> Response {
    let (status, code) = match error.kind {
        ErrorReason::BadRequest => (StatusCode::BAD_REQUEST, "InvalidRequest"),
        ErrorReason::TooLarge => (StatusCode::BAD_REQUEST, "EntityTooLarge"),
        ErrorReason::Validation => (StatusCode::LENGTH_REQUIRED, "MissingContentLength"),
        ErrorReason::NoSuchWarehouse => (StatusCode::NOT_FOUND, "NoSuchBucket"),
        ErrorReason::NotFound => (StatusCode::NOT_FOUND, "NoSuchKey"),
        ErrorReason::ServiceUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        ErrorReason::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        _ => (StatusCode::FORBIDDEN, "AccessDenied"),
    };
    if status.is_server_error() {
        let cause = error as &dyn std::error::Error;
        tracing::warn!(error = cause, "a file was not reached for a guest");
    }
    xml_error(status, code, &error.message)
}

fn xml_error(status: StatusCode, code: &str, message: &str) -> Response {
    let escaped = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = format!("<Error><Code>{code}</Code><Message>{escaped}</Message></Error>");
    xml(status, &text)
}

fn xml(status: StatusCode, text: &str) -> Response {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/xml");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
