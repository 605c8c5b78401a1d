//! Tables.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use std::sync::Arc;

use axum::response::Response;
use iceberg::ident::{NamespaceIdent, TableIdent};
use iceberg::json::RawJson;
use serde::{Deserialize, Serialize};

use super::moment::as_of;
use super::request::CatalogRequest;
use super::suffix::{FinishedSuffix, ResponseSuffix};
use super::{HttpContext, answer, delegation, request};
use crate::cache::{CachedVersion, SnapshotSelection};
use crate::error::{CatalogError, ErrorReason, Result};
use crate::service::{CatalogPrincipal, ListContent};
use crate::store::RelationKind;
use crate::warehouse::Warehouse;

/// Most views in a chain that a table is loaded through.
const REFERENCED_BY_MAX: usize = 32;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct TableListQuery {
    identifiers: Vec<TableIdent>,
    next_page_token: Option<String>,
}

/// Request to rename a table or view.
#[derive(Deserialize)]
pub(super) struct RenameRequest {
    pub(super) source: TableIdent,
    pub(super) destination: TableIdent,
}

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    list_of(input, RelationKind::Table).await
}

/// Returns the names of tables or views.
pub(super) async fn list_of(input: &CatalogRequest<'_>, kind: RelationKind) -> Result<Response> {
    let (warehouse, namespace, page) = (input.warehouse()?, input.namespace()?, input.page()?);
    let catalog = &input.context.catalog;
    if let Some(moment) = as_of(input)? {
        let list = catalog
            .history()
            .list_at(&input.who, &warehouse, kind, &namespace, moment, &page)
            .await?;
        return answer::of(&TableListQuery { identifiers: list.items, next_page_token: list.next });
    }
    let make = async || {
        let list =
            catalog.relations().list(&input.who, &warehouse, kind, &namespace, &page).await?;
        answer::body(&TableListQuery { identifiers: list.items, next_page_token: list.next })
    };
    if page.token.is_some() || !catalog.rights().sees_all(&input.who, &warehouse, Some(&namespace))
    {
        return make().await.map(answer::of_json);
    }
    catalog
        .lists()
        .ready(&input.who, &warehouse, ListContent::names_of(kind), Some(&namespace), make)
        .await
        .map(answer::of_json)
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let (call, body) = (input.call()?, input.json()?);
    let entry = input
        .context
        .catalog
        .relations()
        .create_table(&call, &warehouse, &namespace, &body)
        .await?;
    made(input, &warehouse, &namespace, &body, &entry).await
}

/// Returns a created table, by the name in the body. If credentials are temporarily unavailable,
/// the creation is reported nevertheless: there is a separate operation to request them.
async fn made(
    input: &CatalogRequest<'_>,
    warehouse: &Warehouse,
    namespace: &NamespaceIdent,
    body: &RawJson,
    entry: &Arc<CachedVersion>,
) -> Result<Response> {
    let name = body.get("name");
    let name = name.as_ref().and_then(RawJson::as_str).unwrap_or_default();
    let ident = TableIdent::new(namespace.clone(), &name)?;
    let suffix = delegation::suffix(input, warehouse, &ident, entry).await;
    let suffix = suffix.unwrap_or_else(|error| {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, table = %ident, "a table was made without credentials for it");
        ResponseSuffix::default()
    });
    answer::table(input, entry, SnapshotSelection::All, &suffix.finish()?).await
}

pub(super) async fn load(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let snapshots = match input.query("snapshots")? {
        None | Some("all") => SnapshotSelection::All,
        Some("refs") => SnapshotSelection::Refs,
        Some(_) => {
            return Err(CatalogError::new(
                ErrorReason::BadRequest,
                "`snapshots` is `all` or `refs`",
            ));
        }
    };
    check_referenced_by(input)?;
    let (catalog, kind) = (&input.context.catalog, RelationKind::Table);
    let (entry, suffix, today) = match as_of(input)? {
        Some(moment) => {
            let found = catalog.history().load_at(&input.who, &warehouse, kind, &ident, moment);
            let found = Box::pin(found).await?;
            // Without access to files: they are those of the present table, under its present name.
            (found.entry, delegation::settings_of_past(input, &warehouse), found.today)
        }
        None => {
            let entry = catalog.relations().load(&input.who, &warehouse, kind, &ident).await?;
            let suffix = delegation::suffix(input, &warehouse, &ident, &entry).await?;
            (entry, suffix, Some(ident))
        }
    };
    let end = match today {
        Some(ident) => end(input.context, &input.who, &warehouse, &ident, suffix)?,
        None => suffix.finish()?,
    };
    let tag = end.tag(entry.etag(snapshots));
    if request::has(&input.parts.headers, &tag) {
        return answer::not_modified(&tag);
    }
    answer::table(input, &entry, snapshots, &end).await
}

/// Finishes the suffix with the read restrictions of the principal.
pub(super) fn end(
    context: &HttpContext,
    who: &CatalogPrincipal,
    warehouse: &Warehouse,
    ident: &TableIdent,
    mut suffix: ResponseSuffix,
) -> Result<FinishedSuffix> {
    if let Some(restrictions) = context.catalog.rights().restrictions_for(who, warehouse, ident) {
        suffix.put("read-restrictions", &*restrictions)?;
    }
    suffix.finish()
}

/// Rejects an invalid chain of views. Rights are those of the caller, independent of the views.
fn check_referenced_by(input: &CatalogRequest<'_>) -> Result<()> {
    let Some(chain) = input.query("referenced-by")?.filter(|it| !it.is_empty()) else {
        return Ok(());
    };
    let mut count = 0;
    for view in chain.split(',') {
        count += 1;
        let levels = input.split(view);
        if count > REFERENCED_BY_MAX || levels.map_or(0, |it| it.levels().len()) < 2 {
            let message = format!(
                "`referenced-by` is a list of at most {REFERENCED_BY_MAX} views with their \
                 namespaces"
            );
            return Err(CatalogError::new(ErrorReason::BadRequest, message));
        }
    }
    Ok(())
}

pub(super) async fn exists(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    input.context.catalog.relations().table_exists(&input.who, &warehouse, &ident).await?;
    Ok(answer::done())
}

pub(super) async fn commit(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let (call, body) = (input.call()?, input.json()?);
    let entry =
        input.context.catalog.relations().commit_table(&call, &warehouse, &ident, &body).await?;
    answer::table(input, &entry, SnapshotSelection::All, &FinishedSuffix::default()).await
}

pub(super) async fn commit_all(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let (call, body) = (input.call()?, input.json()?);
    input.context.catalog.relations().commit_transaction(&call, &warehouse, &body).await?;
    Ok(answer::done())
}

pub(super) async fn drop(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let purge = input.flag("purgeRequested")?;
    input.context.catalog.relations().drop_table(&input.call()?, &warehouse, &ident, purge).await?;
    Ok(answer::done())
}

pub(super) async fn register(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let (call, body) = (input.call()?, input.json()?);
    let entry = input
        .context
        .catalog
        .relations()
        .register_table(&call, &warehouse, &namespace, &body)
        .await?;
    made(input, &warehouse, &namespace, &body, &entry).await
}

pub(super) async fn unregister(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let entry = input
        .context
        .catalog
        .relations()
        .unregister_table(&input.call()?, &warehouse, &ident)
        .await?;
    answer::document(input, &entry, SnapshotSelection::All, &FinishedSuffix::default()).await
}

pub(super) async fn rename(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let RenameRequest { source, destination } = input.body()?;
    let (catalog, call) = (&input.context.catalog, input.call()?);
    let kind = RelationKind::Table;
    catalog.relations().rename(&call, &warehouse, kind, &source, &destination).await?;
    Ok(answer::done())
}

pub(super) async fn report(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("table")?);
    let report = input.json()?;
    input
        .context
        .catalog
        .relations()
        .report_metrics(&input.who, &warehouse, &ident, &report)
        .await?;
    Ok(answer::done())
}
