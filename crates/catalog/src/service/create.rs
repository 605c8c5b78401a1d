//! New tables.

use std::sync::Arc;

use super::homes::{Chosen, LocationScope};
use super::relations::Change;
use super::{Call, Catalog, Object, Right};
use crate::cache::{CachedVersion, ParsedDocument};
use crate::create::CreateTable;
use crate::doc::TableDoc;
use crate::error::{Error, Result};
use crate::ident::{NamespaceIdent, TableIdent, Uuid};
use crate::json::Fragment;
use crate::store::{Act, RelationKind};
use crate::warehouse::Warehouse;

impl Catalog {
    /// Makes a table, or says how it would be when it is only to be staged: then it has no metadata
    /// file, and there is none until a commit makes it.
    ///
    /// # Errors
    /// `AlreadyExists` when a table or a view has its name; `NoSuchNamespace`; `Forbidden` when its
    /// location is outside of the warehouse, or where whoever asks may put nothing; those of
    /// [`CreateTable`].
    pub async fn create_table(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &Fragment,
    ) -> Result<Arc<CachedVersion>> {
        self.allow(call.who, warehouse, Right::Write, Object::Namespace(namespace))?;
        let request = CreateTable::parse(body)?;
        let ident = TableIdent::new(namespace.clone(), &request.name)?;
        let reach = self.reach(call.who, warehouse, Some(namespace));
        if request.is_staged {
            return self.stage(call, warehouse, &ident, (&request, &reach)).await;
        }
        let act = async move |it: Change| {
            let Change { catalog, warehouse, ident, stamp } = &it;
            let doc = catalog.drafted(warehouse, ident, (&request, &reach), stamp.now_ms).await?;
            catalog.make(warehouse, stamp, ident, &doc, Act::CreateTable).await
        };
        self.change_one(call, warehouse, (RelationKind::Table, &ident), act).await
    }

    async fn stage(
        &self,
        call: &Call<'_>,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: (&CreateTable, &LocationScope),
    ) -> Result<Arc<CachedVersion>> {
        let doc = self.drafted(warehouse, ident, request, node::clock::wall_ms()).await?;
        self.check_staged(call, warehouse, (&doc.location, &doc.properties)).await?;
        let (doc, document) = doc.settle()?;
        Ok(Arc::new(CachedVersion::new(None, ParsedDocument::Table(Arc::new(doc)), document)))
    }

    /// The document of a new table whose name is free.
    async fn drafted(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        (request, reach): (&CreateTable, &LocationScope),
        now_ms: u64,
    ) -> Result<TableDoc> {
        let uuid = Uuid::v4()?;
        let location = self.new_location(warehouse, ident, uuid).await?;
        self.require_free(warehouse, RelationKind::Table, ident).await?;
        if let Some(location) = &request.location {
            self.check_reach(warehouse, reach, Chosen::anew("location", location)).await?;
        }
        let location = request.location.as_deref().unwrap_or(&location);
        let location = location.trim_end_matches('/');
        request.document(uuid, location, i64::try_from(now_ms).map_err(Error::internal)?)
    }
}
