//! Stored metadata of warehouses, clients and roles: properties, and a version that increases with
//! each change.

use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::namespaces::Properties;
use super::queries::{broken, ms};
use crate::error::{CatalogError, ErrorReason};

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Columns that [`of_row`] reads.
pub(crate) const ENTITY_COLUMNS: &str =
    "properties, version, created_ms, updated_ms, name, warehouse";

/// Version of an unchanged entity.
const FIRST_VERSION: u64 = 1;

/// Kind of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityKind {
    /// A warehouse, by its id.
    Warehouse,
    /// A client, by its id.
    Client,
    /// A role, by its name.
    Role,
    /// A role of one warehouse, by its name there.
    CatalogRole,
}

impl EntityKind {
    /// Returns the name in the store.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            EntityKind::Warehouse => "warehouse",
            EntityKind::Client => "client",
            EntityKind::Role => "role",
            EntityKind::CatalogRole => "catalog-role",
        }
    }
}

/// Key of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityKey {
    pub(crate) kind: EntityKind,
    /// Id of its warehouse; empty for an entity outside of warehouses.
    pub(crate) warehouse: String,
    pub(crate) name: String,
}

impl EntityKey {
    /// Key of a warehouse, by its id.
    #[must_use]
    pub fn warehouse(id: &str) -> EntityKey {
        EntityKey::of(EntityKind::Warehouse, id, "")
    }

    /// Key of a client, by its id.
    #[must_use]
    pub fn client(id: &str) -> EntityKey {
        EntityKey::of(EntityKind::Client, "", id)
    }

    /// Key of a role.
    #[must_use]
    pub fn role(name: &str) -> EntityKey {
        EntityKey::of(EntityKind::Role, "", name)
    }

    /// Key of a role of the warehouse with this id.
    #[must_use]
    pub fn catalog_role(warehouse: &str, name: &str) -> EntityKey {
        EntityKey::of(EntityKind::CatalogRole, warehouse, name)
    }

    fn of(kind: EntityKind, warehouse: &str, name: &str) -> EntityKey {
        EntityKey { kind, warehouse: warehouse.to_owned(), name: name.to_owned() }
    }
}

/// Metadata of one entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityRecord {
    /// Properties, as given.
    pub properties: Properties,
    /// Starts at 1 and increases by one with each change.
    pub version: u64,
    /// Time of creation (milliseconds since 1970), if it is known.
    pub created_ms: Option<u64>,
    /// Time of the last change (milliseconds since 1970), if there was one.
    pub updated_ms: Option<u64>,
}

impl Default for EntityRecord {
    fn default() -> EntityRecord {
        EntityRecord {
            properties: Properties::new(),
            version: FIRST_VERSION,
            created_ms: None,
            updated_ms: None,
        }
    }
}

/// Change of an entity's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityChange {
    /// Version that the caller has seen: it has to be the present one.
    pub version: u64,
    /// Complete new properties; `None` leaves them unchanged.
    pub properties: Option<Properties>,
}

/// Stores the metadata of a new entity, in the transaction that creates it.
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

/// Changes the properties of an entity, or only its version, in the transaction that changes it.
///
/// # Errors
/// `CommitFailed` if its version is not the one that the caller has seen.
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

/// Removes the metadata of an entity, in the transaction that removes it.
pub(crate) fn delete(it: &mut dyn StoreTransaction, key: &EntityKey) -> Stored<()> {
    let sql = "DELETE FROM catalog_entities WHERE kind = $1 AND warehouse = $2 AND name = $3";
    it.execute(sql, &parameters(key)).map(drop)
}

/// Removes the metadata of a warehouse and of the entities in it.
pub(crate) fn delete_of_warehouse(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_entities WHERE warehouse = $1", &[id.into()]).map(drop)
}

fn parameters(key: &EntityKey) -> [SqlValue; 3] {
    [key.kind.name().into(), SqlValue::from(&key.warehouse), SqlValue::from(&key.name)]
}

pub(crate) fn find(it: &mut dyn StoreTransaction, key: &EntityKey) -> Stored<Option<EntityRecord>> {
    let sql = format!(
        "SELECT {ENTITY_COLUMNS} FROM catalog_entities WHERE kind = $1 AND warehouse = $2 AND name = $3"
    );
    it.query_one(&sql, &parameters(key))?.map(|row| of_row(&row)).transpose()
}

fn put(
    it: &mut dyn StoreTransaction,
    key: &EntityKey,
    entity: &EntityRecord,
    now_ms: u64,
) -> Stored<()> {
    delete(it, key)?;
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
        ms(now_ms),
    ];
    it.execute(sql, &all).map(drop)
}

pub(crate) fn of_row(row: &SqlRow) -> Stored<EntityRecord> {
    let properties: Vec<u8> = row.get(0)?;
    let properties = serde_json::from_slice(&properties);
    Ok(EntityRecord {
        properties: properties.map_err(|_| broken("properties are damaged"))?,
        version: row.get(1)?,
        created_ms: row.get(2)?,
        updated_ms: row.get(3)?,
    })
}
