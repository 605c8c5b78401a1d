//! Views: made, loaded, replaced, dropped, registered. What a table and a view have in common is
//! with tables.

use std::sync::Arc;

use serde::Deserialize;

use super::commit::{certain, delete_quietly};
use super::documents::{self, Written};
use super::{Call, Catalog, Object, RETRIES_MAX, Right, Who};
use crate::cache::{Doc, Entry};
use crate::error::{Error, Kind, Result};
use crate::ident::{NamespaceIdent, TableIdent, Uuid};
use crate::json::Fragment;
use crate::store::{Act, NewRelation, Pointer, RelationKind, Stamp, Swap};
use crate::view::{CreateView, ViewCommit, ViewDoc, apply_view, check_view, parse_view_commit};
use crate::warehouse::Warehouse;

/// A view that is to be made from a document that exists.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Register {
    name: String,
    metadata_location: String,
}

impl Catalog {
    /// Makes a view.
    ///
    /// # Errors
    /// `AlreadyExists` when a table or a view has its name; `NoSuchNamespace`; `Forbidden` when its
    /// location is outside of the warehouse; those of [`CreateView`].
    pub async fn create_view(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &Fragment,
    ) -> Result<Arc<Entry>> {
        self.allow(call.who, warehouse, Right::Write, Object::Namespace(namespace))?;
        let request = CreateView::parse(body)?;
        let ident = TableIdent::new(namespace.clone(), &request.name)?;
        if let Some(location) = &request.location {
            warehouse.check_location(location)?;
        }
        let warehouse = Arc::clone(warehouse);
        let (again_in, again) = (Arc::clone(&warehouse), ident.clone());
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            let uuid = Uuid::v4()?;
            let location = catalog.new_location(&warehouse, &ident, uuid).await?;
            catalog.require_free(&warehouse, &ident).await?;
            let location = request.location.as_deref().unwrap_or(&location);
            let now_ms = i64::try_from(stamp.now_ms).map_err(Error::internal)?;
            let doc = request.document(uuid, location.trim_end_matches('/'), now_ms)?;
            catalog.check_apart(&stamp, &doc.location, "").await?;
            let written = documents::write_view(&warehouse, &doc, None).await?;
            let act = Act::CreateView;
            let made = catalog.insert_view(&warehouse, &stamp, &ident, &written, act).await;
            if made.as_ref().is_err_and(|error| error.kind != Kind::CommitStateUnknown) {
                delete_quietly(&warehouse, &written.location).await;
            }
            Ok(catalog.publish_view(&warehouse, &ident, made?, written))
        };
        let again = async move |it: Catalog| it.entry(&again_in, RelationKind::View, &again).await;
        self.change(call, act, again).await
    }

    /// A view as it is.
    ///
    /// # Errors
    /// `NoSuchView`; `NotFound` when its metadata file is gone.
    pub async fn load_view(
        &self,
        who: &Who,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<Arc<Entry>> {
        self.allow(who, warehouse, Right::Read, Object::Relation(ident))?;
        let entry = self.entry(warehouse, RelationKind::View, ident).await?;
        self.check_file(warehouse, &entry)?;
        Ok(entry)
    }

    /// Whether there is such a view.
    ///
    /// # Errors
    /// `NoSuchView` when there is none.
    pub async fn view_exists(
        &self,
        who: &Who,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<()> {
        self.allow(who, warehouse, Right::Read, Object::Relation(ident))?;
        self.entry(warehouse, RelationKind::View, ident).await.map(drop)
    }

    /// Commits updates of a view. Answers how it is then.
    ///
    /// # Errors
    /// `NoSuchView`; `CommitFailed` when a requirement does not hold; those of [`apply_view`].
    /// `CommitStateUnknown` when it may have happened.
    pub async fn replace_view(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        body: &Fragment,
    ) -> Result<Arc<Entry>> {
        self.allow(call.who, warehouse, Right::Write, Object::Relation(ident))?;
        let request = parse_view_commit(body)?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let (again_in, again) = (Arc::clone(&warehouse), ident.clone());
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            let mut tries = 0;
            loop {
                let (done, is_lost) = catalog.replace(&warehouse, &stamp, &ident, &request).await;
                if !is_lost || tries == RETRIES_MAX {
                    return done;
                }
                tries += 1;
            }
        };
        let again = async move |it: Catalog| it.entry(&again_in, RelationKind::View, &again).await;
        self.change(call, act, again).await
    }

    /// One try, and whether another server was faster.
    async fn replace(
        &self,
        warehouse: &Warehouse,
        stamp: &Stamp,
        ident: &TableIdent,
        request: &ViewCommit,
    ) -> (Result<Arc<Entry>>, bool) {
        let prepared = self.prepared(warehouse, stamp, ident, request).await.map_err(certain);
        let (base, written) = match prepared {
            Ok((base, Some(written))) => (base, written),
            Ok((base, None)) => {
                return (self.0.store.remember_done(stamp).await.map(|()| base), false);
            }
            Err(error) => return (Err(error), false),
        };
        let Some(expected) = base.pointer.clone() else {
            return (Err(Error::internal("a view without a pointer")), false);
        };
        let swap = Swap {
            ident: ident.clone(),
            expected,
            uuid: written.doc.uuid.clone(),
            base: written.doc.location.clone(),
            location: written.location.clone(),
            document: written.document.clone(),
            act: Act::UpdateView,
        };
        let moved = self.0.store.swap(stamp, warehouse.id(), vec![swap], Vec::new()).await;
        match moved.map_err(certain) {
            Ok(mut done) => {
                let pointer = done.swapped.pop();
                let pointer = pointer.ok_or_else(|| Error::internal("a pointer moved unseen"));
                let publish = |it| self.publish_view(warehouse, ident, it, written);
                (pointer.map(publish), false)
            }
            Err(error) => {
                self.forget(warehouse, ident);
                if error.kind != Kind::CommitStateUnknown {
                    delete_quietly(warehouse, &written.location).await;
                }
                let is_lost = error.kind == Kind::CommitFailed;
                (Err(error), is_lost)
            }
        }
    }

    /// The view as it is, and as it is to be, in its file; nothing when that is the same.
    async fn prepared(
        &self,
        warehouse: &Warehouse,
        stamp: &Stamp,
        ident: &TableIdent,
        request: &ViewCommit,
    ) -> Result<(Arc<Entry>, Option<Written<ViewDoc>>)> {
        let base = self.entry(warehouse, RelationKind::View, ident).await?;
        let doc = base.view().ok_or_else(|| Error::internal("an entry of no view"))?;
        check_view(&request.requirements, doc)?;
        let now_ms = i64::try_from(stamp.now_ms).map_err(Error::internal)?;
        let next = apply_view(doc, &request.updates, now_ms)?;
        if let (Some(next), Some(pointer)) = (&next, &base.pointer)
            && next.location != doc.location
        {
            self.check_apart(stamp, &next.location, &pointer.id).await?;
        }
        let written = match &next {
            Some(next) => Some(documents::write_view(warehouse, next, base.location()).await?),
            None => None,
        };
        Ok((base, written))
    }

    /// Removes a view.
    ///
    /// # Errors
    /// `NoSuchView`.
    pub async fn drop_view(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<()> {
        self.allow(call.who, warehouse, Right::Manage, Object::Relation(ident))?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            let what = (RelationKind::View, &ident);
            let store = &catalog.0.store;
            let dropped = store.drop_relation(&stamp, warehouse.id(), what, Act::DropView).await;
            catalog.forget(&warehouse, &ident);
            dropped.map(drop)
        };
        self.change(call, act, async |_| Ok(())).await
    }

    /// Makes a view of a metadata file that exists.
    ///
    /// # Errors
    /// `BadRequest`; `Forbidden` when the file or the view's location is outside of the warehouse;
    /// `NotFound` when there is no such file; `AlreadyExists`; `NoSuchNamespace`.
    pub async fn register_view(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &Fragment,
    ) -> Result<Arc<Entry>> {
        self.allow(call.who, warehouse, Right::Write, Object::Namespace(namespace))?;
        let Register { name, metadata_location } = body.decode()?;
        let ident = TableIdent::new(namespace.clone(), &name)?;
        warehouse.check_location(&metadata_location)?;
        let warehouse = Arc::clone(warehouse);
        let (again_in, again) = (Arc::clone(&warehouse), ident.clone());
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            catalog.namespace(&warehouse, &ident.namespace).await?;
            catalog.require_free(&warehouse, &ident).await?;
            let document = documents::read(&warehouse, &metadata_location).await?;
            let doc = ViewDoc::parse(document.clone())?;
            warehouse.check_location(&doc.location)?;
            for location in [&doc.location, &metadata_location] {
                catalog.check_apart(&stamp, location, "").await?;
            }
            let written = Written { doc, document, location: metadata_location };
            let act = Act::RegisterView;
            let made = catalog.insert_view(&warehouse, &stamp, &ident, &written, act).await?;
            Ok(catalog.publish_view(&warehouse, &ident, made, written))
        };
        let again = async move |it: Catalog| it.entry(&again_in, RelationKind::View, &again).await;
        self.change(call, act, again).await
    }

    /// Refuses a name that something has.
    async fn require_free(&self, warehouse: &Warehouse, ident: &TableIdent) -> Result<()> {
        match self.0.store.pointer(warehouse.id(), ident).await? {
            Some(found) => Err(RelationKind::View.exists(found.kind, ident)),
            None => Ok(()),
        }
    }

    async fn insert_view(
        &self,
        warehouse: &Warehouse,
        stamp: &Stamp,
        ident: &TableIdent,
        written: &Written<ViewDoc>,
        act: Act,
    ) -> Result<Pointer> {
        let new = NewRelation {
            ident: ident.clone(),
            kind: RelationKind::View,
            uuid: written.doc.uuid.clone(),
            base: written.doc.location.clone(),
            location: written.location.clone(),
            document: written.document.clone(),
            act,
        };
        let made = self.0.store.insert_relation(stamp, warehouse.id(), new).await.map_err(certain);
        if made.is_err() {
            self.forget(warehouse, ident);
        }
        made
    }

    fn publish_view(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        pointer: Pointer,
        written: Written<ViewDoc>,
    ) -> Arc<Entry> {
        let doc = Doc::View(Arc::new(written.doc));
        self.publish(warehouse, ident, Entry::new(Some(pointer), doc, written.document))
    }
}
