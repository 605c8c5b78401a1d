//! New tables.

use std::sync::Arc;

use super::commit::{certain, delete_quietly, new_table};
use super::{Call, Catalog, Object, Right, documents, key};
use crate::cache::{Doc, Entry};
use crate::create::CreateTable;
use crate::doc::TableDoc;
use crate::error::{Error, Kind, Result};
use crate::ident::{NamespaceIdent, TableIdent, Uuid};
use crate::json::Fragment;
use crate::store::{Act, RelationKind, Stamp};
use crate::warehouse::Warehouse;

impl Catalog {
    /// Makes a table, or says how it would be when it is only to be staged: then it has no metadata
    /// file, and there is none until a commit makes it.
    ///
    /// # Errors
    /// `AlreadyExists` when a table or a view has its name; `NoSuchNamespace`; `Forbidden` when its
    /// location is outside of the warehouse; those of [`CreateTable`].
    pub async fn create_table(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &Fragment,
    ) -> Result<Arc<Entry>> {
        self.allow(call.who, warehouse, Right::Write, Object::Namespace(namespace))?;
        let request = CreateTable::parse(body)?;
        let ident = TableIdent::new(namespace.clone(), &request.name)?;
        if let Some(location) = &request.location {
            warehouse.check_location(location)?;
        }
        if request.is_staged {
            return self.stage(warehouse, &ident, &request).await;
        }
        let warehouse = Arc::clone(warehouse);
        let (again_in, again) = (Arc::clone(&warehouse), ident.clone());
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.0.commits.lock(key(&warehouse, &ident)).await;
            catalog.create(&warehouse, &stamp, &ident, &request).await
        };
        let again = async move |it: Catalog| it.entry(&again_in, RelationKind::Table, &again).await;
        self.change(call, act, again).await
    }

    async fn stage(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: &CreateTable,
    ) -> Result<Arc<Entry>> {
        let doc = self.drafted(warehouse, ident, request, node::clock::wall_ms()).await?;
        let (doc, document) = doc.settle()?;
        Ok(Arc::new(Entry::new(None, Doc::Table(Arc::new(doc)), document)))
    }

    async fn create(
        &self,
        warehouse: &Warehouse,
        stamp: &Stamp,
        ident: &TableIdent,
        request: &CreateTable,
    ) -> Result<Arc<Entry>> {
        let doc = self.drafted(warehouse, ident, request, stamp.now_ms).await?;
        self.check_apart(stamp, &doc.location, "").await?;
        let written = documents::write(warehouse, &doc, None).await?;
        let new = new_table(ident, &written, Act::CreateTable);
        match self.0.store.insert_relation(stamp, warehouse.id(), new).await.map_err(certain) {
            Ok(pointer) => Ok(self.publish_table(warehouse, ident, pointer, written)),
            Err(error) => {
                self.0.cache.forget(&key(warehouse, ident));
                if error.kind != Kind::CommitStateUnknown {
                    delete_quietly(warehouse, &written.location).await;
                }
                Err(error)
            }
        }
    }

    /// The document of a new table whose name is free.
    async fn drafted(
        &self,
        warehouse: &Warehouse,
        ident: &TableIdent,
        request: &CreateTable,
        now_ms: u64,
    ) -> Result<TableDoc> {
        let uuid = Uuid::v4()?;
        let location = self.new_location(warehouse, ident, uuid).await?;
        if let Some(found) = self.0.store.pointer(warehouse.id(), ident).await? {
            return Err(RelationKind::Table.exists(found.kind, ident));
        }
        let location = request.location.as_deref().unwrap_or(&location);
        let location = location.trim_end_matches('/');
        request.document(uuid, location, i64::try_from(now_ms).map_err(Error::internal)?)
    }
}
