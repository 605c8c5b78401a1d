//! Properties and versions of warehouses, clients and roles at rest.

use std::collections::HashMap;

use node::clock;
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::{AccessStore, Stored, broken, catalog_roles, ms, roles};
use crate::access::clients;
use crate::access::entities::{EntityChange, EntityKey, EntityKind, EntityRecord};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::Properties;

/// The columns that [`of_row`] reads.
const COLUMNS: &str = "properties, version, created_ms, updated_ms, name, warehouse";

impl AccessStore {
    /// Returns what is said of one thing; none when nothing ever was.
    pub(in crate::access) async fn entity(&self, key: EntityKey) -> Result<Option<EntityRecord>> {
        self.0.read("catalog.entity", move |it| find(it, &key)).await
    }

    /// Returns what is said of all of a kind, by name; of warehouses by their ids.
    pub(in crate::access) async fn entities(
        &self,
        kind: EntityKind,
        warehouse: &str,
    ) -> Result<HashMap<String, EntityRecord>> {
        let warehouse = warehouse.to_owned();
        let read = self.0.read("catalog.entities", move |it| {
            let rows = match kind {
                EntityKind::Warehouse => {
                    let sql = format!("SELECT {COLUMNS} FROM catalog_entities WHERE kind = $1");
                    it.query(&sql, &[kind.name().into()])?
                }
                _ => {
                    let sql = format!(
                        "SELECT {COLUMNS} FROM catalog_entities WHERE kind = $1 AND warehouse = $2"
                    );
                    it.query(&sql, &[kind.name().into(), SqlValue::from(&warehouse)])?
                }
            };
            let column = if kind == EntityKind::Warehouse { 5 } else { 4 };
            rows.iter().map(|row| Ok((row.get(column)?, of_row(row)?))).collect()
        });
        read.await
    }

    /// Says something else of a client or a role that there is.
    pub(in crate::access) async fn update_entity(
        &self,
        key: EntityKey,
        change: EntityChange,
    ) -> Result<EntityRecord> {
        let now_ms = clock::wall_ms();
        let written = self.0.transact("catalog.update_entity", move |it| {
            require(it, &key)?;
            changed(it, &key, Some(&change), now_ms)
        });
        written.await
    }
}

/// Refuses what there is not.
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

/// Says what a new thing is like, in the transaction that makes it.
pub(crate) fn made(
    it: &mut dyn StoreTransaction,
    key: &EntityKey,
    properties: &Properties,
    now_ms: u64,
) -> Stored<()> {
    let entity = EntityRecord {
        properties: properties.clone(),
        created_ms: Some(now_ms),
        ..EntityRecord::default()
    };
    put(it, key, &entity, now_ms)
}

/// Says something else of a thing, or only that it has changed, in the transaction that changes it.
///
/// # Errors
/// `CommitFailed` when it has another version than who asks has seen.
pub(crate) fn changed(
    it: &mut dyn StoreTransaction,
    key: &EntityKey,
    change: Option<&EntityChange>,
    now_ms: u64,
) -> Stored<EntityRecord> {
    let mut entity = find(it, key)?.unwrap_or_default();
    if let Some(change) = change {
        if change.version != entity.version {
            let message = format!(
                "`currentEntityVersion` is {}, and the version is {} now",
                change.version, entity.version
            );
            return Err(SqlStoreError::refuse(CatalogError::new(
                ErrorReason::CommitFailed,
                message,
            )));
        }
        if let Some(properties) = &change.properties {
            entity.properties.clone_from(properties);
        }
    }
    entity.version += 1;
    entity.updated_ms = Some(now_ms);
    put(it, key, &entity, now_ms)?;
    Ok(entity)
}

/// Forgets a thing that goes, in the transaction that removes it.
pub(super) fn gone(it: &mut dyn StoreTransaction, key: &EntityKey) -> Stored<()> {
    let sql = "DELETE FROM catalog_entities WHERE kind = $1 AND warehouse = $2 AND name = $3";
    it.execute(sql, &parameters(key)).map(drop)
}

/// Forgets a warehouse and what is in it.
pub(super) fn warehouse_gone(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_entities WHERE warehouse = $1", &[id.into()]).map(drop)
}

fn parameters(key: &EntityKey) -> [SqlValue; 3] {
    [key.kind.name().into(), SqlValue::from(&key.warehouse), SqlValue::from(&key.name)]
}

fn find(it: &mut dyn StoreTransaction, key: &EntityKey) -> Stored<Option<EntityRecord>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM catalog_entities WHERE kind = $1 AND warehouse = $2 AND name = $3"
    );
    it.query_one(&sql, &parameters(key))?.map(|row| of_row(&row)).transpose()
}

fn put(
    it: &mut dyn StoreTransaction,
    key: &EntityKey,
    entity: &EntityRecord,
    now_ms: u64,
) -> Stored<()> {
    gone(it, key)?;
    let sql = "INSERT INTO catalog_entities \
        (kind, warehouse, name, properties, version, created_ms, updated_ms) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let properties = serde_json::to_vec(&entity.properties);
    let properties = properties.map_err(|it| SqlStoreError::refuse(CatalogError::internal(it)))?;
    let created = entity.created_ms.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    let version = i64::try_from(entity.version).map_err(|_| broken("a version too many"))?;
    let [kind, warehouse, name] = parameters(key);
    let all = [
        kind,
        warehouse,
        name,
        SqlValue::from(&properties[..]),
        SqlValue::Int(version),
        created.map_or(SqlValue::Null, SqlValue::Int),
        ms(now_ms)?,
    ];
    it.execute(sql, &all).map(drop)
}

fn of_row(row: &SqlRow) -> Stored<EntityRecord> {
    let properties: Vec<u8> = row.get(0)?;
    let properties = serde_json::from_slice(&properties);
    Ok(EntityRecord {
        properties: properties.map_err(|_| broken("properties are damaged"))?,
        version: row.get(1)?,
        created_ms: row.get(2)?,
        updated_ms: row.get(3)?,
    })
}
