//! Creation of tables.

use std::sync::Arc;

use iceberg::create::CreateTable;
use iceberg::doc::TableDoc;
use iceberg::ident::{NamespaceIdent, TableIdent, Uuid};
use iceberg::json::RawJson;

use super::homes::{self, ChosenLocation, LocationScope};
use super::relations::{RelationChange, RelationService};
use crate::cache::{AnswerText, CachedVersion, ParsedDocument};
use crate::error::{CatalogError, Result};
use crate::principal::{AccessRight, ChangeCall, RightTarget};
use crate::store::{ChangeContext, LogAction, NewRelationSite, RelationKind, not_apart};
use crate::warehouse::Warehouse;

/// Request for a new table, with the locations that its caller may choose.
#[derive(Clone, Copy)]
struct WantedTable<'a> {
    request: &'a CreateTable,
    scope: &'a LocationScope,
}

impl RelationService {
    /// Creates a table, or returns its draft if it is only staged: a staged table has no metadata
    /// file until a commit creates it.
    ///
    /// # Errors
    /// `AlreadyExists` if a table or a view has its name; `NoSuchNamespace`; `Forbidden` if its
    /// location is outside of the warehouse, or the caller may not use it; those of
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
            return self
                .stage(call, warehouse, &ident, WantedTable { request: &request, scope: &scope })
                .await;
        }
        let act = async move |it: RelationChange| {
            let RelationChange { relations, warehouse, ident, context } = &it;
            let wanted = WantedTable { request: &request, scope: &scope };
            let doc = relations.drafted(warehouse, context, ident, wanted, context.now_ms).await?;
            relations.make_apart(warehouse, context, ident, doc, LogAction::CreateTable).await
        };
        self.change_one(call, warehouse, RelationKind::Table, &ident, act).await
    }

    async fn stage(
        &self,
        call: &ChangeCall<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        wanted: WantedTable<'_>,
    ) -> Result<Arc<CachedVersion>> {
        // A location is checked as for a created table: the files are written before the commit.
        let context = call.context(self.0.clock.now_ms());
        let now_ms = node::clock::wall_ms();
        let doc = self.drafted(warehouse, &context, ident, wanted, now_ms).await?;
        homes::check_paths(&context, warehouse, &doc.location, &doc.properties, None)?;
        let (doc, text) = AnswerText::of_table(doc, None)?;
        Ok(Arc::new(CachedVersion::new(None, ParsedDocument::Table(Arc::new(doc)), text)))
    }

    /// Returns the document of a new table whose name is free, and whose location overlaps with no
    /// other.
    async fn drafted(
        &self,
        warehouse: &Arc<Warehouse>,
        context: &ChangeContext,
        ident: &TableIdent,
        wanted: WantedTable<'_>,
        now_ms: u64,
    ) -> Result<TableDoc> {
        let WantedTable { request, scope } = wanted;
        let (uuid, locations) = (Uuid::v4()?, &self.0.locations);
        let chosen = request.location.as_deref();
        let NewRelationSite { location, found, is_shared } =
            locations.site_of_new(warehouse, ident, uuid, chosen).await?;
        if let Some(found) = found {
            return Err(RelationKind::Table.exists(found.kind, ident));
        }
        if let Some(location) = chosen {
            let chosen = ChosenLocation::anew("location", location);
            locations.check_scope(warehouse, scope, chosen).await?;
        }
        let now_ms = i64::try_from(now_ms).map_err(CatalogError::internal)?;
        let doc = request.document(uuid, location.trim_end_matches('/'), now_ms)?;
        match is_shared && !context.is_operator {
            true => Err(not_apart(&doc.location)),
            false => Ok(doc),
        }
    }
}
