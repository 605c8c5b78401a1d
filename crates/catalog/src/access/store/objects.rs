//! Objects of rights: ids of tables and views.

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::Stored;
use crate::access::grants::PrincipalGrant;
use crate::error::{CatalogError, ErrorReason};
use crate::store::no_such_namespace;

/// A whole warehouse.
pub(super) const WAREHOUSE: &str = "warehouse";
/// A namespace, by its path.
pub(super) const NAMESPACE: &str = "namespace";
/// A table or a view, by its id.
pub(super) const RELATION: &str = "relation";

/// Returns the stored form of a grant's object.
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
