//! The common part of tables and views: both are a name, a pointer, and a document in a file.

use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};
use node::history::SharedCounter;
use node::store::SqlStoreError;

use super::documents::{self, RelationDocument};
use super::dropped::DroppedRelations;
use super::entries::RelationEntries;
use super::homes;
use super::homes::LocationRules;
use super::keys::ChangeRunner;
use super::protection::ProtectionRules;
use super::rights::RightGuard;
use crate::cache::CachedVersion;
use crate::database::DatabaseClock;
use crate::database::TransactionFailure;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::{ListPage, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget, VisibleNames};
use crate::store::{
    CatalogStore, ChangeContext, ChangeLogStore, DroppedStore, LogAction, NamespaceStore,
    RelationKind, RelationStore,
};
use crate::warehouse::Warehouse;

/// A change of the relation with a name, whose lock is held.
pub(super) struct RelationChange {
    pub(super) relations: RelationService,
    pub(super) warehouse: Arc<Warehouse>,
    pub(super) ident: TableIdent,
    pub(super) context: ChangeContext,
}

/// Tables and views: creates, lists, loads, commits and drops them. Cheap to clone.
#[derive(Clone)]
pub struct RelationService(pub(super) Arc<RelationServiceInner>);

pub(super) struct RelationServiceInner {
    pub(super) clock: DatabaseClock,
    pub(super) change_log: ChangeLogStore,
    pub(super) dropped_store: DroppedStore,
    pub(super) namespace_store: NamespaceStore,
    pub(super) relation_store: RelationStore,
    pub(super) locations: LocationRules,
    pub(super) rights: RightGuard,
    pub(super) entries: RelationEntries,
    pub(super) changes: ChangeRunner,
    pub(super) protection: ProtectionRules,
    pub(super) dropped: DroppedRelations,
    /// Tables that were committed to, and commits that failed because of a conflict or a
    /// requirement.
    pub(super) commits: SharedCounter,
    pub(super) conflicts: SharedCounter,
}

impl std::fmt::Debug for RelationService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelationService").finish_non_exhaustive()
    }
}

impl RelationService {
    /// Returns the number of commits to tables since the start, and of commits that conflicted with
    /// others.
    #[must_use]
    pub fn commits_and_conflicts(&self) -> (u64, u64) {
        (self.0.commits.load(), self.0.conflicts.load())
    }

    pub(super) fn new(
        store: &CatalogStore,
        locations: LocationRules,
        rights: RightGuard,
        entries: RelationEntries,
        changes: ChangeRunner,
        protection: ProtectionRules,
        dropped: DroppedRelations,
    ) -> RelationService {
        RelationService(Arc::new(RelationServiceInner {
            clock: store.clock(),
            change_log: store.change_log().clone(),
            dropped_store: store.dropped_relations().clone(),
            namespace_store: store.namespaces().clone(),
            relation_store: store.relations().clone(),
            locations,
            rights,
            entries,
            changes,
            protection,
            dropped,
            commits: SharedCounter::default(),
            conflicts: SharedCounter::default(),
        }))
    }

    /// Changes the relation with a name, under its lock. A request that was already carried out
    /// returns the present state.
    pub(super) async fn change_one<A>(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        ident: &TableIdent,
        act: impl FnOnce(RelationChange) -> A + Send + 'static,
    ) -> Result<Arc<CachedVersion>>
    where
        A: Future<Output = Result<Arc<CachedVersion>>> + Send,
    {
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let (again_in, again) = (Arc::clone(&warehouse), ident.clone());
        let (relations, entries) = (self.clone(), self.0.entries.clone());
        let act = async move |context: ChangeContext| {
            let _lock = relations.0.entries.lock(&warehouse, &ident).await;
            act(RelationChange { relations, warehouse, ident, context }).await
        };
        let again = async move || entries.entry(&again_in, kind, &again).await;
        self.0.changes.run(call, act, again).await
    }

    /// Returns the tables or views of a namespace.
    ///
    /// # Errors
    /// `NoSuchNamespace`.
    pub async fn list(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        namespace: &NamespaceIdent,
        page: &PageRequest,
    ) -> Result<ListPage<TableIdent>> {
        let visible = self.0.rights.listed_names(who, warehouse, Some(namespace))?;
        let (after, mut limit) = page.bounds()?;
        if matches!(visible, VisibleNames::Part { .. }) {
            // The number of names for a page is unknown before their visibility is checked.
            limit = None;
        }
        let mut names =
            self.0.relation_store.list(warehouse.id(), namespace, kind, after, limit).await?;
        if let VisibleNames::Part { relations, .. } = visible {
            names.retain(|name| relations.contains(name.as_str()));
        }
        let names = page.part(names, String::clone)?;
        let ident = |name: String| TableIdent { namespace: namespace.clone(), name: name.into() };
        Ok(ListPage { items: names.items.into_iter().map(ident).collect(), next: names.next })
    }

    /// Returns a table or view in its present state.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchView`; `NotFound` if its metadata file is missing.
    pub async fn load(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<Arc<CachedVersion>> {
        self.0.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        let entry = self.0.entries.entry_to_read(warehouse, kind, ident).await?;
        self.0.entries.check_file(warehouse, &entry)?;
        Ok(entry)
    }

    /// Returns the result of [`RelationService::load`], if it is available without waiting and
    /// valid.
    pub(crate) fn at_hand(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Option<Arc<CachedVersion>> {
        self.0
            .rights
            .allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))
            .ok()?;
        self.0.entries.at_hand(warehouse, kind, ident)
    }

    /// Renames a table or a view.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchView`, `NoSuchNamespace`, `AlreadyExists`; `Forbidden` if it is
    /// protected.
    pub async fn rename(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        from: &TableIdent,
        to: &TableIdent,
    ) -> Result<()> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Relation(from),
        )?;
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Namespace(&to.namespace),
        )?;
        let (warehouse, from, to) = (Arc::clone(warehouse), from.clone(), to.clone());
        let relations = self.clone();
        let act = async move |context: ChangeContext| {
            let mut names = vec![&from, &to];
            names.sort();
            names.dedup();
            let mut locks = Vec::new();
            for name in names {
                locks.push(relations.0.entries.lock(&warehouse, name).await);
            }
            relations.0.protection.require_unprotected(&warehouse, kind, &from).await?;
            let renamed = relations
                .0
                .relation_store
                .rename_relation(&context, warehouse.id(), kind, &from, &to)
                .await;
            relations.0.entries.forget(&warehouse, &from);
            relations.0.entries.forget(&warehouse, &to);
            relations.0.rights.follow_moves().await;
            renamed
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Rejects a name that is in use.
    pub(super) async fn require_free(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<()> {
        match self.0.relation_store.pointer(warehouse.id(), ident).await? {
            Some(found) => Err(kind.exists(found.kind, ident)),
            None => Ok(()),
        }
    }

    /// Creates a table or view from a document; the caller has checked that its name is free.
    pub(super) async fn make<D: RelationDocument>(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        ident: &TableIdent,
        doc: D,
        act: LogAction,
    ) -> Result<Arc<CachedVersion>> {
        self.0.locations.check_apart(context, doc.location(), "").await?;
        self.make_apart(warehouse, context, ident, doc, act).await
    }

    /// Like [`RelationService::make`], for a document whose location is known to overlap with no
    /// other.
    pub(super) async fn make_apart<D: RelationDocument>(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        ident: &TableIdent,
        doc: D,
        act: LogAction,
    ) -> Result<Arc<CachedVersion>> {
        homes::check_paths(context, warehouse, doc.location(), doc.properties(), None)?;
        let (placed, file) = documents::place(warehouse, doc, None).await?;
        let new = placed.new_relation(ident, act);
        let (before, _) = documents::writing(file.into_iter().collect());
        let store = &self.0.relation_store;
        match store.insert_relation_after(before, context, warehouse.id(), new).await {
            Ok(pointer) => Ok(self.0.entries.publish(warehouse, ident, pointer, placed)),
            // Its own file was not written.
            Err(TransactionFailure::Before(error)) => Err(error),
            Err(TransactionFailure::Store(error)) => {
                let error = certain(error);
                self.0.entries.forget(warehouse, ident);
                if error.kind != ErrorReason::CommitStateUnknown {
                    documents::delete_quietly(warehouse, &placed.location).await;
                }
                Err(error)
            }
        }
    }
}

/// Converts a server failure. Clients treat any server failure as a commit that may have succeeded,
/// and leave everything as it is. If nothing happened, the error says so.
pub(super) fn certain(error: CatalogError) -> CatalogError {
    let cause = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<SqlStoreError>());
    match error.kind {
        // The store was closed in the middle of its work.
        ErrorReason::ServiceUnavailable if matches!(cause, Some(SqlStoreError::Closed)) => {
            let message = "the server is stopping: the outcome is unknown";
            CatalogError::caused(ErrorReason::CommitStateUnknown, message, error)
        }
        ErrorReason::Internal | ErrorReason::ServiceUnavailable => {
            tracing::error!(error = &error as &dyn std::error::Error, "a commit failed");
            let message = format!("Cannot commit: {}", error.message);
            CatalogError::caused(ErrorReason::CommitFailed, message, error)
        }
        _ => error,
    }
}
