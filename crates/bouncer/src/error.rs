//! Why something about tenants was not done: whose fault it is, and whether to try again.

use std::time::Duration;

use api::ErrorCode;
use node::http;
use node::sealed::SealError;
use node::store::StoreError;

use crate::tenants::Refusal;

/// When it is worth trying again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be carried out as it is.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such tenant.
    #[error("there is no such tenant")]
    NotFound,
    /// The token may not do this.
    #[error("only an operator's token may see and change databases")]
    Forbidden,
    /// It is not in a state that allows this.
    #[error("{0}")]
    Conflict(String),
    /// There is no bouncer here; why.
    #[error("the bouncer is not available on this server: {0}")]
    NotHere(String),
    /// The store cannot be reached.
    #[error("the store cannot be reached at present")]
    Unavailable(#[source] StoreError),
    /// Cove failed; the cause is for the log.
    #[error("the server failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Cove failed at this.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Internal(cause.into())
    }

    /// What to match on.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Refused(_) => ErrorCode::InvalidRequest,
            Error::NotFound => ErrorCode::NotFound,
            Error::Forbidden => ErrorCode::Forbidden,
            Error::Conflict(_) => ErrorCode::Conflict,
            Error::NotHere(_) | Error::Unavailable(_) => ErrorCode::Overloaded,
            Error::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<StoreError> for Error {
    /// The transaction's own reason, or the store's: not now, or not like this.
    fn from(error: StoreError) -> Error {
        match error.refusal::<Error>() {
            Ok(reason) => reason,
            Err(error @ (StoreError::OutcomeUnknown(_) | StoreError::Closed)) => {
                Error::Unavailable(error)
            }
            Err(error) if error.is_temporary() => Error::Unavailable(error),
            Err(error) => Error::internal(error),
        }
    }
}

impl From<SealError> for Error {
    fn from(error: SealError) -> Error {
        Error::internal(error)
    }
}

impl From<Error> for http::Error {
    fn from(error: Error) -> http::Error {
        match &error {
            Error::Internal(cause) => {
                tracing::error!(error = &**cause as &dyn std::error::Error, "failed");
            }
            Error::Unavailable(cause) => {
                tracing::error!(error = cause as &dyn std::error::Error, "failed");
            }
            Error::Refused(_)
            | Error::NotFound
            | Error::Forbidden
            | Error::Conflict(_)
            | Error::NotHere(_) => {}
        }
        let code = error.code();
        let mut answer = http::Error::new(code, error.to_string());
        if let Error::Refused(refusal) = &error {
            answer = answer.at(refusal.field.clone());
        }
        match code {
            ErrorCode::Overloaded => answer.retry_after(RETRY_AFTER),
            _ => answer,
        }
    }
}
