//! The stored state of the catalog: the only SQL of this crate, apart from that of access control.
//!
//! Rows are plain values; each function is one serialisable transaction, which may be repeated
//! after a conflict, and its writes are durable when it returns. With each change, it writes a line
//! of the log and, if the request has an idempotency key, its outcome.
//!
//! [`StoredRelation::document`] is authoritative for a document that is short enough, and its file
//! is a copy that recovery can restore; for a longer document the file is authoritative.

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
mod queries;
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

pub(crate) use self::dropped::DroppedStore;
pub use self::dropped::{DROPPED_MAX, DropMode, DroppedRelation};
pub use self::entities::{EntityChange, EntityKey, EntityKind, EntityRecord};
pub use self::functions::FUNCTIONS_MAX;
pub(crate) use self::functions::FunctionStore;
pub(crate) use self::jobs::JobStore;
pub use self::jobs::{JOBS_KEPT_MAX, JobRow, JobText};
pub(crate) use self::log::ChangeLogStore;
pub use self::log::{ChangeContext, IdempotentOutcome, LINES_MAX, LogAction, StoredLogLine};
pub use self::names::{NameChange, NameCount, NameCounters};
pub(crate) use self::namespaces::NamespaceStore;
pub use self::namespaces::no_such_namespace;
pub use self::namespaces::{Properties, PropertiesChange, PropertiesChanged};
pub(crate) use self::past::PastStore;
pub use self::past::{LINES_BACK_MAX, PastAndPresent, PastRelation};
pub(crate) use self::places::{LocationStore, NewRelationSite};
pub(crate) use self::places::{not_apart, place_of};
pub(crate) use self::queries::{broken, no_such_warehouse};
pub(crate) use self::relations::RelationStore;
pub use self::relations::{
    DOCUMENT_BYTES_KEPT_MAX, MetadataPointer, NewRelation, PointerSwap, RelationKind,
    StoredRelation, SwapOutcome,
};
pub(crate) use self::rights::rights_changed;
pub(crate) use self::rules::RuleStore;
pub use self::rules::RuleSubject;
pub use self::storage::StorageRow;
pub use self::timeline::{TimelineBounds, TimelineMoment, too_old};
pub(crate) use self::warehouses::WarehouseStore;
pub use self::warehouses::{WAREHOUSES_MAX, WarehouseCounts, WarehouseRow, warehouse_locations};
use crate::database::{CatalogDatabase, DatabaseClock};
use crate::error::{CatalogError, Result};

/// Tables of the catalog, each with its own type. Cheap to clone.
///
/// A service keeps the types that it needs, and not this one.
#[derive(Clone, Debug)]
pub(crate) struct CatalogStore {
    database: CatalogDatabase,
    change_log: ChangeLogStore,
    dropped_relations: DroppedStore,
    functions: FunctionStore,
    jobs: JobStore,
    locations: LocationStore,
    namespaces: NamespaceStore,
    past: PastStore,
    relations: RelationStore,
    rules: RuleStore,
    warehouses: WarehouseStore,
}

impl CatalogStore {
    /// Migrates the tables.
    ///
    /// # Errors
    /// If that fails; see [`CatalogDatabase::migrate`].
    pub(crate) async fn open(store: SqlStore) -> Result<CatalogStore> {
        let database = CatalogDatabase::new(store);
        migrate(&database).await?;
        let ids = Arc::new(IdGenerator::new().map_err(CatalogError::internal)?);
        Ok(CatalogStore {
            change_log: ChangeLogStore(database.clone()),
            dropped_relations: DroppedStore { database: database.clone(), ids: Arc::clone(&ids) },
            functions: FunctionStore(database.clone()),
            jobs: JobStore(database.clone()),
            locations: LocationStore(database.clone()),
            namespaces: NamespaceStore(database.clone()),
            past: PastStore(database.clone()),
            relations: RelationStore { database: database.clone(), ids: Arc::clone(&ids) },
            rules: RuleStore(database.clone()),
            warehouses: WarehouseStore { database: database.clone(), ids: Arc::clone(&ids) },
            database,
        })
    }

    /// Returns whether other servers may change it.
    pub(crate) fn is_shared_by_servers(&self) -> bool {
        self.database.is_shared_by_servers()
    }

    /// Returns the clock for comparing times with those that other servers wrote.
    pub(crate) fn clock(&self) -> DatabaseClock {
        DatabaseClock::of(&self.database)
    }

    /// Returns the log of changes, and the outcomes of requests with a key.
    pub(crate) fn change_log(&self) -> &ChangeLogStore {
        &self.change_log
    }

    /// Returns the dropped tables and views that can be restored.
    pub(crate) fn dropped_relations(&self) -> &DroppedStore {
        &self.dropped_relations
    }

    /// Functions.
    pub(crate) fn functions(&self) -> &FunctionStore {
        &self.functions
    }

    /// Returns the maintenance jobs.
    pub(crate) fn jobs(&self) -> &JobStore {
        &self.jobs
    }

    /// Returns the locations of relations, and the queries for overlaps.
    pub(crate) fn locations(&self) -> &LocationStore {
        &self.locations
    }

    /// Namespaces.
    pub(crate) fn namespaces(&self) -> &NamespaceStore {
        &self.namespaces
    }

    /// Names and relations as of an earlier line of the log.
    pub(crate) fn past(&self) -> &PastStore {
        &self.past
    }

    /// Tables and views.
    pub(crate) fn relations(&self) -> &RelationStore {
        &self.relations
    }

    /// Protection and retention of warehouses, namespaces and relations.
    pub(crate) fn rules(&self) -> &RuleStore {
        &self.rules
    }

    /// Warehouses and their storage.
    pub(crate) fn warehouses(&self) -> &WarehouseStore {
        &self.warehouses
    }
}

/// Migrates the tables of the catalog and of its access control. The latter refer to the former,
/// and a dropped object's rights are removed with it, so both are always migrated together.
///
/// # Errors
/// If that fails; see [`CatalogDatabase::migrate`].
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
