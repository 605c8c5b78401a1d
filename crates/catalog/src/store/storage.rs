//! Descriptions of warehouses that were created while serving: in separate tables, with a version
//! that every change increments, by which servers that share the store notice it.

use node::store::{MigrationStep, SqlRow, SqlStoreError};

use crate::error::CatalogError;
use crate::storage::StorageSettings;
use crate::warehouse::WarehouseStatus;

/// Name of the service that owns the tables.
pub(super) const SERVICE: &str = "catalog-storage";

/// Migrations of the tables; append only.
pub(super) const MIGRATIONS: &[MigrationStep] = &[
    MigrationStep::Same(
        "CREATE TABLE catalog_storage (
            warehouse TEXT NOT NULL PRIMARY KEY,
            made BIGINT NOT NULL,
            status TEXT NOT NULL,
            locations TEXT NOT NULL,
            settings TEXT NOT NULL,
            secret TEXT,
            updated_ms BIGINT NOT NULL
        )",
    ),
    MigrationStep::Same(
        "CREATE TABLE catalog_storage_version (
            id BIGINT NOT NULL PRIMARY KEY,
            version BIGINT NOT NULL
        );
        INSERT INTO catalog_storage_version (id, version) VALUES (1, 1)",
    ),
];

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Stored description of a warehouse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageRow {
    /// True if it was created while serving, and not by the configuration.
    pub is_made: bool,
    /// Status, which limits operations.
    pub status: WarehouseStatus,
    /// Other roots that clients may have tables below.
    pub locations: Vec<String>,
    /// Settings by which clients reach its files.
    pub settings: StorageSettings,
    /// Key of this storage, sealed.
    pub secret: Option<String>,
    /// Time of the last change.
    pub updated_ms: u64,
}

/// Columns that [`of_row`] reads, from `first` on.
pub(super) const COLUMNS: &str =
    "s.made, s.status, s.locations, s.settings, s.secret, s.updated_ms";

/// Reads the description of a warehouse, from [`COLUMNS`] that begin at `first`; `None` if there is
/// none.
pub(super) fn of_row(row: &SqlRow, first: usize) -> Stored<Option<StorageRow>> {
    let Some(made) = row.get::<Option<i64>>(first)? else { return Ok(None) };
    let refuse =
        || SqlStoreError::refuse(CatalogError::internal("what is said of a warehouse is damaged"));
    let status: String = row.get(first + 1)?;
    let (locations, settings): (String, String) = (row.get(first + 2)?, row.get(first + 3)?);
    let updated_ms: i64 = row.get(first + 5)?;
    Ok(Some(StorageRow {
        is_made: made != 0,
        status: WarehouseStatus::of(&status).ok_or_else(refuse)?,
        locations: serde_json::from_str(&locations).map_err(|_| refuse())?,
        settings: serde_json::from_str(&settings).map_err(|_| refuse())?,
        secret: row.get(first + 4)?,
        updated_ms: u64::try_from(updated_ms).map_err(|_| refuse())?,
    }))
}
