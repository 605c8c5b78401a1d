//! Errors as callers see them.

use std::fmt;
use std::time::Duration;

use api::{ErrorBody, ErrorCode, ErrorDetail};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::auth::TokenScope;
use crate::issuers::{FETCH_INTERVAL, IssuerError};

/// An answer with a status of 400 or above. What it says is meant for the caller; what the operator
/// needs to know goes to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    detail: ErrorDetail,
    retry_after: Option<Duration>,
    is_unknown_token: bool,
}

impl HttpError {
    /// An error with a message: one sentence, lower case, no period.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> HttpError {
        HttpError {
            detail: ErrorDetail { code, message: message.into(), field: None, retry: false },
            retry_after: None,
            is_unknown_token: false,
        }
    }

    /// The request is malformed.
    pub fn invalid(message: impl Into<String>) -> HttpError {
        HttpError::new(ErrorCode::InvalidRequest, message)
    }

    /// The server failed. The log has the details under the request's id.
    pub fn internal() -> HttpError {
        HttpError::new(ErrorCode::Internal, "the server failed; its log has the details")
    }

    /// No token, or none that is known.
    pub fn unauthenticated() -> HttpError {
        let message = "a valid token is needed: `authorization: Bearer <token>`; \
                       the owner of the server gets one with `cove token`";
        HttpError::new(ErrorCode::Unauthenticated, message)
    }

    /// A token that is not known. Natively that is said in the same words as that there is none.
    pub fn unknown_token() -> HttpError {
        HttpError { is_unknown_token: true, ..HttpError::unauthenticated() }
    }

    /// Returns whether there was a token, which is not known: some faces tell that apart.
    pub fn is_unknown_token(&self) -> bool {
        self.is_unknown_token
    }

    /// Refusal while nobody can say whether a token is good.
    pub fn issuer_down(error: &IssuerError) -> HttpError {
        HttpError::new(ErrorCode::Overloaded, error.to_string()).retry_after(FETCH_INTERVAL)
    }

    /// The token is not for this.
    pub fn missing_scope(scope: TokenScope) -> HttpError {
        HttpError::new(ErrorCode::Forbidden, format!("this token lacks the scope `{scope}`"))
    }

    /// The token is not an operator's.
    pub fn operators_only() -> HttpError {
        HttpError::new(ErrorCode::Forbidden, "only an operator's token may do this")
    }

    /// The server shuts down.
    pub fn draining() -> HttpError {
        let message = "the server is shutting down";
        HttpError::new(ErrorCode::Draining, message).retry_after(Duration::from_secs(5))
    }

    /// Names the field that is wrong: `limits.cpu_ms`.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> HttpError {
        self.detail.field = Some(field.into());
        self
    }

    /// Adds that the request may succeed after this time.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> HttpError {
        self.detail.retry = true;
        self.retry_after = Some(wait);
        self
    }

    /// Returns what the caller is told.
    pub fn detail(&self) -> &ErrorDetail {
        &self.detail
    }

    /// The status that goes with the code.
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
        // `ErrorCode` grows with the services; a code that is not known here is the server's fault.
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
        // For the shell, which gives it another shape where another system's clients expect one.
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
