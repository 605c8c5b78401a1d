//! Errors of the service, with their cause and whether a retry may help.

use std::time::Duration;

use api::ErrorCode;
use node::cluster::SubjectMoved;
use node::http;
use node::store::SqlStoreError;
use sandbox::SandboxError;

/// Delay before a retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Error of an operation.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The request is invalid.
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    /// The grant is impossible, or not allowed to this caller.
    #[error("{}", .0.detail().message)]
    Grant(Box<http::HttpError>),
    /// The object does not exist, or belongs to another tenant. Contains the kind of object.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The state does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// The session has ended for good.
    #[error("the session has ended")]
    Ended,
    /// This caller has reached a limit.
    #[error("{0}")]
    TooMany(String),
    /// There is no room, and nothing can be evicted.
    #[error("sandbox capacity reached and no evictable sandboxes (all running)")]
    Capacity,
    /// The server's disk is almost full, with details.
    #[error("{0}")]
    DiskFull(String),
    /// This server has no sessions, with the reason.
    #[error("sessions are not available on this server: {0}")]
    NotHere(String),
    /// Another server owns the session.
    #[error("the session is on another server")]
    OnAnotherServer {
        /// True in a cluster, whose nodes forward requests: the owner is unreachable, or has just
        /// claimed the session.
        is_node: bool,
    },
    /// Temporarily impossible, with the reason.
    #[error("{0}")]
    Away(String),
    /// The program or the agent in the sandbox failed.
    #[error("{0}")]
    Agent(String),
    /// The sandbox ended during the operation.
    #[error("the sandbox ended: {0}")]
    SandboxEnded(String),
    /// The store or the object store cannot be reached.
    #[error("the store cannot be reached at present")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Internal error; the cause is only logged.
    #[error("the server failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SessionRefusal {
    /// Path of the offending field: `limits.memory_bytes`, `files[2].path`.
    pub field: String,
    /// Sentence for users.
    pub message: String,
}

impl SessionError {
    /// Creates an error for an invalid field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> SessionError {
        SessionError::Refused(SessionRefusal { field: field.into(), message: message.into() })
    }

    /// Creates an internal error.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SessionError {
        SessionError::Internal(cause.into())
    }

    /// Returns the error's code.
    pub fn code(&self) -> ErrorCode {
        match self {
            SessionError::Refused(_) => ErrorCode::InvalidRequest,
            SessionError::Grant(error) => error.detail().code,
            SessionError::NotFound(_) => ErrorCode::NotFound,
            SessionError::Conflict(_)
            | SessionError::OnAnotherServer { is_node: false }
            | SessionError::Agent(_)
            | SessionError::SandboxEnded(_) => ErrorCode::Conflict,
            SessionError::Ended => ErrorCode::Gone,
            SessionError::TooMany(_) => ErrorCode::TooManyRequests,
            SessionError::Capacity
            | SessionError::DiskFull(_)
            | SessionError::NotHere(_)
            | SessionError::Away(_)
            | SessionError::OnAnotherServer { is_node: true }
            | SessionError::Unavailable(_) => ErrorCode::Overloaded,
            SessionError::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<http::HttpError> for SessionError {
    fn from(error: http::HttpError) -> SessionError {
        SessionError::Grant(Box::new(error))
    }
}

impl From<SqlStoreError> for SessionError {
    fn from(error: SqlStoreError) -> SessionError {
        SessionError::Unavailable(Box::new(error))
    }
}

impl From<SandboxError> for SessionError {
    fn from(error: SandboxError) -> SessionError {
        match error {
            // The sandbox's end was not noticed yet, or happened meanwhile.
            SandboxError::Lost(how) => SessionError::SandboxEnded(how.to_owned()),
            other => SessionError::Internal(Box::new(other)),
        }
    }
}

impl From<SessionError> for http::HttpError {
    fn from(error: SessionError) -> http::HttpError {
        if let SessionError::Internal(cause) | SessionError::Unavailable(cause) = &error {
            tracing::error!(error = &**cause as &dyn std::error::Error, "failed");
        }
        if let SessionError::Grant(error) = error {
            return *error;
        }
        if let SessionError::OnAnotherServer { is_node: true } = error {
            // The forwarding node may send the request there.
            SubjectMoved::note();
        }
        let code = error.code();
        let mut answer = http::HttpError::new(code, error.to_string());
        if let SessionError::Refused(refusal) = &error {
            answer = answer.at(refusal.field.clone());
        }
        match code {
            ErrorCode::Overloaded | ErrorCode::TooManyRequests => answer.retry_after(RETRY_AFTER),
            _ => answer,
        }
    }
}
