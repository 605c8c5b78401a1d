//! Errors of HTTP requests.

use std::fmt;
use std::time::Duration;

use api::{ErrorBody, ErrorCode, ErrorDetail};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::auth::TokenScope;
use crate::issuers::{FETCH_INTERVAL, IssuerError};

/// A response with a status of 400 or above. Its text is for the caller; details for the operator
/// are in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    detail: ErrorDetail,
    retry_after: Option<Duration>,
    is_unknown_token: bool,
}

impl HttpError {
    /// Creates an error with a message: one sentence, lower case, no period.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> HttpError {
        HttpError {
            detail: ErrorDetail { code, message: message.into(), field: None, retry: false },
            retry_after: None,
            is_unknown_token: false,
        }
    }

    /// Returns the error for a malformed request.
    pub fn invalid(message: impl Into<String>) -> HttpError {
        HttpError::new(ErrorCode::InvalidRequest, message)
    }

    /// Returns the error for a failure of the server. The log has the details under the request's
    /// id.
    pub fn internal() -> HttpError {
        HttpError::new(ErrorCode::Internal, "the server failed; its log has the details")
    }

    /// Returns the error for a missing or unknown token.
    pub fn unauthenticated() -> HttpError {
        let message = "a valid token is needed: `authorization: Bearer <token>`; \
                       the owner of the server gets one with `cove token`";
        HttpError::new(ErrorCode::Unauthenticated, message)
    }

    /// Returns the error for an unknown token. The native face uses the same text as for a missing
    /// one.
    pub fn unknown_token() -> HttpError {
        HttpError { is_unknown_token: true, ..HttpError::unauthenticated() }
    }

    /// Returns whether there was an unknown token: some faces distinguish that from a missing one.
    pub fn is_unknown_token(&self) -> bool {
        self.is_unknown_token
    }

    /// Returns the error for a token that cannot be verified at present.
    pub fn issuer_down(error: &IssuerError) -> HttpError {
        HttpError::new(ErrorCode::Overloaded, error.to_string()).retry_after(FETCH_INTERVAL)
    }

    /// Returns the error for a token without the scope.
    pub fn missing_scope(scope: TokenScope) -> HttpError {
        HttpError::new(ErrorCode::Forbidden, format!("this token lacks the scope `{scope}`"))
    }

    /// Returns the error for a token without operator rights.
    pub fn operators_only() -> HttpError {
        HttpError::new(ErrorCode::Forbidden, "only an operator's token may do this")
    }

    /// Returns the error for a server that is shutting down.
    pub fn draining() -> HttpError {
        let message = "the server is shutting down";
        HttpError::new(ErrorCode::Draining, message).retry_after(Duration::from_secs(5))
    }

    /// Names the invalid field: `limits.cpu_ms`.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> HttpError {
        self.detail.field = Some(field.into());
        self
    }

    /// Adds the time after which a retry may succeed.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> HttpError {
        self.detail.retry = true;
        self.retry_after = Some(wait);
        self
    }

    /// Returns the error as sent to the caller.
    pub fn detail(&self) -> &ErrorDetail {
        &self.detail
    }

    /// Returns the status for the code.
    pub fn status(&self) -> StatusCode {
        status(self.detail.code)
    }
}

fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::InvalidRequest | ErrorCode::UnknownLanguage | ErrorCode::LanguageUnavailable => {
            StatusCode::BAD_REQUEST
        }
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::Conflict => StatusCode::CONFLICT,
        ErrorCode::Gone => StatusCode::GONE,
        ErrorCode::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorCode::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
        ErrorCode::NodeLost => StatusCode::BAD_GATEWAY,
        ErrorCode::Overloaded | ErrorCode::Draining => StatusCode::SERVICE_UNAVAILABLE,
        // `ErrorCode` grows with the services; an unknown code counts as the server's fault.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail.field {
            Some(field) => write!(f, "{field}: {}", self.detail.message),
            None => f.write_str(&self.detail.message),
        }
    }
}

impl std::error::Error for HttpError {}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let status = self.status();
        let code = self.detail.code;
        let original = self.clone();
        let mut response = (status, axum::Json(ErrorBody { error: self.detail })).into_response();
        // For the shell, which renders it in another form for other systems' clients.
        response.extensions_mut().insert(original);
        let headers = response.headers_mut();
        if code == ErrorCode::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up: 0 would mean "at once".
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}
