//! Why something was not done, as Iceberg's clients tell reasons apart.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::fmt;

/// Result of the catalog's operations.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Cause of a failure of the server: for the log, never for a client.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A reason, by the name and the status that clients choose their exception by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorReason {
    /// There is no such namespace.
    NoSuchNamespace,
    /// There is no such table.
    NoSuchTable,
    /// There is no such view.
    NoSuchView,
    /// There is no such warehouse.
    NoSuchWarehouse,
    /// There is no such scan plan.
    NoSuchPlanId,
    /// There is no such task of a scan plan.
    NoSuchPlanTask,
    /// There is no such function.
    NoSuchFunction,
    /// Another thing is missing, such as a file.
    NotFound,
    /// There is something of this name.
    AlreadyExists,
    /// The state is another than the commit requires. It changed nothing.
    CommitFailed,
    /// The namespace has something in it.
    NamespaceNotEmpty,
    /// The request is malformed.
    BadRequest,
    /// A value in the request is none that may be there.
    IllegalArgument,
    /// The request would make the document invalid.
    Validation,
    /// The caller is not authenticated.
    NotAuthorized,
    /// The caller may not do this.
    Forbidden,
    /// The catalog does not do this.
    UnsupportedOperation,
    /// The request contradicts itself.
    UnprocessableEntity,
    /// The token has ended.
    AuthenticationTimeout,
    /// Unknown whether the commit happened; the client must not clean up after it.
    CommitStateUnknown,
    /// Not now. Nothing was changed.
    ServiceUnavailable,
    /// No longer there.
    Gone,
    /// The request is longer than the limit.
    TooLarge,
    /// The body is encoded in a way that is not decoded here.
    UnsupportedEncoding,
    /// Too many failed attempts; another one is possible later.
    TooManyRequests,
    /// A feature of the interface that this server does not have.
    NotImplemented,
    /// The server failed.
    Internal,
}

impl ErrorReason {
    /// All of them.
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

    /// The `type` of an error in an answer.
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

    /// The status of the answer, which is the `code` of the error in it as well.
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

/// Why something was not done.
pub struct CatalogError {
    /// Reason that clients distinguish.
    pub kind: ErrorReason,
    /// For people; clients show it, and some compare it.
    pub message: String,
    cause: Option<Cause>,
}

impl CatalogError {
    /// Creates an error that a client may read as it is.
    pub fn new(kind: ErrorReason, message: impl Into<String>) -> CatalogError {
        CatalogError { kind, message: message.into(), cause: None }
    }

    /// The server failed at this; the cause is for the log.
    pub fn internal(cause: impl Into<Cause>) -> CatalogError {
        CatalogError::caused(ErrorReason::Internal, "the server failed", cause)
    }

    /// Creates an error with a cause, which only the log shows.
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

/// A request that is none.
pub fn bad(message: impl Into<String>) -> CatalogError {
    CatalogError::new(ErrorReason::BadRequest, message)
}

/// An argument that cannot be.
pub fn illegal(message: impl Into<String>) -> CatalogError {
    CatalogError::new(ErrorReason::IllegalArgument, message)
}

/// A commit of more parts than there may be.
pub fn too_many(what: &str, most: usize) -> CatalogError {
    CatalogError::new(ErrorReason::TooLarge, format!("a commit may have {most} {what} at the most"))
}

/// Returns what contradicts itself, or what is there.
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
