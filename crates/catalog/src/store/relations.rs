//! Tables and views, and the current document of each. The pointer is moved by compare-and-swap of
//! its version, in one transaction with the line of the log.

use std::sync::Arc;

use bytes::Bytes;
use iceberg::ident::{NamespaceIdent, TableIdent};
use node::clock::IdGenerator;
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::log::{self, ChangeContext, LogAction, LogRecord};
use super::places::{self, place_of};
use super::queries::{ms, page_all};
use super::{namespaces, rights};
use crate::database::{CatalogDatabase, DiskWork, TransactionFailure};
use crate::error::{CatalogError, ErrorReason, Result};

/// Longest document that is stored in the database beside its file, in bytes. A longer one is only
/// in its file, which is flushed before the pointer moves.
pub const DOCUMENT_BYTES_KEPT_MAX: usize = 128 << 10;

/// Kind of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelationKind {
    /// A table.
    Table,
    /// A view.
    View,
}

impl RelationKind {
    /// Returns the name in the store and in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RelationKind::Table => "table",
            RelationKind::View => "view",
        }
    }

    fn of(name: &str) -> Stored<RelationKind> {
        match name {
            "table" => Ok(RelationKind::Table),
            "view" => Ok(RelationKind::View),
            other => Err(SqlStoreError::refuse(CatalogError::internal(format!(
                "`{other}` is not a kind of relation"
            )))),
        }
    }

    /// Returns the name in messages.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            RelationKind::Table => "Table",
            RelationKind::View => "View",
        }
    }

    /// Returns the error for a relation that does not exist.
    #[must_use]
    pub fn no_such(self, ident: &TableIdent) -> CatalogError {
        let kind = match self {
            RelationKind::Table => ErrorReason::NoSuchTable,
            RelationKind::View => ErrorReason::NoSuchView,
        };
        CatalogError::new(kind, format!("{} does not exist: {ident}", self.title()))
    }

    /// Returns the error for a name that `found` already has.
    #[must_use]
    pub fn exists(self, found: RelationKind, ident: &TableIdent) -> CatalogError {
        let message = match self == found {
            true => format!("{} already exists: {ident}", self.title()),
            false => format!("{} with same name already exists: {ident}", found.title()),
        };
        CatalogError::new(ErrorReason::AlreadyExists, message)
    }
}

/// Pointer to a version of a relation: where its document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPointer {
    /// Id of the relation, which never changes.
    pub id: String,
    /// Kind of relation.
    pub kind: RelationKind,
    /// The UUID in its document.
    pub uuid: String,
    /// Location of its data, as in its document.
    pub base: String,
    /// Number of its document, starting at 1.
    pub version: u64,
    /// The metadata file.
    pub location: String,
}

/// A relation at a point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRelation {
    /// Version and location of the document.
    pub pointer: MetadataPointer,
    /// Document; `None` if it is too long to be stored here.
    pub document: Option<Bytes>,
}

/// The next version of a relation.
#[derive(Clone, Debug)]
pub struct PointerSwap {
    /// Name of the relation.
    pub ident: TableIdent,
    /// Version that it must still have.
    pub expected: MetadataPointer,
    /// The UUID in the new document.
    pub uuid: String,
    /// The location in the new document.
    pub base: String,
    /// Other locations for files in the new document.
    pub places: Vec<String>,
    /// The new metadata file.
    pub location: String,
    /// The new document.
    pub document: Bytes,
    /// Action for the log.
    pub act: LogAction,
}

/// A relation to create.
#[derive(Clone, Debug)]
pub struct NewRelation {
    /// Name of the relation.
    pub ident: TableIdent,
    /// Kind of relation.
    pub kind: RelationKind,
    /// The UUID in its document.
    pub uuid: String,
    /// The location in its document.
    pub base: String,
    /// Other locations for files in its document.
    pub places: Vec<String>,
    /// The metadata file.
    pub location: String,
    /// Document.
    pub document: Bytes,
    /// Action for the log.
    pub act: LogAction,
}

type Stored<T> = std::result::Result<T, SqlStoreError>;

const POINTER: &str = "id, kind, uuid, base, version, location";

pub(super) fn pointer(row: &SqlRow) -> Stored<MetadataPointer> {
    Ok(MetadataPointer {
        id: row.get(0)?,
        kind: RelationKind::of(&row.get::<String>(1)?)?,
        uuid: row.get(2)?,
        base: row.get(3)?,
        version: row.get(4)?,
        location: row.get(5)?,
    })
}

/// Returns the document for the store.
fn stored_document(document: &Bytes) -> SqlValue {
    if document.len() > DOCUMENT_BYTES_KEPT_MAX { SqlValue::Null } else { document.to_vec().into() }
}

pub(super) fn find(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    ident: &TableIdent,
) -> Stored<Option<MetadataPointer>> {
    let sql = format!(
        "SELECT {POINTER} FROM catalog_tables \
         WHERE warehouse = $1 AND namespace = $2 AND name = $3"
    );
    let row = it.query_one(&sql, &place(warehouse, ident))?;
    row.as_ref().map(pointer).transpose()
}

fn place(warehouse: &str, ident: &TableIdent) -> [SqlValue; 3] {
    [warehouse.into(), ident.namespace.key().into(), SqlValue::from(&*ident.name)]
}

/// Tables and views, in the store.
#[derive(Clone, Debug)]
pub(crate) struct RelationStore {
    pub(super) database: CatalogDatabase,
    pub(super) ids: Arc<IdGenerator>,
}

impl RelationStore {
    /// Returns a table or a view; `None` if it does not exist.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn relation(
        &self,
        warehouse: &str,
        ident: &TableIdent,
    ) -> Result<Option<StoredRelation>> {
        let place = place(warehouse, ident);
        let read = self.database.read("catalog.relation", move |it| {
            let sql = format!(
                "SELECT {POINTER}, document FROM catalog_tables \
                 WHERE warehouse = $1 AND namespace = $2 AND name = $3"
            );
            let Some(row) = it.query_one(&sql, &place)? else { return Ok(None) };
            let document = row.get::<Option<Vec<u8>>>(6)?.map(Bytes::from);
            Ok(Some(StoredRelation { pointer: pointer(&row)?, document }))
        });
        read.await
    }

    /// Reads the pointer to a relation's version, without its document.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn pointer(
        &self,
        warehouse: &str,
        ident: &TableIdent,
    ) -> Result<Option<MetadataPointer>> {
        let (warehouse, ident) = (warehouse.to_owned(), ident.clone());
        let read = self.database.read("catalog.pointer", move |it| find(it, &warehouse, &ident));
        read.await
    }

    /// Returns the names of all tables or of all views of a namespace, in order: those after
    /// `after`, at most `limit`.
    ///
    /// # Errors
    /// `NoSuchNamespace`.
    pub(crate) async fn list(
        &self,
        warehouse: &str,
        namespace: &NamespaceIdent,
        kind: RelationKind,
        after: Option<String>,
        limit: Option<usize>,
    ) -> Result<Vec<String>> {
        let (warehouse, namespace) = (warehouse.to_owned(), namespace.clone());
        let read = self.database.read("catalog.relations", move |it| {
            namespaces::require(it, &warehouse, &namespace)?;
            // The kind comes first, so that the next parameter has the number that `page_all`
            // expects.
            let sql = match kind {
                RelationKind::Table => {
                    "SELECT name FROM catalog_tables WHERE warehouse = $1 AND namespace = $2 \
                     AND name > $3 AND kind = 'table' ORDER BY name LIMIT $4"
                }
                RelationKind::View => {
                    "SELECT name FROM catalog_tables WHERE warehouse = $1 AND namespace = $2 \
                     AND name > $3 AND kind = 'view' ORDER BY name LIMIT $4"
                }
            };
            let first = [SqlValue::from(&warehouse), namespace.key().into()];
            page_all(it, sql, &first, after.clone(), limit)
        });
        read.await
    }

    /// Stores a new table or view.
    ///
    /// # Errors
    /// `NoSuchNamespace`, or `AlreadyExists` if a table or a view has its name.
    pub(crate) async fn insert_relation(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        new: NewRelation,
    ) -> Result<MetadataPointer> {
        Ok(self.insert_relation_after(None, context, warehouse, new).await?)
    }

    /// Stores a new table or view, after `before` has written its file if necessary.
    ///
    /// # Errors
    /// Those of `before` and of [`RelationStore::insert_relation`].
    pub(crate) async fn insert_relation_after(
        &self,
        before: Option<DiskWork>,
        context: &ChangeContext,
        warehouse: &str,
        new: NewRelation,
    ) -> std::result::Result<MetadataPointer, TransactionFailure> {
        let (context, warehouse, id) =
            (context.clone(), warehouse.to_owned(), self.ids.next("tb_"));
        let written = self.database.transact_after("catalog.insert_relation", before, move |it| {
            let made = insert(it, &context, &warehouse, &new, &id)?;
            log::remember(it, &context, None)?;
            Ok(made)
        });
        written.await
    }

    /// Moves the pointers of several relations, and creates others: all or none.
    ///
    /// # Errors
    /// `CommitFailed` if one is not in the expected state; those of
    /// [`RelationStore::insert_relation`].
    pub(crate) async fn swap(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        swaps: Vec<PointerSwap>,
        new: Vec<NewRelation>,
    ) -> Result<SwapOutcome> {
        Ok(self.swap_after(None, context, warehouse, swaps, new).await?)
    }

    /// Moves the pointers of several relations, and creates others, after `before` has written
    /// their unwritten files: all or none.
    ///
    /// # Errors
    /// Those of `before` and of [`RelationStore::swap`].
    pub(crate) async fn swap_after(
        &self,
        before: Option<DiskWork>,
        context: &ChangeContext,
        warehouse: &str,
        swaps: Vec<PointerSwap>,
        new: Vec<NewRelation>,
    ) -> std::result::Result<SwapOutcome, TransactionFailure> {
        let (context, warehouse) = (context.clone(), warehouse.to_owned());
        let ids: Vec<_> = new.iter().map(|_| self.ids.next("tb_")).collect();
        let written = self.database.transact_after("catalog.swap", before, move |it| {
            let swapped = swaps.iter().map(|one| swap(it, &context, &warehouse, one));
            let swapped = swapped.collect::<Stored<Vec<_>>>()?;
            let made =
                new.iter().zip(&ids).map(|(one, id)| insert(it, &context, &warehouse, one, id));
            let made = made.collect::<Stored<Vec<_>>>()?;
            log::remember(it, &context, None)?;
            Ok(SwapOutcome { swapped, made })
        });
        written.await
    }

    /// Removes a table or a view. Returns its last state.
    ///
    /// # Errors
    /// `NoSuchTable` or `NoSuchView`.
    pub(crate) async fn drop_relation(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        kind: RelationKind,
        ident: &TableIdent,
        act: LogAction,
    ) -> Result<MetadataPointer> {
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let written = self.database.transact("catalog.drop_relation", move |it| {
            let found = require(it, &warehouse, kind, &ident)?;
            rights::forget_relation(it, &found.id)?;
            places::forget(it, &found.id)?;
            delete(it, &context, &warehouse, &ident, &found, act)?;
            log::remember(it, &context, None)?;
            Ok(found)
        });
        written.await
    }

    /// Renames a table or a view, within its namespace or to another one.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchView`, `NoSuchNamespace` for the new name, or `AlreadyExists`.
    pub(crate) async fn rename_relation(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        kind: RelationKind,
        from: &TableIdent,
        to: &TableIdent,
    ) -> Result<()> {
        let (context, warehouse) = (context.clone(), warehouse.to_owned());
        let (from, to) = (from.clone(), to.clone());
        let written = self.database.transact("catalog.rename_relation", move |it| {
            let found = require(it, &warehouse, kind, &from)?;
            namespaces::require(it, &warehouse, &to.namespace)?;
            if let Some(other) = find(it, &warehouse, &to)? {
                let title = other.kind.title();
                let message = format!("Cannot rename {from} to {to}. {title} already exists");
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::AlreadyExists,
                    message,
                )));
            }
            let sql = "UPDATE catalog_tables SET namespace = $2, name = $3, updated_ms = $4 \
                WHERE id = $1";
            let parameters = [
                SqlValue::from(&found.id),
                to.namespace.key().into(),
                SqlValue::from(&*to.name),
                ms(context.now_ms),
            ];
            it.execute(sql, &parameters)?;
            rights::relation_moved(it, &found.id)?;
            let target = Some(serde_json::to_string(&to))
                .transpose()
                .map_err(|error| SqlStoreError::refuse(CatalogError::internal(error)))?;
            let line = LogRecord { relation: Some(&found.id), target, ..LogRecord::default() };
            let act = match kind {
                RelationKind::Table => LogAction::RenameTable,
                RelationKind::View => LogAction::RenameView,
            };
            log::write_relation(it, &context, &warehouse, act, &from, &line)?;
            if let Some(names) = &context.names {
                names.touch(&warehouse, Some(&to.namespace));
            }
            log::remember(it, &context, None)
        });
        written.await
    }

    /// Returns whether a relation other than `except` points to a metadata file, in any warehouse.
    /// Dropped relations that can be restored count as well.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn is_pointed_at(&self, location: &str, except: &str) -> Result<bool> {
        let parameters = [SqlValue::from(location), SqlValue::from(except)];
        let read = self.database.read("catalog.is_pointed_at", move |it| {
            let sql = "SELECT id FROM catalog_tables WHERE location = $1 AND id <> $2 \
                UNION ALL SELECT id FROM catalog_dropped WHERE location = $1 AND id <> $2 LIMIT 1";
            Ok(it.query_one(sql, &parameters)?.is_some())
        });
        read.await
    }

    /// Returns relations whose document is stored here and that changed within `window_ms` of the
    /// last change: their files may have been lost in a power failure. In the order of their ids,
    /// those after `after`, at most `limit`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn recent(
        &self,
        warehouse: &str,
        window_ms: u64,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredRelation>> {
        let limit = i64::try_from(limit).map_err(CatalogError::internal)?;
        let parameters =
            [SqlValue::from(warehouse), ms(window_ms), SqlValue::from(after), SqlValue::Int(limit)];
        let read = self.database.read("catalog.recent", move |it| {
            let sql = format!(
                "SELECT {POINTER}, document FROM catalog_tables WHERE warehouse = $1 \
                 AND updated_ms >= (SELECT MAX(updated_ms) FROM catalog_tables) - $2 \
                 AND id > $3 AND document IS NOT NULL ORDER BY id LIMIT $4"
            );
            let rows = it.query(&sql, &parameters)?;
            let relations = rows.iter().map(|row| {
                let document = row.get::<Option<Vec<u8>>>(6)?.map(Bytes::from);
                Ok(StoredRelation { pointer: pointer(row)?, document })
            });
            relations.collect::<Stored<Vec<_>>>()
        });
        read.await
    }
}

/// Result of [`RelationStore::swap`], in the order of its arguments.
#[derive(Clone, Debug, Default)]
pub struct SwapOutcome {
    /// The pointers that moved.
    pub swapped: Vec<MetadataPointer>,
    /// The relations that were created.
    pub made: Vec<MetadataPointer>,
}

pub(super) fn require(
    it: &mut dyn StoreTransaction,
    warehouse: &str,
    kind: RelationKind,
    ident: &TableIdent,
) -> Stored<MetadataPointer> {
    let found = find(it, warehouse, ident)?.filter(|found| found.kind == kind);
    found.ok_or_else(|| SqlStoreError::refuse(kind.no_such(ident)))
}

/// Deletes the row of an existing relation.
pub(super) fn delete(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    warehouse: &str,
    ident: &TableIdent,
    found: &MetadataPointer,
    act: LogAction,
) -> Stored<()> {
    it.execute("DELETE FROM catalog_tables WHERE id = $1", &[SqlValue::from(&found.id)])?;
    let line = LogRecord {
        relation: Some(&found.id),
        version: Some(found.version),
        previous: Some(&found.location),
        ..LogRecord::default()
    };
    log::write_relation(it, context, warehouse, act, ident, &line)
}

/// Inserts the row of a relation whose name is free.
pub(super) fn insert(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    warehouse: &str,
    new: &NewRelation,
    id: &str,
) -> Stored<MetadataPointer> {
    namespaces::require(it, warehouse, &new.ident.namespace)?;
    if let Some(found) = find(it, warehouse, &new.ident)? {
        return Err(SqlStoreError::refuse(new.kind.exists(found.kind, &new.ident)));
    }
    let sql = "INSERT INTO catalog_tables (id, warehouse, namespace, name, kind, uuid, base, \
        version, location, document, created_ms, updated_ms) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $10)";
    let [warehouse_value, namespace, name] = place(warehouse, &new.ident);
    let parameters = [
        id.into(),
        warehouse_value,
        namespace,
        name,
        new.kind.name().into(),
        SqlValue::from(&new.uuid),
        place_of(&new.base).into(),
        SqlValue::from(&new.location),
        stored_document(&new.document),
        ms(context.now_ms),
    ];
    it.execute(sql, &parameters)?;
    places::require_apart(it, context, &new.base, id)?;
    places::keep(it, id, [&new.base].into_iter().chain(&new.places))?;
    let line = LogRecord {
        relation: Some(id),
        version: Some(1),
        location: Some(&new.location),
        ..LogRecord::default()
    };
    log::write_relation(it, context, warehouse, new.act, &new.ident, &line)?;
    Ok(MetadataPointer {
        id: id.to_owned(),
        kind: new.kind,
        uuid: new.uuid.clone(),
        base: new.base.clone(),
        version: 1,
        location: new.location.clone(),
    })
}

fn swap(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    warehouse: &str,
    one: &PointerSwap,
) -> Stored<MetadataPointer> {
    let sql = "UPDATE catalog_tables SET version = version + 1, uuid = $3, base = $4, \
        location = $5, document = $6, updated_ms = $7 \
        WHERE id = $1 AND version = $2 AND warehouse = $8 AND namespace = $9 AND name = $10";
    let expected = &one.expected;
    let version = i64::try_from(expected.version)
        .map_err(|error| SqlStoreError::refuse(CatalogError::internal(error)))?;
    let [warehouse_value, namespace, name] = place(warehouse, &one.ident);
    let parameters = [
        SqlValue::from(&expected.id),
        SqlValue::Int(version),
        SqlValue::from(&one.uuid),
        place_of(&one.base).into(),
        SqlValue::from(&one.location),
        stored_document(&one.document),
        ms(context.now_ms),
        warehouse_value,
        namespace,
        name,
    ];
    if it.execute(sql, &parameters)? == 0 {
        let message = format!("Cannot commit {}: it was changed meanwhile", one.ident);
        return Err(SqlStoreError::refuse(CatalogError::new(ErrorReason::CommitFailed, message)));
    }
    let moved = (place_of(&one.base) != place_of(&expected.base)).then_some(&one.base);
    if let Some(base) = moved {
        places::require_apart(it, context, base, &expected.id)?;
    }
    places::keep(it, &expected.id, moved.into_iter().chain(&one.places))?;
    let version = expected.version + 1;
    let line = LogRecord {
        relation: Some(&expected.id),
        version: Some(version),
        previous: Some(&expected.location),
        location: Some(&one.location),
        ..LogRecord::default()
    };
    log::write_relation(it, context, warehouse, one.act, &one.ident, &line)?;
    Ok(MetadataPointer {
        id: expected.id.clone(),
        kind: expected.kind,
        uuid: one.uuid.clone(),
        base: one.base.clone(),
        version,
        location: one.location.clone(),
    })
}
