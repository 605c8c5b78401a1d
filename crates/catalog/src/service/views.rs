//! View operations: create, replace, drop, register. Operations that tables and views share are in
//! `relations.rs`.

use std::sync::Arc;

use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;
use iceberg::view::{CreateView, ViewCommit, ViewDoc, apply_view, check_view, parse_view_commit};
use serde::Deserialize;

use super::commit::RETRIES_MAX;
use super::documents::{self, PlacedDocument, UnwrittenFile};
use super::homes::{self, ChosenLocation, LocationScope};
use super::managed_updates::view_touches_protection;
use super::namespaces::properties_of;
use super::relations::RelationChange;
use super::relations::{RelationService, certain};
use crate::cache::{AnswerText, CachedVersion};
use crate::database::TransactionFailure;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, ChangeCall, RightTarget};
use crate::store::{ChangeContext, LogAction, RelationKind};
use crate::warehouse::Warehouse;

/// A view to register from an existing document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RegisterView {
    name: String,
    metadata_location: String,
}

impl RelationService {
    /// Creates a view.
    ///
    /// # Errors
    /// `AlreadyExists` if a table or a view has its name; `NoSuchNamespace`; `Forbidden` if its
    /// location is outside of the warehouse, or the caller may not use it; those of [`CreateView`].
    pub async fn create_view(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &RawJson,
    ) -> Result<Arc<CachedVersion>> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Namespace(namespace),
        )?;
        let request = CreateView::parse(body)?;
        let ident = TableIdent::new(namespace.clone(), &request.name)?;
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(namespace));
        let act = async move |it: RelationChange| {
            let RelationChange { relations, warehouse, ident, context } = &it;
            let uuid = Uuid::v4()?;
            let location = relations.0.locations.new_location(warehouse, ident, uuid).await?;
            relations.require_free(warehouse, RelationKind::View, ident).await?;
            if let Some(location) = &request.location {
                let chosen = ChosenLocation::anew("location", location);
                relations.0.locations.check_scope(warehouse, &scope, chosen).await?;
            }
            let location = request.location.as_deref().unwrap_or(&location);
            let now_ms = i64::try_from(context.now_ms).map_err(CatalogError::internal)?;
            let doc = request.document(uuid, location.trim_end_matches('/'), now_ms)?;
            relations.make(warehouse, context, ident, doc, LogAction::CreateView).await
        };
        self.change_one(call, warehouse, RelationKind::View, &ident, act).await
    }

    /// Commits updates of a view. Returns its new state.
    ///
    /// # Errors
    /// `NoSuchView`; `CommitFailed` if a requirement does not hold; those of [`apply_view`].
    /// `CommitStateUnknown` if the commit may have succeeded.
    pub async fn replace_view(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        body: &RawJson,
    ) -> Result<Arc<CachedVersion>> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Relation(ident),
        )?;
        let request = parse_view_commit(body)?;
        if view_touches_protection(&request.updates) {
            self.0.rights.allow(
                call.who,
                warehouse,
                AccessRight::Manage,
                RightTarget::Relation(ident),
            )?;
        }
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(&ident.namespace));
        let act = async move |it: RelationChange| {
            let RelationChange { relations, warehouse, ident, context } = &it;
            let (mut tries, wanted) = (0, (&request, &scope));
            loop {
                let (done, is_lost) = relations.replace(warehouse, context, ident, wanted).await;
                if !is_lost || tries == RETRIES_MAX {
                    return done;
                }
                tries += 1;
            }
        };
        self.change_one(call, warehouse, RelationKind::View, ident, act).await
    }

    /// Tries once, and returns whether another server was faster.
    async fn replace(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        ident: &TableIdent,
        request: (&ViewCommit, &LocationScope),
    ) -> (Result<Arc<CachedVersion>>, bool) {
        let prepared =
            self.prepared(warehouse, context, ident, request.0, request.1).await.map_err(certain);
        let (base, placed, file) = match prepared {
            Ok((base, Some((placed, file)))) => (base, placed, file),
            Ok((base, None)) => {
                return (self.0.change_log.remember_done(context).await.map(|()| base), false);
            }
            Err(error) => return (Err(error), false),
        };
        let Some(expected) = &base.pointer else {
            return (Err(CatalogError::internal("a view without a pointer")), false);
        };
        let swaps = vec![placed.swap(ident, expected, LogAction::UpdateView)];
        let (before, _) = documents::writing(file.into_iter().collect());
        let store = &self.0.relation_store;
        let moved = store.swap_after(before, context, warehouse.id(), swaps, Vec::new()).await;
        match moved {
            Ok(mut done) => {
                let pointer = done.swapped.pop();
                let pointer =
                    pointer.ok_or_else(|| CatalogError::internal("a pointer moved unseen"));
                let publish = |it| self.0.entries.publish(warehouse, ident, it, placed);
                (pointer.map(publish), false)
            }
            // Its own file was not written.
            Err(TransactionFailure::Before(error)) => (Err(certain(error)), false),
            Err(TransactionFailure::Store(error)) => {
                let error = certain(error);
                self.0.entries.forget(warehouse, ident);
                if error.kind != ErrorReason::CommitStateUnknown {
                    documents::delete_quietly(warehouse, &placed.location).await;
                }
                let is_lost = error.kind == ErrorReason::CommitFailed;
                (Err(error), is_lost)
            }
        }
    }

    /// Returns the present view and the new one, with its file if it is still to be written; `None`
    /// if nothing changes.
    async fn prepared(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        ident: &TableIdent,
        request: &ViewCommit,
        scope: &LocationScope,
    ) -> Result<(Arc<CachedVersion>, Option<(PlacedDocument<ViewDoc>, Option<UnwrittenFile>)>)>
    {
        let base = self.0.entries.entry(warehouse, RelationKind::View, ident).await?;
        let doc = base.view().ok_or_else(|| CatalogError::internal("an entry of no view"))?;
        check_view(&request.requirements, doc)?;
        let now_ms = i64::try_from(context.now_ms).map_err(CatalogError::internal)?;
        let next = apply_view(doc, &request.updates, now_ms)?;
        let Some(next) = next else { return Ok((base, None)) };
        if let Some(pointer) = &base.pointer
            && next.location != doc.location
        {
            let (location, own) = (&*next.location, Some(&*doc.location));
            let chosen = ChosenLocation { field: "location", location, own };
            self.0.locations.check_scope(warehouse, scope, chosen).await?;
            self.0.locations.check_apart(context, location, &pointer.id).await?;
        }
        homes::check_paths(
            context,
            warehouse,
            &next.location,
            &next.properties,
            Some(&doc.properties),
        )?;
        let placed = documents::place(warehouse, next, base.location()).await?;
        Ok((base, Some(placed)))
    }

    /// Removes a view.
    ///
    /// # Errors
    /// `NoSuchView`; `Forbidden` if it is protected.
    pub async fn drop_view(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<()> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Relation(ident),
        )?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let relations = self.clone();
        let act = async move |context: ChangeContext| {
            let _lock = relations.0.entries.lock(&warehouse, &ident).await;
            relations
                .0
                .dropped
                .drop_one(&warehouse, &context, RelationKind::View, &ident, false)
                .await
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Registers a view from an existing metadata file.
    ///
    /// # Errors
    /// `BadRequest`; `Forbidden` if the file or the view's location is outside of the warehouse, or
    /// the caller may not use it; `NotFound` if the file does not exist; `AlreadyExists`;
    /// `NoSuchNamespace`.
    pub async fn register_view(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &RawJson,
    ) -> Result<Arc<CachedVersion>> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Namespace(namespace),
        )?;
        let RegisterView { name, metadata_location } = body.decode()?;
        let ident = TableIdent::new(namespace.clone(), &name)?;
        warehouse.check_location(&metadata_location)?;
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(namespace));
        let act = async move |it: RelationChange| {
            let RelationChange { relations, warehouse, ident, context } = &it;
            properties_of(&relations.0.namespace_store, warehouse, &ident.namespace).await?;
            relations.require_free(warehouse, RelationKind::View, ident).await?;
            let file = ChosenLocation::anew("metadata-location", &metadata_location);
            relations.0.locations.check_scope(warehouse, &scope, file).await?;
            let document = documents::read(warehouse, &metadata_location).await?;
            let text = AnswerText::of_read(Some(&metadata_location), document);
            let doc = ViewDoc::parse(text.document().clone())?;
            let chosen = ChosenLocation::anew("location", &doc.location);
            relations.0.locations.check_scope(warehouse, &scope, chosen).await?;
            for location in [&doc.location, &metadata_location] {
                relations.0.locations.check_apart(context, location, "").await?;
            }
            homes::check_paths(context, warehouse, &doc.location, &doc.properties, None)?;
            let placed = PlacedDocument { doc, text, location: metadata_location };
            let new = placed.new_relation(ident, LogAction::RegisterView);
            let made =
                relations.0.relation_store.insert_relation(context, warehouse.id(), new).await;
            if made.is_err() {
                relations.0.entries.forget(warehouse, ident);
            }
            let made = made.map_err(certain)?;
            Ok(relations.0.entries.publish(warehouse, ident, made, placed))
        };
        self.change_one(call, warehouse, RelationKind::View, &ident, act).await
    }
}
