//! Errors of requests that were not run: who is at fault, and whether to retry.

use std::time::Duration;

use api::{ErrorCode, ErrorDetail};
use node::store::SqlStoreError;

use crate::queue::QueueError;

/// Short enough to be worth waiting for, long enough to avoid a busy loop.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The header that makes a repeated submission harmless
/// (draft-ietf-httpapi-idempotency-key-header).
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Reason why a request was not run. A request that ran has an [`api::Execution`] instead, whatever
/// its outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionError {
    /// The request is invalid.
    #[error(transparent)]
    Refused(#[from] RequestRefusal),
    /// This tenant has the maximum number of waiting executions.
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
    /// The waiting requests of this tenant have reached their maximum size together.
    #[error("this token's waiting executions would have more than {bytes_max} bytes of requests")]
    TooManyBytesWaiting {
        /// `queued_bytes_max_per_tenant` of the configuration.
        bytes_max: u64,
    },
    /// The waiting requests have reached their maximum size together.
    #[error("the waiting executions would have more than {bytes_max} bytes of requests")]
    QueueBytesFull {
        /// `queued_bytes_max` of the configuration.
        bytes_max: u64,
    },
    /// Unread answers to this tenant have reached their maximum size.
    #[error("unread responses of this token hold {bytes_max} bytes, which is its share")]
    TooManyAnswerBytes {
        /// `answers_bytes_max_per_tenant` of the configuration.
        bytes_max: u64,
    },
    /// Unread answers have reached their maximum size.
    #[error("unread responses hold {bytes_max} bytes, which is the server's limit")]
    AnswerBytesFull {
        /// `answers_bytes_max` of the configuration.
        bytes_max: u64,
    },
    /// No place became free while the caller waited.
    #[error("no capacity became free within {} ms; send the request again", .wait_max.as_millis())]
    WaitedTooLong {
        /// Time that the caller waited.
        wait_max: Duration,
    },
    /// There is no such execution, or this caller may not see it.
    #[error("there is no such execution")]
    NotFound,
    /// The execution is not in a state that allows this.
    #[error("{0}")]
    Conflict(String),
    /// This token may not perform the operation.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The queue's back end cannot be reached, or is full.
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
                    // The store only closes when the server ends: pending callers have been
                    // notified already, and nothing failed.
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
    /// A sentence for people.
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
            // A header applies to the whole batch.
            ExecutionError::Refused(refusal) if refusal.field != IDEMPOTENCY_KEY => {
                let field = format!("executions[{index}].{}", refusal.field);
                ExecutionError::Refused(RequestRefusal { field, ..refusal })
            }
            other => other,
        }
    }

    /// Returns the code for programs to match on.
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

    /// Returns the details that the caller may see.
    pub fn detail(&self) -> ErrorDetail {
        let field = match self {
            ExecutionError::Refused(refusal) => Some(refusal.field.clone()),
            _ => None,
        };
        let retry = self.retry_after().is_some();
        ErrorDetail { code: self.code(), message: self.to_string(), field, retry }
    }

    /// Returns the time after which an unchanged retry may succeed.
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
