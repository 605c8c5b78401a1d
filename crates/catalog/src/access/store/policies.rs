//! Policies at rest, by the ids of their tables.

use iceberg::ident::{NamespaceIdent, SEPARATOR};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::objects::relation;
use super::{AccessStore, Stored, require_room, roles};
use crate::access::policies::{
    POLICIES_MAX, PolicyBody, PolicyRecord, TABLE_POLICIES_BYTES_MAX, no_such,
};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::store::rights_changed;

impl AccessStore {
    /// Keeps a policy in place of the one of its name.
    pub(in crate::access) async fn put_policy(
        &self,
        warehouse: &str,
        policy: &PolicyRecord,
    ) -> Result<()> {
        let (warehouse, policy) = (warehouse.to_owned(), policy.clone());
        let body = serde_json::to_vec(&policy.body).map_err(CatalogError::internal)?;
        let written = self.0.transact("catalog.put_policy", move |it| {
            roles::require_principal(it, &warehouse, &policy.principal)?;
            let table = relation(it, &warehouse, &policy.namespace, &policy.table)?;
            let sql = "DELETE FROM catalog_policies WHERE warehouse = $1 AND name = $2";
            it.execute(sql, &[SqlValue::from(&warehouse), SqlValue::from(&policy.name)])?;
            require_room(it, "SELECT COUNT(*) FROM catalog_policies", POLICIES_MAX, "policies")?;
            let sql = "SELECT body FROM catalog_policies WHERE relation = $1";
            let others = it.query(sql, &[SqlValue::from(&table)])?;
            let others = others.iter().map(|row| row.get::<Vec<u8>>(0).map(|it| it.len()));
            let bytes = others.sum::<Stored<usize>>()?;
            if bytes + body.len() > TABLE_POLICIES_BYTES_MAX {
                let message = format!(
                    "the policies of the table have more than {TABLE_POLICIES_BYTES_MAX} bytes"
                );
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::BadRequest,
                    message,
                )));
            }
            let sql = "INSERT INTO catalog_policies (warehouse, name, relation, principal, body) \
                VALUES ($1, $2, $3, $4, $5)";
            let parameters = [
                SqlValue::from(&warehouse),
                SqlValue::from(&policy.name),
                table.into(),
                SqlValue::from(&policy.principal),
                SqlValue::from(&body[..]),
            ];
            it.execute(sql, &parameters)?;
            rights_changed(it)
        });
        written.await
    }

    /// Removes a policy.
    pub(in crate::access) async fn delete_policy(&self, warehouse: &str, name: &str) -> Result<()> {
        let (warehouse, name) = (warehouse.to_owned(), name.to_owned());
        let written = self.0.transact("catalog.delete_policy", move |it| {
            let sql = "DELETE FROM catalog_policies WHERE warehouse = $1 AND name = $2";
            match it.execute(sql, &[SqlValue::from(&warehouse), SqlValue::from(&name)])? {
                0 => Err(SqlStoreError::refuse(no_such(&name))),
                _ => rights_changed(it),
            }
        });
        written.await
    }
}

/// All policies, by the names that their tables have now, with the ids of their warehouses.
pub(super) fn all(it: &mut dyn StoreTransaction) -> Stored<Vec<(Box<str>, PolicyRecord)>> {
    let sql = "SELECT p.warehouse, p.name, p.principal, t.namespace, t.name, p.body \
        FROM catalog_policies p JOIN catalog_tables t ON t.id = p.relation \
        ORDER BY p.warehouse, p.name";
    it.query(sql, &[])?.iter().map(policy).collect()
}

fn policy(row: &SqlRow) -> Stored<(Box<str>, PolicyRecord)> {
    let path: String = row.get(3)?;
    let body = serde_json::from_slice::<PolicyBody>(&row.get::<Vec<u8>>(5)?);
    let policy = PolicyRecord {
        name: row.get(1)?,
        principal: row.get(2)?,
        namespace: NamespaceIdent::new(path.split(SEPARATOR)).map_err(SqlStoreError::refuse)?,
        table: row.get(4)?,
        body: body.map_err(|error| SqlStoreError::refuse(CatalogError::internal(error)))?,
    };
    Ok((row.get::<String>(0)?.into(), policy))
}
