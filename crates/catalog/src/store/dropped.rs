//! Dropped tables and views that can be restored: each is moved to a separate table, with the end
//! of its retention.

use std::sync::Arc;

use bytes::Bytes;
use iceberg::ident::{NamespaceIdent, TableIdent};
use node::clock::IdGenerator;
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::log::{self, ChangeContext, LogAction, LogRecord};
use super::queries::ms;
use super::relations::{self, MetadataPointer, NewRelation, RelationKind};
use super::{namespaces, places, rights};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};

/// Most dropped relations in one result.
pub const DROPPED_MAX: usize = 1000;

/// Mode of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropMode {
    /// End of the retention, in milliseconds since 1970.
    pub until_ms: u64,
    /// True if its files are removed then.
    pub purge: bool,
}

/// A dropped relation that is kept for its retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRelation {
    /// Former name.
    pub ident: TableIdent,
    /// Version and location.
    pub pointer: MetadataPointer,
    /// Time of the drop, in milliseconds since 1970.
    pub dropped_ms: u64,
    /// Retention, and whether its files are removed.
    pub keep: DropMode,
    /// Id of the principal that dropped it.
    pub principal: String,
    /// True if it is being purged, so that it can no longer be restored.
    pub is_purging: bool,
    /// True if some of its files may already be removed.
    pub has_begun: bool,
}

/// Value of `purge` once the removal of files has begun; 1 if they are to be removed, 0 if they
/// stay.
const PURGE_BEGUN: i64 = 2;

type Stored<T> = std::result::Result<T, SqlStoreError>;

const COLUMNS: &str = "id, kind, uuid, base, version, location, namespace, name, dropped_ms, \
    until_ms, purge, principal, purging_ms";

fn dropped(row: &SqlRow) -> Stored<DroppedRelation> {
    let namespace =
        NamespaceIdent::split(&row.get::<String>(6)?, "").map_err(SqlStoreError::refuse)?;
    let name: String = row.get(7)?;
    let ident = TableIdent::new(namespace, &name).map_err(SqlStoreError::refuse)?;
    Ok(DroppedRelation {
        ident,
        pointer: relations::pointer(row)?,
        dropped_ms: row.get(8)?,
        keep: DropMode { until_ms: row.get(9)?, purge: row.get::<i64>(10)? != 0 },
        principal: row.get(11)?,
        is_purging: row.get::<i64>(12)? != 0,
        has_begun: row.get::<i64>(10)? == PURGE_BEGUN,
    })
}

fn all(rows: &[SqlRow]) -> Stored<Vec<DroppedRelation>> {
    rows.iter().map(dropped).collect()
}

/// Dropped tables and views that can be restored, in the store.
#[derive(Clone, Debug)]
pub(crate) struct DroppedStore {
    pub(super) database: CatalogDatabase,
    pub(super) ids: Arc<IdGenerator>,
}

impl DroppedStore {
    /// Drops a table or a view and keeps its state. Returns its pointer.
    ///
    /// # Errors
    /// `NoSuchTable` or `NoSuchView`.
    pub(crate) async fn set_aside(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        kind: RelationKind,
        ident: &TableIdent,
        act: LogAction,
        keep: DropMode,
    ) -> Result<MetadataPointer> {
        let (context, warehouse, ident) = (context.clone(), warehouse.to_owned(), ident.clone());
        let written = self.database.transact("catalog.set_aside", move |it| {
            let found = relations::require(it, &warehouse, kind, &ident)?;
            let sql = "INSERT INTO catalog_dropped (id, warehouse, namespace, name, kind, uuid, \
                base, version, location, document, created_ms, dropped_ms, until_ms, purge, \
                principal, purging_ms) \
                SELECT id, warehouse, namespace, name, kind, uuid, base, version, location, \
                document, created_ms, CAST($2 AS BIGINT), CAST($3 AS BIGINT), \
                CAST($4 AS BIGINT), CAST($5 AS TEXT), 0 FROM catalog_tables WHERE id = $1";
            let parameters = [
                SqlValue::from(&found.id),
                ms(context.now_ms),
                ms(keep.until_ms),
                SqlValue::Int(i64::from(keep.purge)),
                (&context.principal).into(),
            ];
            it.execute(sql, &parameters)?;
            // Its grants are kept with it.
            rights::relation_moved(it, &found.id)?;
            relations::delete(it, &context, &warehouse, &ident, &found, act)?;
            log::remember(it, &context, None)?;
            Ok(found)
        });
        written.await
    }

    /// Returns the dropped relations of a warehouse, or of one namespace of it, in the order of
    /// their ids: those after the id `after`, at most `limit` and [`DROPPED_MAX`].
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn dropped(
        &self,
        warehouse: &str,
        namespace: Option<&NamespaceIdent>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<DroppedRelation>> {
        let limit = i64::try_from(limit.min(DROPPED_MAX)).map_err(CatalogError::internal)?;
        let mut parameters = vec![warehouse.into(), SqlValue::from(after), SqlValue::Int(limit)];
        let within = match namespace {
            Some(namespace) => {
                parameters.push(namespace.key().into());
                "AND namespace = $4"
            }
            None => "",
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM catalog_dropped WHERE warehouse = $1 AND id > $2 {within} \
             ORDER BY id LIMIT $3"
        );
        let read = self.database.read("catalog.dropped", move |it| {
            let rows = it.query(&sql, &parameters)?;
            all(&rows)
        });
        read.await
    }

    /// Returns the dropped relations with this id, or with this UUID in their document: of several,
    /// the two that were dropped last.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn dropped_as(
        &self,
        warehouse: &str,
        name: &str,
    ) -> Result<Vec<DroppedRelation>> {
        let parameters = [SqlValue::from(warehouse), SqlValue::from(name)];
        let read = self.database.read("catalog.dropped_as", move |it| {
            let sql = format!(
                "SELECT {COLUMNS} FROM catalog_dropped WHERE warehouse = $1 \
                 AND (id = $2 OR uuid = $2) ORDER BY dropped_ms DESC, id DESC LIMIT 2"
            );
            let rows = it.query(&sql, &parameters)?;
            all(&rows)
        });
        read.await
    }

    /// Returns the dropped relation with this metadata file.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn dropped_at(
        &self,
        warehouse: &str,
        location: &str,
    ) -> Result<Option<DroppedRelation>> {
        let parameters = [SqlValue::from(warehouse), SqlValue::from(location)];
        let read = self.database.read("catalog.dropped_at", move |it| {
            let sql = format!(
                "SELECT {COLUMNS} FROM catalog_dropped WHERE warehouse = $1 AND location = $2 \
                 ORDER BY dropped_ms DESC LIMIT 1"
            );
            it.query_one(&sql, &parameters)?.as_ref().map(dropped).transpose()
        });
        read.await
    }

    /// Returns the document of a dropped relation; `None` if it was too long to be stored.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn dropped_document(&self, id: &str) -> Result<Option<Bytes>> {
        let parameters = [SqlValue::from(id)];
        let read = self.database.read("catalog.dropped_document", move |it| {
            let sql = "SELECT document FROM catalog_dropped WHERE id = $1";
            let Some(row) = it.query_one(sql, &parameters)? else { return Ok(None) };
            Ok(row.get::<Option<Vec<u8>>>(0)?.map(Bytes::from))
        });
        read.await
    }

    /// Restores a relation under a name, with its former version.
    ///
    /// # Errors
    /// `NotFound` if it is no longer kept, `NoSuchNamespace`, `AlreadyExists`.
    pub(crate) async fn undrop(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        id: &str,
        ident: &TableIdent,
    ) -> Result<MetadataPointer> {
        let (context, warehouse, id) = (context.clone(), warehouse.to_owned(), id.to_owned());
        let ident = ident.clone();
        let written = self.database.transact("catalog.undrop", move |it| {
            let gone = || SqlStoreError::refuse(no_such_dropped(&id));
            let sql = format!("SELECT {COLUMNS} FROM catalog_dropped WHERE id = $1");
            let row = it.query_one(&sql, &[SqlValue::from(&id)])?.ok_or_else(gone)?;
            let found = dropped(&row)?;
            // The update locks the row first: of two concurrent restores, one waits here, and then
            // finds that the row is gone.
            let sql = "UPDATE catalog_dropped SET purging_ms = 0 WHERE id = $1 AND purging_ms = 0";
            if it.execute(sql, &[SqlValue::from(&id)])? == 0 {
                return Err(gone());
            }
            namespaces::require(it, &warehouse, &ident.namespace)?;
            if let Some(other) = relations::find(it, &warehouse, &ident)? {
                let exists = found.pointer.kind.exists(other.kind, &ident);
                return Err(SqlStoreError::refuse(exists));
            }
            let sql = "INSERT INTO catalog_tables (id, warehouse, namespace, name, kind, uuid, \
                base, version, location, document, created_ms, updated_ms) \
                SELECT id, warehouse, CAST($2 AS TEXT), CAST($3 AS TEXT), kind, uuid, base, \
                version, location, document, created_ms, CAST($4 AS BIGINT) \
                FROM catalog_dropped WHERE id = $1";
            let parameters = [
                SqlValue::from(&id),
                ident.namespace.key().into(),
                SqlValue::from(&*ident.name),
                ms(context.now_ms),
            ];
            it.execute(sql, &parameters)?;
            it.execute("DELETE FROM catalog_dropped WHERE id = $1", &[SqlValue::from(&id)])?;
            rights::relation_moved(it, &id)?;
            let act = match found.pointer.kind {
                RelationKind::Table => LogAction::UndropTable,
                RelationKind::View => LogAction::UndropView,
            };
            let line = LogRecord {
                relation: Some(&id),
                version: Some(found.pointer.version),
                location: Some(&found.pointer.location),
                ..LogRecord::default()
            };
            log::write_relation(it, &context, &warehouse, act, &ident, &line)?;
            log::remember(it, &context, None)?;
            Ok(found.pointer)
        });
        written.await
    }

    /// Returns the relation that the request with this context's key restored: its name, kind and
    /// id. `None` if the log has no such line.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn undropped(
        &self,
        context: &ChangeContext,
        warehouse: &str,
    ) -> Result<Option<(TableIdent, RelationKind, String)>> {
        let Some((key, _)) = context.key else { return Ok(None) };
        let parameters = [
            SqlValue::from(&context.principal),
            SqlValue::from(key.to_string()),
            warehouse.into(),
            LogAction::UndropTable.name().into(),
            LogAction::UndropView.name().into(),
        ];
        let read = self.database.read("catalog.undropped", move |it| {
            let sql = "SELECT act, namespace, name, relation FROM catalog_log \
                WHERE principal = $1 AND key = $2 AND warehouse = $3 AND act IN ($4, $5) \
                ORDER BY seq DESC LIMIT 1";
            let Some(row) = it.query_one(sql, &parameters)? else { return Ok(None) };
            let kind = match row.get::<String>(0)? == LogAction::UndropTable.name() {
                true => RelationKind::Table,
                false => RelationKind::View,
            };
            let (namespace, name): (String, String) = (row.get(1)?, row.get(2)?);
            let namespace = NamespaceIdent::split(&namespace, "");
            let ident = namespace.and_then(|it| TableIdent::new(it, &name));
            Ok(Some((ident.map_err(SqlStoreError::refuse)?, kind, row.get(3)?)))
        });
        read.await
    }

    /// Returns relations whose retention has ended, of all warehouses: at most `limit`. Each is
    /// marked, so that it cannot be restored and no other server takes it within `lease_ms`.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn take_expired(
        &self,
        now_ms: u64,
        lease_ms: u64,
        limit: usize,
    ) -> Result<Vec<(String, DroppedRelation)>> {
        let limit = i64::try_from(limit.min(DROPPED_MAX)).map_err(CatalogError::internal)?;
        let written = self.database.transact("catalog.take_expired", move |it| {
            let sql = format!(
                "SELECT {COLUMNS}, warehouse FROM catalog_dropped \
                 WHERE until_ms <= $1 AND purging_ms < $2 ORDER BY until_ms, id LIMIT $3"
            );
            let taken = ms(now_ms.saturating_sub(lease_ms).max(1));
            let rows = it.query(&sql, &[ms(now_ms), taken, SqlValue::Int(limit)])?;
            let mut expired = Vec::with_capacity(rows.len());
            for row in &rows {
                let found = dropped(row)?;
                mark(it, &found.pointer.id, now_ms)?;
                expired.push((row.get(13)?, found));
            }
            Ok(expired)
        });
        written.await
    }

    /// Marks one relation as being purged with its files, so that it cannot be restored. If the
    /// purge fails, the retention has ended, and a sweep purges the relation.
    ///
    /// # Errors
    /// `NotFound` if it is no longer kept.
    pub(crate) async fn take_dropped(&self, id: &str, now_ms: u64) -> Result<()> {
        let id = id.to_owned();
        let written = self.database.transact_idempotent("catalog.take_dropped", move |it| {
            let sql = "UPDATE catalog_dropped SET until_ms = $2, \
                    purge = CASE WHEN purge = 0 THEN 1 ELSE purge END \
                    WHERE id = $1 AND (until_ms > $2 OR purge = 0)";
            it.execute(sql, &[SqlValue::from(&id), ms(now_ms)])?;
            match mark(it, &id, now_ms)? {
                0 => Err(SqlStoreError::refuse(no_such_dropped(&id))),
                _ => Ok(()),
            }
        });
        written.await
    }

    /// Renews the lease on a purge. Has no effect if the relation is already purged.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn renew_dropped(&self, id: &str, now_ms: u64) -> Result<()> {
        let id = id.to_owned();
        let written = self
            .database
            .transact_idempotent("catalog.renew_dropped", move |it| mark(it, &id, now_ms));
        written.await.map(drop)
    }

    /// Records that the files of a relation are about to be removed; returns false if it is already
    /// purged.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn begin_purge(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        let written = self.database.transact_idempotent("catalog.begin_purge", move |it| {
            let sql = "UPDATE catalog_dropped SET purge = $2 WHERE id = $1 AND purging_ms > 0";
            Ok(it.execute(sql, &[SqlValue::from(&id), SqlValue::Int(PURGE_BEGUN)])? > 0)
        });
        written.await
    }

    /// Registers a relation with the metadata file of a dropped one: the dropped one is forgotten,
    /// and its grants are moved to the new one.
    ///
    /// # Errors
    /// `CommitFailed` if it is being purged or was restored meanwhile; those of
    /// [`RelationStore::insert_relation`](super::RelationStore::insert_relation).
    pub(crate) async fn register_dropped(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        new: NewRelation,
        dropped: &str,
    ) -> Result<MetadataPointer> {
        let (context, warehouse, dropped) =
            (context.clone(), warehouse.to_owned(), dropped.to_owned());
        let id = self.ids.next("tb_");
        let written = self.database.transact("catalog.register_dropped", move |it| {
            let sql = "DELETE FROM catalog_dropped WHERE id = $1 AND purging_ms = 0";
            if it.execute(sql, &[SqlValue::from(&dropped)])? == 0 {
                let message = format!(
                    "Cannot register {}: the dropped relation is being purged or was restored",
                    new.ident
                );
                return Err(SqlStoreError::refuse(CatalogError::new(
                    ErrorReason::CommitFailed,
                    message,
                )));
            }
            // Done first, so that its location belongs to it.
            places::pass_on(it, &dropped, &id)?;
            let made = relations::insert(it, &context, &warehouse, &new, &id)?;
            rights::relation_replaced(it, &dropped, &id)?;
            log::remember(it, &context, None)?;
            Ok(made)
        });
        written.await
    }

    /// Forgets a dropped relation, once its files are removed or released.
    ///
    /// # Errors
    /// If the store cannot be written. Forgetting it twice is no error.
    pub(crate) async fn forget_dropped(
        &self,
        context: &ChangeContext,
        warehouse: &str,
        one: &DroppedRelation,
    ) -> Result<()> {
        let (context, warehouse, one) = (context.clone(), warehouse.to_owned(), one.clone());
        let written = self.database.transact("catalog.forget_dropped", move |it| {
            let MetadataPointer { id, kind, version, location, .. } = &one.pointer;
            let sql = "DELETE FROM catalog_dropped WHERE id = $1";
            if it.execute(sql, &[SqlValue::from(id)])? == 0 {
                return log::remember(it, &context, None);
            }
            rights::forget_relation(it, id)?;
            places::forget(it, id)?;
            let act = match kind {
                RelationKind::Table => LogAction::PurgeTable,
                RelationKind::View => LogAction::PurgeView,
            };
            let (version, previous) = (Some(*version), Some(&**location));
            let line = LogRecord { relation: Some(id), version, previous, ..LogRecord::default() };
            log::write_relation(it, &context, &warehouse, act, &one.ident, &line)?;
            log::remember(it, &context, None)
        });
        written.await
    }
}

fn mark(it: &mut dyn StoreTransaction, id: &str, now_ms: u64) -> Stored<u64> {
    let sql = "UPDATE catalog_dropped SET purging_ms = $2 WHERE id = $1";
    it.execute(sql, &[SqlValue::from(id), ms(now_ms.max(1))])
}

fn no_such_dropped(id: &str) -> CatalogError {
    let excerpt: String = id.chars().take(100).collect();
    CatalogError::new(
        ErrorReason::NotFound,
        format!("nothing that was dropped is kept as {excerpt}"),
    )
}
