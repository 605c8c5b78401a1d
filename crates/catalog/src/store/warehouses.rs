//! Warehouses: names, locations, and numbers of objects.

use std::sync::Arc;
use std::time::Duration;

use node::clock::{self, IdGenerator};
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::entities::{EntityChange, EntityKey};
use super::namespaces::Properties;
use super::queries::{ms, no_such_warehouse};
use super::storage::{self, StorageRow};
use super::{entities, rights};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::warehouse::TableLocation;

/// Most warehouses of a catalog.
pub const WAREHOUSES_MAX: usize = 1000;

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// A stored warehouse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarehouseRow {
    /// Id, which never changes.
    pub id: String,
    /// Name of the warehouse.
    pub name: String,
    /// Default location of everything in it.
    pub root: String,
    /// Time of creation.
    pub created_ms: u64,
    /// Stored description; `None` for a warehouse that the configuration describes.
    pub storage: Option<StorageRow>,
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

impl WarehouseRow {
    /// Returns its own locations.
    ///
    /// # Errors
    /// `BadRequest` if one is invalid.
    pub fn places(&self) -> Result<Vec<TableLocation>> {
        let others = self.storage.iter().flat_map(|it| &it.locations);
        let all = std::iter::once(&self.root).chain(others);
        all.map(|text| text.split('?').next().unwrap_or_default().parse()).collect()
    }
}

/// Reads all warehouses, in the order of their names.
pub(super) fn read(
    it: &mut dyn StoreTransaction,
) -> std::result::Result<Vec<WarehouseRow>, SqlStoreError> {
    let limit = i64::try_from(WAREHOUSES_MAX)
        .map_err(|it| SqlStoreError::refuse(CatalogError::internal(it)))?;
    let sql = format!(
        "SELECT w.id, w.name, w.root, w.created_ms, {} FROM catalog_warehouses w \
         LEFT JOIN catalog_storage s ON s.warehouse = w.id ORDER BY w.name LIMIT $1",
        storage::COLUMNS
    );
    let rows = it.query(&sql, &[SqlValue::Int(limit + 1)])?;
    let rows = rows.iter().map(|row| {
        Ok(WarehouseRow {
            id: row.get(0)?,
            name: row.get(1)?,
            root: row.get(2)?,
            created_ms: u64::try_from(row.get::<i64>(3)?).unwrap_or_default(),
            storage: storage::of_row(row, 4)?,
        })
    });
    rows.collect()
}

/// Returns the locations of each warehouse's files: its name, and its locations as they are stored,
/// without the parameters of buckets.
///
/// # Errors
/// If the store cannot be read.
pub fn warehouse_locations(
    it: &mut dyn StoreTransaction,
) -> std::result::Result<Vec<(String, Vec<String>)>, SqlStoreError> {
    let plain = |text: &String| text.split('?').next().unwrap_or_default().to_owned();
    let rows = read(it)?.into_iter().map(|row| {
        let others = row.storage.iter().flat_map(|it| &it.locations);
        let all = std::iter::once(&row.root).chain(others).map(plain).collect();
        (row.name, all)
    });
    Ok(rows.collect())
}

/// Number of changes of warehouses so far.
const VERSION: &str = "SELECT version FROM catalog_storage_version WHERE id = 1";

/// Warehouses and their storage, in the store.
#[derive(Clone, Debug)]
pub(crate) struct WarehouseStore {
    pub(super) database: CatalogDatabase,
    pub(super) ids: Arc<IdGenerator>,
}

impl WarehouseStore {
    /// Returns all warehouses.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn list(&self) -> Result<Vec<WarehouseRow>> {
        self.database.read("catalog.warehouses", |it| read(it)).await
    }

    /// Ensures that a warehouse of this name exists. A warehouse that the configuration created
    /// gets this root; its tables stay at their locations. One that was created by a request is
    /// unchanged.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn ensure_warehouse(&self, name: &str, root: &str, now_ms: u64) -> Result<()> {
        let id = self.ids.next("wh_");
        let (name, root) = (name.to_owned(), root.to_owned());
        let written = self.database.transact_idempotent("catalog.ensure_warehouse", move |it| {
            let sql = "INSERT INTO catalog_warehouses (id, name, root, created_ms) \
                VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING";
            let new =
                [SqlValue::from(&id), SqlValue::from(&name), SqlValue::from(&root), ms(now_ms)];
            let mut count = it.execute(sql, &new)?;
            let sql = "UPDATE catalog_warehouses SET root = $2 WHERE name = $1 AND root <> $2 \
                AND NOT EXISTS (SELECT 1 FROM catalog_storage s \
                WHERE s.warehouse = catalog_warehouses.id AND s.made = 1)";
            count += it.execute(sql, &[SqlValue::from(&name), SqlValue::from(&root)])?;
            if count > 0 { changed(it) } else { Ok(()) }
        });
        written.await
    }

    /// Returns the number of changes of warehouses, as of at most `age_max` ago.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn warehouses_version(&self, age_max: Duration) -> Result<u64> {
        let missing = || CatalogError::internal("a row of the catalog's own is not there");
        self.database.counter(VERSION, age_max).await?.ok_or_else(missing)
    }

    /// Returns an id for a new warehouse.
    #[must_use]
    pub(crate) fn new_warehouse_id(&self) -> String {
        self.ids.next("wh_")
    }

    /// Stores a new warehouse. `taken` are reserved locations, in addition to those of the existing
    /// warehouses.
    ///
    /// # Errors
    /// `AlreadyExists` if another warehouse has its name, or overlaps its locations; `BadRequest`
    /// if there are too many.
    pub(crate) async fn insert_warehouse(
        &self,
        row: WarehouseRow,
        taken: Vec<TableLocation>,
        properties: Properties,
    ) -> Result<()> {
        let written = self.database.transact("catalog.insert_warehouse", move |it| {
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

    /// Changes a warehouse and its properties, unless it was changed since `expected_ms`.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; `CommitFailed` after a concurrent change; those of
    /// [`WarehouseStore::insert_warehouse`].
    pub(crate) async fn update_warehouse(
        &self,
        row: WarehouseRow,
        expected_ms: Option<u64>,
        taken: Vec<TableLocation>,
        change: Option<EntityChange>,
    ) -> Result<()> {
        let now_ms = clock::wall_ms();
        let written = self.database.transact("catalog.update_warehouse", move |it| {
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

    /// Removes an empty warehouse.
    ///
    /// # Errors
    /// `NoSuchWarehouse`; `NamespaceNotEmpty` if it is not empty.
    pub(crate) async fn delete_warehouse(&self, id: &str, name: &str) -> Result<()> {
        let (row_id, name) = (id.to_owned(), name.to_owned());
        let written = self.database.transact("catalog.delete_warehouse", move |it| {
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

    /// Returns the number of objects in a warehouse.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn warehouse_counts(&self, id: &str) -> Result<WarehouseCounts> {
        let id = [SqlValue::from(id)];
        let read = self.database.read("catalog.warehouse_counts", move |it| {
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

/// Rejects a warehouse if another has its name or overlaps its locations.
fn require_room(
    it: &mut dyn StoreTransaction,
    row: &WarehouseRow,
    taken: &[TableLocation],
) -> Stored<()> {
    let refuse =
        |kind, message: String| Err(SqlStoreError::refuse(CatalogError::new(kind, message)));
    let others = read(it)?;
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
        // An unreadable warehouse cannot conflict: it has no content.
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

fn changed(it: &mut dyn StoreTransaction) -> Stored<()> {
    let sql = "UPDATE catalog_storage_version SET version = version + 1 WHERE id = 1";
    it.execute(sql, &[]).map(drop)
}

fn no_version() -> SqlStoreError {
    SqlStoreError::refuse(CatalogError::internal("a row of the catalog's own is not there"))
}
