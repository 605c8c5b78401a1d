//! Rights and policies on renamed, replaced or removed objects, updated in the same transaction, so
//! that neither change is visible without the other.

use iceberg::ident::NamespaceIdent;
use node::store::{SqlStoreError, StoreTransaction};

use super::entities;

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Notifies servers that share the store of a change of rights.
pub(crate) fn rights_changed(it: &mut dyn StoreTransaction) -> Stored<()> {
    it.execute("UPDATE catalog_access SET version = version + 1 WHERE id = 1", &[]).map(drop)
}

/// Removes the grants on a table or view and its policies, in the transaction that removes it.
pub(crate) fn forget_relation(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    let rights = "DELETE FROM catalog_rights WHERE object = $1 AND kind = 'relation'";
    let policies = "DELETE FROM catalog_policies WHERE relation = $1";
    match it.execute(rights, &[id.into()])? + it.execute(policies, &[id.into()])? {
        0 => Ok(()),
        _ => rights_changed(it),
    }
}

/// Notifies servers of a new name of a table or view, in the transaction that renames it.
pub(crate) fn relation_moved(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    let sql = "SELECT object FROM catalog_rights WHERE object = $1 AND kind = 'relation' \
        UNION ALL SELECT relation FROM catalog_policies WHERE relation = $1 LIMIT 1";
    match it.query_one(sql, &[id.into()])? {
        None => Ok(()),
        Some(_) => rights_changed(it),
    }
}

/// Moves the grants on a table or view and its policies to the one that replaces it, in the same
/// transaction.
pub(crate) fn relation_replaced(it: &mut dyn StoreTransaction, old: &str, new: &str) -> Stored<()> {
    let rights = "UPDATE catalog_rights SET object = $2 WHERE object = $1 AND kind = 'relation'";
    let policies = "UPDATE catalog_policies SET relation = $2 WHERE relation = $1";
    let names = [old.into(), new.into()];
    match it.execute(rights, &names)? + it.execute(policies, &names)? {
        0 => Ok(()),
        _ => rights_changed(it),
    }
}

/// Removes the grants on a warehouse and its catalog roles, in the transaction that removes it.
pub(crate) fn forget_warehouse(it: &mut dyn StoreTransaction, id: &str) -> Stored<()> {
    it.execute("DELETE FROM catalog_rights WHERE warehouse = $1", &[id.into()])?;
    for table in ["catalog_catalog_roles", "catalog_catalog_role_holders"] {
        it.execute(&format!("DELETE FROM {table} WHERE warehouse = $1"), &[id.into()])?;
    }
    entities::delete_of_warehouse(it, id)?;
    rights_changed(it)
}

/// Removes the grants on a namespace, in the transaction that removes it.
pub(crate) fn forget_namespace(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    namespace: &NamespaceIdent,
) -> Stored<()> {
    let sql =
        "DELETE FROM catalog_rights WHERE warehouse = $1 AND kind = 'namespace' AND object = $2";
    match it.execute(sql, &[warehouse.into(), namespace.key().into()])? {
        0 => Ok(()),
        _ => rights_changed(it),
    }
}
