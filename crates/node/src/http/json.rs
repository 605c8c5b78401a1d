//! A JSON body, or an error with the location and the problem.
//!
//! # References
//! - <https://www.rfc-editor.org/rfc/rfc8259>

mod objects;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::{ErrorCode, json_message};
use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, OptionalFromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::Instant;

use self::objects::ObjectsOnly;
use super::error::HttpError;
use super::shares::{Share, ShareRefusal};

/// Unit of the accounting of bodies' memory: a semaphore counts to 2^29 at least.
const GRANT_UNIT_BYTES: u64 = 1024;

/// Memory reserved at once for a body whose length is declared. More is reserved as it arrives, so
/// that a declaration costs the server no more than it costs the caller.
const RESERVE_BYTES_MAX: u64 = 1 << 20;

/// Budget of a body; the shell adds one to each request.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget {
    /// Maximum size of this body.
    pub(super) bytes_max: u64,
    /// Longest pause between two pieces of it.
    pub(super) pause_max: Duration,
    /// Minimum average of bytes in a second, once `pause_max` has passed.
    pub(super) bytes_per_s_min: u64,
    /// Memory for bodies that this request holds, in units of `GRANT_UNIT_BYTES`, until its handler
    /// has ended.
    pub(super) held: Arc<Mutex<Share>>,
}

impl BodyBudget {
    /// Returns the number of units for a number of bytes.
    pub(super) fn units(bytes: u64) -> u64 {
        bytes.div_ceil(GRANT_UNIT_BYTES)
    }

    /// Accounts for a body of `bytes` in total.
    pub(super) fn grow(&self, bytes: u64) -> Result<(), HttpError> {
        let units = usize::try_from(Self::units(bytes)).unwrap_or(usize::MAX);
        self.held.lock().grow_to(units).map_err(|refusal| {
            let (code, message) = match refusal {
                ShareRefusal::Exhausted => {
                    (ErrorCode::Overloaded, "the server has too many request bodies in memory")
                }
                ShareRefusal::Exceeded => (
                    ErrorCode::TooManyRequests,
                    "your requests have their share of the memory for request bodies; wait for \
                     some of them",
                ),
            };
            HttpError::new(code, message).retry_after(Duration::from_secs(1))
        })
    }

    /// Returns how long to wait for the next piece of a body that began at `began` and of which
    /// `arrived` bytes have arrived.
    pub(super) fn patience(&self, arrived: u64, began: Instant) -> Duration {
        let earned = Duration::from_secs(arrived / self.bytes_per_s_min.max(1));
        let left = self.pause_max.saturating_add(earned).saturating_sub(began.elapsed());
        left.min(self.pause_max)
    }

    /// Returns the error for a body that arrives too slowly.
    pub(super) fn too_slow(&self, patience: Duration) -> HttpError {
        if patience < self.pause_max {
            let pace = self.bytes_per_s_min;
            let message = format!("the request body arrived with less than {pace} bytes a second");
            return HttpError::invalid(message);
        }
        let seconds = self.pause_max.as_secs();
        HttpError::invalid(format!("nothing of the request body arrived for {seconds} s"))
    }

    pub(super) fn too_large(&self) -> HttpError {
        let message = format!("the request body is larger than {} bytes", self.bytes_max);
        HttpError::new(ErrorCode::BodyTooLarge, message)
    }
}

/// Reads a JSON body into `T`. Accepts `application/json`, and `application/x-www-form-urlencoded`
/// because `curl -d @job.json` sends that type.
#[derive(Clone, Copy, Debug)]
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, HttpError> {
        let (parts, body) = request.into_parts();
        check_content_type(&parts.headers)?;
        check_content_encoding(&parts.headers)?;
        let Some(budget) = parts.extensions.get::<BodyBudget>() else {
            tracing::error!("a JSON handler is routed outside of the shell");
            return Err(HttpError::internal());
        };
        let declared = content_length(&parts.headers);
        let bytes = read(body, budget, declared).await?;
        parse_json("the request body", &bytes).map(JsonBody)
    }
}

/// None if there is no body at all.
impl<S: Send + Sync, T: DeserializeOwned> OptionalFromRequest<S> for JsonBody<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, HttpError> {
        if request.body().is_end_stream() {
            return Ok(None);
        }
        <JsonBody<T> as FromRequest<S>>::from_request(request, state).await.map(Some)
    }
}

/// Returns the body's declared length. Hyper has refused any value that is not a number.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Refuses compressed bodies: the server does not decompress them (RFC 9110 §8.4).
fn check_content_encoding(headers: &HeaderMap) -> Result<(), HttpError> {
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    match headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        true => Ok(()),
        false => {
            let message = "the body has a `content-encoding`; send it uncompressed, without one";
            Err(HttpError::new(ErrorCode::UnsupportedMediaType, message))
        }
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let refuse = |found: &str| {
        let message = format!("the content type is {found}; send `content-type: application/json`");
        Err(HttpError::new(ErrorCode::UnsupportedMediaType, message))
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return refuse("missing") };
    let Ok(value) = value.to_str() else { return refuse("not readable") };
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let known = ["application/json", "application/x-www-form-urlencoded"];
    if !known.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        return refuse(&format!("`{}`", essence.escape_default()));
    }
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("charset").then(|| value.trim_matches('"'))
    });
    match charset {
        Some(charset) if !charset.eq_ignore_ascii_case("utf-8") => {
            refuse(&format!("JSON in the charset `{}`", charset.escape_default()))
        }
        _ => Ok(()),
    }
}

/// Reads the whole body within its budget.
pub(super) async fn read(
    mut body: Body,
    budget: &BodyBudget,
    declared: Option<u64>,
) -> Result<Vec<u8>, HttpError> {
    let declared = declared.unwrap_or(0);
    if declared > budget.bytes_max {
        return Err(budget.too_large());
    }
    budget.grow(declared.min(RESERVE_BYTES_MAX))?;
    let reserve = usize::try_from(declared.min(RESERVE_BYTES_MAX)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(reserve);
    let began = Instant::now();
    loop {
        let patience = budget.patience(bytes.len() as u64, began);
        let frame = tokio::time::timeout(patience, body.frame()).await;
        let frame = frame.map_err(|_| budget.too_slow(patience))?;
        let Some(frame) = frame else { return Ok(bytes) };
        // The connection broke or the chunks are malformed; most likely no client reads this
        // answer.
        let frame = frame.map_err(|_| HttpError::invalid("the request body is incomplete"))?;
        // A frame that is not data is a trailer; trailers are ignored.
        let Ok(chunk) = frame.into_data() else { continue };
        let total = u64::try_from(bytes.len().saturating_add(chunk.len())).unwrap_or(u64::MAX);
        if total > budget.bytes_max {
            return Err(budget.too_large());
        }
        budget.grow(total)?;
        bytes.extend_from_slice(&chunk);
    }
}

/// Parses a document, and nothing after it: for faces that read bodies, or messages, by themselves.
/// `what` is the document's name in errors, such as `the request body`.
///
/// # Errors
/// `InvalidRequest`, with the problem in terms of JSON, and the field.
pub fn parse_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, HttpError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(HttpError::invalid(format!("{what} is empty; send a JSON object")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        HttpError::invalid(format!("{what} is not UTF-8: byte {at} (from 0) does not fit"))
    })?;
    let describe = |error: &serde_json::Error, path: &str| match error.classify() {
        Category::Data => misfit(what, error, path),
        Category::Syntax | Category::Eof | Category::Io => {
            let why = json_message::broken(text, &error.to_string());
            HttpError::invalid(format!("{what} is not JSON: {why}"))
        }
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(ObjectsOnly(&mut json)).map_err(|error| {
        let path = error.path().to_string();
        describe(error.inner(), &path)
    })?;
    json.end().map_err(|error| describe(&error, "."))?;
    Ok(value)
}

/// Returns a message of serde_json in terms of JSON, for readers that do not use [`parse_json`].
pub fn plain_json_error(error: &serde_json::Error) -> String {
    json_message::plain(&error.to_string())
}

/// Returns the error for a document with wrong content. `path` is `.` at the top.
fn misfit(what: &str, error: &serde_json::Error, path: &str) -> HttpError {
    let message = error.to_string();
    // For these two the path ends at the object that has the field, or lacks it.
    let prefixes = ["missing field `", "duplicate field `"];
    let rest = prefixes.iter().find_map(|prefix| message.strip_prefix(prefix));
    let name = rest.and_then(|rest| rest.split_once('`')).map(|(name, _)| name);
    let field = match (path, name) {
        ("." | "?", name) => name.map(str::to_owned),
        (path, Some(name)) if !path.ends_with(name) => Some(format!("{path}.{name}")),
        (path, _) => Some(path.to_owned()),
    };
    let message = json_message::plain(&message);
    match field {
        Some(field) => HttpError::invalid(message).at(field),
        None => HttpError::invalid(format!("{what}: {message}")),
    }
}
