//! Errors of the catalog, by the reasons that Iceberg's clients distinguish.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::fmt;

/// Result of the catalog's operations.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Cause of a server failure: logged, never sent to a client.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Reason of an error, with the name and status by which clients select their exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorReason {
    /// The namespace does not exist.
    NoSuchNamespace,
    /// The table does not exist.
    NoSuchTable,
    /// The view does not exist.
    NoSuchView,
    /// The warehouse does not exist.
    NoSuchWarehouse,
    /// The scan plan does not exist.
    NoSuchPlanId,
    /// The task of a scan plan does not exist.
    NoSuchPlanTask,
    /// The function does not exist.
    NoSuchFunction,
    /// Another object is missing, such as a file.
    NotFound,
    /// An object of this name exists.
    AlreadyExists,
    /// The state differs from the one that the commit requires. Nothing was changed.
    CommitFailed,
    /// The namespace is not empty.
    NamespaceNotEmpty,
    /// The request is malformed.
    BadRequest,
    /// A value in the request is not allowed.
    IllegalArgument,
    /// The request would make the document invalid.
    Validation,
    /// The caller is not authenticated.
    NotAuthorized,
    /// The caller may not do this.
    Forbidden,
    /// The catalog does not support this operation.
    UnsupportedOperation,
    /// The request contradicts itself.
    UnprocessableEntity,
    /// The token has expired.
    AuthenticationTimeout,
    /// It is unknown whether the commit succeeded; the client must not clean up after it.
    CommitStateUnknown,
    /// Temporarily unavailable. Nothing was changed.
    ServiceUnavailable,
    /// No longer available.
    Gone,
    /// The request is longer than the limit.
    TooLarge,
    /// The encoding of the body is not supported.
    UnsupportedEncoding,
    /// Too many failed attempts; another one is possible later.
    TooManyRequests,
    /// A feature of the interface that this server does not implement.
    NotImplemented,
    /// The server failed.
    Internal,
}

impl ErrorReason {
    /// All reasons.
    pub const ALL: [ErrorReason; 27] = [
        ErrorReason::NoSuchNamespace,
        ErrorReason::NoSuchTable,
        ErrorReason::NoSuchView,
        ErrorReason::NoSuchWarehouse,
        ErrorReason::NoSuchPlanId,
        ErrorReason::NoSuchPlanTask,
        ErrorReason::NoSuchFunction,
        ErrorReason::NotFound,
        ErrorReason::AlreadyExists,
        ErrorReason::CommitFailed,
        ErrorReason::NamespaceNotEmpty,
        ErrorReason::BadRequest,
        ErrorReason::IllegalArgument,
        ErrorReason::Validation,
        ErrorReason::NotAuthorized,
        ErrorReason::Forbidden,
        ErrorReason::UnsupportedOperation,
        ErrorReason::UnprocessableEntity,
        ErrorReason::AuthenticationTimeout,
        ErrorReason::CommitStateUnknown,
        ErrorReason::ServiceUnavailable,
        ErrorReason::Gone,
        ErrorReason::TooLarge,
        ErrorReason::UnsupportedEncoding,
        ErrorReason::TooManyRequests,
        ErrorReason::NotImplemented,
        ErrorReason::Internal,
    ];

    /// Returns the `type` of an error in a response.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ErrorReason::NoSuchNamespace => "NoSuchNamespaceException",
            ErrorReason::NoSuchTable => "NoSuchTableException",
            ErrorReason::NoSuchView => "NoSuchViewException",
            ErrorReason::NoSuchWarehouse => "NoSuchWarehouseException",
            ErrorReason::NoSuchPlanId => "NoSuchPlanIdException",
            ErrorReason::NoSuchPlanTask => "NoSuchPlanTaskException",
            ErrorReason::NoSuchFunction => "NoSuchFunctionException",
            ErrorReason::NotFound => "NotFoundException",
            ErrorReason::Gone => "GoneException",
            ErrorReason::AlreadyExists => "AlreadyExistsException",
            ErrorReason::CommitFailed => "CommitFailedException",
            ErrorReason::NamespaceNotEmpty => "NamespaceNotEmptyException",
            ErrorReason::BadRequest | ErrorReason::TooLarge | ErrorReason::UnsupportedEncoding => {
                "BadRequestException"
            }
            ErrorReason::TooManyRequests => "TooManyRequestsException",
            ErrorReason::IllegalArgument => "IllegalArgumentException",
            ErrorReason::Validation => "ValidationException",
            ErrorReason::NotAuthorized => "NotAuthorizedException",
            ErrorReason::Forbidden => "ForbiddenException",
            ErrorReason::UnsupportedOperation => "UnsupportedOperationException",
            ErrorReason::NotImplemented => "NotImplementedException",
            ErrorReason::UnprocessableEntity => "UnprocessableEntityException",
            ErrorReason::AuthenticationTimeout => "AuthenticationTimeoutException",
            ErrorReason::CommitStateUnknown => "CommitStateUnknownException",
            ErrorReason::ServiceUnavailable => "ServiceUnavailableException",
            ErrorReason::Internal => "InternalServerError",
        }
    }

    /// Returns the status of the response, which is the `code` of the error in it as well.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            ErrorReason::BadRequest | ErrorReason::IllegalArgument | ErrorReason::Validation => 400,
            ErrorReason::NotAuthorized => 401,
            ErrorReason::Forbidden => 403,
            ErrorReason::NoSuchNamespace
            | ErrorReason::NoSuchTable
            | ErrorReason::NoSuchView
            | ErrorReason::NoSuchWarehouse
            | ErrorReason::NoSuchPlanId
            | ErrorReason::NoSuchPlanTask
            | ErrorReason::NoSuchFunction
            | ErrorReason::NotFound => 404,
            ErrorReason::UnsupportedOperation => 406,
            ErrorReason::AlreadyExists
            | ErrorReason::CommitFailed
            | ErrorReason::NamespaceNotEmpty => 409,
            ErrorReason::Gone => 410,
            ErrorReason::TooLarge => 413,
            ErrorReason::UnsupportedEncoding => 415,
            ErrorReason::AuthenticationTimeout => 419,
            ErrorReason::UnprocessableEntity => 422,
            ErrorReason::TooManyRequests => 429,
            ErrorReason::CommitStateUnknown | ErrorReason::Internal => 500,
            ErrorReason::NotImplemented => 501,
            ErrorReason::ServiceUnavailable => 503,
        }
    }
}

/// Error of a catalog operation.
pub struct CatalogError {
    /// Reason that clients distinguish.
    pub kind: ErrorReason,
    /// For users; clients show it, and some compare it.
    pub message: String,
    cause: Option<Cause>,
}

impl CatalogError {
    /// Creates an error whose message is sent to the client.
    pub fn new(kind: ErrorReason, message: impl Into<String>) -> CatalogError {
        CatalogError { kind, message: message.into(), cause: None }
    }

    /// Creates a server failure; the cause is logged.
    pub fn internal(cause: impl Into<Cause>) -> CatalogError {
        CatalogError::caused(ErrorReason::Internal, "the server failed", cause)
    }

    /// Creates an error with a cause, which is only logged.
    pub fn caused(
        kind: ErrorReason,
        message: impl Into<String>,
        cause: impl Into<Cause>,
    ) -> CatalogError {
        CatalogError { kind, message: message.into(), cause: Some(cause.into()) }
    }
}

impl fmt::Debug for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, " ({cause:?})"))
    }
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CatalogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn std::error::Error + 'static))
    }
}

/// Creates an error for a malformed request.
pub fn bad(message: impl Into<String>) -> CatalogError {
    CatalogError::new(ErrorReason::BadRequest, message)
}

/// Creates an error for an invalid argument.
pub fn illegal(message: impl Into<String>) -> CatalogError {
    CatalogError::new(ErrorReason::IllegalArgument, message)
}

/// Creates an error for a commit with too many parts.
pub fn too_many(what: &str, most: usize) -> CatalogError {
    CatalogError::new(ErrorReason::TooLarge, format!("a commit may have {most} {what} at the most"))
}

/// Creates an error for an invalid document or change.
pub fn invalid(message: impl Into<String>) -> CatalogError {
    CatalogError::new(ErrorReason::Validation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_tell_kinds_of_one_status_apart() {
        for kind in ErrorReason::ALL {
            let same = ErrorReason::ALL
                .iter()
                .filter(|it| (it.name(), it.status()) == (kind.name(), kind.status()));
            assert_eq!(same.count(), 1, "{kind:?}");
            assert!((400..=599).contains(&kind.status()));
        }
    }
}
