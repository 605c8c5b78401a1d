//! Warehouses: what each is called and where it is.

use node::store::{StoreError, Value};

use super::{CatalogStore, ms};
use crate::error::{Error, Result};

/// Most warehouses of a catalog.
const WAREHOUSES_MAX: usize = 1000;

/// A warehouse at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarehouseRow {
    /// Names it for as long as it lives.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// The location that everything in it is below, unless it says otherwise.
    pub root: String,
}

impl CatalogStore {
    /// All warehouses.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn warehouses(&self) -> Result<Vec<WarehouseRow>> {
        let limit = Value::Int(i64::try_from(WAREHOUSES_MAX).map_err(Error::internal)?);
        let read = self.store.read("catalog.warehouses", move |it| {
            let sql = "SELECT id, name, root FROM catalog_warehouses ORDER BY name LIMIT $1";
            let rows = it.query(sql, std::slice::from_ref(&limit))?;
            let rows = rows.iter().map(|row| {
                Ok(WarehouseRow { id: row.get(0)?, name: row.get(1)?, root: row.get(2)? })
            });
            rows.collect::<std::result::Result<Vec<_>, StoreError>>()
        });
        Ok(read.await?)
    }

    /// The warehouse of this name, which is made when there is none. One that exists has this root
    /// from now on; its tables are where they are.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn ensure_warehouse(
        &self,
        name: &str,
        root: &str,
        now_ms: u64,
    ) -> Result<WarehouseRow> {
        let id = self.ids.next("wh_");
        let (name, root) = (name.to_owned(), root.to_owned());
        let written = self.store.transact_idempotent("catalog.ensure_warehouse", move |it| {
            let sql = "INSERT INTO catalog_warehouses (id, name, root, created_ms) \
                VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO UPDATE SET root = $3";
            let new = [Value::from(&id), Value::from(&name), Value::from(&root), ms(now_ms)];
            it.execute(sql, &new)?;
            let sql = "SELECT id, root FROM catalog_warehouses WHERE name = $1";
            let row = it.query_one(sql, &[Value::from(&name)])?.ok_or_else(missing)?;
            Ok(WarehouseRow { id: row.get(0)?, name: name.clone(), root: row.get(1)? })
        });
        Ok(written.await?)
    }
}

/// A row that was written just now is there.
fn missing() -> StoreError {
    StoreError::refuse(Error::internal("a warehouse that was made is not there"))
}
