//! Tables but for making and committing them: dropped, registered and released. What a table and a
//! view have in common is in `relations.rs`.

use std::sync::Arc;

use serde::Deserialize;

use super::commit::table;
use super::documents::{self, Written};
use super::relations::Change;
use super::{Call, Catalog, Object, Right, Who};
use crate::cache::Entry;
use crate::create::check_registered;
use crate::doc::TableDoc;
use crate::error::{Error, Kind, Result};
use crate::ident::{NamespaceIdent, TableIdent};
use crate::json::{Fragment, JsonKind};
use crate::store::{Act, RelationKind, Stamp};
use crate::warehouse::{Place, Warehouse};

/// Whether a table's files belong to it, so that purging it removes them.
const GC_ENABLED: &str = "gc.enabled";

/// A table that is to be made from a document that exists.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Register {
    name: String,
    metadata_location: String,
    #[serde(default)]
    overwrite: bool,
}

impl Catalog {
    /// Whether there is such a table.
    ///
    /// # Errors
    /// `NoSuchTable` when there is none.
    pub async fn table_exists(
        &self,
        who: &Who,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<()> {
        self.allow(who, warehouse, Right::Read, Object::Relation(ident))?;
        self.entry_to_read(warehouse, RelationKind::Table, ident).await.map(drop)
    }

    /// Takes what a client measured of a scan or a commit.
    ///
    /// # Errors
    /// `NoSuchTable`, or `BadRequest` when it is no report.
    pub async fn report_metrics(
        &self,
        who: &Who,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        report: &Fragment,
    ) -> Result<()> {
        self.table_exists(who, warehouse, ident).await?;
        let kind = report.get("report-type");
        if report.kind() != JsonKind::Object || kind.as_ref().and_then(Fragment::as_str).is_none() {
            return Err(Error::new(Kind::BadRequest, "a report has a `report-type`"));
        }
        tracing::debug!(table = %ident, principal = &*who.id, "a client has measured something");
        Ok(())
    }

    /// Removes a table. To purge it is to remove its files as well, where no other table's are
    /// among them and [`GC_ENABLED`] is not switched off.
    ///
    /// # Errors
    /// `NoSuchTable`.
    pub async fn drop_table(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
        purge: bool,
    ) -> Result<()> {
        self.allow(call.who, warehouse, Right::Manage, Object::Relation(ident))?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            // A document that cannot be read any more does not keep its table from being dropped.
            let entry = match purge {
                true => catalog.entry(&warehouse, RelationKind::Table, &ident).await.ok(),
                false => None,
            };
            let what = (RelationKind::Table, &ident);
            catalog.release(&warehouse, &stamp, what, Act::DropTable).await?;
            match entry {
                Some(entry) => catalog.purge(&warehouse, &entry).await,
                None => Ok(()),
            }
        };
        self.change(call, act, async |_| Ok(())).await
    }

    /// Removes the files of a table that is gone.
    async fn purge(&self, warehouse: &Warehouse, entry: &Entry) -> Result<()> {
        let Some(doc) = entry.table() else { return Ok(()) };
        if doc.properties.get(GC_ENABLED).is_some_and(|it| it.eq_ignore_ascii_case("false")) {
            return Ok(());
        }
        if self.0.store.is_shared(&doc.location, "").await? {
            let location = &*doc.location;
            tracing::warn!(location, "not purged: another table has files there");
            return Ok(());
        }
        let place: Place = doc.location.parse()?;
        let is_elsewhere = |file: &String| !file.parse().is_ok_and(|it: Place| it.is_below(&place));
        let logged = doc.metadata_log.iter().map(|it| it.metadata_file.as_str().into_owned());
        let files = entry.location().map(str::to_owned).into_iter().chain(logged);
        let files: Vec<_> = files.filter(is_elsewhere).collect();
        self.delete_old(warehouse, doc, &files).await;
        if let Err(error) = warehouse.files().delete_tree(&doc.location).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, location = &*doc.location, "not all of a table was purged");
        }
        Ok(())
    }

    /// Makes a table of a metadata file that exists, or lets one that there is have it.
    ///
    /// # Errors
    /// `BadRequest`; `Forbidden` when the file or the table's location is outside of the
    /// warehouse; `NotFound` when there is no such file; `AlreadyExists`; `NoSuchNamespace`.
    pub async fn register_table(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        namespace: &NamespaceIdent,
        body: &Fragment,
    ) -> Result<Arc<Entry>> {
        let Register { name, metadata_location, overwrite } = body.decode()?;
        let ident = TableIdent::new(namespace.clone(), &name)?;
        self.allow(call.who, warehouse, Right::Write, Object::Namespace(namespace))?;
        if overwrite {
            self.allow(call.who, warehouse, Right::Manage, Object::Relation(&ident))?;
        }
        warehouse.check_location(&metadata_location)?;
        let act = async move |it: Change| {
            let Change { catalog, warehouse, ident, stamp } = &it;
            catalog.register(warehouse, stamp, ident, metadata_location, overwrite).await
        };
        self.change_one(call, warehouse, (RelationKind::Table, &ident), act).await
    }

    async fn register(
        &self,
        warehouse: &Warehouse,
        stamp: &Stamp,
        ident: &TableIdent,
        location: String,
        overwrite: bool,
    ) -> Result<Arc<Entry>> {
        self.namespace(warehouse, &ident.namespace).await?;
        let found = self.0.store.pointer(warehouse.id(), ident).await?;
        if let Some(found) = &found
            && (!overwrite || found.kind != RelationKind::Table)
        {
            return Err(RelationKind::Table.exists(found.kind, ident));
        }
        let document = documents::read(warehouse, &location).await?;
        let doc = TableDoc::parse(document.clone())?;
        check_registered(&doc)?;
        warehouse.check_location(&doc.location)?;
        let own_id = found.map(|it| it.id).unwrap_or_default();
        self.check_apart(stamp, &doc.location, &own_id).await?;
        self.check_apart(stamp, &location, &own_id).await?;
        let written = Written { doc, document, location };
        let act = Act::RegisterTable;
        let pointer = match self.entry(warehouse, RelationKind::Table, ident).await {
            Ok(base) => {
                let swaps = vec![written.swap(ident, table(&base)?.1, act)];
                self.0.store.swap(stamp, warehouse.id(), swaps, Vec::new()).await?.swapped.pop()
            }
            Err(error) if error.kind == Kind::NoSuchTable => {
                let new = written.new_relation(ident, act);
                Some(self.0.store.insert_relation(stamp, warehouse.id(), new).await?)
            }
            Err(error) => return Err(error),
        };
        let pointer = pointer.ok_or_else(|| Error::internal("a pointer moved unseen"))?;
        Ok(self.publish_written(warehouse, ident, pointer, written))
    }

    /// Releases a table: its files stay, and nobody can commit to it here any more. Answers how it
    /// was.
    ///
    /// # Errors
    /// `NoSuchTable`.
    pub async fn unregister_table(
        &self,
        call: &Call<'_>,
        warehouse: &Arc<Warehouse>,
        ident: &TableIdent,
    ) -> Result<Arc<Entry>> {
        self.allow(call.who, warehouse, Right::Manage, Object::Relation(ident))?;
        let (warehouse, ident) = (Arc::clone(warehouse), ident.clone());
        let gone = RelationKind::Table.no_such(&ident);
        let act = async move |catalog: Catalog, stamp: Stamp| {
            let _turn = catalog.turn(&warehouse, &ident).await;
            let last = catalog.entry(&warehouse, RelationKind::Table, &ident).await?;
            let what = (RelationKind::Table, &ident);
            catalog.release(&warehouse, &stamp, what, Act::UnregisterTable).await?;
            Ok(last)
        };
        // Who has missed the answer finds the location in the log.
        self.change(call, act, async |_| Err(gone)).await
    }
}
