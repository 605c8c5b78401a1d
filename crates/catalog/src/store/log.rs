//! The change log: a line of the log, and the record of its idempotency key.

use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::names::NameCounters;
use super::queries::ms;
use super::timeline::{self, TimelineBounds, number_column, number_lines};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};

/// Most lines of the log that one answer has.
pub const LINES_MAX: usize = 1000;

/// Action in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// A namespace was made.
    CreateNamespace,
    /// A namespace has other properties.
    UpdateNamespace,
    /// A namespace is gone.
    DropNamespace,
    /// A table was made.
    CreateTable,
    /// A table has another document.
    UpdateTable,
    /// A table is gone.
    DropTable,
    /// A table has another name.
    RenameTable,
    /// A table was made from a document that existed.
    RegisterTable,
    /// A table was released: its files stay.
    UnregisterTable,
    /// A view was made.
    CreateView,
    /// A view has another document.
    UpdateView,
    /// A view is gone.
    DropView,
    /// A view has another name.
    RenameView,
    /// A view was made from a document that existed.
    RegisterView,
    /// A table that was dropped is back.
    UndropTable,
    /// A view that was dropped is back.
    UndropView,
    /// A function was made.
    CreateFunction,
    /// A function has another document.
    UpdateFunction,
    /// A function is gone.
    DropFunction,
    /// A table that was dropped cannot come back any more.
    PurgeTable,
    /// A view that was dropped cannot come back any more.
    PurgeView,
}

impl LogAction {
    /// Returns the name in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            LogAction::CreateNamespace => "create-namespace",
            LogAction::UpdateNamespace => "update-namespace",
            LogAction::DropNamespace => "drop-namespace",
            LogAction::CreateTable => "create-table",
            LogAction::UpdateTable => "update-table",
            LogAction::DropTable => "drop-table",
            LogAction::RenameTable => "rename-table",
            LogAction::RegisterTable => "register-table",
            LogAction::UnregisterTable => "unregister-table",
            LogAction::CreateView => "create-view",
            LogAction::UpdateView => "update-view",
            LogAction::DropView => "drop-view",
            LogAction::RenameView => "rename-view",
            LogAction::RegisterView => "register-view",
            LogAction::UndropTable => "undrop-table",
            LogAction::UndropView => "undrop-view",
            LogAction::CreateFunction => "create-function",
            LogAction::UpdateFunction => "update-function",
            LogAction::DropFunction => "drop-function",
            LogAction::PurgeTable => "purge-table",
            LogAction::PurgeView => "purge-view",
        }
    }
}

impl LogAction {
    /// Returns whether there are other names than before, or a namespace says something else of
    /// itself.
    fn is_of_names(self) -> bool {
        // Everything but what happens all the time: to count too much costs a read.
        !matches!(self, LogAction::UpdateTable | LogAction::UpdateView)
    }
}

/// Author, time and request of a change.
#[derive(Clone, Debug)]
pub struct ChangeContext {
    /// Id of the principal.
    pub principal: String,
    /// True if the principal may do everything.
    pub is_operator: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// The request's own key, and the hash of the request.
    pub key: Option<(Uuid, [u8; 32])>,
    /// Counters of changes of names, if anybody wants to know.
    pub names: Option<NameCounters>,
}

/// Record of a change in the log.
#[derive(Clone, Debug, Default)]
pub(super) struct LogRecord<'a> {
    pub(super) relation: Option<&'a str>,
    pub(super) version: Option<u64>,
    pub(super) previous: Option<&'a str>,
    pub(super) location: Option<&'a str>,
    pub(super) target: Option<String>,
}

/// Outcome of a request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentOutcome {
    /// The hash of that request.
    pub hash: Vec<u8>,
    /// Why it was refused; none when it was done.
    pub refused: Option<(ErrorReason, String)>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLogLine {
    /// Rises by one with every change, in the order of their commits.
    pub seq: i64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// [`LogAction::name`].
    pub act: String,
    /// Namespace, as [`NamespaceIdent::key`].
    pub namespace: String,
    /// Table or view; none for a namespace.
    pub name: Option<String>,
    /// The id of the table or view.
    pub relation: Option<String>,
    /// Version that it has since then.
    pub version: Option<u64>,
    /// Metadata file before.
    pub previous: Option<String>,
    /// Metadata file since then.
    pub location: Option<String>,
    /// Name that it was given by a rename.
    pub target: Option<TableIdent>,
    /// Id of who did it.
    pub principal: String,
}

/// Columns that [`line()`] reads, behind the number.
pub(super) const LINE: &str = "at_ms, act, namespace, name, relation, version, previous, \
    location, target, principal";

/// A line as it is kept.
pub(super) fn line(row: &SqlRow) -> std::result::Result<StoredLogLine, SqlStoreError> {
    let target = row.get::<Option<String>>(9)?.map(|text| serde_json::from_str(&text));
    let target =
        target.transpose().map_err(|error| SqlStoreError::refuse(CatalogError::internal(error)))?;
    Ok(StoredLogLine {
        seq: row.get(0)?,
        at_ms: row.get(1)?,
        act: row.get(2)?,
        namespace: row.get(3)?,
        name: row.get(4)?,
        relation: row.get(5)?,
        version: row.get(6)?,
        previous: row.get(7)?,
        location: row.get(8)?,
        target,
        principal: row.get(10)?,
    })
}

/// Writes the line of a change, and once for its request the record of the key.
pub(super) fn write(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    warehouse: &str,
    act: LogAction,
    namespace: &NamespaceIdent,
    name: Option<&str>,
    line: &LogRecord<'_>,
) -> std::result::Result<(), SqlStoreError> {
    let sql = "INSERT INTO catalog_log (at_ms, warehouse, act, namespace, name, relation, version, \
        previous, location, target, principal, key) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let version = line.version.and_then(|it| i64::try_from(it).ok());
    if let Some(names) = context.names.as_ref().filter(|_| act.is_of_names()) {
        names.touch(warehouse, Some(namespace));
        if name.is_none() {
            names.touch(warehouse, namespace.parent().as_ref());
        }
    }
    it.execute(
        sql,
        &[
            ms(context.now_ms),
            warehouse.into(),
            act.name().into(),
            namespace.key().into(),
            name.into(),
            line.relation.into(),
            version.into(),
            line.previous.into(),
            line.location.into(),
            line.target.clone().into(),
            (&context.principal).into(),
            context.key.map(|(key, _)| key.to_string()).into(),
        ],
    )?;
    Ok(())
}

/// Writes the same of a table or a view.
pub(super) fn write_relation(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    warehouse: &str,
    act: LogAction,
    ident: &TableIdent,
    line: &LogRecord<'_>,
) -> std::result::Result<(), SqlStoreError> {
    write(it, context, warehouse, act, &ident.namespace, Some(&ident.name), line)
}

/// Remembers what became of a request with a key. Another server may have been asked the same at
/// the same time: then this transaction changes nothing, and the caller looks again.
pub(super) fn remember(
    it: &mut dyn StoreTransaction,
    context: &ChangeContext,
    refused: Option<(ErrorReason, &str)>,
) -> std::result::Result<(), SqlStoreError> {
    let Some((key, hash)) = context.key else { return Ok(()) };
    let sql = "INSERT INTO catalog_keys (principal, key, hash, refused, message, created_ms) \
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (principal, key) DO NOTHING";
    let written = it.execute(
        sql,
        &[
            (&context.principal).into(),
            key.to_string().into(),
            hash.as_slice().into(),
            refused.map(|(kind, _)| kind.name()).into(),
            refused.map(|(_, message)| message).into(),
            ms(context.now_ms),
        ],
    )?;
    if written == 0 {
        let message = "another request with this Idempotency-Key was carried out meanwhile";
        return Err(SqlStoreError::refuse(CatalogError::new(ErrorReason::CommitFailed, message)));
    }
    Ok(())
}

/// The log of changes, and what became of requests with a key, in the store.
#[derive(Clone, Debug)]
pub(crate) struct ChangeLogStore(pub(super) CatalogDatabase);

impl ChangeLogStore {
    /// Returns how far the log goes back, and how far on.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn log_bounds(&self) -> Result<TimelineBounds> {
        number_lines(&self.0).await?;
        self.0.read("catalog.log_bounds", timeline::bounds).await
    }

    /// Returns what became of a principal's request with this key; nothing when there was none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn remembered(
        &self,
        principal: &str,
        key: Uuid,
    ) -> Result<Option<IdempotentOutcome>> {
        let parameters = [principal.into(), SqlValue::from(key.to_string())];
        let read = self.0.read("catalog.remembered", move |it| {
            let sql = "SELECT hash, refused, message FROM catalog_keys \
                WHERE principal = $1 AND key = $2";
            let Some(row) = it.query_one(sql, &parameters)? else { return Ok(None) };
            let refused: Option<String> = row.get(1)?;
            let message: Option<String> = row.get(2)?;
            // A kind that a newer version wrote is answered as a malformed request.
            let kind = |name: String| ErrorReason::ALL.into_iter().find(|it| it.name() == name);
            let refused = refused.map(|name| {
                (kind(name).unwrap_or(ErrorReason::BadRequest), message.unwrap_or_default())
            });
            Ok(Some(IdempotentOutcome { hash: row.get(0)?, refused }))
        });
        read.await
    }

    /// Remembers that a request was carried out that had nothing to change.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(crate) async fn remember_done(&self, context: &ChangeContext) -> Result<()> {
        if context.key.is_none() {
            return Ok(());
        }
        let context = context.clone();
        let written = self.0.transact("catalog.done", move |it| remember(it, &context, None));
        written.await
    }

    /// Remembers that a request was refused.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(crate) async fn remember_refusal(
        &self,
        context: &ChangeContext,
        error: &CatalogError,
    ) -> Result<()> {
        let (context, kind, message) = (context.clone(), error.kind, error.message.clone());
        let written = self.0.transact_idempotent("catalog.refused", move |it| {
            remember(it, &context, Some((kind, &message)))
        });
        match written.await {
            // It was remembered already.
            Err(error) if error.kind == ErrorReason::CommitFailed => Ok(()),
            result => result,
        }
    }

    /// Forgets the keys of requests that came before `before_ms`. Answers how many.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(crate) async fn forget_keys(&self, before_ms: u64) -> Result<u64> {
        let forgotten = self.0.transact_idempotent("catalog.forget", move |it| {
            it.execute("DELETE FROM catalog_keys WHERE created_ms < $1", &[ms(before_ms)])
        });
        forgotten.await
    }

    /// Returns what happened in a warehouse after line `after`, in the order of commits: at most
    /// `limit` lines and [`LINES_MAX`]. No line comes to light later before one that was shown.
    ///
    /// # Errors
    /// `Gone` when lines after it were removed already.
    pub(crate) async fn log(
        &self,
        warehouse: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<StoredLogLine>> {
        number_lines(&self.0).await?;
        let limit = i64::try_from(limit.min(LINES_MAX)).map_err(CatalogError::internal)?;
        let parameters = [warehouse.into(), SqlValue::Int(after), SqlValue::Int(limit)];
        let read = self.0.read("catalog.log", move |it| {
            let bounds = timeline::bounds(it)?;
            if after < bounds.oldest {
                return Err(SqlStoreError::refuse(timeline::too_old(bounds)));
            }
            let column = number_column(it.dialect());
            let sql = format!(
                "SELECT {column}, {LINE} FROM catalog_log \
                 WHERE warehouse = $1 AND {column} > $2 ORDER BY {column} LIMIT $3"
            );
            let rows = it.query(&sql, &parameters)?;
            rows.iter().map(line).collect::<std::result::Result<Vec<_>, SqlStoreError>>()
        });
        read.await
    }

    /// Removes lines that are older than `before_ms`, in steps, and never one that comes after a
    /// younger one. Answers how many.
    ///
    /// # Errors
    /// When the store cannot be written. What was removed before is gone.
    pub(crate) async fn trim_log(&self, before_ms: u64) -> Result<u64> {
        number_lines(&self.0).await?;
        let mut all = 0;
        loop {
            let removed = self.0.transact_idempotent("catalog.trim_log", move |it| {
                timeline::trim_some(it, before_ms)
            });
            let removed = removed.await?;
            all += removed;
            if i64::try_from(removed).is_ok_and(|removed| removed < timeline::STEP) {
                return Ok(all);
            }
        }
    }
}
