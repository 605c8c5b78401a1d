//! Time travel: the catalog at a past moment, as far as the log reaches back.
//!
//! Rights are those of today, on the present name of a table: the former name may belong to another
//! table now, or to none. Names and versions come from the log, documents from their metadata
//! files; a removed file is reported as an error.

use std::sync::Arc;

use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::view::ViewDoc;
use tokio::sync::Semaphore;

use super::documents;
use super::documents::RelationDocument as _;
use super::entries::RelationEntries;
use super::rights::RightGuard;
use crate::cache::{AnswerText, CachedVersion};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::page::{ListPage, PageRequest};
use crate::principal::{AccessRight, CatalogPrincipal, RightTarget};
use crate::store::{
    MetadataPointer, PastAndPresent, PastRelation, PastStore, RelationKind, TimelineMoment,
};
use crate::warehouse::Warehouse;

/// Most past documents that are read at a time: they are not cached.
pub const READS_MAX: usize = 4;

/// A past version of a table or view.
#[derive(Clone, Debug)]
pub struct AsOf {
    /// Document at that time.
    pub entry: Arc<CachedVersion>,
    /// Current name, by which rights are checked; `None` if it no longer exists.
    pub today: Option<TableIdent>,
}

impl PageRequest {
    /// Returns the part of a sorted, complete list that is on this page.
    pub(super) fn part<T>(
        &self,
        mut all: Vec<T>,
        name: impl Fn(&T) -> String,
    ) -> Result<ListPage<T>> {
        let (after, limit) = self.bounds()?;
        if let Some(after) = after {
            all.retain(|it| name(it) > after);
        }
        if let Some(limit) = limit {
            all.truncate(limit);
        }
        Ok(self.cut(all, name))
    }
}

/// The catalog at past moments; limits concurrent reads of past documents.
pub struct CatalogHistory {
    past_store: PastStore,
    rights: RightGuard,
    entries: RelationEntries,
    readers: Semaphore,
}

impl std::fmt::Debug for CatalogHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CatalogHistory").finish_non_exhaustive()
    }
}

impl CatalogHistory {
    pub(super) fn new(
        past_store: PastStore,
        rights: RightGuard,
        entries: RelationEntries,
    ) -> CatalogHistory {
        CatalogHistory { past_store, rights, entries, readers: Semaphore::new(READS_MAX) }
    }

    /// Returns the namespaces that were directly below `parent`, or at the top level.
    ///
    /// # Errors
    /// `Forbidden`; `NoSuchNamespace` if the parent did not exist; `Gone` if the log does not reach
    /// back so far.
    pub async fn list_namespaces_at(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        parent: Option<&NamespaceIdent>,
        moment: TimelineMoment,
        page: &PageRequest,
    ) -> Result<ListPage<NamespaceIdent>> {
        let object = parent.map_or(RightTarget::Warehouse, RightTarget::Namespace);
        self.rights.allow(who, warehouse, AccessRight::Read, object)?;
        let (found, kept) = self.past_store.namespaces_at(warehouse.id(), parent, moment).await?;
        if parent.is_some() {
            self.allow_kept(who, warehouse, kept.as_ref())?;
        }
        page.part(found, NamespaceIdent::key)
    }

    /// Returns the tables or views that a namespace had.
    ///
    /// # Errors
    /// `Forbidden`; `NoSuchNamespace` if it did not exist; `Gone` if the log does not reach back so
    /// far.
    pub async fn list_at(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        namespace: &NamespaceIdent,
        moment: TimelineMoment,
        page: &PageRequest,
    ) -> Result<ListPage<TableIdent>> {
        self.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Namespace(namespace))?;
        let (names, kept) =
            self.past_store.relations_at(warehouse.id(), namespace, kind, moment).await?;
        self.allow_kept(who, warehouse, kept.as_ref())?;
        let names = page.part(names, String::clone)?;
        let named = |name: String| TableIdent { namespace: namespace.clone(), name: name.into() };
        Ok(ListPage { items: names.items.into_iter().map(named).collect(), next: names.next })
    }

    /// Rejects listing a namespace that was recreated since, if the caller has rights only to the
    /// present namespace of that name.
    fn allow_kept(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        kept: Option<&NamespaceIdent>,
    ) -> Result<()> {
        let object = kept.map_or(RightTarget::Warehouse, RightTarget::Namespace);
        self.rights.allow(who, warehouse, AccessRight::Read, object)
    }

    /// Returns a past table or view, if the caller may read both the requested name and the present
    /// one; one that no longer exists, if the caller may manage the namespace, or the warehouse if
    /// the namespace was recreated.
    ///
    /// # Errors
    /// `NoSuchTable` or `NoSuchView` if no relation had the name; `Forbidden`; `Gone` if the log
    /// does not reach back so far, or the metadata file was removed.
    pub async fn load_at(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        ident: &TableIdent,
        moment: TimelineMoment,
    ) -> Result<AsOf> {
        self.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        let then = self.past_store.relation_at(warehouse.id(), kind, ident, moment).await?;
        self.allow_then(who, warehouse, ident, &then)?;
        let PastAndPresent { past, today, is_current, .. } = then;
        if is_current && let Some(today) = &today {
            let entry = self.entries.entry(warehouse, kind, today).await;
            // It may have been changed or renamed since.
            if let Ok(entry) = entry
                && entry.location() == Some(&*past.location)
            {
                return Ok(AsOf { entry, today: Some(today.clone()) });
            }
        }
        let entry = self.read_then(warehouse, kind, past).await?;
        Ok(AsOf { entry, today })
    }

    /// Rejects a past relation if the caller may not read its present state.
    fn allow_then(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Warehouse,
        ident: &TableIdent,
        then: &PastAndPresent,
    ) -> Result<()> {
        if let Some(today) = &then.today {
            return self.rights.allow(
                who,
                warehouse,
                AccessRight::Read,
                RightTarget::Relation(today),
            );
        }
        // Rights to a namespace do not extend to the earlier one of that name.
        let object = match then.is_of_another {
            true => RightTarget::Warehouse,
            false => RightTarget::Namespace(&ident.namespace),
        };
        self.rights.has_right(who, warehouse, AccessRight::Manage, object)?;
        if then.has_policies && !who.operator {
            let message =
                format!("{ident} was dropped and has policies: it is shown to operators only");
            return Err(CatalogError::new(ErrorReason::Forbidden, message));
        }
        Ok(())
    }

    /// Reads a past document from its metadata file.
    async fn read_then(
        &self,
        warehouse: &Arc<Warehouse>,
        kind: RelationKind,
        past: PastRelation,
    ) -> Result<Arc<CachedVersion>> {
        let _place = self.readers.acquire().await.map_err(CatalogError::internal)?;
        let gone = || {
            let location = &past.location;
            let message = format!("the metadata file of then was removed: {location}");
            CatalogError::new(ErrorReason::Gone, message)
        };
        let document = match documents::read(warehouse, &past.location).await {
            Err(error) if error.kind == ErrorReason::NotFound => return Err(gone()),
            document => document?,
        };
        let PastRelation { id, version, location } = past;
        let text = AnswerText::of_read(Some(&location), document);
        let document = text.document().clone();
        let (doc, uuid, base) = match kind {
            RelationKind::Table => {
                let doc = TableDoc::parse(document).map_err(CatalogError::internal)?;
                let (uuid, base) = (doc.uuid().to_owned(), doc.location().to_owned());
                (doc.into_doc(), uuid, base)
            }
            RelationKind::View => {
                let doc = ViewDoc::parse(document).map_err(CatalogError::internal)?;
                let (uuid, base) = (doc.uuid().to_owned(), doc.location().to_owned());
                (doc.into_doc(), uuid, base)
            }
        };
        let version = version.unwrap_or_default();
        let pointer = MetadataPointer { id, kind, uuid, base, version, location };
        Ok(Arc::new(CachedVersion::new(Some(pointer), doc, text)))
    }
}
