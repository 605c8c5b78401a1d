//! Why something was not done: whose fault it is, and whether to try again.

use std::time::Duration;

use api::ErrorCode;
use node::http;
use node::store::SqlStoreError;
use sandbox::SandboxError;

/// When it is worth trying again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be carried out as it is.
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    /// What is granted cannot be, or not by this caller.
    #[error("{}", .0.detail().message)]
    Grant(Box<http::Error>),
    /// There is no such thing, or none that this caller may know of. Says what was looked for.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// It is not in a state that allows this.
    #[error("{0}")]
    Conflict(String),
    /// It is over for ever.
    #[error("the session has ended")]
    Ended,
    /// This caller has as many as it may.
    #[error("{0}")]
    TooMany(String),
    /// There is no room, and nothing that could give way.
    #[error("sandbox capacity reached and no evictable sandboxes (all running)")]
    Capacity,
    /// The server's disk is too full for more; how full.
    #[error("{0}")]
    DiskFull(String),
    /// This server has no sessions; why.
    #[error("sessions are not available on this server: {0}")]
    NotHere(String),
    /// The program or the agent in the sandbox failed.
    #[error("{0}")]
    Agent(String),
    /// The sandbox went away while it was used.
    #[error("the sandbox ended: {0}")]
    SandboxEnded(String),
    /// The store or the object store cannot be reached.
    #[error("the store cannot be reached at present")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Cove failed; the cause is for the log.
    #[error("the server failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SessionRefusal {
    /// Path of the offending field: `limits.memory_bytes`, `files[2].path`.
    pub field: String,
    /// One sentence for a person.
    pub message: String,
}

impl Error {
    /// A field has a value that it cannot have.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Refused(SessionRefusal { field: field.into(), message: message.into() })
    }

    /// Cove failed at this.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Internal(cause.into())
    }

    /// What to match on.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Refused(_) => ErrorCode::InvalidRequest,
            Error::Grant(error) => error.detail().code,
            Error::NotFound(_) => ErrorCode::NotFound,
            Error::Conflict(_) | Error::Agent(_) | Error::SandboxEnded(_) => ErrorCode::Conflict,
            Error::Ended => ErrorCode::Gone,
            Error::TooMany(_) => ErrorCode::TooManyRequests,
            Error::Capacity | Error::DiskFull(_) | Error::NotHere(_) | Error::Unavailable(_) => {
                ErrorCode::Overloaded
            }
            Error::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<http::Error> for Error {
    fn from(error: http::Error) -> Error {
        Error::Grant(Box::new(error))
    }
}

impl From<SqlStoreError> for Error {
    fn from(error: SqlStoreError) -> Error {
        Error::Unavailable(Box::new(error))
    }
}

impl From<SandboxError> for Error {
    fn from(error: SandboxError) -> Error {
        match error {
            // Nobody has noticed yet, or it ended meanwhile.
            SandboxError::Lost(how) => Error::SandboxEnded(how.to_owned()),
            other => Error::Internal(Box::new(other)),
        }
    }
}

impl From<Error> for http::Error {
    fn from(error: Error) -> http::Error {
        if let Error::Internal(cause) | Error::Unavailable(cause) = &error {
            tracing::error!(error = &**cause as &dyn std::error::Error, "failed");
        }
        if let Error::Grant(error) = error {
            return *error;
        }
        let code = error.code();
        let mut answer = http::Error::new(code, error.to_string());
        if let Error::Refused(refusal) = &error {
            answer = answer.at(refusal.field.clone());
        }
        match code {
            ErrorCode::Overloaded | ErrorCode::TooManyRequests => answer.retry_after(RETRY_AFTER),
            _ => answer,
        }
    }
}
