//! Transactions on the tables, and the errors that callers get when one fails.

use node::store::{SqlRow, SqlStore, SqlStoreError, SqlValue, StoreTransaction};

use crate::error::SessionError;

/// Rows that one page has at most.
pub(crate) const PAGE_MAX: usize = 1000;

/// Access to the tables of the store, by transactions that are named in its figures.
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

    /// For one statement about rows that mean something by themselves.
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

    /// For what may as well happen twice.
    pub(super) async fn write_again<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> Result<T, SqlStoreError> + Send + 'static,
    ) -> Result<T, SessionError> {
        self.store.transact_idempotent(name, body).await.map_err(refused)
    }
}

/// The transaction's own reason, or the store's: not now, or not like this.
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
