//! The common part of tables and views: both are a name, a pointer, and a document in a file.

use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent};

use super::catalog::Catalog;
use super::commit::certain;
use super::documents::{self, RelationDocument};
use super::homes;
use crate::cache::CachedVersion;
use crate::error::{ErrorReason, Result};
use crate::page::{ListPage, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget, VisibleNames};
use crate::store::{ChangeContext, LogAction, RelationKind};
use crate::warehouse::Warehouse;

/// A change of what is behind a name, which has its turn.
pub(super) struct RelationChange {
    pub(super) catalog: Catalog,
    pub(super) warehouse: Arc<Warehouse>,
    pub(super) ident: TableIdent,
    pub(super) stamp: ChangeContext,
}

impl Catalog {
    /// Changes what is behind a name, in its turn. A request that was carried out before is
    /// answered by how it is now.
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
        let (catalog, entries) = (self.clone(), self.0.entries.clone());
        let act = async move |stamp: ChangeContext| {
            let _turn = catalog.0.entries.turn(&warehouse, &ident).await;
            act(RelationChange { catalog, warehouse, ident, stamp }).await
        };
        let again = async move || entries.entry(&again_in, kind, &again).await;
        self.0.changes.run(call, act, again).await
    }

    /// Tables or views of a namespace.
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
            // How many of them fill a page is not known before they are seen.
            limit = None;
        }
        let store = &self.0.store;
        let mut names = store.relations(warehouse.id(), namespace, kind, after, limit).await?;
        if let VisibleNames::Part { relations, .. } = visible {
            names.retain(|name| relations.contains(name.as_str()));
        }
        let names = page.part(names, String::clone)?;
        let ident = |name: String| TableIdent { namespace: namespace.clone(), name: name.into() };
        Ok(ListPage { items: names.items.into_iter().map(ident).collect(), next: names.next })
    }

    /// A table or view as it is.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchView`; `NotFound` when its metadata file is gone.
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

    /// Returns what [`Catalog::load`] finds, where that takes no waiting and nothing is wrong with
    /// it.
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

    /// Gives a table or a view another name.
    ///
    /// # Errors
    /// `NoSuchTable`, `NoSuchView`, `NoSuchNamespace`, `AlreadyExists`; `Forbidden` when it is
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
        let catalog = self.clone();
        let act = async move |stamp: ChangeContext| {
            let mut names = vec![&from, &to];
            names.sort();
            names.dedup();
            let mut turns = Vec::new();
            for name in names {
                turns.push(catalog.0.entries.turn(&warehouse, name).await);
            }
            catalog.require_unprotected(&warehouse, kind, &from).await?;
            let store = &catalog.0.store;
            let renamed = store.rename_relation(&stamp, warehouse.id(), kind, &from, &to).await;
            catalog.0.entries.forget(&warehouse, &from);
            catalog.0.entries.forget(&warehouse, &to);
            catalog.0.rights.follow_moves().await;
            renamed
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Refuses a name that something has.
    pub(super) async fn require_free(
        &self,
        warehouse: &Warehouse,
        kind: RelationKind,
        ident: &TableIdent,
    ) -> Result<()> {
        match self.0.store.pointer(warehouse.id(), ident).await? {
            Some(found) => Err(kind.exists(found.kind, ident)),
            None => Ok(()),
        }
    }

    /// Makes a table or view of a document whose name is free.
    pub(super) async fn make<D: RelationDocument>(
        &self,
        warehouse: &Warehouse,
        stamp: &ChangeContext,
        ident: &TableIdent,
        doc: &D,
        act: LogAction,
    ) -> Result<Arc<CachedVersion>> {
        homes::check_apart(&self.0.store, stamp, doc.location(), "").await?;
        homes::check_paths(stamp, warehouse, doc.location(), doc.properties(), None)?;
        let written = documents::write(warehouse, doc, None).await?;
        let new = written.new_relation(ident, act);
        match self.0.store.insert_relation(stamp, warehouse.id(), new).await.map_err(certain) {
            Ok(pointer) => Ok(self.0.entries.publish_written(warehouse, ident, pointer, written)),
            Err(error) => {
                self.0.entries.forget(warehouse, ident);
                if error.kind != ErrorReason::CommitStateUnknown {
                    documents::delete_quietly(warehouse, &written.location).await;
                }
                Err(error)
            }
        }
    }

    /// Takes a table or view away, but for its files. The caller has its turn.
    pub(super) async fn release(
        &self,
        warehouse: &Warehouse,
        stamp: &ChangeContext,
        kind: RelationKind,
        ident: &TableIdent,
        act: LogAction,
    ) -> Result<()> {
        let released = self.0.store.drop_relation(stamp, warehouse.id(), kind, ident, act).await;
        self.0.entries.forget(warehouse, ident);
        self.0.rights.follow_moves().await;
        released.map(drop)
    }
}
