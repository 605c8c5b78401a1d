//! Functions: a row for each, with its document.

use iceberg::function::FunctionDoc;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use node::store::{MigrationStep, SqlStoreError, SqlValue, StoreTransaction};

use super::log::{ChangeContext, LogAction};
use super::namespaces;
use super::queries::{ms, page_all};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};

/// Service that owns the tables.
pub(super) const SERVICE: &str = "catalog-functions";

/// Migrations of the table; append only.
pub(super) const MIGRATIONS: &[MigrationStep] = &[MigrationStep::Same(
    "CREATE TABLE catalog_functions (
        warehouse TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        uuid TEXT NOT NULL,
        document BYTEA NOT NULL,
        created_ms BIGINT NOT NULL,
        updated_ms BIGINT NOT NULL,
        PRIMARY KEY (warehouse, namespace, name)
    )",
)];

/// Most functions of a namespace.
pub const FUNCTIONS_MAX: i64 = 10_000;

type Stored<T> = std::result::Result<T, SqlStoreError>;

/// Returns the error for a function that does not exist.
pub(crate) fn no_such_function(ident: &TableIdent) -> CatalogError {
    CatalogError::new(ErrorReason::NoSuchFunction, format!("Function does not exist: {ident}"))
}

/// Returns the UUID of a function; `None` if it does not exist.
fn uuid_of(it: &mut dyn StoreTransaction, key: &[SqlValue; 3]) -> Stored<Option<String>> {
    let sql = "SELECT uuid FROM catalog_functions \
        WHERE warehouse = $1 AND namespace = $2 AND name = $3";
    it.query_one(sql, key)?.map(|row| row.get(0)).transpose()
}

fn key(warehouse: &str, ident: &TableIdent) -> [SqlValue; 3] {
    [SqlValue::from(warehouse), ident.namespace.key().into(), SqlValue::from(&*ident.name)]
}

/// Functions, in the store.
#[derive(Clone, Debug)]
pub(crate) struct FunctionStore(pub(super) CatalogDatabase);

impl FunctionStore {
    /// Returns the names of the functions of a namespace in order: those after `after`, at most
    /// `limit`.
    ///
    /// # Errors
    /// `NoSuchNamespace`.
    pub(crate) async fn list(
        &self,
        warehouse: &str,
        namespace: &NamespaceIdent,
        after: Option<String>,
        limit: Option<usize>,
    ) -> Result<Vec<String>> {
        let (warehouse, namespace) = (warehouse.to_owned(), namespace.clone());
        let read = self.0.read("catalog.functions", move |it| {
            namespaces::require(it, &warehouse, &namespace)?;
            let sql = "SELECT name FROM catalog_functions \
                WHERE warehouse = $1 AND namespace = $2 AND name > $3 ORDER BY name LIMIT $4";
            let first = [SqlValue::from(&warehouse), namespace.key().into()];
            page_all(it, sql, &first, after.clone(), limit)
        });
        read.await
    }

    /// Returns the document of a function.
    ///
    /// # Errors
    /// `NoSuchNamespace`, `NoSuchFunction`.
    pub(crate) async fn function(&self, warehouse: &str, ident: &TableIdent) -> Result<Vec<u8>> {
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read = self.0.read("catalog.function", move |it| {
            namespaces::require(it, &warehouse, &ident.namespace)?;
            let sql = "SELECT document FROM catalog_functions \
                WHERE warehouse = $1 AND namespace = $2 AND name = $3";
            let row = it.query_one(sql, &key(&warehouse, &ident))?;
            row.ok_or_else(|| SqlStoreError::refuse(no_such_function(&ident)))?.get::<Vec<u8>>(0)
        });
        read.await
    }

    /// Returns the UUID of a function, if it exists.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn function_uuid(
        &self,
        warehouse: &str,
        ident: &TableIdent,
    ) -> Result<Option<Uuid>> {
        let key = key(warehouse, ident);
        let read = self.0.read("catalog.function_uuid", move |it| uuid_of(it, &key));
        read.await?.map(|uuid| uuid.parse().map_err(CatalogError::internal)).transpose()
    }

    /// Stores a function: a new one, or a replacement.
    ///
    /// # Errors
    /// `AlreadyExists` if the function exists and must not be replaced; `IllegalArgument` if it has
    /// another UUID, or the namespace is full; `NoSuchNamespace`.
    pub(crate) async fn put_function(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        ident: &TableIdent,
        doc: &FunctionDoc,
        is_overwrite: bool,
    ) -> Result<()> {
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let doc = doc.clone();
        let written = self.0.transact("catalog.put_function", move |it| {
            namespaces::require(it, &warehouse, &ident.namespace)?;
            let found = uuid_of(it, &key(&warehouse, &ident))?;
            let uuid = doc.uuid.to_string();
            let refuse = |kind, message: String| {
                Err(SqlStoreError::refuse(CatalogError::new(kind, message)))
            };
            match &found {
                Some(_) if !is_overwrite => {
                    let message = format!("Function already exists: {ident}");
                    return refuse(ErrorReason::AlreadyExists, message);
                }
                Some(found) if *found != uuid => {
                    let message = format!("`function-uuid` of {ident} is {found}");
                    return refuse(ErrorReason::IllegalArgument, message);
                }
                _ => {}
            }
            let [at, within, name] = key(&warehouse, &ident);
            if found.is_none() {
                let sql = "SELECT COUNT(*) FROM catalog_functions \
                    WHERE warehouse = $1 AND namespace = $2";
                let row = it.query_one(sql, &[at.clone(), within.clone()])?;
                if row.map(|row| row.get::<i64>(0)).transpose()? >= Some(FUNCTIONS_MAX) {
                    let message = format!("a namespace has at most {FUNCTIONS_MAX} functions");
                    return refuse(ErrorReason::IllegalArgument, message);
                }
            }
            let sql = "INSERT INTO catalog_functions \
                (warehouse, namespace, name, uuid, document, created_ms, updated_ms) \
                VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (warehouse, namespace, name) \
                DO UPDATE SET document = $5, updated_ms = $6";
            let document = SqlValue::from(doc.document.to_vec());
            it.execute(sql, &[at, within, name, uuid.into(), document, ms(context.now_ms)])?;
            let act =
                if found.is_some() { LogAction::UpdateFunction } else { LogAction::CreateFunction };
            let named = (&ident.namespace, Some(&*ident.name));
            namespaces::changed(it, &context, &warehouse, act, named)
        });
        written.await
    }

    /// Removes a function.
    ///
    /// # Errors
    /// `NoSuchFunction`.
    pub(crate) async fn drop_function(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        ident: &TableIdent,
    ) -> Result<()> {
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let written = self.0.transact("catalog.drop_function", move |it| {
            let sql = "DELETE FROM catalog_functions \
                WHERE warehouse = $1 AND namespace = $2 AND name = $3";
            if it.execute(sql, &key(&warehouse, &ident))? == 0 {
                return Err(SqlStoreError::refuse(no_such_function(&ident)));
            }
            let named = (&ident.namespace, Some(&*ident.name));
            namespaces::changed(it, &context, &warehouse, LogAction::DropFunction, named)
        });
        written.await
    }
}
