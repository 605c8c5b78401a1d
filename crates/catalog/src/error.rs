//! Why something was not done, as Iceberg's clients tell reasons apart.

use std::fmt;

use node::store::SqlStoreError;

/// What the catalog answers.
pub type Result<T> = std::result::Result<T, Error>;

/// What is underneath a failure of the server: for the log, never for a client.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A reason, by the name and the status that clients choose their exception by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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
    /// Something else is not there, such as a file.
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
    /// Nobody knows who asks.
    NotAuthorized,
    /// Who asks may not do this.
    Forbidden,
    /// The catalog does not do this.
    UnsupportedOperation,
    /// The request contradicts itself.
    UnprocessableEntity,
    /// The token has ended.
    AuthenticationTimeout,
    /// It is not known whether the commit happened; the client must not clean up after it.
    CommitStateUnknown,
    /// Not now. Nothing was changed.
    ServiceUnavailable,
    /// It was there, and is not any more.
    Gone,
    /// The request is longer than the limit.
    TooLarge,
    /// The body is encoded in a way that is not decoded here.
    UnsupportedEncoding,
    /// Too many failed attempts; another one is possible later.
    TooManyRequests,
    /// Something that another system of this interface has, and this one has not.
    NotImplemented,
    /// The server failed.
    Internal,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 27] = [
        Kind::NoSuchNamespace,
        Kind::NoSuchTable,
        Kind::NoSuchView,
        Kind::NoSuchWarehouse,
        Kind::NoSuchPlanId,
        Kind::NoSuchPlanTask,
        Kind::NoSuchFunction,
        Kind::NotFound,
        Kind::AlreadyExists,
        Kind::CommitFailed,
        Kind::NamespaceNotEmpty,
        Kind::BadRequest,
        Kind::IllegalArgument,
        Kind::Validation,
        Kind::NotAuthorized,
        Kind::Forbidden,
        Kind::UnsupportedOperation,
        Kind::UnprocessableEntity,
        Kind::AuthenticationTimeout,
        Kind::CommitStateUnknown,
        Kind::ServiceUnavailable,
        Kind::Gone,
        Kind::TooLarge,
        Kind::UnsupportedEncoding,
        Kind::TooManyRequests,
        Kind::NotImplemented,
        Kind::Internal,
    ];

    /// The `type` of an error in an answer.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::NoSuchNamespace => "NoSuchNamespaceException",
            Kind::NoSuchTable => "NoSuchTableException",
            Kind::NoSuchView => "NoSuchViewException",
            Kind::NoSuchWarehouse => "NoSuchWarehouseException",
            Kind::NoSuchPlanId => "NoSuchPlanIdException",
            Kind::NoSuchPlanTask => "NoSuchPlanTaskException",
            Kind::NoSuchFunction => "NoSuchFunctionException",
            Kind::NotFound => "NotFoundException",
            Kind::Gone => "GoneException",
            Kind::AlreadyExists => "AlreadyExistsException",
            Kind::CommitFailed => "CommitFailedException",
            Kind::NamespaceNotEmpty => "NamespaceNotEmptyException",
            Kind::BadRequest | Kind::TooLarge | Kind::UnsupportedEncoding => "BadRequestException",
            Kind::TooManyRequests => "TooManyRequestsException",
            Kind::IllegalArgument => "IllegalArgumentException",
            Kind::Validation => "ValidationException",
            Kind::NotAuthorized => "NotAuthorizedException",
            Kind::Forbidden => "ForbiddenException",
            Kind::UnsupportedOperation => "UnsupportedOperationException",
            Kind::NotImplemented => "NotImplementedException",
            Kind::UnprocessableEntity => "UnprocessableEntityException",
            Kind::AuthenticationTimeout => "AuthenticationTimeoutException",
            Kind::CommitStateUnknown => "CommitStateUnknownException",
            Kind::ServiceUnavailable => "ServiceUnavailableException",
            Kind::Internal => "InternalServerError",
        }
    }

    /// The status of the answer, which is the `code` of the error in it as well.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Kind::BadRequest | Kind::IllegalArgument | Kind::Validation => 400,
            Kind::NotAuthorized => 401,
            Kind::Forbidden => 403,
            Kind::NoSuchNamespace
            | Kind::NoSuchTable
            | Kind::NoSuchView
            | Kind::NoSuchWarehouse
            | Kind::NoSuchPlanId
            | Kind::NoSuchPlanTask
            | Kind::NoSuchFunction
            | Kind::NotFound => 404,
            Kind::UnsupportedOperation => 406,
            Kind::AlreadyExists | Kind::CommitFailed | Kind::NamespaceNotEmpty => 409,
            Kind::Gone => 410,
            Kind::TooLarge => 413,
            Kind::UnsupportedEncoding => 415,
            Kind::AuthenticationTimeout => 419,
            Kind::UnprocessableEntity => 422,
            Kind::TooManyRequests => 429,
            Kind::CommitStateUnknown | Kind::Internal => 500,
            Kind::NotImplemented => 501,
            Kind::ServiceUnavailable => 503,
        }
    }
}

/// Why something was not done.
pub struct Error {
    /// How clients tell it apart.
    pub kind: Kind,
    /// For people; clients show it, and some compare it.
    pub message: String,
    cause: Option<Cause>,
}

impl Error {
    /// One that a client may read as it is.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), cause: None }
    }

    /// The server failed at this; the cause is for the log.
    pub fn internal(cause: impl Into<Cause>) -> Error {
        Error::caused(Kind::Internal, "the server failed", cause)
    }

    /// One with a cause, which only the log shows.
    pub fn caused(kind: Kind, message: impl Into<String>, cause: impl Into<Cause>) -> Error {
        Error { kind, message: message.into(), cause: Some(cause.into()) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, " ({cause:?})"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn std::error::Error + 'static))
    }
}

/// A request that is none.
pub(crate) fn bad(message: impl Into<String>) -> Error {
    Error::new(Kind::BadRequest, message)
}

/// An argument that cannot be.
pub(crate) fn illegal(message: impl Into<String>) -> Error {
    Error::new(Kind::IllegalArgument, message)
}

/// A commit of more parts than there may be.
pub(crate) fn too_many(what: &str, most: usize) -> Error {
    Error::new(Kind::TooLarge, format!("a commit may have {most} {what} at the most"))
}

/// What contradicts itself, or what is there.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::Validation, message)
}

impl From<SqlStoreError> for Error {
    /// The transaction's own reason, or the store's: unknown, not now, or not like this.
    fn from(error: SqlStoreError) -> Error {
        match error.refusal::<Error>() {
            Ok(reason) => reason,
            Err(error @ SqlStoreError::OutcomeUnknown(_)) => {
                let message = "the connection to the store was lost: the outcome is not known";
                Error::caused(Kind::CommitStateUnknown, message, error)
            }
            Err(error) if error.is_temporary() || matches!(error, SqlStoreError::Closed) => {
                let message = "the store cannot be reached at present";
                Error::caused(Kind::ServiceUnavailable, message, error)
            }
            Err(error) => Error::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_tell_kinds_of_one_status_apart() {
        for kind in Kind::ALL {
            let same = Kind::ALL
                .iter()
                .filter(|it| (it.name(), it.status()) == (kind.name(), kind.status()));
            assert_eq!(same.count(), 1, "{kind:?}");
            assert!((400..=599).contains(&kind.status()));
        }
    }

    #[test]
    fn what_the_store_says_stays_in_the_log() {
        let lost = Error::from(SqlStoreError::OutcomeUnknown("password=x".into()));
        assert_eq!(lost.kind, Kind::CommitStateUnknown);
        assert!(!lost.to_string().contains("password"));
        let refused = Error::new(Kind::CommitFailed, "Cannot commit");
        let refused = Error::from(SqlStoreError::refuse(refused));
        assert_eq!((refused.kind, &*refused.message), (Kind::CommitFailed, "Cannot commit"));
        assert_eq!(Error::from(SqlStoreError::Closed).kind, Kind::ServiceUnavailable);
        assert_eq!(Error::from(SqlStoreError::Spoiled).kind, Kind::Internal);
    }
}
