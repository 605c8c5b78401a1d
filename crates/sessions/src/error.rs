//! Why something was not done: whose fault it is, and whether to try again.

use std::time::Duration;

use api::ErrorCode;
use node::cluster::SubjectMoved;
use node::http;
use node::store::SqlStoreError;
use sandbox::SandboxError;

/// When it is worth trying again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The request cannot be carried out as it is.
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    /// The grant is not possible, or not allowed to this caller.
    #[error("{}", .0.detail().message)]
    Grant(Box<http::HttpError>),
    /// There is no such thing, or none that this caller may know of. Says what was looked for.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The state does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// Ended for ever.
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
    /// Another server has the session at present.
    #[error("the session is on another server")]
    OnAnotherServer {
        /// True in a cluster, whose nodes pass requests on: that one cannot be reached, or has just
        /// got the session.
        is_node: bool,
    },
    /// Not at present, and in a moment perhaps; why.
    #[error("{0}")]
    Away(String),
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

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SessionRefusal {
    /// Path of the offending field: `limits.memory_bytes`, `files[2].path`.
    pub field: String,
    /// A sentence for a person.
    pub message: String,
}

impl SessionError {
    /// A field has a value that it cannot have.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> SessionError {
        SessionError::Refused(SessionRefusal { field: field.into(), message: message.into() })
    }

    /// Cove failed at this.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SessionError {
        SessionError::Internal(cause.into())
    }

    /// Returns what to match on.
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
            // Its end was not noticed yet, or happened meanwhile.
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
