//! The handle on what the catalog keeps, and what all its queries share.

use std::sync::Arc;

use node::clock::IdGenerator;
use node::store::{SqlStoreError, SqlValue, StoreDialect, StoreTransaction};

use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason};

/// Rows that are asked for at a time where all are wanted.
const ROWS_AT_A_TIME: usize = 10_000;

/// Warehouses, namespaces, tables and views at rest. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CatalogStore {
    pub(super) store: CatalogDatabase,
    pub(super) ids: Arc<IdGenerator>,
}

impl CatalogStore {
    /// Returns the time by the database's clock, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }

    /// Returns whether other servers may change it.
    #[must_use]
    pub fn is_shared_by_servers(&self) -> bool {
        match self.store.dialect() {
            StoreDialect::Sqlite => false,
            StoreDialect::Postgres => true,
        }
    }

    /// The database, for those who keep tables of their own in it.
    #[must_use]
    pub fn store(&self) -> &CatalogDatabase {
        &self.store
    }
}

/// Says that what is kept cannot be.
pub(crate) fn broken(what: &'static str) -> SqlStoreError {
    SqlStoreError::refuse(CatalogError::internal(what))
}

/// Error for a warehouse that does not exist, or not any more.
pub(crate) fn no_such_warehouse(name: &str) -> CatalogError {
    let excerpt: String = name.chars().take(100).collect();
    CatalogError::new(ErrorReason::NoSuchWarehouse, format!("Warehouse does not exist: {excerpt}"))
}

/// A time as a column.
pub(super) fn ms(ms: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The one column of all rows that a statement answers, in several steps. Parameter 3 is what the
/// rows come after, parameter 4 how many there may be.
pub(super) fn page_all(
    it: &mut dyn StoreTransaction,
    sql: &str,
    first: &[SqlValue; 2],
    after: Option<String>,
    limit: Option<usize>,
) -> std::result::Result<Vec<String>, SqlStoreError> {
    let (mut names, mut after) = (Vec::new(), after.unwrap_or_default());
    let limit = limit.unwrap_or(usize::MAX);
    while names.len() < limit {
        let step = ROWS_AT_A_TIME.min(limit - names.len());
        let wanted = i64::try_from(step).unwrap_or(i64::MAX);
        let [one, two] = first.clone();
        let rows = it.query(sql, &[one, two, SqlValue::from(&after), SqlValue::Int(wanted)])?;
        for row in &rows {
            names.push(row.get::<String>(0)?);
        }
        match names.last() {
            Some(last) if rows.len() == step => after.clone_from(last),
            _ => break,
        }
    }
    Ok(names)
}
