//! Namespaces: one row each, found by path and by the parent's path.

use std::collections::BTreeMap;

use iceberg::ident::NamespaceIdent;
use node::store::{SqlStoreError, SqlValue, StoreTransaction};

use super::log::{self, ChangeContext, LogAction, LogRecord};
use super::queries::{ms, no_such_warehouse, page_all};
use super::{rights, rules};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};

/// Properties of a namespace.
pub type Properties = BTreeMap<String, String>;

/// A change of properties.
#[derive(Clone, Debug, Default)]
pub struct PropertiesChange {
    /// Keys to remove.
    pub removals: Vec<String>,
    /// Keys to set, with their values.
    pub updates: Properties,
    /// Value of its `location` when the caller's right to change it was checked; `None` if the
    /// location stays.
    pub known_location: Option<Option<String>>,
}

/// Result of a change of properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesChanged {
    /// Keys that have the requested value.
    pub updated: Vec<String>,
    /// Removed keys.
    pub removed: Vec<String>,
    /// Keys to remove that did not exist.
    pub missing: Vec<String>,
}

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Returns the error for a namespace that does not exist.
#[must_use]
pub fn no_such_namespace(ident: &NamespaceIdent) -> CatalogError {
    CatalogError::new(ErrorReason::NoSuchNamespace, format!("Namespace does not exist: {ident}"))
}

/// Returns the properties of a namespace; `None` if it does not exist.
pub(super) fn find(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
) -> Stored<Option<Properties>> {
    let sql = "SELECT properties FROM catalog_namespaces WHERE warehouse = $1 AND path = $2";
    let row = it.query_one(sql, &[warehouse.into(), ident.key().into()])?;
    row.map(|row| decoded(&row.get::<Vec<u8>>(0)?)).transpose()
}

/// Rejects the transaction if the namespace does not exist.
pub(super) fn require(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
) -> Stored<Properties> {
    find(it, warehouse, ident)?.ok_or_else(|| SqlStoreError::refuse(no_such_namespace(ident)))
}

/// Returns the result of [`NamespaceStore::properties_up`].
pub(super) fn properties_up(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &NamespaceIdent,
) -> Stored<Vec<(NamespaceIdent, Properties)>> {
    let (mut all, mut next) = (Vec::new(), Some(ident.clone()));
    while let Some(ident) = next {
        next = ident.parent();
        all.extend(find(it, warehouse, &ident)?.map(|found| (ident, found)));
    }
    Ok(all)
}

fn require_warehouse(it: &mut dyn StoreTransaction, warehouse: &str) -> Stored<()> {
    let sql = "SELECT 1 FROM catalog_warehouses WHERE id = $1";
    match it.query_one(sql, &[warehouse.into()])? {
        Some(_) => Ok(()),
        None => Err(SqlStoreError::refuse(no_such_warehouse(warehouse))),
    }
}

fn decoded(json: &[u8]) -> Stored<Properties> {
    serde_json::from_slice(json)
        .map_err(|error| SqlStoreError::refuse(CatalogError::internal(error)))
}

fn encoded(properties: &Properties) -> Result<Vec<u8>> {
    serde_json::to_vec(properties).map_err(CatalogError::internal)
}

/// Namespaces, in the store.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceStore(pub(super) CatalogDatabase);

impl NamespaceStore {
    /// Returns the properties of a namespace; `None` if it does not exist.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn namespace(
        &self,
        warehouse: &str,
        ident: &NamespaceIdent,
    ) -> Result<Option<Properties>> {
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read = self.0.read("catalog.namespace", move |it| find(it, &warehouse, &ident));
        read.await
    }

    /// Returns the properties of a namespace and of its ancestors, innermost first. Namespaces that
    /// do not exist are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn properties_up(
        &self,
        warehouse: &str,
        ident: &NamespaceIdent,
    ) -> Result<Vec<(NamespaceIdent, Properties)>> {
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read =
            self.0.read("catalog.properties_up", move |it| properties_up(it, &warehouse, &ident));
        read.await
    }

    /// Returns the creation times of a namespace and of its ancestors, in milliseconds since 1970,
    /// innermost first. Namespaces that do not exist are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn made_up(
        &self,
        warehouse: &str,
        ident: &NamespaceIdent,
    ) -> Result<Vec<(NamespaceIdent, u64)>> {
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read = self.0.read("catalog.made_up", move |it| {
            let (mut all, mut next) = (Vec::new(), Some(ident.clone()));
            while let Some(ident) = next {
                next = ident.parent();
                let sql = "SELECT created_ms FROM catalog_namespaces \
                    WHERE warehouse = $1 AND path = $2";
                let row = it.query_one(sql, &[SqlValue::from(&warehouse), ident.key().into()])?;
                if let Some(row) = row {
                    let made_ms: i64 = row.get(0)?;
                    all.push((ident, made_ms.unsigned_abs()));
                }
            }
            Ok(all)
        });
        read.await
    }

    /// Returns the namespaces directly below `parent`, or at the top level, in the order of their
    /// keys: those after the key `after`, at most `limit`.
    ///
    /// # Errors
    /// `NoSuchNamespace` if the parent does not exist.
    pub(crate) async fn list(
        &self,
        warehouse: &str,
        parent: Option<&NamespaceIdent>,
        after: Option<String>,
        limit: Option<usize>,
    ) -> Result<Vec<NamespaceIdent>> {
        let (warehouse, parent) = (warehouse.to_owned(), parent.cloned());
        let read = self.0.read("catalog.namespaces", move |it| {
            if let Some(parent) = &parent {
                require(it, &warehouse, parent)?;
            }
            let above = parent.as_ref().map(NamespaceIdent::key).unwrap_or_default();
            let sql = "SELECT path FROM catalog_namespaces \
                WHERE warehouse = $1 AND parent = $2 AND path > $3 ORDER BY path LIMIT $4";
            let first = [SqlValue::from(&warehouse), above.into()];
            page_all(it, sql, &first, after.clone(), limit)
        });
        let paths = read.await?;
        paths.iter().map(|path| NamespaceIdent::split(path, "")).collect()
    }

    /// Stores a new namespace.
    ///
    /// # Errors
    /// `AlreadyExists`, or `NoSuchNamespace` if its parent does not exist.
    pub(crate) async fn insert_namespace(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        ident: &NamespaceIdent,
        properties: &Properties,
    ) -> Result<()> {
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let properties = encoded(properties)?;
        let written = self.0.transact("catalog.insert_namespace", move |it| {
            let parent = ident.parent();
            match &parent {
                Some(parent) => drop(require(it, &warehouse, parent)?),
                // Another server may have removed the warehouse, since it was empty.
                None => require_warehouse(it, &warehouse)?,
            }
            let sql = "INSERT INTO catalog_namespaces (warehouse, path, parent, properties, \
                created_ms) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (warehouse, path) DO NOTHING";
            let above = parent.as_ref().map(NamespaceIdent::key).unwrap_or_default();
            let parameters = [
                SqlValue::from(&warehouse),
                ident.key().into(),
                above.into(),
                properties.clone().into(),
                ms(context.now_ms),
            ];
            if it.execute(sql, &parameters)? == 0 {
                let message = format!("Namespace already exists: {ident}");
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::AlreadyExists,
                    message,
                )));
            }
            changed(it, &context, &warehouse, LogAction::CreateNamespace, (&ident, None))
        });
        written.await
    }

    /// Changes properties of a namespace.
    ///
    /// # Errors
    /// `NoSuchNamespace`; `CommitFailed` if its location is no longer the known one.
    pub(crate) async fn update_namespace(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        ident: &NamespaceIdent,
        change: PropertiesChange,
    ) -> Result<PropertiesChanged> {
        let PropertiesChange { removals, updates, known_location } = change;
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let written = self.0.transact("catalog.update_namespace", move |it| {
            let mut properties = require(it, &warehouse, &ident)?;
            if known_location
                .as_ref()
                .is_some_and(|known| known.as_ref() != properties.get("location"))
            {
                let message = format!("the `location` of {ident} has changed meanwhile");
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::CommitFailed,
                    message,
                )));
            }
            let mut done = PropertiesChanged::default();
            for key in &removals {
                let was = properties.remove(key).is_some();
                if was { &mut done.removed } else { &mut done.missing }.push(key.clone());
            }
            done.updated.extend(updates.keys().cloned());
            properties.extend(updates.clone());
            let json = encoded(&properties).map_err(SqlStoreError::refuse)?;
            let sql = "UPDATE catalog_namespaces SET properties = $3 \
                WHERE warehouse = $1 AND path = $2";
            it.execute(sql, &[SqlValue::from(&warehouse), ident.key().into(), json.into()])?;
            changed(it, &context, &warehouse, LogAction::UpdateNamespace, (&ident, None))?;
            Ok(done)
        });
        written.await
    }

    /// Removes an empty namespace.
    ///
    /// # Errors
    /// `NoSuchNamespace`, or `NamespaceNotEmpty`.
    pub(crate) async fn drop_namespace(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        ident: &NamespaceIdent,
    ) -> Result<()> {
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let written = self.0.transact("catalog.drop_namespace", move |it| {
            require(it, &warehouse, &ident)?;
            let parameters = [SqlValue::from(&warehouse), ident.key().into()];
            for sql in [
                "SELECT name FROM catalog_tables WHERE warehouse = $1 AND namespace = $2 LIMIT 1",
                "SELECT path FROM catalog_namespaces WHERE warehouse = $1 AND parent = $2 LIMIT 1",
                "SELECT name FROM catalog_functions \
                    WHERE warehouse = $1 AND namespace = $2 LIMIT 1",
            ] {
                if it.query_one(sql, &parameters)?.is_some() {
                    let message = format!("Namespace {ident} is not empty");
                    return Err(SqlStoreError::refuse(CatalogError::new(
                        ErrorReason::NamespaceNotEmpty,
                        message,
                    )));
                }
            }
            let sql = "DELETE FROM catalog_namespaces WHERE warehouse = $1 AND path = $2";
            it.execute(sql, &parameters)?;
            rights::forget_namespace(it, &warehouse, &ident)?;
            rules::forget_namespace(it, &warehouse, &ident)?;
            changed(it, &context, &warehouse, LogAction::DropNamespace, (&ident, None))
        });
        written.await
    }
}

/// Logs a change of a namespace, or of a relation in it.
pub(super) fn changed(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    warehouse: &str,
    act: LogAction,
    of: (&NamespaceIdent, Option<&str>),
) -> Stored<()> {
    log::write(it, context, warehouse, act, of.0, of.1, &LogRecord::default())?;
    log::remember(it, context, None)
}
