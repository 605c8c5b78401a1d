//! Warehouses: what each is called and where it is.

use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::handle::ms;
use super::storage::WarehouseStore;
use super::storage::{self, StorageRow};
use crate::error::{CatalogError, Result};
use crate::warehouse::TableLocation;

/// Most warehouses of a catalog.
pub const WAREHOUSES_MAX: usize = 1000;

/// A warehouse at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarehouseRow {
    /// Names it for as long as it lives.
    pub id: String,
    /// Name of the warehouse.
    pub name: String,
    /// The location that everything in it is below, unless it says otherwise.
    pub root: String,
    /// When it was made.
    pub created_ms: u64,
    /// Stored description; nothing of one that the configuration describes.
    pub storage: Option<StorageRow>,
}

impl WarehouseRow {
    /// The places that are its own.
    ///
    /// # Errors
    /// `BadRequest` when one is no place.
    pub fn places(&self) -> Result<Vec<TableLocation>> {
        let others = self.storage.iter().flat_map(|it| &it.locations);
        let all = std::iter::once(&self.root).chain(others);
        all.map(|text| text.split('?').next().unwrap_or_default().parse()).collect()
    }
}

/// All of them, in the order of their names.
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

/// Returns where the files of each warehouse are: its name, and its locations as they are written
/// down, without the parameters of buckets.
///
/// # Errors
/// When the store cannot be read.
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

impl WarehouseStore<'_> {
    /// All warehouses.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(self) -> Result<Vec<WarehouseRow>> {
        self.0.store.read("catalog.warehouses", |it| read(it)).await
    }

    /// The warehouse of this name, which is made when there is none. One that the configuration has
    /// made has this root from now on; its tables are where they are. One that was made while
    /// serving is as it is.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn ensure_warehouse(self, name: &str, root: &str, now_ms: u64) -> Result<()> {
        let id = self.0.ids.next("wh_");
        let (name, root) = (name.to_owned(), root.to_owned());
        let written = self.0.store.transact_idempotent("catalog.ensure_warehouse", move |it| {
            let sql = "INSERT INTO catalog_warehouses (id, name, root, created_ms) \
                VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING";
            let new =
                [SqlValue::from(&id), SqlValue::from(&name), SqlValue::from(&root), ms(now_ms)];
            let mut count = it.execute(sql, &new)?;
            let sql = "UPDATE catalog_warehouses SET root = $2 WHERE name = $1 AND root <> $2 \
                AND NOT EXISTS (SELECT 1 FROM catalog_storage s \
                WHERE s.warehouse = catalog_warehouses.id AND s.made = 1)";
            count += it.execute(sql, &[SqlValue::from(&name), SqlValue::from(&root)])?;
            if count > 0 { storage::changed(it) } else { Ok(()) }
        });
        written.await
    }
}
