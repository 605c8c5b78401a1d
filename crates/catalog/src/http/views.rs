//! Views.
//!
//! # References
//! - <https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml>

use axum::response::Response;

use super::answer;
use super::moment::as_of;
use super::request::CatalogRequest;
use super::suffix::FinishedSuffix;
use super::tables::{RenameRequest, list_of};
use crate::cache::SnapshotSelection;
use crate::error::Result;
use crate::store::RelationKind;

pub(super) async fn list(input: &CatalogRequest<'_>) -> Result<Response> {
    list_of(input, RelationKind::View).await
}

pub(super) async fn create(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let (call, body) = (input.call()?, input.json()?);
    let entry =
        input.context.catalog.relations().create_view(&call, &warehouse, &namespace, &body).await?;
    answer::document(input, &entry, SnapshotSelection::All, &FinishedSuffix::default()).await
}

pub(super) async fn load(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("view")?);
    let (catalog, kind) = (&input.context.catalog, RelationKind::View);
    let entry = match as_of(input)? {
        Some(moment) => {
            let found = catalog.history().load_at(&input.who, &warehouse, kind, &ident, moment);
            Box::pin(found).await?.entry
        }
        None => catalog.relations().load(&input.who, &warehouse, kind, &ident).await?,
    };
    answer::document(input, &entry, SnapshotSelection::All, &FinishedSuffix::default()).await
}

pub(super) async fn exists(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("view")?);
    input
        .context
        .catalog
        .relations()
        .load(&input.who, &warehouse, RelationKind::View, &ident)
        .await?;
    Ok(answer::done())
}

pub(super) async fn replace(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("view")?);
    let (call, body) = (input.call()?, input.json()?);
    let entry =
        input.context.catalog.relations().replace_view(&call, &warehouse, &ident, &body).await?;
    answer::document(input, &entry, SnapshotSelection::All, &FinishedSuffix::default()).await
}

pub(super) async fn drop(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, ident) = (input.warehouse()?, input.ident("view")?);
    input.context.catalog.relations().drop_view(&input.call()?, &warehouse, &ident).await?;
    Ok(answer::done())
}

pub(super) async fn rename(input: &CatalogRequest<'_>) -> Result<Response> {
    let warehouse = input.warehouse()?;
    let RenameRequest { source, destination } = input.body()?;
    let (catalog, call) = (&input.context.catalog, input.call()?);
    let kind = RelationKind::View;
    catalog.relations().rename(&call, &warehouse, kind, &source, &destination).await?;
    Ok(answer::done())
}

pub(super) async fn register(input: &CatalogRequest<'_>) -> Result<Response> {
    let (warehouse, namespace) = (input.warehouse()?, input.namespace()?);
    let (call, body) = (input.call()?, input.json()?);
    let entry = input
        .context
        .catalog
        .relations()
        .register_view(&call, &warehouse, &namespace, &body)
        .await?;
    answer::document(input, &entry, SnapshotSelection::All, &FinishedSuffix::default()).await
}
