//! The change log: a line of the log, and the record of its idempotency key.

use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use node::store::{SqlRow, SqlStoreError, SqlValue, StoreTransaction};

use super::names::NameCounters;
use super::queries::ms;
use super::timeline::{self, TimelineBounds, number_column, number_lines};
use crate::database::CatalogDatabase;
use crate::error::{CatalogError, ErrorReason, Result};

/// Most lines of the log in one result.
pub const LINES_MAX: usize = 1000;

/// Action in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// A namespace was created.
    CreateNamespace,
    /// The properties of a namespace were changed.
    UpdateNamespace,
    /// A namespace was dropped.
    DropNamespace,
    /// A table was created.
    CreateTable,
    /// A table has a new document.
    UpdateTable,
    /// A table was dropped.
    DropTable,
    /// A table was renamed.
    RenameTable,
    /// A table was registered from an existing document.
    RegisterTable,
    /// A table was unregistered: its files stay.
    UnregisterTable,
    /// A view was created.
    CreateView,
    /// A view has a new document.
    UpdateView,
    /// A view was dropped.
    DropView,
    /// A view was renamed.
    RenameView,
    /// A view was registered from an existing document.
    RegisterView,
    /// A dropped table was restored.
    UndropTable,
    /// A dropped view was restored.
    UndropView,
    /// A function was created.
    CreateFunction,
    /// A function has a new document.
    UpdateFunction,
    /// A function was dropped.
    DropFunction,
    /// A dropped table was purged and can no longer be restored.
    PurgeTable,
    /// A dropped view was purged and can no longer be restored.
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
    /// Returns whether the action changes names, or the properties of a namespace.
    fn is_of_names(self) -> bool {
        // Everything but the frequent actions: counting too much only costs a read.
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
    /// Counters of changes of names, if they are in use.
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
    /// Hash of the request.
    pub hash: Vec<u8>,
    /// Error that it was rejected with; `None` if it was carried out.
    pub refused: Option<(ErrorReason, String)>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLogLine {
    /// Increases by one with every change, in the order of commits.
    pub seq: i64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// [`LogAction::name`].
    pub act: String,
    /// Namespace, as [`NamespaceIdent::key`].
    pub namespace: String,
    /// Table or view; `None` for a namespace.
    pub name: Option<String>,
    /// The id of the table or view.
    pub relation: Option<String>,
    /// Version after the change.
    pub version: Option<u64>,
    /// Metadata file before the change.
    pub previous: Option<String>,
    /// Metadata file after the change.
    pub location: Option<String>,
    /// New name after a rename.
    pub target: Option<TableIdent>,
    /// Id of the principal.
    pub principal: String,
}

/// Columns that [`line()`] reads, after the number.
pub(super) const LINE: &str = "at_ms, act, namespace, name, relation, version, previous, \
    location, target, principal";

/// Reads a line from its row.
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

/// Writes the line of a change, and the record of the request's key once.
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

/// Writes the line of a change of a table or a view.
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

/// Records the outcome of a request with a key. If another server carries out the same request
/// concurrently, this transaction is rejected and the caller looks up the outcome.
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

/// The log of changes, and the outcomes of requests with a key, in the store.
#[derive(Clone, Debug)]
pub(crate) struct ChangeLogStore(pub(super) CatalogDatabase);

impl ChangeLogStore {
    /// Returns the bounds of the log.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) async fn log_bounds(&self) -> Result<TimelineBounds> {
        number_lines(&self.0).await?;
        self.0.read("catalog.log_bounds", timeline::bounds).await
    }

    /// Returns the outcome of a principal's request with this key; `None` if there is none.
    ///
    /// # Errors
    /// If the store cannot be read.
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
            // An error kind of a newer version is reported as a malformed request.
            let kind = |name: String| ErrorReason::ALL.into_iter().find(|it| it.name() == name);
            let refused = refused.map(|name| {
                (kind(name).unwrap_or(ErrorReason::BadRequest), message.unwrap_or_default())
            });
            Ok(Some(IdempotentOutcome { hash: row.get(0)?, refused }))
        });
        read.await
    }

    /// Records that a request was carried out without changing anything.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn remember_done(&self, context: &ChangeContext) -> Result<()> {
        if context.key.is_none() {
            return Ok(());
        }
        let context = context.clone();
        let written = self.0.transact("catalog.done", move |it| remember(it, &context, None));
        written.await
    }

    /// Records that a request was rejected.
    ///
    /// # Errors
    /// If the store cannot be written.
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
            // It was already recorded.
            Err(error) if error.kind == ErrorReason::CommitFailed => Ok(()),
            result => result,
        }
    }

    /// Removes the keys of requests from before `before_ms`. Returns how many.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) async fn forget_keys(&self, before_ms: u64) -> Result<u64> {
        let forgotten = self.0.transact_idempotent("catalog.forget", move |it| {
            it.execute("DELETE FROM catalog_keys WHERE created_ms < $1", &[ms(before_ms)])
        });
        forgotten.await
    }

    /// Returns the lines of a warehouse after the number `after`, in the order of commits: at most
    /// `limit` and [`LINES_MAX`]. No line appears later with a number below that of a returned one.
    ///
    /// # Errors
    /// `Gone` if lines after it have already been removed.
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

    /// Removes lines that are older than `before_ms`, in steps, and never a line after a younger
    /// one. Returns how many.
    ///
    /// # Errors
    /// If the store cannot be written. Completed steps are not undone.
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
