//! Warehouses that were made while serving, and what is said of them: in tables of their own, with
//! a version that moves by every change, by which servers that share the store learn of it.

use std::time::Duration;

use node::clock;
use node::store::{MigrationStep, SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::entities::{EntityChange, EntityKey};
use super::handle::{CatalogStore, ms, no_such_warehouse};
use super::namespaces::Properties;
use super::warehouses::{WAREHOUSES_MAX, WarehouseRow};
use super::{entities, rights};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::storage::StorageSettings;
use crate::warehouse::{TableLocation, WarehouseStatus};

/// Name of the service that owns the tables.
pub(super) const SERVICE: &str = "catalog-storage";

/// Migrations of the tables to their newest version; only ever added to.
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
    /// True if it was made while serving, and not by the configuration.
    pub is_made: bool,
    /// Status: what may be done with it.
    pub status: WarehouseStatus,
    /// Other roots that clients may have tables below.
    pub locations: Vec<String>,
    /// Settings by which clients reach its files.
    pub settings: StorageSettings,
    /// Key of its own, sealed.
    pub secret: Option<String>,
    /// When this was said.
    pub updated_ms: u64,
}

/// Number of objects in a warehouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarehouseCounts {
    /// Namespaces of all levels.
    pub namespaces: u64,
    /// Tables.
    pub tables: u64,
    /// Views.
    pub views: u64,
}

/// The columns that [`of_row`] reads, from `first` on.
pub(super) const COLUMNS: &str =
    "s.made, s.status, s.locations, s.settings, s.secret, s.updated_ms";

/// Returns what is said of a warehouse, from [`COLUMNS`] that begin at `first`; none where nothing
/// is.
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

/// Number of changes of warehouses so far.
const VERSION: &str = "SELECT version FROM catalog_storage_version WHERE id = 1";

/// Warehouses and their storage, in the store.
#[derive(Clone, Copy, Debug)]
pub struct WarehouseStore<'a>(pub(super) &'a CatalogStore);

impl WarehouseStore<'_> {
    /// Counts changes of warehouses, as of at most `age_max` ago.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn warehouses_version(self, age_max: Duration) -> Result<u64> {
        let missing = || CatalogError::internal("a row of the catalog's own is not there");
        self.0.store.counter(VERSION, age_max).await?.ok_or_else(missing)
    }

    /// An id for a warehouse that is to be made.
    #[must_use]
    pub fn new_warehouse_id(self) -> String {
        self.0.ids.next("wh_")
    }

    /// Keeps a new warehouse. `taken` are places that are nobody else's, beside those of the
    /// warehouses that there are.
    ///
    /// # Errors
    /// `AlreadyExists` when one has its name, or is in its place; `BadRequest` when there are too
    /// many.
    pub async fn insert_warehouse(
        self,
        row: WarehouseRow,
        taken: Vec<TableLocation>,
        properties: Properties,
    ) -> Result<()> {
        let written = self.0.store.transact("catalog.insert_warehouse", move |it| {
            require_room(it, &row, &taken)?;
            let sql = "INSERT INTO catalog_warehouses (id, name, root, created_ms) \
                VALUES ($1, $2, $3, $4)";
            let parameters = [
                SqlValue::from(&row.id),
                (&row.name).into(),
                (&row.root).into(),
                ms(row.created_ms),
            ];
            it.execute(sql, &parameters)?;
            let key = EntityKey::warehouse(&row.id);
            entities::made(it, &key, &properties, row.created_ms)?;
            write(it, &row)
        });
        written.await
    }

    /// Says something else of a warehouse, unless somebody has since `expected_ms`, and of its
    /// properties.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; `CommitFailed` when somebody was faster; as of
    /// [`WarehouseStore::insert_warehouse`].
    pub async fn update_warehouse(
        self,
        row: WarehouseRow,
        expected_ms: Option<u64>,
        taken: Vec<TableLocation>,
        change: Option<EntityChange>,
    ) -> Result<()> {
        let now_ms = clock::wall_ms();
        let written = self.0.store.transact("catalog.update_warehouse", move |it| {
            let sql = "SELECT s.updated_ms FROM catalog_warehouses w \
                LEFT JOIN catalog_storage s ON s.warehouse = w.id WHERE w.id = $1";
            let found = it.query_one(sql, &[SqlValue::from(&row.id)])?;
            let found = found.ok_or_else(|| SqlStoreError::refuse(no_such_warehouse(&row.name)))?;
            let found = found.get::<Option<i64>>(0)?.and_then(|it| u64::try_from(it).ok());
            if found != expected_ms {
                let message = "the warehouse was changed at the same time";
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::CommitFailed,
                    message,
                )));
            }
            if row.storage.as_ref().is_some_and(|it| it.is_made) {
                require_room(it, &row, &taken)?;
            }
            let key = EntityKey::warehouse(&row.id);
            entities::changed(it, &key, change.as_ref(), now_ms)?;
            it.execute("DELETE FROM catalog_storage WHERE warehouse = $1", &[(&row.id).into()])?;
            write(it, &row)
        });
        written.await
    }

    /// Takes away a warehouse that has nothing in it.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; `NamespaceNotEmpty` when there is something in it.
    pub async fn delete_warehouse(self, id: &str, name: &str) -> Result<()> {
        let (row_id, name) = (id.to_owned(), name.to_owned());
        let written = self.0.store.transact("catalog.delete_warehouse", move |it| {
            let id = [SqlValue::from(&row_id)];
            for table in ["catalog_namespaces", "catalog_tables", "catalog_dropped"] {
                let sql = format!("SELECT 1 FROM {table} WHERE warehouse = $1 LIMIT 1");
                if it.query_one(&sql, &id)?.is_some() {
                    let message = format!("Warehouse is not empty: {name}");
                    let error = CatalogError::new(ErrorReason::NamespaceNotEmpty, message);
                    return Err(SqlStoreError::refuse(error));
                }
            }
            rights::forget_warehouse(it, &row_id)?;
            it.execute("DELETE FROM catalog_rules WHERE warehouse = $1", &id)?;
            it.execute("DELETE FROM catalog_storage WHERE warehouse = $1", &id)?;
            it.execute("DELETE FROM catalog_jobs WHERE warehouse = $1", &id)?;
            if it.execute("DELETE FROM catalog_warehouses WHERE id = $1", &id)? == 0 {
                return Err(SqlStoreError::refuse(no_such_warehouse(&name)));
            }
            changed(it)
        });
        written.await
    }

    /// Returns how much is in a warehouse.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn warehouse_counts(self, id: &str) -> Result<WarehouseCounts> {
        let id = [SqlValue::from(id)];
        let read = self.0.store.read("catalog.warehouse_counts", move |it| {
            let mut count = |sql: &str| {
                let row = it.query_one(sql, &id)?.ok_or_else(no_version)?;
                u64::try_from(row.get::<i64>(0)?).map_err(|_| no_version())
            };
            Ok(WarehouseCounts {
                namespaces: count("SELECT COUNT(*) FROM catalog_namespaces WHERE warehouse = $1")?,
                tables: count(
                    "SELECT COUNT(*) FROM catalog_tables WHERE warehouse = $1 AND kind = 'table'",
                )?,
                views: count(
                    "SELECT COUNT(*) FROM catalog_tables WHERE warehouse = $1 AND kind = 'view'",
                )?,
            })
        });
        read.await
    }
}

/// Refuses a warehouse whose name or place another one has.
fn require_room(
    it: &mut dyn StoreTransaction,
    row: &WarehouseRow,
    taken: &[TableLocation],
) -> Stored<()> {
    let refuse =
        |kind, message: String| Err(SqlStoreError::refuse(CatalogError::new(kind, message)));
    let others = super::warehouses::read(it)?;
    let others: Vec<_> = others.into_iter().filter(|other| other.id != row.id).collect();
    if others.len() >= WAREHOUSES_MAX {
        let message = format!("there are {WAREHOUSES_MAX} warehouses already");
        return refuse(ErrorReason::BadRequest, message);
    }
    let own = row.places().map_err(SqlStoreError::refuse)?;
    if others.iter().any(|other| other.name == row.name) {
        return refuse(
            ErrorReason::AlreadyExists,
            format!("Warehouse already exists: {}", row.name),
        );
    }
    for other in &others {
        // One that cannot be read is in nobody's way: nothing is in it.
        let theirs = other.places().unwrap_or_default();
        if overlap(&own, &theirs) {
            let message = format!("the warehouse `{}` has a part of this place", other.name);
            return refuse(ErrorReason::AlreadyExists, message);
        }
    }
    if overlap(&own, taken) {
        let message = "a part of this place is the configured warehouse's".to_owned();
        return refuse(ErrorReason::AlreadyExists, message);
    }
    Ok(())
}

fn overlap(own: &[TableLocation], theirs: &[TableLocation]) -> bool {
    own.iter().any(|one| theirs.iter().any(|other| one.overlaps(other)))
}

fn write(it: &mut dyn StoreTransaction, row: &WarehouseRow) -> Stored<()> {
    let Some(storage_row) = &row.storage else { return changed(it) };
    let json = |text: std::result::Result<String, serde_json::Error>| {
        text.map_err(|error| SqlStoreError::refuse(CatalogError::internal(error)))
    };
    let sql = "INSERT INTO catalog_storage \
        (warehouse, made, status, locations, settings, secret, updated_ms) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let parameters = [
        SqlValue::from(&row.id),
        SqlValue::Int(i64::from(storage_row.is_made)),
        storage_row.status.name().into(),
        json(serde_json::to_string(&storage_row.locations))?.into(),
        json(serde_json::to_string(&storage_row.settings))?.into(),
        storage_row.secret.clone().into(),
        ms(storage_row.updated_ms),
    ];
    it.execute(sql, &parameters)?;
    changed(it)
}

pub(super) fn changed(it: &mut dyn StoreTransaction) -> Stored<()> {
    let sql = "UPDATE catalog_storage_version SET version = version + 1 WHERE id = 1";
    it.execute(sql, &[]).map(drop)
}

fn no_version() -> SqlStoreError {
    SqlStoreError::refuse(CatalogError::internal("a row of the catalog's own is not there"))
}
