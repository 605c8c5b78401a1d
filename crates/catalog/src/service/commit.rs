//! Commits: requirements are checked against the present document, updates applied in order, a new
//! file written, and the pointer moved.

use std::sync::Arc;

use iceberg::doc::TableDoc;
use iceberg::ident::{TableIdent, Uuid};
use iceberg::json::RawJson;
use iceberg::update::{self, CommitRequest};
use node::traces::{self, Span};

use super::documents::{self, PlacedDocument, UnwrittenFile};
use super::homes::{self, ChosenLocation, LocationScope};
use super::managed_updates::{moves_away, touches_protection};
use super::relations::{RelationChange, RelationService, certain};
use crate::cache::CachedVersion;
use crate::database::TransactionFailure;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, ChangeCall, RightTarget};
use crate::store::{
    ChangeContext, LogAction, MetadataPointer, NewRelation, PointerSwap, RelationKind, SwapOutcome,
};
use crate::warehouse::Warehouse;

/// Most retries of a commit that lost against another server.
pub const RETRIES_MAX: u32 = 4;

/// Most tables of one transaction.
pub const TRANSACTION_TABLES_MAX: usize = 1000;

/// Result of a commit for one table, before the pointer moves.
#[derive(Debug)]
pub(super) enum CommitStep {
    /// No change.
    Same(Arc<CachedVersion>),
    /// A table gets a new document.
    Next {
        base: Arc<CachedVersion>,
        placed: PlacedDocument<TableDoc>,
        /// Its file, unless it is already written.
        file: Option<UnwrittenFile>,
        /// Metadata files that the new document no longer names.
        fallen: Vec<String>,
    },
    /// A table is created.
    New { placed: PlacedDocument<TableDoc>, file: Option<UnwrittenFile> },
}

impl CommitStep {
    /// Returns the new document, and its file if that is still to be written.
    fn placed_mut(&mut self) -> Option<(&PlacedDocument<TableDoc>, &mut Option<UnwrittenFile>)> {
        match self {
            CommitStep::Same(_) => None,
            CommitStep::Next { placed, file, .. } | CommitStep::New { placed, file } => {
                Some((placed, file))
            }
        }
    }
}

/// Commit to one table.
#[derive(Debug)]
pub(super) struct TableCommit {
    pub(super) ident: TableIdent,
    pub(super) request: CommitRequest,
    /// Locations that the caller may choose.
    pub(super) scope: LocationScope,
}

impl RelationService {
    /// Commits updates of a table, or creates a staged one. Returns its new state.
    ///
    /// # Errors
    /// `NoSuchTable`; `CommitFailed` if a requirement does not hold; those of [`update::apply`].
    /// `CommitStateUnknown` if the commit may have succeeded.
    pub async fn commit_table(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        body: &RawJson,
    ) -> Result<Arc<CachedVersion>> {
        let mut span = traces::span("validate");
        let wanted = update::parse_commit(body);
        let wanted =
            wanted.and_then(|request| self.allow_commit(call, warehouse, ident.clone(), request));
        let wanted = wanted.inspect_err(|error| fail(&mut span, error))?;
        span.end();
        let act = async move |it: RelationChange| {
            let changes = vec![wanted];
            let mut entries = it.relations.commit_all(&it.warehouse, &it.context, &changes).await?;
            entries
                .pop()
                .ok_or_else(|| CatalogError::internal("a commit of one table changed none"))
        };
        self.change_one(call, warehouse, RelationKind::Table, ident, act).await
    }

    /// Commits changes of several tables: all or none.
    ///
    /// # Errors
    /// Those of [`RelationService::commit_table`], for the first table that fails.
    pub async fn commit_transaction(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        body: &RawJson,
    ) -> Result<()> {
        let refuse = |message: &str| CatalogError::new(ErrorReason::BadRequest, message);
        let wanted =
            body.get("table-changes").ok_or_else(|| refuse("`table-changes` is missing"))?;
        let mut changes = Vec::new();
        for change in wanted.items()? {
            if changes.len() == TRANSACTION_TABLES_MAX {
                let message = format!("a transaction has at most {TRANSACTION_TABLES_MAX} tables");
                return Err(refuse(&message));
            }
            let request = update::parse_commit(&change)?;
            let ident = request.identifier.clone();
            let ident = ident.ok_or_else(|| refuse("each change needs an `identifier`"))?;
            changes.push(self.allow_commit(call, warehouse, ident, request)?);
        }
        if changes.is_empty() {
            // No right would be checked.
            return Err(refuse(
                "`table-changes` is empty: it needs a change of at least one table",
            ));
        }
        // All requests lock in one order, so that no two wait for each other.
        changes.sort_by(|one, other| one.ident.cmp(&other.ident));
        if changes.windows(2).any(|pair| pair[0].ident == pair[1].ident) {
            return Err(refuse("a table is in `table-changes` twice"));
        }
        let warehouse = Arc::clone(warehouse);
        let relations = self.clone();
        let act = async move |context: ChangeContext| {
            let mut locks = Vec::with_capacity(changes.len());
            for TableCommit { ident, .. } in &changes {
                locks.push(relations.0.entries.lock(&warehouse, ident).await);
            }
            relations.commit_all(&warehouse, &context, &changes).await.map(drop)
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Rejects a commit that the principal may not make. Its locations are checked later, when it
    /// is known whether they differ from the present ones.
    pub(super) fn allow_commit(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Warehouse,
        ident: TableIdent,
        request: CommitRequest,
    ) -> Result<TableCommit> {
        let object = match update::is_create(&request.requirements)? {
            true => RightTarget::Namespace(&ident.namespace),
            false => RightTarget::Relation(&ident),
        };
        self.0.rights.allow(call.who, warehouse, AccessRight::Write, object)?;
        if let RightTarget::Relation(_) = object {
            let moves = moves_away(&request.updates);
            if moves || touches_protection(&request.updates) {
                self.0.rights.allow(call.who, warehouse, AccessRight::Manage, object)?;
            }
            // Files at a table's former location are not covered by a policy.
            if moves {
                self.0.rights.require_unrestricted(call.who, warehouse, &ident)?;
            }
        }
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(&ident.namespace));
        Ok(TableCommit { ident, request, scope })
    }

    /// Commits changes of several tables, all or none, and retries if another server was faster.
    /// The caller holds the lock of every table. Returns the entries in the same order.
    pub(super) async fn commit_all(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        changes: &[TableCommit],
    ) -> Result<Vec<Arc<CachedVersion>>> {
        let mut span = traces::span("commit");
        span.set("cove.tables", u64::try_from(changes.len()).unwrap_or(u64::MAX));
        let mut tries = 0;
        loop {
            let done = span.within(self.commit_once(warehouse, context, changes)).await;
            if done.as_ref().is_err_and(CommitConflict::is_conflict) {
                self.0.conflicts.inc();
            }
            match done {
                Err(CommitConflict::ToAnother(_)) if tries < RETRIES_MAX => tries += 1,
                Err(CommitConflict::ToAnother(error) | CommitConflict::ForGood(error)) => {
                    span.set("cove.retries", tries);
                    fail(&mut span, &error);
                    return Err(error);
                }
                Ok(entries) => {
                    span.set("cove.retries", tries);
                    return Ok(entries);
                }
            }
        }
    }

    async fn commit_once(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        changes: &[TableCommit],
    ) -> std::result::Result<Vec<Arc<CachedVersion>>, CommitConflict> {
        let mut steps = Vec::with_capacity(changes.len());
        for wanted in changes {
            let mut span = traces::span("apply");
            match span.within(self.step(warehouse, context, wanted)).await {
                Ok(step) => steps.push(step),
                Err(error) => {
                    fail(&mut span, &error);
                    discard(warehouse, &steps).await;
                    return Err(CommitConflict::ForGood(certain(error)));
                }
            }
        }
        let idents: Vec<_> = changes.iter().map(|it| it.ident.clone()).collect();
        self.land(warehouse, context, &idents, steps).await
    }

    /// Writes the unwritten files of steps, and moves the pointers to their documents, all or none.
    /// The caller holds the lock of every table.
    pub(super) async fn land(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        idents: &[TableIdent],
        mut steps: Vec<CommitStep>,
    ) -> std::result::Result<Vec<Arc<CachedVersion>>, CommitConflict> {
        let (swaps, new) = plan(idents.iter().zip(&steps))?;
        // Uploads happen now; local files are written by the thread that runs the swap.
        let (mut files, mut uploaded) = (Vec::new(), Vec::new());
        for (placed, file) in steps.iter_mut().filter_map(CommitStep::placed_mut) {
            match file.take() {
                Some(file) => files.push(file),
                None => uploaded.push(placed.location.clone()),
            }
        }
        let mut span = traces::span("store");
        let (before, written) = documents::writing(files);
        let moved = match (swaps.is_empty(), new.is_empty()) {
            (true, true) => {
                let done = self.0.change_log.remember_done(context).await;
                done.map(|()| SwapOutcome::default()).map_err(TransactionFailure::Store)
            }
            _ => {
                let (store, id) = (&self.0.relation_store, warehouse.id());
                store.swap_after(before, context, id, swaps, new).await
            }
        };
        if let Err(TransactionFailure::Before(error) | TransactionFailure::Store(error)) = &moved {
            fail(&mut span, error);
        }
        span.end();
        match moved {
            Ok(done) => {
                self.settle(warehouse, idents, steps, done).await.map_err(CommitConflict::ForGood)
            }
            Err(TransactionFailure::Before(error)) => {
                written.discard(warehouse).await;
                for location in &uploaded {
                    documents::delete_quietly(warehouse, location).await;
                }
                Err(CommitConflict::ForGood(certain(error)))
            }
            Err(TransactionFailure::Store(error)) => {
                for ident in idents {
                    self.0.entries.forget(warehouse, ident);
                }
                let error = certain(error);
                if error.kind == ErrorReason::CommitStateUnknown {
                    // The outcome is unknown: pointers may refer to these files.
                    return Err(CommitConflict::ForGood(error));
                }
                discard(warehouse, &steps).await;
                match error.kind {
                    ErrorReason::CommitFailed => Err(CommitConflict::ToAnother(error)),
                    _ => Err(CommitConflict::ForGood(error)),
                }
            }
        }
    }

    /// Computes the outcome of one change. When it returns, the new document is either in a file or
    /// has a file to write.
    async fn step(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        TableCommit { ident, request, scope }: &TableCommit,
    ) -> Result<CommitStep> {
        let now_ms = i64::try_from(context.now_ms).map_err(CatalogError::internal)?;
        let CommitRequest { requirements, updates, .. } = request;
        let found = self.0.entries.entry(warehouse, RelationKind::Table, ident).await;
        if update::is_create(requirements)? {
            let base = match found {
                Ok(base) => Some(base),
                Err(error) if error.kind == ErrorReason::NoSuchTable => None,
                Err(error) => return Err(error),
            };
            update::check(requirements, base.as_ref().and_then(|it| it.table()).map(|it| &**it))?;
            let uuid = Uuid::v4()?;
            let location = self.0.locations.new_location(warehouse, ident, uuid).await?;
            let doc = update::from_updates(updates, &uuid.to_string(), &location, now_ms)?;
            if doc.location != location {
                self.0.locations.check_scope_of_new(warehouse, scope, ident, &doc.location).await?;
            }
            self.0.locations.check_apart(context, &doc.location, "").await?;
            homes::check_paths(context, warehouse, &doc.location, &doc.properties, None)?;
            let (placed, file) = documents::place(warehouse, doc, None).await?;
            return Ok(CommitStep::New { placed, file });
        }
        let base = found?;
        let (doc, pointer) = table(&base)?;
        update::check(requirements, Some(doc))?;
        let Some(next) = update::apply(doc, updates, now_ms)? else {
            return Ok(CommitStep::Same(base));
        };
        if next.location != doc.location {
            let (location, own) = (&*next.location, Some(&*doc.location));
            let chosen = ChosenLocation { field: "location", location, own };
            self.0.locations.check_scope(warehouse, scope, chosen).await?;
            self.0.locations.check_apart(context, &next.location, &pointer.id).await?;
        }
        homes::check_paths(
            context,
            warehouse,
            &next.location,
            &next.properties,
            Some(&doc.properties),
        )?;
        let (next, fallen) = update::logged(next, doc, &pointer.location);
        let (placed, file) = documents::place(warehouse, next, Some(&pointer.location)).await?;
        Ok(CommitStep::Next { base, placed, file, fallen })
    }

    /// Publishes committed versions.
    async fn settle(
        &self,
        warehouse: &Warehouse,
        idents: &[TableIdent],
        steps: Vec<CommitStep>,
        done: SwapOutcome,
    ) -> Result<Vec<Arc<CachedVersion>>> {
        let (mut swapped, mut made) = (done.swapped.into_iter(), done.made.into_iter());
        let mut entries = Vec::with_capacity(steps.len());
        for (ident, step) in idents.iter().zip(steps) {
            let (pointer, placed, fallen) = match step {
                CommitStep::Same(entry) => {
                    entries.push(entry);
                    continue;
                }
                CommitStep::Next { placed, fallen, .. } => (swapped.next(), placed, fallen),
                CommitStep::New { placed, .. } => (made.next(), placed, Vec::new()),
            };
            let pointer =
                pointer.ok_or_else(|| CatalogError::internal("a pointer moved unseen"))?;
            self.0.commits.inc();
            let entry = self.0.entries.publish(warehouse, ident, pointer, placed);
            if let Some(doc) = entry.table().filter(|doc| doc.deletes_old_metadata()) {
                documents::delete_old(&self.0.relation_store, warehouse, doc, &fallen, "").await;
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// Reason why a commit failed, or may have failed.
pub(super) enum CommitConflict {
    /// Another server was faster: a retry from the new document may succeed.
    ToAnother(CatalogError),
    /// A rejection that a retry would repeat.
    ForGood(CatalogError),
}

impl CommitConflict {
    /// Returns whether another commit is the reason.
    fn is_conflict(&self) -> bool {
        match self {
            CommitConflict::ToAnother(_) => true,
            CommitConflict::ForGood(error) => error.kind == ErrorReason::CommitFailed,
        }
    }

    /// Returns whether a retry from the new document may succeed.
    pub(super) const fn is_to_another(&self) -> bool {
        matches!(self, CommitConflict::ToAnother(_))
    }

    /// Returns the error.
    pub(super) fn into_error(self) -> CatalogError {
        match self {
            CommitConflict::ToAnother(error) | CommitConflict::ForGood(error) => error,
        }
    }
}

impl From<CatalogError> for CommitConflict {
    fn from(error: CatalogError) -> CommitConflict {
        CommitConflict::ForGood(error)
    }
}

/// Returns the operation for the store.
fn plan<'a>(
    steps: impl Iterator<Item = (&'a TableIdent, &'a CommitStep)>,
) -> Result<(Vec<PointerSwap>, Vec<NewRelation>)> {
    let (mut swaps, mut new) = (Vec::new(), Vec::new());
    for (ident, step) in steps {
        match step {
            CommitStep::Same(_) => {}
            CommitStep::Next { base, placed, .. } => {
                swaps.push(placed.swap(ident, table(base)?.1, LogAction::UpdateTable));
            }
            CommitStep::New { placed, .. } => {
                new.push(placed.new_relation(ident, LogAction::CreateTable));
            }
        }
    }
    Ok((swaps, new))
}

/// A table's document and pointer.
pub(super) fn table(entry: &CachedVersion) -> Result<(&TableDoc, &MetadataPointer)> {
    let found = entry.table().zip(entry.pointer.as_ref());
    let (doc, pointer) = found.ok_or_else(|| CatalogError::internal("an entry of no table"))?;
    Ok((doc, pointer))
}

/// Records the kind of error of a failed commit in a span; its text may contain any name.
fn fail(span: &mut Span, error: &CatalogError) {
    if span.is_recorded() {
        let kind = format!("{:?}", error.kind);
        span.set("error.type", kind.clone());
        span.fail(kind);
    }
}

/// Removes the files of a failed commit. Files that were not written yet do not exist, which is no
/// error.
async fn discard(warehouse: &Warehouse, steps: &[CommitStep]) {
    for step in steps {
        match step {
            CommitStep::Same(_) => {}
            CommitStep::Next { placed, .. } | CommitStep::New { placed, .. } => {
                documents::delete_quietly(warehouse, &placed.location).await;
            }
        }
    }
}
