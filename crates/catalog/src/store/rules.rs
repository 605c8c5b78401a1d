//! Rules of a warehouse, a namespace or a relation beside its own properties: protection, and
//! retention of dropped objects.

use iceberg::ident::NamespaceIdent;
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use crate::database::CatalogDatabase;
use crate::error::Result;

/// Subject of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSubject<'a> {
    /// A warehouse.
    Warehouse,
    /// A namespace, but not its content.
    Namespace(&'a NamespaceIdent),
    /// The table or view with this id, whatever its present name.
    Relation(&'a str),
}

impl RuleSubject<'_> {
    /// Keys are unique: a namespace's key has a character that ids lack.
    fn key(self) -> String {
        match self {
            RuleSubject::Warehouse => String::new(),
            RuleSubject::Namespace(ident) => format!("n{}", ident.key()),
            RuleSubject::Relation(id) => format!("t{id}"),
        }
    }
}

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Stored part of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StoredRule {
    is_protected: bool,
    undrop_s: Option<u64>,
}

fn find(it: &mut dyn StoreTransaction, warehouse: &str, object: &str) -> Stored<StoredRule> {
    let sql = "SELECT protected, undrop_s FROM catalog_rules WHERE warehouse = $1 AND object = $2";
    let Some(row) = it.query_one(sql, &[warehouse.into(), object.into()])? else {
        return Ok(StoredRule::default());
    };
    Ok(StoredRule { is_protected: row.get::<i64>(0)? != 0, undrop_s: row.get(1)? })
}

fn keep(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    object: &str,
    rule: StoredRule,
) -> Stored<()> {
    if rule == StoredRule::default() {
        return forget(it, warehouse, object);
    }
    let sql = "INSERT INTO catalog_rules (warehouse, object, protected, undrop_s) \
        VALUES ($1, $2, $3, $4) ON CONFLICT (warehouse, object) \
        DO UPDATE SET protected = $3, undrop_s = $4";
    let seconds = rule.undrop_s.and_then(|it| i64::try_from(it).ok());
    let parameters = [
        warehouse.into(),
        object.into(),
        SqlValue::Int(i64::from(rule.is_protected)),
        seconds.into(),
    ];
    it.execute(sql, &parameters).map(drop)
}

fn forget(it: &mut dyn StoreTransaction, warehouse: &str, object: &str) -> Stored<()> {
    let sql = "DELETE FROM catalog_rules WHERE warehouse = $1 AND object = $2";
    it.execute(sql, &[warehouse.into(), object.into()]).map(drop)
}

/// Removes the rules of a dropped namespace.
pub(super) fn forget_namespace(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
) -> Stored<()> {
    forget(it, warehouse, &RuleSubject::Namespace(ident).key())
}

/// Protection and retention of warehouses, namespaces and relations, in the store.
#[derive(Clone, Debug)]
pub(crate) struct RuleStore(pub(super) CatalogDatabase);

impl RuleStore {
    /// Returns whether an object is protected.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn is_protected(
        &self,
        warehouse: &str,
        what: RuleSubject<'_>,
    ) -> Result<bool> {
        let (warehouse, key) = (warehouse.to_owned(), what.key());
        let read = self.0.read("catalog.rule", move |it| find(it, &warehouse, &key));
        Ok(read.await?.is_protected)
    }

    /// Protects an object, or lifts its protection.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn protect(
        &self,
        warehouse: &str,
        what: RuleSubject<'_>,
        is_protected: bool,
    ) -> Result<()> {
        let (warehouse, key) = (warehouse.to_owned(), what.key());
        let written = self.0.transact_idempotent("catalog.protect", move |it| {
            let rule = StoredRule { is_protected, ..find(it, &warehouse, &key)? };
            keep(it, &warehouse, &key, rule)
        });
        written.await
    }

    /// Returns the retention of objects dropped in a warehouse, in seconds; `None` if it is not
    /// set.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn retention(&self, warehouse: &str) -> Result<Option<u64>> {
        let (warehouse, key) = (warehouse.to_owned(), RuleSubject::Warehouse.key());
        let read = self.0.read("catalog.rule", move |it| find(it, &warehouse, &key));
        Ok(read.await?.undrop_s)
    }

    /// Sets the retention of objects dropped in a warehouse, or removes the setting.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn set_retention(&self, warehouse: &str, seconds: Option<u64>) -> Result<()> {
        let (warehouse, key) = (warehouse.to_owned(), RuleSubject::Warehouse.key());
        let written = self.0.transact_idempotent("catalog.set_retention", move |it| {
            let rule = StoredRule { undrop_s: seconds, ..find(it, &warehouse, &key)? };
            keep(it, &warehouse, &key, rule)
        });
        written.await
    }
}
