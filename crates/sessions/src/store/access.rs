//! Transactions on the tables, and the errors of failed ones.

use node::store::{SqlRow, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

use crate::error::SessionError;

/// Maximum number of rows on a page.
pub(crate) const PAGE_MAX: usize = 1000;

/// Access to the store's tables by named transactions, which appear in metrics.
#[derive(Clone, Debug)]
pub(crate) struct TableAccess {
    pub(super) store: SqlStore,
}

impl TableAccess {
    pub(super) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.store.read(name, body).await.map_err(refused)
    }

    /// Runs one query outside the serial order of transactions, for rows that are consistent by
    /// themselves.
    pub(super) async fn select<T: Send + 'static>(
        &self,
        name: &'static str,
        sql: String,
        parameters: Vec<SqlValue>,
        read: impl FnMut(&[SqlRow]) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.store.select(name, sql, parameters, read).await.map_err(refused)
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.store.transact(name, body).await.map_err(refused)
    }

    /// Runs an idempotent transaction, which may be executed twice.
    pub(super) async fn write_again<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.store.transact_idempotent(name, body).await.map_err(refused)
    }
}

/// Returns the transaction's own error, or one for a temporary or permanent failure of the store.
fn refused(error: SqlStoreError) -> SessionError {
    match error.refusal::<SessionError>() {
        Ok(reason) => reason,
        Err(error @ (SqlStoreError::OutcomeUnknown(_) | SqlStoreError::Closed)) => {
            SessionError::from(error)
        }
        Err(error) if error.is_temporary() => SessionError::from(error),
        Err(error) => SessionError::internal(error),
    }
}
