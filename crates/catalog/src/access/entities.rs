//! Metadata of warehouses, clients and roles for Polaris's management: properties, and a version
//! that increases with each change, by which concurrent changes of one object are detected.

use std::collections::HashMap;

use super::{AccessControl, only_operators};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::CatalogPrincipal;
use crate::store::{EntityChange, EntityKey, EntityKind, EntityRecord, Properties};

/// Most properties of one entity.
pub const ENTITY_PROPERTIES_MAX: usize = 100;

/// Most bytes of all properties of one entity.
pub const ENTITY_PROPERTIES_BYTES_MAX: usize = 16 << 10;

/// Rejects properties that exceed the limits.
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

/// Properties and versions of principals, roles and warehouses.
#[derive(Clone, Copy, Debug)]
pub struct EntityRegistry<'a>(pub(super) &'a AccessControl);

impl EntityRegistry<'_> {
    /// Returns the metadata of one entity. The caller has already checked that it may be shown.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn entity(self, key: EntityKey) -> Result<EntityRecord> {
        Ok(self.0.0.store.entity(key).await?.unwrap_or_default())
    }

    /// Returns the metadata of all entities of a kind, in a warehouse or outside of warehouses, by
    /// name; warehouses by id. The caller has already checked that they may be shown.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn list(
        self,
        kind: EntityKind,
        warehouse: &str,
    ) -> Result<HashMap<String, EntityRecord>> {
        self.0.0.store.entities(kind, warehouse).await
    }

    /// Changes the properties of a client or a role.
    ///
    /// # Errors
    /// `Forbidden` if the caller is no operator; `NotFound`; `CommitFailed` if it has another
    /// version; `BadRequest` if there are too many properties.
    pub async fn update_entity(
        self,
        who: &CatalogPrincipal,
        key: EntityKey,
        change: EntityChange,
    ) -> Result<EntityRecord> {
        only_operators(who)?;
        change.properties.as_ref().map_or(Ok(()), check_properties)?;
        self.0.0.store.update_entity(key, change).await
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
