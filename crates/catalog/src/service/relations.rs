//! The common part of tables and views: both are a name, a pointer, and a document in a file.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use iceberg::doc::{TableDoc, TableProperties};
use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::view::ViewDoc;

use super::catalog::{Catalog, key};
use super::commit::{certain, delete_quietly};
use super::documents::{self, WrittenDocument};
use crate::cache::{CachedVersion, ParsedDocument};
use crate::error::{ErrorReason, Result};
use crate::page::{ListPage, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget, VisibleNames};
use crate::storage::PATHS;
use crate::store::{
    ChangeContext, LogAction, MetadataPointer, NewRelation, PointerSwap, RelationKind,
};
use crate::warehouse::Warehouse;

/// A document, as far as those of tables and views are kept alike.
pub(crate) trait RelationDocument: Sized {
    /// Kind of the document.
    const KIND: RelationKind;

    fn uuid(&self) -> &str;
    fn location(&self) -> &str;
    fn properties(&self) -> &TableProperties;
    /// Returns where its files go beside its location.
    fn places(&self) -> Vec<String>;
    /// Returns the document in one piece, and its bytes.
    fn settle(&self) -> Result<(Self, Bytes)>;
    fn into_doc(self) -> ParsedDocument;
}

impl RelationDocument for TableDoc {
    const KIND: RelationKind = RelationKind::Table;

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn properties(&self) -> &TableProperties {
        &self.properties
    }

    fn places(&self) -> Vec<String> {
        let paths = PATHS.iter().filter_map(|name| self.properties.get(name));
        paths.map(Cow::into_owned).collect()
    }

    fn settle(&self) -> Result<(TableDoc, Bytes)> {
        TableDoc::settle(self)
    }

    fn into_doc(self) -> ParsedDocument {
        ParsedDocument::Table(Arc::new(self))
    }
}

impl RelationDocument for ViewDoc {
    const KIND: RelationKind = RelationKind::View;

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn properties(&self) -> &TableProperties {
        &self.properties
    }

    fn places(&self) -> Vec<String> {
        Vec::new()
    }

    fn settle(&self) -> Result<(ViewDoc, Bytes)> {
        ViewDoc::settle(self)
    }

    fn into_doc(self) -> ParsedDocument {
        ParsedDocument::View(Arc::new(self))
    }
}

impl<D: RelationDocument> WrittenDocument<D> {
    /// The table or view that was written.
    pub(super) fn new_relation(&self, ident: &TableIdent, act: LogAction) -> NewRelation {
        NewRelation {
            ident: ident.clone(),
            kind: D::KIND,
            uuid: self.doc.uuid().to_owned(),
            base: self.doc.location().to_owned(),
            places: self.doc.places(),
            location: self.location.clone(),
            document: self.document.clone(),
            act,
        }
    }

    /// The move of a pointer from where it leads to what was written.
    pub(super) fn swap(
        &self,
        ident: &TableIdent,
        expected: &MetadataPointer,
        act: LogAction,
    ) -> PointerSwap {
        PointerSwap {
            ident: ident.clone(),
            expected: expected.clone(),
            uuid: self.doc.uuid().to_owned(),
            base: self.doc.location().to_owned(),
            places: self.doc.places(),
            location: self.location.clone(),
            document: self.document.clone(),
            act,
        }
    }
}

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
        let act = async move |catalog: Catalog, stamp: ChangeContext| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            act(RelationChange { catalog: catalog.clone(), warehouse, ident, stamp }).await
        };
        self.change(call, act, async move |it: Catalog| it.entry(&again_in, kind, &again).await)
            .await
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
        let entry = self.entry_to_read(warehouse, kind, ident).await?;
        self.check_file(warehouse, &entry)?;
        Ok(entry)
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
        let act = async move |catalog: Catalog, stamp: ChangeContext| {
            let mut names = vec![&from, &to];
            names.sort();
            names.dedup();
            let mut turns = Vec::new();
            for name in names {
                turns.push(catalog.turn(&warehouse, name).await);
            }
            catalog.require_unprotected(&warehouse, kind, &from).await?;
            let store = &catalog.0.store;
            let renamed = store.rename_relation(&stamp, warehouse.id(), kind, &from, &to).await;
            catalog.forget(&warehouse, &from);
            catalog.forget(&warehouse, &to);
            catalog.0.rights.follow_moves().await;
            renamed
        };
        self.change(call, act, async |_| Ok(())).await
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
        self.check_apart(stamp, doc.location(), "").await?;
        Catalog::check_paths(stamp, warehouse, doc.location(), doc.properties(), None)?;
        let written = documents::write(warehouse, doc, None).await?;
        let new = written.new_relation(ident, act);
        match self.0.store.insert_relation(stamp, warehouse.id(), new).await.map_err(certain) {
            Ok(pointer) => Ok(self.publish_written(warehouse, ident, pointer, written)),
            Err(error) => {
                self.forget(warehouse, ident);
                if error.kind != ErrorReason::CommitStateUnknown {
                    delete_quietly(warehouse, &written.location).await;
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
        self.forget(warehouse, ident);
        self.0.rights.follow_moves().await;
        released.map(drop)
    }

    /// Puts a document that a pointer leads to in the cache.
    pub(super) fn publish_written<D: RelationDocument>(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        pointer: MetadataPointer,
        written: WrittenDocument<D>,
    ) -> Arc<CachedVersion> {
        let doc = written.doc.into_doc();
        let entry = Arc::new(CachedVersion::new(Some(pointer), doc, written.document));
        self.0.cache.publish(key(warehouse, ident), Arc::clone(&entry));
        entry
    }
}
