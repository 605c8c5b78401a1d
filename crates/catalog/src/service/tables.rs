//! Table operations other than creating and committing: drop, register and unregister. Operations
//! that tables and views share are in `relations.rs`.

use std::sync::Arc;

use iceberg::create::check_registered;
use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::json::{JsonKind, RawJson};
use serde::Deserialize;

use super::commit::table;
use super::documents::{self, PlacedDocument};
use super::dropped::kept_in;
use super::homes::{self, ChosenLocation, LocationScope};
use super::namespaces::properties_of;
use super::relations::{RelationChange, RelationService};
use crate::cache::{AnswerText, CachedVersion};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::principal::{AccessRight, CatalogPrincipal, ChangeCall, RightTarget};
use crate::store::{ChangeContext, LogAction, RelationKind};
use crate::warehouse::Warehouse;

/// A table to register from an existing document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RegisterTable {
    name: String,
    metadata_location: String,
    #[serde(default)]
    overwrite: bool,
}

impl RelationService {
    /// Succeeds if the table exists.
    ///
    /// # Errors
    /// `NoSuchTable` if it does not.
    pub async fn table_exists(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<()> {
        self.0.rights.allow(who, warehouse, AccessRight::Read, RightTarget::Relation(ident))?;
        self.0.entries.entry_to_read(warehouse, RelationKind::Table, ident).await.map(drop)
    }

    /// Accepts a client's metrics of a scan or a commit.
    ///
    /// # Errors
    /// `NoSuchTable`, or `BadRequest` if it is no report.
    pub async fn report_metrics(
        &self,
        who: &CatalogPrincipal,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        report: &RawJson,
    ) -> Result<()> {
        self.table_exists(who, warehouse, ident).await?;
        let kind = report.get("report-type");
        if report.kind() != JsonKind::Object || kind.as_ref().and_then(RawJson::as_str).is_none() {
            return Err(CatalogError::new(ErrorReason::BadRequest, "a report has a `report-type`"));
        }
        tracing::debug!(table = %ident, principal = &*who.id, "a client has measured something");
        Ok(())
    }

    /// Drops a table. With `purge`, its files are removed as well once it can no longer be
    /// restored, unless other tables have files among them or its property `gc.enabled` is `false`.
    ///
    /// # Errors
    /// `NoSuchTable`; `Forbidden` if it is protected, or the caller may read only a part of it.
    pub async fn drop_table(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        purge: bool,
    ) -> Result<()> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Relation(ident),
        )?;
        // As for unregistering: files may remain that no policy protects.
        self.0.rights.require_unrestricted(call.who, warehouse, ident)?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let relations = self.clone();
        let act = async move |context: ChangeContext| {
            let _lock = relations.0.entries.lock(&warehouse, &ident).await;
            relations
                .0
                .dropped
                .drop_one(&warehouse, &context, RelationKind::Table, &ident, purge)
                .await
        };
        self.0.changes.run(call, act, async || Ok(())).await
    }

    /// Registers a table from an existing metadata file, or points an existing table to it.
    ///
    /// # Errors
    /// `BadRequest`; `Forbidden` if the file or the table's location is outside of the warehouse,
    /// or the caller may not use it; `NotFound` if the file does not exist; `AlreadyExists`;
    /// `NoSuchNamespace`.
    pub async fn register_table(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &RawJson,
    ) -> Result<Arc<CachedVersion>> {
        let RegisterTable { name, metadata_location, overwrite } = body.decode()?;
        let ident = TableIdent::new(namespace.clone(), &name)?;
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Write,
            RightTarget::Namespace(namespace),
        )?;
        if overwrite {
            self.0.rights.allow(
                call.who,
                warehouse,
                AccessRight::Manage,
                RightTarget::Relation(&ident),
            )?;
            self.0.rights.require_unrestricted(call.who, warehouse, &ident)?;
        }
        warehouse.check_location(&metadata_location)?;
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(namespace));
        let act = async move |it: RelationChange| {
            let RelationChange { relations, warehouse, ident, context } = &it;
            relations
                .register(warehouse, context, ident, metadata_location, overwrite, &scope)
                .await
        };
        self.change_one(call, warehouse, RelationKind::Table, &ident, act).await
    }

    async fn register(
        &self,
        warehouse: &Warehouse,
        context: &ChangeContext,
        ident: &TableIdent,
        location: String,
        overwrite: bool,
        scope: &LocationScope,
    ) -> Result<Arc<CachedVersion>> {
        properties_of(&self.0.namespace_store, warehouse, &ident.namespace).await?;
        let found = self.0.relation_store.pointer(warehouse.id(), ident).await?;
        if let Some(found) = &found
            && (!overwrite || found.kind != RelationKind::Table)
        {
            return Err(RelationKind::Table.exists(found.kind, ident));
        }
        // Registering the metadata file that a table of this name was dropped with restores that
        // table.
        let dropped = self.0.dropped_store.dropped_at(warehouse.id(), &location).await?;
        let mut dropped =
            dropped.filter(|it| found.is_none() && it.ident == *ident && !it.is_purging);
        if let Some(it) = &dropped {
            let made = self.0.namespace_store.made_up(warehouse.id(), &ident.namespace).await?;
            if !scope.has(kept_in(&made, it.dropped_ms)) {
                dropped = None;
            }
        }
        let (own_id, own) = match found.as_ref().or(dropped.as_ref().map(|it| &it.pointer)) {
            Some(it) => (it.id.clone(), Some(&*it.base)),
            None => (String::new(), None),
        };
        let file = ChosenLocation { field: "metadata-location", location: &location, own };
        self.0.locations.check_scope(warehouse, scope, file).await?;
        let document = documents::read(warehouse, &location).await?;
        let text = AnswerText::of_read(Some(&location), document);
        let doc = TableDoc::parse(text.document().clone())?;
        check_registered(&doc)?;
        let chosen = ChosenLocation { field: "location", location: &doc.location, own };
        self.0.locations.check_scope(warehouse, scope, chosen).await?;
        if overwrite {
            self.0.protection.require_unprotected(warehouse, RelationKind::Table, ident).await?;
        }
        self.0.locations.check_apart(context, &doc.location, &own_id).await?;
        self.0.locations.check_apart(context, &location, &own_id).await?;
        homes::check_paths(context, warehouse, &doc.location, &doc.properties, None)?;
        let placed = PlacedDocument { doc, text, location };
        let act = LogAction::RegisterTable;
        let pointer = match self.0.entries.entry(warehouse, RelationKind::Table, ident).await {
            // Another server has created one since the name was free.
            Ok(_) if !overwrite => {
                return Err(RelationKind::Table.exists(RelationKind::Table, ident));
            }
            Ok(base) => {
                let swaps = vec![placed.swap(ident, table(&base)?.1, act)];
                self.0
                    .relation_store
                    .swap(context, warehouse.id(), swaps, Vec::new())
                    .await?
                    .swapped
                    .pop()
            }
            Err(error) if error.kind == ErrorReason::NoSuchTable => {
                let new = placed.new_relation(ident, act);
                let (inner, id) = (&self.0, warehouse.id());
                let made = match &dropped {
                    Some(it) => {
                        inner.dropped_store.register_dropped(context, id, new, &it.pointer.id).await
                    }
                    None => inner.relation_store.insert_relation(context, id, new).await,
                };
                let made = made?;
                if dropped.is_some() {
                    self.0.rights.follow_moves().await;
                }
                Some(made)
            }
            Err(error) => return Err(error),
        };
        let pointer = pointer.ok_or_else(|| CatalogError::internal("a pointer moved unseen"))?;
        Ok(self.0.entries.publish(warehouse, ident, pointer, placed))
    }

    /// Unregisters a table: its files stay, and commits to it here are no longer possible. Returns
    /// its last version.
    ///
    /// # Errors
    /// `NoSuchTable`; `Forbidden` if it is protected, or the caller may read only a part of it.
    pub async fn unregister_table(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<Arc<CachedVersion>> {
        self.0.rights.allow(
            call.who,
            warehouse,
            AccessRight::Manage,
            RightTarget::Relation(ident),
        )?;
        // Its policies are removed: registering its file again does not restore them.
        self.0.rights.require_unrestricted(call.who, warehouse, ident)?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let gone = RelationKind::Table.no_such(&ident);
        let relations = self.clone();
        let act = async move |context: ChangeContext| {
            let _lock = relations.0.entries.lock(&warehouse, &ident).await;
            let last = relations.0.entries.entry(&warehouse, RelationKind::Table, &ident).await?;
            relations
                .0
                .protection
                .require_unprotected(&warehouse, RelationKind::Table, &ident)
                .await?;
            relations
                .0
                .dropped
                .release(
                    &warehouse,
                    &context,
                    RelationKind::Table,
                    &ident,
                    LogAction::UnregisterTable,
                )
                .await?;
            Ok(last)
        };
        // A caller that missed the response finds the location in the log.
        self.0.changes.run(call, act, async || Err(gone)).await
    }
}
