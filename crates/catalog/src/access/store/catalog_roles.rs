//! Catalog roles at rest.

use node::clock;
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::{AccessStore, Stored, require_room, roles};
use crate::access::catalog_roles::{
    CATALOG_ROLES_MAX, CatalogRoleRecord, HOLDERS_MAX, catalog_role_principal, no_such,
};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::{EntityKey, Properties, entities, no_such_warehouse, rights_changed};

impl AccessStore {
    /// Keeps a new catalog role.
    pub(in crate::access) async fn insert_catalog_role(
        &self,
        warehouse: &str,
        name: &str,
        properties: &Properties,
    ) -> Result<()> {
        let (warehouse, name) = (warehouse.to_owned(), name.to_owned());
        let (properties, now_ms) = (properties.clone(), clock::wall_ms());
        let written = self.0.transact("catalog.insert_catalog_role", move |it| {
            let sql = "SELECT 1 FROM catalog_warehouses WHERE id = $1";
            if it.query_one(sql, &[SqlValue::from(&warehouse)])?.is_none() {
                return Err(SqlStoreError::refuse(no_such_warehouse(&warehouse)));
            }
            if is_there(it, &warehouse, &name)? {
                let message = format!("Catalog role already exists: {name}");
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::AlreadyExists,
                    message,
                )));
            }
            let sql = "SELECT COUNT(*) FROM catalog_catalog_roles";
            require_room(it, sql, CATALOG_ROLES_MAX, "catalog roles")?;
            let sql = "INSERT INTO catalog_catalog_roles (warehouse, name) VALUES ($1, $2)";
            it.execute(sql, &[SqlValue::from(&warehouse), SqlValue::from(&name)])?;
            entities::made(it, &EntityKey::catalog_role(&warehouse, &name), &properties, now_ms)?;
            rights_changed(it)
        });
        written.await
    }

    /// Removes a catalog role and the grants to it.
    pub(in crate::access) async fn delete_catalog_role(
        &self,
        warehouse: &str,
        name: &str,
    ) -> Result<()> {
        let (warehouse, name) = (warehouse.to_owned(), name.to_owned());
        let written = self.0.transact("catalog.delete_catalog_role", move |it| {
            require(it, &warehouse, &name)?;
            for table in ["catalog_catalog_roles", "catalog_catalog_role_holders"] {
                let sql = format!("DELETE FROM {table} WHERE warehouse = $1 AND name = $2");
                it.execute(&sql, &[SqlValue::from(&warehouse), SqlValue::from(&name)])?;
            }
            roles::forget_principal(it, &catalog_role_principal(&warehouse, &name))?;
            entities::delete(it, &EntityKey::catalog_role(&warehouse, &name))?;
            rights_changed(it)
        });
        written.await
    }

    /// Gives a catalog role to a role, or takes it from it.
    pub(in crate::access) async fn give_catalog_role(
        &self,
        warehouse: &str,
        name: &str,
        role: &str,
        is_to_have: bool,
    ) -> Result<()> {
        let (warehouse, name, role) = (warehouse.to_owned(), name.to_owned(), role.to_owned());
        let written = self.0.transact("catalog.give_catalog_role", move |it| {
            roles::require(it, &role)?;
            require(it, &warehouse, &name)?;
            let place = [SqlValue::from(&warehouse), SqlValue::from(&name), SqlValue::from(&role)];
            let sql = "DELETE FROM catalog_catalog_role_holders \
                WHERE warehouse = $1 AND name = $2 AND role = $3";
            it.execute(sql, &place)?;
            if is_to_have {
                let sql = "SELECT COUNT(*) FROM catalog_catalog_role_holders";
                require_room(it, sql, HOLDERS_MAX, "roles with catalog roles")?;
                let sql = "INSERT INTO catalog_catalog_role_holders (warehouse, name, role) \
                    VALUES ($1, $2, $3)";
                it.execute(sql, &place)?;
            }
            rights_changed(it)
        });
        written.await
    }

    /// Views that a principal was granted something on: namespace and name.
    pub(in crate::access) async fn granted_views(
        &self,
        warehouse: &str,
        principal: &str,
    ) -> Result<Vec<(String, String)>> {
        let parameters = [SqlValue::from(warehouse), SqlValue::from(principal)];
        let read = self.0.read("catalog.granted_views", move |it| {
            let sql = "SELECT t.namespace, t.name FROM catalog_rights r \
                JOIN catalog_tables t ON t.id = r.object AND t.kind = 'view' \
                WHERE r.warehouse = $1 AND r.principal = $2 AND r.kind = 'relation'";
            let rows = it.query(sql, &parameters)?;
            rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
        });
        read.await
    }
}

fn is_there(it: &mut dyn StoreTransaction, warehouse: &str, name: &str) -> Stored<bool> {
    let sql = "SELECT 1 FROM catalog_catalog_roles WHERE warehouse = $1 AND name = $2";
    Ok(it.query_one(sql, &[warehouse.into(), name.into()])?.is_some())
}

/// Refuses one that there is not.
pub(super) fn require(it: &mut dyn StoreTransaction, warehouse: &str, name: &str) -> Stored<()> {
    match is_there(it, warehouse, name)? {
        true => Ok(()),
        false => Err(SqlStoreError::refuse(no_such(name))),
    }
}

/// All of them, by warehouse and name, and the roles that have them in order.
pub(super) fn all(it: &mut dyn StoreTransaction) -> Stored<Vec<CatalogRoleRecord>> {
    let sql = "SELECT c.warehouse, c.name, h.role FROM catalog_catalog_roles c \
        LEFT JOIN catalog_catalog_role_holders h ON h.warehouse = c.warehouse AND h.name = c.name \
        ORDER BY c.warehouse, c.name, h.role";
    let mut all: Vec<CatalogRoleRecord> = Vec::new();
    for row in it.query(sql, &[])? {
        let (warehouse, name): (String, String) = (row.get(0)?, row.get(1)?);
        let holder: Option<String> = row.get(2)?;
        match all.last_mut() {
            Some(last) if (&last.warehouse, &last.name) == (&warehouse, &name) => {
                last.holders.extend(holder);
            }
            _ => all.push(CatalogRoleRecord {
                warehouse,
                name,
                holders: holder.into_iter().collect(),
            }),
        }
    }
    Ok(all)
}
