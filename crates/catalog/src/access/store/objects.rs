//! Objects of rights: ids of tables and views, and what becomes of their rights.

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::{Stored, catalog_roles, changed, entities};
use crate::access::grants::PrincipalGrant;
use crate::error::{CatalogError, ErrorReason};
use crate::store::no_such_namespace;

/// A whole warehouse.
pub(super) const WAREHOUSE: &str = "warehouse";
/// A namespace, by its path.
pub(super) const NAMESPACE: &str = "namespace";
/// A table or a view, by its id.
pub(super) const RELATION: &str = "relation";

/// Returns what a grant is to, as it is kept.
pub(super) fn place(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    grant: &PrincipalGrant,
) -> Stored<[SqlValue; 4]> {
    let (kind, object) = match (&grant.namespace, &grant.name) {
        (None, _) => (WAREHOUSE, String::new()),
        (Some(namespace), None) => {
            let path = namespace.key();
            let sql = "SELECT path FROM catalog_namespaces WHERE warehouse = $1 AND path = $2";
            let found = it.query_one(sql, &[warehouse.into(), SqlValue::from(&path)])?;
            found.ok_or_else(|| SqlStoreError::refuse(no_such_namespace(namespace)))?;
            (NAMESPACE, path)
        }
        (Some(namespace), Some(name)) => (RELATION, relation(it, warehouse, namespace, name)?),
    };
    Ok([SqlValue::from(&grant.principal), warehouse.into(), kind.into(), object.into()])
}

/// The id of a table or a view.
pub(super) fn relation(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    namespace: &NamespaceIdent,
    name: &str,
) -> Stored<String> {
    let sql = "SELECT id FROM catalog_tables WHERE warehouse = $1 AND namespace = $2 AND name = $3";
    let found = it.query_one(sql, &[warehouse.into(), namespace.key().into(), name.into()])?;
    let found = found.ok_or_else(|| {
        let ident = TableIdent { namespace: namespace.clone(), name: name.into() };
        let message = format!("Table or view does not exist: {ident}");
        SqlStoreError::refuse(CatalogError::new(ErrorReason::NoSuchTable, message))
    });
    found?.get(0)
}

/// Removes what was given on a table or a view that goes, and its policies, in the transaction that
/// removes it.
pub(crate) fn forget_relation(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    let rights = "DELETE FROM catalog_rights WHERE object = $1 AND kind = 'relation'";
    let policies = "DELETE FROM catalog_policies WHERE relation = $1";
    match it.execute(rights, &[id.into()])? + it.execute(policies, &[id.into()])? {
        0 => Ok(()),
        _ => changed(it),
    }
}

/// Tells servers of another name of a table or a view, in the transaction that gives it.
pub(crate) fn relation_moved(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    let sql = "SELECT object FROM catalog_rights WHERE object = $1 AND kind = 'relation' \
        UNION ALL SELECT relation FROM catalog_policies WHERE relation = $1 LIMIT 1";
    match it.query_one(sql, &[id.into()])? {
        None => Ok(()),
        Some(_) => changed(it),
    }
}

/// Gives what was given on a table or a view on the one that takes its place, and its policies, in
/// the transaction that puts it there.
pub(crate) fn relation_replaced(it: &mut dyn StoreTransaction, old: &str, new: &str) -> Stored<()> {
    let rights = "UPDATE catalog_rights SET object = $2 WHERE object = $1 AND kind = 'relation'";
    let policies = "UPDATE catalog_policies SET relation = $2 WHERE relation = $1";
    let names = [old.into(), new.into()];
    match it.execute(rights, &names)? + it.execute(policies, &names)? {
        0 => Ok(()),
        _ => changed(it),
    }
}

/// Removes what was given on a warehouse that goes, and its catalog roles, in the transaction that
/// removes it.
pub(crate) fn forget_warehouse(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_rights WHERE warehouse = $1", &[id.into()])?;
    catalog_roles::warehouse_gone(it, id)?;
    entities::warehouse_gone(it, id)?;
    changed(it)
}

/// Removes what was given on a namespace that goes, in the transaction that removes it.
pub(crate) fn forget_namespace(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    namespace: &NamespaceIdent,
) -> Stored<()> {
    let sql =
        "DELETE FROM catalog_rights WHERE warehouse = $1 AND kind = 'namespace' AND object = $2";
    match it.execute(sql, &[warehouse.into(), namespace.key().into()])? {
        0 => Ok(()),
        _ => changed(it),
    }
}
