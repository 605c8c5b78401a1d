//! Arguments of handlers, and their errors.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use node::auth::TokenPrincipal;
use node::http::UploadBody;
use sandbox::FilesError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{AshContext, ids};
use crate::error::SessionError;
use crate::service::Sessions;

/// Maximum bytes of a body, unless the server's limit is lower.
const BODY_BYTES_MAX: u64 = 144 << 20;

/// Answer of most handlers.
pub(super) type Answer = Result<Json<Value>, AshFailure>;

/// Caller of a request, with the service.
#[derive(Clone, Debug)]
pub(super) struct AshCaller {
    pub(super) face: AshContext,
    pub(super) tenant: Arc<str>,
}

impl AshCaller {
    pub(super) fn sessions(&self) -> &Sessions {
        &self.face.sessions
    }
}

impl FromRequestParts<AshContext> for AshCaller {
    type Rejection = node::http::HttpError;

    async fn from_request_parts(
        parts: &mut Parts,
        face: &AshContext,
    ) -> Result<Self, Self::Rejection> {
        let who = TokenPrincipal::from_request_parts(parts, face).await?;
        Ok(AshCaller { face: face.clone(), tenant: who.tenant })
    }
}

/// A JSON body. An empty body counts as an empty object: Python's client announces JSON and sends
/// nothing.
#[derive(Debug)]
pub(super) struct AshBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AshContext> for AshBody<T> {
    type Rejection = AshFailure;

    async fn from_request(request: Request, face: &AshContext) -> Result<Self, AshFailure> {
        let bytes = UploadBody::from_request(request, face).await?.all(BODY_BYTES_MAX).await?;
        let text: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        match node::http::parse_json("the body", text) {
            Ok(body) => Ok(AshBody(body)),
            Err(error) => Err(AshFailure::bad(format!("body: {error}"))),
        }
    }
}

/// Query string.
#[derive(Debug)]
pub(super) struct AshQuery<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AshContext> for AshQuery<T> {
    type Rejection = AshFailure;

    async fn from_request_parts(parts: &mut Parts, _: &AshContext) -> Result<Self, AshFailure> {
        Ok(AshQuery(node::http::query(&parts.uri)?))
    }
}

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AshFailure {
    status: StatusCode,
    error: String,
    retry_after: Option<HeaderValue>,
}

impl AshFailure {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> AshFailure {
        AshFailure { status, error: error.into(), retry_after: None }
    }

    pub(super) fn bad(error: impl Into<String>) -> AshFailure {
        AshFailure::new(StatusCode::BAD_REQUEST, error)
    }

    pub(super) fn not_found(error: impl Into<String>) -> AshFailure {
        AshFailure::new(StatusCode::NOT_FOUND, error)
    }

    /// Creates an internal error; the cause is only logged.
    pub(super) fn internal(
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> AshFailure {
        AshFailure::from(SessionError::internal(cause))
    }
}

impl From<SessionError> for AshFailure {
    fn from(error: SessionError) -> AshFailure {
        match error {
            SessionError::NotFound(what) => {
                let what = match what {
                    "agent version" => "Version",
                    "folder" | "file" => "File",
                    "agent" => "Agent",
                    "session" => "Session",
                    "credential" => "Credential",
                    "attachment" => "Attachment",
                    other => return AshFailure::not_found(format!("there is no such {other}")),
                };
                AshFailure::not_found(format!("{what} not found"))
            }
            // Ash treats a session in the wrong state, and an agent that cannot be built, as the
            // caller's mistakes.
            SessionError::Conflict(text) | SessionError::Agent(text) => AshFailure::bad(text),
            SessionError::OnAnotherServer { is_node: false } => AshFailure::bad(error.to_string()),
            SessionError::SandboxEnded(_) => {
                AshFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
            other @ (SessionError::Refused(_)
            | SessionError::Grant(_)
            | SessionError::Ended
            | SessionError::TooMany(_)
            | SessionError::Capacity
            | SessionError::DiskFull(_)
            | SessionError::NotHere(_)
            | SessionError::Away(_)
            | SessionError::OnAnotherServer { is_node: true }
            | SessionError::Unavailable(_)
            | SessionError::Internal(_)) => AshFailure::from(node::http::HttpError::from(other)),
        }
    }
}

impl From<node::http::HttpError> for AshFailure {
    fn from(error: node::http::HttpError) -> AshFailure {
        let mut failure = AshFailure::new(error.status(), error.to_string());
        let native = error.into_response();
        failure.retry_after = native.headers().get(header::RETRY_AFTER).cloned();
        failure
    }
}

impl From<FilesError> for AshFailure {
    fn from(error: FilesError) -> AshFailure {
        let text = error.to_string();
        match error {
            FilesError::NotFound | FilesError::NotADirectory => {
                AshFailure::not_found("File not found")
            }
            FilesError::IsADirectory => AshFailure::bad("Path is not a file"),
            FilesError::Exists
            | FilesError::PermissionDenied
            | FilesError::NotEmpty
            | FilesError::NoSpace
            | FilesError::TooLarge(_)
            | FilesError::Invalid(_) => AshFailure::bad(text),
            FilesError::TooMany(_) => AshFailure::new(StatusCode::TOO_MANY_REQUESTS, text),
            FilesError::Lost => AshFailure::new(StatusCode::INTERNAL_SERVER_ERROR, text),
            FilesError::Io(cause) => AshFailure::internal(cause),
        }
    }
}

impl IntoResponse for AshFailure {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.error, "statusCode": self.status.as_u16() });
        let mut response = (self.status, Json(body)).into_response();
        if let Some(value) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}

/// Renders the shell's own errors in Ash's format.
pub(super) fn render(error: &node::http::HttpError) -> Response {
    let mut failure = AshFailure::from(error.clone());
    if failure.status == StatusCode::UNAUTHORIZED {
        // Messages that Ash's clients look for.
        let text = match error.is_unknown_token() {
            true => "Invalid API key",
            false => "Missing Authorization header",
        };
        failure.error = text.to_owned();
    }
    failure.into_response()
}

/// Returns the session id for a UUID in a path.
pub(super) fn session_id(uuid: &str) -> Result<String, AshFailure> {
    ids::ours(ids::SESSION, uuid).ok_or_else(|| AshFailure::not_found("Session not found"))
}

/// Returns the response of a creation.
pub(super) fn created(body: Value) -> Response {
    (StatusCode::CREATED, Json(body)).into_response()
}

/// Returns the response of a removal. Not empty, because clients parse JSON from every response.
pub(super) fn removed() -> Json<Value> {
    Json(json!({ "ok": true }))
}

/// Returns an object with its fields twice: at the top level, and under `name`. Ash's server sends
/// the former, and its clients expect the latter.
pub(super) fn flat_and_named(name: &str, value: Value) -> Value {
    let mut all = value.clone();
    if let Value::Object(fields) = &mut all {
        fields.insert(name.to_owned(), value);
    }
    all
}

#[cfg(test)]
mod tests {
    //! Errors with their messages and statuses.

    use http_body_util::BodyExt as _;

    use super::*;

    async fn check(response: Response, status: u16, error: &str) {
        assert_eq!(response.status().as_u16(), status, "{error}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "error": error, "statusCode": status }));
    }

    #[tokio::test]
    async fn errors_have_ashs_shape() {
        let full = "sandbox capacity reached and no evictable sandboxes (all running)";
        for (error, status, text) in [
            (SessionError::NotFound("session"), 404, "Session not found"),
            (SessionError::NotFound("agent version"), 404, "Version not found"),
            (SessionError::Conflict("busy".to_owned()), 400, "busy"),
            (SessionError::invalid("env.A", "is bad"), 400, "env.A: is bad"),
            (SessionError::Ended, 410, "the session has ended"),
            (SessionError::TooMany("many".to_owned()), 429, "many"),
            (SessionError::Capacity, 503, full),
        ] {
            check(AshFailure::from(error).into_response(), status, text).await;
        }
    }

    #[tokio::test]
    async fn who_has_no_key_is_told_apart_from_who_has_a_wrong_one() {
        let nobody = node::http::HttpError::unauthenticated();
        check(render(&nobody), 401, "Missing Authorization header").await;
        let wrong = node::http::HttpError::unknown_token();
        check(render(&wrong), 401, "Invalid API key").await;
    }

    #[test]
    fn an_error_says_when_to_come_back() {
        let response = AshFailure::from(SessionError::Capacity).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
}
