//! The database of the catalog and of its access control; its failures are reported as catalog
//! errors.

use std::time::Duration;

use node::store::{MigrationStep, SqlStore, SqlStoreError, StoreDialect, StoreTransaction};

use crate::error::{CatalogError, Result, database_failure};

/// Work before a transaction, on a thread that may block on the disk.
pub(crate) type DiskWork = Box<dyn FnOnce() -> Result<()> + Send>;

/// A handle on the database. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CatalogDatabase(SqlStore);

impl CatalogDatabase {
    pub(crate) fn new(store: SqlStore) -> CatalogDatabase {
        CatalogDatabase(store)
    }

    /// Returns a counter of changes, see [`SqlStore::counter`].
    ///
    /// # Errors
    /// `ServiceUnavailable` and `Internal` if the database fails.
    pub(crate) async fn counter(
        &self,
        query: &'static str,
        age_max: Duration,
    ) -> Result<Option<u64>> {
        self.0.counter(query, age_max).await.map_err(database_failure)
    }

    /// Runs a transaction that may write, see [`SqlStore::transact`].
    ///
    /// # Errors
    /// The rejection of the closure; `CommitStateUnknown`, `ServiceUnavailable` and `Internal` if
    /// the database fails.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> std::result::Result<T, SqlStoreError>
        + Send
        + 'static,
    ) -> Result<T> {
        self.0.transact(name, body).await.map_err(database_failure)
    }

    /// Runs work that blocks on the disk, if there is any, and then a transaction, see
    /// [`SqlStore::transact_after`].
    ///
    /// # Errors
    /// [`TransactionFailure`] states which of the two failed, and why.
    pub(crate) async fn transact_after<T: Send + 'static>(
        &self,
        name: &'static str,
        before: Option<DiskWork>,
        body: impl FnMut(&mut dyn StoreTransaction) -> std::result::Result<T, SqlStoreError>
        + Send
        + 'static,
    ) -> std::result::Result<T, TransactionFailure> {
        let done = match before {
            None => self.0.transact(name, body).await,
            Some(before) => {
                let refuse = |error| SqlStoreError::refuse(PrecedingFailure(error));
                self.0.transact_after(name, move || before().map_err(refuse), body).await
            }
        };
        done.map_err(|error| match error.refusal::<PrecedingFailure>() {
            Ok(PrecedingFailure(error)) => TransactionFailure::Before(error),
            Err(error) => TransactionFailure::Store(database_failure(error)),
        })
    }

    /// Runs a transaction that may be repeated, see [`SqlStore::transact_idempotent`].
    ///
    /// # Errors
    /// The rejection of the closure; `ServiceUnavailable` and `Internal` if the database fails.
    pub(crate) async fn transact_idempotent<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> std::result::Result<T, SqlStoreError>
        + Send
        + 'static,
    ) -> Result<T> {
        self.0.transact_idempotent(name, body).await.map_err(database_failure)
    }

    /// Runs a read-only transaction, see [`SqlStore::read`].
    ///
    /// # Errors
    /// The rejection of the closure; `ServiceUnavailable` and `Internal` if the database fails.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn StoreTransaction) -> std::result::Result<T, SqlStoreError>
        + Send
        + 'static,
    ) -> Result<T> {
        self.0.read(name, body).await.map_err(database_failure)
    }

    /// Migrates the tables of a service, see [`SqlStore::migrate`].
    pub(crate) async fn migrate(
        &self,
        service: &'static str,
        steps: &[MigrationStep],
    ) -> Result<()> {
        self.0.migrate(service, steps).await.map_err(database_failure)
    }

    /// Returns the store itself, for callers that distinguish its failures.
    pub(crate) fn sql_store(&self) -> &SqlStore {
        &self.0
    }

    /// Returns whether other servers may change its content.
    pub(crate) fn is_shared_by_servers(&self) -> bool {
        match self.0.dialect() {
            StoreDialect::Sqlite => false,
            StoreDialect::Postgres => true,
        }
    }
}

/// Reason why a transaction failed, or has an unknown outcome.
#[derive(Debug)]
pub(crate) enum TransactionFailure {
    /// The work before it failed, so that it did not begin.
    Before(CatalogError),
    /// The closure rejected it, or the database failed.
    Store(CatalogError),
}

impl From<TransactionFailure> for CatalogError {
    fn from(failure: TransactionFailure) -> CatalogError {
        match failure {
            TransactionFailure::Before(error) | TransactionFailure::Store(error) => error,
        }
    }
}

/// Wraps the error of the work before a transaction while it passes through the store.
#[derive(Debug, thiserror::Error)]
#[error("the work before the transaction failed")]
struct PrecedingFailure(#[source] CatalogError);

/// Clock of the database, whose times servers that share it can compare. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseClock(SqlStore);

impl DatabaseClock {
    pub(crate) fn of(database: &CatalogDatabase) -> DatabaseClock {
        DatabaseClock(database.0.clone())
    }

    /// Returns the time in milliseconds since 1970, see [`SqlStore::now_ms`].
    pub(crate) fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}
