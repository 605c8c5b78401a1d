//! Errors in E2B's two forms: statuses over REST, code words over Connect.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use node::http;
use sandbox::FilesError;
use serde_json::{Value, json};

use crate::error::SessionError;

/// An error over REST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RestError {
    status: StatusCode,
    message: String,
    retry_after: Option<u64>,
}

impl RestError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> RestError {
        RestError { status, message: message.into(), retry_after: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> RestError {
        RestError::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn unauthenticated() -> RestError {
        let message = "the access token or the signature is missing, wrong, or for something else";
        RestError::new(StatusCode::UNAUTHORIZED, message)
    }

    /// Creates the error for a sandbox that does not exist or belongs to another caller.
    pub(super) fn no_sandbox(id: &str) -> RestError {
        let message = format!("sandbox \"{}\" not found", shown(id));
        RestError::new(StatusCode::NOT_FOUND, message)
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<SessionError> for RestError {
    fn from(error: SessionError) -> RestError {
        let ended = matches!(error, SessionError::Ended);
        let mut shown = RestError::from(http::HttpError::from(error));
        if ended {
            // For E2B, an ended sandbox does not exist.
            shown.status = StatusCode::NOT_FOUND;
        }
        shown
    }
}

impl From<http::HttpError> for RestError {
    fn from(error: http::HttpError) -> RestError {
        let message = match &error.detail().field {
            Some(field) => format!("{field}: {error}"),
            None => error.to_string(),
        };
        let retry = matches!(
            error.status(),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        );
        RestError { status: error.status(), message, retry_after: retry.then_some(1) }
    }
}

impl From<FilesError> for RestError {
    fn from(error: FilesError) -> RestError {
        let status = match &error {
            FilesError::NotFound => StatusCode::NOT_FOUND,
            FilesError::Exists
            | FilesError::NotADirectory
            | FilesError::IsADirectory
            | FilesError::NotEmpty
            | FilesError::Invalid(_) => StatusCode::BAD_REQUEST,
            FilesError::PermissionDenied => StatusCode::FORBIDDEN,
            FilesError::NoSpace | FilesError::TooLarge(_) => StatusCode::INSUFFICIENT_STORAGE,
            FilesError::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            FilesError::Lost => StatusCode::BAD_GATEWAY,
            FilesError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        RestError::new(status, error.to_string())
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.status.as_u16(), "message": self.message });
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Renders the shell's own errors in E2B's format.
pub fn render(error: &http::HttpError) -> Response {
    RestError::from(error.clone()).into_response()
}

/// Returns the response for a sandbox that does not run. Clients match this text.
pub(super) fn not_running(id: &str) -> Response {
    let body = json!({
        "sandboxId": shown(id),
        "message": "The sandbox was not found",
        "code": StatusCode::BAD_GATEWAY.as_u16(),
    });
    (StatusCode::BAD_GATEWAY, Json(body)).into_response()
}

/// Returns the response for a port without a listening program.
pub(super) fn port_closed(id: &str, port: u16) -> Response {
    let body = json!({
        "sandboxId": shown(id),
        "message": "The sandbox is running but port is not open",
        "port": port,
        "code": StatusCode::BAD_GATEWAY.as_u16(),
    });
    (StatusCode::BAD_GATEWAY, Json(body)).into_response()
}

/// Returns the part of a caller's text that an error repeats.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

/// An error over Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    code: &'static str,
    message: String,
}

impl RpcError {
    /// Creates an error with one of Connect's codes.
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> RpcError {
        RpcError::new("invalid_argument", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> RpcError {
        RpcError::new("not_found", message)
    }

    /// Creates the error that ends a stream when its sandbox ends, in E2B's wording.
    pub(super) fn sandbox_ended() -> RpcError {
        RpcError::new("unavailable", "the sandbox was killed or reached its end of life")
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    pub(super) fn body(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }

    /// Returns the HTTP status for the code of a unary answer (table in Connect's protocol
    /// specification).
    fn status(&self) -> StatusCode {
        match self.code {
            "invalid_argument" | "failed_precondition" | "out_of_range" => StatusCode::BAD_REQUEST,
            "unauthenticated" => StatusCode::UNAUTHORIZED,
            "permission_denied" => StatusCode::FORBIDDEN,
            "not_found" => StatusCode::NOT_FOUND,
            "already_exists" | "aborted" => StatusCode::CONFLICT,
            "resource_exhausted" => StatusCode::TOO_MANY_REQUESTS,
            "unimplemented" => StatusCode::NOT_IMPLEMENTED,
            "unavailable" => StatusCode::SERVICE_UNAVAILABLE,
            "deadline_exceeded" => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<SessionError> for RpcError {
    fn from(error: SessionError) -> RpcError {
        let shown = http::HttpError::from(error);
        let code = match shown.status().as_u16() {
            400 => "invalid_argument",
            401 => "unauthenticated",
            403 => "permission_denied",
            404 => "not_found",
            409 => "failed_precondition",
            410 | 503 => "unavailable",
            413 | 429 => "resource_exhausted",
            _ => "internal",
        };
        RpcError::new(code, shown.to_string())
    }
}

impl From<http::HttpError> for RpcError {
    fn from(error: http::HttpError) -> RpcError {
        let code = match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::SERVICE_UNAVAILABLE => "resource_exhausted",
            status if status.is_client_error() => "invalid_argument",
            _ => "internal",
        };
        RpcError::new(code, error.to_string())
    }
}

impl From<FilesError> for RpcError {
    fn from(error: FilesError) -> RpcError {
        let code = match &error {
            FilesError::NotFound => "not_found",
            FilesError::Exists => "already_exists",
            FilesError::NotADirectory | FilesError::IsADirectory | FilesError::Invalid(_) => {
                "invalid_argument"
            }
            FilesError::NotEmpty => "failed_precondition",
            FilesError::PermissionDenied => "permission_denied",
            FilesError::NoSpace | FilesError::TooLarge(_) | FilesError::TooMany(_) => {
                "resource_exhausted"
            }
            FilesError::Lost => "unavailable",
            FilesError::Io(_) => "internal",
        };
        RpcError::new(code, error.to_string())
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        (self.status(), Json(self.body())).into_response()
    }
}

#[cfg(test)]
mod tests {
    //! Clients choose their exceptions by these codes.

    use super::*;

    #[test]
    fn what_has_ended_is_not_there_and_what_is_full_may_be_tried_again() {
        for (error, status) in [
            (SessionError::Ended, 404),
            (SessionError::NotFound("session"), 404),
            (SessionError::Capacity, 503),
            (SessionError::TooMany("x".to_owned()), 429),
            (SessionError::Conflict("x".to_owned()), 409),
            (SessionError::invalid("env", "x"), 400),
        ] {
            let text = error.to_string();
            let shown = RestError::from(error);
            assert_eq!(shown.status().as_u16(), status, "{text}");
            let has_retry = shown.into_response().headers().contains_key(header::RETRY_AFTER);
            assert_eq!(has_retry, [429, 503].contains(&status), "{text}");
        }
    }

    #[test]
    fn files_have_connects_words() {
        for (error, code, status) in [
            (FilesError::NotFound, "not_found", 404),
            (FilesError::Exists, "already_exists", 409),
            (FilesError::NotADirectory, "invalid_argument", 400),
            (FilesError::NoSpace, "resource_exhausted", 429),
            (FilesError::Lost, "unavailable", 503),
        ] {
            let error = RpcError::from(error);
            assert_eq!((error.code(), error.status().as_u16()), (code, status));
        }
    }
}
