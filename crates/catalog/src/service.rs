//! The operations of the catalog, without HTTP: rights, effects and their order.
//!
//! A change is prepared from the present document, written to a new file, and made by moving the
//! pointer to that file in the store, in one transaction with the log. Only then is it put into the
//! cache and acknowledged. So after a crash at any point, an acknowledged change exists together
//! with its file; an unacknowledged one has left at most an unreferenced file.
//!
//! Changes run in separate tasks: a client that disconnects does not stop one halfway.
//!
//! # Owners
//! [`Catalog`] composes owners, each of which hides its state, and hands them out
//! (`catalog.relations()`). An owner knows those above it in this table, and none below:
//!
//! | owner | file | owns |
//! |---|---|---|
//! | [`RightGuard`] | `rights.rs` | the authority on rights |
//! | [`RelationEntries`] | `entries.rs` | current versions in memory, locks by name of loads and of changes |
//! | `ChangeRunner` | `keys.rs` | locks of idempotency keys; runs each change once, to its end |
//! | `LocationRules` | `homes.rs` | nothing: where files may be, from the store |
//! | [`WarehouseDirectory`] | `warehouses.rs` | the warehouses that are open |
//! | [`ReadyLists`] | `lists.rs` | ready answers that list names |
//! | [`ProtectionRules`] | `protection.rs` | nothing: protection, from the store |
//! | [`DroppedRelations`] | `dropped.rs` | the sweep of dropped relations, with its leases |
//! | [`RelationService`] | `relations.rs`, `create.rs`, `commit.rs`, `tables.rs`, `views.rs` | nothing: every operation on tables and views |
//! | [`NamespaceService`], [`FunctionService`] | `namespaces.rs`, `functions.rs` | nothing: their operations |
//! | [`ScanPlanner`] | `plans.rs` | plans of scans, manifests that were read |
//! | [`MaintenanceService`] | `maintenance.rs`, `jobs.rs` | jobs of this server |
//! | [`FileAccess`] | `delegation.rs` | nothing: credentials and signatures for files |
//! | [`ChangeFeed`] | `changes.rs` | those who follow the log, whom `ChangeRunner` wakes |
//! | [`CatalogHistory`] | `past.rs` | the limit of readers of past documents |
//!
//! Each is given those tables of the store that it reads or writes, and no others.
//!
//! Rules without state are functions: `documents.rs` (documents and their files), `expiry.rs`,
//! `managed_updates.rs`. `search.rs`, `inspect.rs` and `stats.rs` read by the operations of others.

mod catalog;
mod changes;
pub(crate) mod commit;
mod create;
mod delegation;
pub(crate) mod documents;
mod dropped;
mod entries;
mod expiry;
mod functions;
mod homes;
mod inspect;
mod job_registry;
mod jobs;
mod keys;
mod lists;
mod maintenance;
mod managed_updates;
mod manifests;
mod namespaces;
mod past;
pub(crate) mod plans;
mod protection;
mod recover;
mod relations;
mod rights;
mod search;
mod settings;
mod stats;
mod tables;
mod views;
mod warehouses;

pub use self::catalog::Catalog;
pub use self::changes::{
    CHANGES_DEFAULT, CHANGES_MAX, CatalogChange, ChangeFeed, ChangeFilter, ChangePage,
    ChangeStream, FOLLOW_MAX, POLL,
};
pub use self::commit::{RETRIES_MAX, TRANSACTION_TABLES_MAX};
pub use self::delegation::{FileAccess, VendedCredentials};
pub use self::dropped::{
    DropSweepReport, DroppedRelations, LEASE, RestoredRelation, UNDROP_RETENTION,
    UNDROP_SECONDS_MAX,
};
pub use self::entries::RelationEntries;
pub use self::functions::FunctionService;
pub use self::inspect::{
    InspectAspect, InspectCell, InspectRows, ROWS_DEFAULT, ROWS_MAX, RowsPage,
};
pub use self::job_registry::{
    ITEMS_MAX, JOBS_MAX, JobReport, JobState, MaintenanceFailure, MaintenanceItem, RUNNING_MAX,
};
pub use self::keys::KEY_LIFETIME;
pub use self::lists::{ListContent, ListFigures, ReadyLists};
pub use self::maintenance::{
    FILES_MAX, JOB_SCOPE_MAX, JOB_TABLES_MAX, METADATA_FILES_MAX, MaintenanceAction,
    MaintenanceRequest, MaintenanceService,
};
pub use self::managed_updates::PROTECTED;
pub use self::namespaces::{NamespaceService, PROPERTIES_BYTES_MAX, PROPERTIES_MAX};
pub use self::past::{AsOf, CatalogHistory, READS_MAX};
pub use self::plans::node_of_plan;
pub use self::plans::{
    MANIFESTS_AT_ONCE_MAX, PLAN_LIFETIME, PLANS_BYTES_MAX, PLANS_MAX, PLANS_OF_PRINCIPAL_MAX,
    ScanPlanner,
};
pub use self::protection::{ProtectionLevel, ProtectionRules};
pub use self::recover::RecoveryReport;
pub use self::relations::RelationService;
pub use self::rights::RightGuard;
pub use self::search::{
    FoundKind, FoundName, FoundNames, SEARCH_RESULTS_DEFAULT, SEARCH_RESULTS_MAX,
    SEARCH_TEXT_BYTES_MAX,
};
pub use self::settings::CatalogSettings;
pub use self::stats::{
    DeleteFigures, ManifestView, PartitionSummaryView, Recommendation, RecommendedAction,
    STATS_MANIFESTS_MAX, SnapshotAges, StatsSnapshot, TableHealth,
};
pub use self::warehouses::{
    LOCATIONS_MAX, NewStorageKey, NewWarehouse, WAREHOUSES_INTERVAL, WarehouseChange,
    WarehouseDirectory, WarehouseRecord,
};
pub use crate::locks::{KeyLockGuard, KeyLocks};
pub use crate::page::{ListPage, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, PageRequest};
pub use crate::principal::{
    AccessRight, CatalogPrincipal, ChangeCall, IdempotencyKey, OperatorsOnly, RightAuthority,
    RightTarget, TokenClaims, VisibleNames,
};

#[cfg(test)]
mod tests;
