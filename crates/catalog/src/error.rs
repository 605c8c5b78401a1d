//! Errors by the reasons that Iceberg's clients distinguish, and the conversion of database
//! failures to them.

use node::store::SqlStoreError;

pub(crate) use iceberg::error::bad;
pub use iceberg::error::{CatalogError, ErrorReason, Result};

/// Returns the transaction's own error, or the database's: unknown outcome, unavailable, or
/// internal.
pub(crate) fn database_failure(error: SqlStoreError) -> CatalogError {
    match error.refusal::<CatalogError>() {
        Ok(reason) => reason,
        Err(error @ SqlStoreError::OutcomeUnknown(_)) => {
            let message = "the connection to the store was lost: the outcome is unknown";
            CatalogError::caused(ErrorReason::CommitStateUnknown, message, error)
        }
        Err(error @ SqlStoreError::Full(_)) => {
            let message = "the disk of the store is full";
            CatalogError::caused(ErrorReason::ServiceUnavailable, message, error)
        }
        Err(error) if error.is_temporary() || matches!(error, SqlStoreError::Closed) => {
            let message = "the store cannot be reached at present";
            CatalogError::caused(ErrorReason::ServiceUnavailable, message, error)
        }
        Err(error) => CatalogError::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_says_stays_in_the_log() {
        let lost = database_failure(SqlStoreError::OutcomeUnknown("password=x".into()));
        assert_eq!(lost.kind, ErrorReason::CommitStateUnknown);
        assert!(!lost.to_string().contains("password"));
        let refused = CatalogError::new(ErrorReason::CommitFailed, "Cannot commit");
        let refused = database_failure(SqlStoreError::refuse(refused));
        assert_eq!((refused.kind, &*refused.message), (ErrorReason::CommitFailed, "Cannot commit"));
        let full = database_failure(SqlStoreError::Full("/srv/cove.sqlite".into()));
        assert_eq!(full.kind, ErrorReason::ServiceUnavailable);
        assert_eq!(&*full.message, "the disk of the store is full");
        assert_eq!(database_failure(SqlStoreError::Closed).kind, ErrorReason::ServiceUnavailable);
        assert_eq!(database_failure(SqlStoreError::Spoiled).kind, ErrorReason::Internal);
    }
}
