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
mod handle;
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
use node::store::SqlStore;

pub use self::dropped::{DROPPED_MAX, DropMode, DroppedRelation, DroppedStore};
pub use self::entities::{EntityChange, EntityKey, EntityKind, EntityRecord};
pub use self::functions::{FUNCTIONS_MAX, FunctionStore};
pub use self::handle::CatalogStore;
pub(crate) use self::handle::{broken, no_such_warehouse};
pub use self::jobs::{JOBS_KEPT_MAX, JobRow, JobStore, JobText};
pub use self::log::{
    ChangeContext, ChangeLogStore, IdempotentOutcome, LINES_MAX, LogAction, StoredLogLine,
};
pub use self::names::{NameChange, NameCount, NameCounters};
pub use self::namespaces::no_such_namespace;
pub use self::namespaces::{NamespaceStore, Properties, PropertiesChange, PropertiesChanged};
pub use self::past::{LINES_BACK_MAX, PastAndPresent, PastRelation, PastStore};
pub use self::places::LocationStore;
pub(crate) use self::places::{not_apart, place_of};
pub use self::relations::{
    DOCUMENT_BYTES_KEPT_MAX, MetadataPointer, NewRelation, PointerSwap, RelationKind,
    RelationStore, StoredRelation, SwapOutcome,
};
pub(crate) use self::rights::rights_changed;
pub use self::rules::{RuleStore, RuleSubject};
pub use self::storage::{StorageRow, WarehouseCounts, WarehouseStore};
pub use self::timeline::{TimelineBounds, TimelineMoment, too_old};
pub use self::warehouses::{WAREHOUSES_MAX, WarehouseRow, warehouse_locations};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, Result};

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

    /// Namespaces.
    #[must_use]
    pub fn namespaces(&self) -> NamespaceStore<'_> {
        NamespaceStore(self)
    }

    /// The log of changes, and what became of requests with a key.
    #[must_use]
    pub fn change_log(&self) -> ChangeLogStore<'_> {
        ChangeLogStore(self)
    }

    /// Names and relations as of an earlier line of the log.
    #[must_use]
    pub fn past(&self) -> PastStore<'_> {
        PastStore(self)
    }

    /// Tables and views that were dropped and can come back.
    #[must_use]
    pub fn dropped_relations(&self) -> DroppedStore<'_> {
        DroppedStore(self)
    }

    /// Warehouses and their storage.
    #[must_use]
    pub fn warehouses(&self) -> WarehouseStore<'_> {
        WarehouseStore(self)
    }

    /// Functions.
    #[must_use]
    pub fn functions(&self) -> FunctionStore<'_> {
        FunctionStore(self)
    }

    /// Protection and retention of warehouses, namespaces and relations.
    #[must_use]
    pub fn rules(&self) -> RuleStore<'_> {
        RuleStore(self)
    }

    /// Jobs of maintenance.
    #[must_use]
    pub fn jobs(&self) -> JobStore<'_> {
        JobStore(self)
    }

    /// Locations of relations, and what is near them.
    #[must_use]
    pub fn locations(&self) -> LocationStore<'_> {
        LocationStore(self)
    }

    /// Tables and views.
    #[must_use]
    pub fn relations(&self) -> RelationStore<'_> {
        RelationStore(self)
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

#[cfg(test)]
mod tests;
