//! The stored state of the catalog: the only SQL of this crate but that of access.
//!
//! Rows are plain values; each function is one transaction, serialisable, which may run again when
//! it lost against others, and what it wrote is durable when it returns. With what changes, it
//! writes a line of the log and, where the request has a key of its own, what became of it.
//!
//! What is kept in [`StoredRelation::document`] is the truth of a document that is short enough,
//! and its file a copy which recovery makes again; of a longer document the file is the truth.

mod access_schema;
mod dropped;
pub(crate) mod entities;
mod functions;
mod jobs;
mod log;
mod names;
mod namespaces;
mod past;
mod places;
mod relations;
mod rights;
mod rules;
mod schema;
mod storage;
mod timeline;
mod warehouses;

use std::sync::Arc;

use node::clock::IdGenerator;
use node::store::{SqlStore, SqlStoreError, SqlValue, StoreDialect, StoreTransaction};

pub use self::dropped::{DROPPED_MAX, DropMode, DroppedRelation};
pub use self::entities::{EntityChange, EntityKey, EntityKind, EntityRecord};
pub use self::functions::FUNCTIONS_MAX;
pub use self::jobs::{JOBS_KEPT_MAX, JobRow, JobText};
pub use self::log::{ChangeContext, IdempotentOutcome, LINES_MAX, LogAction, StoredLogLine};
pub use self::names::{NameChange, NameCount, NameCounters};
pub use self::namespaces::no_such_namespace;
pub use self::namespaces::{Properties, PropertiesChange, PropertiesChanged};
pub use self::past::{LINES_BACK_MAX, PastAndPresent, PastRelation};
pub(crate) use self::places::{not_apart, place_of};
pub use self::relations::{
    DOCUMENT_BYTES_KEPT_MAX, MetadataPointer, NewRelation, PointerSwap, RelationKind,
    StoredRelation, SwapOutcome,
};
pub(crate) use self::rights::rights_changed;
pub use self::rules::RuleSubject;
pub(crate) use self::storage::no_such as no_such_warehouse;
pub use self::storage::{StorageRow, WarehouseCounts};
pub use self::timeline::{TimelineBounds, TimelineMoment, too_old};
pub use self::warehouses::{WAREHOUSES_MAX, WarehouseRow};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, Result};

/// Rows that are asked for at a time where all are wanted.
const ROWS_AT_A_TIME: usize = 10_000;

/// Warehouses, namespaces, tables and views at rest. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CatalogStore {
    store: CatalogDatabase,
    ids: Arc<IdGenerator>,
}

impl CatalogStore {
    /// Brings the tables up to date.
    ///
    /// # Errors
    /// When that fails; see [`CatalogDatabase::migrate`].
    pub async fn open(store: SqlStore) -> Result<CatalogStore> {
        let store = CatalogDatabase::new(store);
        migrate(&store).await?;
        let ids = Arc::new(IdGenerator::new().map_err(CatalogError::internal)?);
        Ok(CatalogStore { store, ids })
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

/// Brings the tables of the catalog and of access to it up to date. Those of access name those of
/// the catalog, and what is dropped takes its rights along, so that nobody has only one half.
///
/// # Errors
/// When that fails; see [`CatalogDatabase::migrate`].
pub(crate) async fn migrate(store: &CatalogDatabase) -> Result<()> {
    store.migrate(schema::SERVICE, schema::MIGRATIONS).await?;
    store.migrate(timeline::SERVICE, timeline::MIGRATIONS).await?;
    store.migrate(storage::SERVICE, storage::MIGRATIONS).await?;
    store.migrate(functions::SERVICE, functions::MIGRATIONS).await?;
    store.migrate(jobs::SERVICE, jobs::MIGRATIONS).await?;
    store.migrate(access_schema::SERVICE, access_schema::MIGRATIONS).await
}

/// Says that what is kept cannot be.
pub(crate) fn broken(what: &'static str) -> SqlStoreError {
    SqlStoreError::refuse(CatalogError::internal(what))
}

/// A time as a column.
fn ms(ms: u64) -> SqlValue {
    SqlValue::Int(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The one column of all rows that a statement answers, in several steps. Parameter 3 is what the
/// rows come after, parameter 4 how many there may be.
fn page_all(
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

#[cfg(test)]
mod tests;
