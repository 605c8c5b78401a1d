//! Stored properties and versions of warehouses, clients and roles.

use std::collections::HashMap;

use node::clock;
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::{AccessStore, Stored, catalog_roles, roles};
use crate::access::clients;
use crate::error::Result;
use crate::store::entities::{self, ENTITY_COLUMNS};
use crate::store::{EntityChange, EntityKey, EntityKind, EntityRecord, broken};

impl AccessStore {
    /// Returns the metadata of one entity; `None` if none was ever stored.
    pub(in crate::access) async fn entity(&self, key: EntityKey) -> Result<Option<EntityRecord>> {
        self.0.read("catalog.entity", move |it| entities::find(it, &key)).await
    }

    /// Returns the metadata of all entities of a kind, by name; warehouses by id.
    pub(in crate::access) async fn entities(
        &self,
        kind: EntityKind,
        warehouse: &str,
    ) -> Result<HashMap<String, EntityRecord>> {
        let warehouse = warehouse.to_owned();
        let read = self.0.read("catalog.entities", move |it| {
            let rows = match kind {
                EntityKind::Warehouse => {
                    let sql = format!("SELECT {ENTITY_COLUMNS} FROM catalog_entities WHERE kind = $1");
                    it.query(&sql, &[kind.name().into()])?
                }
                _ => {
                    let sql = format!(
                        "SELECT {ENTITY_COLUMNS} FROM catalog_entities WHERE kind = $1 AND warehouse = $2"
                    );
                    it.query(&sql, &[kind.name().into(), SqlValue::from(&warehouse)])?
                }
            };
            let column = if kind == EntityKind::Warehouse { 5 } else { 4 };
            rows.iter().map(|row| Ok((row.get(column)?, entities::of_row(row)?))).collect()
        });
        read.await
    }

    /// Changes the metadata of an existing client or role.
    pub(in crate::access) async fn update_entity(
        &self,
        key: EntityKey,
        change: EntityChange,
    ) -> Result<EntityRecord> {
        let now_ms = clock::wall_ms();
        let written = self.0.transact("catalog.update_entity", move |it| {
            require(it, &key)?;
            entities::changed(it, &key, Some(&change), now_ms)
        });
        written.await
    }
}

/// Rejects an entity that does not exist.
fn require(it: &mut dyn StoreTransaction, key: &EntityKey) -> Stored<()> {
    match key.kind {
        EntityKind::Client => {
            let sql = "SELECT 1 FROM catalog_clients WHERE id = $1";
            let found = it.query_one(sql, &[SqlValue::from(&key.name)])?;
            found.map(drop).ok_or_else(|| SqlStoreError::refuse(clients::no_such(&key.name)))
        }
        EntityKind::Role => roles::require(it, &key.name),
        EntityKind::CatalogRole => catalog_roles::require(it, &key.warehouse, &key.name),
        EntityKind::Warehouse => Err(broken("a warehouse changes with what it is")),
    }
}
