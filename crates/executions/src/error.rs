//! Why a request was not run: whose fault it is, and whether to try again.

use std::time::Duration;

use api::{ErrorCode, ErrorDetail};
use node::store::SqlStoreError;

use crate::queue::QueueError;

/// Short enough to be worth waiting for, long enough not to be a busy loop.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The header that makes a second submission of the same harmless
/// (draft-ietf-httpapi-idempotency-key-header).
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Why a request was not run. What ran has an [`api::Execution`] instead, whatever happened to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionError {
    /// The request cannot be run as it is.
    #[error(transparent)]
    Refused(#[from] RequestRefusal),
    /// This tenant has as many executions waiting as one tenant may have.
    #[error("this token already has {waiting_max} executions waiting")]
    TooManyWaiting {
        /// `queue_max_per_tenant` of the configuration.
        waiting_max: usize,
    },
    /// The queue is full.
    #[error("{queue_max} executions are waiting already")]
    QueueFull {
        /// `queue_max` of the configuration.
        queue_max: usize,
    },
    /// The requests of this tenant that wait are as large as they may be together.
    #[error("this token's waiting executions would have more than {bytes_max} bytes of requests")]
    TooManyBytesWaiting {
        /// `queued_bytes_max_per_tenant` of the configuration.
        bytes_max: u64,
    },
    /// The requests that wait are as large as they may be together.
    #[error("the waiting executions would have more than {bytes_max} bytes of requests")]
    QueueBytesFull {
        /// `queued_bytes_max` of the configuration.
        bytes_max: u64,
    },
    /// Answers to this tenant that are not read yet hold as much memory as they may.
    #[error("unread responses of this token hold {bytes_max} bytes, which is its share")]
    TooManyAnswerBytes {
        /// `answers_bytes_max_per_tenant` of the configuration.
        bytes_max: u64,
    },
    /// All answers that are not read yet hold as much memory as they may.
    #[error("unread responses hold {bytes_max} bytes, which is the server's limit")]
    AnswerBytesFull {
        /// `answers_bytes_max` of the configuration.
        bytes_max: u64,
    },
    /// No place became free while the caller waited.
    #[error("no capacity became free within {} ms; send the request again", .wait_max.as_millis())]
    WaitedTooLong {
        /// Time that it waited.
        wait_max: Duration,
    },
    /// There is no such execution, or none that this caller may know of.
    #[error("there is no such execution")]
    NotFound,
    /// The execution is not in a state that allows this.
    #[error("{0}")]
    Conflict(String),
    /// This token may not do that.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The queue's back end cannot be reached, or has no room.
    #[error("{0}")]
    Unavailable(&'static str),
}

impl From<QueueError> for ExecutionError {
    fn from(error: QueueError) -> ExecutionError {
        let count = |max: u64| usize::try_from(max).unwrap_or(usize::MAX);
        match error {
            QueueError::Full { queued_max } => {
                ExecutionError::QueueFull { queue_max: count(queued_max) }
            }
            QueueError::TenantFull { queued_max } => {
                ExecutionError::TooManyWaiting { waiting_max: count(queued_max) }
            }
            QueueError::FullBytes { queued_bytes_max } => {
                ExecutionError::QueueBytesFull { bytes_max: queued_bytes_max }
            }
            QueueError::TenantFullBytes { queued_bytes_max } => {
                ExecutionError::TooManyBytesWaiting { bytes_max: queued_bytes_max }
            }
            QueueError::KeyReused => {
                let message = "was used for another request";
                RequestRefusal::new(ErrorCode::Conflict, IDEMPOTENCY_KEY, message).into()
            }
            QueueError::Unavailable(cause) => {
                if matches!(cause.downcast_ref(), Some(SqlStoreError::Closed)) {
                    // Only the end of the server closes it: whoever is still being answered then
                    // has been told, and nothing failed.
                    tracing::debug!("the queue was asked behind the end of its store");
                } else {
                    tracing::error!(error = &*cause as &dyn std::error::Error, "the queue failed");
                }
                match cause.downcast_ref() {
                    Some(SqlStoreError::Full(_)) => {
                        ExecutionError::Unavailable("the disk of the queue is full")
                    }
                    _ => ExecutionError::Unavailable("the queue cannot be reached at present"),
                }
            }
        }
    }
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestRefusal {
    /// Code to match on.
    pub code: ErrorCode,
    /// Path of the offending field: `limits.cpu_ms`, `files[2].name`.
    pub field: String,
    /// A sentence for a person.
    pub message: String,
}

impl RequestRefusal {
    pub(crate) fn new(
        code: ErrorCode,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> RequestRefusal {
        RequestRefusal { code, field: field.into(), message: message.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> RequestRefusal {
        RequestRefusal::new(ErrorCode::InvalidRequest, field, message)
    }
}

impl ExecutionError {
    /// Returns the same error for one execution of a batch.
    pub(crate) fn at(self, index: usize) -> ExecutionError {
        match self {
            // A header belongs to all of them.
            ExecutionError::Refused(refusal) if refusal.field != IDEMPOTENCY_KEY => {
                let field = format!("executions[{index}].{}", refusal.field);
                ExecutionError::Refused(RequestRefusal { field, ..refusal })
            }
            other => other,
        }
    }

    /// Returns what to match on.
    pub fn code(&self) -> ErrorCode {
        match self {
            ExecutionError::Refused(refusal) => refusal.code,
            ExecutionError::TooManyWaiting { .. }
            | ExecutionError::TooManyBytesWaiting { .. }
            | ExecutionError::TooManyAnswerBytes { .. } => ErrorCode::TooManyRequests,
            ExecutionError::QueueFull { .. }
            | ExecutionError::QueueBytesFull { .. }
            | ExecutionError::AnswerBytesFull { .. }
            | ExecutionError::WaitedTooLong { .. }
            | ExecutionError::Unavailable(_) => ErrorCode::Overloaded,
            ExecutionError::NotFound => ErrorCode::NotFound,
            ExecutionError::Conflict(_) => ErrorCode::Conflict,
            ExecutionError::Forbidden(_) => ErrorCode::Forbidden,
        }
    }

    /// Returns what the caller may see.
    pub fn detail(&self) -> ErrorDetail {
        let field = match self {
            ExecutionError::Refused(refusal) => Some(refusal.field.clone()),
            _ => None,
        };
        let retry = self.retry_after().is_some();
        ErrorDetail { code: self.code(), message: self.to_string(), field, retry }
    }

    /// When the same request may succeed without being changed.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ExecutionError::Refused(_)
            | ExecutionError::NotFound
            | ExecutionError::Conflict(_)
            | ExecutionError::Forbidden(_) => None,
            ExecutionError::TooManyWaiting { .. }
            | ExecutionError::TooManyBytesWaiting { .. }
            | ExecutionError::TooManyAnswerBytes { .. }
            | ExecutionError::QueueFull { .. }
            | ExecutionError::QueueBytesFull { .. }
            | ExecutionError::AnswerBytesFull { .. }
            | ExecutionError::WaitedTooLong { .. }
            | ExecutionError::Unavailable(_) => Some(RETRY_AFTER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_says_whose_fault_it_is_and_what_there_is_too_much_of() {
        fn check(error: QueueError, code: ErrorCode, expected: &str) {
            let (own, error) = (error.to_string(), ExecutionError::from(error));
            assert_eq!(error.code(), code);
            assert!(error.retry_after().is_some());
            assert!(error.detail().message.contains(expected), "{error}");
            assert_eq!(own, error.to_string());
        }
        let (all, one) = (ErrorCode::Overloaded, ErrorCode::TooManyRequests);
        check(QueueError::Full { queued_max: 7 }, all, "7 executions");
        check(QueueError::TenantFull { queued_max: 7 }, one, "has 7 executions");
        check(QueueError::FullBytes { queued_bytes_max: 7 }, all, "7 bytes of requests");
        check(QueueError::TenantFullBytes { queued_bytes_max: 7 }, one, "7 bytes of requests");
    }
}
