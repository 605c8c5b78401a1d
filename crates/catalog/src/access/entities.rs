//! Metadata of warehouses, clients and roles for Polaris's management: properties, and a version
//! that moves with each change, by which two who change the same thing learn of each other.

use std::collections::HashMap;

use super::{AccessControl, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::CatalogPrincipal;
use crate::store::Properties;

/// Most properties of one thing.
pub const ENTITY_PROPERTIES_MAX: usize = 100;

/// Most bytes that they have together.
pub const ENTITY_PROPERTIES_BYTES_MAX: usize = 16 << 10;

/// The version of what has not been changed.
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
    pub(super) const fn name(self) -> &'static str {
        match self {
            EntityKind::Warehouse => "warehouse",
            EntityKind::Client => "client",
            EntityKind::Role => "role",
            EntityKind::CatalogRole => "catalog-role",
        }
    }
}

/// Names one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityKey {
    pub(super) kind: EntityKind,
    /// The id of the warehouse that it is in; empty for what is in none.
    pub(super) warehouse: String,
    pub(super) name: String,
}

impl EntityKey {
    /// A warehouse, by its id.
    #[must_use]
    pub fn warehouse(id: &str) -> EntityKey {
        EntityKey::of(EntityKind::Warehouse, id, "")
    }

    /// A client, by its id.
    #[must_use]
    pub fn client(id: &str) -> EntityKey {
        EntityKey::of(EntityKind::Client, "", id)
    }

    /// A role.
    #[must_use]
    pub fn role(name: &str) -> EntityKey {
        EntityKey::of(EntityKind::Role, "", name)
    }

    /// A role of the warehouse with this id.
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
    /// From 1, one more with each change.
    pub version: u64,
    /// When it was made (milliseconds since 1970), if that is known here.
    pub created_ms: Option<u64>,
    /// When it was last changed (milliseconds since 1970), if it ever was.
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
    /// The version that who asks has seen: it has to be the one that there is.
    pub version: u64,
    /// Complete new properties; none where they stay.
    pub properties: Option<Properties>,
}

/// Refuses properties that nobody keeps.
///
/// # Errors
/// `BadRequest`.
pub(crate) fn check_properties(properties: &Properties) -> Result<()> {
    let bytes: usize = properties.iter().map(|(key, value)| key.len() + value.len()).sum();
    if properties.len() <= ENTITY_PROPERTIES_MAX && bytes <= ENTITY_PROPERTIES_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "`properties` are at most {ENTITY_PROPERTIES_MAX}, with {ENTITY_PROPERTIES_BYTES_MAX} bytes"
    );
    Err(CatalogError::new(ErrorReason::BadRequest, message))
}

impl AccessControl {
    /// Returns what is said of one thing. Who asks was seen to be allowed to see it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn entity(&self, key: EntityKey) -> Result<EntityRecord> {
        Ok(self.0.store.entity(key).await?.unwrap_or_default())
    }

    /// Returns what is said of all of a kind, in a warehouse or in none, by name; for warehouses by
    /// their ids. Who asks was seen to be allowed to see them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn entities(
        &self,
        kind: EntityKind,
        warehouse: &str,
    ) -> Result<HashMap<String, EntityRecord>> {
        self.0.store.entities(kind, warehouse).await
    }

    /// Says something else of a client or a role.
    ///
    /// # Errors
    /// `Forbidden` for whoever is no operator; `NotFound`; `CommitFailed` when it has another
    /// version; `BadRequest` when the properties are too many.
    pub async fn update_entity(
        &self,
        who: &CatalogPrincipal,
        key: EntityKey,
        change: EntityChange,
    ) -> Result<EntityRecord> {
        only_operators(who)?;
        change.properties.as_ref().map_or(Ok(()), check_properties)?;
        self.0.store.update_entity(key, change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_bounded() {
        let some = |count: usize, bytes: usize| -> Properties {
            (0..count).map(|it| (format!("{it:04}"), "v".repeat(bytes - 4))).collect()
        };
        for (properties, expected) in [
            (Properties::new(), true),
            (some(ENTITY_PROPERTIES_MAX, 10), true),
            (some(ENTITY_PROPERTIES_MAX + 1, 10), false),
            (some(1, ENTITY_PROPERTIES_BYTES_MAX), true),
            (some(2, ENTITY_PROPERTIES_BYTES_MAX / 2 + 1), false),
        ] {
            let count = properties.len();
            assert_eq!(check_properties(&properties).is_ok(), expected, "{count}");
        }
    }
}
