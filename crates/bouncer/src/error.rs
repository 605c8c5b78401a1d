//! Errors of operations on tenants: which side is at fault, and whether to retry.

use std::time::Duration;

use api::ErrorCode;
use node::http;
use node::sealed::SealError;
use node::store::SqlStoreError;

use crate::tenants::DefinitionError;

/// Time after which a retry is worthwhile.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Error of an operation on tenants.
#[derive(Debug, thiserror::Error)]
pub enum BouncerError {
    /// The request cannot be carried out as it is.
    #[error(transparent)]
    Refused(#[from] DefinitionError),
    /// There is no such tenant.
    #[error("there is no such tenant")]
    NotFound,
    /// The token may not do this.
    #[error("only an operator's token may see and change databases")]
    Forbidden,
    /// The state does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// This server runs no bouncer, for the given reason.
    #[error("the bouncer is not available on this server: {0}")]
    NotHere(String),
    /// The store cannot be reached.
    #[error("the store cannot be reached at present")]
    Unavailable(#[source] SqlStoreError),
    /// The store has no room.
    #[error("the disk of the store is full")]
    StoreFull(#[source] SqlStoreError),
    /// Cove failed; the cause is for the log.
    #[error("the server failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl BouncerError {
    /// Cove failed at this.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> BouncerError {
        BouncerError::Internal(cause.into())
    }

    /// Returns the code that clients match on.
    pub fn code(&self) -> ErrorCode {
        match self {
            BouncerError::Refused(_) => ErrorCode::InvalidRequest,
            BouncerError::NotFound => ErrorCode::NotFound,
            BouncerError::Forbidden => ErrorCode::Forbidden,
            BouncerError::Conflict(_) => ErrorCode::Conflict,
            BouncerError::NotHere(_)
            | BouncerError::Unavailable(_)
            | BouncerError::StoreFull(_) => ErrorCode::Overloaded,
            BouncerError::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<SqlStoreError> for BouncerError {
    /// Classifies the transaction's own error, or the store's: temporary or permanent.
    fn from(error: SqlStoreError) -> BouncerError {
        match error.refusal::<BouncerError>() {
            Ok(reason) => reason,
            Err(error @ (SqlStoreError::OutcomeUnknown(_) | SqlStoreError::Closed)) => {
                BouncerError::Unavailable(error)
            }
            Err(error @ SqlStoreError::Full(_)) => BouncerError::StoreFull(error),
            Err(error) if error.is_temporary() => BouncerError::Unavailable(error),
            Err(error) => BouncerError::internal(error),
        }
    }
}

impl From<SealError> for BouncerError {
    fn from(error: SealError) -> BouncerError {
        BouncerError::internal(error)
    }
}

impl From<BouncerError> for http::HttpError {
    fn from(error: BouncerError) -> http::HttpError {
        match &error {
            BouncerError::Internal(cause) => {
                tracing::error!(error = &**cause as &dyn std::error::Error, "failed");
            }
            BouncerError::Unavailable(cause) | BouncerError::StoreFull(cause) => {
                tracing::error!(error = cause as &dyn std::error::Error, "failed");
            }
            BouncerError::Refused(_)
            | BouncerError::NotFound
            | BouncerError::Forbidden
            | BouncerError::Conflict(_)
            | BouncerError::NotHere(_) => {}
        }
        let code = error.code();
        let mut answer = http::HttpError::new(code, error.to_string());
        if let BouncerError::Refused(refusal) = &error {
            answer = answer.at(refusal.field.clone());
        }
        match code {
            ErrorCode::Overloaded => answer.retry_after(RETRY_AFTER),
            _ => answer,
        }
    }
}
