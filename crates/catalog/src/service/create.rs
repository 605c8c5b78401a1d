//! New tables.

use std::sync::Arc;

use iceberg::create::CreateTable;
use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;

use super::homes::{self, ChosenLocation, LocationScope};
use super::relations::{RelationChange, RelationService};
use crate::cache::{CachedVersion, ParsedDocument};
use crate::error::{CatalogError, Result};
use crate::principal::{AccessRight, ChangeCall, RightTarget};
use crate::store::{LogAction, RelationKind};
use crate::warehouse::Warehouse;

impl RelationService {
    /// Makes a table, or says how it would be when it is only to be staged: then it has no metadata
    /// file, and there is none until a commit makes it.
    ///
    /// # Errors
    /// `AlreadyExists` when a table or a view has its name; `NoSuchNamespace`; `Forbidden` when its
    /// location is outside of the warehouse, or where whoever asks may put nothing; those of
    /// [`CreateTable`].
    pub async fn create_table(
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
        let request = CreateTable::parse(body)?;
        let ident = TableIdent::new(namespace.clone(), &request.name)?;
        let scope = LocationScope::of(&self.0.rights, call.who, warehouse, Some(namespace));
        if request.is_staged {
            return self.stage(call, warehouse, &ident, (&request, &scope)).await;
        }
        let act = async move |it: RelationChange| {
            let RelationChange { relations, warehouse, ident, context } = &it;
            let doc = relations.drafted(warehouse, ident, &request, &scope, context.now_ms).await?;
            relations.make(warehouse, context, ident, &doc, LogAction::CreateTable).await
        };
        self.change_one(call, warehouse, RelationKind::Table, &ident, act).await
    }

    async fn stage(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: (&CreateTable, &LocationScope),
    ) -> Result<Arc<CachedVersion>> {
        let doc =
            self.drafted(warehouse, ident, request.0, request.1, node::clock::wall_ms()).await?;
        // Refused where it may not be, as when it is made: its files come before it.
        let context = call.context(self.0.clock.now_ms());
        self.0.locations.check_apart(&context, &doc.location, "").await?;
        homes::check_paths(&context, warehouse, &doc.location, &doc.properties, None)?;
        let (doc, document) = doc.settle()?;
        Ok(Arc::new(CachedVersion::new(None, ParsedDocument::Table(Arc::new(doc)), document)))
    }

    /// The document of a new table whose name is free.
    async fn drafted(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: &CreateTable,
        scope: &LocationScope,
        now_ms: u64,
    ) -> Result<TableDoc> {
        let uuid = Uuid::v4()?;
        let location = self.0.locations.new_location(warehouse, ident, uuid).await?;
        self.require_free(warehouse, RelationKind::Table, ident).await?;
        if let Some(location) = &request.location {
            self.0
                .locations
                .check_scope(warehouse, scope, ChosenLocation::anew("location", location))
                .await?;
        }
        let location = request.location.as_deref().unwrap_or(&location);
        let location = location.trim_end_matches('/');
        request.document(uuid, location, i64::try_from(now_ms).map_err(CatalogError::internal)?)
    }
}
